//! One column of the view, filled from JSON values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, ListArray, MapArray, NullBufferBuilder,
    PrimitiveBuilder, StringBuilder, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Field, FieldRef, Fields, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use serde_json::value::RawValue;

use super::entries::{Entries, NotEntries};
use super::value::{self, Misfit, shape};
use crate::error::{Error, Result};

/// A column that takes one JSON value a row.
pub(crate) struct Column {
    field: FieldRef,
    cells: Cells,
}

enum Cells {
    Boolean(BooleanBuilder),
    Int8(PrimitiveBuilder<Int8Type>),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(Decimal128Builder, u8, i8),
    String(StringBuilder),
    Binary(BinaryBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    TimestampNtz(PrimitiveBuilder<TimestampMicrosecondType>),
    List(Spans, Box<Column>),
    Struct(NullBufferBuilder, Record),
    Map(Spans, Fields, Box<Column>, Box<Column>),
}

impl Column {
    /// An empty column for `field`, whose type is a kept one.
    pub(crate) fn new(field: &FieldRef) -> Result<Self> {
        let cells = match field.data_type() {
            DataType::Boolean => Cells::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Cells::Int8(PrimitiveBuilder::new()),
            DataType::Int16 => Cells::Int16(PrimitiveBuilder::new()),
            DataType::Int32 => Cells::Int32(PrimitiveBuilder::new()),
            DataType::Int64 => Cells::Int64(PrimitiveBuilder::new()),
            DataType::Float32 => Cells::Float32(PrimitiveBuilder::new()),
            DataType::Float64 => Cells::Float64(PrimitiveBuilder::new()),
            DataType::Decimal128(p, s) => {
                Cells::Decimal(Decimal128Builder::new().with_data_type(field.data_type().clone()), *p, *s)
            }
            DataType::Utf8 => Cells::String(StringBuilder::new()),
            DataType::Binary => Cells::Binary(BinaryBuilder::new()),
            DataType::Date32 => Cells::Date(PrimitiveBuilder::new()),
            DataType::Timestamp(_, None) => Cells::TimestampNtz(PrimitiveBuilder::new()),
            DataType::Timestamp(_, Some(zone)) => {
                Cells::Timestamp(PrimitiveBuilder::new().with_timezone(Arc::clone(zone)))
            }
            DataType::List(element) => Cells::List(Spans::default(), Box::new(Column::new(element)?)),
            DataType::Struct(fields) => Cells::Struct(NullBufferBuilder::new(0), Record::new(fields)?),
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else { return Err(no_json(field)) };
                let [key, value] = pair.as_ref() else { return Err(no_json(field)) };
                let columns = (Box::new(Column::new(key)?), Box::new(Column::new(value)?));
                Cells::Map(Spans::default(), pair.clone(), columns.0, columns.1)
            }
            _ => return Err(no_json(field)),
        };
        Ok(Self { field: Arc::clone(field), cells })
    }

    /// Appends the value, or null for `None`; a misfit names this column and leaves it unusable.
    pub(crate) fn append(&mut self, json: Option<&str>) -> Result<(), Misfit> {
        let json = match json.filter(|json| *json != "null") {
            Some(json) => json,
            None if self.field.is_nullable() => {
                self.append_null();
                return Ok(());
            }
            None => return Err(format!("column {:?} is null or missing and may not be", self.field.name())),
        };
        self.append_value(json).map_err(|why| {
            if why.starts_with("column ") { why } else { format!("column {:?} {why}", self.field.name()) }
        })
    }

    fn append_value(&mut self, json: &str) -> Result<(), Misfit> {
        match &mut self.cells {
            Cells::Boolean(b) => b.append_value(value::boolean(json)?),
            Cells::Int8(b) => b.append_value(value::integer(json, "tinyint")?),
            Cells::Int16(b) => b.append_value(value::integer(json, "smallint")?),
            Cells::Int32(b) => b.append_value(value::integer(json, "int")?),
            Cells::Int64(b) => b.append_value(value::integer(json, "bigint")?),
            Cells::Float32(b) => b.append_value(value::float(json)?),
            Cells::Float64(b) => b.append_value(value::double(json)?),
            Cells::Decimal(b, precision, scale) => b.append_value(value::decimal(json, *precision, *scale)?),
            Cells::String(b) => b.append_value(value::string(json)?),
            Cells::Binary(b) => b.append_value(value::binary(json)?),
            Cells::Date(b) => b.append_value(value::date(json)?),
            Cells::Timestamp(b) => b.append_value(value::timestamp(json)?),
            Cells::TimestampNtz(b) => b.append_value(value::timestamp_ntz(json)?),
            Cells::List(spans, element) => {
                let wants = || format!("wants an array, not {}", shape(json));
                let values: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| wants())?;
                for value in &values {
                    element.append(Some(value.get()))?;
                }
                spans.push(values.len());
            }
            Cells::Struct(valid, record) => {
                record.append(&object(json)?)?;
                valid.append_non_null();
            }
            Cells::Map(spans, _, keys, values) => {
                if let Cells::String(keys) = &mut keys.cells {
                    let entries = object(json)?;
                    for (key, value) in &entries.0 {
                        keys.append_value(key);
                        values.append(Some(value.get()))?;
                    }
                    spans.push(entries.0.len());
                    return Ok(());
                }
                let wants = || format!("wants an array of [key, value], not {}", shape(json));
                let entries: Vec<[&RawValue; 2]> = serde_json::from_str(json).map_err(|_| wants())?;
                for [key, value] in &entries {
                    keys.append(Some(key.get()))?;
                    values.append(Some(value.get()))?;
                }
                spans.push(entries.len());
            }
        }
        Ok(())
    }

    fn append_null(&mut self) {
        match &mut self.cells {
            Cells::Boolean(b) => b.append_null(),
            Cells::Int8(b) => b.append_null(),
            Cells::Int16(b) => b.append_null(),
            Cells::Int32(b) => b.append_null(),
            Cells::Int64(b) => b.append_null(),
            Cells::Float32(b) => b.append_null(),
            Cells::Float64(b) => b.append_null(),
            Cells::Decimal(b, _, _) => b.append_null(),
            Cells::String(b) => b.append_null(),
            Cells::Binary(b) => b.append_null(),
            Cells::Date(b) => b.append_null(),
            Cells::Timestamp(b) | Cells::TimestampNtz(b) => b.append_null(),
            Cells::List(spans, _) | Cells::Map(spans, _, _, _) => spans.push_null(),
            Cells::Struct(valid, record) => {
                valid.append_null();
                for column in &mut record.columns {
                    // Whatever stands below a null struct is masked, whether its field may be null or not.
                    column.append_null();
                }
            }
        }
    }

    /// The values since the last `finish`.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef> {
        let array: ArrayRef = match &mut self.cells {
            Cells::Boolean(b) => Arc::new(b.finish()),
            Cells::Int8(b) => Arc::new(b.finish()),
            Cells::Int16(b) => Arc::new(b.finish()),
            Cells::Int32(b) => Arc::new(b.finish()),
            Cells::Int64(b) => Arc::new(b.finish()),
            Cells::Float32(b) => Arc::new(b.finish()),
            Cells::Float64(b) => Arc::new(b.finish()),
            Cells::Decimal(b, _, _) => Arc::new(b.finish()),
            Cells::String(b) => Arc::new(b.finish()),
            Cells::Binary(b) => Arc::new(b.finish()),
            Cells::Date(b) => Arc::new(b.finish()),
            Cells::Timestamp(b) | Cells::TimestampNtz(b) => Arc::new(b.finish()),
            Cells::List(spans, element) => {
                let (offsets, nulls) = spans.finish();
                let list = ListArray::try_new(Arc::clone(&element.field), offsets, element.finish()?, nulls);
                Arc::new(list.map_err(|e| unbuilt(&self.field, e))?)
            }
            Cells::Struct(valid, record) => {
                let (fields, columns) = (record.fields.clone(), record.finish()?);
                Arc::new(StructArray::try_new(fields, columns, valid.finish()).map_err(|e| unbuilt(&self.field, e))?)
            }
            Cells::Map(spans, pair, keys, values) => {
                let (offsets, nulls) = spans.finish();
                let DataType::Map(entries, sorted) = self.field.data_type() else { return Err(no_json(&self.field)) };
                let pairs = StructArray::try_new(pair.clone(), vec![keys.finish()?, values.finish()?], None);
                let pairs = pairs.map_err(|e| unbuilt(&self.field, e))?;
                let map = MapArray::try_new(Arc::clone(entries), offsets, pairs, nulls, *sorted);
                Arc::new(map.map_err(|e| unbuilt(&self.field, e))?)
            }
        };
        Ok(array)
    }
}

/// Columns that are filled together, from the members of one JSON object a row.
pub(crate) struct Record {
    fields: Fields,
    columns: Vec<Column>,
    indices: HashMap<String, usize>,
}

impl Record {
    /// Empty columns for `fields`.
    pub(crate) fn new(fields: &Fields) -> Result<Self> {
        let columns = fields.iter().map(Column::new).collect::<Result<_>>()?;
        let indices = fields.iter().enumerate().map(|(i, f)| (f.name().clone(), i)).collect();
        Ok(Self { fields: fields.clone(), columns, indices })
    }

    /// Appends one row; members that are no columns are a misfit, missing ones are null.
    pub(crate) fn append(&mut self, row: &Entries<'_>) -> Result<(), Misfit> {
        let mut values: Vec<Option<&str>> = vec![None; self.columns.len()];
        for (position, (name, value)) in row.0.iter().enumerate() {
            // Writers repeat the columns' order, so the member's place is the first guess.
            let index = match self.fields.get(position) {
                Some(field) if field.name() == name => Some(position),
                _ => self.indices.get(name.as_ref()).copied(),
            };
            let Some(slot) = index.and_then(|i| values.get_mut(i)) else {
                return Err(format!(
                    "column {name:?} is not among the view's columns; correct the file, or add it to them"
                ));
            };
            *slot = Some(value.get());
        }
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.append(value)?;
        }
        Ok(())
    }

    /// The columns since the last `finish`.
    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>> {
        self.columns.iter_mut().map(Column::finish).collect()
    }
}

/// Offsets and validity of lists and maps.
#[derive(Default)]
struct Spans {
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

impl Spans {
    fn push(&mut self, length: usize) {
        self.lengths.push(length);
        self.valid.push(true);
    }

    fn push_null(&mut self) {
        self.lengths.push(0);
        self.valid.push(false);
    }

    fn finish(&mut self) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let offsets = OffsetBuffer::from_lengths(std::mem::take(&mut self.lengths));
        let nulls = NullBuffer::from(std::mem::take(&mut self.valid));
        (offsets, Some(nulls).filter(|n| n.null_count() > 0))
    }
}

fn object(json: &str) -> Result<Entries<'_>, Misfit> {
    Entries::parse(json).map_err(|e| match e {
        NotEntries::Repeated(name) => format!("has the member {name:?} twice"),
        NotEntries::Json(_) => format!("wants an object, not {}", shape(json)),
    })
}

fn no_json(field: &Field) -> Error {
    Error::internal(format!("column {:?} of type {} has no JSON form", field.name(), field.data_type()))
}

fn unbuilt(field: &Field, e: arrow::error::ArrowError) -> Error {
    Error::incompatible(format!("column {:?} does not fit {}", field.name(), field.data_type())).with_source(e)
}
