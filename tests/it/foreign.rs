//! Tables of somebody else with the features that they may have, what is delivered to them, and how they are read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, Schema};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::state::state as state_of;
use cutover::inspect::{Verdict, verify_deep};
use cutover::log::Log;
use cutover::{
    Access, Changes, Durability, Location, OnExisting, Sink, SinkSettings, Snapshot, Standing, StepRange, Target, View,
    World,
};
use futures::TryStreamExt;
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Readers;
use crate::world::{TestClock, settings, step, world};

pub(crate) const START: i64 = 1_700_000_000_000;

/// A keyed view `(id bigint, name string, info struct<a int, tags array<struct<x string>>>)`.
pub(crate) fn view() -> View {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("info", DataType::Struct(info_fields()), true),
    ]);
    View::new("v", &schema, vec!["id".into()]).unwrap()
}

pub(crate) fn tag_fields() -> Fields {
    vec![Field::new("x", DataType::Utf8, true)].into()
}

pub(crate) fn info_fields() -> Fields {
    let tag = Field::new("element", DataType::Struct(tag_fields()), true);
    vec![Field::new("a", DataType::Int32, true), Field::new("tags", DataType::List(Arc::new(tag)), true)].into()
}

pub(crate) fn values(ids: &[i64], at: u64) -> Vec<ArrayRef> {
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

pub(crate) fn state(at: u64, ids: &[i64]) -> Snapshot {
    let batch = RecordBatch::try_new(Arc::clone(view().schema()), values(ids, at)).unwrap();
    Snapshot::from_batches(step(at), vec![batch])
}

/// An update of the row with the step's id, for each step in `(from, to]`.
pub(crate) fn changes(from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
    let mut columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(steps.clone())), Arc::new(StringArray::from(vec!["u"; steps.len()]))];
    columns.extend(values(&steps, to));
    let batch = RecordBatch::try_new(view().change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

pub(crate) fn truncating() -> SinkSettings {
    let mut settings = settings();
    settings.on_existing = OnExisting::Truncate;
    settings.files.indexed_columns = 2;
    settings
}

pub(crate) fn reset(id: &str) -> ResetStamp {
    ResetStamp { id: id.into(), who: "a test".into(), why: "to see".into() }
}

/// A table of somebody else.
#[derive(Clone)]
pub(crate) struct Foreign {
    pub(crate) protocol: Value,
    pub(crate) properties: Vec<(&'static str, &'static str)>,
    pub(crate) schema: Value,
    pub(crate) domains: Vec<(&'static str, Value)>,
    /// The in-commit timestamp of its commit.
    pub(crate) time: Option<i64>,
    /// What its file's `add` says besides.
    pub(crate) file: Value,
}

pub(crate) fn field(name: &str, data_type: Value, notes: Value) -> Value {
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": notes })
}

pub(crate) fn structure(fields: Vec<Value>) -> Value {
    json!({ "type": "struct", "fields": fields })
}

impl Foreign {
    /// With these features of writers; those of readers are found out.
    pub(crate) fn with(features: &[&str]) -> Self {
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

    pub(crate) fn property(mut self, key: &'static str, value: &'static str) -> Self {
        self.properties.push((key, value));
        self
    }

    pub(crate) fn domain(mut self, name: &'static str, configuration: Value) -> Self {
        self.domains.push((name, configuration));
        self
    }

    /// Mapped by `mode`, with ids 1 to 5 and names of its own.
    pub(crate) fn mapped(mut self, mode: &'static str) -> Self {
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

    pub(crate) fn metadata(&self) -> Value {
        let properties: serde_json::Map<String, Value> =
            self.properties.iter().map(|(k, v)| (k.to_string(), json!(v))).collect();
        json!({
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "name": "theirs", "description": "a table of theirs",
            "format": { "provider": "parquet", "options": {} }, "schemaString": self.schema.to_string(),
            "partitionColumns": [], "createdTime": 1, "configuration": properties
        })
    }

    /// Its only version: one file of four rows.
    pub(crate) async fn write(&self, store: &Arc<dyn ObjectStore>) {
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

pub(crate) async fn put(store: &Arc<dyn ObjectStore>, version: u64, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    let path = format!("_delta_log/{version:020}.json");
    store.put(&path.into(), (lines.join("\n") + "\n").into()).await.unwrap();
}

/// The actions of every version, in order.
pub(crate) async fn entries(store: &Arc<dyn ObjectStore>) -> Vec<Vec<Value>> {
    let mut entries = Vec::new();
    while let Ok(found) = store.get(&format!("_delta_log/{:020}.json", entries.len()).into()).await {
        let text = String::from_utf8(found.bytes().await.unwrap().to_vec()).unwrap();
        entries.push(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect());
    }
    entries
}

pub(crate) fn actions<'a>(entry: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    entry.iter().filter_map(move |action| action.get(name))
}

pub(crate) fn last_metadata(entries: &[Vec<Value>]) -> Value {
    entries.iter().flat_map(|e| actions(e, "metaData")).last().unwrap().clone()
}

pub(crate) struct Table {
    pub(crate) folder: TempDir,
    pub(crate) location: Location,
    pub(crate) world: World,
    pub(crate) clock: Arc<TestClock>,
}

impl Table {
    pub(crate) async fn of(foreign: &Foreign, seed: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let location = Location::open(folder.path().to_str().unwrap(), Access::Write(Durability::None)).unwrap();
        let (world, clock) = world(seed);
        foreign.write(location.store()).await;
        Self { folder, location, world, clock }
    }

    pub(crate) async fn target(&self) -> cutover::Result<Target> {
        Target::open(self.location.clone(), view(), truncating(), self.world.clone()).await
    }

    pub(crate) fn log(&self) -> Log {
        Log::new(self.location.clone(), self.world.clone())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Two generations with appends, a restart, and a checkpoint in between.
    pub(crate) async fn deliver(&self) -> Sink {
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
    pub(crate) async fn check(&self, ids: &[i64], what: &str) {
        let report = verify_deep(&self.log(), None).await.unwrap();
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
pub(crate) const EXCEPTED: &[(&str, &str, Excepted)] = &[
    // It names the feature that it does not know.
    ("deltalake", "typeWidening", Excepted::Refuses),
    ("deltalake", "vacuumProtocolCheck", Excepted::Refuses),
    // It reads arrays of structs as empty then, in tables of Spark too.
    ("chdb", "delta.columnMapping.physicalName", Excepted::MisreadsNested),
];

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Excepted {
    Refuses,
    MisreadsNested,
}

/// Every engine reads the rows whose digest the last commit tells.
pub(crate) async fn check_readers(test: &str, tables: &[(&str, &Table)]) {
    let Some(readers) = Readers::find(test) else { return };
    let paths: Vec<String> = tables.iter().map(|(_, t)| t.path().display().to_string()).collect();
    let said = readers.tell("read.py", &["many", "duckdb,chdb,polars,deltalake"], &paths.join("\n"));
    let answers: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), tables.len() * 4, "{said}");
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
pub(crate) fn check_row_ids(entries: &[Vec<Value>], since: usize, mut next: i64) {
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
pub(crate) fn check_times(entries: &[Vec<Value>], since: usize, mut last: i64) {
    for (version, entry) in entries.iter().enumerate().skip(since) {
        let time = entry[0]["commitInfo"]["inCommitTimestamp"].as_i64();
        assert!(time > Some(last), "version {version}: {time:?} after {last}");
        last = time.unwrap();
    }
}

/// The name and id of each group and column of a data file, in depth-first order.
pub(crate) fn file_fields(path: &Path) -> Vec<(String, Option<i32>)> {
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
pub(crate) fn mapped_fields(schema: &Value) -> Vec<(String, String, i64)> {
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

pub(crate) fn check_mapping(entries: &[Vec<Value>], table: &Table, kept: &[(&str, &str, i64)], max_before: i64) {
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
