//! A view: its columns, its key, and what is kept of one that is pushed.

use arrow::datatypes::{DataType, Field as Column, Schema};

use super::defaults::Defaults;
use super::section::{Field, Section};
use super::source::{Kind, SourcePart};
use super::{ViewConfig, step_log};
use crate::error::Result;
use crate::schema::View;
#[cfg(feature = "postgres")]
use crate::source::postgres::TableName;

const NOBODY_TELLS: &str = "and a view that is pushed has no source that tells them; add columns = { NAME = \"TYPE\" }";

/// What a view hands to each of its connectors.
pub(super) struct ViewPart {
    /// Where its rows come from.
    pub(super) source: SourcePart,
    /// The columns of its key.
    pub(super) key: Vec<String>,
    /// Whether the key that names them was probably meant, and is misspelled.
    pub(super) is_key_misspelled: bool,
    /// Its columns, where the file names them.
    pub(super) columns: Vec<(String, DataType)>,
    /// Whether snapshots of it can be given.
    pub(super) materialized: bool,
    /// What its step log may take in bytes.
    step_log_bytes: u64,
    /// The table that it is.
    table: Option<String>,
}

/// Reads columns by the types that the source knows.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// Parses a column's type.
    pub(super) parse_type: &'a dyn Fn(&str) -> Result<DataType>,
}

impl ViewPart {
    /// Reads all of the view `name` but its connectors.
    pub(super) fn read(
        name: &str,
        view: &mut Section<'_>,
        source: SourcePart,
        columns: Columns<'_>,
        defaults: &Defaults,
    ) -> Self {
        let key_field = view.field("key");
        let key = key_field.as_ref().and_then(read_key).unwrap_or_default();
        let is_key_misspelled = key_field.is_none() && view.is_misspelled("key");
        let field = view.field("columns");
        let columns = field.as_ref().and_then(|f| columns.read(f, source.kind));
        let table = read_table(view, source.kind);
        // Of a table some columns may be named, whatever the others are.
        if let (Some(field), Some(columns), true) = (&field, &columns, source.kind != Some(Kind::Postgres)) {
            // The view's own rules: reserved names, names equal up to case, the key among the columns.
            let fields: Vec<Column> = columns.iter().map(|(n, t)| Column::new(n, t.clone(), true)).collect();
            if let Err(e) = View::new(name, &Schema::new(fields), key.clone()) {
                // The message may quote a key's column, and with it what replaced a reference.
                let hidden = key_field.is_some_and(|f| f.is_interpolated());
                field.refuse_key(if hidden { "these columns and the key do not fit together" } else { e.message() });
            }
        }
        let kept = view.field("materialized");
        let said = kept.as_ref().and_then(|f| f.boolean());
        let log = view.field("step_log");
        let step_log_bytes = log.as_ref().and_then(step_log::read_of_view);
        match source.kind {
            Some(Kind::Push) if field.is_none() => {
                view.missing("columns", &format!("has no columns, {NOBODY_TELLS}"));
            }
            Some(Kind::Files) => {
                if let Some(kept) = kept {
                    kept.refuse_key(
                        "is for views that are pushed: a snapshot of this one is among its files; remove it",
                    );
                }
                if let Some(log) = log {
                    log.refuse_key(
                        "is for views that are pushed: the changes of this one stay in its files; remove it",
                    );
                }
            }
            Some(Kind::Postgres) => {
                if let Some(kept) = kept {
                    kept.refuse_key("is for views that are pushed: a snapshot of this one is its table; remove it");
                }
            }
            Some(Kind::Push) | None => {}
        }
        // What has no meaning for a view of files is the same for each, so that a changed default changes none of them.
        let is_pushed = source.kind == Some(Kind::Push);
        let below = defaults.step_log.max_bytes.filter(|_| matches!(source.kind, Some(Kind::Push | Kind::Postgres)));
        Self {
            source,
            key,
            is_key_misspelled,
            columns: columns.unwrap_or_default(),
            materialized: said.filter(|_| is_pushed).unwrap_or(true),
            step_log_bytes: step_log_bytes.or(below).unwrap_or(step_log::MAX_BYTES),
            table,
        }
    }

    /// The view's settings; `None` where its source has a problem.
    pub(super) fn into_config(self, pipeline: &str, name: &str) -> Option<ViewConfig> {
        Some(ViewConfig {
            pipeline: pipeline.to_string(),
            name: name.to_string(),
            source: self.source.config?,
            key: self.key,
            columns: self.columns,
            materialized: self.materialized,
            step_log_bytes: self.step_log_bytes,
            table: self.table,
        })
    }
}

impl Columns<'_> {
    fn read(self, field: &Field<'_>, source: Option<Kind>) -> Option<Vec<(String, DataType)>> {
        let columns = field.section()?.fields();
        if columns.is_empty() {
            field.refuse(&match source {
                Some(Kind::Push) => format!("is empty, {NOBODY_TELLS}"),
                Some(Kind::Files | Kind::Postgres) | None => {
                    "is empty; remove it, and the columns are as the source has them".to_string()
                }
            });
            return None;
        }
        let parsed: Vec<_> = columns.iter().map(|column| self.column(column)).collect();
        parsed.into_iter().collect()
    }

    fn column(self, column: &Field<'_>) -> Option<(String, DataType)> {
        let text = column.text()?;
        let data_type = column.parsed(&text, |text| {
            // The message may quote what replaced a reference.
            let hidden = column.is_interpolated();
            (self.parse_type)(text).map_err(|e| if hidden { "it is no type" } else { e.message() }.to_string())
        })?;
        Some((column.name().to_string(), data_type))
    }
}

fn table_name(field: &Field<'_>) -> Option<String> {
    let name = field.line()?;
    #[cfg(feature = "postgres")]
    field.parsed(&name, |name| TableName::parse(name).map_err(|e| e.message().to_owned()))?;
    Some(name)
}

/// The table of a view, which one of a database must have and no other may.
fn read_table(view: &mut Section<'_>, source: Option<Kind>) -> Option<String> {
    match source {
        Some(Kind::Postgres) => view.required("table").and_then(|field| table_name(&field)),
        Some(Kind::Files | Kind::Push) => {
            view.misplaced("table", "is for views of a PostgreSQL database; remove it");
            None
        }
        None => view.field("table").and_then(|f| f.line()),
    }
}

fn read_key(field: &Field<'_>) -> Option<Vec<String>> {
    let items = field.items()?;
    if items.is_empty() {
        field.refuse("is empty; name the columns that tell rows apart, or remove it for a view without key");
    }
    let names: Vec<_> = items.iter().map(Field::line).collect();
    names.into_iter().collect()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
