//! Whether the process lives, whether it has looked at all that it has, and how that does.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Server;
use super::access::Caller;
use super::call::{Call, Content, Fault, Reply, Shape};
use super::input::Bare;
use super::problem::Problem;
use crate::config::Role;
use crate::connector::Phase;
use crate::daemon::{ConnectorReport, Health, PipelineReport};
use crate::webhooks::WebhookReport;

const TEXT: Content = Content::new("text/plain; charset=utf-8", Shape::Text);

pub(super) const LIVE: Call = Call {
    id: "get_livez",
    about: "Whether the process lives.",
    replies: &[Reply::new(200, TEXT, "It does.")],
    ..Call::BLANK
};

pub(super) async fn live(_: Bare) -> &'static str {
    "live\n"
}

pub(super) const READY: Call = Call {
    id: "get_readyz",
    about: "Whether all connectors have started, whatever their health.",
    replies: &[Reply::new(200, TEXT, "They have.")],
    faults: &[&[
        Fault::new(503, "starting", "some are starting; `reasons` says which to those who may see").with(&["reasons"])
    ]],
    ..Call::BLANK
};

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

/// How everything does.
#[derive(Serialize, JsonSchema)]
pub(super) struct HealthReport {
    /// The worst below.
    health: Health,
    /// Every pipeline.
    pipelines: Vec<PipelineHealth>,
    /// Those who are told of events; one that is not told makes the whole `degraded`.
    webhooks: Vec<WebhookReport>,
}

/// How a pipeline does.
#[derive(Serialize, JsonSchema)]
struct PipelineHealth {
    /// Its name.
    name: String,
    /// The worst below.
    health: Health,
    /// What is not healthy.
    reasons: Vec<Reason>,
}

/// What is not healthy.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Reason {
    /// A view that is not open, or does not store what is pushed.
    View {
        /// Its full name, `pipeline/view`.
        view: String,
        /// How it does.
        health: Health,
        /// `view_failed`, `step_log_full`, or `source_away`.
        code: &'static str,
        /// Why.
        reason: String,
        /// What helps.
        next_action: &'static str,
    },
    /// A connector.
    Connector {
        /// Its full name, `pipeline/view/connector`.
        connector: String,
        /// How it does.
        health: Health,
        /// What it is doing.
        #[schemars(with = "Phase")]
        state: String,
        /// Since when, in milliseconds since 1970 UTC.
        since: Option<i64>,
        /// The name of the error's kind.
        code: Option<String>,
        /// What the error said.
        reason: Option<String>,
        /// What helps.
        next_action: Option<String>,
    },
}

pub(super) const WORST: Call = Call {
    id: "get_health",
    about: "The worst of all, and what is wrong where something is.",
    role: Some(Role::Read),
    replies: &[
        Reply::json::<HealthReport>(200, "All is healthy, or what is not passes by itself or is wanted."),
        Reply::json::<HealthReport>(503, "Something is unhealthy: it needs somebody."),
    ],
    ..Call::BLANK
};

/// The worst of all, and what is wrong where something is.
pub(super) async fn worst(State(server): State<Arc<Server>>, _: Bare) -> Response {
    let pipelines = server.daemon.pipelines();
    let webhooks = server.daemon.webhooks();
    // Tables are kept whether anybody is told of it or not.
    let told = if webhooks.iter().all(WebhookReport::is_delivering) { Health::Healthy } else { Health::Degraded };
    let worst = pipelines.iter().map(PipelineReport::health).max().unwrap_or(Health::Healthy).max(told);
    let status = if worst == Health::Unhealthy { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let pipelines = pipelines.iter().map(pipeline).collect();
    (status, Json(HealthReport { health: worst, pipelines, webhooks })).into_response()
}

fn pipeline(pipeline: &PipelineReport) -> PipelineHealth {
    let views = pipeline.views.iter().filter_map(|view| {
        let view_name = format!("{}/{}", pipeline.name, view.name);
        let (code, reason, next_action) = view.ill()?;
        let reason = reason.to_owned();
        Some(Reason::View { view: view_name, health: view.own_health(), code, reason, next_action })
    });
    let ill = connectors(std::slice::from_ref(pipeline)).filter(|c| c.health != Health::Healthy);
    let ill = ill.cloned().map(|c| {
        let trouble = c.trouble;
        Reason::Connector {
            connector: c.name,
            health: c.health,
            state: c.state,
            since: c.since,
            code: trouble.as_ref().map(|t| t.code.clone()),
            reason: trouble.as_ref().map(|t| t.reason.clone()),
            next_action: trouble.map(|t| t.next_action),
        }
    });
    PipelineHealth { name: pipeline.name.clone(), health: pipeline.health(), reasons: views.chain(ill).collect() }
}

fn connectors(pipelines: &[PipelineReport]) -> impl Iterator<Item = &ConnectorReport> {
    pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors)
}
