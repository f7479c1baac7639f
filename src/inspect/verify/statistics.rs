//! What statistics say of a data file's rows, held against the rows: readers skip files and row groups by them.
//!
//! The rule is soundness: a bound may lie outside of all values, never inside.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{cast, max, max_string, min, min_string, nullif};
use arrow::datatypes::{DataType, Decimal128Type, Field, Int64Type, Schema};
use chrono::{DateTime, NaiveDate, NaiveDateTime};
use futures::FutureExt;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::data_file::{Origin, fit_column};
use crate::error::Result;
use crate::log::{LiveFile, Log};
use crate::schema::is_variant;

/// How many untrue statements of one file are named.
const MOST_NAMED: usize = 3;
/// Others cut timestamps to milliseconds, and readers know that of the greatest one.
const MILLISECOND: i128 = 999;
/// Characters of a text that a message shows.
const SHOWN_CHARS: usize = 40;

/// What the statistics of a file say, and what its rows come to so far.
pub(super) struct Statistics {
    leaves: Vec<Leaf>,
    whole: Part,
    groups: Vec<Part>,
}

/// A column, or a field of a struct.
struct Leaf {
    /// Its names in the table, with points between.
    name: String,
    /// Its names in the file.
    stored: Vec<String>,
    place: Vec<usize>,
    data_type: DataType,
}

/// Rows that statistics are about.
struct Part {
    /// Who says it.
    who: String,
    first_row: u64,
    /// `None` for all that follow.
    rows: Option<u64>,
    /// Whether bounds beside a NaN claim to hold for it too.
    bounds_hold_for_nan: bool,
    seen_rows: u64,
    claims: Vec<Claim>,
}

/// What is said of one leaf, and what was found.
#[derive(Default)]
struct Claim {
    min: Option<Cell>,
    max: Option<Cell>,
    nulls: Option<u64>,
    found: Extent,
}

#[derive(Debug, Clone, PartialEq, PartialOrd)]
enum Cell {
    /// Whole numbers, booleans, days, microseconds, unscaled decimals.
    Whole(i128),
    Float(f64),
    Text(String),
}

/// What values come to.
#[derive(Debug, Clone, Default)]
struct Extent {
    nulls: u64,
    nan: bool,
    range: Option<(Cell, Cell)>,
}

/// Which of two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Side {
    Min,
    Max,
}

/// The members of `add.stats` that readers skip files by.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    min_values: Option<Members>,
    max_values: Option<Members>,
    null_count: Option<Members>,
}

type Members = HashMap<String, Box<RawValue>>;

impl Statistics {
    /// What the log, whose text is `stats`, and the file's footer say of the columns `schema`.
    pub(super) async fn of(
        log: &Log,
        from: &Origin,
        schema: &Schema,
        file: &LiveFile,
        stats: Option<&str>,
    ) -> Result<Self> {
        let mut leaves = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            take_leaves(field, from.stored(field), &[at], &[], &[], &mut leaves);
        }
        let told = stats.and_then(|stats| serde_json::from_str::<Told>(stats).ok());
        let is_ours = file.digest.is_some();
        let claims = leaves.iter().map(|leaf| told.as_ref().map_or_else(Claim::default, |told| told.of(leaf, is_ours)));
        let whole = Part {
            who: "the log".to_string(),
            first_row: 0,
            rows: None,
            bounds_hold_for_nan: is_ours,
            seen_rows: 0,
            claims: claims.collect(),
        };
        let size = u64::try_from(file.size).unwrap_or(0);
        let object = file.object()?;
        // A footer that cannot be read is told by the reading of the rows.
        let read = AssertUnwindSafe(log.footer(&object, size)).catch_unwind().await;
        let footer = match read {
            Ok(Err(e)) if e.kind().leaves_open() => return Err(e),
            Ok(Ok(Ok(footer))) => Some(footer),
            _ => None,
        };
        let groups = || footer.map(|footer| groups(&footer, from, schema, &leaves, &file.path)).unwrap_or_default();
        let groups = std::panic::catch_unwind(AssertUnwindSafe(groups)).unwrap_or_default();
        Ok(Self { leaves, whole, groups })
    }

    /// Takes in the rows that begin with the file's row `first`.
    pub(super) fn see(&mut self, first: u64, rows: &RecordBatch) {
        let end = first + rows.num_rows() as u64;
        let mut at = first;
        while at < end {
            let group = self.groups.iter_mut().find(|group| group.end().is_some_and(|end| at < end));
            let until = group.as_ref().and_then(|group| group.end()).map_or(end, |last| last.min(end));
            let (offset, length) = ((at - first) as usize, (until - at) as usize);
            let part = rows.slice(offset, length);
            let mut parts: Vec<&mut Part> = std::iter::once(&mut self.whole).chain(group).collect();
            for (number, leaf) in self.leaves.iter().enumerate() {
                let is_said = |part: &&mut Part| part.claims.get(number).is_some_and(Claim::says_anything);
                if !parts.iter().any(is_said) {
                    continue;
                }
                let Some(extent) = leaf.column(&part).map(|column| Extent::of(&column)) else { continue };
                for claim in parts.iter_mut().filter_map(|part| part.claims.get_mut(number)) {
                    claim.found.add(extent.clone());
                }
            }
            parts.iter_mut().for_each(|part| part.seen_rows += length as u64);
            at = until;
        }
    }

    /// The statements by which a reader would skip a row that it looks for.
    pub(super) fn untrue(&self) -> Option<String> {
        let mut untrue = Vec::new();
        for part in std::iter::once(&self.whole).chain(&self.groups) {
            for (leaf, claim) in self.leaves.iter().zip(&part.claims) {
                untrue.extend(part.untrue(leaf, claim));
            }
        }
        let more = untrue.len().saturating_sub(MOST_NAMED);
        untrue.truncate(MOST_NAMED);
        let others = if more > 0 { format!("; and {more} more") } else { String::new() };
        (!untrue.is_empty()).then(|| format!("{}{others}", untrue.join("; ")))
    }
}

impl Part {
    fn end(&self) -> Option<u64> {
        self.rows.map(|rows| self.first_row + rows)
    }

    fn untrue(&self, leaf: &Leaf, claim: &Claim) -> Vec<String> {
        let (who, name) = (&self.who, &leaf.name);
        let mut untrue = Vec::new();
        let mut outside = |side: &str, said: &Cell, found: &str| {
            untrue.push(format!(
                "{who} says that the {side} of {name:?} is {}, and a row has {found}",
                said.text(&leaf.data_type)
            ));
        };
        let range = claim.found.range.as_ref();
        if let (Some(said), Some((found, _))) = (&claim.min, range)
            && found < said
        {
            outside("minimum", said, &found.text(&leaf.data_type));
        }
        if let (Some(said), Some((_, found))) = (&claim.max, range)
            && found > said
        {
            outside("maximum", said, &found.text(&leaf.data_type));
        }
        if let (Some(said), true) = (&claim.max, claim.found.nan && self.bounds_hold_for_nan) {
            outside("maximum", said, "NaN");
        }
        let (found, rows) = (claim.found.nulls, self.seen_rows);
        match claim.nulls {
            Some(0) if found > 0 => {
                untrue.push(format!("{who} says that 0 rows have no {name:?}, and of {rows} rows {found} have none"));
            }
            Some(said) if said >= rows && found < rows => {
                untrue.push(format!(
                    "{who} says that {said} rows have no {name:?}, and of {rows} rows {found} have none"
                ));
            }
            _ => {}
        }
        untrue
    }
}

impl Claim {
    fn says_anything(&self) -> bool {
        self.min.is_some() || self.max.is_some() || self.nulls.is_some()
    }
}

/// Adds the leaves of a field.
fn take_leaves(
    field: &Field,
    stored: &Field,
    place: &[usize],
    names: &[String],
    files: &[String],
    leaves: &mut Vec<Leaf>,
) {
    let names = [names, &[field.name().clone()]].concat();
    let files = [files, &[stored.name().clone()]].concat();
    match (field.data_type(), stored.data_type()) {
        (DataType::Struct(members), DataType::Struct(in_file)) if !is_variant(field) => {
            for (at, (member, stored)) in members.iter().zip(in_file).enumerate() {
                take_leaves(member, stored, &[place, &[at]].concat(), &names, &files, leaves);
            }
        }
        (data_type, _) => leaves.push(Leaf {
            name: names.join("."),
            stored: files,
            place: place.to_vec(),
            data_type: data_type.clone(),
        }),
    }
}

impl Leaf {
    /// Whether its values have an order, and are counted alike by all.
    fn is_plain(&self) -> bool {
        !self.data_type.is_nested()
    }

    /// Its values; what stands below a null struct is null.
    fn column(&self, rows: &RecordBatch) -> Option<ArrayRef> {
        let (root, inner) = self.place.split_first()?;
        let mut column = rows.columns().get(*root)?.clone();
        for at in inner {
            let structure = column.as_struct_opt()?;
            let member = structure.columns().get(*at)?.clone();
            let hidden = structure.nulls().filter(|n| n.null_count() > 0).map(|n| BooleanArray::new(!n.inner(), None));
            column = match hidden {
                Some(hidden) => nullif(&member, &hidden).ok()?,
                None => member,
            };
        }
        Some(column)
    }
}

impl Told {
    fn of(&self, leaf: &Leaf, is_ours: bool) -> Claim {
        let bound = |members: &Option<Members>, side| {
            Cell::read(member(members.as_ref()?, &leaf.stored)?.get(), &leaf.data_type, side)
        };
        // Others count elements of lists as they like.
        let counts = is_ours || leaf.is_plain();
        let nulls = self.null_count.as_ref().filter(|_| counts).and_then(|m| member(m, &leaf.stored));
        Claim {
            min: bound(&self.min_values, Side::Min),
            max: bound(&self.max_values, Side::Max),
            nulls: nulls.and_then(|raw| raw.get().parse().ok()),
            found: Extent::default(),
        }
    }
}

fn member(members: &Members, path: &[String]) -> Option<Box<RawValue>> {
    let (name, inner) = path.split_first()?;
    let value = members.get(name)?;
    if inner.is_empty() {
        return Some(value.clone());
    }
    member(&serde_json::from_str(value.get()).ok()?, inner)
}

/// What a footer says of its row groups' top-level columns.
fn groups(footer: &ParquetMetaData, from: &Origin, schema: &Schema, leaves: &[Leaf], path: &str) -> Vec<Part> {
    let mut first_row = 0;
    let mut groups: Vec<Part> = Vec::new();
    for (number, group) in footer.row_groups().iter().enumerate() {
        let rows = u64::try_from(group.num_rows()).unwrap_or(0);
        groups.push(Part {
            who: format!("the footer, of row group {number},"),
            first_row,
            rows: Some(rows),
            // Parquet's bounds are about the other values.
            bounds_hold_for_nan: false,
            seen_rows: 0,
            claims: leaves.iter().map(|_| Claim::default()).collect(),
        });
        first_row += rows;
    }
    let file = footer.file_metadata();
    let Ok(in_file) = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata()) else { return groups };
    for (number, leaf) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.is_plain()) {
        let [root] = leaf.place.as_slice() else { continue };
        let Some(field) = schema.fields().get(*root) else { continue };
        let stored = from.stored(field);
        let converter = StatisticsConverter::try_new(stored.name(), &in_file, file.schema_descr());
        let Ok(converter) = converter.map(|c| c.with_missing_null_counts_as_zero(false)) else { continue };
        let Some(column) = converter.parquet_column_index() else { continue };
        let fitted = |bounds: parquet::errors::Result<ArrayRef>| fit_column(&bounds.ok()?, stored, path).ok();
        let mins = fitted(converter.row_group_mins(footer.row_groups()));
        let maxs = fitted(converter.row_group_maxes(footer.row_groups()));
        let nulls = converter.row_group_null_counts(footer.row_groups()).ok();
        for (at, (group, said)) in groups.iter_mut().zip(footer.row_groups()).enumerate() {
            let Some(claim) = group.claims.get_mut(number) else { continue };
            // Bounds of the old kind are in an order that no reader trusts.
            let chunk = said.columns().get(column).and_then(|chunk| chunk.statistics());
            let is_trusted = chunk.is_some_and(|chunk| !chunk.is_min_max_deprecated());
            let one = |bounds: &Option<ArrayRef>| {
                let bound = bounds.as_ref().filter(|b| is_trusted && at < b.len())?.slice(at, 1);
                Extent::of(&bound).range.map(|(bound, _)| bound)
            };
            claim.min = one(&mins);
            claim.max = one(&maxs);
            claim.nulls = nulls.as_ref().filter(|n| at < n.len() && n.is_valid(at)).map(|n| n.value(at));
        }
    }
    groups
}

impl Extent {
    /// What a column's values come to; no range for types without an order here.
    fn of(column: &ArrayRef) -> Self {
        let range = |range: Option<(i128, i128)>| range.map(|(min, max)| (Cell::Whole(min), Cell::Whole(max)));
        let mut nan = false;
        let range = match column.data_type() {
            DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Date32
            | DataType::Timestamp(..) => cast(column, &DataType::Int64).ok().and_then(|column| {
                let values = column.as_primitive::<Int64Type>();
                range(min(values).zip(max(values)).map(|(min, max)| (min.into(), max.into())))
            }),
            DataType::Decimal128(..) => {
                let values = column.as_primitive::<Decimal128Type>();
                range(min(values).zip(max(values)))
            }
            DataType::Float32 | DataType::Float64 => cast(column, &DataType::Float64).ok().and_then(|column| {
                let mut found: Option<(f64, f64)> = None;
                for value in column.as_primitive::<arrow::datatypes::Float64Type>().iter().flatten() {
                    if value.is_nan() {
                        nan = true;
                        continue;
                    }
                    let (min, max) = found.unwrap_or((value, value));
                    found = Some((min.min(value), max.max(value)));
                }
                found.map(|(min, max)| (Cell::Float(min), Cell::Float(max)))
            }),
            DataType::Utf8 => {
                let values = column.as_string::<i32>();
                let text = |text: &str| Cell::Text(text.to_string());
                min_string(values).zip(max_string(values)).map(|(min, max)| (text(min), text(max)))
            }
            _ => None,
        };
        Self { nulls: column.null_count() as u64, nan, range }
    }

    fn add(&mut self, other: Self) {
        self.nulls += other.nulls;
        self.nan |= other.nan;
        self.range = match (self.range.take(), other.range) {
            (Some((min, max)), Some((low, high))) => {
                Some((if low < min { low } else { min }, if high > max { high } else { max }))
            }
            (one, other) => one.or(other),
        };
    }
}

impl Cell {
    /// A bound as the log has it; `None` for one that no reader could compare.
    fn read(json: &str, data_type: &DataType, side: Side) -> Option<Self> {
        let text = || serde_json::from_str::<String>(json).ok();
        let plain = || text().unwrap_or_else(|| json.to_string());
        Some(match data_type {
            DataType::Boolean => Self::Whole(i128::from(json.parse::<bool>().ok()?)),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Self::Whole(json.parse().ok()?),
            // Readers compare floats as floats, of which the shortest text stands for one.
            DataType::Float32 => {
                Self::Float(plain().parse::<f32>().ok().filter(|bound| !bound.is_nan()).map(f64::from)?)
            }
            DataType::Float64 => Self::Float(plain().parse::<f64>().ok().filter(|bound| !bound.is_nan())?),
            DataType::Decimal128(_, scale) => Self::Whole(unscaled(&plain(), i64::from(*scale), side)?),
            DataType::Utf8 => Self::Text(text()?),
            DataType::Date32 => Self::Whole(i128::from(days(text()?.get(..10)?)?)),
            DataType::Timestamp(..) => Self::Whole(micros(&text()?, side)?),
            _ => return None,
        })
    }

    /// The value as people read it.
    fn text(&self, data_type: &DataType) -> String {
        match (self, data_type) {
            (Self::Text(text), _) if text.chars().count() > SHOWN_CHARS => {
                format!("{:?}…", text.chars().take(SHOWN_CHARS).collect::<String>())
            }
            (Self::Text(text), _) => format!("{text:?}"),
            (Self::Float(value), _) => value.to_string(),
            (Self::Whole(days), DataType::Date32) => {
                let date = i32::try_from(*days).ok().and_then(NaiveDate::from_epoch_days);
                date.map_or_else(|| format!("day {days}"), |date| date.to_string())
            }
            (Self::Whole(micros), DataType::Timestamp(..)) => {
                let time = i64::try_from(*micros).ok().and_then(DateTime::from_timestamp_micros);
                time.map_or_else(|| format!("microsecond {micros}"), |time| time.naive_utc().to_string())
            }
            (Self::Whole(value), DataType::Decimal128(_, scale)) if *scale > 0 => format!("{value}e-{scale}"),
            (Self::Whole(value), DataType::Boolean) => (*value != 0).to_string(),
            (Self::Whole(value), _) => value.to_string(),
        }
    }
}

/// A decimal without its point, moved to the nearest that compares alike with whole ones.
fn unscaled(text: &str, scale: i64, side: Side) -> Option<i128> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = exponent.parse::<i64>().ok()?.checked_add(scale)?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let unit = 10i128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?)?;
    match (shift >= 0, side) {
        (true, _) => digits.checked_mul(unit),
        (false, Side::Max) => Some(digits.div_euclid(unit)),
        (false, Side::Min) => Some(-(-digits).div_euclid(unit)),
    }
}

fn days(text: &str) -> Option<i32> {
    Some(NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.to_epoch_days())
}

fn micros(text: &str, side: Side) -> Option<i128> {
    let time = DateTime::parse_from_rfc3339(text).map(|time| time.naive_utc());
    let naive = || NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f");
    let spaced = || NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f");
    let midnight = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().and_then(|day| day.and_hms_opt(0, 0, 0));
    let time = time.or_else(|_| naive()).or_else(|_| spaced()).ok().or_else(midnight)?;
    let digits = text.split_once('.').map_or(0, |(_, f)| f.chars().take_while(char::is_ascii_digit).count());
    let cut = if side == Side::Max && digits <= 3 { MILLISECOND } else { 0 };
    Some(i128::from(time.and_utc().timestamp_micros()) + cut)
}

#[cfg(test)]
#[path = "statistics_tests.rs"]
mod tests;
