//! `verify --deep`: rows that are lost, doubled or changed behind the log's back.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Repair, Report, RowsRead, Verdict, verify_deep};
use cutover::log::Log;
use cutover::{Access, Durability, Location, Snapshot, Target, World};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::statistics::Statistics;
use serde_json::{Value, json};

use crate::program::{Chance, Model, Ran, Readers, Site, size};
use crate::tables::{Made, Table, checkpoint, entry, made, remove};
use crate::world::{log, memory, settings, sink, state, step, view, world};

/// What is done to the rows of a file.
type Damage = (&'static str, fn(&RecordBatch) -> RecordBatch);

fn names_of(rows: &RecordBatch) -> Vec<Option<&str>> {
    rows.column_by_name("name").unwrap().as_string::<i32>().iter().collect()
}

fn renamed(rows: &RecordBatch, names: Vec<Option<&str>>) -> RecordBatch {
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    let place = rows.schema().index_of("name").unwrap();
    columns[place] = Arc::new(StringArray::from(names));
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

fn picked(rows: &RecordBatch, places: Vec<u32>) -> RecordBatch {
    take_record_batch(rows, &UInt32Array::from(places)).unwrap()
}

const DAMAGES: &[Damage] = &[
    ("a changed cell", |rows| {
        let mut names = names_of(rows);
        names[0] = Some("another");
        renamed(rows, names)
    }),
    ("a cell that became null", |rows| {
        let mut names = names_of(rows);
        names[0] = None;
        renamed(rows, names)
    }),
    ("two cells that changed places", |rows| {
        let mut names = names_of(rows);
        names.swap(0, 1);
        renamed(rows, names)
    }),
    ("a lost row", |rows| rows.slice(1, rows.num_rows() - 1)),
    ("a doubled row", |rows| picked(rows, (0..rows.num_rows() as u32).chain([0]).collect())),
    ("a row in place of another", |rows| picked(rows, (1..rows.num_rows() as u32).chain([1]).collect())),
];

fn decoded(bytes: &[u8]) -> RecordBatch {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::copy_from_slice(bytes)).unwrap();
    let schema = Arc::clone(reader.schema());
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

fn encoded(rows: &RecordBatch) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.into_inner().unwrap()
}

async fn deep(table: &Table) -> Report {
    verify_deep(&log(&table.store().await, &world(0).0), None).await.unwrap()
}

/// Puts other rows into a file, and their size into the log, so that nothing but the rows is wrong.
fn rewrite(table: &mut Table, path: &str, rows: &RecordBatch) {
    let bytes = encoded(rows);
    let size = bytes.len();
    let before = table.files.insert(path.to_string(), bytes).unwrap().len();
    for version in table.versions() {
        if table.actions(version).iter().all(|a| a["add"]["path"] != path) {
            continue;
        }
        table.edit(version, |action| {
            if action["add"]["path"] == path {
                action["add"]["size"] = size.into();
            }
            if let Some(metrics) = action.get_mut("commitInfo").and_then(|i| i.get_mut("operationMetrics")) {
                let all: usize = metrics["numOutputBytes"].as_str().unwrap().parse().unwrap();
                metrics["numOutputBytes"] = (all - before + size).to_string().into();
            }
        });
    }
}

/// The live files with two rows or more.
fn files_of_many(table: &Table) -> Vec<(u64, String)> {
    let many = table.live().into_iter().filter(|(_, add)| crate::tables::records(add) > 1);
    many.map(|(version, add)| (version, add["path"].as_str().unwrap().to_string())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_a_file_that_were_changed_are_found_and_the_file_is_named() {
    for how in [Made::Plain, Made::Checkpoints] {
        let healthy = made(how, 2).await;
        let report = deep(&healthy).await;
        assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
        let live = healthy.live();
        let rows: u64 = live.iter().map(|(_, add)| crate::tables::records(add)).sum();
        let bytes = live.iter().map(|(_, add)| add["size"].as_u64().unwrap()).sum();
        assert_eq!(report.rows_read, Some(RowsRead { files: live.len() as u64, rows, bytes }));
        for (what, damage) in DAMAGES {
            for (version, path) in files_of_many(&healthy) {
                // A checkpoint knows the sizes of before.
                if how == Made::Checkpoints && version <= 7 {
                    continue;
                }
                let mut table = healthy.clone();
                rewrite(&mut table, &path, &damage(&decoded(&healthy.files[&path])));
                assert_eq!(table.verify().await.verdict, Verdict::Healthy, "{what} is in the log too");
                let report = deep(&table).await;
                let found: Vec<_> = report.findings.iter().map(|f| (f.version, f.file.as_deref())).collect();
                assert_eq!(report.verdict, Verdict::Broken, "{what}");
                assert_eq!(found, [(version, Some(path.as_str()))], "{what}: {:#?}", report.findings);
                assert!(report.findings[0].message.contains("has other rows than were written to it"), "{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flipped_bit_that_leaves_the_size_is_found() {
    let healthy = made(Made::Plain, 2).await;
    let (version, path) = files_of_many(&healthy).remove(0);
    let all = healthy.files[&path].len();
    let mut found = 0;
    for at in (4..all - 8).step_by(7) {
        let mut table = healthy.clone();
        table.files.get_mut(&path).unwrap()[at] ^= 4;
        let report = deep(&table).await;
        // Some bits stand where no row is kept: names of columns, statistics, padding.
        if report.verdict == Verdict::Healthy {
            continue;
        }
        found += 1;
        assert!(
            report.findings.iter().all(|f| f.version == version && f.file.as_deref() == Some(path.as_str())),
            "{at}"
        );
    }
    assert!(found > 20, "{found} of {all} bytes matter");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_rewritten_by_others_are_held_against_the_sum() {
    let healthy = made(Made::Plain, 2).await;
    let live = healthy.live();
    let whole: Vec<RecordBatch> =
        live.iter().map(|(_, add)| decoded(&healthy.files[add["path"].as_str().unwrap()])).collect();
    let whole = concat_batches(&whole[0].schema(), &whole).unwrap();
    let compacted = |rows: &RecordBatch| {
        let mut table = healthy.clone();
        let bytes = encoded(rows);
        // What others write says nothing of digests; the count is what they should have written.
        let stats = json!({ "numRecords": whole.num_rows() }).to_string();
        let add = json!({"add": {"path": "part-0.parquet", "partitionValues": {}, "size": bytes.len(),
            "modificationTime": 1, "dataChange": false, "stats": stats}});
        table.files.insert("part-0.parquet".into(), bytes);
        let mut actions: Vec<Value> = live.iter().map(|(_, add)| remove(add, false)).collect();
        actions.push(add);
        let version = table.push("OPTIMIZE", actions);
        (table, version)
    };
    let (table, _) = compacted(&whole);
    let report = deep(&table).await;
    assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
    for (what, damage) in DAMAGES {
        let (table, version) = compacted(&damage(&whole));
        let report = deep(&table).await;
        assert_eq!(report.verdict, Verdict::Broken, "{what}");
        let named = |f: &cutover::continuity::finding::Finding| {
            f.version == version && f.file.as_deref() == Some("part-0.parquet")
        };
        assert!(report.findings.iter().all(named), "{what}: {:#?}", report.findings);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_among_many_is_found() {
    const FILES: i64 = 8;
    let many = size("CUTOVER_DEEP_ROWS", 40_000) as i64;
    let home = tempfile::TempDir::new().unwrap();
    let path = home.path().join("table").display().to_string();
    let (world, _) = world(1);
    let location = || Location::open(&path, Access::Write(Durability::None)).unwrap();
    let mut settings = settings();
    // Each batch fills a file.
    (settings.files.threads, settings.files.target_file_size) = (1, 1);
    let batch = |file: i64| {
        let ids: Vec<i64> = (file * many / FILES..(file + 1) * many / FILES).collect();
        let names = StringArray::from_iter_values(ids.iter().map(|id| format!("the row with the id {id}")));
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(ids)), Arc::new(names)];
        RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap()
    };
    let snapshot = Snapshot::from_batches(step(1), (0..FILES).map(batch).collect());
    let target = Target::open(location(), view(), settings, world.clone()).await.unwrap();
    drop(target.load(snapshot).await.unwrap());
    let log = Log::new(location(), world);
    let begun = World::system().clock.boot();
    let report = verify_deep(&log, None).await.unwrap();
    let took = World::system().clock.boot() - begun;
    let read = report.rows_read.unwrap();
    assert_eq!((report.verdict, read.rows), (Verdict::Healthy, many as u64), "{:#?}", report.findings);
    let per_second = |n: u64| n as f64 / 1e6 / took.as_secs_f64();
    eprintln!("verify --deep: {:.1} million rows, {:.0} MB a second", per_second(read.rows), per_second(read.bytes));
    let files = log.live_files_at(0).await.unwrap();
    let victim = files.iter().max_by_key(|file| file.rows).unwrap();
    let place = home.path().join("table").join(&victim.path);
    let healthy = std::fs::read(&place).unwrap();
    for (what, damage) in DAMAGES {
        std::fs::write(&place, encoded(&damage(&decoded(&healthy)))).unwrap();
        let mut table = Table::read(log.store()).await;
        let size = table.files[&victim.path].len();
        table.edit(0, |action| {
            if action["add"]["path"] == victim.path.as_str() {
                action["add"]["size"] = size.into();
            }
        });
        std::fs::write(home.path().join("table").join(entry(0)), &table.files[&entry(0)]).unwrap();
        let report = verify_deep(&log, None).await.unwrap();
        let found: Vec<_> = report.findings.iter().filter_map(|f| f.file.as_deref()).collect();
        assert_eq!(found, [victim.path.as_str()], "{what}: {:#?}", report.findings);
    }
}

/// Changes what an entry says of the values in a file.
fn state_otherwise(table: &mut Table, version: u64, path: &str, change: impl Fn(&mut Value)) {
    table.edit(version, |action| {
        if action["add"]["path"] == path {
            let mut stats: Value = serde_json::from_str(action["add"]["stats"].as_str().unwrap()).unwrap();
            change(&mut stats);
            action["add"]["stats"] = stats.to_string().into();
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_by_which_readers_skip_rows_that_match_are_found_and_wide_ones_are_sound() {
    type Change = fn(&mut Value);
    let untrue: &[(&str, Change)] = &[
        ("the maximum of \"id\"", |s| s["maxValues"]["id"] = (s["maxValues"]["id"].as_i64().unwrap() - 1).into()),
        ("the minimum of \"id\"", |s| s["minValues"]["id"] = (s["minValues"]["id"].as_i64().unwrap() + 1).into()),
        ("the minimum of \"name\"", |s| s["minValues"]["name"] = "zzzz".into()),
        ("the maximum of \"name\"", |s| s["maxValues"]["name"] = "".into()),
        ("have no \"id\"", |s| s["nullCount"]["id"] = s["numRecords"].clone()),
    ];
    let sound: &[(&str, Change)] = &[
        ("a wide range", |s| (s["minValues"]["id"], s["maxValues"]["id"]) = ((-9).into(), 99_999.into())),
        ("a cut text", |s| (s["minValues"]["name"], s["maxValues"]["name"]) = ("".into(), "\u{10ffff}".into())),
        ("no bounds", |s| (s["minValues"], s["maxValues"]) = (json!({}), Value::Null)),
        ("no counts", |s| s["nullCount"] = Value::Null),
    ];
    let healthy = made(Made::Plain, 2).await;
    let (version, path) = files_of_many(&healthy).remove(0);
    for (what, change) in untrue {
        let mut table = healthy.clone();
        state_otherwise(&mut table, version, &path, change);
        let report = deep(&table).await;
        let found: Vec<_> = report.findings.iter().map(|f| (f.version, f.file.as_deref())).collect();
        assert_eq!(found, [(version, Some(path.as_str()))], "{what}: {:#?}", report.findings);
        assert!(report.findings[0].message.contains(what), "{what}: {:#?}", report.findings);
        assert_eq!((report.verdict, report.repairs), (Verdict::Broken, vec![Repair::Reset]), "{what}");
    }
    for (what, change) in sound {
        let mut table = healthy.clone();
        state_otherwise(&mut table, version, &path, change);
        let findings: Vec<_> =
            deep(&table).await.findings.into_iter().filter(|f| f.message.contains("readers skip")).collect();
        assert!(findings.is_empty(), "{what}: {findings:#?}");
    }
}

/// The rows of a checkpoint with other statistics of one file.
fn with_stats(rows: &RecordBatch, path: &str, change: impl Fn(&mut Value)) -> RecordBatch {
    let place = rows.schema().index_of("add").unwrap();
    let adds = rows.column(place).as_struct();
    let texts = adds.column_by_name("stats").unwrap().as_string::<i32>();
    let paths = adds.column_by_name("path").unwrap().as_string::<i32>();
    let other = (0..rows.num_rows()).map(|row| {
        let text = (adds.is_valid(row) && texts.is_valid(row)).then(|| texts.value(row).to_string())?;
        if paths.value(row) != path {
            return Some(text);
        }
        let mut stats: Value = serde_json::from_str(&text).unwrap();
        change(&mut stats);
        Some(stats.to_string())
    });
    let other: ArrayRef = Arc::new(other.collect::<StringArray>());
    let (fields, mut members, nulls) = adds.clone().into_parts();
    members[fields.iter().position(|f| f.name() == "stats").unwrap()] = other;
    let mut columns = rows.columns().to_vec();
    columns[place] = Arc::new(StructArray::new(fields, members, nulls));
    RecordBatch::try_new(rows.schema(), columns).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_with_untrue_statistics_is_found_and_a_reset_repairs_it() {
    let mut table = made(Made::Checkpoints, 2).await;
    let (version, path) = files_of_many(&table).into_iter().find(|(version, _)| *version <= 7).unwrap();
    let rows = decoded(&table.files[&checkpoint(7)]);
    let rows = with_stats(&rows, &path, |stats| stats["maxValues"]["id"] = (-1).into());
    table.files.insert(checkpoint(7), encoded(&rows));
    // It tells the size of another checkpoint.
    table.files.remove("_delta_log/_last_checkpoint");
    assert_eq!(table.verify().await.verdict, Verdict::Healthy, "nothing but statistics is wrong");
    let report = deep(&table).await;
    let mut found: Vec<_> = report.findings.iter().filter_map(|f| f.file.as_deref()).collect();
    found.sort_unstable();
    assert_eq!(found, [format!("{:020}.checkpoint", 7).as_str(), &path], "{:#?}", report.findings);
    assert!(report.findings.iter().any(|f| f.version == version && f.message.contains("maximum of \"id\" is -1")));
    assert_eq!(report.repairs, [Repair::Reset]);
    let (store, world) = (table.store().await, world(5).0);
    let mut sink = sink(&store, &world).await;
    let reset = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    sink.reload(state(30, &[4, 5]), reset, Older::Refused).await.unwrap();
    let report = verify_deep(&log(&store, &world), None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_compared_where_the_log_still_tells_what_it_should_hold() {
    for (how, noted) in [(Made::Checkpoints, 0), (Made::Cleaned, 2)] {
        let report = deep(&made(how, 2).await).await;
        assert_eq!(report.verdict, Verdict::Healthy, "{how:?}: {:#?}", report.findings);
        let notes = report.notes.iter().filter(|n| n.message.contains("cannot be compared"));
        assert_eq!(notes.count(), noted, "{how:?}: {:#?}", report.notes);
    }
}

/// The greatest id by the footer.
fn greatest_id(bytes: &[u8]) -> Option<i64> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::copy_from_slice(bytes)).ok()?;
    let id = reader.metadata().row_group(0).columns().iter().find(|c| c.column_path().string() == "id")?;
    match id.statistics()? {
        Statistics::Int64(longs) => longs.max_opt().copied(),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrue_bound_in_a_footer_is_found() {
    let healthy = made(Made::Plain, 2).await;
    let (version, path) = files_of_many(&healthy).remove(0);
    let bytes = &healthy.files[&path];
    let greatest = greatest_id(bytes).expect("the footers have statistics");
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..bytes.len() - 4].try_into().unwrap()) as usize;
    let mut tried = 0;
    for at in bytes.len() - 8 - length..bytes.len() - 16 {
        if bytes[at..at + 8] != greatest.to_le_bytes() {
            continue;
        }
        let mut changed = bytes.clone();
        changed[at..at + 8].copy_from_slice(&(-1i64).to_le_bytes());
        if greatest_id(&changed) != Some(-1) {
            continue;
        }
        tried += 1;
        let mut table = healthy.clone();
        table.files.insert(path.clone(), changed);
        assert_eq!(table.verify().await.verdict, Verdict::Healthy);
        let report = deep(&table).await;
        let found: Vec<_> = report.findings.iter().map(|f| (f.version, f.file.as_deref())).collect();
        assert_eq!(found, [(version, Some(path.as_str()))], "{:#?}", report.findings);
        let message = &report.findings[0].message;
        assert!(message.contains("footer") && message.contains("maximum of \"id\" is -1"), "{message}");
    }
    assert!(tried > 0, "no bound was changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_texts_whose_bounds_are_cut_give_no_alarm() {
    let store = memory();
    let (world, _) = world(1);
    let names = ["a", "\u{10ffff}", "\u{d7ff}", "é"].map(|letter| letter.repeat(100));
    let names = StringArray::from_iter(names.iter().map(|name| Some(name.as_str())).chain([None]));
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..5)), Arc::new(names)];
    let rows = RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap();
    for part in [rows.clone(), rows.slice(0, 1), rows.slice(1, 1), rows.slice(4, 1)] {
        let store = Arc::clone(&store);
        let location = Location::on(Arc::new(object_store::prefix::PrefixStore::new(
            store,
            format!("t{}-{}", part.num_rows(), part.column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0)),
        )));
        let target = Target::open(location.clone(), view(), settings(), world.clone()).await.unwrap();
        drop(target.load(Snapshot::from_batches(step(1), vec![part])).await.unwrap());
        let report = verify_deep(&Log::new(location, world.clone()), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
    }
}

#[test]
fn the_program_reads_the_rows_and_maintenance_by_another_engine_changes_no_digest() {
    const TEST: &str = "the_program_reads_the_rows_and_maintenance_by_another_engine_changes_no_digest";
    let site = Site::new();
    let mut model = Model::new(&site, 500, Chance::new(TEST));
    let seed = model.chance.seed;
    for _ in 0..3 {
        model.land_changes();
        site.run(&["run", "--once"]).ended(0, seed);
    }
    let said = site.run(&["verify", "table", "--deep"]).ended(0, seed).stdout;
    assert!(said.starts_with("table: healthy") && said.contains(" rows\n"), "{said}");
    let json = site.run(&["verify", "table", "--deep", "-o", "json"]).ended(0, seed).stdout;
    let rows = serde_json::from_str::<Value>(&json).unwrap()["rows_read"].as_u64().unwrap();
    assert!(rows >= 500, "{json}");
    if let Some(readers) = Readers::find(TEST) {
        for what in ["compact", "checkpoint", "compact"] {
            let table = site.table().display().to_string();
            Ran::of(readers.command("maintain.py", &[what, &table]).output().unwrap()).ended(0, seed);
            model.land_changes();
            site.run(&["run", "--once"]).ended(0, seed);
            site.run(&["verify", "table", "--deep"]).ended(0, seed);
        }
    }
}
