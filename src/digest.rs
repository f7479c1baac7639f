//! A digest of rows that no order, file boundary, column order or wider type changes.
//!
//! The digest of a set of rows (with repetition) is the sum, modulo 2^128, of each row's hash:
//!
//! ```text
//! row   = XXH3-128(little-endian bytes of Σ over columns  cell × key(column)  mod 2^128)
//! key   = XXH3-128(column name) with its lowest bit set
//! cell  = tag × 2^64 + word, or 0 for null; word by type:
//!         tag 1  boolean              0 or 1
//!         tag 2  integer, decimal     the value, two's complement, when it is whole and fits 64 bits;
//!         tag 3                       otherwise XXH3-64(unscaled value, 16 bytes LE, scale byte), trailing zeros of
//!                                     the fraction removed first
//!         tag 4  float, double        bits of the value as double; one NaN
//!         tag 5  string               XXH3-64(UTF-8)
//!         tag 6  binary               XXH3-64(bytes)
//!         tag 7  date                 days since 1970
//!         tag 8  timestamp            microseconds since 1970 UTC
//!         tag 9  timestamp_ntz        microseconds since 1970
//!         tag 10 list                 XXH3-64(length, then each element's cell as 16 bytes LE)
//!         tag 11 struct               XXH3-64(Σ cell × key(field) as 16 bytes LE)
//!         tag 12 map                  XXH3-64(Σ over entries XXH3-128(key cell, value cell) as 16 bytes LE)
//! ```
//!
//! It is a check against accidents, not a signature.

use std::fmt;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use serde::{Deserialize, Serialize};
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::error::{Error, Result};

/// Rows whose sums stay in the processor's nearest cache while the columns add to them.
const BLOCK_ROWS: usize = 1024;

/// A sum of row hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(u128);

impl Digest {
    /// The digest of no rows.
    pub const EMPTY: Digest = Digest(0);

    /// A digest from its number.
    pub fn from_u128(value: u128) -> Self {
        Self(value)
    }

    /// Its number.
    pub fn as_u128(self) -> u128 {
        self.0
    }

    /// The digest of both sets of rows together.
    #[must_use]
    pub fn plus(self, other: Digest) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// The digest of the rows of this set without those of `other`, which are among them.
    #[must_use]
    pub fn minus(self, other: Digest) -> Self {
        Self(self.0.wrapping_sub(other.0))
    }

    /// The digest of all rows of `batch`, whose columns have kept types.
    pub fn of(batch: &RecordBatch) -> Result<Self> {
        let mut total = 0u128;
        each_row(batch, |hash| total = total.wrapping_add(hash))?;
        Ok(Self(total))
    }

    /// The digest of each row of `batch` by itself.
    pub fn of_rows(batch: &RecordBatch) -> Result<Vec<Self>> {
        let mut rows = Vec::with_capacity(batch.num_rows());
        each_row(batch, |hash| rows.push(Self(hash)))?;
        Ok(rows)
    }
}

/// Hashes each row, in order.
fn each_row(batch: &RecordBatch, mut take: impl FnMut(u128)) -> Result<()> {
    let fields = batch.schema_ref().fields();
    let columns: Vec<_> = fields.iter().map(|f| column_key(f.name())).zip(batch.columns()).collect();
    let mut sums = [0u128; BLOCK_ROWS];
    for start in (0..batch.num_rows()).step_by(BLOCK_ROWS) {
        let rows = BLOCK_ROWS.min(batch.num_rows() - start);
        let (sums, _) = sums.split_at_mut(rows);
        sums.fill(0);
        for (key, column) in &columns {
            add_cells(sums, &column.slice(start, rows), *key)?;
        }
        sums.iter().for_each(|row| take(XxHash3_128::oneshot(&row.to_le_bytes())));
    }
    Ok(())
}

impl std::iter::Sum for Digest {
    fn sum<I: Iterator<Item = Self>>(digests: I) -> Self {
        digests.fold(Self::EMPTY, Self::plus)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = Error;
    fn try_from(text: String) -> Result<Self> {
        if text.len() != 32 {
            return Err(Error::corrupt(format!("a digest has 32 hexadecimal digits, not {text:?}")));
        }
        u128::from_str_radix(&text, 16)
            .map(Self)
            .map_err(|e| Error::corrupt(format!("{text:?} is no digest")).with_source(e))
    }
}

fn column_key(name: &str) -> u128 {
    XxHash3_128::oneshot(name.as_bytes()) | 1
}

fn cell(tag: u64, word: u64) -> u128 {
    (u128::from(tag) << 64) | u128::from(word)
}

/// Adds `cell × key` of each value in `column` to its row's sum.
fn add_cells(rows: &mut [u128], column: &ArrayRef, key: u128) -> Result<()> {
    fn add<V>(
        rows: &mut [u128],
        nulls: Option<&arrow::buffer::NullBuffer>,
        values: impl Iterator<Item = V>,
        mut term_of: impl FnMut(V) -> u128,
    ) {
        match nulls.filter(|n| n.null_count() > 0) {
            None => {
                for (row, value) in rows.iter_mut().zip(values) {
                    *row = row.wrapping_add(term_of(value));
                }
            }
            Some(nulls) => {
                for ((row, value), valid) in rows.iter_mut().zip(values).zip(nulls.iter()) {
                    if valid {
                        *row = row.wrapping_add(term_of(value));
                    }
                }
            }
        }
    }
    let nulls = column.nulls();
    let term = |cell: u128| cell.wrapping_mul(key);
    macro_rules! primitive {
        ($t:ty, $cell_of:expr) => {
            add(rows, nulls, column.as_primitive::<$t>().values().iter().copied(), |v| term($cell_of(v)))
        };
    }
    match column.data_type() {
        DataType::Boolean => add(rows, nulls, column.as_boolean().values().iter(), |v| term(cell(1, u64::from(v)))),
        DataType::Int8 => primitive!(Int8Type, |v| integer_cell(i64::from(v))),
        DataType::Int16 => primitive!(Int16Type, |v| integer_cell(i64::from(v))),
        DataType::Int32 => primitive!(Int32Type, |v| integer_cell(i64::from(v))),
        DataType::Int64 => primitive!(Int64Type, integer_cell),
        DataType::Decimal128(_, scale) => {
            let scale = scale.unsigned_abs();
            let values = column.as_primitive::<Decimal128Type>().values().iter().copied();
            let term_of = |v| term(decimal_cell(v, scale));
            let mut memory = Memory::new(term_of(0));
            add(rows, nulls, values, |v| match u64::try_from(v) {
                Ok(short) => memory.term(short, || term_of(v)),
                Err(_) => term_of(v),
            });
        }
        DataType::Float32 => primitive!(Float32Type, |v| float_cell(f64::from(v))),
        DataType::Float64 => primitive!(Float64Type, float_cell),
        DataType::Utf8 => {
            let strings = column.as_string::<i32>();
            let term_of = |text: &[u8]| term(cell(5, XxHash3_64::oneshot(text)));
            let (bytes, offsets) = (strings.values().as_slice(), strings.value_offsets());
            let spans = || offsets.iter().zip(offsets.iter().skip(1)).map(|(from, to)| (*from as usize, *to as usize));
            // Lengths on both sides of the bound would cost more in wrong guesses than the memory saves.
            if spans().fold(true, |all, (from, to)| all & (to - from < 8)) {
                let mut memory = Memory::new(term_of(&[]));
                add(rows, nulls, spans(), |(from, to)| {
                    let short = short_text(to - from, bytes.get(from..).unwrap_or_default());
                    memory.term(short, || term_of(bytes.get(from..to).unwrap_or_default()))
                });
            } else {
                add(rows, nulls, (0..strings.len()).map(|i| strings.value(i)), |text| term_of(text.as_bytes()));
            }
        }
        DataType::Binary => {
            let values = column.as_binary::<i32>();
            add(rows, nulls, (0..values.len()).map(|i| values.value(i)), |v| term(cell(6, XxHash3_64::oneshot(v))));
        }
        DataType::Date32 => primitive!(Date32Type, |v| cell(7, i64::from(v) as u64)),
        DataType::Timestamp(_, zone) => {
            let tag = if zone.is_some() { 8 } else { 9 };
            primitive!(TimestampMicrosecondType, |v| cell(tag, v as u64));
        }
        _ => add(rows, nulls, nested_cells(column)?.into_iter(), term),
    }
    Ok(())
}

/// What the values seen last add to their rows' sums: a column of few values needs few hashes.
struct Memory {
    slots: [(u64, u128); SLOTS],
    /// How many values more may be unknown before the column counts as one with many.
    trust: usize,
}

const SLOTS: usize = 128;
/// Multiplying by it spreads numbers that differ little.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Memory {
    /// A memory that knows what 0 adds.
    fn new(term: u128) -> Self {
        Self { slots: [(0, term); SLOTS], trust: SLOTS }
    }

    /// What `value` adds, told by `term` where that is not known.
    #[inline(always)]
    fn term(&mut self, value: u64, term: impl FnOnce() -> u128) -> u128 {
        if self.trust == 0 {
            return term();
        }
        let slot = value.wrapping_mul(GOLDEN) >> (64 - SLOTS.ilog2());
        match self.slots.get_mut(slot as usize) {
            Some((known, term)) if *known == value => *term,
            Some(slot) => {
                self.trust -= 1;
                *slot = (value, term());
                slot.1
            }
            None => term(),
        }
    }
}

/// A text of fewer than eight bytes as a number with its length; `onward` begins with it.
#[inline(always)]
fn short_text(length: usize, onward: &[u8]) -> u64 {
    let word = match onward.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes) & !(u64::MAX << (8 * length)),
        None => onward.iter().take(length).rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word | (length as u64) << 56
}

fn integer_cell(value: i64) -> u128 {
    cell(2, value as u64)
}

fn decimal_cell(value: i128, scale: u8) -> u128 {
    match i64::try_from(value) {
        Ok(small) if scale <= SHORT_SCALE => short_decimal_cell(small, scale),
        _ => wide_decimal_cell(value, scale),
    }
}

/// Most decimals are no larger than this and have no more digits behind the point.
///
/// Whether a zero ends them is a matter of chance, so this neither branches nor divides: a value that ten divides is the
/// product of its quotient and ten, and multiplying by the inverse of five, halves rotated away, gives that quotient;
/// any other value comes out beyond what a quotient can be.
fn short_decimal_cell(value: i64, scale: u8) -> u128 {
    let (mut digits, mut left) = (value.unsigned_abs(), scale);
    let mut goes_on = true;
    for _ in 0..scale {
        let quotient = digits.wrapping_mul(INVERSE_OF_FIVE).rotate_right(1);
        goes_on &= quotient <= u64::MAX / 10;
        digits = if goes_on { quotient } else { digits };
        left -= u8::from(goes_on);
    }
    let value = if value < 0 { digits.wrapping_neg() } else { digits } as i64;
    let fraction = fraction_cell(i128::from(value), left);
    if left == 0 { integer_cell(value) } else { fraction }
}

const SHORT_SCALE: u8 = 4;
/// 5 times this is 1, modulo 2^64.
const INVERSE_OF_FIVE: u64 = 0xcccc_cccc_cccc_cccd;

fn wide_decimal_cell(mut value: i128, mut scale: u8) -> u128 {
    while scale > 0 && value % 10 == 0 {
        value /= 10;
        scale -= 1;
    }
    match i64::try_from(value) {
        Ok(whole) if scale == 0 => integer_cell(whole),
        _ => fraction_cell(value, scale),
    }
}

/// XXH3-64 of 17 bytes, written out: the library decides by the length each time, which shows in a reload's time.
fn fraction_cell(value: i128, scale: u8) -> u128 {
    let mix = |low: u64, high: u64, secret: (u64, u64)| {
        let product = u128::from(low ^ secret.0) * u128::from(high ^ secret.1);
        product as u64 ^ (product >> 64) as u64
    };
    // The first sixteen bytes and the last sixteen, which begin with the second one.
    let bytes = value as u128;
    let shifted = (bytes >> 8) | (u128::from(scale) << 120);
    let sum = 17u64
        .wrapping_mul(0x9e37_79b1_85eb_ca87)
        .wrapping_add(mix(bytes as u64, (bytes >> 64) as u64, (0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c)))
        .wrapping_add(mix(shifted as u64, (shifted >> 64) as u64, (0xdb97_9083_e96d_d4de, 0x1f67_b3b7_a4a4_4072)));
    let sum = (sum ^ (sum >> 37)).wrapping_mul(0x1656_6791_9e37_79f9);
    cell(3, sum ^ (sum >> 32))
}

fn float_cell(value: f64) -> u128 {
    let value = if value.is_nan() { f64::NAN } else { value };
    cell(4, value.to_bits())
}

/// The cell of each value of a list, struct or map.
fn nested_cells(column: &ArrayRef) -> Result<Vec<u128>> {
    // A slice of a list shares its elements with the whole: only those between its own offsets are hashed.
    let cells_of = |values: &ArrayRef, offsets: &[i32]| -> Result<Vec<u128>> {
        let (first, last) = (offsets.first().copied().unwrap_or(0), offsets.last().copied().unwrap_or(0));
        let values = values.slice(first as usize, (last - first) as usize);
        let mut cells = vec![0u128; values.len()];
        add_cells(&mut cells, &values, 1)?;
        Ok(cells)
    };
    match column.data_type() {
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let elements = cells_of(list.values(), list.value_offsets())?;
            Ok(spans(list.value_offsets())
                .map(|span| {
                    let mut bytes = (span.len() as u64).to_le_bytes().to_vec();
                    bytes.extend(elements.get(span).unwrap_or_default().iter().flat_map(|c| c.to_le_bytes()));
                    cell(10, XxHash3_64::oneshot(&bytes))
                })
                .collect())
        }
        DataType::Struct(fields) => {
            let mut sums = vec![0u128; column.len()];
            for (field, values) in fields.iter().zip(column.as_struct().columns()) {
                add_cells(&mut sums, values, column_key(field.name()))?;
            }
            Ok(sums.iter().map(|sum| cell(11, XxHash3_64::oneshot(&sum.to_le_bytes()))).collect())
        }
        DataType::Map(_, _) => {
            let map = column.as_map();
            let offsets = map.value_offsets();
            let (keys, values) = (cells_of(map.keys(), offsets)?, cells_of(map.values(), offsets)?);
            let entry = |(key, value): (&u128, &u128)| {
                let mut bytes = [0u8; 32];
                let (first, second) = bytes.split_at_mut(16);
                first.copy_from_slice(&key.to_le_bytes());
                second.copy_from_slice(&value.to_le_bytes());
                XxHash3_128::oneshot(&bytes)
            };
            Ok(spans(offsets)
                .map(|span| {
                    let keys = keys.get(span.clone()).unwrap_or_default().iter();
                    let sum = keys.zip(values.get(span).unwrap_or_default()).map(entry).fold(0u128, u128::wrapping_add);
                    cell(12, XxHash3_64::oneshot(&sum.to_le_bytes()))
                })
                .collect())
        }
        other => Err(Error::internal(format!("a column of type {other} has no digest"))),
    }
}

/// Where each list's elements stand, counted from those of the first.
fn spans(offsets: &[i32]) -> impl Iterator<Item = Range<usize>> {
    let first = offsets.first().copied().unwrap_or(0);
    offsets.iter().zip(offsets.iter().skip(1)).map(move |(a, b)| (a - first) as usize..(b - first) as usize)
}

#[cfg(test)]
#[path = "digest_tests.rs"]
mod tests;
