//! `cutover adopt`: gives a table of ours to a connector of another name.

use serde::Serialize;

use super::Session;
use super::args::Output;
use super::consent::{Question, who};
use super::signals::Signals;
use super::table::TableArgs;
use super::text;
use crate::config::ConnectorName;
use crate::continuity::plan::Ours;
use crate::error::{Error, Result};
use crate::log::{Access, Durability};
use crate::sink::{Adopted, Adoption};

/// Arguments of `adopt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The table's generation and rows stay, and a run of the connector with the other name goes on where it ends. A process
that delivers under the old name is fenced and stops. The source must stay the same one: of another source the table
needs a reset. On a terminal the connector's name is asked for; elsewhere --yes is needed.")]
pub(super) struct AdoptArgs {
    #[command(flatten)]
    table: TableArgs,
    /// The connector that is to have the table, by its full name: pipeline/view/connector
    #[arg(long = "as", value_name = "CONNECTOR", value_parser = parse_connector)]
    connector: ConnectorName,
    /// Why, for the table's history
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl AdoptArgs {
    /// The formats in which the result is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

fn parse_connector(text: &str) -> Result<ConnectorName, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let [pipeline, view, connector] = parts[..] else {
        return Err("a connector's full name is pipeline/view/connector".into());
    };
    ConnectorName::new(pipeline, view, connector).map_err(|e| e.message().to_string())
}

/// Runs the command; the exit code.
pub(super) fn run(args: &AdoptArgs, session: &Session) -> Result<u8> {
    session.block_on(async |world| {
        let mut signals = Signals::listen()?;
        let location = args.table.location(Access::Write(Durability::Commit))?;
        let name = args.connector.to_string();
        let adoption = Adoption::look(location, name.clone(), world.clone()).await?;
        let ours = adoption.ours().cloned().ok_or_else(|| Error::internal("the table looked at is not ours"))?;
        if !args.yes && !adoption.is_done()? {
            let question = Question {
                plan: format!(
                    "{}: generation {}, last step {}, goes from the connector {} to {name}",
                    args.table.uri, ours.generation, ours.last_step, ours.connector
                ),
                deed: "an adoption ends the delivery under the old name",
                answers: &[&name, args.connector.connector()],
                last_millis: ours.last_millis,
            };
            question.ask(session, &mut signals, &world).await?;
        }
        let adopted = adoption.commit(&who(), &args.reason).await?;
        match session.global.output {
            Output::Json => text::print_json(&document(&args.table.uri, &name, &ours, &adopted))?,
            Output::Text | Output::Ndjson | Output::Env => {
                text::print(&text::escaped(&line(&args.table.uri, &name, &ours, &adopted)))?;
            }
        }
        Ok(0)
    })
}

fn line(uri: &str, name: &str, ours: &Ours, adopted: &Adopted) -> String {
    match adopted {
        Adopted::Committed { version, from, epoch } => format!(
            "{uri}: version {version}, epoch {epoch}: the connector is {name}, no longer {from}; generation {} goes on, from the source {} only",
            ours.generation,
            source(ours)
        ),
        Adopted::Already => format!("{uri}: the connector is {name} already"),
    }
}

fn source(ours: &Ours) -> &str {
    ours.stamp.as_ref().map_or("", |s| &s.source)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    uri: &'a str,
    outcome: &'static str,
    connector: &'a str,
    from: Option<&'a str>,
    generation: u64,
    last_step: u64,
    source: &'a str,
    version: Option<u64>,
    epoch: Option<u64>,
}

fn document<'a>(uri: &'a str, connector: &'a str, ours: &'a Ours, adopted: &'a Adopted) -> Document<'a> {
    let (outcome, from, version, epoch) = match adopted {
        Adopted::Committed { version, from, epoch } => {
            ("committed", Some(from.as_str()), Some(*version), Some(epoch.get()))
        }
        Adopted::Already => ("already", None, None, None),
    };
    let (generation, last_step) = (ours.generation.get(), ours.last_step.get());
    let schema = "cutover.adopt/1";
    Document { schema, uri, outcome, connector, from, generation, last_step, source: source(ours), version, epoch }
}
