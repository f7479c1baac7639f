//! Every fault of a storage at every call of the workload: it is done in the end, or a process ends by a named error and
//! the next one does it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cutover::ErrorKind;
use object_store::ObjectStore;

use crate::crashes::{finished, on_threads};
use crate::faults::{Call, Fault, FaultStore, Script, Verb};
use crate::program::{Chance, size};
use crate::workload::{END, Process, truth};
use crate::world::{changes, log, memory, sink, world};

/// The time within which a process has delivered everything once the faults have ended, by its own clock.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// How long a call without an answer lasts.
const HANGS: Duration = Duration::from_secs(3600);

/// A kind of trouble: how often it comes in a row, and the error by which it may end a process.
struct Trouble {
    name: &'static str,
    times: usize,
    fault: fn() -> Fault,
    ends_by: &'static [ErrorKind],
}

const fn trouble(name: &'static str, times: usize, fault: fn() -> Fault, ends_by: &'static [ErrorKind]) -> Trouble {
    Trouble { name, times, fault, ends_by }
}

static TROUBLES: &[Trouble] = &[
    trouble("before", 1, || Fault::Before, &[]),
    trouble("before", 9, || Fault::Before, &[]),
    trouble("lost", 3, || Fault::Lost, &[]),
    trouble("resent", 2, || Fault::Resent, &[]),
    trouble("late", 2, || Fault::Late, &[]),
    trouble("busy", 40, || Fault::Busy, &[]),
    trouble("done, then 500", 2, || Fault::DoneThen500, &[]),
    trouble("taken", 5, || Fault::Taken, &[]),
    trouble("hang", 2, || Fault::Hang, &[]),
    trouble("done, then hang", 2, || Fault::DoneThenHang, &[]),
    trouble("slow", 3, || Fault::Slow(Duration::from_secs(20)), &[]),
    trouble("expired", 1, || Fault::Expired, &[ErrorKind::Refused]),
    trouble("no space", 30, || Fault::NoSpace, &[]),
    trouble("truncated", 3, || Fault::Truncated, &[]),
    trouble("torn", 1, || Fault::Torn, &[]),
    trouble("torn", 3, || Fault::Torn, &[]),
    // None of the stores that are supported lists less than there is; behind caches of file systems one might.
    trouble("stale", 1, || Fault::Stale, &[ErrorKind::Corrupt]),
    trouble("stale", 3, || Fault::Stale, &[ErrorKind::Corrupt]),
    trouble("doubled", 3, || Fault::Doubled, &[]),
];

/// A trouble that begins at a call.
#[derive(Debug, Clone, Copy)]
struct Case {
    trouble: usize,
    call: usize,
}

impl Case {
    fn script(self) -> Script {
        let Trouble { times, fault, .. } = TROUBLES[self.trouble];
        let mut left = times;
        Box::new(move |call: &Call| {
            let fault = fault();
            let comes = call.number >= self.call && left > 0 && fault.fits(call.verb);
            left -= usize::from(comes);
            comes.then_some(fault)
        })
    }
}

/// How a case went.
struct Went {
    fired: u64,
    ended_by: Option<ErrorKind>,
    took: Duration,
    wrong: Vec<String>,
}

async fn run(case: Case) -> Went {
    let (storage, truth) = (memory(), truth());
    let (trouble, process) = (&TROUBLES[case.trouble], Process::new(&storage, 1, case.script()));
    let hangs = if trouble.name.ends_with("hang") { HANGS * trouble.times as u32 } else { Duration::ZERO };
    let ended = process.deliver(&truth, END, PATIENCE + hangs).await;
    let (fired, took) = (process.faults.fired(), process.passed());
    let calls = process.faults.calls();
    let mut wrong = Vec::new();
    let ended_by = ended.as_ref().err().map(cutover::Error::kind);
    if let Err(e) = &ended
        && !trouble.ends_by.contains(&e.kind())
    {
        wrong.push(format!("the process ends with {e:?}"));
    }
    process.faults.land_late_puts().await;
    let next = Process::untroubled(&storage, 2);
    if let Err(e) = next.deliver(&truth, END, Duration::ZERO).await {
        wrong.push(format!("the next process ends with {e:?}"));
    }
    wrong.extend(finished(&storage, &truth, END).await.err());
    let place = calls.get(case.call).map(|call| format!("{:?} of {}", call.verb, call.path));
    let wrong =
        wrong.into_iter().map(|what| format!("{} × {} at {place:?} ({case:?}): {what}", trouble.times, trouble.name));
    Went { fired: fired.values().sum(), ended_by, took: took.saturating_sub(hangs), wrong: wrong.collect() }
}

#[test]
fn after_any_trouble_of_the_storage_the_work_is_done_or_a_named_error_ends_it() {
    const TEST: &str = "after_any_trouble_of_the_storage_the_work_is_done_or_a_named_error_ends_it";
    let mut chance = Chance::new(TEST);
    let calls = on_threads(vec![()], |()| async {
        let process = Process::untroubled(&memory(), 1);
        process.deliver(&truth(), END, Duration::ZERO).await.unwrap();
        process.faults.calls()
    });
    let calls = &calls[0];
    let mut cases = Vec::new();
    for (trouble, kind) in TROUBLES.iter().enumerate() {
        let fitting = calls.iter().filter(|call| (kind.fault)().fits(call.verb));
        cases.extend(fitting.map(|call| Case { trouble, call: call.number }));
    }
    let (all, wanted) = (cases.len(), size("CUTOVER_TROUBLES", 4 * TROUBLES.len() as u64) as usize);
    if wanted < all {
        // So many of each kind.
        let each = wanted.div_ceil(TROUBLES.len());
        let mut chosen = Vec::new();
        for trouble in 0..TROUBLES.len() {
            let mut of_kind: Vec<Case> = cases.iter().filter(|case| case.trouble == trouble).copied().collect();
            for _ in 0..each.min(of_kind.len()) {
                chosen.push(of_kind.swap_remove(chance.below(of_kind.len() as u64) as usize));
            }
        }
        cases = chosen;
    }
    let went = on_threads(cases.clone(), run);
    let wrong: Vec<&String> = went.iter().flat_map(|went| &went.wrong).collect();
    let shown: Vec<&str> = wrong.iter().take(40).map(|text| text.as_str()).collect();
    assert!(wrong.is_empty(), "seed {}: {} violations:\n{}", chance.seed, wrong.len(), shown.join("\n"));
    let (mut fired, mut ended) = (BTreeMap::new(), BTreeMap::new());
    for (case, went) in cases.iter().zip(&went) {
        let trouble = &TROUBLES[case.trouble];
        *fired.entry((trouble.name, trouble.times)).or_insert(0) += went.fired;
        if let Some(kind) = went.ended_by {
            *ended.entry((trouble.name, kind.name())).or_insert(0) += 1;
        }
    }
    let longest = went.iter().map(|went| went.took).max();
    eprintln!("{TEST}: {} of {all} cases; fired {fired:?}; ended {ended:?}; longest {longest:?}", cases.len());
    assert!(fired.values().all(|times| *times > 0), "a fault never fired: {fired:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_lists_less_than_is_there_says_to_try_again() {
    let (storage, (world, clock)) = (memory(), world(1));
    let listings = Arc::new(AtomicUsize::new(usize::MAX));
    let counted = Arc::clone(&listings);
    let script = move |call: &Call| {
        // The replay lists second.
        let is_it = call.verb == Verb::List && counted.fetch_sub(1, Ordering::Relaxed) == 1;
        is_it.then_some(Fault::Stale)
    };
    let store: Arc<dyn ObjectStore> = Arc::new(FaultStore::new(storage, Some(clock), Box::new(script)));
    let mut sink = sink(&store, &world).await;
    sink.append(changes(10, 11)).await.unwrap();
    let log = log(&store, &world);
    listings.store(2, Ordering::Relaxed);
    let error = log.facts().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Unavailable, "version 1 is there, and a listing of the log lacks it")
    );
    assert_eq!(log.facts().await.unwrap().version, Some(1));
}
