//! The durable, ordered, bounded log of one view's changes.
//!
//! ```text
//!    earliest                                                    last
//!   ─────┤●──────●──●─┆──●────●────────●──┆───●─────●───●─────────●├───
//!         └ segment, released as a whole  ┆   └ the one that takes appends
//! ```
//!
//! One directory, in which each file is a segment: a header, then frames, one for each step. The newest header names the
//! segments before it, so the directory needs nothing else but a lock. Whoever appends is answered when the step is
//! durable; those who wait at the same time share one write and one sync.
//!
//! A sync that failed is never followed by one that is believed: the segment is closed at the offset up to which it was
//! durable, and the next append begins another one. Whether a step that was answered with such an error is stored shows when
//! it is sent again: it is stored then, or was.

mod entry;
mod files;
mod frame;
mod header;
mod reader;
mod recovery;
mod segment;
mod wire;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

pub use entry::{At, Entry, Stored};
pub use reader::{Next, Reader};
pub use recovery::{Cut, Recovery};

use crate::clock::Ids;
use crate::disk::Disk;
use crate::error::{Error, Result, panic_text};
use crate::step::Step;
use crate::strand::Strands;
use files::Files;
use header::Header;
use writer::{Append, Layout, Request, Writer};

/// How many requests may wait, whatever their size.
const QUEUE: usize = 1024;
/// The unit in which room in the queue is counted, in bytes.
const UNIT: u64 = 1024;
/// How many strands are remembered, where segments have room for so many.
const STRANDS: u64 = 1000;
/// So many bytes of a segment are worth a strand in its header.
const WORTH: u64 = 128;

/// What a log may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// On disk, in bytes; more than that is never there but while a log is opened, when its newest segment stands there
    /// twice.
    pub max_bytes: u64,
    /// From which size on a segment is followed by another, in bytes; at most an eighth of `max_bytes`.
    pub segment_bytes: u64,
    /// In memory, for entries whose senders wait, in bytes; a single one may be larger.
    pub queue_bytes: u64,
}

impl Limits {
    /// Segments of up to 64 MiB and a queue of 32 MiB.
    pub fn of(max_bytes: u64) -> Self {
        Self { max_bytes, segment_bytes: (max_bytes / 16).min(64 << 20), queue_bytes: 32 << 20 }
    }

    /// What a step may take so that it fits once everything before it is released.
    fn largest_step(&self, strands: &Strands) -> u64 {
        self.max_bytes.saturating_sub(self.segment_bytes * 2).saturating_sub(Header::length(2, strands) * 2)
    }

    /// How many strands are remembered.
    fn strands(&self) -> usize {
        (self.segment_bytes / WORTH).clamp(1, STRANDS) as usize
    }
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is durable, as this step.
    Stored(Step),
    /// The log holds this step with the same content.
    AlreadyStored(Step),
    /// The log holds this step with other content, or after another one.
    OtherContent(Step),
    /// It does not follow the last step.
    Gap {
        /// The log's last step.
        last: Step,
    },
    /// There is no room for it until older steps are released.
    Full {
        /// What the log takes, in bytes.
        bytes: u64,
        /// What it may take.
        max_bytes: u64,
    },
    /// Its step was released, so that nobody can say whether it was the same.
    Gone {
        /// The step before the first one that is held.
        earliest: Step,
    },
}

/// Where a log stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stand {
    /// The step before the first one that is held.
    pub earliest: Step,
    /// The last step that is durable.
    pub last: Step,
    /// What the log takes on disk, in bytes.
    pub bytes: u64,
}

/// A view's changes, step by step, on disk.
///
/// Dropped, it ends what it has in hand; [`StepLog::close`] waits for that.
#[derive(Debug)]
pub struct StepLog {
    directory: PathBuf,
    id: Uuid,
    strands: Strands,
    requests: mpsc::Sender<Request>,
    room: Arc<Semaphore>,
    units: u32,
    layout: watch::Receiver<Layout>,
    writer: JoinHandle<()>,
}

impl StepLog {
    /// Opens the log in `directory`, or begins one whose first step follows `begin`. Reads all of it, and blocks.
    ///
    /// Refused: another process has it open, or a link stands in its place. Corrupt: it is damaged before its end, and where.
    pub fn open(
        directory: &Path,
        begin: Step,
        limits: Limits,
        disk: Arc<dyn Disk>,
        ids: &Ids,
    ) -> Result<(Self, Recovery)> {
        if limits.segment_bytes > limits.max_bytes / 8 || limits.segment_bytes < Header::length(0, &Strands::default())
        {
            return Err(Error::config(format!(
                "a step log of {} bytes cannot have segments of {}: at most an eighth, and room for a header",
                limits.max_bytes, limits.segment_bytes
            )));
        }
        let files = Files::lock(directory, disk)?;
        let (recovered, recovery) = recovery::recover(&files, begin, ids, limits.strands())?;
        if let Some(cut) = &recovery.cut {
            tracing::warn!(file = %cut.file.display(), offset = cut.offset, bytes = cut.bytes, "a write that never became durable was cut off the step log");
        }
        let (id, strands) = (recovered.id, recovered.strands.clone());
        let writer = Writer::new(files, limits, recovered);
        let layout = writer.layout();
        let (requests, received) = mpsc::channel(QUEUE);
        let writer = std::thread::Builder::new()
            .name("steplog".into())
            .spawn(move || writer.run(received))
            .map_err(|e| Error::unavailable("no thread for the step log").with_source(e))?;
        let units = u32::try_from((limits.queue_bytes / UNIT).max(1)).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(units as usize));
        let directory = directory.to_path_buf();
        Ok((Self { directory, id, strands, requests, room, units, layout, writer }, recovery))
    }

    /// What tells this log from every other: drawn when it began.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Of which strands its steps are: each opening draws one for those that it appends. Steps of a log that was restored to
    /// an earlier state are so told from those that it lost.
    pub fn strands(&self) -> &Strands {
        &self.strands
    }

    /// Stores an entry; waits until it is durable.
    ///
    /// Unavailable: the disk failed or is full. The same entry may be sent again.
    pub async fn append(&self, entry: Entry) -> Result<Answer> {
        self.ask(entry).await?.await.map_err(|_| self.ended())?
    }

    /// The same for entries that follow each other: none waits for the answer to the one before, so that one sync serves many.
    pub async fn append_all(&self, entries: impl IntoIterator<Item = Entry>) -> Vec<Result<Answer>> {
        let mut asked = Vec::new();
        for entry in entries {
            asked.push(self.ask(entry).await);
        }
        let mut answers = Vec::with_capacity(asked.len());
        for answer in asked {
            answers.push(match answer {
                Ok(answer) => answer.await.unwrap_or_else(|_| Err(self.ended())),
                Err(error) => Err(error),
            });
        }
        answers
    }

    /// Asks the writer for an entry; it answers when that is decided.
    async fn ask(&self, entry: Entry) -> Result<oneshot::Receiver<Result<Answer>>> {
        let units = u32::try_from(entry.bytes() / UNIT + 1).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await.map_err(|_| self.ended())?;
        let (reply, answer) = oneshot::channel();
        let append = Append { entry, reply, _room: room };
        self.requests.send(Request::Append(append)).await.map_err(|_| self.ended())?;
        Ok(answer)
    }

    /// Whoever needs the log needs nothing up to `up_to`: whole segments below go.
    pub async fn release(&self, up_to: Step) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Release(up_to, reply)).await.map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// The steps after `after`, from the first one that is held.
    pub fn read(&self, after: Step) -> Reader {
        Reader { directory: self.directory.clone(), layout: self.layout.clone(), frames: None, last: after }
    }

    /// Where the log stands.
    pub fn stand(&self) -> Stand {
        let layout = self.layout.borrow();
        Stand { earliest: layout.earliest(), last: layout.last, bytes: layout.bytes }
    }

    /// Ends the log when everything asked for is done, and lets another process have it.
    pub async fn close(self) -> Result<()> {
        drop(self.requests);
        let ended = tokio::task::spawn_blocking(move || self.writer.join()).await;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => Err(Error::internal(format!("the step log's writer panicked: {}", panic_text(&*panic)))),
            Err(e) => Err(Error::internal("nobody waited for the step log's writer").with_source(e)),
        }
    }

    fn ended(&self) -> Error {
        Error::internal(format!("the step log {} has ended; open it again", self.directory.display()))
    }
}
