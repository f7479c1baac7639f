//! What becomes of a table's columns when its view changes.

use std::collections::BTreeMap;
use std::fmt;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;

/// What to do when the view has other columns than the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SchemaChange {
    /// Refuse what follows.
    #[default]
    Fail,
    /// Add columns that are null in every row that exists; refuse any other change.
    AddColumns,
    /// Load the table anew with the view's columns.
    Reload,
}

impl fmt::Display for SchemaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::AddColumns => "add_columns",
            Self::Reload => "reload",
        })
    }
}

/// How the columns of two schemas differ, whatever order they stand in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference(Vec<Move>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    Added(FieldRef),
    Removed(FieldRef),
    Altered { from: FieldRef, to: FieldRef },
}

impl Difference {
    /// What `new` has otherwise than `old`.
    pub fn between(old: &Schema, new: &Schema) -> Self {
        let mut moves = Vec::new();
        for to in new.fields() {
            match old.fields().find(to.name()) {
                None => moves.push(Move::Added(to.clone())),
                Some((_, from)) if from != to => moves.push(Move::Altered { from: from.clone(), to: to.clone() }),
                Some(_) => {}
            }
        }
        let removed = old.fields().iter().filter(|from| new.fields().find(from.name()).is_none());
        moves.extend(removed.cloned().map(Move::Removed));
        Self(moves)
    }

    /// Whether both have the same columns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The columns added, where nothing else differs and each of them may be null; `None` otherwise.
    pub fn added(&self) -> Option<Vec<FieldRef>> {
        let nullable = |change: &Move| match change {
            Move::Added(field) if field.is_nullable() => Some(field.clone()),
            _ => None,
        };
        self.0.iter().map(nullable).collect()
    }

    /// That the difference is refused under `policy`, and what would allow it; `place` begins the message.
    pub fn refused(&self, place: &str, policy: SchemaChange) -> Error {
        let reset = "load the table anew with `cutover reset`";
        let remedy = match (policy, self.added()) {
            (SchemaChange::Fail, Some(_)) => {
                format!("set schema_change = \"add_columns\" if it is null in every row that exists, or {reset}")
            }
            (SchemaChange::Fail, None) => format!("{reset}, or set schema_change = \"reload\""),
            (SchemaChange::AddColumns, _) => format!(
                "columns are added where they may be null and are null in every row that exists: {reset}, or set schema_change = \"reload\""
            ),
            (SchemaChange::Reload, _) => reset.to_string(),
        };
        Error::incompatible(format!("{place}: {self}; schema_change is \"{policy}\": {remedy}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, change) in self.0.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match change {
                Move::Added(to) => write!(f, "column {:?} {} is added", to.name(), words(to))?,
                Move::Removed(from) => write!(f, "column {:?} {} is removed", from.name(), words(from))?,
                Move::Altered { from, to } => {
                    write!(f, "column {:?} is {} and was {}", to.name(), words(to), words(from))?;
                }
            }
        }
        Ok(())
    }
}

fn words(field: &Field) -> String {
    let null = if field.is_nullable() { "" } else { " not null" };
    format!("{}{null}", type_name(field.data_type()))
}

/// A type in the words of the configuration.
fn type_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Boolean => "boolean".into(),
        T::Int8 => "tinyint".into(),
        T::Int16 => "smallint".into(),
        T::Int32 => "int".into(),
        T::Int64 => "bigint".into(),
        T::Float32 => "float".into(),
        T::Float64 => "double".into(),
        T::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        T::Utf8 => "string".into(),
        T::Binary => "binary".into(),
        T::Date32 => "date".into(),
        T::Timestamp(_, Some(_)) => "timestamp".into(),
        T::Timestamp(_, None) => "timestamp_ntz".into(),
        T::List(element) => format!("array<{}>", words(element)),
        T::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|f| format!("{}:{}", f.name(), words(f))).collect();
            format!("struct<{}>", fields.join(","))
        }
        T::Map(entries, _) => match entries.data_type() {
            T::Struct(pair) => {
                let pair: Vec<String> = pair.iter().map(|f| type_name(f.data_type())).collect();
                format!("map<{}>", pair.join(","))
            }
            other => format!("map<{other}>"),
        },
        other => other.to_string(),
    }
}

#[derive(Deserialize)]
struct SchemaText {
    fields: Vec<Value>,
}

/// The table property that tells the highest id of a column, where columns are mapped to names in files.
pub const MAX_COLUMN_ID: &str = "delta.columnMapping.maxColumnId";

/// Whether both say the same of everything but the highest id of a column, which grows with every one that is added.
pub(super) fn same_properties(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> bool {
    let highest = |all: &BTreeMap<String, String>| all.get(MAX_COLUMN_ID).and_then(|id| id.parse::<i64>().ok());
    let others = |all: &BTreeMap<String, String>| {
        let mut others = all.clone();
        others.remove(MAX_COLUMN_ID);
        others
    };
    old == new || (highest(old) <= highest(new) && others(old) == others(new))
}

/// Why `new`, the JSON of a table's schema, is not `old` with nullable columns behind its own; `None` when it is.
pub fn why_not_wider(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let parsed = |text: &str| serde_json::from_str::<SchemaText>(text).ok();
    let (Some(old), Some(new)) = (parsed(old), parsed(new)) else {
        return Some("the schema cannot be understood".into());
    };
    let name = |field: &Value| field.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
    for (i, from) in old.fields.iter().enumerate() {
        if new.fields.get(i) != Some(from) {
            return Some(format!("column {:?} is not what it was, or not where it was", name(from)));
        }
    }
    let added = || new.fields.iter().skip(old.fields.len());
    if let Some(field) = added().find(|field| field.get("nullable") != Some(&Value::Bool(true))) {
        return Some(format!("column {:?} is added and may not be null", name(field)));
    }
    let twin = |field: &&Value| old.fields.iter().any(|old| name(old).to_lowercase() == name(field).to_lowercase());
    added().find(twin).map(|field| format!("column {:?} is added beside one of that name", name(field)))
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
