//! A daemon for tests: it answers what it was told to, in that order, and keeps what it was asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use clap::Parser;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::args::{Args, Command};
use super::client::Client;
use super::reach::Reach;
use super::talk::Talk;
use super::{Print, Session};
use crate::clock::{Clock, Ids, World};

/// What is answered to one request.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Json(u16, Value),
    /// A problem, and after how many seconds to come again.
    Problem(u16, Value, Option<u64>),
    /// The connection ends.
    Hangup,
}

/// A request: method with path and query, the headers that matter, and the body.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Debug, Default)]
struct Script {
    /// What is answered to what begins so, the next first; the last is repeated.
    replies: Vec<(String, VecDeque<Reply>)>,
    asked: Vec<Asked>,
}

pub(super) struct FakeDaemon {
    script: Arc<Mutex<Script>>,
    pub(super) url: String,
    pub(super) client: Client,
    /// Time passes when somebody sleeps, at once.
    pub(super) world: World,
}

impl FakeDaemon {
    pub(super) async fn start() -> Self {
        let script = Arc::new(Mutex::new(Script::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(reply).with_state(Arc::clone(&script));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::new(&Reach { url: url.parse().unwrap(), token: None, options: String::new() }).unwrap();
        let world = World { clock: Arc::new(Dozing::default()), ids: Arc::new(Ids::from_seed(7)) };
        Self { script, url, client, world }
    }

    /// With these answers to requests whose method and path begin so; the last answer is repeated.
    pub(super) fn on(self, request: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        let replies = replies.into_iter().collect();
        self.script.lock().unwrap().replies.push((request.to_string(), replies));
        self
    }

    /// One that has a connector `p/v/lake` of a pushed view.
    pub(super) async fn with_one() -> Self {
        Self::start().await.on("GET /v1/pipelines?", [Reply::Json(200, pipelines())])
    }

    pub(super) fn asked(&self, begin: &str) -> Vec<Asked> {
        let script = self.script.lock().unwrap();
        script.asked.iter().filter(|a| a.line.starts_with(begin)).cloned().collect()
    }
}

async fn reply(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response<axum::body::Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_else(|_| Bytes::new());
    // A query begins even where there is none, so that a path can be told from those below it.
    let line = format!("{} {}?{}", parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
    let headers = parts.headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_string()));
    let asked = Asked { line, headers: headers.collect(), body: String::from_utf8_lossy(&body).into_owned() };
    let next = {
        let mut script = script.lock().unwrap();
        script.asked.push(asked.clone());
        let found = script.replies.iter_mut().find(|(begin, _)| asked.line.starts_with(begin.as_str()));
        found.and_then(|(_, replies)| if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() })
    };
    match next {
        Some(Reply::Json(status, value)) => answer(status, &value, None),
        Some(Reply::Problem(status, value, wait)) => answer(status, &value, wait),
        // A handler that panics takes its connection with it.
        Some(Reply::Hangup) => panic!("the connection ends, as the test wants"),
        None => answer(404, &json!({"title": format!("nothing answers {}", asked.line)}), None),
    }
}

fn answer(status: u16, value: &Value, wait: Option<u64>) -> Response<axum::body::Body> {
    let mut builder = Response::builder().status(StatusCode::from_u16(status).unwrap());
    if let Some(wait) = wait {
        builder = builder.header("retry-after", wait);
    }
    builder.body(value.to_string().into()).unwrap()
}

/// A problem as the daemon writes them.
pub(super) fn problem(status: u16, code: &str, detail: &str) -> Reply {
    let value = json!({
        "type": format!("urn:cutover:{code}"), "title": code, "status": status, "detail": detail, "message": detail,
        "error_code": code, "details": {}, "next": null,
    });
    Reply::Problem(status, value, None)
}

pub(super) fn connector(name: &str) -> Value {
    json!({
        "schema": "cutover.status/1", "name": name, "mode": "snapshot_and_follow", "destination": "delta", "uri": "lake/v",
        "state": "following", "since": 0, "health": "healthy", "trouble": null, "reset": null, "generation": 2,
        "cutover": 120, "last_step": 345, "table_rows": 5600, "current_rows": 5000, "source_step": 345, "lag_steps": 0, "lag_seconds": 0.0, "snapshot": null,
        "place": {"acknowledged": 345, "when_full": "backpressure"}, "streams": null, "sent_step": null, "appends": 7, "rows": 1200, "bytes": 4096,
        "work": {
            "commits": {}, "commit_seconds": {"bounds": [], "counts": [], "sum": 0.0}, "conflicts": 0, "retries": {},
            "continuity_lost": {},
        },
    })
}

pub(super) fn pipelines() -> Value {
    pipelines_of(&[connector("p/v/lake")])
}

pub(super) fn pipelines_of(connectors: &[Value]) -> Value {
    json!([{"name": "p", "views": [{
        "name": "v", "source": "push", "materialized": true, "rows": 5000, "trouble": null, "refusal": null, "wal": null,
        "step_log": {"earliest": 100, "last": 345, "bytes": 1 << 20, "max_bytes": 8u64 << 30, "is_full": false, "backpressure_seconds": 0.0},
        "streams": 0, "connectors": connectors,
    }]}])
}

/// A session as the arguments make it, which says nothing.
pub(super) fn session(line: &str) -> Session {
    parsed(line).0
}

/// The session and the command of the arguments.
pub(super) fn parsed(line: &str) -> (Session, Command) {
    let words = ["cutover", "-q", "--no-input"].into_iter().chain(line.split_whitespace());
    let Args { global, command } = Args::try_parse_from(words).unwrap();
    let talk = Talk::new(&global);
    (Session { global, talk }, command)
}

/// What a command prints.
#[derive(Debug, Default)]
pub(super) struct Printed(pub(super) Vec<String>);

impl Printed {
    pub(super) fn print(&mut self) -> Print<'_> {
        Box::new(|line| {
            self.0.push(line.to_string());
            Ok(())
        })
    }

    pub(super) fn text(&self) -> String {
        self.0.join("\n")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }
}

/// A clock on which sleeping takes no time, and makes it pass.
#[derive(Debug, Default)]
struct Dozing(Arc<Mutex<Duration>>);

impl Clock for Dozing {
    fn unix_millis(&self) -> i64 {
        self.boot().as_millis() as i64
    }

    fn boot(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        *self.0.lock().unwrap() += duration;
        Box::pin(tokio::task::yield_now())
    }
}
