//! One connector of a daemon.

use std::sync::Mutex as Lock;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Mutex;

use super::build;
use super::directory::DataDirectory;
use super::report::{ConnectorReport, Lag};
use super::teller::{Teller, Telling};
use super::views::PushedView;
use crate::clock::World;
use crate::config::{ConnectorConfig, SourceConfig, ViewConfig};
use crate::connector::{BootId, ControlSettings, Handle, Phase, Running};
use crate::error::{Error, Result};
use crate::step::Step;

/// A connector that runs, or that could not be started.
pub(super) struct Member {
    pub(super) config: ConnectorConfig,
    running: Result<(Handle, Mutex<Option<Running>>)>,
    lag: Lock<Lag>,
    telling: Telling,
}

impl Member {
    /// Starts the connector that `config` describes; where that fails, the reason is what it shows.
    pub(super) async fn start(
        config: ConnectorConfig,
        view: Option<&PushedView>,
        directory: &DataDirectory,
        boot: &BootId,
        world: &World,
        teller: &Teller,
    ) -> Self {
        let running = started(&config, view, directory, boot, world).await;
        let running = running.map(|r| (r.handle(), Mutex::new(Some(r)))).inspect_err(|e| {
            tracing::error!(event = "connector_failed", connector = %config.name, error = %e, "a connector cannot be started");
            teller.connector_failed(&config.name, e);
        });
        let telling = match &running {
            Ok((handle, _)) => teller.connector(&config.name, handle.status()),
            Err(_) => Telling::default(),
        };
        Self { config, running, lag: Lock::default(), telling }
    }

    /// By which it is controlled, or why it was not started.
    pub(super) fn handle(&self) -> Result<Handle, &Error> {
        self.running.as_ref().map(|(handle, _)| handle.clone())
    }

    pub(super) fn is_of(&self, view: &ViewConfig) -> bool {
        super::is_of(&self.config, view)
    }

    pub(super) fn phase(&self) -> Phase {
        self.running.as_ref().map_or(Phase::Failed, |(handle, _)| handle.status().borrow().phase)
    }

    /// Whether its table holds `step`.
    pub(super) fn has(&self, step: Step) -> bool {
        self.running
            .as_ref()
            .is_ok_and(|(handle, _)| handle.status().borrow().last_step.is_some_and(|last| last >= step))
    }

    /// What an operator sees of it.
    pub(super) fn report(&self, view: Option<&PushedView>, world: &World) -> ConnectorReport {
        let mut lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.running {
            Ok((handle, _)) => {
                ConnectorReport::of(&self.config, &handle.status().borrow(), view, &mut lag, &*world.clock)
            }
            Err(error) => ConnectorReport::failed(&self.config, error),
        }
    }

    pub(super) async fn stop(&self) -> Result<()> {
        let Ok((_, running)) = &self.running else { return Ok(()) };
        let stopped = match running.lock().await.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        };
        self.telling.ended().await;
        stopped
    }
}

async fn started(
    config: &ConnectorConfig,
    view: Option<&PushedView>,
    directory: &DataDirectory,
    boot: &BootId,
    world: &World,
) -> Result<Running> {
    let (source, poll_interval) = match (&config.source, view) {
        (SourceConfig::Files(files), _) => (build::files_source(config, files)?, files.poll_interval),
        (SourceConfig::Push, Some(view)) => (view.attach(config).await?, build::PUSH_POLL),
        (SourceConfig::Push, None) => return Err(Error::internal(format!("{}: its view was not opened", config.name))),
    };
    let connector = build::connector(config, source, poll_interval, world)?;
    let settings = ControlSettings {
        directory: directory.journal(&config.name)?,
        boot: boot.clone(),
        on_continuity_loss: config.on_continuity_loss,
        breaker: config.breaker,
        backoff: config.backoff,
    };
    Running::start(connector, settings)
}

/// So long may a connector be behind without a commit until that is unhealthy.
pub(super) fn patience(config: &ConnectorConfig) -> Duration {
    (config.commit.max_interval * 3).max(Duration::from_secs(60))
}
