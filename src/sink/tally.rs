//! What came of a connector's work since it was started.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::continuity::stamp::{Kind, RowCounts};
use crate::error::Lost;
use crate::log::Proposal;

/// What failed for a while and was tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// A commit whose outcome was not known.
    Commit,
    /// An append, files and commit.
    Append,
    /// A delivery as a whole: the look at table and source, a first load, the reading of changes.
    Delivery,
    /// A reset.
    Reset,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "commit",
            Self::Append => "append",
            Self::Delivery => "delivery",
            Self::Reset => "reset",
        })
    }
}

/// Commits of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Commits {
    /// How many.
    pub commits: u64,
    /// The rows that they added.
    pub rows: RowCounts,
    /// The bytes of the files that they added.
    pub bytes: u64,
}

/// How long something took, each time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Durations {
    /// How often it was measured, within each of [`Durations::BOUNDS`] and beyond the last one.
    pub buckets: [u64; Durations::BOUNDS.len() + 1],
    /// All of it, in seconds.
    pub sum: f64,
}

impl Durations {
    /// The bounds of the buckets, included, in seconds.
    pub const BOUNDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

    fn add(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = Self::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Self::BOUNDS.len());
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket += 1;
        }
        self.sum += seconds;
    }
}

/// Everything that is counted.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Reloads.
    pub reloads: Commits,
    /// Appends.
    pub appends: Commits,
    /// Claims, and other commits that change no row.
    pub marks: Commits,
    /// From the first put of a commit until it was known to be in the table.
    pub commit_seconds: Durations,
    /// Commits of others that came first.
    pub conflicts: u64,
    /// What was tried again.
    pub retries: BTreeMap<Stage, u64>,
    /// How often continuity was lost, and by what; `None`: that is not known.
    pub lost: BTreeMap<Option<Lost>, u64>,
}

/// Counters that a connector moves and anybody reads.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Mutex<Counts>,
}

impl Tally {
    /// What was counted until this moment.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    pub(super) fn committed(&self, proposal: &Proposal, took: Duration) {
        let bytes = proposal.adds.iter().map(|add| add.size).sum();
        self.count(proposal.stamp.kind, proposal.stamp.rows, bytes);
        self.lock().commit_seconds.add(took);
    }

    pub(super) fn conflicted(&self) {
        self.lock().conflicts += 1;
    }

    /// Something failed for a while, and is tried again.
    pub(crate) fn retried(&self, stage: Stage) {
        *self.lock().retries.entry(stage).or_default() += 1;
    }

    /// Continuity was lost by `lost`.
    pub(crate) fn lost(&self, lost: Option<Lost>) {
        *self.lock().lost.entry(lost).or_default() += 1;
    }

    pub(crate) fn count(&self, kind: Kind, rows: RowCounts, bytes: u64) {
        let mut counts = self.lock();
        let of_kind = match kind {
            Kind::Reload => &mut counts.reloads,
            Kind::Append => &mut counts.appends,
            Kind::Mark | Kind::Maintenance => &mut counts.marks,
        };
        of_kind.commits += 1;
        of_kind.bytes += bytes;
        of_kind.rows.i += rows.i;
        of_kind.rows.u += rows.u;
        of_kind.rows.d += rows.d;
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let mut durations = Durations::default();
        for millis in [0, 5, 6, 10_000, 30_001] {
            durations.add(Duration::from_millis(millis));
        }
        assert_eq!(durations.buckets, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
        assert!((durations.sum - 40.012).abs() < 1e-9, "{durations:?}");
    }
}
