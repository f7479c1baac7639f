//! Damage that `verify` finds, by version, and health that it leaves alone.

use std::sync::Arc;

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Report, Verdict, verify};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;

use crate::world::{changes, log, memory, sink, state, world};

/// Versions: 0 load, 1 append, 2 reload (generation 2), 3 append, 4 claim, 5 append, 6 append.
async fn healthy() -> Arc<dyn ObjectStore> {
    let (store, (world, _)) = (memory(), world(1));
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 12)).await.unwrap();
    let reset = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    first.reload(state(12, &[4, 5]), reset, Older::Refused).await.unwrap();
    first.append(changes(12, 14)).await.unwrap();
    let mut second = sink(&store, &world).await;
    second.append(changes(14, 15)).await.unwrap();
    second.append(changes(15, 18)).await.unwrap();
    store
}

fn entry_path(version: u64) -> Path {
    Path::from(format!("_delta_log/{version:020}.json"))
}

async fn read(store: &Arc<dyn ObjectStore>, version: u64) -> String {
    let bytes = store.get(&entry_path(version)).await.unwrap().bytes().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn write(store: &Arc<dyn ObjectStore>, version: u64, text: String) {
    store.put(&entry_path(version), text.into()).await.unwrap();
}

/// Changes the stamp of `version`.
async fn restamp(store: &Arc<dyn ObjectStore>, version: u64, change: impl Fn(&mut Value)) {
    let text = read(store, version).await;
    let (first, rest) = text.split_once('\n').unwrap();
    let mut info: Value = serde_json::from_str(first).unwrap();
    let mut stamp: Value = serde_json::from_str(info["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap();
    change(&mut stamp);
    info["commitInfo"]["userMetadata"] = stamp.to_string().into();
    write(store, version, format!("{info}\n{rest}")).await;
}

async fn check(store: &Arc<dyn ObjectStore>) -> Report {
    verify(&log(store, &world(0).0), None).await.unwrap()
}

async fn assert_found(store: &Arc<dyn ObjectStore>, version: u64, words: &str, what: &str) {
    let report = check(store).await;
    assert_eq!(report.verdict, Verdict::Broken, "{what}");
    let found = report.findings.iter().any(|f| f.version == version && f.message.contains(words));
    assert!(found, "{what}: no finding at version {version} says {words:?}: {:#?}", report.findings);
}

async fn first_file(store: &Arc<dyn ObjectStore>, version: u64) -> (Path, String) {
    let text = read(store, version).await;
    let line = text.lines().find(|l| l.starts_with("{\"add\"")).unwrap().to_string();
    let add: Value = serde_json::from_str(&line).unwrap();
    (Path::from(add["add"]["path"].as_str().unwrap()), line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_table_is_left_alone() {
    let store = healthy().await;
    let report = check(&store).await;
    assert_eq!((report.verdict, report.head, report.since), (Verdict::Healthy, 6, 0));
    assert!(report.findings.is_empty() && report.older.is_empty());
    let generations: Vec<_> =
        report.segments.iter().map(|s| (s.generation.get(), s.reload, s.last_step.get())).collect();
    assert_eq!(generations, [(1, Some(0), 12), (2, Some(2), 18)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_and_steps_twice_are_found() {
    let store = healthy().await;
    restamp(&store, 5, |s| s["from"] = 13.into()).await;
    assert_found(&store, 5, "steps twice", "an append that starts too early").await;
    let store = healthy().await;
    restamp(&store, 6, |s| s["from"] = 16.into()).await;
    assert_found(&store, 6, "a gap", "an append that starts too late").await;
    let store = healthy().await;
    // A whole append cut out, the versions after it moved down.
    for version in 5..=5 {
        let next = read(&store, version + 1).await;
        write(&store, version, next).await;
    }
    store.delete(&entry_path(6)).await.unwrap();
    assert_found(&store, 5, "a gap", "an append that is gone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doubled_add_is_found() {
    let store = healthy().await;
    let (_, line) = first_file(&store, 5).await;
    let text = read(&store, 6).await;
    write(&store, 6, format!("{text}{line}\n")).await;
    assert_found(&store, 6, "a second time", "a file added twice").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_broken_is_found() {
    let store = healthy().await;
    restamp(&store, 6, |s| s["epoch"] = 1.into()).await;
    assert_found(&store, 6, "epoch 1 commits after the epoch 2", "a lower epoch").await;
    let store = healthy().await;
    restamp(&store, 6, |s| s["writer"] = "somebody".into()).await;
    assert_found(&store, 6, "two writers", "one epoch, two writers").await;
    let store = healthy().await;
    restamp(&store, 6, |s| s["generation"] = 1.into()).await;
    assert_found(&store, 6, "generation 1 commits after the generation 2", "an older generation").await;
    let store = healthy().await;
    restamp(&store, 6, |s| s["connector"] = "p/v/other".into()).await;
    assert_found(&store, 6, "p/v/other", "another connector").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_or_forged_commit_info_is_found() {
    let store = healthy().await;
    let text = read(&store, 6).await;
    write(&store, 6, text.split_once('\n').unwrap().1.to_string()).await;
    assert_found(&store, 6, "without our commit info", "no commit info").await;
    let store = healthy().await;
    let text = read(&store, 6).await;
    write(&store, 6, text.replace("\\\"digest_total\\\":\\\"", "\\\"digest_total\\\":\\\"0")).await;
    assert_found(&store, 6, "commit info cannot be trusted", "a malformed digest").await;
    for (field, value) in [
        ("to", Value::from(17)),
        ("digest", "00000000000000000000000000000001".into()),
        ("digest_total", "00000000000000000000000000000001".into()),
        ("kind", "mark".into()),
        ("kind", "reload".into()),
        ("rows", serde_json::json!({"i": 0, "u": 2, "d": 0})),
    ] {
        let store = healthy().await;
        restamp(&store, 6, |s| s[field] = value.clone()).await;
        assert_found(&store, 6, "", &format!("{field} forged")).await;
    }
    let store = healthy().await;
    let copied: Value = serde_json::from_str(read(&store, 5).await.split_once('\n').unwrap().0).unwrap();
    let commit =
        serde_json::from_str::<Value>(copied["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap()["commit"]
            .clone();
    restamp(&store, 6, |s| s["commit"] = commit.clone()).await;
    assert_found(&store, 6, "stands in two versions", "a commit id used twice").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_and_truncated_files_are_found_at_the_version_that_added_them() {
    let store = healthy().await;
    let (path, _) = first_file(&store, 3).await;
    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    store.put(&path, whole.slice(..whole.len() - 1).into()).await.unwrap();
    assert_found(&store, 3, "bytes", "a truncated file").await;
    store.delete(&path).await.unwrap();
    assert_found(&store, 3, "is gone", "a deleted file").await;
    let store = healthy().await;
    // A file of an older generation is nobody's any more.
    let (path, _) = first_file(&store, 1).await;
    store.delete(&path).await.unwrap();
    assert_eq!(check(&store).await.verdict, Verdict::Healthy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edited_counts_are_found() {
    for (from, to) in [
        ("\\\"numRecords\\\":3", "\\\"numRecords\\\":4"),
        ("\\\"u\\\":3", "\\\"u\\\":2"),
        ("\"numOutputRows\":\"3\"", "\"numOutputRows\":\"4\""),
    ] {
        let store = healthy().await;
        let text = read(&store, 6).await;
        assert!(text.contains(from), "{from} in {text}");
        write(&store, 6, text.replace(from, to)).await;
        assert_found(&store, 6, "rows", to).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_rows_schema_and_properties_are_found() {
    let add = "{\"add\":{\"path\":\"x.parquet\",\"partitionValues\":{},\"size\":4,\"modificationTime\":1,\"dataChange\":true,\"stats\":\"{\\\"numRecords\\\":1}\"}}";
    let store = healthy().await;
    store.put(&Path::from("x.parquet"), "rows".into()).await.unwrap();
    write(&store, 7, format!("{{\"commitInfo\":{{\"operation\":\"WRITE\"}}}}\n{add}\n")).await;
    assert_found(&store, 7, "changes rows", "foreign rows").await;
    let metadata = |store: Arc<dyn ObjectStore>| async move {
        read(&store, 2).await.lines().find(|l| l.starts_with("{\"metaData\"")).unwrap().to_string()
    };
    for (from, to, words) in [
        ("\\\"name\\\":\\\"name\\\"", "\\\"name\\\":\\\"title\\\"", "schema"),
        ("\"cutover.step\":\"12\"", "\"cutover.step\":\"13\"", "cutover."),
        ("\"partitionColumns\":[]", "\"partitionColumns\":[\"id\"]", "partitioning"),
        (
            "\"configuration\":{",
            "\"configuration\":{\"delta.setTransactionRetentionDuration\":\"interval 1 day\",",
            "setTransactionRetention",
        ),
    ] {
        let store = healthy().await;
        let line = metadata(Arc::clone(&store)).await;
        assert!(line.contains(from), "{from} in {line}");
        write(&store, 7, format!("{{\"commitInfo\":{{\"operation\":\"ALTER\"}}}}\n{}\n", line.replace(from, to))).await;
        assert_found(&store, 7, words, to).await;
    }
    let store = healthy().await;
    let line =
        metadata(Arc::clone(&store)).await.replace("\"configuration\":{", "\"configuration\":{\"owner\":\"them\",");
    write(&store, 7, format!("{{\"commitInfo\":{{\"operation\":\"SET TBLPROPERTIES\"}}}}\n{line}\n")).await;
    assert_eq!(check(&store).await.verdict, Verdict::Healthy, "a property of others");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_entry_in_the_middle_is_found() {
    let store = healthy().await;
    store.delete(&entry_path(4)).await.unwrap();
    assert_found(&store, 4, "is missing", "an entry without a checkpoint above it").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_that_leaves_older_files_is_found() {
    let store = healthy().await;
    let text = read(&store, 2).await;
    let kept: Vec<&str> = text.lines().filter(|l| !l.starts_with("{\"remove\"")).collect();
    write(&store, 2, kept.join("\n")).await;
    assert_found(&store, 2, "older files live", "a reload without removes").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_its_beginning_is_checked_from_where_it_starts() {
    let store = healthy().await;
    let world = world(2).0;
    let table = log(&store, &world);
    let mut facts = table.facts().await.unwrap();
    table.checkpoint(&mut facts).await.unwrap();
    for version in 0..5 {
        store.delete(&entry_path(version)).await.unwrap();
    }
    let report = check(&store).await;
    assert_eq!((report.verdict, report.since), (Verdict::Healthy, 5), "{:?}", report.findings);
    let (path, _) = first_file(&store, 6).await;
    store.delete(&path).await.unwrap();
    assert_found(&store, 6, "is gone", "a file lost behind a cleaned log").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_is_inconclusive() {
    let store = memory();
    let entry = "{\"protocol\":{\"minReaderVersion\":1,\"minWriterVersion\":2}}\n{\"metaData\":{\"id\":\"i\",\"format\":{\"provider\":\"parquet\",\"options\":{}},\
                 \"schemaString\":\"{\\\"type\\\":\\\"struct\\\",\\\"fields\\\":[]}\",\"partitionColumns\":[],\"configuration\":{}}}\n";
    write(&store, 0, entry.to_string()).await;
    assert!(matches!(check(&store).await.verdict, Verdict::Inconclusive(_)));
    let store = healthy().await;
    let text = read(&store, 2).await;
    write(&store, 2, text.replace("\"cutover.contract\":\"1\"", "\"cutover.contract\":\"9\"")).await;
    assert!(matches!(check(&store).await.verdict, Verdict::Inconclusive(_)));
}
