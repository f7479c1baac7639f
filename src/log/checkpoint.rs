//! Checkpoints after commits, at a cadence that keeps them a small share of the time.

use std::time::Duration;

use super::{Facts, Log};
use crate::error::{Error, Result};

/// Never more often than this many versions.
const FEWEST_VERSIONS: u64 = 100;
/// A checkpoint is due when commits took this many times what the last checkpoint took.
const COMMITS_TO_CHECKPOINT: u32 = 12;
const DEADLINE: Duration = Duration::from_secs(120);

/// When the next checkpoint is due.
#[derive(Debug, Clone, Default)]
pub struct Cadence {
    versions: u64,
    spent: Duration,
    last_cost: Duration,
}

impl Cadence {
    /// Counts a commit that took `cost`.
    pub fn committed(&mut self, cost: Duration) {
        self.versions += 1;
        self.spent += cost;
    }

    /// Whether a checkpoint is due.
    pub fn is_due(&self) -> bool {
        self.versions >= FEWEST_VERSIONS && self.spent >= self.last_cost * COMMITS_TO_CHECKPOINT
    }

    /// Counts a checkpoint, successful or not, that took `cost`.
    pub fn checkpointed(&mut self, cost: Duration) {
        *self = Self { last_cost: cost, ..Self::default() };
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
    fn checkpoints_stay_a_small_share_whatever_they_cost() {
        let commit = Duration::from_micros(700);
        for (name, cost_at) in [
            ("cheap", (|_| Duration::from_millis(2)) as fn(u64) -> Duration),
            ("growing", |files| Duration::from_micros(20 * files)),
        ] {
            let mut cadence = Cadence::default();
            let (mut commits, mut checkpoints) = (Duration::ZERO, Duration::ZERO);
            for files in 0..100_000 {
                cadence.committed(commit);
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
