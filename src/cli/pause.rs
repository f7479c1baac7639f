//! `cutover pause` and `cutover resume`: whether a connector of a daemon delivers.

use reqwest::Method;

use super::args::Output;
use super::client::Client;
use super::reach::Reach;
use super::{Print, Session, names, text};
use crate::daemon::ConnectorReport;
use crate::error::Result;

/// Arguments of `pause` and `resume`.
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    /// The connector: its full name, or an end of it that is unambiguous
    connector: String,
}

impl PauseArgs {
    /// The formats in which the connector is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// What a connector is told.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    /// To deliver nothing, across restarts too.
    Pause,
    /// To deliver again, and to try again what failed.
    Resume,
}

/// Runs the command; the exit code.
pub(super) fn run(args: &PauseArgs, order: Order, session: &Session) -> Result<u8> {
    let reach = Reach::of(session)?;
    session.block_on(async |_| {
        let mut print: Print<'_> = Box::new(text::print);
        tell(args, order, session.global.output, &Client::new(&reach)?, &mut print).await
    })
}

async fn tell(args: &PauseArgs, order: Order, output: Output, client: &Client, print: &mut Print<'_>) -> Result<u8> {
    let pipelines = client.pipelines().await?;
    let name = &names::connector(&pipelines, &args.connector)?.name;
    let word = match order {
        Order::Pause => "pause",
        Order::Resume => "resume",
    };
    let report: ConnectorReport = client.connector(Method::POST, name, &[word]).answer().await?;
    match output {
        Output::Json => print(&text::json(&report)?)?,
        Output::Text | Output::Ndjson | Output::Env => {
            let step = report.last_step.map(|step| format!(", last step {step}")).unwrap_or_default();
            let told = match order {
                Order::Pause => "is told to pause",
                Order::Resume => "is told to go on",
            };
            print(&text::escaped(&format!("{name} {told}: {}{step}", report.state)))?;
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::Command;
    use crate::cli::fake_daemon::{FakeDaemon, Printed, Reply, connector, parsed, problem};
    use crate::error::ErrorKind;

    const CALL: &str = "/v1/pipelines/p/views/v/connectors/lake";

    async fn run_line(line: &str, fake: &FakeDaemon) -> (Result<u8>, Printed) {
        let mut printed = Printed::default();
        let (session, command) = parsed(line);
        let (args, order) = match &command {
            Command::Pause(args) => (args, Order::Pause),
            Command::Resume(args) => (args, Order::Resume),
            other => panic!("{other:?}"),
        };
        let code = tell(args, order, session.global.output, &fake.client, &mut printed.print()).await;
        (code, printed)
    }

    #[tokio::test]
    async fn a_connector_is_told_and_shown() {
        let mut paused = connector("p/v/lake");
        paused["state"] = json!("paused");
        let fake = FakeDaemon::with_one()
            .await
            .on(&format!("POST {CALL}/pause"), [Reply::Json(200, paused.clone())])
            .on(&format!("POST {CALL}/resume"), [Reply::Json(200, connector("p/v/lake"))]);
        let (code, printed) = run_line("pause lake", &fake).await;
        assert_eq!(code.unwrap(), 0);
        assert_eq!(printed.text(), "p/v/lake is told to pause: paused, last step 345");
        let (_, printed) = run_line("resume v/lake", &fake).await;
        assert_eq!(printed.text(), "p/v/lake is told to go on: following, last step 345");
        let (_, printed) = run_line("pause lake -o json", &fake).await;
        assert_eq!(printed.json(), paused);
    }

    #[tokio::test]
    async fn what_a_daemon_refuses_keeps_its_kind() {
        let fake = FakeDaemon::with_one().await.on(
            &format!("POST {CALL}/resume"),
            [
                problem(507, "not_recorded", "the journal is full"),
                problem(500, "internal", "a defect"),
                problem(403, "forbidden", "the role admin is needed"),
                problem(401, "unauthorized", "no token"),
                problem(503, "fenced", "another writer"),
                Reply::Problem(502, json!("no problem at all"), None),
            ],
        );
        for (kind, said) in [
            (ErrorKind::Unavailable, "the journal is full"),
            (ErrorKind::Internal, "a defect"),
            (ErrorKind::Refused, "the role admin is needed"),
            (ErrorKind::Config, "no token"),
            (ErrorKind::Fenced, "another writer"),
            (ErrorKind::Unavailable, "refuses by HTTP 502; is it a cutover daemon"),
        ] {
            let error = run_line("resume lake", &fake).await.0.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.message().contains(said), "{error}");
        }
        let unknown = run_line("pause lak", &fake).await.0.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Config);
        assert!(unknown.message().contains("there are p/v/lake"), "{unknown}");
    }
}
