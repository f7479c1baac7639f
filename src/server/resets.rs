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
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Server;
use super::access::{Caller, check_content_type};
use super::call::{self, BODIES, Body as Sent, Call, Content, ERRORS, Fault, Key, Need, Reply};
use super::connectors::handle;
use super::input::{Bare, Members, Place, Query};
use super::problem::{ASKED, Answer, FORGOTTEN, Problem, RESETS};
use crate::config::{ConnectorName, Role};
use crate::connector::{BreakerRule, LogRepair, ResetPreview, ResetRecord, ResetRequest, ResetState, Trigger};
use crate::continuity::plan::Ours;
use crate::daemon::SnapshotReport;
use crate::generation::Generation;
use crate::sink::RebuildPlan;

const KEY_NAME: &str = "idempotency-key";
const KEY: HeaderName = HeaderName::from_static(KEY_NAME);
/// The most bytes that the body of a call for a reset may have.
const LONGEST_BODY: usize = 64 << 10;

/// A reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Reset")]
pub struct ResetReport {
    /// Its id.
    #[schemars(example = &"6f1c0a52-8a59-4b8e-9d0f-0d7b1f1b7a11")]
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

/// What is asked for.
#[derive(Default, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ResetAsked {
    /// Why; in the commit and in the history; at most 4,096 bytes.
    #[schemars(length(max = 4096), example = &"the sink was restored from a backup")]
    reason: Option<String>,
    /// The generation that the table is expected to have: with another one, the call is refused.
    #[schemars(range(min = 1))]
    expected_generation: Option<u64>,
    /// Whether only what it would do is told.
    dry_run: Option<bool>,
    /// Whether it is carried out also when the breaker is open.
    override_breaker: Option<bool>,
}

/// A reset that is written down.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResetAccepted {
    /// Its id.
    id: String,
    /// The same.
    token: String,
    /// Whether this call began it; else it was accepted before.
    new: bool,
    /// Where it is told how far it is.
    status_url: String,
}

/// What a reset would do.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResetPlan {
    /// The generation that it would begin.
    generation: u64,
    /// The step that the generation would start from.
    cutover: u64,
    /// The table as it is; null where there is none of this connector's.
    replaces: Option<ResetReplaces>,
    /// What would become of a damaged log.
    log: ResetLog,
}

/// A table as it is.
#[derive(Serialize, JsonSchema)]
struct ResetReplaces {
    /// Its generation.
    generation: u64,
    /// Its last step.
    last_step: u64,
}

/// What becomes of a damaged log.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ResetLog {
    /// Nothing is damaged.
    Unneeded,
    /// The reload is made past the damage.
    Passed,
    /// The log is rebuilt.
    Rebuilt,
    /// A rebuild that was begun is finished.
    Finished,
}

pub(super) const ASK: Call = Call {
    id: "reset_connector",
    about: "Ask for the view to be loaded again into the connector's table.",
    more: "It is answered when it is written down, long before it is done, and carried out whatever happens to the daemon. \
        A call gets the id of a reset that was accepted before when it has the same `Idempotency-Key`, when a reset has not \
        ended, or, without a key, when the same asker's was accepted a moment before.",
    role: Some(Role::Admin),
    headers: &[Key::optional(KEY_NAME, call::Value::Text(256), "Which calls are one; ASCII text.")],
    body: Some(Sent {
        about: "What is asked for; a call without a body asks for a reset.",
        need: Need::Optional,
        forms: &[Content::json::<ResetAsked>()],
    }),
    replies: &[
        Reply::json::<ResetPlan>(200, "Of a dry run: what it would do."),
        Reply::json::<ResetAccepted>(202, "It is written down.")
            .with_headers(&[("Location", "Where it is told how far the reset is.")]),
    ],
    faults: &[BODIES, RESETS, ASKED, ERRORS],
    ..Call::BLANK
};

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
    let location = [(LOCATION, status_url.clone())];
    let body = ResetAccepted { token: accepted.id.clone(), id: accepted.id, new: accepted.is_new, status_url };
    Ok((StatusCode::ACCEPTED, location, Json(body)).into_response())
}

pub(super) const ALL: Call = Call {
    id: "list_resets",
    about: "The resets of a connector that are remembered, the newest first.",
    role: Some(Role::Read),
    replies: &[Reply::json::<Vec<ResetReport>>(200, "The resets.")],
    faults: &[ASKED, ERRORS],
    ..Call::BLANK
};

pub(super) async fn all(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<Vec<ResetReport>>> {
    let name = place.connector()?;
    let resets = handle(&server.daemon, &name)?.resets().await;
    let resets = resets.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    Ok(Json(resets.into_iter().map(|record| ResetReport::of(record).in_progress(&server, &name)).collect()))
}

pub(super) const ONE: Call = Call {
    id: "get_reset",
    about: "How far a reset is.",
    role: Some(Role::Read),
    replies: &[Reply::json::<ResetReport>(200, "The reset.")],
    faults: &[FORGOTTEN, ASKED, ERRORS],
    ..Call::BLANK
};

pub(super) async fn one(State(server): State<Arc<Server>>, place: Place, _: Bare) -> Answer<Json<ResetReport>> {
    let (name, id) = (place.connector()?, place.id());
    let found = handle(&server.daemon, &name)?.reset_by_id(id).await;
    let found = found.map_err(|refusal| Problem::of_refusal(refusal, &name.to_string()))?;
    let record = found.ok_or_else(|| Problem::unknown_reset(id, &name.to_string()))?;
    Ok(Json(ResetReport::of(record).in_progress(&server, &name)))
}

pub(super) const CANCEL: Call = Call {
    id: "cancel_reset",
    about: "Take a reset back before its commit.",
    role: Some(Role::Admin),
    replies: &[Reply::json::<ResetReport>(200, "The reset, which is cancelled.")],
    faults: &[
        &[Fault::new(409, "not_cancellable", "the commit of the reset `id` has begun, or it has ended")
            .with(&["id", "state"])],
        FORGOTTEN,
        ASKED,
        ERRORS,
    ],
    ..Call::BLANK
};

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
    let asked = ResetAsked {
        reason: members.get("reason", "a string")?,
        expected_generation: members.get("expected_generation", "a whole number")?,
        dry_run: members.get("dry_run", "true or false")?,
        override_breaker: members.get("override_breaker", "true or false")?,
    };
    let expected_generation = asked.expected_generation.map(Generation::new).transpose();
    let expected_generation = expected_generation.map_err(|e| Problem::bad_request(e.message()))?;
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
        why: asked.reason.unwrap_or_default(),
        key: key.map(str::to_owned),
        expected_generation,
        breaker: if asked.override_breaker.unwrap_or(false) { BreakerRule::Override } else { BreakerRule::Heed },
    };
    Ok((request, asked.dry_run.unwrap_or(false)))
}

fn shown(preview: &ResetPreview) -> ResetPlan {
    let replaces = |ours: &Ours| ResetReplaces { generation: ours.generation.get(), last_step: ours.last_step.get() };
    ResetPlan {
        generation: preview.generation.get(),
        cutover: preview.cutover.get(),
        replaces: preview.ours.as_ref().map(replaces),
        log: match &preview.repair {
            LogRepair::Unneeded => ResetLog::Unneeded,
            LogRepair::Past(_) => ResetLog::Passed,
            LogRepair::Rebuild(RebuildPlan::Load { .. }) => ResetLog::Rebuilt,
            LogRepair::Rebuild(RebuildPlan::Finish { .. }) => ResetLog::Finished,
        },
    }
}
