//! The daemon over HTTP: prints what [`Daemon`] knows, and maps errors to answers. Nothing is kept between two requests.
//!
//! A request passes `door` (connections, heads, the stop), `access` (host, origin, token, role) and one handler. REST.md is
//! what callers may rely on.

mod access;
mod connectors;
mod door;
mod egress;
mod health;
mod ingress;
mod input;
mod intake;
mod metrics;
mod pipelines;
mod problem;
mod resets;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

pub use self::resets::ResetReport;
use crate::clock::Clock;
use crate::config::{Role, ServerConfig};
use crate::daemon::Daemon;
use crate::error::Result;

/// How long clients may take, and how many there may be.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// For the head of a request, and between two chunks of its body.
    patience: Duration,
    /// For what was begun when the server is stopped.
    farewell: Duration,
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
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(30),
            farewell: Duration::from_secs(5),
            connections: 512,
            head: 16 << 10,
            requests: 64,
            largest: 4,
            streams: 128,
            egress: crate::egress::Bounds::default(),
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
    /// Whether what goes on for ever is to end.
    stopping: watch::Receiver<bool>,
}

/// Serves `daemon` to whoever connects to `listener`, until `stopped` completes and what was begun is answered, or some
/// seconds have passed.
pub async fn serve(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    serve_within(daemon, listener, stopped, Bounds::default()).await
}

async fn serve_within(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
    bounds: Bounds,
) -> Result<()> {
    let config = daemon.config().server.clone();
    let room = intake::units(config.ingress.request.saturating_mul(bounds.largest));
    let (stop, stopping) = watch::channel(false);
    let server = Arc::new(Server {
        clock: daemon.clock(),
        daemon,
        config,
        bounds,
        slots: Arc::new(Semaphore::new(bounds.requests)),
        room: Arc::new(Semaphore::new(room)),
        streams: Arc::new(Semaphore::new(bounds.streams)),
        stopping,
    });
    door::open(Arc::clone(&server), router(server), listener, (stopped, stop)).await
}

fn router(server: Arc<Server>) -> Router {
    let need = |role| from_fn_with_state(role, access::need);
    let (mut seen, mut pushed, mut ruled) = (Router::new(), Router::new(), Router::new());
    // Feldera's clients know the paths under /v0.
    for version in ["/v1", "/v0"] {
        let pipeline = format!("{version}/pipelines/{{p}}");
        let connector = format!("{pipeline}/views/{{v}}/connectors/{{c}}");
        seen = seen
            .route(&format!("{version}/pipelines"), get(pipelines::all))
            .route(&pipeline, get(pipelines::one))
            .route(&format!("{pipeline}/completion_status"), get(pipelines::completion_status))
            .route(&format!("{version}/health"), get(health::worst))
            .route(&connector, get(connectors::status))
            .route(&format!("{connector}/status"), get(connectors::status))
            .route(&format!("{connector}/stats"), get(connectors::stats))
            .route(&format!("{connector}/continuity"), get(connectors::continuity))
            .route(&format!("{connector}/holds"), get(connectors::holds))
            .route(&format!("{connector}/resets"), get(resets::all))
            .route(&format!("{connector}/resets/{{id}}"), get(resets::one))
            .route(&format!("{connector}/acknowledge"), post(egress::acknowledge))
            .route(&format!("{pipeline}/egress/{{v}}"), post(egress::pull));
        pushed = pushed.route(&format!("{pipeline}/ingress/{{v}}"), post(ingress::push));
        ruled = ruled
            .route(&format!("{version}/reload"), post(pipelines::reload))
            .route(&connector, axum::routing::put(connectors::put).delete(connectors::delete))
            .route(&format!("{connector}/pause"), post(connectors::pause))
            .route(&format!("{connector}/resume"), post(connectors::resume))
            .route(&format!("{connector}/reset"), post(resets::ask))
            .route(&format!("{connector}/resets/{{id}}"), axum::routing::delete(resets::cancel));
    }
    seen = seen.route("/metrics", get(metrics::text));
    ruled = ruled.route("/pipeline/{p}/views/{v}/connectors/{c}/reset", post(resets::ask));
    Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .merge(seen.route_layer(need(Role::Read)))
        .merge(pushed.route_layer(need(Role::Push)))
        .merge(ruled.route_layer(need(Role::Admin)))
        .fallback(problem::no_such_path)
        .method_not_allowed_fallback(problem::no_such_method)
        .layer(from_fn_with_state(Arc::clone(&server), access::enter))
        .layer(map_response(access::leave))
        .with_state(server)
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod access_tests;
#[cfg(test)]
#[path = "egress_tests.rs"]
mod egress_tests;
#[cfg(test)]
#[path = "fixture_tests.rs"]
mod fixture;
#[cfg(test)]
#[path = "ingress_tests.rs"]
mod ingress_tests;
#[cfg(test)]
#[path = "resets_tests.rs"]
mod resets_tests;
