//! How fast a pushed view takes rows that are durable when they are answered, and gives them back as a snapshot.
//!
//!     cargo bench --bench ingest [ROWS [DIRECTORY]]
//!
//! Each way of pushing is measured beside the floor of the disk: the bytes that its steps take in the step log, written to a
//! file and synced as often as steps were answered alone. Rounds take turns; the medians are printed.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use cutover::config::{Config, Inputs};
use cutover::daemon::{Daemon, Pushed};
use cutover::ingest::Format;
use cutover::source::files::parse_column_type;
use cutover::source::{Pick, Source};
use cutover::steplog::At;
use cutover::{Step, World};
use futures::StreamExt;
use futures::stream;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 5;

/// A way of pushing.
struct Way {
    name: &'static str,
    format: Format,
    step_rows: u64,
    /// Requests under way at once.
    at_once: usize,
}

const WAYS: &[Way] = &[
    Way { name: "ndjson, steps of 1,000, one at a time", format: Format::InsertDelete, step_rows: 1_000, at_once: 1 },
    Way { name: "ndjson, steps of 1,000, eight at once", format: Format::InsertDelete, step_rows: 1_000, at_once: 8 },
    Way { name: "ndjson, steps of 100,000", format: Format::InsertDelete, step_rows: 100_000, at_once: 1 },
    Way { name: "arrow, steps of 1,000, one at a time", format: Format::Arrow, step_rows: 1_000, at_once: 1 },
    Way { name: "arrow, steps of 1,000, eight at once", format: Format::Arrow, step_rows: 1_000, at_once: 8 },
    Way { name: "arrow, steps of 100,000", format: Format::Arrow, step_rows: 100_000, at_once: 1 },
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let rows: u64 = args.first().map_or(200_000, |n| n.parse().expect("ROWS is a number"));
    let above = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    println!("{rows} rows a round of (id bigint, name string, price double), {ROUNDS} rounds; medians");
    let mut taken: Vec<(Vec<f64>, Vec<f64>)> = WAYS.iter().map(|_| (Vec::new(), Vec::new())).collect();
    let mut scans = Vec::new();
    for round in 0..=ROUNDS {
        for (way, (rates, floors)) in WAYS.iter().zip(&mut taken) {
            let home = tempfile::tempdir_in(&above).expect("a directory");
            let (rate, bytes, steps) = runtime.block_on(push(home.path(), way, rows));
            let floor = rows as f64 / floor(home.path(), bytes, steps.div_ceil(way.at_once as u64));
            if round > 0 {
                rates.push(rate);
                floors.push(floor);
            }
        }
        let home = tempfile::tempdir_in(&above).expect("a directory");
        let scan = runtime.block_on(scan(home.path(), rows));
        if round > 0 {
            scans.push(scan);
        }
    }
    for (way, (rates, floors)) in WAYS.iter().zip(taken) {
        let (rate, floor) = (median(rates), median(floors));
        println!("{:<40} {rate:>12.0} rows/s   floor of the disk {floor:>12.0}   ratio {:.3}", way.name, rate / floor);
    }
    println!("{:<40} {:>12.0} rows/s", "snapshot, scanned", median(scans));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn daemon(home: &Path) -> Arc<Daemon> {
    let text = format!(
        "[server]\ndata_dir = {:?}\n[pipelines.p.source.push]\n[pipelines.p.views.v]\nkey = [\"id\"]\n\
         columns = {{ id = \"bigint\", name = \"string\", price = \"double\" }}\n",
        home.display().to_string()
    );
    let inputs = Inputs {
        path: Path::new("bench.toml"),
        text: &text,
        sets: &[],
        env: &Default::default(),
        parse_type: &parse_column_type,
        read_file: &|_| unreachable!("nothing refers to a file"),
    };
    let config = Config::load(&inputs).expect("a configuration");
    let again = config.clone();
    Daemon::start(config, Arc::new(move || Ok(again.clone())), World::system()).await.expect("a daemon")
}

/// The requests of a way, each of which inserts rows of its own.
fn requests(way: &Way, rows: u64) -> Vec<Bytes> {
    let steps = rows.div_ceil(way.step_rows);
    (0..steps)
        .map(|step| {
            let ids = step * way.step_rows..((step + 1) * way.step_rows).min(rows);
            match way.format {
                Format::Arrow => arrow(ids),
                _ => ids
                    .map(|id| {
                        format!(
                            "{{\"insert\":{{\"id\":{id},\"name\":\"name of {id}\",\"price\":{}}}}}\n",
                            id as f64 / 8.0
                        )
                    })
                    .collect::<String>()
                    .into(),
            }
        })
        .collect()
}

fn arrow(ids: std::ops::Range<u64>) -> Bytes {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id as i64)))),
        ("name", Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("name of {id}"))))),
        ("price", Arc::new(Float64Array::from_iter_values(ids.map(|id| id as f64 / 8.0)))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer.write(&batch).and_then(|()| writer.finish()).expect("a stream");
    drop(writer);
    bytes.into()
}

/// Rows a second, what the step log takes afterwards, and how many steps there were.
async fn push(home: &Path, way: &Way, rows: u64) -> (f64, u64, u64) {
    let (daemon, requests) = (daemon(home).await, requests(way, rows));
    let steps = requests.len() as u64;
    let begun = Instant::now();
    let pushes = requests.into_iter().map(|request| {
        let daemon = Arc::clone(&daemon);
        async move {
            let body = stream::iter([Ok(request)]);
            let pushed = daemon.push("p", "v", body, way.format, At::Next).await.expect("the view").expect("a push");
            assert!(matches!(pushed, Pushed::Stored { .. }), "{pushed:?}");
        }
    });
    stream::iter(pushes).buffered(way.at_once).collect::<Vec<()>>().await;
    let seconds = begun.elapsed().as_secs_f64();
    let reports = daemon.pipelines();
    let view = reports.first().and_then(|pipeline| pipeline.views.first()).expect("the view");
    let bytes = view.step_log.as_ref().expect("a step log").bytes;
    daemon.stop().await.expect("a clean stop");
    (rows as f64 / seconds, bytes, steps)
}

/// How long it takes to write `bytes` in `syncs` parts, each of them synced; in seconds.
fn floor(home: &Path, bytes: u64, syncs: u64) -> f64 {
    let file = File::create(home.join("floor")).expect("a file");
    let part = vec![0x5a; (bytes / syncs) as usize];
    let begun = Instant::now();
    for i in 0..syncs {
        file.write_all_at(&part, i * part.len() as u64).and_then(|()| file.sync_data()).expect("a write");
    }
    begun.elapsed().as_secs_f64()
}

/// Rows a second of a snapshot.
async fn scan(home: &Path, rows: u64) -> f64 {
    use cutover::disk::FileSystem;
    use cutover::source::push::{LiveView, PushSettings};
    use cutover::steplog::Limits;

    let way = WAYS.last().expect("a way");
    push(home, way, rows).await;
    let view = home.join("views/p/v");
    let fields = [("id", "bigint"), ("name", "string"), ("price", "double")]
        .map(|(name, kind)| arrow::datatypes::Field::new(name, parse_column_type(kind).expect("a type"), true));
    let columns = arrow::datatypes::Schema::new(fields.to_vec());
    let settings = PushSettings {
        view: cutover::schema::View::new("v", &columns, vec!["id".into()]).expect("a view"),
        log: view.join("log"),
        store: Some(view.join("rows")),
        limits: Limits::of(8 << 30),
        register: view.join("detached.json"),
        connectors: Vec::new(),
    };
    let live = LiveView::open(settings, Arc::new(FileSystem), &World::system()).expect("the view");
    let mut source = live.source("bench");
    let begun = Instant::now();
    let (_, snapshot) = source.snapshot(Pick::Newest { until: None }).await.expect("a snapshot");
    assert!(snapshot.step > Step::ZERO);
    let read = snapshot.rows.fold(0, async |read, batch| read + batch.expect("rows").num_rows() as u64).await;
    assert_eq!(read, rows);
    rows as f64 / begun.elapsed().as_secs_f64()
}
