use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

use super::Bounds;
use super::fixture::{LAKE, Served, answer};
use crate::config::{Role, Secret, TokenConfig, WebhookConfig};
use crate::connector::Phase;
use crate::events::{About, Draft, Kind};

const EVENTS: &str = "/v1/events";

/// What a listener was sent.
#[derive(Debug, Clone, PartialEq)]
struct Frame {
    id: Option<u64>,
    event: String,
    data: Value,
}

struct Listener {
    response: Response,
    rest: String,
}

impl Listener {
    async fn open(served: &Served, query: &str, last_event_id: Option<u64>) -> Self {
        let mut request = served.ask(Method::GET, &format!("{EVENTS}{query}"));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id.to_string());
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, rest: String::new() }
    }

    /// The next piece that ends with an empty line; `None` at the end.
    async fn piece(&mut self) -> Option<String> {
        loop {
            if let Some((piece, rest)) = self.rest.split_once("\n\n") {
                let (piece, rest) = (piece.to_owned(), rest.to_owned());
                self.rest = rest;
                return Some(piece);
            }
            let chunk = tokio::time::timeout(Duration::from_secs(60), self.response.chunk()).await;
            let chunk = chunk.expect("the daemon is heard of").unwrap()?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next frame that is no comment.
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let piece = self.piece().await?;
            let field = |name: &str| piece.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            if let (Some(event), Some(data)) = (field("event: "), field("data: ")) {
                let id = field("id: ").map(|id| id.parse().unwrap());
                return Some(Frame { id, event, data: serde_json::from_str(&data).unwrap() });
            }
        }
    }

    async fn until(&mut self, event: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap();
            frames.push(frame.clone());
            if frame.event == event {
                return frames;
            }
        }
    }
}

async fn following(served: &Served) {
    served.until(|status| status.phase == Phase::Following).await;
}

#[tokio::test]
async fn events_tell_what_a_connector_did_in_order() {
    let served = Served::usual().await;
    following(&served).await;
    assert_eq!(served.push("", "{\"insert\":{\"id\":1}}\n{\"insert\":{\"id\":2}}").await.0, StatusCode::OK);
    let mut listener = Listener::open(&served, "?after=0", None).await;
    let mut frames = listener.until("appended").await;
    assert_eq!(served.post(&format!("{LAKE}/pause")).await.0, StatusCode::OK);
    frames.extend(listener.until("state_changed").await);
    assert_eq!(frames.last().unwrap().data["data"]["to"], "paused");
    let reset = served.ask(Method::POST, &format!("{LAKE}/reset")).json(&serde_json::json!({"reason": "x"}));
    let id = answer(reset).await.1["id"].clone();
    frames.extend(listener.until("reset_committed").await);
    let names: Vec<&str> = frames.iter().map(|f| f.event.as_str()).filter(|e| *e != "state_changed").collect();
    assert_eq!(names, ["daemon_started", "reloaded", "appended", "reset_accepted", "reloaded", "reset_committed"]);
    let ids: Vec<u64> = frames.iter().map(|f| f.id.unwrap()).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    let of = |name: &str| frames.iter().rfind(|f| f.event == name).unwrap().data.clone();
    let appended = of("appended");
    assert_eq!(appended["schema"], "cutover.event/1");
    assert_eq!(
        [&appended["pipeline"], &appended["view"], &appended["connector"]],
        ["shop", "orders", "lake"].map(Value::from).each_ref()
    );
    let data = &appended["data"];
    assert_eq!((&data["from"], &data["to"], &data["rows"]), (&0.into(), &1.into(), &2.into()), "{data}");
    assert_eq!((&data["generation"], &data["commits"]), (&1.into(), &1.into()), "{data}");
    assert_eq!((&of("reloaded")["data"]["generation"], &of("reloaded")["data"]["rows"]), (&2.into(), &2.into()));
    let committed = of("reset_committed")["data"].clone();
    assert_eq!((&committed["id"], &committed["trigger"], &committed["why"]), (&id, &"asked".into(), &"x".into()));
}

#[tokio::test]
async fn commits_are_gathered_and_every_step_and_row_is_in_one_event() {
    let served = Served::usual().await;
    following(&served).await;
    for n in 1..=30 {
        let lines = format!("{{\"insert\":{{\"id\":{n}}}}}\n{{\"insert\":{{\"id\":{}}}}}", n + 100);
        assert_eq!(served.push("", &lines).await.0, StatusCode::OK);
    }
    let mut listener = Listener::open(&served, "?after=0&connector=lake", None).await;
    let (mut reached, mut rows, mut versions) = (0, 0, 0);
    while reached < 30 {
        let data = listener.until("appended").await.pop().unwrap().data["data"].clone();
        let number = |name: &str| data[name].as_u64().unwrap();
        assert_eq!(number("from"), reached, "{data}");
        reached = number("to");
        rows += number("rows");
        // A claim is a version too.
        assert!(number("version") >= versions + number("commits"), "{data}");
        versions = number("version");
    }
    assert_eq!(rows, 60);
}

#[tokio::test]
async fn a_listener_goes_on_exactly_where_it_was() {
    let served = Served::usual().await;
    following(&served).await;
    for _ in 0..3 {
        served.post(&format!("{LAKE}/pause")).await;
        served.post(&format!("{LAKE}/resume")).await;
        following(&served).await;
    }
    let mut all = Listener::open(&served, "?after=0", None).await;
    let mut expected = Vec::new();
    for _ in 0..6 {
        expected.push(all.next().await.unwrap());
    }
    let mut heard = Vec::new();
    for n in 0..6 {
        // The header counts: the query is that of the first time.
        let last = heard.last().map(|frame: &Frame| frame.id.unwrap());
        let mut listener = Listener::open(&served, "?after=0", last).await;
        heard.push(listener.next().await.unwrap());
        assert_eq!(heard[n], expected[n]);
    }
    // Without a number, one hears what is to come.
    let mut later = Listener::open(&served, "?connector=lake", None).await;
    served.post(&format!("{LAKE}/pause")).await;
    while later.next().await.unwrap().data["data"]["to"] != "paused" {}
    let mut other = Listener::open(&served, "?after=0&view=others", None).await;
    let silence = Bounds::default().silence;
    assert!(silence < Duration::from_secs(60));
    assert_eq!(other.piece().await.unwrap(), "retry: 2000\n: events of cutover");
}

#[tokio::test]
async fn what_is_not_there_any_more_is_named() {
    let served = Served::usual().await;
    following(&served).await;
    let mut listener = Listener::open(&served, "?after=1000", None).await;
    let gone = listener.next().await.unwrap();
    assert_eq!((gone.id, gone.event.as_str()), (None, "events_gone"));
    assert_eq!((&gone.data["after"], &gone.data["first"]), (&1000.into(), &1.into()));
    assert_eq!(listener.next().await.unwrap().id, Some(1));
    for query in ["?after=-1", "?after=x", "?after=", "?after=99999999999999999999", "?aftr=1", "?view=a%2Fb"] {
        let (status, body) = served.get(&format!("{EVENTS}{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {body}");
    }
    let (status, _) = answer(served.ask(Method::GET, EVENTS).header("last-event-id", "one")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn listeners_are_counted_kept_awake_and_sent_home_at_the_stop() {
    let bounds = Bounds { listeners: 1, silence: Duration::from_millis(5), ..Bounds::default() };
    let mut served = Served::with(bounds, |_, _| {}).await;
    let mut listener = Listener::open(&served, "?after=0&pipeline=others", None).await;
    listener.piece().await.unwrap();
    assert_eq!(listener.piece().await.unwrap(), ": still here");
    let (status, body) = served.get(EVENTS).await;
    assert_eq!((status, &body["error_code"]), (StatusCode::TOO_MANY_REQUESTS, &"too_many_listeners".into()));
    served.begin_stop();
    while listener.piece().await.is_some() {}
    served.ended().await;
}

#[tokio::test]
async fn a_listener_that_falls_behind_all_that_is_kept_is_told_so_and_hears_no_gap() {
    let served = Served::usual().await;
    following(&served).await;
    let mut listener = Listener::open(&served, "?after=0", None).await;
    let events = served.daemon.events();
    let mut last = events.last();
    let padding = "x".repeat(2000);
    for n in 1..=15_000 {
        let data = serde_json::json!({ "n": n, "padding": padding });
        events.tell(Draft::new(0, Kind::Appended, About::default(), data));
        if n % 500 == 0 {
            last.wait_for(|last| *last >= n).await.unwrap();
        }
    }
    let mut heard = 0;
    let end = loop {
        let frame = listener.next().await.unwrap();
        match frame.id {
            Some(id) => assert_eq!(id, std::mem::replace(&mut heard, id) + 1),
            None => break frame,
        }
    };
    assert_eq!((end.event.as_str(), &end.data["after"]), ("too_slow", &heard.into()));
    assert!(end.data["first"].as_u64().unwrap() > heard + 1, "{end:?}");
    assert_eq!(listener.next().await, None);
}

#[tokio::test]
async fn a_webhook_that_takes_nothing_shows_in_the_health_and_its_address_does_not() {
    let served = Served::with(Bounds::default(), |config, _| {
        let hook = WebhookConfig {
            name: "ops".into(),
            url: Secret::new("http://127.0.0.1:1/canary"),
            host: "127.0.0.1:1".into(),
            events: Kind::ALL.to_vec(),
            secret: Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        };
        config.server.webhooks = vec![hook];
    })
    .await;
    following(&served).await;
    let body = loop {
        let (status, body) = served.get("/v1/health").await;
        assert_eq!(status, StatusCode::OK);
        if body["webhooks"][0]["state"] == "retrying" {
            break body;
        }
    };
    assert_eq!(body["health"], "degraded");
    let hook = &body["webhooks"][0];
    assert_eq!((&hook["name"], &hook["host"], &hook["after"]), (&"ops".into(), &"127.0.0.1:1".into(), &0.into()));
    assert!(!body.to_string().contains("canary"), "{body}");
    let page = served.ask(Method::GET, "/").send().await.unwrap().text().await.unwrap();
    assert!(page.contains("webhook ops at 127.0.0.1:1 is retrying") && !page.contains("canary"), "{page}");
}

#[tokio::test]
async fn events_need_a_token_where_there_are_any() {
    let served = Served::with(Bounds::default(), |config, _| {
        let token = Secret::new("0123456789abcdef");
        config.server.tokens = vec![TokenConfig { name: "eye".into(), role: Role::Read, token }];
    })
    .await;
    assert_eq!(served.get(EVENTS).await.0, StatusCode::UNAUTHORIZED);
    let asked = served.ask(Method::GET, EVENTS).bearer_auth("0123456789abcdef").send().await.unwrap();
    assert_eq!(asked.status(), StatusCode::OK);
}
