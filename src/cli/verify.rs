//! `cutover verify`: checks the contract with readers, and says what is wrong and what repairs it.

use std::fmt::Write as _;

use serde::Serialize;

use super::Session;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::continuity::history::Finding;
use crate::error::{ErrorKind, Result};
use crate::inspect::{self, Report, Verdict};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits with 0 when the current generation is healthy, with 3 when a rule is broken, and with 4 when it cannot be told
(with --strict 3).")]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Check from this version on
    #[arg(long, value_name = "N")]
    since_version: Option<u64>,
    /// Take what cannot be told for broken
    #[arg(long)]
    strict: bool,
}

impl VerifyArgs {
    /// The formats in which the report is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &VerifyArgs, session: &Session) -> Result<u8> {
    let report = session.block_on(async |world| inspect::verify(&args.table.log(world)?, args.since_version).await)?;
    match session.global.output {
        Output::Json => text::print_json(&document(&args.table.uri, &report))?,
        Output::Text | Output::Ndjson | Output::Env => {
            text::print(&text::escaped_lines(&lines(&args.table.uri, &report)))?
        }
    }
    Ok(match report.verdict {
        Verdict::Healthy => 0,
        Verdict::Broken => ErrorKind::ContinuityLost.exit_code(),
        Verdict::Inconclusive(_) if args.strict => ErrorKind::ContinuityLost.exit_code(),
        Verdict::Inconclusive(_) => INCONCLUSIVE,
    })
}

const INCONCLUSIVE: u8 = 4;

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "healthy",
        Verdict::Broken => "broken",
        Verdict::Inconclusive(_) => "inconclusive",
    }
}

fn repair(report: &Report) -> Option<String> {
    let connector = report.connector.as_ref().filter(|_| report.verdict == Verdict::Broken)?;
    if !report.loads {
        return Some("restore the damaged entries of _delta_log; a reset needs a log that loads".to_string());
    }
    Some(format!("cutover reset -c CONFIG {} --yes", text::shell_word(connector)))
}

fn lines(uri: &str, report: &Report) -> String {
    let mut out = format!("{uri}: {}", word(&report.verdict));
    if let Verdict::Inconclusive(why) = &report.verdict {
        let _ = write!(out, ": {why}");
    }
    if let (Some(connector), Some(generation)) = (&report.connector, report.generation) {
        let _ = write!(out, "\n  connector {connector}, generation {generation}");
    }
    if let Some(cutover) = report.cutover {
        let _ = write!(out, ", cutover step {cutover}");
    }
    if let Some(last) = report.last_step {
        let _ = write!(out, ", last step {last}");
    }
    let files = text::grouped(report.live_files as u64);
    let _ = write!(out, "\n  checked: versions {} to {}, {files} live files", report.since, report.head);
    for finding in &report.findings {
        let _ = write!(out, "\n  version {}: {} {}", finding.version, finding.rule, finding.message);
    }
    if let Some(command) = repair(report) {
        let _ = write!(out, "\n  repair: {command}");
    }
    for finding in &report.older {
        let _ = write!(
            out,
            "\n  in an older generation, version {}: {} {}",
            finding.version, finding.rule, finding.message
        );
    }
    out
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uri: &'a str,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    since_version: u64,
    version: u64,
    connector: Option<&'a str>,
    generation: Option<u64>,
    cutover: Option<u64>,
    last_step: Option<u64>,
    epoch: Option<u64>,
    live_files: usize,
    findings: Vec<FoundDocument<'a>>,
    older_findings: Vec<FoundDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<String>,
}

#[derive(Serialize)]
struct FoundDocument<'a> {
    version: u64,
    generation: Option<u64>,
    rule: String,
    message: &'a str,
}

fn document<'a>(uri: &'a str, report: &'a Report) -> Document<'a> {
    let found = |finding: &'a Finding| FoundDocument {
        version: finding.version,
        generation: finding.generation.map(|g| g.get()),
        rule: finding.rule.to_string(),
        message: &finding.message,
    };
    Document {
        schema: "cutover.verify/1",
        uri,
        verdict: word(&report.verdict),
        reason: match &report.verdict {
            Verdict::Inconclusive(why) => Some(why),
            Verdict::Healthy | Verdict::Broken => None,
        },
        since_version: report.since,
        version: report.head,
        connector: report.connector.as_deref(),
        generation: report.generation.map(|g| g.get()),
        cutover: report.cutover.map(|s| s.get()),
        last_step: report.last_step.map(|s| s.get()),
        epoch: report.epoch.map(|e| e.get()),
        live_files: report.live_files,
        findings: report.findings.iter().map(found).collect(),
        older_findings: report.older.iter().map(found).collect(),
        repair: repair(report),
    }
}
