//! What tables must bear together: features, partitions, added columns, bookmarks, adoptions and resets.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, RecordBatch, StringArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use cutover::continuity::plan::Older;
use cutover::inspect::changes::{Outcome, Proof, changes as news};
use cutover::inspect::state::state as state_of;
use cutover::inspect::{Bookmark, Verdict, verify};
use cutover::sink::{Adopted, Adoption, Destination};
use cutover::{Changes, SchemaChange, Sink, SinkSettings, Snapshot, StepRange, Target, View};
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::foreign::{
    Foreign, START, Table, actions, changes, check_readers, check_row_ids, check_times, entries, file_fields,
    last_metadata, mapped_fields, reset, state, truncating, values, view,
};
use crate::program::Readers;
use crate::world::step;

/// A connector's table, and how it is to be partitioned.
struct Case {
    table: Table,
    partition_by: Option<Vec<String>>,
}

impl Case {
    async fn of(foreign: &Foreign, partition_by: Option<&[&str]>, seed: u64) -> Self {
        let partition_by = partition_by.map(|names| names.iter().map(ToString::to_string).collect());
        Self { table: Table::of(foreign, seed).await, partition_by }
    }

    fn settings(&self, connector: &str) -> SinkSettings {
        let mut settings = truncating();
        settings.connector = connector.into();
        settings.schema_change = SchemaChange::AddColumns;
        settings.partition_by.clone_from(&self.partition_by);
        settings
    }

    async fn target(&self, view: &View, connector: &str) -> Target {
        let (location, world) = (self.table.location.clone(), self.table.world.clone());
        Target::open(location, view.clone(), self.settings(connector), world).await.unwrap()
    }

    async fn claimed(&self, view: &View, connector: &str) -> Sink {
        self.target(view, connector).await.claim().await.unwrap()
    }

    /// The steps and rows beyond a bookmark, and the bookmark behind them.
    async fn beyond(&self, bookmark: Option<&Bookmark>) -> (Outcome, Vec<RecordBatch>, Bookmark) {
        let mut news = news(&self.table.log(), bookmark, None).await.unwrap();
        let (outcome, mut rows) = (news.outcome, Vec::new());
        while let Some(batch) = news.next().await.unwrap() {
            rows.push(batch);
        }
        (outcome, rows, news.finish().unwrap())
    }

    async fn rows_at(&self, at: Option<u64>) -> Vec<RecordBatch> {
        let state = state_of(&self.table.log(), at.map(step)).await.unwrap();
        state.rows.try_collect().await.unwrap()
    }

    async fn assert_healthy(&self, what: &str) {
        let report = verify(&self.table.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{what}: {:?}", report.findings);
    }
}

fn more_fields() -> Fields {
    vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)].into()
}

/// The view of the tables with the columns `note` and `more` in front.
fn wider() -> View {
    let mut fields =
        vec![Field::new("note", DataType::Utf8, true), Field::new("more", DataType::Struct(more_fields()), true)];
    fields.extend(view().schema().fields().iter().map(|f| f.as_ref().clone()));
    View::new("v", &Schema::new(fields), vec!["id".into()]).unwrap()
}

fn wider_values(ids: &[i64], at: u64) -> Vec<ArrayRef> {
    let notes: ArrayRef = Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("note {id}"))));
    let members: Vec<ArrayRef> = vec![Arc::clone(&notes), Arc::new(Int64Array::from(ids.to_vec()))];
    let more = StructArray::new(more_fields(), members, None);
    [vec![notes, Arc::new(more)], values(ids, at)].concat()
}

/// An update of the row with the step's id, for each step in `(from, to]`.
fn wider_changes(from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(steps.clone())), Arc::new(StringArray::from(vec!["u"; steps.len()]))];
    let columns = [columns, wider_values(&steps, to)].concat();
    let batch = RecordBatch::try_new(wider().change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

/// What is in the column `id` of rows, and what `note` has at each.
fn notes_of(rows: &[RecordBatch]) -> BTreeSet<(i64, Option<String>)> {
    let mut found = BTreeSet::new();
    for batch in rows {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        let notes = batch.column_by_name("note").map(|notes| notes.as_string::<i32>());
        let more = batch.column_by_name("more").map(|more| more.as_struct());
        for (row, id) in ids.values().iter().enumerate() {
            let note = notes.filter(|n| n.is_valid(row)).map(|n| n.value(row).to_string());
            let number = more.filter(|m| m.is_valid(row)).map(|m| m.column(1).as_primitive::<Int64Type>().value(row));
            assert_eq!(number, note.as_ref().map(|_| *id), "the struct has values where the text has");
            found.insert((*id, note));
        }
    }
    found
}

fn noted(plain: &[i64], with: &[i64]) -> BTreeSet<(i64, Option<String>)> {
    let plain = plain.iter().map(|id| (*id, None));
    plain.chain(with.iter().map(|id| (*id, Some(format!("note {id}"))))).collect()
}

/// Every mapped column has one id and name, which the newest files know too.
fn check_mapped(entries: &[Vec<Value>], table: &Table, what: &str) -> Vec<(String, String, i64)> {
    let metadata = last_metadata(entries);
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap()).unwrap();
    let mapped = mapped_fields(&schema);
    let ids: BTreeSet<i64> = mapped.iter().map(|(_, _, id)| *id).collect();
    let names: BTreeSet<&str> = mapped.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!((ids.len(), names.len()), (mapped.len(), mapped.len()), "{what}: {mapped:?}");
    let highest = ids.last().unwrap().to_string();
    assert_eq!(metadata["configuration"]["delta.columnMapping.maxColumnId"], highest.as_str(), "{what}");
    for add in actions(entries.last().unwrap(), "add") {
        let fields = file_fields(&table.path().join(add["path"].as_str().unwrap()));
        for (path, name, id) in &mapped {
            assert!(fields.contains(&(name.clone(), Some(*id as i32))), "{what}: {path} is not in {fields:?}");
        }
    }
    mapped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_bookmarks_adoptions_and_resets_go_together_on_every_kind_of_table() {
    const TEST: &str = "columns_bookmarks_adoptions_and_resets_go_together_on_every_kind_of_table";
    let tracked = json!({ "baseRowId": 0, "defaultRowCommitVersion": 0 });
    let timed_and_tracked = Foreign {
        time: Some(START + 1_000_000),
        file: tracked,
        ..Foreign::with(&["rowTracking", "domainMetadata", "inCommitTimestamp"])
            .property("delta.enableRowTracking", "true")
            .property("delta.enableInCommitTimestamps", "true")
            .domain("delta.rowTracking", json!({ "rowIdHighWaterMark": 3 }))
    };
    let cases = [
        ("plain", Foreign::with(&[]), None),
        ("names", Foreign::with(&["columnMapping"]).mapped("name"), None),
        ("ids", Foreign::with(&["columnMapping"]).mapped("id"), None),
        ("row ids and times", timed_and_tracked.clone(), None),
        ("row ids, times and partitions", timed_and_tracked, Some(&["name"][..])),
        ("partitions by key and another", Foreign::with(&[]), Some(&["name", "id"][..])),
        ("partitions in files too", Foreign::with(&["materializePartitionColumns"]), Some(&["name"][..])),
    ];
    let mut tables = Vec::new();
    for (seed, (what, foreign, partition_by)) in cases.iter().enumerate() {
        let case = Case::of(foreign, *partition_by, 100 + seed as u64).await;
        let mut sink = case.target(&view(), "p/v/c").await.load(state(10, &[1, 2, 3])).await.unwrap();
        sink.append(changes(10, 12)).await.unwrap();
        let (outcome, rows, bookmark) = case.beyond(None).await;
        assert_eq!((outcome, notes_of(&rows)), (Outcome::Reload, noted(&[1, 2, 3, 11, 12], &[])), "{what}");

        let mut sink = case.claimed(&wider(), "p/v/c").await;
        sink.append(wider_changes(12, 14)).await.unwrap();
        sink.append(wider_changes(14, 15)).await.unwrap();
        case.assert_healthy(what).await;
        let added = entries(case.table.location.store()).await;
        let mapped = foreign.properties.iter().any(|(key, _)| *key == "delta.columnMapping.mode");
        let mapped = mapped.then(|| check_mapped(&added, &case.table, what));
        let (outcome, rows, bookmark) = case.beyond(Some(&bookmark)).await;
        assert_eq!((outcome, notes_of(&rows)), (Outcome::Changes, noted(&[], &[13, 14, 15])), "{what}");
        // Before the columns were added they are null.
        assert_eq!(notes_of(&case.rows_at(Some(11)).await), noted(&[1, 2, 3, 11], &[]), "{what}");
        assert_eq!(notes_of(&case.rows_at(Some(13)).await), noted(&[1, 2, 3, 11, 12], &[13]), "{what}");

        let adoption = Adoption::look(case.table.location.clone(), "p/v/other", case.table.world.clone()).await;
        let adopted = adoption.unwrap().commit("ada", "a new name").await.unwrap();
        assert!(matches!(adopted, Adopted::Committed { .. }), "{what}: {adopted:?}");
        case.assert_healthy(what).await;
        let mut sink = case.claimed(&wider(), "p/v/other").await;
        sink.append(wider_changes(15, 16)).await.unwrap();
        let (outcome, rows, bookmark) = case.beyond(Some(&bookmark)).await;
        assert_eq!((outcome, notes_of(&rows)), (Outcome::Changes, noted(&[], &[16])), "{what}");
        assert_eq!(notes_of(&case.rows_at(None).await), noted(&[1, 2, 3, 11, 12], &[13, 14, 15, 16]), "{what}");

        let rows = RecordBatch::try_new(Arc::clone(wider().schema()), wider_values(&[4, 5], 20)).unwrap();
        let snapshot = Snapshot::from_batches(step(20), vec![rows]);
        sink.reload(snapshot, reset("r"), Older::Refused).await.unwrap();
        sink.append(wider_changes(20, 21)).await.unwrap();
        let (outcome, rows, bookmark) = case.beyond(Some(&bookmark)).await;
        assert_eq!((outcome, notes_of(&rows)), (Outcome::Reload, noted(&[], &[4, 5, 21])), "{what}");
        assert_eq!(case.beyond(Some(&bookmark)).await.0, Outcome::Nothing, "{what}");
        case.assert_healthy(what).await;

        let log = entries(case.table.location.store()).await;
        for since in 0..log.len() as u64 {
            let report = verify(&case.table.log(), Some(since)).await.unwrap();
            assert_eq!(report.verdict, Verdict::Healthy, "{what} since {since}: {:?}", report.findings);
        }
        if let Some(mut before) = mapped {
            let mut after = check_mapped(&log, &case.table, what);
            before.sort();
            after.sort();
            assert_eq!(before, after, "{what}: a reload keeps names and ids");
        }
        if let Some(time) = foreign.time {
            check_times(&log, 1, time);
            check_row_ids(&log, 1, 4);
        }
        tables.push((*what, case.table));
    }
    let named: Vec<(&str, &Table)> = tables.iter().map(|(what, table)| (*what, table)).collect();
    check_readers(TEST, &named).await;
    let Some(readers) = Readers::find(TEST) else { return };
    for (_, table) in &tables {
        readers.read(&["log", &table.path().display().to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_from_before_a_column_outlasts_the_log() {
    let cases = [(Foreign::with(&["columnMapping"]).mapped("id"), None), (Foreign::with(&[]), Some(&["name"][..]))];
    for (seed, (foreign, partition_by)) in (300..).zip(cases) {
        let case = Case::of(&foreign, partition_by, seed).await;
        let mut sink = case.target(&view(), "p/v/c").await.load(state(10, &[1, 2, 3])).await.unwrap();
        sink.append(changes(10, 12)).await.unwrap();
        let (_, _, bookmark) = case.beyond(None).await;
        let mut sink = case.claimed(&wider(), "p/v/c").await;
        sink.append(wider_changes(12, 14)).await.unwrap();
        let log = case.table.log();
        let mut facts = log.facts().await.unwrap();
        log.checkpoint(&mut facts).await.unwrap();
        for version in 0..facts.version.unwrap() {
            let entry = format!("_delta_log/{version:020}.json");
            std::fs::remove_file(case.table.path().join(entry)).unwrap();
        }
        assert_eq!(news(&log, Some(&bookmark), None).await.unwrap().proof, Proof::Digest);
        let (outcome, rows, _) = case.beyond(Some(&bookmark)).await;
        assert_eq!((outcome, notes_of(&rows)), (Outcome::Changes, noted(&[], &[13, 14])));
        sink.append(wider_changes(14, 15)).await.unwrap();
        case.assert_healthy("a cleaned log").await;
    }
}

/// A view with the variant `doc`, and one in a struct.
fn with_variants(key: &[String]) -> View {
    let members =
        || vec![Field::new("metadata", DataType::Binary, false), Field::new("value", DataType::Binary, false)];
    let variant = |name: &str| {
        let mark = [("ARROW:extension:name".to_string(), "arrow.parquet.variant".to_string())];
        Field::new(name, DataType::Struct(members().into()), true).with_metadata(mark.into())
    };
    let inside = DataType::Struct(vec![variant("inner")].into());
    let fields = vec![Field::new("id", DataType::Int64, false), variant("doc"), Field::new("box", inside, true)];
    View::new("v", &Schema::new(fields), key.to_vec()).unwrap()
}

fn variant_values(ids: &[i64]) -> Vec<ArrayRef> {
    let view = with_variants(&[]);
    let variant = |field: &Field| -> ArrayRef {
        let DataType::Struct(members) = field.data_type() else { unreachable!() };
        let binary = |bytes: &[u8]| Arc::new(BinaryArray::from(vec![bytes; ids.len()])) as ArrayRef;
        Arc::new(StructArray::new(members.clone(), vec![binary(b"\x01\0\0"), binary(b"\x0c\x2a")], None))
    };
    let [_, doc, outer] = view.schema().fields().as_ref() else { unreachable!() };
    let DataType::Struct(inside) = outer.data_type() else { unreachable!() };
    let outer = StructArray::new(inside.clone(), vec![variant(&inside[0])], None);
    vec![Arc::new(Int64Array::from(ids.to_vec())), variant(doc), Arc::new(outer)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variants_are_the_same_columns_after_a_restart_and_in_every_output() {
    let mapped = Foreign::with(&["columnMapping", "variantType"]).mapped("name");
    let id = vec!["id".to_string()];
    let cases = [(Foreign::with(&[]), id.clone()), (Foreign::with(&[]), vec![]), (mapped, id)];
    for (seed, (foreign, key)) in (200..).zip(cases) {
        let case = Case::of(&foreign, None, seed).await;
        let view = with_variants(&key);
        let rows = RecordBatch::try_new(Arc::clone(view.schema()), variant_values(&[1, 2])).unwrap();
        let snapshot = Snapshot::from_batches(step(10), vec![rows]);
        drop(case.target(&view, "p/v/c").await.load(snapshot).await.unwrap());

        // What a process that starts anew takes for the view is the view.
        let (location, world) = (case.table.location.clone(), case.table.world.clone());
        let destination = Destination::look(location, case.settings("p/v/c"), world).await.unwrap();
        let target = destination.follow("v", &key).unwrap();
        assert_eq!(target.view(), &view);
        let mut sink = target.claim().await.unwrap();
        assert!(sink.has_columns().unwrap());

        // Columns in another order, and one more.
        let mut fields: Vec<Field> = view.schema().fields().iter().rev().map(|f| f.as_ref().clone()).collect();
        fields.push(Field::new("note", DataType::Utf8, true));
        let other = View::new("v", &Schema::new(fields), key).unwrap();
        sink.deliver(other.clone()).unwrap();
        let mut columns: Vec<ArrayRef> = variant_values(&[3]).into_iter().rev().collect();
        columns.push(Arc::new(StringArray::from(vec!["note"])));
        let front: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![11])), Arc::new(StringArray::from(vec!["i"]))];
        let batch = RecordBatch::try_new(other.change_schema(), [front, columns].concat()).unwrap();
        let range = StepRange::new(step(10), step(11)).unwrap();
        sink.append(Changes::new(range, vec![batch]).unwrap()).await.unwrap();

        case.assert_healthy("variants").await;
        let (outcome, rows, _) = case.beyond(None).await;
        assert_eq!((outcome, rows.iter().map(RecordBatch::num_rows).sum::<usize>()), (Outcome::Reload, 3));
        let rows = case.rows_at(None).await;
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        for batch in rows {
            for variant in [batch.column(1).as_struct(), batch.column(2).as_struct().column(0).as_struct()] {
                assert!(variant.column(1).as_binary::<i32>().iter().all(|value| value == Some(b"\x0c\x2a")));
            }
        }
    }
}
