//! One connector of a daemon.

use std::sync::Mutex as Lock;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use super::build;
use super::directory::DataDirectory;
use super::report::{ConnectorReport, Lag};
use super::teller::{Teller, Telling};
use super::views::LoggedView;
use crate::clock::World;
use crate::config::{ConnectorConfig, Destination, SourceConfig, ViewConfig};
use crate::connector::{BootId, ControlSettings, Handle, Phase, Running, Status, StreamConnector, StreamSettings};
use crate::disk::FileSystem;
use crate::egress::Book;
use crate::error::{Error, Result};
use crate::step::Step;

/// A connector that runs, or that could not be started.
pub(super) struct Member {
    pub(super) config: ConnectorConfig,
    running: Result<(Handle, Mutex<Option<Running>>)>,
    /// How far its client is, where it has one.
    book: Option<Arc<Book>>,
    lag: Lock<Lag>,
    telling: Telling,
}

impl Member {
    /// Starts the connector that `config` describes; where that fails, the reason is what it shows.
    pub(super) async fn start(
        config: ConnectorConfig,
        view: Option<&LoggedView>,
        directory: &DataDirectory,
        boot: &BootId,
        world: &World,
        teller: &Teller,
    ) -> Self {
        let (book, running) = match started(&config, view, directory, boot, world).await {
            Ok((running, book)) => (book, Ok(running)),
            Err(e) => (None, Err(e)),
        };
        let running = running.map(|r| (r.handle(), Mutex::new(Some(r)))).inspect_err(|e| {
            tracing::error!(event = "connector_failed", connector = %config.name, error = %e, "a connector cannot be started");
            teller.connector_failed(&config.name, e);
        });
        let telling = match &running {
            Ok((handle, _)) => teller.connector(&config.name, handle.status()),
            Err(_) => Telling::default(),
        };
        Self { config, running, book, lag: Lock::default(), telling }
    }

    /// By which it is controlled, or why it was not started.
    pub(super) fn handle(&self) -> Result<Handle, &Error> {
        self.running.as_ref().map(|(handle, _)| handle.clone())
    }

    /// What is shown of it, as it changes; an error where it was not started.
    pub(super) fn status(&self) -> Result<watch::Receiver<Status>> {
        let broken = |e: &Error| {
            let said = format!("the connector {} could not be started: {}", self.config.name, e.message());
            Error::new(e.kind(), said)
        };
        self.handle().map(|handle| handle.status()).map_err(broken)
    }

    /// How far its client is; `None` where it delivers to a table, or was not started.
    pub(super) fn book(&self) -> Option<&Arc<Book>> {
        self.book.as_ref()
    }

    pub(super) fn is_of(&self, view: &ViewConfig) -> bool {
        super::is_of(&self.config, view)
    }

    pub(super) fn phase(&self) -> Phase {
        self.running.as_ref().map_or(Phase::Failed, |(handle, _)| handle.status().borrow().phase)
    }

    /// Whether its table holds `step`, or its client has said to have it.
    pub(super) fn has(&self, step: Step) -> bool {
        if let Some(book) = &self.book {
            return book.current().and_then(|page| page.place).is_some_and(|place| place.step >= step);
        }
        self.running
            .as_ref()
            .is_ok_and(|(handle, _)| handle.status().borrow().last_step.is_some_and(|last| last >= step))
    }

    /// What an operator sees of it.
    pub(super) fn report(&self, view: Option<&LoggedView>, world: &World) -> ConnectorReport {
        let mut lag = self.lag.lock().unwrap_or_else(PoisonError::into_inner);
        match &self.running {
            Ok((handle, _)) => {
                let report =
                    ConnectorReport::of(&self.config, &handle.status().borrow(), view, &mut lag, &*world.clock);
                match &self.book {
                    Some(book) => report.sent(book),
                    None => report,
                }
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
    view: Option<&LoggedView>,
    directory: &DataDirectory,
    boot: &BootId,
    world: &World,
) -> Result<(Running, Option<Arc<Book>>)> {
    let (source, poll_interval) = match (&config.source, view) {
        (SourceConfig::Files(files), _) => (build::files_of(config, files)?, files.poll_interval),
        (SourceConfig::Push | SourceConfig::Postgres(_), Some(view)) => (view.attach(config).await?, build::LOG_POLL),
        (SourceConfig::Push | SourceConfig::Postgres(_), None) => {
            return Err(Error::internal(format!("{}: its view was not opened", config.name)));
        }
    };
    let settings = ControlSettings {
        directory: directory.journal(&config.name)?,
        boot: boot.clone(),
        on_continuity_loss: config.on_continuity_loss,
        breaker: config.breaker,
        backoff: config.backoff,
    };
    match config.destination {
        Destination::Delta(_) => {
            let key_index = directory.key_index(config)?;
            let connector = build::connector(config, source, poll_interval, key_index, world)?;
            Ok((Running::start(connector, settings)?, None))
        }
        Destination::Http => {
            let book = Arc::new(Book::open(directory.egress_of(&config.name)?, Arc::new(FileSystem))?);
            let stream = StreamSettings { name: config.name.to_string(), mode: config.mode, poll_interval };
            let connector = StreamConnector::new(stream, source, Arc::clone(&book), world.clone());
            Ok((Running::start(connector, settings)?, Some(book)))
        }
    }
}

/// So long may a connector be behind without a commit until that is unhealthy.
pub(super) fn patience(config: &ConnectorConfig) -> Duration {
    (config.commit.max_interval * 3).max(Duration::from_secs(60))
}
