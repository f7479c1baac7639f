//! Every deed of a writer with every fault of its storage, and three ways to go on.

use std::sync::Arc;

use cutover::continuity::plan::{Older, Standing};
use cutover::continuity::stamp::{Kind, ResetStamp};
use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{Access, Durability, ErrorKind, Ids, Location, Result, Sink, SystemClock, Target, World};
use futures::StreamExt;

use super::proxy::{Act, Proxy};
use super::server::{BUCKET, Server, storage};
use crate::program::{Chance, Readers, size};
use crate::world::{changes, settings, state, step, view};

/// What a writer does, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Deed {
    Create,
    Claim,
    Append,
    Reload,
    Follow,
    Checkpoint,
}

pub(super) const DEEDS: [Deed; 6] =
    [Deed::Create, Deed::Claim, Deed::Append, Deed::Reload, Deed::Follow, Deed::Checkpoint];

/// What happens to the request that counts.
const FAULTS: [(&str, Act, usize); 11] = [
    ("500 before", Act::Answer(500, "InternalError"), 1),
    ("503 twice", Act::Answer(503, "SlowDown"), 2),
    ("409 before", Act::Answer(409, "ConditionalRequestConflict"), 1),
    ("403 before", Act::Answer(403, "AccessDenied"), 1),
    ("expired before", Act::Answer(400, "ExpiredToken"), 1),
    ("hang before", Act::Hang, 1),
    ("applied, 500", Act::Done(500, "InternalError"), 1),
    ("applied, dropped", Act::DoneDrop, 1),
    ("applied, hang", Act::DoneHang, 1),
    ("applied, exists", Act::Done(412, "PreconditionFailed"), 1),
    ("late", Act::Late, 1),
];

/// Who goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The same writer.
    Retry,
    /// A process that starts after it.
    Restart,
    /// A process beside it, which goes on afterwards and must not get far.
    Takeover,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    deed: Deed,
    fault: (&'static str, Act, usize),
    next: Next,
}

/// The faulty request of a deed.
fn request(deed: Deed) -> &'static str {
    match deed {
        Deed::Create => "00000000000000000000.json",
        Deed::Claim => "00000000000000000001.json",
        Deed::Append => "00000000000000000002.json",
        Deed::Reload => "00000000000000000003.json",
        Deed::Follow => "00000000000000000004.json",
        Deed::Checkpoint => "checkpoint",
    }
}

fn system(seed: u64) -> World {
    World { clock: Arc::new(SystemClock), ids: Arc::new(Ids::from_seed(seed)) }
}

/// A writer that holds the table, which it loads where there is none.
async fn hold(location: &Location, world: &World) -> Result<Sink> {
    let target = Target::open(location.clone(), view(), settings(), world.clone()).await?;
    match target.standing() {
        Standing::Ours(_) => target.claim().await,
        _ => target.load(state(10, &[1, 2, 3])).await,
    }
}

/// Does a deed; done again it changes nothing.
pub(super) async fn perform(deed: Deed, sink: &mut Option<Sink>, location: &Location, world: &World) -> Result<()> {
    if sink.is_none() || matches!(deed, Deed::Create | Deed::Claim) {
        *sink = None;
        *sink = Some(hold(location, world).await?);
    }
    let sink = sink.as_mut().unwrap();
    let reset = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    match deed {
        Deed::Create | Deed::Claim => Ok(()),
        Deed::Append => sink.append(changes(10, 12)).await.map(drop),
        Deed::Reload => sink.reload(state(12, &[4, 5]), reset, Older::Refused).await.map(drop),
        Deed::Follow => sink.append(changes(12, 13)).await.map(drop),
        Deed::Checkpoint => {
            let log = Log::new(location.clone(), world.clone());
            log.checkpoint(&mut log.facts().await?).await.map(drop)
        }
    }
}

async fn run(case: Case, server: u16, uri: &str, seed: u64) {
    let proxy = Proxy::before(server);
    let mut options = Server::options(proxy.port);
    options.push(("timeout", "1500ms".into()));
    let open = || Location::open_with(uri, Access::Write(Durability::Commit), &storage(&options)).unwrap();
    let (mut location, mut world) = (open(), system(seed));
    let (mut sink, mut beside) = (None, None);
    for deed in DEEDS {
        if deed == case.deed {
            let (_, act, times) = case.fault;
            proxy.breaks(
                "PUT",
                format!("_delta_log/{}", if deed == Deed::Checkpoint { "" } else { request(deed) }),
                act,
                times,
            );
            let done = perform(deed, &mut sink, &location, &world).await;
            if let Err(error) = &done {
                let expected = [ErrorKind::Unavailable, ErrorKind::Refused];
                assert!(expected.contains(&error.kind()), "{case:?}: {error}; seed {seed}");
            }
            match case.next {
                Next::Retry => {}
                Next::Restart => (sink, location, world) = (None, open(), system(seed + 1)),
                Next::Takeover => {
                    (beside, location, world) = (sink.take(), open(), system(seed + 1));
                }
            }
        }
        let mut tries = 0;
        while let Err(error) = perform(deed, &mut sink, &location, &world).await {
            tries += 1;
            assert!(tries < 5, "{case:?}: {deed:?} does not succeed: {error}; seed {seed}");
        }
    }
    assert!(proxy.fired() > 0, "{case:?}: the fault never came; seed {seed}");
    if let Some(mut beside) = beside {
        let late = beside.append(changes(13, 14)).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Fenced, "{case:?}: {late}; seed {seed}");
    }
    let log = Log::new(location, world);
    let report = verify(&log, None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{case:?}: {:?}; seed {seed}", report.findings);
    assert_eq!(report.last_step, Some(step(13)), "{case:?}; seed {seed}");
    assert_eq!(report.generation.map(|g| g.get()), Some(2), "{case:?}; seed {seed}");
    let mut appends = Vec::new();
    for version in 0..=report.head {
        let stamp = log.commit(version).await.unwrap().unwrap().stamp().cloned().unwrap();
        if matches!(stamp.kind, Kind::Append | Kind::Reload) {
            appends.push((stamp.from.map(|s| s.get()), stamp.to.get()));
        }
    }
    let expected = [(None, 10), (Some(10), 12), (None, 12), (Some(12), 13)];
    assert_eq!(appends, expected, "{case:?}: each deed once; seed {seed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_of_the_storage_loses_or_doubles_anything() {
    const TEST: &str = "no_fault_of_the_storage_loses_or_doubles_anything";
    let Some(server) = Server::find(TEST) else { return };
    let mut chance = Chance::new(TEST);
    let seed = chance.seed;
    let nexts = [Next::Retry, Next::Restart, Next::Takeover];
    let mut cases: Vec<Case> = Vec::new();
    for deed in DEEDS {
        for fault in FAULTS {
            cases.extend(nexts.map(|next| Case { deed, fault, next }));
        }
    }
    let wanted = usize::try_from(size("CUTOVER_S3_CASES", 10)).unwrap();
    while cases.len() > wanted {
        cases.swap_remove(chance.below(cases.len() as u64) as usize);
    }
    let count = cases.len();
    let uris: Vec<String> = (0..count).map(|n| format!("s3://{BUCKET}/matrix-{seed}/{n}")).collect();
    let runs = cases.into_iter().zip(&uris).enumerate().map(|(n, (case, uri))| {
        let (port, uri, seed) = (server.port, uri.clone(), seed.wrapping_add(n as u64 * 2));
        async move { run(case, port, &uri, seed).await }
    });
    futures::stream::iter(runs).buffer_unordered(6).collect::<Vec<()>>().await;
    let readers = Readers::find(TEST).unwrap().at(Server::environment(server.port));
    let engines = ["duckdb", "deltalake"];
    let lines: String = uris.iter().map(|uri| format!("{uri}\n")).collect();
    let answers = readers.tell("read.py", &["many", &engines.join(",")], &lines);
    assert_eq!(answers.lines().count(), count * engines.len());
    for line in answers.lines() {
        let answer: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(answer["rows"], 3, "two rows of the reload, one after it: {answer}; seed {seed}");
    }
    eprintln!("{TEST}: {count} cases");
}
