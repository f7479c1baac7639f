//! Where a problem is, and all problems as one error.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};

/// Where a key or a value was written. The order is the order of the report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// In the file; both count from 1, columns in characters.
    File {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// In the environment variable of this name.
    Variable(Arc<str>),
    /// In a `--set` with this path.
    Flag(Arc<str>),
}

impl Place {
    /// The file as a whole.
    pub(super) const START: Place = Place::File { line: 1, column: 1 };

    fn show(&self, file: &Path) -> String {
        match self {
            Self::File { line, column } => format!("{}:{line}:{column}", file.display()),
            Self::Variable(name) => visible(name),
            Self::Flag(path) => format!("--set {}=…", visible(path)),
        }
    }
}

/// Turns byte offsets of a text into places.
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    pub(super) fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|i| self.starts.get(i)).copied().unwrap_or(0);
        let before = self.text.get(start..offset.min(self.text.len())).unwrap_or("");
        Place::File { line, column: before.chars().count() + 1 }
    }
}

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Problems(RefCell<Vec<(Place, String)>>);

impl Problems {
    /// Adds the problem `message` of the key at `path`, which is empty for the file as a whole.
    pub(super) fn add(&self, place: &Place, path: &str, message: &str) {
        let message = visible(message);
        let text = if path.is_empty() { message } else { format!("{path}: {message}") };
        self.0.borrow_mut().push((place.clone(), text));
    }

    /// All problems as one error, one a line, in the order of their places.
    pub(super) fn into_result(self, file: &Path) -> Result<()> {
        let mut problems = self.0.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by(|a, b| a.0.cmp(&b.0));
        problems.dedup();
        let lines: Vec<String> = problems.iter().map(|(place, text)| format!("{}: {text}", place.show(file))).collect();
        Err(Error::config(lines.join("\n")))
    }
}

/// The candidate that `word` was probably meant to be.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    // The distance costs the product of both lengths; no name of ours is longer.
    if word.len() > 400 {
        return None;
    }
    let word = word.to_lowercase();
    let limit = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|c| (strsim::damerau_levenshtein(&word, &c.to_lowercase()), c))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// The words in quotes, with commas.
pub(super) fn quoted_list<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|w| format!("{w:?}")).collect();
    words.join(", ")
}

/// `path` and then `key`, as TOML would write them.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let key = if bare { key.to_string() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// Control characters escaped: a problem is one line and never steers a terminal.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_become_lines_and_columns_of_characters() {
        let lines = Lines::new("ab\nüx\n\nz");
        let cases =
            [(0, 1, 1), (1, 1, 2), (2, 1, 3), (3, 2, 1), (5, 2, 2), (7, 3, 1), (8, 4, 1), (9, 4, 2), (99, 4, 2)];
        for (offset, line, column) in cases {
            assert_eq!(lines.place(offset), Place::File { line, column }, "{offset}");
        }
    }

    #[test]
    fn a_suggestion_is_near_or_absent() {
        let known = ["mode", "on_existing", "commit"];
        let cases = [("mod", Some("mode")), ("on-existing", Some("on_existing")), ("COMMIT", Some("commit"))];
        for (word, expected) in cases {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
        assert_eq!(nearest("partition_by", known), None);
        assert_eq!(nearest(&"m".repeat(1000), known), None);
    }

    #[test]
    fn a_problem_is_one_line_without_control_characters() {
        let problems = Problems::default();
        problems.add(&Place::START, "a", "bad \u{1b}[31m\nthing");
        let err = problems.into_result(Path::new("f.toml")).unwrap_err();
        assert_eq!(err.message(), "f.toml:1:1: a: bad \\u{1b}[31m\\nthing");
    }
}
