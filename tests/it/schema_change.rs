//! A view that gets other columns while it is delivered: what each policy makes of each change, wherever it meets it.

use std::fs::{self, File};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray, StructArray, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::util::display::array_value_to_string;
use cutover::connector::{CommitBounds, Connector, ConnectorSettings, Ended, Reset, Until};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::{CommitStamp, Kind, ResetStamp};
use cutover::inspect::{Verdict, state::state, verify};
use cutover::source::files::{FilesSettings, FilesSource};
use cutover::{ErrorKind, Location, Result, SchemaChange};
use futures::TryStreamExt;
use object_store::ObjectStore;
use parquet::arrow::ArrowWriter;

use crate::faults::{Fault, FaultStore};
use crate::world::{log, memory, settings, step, world};

/// A feed of Parquet files of a view with the key `id`, and the table that it is delivered to.
struct Delivery {
    feed: tempfile::TempDir,
    store: Arc<dyn ObjectStore>,
    policy: SchemaChange,
    keyed: bool,
    columns: Vec<(String, DataType)>,
    runs: std::cell::Cell<u64>,
}

impl Delivery {
    fn new(policy: SchemaChange) -> Self {
        let feed = tempfile::tempdir().unwrap();
        fs::create_dir(feed.path().join("v")).unwrap();
        Self { feed, store: memory(), policy, keyed: true, columns: vec![], runs: std::cell::Cell::new(0) }
    }

    fn write(&self, name: &str, columns: Vec<(&str, ArrayRef, bool)>) {
        let fields: Vec<Field> = columns.iter().map(|(n, c, null)| Field::new(*n, c.data_type().clone(), *null)).collect();
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
        let files = FilesSettings {
            path: self.feed.path().to_path_buf(),
            id: Some("feed".into()),
            view: "v".into(),
            key: if self.keyed { vec!["id".into()] } else { vec![] },
            columns: self.columns.clone(),
            fold_memory: FilesSettings::FOLD_MEMORY,
        };
        let mut sink = settings();
        sink.schema_change = self.policy;
        let settings = ConnectorSettings {
            sink,
            commit: CommitBounds::default(),
            heartbeat: None,
            poll_interval: Duration::from_secs(1),
        };
        // Each run is a process of its own, with ids of its own.
        self.runs.set(self.runs.get() + 1);
        let location = Location::on(Arc::clone(&self.store));
        Connector::new(settings, Box::new(FilesSource::new(files).unwrap()), location, world(self.runs.get()).0)
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
        let log = log(&self.store, &world(2).0);
        let report = verify(&log, None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
        let mut stamps = Vec::new();
        for version in 0..=report.head {
            stamps.push(log.commit(version).await.unwrap().unwrap().stamp().unwrap().clone());
        }
        stamps
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
        let never = (0..500).map(|n| if n == 0 { Fault::First(Box::new(|_| Box::pin(async {}))) } else { Fault::Before });
        delivery.store = FaultStore::around(Arc::clone(&whole), never.collect());
        assert!(delivery.run().await.is_err());
        delivery.store = whole;
    }
    delivery.run().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_is_added_with_the_first_rows_that_have_it() {
    for point in POINTS {
        let mut delivery = Delivery::new(SchemaChange::AddColumns);
        meet(&mut delivery, Shape::Plain, Shape::Added, point).await.unwrap();
        let expected = ["1 n1@10 ", "2 n2@10 ", "3 n3@11 ", "4 n4@12 e4@12", "5 n5@13 e5@13"];
        let (names, rows) = delivery.rows().await;
        assert_eq!((names.as_str(), rows), ("id name extra", expected.map(String::from).to_vec()), "{point:?}");
        let kinds = delivery.kinds().await;
        assert_eq!(kinds.matches('A').count(), 1, "{point:?}: {kinds}");
        assert_eq!(kinds.matches('r').count(), 1, "{point:?}: {kinds}");
        // A restart goes on in the same columns, and an older file among those that are read anew does not bother it.
        delivery.insert(13, 14, 6, Shape::Added);
        delivery.run().await.unwrap();
        assert_eq!(delivery.kinds().await, kinds + "ma", "{point:?}");
    }
}
