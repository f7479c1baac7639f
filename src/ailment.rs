//! What is wrong somewhere, or will be, and what repairs it.

use serde::Serialize;

use crate::error::{Error, ErrorKind, with_causes};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong; somebody may want to know.
    Note,
    /// It works, and may not for long.
    Warning,
    /// It does not work.
    Error,
}

impl Severity {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was looked at and is not as it should be, or is worth saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ailment {
    /// How bad it is.
    pub severity: Severity,
    /// What an error means for the caller.
    pub kind: ErrorKind,
    /// Where it is: a key of the configuration, a file, a connector.
    pub place: String,
    /// What is, with the values that do not fit together.
    pub said: String,
    /// What repairs it, to be pasted where that is possible.
    pub remedy: Option<String>,
}

impl Ailment {
    /// An error and what repairs it.
    pub fn error(kind: ErrorKind, place: &str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (place, remedy) = (place.to_owned(), Some(remedy.into()));
        Self { severity: Severity::Error, kind, place, said: said.into(), remedy }
    }

    /// What works and may not for long.
    pub fn warning(place: &str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(ErrorKind::Refused, place, said, remedy) }
    }

    /// What is worth saying.
    pub fn note(place: &str, said: impl Into<String>) -> Self {
        let place = place.to_owned();
        Self { severity: Severity::Note, kind: ErrorKind::Refused, place, said: said.into(), remedy: None }
    }

    /// What an error says: behind the last semicolon stands what repairs it.
    pub fn of(place: &str, error: &Error) -> Self {
        let whole = with_causes(error);
        let causes = whole.strip_prefix(error.message()).unwrap_or_default();
        let (said, remedy) = match error.message().rsplit_once("; ") {
            Some((said, remedy)) => (said, Some(remedy.to_owned())),
            None => (error.message(), None),
        };
        // What is pasted begins with the statement.
        let bare = |remedy: String| {
            ["run ", "use "].iter().find_map(|word| remedy.strip_prefix(word)).map(str::to_owned).unwrap_or(remedy)
        };
        let (said, remedy) = (format!("{said}{causes}"), remedy.map(bare));
        Self { severity: Severity::Error, kind: error.kind(), place: place.to_owned(), said, remedy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repairs_an_error_stands_behind_its_last_semicolon() {
        for (message, said, remedy) in [
            ("it is so", "it is so", None),
            ("a; b; run ALTER TABLE t", "a; b", Some("ALTER TABLE t")),
            ("a; name another", "a", Some("name another")),
        ] {
            let found = Ailment::of("p", &Error::refused(message));
            assert_eq!((found.said.as_str(), found.remedy.as_deref()), (said, remedy));
        }
        let caused = Error::config("a; b").with_source(std::io::Error::other("c"));
        assert_eq!(Ailment::of("p", &caused).said, "a; caused by: c");
    }
}
