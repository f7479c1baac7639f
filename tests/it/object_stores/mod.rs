//! Tables in object stores: against a local S3 server, with a proxy before it that breaks requests.

mod azure;
mod matrix;
mod proxy;
pub(crate) mod server;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{
    Access, Applied, Clock, Durability, Error, ErrorKind, Ids, Location, Sink, Snapshot, SystemClock, Target, World,
};
use futures::future::BoxFuture;

use self::proxy::{Act, Proxy};
use self::server::{BUCKET, Server, storage};
use crate::program::Chance;
use crate::world::{changes, settings, state, step, view};

/// The machine's clock, on which what waits for as long as a deadline does not wait for long.
#[derive(Debug)]
struct Hasty;

impl Clock for Hasty {
    fn unix_millis(&self) -> i64 {
        SystemClock.unix_millis()
    }

    fn boot(&self) -> Duration {
        SystemClock.boot()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let is_deadline = duration >= Duration::from_secs(60);
        SystemClock.sleep(if is_deadline { Duration::from_secs(2) } else { duration })
    }
}

/// A table of a test's own, seen through a proxy.
struct Lake {
    proxy: Proxy,
    server: &'static Server,
    prefix: String,
    options: Vec<(&'static str, String)>,
}

impl Lake {
    fn new(test: &str) -> Option<Self> {
        let server = Server::find(test)?;
        let proxy = Proxy::before(server.port);
        let options = Server::options(proxy.port);
        let prefix = format!("{test}-{}", Chance::new(test).seed);
        Some(Self { proxy, server, prefix, options })
    }

    fn location(&self, access: Access) -> Location {
        Location::open_with(&format!("s3://{BUCKET}/{}", self.prefix), access, &storage(&self.options)).unwrap()
    }

    async fn target(&self, world: &World) -> cutover::Result<Target> {
        let location = self.location(Access::Write(Durability::Commit));
        Target::open(location, view(), settings(), world.clone()).await
    }

    async fn sink(&self, world: &World) -> Sink {
        self.target(world).await.unwrap().load(state(10, &[1, 2, 3])).await.unwrap()
    }

    fn log(&self) -> Log {
        Log::new(self.location(Access::Read), World::system())
    }

    async fn assert_healthy(&self, last_step: u64) {
        let report = verify(&self.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
        assert_eq!(report.last_step, Some(step(last_step)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_ignores_conditions_is_refused_before_anything_is_written() {
    let Some(lake) = Lake::new("a_store_that_ignores_conditions") else { return };
    lake.proxy.breaks("PUT", "", Act::Deaf, usize::MAX);
    let target = lake.target(&World::system()).await.unwrap();
    let refused = target.load(state(10, &[1, 2, 3])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Incompatible, "{refused}");
    assert!(refused.message().contains("lets a second writer"), "{refused}");
    assert!(lake.server.keys(&lake.prefix).is_empty(), "the probe is removed");
    lake.proxy.mends();
    let mut sink = lake.sink(&World::system()).await;
    sink.append(changes(10, 11)).await.unwrap();
    lake.assert_healthy(11).await;
    assert!(lake.server.keys(&lake.prefix).iter().all(|key| !key.contains("probe")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_probe_serves_a_location_and_readers_make_none() {
    let Some(lake) = Lake::new("one_probe_serves_a_location") else { return };
    let mut sink = lake.sink(&World::system()).await;
    lake.proxy.breaks("PUT", "_cutover_probe_", Act::Answer(403, "AccessDenied"), usize::MAX);
    sink.append(changes(10, 11)).await.unwrap();
    lake.assert_healthy(11).await;
    assert_eq!(lake.proxy.fired(), 0);
    let refused = lake.target(&World::system()).await.unwrap().claim().await.unwrap_err();
    assert_eq!((refused.kind(), lake.proxy.fired()), (ErrorKind::Refused, 1), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_pass_ends_at_once_and_names_the_remedy() {
    let Some(mut lake) = Lake::new("what_does_not_pass_ends_at_once") else { return };
    let world = World::system();
    let mut sink = lake.sink(&world).await;
    for (status, code, part) in [
        (400, "ExpiredToken", "the credentials have expired; renew them"),
        (403, "InvalidAccessKeyId", "the credentials are not accepted"),
        (403, "AccessDenied", "the credentials do not allow it"),
        (403, "RequestTimeTooSkewed", "clock"),
        (301, "PermanentRedirect", "another region"),
    ] {
        // An answer to HEAD has no body that could say more.
        for method in ["PUT", "GET"] {
            lake.proxy.breaks(method, "", Act::Answer(status, code), usize::MAX);
        }
        let begun = SystemClock.boot();
        let written = sink.append(changes(10, 11)).await.unwrap_err();
        let read = verify(&lake.log(), None).await.unwrap_err();
        for error in [written, read] {
            assert_eq!(error.kind(), ErrorKind::Refused, "{code}: {error}");
            assert!(error.message().contains(part), "{code}: {error}");
            assert!(causes(&error).contains(code) && causes(&error).contains(BUCKET), "{}", causes(&error));
        }
        assert!(SystemClock.boot() - begun < Duration::from_secs(10), "{code}: at once");
        lake.proxy.mends();
    }
    assert!(matches!(
        sink.append(changes(10, 11)).await.unwrap(),
        Applied::Committed { version: 1, .. } | Applied::Already
    ));
    lake.assert_healthy(11).await;
    lake.prefix = "t".into();
    let nowhere = Location::open_with("s3://nowhere/t", Access::Read, &storage(&lake.options)).unwrap();
    let missing = verify(&Log::new(nowhere, world), None).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Refused, "{missing}");
    assert!(missing.message().contains("bucket or container does not exist"), "{missing}");
}

fn causes(error: &Error) -> String {
    let mut next = std::error::Error::source(error);
    let mut said = String::new();
    while let Some(cause) = next {
        said.push_str(&format!("{cause}; "));
        next = cause.source();
    }
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_an_answer_ends_by_the_clock_and_the_commit_is_made_once() {
    let Some(mut lake) = Lake::new("a_call_without_an_answer") else { return };
    // The client itself would wait for ten minutes.
    lake.options.push(("timeout", "10m".into()));
    let world = World { clock: Arc::new(Hasty), ids: Arc::new(Ids::from_system()) };
    let mut sink = lake.sink(&world).await;
    for (n, act) in [Act::Hang, Act::DoneHang].into_iter().enumerate() {
        let (n, from) = (n as u64, 10 + n as u64);
        lake.proxy.breaks("PUT", format!("{:020}.json", n + 1), act, 1);
        lake.proxy.breaks("GET", format!("{:020}.json", n + 1), Act::Hang, 1);
        let applied = sink.append(changes(from, from + 1)).await.unwrap();
        assert!(matches!(applied, Applied::Committed { version, .. } if version == n + 1), "{act:?}: {applied:?}");
    }
    assert_eq!(lake.proxy.fired(), 4);
    lake.assert_healthy(12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_cut_is_read_on() {
    let Some(lake) = Lake::new("a_read_that_is_cut") else { return };
    let world = World::system();
    let mut sink = lake.sink(&world).await;
    sink.append(changes(10, 12)).await.unwrap();
    for _ in 0..3 {
        lake.proxy.breaks("GET", "_delta_log/", Act::Truncated, 1);
        lake.assert_healthy(12).await;
        let found = lake.target(&world).await;
        assert!(found.is_ok(), "{found:?}");
    }
    assert!(lake.proxy.fired() > 0);
}

/// A snapshot whose file has several parts.
fn many_bytes(at: u64) -> Snapshot {
    let mut chance = Chance::new("many_bytes");
    let rows = 300_000;
    let names = StringArray::from_iter_values(
        (0..rows).map(|_| (0..4).map(|_| format!("{:016x}", chance.below(u64::MAX))).collect::<String>()),
    );
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(0..rows)), Arc::new(names)];
    Snapshot::from_batches(step(at), vec![RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap()])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_parts_is_given_up_when_a_part_fails_and_done_when_none_does() {
    let Some(lake) = Lake::new("an_upload_in_parts") else { return };
    let world = World::system();
    lake.proxy.breaks("PUT", "partNumber=2", Act::Answer(403, "AccessDenied"), 1);
    let refused = lake.target(&world).await.unwrap().load(many_bytes(10)).await.unwrap_err();
    assert_eq!((refused.kind(), lake.proxy.fired()), (ErrorKind::Refused, 1), "{refused}");
    assert_eq!(lake.server.unfinished_uploads(&lake.prefix), 0);
    assert!(lake.server.keys(&lake.prefix).is_empty());
    for act in [Act::Answer(503, "SlowDown"), Act::Done(500, "InternalError"), Act::DoneDrop] {
        lake.proxy.breaks("PUT", "partNumber=1", act, 1);
    }
    let sink = lake.target(&world).await.unwrap().load(many_bytes(10)).await.unwrap();
    assert_eq!(sink.last_step().unwrap(), step(10));
    assert_eq!((lake.proxy.fired(), lake.server.unfinished_uploads(&lake.prefix)), (4, 0));
    lake.assert_healthy(10).await;
}
