//! Whether a log loads, and what of it readers stumble over.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use object_store::{Error as StoreError, ObjectStoreExt};

use super::compare::base;
use super::hidden::{HiddenStore, Hides};
use super::names::LogName;
use super::{Facts, LAST_CHECKPOINT, Listing, Log, entry, version_path};
use crate::continuity::commit::FileId;
use crate::error::{Error, ErrorKind, Result};
use crate::store::store_error;

/// How often a log that changes meanwhile is looked at before it counts as lost.
const LOOKS: u32 = 5;

/// What can be done with a log.
#[derive(Debug)]
pub enum Condition {
    /// There is none: no entry and no checkpoint.
    Absent,
    /// It loads, and nothing in it misleads a reader.
    Sound,
    /// Readers stumble over a checkpoint or the hint; what lies below leads past it.
    Around(Box<Around>),
    /// No replay leads to its newest version, whatever is left out; why.
    Lost(Error),
}

/// A log seen past its damage.
#[derive(Debug)]
pub struct Around {
    /// The log, without the files that are damaged.
    pub log: Log,
    /// What is damaged.
    pub why: String,
}

/// The log as it is, and what of it is passed over.
#[derive(Debug)]
pub(super) struct Past {
    pub(super) log: Log,
    why: String,
}

/// What a replay comes to, in a form that is small however large the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gist {
    said: [String; 4],
    files: u64,
    sum: u128,
}

impl Log {
    /// Looks at the log as every reader must: its names, its checkpoints, the hint, and what a replay comes to with and
    /// without the newest checkpoint.
    ///
    /// Unavailable: the storage cannot be read. Incompatible: the table has a feature that is not known here.
    pub async fn condition(&self) -> Result<Condition> {
        let log = self.plain();
        let mut listing = log.list(0).await?;
        for _ in 1..LOOKS {
            let found = log.condition_of(&listing).await?;
            let again = log.list(0).await?;
            // Others may have cleaned up what was about to be read.
            if !matches!(found, Condition::Lost(_)) || again == listing {
                return Ok(found);
            }
            listing = again;
        }
        log.condition_of(&listing).await
    }

    /// What a reading of the log up to `version` failed with, unless others cleaned up since it was listed as `before`:
    /// then what looked like damage is an earlier state that is gone.
    pub(super) async fn unless_cleaned(&self, before: &Listing, version: u64, error: Error) -> Error {
        if error.kind() != ErrorKind::Corrupt {
            return error;
        }
        let Ok(now) = self.list(0).await else { return error };
        let is_gone = !before.versions.is_subset(&now.versions) || !before.checkpoints.is_subset(&now.checkpoints);
        if is_gone || now.checkpoints.last() > Some(&version) {
            return Error::unavailable(format!(
                "others cleaned up the log while it was read up to version {version}; try again"
            ))
            .with_source(error);
        }
        error
    }

    async fn condition_of(&self, listing: &Listing) -> Result<Condition> {
        let Some(head) = listing.head() else {
            return match &listing.others {
                None => Ok(Condition::Absent),
                Some((version, name)) => Ok(Condition::Lost(lost_entry(*version, name))),
            };
        };
        let listing = match self.led(listing.clone()).await? {
            Ok(listing) => listing,
            Err(e) => return Ok(Condition::Lost(e)),
        };
        let mut why = self.hint_fault(&listing).await?.map(|fault| fault.message);
        let mut damaged = BTreeSet::new();
        for file in listing.checkpoint_files().iter().filter(|f| f.is_complete) {
            if let Some(fault) = self.checkpoint_damage(file).await? {
                if listing.checkpoints.last() == Some(&file.version) {
                    why.get_or_insert_with(|| format!("the checkpoint file {} {fault}", file.name));
                }
                damaged.insert(file.version);
            }
        }
        if why.is_none()
            && let Some(named) = self.last_checkpoint().await?.filter(|named| damaged.contains(named))
        {
            why = Some(format!("{LAST_CHECKPOINT} names the checkpoint of version {named}, which is damaged"));
        }
        let whole: Vec<u64> = listing.checkpoints.iter().rev().filter(|v| !damaged.contains(v)).copied().collect();
        let mut first_error = None;
        for (passed, newest) in whole.iter().map(Some).chain([None]).enumerate() {
            let seen: HashSet<u64> = whole.iter().skip(passed).copied().collect();
            let is_plain = why.is_none() && passed == 0;
            let reason = why.as_deref().unwrap_or("the newest checkpoint cannot be read");
            let candidate = if is_plain { self.clone() } else { self.past(head, &seen, reason) };
            let loaded = match candidate.whole_facts().await {
                Err(e) if e.kind() == ErrorKind::Corrupt => Err(e),
                other => Ok(other?),
            };
            let untrue = match (&loaded, newest) {
                (Ok(_), Some(newest)) => self.contradiction(&listing, &seen, *newest).await?,
                _ => None,
            };
            match (loaded, untrue) {
                (Ok(_), None) if is_plain => return Ok(Condition::Sound),
                (Ok(_), None) => {
                    let why = reason.to_string();
                    return Ok(Condition::Around(Box::new(Around { log: candidate, why })));
                }
                (Ok(_), Some(contradiction)) => {
                    first_error.get_or_insert_with(|| Error::corrupt(contradiction.clone()));
                    why.get_or_insert(contradiction);
                }
                (Err(e), _) => {
                    why.get_or_insert_with(|| e.message().to_string());
                    first_error.get_or_insert(e);
                }
            }
        }
        let error = first_error.unwrap_or_else(|| Error::corrupt("the log cannot be replayed"));
        Ok(Condition::Lost(error))
    }

    /// The log as a reset sees it: past a damaged checkpoint or hint, where what lies below is whole.
    ///
    /// Corrupt: no replay leads to its head.
    pub async fn past_damage(&self) -> Result<Self> {
        match self.condition().await? {
            Condition::Absent | Condition::Sound => Ok(self.plain().clone()),
            Condition::Around(around) => {
                tracing::warn!(event = "log_damaged", why = around.why, "a reset goes past what is damaged in the log");
                Ok(around.log)
            }
            Condition::Lost(error) => Err(error.with_remedy(
                "a reset needs a log that loads; repair the table with `cutover reset --rebuild-log`, which needs none",
            )),
        }
    }

    /// What is damaged of the log that this one is seen past; `None` where it is seen as it is.
    pub fn damage(&self) -> Option<&str> {
        self.past.as_ref().map(|past| past.why.as_str())
    }

    /// The listing of a log whose names lead to its head. An entry that is put while names are listed may be missing among
    /// them, so it is looked for.
    pub(super) async fn led(&self, mut listing: Listing) -> Result<Result<Listing>> {
        while let Some((version, error)) = listing.gap() {
            match self.store().head(&version_path(version)).await {
                Ok(_) => listing.versions.insert(version),
                Err(StoreError::NotFound { .. }) => return Ok(Err(error)),
                Err(e) => {
                    return Err(store_error(format!("the entry of version {version} cannot be looked at"), e));
                }
            };
        }
        Ok(Ok(listing))
    }

    /// The facts, if every reader comes to them: the files can be told, too.
    async fn whole_facts(&self) -> Result<Facts> {
        let facts = self.facts_at_once().await?;
        if let Some(version) = facts.version {
            self.gist(version).await?;
        }
        Ok(facts)
    }

    /// This log without the checkpoints up to `newest` that are not `seen`, the hint, and all that repeats what entries
    /// say. A checkpoint that is written later is seen.
    pub(super) fn past(&self, newest: u64, seen: &HashSet<u64>, why: &str) -> Self {
        let seen = seen.clone();
        let hides: Hides = Arc::new(move |name: &str| match LogName::parse(name) {
            Some(LogName::Checkpoint(version, _)) => version <= newest && !seen.contains(&version),
            Some(LogName::Checksum(_) | LogName::Compacted(_)) => true,
            Some(LogName::Entry(_)) => false,
            None => name == LAST_CHECKPOINT,
        });
        let location = self.location.through(|store| Arc::new(HiddenStore::new(store, Arc::clone(&hides))));
        let past = Past { log: self.clone(), why: why.to_string() };
        Self { past: Some(Arc::new(past)), ..Self::new(location, self.world.clone()) }
    }

    /// How the checkpoint of `newest` contradicts what lies below it; `None` when it does not, or that cannot be told.
    async fn contradiction(&self, listing: &Listing, seen: &HashSet<u64>, newest: u64) -> Result<Option<String>> {
        let below: HashSet<u64> = seen.iter().copied().filter(|version| *version != newest).collect();
        let (with, without) = (self.past(newest, seen, ""), self.past(newest, &below, ""));
        let told = |gist: Result<Gist>| match gist {
            Err(e) if e.kind() == ErrorKind::Corrupt => Ok(None),
            other => other.map(Some),
        };
        let Some(with) = told(with.gist(newest).await)? else { return Ok(None) };
        let untrue = |what: String| Some(format!("the checkpoint of version {newest} {what}"));
        // Entries may load alone, with protocol and metadata among them, and begin behind files that only the checkpoint names.
        let mut plain = listing.clone();
        plain.checkpoints = below.into_iter().collect();
        if base(&plain, newest).is_some()
            && let Some(without) = told(without.gist(newest).await)?
        {
            return Ok(with.difference(&without).and_then(untrue));
        }
        Ok(self.unnamed(listing, newest).await?.and_then(untrue))
    }

    /// How the checkpoint of `newest` contradicts the entries that are left below it, which lead to it from nowhere.
    async fn unnamed(&self, listing: &Listing, newest: u64) -> Result<Option<String>> {
        let mut added: HashMap<FileId, u64> = HashMap::new();
        let mut step = None;
        let mut left: Vec<u64> = (0..=newest).rev().take_while(|v| listing.versions.contains(v)).collect();
        left.reverse();
        for version in left {
            let Some(bytes) = self.read(version).await? else { continue };
            let Ok(commit) = entry::parse(version, &bytes) else { return Ok(None) };
            for remove in &commit.removes {
                added.remove(&remove.file);
            }
            added.extend(commit.adds.iter().map(|a| (a.file.clone(), version)));
            step = commit.stamp().map(|s| s.to.as_i64()).or(step);
        }
        let replayed = self.replay(Some(newest)).await?;
        if step.is_some() && replayed.step != step {
            return Ok(Some(format!("says step {:?}, the commits {step:?}", replayed.step)));
        }
        let live = self.live_map_at(newest).await?;
        let missing = added.iter().find(|(file, _)| !live.contains_key(file));
        Ok(missing.map(|(file, version)| format!("lacks the file {}, which version {version} adds", file.path)))
    }

    pub(super) async fn gist(&self, version: u64) -> Result<Gist> {
        let replayed = self.replay(Some(version)).await?;
        let take = |(files, sum): &mut (u64, u128), file: super::LiveFile| {
            *files += 1;
            *sum = sum.wrapping_add(file.size.unsigned_abs().into()).wrapping_add(file.into_id().fingerprint());
        };
        let (files, sum) = self.kernel.live_files(version, (0, 0), take).await?;
        let said = [
            format!("{:?}", replayed.metadata),
            format!("{:?}", replayed.protocol),
            format!("{:?}", replayed.step),
            format!("{:?}", replayed.epoch),
        ];
        Ok(Gist { said, files, sum })
    }
}

impl Gist {
    pub(super) fn difference(&self, entries: &Self) -> Option<String> {
        let words = ["other metadata than", "another protocol than", "another step than", "another epoch than"];
        let said = self.said.iter().zip(&entries.said).zip(words).find(|((a, b), _)| a != b);
        let said = said.map(|((a, b), word)| format!("has {word} the commits: {a}, not {b}"));
        said.or_else(|| (self != entries).then(|| "has other live files than the commits".to_string()))
    }
}

impl Listing {
    /// The version whose entry is missing on the way from the log's beginning, or from a checkpoint, to its newest version,
    /// and what that means: a replay may take what is left for the whole.
    fn gap(&self) -> Option<(u64, Error)> {
        let head = self.head()?;
        if let Some((version, name)) = self.others.as_ref().filter(|(version, _)| *version > head) {
            return Some((*version, lost_entry(*version, name)));
        }
        if !self.versions.contains(&head) {
            let message = format!("the log entry of version {head} is missing, though there is a checkpoint of it");
            return Some((head, Error::corrupt(message)));
        }
        let first = self.checkpoints.last().map_or(0, |checkpoint| checkpoint + 1);
        let missing = (first..head).find(|version| !self.versions.contains(version))?;
        Some((missing, Error::corrupt(format!("the log entry of version {missing} is missing"))))
    }
}

fn lost_entry(version: u64, name: &str) -> Error {
    Error::corrupt(format!("the log entry of version {version} is missing, though the file {name} speaks of it"))
}
