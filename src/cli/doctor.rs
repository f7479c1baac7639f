//! `cutover doctor`: what `check` finds, how everything does, and what a daemon says of it.

use reqwest::Method;

use super::args::Output;
use super::check::{self, exit_code};
use super::client::Client;
use super::failure;
use super::reach::Reach as Way;
use super::resets::RemoteReset;
use super::{Session, names, text};
use crate::ailment::Ailment;
use crate::daemon::{ConnectorReport, Health, PipelineReport, Reach};
use crate::error::{ErrorKind, Result};

/// How many resets are told of each connector.
const RESETS: usize = 3;
/// The exit code of a daemon that cannot be reached.
const UNREACHABLE: u8 = 69;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Looks at everything that check looks at, says how it does, and asks the daemon if one runs. Exits as check does.")]
pub(super) struct DoctorArgs {
    /// A connector: its full name, or an end of it that is unambiguous; absent: all
    connector: Option<String>,
}

impl DoctorArgs {
    /// The formats in which it is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &DoctorArgs, session: &Session) -> Result<u8> {
    let mut found = match Way::of(session) {
        Ok(way) => session.block_on(async |_| asked(args, &way).await)?,
        Err(e) => vec![Ailment::note("--url", format!("no daemon is asked: {}", e.message()))],
    };
    found.extend(check::looked_at(args.connector.as_deref(), Reach::Deep, session)?);
    check::print("cutover.doctor/1", &found, session)?;
    Ok(exit_code(&found))
}

/// What a daemon says of its connectors.
async fn asked(args: &DoctorArgs, way: &Way) -> Result<Vec<Ailment>> {
    let (client, place) = (Client::new(way)?, way.url.as_str().trim_end_matches('/'));
    let pipelines = match client.pipelines().await {
        Ok(pipelines) => pipelines,
        Err(e) if failure::exit_code(&e) == UNREACHABLE => {
            return Ok(vec![Ailment::note(place, "no daemon answers; what it would keep is looked at from here")]);
        }
        Err(e) => return Ok(vec![Ailment::of(place, &e)]),
    };
    let mut found = Vec::new();
    let meant: Vec<&ConnectorReport> = match &args.connector {
        Some(name) => vec![names::connector(&pipelines, name)?],
        None => pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors).collect(),
    };
    views(&pipelines, &meant, &mut found);
    for report in meant {
        connector(report, &mut found);
        let resets: Result<Vec<RemoteReset>> = client.connector(Method::GET, &report.name, &["resets"]).answer().await;
        match resets {
            Ok(resets) => found.extend(resets.iter().take(RESETS).map(|reset| told(&report.name, reset))),
            Err(e) => found.push(Ailment::of(&report.name, &e)),
        }
    }
    Ok(found)
}

fn views(pipelines: &[PipelineReport], meant: &[&ConnectorReport], found: &mut Vec<Ailment>) {
    for pipeline in pipelines {
        for view in &pipeline.views {
            let place = format!("{}/{}", pipeline.name, view.name);
            if !view.connectors.is_empty() && !view.connectors.iter().any(|c| meant.iter().any(|m| m.name == c.name)) {
                continue;
            }
            if let Some(trouble) = &view.trouble {
                let remedy = format!("correct it; where rows are missing, cutover reset {place}/CONNECTOR --yes");
                found.push(Ailment::error(ErrorKind::ContinuityLost, &place, trouble.clone(), remedy));
            } else if let Some(refusal) = &view.refusal {
                found.push(Ailment::error(ErrorKind::Unavailable, &place, refusal.clone(), "cutover status"));
            }
            if let Some(log) = &view.step_log {
                let (bytes, most) = (text::bytes(log.bytes), text::bytes(log.max_bytes));
                found.push(Ailment::note(
                    &place,
                    format!(
                        "its step log holds the steps after {} up to {}, {bytes} of {most}",
                        log.earliest, log.last
                    ),
                ));
            }
        }
    }
}

fn connector(report: &ConnectorReport, found: &mut Vec<Ailment>) {
    let known = |step: Option<u64>| step.map_or("none".to_owned(), |step| step.to_string());
    found.push(Ailment::note(
        &report.name,
        format!(
            "{}, its last step is {}, its source's {}",
            report.state,
            known(report.last_step),
            known(report.source_step)
        ),
    ));
    let Some(trouble) = &report.trouble else { return };
    let said = format!("{}: {}", trouble.code, trouble.reason);
    let kind = match trouble.code.as_str() {
        "continuity_lost" => ErrorKind::ContinuityLost,
        "fenced" => ErrorKind::Fenced,
        "config" => ErrorKind::Config,
        "unavailable" | "behind" => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    };
    let ailment = Ailment::error(kind, &report.name, said, trouble.next_action.clone());
    let is_wrong = report.health == Health::Unhealthy;
    found.push(if is_wrong {
        ailment
    } else {
        Ailment::warning(&report.name, ailment.said, trouble.next_action.clone())
    });
}

fn told(name: &str, reset: &RemoteReset) -> Ailment {
    let RemoteReset { id, state, who, why, generation, reason, .. } = reset;
    let generation = generation.map(|generation| format!(", generation {generation}")).unwrap_or_default();
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    Ailment::note(name, format!("the reset {id} by {who} ({why}) is {state}{generation}{reason}"))
}
