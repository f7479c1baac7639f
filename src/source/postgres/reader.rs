//! A table as a connector reads it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::filter_record_batch;
use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::catalog::view_of;
use super::copy::Copy;
use super::exported::Exported;
use super::feed::{Contact, Shared};
use super::meeting::flushed;
use super::message::Lsn;
use super::replication::Replication;
use super::server::Session;
use super::shelf::Shelf;
use super::stream::Request;
use super::turn::{Judge, Turn};
use crate::change::{Changes, Op, ops_of};
use crate::continuity::stamp::{COLUMN_OP, COLUMN_STEP};
use crate::error::{Error, Lost, Result};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::source::logged::{ANSWER_BYTES, Found, Reading, SMALL_ANSWER_BYTES, ask, check_held, gone};
use crate::source::rows::behind;
use crate::source::{Next, NextView, Pick, Position, Source};
use crate::step::{Step, StepRange};
use crate::steplog::{StepLog, Stored};

/// How many connections read a snapshot.
const CONNECTIONS: usize = 4;
/// How often a snapshot is taken again when its table changed meanwhile.
const TRIES: u32 = 5;
/// How long it counts where the server said it is.
const FRESH: Duration = Duration::from_secs(1);
/// How long it is waited for a server that was not met yet.
const PATIENCE: Duration = Duration::from_secs(30);

/// A table for one connector, or for somebody who is none.
pub struct TableSource {
    shared: Arc<Shared>,
    shelf: Arc<Shelf>,
    requests: mpsc::WeakSender<Request>,
    /// Whose place in the log is kept; of somebody who is no connector, none is.
    connector: Option<String>,
    answer_bytes: u64,
    fingerprint: Arc<str>,
    key: Arc<[String]>,
    /// Where the last answer ended, and in which log.
    reading: Option<(Arc<StepLog>, Reading)>,
    /// What the server said when it was asked last where it is.
    asked: Option<(Session, Step, Duration)>,
    /// Up to here the server has more than what is in the log, as it said.
    promised: Step,
}

impl TableSource {
    /// Unavailable: the server was never met, so nobody knows which history it is.
    pub(super) fn new(
        shared: Arc<Shared>,
        shelf: Arc<Shelf>,
        requests: mpsc::WeakSender<Request>,
        connector: Option<&str>,
    ) -> Result<Self> {
        let told = shared.told.borrow().clone();
        let fingerprint = told.fingerprint.ok_or_else(|| match told.contact {
            Contact::Away(trouble) | Contact::Lost(trouble) => trouble.error(),
            Contact::Met | Contact::Awaited => {
                Error::unavailable(format!("{}: the server was not met yet", shared.server.place()))
            }
        })?;
        let key = Arc::clone(&shelf.state.borrow().key);
        let (connector, answer_bytes) = (connector.map(str::to_owned), ANSWER_BYTES);
        Ok(Self {
            shared,
            shelf,
            requests,
            connector,
            answer_bytes,
            fingerprint,
            key,
            reading: None,
            asked: None,
            promised: Step::ZERO,
        })
    }

    /// The same for one of many who read at once: in small answers.
    #[must_use]
    pub fn among_many(self) -> Self {
        Self { answer_bytes: SMALL_ANSWER_BYTES, ..self }
    }

    /// The log of the history that this source is of.
    ///
    /// Continuity lost: the history is another, or the table is not followed any more.
    fn log(&self) -> Result<Arc<StepLog>> {
        let told = self.shared.told.borrow();
        if let Contact::Lost(trouble) = &told.contact {
            return Err(trouble.error());
        }
        if told.fingerprint.as_ref() != Some(&self.fingerprint) {
            return Err(Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "view {}: what is read is {}, and the table follows {}; reset its connectors",
                    self.shelf.view(),
                    told.fingerprint.as_deref().unwrap_or("nothing"),
                    self.fingerprint
                ),
            ));
        }
        drop(told);
        self.shelf.log()
    }

    /// The view as it is, once the server was met.
    async fn present(&self) -> Result<View> {
        let mut state = self.shelf.state.subscribe();
        tokio::select! {
            _ = state.wait_for(|state| state.view.is_some() || state.trouble.is_some()) => {}
            () = self.shared.world.clock.deadline(PATIENCE) => {}
        }
        self.log()?;
        let view = state.borrow().view.clone();
        view.ok_or_else(|| self.away())
    }

    /// Waits until it is known whether the server is what it was.
    async fn met(&self) {
        let mut told = self.shared.told.clone();
        tokio::select! {
            _ = told.wait_for(|told| !matches!(told.contact, Contact::Awaited)) => {}
            () = self.shared.world.clock.deadline(PATIENCE) => {}
        }
    }

    fn away(&self) -> Error {
        match &self.shared.told.borrow().contact {
            Contact::Away(trouble) => trouble.error(),
            _ => Error::unavailable(format!("{}: the server does not answer", self.shared.server.place())),
        }
    }

    /// Where the server is. It must say so itself: what it says to the one that reads comes later.
    async fn latest(&mut self) -> Result<Step> {
        let now = self.shared.world.clock.boot();
        if let Some((_, latest, asked)) = &self.asked
            && now.saturating_sub(*asked) < FRESH
        {
            return Ok(*latest);
        }
        let session = match self.asked.take() {
            Some((session, ..)) => session,
            None => self.shared.in_time(self.shared.server.connect()).await?,
        };
        let latest = self.shared.in_time(flushed(&session)).await?;
        self.asked = Some((session, latest, now));
        Ok(latest)
    }

    /// A snapshot of the server, at a step of its own.
    async fn taken(&self) -> Result<(View, Snapshot)> {
        for _ in 0..TRIES {
            if let Some(taken) = self.taken_once().await? {
                return Ok(taken);
            }
        }
        Err(Error::unavailable(format!(
            "{}: {} was altered, truncated or rewritten each time that a snapshot of it was begun; it is tried again",
            self.shared.server.place(),
            self.shelf.name
        )))
    }

    /// The same, unless the table changed while it was begun.
    async fn taken_once(&self) -> Result<Option<(View, Snapshot)>> {
        let Shared { server, slot, world, .. } = &*self.shared;
        let replication = self.shared.in_time(Replication::connect(server)).await?;
        let exported = Exported::take(replication, server, slot, &world.ids).await?;
        let (step, point) = (exported.step, exported.point.clone());
        let (table, columns) = (&self.shelf.name, &self.shelf.settings.columns);
        let copy = Copy::open(server, table, columns, &exported.name, CONNECTIONS).await?;
        // Its slot was for the snapshot only, which others hold by now.
        exported.let_go().await;
        let Some(copy) = copy else { return Ok(None) };
        let key = copy.table().key(&self.shelf.settings.key)?;
        if *key != *self.key {
            return Err(Error::continuity_lost(
                Lost::Gap,
                format!(
                    "view {}: the key of {table} is {key:?}, and was {:?}; load the configuration anew, then reset its connectors",
                    self.shelf.view(),
                    self.key
                ),
            ));
        }
        let view = view_of(self.shelf.view(), &copy.table().columns, &key)?;
        let rows = self.taken_back(step, copy.rows(Arc::clone(view.schema())));
        // The server's own number is an estimate, and to count would read the table twice.
        Ok(Some((view, Snapshot { step, rows, known_rows: None, position: format!("LSN {point}") })))
    }

    /// The rows of a snapshot of `step`. Who reads them is to follow: one that was detached is attached again before the first.
    fn taken_back(
        &self,
        step: Step,
        rows: BoxStream<'static, Result<RecordBatch>>,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let Some(connector) = self.connector.clone() else { return rows };
        let shelf = Arc::clone(&self.shelf);
        let taken_back = async move {
            if !shelf.places.borrow().detached().contains_key(&connector) {
                return Ok(());
            }
            shelf.take_back(&connector)?;
            check_held(shelf.view(), &*shelf.log()?, step)
        };
        behind(taken_back, rows)
    }

    fn gone(&self, after: Step, earliest: Step) -> Error {
        let connector = self.connector.as_deref();
        let detached = connector.and_then(|name| self.shelf.places.borrow().detached().get(name).copied());
        gone(self.shelf.view(), after, earliest, connector, detached)
    }

    /// That everything up to the step is known, with nothing in between.
    fn mark(&self, after: Step, reached: Step) -> Result<Next> {
        if reached <= after {
            return Ok(Next::Idle { hole: None });
        }
        let changes = Changes::new(StepRange::new(after, reached)?, Vec::new())?;
        Ok(Next::Changes(changes.at_position(position(reached))))
    }
}

impl std::fmt::Debug for TableSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableSource").field("connector", &self.connector).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for TableSource {
    fn name(&self) -> &str {
        self.shelf.view()
    }

    fn key(&self) -> &[String] {
        &self.key
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    async fn position(&mut self) -> Result<Position> {
        self.log()?;
        self.met().await;
        let log = self.log()?;
        let latest = self.latest().await?;
        self.promised = latest;
        let stand = log.stand();
        Ok(Position { earliest: Some(stand.earliest), latest: Some(latest.max(stand.last)) })
    }

    async fn view(&mut self, after: Step) -> Result<View> {
        let log = self.log()?;
        let present = self.present().await?;
        // No column is called so: whatever the first step has is another view.
        let mut judge = Judge::new(self.shelf.view(), Arc::clone(&self.key), present.clone());
        let found = Reading::default().next(&log, after, &present, 1, move |stored| judge.judge(stored)).await?;
        Ok(match found {
            Found::Stopped(Turn::Columns { view, .. } | Turn::Emptied(_, view)) => view,
            Found::Stopped(Turn::Lost(_)) | Found::Changes(_) | Found::End | Found::Gone(_) => present,
        })
    }

    async fn snapshot(&mut self, pick: Pick) -> Result<(View, Snapshot)> {
        self.log()?;
        let (view, snapshot) = self.taken().await?;
        let (Pick::Newest { until } | Pick::Reached { until } | Pick::Since { until, .. }) = pick;
        if let Some(until) = until.filter(|until| *until < snapshot.step) {
            return Err(Error::refused(format!(
                "view {} is at step {}, and the server keeps no older state, and step {until} or before is wanted; take it as it is",
                view.name(),
                snapshot.step
            )));
        }
        if let Pick::Since { from, .. } = pick
            && snapshot.step < from
        {
            return Err(Error::unavailable(format!(
                "view {} is at step {}, and a snapshot of step {from} or later is wanted; wait for the server",
                view.name(),
                snapshot.step
            )));
        }
        Ok((view, snapshot))
    }

    async fn changes(&mut self, after: Step, view: &View) -> Result<Next> {
        match self.read(after, view).await? {
            Next::Idle { .. } if after < self.promised => match &self.shared.told.borrow().contact {
                Contact::Away(trouble) => Err(trouble.error()),
                Contact::Met | Contact::Awaited | Contact::Lost(_) => Ok(Next::Pending),
            },
            next => Ok(next),
        }
    }

    async fn more(&mut self, after: Step) -> Result<()> {
        let mut reader = self.log()?.read(after);
        if reader.more().await { Ok(()) } else { Err(self.shared.ended()) }
    }

    async fn renew(&mut self) -> Result<()> {
        self.met().await;
        let is_lost = matches!(self.shared.told.borrow().contact, Contact::Lost(_))
            || self.shelf.state.borrow().trouble.is_some();
        if is_lost {
            let view = self.shelf.view().to_owned();
            ask(&self.requests, |reply| Request::Renew(view, reply), || self.shared.ended()).await?;
        }
        if let Some(fingerprint) = self.shared.told.borrow().fingerprint.clone() {
            self.fingerprint = fingerprint;
        }
        self.key = Arc::clone(&self.shelf.state.borrow().key);
        (self.reading, self.asked, self.promised) = (None, None, Step::ZERO);
        Ok(())
    }

    async fn acknowledge(&mut self, step: Step) -> Result<()> {
        match &self.connector {
            Some(connector) => self.shelf.acknowledge(connector, step).await,
            None => Ok(()),
        }
    }
}

impl TableSource {
    /// What follows step `after`, as far as it was read.
    async fn read(&mut self, after: Step, view: &View) -> Result<Next> {
        let log = self.log()?;
        // What is in the log after this look is read by the next one.
        let reached = self.shared.told.borrow().reached;
        if after < log.stand().earliest {
            return Err(self.gone(after, log.stand().earliest));
        }
        let reading = self.reading.take().filter(|(of, _)| Arc::ptr_eq(of, &log));
        let mut reading = reading.map(|(_, reading)| reading).unwrap_or_default();
        let mut judge = Judge::new(self.shelf.view(), Arc::clone(&self.key), view.clone());
        let found = reading.next(&log, after, view, self.answer_bytes, move |stored| judge.judge(stored)).await?;
        self.reading = Some((Arc::clone(&log), reading));
        // What was read while the log was given up counts for nothing.
        self.log()?;
        match found {
            Found::Changes(changes) => {
                let to = changes.range().to();
                // A step begins where the one before it ended, and who asks may be further: nothing happened in between.
                let changes = changes.after(after)?.ok_or_else(|| {
                    Error::internal(format!("the step log gave what ends at step {to} for what follows step {after}"))
                })?;
                Ok(Next::Changes(changes.at_position(position(to))))
            }
            Found::End => self.mark(after, reached),
            Found::Gone(earliest) => Err(self.gone(after, earliest)),
            Found::Stopped(Turn::Columns { view, is_filled }) => {
                Ok(Next::View(NextView { view, is_filled, position: position(after) }))
            }
            Found::Stopped(Turn::Emptied(stored, view)) => emptied(&stored, &view).map(|s| Next::Emptied(view, s)),
            Found::Stopped(Turn::Lost(why)) => Err(Error::continuity_lost(
                Lost::Gap,
                format!("view {}: after step {after}: {why}; then reset its connectors", self.shelf.view()),
            )),
        }
    }
}

fn position(step: Step) -> String {
    format!("LSN {}", Lsn(step.get()))
}

/// What a table has at the step that emptied it.
fn emptied(stored: &Stored, view: &View) -> Result<Snapshot> {
    let changes = stored.changes()?;
    let place = format!("step {} in the step log", stored.step);
    let batches = changes.batches().iter().map(|batch| view.conform_changes(batch, &place)).collect::<Result<_>>()?;
    let (net, _) = Changes::new(changes.range(), batches)?.net(view)?;
    let is_there = ops_of(&net)?.into_iter().map(|op| Some(op != Op::Delete)).collect();
    let broken = |e| Error::internal("rows of an emptied table were not selected").with_source(e);
    let rows = filter_record_batch(&net, &is_there).map_err(broken)?;
    let own = rows.schema();
    let columns: Vec<usize> = (0..rows.num_columns())
        .filter(|at| ![COLUMN_STEP, COLUMN_OP].contains(&own.field(*at).name().as_str()))
        .collect();
    let rows = view.conform(&rows.project(&columns).map_err(broken)?, &place)?;
    let snapshot = Snapshot::from_batches(stored.step, vec![rows]);
    Ok(Snapshot { position: position(stored.step), ..snapshot })
}
