//! Connectors without a daemon: for commands that deliver or reset and end.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::build;
use super::directory::DataDirectory;
use super::teller::Teller;
use super::views::PushedView;
use crate::clock::World;
use crate::config::{Config, ConnectorConfig, SourceConfig};
use crate::connector::Connector;
use crate::error::{Error, Result};

/// The pushed views of a configuration, held for one command.
pub struct Alone {
    world: World,
    views: BTreeMap<(String, String), Arc<PushedView>>,
    /// Held while any view is pushed.
    _directory: Option<DataDirectory>,
}

impl Alone {
    /// Opens the views that `config` has as pushed ones; nothing is touched where there are none.
    ///
    /// Refused: another process holds the data directory.
    pub async fn open(config: &Config, world: &World) -> Result<Self> {
        let pushed: Vec<_> = config.views.iter().filter(|v| v.source == SourceConfig::Push).collect();
        let mut views = BTreeMap::new();
        if pushed.is_empty() {
            return Ok(Self { world: world.clone(), views, _directory: None });
        }
        let directory = DataDirectory::take(&config.server.data_dir)?;
        for view in pushed {
            let attached: Vec<_> = config.connectors.iter().filter(|c| super::is_of(c, view)).collect();
            let opened = PushedView::open(view.clone(), &attached, &directory, world, &Teller::Nobody).await?;
            views.insert((view.pipeline.clone(), view.name.clone()), opened);
        }
        Ok(Self { world: world.clone(), views, _directory: Some(directory) })
    }

    /// The connector that `config` describes.
    pub async fn connector(&self, config: &ConnectorConfig) -> Result<Connector> {
        let (source, poll_interval) = match &config.source {
            SourceConfig::Files(files) => (build::files_of(config, files)?, files.poll_interval),
            SourceConfig::Push => {
                let key = (config.name.pipeline().to_string(), config.name.view().to_string());
                let missing = || Error::internal(format!("{}: its view was not opened", config.name));
                (self.views.get(&key).ok_or_else(missing)?.attach(config).await?, build::PUSH_POLL)
            }
        };
        build::connector(config, source, poll_interval, &self.world)
    }
}
