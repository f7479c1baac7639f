use serde_json::{Value, json};

use super::*;
use crate::cli::args::Command;
use crate::cli::failure;
use crate::cli::fake_daemon::{FakeDaemon, Printed, Reply, connector, parsed, pipelines, pipelines_of};

async fn daemon(replies: impl IntoIterator<Item = Value>) -> FakeDaemon {
    FakeDaemon::start().await.on("GET /v1/pipelines?", replies.into_iter().map(|v| Reply::Json(200, v)))
}

async fn printed(line: &str, fake: &FakeDaemon) -> Result<Printed> {
    let (session, command) = parsed(line);
    let Command::Status(args) = command else { panic!("{command:?}") };
    let mut printed = Printed::default();
    once(&args, session.global.output, &fake.client, &mut printed.print()).await?;
    Ok(printed)
}

/// A connector that loads, one that is behind, and one that is broken.
fn several() -> Value {
    let (mut loads, mut lags, mut broken) = (connector("p/v/a"), connector("p/v/lake"), connector("p/v/z"));
    for key in ["generation", "cutover", "last_step", "lag_steps"] {
        loads[key] = json!(null);
    }
    loads["state"] = json!("snapshotting");
    loads["reset"] = json!("5c3c");
    loads["snapshot"] = json!({
        "step": 340, "rows": 1200, "rows_known": 5000, "bytes": 1536, "rows_per_second": 500.4, "seconds_left": 7.6,
    });
    lags["lag_steps"] = json!(1345);
    lags["lag_seconds"] = json!(61.5);
    broken["state"] = json!("fenced");
    broken["health"] = json!("unhealthy");
    broken["trouble"] = json!({"code": "fenced", "reason": "a writer \u{1b}[31mof others", "next_action": "stop it"});
    pipelines_of(&[loads, lags, broken])
}

#[tokio::test]
async fn what_an_operator_needs_is_in_the_table() {
    let text = printed("status", &daemon([several()]).await).await.unwrap().text();
    assert_eq!(
        text,
        "CONNECTOR  STATE         HEALTH     GENERATION  CUTOVER  LAST STEP  LAG\n\
         p/v/a      snapshotting  healthy    -           -        -          -\n\
         \x20 snapshot of step 340: 1,200 of 5,000 rows, 1.5 KiB, 500 rows/s, 7 s left\n\
         \x20 reset 5c3c is under way\n\
         p/v/lake   following     healthy    2           120      345        1,345 steps, 1 min 1 s\n\
         p/v/z      fenced        unhealthy  2           120      345        none\n\
         \x20 wrong (fenced): a writer \\u{1b}[31mof others\n\
         \x20 helps: stop it\n\
         view p/v (push): 5,000 rows; step log behind 100 up to 345, 1.0 MiB of 8.0 GiB (0 %)"
    );
    let none = printed("status", &daemon([json!([])]).await).await.unwrap().text();
    assert_eq!(none, "no connectors");
}

#[tokio::test]
async fn one_connector_is_found_by_the_end_of_its_name() {
    let fake = daemon([several()]).await;
    for name in ["lake", "v/lake", "p/v/lake"] {
        let text = printed(&format!("status {name}"), &fake).await.unwrap().text();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("\np/v/lake "), "{text}");
    }
    let twice = pipelines_of(&[connector("p/v/lake"), connector("p/w/lake")]);
    let error = printed("status lake", &daemon([twice]).await).await.unwrap_err();
    assert!(error.message().contains("write one of p/v/lake, p/w/lake"), "{error}");
    let error = printed("status ake", &fake).await.unwrap_err();
    assert!(error.message().contains("there are p/v/a, p/v/lake, p/v/z"), "{error}");
}

#[tokio::test]
async fn json_is_what_the_daemon_tells() {
    let fake = daemon([pipelines()]).await;
    let document = printed("status -o json", &fake).await.unwrap().json();
    assert_eq!((&document["schema"], &document["pipelines"]), (&json!("cutover.pipelines/1"), &pipelines()));
    assert_eq!(printed("status lake -o json", &fake).await.unwrap().json(), connector("p/v/lake"));
    let lines = printed("status -o ndjson", &daemon([several()]).await).await.unwrap();
    let names: Vec<Value> =
        lines.0.iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["name"].clone()).collect();
    assert_eq!(names, ["p/v/a", "p/v/lake", "p/v/z"]);
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_69() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap()).parse().unwrap();
    drop(gone);
    let error =
        Client::new(&Reach { url, token: None, options: String::new() }).unwrap().pipelines().await.unwrap_err();
    assert_eq!((error.kind(), failure::exit_code(&error)), (ErrorKind::Unavailable, 69));
    assert!(error.message().contains("cannot be reached; start it by cutover run"), "{error}");

    let fake = FakeDaemon::start().await.on("GET /v1/pipelines?", [Reply::Hangup]);
    let error = printed("status", &fake).await.unwrap_err();
    assert_eq!(failure::exit_code(&error), 69, "{error}");
    let fake = daemon([json!({"no": "list"})]).await;
    let error = printed("status", &fake).await.unwrap_err();
    assert_eq!(failure::exit_code(&error), 1, "{error}");
}

#[tokio::test]
async fn the_token_is_sent_and_shown_nowhere() {
    let fake = daemon([pipelines()]).await;
    let token = Some(crate::config::Secret::new("CANARY"));
    let client = Client::new(&Reach { url: fake.url.parse().unwrap(), token, options: String::new() }).unwrap();
    client.pipelines().await.unwrap();
    assert_eq!(fake.asked("GET")[0].header("authorization"), Some("Bearer CANARY"));
    assert!(!format!("{client:?}").contains("CANARY"), "{client:?}");
}

/// What a watch prints in so many looks.
async fn watched(line: &str, screen: Screen, fake: &FakeDaemon, looks: usize) -> Result<Vec<String>> {
    let (session, command) = parsed(line);
    let Command::Status(args) = command else { panic!("{command:?}") };
    let mut printed = Printed::default();
    let watch = Watch { args: &args, session: &session, client: &fake.client, world: &fake.world, screen };
    // Completes when everything that is to be seen was asked for.
    let stop = async {
        while fake.asked("GET").len() < looks {
            tokio::task::yield_now().await;
        }
    };
    watch.run(stop, &mut printed.print()).await?;
    Ok(printed.0)
}

#[tokio::test]
async fn a_watch_says_what_changed_and_bears_a_daemon_that_is_away() {
    let replies =
        [Reply::Json(200, several()), Reply::Hangup, Reply::Json(200, several()), Reply::Json(200, pipelines())];
    let fake = FakeDaemon::start().await.on("GET /v1/pipelines?", replies);
    let lines = watched("status --watch -o ndjson", Screen::Appended, &fake, 5).await.unwrap();
    assert_eq!(lines.len(), 4, "three connectors, and one that changed: {lines:?}");
    let fake = daemon([pipelines()]).await;
    let lines = watched("status --watch lake", Screen::Cleared, &fake, 3).await.unwrap();
    assert!(lines.len() >= 3 && lines.iter().all(|line| line.starts_with(CLEAR)), "{lines:?}");
    let fake = daemon([pipelines()]).await;
    assert_eq!(watched("status --watch", Screen::Appended, &fake, 3).await.unwrap().len(), 1);
    let fake = FakeDaemon::start().await.on("GET /v1/pipelines?", [Reply::Hangup]);
    watched("status --watch", Screen::Appended, &fake, 3).await.unwrap_err();
}
