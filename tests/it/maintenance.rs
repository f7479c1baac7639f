//! Maintenance beside the commits: what is cleaned up and what never is, and that it fails and delays nothing.

use std::fs::{self, File};
use std::path::{Path as FsPath, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Verdict, verify};
use cutover::log::{Expired, Log, Why};
use cutover::{
    Access, Applied, Clock, Durability, ErrorKind, Location, Sink, SinkSettings, Snapshot, Standing, SystemClock,
    Target,
};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use serde_json::{Value, json};

use crate::faults::{Call, Fault, FaultStore, Verb};
use crate::program::{PATIENCE, Readers, wait_until};
use crate::world::{TestClock, changes, log, memory, settings, sink, state, view, world};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// So many versions make a checkpoint due.
const DUE: u64 = 100;

fn reset(id: &str) -> ResetStamp {
    ResetStamp { id: id.into(), who: "a test".into(), why: "to see".into() }
}

/// A clock whose dates move apart from the time in which maintenance becomes due.
#[derive(Debug)]
pub(crate) struct Dates {
    millis: AtomicI64,
    pub(crate) time: Arc<TestClock>,
}

impl Dates {
    pub(crate) fn advance(&self, by: Duration) {
        self.millis.fetch_add(by.as_millis() as i64, Ordering::Relaxed);
    }
}

impl Clock for Dates {
    fn unix_millis(&self) -> i64 {
        self.millis.load(Ordering::Relaxed)
    }

    fn boot(&self) -> Duration {
        self.time.boot()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.sleep(duration)
    }

    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.deadline(duration)
    }
}

/// A table in a folder, whose files are as old as its clock says.
pub(crate) struct Aged {
    dir: tempfile::TempDir,
    pub(crate) world: cutover::World,
    pub(crate) clock: Arc<Dates>,
    last: u64,
    known: Vec<PathBuf>,
}

impl Aged {
    /// A table that is begun so many days ago.
    pub(crate) fn new(seed: u64, days_ago: u32) -> Self {
        let (mut world, time) = world(seed);
        let millis = AtomicI64::new(SystemClock.unix_millis() - (DAY * days_ago).as_millis() as i64);
        let clock = Arc::new(Dates { millis, time });
        world.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        Self { dir: tempfile::tempdir().unwrap(), world, clock, last: 10, known: Vec::new() }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.path().join("table")
    }

    fn location(&self) -> Location {
        Location::open(&self.folder().to_string_lossy(), Access::Write(Durability::None)).unwrap()
    }

    pub(crate) fn log(&self) -> Log {
        Log::new(self.location(), self.world.clone())
    }

    pub(crate) async fn sink(&self, properties: &[(&str, &str)]) -> Sink {
        let mut settings: SinkSettings = settings();
        settings.properties = properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let target = Target::open(self.location(), view(), settings, self.world.clone()).await.unwrap();
        match target.standing() {
            Standing::Ours(_) => target.claim().await.unwrap(),
            _ => target.load(state(10, &[1, 2, 3])).await.unwrap(),
        }
    }

    pub(crate) async fn append(&mut self, sink: &mut Sink) {
        sink.append(changes(self.last, self.last + 1)).await.unwrap();
        self.last += 1;
        self.age();
    }

    async fn reload(&mut self, sink: &mut Sink) {
        self.last += 1;
        sink.reload(state(self.last, &[7, 8]), reset(&format!("r{}", self.last)), Older::Refused).await.unwrap();
        sink.rest().await;
        self.age();
    }

    /// Gives what was written since the last call the time of the table's clock.
    pub(crate) fn age(&mut self) {
        let millis = self.world.clock.unix_millis();
        for path in files(&self.folder()) {
            if !self.known.contains(&path) {
                set_age(&path, millis);
                self.known.push(path);
            }
        }
    }

    /// A file that nothing names, so many days old.
    pub(crate) fn stray(&self, name: &str, days: i64) {
        let path = self.folder().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "garbage").unwrap();
        set_age(&path, self.world.clock.unix_millis() - days * DAY.as_millis() as i64);
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.folder().join(name).exists()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let folder = self.folder();
        let mut names: Vec<String> =
            files(&folder).iter().map(|p| p.strip_prefix(&folder).unwrap().to_string_lossy().to_string()).collect();
        names.sort();
        names
    }

    /// The versions whose entries are there.
    fn versions(&self) -> Vec<u64> {
        let entry = |name: &String| name.strip_prefix("_delta_log/")?.strip_suffix(".json")?.parse().ok();
        self.names().iter().filter_map(entry).collect()
    }

    pub(crate) async fn is_healthy(&self) {
        let report = verify(&self.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    }
}

fn files(folder: &FsPath) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found
}

fn set_age(path: &FsPath, millis: i64) {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(millis.unsigned_abs());
    File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// What the live files are at a version, by their paths.
pub(crate) async fn live(log: &Log, version: u64) -> Vec<String> {
    let mut paths: Vec<String> = log.live_files_at(version).await.unwrap().into_iter().map(|f| f.path).collect();
    paths.sort();
    paths
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_beside_the_appends_is_compared_and_taken_for_nobody_elses() {
    let (inner, (world, _)) = (memory(), world(401));
    let faults = FaultStore::new(Arc::clone(&inner), None, Box::new(|_| None));
    let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
    let mut sink = sink(&store, &world).await;
    for n in 10..10 + DUE + 20 {
        sink.append(changes(n, n + 1)).await.unwrap();
    }
    sink.rest().await;
    let listings = |calls: &[Call]| calls.iter().filter(|c| c.verb == Verb::List).count();
    let before = listings(&faults.calls());
    sink.append(changes(10 + DUE + 20, 10 + DUE + 21)).await.unwrap();
    assert_eq!(listings(&faults.calls()), before, "the facts were read anew for a checkpoint of our own");
    // Joined files have versions of their own, which count too.
    assert!(sink.facts().checkpoint >= Some(DUE), "{:?}", sink.facts().checkpoint);
    assert_eq!(verify(&log(&inner, &world), None).await.unwrap().verdict, Verdict::Healthy);
    sink.close().await;
}

#[tokio::test]
async fn on_one_thread_maintenance_runs_where_it_is_waited_for_and_alike_each_time() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let (inner, (world, _)) = (memory(), world(402));
        let faults = FaultStore::new(Arc::clone(&inner), None, Box::new(|_| None));
        let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
        let mut sink = sink(&store, &world).await;
        sink.append(changes(10, 11)).await.unwrap();
        let did = sink.maintain().await;
        assert_eq!(did.as_ref().map_err(|e| e.kind()).map(|d| d.checkpoint), Err(ErrorKind::Refused), "{did:?}");
        sink.append(changes(11, 12)).await.unwrap();
        runs.push(faults.calls());
    }
    assert!(runs[0].iter().any(|call| call.path.ends_with(".checkpoint.parquet")));
    assert_eq!(runs[0], runs[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_that_hangs_or_fails_under_maintenance_fails_and_delays_no_append() {
    for what in ["hangs", "fails"] {
        let (inner, (world, clock)) = (memory(), world(403));
        let script = move |call: &Call| {
            let is_maintenance = call.path.contains("checkpoint") && call.verb != Verb::Head;
            is_maintenance.then(|| if what == "hangs" { Fault::Hang } else { Fault::Before })
        };
        let faults = FaultStore::new(Arc::clone(&inner), Some(clock), Box::new(script));
        let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
        let mut sink = sink(&store, &world).await;
        for n in 10..10 + DUE + 50 {
            let applied = sink.append(changes(n, n + 1)).await.unwrap();
            assert!(matches!(applied, Applied::Committed { .. }), "{what}");
        }
        if what == "fails" {
            sink.rest().await;
        }
        // It runs beside the appends, which wait for nothing of it.
        assert!(wait_until(PATIENCE, || !faults.fired().is_empty()), "{what}: nothing was maintained");
        assert_eq!(verify(&log(&inner, &world), None).await.unwrap().verdict, Verdict::Healthy, "{what}");
    }
}

/// Twenty days of a table: a version a day and a reload each week, then a checkpoint of each fifth day.
pub(crate) async fn three_weeks(seed: u64, properties: &[(&str, &str)]) -> (Aged, Sink) {
    let mut table = Aged::new(seed, 20);
    let mut sink = table.sink(properties).await;
    table.age();
    for day in 1..=20 {
        table.clock.advance(DAY);
        if day % 7 == 0 {
            table.reload(&mut sink).await
        } else {
            table.append(&mut sink).await
        }
        if day % 5 == 0 {
            let log = table.log();
            log.checkpoint(&mut log.facts().await.unwrap()).await.unwrap();
            table.age();
        }
    }
    sink.rest().await;
    (table, sink)
}

const SIX_DAYS: (&str, &str) = ("delta.logRetentionDuration", "interval 6 days");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_versions_go_below_a_compared_checkpoint_and_every_other_one_still_loads() {
    let (mut table, mut sink) = three_weeks(404, &[SIX_DAYS]).await;
    let log = table.log();
    let mut before = Vec::new();
    for version in 10..=20 {
        before.push(live(&log, version).await);
    }
    let did = sink.maintain().await.unwrap();
    // Version 14 is six days old; the checkpoint below it is that of version 10.
    assert_eq!(table.versions(), (10..=20).collect::<Vec<_>>(), "{did:?}");
    assert_eq!(did.cleaned, 10 + 1, "ten entries and a checkpoint");
    assert_eq!(did.checkpoint, Some(20), "that of the head is compared too");
    for (version, expected) in (10..).zip(before) {
        assert_eq!(live(&log, version).await, expected, "version {version}");
    }
    table.is_healthy().await;
    table.append(&mut sink).await;
    drop(sink);
    let mut sink = table.sink(&[]).await;
    table.append(&mut sink).await;
    table.is_healthy().await;
    assert_eq!(sink.maintain().await.unwrap().cleaned, 0);
    let table_path = table.folder();
    for command in ["history", "show", "state"] {
        let mut command_line = Command::new(env!("CARGO_BIN_EXE_cutover"));
        let ran = command_line.arg(command).arg(&table_path).stdin(Stdio::null()).output().unwrap();
        assert!(ran.status.success(), "{command}: {}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timestamps_in_commits_tell_how_old_a_version_is_where_the_table_has_them() {
    let mut table = Aged::new(415, 20);
    drop(table.sink(&[SIX_DAYS]).await);
    table.age();
    let entry = |version: u64| format!("_delta_log/{version:020}.json");
    let first = fs::read_to_string(table.folder().join(entry(0))).unwrap();
    let is_metadata = |action: &Value| action.get("metaData").is_some();
    let mut metadata: Value = first.lines().map(|line| serde_json::from_str(line).unwrap()).find(is_metadata).unwrap();
    let millis = table.world.clock.unix_millis() + 1;
    for (key, value) in [
        ("delta.enableInCommitTimestamps", "true".to_string()),
        ("delta.inCommitTimestampEnablementVersion", "1".to_string()),
        ("delta.inCommitTimestampEnablementTimestamp", millis.to_string()),
    ] {
        metadata["metaData"]["configuration"][key] = value.into();
    }
    let features = ["appendOnly", "invariants", "inCommitTimestamp"];
    let actions = [
        json!({"commitInfo": {"inCommitTimestamp": millis, "timestamp": millis, "operation": "SET TBLPROPERTIES"}}),
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}),
        metadata,
    ];
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    fs::write(table.folder().join(entry(1)), lines.join("\n")).unwrap();
    let mut sink = table.sink(&[]).await;
    for day in 1..=20 {
        table.clock.advance(DAY);
        table.append(&mut sink).await;
        if day % 5 == 0 {
            let log = table.log();
            log.checkpoint(&mut log.facts().await.unwrap()).await.unwrap();
        }
    }
    // The files are of today, all but the one from before the table had timestamps.
    for path in files(&table.folder()).iter().filter(|path| !path.ends_with(entry(0))) {
        set_age(path, table.world.clock.unix_millis());
    }
    sink.maintain().await.unwrap();
    // A version a day from 3 on, checkpoints of 7, 12, 17 and 22; that of six days ago is 16.
    assert_eq!(table.versions(), (12..=22).collect::<Vec<_>>());
    table.is_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_keeps_its_log_keeps_it() {
    for (name, value) in [
        ("delta.enableExpiredLogCleanup", "false"),
        ("delta.logRetentionDuration", "interval 40 days"),
        ("delta.logRetentionDuration", "for a while"),
    ] {
        let mut properties = vec![(name, value)];
        if name == "delta.enableExpiredLogCleanup" {
            properties.push(SIX_DAYS);
        }
        let (table, mut sink) = three_weeks(405, &properties).await;
        let did = sink.maintain().await;
        assert_eq!(did.is_err(), value == "for a while", "{did:?}");
        assert_eq!(table.versions(), (0..=20).collect::<Vec<_>>(), "{name} = {value}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_below_a_checkpoint_that_is_not_what_the_log_says() {
    let checkpoint = |version: u64| format!("_delta_log/{version:020}.checkpoint.parquet");
    type Damage = fn(&Aged, &str, &str);
    let damages: [(&str, Damage); 3] = [
        ("empty", |t, newer, _| fs::write(t.folder().join(newer), "").unwrap()),
        ("cut short", |t, newer, _| {
            let bytes = fs::read(t.folder().join(newer)).unwrap();
            fs::write(t.folder().join(newer), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("another version's", |t, newer, older| {
            fs::copy(t.folder().join(older), t.folder().join(newer)).unwrap();
        }),
    ];
    for (name, damage) in damages {
        let (table, mut sink) = three_weeks(406, &[SIX_DAYS]).await;
        damage(&table, &checkpoint(10), &checkpoint(5));
        let before = table.names();
        let error = sink.maintain().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.message().contains("version 10"), "{name}: {error}");
        assert_eq!(table.names(), before, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_up_that_ends_anywhere_leaves_a_log_that_loads_and_is_ended_later() {
    let (table, sink) = three_weeks(407, &[SIX_DAYS]).await;
    drop(sink);
    // Ten entries and a checkpoint.
    for at in 0..=11 {
        let copy = tempfile::tempdir().unwrap();
        for path in files(&table.folder()) {
            let to = copy.path().join(path.strip_prefix(table.folder()).unwrap());
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(&path, &to).unwrap();
            set_age(&to, fs::metadata(&path).unwrap().modified().map(millis).unwrap());
        }
        let inner = object_store::local::LocalFileSystem::new_with_prefix(copy.path()).unwrap();
        let mut deletes = 0;
        let script = move |call: &Call| {
            let is_delete = call.verb == Verb::Delete;
            deletes += usize::from(is_delete);
            (is_delete && deletes > at).then_some(Fault::CrashBefore)
        };
        let store: Arc<dyn ObjectStore> = Arc::new(FaultStore::new(Arc::new(inner), None, Box::new(script)));
        let cleaned = log(&store, &table.world).clean_up(Expired { below: 10 }).await;
        assert_eq!(cleaned.is_ok(), at == 11, "after {at} deletions: {cleaned:?}");
        let location = Location::open(&copy.path().to_string_lossy(), Access::Write(Durability::None)).unwrap();
        let after = Log::new(location, table.world.clone());
        let report = verify(&after, None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "after {at} deletions: {:?}", report.findings);
        for version in 10..=20 {
            live(&after, version).await;
        }
        let facts = after.facts().await.unwrap();
        let expired = after.expired(&facts).await.unwrap();
        assert_eq!(expired, (at < 11).then_some(Expired { below: 10 }), "after {at} deletions");
        if let Some(expired) = expired {
            after.clean_up(expired).await.unwrap();
        }
        assert_eq!(after.list(0).await.unwrap().versions.first(), Some(&10), "after {at} deletions");
    }
}

fn millis(time: SystemTime) -> i64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

/// A name that only our writers give.
const OLD: &str = "cutover-0192f3c4-7d8e-8a7b-9c0d-aaaaaaaaaaaa.parquet";
const TOMORROW: &str = "cutover-0192f3c4-7d8e-8a7b-9c0d-dddddddddddd.parquet";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_garbage_goes() {
    let (mut table, mut sink) = three_weeks(408, &[]).await;
    table.clock.advance(DAY);
    table.append(&mut sink).await;
    let id = "0192f3c4-7d8e-8a7b-9c0d-112233445566";
    let staged = format!(".cutover-9.parquet.{id}.tmp");
    let staged_entry = format!("_delta_log/.{:020}.json.{id}.tmp", 99);
    let load = "cutover-load-0192f3c4-7d8e-8a7b-9c0d-bbbbbbbbbbbb.parquet";
    let goes = [OLD, load, &staged, &staged_entry];
    let stays = [
        ("cutover-0192f3c4-7d8e-8a7b-9c0d-cccccccccccc.parquet", 6),
        ("cutover-notes.md", 90),
        ("cutover-bookmark.json", 90),
        ("cutover-old.parquet", 90),
        ("other.parquet", 90),
        ("region=a/cutover-x.parquet", 90),
        ("sub/_delta_log/00000000000000000000.json", 90),
        ("deletion_vector_0.bin", 90),
        ("_change_data/cutover-1.parquet", 90),
        ("_delta_log/notes.txt", 90),
        (".hidden.tmp", 90),
    ];
    goes.iter().for_each(|name| table.stray(name, 9));
    stays.iter().for_each(|(name, days)| table.stray(name, *days));
    let log = table.log();
    // Reloads were made 14 and 7 days ago, of which the first removed files beyond the week.
    let removed_long_ago = live(&log, 6).await;
    let removed_lately = live(&log, 13).await;
    let current = live(&log, 21).await;
    let garbage = log.garbage().await.unwrap();
    let mut found: Vec<_> = log.garbage_files(&garbage).try_collect().await.unwrap();
    found.sort_by_key(|file| file.path.to_string());
    let by = |why| found.iter().filter(|f| f.why == why).map(|f| f.path.to_string()).collect::<Vec<_>>();
    assert_eq!(by(Why::Unnamed), [OLD, load]);
    assert_eq!(by(Why::Removed), removed_long_ago);
    assert_eq!(by(Why::Staged), [staged.clone(), staged_entry.clone()]);
    let before = table.names();
    let did = sink.maintain().await.unwrap();
    assert_eq!(did.garbage, found.len() as u64);
    let after = table.names();
    let lost: Vec<&String> = before.iter().filter(|name| !after.contains(name)).collect();
    let mut expected: Vec<String> = found.iter().map(|f| f.path.to_string()).collect();
    expected.sort();
    assert_eq!(lost, expected.iter().collect::<Vec<_>>());
    for (name, _) in stays {
        assert!(table.has(name), "{name}");
    }
    for name in removed_lately.iter().chain(&current) {
        assert!(table.has(name), "{name}");
    }
    table.is_healthy().await;
    table.append(&mut sink).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_writer_has_not_named_yet_is_no_garbage_whatever_the_retention() {
    let mut table = Aged::new(409, 0);
    let mut sink = table.sink(&[("delta.deletedFileRetentionDuration", "interval 0 days")]).await;
    table.age();
    table.append(&mut sink).await;
    table.stray(OLD, 0);
    table.clock.advance(Duration::from_secs(59 * 60));
    assert_eq!(sink.maintain().await.unwrap().garbage, 0);
    table.clock.advance(Duration::from_secs(2 * 60));
    assert_eq!(sink.maintain().await.unwrap().garbage, 1);
    assert!(!table.has(OLD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_removed_while_a_reload_runs_and_the_reload_commits() {
    let mut table = Aged::new(410, 0);
    let mut sink = table.sink(&[]).await;
    table.append(&mut sink).await;
    table.stray(OLD, 9);
    let rows = state(30, &[4, 5, 6]).rows.try_collect::<Vec<_>>().await.unwrap();
    let log = table.log();
    let batches = futures::stream::iter(rows.into_iter().map(Ok)).and_then(move |batch| {
        let log = log.clone();
        async move {
            let garbage = log.garbage().await?;
            log.delete_garbage(&garbage, |_| ()).await?;
            Ok(batch)
        }
    });
    let snapshot = Snapshot { rows: Box::pin(batches), ..state(30, &[]) };
    sink.reload(snapshot, reset("r"), Older::Refused).await.unwrap();
    assert!(!table.has(OLD));
    table.is_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_writer_deletes_nothing() {
    let (mut table, mut fenced) = three_weeks(411, &[SIX_DAYS]).await;
    table.stray(OLD, 90);
    let mut other = table.sink(&[]).await;
    table.age();
    let before = table.names();
    assert_eq!(fenced.maintain().await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(table.names(), before);
    table.append(&mut other).await;
    let did = other.maintain().await.unwrap();
    assert!(did.cleaned > 0 && did.garbage > 0, "{did:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_behind_the_files_and_a_log_that_does_not_load_delete_nothing() {
    let (mut table, mut sink) = three_weeks(412, &[]).await;
    table.append(&mut sink).await;
    table.append(&mut sink).await;
    drop(sink);
    table.stray(OLD, 90);
    table.stray(TOMORROW, -1);
    assert_eq!(table.log().garbage().await.unwrap_err().kind(), ErrorKind::Refused);
    fs::remove_file(table.folder().join(TOMORROW)).unwrap();
    fs::write(table.folder().join(format!("_delta_log/{:020}.json", 21)), "{\"add\":{\"pa").unwrap();
    assert_eq!(table.log().garbage().await.unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(table.has(OLD));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_without_bytes_and_a_path_that_may_be_any_file_delete_nothing() {
    let spoils: [fn(&FsPath); 2] = [
        |entry| fs::write(entry, "").unwrap(),
        |entry| {
            let text = fs::read_to_string(entry).unwrap();
            fs::write(entry, text.replace("\"path\":\"cutover-", "\"path\":\"./cutover-")).unwrap();
        },
    ];
    for spoil in spoils {
        let (mut table, mut sink) = three_weeks(415, &[]).await;
        table.append(&mut sink).await;
        table.append(&mut sink).await;
        drop(sink);
        table.stray(OLD, 90);
        spoil(&table.folder().join(format!("_delta_log/{:020}.json", 21)));
        let error = table.log().garbage().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(table.has(OLD));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_engines_read_the_table_and_its_retained_versions_after_clean_up_and_gc() {
    let Some(readers) = Readers::find("other_engines_read_the_table_after_clean_up") else { return };
    let (table, mut sink) = three_weeks(413, &[SIX_DAYS]).await;
    let did = sink.maintain().await.unwrap();
    assert!(did.cleaned > 0 && did.garbage > 0, "{did:?}");
    let path = table.folder().display().to_string();
    let lines: String = (14..=20).map(|version| format!("{path}\t{version}\n")).collect();
    let said = readers.tell("read.py", &["many", "duckdb,chdb,deltalake"], &lines);
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 7 * 3, "{said}");
    for (n, answer) in answers.iter().enumerate() {
        // Two rows of the reload of version 14 and one of each append after it.
        assert_eq!(answer["rows"], json!(2 + n / 3), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_says_what_goes_and_deletes_only_without_dry_run() {
    let (table, sink) = three_weeks(414, &[]).await;
    drop(sink);
    table.stray(OLD, 9);
    let gc = |args: &[&str], uri: &FsPath| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.arg("gc").arg(uri).args(args).stdin(Stdio::null()).output().unwrap()
    };
    let json = |args: &[&str]| -> Value { serde_json::from_slice(&gc(args, &table.folder()).stdout).unwrap() };
    let before = table.names();
    let dry = json(&["--dry-run", "-o", "json"]);
    assert_eq!((&dry["schema"], &dry["dry_run"], &dry["version"]), (&json!("cutover.gc/1"), &json!(true), &json!(20)));
    assert_eq!((&dry["unnamed"]["files"], &dry["removed"]["files"]), (&json!(1), &json!(7)));
    assert_eq!(table.names(), before);
    let text = gc(&[], &table.folder());
    let text = String::from_utf8_lossy(&text.stdout).to_string();
    assert!(text.contains("deleted: 1 named by no version (7 B), 7 removed"), "{text}");
    assert_eq!(table.names().len(), before.len() - 8);
    assert_eq!(json(&["-o", "json"])["removed"]["files"], 0);
    let nowhere = gc(&[], &table.dir.path().join("nowhere"));
    assert_eq!(nowhere.status.code(), Some(1), "{}", String::from_utf8_lossy(&nowhere.stderr));
}
