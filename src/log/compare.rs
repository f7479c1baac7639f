//! A checkpoint read back and held against what the log says without it.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::actions::{Action, FileAction};
use super::entry::{Metadata, Protocol};
use super::names::CheckpointFile;
use super::{Listing, Log};
use crate::clock::{Clock, SystemClock};
use crate::continuity::stamp::{TXN_EPOCH, TXN_STEP};
use crate::error::{Error, ErrorKind, Result};

/// By which checkpoints may leave statistics out.
const STATS_AS_JSON: &str = "delta.checkpoint.writeStatsAsJson";

/// What is known of a file.
#[derive(Debug, PartialEq)]
enum Known {
    Live { content: u64, stats: Option<u64> },
    Removed { millis: Option<i64> },
}

/// What the log says at a version, but for the files.
#[derive(Debug, Default, PartialEq)]
struct Rest {
    metadata: Option<Metadata>,
    protocol: Option<(i32, i32, BTreeSet<String>, BTreeSet<String>)>,
    txns: BTreeMap<String, (i64, Option<i64>)>,
    domains: BTreeMap<String, String>,
}

impl Rest {
    /// Takes in what is about no file; what is, is given back.
    fn take(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::Metadata(metadata) => self.metadata = Some(plain(*metadata)),
            Action::Protocol(protocol) => self.protocol = Some(sets(protocol)),
            Action::Txn(txn) => drop(self.txns.insert(txn.app_id, (txn.version, txn.last_updated))),
            Action::Domain(domain) if domain.removed => drop(self.domains.remove(&domain.domain)),
            Action::Domain(domain) => drop(self.domains.insert(domain.domain, domain.configuration)),
            Action::Sidecar(_) => {}
            other @ (Action::Add(_) | Action::Remove(_)) => return Some(other),
        }
        None
    }

    /// The first part in which `checkpoint` differs.
    fn difference(&self, checkpoint: &Self) -> Option<String> {
        let parts = [
            ("metadata", self.metadata == checkpoint.metadata),
            ("protocol", self.protocol == checkpoint.protocol),
            ("txn", self.txns == checkpoint.txns),
            ("domains", self.domains == checkpoint.domains),
        ];
        parts.iter().find(|(_, same)| !same).map(|(name, _)| format!("its {name} differs from the entries'"))
    }
}

/// Without what checkpoints spell otherwise than entries.
fn plain(mut metadata: Metadata) -> Metadata {
    if let Some(format) = metadata.format.as_object_mut() {
        format.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|options| !options.is_empty()));
    }
    metadata
}

fn sets(protocol: Protocol) -> (i32, i32, BTreeSet<String>, BTreeSet<String>) {
    let set = |features: Option<Vec<String>>| features.into_iter().flatten().collect();
    let (reader, writer) = (set(protocol.reader_features), set(protocol.writer_features));
    (protocol.min_reader_version, protocol.min_writer_version, reader, writer)
}

/// What the log says at a version without its checkpoint.
#[derive(Default)]
struct Without {
    rest: Rest,
    files: HashMap<u128, Known>,
}

impl Without {
    fn take(&mut self, action: Action) -> Result<()> {
        match self.rest.take(action) {
            Some(Action::Add(file)) => {
                let live = Known::Live { content: file.content()?, stats: file.stats() };
                self.files.insert(file.key()?, live);
            }
            Some(Action::Remove(file)) => {
                self.files.insert(file.key()?, Known::Removed { millis: file.deletion_timestamp });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Log {
    /// How the checkpoint of `version` differs from the older checkpoint, or the beginning, with the entries up to
    /// `version`; `None` where it does not. Where what lies below it is gone, or damaged as below a log that was
    /// rebuilt, it is read back whole.
    pub(crate) async fn checkpoint_difference(&self, listing: &Listing, version: u64) -> Result<Option<String>> {
        let files = checkpoint_files(listing, version);
        let base = base(listing, version);
        let without = match base {
            Some(base) => match self.without(listing, base, version).await {
                Err(e) if e.kind() == ErrorKind::Corrupt => None,
                without => Some(without?),
            },
            None => None,
        };
        let Some(without) = without else { return self.alone_difference(&files, version).await };
        let mut stats_from_entries = base == Some(None);
        let metadata = without.rest.metadata.as_ref();
        let properties = metadata.map(|m| &m.configuration);
        let keeps_stats =
            properties.and_then(|p| p.get(STATS_AS_JSON)).is_none_or(|v| !v.eq_ignore_ascii_case("false"));
        // Statistics that a checkpoint has only as columns, the kernel writes as text.
        stats_from_entries &= keeps_stats;
        let mut found = Rest::default();
        let mut difference = None;
        let (rest, mut expected) = (without.rest, without.files);
        let compared = self.checkpoint_actions(&files, |action| {
            if let Some(action) = found.take(action)
                && difference.is_none()
            {
                difference = file_difference(&mut expected, action, keeps_stats, stats_from_entries)?;
            }
            Ok(())
        });
        match compared.await {
            Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(Some(e.message().to_string())),
            other => other?,
        }
        let retention = metadata_retention(rest.metadata.as_ref());
        let missing = || missing(&expected, self.expired_before(retention));
        if let Some(difference) = difference.or_else(missing).or_else(|| rest.difference(&found)) {
            return Ok(Some(difference));
        }
        self.kernel_difference(&files, version, &found).await
    }

    /// Whether the log still holds what the checkpoint of `version` is made of.
    pub(crate) fn can_compare_checkpoint(listing: &Listing, version: u64) -> bool {
        base(listing, version).is_some()
    }

    /// What the log says at `version` from the checkpoint of `base`, or from its beginning.
    async fn without(&self, listing: &Listing, base: Option<u64>, version: u64) -> Result<Without> {
        let mut without = Without::default();
        if let Some(base) = base {
            self.checkpoint_actions(&checkpoint_files(listing, base), |action| without.take(action)).await?;
        }
        let first = base.map_or(0, |base| base + 1);
        self.entry_actions(first..=version, |_, actions| actions.into_iter().try_for_each(|a| without.take(a))).await?;
        Ok(without)
    }

    /// What is wrong with a checkpoint of which nothing else tells what it should hold.
    async fn alone_difference(&self, files: &[CheckpointFile], version: u64) -> Result<Option<String>> {
        let mut found = Rest::default();
        let take = |action| {
            found.take(action);
            Ok(())
        };
        match self.checkpoint_actions(files, take).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => Ok(Some(e.message().to_string())),
            Err(e) => Err(e),
            Ok(()) => self.kernel_difference(files, version, &found).await,
        }
    }

    /// What the kernel makes of the checkpoint alone.
    async fn kernel_difference(&self, files: &[CheckpointFile], version: u64, found: &Rest) -> Result<Option<String>> {
        let names: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
        let replayed = match self.kernel_without(move |name| !names.contains(name)).replay(Some(version)).await {
            Err(e) if e.kind().leaves_open() => return Err(e),
            Err(e) => return Ok(Some(format!("it cannot be loaded alone: {e}"))),
            Ok(replayed) => replayed,
        };
        let txn = |name: &str| found.txns.get(name).map(|(version, _)| *version);
        let same = Some(plain(replayed.metadata)) == found.metadata
            && Some(sets(replayed.protocol)) == found.protocol
            && replayed.step == txn(TXN_STEP)
            && replayed.epoch == txn(TXN_EPOCH);
        Ok((!same).then(|| "the kernel loads another state from it alone".to_string()))
    }

    /// The moment before which a removal may be left out of checkpoints, in milliseconds since 1970 UTC.
    ///
    /// The kernel asks the machine's clock, whichever was passed in.
    fn expired_before(&self, retention: Duration) -> i64 {
        let millis = self.world.clock.unix_millis().max(SystemClock.unix_millis());
        millis.saturating_sub(super::cleanup::millis(retention))
    }
}

fn metadata_retention(metadata: Option<&Metadata>) -> Duration {
    metadata.map_or(Metadata::FILE_RETENTION, Metadata::file_retention)
}

/// What a checkpoint of `version` can be held against: an older checkpoint, or the beginning for `Some(None)`.
pub(super) fn base(listing: &Listing, version: u64) -> Option<Option<u64>> {
    let is_whole = |from: u64| listing.versions.range(from..=version).count() as u64 == version - from + 1;
    let older = listing.checkpoints.range(..version).next_back().copied();
    match older {
        Some(older) if is_whole(older + 1) => Some(Some(older)),
        _ => is_whole(0).then_some(None),
    }
}

/// The files of the checkpoint of `version`.
pub(super) fn checkpoint_files(listing: &Listing, version: u64) -> Vec<CheckpointFile> {
    listing.checkpoint_files().into_iter().filter(|file| file.version == version && file.is_complete).collect()
}

/// How a file in the checkpoint differs from what is expected of it; an expected one is crossed off.
fn file_difference(
    expected: &mut HashMap<u128, Known>,
    action: Action,
    keeps_stats: bool,
    stats_from_entries: bool,
) -> Result<Option<String>> {
    let (file, told) = match action {
        Action::Add(file) => {
            let live = Known::Live { content: file.content()?, stats: file.stats() };
            (file, live)
        }
        Action::Remove(file) => {
            let removed = Known::Removed { millis: file.deletion_timestamp };
            (file, removed)
        }
        _ => return Ok(None),
    };
    let FileAction { path, .. } = &file;
    let Entry::Occupied(entry) = expected.entry(file.key()?) else {
        return Ok(Some(format!("it names the file {path}, which the entries do not, or twice")));
    };
    let same = match (entry.remove(), told) {
        (Known::Live { content: a, stats: expected }, Known::Live { content: b, stats: told }) => {
            let stats = match (expected, told) {
                (Some(a), Some(b)) => a == b,
                (Some(_), None) => !keeps_stats,
                (None, Some(_)) => !stats_from_entries,
                (None, None) => true,
            };
            a == b && stats
        }
        (expected, told) => expected == told,
    };
    Ok((!same).then(|| format!("it says of the file {path} what the entries do not")))
}

/// What was not crossed off and may not be missing.
fn missing(expected: &HashMap<u128, Known>, expired_before: i64) -> Option<String> {
    let live = expected.values().filter(|known| matches!(known, Known::Live { .. })).count();
    // A removal without a date counts as expired.
    let is_due = |known: &&Known| matches!(known, Known::Removed { millis: Some(millis) } if *millis >= expired_before);
    let removed = expected.values().filter(is_due).count();
    if live > 0 {
        return Some(format!("it lacks {live} live files"));
    }
    (removed > 0).then(|| format!("it lacks {removed} removals that have not expired"))
}

/// A checkpoint that differs, as an error.
pub(super) fn differs(version: u64, difference: &str) -> Error {
    Error::corrupt(format!(
        "the checkpoint of version {version} is not what the log says without it: {difference}; nothing is cleaned up; see `cutover verify`"
    ))
}
