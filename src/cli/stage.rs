//! `cutover stage`: a worker's part of a snapshot, as data files that no version names yet, and a manifest.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;

use super::args::Output;
use super::show::parse_step;
use super::signals::Signals;
use super::{Session, manifests, text};
use crate::config::ConnectorConfig;
use crate::daemon::{self, configured_view, staging};
use crate::error::{Error, Result};
use crate::sink::{Manifest, Part, PartOf};
use crate::source::files::{Format, Given};
use crate::source::streamed;
use crate::step::Step;

/// Arguments of `stage`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each worker stages one part, wherever it runs: it needs the configuration and the table's storage, and asks no source. The
manifest appears once the part is whole. A worker that died, or did its part twice, changes nothing: start it again. When
every part is there, cutover reload --staged commits all of them in one version. Lines of NDJSON do not tell that more were
to come: where a pipe may break, give Arrow, or have the reload count by --rows.")]
pub(super) struct StageArgs {
    /// The connector: its full name, or an end of it that is unambiguous
    connector: String,
    /// The rows: files, or - for stdin
    #[arg(value_name = "INPUT", default_value = "-")]
    inputs: Vec<PathBuf>,
    /// The snapshot's id, the same for all of its parts
    #[arg(long, value_name = "ID")]
    snapshot: String,
    /// The step whose rows these are
    #[arg(long, value_name = "N", value_parser = parse_step)]
    step: Step,
    /// Which part of how many: 2/4 is the second of four
    #[arg(long, value_name = "I/N", value_parser = parse_part)]
    part: PartOf,
    /// Where the manifest is to be: a path, or a place in an object store
    #[arg(long, value_name = "FILE")]
    manifest: String,
    /// What the input is: an Arrow IPC stream or file, Parquet, or a JSON object a line
    #[arg(long, value_enum, default_value_t = InputFormat::Arrow)]
    format: InputFormat,
}

impl StageArgs {
    /// The formats in which the result is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// What is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum InputFormat {
    Arrow,
    Parquet,
    Ndjson,
}

impl From<InputFormat> for Format {
    fn from(format: InputFormat) -> Self {
        match format {
            InputFormat::Arrow => Self::Arrow,
            InputFormat::Parquet => Self::Parquet,
            InputFormat::Ndjson => Self::Ndjson,
        }
    }
}

fn parse_part(text: &str) -> Result<PartOf, String> {
    text.parse().map_err(|e: Error| e.message().to_string())
}

/// Runs the command; the exit code.
pub(super) fn run(args: StageArgs, session: &Session) -> Result<u8> {
    let config = daemon::load(&session.global.config, &[])?;
    let connector = config.find(&args.connector)?.clone();
    session.block_on(async |world| {
        let mut signals = Signals::listen()?;
        let part = Part::new(&args.snapshot, args.step, args.part)?;
        let delta = connector.delta().ok_or_else(|| no_table(&connector))?;
        let (inputs, format, view) = (args.inputs.clone(), args.format.into(), configured_view(&connector)?);
        // It may block until somebody writes.
        let opened = tokio::task::spawn_blocking(move || Given::open(inputs, format, view));
        let Given { schema, rows } =
            opened.await.map_err(|e| Error::internal("the input was not opened").with_source(e))??;
        let target = staging(&connector, delta, &schema, &world).await?;
        let manifest = tokio::select! {
            manifest = target.stage(&part, streamed(rows)) => manifest?,
            () = signals.stop() => return Err(Error::internal("stopped by a signal before the part was whole: start it again")),
        };
        manifests::write(&args.manifest, &manifest, delta, &world).await?;
        match session.global.output {
            Output::Json => text::print_json(&Document::of(&manifest, &args.manifest))?,
            Output::Text | Output::Ndjson | Output::Env => {
                let Manifest { snapshot, rows, files, .. } = &manifest;
                text::print(&text::escaped(&format!(
                    "{}: {manifest}, rows {rows}, files {}, for generation {}: {}",
                    snapshot.connector,
                    files.len(),
                    snapshot.generation,
                    args.manifest
                )))?;
            }
        }
        Ok(0)
    })
}

fn no_table(connector: &ConnectorConfig) -> Error {
    Error::refused(format!("{} has no table to stage rows for: its client comes for them", connector.name))
}

/// What `stage -o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    name: &'a str,
    snapshot: &'a str,
    step: u64,
    part: u32,
    parts: u32,
    generation: u64,
    rows: u64,
    digest: String,
    files: usize,
    bytes: u64,
    manifest: &'a str,
}

impl<'a> Document<'a> {
    fn of(staged: &'a Manifest, manifest: &'a str) -> Self {
        let frame = &staged.snapshot;
        Self {
            schema: "cutover.stage/1",
            name: &frame.connector,
            snapshot: &frame.id,
            step: frame.step.get(),
            part: staged.part,
            parts: frame.parts,
            generation: frame.generation.get(),
            rows: staged.rows,
            digest: staged.digest.to_string(),
            files: staged.files.len(),
            bytes: staged.files.iter().map(|file| file.size).sum(),
            manifest,
        }
    }
}
