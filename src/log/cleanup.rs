//! Log clean-up: the oldest versions, as far as the table's properties let them go, below a checkpoint that was read
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt};

use super::names::LogName;
use super::upkeep::has_times;
use super::{Facts, LOG_DIR, Listing, Log, compare, entry, features};
use crate::continuity::stamp::Kind;
use crate::error::{Error, Result};
use crate::store::store_error;

const ENABLED: &str = "delta.enableExpiredLogCleanup";
const TIMES_SINCE: &str = "delta.inCommitTimestampEnablementVersion";
/// Tables with it let nobody delete checkpoints below a version that they name.
const PROTECTION: &str = "checkpointProtection";

/// The versions that may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expired {
    /// The first version that stays; there is a checkpoint of it, which was read back and compared.
    pub below: u64,
}

/// The log as far as clean-up asks for it.
struct Aged {
    listing: Listing,
    /// When entries were written by the storage's clock, in milliseconds since 1970 UTC.
    entries: BTreeMap<u64, i64>,
    /// The lowest version that a file of the log is of.
    lowest: u64,
}

impl Log {
    /// The versions of the table of `facts` that may go: those that the table's properties keep no longer, up to the last
    /// commit of ours with rows, below the newest checkpoint that every version after them can be loaded from.
    ///
    /// The checkpoint is read back and compared, whoever did so before. Corrupt: it differs.
    pub async fn expired(&self, facts: &Facts) -> Result<Option<Expired>> {
        let (Some(head), Some(metadata), Some(protocol)) = (facts.version, &facts.metadata, &facts.protocol) else {
            return Ok(None);
        };
        let off = metadata.configuration.get(ENABLED).is_some_and(|value| value.eq_ignore_ascii_case("false"));
        if off || features::supports(protocol, PROTECTION) {
            return Ok(None);
        }
        let Some(retention) = metadata.told_log_retention() else {
            return Err(Error::incompatible(
                "the table property delta.logRetentionDuration is no interval that is understood here, so no log entry is cleaned up; write one like \"interval 30 days\"",
            ));
        };
        let aged = self.aged().await?;
        let before = self.world.clock.unix_millis().saturating_sub(millis(retention));
        let since = metadata.configuration.get(TIMES_SINCE).and_then(|v| v.parse().ok()).unwrap_or(0);
        let times_since = has_times(protocol, metadata).then_some(since);
        let oldest = self.oldest_retained(&aged, head, before, times_since).await?;
        let Some(below) = self.checkpoint_below(&aged, oldest, head).await? else { return Ok(None) };
        // The checkpoint that readers are led to stays until they are led to a later one.
        if below <= aged.lowest || self.last_checkpoint().await?.is_some_and(|led_to| led_to < below) {
            return Ok(None);
        }
        match self.checkpoint_difference(&aged.listing, below).await? {
            Some(difference) => Err(compare::differs(below, &difference)),
            None => Ok(Some(Expired { below })),
        }
    }

    /// Deletes the entries of `expired` versions, their checksums, compacted entries and checkpoints, oldest first; the
    /// number of files.
    ///
    /// What is left after a deletion that failed, or after a crash, is a log in which every version that stays can be
    /// loaded. Sidecars stay.
    pub async fn clean_up(&self, expired: Expired) -> Result<u64> {
        // What was only written may not be on the disk, while a deletion is.
        self.location().sync().await?;
        let mut names = BTreeSet::new();
        for (name, object) in self.log_objects().await? {
            let rank = match name {
                LogName::Checksum(_) => 0,
                LogName::Compacted(_) => 1,
                LogName::Checkpoint(..) => 2,
                LogName::Entry(_) => 3,
            };
            if name.version() < expired.below
                && let Some(text) = object.location.filename()
            {
                names.insert((name.version(), rank, text.to_string()));
            }
        }
        let mut deleted = 0;
        for (version, _, name) in names {
            match self.store().delete(&Path::from_iter([LOG_DIR, &name])).await {
                Ok(()) => deleted += 1,
                Err(StoreError::NotFound { .. }) => {}
                Err(e) => {
                    let message = format!("the log file {name} of version {version} cannot be deleted");
                    return Err(store_error(message, e));
                }
            }
        }
        Ok(deleted)
    }

    /// The files of the log's folder that are of a version.
    async fn log_objects(&self) -> Result<Vec<(LogName, ObjectMeta)>> {
        let mut found = Vec::new();
        let mut objects = self.store().list(Some(&Path::from(LOG_DIR)));
        while let Some(object) = objects.try_next().await.map_err(unlisted)? {
            let name = object.location.filename().filter(|_| object.location.parts().count() == 2);
            if let Some(name) = name.and_then(LogName::parse) {
                found.push((name, object));
            }
        }
        Ok(found)
    }

    async fn aged(&self) -> Result<Aged> {
        let (mut listing, mut entries, mut lowest) = (Listing::default(), BTreeMap::new(), u64::MAX);
        for (name, object) in self.log_objects().await? {
            listing.take(object.location.filename().unwrap_or_default(), object.size);
            if let LogName::Entry(version) = name {
                entries.insert(version, object.last_modified.timestamp_millis());
            }
            lowest = lowest.min(name.version());
        }
        Ok(Aged { listing, entries, lowest })
    }

    /// The first version that was not made `before`, by its own timestamp from `times_since` on.
    async fn oldest_retained(&self, aged: &Aged, head: u64, before: i64, times_since: Option<u64>) -> Result<u64> {
        let first = aged.entries.keys().next().copied().unwrap_or(head);
        let by_file = |end: u64| {
            let mut entries = aged.entries.range(..end);
            entries.find(|(_, written)| **written >= before).map(|(version, _)| *version)
        };
        let Some(since) = times_since else { return Ok(by_file(head).unwrap_or(head)) };
        if let Some(version) = by_file(since) {
            return Ok(version);
        }
        // Timestamps in commits only grow.
        let (mut low, mut high) = (since.max(first), head);
        while low < high {
            let middle = low + (high - low) / 2;
            let time = self.read(middle).await?.and_then(|bytes| entry::in_commit_timestamp(&bytes));
            // A version that does not tell is kept.
            if time.is_none_or(|time| time >= before) { high = middle } else { low = middle + 1 }
        }
        Ok(low.min(head))
    }

    /// The newest whole checkpoint at or below `oldest` and our last commit of rows, from which all entries up to `head`
    /// are there.
    async fn checkpoint_below(&self, aged: &Aged, oldest: u64, head: u64) -> Result<Option<u64>> {
        let mut anchor = head;
        loop {
            let Some(commit) = self.commit(anchor).await? else { return Ok(None) };
            if commit.stamp().is_some_and(|stamp| matches!(stamp.kind, Kind::Reload | Kind::Append)) {
                break;
            }
            let Some(before) = anchor.checked_sub(1) else { return Ok(None) };
            anchor = before;
        }
        let below = aged.listing.checkpoints.range(..=oldest.min(anchor)).next_back().copied();
        Ok(below.filter(|below| aged.entries.range(below..=&head).count() as u64 == head - below + 1))
    }
}

/// A length of time for comparing with moments in milliseconds since 1970 UTC.
pub(super) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn unlisted(error: StoreError) -> Error {
    store_error("the log cannot be listed", error)
}
