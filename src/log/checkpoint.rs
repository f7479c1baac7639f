//! Checkpoints after commits, at a cadence that keeps what they cost for a table's size a small share of the time.

use std::time::Duration;

use super::{Facts, Log};
use crate::error::{Error, Result};

/// Never more often than this many versions.
const FEWEST_VERSIONS: u64 = 100;
/// A checkpoint is due when appends took this many times what the last checkpoint took. It is well above the ten that
/// would do if all cost the same, because the next one costs more than the last.
const APPENDS_TO_CHECKPOINT: u32 = 20;
/// What a checkpoint is taken to cost before the first one.
const ASSUMED_COST: Duration = Duration::from_millis(20);
/// What appends of earlier processes are taken to have cost each.
const ASSUMED_APPEND: Duration = Duration::from_millis(4);
const DEADLINE: Duration = Duration::from_secs(120);

/// When the next checkpoint is due.
#[derive(Debug, Clone)]
pub struct Cadence {
    versions: u64,
    spent: Duration,
    last_cost: Duration,
}

impl Cadence {
    /// The cadence of a table whose last checkpoint was `versions` ago.
    pub fn since(versions: u64) -> Self {
        let counted = u32::try_from(versions).unwrap_or(u32::MAX);
        Self { versions, spent: ASSUMED_APPEND.saturating_mul(counted), last_cost: ASSUMED_COST }
    }

    /// Counts an append that took `cost`.
    pub fn appended(&mut self, cost: Duration) {
        self.versions += 1;
        self.spent += cost;
    }

    /// Whether a checkpoint is due.
    pub fn is_due(&self) -> bool {
        self.versions >= FEWEST_VERSIONS && self.spent >= self.last_cost * APPENDS_TO_CHECKPOINT
    }

    /// Counts a checkpoint, successful or not, that took `cost`.
    pub fn checkpointed(&mut self, cost: Duration) {
        *self = Self { versions: 0, spent: Duration::ZERO, last_cost: cost };
    }
}

impl Log {
    /// Writes a checkpoint of the version of `facts`, and lets `facts` know about it.
    pub async fn checkpoint(&self, facts: &mut Facts) -> Result<()> {
        let Some(version) = facts.version else { return Ok(()) };
        let late = self.world.clock.sleep(DEADLINE);
        tokio::select! {
            done = self.kernel.checkpoint(version) => done?,
            () = late => return Err(Error::unavailable(format!("the checkpoint of version {version} took longer than {DEADLINE:?}"))),
        }
        facts.checkpoint = Some(version);
        let head = self.head_mark(version).await?;
        // Only the checkpoint's mark is taken over: a head that changed must still be noticed.
        if let (Some(known), Some(found)) = (&mut facts.head, head) {
            known.checkpoint = found.checkpoint;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_many_short_runs_gets_its_checkpoint() {
        let mut cadence = Cadence::since(FEWEST_VERSIONS);
        cadence.appended(Duration::from_millis(1));
        assert!(cadence.is_due());
        assert!(!Cadence::since(FEWEST_VERSIONS - 10).is_due());
    }

    #[test]
    fn checkpoints_stay_a_small_share_whatever_they_cost() {
        let commit = Duration::from_micros(700);
        for (name, cost_at) in [
            ("cheap", (|_| Duration::from_millis(2)) as fn(u64) -> Duration),
            ("growing", |files| Duration::from_micros(20 * files)),
        ] {
            let mut cadence = Cadence::since(0);
            let (mut commits, mut checkpoints) = (Duration::ZERO, Duration::ZERO);
            for files in 0..100_000 {
                cadence.appended(commit);
                commits += commit;
                if cadence.is_due() {
                    let cost = cost_at(files);
                    checkpoints += cost;
                    cadence.checkpointed(cost);
                }
            }
            assert!(checkpoints > Duration::ZERO, "{name}");
            assert!(checkpoints * 10 < commits, "{name}: {checkpoints:?} of {commits:?}");
        }
    }
}
