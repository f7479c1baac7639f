//! The views of a daemon that have step logs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::RwLock;

use super::build;
use super::directory::DataDirectory;
#[cfg(feature = "postgres")]
use super::feeds;
use super::report::WalReport;
use super::teller::{Teller, Telling};
use crate::clock::World;
use crate::config::{ConnectorConfig, SourceConfig, ViewConfig};
use crate::connector::Trouble;
use crate::continuity::columns::Difference;
use crate::continuity::stamp::Mode;
use crate::disk::FileSystem;
use crate::error::{Error, ErrorKind, Result};
use crate::ingest::{self, Format};
use crate::schema::View;
use crate::source::Source;
use crate::source::logged::{Place, WhenFull};
#[cfg(feature = "postgres")]
use crate::source::postgres::Feed;
use crate::source::push::{self, LiveView, Operations, PushSettings};
use crate::step::Step;
use crate::steplog::{self, Answer, At, Limits};

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

/// A view whose changes stand in a step log: open, or the reason why not.
pub(super) struct LoggedView {
    pub(super) config: ViewConfig,
    /// The view, where it is pushed.
    view: Option<View>,
    live: RwLock<Result<Live, String>>,
    telling: Telling,
}

/// Where its changes come from.
enum Live {
    Pushed(LiveView),
    #[cfg(feature = "postgres")]
    Table(Arc<Feed>),
}

impl Live {
    fn pushed(&self) -> Option<&LiveView> {
        match self {
            Self::Pushed(live) => Some(live),
            #[cfg(feature = "postgres")]
            Self::Table(_) => None,
        }
    }
}

/// Where a view stands.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    /// The step log; `None` until its source was met once.
    pub(super) log: Option<steplog::Stand>,
    /// The last step up to which everything is there.
    pub(super) last: Step,
    /// Whether each step is the one after the one before, so that their numbers count them.
    pub(super) numbering: Numbering,
    /// The number of rows, where they are kept.
    pub(super) rows: Option<u64>,
    /// The attached connectors.
    pub(super) connectors: BTreeMap<String, Place>,
    /// Why nothing more comes into the log for now.
    pub(super) refusal: Option<String>,
    /// Why its source cannot be read for now; of one that is elsewhere.
    pub(super) away: Option<Trouble>,
    /// Whether that is because the log is full.
    pub(super) is_full: bool,
    /// For how long it was, since the view was opened.
    pub(super) backpressure: Duration,
    /// What its server keeps for it.
    pub(super) wal: Option<WalReport>,
}

/// What the distance between two steps says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    /// How many steps there are.
    Dense,
    /// Nothing: they are positions in a server's log, which holds much else.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only a server's log has such steps"))]
    Positions,
}

/// How far somebody is behind a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// By as many steps; none: it has everything.
    Steps(u64),
    /// By some.
    Somewhat,
}

impl Standing {
    /// How far somebody is behind who has everything up to `step`.
    pub(super) fn behind(&self, step: Option<Step>) -> Behind {
        match self.numbering {
            Numbering::Dense => Behind::Steps(self.last.get().saturating_sub(step.map_or(0, Step::get))),
            // What changed no row of the view is nothing to wait for.
            Numbering::Positions if step.is_some() && self.log.is_none_or(|log| Some(log.last) <= step) => {
                Behind::Steps(0)
            }
            Numbering::Positions => Behind::Somewhat,
        }
    }
}

/// Views by pipeline and name.
pub(super) type Views = BTreeMap<(String, String), Arc<LoggedView>>;

/// Opens views that have step logs; one that cannot be opened says why to whoever wants something of it. Tables of one
/// database are all among `views`, or none of them is.
///
/// Config: a view itself is wrong.
pub(super) async fn open(
    views: &[&ViewConfig],
    connectors: &[ConnectorConfig],
    directory: &DataDirectory,
    world: &World,
    teller: &Teller,
) -> Result<Views> {
    let of = |view: &ViewConfig| connectors.iter().filter(|c| super::is_of(c, view)).collect::<Vec<_>>();
    let mut opened = Views::new();
    for view in views.iter().filter(|view| view.source == SourceConfig::Push) {
        let key = (view.pipeline.clone(), view.name.clone());
        let config = (*view).clone();
        opened.insert(key, LoggedView::open(config, &of(view), directory, world, teller).await?);
    }
    #[cfg(feature = "postgres")]
    {
        let mut databases: BTreeMap<&str, Vec<(&ViewConfig, Vec<&ConnectorConfig>)>> = BTreeMap::new();
        for view in views {
            if let SourceConfig::Postgres(_) = &view.source {
                databases.entry(&view.pipeline).or_default().push((view, of(view)));
            }
        }
        let feeds = databases.iter().map(|(pipeline, tables)| feeds::open(pipeline, tables, directory, world));
        // One that is not met does not keep the others waiting.
        let feeds = futures::future::join_all(feeds).await;
        for ((pipeline, tables), feed) in databases.into_iter().zip(feeds) {
            let feed = feed.map(Arc::new);
            for (view, _) in tables {
                let live = feed.as_ref().map(|feed| Live::Table(Arc::clone(feed))).map_err(ToString::to_string);
                let trouble =
                    feed.as_ref().map_or_else(|e| Some(Error::new(e.kind(), e.message())), |f| f.trouble(&view.name));
                if let Some(e) = trouble {
                    tracing::error!(event = "view_failed", pipeline, view = view.name, error = %e, "a view cannot be opened");
                    teller.view_failed(view, e.message());
                }
                let departures = feed.as_ref().ok().and_then(|feed| feed.departures(&view.name).ok());
                let telling = departures.map_or_else(Telling::default, |departures| teller.table(view, departures));
                let config = (*view).clone();
                let view = LoggedView { config, view: None, live: RwLock::new(live), telling };
                opened.insert((view.config.pipeline.clone(), view.config.name.clone()), Arc::new(view));
            }
        }
    }
    Ok(opened)
}

impl LoggedView {
    /// Opens the view that `config` describes, which is pushed, with the connectors `attached`.
    async fn open(
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
        let live = live.map(Live::Pushed);
        Ok(Arc::new(Self { config, view: Some(view), live: RwLock::new(live), telling }))
    }

    fn failed(&self, why: &str) -> Error {
        let ViewConfig { pipeline, name, .. } = &self.config;
        Error::new(ErrorKind::Unavailable, format!("the view {pipeline}/{name} is not open: {why}"))
    }

    /// Stores the operations in `body` as one step; see [`ingest::read`] and [`LiveView::push`]. `None`: it is not pushed.
    pub(super) async fn push(
        &self,
        body: impl Stream<Item = Result<Bytes>>,
        format: Format,
        at: At,
        limits: ingest::Limits,
    ) -> Option<Result<Pushed>> {
        let view = self.view.as_ref()?;
        Some(self.pushed(view, body, format, at, limits).await)
    }

    async fn pushed(
        &self,
        view: &View,
        body: impl Stream<Item = Result<Bytes>>,
        format: Format,
        at: At,
        limits: ingest::Limits,
    ) -> Result<Pushed> {
        // What does not decode is the request, and nothing of ours.
        let operations = ingest::read(body, view, format, limits).await.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => Error::refused(e.message()).with_source(e),
            _ => e,
        })?;
        let (rows, bytes) =
            (operations.rows(), operations.batches().iter().map(|b| b.get_array_memory_size() as u64).sum());
        let content = u128::from_le_bytes(operations.content().to_bytes());
        let operations = Operations::new(rows, bytes, content, move |current| operations.resolve(|keys| current(keys)));
        let live = self.live.read().await;
        let live = live.as_ref().map_err(|why| self.failed(why))?;
        let live = live.pushed().ok_or_else(|| self.failed("it is not pushed"))?;
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
        let connector = config.name.connector();
        Ok(match live.as_ref().map_err(|why| self.failed(why))? {
            Live::Pushed(live) => {
                if keeps_place(config) {
                    live.attach(connector, config.when_full).await?;
                } else {
                    live.detach(connector).await?;
                }
                Box::new(live.source(connector))
            }
            #[cfg(feature = "postgres")]
            Live::Table(feed) => {
                let view = &self.config.name;
                if let Some(e) = feed.trouble(view) {
                    return Err(e);
                }
                if keeps_place(config) {
                    feed.attach(view, connector, config.when_full)?;
                } else {
                    feed.detach(view, connector)?;
                }
                Box::new(feed.source(view, Some(connector))?)
            }
        })
    }

    /// The view as the source of a stream: of the connector `config`, or of nobody for whom anything is kept.
    pub(super) async fn reader(&self, config: Option<&ConnectorConfig>) -> Result<Box<dyn Source>> {
        let live = self.live.read().await;
        let connector = config.map(|config| config.name.connector());
        Ok(match live.as_ref().map_err(|why| self.failed(why))? {
            Live::Pushed(live) => {
                let source = connector.map_or_else(|| live.anonymous_source(), |connector| live.source(connector));
                Box::new(source.among_many())
            }
            #[cfg(feature = "postgres")]
            Live::Table(feed) => Box::new(feed.source(&self.config.name, connector)?.among_many()),
        })
    }

    /// Refuses what `config` makes of the view where its rows are kept in other columns, or by another key. One that is not open
    /// may have been moved away.
    pub(super) fn check_columns(&self, config: &ViewConfig) -> Result<()> {
        let Some(kept) = self.view.as_ref().filter(|_| self.config.materialized && self.trouble().is_none()) else {
            return Ok(());
        };
        if config.source != SourceConfig::Push || !config.materialized {
            return Ok(());
        }
        let wanted = build::view(config)?;
        let difference = Difference::between(kept.schema(), wanted.schema());
        let is_same_key = kept.key() == wanted.key();
        if difference.is_empty() && is_same_key {
            return Ok(());
        }
        let what = if is_same_key { difference.to_string() } else { format!("its key is {:?}", kept.key()) };
        Err(Error::incompatible(format!(
            "the view {}/{} is open with other columns: {what}; leave them as they are, or give the view another name; to begin it anew, take it out, load the configuration, and put it back once its directories are moved away",
            config.pipeline, config.name
        )))
    }

    /// Lets go of what a connector that is gone kept.
    pub(super) async fn detach(&self, connector: &str) -> Result<()> {
        match &*self.live.read().await {
            Ok(Live::Pushed(live)) => live.detach(connector).await,
            #[cfg(feature = "postgres")]
            Ok(Live::Table(feed)) => feed.detach(&self.config.name, connector),
            Err(_) => Ok(()),
        }
    }

    /// Where the view stands; `None` where it is not open, or is being closed.
    pub(super) fn standing(&self) -> Option<Standing> {
        match self.live.try_read().ok()?.as_ref().ok()? {
            Live::Pushed(live) => {
                let push::Standing { log, rows, connectors, refusal, is_full, backpressure, .. } = live.standing();
                let last = log.last;
                let numbering = Numbering::Dense;
                Some(Standing {
                    log: Some(log),
                    last,
                    numbering,
                    rows,
                    connectors,
                    refusal,
                    is_full,
                    backpressure,
                    away: None,
                    wal: None,
                })
            }
            #[cfg(feature = "postgres")]
            Live::Table(feed) => feeds::standing(feed, &self.config.name),
        }
    }

    /// Whether connectors can be started on it.
    pub(super) fn is_there(&self) -> bool {
        self.standing().is_some_and(|standing| standing.log.is_some())
    }

    /// What a token of `step`, which this view has, must name; of a pushed one.
    pub(super) fn life(&self, step: Step) -> Option<String> {
        self.live.try_read().ok()?.as_ref().ok()?.pushed().map(|live| live.life(step))
    }

    /// Why it is not open, or takes nothing more.
    pub(super) fn trouble(&self) -> Option<String> {
        match &*self.live.try_read().ok()? {
            Ok(Live::Pushed(live)) => live.trouble(),
            #[cfg(feature = "postgres")]
            Ok(Live::Table(feed)) => feeds::trouble(feed, &self.config.name),
            Err(why) => Some(why.clone()),
        }
    }

    /// Ends it once those who push have their answers. Its connectors have been stopped. What is shared with others ends with
    /// the last of them.
    pub(super) async fn close(&self) -> Result<()> {
        let closed = match std::mem::replace(&mut *self.live.write().await, Err("it was closed".to_string())) {
            Ok(Live::Pushed(live)) => live.close().await,
            #[cfg(feature = "postgres")]
            Ok(Live::Table(feed)) => match Arc::into_inner(feed) {
                Some(feed) => feed.close().await,
                None => Ok(()),
            },
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

/// Those of `attached` that need the steps after those that they have, each with what is done when the log is full because of it.
pub(super) fn with_places(attached: &[&ConnectorConfig]) -> Vec<(String, WhenFull)> {
    let kept = attached.iter().filter(|config| keeps_place(config));
    kept.map(|config| (config.name.connector().to_string(), config.when_full)).collect()
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
        connectors: with_places(attached),
    };
    let world = world.clone();
    tokio::task::spawn_blocking(move || LiveView::open(settings, Arc::new(FileSystem), &world))
        .await
        .map_err(|e| Error::internal("a pushed view was not opened").with_source(e))?
}
