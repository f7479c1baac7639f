//! A landed feed delivered by a connector, on a clock that only sleeping moves.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::DataType;
use cutover::connector::{CommitBounds, Connector, ConnectorSettings, Ended, Until};
use cutover::continuity::stamp::{CommitStamp, Kind, Mode};
use cutover::source::files::{FilesSettings, FilesSource};
use cutover::{ErrorKind, Location, Result};
use object_store::ObjectStore;

use crate::faults::{Fault, FaultStore};
use crate::world::{healthy_stamps, memory, settings, step, world};

/// A feed of NDJSON files and the table that it is delivered to.
struct Delivery {
    feed: tempfile::TempDir,
    store: Arc<dyn ObjectStore>,
    mode: Mode,
    heartbeat: Option<Duration>,
    runs: std::cell::Cell<u64>,
}

impl Delivery {
    fn new(mode: Mode) -> Self {
        let feed = tempfile::tempdir().unwrap();
        fs::create_dir(feed.path().join("v")).unwrap();
        Self { feed, store: memory(), mode, heartbeat: None, runs: std::cell::Cell::new(0) }
    }

    fn land(&self, name: &str, lines: &[&str]) {
        fs::write(self.feed.path().join("v").join(name), lines.join("\n")).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.feed.path().join("v").join(name)).unwrap();
    }

    async fn run(&self, until: Until) -> Result<Ended> {
        self.connector().run(until).await
    }

    /// A process of its own, with ids of its own.
    fn connector(&self) -> Connector {
        let files = FilesSettings {
            path: Path::new(self.feed.path()).to_path_buf(),
            id: None,
            view: "v".into(),
            key: vec!["id".into()],
            columns: vec![("id".into(), DataType::Int64), ("name".into(), DataType::Utf8)],
            fold_memory: FilesSettings::FOLD_MEMORY,
        };
        let mut sink = settings();
        sink.mode = self.mode;
        let settings = ConnectorSettings {
            sink,
            commit: CommitBounds::default(),
            heartbeat: self.heartbeat,
            poll_interval: Duration::from_secs(1),
            reload_ratio: None,
        };
        let location = Location::on(Arc::clone(&self.store));
        self.runs.set(self.runs.get() + 1);
        Connector::new(settings, Box::new(FilesSource::new(files).unwrap()), location, world(self.runs.get()).0)
    }

    /// The table's commits, and that they are healthy.
    async fn stamps(&self) -> Vec<CommitStamp> {
        healthy_stamps(&self.store).await
    }

    /// Kind, first step, last step and rows of each commit.
    async fn commits(&self) -> Vec<(Kind, Option<u64>, u64, u64)> {
        let stamps = self.stamps().await;
        stamps.iter().map(|s| (s.kind, s.from.map(|f| f.get()), s.to.get(), s.rows.total())).collect()
    }
}

const ROW: &str = r#"{"id":1,"name":"a"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_without_changes_become_part_of_the_next_append() {
    let delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-10-20.ndjson", &[]);
    delivery.run(Until::Drained).await.unwrap();
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 1)]);
    delivery.land("changes-20-30.ndjson", &[r#"{"step":25,"insert":{"id":2,"name":"b"}}"#]);
    delivery.run(Until::Drained).await.unwrap();
    let appended = (Kind::Append, Some(10), 30, 1);
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 1), (Kind::Mark, Some(10), 10, 0), appended]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_records_steps_without_changes() {
    let mut delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.heartbeat = Some(Duration::from_secs(5));
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-10-20.ndjson", &[]);
    delivery.run(Until::Drained).await.unwrap();
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 1), (Kind::Append, Some(10), 20, 0)]);
    delivery.run(Until::Drained).await.unwrap();
    assert_eq!(delivery.commits().await.len(), 2, "nothing passed since");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_follow_begins_before_the_first_change_without_rows() {
    let delivery = Delivery::new(Mode::Follow);
    delivery.land("changes-10-20.ndjson", &[r#"{"step":11,"update":{"id":2,"name":"b"}}"#]);
    delivery.run(Until::Drained).await.unwrap();
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 0), (Kind::Append, Some(10), 20, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_snapshot_is_one_reload_for_good() {
    let delivery = Delivery::new(Mode::Snapshot);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-10-20.ndjson", &[r#"{"step":11,"update":{"id":1,"name":"b"}}"#]);
    for _ in 0..2 {
        assert_eq!(delivery.run(Until::Drained).await.unwrap().last_step, Some(step(10)));
    }
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_begun_without_a_snapshot_is_not_followed_as_if_it_had_one() {
    let mut delivery = Delivery::new(Mode::Follow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-10-20.ndjson", &[r#"{"step":11,"delete":{"id":1}}"#]);
    delivery.run(Until::Drained).await.unwrap();
    delivery.mode = Mode::SnapshotAndFollow;
    assert_eq!(delivery.run(Until::Drained).await.unwrap_err().kind(), ErrorKind::Refused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_asked_for_is_where_delivery_ends() {
    let delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    let lines: Vec<String> = (11..=20).map(|s| format!(r#"{{"step":{s},"update":{{"id":{s},"name":"b"}}}}"#)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    delivery.land("changes-10-20.ndjson", &lines);
    for at in [13, 14, 14] {
        assert_eq!(delivery.run(Until::Step(step(at))).await.unwrap().last_step, Some(step(at)));
    }
    let appends: Vec<_> = delivery.commits().await.into_iter().filter(|c| c.0 == Kind::Append).collect();
    assert_eq!(appends, [(Kind::Append, Some(10), 13, 3), (Kind::Append, Some(13), 14, 1)]);
    assert_eq!(delivery.run(Until::Drained).await.unwrap().last_step, Some(step(20)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_is_waited_for_and_a_source_behind_the_table_is_not() {
    let delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-15-20.ndjson", &[r#"{"step":16,"update":{"id":1,"name":"c"}}"#]);
    let hole = delivery.run(Until::Drained).await.unwrap().hole.unwrap();
    assert_eq!(hole.after, step(10));
    assert!(hole.before.contains("changes-15-20"), "{hole:?}");
    delivery.land("changes-10-15.ndjson", &[r#"{"step":12,"update":{"id":1,"name":"b"}}"#]);
    assert_eq!(delivery.run(Until::Drained).await.unwrap().hole, None);
    delivery.remove("changes-15-20.ndjson");
    let behind = delivery.run(Until::Drained).await.unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::ContinuityLost);
    assert!(behind.message().contains("15") && behind.message().contains("20"), "{behind}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_before_a_bad_file_is_committed() {
    let delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.land("changes-10-15.ndjson", &[r#"{"step":12,"update":{"id":1,"name":"b"}}"#]);
    delivery.land("changes-15-16.ndjson", &[r#"{"step":99,"update":{"id":1,"name":"c"}}"#]);
    let bad = delivery.run(Until::Drained).await.unwrap_err();
    assert!(bad.message().contains("changes-15-16"), "{bad}");
    assert_eq!(delivery.commits().await, [(Kind::Reload, None, 10, 1), (Kind::Append, Some(10), 15, 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_that_fails_for_long_delays_delivery_and_loses_nothing() {
    let mut delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    delivery.run(Until::Drained).await.unwrap();
    delivery.land("changes-10-15.ndjson", &[r#"{"step":12,"update":{"id":1,"name":"b"}}"#]);
    delivery.store = FaultStore::around(Arc::clone(&delivery.store), (0..200).map(|_| Fault::Before).collect());
    let ended = delivery.run(Until::Step(step(15))).await.unwrap();
    assert_eq!(ended.last_step, Some(step(15)));
    assert_eq!(delivery.commits().await.last(), Some(&(Kind::Append, Some(10), 15, 1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_does_not_take_back_what_another_has_taken() {
    let delivery = Delivery::new(Mode::SnapshotAndFollow);
    delivery.land("snapshot-10.ndjson", &[ROW]);
    let mut first = delivery.connector();
    first.run(Until::Drained).await.unwrap();
    delivery.land("changes-10-20.ndjson", &[r#"{"step":15,"insert":{"id":2,"name":"b"}}"#]);
    delivery.run(Until::Drained).await.unwrap();
    let taken = [(Kind::Reload, None, 10, 1), (Kind::Mark, Some(10), 10, 0), (Kind::Append, Some(10), 20, 1)].to_vec();
    assert_eq!(delivery.commits().await, taken);
    delivery.land("changes-20-30.ndjson", &[r#"{"step":25,"insert":{"id":3,"name":"c"}}"#]);
    // It begins anew, as after a reset or a source that was away.
    let fenced = first.run(Until::Drained).await.unwrap_err();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
    assert_eq!(delivery.commits().await, taken);
    // Who lets it go on after that wants the table.
    first.run(Until::Drained).await.unwrap();
    let back = [(Kind::Mark, Some(20), 20, 0), (Kind::Append, Some(20), 30, 1)];
    assert_eq!(delivery.commits().await, [&taken[..], &back].concat());
}
