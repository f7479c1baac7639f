//! The body of a request of changes while it arrives: how much there may be of it, and of all at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, EXPECT, HeaderMap};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::Server;
use super::problem::{Answer, Problem};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::ingest::Limits;

/// The unit in which room is counted, in bytes.
const UNIT: u64 = 1024;
/// How much of a refused body is read on, and for how long.
const MOST_DISCARDED: u64 = 64 << 20;
const LONGEST_DISCARD: Duration = Duration::from_secs(2);

/// So many bytes, in units of room.
pub(super) fn units(bytes: u64) -> usize {
    usize::try_from(bytes.div_ceil(UNIT)).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS)
}

/// A request's place among those that are read or waited for; dropped, it gives its room back.
pub(super) struct Intake {
    limits: Limits,
    room: Arc<Semaphore>,
    taken: AtomicUsize,
    /// Why the rest of the body was not read.
    stopped: OnceLock<Problem>,
    _slot: OwnedSemaphorePermit,
}

impl Intake {
    /// A place for a request with such a head, and room for what it says that it has.
    pub(super) fn admit(server: &Server, headers: &HeaderMap) -> Answer<Arc<Self>> {
        let limits = server.config.ingress;
        let declared = declared(headers);
        if declared > limits.request {
            return Err(too_long(limits.request));
        }
        let slot = Arc::clone(&server.slots).try_acquire_owned().map_err(|_| crowded())?;
        let (room, taken, stopped) = (Arc::clone(&server.room), AtomicUsize::new(0), OnceLock::new());
        let intake = Self { limits, room, taken, stopped, _slot: slot };
        if !intake.has_room(declared) {
            return Err(crowded());
        }
        Ok(Arc::new(intake))
    }

    /// What `body` holds, until it is found to be too much or too slow.
    pub(super) fn read(
        self: &Arc<Self>,
        body: &Rest,
        lines: Lines,
        server: &Server,
    ) -> impl Stream<Item = Result<Bytes>> + use<> {
        let arriving = Arriving {
            body: body.clone(),
            lines,
            length: 0,
            line: 0,
            whole: 0,
            intake: Arc::clone(self),
            clock: Arc::clone(&server.clock),
            patience: server.bounds.patience,
        };
        stream::unfold(arriving, |mut arriving| async move {
            let chunk = arriving.next().await.transpose()?;
            let chunk = chunk.map_err(|problem| {
                let error = Error::refused("the request did not arrive");
                // The first reason is the one that is told.
                let _ = arriving.intake.stopped.set(problem);
                error
            });
            Some((chunk, arriving))
        })
    }

    /// Why the rest of the body was not read.
    pub(super) fn stopped(self: Arc<Self>) -> Option<Problem> {
        let mut intake = Arc::into_inner(self)?;
        intake.stopped.take()
    }

    /// Takes what is missing to `bytes`, if it is there.
    fn has_room(&self, bytes: u64) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        let missing = units(bytes).saturating_sub(taken);
        let Some(permits) = u32::try_from(missing).ok().and_then(|n| self.room.try_acquire_many(n).ok()) else {
            return false;
        };
        permits.forget();
        self.taken.store(taken + missing, Ordering::Relaxed);
        true
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.room.add_permits(self.taken.load(Ordering::Relaxed));
    }
}

/// How long a body is, as its head says; 0 where it does not.
fn declared(headers: &HeaderMap) -> u64 {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    declared.unwrap_or(0)
}

/// What of a body was not read so far.
#[derive(Clone)]
pub(super) struct Rest {
    body: Arc<Mutex<BodyDataStream>>,
    /// Whether any of it was asked for.
    is_begun: Arc<AtomicBool>,
}

impl Rest {
    pub(super) fn of(body: Body) -> Self {
        Self { body: Arc::new(Mutex::new(body.into_data_stream())), is_begun: Arc::default() }
    }

    async fn next(&self) -> Option<Result<Bytes, axum::Error>> {
        self.is_begun.store(true, Ordering::Relaxed);
        self.body.lock().await.next().await
    }

    /// Whether its sender sends it without being asked, or was asked, and may come to its end.
    pub(super) fn is_on_its_way(&self, headers: &HeaderMap) -> bool {
        let is_awaited = !headers.contains_key(EXPECT) || self.is_begun.load(Ordering::Relaxed);
        is_awaited && declared(headers) <= MOST_DISCARDED
    }

    /// Reads on for a while, to no purpose but that the sender comes to read its answer: a connection that is closed on
    /// what is still being sent takes the answer with it.
    pub(super) async fn discard(self, clock: &dyn Clock) {
        let mut left = MOST_DISCARDED;
        let discarded = async {
            while let Some(Ok(chunk)) = self.next().await
                && left > 0
            {
                left = left.saturating_sub(chunk.len() as u64);
            }
        };
        tokio::select! {
            () = discarded => {}
            () = clock.deadline(LONGEST_DISCARD) => {}
        }
    }
}

/// Whether a body is made of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// It is: none may be too long.
    Bounded,
    /// It is not.
    None,
}

struct Arriving {
    body: Rest,
    lines: Lines,
    length: u64,
    /// The bytes of the line that is arriving.
    line: usize,
    /// How many are whole.
    whole: u64,
    intake: Arc<Intake>,
    clock: Arc<dyn Clock>,
    patience: Duration,
}

impl Arriving {
    async fn next(&mut self) -> Answer<Option<Bytes>> {
        let chunk = tokio::select! {
            chunk = self.body.next() => chunk,
            () = self.clock.deadline(self.patience) => return Err(too_slow(self.patience)),
        };
        let Some(chunk) = chunk else { return Ok(None) };
        let chunk = chunk.map_err(|_| {
            Problem::bad_request(
                "the body ended before its end; nothing of the request is applied: send all of it again",
            )
        })?;
        self.length = self.length.saturating_add(chunk.len() as u64);
        if self.length > self.intake.limits.request {
            return Err(too_long(self.intake.limits.request));
        }
        if self.lines == Lines::Bounded {
            self.check_lines(&chunk)?;
        }
        if !self.intake.has_room(self.length) {
            return Err(crowded());
        }
        Ok(Some(chunk))
    }

    fn check_lines(&mut self, chunk: &[u8]) -> Answer<()> {
        let most = self.intake.limits.line;
        let mut pieces = chunk.split(|byte| *byte == b'\n');
        self.line += pieces.next().map_or(0, <[u8]>::len);
        for piece in pieces {
            if self.line > most {
                break;
            }
            (self.line, self.whole) = (piece.len(), self.whole + 1);
        }
        if self.line <= most {
            return Ok(());
        }
        let number = self.whole + 1;
        let said = format!("line {number} is longer than {most} bytes; nothing of the request is applied");
        Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "line_too_long", said).with("limit_bytes", most as u64))
    }
}

fn too_long(most: u64) -> Problem {
    let said = format!(
        "the request is longer than {most} bytes; nothing of it is applied: send it as several steps, or raise server.ingress"
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_long", said).with("limit_bytes", most)
}

fn too_slow(patience: Duration) -> Problem {
    let said = format!(
        "nothing of the body arrived for {patience:?}; nothing of the request is applied: send all of it again"
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", said)
}

fn crowded() -> Problem {
    let said = "too many requests of changes are being read; nothing of this one is applied: send it again";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", said).retry_soon()
}
