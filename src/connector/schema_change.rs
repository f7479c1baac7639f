//! What a connector does when the view gets other columns than its table.

use super::pump::Pump;
use super::{Connector, Phase};
use crate::change::Changes;
use crate::continuity::columns::{Difference, SchemaChange};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, Result};
use crate::schema::View;
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
        let (from, until) = (self.reached, self.ends_at);
        let pick = if difference.added().is_some() { Pick::Reached { until } } else { Pick::Since { from, until } };
        let (view, snapshot) = self.connector.state_beyond(pick, self.reached, &self.view, place).await?;
        let stamp = ResetStamp {
            id: self.connector.world.ids.draw(),
            who: format!("schema_change = \"{}\"", SchemaChange::Reload),
            why: format!("{place}: {difference}"),
        };
        let mut sink = self.claimed().await?;
        sink.deliver(view.clone())?;
        // Whoever held the table until the claim may have met the same change.
        if !sink.has_columns()? {
            self.connector.show_snapshot(&sink.progress(), snapshot.step);
            sink.reload(snapshot, stamp, Older::Refused).await?;
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
        self.connector.source.acknowledge(self.reached).await
    }
}

impl Connector {
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
