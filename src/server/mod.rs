//! The daemon over HTTP: prints what [`Daemon`] knows, and maps errors to answers. Nothing is kept between two requests.
//!
//! A request passes `door` (connections, heads, the stop), `access` (host, origin, token, role) and one handler. REST.md is
//! what callers may rely on.

mod access;
mod call;
mod calls;
mod connectors;
mod door;
mod egress;
mod events;
mod health;
mod ingress;
mod input;
mod intake;
mod metrics;
mod openapi;
mod page;
mod pipelines;
mod problem;
mod resets;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use self::calls::Calls;
pub use self::resets::ResetReport;
use crate::clock::Clock;
use crate::config::ServerConfig;
use crate::daemon::Daemon;
use crate::error::Result;

/// How long clients may take, and how many there may be.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// For the head of a request, and between two chunks of its body.
    patience: Duration,
    /// For reading what waits, once nothing more is sent because nothing was taken.
    grace: Duration,
    /// For what was begun when the server is stopped.
    farewell: Duration,
    /// For the last words of an answer without an end, when the server is stopped.
    parting: Duration,
    /// Connections at once.
    connections: usize,
    /// The bytes of a request's head.
    head: usize,
    /// Requests of changes that are read or waited for at once.
    requests: usize,
    /// The bytes that those take together, in requests of the largest size.
    largest: u64,
    /// Streams at once.
    streams: usize,
    /// What a stream's chunks aim at.
    egress: crate::egress::Bounds,
    /// Listeners to events at once.
    listeners: usize,
    /// How long a listener hears nothing, at most.
    silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            farewell: Duration::from_secs(5),
            parting: Duration::from_secs(1),
            connections: 512,
            head: 16 << 10,
            requests: 64,
            largest: 4,
            streams: 128,
            egress: crate::egress::Bounds::default(),
            listeners: 64,
            silence: Duration::from_secs(15),
        }
    }
}

/// What every handler is given.
struct Server {
    daemon: Arc<Daemon>,
    clock: Arc<dyn Clock>,
    /// As it was when the server began.
    config: ServerConfig,
    bounds: Bounds,
    /// One for each request of changes.
    slots: Arc<Semaphore>,
    /// What those may take, in KiB.
    room: Arc<Semaphore>,
    /// One for each stream.
    streams: Arc<Semaphore>,
    /// One for each listener to events.
    seats: Arc<Semaphore>,
    /// Whether answers without an end are to end.
    stop: watch::Sender<bool>,
}

impl Server {
    fn new(daemon: Arc<Daemon>, bounds: Bounds) -> Self {
        let config = daemon.config().server.clone();
        let room = intake::units(config.ingress.request.saturating_mul(bounds.largest));
        Self {
            clock: daemon.clock(),
            daemon,
            config,
            bounds,
            slots: Arc::new(Semaphore::new(bounds.requests)),
            room: Arc::new(Semaphore::new(room)),
            streams: Arc::new(Semaphore::new(bounds.streams)),
            seats: Arc::new(Semaphore::new(bounds.listeners)),
            stop: watch::Sender::new(false),
        }
    }
}

/// Serves `daemon` to whoever connects to `listener`, until `stopped` completes and what was begun is answered, or some
/// seconds have passed.
pub async fn serve(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let server = Arc::new(Server::new(daemon, Bounds::default()));
    door::open(Arc::clone(&server), router(server), listener, stopped).await
}

/// All that there is to call: each handler with what is said of it.
fn calls() -> Calls {
    let connector = |call: &str| format!("/v1/pipelines/{{p}}/views/{{v}}/connectors/{{c}}{call}");
    Calls::default()
        .get("/livez", health::live, &health::LIVE)
        .get("/readyz", health::ready, &health::READY)
        .get("/openapi.json", openapi::document, &openapi::DOCUMENT)
        .get("/", page::whole, &page::WHOLE)
        .get("/page/style.css", page::style, &page::STYLE)
        .get("/page/script.js", page::script, &page::SCRIPT)
        .get("/page/connectors", page::connectors, &page::CONNECTORS)
        .get("/metrics", metrics::text, &metrics::TEXT)
        .get("/v1/events", events::listen, &events::LISTEN)
        .get("/v1/health", health::worst, &health::WORST)
        .post("/v1/reload", pipelines::reload, &pipelines::RELOAD)
        .get("/v1/pipelines", pipelines::all, &pipelines::ALL)
        .get("/v1/pipelines/{p}", pipelines::one, &pipelines::ONE)
        .get("/v1/pipelines/{p}/completion_status", pipelines::completion_status, &pipelines::COMPLETION_STATUS)
        .post("/v1/pipelines/{p}/ingress/{v}", ingress::push, &ingress::PUSH)
        .post("/v1/pipelines/{p}/egress/{v}", egress::pull, &egress::PULL)
        .get(&connector(""), connectors::status, &connectors::STATUS)
        .also(&connector("/status"))
        .put(&connector(""), connectors::put, &connectors::PUT)
        .delete(&connector(""), connectors::delete, &connectors::DELETE)
        .get(&connector("/stats"), connectors::stats, &connectors::STATS)
        .get(&connector("/continuity"), connectors::continuity, &connectors::CONTINUITY)
        .get(&connector("/holds"), connectors::holds, &connectors::HOLDS)
        .post(&connector("/pause"), connectors::pause, &connectors::PAUSE)
        .post(&connector("/resume"), connectors::resume, &connectors::RESUME)
        .post(&connector("/acknowledge"), egress::acknowledge, &egress::ACKNOWLEDGE)
        .post(&connector("/reset"), resets::ask, &resets::ASK)
        .also("/pipeline/{p}/views/{v}/connectors/{c}/reset")
        .get(&connector("/resets"), resets::all, &resets::ALL)
        .get(&connector("/resets/{id}"), resets::one, &resets::ONE)
        .delete(&connector("/resets/{id}"), resets::cancel, &resets::CANCEL)
}

fn router(server: Arc<Server>) -> Router {
    calls()
        .router()
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(from_fn_with_state(Arc::clone(&server), access::enter))
        .layer(map_response(access::leave))
        .with_state(server)
}

#[cfg(test)]
#[path = "abuse_tests.rs"]
mod abuse_tests;
#[cfg(test)]
#[path = "access_tests.rs"]
mod access_tests;
#[cfg(test)]
#[path = "answers_tests.rs"]
mod answers;
#[cfg(test)]
#[path = "attempts_tests.rs"]
mod attempts_tests;
#[cfg(test)]
#[path = "egress_tests.rs"]
mod egress_tests;
#[cfg(test)]
#[path = "events_tests.rs"]
mod events_tests;
#[cfg(test)]
#[path = "fixture_tests.rs"]
mod fixture;
#[cfg(test)]
#[path = "ingress_tests.rs"]
mod ingress_tests;
#[cfg(test)]
#[path = "openapi_tests.rs"]
mod openapi_tests;
#[cfg(test)]
#[path = "page_tests.rs"]
mod page_tests;
#[cfg(test)]
#[path = "resets_tests.rs"]
mod resets_tests;
#[cfg(test)]
#[path = "restored_tests.rs"]
mod restored_tests;
