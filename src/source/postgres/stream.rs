//! The one that reads a slot: meets the server, brings transactions to the step logs, and tells the server what is safe.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use futures::future::{join_all, select_all};
use tokio::sync::{mpsc, oneshot, watch};

use super::assembly::{Assembly, Done, Track};
use super::catalog::{Table, view_of};
use super::evidence::{Boundary, Evidence, EvidenceFile, Followed};
use super::feed::{Contact, Shared, Told};
use super::meeting::Meeting;
use super::message::Lsn;
use super::replication::{Frame, Replication};
use super::shelf::{Shelf, Trouble};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::source::rows::blocking;
use crate::step::Step;
use crate::steplog::{Answer, At, Entry};

/// How long is waited before the server is met again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the server is told what is safe: when that is more than before, and in any case.
const CONFIRM: Duration = Duration::from_secs(1);
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// After so long without a word from the server the connection is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// How often it is looked at what the slot keeps.
const LOOK: Duration = Duration::from_secs(10);
/// What is brought to the logs at once: transactions, and the bytes that they take in memory.
const ROUND: usize = 256;
const ROUND_BYTES: usize = 16 << 20;
/// How many steps are appended at once: as many as [`join_all`] polls in their order, in which the log gets them.
const AT_ONCE: usize = 30;
/// Between 1970 and 2000, in microseconds.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// What the one that reads is asked for.
pub(super) enum Request {
    /// Whoever is reset begins anew: what was lost of a view is given up, and it is followed from here on.
    Renew(String, oneshot::Sender<Result<()>>),
}

/// How reading ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody wants more.
    Stopped,
    /// It begins again, with what is different.
    Again,
}

pub(super) struct Stream {
    shared: Arc<Shared>,
    told: watch::Sender<Told>,
    file: Arc<EvidenceFile>,
    evidence: Option<Evidence>,
    requests: mpsc::Receiver<Request>,
}

/// Transactions that go to the logs together.
#[derive(Default)]
struct Round {
    done: Vec<Done>,
    bytes: usize,
}

impl Round {
    fn push(&mut self, done: Done) {
        self.bytes += done.parts.iter().flat_map(|(_, batches)| batches).map(RecordBatch::get_array_memory_size).sum::<usize>();
        self.done.push(done);
    }

    fn is_enough(&self) -> bool {
        self.done.len() >= ROUND || self.bytes >= ROUND_BYTES
    }
}

impl Stream {
    pub(super) fn new(
        shared: Arc<Shared>,
        told: watch::Sender<Told>,
        file: EvidenceFile,
        evidence: Option<Evidence>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        Self { shared, told, file: Arc::new(file), evidence, requests }
    }

    /// Reads until nobody wants more.
    pub(super) async fn run(mut self) {
        self.open_logs().await;
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = self.now();
            let ended = self.session().await;
            if self.now().saturating_sub(begun) > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            let wait = match ended {
                Ok(End::Stopped) => return,
                Ok(End::Again) => continue,
                Err(e) if e.kind() == ErrorKind::ContinuityLost => {
                    tracing::error!(event = "source_lost", slot = self.shared.slot, error = %e, "a slot is not read any more");
                    self.told.send_modify(|told| told.contact = Contact::Lost(Trouble::of(&e)));
                    None
                }
                Err(e) => {
                    tracing::warn!(event = "source_away", slot = self.shared.slot, error = %crate::error::with_causes(&e), "the server is met again in {pause:?}");
                    self.told.send_modify(|told| told.contact = Contact::Away(Trouble::of(&e)));
                    Some(pause)
                }
            };
            if self.rest(wait).await == End::Stopped {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn now(&self) -> Duration {
        self.shared.world.clock.boot()
    }

    /// Opens what was read before, so that connectors go on with it while the server is not there.
    async fn open_logs(&mut self) {
        let Some(evidence) = &self.evidence else { return };
        for shelf in &self.shared.shelves {
            let Some(followed) = evidence.views.get(shelf.view()) else { continue };
            shelf.state.send_modify(|state| state.key = followed.key.clone().into());
            if let Err(e) = shelf.open(&followed.log, followed.complete_to).await {
                shelf.state.send_modify(|state| state.trouble = Some(Trouble::of(&e)));
            }
        }
    }

    /// Waits, for ever where there is no `pause`; until somebody begins anew.
    async fn rest(&mut self, pause: Option<Duration>) -> End {
        let clock = Arc::clone(&self.shared.world.clock);
        let over = clock.deadline(pause.unwrap_or_default());
        let mut over = std::pin::pin!(over);
        loop {
            tokio::select! {
                request = self.requests.recv() => match request {
                    None => return End::Stopped,
                    Some(Request::Renew(view, reply)) => {
                        let renewed = if pause.is_some() { Err(self.absent()) } else { self.renew(&view).await };
                        let is_renewed = renewed.is_ok();
                        let _ = reply.send(renewed);
                        if is_renewed {
                            return End::Again;
                        }
                    }
                },
                () = &mut over, if pause.is_some() => return End::Again,
            }
        }
    }

    fn absent(&self) -> Error {
        match &self.told.borrow().contact {
            Contact::Away(trouble) => trouble.error(),
            _ => Error::unavailable(format!("{}: the server is being met; ask again", self.shared.server.place())),
        }
    }

    /// What `work` gives; `None` when nobody wants more.
    async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                request = self.requests.recv() => match request {
                    None => return None,
                    Some(Request::Renew(_, reply)) => drop(reply.send(Err(self.absent()))),
                },
            }
        }
    }

    /// Meets the server, and reads until that fails.
    async fn session(&mut self) -> Result<End> {
        let shared = Arc::clone(&self.shared);
        let met = Meeting::with(&shared.server, &shared.slot, &shared.publication);
        let Some(meeting) = self.unless_stopped(met).await else { return Ok(End::Stopped) };
        let mut meeting = meeting?;
        let confirmed = match &self.evidence {
            Some(evidence) if (&evidence.slot, &evidence.publication) != (&shared.slot, &shared.publication) => {
                return Err(Error::continuity_lost(
                    Lost::OtherSource,
                    format!(
                        "what was read is of the slot {:?} and the publication {:?}, and configured are {:?} and {:?}; configure the first, or reset the pipeline's connectors",
                        evidence.slot, evidence.publication, shared.slot, shared.publication
                    ),
                ));
            }
            Some(evidence) => evidence.check(&meeting.seen)?,
            None => self.establish(&mut meeting).await?,
        };
        let tracks = self.join(&meeting, confirmed).await?;
        let mut replication = Replication::connect(&shared.server).await?;
        replication.start(&shared.slot, &shared.publication).await?;
        let evidence = self.known()?;
        let complete = |track: &Track| evidence.views.get(track.shelf.view()).map(|followed| followed.complete_to);
        let reached = tracks.iter().filter_map(complete).min().unwrap_or(confirmed);
        let fingerprint = evidence.fingerprint().into();
        let mut expected: BTreeMap<Step, Option<Boundary>> = BTreeMap::new();
        for track in &tracks {
            let stand = track.shelf.log()?.stand();
            if stand.last > confirmed && stand.earliest < stand.last {
                expected.insert(stand.last, None);
            }
        }
        if let Some(boundary) = evidence.boundary.filter(|boundary| boundary.end > confirmed) {
            expected.insert(boundary.end, Some(boundary));
        }
        self.told.send_modify(|told| {
            told.contact = Contact::Met;
            told.fingerprint = Some(fingerprint);
            told.reached = reached;
        });
        tracing::info!(event = "source_met", slot = shared.slot, from = %Lsn(confirmed.get()), "the slot is read");
        self.follow(&meeting, replication, Assembly::new(tracks), expected, reached).await
    }

    fn known(&self) -> Result<&Evidence> {
        self.evidence.as_ref().ok_or_else(|| Error::internal("a slot is read of which nothing is known"))
    }

    /// Sets up what was never there: publication, slot and logs.
    async fn establish(&mut self, meeting: &mut Meeting<'_>) -> Result<Step> {
        let had_publication = meeting.has_publication().await?;
        let ready = self.ready(meeting).await?;
        let begin = match meeting.seen.slot.as_ref().map(|slot| slot.confirmed) {
            Some(_) if !had_publication => {
                let slot = &self.shared.slot;
                return Err(Error::refused(format!(
                    "{}: there is a replication slot {slot:?} without its publication, so it cannot tell what was before; run SELECT pg_drop_replication_slot('{slot}'), or name another slot",
                    meeting.place()
                )));
            }
            Some(Some(confirmed)) => confirmed,
            Some(None) | None => meeting.make_slot().await?,
        };
        self.begin(meeting, ready, begin, None).await?;
        Ok(begin)
    }

    /// The tables that can be followed, each with what must be remembered of it; the others show why not.
    async fn ready(&self, meeting: &Meeting<'_>) -> Result<Vec<(Arc<Shelf>, Ready)>> {
        let (mut ready, mut failed) = (Vec::new(), None);
        for shelf in &self.shared.shelves {
            match Ready::of(shelf, meeting).await {
                Ok(found) => ready.push((Arc::clone(shelf), found)),
                Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                Err(e) => {
                    shelf.state.send_modify(|state| state.trouble = Some(Trouble::of(&e)));
                    failed.get_or_insert(e);
                }
            }
        }
        match failed {
            Some(e) if ready.is_empty() => Err(e),
            _ => Ok(ready),
        }
    }

    /// Begins a history: every log anew.
    async fn begin(
        &mut self,
        meeting: &Meeting<'_>,
        ready: Vec<(Arc<Shelf>, Ready)>,
        begin: Step,
        history: Option<String>,
    ) -> Result<()> {
        let (slot, publication) = (&self.shared.slot, &self.shared.publication);
        let mut evidence = Evidence::new(meeting.seen.identity.clone(), slot, publication);
        evidence.history = history;
        for (shelf, ready) in ready {
            // A table that was published just before is told from there on.
            let begin = begin.max(ready.published);
            self.begin_one(&mut evidence, &shelf, &ready, begin).await?;
        }
        self.write(evidence).await
    }

    async fn begin_one(&self, evidence: &mut Evidence, shelf: &Shelf, ready: &Ready, begin: Step) -> Result<()> {
        let log = self.shared.world.ids.draw();
        shelf.open(&log, begin).await?;
        let followed = Followed {
            log,
            table_oid: ready.table.oid,
            key: ready.key.clone(),
            columns: ready.columns(),
            membership_oid: ready.membership,
            complete_to: begin,
        };
        evidence.views.insert(shelf.view().to_owned(), followed);
        shelf.state.send_modify(|state| (state.key, state.trouble) = (ready.key.clone().into(), None));
        Ok(())
    }

    /// The tables that go on where their logs end, and those that are followed from here on.
    async fn join(&mut self, meeting: &Meeting<'_>, confirmed: Step) -> Result<Vec<Track>> {
        let mut evidence = self.known()?.clone();
        let mut tracks = Vec::new();
        for (shelf, ready) in self.ready(meeting).await? {
            match evidence.views.get(shelf.view()) {
                None => self.begin_one(&mut evidence, &shelf, &ready, ready.published).await?,
                Some(followed) => {
                    let lost = ready.check(&shelf, followed, confirmed, meeting.place());
                    let is_open = shelf.state.borrow().log.is_some();
                    let trouble = lost.err().map(|e| Trouble::of(&e));
                    if trouble.is_some() || is_open {
                        shelf.state.send_modify(|state| state.trouble = trouble);
                    }
                }
            }
            let Ok(log) = shelf.log() else { continue };
            let view = view_of(shelf.view(), &ready.table.columns, &ready.key);
            shelf.state.send_modify(|state| match view {
                Ok(view) => state.view = Some(view),
                Err(e) => state.trouble = Some(Trouble::of(&e)),
            });
            let known = evidence.views.get(shelf.view()).map(|followed| followed.columns.clone()).unwrap_or_default();
            let (oid, key) = (ready.table.oid, ready.key.into());
            tracks.push(Track::new(Arc::clone(&shelf), oid, key, log.stand().last, known));
        }
        self.write(evidence).await?;
        Ok(tracks)
    }

    /// Begins anew what was lost: all, where the history is another.
    async fn renew(&mut self, view: &str) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut meeting = Meeting::with(&shared.server, &shared.slot, &shared.publication).await?;
        let ready = self.ready(&meeting).await?;
        if !ready.iter().any(|(shelf, _)| shelf.view() == view) {
            return Err(shared.shelves.iter().find(|shelf| shelf.view() == view).and_then(|shelf| shelf.log().err()).unwrap_or_else(|| shared.ended()));
        }
        let lost = match &self.told.borrow().contact {
            Contact::Lost(trouble) => trouble.error().lost(),
            _ => None,
        };
        let before = self.known()?;
        let history = match lost {
            // The positions of a server that was taken back come again, for other transactions.
            Some(Lost::SourceBehind | Lost::OtherSource) if before.identity == meeting.seen.identity => {
                Some(shared.world.ids.draw())
            }
            _ => before.history.clone().filter(|_| before.identity == meeting.seen.identity),
        };
        let begin = meeting.make_slot().await?;
        self.begin(&meeting, ready, begin, history).await?;
        tracing::info!(event = "source_renewed", slot = shared.slot, from = %Lsn(begin.get()), "a slot and logs were made anew");
        let fingerprint = self.known()?.fingerprint().into();
        self.told.send_modify(|told| {
            (told.contact, told.fingerprint, told.reached) = (Contact::Met, Some(fingerprint), begin);
        });
        Ok(())
    }

    /// Begins one log anew, because its table was not followed for a while or is another.
    async fn renew_one(&mut self, meeting: &Meeting<'_>, view: &str) -> Result<End> {
        let shelf = self.shared.shelves.iter().find(|shelf| shelf.view() == view);
        let shelf = Arc::clone(shelf.ok_or_else(|| self.shared.ended())?);
        if shelf.state.borrow().trouble.is_none() {
            return Ok(End::Stopped);
        }
        let ready = Ready::of(&shelf, meeting).await?;
        let mut evidence = self.known()?.clone();
        self.begin_one(&mut evidence, &shelf, &ready, ready.published).await?;
        self.write(evidence).await?;
        Ok(End::Again)
    }

    /// Brings what the slot gives to the logs, and tells the server what is safe.
    async fn follow(
        &mut self,
        meeting: &Meeting<'_>,
        mut replication: Replication,
        mut assembly: Assembly,
        mut expected: BTreeMap<Step, Option<Boundary>>,
        mut reached: Step,
    ) -> Result<End> {
        let clock = Arc::clone(&self.shared.world.clock);
        let (mut heard, mut looked, mut confirmed_at) = (self.now(), None::<Duration>, self.now());
        let mut confirmed = Step::ZERO;
        loop {
            let now = self.now();
            if now.saturating_sub(heard) > SILENCE {
                return Err(Error::unavailable(format!("{}: the server says nothing any more", meeting.place())));
            }
            if looked.is_none_or(|looked| now.saturating_sub(looked) >= LOOK) {
                looked = Some(now);
                if !self.look(meeting, &assembly).await? {
                    return Ok(End::Again);
                }
            }
            let due = if reached > confirmed { CONFIRM } else { SIGN_OF_LIFE };
            if now.saturating_sub(confirmed_at) >= due {
                self.keep(&assembly, reached).await?;
                replication.confirm(Lsn(reached.get()), self.micros()).await?;
                (confirmed, confirmed_at) = (reached, now);
            }
            let wait = due.saturating_sub(now.saturating_sub(confirmed_at));
            let first = tokio::select! {
                request = self.requests.recv() => match request {
                    None => {
                        self.keep(&assembly, reached).await?;
                        replication.confirm(Lsn(reached.get()), self.micros()).await?;
                        replication.end().await;
                        return Ok(End::Stopped);
                    }
                    Some(Request::Renew(view, reply)) => {
                        let renewed = self.renew_one(meeting, &view).await;
                        let is_other = matches!(renewed, Ok(End::Again));
                        let _ = reply.send(renewed.map(drop));
                        if is_other {
                            return Ok(End::Again);
                        }
                        continue;
                    }
                },
                frame = replication.next() => frame?,
                () = clock.deadline(wait) => continue,
            };
            heard = self.now();
            let (mut round, mut next, mut alive) = (Round::default(), Some(first), None);
            while let Some(frame) = next {
                match frame {
                    Frame::Message(message) => {
                        if let Some(done) = assembly.take(&message, &meeting.session).await? {
                            Evidence::recognize(&mut expected, done.boundary)?;
                            round.push(done);
                        }
                    }
                    // Within a transaction it tells nothing of those before.
                    Frame::Alive { at } if !assembly.is_open() => alive = Some(Step::new(at.0)?),
                    Frame::Alive { .. } => {}
                }
                if round.is_enough() {
                    break;
                }
                next = replication.waiting()?;
            }
            let last = round.done.last().map(|done| done.boundary.end);
            if self.store(&mut assembly, round, &mut replication, confirmed).await? == End::Stopped {
                return Ok(End::Stopped);
            }
            if let Some(alive) = alive {
                Evidence::reach(&mut expected, alive)?;
            }
            reached = reached.max(last.unwrap_or(Step::ZERO)).max(alive.unwrap_or(Step::ZERO));
            self.told.send_if_modified(|told| {
                let is_more = told.reached < reached;
                told.reached = told.reached.max(reached);
                is_more
            });
        }
    }

    fn micros(&self) -> i64 {
        self.shared.world.clock.unix_millis().saturating_mul(1000).saturating_sub(EPOCH_MICROS)
    }

    /// Looks at what the slot keeps, and whether the tables are those that are followed; `false`: they are not.
    async fn look(&self, meeting: &Meeting<'_>, assembly: &Assembly) -> Result<bool> {
        let wal = meeting.wal_kept().await?;
        self.told.send_if_modified(|told| {
            let is_other = told.wal != wal;
            told.wal = wal;
            is_other
        });
        for track in &assembly.tracks {
            let Some(followed) = self.known()?.views.get(track.shelf.view()).cloned() else { continue };
            let is_same = match Ready::of(&track.shelf, meeting).await {
                Ok(ready) => (ready.table.oid, ready.membership) == (followed.table_oid, followed.membership_oid),
                Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                Err(_) => false,
            };
            if !is_same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes down that every log has everything up to `reached`.
    async fn keep(&mut self, assembly: &Assembly, reached: Step) -> Result<()> {
        let mut evidence = self.known()?.clone();
        for track in &assembly.tracks {
            if let Some(followed) = evidence.views.get_mut(track.shelf.view()) {
                followed.complete_to = followed.complete_to.max(reached);
                followed.columns.clone_from(&track.known);
            }
        }
        self.write(evidence).await
    }

    async fn write(&mut self, evidence: Evidence) -> Result<()> {
        if self.evidence.as_ref() != Some(&evidence) {
            let (file, written) = (Arc::clone(&self.file), evidence.clone());
            blocking(move || file.write(&written)).await?;
            self.evidence = Some(evidence);
        }
        Ok(())
    }

    /// Brings transactions to the logs, and waits until they hold them durably.
    async fn store(
        &mut self,
        assembly: &mut Assembly,
        round: Round,
        replication: &mut Replication,
        confirmed: Step,
    ) -> Result<End> {
        let mut pending: Vec<(usize, VecDeque<Entry>)> = Vec::new();
        for (at, track) in assembly.tracks.iter_mut().enumerate() {
            let mut entries = VecDeque::new();
            for done in &round.done {
                let Some((_, batches)) = done.parts.iter().find(|(part, _)| *part == at) else { continue };
                let step = done.boundary.end;
                if step > track.last {
                    entries.push_back(Entry::new(At::Step { step, after: track.last }, batches)?);
                    track.last = step;
                }
            }
            if !entries.is_empty() {
                pending.push((at, entries));
            }
        }
        let shelf = |at: usize| assembly.tracks.get(at).map(|track| Arc::clone(&track.shelf)).ok_or_else(|| self.shared.ended());
        let shelves = pending.iter().map(|(at, _)| shelf(*at)).collect::<Result<Vec<_>>>()?;
        loop {
            let appends = shelves.iter().zip(&mut pending).map(|(shelf, (_, entries))| append(shelf, entries));
            for appended in join_all(appends).await {
                appended?;
            }
            let full: Vec<&Arc<Shelf>> =
                shelves.iter().zip(&pending).filter(|(_, (_, entries))| !entries.is_empty()).map(|(shelf, _)| shelf).collect();
            if full.is_empty() {
                break;
            }
            let mut has_room = false;
            for shelf in &full {
                has_room |= shelf.has_made_room(&*shelf.log()?).await?;
            }
            if has_room {
                continue;
            }
            let now = self.now();
            self.told.send_modify(|told| told.full_since = told.full_since.or(Some(now)));
            if self.wait_for_room(&full, replication, confirmed).await? == End::Stopped {
                return Ok(End::Stopped);
            }
        }
        self.show_room();
        if let Some(boundary) = round.done.iter().rev().find(|done| !done.parts.is_empty()).map(|done| done.boundary)
            && let Some(evidence) = &mut self.evidence
        {
            // It is written down with what the server is told next.
            evidence.boundary = Some(boundary);
        }
        Ok(End::Again)
    }

    fn show_room(&self) {
        let now = self.now();
        self.told.send_if_modified(|told| {
            let Some(since) = told.full_since.take() else { return false };
            told.was_full += now.saturating_sub(since);
            true
        });
    }

    /// Until a connector went on. Meanwhile the server hears that we live.
    async fn wait_for_room(&mut self, full: &[&Arc<Shelf>], replication: &mut Replication, confirmed: Step) -> Result<End> {
        let clock = Arc::clone(&self.shared.world.clock);
        let mut places: Vec<_> = full.iter().map(|shelf| shelf.places.subscribe()).collect();
        let went_on = select_all(places.iter_mut().map(|places| Box::pin(places.changed())));
        tokio::select! {
            _ = went_on => Ok(End::Again),
            () = clock.deadline(SIGN_OF_LIFE) => {
                replication.confirm(Lsn(confirmed.get()), self.micros()).await?;
                Ok(End::Again)
            }
            request = self.requests.recv() => match request {
                None => Ok(End::Stopped),
                Some(Request::Renew(_, reply)) => {
                    let full = Error::unavailable("a step log is full, so nothing is begun anew; let its connectors go on first");
                    let _ = reply.send(Err(full));
                    Ok(End::Again)
                }
            },
        }
    }
}

/// Appends entries in their order; those that have no room stay.
async fn append(shelf: &Shelf, entries: &mut VecDeque<Entry>) -> Result<()> {
    let log = shelf.log()?;
    while !entries.is_empty() {
        let answers = join_all(entries.iter().take(AT_ONCE).map(|entry| log.append(entry.clone()))).await;
        for answer in answers {
            match answer? {
                Answer::Stored(_) | Answer::AlreadyStored(_) => drop(entries.pop_front()),
                Answer::Full { .. } => return Ok(()),
                other => {
                    let log = log.stand();
                    return Err(Error::internal(format!(
                        "view {}: a transaction does not follow step {} in its log: {other:?}",
                        shelf.view(),
                        log.last
                    )));
                }
            }
        }
    }
    Ok(())
}

/// A table that can be followed.
struct Ready {
    table: Table,
    key: Vec<String>,
    /// Its membership in the publication.
    membership: u32,
    /// After this step all of its changes are told.
    published: Step,
}

impl Ready {
    async fn of(shelf: &Shelf, meeting: &Meeting<'_>) -> Result<Self> {
        let table = meeting.table(&shelf.name, &shelf.settings.columns).await?;
        let key = table.key(&shelf.settings.key)?;
        let (membership, published) = meeting.publish(&table).await?;
        Ok(Self { table, key, membership, published })
    }

    fn columns(&self) -> Vec<String> {
        self.table.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Whether it is the table whose changes are on the shelf, with all of them.
    fn check(&self, shelf: &Shelf, followed: &Followed, confirmed: Step, place: &str) -> Result<()> {
        let name = &shelf.name;
        let lost = |said: String| Err(Error::continuity_lost(Lost::Gap, format!("{place}: {said}; reset its connectors")));
        if self.table.oid != followed.table_oid {
            return lost(format!(
                "the table {name} has the number {}, and the one that was read had {}: it is another",
                self.table.oid, followed.table_oid
            ));
        }
        if self.membership != followed.membership_oid {
            return lost(format!(
                "the table {name} is in the publication by the entry {}, and was read by {}: what it was told in between is missing",
                self.membership, followed.membership_oid
            ));
        }
        if self.key != followed.key {
            return lost(format!("the key of {name} is {:?}, and was {:?}", self.key, followed.key));
        }
        if followed.complete_to < confirmed {
            return lost(format!(
                "{name} was read up to {}, and the slot stands at {}: what is between is missing",
                Lsn(followed.complete_to.get()),
                Lsn(confirmed.get())
            ));
        }
        Ok(())
    }
}
