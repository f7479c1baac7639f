//! How transactions come into the step logs.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::RecordBatch;
use futures::future::{join_all, select_all};

use super::assembly::{Assembly, Done};
use super::meeting::Meeting;
use super::message::Lsn;
use super::replication::Replication;
use super::shelf::Shelf;
use super::stream::{End, Request, SIGN_OF_LIFE, Stream};
use crate::error::{Error, Result};
use crate::step::Step;
use crate::steplog::{Answer, At, Entry};

/// What is brought to the logs at once: transactions, and the bytes that they take in memory.
const ROUND: usize = 256;
const ROUND_BYTES: usize = 16 << 20;
/// What is held at most until it is known whether all was told, in bytes.
const DOUBTFUL_BYTES: usize = 256 << 20;

/// Transactions that go to the logs together.
#[derive(Default)]
pub(super) struct Round {
    pub(super) done: Vec<Done>,
    bytes: usize,
}

impl Round {
    pub(super) fn push(&mut self, done: Done) {
        self.bytes +=
            done.parts.iter().flat_map(|(_, batches)| batches).map(RecordBatch::get_array_memory_size).sum::<usize>();
        self.done.push(done);
    }

    pub(super) fn is_enough(&self) -> bool {
        self.done.len() >= ROUND || self.bytes >= ROUND_BYTES
    }

    /// Whether it is more than is held until it is known whether it is stored.
    pub(super) fn is_too_much(&self) -> bool {
        self.bytes >= DOUBTFUL_BYTES
    }
}

impl Stream {
    /// Brings transactions to the logs, and waits until they hold them durably.
    pub(super) async fn store(
        &mut self,
        assembly: &mut Assembly,
        round: Round,
        replication: &mut Replication,
        (meeting, confirmed): (&Meeting<'_>, Step),
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
        let shelf = |at: usize| {
            assembly.tracks.get(at).map(|track| Arc::clone(&track.shelf)).ok_or_else(|| self.shared.ended())
        };
        let shelves = pending.iter().map(|(at, _)| shelf(*at)).collect::<Result<Vec<_>>>()?;
        loop {
            let appends = shelves.iter().zip(&mut pending).map(|(shelf, (_, entries))| append(shelf, entries));
            for appended in join_all(appends).await {
                appended?;
            }
            let full: Vec<&Arc<Shelf>> = shelves
                .iter()
                .zip(&pending)
                .filter(|(_, (_, entries))| !entries.is_empty())
                .map(|(shelf, _)| shelf)
                .collect();
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
            match self.wait_for_room(&full, replication, confirmed).await? {
                End::Again if self.keeps_too_much(meeting).await? => return Ok(End::TooMuch),
                End::Again => {}
                end => return Ok(end),
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

    /// Shows that no log is too full for what comes.
    pub(super) fn show_room(&self) {
        let now = self.now();
        self.told.send_if_modified(|told| {
            let Some(since) = told.full_since.take() else { return false };
            told.was_full += now.saturating_sub(since);
            true
        });
    }

    /// Until a connector went on. Meanwhile the server hears that we live.
    async fn wait_for_room(
        &mut self,
        full: &[&Arc<Shelf>],
        replication: &mut Replication,
        confirmed: Step,
    ) -> Result<End> {
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
    for answer in log.append_all(entries.iter().cloned()).await {
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
    Ok(())
}
