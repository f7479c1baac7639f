//! Pipelines: what there is, how far a push came, and the configuration loaded anew.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Server;
use super::input::{Bare, Place, Query};
use super::problem::{Answer, Problem};
use crate::config::nearest;
use crate::daemon::{Changed, Completion, Daemon, PipelineReport};
use crate::error::{Error, Result};

pub(super) async fn all(State(server): State<Arc<Server>>, _: Bare) -> Json<Vec<PipelineReport>> {
    Json(server.daemon.pipelines())
}

pub(super) async fn one(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<PipelineReport>> {
    find(&server.daemon, place.pipeline()?).map(Json)
}

pub(super) async fn completion_status(
    State(server): State<Arc<Server>>,
    place: Place,
    query: Query,
) -> Answer<Json<Value>> {
    query.only(&["token"])?;
    let (pipeline, token) = (place.pipeline()?, query.need("token")?);
    let status = match server.daemon.completion(pipeline, token) {
        Completion::Complete => "complete",
        Completion::InProgress => "inprogress",
        Completion::NotOpen => {
            let said = "the view of the token is not open, so nobody can tell for now; ask again, or see what is wrong with it";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", said));
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
    Ok(Json(json!({ "status": status })))
}

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
