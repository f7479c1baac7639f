//! What came of a connector's work since it was started, as REST and metrics show it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::continuity::stamp::{Kind, RowCounts};
use crate::sink::{Commits, Counts, Durations};

/// What a connector did since it was started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkReport {
    /// Its commits by kind: `reload`, `append`, `mark`.
    pub commits: BTreeMap<String, CommitsReport>,
    /// How long commits took, from the first put until it was known that the table has them.
    pub commit_seconds: DurationsReport,
    /// Commits of others that came first.
    pub conflicts: u64,
    /// What failed for a while and was tried again, by stage: `commit`, `append`, `delivery`, `reset`.
    pub retries: BTreeMap<String, u64>,
    /// How often continuity was lost, by cause.
    pub continuity_lost: BTreeMap<String, u64>,
}

/// Commits of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitsReport {
    /// How many.
    pub commits: u64,
    /// The rows that they added, by operation.
    pub rows: RowCounts,
    /// The bytes of the files that they added.
    pub bytes: u64,
}

/// How long something took, each time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DurationsReport {
    /// The bounds of the buckets, included, in seconds.
    pub bounds: Vec<f64>,
    /// How many fell into each bucket, and beyond the last bound.
    pub counts: Vec<u64>,
    /// All of it, in seconds.
    pub sum: f64,
}

impl WorkReport {
    pub(super) fn of(counts: &Counts) -> Self {
        let Durations { buckets, sum } = counts.commit_seconds;
        let commits = [(Kind::Reload, counts.reloads), (Kind::Append, counts.appends), (Kind::Mark, counts.marks)];
        Self {
            commits: commits.into_iter().map(|(kind, commits)| (kind.to_string(), commits.into())).collect(),
            commit_seconds: DurationsReport { bounds: Durations::BOUNDS.to_vec(), counts: buckets.to_vec(), sum },
            conflicts: counts.conflicts,
            retries: counts.retries.iter().map(|(stage, count)| (stage.to_string(), *count)).collect(),
            continuity_lost: counts
                .lost
                .iter()
                .map(|(lost, count)| (lost.map_or("unknown".to_string(), |lost| lost.to_string()), *count))
                .collect(),
        }
    }
}

impl From<Commits> for CommitsReport {
    fn from(Commits { commits, rows, bytes }: Commits) -> Self {
        Self { commits, rows, bytes }
    }
}
