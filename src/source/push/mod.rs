//! A view that others push: each request becomes a step, which is durable before it is answered.
//!
//! ```text
//!   push ──► owner ──► step log ──► view store        one thread, the only one that writes either
//!                          │            │
//!            PushSource: changes     snapshot          one for each connector
//! ```
//!
//! The log decides: what it holds is pushed. The store follows it, and is caught up from it when the view is opened. A step
//! leaves the log once every attached connector has it and the store holds it durably.

mod operations;
mod owner;
mod reader;
mod trouble;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};

pub use operations::{Current, Operations};
pub use reader::PushSource;
pub use trouble::{Trouble, Troubles};

use crate::clock::{Clock, World};
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::schema::View;
use crate::source::logged::{Detached, Place, Places, WhenFull, open_register};
use crate::step::Step;
use crate::steplog::{self, Answer, At, Limits, StepLog};
use crate::view::{Pinned, Pins, ViewStore};
use owner::{Owner, Push, Request};

/// How many requests may wait, whatever their size.
const QUEUE: usize = 1024;
/// The unit in which room in the queue is counted, in bytes.
const UNIT: u64 = 1024;

/// What a pushed view is, and where it is kept.
#[derive(Debug, Clone)]
pub struct PushSettings {
    /// The view. Its columns stay as they are as long as its directories are there.
    pub view: View,
    /// The directory of the step log.
    pub log: PathBuf,
    /// The directory of the rows; `None`: the view is not materialized, so nobody can have a snapshot of it.
    pub store: Option<PathBuf>,
    /// What the step log may take, and what requests that wait may.
    pub limits: Limits,
    /// The file in which connectors that were detached are written down.
    pub register: PathBuf,
    /// The connectors that are attached from the beginning. Without them the log lets go of what they need.
    pub connectors: Vec<(String, WhenFull)>,
}

/// Where a pushed view stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The step log.
    pub log: steplog::Stand,
    /// The number of rows, of a materialized view.
    pub rows: Option<u64>,
    /// The attached connectors.
    pub connectors: BTreeMap<String, Place>,
    /// Those that were detached because the log was full.
    pub detached: BTreeMap<String, Detached>,
    /// Why pushes are not stored; `None` once one is.
    pub refusal: Option<String>,
    /// Whether that is because the log is full.
    pub is_full: bool,
    /// For how long pushes were refused because the log was full, since the view was opened.
    pub backpressure: Duration,
}

/// What everybody reads.
struct Shared {
    view: View,
    fingerprint: String,
    /// What tells this history of the view from others.
    history: String,
    log: StepLog,
    pins: Option<Pins>,
    /// What was pinned last for one of many readers.
    pinned: Mutex<Weak<Pinned>>,
    told: watch::Receiver<Told>,
    clock: Arc<dyn Clock>,
}

/// What the owner tells.
#[derive(Debug, Clone, Default)]
struct Told {
    rows: Option<u64>,
    places: Places,
    /// Why the store takes nothing more.
    broken: Option<String>,
    /// Why pushes are not stored.
    refusal: Option<String>,
    /// Since when the log is too full for what is pushed, by the boot clock.
    full_since: Option<Duration>,
    /// What it takes then, in bytes.
    full_at: Option<u64>,
    /// For how long it was before.
    was_full: Duration,
}

impl Told {
    /// Nothing stands in the way of pushes any more, as far as anybody can tell.
    fn takes_pushes(&mut self, clock: &dyn Clock) {
        self.was_full = self.backpressure(clock);
        (self.refusal, self.full_since, self.full_at) = (None, None, None);
    }

    fn backpressure(&self, clock: &dyn Clock) -> Duration {
        self.was_full + self.full_since.map_or(Duration::ZERO, |since| clock.boot().saturating_sub(since))
    }
}

/// A view that is pushed. Dropped, it ends what it has in hand; [`LiveView::close`] waits for that.
pub struct LiveView {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    units: u32,
    owner: JoinHandle<Result<()>>,
}

impl LiveView {
    /// Opens the view, or begins it without rows at step 0; catches the store up, and blocks.
    ///
    /// A store that is missing, damaged or of another log is made again where the log reaches back to step 0. Corrupt: it
    /// does not, or the log itself is damaged. Incompatible: the store holds other columns. Refused: another process has it.
    pub fn open(settings: PushSettings, disk: Arc<dyn Disk>, world: &World) -> Result<Self> {
        let PushSettings { view, log: directory, store, limits, register, connectors } = settings;
        let (log, _) = StepLog::open(&directory, Step::ZERO, limits, Arc::clone(&disk), &world.ids)?;
        let (register, kept) = open_register(&register, disk)?;
        let store = store.map(|path| owner::opened(&path, &view, &log)).transpose()?;
        let pins = store.as_ref().map(|store| store.pins().clone());
        let history = kept.history.clone().unwrap_or_else(|| log.id().simple().to_string());
        let fingerprint = match kept.history {
            Some(history) => format!("push:{history}"),
            None => format!("push:{}", log.id()),
        };
        let mut places = Places::new(kept.detached);
        connectors.iter().for_each(|(name, when_full)| places.attach(name, *when_full));
        let rows = store.as_ref().map(ViewStore::rows);
        let (told, listening) = watch::channel(Told { rows, places, ..Told::default() });
        let shared = Arc::new(Shared {
            view,
            fingerprint,
            history,
            log,
            pins,
            pinned: Mutex::default(),
            told: listening.clone(),
            clock: Arc::clone(&world.clock),
        });
        let (requests, received) = mpsc::channel(QUEUE);
        let owner = Owner::new(Arc::clone(&shared), store, limits, register, world.ids.draw(), told);
        let owner = std::thread::Builder::new()
            .name("push".into())
            .spawn(move || owner.run(received))
            .map_err(|e| Error::unavailable("no thread for a pushed view").with_source(e))?;
        let units = u32::try_from((limits.queue_bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(units as usize));
        Ok(Self { shared, requests, room, units, owner })
    }

    /// Stores operations as one step, all or none; waits until it is durable.
    ///
    /// The same step sent again is [`Answer::AlreadyStored`] or, when it means something else, [`Answer::OtherContent`].
    /// [`Answer::Full`]: the log has no room until a connector went on. Refused: the view cannot hold the operations.
    /// Unavailable: the disk failed or is full; the same step may be sent again.
    pub async fn push(&self, operations: Operations, at: At) -> Result<Answer> {
        let units = u32::try_from(operations.bytes / UNIT + 1).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| self.shared.ended())?;
        self.ask(|reply| Request::Push(Push { operations, at, reply, _room: room })).await?
    }

    /// Attaches a connector: from here on, nothing that it lacks is let go of. One that was attached keeps its place; one that
    /// was detached because the log was full comes back by the snapshot that it takes.
    pub async fn attach(&self, connector: &str, when_full: WhenFull) -> Result<()> {
        self.ask(|reply| Request::Attach(connector.to_owned(), when_full, reply)).await
    }

    /// Forgets a connector: it holds no step any more. What it reads of the log may be gone.
    pub async fn detach(&self, connector: &str) -> Result<()> {
        self.ask(|reply| Request::Detach(connector.to_owned(), reply)).await?
    }

    /// The view, as the source of a connector of this name.
    pub fn source(&self, connector: &str) -> PushSource {
        PushSource::new(Arc::clone(&self.shared), self.requests.downgrade(), Some(connector))
    }

    /// The view, as the source of somebody for whom nothing is held back: changes that nobody else needs may be gone.
    pub fn anonymous_source(&self) -> PushSource {
        PushSource::new(Arc::clone(&self.shared), self.requests.downgrade(), None)
    }

    /// What tells `step`, which the view has, from those of other histories, and from those that it lost.
    pub fn life(&self, step: Step) -> String {
        let history = &self.shared.history;
        self.shared.log.strands().at(step).map_or_else(|| history.clone(), |strand| format!("{history}-{strand}"))
    }

    /// Why it takes no pushes any more, until it is opened again.
    pub fn trouble(&self) -> Option<String> {
        let broken = self.shared.told.borrow().broken.clone();
        broken.or_else(|| self.requests.is_closed().then(|| self.shared.ended().message().to_owned()))
    }

    /// What becomes of it from here on that its connectors do not tell.
    pub fn troubles(&self) -> Troubles {
        Troubles::of(self.shared.told.clone())
    }

    /// Where the view stands.
    pub fn standing(&self) -> Standing {
        let told = self.shared.told.borrow();
        let (connectors, detached) = (told.places.attached().clone(), told.places.detached().clone());
        let (refusal, is_full) = (told.refusal.clone(), told.full_since.is_some());
        let backpressure = told.backpressure(&*self.shared.clock);
        Standing { log: self.shared.log.stand(), rows: told.rows, connectors, detached, refusal, is_full, backpressure }
    }

    /// Ends the view when everything asked for is done, and lets another process have it.
    ///
    /// Internal: a source of it is still there.
    pub async fn close(self) -> Result<()> {
        drop(self.requests);
        let ended = tokio::task::spawn_blocking(move || self.owner.join()).await;
        match ended {
            Ok(Ok(ended)) => ended?,
            Ok(Err(panic)) => {
                return Err(Error::internal(format!("the owner of a pushed view panicked: {}", panic_text(&*panic))));
            }
            Err(e) => return Err(Error::internal("nobody waited for the owner of a pushed view").with_source(e)),
        }
        match Arc::into_inner(self.shared) {
            Some(shared) => shared.log.close().await,
            None => Err(Error::internal("a pushed view was closed before its sources; end its connectors first")),
        }
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(request(reply)).await.map_err(|_| self.shared.ended())?;
        answer.await.map_err(|_| self.shared.ended())
    }
}

impl std::fmt::Debug for LiveView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveView").field("fingerprint", &self.shared.fingerprint).finish_non_exhaustive()
    }
}

impl Shared {
    fn ended(&self) -> Error {
        Error::new(ErrorKind::Internal, format!("the pushed view {} has ended; open it again", self.view.name()))
    }
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
