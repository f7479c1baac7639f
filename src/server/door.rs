//! Connections: how many there are, how long a head may take, and how they end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::AsyncWrite;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Server;
use super::access::Ends;
use super::problem::Problem;
use crate::clock::Clock;
use crate::error::Result;

/// How many headers a head may have.
const HEADERS: usize = 64;
/// How long nobody is accepted after an accept failed for want of something.
const BREATH: Duration = Duration::from_millis(100);
/// How long it is waited until a client has read its answer.
const LINGER: Duration = Duration::from_secs(2);

/// Serves whoever connects until `stopped` completes, then answers what was begun.
pub(super) async fn open(
    server: Arc<Server>,
    router: Router,
    listener: TcpListener,
    stopped: impl Future<Output = ()> + Send,
) -> Result<()> {
    let mut connections = JoinSet::new();
    let mut stopped = pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            Some(_) = connections.join_next() => {}
            // Those beyond wait where the system keeps them.
            accepted = listener.accept(), if connections.len() < server.bounds.connections => match accepted {
                Ok((stream, peer)) => {
                    let stay = if connections.len() * 2 < server.bounds.connections { Stay::Long } else { Stay::Short };
                    let (server, router, stopping) = (Arc::clone(&server), router.clone(), server.stop.subscribe());
                    connections.spawn(connection(stream, peer, stay, server, router, stopping));
                }
                Err(error) => {
                    tracing::warn!(event = "accept_failed", error = %error, "a connection was not accepted");
                    server.clock.sleep(BREATH).await;
                }
            }
        }
    }
    drop(listener);
    server.stop.send_replace(true);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = all_ended => {}
        () = server.clock.deadline(server.bounds.farewell) => {
            tracing::warn!(event = "requests_left", "requests that did not end in time were left");
        }
    }
    connections.shutdown().await;
    Ok(())
}

/// Marks an answer that goes on until one side has enough.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endless;

/// How long a connection may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    /// For any number of requests.
    Long,
    /// For one request: others wait.
    Short,
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    stay: Stay,
    server: Arc<Server>,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let Ok(local) = stream.local_addr() else { return };
    // Who does not read its answers keeps no place: the connection ends when nothing of one is taken for so long. A stream ends
    // before, and then its client may still read why.
    let stalled = server.bounds.patience.max(server.bounds.egress.patience) + server.bounds.grace;
    if let Err(error) = SockRef::from(&stream).set_tcp_user_timeout(Some(stalled)) {
        tracing::warn!(event = "no_timeout", error = %error, "a connection has no bound for the time in which it is read");
    }
    let service = TowerToHyperService::new(router);
    let is_endless = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_endless);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Ends { peer, local });
        let answered = AssertUnwindSafe(service.call(request)).catch_unwind();
        let seen = Arc::clone(&seen);
        async move {
            let response = match answered.await {
                Ok(Ok(response)) => response,
                Ok(Err(never)) => match never {},
                Err(panic) => Problem::of_panic(&*panic).into_response(),
            };
            seen.store(response.extensions().get::<Endless>().is_some(), Ordering::Relaxed);
            Ok::<_, Infallible>(response)
        }
    });
    let bounds = server.bounds;
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // Who has sent all may say so, and still read.
        .half_close(true)
        .keep_alive(stay == Stay::Long)
        .header_read_timeout(bounds.patience)
        .max_headers(HEADERS)
        .max_header_size(bounds.head)
        .max_buf_size(bounds.head * 4)
        .serve_connection(TokioIo::new(stream), answer);
    let mut is_stopping = false;
    let ended = loop {
        tokio::select! {
            ended = Pin::new(&mut connection) => break ended,
            _ = stopping.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            // Its last words are written, or nobody takes them.
            () = server.clock.deadline(bounds.parting), if is_stopping && is_endless.load(Ordering::Relaxed) => return,
        }
    };
    let parts = connection.into_parts();
    let stream = parts.io.into_inner();
    if ended.is_err_and(|e| e.is_timeout()) && !parts.read_buf.is_empty() {
        say_too_slow(&stream);
    }
    close(stream, &*server.clock).await;
}

/// Writes an answer where there is no request to answer. It fits: nothing waits to be sent on such a connection.
fn say_too_slow(stream: &TcpStream) {
    let said = "the head of the request did not arrive in time";
    let body = format!(
        r#"{{"type":"urn:cutover:request_timeout","title":"request timeout","status":408,"detail":"{said}","message":"{said}","error_code":"request_timeout","details":{{}},"next":null}}"#
    );
    let head = "HTTP/1.1 408 Request Timeout\r\ncontent-type: application/problem+json\r\nconnection: close\r\n";
    // Who is gone needs no answer.
    let _ = stream.try_write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
}

/// Says that nothing more comes, and waits until the client has: a connection that is dropped with bytes that nobody read
/// takes its answer with it.
async fn close(mut stream: TcpStream, clock: &dyn Clock) {
    if poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await.is_err() {
        return;
    }
    let drained = async {
        let mut waste = [0; 16 << 10];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut waste) {
                Ok(0) => return,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = drained => {}
        () = clock.deadline(LINGER) => {}
    }
}
