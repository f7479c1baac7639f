//! Which exit code several ends make together, and how errors stand in JSON.

use std::error::Error as StdError;

use serde_json::{Value, json};

use super::client::Unreachable;
use crate::error::{Error, ErrorKind};

/// A daemon that cannot be reached, as sysexits.h has it.
const UNREACHABLE: u8 = 69;

/// The exit code of a command that ends with `error`.
pub(super) fn exit_code(error: &Error) -> u8 {
    match error.source() {
        Some(cause) if cause.is::<Unreachable>() => UNREACHABLE,
        _ => error.kind().exit_code(),
    }
}

/// How serious an end is; the greater one decides the exit code, the first among equals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Everything is delivered, or a signal asked to stop.
    Good,
    /// Changes are missing.
    Hole,
    /// It failed.
    Failed(ErrorKind),
}

impl End {
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Hole => ErrorKind::Unavailable.exit_code(),
            Self::Failed(kind) => kind.exit_code(),
        }
    }

    /// The more serious of two.
    pub(super) fn and(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Hole => 1,
            Self::Failed(kind) if kind.is_retryable() => 2,
            Self::Failed(_) => 3,
        }
    }
}

/// The messages of what caused `error`, the nearest first.
pub(super) fn causes(error: &Error) -> impl Iterator<Item = String> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause.to_string())
    })
}

/// An error in JSON: its kind, its message and the messages of what caused it.
pub(super) fn to_json(error: &Error) -> Value {
    let causes: Vec<String> = causes(error).collect();
    json!({"kind": error.kind().name(), "message": error.message(), "causes": causes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_serious_end_decides() {
        let failed = End::Failed;
        let cases = [
            (vec![], 0),
            (vec![End::Good, End::Hole], 75),
            (vec![End::Hole, failed(ErrorKind::Refused), failed(ErrorKind::Unavailable)], 5),
            (vec![failed(ErrorKind::Unavailable), failed(ErrorKind::Fenced), failed(ErrorKind::Refused)], 6),
            (vec![failed(ErrorKind::Unavailable), End::Good], 75),
        ];
        for (ends, expected) in cases {
            let code = ends.iter().fold(End::Good, |a, b| a.and(*b)).exit_code();
            assert_eq!(code, expected, "{ends:?}");
        }
    }

    #[test]
    fn an_error_in_json_has_its_causes() {
        let error = Error::corrupt("a is damaged").with_source(std::io::Error::other("crc"));
        assert_eq!(to_json(&error), json!({"kind": "corrupt", "message": "a is damaged", "causes": ["crc"]}));
    }
}
