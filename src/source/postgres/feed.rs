//! Tables of one database that are followed together: one slot, one publication, one connection that reads.
//!
//! ```text
//!   server ──► stream ──► step log ──► TableSource: changes      a log for each table, a source for each connector
//!      └──────── snapshot of its own ──────► TableSource: snapshot
//! ```
//!
//! A transaction is a step, and the end of its commit is the step's number. The server forgets a transaction once the logs
//! hold it durably, and not before; connectors read the logs at their own pace.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::evidence::open_evidence;
use super::meeting::WalKept;
use super::reader::TableSource;
use super::server::{REACH, Server};
use super::shelf::{Shelf, TableSettings, Trouble};
use super::stream::{Request, Stream};
use crate::clock::World;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::source::logged::WhenFull;
use crate::source::logged::{Departures, Detached, Place};
use crate::step::Step;
use crate::steplog;

/// How long it is waited for a server at the beginning: for one that was never met, and for one that was.
const PATIENCE: Duration = Duration::from_secs(5);
const SHORT_PATIENCE: Duration = Duration::from_secs(2);
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How many requests may wait.
const QUEUE: usize = 64;

/// A database, and what of it is followed.
pub struct FeedSettings {
    /// How the server is reached, with a password where it wants one.
    pub url: String,
    /// The slot's name.
    pub slot: String,
    /// The publication's name.
    pub publication: String,
    /// What the slot may make the server keep, in bytes; then it is dropped. `None`: anything.
    pub max_wal: Option<u64>,
    /// The file in which stands what must be known of the server when it is met again.
    pub evidence: PathBuf,
    /// The tables.
    pub tables: Vec<TableSettings>,
}

/// What everybody sees of a feed.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) contact: Contact,
    /// What makes the steps comparable; `None` until the server was met once.
    pub(super) fingerprint: Option<Arc<str>>,
    /// Every log has everything up to here.
    pub(super) reached: Step,
    pub(super) wal: Option<WalKept>,
    /// Since when a log is too full for what comes, by the boot clock, and for how long any was before.
    pub(super) full_since: Option<Duration>,
    pub(super) was_full: Duration,
}

/// Whether the server is followed.
#[derive(Debug, Clone)]
pub(super) enum Contact {
    /// It was not met yet.
    Awaited,
    /// It is.
    Met,
    /// Not for now.
    Away(Trouble),
    /// Not any more: it is another history, or has lost some of this one.
    Lost(Trouble),
}

/// What those who read and the one who writes share.
pub(super) struct Shared {
    pub(super) server: Server,
    pub(super) slot: String,
    pub(super) publication: String,
    pub(super) max_wal: Option<u64>,
    pub(super) shelves: Vec<Arc<Shelf>>,
    pub(super) told: watch::Receiver<Told>,
    pub(super) world: World,
}

impl Shared {
    /// What `work` gives; the server has a minute for it.
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            () = self.world.clock.deadline(ANSWER) => {
                Err(Error::unavailable(format!("{}: the server does not answer; {REACH}", self.server.place())))
            }
        }
    }

    pub(super) fn ended(&self) -> Error {
        Error::internal(format!("the slot {:?} is not read any more; open it again", self.slot))
    }
}

/// Tables of a database that are followed. Dropped, it ends what it has in hand; [`Feed::close`] waits for that.
pub struct Feed {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    stream: JoinHandle<()>,
}

/// Where a table stands.
#[derive(Debug, Clone)]
pub struct TableStanding {
    /// The step log; `None` until the server was met once.
    pub log: Option<steplog::Stand>,
    /// The last step up to which everything is known.
    pub reached: Step,
    /// The attached connectors.
    pub connectors: std::collections::BTreeMap<String, Place>,
    /// Those that were detached because the log was full.
    pub detached: std::collections::BTreeMap<String, Detached>,
    /// Why nothing is read for now; `None` while the server is followed.
    pub away: Option<Arc<Error>>,
    /// Why the table is not followed any more until a connector is reset.
    pub lost: Option<String>,
    /// Whether nothing is read because a log is full, and for how long that was so.
    pub is_full: bool,
    /// For how long that was so, since the feed was opened.
    pub backpressure: Duration,
    /// What the slot makes the server keep.
    pub wal: Option<WalKept>,
}

impl Feed {
    /// Opens what was read before, and begins to follow, within a Tokio runtime. The server need not be there.
    ///
    /// Config: the address or the name of a table is none. Corrupt: what was kept is damaged.
    pub async fn open(settings: FeedSettings, disk: Arc<dyn Disk>, world: &World) -> Result<Self> {
        let FeedSettings { url, slot, publication, max_wal, evidence, tables } = settings;
        let server = Server::new(&url, Arc::clone(&world.clock))?;
        let (file, evidence) = open_evidence(&evidence, Arc::clone(&disk))?;
        let shelf = |table| Shelf::new(table, Arc::clone(&disk), Arc::clone(&world.ids)).map(Arc::new);
        let shelves = tables.into_iter().map(shelf).collect::<Result<Vec<_>>>()?;
        let fingerprint = evidence.as_ref().map(|evidence| evidence.fingerprint().into());
        let (contact, reached) = (Contact::Awaited, Step::ZERO);
        let first = Told { contact, fingerprint, reached, wal: None, full_since: None, was_full: Duration::ZERO };
        let (told, listening) = watch::channel(first);
        let world = world.clone();
        let shared = Arc::new(Shared { server, slot, publication, max_wal, shelves, told: listening, world });
        let (requests, received) = mpsc::channel(QUEUE);
        let stream = Stream::new(Arc::clone(&shared), told, file, evidence, received);
        stream.open_logs().await;
        let stream = tokio::spawn(stream.run());
        Ok(Self { shared, requests, stream })
    }

    fn shelf(&self, view: &str) -> Result<&Arc<Shelf>> {
        let found = self.shared.shelves.iter().find(|shelf| shelf.view() == view);
        found.ok_or_else(|| Error::internal(format!("the view {view} is none of the slot {:?}", self.shared.slot)))
    }

    /// Waits until the server was met, or cannot be without somebody's help, but not for ever. Without a server that was never
    /// met nobody knows which history its tables have, and of a table that was not followed nothing is here; others may come
    /// later.
    pub async fn met(&self) {
        let has_log = |shelf: &Arc<Shelf>| shelf.state.borrow().log.is_some();
        let is_known = self.shared.told.borrow().fingerprint.is_some() && self.shared.shelves.iter().all(has_log);
        let patience = if is_known { SHORT_PATIENCE } else { PATIENCE };
        let mut told = self.shared.told.clone();
        let is_clear = |told: &Told| match &told.contact {
            Contact::Met | Contact::Lost(_) => true,
            Contact::Away(trouble) => !trouble.passes(),
            Contact::Awaited => false,
        };
        tokio::select! {
            _ = told.wait_for(is_clear) => {}
            () = self.shared.world.clock.deadline(patience) => {}
        }
    }

    /// Why nothing of a view can be had until the server is met or the configuration is another; `None` where something can.
    pub fn trouble(&self, view: &str) -> Option<Error> {
        let shelf = self.shelf(view).ok()?;
        let state = shelf.state.borrow();
        let told = self.shared.told.borrow();
        if let Some(trouble) = state.trouble.as_ref().filter(|trouble| !trouble.is_loss()) {
            return Some(trouble.error());
        }
        match &told.contact {
            _ if told.fingerprint.is_some() && state.log.is_some() => None,
            Contact::Away(trouble) => Some(trouble.error()),
            Contact::Awaited => {
                let place = self.shared.server.place();
                Some(Error::unavailable(format!("{place}: the server does not answer; {REACH}")))
            }
            Contact::Met | Contact::Lost(_) => None,
        }
    }

    /// Attaches a connector of a view: from here on, nothing that it lacks is let go of.
    pub fn attach(&self, view: &str, connector: &str, when_full: WhenFull) -> Result<()> {
        self.shelf(view)?.attach(connector, when_full);
        Ok(())
    }

    /// Forgets a connector of a view.
    pub fn detach(&self, view: &str, connector: &str) -> Result<()> {
        self.shelf(view)?.detach(connector)
    }

    /// A view as the source of a connector of this name, or of somebody for whom nothing is held back.
    pub fn source(&self, view: &str, connector: Option<&str>) -> Result<TableSource> {
        TableSource::new(Arc::clone(&self.shared), Arc::clone(self.shelf(view)?), self.requests.downgrade(), connector)
    }

    /// Tells which connectors of a view are detached.
    pub fn departures(&self, view: &str) -> Result<Departures> {
        Ok(Departures::of(self.shelf(view)?.places.subscribe()))
    }

    /// Where a view stands.
    pub fn standing(&self, view: &str) -> Result<TableStanding> {
        let shelf = self.shelf(view)?;
        let (told, places, state) = (self.shared.told.borrow(), shelf.places.borrow(), shelf.state.borrow());
        let now = self.shared.world.clock.boot();
        let full = told.full_since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
        let lost = match &told.contact {
            Contact::Lost(trouble) => Some(trouble.message().to_owned()),
            _ => state.trouble.as_ref().map(|trouble| trouble.message().to_owned()),
        };
        let away = match &told.contact {
            Contact::Away(trouble) => Some(Arc::new(trouble.error())),
            _ => None,
        };
        Ok(TableStanding {
            log: state.log.as_ref().map(|log| log.stand()),
            reached: told.reached,
            connectors: places.attached().clone(),
            detached: places.detached().clone(),
            away,
            lost,
            is_full: told.full_since.is_some(),
            backpressure: told.was_full + full,
            wal: told.wal.clone(),
        })
    }

    /// Ends it when what it has in hand is done.
    pub async fn close(self) -> Result<()> {
        drop(self.requests);
        self.stream.await.map_err(|e| Error::internal("a slot's stream did not end by itself").with_source(e))?;
        for shelf in &self.shared.shelves {
            let log = shelf.state.send_replace(Default::default()).log;
            if let Some(log) = log.and_then(Arc::into_inner) {
                log.close().await?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("slot", &self.shared.slot).finish_non_exhaustive()
    }
}
