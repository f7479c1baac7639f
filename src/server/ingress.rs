//! Changes that are pushed: one request becomes one step, all of it or none.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use serde_json::{Value, json};

use super::Server;
use super::access::check_content_type;
use super::input::{Place, Query};
use super::intake::{Intake, Lines, Rest};
use super::pipelines::{find, nothing_called};
use super::problem::{Answer, Problem};
use crate::config::nearest;
use crate::daemon::Pushed;
use crate::error::{Error, ErrorKind};
use crate::ingest::Format;
use crate::step::Step;
use crate::steplog::{self, At};

const TEXT: &[&str] = &["application/x-ndjson", "application/json"];
const ARROW: &[&str] = &["application/vnd.apache.arrow.stream"];
const REMEDY_OTHER: &str = "the log keeps what it has; send this under the step that follows its last one";

pub(super) async fn push(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
    headers: HeaderMap,
    body: Body,
) -> Answer<Json<Value>> {
    query.only(&["format", "update_format", "array", "step", "after"])?;
    let (pipeline, view) = (place.pipeline()?, place.view()?);
    let (format, at) = (format(&query)?, at(&query)?);
    check_content_type(&headers, if format == Format::Arrow { ARROW } else { TEXT })?;
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
) -> Answer<Json<Value>> {
    let intake = Intake::admit(server, headers)?;
    let lines = if format == Format::Arrow { Lines::None } else { Lines::Bounded };
    let body = intake.read(rest, lines, server);
    match server.daemon.push(pipeline, view, body, format, at).await {
        None => Err(unpushable(server, pipeline, view)),
        Some(Ok(Pushed::Stored { step, is_repeated, token })) => {
            Ok(Json(json!({ "token": token, "step": step, "already_applied": is_repeated })))
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
        // The request is what is refused, or what does not decode.
        ErrorKind::Refused | ErrorKind::Corrupt | ErrorKind::Incompatible => {
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
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let io = |cause: &(dyn StdError + 'static)| {
        let own = cause.downcast_ref::<io::Error>();
        own.or_else(|| cause.downcast_ref::<Arc<io::Error>>().map(|shared| &**shared)).map(io::Error::kind)
    };
    causes.filter_map(io).any(|kind| matches!(kind, StorageFull | QuotaExceeded | FileTooLarge))
}
