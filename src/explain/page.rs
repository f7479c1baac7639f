//! The page about a code.

use serde::Serialize;

/// What is said about a code: a sentence or a few for each question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Page {
    /// The code, as programs see it.
    pub(crate) code: &'static str,
    /// What it means.
    pub(crate) means: &'static str,
    /// Why it happens.
    pub(crate) why: &'static str,
    /// What to do, with the command.
    pub(crate) remedy: &'static str,
    /// Where it shows.
    pub(crate) shows: &'static str,
}
