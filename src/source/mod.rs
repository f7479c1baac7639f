//! Where a view's rows come from.

#[cfg(test)]
mod contract_tests;
pub mod files;
pub mod logged;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod push;
mod rows;

use async_trait::async_trait;

pub(crate) use self::rows::streamed;
use crate::change::Changes;
use crate::error::Result;
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::step::Step;
use crate::strand::Strands;

/// A view with a history: its state at some steps, and its changes between steps.
///
/// ```text
///   earliest ┄┄┄ snapshot.step ─────────────────► reached      hole       (more, not reachable)
///      ├──────────────●────────●────────●──────────┤┄┄┄┄┄┄┄┄┄┄├──────────┤
///                     └ changes(after) gives whole steps, in order ┘
/// ```
///
/// What every implementation promises, and `contract_tests.rs` checks:
///
/// * `name`, `key` and `fingerprint` do not change while the source lives, but by `renew`; two sources are the same history exactly when
///   their fingerprints are equal.
/// * The view's columns may change between steps. The source keeps no idea of its own of how far that was told: who asks
///   for changes says which view it has, and is answered in just those columns, or with the view that follows. So a
///   restart that begins with the columns of its table gets the same answers as whoever never stopped.
/// * `snapshot` is complete and consistent at its step, in the view of that step: folding `changes(s)` up to a later step
///   `t` into the snapshot at `s` gives the state at `t`; columns that were added in between are null in older rows.
/// * `changes(after)` begins with the first step after `after`, or with an earlier one whose file or
///   transaction also holds that step; each answer holds whole steps, and the next call, with the step
///   that the answer ended at, continues exactly there. Asking again gives the same changes again.
/// * Nothing is forgotten before `acknowledge`, and nothing is held back for it.
#[async_trait]
pub trait Source: Send {
    /// The view's name.
    fn name(&self) -> &str;

    /// The columns that identify a row; empty for a view without key.
    fn key(&self) -> &[String];

    /// What makes two sources the same history.
    fn fingerprint(&self) -> &str;

    /// By which its steps are told from others of the same fingerprint and number, which a source that was restored to an earlier
    /// state lost. They do not change while the source lives.
    fn strands(&self) -> Strands {
        Strands::default()
    }

    /// The source's own evidence of where it stands.
    async fn position(&mut self) -> Result<Position>;

    /// The view in which the first changes after step `after` are.
    async fn view(&mut self, after: Step) -> Result<View>;

    /// Whether the source gives snapshots at all. Refused, with the remedy: it never does.
    fn check_snapshots(&self) -> Result<()> {
        Ok(())
    }

    /// The view's rows at one step, and the view as it is there.
    async fn snapshot(&mut self, pick: Pick) -> Result<(View, Snapshot)>;

    /// The next changes after step `after`, in the columns of `view`.
    async fn changes(&mut self, after: Step, view: &View) -> Result<Next>;

    /// Completes when there are changes after step `after`. A source that cannot tell never completes; whoever waits asks
    /// for changes again after a while.
    async fn more(&mut self, after: Step) -> Result<()> {
        let _ = after;
        std::future::pending().await
    }

    /// Called before a reset: a history that was lost for good is given up, and another one begun, which has a fingerprint
    /// of its own. One that goes on is left as it is.
    async fn renew(&mut self) -> Result<()> {
        Ok(())
    }

    /// A table of this very history has `step`, which is after all that the source has: the source lost steps, and those that
    /// it numbers from here on are others. One that can tell histories apart begins another.
    async fn lost(&mut self, step: Step) -> Result<()> {
        let _ = step;
        Ok(())
    }

    /// Everything up to `step` is safe: the source may forget it.
    async fn acknowledge(&mut self, step: Step) -> Result<()>;
}

/// Where a source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The step before the first change that the source holds; `None` without changes.
    pub earliest: Option<Step>,
    /// The last step that the source names at all, a hole before it or not; `None` when it is empty.
    pub latest: Option<Step>,
}

impl Position {
    /// The step after which the source has every change.
    pub fn held_from(self) -> Step {
        self.earliest.or(self.latest).unwrap_or(Step::ZERO)
    }
}

/// Which snapshot is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// The newest snapshot that the source holds, at or before `until` where that is given.
    Newest {
        /// The last step allowed.
        until: Option<Step>,
    },
    /// The state at the newest step that the source reaches: its newest snapshot with the later changes folded in.
    Reached {
        /// The last step allowed.
        until: Option<Step>,
    },
    /// As `Reached`, out of a snapshot of step `from` or later, because those before are of other columns than the view.
    ///
    /// Unavailable: there is none yet.
    Since {
        /// The step from which on the view is as it is.
        from: Step,
        /// The last step allowed.
        until: Option<Step>,
    },
}

/// What follows a step.
#[derive(Debug)]
pub enum Next {
    /// Changes of whole steps.
    Changes(Changes),
    /// What follows has other columns than the view that was asked for: ask again with the one that follows, once its
    /// columns are agreed to.
    View(NextView),
    /// The view was emptied at a step, the snapshot's: its rows there are all that it has, and no changes lead to them.
    Emptied(View, Snapshot),
    /// What the source named when it was asked for its position is on its way: it comes without anybody's help.
    Pending,
    /// Nothing more for now.
    Idle {
        /// Why later steps that the source names cannot be reached, if there are any.
        hole: Option<Hole>,
    },
}

/// The view from a step on.
#[derive(Debug, Clone)]
pub struct NextView {
    /// The view, with the key of the one before; columns of both stand in the order of the one before, added ones behind.
    pub view: View,
    /// Whether rows of before, too, have values in added columns, as far as the source can tell: then appended changes
    /// do not lead to its state.
    pub is_filled: bool,
    /// Where the view is so, in the source's own words.
    pub position: String,
}

/// Steps that are missing between others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The last step before the hole.
    pub after: Step,
    /// The first place behind it, in the source's own words.
    pub before: String,
}
