//! Views as streams of chunks, and what a connector's client says to have.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures::stream;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tokio::task::JoinSet;

use super::Server;
use super::call::{Call, Content, ERRORS, Fault, Key, Reply, Shape, Value};
use super::connectors::no_such;
use super::door::Endless;
use super::input::{Place, Query, has_body};
use super::pipelines::{find, nothing_called};
use super::problem::{Answer, Problem};
use crate::config::{ConnectorName, Role, check_name, nearest};
use crate::continuity::stamp::Mode;
use crate::daemon::{EgressRefusal, EgressRequest, Outflow};
use crate::egress::{self, Format};
use crate::error::Error;
use crate::generation::Generation;

/// How many chunks wait for a client, besides the one that is written.
const WAITING: usize = 1;
const RESUME: [&str; 4] = ["generation", "after_step", "after_strand", "after_sequence"];
/// No stream comes so far, and there is room for what follows.
const LAST_CHUNK: u64 = i64::MAX as u64;
const NDJSON: &str = "application/x-ndjson";
const ARROW: &str = "application/vnd.apache.arrow.stream";

/// What a connector's client is known to have.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Acknowledged")]
pub(super) struct AcknowledgeReport {
    /// The generation of the stream.
    generation: u64,
    /// The last step that the client has.
    step: Option<u64>,
    /// The last chunk that the client has.
    sequence_number: Option<u64>,
}

/// What a resumption may be refused for.
const RESUMED: &[Fault] = &[
    Fault::new(410, "generation_gone", "the stream is of another generation; ask without the step")
        .with(&["generation", "asked"]),
    Fault::new(410, "step_gone", "what follows the step is kept no more").with(&["generation", "earliest_step"]),
    Fault::new(410, "step_beyond", "the step is beyond all that the view has").with(&["generation", "last_step"]),
    Fault::new(410, "other_strand", "the step is another than the one that the client has, or nobody can tell")
        .with(&["generation", "strand"]),
    Fault::new(410, "continuity_lost", "the connector was detached; reset it"),
];

/// What a connector may be that has no stream for its client.
const UNREADY: &[Fault] = &[
    Fault::new(409, "no_stream", "the connector delivers to no client"),
    Fault::new(409, "failed", "the connector needs somebody's help"),
    Fault::new(409, "paused", "the connector is paused"),
    Fault::new(409, "completed", "the connector has sent all that it was to send"),
];

pub(super) const PULL: Call = Call {
    id: "pull",
    about: "A view as a stream of chunks: its rows at one step, then every later change.",
    more: "Ends with a chunk that says why, when it cannot go on; nothing is left out.",
    role: Some(Role::Read),
    query: &[
        Key::required(
            "format",
            Value::Word(&["ndjson", "arrow", "json"]),
            "How chunks are written; `json` is `ndjson`.",
        ),
        Key::optional(
            "mode",
            Value::Word(&["snapshot_and_follow", "follow", "snapshot"]),
            "What is sent; `snapshot_and_follow`, or the connector's, without it.",
        ),
        Key::optional("generation", Value::Number, "The generation of what the client has, to go on behind it."),
        Key::optional("after_step", Value::Step, "The last step that the client has whole."),
        Key::optional("after_strand", Value::Strand, "The strand of that step, which proves that it is the same."),
        Key::optional("after_sequence", Value::Number, "The last chunk that the client has."),
        Key::optional("connector", Value::Name, "The connector as whose client it is asked."),
        Key::optional("array", Value::Word(&["false"]), "Feldera's; an array is not written."),
        Key::optional("backpressure", Value::Word(&["true"]), "Feldera's; nothing is left out for a slow client."),
    ],
    replies: &[
        Reply::new(200, Content::new(NDJSON, Shape::Endless), "Chunks, until one side has enough."),
        Reply::new(200, Content::new(ARROW, Shape::Endless), "The same as batches of Arrow IPC."),
    ],
    faults: &[
        RESUMED,
        UNREADY,
        &[
            Fault::new(409, "mode_differs", "the connector has another mode").with(&["mode"]),
            Fault::new(409, "nothing_to_resume", "mode `snapshot` goes on from nothing"),
            Fault::new(422, "no_snapshot", "the view's rows are not kept"),
            Fault::new(429, "too_many_streams", "too many streams are open"),
        ],
        ERRORS,
    ],
    ..Call::BLANK
};

pub(super) const ACKNOWLEDGE: Call = Call {
    id: "acknowledge",
    about: "The client of a connector says what it has, so that the step log may let go of it.",
    role: Some(Role::Read),
    query: &[
        Key::required("generation", Value::Number, "The generation of what it has."),
        Key::required("after_step", Value::Step, "The last step that it has whole."),
        Key::optional("after_strand", Value::Strand, "The strand of that step, which proves that it is the same."),
        Key::optional("after_sequence", Value::Number, "The last chunk that it has."),
    ],
    replies: &[Reply::json::<AcknowledgeReport>(200, "It is written down.")],
    faults: &[RESUMED, UNREADY, ERRORS],
    ..Call::BLANK
};

pub(super) async fn pull(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
    headers: HeaderMap,
) -> Answer<Response> {
    query.only(&[&RESUME[..], &["mode", "format", "connector", "array", "backpressure"]].concat())?;
    if has_body(&headers) {
        return Err(Problem::bad_request("this call takes no body: what is wanted, its path and its query say"));
    }
    let (pipeline, view) = (place.pipeline()?, place.view()?);
    let request = request(&server, &query)?;
    let slot = Arc::clone(&server.streams).try_acquire_owned().map_err(|_| crowded())?;
    let outflow = match server.daemon.egress(pipeline, view, &request).await {
        Some(outflow) => outflow.map_err(|refusal| refused(&server, (pipeline, view), refusal))?,
        None => return Err(no_view(&server, pipeline, view)),
    };
    let body = Pipe::of(outflow, server.stop.subscribe(), slot).into_body();
    let kind = match request.format {
        Format::Ndjson => NDJSON,
        Format::Arrow => ARROW,
    };
    Ok((Extension(Endless), [(CONTENT_TYPE, HeaderValue::from_static(kind))], body).into_response())
}

pub(super) async fn acknowledge(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
    headers: HeaderMap,
) -> Answer<Json<AcknowledgeReport>> {
    query.only(&RESUME)?;
    if has_body(&headers) {
        return Err(Problem::bad_request("this call takes no body: its path and its query say all"));
    }
    let name = place.connector()?;
    query.need("generation")?;
    let Some((generation, had)) = resume(&query)? else {
        return Err(Problem::bad_request("the query lacks the keys \"generation\" and \"after_step\""));
    };
    let answer = server.daemon.acknowledge(&name, generation, had).await;
    let page = answer.ok_or_else(|| no_such(&server.daemon, &name))?;
    let page = page.map_err(|refusal| refused(&server, (name.pipeline(), name.view()), refusal))?;
    Ok(Json(AcknowledgeReport {
        generation: page.generation.get(),
        step: page.place.map(|place| place.step.get()),
        sequence_number: page.place.map(|place| place.sequence_number),
    }))
}

fn request(server: &Server, query: &Query) -> Answer<EgressRequest> {
    query.need("format")?;
    let formats = [("ndjson", Format::Ndjson), ("arrow", Format::Arrow), ("json", Format::Ndjson)];
    let format = query.word("format", &formats)?.unwrap_or(Format::Ndjson);
    let modes = [Mode::SnapshotAndFollow, Mode::Follow, Mode::Snapshot].map(|mode| (mode.to_string(), mode));
    let modes: Vec<(&str, Mode)> = modes.iter().map(|(word, mode)| (word.as_str(), *mode)).collect();
    let mode = query.word("mode", &modes)?;
    let resume = resume(query)?;
    if mode == Some(Mode::Snapshot) && resume.is_some() {
        return Err(Problem::bad_request(
            "mode snapshot sends the whole state and goes on from nothing; leave the step out",
        ));
    }
    if query.word("array", &[("false", false), ("true", true)])? == Some(true) {
        return Err(Problem::bad_request("an array is not written; chunks stand a line each, with array=false"));
    }
    if query.word("backpressure", &[("true", true), ("false", false)])? == Some(false) {
        return Err(Problem::bad_request("nothing is left out for a slow client; leave the key \"backpressure\" out"));
    }
    let connector = query.get("connector").map(str::to_owned);
    connector.as_deref().map_or(Ok(()), check_name).map_err(Problem::bad_request)?;
    Ok(EgressRequest { mode, format, resume, connector, bounds: server.bounds.egress })
}

/// What the caller has.
fn resume(query: &Query) -> Answer<Option<(Generation, egress::Place)>> {
    let generation = query.whole("generation", "generation")?.map(Generation::new).transpose();
    let generation = generation.map_err(|e| Problem::bad_request(e.message()))?;
    let (step, sequence_number) = (query.step("after_step")?, query.whole("after_sequence", "number of a chunk")?);
    let strand = query.get("after_strand").map(str::parse).transpose();
    let strand = strand.map_err(|e: Error| Problem::bad_request(format!("after_strand: {}", e.message())))?;
    if sequence_number.is_some_and(|number| number > LAST_CHUNK) {
        return Err(Problem::bad_request(format!(
            "the key \"after_sequence\" is beyond {LAST_CHUNK}, which no chunk has"
        )));
    }
    match (generation, step) {
        (Some(generation), Some(step)) => {
            let sequence_number = sequence_number.unwrap_or(0);
            Ok(Some((generation, egress::Place { step, sequence_number, strand })))
        }
        (None, None) if sequence_number.is_none() && strand.is_none() => Ok(None),
        _ => Err(Problem::bad_request(
            "the keys \"generation\" and \"after_step\" say together what you have: send both, and \"after_strand\" and \"after_sequence\" only with them",
        )),
    }
}

/// What a client is sent, by a task that ends with it.
struct Pipe {
    chunks: mpsc::Receiver<Bytes>,
    /// The one that sends; it ends with its last bytes.
    sender: JoinSet<Option<Bytes>>,
    _slot: OwnedSemaphorePermit,
}

impl Pipe {
    fn of(outflow: Outflow, mut stopping: watch::Receiver<bool>, slot: OwnedSemaphorePermit) -> Self {
        let (out, chunks) = mpsc::channel(WAITING);
        let mut sender = JoinSet::new();
        let stopped = async move {
            // A server that is gone has stopped.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        sender.spawn(outflow.run(out, stopped));
        Self { chunks, sender, _slot: slot }
    }

    fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, async |mut pipe| {
            if let Some(chunk) = pipe.chunks.recv().await {
                return Some((Ok(chunk), pipe));
            }
            match pipe.sender.join_next().await? {
                Ok(last) => last.map(|last| (Ok(last), pipe)),
                Err(panic) => Some((Err(io::Error::other(panic)), pipe)),
            }
        }))
    }
}

fn no_view(server: &Server, pipeline: &str, view: &str) -> Problem {
    match find(&server.daemon, pipeline) {
        Ok(found) => nothing_called("view", view, nearest(view, found.views.iter().map(|v| v.name.as_str()))),
        Err(problem) => problem,
    }
}

fn refused(server: &Server, (pipeline, view): (&str, &str), refusal: EgressRefusal) -> Problem {
    let of_fault = |status: StatusCode, fault: egress::Fault| {
        let problem = Problem::new(status, fault.error_code, fault.message);
        fault.details.into_iter().fold(problem, |problem, (name, value)| problem.with(&name, value))
    };
    match refusal {
        EgressRefusal::NoConnector(name) => match ConnectorName::new(pipeline, view, &name) {
            Ok(name) => no_such(&server.daemon, &name),
            Err(e) => Problem::bad_request(e.message()),
        },
        EgressRefusal::Gone(fault) => of_fault(StatusCode::GONE, fault),
        EgressRefusal::Conflict(fault) => of_fault(StatusCode::CONFLICT, fault),
        EgressRefusal::NoSnapshot(said) => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "no_snapshot", said),
        EgressRefusal::Failed(error) => error.into(),
    }
}

fn crowded() -> Problem {
    let said = "too many streams are open; end one, or ask again later";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", said).retry_soon()
}
