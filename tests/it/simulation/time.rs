//! Virtual time, which only the schedule moves.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use cutover::Clock;
use futures::future::BoxFuture;
use tokio::task::Id;

/// 2100-01-01, when every simulation begins. The kernel leaves expired removals out of its checkpoints by the machine's own
/// clock, which is not to be ahead of this one.
const BEGIN_MILLIS: i64 = 4_102_444_800_000;

/// The thread and the task in which processes run: beside them are tasks of theirs and the threads of the kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Home {
    thread: ThreadId,
    task: Option<Id>,
}

impl Home {
    pub(super) fn here() -> Self {
        Self { thread: std::thread::current().id(), task: tokio::task::try_id() }
    }

    pub(super) fn is_this_thread(&self) -> bool {
        std::thread::current().id() == self.thread
    }

    /// The task that runs, where it is one beside the processes.
    pub(super) fn beside(&self) -> Option<Id> {
        tokio::task::try_id().filter(|id| Some(*id) != self.task)
    }
}

/// The time of all processes, and who waits for which moment.
#[derive(Debug)]
pub(super) struct Time {
    home: Home,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    passed: Duration,
    timers: Vec<Timer>,
    drawn: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Whoever sleeps does nothing else.
    Sleep,
    /// Raced against work.
    Deadline,
    /// Of a call of the kernel, which nobody waits with.
    Elsewhere,
}

#[derive(Debug)]
struct Timer {
    id: u64,
    owner: usize,
    end: Duration,
    kind: Kind,
    /// What runs beside a process's own work.
    task: Option<Id>,
    waker: Option<Waker>,
}

impl Time {
    pub(super) fn new(home: Home) -> Self {
        Self { home, state: Mutex::default() }
    }

    pub(super) fn passed(&self) -> Duration {
        self.state.lock().unwrap().passed
    }

    pub(super) fn unix_millis(&self) -> i64 {
        BEGIN_MILLIS + self.passed().as_millis() as i64
    }

    /// The next moment that somebody waits for.
    pub(super) fn next(&self) -> Option<Duration> {
        self.state.lock().unwrap().timers.iter().map(|t| t.end).min()
    }

    /// Whether `owner` itself sleeps.
    pub(super) fn sleeps(&self, owner: usize) -> bool {
        self.state.lock().unwrap().timers.iter().any(|t| t.owner == owner && t.kind == Kind::Sleep && t.task.is_none())
    }

    /// Whether `owner` itself waits no longer than to some moment.
    pub(super) fn has_deadline(&self, owner: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.timers.iter().any(|t| t.owner == owner && t.kind == Kind::Deadline && t.task.is_none())
    }

    /// Whether what runs beside `owner` sleeps.
    pub(super) fn sleeps_beside(&self, owner: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.timers.iter().any(|t| t.owner == owner && t.kind == Kind::Sleep && t.task.is_some())
    }

    /// The tasks beside processes that sleep.
    pub(super) fn tasks(&self) -> HashSet<Id> {
        self.state.lock().unwrap().timers.iter().filter(|t| t.kind == Kind::Sleep).filter_map(|t| t.task).collect()
    }

    /// Whether the time of something beside processes has come, and it was not let run since.
    pub(super) fn is_due_beside(&self) -> bool {
        let state = self.state.lock().unwrap();
        let is_due = |t: &Timer| t.task.is_some() && t.kind != Kind::Elsewhere && t.end <= state.passed;
        state.timers.iter().any(is_due)
    }

    /// Moves time to `moment`; those whose time has come, in order.
    pub(super) fn move_to(&self, moment: Duration) -> Vec<usize> {
        let mut state = self.state.lock().unwrap();
        state.passed = state.passed.max(moment);
        let passed = state.passed;
        let mut due: Vec<usize> = Vec::new();
        for timer in state.timers.iter_mut().filter(|t| t.end <= passed) {
            due.push(timer.owner);
            timer.waker.take().into_iter().for_each(Waker::wake);
        }
        due.sort_unstable();
        due.dedup();
        due
    }

    fn timer(self: &Arc<Self>, owner: usize, duration: Duration, kind: Kind) -> BoxFuture<'static, ()> {
        let kind = if self.home.is_this_thread() { kind } else { Kind::Elsewhere };
        let mut state = self.state.lock().unwrap();
        state.drawn += 1;
        let (id, end) = (state.drawn, state.passed + duration);
        state.timers.push(Timer { id, owner, end, kind, task: self.home.beside(), waker: None });
        let waiting = Waiting { time: Arc::clone(self), id };
        Box::pin(async move { waiting.end().await })
    }
}

/// A timer that ends with whoever waits for it.
struct Waiting {
    time: Arc<Time>,
    id: u64,
}

impl Waiting {
    async fn end(&self) {
        poll_fn(|context| {
            let mut state = self.time.state.lock().unwrap();
            let passed = state.passed;
            match state.timers.iter_mut().find(|t| t.id == self.id) {
                Some(timer) if timer.end > passed => {
                    timer.waker = Some(context.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            }
        })
        .await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.time.state.lock().unwrap().timers.retain(|t| t.id != self.id);
    }
}

/// The clock of one process. Its wall clock may be wrong, and nothing may come of that.
#[derive(Debug)]
pub(super) struct ProcessClock {
    pub(super) time: Arc<Time>,
    pub(super) owner: usize,
    pub(super) skew_millis: i64,
}

impl Clock for ProcessClock {
    fn unix_millis(&self) -> i64 {
        self.time.unix_millis() + self.skew_millis
    }

    fn boot(&self) -> Duration {
        self.time.passed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.timer(self.owner, duration, Kind::Sleep)
    }

    fn deadline(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.timer(self.owner, duration, Kind::Deadline)
    }
}
