//! What runs: writers, resets, checkpoints and readers, each as a process with a store, a clock and ids of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cutover::connector::{CommitBounds, Connector, ConnectorSettings, Reset, Until};
use cutover::continuity::plan::{Older, OnExisting};
use cutover::continuity::stamp::{Layout, ResetStamp};
use cutover::log::Log;
use cutover::sink::{Destination, Maintained};
use cutover::{Ids, Location, Result, SinkSettings, World};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::feed::{Feed, FeedSource, Honesty};
use super::gate::{Gate, GateStore};
use super::homes::{Home, Homes};
use super::oracle::{Oracle, Violation};
use super::rows::{Row, rows_of};
use super::storage::Storage;
use super::time::{ProcessClock, Time};
use crate::faults::{Call, Fault, FaultStore, Verb};
use crate::program::Chance;
use crate::vectors;
use crate::world::settings;

/// The machine's own time in which a process makes a move, unless it hangs outside of what is simulated.
pub(super) const STILL: Duration = Duration::from_secs(120);
/// A process sees a doubled listing once in so many at most.
const DOUBLED_APART: u32 = 8;

/// What a process is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    /// Delivers until something ends it.
    Writer(Honesty),
    /// Carries out the reset of this id.
    Reset(String),
    /// Writes a checkpoint, and looks no further.
    Checkpoint,
    /// Takes the table over for all that a writer does beside its commits.
    Maintenance,
    /// Deletes garbage as the command does, whoever holds the table.
    Gc,
    /// Reads a version with its rows.
    Reader,
}

/// How a process ended by itself.
#[derive(Debug)]
pub(super) enum Ended {
    /// A reset that did something, or found it done.
    Reset,
    /// The version that was read, and the rows that it has.
    Read(u64, Vec<Row>),
    /// A file could not be read.
    Unread,
    /// What maintenance did.
    Maintained(Maintained),
    Done,
}

/// What all processes share.
pub(super) struct Stage {
    pub(super) seed: u64,
    pub(super) time: Arc<Time>,
    pub(super) gate: Arc<Gate>,
    pub(super) storage: Arc<Storage>,
    pub(super) feed: Arc<Mutex<Feed>>,
    pub(super) chance: Arc<Mutex<Chance>>,
    /// One call in so many fails, of those that write and of those that read; 0 for none.
    pub(super) rates: (u64, u64),
    /// Whether the storage is sound.
    pub(super) is_calm: Arc<AtomicBool>,
    pub(super) history: Arc<Mutex<Vec<String>>>,
    pub(super) faults: Arc<AtomicU64>,
    pub(super) fired: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    pub(super) on_existing: OnExisting,
    pub(super) heartbeat: Option<Duration>,
    pub(super) log_retention: Option<&'static str>,
    pub(super) layout: Layout,
    /// Where indexes of keys are kept; `None` where each process holds its own in memory.
    pub(super) homes: Option<Homes>,
}

/// A process.
pub(super) struct Process {
    pub(super) id: usize,
    pub(super) role: Role,
    pub(super) future: LocalBoxFuture<'static, Result<Ended>>,
    pub(super) store: FaultStore,
    /// The oracle's count of drifts when it began.
    pub(super) drifts: u64,
    pub(super) began_in_drift: bool,
    /// The oracle's count of deleted entries when it began.
    pub(super) cleaned: usize,
    /// When it began.
    pub(super) begun: Duration,
    /// How far its wall clock is ahead.
    pub(super) skew_millis: i64,
    /// Where it keeps the index of the table's keys.
    pub(super) home: Option<Home>,
}

impl Process {
    /// Whether this fault met one of its calls.
    pub(super) fn met(&self, fault: &str) -> bool {
        self.store.fired().contains_key(fault)
    }

    /// Whether any fault met its calls.
    pub(super) fn met_any(&self) -> bool {
        !self.store.fired().is_empty()
    }
}

impl Stage {
    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let line = format!("{:>9} ms  {}", self.time.passed().as_millis(), what());
        self.history.lock().unwrap().push(line);
    }

    pub(super) fn below(&self, end: u64) -> u64 {
        self.chance.lock().unwrap().below(end)
    }

    pub(super) fn one_in(&self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(super) fn count(&self, fault: &'static str) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        *self.fired.lock().unwrap().entry(fault).or_default() += 1;
    }

    /// Whether nothing moves before the schedule does; what runs beside processes is asked, too.
    pub(super) fn rests(&self) -> bool {
        if self.time.is_due_beside() {
            return false;
        }
        let Some(mut waiting) = self.gate.tasks() else { return false };
        waiting.extend(self.time.tasks());
        waiting.len() == tokio::runtime::Handle::current().metrics().num_alive_tasks()
    }

    /// Lets what runs beside processes run until nothing moves.
    pub(super) async fn rest(&self) -> Result<(), Violation> {
        let rest = async {
            while !self.rests() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(STILL, rest)
            .await
            .map_err(|_| "what runs beside processes does not come to rest".to_string())
    }

    /// Decides about each call of a process.
    fn script(self: &Arc<Self>, owner: usize) -> crate::faults::Script {
        let stage = Arc::clone(self);
        let mut listed = 0;
        Box::new(move |call: &Call| {
            let mut fault = if stage.is_calm.load(Ordering::Relaxed) { None } else { stage.fault(call.verb) };
            if call.verb == Verb::List {
                listed += 1;
                // Whoever finds a log damaged looks twice, and two doubled listings are one fault too many.
                match fault {
                    Some(Fault::Doubled) if listed < DOUBLED_APART => fault = None,
                    Some(Fault::Doubled) => listed = 0,
                    _ => {}
                }
            }
            let name = fault.as_ref().map_or("", Fault::name);
            stage.note(|| format!("p{owner} {:?} {} {name}", call.verb, call.path));
            if fault.is_some() {
                stage.count(name);
            }
            fault
        })
    }

    fn fault(&self, verb: Verb) -> Option<Fault> {
        let (writes, reads) = self.rates;
        let is_write = matches!(verb, Verb::Create | Verb::Overwrite | Verb::Delete | Verb::Copy);
        if !self.one_in(if is_write { writes } else { reads }) {
            return None;
        }
        Some(match (verb, self.below(24)) {
            (Verb::Create, 0..=3) => Fault::Resent,
            (Verb::Create, 4..=6) => Fault::Taken,
            (Verb::Create | Verb::Overwrite, 7..=9) => Fault::Late,
            (Verb::Create | Verb::Overwrite, 10 | 11) => Fault::NoSpace,
            (Verb::Get, 0..=5) => Fault::Truncated,
            (Verb::List, 0..=5) => Fault::Doubled,
            (_, 12) => Fault::Expired,
            (_, 13..=15) => Fault::Busy,
            (_, 16..=18) => Fault::DoneThen500,
            (_, 19..=21) => Fault::Before,
            _ => Fault::Lost,
        })
    }

    pub(super) fn process(self: &Arc<Self>, id: usize, role: Role, oracle: &Oracle) -> Process {
        let storage: Arc<dyn ObjectStore> = Arc::clone(&self.storage) as Arc<dyn ObjectStore>;
        let store = FaultStore::new(storage, None, self.script(id));
        let gated = GateStore { gate: Arc::clone(&self.gate), owner: id, inner: store.clone() };
        let location = Location::on(Arc::new(gated));
        let skew_millis = self.below(7_200_000) as i64 - 3_600_000;
        let world = World {
            clock: Arc::new(ProcessClock { time: Arc::clone(&self.time), owner: id, skew_millis }),
            ids: Arc::new(Ids::from_seed(self.seed.wrapping_mul(1000) + id as u64)),
        };
        let keeps_index = matches!(role, Role::Writer(_) | Role::Reset(_));
        let homes = self.homes.as_ref().filter(|_| keeps_index);
        let home = homes.map(|homes| homes.take(&mut self.chance.lock().unwrap()));
        let keys = home.as_ref().map(|home| home.path.clone());
        let future = match role.clone() {
            Role::Writer(honesty) => {
                let mut connector = self.connector(id, honesty, location, world, keys);
                async move { connector.run(Until::Stopped).await.map(|_| Ended::Done) }.boxed_local()
            }
            Role::Reset(id_of_reset) => {
                let connector = self.connector(id, Honesty::Sound, location, world, keys);
                reset(connector, id_of_reset).boxed_local()
            }
            Role::Checkpoint => checkpoint(Log::new(location, world)).boxed_local(),
            Role::Maintenance => maintenance(location, self.sink(None), world).boxed_local(),
            Role::Gc => gc(Log::new(location, world)).boxed_local(),
            Role::Reader => read(Log::new(location, world)).boxed_local(),
        };
        let (drifts, began_in_drift, cleaned) = (oracle.drifts, oracle.drift.is_some(), oracle.cleaned());
        let begun = self.time.passed();
        Process { id, role, future, store, drifts, began_in_drift, cleaned, begun, skew_millis, home }
    }

    fn sink(&self, keys: Option<PathBuf>) -> SinkSettings {
        let mut sink = settings();
        sink.on_existing = self.on_existing;
        (sink.layout, sink.key_index) = (self.layout, keys);
        // Each batch of a snapshot fills a file; small ones are joined where they need not be so small.
        if self.layout == Layout::Changelog || self.one_in(3) {
            sink.files.target_file_size = 1;
        }
        sink.properties
            .extend(self.log_retention.map(|interval| ("delta.logRetentionDuration".into(), interval.into())));
        sink
    }

    fn connector(
        self: &Arc<Self>,
        owner: usize,
        honesty: Honesty,
        location: Location,
        world: World,
        keys: Option<PathBuf>,
    ) -> Connector {
        let source =
            FeedSource::new(Arc::clone(&self.feed), Arc::clone(&self.gate), owner, honesty, Arc::clone(&self.chance));
        let commit = CommitBounds { max_interval: Duration::from_secs(2), max_rows: 4, max_bytes: 1 << 20 };
        let settings = ConnectorSettings {
            sink: self.sink(keys),
            commit,
            heartbeat: self.heartbeat,
            poll_interval: Duration::from_secs(1),
            reload_ratio: None,
        };
        Connector::new(settings, Box::new(source), location, world)
    }
}

async fn maintenance(location: Location, mut settings: SinkSettings, world: World) -> Result<Ended> {
    settings.source = "source-1".into();
    let target = Destination::look(location, settings, world).await?.follow("v", &["id".into()])?;
    let mut sink = target.claim().await?;
    let maintained = sink.maintain().await.map(Ended::Maintained);
    sink.close().await;
    maintained
}

async fn gc(log: Log) -> Result<Ended> {
    let garbage = log.garbage().await?;
    let mut did = Maintained::default();
    log.delete_garbage(&garbage, |_| did.garbage += 1).await?;
    Ok(Ended::Maintained(did))
}

async fn reset(mut connector: Connector, id: String) -> Result<Ended> {
    let stamp = ResetStamp { id, who: "an operator".into(), why: "to see".into() };
    let reset = Reset { stamp, expected_generation: None, older: Older::Refused };
    let prepared = connector.prepare_reset(reset).await?;
    connector.reset(prepared).await.map(|_| Ended::Reset)
}

async fn checkpoint(log: Log) -> Result<Ended> {
    let mut facts = log.facts().await?;
    log.checkpoint(&mut facts).await?;
    Ok(Ended::Done)
}

/// Reads as engines do: the newest version, its live files, then each of them without what its vector deletes.
async fn read(log: Log) -> Result<Ended> {
    let version = log.replay(None).await?.version;
    let mut rows = Vec::new();
    for file in log.live_files_at(version).await? {
        let vector = file.vector.clone().unwrap_or_default();
        let stored = match vectors::object(&vector) {
            Some(object) => match bytes_of(&log, &Path::from(object)).await {
                Some(bytes) => Some(bytes),
                None => return Ok(Ended::Unread),
            },
            None => None,
        };
        let Some(bytes) = bytes_of(&log, &file.object()?).await else { return Ok(Ended::Unread) };
        let found = rows_of(bytes).expect("a file that is named is whole");
        let deleted =
            vectors::deleted(&vector, |_| stored).expect("it was read").expect("a vector that is named is whole");
        rows.extend(found.into_iter().zip(0..).filter(|(_, place)| !deleted.contains(*place)).map(|(row, _)| row));
    }
    Ok(Ended::Read(version, rows))
}

async fn bytes_of(log: &Log, path: &Path) -> Option<Bytes> {
    log.store().get(path).await.ok()?.bytes().await.ok()
}
