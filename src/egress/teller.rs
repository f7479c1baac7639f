//! Says chunk after chunk to one client, and no more than it takes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use super::chunk::{End, Fault, Head, Mark};
use super::encoder::{Encoder, Format, Rows};
use crate::clock::Clock;
use crate::continuity::columns::Difference;
use crate::error::Result;
use crate::explain::code;
use crate::generation::Generation;
use crate::schema::View;
use crate::source::NextView;
use crate::step::Step;
use crate::strand::Strands;

/// What a chunk aims at, and how long is waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Rows of a chunk at most.
    pub rows: usize,
    /// Bytes of a chunk's rows in memory, about, but for a row that has more.
    pub bytes: usize,
    /// After how long without a chunk one says that the stream is alive.
    pub alive: Duration,
    /// For how long a client may take nothing.
    pub patience: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { rows: 4096, bytes: 128 << 10, alive: Duration::from_secs(3), patience: Duration::from_secs(30) }
    }
}

/// What was sent.
#[derive(Debug, Default)]
pub struct Sent {
    /// Chunks with rows or a step, marks among them.
    pub chunks: AtomicU64,
    /// Rows.
    pub rows: AtomicU64,
    /// Bytes.
    pub bytes: AtomicU64,
    /// One more than the last step that was sent whole; 0 before there was one.
    step: AtomicU64,
}

impl Sent {
    /// The last step that was sent whole.
    pub fn step(&self) -> Option<u64> {
        self.step.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// What a client has once it took the last chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    /// The view at this step.
    Step(Step),
    /// A part of the snapshot of this step.
    PartOfSnapshot(Step),
    /// The view at the first step, and a part of the changes up to the second.
    PartOfStep(Step, Step),
}

/// The client's side of a stream.
pub(super) struct Teller {
    encoder: Encoder,
    format: Format,
    bounds: Bounds,
    clock: Arc<dyn Clock>,
    sent: Arc<Sent>,
    strands: Strands,
    pub(super) generation: Generation,
    pub(super) has: Has,
    /// The number of the last chunk.
    sequence_number: u64,
    /// When the last chunk was sent, by the boot clock.
    quiet_since: Duration,
    has_spoken: bool,
    /// The view to which changes do not lead on, and the step before it.
    pub(super) outdated_by: Option<(View, Step)>,
}

impl Teller {
    pub(super) fn new(
        (format, view): (Format, &View),
        (generation, step, sequence_number): (Generation, Step, u64),
        (bounds, clock, sent): (Bounds, Arc<dyn Clock>, Arc<Sent>),
        strands: Strands,
    ) -> Self {
        let (encoder, quiet_since) = (Encoder::new(format, view), clock.boot());
        let has = Has::Step(step);
        Self {
            encoder,
            format,
            bounds,
            clock,
            sent,
            strands,
            generation,
            has,
            sequence_number,
            quiet_since,
            has_spoken: false,
            outdated_by: None,
        }
    }

    pub(super) fn view(&self) -> &View {
        self.encoder.view()
    }

    /// The columns in which rows begin, unless a row was told.
    pub(super) fn turn_to(&mut self, view: &View) -> Result<(), End> {
        let difference = Difference::between(self.view().schema(), view.schema());
        if difference.is_empty() {
            return Ok(());
        }
        if self.has_spoken && self.format == Format::Arrow {
            let said = format!("the snapshot has other columns than the stream: {difference}; ask again");
            return Err(End::Fault(Fault::new(code!("columns_added"), said)));
        }
        self.encoder = Encoder::new(self.format, view);
        Ok(())
    }

    /// From here on rows are those of the view that follows.
    pub(super) fn grow(&mut self, at: Step, next: &NextView) -> Result<(), End> {
        let difference = Difference::between(self.view().schema(), next.view.schema());
        if next.is_filled || difference.added().is_none() {
            let said = format!(
                "the view has other columns from here on, and what is there already has values in them: {difference}; ask again without a generation, and begin anew"
            );
            self.outdated_by = Some((next.view.clone(), at));
            return Err(End::Fault(Fault::new(code!("columns_changed"), said)));
        }
        if self.format == Format::Arrow {
            let said = format!(
                "the view has more columns from here on: {difference}; go on from the last step that you have, in another stream"
            );
            return Err(End::Fault(Fault::new(code!("columns_added"), said)));
        }
        self.encoder = Encoder::new(self.format, &next.view);
        Ok(())
    }

    /// How many rows of `batch` make a chunk.
    pub(super) fn chunk_of(&self, batch: &RecordBatch) -> usize {
        let row = batch.get_array_memory_size() / batch.num_rows().max(1);
        (self.bounds.bytes / row.max(1)).clamp(1, self.bounds.rows.max(1))
    }

    /// Completes when the client has room for a chunk: what nobody takes need not be read.
    pub(super) async fn room<'out>(&self, out: &'out mpsc::Sender<Bytes>) -> Result<mpsc::Permit<'out, Bytes>, End> {
        tokio::select! {
            permit = out.reserve() => permit.map_err(|_| End::Left),
            () = self.clock.deadline(self.bounds.patience) => Err(End::Fault(self.too_slow())),
        }
    }

    /// Sends a mark; the client has what it had, or what was set before.
    pub(super) async fn mark(&mut self, out: &mpsc::Sender<Bytes>, mark: Mark) -> Result<(), End> {
        let has = self.has;
        self.send(out, has, Some(mark), &Rows::None).await
    }

    /// Sends a chunk, after which the client has `has`.
    pub(super) async fn send(
        &mut self,
        out: &mpsc::Sender<Bytes>,
        has: Has,
        mark: Option<Mark>,
        rows: &Rows<'_>,
    ) -> Result<(), End> {
        // What nobody takes is not encoded. From here on nothing is awaited: a chunk is sent and counted, or neither.
        let permit = self.room(out).await?;
        let head = self.head(has, mark);
        let bytes = self.encoder.chunk(&head, rows)?;
        self.sent.chunks.fetch_add(1, Ordering::Relaxed);
        self.sent.rows.fetch_add(rows.count(), Ordering::Relaxed);
        self.sent.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if let Has::Step(step) = has {
            self.sent.step.store(step.get() + 1, Ordering::Relaxed);
        }
        permit.send(bytes);
        (self.sequence_number, self.has, self.has_spoken) = (head.sequence_number, has, true);
        self.quiet_since = self.clock.boot();
        Ok(())
    }

    /// What `work` gives, while chunks say that the stream is alive.
    pub(super) async fn awaited<T>(
        &mut self,
        out: &mpsc::Sender<Bytes>,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        let mut work = pin!(work);
        loop {
            let silence = self.clock.boot().saturating_sub(self.quiet_since);
            let alive = self.clock.deadline(self.bounds.alive.saturating_sub(silence));
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = alive => self.mark(out, Mark::Alive).await?,
            }
        }
    }

    /// Completes after `pause`.
    pub(super) fn sleep(&self, pause: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(pause)
    }

    /// The last bytes of a stream that ends so; none where nobody reads them.
    pub(super) fn last(self, end: &End) -> Option<Bytes> {
        let last = match end {
            End::Left => return None,
            End::Close(reason) => {
                let head = self.head(self.has, Some(Mark::Close { reason: *reason }));
                self.encoder.last(Ok(&head))
            }
            End::Fault(fault) => {
                let (generation, fault) = (self.generation, fault.clone());
                let fault = match self.has {
                    Has::Step(step) | Has::PartOfStep(step, _) => {
                        let fault = fault.with("step", step.get());
                        self.strands.at(step).map_or(fault.clone(), |strand| fault.with("strand", strand.to_string()))
                    }
                    Has::PartOfSnapshot(_) => fault,
                };
                self.encoder.last(Err(&fault.with("generation", generation.get())))
            }
        };
        last.inspect_err(|e| tracing::warn!(event = "egress_failed", error = %e, "the end of a stream is not told"))
            .ok()
    }

    fn head(&self, has: Has, mark: Option<Mark>) -> Head {
        let sequence_number = self.sequence_number + 1;
        let generation = self.generation;
        let is_end = matches!(mark, Some(Mark::End { .. }));
        let (snapshot, partial, from, to) = match has {
            Has::Step(to) => {
                let from = match (self.has, &mark) {
                    (Has::Step(from) | Has::PartOfStep(from, _), None) => from,
                    _ => to,
                };
                (is_end, false, from, to)
            }
            Has::PartOfSnapshot(step) => (true, true, step, step),
            Has::PartOfStep(from, to) => (false, true, from, to),
        };
        let strand = self.strands.at(to).filter(|_| !partial);
        Head { sequence_number, snapshot, generation, from, to, partial, strand, mark }
    }

    fn too_slow(&self) -> Fault {
        let said = format!(
            "the client took nothing for {:?}, and is cut off; go on from the last step that it has",
            self.bounds.patience
        );
        Fault::new(code!("slow_client"), said)
    }
}
