//! What an operator sees of a connector.

use std::fmt;
use std::sync::Arc;

use crate::error::ErrorKind;
use crate::generation::Generation;
use crate::sink::Progress;
use crate::step::Step;

/// What a connector is doing. Set by the connector alone; not persisted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// In mode `snapshot`: the snapshot is delivered.
    Completed,
    /// Storage or source cannot be used for now.
    Retrying,
    /// It ended as it was asked to.
    Stopped,
    /// Continuity is lost: nothing is appended until a reset.
    ContinuityLost,
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
            Self::Completed => "completed",
            Self::Retrying => "retrying",
            Self::Stopped => "stopped",
            Self::ContinuityLost => "continuity_lost",
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
    /// The table's generation.
    pub generation: Option<Generation>,
    /// The step that the generation starts from.
    pub cutover: Option<Step>,
    /// The table's last step.
    pub last_step: Option<Step>,
    /// How far the snapshot is.
    pub snapshot: Option<Arc<Progress>>,
    /// The step of the snapshot.
    pub snapshot_step: Option<Step>,
    /// Appends committed by this run.
    pub appends: u64,
    /// Rows appended by this run.
    pub rows: u64,
    /// Bytes appended by this run.
    pub bytes: u64,
}
