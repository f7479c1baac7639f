//! Rows spread over encoders: few inline, many on threads of their own.

use std::sync::Arc;
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::future::select_all;
use object_store::ObjectStore;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::encoder::{Encoder, Expected, Job};
use super::slices::{SLICE_BYTES, SLICE_ROWS, batch_bytes, slices};
use super::spread::Share;
use super::upload::Overlap;
use super::{FileSettings, Partitioning, Written};
use crate::clock::World;
use crate::error::{Error, Result, panic_text};

/// Parts of one file that an encoder thread has under way while it goes on encoding.
const PARTS_UNDER_WAY: usize = 2;

/// Writes batches of one schema as data files.
///
/// Up to 65,536 rows or 8 MiB are held back, and encoded by [`FileWriter::finish`] on the caller's task. Beyond that each
/// batch goes on to the encoder threads, which are started one by one while none that runs has room; with
/// [`FileSettings::threads`] of 0 it is encoded on the caller's task. Each thread has one slice in hand and one waiting,
/// so a batch given to [`FileWriter::write`] stays in memory a little longer than the call.
///
/// Dropping the writer gives its open files up; a thread that is busy then ends on its own shortly after.
#[derive(Debug)]
pub struct FileWriter {
    job: Arc<Job>,
    threads: usize,
    rows: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Held(Held),
    Inline(Box<Encoder>),
    Threads(Pool),
    /// After an error, or a call whose future was dropped: some rows are missing.
    Broken,
}

impl FileWriter {
    /// A writer into `store`, which is rooted at the table; `schema` is exactly that of each batch, in kept types.
    pub fn new(store: Arc<dyn ObjectStore>, schema: SchemaRef, settings: &FileSettings, world: &World) -> Self {
        Self::of(Job::new(store, schema, settings, world), settings)
    }

    /// A writer of rows that are partitioned: each file holds rows of one partition. Each encoder has partitions of
    /// its own and bounds what it holds of all of them together, so that many with their rows mixed give more and
    /// smaller files.
    ///
    /// [`FileWriter::write`] refuses rows with a partition value that not every reader would find again.
    pub fn partitioned(
        store: Arc<dyn ObjectStore>,
        partitioning: Partitioning,
        settings: &FileSettings,
        world: &World,
    ) -> Self {
        let job = Job::new(store, Arc::clone(partitioning.schema()), settings, world);
        Self::of(job.partitioned(partitioning), settings)
    }

    fn of(job: Job, settings: &FileSettings) -> Self {
        Self { job: Arc::new(job), threads: settings.threads, rows: 0, state: State::Held(Held::default()) }
    }

    /// Adds rows, waiting while all encoders are busy. Runs inside a tokio runtime.
    ///
    /// `Internal` for a batch of another schema or what cannot be encoded, `Refused` when the store forbids a file,
    /// `Unavailable` when it failed otherwise.
    /// After an error, or when the future is dropped before its end, the writer gives errors only.
    pub async fn write(&mut self, batch: RecordBatch) -> Result<()> {
        if batch.schema_ref() != self.job.schema() {
            return Err(Error::internal("a batch has another schema than its data file writer"));
        }
        let rows = batch.num_rows() as u64;
        self.state = match std::mem::replace(&mut self.state, State::Broken) {
            State::Held(mut held) => {
                if held.takes(&batch) {
                    State::Held(held)
                } else {
                    let mut state = self.encoding();
                    for held in held.batches {
                        state = state.encode(&held).await?;
                    }
                    state.encode(&batch).await?
                }
            }
            state => state.encode(&batch).await?,
        };
        self.rows += rows;
        Ok(())
    }

    /// The rows taken so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The bytes encoded so far: those of complete row groups, so they lag behind the rows.
    pub fn bytes(&self) -> u64 {
        self.job.encoded()
    }

    /// Completes every file and awaits every thread.
    ///
    /// Without rows there is no file. Errors are those of [`FileWriter::write`]; files that were complete before one
    /// stay in the store as garbage.
    pub async fn finish(self) -> Result<Written> {
        match self.state {
            State::Held(held) => {
                let mut state = State::Inline(Box::new(Encoder::new(self.job, Overlap::None, Expected::Few)));
                for batch in held.batches {
                    state = state.encode(&batch).await?;
                }
                state.finish().await
            }
            state => state.finish().await,
        }
    }

    fn encoding(&self) -> State {
        match self.threads {
            0 => State::Inline(Box::new(Encoder::new(Arc::clone(&self.job), Overlap::None, Expected::Many))),
            most => State::Threads(Pool { job: Arc::clone(&self.job), most, workers: Vec::new() }),
        }
    }
}

impl State {
    async fn encode(self, batch: &RecordBatch) -> Result<State> {
        match self {
            State::Inline(mut encoder) => {
                for slice in slices(batch) {
                    if let Err(error) = encoder.encode(&slice).await {
                        encoder.abort().await;
                        return Err(error);
                    }
                }
                Ok(State::Inline(encoder))
            }
            State::Threads(mut pool) => {
                for slice in slices(batch) {
                    if let Err(error) = pool.send(slice).await {
                        return Err(pool.outcome().await.err().unwrap_or(error));
                    }
                }
                Ok(State::Threads(pool))
            }
            State::Held(_) | State::Broken => Err(broken()),
        }
    }

    async fn finish(self) -> Result<Written> {
        match self {
            State::Inline(mut encoder) => encoder.finish().await,
            State::Threads(pool) => pool.finish().await,
            State::Held(_) | State::Broken => Err(broken()),
        }
    }
}

fn broken() -> Error {
    Error::internal("a data file writer was used after it had failed or a call to it had been abandoned")
}

/// Rows of a writer that may turn out to be small.
#[derive(Debug, Default)]
struct Held {
    batches: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
}

impl Held {
    /// Takes the batch while all rows together stay small.
    fn takes(&mut self, batch: &RecordBatch) -> bool {
        let (rows, bytes) = (self.rows + batch.num_rows(), self.bytes + batch_bytes(batch));
        let small = rows <= SLICE_ROWS && bytes <= SLICE_BYTES;
        if small {
            self.batches.push(batch.clone());
            (self.rows, self.bytes) = (rows, bytes);
        }
        small
    }
}

/// What an encoder thread is asked to do; a channel that closes without `Finish` means: give up.
#[derive(Debug)]
enum Work {
    Encode(RecordBatch),
    Finish,
}

/// The encoder threads of a writer.
#[derive(Debug)]
struct Pool {
    job: Arc<Job>,
    most: usize,
    workers: Vec<Worker>,
}

impl Pool {
    /// Hands a slice to the first worker with room, a further one if there may be.
    ///
    /// After an error the pool's outcome says why a worker ended too early.
    async fn send(&mut self, slice: RecordBatch) -> Result<()> {
        let ended = || Error::internal("an encoder thread ended before its work did");
        if self.job.is_partitioned() {
            // Each takes its own partitions' rows of every slice.
            while self.workers.len() < self.most {
                let share = Share::new(self.workers.len(), self.most);
                self.workers.push(Worker::start(Arc::clone(&self.job), self.workers.len(), share)?);
            }
            for worker in &self.workers {
                worker.queue.send(Work::Encode(slice.clone())).await.map_err(|_| ended())?;
            }
            return Ok(());
        }
        let mut work = Work::Encode(slice);
        for worker in &self.workers {
            work = match worker.queue.try_send(work) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(work)) => work,
                Err(TrySendError::Closed(_)) => return Err(ended()),
            };
        }
        if self.workers.len() < self.most {
            let worker = Worker::start(Arc::clone(&self.job), self.workers.len(), Share::WHOLE)?;
            let sent = worker.queue.try_send(work).map_err(|_| ended());
            self.workers.push(worker);
            return sent;
        }
        let room = self.workers.iter().map(|worker| Box::pin(worker.queue.reserve()));
        select_all(room).await.0.map_err(|_| ended())?.send(work);
        Ok(())
    }

    async fn finish(self) -> Result<Written> {
        for worker in &self.workers {
            // A worker that is gone says why in its outcome.
            let _ = worker.queue.send(Work::Finish).await;
        }
        self.outcome().await
    }

    /// Closes the queues, awaits every worker, and sums what they wrote; the first error otherwise.
    async fn outcome(self) -> Result<Written> {
        let (queues, ends): (Vec<_>, Vec<_>) = self.workers.into_iter().map(Worker::split).unzip();
        drop(queues);
        let mut total = Ok(Written::default());
        for (outcome, thread) in ends {
            let outcome = match outcome.await {
                Ok(outcome) => outcome,
                Err(_) => Err(Error::internal("an encoder thread did not say how it ended")),
            };
            // The thread has nothing left to do once its outcome is there, so this does not hold the task up.
            let outcome = match thread.join() {
                Ok(()) => outcome,
                Err(panic) => Err(Error::internal("an encoder thread panicked").with_source(panic_text(&*panic))),
            };
            total = match (total, outcome) {
                (Ok(mut total), Ok(written)) => {
                    total.absorb(written);
                    Ok(total)
                }
                (Err(first), _) => Err(first),
                (Ok(_), Err(error)) => Err(error),
            };
        }
        total
    }
}

type End = (oneshot::Receiver<Result<Written>>, JoinHandle<()>);

#[derive(Debug)]
struct Worker {
    queue: mpsc::Sender<Work>,
    outcome: oneshot::Receiver<Result<Written>>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(job: Arc<Job>, number: usize, share: Share) -> Result<Self> {
        let runtime = Handle::try_current()
            .map_err(|e| Error::internal("data files are written outside a tokio runtime").with_source(e))?;
        let (queue, work) = mpsc::channel(1);
        let (say, outcome) = oneshot::channel();
        let encode = move || {
            let encoder = Encoder::new(job, Overlap::Parts(PARTS_UNDER_WAY), Expected::Many).sharing(share);
            let encoded = runtime.block_on(run(encoder, work));
            // Nobody listens once the writer was dropped.
            let _ = say.send(encoded);
        };
        let thread = std::thread::Builder::new()
            .name(format!("cutover-files-{number}"))
            .spawn(encode)
            .map_err(|e| Error::unavailable("an encoder thread was not started").with_source(e))?;
        Ok(Self { queue, outcome, thread })
    }

    fn split(self) -> (mpsc::Sender<Work>, End) {
        (self.queue, (self.outcome, self.thread))
    }
}

async fn run(mut encoder: Encoder, mut work: mpsc::Receiver<Work>) -> Result<Written> {
    loop {
        match work.recv().await {
            Some(Work::Encode(slice)) => {
                if let Err(error) = encoder.encode(&slice).await {
                    encoder.abort().await;
                    return Err(error);
                }
            }
            Some(Work::Finish) => return encoder.finish().await,
            None => {
                encoder.abort().await;
                return Ok(Written::default());
            }
        }
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
