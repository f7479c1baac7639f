//! What a journal's entries come to: the resets, the breaker, and whether delivery rests.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::event::{BreakerRule, Entry, Event, Trigger};
use crate::connector::breaker::Breaker;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::step::Step;

/// How many resets are remembered at least; older ones are forgotten.
const REMEMBERED: usize = 1000;

/// One reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetRecord {
    /// Its id; the reload's commit id is made of it.
    pub id: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
    /// What made it begin.
    pub trigger: Trigger,
    /// The generation that the table must have.
    pub expected_generation: Option<Generation>,
    /// What an open breaker meant to it.
    pub breaker: BreakerRule,
    /// How far it is.
    pub state: ResetState,
    /// How often it was tried.
    pub tries: u32,
    /// When it was accepted, in milliseconds since 1970 UTC.
    pub accepted_millis: i64,
    /// When its state changed last, in milliseconds since 1970 UTC.
    pub changed_millis: i64,
    pub(in crate::connector) accepted_at: Duration,
    /// When the last try began.
    pub(in crate::connector) tried_at: Duration,
    /// Whether a commit of it was begun at any time: then the table may hold it yet.
    pub(in crate::connector) has_begun_commit: bool,
    /// How many idempotency keys lead to it.
    pub(in crate::connector) keys: usize,
}

/// How far a reset is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetState {
    /// It is written down, and will be carried out.
    Accepted,
    /// It is tried: rows are written that no reader sees, or the next try is waited for.
    Snapshotting,
    /// Its commit has begun, and cannot be taken back.
    Committing,
    /// The table holds it.
    Committed(Reloaded),
    /// It was taken back before its commit.
    Cancelled {
        /// By whom.
        who: String,
    },
    /// It was given up, and changed nothing.
    Failed {
        /// The name of the error's kind.
        code: String,
        /// What the error said.
        reason: String,
    },
    /// It could not be carried out within a day, and changed nothing.
    Expired,
}

/// What a reset made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reloaded {
    /// The version that holds it; `None` when that was not found out.
    pub version: Option<u64>,
    /// The generation that it began.
    pub generation: Generation,
    /// The step that the generation starts from.
    pub step: Step,
}

impl ResetState {
    /// Whether it is accepted and has not ended.
    pub fn is_unfinished(&self) -> bool {
        matches!(self, Self::Accepted | Self::Snapshotting | Self::Committing)
    }
}

impl fmt::Display for ResetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::Snapshotting => "snapshotting",
            Self::Committing => "committing",
            Self::Committed(_) => "committed",
            Self::Cancelled { .. } => "cancelled",
            Self::Failed { .. } => "failed",
            Self::Expired => "expired",
        })
    }
}

/// The fold over a journal's entries.
#[derive(Debug)]
pub(in crate::connector) struct Book {
    /// In the order in which they were accepted.
    resets: VecDeque<ResetRecord>,
    /// From idempotency keys to ids.
    keys: HashMap<String, String>,
    is_paused: bool,
    breaker: Breaker,
}

impl Book {
    pub(super) fn new(breaker: Breaker) -> Self {
        Self { resets: VecDeque::new(), keys: HashMap::new(), is_paused: false, breaker }
    }

    pub(in crate::connector) fn resets(&self) -> impl DoubleEndedIterator<Item = &ResetRecord> {
        self.resets.iter()
    }

    pub(in crate::connector) fn reset(&self, id: &str) -> Option<&ResetRecord> {
        self.resets.iter().rev().find(|reset| reset.id == id)
    }

    /// The reset that an idempotency key leads to.
    pub(in crate::connector) fn keyed(&self, key: &str) -> Option<&ResetRecord> {
        self.reset(self.keys.get(key)?)
    }

    /// The reset that is to be carried out; there is one at most.
    pub(in crate::connector) fn unfinished(&self) -> Option<&ResetRecord> {
        self.resets.back().filter(|reset| reset.state.is_unfinished())
    }

    pub(in crate::connector) fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(in crate::connector) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Whether `event` follows from those before. Corrupt: it does not.
    pub(super) fn check(&self, event: &Event) -> Result<()> {
        match event {
            Event::Accepted { id, .. } if self.unfinished().is_some() || self.reset(id).is_some() => Err(
                Error::corrupt(format!("the reset {id} is accepted while one is under way, or for the second time")),
            ),
            Event::Snapshotting { id }
            | Event::Committing { id }
            | Event::Committed { id, .. }
            | Event::Cancelled { id, .. }
            | Event::Failed { id, .. }
            | Event::Expired { id }
                if self.unfinished().is_none_or(|reset| reset.id != *id) =>
            {
                Err(Error::corrupt(format!("no reset {id} is under way")))
            }
            _ => Ok(()),
        }
    }

    /// Takes an entry that was checked.
    pub(super) fn take(&mut self, entry: &Entry) {
        let at = entry.at();
        match &entry.event {
            Event::Begun { .. } => {}
            Event::Paused { .. } => self.is_paused = true,
            Event::Resumed { .. } => self.is_paused = false,
            Event::Accepted { id, key, who, why, trigger, expected_generation, breaker } => {
                self.forget();
                self.breaker.begun(at);
                if let Some(key) = key {
                    self.keys.insert(key.clone(), id.clone());
                }
                self.resets.push_back(ResetRecord {
                    id: id.clone(),
                    who: who.clone(),
                    why: why.clone(),
                    trigger: *trigger,
                    expected_generation: *expected_generation,
                    breaker: *breaker,
                    state: ResetState::Accepted,
                    tries: 0,
                    accepted_millis: entry.millis(),
                    changed_millis: entry.millis(),
                    accepted_at: at,
                    tried_at: at,
                    has_begun_commit: false,
                    keys: usize::from(key.is_some()),
                });
            }
            Event::Joined { id, key } => {
                // One that was forgotten since is asked for by nobody.
                if let Some(reset) = self.resets.iter_mut().find(|reset| reset.id == *id) {
                    reset.keys += 1;
                    self.keys.insert(key.clone(), id.clone());
                }
            }
            Event::Snapshotting { .. } => {
                if let Some(reset) = self.go_over(entry, ResetState::Snapshotting) {
                    reset.tries = reset.tries.saturating_add(1);
                    reset.tried_at = at;
                }
            }
            Event::Committing { .. } => {
                if let Some(reset) = self.go_over(entry, ResetState::Committing) {
                    reset.has_begun_commit = true;
                }
            }
            Event::Committed { version, generation, step, .. } => {
                let reloaded = Reloaded { version: *version, generation: *generation, step: *step };
                self.go_over(entry, ResetState::Committed(reloaded));
                self.breaker.committed(at);
            }
            Event::Cancelled { who, .. } => {
                self.go_over(entry, ResetState::Cancelled { who: who.clone() });
                self.breaker.cancelled(at);
            }
            Event::Failed { code, reason, .. } => {
                self.go_over(entry, ResetState::Failed { code: code.clone(), reason: reason.clone() });
                self.breaker.failed(at);
            }
            Event::Expired { .. } => {
                self.go_over(entry, ResetState::Expired);
                self.breaker.failed(at);
            }
        }
    }

    /// The reset under way goes over to `state`.
    fn go_over(&mut self, entry: &Entry, state: ResetState) -> Option<&mut ResetRecord> {
        let reset = self.resets.back_mut()?;
        (reset.state, reset.changed_millis) = (state, entry.millis());
        Some(reset)
    }

    /// Makes room for one more.
    fn forget(&mut self) {
        let most = REMEMBERED.max(self.breaker.most());
        while self.resets.len() >= most {
            let Some(oldest) = self.resets.pop_front() else { return };
            self.keys.retain(|_, id| *id != oldest.id);
        }
    }
}
