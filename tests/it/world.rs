//! A clock that only sleeping moves, seeded ids, a small view, and a table to deliver it to.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::continuity::stamp::CommitStamp;
use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{
    Changes, Clock, Ids, Location, Sink, SinkSettings, Snapshot, Standing, Step, StepRange, Target, View, World,
};
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;

/// Time that passes when somebody sleeps, or when a test says so.
#[derive(Debug, Default)]
pub(crate) struct TestClock {
    time: Arc<Mutex<Time>>,
}

#[derive(Debug, Default)]
struct Time {
    passed: Duration,
    waiting: Vec<Waker>,
}

impl Time {
    fn pass(&mut self, by: Duration) {
        self.passed += by;
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.time.lock().unwrap().pass(by);
    }
}

impl Clock for TestClock {
    fn unix_millis(&self) -> i64 {
        1_700_000_000_000 + self.boot().as_millis() as i64
    }

    fn boot(&self) -> Duration {
        self.time.lock().unwrap().passed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let time = Arc::clone(&self.time);
        Box::pin(async move {
            tokio::task::yield_now().await;
            time.lock().unwrap().pass(duration);
        })
    }

    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let time = Arc::clone(&self.time);
        let end = self.boot() + duration;
        Box::pin(poll_fn(move |context| {
            let mut time = time.lock().unwrap();
            if time.passed >= end {
                return Poll::Ready(());
            }
            time.waiting.push(context.waker().clone());
            Poll::Pending
        }))
    }
}

pub(crate) fn world(seed: u64) -> (World, Arc<TestClock>) {
    let clock = Arc::new(TestClock::default());
    (World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ids: Arc::new(Ids::from_seed(seed)) }, clock)
}

pub(crate) fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub(crate) fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

/// A keyed view `(id bigint, name string)`.
pub(crate) fn view() -> View {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)]);
    View::new("v", &schema, vec!["id".into()]).unwrap()
}

/// The rows with these ids, as they are at a step.
pub(crate) fn rows(at: u64, ids: &[i64]) -> RecordBatch {
    let names = StringArray::from_iter_values(ids.iter().map(|id| format!("row {id} at {at}")));
    let columns: Vec<Arc<dyn arrow::array::Array>> = vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(names)];
    RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap()
}

pub(crate) fn state(at: u64, ids: &[i64]) -> Snapshot {
    Snapshot::from_batches(step(at), vec![rows(at, ids)])
}

/// One change a step in `(from, to]`: an update of the row with the step's id.
pub(crate) fn changes(from: u64, to: u64) -> Changes {
    let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
    let names = StringArray::from_iter_values(steps.iter().map(|s| format!("changed at {s}")));
    let columns: Vec<Arc<dyn arrow::array::Array>> = vec![
        Arc::new(Int64Array::from(steps.clone())),
        Arc::new(StringArray::from(vec!["u"; steps.len()])),
        Arc::new(Int64Array::from(steps)),
        Arc::new(names),
    ];
    let batch = RecordBatch::try_new(view().change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

pub(crate) fn settings() -> SinkSettings {
    let mut settings = SinkSettings::new("p/v/c", "source-1");
    settings.files.threads = 0;
    settings
}

pub(crate) async fn target(store: &Arc<dyn ObjectStore>, world: &World) -> cutover::Result<Target> {
    Target::open(Location::on(Arc::clone(store)), view(), settings(), world.clone()).await
}

/// A claimed sink on `store`: the first one loads rows 1 to 3 at step 10.
pub(crate) async fn sink(store: &Arc<dyn ObjectStore>, world: &World) -> Sink {
    let target = target(store, world).await.unwrap();
    match target.standing() {
        Standing::Ours(_) => target.claim().await.unwrap(),
        _ => target.load(state(10, &[1, 2, 3])).await.unwrap(),
    }
}

/// The commits of a table on `store`, all of them ours, and that they are healthy.
pub(crate) async fn healthy_stamps(store: &Arc<dyn ObjectStore>) -> Vec<CommitStamp> {
    let log = log(store, &world(2).0);
    let report = verify(&log, None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    let mut stamps = Vec::new();
    for version in 0..=report.head {
        stamps.push(log.commit(version).await.unwrap().unwrap().stamp().unwrap().clone());
    }
    stamps
}

pub(crate) fn log(store: &Arc<dyn ObjectStore>, world: &World) -> Log {
    Log::new(Location::on(Arc::clone(store)), world.clone())
}
