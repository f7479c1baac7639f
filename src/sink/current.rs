//! The rows of a table of layout `current`: where the row of each key stands, matched with the table's files.
//!
//! ```text
//!   the live files at the head ──┬─ those that the index names, with the same vectors: nothing is read
//!                                ├─ others: their rows are read into it
//!                                └─ rows of files and vectors that are gone: swept out
//!   then their number and digest must be those of the last commit; else the index is made again from all files
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;
use serde_json::value::RawValue;

use super::commit::Core;
use crate::continuity::stamp::TAG_DIGEST;
use crate::data_file::{self, Origin, Wanted};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::files::{DataFile, Written};
use crate::key_index::{Edit, IndexedFile, KeyHash, KeyIndex, Known, RowPlace};
use crate::log::{AddAction, Facts, FileColumns, LiveFile, Log, RowIds, RowSet, table_schema};
use crate::schema::View;

/// How many rows are put into the index at once.
const CHUNK: usize = 1 << 16;

/// The rows of a table at one version, by their keys and by their files.
#[derive(Debug)]
pub(super) struct CurrentRows {
    pub(super) index: KeyIndex,
    pub(super) files: BTreeMap<u32, RowFile>,
    /// The id of the reload that they began with.
    load: String,
    /// `None` once others may have committed.
    version: Option<u64>,
}

/// A live data file.
#[derive(Debug, Clone)]
pub(super) struct RowFile {
    pub(super) live: LiveFile,
    stats: Option<Box<str>>,
    /// All of its rows, the deleted ones included.
    pub(super) rows: u64,
    pub(super) deleted: RowSet,
}

impl RowFile {
    pub(super) fn new(file: &DataFile) -> Self {
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
        Self { live, stats: Some(file.stats.as_str().into()), rows: file.rows, deleted: RowSet::new() }
    }

    pub(super) fn indexed(&self) -> IndexedFile {
        IndexedFile { path: self.live.path.clone(), vector: self.live.id().vector, rows: self.rows }
    }

    /// The action that adds it again with its vector.
    pub(super) fn add(&self) -> Result<AddAction> {
        let tags = self.live.digest.map(|digest| (TAG_DIGEST.to_string(), digest.to_string()));
        Ok(AddAction {
            path: self.live.path.clone(),
            partition_values: self.live.partition_values.clone(),
            size: self.live.size.unsigned_abs(),
            modification_time: self.live.modified_millis,
            data_change: true,
            stats: wide_stats(self.stats.as_deref(), self.rows)?,
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

/// Where rows are read from, and which of their columns.
pub(super) struct Reading {
    pub(super) origin: Origin,
    columns: SchemaRef,
}

impl Reading {
    /// The files of the table of `facts`.
    fn of_table(log: &Log, facts: &Facts) -> Result<Self> {
        let metadata = facts.metadata.as_ref().ok_or_else(|| Error::internal("a table has no metadata"))?;
        let columns = table_schema(metadata)?;
        Ok(Self { origin: Origin::of(log, facts, &columns)?, columns })
    }

    /// Files that hold rows with `columns` as `stored` says.
    pub(super) fn of_files(log: &Log, stored: &FileColumns, columns: &SchemaRef) -> Self {
        let origin = Origin { store: Arc::clone(log.store()), columns: stored.clone() };
        Self { origin, columns: Arc::clone(columns) }
    }

    /// The columns of the key alone.
    pub(super) fn key(&self, view: &View) -> Result<SchemaRef> {
        let missing = |e| Error::internal("a column of the key is not there").with_source(e);
        let places = view.key().iter().map(|name| self.columns.index_of(name).map_err(missing));
        let places = places.collect::<Result<Vec<_>>>()?;
        self.columns.project(&places).map(Arc::new).map_err(missing)
    }
}

/// What an append does to the rows that the table holds.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) edit: Edit,
    /// The files that differ afterwards, by their numbers; `None` for those that are gone.
    pub(super) files: BTreeMap<u32, Option<RowFile>>,
}

impl CurrentRows {
    /// Whether a row of `files` stands at `place`.
    pub(super) fn is_live(files: &BTreeMap<u32, RowFile>, place: RowPlace) -> bool {
        let row = u64::from(place.row);
        files.get(&place.file).is_some_and(|file| row < file.rows && !file.deleted.contains(row))
    }

    /// Others may have committed.
    pub(super) fn doubt(&mut self) {
        self.version = None;
    }

    /// A commit that changed no row: the version after it has the same ones.
    pub(super) fn stay(&mut self, version: u64) {
        if self.version.is_some_and(|before| before + 1 == version) {
            self.version = Some(version);
        }
    }

    /// The rows as `replacement`, which is committed, leaves them.
    async fn replaced(self, replacement: Replacement) -> Result<Self> {
        let Replacement { edit, files } = replacement;
        let mut rows = self.edited(edit).await?;
        for (number, file) in files {
            match file {
                Some(file) => _ = rows.files.insert(number, file),
                None => _ = rows.files.remove(&number),
            }
        }
        Ok(rows)
    }
}

impl Core {
    /// Brings what is known of the table's rows to the head; what the index does not know is read from the table.
    ///
    /// Corrupt: files of the table are missing or damaged. Continuity lost: its rows are not what our commits made them.
    pub(super) async fn match_rows(&mut self) -> Result<()> {
        let (Some(version), Some(ours)) = (self.facts.version, self.facts.ours()) else {
            return Err(Error::internal("the rows of a table were looked for that is not ours"));
        };
        let load = ours.stamp.as_ref().map(|stamp| stamp.commit.clone());
        let load = load.ok_or_else(|| Error::internal("a table of ours has no load"))?;
        let found = match self.current.take() {
            Some(found) if found.load == load && found.version == Some(version) => {
                self.current = Some(found);
                return Ok(());
            }
            Some(found) if found.load == load => Some(found.index),
            _ => self.open_index(&load).await?,
        };
        let from = Reading::of_table(&self.log, &self.facts)?;
        let live = self.log.live_stats_at(version).await?;
        // Every path is looked at before any is followed.
        live.iter().try_for_each(|(file, _)| file.object().map(|_| ()))?;
        let (files, stats): (Vec<LiveFile>, Vec<_>) = live.into_iter().unzip();
        let mut deleted = self.log.deleted_rows(&files).await?;
        let deleted = (0..files.len()).map(|at| deleted.remove(&at).unwrap_or_default());
        let files: Vec<RowFile> = files
            .into_iter()
            .zip(stats)
            .zip(deleted)
            .map(|((live, stats), deleted)| RowFile {
                rows: live.rows.unwrap_or(0) + deleted.len(),
                live,
                stats,
                deleted,
            })
            .collect();
        let aligned = match found {
            Some(index) => sound(self.align(index, &files, &load, &from).await)?.flatten(),
            None => None,
        };
        let mut rows = match aligned {
            Some(rows) => rows,
            None => {
                let index = self.new_index(&load).await?;
                self.align(index, &files, &load, &from).await?.ok_or_else(other_rows)?
            }
        };
        rows.version = Some(version);
        self.current = Some(rows);
        Ok(())
    }

    /// Builds the index of a snapshot whose files no version names yet.
    ///
    /// Refused: two of its rows have the same key.
    pub(super) async fn index_snapshot(
        &mut self,
        load: &str,
        written: &Written,
        columns: &FileColumns,
    ) -> Result<CurrentRows> {
        self.current = None;
        let index = self.new_index(load).await?;
        let files: Vec<RowFile> = written.files.iter().map(RowFile::new).collect();
        let from = Reading::of_files(&self.log, columns, self.view.schema());
        let built = self.build(index, &files, load, &from).await?;
        let rows = built.ok_or_else(|| Error::internal("the rows of a snapshot are not those that were written"))?;
        if rows.index.tally().digest == written.digest {
            return Ok(rows);
        }
        Err(Error::unavailable("the snapshot's files read back otherwise than they were written; take it again"))
    }

    /// Takes the rows of a load that was committed as `version`.
    pub(super) fn loaded(&mut self, mut rows: CurrentRows, version: u64) {
        rows.version = self.known_at(version);
        if let Some(home) = &self.settings.key_index
            && let Err(error) = KeyIndex::keep_only(home, &rows.load)
        {
            tracing::warn!(event = "key_index_left", error = %error, "the key index of an older load stays where it is");
        }
        self.current = Some(rows);
    }

    /// Takes the rows that an append, committed as `version`, leaves. The index of a step that is in the table never fails it:
    /// it is matched again before the next one.
    pub(super) async fn replaced(&mut self, replacement: Replacement, version: u64) {
        let Some(rows) = self.current.take() else { return };
        match rows.replaced(replacement).await {
            Ok(rows) => self.current = Some(CurrentRows { version: self.known_at(version), ..rows }),
            Err(error) => {
                tracing::warn!(event = "key_index_behind", error = %crate::error::with_causes(&error), "the key index is matched with the table before the next step");
            }
        }
    }

    /// Gives the index up: the rows are read anew.
    pub(super) async fn forget_rows(&mut self) -> Result<()> {
        let Some(rows) = self.current.take() else { return Ok(()) };
        let load = rows.load.clone();
        drop(rows);
        self.new_index(&load).await.map(drop)
    }

    /// The version of files that a commit of ours added; none where that gave them ids, which are read from the table.
    fn known_at(&self, version: u64) -> Option<u64> {
        (!self.log.tracks_rows(&self.facts)).then_some(version)
    }

    /// The index of `load` as it was left; `None` where it is damaged.
    async fn open_index(&self, load: &str) -> Result<Option<KeyIndex>> {
        sound(self.index(load).await)
    }

    /// An index of `load` that knows nothing.
    async fn new_index(&self, load: &str) -> Result<KeyIndex> {
        if let Some(home) = &self.settings.key_index {
            KeyIndex::remove(home, load)?;
        }
        self.index(load).await
    }

    async fn index(&self, load: &str) -> Result<KeyIndex> {
        let seed = twox_hash::XxHash3_64::oneshot(self.world.ids.draw().as_bytes());
        let (load, key, whose) = (load.to_owned(), self.view.key().to_vec(), self.identity.connector.clone());
        match self.settings.key_index.clone() {
            None => KeyIndex::open(None, &load, &key, seed, &whose),
            Some(home) => blocking(move || KeyIndex::open(Some(&home), &load, &key, seed, &whose)).await?,
        }
    }

    /// Makes `index` that of the live `files`; `None` where it cannot be, because it is of other rows.
    async fn align(
        &self,
        index: KeyIndex,
        files: &[RowFile],
        load: &str,
        from: &Reading,
    ) -> Result<Option<CurrentRows>> {
        let known = index.files()?;
        if known.is_empty() {
            return self.build(index, files, load, from).await;
        }
        let mut by_path: HashMap<String, (u32, IndexedFile)> =
            known.into_iter().map(|(number, file)| (file.path.clone(), (number, file))).collect();
        let mut tally = index.tally();
        let (mut numbered, mut fresh, mut moved) = (BTreeMap::new(), Vec::new(), Vec::new());
        for file in files {
            let mut file = file.clone();
            match by_path.remove(&file.live.path) {
                Some((number, indexed)) => {
                    file.rows = indexed.rows;
                    if file.indexed() != indexed {
                        moved.push((number, Some(file.indexed())));
                    }
                    numbered.insert(number, file);
                }
                None => {
                    fresh.push(tally.next_file);
                    numbered.insert(tally.next_file, file);
                    tally.next_file += 1;
                }
            }
        }
        moved.extend(by_path.into_values().map(|(number, _)| (number, None)));
        let mut rows = CurrentRows { index, files: numbered, load: load.to_owned(), version: None };
        if !fresh.is_empty() || !moved.is_empty() {
            rows = self.learn(rows, from, &fresh, tally.next_file, Seen::Some).await?;
            moved.extend(fresh.iter().filter_map(|number| Some((*number, Some(rows.files.get(number)?.indexed())))));
            let edit = Edit { files: moved, tally: rows.index.tally(), ..Edit::default() };
            rows = rows.edited(edit).await?;
        }
        if rows.index.tally().rows != rows.live_rows() {
            rows = rows.swept().await?;
        }
        Ok(self.holds(&rows).then_some(rows))
    }

    /// Puts every row of `files` into an index that knows nothing.
    async fn build(
        &self,
        index: KeyIndex,
        files: &[RowFile],
        load: &str,
        from: &Reading,
    ) -> Result<Option<CurrentRows>> {
        let numbered: BTreeMap<u32, RowFile> = (0u32..).zip(files.iter().cloned()).collect();
        let (fresh, next) = (numbered.keys().copied().collect::<Vec<_>>(), numbered.len() as u32);
        let rows = CurrentRows { index, files: numbered, load: load.to_owned(), version: None };
        let rows = self.learn(rows, from, &fresh, next, Seen::Nothing).await?;
        // Only this tells how many keys there are.
        let rows = rows.swept().await?;
        if rows.index.tally().rows < rows.live_rows() {
            return Err(self.twice(&rows, from).await?);
        }
        let marks = rows.files.iter().map(|(number, file)| (*number, Some(file.indexed()))).collect();
        let edit = Edit { files: marks, tally: rows.index.tally(), ..Edit::default() };
        let rows = rows.edited(edit).await?;
        Ok(self.holds(&rows).then_some(rows))
    }

    /// Whether the rows of the index are those of the files, by their number and, where the log tells it, their digest.
    fn holds(&self, rows: &CurrentRows) -> bool {
        let tally = rows.index.tally();
        let ours = self.facts.ours().filter(|o| o.stamp.as_ref().is_some_and(|stamp| stamp.commit == rows.load));
        let expected = ours.and_then(|ours| ours.digest_total);
        tally.rows == rows.live_rows() && expected.is_none_or(|expected| expected == tally.digest)
    }

    /// Reads the files numbered `fresh` into the index.
    async fn learn(
        &self,
        mut rows: CurrentRows,
        from: &Reading,
        fresh: &[u32],
        next_file: u32,
        seen: Seen,
    ) -> Result<CurrentRows> {
        let mut count: HashMap<u32, u64> = HashMap::new();
        let files: Vec<LiveFile> =
            fresh.iter().filter_map(|number| Some(rows.files.get(number)?.live.clone())).collect();
        let mut pieces = data_file::read(&from.origin, whole(files), &from.columns);
        let mut put: Vec<(KeyHash, Known)> = Vec::new();
        loop {
            let piece = pieces.try_next().await?;
            if let Some(piece) = &piece {
                let number = fresh.get(piece.file).copied().unwrap_or(u32::MAX);
                let Some(file) = rows.files.get(&number) else { continue };
                let (keys, digests) = (rows.index.hashes(&piece.rows)?, Digest::of_rows(&piece.rows)?);
                for ((key, digest), row) in keys.into_iter().zip(digests).zip(piece.first_row..) {
                    let place = RowPlace { file: number, row: u32::try_from(row).map_err(|_| too_long(&file.live))? };
                    if !file.deleted.contains(row as u64) {
                        put.push((key, Known { place, digest }));
                    }
                }
                *count.entry(number).or_default() += piece.rows.num_rows() as u64;
            }
            if put.len() >= CHUNK || (piece.is_none() && !put.is_empty()) {
                rows = self.put(rows, std::mem::take(&mut put), next_file, seen).await?;
            }
            if piece.is_none() {
                break;
            }
        }
        for (number, count) in count {
            if let Some(file) = rows.files.get_mut(&number) {
                file.rows = count;
            }
        }
        Ok(rows)
    }

    async fn put(
        &self,
        rows: CurrentRows,
        put: Vec<(KeyHash, Known)>,
        next_file: u32,
        seen: Seen,
    ) -> Result<CurrentRows> {
        let put = rows.with_index(move |index, files| {
            let mut tally = index.tally();
            tally.next_file = next_file;
            if let Seen::Some = seen {
                let keys: Vec<KeyHash> = put.iter().map(|(key, _)| *key).collect();
                for ((_, known), before) in put.iter().zip(index.find(&keys)?) {
                    match before {
                        Some(before) => tally.digest = tally.digest.minus(before.digest),
                        None => tally.rows += 1,
                    }
                    if let Some(before) = before
                        && before.place != known.place
                        && CurrentRows::is_live(files, before.place)
                    {
                        return Err(Error::corrupt("two rows of the table have the same key; see `cutover verify --deep`, then repair the table with a reset"));
                    }
                    tally.digest = tally.digest.plus(known.digest);
                }
            }
            index.apply(Edit { put, tally, ..Edit::default() })
        });
        let (rows, put) = put.await?;
        put.map(|()| rows)
    }

    /// The error of rows of which two have the same key, which it names.
    async fn twice(&self, rows: &CurrentRows, from: &Reading) -> Result<Error> {
        let numbers: Vec<u32> = rows.files.keys().copied().collect();
        let files: Vec<LiveFile> = rows.files.values().map(|file| file.live.clone()).collect();
        let mut pieces = data_file::read(&from.origin, whole(files), &from.key(&self.view)?);
        while let Some(piece) = pieces.try_next().await? {
            let number = numbers.get(piece.file).copied().unwrap_or(u32::MAX);
            let found = rows.index.find(&rows.index.hashes(&piece.rows)?)?;
            for (at, known) in found.into_iter().enumerate() {
                let row = (piece.first_row + at) as u32;
                if known.is_some_and(|known| known.place != RowPlace { file: number, row })
                    && CurrentRows::is_live(&rows.files, RowPlace { file: number, row })
                {
                    let shown = piece.rows.columns().iter().map(|c| array_value_to_string(c, at).unwrap_or_default());
                    let key: Vec<String> = shown.collect();
                    return Ok(Error::refused(format!(
                        "two rows have the key {}; correct the key of the view, or the snapshot",
                        key.join(", ")
                    )));
                }
            }
        }
        Ok(Error::internal("rows with the same key were counted, and none was found"))
    }
}

/// Whether an index may know rows already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Nothing,
    Some,
}

impl CurrentRows {
    fn live_rows(&self) -> u64 {
        self.files.values().map(|file| file.rows - file.deleted.len().min(file.rows)).sum()
    }

    /// Works on the index, beside the task unless it is in memory.
    pub(super) async fn with_index<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut KeyIndex, &BTreeMap<u32, RowFile>) -> T + Send + 'static,
    ) -> Result<(Self, T)> {
        let mut rows = self;
        if rows.index.is_in_memory() {
            let done = work(&mut rows.index, &rows.files);
            return Ok((rows, done));
        }
        blocking(move || {
            let done = work(&mut rows.index, &rows.files);
            (rows, done)
        })
        .await
    }

    async fn edited(self, edit: Edit) -> Result<Self> {
        let (rows, applied) = self.with_index(|index, _| index.apply(edit)).await?;
        applied.map(|()| rows)
    }

    async fn swept(self) -> Result<Self> {
        let swept = self.with_index(|index, files| index.sweep(|place| Self::is_live(files, place))).await;
        let (rows, swept) = swept?;
        swept.map(|()| rows)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::internal("work on a key index ended early").with_source(e))
}

pub(super) fn whole(files: Vec<LiveFile>) -> Vec<Wanted> {
    files.into_iter().map(|file| Wanted { file, rows: None }).collect()
}

fn other_rows() -> Error {
    Error::continuity_lost(
        Lost::Drift,
        "the rows of the table's data files are not what our commits made them; see `cutover verify --deep`, then repair the table with a reset",
    )
}

fn too_long(file: &LiveFile) -> Error {
    Error::incompatible(format!("the data file {} has more rows than an index can hold", file.path))
}

/// What an index that is damaged leads to: it is made again.
fn sound<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            tracing::warn!(event = "key_index_rebuilt", error = %error, "the key index is made again from the table");
            Ok(None)
        }
        Err(error) => Err(error),
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
