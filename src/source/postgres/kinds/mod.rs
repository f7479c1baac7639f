//! PostgreSQL's types as Arrow columns: each value exactly, or refused.
//!
//! A value arrives in one of two forms. COPY gives PostgreSQL's binary one, pgoutput the text that its output functions
//! print. Both come to the same cell. What no type of a table holds is kept as that text.

mod array;
mod moment;
mod numeric;
mod plain;

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int16Builder, Int32Builder, Int64Builder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field, TimeUnit};

use array::Lists;

/// The remedy for a value that its column's type in the table cannot hold.
const AS_STRING: &str = "add columns = { $NAME = \"string\" } to the view, and reset it";

/// What stands for the column's name in a remedy.
pub(crate) const NAME: &str = "$NAME";

/// Why a value cannot be kept, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit(pub(crate) String);

impl Misfit {
    /// A value that the column's type in the table cannot hold.
    fn beyond(value: &str, kept: &str) -> Self {
        Self(format!("has {value}, which {kept} cannot hold; {AS_STRING}"))
    }

    /// Bytes that are not what the server says they are.
    fn malformed(what: &str) -> Self {
        Self(format!("has a value that is no {what} of PostgreSQL"))
    }
}

/// What a column's values are, and so what holds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `boolean`.
    Bool,
    /// `smallint`.
    Int2,
    /// `integer`.
    Int4,
    /// `bigint`.
    Int8,
    /// `oid`, `xid` and `cid`: 32 bits without a sign, as a bigint.
    Unsigned,
    /// `real`.
    Float4,
    /// `double precision`.
    Float8,
    /// `numeric` that a decimal of these digits, and of these behind the point, holds.
    Decimal(u8, i8),
    /// `date`.
    Date,
    /// `timestamp`.
    Timestamp,
    /// `timestamptz`.
    Instant,
    /// `bytea`.
    Bytes,
    /// `uuid`, as its text.
    Uuid,
    /// `jsonb`, as its text.
    Jsonb,
    /// The text of anything else.
    Text,
    /// An array of one dimension, and what stands between its elements in text.
    Array(Box<Kind>, u8),
}

impl Kind {
    /// The type of the column, in the types that a table keeps.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Int2 => DataType::Int16,
            Self::Int4 => DataType::Int32,
            Self::Int8 | Self::Unsigned => DataType::Int64,
            Self::Float4 => DataType::Float32,
            Self::Float8 => DataType::Float64,
            Self::Decimal(precision, scale) => DataType::Decimal128(*precision, *scale),
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Bytes => DataType::Binary,
            Self::Uuid | Self::Jsonb | Self::Text => DataType::Utf8,
            Self::Array(element, _) => DataType::List(Arc::new(Field::new("element", element.data_type(), true))),
        }
    }
}

/// What there is room for at first: most transactions change few rows of a table.
const FEW: usize = 8;
const FEW_BYTES: usize = 64;

/// A column that is being filled.
#[derive(Debug)]
pub(crate) struct Cells {
    kind: Kind,
    values: Values,
}

/// The values, by the type that holds them.
#[derive(Debug)]
enum Values {
    Bools(BooleanBuilder),
    Shorts(Int16Builder),
    Ints(Int32Builder),
    Longs(Int64Builder),
    Floats(Float32Builder),
    Doubles(Float64Builder),
    Decimals(Decimal128Builder),
    Dates(Date32Builder),
    Moments(TimestampMicrosecondBuilder),
    Blobs(BinaryBuilder),
    Texts(StringBuilder),
    Lists(Lists),
}

impl Cells {
    /// An empty column.
    pub(crate) fn new(kind: &Kind) -> Self {
        let values = match kind {
            Kind::Bool => Values::Bools(BooleanBuilder::with_capacity(FEW)),
            Kind::Int2 => Values::Shorts(Int16Builder::with_capacity(FEW)),
            Kind::Int4 => Values::Ints(Int32Builder::with_capacity(FEW)),
            Kind::Int8 | Kind::Unsigned => Values::Longs(Int64Builder::with_capacity(FEW)),
            Kind::Float4 => Values::Floats(Float32Builder::with_capacity(FEW)),
            Kind::Float8 => Values::Doubles(Float64Builder::with_capacity(FEW)),
            Kind::Decimal(..) => {
                Values::Decimals(Decimal128Builder::with_capacity(FEW).with_data_type(kind.data_type()))
            }
            Kind::Date => Values::Dates(Date32Builder::with_capacity(FEW)),
            Kind::Timestamp | Kind::Instant => {
                Values::Moments(TimestampMicrosecondBuilder::with_capacity(FEW).with_data_type(kind.data_type()))
            }
            Kind::Bytes => Values::Blobs(BinaryBuilder::with_capacity(FEW, FEW_BYTES)),
            Kind::Uuid | Kind::Jsonb | Kind::Text => Values::Texts(StringBuilder::with_capacity(FEW, FEW_BYTES)),
            Kind::Array(element, delimiter) => Values::Lists(Lists::new(element, *delimiter)),
        };
        Self { kind: kind.clone(), values }
    }

    /// Appends null.
    pub(crate) fn null(&mut self) {
        match &mut self.values {
            Values::Bools(cells) => cells.append_null(),
            Values::Shorts(cells) => cells.append_null(),
            Values::Ints(cells) => cells.append_null(),
            Values::Longs(cells) => cells.append_null(),
            Values::Floats(cells) => cells.append_null(),
            Values::Doubles(cells) => cells.append_null(),
            Values::Decimals(cells) => cells.append_null(),
            Values::Dates(cells) => cells.append_null(),
            Values::Moments(cells) => cells.append_null(),
            Values::Blobs(cells) => cells.append_null(),
            Values::Texts(cells) => cells.append_null(),
            Values::Lists(lists) => lists.null(),
        }
    }

    /// Appends a value in PostgreSQL's binary form. After a misfit the column is not to be used any more.
    pub(crate) fn binary(&mut self, value: &[u8]) -> Result<(), Misfit> {
        match &mut self.values {
            Values::Bools(cells) => cells.append_value(plain::fixed::<1>(value, "boolean")? != [0]),
            Values::Shorts(cells) => cells.append_value(i16::from_be_bytes(plain::fixed(value, "smallint")?)),
            Values::Ints(cells) => cells.append_value(i32::from_be_bytes(plain::fixed(value, "integer")?)),
            Values::Longs(cells) => cells.append_value(match self.kind {
                Kind::Unsigned => i64::from(u32::from_be_bytes(plain::fixed(value, "oid")?)),
                _ => i64::from_be_bytes(plain::fixed(value, "bigint")?),
            }),
            Values::Floats(cells) => cells.append_value(f32::from_be_bytes(plain::fixed(value, "real")?)),
            Values::Doubles(cells) => cells.append_value(f64::from_be_bytes(plain::fixed(value, "double")?)),
            Values::Decimals(cells) => cells.append_value(numeric::binary(value, &self.kind)?),
            Values::Dates(cells) => cells.append_value(moment::date(plain::fixed(value, "date")?)?),
            Values::Moments(cells) => cells.append_value(moment::timestamp(plain::fixed(value, "timestamp")?)?),
            Values::Blobs(cells) => cells.append_value(value),
            Values::Texts(cells) => match self.kind {
                Kind::Uuid => cells.append_value(plain::uuid(plain::fixed(value, "uuid")?).as_str()),
                Kind::Jsonb => cells.append_value(plain::jsonb(value)?),
                _ => cells.append_value(plain::utf8(value)?),
            },
            Values::Lists(lists) => lists.binary(value)?,
        }
        Ok(())
    }

    /// Appends a value in the text that PostgreSQL prints. After a misfit the column is not to be used any more.
    pub(crate) fn text(&mut self, value: &[u8]) -> Result<(), Misfit> {
        let text = plain::utf8(value)?;
        match &mut self.values {
            Values::Bools(cells) => cells.append_value(plain::boolean(text)?),
            Values::Shorts(cells) => cells.append_value(plain::parsed(text, "smallint")?),
            Values::Ints(cells) => cells.append_value(plain::parsed(text, "integer")?),
            Values::Longs(cells) => cells.append_value(plain::parsed(text, "bigint")?),
            Values::Floats(cells) => cells.append_value(plain::parsed(text, "real")?),
            Values::Doubles(cells) => cells.append_value(plain::parsed(text, "double")?),
            Values::Decimals(cells) => cells.append_value(numeric::text(text, &self.kind)?),
            Values::Dates(cells) => cells.append_value(moment::date_text(text)?),
            Values::Moments(cells) => cells.append_value(moment::timestamp_text(text)?),
            Values::Blobs(cells) => cells.append_value(plain::bytes(text)?),
            Values::Texts(cells) => cells.append_value(text),
            Values::Lists(lists) => lists.text(text)?,
        }
        Ok(())
    }

    /// The column, and empty from here on.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Bools(cells) => Arc::new(cells.finish()),
            Values::Shorts(cells) => Arc::new(cells.finish()),
            Values::Ints(cells) => Arc::new(cells.finish()),
            Values::Longs(cells) => Arc::new(cells.finish()),
            Values::Floats(cells) => Arc::new(cells.finish()),
            Values::Doubles(cells) => Arc::new(cells.finish()),
            Values::Decimals(cells) => Arc::new(cells.finish()),
            Values::Dates(cells) => Arc::new(cells.finish()),
            Values::Moments(cells) => Arc::new(cells.finish()),
            Values::Blobs(cells) => Arc::new(cells.finish()),
            Values::Texts(cells) => Arc::new(cells.finish()),
            Values::Lists(lists) => lists.finish(),
        }
    }
}

#[cfg(test)]
#[path = "kinds_tests.rs"]
mod tests;
