//! A view's rows as they were when somebody pinned them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use fjall::{Database, Iter, Keyspace, Readable, Slice, Snapshot};

use super::encoding::{Bucket, Encoding, ROW};
use super::{STAND, read_stand};
use crate::embedded::Place;
use crate::error::Result;
use crate::step::Step;

/// What a batch has at most: rows, and bytes of them but for one row.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: usize = 4 << 20;

/// Reads a store beside its owner.
#[derive(Clone)]
pub struct Pins {
    pub(super) database: Database,
    pub(super) keyspace: Keyspace,
    pub(super) encoding: Arc<Encoding>,
    pub(super) place: Place,
}

impl Pins {
    /// The rows as they are, at one step. Whatever is applied later does not change them, and is not held up; what it
    /// replaces stays on disk until the last one that sees it is dropped.
    pub fn pin(&self) -> Result<Pinned> {
        let snapshot = self.database.snapshot();
        let found = snapshot.get(&self.keyspace, STAND).map_err(|e| self.place.error(e))?;
        let (step, rows) = found
            .and_then(|bytes| read_stand(&bytes))
            .ok_or_else(|| self.place.damaged("it does not say where it stands"))?;
        Ok(Pinned { step, rows, snapshot, pins: self.clone() })
    }
}

/// The rows of a view at one step.
pub struct Pinned {
    /// The step.
    pub step: Step,
    /// How many rows there are.
    pub rows: u64,
    snapshot: Snapshot,
    pins: Pins,
}

impl Pinned {
    /// All rows, in batches of at most 8,192 rows and 4 MiB, but for single rows that are larger. Each is read when it is
    /// asked for.
    pub fn batches(self) -> Batches {
        Arc::new(self).shared_batches()
    }

    /// The same for one of several who read the same rows, each at its own pace.
    pub fn shared_batches(self: &Arc<Self>) -> Batches {
        let iter = self.snapshot.range(&self.pins.keyspace, [ROW]..[ROW + 1]);
        Batches { iter, left: self.rows, repeated: None, pinned: Arc::clone(self), has_ended: false }
    }
}

/// Reads pinned rows batch by batch.
pub struct Batches {
    iter: Iter,
    /// The rows that are still to come, by the count of who wrote them.
    left: u64,
    /// A row of which more copies follow, and those of its hash.
    repeated: Option<Bucket>,
    pinned: Arc<Pinned>,
    has_ended: bool,
}

impl Batches {
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        let (mut rows, mut bytes) = (Vec::<Slice>::new(), 0);
        while rows.len() < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some(row) = self.row()? else { break };
            bytes += row.len();
            rows.push(row);
        }
        let count = rows.len() as u64;
        if count > self.left || (count == 0 && self.left > 0) {
            return Err(self.pinned.pins.place.damaged("it holds another number of rows than was counted"));
        }
        self.left -= count;
        if rows.is_empty() {
            return Ok(None);
        }
        self.pinned.pins.encoding.decode(rows.iter().map(AsRef::as_ref)).map(Some)
    }

    fn row(&mut self) -> Result<Option<Slice>> {
        loop {
            while let Some(bucket) = &mut self.repeated {
                match bucket.0.last_mut() {
                    Some((0, _)) => drop(bucket.0.pop()),
                    Some((count, row)) => {
                        *count -= 1;
                        return Ok(Some(row.as_slice().into()));
                    }
                    None => self.repeated = None,
                }
            }
            let Some(guard) = self.iter.next() else { return Ok(None) };
            let value = guard.value().map_err(|e| self.pinned.pins.place.error(e))?;
            if self.pinned.pins.encoding.view.is_keyed() {
                return Ok(Some(value));
            }
            let bucket = Bucket::decode(&value);
            self.repeated = Some(bucket.ok_or_else(|| self.pinned.pins.place.damaged("a row in it does not decode"))?);
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let batch = self.read().transpose();
        self.has_ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}
