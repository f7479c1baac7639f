//! Answers calls, whatever the connector is doing meanwhile.

use std::collections::VecDeque;
use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::handle::{Accepted, Command, Grant, Refusal, ResetRequest};
use super::{ControlSettings, OnContinuityLoss, jitter};
use crate::clock::World;
use crate::connector::breaker::Permit;
use crate::connector::journal::{BreakerRule, Event, Journal, Reloaded, ResetRecord, ResetState, Trigger};
use crate::connector::{Phase, ResetPreview, Status, Trouble, What};
use crate::continuity::columns::SchemaChange;
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;

const LONGEST_NAME: usize = 256;
const LONGEST_REASON: usize = 4096;
/// The most idempotency keys that lead to one reset.
const MOST_KEYS: usize = 1000;
/// The most calls that wait for a look, and when another one may be made.
const MOST_LOOKS: usize = 16;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// For so long delivery that has something to deliver is not left for another look, lest many of them keep it from that.
const BETWEEN_LOOKS: Duration = Duration::from_secs(30);

/// What the connector is doing while a call arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// It delivers.
    Delivering,
    /// It carries out the unfinished reset.
    Resetting,
    /// It looks at table and source for a call.
    Looking,
    /// It waits for a call, or for a time.
    Resting,
}

/// How delivery ended, until somebody has it tried again.
#[derive(Debug)]
pub(super) struct End {
    phase: Phase,
    trouble: Option<Trouble>,
    /// Why continuity was lost.
    pub(super) lost: Option<String>,
}

/// A call that needs a look at the table or the source.
pub(super) enum Look {
    /// What a reset would do.
    Preview(ResetRequest, oneshot::Sender<Result<ResetPreview, Refusal>>),
    /// Which generation the table has, for a reset that expects one.
    Reset(ResetRequest, Option<Generation>, oneshot::Sender<Result<Accepted, Refusal>>),
}

impl Look {
    /// Whether who asked is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Preview(_, reply) => reply.is_closed(),
            Self::Reset(_, _, reply) => reply.is_closed(),
        }
    }
}

/// What is known and wanted of a connector, beside the connector itself.
pub(super) struct Desk {
    pub(super) settings: ControlSettings,
    pub(super) journal: Journal,
    pub(super) world: World,
    pub(super) looks: VecDeque<Look>,
    /// When delivery is left for a look whatever it is doing, by the boot clock.
    next_look: Duration,
    pub(super) end: Option<End>,
    pub(super) is_stopping: bool,
    /// Whether the connector itself made a reset of which the journal may not know the end.
    pub(super) is_unsettled: bool,
    /// The connector panicked: it is not used again.
    pub(super) has_panicked: bool,
    status: watch::Sender<Status>,
    /// Why there is no snapshot to load, where there is none.
    no_snapshot: Option<String>,
}

impl Desk {
    pub(super) fn new(
        settings: ControlSettings,
        journal: Journal,
        world: World,
        status: watch::Sender<Status>,
        no_snapshot: Option<String>,
    ) -> Self {
        let is_unsettled = journal.book().unfinished().is_some_and(|reset| reset.trigger == Trigger::SchemaChange);
        Self {
            settings,
            journal,
            world,
            looks: VecDeque::new(),
            next_look: Duration::ZERO,
            end: None,
            is_stopping: false,
            is_unsettled,
            has_panicked: false,
            status,
            no_snapshot,
        }
    }

    /// Answers `command`; breaks when what the connector is doing must be left for it.
    pub(super) fn answer(&mut self, command: Command, doing: Doing) -> ControlFlow<()> {
        match command {
            Command::Reset(request, seen, reply) => return self.reset(request, seen, reply, doing),
            Command::Preview(request, reply) => return self.preview(request, reply, doing),
            Command::Cancel { id, who, reply } => {
                let cancelled = self.cancel(&id, &who);
                let is_cancelled = cancelled.is_ok();
                respond(reply, cancelled);
                // A reload that the connector made by itself is part of its delivery.
                return if is_cancelled && doing != Doing::Looking { Break(()) } else { Continue(()) };
            }
            Command::Resets(reply) => {
                respond(reply, Ok(self.journal.book().resets().rev().cloned().collect()));
            }
            Command::ResetById(id, reply) => respond(reply, Ok(self.journal.book().reset(&id).cloned())),
            Command::Pause { who, reply } => {
                let paused = self.record_if(!self.journal.book().is_paused(), Event::Paused { who: cut(who) });
                let is_paused = paused.is_ok();
                respond(reply, paused);
                return if is_paused && matches!(doing, Doing::Delivering | Doing::Resting) {
                    Break(())
                } else {
                    Continue(())
                };
            }
            Command::Resume { who, reply } => {
                let resumed = self.resume(who);
                let is_resumed = resumed.is_ok();
                respond(reply, resumed);
                return if is_resumed && doing == Doing::Resting { Break(()) } else { Continue(()) };
            }
            Command::Stop => {
                self.is_stopping = true;
                return Break(());
            }
            Command::Propose { who, why } => return self.propose(who, why),
            Command::Grant { why, reply } => respond(reply, self.grant(why)),
            Command::Granted { id, reloaded, reply } => {
                let told = self.granted(id, reloaded);
                self.is_unsettled = told.is_err();
                respond(reply, told);
                return if self.is_unsettled { Break(()) } else { Continue(()) };
            }
        }
        Continue(())
    }

    fn reset(
        &mut self,
        request: ResetRequest,
        seen: Option<Generation>,
        reply: oneshot::Sender<Result<Accepted, Refusal>>,
        doing: Doing,
    ) -> ControlFlow<()> {
        let generation = self.status.borrow().generation;
        let is_unseen = generation.is_none() && !self.is_loading() && self.journal.book().unfinished().is_none();
        if request.expected_generation.is_some() && is_unseen {
            if self.looks.len() >= MOST_LOOKS {
                respond(reply, Err(Refusal::TooManyCalls { retry_after: LOOK_AGAIN }));
                return Continue(());
            }
            // Whether there is no table, or it was not looked at, a look tells.
            self.looks.push_back(Look::Reset(request, seen, reply));
            return if matches!(doing, Doing::Looking | Doing::Delivering) { Continue(()) } else { Break(()) };
        }
        let accepted = self.accept(request, seen, generation);
        let is_begun = matches!(accepted, Ok(Accepted { is_new: true, .. }));
        respond(reply, accepted);
        if is_begun && doing != Doing::Looking { Break(()) } else { Continue(()) }
    }

    /// Writes a reset down, unless one that was accepted before is what the call wants. `seen` is the generation that was shown
    /// when it was asked for, and `generation` the table's.
    pub(super) fn accept(
        &mut self,
        request: ResetRequest,
        seen: Option<Generation>,
        generation: Option<Generation>,
    ) -> Result<Accepted, Refusal> {
        check_lengths(&request)?;
        let now = self.journal.now();
        if let Some(earlier) = self.earlier(&request, seen, generation, now) {
            let (id, keys) = (earlier.id.clone(), earlier.keys);
            self.join(&id, keys, request.key)?;
            return Ok(Accepted { id, is_new: false });
        }
        self.admit(&request, generation, now)?;
        let id = self.world.ids.draw();
        let event = Event::Accepted {
            id: id.clone(),
            key: request.key,
            who: request.who,
            why: request.why,
            trigger: Trigger::Asked,
            expected_generation: request.expected_generation,
            breaker: request.breaker,
        };
        self.record(event).map_err(Refusal::Unrecorded)?;
        Ok(Accepted { id, is_new: true })
    }

    /// The reset that such a call gets instead of another one.
    fn earlier(
        &self,
        request: &ResetRequest,
        seen: Option<Generation>,
        generation: Option<Generation>,
        now: Duration,
    ) -> Option<&ResetRecord> {
        let book = self.journal.book();
        if let Some(keyed) = request.key.as_deref().and_then(|key| book.keyed(key)) {
            return Some(keyed);
        }
        let last = book.resets().next_back()?;
        let is_unfinished = last.state.is_unfinished();
        let is_wanted = request.expected_generation.is_none_or(|expected| {
            last.expected_generation == Some(expected) || (is_unfinished && generation == Some(expected))
        });
        // One that was asked for before the reset ended, and came to be read after it.
        let is_overtaken = match &last.state {
            ResetState::Committed(reloaded) => seen.is_some_and(|seen| seen < reloaded.generation),
            _ => false,
        };
        // A burst of calls is one reset, also where a reload takes milliseconds; a key says that a call is one of its own.
        let is_recent = now.saturating_sub(last.accepted_at) < self.settings.backoff.initial;
        let is_burst = request.key.is_none() && last.who == request.who && is_recent;
        let is_committed = matches!(last.state, ResetState::Committed(_));
        let is_answer =
            is_unfinished || (last.trigger == Trigger::Asked && (is_overtaken || (is_committed && is_burst)));
        Some(last).filter(|_| is_answer && is_wanted)
    }

    fn join(&mut self, id: &str, keys: usize, key: Option<String>) -> Result<(), Refusal> {
        let Some(key) = key.filter(|key| self.journal.book().keyed(key).is_none()) else { return Ok(()) };
        if keys >= MOST_KEYS {
            return Err(Refusal::TooManyCalls { retry_after: self.settings.backoff.initial });
        }
        self.record(Event::Joined { id: id.to_string(), key }).map_err(Refusal::Unrecorded)
    }

    /// Refuses what may not begin.
    fn admit(&self, request: &ResetRequest, generation: Option<Generation>, now: Duration) -> Result<(), Refusal> {
        let unfinished = self.journal.book().unfinished();
        if let Some(expected) = request.expected_generation
            && generation != Some(expected)
            // While one is carried out the generation may not have been looked at.
            && (generation.is_some() || unfinished.is_none())
        {
            return Err(Refusal::Generation { expected, found: generation });
        }
        if let Some(reset) = unfinished {
            return Err(Refusal::UnderWay { id: reset.id.clone() });
        }
        if let Some(why) = &self.no_snapshot {
            return Err(Refusal::NoSnapshot(why.clone()));
        }
        if self.has_panicked {
            return Err(Refusal::Failed(Error::internal(
                "the connector met a defect of this program; start the program anew",
            )));
        }
        match (self.journal.book().breaker().asked(now), request.breaker) {
            (Permit::Open(retry_after) | Permit::Wait(retry_after), BreakerRule::Heed) => {
                Err(Refusal::BreakerOpen { retry_after })
            }
            (_, BreakerRule::Override) | (Permit::Go, BreakerRule::Heed) => Ok(()),
        }
    }

    fn preview(
        &mut self,
        request: ResetRequest,
        reply: oneshot::Sender<Result<ResetPreview, Refusal>>,
        doing: Doing,
    ) -> ControlFlow<()> {
        let now = self.journal.now();
        let generation = self.status.borrow().generation;
        // What the table's generation is, the look tells.
        let expected = if generation.is_none() { None } else { request.expected_generation };
        let admitted = check_lengths(&request).and_then(|()| {
            self.admit(&ResetRequest { expected_generation: expected, ..request.clone() }, generation, now)
        });
        match admitted {
            Err(refusal) => respond(reply, Err(refusal)),
            Ok(()) if self.looks.len() >= MOST_LOOKS => {
                respond(reply, Err(Refusal::TooManyCalls { retry_after: LOOK_AGAIN }));
            }
            Ok(()) if self.is_loading() => {
                let why = "the connector loads the table, which is not left for a look; ask again when it is loaded";
                respond(reply, Err(Refusal::Failed(Error::unavailable(why))));
            }
            Ok(()) => {
                self.looks.push_back(Look::Preview(request, reply));
                if doing == Doing::Resting {
                    return Break(());
                }
            }
        }
        Continue(())
    }

    /// When, by the boot clock, delivery is left for a look whatever it is doing; `None` where no look waits for it.
    pub(super) fn next_look(&self, doing: Doing) -> Option<Duration> {
        (doing == Doing::Delivering && !self.looks.is_empty()).then_some(self.next_look)
    }

    /// A look ended: delivery gets some time before it is left for another one.
    pub(super) fn has_looked(&mut self) {
        self.next_look = self.world.clock.boot() + BETWEEN_LOOKS;
    }

    /// Whether a snapshot is written: then the table was looked at, and what is written is worth more than another look.
    fn is_loading(&self) -> bool {
        self.status.borrow().phase == Phase::Snapshotting
    }

    fn cancel(&mut self, id: &str, who: &str) -> Result<ResetRecord, Refusal> {
        let Some(reset) = self.journal.book().reset(id) else { return Err(Refusal::Unknown { id: id.to_string() }) };
        if !reset.state.is_unfinished() || reset.has_begun_commit || self.is_committing() {
            return Err(Refusal::NotCancellable { id: id.to_string(), state: reset.state.clone() });
        }
        let event = Event::Cancelled { id: id.to_string(), who: cut(who.to_string()) };
        self.record(event).map_err(Refusal::Unrecorded)?;
        let cancelled = self.journal.book().reset(id).cloned();
        cancelled.ok_or_else(|| Refusal::Unknown { id: id.to_string() })
    }

    /// Whether the commit of the snapshot that is written has begun.
    fn is_committing(&self) -> bool {
        is_committing(&self.status.borrow())
    }

    /// Writes down that the commit of the unfinished reset has begun.
    pub(super) fn note_commit(&mut self) {
        let Some(reset) = self.journal.book().unfinished() else { return };
        if reset.state == ResetState::Snapshotting
            && let Err(error) = self.record(Event::Committing { id: reset.id.clone() })
        {
            // Nothing depends on it but that the reset is not taken back between two tries.
            tracing::warn!(event = "journal_failed", error = %error, "the beginning of a commit is not written down");
        }
    }

    fn resume(&mut self, who: String) -> Result<(), Refusal> {
        if self.has_panicked {
            return Err(Refusal::Failed(Error::internal(
                "the connector met a defect of this program; start the program anew",
            )));
        }
        self.record_if(self.journal.book().is_paused(), Event::Resumed { who: cut(who) })?;
        self.end = None;
        Ok(())
    }

    /// Takes a reset that the connector itself proposes, unless another is under way or none may begin yet.
    fn propose(&mut self, who: String, why: String) -> ControlFlow<()> {
        let is_free = self.journal.book().unfinished().is_none() && self.no_snapshot.is_none();
        let now = self.journal.now();
        if !is_free || self.automatic(now) != Permit::Go {
            return Continue(());
        }
        match self.begin(Trigger::ReloadRatio, who, why) {
            Ok(_) => Break(()),
            Err(error) => {
                tracing::warn!(event = "journal_failed", error = %error, "a reset that nobody asked for is not begun");
                Continue(())
            }
        }
    }

    /// Whether the connector may reload its table because its view has other columns.
    fn grant(&mut self, why: String) -> Result<Grant, Refusal> {
        let now = self.journal.now();
        let who = format!("schema_change = \"{}\"", SchemaChange::Reload);
        let (id, who, why) = match self.journal.book().unfinished() {
            // One that was accepted and not done: a try of its own.
            Some(reset) => match self.wait_of(reset, now) {
                Duration::ZERO => (reset.id.clone(), reset.who.clone(), reset.why.clone()),
                left => return Ok(Grant::Later(Permit::Wait(left))),
            },
            None => match self.automatic(now) {
                Permit::Go => {
                    let id =
                        self.begin(Trigger::SchemaChange, who.clone(), why.clone()).map_err(Refusal::Unrecorded)?;
                    (id, who, why)
                }
                later => return Ok(Grant::Later(later)),
            },
        };
        self.record(Event::Snapshotting { id: id.clone() }).map_err(Refusal::Unrecorded)?;
        self.show(|s| s.snapshot = None);
        Ok(Grant::Go(ResetStamp { id, who, why }))
    }

    fn granted(&mut self, id: String, reloaded: Option<Reloaded>) -> Result<(), Refusal> {
        let event = match reloaded {
            Some(Reloaded { version, generation, step }) => Event::Committed { id, version, generation, step },
            None => Event::Cancelled { id, who: "the table has the view's columns".to_string() },
        };
        self.record(event).map_err(Refusal::Unrecorded)
    }

    /// How long the unfinished reset waits before its next try.
    pub(super) fn wait_of(&self, reset: &ResetRecord, now: Duration) -> Duration {
        let delay = self.settings.backoff.delay(reset.tries, jitter(&reset.id, reset.tries));
        reset.tried_at.saturating_add(delay).saturating_sub(now)
    }

    /// Whether a reset that nobody asked for may begin.
    pub(super) fn automatic(&self, now: Duration) -> Permit {
        let book = self.journal.book();
        // As random as ids, and the same for as long as no reset begins, restarts included.
        let last = book.resets().next_back().map_or("", |reset| reset.id.as_str());
        book.breaker().automatic(now, jitter(last, 0))
    }

    /// Writes a reset down that nobody asked for; its id.
    pub(super) fn begin(&mut self, trigger: Trigger, who: String, why: String) -> Result<String> {
        let id = self.world.ids.draw();
        let event = Event::Accepted {
            id: id.clone(),
            key: None,
            who,
            why,
            trigger,
            expected_generation: None,
            breaker: BreakerRule::Heed,
        };
        self.record(event)?;
        Ok(id)
    }

    /// Writes an event down, and shows which reset is unfinished then.
    pub(super) fn record(&mut self, event: Event) -> Result<()> {
        let id = event.begins_or_ends().map(str::to_owned);
        self.journal.record(event)?;
        if let Some(reset) = id.and_then(|id| self.journal.book().reset(&id)) {
            Status::tell(&self.status, &*self.world.clock, What::Reset(Box::new(reset.clone())));
        }
        self.show_reset();
        Ok(())
    }

    /// What is shown of the connector.
    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    /// Whether lost continuity is repaired without anybody's call.
    pub(super) fn resets_by_itself(&self) -> bool {
        self.settings.on_continuity_loss == OnContinuityLoss::Reset && self.no_snapshot.is_none()
    }

    pub(super) fn show_reset(&self) {
        let reset = self.journal.book().unfinished().map(|reset| reset.id.clone());
        self.show(|s| s.reset = reset);
    }

    fn record_if(&mut self, is_change: bool, event: Event) -> Result<(), Refusal> {
        if is_change { self.record(event).map_err(Refusal::Unrecorded) } else { Ok(()) }
    }

    pub(super) fn show(&self, change: impl FnOnce(&mut Status)) {
        Status::change(&self.status, &*self.world.clock, change);
    }

    /// Shows `phase`, and the error that led to it.
    pub(super) fn show_trouble(&self, phase: Phase, error: &Error) {
        Status::show_trouble(&self.status, &*self.world.clock, phase, error);
    }

    /// Delivery ended by `error`.
    pub(super) fn ended(&mut self, error: &Error) {
        let lost = (error.kind() == ErrorKind::ContinuityLost).then(|| error.message().to_string());
        self.end = Some(End { phase: Phase::of_error(error.kind()), trouble: Some(Trouble::of(error)), lost });
        self.show_end();
    }

    /// Delivery ended because everything is delivered.
    pub(super) fn completed(&mut self) {
        self.end = Some(End { phase: self.status.borrow().phase, trouble: None, lost: None });
    }

    /// Shows what there is to see while nothing is done.
    pub(super) fn show_end(&self) {
        if let Some(end) = &self.end {
            self.show(|s| (s.phase, s.trouble) = (end.phase, end.trouble.clone()));
        }
    }
}

/// Whether `status` shows a snapshot whose commit has begun.
pub(super) fn is_committing(status: &Status) -> bool {
    status.phase == Phase::Snapshotting && status.snapshot.as_ref().is_some_and(|progress| progress.is_committing())
}

fn respond<T>(reply: oneshot::Sender<Result<T, Refusal>>, answer: Result<T, Refusal>) {
    // Who asked may have stopped waiting.
    let _ = reply.send(answer);
}

fn check_lengths(request: &ResetRequest) -> Result<(), Refusal> {
    let parts = [
        ("asker's name", request.who.len(), LONGEST_NAME),
        ("reason", request.why.len(), LONGEST_REASON),
        ("idempotency key", request.key.as_ref().map_or(0, String::len), LONGEST_NAME),
    ];
    match parts.into_iter().find(|(_, length, most)| length > most) {
        Some((what, _, most)) => Err(Refusal::TooLong { what, most }),
        None => Ok(()),
    }
}

/// A name that a line of the journal can hold.
fn cut(mut name: String) -> String {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name.truncate(end);
    name
}
