//! A connector under control, with a source and a clock that a test moves.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use super::*;
use crate::change::Changes;
use crate::clock::{Clock, Ids, World};
use crate::connector::manual_clock::ManualClock;
use crate::connector::{CommitBounds, Connector, ConnectorSettings, ResetState, Status};
use crate::continuity::columns::SchemaChange;
use crate::continuity::stamp::{CommitStamp, Mode};
use crate::error::Lost;
use crate::generation::Generation;
use crate::inspect::{Verdict, verify};
use crate::log::{Access, Durability, Location, Log};
use crate::schema::View;
use crate::sink::SinkSettings;
use crate::snapshot::Snapshot;
use crate::source::{Next as Following, NextView, Pick, Position, Source};
use crate::step::{Step, StepRange};

/// After this step a feed that updates inserts no more.
const UPDATED_AFTER: u64 = 5;

/// What a source does; step n inserts the row n.
#[derive(Debug, Default)]
pub(super) struct Feed {
    pub(super) latest: u64,
    /// Continuity is lost until a snapshot is taken.
    pub(super) is_lost: bool,
    /// And again a second after each snapshot.
    pub(super) loses_again: bool,
    pub(super) loses_at: Option<Duration>,
    pub(super) panics: bool,
    /// Rows of snapshots do not come.
    pub(super) holds_rows: bool,
    /// How a snapshot fails.
    pub(super) snapshot_error: Option<ErrorKind>,
    pub(super) has_no_snapshots: bool,
    pub(super) has_name: bool,
    /// Steps after [`UPDATED_AFTER`] update the row 1 instead.
    pub(super) updates: bool,
    pub(super) acknowledged: u64,
}

struct Scripted {
    feed: Arc<Mutex<Feed>>,
    clock: Arc<ManualClock>,
    key: [String; 1],
}

pub(super) fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn view(has_name: bool) -> View {
    let mut fields = vec![Field::new("id", DataType::Int64, false)];
    if has_name {
        fields.push(Field::new("name", DataType::Utf8, true));
    }
    View::new("v", &Schema::new(fields), vec!["id".into()]).unwrap()
}

fn rows(view: &View, from: u64, to: u64, is_change: bool) -> RecordBatch {
    let ids = Int64Array::from_iter_values((from + 1..=to).map(|n| n as i64));
    let ops = is_change.then(|| vec!["i"; ids.len()]);
    batch(view, ids.clone(), ids, ops)
}

/// Each step updates the row 1.
fn updates(view: &View, from: u64, to: u64) -> RecordBatch {
    let steps = Int64Array::from_iter_values((from + 1..=to).map(|n| n as i64));
    let count = steps.len();
    batch(view, steps, Int64Array::from_value(1, count), Some(vec!["u"; count]))
}

fn batch(view: &View, steps: Int64Array, ids: Int64Array, ops: Option<Vec<&str>>) -> RecordBatch {
    let (count, is_change) = (ids.len(), ops.is_some());
    let mut columns: Vec<ArrayRef> = match ops {
        Some(ops) => vec![Arc::new(steps), Arc::new(StringArray::from(ops)), Arc::new(ids)],
        None => vec![Arc::new(ids)],
    };
    if view.schema().fields().len() > 1 {
        columns.push(Arc::new(StringArray::from(vec!["name"; count])));
    }
    let schema = if is_change { view.change_schema() } else { Arc::clone(view.schema()) };
    RecordBatch::try_new(schema, columns).unwrap()
}

#[async_trait]
impl Source for Scripted {
    fn name(&self) -> &str {
        "v"
    }

    fn key(&self) -> &[String] {
        &self.key
    }

    fn fingerprint(&self) -> &str {
        "scripted"
    }

    async fn position(&mut self) -> Result<Position> {
        let feed = self.feed.lock().unwrap();
        Ok(Position { earliest: Some(Step::ZERO), latest: Some(step(feed.latest)) })
    }

    async fn view(&mut self, _after: Step) -> Result<View> {
        Ok(view(self.feed.lock().unwrap().has_name))
    }

    fn check_snapshots(&self) -> Result<()> {
        match self.feed.lock().unwrap().has_no_snapshots {
            true => Err(Error::refused("the view is not materialized; set materialized = true")),
            false => Ok(()),
        }
    }

    async fn snapshot(&mut self, _pick: Pick) -> Result<(View, Snapshot)> {
        let mut feed = self.feed.lock().unwrap();
        if let Some(kind) = feed.snapshot_error {
            return Err(Error::new(kind, "no snapshot today"));
        }
        feed.is_lost = false;
        feed.loses_at = feed.loses_again.then(|| self.clock.boot() + Duration::from_secs(1));
        let view = view(feed.has_name);
        let mut snapshot = Snapshot::from_batches(
            step(feed.latest),
            vec![rows(&view, 0, if feed.updates { UPDATED_AFTER } else { feed.latest }, false)],
        );
        if feed.holds_rows {
            snapshot.rows = snapshot.rows.chain(stream::pending()).boxed();
        }
        Ok((view, snapshot))
    }

    async fn changes(&mut self, after: Step, asked: &View) -> Result<Following> {
        let feed = self.feed.lock().unwrap();
        assert!(!feed.panics, "no changes today");
        if feed.is_lost || feed.loses_at.is_some_and(|at| self.clock.boot() >= at) {
            return Err(Error::continuity_lost(Lost::Gap, "the source forgot its changes"));
        }
        let view = view(feed.has_name);
        if asked.schema() != view.schema() {
            return Ok(Following::View(NextView { view, is_filled: true, position: "here".into() }));
        }
        if after.get() >= feed.latest {
            return Ok(Following::Idle { hole: None });
        }
        let of = if feed.updates && after.get() >= UPDATED_AFTER {
            updates(&view, after.get(), feed.latest)
        } else {
            rows(&view, after.get(), feed.latest, true)
        };
        Ok(Following::Changes(Changes::new(StepRange::new(after, step(feed.latest))?, vec![of])?))
    }

    async fn acknowledge(&mut self, step: Step) -> Result<()> {
        self.feed.lock().unwrap().acknowledged = step.get();
        Ok(())
    }
}

/// A table, a source, and the directory of a journal: what outlives processes.
pub(super) struct Bench {
    pub(super) dir: tempfile::TempDir,
    pub(super) clock: Arc<ManualClock>,
    pub(super) feed: Arc<Mutex<Feed>>,
    pub(super) location: Location,
    pub(super) mode: Mode,
    pub(super) on_loss: OnContinuityLoss,
    pub(super) max_interval: Duration,
    pub(super) reload_ratio: Option<NonZeroU32>,
    pub(super) processes: std::cell::Cell<u64>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let feed = Feed { latest: 5, ..Feed::default() };
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::default(),
            feed: Arc::new(Mutex::new(feed)),
            location: Location::open("memory:///", Access::Write(Durability::None)).unwrap(),
            mode: Mode::SnapshotAndFollow,
            on_loss: OnContinuityLoss::FailClosed,
            max_interval: Duration::ZERO,
            reload_ratio: None,
            processes: std::cell::Cell::new(0),
        }
    }

    pub(super) fn feed(&self, change: impl FnOnce(&mut Feed)) {
        change(&mut self.feed.lock().unwrap());
    }

    /// A connector as each process makes it, and how it is controlled.
    pub(super) fn parts(&self) -> (Connector, ControlSettings) {
        self.processes.set(self.processes.get() + 1);
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let world = World { clock, ids: Arc::new(Ids::from_seed(self.processes.get())) };
        let mut sink = SinkSettings::new("p/v/c", "");
        (sink.mode, sink.schema_change, sink.files.threads) = (self.mode, SchemaChange::Reload, 0);
        let settings = ConnectorSettings {
            sink,
            commit: CommitBounds { max_interval: self.max_interval, ..CommitBounds::default() },
            heartbeat: None,
            poll_interval: Duration::from_secs(1),
            reload_ratio: self.reload_ratio,
        };
        let (feed, clock) = (Arc::clone(&self.feed), Arc::clone(&self.clock));
        let source = Box::new(Scripted { feed, clock, key: ["id".into()] });
        let control = ControlSettings {
            directory: Path::new(self.dir.path()).join("journal"),
            boot: BootId::new("run"),
            on_continuity_loss: self.on_loss,
            breaker: BreakerSettings::default(),
            backoff: Backoff::default(),
        };
        (Connector::new(settings, source, self.location.clone(), world), control)
    }

    pub(super) fn start(&self) -> Running {
        let (connector, settings) = self.parts();
        Running::start(connector, settings).unwrap()
    }

    /// A connector that has delivered all there is.
    pub(super) async fn following(&self) -> Running {
        let running = self.start();
        self.reach(&running, Phase::Following).await;
        running
    }

    pub(super) async fn reach(&self, running: &Running, phase: Phase) {
        self.until(running, |status| status.phase == phase).await;
    }

    /// Lets others work, while no time passes, until `holds`.
    pub(super) async fn until(&self, running: &Running, holds: impl Fn(&Status) -> bool) {
        for _ in 0..5_000_000 {
            if holds(&running.handle().status().borrow()) {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("it does not come to that: {:?}", running.handle().status().borrow());
    }

    /// The same, while time passes.
    pub(super) async fn pass_until(&self, running: &Running, holds: impl Fn(&Status) -> bool) {
        for _ in 0..2_000_000 {
            if holds(&running.handle().status().borrow()) {
                return;
            }
            yields(50).await;
            self.clock.advance(Duration::from_millis(100));
        }
        panic!("it does not come to that: {:?}", running.handle().status().borrow());
    }

    /// The commits of the table, which is healthy.
    pub(super) async fn stamps(&self) -> Vec<CommitStamp> {
        let log = Log::new(self.location.clone(), World::system());
        let report = verify(&log, None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
        let mut stamps = Vec::new();
        for version in 0..=report.head {
            stamps.push(log.commit(version).await.unwrap().unwrap().stamp().unwrap().clone());
        }
        stamps
    }

    /// The ids of the resets whose reloads the table holds, in order.
    pub(super) async fn reloads(&self) -> Vec<String> {
        self.stamps().await.into_iter().filter_map(|stamp| stamp.reset).map(|reset| reset.id).collect()
    }
}

pub(super) async fn yields(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

pub(super) fn call(who: &str) -> ResetRequest {
    ResetRequest { who: who.into(), why: "rows look wrong".into(), ..ResetRequest::default() }
}

pub(super) fn generation(n: u64) -> Option<Generation> {
    Some(Generation::new(n).unwrap())
}

pub(super) async fn state(running: &Running, id: &str) -> ResetState {
    running.handle().reset_by_id(id).await.unwrap().unwrap().state
}
