//! The canonical workload: a table is created, followed, reloaded, followed, maintained, and gets a column. Any process
//! takes it up where the table stands.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::{Layout, ResetStamp};
use cutover::sink::Maintained;
use cutover::{
    Changes, Clock, Error, ErrorKind, Location, Result, SchemaChange, Sink, Snapshot, Standing, StepRange, Target,
    View, World,
};
use futures::TryStreamExt;
use object_store::ObjectStore;

use crate::faults::{FaultStore, Script};
use crate::invariants::{Oracle, Seen, check};
use crate::world::{TestClock, rows, settings, step, view, world};

/// The step at which the workload begins.
pub(crate) const CREATED: u64 = 10;
pub(crate) const RELOADED: u64 = CHANGELOG.reloaded;
pub(crate) const WIDENED: u64 = CHANGELOG.widened;
pub(crate) const END: u64 = CHANGELOG.end;

/// The steps at which the workload is reloaded, is maintained and gets a column, and ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Course {
    reloaded: u64,
    widened: u64,
    pub(crate) end: u64,
}

const CHANGELOG: Course = Course { reloaded: 22, widened: 28, end: 30 };
/// Where the table is the view, steps enough follow the reload that their files are joined.
pub(crate) const CURRENT: Course = Course { reloaded: 14, widened: 37, end: 40 };

const RESET: &str = "the-reset";
const PAUSE: Duration = Duration::from_secs(1);
/// What fails so often fails for ever.
const MOST_TRIES: u32 = 60;
/// Longer than the log keeps entries, and the table removed files.
const RETENTION: Duration = Duration::from_secs(60 * 24 * 3600);

impl Course {
    /// What the workload feeds and asks for.
    pub(crate) fn truth(self) -> Truth {
        Arc::new(Mutex::new(self.oracle()))
    }

    fn oracle(self) -> Oracle {
        let mut oracle = Oracle::default();
        for at in [CREATED, self.reloaded] {
            oracle.snapshot(at, &snapshot_rows(at));
        }
        let changes = (CREATED..self.end).map(|at| changes_after(at, self));
        changes.for_each(|changes| changes.batches().iter().for_each(|batch| oracle.changes(batch)));
        oracle.reset(RESET);
        oracle
    }
}

/// The view as it is when the changes after `at` come.
fn view_after(at: u64, course: Course) -> View {
    let mut fields: Vec<Field> = view().schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    if at >= course.widened {
        fields.push(Field::new("more", DataType::Utf8, true));
    }
    View::new("v", &Schema::new(fields), vec!["id".into()]).unwrap()
}

/// One row is inserted, one updated, one deleted.
fn changes_after(at: u64, course: Course) -> Changes {
    let (to, view) = (at + 1, view_after(at, course));
    // The row that goes came with the step before, but for the first one after a snapshot.
    let ids = vec![to as i64 + 1000, to as i64, to as i64 + 999];
    let text = |name: &str| StringArray::from(vec![Some(format!("{name} at {to}")), Some(format!("{name}'s")), None]);
    let column = |field: &Field| -> ArrayRef {
        match field.name().as_str() {
            "__step" => Arc::new(Int64Array::from(vec![to as i64; 3])),
            "__op" => Arc::new(StringArray::from(vec!["i", "u", "d"])),
            "id" => Arc::new(Int64Array::from(ids.clone())),
            name => Arc::new(text(name)),
        }
    };
    let columns = view.change_schema().fields().iter().map(|f| column(f)).collect();
    let batch = RecordBatch::try_new(view.change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(at), step(to)).unwrap(), vec![batch]).unwrap()
}

/// Several files' worth of rows.
fn snapshot_rows(at: u64) -> Vec<RecordBatch> {
    (0..3).map(|file| rows(at, &[file * 10 + 1, file * 10 + 2, file * 10 + 3])).collect()
}

fn snapshot(at: u64) -> Snapshot {
    Snapshot::from_batches(step(at), snapshot_rows(at))
}

/// What was acknowledged by any process; the same for all of them.
pub(crate) type Truth = Arc<Mutex<Oracle>>;

pub(crate) fn truth() -> Truth {
    CHANGELOG.truth()
}

/// Checks the storage against what was fed and acknowledged so far.
pub(crate) async fn checked(store: &Arc<dyn ObjectStore>, truth: &Truth) -> std::result::Result<Seen, String> {
    let oracle = truth.lock().unwrap().clone();
    check(store, &oracle).await
}

/// A process that delivers the workload, with a store, ids and time of its own.
pub(crate) struct Process {
    pub(crate) faults: FaultStore,
    clock: Arc<TestClock>,
    /// How each round of maintenance ended.
    pub(crate) maintained: Mutex<Vec<Result<Maintained>>>,
    aged: Mutex<Duration>,
    storage: Arc<dyn ObjectStore>,
    store: Arc<dyn ObjectStore>,
    world: World,
    layout: Layout,
    course: Course,
    /// Where a table that is the view has the index of its keys; each process may find what those before it left.
    keys: Option<PathBuf>,
}

/// A claimed table, and how far its process is.
struct Writer {
    sink: Sink,
    at: u64,
    is_reset: bool,
    is_maintained: bool,
}

impl Process {
    pub(crate) fn new(storage: &Arc<dyn ObjectStore>, seed: u64, script: Script) -> Self {
        let (world, clock) = world(seed);
        let faults = FaultStore::new(Arc::clone(storage), Some(Arc::clone(&clock)), script);
        let (store, storage) = (Arc::new(faults.clone()), Arc::clone(storage));
        let layout = Layout::Changelog;
        Self {
            faults,
            clock,
            maintained: Mutex::default(),
            aged: Mutex::default(),
            storage,
            store,
            world,
            layout,
            course: CHANGELOG,
            keys: None,
        }
    }

    /// The same for a table that is the view.
    pub(crate) fn of_current(self, keys: Option<PathBuf>) -> Self {
        Self { layout: Layout::Current, course: CURRENT, keys, ..self }
    }

    /// A process to which nothing happens.
    pub(crate) fn untroubled(storage: &Arc<dyn ObjectStore>, seed: u64) -> Self {
        Self::new(storage, seed, Box::new(|_| None))
    }

    /// Delivers up to step `until`. What fails and may succeed later is tried again in this process, for as long as
    /// `patience` has it.
    pub(crate) async fn deliver(&self, truth: &Truth, until: u64, patience: Duration) -> Result<()> {
        let begun = self.passed();
        let mut writer = None;
        let mut tries = 0;
        loop {
            match self.advance(&mut writer, truth, until).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) if e.kind().is_retryable() && self.passed() - begun < patience && tries < MOST_TRIES => {
                    tries += 1;
                    self.world.clock.sleep(PAUSE).await;
                }
                Err(e) => return Err(e),
            }
        }
    }

    async fn claim(&self, truth: &Truth) -> Result<Writer> {
        let mut settings = settings();
        settings.schema_change = SchemaChange::AddColumns;
        (settings.layout, settings.key_index) = (self.layout, self.keys.clone());
        // Each batch of a snapshot gets a file, where small ones are not joined.
        if self.layout == Layout::Changelog {
            settings.files.target_file_size = 1;
        }
        let location = Location::on(Arc::clone(&self.store));
        let mut target = Target::open(location, view(), settings, self.world.clone()).await?;
        let sink = match target.standing() {
            Standing::Ours(ours) => {
                let at = ours.last_step.get();
                target.deliver(view_after(at, self.course))?;
                target.claim().await?
            }
            Standing::Absent | Standing::Foreign => match target.load(snapshot(CREATED)).await {
                // Another process may have loaded it first: then it is one to claim.
                Err(e) if e.kind() == ErrorKind::Refused => {
                    return Err(Error::new(ErrorKind::Unavailable, "the load was refused").with_source(e));
                }
                loaded => loaded?,
            },
        };
        truth.lock().unwrap().acknowledge(CREATED);
        let at = sink.last_step()?.get();
        Ok(Writer { sink, at, is_reset: false, is_maintained: false })
    }

    /// Lets time pass until everything that may be cleaned up is old enough for it, by the storage's own clock.
    async fn grow_old(&self) {
        // Nothing is under way for as long as that.
        self.faults.land_late_puts().await;
        let objects: Vec<_> = self.storage.list(None).try_collect().await.unwrap();
        let newest = objects.iter().map(|object| object.last_modified.timestamp_millis()).max().unwrap();
        let wanted = newest - self.clock.unix_millis() + RETENTION.as_millis() as i64;
        let aging = Duration::from_millis(wanted.max(0) as u64);
        self.clock.advance(aging);
        *self.aged.lock().unwrap() += aging;
    }

    /// The time that passed for the process, but for what it took to grow old.
    pub(crate) fn passed(&self) -> Duration {
        self.clock.boot() - *self.aged.lock().unwrap()
    }

    /// Does the next thing; whether there is nothing left to do.
    async fn advance(&self, writer: &mut Option<Writer>, truth: &Truth, until: u64) -> Result<bool> {
        let writer = match writer {
            Some(writer) => writer,
            none => none.insert(self.claim(truth).await?),
        };
        if writer.at == self.course.reloaded && !writer.is_reset {
            let reset = ResetStamp { id: RESET.into(), who: "a test".into(), why: "to see".into() };
            writer.sink.reload(snapshot(writer.at), reset, Older::Refused).await?;
            // What it begins beside the commits ends before the next, so that calls come in one order.
            writer.sink.rest().await;
            writer.is_reset = true;
        } else if writer.at >= until {
            return Ok(true);
        } else if writer.at == self.course.widened && !writer.is_maintained {
            writer.is_maintained = true;
            self.grow_old().await;
            // What fails here fails no step.
            let ended = writer.sink.maintain().await;
            self.maintained.lock().unwrap().push(ended);
        } else {
            writer.sink.deliver(view_after(writer.at, self.course))?;
            writer.sink.append(changes_after(writer.at, self.course)).await?;
            if self.layout == Layout::Current {
                // What is joined is joined before the next step, for the same reason.
                writer.sink.rest().await;
            }
            writer.at += 1;
            truth.lock().unwrap().acknowledge(writer.at);
        }
        Ok(false)
    }
}
