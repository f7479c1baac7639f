//! Rows as numbers: what tells a row from others, and what it holds.

use arrow::array::RecordBatch;

use super::Rows;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::json::rows::write_ndjson;

/// How rows of a view are looked at.
pub(super) struct Eye {
    key: Vec<String>,
}

/// A row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The digest of its key; of a view without key, of all of it.
    pub(super) id: u128,
    /// The digest of all of it.
    pub(super) row: Digest,
}

impl Eye {
    /// One for views with this key.
    pub(super) fn new(key: &[String]) -> Self {
        Self { key: key.to_vec() }
    }

    pub(super) fn is_keyed(&self) -> bool {
        !self.key.is_empty()
    }

    /// The rows of `batch`, which has the view's columns, or more of them behind.
    pub(super) fn see(&self, batch: &RecordBatch) -> Result<Vec<Seen>> {
        let rows = Digest::of_rows(batch)?;
        if !self.is_keyed() {
            return Ok(rows.into_iter().map(|row| Seen { id: row.as_u128(), row }).collect());
        }
        let keys = Digest::of_rows(&self.named(batch)?)?;
        Ok(keys.into_iter().zip(rows).map(|(key, row)| Seen { id: key.as_u128(), row }).collect())
    }

    /// What names a row of `batch`, in JSON.
    pub(super) fn text(&self, batch: &RecordBatch, row: usize) -> Result<String> {
        let mut text = Vec::new();
        write_ndjson(&self.named(&batch.slice(row, 1))?, &mut text)?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
    }

    /// The columns that name a row.
    fn named(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        if !self.is_keyed() {
            return Ok(batch.clone());
        }
        let places = self.key.iter().map(|name| batch.schema_ref().index_of(name));
        let places = places.collect::<Result<Vec<_>, _>>();
        places
            .and_then(|places| batch.project(&places))
            .map_err(|e| Error::corrupt("a column of the key is none of the view").with_source(e))
    }
}

/// Some of all ids, as many as of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    number: u64,
    of: u64,
}

impl Part {
    /// Whether the id is one of them.
    pub(super) fn has(self, id: u128) -> bool {
        // The lower half decides where it stands in a map.
        (id >> 64) as u64 % self.of == self.number
    }
}

/// How many rows there are in each part, and their digests.
pub(super) struct Tally {
    parts: Vec<Rows>,
}

impl Tally {
    /// Of as many parts.
    pub(super) fn new(parts: u64) -> Self {
        Self { parts: (0..parts).map(|_| Rows::default()).collect() }
    }

    pub(super) fn add(&mut self, rows: &[Seen]) {
        for seen in rows {
            let part = (seen.id >> 64) as u64 % self.parts.len() as u64;
            if let Some(part) = self.parts.get_mut(part as usize) {
                *part = Rows { count: part.count + 1, digest: part.digest.plus(seen.row) };
            }
        }
    }

    /// The parts, each with what is in it.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Part, Rows)> {
        let of = self.parts.len() as u64;
        self.parts.iter().zip(0..).map(move |(rows, number)| (Part { number, of }, *rows))
    }

    pub(super) fn total(&self) -> Rows {
        let add = |sum: Rows, part: &Rows| Rows { count: sum.count + part.count, digest: sum.digest.plus(part.digest) };
        self.parts.iter().fold(Rows::default(), add)
    }
}
