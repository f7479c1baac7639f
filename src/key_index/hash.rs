//! Keys as numbers that no width of an integer and no order of rows changes.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Int64Type, TimestampMicrosecondType};
use twox_hash::XxHash3_128;

use crate::change::column;
use crate::error::{Error, Result};

/// What stands for a key: 128 bits of a hash whose seed nobody knows who chooses keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyHash(pub(super) u128);

/// The hash of each row's key, whose columns are `key`, in the rows' order.
pub(super) fn hashes(rows: &RecordBatch, key: &[String], seed: u64) -> Result<Vec<KeyHash>> {
    let columns = key.iter().map(|name| Cells::of(column(rows, name)?)).collect::<Result<Vec<_>>>()?;
    let mut bytes = Vec::new();
    Ok((0..rows.num_rows())
        .map(|row| {
            bytes.clear();
            columns.iter().for_each(|cells| cells.push(row, &mut bytes));
            KeyHash(XxHash3_128::oneshot_with_seed(seed, &bytes))
        })
        .collect())
}

/// A column of a key, in the form in which its values are hashed.
struct Cells {
    tag: u8,
    values: ArrayRef,
}

impl Cells {
    fn of(values: &ArrayRef) -> Result<Self> {
        if values.null_count() > 0 {
            return Err(Error::corrupt("a row has null in a column of the key"));
        }
        let (tag, values) = match values.data_type() {
            DataType::Boolean => (1, values.clone()),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                let wide = cast(values, &DataType::Int64);
                (2, wide.map_err(|e| Error::internal("the integers of a key were not widened").with_source(e))?)
            }
            DataType::Decimal128(..) => (3, values.clone()),
            DataType::Utf8 => (4, values.clone()),
            DataType::Binary => (5, values.clone()),
            DataType::Date32 => (6, values.clone()),
            DataType::Timestamp(..) => (7, values.clone()),
            other => return Err(Error::internal(format!("a key has a column of the type {other}"))),
        };
        Ok(Self { tag, values })
    }

    /// Adds the value of `row`: no two keys have the same bytes.
    fn push(&self, row: usize, bytes: &mut Vec<u8>) {
        let text = |value: &[u8], bytes: &mut Vec<u8>| {
            bytes.extend((value.len() as u64).to_le_bytes());
            bytes.extend(value);
        };
        bytes.push(self.tag);
        match self.tag {
            1 => bytes.push(u8::from(self.values.as_boolean().value(row))),
            2 => bytes.extend(self.values.as_primitive::<Int64Type>().value(row).to_le_bytes()),
            3 => bytes.extend(self.values.as_primitive::<Decimal128Type>().value(row).to_le_bytes()),
            4 => text(self.values.as_string::<i32>().value(row).as_bytes(), bytes),
            5 => text(self.values.as_binary::<i32>().value(row), bytes),
            6 => bytes.extend(self.values.as_primitive::<Date32Type>().value(row).to_le_bytes()),
            _ => bytes.extend(self.values.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes()),
        }
    }
}
