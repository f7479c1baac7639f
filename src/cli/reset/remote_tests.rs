use serde_json::{Value, json};

use super::*;
use crate::cli::args::Command;
use crate::cli::fake_daemon::{FakeDaemon, Printed, Reply, connector, parsed, pipelines_of, problem};

const CALL: &str = "POST /v1/pipelines/p/views/v/connectors/lake/reset?";
const LOOK: &str = "GET /v1/pipelines/p/views/v/connectors/lake/resets/5c3c?";

fn accepted(is_new: bool) -> Reply {
    Reply::Json(202, json!({"id": "5c3c", "token": "5c3c", "new": is_new, "status_url": "/v1/x"}))
}

fn preview() -> Reply {
    let replaces = json!({"generation": 2, "last_step": 345});
    Reply::Json(200, json!({"generation": 3, "cutover": 345, "replaces": replaces, "log": "passed"}))
}

fn state(state: &str, more: Value) -> Reply {
    let mut reset = json!({
        "id": "5c3c", "state": state, "trigger": "asked", "who": "ada", "why": "", "accepted_at": 0,
    });
    reset.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Reply::Json(200, reset)
}

fn args(line: &str) -> (Session, ResetArgs) {
    let (session, command) = parsed(line);
    let Command::Reset(args) = command else { panic!("{command:?}") };
    (session, args)
}

async fn run_line(line: &str, fake: &FakeDaemon) -> (Result<u8>, Printed) {
    let (session, args) = args(line);
    let mut printed = Printed::default();
    let code = ask(&args, &session, &fake.client, &fake.world, &mut printed.print()).await;
    (code, printed)
}

#[tokio::test]
async fn a_reset_is_asked_for_and_its_id_is_told() {
    let fake = FakeDaemon::with_one().await.on(CALL, [accepted(true), accepted(false)]);
    let line = "reset lake --yes --reason tidy --expected-generation 2 --override-breaker";
    let (code, printed) = run_line(line, &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(printed.text(), "p/v/lake: the reset 5c3c is accepted; its state: cutover resets p/v/lake");
    let asked = fake.asked(CALL).remove(0);
    assert_eq!(asked.json(), json!({"reason": "tidy", "expected_generation": 2, "override_breaker": true}));
    assert!(asked.header("idempotency-key").is_some_and(|key| key.len() == 36));
    let (_, printed) = run_line("reset lake --yes -o json", &fake).await;
    assert_eq!(fake.asked(CALL)[1].json(), json!({}));
    let reset = &printed.json()["resets"][0];
    assert_eq!((&reset["id"], &reset["outcome"]), (&json!("5c3c"), &json!("accepted")));
    let (_, printed) = run_line("reset lake --yes", &fake).await;
    assert_eq!(printed.text(), "p/v/lake: the reset 5c3c, which was accepted before, is what was asked for");
}

#[tokio::test]
async fn an_answer_that_is_lost_makes_no_second_reset() {
    let fake = FakeDaemon::with_one().await.on(CALL, [Reply::Hangup, Reply::Hangup, accepted(false)]);
    let (code, printed) = run_line("reset lake --yes", &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert!(printed.text().contains("the reset 5c3c is accepted"), "{}", printed.text());
    let asked = fake.asked(CALL);
    let keys: Vec<_> = asked.iter().map(|a| a.header("idempotency-key").unwrap()).collect();
    assert_eq!(keys, [keys[0]; 3]);
    let fake = FakeDaemon::with_one().await.on(CALL, [Reply::Hangup]);
    assert_eq!(run_line("reset lake --yes", &fake).await.0.unwrap(), 69);
}

#[tokio::test]
async fn its_end_is_waited_for_across_a_restart_of_the_daemon() {
    let progress = json!({"progress": {"step": 345, "rows": 7, "rows_known": null, "bytes": 0,
                                       "rows_per_second": null, "seconds_left": null}});
    let fake = FakeDaemon::with_one().await.on(CALL, [accepted(true)]).on(
        LOOK,
        [
            state("accepted", json!({})),
            state("snapshotting", progress),
            Reply::Hangup,
            problem(503, "stopped", "it starts"),
            state("committing", json!({})),
            state("committed", json!({"version": 9, "generation": 3, "step": 345})),
        ],
    );
    let (code, printed) = run_line("reset lake --yes --wait", &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(printed.text(), "p/v/lake: generation 3, cutover step 345, version 9");
    let (_, printed) = run_line("reset lake --yes --wait -o json", &fake).await;
    let expected = json!({
        "name": "p/v/lake", "id": "5c3c", "outcome": "committed", "log": null, "generation": 3, "cutover": 345,
        "version": 9, "rows": null, "error": null,
    });
    assert_eq!(printed.json(), json!({"schema": "cutover.reset/1", "resets": [expected]}));
}

#[tokio::test]
async fn how_a_reset_ended_decides_the_exit_code() {
    for (end, code, kind) in [
        (state("cancelled", json!({"code": "cancelled", "reason": "bob took it back"})), 5, "refused"),
        (state("failed", json!({"code": "corrupt", "reason": "a file is damaged"})), 3, "corrupt"),
        (state("failed", json!({"code": "elsewhere", "reason": "?"})), 1, "internal"),
        (state("expired", json!({})), 75, "unavailable"),
        (problem(410, "gone", "another life"), 5, "refused"),
    ] {
        let fake = FakeDaemon::with_one().await.on(CALL, [accepted(true)]).on(LOOK, [end]);
        let (ended, printed) = run_line("reset lake --yes --wait -o json", &fake).await;
        assert_eq!(ended.unwrap(), code);
        assert_eq!(printed.json()["resets"][0]["error"]["kind"], kind);
    }
    for (refusal, code) in [
        (problem(409, "generation_differs", "another generation"), 5),
        (problem(422, "no_snapshot", "mode = follow"), 5),
        (problem(429, "breaker_open", "too many resets"), 5),
        (problem(507, "not_recorded", "the journal is full"), 75),
    ] {
        let fake = FakeDaemon::with_one().await.on(CALL, [refusal]);
        assert_eq!(run_line("reset lake --yes", &fake).await.0.unwrap(), code);
        assert_eq!(fake.asked(CALL).len(), 1, "what is refused is not asked again");
    }
}

#[tokio::test]
async fn a_dry_run_and_a_missing_consent_ask_only_what_would_happen() {
    let fake = FakeDaemon::with_one().await.on(CALL, [preview()]);
    let (code, printed) = run_line("reset lake --dry-run --reason tidy", &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(
        printed.text(),
        "p/v/lake: generation 2, last step 345, is replaced by generation 3, cutover step 345; the damaged log is passed; nothing is written"
    );
    let (_, printed) = run_line("reset lake --dry-run -o json", &fake).await;
    let reset = &printed.json()["resets"][0];
    assert_eq!(
        (&reset["outcome"], &reset["log"], &reset["cutover"]),
        (&json!("dry_run"), &json!("passed"), &json!(345))
    );
    let (code, printed) = run_line("reset lake -o json", &fake).await;
    assert_eq!(code.unwrap(), 5);
    let error = &printed.json()["resets"][0]["error"];
    assert!(error["message"].as_str().unwrap().contains("confirm it with --yes"), "{error}");
    assert!(fake.asked(CALL).iter().all(|asked| asked.json()["dry_run"] == true));
}

#[tokio::test]
async fn each_named_connector_is_asked_for_once_and_the_first_failure_decides() {
    let both = pipelines_of(&[connector("p/v/lake"), connector("p/v/other")]);
    let fake = FakeDaemon::start()
        .await
        .on("GET /v1/pipelines?", [Reply::Json(200, both)])
        .on(CALL, [accepted(true)])
        .on("POST /v1/pipelines/p/views/v/connectors/other/reset", [problem(422, "no_snapshot", "mode = follow")]);
    let (code, printed) = run_line("reset other lake v/lake --yes -o json", &fake).await;
    assert_eq!(code.unwrap(), 5);
    let outcomes: Vec<_> = printed.json()["resets"].as_array().unwrap().iter().map(|r| r["outcome"].clone()).collect();
    assert_eq!(outcomes, ["failed", "accepted"]);
    let error = run_line("reset lak --yes", &fake).await.0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[test]
fn what_a_daemon_cannot_be_told_is_refused_with_the_remedy() {
    for (line, said) in [
        ("reset lake --yes --rebuild-log", "stop the daemon, run the command without --url"),
        ("reset lake --yes --allow-older", "stop the daemon, run the command without --url"),
        ("reset lake --yes --set pipelines.p.source.files.path=x", "--set does not reach the daemon"),
    ] {
        let error = check(&args(line).1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{line}");
        assert!(error.message().contains(said), "{error}");
    }
    check(&args("reset lake --yes --set server.data_dir=x").1).unwrap();
}
