//! Two processes that deliver to one table.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use super::daemon::{quoted, until};
use super::home::Home;
use super::narration::Narration;
use super::process::Process;
use super::reader;
use super::tour::verify;
use crate::cli::text::grouped;
use crate::cli::verify::word;
use crate::clock::World;
use crate::error::{Error, ErrorKind, Result};
use crate::inspect::Verdict;

const CONFIG: &str = "writers.toml";
/// More files than it takes until one of them is fenced.
const MANY_STEPS: u64 = 100;

fn configure(home: &Home) -> Result<()> {
    let (data, feed, prices) = (quoted(home.at("first"))?, quoted(home.at("feed"))?, quoted(home.at("prices"))?);
    home.write(
        CONFIG,
        &format!(
            r#"config_version = 1

[server]
listen = "127.0.0.1:0"
data_dir = {data}

[pipelines.desk.source.files]
path = {feed}
poll_interval = "5ms"

[pipelines.desk.views.prices]
key = ["id"]
columns = {{ id = "bigint", price = "bigint" }}

[pipelines.desk.views.prices.connectors.lake]
commit = {{ max_interval = "10ms" }}

[pipelines.desk.views.prices.connectors.lake.delta]
uri = {prices}
"#
        ),
    )?;
    fs::create_dir_all(home.at("feed/prices"))
        .map_err(|e| Error::internal("the feed cannot be made").with_source(e))?;
    land(home, "snapshot-0.ndjson", "{\"id\":0,\"price\":100}\n")
}

/// Lands a file, whole when its name appears.
fn land(home: &Home, name: &str, text: &str) -> Result<()> {
    home.write("feed/prices/.landing", text)?;
    fs::rename(home.at("feed/prices/.landing"), home.at("feed/prices").join(name))
        .map_err(|e| Error::internal("a file cannot be landed").with_source(e))
}

/// Lands a step that inserts one row, and waits until the table has it.
async fn step(home: &Home, world: &World, step: u64) -> Result<()> {
    let text = format!("{{\"step\":{step},\"insert\":{{\"id\":{step},\"price\":{}}}}}\n", 100 + step);
    land(home, &format!("changes-{}-{step}.ndjson", step.saturating_sub(1)), &text)?;
    delivered(home, world, step + 1).await
}

/// Waits until the table has so many rows.
async fn delivered(home: &Home, world: &World, rows: u64) -> Result<()> {
    until(world, "a row is delivered", async || {
        // There may be no table yet.
        Ok(reader::read(&home.at("prices")).ok().filter(|seen| seen.rows >= rows))
    })
    .await
    .map(drop)
}

/// Starts a second writer beside a first, and holds what becomes of both against what should.
pub(super) async fn meet(home: &Home, world: &World, say: &mut Narration) -> Result<()> {
    say.chapter(
        "A second writer",
        "Two processes run one configuration, each with a data directory of its own, as when a machine that was thought \
         dead comes back. Both want to deliver the feed to the table prices.",
    )?;
    configure(home)?;
    let mut first = Process::start(home, CONFIG, Some("first"), "first.log")?;
    delivered(home, world, 1).await?;
    step(home, world, 1).await?;
    let mut second = Process::start(home, CONFIG, Some("second"), "second.log")?;
    until(world, "the second writer listens", async || {
        second.check()?;
        Ok(second.said()?.contains("listening").then_some(()))
    })
    .await?;
    let mut last = 1;
    // Who writes first claims the table; the other one learns it at its next step.
    while first.ended()?.is_none() && second.ended()?.is_none() && last < MANY_STEPS {
        last += 1;
        step(home, world, last).await?;
    }
    let (fenced, mut other) = if first.ended()?.is_some() { (&mut first, second) } else { (&mut second, first) };
    let status = fenced.ended()?;
    let code = status.and_then(|status| status.code());
    let said = fenced.said()?;
    let why = said.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("it said nothing").to_string();
    let ended = match (code, status.and_then(|status| status.signal())) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "it runs".to_string(),
    };
    say.hold(
        "one of them is fenced, says who holds the table, and ends with exit code 6",
        &format!("process {}: {ended}: {why}", fenced.id()),
        code == Some(i32::from(ErrorKind::Fenced.exit_code())) && why.contains("holds the epoch"),
    )?;
    last += 1;
    step(home, world, last).await?;
    other.check()?;
    let (seen, report) = (reader::read(&home.at("prices"))?, verify(&home.at("prices"), world).await?);
    say.hold(
        &format!("the other goes on, and each of the {last} steps is there once: {} rows, healthy", grouped(last + 1)),
        &format!("process {}: {} rows, {}", other.id(), grouped(seen.rows), word(&report.verdict)),
        seen.rows == last + 1 && report.verdict == Verdict::Healthy,
    )
}
