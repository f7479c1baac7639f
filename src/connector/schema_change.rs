//! What a connector does when the view gets other columns than its table.

use tokio::sync::{mpsc, oneshot};

use super::breaker::Permit;
use super::control::{Command, Grant, Refusal};
use super::pump::Pump;
use super::{Connector, Phase, Reloaded};
use crate::change::Changes;
use crate::clock::whole_seconds;
use crate::continuity::columns::{Difference, SchemaChange};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, Result};
use crate::schema::View;
use crate::sink::Applied;
use crate::snapshot::Snapshot;
use crate::source::{NextView, Pick};
use crate::step::Step;

impl Pump<'_> {
    /// Goes on with the view that follows, as the settings allow it. What was read before is delivered first.
    pub(super) async fn change_view(&mut self, next: NextView) -> Result<()> {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.rows() > 0) {
            self.flush().await?;
        }
        let difference = Difference::between(self.view.schema(), next.view.schema());
        let place = format!("{} after step {}", next.position, self.reached);
        match self.connector.settings.sink.schema_change {
            SchemaChange::AddColumns if difference.added().is_some() && !next.is_filled => self.add_columns(next.view),
            SchemaChange::Reload => self.reload(&place, &difference).await,
            policy @ (SchemaChange::Fail | SchemaChange::AddColumns) => Err(difference.refused(&place, policy)),
        }
    }

    /// The columns themselves are committed with the first changes that have them.
    fn add_columns(&mut self, view: View) -> Result<()> {
        // Steps without changes have no columns.
        let bare = |waiting: Changes| Changes::new(waiting.range(), Vec::new());
        self.waiting = self.waiting.take().map(bare).transpose()?;
        if let Some(held) = &mut self.held {
            held.deliver(view.clone())?;
        }
        self.view = view;
        Ok(())
    }

    /// Loads the table with the newest state of the view that the source reaches.
    async fn reload(&mut self, place: &str, difference: &Difference) -> Result<()> {
        self.connector.check_mode()?;
        let stamp = self.connector.may_reload(format!("{place}: {difference}")).await?;
        let id = stamp.id.clone();
        let mut reloaded = None;
        let (from, until) = (self.reached, self.until.step());
        let pick = if difference.added().is_some() { Pick::Reached { until } } else { Pick::Since { from, until } };
        let (view, snapshot) = self.connector.state_beyond(pick, self.reached, &self.view, place).await?;
        let mut sink = self.claimed().await?;
        sink.deliver(view.clone())?;
        // Whoever held the table until the claim may have met the same change.
        if !sink.has_columns()? {
            self.connector.show_snapshot(&sink.progress(), snapshot.step);
            let applied = sink.reload(snapshot, stamp, Older::Refused).await?;
            self.connector.show_applied(sink.facts(), &applied);
            reloaded = sink.facts().ours().map(|ours| Reloaded {
                version: match applied {
                    Applied::Committed { version, .. } => Some(version),
                    Applied::Already => None,
                },
                generation: ours.generation,
                step: ours.last_step,
            });
            tracing::info!(
                event = "reloaded",
                connector = self.connector.name(),
                difference = %difference,
                "the table is loaded anew because the view's columns changed"
            );
        }
        self.connector.show_table(sink.facts().ours());
        self.connector.show(|s| s.phase = Phase::CatchingUp);
        (self.reached, self.view, self.waiting) = (sink.last_step()?, view, None);
        self.held = Some(super::Held::Sink(sink));
        self.connector.has_reloaded(id, reloaded).await?;
        self.connector.source.acknowledge(self.reached).await
    }
}

impl Connector {
    /// Waits until the table may be reloaded because the view has other columns, and says as which reset. Where nobody
    /// controls the connector, it may at once.
    async fn may_reload(&mut self, why: String) -> Result<ResetStamp> {
        let Some(control) = self.control.clone() else {
            let who = format!("schema_change = \"{}\"", SchemaChange::Reload);
            return Ok(ResetStamp { id: self.world.ids.draw(), who, why });
        };
        loop {
            let (reply, answer) = oneshot::channel();
            let command = Command::Grant { why: why.clone(), reply };
            let (phase, wait) = match ask(&control, command, answer).await? {
                Grant::Go(stamp) => return Ok(stamp),
                Grant::Later(Permit::Open(wait)) => (Phase::BreakerOpen, wait),
                Grant::Later(Permit::Wait(wait)) => (Phase::Retrying, wait),
                Grant::Later(Permit::Go) => continue,
            };
            let seconds = whole_seconds(wait);
            let reason = format!("{why}; after other resets, the table may be reloaded in {seconds} seconds");
            self.show_trouble(phase, &Error::unavailable(reason));
            self.world.clock.sleep(wait).await;
        }
    }

    /// Tells who controls the connector what became of that; nothing when the table had the view's columns already.
    async fn has_reloaded(&mut self, id: String, reloaded: Option<Reloaded>) -> Result<()> {
        let Some(control) = self.control.clone() else { return Ok(()) };
        let (reply, answer) = oneshot::channel();
        ask(&control, Command::Granted { id, reloaded, reply }, answer).await
    }

    /// A state at step `reached` or later whose columns are not those of `view`.
    ///
    /// Unavailable: the source has none yet.
    async fn state_beyond(&mut self, pick: Pick, reached: Step, view: &View, place: &str) -> Result<(View, Snapshot)> {
        let (found, snapshot) = self.source.snapshot(pick).await?;
        let wanted = format!("land a snapshot of step {reached} or later with the view's columns");
        if snapshot.step < reached {
            return Err(Error::unavailable(format!(
                "{place}, the view has other columns, and what can be loaded ends at step {}; {wanted}",
                snapshot.step
            )));
        }
        if Difference::between(view.schema(), found.schema()).is_empty() {
            return Err(Error::unavailable(format!(
                "{place}, the view has other columns, and {} has those of the table; {wanted}",
                snapshot.position
            )));
        }
        Ok((found, snapshot))
    }
}

async fn ask<T>(
    control: &mpsc::WeakSender<Command>,
    command: Command,
    answer: oneshot::Receiver<Result<T, Refusal>>,
) -> Result<T> {
    if let Some(control) = control.upgrade() {
        // Who does not take it gives no answer either.
        let _ = control.send(command).await;
    }
    answer.await.unwrap_or(Err(Refusal::Stopped)).map_err(Refusal::into_error)
}
