//! What others do to a table that is the view, and what it had before it became one.

use std::fs;

use cutover::continuity::stamp::Layout;
use cutover::{Applied, ErrorKind, OnExisting};
use serde_json::{Value, json};

use super::tables::{Table, changes, digest, reload, rows};
use crate::program::{Chance, Readers};

impl Table {
    fn entry(&self, version: u64) -> std::path::PathBuf {
        self.home.path().join(format!("table/_delta_log/{version:020}.json"))
    }

    fn actions(&self, version: u64) -> Vec<Value> {
        let text = fs::read_to_string(self.entry(version)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn put(&self, version: u64, actions: &[Value]) {
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        fs::create_dir_all(self.entry(version).parent().unwrap()).unwrap();
        fs::write(self.entry(version), lines.join("\n")).unwrap();
    }

    /// The live files by their `add` actions.
    fn live(&self, head: u64) -> Vec<Value> {
        let mut live: Vec<Value> = Vec::new();
        for action in (0..=head).flat_map(|version| self.actions(version)) {
            if let Some(remove) = action.get("remove") {
                live.retain(|add| add["path"] != remove["path"]);
            }
            live.extend(action.get("add").cloned());
        }
        live
    }
}

/// A commit of somebody else that rewrites a file without vector, as a compaction does: the same bytes under another name.
fn rewrite(table: &Table, head: u64) {
    let whole = table.live(head).into_iter().find(|add| add.get("deletionVector").is_none()).unwrap();
    let folder = table.home.path().join("table");
    fs::copy(folder.join(whole["path"].as_str().unwrap()), folder.join("rewritten.parquet")).unwrap();
    let mut add = whole.clone();
    (add["path"], add["dataChange"]) = ("rewritten.parquet".into(), false.into());
    let remove = json!({"path": whole["path"], "dataChange": false, "deletionTimestamp": 1, "size": whole["size"]});
    let info = json!({"operation": "OPTIMIZE"});
    table.put(head + 1, &[json!({"commitInfo": info}), json!({"remove": remove}), json!({"add": add})]);
}

#[tokio::test]
async fn what_others_rewrite_is_found_again_and_a_plan_that_it_touches_is_made_anew() {
    let mut chance = Chance::new("what_others_rewrite_is_found_again");
    let seed = chance.seed;
    let table = Table::new();
    let mut model = rows(&mut chance, 100, 90, 5);
    let mut sink = table.sink(&model, 5).await;
    for at in 5..12 {
        sink.append(changes(&mut chance, &mut model, 100, at, at + 1, 20)).await.unwrap();
        // The sink does not know of it when it plans the next step.
        rewrite(&table, sink.facts().version.unwrap());
        fs::rename(table.home.path().join("table/rewritten.parquet"), table.home.path().join("table/r.parquet"))
            .unwrap();
        let path = table.entry(sink.facts().version.unwrap() + 1);
        let text = fs::read_to_string(&path).unwrap().replace("rewritten.parquet", &format!("r-{at}.parquet"));
        fs::write(path, text).unwrap();
        fs::rename(table.home.path().join("table/r.parquet"), table.home.path().join(format!("table/r-{at}.parquet")))
            .unwrap();
    }
    sink.append(changes(&mut chance, &mut model, 100, 12, 13, 20)).await.unwrap();
    table.holds(&model, seed).await;
}

#[tokio::test]
async fn rows_that_others_delete_are_drift_and_a_reset_repairs_it() {
    let mut chance = Chance::new("rows_that_others_delete_are_drift");
    let seed = chance.seed;
    let table = Table::new();
    let mut model = rows(&mut chance, 50, 40, 5);
    let mut sink = table.sink(&model, 5).await;
    sink.append(changes(&mut chance, &mut model, 50, 5, 6, 20)).await.unwrap();
    let head = sink.facts().version.unwrap();
    let gone = table.live(head).remove(0);
    let remove = json!({"path": gone["path"], "dataChange": true, "deletionTimestamp": 1, "deletionVector": gone["deletionVector"]});
    table.put(head + 1, &[json!({"commitInfo": {"operation": "DELETE"}}), json!({"remove": remove})]);
    let lost = sink.append(changes(&mut chance, &mut model, 50, 6, 7, 20)).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::ContinuityLost, "{lost}; seed {seed}");
    reload(&mut sink, &model, 7).await;
    table.holds(&model, seed).await;
}

/// A table of others with the features of `protocol`, the properties `configuration` and no rows.
fn foreign(table: &Table, writer_features: &[&str], configuration: &Value) {
    let features: Vec<&str> = writer_features.iter().copied().filter(|f| *f == "columnMapping").collect();
    let reader = if features.is_empty() { json!([]) } else { json!(features) };
    let field = json!({"name": "old", "type": "long", "nullable": true, "metadata": if features.is_empty() { json!({}) } else {
        json!({"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-old"})
    }});
    let schema = json!({"type": "struct", "fields": [field]}).to_string();
    table.put(0, &[
        json!({"commitInfo": {"operation": "CREATE TABLE"}}),
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer_features}}),
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": [], "configuration": configuration}}),
    ]);
}

#[tokio::test]
async fn a_table_with_features_becomes_the_view_and_keeps_them() {
    let mut chance = Chance::new("a_table_with_features_becomes_the_view");
    let seed = chance.seed;
    let mapped = json!({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"});
    let cases = [
        (vec!["columnMapping"], mapped),
        (
            vec!["rowTracking", "domainMetadata"],
            json!({"delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_row-id", "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version"}),
        ),
        (vec!["inCommitTimestamp"], json!({"delta.enableInCommitTimestamps": "false"})),
    ];
    let readers = Readers::find("a_table_with_features_becomes_the_view");
    for (features, configuration) in cases {
        let mut table = Table::new();
        table.settings.on_existing = OnExisting::Truncate;
        foreign(&table, &features, &configuration);
        let mut model = rows(&mut chance, 60, 50, 5);
        let mut sink = table.target().await.unwrap().load(super::tables::snapshot(&model, 5)).await.unwrap();
        for at in 5..10 {
            sink.append(changes(&mut chance, &mut model, 60, at, at + 1, 20)).await.unwrap();
        }
        table.holds(&model, seed).await;
        let head = sink.facts().version.unwrap();
        for (name, value) in configuration.as_object().unwrap().iter().filter(|(name, _)| !name.contains("maxColumnId"))
        {
            assert_eq!(sink.facts().metadata.as_ref().unwrap().configuration[name], value.as_str().unwrap(), "{name}");
        }
        if features.contains(&"rowTracking") {
            // A file that is added again keeps the ids that its rows have.
            let mut ids = std::collections::BTreeMap::new();
            for add in (1..=head).flat_map(|version| table.actions(version)).filter_map(|a| a.get("add").cloned()) {
                let number = |name: &str| add[name].as_i64().unwrap_or_else(|| panic!("{name} of {add}; seed {seed}"));
                let id = (number("baseRowId"), number("defaultRowCommitVersion"));
                assert_eq!(*ids.entry(add["path"].to_string()).or_insert(id), id, "{add}; seed {seed}");
            }
            assert!(ids.len() > 3, "{ids:?}");
        }
        if let Some(readers) = &readers {
            let read = readers.read(&["duckdb", &table.path()]);
            assert_eq!(
                (&read["rows"], &read["digest"]),
                (&json!(model.len()), &json!(digest(&model).to_string())),
                "{features:?}; seed {seed}"
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_the_view_is_refused() {
    let mut table = Table::new();
    let model = rows(&mut Chance::from_seed(1), 10, 5, 5);
    table.settings.on_existing = OnExisting::Truncate;
    let feed = json!({"delta.enableChangeDataFeed": "true"});
    foreign(&table, &["changeDataFeed"], &feed);
    let refused = table.target().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible);
    assert!(refused.message().contains("delta.enableChangeDataFeed"), "{refused}");

    let mut table = Table::new();
    table.settings.mode = cutover::continuity::stamp::Mode::Follow;
    assert_eq!(table.target().await.unwrap_err().kind(), ErrorKind::Refused);

    // Two rows with one key are found before anything is committed.
    let table = Table::new();
    let (key, row) = model.iter().next().unwrap();
    let twice = super::tables::batch([(key, Some(row)), (key, Some(row))]);
    let snapshot = cutover::Snapshot::from_batches(crate::world::step(5), vec![twice]);
    let refused = table.target().await.unwrap().load(snapshot).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains(&format!("{}, {}", key.0, key.1)), "{refused}");
    assert!(!table.entry(0).exists());
}

#[tokio::test]
async fn a_reset_changes_the_layout_in_both_directions() {
    let mut chance = Chance::new("a_reset_changes_the_layout");
    let seed = chance.seed;
    let mut table = Table::new();
    let mut model = rows(&mut chance, 50, 40, 5);
    for (at, layout) in (5..).step_by(3).zip([Layout::Changelog, Layout::Current, Layout::Changelog, Layout::Current]) {
        table.settings.layout = layout;
        let mut sink = table.sink(&model, at).await;
        if at > 5 {
            let refused = sink.append(changes(&mut chance, &mut model.clone(), 50, at, at + 1, 9)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}; seed {seed}");
            assert!(matches!(reload(&mut sink, &model, at).await, Applied::Committed { .. }));
        }
        sink.append(changes(&mut chance, &mut model, 50, at, at + 3, 20)).await.unwrap();
        table.holds(&model, seed).await;
        sink.close().await;
    }
}
