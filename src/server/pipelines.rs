//! Pipelines: what there is, how far a push came, and the configuration loaded anew.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::Server;
use super::call::{self, Call, ERRORS, Fault, Key, Reply};
use super::input::{Bare, Place, Query};
use super::problem::{Answer, Problem};
use crate::config::{Role, nearest};
use crate::daemon::{Changed, Completion, Daemon, PipelineReport};
use crate::error::{Error, Result};

pub(super) const ALL: Call = Call {
    id: "list_pipelines",
    about: "Every pipeline with its views and connectors.",
    role: Some(Role::Read),
    replies: &[Reply::json::<Vec<PipelineReport>>(200, "The pipelines that the configuration names.")],
    ..Call::BLANK
};

pub(super) async fn all(State(server): State<Arc<Server>>, _: Bare) -> Json<Vec<PipelineReport>> {
    Json(server.daemon.pipelines())
}

pub(super) const ONE: Call = Call {
    id: "get_pipeline",
    about: "A pipeline with its views and connectors.",
    role: Some(Role::Read),
    replies: &[Reply::json::<PipelineReport>(200, "The pipeline.")],
    ..Call::BLANK
};

pub(super) async fn one(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<PipelineReport>> {
    find(&server.daemon, place.pipeline()?).map(Json)
}

/// Whether every table has what was pushed.
#[derive(Serialize, JsonSchema)]
pub(super) struct CompletionReport {
    /// How far the push came.
    status: CompletionWord,
}

/// How far a push came.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CompletionWord {
    /// Each connector's commit has the step of the token.
    Complete,
    /// Some do not have it yet.
    InProgress,
}

pub(super) const COMPLETION_STATUS: Call = Call {
    id: "get_completion_status",
    about: "Whether every table has what was pushed.",
    role: Some(Role::Read),
    query: &[Key::required("token", call::Value::Text(512), "What a push answered as its token.")],
    replies: &[Reply::json::<CompletionReport>(200, "How far the push came.")],
    faults: &[&[
        Fault::new(404, "not_found", "no such pipeline, or the token is none of it"),
        Fault::new(410, "gone", "the token is of another life of its view: push again what it stood for"),
        Fault::new(503, "unavailable", "the view of the token is not open"),
    ]],
    ..Call::BLANK
};

pub(super) async fn completion_status(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
) -> Answer<Json<CompletionReport>> {
    query.only(&["token"])?;
    let (pipeline, token) = (place.pipeline()?, query.need("token")?);
    let status = match server.daemon.completion(pipeline, token) {
        Completion::Complete => CompletionWord::Complete,
        Completion::InProgress => CompletionWord::InProgress,
        Completion::NotOpen => {
            let said = "the view of the token is not open, so nobody can tell for now; ask again, or see what is wrong with it";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", said).retry_soon());
        }
        Completion::Gone => {
            let said = "the token is of another life of its view, so nobody can tell; push again what it stood for";
            return Err(Problem::new(StatusCode::GONE, "gone", said));
        }
        Completion::Unknown => {
            let pipeline = find(&server.daemon, pipeline)?.name;
            return Err(Problem::not_found(format!("{token:?} is no token of the pipeline {pipeline}")));
        }
    };
    Ok(Json(CompletionReport { status }))
}

pub(super) const RELOAD: Call = Call {
    id: "reload_configuration",
    about: "Load the configuration's file anew.",
    more: "What differs is added, removed and started anew, and what failed is tried again; the rest goes on.",
    role: Some(Role::Admin),
    replies: &[Reply::json::<Changed>(200, "What changed.")],
    faults: &[ERRORS],
    ..Call::BLANK
};

pub(super) async fn reload(State(server): State<Arc<Server>>, _: Bare) -> Answer<Json<Changed>> {
    Ok(Json(apply(&server.daemon).await?))
}

/// Loads the configuration anew. Whoever asked may go away meanwhile: it is not left half done.
pub(super) async fn apply(daemon: &Arc<Daemon>) -> Result<Changed> {
    let daemon = Arc::clone(daemon);
    let applied = tokio::spawn(async move { daemon.reload().await });
    applied.await.map_err(|e| Error::internal("the configuration was not loaded to its end").with_source(e))?
}

/// The pipeline `name`.
pub(super) fn find(daemon: &Daemon, name: &str) -> Answer<PipelineReport> {
    let pipelines = daemon.pipelines();
    if let Some(found) = pipelines.iter().find(|p| p.name == name) {
        return Ok(found.clone());
    }
    let near = nearest(name, pipelines.iter().map(|p| p.name.as_str()));
    Err(nothing_called("pipeline", name, near))
}

/// Nothing of this kind has this name.
pub(super) fn nothing_called(kind: &str, name: &str, near: Option<&str>) -> Problem {
    let hint = near.map_or("list those that there are".to_owned(), |near| format!("did you mean {near:?}?"));
    Problem::not_found(format!("no {kind} is called {name:?}; {hint}"))
}
