//! A view that gets other columns while it is delivered: what each policy makes of each change, wherever it meets it.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::display::array_value_to_string;
use cutover::connector::{CommitBounds, Connector, ConnectorSettings, Ended, Reset, Until};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::{CommitStamp, Kind, Mode, ResetStamp};
use cutover::inspect::state::state;
use cutover::source::files::{FilesSettings, FilesSource};
use cutover::{ErrorKind, Location, Result, SchemaChange};
use futures::TryStreamExt;
use object_store::ObjectStore;
use parquet::arrow::ArrowWriter;

use crate::faults::{Fault, FaultStore};
use crate::world::{healthy_stamps, log, memory, settings, step, world};

/// A feed of Parquet files of a view with the key `id`, and the table that it is delivered to.
struct Delivery {
    feed: tempfile::TempDir,
    store: Arc<dyn ObjectStore>,
    policy: SchemaChange,
    keyed: bool,
    mode: Mode,
    columns: Vec<(String, DataType)>,
    runs: std::cell::Cell<u64>,
}

impl Delivery {
    fn new(policy: SchemaChange) -> Self {
        let feed = tempfile::tempdir().unwrap();
        fs::create_dir(feed.path().join("v")).unwrap();
        Self {
            feed,
            store: memory(),
            policy,
            keyed: true,
            mode: Mode::SnapshotAndFollow,
            columns: vec![],
            runs: std::cell::Cell::new(0),
        }
    }

    fn write(&self, name: &str, columns: Vec<(&str, ArrayRef, bool)>) {
        let fields: Vec<Field> =
            columns.iter().map(|(n, c, null)| Field::new(*n, c.data_type().clone(), *null)).collect();
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(schema.clone(), columns.into_iter().map(|(_, c, _)| c).collect()).unwrap();
        let hidden = self.feed.path().join("v").join(format!(".{name}"));
        let mut writer = ArrowWriter::try_new(File::create(&hidden).unwrap(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        fs::rename(hidden, self.feed.path().join("v").join(name)).unwrap();
    }

    /// Lands the state of `ids` at `at`.
    fn snapshot(&self, at: u64, ids: &[i64], shape: Shape) {
        self.write(&format!("snapshot-{at}.parquet"), shape.columns(ids, at));
    }

    /// Lands an insert of the row `id` at `to`, in `(from, to]`.
    fn insert(&self, from: u64, to: u64, id: i64, shape: Shape) {
        let mut columns: Vec<(&str, ArrayRef, bool)> = vec![
            ("__step", Arc::new(Int64Array::from(vec![to as i64])), false),
            ("__op", Arc::new(StringArray::from(vec!["i"])), false),
        ];
        columns.extend(shape.columns(&[id], to));
        self.write(&format!("changes-{from}-{to}.parquet"), columns);
    }

    fn connector(&self) -> Connector {
        self.connectors()(Arc::clone(&self.store))
    }

    /// A process of its own, with ids of its own, on whatever store.
    fn connectors(&self) -> impl FnOnce(Arc<dyn ObjectStore>) -> Connector + Send + use<> {
        let files = FilesSettings {
            path: self.feed.path().to_path_buf(),
            id: Some("feed".into()),
            view: "v".into(),
            key: if self.keyed { vec!["id".into()] } else { vec![] },
            columns: self.columns.clone(),
            fold_memory: FilesSettings::FOLD_MEMORY,
        };
        let mut sink = settings();
        (sink.schema_change, sink.mode) = (self.policy, self.mode);
        let settings = ConnectorSettings {
            sink,
            commit: CommitBounds::default(),
            heartbeat: None,
            poll_interval: Duration::from_secs(1),
            reload_ratio: None,
        };
        self.runs.set(self.runs.get() + 1);
        let run = self.runs.get();
        move |store| {
            let source = FilesSource::new(files).unwrap();
            Connector::new(settings, Box::new(source), Location::on(store), world(run).0)
        }
    }

    async fn run(&self) -> Result<Ended> {
        self.connector().run(Until::Drained).await
    }

    async fn reset(&self) -> Result<()> {
        let mut connector = self.connector();
        let stamp = ResetStamp { id: self.runs.get().to_string(), who: "a test".into(), why: String::new() };
        let reset = Reset { stamp, expected_generation: None, older: Older::Refused };
        let prepared = connector.prepare_reset(reset).await?;
        connector.reset(prepared).await.map(|_| ())
    }

    /// The table's commits, and that they are healthy.
    async fn stamps(&self) -> Vec<CommitStamp> {
        healthy_stamps(&self.store).await
    }

    /// The letters of the commits' kinds; an append that sets metadata is an `A`.
    async fn kinds(&self) -> String {
        let log = log(&self.store, &world(2).0);
        let mut kinds = String::new();
        for (version, stamp) in self.stamps().await.iter().enumerate() {
            let sets = log.commit(version as u64).await.unwrap().unwrap().table.is_some();
            kinds.push(match stamp.kind {
                Kind::Reload => 'r',
                Kind::Mark => 'm',
                Kind::Append if sets => 'A',
                Kind::Append => 'a',
                Kind::Maintenance => 'x',
            });
        }
        kinds
    }

    /// The table's columns, and the view's rows at its last step, sorted.
    async fn rows(&self) -> (String, Vec<String>) {
        let found = state(&log(&self.store, &world(2).0), None).await.unwrap();
        let names: Vec<&str> = found.schema.fields().iter().map(|f| f.name().as_str()).collect();
        let names = names.join(" ");
        let batches: Vec<RecordBatch> = found.rows.try_collect().await.unwrap();
        let mut rows = Vec::new();
        for batch in &batches {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().map(|c| array_value_to_string(c, row).unwrap());
                rows.push(cells.collect::<Vec<_>>().join(" "));
            }
        }
        rows.sort();
        (names, rows)
    }
}

/// Which columns a file has.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// `id`, `name`.
    Plain,
    /// `extra` between the two.
    Added,
    /// `id` alone.
    Removed,
    /// `name` as a number.
    Altered,
    /// A struct `name` with `x`.
    Struct,
    /// A struct `name` with `x` and `y`.
    WiderStruct,
    /// `Name` beside `name`.
    Twin,
    /// A column that is never null beside the two.
    NotNull,
    /// `extra`, of nulls alone.
    AddedEmpty,
    /// A timestamp without zone beside the two.
    Ntz,
}

impl Shape {
    fn columns(self, ids: &[i64], at: u64) -> Vec<(&'static str, ArrayRef, bool)> {
        let text = |what: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("{what}{id}@{at}"))))
        };
        let number: ArrayRef = Arc::new(Int32Array::from(vec![at as i32; ids.len()]));
        let nested = |names: &[&str]| -> ArrayRef {
            let fields = names.iter().map(|n| (Arc::new(Field::new(*n, DataType::Int32, true)), number.clone()));
            Arc::new(StructArray::from(fields.collect::<Vec<_>>()))
        };
        let id: (&str, ArrayRef, bool) = ("id", Arc::new(Int64Array::from(ids.to_vec())), false);
        match self {
            Self::Plain => vec![id, ("name", text("n"), true)],
            Self::Added => vec![id, ("extra", text("e"), true), ("name", text("n"), true)],
            Self::Removed => vec![id],
            Self::Altered => vec![id, ("name", number, true)],
            Self::Struct => vec![id, ("name", nested(&["x"]), true)],
            Self::WiderStruct => vec![id, ("name", nested(&["x", "y"]), true)],
            Self::Twin => vec![id, ("name", text("n"), true), ("Name", text("N"), true)],
            Self::NotNull => vec![id, ("name", text("n"), true), ("sure", text("s"), false)],
            Self::AddedEmpty => {
                vec![id, ("extra", new_null_array(&DataType::Utf8, ids.len()), true), ("name", text("n"), true)]
            }
            Self::Ntz => {
                let times = new_null_array(&DataType::Timestamp(TimeUnit::Microsecond, None), ids.len());
                vec![id, ("name", text("n"), true), ("at", times, true)]
            }
        }
    }
}

/// Where the change of columns is met.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Point {
    InTheMiddle,
    AtARestart,
    AfterACrash,
}

const POINTS: [Point; 3] = [Point::InTheMiddle, Point::AtARestart, Point::AfterACrash];

/// Lands rows 1 and 2 at step 10, row 3 at 11 in `before`, row 4 at 12 in `after`, and delivers as `point` says.
async fn meet(delivery: &mut Delivery, before: Shape, after: Shape, point: Point) -> Result<Ended> {
    delivery.snapshot(10, &[1, 2], before);
    delivery.insert(10, 11, 3, before);
    if point != Point::InTheMiddle {
        delivery.run().await.unwrap();
    }
    delivery.insert(11, 12, 4, after);
    delivery.insert(12, 13, 5, after);
    if point == Point::AfterACrash {
        // The claim is made, the append's entry gets lost with the process that put it.
        let whole = Arc::clone(&delivery.store);
        let never =
            (0..500).map(|n| if n == 0 { Fault::First(Box::new(|_| Box::pin(async {}))) } else { Fault::Before });
        delivery.store = FaultStore::around(Arc::clone(&whole), never.collect());
        assert!(delivery.run().await.is_err());
        delivery.store = whole;
    }
    delivery.run().await
}

/// What becomes of a change of columns.
#[derive(Debug, Clone, Copy)]
enum Becomes {
    /// The columns are added with the first rows that have them.
    Added,
    /// The table is loaded anew.
    Reloaded,
    /// The table waits for a snapshot, and is loaded anew when there is one.
    Waits,
    /// It is refused, with these words.
    Refused(&'static str),
}

async fn is_added(delivery: &Delivery, told: &str) {
    let kinds = delivery.kinds().await;
    assert_eq!((kinds.matches('A').count(), kinds.matches('r').count()), (1, 1), "{told}: {kinds}");
    delivery.insert(13, 14, 6, Shape::Added);
    delivery.run().await.unwrap();
    assert_eq!(delivery.kinds().await, kinds + "ma", "{told}");
}

/// The last commit that loaded the table was made by policy, and no restart makes another.
async fn is_reloaded(delivery: &Delivery, after: Shape, told: &str) {
    let stamps = delivery.stamps().await;
    let reloads: Vec<&CommitStamp> = stamps.iter().filter(|s| s.kind == Kind::Reload).collect();
    assert_eq!(reloads.len(), 2, "{told}");
    let reset = reloads[1].reset.as_ref().unwrap();
    assert_eq!(reset.who, "schema_change = \"reload\"", "{told}");
    assert!(reset.why.contains("after step 11: column"), "{told}: {}", reset.why);
    delivery.insert(13, 14, 6, after);
    for _ in 0..3 {
        assert_eq!(delivery.run().await.unwrap().last_step, Some(step(14)), "{told}");
    }
    assert_eq!(delivery.kinds().await.matches('r').count(), 2, "{told}");
}

async fn is_refused(delivery: &Delivery, before: Shape, after: Shape, ended: Result<Ended>, words: &str, told: &str) {
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{told}: {error}");
    for part in [words, "changes-11-12.parquet"] {
        assert!(error.message().contains(part), "{told}: no {part:?} in {error}");
    }
    assert_eq!(delivery.stamps().await.last().unwrap().to, step(11), "{told}: what came before is delivered");
    let (names, _) = delivery.rows().await;
    assert_eq!(names.contains("extra"), before == Shape::Added, "{told}: {names}");
    // The remedy that always holds. Columns that were added are folded in, for others a snapshot is needed.
    if after != Shape::Added {
        assert_eq!(delivery.reset().await.unwrap_err().kind(), ErrorKind::Unavailable, "{told}");
        delivery.snapshot(11, &[1, 2, 3], after);
    }
    delivery.reset().await.unwrap();
    assert_eq!(delivery.run().await.unwrap().last_step, Some(step(13)), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_policy_answers_each_change_of_columns_wherever_it_is_met() {
    use {Becomes as B, SchemaChange as P, Shape as S};
    const REMEDY: &str = "schema_change = \"reload\"";
    for (policy, before, after, becomes) in [
        (P::Fail, S::Plain, S::Added, B::Refused("column \"extra\" string is added; schema_change is \"fail\": set")),
        (P::Fail, S::Added, S::Plain, B::Refused("column \"extra\" string is removed")),
        (P::Fail, S::Plain, S::Altered, B::Refused("column \"name\" is int and was string")),
        (P::AddColumns, S::Plain, S::Added, B::Added),
        (P::AddColumns, S::Plain, S::Removed, B::Refused(REMEDY)),
        (P::AddColumns, S::Plain, S::Altered, B::Refused(REMEDY)),
        (P::AddColumns, S::Struct, S::WiderStruct, B::Refused("is struct<x:int,y:int> and was struct<x:int>")),
        (P::Reload, S::Plain, S::Added, B::Reloaded),
        (P::Reload, S::Plain, S::Removed, B::Waits),
        (P::Reload, S::Plain, S::Altered, B::Waits),
        (P::Reload, S::Struct, S::WiderStruct, B::Waits),
    ] {
        for point in POINTS {
            for keyed in [true, false] {
                let told = format!("{policy}, {before:?} to {after:?}, {point:?}, keyed {keyed}");
                let mut delivery = Delivery { keyed, ..Delivery::new(policy) };
                let ended = meet(&mut delivery, before, after, point).await;
                match becomes {
                    B::Added => is_added(&delivery, &told).await,
                    B::Reloaded => is_reloaded(&delivery, after, &told).await,
                    B::Refused(words) => is_refused(&delivery, before, after, ended, words, &told).await,
                    B::Waits => {
                        let waits = ended.unwrap_err();
                        assert_eq!(waits.kind(), ErrorKind::Unavailable, "{told}: {waits}");
                        assert!(waits.message().contains("land a snapshot of step 11"), "{told}: {waits}");
                        delivery.snapshot(11, &[1, 2, 3], after);
                        delivery.run().await.unwrap();
                        is_reloaded(&delivery, after, &told).await;
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_added_column_is_null_before_and_stands_behind_the_others() {
    for policy in [SchemaChange::AddColumns, SchemaChange::Reload] {
        for (point, keyed) in POINTS.into_iter().zip([true, false, true]) {
            let mut delivery = Delivery { keyed, ..Delivery::new(policy) };
            meet(&mut delivery, Shape::Plain, Shape::Added, point).await.unwrap();
            let rows =
                ["1 n1@10 ", "2 n2@10 ", "3 n3@11 ", "4 n4@12 e4@12", "5 n5@13 e5@13"].map(String::from).to_vec();
            assert_eq!(delivery.rows().await, ("id name extra".to_owned(), rows.clone()), "{policy} {point:?}");
            // A reset folds the same out of files with and without the column.
            delivery.reset().await.unwrap();
            assert_eq!(delivery.rows().await, ("id name extra".to_owned(), rows), "{policy} {point:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_may_not_be_added_is_refused() {
    for (keyed, shape, expected) in [
        (true, Shape::Twin, Err("up to upper and lower case")),
        (false, Shape::NotNull, Err("column \"sure\" string not null is added")),
        // With a key, every other column may be null.
        (true, Shape::NotNull, Ok("id name sure")),
        (true, Shape::AddedEmpty, Ok("id name extra")),
        (true, Shape::Ntz, Ok("id name at")),
    ] {
        let mut delivery = Delivery { keyed, ..Delivery::new(SchemaChange::AddColumns) };
        let ended = meet(&mut delivery, Shape::Plain, shape, Point::InTheMiddle).await;
        match expected {
            Ok(names) => assert_eq!(delivery.rows().await.0, names, "{ended:?}"),
            Err(words) => {
                let error = ended.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
                assert!(error.message().contains(words) && error.message().contains("changes-11-12"), "{error}");
                assert_eq!(delivery.kinds().await, "ra");
            }
        }
        let protocol = log(&delivery.store, &world(2).0).facts().await.unwrap().protocol.unwrap();
        assert_eq!(protocol.min_writer_version, if shape == Shape::Ntz { 7 } else { 2 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_with_values_in_rows_that_exist_is_not_added_as_null() {
    for (shape, added) in [(Shape::Added, false), (Shape::AddedEmpty, true)] {
        let delivery = Delivery::new(SchemaChange::AddColumns);
        delivery.snapshot(10, &[1], Shape::Plain);
        delivery.insert(10, 11, 2, Shape::Plain);
        delivery.snapshot(11, &[1, 2], shape);
        delivery.insert(11, 12, 3, Shape::Added);
        let ended = delivery.run().await;
        // The newest snapshot began the table, and has the column.
        assert_eq!(ended.unwrap().last_step, Some(step(12)));
        let delivery = Delivery::new(SchemaChange::AddColumns);
        delivery.snapshot(10, &[1], Shape::Plain);
        delivery.insert(10, 11, 2, Shape::Plain);
        delivery.run().await.unwrap();
        delivery.snapshot(11, &[1, 2], shape);
        delivery.insert(11, 12, 3, Shape::Added);
        let ended = delivery.run().await;
        if added {
            assert_eq!(ended.unwrap().last_step, Some(step(12)));
            assert_eq!(delivery.kinds().await, "ramA");
        } else {
            let error = ended.unwrap_err();
            assert!(error.message().contains("snapshot-11.parquet") && error.message().contains("null in every row"));
            assert_eq!(delivery.kinds().await, "ra");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_right_before_the_first_changes_with_a_column_does_not_remove_it() {
    for (later, at_a_restart) in [(false, false), (false, true), (true, false), (true, true)] {
        let told = format!("a later snapshot: {later}, at a restart: {at_a_restart}");
        let delivery = Delivery::new(SchemaChange::AddColumns);
        delivery.snapshot(10, &[1], Shape::Plain);
        if later {
            delivery.insert(10, 11, 2, Shape::Plain);
        }
        if at_a_restart {
            delivery.run().await.unwrap();
        }
        let at = if later { 11 } else { 10 };
        if later {
            delivery.snapshot(11, &[1, 2], Shape::Plain);
        }
        delivery.insert(at, at + 1, 3, Shape::Added);
        for _ in 0..2 {
            assert_eq!(delivery.run().await.unwrap().last_step, Some(step(at + 1)), "{told}");
        }
        let kinds = delivery.kinds().await;
        assert_eq!((kinds.matches('A').count(), kinds.matches('r').count()), (1, 1), "{told}: {kinds}");
        let (names, rows) = delivery.rows().await;
        assert_eq!((&*names, rows.last()), ("id name extra", Some(&format!("3 n3@{0} e3@{0}", at + 1))), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_ahead_in_the_feed_bothers_no_restart_before_its_turn() {
    for policy in [SchemaChange::Fail, SchemaChange::AddColumns, SchemaChange::Reload] {
        let delivery = Delivery::new(policy);
        delivery.snapshot(10, &[1], Shape::Plain);
        delivery.insert(10, 11, 2, Shape::Plain);
        delivery.run().await.unwrap();
        delivery.snapshot(20, &[1, 2], Shape::Altered);
        delivery.insert(19, 20, 9, Shape::Removed);
        for _ in 0..2 {
            assert_eq!(delivery.run().await.unwrap().hole.unwrap().after, step(11), "{policy}");
        }
        assert_eq!(delivery.kinds().await, "ra", "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_that_come_and_go_make_a_reload_each_and_no_more() {
    let delivery = Delivery::new(SchemaChange::Reload);
    delivery.snapshot(10, &[1], Shape::Plain);
    let mut reloads = 1;
    for (at, shape) in [(11, Shape::Added), (12, Shape::Plain), (13, Shape::Added), (14, Shape::Plain)] {
        delivery.insert(at - 1, at, at as i64, shape);
        if shape == Shape::Plain {
            let waits = delivery.run().await.unwrap_err();
            assert_eq!(waits.kind(), ErrorKind::Unavailable, "{waits}");
            delivery.snapshot(at, &[1], Shape::Plain);
        }
        reloads += 1;
        for _ in 0..3 {
            delivery.run().await.unwrap();
            assert_eq!(delivery.kinds().await.matches('r').count(), reloads, "{at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configured_columns_are_the_view_whatever_older_files_lack() {
    let columns = |names: &[&str]| -> Vec<(String, DataType)> {
        let types = names.iter().map(|n| if *n == "id" { DataType::Int64 } else { DataType::Utf8 });
        names.iter().map(ToString::to_string).zip(types).collect()
    };
    let (two, three) = (columns(&["id", "name"]), columns(&["extra", "id", "name"]));
    for policy in [SchemaChange::Fail, SchemaChange::AddColumns, SchemaChange::Reload] {
        let mut delivery = Delivery { columns: two.clone(), ..Delivery::new(policy) };
        delivery.snapshot(10, &[1], Shape::Plain);
        delivery.insert(10, 11, 2, Shape::Plain);
        delivery.run().await.unwrap();
        delivery.insert(11, 12, 3, Shape::Plain);
        delivery.insert(12, 13, 4, Shape::Added);
        let unknown = delivery.run().await.unwrap_err();
        assert!(
            unknown.message().contains("column \"extra\" is not among the view's `columns`"),
            "{policy}: {unknown}"
        );
        delivery.columns = three.clone();
        match (policy, delivery.run().await) {
            (SchemaChange::Fail, Err(e)) => assert!(e.message().contains("`columns` after step 12"), "{e}"),
            (_, ended) => {
                assert_eq!(ended.unwrap().last_step, Some(step(13)), "{policy}");
                let rows = ["1 n1@10 ", "2 n2@11 ", "3 n3@12 ", "4 n4@13 e4@13"].map(String::from).to_vec();
                let (names, found) = delivery.rows().await;
                let found: Vec<String> = match policy {
                    SchemaChange::Reload => found.iter().map(|row| last_first(row)).collect(),
                    _ => found,
                };
                assert_eq!((names.split(' ').count(), found), (3, rows), "{policy}: {names}");
            }
        }
        delivery.insert(13, 14, 5, Shape::Plain);
        if policy != SchemaChange::Fail {
            let lost = delivery.run().await.unwrap_err();
            assert!(
                lost.message().contains("\"extra\" is missing, and changes-12-13.parquet has it"),
                "{policy}: {lost}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_column_taken_away_waits_for_a_snapshot_without_it() {
    for (old, text) in [("snapshot-11.parquet", None), ("snapshot-11.ndjson", Some("{\"id\":1,\"name\":\"n1\"}\n"))] {
        let mut delivery = Delivery::new(SchemaChange::Reload);
        delivery.columns = vec![("id".into(), DataType::Int64), ("name".into(), DataType::Utf8)];
        delivery.snapshot(10, &[1], Shape::Plain);
        delivery.insert(10, 11, 2, Shape::Plain);
        delivery.run().await.unwrap();
        delivery.columns.truncate(1);
        delivery.insert(11, 12, 3, Shape::Removed);
        let waits = delivery.run().await.unwrap_err();
        assert_eq!(waits.kind(), ErrorKind::Unavailable, "{waits}");
        assert!(waits.message().contains("land a snapshot of step 11 or later with the view's columns"), "{waits}");
        match text {
            Some(text) => fs::write(delivery.feed.path().join("v").join(old), text).unwrap(),
            None => delivery.snapshot(11, &[1, 2], Shape::Plain),
        }
        let waits = delivery.run().await.unwrap_err();
        assert_eq!(waits.kind(), ErrorKind::Unavailable, "{waits}");
        for part in [old, "column \"name\" is not", "land a later snapshot"] {
            assert!(waits.message().contains(part), "no {part:?} in {waits}");
        }
        assert_eq!(delivery.kinds().await, "ra", "{old}");
        delivery.snapshot(12, &[1, 2, 3], Shape::Removed);
        for _ in 0..2 {
            assert_eq!(delivery.run().await.unwrap().last_step, Some(step(12)), "{old}");
        }
        assert_eq!(delivery.kinds().await.matches('r').count(), 2, "{old}");
        assert_eq!(delivery.rows().await, ("id".to_owned(), ["1", "2", "3"].map(String::from).to_vec()), "{old}");
    }
}

/// A row whose first cell was moved behind the others.
fn last_first(row: &str) -> String {
    let (first, rest) = row.split_once(' ').unwrap();
    format!("{rest} {first}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_another_process_met_first_is_not_made_again() {
    for (policy, expected) in [(SchemaChange::AddColumns, "rmaAm"), (SchemaChange::Reload, "rmarm")] {
        let mut delivery = Delivery::new(policy);
        delivery.snapshot(10, &[1, 2], Shape::Plain);
        delivery.run().await.unwrap();
        delivery.insert(10, 11, 3, Shape::Plain);
        delivery.insert(11, 12, 4, Shape::Added);
        // The other process does everything just before this one takes its epoch.
        let other = delivery.connectors();
        let first = Fault::First(Box::new(move |store| {
            Box::pin(async move { drop(other(store).run(Until::Drained).await.unwrap()) })
        }));
        let whole = Arc::clone(&delivery.store);
        delivery.store = FaultStore::around(Arc::clone(&whole), vec![first]);
        assert_eq!(delivery.run().await.unwrap().last_step, Some(step(12)), "{policy}");
        delivery.store = whole;
        assert_eq!(delivery.kinds().await, expected, "{policy}");
        assert_eq!(delivery.rows().await.1.len(), 4);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mode_follow_begins_with_the_columns_of_the_first_changes() {
    for (policy, expected) in [(SchemaChange::AddColumns, Ok("raA")), (SchemaChange::Reload, Err(ErrorKind::Refused))] {
        let delivery = Delivery { mode: Mode::Follow, ..Delivery::new(policy) };
        delivery.insert(10, 11, 1, Shape::Plain);
        delivery.snapshot(12, &[1, 2], Shape::Altered);
        delivery.insert(11, 12, 2, Shape::Added);
        let ended = delivery.connector().run(Until::Step(step(12))).await;
        match expected {
            Ok(kinds) => assert_eq!((ended.unwrap().last_step, &*delivery.kinds().await), (Some(step(12)), kinds)),
            Err(kind) => assert_eq!(ended.unwrap_err().kind(), kind),
        }
    }
}
