//! What the demo says: what is done, what should come of it, and what does.

use std::path::Path;
use std::time::Duration;

use crate::cli::text;
use crate::error::{Error, Result};

/// The columns in which sentences are broken.
const WIDTH: usize = 96;

/// The voice of the tour.
#[derive(Debug)]
pub(super) struct Narration {
    chapters: u32,
}

impl Narration {
    pub(super) fn new() -> Self {
        Self { chapters: 0 }
    }

    /// Begins a chapter: its heading, and what is done in it.
    pub(super) fn chapter(&mut self, heading: &str, deed: &str) -> Result<()> {
        self.chapters += 1;
        text::print(&format!("\n{}. {heading}", self.chapters))?;
        self.say(deed)
    }

    /// Says what is or was done.
    pub(super) fn say(&self, sentence: &str) -> Result<()> {
        text::print(&wrapped("   ", sentence))
    }

    /// Says what was expected and what is observed.
    ///
    /// Internal: it does not hold.
    pub(super) fn hold(&self, expected: &str, observed: &str, holds: bool) -> Result<()> {
        text::print(&wrapped("   expected  ", expected))?;
        text::print(&wrapped(if holds { "   observed  " } else { "   OBSERVED  " }, observed))?;
        match holds {
            true => Ok(()),
            false => Err(Error::internal(format!("the demo expected: {expected}; it observed: {observed}"))),
        }
    }

    /// Says how to go on, with what is at `dir`.
    pub(super) fn close(&self, took: Duration, dir: &Path, is_kept: bool, page: &str) -> Result<()> {
        let at = |name: &str| text::shell_word(&dir.join(name).display().to_string());
        let seconds = took.as_secs();
        text::print(&format!("\nEverything held, in {seconds} s. The daemon is stopped."))?;
        let mut lines = Vec::new();
        match is_kept {
            true => lines.push(format!("Try next, with the tables in {}:", text::escaped(&dir.display().to_string()))),
            false => {
                lines.push("The tables are removed. Try next:".to_string());
                lines.push(format!("  cutover demo --dir {}", text::shell_word(&dir.display().to_string())));
            }
        }
        let (orders, config) = (at("orders"), at("cutover.toml"));
        lines.push(format!("  cutover history {orders}"));
        lines.push(format!("  cutover verify {orders} --deep"));
        lines.push(format!("  cutover show {orders}"));
        lines.push(format!("  cutover snippets duckdb {orders}"));
        lines.push(match is_kept {
            true => format!("  cutover run -c {config}      # the page is {page} again"),
            false => format!("  cutover run -c {config}      # the daemon, and its page"),
        });
        text::print(&lines.join("\n"))
    }
}

fn wrapped(lead: &str, sentence: &str) -> String {
    text::wrapped(lead, &text::escaped(sentence), WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_hold_ends_the_demo() {
        let narration = Narration::new();
        narration.hold("one", "one", true).unwrap();
        let failed = narration.hold("one", "two", false).unwrap_err();
        assert!(failed.message().contains("observed: two"), "{failed}");
    }
}
