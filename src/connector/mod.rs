//! One view delivered to one table, or kept for one client: the only place that joins a source to a sink.

mod breaker;
mod control;
mod journal;
#[cfg(test)]
mod manual_clock;
mod moment;
mod pump;
mod reset;
mod schema_change;
mod staged;
mod status;
mod stream;
mod tenure;
mod trail;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

pub use self::breaker::{Backoff, BreakerSettings};
use self::control::Command;
pub(crate) use self::control::jitter;
pub use self::control::{Accepted, ControlSettings, Handle, OnContinuityLoss, Refusal, ResetRequest, Running, Work};
pub use self::journal::{BreakerRule, Reloaded, ResetRecord, ResetState, Trigger};
pub use self::moment::BootId;
use self::pump::Pump;
pub use self::reset::{LogRepair, PreparedReset, Reset, ResetPreview};
pub use self::staged::PreparedReload;
pub use self::status::{Pace, Phase, Status, Trouble};
pub use self::stream::{StreamConnector, StreamSettings};
use self::tenure::Tenure;
pub use self::trail::{Acknowledged, Append, Occurrence, Trail, What};
use crate::clock::World;
use crate::continuity::plan::{self, Older, Ours, Standing};
use crate::continuity::stamp::Mode;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::log::{Facts, Location};
use crate::schema::View;
use crate::sink::{Destination, Progress, Sink, SinkSettings, Stage, Target};
use crate::snapshot::Snapshot;
use crate::source::{Hole, Pick, Source};
use crate::step::Step;

/// When changes are committed; a step is never split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitBounds {
    /// No change waits longer than this.
    pub max_interval: Duration,
    /// No commit is begun with more rows than this, but for those of one step.
    pub max_rows: u64,
    /// No commit is begun with more bytes in memory than this, but for those of one step.
    pub max_bytes: u64,
}

impl Default for CommitBounds {
    fn default() -> Self {
        Self { max_interval: Duration::from_secs(10), max_rows: 1_000_000, max_bytes: 128 << 20 }
    }
}

/// How a connector delivers.
#[derive(Debug, Clone)]
pub struct ConnectorSettings {
    /// What is delivered, and how; the source's fingerprint and strands are filled in from the source.
    pub sink: SinkSettings,
    /// When changes are committed.
    pub commit: CommitBounds,
    /// How long steps may pass without changes before a commit records them; `None` for ever.
    pub heartbeat: Option<Duration>,
    /// How often an idle source is asked again.
    pub poll_interval: Duration,
    /// A changelog with more than so many rows for each of the view's is loaded anew, where somebody controls the connector and
    /// within the bounds of its breaker.
    pub reload_ratio: Option<NonZeroU32>,
}

/// When a connector ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Never.
    Stopped,
    /// When everything that the source holds at the start is delivered.
    Drained,
    /// When everything up to this step is delivered, and nothing beyond it.
    Step(Step),
    /// At this step, or when the source holds no more.
    DrainedOrStep(Step),
}

impl Until {
    fn step(self) -> Option<Step> {
        match self {
            Self::Step(step) | Self::DrainedOrStep(step) => Some(step),
            Self::Stopped | Self::Drained => None,
        }
    }

    fn ends_when_idle(self) -> bool {
        matches!(self, Self::Drained | Self::DrainedOrStep(_))
    }
}

/// How a connector ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The table's last step; `None` when there is no table.
    pub last_step: Option<Step>,
    /// The steps that the source names and cannot give.
    pub hole: Option<Hole>,
}

/// Why a delivery would not begin.
#[derive(Debug)]
pub enum Unmet {
    /// For what the source gives to load. Unavailable: it has nothing yet.
    Source(Error),
    /// For what the table is.
    Table(Error),
}

/// How long is waited before something is tried again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One view delivered to one table.
pub struct Connector {
    settings: ConnectorSettings,
    source: Box<dyn Source>,
    location: Location,
    world: World,
    status: watch::Sender<Status>,
    /// Since when a row waits that was read and not committed, by this delivery or one that was left; by the boot clock.
    waiting_since: Option<Duration>,
    /// What this process claimed.
    tenure: Tenure,
    /// Whom to ask before it reloads by itself; `None` where nobody controls it.
    control: Option<mpsc::WeakSender<Command>>,
}

/// A table of ours, claimed or not: a claim is made when there is something to write.
enum Held {
    Target(Box<Target>),
    Sink(Box<Sink>),
}

impl Connector {
    /// A connector from `source` to the table at `location`.
    pub fn new(mut settings: ConnectorSettings, source: Box<dyn Source>, location: Location, world: World) -> Self {
        settings.sink.source = source.fingerprint().to_string();
        settings.sink.strands = source.strands();
        Self {
            settings,
            source,
            location,
            world,
            status: watch::Sender::new(Status::default()),
            waiting_since: None,
            tenure: Tenure::default(),
            control: None,
        }
    }

    /// The connector's full name.
    pub fn name(&self) -> &str {
        &self.settings.sink.connector
    }

    /// What an operator sees, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Delivers until `until`, or until an error that needs somebody's help.
    ///
    /// Safe to drop at any point: the table is never wrong, and the next run goes on where it ends.
    pub async fn run(&mut self, until: Until) -> Result<Ended> {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = self.world.clock.boot();
            let ended = self.deliver(until).await;
            if self.world.clock.boot().saturating_sub(begun) > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            match ended {
                Err(e) if e.kind() == ErrorKind::Unavailable && !until.ends_when_idle() => {
                    tracing::warn!(event = "retrying", connector = self.name(), error = %e, "delivery is tried again in {pause:?}");
                    self.show_retry(Stage::Delivery, &e);
                    self.world.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(e) => {
                    if e.kind() == ErrorKind::Fenced {
                        // Who lets it go on after that wants the table.
                        self.tenure = Tenure::default();
                    }
                    Status::show_failure(&self.status, &*self.world.clock, &e);
                    return Err(e);
                }
                Ok(ended) => {
                    self.show(|s| {
                        s.phase =
                            if self.settings.sink.mode == Mode::Snapshot { Phase::Completed } else { Phase::Stopped };
                    });
                    return Ok(ended);
                }
            }
        }
    }

    async fn deliver(&mut self, until: Until) -> Result<Ended> {
        let held = loop {
            let destination = self.look().await?;
            if let Some(ours) = destination.facts().ours().cloned() {
                let met = self.meet(destination).await;
                let is_behind = met.as_ref().is_err_and(|e| e.lost() == Some(Lost::SourceBehind));
                if is_behind && self.is_same_source(&ours) == Some(true) {
                    self.source.lost(ours.last_step).await?;
                }
                break Held::Target(Box::new(met?));
            }
            let Some((view, snapshot)) = self.first_state(until).await? else {
                return Ok(Ended { last_step: None, hole: None });
            };
            match self.load(destination.deliver(view), snapshot).await {
                Ok(sink) => break Held::Sink(Box::new(sink)),
                // Another writer may have loaded the table first: then it is one to follow, not to load.
                Err(e) => match self.look().await?.standing() {
                    Standing::Ours(_) => continue,
                    Standing::Absent | Standing::Foreign => return Err(e),
                },
            }
        };
        if self.settings.sink.mode == Mode::Snapshot {
            return Ok(Ended { last_step: Some(held.last_step()?), hole: None });
        }
        // What an earlier run, or a reload, committed may not have been told: then the source keeps what nobody needs.
        self.source.acknowledge(held.last_step()?).await?;
        let ends_at = match until {
            Until::Drained => self.source.position().await?.latest,
            other => other.step(),
        };
        Pump::new(self, held, until, ends_at)?.run().await
    }

    /// Looks at the table; nothing is written.
    pub async fn look(&mut self) -> Result<Destination> {
        let (location, settings, world) = (self.location.clone(), self.settings.sink.clone(), self.world.clone());
        let destination = Destination::look(location, settings, world).await?;
        Ok(self.show_destination(destination))
    }

    /// The same for a reset, which gets past a damaged checkpoint or hint.
    async fn look_to_reset(&mut self) -> Result<Destination> {
        let (location, settings, world) = (self.location.clone(), self.settings.sink.clone(), self.world.clone());
        let destination = Destination::look_to_reset(location, settings, world).await?;
        Ok(self.show_destination(destination))
    }

    fn show_destination(&self, destination: Destination) -> Destination {
        self.show_table(match destination.standing() {
            Standing::Ours(ours) => Some(ours),
            Standing::Absent | Standing::Foreign => None,
        });
        let tally = Arc::clone(&self.status.borrow().tally);
        destination.counting(tally)
    }

    /// Refuses what a delivery would be refused for when it meets the table; nothing is written, and the source forgets nothing.
    pub async fn check(&mut self, destination: Destination) -> Result<(), Unmet> {
        if destination.facts().ours().is_some() {
            return self.meet(destination).await.map(|_| ()).map_err(Unmet::Table);
        }
        let Some((view, snapshot)) = self.state_by_then(Until::Stopped).await.map_err(Unmet::Source)? else {
            return Ok(());
        };
        destination.deliver(view).check_reload(snapshot.step, Older::Refused).map_err(Unmet::Table)
    }

    /// The table of ours, where delivery may go on.
    async fn meet(&mut self, destination: Destination) -> Result<Target> {
        let ours = destination.facts().ours().cloned();
        // The table knows in which columns the view was delivered last; the source may be ahead of it.
        let target = destination.follow(self.source.name(), self.source.key())?;
        if let Some(ours) = ours {
            self.check_source(&ours).await?;
        }
        target.check_follow()?;
        Ok(target)
    }

    /// Whether the table was loaded from the source's history; `None` where it does not tell.
    fn is_same_source(&self, ours: &Ours) -> Option<bool> {
        ours.stamp.as_ref().map(|stamp| stamp.source == self.source.fingerprint())
    }

    /// Refuses a source that has not seen what the table holds.
    async fn check_source(&mut self, ours: &Ours) -> Result<()> {
        let is_same = self.is_same_source(ours);
        if is_same == Some(false) && self.settings.sink.mode != Mode::Snapshot {
            // Steps of different histories are not compared; that they differ is what is said next.
            return Ok(());
        }
        let Some(latest) = self.source.position().await?.latest else { return Ok(()) };
        plan::check_not_behind(ours, latest)?;
        let own = self.settings.sink.strands.at(ours.last_step);
        if is_same == Some(true)
            && ours.strand.is_some()
            && ours.strand != own
            && self.settings.sink.mode != Mode::Snapshot
        {
            return Err(Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "the table has step {} of another strand: the source lost that step, and gave its number again; reset the connector",
                    ours.last_step
                ),
            ));
        }
        Ok(())
    }

    /// What a first load writes: a snapshot, or in mode `follow` no rows at the step before the first change.
    async fn first_state(&mut self, until: Until) -> Result<Option<(View, Snapshot)>> {
        loop {
            let state = self.state_by_then(until).await?;
            if state.is_some() || until.ends_when_idle() {
                return Ok(state);
            }
            self.world.clock.sleep(self.settings.poll_interval).await;
        }
    }

    /// The same, as far as the source has it; `None` in mode `follow` without changes.
    async fn state_by_then(&mut self, until: Until) -> Result<Option<(View, Snapshot)>> {
        if self.settings.sink.mode != Mode::Follow {
            return self.source.snapshot(Pick::Newest { until: until.step() }).await.map(Some);
        }
        let Some(earliest) = self.source.position().await?.earliest else { return Ok(None) };
        let view = self.source.view(earliest).await?;
        Ok(Some((view, Snapshot::from_batches(earliest, Vec::new()))))
    }

    async fn load(&mut self, target: Target, snapshot: Snapshot) -> Result<Sink> {
        let progress = target.progress();
        self.show_snapshot(&progress, snapshot.step);
        let sink = target.load(snapshot).await?;
        self.tenure.begin(&sink);
        self.show_reloaded(sink.facts(), sink.facts().version, progress.rows());
        tracing::info!(event = "reloaded", connector = self.name(), rows = progress.rows(), "the table is loaded");
        Ok(sink)
    }

    fn show(&self, change: impl FnOnce(&mut Status)) {
        Status::change(&self.status, &*self.world.clock, change);
    }

    /// Shows `phase`, and the error that led to it.
    fn show_trouble(&self, phase: Phase, error: &Error) {
        Status::show_trouble(&self.status, &*self.world.clock, phase, error);
    }

    fn show_retry(&self, stage: Stage, error: &Error) {
        Status::show_retry(&self.status, &*self.world.clock, stage, error);
    }

    fn show_snapshot(&self, progress: &Arc<Progress>, cutover: Step) {
        self.show(|s| {
            s.phase = Phase::Snapshotting;
            s.snapshot = Some(Arc::clone(progress));
            s.snapshot_step = Some(cutover);
            s.snapshot_since = Some(self.world.clock.boot());
        });
    }

    fn show_table(&self, ours: Option<&Ours>) {
        self.show(|s| {
            s.generation = ours.map(|o| o.generation);
            s.cutover = ours.and_then(|o| o.stamp.as_ref()).map(|t| t.step);
            s.last_step = ours.map(|o| o.last_step);
            s.rows_total = ours.and_then(|o| o.rows_total);
        });
    }

    /// Proposes to load the table anew where it has too many rows for each of the view; delivery goes on, and is left for it
    /// when who controls the connector agrees.
    fn propose_reload(&self, ours: Option<&Ours>) {
        let SinkSettings { layout, mode, .. } = self.settings.sink;
        let total = ours.and_then(|ours| ours.rows_total).filter(|_| mode == Mode::SnapshotAndFollow);
        let (Some(total), Some(ratio)) = (total, self.settings.reload_ratio) else { return };
        let (held, rows) = (layout.live_rows(total), total.left());
        if held <= rows.max(1).saturating_mul(ratio.get().into()) {
            return;
        }
        if let Some(control) = self.control.as_ref().and_then(mpsc::WeakSender::upgrade) {
            let who = format!("reload_ratio = {ratio}");
            let why = format!("the table has {held} rows, and the view {rows}");
            // One that is not taken is made again soon.
            let _ = control.try_send(Command::Propose { who, why });
        }
    }

    /// Shows a table that was loaded with so many rows, by the version `version`.
    fn show_reloaded(&self, facts: &Facts, version: Option<u64>, rows: u64) {
        self.show_table(facts.ours());
        if let Some(ours) = facts.ours() {
            self.tell(What::Reloaded { generation: ours.generation, step: ours.last_step, version, rows: Some(rows) });
        }
    }

    fn tell(&self, what: What) {
        Status::tell(&self.status, &*self.world.clock, what);
    }
}

impl Held {
    /// The view that is delivered.
    fn view(&self) -> &View {
        match self {
            Self::Sink(sink) => sink.view(),
            Self::Target(target) => target.view(),
        }
    }

    fn deliver(&mut self, view: View) -> Result<()> {
        match self {
            Self::Sink(sink) => sink.deliver(view),
            Self::Target(target) => target.deliver(view),
        }
    }

    fn facts(&self) -> &Facts {
        match self {
            Self::Sink(sink) => sink.facts(),
            Self::Target(target) => target.facts(),
        }
    }

    fn last_step(&self) -> Result<Step> {
        let ours = self.facts().ours().ok_or_else(|| Error::internal("a table to follow is ours"))?;
        Ok(ours.last_step)
    }
}
