//! What features of a table ask every commit to carry on: in-commit timestamps and row ids.

use serde_json::{Map, Value, json};

use super::entry::{Metadata, Protocol};
use super::features::{self, IN_COMMIT_TIMESTAMP, ROW_TRACKING};
use crate::error::{Error, Result};

/// The domain of row tracking.
pub(super) const ROW_TRACKING_DOMAIN: &str = "delta.rowTracking";

/// The state of both at a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Upkeep {
    times: Times,
    /// The highest row id given so far, −1 before the first; `None` where rows get no ids.
    last_row_id: Option<i64>,
    /// Whether commits say that they keep the ids of rows.
    is_tracking: bool,
}

/// In-commit timestamps, in milliseconds since 1970 UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Times {
    /// The table has none.
    #[default]
    Off,
    /// The last commit's.
    Last(i64),
    /// The table has them, and the last commit does not tell its own.
    Unknown,
}

impl Upkeep {
    /// The upkeep of a table whose newest commit has the in-commit timestamp `last_time`, and whose domain of row
    /// tracking is `tracking`.
    pub(super) fn new(
        protocol: &Protocol,
        metadata: &Metadata,
        last_time: Option<i64>,
        tracking: Option<&str>,
    ) -> Result<Self> {
        let times = match (has_times(protocol, metadata), last_time) {
            (false, _) => Times::Off,
            (true, Some(last)) => Times::Last(last),
            (true, None) => Times::Unknown,
        };
        let last_row_id = match tracks_rows(protocol, metadata) {
            true => Some(tracking.map_or(Ok(-1), last_id)?),
            false => None,
        };
        let is_tracking = features::is_on(protocol, metadata, ROW_TRACKING, "delta.enableRowTracking");
        Ok(Self { times, last_row_id, is_tracking })
    }

    /// Refuses a table whose last in-commit timestamp is not known, since the next one must be greater.
    pub(super) fn check(&self) -> Result<()> {
        match self.times {
            Times::Off | Times::Last(_) => Ok(()),
            Times::Unknown => Err(Error::incompatible(
                "the table has in-commit timestamps, and its newest commit, made by others, does not tell its own; switch them off (ALTER TABLE … SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')), or choose another uri",
            )),
        }
    }

    /// Goes on by a commit made at `millis`, and writes into its commit info what it must say.
    pub(super) fn begin(&mut self, millis: i64, info: &mut Map<String, Value>) {
        if let Times::Last(last) = self.times {
            let time = millis.max(last.saturating_add(1));
            info.insert("inCommitTimestamp".into(), time.into());
            self.times = Times::Last(time);
        }
        if self.is_tracking {
            // No commit of ours copies or updates a row in place: what it adds are other rows.
            info.insert("tags".into(), json!({ "delta.rowTracking.preserved": "true" }));
        }
    }

    /// The first of the ids of a file's rows; `None` where rows get no ids.
    pub(super) fn take_row_ids(&mut self, rows: impl FnOnce() -> Option<u64>) -> Result<Option<i64>> {
        let Some(last) = self.last_row_id else { return Ok(None) };
        let rows = rows().and_then(|rows| i64::try_from(rows).ok());
        let next = rows.and_then(|rows| last.checked_add(rows)).ok_or_else(|| {
            Error::internal("a file's rows cannot be given ids: their number is not known, or there are no more ids")
        })?;
        self.last_row_id = Some(next);
        Ok(last.checked_add(1))
    }

    /// The `domainMetadata` action that moves the mark from where it stood `before`.
    pub(super) fn domain(&self, before: &Self) -> Option<Value> {
        let last = self.last_row_id.filter(|last| Some(*last) > before.last_row_id)?;
        let configuration = json!({ "rowIdHighWaterMark": last }).to_string();
        Some(json!({ "domain": ROW_TRACKING_DOMAIN, "configuration": configuration, "removed": false }))
    }
}

/// Whether each commit must have an in-commit timestamp.
pub(super) fn has_times(protocol: &Protocol, metadata: &Metadata) -> bool {
    features::is_on(protocol, metadata, IN_COMMIT_TIMESTAMP, "delta.enableInCommitTimestamps")
}

/// Whether each file added must have row ids.
pub(super) fn tracks_rows(protocol: &Protocol, metadata: &Metadata) -> bool {
    features::supports(protocol, ROW_TRACKING)
        && !features::is_on(protocol, metadata, ROW_TRACKING, "delta.rowTrackingSuspended")
}

fn last_id(configuration: &str) -> Result<i64> {
    let parsed: Option<Value> = serde_json::from_str(configuration).ok();
    parsed.as_ref().and_then(|c| c.get("rowIdHighWaterMark")?.as_i64()).ok_or_else(|| {
        Error::corrupt(format!(
            "the table's domain {ROW_TRACKING_DOMAIN} does not tell the last row id: {configuration}"
        ))
    })
}
