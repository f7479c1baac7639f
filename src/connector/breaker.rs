//! When a connector may be reset: a budget, a circuit breaker and a back-off. No clock, no randomness, no I/O.
//!
//! ```text
//!              the budget of a window is used up
//!   closed ───────────────────────────────────────► open ◄─────────────┐
//!     ▲                            cooldown, and the   │               │ it failed
//!     │                            oldest reset leaves ▼               │
//!     └────────────────────────────────────────── half-open: one probe ┘
//!                     it committed
//! ```
//!
//! Times are durations on one line that only grows, whatever clocks do; the caller keeps it.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

/// How many resets a connector may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// The most resets that begin within any window.
    pub max_resets: NonZeroU32,
    /// The window's length.
    pub window: Duration,
    /// How long at least no reset begins after the budget is used up, or after a probe failed.
    pub cooldown: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        let max_resets = NonZeroU32::MIN.saturating_add(2);
        Self { max_resets, window: Duration::from_secs(3600), cooldown: Duration::from_secs(15 * 60) }
    }
}

/// How long is waited before something is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The longest wait before the second try.
    pub initial: Duration,
    /// What each further wait is multiplied by; at least 1.
    pub factor: f64,
    /// The longest wait of all.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_secs(5), factor: 2.0, max: Duration::from_secs(600) }
    }
}

impl Backoff {
    /// The wait after so many tries, none after none; `jitter`, from 0 to 1, leaves between half of it and all.
    pub fn delay(&self, tries: u32, jitter: f64) -> Duration {
        let Some(further) = tries.checked_sub(1) else { return Duration::ZERO };
        let further = i32::try_from(further).unwrap_or(i32::MAX);
        let grown = self.initial.as_secs_f64() * self.factor.powi(further);
        let whole = grown.min(self.max.as_secs_f64()).max(0.0);
        Duration::from_secs_f64(whole * (1.0 + jitter.clamp(0.0, 1.0)) / 2.0)
    }
}

/// Whether a reset may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permit {
    /// At once.
    Go,
    /// After this long, because others were shortly before.
    Wait(Duration),
    /// Not before this long: the breaker is open.
    Open(Duration),
}

/// Counts the resets of one connector, whoever asked for them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Breaker {
    settings: BreakerSettings,
    backoff: Backoff,
    /// When the last resets began, oldest first; `max_resets` of them at most.
    begun: VecDeque<Duration>,
    /// When the last reset began or ended.
    last: Duration,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        since: Duration,
    },
    /// A probe is under way.
    HalfOpen,
}

impl Breaker {
    /// A closed breaker without a past.
    pub(super) fn new(settings: BreakerSettings, backoff: Backoff) -> Self {
        Self { settings, backoff, begun: VecDeque::new(), last: Duration::ZERO, state: State::Closed }
    }

    /// Whether a reset that nobody asked for may begin: within the budget, and at distances that grow with the number of
    /// resets in the window.
    ///
    /// `jitter`, from 0 to 1, is to be the same for as long as no reset begins.
    pub(super) fn automatic(&self, now: Duration, jitter: f64) -> Permit {
        if let Some(left) = self.open_for(now) {
            return Permit::Open(left);
        }
        let recent = self.begun.iter().filter(|at| now < at.saturating_add(self.settings.window)).count();
        let delay = self.backoff.delay(u32::try_from(recent).unwrap_or(u32::MAX), jitter);
        match self.last.saturating_add(delay).saturating_sub(now) {
            Duration::ZERO => Permit::Go,
            left => Permit::Wait(left),
        }
    }

    /// Whether a reset that somebody asked for may begin: within the budget.
    pub(super) fn asked(&self, now: Duration) -> Permit {
        self.open_for(now).map_or(Permit::Go, Permit::Open)
    }

    /// How long the breaker stays open; `None` when it is not.
    pub(super) fn open_for(&self, now: Duration) -> Option<Duration> {
        let cooled = match self.state {
            State::Open { since } => since.saturating_add(self.settings.cooldown),
            State::Closed | State::HalfOpen => Duration::ZERO,
        };
        Some(cooled.max(self.refilled()).saturating_sub(now)).filter(|left| !left.is_zero())
    }

    /// A reset begins, permitted or against the breaker: it counts in either case.
    pub(super) fn begun(&mut self, at: Duration) {
        if self.begun.len() >= self.most() {
            self.begun.pop_front();
        }
        self.begun.push_back(at);
        self.last = at;
        self.state = match self.state {
            State::Open { .. } | State::HalfOpen => State::HalfOpen,
            State::Closed if self.refilled() > at => State::Open { since: at },
            State::Closed => State::Closed,
        };
    }

    /// The reset committed.
    pub(super) fn committed(&mut self, at: Duration) {
        self.last = at;
        if self.state == State::HalfOpen {
            self.state = State::Closed;
        }
    }

    /// The reset was given up.
    pub(super) fn failed(&mut self, at: Duration) {
        self.last = at;
        if self.state != State::Closed {
            self.state = State::Open { since: at };
        }
    }

    /// The reset was cancelled: it counts, and tells nothing of how others would end.
    pub(super) fn cancelled(&mut self, at: Duration) {
        self.last = at;
        if self.state == State::HalfOpen {
            self.state = State::Open { since: at.saturating_sub(self.settings.cooldown) };
        }
    }

    /// How many resets must be remembered for it.
    pub(super) fn most(&self) -> usize {
        usize::try_from(self.settings.max_resets.get()).unwrap_or(usize::MAX)
    }

    /// When the budget has room again; zero when it has.
    fn refilled(&self) -> Duration {
        let oldest = self.begun.front().filter(|_| self.begun.len() >= self.most());
        oldest.map_or(Duration::ZERO, |oldest| oldest.saturating_add(self.settings.window))
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
