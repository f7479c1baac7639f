//! Connectors without a daemon: for commands that deliver or reset and end.

use super::build;
use super::directory::DataDirectory;
use super::teller::Teller;
use super::views::{self, Views};
use crate::clock::World;
use crate::config::{Config, ConnectorConfig, SourceConfig};
use crate::connector::Connector;
use crate::error::{Error, Result};

/// What a configuration keeps in its data directory, the views with step logs above all, held for one command.
pub struct Alone {
    world: World,
    views: Views,
    /// Held while there is any.
    directory: Option<DataDirectory>,
}

impl Alone {
    /// Opens the views of `config` that have step logs; nothing is touched where nothing is kept.
    ///
    /// Refused: another process holds the data directory.
    pub async fn open(config: &Config, world: &World) -> Result<Self> {
        let logged: Vec<_> = config.views.iter().filter(|v| v.source.is_logged()).collect();
        if logged.is_empty() && !config.connectors.iter().any(ConnectorConfig::needs_key_index) {
            return Ok(Self { world: world.clone(), views: Views::new(), directory: None });
        }
        let directory = DataDirectory::take(&config.server.data_dir)?;
        let views = views::open(&logged, &config.connectors, &directory, world, &Teller::Nobody).await?;
        Ok(Self { world: world.clone(), views, directory: Some(directory) })
    }

    /// Ends what is read, so that its sources know what is safe. The connectors have ended.
    pub async fn close(self) -> Result<()> {
        let mut closed = Ok(());
        for view in self.views.into_values() {
            closed = closed.and(view.close().await);
        }
        closed
    }

    /// The connector that `config` describes.
    pub async fn connector(&self, config: &ConnectorConfig) -> Result<Connector> {
        let (source, poll_interval) = match &config.source {
            SourceConfig::Files(files) => (build::files_of(config, files)?, files.poll_interval),
            SourceConfig::Push | SourceConfig::Postgres(_) => {
                let key = (config.name.pipeline().to_string(), config.name.view().to_string());
                let missing = || Error::internal(format!("{}: its view was not opened", config.name));
                (self.views.get(&key).ok_or_else(missing)?.attach(config).await?, build::LOG_POLL)
            }
        };
        let key_index = self.directory.as_ref().map(|directory| directory.key_index(config)).transpose()?.flatten();
        build::connector(config, source, poll_interval, key_index, &self.world)
    }
}
