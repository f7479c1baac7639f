//! The pushed views of a daemon.

use std::sync::Arc;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::RwLock;

use super::build;
use super::directory::DataDirectory;
use super::teller::{Teller, Telling};
use crate::clock::World;
use crate::config::{ConnectorConfig, ViewConfig};
use crate::continuity::columns::Difference;
use crate::continuity::stamp::Mode;
use crate::disk::FileSystem;
use crate::error::{Error, ErrorKind, Result};
use crate::ingest::{self, Format};
use crate::schema::View;
use crate::source::push::{LiveView, Operations, PushSettings, Standing};
use crate::source::{Source, push};
use crate::step::Step;
use crate::steplog::{Answer, At, Limits};

/// What became of a request of changes.
#[derive(Debug)]
pub enum Pushed {
    /// It is durable, as this step; the token asks later whether every table has it.
    Stored {
        /// Its step.
        step: Step,
        /// Whether it was there before, by the same request sent once more.
        is_repeated: bool,
        /// By which [`Daemon::completion`](super::Daemon::completion) knows it.
        token: String,
    },
    /// Nothing was stored: another answer of the log.
    Refused(Answer),
}

/// A pushed view: open, or the reason why not.
pub(super) struct PushedView {
    pub(super) config: ViewConfig,
    view: View,
    live: RwLock<Result<LiveView, String>>,
    telling: Telling,
}

impl PushedView {
    /// Opens the view that `config` describes, with the connectors `attached`; one that cannot be opened says why to
    /// whoever wants something of it.
    ///
    /// Config: the view itself is wrong.
    pub(super) async fn open(
        config: ViewConfig,
        attached: &[&ConnectorConfig],
        directory: &DataDirectory,
        world: &World,
        teller: &Teller,
    ) -> Result<Arc<Self>> {
        let view = build::view(&config)?;
        let live = opened(&config, view.clone(), attached, directory, world).await.map_err(|e| {
            tracing::error!(event = "view_failed", pipeline = config.pipeline, view = config.name, error = %e, "a view cannot be opened");
            teller.view_failed(&config, &e.to_string());
            e.to_string()
        });
        let telling = live.as_ref().map_or_else(|_| Telling::default(), |live| teller.view(&config, live.troubles()));
        Ok(Arc::new(Self { config, view, live: RwLock::new(live), telling }))
    }

    fn failed(&self, why: &str) -> Error {
        let ViewConfig { pipeline, name, .. } = &self.config;
        Error::new(ErrorKind::Unavailable, format!("the view {pipeline}/{name} is not open: {why}"))
    }

    /// Stores the operations in `body` as one step; see [`ingest::read`] and [`LiveView::push`].
    pub(super) async fn push(
        &self,
        body: impl Stream<Item = Result<Bytes>>,
        format: Format,
        at: At,
        limits: ingest::Limits,
    ) -> Result<Pushed> {
        // What does not decode is the request, and nothing of ours.
        let operations = ingest::read(body, &self.view, format, limits).await.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => Error::refused(e.message()).with_source(e),
            _ => e,
        })?;
        let (rows, bytes) =
            (operations.rows(), operations.batches().iter().map(|b| b.get_array_memory_size() as u64).sum());
        let content = u128::from_le_bytes(operations.content().to_bytes());
        let operations = Operations::new(rows, bytes, content, move |current| operations.resolve(|keys| current(keys)));
        let live = self.live.read().await;
        let live = live.as_ref().map_err(|why| self.failed(why))?;
        let answer = live.push(operations, at).await?;
        Ok(match answer {
            Answer::Stored(step) => Pushed::Stored { step, is_repeated: false, token: self.token(live, step) },
            Answer::AlreadyStored(step) => Pushed::Stored { step, is_repeated: true, token: self.token(live, step) },
            other => Pushed::Refused(other),
        })
    }

    fn token(&self, live: &LiveView, step: Step) -> String {
        format!("{}.{}.{step}", self.config.name, live.life(step))
    }

    /// The view as the source of the connector `config`, which is attached: nothing that it lacks is let go of.
    pub(super) async fn attach(&self, config: &ConnectorConfig) -> Result<Box<dyn Source>> {
        let live = self.live.read().await;
        let live = live.as_ref().map_err(|why| self.failed(why))?;
        if keeps_place(config) {
            live.attach(config.name.connector(), config.when_full).await?;
        } else {
            live.detach(config.name.connector()).await?;
        }
        Ok(Box::new(live.source(config.name.connector())))
    }

    /// The view as the source of a stream: of the connector `config`, or of nobody for whom anything is kept.
    pub(super) async fn reader(&self, config: Option<&ConnectorConfig>) -> Result<Box<dyn Source>> {
        let live = self.live.read().await;
        let live = live.as_ref().map_err(|why| self.failed(why))?;
        let source = match config {
            Some(config) => live.source(config.name.connector()),
            None => live.anonymous_source(),
        };
        Ok(Box::new(source.among_many()))
    }

    /// Refuses what `config` makes of the view where its rows are kept in other columns, or by another key. One that is not open
    /// may have been moved away.
    pub(super) fn check_columns(&self, config: &ViewConfig) -> Result<()> {
        if !self.config.materialized || !config.materialized || self.trouble().is_some() {
            return Ok(());
        }
        let wanted = build::view(config)?;
        let difference = Difference::between(self.view.schema(), wanted.schema());
        let is_same_key = self.view.key() == wanted.key();
        if difference.is_empty() && is_same_key {
            return Ok(());
        }
        let what = if is_same_key { difference.to_string() } else { format!("its key is {:?}", self.view.key()) };
        Err(Error::incompatible(format!(
            "the view {}/{} is open with other columns: {what}; leave them as they are, or give the view another name; to begin it anew, take it out, load the configuration, and put it back once its directories are moved away",
            config.pipeline, config.name
        )))
    }

    /// Lets go of what a connector that is gone kept.
    pub(super) async fn detach(&self, connector: &str) -> Result<()> {
        match &*self.live.read().await {
            Ok(live) => live.detach(connector).await,
            Err(_) => Ok(()),
        }
    }

    /// Where the view stands; `None` where it is not open, or is being closed.
    pub(super) fn standing(&self) -> Option<Standing> {
        self.live.try_read().ok()?.as_ref().ok().map(LiveView::standing)
    }

    /// What a token of `step`, which this view has, must name.
    pub(super) fn life(&self, step: Step) -> Option<String> {
        Some(self.live.try_read().ok()?.as_ref().ok()?.life(step))
    }

    /// Why it is not open, or takes nothing more.
    pub(super) fn trouble(&self) -> Option<String> {
        match &*self.live.try_read().ok()? {
            Ok(live) => live.trouble(),
            Err(why) => Some(why.clone()),
        }
    }

    /// Ends it once those who push have their answers. Its connectors have been stopped.
    pub(super) async fn close(&self) -> Result<()> {
        let closed = match std::mem::replace(&mut *self.live.write().await, Err("it was closed".to_string())) {
            Ok(live) => live.close().await,
            Err(_) => Ok(()),
        };
        self.telling.ended().await;
        closed
    }
}

/// Whether a connector needs the steps after those that it has. One that delivers a snapshot needs only that.
fn keeps_place(config: &ConnectorConfig) -> bool {
    config.mode != Mode::Snapshot
}

async fn opened(
    config: &ViewConfig,
    view: View,
    attached: &[&ConnectorConfig],
    directory: &DataDirectory,
    world: &World,
) -> Result<LiveView> {
    let (pipeline, name) = (&config.pipeline, &config.name);
    let settings = PushSettings {
        view,
        log: directory.step_log(pipeline, name)?,
        store: if config.materialized { Some(directory.rows(pipeline, name)?) } else { None },
        limits: Limits::of(config.step_log_bytes),
        register: directory.register(pipeline, name)?,
        connectors: attached
            .iter()
            .filter(|c| keeps_place(c))
            .map(|c| (c.name.connector().to_string(), c.when_full))
            .collect::<Vec<(String, push::WhenFull)>>(),
    };
    let world = world.clone();
    tokio::task::spawn_blocking(move || LiveView::open(settings, Arc::new(FileSystem), &world))
        .await
        .map_err(|e| Error::internal("a pushed view was not opened").with_source(e))?
}
