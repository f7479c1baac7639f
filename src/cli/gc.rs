//! `cutover gc`: removes files of a table's folder that nothing needs.

use futures::TryStreamExt;
use serde::Serialize;

use super::Session;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::error::Result;
use crate::log::{Access, Durability, Garbage, GarbageFile, Log, Why};

/// Arguments of `gc`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deleted are data files of ours that no version of the log names, files that were removed longer ago than the table's
delta.deletedFileRetentionDuration (a week where it does not say), and what local writes left that did not end. Nothing is
asked: no version that the log still holds loses a file before its time. Left alone are log entries, deletion vectors,
change data, and what others wrote and never committed. A table that is not ours is refused.")]
pub(super) struct GcArgs {
    #[command(flatten)]
    table: TableArgs,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

impl GcArgs {
    /// The formats in which the result is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Files and bytes, by why they are garbage.
#[derive(Debug, Default, Serialize)]
struct Sums {
    unnamed: Sum,
    removed: Sum,
    staged: Sum,
}

#[derive(Debug, Default, Serialize)]
struct Sum {
    files: u64,
    bytes: u64,
}

impl Sums {
    fn count(&mut self, file: &GarbageFile) {
        let sum = match file.why {
            Why::Unnamed => &mut self.unnamed,
            Why::Removed => &mut self.removed,
            Why::Staged => &mut self.staged,
        };
        sum.files += 1;
        sum.bytes += file.size;
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uri: &'a str,
    /// The version whose log was read.
    version: Option<u64>,
    dry_run: bool,
    #[serde(flatten)]
    sums: &'a Sums,
}

/// Runs the command; the exit code.
pub(super) fn run(args: &GcArgs, session: &Session) -> Result<u8> {
    session.block_on(async |world| {
        let access = if args.dry_run { Access::Read } else { Access::Write(Durability::Commit) };
        let log = Log::new(args.table.location(access)?, world);
        let garbage = log.garbage().await?;
        let mut sums = Sums::default();
        let done = collect(&log, &garbage, args, session, &mut sums).await;
        let version = garbage.facts.version;
        match session.global.output {
            Output::Json => {
                let schema = "cutover.gc/1";
                text::print_json(&Document {
                    schema,
                    uri: &args.table.uri,
                    version,
                    dry_run: args.dry_run,
                    sums: &sums,
                })?;
            }
            Output::Text | Output::Ndjson | Output::Env => text::print(&text::escaped(&line(args, &sums)))?,
        }
        done.map(|()| 0)
    })
}

async fn collect(log: &Log, garbage: &Garbage, args: &GcArgs, session: &Session, sums: &mut Sums) -> Result<()> {
    let mut tell = |file: &GarbageFile| {
        sums.count(file);
        if args.dry_run || session.global.verbose > 0 {
            session.talk.line(&format!("{}: {}, {}", word(file.why), file.path, text::bytes(file.size)));
        }
    };
    if !args.dry_run {
        return log.delete_garbage(garbage, tell).await;
    }
    let mut files = std::pin::pin!(log.garbage_files(garbage));
    while let Some(file) = files.try_next().await? {
        tell(&file);
    }
    Ok(())
}

fn word(why: Why) -> &'static str {
    match why {
        Why::Unnamed => "named by no version",
        Why::Removed => "removed",
        Why::Staged => "left by a write that did not end",
    }
}

fn line(args: &GcArgs, sums: &Sums) -> String {
    let verb = if args.dry_run { "would be deleted" } else { "deleted" };
    let parts = [Why::Unnamed, Why::Removed, Why::Staged].map(|why| {
        let sum = match why {
            Why::Unnamed => &sums.unnamed,
            Why::Removed => &sums.removed,
            Why::Staged => &sums.staged,
        };
        format!("{} {} ({})", text::grouped(sum.files), word(why), text::bytes(sum.bytes))
    });
    format!("{}: {verb}: {}", args.table.uri, parts.join(", "))
}
