//! The daemon over HTTP: prints what [`Daemon`] knows, and maps errors to answers. Nothing is kept between two requests.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;

use crate::daemon::Daemon;
use crate::error::{Error, Result};

/// Serves `daemon` to whoever connects to `listener`, until `stopped` completes and what was begun is answered.
pub async fn serve(
    daemon: Arc<Daemon>,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let router = Router::new().route("/livez", get(|| async { "live\n" })).with_state(daemon);
    axum::serve(listener, router)
        .with_graceful_shutdown(stopped)
        .await
        .map_err(|e| Error::unavailable("the server ended").with_source(e))
}
