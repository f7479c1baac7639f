//! Why a row does not fit, and in which of its columns. It says what a value looks like, never what it is.

use std::fmt;

use super::value::Misfit;

/// The most characters of a name that an error shows.
const SHOWN: usize = 128;

/// A value that a column cannot hold.
pub(crate) struct Misplaced {
    /// `a` the column, `a.b` a struct's field, `a[]` a list's element, `a.key` and `a.value` a map's; empty for the row.
    path: String,
    why: String,
}

impl Misplaced {
    /// A misfit of the value in hand.
    pub(crate) fn here(why: impl Into<String>) -> Self {
        Self { path: String::new(), why: why.into() }
    }

    /// The same, seen from the value that has this one as `member`.
    #[must_use]
    pub(crate) fn below(self, member: &str) -> Self {
        Self { path: format!("{member}{}", self.path), why: self.why }
    }
}

impl From<Misfit> for Misplaced {
    fn from(why: Misfit) -> Self {
        Self::here(why)
    }
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str(&self.why),
            path => write!(f, "column {} {}", shown(path), self.why),
        }
    }
}

/// A name in quotes, control characters escaped, cut where it is longer than anybody wants to read.
pub(crate) fn shown(name: &str) -> String {
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}…", name.get(..end).unwrap_or_default()),
        None => format!("{name:?}"),
    }
}
