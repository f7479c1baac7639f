//! `cutover history`: a table's versions, newest first, generations set apart.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Session;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::clock::World;
use crate::continuity::commit::{Author, Commit};
use crate::continuity::stamp::{CommitStamp, Kind};
use crate::drawing::{Mark, Picture, Style};
use crate::error::{Error, Result};
use crate::inspect::staged::StagedFile;
use crate::inspect::{self, Entry};

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
pub(super) struct HistoryArgs {
    #[command(flatten)]
    table: TableArgs,
    /// How many versions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Draw them as SVG, into FILE or onto stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    svg: Option<PathBuf>,
}

impl HistoryArgs {
    /// The formats in which versions are printed; a picture is one of its own.
    pub(super) fn outputs(&self) -> &'static [Output] {
        if self.svg.is_some() { &[Output::Text] } else { &[Output::Text, Output::Json, Output::Ndjson] }
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: &HistoryArgs, session: &Session) -> Result<u8> {
    let entries = session.block_on(async |world| inspect::history(&args.table.log(world)?, args.limit).await)?;
    if let Some(file) = &args.svg {
        let picture = picture(&args.table.uri, &entries);
        return if file.as_os_str() == "-" { text::print(&picture) } else { write(file, &picture) }.map(|()| 0);
    }
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

fn write(file: &Path, picture: &str) -> Result<()> {
    let unwritable = |e| Error::internal(format!("the file {} cannot be written", file.display())).with_source(e);
    let mut staged = StagedFile::create(file, &World::system().ids)?;
    writeln!(staged, "{picture}").map_err(unwritable)?;
    staged.appear()
}

/// The versions as SVG, oldest first.
fn picture(uri: &str, entries: &[Entry]) -> String {
    let marks: Vec<Mark> = entries.iter().rev().filter_map(mark).collect();
    let title = format!("History of {uri}");
    Picture { id: "history", title: &title, marks: &marks, style: Style::Own }.svg().into_string()
}

fn mark(entry: &Entry) -> Option<Mark> {
    let version = entry.version;
    if let Some(damage) = damage(entry) {
        return Some(Mark::Damaged(format!("version {version}: {damage}")));
    }
    let commit = entry.commit.as_ref().ok();
    let Some(stamp) = commit.and_then(Commit::stamp) else {
        return Some(Mark::Foreign(format!("version {version}: {}", foreign(commit))));
    };
    let (generation, to) = (stamp.generation.get(), stamp.to.get());
    match (stamp.kind, stamp.from) {
        (Kind::Reload, _) => {
            let by = stamp.reset.as_ref().map(|reset| format!("reset by {}", reset.who));
            Some(Mark::Reload { generation, step: to, rows: Some(stamp.rows.i), by })
        }
        (Kind::Append, Some(from)) => {
            let rows = stamp.rows.i.saturating_add(stamp.rows.u).saturating_add(stamp.rows.d);
            Some(Mark::Append { generation, from: from.get(), to, rows })
        }
        // They move no step.
        (Kind::Append | Kind::Mark | Kind::Maintenance, _) => None,
    }
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
