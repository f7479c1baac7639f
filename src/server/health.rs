//! Whether the process lives, whether it has looked at all that it has, and how that does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::Server;
use super::access::Caller;
use super::input::Bare;
use super::problem::Problem;
use crate::connector::Phase;
use crate::daemon::{ConnectorReport, Health, PipelineReport};

pub(super) async fn live(_: Bare) -> &'static str {
    "live\n"
}

/// Ready once no connector is starting, whatever its health: a process that is sent away for a table's sake helps nobody.
pub(super) async fn ready(State(server): State<Arc<Server>>, caller: Caller, _: Bare) -> Response {
    let starting = Phase::Starting.to_string();
    let pipelines = server.daemon.pipelines();
    let connectors = connectors(&pipelines).filter(|c| c.state == starting);
    let mut reasons: Vec<Value> = connectors.map(|c| format!("the connector {} is starting", c.name).into()).collect();
    if !server.daemon.has_begun() {
        reasons.push("views and connectors are being opened".into());
    }
    if reasons.is_empty() {
        return "ready\n".into_response();
    }
    let said = "not all of the connectors have looked at what they have";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", said).retry_soon();
    // Who has no token learns no names.
    let problem = if caller.may_see() { problem.with("reasons", reasons) } else { problem };
    problem.into_response()
}

/// The worst of all, and what is wrong where something is.
pub(super) async fn worst(State(server): State<Arc<Server>>, _: Bare) -> Response {
    let pipelines = server.daemon.pipelines();
    let worst = pipelines.iter().map(PipelineReport::health).max().unwrap_or(Health::Healthy);
    let status = if worst == Health::Unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let pipelines: Vec<Value> = pipelines.iter().map(pipeline).collect();
    (status, Json(json!({ "health": worst, "pipelines": pipelines }))).into_response()
}

fn pipeline(pipeline: &PipelineReport) -> Value {
    let views = pipeline.views.iter().filter_map(|view| {
        let reason = view.trouble.as_ref().or(view.refusal.as_ref())?;
        Some(json!({ "view": format!("{}/{}", pipeline.name, view.name), "health": view.own_health(), "reason": reason }))
    });
    let ill = connectors(std::slice::from_ref(pipeline)).filter(|c| c.health != Health::Healthy);
    let ill = ill.map(|c| {
        let trouble = c.trouble.as_ref();
        json!({
            "connector": c.name,
            "health": c.health,
            "state": c.state,
            "since": c.since,
            "code": trouble.map(|t| &t.code),
            "reason": trouble.map(|t| &t.reason),
            "next_action": trouble.map(|t| &t.next_action),
        })
    });
    json!({ "name": pipeline.name, "health": pipeline.health(), "reasons": views.chain(ill).collect::<Vec<_>>() })
}

fn connectors(pipelines: &[PipelineReport]) -> impl Iterator<Item = &ConnectorReport> {
    pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors)
}
