//! The one that writes a pushed view: judges requests, writes those that wait at once, and lets go of what nobody needs.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use futures::executor::block_on;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::operations::{Operations, check};
use super::{Shared, Told};
use crate::error::{Error, ErrorKind, Lost, Result, guarded};
use crate::schema::View;
use crate::source::logged::{FULL, Keeper, Kept, Places, Register, WhenFull, makes_room};
use crate::step::Step;
use crate::steplog::{Answer, At, Entry, Limits, Next, StepLog};
use crate::view::{Effect, Staging, ViewStore};

/// How many steps are written at once.
const ROUND: usize = 256;
/// What the operations of those take in memory, in bytes, but for a single one that is larger.
const ROUND_BYTES: u64 = 16 << 20;

/// What the owner is asked for.
pub(super) enum Request {
    Push(Push),
    Attach(String, WhenFull, oneshot::Sender<()>),
    Detach(String, oneshot::Sender<Result<()>>),
    /// A connector's table has this step, and the log ends before.
    Lost(String, Step, oneshot::Sender<Result<()>>),
    /// Who takes a snapshot misses nothing before it.
    TakeBack(String, oneshot::Sender<Result<()>>),
    Acknowledge(String, Step, oneshot::Sender<Result<()>>),
}

/// Operations whose sender waits.
pub(super) struct Push {
    pub(super) operations: Operations,
    pub(super) at: At,
    pub(super) reply: oneshot::Sender<Result<Answer>>,
    /// Room in the queue.
    pub(super) _room: OwnedSemaphorePermit,
}

/// A step that is to be written.
struct Staged {
    step: Step,
    entry: Entry,
    effect: Option<Effect>,
    reply: oneshot::Sender<Result<Answer>>,
    _room: OwnedSemaphorePermit,
}

pub(super) struct Owner {
    shared: Arc<Shared>,
    store: Option<ViewStore>,
    /// Why the store takes nothing more.
    broken: Option<String>,
    /// What the store was given since it was made durable, in bytes.
    unsynced: u64,
    limits: Limits,
    register: Register,
    /// What another history of the view would be called.
    next_history: String,
    told: watch::Sender<Told>,
}

/// The store of a view, caught up with its log.
pub(super) fn opened(directory: &Path, view: &View, log: &StepLog) -> Result<ViewStore> {
    let caught_up = || -> Result<ViewStore> {
        let mut store = ViewStore::open(directory, view, log.id())?;
        catch_up(&mut store, log)?;
        Ok(store)
    };
    match caught_up() {
        Err(e) if e.kind() == ErrorKind::Corrupt && log.stand().earliest == Step::ZERO => {
            tracing::warn!(view = view.name(), why = %e, "the rows of a view are made again from its step log");
            ViewStore::remove(directory)?;
            caught_up()
        }
        opened => opened,
    }
}

fn catch_up(store: &mut ViewStore, log: &StepLog) -> Result<()> {
    let (step, last) = (store.step(), log.stand().last);
    if step > last {
        // Rows are written after the log is sure of their step, so they are no cache here but the proof. They stay.
        return Err(Error::continuity_lost(
            Lost::SourceBehind,
            format!(
                "the rows in {} are those of step {step}, and the step log ends at {last}: it has lost steps; remove both, push the view anew, then reset its connectors",
                store.directory().display()
            ),
        ));
    }
    let mut reader = log.read(step);
    loop {
        match reader.read_next()? {
            Next::Step(stored) => store.apply(stored.step, stored.changes()?.batches())?,
            Next::End => return Ok(()),
            Next::Gone { earliest } => {
                return Err(Error::corrupt(format!(
                    "the rows in {} are those of step {step}, and the step log begins after step {earliest}, so what is between is gone; remove both, push the view anew, then reset its connectors",
                    store.directory().display()
                )));
            }
        }
    }
}

impl Owner {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Option<ViewStore>,
        limits: Limits,
        register: Register,
        next_history: String,
        told: watch::Sender<Told>,
    ) -> Self {
        Self { shared, store, broken: None, unsynced: 0, limits, register, next_history, told }
    }

    /// Serves until nobody can ask any more.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) -> Result<()> {
        let mut next = requests.blocking_recv();
        while let Some(request) = next.take() {
            match request {
                Request::Push(push) => next = self.serve(push, &mut requests),
                Request::Attach(name, when_full, reply) => {
                    self.told.send_modify(|told| told.places.attach(&name, when_full));
                    let _ = reply.send(());
                }
                Request::Detach(name, reply) => {
                    let _ = reply.send(self.change_detached(|places| places.remove(&name)));
                }
                Request::TakeBack(name, reply) => {
                    let _ = reply.send(self.change_detached(|places| places.take_back(&name)));
                }
                Request::Lost(name, step, reply) => {
                    let _ = reply.send(self.has_lost(&name, step));
                }
                Request::Acknowledge(name, step, reply) if step > self.shared.log.stand().last => {
                    let _ = reply.send(self.has_lost(&name, step));
                }
                Request::Acknowledge(name, step, reply) => {
                    self.told.send_modify(|told| told.places.acknowledge(&name, step));
                    let _ = reply.send(block_on(self.release_needless()));
                    self.show_room();
                }
            }
            if next.is_none() {
                next = requests.blocking_recv();
            }
        }
        self.store.as_mut().map_or(Ok(()), ViewStore::sync)
    }

    /// Changes the places; what `change` says changes who is detached, and counts once it is written down.
    fn change_detached(&mut self, change: impl FnOnce(&mut Places) -> bool) -> Result<()> {
        let mut places = self.told.borrow().places.clone();
        if change(&mut places) {
            self.register.write(&Kept { history: self.history(), detached: places.detached().clone() })?;
        }
        self.told.send_modify(|told| told.places = places);
        Ok(())
    }

    /// The history that is written down.
    fn history(&self) -> Option<String> {
        let own = &self.shared.history;
        (*own != self.shared.log.id().simple().to_string()).then(|| own.clone())
    }

    /// A table has a step that the log has not: the log was taken back, or its end was lost. Other steps must not get those
    /// numbers within this history, so it ends here, and the view begins another when it is opened again.
    fn has_lost(&mut self, connector: &str, step: Step) -> Result<()> {
        let last = self.shared.log.stand().last;
        if self.broken.is_none() {
            let detached = self.told.borrow().places.detached().clone();
            self.register.write(&Kept { history: Some(self.next_history.clone()), detached })?;
            let broken = format!(
                "the table of the connector {connector} has step {step}, and the step log ends at {last}: it has lost steps that were answered; load the configuration anew, which begins another history of the view, push what is missing, and reset its connectors"
            );
            tracing::error!(event = "steps_lost", view = self.shared.view.name(), error = %broken, "a view takes no more steps");
            self.told.send_modify(|told| told.broken = Some(broken.clone()));
            self.broken = Some(broken);
        }
        Err(Error::continuity_lost(Lost::SourceBehind, self.broken.clone().unwrap_or_default()))
    }

    /// Answers a push and those behind it that follow it; gives back the first request that does not.
    fn serve(&mut self, first: Push, requests: &mut mpsc::Receiver<Request>) -> Option<Request> {
        let before = self.shared.log.stand().last;
        if !follows(first.at, before) {
            let answer = self.judge(&first);
            let _ = first.reply.send(answer);
            return None;
        }
        if let Some(broken) = &self.broken {
            let _ = first.reply.send(Err(Error::unavailable(broken.clone())));
            return None;
        }
        let (mut round, mut bytes, mut last, mut held) = (VecDeque::new(), 0, before, None);
        let mut staging = self.store.as_ref().map(ViewStore::stage);
        let mut next = Some(first);
        while let Some(push) = next.take() {
            bytes += push.operations.bytes;
            if let Some(staged) = stage(&self.shared.view, staging.as_mut(), push, last) {
                last = staged.step;
                round.push_back(staged);
            }
            if round.len() >= ROUND || bytes >= ROUND_BYTES {
                break;
            }
            match requests.try_recv() {
                Ok(Request::Push(push)) if follows(push.at, last) => next = Some(push),
                Ok(other) => held = Some(other),
                Err(_) => {}
            }
        }
        drop(staging);
        self.write(round);
        held
    }

    /// What to say of a step that does not follow the last one.
    fn judge(&self, push: &Push) -> Result<Answer> {
        let Operations { rows, content, .. } = push.operations;
        if let At::Step { step, after } = push.at
            && step > after
            && step > self.shared.log.stand().last
        {
            return Ok(Answer::Gap { last: self.shared.log.stand().last });
        }
        block_on(self.shared.log.append(Entry::question(push.at, rows, content)))
    }

    /// Writes steps that follow each other: a first part of them, or all.
    fn write(&mut self, mut round: VecDeque<Staged>) {
        let mut may_make_room = true;
        while !round.is_empty() {
            let log = &self.shared.log;
            let answers = block_on(log.append_all(round.iter().map(|staged| staged.entry.clone())));
            let mut refused = None;
            for answer in answers {
                match answer {
                    Ok(Answer::Stored(_)) if refused.is_none() => {
                        let Some(staged) = round.pop_front() else { break };
                        self.apply(staged);
                    }
                    other => drop(refused.get_or_insert(other)),
                }
            }
            match refused {
                None => break,
                Some(Ok(Answer::Full { .. })) if may_make_room && self.has_made_room() => may_make_room = false,
                Some(answer) => {
                    self.show_refusal(&answer);
                    return refuse(round, answer);
                }
            }
        }
    }

    /// Takes a step that is durable into the store.
    fn apply(&mut self, staged: Staged) {
        if let (Some(store), Some(effect), None) = (&mut self.store, staged.effect, &self.broken) {
            self.unsynced += staged.entry.bytes();
            if let Err(e) = guarded("the store", || store.commit(staged.step, effect)) {
                let broken = format!(
                    "{}; steps that were answered are in the step log: look at the disk, then load the configuration anew",
                    e.message()
                );
                let view = self.shared.view.name();
                tracing::error!(event = "store_failed", view, error = %broken, "the store of a view takes no more steps");
                self.told.send_modify(|told| told.broken = Some(broken.clone()));
                self.broken = Some(broken);
            }
        }
        // Who has the answer sees it in the view.
        let rows = self.store.as_ref().map(ViewStore::rows);
        self.told.send_modify(|told| {
            told.rows = rows;
            told.takes_pushes(&*self.shared.clock);
        });
        let _ = staged.reply.send(Ok(Answer::Stored(staged.step)));
    }

    /// Shows why a step was not written.
    fn show_refusal(&self, answer: &Result<Answer>) {
        let now = self.shared.clock.boot();
        self.told.send_modify(|told| match answer {
            Ok(Answer::Full { bytes, .. }) => {
                told.full_at = Some(*bytes);
                told.refusal = Some(FULL.to_owned());
                told.full_since.get_or_insert(now);
            }
            Ok(_) => {}
            Err(e) => told.refusal = Some(e.message().to_owned()),
        });
    }

    /// Shows that a log which was full has room again.
    fn show_room(&self) {
        let has_room = |told: &Told| told.full_at.is_some_and(|bytes| self.shared.log.stand().bytes < bytes);
        self.told.send_if_modified(|told| {
            let has_room = has_room(told);
            if has_room {
                told.takes_pushes(&*self.shared.clock);
            }
            has_room
        });
    }

    /// Releases what nobody needs any more. The store is made durable for it once that is worth a sync.
    async fn release_needless(&mut self) -> Result<()> {
        if self.unsynced >= self.limits.segment_bytes {
            self.sync()?;
        }
        let last = self.shared.log.stand().last;
        let needless = self.told.borrow().places.needless(last);
        let kept = match &self.store {
            Some(store) => store.durable().min(needless),
            None => needless,
        };
        match kept {
            Some(step) => self.shared.log.release(step).await,
            None => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<()> {
        if let Some(store) = self.store.as_mut().filter(|_| self.broken.is_none()) {
            store.sync()?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// Whether the log takes less than before.
    fn has_made_room(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        block_on(makes_room(shared.view.name(), &shared.log, self)).unwrap_or_else(|e| {
            let view = shared.view.name();
            tracing::warn!(event = "no_room_made", view, error = %e, "nothing was released from the full step log");
            false
        })
    }
}

impl Keeper for Owner {
    async fn let_go(&mut self) -> Result<()> {
        self.sync()?;
        self.release_needless().await
    }

    fn detach_last(&mut self, at: Step) -> Result<Vec<String>> {
        let mut detached = Vec::new();
        self.change_detached(|places| {
            detached = places.detach_last(at);
            !detached.is_empty()
        })?;
        Ok(detached)
    }
}

fn follows(at: At, last: Step) -> bool {
    match at {
        At::Next => true,
        At::Step { step, after } => after == last && step > after,
    }
}

/// A push as the step after `last`, or nothing when it was refused.
fn stage(view: &View, staging: Option<&mut Staging<'_>>, push: Push, last: Step) -> Option<Staged> {
    let Push { operations, at, reply, _room } = push;
    // What panics on this thread would end the view.
    match guarded("the request", || staged(view, staging, operations, at, last)) {
        Ok((step, entry, effect)) => Some(Staged { step, entry, effect, reply, _room }),
        Err(e) => {
            let _ = reply.send(Err(e));
            None
        }
    }
}

fn staged(
    view: &View,
    mut staging: Option<&mut Staging<'_>>,
    operations: Operations,
    at: At,
    last: Step,
) -> Result<(Step, Entry, Option<Effect>)> {
    let step = match at {
        At::Next => Step::new(last.get() + 1)?,
        At::Step { step, .. } => step,
    };
    let Operations { rows, content, resolve, .. } = operations;
    let batch = resolve(&mut |keys| match &staging {
        Some(staging) => staging.get(keys),
        None => Err(Error::refused(format!(
            "view {} is not materialized, so an update that names some columns has no row to take the others from; send whole rows, or declare materialized = true",
            view.name()
        ))),
    })?;
    check(&batch, rows, view)?;
    let batches = [batch];
    let effect = staging.as_mut().map(|staging| staging.add(&batches)).transpose()?;
    let entry = Entry::new(At::Step { step, after: last }, &batches)?.meaning(content);
    Ok((step, entry, effect))
}

/// Answers those that were not written: the first as the log did, the others with what follows from it.
fn refuse(round: VecDeque<Staged>, answer: Result<Answer>) {
    let full = answer.as_ref().ok().filter(|answer| matches!(answer, Answer::Full { .. })).copied();
    let mut answer = Some(answer);
    for staged in round {
        let behind = || match full {
            Some(full) => Ok(full),
            None => Err(Error::unavailable("a step before it was not stored; send it again")),
        };
        let _ = staged.reply.send(answer.take().unwrap_or_else(behind));
    }
}
