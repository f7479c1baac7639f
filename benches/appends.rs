//! W2: appends of 1,000 rows, checkpoints included. `cargo bench --bench appends [-- VERSIONS]`
//!
//! Prints medians of the first hundred versions and of the last five hundred, unsynced and durable, what checkpoints beside
//! the appends take of their time and of the process's CPU time, four syncs of the same disk beside them, and deltalake's own append on a table of 2,000 files, in turn with ours on one like it.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::{
    Access, Changes, Durability, Location, Sink, SinkSettings, Snapshot, Step, StepRange, Target, View, World,
};
use deltalake::DeltaTable;
use deltalake::kernel::StructType;
use deltalake::kernel::engine::arrow_conversion::TryFromArrow;
use deltalake::writer::{DeltaWriter, RecordBatchWriter};

// As in the program.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROWS: i64 = 1_000;
const PEER_FILES: u64 = 2_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn view() -> Outcome<View> {
    let fields = [("id", DataType::Int64), ("price", DataType::Float64), ("name", DataType::Utf8)];
    let schema = Schema::new(fields.map(|(n, t)| Field::new(n, t, true)).to_vec());
    Ok(View::new("v", &schema, vec!["id".into()])?)
}

fn columns(step: i64) -> Vec<ArrayRef> {
    let ids: Vec<i64> = (0..ROWS).map(|i| step * ROWS + i).collect();
    let names = StringArray::from_iter_values(ids.iter().map(|id| format!("customer {id}")));
    let prices = Float64Array::from_iter_values(ids.iter().map(|id| *id as f64 / 3.0));
    vec![Arc::new(Int64Array::from(ids)), Arc::new(prices), Arc::new(names)]
}

/// Before each step its rows exist already: encoding them is part of an append, making them up is not.
fn changes(view: &View, step: i64) -> Outcome<Changes> {
    let mut all: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![step; ROWS as usize])),
        Arc::new(StringArray::from(vec!["i"; ROWS as usize])),
    ];
    all.extend(columns(step));
    let batch = RecordBatch::try_new(view.change_schema(), all)?;
    let range = StepRange::new(Step::from_i64(step - 1)?, Step::from_i64(step)?)?;
    Ok(Changes::new(range, vec![batch])?)
}

async fn sink(path: &Path, durability: Durability) -> Outcome<Sink> {
    let location = Location::open(&path.to_string_lossy(), Access::Write(durability))?;
    let target = Target::open(location, view()?, SinkSettings::new("p/v/c", "bench"), World::system()).await?;
    Ok(target.load(Snapshot::from_batches(Step::ZERO, vec![])).await?)
}

async fn append(sink: &mut Sink, view: &View, step: i64) -> Outcome<Duration> {
    let changes = changes(view, step)?;
    let begun = Instant::now();
    sink.append(changes).await?;
    Ok(begun.elapsed())
}

fn median(times: &[Duration]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e3)
}

/// Four syncs, as a durable append makes them: a file and its directory, twice.
fn four_syncs(folder: &Path, n: i64) -> Outcome<Duration> {
    std::fs::create_dir_all(folder)?;
    let begun = Instant::now();
    for part in ["data", "log"] {
        let file = std::fs::File::create(folder.join(format!("{part}-{n}")))?;
        std::io::Write::write_all(&mut &file, &[7; 16_384])?;
        file.sync_all()?;
        std::fs::File::open(folder)?.sync_all()?;
    }
    Ok(begun.elapsed())
}

async fn peer(path: &Path) -> Outcome<(DeltaTable, RecordBatchWriter, Arc<Schema>)> {
    std::fs::create_dir_all(path)?;
    let schema = Arc::clone(view()?.schema());
    let url = deltalake::ensure_table_uri(path.to_string_lossy())?;
    let fields = StructType::try_from_arrow(schema.as_ref())?.fields().cloned().collect::<Vec<_>>();
    let table = DeltaTable::try_from_url(url).await?.create().with_columns(fields).await?;
    let writer = RecordBatchWriter::for_table(&table)?;
    Ok((table, writer, schema))
}

async fn peer_append(peer: &mut (DeltaTable, RecordBatchWriter, Arc<Schema>), step: i64) -> Outcome<Duration> {
    let batch = RecordBatch::try_new(Arc::clone(&peer.2), columns(step))?;
    let begun = Instant::now();
    peer.1.write(batch).await?;
    peer.1.flush_and_commit(&mut peer.0).await?;
    Ok(begun.elapsed())
}

async fn growth(folder: &Path, versions: i64) -> Outcome<()> {
    let view = view()?;
    let mut sink = sink(&folder.join("unsynced"), Durability::None).await?;
    let (mut times, mut beside, mut checkpoints) = (Vec::new(), Vec::new(), 0);
    let (begun, cpu) = (Instant::now(), cpu_time()?);
    let mut reached = sink.facts().checkpoint;
    for step in 1..=versions {
        // A checkpoint is begun by the commit that makes it due, and taken over by one after it ended.
        let before = sink.is_maintaining();
        let time = append(&mut sink, &view, step).await?;
        times.push(time);
        if before || sink.is_maintaining() {
            beside.push(time);
        }
        if sink.facts().checkpoint != reached {
            reached = sink.facts().checkpoint;
            checkpoints += 1;
        }
    }
    sink.rest().await;
    let (wall, cpu) = (begun.elapsed(), cpu_time()? - cpu);
    let first = median(times.get(..100).unwrap_or(&times));
    let last = median(times.get(times.len().saturating_sub(500)..).unwrap_or(&times));
    let total: Duration = times.iter().sum();
    println!("unsynced, first 100 versions: median {first:.2} ms");
    println!("unsynced, last 500 of {versions} versions: median {last:.2} ms, growth {:.2}", last / first);
    // What appends beside a checkpoint took longer than the others do.
    let alone = total.saturating_sub(beside.iter().sum());
    let usual = alone.as_secs_f64() / (times.len() - beside.len()).max(1) as f64;
    let lost = beside.iter().map(|t| t.as_secs_f64() - usual).sum::<f64>().max(0.0);
    println!(
        "unsynced, mean {:.2} ms; {checkpoints} checkpoints beside {} appends, {:.1} % of the time of all appends; {:.1} s CPU in {:.1} s",
        total.as_secs_f64() * 1e3 / versions as f64,
        beside.len(),
        100.0 * lost / total.as_secs_f64(),
        cpu.as_secs_f64(),
        wall.as_secs_f64()
    );
    Ok(())
}

/// What all threads of the process have computed.
fn cpu_time() -> Outcome<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    // Linux counts both in hundredths of a second.
    Ok(Duration::from_millis(10 * (ticks(11) + ticks(12))))
}

async fn durable(folder: &Path) -> Outcome<()> {
    let view = view()?;
    let mut sink = sink(&folder.join("durable"), Durability::Commit).await?;
    let (mut ours, mut syncs) = (Vec::new(), Vec::new());
    for step in 1..=300 {
        ours.push(append(&mut sink, &view, step).await?);
        syncs.push(four_syncs(&folder.join("syncs"), step)?);
    }
    println!("durable, 300 versions: median {:.2} ms; four syncs beside it {:.2} ms", median(&ours), median(&syncs));
    Ok(())
}

async fn against_peer(folder: &Path) -> Outcome<()> {
    let view = view()?;
    let mut sink = sink(&folder.join("ours"), Durability::None).await?;
    let mut peer = peer(&folder.join("peer")).await?;
    let files = PEER_FILES as i64;
    for step in 1..=files {
        append(&mut sink, &view, step).await?;
        peer_append(&mut peer, step).await?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..6 {
        for step in files + 1 + round * 20..=files + 20 + round * 20 {
            let (a, b) = (append(&mut sink, &view, step).await?, peer_append(&mut peer, step).await?);
            // The first round warms up.
            if round > 0 {
                ours.push(a);
                theirs.push(b);
            }
        }
    }
    let (a, b) = (median(&ours), median(&theirs));
    println!("on {files} files, in turn: ours {a:.2} ms, deltalake {b:.2} ms, {:.1} times faster", b / a);
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let versions = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(10_000);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    growth(folder.path(), versions).await?;
    durable(folder.path()).await?;
    against_peer(folder.path()).await
}
