//! A claimed table with two verbs: reload it with a snapshot, append changes to it.
//!
//! ```text
//!   Target::open ──► Target ── load(snapshot) ──► Sink      a table that is not ours yet: the reload is the claim
//!                       └───── claim() ─────────► Sink      a table of ours: a mark takes the next epoch
//!                                                  ├─ reload(snapshot)
//!                                                  └─ append(changes)
//! ```

mod adopt;
mod commit;
mod compaction;
mod current;
mod destination;
mod keys;
mod maintenance;
mod progress;
mod rebuild;
mod replace;
mod row_files;
mod rows;
mod small_files;
mod staged;
mod tally;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use self::adopt::{Adopted, Adoption};
use self::commit::Core;
pub use self::destination::Destination;
pub use self::maintenance::Maintained;
pub use self::progress::Progress;
use self::rebuild::Reloading;
pub use self::rebuild::{Loading, Rebuild, RebuildPlan};
use self::staged::Content;
pub use self::staged::{Frame, Manifest, Part, PartOf, StagedSnapshot};
pub use self::tally::{Commits, Counts, Durations, Stage, Tally};
use crate::change::Changes;
use crate::clock::World;
use crate::continuity::columns::{Difference, SchemaChange};
use crate::continuity::plan::{
    self, AppendPlan, Claim, Identity, Older, OnExisting, Ours, ReloadPlan, ReloadRequest, Standing,
};
use crate::continuity::stamp::{CONTRACT, CommitStamp, Kind, Layout, Mode, ResetStamp, RowCounts, reset_commit};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileSettings, check_partition_by};
use crate::log::{Facts, FileColumns, Location, Metadata, Proposal, Protocol, table_schema};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::strand::Strands;

/// What is delivered, and how.
#[derive(Debug, Clone)]
pub struct SinkSettings {
    /// The connector's full name.
    pub connector: String,
    /// The connector's mode.
    pub mode: Mode,
    /// The table's layout.
    pub layout: Layout,
    /// The source's fingerprint.
    pub source: String,
    /// What tells the source's steps from others of their numbers.
    pub strands: Strands,
    /// What to do with a table that is not ours.
    pub on_existing: OnExisting,
    /// What an append does when the view has other columns than the table. Only a connector reloads by itself: here
    /// [`SchemaChange::Reload`] refuses such an append, and leaves the reload to the caller.
    pub schema_change: SchemaChange,
    /// How data files are written.
    pub files: FileSettings,
    /// The view's columns by which a reload partitions the table, none for `[]`; `None` leaves the table as it is.
    pub partition_by: Option<Vec<String>>,
    /// Table properties to set where a table does not have them.
    pub properties: BTreeMap<String, String>,
    /// Whether small files, and files of which many rows are deleted, are joined beside the commits.
    pub compaction: bool,
    /// The directory that is this connector's alone, where a table of layout `current` keeps the index of its keys; it is made
    /// when it is needed, and made again from the table when it is lost. `None`: the index is held in memory.
    pub key_index: Option<PathBuf>,
}

impl SinkSettings {
    /// The defaults for a connector and the fingerprint of its source.
    pub fn new(connector: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            connector: connector.into(),
            mode: Mode::SnapshotAndFollow,
            layout: Layout::Changelog,
            source: source.into(),
            strands: Strands::default(),
            on_existing: OnExisting::Error,
            schema_change: SchemaChange::default(),
            files: FileSettings::default(),
            partition_by: None,
            properties: BTreeMap::new(),
            compaction: true,
            key_index: None,
        }
    }

    /// Who writes, and what the table is to be, for a view with `key`.
    fn identity(&self, key: &[String]) -> Identity {
        Identity {
            connector: self.connector.clone(),
            mode: self.mode,
            layout: self.layout,
            key: key.to_vec(),
            source: self.source.clone(),
        }
    }
}

/// A table that was looked at and not claimed.
#[derive(Debug)]
pub struct Target {
    core: Core,
}

/// A claimed table: the right to write to it until another writer takes a higher epoch.
#[derive(Debug)]
pub struct Sink {
    core: Core,
    claim: Claim,
}

/// What a verb did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It committed this version.
    Committed {
        /// The version.
        version: u64,
        /// The rows that it added, of all operations.
        rows: u64,
        /// The bytes of the files that it added.
        bytes: u64,
    },
    /// The table held all of it before.
    Already,
}

/// The metadata of a table to which an append adds columns, and the protocol where they change it.
type Fitted = (Metadata, Option<Protocol>);

/// Why a reload is made.
enum Reason {
    /// The table is loaded for the first time.
    FirstLoad,
    /// Somebody asked for it.
    Reset { stamp: ResetStamp, older: Older },
}

impl Target {
    /// Looks at the table at `location`, for delivering `view` to it. Nothing is written.
    pub async fn open(location: Location, view: View, settings: SinkSettings, world: World) -> Result<Self> {
        let partition_by = settings.partition_by.clone().unwrap_or_default();
        check_partition_by(&view.table_schema(settings.layout), &partition_by)?;
        let target = Destination::look(location, settings, world).await?.deliver(view);
        target.core.check_features()?;
        Ok(target)
    }

    /// What the table says of itself.
    pub fn standing(&self) -> &Standing {
        &self.core.facts.standing
    }

    /// The table at its head.
    pub fn facts(&self) -> &Facts {
        &self.core.facts
    }

    /// Who writes, and what the table is to be.
    pub fn identity(&self) -> &Identity {
        &self.core.identity
    }

    /// How far a reload is.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.core.progress)
    }

    /// Refuses what an append would be refused for, without claiming anything; in mode `snapshot` nothing is appended.
    pub fn check_follow(&self) -> Result<()> {
        let Standing::Ours(ours) = self.standing() else { return Ok(()) };
        plan::check_follow(ours, &self.core.identity)?;
        if self.core.identity.mode == Mode::Snapshot {
            return Ok(());
        }
        self.core.check_features()?;
        self.core.check_partitioned_as_asked()?;
        self.core.fitted().map(|_| ())
    }

    /// Refuses what a reload of step `cutover` would be refused for, without claiming anything.
    pub fn check_reload(&self, cutover: Step, older: Older) -> Result<()> {
        let on_existing = self.core.settings.on_existing;
        let request = ReloadRequest { cutover, commit: String::new(), on_existing, older };
        plan::check_reload(self.standing(), &self.core.identity, &request)?;
        self.core.check_reloadable()
    }

    /// The view that is delivered.
    pub fn view(&self) -> &View {
        &self.core.view
    }

    /// Takes `view` for what is delivered from here on. Refused: another key.
    pub fn deliver(&mut self, view: View) -> Result<()> {
        self.core.deliver(view)
    }

    /// Who claims the table, if it is claimed.
    pub(crate) fn writer(&self) -> &str {
        &self.core.writer
    }

    /// Claims a table of ours by a commit that takes the next epoch.
    pub async fn claim(self) -> Result<Sink> {
        self.claim_while(|_| Ok(())).await
    }

    /// The same, as long as `holds` finds nothing wrong with how the table stands.
    pub(crate) async fn claim_while(self, holds: impl Fn(&Ours) -> Result<()> + Send) -> Result<Sink> {
        let mut core = self.core;
        loop {
            let Standing::Ours(ours) = &core.facts.standing else {
                return Err(Error::refused("there is no table of ours to claim; load it with a snapshot"));
            };
            holds(ours)?;
            let epoch = plan::claim(ours, &core.identity)?;
            let claim = Claim { epoch, writer: core.writer.clone() };
            let proposal = Proposal {
                stamp: CommitStamp {
                    kind: Kind::Mark,
                    from: Some(ours.last_step),
                    to: ours.last_step,
                    strand: ours.strand,
                    digest_total: ours.digest_total,
                    rows_total: ours.rows_total,
                    ..core.stamp(&claim, ours.generation)
                },
                layout: core.identity.layout,
                claims: true,
                protocol: None,
                metadata: None,
                adds: Vec::new(),
                removes: Vec::new(),
            };
            if core.commit(proposal).await?.is_some() {
                return Ok(Sink { core, claim });
            }
        }
    }

    /// Loads a table that is not ours yet: the reload itself is the claim.
    ///
    /// Refused when the table became ours meanwhile: then open it again and claim it.
    pub async fn load(self, snapshot: Snapshot) -> Result<Sink> {
        Ok(self.first(Content::Rows(snapshot), &Reason::FirstLoad).await?.0)
    }

    /// Loads a table that is not ours yet because somebody asked for it; see [`Target::load`].
    pub async fn load_for(self, snapshot: Snapshot, reset: ResetStamp) -> Result<(Sink, Applied)> {
        let reason = Reason::Reset { stamp: reset, older: Older::Refused };
        self.first(Content::Rows(snapshot), &reason).await
    }

    async fn first(self, content: Content, reason: &Reason) -> Result<(Sink, Applied)> {
        let mut sink = Sink { claim: Claim { epoch: Epoch::FIRST, writer: self.core.writer.clone() }, core: self.core };
        let applied = sink.replace(content, reason, None).await?;
        Ok((sink, applied))
    }
}

impl Sink {
    /// The claim by which it writes.
    pub(crate) fn held(&self) -> &Claim {
        &self.claim
    }

    /// The table at its head, as far as this writer knows.
    pub fn facts(&self) -> &Facts {
        &self.core.facts
    }

    /// The last step in the table.
    pub fn last_step(&self) -> Result<Step> {
        let ours = self.core.facts.ours().ok_or_else(|| Error::internal("a claimed table is ours"))?;
        Ok(ours.last_step)
    }

    /// How far a reload is.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.core.progress)
    }

    /// The view that is delivered.
    pub fn view(&self) -> &View {
        &self.core.view
    }

    /// Takes `view` for what is delivered from here on: the rows of a reload, or of appends as far as
    /// [`SinkSettings::schema_change`] lets them have other columns than the table. Refused: another key.
    pub fn deliver(&mut self, view: View) -> Result<()> {
        self.core.deliver(view)
    }

    /// Whether the table has the columns of the view that is delivered, in any order.
    pub fn has_columns(&self) -> Result<bool> {
        let Some(metadata) = &self.core.facts.metadata else { return Ok(false) };
        let (table, view) = (table_schema(metadata)?, self.core.table_schema());
        Ok(Difference::between(&table, &view).is_empty())
    }

    /// Replaces every live file by the snapshot's, in one version, and starts a generation.
    pub async fn reload(&mut self, snapshot: Snapshot, reset: ResetStamp, older: Older) -> Result<Applied> {
        self.reload_with(Content::Rows(snapshot), reset, older).await
    }

    async fn reload_with(&mut self, content: Content, reset: ResetStamp, older: Older) -> Result<Applied> {
        self.core.settle().await?;
        let claim = self.claim.clone();
        let done = self.replace(content, &Reason::Reset { stamp: reset, older }, Some(&claim)).await;
        // What goes past damage is a reload alone.
        self.core.see_plainly();
        self.heeded(done)
    }

    /// Adds the changes of whole steps, exactly once: what the table holds already is cut off.
    pub async fn append(&mut self, changes: Changes) -> Result<Applied> {
        let done = self.add(changes).await;
        self.heeded(done)
    }

    /// A sink that learns that it is fenced maintains the table no more.
    fn heeded<T>(&mut self, done: Result<T>) -> Result<T> {
        if matches!(&done, Err(e) if e.kind() == ErrorKind::Fenced) {
            self.core.maintenance.stop();
        }
        done
    }

    fn committed(&mut self, kind: Kind) {
        let core = &mut self.core;
        core.maintenance.committed(kind, &core.log, &mut core.facts, &self.claim);
    }

    async fn add(&mut self, changes: Changes) -> Result<Applied> {
        self.core.settle().await?;
        let mut changes = changes;
        let (schema, layout) = (self.core.table_schema(), self.core.identity.layout);
        let mut written: Option<(crate::step::StepRange, FileColumns, rows::AppendFiles)> = None;
        let mut begun = self.core.world.clock.boot();
        loop {
            let (planned, fitted) = match self.plan_append(&changes).await? {
                (AppendPlan::AlreadyApplied, _) => return Ok(Applied::Already),
                (AppendPlan::Go(range), fitted) => (range, fitted),
            };
            let fitted_metadata = fitted.as_ref().map(|(metadata, _)| metadata);
            let columns = self.core.log.file_columns(&self.core.facts, fitted_metadata, &schema)?;
            let files = match written.take() {
                // What it does to rows that others moved since would be wrong.
                Some((range, before, files))
                    if range == planned
                        && before == columns
                        && files.replacement.is_none()
                        && self.core.is_safe_since(begun) =>
                {
                    files
                }
                _ => {
                    begun = self.core.world.clock.boot();
                    changes = changes
                        .after(planned.from())?
                        .ok_or_else(|| Error::internal(format!("nothing is left of the changes in {planned}")))?;
                    match layout {
                        Layout::Changelog => self.core.write_changes(&changes, planned.to(), &columns).await?,
                        Layout::Current => {
                            Box::pin(self.core.write_replacement(&changes, planned.to(), &columns)).await?
                        }
                    }
                }
            };
            if !self.core.is_safe_since(begun) {
                // The machine slept, and others may have cleaned up what no version names: it is written anew.
                continue;
            }
            let ours = self
                .core
                .facts
                .ours()
                .ok_or_else(|| Error::internal("an append was planned on a table that is not ours"))?;
            let stamp = CommitStamp {
                kind: Kind::Append,
                from: Some(planned.from()),
                to: planned.to(),
                rows: files.counts,
                digest: files.digest,
                digest_total: ours.digest_total.map(|total| total.plus(files.digest)),
                rows_total: ours.rows_total.map(|total| total + files.counts),
                source: changes.position().map(str::to_string),
                strand: self.core.settings.strands.at(planned.to()),
                ..self.core.stamp(&self.claim, ours.generation)
            };
            let (adds, removes) = (files.adds.clone(), files.removes.clone());
            let (metadata, protocol) = fitted.unzip();
            let protocol = protocol.flatten();
            let proposal = Proposal { stamp, layout, claims: false, protocol, metadata, adds, removes };
            if let Some(version) = self.core.commit(proposal).await? {
                match files.replacement {
                    Some(replacement) => self.core.replaced(replacement, version).await,
                    None => self.core.appended(&files.written, version),
                }
                Box::pin(self.core.compact(&self.claim)).await;
                self.committed(Kind::Append);
                return Ok(Applied::Committed { version, rows: files.written.rows, bytes: files.written.bytes });
            }
            written = Some((planned, columns, files));
        }
    }

    /// Plans an append, and the columns that it adds; what would end it is decided on facts read anew.
    async fn plan_append(&mut self, changes: &Changes) -> Result<(AppendPlan, Option<Fitted>)> {
        let decide = |core: &Core, claim: &Claim| {
            let planned = plan::append(&core.facts.standing, claim, &core.identity, changes.range())?;
            core.check_features()?;
            core.check_partitioned_as_asked()?;
            // What the table holds already may have come in columns that are no longer its.
            let fitted = if let AppendPlan::Go(_) = planned { core.fitted()? } else { None };
            Ok((planned, fitted))
        };
        if let Ok(planned @ (AppendPlan::Go(_), _)) = decide(&self.core, &self.claim) {
            return Ok(planned);
        }
        self.core.refresh().await?;
        decide(&self.core, &self.claim)
    }

    /// Writes a checkpoint of the head, reads it back, cleans up the log and removes garbage, whether that is due or not,
    /// once what is under way beside the commits has ended.
    ///
    /// Fenced, or any error of the storage: nothing of it makes a commit fail.
    pub async fn maintain(&mut self) -> Result<Maintained> {
        self.core.settle().await?;
        self.core.maintenance.now(&self.core.log, &mut self.core.facts, &self.claim).await
    }

    /// Whether maintenance is under way beside the commits.
    pub fn is_maintaining(&self) -> bool {
        self.core.maintenance.is_under_way()
    }

    /// Waits for the maintenance under way beside the commits; whether there is one is decided by each commit.
    pub async fn rest(&mut self) {
        self.core.compaction.rest().await;
        self.core.maintenance.rest(&mut self.core.facts).await;
    }

    /// Gives the sink back once small files are joined and the maintenance under way has ended, or each has taken a minute
    /// more. A sink that is dropped instead leaves both where they are.
    pub async fn close(mut self) {
        Box::pin(self.core.close_compaction(&self.claim)).await;
        self.core.maintenance.close(&mut self.core.facts).await;
    }

    async fn replace(&mut self, content: Content, reason: &Reason, claim: Option<&Claim>) -> Result<Applied> {
        let (commit, older, reset) = match reason {
            Reason::FirstLoad => (self.core.world.ids.draw(), Older::Refused, None),
            Reason::Reset { stamp, older } => (reset_commit(&stamp.id), *older, Some(stamp.clone())),
        };
        let request =
            ReloadRequest { cutover: content.step(), commit, on_existing: self.core.settings.on_existing, older };
        self.core.log.check_conditional_put().await?;
        if let Reason::Reset { .. } = reason {
            self.core.pass_damage().await?;
        }
        self.core.refresh().await?;
        let planned = self.plan_reload(claim, &request)?;
        let ReloadPlan::Go { generation, epoch } = planned else { return self.already().await };
        let position = content.position();
        let partition_by = self.core.partition_by().to_vec();
        let (columns, written, age) = self.core.content(content, generation).await?;
        let mut indexed = match self.core.identity.layout {
            Layout::Changelog => None,
            Layout::Current => {
                let indexed = self.core.index_snapshot(&request.commit, &written, columns.in_files());
                Some(Box::pin(indexed).await?)
            }
        };
        loop {
            self.core.refresh().await?;
            match self.plan_reload(claim, &request)? {
                ReloadPlan::AlreadyApplied => return self.already().await,
                // The rows carry their generation, so another one makes them garbage.
                again if again != planned => {
                    return Err(Error::unavailable(
                        "the table was reloaded by others while the snapshot was written; take it again",
                    ));
                }
                ReloadPlan::Go { .. } => {}
            }
            if self.core.partition_by() != partition_by {
                return Err(Error::unavailable(
                    "the table was partitioned otherwise by others while the snapshot was written; take it again",
                ));
            }
            if !columns.hold_in(&self.core.facts) {
                return Err(Error::unavailable(
                    "others changed the names of the table's columns in data files, or its clustering, while the snapshot was written; take it again",
                ));
            }
            self.core.check_written(&written, age).await?;
            let reload = Reloading {
                request: &request,
                reset: reset.as_ref(),
                position: &position,
                columns: &columns,
                partition_by: &partition_by,
                claim: Claim { epoch, writer: self.core.writer.clone() },
                generation,
            };
            let removes = self.core.log.live_files(&self.core.facts).await?;
            let proposal = self.core.reload_proposal(&reload, &written, removes)?;
            self.core.progress.commits();
            if let Some(version) = self.core.commit(proposal).await? {
                self.claim = reload.claim;
                self.core.loaded(indexed.take(), &written, version);
                self.core.step_over(version).await?;
                if claim.is_some() {
                    self.committed(Kind::Reload);
                }
                return Ok(Applied::Committed { version, rows: written.rows, bytes: written.bytes });
            }
        }
    }

    /// A reload that was committed before may still want the checkpoint that leads readers past damage.
    async fn already(&mut self) -> Result<Applied> {
        if let Some(version) = self.core.facts.version {
            self.core.step_over(version).await?;
        }
        Ok(Applied::Already)
    }

    fn plan_reload(&self, claim: Option<&Claim>, request: &ReloadRequest) -> Result<ReloadPlan> {
        let core = &self.core;
        let planned = plan::reload(&core.facts.standing, claim, &core.identity, request)?;
        core.check_reloadable()?;
        Ok(planned)
    }
}

impl Core {
    /// Refuses a table in which our commits of the view's rows would not be right.
    fn check_features(&self) -> Result<()> {
        self.log.check_features(&self.facts)?;
        self.check_layout()?;
        self.log.check_columns(&self.facts, &self.table_schema())
    }

    /// What an append makes of the table's columns; refused where it may not.
    fn fitted(&self) -> Result<Option<Fitted>> {
        self.log.fitted(&self.facts, &self.table_schema(), self.settings.schema_change)
    }

    fn deliver(&mut self, view: View) -> Result<()> {
        if view.key() != self.identity.key {
            return Err(Error::refused(format!(
                "the view {} has the key {:?}, and what is delivered has {:?}; open the table anew for another key",
                view.name(),
                view.key(),
                self.identity.key
            )));
        }
        self.view = view;
        Ok(())
    }

    /// Refuses a table whose features or properties forbid a reload.
    fn check_reloadable(&self) -> Result<()> {
        self.check_features()?;
        self.check_partitioning()?;
        self.log.check_reload(&self.facts)
    }

    /// A stamp with what every commit of this writer has.
    fn stamp(&self, claim: &Claim, generation: crate::generation::Generation) -> CommitStamp {
        CommitStamp {
            cutover: CONTRACT,
            kind: Kind::Mark,
            connector: self.identity.connector.clone(),
            generation,
            epoch: claim.epoch,
            writer: claim.writer.clone(),
            commit: self.world.ids.draw(),
            from: None,
            to: Step::ZERO,
            rows: RowCounts::default(),
            digest: Digest::EMPTY,
            digest_total: None,
            rows_total: None,
            source: None,
            strand: None,
            reset: None,
            adopt: None,
        }
    }
}
