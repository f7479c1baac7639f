//! A reset without a daemon: the reload itself, after a look at what it would do.

use super::{Connector, Phase, Reloaded};
use crate::continuity::plan::{Older, Ours, Standing};
use crate::continuity::stamp::{Mode, ResetStamp, reset_commit};
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;
use crate::log::{Facts, Log};
use crate::sink::{Applied, Loading, Rebuild, RebuildPlan, Target};
use crate::snapshot::Snapshot;
use crate::source::Pick;
use crate::step::Step;

/// How many of the newest versions are searched for a reset's.
const SEARCHED: u64 = 100;

/// A reload that somebody asks for.
#[derive(Debug, Clone)]
pub struct Reset {
    /// Its id, and who asked and why.
    pub stamp: ResetStamp,
    /// The generation that the table must have.
    pub expected_generation: Option<Generation>,
    /// Whether readers may be taken back in time.
    pub older: Older,
}

/// What a reset would do.
#[derive(Debug, Clone, PartialEq)]
pub struct ResetPreview {
    /// The table as it is; `None` where there is none of ours.
    pub ours: Option<Ours>,
    /// What becomes of a damaged log.
    pub repair: LogRepair,
    /// The generation that it would start.
    pub generation: Generation,
    /// The step that the generation would start from.
    pub cutover: Step,
}

/// What a reset does about a damaged log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRepair {
    /// Nothing is damaged.
    Unneeded,
    /// The reload is made past this damage, and a checkpoint of it written.
    Past(String),
    /// The log is rebuilt.
    Rebuild(RebuildPlan),
}

/// A reset that can be carried out: the table was looked at, the snapshot is chosen and not read.
#[derive(Debug)]
pub struct PreparedReset {
    reset: Reset,
    preview: ResetPreview,
    place: Place,
    snapshot: Snapshot,
}

/// Where a reset loads the view.
#[derive(Debug)]
enum Place {
    Target(Box<Target>),
    Wreck(Box<Loading>),
}

impl PreparedReset {
    /// What it would do.
    pub fn preview(&self) -> &ResetPreview {
        &self.preview
    }
}

impl Connector {
    /// Lets a source that lost its history for good begin another, which a reset can load; to be called before one that is
    /// not only looked at.
    pub async fn renew(&mut self) -> Result<()> {
        self.check_mode()?;
        self.source.renew().await?;
        self.settings.sink.source = self.source.fingerprint().to_string();
        Ok(())
    }

    /// Looks at what `reset` would do, and refuses what would be refused; nothing is written.
    pub async fn prepare_reset(&mut self, reset: Reset) -> Result<PreparedReset> {
        self.check_mode()?;
        let destination = self.look_to_reset().await?;
        let ours = destination.facts().ours().cloned();
        let repair = destination.damage().map_or(LogRepair::Unneeded, |why| LogRepair::Past(why.to_string()));
        check_generation(ours.as_ref(), reset.expected_generation)?;
        let (view, snapshot) = self.source.snapshot(Pick::Reached { until: None }).await?;
        let target = destination.deliver(view);
        target.check_reload(snapshot.step, reset.older)?;
        let generation = ours.as_ref().map_or(Ok(Generation::FIRST), |ours| ours.generation.next())?;
        let preview = ResetPreview { ours, repair, generation, cutover: snapshot.step };
        Ok(PreparedReset { preview, reset, place: Place::Target(Box::new(target)), snapshot })
    }

    /// Looks at what `reset` would do to a table whose log does not load, by rebuilding the log; nothing is written.
    ///
    /// Refused: the log loads, or a reset without a rebuild gets past its damage.
    pub async fn prepare_rebuild(&mut self, reset: Reset) -> Result<PreparedReset> {
        self.check_mode()?;
        let rebuild = Rebuild::look(self.location.clone(), self.settings.sink.clone(), self.world.clone()).await?;
        self.show_table(rebuild.ours());
        let ours = rebuild.ours().cloned();
        expect_generation(rebuild.generation(), reset.expected_generation)?;
        let (view, snapshot) = self.source.snapshot(Pick::Reached { until: None }).await?;
        let plan = rebuild.plan(&view, snapshot.step, reset.older)?;
        let (generation, cutover) = match (&plan, &ours) {
            (RebuildPlan::Load { generation, .. }, _) => (*generation, snapshot.step),
            // What was committed stays as it is.
            (RebuildPlan::Finish { .. }, Some(ours)) => {
                (ours.generation, ours.stamp.as_ref().map_or(ours.last_step, |stamp| stamp.step))
            }
            (RebuildPlan::Finish { .. }, None) => (Generation::FIRST, snapshot.step),
        };
        let preview = ResetPreview { ours, repair: LogRepair::Rebuild(plan), generation, cutover };
        let place = Place::Wreck(Box::new(rebuild.deliver(view)));
        Ok(PreparedReset { preview, reset, place, snapshot })
    }

    /// Reloads the table with the state that `prepared` chose, or a later one where others appended since. Readers see
    /// the old state until it is complete.
    ///
    /// Refused when the table was reloaded since it was looked at.
    pub async fn reset(&mut self, prepared: PreparedReset) -> Result<Applied> {
        let applied = self.carry_out(prepared).await;
        self.show_reload_ended(&applied);
        applied
    }

    /// Shows how a reload that somebody asked for ended; nothing is delivered behind it yet.
    pub(super) fn show_reload_ended(&self, applied: &Result<Applied>) {
        match applied {
            Ok(_) => self.show(|s| s.phase = Phase::Stopped),
            Err(e) => self.show_trouble(Phase::of_error(e.kind()), e),
        }
    }

    async fn carry_out(&mut self, prepared: PreparedReset) -> Result<Applied> {
        let PreparedReset { reset, preview, place, snapshot } = prepared;
        let target = match place {
            Place::Target(target) => *target,
            Place::Wreck(loading) => {
                self.show_snapshot(&loading.progress(), snapshot.step);
                let (facts, applied) = loading.commit(snapshot, reset.stamp, reset.older).await?;
                self.show_applied(&facts, &applied);
                return Ok(applied);
            }
        };
        let (Standing::Ours(_), Some(seen)) = (target.standing(), &preview.ours) else {
            self.show_snapshot(&target.progress(), snapshot.step);
            let (sink, applied) = target.load_for(snapshot, reset.stamp).await?;
            self.tenure.begin(&sink);
            self.show_applied(sink.facts(), &applied);
            return Ok(applied);
        };
        let mut sink = self.tenure.take(target).await?;
        // From the claim on nobody else starts a generation, so what holds here holds until the reload.
        check_generation(sink.facts().ours(), Some(seen.generation))?;
        // What others appended since the table was looked at, the source reaches too.
        let is_current = sink.last_step()? == seen.last_step;
        let snapshot = if is_current {
            snapshot
        } else {
            let (view, snapshot) = self.source.snapshot(Pick::Reached { until: None }).await?;
            sink.deliver(view)?;
            snapshot
        };
        self.show_snapshot(&sink.progress(), snapshot.step);
        let applied = sink.reload(snapshot, reset.stamp, reset.older).await?;
        self.show_applied(sink.facts(), &applied);
        sink.close().await;
        Ok(applied)
    }

    /// Shows what a reload made. One that the table held already was told of by who made it.
    pub(super) fn show_applied(&self, facts: &Facts, applied: &Applied) {
        match applied {
            Applied::Committed { version, rows, .. } => self.show_reloaded(facts, Some(*version), *rows),
            Applied::Already => self.show_table(facts.ours()),
        }
    }

    /// The table's generation, after a look.
    pub(super) async fn see(&mut self) -> Result<Option<Generation>> {
        let destination = self.look_to_reset().await?;
        Ok(destination.facts().ours().map(|ours| ours.generation))
    }

    /// What the reset with this id committed, where the table or its newest versions tell of it.
    pub(super) async fn committed_reset(&mut self, id: &str) -> Result<Option<Reloaded>> {
        let destination = self.look_to_reset().await?;
        let commit = reset_commit(id);
        let (Some(head), Some(ours)) = (destination.facts().version, destination.facts().ours()) else {
            return Ok(None);
        };
        let log = Log::new(self.location.clone(), self.world.clone());
        for version in (head.saturating_sub(SEARCHED)..=head).rev() {
            let found = match log.commit(version).await {
                Ok(Some(found)) => found,
                Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                // Below is what was cleaned up, or what the reset is to repair.
                Ok(None) | Err(_) => break,
            };
            if let Some(stamp) = found.stamp().filter(|stamp| stamp.commit == commit) {
                return Ok(Some(Reloaded { version: Some(version), generation: stamp.generation, step: stamp.to }));
            }
        }
        let stamp = ours.stamp.as_ref().filter(|stamp| stamp.commit == commit);
        Ok(stamp.map(|stamp| Reloaded { version: None, generation: ours.generation, step: stamp.step }))
    }

    pub(super) fn check_mode(&self) -> Result<()> {
        if self.settings.sink.mode == Mode::Follow {
            return Err(Error::refused(format!(
                "the mode is {}, which has no snapshot to load; set mode = \"snapshot_and_follow\" to reset it",
                Mode::Follow
            )));
        }
        Ok(())
    }
}

fn check_generation(ours: Option<&Ours>, expected: Option<Generation>) -> Result<()> {
    expect_generation(ours.map(|ours| ours.generation), expected)
}

fn expect_generation(found: Option<Generation>, expected: Option<Generation>) -> Result<()> {
    match expected {
        Some(expected) if found != Some(expected) => Err(Error::refused(format!(
            "the table has the generation {}, expected was {expected}; look at it with `cutover show`, then say what is expected",
            found.map_or("none".to_string(), |g| g.to_string())
        ))),
        _ => Ok(()),
    }
}
