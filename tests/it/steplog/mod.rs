//! The step log: what it answers, what it holds, and what is left of it after everything that a disk may do.

mod answers;
mod damage;
mod faults;
mod follow;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use cutover::disk::Disk;
use cutover::steplog::{Answer, At, Entry, Limits, Next, Recovery, StepLog};
use cutover::{Error, Ids, Step, View};
use futures::FutureExt;
use futures::future::BoxFuture;
use tempfile::TempDir;

use crate::platter::{Does, Model, Trouble};
use crate::program::{PATIENCE, wait_until};

/// Small enough that a handful of steps needs several segments.
const SMALL: Limits = Limits { max_bytes: 256 << 10, segment_bytes: 2 << 10, queue_bytes: 1 << 20 };

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

/// What step `n` changes; the same step of another `variant` changes something else.
fn rows(n: u64, variant: u64) -> Vec<(&'static str, i64, String)> {
    let of =
        |i: u64| (["i", "u", "d"][((n + i) % 3) as usize], (n * 10 + i) as i64, format!("row {n}.{i} of {variant}"));
    (0..n % 4).map(of).collect()
}

fn batches(n: u64, variant: u64) -> Vec<RecordBatch> {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)];
    let view = View::new("rows", &Schema::new(fields), vec!["id".into()]).unwrap();
    let rows = rows(n, variant);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_value(0, rows.len())),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(op, ..)| *op))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, id, _)| *id))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|(.., text)| text))),
    ];
    vec![RecordBatch::try_new(view.change_schema(), columns).unwrap()]
}

fn entry(at: At, n: u64, variant: u64) -> Entry {
    Entry::new(at, &batches(n, variant)).unwrap()
}

/// Step `n` after the one before it.
fn dense(n: u64) -> Entry {
    entry(At::Step { step: step(n), after: step(n - 1) }, n, 0)
}

fn on(disk: &Arc<dyn Disk>, directory: &Path, limits: Limits) -> Result<(StepLog, Recovery), Error> {
    StepLog::open(directory, Step::ZERO, limits, Arc::clone(disk), &Ids::from_system())
}

/// A disk without trouble that never waits for a platter.
fn quiet(root: &Path) -> Arc<dyn Disk> {
    Arc::new(Model::new(root, Arc::new(|| None), Box::new(|_, _| None)))
}

/// A disk whose next sync of a file, once it is armed, waits to be let through; syncs behind it go as `then` has it.
fn gated(root: &Path, then: Option<Trouble>) -> (Arc<dyn Disk>, Arc<AtomicBool>, mpsc::Sender<()>, Arc<AtomicU64>) {
    let (open, gate) = mpsc::channel();
    let (armed, syncs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (is_armed, counted) = (Arc::clone(&armed), Arc::clone(&syncs));
    let script = move |_: usize, does: Does| {
        if does != Does::SyncFile || !is_armed.load(Ordering::SeqCst) {
            return None;
        }
        match counted.fetch_add(1, Ordering::SeqCst) {
            0 => {
                gate.recv().unwrap();
                None
            }
            1 => then,
            _ => None,
        }
    };
    (Arc::new(Model::new(root, Arc::new(|| None), Box::new(script))), armed, open, syncs)
}

/// Begins to append an entry, and waits until the writer waits for its sync.
fn in_hand<'a>(log: &'a StepLog, entry: Entry, syncs: &AtomicU64) -> BoxFuture<'a, Result<Answer, Error>> {
    let mut append = Box::pin(log.append(entry));
    assert!(append.as_mut().now_or_never().is_none());
    assert!(wait_until(PATIENCE, || syncs.load(Ordering::SeqCst) == 1));
    append
}

/// A log's directory, and the disk that it is on.
struct Place {
    _home: TempDir,
    root: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Place {
    fn new() -> Self {
        // Nothing here is about a real disk, so none is waited for where there is memory to be had.
        let memory = Path::new("/dev/shm");
        let home = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        let root = home.path().canonicalize().unwrap();
        let disk = quiet(&root);
        Self { _home: home, root, disk }
    }

    /// With these files in the log's directory.
    fn with(files: &BTreeMap<String, Vec<u8>>) -> Self {
        let place = Self::new();
        for (path, bytes) in files {
            let path = place.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        place
    }

    fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    fn open(&self) -> Result<(StepLog, Recovery), Error> {
        on(&self.disk, &self.log(), SMALL)
    }

    /// What the segments hold, by their paths below the place.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let names = fs::read_dir(self.log()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let segments = names.filter(|name| name.ends_with(".steps"));
        segments.map(|name| (format!("log/{name}"), fs::read(self.log().join(name)).unwrap())).collect()
    }
}

/// The changes of a step as its reader gets them.
type Read = (u64, Vec<(String, i64, String)>);

/// Everything after `after` that is there, or the earliest step, which lies beyond.
fn read(log: &StepLog, after: u64) -> Result<Result<Vec<Read>, u64>, Error> {
    let (mut reader, mut found, mut last) = (log.read(step(after)), Vec::new(), after);
    loop {
        match reader.read_next()? {
            Next::End => return Ok(Ok(found)),
            Next::Gone { earliest } => return Ok(Err(earliest.get())),
            Next::Step(stored) => {
                assert_eq!(stored.after.get(), last);
                last = stored.step.get();
                found.push((last, changes(&stored)));
            }
        }
    }
}

fn changes(stored: &cutover::steplog::Stored) -> Vec<(String, i64, String)> {
    let changes = stored.changes().unwrap();
    assert_eq!((changes.range().from(), changes.range().to()), (stored.after, stored.step));
    assert_eq!(changes.rows(), stored.rows);
    let mut found = Vec::new();
    for batch in changes.batches() {
        let (ops, ids) = (batch.column(1).as_string::<i32>(), batch.column(2).as_primitive::<Int64Type>());
        let texts = batch.column(3).as_string::<i32>();
        found.extend((0..batch.num_rows()).map(|i| (ops.value(i).into(), ids.value(i), texts.value(i).into())));
    }
    found
}

fn expected(n: u64, variant: u64) -> Read {
    (n, rows(n, variant).into_iter().map(|(op, id, text)| (op.to_string(), id, text)).collect())
}

/// What is wrong with a log that must hold dense steps, all after `needed` up to `answered` at least.
fn fault(log: &StepLog, needed: u64, answered: u64) -> Option<String> {
    let stand = log.stand();
    let (earliest, last) = (stand.earliest.get(), stand.last.get());
    if earliest > needed || last < answered {
        return Some(format!("({earliest}, {last}] are there, and ({needed}, {answered}] are needed"));
    }
    let wanted: Vec<Read> = (earliest + 1..=last).map(|n| expected(n, 0)).collect();
    match read(log, earliest) {
        Ok(Ok(found)) if found == wanted => None,
        other => Some(format!("steps ({earliest}, {last}] are read as {other:?}")),
    }
}

async fn store(log: &StepLog, from: u64, to: u64) {
    for n in from..=to {
        assert_eq!(log.append(dense(n)).await.unwrap(), Answer::Stored(step(n)));
    }
}
