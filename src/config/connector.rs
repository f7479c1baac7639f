//! A connector, whatever it delivers to.

use std::time::Duration;

use super::defaults::Defaults;
use super::delta::{self, Tables};
use super::section::{Field, Section};
use super::source::Kind;
use super::view::ViewPart;
use super::{CommitBounds, ConnectorConfig, ConnectorName, Destination, step_log};
use crate::connector::OnContinuityLoss;
use crate::continuity::columns::SchemaChange;
use crate::continuity::plan::OnExisting;
use crate::continuity::stamp::{Layout, Mode};
use crate::log::Durability;
use crate::source::logged::WhenFull;

/// What any connector has, as far as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Common {
    mode: Option<Mode>,
    on_existing: Option<OnExisting>,
    on_continuity_loss: Option<OnContinuityLoss>,
    schema_change: Option<SchemaChange>,
    max_interval: Option<Duration>,
    max_rows: Option<u64>,
    max_bytes: Option<u64>,
    durability: Option<Durability>,
    heartbeat: Option<Option<Duration>>,
}

impl Common {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let mode = read_mode(section);
        let on_existing =
            section.field("on_existing").and_then(|f| f.word(&[OnExisting::Error, OnExisting::Truncate], &[]));
        let on_continuity_loss = section
            .field("on_continuity_loss")
            .and_then(|f| f.word(&[OnContinuityLoss::FailClosed, OnContinuityLoss::Reset], &[]));
        let schema_change = section
            .field("schema_change")
            .and_then(|f| f.word(&[SchemaChange::Fail, SchemaChange::AddColumns, SchemaChange::Reload], &[]));
        let durability = section.field("durability").and_then(|f| f.word(&[Durability::Commit, Durability::None], &[]));
        let heartbeat = section.field("heartbeat").and_then(|f| f.duration_or_off());
        let mut common =
            Self { mode, on_existing, on_continuity_loss, schema_change, durability, heartbeat, ..Self::default() };
        if let Some(mut commit) = section.section("commit") {
            common.max_interval = commit.field("max_interval").and_then(|f| f.duration());
            common.max_rows = commit.field("max_rows").and_then(|f| f.integer(1, i64::MAX.unsigned_abs()));
            common.max_bytes = commit.field("max_bytes").and_then(|f| f.size());
            commit.finish(&[]);
        }
        common
    }

    fn over(self, below: Self) -> Self {
        Self {
            mode: self.mode.or(below.mode),
            on_existing: self.on_existing.or(below.on_existing),
            on_continuity_loss: self.on_continuity_loss.or(below.on_continuity_loss),
            schema_change: self.schema_change.or(below.schema_change),
            max_interval: self.max_interval.or(below.max_interval),
            max_rows: self.max_rows.or(below.max_rows),
            max_bytes: self.max_bytes.or(below.max_bytes),
            durability: self.durability.or(below.durability),
            heartbeat: self.heartbeat.or(below.heartbeat),
        }
    }

    /// The keys that are written and mean something for a table only.
    fn of_tables(self) -> impl Iterator<Item = &'static str> {
        let written = [
            ("on_existing", self.on_existing.is_some()),
            ("schema_change", self.schema_change.is_some()),
            ("commit", self.max_interval.is_some() || self.max_rows.is_some() || self.max_bytes.is_some()),
            ("durability", self.durability.is_some()),
            ("heartbeat", self.heartbeat.is_some()),
        ];
        written.into_iter().filter_map(|(key, is_written)| is_written.then_some(key))
    }

    fn commit(self) -> CommitBounds {
        let default = CommitBounds::default();
        CommitBounds {
            max_interval: self.max_interval.unwrap_or(default.max_interval),
            max_rows: self.max_rows.unwrap_or(default.max_rows),
            max_bytes: self.max_bytes.unwrap_or(default.max_bytes),
        }
    }
}

fn read_mode(section: &mut Section<'_>) -> Option<Mode> {
    let written = section.field("mode");
    let mode = written.as_ref().and_then(|f| f.word(&[Mode::SnapshotAndFollow, Mode::Follow, Mode::Snapshot], &[]));
    let Some(alias) = section.field("send_snapshot") else { return mode };
    let send_snapshot = alias.boolean();
    if written.is_some() {
        alias.refuse_key("says the same as \"mode\", which stands here too; remove one of them");
    }
    mode.or(send_snapshot.map(|send| if send { Mode::SnapshotAndFollow } else { Mode::Follow }))
}

/// Reads the connector `name` of the view `from`; `None` where that has a problem.
pub(super) fn read(
    name: Option<ConnectorName>,
    mut section: Section<'_>,
    from: &ViewPart,
    defaults: &Defaults,
    tables: &mut Tables,
) -> Option<ConnectorConfig> {
    let own = Common::read(&mut section);
    let common = own.over(defaults.connector);
    let reset = section.section("reset").map_or(defaults.reset, |reset| defaults.reset.overridden(reset));
    let when_full = section.field("when_full");
    section.misplaced("step_log", "is the view's; put it there, or write when_full here without it");
    let destination = section.tagged("destination", &["delta", "http"], &[]);
    let is_http = matches!(destination, Some(("http", _)));
    let destination = destination.and_then(|(tag, f)| match tag {
        "http" => {
            f.section()?.finish(&[]);
            Some(Destination::Http)
        }
        _ => delta::read(name.as_ref(), f.section()?, from, tables).map(Destination::Delta),
    });
    let common = if is_http {
        for key in own.of_tables() {
            section.refuse(&format!("{key:?} is for tables, and [{}] has none; remove it", section.path_of("http")));
        }
        Common { mode: common.mode, on_continuity_loss: common.on_continuity_loss, ..Common::default() }
    } else {
        common
    };
    let mode = common.mode.unwrap_or(Mode::SnapshotAndFollow);
    let on_existing = common.on_existing.unwrap_or(OnExisting::Error);
    let on_continuity_loss = common.on_continuity_loss.unwrap_or_default();
    let schema_change = common.schema_change.unwrap_or_default();
    let when_full = read_when_full(when_full.as_ref(), from.source.kind, mode, defaults.step_log.when_full);
    if (mode, on_existing) == (Mode::Follow, OnExisting::Truncate) {
        section.refuse(&format!(
            "mode {mode} loads no rows, so on_existing = \"{on_existing}\" would leave nothing of a table; change one of them"
        ));
    }
    let delta = match &destination {
        Some(Destination::Delta(delta)) => Some(delta),
        Some(Destination::Http) | None => None,
    };
    if delta.is_some_and(|delta| delta.reload_ratio.is_some()) && mode == Mode::Snapshot {
        section.refuse(&format!("reload_ratio says nothing in mode {mode}, which appends nothing; remove it"));
    }
    let is_current = delta.is_some_and(|delta| delta.layout == Layout::Current);
    let has_mode = own.mode.is_some() || !section.is_misspelled("mode");
    check_snapshots(
        &section,
        mode,
        // What a misspelled mode would need is not known.
        from.materialized || !has_mode,
        &[
            (on_continuity_loss == OnContinuityLoss::Reset)
                .then(|| format!("on_continuity_loss = \"{on_continuity_loss}\"")),
            (schema_change == SchemaChange::Reload).then(|| format!("schema_change = \"{schema_change}\"")),
            (when_full == WhenFull::Detach).then(|| format!("when_full = \"{when_full}\"")),
            is_current.then(|| format!("layout = \"{}\"", Layout::Current)),
            delta.and_then(|delta| delta.reload_ratio).map(|ratio| format!("reload_ratio = {ratio}")),
        ],
    );
    // The tables of a database bring their keys with them.
    if is_current
        && from.key.is_empty()
        && !from.is_key_misspelled
        && matches!(from.source.kind, Some(Kind::Files | Kind::Push))
    {
        section.refuse(&format!(
            "layout = \"{}\" tells by the view's key which row a change is about; name the key columns in the view, or take layout = \"{}\"",
            Layout::Current,
            Layout::Changelog
        ));
    }
    section.finish(&[]);
    Some(ConnectorConfig {
        name: name?,
        mode,
        on_existing,
        on_continuity_loss,
        breaker: reset.breaker(),
        backoff: reset.backoff(),
        when_full,
        schema_change,
        commit: common.commit(),
        durability: common.durability.unwrap_or(Durability::Commit),
        heartbeat: common.heartbeat.flatten(),
        source: from.source.config.clone()?,
        key: from.key.clone(),
        columns: from.columns.clone(),
        destination: destination?,
    })
}

/// Only a connector that follows a pushed view holds steps in a log; for any other this is one value, so that a changed
/// default does not change it.
fn read_when_full(field: Option<&Field<'_>>, source: Option<Kind>, mode: Mode, default: Option<WhenFull>) -> WhenFull {
    let said = field.and_then(step_log::read_when_full);
    let useless = match (source, mode) {
        (Some(Kind::Files), _) => "is for views that are pushed: one of files has no step log; remove it".to_string(),
        (_, Mode::Snapshot) => format!("says nothing in mode {mode}, which holds no steps in the step log; remove it"),
        _ => return said.or(default).unwrap_or(WhenFull::Wait),
    };
    if let Some(field) = field {
        field.refuse_key(&useless);
    }
    WhenFull::Wait
}

/// Reports what wants a snapshot where there is none: the mode itself, and each of `wanting`.
fn check_snapshots(section: &Section<'_>, mode: Mode, materialized: bool, wanting: &[Option<String>]) {
    const BARE: &str = "a view with materialized = false";
    if !materialized && mode != Mode::Follow {
        section.refuse(&format!(
            "mode {mode} begins with a snapshot, which {BARE} does not have; write mode = \"{}\", or remove materialized = false",
            Mode::Follow
        ));
    }
    let lacking = match (materialized, mode) {
        (false, _) => BARE.to_string(),
        (true, Mode::Follow) => format!("mode {mode}"),
        (true, _) => return,
    };
    for wanting in wanting.iter().flatten() {
        section.refuse(&format!("{lacking} has no snapshot to load, which {wanting} needs; change one of them"));
    }
}

#[cfg(test)]
#[path = "connector_tests.rs"]
mod tests;
