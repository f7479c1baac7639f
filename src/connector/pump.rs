//! Moves changes from the source to the table, in commits of whole steps.

use std::time::Duration;

use super::{Append, Connector, Ended, FIRST_PAUSE, Held, LONGEST_PAUSE, Phase, Until, What};
use crate::change::Changes;
use crate::continuity::columns::{Difference, SchemaChange};
use crate::continuity::plan::Older;
use crate::continuity::stamp::{Mode, ResetStamp};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::schema::View;
use crate::sink::{Applied, Sink, SinkSettings, Stage};
use crate::snapshot::Snapshot;
use crate::source::{Hole, Next};
use crate::step::Step;

/// The way from a source to a table, from the table's last step on.
pub(super) struct Pump<'a> {
    pub(super) connector: &'a mut Connector,
    pub(super) held: Option<Held>,
    pub(super) until: Until,
    /// The last step to deliver.
    pub(super) ends_at: Option<Step>,
    /// The last step read from the source.
    pub(super) reached: Step,
    /// The view that is asked for and delivered.
    pub(super) view: View,
    /// What was read and not committed.
    pub(super) waiting: Option<Changes>,
    /// Since when a row, or a step without rows, waits; by the boot clock.
    waiting_since: Duration,
}

impl<'a> Pump<'a> {
    pub(super) fn new(connector: &'a mut Connector, held: Held, until: Until, ends_at: Option<Step>) -> Result<Self> {
        let reached = held.last_step()?;
        let (view, waiting_since) = (held.view().clone(), connector.world.clock.boot());
        Ok(Self { connector, held: Some(held), until, ends_at, reached, view, waiting: None, waiting_since })
    }

    pub(super) async fn run(mut self) -> Result<Ended> {
        self.connector.show(|s| s.phase = Phase::CatchingUp);
        loop {
            if self.ends_at.is_some_and(|end| self.reached >= end) {
                return self.end(None).await;
            }
            match self.connector.source.changes(self.reached, &self.view).await {
                // What was read before is good, and is not read again for it.
                Err(e) => return self.flush_last().await.and(Err(e)),
                Ok(Next::Changes(changes)) => self.take(changes).await?,
                Ok(Next::View(next)) => self.change_view(next).await?,
                Ok(Next::Emptied(_, after)) if self.ends_at.is_some_and(|end| after.step > end) => {
                    return self.end(None).await;
                }
                Ok(Next::Emptied(view, snapshot)) => self.replace(view, snapshot).await?,
                Ok(Next::Idle { hole }) if self.until.ends_when_idle() => return self.end(hole).await,
                Ok(idle @ (Next::Pending | Next::Idle { .. })) => {
                    if self.is_due() {
                        self.flush().await?;
                    }
                    if let Next::Idle { .. } = idle {
                        self.connector.show(|s| s.phase = Phase::Following);
                    }
                    self.connector.propose_reload(self.held.as_ref().and_then(|held| held.facts().ours()));
                    self.connector.world.clock.sleep(self.connector.settings.poll_interval).await;
                }
            }
        }
    }

    /// Adds changes to those that wait, and commits these first where both together were too much.
    async fn take(&mut self, changes: Changes) -> Result<()> {
        let changes = match self.ends_at {
            Some(end) => changes.until(end)?,
            None => Some(changes),
        };
        let max_rows = self.connector.settings.commit.max_rows;
        for part in changes.map_or(Ok(Vec::new()), |changes| changes.split(max_rows))? {
            self.add(part).await?;
        }
        Ok(())
    }

    async fn add(&mut self, changes: Changes) -> Result<()> {
        let bounds = self.connector.settings.commit;
        let fits = |waiting: &Changes| {
            waiting.rows() + changes.rows() <= bounds.max_rows && waiting.bytes() + changes.bytes() <= bounds.max_bytes
        };
        if self.waiting.as_ref().is_some_and(|w| w.rows() > 0 && !fits(w)) {
            self.flush().await?;
        }
        self.reached = changes.range().to();
        // Time counts from the first row on.
        if self.waiting.as_ref().is_none_or(|waiting| waiting.rows() == 0 && changes.rows() > 0) {
            let now = self.connector.world.clock.boot();
            self.waiting_since =
                if changes.rows() > 0 { *self.connector.waiting_since.get_or_insert(now) } else { now };
        }
        self.waiting = Some(match self.waiting.take() {
            Some(waiting) => waiting.join(changes)?,
            None => changes,
        });
        if self.is_due() {
            self.flush().await?;
        }
        Ok(())
    }

    /// Loads what a view has that was emptied; what was read before is delivered first. It is no repair, so nobody is asked.
    async fn replace(&mut self, view: View, snapshot: Snapshot) -> Result<()> {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.rows() > 0) {
            self.flush().await?;
        }
        let (step, position) = (snapshot.step, snapshot.position.clone());
        let SinkSettings { mode, schema_change, .. } = &self.connector.settings.sink;
        if *mode == Mode::Follow {
            return Err(Error::continuity_lost(
                Lost::Gap,
                format!("the view was emptied at step {step}, and mode {mode} loads nothing; begin another table"),
            ));
        }
        let difference = Difference::between(self.view.schema(), view.schema());
        if !difference.is_empty() && *schema_change == SchemaChange::Fail {
            return Err(difference.refused(&position, *schema_change));
        }
        let (who, why) = ("the source".to_string(), format!("the view was emptied, {position}"));
        let stamp = ResetStamp { id: self.connector.world.ids.draw(), who, why };
        let mut sink = self.claimed().await?;
        sink.deliver(view.clone())?;
        self.connector.show_snapshot(&sink.progress(), step);
        let applied = sink.reload(snapshot, stamp, Older::Refused).await?;
        self.connector.show_applied(sink.facts(), &applied);
        self.connector.show(|s| s.phase = Phase::CatchingUp);
        (self.reached, self.view, self.waiting) = (sink.last_step()?, view, None);
        self.held = Some(Held::Sink(sink));
        self.connector.source.acknowledge(self.reached).await
    }

    /// Whether what waits has waited long enough, or is enough.
    fn is_due(&self) -> bool {
        let Some(waiting) = &self.waiting else { return false };
        let settings = &self.connector.settings;
        let age = self.connector.world.clock.boot().saturating_sub(self.waiting_since);
        if waiting.rows() == 0 {
            return settings.heartbeat.is_some_and(|heartbeat| age >= heartbeat);
        }
        let bounds = settings.commit;
        age >= bounds.max_interval || waiting.rows() >= bounds.max_rows || waiting.bytes() >= bounds.max_bytes
    }

    /// Commits what waits, however often it must be tried; nothing is read meanwhile. The claim is made here, when there
    /// is something to write.
    pub(super) async fn flush(&mut self) -> Result<()> {
        let Some(changes) = self.waiting.take() else { return Ok(()) };
        let mut sink = self.claimed().await?;
        self.connector.show(|s| s.is_appending = true);
        let applied = self.append(&mut sink, &changes).await;
        self.connector.show(|s| s.is_appending = false);
        let applied = applied?;
        self.connector.waiting_since = None;
        if let Applied::Committed { version, rows, bytes } = applied {
            let to = changes.range().to().get();
            tracing::info!(
                event = "appended",
                connector = self.connector.name(),
                version,
                rows,
                to,
                "changes are committed"
            );
            self.connector.tell(What::Appended(Append {
                generation: sink.facts().ours().map(|ours| ours.generation),
                from: changes.range().from(),
                to: changes.range().to(),
                version,
                commits: 1,
                rows,
                bytes,
            }));
        }
        self.connector.show_table(sink.facts().ours());
        self.connector.show(|s| s.phase = Phase::CatchingUp);
        self.connector.propose_reload(sink.facts().ours());
        self.held = Some(Held::Sink(sink));
        self.connector.source.acknowledge(changes.range().to()).await
    }

    pub(super) async fn claimed(&mut self) -> Result<Box<Sink>> {
        match self.held.take() {
            Some(Held::Sink(sink)) => Ok(sink),
            Some(Held::Target(target)) => Ok(Box::new(self.connector.tenure.keep(*target).await?)),
            None => Err(Error::internal("a table that could not be claimed is not written to")),
        }
    }

    /// Appends through the one sink that can settle a commit whose outcome is open.
    async fn append(&mut self, sink: &mut Sink, changes: &Changes) -> Result<Applied> {
        let mut pause = FIRST_PAUSE;
        loop {
            match sink.append(changes.clone()).await {
                Err(e) if e.kind() == ErrorKind::Unavailable && !self.until.ends_when_idle() => {
                    let connector = self.connector.name();
                    tracing::warn!(event = "append_retried", connector, error = %e, "the append is tried again in {pause:?}");
                    self.connector.show_retry(Stage::Append, &e);
                    self.connector.world.clock.sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                applied => return applied,
            }
        }
    }

    async fn flush_last(&mut self) -> Result<()> {
        let rows = self.waiting.as_ref().map_or(0, Changes::rows);
        if rows > 0 || self.connector.settings.heartbeat.is_some() {
            self.flush().await?;
        }
        Ok(())
    }

    async fn end(mut self, hole: Option<Hole>) -> Result<Ended> {
        self.flush_last().await?;
        let last_step = self.held.as_ref().map(Held::last_step).transpose()?;
        if let Some(Held::Sink(sink)) = self.held.take() {
            sink.close().await;
        }
        Ok(Ended { last_step, hole })
    }
}
