//! What happens in a daemon, as a numbered list: durable, bounded, read by whoever wants to follow it.
//!
//! ```text
//!   tell ──► queue ──► recorder: writes, then numbers count ──► the last thousands, read from any number on
//! ```
//!
//! Nobody who tells waits. What does not fit into the queue is counted and told as lost; what has left the list is named to
//! who asks for it.

mod event;
mod recorder;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::event::{About, Draft, Event, Kind};
use self::recorder::Recorder;
use crate::clock::{Clock, World};
use crate::error::{Error, Result};

/// The file in the data directory.
const FILE: &str = "events.jsonl";
/// How many events are kept.
const KEPT: usize = 10_000;
/// How long it may take at the end to write down what waits.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How many wait to be written down.
const QUEUE: usize = 1024;

/// The list of events. Dropped without [`Events::close`], it may forget what was told last.
pub struct Events {
    drafts: mpsc::Sender<Draft>,
    /// How many did not fit into the queue.
    lost: Arc<AtomicU64>,
    list: Arc<List>,
    closing: watch::Sender<bool>,
    recorder: Mutex<Option<JoinHandle<()>>>,
    clock: Arc<dyn Clock>,
}

/// What is written down.
struct List {
    kept: RwLock<VecDeque<Arc<Event>>>,
    /// The id of the last event.
    last: watch::Sender<u64>,
}

/// What follows an event.
#[derive(Debug, Clone, Default)]
pub struct Following {
    /// Where what followed is gone: the first event that is kept, or would be the next.
    pub gone: Option<u64>,
    /// The first of those that are kept, in order.
    pub events: Vec<Arc<Event>>,
}

impl Events {
    /// The list that is kept in `directory`, where this process alone writes; within a Tokio runtime.
    ///
    /// A damaged file is set aside, and told of. Config: the file cannot be used.
    pub fn open(directory: &Path, world: &World) -> Result<Arc<Self>> {
        let lost = Arc::new(AtomicU64::new(0));
        let list = Arc::new(List { kept: RwLock::default(), last: watch::Sender::new(0) });
        let recorder = Recorder::open(directory, Arc::clone(&list), Arc::clone(&lost), world.clone())?;
        let (drafts, received) = mpsc::channel(QUEUE);
        let closing = watch::Sender::new(false);
        let recorder = tokio::spawn(recorder.run(received, closing.subscribe()));
        let (recorder, clock) = (Mutex::new(Some(recorder)), Arc::clone(&world.clock));
        Ok(Arc::new(Self { drafts, lost, list, closing, recorder, clock }))
    }

    /// Has `draft` written down; it counts when it is durable, and as lost where too many wait.
    pub fn tell(&self, draft: Draft) {
        if self.drafts.try_send(draft).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// At most `most` of the events after the one numbered `id`.
    pub fn after(&self, id: u64, most: usize) -> Following {
        let kept = self.list.read();
        let last = *self.list.last.borrow();
        let first = kept.front().map_or(last + 1, |event| event.id);
        if id > last || id + 1 < first {
            return Following { gone: Some(first), events: Vec::new() };
        }
        let from = kept.partition_point(|event| event.id <= id);
        Following { gone: None, events: kept.iter().skip(from).take(most).cloned().collect() }
    }

    /// The last `most` events for which `is_wanted` holds, the newest first.
    pub fn newest(&self, most: usize, is_wanted: impl Fn(&Event) -> bool) -> Vec<Arc<Event>> {
        self.list.read().iter().rev().filter(|event| is_wanted(event)).take(most).cloned().collect()
    }

    /// The id of the last event, as it grows.
    pub fn last(&self) -> watch::Receiver<u64> {
        self.list.last.subscribe()
    }

    /// Writes down what waits, and ends. What is told later is lost.
    ///
    /// Unavailable: the disk does not answer.
    pub async fn close(&self) -> Result<()> {
        self.closing.send_replace(true);
        let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(recorder) = recorder else { return Ok(()) };
        tokio::select! {
            ended = recorder => {
                ended.map_err(|e| Error::internal("the events were not written to their end").with_source(e))
            }
            () = self.clock.deadline(LAST_WORDS) => {
                Err(Error::unavailable("what happened last is not among the events: their disk does not answer"))
            }
        }
    }
}

impl List {
    fn read(&self) -> std::sync::RwLockReadGuard<'_, VecDeque<Arc<Event>>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds events that are durable.
    fn add(&self, events: Vec<Event>) {
        let Some(last) = events.last().map(|event| event.id) else { return };
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        kept.extend(events.into_iter().map(Arc::new));
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        // Who sees the number finds the event, and who looks without it finds what the number says.
        self.last.send_replace(last);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("last", &*self.list.last.borrow()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
