//! Parquet and Arrow files as record batches, whatever bytes they hold.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::directory::{Format, Part, open_file};
use super::{footer, ipc};
use crate::error::{Error, Result, guarded};

/// The most rows of a batch.
const BATCH_ROWS: usize = 8192;
/// The bytes of a Parquet batch are meant to stay below this.
const BATCH_BYTES: u64 = 16 << 20;

type Decoder = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// An opened Parquet or Arrow file.
pub(crate) struct Columnar {
    schema: SchemaRef,
    /// How many rows it holds, where its metadata say so.
    pub(crate) rows: Option<u64>,
    /// Roughly how much memory its rows take, in bytes.
    pub(crate) bytes: u64,
    decoder: Option<Decoder>,
    label: String,
    whole: Option<(RecordBatch, usize)>,
}

impl Columnar {
    /// Opens `part`, with all columns or `only` one of that name.
    pub(crate) fn open(part: &Part, only: Option<&str>) -> Result<Self> {
        let file = open_file(part)?;
        let mut opened = guarded(&part.label, || match part.format {
            Format::Parquet => open_parquet(file, &part.label, only),
            Format::Arrow => ipc::open(file, &part.label, only),
            Format::Ndjson => Err(Error::internal(format!("{} is no Parquet or Arrow file", part.label))),
        })?;
        opened.label.clone_from(&part.label);
        let mut names = HashSet::new();
        if let Some(twice) = opened.schema.fields().iter().find(|f| !names.insert(f.name())) {
            return Err(Error::incompatible(format!("{}: two columns are named {:?}", part.label, twice.name())));
        }
        Ok(opened)
    }

    pub(super) fn new(schema: SchemaRef, rows: Option<u64>, bytes: u64, decoder: Decoder) -> Self {
        Self { schema: plain_schema(&schema), rows, bytes, decoder: Some(decoder), label: String::new(), whole: None }
    }

    /// The columns, dictionaries unfolded.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let (whole, start) = match self.whole.take() {
            Some(rest) => rest,
            None => {
                let Some(decoder) = &mut self.decoder else { return Ok(None) };
                match guarded(&self.label, || decoder.next().transpose().map_err(|e| damaged(&self.label, e)))? {
                    Some(batch) => (batch, 0),
                    None => return Ok(None),
                }
            }
        };
        let end = whole.num_rows().min(start + BATCH_ROWS);
        let batch = guarded(&self.label, || copied(&whole, start, end, &self.schema))?;
        if end < whole.num_rows() {
            self.whole = Some((whole, end));
        }
        Ok(Some(batch))
    }
}

impl Iterator for Columnar {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch();
        if batch.is_err() {
            // Nothing is known of a decoder that failed, so it is not asked again.
            (self.decoder, self.whole) = (None, None);
        }
        batch.transpose()
    }
}

fn open_parquet(mut file: std::fs::File, label: &str, only: Option<&str>) -> Result<Columnar> {
    footer::check_footer(&mut file, label)?;
    let mut again = file.try_clone().map_err(|e| damaged(label, e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| damaged(label, e))?;
    footer::check_dictionaries(&mut again, builder.metadata(), label)?;
    let groups = builder.metadata().row_groups();
    let rows: u64 = groups.iter().map(|g| g.num_rows().unsigned_abs()).sum();
    let bytes: u64 = groups.iter().map(|g| g.total_byte_size().unsigned_abs()).sum();
    let batch_rows = BATCH_BYTES / (bytes / rows.max(1)).max(1);
    let batch_rows = usize::try_from(batch_rows).unwrap_or(BATCH_ROWS).clamp(1, BATCH_ROWS);
    let schema = Arc::clone(builder.schema());
    let builder = match only {
        Some(name) => {
            let mask = ProjectionMask::columns(builder.parquet_schema(), [name]);
            builder.with_projection(mask)
        }
        None => builder,
    };
    let reader = builder.with_batch_size(batch_rows).build().map_err(|e| damaged(label, e))?;
    Ok(Columnar::new(schema, Some(rows), bytes, Box::new(reader)))
}

fn damaged(label: &str, e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::corrupt(format!("{label} is damaged, or not of the format that its name says")).with_source(e)
}

/// The columns with the metadata that name extension types.
fn plain_schema(schema: &Schema) -> SchemaRef {
    let plain = |field: &Field| field.clone().with_data_type(plain_type(field.data_type()).clone());
    Arc::new(Schema::new(schema.fields().iter().map(|f| plain(f)).collect::<Vec<_>>()))
}

/// A dictionary is a way to write a type down, not a type.
fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        other => other,
    }
}

/// The rows from `start` to `end` in memory of their own: the columns of an IPC batch share one allocation, which would
/// be counted once a column, and kept as long as a single row of it.
fn copied(batch: &RecordBatch, start: usize, end: usize, schema: &Schema) -> Result<RecordBatch> {
    let failed = |e| Error::incompatible("a dictionary column was not unfolded").with_source(e);
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(batch.num_columns());
    let mut fields = Vec::with_capacity(batch.num_columns());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let plain = plain_type(column.data_type());
        let column = if plain == column.data_type() {
            let data = column.to_data();
            let mut rows = MutableArrayData::new(vec![&data], false, end - start);
            rows.try_extend(0, start, end).map_err(failed)?;
            make_array(rows.freeze())
        } else {
            cast(&column.slice(start, end - start), plain).map_err(failed)?
        };
        let nullable = schema.field_with_name(field.name()).is_ok_and(Field::is_nullable);
        fields.push(Field::new(field.name(), column.data_type().clone(), nullable || column.null_count() > 0));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(end - start));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(failed)
}
