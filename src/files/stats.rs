//! A file's statistics for `add.stats`, from its Arrow columns: sound or absent.
//!
//! A bound that is there holds for every value of the file as a reader finds it. Where JSON, or a reader's double,
//! cannot carry a bound exactly it is moved outwards (long strings, decimals beyond 15 digits, zeros of either sign);
//! where that is not possible either it is left out (NaN, infinities, years of more than four digits).

use std::cmp::Ordering;

use arrow::array::{Array, ArrayRef, ArrowNumericType, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{max, min, nullif};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use chrono::{DateTime, Datelike, NaiveDate};

use crate::schema::is_variant;

/// Characters of a string that its bound keeps.
const TEXT_CHARS: usize = 32;
/// Significant decimal digits that a double carries for certain.
const DOUBLE_DIGITS: u32 = 15;

/// Statistics of one file, gathered batch by batch.
#[derive(Debug)]
pub(super) struct FileStats {
    rows: u64,
    members: Vec<Member>,
}

/// A column, or a field of a struct.
#[derive(Debug)]
struct Member {
    /// Its name as JSON.
    name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Leaf {
        nulls: u64,
        bounds: Bounds,
    },
    /// The indexed fields of a struct, the leading ones.
    Struct(Vec<Member>),
    /// A column without statistics.
    Unindexed,
}

impl FileStats {
    /// Statistics of no rows for the first `indexed_columns` columns of `fields`, counted as Delta does: each field of a
    /// struct is one, at every depth, and so is a list, a map or a variant; and for the columns named in `always`.
    pub(super) fn new<'a>(
        fields: impl IntoIterator<Item = &'a FieldRef>,
        indexed_columns: usize,
        always: &[String],
    ) -> Self {
        let mut left = indexed_columns;
        let column = |field: &'a FieldRef| match (always.contains(field.name()), left) {
            (true, _) => Member::of_field(field, &mut { usize::MAX }),
            (false, 0) => Member { name: String::new(), kind: Kind::Unindexed },
            (false, _) => Member::of_field(field, &mut left),
        };
        Self { rows: 0, members: fields.into_iter().map(column).collect() }
    }

    /// Adds a batch that begins with the columns given to [`FileStats::new`]; `texts` are its [`text_ranges`].
    pub(super) fn add(&mut self, batch: &RecordBatch, texts: &[Range<Prefix>]) {
        self.rows += batch.num_rows() as u64;
        for ((member, column), text) in self.members.iter_mut().zip(batch.columns()).zip(texts) {
            member.add(column, text);
        }
    }

    /// The rows added.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// The statistics as JSON text.
    pub(super) fn to_json(&self) -> String {
        let Texts { mins, maxs, nulls } = Texts::of(&self.members);
        format!(
            r#"{{"numRecords":{},"minValues":{},"maxValues":{},"nullCount":{}}}"#,
            self.rows,
            object(&mins),
            object(&maxs),
            object(&nulls)
        )
    }
}

impl Member {
    fn of_field(field: &Field, left: &mut usize) -> Self {
        let kind = match field.data_type() {
            DataType::Struct(fields) if !is_variant(field) => {
                let mut members = Vec::new();
                for field in fields {
                    if *left == 0 {
                        break;
                    }
                    members.push(Self::of_field(field, left));
                }
                Kind::Struct(members)
            }
            other => {
                *left -= 1;
                Kind::Leaf { nulls: 0, bounds: Bounds::of_type(other) }
            }
        };
        Self { name: json(field.name()), kind }
    }

    /// Adds values; `text` is their [`text_range`].
    fn add(&mut self, column: &ArrayRef, text: &Range<Prefix>) {
        match &mut self.kind {
            Kind::Leaf { nulls, bounds } => {
                *nulls += column.null_count() as u64;
                bounds.add(column, text);
            }
            Kind::Struct(members) => {
                let values = column.as_struct();
                // What stands below a null struct is null to a reader, and whatever it likes in memory.
                let hidden = values.nulls().filter(|n| n.null_count() > 0).map(|n| BooleanArray::new(!n.inner(), None));
                for (member, field) in members.iter_mut().zip(values.columns()) {
                    match hidden.as_ref().and_then(|hidden| nullif(field, hidden).ok()) {
                        Some(field) => member.add(&field, &text_range(&field)),
                        None => member.add(field, &text_range(field)),
                    }
                }
            }
            Kind::Unindexed => {}
        }
    }
}

/// The members of three JSON objects, each as `"name":value`.
#[derive(Debug, Default)]
struct Texts {
    mins: Vec<String>,
    maxs: Vec<String>,
    nulls: Vec<String>,
}

impl Texts {
    fn of(members: &[Member]) -> Self {
        let mut texts = Self::default();
        for Member { name, kind } in members {
            match kind {
                Kind::Leaf { nulls, bounds } => {
                    let (min, max) = bounds.texts();
                    texts.mins.extend(min.map(|min| format!("{name}:{min}")));
                    texts.maxs.extend(max.map(|max| format!("{name}:{max}")));
                    texts.nulls.push(format!("{name}:{nulls}"));
                }
                Kind::Struct(members) => {
                    let inner = Self::of(members);
                    let nested = |inner: &[String]| (!inner.is_empty()).then(|| format!("{name}:{}", object(inner)));
                    texts.mins.extend(nested(&inner.mins));
                    texts.maxs.extend(nested(&inner.maxs));
                    texts.nulls.extend(nested(&inner.nulls));
                }
                Kind::Unindexed => {}
            }
        }
        texts
    }
}

fn object(members: &[String]) -> String {
    format!("{{{}}}", members.join(","))
}

/// The least and the greatest value; `None` before the first one.
pub(super) type Range<T> = Option<(T, T)>;

#[derive(Debug)]
enum Bounds {
    /// A type without bounds.
    Absent,
    Integer(Range<i64>),
    Float {
        range: Range<f64>,
        nan: bool,
    },
    Decimal {
        range: Range<i128>,
        precision: u8,
        scale: u8,
    },
    Text(Range<Prefix>),
    Date(Range<i32>),
    Time {
        range: Range<i64>,
        zone: &'static str,
    },
}

impl Bounds {
    fn of_type(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Self::Integer(None),
            DataType::Float32 | DataType::Float64 => Self::Float { range: None, nan: false },
            DataType::Decimal128(precision, scale) => {
                Self::Decimal { range: None, precision: *precision, scale: scale.unsigned_abs() }
            }
            DataType::Utf8 => Self::Text(None),
            DataType::Date32 => Self::Date(None),
            DataType::Timestamp(_, zone) => Self::Time { range: None, zone: if zone.is_some() { "Z" } else { "" } },
            _ => Self::Absent,
        }
    }

    fn add(&mut self, column: &ArrayRef, text: &Range<Prefix>) {
        match self {
            Self::Absent => {}
            Self::Integer(range) => match column.data_type() {
                DataType::Int8 => widen(range, bounds::<Int8Type>(column)),
                DataType::Int16 => widen(range, bounds::<Int16Type>(column)),
                DataType::Int32 => widen(range, bounds::<Int32Type>(column)),
                _ => widen(range, bounds::<Int64Type>(column)),
            },
            Self::Float { range, nan } => {
                let found = match column.data_type() {
                    DataType::Float32 => {
                        bounds::<Float32Type>(column).map(|(min, max)| (f64::from(min), f64::from(max)))
                    }
                    _ => bounds::<Float64Type>(column),
                };
                // The kernels follow the total order, whose ends are the NaNs of either sign.
                if found.is_some_and(|(min, max)| min.is_nan() || max.is_nan()) {
                    *nan = true;
                } else {
                    widen(range, found);
                }
            }
            Self::Decimal { range, .. } => widen(range, bounds::<Decimal128Type>(column)),
            Self::Text(range) => widen(range, text.clone()),
            Self::Date(range) => widen(range, bounds::<Date32Type>(column)),
            Self::Time { range, .. } => widen(range, bounds::<TimestampMicrosecondType>(column)),
        }
    }

    /// Both bounds as JSON, as far as they can be told.
    fn texts(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Integer(Some((min, max))) => (Some(min.to_string()), Some(max.to_string())),
            Self::Float { range: Some((min, max)), nan: false } => {
                (float_text(if *min == 0.0 { -0.0 } else { *min }), float_text(if *max == 0.0 { 0.0 } else { *max }))
            }
            Self::Decimal { range: Some((min, max)), precision, scale } => {
                let text = |bound: Option<i128>| bound.map(|bound| decimal_text(bound, usize::from(*scale)));
                // The least of a value is the negative of its negative's greatest.
                let min = min.checked_neg().and_then(|min| round_up(min, *precision)).map(|bound| -bound);
                (text(min), text(round_up(*max, *precision)))
            }
            Self::Text(Some((min, max))) => (Some(json(&min.text)), max.ceiling().map(|text| json(&text))),
            Self::Date(Some((min, max))) => (date_text(*min), date_text(*max)),
            Self::Time { range: Some((min, max)), zone } => (time_text(*min, zone), time_text(*max, zone)),
            _ => (None, None),
        }
    }
}

fn bounds<T: ArrowNumericType>(column: &ArrayRef) -> Range<T::Native> {
    let values = column.as_primitive::<T>();
    min(values).zip(max(values))
}

/// The bounds of each column's texts; `None` for columns of other types.
pub(super) fn text_ranges(batch: &RecordBatch) -> Vec<Range<Prefix>> {
    batch.columns().iter().map(text_range).collect()
}

fn text_range(column: &ArrayRef) -> Range<Prefix> {
    let (min, max) = text_bounds(column.as_string_opt::<i32>()?)?;
    Some((Prefix::of(min), Prefix::of(max)))
}

/// One pass for both ends that compares eight bytes at once: the kernels take two, which shows in a reload's time.
fn text_bounds(strings: &StringArray) -> Range<&str> {
    /// A text's first eight bytes, its length as far as that decides beside them, and the text.
    type Ranked<'a> = (u64, usize, &'a str);
    fn below(one: &Ranked, other: &Ranked) -> bool {
        match (one.0, one.1).cmp(&(other.0, other.1)) {
            Ordering::Equal => one.1 > 8 && one.2 < other.2,
            order => order.is_lt(),
        }
    }
    fn of<'a>(mut texts: impl Iterator<Item = Ranked<'a>>) -> Range<&'a str> {
        let first = texts.next()?;
        let (mut min, mut max) = (first, first);
        for text in texts {
            if below(&text, &min) {
                min = text;
            }
            if below(&max, &text) {
                max = text;
            }
        }
        Some((min.2, max.2))
    }
    let (bytes, offsets) = (strings.values().as_slice(), strings.value_offsets());
    let ranked = |i: usize| {
        let text = strings.value(i);
        let from = offsets.get(i).map_or(0, |offset| *offset as usize);
        // Of two texts that are longer than eight bytes the length says nothing.
        (first_eight(text, bytes.get(from..).unwrap_or_default()), text.len().min(9), text)
    };
    match strings.null_count() {
        0 => of((0..strings.len()).map(ranked)),
        _ => of((0..strings.len()).filter(|i| strings.is_valid(*i)).map(ranked)),
    }
}

/// The first bytes of `text` as a number in the string's order, zeros where it is shorter; `onward` begins with it.
fn first_eight(text: &str, onward: &[u8]) -> u64 {
    match onward.first_chunk() {
        Some(bytes) => match text.len() {
            0 => 0,
            length => u64::from_be_bytes(*bytes) & (u64::MAX << (64 - 8 * length.min(8))),
        },
        None => text.bytes().take(8).enumerate().fold(0, |sum, (i, byte)| sum | (u64::from(byte) << (56 - 8 * i))),
    }
}

pub(super) fn widen<T: PartialOrd, V: Into<T>>(range: &mut Range<T>, found: Range<V>) {
    let Some((min, max)) = found.map(|(min, max)| (min.into(), max.into())) else { return };
    *range = Some(match range.take() {
        None => (min, max),
        Some((least, greatest)) => (if min < least { min } else { least }, if max > greatest { max } else { greatest }),
    });
}

/// The beginning of a string, in the string's order: what was cut off makes it greater.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Prefix {
    text: String,
    cut: bool,
}

impl Prefix {
    /// Up to 32 characters of `text`.
    pub(super) fn of(text: &str) -> Self {
        match text.chars().nth(TEXT_CHARS) {
            Some(_) => Self { text: text.chars().take(TEXT_CHARS).collect(), cut: true },
            None => Self { text: text.to_string(), cut: false },
        }
    }

    /// The characters that were kept.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether the string went on.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// A string of no more characters that is not below any string with this prefix.
    pub(super) fn ceiling(&self) -> Option<String> {
        if !self.cut {
            return Some(self.text.clone());
        }
        let mut text = self.text.clone();
        while let Some(last) = text.pop() {
            // A range of characters knows of the gap that surrogates leave.
            if let Some(next) = (last..=char::MAX).nth(1) {
                text.push(next);
                return Some(text);
            }
        }
        None
    }
}

/// `value`, or the next one above it that has no more digits than a double carries; `None` beyond `precision`.
fn round_up(value: i128, precision: u8) -> Option<i128> {
    let digits = value.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1);
    let unit = 10i128.checked_pow(digits.saturating_sub(DOUBLE_DIGITS))?;
    let below = value.div_euclid(unit).checked_mul(unit)?;
    let rounded = if below == value { value } else { below.checked_add(unit)? };
    (rounded.unsigned_abs() < 10u128.checked_pow(u32::from(precision))?).then_some(rounded)
}

fn decimal_text(unscaled: i128, scale: usize) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    format!("{sign}{whole}{point}{fraction}")
}

fn float_text(value: f64) -> Option<String> {
    serde_json::Number::from_f64(value).map(|number| number.to_string())
}

fn date_text(days: i32) -> Option<String> {
    let date = NaiveDate::from_epoch_days(days)?;
    four_digit_year(date).then(|| format!("\"{}\"", date.format("%Y-%m-%d")))
}

fn time_text(micros: i64, zone: &str) -> Option<String> {
    let time = DateTime::from_timestamp_micros(micros)?.naive_utc();
    four_digit_year(time.date()).then(|| format!("\"{}{zone}\"", time.format("%Y-%m-%dT%H:%M:%S%.6f")))
}

fn four_digit_year(date: NaiveDate) -> bool {
    (1..=9999).contains(&date.year())
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
#[path = "stats_tests.rs"]
mod tests;
