//! Updates that name some columns only become whole rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::{concat_batches, interleave, take_record_batch};

use super::operations::Operations;
use crate::change::{Op, RowKeys, column, ops_of};
use crate::error::{Error, Result};
use crate::schema::View;

/// The most bytes that updates may take over from the rows before them: many updates may name one large row.
const MAX_KEPT: u64 = 1 << 30;

/// The row from which a partial update takes what it does not name.
#[derive(Clone, Copy)]
enum Base {
    /// An earlier operation of the same request.
    Earlier(usize),
    /// A row of the view, as it is before the request: the place among those asked for.
    Current(usize),
}

impl Operations {
    /// The operations with whole rows: `__op`, then the view's columns; see [`View::change_schema`].
    ///
    /// `current` is asked once, and only where it must be: it gets a batch of distinct keys, with the key's columns in the
    /// key's order, and gives the rows of the view that have them, in any order, as they are before this step. An update
    /// that names some columns and finds no row to take the others from is refused, after a delete of it in the same
    /// request too. Whether rows exist is not asked otherwise.
    pub fn resolve(self, current: impl FnOnce(&RecordBatch) -> Result<RecordBatch>) -> Result<RecordBatch> {
        let failed = |e| Error::internal("operations were not joined").with_source(e);
        let all = concat_batches(&Self::schema(&self.view), &self.batches).map_err(failed)?;
        if self.partial.is_empty() {
            return Ok(all);
        }
        let keys = key_columns(&all, &self.view)?;
        let encoder = RowKeys::new(&keys)?;
        let encoded = encoder.convert(&keys)?;
        let ops = ops_of(&all)?;
        let (mut last, mut wanted) = (HashMap::<&[u8], usize>::new(), HashMap::<&[u8], usize>::new());
        let mut asked: Vec<u64> = Vec::new();
        let mut bases: Vec<Base> = Vec::with_capacity(self.partial.len());
        let mut partial = self.partial.iter().peekable();
        for row in 0..ops.len() {
            let key = encoded.row(row).data();
            if partial.next_if(|p| p.row == row).is_some() {
                bases.push(match last.get(key) {
                    Some(earlier) => Base::Earlier(*earlier),
                    None => Base::Current(*wanted.entry(key).or_insert_with(|| {
                        asked.push(row as u64);
                        asked.len() - 1
                    })),
                });
            }
            last.insert(key, row);
        }
        let names: Vec<usize> = self.view.key().iter().filter_map(|k| all.schema_ref().index_of(k).ok()).collect();
        let asked_keys = take_record_batch(&all.project(&names).map_err(failed)?, &UInt64Array::from(asked));
        let found = if wanted.is_empty() {
            RecordBatch::new_empty(Arc::clone(self.view.schema()))
        } else {
            self.view.conform(&current(&asked_keys.map_err(failed)?)?, "the rows of the view")?
        };
        let found_keys = encoder.convert(&key_columns(&found, &self.view)?)?;
        let places: HashMap<&[u8], usize> = (0..found.num_rows()).map(|i| (found_keys.row(i).data(), i)).collect();
        let mut slots: Vec<Option<usize>> = vec![None; wanted.len()];
        for (key, slot) in &wanted {
            if let Some(slot) = slots.get_mut(*slot) {
                *slot = places.get(key).copied();
            }
        }
        let sources = self.sources(&bases, &slots, &ops)?;
        self.check_size(&all, &found, &sources)?;
        self.filled(&all, &found, &sources)
    }

    /// For each partial update, the batch (0 the operations, 1 the view's rows) and the row that it builds upon.
    fn sources(&self, bases: &[Base], slots: &[Option<usize>], ops: &[Op]) -> Result<Vec<(usize, usize)>> {
        let sources = self.partial.iter().zip(bases).map(|(partial, base)| {
            let source = match base {
                Base::Earlier(row) => ops.get(*row).filter(|op| **op != Op::Delete).map(|_| (0, *row)),
                Base::Current(slot) => slots.get(*slot).copied().flatten().map(|row| (1, row)),
            };
            source.ok_or_else(|| {
                Error::refused(format!(
                    "{}: an update that lacks columns has no row to take them from, since view {} has none of its key; insert the whole row",
                    partial.place,
                    self.view.name()
                ))
            })
        });
        sources.collect()
    }

    fn check_size(&self, all: &RecordBatch, found: &RecordBatch, sources: &[(usize, usize)]) -> Result<()> {
        let columns = |batch: &RecordBatch| -> Result<Vec<ArrayRef>> {
            self.view.schema().fields().iter().map(|f| column(batch, f.name()).cloned()).collect()
        };
        let (own, theirs) = (columns(all)?, columns(found)?);
        let encoder = RowKeys::new(&own)?;
        let (own, theirs) = (encoder.convert(&own)?, encoder.convert(&theirs)?);
        let mut weights: Vec<u64> = own.iter().map(|row| row.data().len() as u64).collect();
        let mut kept = 0u64;
        for (partial, (batch, row)) in self.partial.iter().zip(sources) {
            let weight = match batch {
                0 => weights.get(*row).copied().unwrap_or(0),
                _ => theirs.row(*row).data().len() as u64,
            };
            if let Some(own) = weights.get_mut(partial.row) {
                *own = own.saturating_add(weight);
            }
            kept = kept.saturating_add(weight);
            if kept > MAX_KEPT {
                return Err(Error::refused(format!(
                    "{}: updates that lack columns take over more than {MAX_KEPT} bytes; send them as several steps",
                    partial.place
                )));
            }
        }
        Ok(())
    }

    fn filled(&self, all: &RecordBatch, found: &RecordBatch, sources: &[(usize, usize)]) -> Result<RecordBatch> {
        let failed = |e| Error::internal("updates were not filled").with_source(e);
        let mut columns = vec![Arc::clone(column(all, crate::continuity::stamp::COLUMN_OP)?)];
        for (index, field) in self.view.schema().fields().iter().enumerate() {
            let own = column(all, field.name())?;
            let lacks = |absent: &[bool]| absent.get(index).copied().unwrap_or(false);
            if !self.partial.iter().any(|p| lacks(&p.absent)) {
                columns.push(Arc::clone(own));
                continue;
            }
            let mut cells: Vec<(usize, usize)> = (0..own.len()).map(|row| (0, row)).collect();
            for (partial, source) in self.partial.iter().zip(sources).filter(|(p, _)| lacks(&p.absent)) {
                // An earlier update may itself have taken the cell from elsewhere.
                let cell = if source.0 == 0 { cells.get(source.1).copied().unwrap_or(*source) } else { *source };
                if let Some(slot) = cells.get_mut(partial.row) {
                    *slot = cell;
                }
            }
            columns.push(interleave(&[own, column(found, field.name())?], &cells).map_err(failed)?);
        }
        RecordBatch::try_new(all.schema(), columns).map_err(failed)
    }
}

fn key_columns(batch: &RecordBatch, view: &View) -> Result<Vec<ArrayRef>> {
    view.key().iter().map(|name| column(batch, name).cloned()).collect()
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
