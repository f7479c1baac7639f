//! A table that lives long: appends with reloads, restarts, log clean-up and gc. `cargo bench --bench soak [-- MINUTES]`
//!
//! Prints, for each tenth of the run, versions, medians of an append and of an opening, memory, open files, and what the
//! table takes on disk. Ends with an error when the last tenth has grown over the second by more than the factors below,
//! or when `verify` finds the table other than healthy. Retentions are of seconds, so that all of it happens often.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{
    Access, Changes, Durability, Location, Sink, SinkSettings, Snapshot, Standing, Step, StepRange, Target, View, World,
};

// As in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const MOST_VERSIONS: u64 = 100_000;
const ROWS: i64 = 20;
/// A reload each so many appends, a restart each so many.
const RELOAD_EVERY: u64 = 2_000;
const RESTART_EVERY: u64 = 300;
/// The sink's own cadence looks for garbage each six hours; a soak asks for it.
const MAINTAIN_EVERY: u64 = 700;
const RETENTION: &str = "interval 10 seconds";
/// What the last tenth may have of the second: allocators keep some of what they had, machines are noisy.
const MEMORY_GROWTH: f64 = 1.25;
const TIME_GROWTH: f64 = 2.0;
/// Sockets and files of the runtime that come and go.
const SPARE_HANDLES: u64 = 8;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What a tenth of the run was like.
#[derive(Default)]
struct Tenth {
    versions: u64,
    appends: Vec<Duration>,
    opens: Vec<Duration>,
    memory: u64,
    handles: u64,
    disk: u64,
    files: u64,
}

struct Soak<'a> {
    folder: &'a Path,
    view: View,
    step: i64,
    seed: u64,
    /// Versions since the beginning.
    made: u64,
}

impl Soak<'_> {
    fn location(&self) -> Outcome<Location> {
        Ok(Location::open(&self.folder.to_string_lossy(), Access::Write(Durability::None))?)
    }

    async fn open(&self) -> Outcome<Sink> {
        let mut settings = SinkSettings::new("p/v/c", "soak");
        for property in ["delta.logRetentionDuration", "delta.deletedFileRetentionDuration"] {
            settings.properties.insert(property.into(), RETENTION.into());
        }
        let target = Target::open(self.location()?, self.view.clone(), settings, World::system()).await?;
        Ok(match target.standing() {
            Standing::Ours(_) => target.claim().await?,
            Standing::Absent | Standing::Foreign => target.load(Snapshot::from_batches(Step::ZERO, vec![])).await?,
        })
    }

    fn columns(&self) -> Vec<ArrayRef> {
        let ids: Vec<i64> = (0..ROWS).map(|i| self.step * ROWS + i).collect();
        let names = StringArray::from_iter_values(ids.iter().map(|id| format!("customer {id}")));
        vec![Arc::new(Int64Array::from(ids)), Arc::new(names)]
    }

    async fn append(&mut self, sink: &mut Sink) -> Outcome<Duration> {
        self.step += 1;
        let mut all: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![self.step; ROWS as usize])),
            Arc::new(StringArray::from(vec!["i"; ROWS as usize])),
        ];
        all.extend(self.columns());
        let batch = RecordBatch::try_new(self.view.change_schema(), all)?;
        let range = StepRange::new(Step::from_i64(self.step - 1)?, Step::from_i64(self.step)?)?;
        let changes = Changes::new(range, vec![batch])?;
        let begun = Instant::now();
        sink.append(changes).await?;
        Ok(begun.elapsed())
    }

    async fn reload(&mut self, sink: &mut Sink) -> Outcome<()> {
        self.step += 1;
        self.seed += 1;
        let batch = RecordBatch::try_new(Arc::clone(self.view.schema()), self.columns())?;
        let snapshot = Snapshot::from_batches(Step::from_i64(self.step)?, vec![batch]);
        let reset = ResetStamp { id: format!("r{}", self.seed), who: "soak".into(), why: "to see".into() };
        sink.reload(snapshot, reset, Older::Refused).await?;
        Ok(())
    }

    /// Goes on until `end`; what it was like.
    async fn tenth(&mut self, end: Instant, most: u64) -> Outcome<Tenth> {
        let mut tenth = Tenth::default();
        let mut sink = None;
        while Instant::now() < end && tenth.versions < most {
            let mut held = match sink.take() {
                Some(held) => held,
                None => {
                    let begun = Instant::now();
                    let held = self.open().await?;
                    tenth.opens.push(begun.elapsed());
                    held
                }
            };
            tenth.versions += 1;
            self.made += 1;
            if self.made.is_multiple_of(RELOAD_EVERY) {
                self.reload(&mut held).await?;
            } else {
                tenth.appends.push(self.append(&mut held).await?);
            }
            if self.made.is_multiple_of(MAINTAIN_EVERY) {
                held.maintain().await?;
            }
            if self.made.is_multiple_of(RESTART_EVERY) {
                // Every second one is dropped in the middle of what it does.
                if self.made.is_multiple_of(2 * RESTART_EVERY) {
                    held.close().await;
                }
            } else {
                sink = Some(held);
            }
        }
        if let Some(sink) = sink {
            sink.close().await;
        }
        tenth.memory = resident_kib()?;
        tenth.handles = fs::read_dir("/proc/self/fd")?.count() as u64;
        (tenth.files, tenth.disk) = usage(self.folder)?;
        Ok(tenth)
    }
}

fn resident_kib() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

fn usage(folder: &Path) -> Outcome<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let (inner_files, inner_bytes) = usage(&entry.path())?;
            (files, bytes) = (files + inner_files, bytes + inner_bytes);
        } else {
            (files, bytes) = (files + 1, bytes + entry.metadata()?.len());
        }
    }
    Ok((files, bytes))
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e3)
}

fn grown(what: &str, second: f64, last: f64, bound: f64) -> Option<String> {
    (last > bound).then(|| format!("{what} grew from {second:.2} in the second tenth to {last:.2} in the last"))
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let minutes: u64 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(1);
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let folder = base.path().join("table");
    let fields = [("id", DataType::Int64), ("name", DataType::Utf8)].map(|(n, t)| Field::new(n, t, true));
    let view = View::new("v", &Schema::new(fields.to_vec()), vec!["id".into()])?;
    let mut soak = Soak { folder: &folder, view, step: 0, seed: 0, made: 0 };
    let (begun, whole) = (Instant::now(), Duration::from_secs(minutes * 60));
    println!("tenth versions append_ms open_ms rss_MiB handles files disk_MiB");
    let mut tenths = Vec::new();
    for n in 1..=10 {
        let tenth = soak.tenth(begun + whole * n / 10, MOST_VERSIONS / 10).await?;
        println!(
            "{n:5} {:8} {:9.2} {:7.1} {:7.1} {:7} {:5} {:8.1}",
            tenth.versions,
            median(&tenth.appends),
            median(&tenth.opens),
            tenth.memory as f64 / 1024.0,
            tenth.handles,
            tenth.files,
            tenth.disk as f64 / 1048576.0
        );
        tenths.push(tenth);
    }
    let versions: u64 = tenths.iter().map(|t| t.versions).sum();
    println!("{versions} versions in {:.0} s", begun.elapsed().as_secs_f64());
    let report = verify(&Log::new(soak.location()?, World::system()), None).await?;
    let (Some(second), Some(last)) = (tenths.get(1), tenths.get(9)) else { return Err("too short".into()) };
    let (memory, handles) = (second.memory as f64, second.handles as f64);
    let (append, open) = (median(&second.appends), median(&second.opens));
    let mut problems: Vec<String> = [
        grown("memory in KiB", memory, last.memory as f64, memory * MEMORY_GROWTH),
        grown("open files", handles, last.handles as f64, handles + SPARE_HANDLES as f64),
        grown("an append in ms", append, median(&last.appends), append * TIME_GROWTH),
        grown("an opening in ms", open, median(&last.opens), open * TIME_GROWTH),
    ]
    .into_iter()
    .flatten()
    .collect();
    if report.verdict != Verdict::Healthy {
        problems.push(format!("{:?}: {:?}", report.verdict, report.findings));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ").into()) }
}
