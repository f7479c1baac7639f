//! What an append does to a table of layout `current`: it marks the row that a key had as deleted, and adds the one that it has.
//!
//! ```text
//!   changes ── the last one of each key ── key index ──► rows that go: deletion vectors of the files that hold them
//!                                                   └──► rows that come: a new file
//! ```

use std::collections::{BTreeMap, HashMap};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use futures::TryStreamExt;

use super::commit::Core;
use super::current::{CurrentRows, Reading, Replacement, whole};
use super::row_files::RowFile;
use super::rows::{AppendFiles, add_actions};
use crate::change::{Changes, Op, ops_of};
use crate::continuity::stamp::{FILE_PREFIX, RowCounts};
use crate::data_file;
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::files::Written;
use crate::key_index::{Edit, KeyHash, Known};
use crate::log::{FileColumns, RowSet, Vectors};
use crate::step::Step;

/// What changes do to the rows of a table.
struct Effects {
    /// The rows that come, in the columns of the view.
    new: RecordBatch,
    /// Their keys and digests.
    keys: Vec<KeyHash>,
    digests: Vec<Digest>,
    /// The keys that have no row any more.
    removed: Vec<KeyHash>,
    /// The rows that go, by their files.
    gone: BTreeMap<u32, RowSet>,
    counts: RowCounts,
    /// The digest of what comes without that of what goes.
    digest: Digest,
}

impl Effects {
    /// Those of the last change of each key: its operation, the row in `values`, and what is known of the row before it.
    ///
    /// Corrupt: a row is known that is not live.
    fn of(
        values: &RecordBatch,
        ops: &[Op],
        keys: &[KeyHash],
        found: &[Option<Known>],
        rows: &CurrentRows,
    ) -> Result<Self> {
        let (mut counts, mut digest) = (RowCounts::default(), Digest::EMPTY);
        let (mut coming, mut new_keys, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        let mut gone: BTreeMap<u32, RowSet> = BTreeMap::new();
        for (((at, op), key), before) in (0u32..).zip(ops).zip(keys).zip(found) {
            if let Some(before) = before {
                let unheld = || Error::corrupt("the key index tells of a row that the table does not hold");
                let (file, place) = rows.files.place(before.row).ok_or_else(unheld)?;
                gone.entry(file).or_default().insert(place);
                digest = digest.minus(before.digest);
            }
            match (op, before) {
                (Op::Delete, Some(_)) => {
                    removed.push(*key);
                    counts.d += 1;
                }
                // The view never had it, or lost it within the same steps.
                (Op::Delete, None) => {}
                (Op::Insert | Op::Update, before) => {
                    coming.push(at);
                    new_keys.push(*key);
                    if before.is_some() { counts.u += 1 } else { counts.i += 1 }
                }
            }
        }
        let new = take_record_batch(values, &UInt32Array::from(coming))
            .map_err(|e| Error::internal("the rows of changes were not selected").with_source(e))?;
        let digests = Digest::of_rows(&new)?;
        let digest = digests.iter().fold(digest, |sum, row| sum.plus(*row));
        Ok(Self { new, keys: new_keys, digests, removed, gone, counts, digest })
    }
}

impl Core {
    /// Writes what the changes do to the rows of the table, as files that nothing names yet.
    pub(super) async fn write_replacement(
        &mut self,
        changes: &Changes,
        to: Step,
        columns: &FileColumns,
    ) -> Result<AppendFiles> {
        // They are large, and few steps need all of them.
        Box::pin(self.match_rows()).await?;
        let found = match self.find_rows(changes).await {
            // The table was matched, so it is the index that is wrong.
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                tracing::warn!(event = "key_index_rebuilt", error = %error, "the key index is made again from the table");
                self.forget_rows().await?;
                Box::pin(self.match_rows()).await?;
                self.find_rows(changes).await?
            }
            found => found?,
        };
        let rows = self.current.take().ok_or_else(unknown)?;
        let written = self.write_effects(&rows, found, to, columns).await;
        self.current = Some(rows);
        written
    }

    /// What the changes do to the rows that the table holds.
    ///
    /// Corrupt: the index tells of a row that is not live, or is damaged.
    async fn find_rows(&mut self, changes: &Changes) -> Result<Effects> {
        let last = changes.last_of_each_key(&self.view)?;
        let (ops, values) = (ops_of(&last)?, self.view.values_of(&last)?);
        let rows = self.current.take().ok_or_else(unknown)?;
        let keys = rows.index.hashes(&values)?;
        let sought = keys.clone();
        let (rows, found) = rows.with_index(move |index, _| index.find(&sought)).await?;
        let effects = found.and_then(|found| Effects::of(&values, &ops, &keys, &found, &rows));
        self.current = Some(rows);
        effects
    }

    async fn write_effects(
        &self,
        rows: &CurrentRows,
        effects: Effects,
        to: Step,
        columns: &FileColumns,
    ) -> Result<AppendFiles> {
        let Effects { new, keys, digests, removed, gone, counts, digest } = effects;
        let ours = self
            .facts
            .ours()
            .ok_or_else(|| Error::internal("changes were to be written to a table that is not ours"))?;
        let mut writer = self.file_writer(FILE_PREFIX, columns, ours.generation, to)?;
        if new.num_rows() > 0 {
            writer.write(new).await?;
        }
        let written = writer.finish().await?;
        let mut tally = rows.index.tally();
        let numbers = self.numbers(rows, &written, &keys, columns).await?;
        let mut files = BTreeMap::new();
        for file in &written.files {
            files.insert(tally.next_file, Some(RowFile::new(file, tally.next_row)));
            (tally.next_file, tally.next_row) = (tally.next_file + 1, tally.next_row + file.rows);
        }
        let known = digests.into_iter().zip(numbers).map(|(digest, row)| Known { row, digest });
        let put = keys.iter().copied().zip(known).collect();
        tally.rows = (tally.rows + counts.i).saturating_sub(counts.d);
        tally.digest = tally.digest.plus(digest);
        let mut adds = add_actions(&written);
        let mut removes = Vec::new();
        let mut vectors = Vectors::new(&self.world.ids.draw())?;
        for (number, gone) in gone {
            let before =
                rows.files.get(number).ok_or_else(|| Error::internal("a row was found in a file that is not live"))?;
            removes.push(before.live.clone());
            let deleted = &before.deleted | gone;
            if deleted.len() == before.rows.len() {
                files.insert(number, None);
                continue;
            }
            let mut after = before.clone();
            after.delete(deleted, &mut vectors)?;
            adds.push(after.add()?);
            files.insert(number, Some(after));
        }
        vectors.put(&self.log).await?;
        let marks = files.iter().map(|(number, file)| (*number, file.as_ref().map(RowFile::indexed))).collect();
        let edit = Edit { put, removed, files: marks, tally };
        Ok(AppendFiles { adds, removes, written, counts, digest, replacement: Some(Replacement { edit, files }) })
    }

    /// The number of each of the rows with `keys`, which were written to these files one after another.
    async fn numbers(
        &self,
        rows: &CurrentRows,
        written: &Written,
        keys: &[KeyHash],
        columns: &FileColumns,
    ) -> Result<Vec<u64>> {
        let first = rows.index.tally().next_row;
        if written.files.len() <= 1 {
            // One file holds them in their order.
            return Ok((first..).take(keys.len()).collect());
        }
        let files = written.files.iter().map(|file| RowFile::new(file, 0).live).collect();
        let from = Reading::of_files(&self.log, columns, self.view.schema());
        let mut pieces = data_file::read(&from.origin, whole(files), &from.key(&self.view)?);
        let mut numbers = HashMap::with_capacity(keys.len());
        while let Some(piece) = pieces.try_next().await? {
            let before = written.files.iter().take(piece.file).map(|file| file.rows).sum::<u64>();
            let begin = first + before + piece.first_row as u64;
            numbers.extend(rows.index.hashes(&piece.rows)?.into_iter().zip(begin..));
        }
        let lost = || Error::unavailable("the files of a step read back otherwise than they were written");
        keys.iter().map(|key| numbers.get(key).copied().ok_or_else(lost)).collect()
    }
}

fn unknown() -> Error {
    Error::internal("the rows of the table are not known")
}
