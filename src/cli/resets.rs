//! `cutover resets`: the resets that a daemon remembers of a connector.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::args::Output;
use super::client::Client;
use super::reach::Reach;
use super::{Print, Session, names, status, text};
use crate::daemon::SnapshotReport;
use crate::error::{Error, Result};

/// Arguments of `resets`.
#[derive(Debug, clap::Args)]
pub(super) struct ResetsArgs {
    /// The connector: its full name, or an end of it that is unambiguous
    connector: String,
}

impl ResetsArgs {
    /// The formats in which resets are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json, Output::Ndjson];
}

/// What is read of a reset.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct RemoteReset {
    /// Its id.
    pub(super) id: String,
    /// `accepted`, `snapshotting`, `committing`, `committed`, `cancelled`, `failed` or `expired`.
    pub(super) state: String,
    /// Who asked.
    pub(super) who: String,
    /// Why.
    pub(super) why: String,
    /// When it was accepted, in milliseconds since 1970 UTC.
    accepted_at: i64,
    /// The version that holds it.
    pub(super) version: Option<u64>,
    /// The generation that it began.
    pub(super) generation: Option<u64>,
    /// The step that the generation starts from.
    pub(super) step: Option<u64>,
    /// The kind of what failed.
    pub(super) code: Option<String>,
    /// What failed.
    pub(super) reason: Option<String>,
    /// How far its snapshot is.
    pub(super) progress: Option<SnapshotReport>,
}

/// What `resets -o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    name: &'a str,
    resets: &'a [Value],
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ResetsArgs, session: &Session) -> Result<u8> {
    let reach = Reach::of(session)?;
    session.block_on(async |_| {
        let mut print: Print<'_> = Box::new(text::print);
        list(args, session.global.output, &Client::new(&reach)?, &mut print).await
    })
}

async fn list(args: &ResetsArgs, output: Output, client: &Client, print: &mut Print<'_>) -> Result<u8> {
    let pipelines = client.pipelines().await?;
    let name = &names::connector(&pipelines, &args.connector)?.name;
    let resets: Vec<Value> = client.connector(Method::GET, name, &["resets"]).answer().await?;
    match output {
        Output::Json => print(&text::json(&Document { schema: "cutover.resets/1", name, resets: &resets })?)?,
        Output::Ndjson => {
            for reset in &resets {
                print(&text::json(reset)?)?;
            }
        }
        Output::Text | Output::Env if resets.is_empty() => print(&format!("{}: no resets", text::escaped(name)))?,
        Output::Text | Output::Env => {
            for reset in resets {
                let reset: RemoteReset = serde_json::from_value(reset).map_err(|e| {
                    Error::internal("a reset is not as this program knows them; use the daemon's version of it")
                        .with_source(e)
                })?;
                for line in lines(&reset) {
                    print(&text::escaped(&line))?;
                }
            }
        }
    }
    Ok(0)
}

/// How a reset stands.
pub(super) async fn reset(client: &Client, name: &str, id: &str) -> Result<RemoteReset> {
    client.connector(Method::GET, name, &["resets", id]).answer().await
}

fn lines(reset: &RemoteReset) -> Vec<String> {
    let accepted = chrono::DateTime::from_timestamp_millis(reset.accepted_at);
    let accepted = accepted.map_or("-".to_string(), |at| at.format("%Y-%m-%dT%H:%M:%SZ").to_string());
    let why = if reset.why.is_empty() { "no reason given" } else { &reset.why };
    let mut out = vec![format!("{}  {accepted}  {:<12}  by {}: {why}", reset.id, reset.state, reset.who)];
    let made = [("generation", reset.generation), ("cutover step", reset.step), ("version", reset.version)];
    let made: Vec<String> = made.iter().filter_map(|(what, n)| n.map(|n| format!("{what} {n}"))).collect();
    if !made.is_empty() {
        out.push(format!("  {}", made.join(", ")));
    }
    out.extend(reset.progress.as_ref().map(|progress| format!("  {}", status::progress(progress))));
    if let Some(reason) = &reset.reason {
        out.push(format!("  {}: {reason}", reset.code.as_deref().unwrap_or("failed")));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::args::Command;
    use crate::cli::fake_daemon::{FakeDaemon, Printed, Reply, parsed};

    async fn printed(line: &str, resets: Value) -> Printed {
        let calls = "GET /v1/pipelines/p/views/v/connectors/lake/resets?";
        let fake = FakeDaemon::with_one().await.on(calls, [Reply::Json(200, resets)]);
        let (session, command) = parsed(line);
        let Command::Resets(args) = command else { panic!("{command:?}") };
        let mut printed = Printed::default();
        list(&args, session.global.output, &fake.client, &mut printed.print()).await.unwrap();
        printed
    }

    fn resets() -> Value {
        json!([
            {"id": "b", "state": "snapshotting", "trigger": "asked", "who": "ada", "why": "", "accepted_at": 1_000,
             "progress": {"step": 9, "rows": 1200, "rows_known": 5000, "bytes": 2048, "rows_per_second": 500.0,
                          "seconds_left": 7.6}},
            {"id": "a", "state": "failed", "trigger": "asked", "who": "bob\u{1b}[31m", "why": "tidy", "accepted_at": 0,
             "code": "refused", "reason": "the table is not ours"},
            {"id": "0", "state": "committed", "trigger": "asked", "who": "bob", "why": "tidy", "accepted_at": 0,
             "version": 7, "generation": 2, "step": 120, "ended_at": 5},
        ])
    }

    #[tokio::test]
    async fn resets_are_listed_with_their_ends() {
        let text = printed("resets lake", resets()).await.text();
        assert_eq!(
            text,
            "b  1970-01-01T00:00:01Z  snapshotting  by ada: no reason given\n\
             \x20 1,200 of 5,000 rows, 2.0 KiB, 500 rows/s, 7 s left\n\
             a  1970-01-01T00:00:00Z  failed        by bob\\u{1b}[31m: tidy\n\
             \x20 refused: the table is not ours\n\
             0  1970-01-01T00:00:00Z  committed     by bob: tidy\n\
             \x20 generation 2, cutover step 120, version 7"
        );
        assert_eq!(printed("resets lake", json!([])).await.text(), "p/v/lake: no resets");
    }

    #[tokio::test]
    async fn resets_in_json_are_as_the_daemon_tells_them() {
        let document = printed("resets lake -o json", resets()).await.json();
        assert_eq!(document["schema"], "cutover.resets/1");
        assert_eq!(document["resets"], resets());
        assert_eq!(printed("resets lake -o ndjson", resets()).await.0.len(), 3);
    }
}
