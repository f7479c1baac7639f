//! One column of the view, filled from JSON values.

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
use super::misplaced::Misplaced;
use super::record::{Names, Record};
use super::room::Room;
use super::value::{self, Misfit, kind_of};
use crate::error::{Error, Result};

/// A column that takes one JSON value a row.
pub(crate) struct Column {
    field: FieldRef,
    cells: Cells,
    /// The memory that a null takes, in bytes.
    width: u64,
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
    pub(crate) fn new(field: &FieldRef, names: Names) -> Result<Self> {
        let cells = match field.data_type() {
            DataType::Boolean => Cells::Boolean(BooleanBuilder::with_capacity(0)),
            DataType::Int8 => Cells::Int8(PrimitiveBuilder::with_capacity(0)),
            DataType::Int16 => Cells::Int16(PrimitiveBuilder::with_capacity(0)),
            DataType::Int32 => Cells::Int32(PrimitiveBuilder::with_capacity(0)),
            DataType::Int64 => Cells::Int64(PrimitiveBuilder::with_capacity(0)),
            DataType::Float32 => Cells::Float32(PrimitiveBuilder::with_capacity(0)),
            DataType::Float64 => Cells::Float64(PrimitiveBuilder::with_capacity(0)),
            DataType::Decimal128(p, s) => {
                Cells::Decimal(Decimal128Builder::with_capacity(0).with_data_type(field.data_type().clone()), *p, *s)
            }
            DataType::Utf8 => Cells::String(StringBuilder::with_capacity(0, 0)),
            DataType::Binary => Cells::Binary(BinaryBuilder::with_capacity(0, 0)),
            DataType::Date32 => Cells::Date(PrimitiveBuilder::with_capacity(0)),
            DataType::Timestamp(_, None) => Cells::TimestampNtz(PrimitiveBuilder::with_capacity(0)),
            DataType::Timestamp(_, Some(zone)) => {
                Cells::Timestamp(PrimitiveBuilder::with_capacity(0).with_timezone(Arc::clone(zone)))
            }
            DataType::List(element) => Cells::List(Spans::default(), Box::new(Column::new(element, names)?)),
            DataType::Struct(fields) => Cells::Struct(NullBufferBuilder::new(0), Record::new(fields, names)?),
            DataType::Map(entries, _) => {
                let DataType::Struct(pair) = entries.data_type() else { return Err(no_json(field)) };
                let [key, value] = pair.as_ref() else { return Err(no_json(field)) };
                let columns = (Box::new(Column::new(key, names)?), Box::new(Column::new(value, names)?));
                Cells::Map(Spans::default(), pair.clone(), columns.0, columns.1)
            }
            _ => return Err(no_json(field)),
        };
        Ok(Self { field: Arc::clone(field), cells, width: null_width(field.data_type()) })
    }

    /// Appends the value, or null for `None`; a misfit leaves the column unusable.
    pub(crate) fn append(&mut self, json: Option<&str>, room: &mut Room) -> Result<(), Misplaced> {
        match json.filter(|json| *json != "null") {
            Some(json) => self.append_value(json, room),
            None if self.field.is_nullable() => {
                room.take(self.width)?;
                self.append_null();
                Ok(())
            }
            None => Err(Misplaced::here("is null or missing and may not be")),
        }
    }

    fn append_value(&mut self, json: &str, room: &mut Room) -> Result<(), Misplaced> {
        room.take(match &self.cells {
            Cells::String(_) | Cells::Binary(_) => self.width + json.len() as u64,
            // Its members count for themselves.
            Cells::Struct(..) => 1,
            _ => self.width,
        })?;
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
                let wants = |_| format!("wants an array, not {}", kind_of(json));
                let values: Vec<&RawValue> = serde_json::from_str(json).map_err(wants)?;
                for value in &values {
                    element.append(Some(value.get()), room).map_err(|misfit| misfit.below("[]"))?;
                }
                spans.push(values.len());
            }
            Cells::Struct(valid, record) => {
                let members = object(json, "the same field twice")?;
                record.append(&members, room).map_err(|misfit| misfit.below("."))?;
                valid.append_non_null();
            }
            Cells::Map(spans, _, keys, values) => {
                let in_value = |misfit: Misplaced| misfit.below(".value");
                if let Cells::String(keys) = &mut keys.cells {
                    let entries = object(json, "the same key twice")?;
                    for (key, value) in &entries.0 {
                        room.take(key.len() as u64 + 4)?;
                        keys.append_value(key);
                        values.append(Some(value.get()), room).map_err(in_value)?;
                    }
                    spans.push(entries.0.len());
                    return Ok(());
                }
                let wants = |_| format!("wants an array of [key, value], not {}", kind_of(json));
                let entries: Vec<[&RawValue; 2]> = serde_json::from_str(json).map_err(wants)?;
                for [key, value] in &entries {
                    keys.append(Some(key.get()), room).map_err(|misfit| misfit.below(".key"))?;
                    values.append(Some(value.get()), room).map_err(in_value)?;
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
                for column in record.columns_mut() {
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
                let (fields, columns) = (record.fields().clone(), record.finish()?);
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

/// The memory that a null of this type takes in an array, in bytes.
pub(crate) fn null_width(data_type: &DataType) -> u64 {
    match data_type {
        DataType::Boolean => 1,
        DataType::Struct(fields) => 1 + fields.iter().map(|f| null_width(f.data_type())).sum::<u64>(),
        DataType::List(_) | DataType::Map(..) => 16,
        other => other.primitive_width().map_or(4, |width| width as u64),
    }
}

fn object<'a>(json: &'a str, twice: &str) -> Result<Entries<'a>, Misfit> {
    Entries::parse(json).map_err(|e| match e {
        NotEntries::Repeated(_) => format!("has {twice}"),
        NotEntries::Json(_) => format!("wants an object, not {}", kind_of(json)),
    })
}

fn no_json(field: &Field) -> Error {
    Error::internal(format!("column {:?} of type {} has no JSON form", field.name(), field.data_type()))
}

fn unbuilt(field: &Field, e: arrow::error::ArrowError) -> Error {
    Error::incompatible(format!("column {:?} does not fit {}", field.name(), field.data_type())).with_source(e)
}
