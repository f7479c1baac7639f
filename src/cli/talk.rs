//! What is said on stderr, between progress bars where there are any.

use std::io::{self, IsTerminal, Write};

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::args::{Color, Global};
use super::failure::causes;
use super::text;
use crate::error::{Error, Result};

/// The voice of the program.
#[derive(Debug, Clone)]
pub(super) struct Talk {
    bars: MultiProgress,
    is_terminal: bool,
    is_colored: bool,
    is_quiet: bool,
}

impl Talk {
    pub(super) fn new(global: &Global) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let is_colored = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !no_color,
        };
        let target =
            if is_terminal && !global.quiet { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { bars: MultiProgress::with_draw_target(target), is_terminal, is_colored, is_quiet: global.quiet }
    }

    /// Lets the library's events speak, as far as the options and CUTOVER_LOG or RUST_LOG want.
    pub(super) fn trace(&self, global: &Global) -> Result<()> {
        let by_options = match (global.verbose, global.quiet) {
            (0, true) => "cutover=error",
            (0, false) => "cutover=warn",
            (1, _) => "warn,cutover=info",
            (2, _) => "info,cutover=debug",
            _ => "debug,cutover=trace",
        };
        let variable = ["CUTOVER_LOG", "RUST_LOG"].into_iter().find_map(|name| {
            let value = std::env::var(name).ok().filter(|v| !v.is_empty())?;
            Some((name, value))
        });
        let filter = match variable {
            Some((name, value)) => EnvFilter::try_new(&value).map_err(|e| {
                Error::config(format!("{name} holds {value:?}, which is no filter; write one like cutover=debug"))
                    .with_source(e)
            })?,
            None => EnvFilter::new(by_options),
        };
        let events = tracing_subscriber::fmt().with_writer(self.clone()).with_ansi(self.is_colored);
        let events = events.with_env_filter(filter).with_target(false);
        events.try_init().map_err(|e| Error::internal("events cannot be shown").with_source(e))
    }

    /// Whether bars can be drawn.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// The place of bars.
    pub(super) fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Says a line, unless only failures are to be said.
    pub(super) fn line(&self, line: &str) {
        if !self.is_quiet {
            self.say(line);
        }
    }

    /// Says a line in any case.
    pub(super) fn say(&self, line: &str) {
        self.write(format!("{}\n", text::escaped(line)).as_bytes());
    }

    /// Asks without ending the line.
    pub(super) fn ask(&self, question: &str) {
        self.write(text::escaped_lines(question).as_bytes());
    }

    /// Says what failed, for whom, and why.
    pub(super) fn failure(&self, connector: Option<&str>, error: &Error) {
        let (on, off) = if self.is_colored { ("\u{1b}[1;31m", "\u{1b}[0m") } else { ("", "") };
        let of = connector.map(|name| format!("{name}: ")).unwrap_or_default();
        // A configuration's problems are one a line.
        let problems = error.message().lines().map(|line| text::escaped(&format!("{of}{line}")));
        let mut out: String = problems.map(|problem| format!("{on}error:{off} {problem}\n")).collect();
        for cause in causes(error) {
            out.push_str(&format!("  caused by: {}\n", text::escaped(&cause)));
        }
        self.write(out.as_bytes());
    }

    fn write(&self, bytes: &[u8]) {
        // Whoever closed stderr does not want to be told.
        let _ = self.bars.suspend(|| io::stderr().lock().write_all(bytes));
    }
}

impl Write for Talk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bars.suspend(|| io::stderr().lock().write_all(bytes))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Talk {
    type Writer = Talk;

    fn make_writer(&'a self) -> Talk {
        self.clone()
    }
}
