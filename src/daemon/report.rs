//! What an operator sees of a daemon, as REST and command line show it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::member::patience;
use super::views::{Behind, LoggedView};
use super::work::WorkReport;
use crate::clock::Clock;
use crate::config::{ConnectorConfig, Destination, SourceConfig, ViewConfig};
use crate::connector::{Phase, Status, Trouble};
use crate::continuity::stamp::Mode;
use crate::egress::Book;
use crate::error::Error;
use crate::explain::code;
use crate::quantity::duration;
use crate::step::Step;

/// A source of which a report has other words, and a destination.
const POSTGRES: &str = "postgres";
const HTTP: &str = "http";
/// The name and version of a connector's form.
const SCHEMA: &str = "cutover.status/1";

/// How something does, the worst last: a pipeline does as its worst connector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It delivers, or has delivered all.
    Healthy,
    /// It does not deliver, and that is wanted or passes by itself.
    Degraded,
    /// It needs somebody.
    Unhealthy,
}

/// A pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Pipeline")]
pub struct PipelineReport {
    /// Its name.
    pub name: String,
    /// Its views.
    pub views: Vec<ViewReport>,
}

impl PipelineReport {
    /// The worst of its connectors'.
    pub fn health(&self) -> Health {
        self.views.iter().map(ViewReport::health).max().unwrap_or(Health::Healthy)
    }
}

/// A view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "View")]
pub struct ViewReport {
    /// Its name.
    pub name: String,
    /// Where its rows come from: `files`, `push` or `postgres`.
    pub source: String,
    /// Whether its rows are kept; of a pushed view.
    pub materialized: Option<bool>,
    /// How many rows it has; of a materialized view.
    pub rows: Option<u64>,
    /// Why it is not open, or not followed any more.
    pub trouble: Option<String>,
    /// Why what is pushed is not stored, until something is; or why nothing can be read from its source for now.
    pub refusal: Option<String>,
    /// The step log; of a view that has one.
    pub step_log: Option<StepLogReport>,
    /// What its source keeps because it was not read yet; of a PostgreSQL database.
    #[serde(default)]
    pub wal: Option<WalReport>,
    /// How many streams of it are open that are no connector's.
    #[serde(default)]
    pub streams: u64,
    /// Its connectors.
    pub connectors: Vec<ConnectorReport>,
}

impl ViewReport {
    pub(super) fn of(
        config: &ViewConfig,
        pushed: Option<&LoggedView>,
        streams: u64,
        connectors: Vec<ConnectorReport>,
    ) -> Self {
        let standing = pushed.and_then(LoggedView::standing);
        Self {
            name: config.name.clone(),
            source: source(&config.source).to_string(),
            materialized: pushed.filter(|_| config.source == SourceConfig::Push).map(|_| config.materialized),
            rows: standing.as_ref().and_then(|s| s.rows),
            trouble: pushed.and_then(LoggedView::trouble),
            refusal: standing.as_ref().and_then(|s| s.refusal.clone()),
            wal: standing.as_ref().and_then(|s| s.wal.clone()),
            step_log: standing.and_then(|s| {
                Some(StepLogReport {
                    earliest: s.log?.earliest.get(),
                    last: s.log?.last.get(),
                    bytes: s.log?.bytes,
                    max_bytes: config.step_log_bytes,
                    is_full: s.is_full,
                    backpressure_seconds: s.backpressure.as_secs_f64(),
                })
            }),
            streams,
            connectors,
        }
    }

    fn health(&self) -> Health {
        self.connectors.iter().map(|c| c.health).max().unwrap_or(Health::Healthy).max(self.own_health())
    }

    /// What is wrong with the view itself: a code, why, and what helps.
    pub fn ill(&self) -> Option<(&'static str, &str, &'static str)> {
        let is_full = self.step_log.as_ref().is_some_and(|log| log.is_full);
        match (&self.trouble, &self.refusal) {
            (Some(why), _) => {
                Some((code!("view_failed"), why, "do what the reason says, then load the configuration anew"))
            }
            (None, Some(why)) if is_full => {
                Some((code!("step_log_full"), why, "let its connectors go on, or give it a larger max_bytes"))
            }
            (None, Some(why)) if self.source == POSTGRES => {
                Some((code!("source_away"), why, "none: it is tried again"))
            }
            (None, Some(why)) => {
                Some((code!("view_failed"), why, "look at the disk, then load the configuration anew"))
            }
            (None, None) => None,
        }
    }

    /// How the view itself does, beside its connectors.
    pub fn own_health(&self) -> Health {
        let is_full = self.step_log.as_ref().is_some_and(|log| log.is_full);
        match (&self.trouble, &self.refusal) {
            (None, None) => Health::Healthy,
            // A server that is away may come back by itself; what does not pass is a trouble.
            (None, Some(_)) if is_full || self.source == POSTGRES => Health::Degraded,
            _ => Health::Unhealthy,
        }
    }
}

/// The write-ahead log that a server keeps for a replication slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Wal")]
pub struct WalReport {
    /// What it takes, in bytes.
    pub bytes: u64,
    /// The server's own word for it: `reserved`, `extended`, `unreserved` or `lost`.
    pub status: String,
}

/// A step log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StepLog")]
pub struct StepLogReport {
    /// The step before the first one that it holds.
    pub earliest: u64,
    /// The last step that it was given.
    pub last: u64,
    /// What it takes on disk.
    pub bytes: u64,
    /// What it may take.
    pub max_bytes: u64,
    /// Whether pushes are refused because it is full.
    pub is_full: bool,
    /// For how long they were, in seconds, since the view was opened.
    pub backpressure_seconds: f64,
}

/// A connector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Connector")]
pub struct ConnectorReport {
    /// The name and version of this form.
    #[schemars(example = &"cutover.status/1")]
    pub schema: String,
    /// The full name, `pipeline/view/connector`.
    #[schemars(example = &"shop/prices/lake")]
    pub name: String,
    /// `follow`, `snapshot_and_follow` or `snapshot`.
    #[schemars(with = "Mode")]
    pub mode: String,
    /// What it delivers to: `delta`, a table, or `http`, a client that comes for a stream.
    #[schemars(example = &"delta")]
    pub destination: String,
    /// The table, or the path at which its client asks for the stream.
    #[schemars(example = &"s3://lake/prices")]
    pub uri: String,
    /// What it is doing.
    #[schemars(with = "Phase")]
    pub state: String,
    /// Since when, in milliseconds since 1970 UTC.
    pub since: Option<i64>,
    /// How it does.
    pub health: Health,
    /// What is wrong.
    pub trouble: Option<TroubleReport>,
    /// The reset that is to be carried out.
    pub reset: Option<String>,
    /// The generation of the table or the stream.
    pub generation: Option<u64>,
    /// The step that the generation starts from.
    pub cutover: Option<u64>,
    /// The table's last step, or the one that the client has said to have.
    pub last_step: Option<u64>,
    /// How many rows the table has; absent where its commits do not tell.
    pub table_rows: Option<u64>,
    /// How many rows the view has at that step, by the inserts and deletes in the table: too many where a source calls updates
    /// inserts.
    pub current_rows: Option<u64>,
    /// The last step that the source has, as far as it is known.
    pub source_step: Option<u64>,
    /// How many steps that is behind, where steps are counted: of a table of a PostgreSQL database, whose steps are positions in the
    /// server's log, 0 or nothing.
    pub lag_steps: Option<u64>,
    /// For how long it has been behind without a commit, in seconds, as far as anybody looked.
    pub lag_seconds: Option<f64>,
    /// The snapshot that is being written.
    pub snapshot: Option<SnapshotReport>,
    /// Its place in the step log; absent where it keeps none.
    pub place: Option<PlaceReport>,
    /// How many streams its client has open; of one that has no table.
    pub streams: Option<u64>,
    /// The last step that the client was sent whole, since the start of the daemon; of one that has no table.
    pub sent_step: Option<u64>,
    /// Appends, or chunks that were sent, since the start of the daemon.
    pub appends: u64,
    /// Rows appended or sent since.
    pub rows: u64,
    /// Bytes appended or sent since.
    pub bytes: u64,
    /// All that it did since.
    pub work: WorkReport,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Trouble")]
pub struct TroubleReport {
    /// The name of the error's kind; `behind` where there was none, and nothing goes on for too long.
    pub code: String,
    /// By what continuity was lost, if it was.
    pub cause: Option<String>,
    /// What it said.
    pub reason: String,
    /// What helps.
    pub next_action: String,
}

/// A snapshot that is being written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Snapshot")]
pub struct SnapshotReport {
    /// Its step.
    pub step: Option<u64>,
    /// Rows written.
    pub rows: u64,
    /// Rows in all, where that is known.
    pub rows_known: Option<u64>,
    /// Bytes written.
    pub bytes: u64,
    /// Rows a second since its beginning.
    pub rows_per_second: Option<f64>,
    /// How long it will take, in seconds.
    pub seconds_left: Option<f64>,
}

/// A connector's place in a step log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Place")]
pub struct PlaceReport {
    /// The last step that it has said to have.
    pub acknowledged: Option<u64>,
    /// What becomes of pushes when the log is full because of it: `backpressure` or `detach`.
    pub when_full: String,
}

/// Since when a connector has been behind, and since when it stands where it is; by the boot clock.
#[derive(Debug, Default)]
pub(super) struct Lag {
    behind: Option<Duration>,
    last_step: Option<Step>,
    moved: Option<Duration>,
}

impl Lag {
    /// How long it has been behind and how long it has not moved, as far as anybody looked.
    fn look(&mut self, is_behind: bool, last_step: Option<Step>, now: Duration) -> (Duration, Duration) {
        if last_step != self.last_step || self.moved.is_none() {
            (self.last_step, self.moved, self.behind) = (last_step, Some(now), None);
        }
        self.behind = if is_behind { self.behind.or(Some(now)) } else { None };
        let since = |then: Option<Duration>| then.map_or(Duration::ZERO, |then| now.saturating_sub(then));
        let behind = since(self.behind);
        (behind, since(self.moved).min(behind))
    }
}

impl ConnectorReport {
    /// Whether it delivers to a client that comes for a stream, and not to a table.
    pub fn is_stream(&self) -> bool {
        self.destination == HTTP
    }

    pub(super) fn of(
        config: &ConnectorConfig,
        status: &Status,
        pushed: Option<&LoggedView>,
        lag: &mut Lag,
        clock: &dyn Clock,
    ) -> Self {
        let now = clock.boot();
        let standing = pushed.and_then(LoggedView::standing);
        let source_step = standing.as_ref().map(|s| s.last);
        let is_due = status.phase != Phase::Completed;
        let distance = standing.as_ref().filter(|_| is_due).map(|standing| standing.behind(status.last_step));
        let lag_steps = distance.and_then(|distance| match distance {
            Behind::Steps(steps) => Some(steps),
            Behind::Somewhat => None,
        });
        let is_behind = distance.is_some_and(|distance| distance != Behind::Steps(0));
        let (behind, still) = lag.look(is_behind, status.last_step, now);
        let pace = status.pace(now);
        let snapshot = status.snapshot.as_ref().filter(|_| status.phase == Phase::Snapshotting);
        let place = standing.as_ref().and_then(|s| s.connectors.get(config.name.connector()));
        let is_stuck = still > patience(config) && !matches!(status.phase, Phase::Snapshotting | Phase::Paused);
        let counts = status.tally.counts();
        // One that has all that was read waits for its source.
        let away = standing.as_ref().and_then(|s| s.away.as_ref());
        let away = away.filter(|_| matches!(status.phase, Phase::Following | Phase::CatchingUp));
        let phase = match away {
            Some(trouble) if trouble.kind.is_retryable() => Phase::Retrying,
            Some(trouble) => Phase::of_error(trouble.kind),
            None => status.phase,
        };
        let health = if is_stuck { Health::Unhealthy } else { health(phase) };
        let stuck = || is_stuck.then(|| TroubleReport::stuck(&config.destination, lag_steps, still));
        Self {
            health,
            state: phase.to_string(),
            since: status.since,
            trouble: status.trouble.as_ref().or(away).map(TroubleReport::of).or_else(stuck),
            reset: status.reset.clone(),
            generation: status.generation.map(|g| g.get()),
            cutover: status.cutover.map(Step::get),
            last_step: status.last_step.map(Step::get),
            table_rows: config.delta().zip(status.rows_total).map(|(delta, total)| delta.layout.live_rows(total)),
            current_rows: status.rows_total.and_then(|total| config.mode.current_rows(total)),
            source_step: source_step.map(Step::get),
            lag_steps,
            lag_seconds: distance.map(|_| behind.as_secs_f64()),
            snapshot: snapshot.map(|progress| SnapshotReport {
                step: status.snapshot_step.map(Step::get),
                rows: progress.rows(),
                rows_known: progress.known_rows(),
                bytes: progress.bytes(),
                rows_per_second: pace.map(|p| p.rows_per_second),
                seconds_left: pace.and_then(|p| p.left).map(|left| left.as_secs_f64()),
            }),
            place: place.map(|place| PlaceReport {
                acknowledged: place.acknowledged.map(Step::get),
                when_full: place.when_full.to_string(),
            }),
            appends: counts.appends.commits,
            rows: counts.appends.rows.total(),
            bytes: counts.appends.bytes,
            work: WorkReport::of(&counts),
            ..Self::blank(config)
        }
    }

    /// The same of one whose client has streams.
    pub(super) fn sent(self, book: &Book) -> Self {
        let sent = book.sent();
        let place = book.current().and_then(|page| page.place);
        Self {
            // It moves while the connector is paused, too.
            last_step: place.map(|place| place.step.get()),
            sent_step: sent.step(),
            streams: Some(book.streams()),
            appends: sent.chunks.load(Ordering::Relaxed),
            rows: sent.rows.load(Ordering::Relaxed),
            bytes: sent.bytes.load(Ordering::Relaxed),
            ..self
        }
    }

    /// One that could not be started.
    pub(super) fn failed(config: &ConnectorConfig, error: &Error) -> Self {
        // It is started once its database is there, and all is well with its table.
        let passes = matches!(config.source, SourceConfig::Postgres(_)) && error.kind().is_retryable();
        let (phase, next) = match passes {
            true => (Phase::Retrying, "none: it is tried again"),
            false => (Phase::Failed, "do what the reason says, then load the configuration anew"),
        };
        let trouble = TroubleReport {
            code: error.kind().name().to_string(),
            cause: None,
            reason: error.message().to_string(),
            next_action: next.to_string(),
        };
        Self { trouble: Some(trouble), state: phase.to_string(), health: health(phase), ..Self::blank(config) }
    }

    fn blank(config: &ConnectorConfig) -> Self {
        Self {
            schema: SCHEMA.to_string(),
            name: config.name.to_string(),
            mode: config.mode.to_string(),
            destination: match &config.destination {
                Destination::Delta(_) => "delta",
                Destination::Http => HTTP,
            }
            .to_string(),
            uri: match &config.destination {
                Destination::Delta(delta) => delta.uri.clone(),
                Destination::Http => {
                    let name = &config.name;
                    format!("/v1/pipelines/{}/egress/{}?connector={}", name.pipeline(), name.view(), name.connector())
                }
            },
            state: Phase::Failed.to_string(),
            since: None,
            health: Health::Unhealthy,
            trouble: None,
            reset: None,
            generation: None,
            cutover: None,
            last_step: None,
            table_rows: None,
            current_rows: None,
            source_step: None,
            lag_steps: None,
            lag_seconds: None,
            snapshot: None,
            place: None,
            streams: None,
            sent_step: None,
            appends: 0,
            rows: 0,
            bytes: 0,
            work: WorkReport::default(),
        }
    }
}

impl TroubleReport {
    /// Of one that does not move although there is no error.
    fn stuck(destination: &Destination, steps: Option<u64>, still: Duration) -> Self {
        let still = duration(still);
        let steps = steps.map_or("steps".to_owned(), |steps| format!("{steps} steps"));
        let (reason, next_action) = match destination {
            Destination::Delta(_) => (
                format!("the table got no commit for {still}, and lacks {steps}"),
                "look at the log and at the storage; resume the connector, or start the program anew",
            ),
            Destination::Http => (
                format!("the client has said nothing for {still}, and lacks {steps}, which the step log keeps for it"),
                "look whether the client runs, and whether it says what it has: by acknowledge, or when it resumes",
            ),
        };
        Self { code: code!("behind").to_string(), cause: None, reason, next_action: next_action.to_string() }
    }

    pub(super) fn of(trouble: &Trouble) -> Self {
        Self {
            code: trouble.kind.name().to_string(),
            cause: trouble.lost.map(|lost| lost.to_string()),
            reason: trouble.reason.clone(),
            next_action: trouble.next_action.to_string(),
        }
    }
}

fn health(phase: Phase) -> Health {
    match phase {
        Phase::Following | Phase::CatchingUp | Phase::Snapshotting | Phase::Completed | Phase::Starting => {
            Health::Healthy
        }
        Phase::Retrying | Phase::Paused | Phase::Stopped => Health::Degraded,
        Phase::ContinuityLost | Phase::BreakerOpen | Phase::Fenced | Phase::Failed => Health::Unhealthy,
    }
}

fn source(config: &SourceConfig) -> &'static str {
    match config {
        SourceConfig::Files(_) => "files",
        SourceConfig::Push => "push",
        SourceConfig::Postgres(_) => POSTGRES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_not_move_says_so_and_what_helps() {
        let client = TroubleReport::stuck(&Destination::Http, Some(7), Duration::from_secs(75));
        assert_eq!(client.code, "behind");
        for (said, word) in
            [(&client.reason, "client"), (&client.reason, "7 steps"), (&client.next_action, "acknowledge")]
        {
            assert!(said.contains(word), "{client:?}");
        }
    }
}
