//! W1: reloads of rows like TPC-H's lineitem, from memory, over an existing table.
//!
//! ```text
//! cargo bench --bench reload -- [ROWS [ROUNDS [zstd|snappy|…]]]   ours and bare ArrowWriters, in turn
//! cargo bench --bench reload -- memory CODEC ROWS…                ours, rows made up while they are written
//! cargo bench --bench reload -- export ROWS FOLDER                the rows as FOLDER/lineitem.arrow
//! cargo bench --bench reload -- serve FOLDER CODEC                one reload of that file for each line of input
//! ```
//!
//! Two encoder threads, nothing is synced (durability `none`), the first round warms up. `benches/reload_peers.py` uses
//! the last two forms.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock and waits")]

mod lineitem;

use std::fs::File;
use std::io::BufRead;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::digest::Digest;
use cutover::files::Compression;
use cutover::{Access, Applied, Durability, Location, Sink, SinkSettings, Snapshot, Step, Target, View, World};
use futures::StreamExt;
use lineitem::Lineitem;
use parquet::arrow::ArrowWriter;
use parquet::basic::ZstdLevel;
use parquet::file::properties::WriterProperties;

// As in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const THREADS: usize = 2;
const BATCH_ROWS: usize = 65_536;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Clone, Copy)]
struct Codec {
    ours: Compression,
    theirs: parquet::basic::Compression,
}

impl Codec {
    fn of(word: &str) -> Outcome<Self> {
        let ours: Compression = word.parse()?;
        let theirs = match ours {
            Compression::Zstd(level) => parquet::basic::Compression::ZSTD(ZstdLevel::try_new(level)?),
            Compression::Snappy => parquet::basic::Compression::SNAPPY,
            Compression::Lz4 => parquet::basic::Compression::LZ4_RAW,
            Compression::None => parquet::basic::Compression::UNCOMPRESSED,
        };
        Ok(Self { ours, theirs })
    }
}

/// Wall and processor time of a run, both in seconds, and the bytes that it wrote.
#[derive(Clone, Copy)]
struct Run {
    wall: f64,
    cpu: f64,
    bytes: u64,
}

/// Processor seconds of this process so far, user and system.
fn cpu_seconds() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

/// A table of ours that is reloaded again and again.
struct Table {
    sink: Sink,
    step: u64,
}

impl Table {
    async fn new(folder: &Path, codec: Codec) -> Outcome<Self> {
        let location = Location::open(&folder.to_string_lossy(), Access::Write(Durability::None))?;
        let view = View::new("lineitem", &lineitem::schema(), vec![])?;
        let mut settings = SinkSettings::new("p/lineitem/c", "bench");
        settings.files.threads = THREADS;
        settings.files.compression = codec.ours;
        let target = Target::open(location, view, settings, World::system()).await?;
        Ok(Self { sink: target.load(Snapshot::from_batches(Step::ZERO, vec![])).await?, step: 0 })
    }

    async fn reload(&mut self, batches: impl Iterator<Item = RecordBatch> + Send + 'static) -> Outcome<Run> {
        self.step += 1;
        let snapshot = Snapshot {
            step: Step::new(self.step)?,
            rows: futures::stream::iter(batches.map(Ok)).boxed(),
            known_rows: None,
            position: String::new(),
        };
        let reset = ResetStamp { id: self.step.to_string(), who: "bench".into(), why: "bench".into() };
        let (begun, cpu) = (Instant::now(), cpu_seconds()?);
        let applied = self.sink.reload(snapshot, reset, Older::Refused).await?;
        let (wall, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
        let Applied::Committed { bytes, .. } = applied else { return Err("the reload was applied before".into()) };
        Ok(Run { wall, cpu, bytes })
    }
}

/// Runs `work` on each batch, on as many threads as the encoders of a reload; its results by thread.
fn spread<T: Send, S>(
    batches: &[RecordBatch],
    begin: impl Fn(usize) -> Outcome<S> + Sync,
    work: impl Fn(&mut S, &RecordBatch) -> Outcome<()> + Sync,
    end: impl Fn(S) -> Outcome<T> + Sync,
) -> Outcome<(Run, Vec<T>)> {
    let next = AtomicUsize::new(0);
    let (begun, cpu) = (Instant::now(), cpu_seconds()?);
    let thread = |number: usize| {
        let run = || -> Outcome<T> {
            let mut state = begin(number)?;
            while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(&mut state, batch)?;
            }
            end(state)
        };
        run().map_err(|e| e.to_string())
    };
    let ends: Result<Vec<T>, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || thread(number))).collect();
        threads.into_iter().map(|t| t.join().map_err(|_| "a thread panicked".to_string())?).collect()
    });
    Ok((Run { wall: begun.elapsed().as_secs_f64(), cpu: cpu_seconds()? - cpu, bytes: 0 }, ends?))
}

/// What a program without Delta does: one `ArrowWriter` with default properties for each thread.
fn bare(batches: &[RecordBatch], folder: &Path, codec: Codec) -> Outcome<Run> {
    let path = |number| folder.join(format!("bare-{number}.parquet"));
    let begin = |number| {
        let properties = WriterProperties::builder().set_compression(codec.theirs).build();
        Ok(ArrowWriter::try_new(File::create(path(number))?, lineitem::schema(), Some(properties))?)
    };
    let work = |writer: &mut ArrowWriter<File>, batch: &RecordBatch| Ok(writer.write(batch)?);
    let end = |mut writer: ArrowWriter<File>| {
        writer.finish()?;
        Ok(writer.bytes_written() as u64)
    };
    let (run, sizes) = spread(batches, begin, work, end)?;
    (0..THREADS).try_for_each(|number| std::fs::remove_file(path(number)))?;
    Ok(Run { bytes: sizes.iter().sum(), ..run })
}

/// The digest alone, thread for thread: what a reload would be faster by without it.
fn digest_alone(batches: &[RecordBatch]) -> Outcome<Run> {
    let work = |sum: &mut Digest, batch: &RecordBatch| {
        *sum = sum.plus(Digest::of(batch)?);
        Ok(())
    };
    Ok(spread(batches, |_| Ok(Digest::EMPTY), work, Ok)?.0)
}

/// Removes what earlier reloads left: nobody reads it.
fn sweep(folder: &Path) -> Outcome<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

async fn side_by_side(folder: &Path, rows: u64, rounds: usize, word: &str) -> Outcome<()> {
    let codec = Codec::of(word)?;
    let batches: Vec<RecordBatch> = Lineitem::new(rows, BATCH_ROWS).collect();
    let mut table = Table::new(&folder.join("table"), codec).await?;
    let mut runs: [Vec<Run>; 3] = Default::default();
    for round in 0..=rounds {
        let ours = table.reload(batches.clone().into_iter()).await?;
        sweep(&folder.join("table"))?;
        let round_runs = [ours, bare(&batches, folder, codec)?, digest_alone(&batches)?];
        if round > 0 {
            runs.iter_mut().zip(round_runs).for_each(|(all, run)| all.push(run));
        }
    }
    let [ours, bare, digest] = &runs;
    println!(
        "{rows} rows, {word}, {THREADS} threads, not synced, {rounds} rounds in turn: medians (least to greatest)"
    );
    for (name, runs) in [("reload", ours), ("bare ArrowWriters", bare), ("digest alone", digest)] {
        let all = |of: fn(&Run) -> f64| {
            let ends = runs.iter().map(of).fold((f64::MAX, 0f64), |(a, b), v| (a.min(v), b.max(v)));
            format!("{:.2} s ({:.2} to {:.2})", median(runs.iter().map(of)), ends.0, ends.1)
        };
        let bytes = runs.first().map_or(0, |run| run.bytes);
        println!("{name:<18} wall {}, processor {}, {bytes} bytes", all(|r| r.wall), all(|r| r.cpu));
    }
    let ratio =
        |of: fn(&Run, &Run, &Run) -> f64| median(ours.iter().zip(bare).zip(digest).map(|((o, b), d)| of(o, b, d)));
    println!(
        "speed of a bare ArrowWriter: {:.2} by wall, {:.2} by processor; without digest {:.2} and {:.2}",
        ratio(|ours, bare, _| bare.wall / ours.wall),
        ratio(|ours, bare, _| bare.cpu / ours.cpu),
        ratio(|ours, bare, digest| bare.wall / (ours.wall - digest.wall)),
        ratio(|ours, bare, digest| bare.cpu / (ours.cpu - digest.cpu)),
    );
    println!("digest: {:.1} % of the reload's processor time", 100.0 * ratio(|ours, _, digest| digest.cpu / ours.cpu));
    println!("bytes: {:.2} of a bare ArrowWriter's", ratio(|ours, bare, _| ours.bytes as f64 / bare.bytes as f64));
    Ok(())
}

/// Anonymous memory of this process in bytes.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() << 10
}

/// Rows are made up one batch at a time, so what is held besides the encoders is what is on its way to them.
async fn memory(folder: &Path, rows: u64, word: &str) -> Outcome<()> {
    let mut table = Table::new(&folder.join(format!("memory-{rows}")), Codec::of(word)?).await?;
    let batches = Lineitem::new(rows, BATCH_ROWS);
    let (stop, peak, before) = (AtomicBool::new(false), AtomicU64::new(0), anonymous());
    let run = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let run = tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(table.reload(batches)));
        stop.store(true, Ordering::Relaxed);
        run
    })?;
    sweep(&folder.join(format!("memory-{rows}")))?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let above = mib(peak.load(Ordering::Relaxed).saturating_sub(before));
    // On its way is one batch that is made up, and for each thread one that waits and one that is encoded.
    let batch = Lineitem::new(BATCH_ROWS as u64, BATCH_ROWS).next().map_or(0, |b| b.get_array_memory_size() as u64);
    let input = mib(batch * (1 + 2 * THREADS as u64));
    println!(
        "{rows} rows, {word}: peak {above:.1} MiB above the start, of which batches {input:.1}; {:.1} MiB a thread; {:.2} s",
        (above - input) / THREADS as f64,
        run.wall
    );
    Ok(())
}

fn export(folder: &Path, rows: u64) -> Outcome<()> {
    let mut writer = FileWriter::try_new(File::create(folder.join("lineitem.arrow"))?, &lineitem::schema())?;
    for batch in Lineitem::new(rows, BATCH_ROWS) {
        writer.write(&batch)?;
    }
    Ok(writer.finish()?)
}

/// For each line of input one reload of FOLDER/ours; answers with its wall seconds, processor seconds and bytes.
async fn serve(folder: &Path, word: &str) -> Outcome<()> {
    let reader = FileReader::try_new(File::open(folder.join("lineitem.arrow"))?, None)?;
    let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>()?;
    let mut table = Table::new(&folder.join("ours"), Codec::of(word)?).await?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line?;
        sweep(&folder.join("ours"))?;
        let run = table.reload(batches.clone().into_iter()).await?;
        println!("{} {} {}", run.wall, run.cpu, run.bytes);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    match arguments.as_slice() {
        ["memory", codec, all @ ..] => {
            for rows in all {
                memory(folder.path(), rows.parse()?, codec).await?;
            }
            Ok(())
        }
        ["export", rows, folder] => export(Path::new(folder), rows.parse()?),
        ["serve", folder, codec] => serve(Path::new(folder), codec).await,
        [] => side_by_side(folder.path(), 6_000_000, 5, "zstd").await,
        [rows] => side_by_side(folder.path(), rows.parse()?, 5, "zstd").await,
        [rows, rounds] => side_by_side(folder.path(), rows.parse()?, rounds.parse()?, "zstd").await,
        [rows, rounds, codec, ..] => side_by_side(folder.path(), rows.parse()?, rounds.parse()?, codec).await,
    }
}
