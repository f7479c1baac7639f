//! The view's schema: which columns can be kept, and how they stand in the table.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use crate::continuity::stamp;
use crate::error::{Error, Result};

/// A named relation that changes step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    name: String,
    schema: SchemaRef,
    key: Vec<String>,
    /// Both follow from `schema`, and every append asks for them.
    changelog_schema: SchemaRef,
    change_schema: SchemaRef,
}

impl View {
    /// A view whose columns can all be kept; refused with the column's name otherwise.
    ///
    /// `key` names the columns that identify a row; empty for a view without key.
    pub fn new(name: impl Into<String>, schema: &Schema, key: Vec<String>) -> Result<Self> {
        let name = name.into();
        let mut seen = HashSet::new();
        let mut fields = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            check_column_name(&name, field.name())?;
            if !seen.insert(field.name().to_lowercase()) {
                return Err(Error::incompatible(format!(
                    "view {name}: two columns are named {:?} up to upper and lower case, which Delta cannot hold; rename one",
                    field.name()
                )));
            }
            let kept = kept_type(field.data_type()).ok_or_else(|| {
                Error::incompatible(format!(
                    "view {name}: column {:?} has the type {}, which cannot be kept; cast it in the view to one of {KEPT}",
                    field.name(),
                    field.data_type()
                ))
            })?;
            let nullable = if key.is_empty() { field.is_nullable() } else { !key.contains(field.name()) };
            fields.push(Field::new(field.name(), kept, nullable));
        }
        if fields.is_empty() {
            return Err(Error::incompatible(format!("view {name} has no columns")));
        }
        for (i, column) in key.iter().enumerate() {
            let Some(field) = fields.iter().find(|f| f.name() == column) else {
                return Err(Error::config(format!(
                    "view {name}: the key column {column:?} is not a column of the view"
                )));
            };
            if field.data_type().is_nested() || field.data_type().is_floating() {
                return Err(Error::incompatible(format!(
                    "view {name}: the key column {column:?} has the type {}, and a key needs values that are equal or not: no float, list, struct or map",
                    field.data_type()
                )));
            }
            if key.iter().skip(i + 1).any(|other| other == column) {
                return Err(Error::config(format!("view {name}: the key names the column {column:?} twice")));
            }
        }
        let schema = Arc::new(Schema::new(fields));
        let (changelog_schema, change_schema) = (changelog_schema(&schema), change_schema(&schema));
        Ok(Self { name, schema, key, changelog_schema, change_schema })
    }

    /// The view's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns as they are kept: plain types, no Arrow metadata; nullable outside the key of a keyed view.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The key's columns, in the order given; empty for a view without key.
    pub fn key(&self) -> &[String] {
        &self.key
    }

    /// Whether the view has a key.
    pub fn is_keyed(&self) -> bool {
        !self.key.is_empty()
    }

    /// The positions of the key's columns in [`View::schema`].
    pub(crate) fn key_indices(&self) -> Vec<usize> {
        self.key.iter().filter_map(|k| self.schema.index_of(k).ok()).collect()
    }

    /// The table's columns in layout `changelog`: the three of continuity first, then the view's.
    pub fn changelog_schema(&self) -> SchemaRef {
        Arc::clone(&self.changelog_schema)
    }

    /// A batch of changes as sources give them: `__step`, `__op`, then the view's columns, all of
    /// them nullable since a delete needs no more than its key.
    pub fn change_schema(&self) -> SchemaRef {
        Arc::clone(&self.change_schema)
    }

    /// Rows of the view in the kept types, columns found by name; `place` begins the error's message.
    ///
    /// Columns that the view lacks are an error; a column that the batch lacks too.
    pub fn conform(&self, batch: &RecordBatch, place: &str) -> Result<RecordBatch> {
        conform_columns(batch, &self.schema, place)
    }

    /// Changes in the kept types, columns found by name; see [`View::conform`].
    pub fn conform_changes(&self, batch: &RecordBatch, place: &str) -> Result<RecordBatch> {
        conform_columns(batch, &self.change_schema(), place)
    }
}

const KEPT: &str = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, date, \
                    timestamp, timestamp_ntz, or a list, struct or map of these";

/// The type that stands in the table for `data_type`; `None` when it cannot be kept.
pub fn kept_type(data_type: &DataType) -> Option<DataType> {
    use DataType as T;
    let kept = match data_type {
        T::Boolean | T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::Float32 | T::Float64 | T::Date32 => {
            data_type.clone()
        }
        T::Decimal128(p, s) | T::Decimal32(p, s) | T::Decimal64(p, s) if *s >= 0 && *s as u8 <= *p => {
            T::Decimal128(*p, *s)
        }
        T::Utf8 | T::LargeUtf8 | T::Utf8View => T::Utf8,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => T::Binary,
        T::Timestamp(_, None) => T::Timestamp(TimeUnit::Microsecond, None),
        T::Timestamp(_, Some(_)) => T::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        T::List(f) | T::LargeList(f) | T::FixedSizeList(f, _) | T::ListView(f) | T::LargeListView(f) => {
            T::List(Arc::new(Field::new("element", kept_type(f.data_type())?, f.is_nullable())))
        }
        T::Struct(fields) => {
            let mut seen = HashSet::new();
            if fields.is_empty() || !fields.iter().all(|f| seen.insert(f.name().to_lowercase())) {
                return None;
            }
            let kept: Option<Vec<Field>> =
                fields.iter().map(|f| Some(Field::new(f.name(), kept_type(f.data_type())?, f.is_nullable()))).collect();
            T::Struct(Fields::from(kept?))
        }
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { return None };
            let [key, value] = pair.as_ref() else { return None };
            let pair = Fields::from(vec![
                Field::new("key", kept_type(key.data_type())?, false),
                Field::new("value", kept_type(value.data_type())?, value.is_nullable()),
            ]);
            T::Map(Arc::new(Field::new("key_value", T::Struct(pair), false)), false)
        }
        _ => return None,
    };
    Some(kept)
}

fn changelog_schema(schema: &Schema) -> SchemaRef {
    let mut fields: Vec<FieldRef> = stamp::row_columns().to_vec();
    fields.extend(schema.fields().iter().cloned());
    Arc::new(Schema::new(fields))
}

fn change_schema(schema: &Schema) -> SchemaRef {
    let mut fields: Vec<FieldRef> = stamp::row_columns().iter().skip(1).cloned().collect();
    fields.extend(schema.fields().iter().map(|f| Arc::new(f.as_ref().clone().with_nullable(true))));
    Arc::new(Schema::new(fields))
}

fn check_column_name(view: &str, column: &str) -> Result<()> {
    if stamp::row_columns().iter().any(|f| f.name().eq_ignore_ascii_case(column)) {
        return Err(Error::incompatible(format!(
            "view {view}: the column name {column:?} is taken by the continuity columns; rename it in the view"
        )));
    }
    if column.is_empty() || column.chars().any(|c| " ,;{}()\n\t=".contains(c) || c.is_control()) {
        return Err(Error::incompatible(format!(
            "view {view}: the column name {column:?} is empty or has one of ' ,;{{}}()=' or a control character, which Parquet readers of Delta refuse; rename it in the view"
        )));
    }
    Ok(())
}

fn conform_columns(batch: &RecordBatch, wanted: &SchemaRef, place: &str) -> Result<RecordBatch> {
    if batch.schema_ref() == wanted {
        return Ok(batch.clone());
    }
    for field in batch.schema_ref().fields() {
        if wanted.index_of(field.name()).is_err() {
            return Err(Error::incompatible(format!(
                "{place}: column {:?} is not a column of the view; a changed schema needs a reset",
                field.name()
            )));
        }
    }
    let mut columns = Vec::with_capacity(wanted.fields().len());
    for field in wanted.fields() {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(Error::incompatible(format!("{place}: the column {:?} is missing", field.name())));
        };
        columns.push(conform_column(column, field, place)?);
    }
    RecordBatch::try_new(Arc::clone(wanted), columns)
        .map_err(|e| Error::incompatible(format!("{place}: the rows do not fit the view's schema")).with_source(e))
}

fn conform_column(column: &ArrayRef, field: &Field, place: &str) -> Result<ArrayRef> {
    if column.null_count() > 0 && !field.is_nullable() {
        return Err(Error::incompatible(format!(
            "{place}: column {:?} holds null and may not, being part of the key or declared so; correct the view",
            field.name()
        )));
    }
    if column.data_type() == field.data_type() {
        return Ok(Arc::clone(column));
    }
    let same_kept = kept_type(column.data_type()).is_some_and(|kept| is_same_kept(&kept, field.data_type()));
    let all_null = column.data_type() == &DataType::Null;
    if !same_kept && !all_null {
        return Err(Error::incompatible(format!(
            "{place}: column {:?} has the type {}, the view has {}; a changed schema needs a reset",
            field.name(),
            column.data_type(),
            field.data_type()
        )));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let cast = cast_with_options(column, field.data_type(), &options).map_err(|e| {
        Error::incompatible(format!("{place}: column {:?} does not fit {}", field.name(), field.data_type()))
            .with_source(e)
    })?;
    if has_nanoseconds(column.data_type()) {
        let back = cast_with_options(&cast, column.data_type(), &options).map_err(|e| {
            Error::internal(format!("{place}: column {:?} was not cast back", field.name())).with_source(e)
        })?;
        if back.as_ref() != column.as_ref() {
            return Err(Error::incompatible(format!(
                "{place}: column {:?} has times finer than a microsecond, which Delta cannot hold; round them in the view",
                field.name()
            )));
        }
    }
    Ok(cast)
}

/// Whether two kept types say the same, whatever may be null and in whatever order a struct's fields stand.
///
/// A struct's fields need the same names, because Arrow's cast finds them by name only then and goes by their order
/// otherwise.
pub(crate) fn is_same_kept(a: &DataType, b: &DataType) -> bool {
    use DataType as T;
    match (a, b) {
        (T::List(a), T::List(b)) | (T::Map(a, _), T::Map(b, _)) => is_same_kept(a.data_type(), b.data_type()),
        (T::Struct(a), T::Struct(b)) => {
            let has_twin =
                |a: &FieldRef| b.find(a.name()).is_some_and(|(_, b)| is_same_kept(a.data_type(), b.data_type()));
            a.len() == b.len() && a.iter().all(has_twin)
        }
        _ => a == b,
    }
}

fn has_nanoseconds(data_type: &DataType) -> bool {
    use DataType as T;
    match data_type {
        T::Timestamp(TimeUnit::Nanosecond, _) => true,
        T::List(f) | T::LargeList(f) | T::FixedSizeList(f, _) | T::ListView(f) | T::LargeListView(f) | T::Map(f, _) => {
            has_nanoseconds(f.data_type())
        }
        T::Struct(fields) => fields.iter().any(|f| has_nanoseconds(f.data_type())),
        _ => false,
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
