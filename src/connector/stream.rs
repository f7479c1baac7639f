//! One view for one client that comes for it: the connector keeps the client's place, and says whether it is still good.
//!
//! Rows are sent by the streams that the client opens, beside this; [`Book`] is what both know. The place moves by what the
//! client says to have, never by what was sent.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::watch;

use super::{Acknowledged, FIRST_PAUSE, LONGEST_PAUSE, LogRepair, Phase, Reloaded, Reset, ResetPreview, Status, What};
use crate::clock::World;
use crate::continuity::stamp::Mode;
use crate::egress::{Book, Page};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::generation::Generation;
use crate::schema::View;
use crate::sink::Stage;
use crate::source::{Pick, Source};
use crate::step::Step;

/// What a client gets, and of which name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSettings {
    /// The connector's full name.
    pub name: String,
    /// What is sent.
    pub mode: Mode,
    /// How often the source is looked at.
    pub poll_interval: Duration,
}

/// A connector whose destination is whoever reads its stream.
pub struct StreamConnector {
    settings: StreamSettings,
    source: Box<dyn Source>,
    book: Arc<Book>,
    world: World,
    status: watch::Sender<Status>,
}

impl StreamConnector {
    /// A connector that keeps its client's place in `source` in `book`.
    pub fn new(settings: StreamSettings, source: Box<dyn Source>, book: Arc<Book>, world: World) -> Self {
        let status = Status { sent: Some(Arc::clone(book.sent())), ..Status::default() };
        Self { settings, source, book, world, status: watch::Sender::new(status) }
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn shown(&self) -> &watch::Sender<Status> {
        &self.status
    }

    pub(super) fn check_resets(&self) -> Result<()> {
        if self.settings.mode == Mode::Follow {
            return Err(Error::refused(format!(
                "the mode is {}, which has no snapshot to send; set mode = \"snapshot_and_follow\" to reset it",
                Mode::Follow
            )));
        }
        self.source.check_snapshots()
    }

    pub(super) fn generation(&self) -> Option<Generation> {
        self.book.current().map(|page| page.generation)
    }

    pub(super) fn committed_reset(&self, id: &str) -> Option<Reloaded> {
        let page = self.book.current()?;
        let is_it = page.reset.as_deref() == Some(id);
        is_it.then_some(Reloaded { version: None, generation: page.generation, step: page.begun })
    }

    /// Keeps the place until that is no longer possible, or until nothing more is wanted.
    pub(super) async fn run(&mut self) -> Result<()> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.keep().await {
                Ok(()) => {
                    self.show(|s| s.phase = Phase::Completed);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Unavailable => {
                    tracing::warn!(event = "retrying", connector = self.name(), error = %e, "the view is looked at again in {pause:?}");
                    Status::show_retry(&self.status, &*self.world.clock, Stage::Delivery, &e);
                    self.world.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Err(e) => {
                    Status::show_failure(&self.status, &*self.world.clock, &e);
                    return Err(e);
                }
            }
        }
    }

    /// What a reset would begin.
    pub(super) async fn preview(&mut self, reset: &Reset) -> Result<ResetPreview> {
        self.check_reset(reset)?;
        let generation = self.book.next(self.source.fingerprint())?;
        let (_, cutover) = self.first_state().await?;
        Ok(ResetPreview { ours: None, repair: LogRepair::Unneeded, generation, cutover })
    }

    /// Begins another generation: whoever reads gets a snapshot, whoever comes with an older one is sent away.
    pub(super) async fn reset(&mut self, reset: &Reset) -> Result<Reloaded> {
        self.check_reset(reset)?;
        self.source.renew().await?;
        let (view, mut snapshot) = self.source.snapshot(Pick::Newest { until: None }).await?;
        // By its first rows, a connector that was detached holds the log again.
        snapshot.rows.next().await.transpose()?;
        let (step, rows) = (snapshot.step, snapshot.known_rows);
        drop(snapshot);
        let page = self.book.reset(self.source.fingerprint(), &view, step, &reset.stamp.id).await?;
        self.tell_begun(&page, rows);
        self.acknowledge(&page).await?;
        self.show_page(&page, step);
        Ok(Reloaded { version: None, generation: page.generation, step })
    }

    fn check_reset(&self, reset: &Reset) -> Result<()> {
        self.check_resets()?;
        let found = self.generation();
        match reset.expected_generation {
            Some(expected) if found != Some(expected) => Err(Error::refused(format!(
                "the stream has the generation {}, expected was {expected}; look at it, then say what is expected",
                found.map_or("none".to_string(), |g| g.to_string())
            ))),
            _ => Ok(()),
        }
    }

    async fn keep(&mut self) -> Result<()> {
        let mut pages = self.book.page();
        let known = self.book.current();
        let mut page = match known {
            Some(page) => page,
            None => {
                let (view, begun) = self.first_state().await?;
                let page = self.book.settle(self.source.fingerprint(), &view, begun).await?;
                self.tell_begun(&page, None);
                page
            }
        };
        let mut acknowledged = None;
        loop {
            if acknowledged != Some(page.needless()) {
                let view = self.source.view(page.needless()).await?;
                self.check_source(&page, &view)?;
            }
            let latest = self.check_place(&page).await?;
            if acknowledged != Some(page.needless()) {
                self.acknowledge(&page).await?;
                acknowledged = Some(page.needless());
            }
            self.show_page(&page, latest);
            if self.settings.mode == Mode::Snapshot && page.place.is_some() {
                return Ok(());
            }
            tokio::select! {
                _ = pages.changed() => {}
                () = self.world.clock.sleep(self.settings.poll_interval) => {}
            }
            if let Some(changed) = pages.borrow_and_update().clone() {
                page = changed;
            }
        }
    }

    /// The view, and the step from which on everything is kept for the client that has nothing yet.
    async fn first_state(&mut self) -> Result<(View, Step)> {
        if self.settings.mode != Mode::Follow {
            let (view, snapshot) = self.source.snapshot(Pick::Newest { until: None }).await?;
            return Ok((view, snapshot.step));
        }
        let latest = self.source.position().await?.latest.unwrap_or(Step::ZERO);
        Ok((self.source.view(latest).await?, latest))
    }

    /// Steps of different histories are not compared.
    fn check_source(&self, page: &Page, view: &View) -> Result<()> {
        if page.is_of(self.source.fingerprint(), view) {
            return Ok(());
        }
        Err(Error::continuity_lost(
            Lost::OtherSource,
            format!(
                "generation {} is of the source {} with the columns {}, and the source is {} now, or has other columns; reset the connector",
                page.generation,
                page.source,
                page.columns,
                self.source.fingerprint()
            ),
        ))
    }

    /// Whether all that the client lacks is still there; the source's last step.
    async fn check_place(&mut self, page: &Page) -> Result<Step> {
        let position = self.source.position().await?;
        let (needless, latest) = (page.needless(), position.latest.unwrap_or(Step::ZERO));
        if needless > latest {
            self.source.lost(needless).await?;
            return Err(Error::continuity_lost(
                Lost::SourceBehind,
                format!(
                    "the client has step {needless}, and the source ends at step {latest}; it lost steps: reset the connector"
                ),
            ));
        }
        let (known, own) = (page.place.and_then(|place| place.strand), self.source.strands().at(needless));
        if known.is_some() && known != own {
            return Err(Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "the client has step {needless} of another strand: the source lost that step, and gave its number again; reset the connector"
                ),
            ));
        }
        if self.settings.mode != Mode::Snapshot && needless < position.held_from() {
            return Err(Error::continuity_lost(
                Lost::Gap,
                format!(
                    "changes after step {needless} are wanted, and the source holds those after step {}; reset the connector",
                    position.held_from()
                ),
            ));
        }
        Ok(latest)
    }

    async fn acknowledge(&mut self, page: &Page) -> Result<()> {
        match self.settings.mode {
            // It needs nothing after its snapshot.
            Mode::Snapshot => Ok(()),
            Mode::Follow | Mode::SnapshotAndFollow => self.source.acknowledge(page.needless()).await,
        }
    }

    fn show_page(&self, page: &Page, latest: Step) {
        let last_step = page.place.map(|place| place.step);
        let phase = if last_step.is_some_and(|step| step >= latest) { Phase::Following } else { Phase::CatchingUp };
        let shown = (phase, Some(page.generation), Some(page.begun), last_step);
        let is_shown = |s: &Status| (s.phase, s.generation, s.cutover, s.last_step) == shown;
        let (known, before) = {
            let status = self.status.borrow();
            (status.generation, status.last_step)
        };
        // What it has when the connector starts, it said before.
        if known == Some(page.generation)
            && let Some(to) = last_step.filter(|step| Some(*step) != before)
        {
            let (generation, from) = (page.generation, before.unwrap_or(page.begun));
            self.tell(What::Acknowledged(Acknowledged { generation, from, to }));
        }
        if !is_shown(&self.status.borrow()) {
            self.show(|s| (s.phase, s.generation, s.cutover, s.last_step) = shown);
        }
    }

    fn tell_begun(&self, page: &Page, rows: Option<u64>) {
        self.tell(What::Reloaded { generation: page.generation, step: page.begun, version: None, rows });
    }

    fn tell(&self, what: What) {
        Status::tell(&self.status, &*self.world.clock, what);
    }

    fn show(&self, change: impl FnOnce(&mut Status)) {
        Status::change(&self.status, &*self.world.clock, change);
    }
}

impl std::fmt::Debug for StreamConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamConnector").field("settings", &self.settings).finish_non_exhaustive()
    }
}
