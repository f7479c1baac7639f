//! Which Arrow types a table keeps, and as what.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};

/// How deep lists, structs and maps may be nested in each other.
pub const MAX_DEPTH: usize = 32;

/// The metadata key by which Arrow names an extension type.
const EXTENSION: &str = "ARROW:extension:name";
/// The extension type of semi-structured values, which Delta has as `variant`.
const VARIANT: &str = "arrow.parquet.variant";
/// Extension types whose values say all in their storage, which is what the table keeps.
const TRANSPARENT: &[&str] = &["arrow.uuid", "arrow.json", "arrow.bool8"];
/// The most digits of a decimal.
const DECIMAL_DIGITS: u8 = 38;

/// Why a column cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unkept {
    /// The field: `a` the column, `a.b` a struct's field, `a[]` a list's element, `a.key` and `a.value` a map's.
    pub path: String,
    /// What is wrong, and what to do in the view.
    pub why: String,
}

/// The field that stands in the table for `field`: its kept type, the same nullability, no Arrow metadata but the mark
/// of a variant.
pub fn kept_field(field: &Field) -> Result<Field, Unkept> {
    kept_below(field, field.name(), field.name(), 0)
}

/// The type that stands in the table for `data_type`; `None` where it cannot be kept.
pub fn kept_type(data_type: &DataType) -> Option<DataType> {
    Some(kept_field(&Field::new("column", data_type.clone(), true)).ok()?.data_type().clone())
}

/// Whether a field is kept as Delta's `variant`.
pub fn is_variant(field: &Field) -> bool {
    field.metadata().get(EXTENSION).is_some_and(|name| name == VARIANT)
}

/// The field, marked as a `variant`.
pub(crate) fn as_variant(field: Field) -> Field {
    field.with_metadata([(EXTENSION.to_string(), VARIANT.to_string())].into())
}

/// What is wrong with a name in a table's schema; `None` for a good one.
pub(super) fn name_fault(name: &str) -> Option<&'static str> {
    let is_bad = name.is_empty() || name.chars().any(|c| " ,;{}()\n\t=".contains(c) || c.is_control());
    is_bad.then_some(
        "is empty or has one of ' ,;{}()=' or a control character, which Parquet readers of Delta refuse; give it another name in the view, or in the table itself: ALTER TABLE ... RENAME COLUMN",
    )
}

/// The kept form of `field`, which is called `name` in the table and stands at `path`.
fn kept_below(field: &Field, name: &str, path: &str, depth: usize) -> Result<Field, Unkept> {
    let unkept = |why: String| Unkept { path: path.to_string(), why };
    if depth > MAX_DEPTH {
        let outer = path.split(['.', '[']).next().unwrap_or_default();
        return Err(Unkept {
            path: outer.to_string(),
            why: format!("is nested deeper than {MAX_DEPTH} levels; flatten it in the view"),
        });
    }
    match field.metadata().get(EXTENSION) {
        Some(extension) if extension == VARIANT => return kept_variant(field, name).map_err(unkept),
        Some(extension) if !TRANSPARENT.contains(&extension.as_str()) => {
            return Err(unkept(format!(
                "has the extension type {extension:?}, whose meaning the table would lose; cast it to its storage, {}, in the view",
                field.data_type()
            )));
        }
        _ => {}
    }
    let kept = kept_of_type(field.data_type(), path, depth)?;
    Ok(Field::new(name, kept, field.is_nullable()))
}

fn kept_of_type(data_type: &DataType, path: &str, depth: usize) -> Result<DataType, Unkept> {
    use DataType as T;
    let unkept = |remedy: &str| {
        let why = format!("has the type {}, which cannot be kept; {remedy}", shown(data_type));
        Err(Unkept { path: path.to_string(), why })
    };
    Ok(match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 | T::Date32 => {
            data_type.clone()
        }
        T::UInt8 => T::Int16,
        T::UInt16 => T::Int32,
        T::UInt32 => T::Int64,
        T::UInt64 => T::Decimal128(20, 0),
        T::Float16 => T::Float32,
        T::Date64 => T::Date32,
        T::Timestamp(_, None) => T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(_, Some(_)) => T::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        T::Decimal32(p, s) | T::Decimal64(p, s) | T::Decimal128(p, s) | T::Decimal256(p, s) => {
            match kept_decimal(*p, *s) {
                Some(kept) => kept,
                None => return unkept("cast it to a decimal of at most 38 digits, or to a string, in the view"),
            }
        }
        T::Utf8 | T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        // Both are ways to write a type down, not types.
        T::Dictionary(_, values) => kept_of_type(values, path, depth + 1)?,
        T::RunEndEncoded(_, values) => kept_below(values, "values", path, depth + 1)?.data_type().clone(),
        T::List(f) | T::LargeList(f) | T::FixedSizeList(f, _) | T::ListView(f) | T::LargeListView(f) => {
            T::List(Arc::new(kept_below(f, "element", &format!("{path}[]"), depth + 1)?))
        }
        T::Struct(fields) => T::Struct(kept_struct(fields, path, depth)?),
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { return unkept("give it a key and a value") };
            let [key, value] = pair.as_ref() else { return unkept("give it a key and a value") };
            let key = kept_below(key, "key", &format!("{path}.key"), depth + 1)?.with_nullable(false);
            let value = kept_below(value, "value", &format!("{path}.value"), depth + 1)?;
            T::Map(Arc::new(Field::new("key_value", T::Struct(Fields::from(vec![key, value])), false)), false)
        }
        T::Time32(_) | T::Time64(_) => return unkept("cast it to a bigint of its units, or to a string, in the view"),
        T::Duration(_) => return unkept("cast it to a bigint of its units in the view"),
        T::Interval(_) => return unkept("cast it to a bigint of its units, or to a string, in the view"),
        T::Union(..) => return unkept("make it a struct with one field for each of its types in the view"),
        T::Null => return unkept("cast it to the type that its values would have in the view"),
    })
}

/// A negative scale counts digits before the point, which Delta has as digits.
fn kept_decimal(precision: u8, scale: i8) -> Option<DataType> {
    let (precision, scale) = match u8::try_from(scale) {
        Ok(scale) => (precision, scale),
        Err(_) => (precision.checked_add(scale.unsigned_abs())?, 0),
    };
    let fits = (1..=DECIMAL_DIGITS).contains(&precision) && scale <= precision;
    fits.then_some(DataType::Decimal128(precision, i8::try_from(scale).ok()?))
}

fn kept_struct(fields: &Fields, path: &str, depth: usize) -> Result<Fields, Unkept> {
    let unkept = |why: String| Unkept { path: path.to_string(), why };
    if fields.is_empty() {
        return Err(unkept("is a struct without fields, which Parquet cannot hold; leave it out of the view".into()));
    }
    let mut seen = HashSet::with_capacity(fields.len());
    let mut kept: Vec<FieldRef> = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field.name();
        if let Some(fault) = name_fault(name) {
            return Err(unkept(format!("has a field whose name {name:?} {fault}")));
        }
        if !seen.insert(name.to_lowercase()) {
            return Err(unkept(format!(
                "has two fields named {name:?} up to upper and lower case, which Delta cannot hold; rename one in the view"
            )));
        }
        kept.push(Arc::new(kept_below(field, name, &format!("{path}.{name}"), depth + 1)?));
    }
    Ok(Fields::from(kept))
}

/// A variant as Parquet has it when it is not shredded: two required binaries.
fn kept_variant(field: &Field, name: &str) -> Result<Field, String> {
    use DataType as T;
    let members = match field.data_type() {
        T::Struct(members) => members.as_ref(),
        _ => &[],
    };
    let is_binary = |f: &FieldRef| matches!(f.data_type(), T::Binary | T::LargeBinary | T::BinaryView);
    let has = |name: &str| members.iter().any(|f| f.name() == name && is_binary(f));
    if members.len() != 2 || !has("metadata") || !has("value") {
        return Err(format!(
            "is a variant whose storage is {}; only one of a binary metadata and a binary value can be kept: unshred it in the view",
            shown(field.data_type())
        ));
    }
    let member = |name: &str| Field::new(name, T::Binary, false);
    let storage = T::Struct(Fields::from(vec![member("metadata"), member("value")]));
    Ok(as_variant(Field::new(name, storage, field.is_nullable())))
}

/// A type in an error's message, which a hostile one must not flood.
fn shown(data_type: &DataType) -> String {
    const CHARS: usize = 200;
    let text = data_type.to_string();
    match text.char_indices().nth(CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
