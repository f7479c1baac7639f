use std::num::NonZeroU32;
use std::time::Duration;

use futures::StreamExt;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::fixture::{LAKE, Served, answer, connector, unreachable};
use super::{Bounds, ResetReport};
use crate::connector::Phase;
use crate::continuity::stamp::Mode;

fn reset(served: &Served, body: &Value) -> RequestBuilder {
    served.ask(Method::POST, &format!("{LAKE}/reset")).json(body)
}

async fn loaded(served: &Served) {
    served.until(|status| status.phase == Phase::Following).await;
}

async fn reloaded(served: &Served, generation: u64) {
    let is_there = |status: &crate::connector::Status| {
        status.reset.is_none() && status.generation.is_some_and(|g| g.get() == generation)
    };
    served.until(is_there).await;
}

#[tokio::test]
async fn a_reset_is_accepted_told_of_and_listed() {
    let served = Served::usual().await;
    served.push("", "{\"insert\":{\"id\":1}}").await;
    served.until(|status| status.last_step.is_some_and(|step| step.get() == 1)).await;
    let response = reset(&served, &json!({ "reason": "the sink is wrong" })).send().await.unwrap();
    assert_eq!(response.status(), 202);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let accepted: Value = response.json().await.unwrap();
    let id = accepted["id"].as_str().unwrap();
    assert_eq!(accepted, json!({ "id": id, "token": id, "new": true, "status_url": location }));
    assert_eq!(location, format!("{LAKE}/resets/{id}"));
    reloaded(&served, 2).await;
    let (status, told) = served.get(&location).await;
    assert_eq!(status, 200);
    let report: ResetReport = serde_json::from_value(told.clone()).unwrap();
    assert_eq!(serde_json::to_value(&report).unwrap(), told);
    assert_eq!((report.state.as_str(), report.generation, report.step), ("committed", Some(2), Some(1)), "{told}");
    assert_eq!((report.who.as_str(), report.why.as_str()), ("anonymous 127.0.0.1", "the sink is wrong"));
    assert!(report.ended_at.unwrap() >= report.accepted_at && report.version.is_some() && report.code.is_none());
    assert_eq!(served.get(&format!("{LAKE}/resets")).await.1, json!([told]));
    let (_, state) = served.get(LAKE).await;
    assert_eq!((&state["generation"], &state["cutover"], &state["last_step"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(served.get(&format!("{LAKE}/status")).await.1["generation"], 2);
    let (_, continuity) = served.get(&format!("{LAKE}/continuity")).await;
    assert_eq!(continuity["continuous"], true, "{continuity}");
    let (_, stats) = served.get(&format!("{LAKE}/stats")).await;
    assert_eq!((&stats["metrics"]["total_processed_steps"], &stats["health"]), (&json!(1), &json!("healthy")));
    let (status, body) = answer(served.ask(Method::DELETE, &location)).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("not_cancellable")));
}

#[tokio::test]
async fn every_path_of_a_reset_leads_to_the_same_handler() {
    let served = Served::usual().await;
    loaded(&served).await;
    let mut ids = Vec::new();
    for path in [
        format!("{LAKE}/reset"),
        "/pipeline/shop/views/orders/connectors/lake/reset".to_owned(),
        "/v0/pipelines/shop/views/orders/connectors/lake/reset".to_owned(),
    ] {
        let (status, body) = answer(served.ask(Method::POST, &path).header("idempotency-key", "one")).await;
        assert_eq!(status, 202, "{path}: {body}");
        ids.push(body["id"].clone());
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test]
async fn a_key_is_a_reset_also_after_its_end() {
    let served = Served::usual().await;
    loaded(&served).await;
    let keyed = |key: &str| reset(&served, &json!({})).header("idempotency-key", key.to_owned());
    let (_, first) = answer(keyed("one")).await;
    reloaded(&served, 2).await;
    let (status, again) = answer(keyed("one")).await;
    assert_eq!((status.as_u16(), &again["id"], &again["new"]), (202, &first["id"], &json!(false)));
    assert_eq!(answer(keyed("")).await.0, 400);
    assert_eq!(answer(keyed("one").header("idempotency-key", "two")).await.0, 400);
    assert_eq!(answer(keyed(&"k".repeat(257))).await.0, 422);
    assert_eq!(answer(reset(&served, &json!({ "reason": "r".repeat(4097) }))).await.0, 422);
}

#[tokio::test]
async fn a_thousand_calls_are_one_reset() {
    let served = Served::usual().await;
    loaded(&served).await;
    let calls = (0..1000).map(|_| answer(served.ask(Method::POST, &format!("{LAKE}/reset"))));
    let answers: Vec<(StatusCode, Value)> = futures::stream::iter(calls).buffer_unordered(100).collect().await;
    let id = &answers[0].1["id"];
    assert!(answers.iter().all(|(status, body)| *status == 202 && body["id"] == *id), "{answers:?}");
    assert_eq!(answers.iter().filter(|(_, body)| body["new"] == true).count(), 1);
    reloaded(&served, 2).await;
    assert_eq!(served.get(&format!("{LAKE}/resets")).await.1.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_reset_would_do_is_told_and_not_done() {
    let served = Served::usual().await;
    loaded(&served).await;
    let (status, body) = answer(reset(&served, &json!({ "dry_run": true }))).await;
    assert_eq!(status, 200, "{body}");
    let replaces = json!({ "generation": 1, "last_step": 0 });
    assert_eq!(body, json!({ "generation": 2, "cutover": 0, "replaces": replaces, "log": "unneeded" }));
    let (status, body) = answer(reset(&served, &json!({ "dry_run": true, "expected_generation": 7 }))).await;
    assert_eq!(status, 409, "{body}");
    let (status, body) = answer(reset(&served, &json!({ "expected_generation": 7 }))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("generation_differs")));
    assert_eq!(body["details"], json!({ "expected": 7, "found": 1 }));
    assert_eq!(served.get(&format!("{LAKE}/resets")).await.1, json!([]));
    assert_eq!(answer(reset(&served, &json!({ "expected_generation": 1, "reason": null }))).await.0, 202);
    reloaded(&served, 2).await;
}

#[tokio::test]
async fn the_breaker_tells_when_to_come_again() {
    let served = Served::with(Bounds::default(), |config, _| {
        config.connectors[0].breaker.max_resets = NonZeroU32::MIN;
        config.connectors[0].backoff.initial = Duration::from_millis(1);
        config.connectors[0].backoff.max = Duration::from_millis(1);
    })
    .await;
    loaded(&served).await;
    assert_eq!(answer(reset(&served, &json!({}))).await.0, 202);
    reloaded(&served, 2).await;
    let keyed = reset(&served, &json!({})).header("idempotency-key", "another");
    let refused = keyed.send().await.unwrap();
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    let (_, body) = super::fixture::parsed(refused).await;
    assert_eq!(body["next"], "cutover reset shop/orders/lake --override-breaker");
    assert_eq!(answer(reset(&served, &json!({ "override_breaker": true }))).await.0, 202);
    reloaded(&served, 3).await;
}

#[tokio::test]
async fn a_reset_is_taken_back_until_its_commit() {
    let served = Served::with(Bounds::default(), |config, home| {
        config.connectors = vec![unreachable(connector("lake", Mode::SnapshotAndFollow, home))];
    })
    .await;
    let (status, body) = served.get("/readyz").await;
    assert_eq!((status.as_u16(), &body["error_code"]), (503, &json!("starting")), "{body}");
    assert!(body["details"]["reasons"][0].as_str().unwrap().contains("shop/orders/lake"), "{body}");
    let (status, accepted) = answer(reset(&served, &json!({}))).await;
    assert_eq!(status, 202, "{accepted}");
    let path = format!("{LAKE}/resets/{}", accepted["id"].as_str().unwrap());
    let (_, told) = served.get(&path).await;
    assert!(["accepted", "snapshotting"].contains(&told["state"].as_str().unwrap()), "{told}");
    assert!(told.get("ended_at").is_none());
    let (status, told) = answer(served.ask(Method::DELETE, &path)).await;
    assert_eq!((status.as_u16(), &told["state"]), (200, &json!("cancelled")), "{told}");
    assert!(told["reason"].as_str().unwrap().contains("anonymous 127.0.0.1"), "{told}");
    assert_eq!(answer(served.ask(Method::DELETE, &path)).await.0, 409);
}

#[tokio::test]
async fn an_id_of_another_life_is_gone_and_no_id_is_not_found() {
    let served = Served::usual().await;
    let other = format!("{LAKE}/resets/{}", uuid::Uuid::nil());
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(answer(served.ask(method.clone(), &other)).await.0, 410);
        assert_eq!(answer(served.ask(method, &format!("{LAKE}/resets/last"))).await.0, 404);
    }
}

#[tokio::test]
async fn what_has_no_snapshot_is_not_reset() {
    let follow = Served::with(Bounds::default(), |config, _| config.connectors[0].mode = Mode::Follow).await;
    let bare = Served::with(Bounds::default(), |config, _| config.views[0].materialized = false).await;
    for (served, hint) in [(follow, "snapshot_and_follow"), (bare, "materialized")] {
        let (status, body) = answer(reset(&served, &json!({}))).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (422, &json!("no_snapshot")), "{body}");
        assert!(body["detail"].as_str().unwrap().contains(hint), "{body}");
    }
}

#[tokio::test]
async fn a_connector_rests_until_it_is_resumed() {
    let served = Served::usual().await;
    loaded(&served).await;
    let (status, report) = served.post(&format!("{LAKE}/pause")).await;
    assert_eq!((status.as_u16(), &report["name"]), (200, &json!("shop/orders/lake")), "{report}");
    served.until(|status| status.phase == Phase::Paused).await;
    assert_eq!(served.get("/readyz").await.0, 200);
    let (status, health) = served.get("/v1/health").await;
    assert_eq!((status.as_u16(), &health["health"]), (200, &json!("degraded")), "{health}");
    assert_eq!(health["pipelines"][0]["reasons"][0]["connector"], "shop/orders/lake");
    served.push("", "{\"insert\":{\"id\":1}}").await;
    assert_eq!(served.post(&format!("{LAKE}/resume")).await.0, 200);
    served.until(|status| status.last_step.is_some_and(|step| step.get() == 1)).await;
}

#[tokio::test]
async fn the_file_decides_which_connectors_there_are() {
    let served = Served::usual().await;
    loaded(&served).await;
    let spare = connector("spare", Mode::SnapshotAndFollow, served.home.path());
    let path = LAKE.replace("lake", "spare");
    let put = || answer(served.ask(Method::PUT, &path));
    let delete = || answer(served.ask(Method::DELETE, &path));
    assert_eq!(put().await.0, 404, "the file does not name it");
    assert_eq!(delete().await.0, 404);
    served.file.lock().unwrap().connectors.push(spare);
    let (status, report) = put().await;
    assert_eq!((status.as_u16(), &report["name"]), (201, &json!("shop/orders/spare")));
    assert_eq!(put().await.0, 200);
    let (status, body) = delete().await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("still_configured")));
    served.file.lock().unwrap().connectors.pop();
    assert_eq!(delete().await.0, 204);
    assert_eq!(served.get(&path).await.0, 404);
    let (status, changed) = served.post("/v1/reload").await;
    assert_eq!(
        (status.as_u16(), changed),
        (200, json!({ "added": [], "removed": [], "changed": [], "failed": {}, "restart": [] }))
    );
    assert_eq!(served.get(LAKE).await.1["generation"], 1, "the other one goes on");
}

#[tokio::test]
async fn metrics_have_a_number_for_all_that_is_known() {
    let served = Served::with(Bounds::default(), |config, home| {
        let mut broken = connector("broken", Mode::SnapshotAndFollow, home);
        std::fs::write(home.join("file"), "no directory").unwrap();
        super::fixture::table(&mut broken).uri = home.join("file/table").display().to_string();
        config.connectors.push(broken);
    })
    .await;
    served.push("", "{\"insert\":{\"id\":1}}").await;
    served.until(|status| status.last_step.is_some_and(|step| step.get() == 1)).await;
    assert_eq!(answer(reset(&served, &json!({}))).await.0, 202);
    reloaded(&served, 2).await;
    let response = served.ask(Method::GET, "/metrics").send().await.unwrap();
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let page = response.text().await.unwrap();
    assert!(page.ends_with("# EOF\n"), "{page}");
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(series.starts_with("cutover_") && value.parse::<f64>().is_ok(), "{line}");
    }
    let value = |name: &str, labels: &[&str]| {
        let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|l| line.contains(l));
        let line = page.lines().find(is_it).unwrap_or_else(|| panic!("{name} {labels:?}: {page}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    let lake = "pipeline=\"shop\",view=\"orders\",connector=\"lake\"";
    for (name, labels, expected) in [
        ("cutover_state", &[lake, "state=\"failed\""][..], 0.0),
        ("cutover_health", &[lake], 0.0),
        ("cutover_fenced", &[lake], 0.0),
        ("cutover_breaker_open", &[lake], 0.0),
        ("cutover_generation", &[lake], 2.0),
        ("cutover_cutover_step", &[lake], 1.0),
        ("cutover_last_step", &[lake], 1.0),
        ("cutover_committed_step", &[lake], 1.0),
        ("cutover_lag_steps", &[lake], 0.0),
        ("cutover_lag_seconds", &[lake], 0.0),
        ("cutover_step_log_max_bytes", &["view=\"orders\""], (64 << 20) as f64),
        ("cutover_view_rows", &["view=\"orders\""], 1.0),
        ("cutover_resets", &[lake, "outcome=\"committed\"", "trigger=\"asked\""], 1.0),
    ] {
        assert_eq!(value(name, labels), expected, "{name}");
    }
    // The first load and the reset, a claim between them, and no conflict.
    let reload = "kind=\"reload\"";
    for (name, labels, expected) in [
        ("cutover_commits_total", &[lake, reload][..], 2.0),
        ("cutover_conflicts_total", &[lake], 0.0),
        ("cutover_step_log_full", &["view=\"orders\""], 0.0),
        ("cutover_backpressure_seconds", &["view=\"orders\""], 0.0),
    ] {
        assert_eq!(value(name, labels), expected, "{name}");
    }
    let commits: f64 = ["reload", "append", "mark"]
        .map(|kind| value("cutover_commits_total", &[lake, &format!("kind=\"{kind}\"")]))
        .iter()
        .sum();
    assert_eq!(value("cutover_commit_duration_seconds_count", &[lake]), commits);
    assert_eq!(value("cutover_commit_duration_seconds_bucket", &[lake, "le=\"+Inf\""]), commits);
    let rows =
        ["reload", "append"].map(|kind| value("cutover_rows_total", &[lake, &format!("kind=\"{kind}\""), "op=\"i\""]));
    assert!(rows[0] >= 1.0 && rows[0] + rows[1] <= 2.0, "{rows:?}");
    assert!(value("cutover_bytes_total", &[lake, reload]) > 0.0);
    assert!(value("cutover_step_log_bytes", &["view=\"orders\""]) > 0.0);
}
