//! Where a table stands: generation, cutover, last step.

use futures::StreamExt;

use super::{contiguous, listing};
use crate::continuity::plan::Standing;
use crate::continuity::stamp::{CommitStamp, Kind, RowCounts, TableStamp};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::log::Log;
use crate::step::Step;

/// Where a table stands.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The properties of the current generation.
    pub table: TableStamp,
    /// The version of the reload; `None` when the log no longer holds it.
    pub cutover_version: Option<u64>,
    /// The newest version, or the one asked for by a step.
    pub version: u64,
    /// The last step at that version.
    pub last_step: Step,
    /// The last step before that version, where a step was asked for that the generation held before its end.
    pub before: Option<Step>,
    /// The highest epoch.
    pub epoch: Epoch,
    /// The digest of the generation at that version, where the log tells.
    pub digest_total: Option<Digest>,
    /// The rows of the generation's commits up to that version, where the log tells.
    pub rows_total: Option<RowCounts>,
    /// Why the table is not what our commits made it.
    pub drift: Option<String>,
}

/// Where the table stands at its head, or stood when it first held everything up to `at_step`.
pub async fn show(log: &Log, at_step: Option<Step>) -> Result<Shown> {
    let (listing, head) = listing(log).await?;
    let facts = log.facts().await?;
    let Standing::Ours(ours) = facts.standing else {
        return Err(Error::refused(format!(
            "the table {} is not ours; no connector of cutover loaded it, so it has no generation to show",
            log.location().uri()
        )));
    };
    let Some(table) = ours.stamp else {
        return Err(Error::corrupt("the table lost the properties that a reload writes; repair it with a reset"));
    };
    let mut shown = Shown {
        cutover_version: None,
        version: facts.version.unwrap_or(head),
        last_step: ours.last_step,
        before: None,
        epoch: ours.epoch,
        digest_total: ours.digest_total,
        rows_total: ours.rows_total,
        drift: ours.drift,
        table,
    };
    if let Some(step) = at_step
        && (step < shown.table.step || step > shown.last_step)
    {
        return Err(Error::refused(format!(
            "the generation {} speaks of the steps {} to {}, not of {step}",
            shown.table.generation, shown.table.step, shown.last_step
        )));
    }
    let versions: Vec<u64> = contiguous(&listing, head).into_iter().rev().collect();
    let mut commits = std::pin::pin!(log.commits(versions));
    while let Some((version, commit)) = commits.next().await {
        let commit = commit?;
        let Some(stamp) = commit.as_ref().and_then(|c| c.stamp()) else { continue };
        match at_step {
            Some(step) if stamp.to >= step => shown.take(version, stamp),
            Some(_) if shown.before.is_none() => shown.before = Some(stamp.to),
            _ => {}
        }
        if stamp.kind == Kind::Reload {
            shown.cutover_version = (stamp.commit == shown.table.commit).then_some(version);
            break;
        }
    }
    Ok(shown)
}

impl Shown {
    fn take(&mut self, version: u64, stamp: &CommitStamp) {
        self.version = version;
        self.last_step = stamp.to;
        self.digest_total = stamp.digest_total;
        self.rows_total = stamp.rows_total;
    }
}
