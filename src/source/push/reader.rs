//! A pushed view as a connector reads it.

use std::convert::Infallible;
use std::sync::{Arc, PoisonError};

use arrow::array::RecordBatch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::Shared;
use super::owner::Request;
use crate::continuity::columns::Difference;
use crate::error::{Error, Result};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::source::logged::{ANSWER_BYTES, Found, Reading, SMALL_ANSWER_BYTES, ask, check_held, gone};
use crate::source::rows::{behind, blocking, streamed};
use crate::source::{Next, NextView, Pick, Position, Source};
use crate::step::Step;
use crate::strand::Strands;
use crate::view::Pinned;

/// How many steps those who share pinned rows may be behind at the beginning.
const SHARED_STEPS: u64 = 100;

/// How many read the view as this one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readers {
    Few,
    Many,
}

/// A pushed view for one connector, or for somebody who is none. It keeps a place in the step log, and nothing of the view.
pub struct PushSource {
    shared: Arc<Shared>,
    requests: mpsc::WeakSender<Request>,
    /// Whose place in the log is kept; of somebody who is no connector, none is.
    connector: Option<String>,
    readers: Readers,
    /// Where the last answer ended.
    reading: Reading,
}

impl PushSource {
    pub(super) fn new(shared: Arc<Shared>, requests: mpsc::WeakSender<Request>, connector: Option<&str>) -> Self {
        Self {
            shared,
            requests,
            connector: connector.map(str::to_owned),
            readers: Readers::Few,
            reading: Reading::default(),
        }
    }

    /// The same for one of many who read at once: in small answers, and, but for a connector, with a snapshot that others have
    /// too, when that is some steps behind at most and the log holds what follows.
    #[must_use]
    pub fn among_many(self) -> Self {
        Self { readers: Readers::Many, ..self }
    }

    /// The rows as they are, or as they were when others of many began to read them.
    async fn pinned(&self) -> Result<Arc<Pinned>> {
        let shared = Arc::clone(&self.shared);
        let Some(pins) = shared.pins.clone() else { return Err(shared.ended()) };
        // A connector's place may be beyond those of others.
        if self.readers == Readers::Few || self.connector.is_some() {
            return blocking(move || pins.pin().map(Arc::new)).await;
        }
        blocking(move || {
            let mut pinned = shared.pinned.lock().unwrap_or_else(PoisonError::into_inner);
            let stand = shared.log.stand();
            let is_near = |p: &Arc<Pinned>| {
                stand.earliest <= p.step && stand.last.get().saturating_sub(p.step.get()) <= SHARED_STEPS
            };
            if let Some(shared) = pinned.upgrade().filter(is_near) {
                return Ok(shared);
            }
            let fresh = Arc::new(pins.pin()?);
            *pinned = Arc::downgrade(&fresh);
            Ok(fresh)
        })
        .await
    }

    /// Refuses the rows of `step` where the store fell behind the log and stays there: a table may have what the log has.
    fn check_reached(&self, step: Step) -> Result<()> {
        let broken = self.shared.told.borrow().broken.clone();
        match broken {
            Some(broken) if step < self.shared.log.stand().last => Err(Error::unavailable(broken)),
            _ => Ok(()),
        }
    }

    fn gone(&self, after: Step, earliest: Step) -> Error {
        let connector = self.connector.as_deref();
        let detached = connector.and_then(|name| self.shared.told.borrow().places.detached().get(name).copied());
        gone(self.shared.view.name(), after, earliest, connector, detached)
    }

    /// The rows of a snapshot of `step`. Who reads them is to follow: one that was detached is attached again before the first
    /// of them, if the log still holds what follows the snapshot.
    fn taken_back(
        &self,
        step: Step,
        rows: BoxStream<'static, Result<RecordBatch>>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (shared, requests) = (Arc::clone(&self.shared), self.requests.clone());
        let Some(connector) = self.connector.clone() else { return rows };
        let taken_back = async move {
            if !shared.told.borrow().places.detached().contains_key(&connector) {
                return Ok(());
            }
            ask(&requests, |reply| Request::TakeBack(connector, reply), || shared.ended()).await?;
            check_held(shared.view.name(), &shared.log, step)
        };
        behind(taken_back, rows)
    }
}

impl std::fmt::Debug for PushSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushSource").field("connector", &self.connector).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for PushSource {
    fn name(&self) -> &str {
        self.shared.view.name()
    }

    fn key(&self) -> &[String] {
        self.shared.view.key()
    }

    fn fingerprint(&self) -> &str {
        &self.shared.fingerprint
    }

    fn strands(&self) -> Strands {
        self.shared.log.strands().clone()
    }

    fn check_snapshots(&self) -> Result<()> {
        match self.shared.pins {
            Some(_) => Ok(()),
            None => Err(Error::refused(format!(
                "view {} is not materialized, so it has no snapshot; declare materialized = true and push it anew, or use mode = \"follow\"",
                self.shared.view.name()
            ))),
        }
    }

    async fn position(&mut self) -> Result<Position> {
        let stand = self.shared.log.stand();
        Ok(Position {
            earliest: (stand.earliest < stand.last).then_some(stand.earliest),
            latest: (stand.last > Step::ZERO).then_some(stand.last),
        })
    }

    async fn view(&mut self, _after: Step) -> Result<View> {
        Ok(self.shared.view.clone())
    }

    async fn snapshot(&mut self, pick: Pick) -> Result<(View, Snapshot)> {
        let view = self.shared.view.clone();
        self.check_snapshots()?;
        let pinned = self.pinned().await?;
        let step = pinned.step;
        if let Pick::Reached { .. } | Pick::Since { .. } = pick {
            self.check_reached(step)?;
        }
        let (Pick::Newest { until } | Pick::Reached { until } | Pick::Since { until, .. }) = pick;
        if let Some(until) = until.filter(|until| *until < step) {
            return Err(Error::refused(format!(
                "view {} is at step {step} and keeps no older state, and step {until} or before is wanted; take it as it is",
                view.name()
            )));
        }
        if let Pick::Since { from, .. } = pick
            && step < from
        {
            return Err(Error::unavailable(format!(
                "view {} is at step {step}, and a snapshot of step {from} or later is wanted; wait until that is pushed",
                view.name()
            )));
        }
        let known_rows = Some(pinned.rows);
        let rows = self.taken_back(step, streamed(pinned.shared_batches()));
        let snapshot = Snapshot { step, rows, known_rows, position: format!("step {step}") };
        Ok((view, snapshot))
    }

    async fn changes(&mut self, after: Step, view: &View) -> Result<Next> {
        let own = &self.shared.view;
        if !Difference::between(view.schema(), own.schema()).is_empty() {
            let position = format!("step {after}");
            // The log does not tell since when the columns are so, nor what older rows have in them.
            return Ok(Next::View(NextView { view: own.clone(), is_filled: true, position }));
        }
        let bytes = match self.readers {
            Readers::Few => ANSWER_BYTES,
            Readers::Many => SMALL_ANSWER_BYTES,
        };
        match self.reading.next(&self.shared.log, after, view, bytes, |_| Ok(None::<Infallible>)).await? {
            Found::Changes(changes) => Ok(Next::Changes(changes)),
            Found::End => Ok(Next::Idle { hole: None }),
            Found::Gone(earliest) => Err(self.gone(after, earliest)),
            Found::Stopped(never) => match never {},
        }
    }

    async fn more(&mut self, after: Step) -> Result<()> {
        let mut reader = self.shared.log.read(after);
        if reader.more().await { Ok(()) } else { Err(self.shared.ended()) }
    }

    async fn lost(&mut self, step: Step) -> Result<()> {
        let Some(connector) = self.connector.clone() else { return Ok(()) };
        ask(&self.requests, |reply| Request::Lost(connector, step, reply), || self.shared.ended()).await
    }

    async fn acknowledge(&mut self, step: Step) -> Result<()> {
        let Some(connector) = self.connector.clone() else { return Ok(()) };
        ask(&self.requests, |reply| Request::Acknowledge(connector, step, reply), || self.shared.ended()).await
    }
}
