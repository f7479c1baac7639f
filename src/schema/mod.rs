//! The view's schema: which columns can be kept, and how they stand in the table.

mod conform;
mod kept;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use crate::continuity::stamp;
use crate::error::{Error, Result};

pub(crate) use conform::fits;
pub(crate) use kept::as_variant;
pub use kept::{MAX_DEPTH, Unkept, is_variant, kept_field, kept_type};

/// Columns as data files hold them, by their names in the table; `None` where files hold them as they are.
pub type StoredFields = Option<Arc<BTreeMap<String, FieldRef>>>;

/// The view's columns among those of its changelog.
pub(crate) fn view_columns(changelog: &Schema) -> SchemaRef {
    let ours = |name: &str| stamp::row_columns().iter().any(|column| column.name() == name);
    let columns: Vec<FieldRef> = changelog.fields().iter().filter(|f| !ours(f.name())).cloned().collect();
    Arc::new(Schema::new(columns))
}

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
            let kept = kept_field(field)
                .map_err(|Unkept { path, why }| Error::incompatible(format!("view {name}: column {path:?} {why}")))?;
            let nullable = if key.is_empty() { field.is_nullable() } else { !key.contains(field.name()) };
            fields.push(kept.with_nullable(nullable));
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

    /// The columns as they are kept: plain types, no Arrow metadata but a variant's mark; nullable outside the key of a keyed view.
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

    /// The table's columns in the layout: in `current` they are the view's own.
    pub fn table_schema(&self, layout: stamp::Layout) -> SchemaRef {
        match layout {
            stamp::Layout::Changelog => self.changelog_schema(),
            stamp::Layout::Current => Arc::clone(&self.schema),
        }
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
        conform::conform_columns(batch, &self.schema, place)
    }

    /// The view's columns of a batch of changes; where it holds a delete they are null outside the key.
    pub(crate) fn values_of(&self, changes: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.schema.fields().iter().map(|f| crate::change::column(changes, f.name()).cloned());
        RecordBatch::try_new(Arc::clone(&self.schema), columns.collect::<Result<Vec<_>>>()?)
            .map_err(|e| Error::internal("changes do not have the view's columns").with_source(e))
    }

    /// Changes in the kept types, columns found by name; see [`View::conform`].
    pub fn conform_changes(&self, batch: &RecordBatch, place: &str) -> Result<RecordBatch> {
        conform::conform_columns(batch, &self.change_schema, place)
    }
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
    match kept::name_fault(column) {
        Some(fault) => Err(Error::incompatible(format!("view {view}: the column name {column:?} {fault}"))),
        None => Ok(()),
    }
}
