//! `cutover wait`: until a connector's table holds a step.

use std::time::Duration;

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::args::Output;
use super::client::Client;
use super::reach::Reach;
use super::show::parse_step;
use super::{Print, Session, names, text};
use crate::clock::World;
use crate::config;
use crate::daemon::parse_token;
use crate::error::{Error, ErrorKind, Result};
use crate::step::Step;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Arguments of `wait`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true), after_help = "\
The exit code is 75 when the time is up. A connector that does not deliver is waited for all the same.")]
pub(super) struct WaitArgs {
    /// The connector: its full name, or an end of it that is unambiguous
    connector: String,
    /// Until the table holds everything up to this step
    #[arg(long, value_name = "N", value_parser = parse_step, group = "what")]
    step: Option<Step>,
    /// Until the table holds the step that a push was answered with
    #[arg(long, value_name = "T", group = "what")]
    token: Option<String>,
    /// How long at most
    #[arg(long, value_name = "TIME", value_parser = config::parse_duration, default_value = "60s")]
    timeout: Duration,
}

impl WaitArgs {
    /// The formats in which the end is printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &WaitArgs, session: &Session) -> Result<u8> {
    let reach = Reach::of(session)?;
    session.block_on(async |world| {
        let mut print: Print<'_> = Box::new(text::print);
        wait(args, session.global.output, &Client::new(&reach)?, &world, &mut print).await
    })
}

/// What `wait -o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    name: &'a str,
    step: u64,
    holds: bool,
    last_step: Option<u64>,
}

/// Whether a table holds a step.
#[derive(Deserialize)]
struct Holds {
    holds: bool,
    last_step: Option<u64>,
}

/// How far all connectors of a token's view are.
#[derive(Deserialize)]
struct CompletionStatus {
    status: String,
}

async fn wait(args: &WaitArgs, output: Output, client: &Client, world: &World, print: &mut Print<'_>) -> Result<u8> {
    let pipelines = client.pipelines().await?;
    let name = &names::connector(&pipelines, &args.connector)?.name;
    let step = match (&args.token, args.step) {
        (Some(token), _) => step_of(token, name)?,
        (None, Some(step)) => step,
        (None, None) => return Err(Error::internal("neither a step nor a token is given")),
    };
    let begun = world.clock.boot();
    let holds = loop {
        let looked = look(client, name, step, args.token.as_deref()).await;
        let left = args.timeout.saturating_sub(world.clock.boot().saturating_sub(begun));
        match looked {
            Ok(holds) if holds.holds => break holds,
            Ok(_) if left.is_zero() => return Err(late(args, client, name, step).await),
            Ok(_) => {}
            // The daemon may be started anew meanwhile.
            Err(error) if error.kind() == ErrorKind::Unavailable && !left.is_zero() => {}
            Err(error) => return Err(error),
        }
        world.clock.sleep(LOOK_EVERY.min(left)).await;
    };
    match output {
        Output::Json => {
            let last_step = holds.last_step;
            let document = Document { schema: "cutover.wait/1", name, step: step.get(), holds: true, last_step };
            print(&text::json(&document)?)?;
        }
        Output::Text | Output::Ndjson | Output::Env => {
            let last = holds.last_step.map(|last| format!(", last step {last}")).unwrap_or_default();
            print(&text::escaped(&format!("{name}: holds step {step}{last}")))?;
        }
    }
    Ok(0)
}

/// Whether the table holds `step`, and the daemon still knows the token's life of the view.
async fn look(client: &Client, name: &str, step: Step, token: Option<&str>) -> Result<Holds> {
    if let Some(token) = token {
        let pipeline = name.split('/').next().unwrap_or_default();
        let call = client.call(Method::GET, &["pipelines", pipeline, "completion_status"]).query("token", token);
        let completion: CompletionStatus = call.answer().await?;
        tracing::debug!(event = "completion", status = completion.status, "the daemon knows the token");
    }
    client.connector(Method::GET, name, &["holds"]).query("step", &step.to_string()).answer().await
}

/// The step of a token, which names its view, the view's life and the step.
fn step_of(token: &str, name: &str) -> Result<Step> {
    let view = name.split('/').nth(1).unwrap_or_default();
    let parsed = parse_token(token).filter(|(of, life, _)| *of == view && !life.is_empty());
    parsed.map(|(_, _, step)| step).ok_or_else(|| {
        Error::refused(format!(
            "the token is none of the view that {name} delivers; take the one that a push to it gave"
        ))
    })
}

/// The time is up: where the connector stands.
async fn late(args: &WaitArgs, client: &Client, name: &str, step: Step) -> Error {
    let stands = match client.status(name).await {
        Ok(report) => {
            let last = report.last_step.map_or("no table yet".to_string(), |last| format!("last step {last}"));
            let trouble = report.trouble.map(|t| format!("; {}: {}", t.reason, t.next_action)).unwrap_or_default();
            format!("it is {}, {last}{trouble}", report.state)
        }
        Err(error) => error.message().to_string(),
    };
    let waited = text::duration(args.timeout);
    Error::unavailable(format!("{name}: does not hold step {step} after {waited}: {stands}; wait longer by --timeout"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::args::Command;
    use crate::cli::fake_daemon::{FakeDaemon, Printed, Reply, connector, parsed, problem};

    const CALL: &str = "GET /v1/pipelines/p/views/v/connectors/lake";

    async fn run_line(line: &str, fake: &FakeDaemon) -> (Result<u8>, Printed) {
        let (session, command) = parsed(line);
        let Command::Wait(args) = command else { panic!("{command:?}") };
        let mut printed = Printed::default();
        let code = wait(&args, session.global.output, &fake.client, &fake.world, &mut printed.print()).await;
        (code, printed)
    }

    fn holds(holds: bool, last_step: u64) -> Reply {
        Reply::Json(200, json!({"holds": holds, "last_step": last_step}))
    }

    #[tokio::test]
    async fn a_step_is_waited_for_across_a_daemon_that_is_away() {
        let replies = [holds(false, 7), Reply::Hangup, problem(503, "stopped", "it starts"), holds(true, 9)];
        let fake = FakeDaemon::with_one().await.on(&format!("{CALL}/holds?step=9"), replies);
        let (code, printed) = run_line("wait lake --step 9", &fake).await;
        assert_eq!(code.unwrap(), 0);
        assert_eq!(printed.text(), "p/v/lake: holds step 9, last step 9");
        assert_eq!(fake.asked(&format!("{CALL}/holds")).len(), 4);
        let document = run_line("wait lake --step 9 -o json", &fake).await.1.json();
        assert_eq!(document["schema"], "cutover.wait/1");
        assert_eq!((&document["holds"], &document["last_step"]), (&Value::Bool(true), &json!(9)));
    }

    #[tokio::test]
    async fn when_the_time_is_up_it_says_where_the_connector_stands() {
        let mut stuck = connector("p/v/lake");
        stuck["state"] = json!("fenced");
        stuck["trouble"] = json!({"code": "fenced", "reason": "another writer", "next_action": "stop it"});
        let fake = FakeDaemon::with_one()
            .await
            .on(&format!("{CALL}/holds"), [holds(false, 345)])
            .on(&format!("{CALL}/status"), [Reply::Json(200, stuck)]);
        let error = run_line("wait lake --step 400 --timeout 2s", &fake).await.0.unwrap_err();
        assert_eq!(error.kind().exit_code(), 75);
        let said = "p/v/lake: does not hold step 400 after 2 s: it is fenced, last step 345; another writer: stop it";
        assert!(error.message().starts_with(said), "{error}");
        assert_eq!(fake.asked(&format!("{CALL}/holds")).len(), 9);
    }

    #[tokio::test]
    async fn a_token_is_waited_for_as_long_as_the_daemon_knows_it() {
        let completion = "GET /v1/pipelines/p/completion_status?token=v.abc.9";
        let fake = FakeDaemon::with_one()
            .await
            .on(completion, [Reply::Json(200, json!({"status": "inprogress"}))])
            .on(&format!("{CALL}/holds?step=9"), [holds(false, 8), holds(true, 9)]);
        assert_eq!(run_line("wait lake --token v.abc.9", &fake).await.0.unwrap(), 0);
        assert_eq!(fake.asked(completion).len(), 2);

        let fake = FakeDaemon::with_one().await.on(completion, [problem(410, "gone", "another life")]);
        let error = run_line("wait lake --token v.abc.9", &fake).await.0.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Refused, "another life"));
        for token in ["w.abc.9", "v.9", "v..9", "v.abc.x", "nonsense"] {
            let error = run_line(&format!("wait lake --token {token}"), &fake).await.0.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{token}");
        }
    }
}
