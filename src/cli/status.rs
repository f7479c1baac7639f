//! `cutover status`: how connectors and views of a daemon do.

use std::future::Future;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::args::Output;
use super::client::Client;
use super::reach::Reach;
use super::signals::Signals;
use super::{Print, Session, names, text};
use crate::clock::World;
use crate::daemon::{ConnectorReport, Health, PipelineReport, SnapshotReport, ViewReport};
use crate::error::{Error, ErrorKind, Result};

/// How often a watch looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Takes what a terminal shows away.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The exit code is 0 whatever is shown, and 69 when the daemon cannot be reached.")]
pub(super) struct StatusArgs {
    /// A connector: its full name, or an end of it that is unambiguous; absent: all
    connector: Option<String>,
    /// Look again every two seconds, until SIGINT or SIGTERM
    #[arg(long)]
    watch: bool,
}

impl StatusArgs {
    /// The formats in which it is printed; a watch never ends a document.
    pub(super) fn outputs(&self) -> &'static [Output] {
        if self.watch { &[Output::Text, Output::Ndjson] } else { &[Output::Text, Output::Json, Output::Ndjson] }
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: &StatusArgs, session: &Session) -> Result<u8> {
    let reach = Reach::of(session)?;
    session.block_on(async |world| {
        let client = Client::new(&reach)?;
        let mut print: Print<'_> = Box::new(text::print);
        if !args.watch {
            return once(args, session.global.output, &client, &mut print).await;
        }
        let mut signals = Signals::listen()?;
        let screen = if stdout().is_terminal() { Screen::Cleared } else { Screen::Appended };
        let watch = Watch { args, session, client: &client, world: &world, screen };
        watch.run(signals.stop(), &mut print).await
    })
}

/// What is shown of a daemon.
enum Shown {
    All(Vec<PipelineReport>),
    One(Box<ConnectorReport>),
}

impl Shown {
    async fn of(args: &StatusArgs, client: &Client) -> Result<Self> {
        let pipelines = client.pipelines().await?;
        Ok(match &args.connector {
            None => Self::All(pipelines),
            Some(name) => Self::One(Box::new(names::connector(&pipelines, name)?.clone())),
        })
    }

    fn connectors(&self) -> Vec<&ConnectorReport> {
        match self {
            Self::All(pipelines) => pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors).collect(),
            Self::One(connector) => vec![connector],
        }
    }

    fn views(&self) -> Vec<(&str, &ViewReport)> {
        match self {
            Self::All(pipelines) => {
                pipelines.iter().flat_map(|p| p.views.iter().map(|v| (p.name.as_str(), v))).collect()
            }
            Self::One(_) => Vec::new(),
        }
    }

    fn json(&self) -> Result<String> {
        match self {
            Self::All(pipelines) => text::json(&Document { schema: "cutover.pipelines/1", pipelines }),
            Self::One(connector) => text::json(connector),
        }
    }

    fn text(&self) -> String {
        let connectors = self.connectors();
        let mut out = if connectors.is_empty() { vec!["no connectors".to_string()] } else { table(&connectors) };
        out.extend(self.views().iter().map(|(pipeline, view)| view_line(pipeline, view)));
        let lines: Vec<String> = out.iter().map(|line| text::escaped(line)).collect();
        lines.join("\n")
    }
}

/// What `status -o json` prints of all connectors.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Pipelines")]
pub(super) struct Document<'a> {
    /// The name and version of this form.
    #[schemars(extend("const" = "cutover.pipelines/1"))]
    schema: &'static str,
    /// The pipelines.
    pipelines: &'a [PipelineReport],
}

async fn once(args: &StatusArgs, output: Output, client: &Client, print: &mut Print<'_>) -> Result<u8> {
    let shown = Shown::of(args, client).await?;
    match output {
        Output::Json => print(&shown.json()?)?,
        Output::Ndjson => {
            for connector in shown.connectors() {
                print(&text::json(connector)?)?;
            }
        }
        Output::Text | Output::Env => print(&shown.text())?,
    }
    Ok(0)
}

/// Where a watch shows things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Screen {
    /// On a terminal, in place of what it showed.
    Cleared,
    /// Behind what was shown, when something is different.
    Appended,
}

/// Looks again and again.
struct Watch<'a> {
    args: &'a StatusArgs,
    session: &'a Session,
    client: &'a Client,
    world: &'a World,
    screen: Screen,
}

impl Watch<'_> {
    /// Looks until `stop` completes. A daemon that was reached once may be away.
    async fn run(&self, stop: impl Future<Output = ()>, print: &mut Print<'_>) -> Result<u8> {
        let mut stop = std::pin::pin!(stop);
        let mut before: Vec<String> = Vec::new();
        let mut is_first = true;
        loop {
            match Shown::of(self.args, self.client).await {
                Ok(shown) => before = self.show(&shown, &before, print)?,
                Err(error) if !is_first && error.kind() == ErrorKind::Unavailable => self.away(&error),
                Err(error) => return Err(error),
            }
            is_first = false;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(0),
                () = self.world.clock.sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Prints what differs from `before`; what there is then.
    fn show(&self, shown: &Shown, before: &[String], print: &mut Print<'_>) -> Result<Vec<String>> {
        let lines: Vec<String> = match self.session.global.output {
            Output::Ndjson => shown.connectors().into_iter().map(text::json).collect::<Result<_>>()?,
            Output::Text | Output::Json | Output::Env => vec![shown.text()],
        };
        let is_text = self.session.global.output != Output::Ndjson;
        for line in &lines {
            match self.screen {
                Screen::Cleared if is_text => print(&format!("{CLEAR}{line}"))?,
                Screen::Cleared | Screen::Appended if !before.contains(line) => print(line)?,
                Screen::Cleared | Screen::Appended => {}
            }
        }
        Ok(lines)
    }

    fn away(&self, error: &Error) {
        self.session.talk.line(error.message());
    }
}

const HEADINGS: [&str; 7] = ["CONNECTOR", "STATE", "HEALTH", "GENERATION", "CUTOVER", "LAST STEP", "LAG"];

/// A line for each connector, and what is to be said of it below.
fn table(connectors: &[&ConnectorReport]) -> Vec<String> {
    let rows: Vec<[String; 7]> = connectors.iter().map(|c| cells(c)).collect();
    let headings = HEADINGS.map(str::to_string);
    let mut widths = [0; 7];
    for row in rows.iter().chain([&headings]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    let mut out = vec![line(&headings)];
    for (connector, row) in connectors.iter().zip(&rows) {
        out.push(line(row));
        out.extend(remarks(connector).into_iter().map(|remark| format!("  {remark}")));
    }
    out
}

fn cells(connector: &ConnectorReport) -> [String; 7] {
    let number = |n: Option<u64>| n.map_or("-".to_string(), |n| n.to_string());
    [
        // Escaped here, so that the columns are as wide as they look.
        text::escaped(&connector.name),
        text::escaped(&connector.state),
        health(connector.health).to_string(),
        number(connector.generation),
        number(connector.cutover),
        number(connector.last_step),
        lag(connector),
    ]
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Unhealthy => "unhealthy",
    }
}

fn lag(connector: &ConnectorReport) -> String {
    let behind = connector.lag_seconds.filter(|s| *s >= 1.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
    let behind = behind.map(text::duration);
    match (connector.lag_steps, behind) {
        (Some(0), _) => "none".to_string(),
        (Some(steps), None) => format!("{} steps", text::grouped(steps)),
        (Some(steps), Some(behind)) => format!("{} steps, {behind}", text::grouped(steps)),
        (None, Some(behind)) => behind.to_string(),
        (None, None) => "-".to_string(),
    }
}

/// What is to be said of a connector beside its line.
fn remarks(connector: &ConnectorReport) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(snapshot) = &connector.snapshot {
        let step = snapshot.step.map(|step| format!(" of step {step}")).unwrap_or_default();
        out.push(format!("snapshot{step}: {}", progress(snapshot)));
    }
    if let Some(reset) = &connector.reset {
        out.push(format!("reset {reset} is under way"));
    }
    if connector.is_stream() {
        let streams = connector.streams.unwrap_or(0);
        let open = if streams == 1 { "1 stream open".to_string() } else { format!("{streams} streams open") };
        let sent = connector.sent_step.map_or("nothing sent".to_string(), |step| {
            format!("sent up to step {step}, {} rows, {}", text::grouped(connector.rows), text::bytes(connector.bytes))
        });
        let has = if connector.last_step.is_none() { "; it has said nothing yet" } else { "" };
        out.push(format!("client: {open}, {sent}{has}"));
    }
    if let Some(trouble) = &connector.trouble {
        out.push(format!("wrong ({}): {}", trouble.code, trouble.reason));
        out.push(format!("helps: {}", trouble.next_action));
    }
    out
}

/// How far a snapshot is, in one line.
pub(super) fn progress(snapshot: &SnapshotReport) -> String {
    let rows = text::grouped(snapshot.rows);
    let mut parts = vec![match snapshot.rows_known {
        Some(known) => format!("{rows} of {} rows", text::grouped(known)),
        None => format!("{rows} rows"),
    }];
    parts.push(text::bytes(snapshot.bytes));
    parts.extend(snapshot.rows_per_second.map(|speed| format!("{} rows/s", text::grouped(speed as u64))));
    let left = snapshot.seconds_left.and_then(|s| Duration::try_from_secs_f64(s).ok());
    parts.extend(left.map(|left| format!("{} left", text::duration(left))));
    parts.join(", ")
}

fn view_line(pipeline: &str, view: &ViewReport) -> String {
    let mut parts = Vec::new();
    parts.extend(view.rows.map(|rows| format!("{} rows", text::grouped(rows))));
    if view.materialized == Some(false) {
        parts.push("rows are not kept".to_string());
    }
    if let Some(log) = &view.step_log {
        let use_of = (log.bytes as f64 / log.max_bytes.max(1) as f64 * 100.0).round();
        parts.push(format!(
            "step log behind {} up to {}, {} of {} ({use_of} %)",
            log.earliest,
            log.last,
            text::bytes(log.bytes),
            text::bytes(log.max_bytes)
        ));
    }
    if let Some(wal) = &view.wal {
        parts.push(format!("the server keeps {} of WAL for it ({})", text::bytes(wal.bytes), wal.status));
    }
    let is_pushed = view.source == "push";
    let (closed, refused) =
        if is_pushed { ("not open", "pushes are not stored") } else { ("not followed", "nothing is read for now") };
    parts.extend(view.trouble.as_ref().map(|why| format!("{closed}: {why}")));
    parts.extend(view.refusal.as_ref().map(|why| format!("{refused}: {why}")));
    let separator = if parts.is_empty() { "" } else { ": " };
    format!("view {pipeline}/{} ({}){separator}{}", view.name, view.source, parts.join("; "))
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
