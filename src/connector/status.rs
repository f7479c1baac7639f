//! What an operator sees of a connector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::trail::{Trail, What};
use crate::clock::Clock;
use crate::continuity::stamp::RowCounts;
use crate::egress::Sent;
use crate::error::{Error, ErrorKind, Lost, with_causes};
use crate::generation::Generation;
use crate::sink::{Commits, Progress, Stage, Tally};
use crate::step::Step;

/// What a connector is doing. Set by the connector alone; not persisted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub enum Phase {
    /// It looks at source and table.
    #[default]
    Starting,
    /// It writes a snapshot that no reader sees yet.
    Snapshotting,
    /// It delivers changes that wait.
    CatchingUp,
    /// It has delivered all there is.
    Following,
    /// Somebody paused it: it keeps its place.
    Paused,
    /// In mode `snapshot`: the snapshot is delivered.
    Completed,
    /// Storage or source cannot be used for now.
    Retrying,
    /// It ended as it was asked to.
    Stopped,
    /// Continuity is lost: nothing is appended until a reset.
    ContinuityLost,
    /// Continuity is lost, and it may not be reset by itself for now.
    BreakerOpen,
    /// Another writer took over.
    Fenced,
    /// It needs somebody's help.
    Failed,
}

impl Phase {
    /// The phase in which an error of `kind` leaves a connector.
    pub fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::ContinuityLost => Self::ContinuityLost,
            ErrorKind::Fenced => Self::Fenced,
            ErrorKind::Unavailable
            | ErrorKind::Incompatible
            | ErrorKind::Refused
            | ErrorKind::Corrupt
            | ErrorKind::Config
            | ErrorKind::Internal => Self::Failed,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Snapshotting => "snapshotting",
            Self::CatchingUp => "catching_up",
            Self::Following => "following",
            Self::Paused => "paused",
            Self::Completed => "completed",
            Self::Retrying => "retrying",
            Self::Stopped => "stopped",
            Self::ContinuityLost => "continuity_lost",
            Self::BreakerOpen => "breaker_open",
            Self::Fenced => "fenced",
            Self::Failed => "failed",
        })
    }
}

/// A connector at a glance.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// What it is doing.
    pub phase: Phase,
    /// Since when, in milliseconds since 1970 UTC; `None` before anything was done.
    pub since: Option<i64>,
    /// Whether an append is under way.
    pub is_appending: bool,
    /// What is wrong, while something is.
    pub trouble: Option<Trouble>,
    /// The id of the reset that is to be carried out.
    pub reset: Option<String>,
    /// The table's generation.
    pub generation: Option<Generation>,
    /// The step that the generation starts from.
    pub cutover: Option<Step>,
    /// The table's last step.
    pub last_step: Option<Step>,
    /// The rows of the generation's commits so far.
    pub rows_total: Option<RowCounts>,
    /// How far the snapshot is.
    pub snapshot: Option<Arc<Progress>>,
    /// The step of the snapshot.
    pub snapshot_step: Option<Step>,
    /// When the snapshot was begun, by the boot clock.
    pub snapshot_since: Option<Duration>,
    /// What came of its work since it was started.
    pub tally: Arc<Tally>,
    /// What its client was sent, where it delivers to one.
    pub sent: Option<Arc<Sent>>,
    /// What happened to it in this run.
    pub trail: Trail,
}

/// What is wrong with a connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The error's kind.
    pub kind: ErrorKind,
    /// By what continuity was lost, if it was.
    pub lost: Option<Lost>,
    /// What the error said.
    pub reason: String,
    /// What helps.
    pub next_action: &'static str,
}

impl Trouble {
    /// What `error` means to an operator.
    pub fn of(error: &Error) -> Self {
        let next_action = match error.kind() {
            ErrorKind::Unavailable => "none: it is tried again",
            ErrorKind::ContinuityLost => "reset the connector",
            ErrorKind::Corrupt => "verify the table, then reset the connector",
            ErrorKind::Fenced => "stop the other writer, then resume the connector",
            ErrorKind::Incompatible | ErrorKind::Refused => "do what the reason says, then resume the connector",
            ErrorKind::Config => "correct the configuration and load it anew",
            ErrorKind::Internal => "see the log, then resume the connector or start the program anew",
        };
        Self { kind: error.kind(), lost: error.lost(), reason: with_causes(error), next_action }
    }
}

/// How fast a snapshot is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Rows a second since its beginning.
    pub rows_per_second: f64,
    /// How long it takes until all rows are written at this speed, where their number is known.
    pub left: Option<Duration>,
}

impl Status {
    /// The appends since it was started.
    pub fn appended(&self) -> Commits {
        self.tally.counts().appends
    }

    /// How fast the snapshot is written that is under way, at the boot time `now`; `None` without one, and in its first moments.
    pub fn pace(&self, now: Duration) -> Option<Pace> {
        let progress = self.snapshot.as_ref().filter(|_| self.phase == Phase::Snapshotting)?;
        let seconds = now.saturating_sub(self.snapshot_since?).as_secs_f64();
        let rows = progress.rows();
        if rows == 0 || seconds <= 0.0 {
            return None;
        }
        let rows_per_second = rows as f64 / seconds;
        let left = progress.known_rows().map(|known| known.saturating_sub(rows) as f64 / rows_per_second);
        Some(Pace { rows_per_second, left: left.and_then(|left| Duration::try_from_secs_f64(left).ok()) })
    }

    /// Changes what `shown` shows: a phase has the time since when it is so, and what was wrong is gone with its phase.
    pub(super) fn change(shown: &watch::Sender<Self>, clock: &dyn Clock, change: impl FnOnce(&mut Self)) {
        shown.send_modify(|status| {
            let (before, trouble) = (status.phase, status.trouble.take());
            change(status);
            if status.phase != before || status.since.is_none() {
                status.since = Some(clock.unix_millis());
            }
            if status.trouble.is_none() && status.phase == before {
                status.trouble = trouble;
            }
            status.trail.enter(clock.unix_millis(), status.phase, status.trouble.as_ref());
        });
    }

    /// Shows `phase`, and the error that led to it.
    pub(super) fn show_trouble(shown: &watch::Sender<Self>, clock: &dyn Clock, phase: Phase, error: &Error) {
        Self::change(shown, clock, |s| (s.phase, s.trouble) = (phase, Some(Trouble::of(error))));
    }

    /// Counts and shows what failed for a while, and is tried again.
    pub(super) fn show_retry(shown: &watch::Sender<Self>, clock: &dyn Clock, stage: Stage, error: &Error) {
        shown.borrow().tally.retried(stage);
        Self::show_trouble(shown, clock, Phase::Retrying, error);
    }

    /// Shows the error by which delivery ended, and counts continuity that is lost.
    pub(super) fn show_failure(shown: &watch::Sender<Self>, clock: &dyn Clock, error: &Error) {
        if error.kind() == ErrorKind::ContinuityLost {
            shown.borrow().tally.lost(error.lost());
        }
        Self::show_trouble(shown, clock, Phase::of_error(error.kind()), error);
    }

    /// Says that something happened.
    pub(super) fn tell(shown: &watch::Sender<Self>, clock: &dyn Clock, what: What) {
        shown.send_modify(|status| status.trail.add(clock.unix_millis(), what));
    }
}
