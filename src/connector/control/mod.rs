//! A connector that runs under control: it delivers, and rests, is reset and stopped when a daemon says so.
//!
//! One task owns the connector and its journal. What it does next follows from the journal and from how delivery ended; a
//! call that changes either makes it leave what it is doing, which is safe at any point, and look again.

mod desk;
mod handle;
mod running;
mod work;

use std::fmt;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use twox_hash::XxHash3_64;

use self::desk::{Desk, Doing, Look, is_committing};
pub use self::handle::{Accepted, Handle, Refusal, ResetRequest};
pub(super) use self::handle::{Command, Grant};
pub use self::running::Running;
pub use self::work::Work;
use super::breaker::{Backoff, Breaker, BreakerSettings, Permit};
use super::journal::{Event, Journal, Reloaded, ResetRecord, Trigger};
use super::moment::BootId;
use super::{Phase, Reset, Status};
use crate::clock::{Clock, whole_seconds};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::sink::Stage;

/// Calls that wait to be taken, at most.
const CALLS: usize = 64;
/// An accepted reset that could not be carried out for so long is given up: nobody waits for it any more.
const LONGEST_LIFE: Duration = Duration::from_secs(24 * 3600);

/// What a connector does when its continuity is lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnContinuityLoss {
    /// Nothing, until somebody resets it.
    #[default]
    FailClosed,
    /// It is reset, as far as breaker and back-off let it.
    Reset,
}

impl fmt::Display for OnContinuityLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FailClosed => "fail_closed",
            Self::Reset => "reset",
        })
    }
}

/// How a connector is controlled.
#[derive(Debug, Clone)]
pub struct ControlSettings {
    /// Where the connector keeps its journal: a directory of its own, whose name is made of checked names.
    pub directory: PathBuf,
    /// The machine's run, by which time is told across restarts.
    pub boot: BootId,
    /// What is done when continuity is lost.
    pub on_continuity_loss: OnContinuityLoss,
    /// How many resets there may be.
    pub breaker: BreakerSettings,
    /// How long is waited between tries of a reset, and between automatic resets. Calls of one asker within its
    /// `initial` are one call.
    pub backoff: Backoff,
}

/// The task that owns a connector.
pub(super) struct Task {
    work: Work,
    desk: Desk,
    commands: mpsc::Receiver<Command>,
}

/// What is to be done.
enum Next {
    Stop,
    Look(Look),
    Settle(ResetRecord),
    Reset(ResetRecord),
    Rest,
    Repair(String),
    Deliver,
}

impl Task {
    pub(super) fn new(work: impl Into<Work>, settings: ControlSettings) -> Result<(Handle, Self)> {
        let mut work = work.into();
        let (world, name) = (work.world().clone(), work.name().to_string());
        let breaker = Breaker::new(settings.breaker, settings.backoff);
        let journal = Journal::open(&settings.directory, &name, breaker, settings.boot.clone(), world.clone())?;
        let no_snapshot = work.check_resets().err().map(|error| error.message().to_string());
        let (sender, commands) = mpsc::channel(CALLS);
        work.ask_before_reloads(sender.downgrade());
        let handle = Handle::new(&name, sender, work.shown().subscribe());
        let desk = Desk::new(settings, journal, world, work.shown().clone(), no_snapshot);
        desk.show_reset();
        Ok((handle, Self { work, desk, commands }))
    }

    pub(super) async fn run(mut self) {
        loop {
            let done = match self.next() {
                Next::Stop => break,
                Next::Look(look) => {
                    self.look(look).await;
                    Ok(())
                }
                Next::Settle(reset) => self.settle(reset).await,
                Next::Reset(reset) => self.reset(reset).await,
                Next::Rest => {
                    self.rest(None).await;
                    Ok(())
                }
                Next::Repair(lost) => self.repair(lost).await,
                Next::Deliver => {
                    self.deliver().await;
                    Ok(())
                }
            };
            // Only the journal or, before a reset, a look at the table fails here.
            if let Err(error) = done {
                tracing::warn!(event = "retrying", connector = self.work.name(), error = %error, "what a reset needs is tried again");
                self.desk.show_trouble(Phase::Retrying, &error);
                self.rest(Some(self.desk.settings.backoff.initial)).await;
            }
        }
        self.desk.show(|s| s.phase = Phase::Stopped);
    }

    fn next(&mut self) -> Next {
        let desk = &mut self.desk;
        if desk.is_stopping {
            return Next::Stop;
        }
        if desk.has_panicked {
            // Who asked for a look is told that there is none.
            desk.looks.clear();
            return Next::Rest;
        }
        let book = desk.journal.book();
        match book.unfinished() {
            Some(reset) if reset.trigger != Trigger::SchemaChange => return Next::Reset(reset.clone()),
            Some(reset) if desk.is_unsettled => return Next::Settle(reset.clone()),
            // The connector itself carries it out, when it finds that it must.
            Some(_) | None => {}
        }
        let is_paused = book.is_paused();
        desk.looks.retain(|look| !look.is_abandoned());
        if let Some(look) = desk.looks.pop_front() {
            return Next::Look(look);
        }
        if is_paused {
            desk.show(|s| s.phase = Phase::Paused);
            return Next::Rest;
        }
        match &desk.end {
            None => Next::Deliver,
            Some(end) => match &end.lost {
                Some(lost) if desk.resets_by_itself() => Next::Repair(lost.clone()),
                _ => {
                    desk.show_end();
                    Next::Rest
                }
            },
        }
    }

    async fn deliver(&mut self) {
        self.desk.show(|s| (s.phase, s.is_appending) = (Phase::Starting, false));
        let (desk, commands) = (&mut self.desk, &mut self.commands);
        let run = guarded(self.work.run());
        match attend(desk, commands, Doing::Delivering, run).await {
            None => {}
            Some(Ok(_)) => self.desk.completed(),
            Some(Err(Stopped::Failed(error))) => {
                tracing::warn!(event = "ended", connector = self.work.name(), kind = error.kind().name(), error = %error, "delivery ended");
                self.desk.ended(&error);
                self.give_up_own(&error);
            }
            Some(Err(Stopped::Panicked(error))) => {
                self.panicked(&error);
                self.give_up_own(&error);
            }
        }
    }

    /// A reset that the connector made by itself ends with the delivery of which it is a part.
    fn give_up_own(&mut self, error: &Error) {
        let own = self.desk.journal.book().unfinished().filter(|reset| reset.trigger == Trigger::SchemaChange);
        if let Some(id) = own.map(|reset| reset.id.clone())
            && let Err(failed) = self.desk.record(failed(id, error))
        {
            tracing::warn!(event = "journal_failed", error = %failed, "the end of a reset is not written down");
            self.desk.is_unsettled = true;
        }
    }

    fn panicked(&mut self, error: &Error) {
        tracing::error!(event = "panicked", connector = self.work.name(), error = %error, "the connector is given up");
        self.desk.has_panicked = true;
        self.desk.ended(error);
    }

    /// Answers calls until one needs something else to be done, or for so long.
    async fn rest(&mut self, at_most: Option<Duration>) {
        let clock = self.desk.world.clock.clone();
        let wait = async {
            match at_most {
                Some(wait) => clock.sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        attend(&mut self.desk, &mut self.commands, Doing::Resting, wait).await;
    }

    /// Continuity is lost, and a reset is to repair it as soon as one may begin.
    async fn repair(&mut self, lost: String) -> Result<()> {
        let now = self.desk.journal.now();
        match self.desk.automatic(now) {
            Permit::Go => {
                let who = "on_continuity_loss = \"reset\"".to_string();
                let id = self.desk.begin(Trigger::ContinuityLost, who, lost)?;
                tracing::info!(
                    event = "reset_begins",
                    connector = self.work.name(),
                    id,
                    "continuity is lost, and a reset repairs it"
                );
            }
            Permit::Wait(left) => {
                self.desk.show_end();
                self.rest(Some(left)).await;
            }
            Permit::Open(left) => {
                let reason = format!(
                    "{lost}; too many resets: the breaker is open, and lets the next one begin in {} seconds",
                    whole_seconds(left)
                );
                self.desk.show_trouble(Phase::BreakerOpen, &Error::new(ErrorKind::ContinuityLost, reason));
                self.rest(Some(left)).await;
            }
        }
        Ok(())
    }

    /// Finds out whether a reset that the connector made by itself is in the table.
    async fn settle(&mut self, reset: ResetRecord) -> Result<()> {
        let look = guarded(self.work.committed_reset(&reset.id));
        let found = match attend(&mut self.desk, &mut self.commands, Doing::Resetting, look).await {
            None => return Ok(()),
            Some(Err(Stopped::Panicked(error))) => {
                self.panicked(&error);
                return Ok(());
            }
            Some(Err(Stopped::Failed(error))) if error.kind() == ErrorKind::Unavailable => return Err(error),
            // What else is wrong with the table, delivery will say.
            Some(Err(Stopped::Failed(_))) => None,
            Some(Ok(found)) => found,
        };
        if let Some(Reloaded { version, generation, step }) = found {
            self.desk.record(Event::Committed { id: reset.id, version, generation, step })?;
        }
        self.desk.is_unsettled = false;
        Ok(())
    }

    /// One try of the unfinished reset, or the wait before it.
    async fn reset(&mut self, reset: ResetRecord) -> Result<()> {
        let now = self.desk.journal.now();
        if now.saturating_sub(reset.accepted_at) > LONGEST_LIFE && !reset.has_begun_commit {
            self.desk.record(Event::Expired { id: reset.id })?;
            self.desk.show_end();
            return Ok(());
        }
        let wait = self.desk.wait_of(&reset, now);
        if !wait.is_zero() {
            if self.work.shown().borrow().phase != Phase::Retrying {
                let reason =
                    format!("the reset {} did not end; it is tried again in {} seconds", reset.id, whole_seconds(wait));
                self.desk.show_trouble(Phase::Retrying, &Error::unavailable(reason));
            }
            self.rest(Some(wait)).await;
            return Ok(());
        }
        self.desk.record(Event::Snapshotting { id: reset.id.clone() })?;
        self.desk.show(|s| (s.phase, s.snapshot, s.snapshot_step) = (Phase::Snapshotting, None, None));
        let carried_out = guarded(self.work.carry_out(&reset));
        let reloaded = attend(&mut self.desk, &mut self.commands, Doing::Resetting, carried_out).await;
        match reloaded {
            None => {
                self.desk.show_end();
                Ok(())
            }
            Some(Ok(Reloaded { version, generation, step })) => {
                self.desk.record(Event::Committed { id: reset.id.clone(), version, generation, step })?;
                self.desk.end = None;
                tracing::info!(
                    event = "reset",
                    connector = self.work.name(),
                    id = reset.id,
                    generation = generation.get(),
                    step = step.get(),
                    "the table is loaded anew"
                );
                Ok(())
            }
            Some(Err(Stopped::Failed(error))) if error.kind() == ErrorKind::Unavailable => {
                tracing::warn!(event = "retrying", connector = self.work.name(), id = reset.id, error = %error, "the reset is tried again");
                Status::show_retry(self.work.shown(), &*self.desk.world.clock, Stage::Reset, &error);
                Ok(())
            }
            Some(Err(Stopped::Failed(error))) => {
                tracing::warn!(event = "reset_failed", connector = self.work.name(), id = reset.id, kind = error.kind().name(), error = %error, "the reset is given up; the table is as it was");
                if error.kind() == ErrorKind::Fenced {
                    self.desk.ended(&error);
                }
                self.desk.record(failed(reset.id, &error))?;
                self.desk.show_end();
                Ok(())
            }
            Some(Err(Stopped::Panicked(error))) => {
                self.panicked(&error);
                self.desk.record(failed(reset.id, &error))
            }
        }
    }

    /// Looks at the table, and the source, for a call.
    async fn look(&mut self, look: Look) {
        self.answer_look(look).await;
        self.desk.has_looked();
    }

    async fn answer_look(&mut self, look: Look) {
        match look {
            Look::Reset(request, shown, reply) => {
                let seen = guarded(self.work.see());
                let answer = match attend(&mut self.desk, &mut self.commands, Doing::Looking, seen).await {
                    None => Err(Refusal::Stopped),
                    Some(Ok(generation)) => self.desk.accept(request, shown, generation),
                    Some(Err(stopped)) => Err(Refusal::Failed(self.looked(stopped))),
                };
                let _ = reply.send(answer);
            }
            Look::Preview(request, reply) => {
                let stamp = ResetStamp { id: self.desk.world.ids.draw(), who: request.who, why: request.why };
                let expected = request.expected_generation;
                let reset = Reset { stamp, expected_generation: expected, older: Older::Refused };
                let preview = guarded(self.work.preview(reset));
                let preview = attend(&mut self.desk, &mut self.commands, Doing::Looking, preview).await;
                let found = self.work.shown().borrow().generation;
                let answer = match (preview, expected) {
                    (None, _) => Err(Refusal::Stopped),
                    (Some(Ok(preview)), _) => Ok(preview),
                    (Some(Err(Stopped::Failed(error))), Some(expected))
                        if error.kind() == ErrorKind::Refused && found != Some(expected) =>
                    {
                        Err(Refusal::Generation { expected, found })
                    }
                    (Some(Err(stopped)), _) => Err(Refusal::Failed(self.looked(stopped))),
                };
                let _ = reply.send(answer);
            }
        }
    }

    /// Why a look failed.
    fn looked(&mut self, stopped: Stopped) -> Error {
        match stopped {
            Stopped::Failed(error) => error,
            Stopped::Panicked(error) => {
                self.panicked(&error);
                error
            }
        }
    }
}

/// How work for a connector ended badly.
enum Stopped {
    Failed(Error),
    /// It panicked: what it used is not to be used again.
    Panicked(Error),
}

fn defect(panic: &(dyn std::any::Any + Send)) -> Error {
    Error::internal(format!("a defect of this program: {}", panic_text(panic)))
}

async fn guarded<T>(work: impl Future<Output = Result<T>>) -> Result<T, Stopped> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done.map_err(Stopped::Failed),
        Err(panic) => Err(Stopped::Panicked(defect(&*panic))),
    }
}

fn failed(id: String, error: &Error) -> Event {
    Event::Failed { id, code: error.kind().name().to_string(), reason: error.message().to_string() }
}

/// Completes when delivery is left for a look that waits: once there is nothing that it could deliver, and at the boot time
/// `latest` at the latest. So it gets on between any two looks.
async fn look_is_due(latest: Option<Duration>, clock: Arc<dyn Clock>, mut status: watch::Receiver<Status>) {
    let Some(latest) = latest else { return std::future::pending().await };
    tokio::select! {
        _ = status.wait_for(|status| status.phase == Phase::Following && !status.is_appending) => {}
        () = clock.sleep(latest.saturating_sub(clock.boot())) => {}
    }
}

/// Does `work` while calls are answered; `None` when one of them makes it be left.
async fn attend<T>(
    desk: &mut Desk,
    commands: &mut mpsc::Receiver<Command>,
    doing: Doing,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let status = desk.status();
    let mut is_noted = false;
    loop {
        let step = poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let was_noted = std::mem::replace(&mut is_noted, is_committing(&status.borrow()));
            if is_noted && !was_noted { Poll::Ready(None) } else { Poll::Pending }
        });
        let look = look_is_due(desk.next_look(doing), desk.world.clock.clone(), desk.status());
        // The work first: however many calls come, it goes on between any two of them.
        tokio::select! {
            biased;
            step = step => match step {
                Some(done) => return Some(done),
                None => desk.note_commit(),
            },
            () = look => return None,
            command = commands.recv() => match command {
                Some(command) => {
                    if desk.answer(command, doing).is_break() {
                        return None;
                    }
                }
                None => {
                    desk.is_stopping = true;
                    return None;
                }
            },
        }
    }
}

/// A number from 0 to 1 that differs from reset to reset, and from try to try.
pub(crate) fn jitter(id: &str, tries: u32) -> f64 {
    (XxHash3_64::oneshot_with_seed(u64::from(tries), id.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
#[path = "bench_tests.rs"]
mod bench;
#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
