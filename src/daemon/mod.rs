//! Any number of connectors, and of views with step logs, in one process, kept as the configuration says.
//!
//! The configuration's file decides what there is: loading it anew adds, removes and changes views and connectors, one by
//! one, while the others go on. Each connector runs by itself; one that cannot be started is there, with the reason.

mod alone;
mod build;
mod checkup;
mod directory;
#[cfg(feature = "postgres")]
mod feeds;
mod file;
mod member;
mod obstacle;
mod report;
mod staging;
mod streams;
mod teller;
mod views;
mod work;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use futures::Stream;
use futures::future::join_all;
use serde_json::json;
use tokio::sync::{Mutex, watch};

pub use self::alone::Alone;
pub use self::checkup::{Reach, checkup};
use self::directory::DataDirectory;
pub use self::file::{load, resolve, settings};
use self::member::Member;
pub use self::report::{
    ConnectorReport, Health, PipelineReport, PlaceReport, SnapshotReport, StepLogReport, TroubleReport, ViewReport,
    WalReport,
};
pub use self::staging::{configured_view, staging};
use self::streams::Streams;
pub use self::streams::{EgressRefusal, EgressRequest, Outflow};
use self::teller::Teller;
pub use self::views::Pushed;
use self::views::Views;
pub use self::work::{CommitsReport, DurationsReport, WorkReport};
use crate::clock::{Clock, World};
use crate::config::{Config, ConnectorConfig, ConnectorName, ServerConfig, SourceConfig, ViewConfig, WebhookConfig};
use crate::connector::{BootId, Handle, Phase};
use crate::egress::{Page, Place};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{About, Events, Kind};
use crate::generation::Generation;
use crate::ingest::{self, Format};
use crate::step::Step;
use crate::steplog::At;
use crate::webhooks::{Webhook, WebhookReport};

/// The stack of a thread that reads the configuration, in bytes.
const STACK: usize = 8 << 20;

/// Reads the configuration anew.
pub type Load = Arc<dyn Fn() -> Result<Config> + Send + Sync>;

/// What is there: names of pipelines and views to views with step logs, and connectors.
struct State {
    config: Arc<Config>,
    views: Views,
    /// Of every view.
    streams: BTreeMap<(String, String), Arc<Streams>>,
    members: BTreeMap<ConnectorName, Arc<Member>>,
}

/// The connectors and views of one process.
pub struct Daemon {
    load: Load,
    limits: ingest::Limits,
    world: World,
    boot: BootId,
    directory: DataDirectory,
    events: Arc<Events>,
    teller: Teller,
    webhooks: Vec<Webhook>,
    state: RwLock<State>,
    /// Held by who changes what is there.
    changing: Mutex<Life>,
    has_begun: watch::Sender<bool>,
}

/// Whether there may be anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Running,
    Stopped,
}

/// What loading the configuration anew changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Changed {
    /// Connectors that run since.
    pub added: Vec<String>,
    /// Connectors that run no more.
    pub removed: Vec<String>,
    /// Connectors that were started anew: what the file says of them, or of their view, is another, or they had not started.
    pub changed: Vec<String>,
    /// Views and connectors that could not be opened or started, each with the reason.
    pub failed: BTreeMap<String, String>,
    /// Keys of `server` whose new values count from the next start on.
    pub restart: Vec<String>,
}

/// Whether every table has a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Each connector's commit holds it.
    Complete,
    /// Some do not yet.
    InProgress,
    /// The view is not open: nobody can tell for now.
    NotOpen,
    /// The token is of another life of the view: nobody can tell.
    Gone,
    /// It is no token of this pipeline.
    Unknown,
}

impl Daemon {
    /// [`Daemon::take`] and [`Daemon::begin`].
    pub async fn start(config: Config, load: Load, world: World) -> Result<Arc<Self>> {
        let daemon = Self::take(&config.server, load, world)?;
        daemon.begin(config).await?;
        Ok(daemon)
    }

    /// Takes the data directory that `server` names, within a Tokio runtime; `load` reads the configuration anew. Nothing is
    /// delivered yet.
    ///
    /// Refused: another process holds the directory. Config: it cannot be used.
    pub fn take(server: &ServerConfig, load: Load, world: World) -> Result<Arc<Self>> {
        let directory = DataDirectory::take(&server.data_dir)?;
        let boot = BootId::of_machine(&world.ids);
        let empty = Config { server: server.clone(), views: Vec::new(), connectors: Vec::new() };
        let (views, streams) = (BTreeMap::new(), BTreeMap::new());
        let state = State { config: Arc::new(empty), views, streams, members: BTreeMap::new() };
        let limits = server.ingress;
        let events = Events::open(directory.path(), &world)?;
        let teller = Teller::List(Arc::clone(&events), world.clone());
        let start = |hook: &WebhookConfig| Webhook::start(hook, &events, directory.webhook(&hook.name)?, &world);
        let webhooks = server.webhooks.iter().map(start).collect::<Result<Vec<_>>>()?;
        let (state, changing, has_begun) = (RwLock::new(state), Mutex::default(), watch::Sender::new(false));
        let daemon =
            Self { load, limits, world, boot, directory, events, teller, webhooks, state, changing, has_begun };
        Ok(Arc::new(daemon))
    }

    /// Starts all that `config` describes: opening views may take long.
    ///
    /// Config: a connector cannot be as it says, and all that was started is stopped again.
    pub async fn begin(&self, config: Config) -> Result<()> {
        self.teller.tell(Kind::DaemonStarted, About::default(), json!({ "version": env!("CARGO_PKG_VERSION") }));
        self.apply(config).await?;
        if let Some(error) = self.misconfigured() {
            self.stop().await?;
            return Err(error);
        }
        self.has_begun.send_replace(true);
        Ok(())
    }

    /// Completes when all that the configuration describes was started.
    pub async fn begun(&self) {
        // The sender lives as long as this.
        let _ = self.has_begun.subscribe().wait_for(|has_begun| *has_begun).await;
    }

    /// Whether all that the configuration describes was started.
    pub fn has_begun(&self) -> bool {
        *self.has_begun.borrow()
    }

    /// Whether a process holds the data directory `path`.
    pub fn is_running(path: &Path) -> Result<bool> {
        DataDirectory::is_held(path)
    }

    /// The configuration as it was last loaded.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.read().config)
    }

    /// The configuration as its file has it, which need not be what runs.
    ///
    /// Config: it is wrong.
    pub async fn on_file(&self) -> Result<Config> {
        let load = Arc::clone(&self.load);
        let loaded = tokio::task::spawn_blocking(move || {
            // A nested document needs as much stack as a program's first thread has.
            let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || load());
            thread.map(std::thread::JoinHandle::join)
        });
        let failed = || Error::internal("the configuration was not read to its end; correct it, and load it again");
        match loaded.await {
            Ok(Ok(Ok(config))) => config,
            Ok(Err(e)) => Err(Error::unavailable("no thread to read the configuration").with_source(e)),
            Ok(Ok(Err(_))) | Err(_) => Err(failed()),
        }
    }

    /// The time by which everything here goes.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.world.clock)
    }

    /// Loads the configuration anew, and changes what differs. Of what `server` says, tokens and hosts count at once; where the
    /// last token is taken away, nobody is let in until the next start.
    ///
    /// Config or Incompatible: it is wrong, or gives an open view other columns, and nothing was changed.
    pub async fn reload(&self) -> Result<Changed> {
        let config = self.on_file().await?;
        let changed = self.apply(config).await?;
        self.teller.configuration_reloaded(&changed);
        Ok(changed)
    }

    /// Whether there is a connector that could not be started for want of its source, which is there.
    pub fn is_mended(&self) -> bool {
        let state = self.read();
        let is_back = |member: &&Arc<Member>| {
            let name = &member.config.name;
            let view = state.views.get(&(name.pipeline().to_string(), name.view().to_string()));
            view.is_some_and(|view| view.is_there() && view.trouble().is_none())
        };
        let waits = |member: &&Arc<Member>| {
            matches!(member.config.source, SourceConfig::Postgres(_)) && member.handle().is_err()
        };
        state.members.values().filter(waits).any(|member| is_back(&member))
    }

    /// Starts what could not be started before, by the configuration as it is.
    pub async fn mend(&self) -> Result<()> {
        let config = Config::clone(&self.config());
        self.apply(config).await.map(drop)
    }

    /// What happened here.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// How each of those does who are told of it.
    pub fn webhooks(&self) -> Vec<WebhookReport> {
        self.webhooks.iter().map(Webhook::report).collect()
    }

    /// Every pipeline, by name.
    pub fn pipelines(&self) -> Vec<PipelineReport> {
        let state = self.read();
        let mut pipelines: Vec<PipelineReport> = Vec::new();
        for view in &state.config.views {
            if !pipelines.iter().any(|p| p.name == view.pipeline) {
                pipelines.push(PipelineReport { name: view.pipeline.clone(), views: Vec::new() });
            }
            let pushed = state.views.get(&(view.pipeline.clone(), view.name.clone()));
            let connectors = state.members.values().filter(|m| m.is_of(view));
            let connectors = connectors.map(|m| m.report(pushed.map(|v| &**v), &self.world)).collect();
            let streams = state.streams.get(&(view.pipeline.clone(), view.name.clone())).map_or(0, |s| s.count());
            let report = ViewReport::of(view, pushed.map(|v| &**v), streams, connectors);
            if let Some(pipeline) = pipelines.iter_mut().find(|p| p.name == view.pipeline) {
                pipeline.views.push(report);
            }
        }
        pipelines.sort_by(|a, b| a.name.cmp(&b.name));
        pipelines
    }

    /// A connector; `None` where there is none of this name.
    pub fn connector(&self, name: &ConnectorName) -> Option<ConnectorReport> {
        let state = self.read();
        let member = state.members.get(name)?;
        let pushed = state.views.get(&(name.pipeline().to_string(), name.view().to_string()));
        Some(member.report(pushed.map(|v| &**v), &self.world))
    }

    /// By which a connector is controlled; an error where it could not be started.
    pub fn handle(&self, name: &ConnectorName) -> Option<Result<Handle>> {
        let state = self.read();
        let member = state.members.get(name)?;
        let broken =
            |e: &Error| Error::new(e.kind(), format!("the connector {name} could not be started: {}", e.message()));
        Some(member.handle().map_err(broken))
    }

    /// By which every connector that was started is controlled, by its full name.
    pub fn handles(&self) -> BTreeMap<String, Handle> {
        let state = self.read();
        state.members.iter().filter_map(|(name, m)| Some((name.to_string(), m.handle().ok()?))).collect()
    }

    /// Stores the operations that `body` holds as one step of a pushed view, all or none; `None` where the view is unknown or
    /// is not pushed.
    ///
    /// Refused or Corrupt: the request is wrong, and nothing of it is stored. Unavailable: the disk failed or is full.
    pub async fn push(
        &self,
        pipeline: &str,
        view: &str,
        body: impl Stream<Item = Result<Bytes>>,
        format: Format,
        at: At,
    ) -> Option<Result<Pushed>> {
        let pushed = Arc::clone(self.read().views.get(&(pipeline.to_string(), view.to_string()))?);
        pushed.push(body, format, at, self.limits).await
    }

    /// A stream of a view, whatever its source; `None` where the view is unknown.
    pub async fn egress(
        &self,
        pipeline: &str,
        view: &str,
        request: &EgressRequest,
    ) -> Option<Result<Outflow, EgressRefusal>> {
        let (streams, member) = self.streams(pipeline, view, request.connector.as_deref())?;
        Some(match (&request.connector, member) {
            (None, _) => streams.anonymous(request).await,
            (Some(_), Some(member)) => streams.of_connector(&member, request).await,
            (Some(name), None) => Err(EgressRefusal::NoConnector(name.clone())),
        })
    }

    /// The client of a connector without a table has the view at a step, by a chunk of this number; how far it is then.
    /// `None` where the connector is unknown.
    pub async fn acknowledge(
        &self,
        name: &ConnectorName,
        generation: Generation,
        place: Place,
    ) -> Option<Result<Page, EgressRefusal>> {
        let (streams, member) = self.streams(name.pipeline(), name.view(), Some(name.connector()))?;
        Some(streams.acknowledge(&*member?, generation, place).await)
    }

    fn streams(
        &self,
        pipeline: &str,
        view: &str,
        connector: Option<&str>,
    ) -> Option<(Arc<Streams>, Option<Arc<Member>>)> {
        let state = self.read();
        let streams = Arc::clone(state.streams.get(&(pipeline.to_string(), view.to_string()))?);
        let name = connector.and_then(|connector| ConnectorName::new(pipeline, view, connector).ok());
        Some((streams, name.and_then(|name| state.members.get(&name).cloned())))
    }

    /// Whether each connector's commit holds the step that `token` names. One in mode `snapshot` is not asked once it is
    /// complete: it takes no changes.
    pub fn completion(&self, pipeline: &str, token: &str) -> Completion {
        let Some((name, life, step)) = parse_token(token) else { return Completion::Unknown };
        let state = self.read();
        let Some(view) = state.views.get(&(pipeline.to_string(), name.to_string())) else { return Completion::Unknown };
        let (Some(own), Some(standing)) = (view.life(step), view.standing()) else { return Completion::NotOpen };
        if own != life || standing.last < step {
            return Completion::Gone;
        }
        let is_there = |member: &&Arc<Member>| member.phase() == Phase::Completed || member.has(step);
        let mut members = state.members.values().filter(|m| m.is_of(&view.config));
        if members.all(|m| is_there(&m)) { Completion::Complete } else { Completion::InProgress }
    }

    /// Whether a connector's table holds `step`; `None` where there is no such connector.
    pub fn holds(&self, name: &ConnectorName, step: Step) -> Option<bool> {
        self.read().members.get(name).map(|m| m.has(step))
    }

    /// The states of all connectors, to decide whether there is anything left to do.
    pub fn phases(&self) -> Vec<Phase> {
        self.read().members.values().map(|m| m.phase()).collect()
    }

    /// Whether any view is pushed.
    pub fn has_pushed_views(&self) -> bool {
        self.read().views.values().any(|view| view.config.source == SourceConfig::Push)
    }

    /// Stops every connector, then closes every view. What is not finished is gone on with at the next start.
    pub async fn stop(&self) -> Result<()> {
        let mut life = self.changing.lock().await;
        *life = Life::Stopped;
        let (views, streams, members) = {
            let mut state = self.write();
            let State { views, streams, members, .. } = &mut *state;
            (std::mem::take(views), std::mem::take(streams), std::mem::take(members))
        };
        join_all(streams.values().map(|s| s.close())).await;
        let ends = join_all(members.into_values().map(|m| async move { m.stop().await })).await;
        let closed = join_all(views.into_values().map(|v| async move { v.close().await })).await;
        self.teller.tell(Kind::DaemonStopped, About::default(), json!({}));
        let told = self.events.close().await;
        join_all(self.webhooks.iter().map(Webhook::stop)).await;
        ends.into_iter().chain(closed).chain([told]).find(Result::is_err).unwrap_or(Ok(()))
    }

    /// Makes what is there what `config` describes.
    async fn apply(&self, config: Config) -> Result<Changed> {
        let life = self.changing.lock().await;
        if *life == Life::Stopped {
            return Err(Error::unavailable("the daemon is being stopped; start it, then ask again"));
        }
        let config = Arc::new(config);
        // What cannot be a view is found before anything is touched.
        for view in config.views.iter().filter(|v| v.source == SourceConfig::Push) {
            build::view(view)?;
        }
        let (old, views_before, members_before) = {
            let state = self.read();
            (Arc::clone(&state.config), state.views.clone(), state.members.clone())
        };
        for view in config.views.iter().filter(|v| v.source == SourceConfig::Push) {
            let before = views_before.get(&(view.pipeline.clone(), view.name.clone()));
            before.map_or(Ok(()), |before| before.check_columns(view))?;
        }
        let is_same_view = |pipeline: &str, view: &str| {
            let find =
                |config: &Config| config.views.iter().find(|v| v.pipeline == pipeline && v.name == view).cloned();
            find(&config) == find(&old)
        };
        // What could not be opened or started is tried again.
        let is_same_view = |pipeline: &str, view: &str| {
            let before = views_before.get(&(pipeline.to_string(), view.to_string()));
            is_same_view(pipeline, view) && before.is_none_or(|view| view.trouble().is_none())
        };
        // Tables of a database are followed together.
        let is_same_view = |pipeline: &str, view: &str| {
            let of =
                |config: &Config| config.views.iter().filter(|v| v.pipeline == pipeline).cloned().collect::<Vec<_>>();
            let (new, old) = (of(&config), of(&old));
            let is_shared = new.iter().chain(&old).any(|v| matches!(v.source, SourceConfig::Postgres(_)));
            let others = |view: &ViewConfig| is_same_view(pipeline, &view.name);
            is_same_view(pipeline, view) && (!is_shared || (new.len() == old.len() && new.iter().all(others)))
        };
        let is_kept = |c: &ConnectorConfig| {
            let before = members_before.get(&c.name);
            let is_same = before.is_some_and(|m| m.config == *c && m.handle().is_ok());
            is_same && is_same_view(c.name.pipeline(), c.name.view())
        };
        let mut changed = Changed::default();

        let leaving = members_before
            .iter()
            .filter(|(_, m)| !config.connectors.iter().any(|c| m.config.name == c.name && is_kept(c)));
        let leaving: Vec<_> = leaving.map(|(name, member)| (name.clone(), Arc::clone(member))).collect();
        join_all(leaving.iter().map(async |(name, member)| {
            if let Err(error) = member.stop().await {
                tracing::warn!(event = "stop_failed", connector = %name, error = %error, "a connector did not stop by itself");
            }
        }))
        .await;
        for (name, _) in &leaving {
            self.write().members.remove(name);
            let is_named = config.connectors.iter().any(|c| c.name == *name);
            if !is_named {
                changed.removed.push(name.to_string());
                if let Some(view) = views_before.get(&(name.pipeline().to_string(), name.view().to_string())) {
                    // It then holds the log until the next start, which attaches only what the file names.
                    view.detach(name.connector()).await.unwrap_or_else(|error| {
                        tracing::warn!(event = "detach_failed", connector = %name, error = %error, "a connector that is gone keeps its place for now");
                    });
                }
            }
        }

        let streams_before = self.read().streams.clone();
        let leaving = streams_before.iter().filter(|((pipeline, name), _)| !is_same_view(pipeline, name));
        join_all(leaving.map(async |(key, streams)| {
            streams.close().await;
            self.write().streams.remove(key);
        }))
        .await;
        for ((pipeline, name), view) in &views_before {
            if !is_same_view(pipeline, name)
                && let Err(error) = view.close().await
            {
                tracing::warn!(event = "close_failed", pipeline, view = name, error = %error, "a view was not closed cleanly");
            }
        }
        let is_named = |(pipeline, name): &(String, String)| {
            let is_it = |v: &ViewConfig| v.source.is_logged() && v.pipeline == *pipeline && v.name == *name;
            config.views.iter().any(is_it)
        };
        self.write().views.retain(|key, _| is_named(key));
        let is_fresh = |view: &&ViewConfig| {
            let key = (view.pipeline.clone(), view.name.clone());
            !views_before.contains_key(&key) || !is_same_view(&view.pipeline, &view.name)
        };
        let fresh: Vec<_> = config.views.iter().filter(|v| v.source.is_logged()).filter(is_fresh).collect();
        let opened = self::views::open(&fresh, &config.connectors, &self.directory, &self.world, &self.teller).await?;
        self.write().views.extend(opened);

        for view in &config.views {
            let key = (view.pipeline.clone(), view.name.clone());
            let mut state = self.write();
            if !state.streams.contains_key(&key) {
                let pushed = state.views.get(&key).cloned();
                let streams = Streams::open(view.clone(), pushed, &self.directory, &self.world);
                state.streams.insert(key, Arc::new(streams));
            }
        }
        for connector in config.connectors.iter().filter(|c| !is_kept(c)) {
            let key = (connector.name.pipeline().to_string(), connector.name.view().to_string());
            let view = self.read().views.get(&key).cloned();
            let (config, view) = (connector.clone(), view.as_deref());
            let member = Member::start(config, view, &self.directory, &self.boot, &self.world, &self.teller).await;
            let names =
                if members_before.contains_key(&connector.name) { &mut changed.changed } else { &mut changed.added };
            names.push(connector.name.to_string());
            self.write().members.insert(connector.name.clone(), Arc::new(member));
        }
        changed.failed = self.failures();
        changed.restart = restart(&old.server, &config.server);
        self.write().config = config;
        Ok(changed)
    }

    /// What is not open or did not start, and why.
    fn failures(&self) -> BTreeMap<String, String> {
        let state = self.read();
        let views = state.views.iter().filter_map(|((p, v), view)| Some((format!("{p}/{v}"), view.trouble()?)));
        let members = state.members.iter();
        let members = members.filter_map(|(name, m)| Some((name.to_string(), m.handle().err()?.message().to_string())));
        views.chain(members).collect()
    }

    /// What is wrong with the configuration of a connector that could not be started for it.
    fn misconfigured(&self) -> Option<Error> {
        let state = self.read();
        let mut errors = state.members.iter().filter_map(|(name, m)| Some((name, m.handle().err()?)));
        let (name, error) = errors.find(|(_, error)| error.kind() == ErrorKind::Config)?;
        Some(Error::config(format!("{name}: {}", error.message())))
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys that differ and count at the start only.
fn restart(old: &ServerConfig, new: &ServerConfig) -> Vec<String> {
    let differing = [
        ("server.listen", old.listen != new.listen),
        ("server.data_dir", old.data_dir != new.data_dir),
        ("server.ingress", old.ingress != new.ingress),
        ("server.webhooks", old.webhooks != new.webhooks),
        ("server.auth", !old.tokens.is_empty() && new.tokens.is_empty()),
    ];
    differing.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_string()).collect()
}

fn is_of(connector: &ConnectorConfig, view: &ViewConfig) -> bool {
    connector.name.pipeline() == view.pipeline && connector.name.view() == view.name
}

/// The view, its life and the step that a token names.
pub(crate) fn parse_token(token: &str) -> Option<(&str, &str, Step)> {
    let (rest, step) = token.rsplit_once('.')?;
    let (view, life) = rest.rsplit_once('.')?;
    Some((view, life, Step::new(step.parse().ok()?).ok()?))
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("directory", &self.directory).finish_non_exhaustive()
    }
}
