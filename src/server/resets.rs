//! Resets: asked for, looked at, taken back.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{HeaderMap, LOCATION};
use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Server;
use super::access::{Caller, check_content_type};
use super::connectors::handle;
use super::input::{Bare, Members, Place, Query};
use super::problem::{Answer, Problem};
use crate::config::ConnectorName;
use crate::connector::{BreakerRule, LogRepair, ResetPreview, ResetRecord, ResetRequest, ResetState, Trigger};
use crate::continuity::plan::Ours;
use crate::daemon::SnapshotReport;
use crate::generation::Generation;
use crate::sink::RebuildPlan;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The most bytes that the body of a call for a reset may have.
const LONGEST_BODY: usize = 64 << 10;

/// A reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResetReport {
    /// Its id.
    pub id: String,
    /// `accepted`, `snapshotting`, `committing`, `committed`, `cancelled`, `failed` or `expired`.
    pub state: String,
    /// `asked`, `continuity_lost` or `schema_change`.
    pub trigger: Trigger,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
    /// When it was accepted, in milliseconds since 1970 UTC.
    pub accepted_at: i64,
    /// When it ended, in milliseconds since 1970 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<i64>,
    /// The version that holds it, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The generation that it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The step that the generation starts from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// Why it ended without a commit: the name of an error's kind, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How far its snapshot is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<SnapshotReport>,
}

impl ResetReport {
    fn of(record: ResetRecord) -> Self {
        let state = record.state.to_string();
        let ended_at = (!record.state.is_unfinished()).then_some(record.changed_millis);
        let reloaded = match &record.state {
            ResetState::Committed(reloaded) => Some(*reloaded),
            _ => None,
        };
        let (code, reason) = match record.state {
            ResetState::Failed { code, reason } => (Some(code), Some(reason)),
            ResetState::Cancelled { who } => (Some(state.clone()), Some(format!("{who} took it back"))),
            ResetState::Expired => {
                (Some(state.clone()), Some("it could not be carried out within a day, and changed nothing".to_owned()))
            }
            _ => (None, None),
        };
        Self {
            id: record.id,
            state,
            trigger: record.trigger,
            who: record.who,
            why: record.why,
            accepted_at: record.accepted_millis,
            ended_at,
            version: reloaded.and_then(|r| r.version),
            generation: reloaded.map(|r| r.generation.get()),
            step: reloaded.map(|r| r.step.get()),
            code,
            reason,
            progress: None,
        }
    }

    /// With how far it is, if it is the one that is carried out.
    fn in_progress(mut self, server: &Server, name: &ConnectorName) -> Self {
        let report = server.daemon.connector(name).filter(|report| report.reset.as_deref() == Some(&self.id));
        self.progress = report.and_then(|report| report.snapshot);
        self
    }
}

/// Asks for a reset; answered when it is written down.
pub(super) async fn ask(
    State(server): State<Arc<Server>>,
    place: Place,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    query.only(&[])?;
    let name = place.connector()?;
    let handle = handle(&server.daemon, &name)?;
    let body = whole(body, &server).await?;
    let (request, is_dry) = request(caller, &headers, &body)?;
    let refused = |refusal| Problem::of_refusal(refusal, &name.to_string());
    if is_dry {
        let preview = handle.preview(request).await.map_err(refused)?;
        return Ok(Json(shown(&preview)).into_response());
    }
    let accepted = handle.reset(request).await.map_err(refused)?;
    let status_url = format!(
        "/v1/pipelines/{}/views/{}/connectors/{}/resets/{}",
        name.pipeline(),
        name.view(),
        name.connector(),
        accepted.id
    );
    let body = json!({
        "id": accepted.id,
        "token": accepted.id,
        "new": accepted.is_new,
        "status_url": status_url,
    });
    Ok((StatusCode::ACCEPTED, [(LOCATION, status_url)], Json(body)).into_response())
}

pub(super) async fn all(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<Vec<ResetReport>>> {
    let name = place.connector()?;
    let resets = handle(&server.daemon, &name)?.resets().await;
    let resets = resets.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    Ok(Json(resets.into_iter().map(|record| ResetReport::of(record).in_progress(&server, &name)).collect()))
}

pub(super) async fn one(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<ResetReport>> {
    let (name, id) = (place.connector()?, place.id());
    let found = handle(&server.daemon, &name)?.reset_by_id(id).await;
    let found = found.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    let record = found.ok_or_else(|| Problem::unknown_reset(id, &name.to_string()))?;
    Ok(Json(ResetReport::of(record).in_progress(&server, &name)))
}

pub(super) async fn cancel(
    State(server): State<Arc<Server>>,
    place: Place,
    caller: Caller,
    _: Bare,
) -> Answer<Json<ResetReport>> {
    let name = place.connector()?;
    let cancelled = handle(&server.daemon, &name)?.cancel(place.id(), caller.who).await;
    let record = cancelled.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    Ok(Json(ResetReport::of(record)))
}

/// A small body, all of it.
async fn whole(body: Body, server: &Server) -> Answer<Vec<u8>> {
    let (mut chunks, mut whole) = (body.into_data_stream(), Vec::new());
    let read = async {
        while let Some(chunk) = chunks.next().await {
            let chunk: Bytes = chunk.map_err(|_| Problem::bad_request("the body ended before its end"))?;
            if whole.len() + chunk.len() > LONGEST_BODY {
                let said = format!("the body is longer than {LONGEST_BODY} bytes");
                let problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_long", said);
                return Err(problem.with("limit_bytes", LONGEST_BODY as u64));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(())
    };
    tokio::select! {
        read = read => read?,
        () = server.clock.deadline(server.bounds.patience) => {
            let said = format!("the body did not arrive within {:?}", server.bounds.patience);
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", said));
        }
    }
    Ok(whole)
}

/// What is asked for, and whether only what it would do.
fn request(caller: Caller, headers: &HeaderMap, body: &[u8]) -> Answer<(ResetRequest, bool)> {
    if !body.is_empty() {
        check_content_type(headers, &["application/json"])?;
    }
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let members = Members::parse(body, &["reason", "expected_generation", "dry_run", "override_breaker"])?;
    let expected_generation = members.get::<u64>("expected_generation", "a whole number")?;
    let expected_generation = expected_generation.map(Generation::new).transpose();
    let expected_generation = expected_generation.map_err(|e| Problem::bad_request(e.message()))?;
    let overrides = members.get::<bool>("override_breaker", "true or false")?.unwrap_or(false);
    let keys: Vec<_> = headers.get_all(KEY).iter().collect();
    let key = match keys.as_slice() {
        [] => None,
        [key] => key.to_str().ok().filter(|key| !key.is_empty()),
        _ => None,
    };
    if key.is_none() && !keys.is_empty() {
        return Err(Problem::bad_request("the header Idempotency-Key is empty, stands twice, or is no ASCII text"));
    }
    let request = ResetRequest {
        who: caller.who,
        why: members.get::<String>("reason", "a string")?.unwrap_or_default(),
        key: key.map(str::to_owned),
        expected_generation,
        breaker: if overrides { BreakerRule::Override } else { BreakerRule::Heed },
    };
    Ok((request, members.get::<bool>("dry_run", "true or false")?.unwrap_or(false)))
}

fn shown(preview: &ResetPreview) -> Value {
    let replaces = |ours: &Ours| json!({ "generation": ours.generation, "last_step": ours.last_step });
    let log = match &preview.repair {
        LogRepair::Unneeded => "unneeded",
        LogRepair::Past(_) => "passed",
        LogRepair::Rebuild(RebuildPlan::Load { .. }) => "rebuilt",
        LogRepair::Rebuild(RebuildPlan::Finish { .. }) => "finished",
    };
    json!({
        "generation": preview.generation,
        "cutover": preview.cutover,
        "replaces": preview.ours.as_ref().map(replaces),
        "log": log,
    })
}
