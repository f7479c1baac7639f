//! Checkpoints after commits, at a cadence that keeps what they cost for a table's size a small share of the time.

use std::time::Duration;

use super::{Facts, Log, compare, hint};
use crate::error::Result;

/// Never more often than this many versions, which readers replay entry by entry.
const FEWEST_VERSIONS: u64 = 100;
/// One checkpoint for so many versions as make up a tenth of the actions that it rewrites: however large the table, a
/// version's share of the rewriting is ten actions.
const ACTIONS_TO_VERSIONS: u64 = 10;
/// A checkpoint that takes longer is talked about.
const LATE: Duration = Duration::from_secs(120);

/// When the next checkpoint is due.
#[derive(Debug, Clone)]
pub struct Cadence {
    /// The version of the last checkpoint.
    last: u64,
    actions: u64,
}

impl Cadence {
    /// The cadence of a table whose last checkpoint was that of the version `last`.
    pub fn since(last: u64) -> Self {
        Self { last, actions: 0 }
    }

    /// Whether a checkpoint is due of the version `head`, whoever committed those before it.
    pub fn is_due(&self, head: u64) -> bool {
        head.saturating_sub(self.last) >= FEWEST_VERSIONS.max(self.actions / ACTIONS_TO_VERSIONS)
    }

    /// A checkpoint of `version` is begun.
    pub fn begin(&mut self, version: u64) {
        self.last = version;
    }

    /// Takes in how many actions a checkpoint holds; one that failed tells none.
    pub fn wrote(&mut self, actions: u64) {
        self.actions = actions;
    }
}

impl Log {
    /// Writes a checkpoint of the version of `facts`, and lets `facts` know about it; the actions that it holds, where
    /// `_last_checkpoint` tells.
    pub async fn checkpoint(&self, facts: &mut Facts) -> Result<Option<u64>> {
        let Some(version) = facts.version else { return Ok(None) };
        facts.expect_checkpoint(version);
        let actions = self.write_checkpoint(version).await?;
        facts.checkpoint = Some(version);
        Ok(actions)
    }

    /// Writes a checkpoint of `version`; the actions that it holds, where `_last_checkpoint` tells.
    ///
    /// It ends only when the kernel has: whoever waits for it is told by an event when that takes long.
    pub async fn write_checkpoint(&self, version: u64) -> Result<Option<u64>> {
        let before = self.list(0).await?;
        let mut written = std::pin::pin!(self.kernel.checkpoint(version));
        let late = self.world.clock.deadline(LATE);
        let written = tokio::select! {
            done = &mut written => done,
            () = late => {
                tracing::warn!(event = "checkpoint_late", version, "the checkpoint takes longer than {LATE:?}");
                written.await
            }
        };
        match written {
            Ok(()) => self.actions_of_hint().await,
            Err(error) => Err(self.unless_cleaned(&before, version, error).await),
        }
    }

    /// Reads the checkpoint of `version` back and holds it against the log without it.
    ///
    /// Corrupt: they differ, or what it is held against cannot be read.
    pub async fn compare_checkpoint(&self, version: u64) -> Result<()> {
        let listing = self.list(0).await?;
        match self.checkpoint_difference(&listing, version).await? {
            Some(difference) => Err(compare::differs(version, &difference)),
            None => Ok(()),
        }
    }

    /// None is told where there is no hint: the kernel leaves it out when somebody else made the checkpoint.
    async fn actions_of_hint(&self) -> Result<Option<u64>> {
        Ok(self.hint().await?.and_then(|hint| hint::number(&hint, "size")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_many_short_runs_gets_its_checkpoint() {
        let cadence = Cadence::since(7);
        assert!(!cadence.is_due(7 + FEWEST_VERSIONS - 1));
        assert!(cadence.is_due(7 + FEWEST_VERSIONS));
    }

    #[test]
    fn what_checkpoints_rewrite_for_a_version_is_bounded_however_large_the_table() {
        let mut cadence = Cadence::since(0);
        let (mut rewritten, mut longest, mut last) = (0, 0, 0);
        for version in 1..=1_000_000u64 {
            if cadence.is_due(version) {
                rewritten += version;
                longest = longest.max(version - last);
                last = version;
                cadence.begin(version);
                cadence.wrote(version);
            }
        }
        assert!(rewritten < 12 * 1_000_000, "{rewritten} actions");
        assert!(longest < 100_000, "{longest} versions without a checkpoint");
    }
}
