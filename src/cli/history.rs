//! `cutover history`: a table's versions, newest first, generations set apart.

use serde::Serialize;

use super::Session;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::continuity::commit::{Author, Commit};
use crate::continuity::stamp::CommitStamp;
use crate::error::Result;
use crate::inspect::{self, Entry};

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    table: TableArgs,
    /// How many versions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

impl HistoryArgs {
    /// The formats in which versions are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json, Output::Ndjson];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &HistoryArgs, session: &Session) -> Result<u8> {
    let entries = session.block_on(async |world| inspect::history(&args.table.log(world)?, args.limit).await)?;
    match session.global.output {
        Output::Json => {
            let versions: Vec<_> = entries.iter().map(document).collect();
            text::print_json(&Document { schema: "cutover.history/1", uri: &args.table.uri, versions })?;
        }
        Output::Ndjson => {
            for entry in &entries {
                text::print_json(&document(entry))?;
            }
        }
        Output::Text | Output::Env => text::print(&lines(&entries))?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uri: &'a str,
    versions: Vec<VersionDocument<'a>>,
}

#[derive(Serialize)]
struct VersionDocument<'a> {
    version: u64,
    time: Option<String>,
    ours: bool,
    /// The stamp of ours, as it stands in the commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<&'a CommitStamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    files_added: usize,
    files_removed: usize,
}

fn document(entry: &Entry) -> VersionDocument<'_> {
    let commit = entry.commit.as_ref().ok();
    VersionDocument {
        version: entry.version,
        time: commit.and_then(time),
        ours: entry.is_ours(),
        stamp: commit.and_then(Commit::stamp),
        operation: match commit.map(|c| &c.author) {
            Some(Author::Foreign(operation)) => operation.as_deref(),
            Some(Author::Ours { .. } | Author::Damaged(_)) | None => None,
        },
        damage: damage(entry),
        files_added: commit.map_or(0, |c| c.adds.len()),
        files_removed: commit.map_or(0, |c| c.removes.len()),
    }
}

fn damage(entry: &Entry) -> Option<String> {
    match &entry.commit {
        Err(e) => Some(e.message().to_string()),
        Ok(Commit { author: Author::Damaged(why), .. }) => Some(format!("the commit info cannot be trusted: {why}")),
        Ok(_) => None,
    }
}

fn time(commit: &Commit) -> Option<String> {
    let time = chrono::DateTime::from_timestamp_millis(commit.millis?)?;
    Some(time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
}

fn lines(entries: &[Entry]) -> String {
    let mut out = Vec::new();
    let mut generation = None;
    for entry in entries {
        let commit = entry.commit.as_ref().ok();
        let stamp = commit.and_then(Commit::stamp);
        if let Some(stamp) = stamp
            && generation != Some(stamp.generation)
        {
            generation = Some(stamp.generation);
            out.push(format!("generation {}", stamp.generation));
        }
        let time = commit.and_then(time).unwrap_or_else(|| "-".to_string());
        let what = match (stamp, damage(entry)) {
            (_, Some(damage)) => format!("damaged: {damage}"),
            (Some(stamp), None) => ours(stamp),
            (None, None) => foreign(commit),
        };
        out.push(text::escaped(&format!("{:>8}  {time:<24}  {what}", entry.version)));
    }
    out.join("\n")
}

fn ours(stamp: &CommitStamp) -> String {
    let steps = match stamp.from {
        Some(from) if from != stamp.to => format!("({from}, {}]", stamp.to),
        _ => stamp.to.to_string(),
    };
    let rows = stamp.rows;
    let mut out =
        format!("{:<11}  step {steps}  +{} ~{} -{}  epoch {}", stamp.kind, rows.i, rows.u, rows.d, stamp.epoch);
    if let Some(reset) = &stamp.reset {
        out.push_str(&format!(
            "  reset by {}: {}",
            reset.who,
            if reset.why.is_empty() { "no reason given" } else { &reset.why }
        ));
    }
    out
}

fn foreign(commit: Option<&Commit>) -> String {
    let Some(commit) = commit else { return "foreign".to_string() };
    let operation = match &commit.author {
        Author::Foreign(Some(operation)) => operation,
        Author::Foreign(None) | Author::Ours { .. } | Author::Damaged(_) => "no commit info",
    };
    format!("foreign      {operation}  {} files added, {} removed", commit.adds.len(), commit.removes.len())
}
