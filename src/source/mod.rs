//! Where a view's rows come from.

#[cfg(test)]
mod contract_tests;
pub mod files;

use async_trait::async_trait;

use crate::change::Changes;
use crate::error::Result;
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::step::Step;

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
/// * `view` and `fingerprint` do not change while the source lives; two sources are the same history
///   exactly when their fingerprints are equal.
/// * `snapshot` is complete and consistent at its step: folding `changes(s)` up to a later step `t` into
///   the snapshot at `s` gives the state at `t`.
/// * `changes(after)` begins with the first step after `after`, or with an earlier one whose file or
///   transaction also holds that step; each answer holds whole steps, and the next call, with the step
///   that the answer ended at, continues exactly there. Asking again gives the same changes again.
/// * Nothing is forgotten before `acknowledge`, and nothing is held back for it.
#[async_trait]
pub trait Source: Send {
    /// The view's name, schema and key.
    async fn view(&mut self) -> Result<View>;

    /// What makes two sources the same history.
    fn fingerprint(&self) -> &str;

    /// The source's own evidence of where it stands.
    async fn position(&mut self) -> Result<Position>;

    /// The view's rows at one step.
    async fn snapshot(&mut self, pick: Pick) -> Result<Snapshot>;

    /// The next changes after step `after`.
    async fn changes(&mut self, after: Step) -> Result<Next>;

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
}

/// What follows a step.
#[derive(Debug)]
pub enum Next {
    /// Changes of whole steps.
    Changes(Changes),
    /// Nothing more for now.
    Idle {
        /// Why later steps that the source names cannot be reached, if there are any.
        hole: Option<Hole>,
    },
}

/// Steps that are missing between others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// The last step before the hole.
    pub after: Step,
    /// The first place behind it, in the source's own words.
    pub before: String,
}
