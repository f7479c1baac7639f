//! The keys of a snapshot, each of which may stand in it once.

use std::collections::HashSet;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::util::display::array_value_to_string;
use twox_hash::XxHash3_128;

use crate::change::RowKeys;
use crate::error::{Error, Result};
use crate::schema::View;

/// The keys that are remembered, 16 bytes each and what a hash table adds: about 128 MiB at most.
const MOST_KEYS: usize = 4_000_000;

/// The keys seen in a snapshot of a keyed view. Rows beyond [`MOST_KEYS`] keys are not checked, so that memory stays
/// bounded; folding the table to its current state finds the rest.
pub(super) struct SnapshotKeys {
    columns: Vec<usize>,
    encoder: Option<RowKeys>,
    seen: HashSet<u128>,
}

impl SnapshotKeys {
    pub(super) fn new(view: &View) -> Self {
        Self { columns: view.key_indices(), encoder: None, seen: HashSet::new() }
    }

    /// Refuses a key that was seen before.
    pub(super) fn take(&mut self, batch: &RecordBatch, place: &str) -> Result<()> {
        if self.columns.is_empty() || self.seen.len() >= MOST_KEYS {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = self.columns.iter().filter_map(|i| batch.columns().get(*i)).cloned().collect();
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => RowKeys::new(&columns)?,
        };
        let rows = encoder.convert(&columns)?;
        for (i, row) in rows.iter().enumerate() {
            if !self.seen.insert(XxHash3_128::oneshot(row.data())) {
                let shown: Vec<String> =
                    columns.iter().map(|c| array_value_to_string(c, i).unwrap_or_default()).collect();
                return Err(Error::refused(format!(
                    "{place} has two rows with the key {}; correct the key of the view, or the snapshot",
                    shown.join(", ")
                )));
            }
        }
        self.encoder = Some(encoder);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn a_key_may_stand_once_in_all_batches_together() {
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, true), Field::new("id", DataType::Int64, true)]);
        let view = View::new("v", &schema, vec!["id".into()]).unwrap();
        let batch = |ids: Vec<i64>| {
            let values: ArrayRef = Arc::new(Int64Array::from(vec![7; ids.len()]));
            RecordBatch::try_new(Arc::clone(view.schema()), vec![values, Arc::new(Int64Array::from(ids))]).unwrap()
        };
        let mut keys = SnapshotKeys::new(&view);
        keys.take(&batch(vec![1, 2, 3]), "here").unwrap();
        keys.take(&batch(vec![4]), "here").unwrap();
        let twice = keys.take(&batch(vec![5, 2]), "here").unwrap_err();
        assert!(twice.message().contains("here") && twice.message().contains('2'), "{twice}");
        let keyless = View::new("v", &schema, vec![]).unwrap();
        SnapshotKeys::new(&keyless).take(&batch(vec![1, 1]), "here").unwrap();
    }
}
