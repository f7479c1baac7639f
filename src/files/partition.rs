//! Which columns partition a table, and how their values are written.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Schema, SchemaRef, TimestampMicrosecondType};
use arrow::util::display::FormatOptions;

use crate::continuity::stamp::row_columns;
use crate::error::{Error, Result};
use crate::schema::view_columns;

/// The values of a file's partition columns, by the column's name; `None` is null.
pub type PartitionValues = BTreeMap<String, Option<String>>;

/// What engines that lay files out by partition values write for null.
const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";
/// Digits of a decimal that every reader decodes from a partition value.
const DECIMAL_DIGITS: u8 = 18;
/// The days and microseconds since 1970 of the years 1 to 9999, beyond which readers clamp or give up.
const DAYS: std::ops::RangeInclusive<i32> = -719_162..=2_932_896;
const MICROS: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

/// The partition columns of rows with one schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitioning {
    schema: SchemaRef,
    /// The places of the partition columns in `schema`.
    columns: Vec<usize>,
    /// The places of the columns in the data files.
    stored: Vec<usize>,
    file_schema: SchemaRef,
}

impl Partitioning {
    /// Partitioning of rows with `schema` by the columns of these names, of which there is at least one.
    ///
    /// Errors are those of [`check_partition_by`].
    pub fn new(schema: &SchemaRef, partition_by: &[String]) -> Result<Self> {
        check_partition_by(schema, partition_by)?;
        let columns: Vec<usize> = partition_by.iter().filter_map(|name| schema.index_of(name).ok()).collect();
        let stored: Vec<usize> = (0..schema.fields().len()).filter(|place| !columns.contains(place)).collect();
        Self { schema: Arc::clone(schema), columns, file_schema: Arc::clone(schema), stored }.projected()
    }

    /// The same, with the partition columns in the data files too, behind the others: for tables that ask for it.
    pub fn materialized(mut self) -> Result<Self> {
        self.stored.extend(&self.columns);
        self.projected()
    }

    fn projected(mut self) -> Result<Self> {
        let projected = self.schema.project(&self.stored);
        self.file_schema =
            Arc::new(projected.map_err(|e| Error::internal("a schema was not projected").with_source(e))?);
        Ok(self)
    }

    /// The schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns that stand in the data files.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        &self.file_schema
    }

    /// How many columns at the front of a data file are no partition columns.
    pub(super) fn unpartitioned(&self) -> usize {
        self.schema.fields().len() - self.columns.len()
    }

    /// The partition columns of rows.
    pub(super) fn keys(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        self.columns.iter().filter_map(|place| rows.columns().get(*place)).cloned().collect()
    }

    /// The rows as they stand in a data file.
    pub(super) fn file_rows(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        rows.project(&self.stored).map_err(|e| Error::internal("rows were not projected").with_source(e))
    }

    /// The partition values of the row at this place of [`Partitioning::keys`].
    ///
    /// Refused: a value that not every reader would find again.
    pub(super) fn values(&self, keys: &[ArrayRef], row: usize) -> Result<PartitionValues> {
        let fields = self.columns.iter().filter_map(|place| self.schema.fields().get(*place));
        fields
            .zip(keys)
            .map(|(field, key)| Ok((field.name().clone(), value(field.name(), &key.slice(row, 1))?)))
            .collect()
    }
}

/// Refuses partition columns that rows with `schema` lack, or whose values not every reader finds again.
///
/// Config: a column that is none of the view's, is named twice, or would leave no other. Incompatible: a type that
/// cannot partition.
pub fn check_partition_by(schema: &Schema, partition_by: &[String]) -> Result<()> {
    for (i, name) in partition_by.iter().enumerate() {
        if row_columns().iter().any(|column| column.name().eq_ignore_ascii_case(name)) {
            return Err(Error::config(format!(
                "partition_by names {name:?}, a column of continuity, by which no table is partitioned; name columns of the view"
            )));
        }
        let Ok(field) = schema.field_with_name(name) else {
            let twin = schema.fields().iter().find(|f| f.name().eq_ignore_ascii_case(name));
            let remedy = twin.map_or("name one that it has".to_string(), |f| format!("did you mean {:?}?", f.name()));
            return Err(Error::config(format!(
                "partition_by names {name:?}, which is not a column of the view; {remedy}"
            )));
        };
        if partition_by.iter().skip(i + 1).any(|other| other == name) {
            return Err(Error::config(format!("partition_by names the column {name:?} twice; remove one")));
        }
        if !can_partition(field.data_type()) {
            return Err(Error::incompatible(format!(
                "partition_by names {name:?} of the type {}, whose values not every reader finds again; name a column of the type boolean, tinyint, smallint, int, bigint, decimal of at most {DECIMAL_DIGITS} digits, string, date, timestamp or timestamp_ntz",
                field.data_type()
            )));
        }
    }
    if !partition_by.is_empty() && view_columns(schema).fields().len() == partition_by.len() {
        return Err(Error::config("partition_by names every column of the view; leave one out"));
    }
    Ok(())
}

fn can_partition(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Utf8 | T::Date32 | T::Timestamp(..) => true,
        T::Decimal128(precision, _) => *precision <= DECIMAL_DIGITS,
        _ => false,
    }
}

/// The one value of `cell` as a partition value.
fn value(column: &str, cell: &ArrayRef) -> Result<Option<String>> {
    if cell.null_count() > 0 {
        return Ok(None);
    }
    if let DataType::Decimal128(_, scale @ 1..) = cell.data_type() {
        let unit = 10i128.pow(u32::from(scale.unsigned_abs()));
        if cell.as_primitive::<Decimal128Type>().values().iter().any(|value| *value < 0 && value % unit != 0) {
            return Err(Error::refused(format!(
                "the column {column:?}, by which the table is partitioned, holds a negative decimal with a fraction, which some engines spell so that nobody reads the table any more when they compact it; leave the column out of partition_by"
            )));
        }
    }
    let is_in_range = match cell.data_type() {
        DataType::Date32 => cell.as_primitive::<Date32Type>().values().iter().all(|days| DAYS.contains(days)),
        DataType::Timestamp(..) => {
            cell.as_primitive::<TimestampMicrosecondType>().values().iter().all(|micros| MICROS.contains(micros))
        }
        _ => true,
    };
    if !is_in_range {
        return Err(Error::refused(format!(
            "the column {column:?}, by which the table is partitioned, holds a time outside the years 1 to 9999, which readers do not find again; correct it in the view, or leave the column out of partition_by"
        )));
    }
    // A space without a zone would be read in each reader's own zone; the form with T and Z is refused for times
    // without one.
    let format = FormatOptions::new()
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.6f"))
        .with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%S%.6fZ"));
    let options = CastOptions { safe: false, format_options: format };
    let broken = |e| Error::internal(format!("a partition value of {column:?} was not written")).with_source(e);
    let text = cast_with_options(cell, &DataType::Utf8, &options).map_err(broken)?;
    let text = text.as_string::<i32>().iter().next().flatten().unwrap_or_default();
    if text.is_empty() || text == HIVE_NULL {
        return Err(Error::refused(format!(
            "the column {column:?}, by which the table is partitioned, holds {text:?}, which readers take for null; put null or a word there in the view, or leave the column out of partition_by"
        )));
    }
    Ok(Some(text.to_string()))
}

#[cfg(test)]
#[path = "partition_tests.rs"]
mod tests;
