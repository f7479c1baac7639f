//! Changes of a view's rows, and their netting within each step.
//!
//! A batch of changes has the columns of [`View::change_schema`]: `__step`, `__op`, then the view's.
//! Netting leaves at most one row per step and key in a keyed view; in a view without key, inserts and
//! deletes of equal rows within a step cancel. Steps are never netted against each other.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, nullif, take, take_record_batch};
use arrow::datatypes::Int64Type;
use arrow::row::{RowConverter, SortField};

use crate::continuity::stamp::{COLUMN_OP, COLUMN_STEP, RowCounts};
use crate::error::{Error, Result};
use crate::schema::View;
use crate::step::{Step, StepRange};

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// A row appeared.
    Insert,
    /// The new row of a key that existed.
    Update,
    /// A row went away.
    Delete,
}

impl Op {
    /// The letter in the table's `__op`.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Insert => "i",
            Self::Update => "u",
            Self::Delete => "d",
        }
    }

    /// The operation of a letter.
    pub fn from_letter(letter: &str) -> Option<Self> {
        match letter {
            "i" => Some(Self::Insert),
            "u" => Some(Self::Update),
            "d" => Some(Self::Delete),
            _ => None,
        }
    }
}

/// The changes of whole steps: every change in `range`, and none outside it.
#[derive(Debug, Clone)]
pub struct Changes {
    range: StepRange,
    batches: Vec<RecordBatch>,
    position: Option<String>,
}

impl Changes {
    /// Changes of the steps in `range`; `batches` have [`View::change_schema`], in step order.
    ///
    /// Refused when a row's step lies outside `range` or goes back, or its operation is unknown.
    pub fn new(range: StepRange, batches: Vec<RecordBatch>) -> Result<Self> {
        let mut last = range.from();
        for batch in &batches {
            for step in steps_of(batch)?.iter() {
                let step = step.ok_or_else(|| Error::refused(format!("a change in {range} has no step")))?;
                let step = Step::from_i64(step)?;
                if !range.contains(step) {
                    return Err(Error::refused(format!("a change of step {step} stands among those of {range}")));
                }
                if step < last {
                    return Err(Error::refused(format!("a change of step {step} stands behind one of step {last}")));
                }
                last = step;
            }
        }
        Ok(Self { range, batches, position: None })
    }

    /// The same changes, with the source's own word for where they end.
    #[must_use]
    pub fn at_position(mut self, position: impl Into<String>) -> Self {
        self.position = Some(position.into());
        self
    }

    /// The source's own word for where the changes end.
    pub fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// The steps covered.
    pub fn range(&self) -> StepRange {
        self.range
    }

    /// The changes, in step order.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The number of changes.
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|b| b.num_rows() as u64).sum()
    }

    /// The memory that the changes take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.batches.iter().map(|b| b.get_array_memory_size() as u64).sum()
    }

    /// These changes and those that follow, which must start where these end.
    pub fn join(mut self, next: Changes) -> Result<Self> {
        self.range = self.range.join(next.range)?;
        self.batches.extend(next.batches);
        self.position = next.position;
        Ok(self)
    }

    /// The changes after step `at`; `None` when the range ends there.
    pub fn after(self, at: Step) -> Result<Option<Self>> {
        let Some(range) = self.range.after(at) else { return Ok(None) };
        self.restrict(range).map(Some)
    }

    /// The changes up to and including step `at`; `None` when the range starts there.
    pub fn until(self, at: Step) -> Result<Option<Self>> {
        let Some(range) = self.range.until(at) else { return Ok(None) };
        self.restrict(range).map(Some)
    }

    /// The same changes in parts of whole steps, each with at most `rows` changes but for those of one step.
    pub fn split(self, rows: u64) -> Result<Vec<Self>> {
        if self.rows() <= rows {
            return Ok(vec![self]);
        }
        let mut parts = Vec::new();
        let mut part = Part { from: self.range.from(), last: None, rows: 0, batches: Vec::new() };
        for batch in &self.batches {
            let steps = steps_of(batch)?.values();
            let mut begin = 0;
            while let Some(step) = steps.get(begin).copied() {
                let end = begin + steps.get(begin..).unwrap_or_default().partition_point(|s| *s == step);
                let more = (end - begin) as u64;
                let is_new = part.last != Some(step);
                if is_new && part.rows > 0 && part.rows + more > rows {
                    let to = Step::from_i64(part.last.unwrap_or(step))?;
                    parts.push(part.close(to, self.position.clone())?);
                    part = Part { from: to, last: None, rows: 0, batches: Vec::new() };
                }
                part.batches.push(batch.slice(begin, end - begin));
                part.rows += more;
                part.last = Some(step);
                begin = end;
            }
        }
        parts.push(part.close(self.range.to(), self.position)?);
        Ok(parts)
    }

    fn restrict(self, range: StepRange) -> Result<Self> {
        if range == self.range {
            return Ok(self);
        }
        let mut batches = Vec::with_capacity(self.batches.len());
        for batch in &self.batches {
            let keep: BooleanArray = steps_of(batch)?
                .iter()
                .map(|s| s.map(|s| Step::from_i64(s).is_ok_and(|s| range.contains(s))))
                .collect();
            let batch = filter_record_batch(batch, &keep)
                .map_err(|e| Error::internal("changes were not cut").with_source(e))?;
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
        }
        Ok(Self { range, batches, position: self.position })
    }

    /// The last change of each key of all steps, in the order of these changes; the view has a key.
    pub(crate) fn last_of_each_key(&self, view: &View) -> Result<RecordBatch> {
        let all = self.in_one(view)?;
        let columns = key_columns(&all, view)?;
        let rows = RowKeys::new(&columns)?.convert(&columns)?;
        let mut lasts: HashMap<&[u8], u32> = HashMap::with_capacity(all.num_rows());
        for (i, at) in (0..all.num_rows()).zip(0u32..) {
            lasts.insert(rows.row(i).data(), at);
        }
        let mut kept: Vec<u32> = lasts.into_values().collect();
        kept.sort_unstable();
        take_record_batch(&all, &UInt32Array::from(kept))
            .map_err(|e| Error::internal("the last changes were not selected").with_source(e))
    }

    fn in_one(&self, view: &View) -> Result<RecordBatch> {
        concat_batches(&view.change_schema(), &self.batches).map_err(|e| {
            Error::incompatible(format!("changes in {} do not fit the view {}", self.range, view.name())).with_source(e)
        })
    }

    /// One batch with the changes netted within each step, in step order, and its counts.
    pub fn net(&self, view: &View) -> Result<(RecordBatch, RowCounts)> {
        let all = self.in_one(view)?;
        let ops = ops_of(&all)?;
        let kept = if view.is_keyed() { net_keyed(&all, &ops, view)? } else { net_keyless(&all, &ops, view)? };
        let mut counts = RowCounts::default();
        for (_, op) in &kept {
            match op {
                Op::Insert => counts.i += 1,
                Op::Update => counts.u += 1,
                Op::Delete => counts.d += 1,
            }
        }
        Ok((select(&all, &kept, view)?, counts))
    }
}

/// A part of changes that is being put together.
struct Part {
    from: Step,
    last: Option<i64>,
    rows: u64,
    batches: Vec<RecordBatch>,
}

impl Part {
    fn close(self, to: Step, position: Option<String>) -> Result<Changes> {
        Ok(Changes { range: StepRange::new(self.from, to)?, batches: self.batches, position })
    }
}

/// A column of a batch of changes, by its name.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| Error::internal(format!("a batch of changes lacks the column {name}")))
}

/// The column `__step` of a batch of changes.
pub(crate) fn steps_of(batch: &RecordBatch) -> Result<&Int64Array> {
    column(batch, COLUMN_STEP)?
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| Error::internal(format!("{COLUMN_STEP} is not a bigint")))
}

/// The column `__op` of a batch of changes, decoded.
pub(crate) fn ops_of(batch: &RecordBatch) -> Result<Vec<Op>> {
    let letters = column(batch, COLUMN_OP)?
        .as_string_opt::<i32>()
        .ok_or_else(|| Error::internal(format!("{COLUMN_OP} is not a string")))?;
    letters
        .iter()
        .map(|letter| {
            letter.and_then(Op::from_letter).ok_or_else(|| {
                Error::refused(format!("the operation {:?} is none of i, u and d", letter.unwrap_or("null")))
            })
        })
        .collect()
}

/// Rows as bytes that are equal when the rows are, for use as hash keys.
pub(crate) struct RowKeys {
    converter: RowConverter,
}

impl RowKeys {
    /// For rows with columns of the types of these.
    pub(crate) fn new(columns: &[ArrayRef]) -> Result<Self> {
        let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
        let converter =
            RowConverter::new(fields).map_err(|e| Error::internal("rows cannot be compared").with_source(e))?;
        Ok(Self { converter })
    }

    /// The bytes of each row.
    pub(crate) fn convert(&self, columns: &[ArrayRef]) -> Result<arrow::row::Rows> {
        self.converter.convert_columns(columns).map_err(|e| Error::internal("rows were not encoded").with_source(e))
    }

    /// The columns of rows whose bytes [`RowKeys::convert`] gave.
    pub(crate) fn restore<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<ArrayRef>> {
        let parser = self.converter.parser();
        let columns = self.converter.convert_rows(rows.into_iter().map(|row| parser.parse(row)));
        columns.map_err(|e| Error::internal("rows were not decoded").with_source(e))
    }
}

/// The columns of the key, none of which has a null.
fn key_columns(all: &RecordBatch, view: &View) -> Result<Vec<ArrayRef>> {
    let columns = view.key().iter().map(|name| {
        let values = column(all, name)?;
        if values.null_count() > 0 {
            return Err(Error::refused(format!("view {}: a change has null in the key column {name:?}", view.name())));
        }
        Ok(Arc::clone(values))
    });
    columns.collect()
}

/// The rows that stay, with their net operation, in the order of their last change.
fn net_keyed(all: &RecordBatch, ops: &[Op], view: &View) -> Result<Vec<(usize, Op)>> {
    let mut columns = vec![Arc::clone(column(all, COLUMN_STEP)?)];
    columns.extend(key_columns(all, view)?);
    let rows = RowKeys::new(&columns)?.convert(&columns)?;
    let mut firsts_lasts: HashMap<&[u8], (Op, usize)> = HashMap::with_capacity(ops.len());
    for (i, op) in ops.iter().enumerate() {
        firsts_lasts.entry(rows.row(i).data()).and_modify(|(_, last)| *last = i).or_insert((*op, i));
    }
    let mut kept: Vec<(usize, Op)> = firsts_lasts
        .into_values()
        .filter_map(|(first, last)| {
            let net = match (first, ops.get(last)?) {
                (_, Op::Delete) => Op::Delete,
                (Op::Insert, _) => Op::Insert,
                (Op::Update | Op::Delete, _) => Op::Update,
            };
            Some((last, net))
        })
        .collect();
    kept.sort_unstable_by_key(|(i, _)| *i);
    Ok(kept)
}

/// As many copies of each row as inserts and deletes of it within its step do not cancel.
fn net_keyless(all: &RecordBatch, ops: &[Op], view: &View) -> Result<Vec<(usize, Op)>> {
    let mut columns = vec![Arc::clone(column(all, COLUMN_STEP)?)];
    for field in view.schema().fields() {
        columns.push(Arc::clone(column(all, field.name())?));
    }
    let rows = RowKeys::new(&columns)?.convert(&columns)?;
    let mut nets: HashMap<&[u8], (i64, usize)> = HashMap::with_capacity(ops.len());
    for (i, op) in ops.iter().enumerate() {
        let weight = match op {
            Op::Insert => 1,
            Op::Delete => -1,
            Op::Update => {
                return Err(Error::refused(format!(
                    "view {} has no key, so it has no updates; send a delete of the old row and an insert of the new one, or declare the key",
                    view.name()
                )));
            }
        };
        nets.entry(rows.row(i).data()).and_modify(|(net, _)| *net += weight).or_insert((weight, i));
    }
    let mut kept: Vec<(usize, Op)> = Vec::with_capacity(nets.len());
    for (net, i) in nets.into_values() {
        let op = if net > 0 { Op::Insert } else { Op::Delete };
        kept.extend(std::iter::repeat_n((i, op), usize::try_from(net.unsigned_abs()).unwrap_or(0)));
    }
    kept.sort_unstable_by_key(|(i, _)| *i);
    Ok(kept)
}

fn select(all: &RecordBatch, kept: &[(usize, Op)], view: &View) -> Result<RecordBatch> {
    let broken = |e| Error::internal("netted changes were not selected").with_source(e);
    let indices = UInt32Array::from_iter_values(kept.iter().map(|(i, _)| *i as u32));
    let deleted = BooleanArray::from_iter(kept.iter().map(|(_, op)| Some(*op == Op::Delete)));
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(all.num_columns());
    for (field, values) in all.schema_ref().fields().iter().zip(all.columns()) {
        let name = field.name().as_str();
        columns.push(if name == COLUMN_OP {
            Arc::new(StringArray::from_iter_values(kept.iter().map(|(_, op)| op.letter())))
        } else {
            let taken = take(values, &indices, None).map_err(broken)?;
            let outside_key = name != COLUMN_STEP && !view.key().iter().any(|k| k == name);
            if view.is_keyed() && outside_key { nullif(&taken, &deleted).map_err(broken)? } else { taken }
        });
    }
    RecordBatch::try_new(all.schema(), columns).map_err(broken)
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
