//! A reload over a damaged log: past what is damaged where that can be, else by a log that is rebuilt.

use super::commit::{Age, Core};
use super::{Applied, SinkSettings, rows};
use crate::clock::World;
use crate::continuity::plan::{self, Claim, Ours, ReloadPlan, ReloadRequest};
use crate::continuity::stamp::{COMMIT_PREFIX_REBUILD, CommitStamp, Kind, Layout, ResetStamp, RowCounts, TableStamp};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{Written, check_partition_by};
use crate::generation::Generation;
use crate::log::{Columns, Facts, LiveFile, Location, Log, Outcome, Proposal, Wreck};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::step::Step;

/// A table whose log does not load, looked at for a rebuild. Nothing is written.
#[derive(Debug)]
pub struct Rebuild {
    log: Log,
    wreck: Wreck,
    settings: SinkSettings,
    world: World,
}

/// What a rebuild would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebuildPlan {
    /// Load the table, and write a checkpoint of that version.
    Load {
        /// The generation that it starts.
        generation: Generation,
        /// Whether the table's id was found; else it gets another.
        keeps_id: bool,
        /// How many files it removes.
        removes: usize,
    },
    /// Write the checkpoint of a rebuild that was committed.
    Finish {
        /// Its version.
        version: u64,
    },
}

/// What the commit of a reload is made of, beside its files.
pub(super) struct Reloading<'a> {
    pub(super) request: &'a ReloadRequest,
    pub(super) reset: Option<&'a ResetStamp>,
    pub(super) position: &'a str,
    pub(super) columns: &'a Columns,
    pub(super) partition_by: &'a [String],
    pub(super) claim: Claim,
    pub(super) generation: Generation,
}

impl Rebuild {
    /// Looks at what is left of the table at `location`.
    ///
    /// Refused: its log loads, or a reset gets past the damage, or there is nothing. Incompatible: it has a feature or
    /// contract that is not kept here. Unavailable: the storage cannot be read.
    pub async fn look(location: Location, settings: SinkSettings, world: World) -> Result<Self> {
        location.check_writable()?;
        let log = Log::new(location, world.clone());
        log.check_properties(&settings.properties)?;
        let wreck = log.wreck().await?;
        log.check_features(&wreck.facts)?;
        Ok(Self { log, wreck, settings, world })
    }

    /// What was read of the table, if it is ours.
    pub fn ours(&self) -> Option<&Ours> {
        self.wreck.facts.ours()
    }

    /// The highest generation that anything readable names.
    pub fn generation(&self) -> Option<Generation> {
        self.wreck.floor.generation
    }

    /// What a rebuild with `view` at step `cutover` would do; refused where it may not.
    pub fn plan(&self, view: &View, cutover: Step, older: plan::Older) -> Result<RebuildPlan> {
        let request = self.request(cutover, String::new(), older);
        let planned = self.plan_reload(view, &request)?;
        if let Some(version) = self.wreck.unfinished {
            return Ok(RebuildPlan::Finish { version });
        }
        let ReloadPlan::Go { generation, .. } = planned else {
            return Err(Error::internal("a rebuild without an id was planned as done"));
        };
        let (keeps_id, removes) = (self.wreck.has_id, self.wreck.files.len());
        self.core_of(view).check_reloadable()?;
        Ok(RebuildPlan::Load { generation, keeps_id, removes })
    }

    /// For loading `view`.
    pub fn deliver(self, view: View) -> Loading {
        let core = self.core_of(&view);
        Loading { core, rebuild: self }
    }

    fn request(&self, cutover: Step, commit: String, older: plan::Older) -> ReloadRequest {
        ReloadRequest { cutover, commit, on_existing: self.settings.on_existing, older }
    }

    fn plan_reload(&self, view: &View, request: &ReloadRequest) -> Result<ReloadPlan> {
        let floor = &self.wreck.floor;
        let identity = self.settings.identity(view.key());
        let facts = &self.wreck.facts;
        // The highest step may be known from more than the newest commit.
        plan::rebuild(&facts.standing, &identity, request, floor.generation, floor.epoch, floor.last_step)
    }

    fn core_of(&self, view: &View) -> Core {
        let identity = self.settings.identity(view.key());
        let facts = self.wreck.facts.clone();
        Core::new(self.log.clone(), facts, view.clone(), identity, self.settings.clone(), self.world.clone())
    }
}

/// A rebuild that is about to load a view.
#[derive(Debug)]
pub struct Loading {
    core: Core,
    rebuild: Rebuild,
}

impl Loading {
    /// How far the snapshot is.
    pub fn progress(&self) -> std::sync::Arc<super::Progress> {
        std::sync::Arc::clone(&self.core.progress)
    }

    /// Commits one version above all others with the whole state, and a checkpoint of it; or only the checkpoint, where
    /// that version is there.
    ///
    /// Fenced: another process rebuilt the log first. Unavailable: whether it was committed is not known, or the
    /// checkpoint is missing; asked again, it goes on from there.
    pub async fn commit(self, snapshot: Snapshot, reset: ResetStamp, older: plan::Older) -> Result<(Facts, Applied)> {
        let Self { mut core, rebuild } = self;
        if let Some(version) = rebuild.wreck.unfinished {
            core.log.finish_rebuild(version).await?;
            core.refresh().await?;
            return Ok((core.facts, Applied::Already));
        }
        check_partition_by(&core.table_schema(), core.partition_by())?;
        core.check_reloadable()?;
        let request = rebuild.request(snapshot.step, format!("{COMMIT_PREFIX_REBUILD}{}", reset.id), older);
        let ReloadPlan::Go { generation, epoch } = rebuild.plan_reload(&core.view, &request)? else {
            return Ok((core.facts, Applied::Already));
        };
        let position = snapshot.position.clone();
        let begun = core.world.clock.boot();
        let columns = core.log.columns(&core.facts, &core.table_schema())?;
        let partition_by = core.partition_by().to_vec();
        let written = core.write_snapshot(snapshot, generation, columns.in_files()).await?;
        if core.identity.layout == Layout::Current {
            // Whoever follows builds it again; here it finds a key that stands in the snapshot twice.
            core.index_snapshot(&request.commit, &written, columns.in_files()).await?;
        }
        core.check_written(&written, Age::Since(begun)).await?;
        let reload = Reloading {
            request: &request,
            reset: Some(&reset),
            position: &position,
            columns: &columns,
            partition_by: &partition_by,
            claim: Claim { epoch, writer: core.writer.clone() },
            generation,
        };
        let mut proposal = core.reload_proposal(&reload, &written, rebuild.wreck.files)?;
        // The entry holds the whole state: no reader gets to what lies below.
        proposal.protocol = proposal.protocol.or_else(|| core.facts.protocol.clone());
        let entry = core.log.entry(&core.facts, &proposal)?;
        core.progress.commits();
        match core.log.put(&mut core.facts, &entry, &proposal).await? {
            Outcome::Committed(_) => {}
            Outcome::Conflict => return Err(core.outrun(entry.version()).await),
            Outcome::Unknown(error) => return Err(error),
        }
        core.log.finish_rebuild(entry.version()).await?;
        core.refresh().await?;
        let applied = Applied::Committed { version: entry.version(), rows: written.rows, bytes: written.bytes };
        Ok((core.facts, applied))
    }
}

impl Core {
    /// Sees the log past its damage from here on, where a reload can go past it.
    pub(super) async fn pass_damage(&mut self) -> Result<()> {
        self.log = self.log.past_damage().await?;
        Ok(())
    }

    /// After a reload past damage, which every reader still begins with: writes a checkpoint of `version`, reads it back,
    /// and sees the log as others do from here on.
    pub(super) async fn step_over(&mut self, version: u64) -> Result<()> {
        if self.log.damage().is_none() {
            return Ok(());
        }
        self.log.step_over(version).await.map_err(|error| {
            let message = format!(
                "version {version} holds the reload, but readers do not get to it before a checkpoint of it is written; reset the table again"
            );
            Error::new(error.kind(), message).with_source(error)
        })?;
        self.see_plainly();
        self.refresh().await
    }

    /// Sees the log as others do.
    pub(super) fn see_plainly(&mut self) {
        self.log = self.log.plain().clone();
    }

    /// Why a rebuild was not committed at `version`.
    async fn outrun(&self, version: u64) -> Error {
        let found = self.log.commit(version).await;
        let stamp = found.as_ref().ok().and_then(|c| c.as_ref()?.stamp());
        match stamp.filter(|stamp| stamp.writer != self.writer) {
            Some(stamp) => Error::new(
                ErrorKind::Fenced,
                format!(
                    "the writer {} rebuilt the log first, as version {version}; look at it with `cutover show`",
                    stamp.writer
                ),
            ),
            None => Error::unavailable("others wrote to the log while it was to be rebuilt; try again"),
        }
    }

    /// The commit of a reload on the facts.
    pub(super) fn reload_proposal(
        &self,
        reload: &Reloading<'_>,
        written: &Written,
        removes: Vec<LiveFile>,
    ) -> Result<Proposal> {
        let table = TableStamp {
            connector: self.identity.connector.clone(),
            generation: reload.generation,
            step: reload.request.cutover,
            mode: self.identity.mode,
            layout: self.identity.layout,
            key: self.identity.key.clone(),
            source: self.identity.source.clone(),
            commit: reload.request.commit.clone(),
        };
        let (schema, properties) = (self.table_schema(), &self.settings.properties);
        let (metadata, protocol) =
            self.log.reloaded(&self.facts, &schema, reload.columns, &table, reload.partition_by, properties)?;
        let rows = RowCounts { i: written.rows, ..RowCounts::default() };
        let stamp = CommitStamp {
            kind: Kind::Reload,
            commit: reload.request.commit.clone(),
            to: reload.request.cutover,
            rows,
            digest: written.digest,
            digest_total: Some(written.digest),
            rows_total: Some(rows),
            source: Some(reload.position.to_string()),
            strand: self.settings.strands.at(reload.request.cutover),
            reset: reload.reset.cloned(),
            ..self.stamp(&reload.claim, reload.generation)
        };
        let adds = rows::add_actions(written);
        let layout = self.identity.layout;
        Ok(Proposal { stamp, layout, claims: true, protocol, metadata: Some(metadata), adds, removes })
    }
}
