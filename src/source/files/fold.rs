//! A snapshot with later changes folded in, read batch by batch.
//!
//! The net effect of the changes stays in memory while the snapshot streams past it. Where that effect is larger than the
//! memory allowed, the view is folded share by share: keys are divided by their hash, and each pass reads the changes and
//! the snapshot again and handles only its own share. Nothing is written to disk, because the feed is on disk already.
//! Since a pass relies on what another one read, files that are replaced meanwhile end the fold.

use arrow::array::RecordBatch;

use super::chain::Link;
use super::directory::{FileMark, SnapshotFile};
use super::effect::{Effect, Rest, Share};
use super::pieces::Pieces;
use super::reader::Batches;
use super::shape::Shape;
use crate::error::{Error, Result};
use crate::schema::View;

/// The rows of a batch of folded rows.
const BATCH_ROWS: usize = 8192;

/// The rows of a snapshot after the changes of `links`.
///
/// The batches that it yields may be empty: each call does a bounded piece of work, so that a reader that goes away is
/// noticed in time.
pub(crate) struct Fold {
    view: View,
    snapshot: SnapshotFile,
    links: Vec<Link>,
    memory: u64,
    shares: Vec<Share>,
    marks: Vec<FileMark>,
    stage: Stage,
}

enum Stage {
    /// Takes the next share.
    Start,
    /// Collects the changes of a share: those of the links from the number on, and of an open one.
    Changes(Share, Box<Effect>, usize, Option<Box<Pieces>>),
    /// Reads the snapshot past them.
    Snapshot(Box<Effect>, Box<Batches>),
    /// Adds what the changes left.
    Rest(Box<Rest>),
    /// Nothing is left, or something failed.
    End,
}

impl Fold {
    /// Folds within about `memory` bytes.
    pub(crate) fn new(view: &View, snapshot: SnapshotFile, links: Vec<Link>, memory: u64) -> Result<Self> {
        let (shares, marks) = (vec![Share::ALL], marks(&snapshot, &links)?);
        Ok(Self { view: view.clone(), snapshot, links, memory, shares, marks, stage: Stage::Start })
    }

    fn advance(&mut self, stage: Stage) -> Result<(Stage, Option<RecordBatch>)> {
        match stage {
            Stage::Start => match self.shares.pop() {
                Some(share) => Ok((Stage::Changes(share, Box::new(Effect::new(&self.view, share)?), 0, None), None)),
                None if marks(&self.snapshot, &self.links)? == self.marks => Ok((Stage::End, None)),
                None => Err(Error::unavailable(format!(
                    "{}, or a file of changes after it, was replaced while it was read; a landed file must stay as it is",
                    self.snapshot.landed
                ))),
            },
            Stage::Changes(share, effect, next, pieces) => Ok((self.collect(share, effect, next, pieces)?, None)),
            Stage::Snapshot(mut effect, mut batches) => match batches.next().transpose()? {
                Some(batch) => {
                    let rows = effect.untouched(batch)?;
                    Ok((Stage::Snapshot(effect, batches), Some(rows)))
                }
                None => Ok((Stage::Rest(Box::new(effect.into_rest()?)), None)),
            },
            Stage::Rest(mut rest) => match rest.batch(BATCH_ROWS)? {
                Some(batch) => Ok((Stage::Rest(rest), Some(batch))),
                None => Ok((Stage::Start, None)),
            },
            Stage::End => Ok((Stage::End, None)),
        }
    }

    /// One more answer of the links' changes, or the turn to the snapshot.
    fn collect(
        &mut self,
        share: Share,
        mut effect: Box<Effect>,
        next: usize,
        pieces: Option<Box<Pieces>>,
    ) -> Result<Stage> {
        let Some(link) = self.links.get(next) else {
            let rows = Batches::new(&self.snapshot.landed, Shape::Rows(self.view.clone()));
            return Ok(Stage::Snapshot(effect, Box::new(rows)));
        };
        let mut pieces = match pieces {
            Some(pieces) => pieces,
            None => Box::new(Pieces::open(&link.file, &self.view, link.range.from())?),
        };
        let (end, changes) = (link.range.to(), pieces.next()?);
        let Some(changes) = changes.map(|changes| changes.until(end)).transpose()?.flatten() else {
            return Ok(Stage::Changes(share, effect, next + 1, None));
        };
        for batch in changes.batches() {
            effect.add(batch)?;
            if effect.bytes() > self.memory && effect.len() > 1 && share.is_divisible() {
                self.shares.extend(share.halves());
                return Ok(Stage::Start);
            }
        }
        Ok(if pieces.reached() < end {
            Stage::Changes(share, effect, next, Some(pieces))
        } else {
            Stage::Changes(share, effect, next + 1, None)
        })
    }
}

fn marks(snapshot: &SnapshotFile, links: &[Link]) -> Result<Vec<FileMark>> {
    let mut marks = snapshot.landed.marks()?;
    for link in links {
        marks.extend(link.file.landed.marks()?);
    }
    Ok(marks)
}

impl Iterator for Fold {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match std::mem::replace(&mut self.stage, Stage::End) {
            Stage::End => None,
            stage => Some(self.advance(stage).map(|(stage, batch)| {
                self.stage = stage;
                batch.unwrap_or_else(|| RecordBatch::new_empty(self.view.schema().clone()))
            })),
        }
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
