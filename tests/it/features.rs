//! Tables of others with the features that they may have: reloaded, appended to, and read by other engines.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::state::state as state_of;
use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{
    Access, Applied, Changes, Durability, ErrorKind, Location, OnExisting, Sink, SinkSettings, Snapshot, Standing,
    StepRange, Target, View, World,
};
use futures::{FutureExt, TryStreamExt};
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::faults::{Fault, FaultStore};
use crate::program::Readers;
use crate::world::{TestClock, memory, settings, step, world};

const START: i64 = 1_700_000_000_000;

/// A keyed view `(id bigint, name string, info struct<a int, tags array<struct<x string>>>)`.
fn view() -> View {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("info", DataType::Struct(info_fields()), true),
    ]);
    View::new("v", &schema, vec!["id".into()]).unwrap()
}

fn tag_fields() -> Fields {
    vec![Field::new("x", DataType::Utf8, true)].into()
}

fn info_fields() -> Fields {
    let tag = Field::new("element", DataType::Struct(tag_fields()), true);
    vec![Field::new("a", DataType::Int32, true), Field::new("tags", DataType::List(Arc::new(tag)), true)].into()
}

fn values(ids: &[i64], at: u64) -> Vec<ArrayRef> {
    let names = StringArray::from_iter_values(ids.iter().map(|id| format!("row {id} at {at}")));
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values(ids.iter().flat_map(|id| [format!("{id}"), "t".into()])));
    let tags = StructArray::new(tag_fields(), vec![texts], None);
    let element = Arc::new(Field::new("element", DataType::Struct(tag_fields()), true));
    let tags = ListArray::new(element, OffsetBuffer::from_lengths(ids.iter().map(|_| 2)), Arc::new(tags), None);
    let numbers = Int32Array::from_iter(ids.iter().map(|id| (id % 3 != 0).then_some(*id as i32)));
    let info = StructArray::new(info_fields(), vec![Arc::new(numbers), Arc::new(tags)], None);
    vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(names), Arc::new(info)]
}

fn state(at: u64, ids: &[i64]) -> Snapshot {
    let batch = RecordBatch::try_new(Arc::clone(view().schema()), values(ids, at)).unwrap();
    Snapshot::from_batches(step(at), vec![batch])
}

/// An update of the row with the step's id, for each step in `(from, to]`.
fn changes(from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(steps.clone())), Arc::new(StringArray::from(vec!["u"; steps.len()]))];
    columns.extend(values(&steps, to));
    let batch = RecordBatch::try_new(view().change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

fn truncating() -> SinkSettings {
    let mut settings = settings();
    settings.on_existing = OnExisting::Truncate;
    settings.files.indexed_columns = 2;
    settings
}

fn reset(id: &str) -> ResetStamp {
    ResetStamp { id: id.into(), who: "a test".into(), why: "to see".into() }
}

/// A table of somebody else.
#[derive(Clone)]
struct Foreign {
    protocol: Value,
    properties: Vec<(&'static str, &'static str)>,
    schema: Value,
    domains: Vec<(&'static str, Value)>,
    /// The in-commit timestamp of its commit.
    time: Option<i64>,
    /// What its file's `add` says besides.
    file: Value,
}

fn field(name: &str, data_type: Value, notes: Value) -> Value {
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": notes })
}

fn structure(fields: Vec<Value>) -> Value {
    json!({ "type": "struct", "fields": fields })
}

impl Foreign {
    /// With these features of writers; those of readers are found out.
    fn with(features: &[&str]) -> Self {
        const READERS: &[&str] = &[
            "columnMapping",
            "deletionVectors",
            "timestampNtz",
            "variantType",
            "variantShredding",
            "typeWidening",
            "v2Checkpoint",
            "vacuumProtocolCheck",
        ];
        let readers: Vec<&str> = features.iter().copied().filter(|f| READERS.contains(f)).collect();
        let info = structure(vec![field("a", json!("integer"), json!({})), field("gone", json!("string"), json!({}))]);
        Self {
            protocol: json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": features }),
            properties: vec![("owner", "them"), ("delta.logRetentionDuration", "interval 300 days")],
            schema: structure(vec![
                field("id", json!("long"), json!({ "comment": "theirs" })),
                field("old", json!("string"), json!({})),
                field("info", info, json!({})),
            ]),
            domains: vec![],
            time: None,
            file: json!({}),
        }
    }

    fn property(mut self, key: &'static str, value: &'static str) -> Self {
        self.properties.push((key, value));
        self
    }

    fn domain(mut self, name: &'static str, configuration: Value) -> Self {
        self.domains.push((name, configuration));
        self
    }

    /// Mapped by `mode`, with ids 1 to 5 and names of its own.
    fn mapped(mut self, mode: &'static str) -> Self {
        let notes =
            |id: i64| json!({ "delta.columnMapping.id": id, "delta.columnMapping.physicalName": format!("col-{id}") });
        let info = structure(vec![field("a", json!("integer"), notes(4)), field("gone", json!("string"), notes(5))]);
        self.schema = structure(vec![
            field("id", json!("long"), notes(1)),
            field("old", json!("string"), notes(2)),
            field("info", info, notes(3)),
        ]);
        self.property("delta.columnMapping.mode", mode).property("delta.columnMapping.maxColumnId", "7")
    }

    fn metadata(&self) -> Value {
        let properties: serde_json::Map<String, Value> =
            self.properties.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
        json!({
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "name": "theirs", "description": "a table of theirs",
            "format": { "provider": "parquet", "options": {} }, "schemaString": self.schema.to_string(),
            "partitionColumns": [], "createdTime": 1, "configuration": properties
        })
    }

    /// Its only version: one file of four rows.
    async fn write(&self, store: &Arc<dyn ObjectStore>) {
        let mut info = json!({ "timestamp": 1, "operation": "CREATE TABLE" });
        if let Some(time) = self.time {
            info["inCommitTimestamp"] = time.into();
        }
        let mut add = json!({
            "path": "old.parquet", "partitionValues": {}, "size": 4, "modificationTime": 1, "dataChange": true,
            "stats": "{\"numRecords\":4}"
        });
        add.as_object_mut().unwrap().extend(self.file.as_object().unwrap().clone());
        let mut actions = vec![
            json!({ "commitInfo": info }),
            json!({ "protocol": self.protocol }),
            json!({ "metaData": self.metadata() }),
            json!({ "add": add }),
        ];
        for (name, configuration) in &self.domains {
            let configuration = configuration.to_string();
            actions.push(
                json!({ "domainMetadata": { "domain": name, "configuration": configuration, "removed": false } }),
            );
        }
        store.put(&"old.parquet".into(), "rows".into()).await.unwrap();
        put(store, 0, &actions).await;
    }
}

async fn put(store: &Arc<dyn ObjectStore>, version: u64, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    let path = format!("_delta_log/{version:020}.json");
    store.put(&path.into(), (lines.join("\n") + "\n").into()).await.unwrap();
}

/// The actions of every version, in order.
async fn entries(store: &Arc<dyn ObjectStore>) -> Vec<Vec<Value>> {
    let mut entries = Vec::new();
    while let Ok(found) = store.get(&format!("_delta_log/{:020}.json", entries.len()).into()).await {
        let text = String::from_utf8(found.bytes().await.unwrap().to_vec()).unwrap();
        entries.push(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect());
    }
    entries
}

fn actions<'a>(entry: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    entry.iter().filter_map(move |action| action.get(name))
}

fn last_metadata(entries: &[Vec<Value>]) -> Value {
    entries.iter().flat_map(|e| actions(e, "metaData")).last().unwrap().clone()
}

struct Table {
    folder: TempDir,
    location: Location,
    world: World,
    clock: Arc<TestClock>,
}

impl Table {
    async fn of(foreign: &Foreign, seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let location = Location::open(folder.path().to_str().unwrap(), Access::Write(Durability::None)).unwrap();
        let (world, clock) = world(seed);
        foreign.write(location.store()).await;
        Self { folder, location, world, clock }
    }

    async fn target(&self) -> cutover::Result<Target> {
        Target::open(self.location.clone(), view(), truncating(), self.world.clone()).await
    }

    fn log(&self) -> Log {
        Log::new(self.location.clone(), self.world.clone())
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Two generations with appends, a restart, and a checkpoint in between.
    async fn deliver(&self) -> Sink {
        let target = self.target().await.unwrap();
        assert_eq!(target.standing(), &Standing::Foreign);
        let mut sink = target.load(state(10, &[1, 2, 3])).await.unwrap();
        sink.append(changes(10, 12)).await.unwrap();
        let mut facts = self.log().facts().await.unwrap();
        self.log().checkpoint(&mut facts).await.unwrap();
        let mut sink = self.target().await.unwrap().claim().await.unwrap();
        sink.append(changes(12, 13)).await.unwrap();
        sink.reload(state(20, &[4, 5, 6, 7]), reset("r"), Older::Refused).await.unwrap();
        sink.append(changes(20, 21)).await.unwrap();
        sink
    }

    /// Healthy, and its current rows are `ids`.
    async fn check(&self, ids: &[i64], what: &str) {
        let report = verify(&self.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{what}: {:?}", report.findings);
        let state = state_of(&self.log(), None).await.unwrap();
        assert_eq!(state.schema.fields(), view().schema().fields(), "{what}");
        let rows: Vec<RecordBatch> = state.rows.try_collect().await.unwrap();
        let column = |batch: &RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        let found: BTreeSet<i64> = rows.iter().flat_map(column).collect();
        assert_eq!(found, ids.iter().copied().collect(), "{what}");
        for batch in &rows {
            let numbers = batch.column(2).as_struct().column(0).as_primitive::<Int32Type>().clone();
            for (id, number) in column(batch).iter().zip(numbers.iter()) {
                assert_eq!(number, (id % 3 != 0).then_some(*id as i32), "{what}: row {id}");
            }
        }
    }
}

/// What an engine cannot do with anybody's table, by a word of the log that shows it.
const EXCEPTED: &[(&str, &str, Excepted)] = &[
    // It names the feature that it does not know.
    ("deltalake", "typeWidening", Excepted::Refuses),
    ("deltalake", "vacuumProtocolCheck", Excepted::Refuses),
    // It reads arrays of structs as empty then, in tables of Spark too.
    ("chdb", "delta.columnMapping.physicalName", Excepted::MisreadsNested),
];

#[derive(Clone, Copy, PartialEq)]
enum Excepted {
    Refuses,
    MisreadsNested,
}

/// Every engine reads the rows whose digest the last commit tells.
async fn check_readers(test: &str, tables: &[(&str, &Table)]) {
    let Some(readers) = Readers::find(test) else { return };
    let paths: Vec<String> = tables.iter().map(|(_, t)| t.path().display().to_string()).collect();
    let output = readers.command("tables.py", &[&paths.join(",")]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(answers.len(), tables.len() * 4, "{said}{errors}");
    let mut differing = Vec::new();
    for (name, table) in tables {
        let log = entries(table.location.store()).await;
        let stamp = log.last().unwrap()[0]["commitInfo"]["userMetadata"].as_str().unwrap();
        let total = serde_json::from_str::<Value>(stamp).unwrap()["digest_total"].clone();
        let protocol = log.iter().flat_map(|e| actions(e, "protocol")).last().unwrap();
        let shown = format!("{protocol}{}", last_metadata(&log));
        let path = table.path().display().to_string();
        let of_table = || answers.iter().filter(|a| a["table"] == path.as_str());
        let plain = of_table().find(|a| a["engine"] == "duckdb").unwrap()["plain"].clone();
        for answer in of_table() {
            let mut excepted =
                EXCEPTED.iter().filter(|(engine, word, _)| answer["engine"] == *engine && shown.contains(word));
            let is_right = match excepted.next().map(|(.., excepted)| excepted) {
                Some(Excepted::Refuses) => {
                    answer["error"].as_str().is_some_and(|e| e.contains("Unsupported table features"))
                }
                Some(Excepted::MisreadsNested) => answer["plain"] == plain,
                None => answer["digest"] == total,
            };
            if !is_right {
                differing.push(format!("{name}: {answer}, expected {total}"));
            }
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

/// Row ids are dense from `next` on, no two alike, and marked; adds name their version.
fn check_row_ids(entries: &[Vec<Value>], since: usize, mut next: i64) {
    for (version, entry) in entries.iter().enumerate().skip(since) {
        let mut rows = 0;
        for add in actions(entry, "add") {
            assert_eq!(add["baseRowId"], json!(next + rows), "version {version}");
            assert_eq!(add["defaultRowCommitVersion"], json!(version));
            let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
            rows += stats["numRecords"].as_i64().unwrap();
        }
        next += rows;
        let domains: Vec<&Value> = actions(entry, "domainMetadata").collect();
        assert_eq!(domains.len(), usize::from(rows > 0), "version {version}");
        if let Some(domain) = domains.first() {
            assert_eq!(domain["domain"], "delta.rowTracking");
            assert_eq!(domain["configuration"], format!("{{\"rowIdHighWaterMark\":{}}}", next - 1));
        }
    }
}

/// In-commit timestamps increase from `last` on.
fn check_times(entries: &[Vec<Value>], since: usize, mut last: i64) {
    for (version, entry) in entries.iter().enumerate().skip(since) {
        let time = entry[0]["commitInfo"]["inCommitTimestamp"].as_i64();
        assert!(time > Some(last), "version {version}: {time:?} after {last}");
        last = time.unwrap();
    }
}

/// The name and id of each group and column of a data file, in depth-first order.
fn file_fields(path: &Path) -> Vec<(String, Option<i32>)> {
    fn walk(field: &parquet::schema::types::Type, found: &mut Vec<(String, Option<i32>)>) {
        let info = field.get_basic_info();
        found.push((info.name().into(), info.has_id().then(|| info.id())));
        if field.is_group() {
            field.get_fields().iter().for_each(|f| walk(f, found));
        }
    }
    let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
    let mut found = Vec::new();
    let root = file.metadata().file_metadata().schema_descr().root_schema_ptr();
    root.get_fields().iter().for_each(|f| walk(f, &mut found));
    found
}

/// The name and id that the schema gives each field, in the same order, by the path of names.
fn mapped_fields(schema: &Value) -> Vec<(String, String, i64)> {
    fn walk(data_type: &Value, path: &str, found: &mut Vec<(String, String, i64)>) {
        for field in data_type["fields"].as_array().into_iter().flatten() {
            let path = format!("{path}{}", field["name"].as_str().unwrap());
            let notes = &field["metadata"];
            let name = notes["delta.columnMapping.physicalName"].as_str().unwrap().to_string();
            found.push((path.clone(), name, notes["delta.columnMapping.id"].as_i64().unwrap()));
            walk(&field["type"], &format!("{path}."), found);
        }
        if let Some(element) = data_type.get("elementType") {
            walk(element, path, found);
        }
    }
    let mut found = Vec::new();
    walk(schema, "", &mut found);
    found
}

fn check_mapping(entries: &[Vec<Value>], table: &Table, kept: &[(&str, &str, i64)], max_before: i64) {
    let metadata = last_metadata(entries);
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    let mapped = mapped_fields(&schema);
    let paths: Vec<&str> = mapped.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["__generation", "__step", "__op", "id", "name", "info", "info.a", "info.tags", "info.tags.x"]);
    for (path, name, id) in &mapped {
        match kept.iter().find(|(kept, ..)| kept == path) {
            Some((_, kept_name, kept_id)) => assert_eq!((name.as_str(), *id), (*kept_name, *kept_id), "{path}"),
            None => assert!(*id > max_before && name.len() == "col-".len() + 36, "{path} is {name}, {id}"),
        }
    }
    let ids: BTreeSet<i64> = mapped.iter().map(|(_, _, id)| *id).collect();
    assert_eq!(ids.len(), mapped.len(), "no id twice");
    let max = ids.last().unwrap().to_string();
    assert_eq!(metadata["configuration"]["delta.columnMapping.maxColumnId"], max.as_str());
    for add in actions(entries.last().unwrap(), "add") {
        let fields = file_fields(&table.path().join(add["path"].as_str().unwrap()));
        let named: Vec<(String, Option<i32>)> =
            fields.into_iter().filter(|(name, _)| !["list", "element"].contains(&name.as_str())).collect();
        let expected: Vec<(String, Option<i32>)> =
            mapped.iter().map(|(_, name, id)| (name.clone(), Some(*id as i32))).collect();
        assert_eq!(named, expected);
        let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
        let physical = &mapped[0].1;
        assert!(stats["minValues"].get(physical).is_some(), "{stats}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_features_are_reloaded_and_every_reader_reads_them() {
    let far = START + 1_000_000;
    let tracked = json!({ "baseRowId": 0, "defaultRowCommitVersion": 0 });
    let mark = json!({ "rowIdHighWaterMark": 3 });
    let all = &[
        "appendOnly",
        "invariants",
        "changeDataFeed",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "rowTracking",
        "inCommitTimestamp",
        "clustering",
        "v2Checkpoint",
        "timestampNtz",
    ];
    let noted = |key: &str, value: Value| field("id", json!("long"), json!({ key: value }));
    let mut columns = Foreign::with(&[
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "identityColumns",
        "allowColumnDefaults",
        "checkpointProtection",
        "domainMetadata",
    ])
    .property("delta.enableChangeDataFeed", "true")
    .property("delta.appendOnly", "false")
    .domain("theirs", json!({ "kept": true }));
    columns.schema = structure(vec![
        noted("delta.invariants", json!("{\"expression\":{\"expression\":\"id > 100\"}}")),
        field("g", json!("long"), json!({ "delta.generationExpression": "id + 1" })),
        field("d", json!("long"), json!({ "CURRENT_DEFAULT": "7" })),
        field(
            "i",
            json!("long"),
            json!({ "delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": false }),
        ),
    ]);
    let mut widened = Foreign::with(&["typeWidening", "vacuumProtocolCheck", "variantType"])
        .property("delta.enableTypeWidening", "true");
    widened.schema = structure(vec![noted("delta.typeChanges", json!([{ "fromType": "integer", "toType": "long" }]))]);
    let deleted = Foreign {
        file: json!({ "deletionVector": { "storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA", "offset": 1, "sizeInBytes": 36, "cardinality": 2 } }),
        ..Foreign::with(&["deletionVectors"]).property("delta.enableDeletionVectors", "true")
    };
    let timed = Foreign {
        time: Some(far),
        ..Foreign::with(&["inCommitTimestamp"]).property("delta.enableInCommitTimestamps", "true")
    };
    let numbered = Foreign {
        file: tracked.clone(),
        ..Foreign::with(&["rowTracking", "domainMetadata"])
            .property("delta.enableRowTracking", "true")
            .property("delta.rowTracking.materializedRowIdColumnName", "_row-id-1")
            .property("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-version-1")
            .domain("delta.rowTracking", mark.clone())
    };
    let clustered = Foreign::with(&["clustering", "domainMetadata"])
        .domain("delta.clustering", json!({ "clusteringColumns": [["id"]], "domainName": "delta.clustering" }));
    let everything = Foreign {
        time: Some(far),
        file: tracked,
        ..Foreign::with(all)
            .mapped("name")
            .property("delta.enableInCommitTimestamps", "true")
            .property("delta.enableRowTracking", "true")
            .property("delta.enableDeletionVectors", "true")
            .property("delta.enableChangeDataFeed", "true")
            .property("delta.checkpointPolicy", "v2")
            .domain("delta.rowTracking", mark)
            .domain("delta.clustering", json!({ "clusteringColumns": [["col-1"]] }))
    };
    let legacy = Foreign {
        protocol: json!({ "minReaderVersion": 2, "minWriterVersion": 5 }),
        ..Foreign::with(&[]).mapped("name")
    };
    let cases = [
        ("columns", columns),
        ("deletion vectors", deleted),
        ("in-commit timestamps", timed),
        ("row tracking", numbered),
        ("clustering", clustered),
        ("type widening", widened),
        ("names", Foreign::with(&["columnMapping"]).mapped("name")),
        ("ids", Foreign::with(&["columnMapping"]).mapped("id")),
        ("legacy names", legacy),
        ("v2 checkpoints", Foreign::with(&["v2Checkpoint"]).property("delta.checkpointPolicy", "v2")),
        ("everything", everything),
    ];
    let mut tables = Vec::new();
    for (seed, (name, foreign)) in cases.iter().enumerate() {
        let table = Table::of(foreign, seed as u64).await;
        table.deliver().await;
        table.check(&[4, 5, 6, 7, 21], name).await;
        let entries = entries(table.location.store()).await;
        let (before, after) = (foreign.metadata(), last_metadata(&entries));
        for key in ["id", "name", "description", "createdTime", "format", "partitionColumns"] {
            assert_eq!(after[key], before[key], "{name}: {key}");
        }
        for (key, value) in &foreign.properties {
            let moves = *key == "delta.columnMapping.maxColumnId";
            assert!(moves || after["configuration"][key] == *value, "{name}: {key}");
        }
        let protocols = entries.iter().skip(1).flat_map(|e| actions(e, "protocol")).count();
        assert_eq!(protocols, 0, "{name}: the protocol is kept");
        if foreign.time.is_some() {
            check_times(&entries, 1, far);
        }
        let has = |feature: &str| foreign.protocol.to_string().contains(feature);
        let ids = entries.iter().skip(1).flat_map(|e| actions(e, "add")).filter(|add| add.get("baseRowId").is_some());
        assert_eq!(ids.count() > 0, has("rowTracking"), "{name}");
        if has("rowTracking") {
            check_row_ids(&entries, 1, 4);
        }
        if foreign.properties.iter().any(|(key, _)| *key == "delta.columnMapping.mode") {
            check_mapping(&entries, &table, &[("id", "col-1", 1), ("info", "col-3", 3), ("info.a", "col-4", 4)], 7);
        } else {
            assert!(!after["schemaString"].as_str().unwrap().contains("delta."), "{name}: {after}");
        }
        tables.push((*name, table));
    }
    let clustered = entries(tables[4].1.location.store()).await;
    for add in clustered.iter().skip(1).flat_map(|e| actions(e, "add")) {
        let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
        assert!(stats["minValues"].get("id").is_some() && stats["minValues"].get("name").is_none(), "{stats}");
    }
    let removed = &entries(tables[1].1.location.store()).await[1];
    let removed = actions(removed, "remove").next().unwrap();
    assert_eq!(removed["deletionVector"]["pathOrInlineDv"], "vBn[lx{q8@P<9BNH/isA");
    let named: Vec<(&str, &Table)> = tables.iter().map(|(name, table)| (*name, table)).collect();
    check_readers("tables_with_features_are_reloaded_and_every_reader_reads_them", &named).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_others_renamed_or_dropped_comes_back_under_a_name_and_id_of_its_own() {
    let table = Table::of(&Foreign::with(&["columnMapping"]).mapped("name"), 31).await;
    let mut sink = table.target().await.unwrap().load(state(10, &[1, 2])).await.unwrap();
    let first = last_metadata(&entries(table.location.store()).await);
    let schema: Value = serde_json::from_str(first["schemaString"].as_str().unwrap()).unwrap();
    let before = mapped_fields(&schema);
    // They drop `name` and rename `id`.
    let mut changed = schema.clone();
    let fields = changed["fields"].as_array_mut().unwrap();
    fields.retain(|f| f["name"] != "name");
    fields.iter_mut().filter(|f| f["name"] == "id").for_each(|f| f["name"] = "number".into());
    let mut metadata = first.clone();
    metadata["schemaString"] = changed.to_string().into();
    let store = table.location.store();
    put(store, 2, &[json!({ "commitInfo": { "operation": "DROP COLUMNS" } }), json!({ "metaData": metadata })]).await;
    let lost = sink.append(changes(10, 11)).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ContinuityLost, "{lost}");
    let mut sink = table.target().await.unwrap().claim().await.unwrap();
    sink.reload(state(20, &[4, 5]), reset("r"), Older::Refused).await.unwrap();
    sink.append(changes(20, 22)).await.unwrap();
    table.check(&[4, 5, 21, 22], "after a drop").await;
    let entries = entries(store).await;
    let highest = before.iter().map(|(_, _, id)| *id).max().unwrap();
    let kept: Vec<(&str, &str, i64)> = before
        .iter()
        .filter(|(path, ..)| !["id", "name"].contains(&path.as_str()))
        .map(|(path, name, id)| (path.as_str(), name.as_str(), *id))
        .collect();
    check_mapping(&entries, &table, &kept, highest);
    check_readers("a_column_that_others_renamed_or_dropped", &[("after a drop", &table)]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_commit_timestamps_increase_whatever_the_clock_does() {
    let foreign = Foreign {
        time: Some(START + 5_000),
        ..Foreign::with(&["inCommitTimestamp"]).property("delta.enableInCommitTimestamps", "true")
    };
    let table = Table::of(&foreign, 41).await;
    let mut sink = table.target().await.unwrap().load(state(10, &[1])).await.unwrap();
    sink.append(changes(10, 11)).await.unwrap();
    sink.append(changes(11, 12)).await.unwrap();
    table.clock.advance(Duration::from_secs(100));
    sink.append(changes(12, 13)).await.unwrap();
    let entries = entries(table.location.store()).await;
    let times: Vec<i64> = entries.iter().map(|e| e[0]["commitInfo"]["inCommitTimestamp"].as_i64().unwrap()).collect();
    assert_eq!(times[..4], [START + 5_000, START + 5_001, START + 5_002, START + 5_003]);
    assert!(times[4] >= START + 100_000 && times[4] < START + 101_000, "{times:?}");

    // A commit of others that does not tell its own leaves nothing to be greater than.
    put(table.location.store(), 5, &[json!({ "commitInfo": { "operation": "SET TBLPROPERTIES" } })]).await;
    let refused = sink.append(changes(13, 14)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.message().contains("delta.enableInCommitTimestamps"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_gives_rows_other_ids() {
    let foreign = Foreign {
        file: json!({ "baseRowId": 0, "defaultRowCommitVersion": 0 }),
        ..Foreign::with(&["rowTracking", "domainMetadata"])
            .domain("delta.rowTracking", json!({ "rowIdHighWaterMark": 3 }))
    };
    let inner = memory();
    foreign.write(&inner).await;
    let reserve: Fault = Fault::First(Box::new(|store| {
        async move {
            let configuration = json!({ "rowIdHighWaterMark": 99 }).to_string();
            let domain = json!({ "domain": "delta.rowTracking", "configuration": configuration, "removed": false });
            let info = json!({ "operation": "OPTIMIZE" });
            put(&store, 2, &[json!({ "commitInfo": info }), json!({ "domainMetadata": domain })]).await;
        }
        .boxed()
    }));
    let nothing: Fault = Fault::First(Box::new(|_| async {}.boxed()));
    let store = FaultStore::around(Arc::clone(&inner), vec![nothing, reserve]);
    let (world, _) = world(51);
    let target = Target::open(Location::on(Arc::clone(&store)), view(), truncating(), world).await.unwrap();
    let mut sink = target.load(state(10, &[1, 2, 3])).await.unwrap();
    assert!(matches!(sink.append(changes(10, 12)).await.unwrap(), Applied::Committed { version: 3, .. }));
    sink.append(changes(12, 13)).await.unwrap();
    let entries = entries(&inner).await;
    check_row_ids(&entries[..2], 1, 4);
    check_row_ids(&entries, 3, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_whose_files_no_longer_fit_the_tables_features_is_taken_again() {
    let clustered = |columns: &str| {
        let domain = json!({ "domain": "delta.clustering", "configuration": columns, "removed": false });
        json!({ "domainMetadata": domain })
    };
    let by_nothing = json!({ "clusteringColumns": [] });
    let plain =
        Foreign::with(&["columnMapping", "clustering", "domainMetadata"]).domain("delta.clustering", by_nothing);
    let mut mapping = plain.metadata();
    mapping["configuration"]["delta.columnMapping.mode"] = "name".into();
    let schema = mapped_as_named(plain.schema.clone(), &mut 0);
    mapping["schemaString"] = schema.to_string().into();
    let events =
        [(clustered("{\"clusteringColumns\":[[\"id\"]]}"), "\"id\""), (json!({ "metaData": mapping }), "\"col-")];
    for (event, words) in events {
        let inner = memory();
        plain.write(&inner).await;
        let shown = event.to_string();
        let first: Fault = Fault::First(Box::new(|store| {
            async move { put(&store, 1, &[json!({ "commitInfo": { "operation": "ALTER TABLE" } }), event]).await }
                .boxed()
        }));
        let store = FaultStore::around(Arc::clone(&inner), vec![first]);
        let open = || Target::open(Location::on(Arc::clone(&store)), view(), truncating(), world(52).0);
        let again = open().await.unwrap().load(state(10, &[1, 2])).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Unavailable, "{shown}: {again}");
        assert_eq!(entries(&inner).await.len(), 2, "{shown}");
        open().await.unwrap().load(state(10, &[1, 2])).await.unwrap();
        let log = entries(&inner).await;
        let stats = actions(&log[2], "add").next().unwrap()["stats"].as_str().unwrap().to_string();
        assert!(stats.contains(words), "{shown}: {stats}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspended_row_tracking_gives_no_ids() {
    let foreign = Foreign::with(&["rowTracking", "domainMetadata"]).property("delta.rowTrackingSuspended", "true");
    let table = Table::of(&foreign, 61).await;
    table.deliver().await;
    for entry in entries(table.location.store()).await.iter().skip(1) {
        assert!(actions(entry, "add").all(|add| add.get("baseRowId").is_none()));
        assert_eq!(actions(entry, "domainMetadata").count(), 0);
    }
}

/// The name, size and content of everything in a store.
async fn everything(store: &Arc<dyn ObjectStore>) -> BTreeSet<(String, Vec<u8>)> {
    let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut found = BTreeSet::new();
    for object in objects {
        let bytes = store.get(&object.location).await.unwrap().bytes().await.unwrap();
        found.insert((object.location.to_string(), bytes.to_vec()));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_kept_is_refused_by_its_name_and_remedy_before_a_byte_is_written() {
    let clustering = |columns: Value| {
        Foreign::with(&["clustering", "domainMetadata"])
            .domain("delta.clustering", json!({ "clusteringColumns": columns }))
    };
    let unknown_reader = Foreign {
        protocol: json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["wonders"], "writerFeatures": ["wonders"] }),
        ..Foreign::with(&[])
    };
    let later = Foreign { protocol: json!({ "minReaderVersion": 4, "minWriterVersion": 8 }), ..Foreign::with(&[]) };
    let mut unknown_type = Foreign {
        protocol: json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["geospatial"], "writerFeatures": ["geospatial"] }),
        ..Foreign::with(&[])
    };
    unknown_type.schema = structure(vec![field("place", json!("geometry(OGC:CRS84)"), json!({}))]);
    let timeless = Foreign::with(&["inCommitTimestamp"]).property("delta.enableInCommitTimestamps", "true");
    let cases = [
        (Foreign::with(&["checkConstraints"]).property("delta.constraints.old", "id > 0"), "DROP CONSTRAINT `old`"),
        (
            Foreign::with(&["icebergCompatV2"]).property("delta.enableIcebergCompatV2", "true"),
            "('delta.enableIcebergCompatV2')",
        ),
        (Foreign::with(&["catalogManaged"]), "catalogManaged"),
        (Foreign::with(&["collations"]), "DROP FEATURE `collations`"),
        (Foreign::with(&["wonders"]), "wonders"),
        (unknown_reader, "wonders"),
        (unknown_type, "geospatial"),
        (later, ""),
        (clustering(json!([["old"]])), "CLUSTER BY NONE"),
        (clustering(json!([["info", "a"]])), "info.a"),
        (clustering(json!([["info"]])), "info"),
        (timeless, "delta.enableInCommitTimestamps"),
        (Foreign::with(&[]).property("delta.setTransactionRetentionDuration", "interval 1 day"), "UNSET TBLPROPERTIES"),
    ];
    for (foreign, words) in cases {
        let store = memory();
        foreign.write(&store).await;
        let before = everything(&store).await;
        let location = Location::on(Arc::clone(&store));
        let refused = match Target::open(location, view(), truncating(), world(71).0).await {
            Ok(_) => panic!("{words}: {} was taken", foreign.protocol),
            Err(e) => e,
        };
        assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
        assert!(refused.message().contains(words), "{words}: {refused}");
        assert_eq!(everything(&store).await, before, "{words}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_a_feature_takes_are_refused() {
    let feed = Foreign::with(&["changeDataFeed"]).property("delta.enableChangeDataFeed", "true");
    let ids = Foreign::with(&["rowTracking", "domainMetadata"])
        .property("delta.rowTracking.materializedRowIdColumnName", "_row_id");
    for (foreign, column) in [(feed, "_commit_version"), (ids, "_row_id")] {
        let store = memory();
        foreign.write(&store).await;
        let columns = vec![Field::new("id", DataType::Int64, false), Field::new(column, DataType::Int64, true)];
        let view = View::new("v", &Schema::new(columns), vec!["id".into()]).unwrap();
        let opened = Target::open(Location::on(store), view, truncating(), world(72).0).await;
        let refused = opened.err().unwrap();
        assert!(refused.kind() == ErrorKind::Incompatible && refused.message().contains(column), "{refused}");
    }
}

/// Metadata of the head with more properties, and another schema where given.
async fn altered(store: &Arc<dyn ObjectStore>, properties: &[(&str, &str)], schema: Option<Value>) -> Value {
    let mut metadata = last_metadata(&entries(store).await);
    for (key, value) in properties {
        metadata["configuration"][*key] = json!(value);
    }
    if let Some(schema) = schema {
        metadata["schemaString"] = schema.to_string().into();
    }
    json!({ "metaData": metadata })
}

fn protocol(readers: &[&str], writers: &[&str]) -> Value {
    json!({ "protocol": { "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": readers, "writerFeatures": writers } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_that_others_switch_on_are_honoured_from_there_on() {
    let table = Table::of(&Foreign::with(&["appendOnly", "invariants"]), 81).await;
    let mut sink = table.target().await.unwrap().load(state(10, &[1, 2, 3])).await.unwrap();
    let store = table.location.store();
    let alter = |time: i64| json!({ "commitInfo": { "operation": "SET TBLPROPERTIES", "inCommitTimestamp": time } });
    let writers = ["appendOnly", "invariants", "inCommitTimestamp", "rowTracking", "domainMetadata"];
    let far = START + 1_000_000;
    let times = [
        ("delta.enableInCommitTimestamps", "true"),
        ("delta.inCommitTimestampEnablementVersion", "2"),
        ("delta.inCommitTimestampEnablementTimestamp", "1700001000000"),
    ];
    put(store, 2, &[alter(far), protocol(&[], &writers), altered(store, &times, None).await]).await;
    sink.append(changes(10, 11)).await.unwrap();
    // Ids for the rows that are there, then row tracking is on.
    let log = entries(store).await;
    let mut again: Vec<Value> = vec![alter(far + 10)];
    for (n, add) in log.iter().skip(1).flat_map(|e| actions(e, "add")).enumerate() {
        let mut add = add.clone();
        add["dataChange"] = false.into();
        if add.get("baseRowId").is_none() {
            add["baseRowId"] = (1_000 + 10 * n as i64).into();
            add["defaultRowCommitVersion"] = 4.into();
        }
        again.push(json!({ "add": add }));
    }
    let configuration = json!({ "rowIdHighWaterMark": 1_099 }).to_string();
    again.push(json!({ "domainMetadata": { "domain": "delta.rowTracking", "configuration": configuration, "removed": false } }));
    let ids = [
        ("delta.enableRowTracking", "true"),
        ("delta.rowTracking.materializedRowIdColumnName", "_row-id-1"),
        ("delta.rowTracking.materializedRowCommitVersionColumnName", "_row-version-1"),
    ];
    again.push(altered(store, &ids, None).await);
    put(store, 4, &again).await;
    sink.append(changes(11, 12)).await.unwrap();
    // Columns are mapped to the names that they have.
    let schema: Value =
        serde_json::from_str(last_metadata(&entries(store).await)["schemaString"].as_str().unwrap()).unwrap();
    let mut next = 0;
    let schema = mapped_as_named(schema, &mut next);
    let mapping = [("delta.columnMapping.mode", "name"), ("delta.columnMapping.maxColumnId", "9")];
    let writers: Vec<&str> = writers.into_iter().chain(["columnMapping"]).collect();
    let commit =
        [alter(far + 20), protocol(&["columnMapping"], &writers), altered(store, &mapping, Some(schema)).await];
    put(store, 6, &commit).await;
    sink.append(changes(12, 13)).await.unwrap();
    table.check(&[1, 2, 3, 11, 12, 13], "features switched on").await;
    let log = entries(store).await;
    assert_eq!(log.len(), 8);
    check_times(&log, 2, START);
    check_row_ids(&log[..6], 5, 1_100);
    check_row_ids(&log, 7, 1_101);
    let file = actions(&log[7], "add").next().unwrap()["path"].as_str().unwrap();
    assert!(file_fields(&table.path().join(file)).contains(&("name".to_string(), Some(5))));
    check_readers("features_that_others_switch_on_are_honoured", &[("switched on", &table)]).await;
    drop(sink);
    let mut sink = table.target().await.unwrap().claim().await.unwrap();
    sink.reload(state(20, &[7]), reset("r"), Older::Refused).await.unwrap();
    table.check(&[7], "after a reload").await;
    check_readers("features_that_others_switch_on_are_honoured", &[("reloaded", &table)]).await;
}

fn mapped_as_named(mut data_type: Value, next: &mut i64) -> Value {
    for field in data_type.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten() {
        *next += 1;
        field["metadata"] =
            json!({ "delta.columnMapping.id": *next, "delta.columnMapping.physicalName": field["name"] });
        field["type"] = mapped_as_named(field["type"].take(), next);
    }
    if data_type.get("elementType").is_some() {
        data_type["elementType"] = mapped_as_named(data_type["elementType"].take(), next);
    }
    data_type
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_switch_on_and_is_not_kept_is_drift() {
    let constraint = [("delta.constraints.positive", "id > 0")];
    let compat = [("delta.enableIcebergCompatV2", "true")];
    type Case<'a> = (Option<Value>, &'a [(&'a str, &'a str)], &'a str);
    let cases: [Case<'_>; 4] = [
        (Some(protocol(&[], &["checkConstraints"])), &constraint, "delta.constraints.positive"),
        (Some(protocol(&[], &["icebergCompatV2"])), &compat, "delta.enableIcebergCompatV2"),
        (Some(protocol(&[], &["collations"])), &[], "collations"),
        (Some(protocol(&["wonders"], &["wonders"])), &[], "wonders"),
    ];
    for (protocol, properties, words) in cases {
        let table = Table::of(&Foreign::with(&["appendOnly"]), 91).await;
        let mut sink = table.target().await.unwrap().load(state(10, &[1])).await.unwrap();
        let store = table.location.store();
        let mut commit = vec![json!({ "commitInfo": { "operation": "SET TBLPROPERTIES" } })];
        commit.extend(protocol);
        commit.push(altered(store, properties, None).await);
        put(store, 2, &commit).await;
        let lost = sink.append(changes(10, 11)).await.unwrap_err();
        assert!(matches!(lost.kind(), ErrorKind::ContinuityLost | ErrorKind::Incompatible), "{words}: {lost}");
        assert!(lost.message().contains(words), "{words}: {lost}");
        let report = verify(&table.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Broken, "{words}");
        assert!(report.findings.iter().any(|f| f.message.contains(words)), "{words}: {:?}", report.findings);
        assert_eq!(entries(store).await.len(), 3, "{words}");
        let read = state_of(&table.log(), None).await;
        match read {
            Err(e) => {
                assert!(words == "wonders" && e.kind() == ErrorKind::Incompatible && e.message().contains(words), "{e}")
            }
            Ok(_) => assert_ne!(words, "wonders"),
        }
    }
}
