//! Rows as NDJSON: one object a row, exact, in the shapes that the files source reads.
//!
//! | type | as |
//! |---|---|
//! | integers, decimals | a number with every digit: `12.50` |
//! | float, double | the shortest number that reads back the same; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | string, boolean | `"…"`, `true`, `false` |
//! | binary | base64 of the standard alphabet, padded |
//! | date | `"2026-01-31"` |
//! | timestamp, timestamp_ntz | `"2026-01-31T12:00:00.25Z"`, without the `Z`; no more digits behind the point than needed |
//! | list, struct | an array, an object |
//! | map | an object; an array of `[key, value]` where keys are no strings |
//! | null | `null` |
//!
//! Years beyond 0 to 9999 have a sign, as in ISO 8601. A variant is the object of its two binaries.

use std::fmt::Display;
use std::io::{self, Write};

use arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimeUnit, TimestampMicrosecondType,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Result};

/// The bytes of lines that are gathered for one write.
const CHUNK: usize = 64 << 10;
const MICROS_A_SECOND: i64 = 1_000_000;
const SECONDS_A_DAY: i64 = 86_400;

/// Writes each row of `batch` as one JSON object and a line feed.
///
/// Incompatible: a column of a type that no table holds. Internal: the lines cannot be written; the source is the
/// [`io::Error`].
pub fn write_ndjson(batch: &RecordBatch, to: &mut dyn Write) -> Result<()> {
    let unwritten = |e: io::Error| Error::internal("the rows cannot be written").with_source(e);
    let members = batch.schema_ref().fields().iter().zip(batch.columns()).map(|(f, c)| (f.name(), c.as_ref()));
    let write_row = object(members)?;
    let mut lines = Vec::new();
    for row in 0..batch.num_rows() {
        write_row(row, &mut lines).map_err(unwritten)?;
        lines.push(b'\n');
        if lines.len() >= CHUNK {
            to.write_all(&lines).map_err(unwritten)?;
            lines.clear();
        }
    }
    to.write_all(&lines).map_err(unwritten)
}

/// Rows of columns, each of which is written as one JSON object.
pub(crate) struct Objects<'a>(Cell<'a>);

impl<'a> Objects<'a> {
    /// Rows with these members, in this order.
    ///
    /// Incompatible: a column of a type that no table holds.
    pub(crate) fn new(members: impl Iterator<Item = (&'a String, &'a dyn Array)>) -> Result<Self> {
        object(members).map(Self)
    }

    /// Writes the row at a place.
    pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<()> {
        (self.0)(row, out).map_err(|e| Error::internal("a row was not encoded").with_source(e))
    }
}

/// Writes the value at a row.
type Cell<'a> = Box<dyn Fn(usize, &mut Vec<u8>) -> io::Result<()> + 'a>;

fn object<'a>(members: impl Iterator<Item = (&'a String, &'a dyn Array)>) -> Result<Cell<'a>> {
    let mut cells: Vec<(Vec<u8>, Cell<'a>)> = Vec::new();
    for (name, array) in members {
        let mut opening = if cells.is_empty() { b"{".to_vec() } else { b",".to_vec() };
        let named = text(name, &mut opening).and_then(|()| opening.write_all(b":"));
        named.map_err(|e| Error::internal(format!("the name {name:?} was not encoded")).with_source(e))?;
        cells.push((opening, cell(array, name)?));
    }
    Ok(Box::new(move |row, out| {
        if cells.is_empty() {
            out.push(b'{');
        }
        for (opening, value) in &cells {
            out.extend_from_slice(opening);
            value(row, out)?;
        }
        out.push(b'}');
        Ok(())
    }))
}

/// `column` names the array in an error.
fn cell<'a>(array: &'a dyn Array, column: &str) -> Result<Cell<'a>> {
    let value = present(array, column)?;
    Ok(Box::new(move |row, out| if array.is_null(row) { out.write_all(b"null") } else { value(row, out) }))
}

/// The value at a row that is not null.
fn present<'a>(array: &'a dyn Array, column: &str) -> Result<Cell<'a>> {
    let no_form = || {
        let shown = array.data_type();
        Error::incompatible(format!("the column {column:?} of type {shown} has no JSON form"))
    };
    Ok(match array.data_type() {
        DataType::Boolean => {
            let array = array.as_boolean();
            Box::new(move |row, out| write!(out, "{}", array.value(row)))
        }
        DataType::Int8 => integer(array.as_primitive::<Int8Type>()),
        DataType::Int16 => integer(array.as_primitive::<Int16Type>()),
        DataType::Int32 => integer(array.as_primitive::<Int32Type>()),
        DataType::Int64 => integer(array.as_primitive::<Int64Type>()),
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>();
            Box::new(move |row, out| match array.value(row) {
                value if value.is_finite() => Ok(serde_json::to_writer(out, &value)?),
                value => not_finite(value.into(), out),
            })
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>();
            Box::new(move |row, out| match array.value(row) {
                value if value.is_finite() => Ok(serde_json::to_writer(out, &value)?),
                value => not_finite(value, out),
            })
        }
        DataType::Decimal128(_, scale) => {
            let (array, scale) =
                (array.as_primitive::<Decimal128Type>(), usize::try_from(*scale).map_err(|_| no_form())?);
            Box::new(move |row, out| decimal(array.value(row), scale, out))
        }
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Box::new(move |row, out| text(array.value(row), out))
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            Box::new(move |row, out| write!(out, "\"{}\"", STANDARD.encode(array.value(row))))
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>();
            Box::new(move |row, out| {
                out.push(b'"');
                date(array.value(row).into(), out)?;
                out.write_all(b"\"")
            })
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let (array, end) =
                (array.as_primitive::<TimestampMicrosecondType>(), if zone.is_some() { "Z\"" } else { "\"" });
            Box::new(move |row, out| {
                out.push(b'"');
                time(array.value(row), out)?;
                out.write_all(end.as_bytes())
            })
        }
        DataType::List(_) => {
            let array = array.as_list::<i32>();
            let element = cell(array.values().as_ref(), column)?;
            Box::new(move |row, out| sequence(b"[]", span(array.value_offsets(), row), out, |at, out| element(at, out)))
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            object(fields.iter().zip(columns).map(|(f, c)| (f.name(), c.as_ref())))?
        }
        DataType::Map(..) => {
            let array = array.as_map();
            let keyed_by_text = array.key_type() == &DataType::Utf8;
            let (key, value) = (cell(array.keys().as_ref(), column)?, cell(array.values().as_ref(), column)?);
            Box::new(move |row, out| {
                let entries = span(array.value_offsets(), row);
                if keyed_by_text {
                    return sequence(b"{}", entries, out, |at, out| {
                        key(at, out)?;
                        out.push(b':');
                        value(at, out)
                    });
                }
                sequence(b"[]", entries, out, |at, out| {
                    out.push(b'[');
                    key(at, out)?;
                    out.push(b',');
                    value(at, out)?;
                    out.write_all(b"]")
                })
            })
        }
        _ => return Err(no_form()),
    })
}

fn integer<'a, T: ArrowPrimitiveType<Native: Display>>(array: &'a PrimitiveArray<T>) -> Cell<'a> {
    Box::new(move |row, out| write!(out, "{}", array.value(row)))
}

fn not_finite(value: f64, out: &mut Vec<u8>) -> io::Result<()> {
    let word = match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    };
    write!(out, "\"{word}\"")
}

fn text(value: &str, out: &mut Vec<u8>) -> io::Result<()> {
    Ok(serde_json::to_writer(out, value)?)
}

/// `value` times `10^-scale`, with `scale` digits behind the point.
fn decimal(value: i128, scale: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let sign = if value < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    match digits.split_at_checked(digits.len() - scale) {
        Some((whole, fraction)) if scale > 0 => write!(out, "{sign}{whole}.{fraction}"),
        _ => write!(out, "{sign}{digits}"),
    }
}

/// Days since 1970 as year, month and day.
fn date(days: i64, out: &mut Vec<u8>) -> io::Result<()> {
    // Counted in years that begin in March, so that the leap day is a year's last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400 + i64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    if (0..=9999).contains(&year) {
        write!(out, "{year:04}-{month:02}-{day:02}")
    } else {
        write!(out, "{year:+05}-{month:02}-{day:02}")
    }
}

/// Microseconds since 1970 as date and time of day.
fn time(micros: i64, out: &mut Vec<u8>) -> io::Result<()> {
    let (seconds, micros) = (micros.div_euclid(MICROS_A_SECOND), micros.rem_euclid(MICROS_A_SECOND));
    let (days, seconds) = (seconds.div_euclid(SECONDS_A_DAY), seconds.rem_euclid(SECONDS_A_DAY));
    date(days, out)?;
    write!(out, "T{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
    if micros == 0 {
        return Ok(());
    }
    let fraction = format!("{micros:06}");
    write!(out, ".{}", fraction.trim_end_matches('0'))
}

/// The places of the elements of a list or map.
fn span(offsets: &[i32], row: usize) -> std::ops::Range<usize> {
    let at = |i: usize| offsets.get(i).and_then(|o| usize::try_from(*o).ok()).unwrap_or_default();
    at(row)..at(row + 1)
}

fn sequence(
    brackets: &[u8; 2],
    places: std::ops::Range<usize>,
    out: &mut Vec<u8>,
    write: impl Fn(usize, &mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let [open, close] = *brackets;
    out.push(open);
    for (i, at) in places.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(at, out)?;
    }
    out.push(close);
    Ok(())
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
