//! The table of a connector as a worker sees it that stages a part of a snapshot: the connector's source is not asked.

use arrow::datatypes::Schema;

use super::build;
use crate::clock::World;
use crate::config::{ConnectorConfig, DeltaConfig, SourceConfig};
use crate::error::Result;
use crate::log::{Access, Location};
use crate::schema::View;
use crate::sink::{Destination, SinkSettings, Target};

/// The view that `config` names the columns of; `None` where it names none, or not all.
pub fn configured_view(config: &ConnectorConfig) -> Result<Option<View>> {
    match &config.source {
        SourceConfig::Files(_) | SourceConfig::Push if !config.columns.is_empty() => {
            build::view_of(config.name.view(), &config.key, &config.columns).map(Some)
        }
        SourceConfig::Files(_) | SourceConfig::Push | SourceConfig::Postgres(_) => Ok(None),
    }
}

/// Looks at the table `delta` of the connector `config`, for staging rows that come in columns with `schema`. Nothing is written.
///
/// Errors are those of the storage, and of a view that cannot be made of the columns.
pub async fn staging(config: &ConnectorConfig, delta: &DeltaConfig, schema: &Schema, world: &World) -> Result<Target> {
    let location = Location::open_with(&delta.uri, Access::Write(config.durability), &delta.storage_options())?;
    let settings: SinkSettings = build::sink_settings(config, delta, "");
    let destination = Destination::look(location, settings, world.clone()).await?.from_its_source();
    let view = match configured_view(config)? {
        Some(view) => view,
        None => {
            // Where the source names the key, the table that was loaded from it knows it too.
            let known = destination.facts().ours().and_then(|ours| ours.stamp.as_ref()).map(|stamp| stamp.key.clone());
            let key = if config.key.is_empty() { known.unwrap_or_default() } else { config.key.clone() };
            View::new(config.name.view(), schema, key)?
        }
    };
    Ok(destination.deliver(view))
}
