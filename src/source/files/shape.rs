//! What the rows of a file must look like.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use std::sync::Arc;

use crate::change::Op;
use crate::continuity::stamp::{COLUMN_OP, COLUMN_STEP};
use crate::error::{Error, Result};
use crate::schema::View;
use crate::step::{Step, StepRange};

/// What a file holds.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// Rows of the view.
    Rows(View),
    /// Changes of the view, all of them in the range.
    Changes(View, StepRange),
}

impl Shape {
    /// The columns of a batch.
    pub(crate) fn schema(&self) -> SchemaRef {
        match self {
            Self::Rows(view) => Arc::clone(view.schema()),
            Self::Changes(view, _) => view.change_schema(),
        }
    }

    /// Why a row of this step may not stand in the file.
    pub(crate) fn check_step(&self, step: i64) -> Result<(), String> {
        match self {
            Self::Rows(_) => Ok(()),
            Self::Changes(_, range) => match Step::from_i64(step) {
                Ok(step) if range.contains(step) => Ok(()),
                _ => Err(format!("step {step} is outside the file's range {range}")),
            },
        }
    }

    /// A batch of a Parquet or Arrow file in the view's types, or the first row that may not stand there.
    ///
    /// A column that the file lacks and that may be null was added later, and is null here. `before` is the number of rows
    /// of the file before this batch; rows count from 1.
    pub(crate) fn conform(&self, batch: &RecordBatch, label: &str, before: u64) -> Result<RecordBatch> {
        match self {
            Self::Rows(view) => view.conform(&padded(batch, view)?, label),
            Self::Changes(view, _) => {
                let batch = view.conform_changes(&padded(&plain_marks(batch, label, before)?, view)?, label)?;
                self.check_changes(&batch, view)
                    .map_err(|(row, why)| Error::refused(format!("{label} row {}: {why}", before + row as u64 + 1)))?;
                Ok(batch)
            }
        }
    }

    fn check_changes(&self, batch: &RecordBatch, view: &View) -> Result<(), (usize, String)> {
        let steps = batch.column_by_name(COLUMN_STEP).and_then(|c| c.as_primitive_opt::<Int64Type>());
        let ops = batch.column_by_name(COLUMN_OP).and_then(|c| c.as_string_opt::<i32>());
        let (Some(steps), Some(ops)) = (steps, ops) else { return Err((0, "has no step and operation".to_owned())) };
        for (row, (step, op)) in steps.iter().zip(ops.iter()).enumerate() {
            self.check_step(step.unwrap_or(-1)).map_err(|why| (row, why))?;
            match op.and_then(Op::from_letter) {
                None => return Err((row, format!("{COLUMN_OP} is {:?} and not i, u or d", op.unwrap_or("null")))),
                Some(Op::Update) if !view.is_keyed() => {
                    return Err((
                        row,
                        "an update in a view without key; give a delete and an insert, or declare the key".to_owned(),
                    ));
                }
                Some(_) => {}
            }
        }
        for field in view.schema().fields().iter().filter(|f| !f.is_nullable()) {
            let Some(column) = batch.column_by_name(field.name()).filter(|c| c.null_count() > 0) else { continue };
            let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
            return Err((row, format!("column {:?} is null and may not be", field.name())));
        }
        Ok(())
    }
}

/// The batch with a column of nulls for each that the view has beyond it.
fn padded(batch: &RecordBatch, view: &View) -> Result<RecordBatch> {
    let lacking = |f: &&FieldRef| f.is_nullable() && batch.schema_ref().fields().find(f.name()).is_none();
    let lacking: Vec<&FieldRef> = view.schema().fields().iter().filter(lacking).collect();
    if lacking.is_empty() {
        return Ok(batch.clone());
    }
    let (mut fields, mut columns) = (batch.schema_ref().fields().to_vec(), batch.columns().to_vec());
    for field in lacking {
        fields.push(Arc::clone(field));
        columns.push(new_null_array(field.data_type(), batch.num_rows()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|e| Error::internal("columns of nulls were not added").with_source(e))
}

/// The batch with `__step` as a bigint and `__op` as a string, whatever integer and string types they had.
fn plain_marks(batch: &RecordBatch, label: &str, before: u64) -> Result<RecordBatch> {
    let mut fields: Vec<_> = batch.schema_ref().fields().to_vec();
    let mut columns = batch.columns().to_vec();
    for (name, wanted) in [(COLUMN_STEP, DataType::Int64), (COLUMN_OP, DataType::Utf8)] {
        let index = batch.schema_ref().index_of(name).map_err(|_| {
            Error::refused(format!("{label}: a file of changes needs the column {name}, which is missing"))
        })?;
        let (Some(field), Some(column)) = (fields.get_mut(index), columns.get_mut(index)) else { continue };
        let fits = match wanted {
            DataType::Int64 => column.data_type().is_integer(),
            _ => matches!(column.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
        };
        if !fits && column.data_type() != &DataType::Null {
            return Err(Error::refused(format!("{label}: {name} is a {}, and not a {wanted}", column.data_type())));
        }
        if let Some(row) = (0..column.len()).find(|row| column.is_null(*row)) {
            return Err(Error::refused(format!("{label} row {}: {name} is null", before + row as u64 + 1)));
        }
        *column = cast_marks(column, &wanted, label)?;
        *field = Arc::new(Field::new(name, wanted, true));
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map_err(|e| Error::internal(format!("{label}: the steps were not read")).with_source(e))
}

fn cast_marks(column: &ArrayRef, wanted: &DataType, label: &str) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(Arc::clone(column));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options)
        .map_err(|e| Error::refused(format!("{label}: a value of {COLUMN_STEP} is beyond every step")).with_source(e))
}
