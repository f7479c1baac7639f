//! Changes that are pushed: one request becomes one step, all of it or none.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::Server;
use super::access::check_content_type;
use super::call::{self, BODIES, Body as Sent, Call, Content, Fault, Key, Need, Reply, Shape};
use super::input::{Place, Query};
use super::intake::{Intake, Lines, Rest};
use super::pipelines::{find, nothing_called};
use super::problem::{Answer, Problem};
use crate::config::{Role, nearest};
use crate::daemon::Pushed;
use crate::disk::lacks_room;
use crate::error::{Error, ErrorKind};
use crate::ingest::Format;
use crate::step::Step;
use crate::steplog::{self, At};

const NDJSON: &str = "application/x-ndjson";
const JSON: &str = "application/json";
const ARROW: &str = "application/vnd.apache.arrow.stream";
const REMEDY_OTHER: &str = "the log keeps what it has; send this under the step that follows its last one";

/// A step that is stored.
#[derive(Serialize, JsonSchema)]
pub(super) struct PushReport {
    /// For `completion_status`.
    token: String,
    /// The step that the request became.
    step: u64,
    /// Whether it was stored before: the same request was sent again.
    already_applied: bool,
}

pub(super) const PUSH: Call = Call {
    id: "push_changes",
    about: "Push changes: one request is one step, stored durably, or nothing of it.",
    more: "The same step sent again with the same content is `already_applied`, so a request whose answer was lost is sent \
        again under its step. Nothing of a request is stored that is answered by a problem; only after `unavailable` and \
        `no_space` that may be open.",
    role: Some(Role::Push),
    query: &[
        Key::required(
            "format",
            call::Value::Word(&["ndjson", "arrow", "json"]),
            "How the body is written: an object a line (`json` is Feldera's word for it), or a stream of Arrow IPC.",
        ),
        Key::optional(
            "update_format",
            call::Value::Word(&["insert_delete", "raw", "debezium"]),
            "Of text: what a line is; `insert_delete` without it.",
        ),
        Key::optional("array", call::Value::Word(&["false"]), "Of text: Feldera's; an array is not read."),
        Key::optional("step", call::Value::Step, "The step that it is to become; without it, the one after the last."),
        Key::optional("after", call::Value::Step, "The step before `step`; without it, `step` follows densely."),
    ],
    body: Some(Sent {
        about: "The changes; a body without any is a step too.",
        need: Need::Optional,
        forms: &[Content::new(NDJSON, Shape::Text), Content::new(JSON, Shape::Text), Content::new(ARROW, Shape::Bytes)],
    }),
    replies: &[Reply::json::<PushReport>(200, "The step is stored durably.")],
    faults: &[
        &[
            Fault::new(
                400,
                "bad_changes",
                "a line or a batch does not fit; the message says which, and what its column needs",
            ),
            Fault::new(404, "not_found", "no such pipeline or view"),
            Fault::new(409, "continuity_lost", "the history of the view has ended: load the configuration anew"),
            Fault::new(409, "not_pushed", "the rows of the view come from its source"),
            Fault::new(409, "gap", "the step does not follow the last one").with(&["last_step", "expected_step"]),
            Fault::new(409, "other_content", "the step is stored with other content").with(&["step"]),
            Fault::new(410, "gone", "too long ago to tell whether this is what was stored").with(&["earliest_step"]),
            Fault::new(413, "line_too_long", "a line has more bytes than `limit_bytes`").with(&["limit_bytes"]),
            Fault::new(500, "corrupt", "the rows of the view, or its step log, are damaged"),
            Fault::new(429, "too_many_requests", "too many, or too much, is being read"),
            Fault::new(503, "step_log_full", "a connector has to go on first").with(&["bytes", "max_bytes"]),
            Fault::new(503, "unavailable", "the view is not open, or its disk failed"),
            Fault::new(507, "no_space", "the disk is full"),
        ],
        BODIES,
    ],
    ..Call::BLANK
};

pub(super) async fn push(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<PushReport>> {
    query.only(&["format", "update_format", "array", "step", "after"])?;
    let (pipeline, view) = (place.pipeline()?, place.view()?);
    let (format, at) = (format(&query)?, at(&query)?);
    check_content_type(&headers, if format == Format::Arrow { &[ARROW] } else { &[NDJSON, JSON] })?;
    let rest = Rest::of(body);
    let taken = take(&server, (pipeline, view), &headers, &rest, format, at).await;
    if taken.is_err() && rest.is_on_its_way(&headers) {
        rest.discard(&*server.clock).await;
    }
    taken
}

async fn take(
    server: &Arc<Server>,
    (pipeline, view): (&str, &str),
    headers: &HeaderMap,
    rest: &Rest,
    format: Format,
    at: At,
) -> Answer<Json<PushReport>> {
    let intake = Intake::admit(server, headers)?;
    let lines = if format == Format::Arrow { Lines::None } else { Lines::Bounded };
    let body = intake.read(rest, lines, server);
    match server.daemon.push(pipeline, view, body, format, at).await {
        None => Err(unpushable(server, pipeline, view)),
        Some(Ok(Pushed::Stored { step, is_repeated, token })) => {
            Ok(Json(PushReport { token, step: step.get(), already_applied: is_repeated }))
        }
        Some(Ok(Pushed::Refused(answer))) => Err(refused(answer)),
        Some(Err(error)) => Err(intake.stopped().unwrap_or_else(|| failed(error))),
    }
}

/// How the body is written. Text has Feldera's words: `json` is a line for each object too.
fn format(query: &Query) -> Answer<Format> {
    query.need("format")?;
    let is_arrow = query.word("format", &[("ndjson", false), ("arrow", true), ("json", false)])?.unwrap_or(false);
    let update_format = query.word(
        "update_format",
        &[("insert_delete", Format::InsertDelete), ("raw", Format::Raw), ("debezium", Format::Debezium)],
    )?;
    if query.word("array", &[("false", false), ("true", true)])? == Some(true) {
        return Err(Problem::bad_request("an array is not read; send an object a line, with array=false"));
    }
    match (is_arrow, update_format) {
        (true, Some(_)) => Err(Problem::bad_request(
            "the key \"update_format\" means nothing in a stream of Arrow, which has the column __op; leave it out",
        )),
        (true, None) => Ok(Format::Arrow),
        (false, update_format) => Ok(update_format.unwrap_or(Format::InsertDelete)),
    }
}

/// Which step it is to become: without `after`, one that follows densely.
fn at(query: &Query) -> Answer<At> {
    let (step, after) = (query.step("step")?, query.step("after")?);
    let Some(step) = step else {
        return match after {
            Some(_) => Err(Problem::bad_request("the key \"after\" names the step before \"step\", which is missing")),
            None => Ok(At::Next),
        };
    };
    let before = after.or_else(|| Step::new(step.get().checked_sub(1)?).ok());
    match before.filter(|before| *before < step) {
        Some(after) => Ok(At::Step { step, after }),
        None => Err(Problem::bad_request(format!("step {step} follows no step before it; steps begin at 1 and grow"))),
    }
}

fn unpushable(server: &Server, pipeline: &str, view: &str) -> Problem {
    let found = match find(&server.daemon, pipeline) {
        Ok(found) => found,
        Err(problem) => return problem,
    };
    if let Some(found) = found.views.iter().find(|v| v.name == view) {
        let said =
            format!("the rows of the view {pipeline}/{view} come from its source {}, so none are pushed", found.source);
        return Problem::new(StatusCode::CONFLICT, "not_pushed", said);
    }
    nothing_called("view", view, nearest(view, found.views.iter().map(|v| v.name.as_str())))
}

/// What the step log said instead of taking it.
fn refused(answer: steplog::Answer) -> Problem {
    use steplog::Answer;
    match answer {
        Answer::Gap { last } => {
            let expected = last.get() + 1;
            let said = format!(
                "the step does not follow the last one, which is {last}; send step {expected}, or name {last} in \"after\""
            );
            let problem = Problem::new(StatusCode::CONFLICT, "gap", said);
            problem.with("last_step", last.get()).with("expected_step", expected)
        }
        Answer::OtherContent(step) => {
            let said = format!("step {step} is stored with other content, or after another step; {REMEDY_OTHER}");
            Problem::new(StatusCode::CONFLICT, "other_content", said).with("step", step.get())
        }
        Answer::Gone { earliest } => {
            let said = format!(
                "every connector has the steps up to {earliest}, and they were let go of: whether this one is the same, nobody can tell"
            );
            Problem::new(StatusCode::GONE, "gone", said).with("earliest_step", earliest.get())
        }
        Answer::Full { bytes, max_bytes } => {
            let said = format!(
                "the step log takes {bytes} of {max_bytes} bytes, and waits for a connector; nothing of the request is applied: send it again"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "step_log_full", said)
                .with("bytes", bytes)
                .with("max_bytes", max_bytes)
                .retry_soon()
                .next("cutover status")
        }
        Answer::Stored(step) | Answer::AlreadyStored(step) => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("step {step} is stored"))
        }
    }
}

pub(super) fn failed(error: Error) -> Problem {
    match error.kind() {
        // The request is what is refused.
        ErrorKind::Refused | ErrorKind::Incompatible => {
            Problem::new(StatusCode::BAD_REQUEST, "bad_changes", error.message())
        }
        ErrorKind::Unavailable if is_full(&error) => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "no_space", error.message()).retry_soon()
        }
        _ => error.into(),
    }
}

/// Whether the disk has no room.
fn is_full(error: &Error) -> bool {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let io = |cause: &(dyn StdError + 'static)| {
        let own = cause.downcast_ref::<io::Error>();
        own.or_else(|| cause.downcast_ref::<Arc<io::Error>>().map(|shared| &**shared)).map(io::Error::kind)
    };
    causes.filter_map(io).any(lacks_room)
}
