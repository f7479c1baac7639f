//! The machine that turns a source into chunks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use tokio::sync::mpsc;

use super::chunk::{End, Mark, Reason};
use super::encoder::{Format, Rows};
use super::pieces::{Piece, cut};
use super::teller::{Bounds, Has, Sent, Teller};
use crate::change::{Changes, steps_of};
use crate::clock::Clock;
use crate::error::{Error, Lost};
use crate::generation::Generation;
use crate::schema::View;
use crate::source::{Next, Pick, Source};
use crate::step::Step;

/// Where a stream begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With a snapshot, and nothing after it.
    Snapshot,
    /// With a snapshot, which is followed.
    SnapshotAndFollow,
    /// With the changes after this step.
    After(Step),
}

/// What is to be sent next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Snapshot,
    Start(Step),
    Follow,
    Complete,
}

/// What a stream is of, and for whom.
pub struct Settings {
    /// Where rows come from.
    pub source: Box<dyn Source>,
    /// The view, in the columns in which the stream begins.
    pub view: View,
    /// How chunks are written.
    pub format: Format,
    /// Where it begins.
    pub begin: Begin,
    /// The generation that is sent.
    pub generation: Generation,
    /// The number after which chunks are numbered.
    pub sequence_number: u64,
    /// How often an idle source is asked again.
    pub poll_interval: Duration,
    /// What chunks aim at.
    pub bounds: Bounds,
    /// Where what is sent is counted.
    pub sent: Arc<Sent>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// One client's stream.
pub struct Stream {
    source: Box<dyn Source>,
    teller: Teller,
    task: Task,
    /// Whether a snapshot is followed.
    follows: bool,
    poll_interval: Duration,
}

impl Stream {
    /// A stream that has sent nothing.
    pub fn new(settings: Settings) -> Self {
        let Settings { source, view, format, begin, generation, sequence_number, poll_interval, .. } = settings;
        let (task, follows) = match begin {
            Begin::Snapshot => (Task::Snapshot, false),
            Begin::SnapshotAndFollow => (Task::Snapshot, true),
            Begin::After(step) => (Task::Start(step), true),
        };
        let step = if let Begin::After(step) = begin { step } else { Step::ZERO };
        let world = (settings.bounds, settings.clock, settings.sent);
        let strands = source.strands();
        let teller = Teller::new((format, &view), (generation, step, sequence_number), world, strands);
        Self { source, teller, task, follows, poll_interval }
    }

    /// The generation that is sent.
    pub fn generation(&self) -> Generation {
        self.teller.generation
    }

    /// Begins another generation, with a snapshot.
    pub fn begin(&mut self, generation: Generation) {
        (self.teller.generation, self.task) = (generation, Task::Snapshot);
    }

    /// Sends chunks to `out` until nothing more is to be sent.
    ///
    /// Safe to drop at any point: the next run goes on behind the last chunk, or sends a snapshot from its beginning on.
    pub async fn run(&mut self, out: &mpsc::Sender<Bytes>) -> End {
        tokio::select! {
            end = self.send_all(out) => end,
            () = out.closed() => End::Left,
        }
    }

    /// The generation that is over because the view changed so that changes do not lead on, with the view that follows and the
    /// step before it.
    pub fn outdated(&self) -> Option<(Generation, View, Step)> {
        let (view, step) = self.teller.outdated_by.clone()?;
        Some((self.teller.generation, view, step))
    }

    /// The last bytes of a stream that ends so; none where nobody reads them. Its source is let go of.
    pub fn last(self, end: &End) -> Option<Bytes> {
        self.teller.last(end)
    }

    async fn send_all(&mut self, out: &mpsc::Sender<Bytes>) -> End {
        loop {
            let done = match self.task {
                Task::Snapshot => self.snapshot(out).await,
                Task::Start(step) => self.start(out, step).await,
                Task::Follow => self.follow(out).await,
                Task::Complete => return End::Close(Reason::Complete),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    async fn snapshot(&mut self, out: &mpsc::Sender<Bytes>) -> Result<(), End> {
        let Self { source, teller, .. } = self;
        let (view, snapshot) = source.snapshot(Pick::Newest { until: None }).await?;
        teller.turn_to(&view)?;
        let (has, place) = (Has::PartOfSnapshot(snapshot.step), format!("the snapshot of step {}", snapshot.step));
        teller.send(out, has, Some(Mark::Begin { rows: snapshot.known_rows }), &Rows::None).await?;
        let (mut rows, mut count) = (snapshot.rows, 0);
        while let Some(batch) = teller.awaited(out, rows.next()).await? {
            let batch = view.conform(&batch?, &place)?;
            let most = teller.chunk_of(&batch);
            for at in (0..batch.num_rows()).step_by(most) {
                let part = batch.slice(at, most.min(batch.num_rows() - at));
                teller.send(out, has, None, &Rows::Snapshot(&part)).await?;
            }
            count += batch.num_rows() as u64;
        }
        teller.send(out, Has::Step(snapshot.step), Some(Mark::End { rows: count }), &Rows::None).await?;
        self.task = if self.follows { Task::Follow } else { Task::Complete };
        Ok(())
    }

    async fn start(&mut self, out: &mpsc::Sender<Bytes>, step: Step) -> Result<(), End> {
        let view = self.source.view(step).await?;
        self.teller.turn_to(&view)?;
        self.teller.send(out, Has::Step(step), Some(Mark::Start), &Rows::None).await?;
        self.task = Task::Follow;
        Ok(())
    }

    async fn follow(&mut self, out: &mpsc::Sender<Bytes>) -> Result<(), End> {
        let (Has::Step(mut at) | Has::PartOfStep(mut at, _) | Has::PartOfSnapshot(mut at)) = self.teller.has;
        let mut view = self.teller.view().clone();
        loop {
            let Self { source, teller, poll_interval, .. } = self;
            drop(teller.room(out).await?);
            match teller.awaited(out, source.changes(at, &view)).await?? {
                Next::Changes(changes) => at = tell(teller, out, &view, at, changes).await?,
                Next::View(next) => {
                    teller.grow(at, &next)?;
                    view = next.view;
                }
                Next::Emptied(_, after) => {
                    let said = format!(
                        "the view was emptied at step {}, and changes do not lead there; begin anew",
                        after.step
                    );
                    return Err(Error::continuity_lost(Lost::Gap, said).into());
                }
                Next::Pending | Next::Idle { .. } => {
                    let pause = teller.sleep(*poll_interval);
                    let more = async {
                        tokio::select! {
                            more = source.more(at) => more,
                            () = pause => Ok(()),
                        }
                    };
                    teller.awaited(out, more).await??;
                }
            }
        }
    }
}

/// Sends what of `changes` follows step `at`; the step that the client has then.
async fn tell(
    teller: &mut Teller,
    out: &mpsc::Sender<Bytes>,
    view: &View,
    at: Step,
    changes: Changes,
) -> Result<Step, End> {
    if changes.range().from() > at {
        let said = format!("changes in {} follow step {at}, and what is between is missing", changes.range());
        return Err(Error::continuity_lost(Lost::Gap, said).into());
    }
    let Some(changes) = changes.after(at)? else { return Ok(at) };
    let (netted, range) = (changes.net(view)?.0, changes.range());
    // While the client takes them, they are held once.
    drop(changes);
    let most = teller.chunk_of(&netted);
    for Piece { from, to, is_partial, at, rows } in cut(steps_of(&netted)?.values(), range, most)? {
        let has = if is_partial { Has::PartOfStep(from, to) } else { Has::Step(to) };
        teller.send(out, has, None, &Rows::Changes(&netted.slice(at, rows))).await?;
    }
    Ok(range.to())
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("task", &self.task).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
