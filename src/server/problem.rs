//! What is said of a request that is not answered as it was meant: RFC 9457, and the members that Feldera's clients read.

use std::any::Any;
use std::time::Duration;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::call::{Fault, Need};
use crate::clock::whole_seconds;
use crate::connector::Refusal;
use crate::error::{Error, panic_text};
use crate::explain::code;

/// What a problem is said to be.
pub(super) const TYPE: &str = "application/problem+json";
/// How long somebody waits who is told to come again.
const SOON: Duration = Duration::from_secs(1);

/// The answer to a request that failed.
#[derive(Debug)]
pub(super) struct Problem(Box<Parts>);

#[derive(Debug)]
struct Parts {
    status: StatusCode,
    code: &'static str,
    detail: String,
    details: Map<String, Value>,
    next: Option<String>,
    retry_after: Option<Duration>,
}

/// What a call for a reset may answer; a dry run too.
pub(super) const RESETS: &[Fault] = &[
    Fault::new(409, "generation_differs", "the table has `found`, not what was `expected`")
        .with(&["expected", "found"]),
    Fault::new(409, "reset_under_way", "the reset `id` is carried out: a dry run, or another expectation, has to wait")
        .with(&["id"]),
    Fault::new(422, "no_snapshot", "the mode is `follow`, or the view is not materialized"),
    Fault::new(422, "too_long", "`what` has more than `most_bytes`").with(&["what", "most_bytes"]),
    Fault::new(429, "breaker_open", "the budget of resets is used up, or the last one failed"),
    Fault::new(429, "too_many_calls", "too many calls got the same reset, or wait for a look at the table"),
];

/// What a call may answer that a connector is asked.
pub(super) const ASKED: &[Fault] = &[
    Fault::new(503, "stopped", "the connector was stopped, or is being started anew"),
    Fault::new(507, "not_recorded", "the journal cannot be written; nothing is begun"),
];

/// What a call may answer that is about a reset.
pub(super) const FORGOTTEN: &[Fault] = &[Fault::new(
    410,
    "gone",
    "the reset is of another life of the connector, or older than those that are remembered",
)];

/// What a handler gives.
pub(super) type Answer<T = Response> = Result<T, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (detail, details) = (detail.into(), Map::new());
        Self(Box::new(Parts { status, code, detail, details, next: None, retry_after: None }))
    }

    /// The request itself is wrong.
    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail).next("cutover status")
    }

    /// A fact that a program can act on.
    pub(super) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.details.insert(name.to_owned(), value.into());
        self
    }

    /// The command that helps.
    pub(super) fn next(mut self, command: impl Into<String>) -> Self {
        self.0.next = Some(command.into());
        self
    }

    pub(super) fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    pub(super) fn retry_soon(self) -> Self {
        self.retry_after(SOON)
    }

    /// Why the call of the connector `name` did not get what it asked for.
    pub(super) fn of_refusal(refusal: Refusal, name: &str) -> Self {
        let said = refusal.to_string();
        match refusal {
            Refusal::Generation { expected, found } => Self::new(StatusCode::CONFLICT, "generation_differs", said)
                .with("expected", expected.get())
                .with("found", found.map(|g| g.get()))
                .next(format!("cutover status {name}")),
            Refusal::UnderWay { id } => Self::new(StatusCode::CONFLICT, "reset_under_way", said)
                .with("id", id)
                .next(format!("cutover resets {name}")),
            Refusal::NotCancellable { id, state } => Self::new(StatusCode::CONFLICT, "not_cancellable", said)
                .with("id", id)
                .with("state", state.to_string())
                .next(format!("cutover resets {name}")),
            Refusal::Unknown { id } => Self::unknown_reset(&id, name),
            Refusal::NoSnapshot(_) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "no_snapshot", said),
            Refusal::TooLong { what, most } => Self::new(StatusCode::UNPROCESSABLE_ENTITY, "too_long", said)
                .with("what", what)
                .with("most_bytes", most as u64),
            Refusal::BreakerOpen { retry_after } => Self::new(StatusCode::TOO_MANY_REQUESTS, "breaker_open", said)
                .retry_after(retry_after)
                .next(format!("cutover reset {name} --override-breaker")),
            Refusal::TooManyCalls { retry_after } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", said).retry_after(retry_after)
            }
            Refusal::Unrecorded(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "not_recorded", said),
            Refusal::Failed(error) => Self::from(error).next(format!("cutover status {name}")),
            Refusal::Stopped => Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopped", said).retry_soon(),
        }
    }

    /// An id that has the form of one was another daemon's, or was forgotten: whoever holds it waits for nothing.
    pub(super) fn unknown_reset(id: &str, name: &str) -> Self {
        let next = format!("cutover resets {name}");
        match uuid::Uuid::try_parse(id) {
            Ok(_) => {
                let said = format!(
                    "the reset {id} is not remembered: it is of another life of {name}, or older than the last thousand"
                );
                Self::new(StatusCode::GONE, "gone", said).next(next)
            }
            Err(_) => Self::not_found(format!("{id:?} is no reset's id; list those of {name}")).next(next),
        }
    }

    /// A handler panicked: the others go on.
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        tracing::error!(
            event = "request_panicked",
            panic = panic_text(panic),
            "a request met a defect of this program"
        );
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the request met a defect of this program; see its log",
        )
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let kind = error.kind();
        let status = StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = Self::new(status, kind.name(), error.message());
        if kind.is_retryable() { problem.retry_soon() } else { problem }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Parts { status, code, detail, details, next, retry_after } = *self.0;
        let body = ProblemReport {
            kind: format!("urn:cutover:{code}"),
            title: code.replace('_', " "),
            status: status.as_u16(),
            message: detail.clone(),
            detail,
            error_code: code.to_owned(),
            details,
            next,
        };
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
        if let Some(wait) = retry_after {
            // Too early is of no use.
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A problem as it goes over the wire: RFC 9457, and Feldera's `message`, `error_code` and `details`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct ProblemReport {
    /// `urn:cutover:` and the code.
    #[serde(rename = "type")]
    #[schemars(example = &"urn:cutover:gap")]
    kind: String,
    /// The code in words.
    #[schemars(example = &"gap")]
    title: String,
    /// The status of the answer.
    #[schemars(range(min = 400, max = 599), example = 409)]
    status: u16,
    /// What is wrong, where, and what helps.
    detail: String,
    /// The same.
    message: String,
    /// By which a program tells problems apart.
    #[schemars(example = &"gap")]
    error_code: String,
    /// What a program can act on.
    details: Map<String, Value>,
    /// The command that helps, where there is one.
    #[schemars(example = &"cutover status")]
    next: Option<String>,
}

/// The header that problems of `status` have: its name, what it says, the type of its value, and whether all have it.
pub(super) fn header(status: u16) -> Option<(&'static str, &'static str, &'static str, Need)> {
    let retry_after = |need| Some(("Retry-After", "When to come again, in whole seconds.", "integer", need));
    match status {
        401 => Some(("WWW-Authenticate", "`Bearer`", "string", Need::Required)),
        429 | 503 => retry_after(Need::Required),
        507 => retry_after(Need::Optional),
        _ => None,
    }
}

/// No route has this path.
pub(super) async fn no_such_path(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {:?}; REST.md lists the calls", uri.path()))
}

/// The route has no such method; which it has, the header `Allow` says.
pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let said = format!("{method} is not possible at {:?}; the header Allow says what is", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, code!("method_not_allowed"), said)
}
