//! Tells the list of events what connectors and views show.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use super::Changed;
use super::report::TroubleReport;
use crate::clock::{Clock, World};
use crate::config::{ConnectorName, ViewConfig};
use crate::connector::{Acknowledged, Append, Phase, ResetRecord, ResetState, Status, What};
use crate::error::Error;
use crate::events::{About, Draft, Events, Kind};
#[cfg(feature = "postgres")]
use crate::source::logged::Departures;
use crate::source::logged::Detached;
use crate::source::push::{Trouble, Troubles};

/// Commits of a connector, or what its client says, within this time are one event.
const GATHERED: Duration = Duration::from_secs(1);
/// How long one that was stopped may take to say so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Who is told.
#[derive(Clone)]
pub(super) enum Teller {
    /// Nobody: one command delivers, and ends.
    Nobody,
    /// A list of events.
    List(Arc<Events>, World),
}

/// The task that tells of one connector or view; it ends with what it tells of.
#[derive(Default)]
pub(super) struct Telling {
    /// `None` where nobody is told, and once its end was awaited.
    task: Mutex<Option<JoinHandle<()>>>,
    clock: Option<Arc<dyn Clock>>,
}

impl Telling {
    fn of(task: JoinHandle<()>, clock: &Arc<dyn Clock>) -> Self {
        Self { task: Mutex::new(Some(task)), clock: Some(Arc::clone(clock)) }
    }

    /// Waits until everything is told, when what it is told of was stopped. What hangs nevertheless is given up.
    pub(super) async fn ended(&self) {
        let (Some(mut task), Some(clock)) = (self.task.lock().await.take(), &self.clock) else { return };
        let why = tokio::select! {
            ended = &mut task => match ended {
                Ok(()) => return,
                Err(error) => error.to_string(),
            },
            () = clock.deadline(LAST_WORDS) => {
                task.abort();
                "what it tells of does not end".to_owned()
            }
        };
        tracing::warn!(event = "not_told", why, "what happened last is not among the events");
    }
}

impl Teller {
    /// Tells of something that happens at this moment.
    pub(super) fn tell(&self, kind: Kind, about: About, data: Value) {
        if let Self::List(events, world) = self {
            events.tell(Draft::new(world.clock.unix_millis(), kind, about, data));
        }
    }

    pub(super) fn configuration_reloaded(&self, changed: &Changed) {
        self.tell(Kind::ConfigurationReloaded, About::default(), json!(changed));
    }

    pub(super) fn connector_failed(&self, name: &ConnectorName, error: &Error) {
        let data = json!({ "code": error.kind().name(), "reason": error.message() });
        self.tell(Kind::ConnectorFailed, connector(name), data);
    }

    pub(super) fn view_failed(&self, view: &ViewConfig, reason: &str) {
        self.tell(Kind::ViewFailed, About::view(&view.pipeline, &view.name), json!({ "reason": reason }));
    }

    /// Tells of a connector until it ends.
    pub(super) fn connector(&self, name: &ConnectorName, status: watch::Receiver<Status>) -> Telling {
        let Self::List(events, world) = self else { return Telling::default() };
        let follower = Follower {
            about: connector(name),
            events: Arc::clone(events),
            clock: Arc::clone(&world.clock),
            seen: 0,
            gathered: None,
            told_at: None,
        };
        Telling::of(tokio::spawn(follower.run(status)), &world.clock)
    }

    /// Tells who is detached from a table's step log until the view ends.
    #[cfg(feature = "postgres")]
    pub(super) fn table(&self, view: &ViewConfig, mut departures: Departures) -> Telling {
        let Self::List(_, world) = self else { return Telling::default() };
        let (teller, view) = (self.clone(), view.clone());
        let task = tokio::spawn(async move {
            while let Some(found) = departures.next().await {
                for (connector, place) in found {
                    teller.detached(&view, &connector, place);
                }
            }
        });
        Telling::of(task, &world.clock)
    }

    fn detached(&self, view: &ViewConfig, connector: &str, place: Detached) {
        let data = json!({ "acknowledged": place.acknowledged, "last_step": place.at });
        self.tell(Kind::Detached, About::connector(&view.pipeline, &view.name, connector), data);
    }

    /// Tells of a pushed view until it ends.
    pub(super) fn view(&self, view: &ViewConfig, mut troubles: Troubles) -> Telling {
        let Self::List(_, world) = self else { return Telling::default() };
        let (teller, view) = (self.clone(), view.clone());
        let task = tokio::spawn(async move {
            while let Some(found) = troubles.next().await {
                for trouble in found {
                    match trouble {
                        Trouble::Broken(why) => teller.view_failed(&view, &why),
                        Trouble::Detached { connector, place } => teller.detached(&view, &connector, place),
                    }
                }
            }
        });
        Telling::of(task, &world.clock)
    }
}

fn connector(name: &ConnectorName) -> About {
    About::connector(name.pipeline(), name.view(), name.connector())
}

/// Follows what one connector shows.
struct Follower {
    about: About,
    events: Arc<Events>,
    clock: Arc<dyn Clock>,
    /// The number of the last occurrence.
    seen: u64,
    /// What is told together, and when the last of it was.
    gathered: Option<(i64, Gathered)>,
    /// When such was told last, by the boot clock.
    told_at: Option<Duration>,
}

/// What happens often, and is told together where one follows the other.
#[derive(Debug, Clone, Copy)]
enum Gathered {
    Append(Append),
    Acknowledged(Acknowledged),
}

impl Gathered {
    fn of(what: &What) -> Option<Self> {
        match what {
            What::Appended(append) => Some(Self::Append(*append)),
            What::Acknowledged(acknowledged) => Some(Self::Acknowledged(*acknowledged)),
            What::Phase { .. } | What::Reloaded { .. } | What::Reset(_) => None,
        }
    }

    fn and(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Append(own), Self::Append(next)) => own.and(next).map(Self::Append),
            (Self::Acknowledged(own), Self::Acknowledged(next)) => own.and(next).map(Self::Acknowledged),
            _ => None,
        }
    }
}

impl Follower {
    async fn run(mut self, mut status: watch::Receiver<Status>) {
        loop {
            let (missed, occurred) = status.borrow_and_update().trail.after(self.seen);
            if missed > 0 {
                self.seen += missed;
                self.tell(self.clock.unix_millis(), Kind::EventsLost, json!({ "count": missed }));
            }
            for occurrence in occurred {
                self.seen = occurrence.number;
                self.take(occurrence.at, &occurrence.what);
            }
            let wait = self
                .gathered
                .and(self.told_at)
                .map_or(Duration::ZERO, |told| (told + GATHERED).saturating_sub(self.clock.boot()));
            if wait.is_zero() {
                self.flush();
            }
            let changed = tokio::select! {
                changed = status.changed() => changed,
                () = self.clock.deadline(wait), if self.gathered.is_some() => {
                    self.flush();
                    continue;
                }
            };
            if changed.is_err() {
                break self.flush();
            }
        }
    }

    fn take(&mut self, at: i64, what: &What) {
        if let Some(next) = Gathered::of(what) {
            let joined = self.gathered.and_then(|(_, gathered)| gathered.and(next));
            if joined.is_none() {
                self.flush();
            }
            self.gathered = Some((at, joined.unwrap_or(next)));
            return;
        }
        // What happened before is told before.
        self.flush();
        match what {
            What::Phase { from, to, trouble } => {
                let trouble = trouble.as_ref().map(TroubleReport::of);
                let data = json!({ "from": from.to_string(), "to": to.to_string(), "trouble": trouble });
                self.tell(at, kind_of(*to), data);
            }
            What::Reloaded { generation, step, version, rows } => {
                let data = json!({ "generation": generation, "step": step, "version": version, "rows": rows });
                self.tell(at, Kind::Reloaded, data);
            }
            What::Reset(record) => {
                if let Some((kind, data)) = reset(record) {
                    self.tell(at, kind, data);
                }
            }
            What::Appended(_) | What::Acknowledged(_) => {}
        }
    }

    fn flush(&mut self) {
        let Some((at, gathered)) = self.gathered.take() else { return };
        self.told_at = Some(self.clock.boot());
        match gathered {
            Gathered::Append(Append { generation, from, to, version, commits, rows, bytes }) => {
                let data = json!({
                    "generation": generation, "from": from, "to": to, "version": version,
                    "commits": commits, "rows": rows, "bytes": bytes,
                });
                self.tell(at, Kind::Appended, data);
            }
            Gathered::Acknowledged(Acknowledged { generation, from, to }) => {
                self.tell(at, Kind::Acknowledged, json!({ "generation": generation, "from": from, "to": to }));
            }
        }
    }

    fn tell(&self, at: i64, kind: Kind, data: Value) {
        self.events.tell(Draft::new(at, kind, self.about.clone(), data));
    }
}

fn kind_of(phase: Phase) -> Kind {
    match phase {
        Phase::Retrying => Kind::Retrying,
        Phase::ContinuityLost => Kind::ContinuityLost,
        Phase::BreakerOpen => Kind::BreakerOpen,
        Phase::Fenced => Kind::Fenced,
        Phase::Failed => Kind::Failed,
        Phase::Starting
        | Phase::Snapshotting
        | Phase::CatchingUp
        | Phase::Following
        | Phase::Paused
        | Phase::Completed
        | Phase::Stopped => Kind::StateChanged,
    }
}

/// What is told of a reset that was accepted, or has ended.
fn reset(record: &ResetRecord) -> Option<(Kind, Value)> {
    let mut data = Map::new();
    let mut add = |name: &str, value: Value| data.insert(name.to_owned(), value);
    add("id", json!(record.id));
    add("trigger", json!(record.trigger));
    add("who", json!(record.who));
    add("why", json!(record.why));
    let kind = match &record.state {
        ResetState::Accepted => Kind::ResetAccepted,
        ResetState::Committed(reloaded) => {
            add("version", json!(reloaded.version));
            add("generation", json!(reloaded.generation));
            add("step", json!(reloaded.step));
            Kind::ResetCommitted
        }
        ResetState::Cancelled { who } => {
            add("cancelled_by", json!(who));
            Kind::ResetCancelled
        }
        ResetState::Failed { code, reason } => {
            add("code", json!(code));
            add("reason", json!(reason));
            Kind::ResetFailed
        }
        ResetState::Expired => Kind::ResetExpired,
        ResetState::Snapshotting | ResetState::Committing => return None,
    };
    Some((kind, Value::Object(data)))
}
