//! The one public error: its kind says what the caller does next.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::explain::code;

/// What a caller should do about an [`Error`]. Kinds are remedies, not origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The storage or the source cannot be used for now: try again later.
    Unavailable,
    /// Another writer holds a higher epoch: stop for good.
    Fenced,
    /// The table and the source no longer fit together: a reset repairs it.
    ContinuityLost,
    /// A type, feature or schema that cannot be kept: change the view or the table.
    Incompatible,
    /// A rule or a missing consent forbids it: the message names what would allow it.
    Refused,
    /// Stored data is damaged: verify, then reset.
    Corrupt,
    /// The configuration is wrong: correct it at the place named.
    Config,
    /// Anything else, a table that does not exist included.
    Internal,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Unavailable,
        Self::Fenced,
        Self::ContinuityLost,
        Self::Incompatible,
        Self::Refused,
        Self::Corrupt,
        Self::Config,
        Self::Internal,
    ];

    /// The process exit code of this kind.
    pub const fn exit_code(self) -> u8 {
        self.row().1
    }

    /// Whether the same request may succeed later without anybody's help.
    pub fn is_retryable(self) -> bool {
        self.row().2
    }

    /// Whether a reading that ended so tells nothing of what is stored: the storage did not answer, or let nobody in.
    pub(crate) fn leaves_open(self) -> bool {
        matches!(self, Self::Unavailable | Self::Refused)
    }

    /// The name that JSON output and logs show.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// The status of an HTTP answer to a request that ended so.
    pub const fn http_status(self) -> u16 {
        self.row().3
    }

    /// The one table that maps kinds to everything outside: name, exit code, retry, HTTP status.
    const fn row(self) -> (&'static str, u8, bool, u16) {
        match self {
            Self::Unavailable => (code!("unavailable"), 75, true, 503),
            Self::Fenced => (code!("fenced"), 6, false, 409),
            Self::ContinuityLost => (code!("continuity_lost"), 3, false, 409),
            Self::Incompatible => (code!("incompatible"), 5, false, 422),
            Self::Refused => (code!("refused"), 5, false, 409),
            Self::Corrupt => (code!("corrupt"), 3, false, 500),
            Self::Config => (code!("config"), 78, false, 422),
            Self::Internal => (code!("internal"), 1, false, 500),
        }
    }
}

/// By what continuity was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lost {
    /// The source has changes, and not those that follow the table's last step.
    Gap,
    /// Others changed the table in a way that matters.
    Drift,
    /// The source is another history than the one that the table was loaded from.
    OtherSource,
    /// The source ends before the table's last step.
    SourceBehind,
    /// The table is at an older state than one that was seen of it.
    TableBehind,
    /// The table is there no more, or is not ours any more.
    TableGone,
    /// What is left of the table's log and properties proves nothing.
    Unproved,
}

impl Lost {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Gap,
        Self::Drift,
        Self::OtherSource,
        Self::SourceBehind,
        Self::TableBehind,
        Self::TableGone,
        Self::Unproved,
    ];
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gap => code!("gap"),
            Self::Drift => code!("drift"),
            Self::OtherSource => code!("other_source"),
            Self::SourceBehind => code!("source_behind"),
            Self::TableBehind => code!("table_behind"),
            Self::TableGone => code!("table_gone"),
            Self::Unproved => code!("unproved"),
        })
    }
}

/// Every failure that leaves this crate.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    lost: Option<Lost>,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A new error; the message names the place and the remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, lost: None, message: message.into(), source: None }
    }

    /// Chains the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says behind the message what helps.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        self.message = format!("{}; {remedy}", self.message);
        self
    }

    /// What the caller should do next.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// By what continuity was lost; of [`ErrorKind::ContinuityLost`] alone.
    pub fn lost(&self) -> Option<Lost> {
        self.lost
    }

    /// The message without its sources.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    pub(crate) fn continuity_lost(lost: Lost, message: impl Into<String>) -> Self {
        Self { lost: Some(lost), ..Self::new(ErrorKind::ContinuityLost, message) }
    }

    pub(crate) fn incompatible(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incompatible, message)
    }

    /// What is stored is of another version than the one that is known.
    pub(crate) fn other_version(what: impl fmt::Display, version: impl fmt::Display, known: impl fmt::Display) -> Self {
        Self::incompatible(format!("{what} has the version {version}, known is {known}; run the program that wrote it"))
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|s| s as &(dyn StdError + 'static))
    }
}

/// Runs a decoder of bytes that may be anything; a panic in it means that what `label` names is damaged.
pub(crate) fn guarded<T>(label: &str, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        Err(Error::corrupt(format!("{label} is damaged: its decoder gave up")).with_source(panic_text(panic.as_ref())))
    })
}

/// What `error` says, and what caused it.
pub(crate) fn with_causes(error: &dyn StdError) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        said.push_str(&format!("; caused by: {cause}"));
        next = cause.source();
    }
    said
}

/// What a caught panic said.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_exit_codes_and_statuses() {
        let expected = [
            (ErrorKind::Internal, 1, 500),
            (ErrorKind::ContinuityLost, 3, 409),
            (ErrorKind::Corrupt, 3, 500),
            (ErrorKind::Refused, 5, 409),
            (ErrorKind::Incompatible, 5, 422),
            (ErrorKind::Fenced, 6, 409),
            (ErrorKind::Unavailable, 75, 503),
            (ErrorKind::Config, 78, 422),
        ];
        for (kind, code, status) in expected {
            assert_eq!((kind.exit_code(), kind.http_status()), (code, status), "{kind:?}");
        }
    }

    #[test]
    fn a_source_is_chained_and_not_formatted_in() {
        let err = Error::corrupt("a.parquet is damaged").with_source(std::io::Error::other("crc"));
        assert_eq!(err.to_string(), "a.parquet is damaged");
        assert_eq!(err.source().map(ToString::to_string), Some("crc".to_string()));
    }

    #[test]
    fn a_panic_says_what_it_was_given() {
        for (panic, expected) in [
            (Box::new("fixed") as Box<dyn Any + Send>, "fixed"),
            (Box::new("made".to_string()), "made"),
            (Box::new(7), "a panic without a message"),
        ] {
            assert_eq!(panic_text(panic.as_ref()), expected);
        }
    }
}
