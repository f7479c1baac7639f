//! What is followed of a server, and from where on: what was never there is set up, what was lost begins anew.

use std::sync::Arc;
use std::time::Duration;

use super::assembly::Track;
use super::catalog::{Table, view_of};
use super::evidence::{Evidence, Followed};
use super::feed::Contact;
use super::meeting::{Meeting, Membership, flushed};
use super::message::Lsn;
use super::shelf::{Shelf, Trouble};
use super::stream::{End, Stream};
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::schema::View;
use crate::step::Step;

/// How often and at which distances it is looked whether transactions are over, before others go on without the table.
const LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

impl Stream {
    /// Sets up what was never there: publication, slot and logs.
    pub(super) async fn establish(&mut self, meeting: &mut Meeting<'_>) -> Result<Step> {
        let had_publication = meeting.has_publication().await?;
        let ready = self.ready(meeting).await?;
        let ready = self.published(meeting, ready).await?;
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

    /// The tables that can be followed; the others show why not.
    async fn ready(&self, meeting: &Meeting<'_>) -> Result<Vec<(Arc<Shelf>, Ready)>> {
        let mut found = Vec::new();
        for shelf in &self.shared.shelves {
            let ready = meeting.session.steadily(Ready::of(shelf, meeting)).await;
            found.push((Arc::clone(shelf), ready));
        }
        sound(found)
    }

    /// The same tables, once they are published.
    async fn published(
        &self,
        meeting: &Meeting<'_>,
        ready: Vec<(Arc<Shelf>, Ready)>,
    ) -> Result<Vec<(Arc<Shelf>, Ready)>> {
        let (mut found, mut denied) = (Vec::new(), Vec::new());
        for (shelf, mut ready) in ready {
            if let Err(e) = ready.table.check_readable(meeting.role()) {
                found.push((shelf, Err(e)));
                continue;
            }
            match ready.publish(meeting).await {
                Err(e) if e.kind() == ErrorKind::Refused => denied.push((shelf, ready, e)),
                published => found.push((shelf, published.map(|()| ready))),
            }
        }
        if !denied.is_empty() {
            let tables: Vec<&Table> = denied.iter().map(|(_, ready, _)| &ready.table).collect();
            let statement = meeting.publishing(&tables).await?;
            found.extend(denied.into_iter().map(|(shelf, _, e)| (shelf, Err(may_not(&e, &statement)))));
        }
        sound(found)
    }

    /// The same of a table beside others, which are told already; an error where the rest must be waited for. A transaction may have
    /// written to it before it was published, and what it wrote then is never told, whenever it commits. So it is told of from
    /// where those have ended that were under way.
    async fn published_later(
        &mut self,
        meeting: &Meeting<'_>,
        shelf: &Shelf,
        ready: &mut Ready,
    ) -> Result<Option<Error>> {
        ready.table.check_readable(meeting.role())?;
        if let Err(e) = ready.publish(meeting).await {
            let statement = meeting.publishing(&[&ready.table]).await?;
            return Err(if e.kind() == ErrorKind::Refused { may_not(&e, &statement) } else { e });
        }
        let awaited = match self.awaited.get(shelf.view()) {
            Some(awaited) => *awaited,
            None => meeting.next_transaction().await?,
        };
        self.awaited.insert(shelf.view().to_owned(), awaited);
        for _ in 0..LOOKS {
            if meeting.since().await? >= awaited {
                self.awaited.remove(shelf.view());
                ready.published = flushed(&meeting.session).await?;
                return Ok(None);
            }
            self.shared.world.clock.sleep(BETWEEN_LOOKS).await;
        }
        Ok(Some(Error::unavailable(format!(
            "{}: {} is published, and is followed once the transactions are over that were under way then; pg_stat_activity and pg_prepared_xacts show them",
            meeting.place(),
            shelf.name
        ))))
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
        (evidence.history, evidence.told) = (history, begin);
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
            form: ready.table.form.clone(),
            membership: ready
                .membership
                .as_ref()
                .map(|membership| membership.entry.clone())
                .ok_or_else(|| Error::internal("a table is followed that is not published"))?,
            complete_to: begin,
            lost: None,
        };
        evidence.views.insert(shelf.view().to_owned(), followed);
        shelf.state.send_modify(|state| (state.key, state.trouble) = (ready.key.clone().into(), None));
        Ok(())
    }

    /// The tables that go on where their logs end, and those that are followed from here on.
    pub(super) async fn join(&mut self, meeting: &Meeting<'_>, confirmed: Step) -> Result<Vec<Track>> {
        let mut evidence = self.known()?.clone();
        let mut tracks = Vec::new();
        for (shelf, mut ready) in self.ready(meeting).await? {
            match evidence.views.get(shelf.view()) {
                None => match self.published_later(meeting, &shelf, &mut ready).await {
                    Ok(None) => self.begin_one(&mut evidence, &shelf, &ready, ready.published).await?,
                    Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                    Ok(Some(e)) | Err(e) => shelf.state.send_modify(|state| state.trouble = Some(Trouble::of(&e))),
                },
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
            shelf.state.send_modify(|state| state.view = Some(ready.view));
            let Some(followed) = evidence.views.get(shelf.view()) else { continue };
            let (known, form) = (followed.columns.clone(), followed.form.clone());
            let (oid, key) = (ready.table.oid, ready.key.into());
            tracks.push(Track::new(Arc::clone(&shelf), oid, key, log.stand().last, known, form));
        }
        self.write(evidence).await?;
        Ok(tracks)
    }

    /// Begins anew what was lost: all, where the history is another.
    pub(super) async fn renew(&mut self, view: &str) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let met = Meeting::with(&shared.server, &shared.slot, &shared.publication);
        let mut meeting = shared.in_time(met).await?;
        let ready = self.ready(&meeting).await?;
        let ready = self.published(&meeting, ready).await?;
        if !ready.iter().any(|(shelf, _)| shelf.view() == view) {
            return Err(shared
                .shelves
                .iter()
                .find(|shelf| shelf.view() == view)
                .and_then(|shelf| shelf.log().err())
                .unwrap_or_else(|| shared.ended()));
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
    pub(super) async fn renew_one(&mut self, meeting: &Meeting<'_>, view: &str) -> Result<End> {
        let shelf = self.shared.shelves.iter().find(|shelf| shelf.view() == view);
        let shelf = Arc::clone(shelf.ok_or_else(|| self.shared.ended())?);
        if shelf.state.borrow().trouble.is_none() {
            return Ok(End::Stopped);
        }
        let mut ready = meeting.session.steadily(Ready::of(&shelf, meeting)).await?;
        if let Some(wait) = self.published_later(meeting, &shelf, &mut ready).await? {
            return Err(wait);
        }
        let mut evidence = self.known()?.clone();
        self.begin_one(&mut evidence, &shelf, &ready, ready.published).await?;
        self.write(evidence).await?;
        Ok(End::Again)
    }
}

/// A table that can be followed.
pub(super) struct Ready {
    pub(super) table: Table,
    key: Vec<String>,
    view: View,
    /// Its membership in the publication; `None` where it is not in there.
    pub(super) membership: Option<Membership>,
    /// After this step all of its changes are told, once it was published.
    published: Step,
}

/// The tables with which nothing is wrong; the others show what is.
///
/// The error of one where nothing else is left.
fn sound(found: Vec<(Arc<Shelf>, Result<Ready>)>) -> Result<Vec<(Arc<Shelf>, Ready)>> {
    let (mut ready, mut failed) = (Vec::new(), None);
    for (shelf, found) in found {
        match found {
            Ok(found) => ready.push((shelf, found)),
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

impl Ready {
    pub(super) async fn of(shelf: &Shelf, meeting: &Meeting<'_>) -> Result<Self> {
        let mut table = meeting.table(&shelf.name, &shelf.settings.columns).await?;
        let key = table.key(&shelf.settings.key)?;
        let view = view_of(shelf.view(), &table.columns, &key)?;
        let membership = meeting.membership(&table).await?;
        table.form.is_swept = membership.as_ref().is_some_and(|membership| membership.is_swept);
        table.form.since = meeting.since().await?;
        Ok(Self { table, key, view, membership, published: Step::ZERO })
    }

    /// Publishes it, if it is not.
    async fn publish(&mut self, meeting: &Meeting<'_>) -> Result<()> {
        let (membership, published) = meeting.publish(&self.table).await?;
        (self.membership, self.published) = (Some(membership), published);
        Ok(())
    }

    fn columns(&self) -> Vec<String> {
        self.table.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Whether it is the table whose changes are on the shelf, with all of them as far as the slot tells it.
    fn check(&self, shelf: &Shelf, followed: &Followed, confirmed: Step, place: &str) -> Result<()> {
        let lost = |said: String| Err(Error::continuity_lost(Lost::Gap, said));
        if let Some(said) = &followed.lost {
            return lost(said.clone());
        }
        if let Some(what) = self.differs(shelf, followed) {
            return lost(said(place, &what));
        }
        if followed.complete_to < confirmed {
            let (name, from, to) = (&shelf.name, Lsn(followed.complete_to.get()), Lsn(confirmed.get()));
            let what = format!("{name} was read up to {from}, and the slot stands at {to}: what is between is missing");
            return lost(said(place, &what));
        }
        Ok(())
    }

    /// By what it is not the table that is followed, or not told as it was.
    pub(super) fn differs(&self, shelf: &Shelf, followed: &Followed) -> Option<String> {
        let name = &shelf.name;
        if self.table.oid != followed.table_oid {
            return Some(format!(
                "the table {name} has the number {}, and the one that was read had {}: it is another",
                self.table.oid, followed.table_oid
            ));
        }
        let entry = self.membership.as_ref().map(|membership| &membership.entry);
        if entry != Some(&followed.membership) {
            let entry = entry.map_or("no entry".to_owned(), |entry| format!("the entry {entry}"));
            return Some(format!(
                "the table {name} is in the publication by {entry}, and was read by {}: what was not told is missing",
                followed.membership
            ));
        }
        (self.key != followed.key).then(|| format!("the key of {name} is {:?}, and was {:?}", self.key, followed.key))
    }
}

/// That the role may not publish tables, and who may do it by which statement.
fn may_not(error: &Error, statement: &str) -> Error {
    Error::refused(format!("{}; let the owner of the tables run {statement}", error.message()))
}

/// What is said of a table that does not go on where its log ends.
pub(super) fn said(place: &str, what: &str) -> String {
    format!("{place}: {what}; reset its connectors")
}
