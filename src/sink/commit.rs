//! What both the unclaimed and the claimed table share: facts, and commits on them.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};

use super::compaction::Compaction;
use super::current::CurrentRows;
use super::maintenance::Maintenance;
use super::small_files::SmallFiles;
use super::{Progress, SinkSettings, Stage, Tally};
use crate::clock::World;
use crate::continuity::plan::{Identity, Ours, Standing};
use crate::continuity::stamp::{Kind, Layout, Mode, TableStamp};
use crate::error::{Error, Result};
use crate::files::{DataFile, Written};
use crate::log::{Entry, Facts, LEAST_AGE, Log, Metadata, Outcome, Proposal};
use crate::schema::View;
use crate::store::store_error;

/// A commit gives up when others came first this often.
pub(super) const MOST_CONFLICTS: u32 = 50;
const LOOKS_AT_ONCE: usize = 32;

/// By what it is told whether files are young enough to be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// When their writing began, by the boot clock: this process wrote them.
    Since(Duration),
    /// The times that the storage has for them: others did.
    OfFiles,
}

/// A table, what is known of it, and who looks at it.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) log: Log,
    pub(super) facts: Facts,
    pub(super) view: View,
    pub(super) identity: Identity,
    pub(super) settings: SinkSettings,
    pub(super) world: World,
    pub(super) writer: String,
    pub(super) progress: Arc<Progress>,
    pub(super) tally: Arc<Tally>,
    pub(super) maintenance: Maintenance,
    /// The rows of a table of layout `current`, once they were looked for.
    pub(super) current: Option<CurrentRows>,
    /// The small files of a table of layout `changelog`, once they were looked at.
    pub(super) small_files: SmallFiles,
    pub(super) compaction: Compaction,
    /// Commits of others that came first, one after another.
    conflicts: u32,
    /// A commit whose outcome is not known yet, and since when; nothing else is committed before it is.
    unresolved: Option<(Entry, Proposal, Duration)>,
}

impl Core {
    pub(super) fn new(
        log: Log,
        facts: Facts,
        view: View,
        identity: Identity,
        settings: SinkSettings,
        world: World,
    ) -> Self {
        let writer = world.ids.draw();
        let maintenance = Maintenance::since(facts.checkpoint.unwrap_or(0), world.clone());
        let small_files = SmallFiles::new(settings.files.target_file_size);
        Self {
            log,
            facts,
            view,
            identity,
            settings,
            world,
            writer,
            progress: Arc::default(),
            tally: Arc::default(),
            maintenance,
            current: None,
            small_files,
            compaction: Compaction::default(),
            conflicts: 0,
            unresolved: None,
        }
    }

    /// The table's columns.
    pub(super) fn table_schema(&self) -> SchemaRef {
        self.view.table_schema(self.identity.layout)
    }

    /// Refuses a layout that cannot hold the view.
    pub(super) fn check_layout(&self) -> Result<()> {
        if self.identity.layout == Layout::Changelog {
            return Ok(());
        }
        let view = self.view.name();
        if !self.view.is_keyed() {
            return Err(Error::refused(format!(
                "view {view} has no key, and the layout current needs one to tell which row a change is about; declare the view's key, or take layout = \"changelog\""
            )));
        }
        if self.identity.mode == Mode::Follow {
            return Err(Error::refused(format!(
                "the layout current holds all rows of view {view}, and in mode follow those from before are not known; take mode = \"snapshot_and_follow\", or layout = \"changelog\""
            )));
        }
        self.log.check_deletions(&self.facts)
    }

    /// Reads the facts anew.
    pub(super) async fn refresh(&mut self) -> Result<()> {
        let before = std::mem::replace(&mut self.facts, self.log.facts().await?);
        self.facts.succeed(&before);
        if let Some(rows) = &mut self.current {
            rows.doubt();
        }
        self.small_files.doubt();
        self.maintenance.take_ended(&mut self.facts);
        Ok(())
    }

    /// Puts a commit again whose outcome was left open, until it is known.
    ///
    /// One whose files others may have cleaned up meanwhile is given up: what is committed next takes its version, or finds
    /// it there.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let Some((entry, proposal, since)) = self.unresolved.take() else { return Ok(()) };
        if !proposal.adds.is_empty() && !self.is_safe_since(since) {
            return self.refresh().await;
        }
        match self.log.put(&mut self.facts, &entry, &proposal).await {
            // What was open before stays open.
            Err(error) => {
                self.unresolved = Some((entry, proposal, since));
                Err(error)
            }
            Ok(outcome) => self.conclude(outcome, entry, proposal, since).await.map(|_| ()),
        }
    }

    /// Commits `proposal` on the facts: its version, or `None` when the table moved on and the facts were read anew.
    pub(super) async fn commit(&mut self, proposal: Proposal) -> Result<Option<u64>> {
        let (entry, since) = (self.log.entry(&self.facts, &proposal)?, self.world.clock.boot());
        let outcome = self.log.put(&mut self.facts, &entry, &proposal).await?;
        self.conclude(outcome, entry, proposal, since).await
    }

    async fn conclude(
        &mut self,
        outcome: Outcome,
        entry: Entry,
        proposal: Proposal,
        since: Duration,
    ) -> Result<Option<u64>> {
        match outcome {
            Outcome::Committed(_) => {
                self.conflicts = 0;
                self.tally.committed(&proposal, self.world.clock.boot().saturating_sub(since));
                self.advance(&proposal);
                if proposal.adds.is_empty() && proposal.removes.is_empty() {
                    self.small_files.stay(entry.version());
                    self.current.iter_mut().for_each(|rows| rows.stay(entry.version()));
                }
                Ok(Some(entry.version()))
            }
            Outcome::Conflict => {
                self.conflicts += 1;
                self.tally.conflicted();
                if self.conflicts >= MOST_CONFLICTS {
                    self.conflicts = 0;
                    return Err(Error::unavailable(format!(
                        "others committed to the table first, {MOST_CONFLICTS} times in a row; slow them down, or try again"
                    )));
                }
                self.refresh().await?;
                Ok(None)
            }
            Outcome::Unknown(error) => {
                self.tally.retried(Stage::Commit);
                self.unresolved = Some((entry, proposal, since));
                Err(error)
            }
        }
    }

    /// Continuity's part of the facts after a commit of ours.
    fn advance(&mut self, proposal: &Proposal) {
        let stamp = &proposal.stamp;
        let written = proposal.metadata.as_ref().and_then(|m| TableStamp::decode(&m.configuration).ok().flatten());
        let (before, drift) = match &self.facts.standing {
            Standing::Ours(ours) => (ours.stamp.clone(), ours.drift.clone()),
            Standing::Absent | Standing::Foreign => (None, None),
        };
        self.facts.standing = Standing::Ours(Box::new(Ours {
            stamp: written.or(before),
            connector: stamp.connector.clone(),
            generation: stamp.generation,
            last_step: stamp.to,
            strand: stamp.strand,
            epoch: stamp.epoch,
            writer: Some(stamp.writer.clone()),
            digest_total: stamp.digest_total,
            rows_total: stamp.rows_total,
            drift: drift.filter(|_| stamp.kind != Kind::Reload),
            last_millis: Some(self.world.clock.unix_millis()),
        }));
    }

    /// Whether files that were begun then are young enough that nobody cleans them up before they are named: our own gc
    /// leaves them for the table's retention, and for [`LEAST_AGE`] at least.
    pub(super) fn is_safe_since(&self, begun: Duration) -> bool {
        self.is_safe_at(self.world.clock.boot().saturating_sub(begun))
    }

    fn is_safe_at(&self, age: Duration) -> bool {
        let retention = self.facts.metadata.as_ref().map_or(Metadata::FILE_RETENTION, Metadata::file_retention);
        age <= retention.max(LEAST_AGE) / 2
    }

    /// Whether a file that the storage has since then is young enough; one from the future is not told by this clock.
    fn is_safe_from(&self, millis: i64) -> bool {
        let age = self.world.clock.unix_millis().saturating_sub(millis);
        self.is_safe_at(Duration::from_millis(u64::try_from(age).unwrap_or(0)))
    }

    /// Refuses to name files that are gone, or so old that others' clean-up may take them.
    pub(super) async fn check_written(&self, written: &Written, age: Age) -> Result<()> {
        let too_old = || {
            Error::unavailable(
                "writing the snapshot took longer than half the time after which others may clean up its files; take it again",
            )
        };
        if let Age::Since(begun) = age
            && !self.is_safe_since(begun)
        {
            return Err(too_old());
        }
        let look = |file: &DataFile| {
            let (file, path) = (file.clone(), Path::from(file.path.as_str()));
            async move { (self.log.store().head(&path).await, file) }
        };
        let mut found = stream::iter(&written.files).map(look).buffer_unordered(LOOKS_AT_ONCE);
        while let Some((found, DataFile { path, size, .. })) = found.next().await {
            match found {
                Ok(meta) if meta.size == size => {
                    if age == Age::OfFiles && !self.is_safe_from(meta.last_modified.timestamp_millis()) {
                        return Err(too_old());
                    }
                }
                Ok(meta) => {
                    return Err(Error::unavailable(format!(
                        "the snapshot's file {path} has {} bytes, written were {size}; take it again",
                        meta.size
                    )));
                }
                Err(e @ StoreError::NotFound { .. }) => {
                    let message = format!("the snapshot's file {path} cannot be found again; take it again");
                    return Err(Error::unavailable(message).with_source(e));
                }
                Err(e) => return Err(store_error(format!("the snapshot's file {path} cannot be looked at"), e)),
            }
        }
        Ok(())
    }
}
