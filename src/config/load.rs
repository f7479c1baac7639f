//! The walk from the document to the settings.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::{DataType, Field as Column, Schema};

use super::interpolate::Referents;
use super::name::{self, ConnectorName};
use super::place::{Problems, nearest};
use super::section::{Field, Scope, Section, did_you_mean};
use super::{
    CommitBounds, Config, ConnectorConfig, DeltaConfig, FilesConfig, Inputs, Secret, ServerConfig, SourceConfig,
    ViewConfig, overrides, tree,
};
use crate::connector::{Backoff, BreakerSettings, OnContinuityLoss};
use crate::continuity::columns::SchemaChange;
use crate::continuity::plan::OnExisting;
use crate::continuity::stamp::{Layout, Mode, PROPERTY_PREFIX, TXN_RETENTION};
use crate::error::{Error, Result};
use crate::files::{Compression, FileSettings, check_partition_by};
use crate::log::{Durability, Location, Service};
use crate::schema::{View, kept_type};
use crate::source::push::WhenFull;

const VERSION: u64 = 1;

pub(super) fn load(inputs: &Inputs<'_>) -> Result<Config> {
    let problems = Problems::default();
    let (mut views, mut connectors) = (Vec::new(), Vec::new());
    if let Some(mut document) = tree::parse(inputs.text, &problems) {
        overrides::apply(&mut document, inputs.env, inputs.sets, &problems);
        let referents = Referents { env: inputs.env, read_file: inputs.read_file };
        let scope = Scope { referents, problems: &problems };
        let walk = Walk { parse_type: inputs.parse_type, defaults: Common::default(), tables: BTreeMap::new() };
        (views, connectors) = walk.document(Section::root(&scope, &document));
    }
    problems.into_result(inputs.path)?;
    let views = views.into_iter().collect::<Option<Vec<_>>>();
    match views.zip(connectors.into_iter().collect::<Option<Vec<_>>>()) {
        Some((views, connectors)) if !views.is_empty() => {
            Ok(Config { server: ServerConfig::default(), views, connectors })
        }
        _ => Err(Error::internal("the configuration was not read and no problem was reported")),
    }
}

/// What any connector has, as far as it is written.
#[derive(Debug, Clone, Copy, Default)]
struct Common {
    mode: Option<Mode>,
    on_existing: Option<OnExisting>,
    schema_change: Option<SchemaChange>,
    max_interval: Option<Duration>,
    max_rows: Option<u64>,
    max_bytes: Option<u64>,
    durability: Option<Durability>,
    heartbeat: Option<Option<Duration>>,
}

impl Common {
    fn read(section: &mut Section<'_>) -> Self {
        let mode = read_mode(section);
        let on_existing =
            section.field("on_existing").and_then(|f| f.word(&[OnExisting::Error, OnExisting::Truncate], &[]));
        // Read for its problems only: there is nothing else to choose.
        section.field("on_continuity_loss").and_then(|f| f.word(&["fail_closed"], &["reset"]));
        let schema_change = section
            .field("schema_change")
            .and_then(|f| f.word(&[SchemaChange::Fail, SchemaChange::AddColumns, SchemaChange::Reload], &[]));
        let durability = section.field("durability").and_then(|f| f.word(&[Durability::Commit, Durability::None], &[]));
        let heartbeat = section.field("heartbeat").and_then(|f| f.duration_or_off());
        let mut common = Self { mode, on_existing, schema_change, durability, heartbeat, ..Self::default() };
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
            schema_change: self.schema_change.or(below.schema_change),
            max_interval: self.max_interval.or(below.max_interval),
            max_rows: self.max_rows.or(below.max_rows),
            max_bytes: self.max_bytes.or(below.max_bytes),
            durability: self.durability.or(below.durability),
            heartbeat: self.heartbeat.or(below.heartbeat),
        }
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

struct Walk<'a> {
    parse_type: &'a dyn Fn(&str) -> Result<DataType>,
    defaults: Common,
    /// The tables so far, in a spelling that makes equal ones equal, and whose they are.
    tables: BTreeMap<String, ConnectorName>,
}

impl Walk<'_> {
    fn document(mut self, mut root: Section<'_>) -> (Vec<Option<ViewConfig>>, Vec<Option<ConnectorConfig>>) {
        root.field("config_version").and_then(|f| {
            let number = f.integer(0, u64::MAX)?;
            if number != VERSION {
                f.refuse(&format!("the version {number} is not known to this program; it reads version {VERSION}"));
            }
            Some(())
        });
        if let Some(mut defaults) = root.section("defaults") {
            if let Some(mut connector) = defaults.section("connector") {
                self.defaults = Common::read(&mut connector);
                connector.finish(&[]);
            }
            defaults.finish(&["reset", "step_log"]);
        }
        let (mut views, mut connectors) = (Vec::new(), Vec::new());
        for (name, pipeline) in named(&mut root, "pipelines", "pipeline") {
            self.pipeline(&name, pipeline, &mut views, &mut connectors);
        }
        root.finish(&["server"]);
        (views, connectors)
    }

    fn pipeline(
        &mut self,
        name: &str,
        mut pipeline: Section<'_>,
        views: &mut Vec<Option<ViewConfig>>,
        connectors: &mut Vec<Option<ConnectorConfig>>,
    ) {
        let source = match pipeline.field("source") {
            Some(field) => field.section().and_then(|mut section| {
                let files = section
                    .tagged("source", "files", &["postgres", "push"])
                    .and_then(read_files)
                    .map(SourceConfig::Files);
                section.finish(&[]);
                files
            }),
            None => {
                pipeline.missing("source", &format!("has no source; add [{}.files]", pipeline.path_of("source")));
                None
            }
        };
        for (view_name, mut view) in named(&mut pipeline, "views", "view") {
            let from = self.view(&view_name, &mut view, source.clone());
            for (connector_name, connector) in named(&mut view, "connectors", "connector") {
                let full = ConnectorName::new(name, &view_name, &connector_name).ok();
                connectors.push(self.connector(full, connector, &from));
            }
            view.finish(&["table"]);
            views.push(from.source.map(|source| ViewConfig {
                pipeline: name.to_string(),
                name: view_name,
                source,
                key: from.key,
                columns: from.columns,
                materialized: true,
                step_log_bytes: 8 << 30,
            }));
        }
        pipeline.finish(&[]);
    }

    fn view(&self, name: &str, view: &mut Section<'_>, source: Option<SourceConfig>) -> ViewPart {
        let key_field = view.field("key");
        let key = key_field.as_ref().and_then(read_key).unwrap_or_default();
        let field = view.field("columns");
        let columns = field.as_ref().and_then(|f| self.columns(f));
        if let (Some(field), Some(columns)) = (field, &columns) {
            // The view's own rules: reserved names, names equal up to case, the key among the columns.
            let fields: Vec<Column> = columns.iter().map(|(n, t)| Column::new(n, t.clone(), true)).collect();
            if let Err(e) = View::new(name, &Schema::new(fields), key.clone()) {
                // The message may quote a key's column, and with it what replaced a reference.
                let hidden = key_field.is_some_and(|f| f.is_interpolated());
                field.refuse_key(if hidden { "these columns and the key do not fit together" } else { e.message() });
            }
        }
        ViewPart { source, key, columns: columns.unwrap_or_default() }
    }

    fn columns(&self, field: &Field<'_>) -> Option<Vec<(String, DataType)>> {
        let columns = field.section()?.fields();
        if columns.is_empty() {
            field.refuse("is empty; remove it, and the columns are as the source has them");
            return None;
        }
        let parsed: Vec<_> = columns.iter().map(|column| self.column(column)).collect();
        parsed.into_iter().collect()
    }

    fn column(&self, column: &Field<'_>) -> Option<(String, DataType)> {
        let text = column.text()?;
        let data_type = column.parsed(&text, |text| {
            // The message may quote what replaced a reference.
            let hidden = column.is_interpolated();
            (self.parse_type)(text).map_err(|e| if hidden { "it is no type" } else { e.message() }.to_string())
        })?;
        Some((column.name().to_string(), data_type))
    }

    fn connector(
        &mut self,
        name: Option<ConnectorName>,
        mut section: Section<'_>,
        from: &ViewPart,
    ) -> Option<ConnectorConfig> {
        let common = Common::read(&mut section).over(self.defaults);
        let delta =
            section.tagged("destination", "delta", &["http"]).and_then(|delta| self.delta(name.as_ref(), delta, from));
        let mode = common.mode.unwrap_or(Mode::SnapshotAndFollow);
        let schema_change = common.schema_change.unwrap_or_default();
        if (mode, schema_change) == (Mode::Follow, SchemaChange::Reload) {
            section.refuse(&format!(
                "mode {mode} has no snapshot to load, which schema_change = \"{schema_change}\" needs; change one of them"
            ));
        }
        section.finish(&[]);
        Some(ConnectorConfig {
            name: name?,
            mode,
            schema_change,
            on_existing: common.on_existing.unwrap_or(OnExisting::Error),
            on_continuity_loss: OnContinuityLoss::default(),
            breaker: BreakerSettings::default(),
            backoff: Backoff::default(),
            when_full: WhenFull::Wait,
            commit: common.commit(),
            durability: common.durability.unwrap_or(Durability::Commit),
            heartbeat: common.heartbeat.flatten(),
            source: from.source.clone()?,
            key: from.key.clone(),
            columns: from.columns.clone(),
            delta: delta?,
        })
    }

    fn delta(&mut self, name: Option<&ConnectorName>, mut delta: Section<'_>, from: &ViewPart) -> Option<DeltaConfig> {
        let uri = delta.required("uri").and_then(|f| self.uri(name, &f));
        let layout = delta.field("layout").and_then(|f| f.word(&[Layout::Changelog], &["current"]));
        let compression = delta.field("compression").and_then(|f| f.parsed(&f.text()?, read_compression));
        let target_file_size = delta.field("target_file_size").and_then(|f| {
            let size = f.size()?;
            if size > FileSettings::LARGEST_TARGET {
                f.refuse("is above 64GiB, which object stores cannot take in parts; write less");
            }
            Some(size)
        });
        let partition_by = delta.field("partition_by").and_then(|f| read_partition_by(&f, from));
        let mut storage = BTreeMap::new();
        if let Some(options) = delta.field("storage") {
            let service = uri.as_deref().map(Service::of);
            if service == Some(None) {
                options.refuse_key(
                    "holds options of an object store; a local table has none; remove it, or correct \"uri\"",
                );
            }
            for field in options.section().into_iter().flat_map(Section::fields) {
                if let Some(Some(service)) = service {
                    check_option(service, field.name()).unwrap_or_else(|message| field.refuse_key(&message));
                }
                storage.extend(field.text().map(|value| (field.name().to_string(), Secret::new(value))));
            }
        }
        let mut properties = BTreeMap::new();
        for field in delta.section("properties").into_iter().flat_map(Section::fields) {
            properties.extend(read_property(&field));
        }
        delta.finish(&[]);
        Some(DeltaConfig {
            uri: uri?,
            layout: layout.unwrap_or(Layout::Changelog),
            compression: compression.unwrap_or_default(),
            target_file_size: target_file_size.unwrap_or(128 << 20),
            partition_by,
            storage,
            properties,
        })
    }

    fn uri(&mut self, name: Option<&ConnectorName>, field: &Field<'_>) -> Option<String> {
        let uri = field.line()?;
        // Errors, logs and the table's own history name the URI: a secret has no place in it.
        if has_credentials(&uri) {
            field.refuse("has credentials or a query in it; write the plain path of the table");
            return None;
        }
        if Service::of(&uri).is_some()
            && let Err(why) = Location::check(&uri)
        {
            field.refuse(&why);
            return None;
        }
        let name = name?;
        if let Some(other) = self.tables.insert(same_table(&uri), name.clone()) {
            field.refuse(&format!("{name} and {other} write to the same table; give each its own"));
        }
        Some(uri)
    }
}

/// What a view hands to each of its connectors.
struct ViewPart {
    source: Option<SourceConfig>,
    key: Vec<String>,
    columns: Vec<(String, DataType)>,
}

/// The tables under `key`, each with its name; at least one is wanted.
fn named<'a>(section: &mut Section<'a>, key: &'static str, what: &str) -> Vec<(String, Section<'a>)> {
    let add = format!("has no {what}; add [{}.NAME]", section.path_of(key));
    let Some(table) = section.field(key) else {
        section.missing(key, &add);
        return Vec::new();
    };
    let fields = table.section().map(Section::fields).unwrap_or_default();
    if fields.is_empty() && table.is_table() {
        table.refuse_key(&add);
    }
    let mut found = Vec::new();
    for field in fields {
        if let Err(message) = name::check(field.name()) {
            field.refuse_key(&message);
        }
        found.extend(field.section().map(|section| (field.name().to_string(), section)));
    }
    found
}

fn read_files(mut files: Section<'_>) -> Option<FilesConfig> {
    let path = files.required("path").and_then(|f| f.line());
    let id = files.field("id").and_then(|f| f.line());
    let poll_interval = files.field("poll_interval").and_then(|f| f.duration());
    files.finish(&[]);
    Some(FilesConfig { path: PathBuf::from(path?), id, poll_interval: poll_interval.unwrap_or(Duration::from_secs(1)) })
}

fn read_key(field: &Field<'_>) -> Option<Vec<String>> {
    let items = field.items()?;
    if items.is_empty() {
        field.refuse("is empty; name the columns that tell rows apart, or remove it for a view without key");
    }
    let names: Vec<_> = items.iter().map(Field::line).collect();
    names.into_iter().collect()
}

/// Checked against the view's columns where the file names them; otherwise when the source has told them.
fn read_partition_by(field: &Field<'_>, from: &ViewPart) -> Option<Vec<String>> {
    let names: Vec<_> = field.items()?.iter().map(Field::line).collect();
    let names: Vec<String> = names.into_iter().collect::<Option<_>>()?;
    let kept = |(name, data_type): &(String, DataType)| Some(Column::new(name, kept_type(data_type)?, true));
    let columns: Option<Vec<Column>> = from.columns.iter().map(kept).collect();
    if let Some(columns) = columns.filter(|columns| !columns.is_empty())
        && let Err(e) = check_partition_by(&Schema::new(columns), &names)
    {
        // The message may quote what replaced a reference.
        let hidden = field.is_interpolated();
        field.refuse(if hidden { "these columns cannot partition the view" } else { e.message() });
    }
    Some(names)
}

fn read_property(field: &Field<'_>) -> Option<(String, String)> {
    let name = field.name();
    if name.to_lowercase().starts_with(PROPERTY_PREFIX) {
        field.refuse_key(&format!(
            "properties that begin with {PROPERTY_PREFIX:?} are written by cutover itself; remove it"
        ));
        return None;
    }
    if name.eq_ignore_ascii_case(TXN_RETENTION) {
        field.refuse_key("it makes other engines forget which steps the table holds; remove it");
        return None;
    }
    Some((name.to_string(), field.text()?))
}

/// What is wrong with the name of an option of an object store.
fn check_option(service: Service, name: &str) -> Result<(), String> {
    if service.knows(&name.to_ascii_lowercase()) {
        return Ok(());
    }
    let known = || service.options().iter().copied();
    Err(format!("unknown option; {}", did_you_mean(nearest(name, known()), "known here, among others:", known())))
}

fn read_compression(text: &str) -> Result<Compression, String> {
    text.parse().map_err(|_| "write zstd, zstd(1) to zstd(22), snappy, lz4 or none".to_string())
}

/// A password or a query, where signatures stand, in a URL; a local path has neither.
fn has_credentials(uri: &str) -> bool {
    let Some((_, rest)) = uri.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or(rest);
    rest.contains('?') || authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

/// A spelling that is equal for spellings of the same table, as far as the text alone tells.
fn same_table(uri: &str) -> String {
    let local = uri.strip_prefix("file://").unwrap_or(uri);
    if local.contains("://") {
        let s3 = local.strip_prefix("s3a://").map(|rest| format!("s3://{rest}"));
        return s3.as_deref().unwrap_or(local).trim_end_matches('/').to_string();
    }
    let parts = Path::new(local).components().filter(|part| *part != Component::CurDir);
    parts.collect::<PathBuf>().to_string_lossy().into_owned()
}
