//! What a step's changes alone do not tell: it stands with the columns of the step, in the step log.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use crate::continuity::columns::Difference;
use crate::continuity::stamp::COLUMN_OP;
use crate::error::{Error, Result};
use crate::schema::View;
use crate::steplog::Stored;

const EMPTIED: &str = "postgres.emptied";
const FILLED: &str = "postgres.filled";
const LOST: &str = "postgres.lost";

/// What is to be known of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Note {
    /// Whether the table was emptied before the step's rows came into it.
    pub(super) is_emptied: bool,
    /// The columns that have values in rows of before, since they were told of.
    pub(super) filled: Vec<String>,
    /// Why the step's changes are not known.
    pub(super) lost: Option<String>,
}

/// Why a step's changes do not lead on.
#[derive(Debug)]
pub(super) enum Turn {
    /// The rows are all that the view has.
    Emptied(Stored, View),
    /// The columns are others.
    Columns {
        /// The view with them.
        view: View,
        /// Whether those that were added have values in rows of before.
        is_filled: bool,
    },
    /// They are not known.
    Lost(String),
}

impl Note {
    /// `schema`, with this standing beside it.
    pub(super) fn onto(&self, schema: &Schema) -> SchemaRef {
        let mut said = HashMap::new();
        if self.is_emptied {
            said.insert(EMPTIED.to_owned(), "true".to_owned());
        }
        if !self.filled.is_empty() {
            said.insert(FILLED.to_owned(), self.filled.join("\n"));
        }
        if let Some(why) = &self.lost {
            said.insert(LOST.to_owned(), why.clone());
        }
        Arc::new(schema.clone().with_metadata(said))
    }

    /// What stands beside `schema`.
    fn of(schema: &Schema) -> Self {
        let said = schema.metadata();
        Self {
            is_emptied: said.contains_key(EMPTIED),
            filled: said.get(FILLED).map(|names| names.split('\n').map(str::to_owned).collect()).unwrap_or_default(),
            lost: said.get(LOST).cloned(),
        }
    }
}

/// Judges the steps of a log for somebody who has them in one view.
pub(super) struct Judge {
    name: String,
    key: Arc<[String]>,
    view: View,
    /// Columns that were judged before, and good.
    good: Option<SchemaRef>,
}

impl Judge {
    pub(super) fn new(name: &str, key: Arc<[String]>, view: View) -> Self {
        Self { name: name.to_owned(), key, view, good: None }
    }

    /// What keeps the changes of `stored` from leading on in the view.
    pub(super) fn judge(&mut self, stored: &Stored) -> Result<Option<Turn>> {
        let Some(schema) = stored.schema()? else { return Ok(None) };
        if self.good.as_ref() == Some(&schema) {
            return Ok(None);
        }
        let note = Note::of(&schema);
        if let Some(why) = note.lost {
            return Ok(Some(Turn::Lost(why)));
        }
        let fields: Vec<FieldRef> = schema.fields().iter().filter(|field| field.name() != COLUMN_OP).cloned().collect();
        let view = View::new(&self.name, &Schema::new(fields), self.key.to_vec()).map_err(|e| {
            Error::corrupt(format!("step {} in the step log has no view's columns", stored.step)).with_source(e)
        })?;
        if note.is_emptied {
            return Ok(Some(Turn::Emptied(stored.clone(), view)));
        }
        let difference = Difference::between(self.view.schema(), view.schema());
        if difference.is_empty() {
            self.good = Some(schema);
            return Ok(None);
        }
        let added = difference.added().unwrap_or_default();
        let is_filled = added.iter().any(|field| note.filled.contains(field.name()));
        Ok(Some(Turn::Columns { view, is_filled }))
    }
}
