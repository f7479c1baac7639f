//! A process dies at each of its calls of the storage, and the next one finishes the work.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutover::sink::Maintained;
use object_store::ObjectStore;
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::faults::{Call, Fault, Script};
use crate::invariants::{Seen, check_product};
use crate::program::{Chance, size};
use crate::workload::{CURRENT, END, Process, Truth, checked, truth};
use crate::world::memory;

/// When a process dies: before or after one of its calls, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Death {
    call: usize,
    is_after: bool,
}

impl Death {
    /// Both deaths at each of the first `calls` calls.
    fn all(calls: usize) -> impl Iterator<Item = Self> {
        (0..calls).flat_map(|call| [false, true].map(|is_after| Self { call, is_after }))
    }

    fn script(self) -> Script {
        Box::new(move |call| {
            (call.number == self.call).then_some(if self.is_after { Fault::CrashAfter } else { Fault::CrashBefore })
        })
    }
}

/// What came of processes that died one after another, and of one that did not.
struct Survived {
    /// The calls of the last process.
    calls: Vec<Call>,
    /// How the last process's rounds of maintenance ended.
    maintained: Vec<cutover::Result<Maintained>>,
    /// The live files at the end.
    live: usize,
    /// Deaths that happened.
    deaths: usize,
    violations: Vec<String>,
}

/// How a run's table holds the view, and where the index of its keys is.
#[derive(Debug, Clone, Copy)]
enum Table {
    Changelog,
    /// The table is the view; the index lasts from process to process.
    Current,
    /// The same, and each process makes the index anew.
    CurrentInMemory,
}

/// Lets a process die each death in turn, then one finish; every invariant is checked after each.
async fn survive(deaths: Vec<Death>) -> Survived {
    survive_in(Table::Changelog, deaths).await
}

async fn survive_in(table: Table, deaths: Vec<Death>) -> Survived {
    let (storage, is_current) = (memory(), !matches!(table, Table::Changelog));
    let (truth, end) = if is_current { (CURRENT.truth(), CURRENT.end) } else { (truth(), END) };
    let home = matches!(table, Table::Current).then(|| TempDir::new().unwrap());
    let process = |seed, script| {
        let process = Process::new(&storage, seed, script);
        match table {
            Table::Changelog => process,
            Table::Current | Table::CurrentInMemory => {
                process.of_current(home.as_ref().map(|home| home.path().to_path_buf()))
            }
        }
    };
    let (mut violations, mut happened) = (Vec::new(), 0);
    for (seed, death) in (1..).zip(&deaths) {
        let process = process(seed, death.script());
        let ended = process.deliver(&truth, end, Duration::ZERO).await;
        happened += usize::from(process.faults.is_dead());
        // What runs beside the commits makes the number of calls vary a little.
        if !process.faults.is_dead() && (ended.is_err() || process.faults.calls().len() > death.call) {
            violations.push(format!("{death:?} of {deaths:?} did not happen, and the process ended with {ended:?}"));
        }
        if let Err(found) = checked(&storage, &truth).await {
            violations.push(format!("after {death:?} of {deaths:?}: {found}"));
        }
    }
    let last = process(99, Box::new(|_| None));
    if let Err(e) = last.deliver(&truth, end, Duration::ZERO).await {
        violations.push(format!("after {deaths:?} the next process ends with {e:?}"));
    }
    let live = match finished(&storage, &truth, end).await {
        Ok(seen) => seen.live.len(),
        Err(found) => {
            violations.push(format!("after {deaths:?}: {found}"));
            0
        }
    };
    let maintained = std::mem::take(&mut *last.maintained.lock().unwrap());
    Survived { calls: last.faults.calls(), maintained, live, deaths: happened, violations }
}

/// That the workload is done, and each of its parts once.
pub(crate) async fn finished(storage: &Arc<dyn ObjectStore>, truth: &Truth, end: u64) -> Result<Seen, String> {
    let seen = checked(storage, truth).await?;
    check_product(storage, &seen).await?;
    // The reload's own entry may be cleaned up by then.
    let generation = seen.stamps.last().map(|stamp| stamp.generation);
    if (seen.last_step, generation, seen.lost) != (Some(end as i64), Some(2), None) {
        return Err(format!("the workload ends at {:?}: {:?}", seen.last_step, seen.stamps));
    }
    Ok(seen)
}

/// Runs cases on two threads; what became of each, in their order.
pub(crate) fn on_threads<C: Send, T: Send, F: Future<Output = T>>(
    cases: Vec<C>,
    run: impl Fn(C) -> F + Sync,
) -> Vec<T> {
    let count = cases.len();
    let (cases, done) = (Mutex::new(cases.into_iter().enumerate()), Mutex::new(Vec::with_capacity(count)));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
                loop {
                    let next = cases.lock().unwrap().next();
                    let Some((number, case)) = next else { return };
                    let outcome = runtime.block_on(run(case));
                    done.lock().unwrap().push((number, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(number, _)| *number);
    assert_eq!(done.len(), count, "each case was run");
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The calls of a process up to its second entry: it has looked, claimed and gone on.
fn recovery(calls: &[Call]) -> usize {
    let entries = calls.iter().filter(|call| call.puts_entry());
    entries.map(|call| call.number).nth(1).map_or(calls.len(), |second| second + 1)
}

fn none(violations: Vec<String>) {
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn a_crash_at_any_call_loses_and_doubles_nothing() {
    const TEST: &str = "a_crash_at_any_call_loses_and_doubles_nothing";
    let whole = on_threads(vec![Vec::new()], survive).remove(0);
    none(whole.violations);
    let [Ok(Maintained { checkpoint: Some(_), cleaned: 1.., garbage: 1.., .. })] = whole.maintained[..] else {
        panic!("the workload is maintained once, and there is something to do: {:?}", whole.maintained);
    };
    let operations = whole.calls.len();
    // All of them, or one in so many.
    let (mut chance, one_in) = (Chance::new(TEST), size("CUTOVER_CRASHES_ONE_IN", 12));
    let offset = chance.below(one_in) as usize;
    let firsts: Vec<Death> = Death::all(operations).skip(offset).step_by(one_in as usize).collect();
    let survived = on_threads(firsts.iter().map(|death| vec![*death]).collect(), survive);
    let (runs, deaths) = (survived.len(), survived.iter().map(|s| s.deaths).sum::<usize>());
    none(survived.into_iter().flat_map(|s| s.violations).collect());
    eprintln!("{TEST}: {operations} operations, {runs} runs, {deaths} crashes, 0 violations");
    assert!(deaths * 100 >= runs * 99, "{deaths} crashes happened in {runs} runs");
}

#[test]
fn a_crash_at_any_call_leaves_the_view_as_it_is_where_the_table_is_the_view() {
    const TEST: &str = "a_crash_at_any_call_leaves_the_view_as_it_is";
    let (mut chance, one_in) = (Chance::new(TEST), size("CUTOVER_CURRENT_CRASHES_ONE_IN", 150));
    for table in [Table::Current, Table::CurrentInMemory] {
        let run = |deaths| survive_in(table, deaths);
        let whole = on_threads(vec![Vec::new()], run).remove(0);
        none(whole.violations);
        let [Ok(Maintained { checkpoint: Some(_), cleaned: 1.., garbage: 1.., .. })] = whole.maintained[..] else {
            panic!("the workload is maintained once, and there is something to do: {:?}", whole.maintained);
        };
        // Each step leaves a file.
        assert!(whole.live < 16, "{} files are live, so none were joined", whole.live);
        let operations = whole.calls.len();
        let offset = chance.below(one_in) as usize;
        let mut cases: Vec<Vec<Death>> =
            Death::all(operations).skip(offset).step_by(one_in as usize).map(|death| vec![death]).collect();
        // A second one within what comes after the first.
        let seconds = size("CUTOVER_CURRENT_SECOND_CRASHES", 2);
        cases.extend((0..seconds).map(|_| {
            let mut death = |calls: u64| Death { call: chance.below(calls) as usize, is_after: chance.one_in(2) };
            vec![death(operations as u64), death(40)]
        }));
        let survived = on_threads(cases, run);
        let (runs, deaths) = (survived.len(), survived.iter().map(|s| s.deaths).sum::<usize>());
        let joined = survived.iter().filter(|s| s.live < 16).count();
        none(survived.into_iter().flat_map(|s| s.violations).collect());
        eprintln!(
            "{TEST}: {table:?}, {operations} operations, {runs} runs, {deaths} crashes, files joined in {joined}, 0 violations; seed {}",
            chance.seed
        );
        assert!(deaths * 100 >= runs * 95, "{deaths} crashes happened in {runs} runs");
    }
}

#[test]
fn a_second_crash_inside_recovery_loses_and_doubles_nothing() {
    const TEST: &str = "a_second_crash_inside_recovery_loses_and_doubles_nothing";
    let mut chance = Chance::new(TEST);
    let wanted = size("CUTOVER_SECOND_CRASHES", 15);
    let operations = on_threads(vec![Vec::new()], survive).remove(0).calls.len();
    let firsts: Vec<Death> = Death::all(operations).collect();
    let mut pairs = Vec::new();
    let mut possible = 0;
    let sampled: Vec<Death> = if wanted < firsts.len() as u64 {
        (0..wanted).map(|_| firsts[chance.below(firsts.len() as u64) as usize]).collect()
    } else {
        firsts
    };
    let recoveries = on_threads(sampled, |first| async move {
        let survived = survive(vec![first]).await;
        (first, recovery(&survived.calls))
    });
    for (first, calls) in recoveries {
        let seconds: Vec<Death> = Death::all(calls).collect();
        possible += seconds.len();
        if wanted < operations as u64 * 2 {
            pairs.push(vec![first, seconds[chance.below(seconds.len() as u64) as usize]]);
        } else {
            pairs.extend(seconds.into_iter().map(|second| vec![first, second]));
        }
    }
    // All of them, or as many as are wanted, evenly.
    let one_in = pairs.len().div_ceil(wanted as usize);
    let pairs: Vec<Vec<Death>> = pairs.into_iter().step_by(one_in).collect();
    let survived = on_threads(pairs, survive);
    let (runs, deaths) = (survived.len(), survived.iter().map(|s| s.deaths).sum::<usize>());
    none(survived.into_iter().flat_map(|s| s.violations).collect());
    eprintln!("{TEST}: {runs} runs of {possible} looked at, {deaths} crashes, 0 violations; seed {}", chance.seed);
    assert!(deaths * 100 >= 2 * runs * 95, "{deaths} crashes happened in {runs} runs");
}
