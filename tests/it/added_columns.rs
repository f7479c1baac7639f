//! Columns that an append adds, below the connector and from outside: faults, races, and what readers make of them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use cutover::inspect::{Verdict, verify_deep};
use cutover::{Changes, ErrorKind, Location, SchemaChange, Sink, StepRange, Target, View, World};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use crate::faults::{Fault, FaultStore};
use crate::program::{Landing, PATIENCE, Readers, Site, UNSYNCED, wait_until};
use crate::world::{log, memory, settings, sink, step, view, world};

/// The tests' view with the text columns `more` in front.
fn wider(more: &[&str]) -> View {
    let mut fields: Vec<Field> = more.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    fields.extend(view().schema().fields().iter().map(|f| f.as_ref().clone()));
    View::new("v", &Schema::new(fields), vec!["id".into()]).unwrap()
}

/// One insert at each step in `(from, to]`, with a text in every column.
fn inserts(view: &View, from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
    let column = |field: &Field| -> ArrayRef {
        match (field.name().as_str(), field.data_type()) {
            ("__op", _) => Arc::new(StringArray::from(vec!["i"; steps.len()])),
            (_, DataType::Int64) => Arc::new(Int64Array::from(steps.clone())),
            (name, _) => Arc::new(StringArray::from_iter_values(steps.iter().map(|s| format!("{name} {s}")))),
        }
    };
    let columns = view.change_schema().fields().iter().map(|f| column(f)).collect();
    let batch = RecordBatch::try_new(view.change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

async fn open(store: &Arc<dyn ObjectStore>, view: &View, policy: SchemaChange, world: &World) -> Target {
    let mut settings = settings();
    settings.schema_change = policy;
    Target::open(Location::on(Arc::clone(store)), view.clone(), settings, world.clone()).await.unwrap()
}

async fn claimed(store: &Arc<dyn ObjectStore>, view: &View, seed: u64) -> Sink {
    open(store, view, SchemaChange::AddColumns, &world(seed).0).await.claim().await.unwrap()
}

async fn metadata_of(store: &Arc<dyn ObjectStore>) -> Value {
    let facts = log(store, &world(1).0).facts().await.unwrap();
    serde_json::to_value(facts.metadata.unwrap()).unwrap()
}

fn columns_of(metadata: &Value) -> Vec<String> {
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    schema["fields"].as_array().unwrap().iter().skip(3).map(|f| f["name"].as_str().unwrap().to_owned()).collect()
}

/// How many versions set metadata, the table being healthy.
async fn metadata_commits(store: &Arc<dyn ObjectStore>) -> usize {
    let log = log(store, &world(1).0);
    let report = verify_deep(&log, None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    let mut found = 0;
    for version in 0..=report.head {
        found += usize::from(log.commit(version).await.unwrap().unwrap().table.is_some());
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_the_put_a_column_is_added_once_with_its_rows() {
    for fault in 0..4 {
        let inner = memory();
        drop(sink(&inner, &world(1).0).await);
        let before = metadata_of(&inner).await;
        let made = match fault {
            0 => Fault::Before,
            1 => Fault::Lost,
            2 => Fault::Resent,
            _ => Fault::Late,
        };
        // The claim comes first.
        let faults = vec![Fault::First(Box::new(|_| Box::pin(async {}))), made];
        let mut sink = claimed(&FaultStore::around(Arc::clone(&inner), faults), &wider(&["more"]), 2).await;
        sink.append(inserts(&wider(&["more"]), 10, 12)).await.unwrap();
        sink.append(inserts(&wider(&["more"]), 12, 13)).await.unwrap();
        assert_eq!(metadata_commits(&inner).await, 2, "fault {fault}");
        let mut after = metadata_of(&inner).await;
        assert_eq!(columns_of(&after), ["id", "name", "more"]);
        let (old, new) = (before["schemaString"].as_str().unwrap(), after["schemaString"].as_str().unwrap());
        assert!(new.starts_with(old.strip_suffix("]}").unwrap()), "the columns before are spelled as they were: {new}");
        after["schemaString"] = before["schemaString"].clone();
        assert_eq!(after, before, "nothing else changed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_with_other_columns_the_fenced_one_changes_nothing() {
    let store = memory();
    drop(sink(&store, &world(1).0).await);
    let mut older = claimed(&store, &wider(&["a"]), 2).await;
    let mut newer = claimed(&store, &wider(&["b"]), 3).await;
    let fenced = older.append(inserts(&wider(&["a"]), 10, 11)).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert_eq!(columns_of(&metadata_of(&store).await), ["id", "name"]);
    newer.append(inserts(&wider(&["b"]), 10, 11)).await.unwrap();
    let fenced = older.append(inserts(&wider(&["a"]), 11, 12)).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert_eq!(columns_of(&metadata_of(&store).await), ["id", "name", "b"]);
    assert_eq!(metadata_commits(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_set_while_a_column_is_added_stays() {
    let inner = memory();
    drop(sink(&inner, &world(1).0).await);
    let mut metadata = metadata_of(&inner).await;
    metadata["configuration"]["owner"] = json!("somebody");
    let entry =
        format!("{{\"commitInfo\":{{\"operation\":\"SET TBLPROPERTIES\"}}}}\n{}\n", json!({"metaData": metadata}));
    let foreign = Fault::First(Box::new(move |store: Arc<dyn ObjectStore>| {
        Box::pin(async move {
            store.put(&Path::from("_delta_log/00000000000000000002.json"), entry.into()).await.unwrap();
        })
    }));
    let faults = vec![Fault::First(Box::new(|_| Box::pin(async {}))), foreign];
    let mut sink = claimed(&FaultStore::around(Arc::clone(&inner), faults), &wider(&["more"]), 2).await;
    sink.append(inserts(&wider(&["more"]), 10, 12)).await.unwrap();
    let after = metadata_of(&inner).await;
    assert_eq!(after["configuration"]["owner"], "somebody");
    assert_eq!(columns_of(&after), ["id", "name", "more"]);
    assert_eq!(metadata_commits(&inner).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_without_the_column_goes_no_further_and_one_with_another_order_does() {
    let store = memory();
    drop(sink(&store, &world(1).0).await);
    claimed(&store, &wider(&["more"]), 2).await.append(inserts(&wider(&["more"]), 10, 11)).await.unwrap();
    for (seed, (policy, view, expected)) in (10..).zip([
        (SchemaChange::AddColumns, view(), Err("column \"more\" string is removed")),
        (SchemaChange::Fail, wider(&["other", "more"]), Err("column \"other\" string is added")),
        (SchemaChange::Reload, wider(&["other", "more"]), Err("column \"other\" string is added")),
        (SchemaChange::Fail, wider(&["more"]), Ok(())),
    ]) {
        let target = open(&store, &view, policy, &world(seed).0).await;
        match expected {
            Ok(()) => target.check_follow().unwrap(),
            Err(words) => {
                let error = target.check_follow().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Incompatible);
                assert!(error.message().contains(words), "{error}");
                let mut sink = target.claim().await.unwrap();
                let refused = sink.append(inserts(&view, 11, 12)).await.unwrap_err();
                assert_eq!(refused.message(), error.message());
            }
        }
    }
    let mut sink = claimed(&store, &wider(&["more"]), 4).await;
    let other_key = View::new("v", wider(&["more"]).schema(), vec![]).unwrap();
    assert_eq!(sink.deliver(other_key).unwrap_err().kind(), ErrorKind::Refused);
    sink.deliver(wider(&["third", "more"])).unwrap();
    sink.append(inserts(&wider(&["third", "more"]), 11, 12)).await.unwrap();
    assert_eq!(columns_of(&metadata_of(&store).await), ["id", "name", "more", "third"]);
}

const READ: &str = "readers_see_a_column_that_was_added_as_null_before";

#[test]
fn readers_see_a_column_that_was_added_as_null_before() {
    let site = Site::new();
    let folder = site.feed().join("rows");
    let add = "--set=pipelines.p.views.rows.connectors.lake.schema_change=add_columns";
    let ids = |ids: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(ids.to_vec())) };
    let texts = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let marks = |at: i64, ops: &[&str]| vec![("__step", ids(&vec![at; ops.len()])), ("__op", texts(ops))];
    let land = |name: &str, columns: Vec<(&str, ArrayRef)>| Landing::new(&folder, name.into()).parquet(columns).land();
    land("snapshot-1.parquet", vec![("id", ids(&[1, 2, 3])), ("name", texts(&["a", "b", "c"]))]);
    land("changes-1-2.parquet", [marks(2, &["i"]), vec![("id", ids(&[4])), ("name", texts(&["d"]))]].concat());
    site.run(&["run", "--once", UNSYNCED]).ended(0, 0);
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(1), None]));
    assert_eq!(times.data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None));
    let third = [
        marks(3, &["u", "i"]),
        vec![("at", times), ("id", ids(&[1, 5])), ("name", texts(&["A", "e"])), ("note", texts(&["x", "y"]))],
    ];
    land("changes-2-3.parquet", third.concat());
    let refused = site.run(&["run", "--once", UNSYNCED]).ended(5, 0).stderr;
    for part in ["changes-2-3.parquet after step 2", "column \"at\" timestamp_ntz is added", "add_columns"] {
        assert!(refused.contains(part), "{part} is not in {refused}");
    }
    site.run(&["run", "--once", UNSYNCED, add]).ended(0, 0);
    site.run(&["verify", "table", "--deep"]).ended(0, 0);
    let state = site.run(&["state", "table"]).ended(0, 0).stdout;
    assert!(state.contains(r#"{"id":2,"name":"b","at":null,"note":null}"#), "{state}");
    assert!(state.contains(r#""name":"A""#) && state.contains(r#""note":"x""#), "{state}");
    let stamps = site.stamps();
    assert_eq!(
        stamps.iter().map(|s| s["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["reload", "append", "mark", "append"]
    );
    let Some(readers) = Readers::find(READ) else { return };
    let table = site.table().display().to_string();
    readers.read(&["log", &table]);
    for engine in ["duckdb", "polars", "deltalake"] {
        let read = readers.read(&[engine, &table]);
        assert_eq!(read["rows"], 6, "{engine}: {read}");
        assert_eq!(read["digest"], stamps[3]["digest_total"], "{engine}: {read}");
        let found = readers.read(&[engine, &table, "--where", "note = 'x'"]);
        assert_eq!(found["rows"], 1, "{engine}: {found}");
    }
}

#[test]
fn a_running_process_waits_for_a_snapshot_in_the_columns_that_follow_and_loads_it_once() {
    const TEST: &str = "a_running_process_waits_for_a_snapshot_in_the_columns_that_follow_and_loads_it_once";
    let site = Site::new();
    let folder = site.feed().join("rows");
    let numbers = |numbers: &[i64]| -> ArrayRef { Arc::new(Int64Array::from(numbers.to_vec())) };
    let texts = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let land = |name: &str, columns: Vec<(&str, ArrayRef)>| Landing::new(&folder, name.into()).parquet(columns).land();
    let changes = |step: i64, name: ArrayRef| {
        vec![("__step", numbers(&[step])), ("__op", texts(&["i"])), ("id", numbers(&[step])), ("name", name)]
    };
    let reload = "--set=pipelines.p.views.rows.connectors.lake.schema_change=reload";
    land("snapshot-1.parquet", vec![("id", numbers(&[1])), ("name", texts(&["a"]))]);
    let mut process = site.start(&["run", UNSYNCED, reload]);
    land("changes-1-2.parquet", changes(2, texts(&["b"])));
    land("changes-2-3.parquet", changes(3, numbers(&[30])));
    let waits = wait_until(PATIENCE, || process.said().contains("land a snapshot of step 2"));
    assert!(waits && site.last_step() == Some(2), "{}", process.said());
    let waits = site.run(&["run", "--once", "--set=pipelines.p.views.rows.connectors.lake.schema_change=fail"]);
    waits.ended(5, 0);
    land("snapshot-2.parquet", vec![("id", numbers(&[1, 2])), ("name", numbers(&[10, 20]))]);
    let arrived = wait_until(PATIENCE, || site.last_step() == Some(3) || process.ended().is_some());
    assert!(arrived && process.ended().is_none(), "{}", process.said());
    process.signal("TERM");
    assert_eq!(process.code(), Some(0), "{}", process.said());
    for _ in 0..2 {
        site.run(&["run", "--once", UNSYNCED, reload]).ended(0, 0);
    }
    site.run(&["verify", "table", "--deep"]).ended(0, 0);
    let stamps = site.stamps();
    let reloads: Vec<&Value> = stamps.iter().filter(|s| s["kind"] == "reload").collect();
    assert_eq!(reloads.len(), 2);
    assert_eq!(reloads[1]["reset"]["who"], "schema_change = \"reload\"");
    let why = reloads[1]["reset"]["why"].as_str().unwrap();
    assert!(why.ends_with("column \"name\" is bigint and was string"), "{why}");
    let Some(readers) = Readers::find(TEST) else { return };
    let table = site.table().display().to_string();
    readers.read(&["log", &table]);
    for engine in ["duckdb", "polars", "deltalake"] {
        let read = readers.read(&[engine, &table]);
        assert_eq!((&read["rows"], &read["digest"]), (&json!(3), &stamps.last().unwrap()["digest_total"]), "{engine}");
    }
}
