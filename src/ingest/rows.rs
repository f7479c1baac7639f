//! Lines of JSON to operations.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};

use super::envelope::{Envelope, Gaps, Stated, entries, is_unavailable, refused};
use super::operations::{Gathering, Partial, Place};
use super::{Limits, REMEDY_ROOM};
use crate::change::Op;
use crate::error::{Error, Result};
use crate::json::{Names, Record, Room};
use crate::schema::View;

/// A batch ends at this many rows.
const BATCH_ROWS: usize = 8192;

/// Rows that are being read from lines.
pub(super) struct Rows {
    view: View,
    envelope: Envelope,
    record: Record,
    room: Room,
    key: Vec<usize>,
    ops: Vec<Op>,
    partial: Vec<Partial>,
    /// Most updates lack the same columns as others.
    absences: HashSet<Arc<[bool]>>,
}

impl Rows {
    pub(super) fn new(view: &View, envelope: Envelope, limits: Limits) -> Result<Self> {
        Ok(Self {
            view: view.clone(),
            envelope,
            record: Record::new(view.schema().fields(), Names::AnyCase)?,
            room: Room::new(limits.unfolded, REMEDY_ROOM),
            key: view.key_indices(),
            ops: Vec::new(),
            partial: Vec::new(),
            absences: HashSet::new(),
        })
    }

    /// Reads line `number`.
    pub(super) fn line(&mut self, number: u64, line: &str, into: &mut Gathering) -> Result<()> {
        for stated in self.envelope.open(number, line, &self.view)? {
            self.operation(number, &stated)?;
        }
        if self.ops.len() >= BATCH_ROWS { self.flush(into) } else { Ok(()) }
    }

    /// Hands over what was read.
    pub(super) fn flush(&mut self, into: &mut Gathering) -> Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(self.ops.len()));
        let columns = self.record.finish()?;
        let rows = RecordBatch::try_new_with_options(Arc::clone(self.view.schema()), columns, &options)
            .map_err(|e| Error::internal("the lines made no batch").with_source(e))?;
        into.add(&std::mem::take(&mut self.ops), &rows, std::mem::take(&mut self.partial))
    }

    fn operation(&mut self, number: u64, stated: &Stated<'_>) -> Result<()> {
        let misplaced = |why| refused(number, why);
        let row = entries(number, stated.row)?;
        let mut cells = self.record.cells(&row).map_err(misplaced)?;
        let mut absent = vec![false; cells.len()];
        match stated.gaps {
            Gaps::Null => {}
            Gaps::Kept => absent = cells.iter().map(Option::is_none).collect(),
            Gaps::Unavailable(before) => {
                for ((cell, absent), field) in cells.iter_mut().zip(&mut absent).zip(self.record.fields()) {
                    *absent = cell.is_some_and(|json| is_unavailable(json, field.data_type()));
                    *cell = cell.filter(|_| !*absent);
                }
                if let Some(before) = before {
                    let before = self.record.cells(&entries(number, before)?).map_err(misplaced)?;
                    if self.key.iter().any(|i| before.get(*i) != cells.get(*i)) {
                        let why = "an update of the key has unavailable values; let the database log whole rows";
                        return Err(refused(number, why));
                    }
                }
            }
        }
        self.record.append_cells(&cells, &mut self.room).map_err(misplaced)?;
        // What an operation takes beside its row: a letter with its offset, in two places.
        self.take(number, 16)?;
        if stated.op == Op::Update && absent.contains(&true) {
            self.partial(number, absent)?;
        }
        self.ops.push(stated.op);
        Ok(())
    }

    fn partial(&mut self, number: u64, absent: Vec<bool>) -> Result<()> {
        let absent = match self.absences.get(absent.as_slice()) {
            Some(known) => Arc::clone(known),
            None => {
                self.take(number, absent.len() as u64)?;
                let absent: Arc<[bool]> = absent.into();
                self.absences.insert(Arc::clone(&absent));
                absent
            }
        };
        self.take(number, size_of::<Partial>() as u64)?;
        self.partial.push(Partial { row: self.ops.len(), place: Place::Line(number), absent });
        Ok(())
    }

    fn take(&mut self, number: u64, bytes: u64) -> Result<()> {
        self.room.take(bytes).map_err(|why| refused(number, why))
    }
}
