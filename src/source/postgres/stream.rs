//! The one that reads a slot: meets the server, brings transactions to the step logs, and tells the server what is safe.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::assembly::{Assembly, Track};
use super::evidence::{Boundary, Evidence, EvidenceFile};
use super::feed::{Contact, Shared, Told};
use super::meeting::Meeting;
use super::message::Lsn;
use super::replication::{Frame, Replication};
use super::shelf::{Shelf, Trouble};
use super::storing::Round;
use super::watch::{Look, Watch};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::source::rows::blocking;
use crate::step::Step;

/// How long is waited before the server is met again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often the server is told what is safe: when that is more than before, and in any case.
const CONFIRM: Duration = Duration::from_secs(1);
pub(super) const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// After so long without a word from the server the connection is given up.
const SILENCE: Duration = Duration::from_secs(60);
/// How often it is tried to drop a slot whose reader is leaving.
const DROPS: u32 = 20;
/// How often it is looked at what the slot keeps.
const LOOK: Duration = Duration::from_secs(10);
/// Between 1970 and 2000, in microseconds.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// What the one that reads is asked for.
pub(super) enum Request {
    /// Whoever is reset begins anew: what was lost of a view is given up, and it is followed from here on.
    Renew(String, oneshot::Sender<Result<()>>),
}

/// How reading ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Nobody wants more.
    Stopped,
    /// It begins again, with what is different.
    Again,
    /// The slot keeps more than it may.
    TooMuch,
}

pub(super) struct Stream {
    pub(super) shared: Arc<Shared>,
    pub(super) told: watch::Sender<Told>,
    file: Arc<EvidenceFile>,
    pub(super) evidence: Option<Evidence>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// The views whose tables were published beside others, each with the number below which transactions must be over.
    pub(super) awaited: BTreeMap<String, u64>,
}

impl Stream {
    pub(super) fn new(
        shared: Arc<Shared>,
        told: watch::Sender<Told>,
        file: EvidenceFile,
        evidence: Option<Evidence>,
        requests: mpsc::Receiver<Request>,
    ) -> Self {
        Self { shared, told, file: Arc::new(file), evidence, requests, awaited: BTreeMap::new() }
    }

    /// Reads until nobody wants more.
    pub(super) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = self.now();
            let ended = self.session().await;
            if self.now().saturating_sub(begun) > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            let wait = match ended {
                Ok(End::Stopped) => return,
                Ok(End::Again | End::TooMuch) => continue,
                Err(e) if e.kind() == ErrorKind::ContinuityLost => {
                    tracing::error!(event = "source_lost", slot = self.shared.slot, error = %e, "a slot is not read any more");
                    self.show_room();
                    self.told.send_modify(|told| (told.contact, told.wal) = (Contact::Lost(Trouble::of(&e)), None));
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

    pub(super) fn now(&self) -> Duration {
        self.shared.world.clock.boot()
    }

    /// Opens what was read before, so that connectors go on with it while the server is not there.
    pub(super) async fn open_logs(&self) {
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

    /// The last step that any log holds.
    fn held(&self) -> Step {
        let last = |shelf: &Arc<Shelf>| shelf.state.borrow().log.as_ref().map(|log| log.stand().last);
        self.shared.shelves.iter().filter_map(last).max().unwrap_or(Step::ZERO)
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
        self.told.send_if_modified(|told| {
            let is_known = matches!(told.contact, Contact::Met | Contact::Lost(_));
            if is_known {
                told.contact = Contact::Awaited;
            }
            is_known
        });
        let met = Meeting::with(&shared.server, &shared.slot, &shared.publication);
        let Some(meeting) = self.unless_stopped(shared.in_time(met)).await else { return Ok(End::Stopped) };
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
            Some(evidence) => evidence.check(&meeting.seen, self.held())?,
            None => self.establish(&mut meeting).await?,
        };
        let tracks = shared.in_time(self.join(&meeting, confirmed)).await?;
        shared.in_time(self.keeps_too_much(&meeting)).await?;
        let mut replication = shared.in_time(Replication::connect(&shared.server)).await?;
        shared.in_time(replication.start(&shared.slot, &shared.publication)).await?;
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
        self.told.send_modify(|told| (told.fingerprint, told.reached) = (Some(fingerprint), reached));
        tracing::info!(event = "source_met", slot = shared.slot, from = %Lsn(confirmed.get()), "the slot is read");
        match self.follow(&meeting, replication, Assembly::new(tracks), expected, reached).await? {
            End::TooMuch => Err(self.give_up(&meeting).await?),
            end => Ok(end),
        }
    }

    pub(super) fn known(&self) -> Result<&Evidence> {
        self.evidence.as_ref().ok_or_else(|| Error::internal("a slot is read of which nothing is known"))
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
        let (clock, shared) = (Arc::clone(&self.shared.world.clock), Arc::clone(&self.shared));
        let (mut heard, mut looked, mut confirmed_at) = (self.now(), None::<Duration>, self.now());
        let mut confirmed = Step::ZERO;
        let mut watch = shared.in_time(Watch::over(meeting)).await?;
        // Nothing is safe by this; it asks where the server is, which who waits for it would else hear at the next sign of life.
        replication.confirm(Lsn(0), self.micros()).await?;
        // What was read and is not stored yet, and up to where it was read.
        let (mut round, mut read, mut is_told) = (Round::default(), reached, false);
        loop {
            let now = self.now();
            if now.saturating_sub(heard) > SILENCE {
                return Err(Error::unavailable(format!("{}: the server says nothing any more", meeting.place())));
            }
            if looked.is_none_or(|looked| now.saturating_sub(looked) >= LOOK) {
                looked = Some(now);
                if shared.in_time(self.keeps_too_much(meeting)).await? {
                    return Ok(End::TooMuch);
                }
                let look = shared.in_time(self.look(meeting, &mut assembly, &mut watch, read)).await?;
                if look == Look::Other || self.is_mended(meeting).await {
                    return Ok(End::Again);
                }
                is_told = look == Look::Told;
            }
            // Until then it may be another history that has as much.
            if is_told && expected.is_empty() && !matches!(self.told.borrow().contact, Contact::Met) {
                self.told.send_modify(|told| told.contact = Contact::Met);
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
            let (mut next, mut alive) = (Some(first), None);
            while let Some(frame) = next {
                match frame {
                    Frame::Message(message) => {
                        if let Some(done) = assembly.take(&message, &meeting.session).await? {
                            Evidence::recognize(&mut expected, done.boundary)?;
                            read = read.max(done.boundary.end);
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
            if let Some(alive) = alive {
                Evidence::reach(&mut expected, alive)?;
                read = read.max(alive);
            }
            if read <= reached && round.done.is_empty() {
                continue;
            }
            // What cannot be held until it is known counts as all that there is.
            let position = if round.is_too_much() { Step::MAX } else { read };
            if watch.is_doubtful_at(position) {
                continue;
            }
            let look = shared.in_time(self.look(meeting, &mut assembly, &mut watch, position)).await?;
            is_told = look == Look::Told;
            match look {
                Look::Told => {}
                Look::Doubtful => continue,
                Look::Other => return Ok(End::Again),
            }
            match self.store(&mut assembly, std::mem::take(&mut round), &mut replication, (meeting, confirmed)).await? {
                End::Again => {}
                end => return Ok(end),
            }
            reached = reached.max(read);
            self.told.send_if_modified(|told| {
                let is_more = told.reached < reached;
                told.reached = told.reached.max(reached);
                is_more
            });
        }
    }

    pub(super) fn micros(&self) -> i64 {
        self.shared.world.clock.unix_millis().saturating_mul(1000).saturating_sub(EPOCH_MICROS)
    }

    /// Looks at what the slot keeps, and whether it is more than it may.
    pub(super) async fn keeps_too_much(&self, meeting: &Meeting<'_>) -> Result<bool> {
        let wal = meeting.wal_kept().await?;
        let bytes = wal.as_ref().map_or(0, |wal| wal.bytes);
        self.told.send_if_modified(|told| {
            let is_other = told.wal != wal;
            told.wal = wal;
            is_other
        });
        Ok(self.shared.max_wal.is_some_and(|most| bytes > most))
    }

    /// Drops the slot, whose reader has just gone; why it is lost then.
    async fn give_up(&self, meeting: &Meeting<'_>) -> Result<Error> {
        let clock = &self.shared.world.clock;
        let (slot, most) = (&self.shared.slot, self.shared.max_wal.unwrap_or(u64::MAX));
        let mut dropped = meeting.drop_slot().await;
        for _ in 0..DROPS {
            if dropped.is_ok() {
                break;
            }
            clock.sleep(FIRST_PAUSE).await;
            dropped = meeting.drop_slot().await;
        }
        dropped?;
        let kept = self.told.borrow().wal.as_ref().map_or(0, |wal| wal.bytes);
        Ok(Error::continuity_lost(
            Lost::Gap,
            format!(
                "the replication slot {slot:?} made the server keep {kept} bytes of WAL, and max_wal is {most}: it was dropped; let the connectors keep up or raise max_wal, then reset them"
            ),
        ))
    }

    /// Writes down that every log has everything up to `reached`.
    async fn keep(&mut self, assembly: &Assembly, reached: Step) -> Result<()> {
        let mut evidence = self.known()?.clone();
        evidence.told = evidence.told.max(reached);
        for track in &assembly.tracks {
            if let Some(followed) = evidence.views.get_mut(track.shelf.view()) {
                followed.complete_to = followed.complete_to.max(reached);
                followed.columns.clone_from(&track.known);
                followed.form.clone_from(&track.form);
            }
        }
        self.write(evidence).await
    }

    pub(super) async fn write(&mut self, evidence: Evidence) -> Result<()> {
        if self.evidence.as_ref() != Some(&evidence) {
            let (file, written) = (Arc::clone(&self.file), evidence.clone());
            blocking(move || file.write(&written)).await?;
            self.evidence = Some(evidence);
        }
        Ok(())
    }
}
