//! From the configuration to sources and connectors.

use std::path::PathBuf;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema};

use crate::clock::World;
use crate::config::{ConnectorConfig, DeltaConfig, FilesConfig, ViewConfig};
use crate::connector::{Connector, ConnectorSettings};
use crate::error::{Error, Result};
use crate::files::FileSettings;
use crate::log::{Access, Location};
use crate::schema::View;
use crate::sink::SinkSettings;
use crate::source::Source;
use crate::source::files::{FilesSettings, FilesSource};

/// How often an idle view with a step log is asked again.
pub(super) const LOG_POLL: Duration = Duration::from_millis(50);

/// The directory of files that feeds the view `view`, with the key and the columns that the configuration names.
pub(super) fn files_source(
    view: &str,
    key: &[String],
    columns: &[(String, DataType)],
    files: &FilesConfig,
) -> Result<Box<dyn Source>> {
    Ok(Box::new(FilesSource::new(FilesSettings {
        path: files.path.clone(),
        id: files.id.clone(),
        view: view.to_string(),
        key: key.to_vec(),
        columns: columns.to_vec(),
        fold_memory: FilesSettings::FOLD_MEMORY,
    })?))
}

/// The view that `config` describes, which names its columns.
pub(super) fn view(config: &ViewConfig) -> Result<View> {
    view_of(&config.name, &config.key, &config.columns)
}

/// The view `name` with the key and the columns that the configuration names.
pub(super) fn view_of(name: &str, key: &[String], columns: &[(String, DataType)]) -> Result<View> {
    let fields: Vec<Field> = columns.iter().map(|(name, kind)| Field::new(name, kind.clone(), true)).collect();
    View::new(name, &Schema::new(fields), key.to_vec())
}

/// The files that feed the connector `config`.
pub(super) fn files_of(config: &ConnectorConfig, files: &FilesConfig) -> Result<Box<dyn Source>> {
    files_source(config.name.view(), &config.key, &config.columns, files)
}

/// The connector to a table that `config` describes, from `source`, which is asked again after `poll_interval` when it is idle.
/// Where the table needs one, the index of its keys is in the directory `key_index`.
pub(super) fn connector(
    config: &ConnectorConfig,
    source: Box<dyn Source>,
    poll_interval: Duration,
    key_index: Option<PathBuf>,
    world: &World,
) -> Result<Connector> {
    let Some(delta) = config.delta() else {
        return Err(Error::refused(format!(
            "{} has no table: its client comes to a daemon for the changes; run one, without --once and --until-step, or ask it",
            config.name
        )));
    };
    let access = Access::Write(config.durability);
    let location = Location::open_with(&delta.uri, access, &delta.storage_options())?;
    let settings = ConnectorSettings {
        sink: SinkSettings { key_index, ..sink_settings(config, delta, source.fingerprint()) },
        commit: config.commit,
        heartbeat: config.heartbeat,
        poll_interval,
        reload_ratio: delta.reload_ratio,
    };
    Ok(Connector::new(settings, source, location, world.clone()))
}

/// What `config` delivers to its table `delta` from the source of this fingerprint, and how.
pub(super) fn sink_settings(config: &ConnectorConfig, delta: &DeltaConfig, source: &str) -> SinkSettings {
    SinkSettings {
        mode: config.mode,
        layout: delta.layout,
        on_existing: config.on_existing,
        schema_change: config.schema_change,
        files: FileSettings {
            compression: delta.compression,
            target_file_size: delta.target_file_size,
            ..FileSettings::default()
        },
        partition_by: delta.partition_by.clone(),
        properties: delta.properties.clone(),
        compaction: delta.compaction,
        ..SinkSettings::new(config.name.to_string(), source)
    }
}
