//! What repairs a broken table.

use super::{Report, Verdict};
use crate::continuity::finding::Rule;
use crate::continuity::stamp::TXN_RETENTION;
use crate::error::Result;
use crate::log::{Condition, Log};

/// How a finding's file ends when it is about what a checkpoint says, whatever its parts are called.
pub(super) const CHECKPOINT: &str = ".checkpoint";

/// One step of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// Unset this table property.
    Unset(String),
    /// Reset the connector: a reload replaces what is wrong, damaged data files, checkpoints and the hint included.
    Reset,
    /// Reset the connector by rebuilding the log, which does not load.
    RebuildLog,
}

/// The version of the checkpoint whose content the file of a finding is about.
pub(super) fn contradicted(file: &str) -> Option<u64> {
    file.strip_suffix(CHECKPOINT).and_then(|version| version.parse().ok())
}

/// What is to be done to a broken table, in order.
pub(super) async fn repairs(log: &Log, report: &Report) -> Result<Vec<Repair>> {
    let mut repairs = Vec::new();
    if report.verdict != Verdict::Broken {
        return Ok(repairs);
    }
    if report.findings.iter().any(|f| f.rule == Rule::Drift && f.message.contains(TXN_RETENTION)) {
        repairs.push(Repair::Unset(TXN_RETENTION.to_string()));
    }
    repairs.push(match log.condition().await {
        Ok(Condition::Lost(_) | Condition::Absent) => Repair::RebuildLog,
        Ok(Condition::Sound | Condition::Around(_)) => Repair::Reset,
        Err(e) if e.kind().leaves_open() => return Err(e),
        // A feature that is not known here: no reset gets past it, and what the report says of it is all there is.
        Err(_) => return Ok(repairs),
    });
    Ok(repairs)
}
