//! What a Prometheus server scrapes: the reports and the journals, as numbers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::future::join_all;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;

use super::Server;
use super::call::{Call, Content, Reply, Shape};
use super::input::Bare;
use super::problem::{Answer, Problem};
use crate::config::{ConnectorName, Role};
use crate::connector::{Phase, Trigger};
use crate::daemon::{ConnectorReport, DurationsReport, Health, ViewReport, WorkReport};
use crate::error::Error;

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// How long a scrape waits for the journals: without them it has all the rest.
const PATIENCE: Duration = Duration::from_secs(2);
pub(super) const PHASES: [Phase; 12] = [
    Phase::Starting,
    Phase::Snapshotting,
    Phase::CatchingUp,
    Phase::Following,
    Phase::Paused,
    Phase::Completed,
    Phase::Retrying,
    Phase::Stopped,
    Phase::ContinuityLost,
    Phase::BreakerOpen,
    Phase::Fenced,
    Phase::Failed,
];

type Labels = Vec<(&'static str, String)>;
type Gauges = Family<Labels, Gauge<f64, AtomicU64>>;
type Counters = Family<Labels, Counter>;
type Histograms = Family<Labels, Taken>;

pub(super) const TEXT: Call = Call {
    id: "get_metrics",
    about: "What a Prometheus server scrapes.",
    role: Some(Role::Read),
    replies: &[Reply::new(200, Content::new(TYPE, Shape::Text), "OpenMetrics text.")],
    ..Call::BLANK
};

pub(super) async fn text(State(server): State<Arc<Server>>, _: Bare) -> Answer {
    let mut registry = Registry::with_prefix("cutover");
    let (connectors, views, resets) =
        (Connectors::new(&mut registry), Views::new(&mut registry), resets(&mut registry));
    let pipelines = server.daemon.pipelines();
    for pipeline in &pipelines {
        for view in &pipeline.views {
            views.take(&pipeline.name, view);
            view.connectors.iter().for_each(|report| connectors.take(report));
        }
    }
    let names = pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors).map(|c| c.name.as_str());
    for (labels, count) in counted(&server, names).await {
        resets.get_or_create(&labels).set(count as f64);
    }
    let mut page = String::new();
    text::encode(&mut page, &registry)
        .map_err(|e| Problem::from(Error::internal("the metrics were not written").with_source(e)))?;
    Ok(([(CONTENT_TYPE, TYPE)], page).into_response())
}

fn registered<M: Clone + Debug + prometheus_client::registry::Metric>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: M,
) -> M {
    registry.register(name, help, metric.clone());
    metric
}

struct Connectors {
    state: Gauges,
    health: Gauges,
    fenced: Gauges,
    breaker_open: Gauges,
    generation: Gauges,
    cutover_step: Gauges,
    last_step: Gauges,
    committed_step: Gauges,
    table_rows: Gauges,
    current_rows: Gauges,
    lag_steps: Gauges,
    lag_seconds: Gauges,
    snapshot_rows_written: Gauges,
    snapshot_rows_known: Gauges,
    streams: Gauges,
    sent_rows: Counters,
    sent_bytes: Counters,
    commits: Counters,
    rows: Counters,
    bytes: Counters,
    conflicts: Counters,
    retries: Counters,
    continuity_lost: Counters,
    commit_seconds: Histograms,
}

impl Connectors {
    fn new(registry: &mut Registry) -> Self {
        let mut gauge = |name, help| registered(registry, name, help, Gauges::default());
        let (state, health) = (
            gauge("state", "1 for the state that the connector is in, 0 for the others"),
            gauge("health", "0 healthy, 1 degraded, 2 unhealthy"),
        );
        let fenced = gauge("fenced", "1 while another writer has the table");
        let breaker_open =
            gauge("breaker_open", "1 while continuity is lost and the connector may not be reset by itself");
        let generation = gauge("generation", "The generation of the table");
        let cutover_step = gauge("cutover_step", "The step that the generation starts from");
        let last_step = gauge("last_step", "The last step that the source has");
        let committed_step =
            gauge("committed_step", "The last step that the table has, or that the client has said to have");
        let table_rows = gauge("table_rows", "Rows that the table has");
        let current_rows = gauge("current_rows", "Rows that the view has at the table's last step");
        let lag_steps = gauge("lag_steps", "How many steps table or client are behind the source");
        let lag_seconds = gauge("lag_seconds", "For how long they have been behind it");
        let snapshot_rows_written =
            gauge("snapshot_rows_written", "Rows written of the snapshot that is being written");
        let snapshot_rows_known = gauge("snapshot_rows_known", "Rows that the snapshot has that is being written");
        let streams = gauge("streams", "Streams that the connector's client has open");
        let mut counter = |name, help| registered(registry, name, help, Counters::default());
        Self {
            streams,
            sent_rows: counter("sent_rows", "Rows sent to the connector's client since the start"),
            sent_bytes: counter("sent_bytes", "Bytes sent to the connector's client since the start"),
            state,
            health,
            fenced,
            breaker_open,
            generation,
            cutover_step,
            last_step,
            committed_step,
            table_rows,
            current_rows,
            lag_steps,
            lag_seconds,
            snapshot_rows_written,
            snapshot_rows_known,
            commits: counter("commits", "Commits since the connector was started, by kind"),
            rows: counter("rows", "Rows of these commits, by kind and operation"),
            bytes: counter("bytes", "Bytes of the files that these commits added, by kind"),
            conflicts: counter("conflicts", "Commits of others that came first"),
            retries: counter("retries", "What failed for a while and was tried again, by stage"),
            continuity_lost: counter("continuity_lost", "How often continuity was lost, by cause"),
            commit_seconds: registered(
                registry,
                "commit_duration_seconds",
                "From the first put of a commit until it is known that the table has it",
                Histograms::default(),
            ),
        }
    }

    fn take(&self, report: &ConnectorReport) {
        let labels = labels(&report.name);
        let set = |family: &Gauges, value: f64| {
            family.get_or_create(&labels).set(value);
        };
        let set_number = |family: &Gauges, value: Option<u64>| {
            if let Some(value) = value {
                set(family, value as f64);
            }
        };
        for phase in PHASES {
            let is_in = report.state == phase.to_string();
            let labels = with(&labels, "state", phase.to_string());
            self.state.get_or_create(&labels).set(flag(is_in));
        }
        set(
            &self.health,
            match report.health {
                Health::Healthy => 0.0,
                Health::Degraded => 1.0,
                Health::Unhealthy => 2.0,
            },
        );
        set(&self.fenced, flag(report.state == Phase::Fenced.to_string()));
        set(&self.breaker_open, flag(report.state == Phase::BreakerOpen.to_string()));
        set_number(&self.generation, report.generation);
        set_number(&self.cutover_step, report.cutover);
        set_number(&self.last_step, report.source_step);
        set_number(&self.committed_step, report.last_step);
        set_number(&self.table_rows, report.table_rows);
        set_number(&self.current_rows, report.current_rows);
        set_number(&self.lag_steps, report.lag_steps);
        if let Some(seconds) = report.lag_seconds {
            set(&self.lag_seconds, seconds);
        }
        let snapshot = report.snapshot.as_ref();
        set_number(&self.snapshot_rows_written, snapshot.map(|s| s.rows));
        set_number(&self.snapshot_rows_known, snapshot.and_then(|s| s.rows_known));
        if let Some(streams) = report.streams {
            set(&self.streams, streams as f64);
            self.sent_rows.get_or_create(&labels).inc_by(report.rows);
            self.sent_bytes.get_or_create(&labels).inc_by(report.bytes);
        }
        self.take_failures(&labels, &report.work);
        if !report.is_stream() {
            self.take_commits(&labels, &report.work);
        }
    }

    fn take_commits(&self, labels: &Labels, work: &WorkReport) {
        for (kind, commits) in &work.commits {
            let labels = with(labels, "kind", kind.clone());
            self.commits.get_or_create(&labels).inc_by(commits.commits);
            self.bytes.get_or_create(&labels).inc_by(commits.bytes);
            for (op, rows) in [("i", commits.rows.i), ("u", commits.rows.u), ("d", commits.rows.d)] {
                self.rows.get_or_create(&with(&labels, "op", op.to_owned())).inc_by(rows);
            }
        }
        self.conflicts.get_or_create(labels).inc_by(work.conflicts);
        *self.commit_seconds.get_or_create(labels).0.lock().unwrap_or_else(PoisonError::into_inner) =
            work.commit_seconds.clone();
    }

    fn take_failures(&self, labels: &Labels, work: &WorkReport) {
        for (stage, count) in &work.retries {
            self.retries.get_or_create(&with(labels, "stage", stage.clone())).inc_by(*count);
        }
        for (cause, count) in &work.continuity_lost {
            self.continuity_lost.get_or_create(&with(labels, "cause", cause.clone())).inc_by(*count);
        }
    }
}

/// Durations that were counted elsewhere.
#[derive(Debug, Clone, Default)]
struct Taken(Arc<Mutex<DurationsReport>>);

impl EncodeMetric for Taken {
    fn encode(&self, mut encoder: MetricEncoder) -> std::fmt::Result {
        let durations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = durations.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(durations.counts.iter().copied()).collect();
        let count = durations.counts.iter().sum();
        encoder.encode_histogram::<NoLabelSet>(durations.sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Taken {
    const TYPE: MetricType = MetricType::Histogram;
}

struct Views {
    step_log_bytes: Gauges,
    step_log_max_bytes: Gauges,
    step_log_full: Gauges,
    backpressure_seconds: Gauges,
    rows: Gauges,
    wal_kept: Gauges,
}

impl Views {
    fn new(registry: &mut Registry) -> Self {
        let mut gauge = |name, help| registered(registry, name, help, Gauges::default());
        Self {
            step_log_bytes: gauge("step_log_bytes", "What the view's step log takes on disk"),
            step_log_max_bytes: gauge("step_log_max_bytes", "What it may take"),
            step_log_full: gauge("step_log_full", "1 while nothing more is stored because it is full"),
            backpressure_seconds: gauge("backpressure_seconds", "For how long that was so, since the view was opened"),
            rows: gauge("view_rows", "The rows of the view"),
            wal_kept: gauge("postgres_wal_kept_bytes", "What the server keeps because the slot was not read"),
        }
    }

    fn take(&self, pipeline: &str, view: &ViewReport) {
        let labels = vec![("pipeline", pipeline.to_owned()), ("view", view.name.clone())];
        if let Some(log) = &view.step_log {
            self.step_log_bytes.get_or_create(&labels).set(log.bytes as f64);
            self.step_log_max_bytes.get_or_create(&labels).set(log.max_bytes as f64);
            self.step_log_full.get_or_create(&labels).set(flag(log.is_full));
            self.backpressure_seconds.get_or_create(&labels).set(log.backpressure_seconds);
        }
        if let Some(rows) = view.rows {
            self.rows.get_or_create(&labels).set(rows as f64);
        }
        if let Some(wal) = &view.wal {
            self.wal_kept.get_or_create(&labels).set(wal.bytes as f64);
        }
    }
}

/// A gauge: older ones are forgotten.
fn resets(registry: &mut Registry) -> Gauges {
    registered(registry, "resets", "Resets that are remembered, by outcome and trigger", Gauges::default())
}

async fn counted(server: &Server, names: impl Iterator<Item = &str>) -> BTreeMap<Labels, u64> {
    let handles = names.filter_map(|name| {
        let mut parts = name.split('/');
        let name = ConnectorName::new(parts.next()?, parts.next()?, parts.next()?).ok()?;
        server.daemon.handle(&name)?.ok()
    });
    let asked = join_all(handles.map(|handle| async move {
        let resets = tokio::select! {
            resets = handle.resets() => resets.unwrap_or_default(),
            () = server.clock.deadline(PATIENCE) => Vec::new(),
        };
        (labels(handle.name()), resets)
    }));
    let mut counts = BTreeMap::new();
    for (labels, resets) in asked.await {
        for reset in resets {
            let outcome = with(&labels, "outcome", reset.state.to_string());
            *counts.entry(with(&outcome, "trigger", trigger(reset.trigger).to_owned())).or_default() += 1;
        }
    }
    counts
}

fn labels(name: &str) -> Labels {
    ["pipeline", "view", "connector"].into_iter().zip(name.split('/').map(str::to_owned)).collect()
}

fn with(labels: &Labels, name: &'static str, value: String) -> Labels {
    labels.iter().cloned().chain([(name, value)]).collect()
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

fn trigger(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Asked => "asked",
        Trigger::ContinuityLost => "continuity_lost",
        Trigger::SchemaChange => "schema_change",
        Trigger::ReloadRatio => "reload_ratio",
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
