//! Connectors: how each does, paused and resumed, taken up from the configuration and let go of with it.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::Server;
use super::access::Caller;
use super::call::{self, Call, ERRORS, Fault, Key, Reply};
use super::input::{Bare, Place, Query};
use super::pipelines::{apply, nothing_called};
use super::problem::{ASKED, Answer, Problem};
use crate::config::{ConnectorName, Role, nearest};
use crate::connector::{Handle, Phase, Refusal};
use crate::daemon::{ConnectorReport, Daemon, Health, TroubleReport};
use crate::error::ErrorKind;

pub(super) const STATUS: Call = Call {
    id: "get_connector",
    about: "How a connector does.",
    role: Some(Role::Read),
    replies: &[Reply::json::<ConnectorReport>(200, "The connector.")],
    ..Call::BLANK
};

pub(super) async fn status(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<ConnectorReport>> {
    report(&server.daemon, &place.connector()?).map(Json)
}

/// A connector in the shape that Feldera's clients read.
#[derive(Serialize, JsonSchema)]
pub(super) struct StatsReport {
    /// Its full name, `pipeline/view/connector`.
    #[schemars(example = &"shop/prices/lake")]
    endpoint_name: String,
    /// What is counted.
    metrics: StatsMetrics,
    /// How it does.
    health: Health,
}

/// What is counted; `null` is what is not.
#[derive(Serialize, JsonSchema)]
struct StatsMetrics {
    /// Rows appended since the start of the daemon.
    transmitted_records: u64,
    /// Bytes appended since.
    transmitted_bytes: u64,
    /// 0 when the table has everything.
    queued_records: Option<u64>,
    /// Always `null`.
    num_encode_errors: Option<u64>,
    /// Always `null`.
    num_transport_errors: Option<u64>,
    /// The table's last step.
    total_processed_steps: Option<u64>,
}

pub(super) const STATS: Call = Call {
    id: "get_connector_stats",
    about: "A connector's counters, in Feldera's shape.",
    role: Some(Role::Read),
    replies: &[Reply::json::<StatsReport>(200, "The counters.")],
    ..Call::BLANK
};

pub(super) async fn stats(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<StatsReport>> {
    let report = report(&server.daemon, &place.connector()?)?;
    Ok(Json(StatsReport {
        metrics: StatsMetrics {
            transmitted_records: report.rows,
            transmitted_bytes: report.bytes,
            queued_records: report.lag_steps.filter(|lag| *lag == 0),
            num_encode_errors: None,
            num_transport_errors: None,
            total_processed_steps: report.last_step,
        },
        endpoint_name: report.name,
        health: report.health,
    }))
}

/// Whether a table continues its source.
#[derive(Serialize, JsonSchema)]
pub(super) struct ContinuityReport {
    /// What the connector is doing.
    #[schemars(with = "Phase")]
    state: String,
    /// The table's generation.
    generation: Option<u64>,
    /// The step that the generation starts from.
    cutover: Option<u64>,
    /// The table's last step.
    last_step: Option<u64>,
    /// The source's last step, as far as it is known.
    from_source: Option<u64>,
    /// Whether there is a generation, and nothing is known to be missing from it.
    continuous: bool,
    /// What is wrong.
    trouble: Option<TroubleReport>,
}

pub(super) const CONTINUITY: Call = Call {
    id: "get_connector_continuity",
    about: "Whether a connector's table continues its source.",
    role: Some(Role::Read),
    replies: &[Reply::json::<ContinuityReport>(200, "What is known of it.")],
    ..Call::BLANK
};

pub(super) async fn continuity(
    State(server): State<Arc<Server>>,
    place: Place,
    _: Bare,
) -> Answer<Json<ContinuityReport>> {
    let report = report(&server.daemon, &place.connector()?)?;
    let lost = [ErrorKind::ContinuityLost, ErrorKind::Corrupt].map(ErrorKind::name);
    let states = [Phase::ContinuityLost, Phase::BreakerOpen].map(|phase| phase.to_string());
    let is_lost = states.contains(&report.state)
        || report.trouble.as_ref().is_some_and(|trouble| lost.contains(&trouble.code.as_str()));
    Ok(Json(ContinuityReport {
        state: report.state,
        generation: report.generation,
        cutover: report.cutover,
        last_step: report.last_step,
        from_source: report.source_step,
        continuous: report.generation.is_some() && !is_lost,
        trouble: report.trouble,
    }))
}

/// Whether a table has a step.
#[derive(Serialize, JsonSchema)]
pub(super) struct HoldsReport {
    /// Whether it has it.
    holds: bool,
    /// The table's last step.
    last_step: Option<u64>,
}

pub(super) const HOLDS: Call = Call {
    id: "get_connector_holds",
    about: "Whether a connector's table has a step.",
    role: Some(Role::Read),
    query: &[Key::required("step", call::Value::Step, "The step.")],
    replies: &[Reply::json::<HoldsReport>(200, "Whether it has it.")],
    ..Call::BLANK
};

pub(super) async fn holds(State(server): State<Arc<Server>>, place: Place, query: Query) -> Answer<Json<HoldsReport>> {
    query.only(&["step"])?;
    query.need("step")?;
    let (name, step) = (place.connector()?, query.step("step")?);
    let last_step = report(&server.daemon, &name)?.last_step;
    let holds = step.and_then(|step| server.daemon.holds(&name, step)).unwrap_or(false);
    Ok(Json(HoldsReport { holds, last_step }))
}

pub(super) const PAUSE: Call = Call {
    id: "pause_connector",
    about: "Let a connector rest; it keeps its place.",
    role: Some(Role::Admin),
    replies: &[Reply::json::<ConnectorReport>(200, "The connector.")],
    faults: &[ASKED, ERRORS],
    ..Call::BLANK
};

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

pub(super) const RESUME: Call = Call {
    id: "resume_connector",
    about: "Let a connector go on, and try again what had failed.",
    role: Some(Role::Admin),
    replies: &[Reply::json::<ConnectorReport>(200, "The connector.")],
    faults: &[ASKED, ERRORS],
    ..Call::BLANK
};

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

pub(super) const PUT: Call = Call {
    id: "put_connector",
    about: "Take a connector up that the configuration's file names.",
    more: "The file is loaded anew, whole. A request carries names; where a table is, only the file says.",
    role: Some(Role::Admin),
    replies: &[
        Reply::json::<ConnectorReport>(200, "The connector, which was there."),
        Reply::json::<ConnectorReport>(201, "The connector, which was added."),
    ],
    faults: &[&[Fault::new(404, "not_found", "the file does not name the connector")], ERRORS],
    ..Call::BLANK
};

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

pub(super) const DELETE: Call = Call {
    id: "delete_connector",
    about: "Let go of a connector that the configuration's file does not name any more.",
    more: "The file is loaded anew, whole. The table stays as it is.",
    role: Some(Role::Admin),
    replies: &[Reply::empty(204, "It runs no more.")],
    faults: &[&[Fault::new(409, "still_configured", "the file still names the connector")], ERRORS],
    ..Call::BLANK
};

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
