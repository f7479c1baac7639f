//! Tables of others with the features that they may have: reloaded, appended to, and read by other engines.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};
use cutover::continuity::plan::Older;
use cutover::inspect::state::state as state_of;
use cutover::inspect::{Verdict, verify_deep};
use cutover::{Applied, ErrorKind, Location, Target, View};
use futures::{FutureExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use crate::faults::{Fault, FaultStore};
use crate::foreign::{
    Foreign, START, Table, actions, changes, check_mapping, check_readers, check_row_ids, check_times, entries, field,
    file_fields, last_metadata, mapped_fields, put, reset, state, structure, truncating, view,
};
use crate::world::{memory, world};

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
    let clustered = Foreign::with(&["clustering", "domainMetadata"]).domain(
        "delta.clustering",
        json!({ "clusteringColumns": [["Id"], ["info", "a"]], "domainName": "delta.clustering" }),
    );
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
            .domain("delta.clustering", json!({ "clusteringColumns": [["col-1"], ["col-3", "col-4"]] }))
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
        assert!(stats["nullCount"]["info"]["a"].is_number(), "a field of a struct has statistics too: {stats}");
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
        (clustering(json!([["info", "tags"]])), "info.tags"),
        (clustering(json!([["info", "gone"]])), "info.gone"),
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
        let report = verify_deep(&table.log(), None).await.unwrap();
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
