//! `cutover show`: where a table stands, for people and for scripts.

use serde::Serialize;

use super::Session;
use super::args::Output;
use super::table::TableArgs;
use super::text;
use crate::error::Result;
use crate::inspect::{self, Shown};
use crate::step::Step;

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The version at which the table first held everything up to this step
    #[arg(long, value_name = "N", value_parser = parse_step)]
    at_step: Option<Step>,
}

impl ShowArgs {
    /// The formats in which the table is shown.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json, Output::Env];
}

/// A step of the command line.
pub(super) fn parse_step(text: &str) -> Result<Step, String> {
    let number = text.parse().map_err(|_| "a step is a number".to_string())?;
    Step::new(number).map_err(|e| e.message().to_string())
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ShowArgs, session: &Session) -> Result<u8> {
    let shown = session.block_on(async |world| inspect::show(&args.table.log(world)?, args.at_step).await)?;
    let document = document(&args.table.uri, &shown);
    match session.global.output {
        Output::Json => text::print_json(&document)?,
        Output::Env => text::print(&variables(&document))?,
        Output::Text | Output::Ndjson => text::print(&lines(&document))?,
    }
    Ok(0)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uri: &'a str,
    connector: &'a str,
    generation: u64,
    mode: String,
    layout: String,
    key: &'a [String],
    source: &'a str,
    cutover: u64,
    cutover_version: Option<u64>,
    last_step: u64,
    version: u64,
    epoch: u64,
    digest_total: Option<String>,
    table_rows: Option<u64>,
    current_rows: Option<u64>,
    drift: Option<&'a str>,
}

fn document<'a>(uri: &'a str, shown: &'a Shown) -> Document<'a> {
    Document {
        schema: "cutover.show/1",
        uri,
        connector: &shown.table.connector,
        generation: shown.table.generation.get(),
        mode: shown.table.mode.to_string(),
        layout: shown.table.layout.to_string(),
        key: &shown.table.key,
        source: &shown.table.source,
        cutover: shown.table.step.get(),
        cutover_version: shown.cutover_version,
        last_step: shown.last_step.get(),
        version: shown.version,
        epoch: shown.epoch.get(),
        digest_total: shown.digest_total.map(|d| d.to_string()),
        table_rows: shown.rows_total.map(|total| shown.table.layout.live_rows(total)),
        current_rows: shown.rows_total.and_then(|total| shown.table.mode.current_rows(total)),
        drift: shown.drift.as_deref(),
    }
}

fn lines(shown: &Document<'_>) -> String {
    let at = shown.cutover_version.map_or("no longer in the log".to_string(), |v| format!("version {v}"));
    let key = if shown.key.is_empty() { "none".to_string() } else { shown.key.join(", ") };
    let mut out = vec![
        shown.uri.to_string(),
        format!("  connector   {}", shown.connector),
        format!("  generation  {}", shown.generation),
        format!("  cutover     step {}, {at}", shown.cutover),
        format!("  last step   {}, version {}", shown.last_step, shown.version),
        format!("  mode        {}, layout {}, key {key}", shown.mode, shown.layout),
        format!("  source      {}", shown.source),
    ];
    if let (Some(held), Some(rows)) = (shown.table_rows, shown.current_rows) {
        out.insert(5, format!("  rows        {held}, {rows} in the view{}", ratio(held, rows)));
    }
    if let Some(drift) = shown.drift {
        out.push(format!("  drift       {drift}"));
    }
    let lines: Vec<String> = out.iter().map(|line| text::escaped(line)).collect();
    lines.join("\n")
}

/// How many rows the table has for each of the view's, where it has more than one.
fn ratio(held: u64, rows: u64) -> String {
    if held <= rows { String::new() } else { format!(": {:.2} for each", held as f64 / rows.max(1) as f64) }
}

fn variables(shown: &Document<'_>) -> String {
    let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
    let pairs = [
        ("CONNECTOR", shown.connector.to_string()),
        ("GENERATION", shown.generation.to_string()),
        ("STEP", shown.cutover.to_string()),
        ("STEP_VERSION", number(shown.cutover_version)),
        ("LAST_STEP", shown.last_step.to_string()),
        ("VERSION", shown.version.to_string()),
        ("EPOCH", shown.epoch.to_string()),
        ("MODE", shown.mode.clone()),
    ];
    let lines: Vec<String> =
        pairs.iter().map(|(key, value)| format!("CUTOVER_{key}={}", text::shell_word(value))).collect();
    lines.join("\n")
}
