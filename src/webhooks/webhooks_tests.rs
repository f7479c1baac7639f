use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex as Lock;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Extracted;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::signature::Signer;
use super::*;
use crate::clock::{Clock, Ids};
use crate::config::Secret;
use crate::events::{About, Draft, Kind};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// No wait takes time.
#[derive(Debug)]
struct Hurried;

impl Clock for Hurried {
    fn unix_millis(&self) -> i64 {
        1_614_265_330_000
    }

    fn boot(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::task::yield_now())
    }
}

/// What arrived, and what is answered to what comes next; 200 when nothing is left.
#[derive(Default)]
struct Receiver {
    taken: Lock<Vec<(HeaderMap, String, StatusCode)>>,
    answers: Lock<VecDeque<StatusCode>>,
}

async fn receive(Extracted(receiver): Extracted<Arc<Receiver>>, headers: HeaderMap, body: String) -> StatusCode {
    let status = receiver.answers.lock().unwrap().pop_front().unwrap_or(StatusCode::OK);
    receiver.taken.lock().unwrap().push((headers, body, status));
    status
}

struct Bench {
    dir: tempfile::TempDir,
    receiver: Arc<Receiver>,
    config: WebhookConfig,
    world: World,
}

impl Bench {
    async fn new(events: &[Kind]) -> Self {
        let receiver = Arc::new(Receiver::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let router = Router::new().route("/hook", post(receive)).with_state(Arc::clone(&receiver));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = WebhookConfig {
            name: "ops".into(),
            url: Secret::new(format!("http://{host}/hook?key=canary")),
            host,
            events: events.to_vec(),
            secret: Secret::new(SECRET),
        };
        let world = World { clock: Arc::new(Hurried), ids: Arc::new(Ids::from_system()) };
        Self { dir: tempfile::tempdir().unwrap(), receiver, config, world }
    }

    fn events(&self) -> Arc<Events> {
        Events::open(self.dir.path(), &self.world).unwrap()
    }

    fn place(&self) -> PathBuf {
        self.dir.path().join("ops.json")
    }

    fn start(&self, events: &Arc<Events>) -> Webhook {
        Webhook::start(&self.config, events, self.place(), &self.world).unwrap()
    }

    fn answers(&self, answers: impl IntoIterator<Item = StatusCode>) {
        self.receiver.answers.lock().unwrap().extend(answers);
    }

    /// The numbers in the data of what was answered with 200, or with anything.
    fn numbers(&self, is_wanted: impl Fn(StatusCode) -> bool) -> Vec<u64> {
        let taken = self.receiver.taken.lock().unwrap();
        let body = |body: &str| serde_json::from_str::<Value>(body).unwrap()["data"]["data"]["n"].as_u64().unwrap();
        taken.iter().filter(|(.., status)| is_wanted(*status)).map(|(_, text, _)| body(text)).collect()
    }
}

fn tell(events: &Events, kind: Kind, n: u64) {
    events.tell(Draft::new(1_614_265_330_123, kind, About::connector("p", "v", "c"), json!({ "n": n })));
}

async fn until(hook: &Webhook, is: impl Fn(&State) -> bool) {
    let mut state = hook.state.clone();
    let waited = tokio::time::timeout(Duration::from_secs(60), state.wait_for(is)).await;
    waited.expect("the webhook gets there").unwrap();
}

async fn written(events: &Events, id: u64) {
    events.last().wait_for(|last| *last >= id).await.unwrap();
}

#[tokio::test]
async fn events_are_sent_in_order_signed_and_again_until_they_are_taken() {
    let bench = Bench::new(&[Kind::Failed]).await;
    let events = bench.events();
    tell(&events, Kind::Failed, 0);
    written(&events, 1).await;
    // What was before is no news to who is told for the first time.
    let hook = bench.start(&events);
    bench.answers([StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_REQUEST, StatusCode::FOUND]);
    for n in 1..4 {
        tell(&events, Kind::Failed, n);
        tell(&events, Kind::Appended, n);
    }
    until(&hook, |state| state.after == 7).await;
    assert_eq!(bench.numbers(|_| true), [1, 1, 1, 1, 2, 3]);
    assert_eq!(hook.report().state, "delivering");
    hook.stop().await;
    let taken = bench.receiver.taken.lock().unwrap();
    let ids: Vec<&str> = taken.iter().map(|(headers, ..)| headers["webhook-id"].to_str().unwrap()).collect();
    assert!(ids[0] == ids[3] && ids[3] != ids[4], "{ids:?}");
    let (headers, body, _) = &taken[3];
    assert_eq!(headers["content-type"], "application/cloudevents+json");
    assert_eq!(headers["webhook-timestamp"], "1614265330");
    let signed = Signer::new(&Secret::new(SECRET)).unwrap().sign(ids[3], 1_614_265_330, body);
    assert_eq!(headers["webhook-signature"], signed);
    let body: Value = serde_json::from_str(body).unwrap();
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", ids[3]),
        ("type", "cutover.failed"),
        ("source", "/v1/pipelines/p/views/v/connectors/c"),
        ("subject", "p/v/c"),
        ("time", "2021-02-25T15:02:10.123Z"),
        ("sequence", "00000000000000000002"),
        ("datacontenttype", "application/json"),
    ] {
        assert_eq!(body[name], value, "{body}");
    }
    assert_eq!(body["data"]["id"], 2);
}

#[tokio::test]
async fn its_place_is_kept_over_restarts_and_what_is_gone_is_named() {
    let bench = Bench::new(&[Kind::Failed]).await;
    let events = bench.events();
    let hook = bench.start(&events);
    (0..3).for_each(|n| tell(&events, Kind::Failed, n));
    until(&hook, |state| state.after == 3).await;
    hook.stop().await;
    (3..6).for_each(|n| tell(&events, Kind::Failed, n));
    written(&events, 6).await;
    let hook = bench.start(&events);
    until(&hook, |state| state.after == 6).await;
    hook.stop().await;
    assert_eq!(bench.numbers(|_| true), [0, 1, 2, 3, 4, 5]);

    // The list is another one.
    std::fs::write(bench.place(), "{\"after\":1000}").unwrap();
    bench.receiver.taken.lock().unwrap().clear();
    let hook = bench.start(&events);
    until(&hook, |state| state.after == 6).await;
    hook.stop().await;
    let taken = bench.receiver.taken.lock().unwrap();
    let first: Value = serde_json::from_str(&taken[0].1).unwrap();
    assert_eq!((&first["type"], &first["data"]["data"]["after"]), (&"cutover.events_lost".into(), &1000.into()));
    assert_eq!(taken.len(), 7);
}

#[tokio::test]
async fn one_that_is_gone_is_disabled_and_one_that_fails_says_why_without_its_address() {
    let mut bench = Bench::new(&[Kind::Failed]).await;
    let events = bench.events();
    bench.answers([StatusCode::GONE]);
    let hook = bench.start(&events);
    tell(&events, Kind::Failed, 1);
    until(&hook, |state| state.is_disabled).await;
    let report = hook.report();
    assert_eq!((report.state, report.behind), ("disabled", 1));
    assert!(report.reason.unwrap().contains("410 Gone"));
    hook.stop().await;

    bench.config.url = Secret::new("http://127.0.0.1:1/hook?key=canary");
    let hook = bench.start(&events);
    until(&hook, |state| state.tries > 2).await;
    let report = hook.report();
    assert_eq!(report.state, "retrying");
    assert!(!format!("{report:?}").contains("canary"), "{report:?}");
    hook.stop().await;
    assert!(Path::new(&bench.place()).exists());
}
