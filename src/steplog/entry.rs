//! A step's changes as the log holds them.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;

use crate::change::Changes;
use crate::continuity::stamp::{COLUMN_STEP, row_columns};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::step::{Step, StepRange};

/// Which step an entry is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The one after the last, whatever that is then.
    Next,
    /// This one, if the log ends at `after` then.
    Step {
        /// The step.
        step: Step,
        /// The step before it.
        after: Step,
    },
}

/// All changes of one step, to be stored.
#[derive(Debug, Clone)]
pub struct Entry {
    pub(super) at: At,
    pub(super) rows: u64,
    pub(super) content: u128,
    pub(super) payload: Bytes,
}

impl Entry {
    /// An entry with the changes in `batches`, which have the columns of
    /// [`View::change_schema`](crate::schema::View::change_schema), with or without `__step`; what stands there is left out,
    /// because the whole entry is one step.
    ///
    /// Two entries count as the same content when they hold the same changes, in any order and in batches of any size.
    pub fn new(at: At, batches: &[RecordBatch]) -> Result<Self> {
        let unwritten = |e| Error::internal("changes were not written for the step log").with_source(e);
        let (mut payload, mut content, mut rows) = (Vec::new(), Digest::EMPTY, 0);
        let batches: Vec<RecordBatch> = batches.iter().map(without_step).collect::<Result<_>>()?;
        if let Some(first) = batches.first() {
            let mut writer = StreamWriter::try_new(&mut payload, first.schema_ref()).map_err(unwritten)?;
            for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
                writer.write(batch).map_err(unwritten)?;
                content = content.plus(Digest::of(batch)?);
                rows += batch.num_rows() as u64;
            }
            writer.finish().map_err(unwritten)?;
        }
        Ok(Self { at, rows, content: content.as_u128(), payload: payload.into() })
    }

    /// A question about a step that the log may hold, of as many changes and this content; it has no place in a log that does
    /// not.
    pub fn question(at: At, rows: u64, content: u128) -> Self {
        Self { at, rows, content, payload: Bytes::new() }
    }

    /// The same entry, which counts as the same content as others of this `content` with as many changes, whatever the
    /// changes are: those of a request may depend on when it came.
    #[must_use]
    pub fn meaning(mut self, content: u128) -> Self {
        self.content = content;
        self
    }

    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// A step that the log holds.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The step.
    pub step: Step,
    /// The step before it.
    pub after: Step,
    /// How many changes it has.
    pub rows: u64,
    pub(super) payload: Bytes,
}

impl Stored {
    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.payload.len() as u64
    }

    /// The columns in which its changes came, and what stands beside them; `None` for a step that has none.
    pub fn schema(&self) -> Result<Option<SchemaRef>> {
        Ok(self.reader()?.map(|reader| reader.schema()))
    }

    /// Its changes, in the columns in which they came.
    pub fn changes(&self) -> Result<Changes> {
        let range = StepRange::new(self.after, self.step)?;
        let Some(reader) = self.reader()? else { return Changes::new(range, Vec::new()) };
        let batches = reader.map(|batch| with_step(&batch.map_err(|e| self.damaged(e))?, self.step));
        Changes::new(range, batches.collect::<Result<_>>()?)
    }

    fn reader(&self) -> Result<Option<StreamReader<&[u8]>>> {
        if self.payload.is_empty() {
            return Ok(None);
        }
        StreamReader::try_new(self.payload.as_ref(), None).map(Some).map_err(|e| self.damaged(e))
    }

    fn damaged(&self, e: ArrowError) -> Error {
        Error::corrupt(format!("step {} in the step log does not decode", self.step)).with_source(e)
    }
}

fn without_step(batch: &RecordBatch) -> Result<RecordBatch> {
    let fields = batch.schema_ref().fields().iter().enumerate();
    let others: Vec<usize> = fields.filter(|(_, field)| field.name() != COLUMN_STEP).map(|(i, _)| i).collect();
    batch.project(&others).map_err(|e| Error::internal("changes were not cut").with_source(e))
}

fn with_step(batch: &RecordBatch, step: Step) -> Result<RecordBatch> {
    let own = row_columns().iter().filter(|field| field.name() == COLUMN_STEP);
    let fields: Vec<FieldRef> = own.chain(batch.schema_ref().fields()).cloned().collect();
    let steps: ArrayRef = Arc::new(Int64Array::from_value(step.as_i64(), batch.num_rows()));
    let columns: Vec<ArrayRef> = std::iter::once(steps).chain(batch.columns().iter().cloned()).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|e| Error::internal("changes were not put together").with_source(e))
}
