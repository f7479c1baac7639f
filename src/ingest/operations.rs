//! The operations of one step, in the order in which they were sent.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::nullif;
use arrow::datatypes::{Schema, SchemaRef};

use super::content::{Content, ContentHasher};
use crate::change::Op;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::schema::View;

/// The operations of one request on a view.
///
/// Its debug form shows counts and no rows.
pub struct Operations {
    pub(super) view: View,
    pub(super) batches: Vec<RecordBatch>,
    pub(super) partial: Vec<Partial>,
    rows: u64,
    content: Content,
}

/// An update that names some columns only: the others keep what the view's row has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partial {
    /// Which row it is, counted through all batches from 0.
    pub row: usize,
    /// Where it stood in the request.
    pub place: Place,
    /// For each column of the view, whether it is absent. Such a cell is null in the batch and says nothing.
    pub absent: Arc<[bool]>,
}

/// Where something stands in a request; all counts begin at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line of text.
    Line(u64),
    /// A row of an Arrow batch.
    Row {
        /// The batch.
        batch: u64,
        /// The row within it.
        row: u64,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Row { batch, row } => write!(f, "batch {batch} row {row}"),
        }
    }
}

impl Operations {
    /// How many operations there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// What the request means.
    pub fn content(&self) -> Content {
        self.content
    }

    /// The operations in order: `__op`, then the view's columns. Deletes from a keyed view have its key alone.
    ///
    /// Updates among [`Operations::partial`] are not whole; [`Operations::resolve`] makes them so.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The updates that name some columns only, in order.
    pub fn partial(&self) -> &[Partial] {
        &self.partial
    }

    /// The columns of operations: those of [`View::change_schema`] without the step.
    pub fn schema(view: &View) -> SchemaRef {
        Arc::new(Schema::new(view.change_schema().fields().iter().skip(1).cloned().collect::<Vec<_>>()))
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Operations");
        shown.field("view", &self.view.name()).field("rows", &self.rows).field("partial", &self.partial.len());
        shown.field("content", &self.content).finish_non_exhaustive()
    }
}

/// Operations that are being put together.
pub(super) struct Gathering {
    view: View,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    partial: Vec<Partial>,
    rows: usize,
    content: ContentHasher,
}

impl Gathering {
    pub(super) fn new(view: &View) -> Self {
        Self {
            view: view.clone(),
            schema: Operations::schema(view),
            batches: Vec::new(),
            partial: Vec::new(),
            rows: 0,
            content: ContentHasher::new(view),
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// Adds operations on `rows`, which have the view's schema; `partial` counts rows from the first of these.
    pub(super) fn add(&mut self, ops: &[Op], rows: &RecordBatch, partial: Vec<Partial>) -> Result<()> {
        let failed = |e| Error::internal("operations made no batch").with_source(e);
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(StringArray::from_iter_values(ops.iter().map(|op| op.letter())))];
        let deleted: BooleanArray = ops.iter().map(|op| Some(*op == Op::Delete)).collect();
        let is_cut = self.view.is_keyed() && deleted.true_count() > 0;
        for (field, column) in self.view.schema().fields().iter().zip(rows.columns()) {
            let outside_key = !self.view.key().contains(field.name());
            let column =
                if is_cut && outside_key { nullif(column, &deleted).map_err(failed)? } else { Arc::clone(column) };
            columns.push(column);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(failed)?;
        let indices: Vec<usize> = (1..batch.num_columns()).collect();
        let digests = Digest::of_rows(&batch.project(&indices).map_err(failed)?)?;
        let mut partials = partial.iter().peekable();
        for (i, (op, digest)) in ops.iter().zip(digests).enumerate() {
            let absent = partials.next_if(|p| p.row == i).map(|p| p.absent.as_ref());
            self.content.add(*op, digest, absent);
        }
        self.partial.extend(partial.into_iter().map(|p| Partial { row: self.rows + p.row, ..p }));
        self.rows += ops.len();
        if batch.num_rows() > 0 {
            self.batches.push(batch);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Operations {
        let content = self.content.finish();
        let Self { view, batches, partial, rows, .. } = self;
        Operations { view, batches, partial, rows: rows as u64, content }
    }
}
