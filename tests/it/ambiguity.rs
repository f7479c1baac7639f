//! Every kind of answer that leaves open what was done, to every kind of write, and everybody who may go on after it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cutover::ErrorKind;
use object_store::ObjectStore;
use tokio::runtime::Handle;

use crate::crashes::on_threads;
use crate::faults::{Call, Fault, FaultStore, Script, Verb};
use crate::invariants::check_product;
use crate::program::{Chance, size};
use crate::workload::{END, Process, RELOADED, Truth, WIDENED, checked, truth};
use crate::world::memory;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Claim,
    Append,
    Reload,
    Checkpoint,
    Hint,
    CleanUp,
    Gc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    DoneThen500,
    DoneThenDrop,
    DoneThenHang,
    DoneAndTaken,
    Late,
    Taken,
    Before,
}

/// Who goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The process itself.
    Itself,
    /// The next process, the first being dead.
    Restarted,
    /// Another process while the first is alive, then the first.
    TakenOver,
}

#[derive(Debug, Clone, Copy)]
struct Cell {
    operation: Operation,
    answer: Answer,
    next: Next,
}

impl Operation {
    /// The steps between which it happens, and which of the process's entries it is, for what puts an entry.
    fn place(self) -> (Option<u64>, u64, usize) {
        match self {
            Self::Create => (None, 12, 0),
            Self::Claim => (Some(12), 14, 0),
            Self::Append => (Some(12), 14, 1),
            Self::Reload => (Some(RELOADED - 1), RELOADED + 2, 2),
            Self::Checkpoint | Self::Hint | Self::CleanUp | Self::Gc => (Some(WIDENED - 1), END, usize::MAX),
        }
    }

    fn is(self, call: &Call, entries: usize) -> bool {
        let is_write = matches!(call.verb, Verb::Create | Verb::Overwrite);
        match self {
            Self::Checkpoint => is_write && call.path.ends_with(".checkpoint.parquet"),
            Self::Hint => is_write && call.path.ends_with("_last_checkpoint"),
            Self::CleanUp => call.verb == Verb::Delete && call.path.starts_with("_delta_log/"),
            Self::Gc => call.verb == Verb::Delete && !call.path.starts_with("_delta_log/"),
            _ => call.puts_entry() && entries == self.place().2,
        }
    }
}

impl Answer {
    fn fault(self) -> Fault {
        match self {
            Self::DoneThen500 => Fault::DoneThen500,
            Self::DoneThenDrop => Fault::Lost,
            Self::DoneThenHang => Fault::DoneThenHang,
            Self::DoneAndTaken => Fault::Resent,
            Self::Late => Fault::Late,
            Self::Taken => Fault::Taken,
            Self::Before => Fault::Before,
        }
    }
}

/// A process that goes on to `until`; what is late lands just before it puts its first entry.
async fn go_on(storage: &Arc<dyn ObjectStore>, truth: &Truth, until: u64, late: Option<FaultStore>) -> Option<String> {
    let mut late = late;
    let script: Script = Box::new(move |call| {
        let late = if call.puts_entry() { late.take() } else { None };
        late.map(|late| Fault::First(Box::new(move |_| Box::pin(async move { late.land_late_puts().await }))))
    });
    let process = Process::new(storage, 50, script);
    let ended = process.deliver(truth, until, Duration::from_secs(60)).await;
    ended.err().map(|e| format!("the next process ends with {e:?}"))
}

/// What another process found that went on while the first was alive. Held while it does, which may be longer than the first.
type Said = Arc<tokio::sync::Mutex<Vec<String>>>;

/// The script of the first process: the answer to the operation, then what `next` says at the call after it.
fn script(cell: Cell, until: u64, truth: &Truth, own: &Arc<OnceLock<FaultStore>>, said: &Said) -> Script {
    let (mut entries, mut is_answered, mut is_passed_on) = (0, false, false);
    let (truth, own, said) = (Arc::clone(truth), Arc::clone(own), Arc::clone(said));
    Box::new(move |call| {
        let is_it = cell.operation.is(call, entries);
        entries += usize::from(call.puts_entry());
        if !is_answered {
            is_answered = is_it;
            return is_it.then(|| cell.answer.fault());
        }
        if std::mem::replace(&mut is_passed_on, true) {
            return None;
        }
        match cell.next {
            Next::Itself => None,
            Next::Restarted => Some(Fault::CrashBefore),
            Next::TakenOver => {
                let (truth, late) = (Arc::clone(&truth), own.get().cloned());
                let mut said = Arc::clone(&said).try_lock_owned().unwrap();
                let event = move |storage: Arc<dyn ObjectStore>| {
                    let other = tokio::task::spawn_blocking(move || {
                        said.extend(Handle::current().block_on(go_on(&storage, &truth, until, late)));
                    });
                    Box::pin(async move { other.await.unwrap() }) as _
                };
                Some(Fault::First(Box::new(event)))
            }
        }
    })
}

/// Runs one cell: what is wrong, if anything.
async fn run(cell: Cell) -> Vec<String> {
    let (storage, truth) = (memory(), truth());
    let (from, until, _) = cell.operation.place();
    if let Some(from) = from {
        Process::untroubled(&storage, 1).deliver(&truth, from, Duration::ZERO).await.unwrap();
    }
    let (own, said) = (Arc::new(OnceLock::new()), Said::default());
    let first = Process::new(&storage, 2, script(cell, until, &truth, &own, &said));
    own.set(first.faults.clone()).unwrap();
    let ended = first.deliver(&truth, until, Duration::from_secs(3600 * 3)).await;
    let fired = first.faults.fired();
    let mut wrong = std::mem::take(&mut *said.lock().await);
    if fired.get(cell.answer.fault().name()) != Some(&1) {
        wrong.push(format!("the answer was not given: {fired:?}"));
    }
    match (cell.next, ended) {
        (Next::Itself, Ok(())) => {}
        (Next::TakenOver, Ok(())) if fired.contains_key("first") => {}
        (Next::TakenOver, Err(e)) if fired.contains_key("first") && e.kind() == ErrorKind::Fenced => {}
        (Next::Restarted, Err(_)) if first.faults.is_dead() => {
            wrong.extend(go_on(&storage, &truth, until, Some(first.faults.clone())).await);
        }
        (_, ended) => wrong.push(format!("the first process ends with {ended:?}, after {fired:?}")),
    }
    first.faults.land_late_puts().await;
    match checked(&storage, &truth).await {
        Ok(seen) if seen.last_step != Some(until as i64) => wrong.push(format!("it ends at {:?}", seen.last_step)),
        Ok(seen) => wrong.extend(check_product(&storage, &seen).await.err()),
        Err(found) => wrong.push(found),
    }
    wrong.into_iter().map(|what| format!("{cell:?}: {what}")).collect()
}

#[test]
fn whatever_the_answer_to_a_write_and_whoever_goes_on_nothing_is_lost_or_doubled() {
    use Answer::{Before, DoneAndTaken, DoneThen500, DoneThenDrop, DoneThenHang, Late, Taken};
    use Operation::{Append, Checkpoint, Claim, CleanUp, Create, Gc, Hint, Reload};
    const TEST: &str = "whatever_the_answer_to_a_write_and_whoever_goes_on_nothing_is_lost_or_doubled";
    let mut chance = Chance::new(TEST);
    let each = size("CUTOVER_AMBIGUITY", 1);
    let mut cells = Vec::new();
    for operation in [Create, Claim, Append, Reload, Checkpoint, Hint, CleanUp, Gc] {
        for answer in [DoneThen500, DoneThenDrop, DoneThenHang, DoneAndTaken, Late, Taken, Before] {
            let mut all =
                [Next::Itself, Next::Restarted, Next::TakenOver].map(|next| Cell { operation, answer, next }).to_vec();
            while all.len() as u64 > each {
                all.swap_remove(chance.below(all.len() as u64) as usize);
            }
            cells.extend(all);
        }
    }
    let count = cells.len();
    let wrong: Vec<String> = on_threads(cells, run).into_iter().flatten().collect();
    assert!(wrong.is_empty(), "seed {}: {} violations:\n{}", chance.seed, wrong.len(), wrong.join("\n"));
    eprintln!("{TEST}: {count} cells, each answer given, 0 violations");
}
