//! What the journal of a connector's resets says, line by line.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connector::moment::{Moment, Timeline};
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::step::Step;

/// The version of the lines' form.
const VERSION: u64 = 1;

/// Why a reset began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Somebody asked for it.
    Asked,
    /// Continuity was lost, and `on_continuity_loss` is `reset`.
    ContinuityLost,
    /// The view's columns changed, and `schema_change` is `reload`.
    SchemaChange,
    /// The table had more rows for each of the view's than `reload_ratio`.
    ReloadRatio,
}

/// What an open breaker means to a reset that somebody asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerRule {
    /// The reset is refused.
    #[default]
    Heed,
    /// The reset is carried out, and counts.
    Override,
}

/// One thing that happened to a connector's resets. A reset is `accepted`, and ends with `committed`, `cancelled`, `failed` or
/// `expired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Event {
    /// The first line: whose journal it is.
    Begun { connector: String },
    /// A reset is to be carried out.
    Accepted {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
        who: String,
        why: String,
        trigger: Trigger,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_generation: Option<Generation>,
        breaker: BreakerRule,
    },
    /// Another call, with an idempotency key of its own, got the same reset.
    Joined { id: String, key: String },
    /// A try begins.
    Snapshotting { id: String },
    /// The try's commit begins: from here on it cannot be taken back.
    Committing { id: String },
    /// The table holds it; the version is unknown when others committed much since.
    Committed {
        id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
        generation: Generation,
        step: Step,
    },
    /// Somebody took it back.
    Cancelled { id: String, who: String },
    /// It was given up; the name of the error's kind, and what it said.
    Failed { id: String, code: String, reason: String },
    /// It was not begun in time.
    Expired { id: String },
    /// Delivery is to rest.
    Paused { who: String },
    /// Delivery is to go on.
    Resumed { who: String },
}

/// An event, and when it happened: on the journal's line of time, and by each clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    v: u64,
    /// Milliseconds on the line.
    at: u64,
    time: Moment,
    pub(super) event: Event,
}

impl Entry {
    pub(super) fn new(at: Duration, time: Moment, event: Event) -> Self {
        Self { v: VERSION, at: u64::try_from(at.as_millis()).unwrap_or(u64::MAX), time, event }
    }

    pub(super) fn at(&self) -> Duration {
        Duration::from_millis(self.at)
    }

    /// By the wall clock, in milliseconds since 1970 UTC.
    pub(super) fn millis(&self) -> i64 {
        self.time.wall
    }

    /// The line of time that goes on from here.
    pub(super) fn timeline(&self) -> Timeline {
        Timeline::through(self.at(), self.time.clone())
    }

    pub(super) fn encode(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|e| Error::internal("an entry of the journal was not encoded").with_source(e))
    }

    /// The entry in `object`; `place` says where it stands.
    pub(super) fn decode(object: &str, place: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Form {
            v: u64,
        }
        let malformed = |e| {
            Error::corrupt(format!("{place} is whole and not an entry of a journal; restore the file, or move it away"))
                .with_source(e)
        };
        let Form { v } = serde_json::from_str(object).map_err(malformed)?;
        if v != VERSION {
            return Err(Error::incompatible(format!(
                "{place} has the version {v}, known is {VERSION}; run the program that wrote it, or move the file away"
            )));
        }
        serde_json::from_str(object).map_err(malformed)
    }
}

impl Event {
    /// The reset that is accepted, or ends, with it.
    pub(crate) fn begins_or_ends(&self) -> Option<&str> {
        match self {
            Self::Accepted { id, .. }
            | Self::Committed { id, .. }
            | Self::Cancelled { id, .. }
            | Self::Failed { id, .. }
            | Self::Expired { id } => Some(id),
            _ => None,
        }
    }

    /// The reset that it is about.
    pub(super) fn id(&self) -> Option<&str> {
        match self {
            Self::Accepted { id, .. }
            | Self::Joined { id, .. }
            | Self::Snapshotting { id }
            | Self::Committing { id }
            | Self::Committed { id, .. }
            | Self::Cancelled { id, .. }
            | Self::Failed { id, .. }
            | Self::Expired { id } => Some(id),
            Self::Begun { .. } | Self::Paused { .. } | Self::Resumed { .. } => None,
        }
    }
}
