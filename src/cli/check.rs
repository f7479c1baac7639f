//! `cutover check` and what it shares with `doctor`: everything that is wrong, each with what repairs it.

use serde::Serialize;

use super::args::Output;
use super::{Session, text};
use crate::ailment::{Ailment, Severity};
use crate::daemon::{self, Reach};
use crate::error::{Error, ErrorKind, Result};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits with 0 when nothing keeps the configuration from working, warnings or not; with 78 when it is wrong itself, with 75 when
something cannot be reached for now, and with 5 when something forbids it.")]
pub(super) struct CheckArgs {
    /// Ask nobody beyond this machine
    #[arg(long)]
    offline: bool,
}

impl CheckArgs {
    /// The formats in which what is wrong is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &CheckArgs, session: &Session) -> Result<u8> {
    let reach = if args.offline { Reach::Here } else { Reach::Everywhere };
    let found = looked_at(None, reach, session)?;
    print("cutover.check/1", &found, session)?;
    Ok(exit_code(&found))
}

/// What is wrong with the configuration, and with what it describes.
pub(super) fn looked_at(connector: Option<&str>, reach: Reach, session: &Session) -> Result<Vec<Ailment>> {
    let path = &session.global.config;
    let config = match daemon::load(path, &[]) {
        Ok(config) => config,
        Err(e) if e.kind() == ErrorKind::Config => return Ok(problems(&e)),
        Err(e) => return Err(e),
    };
    session.block_on(async |world| daemon::checkup(path, &config, connector, reach, &world).await)
}

/// The problems of a configuration that could not be read, one a line, each behind its place.
fn problems(error: &Error) -> Vec<Ailment> {
    let problem = |line: &str| {
        let (place, said) = line.split_once(": ").unwrap_or(("", line));
        Ailment::of(place, &Error::config(said))
    };
    error.message().lines().map(problem).collect()
}

/// The exit code of what was found: a wrong configuration first, then what forbids, then what passes by itself.
pub(super) fn exit_code(found: &[Ailment]) -> u8 {
    let kinds = found.iter().filter(|ailment| ailment.severity == Severity::Error).map(|ailment| ailment.kind);
    let rank = |kind: &ErrorKind| match kind {
        ErrorKind::Config => 3,
        kind if !kind.is_retryable() => 2,
        _ => 1,
    };
    kinds.max_by_key(rank).map_or(0, ErrorKind::exit_code)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    errors: usize,
    warnings: usize,
    findings: Vec<Finding<'a>>,
}

#[derive(Serialize)]
struct Finding<'a> {
    severity: Severity,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    place: &'a str,
    said: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> Finding<'a> {
    fn of(ailment: &'a Ailment) -> Self {
        Self {
            severity: ailment.severity,
            code: (ailment.severity == Severity::Error).then(|| ailment.kind.name()),
            place: &ailment.place,
            said: &ailment.said,
            remedy: ailment.remedy.as_deref(),
        }
    }
}

/// Prints what was found.
pub(super) fn print(schema: &'static str, found: &[Ailment], session: &Session) -> Result<()> {
    let count = |severity| found.iter().filter(|ailment| ailment.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match session.global.output {
        Output::Json => {
            let findings = found.iter().map(Finding::of).collect();
            text::print_json(&Document { schema, errors, warnings, findings })
        }
        Output::Text | Output::Ndjson | Output::Env => {
            let mut lines = Vec::new();
            for Ailment { severity, place, said, remedy, .. } in found {
                let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
                lines.push(format!("{}: {place}{said}", severity.name()));
                lines.extend(remedy.iter().map(|remedy| format!("  repair: {remedy}")));
            }
            lines.push(match (errors, warnings) {
                (0, 0) => "nothing is wrong".to_owned(),
                _ => format!("{errors} errors, {warnings} warnings"),
            });
            let lines: Vec<String> = lines.iter().map(|line| text::escaped(line)).collect();
            text::print(&lines.join("\n"))
        }
    }
}
