//! Partitioned tables, as independent readers see them.

use std::fs;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int8Array, Int16Array, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampMicrosecondArray, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::Schema;
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::digest::Digest;
use cutover::inspect::state::state;
use cutover::inspect::{Verdict, verify_deep};
use cutover::log::Log;
use cutover::{
    Access, Applied, Changes, Durability, ErrorKind, Location, OnExisting, Sink, SinkSettings, Snapshot, StepRange,
    Target, View, World,
};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Readers, size};
use crate::world::step;

const ENGINES: [&str; 4] = ["duckdb", "chdb", "polars", "deltalake"];

/// A table in a folder of its own.
struct Table {
    home: TempDir,
    view: View,
    partition_by: Option<Vec<String>>,
}

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

impl Table {
    fn new(schema: &Schema, key: &[&str], partition_by: Option<&[&str]>) -> Self {
        let view = View::new("v", schema, names(key)).unwrap();
        Self { home: TempDir::new().unwrap(), view, partition_by: partition_by.map(names) }
    }

    fn path(&self) -> String {
        self.home.path().join("table").display().to_string()
    }

    async fn target(&self) -> cutover::Result<Target> {
        let mut settings = SinkSettings::new("p/v/c", "source-1");
        settings.partition_by.clone_from(&self.partition_by);
        settings.on_existing = OnExisting::Truncate;
        let location = Location::open(&self.path(), Access::Write(Durability::None))?;
        Target::open(location, self.view.clone(), settings, World::system()).await
    }

    fn snapshot(&self, at: u64, rows: &RecordBatch) -> Snapshot {
        Snapshot::from_batches(step(at), vec![self.view.conform(rows, "test").unwrap()])
    }

    async fn load(&self, at: u64, rows: &RecordBatch) -> cutover::Result<Sink> {
        self.target().await?.load(self.snapshot(at, rows)).await
    }

    /// Changes of the step `at`: these operations on these rows.
    fn changes(&self, at: u64, ops: &[&str], rows: &RecordBatch) -> Changes {
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(vec![at as i64; ops.len()])), Arc::new(StringArray::from(ops.to_vec()))];
        columns.extend(self.view.conform(rows, "test").unwrap().columns().iter().cloned());
        let batch = RecordBatch::try_new(self.view.change_schema(), columns).unwrap();
        Changes::new(StepRange::new(step(at - 1), step(at)).unwrap(), vec![batch]).unwrap()
    }

    fn log(&self) -> Log {
        Log::new(Location::open(&self.path(), Access::Read).unwrap(), World::system())
    }

    async fn assert_healthy(&self) {
        let report = verify_deep(&self.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    }

    /// The digest of the view's current rows.
    async fn state(&self) -> (usize, Digest) {
        let rows: Vec<RecordBatch> = state(&self.log(), None).await.unwrap().rows.try_collect().await.unwrap();
        let sum = rows.iter().fold(Digest::EMPTY, |sum, rows| sum.plus(Digest::of(rows).unwrap()));
        (rows.iter().map(RecordBatch::num_rows).sum(), sum)
    }

    /// The actions called `name` of the newest version.
    fn newest(&self, name: &str) -> Vec<Value> {
        let log = self.home.path().join("table/_delta_log");
        let mut entries: Vec<_> = fs::read_dir(log).unwrap().map(|e| e.unwrap().path()).collect();
        entries.retain(|path| path.extension().is_some_and(|e| e == "json"));
        let text = fs::read_to_string(entries.iter().max().unwrap()).unwrap();
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).unwrap().get(name).cloned()).collect()
    }
}

fn total(sink: &Sink) -> String {
    sink.facts().ours().unwrap().digest_total.unwrap().to_string()
}

/// What `partitions.py` answers for these tables and their predicates.
fn ask(readers: &Readers, lines: &[String]) -> Value {
    serde_json::from_str(&readers.tell("partitions.py", &[], &lines.join("\n"))).unwrap()
}

fn select(rows: &RecordBatch, places: &[u32]) -> RecordBatch {
    let places = UInt32Array::from(places.to_vec());
    let columns = rows.columns().iter().map(|column| take(column, &places, None).unwrap()).collect();
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

/// Values at the edges of each type that may partition, null among them, and predicates that every engine knows.
fn every_type() -> Vec<(&'static str, ArrayRef, Vec<String>)> {
    let decimals = |values: Vec<Option<i128>>, precision, scale| {
        Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap()) as ArrayRef
    };
    let long = [300, 10_000].map(|n| "x".repeat(n));
    let texts = [
        "a",
        "b",
        "a/b=c%20d",
        " ",
        "'\"\\",
        "ä😀",
        "\n\t\u{1}",
        "\u{0}",
        "null",
        "%2F",
        "..",
        "a:b?#&+",
        "1",
        "A",
        long[0].as_str(),
        long[1].as_str(),
    ];
    let texts: Vec<Option<&str>> = texts.into_iter().map(Some).chain([None]).collect();
    let times = vec![
        Some(0),
        Some(-1),
        Some(1_710_037_800_123_456),
        Some(1_710_037_800_100_000),
        Some(-62_135_596_800_000_000),
        Some(253_402_300_799_999_999),
        None,
    ];
    let sql = |predicates: &[&str]| predicates.iter().map(|p| p.to_string()).collect::<Vec<_>>();
    let of_numbers = sql(&["p = 1", "p > 0", "p <= 0", "p IS NULL", "p IS NOT NULL AND v < 3"]);
    let of_times = sql(&["p IS NULL", "p IS NOT NULL"]);
    vec![
        (
            "boolean",
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
            sql(&["p", "NOT p", "p IS NULL"]),
        ),
        ("tinyint", Arc::new(Int8Array::from(vec![Some(i8::MIN), Some(i8::MAX), Some(1), None])), of_numbers.clone()),
        ("smallint", Arc::new(Int16Array::from(vec![Some(i16::MIN), Some(i16::MAX), None])), of_numbers.clone()),
        ("int", Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(i32::MAX), Some(1), None])), of_numbers.clone()),
        ("bigint", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), Some(1), None])), of_numbers.clone()),
        (
            "decimal(18,0)",
            decimals(vec![Some(10i128.pow(18) - 1), Some(1 - 10i128.pow(18)), Some(1), None], 18, 0),
            of_numbers.clone(),
        ),
        (
            "decimal(18,18)",
            decimals(vec![Some(1), Some(10i128.pow(18) - 1), Some(0), None], 18, 18),
            sql(&["p IS NULL", "p > 0"]),
        ),
        ("decimal(10,2)", decimals(vec![Some(150), Some(-9_999_999_900), Some(100), None], 10, 2), of_numbers),
        (
            "date",
            Arc::new(Date32Array::from(vec![Some(-719_162), Some(0), Some(-1), Some(19_782), Some(2_932_896), None])),
            of_times.clone(),
        ),
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(times.clone()).with_timezone("UTC")), of_times.clone()),
        ("timestamp_ntz", Arc::new(TimestampMicrosecondArray::from(times)), of_times),
        (
            "string",
            Arc::new(StringArray::from(texts)),
            sql(&["p = 'a'", "p <> 'a'", "p >= 'b'", "p = 'a/b=c%20d'", "p = 'A'", "p IS NULL"]),
        ),
    ]
}

/// `id`, the partition column `p`, and `v`.
fn rows_of(values: &ArrayRef) -> RecordBatch {
    let n = values.len() as i64;
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..n)), false),
        ("p", Arc::clone(values), true),
        ("v", Arc::new(Int64Array::from_iter_values((0..n).map(|i| i * 7 % 5))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_type_that_partitions_reads_back_everywhere() {
    let Some(readers) = Readers::find("every_type_that_partitions_reads_back_everywhere") else { return };
    let (mut lines, mut expected, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for (name, values, predicates) in every_type() {
        for key in [&["id"][..], &["id", "p"], &[]] {
            let rows = rows_of(&values);
            // What is part of a key is not null.
            let rows = if key.contains(&"p") { rows.slice(0, rows.num_rows() - 1) } else { rows };
            let table = Table::new(&rows.schema(), key, Some(&["p"]));
            let last = rows.num_rows() as u32 - 1;
            let mut sink = table.load(10, &select(&rows, &(0..last).collect::<Vec<_>>())).await.unwrap();
            let ops = if key.is_empty() { ["i", "d", "i"] } else { ["i", "d", "u"] };
            let applied = sink.append(table.changes(11, &ops, &select(&rows, &[last, 0, 1]))).await.unwrap();
            let Applied::Committed { rows: appended, .. } = applied else { panic!("{name} {key:?}: {applied:?}") };
            table.assert_healthy().await;
            let plain = Table::new(&rows.schema(), key, None);
            let mut other = plain.load(10, &select(&rows, &(0..last).collect::<Vec<_>>())).await.unwrap();
            other.append(plain.changes(11, &ops, &select(&rows, &[last, 0, 1]))).await.unwrap();
            assert_eq!(total(&sink), total(&other), "{name} {key:?}");
            assert_eq!(table.state().await, plain.state().await, "{name} {key:?}");
            // What is skipped does not depend on the key.
            let asked = if key.len() == 1 { &predicates[..] } else { &[] };
            lines.push([&[table.path()], asked].concat().join("\t"));
            expected.push((format!("{name} {key:?}"), table.path(), u64::from(last) + appended, total(&sink)));
            tables.push(table);
        }
    }
    let answers = ask(&readers, &lines);
    for (what, path, rows, digest) in expected {
        for engine in ENGINES {
            let wanted = json!({ "rows": rows, "digest": digest, "differs": [] });
            assert_eq!(answers[&path][engine], wanted, "{engine}: {what}");
        }
    }
}

fn regions(from: i64, to: i64) -> RecordBatch {
    let n = || from..to;
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(n())), false),
        ("region", Arc::new(StringArray::from_iter_values(n().map(|i| format!("r {}/ä", i % 3)))), false),
        ("day", Arc::new(Date32Array::from_iter(n().map(|i| (i % 5 > 0).then_some((i % 5) as i32 * 365)))), true),
        ("v", Arc::new(StringArray::from_iter_values(n().map(|i| format!("value {i}")))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_partition_columns_live_through_reloads_appends_and_checkpoints() {
    let table = Table::new(&regions(0, 1).schema(), &["region", "id"], Some(&["region", "day"]));
    let mut sink = table.load(10, &regions(0, 100)).await.unwrap();
    assert_eq!(table.newest("metaData")[0]["partitionColumns"], json!(["region", "day"]));
    assert_eq!(table.newest("commitInfo")[0]["operationParameters"]["partitionBy"], "[\"region\",\"day\"]");
    assert_eq!(table.newest("add").len(), 15, "a file for each partition");
    sink.append(table.changes(11, &["u", "d", "i"], &select(&regions(0, 200), &[3, 4, 150]))).await.unwrap();
    let adds = table.newest("add");
    let values: Vec<&Value> = adds.iter().map(|add| &add["partitionValues"]).collect();
    assert!(values.contains(&&json!({"region": "r 1/ä", "day": null})), "deletes have only their key: {values:?}");
    assert_eq!(table.newest("commitInfo")[0]["operationParameters"]["partitionBy"], "[\"region\",\"day\"]");
    let before = total(&sink);
    let Some(readers) = Readers::find("several_partition_columns_live_through_reloads_appends_and_checkpoints") else {
        return;
    };
    let predicates =
        ["region = 'r 1/ä'", "day IS NULL", "day IS NULL AND region <> 'r 1/ä'", "region > 'r 1' AND id > 50"];
    let line = format!("{}\t{}", table.path(), predicates.join("\t"));
    let check = |digest: &str| {
        let answers = ask(&readers, std::slice::from_ref(&line));
        for engine in ENGINES {
            let answer = &answers[&table.path()][engine];
            assert_eq!((&answer["digest"], &answer["differs"]), (&json!(digest), &json!([])), "{engine}: {answer}");
        }
    };
    check(&before);
    let ran = readers.command("maintain.py", &["checkpoint", &table.path()]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    check(&before);
    let (rows, _) = table.state().await;
    assert_eq!(rows, 100);
    let stamp = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    sink.reload(table.snapshot(12, &regions(50, 400)), stamp, Older::Refused).await.unwrap();
    let removed = table.newest("remove");
    assert!(removed.iter().any(|r| r["partitionValues"] == json!({"region": "r 1/ä", "day": null})), "{removed:?}");
    sink.append(table.changes(13, &["d"], &regions(60, 61))).await.unwrap();
    check(&total(&sink));
    table.assert_healthy().await;
    assert_eq!(table.state().await.0, 349);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_empty_string_is_refused_before_anything_is_committed() {
    let rows = rows_of(&(Arc::new(StringArray::from(vec!["a", ""])) as ArrayRef));
    let table = Table::new(&rows.schema(), &["id"], Some(&["p"]));
    let refused = table.load(10, &rows).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("\"p\"") && refused.message().contains("partition_by"), "{refused}");
    assert!(!table.home.path().join("table/_delta_log").exists());
    let mut sink = table.load(10, &rows.slice(0, 1)).await.unwrap();
    let version = sink.facts().version;
    let refused = sink.append(table.changes(11, &["u"], &rows.slice(1, 1))).await.unwrap_err();
    assert_eq!((refused.kind(), sink.facts().version), (ErrorKind::Refused, version));
    sink.append(table.changes(11, &["u"], &rows.slice(0, 1))).await.unwrap();
    table.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_never_changes_the_partitioning_and_a_reset_does() {
    let rows = regions(0, 20);
    let mut table = Table::new(&rows.schema(), &["id"], Some(&["region"]));
    drop(table.load(10, &rows).await.unwrap());
    for asked in [&["day"][..], &[], &["region", "day"]] {
        table.partition_by = Some(names(asked));
        let refused = table.target().await.unwrap().check_follow().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Incompatible);
        assert!(refused.message().contains("[\"region\"]") && refused.message().contains("reset"), "{refused}");
        let mut sink = table.target().await.unwrap().claim().await.unwrap();
        sink.append(table.changes(11, &["d"], &rows.slice(0, 1))).await.unwrap_err();
    }
    table.partition_by = None;
    let mut sink = table.target().await.unwrap().claim().await.unwrap();
    sink.append(table.changes(11, &["d"], &rows.slice(0, 1))).await.unwrap();
    for (at, asked, expected) in [(12, Some(&["day"][..]), &["day"][..]), (13, None, &["day"]), (14, Some(&[]), &[])] {
        table.partition_by = asked.map(names);
        let mut sink = table.target().await.unwrap().claim().await.unwrap();
        let stamp = ResetStamp { id: at.to_string(), who: "a test".into(), why: "to see".into() };
        sink.reload(table.snapshot(at, &rows), stamp, Older::Refused).await.unwrap();
        assert_eq!(table.newest("metaData")[0]["partitionColumns"], json!(expected));
        assert_eq!(table.state().await.0, 20);
    }
    table.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_table_of_others_stays_partitioned_or_is_refused() {
    let Some(readers) = Readers::find("a_partitioned_table_of_others_stays_partitioned_or_is_refused") else { return };
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3])), false),
        ("p", Arc::new(StringArray::from(vec![Some("x"), None, Some("é/=")])), true),
        ("q", Arc::new(Date32Array::from(vec![1, 2, 3])), true),
    ];
    let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let cases = [(None, &["p"][..]), (Some(&["q"][..]), &["q"]), (Some(&[]), &[])];
    let (mut lines, mut expected, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for (asked, stands) in cases {
        let table = Table::new(&rows.schema(), &["id"], asked);
        let ran = readers.command("partitions.py", &["make", &table.path()]).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let id = table.newest("metaData")[0]["id"].clone();
        let sink = table.load(10, &rows).await.unwrap();
        let metadata = &table.newest("metaData")[0];
        assert_eq!((&metadata["partitionColumns"], &metadata["id"]), (&json!(stands), &id));
        lines.push(format!("{}\tp IS NULL\tp = 'x'", table.path()));
        expected.push((table.path(), total(&sink)));
        tables.push(table);
    }
    let answers = ask(&readers, &lines);
    for (path, digest) in expected {
        for engine in ENGINES {
            assert_eq!(answers[&path][engine], json!({ "rows": 3, "digest": digest, "differs": [] }), "{engine}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_without_the_tables_partition_column_is_refused_with_the_remedy() {
    let rows = regions(0, 20);
    let mut table = Table::new(&rows.schema(), &["id"], Some(&["region"]));
    let mut sink = table.load(10, &rows).await.unwrap();
    sink.append(table.changes(11, &["d"], &rows.slice(0, 1))).await.unwrap();
    drop(sink);
    let without = rows.project(&[0, 2, 3]).unwrap();
    table.view = View::new("v", &without.schema(), names(&["id"])).unwrap();
    table.partition_by = None;
    let refused = table.target().await.unwrap().check_reload(step(12), Older::Refused).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.message().contains("\"region\"") && refused.message().contains("partition_by"), "{refused}");
    table.partition_by = Some(vec![]);
    table.target().await.unwrap().check_reload(step(12), Older::Refused).unwrap();
    table.partition_by = Some(names(&["region"]));
    assert_eq!(table.target().await.unwrap_err().kind(), ErrorKind::Config);
}

/// The anonymous memory of this process, in bytes.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
}

/// `CUTOVER_PARTITIONS` partitions of `CUTOVER_PARTITION_ROWS` rows in all, whose rows come in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_partitions_are_loaded_in_bounded_memory() {
    let (partitions, rows) = (size("CUTOVER_PARTITIONS", 300), size("CUTOVER_PARTITION_ROWS", 60_000));
    let batch = move |from: u64| {
        let n = || (from..(from + 20_000).min(rows)).map(|i| i as i64);
        let noise = |i: i64, salt: i64| i.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(salt) >> 20;
        let mut columns: Vec<(String, ArrayRef, bool)> = vec![
            ("id".into(), Arc::new(Int64Array::from_iter_values(n())), false),
            (
                "p".into(),
                Arc::new(StringArray::from_iter_values(n().map(|i| format!("part {}", i % partitions as i64)))),
                true,
            ),
        ];
        for salt in 0..10 {
            columns.push((
                format!("n{salt}"),
                Arc::new(Int64Array::from_iter_values(n().map(|i| noise(i, salt)))),
                true,
            ));
        }
        columns.push((
            "s".into(),
            Arc::new(StringArray::from_iter_values(n().map(|i| format!("text {}", noise(i, 99))))),
            true,
        ));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    let table = Table::new(&batch(0).schema(), &[], Some(&["p"]));
    let highest = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (before, seen) = (anonymous(), Arc::clone(&highest));
    let batches = (0..rows).step_by(20_000).map(move |from| {
        seen.fetch_max(anonymous(), std::sync::atomic::Ordering::Relaxed);
        Ok(batch(from))
    });
    let snapshot = Snapshot {
        rows: Box::pin(futures::stream::iter(batches)),
        known_rows: Some(rows),
        ..Snapshot::from_batches(step(10), vec![])
    };
    let sink = table.target().await.unwrap().load(snapshot).await.unwrap();
    let files = table.newest("add").len() as u64;
    let above = highest.load(std::sync::atomic::Ordering::Relaxed).saturating_sub(before) >> 20;
    eprintln!("{partitions} partitions, {rows} rows: {files} files, {above} MiB of anonymous memory above the start");
    assert!(files >= partitions, "{files}");
    table.assert_healthy().await;
    let Some(readers) = Readers::find("many_partitions_are_loaded_in_bounded_memory") else { return };
    let answers = ask(&readers, &[format!("{}\tp = 'part 7'\tp > 'part 2'", table.path())]);
    for engine in ENGINES {
        assert_eq!(answers[&table.path()][engine]["digest"], json!(total(&sink)), "{engine}");
    }
}
