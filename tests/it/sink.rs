//! The commit protocol, seen through the sink.

use std::sync::Arc;
use std::time::Duration;

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::{Kind, ResetStamp};
use cutover::inspect::{Verdict, verify};
use cutover::{Applied, ErrorKind, Location, OnExisting, Target};
use futures::FutureExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::faults::{Fault, FaultStore};
use crate::world::{changes, log, memory, settings, sink, state, step, target, view, world};

fn reset(id: &str) -> ResetStamp {
    ResetStamp { id: id.into(), who: "a test".into(), why: "to see".into() }
}

/// A commit of somebody else: one file with one row, or a change of a property.
async fn foreign_append(store: &Arc<dyn ObjectStore>, version: u64) {
    store.put(&Path::from(format!("foreign-{version}.parquet")), "rows".into()).await.unwrap();
    let entry = format!(
        "{{\"commitInfo\":{{\"operation\":\"WRITE\"}}}}\n{{\"add\":{{\"path\":\"foreign-{version}.parquet\",\"partitionValues\":{{}},\"size\":4,\
         \"modificationTime\":1,\"dataChange\":true,\"stats\":\"{{\\\"numRecords\\\":1}}\"}}}}\n"
    );
    store.put(&Path::from(format!("_delta_log/{version:020}.json")), entry.into()).await.unwrap();
}

async fn foreign_property(store: &Arc<dyn ObjectStore>, version: u64, key: &str) {
    let mut metadata = None;
    for before in (0..version).rev() {
        let entry =
            store.get(&Path::from(format!("_delta_log/{before:020}.json"))).await.unwrap().bytes().await.unwrap();
        let found =
            String::from_utf8_lossy(&entry).lines().find(|l| l.starts_with("{\"metaData\"")).map(str::to_string);
        if found.is_some() {
            metadata = found;
            break;
        }
    }
    let changed = metadata
        .unwrap()
        .replace("\"configuration\":{", &format!("\"configuration\":{{\"{key}\":\"interval 9 days\","));
    let entry = format!("{{\"commitInfo\":{{\"operation\":\"SET TBLPROPERTIES\"}}}}\n{changed}\n");
    store.put(&Path::from(format!("_delta_log/{version:020}.json")), entry.into()).await.unwrap();
}

async fn assert_healthy(store: &Arc<dyn ObjectStore>, last_step: u64, what: &str) {
    let report = verify(&log(store, &world(0).0), None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{what}: {:?}", report.findings);
    assert_eq!(report.last_step, Some(step(last_step)), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_follow_a_load_and_a_restart_never_reloads() {
    let (store, (world, _)) = (memory(), world(1));
    let mut first = sink(&store, &world).await;
    assert_eq!(first.facts().version, Some(0), "the reload is the first version");
    assert!(matches!(first.append(changes(10, 12)).await.unwrap(), Applied::Committed { version: 1, rows: 2, .. }));
    drop(first);
    let mut second = sink(&store, &world).await;
    assert!(matches!(second.append(changes(12, 13)).await.unwrap(), Applied::Committed { version: 3, rows: 1, .. }));
    let report = verify(&log(&store, &world), None).await.unwrap();
    assert_eq!((report.generation.unwrap().get(), report.epoch.unwrap().get()), (1, 2));
    assert_healthy(&store, 13, "after a restart").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_is_never_delivered_again_and_a_gap_is_refused() {
    let (store, (world, _)) = (memory(), world(2));
    let mut sink = sink(&store, &world).await;
    sink.append(changes(10, 15)).await.unwrap();
    assert_eq!(sink.append(changes(10, 15)).await.unwrap(), Applied::Already);
    assert_eq!(sink.append(changes(11, 14)).await.unwrap(), Applied::Already);
    assert!(matches!(sink.append(changes(12, 17)).await.unwrap(), Applied::Committed { rows: 2, .. }));
    let gap = sink.append(changes(18, 19)).await.unwrap_err();
    assert_eq!(gap.kind(), ErrorKind::ContinuityLost);
    assert!(gap.message().contains("17") && gap.message().contains("18"), "{gap}");
    assert_healthy(&store, 17, "after overlaps and a gap").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_older_writer_is_fenced_even_if_it_looks_first() {
    for looks in [0, 1, 3] {
        let (store, (world, clock)) = (memory(), world(3));
        let mut first = sink(&store, &world).await;
        first.append(changes(10, 11)).await.unwrap();
        let mut second = sink(&store, &world).await;
        clock.advance(Duration::from_secs(3600 * looks));
        for _ in 0..2 {
            let fenced = first.append(changes(11, 12)).await.unwrap_err();
            assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
        }
        second.append(changes(11, 12)).await.unwrap();
        let fenced = first.reload(state(20, &[7]), reset("r"), Older::Refused).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced);
        assert_healthy(&store, 12, "after a takeover").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_first_loads_one_wins_and_the_other_finds_the_table_taken() {
    let (store, (world, _)) = (memory(), world(4));
    let (a, b) = (target(&store, &world).await.unwrap(), target(&store, &world).await.unwrap());
    a.load(state(10, &[1])).await.unwrap();
    let late = b.load(state(10, &[1])).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Refused);
    assert_healthy(&store, 10, "after two first loads").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_neither_loses_nor_doubles() {
    type Case = (&'static str, fn() -> Vec<Fault>);
    let faults: [Case; 6] = [
        ("before", || vec![Fault::Before, Fault::Before]),
        ("lost", || vec![Fault::Lost]),
        ("resent", || vec![Fault::Resent]),
        ("late", || vec![Fault::Late]),
        ("late, late", || vec![Fault::Late, Fault::Late, Fault::Before]),
        ("before, lost", || vec![Fault::Before, Fault::Lost]),
    ];
    for (name, faults) in faults {
        // The fault meets the load, then the claim, then the append, then the reload.
        for skipped in 0..4 {
            let (inner, (world, _)) = (memory(), world(5));
            let mut plan: Vec<Fault> = (0..skipped).map(|_| Fault::First(Box::new(|_| async {}.boxed()))).collect();
            plan.extend(faults());
            let store = FaultStore::around(Arc::clone(&inner), plan);
            drop(sink(&store, &world).await);
            let mut sink = sink(&store, &world).await;
            sink.append(changes(10, 12)).await.unwrap();
            sink.reload(state(12, &[4, 5]), reset("r"), Older::Refused).await.unwrap();
            sink.append(changes(12, 13)).await.unwrap();
            let versions = log(&inner, &world).list(0).await.unwrap().versions;
            assert_eq!(versions.len(), 5, "{name} at {skipped}");
            assert_healthy(&inner, 13, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_never_comes_leaves_the_commit_open_until_it_is_known() {
    let (inner, (world, _)) = (memory(), world(6));
    drop(sink(&inner, &world).await);
    let faults = std::iter::once(Fault::First(Box::new(|_| async {}.boxed())) as Fault)
        .chain((0..60).map(|_| Fault::Before))
        .collect();
    let store = FaultStore::around(Arc::clone(&inner), faults);
    let mut sink = sink(&store, &world).await;
    let open = sink.append(changes(10, 11)).await.unwrap_err();
    assert_eq!(open.kind(), ErrorKind::Unavailable);
    let mut applied = sink.append(changes(10, 11)).await;
    while applied.is_err() {
        applied = sink.append(changes(10, 11)).await;
    }
    sink.append(changes(11, 12)).await.unwrap();
    assert_eq!(log(&inner, &world).list(0).await.unwrap().versions.len(), 4);
    assert_healthy(&inner, 12, "after a long silence").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_removes_what_others_appended_under_it() {
    let (inner, (world, _)) = (memory(), world(7));
    let claim = Fault::First(Box::new(|_| async {}.boxed()));
    drop(sink(&inner, &world).await);
    let store = FaultStore::around(
        Arc::clone(&inner),
        vec![claim, Fault::First(Box::new(|s| async move { foreign_append(&s, 2).await }.boxed()))],
    );
    let mut sink = sink(&store, &world).await;
    sink.reload(state(12, &[4, 5]), reset("r"), Older::Refused).await.unwrap();
    let last = log(&inner, &world).commit(3).await.unwrap().unwrap();
    assert!(last.removes.iter().any(|r| r.file.path == "foreign-2.parquet"), "{:?}", last.removes);
    let report = verify(&log(&inner, &world), None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    assert_eq!(report.live_files, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_ends_appends_for_good_and_a_reset_repairs_it() {
    let (store, (world, _)) = (memory(), world(8));
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 11)).await.unwrap();
    foreign_append(&store, 2).await;
    let drift = first.append(changes(11, 12)).await.unwrap_err();
    assert_eq!(drift.kind(), ErrorKind::ContinuityLost, "{drift}");
    assert!(drift.message().contains("version 2"), "{drift}");
    drop(first);
    // A claim is no row of ours: the drift before it is remembered.
    let mut second = sink(&store, &world).await;
    assert_eq!(second.append(changes(11, 12)).await.unwrap_err().kind(), ErrorKind::ContinuityLost);
    drop(second);
    let third = target(&store, &world).await.unwrap();
    assert_eq!(third.check_follow().unwrap_err().kind(), ErrorKind::ContinuityLost);
    let mut third = third.claim().await.unwrap();
    third.reload(state(11, &[1]), reset("r"), Older::Refused).await.unwrap();
    third.append(changes(11, 12)).await.unwrap();
    assert_healthy(&store, 12, "after the repair").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn maintenance_of_others_is_adopted() {
    let (store, (world, _)) = (memory(), world(9));
    let mut sink = sink(&store, &world).await;
    foreign_property(&store, 1, "delta.logRetentionDuration").await;
    assert!(matches!(sink.append(changes(10, 11)).await.unwrap(), Applied::Committed { version: 2, .. }));
    sink.reload(state(11, &[1]), reset("r"), Older::Refused).await.unwrap();
    let metadata = sink.facts().metadata.clone().unwrap();
    assert_eq!(metadata.configuration["delta.logRetentionDuration"], "interval 9 days", "kept over a reload");
    assert_healthy(&store, 11, "after a foreign property").await;
    foreign_property(&store, 4, "delta.setTransactionRetentionDuration").await;
    let refused = sink.append(changes(11, 12)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ContinuityLost, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_never_go_back_unless_the_operator_says_so() {
    let (store, (world, _)) = (memory(), world(10));
    let mut sink = sink(&store, &world).await;
    sink.append(changes(10, 15)).await.unwrap();
    let refused = sink.reload(state(14, &[1]), reset("r1"), Older::Refused).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    sink.reload(state(14, &[1]), reset("r2"), Older::Allowed).await.unwrap();
    assert_eq!(sink.last_step().unwrap(), step(14));
    // The same reset asked for again is done already.
    assert_eq!(sink.reload(state(14, &[1]), reset("r2"), Older::Allowed).await.unwrap(), Applied::Already);
    assert_healthy(&store, 14, "after going back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_others_is_refused_or_truncated_and_keeps_its_id() {
    let (store, (world, _)) = (memory(), world(11));
    let schema =
        r#"{\"type\":\"struct\",\"fields\":[{\"name\":\"x\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}"#;
    let entry = format!(
        "{{\"protocol\":{{\"minReaderVersion\":1,\"minWriterVersion\":2}}}}\n{{\"metaData\":{{\"id\":\"their-id\",\"name\":\"theirs\",\"format\":{{\"provider\":\"parquet\",\
         \"options\":{{}}}},\"schemaString\":\"{schema}\",\"partitionColumns\":[],\"configuration\":{{\"owner\":\"them\"}},\"createdTime\":7}}}}\n"
    );
    store.put(&Path::from(format!("_delta_log/{:020}.json", 0)), entry.into()).await.unwrap();
    foreign_append(&store, 1).await;
    let refused = target(&store, &world).await.unwrap().load(state(10, &[1])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("on_existing"), "{refused}");
    let mut truncating = settings();
    truncating.on_existing = OnExisting::Truncate;
    let opened = Target::open(Location::on(Arc::clone(&store)), view(), truncating, world.clone()).await.unwrap();
    let sink = opened.load(state(10, &[1, 2])).await.unwrap();
    let metadata = sink.facts().metadata.clone().unwrap();
    assert_eq!(
        (metadata.id.as_str(), metadata.name.as_deref(), metadata.created_time),
        ("their-id", Some("theirs"), Some(7))
    );
    assert_eq!(metadata.configuration["owner"], "them");
    assert_healthy(&store, 10, "after truncation").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_with_files_and_no_log_is_refused() {
    let (store, (world, _)) = (memory(), world(12));
    store.put(&Path::from("notes/readme.txt"), "hello".into()).await.unwrap();
    let refused = target(&store, &world).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("readme.txt"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_snapshot_is_a_load_like_any_other() {
    let (store, (world, _)) = (memory(), world(13));
    let mut sink = target(&store, &world).await.unwrap().load(state(10, &[])).await.unwrap();
    sink.append(changes(10, 11)).await.unwrap();
    sink.reload(state(11, &[]), reset("r"), Older::Refused).await.unwrap();
    let report = verify(&log(&store, &world), None).await.unwrap();
    assert_eq!((report.verdict, report.live_files), (Verdict::Healthy, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_or_source_or_key_is_refused() {
    let (store, (world, _)) = (memory(), world(14));
    drop(sink(&store, &world).await);
    let open = |change: fn(&mut cutover::SinkSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Target::open(Location::on(Arc::clone(&store)), view(), settings, world.clone())
    };
    let renamed = open(|s| s.connector = "p/v/other".into()).await.unwrap();
    assert_eq!(renamed.claim().await.unwrap_err().kind(), ErrorKind::Refused);
    let moved = open(|s| s.source = "source-2".into()).await.unwrap();
    assert_eq!(moved.check_follow().unwrap_err().kind(), ErrorKind::ContinuityLost);
    let keyless = cutover::View::new("v", view().schema(), vec![]).unwrap();
    let other_key = Target::open(Location::on(Arc::clone(&store)), keyless, settings(), world.clone()).await.unwrap();
    assert_eq!(other_key.check_follow().unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_name_below_a_cleaned_log_is_not_the_head() {
    let (store, (world, clock)) = (memory(), world(15));
    let mut sleeper = sink(&store, &world).await;
    sleeper.append(changes(10, 11)).await.unwrap();
    let mut other = sink(&store, &world).await;
    for n in 11..16 {
        other.append(changes(n, n + 1)).await.unwrap();
    }
    let head = other.facts().version.unwrap();
    let mut facts = other.facts().clone();
    log(&store, &world).checkpoint(&mut facts).await.unwrap();
    // Log clean-up takes what the sleeper would collide with.
    for version in 2..head {
        store.delete(&Path::from(format!("_delta_log/{version:020}.json"))).await.unwrap();
    }
    for hours in [0, 24] {
        clock.advance(Duration::from_secs(3600 * hours));
        let fenced = sleeper.append(changes(11, 12)).await.unwrap_err();
        assert_eq!(fenced.kind(), ErrorKind::Fenced, "{fenced}");
    }
    other.append(changes(16, 17)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_newest_entry_fails_closed() {
    let (store, (world, _)) = (memory(), world(16));
    let mut sink = sink(&store, &world).await;
    sink.append(changes(10, 11)).await.unwrap();
    let path = Path::from(format!("_delta_log/{:020}.json", 1));
    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    let line_ends: Vec<usize> = whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    for cut in [0, 10, line_ends[0], line_ends[1], line_ends[1] + 20] {
        store.put(&path, whole.slice(..cut).into()).await.unwrap();
        let opened = target(&store, &world).await;
        let error = match opened {
            Err(e) => e,
            Ok(target) => target.check_follow().expect_err("a torn entry is not followed"),
        };
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::ContinuityLost), "cut at {cut}: {error}");
        assert!(sink.append(changes(11, 12)).await.is_err(), "cut at {cut}");
        let report = verify(&log(&store, &world), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Broken, "cut at {cut}");
        assert!(report.findings.iter().any(|f| f.version == 1), "cut at {cut}: {:?}", report.findings);
    }
    store.put(&path, whole.into()).await.unwrap();
    assert_healthy(&store, 11, "whole again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_says_what_it_is() {
    let (store, (world, _)) = (memory(), world(17));
    drop(sink(&store, &world).await);
    let mut sink = sink(&store, &world).await;
    sink.append(changes(10, 12)).await.unwrap();
    let kinds: Vec<Kind> = {
        let mut kinds = Vec::new();
        for version in 0..3 {
            let commit = log(&store, &world).commit(version).await.unwrap().unwrap();
            kinds.push(commit.stamp().unwrap().kind);
        }
        kinds
    };
    assert_eq!(kinds, [Kind::Reload, Kind::Mark, Kind::Append]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_property_set_after_a_reset_is_no_drift() {
    let (store, (world, _)) = (memory(), world(18));
    let mut first = sink(&store, &world).await;
    first.reload(state(11, &[1]), reset("r"), Older::Refused).await.unwrap();
    drop(first);
    foreign_property(&store, 2, "delta.logRetentionDuration").await;
    let mut second = sink(&store, &world).await;
    second.append(changes(11, 12)).await.unwrap();
    assert_healthy(&store, 12, "a property after a reset").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_seen_where_the_log_no_longer_holds_a_commit_of_ours() {
    let (store, (world, _)) = (memory(), world(19));
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 11)).await.unwrap();
    drop(first);
    let mut facts = log(&store, &world).facts().await.unwrap();
    log(&store, &world).checkpoint(&mut facts).await.unwrap();
    foreign_append(&store, 2).await;
    for version in 0..2 {
        store.delete(&Path::from(format!("_delta_log/{version:020}.json"))).await.unwrap();
    }
    let drift = target(&store, &world).await.unwrap().check_follow().unwrap_err();
    assert_eq!(drift.kind(), ErrorKind::ContinuityLost, "{drift}");
    let report = verify(&log(&store, &world), None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Broken);
    assert!(
        report.findings.iter().any(|f| f.version == 2 && f.message.contains("changes rows")),
        "{:?}",
        report.findings
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_lost_by_what_calls_itself_maintenance_are_drift() {
    let (store, (world, _)) = (memory(), world(20));
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 13)).await.unwrap();
    drop(first);
    let entry = log(&store, &world).commit(1).await.unwrap().unwrap();
    let path = &entry.adds[0].file.path;
    let compaction = |adds: &str| {
        let remove = format!(
            "{{\"remove\":{{\"path\":\"{path}\",\"deletionTimestamp\":1,\"dataChange\":false,\"partitionValues\":{{}},\"size\":1}}}}"
        );
        format!("{{\"commitInfo\":{{\"operation\":\"OPTIMIZE\"}}}}\n{remove}\n{adds}")
    };
    let add = |stats: &str, path: &str| {
        format!(
            "{{\"add\":{{\"path\":\"{path}\",\"partitionValues\":{{}},\"size\":4,\"modificationTime\":1,\"dataChange\":false{stats}}}}}\n"
        )
    };
    store.put(&Path::from("other.parquet"), "rows".into()).await.unwrap();
    let (two, three) = (",\"stats\":\"{\\\"numRecords\\\":2}\"", ",\"stats\":\"{\\\"numRecords\\\":3}\"");
    for (what, adds, healthy) in [
        ("nothing instead", String::new(), Some(false)),
        ("fewer rows", add(two, "other.parquet"), Some(false)),
        ("outside", add(three, "file:///other.parquet"), Some(false)),
        ("rows unknown", add("", "other.parquet"), None),
        ("as many rows", add(three, "other.parquet"), Some(true)),
    ] {
        store.put(&Path::from(format!("_delta_log/{:020}.json", 2)), compaction(&adds).into()).await.unwrap();
        let followed = target(&store, &world).await.unwrap().check_follow();
        assert_eq!(followed.is_ok(), healthy == Some(true), "{what}: {followed:?}");
        let verdict = verify(&log(&store, &world), None).await.unwrap().verdict;
        match healthy {
            Some(true) => assert_eq!(verdict, Verdict::Healthy, "{what}"),
            Some(false) => assert_eq!(verdict, Verdict::Broken, "{what}"),
            None => assert!(matches!(verdict, Verdict::Inconclusive(_)), "{what}: {verdict:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_whose_log_is_lost_is_refused_and_a_first_load_that_did_not_end_is_not() {
    let (store, (world, _)) = (memory(), world(21));
    store.put(&Path::from("cutover-load-1.parquet"), "rows".into()).await.unwrap();
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 11)).await.unwrap();
    for version in 0..2 {
        store.delete(&Path::from(format!("_delta_log/{version:020}.json"))).await.unwrap();
    }
    let refused = target(&store, &world).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.message().contains("_delta_log"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_with_a_key_twice_is_refused() {
    let (store, (world, _)) = (memory(), world(22));
    let refused = target(&store, &world).await.unwrap().load(state(10, &[1, 2, 1])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(log(&store, &world).list(0).await.unwrap().head().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_opened_for_reading_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::open(&folder.path().to_string_lossy(), cutover::Access::Read).unwrap();
    let refused = Target::open(location, view(), settings(), world(23).0).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
}

#[test]
fn uris_that_readers_would_take_for_others_are_refused() {
    for uri in [
        "/tmp/per%20cent",
        "/tmp/back\\slash",
        "file:///tmp/a#b",
        "file:///tmp/a?b=c",
        "hdfs://bucket/t",
        "s3:/bucket/t",
    ] {
        assert_eq!(Location::open(uri, cutover::Access::Read).unwrap_err().kind(), ErrorKind::Config, "{uri}");
    }
    for uri in ["/tmp/100%", "/tmp/with space", "file:///tmp/with%20space", "/tmp/ü"] {
        assert!(Location::open(uri, cutover::Access::Read).is_ok(), "{uri}");
    }
}

#[tokio::test]
async fn files_that_grew_old_before_they_were_named_are_written_anew() {
    let inner = memory();
    let (writer, clock) = world(1);
    drop(sink(&inner, &writer).await);
    let slept = Arc::clone(&clock);
    let mut data = 0;
    let script = move |call: &crate::faults::Call| {
        if !call.path.starts_with("cutover-") || call.verb == crate::faults::Verb::Head {
            return None;
        }
        data += 1;
        // The machine sleeps while the first file is on its way, longer than others leave it alone.
        let slept = Arc::clone(&slept);
        let sleep = move |_| Box::pin(async move { slept.advance(Duration::from_secs(8 * 24 * 3600)) }) as _;
        (data == 1).then(|| Fault::First(Box::new(sleep)))
    };
    let faulty = FaultStore::new(Arc::clone(&inner), None, Box::new(script));
    let store: Arc<dyn ObjectStore> = Arc::new(faulty.clone());
    let mut sink = sink(&store, &writer).await;
    sink.append(changes(10, 12)).await.unwrap();
    let put: Vec<String> =
        faulty.calls().into_iter().map(|call| call.path).filter(|path| path.starts_with("cutover-")).collect();
    assert_eq!(put.len(), 2, "{put:?}");
    let live = log(&inner, &writer).live_files_at(2).await.unwrap();
    assert!(live.iter().any(|file| file.path == put[1]) && live.iter().all(|file| file.path != put[0]), "{put:?}");
}
