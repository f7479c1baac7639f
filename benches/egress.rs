//! How fast a view is streamed to clients through HTTP on the loopback, beside the encoding of the same rows alone.
//!
//!     cargo bench --bench egress [ROWS [DIRECTORY]]
//!
//! Snapshots are read by 1, 10 and 50 clients at once, changes by one. Rounds take turns; the medians are printed, and for
//! several clients the rows of all of them a second.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use async_trait::async_trait;
use bytes::Bytes;
use cutover::config::{Config, Inputs};
use cutover::daemon::{Daemon, Pushed};
use cutover::egress::{Begin, Bounds, Format, Settings, Stream};
use cutover::generation::Generation;
use cutover::ingest;
use cutover::source::files::parse_column_type;
use cutover::source::{Next, Pick, Position, Source};
use cutover::steplog::At;
use cutover::{Result, Snapshot, Step, SystemClock, View, World, server};
use futures::future::join_all;
use futures::stream;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ROUNDS: usize = 5;
const STEP_ROWS: u64 = 1_000;
const FORMATS: [(&str, Format); 2] = [("ndjson", Format::Ndjson), ("arrow", Format::Arrow)];
const CLIENTS: [usize; 3] = [1, 10, 50];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let rows: u64 = args.first().map_or(500_000, |n| n.parse().expect("ROWS is a number"));
    let above = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let home = tempfile::tempdir_in(&above).expect("a directory");
    println!("{rows} rows of (id bigint, name string, price double), steps of {STEP_ROWS}, {ROUNDS} rounds; medians");
    runtime.block_on(async {
        let daemon = daemon(home.path()).await;
        push(&daemon, rows).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/v1/pipelines/p/egress/v", listener.local_addr().expect("an address"));
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(server::serve(Arc::clone(&daemon), listener, async move { drop(stopped.await) }));
        let batches: Vec<RecordBatch> =
            (0..rows.div_ceil(8192)).map(|n| batch(n * 8192..((n + 1) * 8192).min(rows))).collect();
        for (name, format) in FORMATS {
            let alone = measured(async || encoded(&batches, format).await).await;
            println!("{name:<8} encoding alone                 {:>12.0} rows/s", rows as f64 / alone);
            for clients in CLIENTS {
                let path = format!("{url}?format={name}&mode=snapshot");
                let taken = measured(async || pulled(&path, clients).await).await;
                let rate = (rows * clients as u64) as f64 / taken;
                println!(
                    "{name:<8} snapshot, {clients:>2} clients            {rate:>12.0} rows/s   ratio {:.3}",
                    rate * alone / rows as f64
                );
            }
            let path = format!("{url}?format={name}&generation={}&after_step=0", generation(&url).await);
            let last = rows.div_ceil(STEP_ROWS);
            let taken = measured(async || followed(&path, format, last).await).await;
            let rate = rows as f64 / taken;
            println!(
                "{name:<8} changes, 1 client              {rate:>12.0} rows/s   ratio {:.3}",
                rate * alone / rows as f64
            );
        }
        drop(stop);
        serving.await.expect("a server").expect("a clean stop");
        daemon.stop().await.expect("a clean stop");
    });
}

/// The median of the seconds that `work` takes.
async fn measured(work: impl AsyncFn()) -> f64 {
    let mut taken = Vec::new();
    for round in 0..=ROUNDS {
        let begun = Instant::now();
        work().await;
        if round > 0 {
            taken.push(begun.elapsed().as_secs_f64());
        }
    }
    taken.sort_by(f64::total_cmp);
    taken.get(taken.len() / 2).copied().unwrap_or(f64::NAN)
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

fn batch(ids: std::ops::Range<u64>) -> RecordBatch {
    let columns: [(&str, ArrayRef); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(ids.clone().map(|id| id as i64)))),
        ("name", Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("name of {id}"))))),
        ("price", Arc::new(Float64Array::from_iter_values(ids.map(|id| id as f64 / 8.0)))),
    ];
    RecordBatch::try_from_iter(columns).expect("a batch")
}

async fn push(daemon: &Daemon, rows: u64) {
    for step in 0..rows.div_ceil(STEP_ROWS) {
        let batch = batch(step * STEP_ROWS..((step + 1) * STEP_ROWS).min(rows));
        let mut writer = arrow::ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a writer");
        writer.write(&batch).expect("a batch");
        let body = stream::iter([Ok(Bytes::from(writer.into_inner().expect("a stream")))]);
        let pushed = daemon.push("p", "v", body, ingest::Format::Arrow, At::Next).await;
        assert!(matches!(pushed, Some(Ok(Pushed::Stored { .. }))), "{pushed:?}");
    }
}

/// The generation of the view's streams, as the first line of one has it.
async fn generation(url: &str) -> String {
    let mut response =
        reqwest::Client::new().post(format!("{url}?format=ndjson&mode=follow")).send().await.expect("an answer");
    let line = response.chunk().await.expect("a stream").expect("a line");
    let line = String::from_utf8_lossy(&line);
    let (_, rest) = line.split_once("\"generation\":").expect("a generation");
    rest.chars().take_while(char::is_ascii_digit).collect()
}

/// Reads streams to their ends.
async fn pulled(path: &str, clients: usize) {
    let client = reqwest::Client::new();
    join_all((0..clients).map(async |_| {
        let mut response = client.post(path).send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        let mut length = 0;
        while let Some(chunk) = response.chunk().await.expect("a stream") {
            length += chunk.len();
        }
        assert!(length > 0);
    }))
    .await;
}

/// Reads a stream until it has told step `last`.
async fn followed(path: &str, format: Format, last: u64) {
    let mut response = reqwest::Client::new().post(path).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    // The head stands before the rows in text, and at the beginning of a message.
    let told = format!("\"to\":{last}");
    let (mut tail, mut has_told) = (Vec::new(), false);
    loop {
        let chunk = response.chunk().await.expect("a stream").expect("more");
        tail.extend_from_slice(&chunk);
        let mut starts = tail.iter().enumerate().filter(|(_, byte)| **byte == b'"').map(|(at, _)| at);
        has_told |= starts.any(|at| tail.get(at..).is_some_and(|rest| rest.starts_with(told.as_bytes())));
        if has_told && (format == Format::Arrow || tail.ends_with(b"]}\n")) {
            return;
        }
        tail.drain(..tail.len().saturating_sub(told.len()));
    }
}

/// Gives the rows from memory.
struct Memory {
    view: View,
    batches: Vec<RecordBatch>,
}

#[async_trait]
impl Source for Memory {
    fn name(&self) -> &str {
        self.view.name()
    }

    fn key(&self) -> &[String] {
        self.view.key()
    }

    fn fingerprint(&self) -> &str {
        "memory"
    }

    async fn position(&mut self) -> Result<Position> {
        Ok(Position { earliest: None, latest: Some(Step::ZERO) })
    }

    async fn view(&mut self, _after: Step) -> Result<View> {
        Ok(self.view.clone())
    }

    async fn snapshot(&mut self, _pick: Pick) -> Result<(View, Snapshot)> {
        Ok((self.view.clone(), Snapshot::from_batches(Step::ZERO, self.batches.clone())))
    }

    async fn changes(&mut self, _after: Step, _view: &View) -> Result<Next> {
        Ok(Next::Idle { hole: None })
    }

    async fn acknowledge(&mut self, _step: Step) -> Result<()> {
        Ok(())
    }
}

/// Encodes a snapshot that is in memory, and throws the bytes away.
async fn encoded(batches: &[RecordBatch], format: Format) {
    let batches = batches.to_vec();
    let schema = batches.first().expect("rows").schema();
    let view = View::new("v", &schema, vec!["id".into()]).expect("a view");
    let mut stream = Stream::new(Settings {
        source: Box::new(Memory { view: view.clone(), batches }),
        view,
        format,
        begin: Begin::Snapshot,
        generation: Generation::FIRST,
        sequence_number: 0,
        poll_interval: Duration::from_secs(1),
        bounds: Bounds::default(),
        sent: Arc::default(),
        clock: Arc::new(SystemClock),
    });
    let (out, mut chunks) = mpsc::channel::<Bytes>(2);
    let reading = async { while chunks.recv().await.is_some() {} };
    let sending = async {
        stream.run(&out).await;
        drop(out);
    };
    tokio::join!(reading, sending);
}
