//! What the request for snapshot-and-follow connectors asks, question by question, answered by a daemon. What it asks of
//! streams over HTTP is in `egress_questions`.

use reqwest::Method;
use serde_json::{Value, json};

use super::ledger::Ledger;
use super::{Home, Service, connector};
use crate::program::{Chance, PATIENCE, wait_until};

fn kinds(stamps: &[Value]) -> Vec<&str> {
    stamps.iter().map(|s| s["kind"].as_str().unwrap()).collect()
}

fn reloads(stamps: &[Value]) -> Vec<&Value> {
    stamps.iter().filter(|s| s["kind"] == "reload").collect()
}

/// A daemon whose view has rows.
fn fed<'a>(home: &'a Home, test: &str) -> (Service<'a>, Ledger) {
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(test));
    let lines = ledger.insert(300);
    service.push(ledger.step(), lines);
    (service, ledger)
}

fn push_some(service: &Service<'_>, ledger: &mut Ledger, steps: u64) {
    for _ in 0..steps {
        let lines = ledger.change(20);
        service.push(ledger.step(), lines);
    }
}

/// Takes a connector up while the daemon runs.
fn add(service: &Service<'_>, connectors: &str, name: &str) {
    service.home.configure(connectors);
    service.send(service.request(Method::PUT, &service.of(name, ""))).is(201);
}

#[test]
fn q01_each_connector_says_whether_the_state_comes_before_the_changes() {
    const TEST: &str = "q01_each_connector_says_whether_the_state_comes_before_the_changes";
    let home = Home::new("");
    let (service, mut ledger) = fed(&home, TEST);
    let both = format!("{}{}", connector("whole", "send_snapshot = true"), connector("later", "mode = \"follow\""));
    home.configure(&both);
    service.call("/v1/reload").is(200);
    for name in ["whole", "later"] {
        service.wait(name, "following", |s| s["state"] == "following");
    }
    push_some(&service, &mut ledger, 5);
    for name in ["whole", "later"] {
        service.arrives(name, &ledger);
    }
    service.stop();
    let whole = home.check("whole", &ledger);
    assert_eq!(reloads(&whole)[0]["rows"]["i"], 300);
    let later = home.stamps("later");
    let from = reloads(&later)[0];
    assert_eq!(
        (&from["to"], &from["rows"]["i"]),
        (&json!(0), &json!(0)),
        "it begins before the first step that is kept"
    );
    assert_eq!(later.last().unwrap()["to"], ledger.step());
}

#[test]
fn q02_a_snapshot_alone_is_one_reload_whose_step_is_recorded_and_the_connector_completes() {
    const TEST: &str = "q02_a_snapshot_alone_is_one_reload_whose_step_is_recorded_and_the_connector_completes";
    let once = connector("once", "mode = \"snapshot\"");
    let home = Home::new("");
    let (service, mut ledger) = fed(&home, TEST);
    let step = ledger.step();
    add(&service, &once, "once");
    let completed = service.wait("once", "completed", |s| s["state"] == "completed");
    assert_eq!((&completed["cutover"], &completed["last_step"]), (&json!(step), &json!(step)));
    push_some(&service, &mut ledger, 3);
    service.stop();
    // Run again, without a daemon and for one job: there is nothing to write.
    home.run(&["run", "--once"]).ended(0, ledger.chance.seed);
    assert_eq!(kinds(&home.stamps("once")), ["reload"]);
    assert_eq!(home.stamps("once")[0]["to"], step);
}

#[test]
fn q03_what_would_lose_data_is_refused_before_anything_is_done() {
    let home = Home::new(&connector("lake", ""));
    let refused = |view: &str, more: &str, why: &str| {
        home.configure(&format!("{view}{}", connector("lake", more)));
        let said = home.run(&["run", "--once"]).ended(78, 0).stderr;
        assert!(said.contains(why), "{said}");
    };
    refused("", "mode = \"snapshot\"\nsend_snapshot = true", "says the same as");
    refused("", "mode = \"follow\"\nschema_change = \"reload\"", "has no snapshot to load");
    refused("", "mode = \"follow\"\non_continuity_loss = \"reset\"", "follow");
    refused("materialized = false\n", "", "materialized");
    assert!(!home.path("lake").exists(), "nothing was written");
}

#[test]
fn q04_a_reset_is_a_call_with_a_token_and_a_status() {
    const TEST: &str = "q04_a_reset_is_a_call_with_a_token_and_a_status";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    // The path that the request names, and that of its stream processor.
    let mut seen = Vec::new();
    for path in [
        "/pipeline/p/views/rows/connectors/lake/reset",
        "/v0/pipelines/p/views/rows/connectors/lake/reset",
        "/v1/pipelines/p/views/rows/connectors/lake/reset",
    ] {
        let key = format!("call {}", seen.len());
        let call =
            || service.request(Method::POST, path).header("Idempotency-Key", &key).json(&json!({"reason": "q4"}));
        let answer = service.send(call()).is(202);
        let id = answer.body["id"].as_str().unwrap().to_owned();
        assert_eq!(answer.header("location"), Some(service.of("lake", &format!("/resets/{id}")).as_str()));
        let record = service.reset_ends("lake", &id);
        assert_eq!(record["state"], "committed", "{record}");
        assert_eq!(service.send(call()).is(202).body["id"], id.as_str(), "the same call is the same reset");
        seen.push(id);
    }
    service.get(&service.of("lake", "/resets/00000000000000000000000000000000")).is(410);
    push_some(&service, &mut ledger, 2);
    service.arrives("lake", &ledger);
    service.stop();
    home.check("lake", &ledger);
}

#[test]
fn q05_one_call_repairs_a_table_and_readers_keep_the_old_state_until_the_new_one_is_complete() {
    const TEST: &str = "q05_one_call_repairs_a_table_and_readers_keep_the_old_state_until_the_new_one_is_complete";
    let home = Home::new(&connector("lake", ""));
    let (service, ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    let before = home.stamps("lake").len();
    // Somebody else's rows: the table is not what our commits made it.
    let foreign = "{\"commitInfo\":{\"operation\":\"DELETE\"}}\n".to_string();
    let remove = json!({"remove": {"path": home.data_file("lake"), "deletionTimestamp": 1, "dataChange": true}});
    home.write(&format!("lake/_delta_log/{before:020}.json"), &format!("{foreign}{remove}\n"));
    home.run(&["verify", "lake"]).ended(3, ledger.chance.seed);
    let record = service.reset("lake", json!({"reason": "rows were deleted"}));
    assert_eq!(record["state"], "committed", "{record}");
    let version = record["version"].as_u64().unwrap();
    let entry = std::fs::read_to_string(home.path(&format!("lake/_delta_log/{version:020}.json"))).unwrap();
    let has = |name: &str| entry.lines().any(|l| serde_json::from_str::<Value>(l).unwrap()[name].is_object());
    assert!(has("add") && has("metaData"), "the new state comes in one version: {entry}");
    service.stop();
    home.run(&["verify", "lake", "--deep"]).ended(0, ledger.chance.seed);
    assert!(ledger.is(&home.run(&["state", "lake"]).ended(0, ledger.chance.seed).stdout));
}

#[test]
fn q06_a_view_without_its_rows_says_so_and_how_to_have_them() {
    const TEST: &str = "q06_a_view_without_its_rows_says_so_and_how_to_have_them";
    let home = Home::new(&format!("materialized = false\n{}", connector("lake", "mode = \"follow\"")));
    let (service, ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    let refused = service.post(&service.of("lake", "/reset"), json!({})).is(422);
    assert!(refused.body["detail"].as_str().unwrap().contains("follow"), "{refused:?}");
    service.stop();
}

#[test]
fn q07_pushes_and_other_connectors_go_on_while_a_snapshot_is_written() {
    const TEST: &str = "q07_pushes_and_other_connectors_go_on_while_a_snapshot_is_written";
    let home = Home::new(&format!("{}{}", connector("big", ""), connector("other", "")));
    let (service, mut ledger) = fed(&home, TEST);
    for _ in 0..10 {
        let lines = ledger.insert(10_000);
        service.push(ledger.step(), lines);
    }
    service.arrives("big", &ledger);
    service.arrives("other", &ledger);
    let id = service.post(&service.of("big", "/reset"), json!({})).is(202).body["id"].as_str().unwrap().to_owned();
    // As long as the reset takes, and once at least.
    loop {
        push_some(&service, &mut ledger, 1);
        service.wait("other", "up to date", |s| s["last_step"].as_u64() == Some(ledger.step()));
        let record = service.get(&service.of("big", &format!("/resets/{id}"))).is(200).body;
        match record["state"].as_str().unwrap() {
            "committed" => break,
            "accepted" | "snapshotting" | "committing" => {}
            other => panic!("{other}: {record}"),
        }
    }
    service.arrives("big", &ledger);
    service.stop();
    home.check("big", &ledger);
    home.check("other", &ledger);
}

#[test]
fn q08_changes_that_arrive_meanwhile_wait_and_come_in_order() {
    const TEST: &str = "q08_changes_that_arrive_meanwhile_wait_and_come_in_order";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    service.post(&service.of("lake", "/reset"), json!({})).is(202);
    push_some(&service, &mut ledger, 30);
    service.arrives("lake", &ledger);
    service.stop();
    let stamps = home.check("lake", &ledger);
    let cutover = reloads(&stamps)[1]["to"].as_u64().unwrap();
    let after = stamps.iter().skip_while(|s| s["kind"] != "reload" || s["generation"] != 2).skip(1);
    let mut at = cutover;
    for stamp in after.filter(|s| s["kind"] == "append") {
        assert_eq!(stamp["from"], at, "{stamps:?}");
        at = stamp["to"].as_u64().unwrap();
    }
    assert_eq!(at, ledger.step());
}

#[test]
fn q09_the_step_of_the_snapshot_is_told_everywhere() {
    const TEST: &str = "q09_the_step_of_the_snapshot_is_told_everywhere";
    let home = Home::new(&connector("lake", ""));
    let (service, ledger) = fed(&home, TEST);
    let status = service.arrives("lake", &ledger);
    let cutover = status["cutover"].as_u64().unwrap();
    let continuity = service.get(&service.of("lake", "/continuity")).is(200).body;
    assert_eq!(continuity["cutover"].as_u64(), Some(cutover), "{continuity}");
    service.stop();
    assert_eq!(home.stamps("lake")[0]["to"].as_u64(), Some(cutover));
    let entry = std::fs::read_to_string(home.path("lake/_delta_log/00000000000000000000.json")).unwrap();
    let metadata = entry.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).find(|l| l["metaData"].is_object());
    let step = metadata.unwrap()["metaData"]["configuration"]["cutover.step"].as_str().unwrap().to_owned();
    assert_eq!(step, cutover.to_string());
    let shown = home.run(&["show", "lake", "-o", "env"]).ended(0, 0).stdout;
    assert!(shown.lines().any(|line| line.ends_with(&format!("={cutover}"))), "{shown}");
}

#[test]
fn q10_a_connector_resumes_from_its_table() {
    const TEST: &str = "q10_a_connector_resumes_from_its_table";
    let home = Home::new(&connector("lake", ""));
    let (mut service, mut ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    push_some(&service, &mut ledger, 3);
    service.process.kill();
    drop(service);
    let service = home.start();
    push_some(&service, &mut ledger, 3);
    service.arrives("lake", &ledger);
    service.stop();
    assert_eq!(reloads(&home.check("lake", &ledger)).len(), 1);
}

#[test]
fn q11_commits_tell_snapshots_from_changes_also_when_a_snapshot_is_empty() {
    const TEST: &str = "q11_commits_tell_snapshots_from_changes_also_when_a_snapshot_is_empty";
    let home = Home::new(&connector("lake", ""));
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(TEST));
    service.wait("lake", "following", |s| s["state"] == "following");
    let lines = ledger.insert(3);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    service.stop();
    let stamps = home.check("lake", &ledger);
    assert_eq!(kinds(&stamps)[..1], ["reload"]);
    assert_eq!((&stamps[0]["rows"]["i"], &stamps[0]["to"]), (&json!(0), &json!(0)));
    assert_eq!(stamps.last().unwrap()["kind"], "append");
}

#[test]
fn q13_history_that_is_kept_is_resumed_and_what_is_gone_needs_a_reset() {
    const TEST: &str = "q13_history_that_is_kept_is_resumed_and_what_is_gone_needs_a_reset";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    service.call(&service.of("lake", "/pause")).is(200);
    push_some(&service, &mut ledger, 5);
    service.call(&service.of("lake", "/resume")).is(200);
    service.arrives("lake", &ledger);
    service.stop();
    assert_eq!(reloads(&home.check("lake", &ledger)).len(), 1, "what was kept is resumed");
    // Another life of the view has none of the history.
    std::fs::remove_dir_all(home.path("data/views")).unwrap();
    let (service, ledger) = fed(&home, TEST);
    let lost = service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    assert!(!lost["trouble"]["next_action"].as_str().unwrap().is_empty(), "{lost}");
    assert_eq!(service.reset("lake", json!({}))["state"], "committed");
    service.arrives("lake", &ledger);
    service.stop();
}

#[test]
fn q14_a_stream_that_lost_its_continuity_stops_and_says_so() {
    const TEST: &str = "q14_a_stream_that_lost_its_continuity_stops_and_says_so";
    let home = Home::new(&connector("lake", ""));
    let (service, ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    service.stop();
    let versions = home.stamps("lake").len();
    std::fs::remove_dir_all(home.path("data/views")).unwrap();
    let (service, mut ledger) = fed(&home, TEST);
    let lost = service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    assert_eq!((&lost["health"], &lost["trouble"]["code"]), (&json!("unhealthy"), &json!("continuity_lost")), "{lost}");
    push_some(&service, &mut ledger, 3);
    let metrics = service.get("/metrics").is(200).body;
    let is_lost = |line: &str| line.contains("state=\"continuity_lost\"") && line.ends_with(" 1.0");
    assert!(metrics.as_str().unwrap().lines().any(is_lost), "{metrics}");
    let counted =
        |line: &str| line.starts_with("cutover_continuity_lost_total{") && line.contains("cause=\"other_source\"");
    assert!(metrics.as_str().unwrap().lines().any(counted), "{metrics}");
    assert_eq!(lost["trouble"]["cause"], "other_source", "{lost}");
    service.stop();
    assert_eq!(home.stamps("lake").len(), versions, "nothing is appended until a reset");
}

#[test]
fn q15_resets_have_a_budget_that_outlives_restarts() {
    const TEST: &str = "q15_resets_have_a_budget_that_outlives_restarts";
    let breaker = "reset = { breaker = { max_resets = 2, window = \"1h\", cooldown = \"15m\" }, backoff = { initial = \"1ms\", factor = 1.0, max = \"1ms\" } }";
    let home = Home::new(&connector("lake", breaker));
    let (service, ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    let reset = |service: &Service<'_>, body: Value| service.post(&service.of("lake", "/reset"), body);
    for _ in 0..2 {
        let mut answer = reset(&service, json!({}));
        // Calls that come at once are one; then the next one.
        assert!(wait_until(PATIENCE, || {
            answer = reset(&service, json!({}));
            answer.status == 429 || answer.body["new"] == true
        }));
    }
    assert!(wait_until(PATIENCE, || reset(&service, json!({})).status == 429), "the breaker never opens");
    service.stop();
    let service = home.start();
    let refused = reset(&service, json!({})).is(429);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&seconds), "{refused:?}");
    let id = reset(&service, json!({"override_breaker": true})).is(202).body["id"].as_str().unwrap().to_owned();
    assert_eq!(service.reset_ends("lake", &id)["state"], "committed");
    service.arrives("lake", &ledger);
    service.stop();
    assert!(reloads(&home.check("lake", &ledger)).len() <= 4, "the first load, two resets and the one that overrode");
}

#[test]
fn q16_a_request_that_is_sent_again_is_applied_once() {
    const TEST: &str = "q16_a_request_that_is_sent_again_is_applied_once";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = fed(&home, TEST);
    let lines = ledger.change(50);
    service.push(ledger.step(), lines.clone());
    let again = service.try_push(ledger.step(), lines).unwrap().is(200);
    assert_eq!(again.body["already_applied"], true, "{again:?}");
    let other = ledger.step();
    let different = "{\"insert\":{\"id\":987654321}}\n".to_string();
    service.try_push(other, different.clone()).unwrap().is(409);
    let gap = service.try_push(other + 2, different).unwrap().is(409);
    assert!(gap.body.to_string().contains(&(other + 1).to_string()), "the expected step: {gap:?}");
    service.arrives("lake", &ledger);
    let token =
        service.get(&format!("/v1/pipelines/p/completion_status?token={}", again.body["token"].as_str().unwrap()));
    assert_eq!(token.is(200).body["status"], "complete");
    service.stop();
    home.check("lake", &ledger);
}

#[test]
fn q17_nothing_later_than_the_cutover_is_in_a_snapshot() {
    const TEST: &str = "q17_nothing_later_than_the_cutover_is_in_a_snapshot";
    let home = Home::new("");
    let (service, mut ledger) = fed(&home, TEST);
    home.configure(&connector("lake", ""));
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| service.send(service.request(Method::PUT, &service.of("lake", ""))).is(201));
        push_some(&service, &mut ledger, 40);
        adding.join().unwrap();
    });
    service.arrives("lake", &ledger);
    service.stop();
    // By the digest of each version, the reload's too.
    home.check("lake", &ledger);
    home.check_with_readers(TEST, "lake", &mut ledger, 3);
}

#[test]
fn q18_requests_and_logs_are_bounded() {
    const TEST: &str = "q18_requests_and_logs_are_bounded";
    let home = Home::new("");
    home.write(
        "cutover.toml",
        &format!(
            "{}{}",
            super::VIEW.replace("data_dir", "ingress = { max_request = \"64KiB\", max_line = \"8KiB\" }\ndata_dir"),
            connector("lake", "")
        ),
    );
    let (service, ledger) = fed(&home, TEST);
    let long = format!("{{\"insert\":{{\"id\":1,\"name\":\"{}\"}}}}\n", "x".repeat(9000));
    let refused = service.try_push(ledger.step() + 1, long).unwrap().is(413);
    assert!(refused.body["detail"].as_str().unwrap().contains("line 1"), "{refused:?}");
    let many = "{\"insert\":{\"id\":1}}\n".repeat(4000);
    service.try_push(ledger.step() + 1, many).unwrap().is(413);
    service.arrives("lake", &ledger);
    service.stop();
    home.check("lake", &ledger);
}

#[test]
fn q19_a_connector_is_added_and_taken_away_while_the_others_go_on() {
    const TEST: &str = "q19_a_connector_is_added_and_taken_away_while_the_others_go_on";
    let (first, second) = (connector("first", ""), connector("second", ""));
    let home = Home::new(&first);
    let (service, mut ledger) = fed(&home, TEST);
    service.arrives("first", &ledger);
    push_some(&service, &mut ledger, 3);
    service.arrives("first", &ledger);
    let before = service.status("first")["rows"].as_u64().unwrap();
    add(&service, &format!("{first}{second}"), "second");
    push_some(&service, &mut ledger, 5);
    service.arrives("second", &ledger);
    assert_eq!(
        service.send(service.request(Method::DELETE, &service.of("second", ""))).status,
        409,
        "the file names it"
    );
    home.configure(&first);
    service.send(service.request(Method::DELETE, &service.of("second", ""))).is(204);
    service.get(&service.of("second", "")).is(404);
    push_some(&service, &mut ledger, 5);
    service.arrives("first", &ledger);
    // Rows are counted from a connector's start on.
    assert!(before > 0 && service.status("first")["rows"].as_u64().unwrap() > before, "it was never started anew");
    service.stop();
    assert_eq!(reloads(&home.check("first", &ledger)).len(), 1);
    assert!(home.stamps("second").last().unwrap()["to"].as_u64().unwrap() < ledger.step());
}

#[test]
fn q20_a_paused_connector_loses_nothing_over_a_restart_too() {
    const TEST: &str = "q20_a_paused_connector_loses_nothing_over_a_restart_too";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = fed(&home, TEST);
    service.arrives("lake", &ledger);
    service.call(&service.of("lake", "/pause")).is(200);
    let versions = home.stamps("lake").len();
    push_some(&service, &mut ledger, 10);
    service.stop();
    let service = home.start();
    assert_eq!(service.wait("lake", "paused", |s| s["state"] == "paused")["state"], "paused");
    push_some(&service, &mut ledger, 10);
    assert_eq!(home.stamps("lake").len(), versions, "it delivers nothing");
    service.call(&service.of("lake", "/resume")).is(200);
    service.arrives("lake", &ledger);
    service.stop();
    assert_eq!(reloads(&home.check("lake", &ledger)).len(), 1);
}

#[test]
fn q21_a_source_that_sends_everything_again_doubles_no_rows() {
    const TEST: &str = "q21_a_source_that_sends_everything_again_doubles_no_rows";
    let home = Home::new(&connector("lake", ""));
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(TEST));
    let lines = ledger.insert(200);
    service.push(ledger.step(), lines.clone());
    service.arrives("lake", &ledger);
    // As a new step, by a source that forgot that it was sent.
    let path = "/v1/pipelines/p/ingress/rows?format=ndjson";
    let push =
        || service.request(Method::POST, path).header("Content-Type", "application/x-ndjson").body(lines.clone());
    assert_eq!(service.send(push()).is(200).body["step"].as_u64(), Some(ledger.step() + 1));
    service.wait("lake", "at the next step", |s| s["last_step"].as_u64() == Some(ledger.step() + 1));
    service.stop();
    let seed = ledger.chance.seed;
    home.run(&["verify", "lake", "--deep"]).ended(0, seed);
    assert!(ledger.is(&home.run(&["state", "lake"]).ended(0, seed).stdout), "each row is there once");
}
