//! One put of one version, and what became of it.
//!
//! ```text
//!            put-if-absent
//!   base ──────────────────► base + 1        ok ───────────────────────► Committed
//!                                            any error: read base + 1
//!                                              our id ─────────────────► Committed
//!                                              another's ──────────────► Conflict
//!                                              absent: same bytes again, until the deadline ► Unknown
//! ```

use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload};

use super::entry::{self, AddAction, Lines, Metadata, Protocol, PutAdd, RemoveAction, TxnAction};
use super::facts::HeadMark;
use super::salvage::Carried;
use super::upkeep::{ROW_TRACKING_DOMAIN, Upkeep};
use super::{Facts, LAST_CHECKPOINT, LOG_DIR, LiveFile, Log, version_path};
use crate::continuity::stamp::{CommitStamp, Kind, Layout, TXN_EPOCH, TXN_STEP};
use crate::error::{Error, Result};
use crate::store::{is_denied, store_error};

/// Facts older than this are looked at again before and after a put.
const STALE: Duration = Duration::from_secs(3);
/// How long a put is repeated before its outcome is left open.
const DEADLINE: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What became of a put.
#[derive(Debug)]
pub enum Outcome {
    /// The version is ours; its entry's tag, where the storage tells.
    Committed(Option<String>),
    /// The table moved on: read the facts anew and plan again.
    Conflict,
    /// It may yet appear: the same entry must be put again before anything else.
    Unknown(Error),
}

/// What a commit of ours is to hold.
#[derive(Debug)]
pub struct Proposal {
    /// The stamp.
    pub stamp: CommitStamp,
    /// How the view's rows stand in the table.
    pub layout: Layout,
    /// Whether the commit takes an epoch.
    pub claims: bool,
    /// The protocol, when it changes.
    pub protocol: Option<Protocol>,
    /// The metadata, when it changes.
    pub metadata: Option<Metadata>,
    /// The files added.
    pub adds: Vec<AddAction>,
    /// The files removed.
    pub removes: Vec<LiveFile>,
}

/// A log entry, ready to be put: the same bytes at every attempt.
#[derive(Debug, Clone)]
pub struct Entry {
    version: u64,
    commit: String,
    bytes: Bytes,
    /// What the commit after it has to carry on.
    upkeep: Upkeep,
}

impl Entry {
    /// The version that it is for.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Log {
    /// The entry of `proposal` for the version after `facts`.
    pub(crate) fn entry(&self, facts: &Facts, proposal: &Proposal) -> Result<Entry> {
        let millis = self.world.clock.unix_millis();
        let mut lines = Lines::default();
        let version = facts.version.map_or(0, |v| v + 1);
        let mut upkeep = facts.upkeep.clone();
        let metadata = proposal.metadata.as_ref().or(facts.metadata.as_ref());
        let partition_by = metadata.map_or(&[][..], |m| &m.partition_columns);
        let removed = proposal.removes.len();
        let mut info =
            entry::commit_info(&proposal.stamp, partition_by, &proposal.adds, removed, proposal.layout, millis)?;
        upkeep.begin(millis, &mut info);
        lines.push("commitInfo", &info)?;
        if let Some(protocol) = &proposal.protocol {
            lines.push("protocol", protocol)?;
        }
        if let Some(metadata) = &proposal.metadata {
            lines.push("metaData", metadata)?;
        }
        lines.push(
            "txn",
            &TxnAction { app_id: TXN_STEP.into(), version: proposal.stamp.to.as_i64(), last_updated: None },
        )?;
        if proposal.claims {
            lines.push(
                "txn",
                &TxnAction { app_id: TXN_EPOCH.into(), version: proposal.stamp.epoch.as_i64(), last_updated: None },
            )?;
        }
        for txn in &facts.carried.txns {
            lines.push("txn", txn)?;
        }
        for file in &proposal.removes {
            let remove = RemoveAction {
                path: file.path.clone(),
                deletion_timestamp: millis,
                data_change: proposal.stamp.kind != Kind::Maintenance,
                extended_file_metadata: true,
                partition_values: file.partition_values.clone(),
                size: file.size,
                deletion_vector: file.vector.clone(),
                base_row_id: file.base_row_id,
                default_row_commit_version: file.default_row_commit_version,
            };
            lines.push("remove", &remove)?;
        }
        for add in &proposal.adds {
            let (base_row_id, default_row_commit_version) = match add.again {
                Some(ids) => (ids.base, ids.commit_version),
                None => {
                    let base = upkeep.take_row_ids(|| entry::FileStats::read(&add.stats).records)?;
                    (base, base.and(i64::try_from(version).ok()))
                }
            };
            lines.push("add", &PutAdd { add, base_row_id, default_row_commit_version })?;
        }
        let moved = upkeep.domain(&facts.upkeep);
        let is_said = |name: &str| moved.is_some() && name == ROW_TRACKING_DOMAIN;
        for (_, domain) in facts.carried.domains.iter().filter(|(name, _)| !is_said(name)) {
            lines.push("domainMetadata", domain)?;
        }
        if let Some(domain) = moved {
            lines.push("domainMetadata", &domain)?;
        }
        Ok(Entry { version, commit: proposal.stamp.commit.clone(), bytes: lines.into_bytes().into(), upkeep })
    }

    /// Puts `entry`, made of `proposal` for the version after `facts`, and moves `facts` on when it is committed. The one
    /// place that writes a table version.
    ///
    /// Fails only where nothing was written and trying again is pointless.
    pub(crate) async fn put(&self, facts: &mut Facts, entry: &Entry, proposal: &Proposal) -> Result<Outcome> {
        self.check_conditional_put().await?;
        let outcome = self.attempt(facts, entry).await?;
        if let Outcome::Committed(tag) = &outcome {
            self.advance(facts, entry, proposal, tag.clone());
        }
        Ok(outcome)
    }

    async fn attempt(&self, facts: &mut Facts, entry: &Entry) -> Result<Outcome> {
        if !self.is_head(facts).await? {
            return Ok(Outcome::Conflict);
        }
        let begun = self.world.clock.boot();
        let mut pause = FIRST_PAUSE;
        let mut is_first = true;
        loop {
            let path = version_path(entry.version);
            let put = self.store().put_opts(&path, PutPayload::from(entry.bytes.clone()), PutMode::Create.into()).await;
            let error = match put {
                Ok(put) => return self.confirm(facts, entry, put.e_tag).await,
                Err(error) => error,
            };
            match self.read(entry.version).await {
                Ok(Some(found)) => return self.settle(facts, entry, &found).await,
                // An attempt before may still arrive.
                Ok(None) if is_denied(&error) && is_first => {
                    return Err(store_error(
                        format!("the log of {} cannot be written; check its permissions", self.location().uri()),
                        error,
                    ));
                }
                // Neither side answers any more, so waiting is pointless; what came of attempts before is not known.
                Err(unread) if is_denied(&error) && !unread.kind().is_retryable() => {
                    let message = format!("whether version {} was written is not known yet", entry.version);
                    return Ok(Outcome::Unknown(store_error(message, error)));
                }
                Ok(None) | Err(_) => {}
            }
            if self.world.clock.boot().saturating_sub(begun) > DEADLINE {
                let message = format!(
                    "whether version {} was written is not known yet; check the storage and its free space",
                    entry.version
                );
                return Ok(Outcome::Unknown(store_error(message, error)));
            }
            tracing::warn!(event = "put_repeated", version = entry.version, error = %error, "the log entry is put again");
            self.world.clock.sleep(pause).await;
            is_first = false;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn settle(&self, facts: &Facts, entry: &Entry, found: &[u8]) -> Result<Outcome> {
        let ours =
            entry::parse(entry.version, found).is_ok_and(|c| c.stamp().is_some_and(|s| s.commit == entry.commit));
        if ours { self.confirm(facts, entry, None).await } else { Ok(Outcome::Conflict) }
    }

    /// A put that took long may have landed below the head of a log that was cleaned up meanwhile: then the base is gone.
    async fn confirm(&self, facts: &Facts, entry: &Entry, tag: Option<String>) -> Result<Outcome> {
        if self.world.clock.boot().saturating_sub(facts.checked) <= STALE {
            return Ok(Outcome::Committed(tag));
        }
        let base = facts.version.filter(|_| facts.ruins.is_none()).unwrap_or(entry.version);
        let listing = match self.list(base).await {
            Ok(listing) => listing,
            Err(e) => return Ok(Outcome::Unknown(e)),
        };
        let head = listing.head().unwrap_or(entry.version);
        let whole = (base..=head).all(|v| listing.versions.contains(&v));
        Ok(if whole { Outcome::Committed(tag) } else { Outcome::Conflict })
    }

    /// Whether the version of `facts` is still the head, as far as can be told without a race; a free name alone is no proof.
    async fn is_head(&self, facts: &mut Facts) -> Result<bool> {
        if let Some(ruins) = &facts.ruins {
            return Ok(self.log_files().await? == *ruins);
        }
        let stale = self.world.clock.boot().saturating_sub(facts.checked) > STALE;
        let Some(version) = facts.version else {
            return Ok(!stale || self.list(0).await?.head().is_none());
        };
        if stale && self.list(version).await?.head() != Some(version) {
            return Ok(false);
        }
        let (Some(found), Some(known)) = (self.head_mark(version).await?, &facts.head) else { return Ok(false) };
        if !found.is_entry_of(known) {
            return Ok(false);
        }
        if found.checkpoint != known.checkpoint {
            // A hint to the very checkpoint that this writer makes, at or below the base, is no sign of others.
            let own = facts.own_checkpoint.filter(|own| *own <= version);
            if own.is_none() || self.last_checkpoint().await.unwrap_or(None) != own {
                return Ok(false);
            }
            facts.head = Some(found);
        }
        Ok(true)
    }

    /// What the head of `version` is known by; `None` when it is gone.
    pub(super) async fn head_mark(&self, version: u64) -> Result<Option<HeadMark>> {
        let (size, tag) = match self.store().head(&version_path(version)).await {
            Ok(meta) => (meta.size, meta.e_tag),
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(store_error(format!("the entry of version {version} cannot be looked at"), e)),
        };
        let checkpoint = match self.store().head(&Path::from_iter([LOG_DIR, LAST_CHECKPOINT])).await {
            Ok(meta) => Some((meta.size, meta.last_modified)),
            Err(StoreError::NotFound { .. }) => None,
            Err(e) => return Err(store_error("_last_checkpoint cannot be looked at", e)),
        };
        Ok(Some(HeadMark { size, tag, checkpoint }))
    }

    /// The facts after `entry` was committed on them; continuity's part is the caller's.
    fn advance(&self, facts: &mut Facts, entry: &Entry, proposal: &Proposal, tag: Option<String>) {
        facts.version = Some(entry.version);
        facts.ruins = None;
        facts.carried = Carried::default();
        facts.upkeep = entry.upkeep.clone();
        if let Some(metadata) = &proposal.metadata {
            facts.metadata = Some(metadata.clone());
        }
        if let Some(protocol) = &proposal.protocol {
            facts.protocol = Some(protocol.clone());
        }
        let checkpoint = facts.head.take().and_then(|h| h.checkpoint);
        facts.head = Some(HeadMark { size: entry.bytes.len() as u64, tag, checkpoint });
        facts.checked = self.world.clock.boot();
    }
}

impl HeadMark {
    /// Whether both may be marks of the same entry.
    fn is_entry_of(&self, other: &Self) -> bool {
        let same_tag = self.tag.is_none() || other.tag.is_none() || self.tag == other.tag;
        self.size == other.size && same_tag
    }
}
