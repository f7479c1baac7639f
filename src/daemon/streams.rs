//! The streams of a daemon's views: who may have one, where it begins, and what ends it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::build;
use super::directory::DataDirectory;
use super::member::Member;
use super::views::LoggedView;
use crate::clock::{Clock, World};
use crate::config::{ConnectorConfig, SourceConfig, ViewConfig};
use crate::connector::{Phase, Status};
use crate::continuity::stamp::Mode;
use crate::disk::FileSystem;
use crate::egress::{
    Begin, Book, Bounds, End, Fault, Format, Page, Place, Reason, Session, Settings, Stream, other_generation,
};
use crate::error::{Error, ErrorKind, Result};
use crate::explain::code;
use crate::generation::Generation;
use crate::schema::View;
use crate::source::Source;
use crate::step::Step;

/// How long it is waited for a connector that starts.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How long it is waited until streams have let go of a view.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// The most streams of a view; the server has fewer in all.
const MOST: u32 = 1 << 20;

/// A call for a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRequest {
    /// What is wanted; `None`: what the connector has, or a snapshot and what follows.
    pub mode: Option<Mode>,
    /// How it is written.
    pub format: Format,
    /// What the caller has.
    pub resume: Option<(Generation, Place)>,
    /// The connector whose client the caller is.
    pub connector: Option<String>,
    /// What chunks aim at, and how long the caller may take nothing.
    pub bounds: Bounds,
}

/// Why there is no stream.
#[derive(Debug)]
pub enum EgressRefusal {
    /// The view has no connector of this name.
    NoConnector(String),
    /// What the caller has leads nowhere: it begins anew, or somebody resets the connector.
    Gone(Fault),
    /// The connector's state, or what it is, forbids it.
    Conflict(Fault),
    /// There is no snapshot to send.
    NoSnapshot(String),
    /// Another error, by its kind.
    Failed(Error),
}

impl From<Error> for EgressRefusal {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The streams of one view.
pub(super) struct Streams {
    config: ViewConfig,
    pushed: Option<Arc<LoggedView>>,
    /// Of those that are no connector's.
    book: Result<Arc<Book>>,
    /// Whether they are to end.
    ends: watch::Sender<bool>,
    open: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
}

impl Streams {
    /// Those of the view `config`, which has none yet.
    pub(super) fn open(
        config: ViewConfig,
        pushed: Option<Arc<LoggedView>>,
        directory: &DataDirectory,
        world: &World,
    ) -> Self {
        let path = directory.egress(&config.pipeline, &config.name);
        let book = path.and_then(|path| Book::open(path, Arc::new(FileSystem))).map(Arc::new).inspect_err(|e| {
            tracing::error!(event = "egress_failed", pipeline = config.pipeline, view = config.name, error = %e, "a view has no streams");
        });
        let (ends, open) = (watch::Sender::new(false), Arc::new(Semaphore::new(MOST as usize)));
        Self { config, pushed, book, ends, open, clock: Arc::clone(&world.clock) }
    }

    /// How many are open that are no connector's.
    pub(super) fn count(&self) -> u64 {
        self.book.as_ref().map_or(0, |book| book.streams())
    }

    /// A stream for whoever is no connector's client.
    pub(super) async fn anonymous(&self, request: &EgressRequest) -> Result<Outflow, EgressRefusal> {
        let permit = self.admit()?;
        let book = self.book.as_ref().map_err(|e| Error::new(e.kind(), e.message()))?;
        let mut source = self.source(None).await?;
        let begin = match (request.resume, request.mode.unwrap_or(Mode::SnapshotAndFollow)) {
            (Some(_), Mode::Snapshot) => return Err(EgressRefusal::Conflict(nothing_to_resume())),
            (Some((_, place)), _) => Begin::After(place.step),
            (None, Mode::Snapshot) => Begin::Snapshot,
            (None, Mode::SnapshotAndFollow) => Begin::SnapshotAndFollow,
            (None, Mode::Follow) => Begin::After(source.position().await?.latest.unwrap_or(Step::ZERO)),
        };
        check_snapshot(&*source, begin)?;
        let at = if let Begin::After(step) = begin { step } else { Step::ZERO };
        let view = source.view(at).await?;
        let page = book.settle_or_tell(source.fingerprint(), &view, Step::ZERO).await?;
        let sequence_number = check_resume(request.resume, &page, &mut *source, &self.config.name).await?;
        let guide = Guide { ends: self.ends.subscribe(), client: None };
        Ok(self.outflow(book, (source, view), request, (page.generation, begin, sequence_number), guide, permit))
    }

    /// A stream for the client of the connector `member`; it takes the place of an earlier one.
    pub(super) async fn of_connector(
        &self,
        member: &Member,
        request: &EgressRequest,
    ) -> Result<Outflow, EgressRefusal> {
        let permit = self.admit()?;
        let (book, config, page) = self.ready(member).await?;
        if let Some(mode) = request.mode.filter(|mode| *mode != config.mode) {
            let said = format!("the mode of {} is {}, not {mode}; leave it out", config.name, config.mode);
            return Err(EgressRefusal::Conflict(
                Fault::new(code!("mode_differs"), said).with("mode", config.mode.to_string()),
            ));
        }
        if config.mode == Mode::Snapshot && request.resume.is_some() {
            return Err(EgressRefusal::Conflict(nothing_to_resume()));
        }
        let mut source = self.source(Some(config)).await?;
        let sequence_number = check_resume(request.resume, &page, &mut *source, &config.name.to_string()).await?;
        let page = match request.resume {
            Some((generation, place)) => {
                let place = told(place, &*source);
                match book.acknowledge(generation, place).await {
                    // It may read, and says again what it has when it resumes the next time.
                    Err(e) if e.kind() == ErrorKind::Unavailable => {
                        tracing::warn!(event = "egress_unwritten", connector = %config.name, error = %e, "what a client has is not written down");
                        page
                    }
                    acknowledged => acknowledged?.map_err(EgressRefusal::Gone)?,
                }
            }
            None => page,
        };
        let (begin, sequence_number) = match (request.resume, page.place, config.mode) {
            (Some((_, place)), _, _) => (Begin::After(place.step), sequence_number),
            (None, Some(place), Mode::SnapshotAndFollow | Mode::Follow) => {
                (Begin::After(place.step), place.sequence_number)
            }
            (None, None, Mode::Follow) => (Begin::After(page.begun), 0),
            (None, None, Mode::SnapshotAndFollow) => (Begin::SnapshotAndFollow, 0),
            (None, _, Mode::Snapshot) => (Begin::Snapshot, 0),
        };
        check_snapshot(&*source, begin)?;
        let at = if let Begin::After(step) = begin { step } else { page.begun };
        let view = source.view(at).await?;
        if !page.is_of(source.fingerprint(), &view) {
            let said =
                format!("the view of {} is another than that of its generation; reset the connector", config.name);
            return Err(EgressRefusal::Gone(Fault::new(CONTINUITY_LOST, said)));
        }
        let (status, session) = (member.status()?, book.take_over());
        let client = Client { name: config.name.to_string(), pages: book.page(), status, session };
        let guide = Guide { ends: self.ends.subscribe(), client: Some(client) };
        Ok(self.outflow(book, (source, view), request, (page.generation, begin, sequence_number), guide, permit))
    }

    /// The client of a connector says what it has, without a stream.
    pub(super) async fn acknowledge(
        &self,
        member: &Member,
        generation: Generation,
        place: Place,
    ) -> Result<Page, EgressRefusal> {
        let _permit = self.admit()?;
        let (book, config, page) = self.started(member).await?;
        let mut source = self.source(Some(config)).await?;
        check_resume(Some((generation, place)), &page, &mut *source, &config.name.to_string()).await?;
        let page = book.acknowledge(generation, told(place, &*source)).await?.map_err(EgressRefusal::Gone)?;
        if config.mode != Mode::Snapshot {
            // One that is paused does not look at its place.
            source.acknowledge(page.needless()).await?;
        }
        Ok(page)
    }

    /// Ends all streams, and waits until they have let go of the view.
    pub(super) async fn close(&self) {
        self.ends.send_replace(true);
        tokio::select! {
            closed = self.open.acquire_many(MOST) => drop(closed),
            () = self.clock.deadline(CLOSE_PATIENCE) => {
                tracing::warn!(event = "streams_left", view = self.config.name, "streams that did not end in time were left");
            }
        }
        self.open.close();
    }

    fn admit(&self) -> Result<OwnedSemaphorePermit> {
        let view = &self.config.name;
        let closed = |_| Error::unavailable(format!("the view {view} is being closed; ask again"));
        Arc::clone(&self.open).try_acquire_owned().map_err(closed)
    }

    /// What a connector's streams need, once it has started, whatever it does.
    async fn started<'m>(
        &self,
        member: &'m Member,
    ) -> Result<(&'m Arc<Book>, &'m ConnectorConfig, Page), EgressRefusal> {
        let name = member.config.name.to_string();
        let Some(book) = member.book() else {
            let said = format!("{name} delivers to a table, and has no stream; ask for one without a connector");
            return Err(EgressRefusal::Conflict(Fault::new(code!("no_stream"), said)));
        };
        let mut status = member.status()?;
        tokio::select! {
            _ = status.wait_for(|status| status.phase != Phase::Starting) => {}
            () = self.clock.deadline(START_PATIENCE) => {}
        }
        let status = status.borrow().clone();
        if let Some(end @ End::Fault(_)) = end_of(&name, &status) {
            return Err(refusal(&name, end));
        }
        let page = book.current().ok_or_else(|| Error::unavailable(format!("{name} is starting; ask again")))?;
        Ok((book, &member.config, page))
    }

    /// The same, of one that may send.
    async fn ready<'m>(&self, member: &'m Member) -> Result<(&'m Arc<Book>, &'m ConnectorConfig, Page), EgressRefusal> {
        let started = self.started(member).await?;
        let name = member.config.name.to_string();
        let status = member.status()?.borrow().clone();
        if let Some(end) = end_of(&name, &status) {
            return Err(refusal(&name, end));
        }
        Ok(started)
    }

    async fn source(&self, connector: Option<&ConnectorConfig>) -> Result<Box<dyn Source>> {
        let ViewConfig { name, key, columns, .. } = &self.config;
        match (&self.config.source, &self.pushed) {
            (SourceConfig::Files(files), _) => build::files_source(name, key, columns, files),
            (SourceConfig::Push | SourceConfig::Postgres(_), Some(view)) => view.reader(connector).await,
            (SourceConfig::Push | SourceConfig::Postgres(_), None) => {
                Err(Error::internal(format!("the view {name} was not opened")))
            }
        }
    }

    fn outflow(
        &self,
        book: &Arc<Book>,
        (source, view): (Box<dyn Source>, View),
        request: &EgressRequest,
        (generation, begin, sequence_number): (Generation, Begin, u64),
        guide: Guide,
        permit: OwnedSemaphorePermit,
    ) -> Outflow {
        let poll_interval = match &self.config.source {
            SourceConfig::Files(files) => files.poll_interval,
            // It tells when there is more.
            SourceConfig::Push | SourceConfig::Postgres(_) => Duration::from_secs(1),
        };
        let stream = Stream::new(Settings {
            source,
            view,
            format: request.format,
            begin,
            generation,
            sequence_number,
            poll_interval,
            bounds: request.bounds,
            sent: Arc::clone(book.sent()),
            clock: Arc::clone(&self.clock),
        });
        let open = guide.client.is_none().then(|| book.join());
        Outflow { stream, guide, book: Arc::clone(book), open, permit }
    }
}

const CONTINUITY_LOST: &str = code!("continuity_lost");

fn nothing_to_resume() -> Fault {
    Fault::new(
        code!("nothing_to_resume"),
        "mode snapshot sends the whole state and nothing after it; leave generation and step out",
    )
}

fn check_snapshot(source: &dyn Source, begin: Begin) -> Result<(), EgressRefusal> {
    match begin {
        Begin::After(_) => Ok(()),
        Begin::Snapshot | Begin::SnapshotAndFollow => {
            source.check_snapshots().map_err(|e| EgressRefusal::NoSnapshot(e.message().to_string()))
        }
    }
}

/// Whether changes lead on from what the caller has; the number of the last chunk that it has.
async fn check_resume(
    resume: Option<(Generation, Place)>,
    page: &Page,
    source: &mut dyn Source,
    name: &str,
) -> Result<u64, EgressRefusal> {
    let Some((generation, place)) = resume else { return Ok(0) };
    if generation != page.generation {
        return Err(EgressRefusal::Gone(other_generation(generation, page.generation)));
    }
    let position = source.position().await?;
    let (step, latest, held) = (place.step, position.latest.unwrap_or(Step::ZERO), position.held_from());
    let fault = if step > latest {
        let said = format!(
            "step {step} is beyond the last one of {name}, which is {latest}: it lost steps, or never had them; ask again without a generation, and begin anew"
        );
        Fault::new(code!("step_beyond"), said).with("last_step", latest.get())
    } else if step < held {
        let said = format!(
            "changes after step {step} are gone, {name} holds those after step {held}; ask again without a generation, and begin anew"
        );
        Fault::new(code!("step_gone"), said).with("earliest_step", held.get())
    } else if let Some(strand) = place.strand
        && let own = source.strands().at(step)
        && own != Some(strand)
    {
        let why = match own {
            Some(_) => "lost the one that you have, and gave its number again",
            None => "cannot tell whether it is the one that you have",
        };
        let said =
            format!("step {step} is of another strand: {name} {why}; ask again without a generation, and begin anew");
        Fault::new(code!("other_strand"), said).with("strand", own.map(|own| own.to_string()))
    } else {
        return Ok(place.sequence_number);
    };
    Err(EgressRefusal::Gone(fault.with("generation", page.generation.get())))
}

/// The place with what tells its step from others of its number, which the source has.
fn told(place: Place, source: &dyn Source) -> Place {
    Place { strand: source.strands().at(place.step), ..place }
}

/// How streams of a connector end when it is so; `None` where they go on.
fn end_of(name: &str, status: &Status) -> Option<End> {
    let fault = |code: &'static str| {
        let why = status.trouble.as_ref().map_or("see its status", |trouble| trouble.reason.as_str());
        Some(End::Fault(Fault::new(code, format!("{name} is {}: {why}", status.phase))))
    };
    match status.phase {
        Phase::Starting | Phase::Snapshotting | Phase::CatchingUp | Phase::Following | Phase::Retrying => None,
        Phase::Paused => Some(End::Close(Reason::Paused)),
        Phase::Completed => Some(End::Close(Reason::Complete)),
        Phase::Stopped => Some(End::Close(Reason::Stopped)),
        Phase::ContinuityLost | Phase::BreakerOpen => fault(CONTINUITY_LOST),
        Phase::Fenced | Phase::Failed => fault(code!("failed")),
    }
}

/// What is said to who asks for a stream of the connector `name` when those that it has end so.
fn refusal(name: &str, end: End) -> EgressRefusal {
    match end {
        End::Fault(fault) if fault.error_code == CONTINUITY_LOST => EgressRefusal::Gone(fault),
        End::Fault(fault) => EgressRefusal::Conflict(fault),
        End::Close(Reason::Paused) => {
            let said = format!("{name} is paused, and keeps its place; resume it");
            EgressRefusal::Conflict(Fault::new(code!("paused"), said))
        }
        End::Close(Reason::Complete) => {
            let said = format!("the snapshot of {name} was sent, and its client said to have it; reset it for another");
            EgressRefusal::Conflict(Fault::new(code!("completed"), said))
        }
        End::Close(Reason::Stopped) | End::Left => {
            EgressRefusal::Failed(Error::unavailable(format!("{name} is being stopped; ask again")))
        }
    }
}

/// What tells a stream to end, or to begin another generation.
struct Guide {
    ends: watch::Receiver<bool>,
    client: Option<Client>,
}

/// Whose stream it is, where it is a connector's.
struct Client {
    name: String,
    pages: watch::Receiver<Option<Page>>,
    status: watch::Receiver<Status>,
    session: Session,
}

enum Order {
    Begin(Generation),
    End(End),
}

impl Guide {
    /// Completes when a stream of `generation` is not to go on as it is.
    async fn order(&mut self, generation: Generation) -> Order {
        let stopped = Order::End(End::Close(Reason::Stopped));
        let Some(Client { name, pages, status, session }) = &mut self.client else {
            // Whoever ends them is gone only when they have ended.
            let _ = self.ends.wait_for(|ends| *ends).await;
            return stopped;
        };
        let is_other = |page: &Option<Page>| page.as_ref().is_some_and(|page| page.generation > generation);
        tokio::select! {
            biased;
            () = session.is_replaced() => {
                let said = format!("another client of {name} took over; there is one stream of a connector");
                Order::End(End::Fault(Fault::new(code!("taken_over"), said)))
            }
            _ = self.ends.wait_for(|ends| *ends) => stopped,
            ended = status.wait_for(|status| end_of(name, status).is_some()) => {
                ended.ok().and_then(|status| end_of(name, &status)).map_or(stopped, Order::End)
            }
            page = pages.wait_for(is_other) => {
                page.ok().and_then(|page| page.as_ref().map(|p| p.generation)).map_or(stopped, Order::Begin)
            }
        }
    }
}

/// A stream that may begin.
pub struct Outflow {
    stream: Stream,
    guide: Guide,
    book: Arc<Book>,
    open: Option<Session>,
    /// Held until the source is let go of.
    permit: OwnedSemaphorePermit,
}

impl Outflow {
    /// Sends chunks to `out` until the stream ends, by itself or because `stopped` completes; the last bytes, which say why.
    pub async fn run(self, out: mpsc::Sender<Bytes>, stopped: impl Future<Output = ()>) -> Option<Bytes> {
        // Should this be dropped, the source goes before the permit.
        let Self { permit, open, book, mut guide, mut stream } = self;
        let mut stopped = pin!(stopped);
        let end = loop {
            let generation = stream.generation();
            let order = tokio::select! {
                biased;
                order = guide.order(generation) => order,
                () = &mut stopped => Order::End(End::Close(Reason::Stopped)),
                end = stream.run(&out) => Order::End(end),
            };
            match order {
                Order::Begin(generation) => stream.begin(generation),
                Order::End(end) => break end,
            }
        };
        if let Some((generation, view, step)) = stream.outdated()
            && guide.client.is_none()
            && let Err(error) = book.outdate(generation, &view, step).await
        {
            tracing::warn!(event = "egress_failed", error = %error, "that a generation is over is not written down");
        }
        let last = stream.last(&end);
        drop((open, permit));
        last
    }
}

impl std::fmt::Debug for Outflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outflow").field("stream", &self.stream).finish_non_exhaustive()
    }
}
