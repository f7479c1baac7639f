//! `cutover changes`: the rows beyond a bookmark, and the bookmark behind them once they are out.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::Serialize;

use super::Session;
use super::args::Output;
use super::show::parse_step;
use super::table::TableArgs;
use super::text;
use crate::clock::World;
use crate::continuity::stamp::RowCounts;
use crate::error::{Error, Result};
use crate::inspect::Bookmark;
use crate::inspect::changes::{News, Outcome, Proof, changes};
use crate::inspect::json_rows::write_ndjson;
use crate::inspect::staged::StagedFile;
use crate::step::Step;

/// Arguments of `changes`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Rows have the columns __generation, __step and __op first, and come in step order. A line of JSON on stderr says what
they are: \"reload\" (empty the target, then apply them), \"changes\" (apply them) or \"nothing\". With --to FILE
and -o json that document stands on stdout. The bookmark moves last: whatever fails, the next call gives the rows again.")]
pub(super) struct ChangesArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The file that says how far was read; made when it is not there
    #[arg(long, value_name = "FILE")]
    bookmark: PathBuf,
    /// Begin with the whole generation, whatever the bookmark says
    #[arg(long)]
    reload: bool,
    /// No row of a later step than this
    #[arg(long, value_name = "N", value_parser = parse_step)]
    until_step: Option<Step>,
    /// The form of the rows
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::Ndjson)]
    format: Form,
    /// The file for the rows, which appears when it is complete; absent: stdout
    #[arg(long, value_name = "FILE", required_if_eq("format", "parquet"))]
    to: Option<PathBuf>,
    /// Say what the rows are by the exit code too: 0 changes, 10 a reload, 11 nothing
    #[arg(long)]
    exit_code: bool,
}

impl ChangesArgs {
    /// The formats in which rows are printed, text being the same as NDJSON; with --to, those of what they are.
    pub(super) fn outputs(&self) -> &'static [Output] {
        if self.to.is_some() { &[Output::Text, Output::Json] } else { &[Output::Text, Output::Ndjson] }
    }
}

/// The form of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// One JSON object a line.
    Ndjson,
    /// One Parquet file.
    Parquet,
}

/// The encoded bytes of a row group that are held before it is written.
const ROW_GROUP_BYTES: usize = 64 << 20;
const ROW_GROUP_ROWS: usize = 131_072;

/// Runs the command; the exit code.
pub(super) fn run(args: &ChangesArgs, session: &Session) -> Result<u8> {
    check_places(args)?;
    session.block_on(async |world| {
        let log = args.table.log(world.clone())?;
        let before = if args.reload { None } else { Bookmark::read(&args.bookmark)? };
        let mut news = changes(&log, before.as_ref(), args.until_step).await?;
        let mut out = Out::open(args, &news.schema, &world)?;
        while let Some(rows) = news.next().await? {
            out.write(&rows)?;
        }
        let summary = Summary::of(&args.table.uri, &news);
        let bookmark = news.finish()?;
        out.finish()?;
        match session.global.output {
            Output::Json => text::print_json(&summary)?,
            Output::Text | Output::Ndjson | Output::Env => session.talk.line(&text::json(&summary)?),
        }
        bookmark.write(&args.bookmark, &world.ids)?;
        Ok(match summary.outcome {
            Outcome::Reload if args.exit_code => 10,
            Outcome::Nothing if args.exit_code => 11,
            Outcome::Reload | Outcome::Changes | Outcome::Nothing => 0,
        })
    })
}

/// Refuses to write rows and bookmark to one file, or into a table's folder.
fn check_places(args: &ChangesArgs) -> Result<()> {
    let real = |path: &Path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let folder = absolute.parent().and_then(|folder| folder.canonicalize().ok());
        let joined = folder.zip(absolute.file_name()).map(|(folder, name)| folder.join(name));
        let joined = joined.unwrap_or(absolute);
        joined.canonicalize().unwrap_or(joined)
    };
    let bookmark = real(&args.bookmark);
    let to = args.to.as_deref().map(real);
    if to.as_ref() == Some(&bookmark) {
        return Err(Error::config(format!(
            "--to and --bookmark are both {}; name a file for each",
            args.bookmark.display()
        )));
    }
    for path in to.iter().chain([&bookmark]) {
        let in_log = path.components().any(|part| part.as_os_str() == "_delta_log");
        if in_log || path.parent().is_some_and(|folder| folder.join("_delta_log").is_dir()) {
            return Err(Error::config(format!(
                "{} lies in a table's folder, where only the table's files belong; name a file elsewhere",
                path.display()
            )));
        }
    }
    Ok(())
}

/// What the rows are.
#[derive(Serialize)]
struct Summary<'a> {
    schema: &'static str,
    uri: &'a str,
    outcome: Outcome,
    proof: Proof,
    generation: u64,
    key: Vec<String>,
    after: Option<u64>,
    step: u64,
    version: u64,
    rows: RowCounts,
}

impl<'a> Summary<'a> {
    fn of(uri: &'a str, news: &News) -> Self {
        Self {
            schema: "cutover.changes/1",
            uri,
            outcome: news.outcome,
            proof: news.proof,
            generation: news.generation.get(),
            key: news.key.clone(),
            after: news.after.map(Step::get),
            step: news.step.get(),
            version: news.version,
            rows: news.counts(),
        }
    }
}

/// Where the rows go.
enum Out {
    Lines(BufWriter<io::Stdout>),
    LinesFile(BufWriter<StagedFile>),
    Parquet(Box<ArrowWriter<StagedFile>>),
}

impl Out {
    fn open(args: &ChangesArgs, schema: &SchemaRef, world: &World) -> Result<Self> {
        let Some(path) = &args.to else { return Ok(Self::Lines(BufWriter::new(io::stdout()))) };
        let file = StagedFile::create(path, &world.ids)?;
        if args.format == Form::Ndjson {
            return Ok(Self::LinesFile(BufWriter::new(file)));
        }
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .build();
        let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties));
        Ok(Self::Parquet(Box::new(writer.map_err(not_parquet)?)))
    }

    fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Lines(out) => write_ndjson(rows, out),
            Self::LinesFile(out) => write_ndjson(rows, out),
            Self::Parquet(out) => {
                out.write(rows).map_err(not_parquet)?;
                if out.in_progress_size() > ROW_GROUP_BYTES {
                    out.flush().map_err(not_parquet)?;
                }
                Ok(())
            }
        }
    }

    /// Everything is out when this returns, and on the disk where it goes to a file.
    fn finish(self) -> Result<()> {
        let unwritten = |e: io::Error| Error::internal("the rows cannot be written").with_source(e);
        match self {
            Self::Lines(mut out) => {
                out.flush().map_err(unwritten)?;
                let stdout = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(unwritten)?);
                let is_file = stdout.metadata().is_ok_and(|m| m.is_file());
                if is_file { stdout.sync_all().map_err(unwritten) } else { Ok(()) }
            }
            Self::LinesFile(out) => out.into_inner().map_err(|e| unwritten(e.into_error()))?.appear(),
            Self::Parquet(out) => out.into_inner().map_err(not_parquet)?.appear(),
        }
    }
}

fn not_parquet(error: ParquetError) -> Error {
    Error::internal("the rows cannot be written as Parquet").with_source(error)
}
