//! A change file as a row of answers, each of whole steps.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use arrow::compute::interleave_record_batch;

use super::directory::ChangeFile;
use super::reader::{Batches, bytes_of, is_sorted};
use super::shape::Shape;
use crate::change::{Changes, steps_of};
use crate::error::{Error, Result};
use crate::schema::View;
use crate::source::rows::Rows;
use crate::step::{Step, StepRange};

/// An answer ends with the first whole step beyond this many bytes.
const PIECE_BYTES: usize = 32 << 20;
/// A file below this size in memory is read whole, without a first look at its steps.
const WHOLE_BYTES: u64 = 64 << 20;
/// The rows of a batch that is put together from unsorted ones.
const BATCH_ROWS: usize = 8192;

/// An open change file, read in step order.
///
/// ```text
///   file.from        after       reached                    file.to
///      ┤───skipped─────┤───given────┤──pending──┄┄┄┄┄┄┄┄┄┄┄┄┄┄┤
/// ```
pub(crate) struct Pieces {
    file: ChangeFile,
    reached: Step,
    rows: Rows,
    pending: VecDeque<RecordBatch>,
    pending_bytes: usize,
    piece_bytes: usize,
}

impl Pieces {
    /// Opens `file` behind step `after`, which lies before the file's end.
    pub(crate) fn open(file: &ChangeFile, view: &View, after: Step) -> Result<Self> {
        let batches = Batches::new(&file.landed, Shape::Changes(view.clone(), file.range));
        let rows: Rows = if bytes_of(&file.landed)? >= WHOLE_BYTES && is_sorted(file, view)? {
            Box::new(batches)
        } else {
            in_step_order(batches.collect::<Result<_>>()?)?
        };
        Ok(Self {
            file: file.clone(),
            reached: after.max(file.range.from()),
            rows,
            pending: VecDeque::new(),
            pending_bytes: 0,
            piece_bytes: PIECE_BYTES,
        })
    }

    /// The file's name.
    pub(crate) fn name(&self) -> &str {
        &self.file.landed.name
    }

    /// Where the last answer ended.
    pub(crate) fn reached(&self) -> Step {
        self.reached
    }

    /// The changes of the next whole steps; `None` when the file's end is reached.
    pub(crate) fn next(&mut self) -> Result<Option<Changes>> {
        let to = self.file.range.to();
        if self.reached >= to {
            return Ok(None);
        }
        loop {
            let Some(batch) = self.rows.next().transpose()? else {
                let rest = std::mem::take(&mut self.pending);
                return self.answer(to, rest.into());
            };
            let Some(batch) = beyond(batch, self.reached)? else { continue };
            self.pending_bytes += size_of(&batch);
            self.pending.push_back(batch);
            if self.pending_bytes >= self.piece_bytes
                && let Some((end, batches)) = self.cut()?
            {
                return self.answer(end, batches);
            }
        }
    }

    fn answer(&mut self, end: Step, batches: Vec<RecordBatch>) -> Result<Option<Changes>> {
        let changes = Changes::new(StepRange::new(self.reached, end)?, batches)?;
        self.reached = end;
        Ok(Some(changes))
    }

    /// The pending rows of all steps but the last, of which more may follow; `None` when it is the only one.
    fn cut(&mut self) -> Result<Option<(Step, Vec<RecordBatch>)>> {
        let Some(open) = self.pending.back().map(last_step).transpose()?.flatten() else { return Ok(None) };
        let mut rest = VecDeque::new();
        while let Some(batch) = self.pending.pop_back() {
            let keep = steps_of(&batch)?.values().partition_point(|step| *step < open);
            if keep < batch.num_rows() {
                rest.push_front(batch.slice(keep, batch.num_rows() - keep));
            }
            if keep > 0 {
                self.pending.push_back(batch.slice(0, keep));
                break;
            }
        }
        let whole = Vec::from(std::mem::replace(&mut self.pending, rest));
        let Some(end) = whole.last().map(last_step).transpose()?.flatten() else { return Ok(None) };
        self.pending_bytes = self.pending.iter().map(size_of).sum();
        Ok(Some((Step::from_i64(end)?, whole)))
    }
}

fn last_step(batch: &RecordBatch) -> Result<Option<i64>> {
    Ok(steps_of(batch)?.values().last().copied())
}

/// The bytes of the batch's own rows, whatever memory they share with others.
fn size_of(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|c| c.to_data().get_slice_memory_size().unwrap_or(c.get_array_memory_size())).sum()
}

/// The rows of a batch in step order that lie behind `after`.
fn beyond(batch: RecordBatch, after: Step) -> Result<Option<RecordBatch>> {
    let skip = steps_of(&batch)?.values().partition_point(|step| *step <= after.as_i64());
    Ok((skip < batch.num_rows()).then(|| batch.slice(skip, batch.num_rows() - skip)))
}

/// The rows sorted by step; rows of one step keep their order.
fn in_step_order(batches: Vec<RecordBatch>) -> Result<Rows> {
    let mut order: Vec<(i64, usize, usize)> = Vec::new();
    for (b, batch) in batches.iter().enumerate() {
        order.extend(steps_of(batch)?.values().iter().enumerate().map(|(row, step)| (*step, b, row)));
    }
    if order.is_sorted_by_key(|(step, _, _)| *step) {
        return Ok(Box::new(batches.into_iter().map(Ok)));
    }
    order.sort_by_key(|(step, _, _)| *step);
    let mut order = order.into_iter().map(|(_, b, row)| (b, row));
    Ok(Box::new(std::iter::from_fn(move || {
        let rows: Vec<(usize, usize)> = order.by_ref().take(BATCH_ROWS).collect();
        if rows.is_empty() {
            return None;
        }
        let refs: Vec<&RecordBatch> = batches.iter().collect();
        Some(
            interleave_record_batch(&refs, &rows)
                .map_err(|e| Error::internal("changes were not sorted").with_source(e)),
        )
    })))
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
