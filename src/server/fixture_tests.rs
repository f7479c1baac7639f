//! A daemon that is served in the test's own process.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::datatypes::DataType;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::answers::Judged;
use super::{Bounds, Server, door, router};
use crate::clock::World;
use crate::config::{
    Config, ConnectorConfig, ConnectorName, DeltaConfig, Destination, ServerConfig, SourceConfig, ViewConfig,
};
use crate::connector::{Backoff, BreakerSettings, CommitBounds, OnContinuityLoss, Status};
use crate::continuity::columns::SchemaChange;
use crate::continuity::plan::OnExisting;
use crate::continuity::stamp::{Layout, Mode};
use crate::daemon::Daemon;
use crate::error::Result;
use crate::files::Compression;
use crate::log::Durability;
use crate::source::logged::WhenFull;

pub(super) const LAKE: &str = "/v1/pipelines/shop/views/orders/connectors/lake";
pub(super) const INGRESS: &str = "/v1/pipelines/shop/ingress/orders";

/// The view `shop/orders` (`id`, `name`), which is pushed.
pub(super) fn orders() -> ViewConfig {
    ViewConfig {
        pipeline: "shop".into(),
        name: "orders".into(),
        source: SourceConfig::Push,
        key: vec!["id".into()],
        columns: vec![("id".into(), DataType::Int64), ("name".into(), DataType::Utf8)],
        materialized: true,
        step_log_bytes: 64 << 20,
        table: None,
    }
}

/// A connector of it to a table in `home`.
pub(super) fn connector(name: &str, mode: Mode, home: &Path) -> ConnectorConfig {
    let view = orders();
    ConnectorConfig {
        name: ConnectorName::new("shop", "orders", name).unwrap(),
        mode,
        on_existing: OnExisting::Error,
        on_continuity_loss: OnContinuityLoss::FailClosed,
        breaker: BreakerSettings::default(),
        backoff: Backoff::default(),
        when_full: WhenFull::Wait,
        schema_change: SchemaChange::Fail,
        commit: CommitBounds { max_interval: Duration::from_millis(1), ..CommitBounds::default() },
        durability: Durability::None,
        heartbeat: None,
        source: SourceConfig::Push,
        key: view.key,
        columns: view.columns,
        destination: Destination::Delta(DeltaConfig {
            uri: home.join(name).display().to_string(),
            layout: Layout::Changelog,
            compaction: true,
            reload_ratio: None,
            compression: Compression::Snappy,
            target_file_size: 128 << 20,
            partition_by: None,
            storage: Default::default(),
            properties: Default::default(),
        }),
    }
}

/// A connector of the view to a client.
pub(super) fn client_of(name: &str, mode: Mode) -> ConnectorConfig {
    ConnectorConfig { destination: Destination::Http, ..connector(name, mode, Path::new("nowhere")) }
}

/// The table of a connector that has one.
pub(super) fn table(connector: &mut ConnectorConfig) -> &mut DeltaConfig {
    match &mut connector.destination {
        Destination::Delta(delta) => delta,
        Destination::Http => panic!("a connector to a table"),
    }
}

/// `connector`, with a table on a store where nobody answers.
pub(super) fn unreachable(mut connector: ConnectorConfig) -> ConnectorConfig {
    use crate::config::Secret;
    let delta = table(&mut connector);
    delta.uri = "s3://nowhere/table".into();
    let options = [
        ("endpoint", "http://127.0.0.1:1"),
        ("allow_http", "true"),
        ("region", "none"),
        ("access_key_id", "a"),
        ("secret_access_key", "b"),
    ];
    delta.storage = options.map(|(key, value)| (key.to_owned(), Secret::new(value))).into();
    connector
}

pub(super) struct Served {
    pub(super) home: TempDir,
    pub(super) daemon: Arc<Daemon>,
    pub(super) address: SocketAddr,
    /// What the configuration's file says.
    pub(super) file: Arc<Mutex<Config>>,
    client: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<()>>,
    _judged: Judged,
}

impl Served {
    /// With the connector `lake`.
    pub(super) async fn usual() -> Self {
        Self::with(Bounds::default(), |_, _| {}).await
    }

    /// With what `change` makes of that.
    pub(super) async fn with(bounds: Bounds, change: impl FnOnce(&mut Config, &Path)) -> Self {
        Self::at(tempfile::tempdir().unwrap(), bounds, change).await
    }

    /// The same, with what is in `home` already.
    pub(super) async fn at(home: TempDir, bounds: Bounds, change: impl FnOnce(&mut Config, &Path)) -> Self {
        let server = ServerConfig { data_dir: home.path().join("data"), ..ServerConfig::default() };
        let lake = connector("lake", Mode::SnapshotAndFollow, home.path());
        let mut config = Config { server, views: vec![orders()], connectors: vec![lake] };
        change(&mut config, home.path());
        let file = Arc::new(Mutex::new(config.clone()));
        let on_file = Arc::clone(&file);
        let load = Arc::new(move || Ok(on_file.lock().unwrap().clone()));
        let daemon = Daemon::start(config, load, World::system()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move { drop(stopped.await) };
        let server = Arc::new(Server::new(Arc::clone(&daemon), bounds));
        let judged = Judged::default();
        let router = judged.over(router(Arc::clone(&server)));
        let served = tokio::spawn(door::open(server, router, listener, stopped));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { home, daemon, address, file, client, stop: Some(stop), served, _judged: judged }
    }

    pub(super) fn ask(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(super) async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.ask(Method::GET, path)).await
    }

    pub(super) async fn post(&self, path: &str) -> (StatusCode, Value) {
        answer(self.ask(Method::POST, path)).await
    }

    /// Pushes lines of JSON; `query` begins with `&` or is empty.
    pub(super) async fn push(&self, query: &str, lines: &str) -> (StatusCode, Value) {
        answer(self.pushing(query, lines.to_owned())).await
    }

    pub(super) fn pushing(&self, query: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        let request = self.ask(Method::POST, &format!("{INGRESS}?format=ndjson{query}"));
        request.header("content-type", "application/x-ndjson").body(body)
    }

    /// Waits until the connector `lake` shows what is wanted.
    pub(super) async fn until(&self, is_wanted: impl FnMut(&Status) -> bool) {
        let name = ConnectorName::new("shop", "orders", "lake").unwrap();
        let mut status = self.daemon.handle(&name).unwrap().unwrap().status();
        let waited = tokio::time::timeout(Duration::from_secs(60), status.wait_for(is_wanted)).await;
        waited.expect("the connector gets there").unwrap();
    }

    /// The last step of the view.
    pub(super) fn last_step(&self) -> u64 {
        self.daemon.pipelines()[0].views[0].step_log.as_ref().unwrap().last
    }

    pub(super) fn begin_stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end of the server after [`Served::begin_stop`]; what it leaves.
    pub(super) async fn ended(self) -> TempDir {
        self.served.await.unwrap().unwrap();
        self.daemon.stop().await.unwrap();
        self.home
    }
}

/// The status, and the body as JSON; a failure has the form of one.
pub(super) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    parsed(request.send().await.unwrap()).await
}

pub(super) async fn parsed(response: Response) -> (StatusCode, Value) {
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await.unwrap();
    assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")), "{headers:?}");
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| Value::String(text.clone()));
    if status.is_client_error() || (status.is_server_error() && body.get("health").is_none()) {
        assert_eq!(headers["content-type"], "application/problem+json", "{text}");
        check_problem(status.as_u16(), &body);
    }
    (status, body)
}

pub(super) fn check_problem(status: u16, body: &Value) {
    assert_eq!(body["status"], status, "{body}");
    assert!(body["type"].as_str().unwrap().starts_with("urn:cutover:"), "{body}");
    for member in ["title", "detail", "message", "error_code"] {
        assert!(!body[member].as_str().unwrap().is_empty(), "{member}: {body}");
    }
    assert!(body["details"].is_object() && body.as_object().unwrap().contains_key("next"), "{body}");
}

/// A connection on which anything can be sent.
pub(super) struct Raw(TcpStream);

impl Raw {
    pub(super) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    pub(super) fn send(&mut self, bytes: &str) {
        self.0.write_all(bytes.as_bytes()).unwrap();
    }

    /// Sends again and again, and reads nothing, until the server has ended the connection.
    pub(super) fn is_given_up(&mut self, bytes: &str) {
        self.0.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        let error = loop {
            if let Err(error) = self.0.write_all(bytes.as_bytes()) {
                break error;
            }
        };
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    }

    /// Whether anything has arrived that was not read.
    pub(super) fn has_answer(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).unwrap();
        peeked.is_ok()
    }

    /// The head of the next answer.
    pub(super) fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(self.0.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
            head.push(byte[0]);
        }
        String::from_utf8(head).unwrap()
    }

    /// The next answer; its body must have a length.
    pub(super) fn answer(&mut self) -> (u16, Value) {
        let (_, status, body) = self.answer_with_head();
        (status, body)
    }

    /// The same, and its head before it.
    pub(super) fn answer_with_head(&mut self) -> (String, u16, Value) {
        let head = self.head().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length =
            head.split("content-length: ").nth(1).map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        let text = String::from_utf8(body).unwrap();
        (head, status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// What else arrives until the other side closes.
    pub(super) fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset is an end too.
        let _ = self.0.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Runs what blocks beside the server.
pub(super) async fn beside<T: Send + 'static>(block: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(block).await.unwrap()
}
