use std::path::Path;

use serde_json::json;

use super::*;
use crate::cli::args::Command;
use crate::cli::fake_daemon::{Asked, FakeDaemon, Printed, Reply, parsed, pipelines, problem};
use crate::error::ErrorKind;

const CALL: &str = "POST /v1/pipelines/p/ingress/v";
const ROWS: &str = "{\"insert\":{\"id\":1}}\n\n{\"insert\":{\"id\":2}}\n{\"insert\":{\"id\":3}}\n";

fn taken(step: u64) -> Reply {
    Reply::Json(200, json!({"token": format!("v.abc.{step}"), "step": step, "already_applied": false}))
}

fn repeated(step: u64) -> Reply {
    Reply::Json(200, json!({"token": format!("v.abc.{step}"), "step": step, "already_applied": true}))
}

fn at_last(last: u64) -> Reply {
    let mut pipelines = pipelines();
    pipelines[0]["views"][0]["step_log"]["last"] = json!(last);
    Reply::Json(200, pipelines)
}

/// A daemon that answers so to steps, and has these last steps when asked.
async fn daemon(last: &[u64], replies: Vec<Reply>) -> FakeDaemon {
    let lasts: Vec<Reply> = last.iter().map(|last| at_last(*last)).collect();
    FakeDaemon::start().await.on("GET /v1/pipelines?", lasts).on(CALL, replies)
}

async fn run_line(line: &str, fake: &FakeDaemon) -> (Result<u8>, Printed) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("rows");
    std::fs::write(&path, ROWS).unwrap();
    let (session, command) = parsed(&line.replace("FILE", path.to_str().unwrap()));
    let Command::Push(args) = command else { panic!("{command:?}") };
    let mut printed = Printed::default();
    let code = push(&args, &session, &fake.client, &fake.world, &mut printed.print()).await;
    (code, printed)
}

/// The queries of the steps that were sent.
fn steps(fake: &FakeDaemon) -> Vec<String> {
    let query = |asked: Asked| asked.line.split_once('?').unwrap().1.to_string();
    fake.asked(CALL)
        .into_iter()
        .map(query)
        .map(|q| q.replace("format=ndjson&update_format=insert_delete&", ""))
        .collect()
}

#[tokio::test]
async fn all_of_a_file_is_the_step_behind_the_last() {
    let fake = daemon(&[345], vec![taken(346)]).await;
    let (code, printed) = run_line("push v FILE", &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(printed.text(), "p/v: step 346, token v.abc.346");
    let asked = fake.asked(CALL).remove(0);
    assert_eq!(asked.line, format!("{CALL}?format=ndjson&update_format=insert_delete&step=346&after=345"));
    assert_eq!(asked.body, ROWS);
    assert_eq!(asked.header("content-type"), Some("application/x-ndjson"));
}

#[tokio::test]
async fn formats_and_numbers_are_handed_on() {
    for (options, expected) in [
        ("--format arrow --step 9", "format=arrow&step=9"),
        ("--update-format debezium --step 9 --after 4", "format=ndjson&update_format=debezium&step=9&after=4"),
        ("--update-format raw", "format=ndjson&update_format=raw&step=346&after=345"),
    ] {
        let fake = daemon(&[345], vec![taken(9)]).await;
        run_line(&format!("push p/v FILE {options}"), &fake).await.0.unwrap();
        assert_eq!(fake.asked(CALL)[0].line, format!("{CALL}?{expected}"));
    }
}

#[tokio::test]
async fn so_many_lines_a_step_are_answered_one_by_one() {
    let fake = daemon(&[345], vec![taken(346), taken(347)]).await;
    let (_, printed) = run_line("push v FILE --batch-rows 2 -o ndjson", &fake).await;
    assert_eq!(steps(&fake), ["step=346&after=345", "step=347&after=346"]);
    assert_eq!(printed.0.len(), 2);
    assert_eq!(printed.0[1], r#"{"token":"v.abc.347","step":347,"already_applied":false}"#);
    let fake = daemon(&[345], vec![taken(10), repeated(11)]).await;
    let (_, printed) = run_line("push v FILE --batch-rows 2 --step 10 --after 5 -o json", &fake).await;
    assert_eq!(steps(&fake), ["step=10&after=5", "step=11&after=10"]);
    let document = printed.json();
    assert_eq!((&document["schema"], &document["view"]), (&json!("cutover.push/1"), &json!("p/v")));
    assert_eq!((&document["steps"][1]["already_applied"], &document["error"]), (&json!(true), &json!(null)));
}

#[tokio::test]
async fn a_step_is_sent_again_with_its_number_until_it_is_there() {
    let mut full = problem(503, "step_log_full", "the step log is full");
    if let Reply::Problem(.., wait) = &mut full {
        *wait = Some(30);
    }
    let fake = daemon(&[345], vec![full, Reply::Hangup, problem(507, "no_space", "no room"), repeated(346)]).await;
    let (code, printed) = run_line("push v FILE", &fake).await;
    assert_eq!(code.unwrap(), 0);
    assert_eq!(printed.text(), "p/v: step 346, token v.abc.346, applied before");
    assert_eq!(steps(&fake), ["step=346&after=345"; 4]);
    assert!(fake.world.clock.boot() >= Duration::from_secs(30), "Retry-After is waited for");
}

#[tokio::test]
async fn a_daemon_that_takes_nothing_is_given_up_and_the_number_is_told() {
    let fake = daemon(&[345], vec![problem(503, "step_log_full", "the step log is full")]).await;
    let error = run_line("push v FILE", &fake).await.0.unwrap_err();
    assert_eq!(failure::exit_code(&error), 75);
    for said in ["the step log is full", "--step 346 --after 345", "nothing was applied before it"] {
        assert!(error.message().contains(said), "{error}");
    }
    let fake = daemon(&[345], vec![Reply::Hangup]).await;
    let error = run_line("push v FILE", &fake).await.0.unwrap_err();
    assert_eq!(failure::exit_code(&error), 69);
    assert!(fake.world.clock.boot() < PATIENCE);
}

#[tokio::test]
async fn a_number_that_somebody_else_took_is_left_to_them() {
    let conflict = || problem(409, "other_content", "step 346 is stored with other content");
    // In turn: taken before it was sent; taken while its answer was lost; the same content of somebody else.
    for (replies, lasts) in [
        (vec![conflict(), taken(351)], [345, 350]),
        (vec![Reply::Hangup, conflict(), taken(351)], [345, 350]),
        (vec![repeated(346), taken(347)], [345, 346]),
    ] {
        let fake = daemon(&lasts, replies).await;
        run_line("push v FILE", &fake).await.0.unwrap();
        let last = lasts[1];
        assert_eq!(*steps(&fake).last().unwrap(), format!("step={}&after={last}", last + 1));
    }
    let fake = daemon(&[345], vec![conflict()]).await;
    let error = run_line("push v FILE", &fake).await.0.unwrap_err();
    assert!(error.message().contains("others were faster 100 times"), "{error}");
    let fake = daemon(&[345], vec![conflict()]).await;
    let error = run_line("push v FILE --step 346", &fake).await.0.unwrap_err();
    assert_eq!((error.kind(), fake.asked(CALL).len()), (ErrorKind::Refused, 1), "a number that was given is kept");
}

#[tokio::test]
async fn a_line_that_is_refused_is_named_in_the_whole_input() {
    let fake = daemon(&[345], vec![taken(346), problem(400, "bad_changes", "line 1: column \"id\" is text")]).await;
    let (code, printed) = run_line("push v FILE --batch-rows 2 -o json", &fake).await;
    let error = code.unwrap_err();
    assert_eq!(
        error.message(),
        "line 4 of the input: column \"id\" is text (step 347); step 346 is applied before it (lines 1 to 3); go on with line 4"
    );
    assert_eq!(error.kind().exit_code(), 5);
    assert_eq!(printed.json()["steps"].as_array().unwrap().len(), 1);
    assert_eq!(printed.json()["error"]["kind"], "refused");
    let fake = daemon(&[345], vec![problem(413, "too_large", "too many bytes")]).await;
    let error = run_line("push v FILE --batch-rows 2", &fake).await.0.unwrap_err();
    assert!(error.message().starts_with("lines 1 to 3 of the input: too many bytes (step 346); nothing"), "{error}");
    let fake = daemon(&[345], vec![problem(400, "bad_changes", "line 3: is no JSON")]).await;
    assert_eq!(run_line("push v FILE", &fake).await.0.unwrap_err().message(), "line 3: is no JSON");
}

#[tokio::test]
async fn views_that_take_nothing_are_refused_before_anything_is_read() {
    let mut files = pipelines();
    files[0]["views"][0]["source"] = json!("files");
    let mut broken = pipelines();
    broken[0]["views"][0]["trouble"] = json!("the disk is full");
    for (pipelines, line, kind, said) in [
        (files, "push v -", ErrorKind::Refused, "comes from files; land its changes there"),
        (broken, "push v -", ErrorKind::Unavailable, "the disk is full"),
        (pipelines(), "push w -", ErrorKind::Config, "there are p/v"),
        (json!([]), "push w -", ErrorKind::Config, "there are none"),
    ] {
        let fake = FakeDaemon::start().await.on("GET /v1/pipelines?", [Reply::Json(200, pipelines)]);
        let error = run_line(line, &fake).await.0.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(said), "{error}");
    }
    assert!(Input::open(Path::new("/nowhere"), None).is_err());
}
