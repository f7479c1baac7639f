//! What chunks say beside their rows.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind};
use crate::generation::Generation;
use crate::step::Step;
use crate::strand::Strand;

/// The head of a chunk: all of it but the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Head {
    /// One more than the chunk before it has.
    pub(super) sequence_number: u64,
    /// Whether it is part of a snapshot.
    pub(super) snapshot: bool,
    pub(super) generation: Generation,
    /// The steps after this one …
    pub(super) from: Step,
    /// … up to this one; the same where it has no changes.
    pub(super) to: Step,
    /// Whether more of step `to` follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) partial: bool,
    /// What tells step `to` from others of its number, where it is not partial and the source can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strand: Option<Strand>,
    #[serde(flatten)]
    pub(super) mark: Option<Mark>,
}

/// What a chunk without rows means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "mark", rename_all = "snake_case")]
pub(super) enum Mark {
    /// Changes after step `to` follow: whoever has another state than that one must not go on.
    Start,
    /// A snapshot follows: whatever was taken before is to be forgotten.
    Begin {
        /// How many rows it will have, where that is known.
        rows: Option<u64>,
    },
    /// The snapshot is complete.
    End {
        /// How many rows it had.
        rows: u64,
    },
    /// Nothing happened for a while.
    Alive,
    /// The stream ends, and nothing is wrong.
    Close { reason: Reason },
}

/// Why a stream ends with which nothing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// All that was asked for was sent.
    Complete,
    /// Its connector was paused.
    Paused,
    /// The daemon, or the connector, was stopped.
    Stopped,
}

/// What is wrong with a stream, or with a call for one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fault {
    /// What is wrong, and what helps.
    pub message: String,
    /// Its name.
    pub error_code: &'static str,
    /// Facts that a program can act on.
    pub details: Map<String, Value>,
}

impl Fault {
    /// Without facts.
    pub fn new(error_code: &'static str, message: impl Into<String>) -> Self {
        Self { message: message.into(), error_code, details: Map::new() }
    }

    /// A fact more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        match kind {
            ErrorKind::Internal | ErrorKind::Corrupt => {
                tracing::warn!(event = "egress_failed", error = %error, "a stream ends by an error");
            }
            _ => {}
        }
        Self::new(kind.name(), error.message())
    }
}

/// How a stream ends.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// As it should.
    Close(Reason),
    /// Nothing more of it would be valid.
    Fault(Fault),
    /// Nobody reads it any more.
    Left,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Fault(error.into())
    }
}
