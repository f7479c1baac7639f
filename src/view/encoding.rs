//! Rows and their keys as bytes.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::row::Rows;
use fjall::Slice;
use twox_hash::XxHash3_128;

use crate::change::{RowKeys, column};
use crate::error::{Error, Result};
use crate::schema::View;

/// What begins the key of a row.
pub(super) const ROW: u8 = 1;
/// The store takes keys of up to 65,535 bytes.
const LONGEST_KEY: usize = 65_000;

/// How a view's rows become bytes, in the encoding of Arrow's row format.
pub(super) struct Encoding {
    pub(super) view: View,
    keys: RowKeys,
    rows: RowKeys,
}

/// The rows of a batch as bytes, with their keys where the view has one.
pub(super) struct Encoded {
    pub(super) keys: Option<Rows>,
    pub(super) rows: Rows,
}

impl Encoding {
    pub(super) fn new(view: &View) -> Result<Self> {
        let none = RecordBatch::new_empty(Arc::clone(view.schema()));
        let (keys, rows) = (RowKeys::new(&key_columns(&none, view)?)?, RowKeys::new(none.columns())?);
        Ok(Self { view: view.clone(), keys, rows })
    }

    /// The rows of a batch of changes.
    pub(super) fn encode(&self, changes: &RecordBatch) -> Result<Encoded> {
        let fields = self.view.schema().fields().iter();
        let columns: Vec<ArrayRef> = fields.map(|f| column(changes, f.name()).cloned()).collect::<Result<_>>()?;
        let keys = if self.view.is_keyed() { Some(self.keys_of(changes)?) } else { None };
        Ok(Encoded { keys, rows: self.rows.convert(&columns)? })
    }

    /// The keys in a batch that has the key's columns.
    pub(super) fn keys_of(&self, batch: &RecordBatch) -> Result<Rows> {
        self.keys.convert(&key_columns(batch, &self.view)?)
    }

    /// Where the row of a key stands.
    pub(super) fn place(&self, key: &[u8]) -> Result<Slice> {
        if key.len() > LONGEST_KEY {
            return Err(Error::refused(format!(
                "view {}: the key of a row takes {} bytes, and at most {LONGEST_KEY} fit; choose a shorter key, or declare the view materialized = false",
                self.view.name(),
                key.len()
            )));
        }
        let mut bytes = Vec::with_capacity(key.len() + 1);
        bytes.push(ROW);
        bytes.extend_from_slice(key);
        Ok(bytes.into())
    }

    /// Where the copies of a row stand.
    pub(super) fn hashed_place(row: &[u8]) -> Slice {
        let mut bytes = [ROW; 17];
        if let Some(hash) = bytes.last_chunk_mut::<16>() {
            *hash = XxHash3_128::oneshot(row).to_be_bytes();
        }
        Slice::from(bytes)
    }

    pub(super) fn decode<'a>(&self, rows: impl IntoIterator<Item = &'a [u8]>) -> Result<RecordBatch> {
        let columns = self.rows.restore(rows)?;
        RecordBatch::try_new(Arc::clone(self.view.schema()), columns).map_err(|e| {
            Error::corrupt(format!("a stored row does not fit the view {}; remove its store", self.view.name()))
                .with_source(e)
        })
    }
}

fn key_columns(batch: &RecordBatch, view: &View) -> Result<Vec<ArrayRef>> {
    view.key().iter().map(|name| column(batch, name).cloned()).collect()
}

/// Rows of one hash, each with the number of its copies: count (8), length (4), the row.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bucket(pub(super) Vec<(u64, Vec<u8>)>);

impl Bucket {
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut rows = Vec::with_capacity(1);
        while !bytes.is_empty() {
            let (count, rest) = bytes.split_first_chunk::<8>()?;
            let (length, rest) = rest.split_first_chunk::<4>()?;
            let (row, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rows.push((u64::from_le_bytes(*count), row.to_vec()));
            bytes = rest;
        }
        Some(Self(rows))
    }

    /// The bytes; `None` without rows.
    pub(super) fn encode(&self) -> Option<Slice> {
        let mut bytes = Vec::new();
        for (count, row) in self.0.iter().filter(|(count, _)| *count > 0) {
            bytes.extend_from_slice(&count.to_le_bytes());
            bytes.extend_from_slice(&(row.len() as u32).to_le_bytes());
            bytes.extend_from_slice(row);
        }
        (!bytes.is_empty()).then(|| bytes.into())
    }

    /// The number of copies of a row.
    pub(super) fn count(&mut self, row: &[u8]) -> &mut u64 {
        let at = self.0.iter().position(|(_, other)| other == row).unwrap_or_else(|| {
            self.0.push((0, row.to_vec()));
            self.0.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "the place was found, or made, just above")]
        &mut self.0[at].0
    }
}
