//! Connectors: how each does, paused and resumed, taken up from the configuration and let go of with it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Server;
use super::access::Caller;
use super::input::{Bare, Place, Query};
use super::pipelines::{apply, nothing_called};
use super::problem::{Answer, Problem};
use crate::config::{ConnectorName, nearest};
use crate::connector::{Handle, Phase, Refusal};
use crate::daemon::{ConnectorReport, Daemon};
use crate::error::ErrorKind;

pub(super) async fn status(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<ConnectorReport>> {
    report(&server.daemon, &place.connector()?).map(Json)
}

/// In the shape that Feldera's clients read; `null` is what is not counted.
pub(super) async fn stats(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<Value>> {
    let report = report(&server.daemon, &place.connector()?)?;
    Ok(Json(json!({
        "endpoint_name": report.name,
        "metrics": {
            "transmitted_records": report.rows,
            "transmitted_bytes": report.bytes,
            "queued_records": report.lag_steps.filter(|lag| *lag == 0),
            "num_encode_errors": null,
            "num_transport_errors": null,
            "total_processed_steps": report.last_step,
        },
        "health": report.health,
    })))
}

pub(super) async fn continuity(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<Value>> {
    let report = report(&server.daemon, &place.connector()?)?;
    let lost = [ErrorKind::ContinuityLost, ErrorKind::Corrupt].map(ErrorKind::name);
    let states = [Phase::ContinuityLost, Phase::BreakerOpen].map(|phase| phase.to_string());
    let is_lost = states.contains(&report.state)
        || report.trouble.as_ref().is_some_and(|trouble| lost.contains(&trouble.code.as_str()));
    Ok(Json(json!({
        "state": report.state,
        "generation": report.generation,
        "cutover": report.cutover,
        "last_step": report.last_step,
        "from_source": report.source_step,
        "continuous": report.generation.is_some() && !is_lost,
        "trouble": report.trouble,
    })))
}

pub(super) async fn holds(State(server): State<Arc<Server>>, place: Place, query: Query) -> Answer<Json<Value>> {
    query.only(&["step"])?;
    query.need("step")?;
    let (name, step) = (place.connector()?, query.step("step")?);
    let last_step = report(&server.daemon, &name)?.last_step;
    let holds = step.and_then(|step| server.daemon.holds(&name, step)).unwrap_or(false);
    Ok(Json(json!({ "holds": holds, "last_step": last_step })))
}

pub(super) async fn pause(
    State(server): State<Arc<Server>>,
    place: Place,
    caller: Caller,
    _: Bare,
) -> Answer<Json<ConnectorReport>> {
    let name = place.connector()?;
    let paused = handle(&server.daemon, &name)?.pause(caller.who).await;
    shown(&server.daemon, &name, paused)
}

pub(super) async fn resume(
    State(server): State<Arc<Server>>,
    place: Place,
    caller: Caller,
    _: Bare,
) -> Answer<Json<ConnectorReport>> {
    let name = place.connector()?;
    let resumed = handle(&server.daemon, &name)?.resume(caller.who).await;
    shown(&server.daemon, &name, resumed)
}

/// The connector after a call, or why the call was refused.
fn shown(daemon: &Daemon, name: &ConnectorName, called: Result<(), Refusal>) -> Answer<Json<ConnectorReport>> {
    called.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    report(daemon, name).map(Json)
}

/// Takes a connector up that the configuration's file names. Where it delivers to, the file says, never a request.
pub(super) async fn put(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer {
    let name = place.connector()?;
    if !is_on_file(&server.daemon, &name).await? {
        let said = format!("the configuration names no connector {name}; write it there, then call again");
        return Err(Problem::not_found(said));
    }
    let changed = apply(&server.daemon).await?;
    let status = if changed.added.contains(&name.to_string()) { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(report(&server.daemon, &name)?)).into_response())
}

/// Lets go of a connector that the configuration's file does not name any more.
pub(super) async fn delete(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Response> {
    let name = place.connector()?;
    if is_on_file(&server.daemon, &name).await? {
        let said = format!("the configuration still names {name}; take it out and call again, or pause the connector");
        let problem = Problem::new(StatusCode::CONFLICT, "still_configured", said);
        return Err(problem.next(format!("cutover pause {name}")));
    }
    report(&server.daemon, &name)?;
    apply(&server.daemon).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn is_on_file(daemon: &Daemon, name: &ConnectorName) -> Answer<bool> {
    Ok(daemon.on_file().await?.connectors.iter().any(|c| c.name == *name))
}

pub(super) fn report(daemon: &Daemon, name: &ConnectorName) -> Answer<ConnectorReport> {
    daemon.connector(name).ok_or_else(|| no_such(daemon, name))
}

/// By which the connector is controlled.
pub(super) fn handle(daemon: &Daemon, name: &ConnectorName) -> Answer<Handle> {
    let handle = daemon.handle(name).ok_or_else(|| no_such(daemon, name))?;
    handle.map_err(|error| Problem::from(error).next(format!("cutover status {name}")))
}

pub(super) fn no_such(daemon: &Daemon, name: &ConnectorName) -> Problem {
    let pipelines = daemon.pipelines();
    let names = pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors).map(|c| c.name.as_str());
    nothing_called("connector", &name.to_string(), nearest(&name.to_string(), names))
}
