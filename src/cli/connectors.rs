//! From the configuration's file to connectors.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::clock::World;
use crate::config::{Config, ConnectorConfig, Inputs};
use crate::connector::{Connector, ConnectorSettings};
use crate::error::{Error, Result};
use crate::files::FileSettings;
use crate::log::{Access, Location};
use crate::sink::SinkSettings;
use crate::source::Source;
use crate::source::files::{FilesSettings, FilesSource, parse_column_type};

/// The configuration in the file `path`, with the environment and the values of `--set`.
///
/// To be called on the program's first thread: a nested document needs its stack.
pub(super) fn load(path: &Path, sets: &[String]) -> Result<Config> {
    let text = read(path)?;
    let env = environment()?;
    let read_file = |path: &Path| fs::read_to_string(path);
    Config::load(&Inputs { path, text: &text, sets, env: &env, parse_type: &parse_column_type, read_file: &read_file })
}

fn read(path: &Path) -> Result<String> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::config(format!(
            "there is no configuration {shown}; write one, or name another with --config or CUTOVER_CONFIG"
        )),
        _ => Error::config(format!("the configuration {shown} cannot be read")).with_source(e),
    })?;
    String::from_utf8(bytes)
        .map_err(|e| Error::config(format!("the configuration {shown} is not UTF-8; save it as such")).with_source(e))
}

/// The environment. Variables that are not UTF-8 are left out, but for those that mean this program.
fn environment() -> Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => {
                env.insert(name, value);
            }
            (Ok(name), Err(_)) if name.starts_with("CUTOVER__") => {
                return Err(Error::config(format!(
                    "the environment variable {name} is not UTF-8; correct or unset it"
                )));
            }
            _ => {}
        }
    }
    Ok(env)
}

/// The connector that `config` describes.
pub(super) fn build(config: &ConnectorConfig, world: &World) -> Result<Connector> {
    let access = Access::Write(config.durability);
    let location = Location::open_with(&config.delta.uri, access, &config.delta.storage_options())?;
    let source = FilesSource::new(FilesSettings {
        path: config.source.path.clone(),
        id: config.source.id.clone(),
        view: config.name.view().to_string(),
        key: config.key.clone(),
        columns: config.columns.clone(),
        fold_memory: FilesSettings::FOLD_MEMORY,
    })?;
    let settings = ConnectorSettings {
        sink: SinkSettings {
            mode: config.mode,
            layout: config.delta.layout,
            on_existing: config.on_existing,
            schema_change: config.schema_change,
            files: FileSettings {
                compression: config.delta.compression,
                target_file_size: config.delta.target_file_size,
                ..FileSettings::default()
            },
            partition_by: config.delta.partition_by.clone(),
            properties: config.delta.properties.clone(),
            ..SinkSettings::new(config.name.to_string(), source.fingerprint())
        },
        commit: config.commit,
        heartbeat: config.heartbeat,
        poll_interval: config.source.poll_interval,
    };
    Ok(Connector::new(settings, Box::new(source), location, world.clone()))
}
