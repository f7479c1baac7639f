//! The data files of a table of layout `current`, and which of them holds a row.

use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use crate::continuity::stamp::TAG_DIGEST;
use crate::error::{Error, Result};
use crate::files::DataFile;
use crate::key_index::{IndexedFile, RowRuns, chunk_of};
use crate::log::{AddAction, LiveFile, RowIds, RowSet, Vectors};

/// A live data file.
#[derive(Debug, Clone)]
pub(super) struct RowFile {
    pub(super) live: LiveFile,
    pub(super) stats: Option<Box<str>>,
    /// All of its rows, the deleted ones included.
    pub(super) rows: RowRuns,
    /// The places of those that are deleted.
    pub(super) deleted: RowSet,
}

impl RowFile {
    /// A file that was written, whose rows have the numbers from `first_row` on.
    pub(super) fn new(file: &DataFile, first_row: u64) -> Self {
        let live = LiveFile {
            path: file.path.clone(),
            vector: None,
            partition_values: file.partition_values.clone(),
            size: i64::try_from(file.size).unwrap_or(i64::MAX),
            modified_millis: file.modified_millis,
            rows: Some(file.rows),
            steps: None,
            base_row_id: None,
            default_row_commit_version: None,
            digest: Some(file.digest),
        };
        let rows = RowRuns::of(first_row..first_row + file.rows);
        Self { live, stats: Some(file.stats.as_str().into()), rows, deleted: RowSet::new() }
    }

    /// A live file whose `rows` have no numbers, and are all live.
    pub(super) fn whole(live: LiveFile, rows: u64) -> Self {
        Self { live, stats: None, rows: RowRuns::of(0..rows), deleted: RowSet::new() }
    }

    pub(super) fn indexed(&self) -> IndexedFile {
        IndexedFile { path: self.live.path.clone(), vector: self.live.id().vector, rows: self.rows.clone() }
    }

    /// How many of its rows are not deleted.
    pub(super) fn left(&self) -> u64 {
        self.rows.len().saturating_sub(self.deleted.len())
    }

    /// Deletes the rows at these places, and no others.
    pub(super) fn delete(&mut self, deleted: RowSet, vectors: &mut Vectors) -> Result<()> {
        self.live.vector = Some(vectors.add(&deleted)?);
        self.live.rows = Some(self.rows.len().saturating_sub(deleted.len()));
        self.deleted = deleted;
        Ok(())
    }

    /// The action that adds it as a file that was live before.
    pub(super) fn add(&self) -> Result<AddAction> {
        let stats = match (&self.live.vector, self.stats.as_deref()) {
            (None, Some(stats)) => stats.into(),
            (_, stats) => wide_stats(stats, self.rows.len())?,
        };
        let tags = self.live.digest.map(|digest| (TAG_DIGEST.to_string(), digest.to_string()));
        Ok(AddAction {
            path: self.live.path.clone(),
            partition_values: self.live.partition_values.clone(),
            size: self.live.size.unsigned_abs(),
            modification_time: self.live.modified_millis,
            data_change: true,
            stats,
            tags: tags.into_iter().collect(),
            deletion_vector: self.live.vector.clone(),
            again: Some(RowIds { base: self.live.base_row_id, commit_version: self.live.default_row_commit_version }),
        })
    }
}

/// The statistics of a file of which rows are deleted: they hold for the rows that are left, but not tightly.
fn wide_stats(stats: Option<&str>, rows: u64) -> Result<String> {
    // What stands in it stays as it is spelled: a number may have more digits than a double.
    let mut members: BTreeMap<String, Box<RawValue>> =
        stats.and_then(|stats| serde_json::from_str(stats).ok()).unwrap_or_default();
    let raw = |text: String| {
        RawValue::from_string(text).map_err(|e| Error::internal("statistics were not written").with_source(e))
    };
    members.insert("numRecords".into(), raw(rows.to_string())?);
    members.insert("tightBounds".into(), raw("false".into())?);
    serde_json::to_string(&members).map_err(|e| Error::internal("statistics were not written").with_source(e))
}

/// The live files by their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct RowFiles {
    files: BTreeMap<u32, RowFile>,
    /// The files that may hold rows of a chunk.
    holders: HashMap<u64, Vec<u32>>,
}

impl RowFiles {
    pub(super) fn insert(&mut self, number: u32, file: RowFile) {
        self.remove(number);
        for chunk in file.rows.chunks() {
            let holders = self.holders.entry(chunk).or_default();
            if !holders.contains(&number) {
                holders.push(number);
            }
        }
        self.files.insert(number, file);
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some(file) = self.files.remove(&number) else { return };
        for chunk in file.rows.chunks() {
            if let Some(holders) = self.holders.get_mut(&chunk) {
                holders.retain(|holder| *holder != number);
                if holders.is_empty() {
                    self.holders.remove(&chunk);
                }
            }
        }
    }

    /// All of them by their numbers.
    pub(super) fn all(&self) -> &BTreeMap<u32, RowFile> {
        &self.files
    }

    pub(super) fn get(&self, number: u32) -> Option<&RowFile> {
        self.files.get(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &RowFile)> {
        self.files.iter().map(|(number, file)| (*number, file))
    }

    /// The file that holds a row, and its place there; `None` for one that is deleted or gone.
    pub(super) fn place(&self, row: u64) -> Option<(u32, u64)> {
        let holders = self.holders.get(&chunk_of(row))?;
        let found = holders.iter().find_map(|number| Some((*number, self.files.get(number)?.rows.place(row)?)));
        found.filter(|(number, place)| self.files.get(number).is_some_and(|file| !file.deleted.contains(*place)))
    }

    pub(super) fn is_live(&self, row: u64) -> bool {
        self.place(row).is_some()
    }

    /// How many rows are not deleted.
    pub(super) fn live_rows(&self) -> u64 {
        self.files.values().map(RowFile::left).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_keep_every_digit_and_say_that_they_are_wide() {
        let stats = r#"{"numRecords":7,"minValues":{"d":12345678901234567890.123},"nullCount":{"d":0}}"#;
        let wide = wide_stats(Some(stats), 7).unwrap();
        let expected =
            r#"{"minValues":{"d":12345678901234567890.123},"nullCount":{"d":0},"numRecords":7,"tightBounds":false}"#;
        assert_eq!(wide, expected);
        assert_eq!(wide_stats(Some(&wide), 7).unwrap(), expected, "again");
        for stats in [None, Some("no JSON")] {
            assert_eq!(wide_stats(stats, 3).unwrap(), r#"{"numRecords":3,"tightBounds":false}"#);
        }
    }
}
