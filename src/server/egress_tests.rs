use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::Bounds;
use super::fixture::{LAKE, Raw, Served, answer, beside, client_of, parsed};
use crate::continuity::stamp::Mode;

pub(super) const EGRESS: &str = "/v1/pipelines/shop/egress/orders?format=ndjson";
pub(super) const APP: &str = "/v1/pipelines/shop/views/orders/connectors/app";

/// The lines of a stream.
pub(super) struct Lines {
    response: Response,
    held: Vec<u8>,
}

impl Lines {
    pub(super) async fn open(served: &Served, query: &str) -> Self {
        let response = served.ask(Method::POST, &format!("{EGRESS}{query}")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        Self { response, held: Vec::new() }
    }

    /// The next line but one that says that the stream is alive; `None` at its end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.any().await?;
            if line["mark"] != "alive" {
                return Some(line);
            }
        }
    }

    /// The line that says that a snapshot has ended, once those before it came.
    async fn end_of_snapshot(&mut self) -> Value {
        loop {
            let line = self.next().await.expect("a snapshot ends");
            if line["mark"] == "end" {
                return line;
            }
        }
    }

    async fn any(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.held.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.response.chunk()).await;
            match chunk.expect("the stream goes on").unwrap() {
                Some(chunk) => self.held.extend(chunk),
                None => {
                    assert!(self.held.is_empty(), "the stream ends with a line");
                    return None;
                }
            }
        }
    }

    /// The next line has these members.
    pub(super) async fn has(&mut self, expected: Value) -> Value {
        let line = self.next().await.expect("another line");
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(line[name], *value, "{name}: {line}");
        }
        line
    }
}

/// The generation of the view's streams, and the first one of a connector's.
async fn generation(served: &Served) -> u64 {
    let line = Lines::open(served, "&mode=follow").await.next().await.unwrap();
    line["generation"].as_u64().unwrap()
}

pub(super) fn insert(id: i64) -> String {
    format!("{{\"insert\":{{\"id\":{id},\"name\":\"n{id}\"}}}}\n")
}

/// With a client's connector `app` beside the table.
async fn with_client(bounds: Bounds, mode: Mode) -> Served {
    Served::with(bounds, |config, _| config.connectors.push(client_of("app", mode))).await
}

#[tokio::test]
async fn a_stream_is_a_snapshot_and_then_every_change() {
    let served = Served::usual().await;
    let g = generation(&served).await;
    served.push("", &[insert(1), insert(2)].concat()).await;
    served.push("", &insert(3)).await;
    let mut lines = Lines::open(&served, "&mode=snapshot_and_follow").await;
    let begin = json!({"sequence_number": 1, "mark": "begin", "rows": 3, "snapshot": true, "partial": true,
        "generation": g, "from": 2, "to": 2, "json_data": []});
    lines.has(begin).await;
    let rows = lines.has(json!({"sequence_number": 2, "snapshot": true, "to": 2})).await;
    assert_eq!(rows["json_data"].as_array().unwrap().len(), 3, "{rows}");
    assert_eq!(rows["json_data"][0]["insert"], json!({"id": 1, "name": "n1"}));
    lines
        .has(json!({"sequence_number": 3, "mark": "end", "rows": 3, "snapshot": true, "partial": null, "to": 2}))
        .await;
    let lines_of =
        "{\"update\":{\"id\":1,\"name\":\"x\"}}\n{\"delete\":{\"id\":2}}\n{\"insert\":{\"id\":4,\"name\":null}}\n";
    served.push("", lines_of).await;
    let changed =
        json!([{"update": {"id": 1, "name": "x"}}, {"delete": {"id": 2}}, {"insert": {"id": 4, "name": null}}]);
    let change =
        json!({"sequence_number": 4, "snapshot": false, "generation": g, "from": 2, "to": 3, "json_data": changed});
    lines.has(change).await;
    served.push("", "").await;
    lines.has(json!({"sequence_number": 5, "from": 3, "to": 4, "json_data": []})).await;
}

#[tokio::test]
async fn each_mode_and_spelling_begins_as_it_says() {
    let served = Served::usual().await;
    let mut lines = Lines::open(&served, "&mode=snapshot").await;
    lines.has(json!({"mark": "begin", "rows": 0, "to": 0})).await;
    lines.has(json!({"mark": "end", "rows": 0, "to": 0})).await;
    lines.has(json!({"sequence_number": 3, "mark": "close", "reason": "complete"})).await;
    assert_eq!(lines.next().await, None);
    served.push("", &insert(1)).await;
    let mut follow = Lines::open(&served, "&mode=follow").await;
    follow.has(json!({"mark": "start", "snapshot": false, "from": 1, "to": 1})).await;
    let mut usual = Lines::open(&served, "").await;
    usual.has(json!({"mark": "begin", "rows": 1})).await;
    served.push("", &insert(2)).await;
    follow.has(json!({"from": 1, "to": 2, "json_data": [{"insert": {"id": 2, "name": "n2"}}]})).await;
    let feldera = "/v0/pipelines/shop/egress/orders?format=json&array=false&backpressure=true";
    assert_eq!(served.ask(Method::POST, feldera).send().await.unwrap().status(), 200);
    let view = &served.get("/v1/pipelines/shop").await.1["views"][0];
    assert!(view["streams"].as_u64().unwrap() >= 2, "{view}");
}

#[tokio::test]
async fn a_stream_is_resumed_where_its_client_is_or_is_gone() {
    let served = Served::usual().await;
    let g = generation(&served).await;
    for n in 1..=5 {
        served.push("", &insert(n)).await;
    }
    let mut lines = Lines::open(&served, &format!("&generation={g}&after_step=3&after_sequence=17")).await;
    lines.has(json!({"sequence_number": 18, "mark": "start", "generation": g, "from": 3, "to": 3})).await;
    let line = lines.has(json!({"sequence_number": 19, "from": 3, "to": 5})).await;
    assert_eq!(line["json_data"].as_array().unwrap().len(), 2, "{line}");
    for (query, code) in [
        (format!("&generation={}&after_step=3", g + 1), "generation_gone"),
        (format!("&generation={g}&after_step=6"), "step_beyond"),
        (format!("&generation={g}&after_step=9223372036854775806"), "step_beyond"),
    ] {
        let (status, body) = answer(served.ask(Method::POST, &format!("{EGRESS}{query}"))).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!(code)), "{body}");
        assert_eq!(body["details"]["generation"], g, "{body}");
        assert!(body["message"].as_str().unwrap().contains("ask again without a generation"), "{body}");
    }
}

#[tokio::test]
async fn calls_that_mean_nothing_are_refused() {
    let served = Served::usual().await;
    let refused = async |method: Method, path: &str, expected: u16| {
        let (status, body) = parsed(served.ask(method, path).send().await.unwrap()).await;
        assert_eq!(status.as_u16(), expected, "{path}: {body}");
    };
    let egress = "/v1/pipelines/shop/egress";
    for query in [
        "",
        "?format=csv",
        "?format=ndjson&mode=all",
        "?format=ndjson&mod=follow",
        "?format=ndjson&format=ndjson",
        "?format=ndjson&generation=1",
        "?format=ndjson&after_step=1",
        "?format=ndjson&generation=0&after_step=1",
        "?format=ndjson&generation=1&after_step=-1",
        "?format=ndjson&generation=1&after_step=9223372036854775807",
        "?format=ndjson&generation=1&after_step=18446744073709551616",
        "?format=ndjson&generation=1e0&after_step=1",
        "?format=ndjson&after_sequence=1",
        "?format=ndjson&generation=1&after_step=0&after_sequence=x",
        "?format=ndjson&mode=snapshot&generation=1&after_step=0",
        "?format=ndjson&array=true",
        "?format=ndjson&backpressure=false",
        "?format=ndjson&connector=a/b",
    ] {
        refused(Method::POST, &format!("{egress}/orders{query}"), 400).await;
    }
    refused(Method::POST, &format!("{egress}/order?format=ndjson"), 404).await;
    refused(Method::POST, "/v1/pipelines/shops/egress/orders?format=ndjson", 404).await;
    refused(Method::POST, &format!("{egress}/..%2Forders?format=ndjson"), 400).await;
    refused(Method::POST, &format!("{egress}/orders?format=ndjson&connector=none"), 404).await;
    refused(Method::POST, &format!("{egress}/orders?format=ndjson&connector=lake"), 409).await;
    refused(Method::GET, &format!("{egress}/orders?format=ndjson"), 405).await;
    refused(Method::POST, &format!("{LAKE}/acknowledge?generation=1&after_step=1"), 409).await;
    refused(Method::POST, &format!("{LAKE}/acknowledge?generation=1"), 400).await;
    let body = served.ask(Method::POST, &format!("{egress}/orders?format=ndjson")).body("x");
    assert_eq!(parsed(body.send().await.unwrap()).await.0, 400);
    let bare = Served::with(Bounds::default(), |config, _| {
        config.views[0].materialized = false;
        config.connectors.clear();
    })
    .await;
    let (status, body) = answer(bare.ask(Method::POST, EGRESS)).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (422, &json!("no_snapshot")), "{body}");
    Lines::open(&bare, "&mode=follow").await.has(json!({"mark": "start"})).await;
}

#[tokio::test]
async fn a_large_step_is_told_in_parts_of_which_the_last_counts() {
    let egress = crate::egress::Bounds { rows: 4, ..Default::default() };
    let served = Served::with(Bounds { egress, ..Bounds::default() }, |_, _| {}).await;
    let mut lines = Lines::open(&served, "&mode=follow").await;
    lines.has(json!({"mark": "start"})).await;
    served.push("", &(0..10).map(insert).collect::<String>()).await;
    served.push("", &insert(10)).await;
    for (number, rows, partial) in [(2, 4, json!(true)), (3, 4, json!(true)), (4, 2, Value::Null)] {
        let line = lines.has(json!({"sequence_number": number, "from": 0, "to": 1, "partial": partial})).await;
        assert_eq!(line["json_data"].as_array().unwrap().len(), rows, "{line}");
    }
    lines.has(json!({"from": 1, "to": 2, "partial": null})).await;
    let mut lines = Lines::open(&served, "&mode=snapshot").await;
    let mut rows = 0;
    loop {
        let line = lines.next().await.unwrap();
        rows += line["json_data"].as_array().unwrap().len();
        if line["mark"] == "end" {
            assert_eq!((rows, &line["rows"]), (11, &json!(11)));
            break;
        }
    }
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_is_alive() {
    let egress = crate::egress::Bounds { alive: Duration::from_millis(5), ..Default::default() };
    let served = Served::with(Bounds { egress, ..Bounds::default() }, |_, _| {}).await;
    let mut lines = Lines::open(&served, "&mode=follow").await;
    lines.has(json!({"mark": "start"})).await;
    let g = generation(&served).await;
    for number in 2..5 {
        let line = lines.any().await.unwrap();
        assert_eq!(
            line,
            json!({"sequence_number": number, "snapshot": false, "generation": g, "from": 0, "to": 0, "mark": "alive", "json_data": []})
        );
    }
}

#[tokio::test]
async fn streams_are_counted_and_end_when_the_server_stops() {
    let mut served = Served::with(Bounds { streams: 2, ..Bounds::default() }, |_, _| {}).await;
    let mut first = Lines::open(&served, "").await;
    first.has(json!({"mark": "begin"})).await;
    let second = Lines::open(&served, "&mode=follow").await;
    let (status, body) = answer(served.ask(Method::POST, EGRESS)).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (429, &json!("too_many_streams")), "{body}");
    drop(second);
    // The place of one that left is free once that is noticed.
    let third = tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let response = served.ask(Method::POST, &format!("{EGRESS}&mode=follow")).send().await.unwrap();
            if response.status() == 200 {
                return response;
            }
            tokio::task::yield_now().await;
        }
    });
    drop(third.await.unwrap());
    first.has(json!({"mark": "end"})).await;
    served.begin_stop();
    first.has(json!({"mark": "close", "reason": "stopped", "to": 0})).await;
    assert_eq!(first.next().await, None);
    served.ended().await;
}

#[tokio::test]
async fn a_connectors_client_goes_on_from_what_it_said_to_have() {
    let served = with_client(Bounds::default(), Mode::SnapshotAndFollow).await;
    let g = generation(&served).await;
    for n in 1..=3 {
        served.push("", &insert(n)).await;
    }
    let mut lines = Lines::open(&served, "&connector=app").await;
    lines.has(json!({"mark": "begin", "generation": g, "to": 3})).await;
    lines.has(json!({"snapshot": true})).await;
    let end = lines.has(json!({"mark": "end", "rows": 3})).await;
    let acknowledge = async |query: &str| answer(served.ask(Method::POST, &format!("{APP}/acknowledge?{query}"))).await;
    let sequence = end["sequence_number"].as_u64().unwrap();
    let (_, had) = acknowledge(&format!("generation={g}&after_step=3&after_sequence={sequence}")).await;
    assert_eq!(had, json!({"generation": g, "step": 3, "sequence_number": sequence}));
    let beyond = format!("generation={g}&after_step=3&after_sequence={}", u64::MAX);
    assert_eq!(acknowledge(&beyond).await.0, 400);
    for (query, code) in [
        (format!("generation={}&after_step=3", g + 1), "generation_gone"),
        (format!("generation={g}&after_step=4"), "step_beyond"),
    ] {
        let (status, body) = acknowledge(&query).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!(code)), "{body}");
    }
    served.push("", &insert(4)).await;
    lines.has(json!({"from": 3, "to": 4})).await;
    // It comes again, knows nothing, and gets what follows its place.
    let mut again = Lines::open(&served, "&connector=app").await;
    again.has(json!({"sequence_number": sequence + 1, "mark": "start", "generation": g, "to": 3})).await;
    again.has(json!({"sequence_number": sequence + 2, "from": 3, "to": 4})).await;
    let fault = lines.next().await.unwrap();
    assert_eq!((&fault["error_code"], &fault["details"]["step"]), (&json!("taken_over"), &json!(4)), "{fault}");
    assert_eq!(lines.next().await, None);
    let (_, report) = served.get(APP).await;
    assert_eq!(
        (&report["generation"], &report["mode"], &report["streams"]),
        (&json!(g), &json!("snapshot_and_follow"), &json!(1)),
        "{report}"
    );
    assert_eq!(report["uri"], "/v1/pipelines/shop/egress/orders?connector=app");
    let (status, body) = answer(served.ask(Method::POST, &format!("{EGRESS}&connector=app&mode=follow"))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("mode_differs")), "{body}");
}

/// Waits until the connector `app` shows what is wanted.
async fn app_until(served: &Served, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let shown = async {
        loop {
            let (_, report) = served.get(APP).await;
            if is(&report) {
                return report;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), shown).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

#[tokio::test]
async fn a_paused_client_is_sent_away_and_keeps_its_place() {
    let served = with_client(Bounds::default(), Mode::SnapshotAndFollow).await;
    let g = generation(&served).await;
    served.push("", &insert(1)).await;
    let mut lines = Lines::open(&served, "&connector=app").await;
    lines.has(json!({"mark": "begin"})).await;
    lines.next().await.unwrap();
    lines.has(json!({"mark": "end"})).await;
    assert_eq!(served.post(&format!("{APP}/pause")).await.1["state"], "paused");
    lines.has(json!({"mark": "close", "reason": "paused", "to": 1})).await;
    assert_eq!(lines.next().await, None);
    let (status, body) = answer(served.ask(Method::POST, &format!("{EGRESS}&connector=app"))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("paused")), "{body}");
    served.push("", &insert(2)).await;
    served.post(&format!("{APP}/resume")).await;
    let mut lines = Lines::open(&served, &format!("&connector=app&generation={g}&after_step=1&after_sequence=3")).await;
    lines.has(json!({"sequence_number": 4, "mark": "start"})).await;
    lines.has(json!({"sequence_number": 5, "from": 1, "to": 2})).await;
    app_until(&served, "the place", |report| report["last_step"] == 1 && report["place"]["acknowledged"] == 1).await;
}

#[tokio::test]
async fn a_reset_begins_another_generation_in_the_stream_that_is_open() {
    let served = with_client(Bounds::default(), Mode::SnapshotAndFollow).await;
    let g = generation(&served).await;
    served.push("", &insert(1)).await;
    let mut lines = Lines::open(&served, "&connector=app").await;
    lines.has(json!({"mark": "begin"})).await;
    lines.next().await.unwrap();
    let number = lines.has(json!({"mark": "end", "generation": g})).await["sequence_number"].as_u64().unwrap();
    let asked = served.ask(Method::POST, &format!("{APP}/reset")).json(&json!({"reason": "lost"}));
    let (status, accepted) = answer(asked).await;
    assert_eq!(status, 202, "{accepted}");
    lines.has(json!({"sequence_number": number + 1, "mark": "begin", "generation": g + 1, "to": 1})).await;
    lines.next().await.unwrap();
    lines.has(json!({"mark": "end", "generation": g + 1, "rows": 1})).await;
    // The stream goes on as soon as the generation is there, and the journal says so a moment later.
    app_until(&served, "the end of the reset", |report| report["reset"].is_null()).await;
    let path = format!("{APP}/resets/{}", accepted["id"].as_str().unwrap());
    let (_, record) = served.get(&path).await;
    assert_eq!(
        (&record["state"], &record["generation"], &record["step"]),
        (&json!("committed"), &json!(g + 1), &json!(1)),
        "{record}"
    );
    let (status, body) =
        answer(served.ask(Method::POST, &format!("{EGRESS}&connector=app&generation={g}&after_step=1"))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("generation_gone")), "{body}");
    let preview = served.ask(Method::POST, &format!("{APP}/reset")).json(&json!({"dry_run": true}));
    let (_, preview) = answer(preview).await;
    assert_eq!((&preview["generation"], &preview["cutover"]), (&json!(g + 2), &json!(1)), "{preview}");
    let mut lines = Lines::open(&served, &format!("&connector=app&generation={}&after_step=1", g + 1)).await;
    lines.has(json!({"mark": "start", "generation": g + 1})).await;
}

#[tokio::test]
async fn a_client_that_is_detached_has_lost_continuity_until_a_reset() {
    let served = Served::with(Bounds::default(), |config, _| {
        let mut app = client_of("app", Mode::SnapshotAndFollow);
        app.when_full = crate::source::logged::WhenFull::Detach;
        (config.connectors, config.views[0].step_log_bytes) = (vec![app], 1 << 20);
    })
    .await;
    let g = generation(&served).await;
    let text = "x".repeat(60_000);
    let mut step = 0;
    let mut push = async || {
        step += 1;
        let (status, body) = served.push("", &format!("{{\"insert\":{{\"id\":{step},\"name\":\"{text}\"}}}}\n")).await;
        assert_eq!(status, 200, "{body}");
    };
    push().await;
    let mut lines = Lines::open(&served, "&connector=app&mode=snapshot_and_follow").await;
    while lines.next().await.unwrap()["mark"] != "end" {}
    for _ in 0..40 {
        push().await;
    }
    let lost = app_until(&served, "the loss", |report| report["state"] == "continuity_lost").await;
    assert_eq!((&lost["health"], &lost["trouble"]["code"]), (&json!("unhealthy"), &json!("continuity_lost")), "{lost}");
    // What was sent is valid to the last line, which says that nothing follows.
    let mut last = Value::Null;
    while let Some(line) = lines.next().await {
        last = line;
    }
    assert_eq!(last["error_code"], "continuity_lost", "{last}");
    for query in ["&connector=app".to_owned(), format!("&connector=app&generation={g}&after_step=1")] {
        let (status, body) = answer(served.ask(Method::POST, &format!("{EGRESS}{query}"))).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("continuity_lost")), "{body}");
    }
    served.post(&format!("{APP}/reset")).await;
    app_until(&served, "the reset", |report| report["generation"] == g + 1 && report["state"] != "continuity_lost")
        .await;
    let mut lines = Lines::open(&served, "&connector=app").await;
    lines.has(json!({"mark": "begin", "generation": g + 1, "rows": 41})).await;
}

/// A client that asks for the stream and reads nothing, of a view with more rows than the system keeps for a connection.
async fn stuck_client(served: &Served) -> Raw {
    let mut client = Raw::open(served.address);
    client.send(&format!("POST {EGRESS} HTTP/1.1\r\nHost: {}\r\n\r\n", served.address));
    client
}

async fn push_much(served: &Served) {
    let text = "x".repeat(1 << 20);
    for id in 0..24 {
        let (status, body) = served.push("", &format!("{{\"insert\":{{\"id\":{id},\"name\":\"{text}\"}}}}\n")).await;
        assert_eq!(status, 200, "{body}");
    }
}

/// Waits until so many streams that are no connector's are open.
async fn streams_until(served: &Served, expected: u64) {
    let opened = async {
        while served.daemon.pipelines()[0].views[0].streams != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), opened).await.expect("streams begin and end");
}

#[tokio::test]
async fn who_took_nothing_for_too_long_can_read_why_when_it_reads_again() {
    let patience = Duration::from_secs(1);
    let egress = crate::egress::Bounds { patience, ..Default::default() };
    let bounds = Bounds { patience, egress, ..Bounds::default() };
    let served = Served::with(bounds, |config, _| config.connectors.clear()).await;
    push_much(&served).await;
    let mut client = stuck_client(&served).await;
    streams_until(&served, 1).await;
    streams_until(&served, 0).await;
    let told = beside(move || client.rest()).await;
    let last = told.rsplit("\r\n").find(|line| line.starts_with('{')).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["error_code"], "slow_client", "{last}");
    assert!(told.ends_with("0\r\n\r\n"), "the answer ends as it should");
}

#[tokio::test]
async fn streams_that_nobody_reads_do_not_hold_up_a_stop() {
    let bounds = Bounds { farewell: Duration::from_secs(600), ..Bounds::default() };
    let mut served = Served::with(bounds, |config, _| config.connectors.clear()).await;
    push_much(&served).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(stuck_client(&served).await);
    }
    streams_until(&served, 8).await;
    served.begin_stop();
    tokio::time::timeout(Duration::from_secs(60), served.ended()).await.expect("the stop does not wait for them");
}

#[tokio::test]
async fn what_a_client_says_to_have_is_taken_while_its_connector_is_paused() {
    let served = with_client(Bounds::default(), Mode::SnapshotAndFollow).await;
    served.push("", &insert(1)).await;
    let mut lines = Lines::open(&served, "&connector=app").await;
    let end = lines.end_of_snapshot().await;
    let g = &end["generation"];
    served.push("", &insert(2)).await;
    let last = lines.has(json!({"from": 1, "to": 2})).await;
    assert_eq!(served.post(&format!("{APP}/pause")).await.0, 200);
    app_until(&served, "the pause", |report| report["state"] == "paused").await;
    let had = format!("generation={g}&after_step=2&after_strand={}", last["strand"].as_str().unwrap());
    let (status, body) = served.post(&format!("{APP}/acknowledge?{had}")).await;
    assert_eq!((status.as_u16(), &body["step"]), (200, &json!(2)), "{body}");
    let report = app_until(&served, "the place", |report| report["place"]["acknowledged"] == 2).await;
    assert_eq!((&report["state"], &report["last_step"]), (&json!("paused"), &json!(2)), "{report}");
    let (_, holds) = served.get(&format!("{APP}/holds?step=2")).await;
    assert_eq!(holds["holds"], true, "{holds}");
    let (status, body) = answer(served.ask(Method::POST, &format!("{EGRESS}&connector=app"))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (409, &json!("paused")), "{body}");
    served.post(&format!("{APP}/resume")).await;
    app_until(&served, "the end of the pause", |report| report["state"] == "following").await;
    Lines::open(&served, "&connector=app").await.has(json!({"mark": "start", "to": 2})).await;
}

#[tokio::test]
async fn a_connectors_client_is_shown_as_one_and_what_happens_to_it_is_told() {
    let served = with_client(Bounds::default(), Mode::SnapshotAndFollow).await;
    served.push("", &insert(1)).await;
    let mut lines = Lines::open(&served, "&connector=app").await;
    let end = lines.end_of_snapshot().await;
    let g = end["generation"].as_u64().unwrap();
    let report = app_until(&served, "what was sent", |report| report["sent_step"] == 1).await;
    assert_eq!(
        (&report["destination"], &report["last_step"], &report["rows"]),
        (&json!("http"), &json!(null), &json!(1))
    );
    let page = served.ask(Method::GET, "/").send().await.unwrap().text().await.unwrap();
    for shown in ["Rows sent", "Sent up to step", "the client has said nothing yet", "has not said to have it"] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    served.post(&format!("{APP}/acknowledge?generation={g}&after_step=1")).await;
    let mut last = served.daemon.events().last();
    let told = |kind: crate::events::Kind| {
        let found =
            served.daemon.events().newest(1, |e| e.event == kind && e.about.connector.as_deref() == Some("app"));
        found.first().map(|event| Value::Object(event.data.clone()))
    };
    let acknowledged = loop {
        if let Some(acknowledged) = told(crate::events::Kind::Acknowledged) {
            break acknowledged;
        }
        last.changed().await.unwrap();
    };
    assert_eq!((&acknowledged["generation"], &acknowledged["to"]), (&json!(g), &json!(1)), "{acknowledged}");
    let begun = told(crate::events::Kind::Reloaded).unwrap();
    assert_eq!((&begun["generation"], &begun["version"]), (&json!(g), &json!(null)), "{begun}");
    let metrics = served.ask(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let of = |name: &str, connector: &str| {
        metrics.lines().any(|line| line.starts_with(name) && line.contains(&format!("connector=\"{connector}\"")))
    };
    for name in ["cutover_commits_total", "cutover_rows_total", "cutover_commit_duration_seconds"] {
        assert!(of(name, "lake") && !of(name, "app"), "{name}: {metrics}");
    }
    assert!(of("cutover_sent_rows_total", "app") && of("cutover_committed_step", "app"), "{metrics}");
}
