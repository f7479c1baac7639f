use std::collections::BTreeMap;

use arrow::array::{Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int32Type};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use super::*;
use crate::change::Changes;
use crate::clock::World;
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::error::ErrorKind;
use crate::log::Location;
use crate::schema::View;
use crate::sink::{Sink, SinkSettings, Target};
use crate::snapshot::Snapshot;
use crate::step::StepRange;

type Row = (i32, Option<i32>);

/// What happens to a table.
#[derive(Debug, Clone)]
enum Event {
    /// An append of so many steps; each change as the distance of its step, the row and what happens to it.
    Append { steps: u64, changes: Vec<(u64, i32, Option<i32>, u8)> },
    /// A reload with these rows, so many steps later.
    Reload { steps: u64, rows: Vec<Row> },
}

fn view(keyed: bool) -> View {
    let schema = Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Int32, true)]);
    View::new("v", &schema, if keyed { vec!["k".into()] } else { vec![] }).unwrap()
}

fn at(step: u64) -> Step {
    Step::new(step).unwrap()
}

fn row_batch(view: &View, rows: &[Row]) -> RecordBatch {
    let k = Int32Array::from_iter_values(rows.iter().map(|r| r.0));
    let v = Int32Array::from_iter(rows.iter().map(|r| r.1));
    RecordBatch::try_new(Arc::clone(view.schema()), vec![Arc::new(k), Arc::new(v)]).unwrap()
}

fn snapshot(view: &View, step: u64, rows: &[Row]) -> Snapshot {
    Snapshot::from_batches(at(step), vec![row_batch(view, rows)])
}

fn change_batch(view: &View, changes: &[(u64, Op, Row)]) -> RecordBatch {
    RecordBatch::try_new(
        view.change_schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(changes.iter().map(|c| c.0 as i64))),
            Arc::new(StringArray::from_iter_values(changes.iter().map(|c| c.1.letter()))),
            Arc::new(Int32Array::from_iter_values(changes.iter().map(|c| c.2.0))),
            Arc::new(Int32Array::from_iter(changes.iter().map(|c| c.2.1))),
        ],
    )
    .unwrap()
}

async fn append(sink: &mut Sink, view: &View, to: u64, changes: &[(u64, Op, Row)]) {
    let range = StepRange::new(sink.last_step().unwrap(), at(to)).unwrap();
    sink.append(Changes::new(range, vec![change_batch(view, changes)]).unwrap()).await.unwrap();
}

async fn load(store: &Arc<InMemory>, view: &View, step: u64, rows: &[Row]) -> Sink {
    let location = Location::on(Arc::clone(store) as Arc<dyn ObjectStore>);
    let mut settings = SinkSettings::new("p/v/c", "source");
    // One file whatever the machine.
    settings.files.threads = 0;
    let target = Target::open(location, view.clone(), settings, World::system()).await.unwrap();
    target.load(snapshot(view, step, rows)).await.unwrap()
}

async fn reload(sink: &mut Sink, view: &View, step: u64, rows: &[Row]) {
    let reset = ResetStamp { id: World::system().ids.draw(), who: "test".into(), why: "test".into() };
    sink.reload(snapshot(view, step, rows), reset, Older::Refused).await.unwrap();
}

fn log(store: &Arc<InMemory>) -> Log {
    Log::new(Location::on(Arc::clone(store) as Arc<dyn ObjectStore>), World::system())
}

async fn folded(log: &Log, step: Option<u64>) -> Result<Vec<Row>> {
    let State { schema, rows, .. } = state(log, step.map(at)).await?;
    let batches: Vec<RecordBatch> = rows.try_collect().await?;
    let mut all = Vec::new();
    for batch in &batches {
        assert_eq!(batch.schema_ref(), &schema);
        let (k, v) = (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_primitive::<Int32Type>());
        all.extend(k.iter().map(Option::unwrap).zip(v));
    }
    all.sort_unstable();
    Ok(all)
}

/// Makes a table of `events`, and what it should hold at each step of its last generation.
async fn build(store: &Arc<InMemory>, view: &View, events: &[Event]) -> BTreeMap<u64, Vec<Row>> {
    let mut sink = load(store, view, 10, &[]).await;
    let mut rows: Vec<Row> = Vec::new();
    let mut expected = BTreeMap::from([(10, rows.clone())]);
    for event in events {
        let last = sink.last_step().unwrap().get();
        match event {
            Event::Reload { steps, rows: loaded } => {
                rows.clone_from(loaded);
                if view.is_keyed() {
                    rows.sort_by_key(|r| r.0);
                    rows.dedup_by_key(|r| r.0);
                }
                reload(&mut sink, view, last + steps, &rows).await;
                expected = BTreeMap::from([(last + steps, rows.clone())]);
            }
            Event::Append { steps, changes } => {
                let mut wanted = changes.clone();
                wanted.sort_by_key(|c| c.0);
                let mut given = Vec::new();
                for step in last + 1..=last + steps {
                    for (_, k, v, choice) in wanted.iter().filter(|c| last + 1 + c.0 % steps == step) {
                        given.extend(apply(view, &mut rows, (*k, *v), *choice).map(|(op, row)| (step, op, row)));
                    }
                    expected.insert(step, rows.clone());
                }
                given.sort_by_key(|c| c.0);
                append(&mut sink, view, last + steps, &given).await;
            }
        }
    }
    expected
}

/// Changes the rows, and says how.
fn apply(view: &View, rows: &mut Vec<Row>, row: Row, choice: u8) -> Option<(Op, Row)> {
    if view.is_keyed() {
        let known = rows.iter().position(|r| r.0 == row.0);
        if choice == 0 {
            known.map(|i| rows.remove(i));
            return Some((Op::Delete, row));
        }
        match known {
            Some(i) => rows[i] = row,
            None => rows.push(row),
        }
        return Some((if known.is_some() { Op::Update } else { Op::Insert }, row));
    }
    if choice == 0 {
        let i = rows.iter().position(|r| *r == row)?;
        rows.remove(i);
        return Some((Op::Delete, row));
    }
    rows.push(row);
    Some((Op::Insert, row))
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let value = || proptest::option::of(0i32..3);
    let append = (1u64..4, proptest::collection::vec((0u64..4, 0i32..5, value(), 0u8..3), 0..12));
    let append = append.prop_map(|(steps, changes)| Event::Append { steps, changes });
    let reload = (0u64..3, proptest::collection::vec((0i32..5, value()), 0..8));
    let reload = reload.prop_map(|(steps, rows)| Event::Reload { steps, rows });
    proptest::collection::vec(prop_oneof![4 => append, 1 => reload], 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_folded_changelog_is_the_view_at_each_step(keyed in any::<bool>(), events in events()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (store, view) = (Arc::new(InMemory::new()), view(keyed));
            let expected = build(&store, &view, &events).await;
            let log = log(&store);
            for (step, rows) in &expected {
                let mut rows = rows.clone();
                rows.sort_unstable();
                prop_assert_eq!(folded(&log, Some(*step)).await.unwrap(), rows, "at step {}", step);
            }
            let (first, last) = (*expected.keys().next().unwrap(), *expected.keys().last().unwrap());
            prop_assert_eq!(folded(&log, None).await.unwrap(), folded(&log, Some(last)).await.unwrap());
            for outside in [first - 1, last + 1] {
                let err = folded(&log, Some(outside)).await.unwrap_err();
                prop_assert_eq!(err.kind(), ErrorKind::Refused);
                let ends = format!("{first} to {last}");
                prop_assert!(err.message().contains(&ends), "{}", err);
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}

/// Commits lines that are not ours, after the head.
async fn commit(store: &Arc<InMemory>, lines: &[Value]) {
    let head = log(store).list(0).await.unwrap().head().unwrap();
    let path = Path::from(format!("_delta_log/{:020}.json", head + 1));
    let info = json!({"commitInfo": {"timestamp": 1, "operation": "WRITE"}});
    let text: String = std::iter::once(&info).chain(lines).map(|l| format!("{l}\n")).collect();
    store.put(&path, PutPayload::from(text)).await.unwrap();
}

fn add(path: &str, size: usize) -> Value {
    json!({"add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": true}})
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Adds a file of changelog rows behind the writers' back.
async fn smuggle(store: &Arc<InMemory>, name: &str, encoded: &str, columns: Vec<(&str, ArrayRef)>) {
    let bytes = parquet(&RecordBatch::try_from_iter(columns).unwrap());
    let size = bytes.len();
    store.put(&Path::from(name), bytes.into()).await.unwrap();
    commit(store, &[add(encoded, size)]).await;
}

fn continuity(generation: i64, step: i64, op: &str) -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("__generation", Arc::new(Int64Array::from(vec![generation])) as ArrayRef),
        ("__step", Arc::new(Int64Array::from(vec![step]))),
        ("__op", Arc::new(StringArray::from(vec![op]))),
    ]
}

fn ints(values: Vec<Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_and_a_table_of_others_are_told_apart() {
    let store = Arc::new(InMemory::new());
    assert_eq!(state(&log(&store), None).await.unwrap_err().kind(), ErrorKind::Internal);
    let schema =
        json!({"type": "struct", "fields": [{"name": "k", "type": "integer", "nullable": true, "metadata": {}}]});
    let lines = [
        json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_string(), "partitionColumns": [], "configuration": {}}}),
    ];
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    store.put(&Path::from(format!("_delta_log/{:020}.json", 0)), PutPayload::from(text)).await.unwrap();
    assert_eq!(state(&log(&store), None).await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_drifted_in_are_folded_when_they_are_of_the_generation() {
    let (store, view) = (Arc::new(InMemory::new()), view(true));
    let mut sink = load(&store, &view, 10, &[(1, Some(1)), (2, Some(2))]).await;
    append(&mut sink, &view, 12, &[(12, Op::Update, (1, Some(5)))]).await;
    // A name that the log spells encoded, a column that the file lacks, other integer and string types.
    let mut columns = continuity(1, 11, "u");
    columns[2].1 = Arc::new(arrow::array::LargeStringArray::from(vec!["u"]));
    columns.push(("k", Arc::new(arrow::array::Int16Array::from(vec![2]))));
    smuggle(&store, "some folder/a b.parquet", "some%20folder/a%20b.parquet", columns).await;
    for (generation, step) in [(2, 11), (1, 13)] {
        let mut columns = continuity(generation, step, "d");
        columns.push(("k", ints(vec![Some(1)])));
        columns.push(("v", ints(vec![None])));
        let name = format!("other-{step}.parquet");
        smuggle(&store, &name, &name, columns).await;
    }
    let log = log(&store);
    assert_eq!(folded(&log, None).await.unwrap(), [(1, Some(5)), (2, None)]);
    assert_eq!(folded(&log, Some(10)).await.unwrap(), [(1, Some(1)), (2, Some(2))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_contradict_each_other_are_corrupt() {
    let cases: [(bool, &str, i64, Option<i32>); 4] =
        [(true, "u", 10, Some(7)), (true, "x", 10, None), (false, "d", 10, Some(9)), (false, "u", 10, Some(1))];
    for (keyed, op, step, v) in cases {
        let (store, view) = (Arc::new(InMemory::new()), view(keyed));
        load(&store, &view, 10, &[(1, Some(1))]).await;
        let mut columns = continuity(1, step, op);
        columns.push(("k", ints(vec![Some(1)])));
        columns.push(("v", ints(vec![v])));
        smuggle(&store, "odd.parquet", "odd.parquet", columns).await;
        let err = folded(&log(&store), None).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{keyed} {op}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_trusted_is_named() {
    let mut columns = continuity(1, 10, "i");
    columns.push(("k", Arc::new(StringArray::from(vec!["7"]))));
    columns.push(("v", ints(vec![None])));
    let text_key = parquet(&RecordBatch::try_from_iter(columns).unwrap());
    let unmarked = parquet(&RecordBatch::try_from_iter(vec![("k", ints(vec![Some(1)]))]).unwrap());
    let (text_size, unmarked_size) = (text_key.len(), unmarked.len());
    let vector = json!({"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40, "cardinality": 1});
    let mut with_vector = add("text-key.parquet", text_size);
    with_vector["add"]["deletionVector"] = vector;
    let cases = [
        ("missing", add("gone.parquet", 10), ErrorKind::Corrupt, "gone.parquet"),
        ("large and missing", add("gone.parquet", 1 << 30), ErrorKind::Corrupt, "gone.parquet"),
        ("shorter", add("text-key.parquet", 10), ErrorKind::Corrupt, "text-key.parquet"),
        ("no Parquet", add("noise.parquet", 64), ErrorKind::Corrupt, "noise.parquet"),
        ("other type", add("text-key.parquet", text_size), ErrorKind::Corrupt, "\"k\""),
        ("no continuity", add("unmarked.parquet", unmarked_size), ErrorKind::Corrupt, "unmarked.parquet"),
        ("deletion vector", with_vector, ErrorKind::Incompatible, "text-key.parquet"),
        ("absolute", add("/noise.parquet", 64), ErrorKind::Corrupt, "/noise.parquet"),
        ("absolute, encoded", add("%2Fnoise.parquet", 64), ErrorKind::Corrupt, "noise.parquet"),
        ("another bucket", add("s3://bucket/noise.parquet", 64), ErrorKind::Corrupt, "s3://"),
        ("upwards", add("a/../../noise.parquet", 64), ErrorKind::Corrupt, ".."),
        ("upwards, encoded", add("%2E%2e/noise.parquet", 64), ErrorKind::Corrupt, "noise.parquet"),
    ];
    for (name, line, kind, said) in cases {
        let (store, view) = (Arc::new(InMemory::new()), view(true));
        load(&store, &view, 10, &[(1, Some(1))]).await;
        store.put(&Path::from("noise.parquet"), vec![7; 64].into()).await.unwrap();
        store.put(&Path::from("text-key.parquet"), text_key.clone().into()).await.unwrap();
        store.put(&Path::from("unmarked.parquet"), unmarked.clone().into()).await.unwrap();
        let mut lines = vec![line];
        if name == "deletion vector" {
            let protocol = json!({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly", "invariants"]});
            lines.insert(0, json!({ "protocol": protocol }));
        }
        commit(&store, &lines).await;
        let err = folded(&log(&store), None).await.unwrap_err();
        assert_eq!(err.kind(), kind, "{name}: {err}");
        assert!(err.message().contains(said), "{name}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_too_large_for_one_fetch_are_folded_too() {
    let (store, view) = (Arc::new(InMemory::new()), view(true));
    let many = 1_500_000;
    // Differences of neighbours are scattered too, so that no encoding makes the file small.
    let scattered = |k: i32| (k, Some((k ^ (k >> 3)).wrapping_mul(k | 1).wrapping_mul(-1_640_531_535)));
    let rows: Vec<Row> = (0..many).map(scattered).collect();
    let mut sink = load(&store, &view, 10, &rows).await;
    append(&mut sink, &view, 11, &[(11, Op::Update, (5, None)), (11, Op::Delete, (many - 1, None))]).await;
    let log = log(&store);
    let files = log.live_files(&log.facts().await.unwrap()).await.unwrap();
    assert!(files.iter().any(|f| f.size > 4 << 20), "{files:?}");
    let mut expected: Vec<Row> = (0..many - 1).map(scattered).collect();
    expected[5].1 = None;
    assert!(folded(&log, None).await.unwrap() == expected);
}
