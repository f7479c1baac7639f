//! `cutover verify`: checks the contract with readers, and says what is wrong and what repairs it.

use serde::Serialize;
use serde_json::Value;

use super::Session;
#[cfg(feature = "postgres")]
use super::against::AgainstArgs;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::continuity::finding::Finding;
use crate::error::{ErrorKind, Result};
use crate::inspect::{self, Repair, Report, Trusted, Verdict};
use crate::step::Step;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits with 0 when the current generation is healthy, with 3 when a rule is broken, and with 4 when it cannot be told
(with --strict 3). With --against, 0 says too that table and original have the same rows at one position of the server's log.")]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Check from this version on
    #[arg(long, value_name = "N")]
    since_version: Option<u64>,
    /// Read every row too, and hold them against the digests that their commits left and the statistics that readers skip by
    #[arg(long)]
    deep: bool,
    /// Take what cannot be told for broken
    #[arg(long)]
    strict: bool,
    #[cfg(feature = "postgres")]
    #[command(flatten)]
    against: AgainstArgs,
}

impl VerifyArgs {
    /// The formats in which the report is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// What a report says beside what the table itself shows.
pub(super) struct Beside {
    /// For people.
    pub(super) lines: Vec<String>,
    /// For programs.
    pub(super) document: Value,
    /// What it comes to.
    pub(super) exit_code: u8,
}

/// Runs the command; the exit code.
pub(super) fn run(args: &VerifyArgs, session: &Session) -> Result<u8> {
    #[cfg(feature = "postgres")]
    let original = args.against.original(session)?;
    let (report, against) = session.block_on(async |world| {
        let log = args.table.log(world.clone())?;
        let report = match args.deep {
            true => inspect::verify_deep(&log, args.since_version).await?,
            false => inspect::verify(&log, args.since_version).await?,
        };
        #[cfg(feature = "postgres")]
        let against = match original {
            Some(original) if report.generation.is_some() => {
                Some(args.against.compare(&log, &original, &world, session).await?)
            }
            _ => None,
        };
        #[cfg(not(feature = "postgres"))]
        let against = None::<Beside>;
        Ok((report, against))
    })?;
    match session.global.output {
        Output::Json => text::print_json(&document(&args.table.uri, &report, against.as_ref()))?,
        Output::Text | Output::Ndjson | Output::Env => {
            let mut lines = lines(&args.table.uri, &report);
            if let Some(first) = lines.first_mut()
                && against.as_ref().is_some_and(|beside| beside.exit_code != 0)
            {
                first.push_str(" by its own log, and not shown to equal the original: see below");
            }
            lines.extend(against.iter().flat_map(|beside| beside.lines.clone()));
            let lines: Vec<String> = lines.iter().map(|line| text::escaped(line)).collect();
            text::print(&lines.join("\n"))?;
        }
    }
    let own = match report.verdict {
        Verdict::Healthy => 0,
        Verdict::Broken => BROKEN,
        Verdict::Inconclusive(_) => INCONCLUSIVE,
    };
    // What is known to be wrong says more than what is not known.
    let codes = [own, against.as_ref().map_or(0, |beside| beside.exit_code)];
    let code = if codes.contains(&BROKEN) { BROKEN } else { codes.into_iter().max().unwrap_or(0) };
    Ok(if code == INCONCLUSIVE && args.strict { BROKEN } else { code })
}

pub(super) const BROKEN: u8 = ErrorKind::ContinuityLost.exit_code();
pub(super) const INCONCLUSIVE: u8 = 4;

pub(super) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Healthy => "healthy",
        Verdict::Broken => "broken",
        Verdict::Inconclusive(_) => "inconclusive",
    }
}

fn repairs(report: &Report) -> Vec<String> {
    let connector = report.connector.as_deref().map_or("CONNECTOR".into(), text::shell_word);
    let text = |repair: &Repair| match repair {
        Repair::Unset(property) => format!("ALTER TABLE … UNSET TBLPROPERTIES ('{property}')"),
        Repair::Reset => format!("cutover reset -c CONFIG {connector} --yes"),
        Repair::RebuildLog => format!("cutover reset -c CONFIG {connector} --rebuild-log --yes"),
    };
    report.repairs.iter().map(text).collect()
}

/// What a reader may still do with a broken table.
fn readings(uri: &str, trusted: &Trusted) -> Vec<String> {
    let mut out = Vec::new();
    if trusted.is_readable {
        out.push(format!("version {} of the table is whole", trusted.last));
    }
    if let Some(step) = trusted.step.filter(|_| trusted.is_state) {
        out.push(format!("cutover state {} --step {step}", text::shell_word(uri)));
    }
    out
}

fn lines(uri: &str, report: &Report) -> Vec<String> {
    let mut out = vec![match &report.verdict {
        Verdict::Inconclusive(why) => format!("{uri}: inconclusive: {why}"),
        verdict => format!("{uri}: {}", word(verdict)),
    }];
    if let (Some(connector), Some(generation)) = (&report.connector, report.generation) {
        let step = |step: Option<Step>| step.map_or("unknown".to_string(), |s| s.to_string());
        let (cutover, last) = (step(report.cutover), step(report.last_step));
        out.push(format!("  connector {connector}, generation {generation}, cutover step {cutover}, last step {last}"));
    }
    let files = text::grouped(report.live_files as u64);
    let read = report.rows_read.map(|read| format!(", {} rows", text::grouped(read.rows))).unwrap_or_default();
    out.push(format!("  checked: versions {} to {}, {files} live files{read}", report.since, report.head));
    for finding in &report.findings {
        out.push(format!("  version {}: {} {}", finding.version, finding.rule, finding.message));
    }
    if report.verdict == Verdict::Broken {
        match &report.trusted {
            Some(trusted) => {
                let Trusted { first, last, .. } = trusted;
                let step = trusted.step.map(|s| format!(", up to step {s}")).unwrap_or_default();
                out.push(format!("  proved: versions {first} to {last} of this generation{step}"));
                out.extend(readings(uri, trusted).into_iter().map(|reading| format!("  read: {reading}")));
            }
            None => out.push("  proved: nothing of this generation".to_string()),
        }
    }
    out.extend(repairs(report).into_iter().map(|repair| format!("  repair: {repair}")));
    for finding in &report.older {
        let Finding { version, rule, message, .. } = finding;
        out.push(format!("  in an older generation, version {version}: {rule} {message}"));
    }
    out.extend(report.notes.iter().map(|note| format!("  note: version {}: {}", note.version, note.message)));
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
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_read: Option<u64>,
    findings: Vec<FoundDocument<'a>>,
    older_findings: Vec<FoundDocument<'a>>,
    notes: Vec<NoteDocument<'a>>,
    trusted: Option<TrustedDocument>,
    repairs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<&'a Value>,
}

#[derive(Serialize)]
struct NoteDocument<'a> {
    version: u64,
    file: Option<&'a str>,
    message: &'a str,
}

#[derive(Serialize)]
struct TrustedDocument {
    first_version: u64,
    last_version: u64,
    step: Option<u64>,
    readable: bool,
    state: bool,
}

#[derive(Serialize)]
struct FoundDocument<'a> {
    version: u64,
    generation: Option<u64>,
    rule: String,
    file: Option<&'a str>,
    message: &'a str,
}

fn document<'a>(uri: &'a str, report: &'a Report, against: Option<&'a Beside>) -> Document<'a> {
    let found = |finding: &'a Finding| FoundDocument {
        version: finding.version,
        generation: finding.generation.map(|g| g.get()),
        rule: finding.rule.to_string(),
        file: finding.file.as_deref(),
        message: &finding.message,
    };
    let note =
        |note: &'a Finding| NoteDocument { version: note.version, file: note.file.as_deref(), message: &note.message };
    Document {
        schema: "cutover.verify/2",
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
        rows_read: report.rows_read.map(|read| read.rows),
        findings: report.findings.iter().map(found).collect(),
        older_findings: report.older.iter().map(found).collect(),
        notes: report.notes.iter().map(note).collect(),
        trusted: report.trusted.as_ref().map(|t| TrustedDocument {
            first_version: t.first,
            last_version: t.last,
            step: t.step.map(|s| s.get()),
            readable: t.is_readable,
            state: t.is_state,
        }),
        repairs: repairs(report),
        against: against.map(|beside| &beside.document),
    }
}
