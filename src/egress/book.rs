//! What a stream must not forget: which generation it is, of which source, and how far its client is.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use twox_hash::XxHash3_64;

use super::chunk::Fault;
use super::teller::Sent;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::explain::code;
use crate::generation::Generation;
use crate::schema::View;
use crate::state_file::StateFile;
use crate::step::Step;
use crate::strand::Strand;

/// A generation, and how far it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// A number of its source's own for the first one, one more for each reset, and more by such a number for another source.
    pub generation: Generation,
    /// The fingerprint of its source.
    pub source: String,
    /// The columns of its view, as text.
    pub columns: String,
    /// The source's last step when it began.
    pub begun: Step,
    /// The reset that began it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<String>,
    /// What the client has said to have; `None` until it said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// How far a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// It has the view at this step.
    pub step: Step,
    /// The number of the chunk by which it has.
    pub sequence_number: u64,
    /// What tells the step from others of its number, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strand: Option<Strand>,
}

impl Page {
    /// The step up to which nothing is needed any more.
    pub fn needless(&self) -> Step {
        self.place.map_or(self.begun, |place| place.step)
    }

    /// Whether it is of this source and these columns; otherwise its steps mean nothing there.
    pub fn is_of(&self, source: &str, view: &View) -> bool {
        self.source == source && self.columns == shown(view)
    }
}

/// The durable state of the streams of a view, or of one connector of it; nobody else writes the file.
#[derive(Debug)]
pub struct Book {
    file: StateFile<Page>,
    page: watch::Sender<Option<Page>>,
    /// Held by who writes.
    writing: Mutex<()>,
    /// The number of the last stream that took the place of those before it.
    session: watch::Sender<u64>,
    sent: Arc<Sent>,
    open: AtomicU64,
}

/// One stream that is open; dropped, it is not.
#[derive(Debug)]
pub struct Session {
    book: Arc<Book>,
    number: u64,
    last: watch::Receiver<u64>,
}

impl Session {
    /// Completes when another one took its place.
    pub async fn is_replaced(&mut self) {
        let number = self.number;
        // The book is there as long as this is.
        let _ = self.last.wait_for(|last| *last > number).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.book.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Book {
    /// The file `path`, and what it holds; there is none before something is written.
    ///
    /// Corrupt: it holds something else.
    pub fn open(path: PathBuf, disk: Arc<dyn Disk>) -> Result<Self> {
        let removed = ": then its streams begin anew, by a generation that was there before";
        let (file, page) = StateFile::open(&path, disk, removed)?;
        let (page, session) = (watch::Sender::new(page), watch::Sender::new(0));
        Ok(Self { file, page, writing: Mutex::default(), session, sent: Arc::default(), open: AtomicU64::new(0) })
    }

    /// The current generation, as it changes; `None` before the first one.
    pub fn page(&self) -> watch::Receiver<Option<Page>> {
        self.page.subscribe()
    }

    /// The current generation; `None` before the first one.
    pub fn current(&self) -> Option<Page> {
        self.page.borrow().clone()
    }

    /// The generation that the next reset begins.
    pub fn next(&self, source: &str) -> Result<Generation> {
        following(self.current().as_ref(), source)
    }

    /// What was sent since the start of the process.
    pub fn sent(&self) -> &Arc<Sent> {
        &self.sent
    }

    /// How many streams are open.
    pub fn streams(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// A stream beside the others.
    pub fn join(self: &Arc<Self>) -> Session {
        self.open.fetch_add(1, Ordering::Relaxed);
        Session { book: Arc::clone(self), number: u64::MAX, last: self.session.subscribe() }
    }

    /// A stream that takes the place of the others.
    pub fn take_over(self: &Arc<Self>) -> Session {
        let mut number = 0;
        self.session.send_modify(|last| {
            *last += 1;
            number = *last;
        });
        let mut session = self.join();
        session.number = number;
        session
    }

    /// The generation of this source: the current one, or the next, which is durable then and begins at `step`.
    pub async fn settle(self: &Arc<Self>, source: &str, view: &View, step: Step) -> Result<Page> {
        let (source, columns) = (source.to_owned(), shown(view));
        self.change(move |page| settled(page, source, columns, step)).await
    }

    /// The same for one for whom nothing is kept. Where it cannot be written, it is not: its number follows from what is
    /// written and from the source, so it is the same another time.
    pub async fn settle_or_tell(self: &Arc<Self>, source: &str, view: &View, step: Step) -> Result<Page> {
        match self.settle(source, view, step).await {
            Err(e) if e.kind() == ErrorKind::Unavailable => {
                tracing::warn!(event = "egress_unwritten", error = %e, "the generation of a view's streams is told, and not written down");
                let (before, columns) = (self.current(), shown(view));
                let page = settled(before.clone(), source.to_owned(), columns, step)?;
                page.or(before).ok_or(e)
            }
            settled => settled,
        }
    }

    /// Ends `generation`, because whoever has a state of before `step` cannot come to the one after it by changes.
    pub async fn outdate(self: &Arc<Self>, generation: Generation, view: &View, step: Step) -> Result<()> {
        let columns = shown(view);
        let outdated = self.change(move |page| match page {
            Some(page) if page.generation == generation && page.begun < step => {
                let source = page.source.clone();
                after(Some(page), source, columns, step).map(Some)
            }
            _ => Ok(None),
        });
        outdated.await.map(drop)
    }

    /// The next generation, made by the reset `id`; durable when this returns.
    pub async fn reset(self: &Arc<Self>, source: &str, view: &View, step: Step, id: &str) -> Result<Page> {
        let (source, columns, reset) = (source.to_owned(), shown(view), Some(id.to_owned()));
        self.change(move |page| Ok(Some(Page { reset, ..after(page, source, columns, step)? }))).await
    }

    /// The client has the view at a step of this generation; durable when this returns. It does not go back.
    ///
    /// A fault: the generation is another.
    pub async fn acknowledge(self: &Arc<Self>, generation: Generation, place: Place) -> Result<Result<Page, Fault>> {
        let acknowledged = self.change(move |page| {
            let Some(page) = page.filter(|page| page.generation == generation) else { return Ok(None) };
            let is_ahead = page.place.is_none_or(|before| before.step < place.step) && place.step >= page.begun;
            Ok(is_ahead.then_some(Page { place: Some(place), ..page }))
        });
        let page = acknowledged.await?;
        Ok(if page.generation == generation { Ok(page) } else { Err(other_generation(generation, page.generation)) })
    }

    /// Writes what `change` makes of the page, unless it makes nothing; the page afterwards.
    async fn change(
        self: &Arc<Self>,
        change: impl FnOnce(Option<Page>) -> Result<Option<Page>> + Send + 'static,
    ) -> Result<Page> {
        let book = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || {
            let _writing = book.writing.lock().unwrap_or_else(PoisonError::into_inner);
            let before = book.current();
            if let Some(page) = change(before.clone())? {
                book.file.write(&page)?;
                book.page.send_replace(Some(page.clone()));
                return Ok(page);
            }
            before.ok_or_else(|| Error::unavailable("the stream has no generation yet; ask again"))
        });
        changed.await.map_err(|e| Error::internal("the book of a stream was not written").with_source(e))?
    }
}

/// The number of a source's first generation. Where a book and all that it was about were removed, another history of the
/// view must not be taken for the one that a client knows.
fn first(source: &str) -> Result<Generation> {
    const NUMBERS: u64 = 1_000_000_000;
    Generation::new(1 + XxHash3_64::oneshot(source.as_bytes()) % NUMBERS)
}

/// The number of the generation after `page`, of `source`. Another source's is a number of its own: two that follow the same
/// page, as it was kept in a copy, are told apart.
fn following(page: Option<&Page>, source: &str) -> Result<Generation> {
    let own = first(source)?;
    match page {
        None => Ok(own),
        Some(page) if page.source == source => page.generation.next(),
        Some(page) => Generation::new(page.generation.get().saturating_add(own.get())),
    }
}

/// The generation of `source` after `page`; `None` where that is the one.
fn settled(page: Option<Page>, source: String, columns: String, begun: Step) -> Result<Option<Page>> {
    match page {
        Some(page) if page.source == source => Ok(None),
        page => after(page, source, columns, begun).map(Some),
    }
}

/// The generation after the one of `page`.
fn after(page: Option<Page>, source: String, columns: String, begun: Step) -> Result<Page> {
    let generation = following(page.as_ref(), &source)?;
    Ok(Page { generation, source, columns, begun, reset: None, place: None })
}

/// The generation asked for is not the current one.
pub fn other_generation(asked: Generation, current: Generation) -> Fault {
    let said = format!(
        "generation {asked} is over, or never was: the current one is {current}; ask again without a generation, and begin anew"
    );
    Fault::new(code!("generation_gone"), said).with("generation", current.get()).with("asked", asked.get())
}

/// What two views that hold the same rows have in common.
fn shown(view: &View) -> String {
    let columns = view.schema().fields().iter().map(|f| format!("{:?} {}", f.name(), f.data_type()));
    format!("{}; key {:?}", columns.collect::<Vec<_>>().join(", "), view.key())
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
