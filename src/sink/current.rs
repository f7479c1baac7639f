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

use super::commit::Core;
use super::row_files::{RowFile, RowFiles};
use crate::data_file::{self, Origin, Wanted};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::files::Written;
use crate::key_index::{Edit, Filling, IndexedFile, KeyHash, KeyIndex, Known, RowRuns, Tally};
use crate::log::{Facts, FileColumns, LiveFile, Log, table_schema};
use crate::schema::View;

/// How many rows are put into the index at once.
const CHUNK: usize = 1 << 16;

/// The rows of a table at one version, by their keys and by their files.
#[derive(Debug)]
pub(super) struct CurrentRows {
    pub(super) index: KeyIndex,
    pub(super) files: RowFiles,
    /// The id of the reload that they began with.
    load: String,
    /// `None` once others may have committed.
    version: Option<u64>,
}

/// Where rows are read from, and which of their columns.
pub(super) struct Reading {
    pub(super) origin: Origin,
    pub(super) columns: SchemaRef,
}

impl Reading {
    /// The files of the table of `facts`.
    pub(super) fn of_table(log: &Log, facts: &Facts) -> Result<Self> {
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
    /// Whether they are those of `version`.
    pub(super) fn is_at(&self, version: Option<u64>) -> bool {
        version.is_some() && self.version == version
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
                Some(file) => rows.files.insert(number, file),
                None => rows.files.remove(number),
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
        let deleted = self.log.deleted_rows(&files).await?;
        let files = files.into_iter().zip(stats).zip(deleted);
        let files: Vec<RowFile> =
            files.map(|((live, stats), deleted)| RowFile { live, stats, rows: RowRuns::default(), deleted }).collect();
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
        let files: Vec<RowFile> = written.files.iter().map(|file| RowFile::new(file, 0)).collect();
        let from = Reading::of_files(&self.log, columns, self.view.schema());
        let built = self.build(index, &files, load, &from).await?;
        let rows = built.ok_or_else(|| Error::internal("the rows of a snapshot are not those that were written"))?;
        if rows.index.tally().digest == written.digest {
            return Ok(rows);
        }
        Err(Error::unavailable("the snapshot's files read back otherwise than they were written; take it again"))
    }

    /// Takes the files of a load that was committed as `version`, and its rows where the layout knows them.
    pub(super) fn loaded(&mut self, rows: Option<CurrentRows>, written: &Written, version: u64) {
        self.compaction.stop();
        let Some(mut rows) = rows else {
            self.current = None;
            return self.small_files.loaded(&written.files, version);
        };
        rows.version = self.known_at(version);
        if let Some(home) = &self.settings.key_index
            && let Err(error) = KeyIndex::keep_only(home, &rows.load)
        {
            tracing::warn!(event = "key_index_left", error = %error, "the key index of an older load stays where it is");
        }
        self.current = Some(rows);
    }

    /// Takes the files that an append to a changelog, committed as `version`, added.
    pub(super) fn appended(&mut self, written: &Written, version: u64) {
        self.small_files.appended(&written.files, version);
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
            // It may have rows of one that was begun and not ended.
            drop(index);
            let index = self.new_index(load).await?;
            return self.build(index, files, load, from).await;
        }
        let mut by_path: HashMap<String, (u32, IndexedFile)> =
            known.into_iter().map(|(number, file)| (file.path.clone(), (number, file))).collect();
        let mut tally = index.tally();
        let (mut numbered, mut fresh, mut moved) = (RowFiles::default(), Vec::new(), Vec::new());
        for file in files {
            let mut file = file.clone();
            match by_path.remove(&file.live.path) {
                Some((number, indexed)) => {
                    file.rows.clone_from(&indexed.rows);
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
            rows = self.learn(rows, from, &fresh, tally.next_file, Taker::Index).await?;
            moved.extend(fresh.iter().filter_map(|number| Some((*number, Some(rows.files.get(*number)?.indexed())))));
            let edit = Edit { files: moved, tally: rows.index.tally(), ..Edit::default() };
            rows = rows.edited(edit).await?;
        }
        if rows.index.tally().rows != rows.files.live_rows() {
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
        let mut numbered = RowFiles::default();
        (0u32..).zip(files).for_each(|(number, file)| numbered.insert(number, file.clone()));
        let fresh: Vec<u32> = numbered.iter().map(|(number, _)| number).collect();
        let next = fresh.len() as u32;
        let rows = CurrentRows { index, files: numbered, load: load.to_owned(), version: None };
        let filling = Filling::new(self.settings.key_index.as_deref())?;
        let rows = self.learn(rows, from, &fresh, next, Taker::Filling(filling)).await?;
        if rows.index.tally().rows < rows.files.live_rows() {
            return Err(self.twice(&rows, from).await?);
        }
        let marks = rows.files.iter().map(|(number, file)| (number, Some(file.indexed()))).collect();
        let edit = Edit { files: marks, tally: rows.index.tally(), ..Edit::default() };
        let rows = rows.edited(edit).await?;
        Ok(self.holds(&rows).then_some(rows))
    }

    /// Whether the rows of the index are those of the files, by their number and, where the log tells it, their digest.
    fn holds(&self, rows: &CurrentRows) -> bool {
        let tally = rows.index.tally();
        let ours = self.facts.ours().filter(|o| o.stamp.as_ref().is_some_and(|stamp| stamp.commit == rows.load));
        let expected = ours.and_then(|ours| ours.digest_total);
        tally.rows == rows.files.live_rows() && expected.is_none_or(|expected| expected == tally.digest)
    }

    /// Reads the files numbered `fresh` into the index, which gives their rows numbers.
    async fn learn(
        &self,
        mut rows: CurrentRows,
        from: &Reading,
        fresh: &[u32],
        next_file: u32,
        mut taker: Taker,
    ) -> Result<CurrentRows> {
        let files = fresh.iter().filter_map(|number| Some(rows.files.get(*number)?.live.clone()));
        let mut pieces = data_file::read(&from.origin, whole(files.collect()), &from.columns);
        let mut next_row = rows.index.tally().next_row;
        let mut first_rows: Vec<u64> = Vec::new();
        let mut put: Vec<(KeyHash, Known)> = Vec::new();
        loop {
            let piece = pieces.try_next().await?;
            if let Some(piece) = &piece {
                // A file without rows gives no piece.
                first_rows.resize((piece.file + 1).max(first_rows.len()), next_row);
                let file = fresh.get(piece.file).and_then(|number| rows.files.get(*number));
                let (Some(file), Some(first)) = (file, first_rows.last()) else { continue };
                let (keys, digests) = (rows.index.hashes(&piece.rows)?, Digest::of_rows(&piece.rows)?);
                for ((key, digest), place) in keys.into_iter().zip(digests).zip(piece.first_row as u64..) {
                    if !file.deleted.contains(place) {
                        put.push((key, Known { row: first + place, digest }));
                    }
                }
                next_row += piece.rows.num_rows() as u64;
            }
            if put.len() >= CHUNK || (piece.is_none() && !put.is_empty()) {
                let next = Next { file: next_file, row: next_row };
                (rows, taker) = self.put(rows, std::mem::take(&mut put), next, taker).await?;
            }
            if piece.is_none() {
                break;
            }
        }
        if let Taker::Filling(filling) = taker {
            let filled = rows.with_index(move |index, _| filling.finish(index, next_file, next_row)).await?;
            (rows, ()) = (filled.0, filled.1?);
        }
        first_rows.resize(fresh.len(), next_row);
        let ends = first_rows.iter().skip(1).copied().chain([next_row]);
        for ((number, first), end) in fresh.iter().zip(&first_rows).zip(ends) {
            if let Some(file) = rows.files.get(*number).cloned() {
                rows.files.insert(*number, RowFile { rows: RowRuns::of(*first..end), ..file });
            }
        }
        Ok(rows)
    }

    async fn put(
        &self,
        rows: CurrentRows,
        put: Vec<(KeyHash, Known)>,
        next: Next,
        taker: Taker,
    ) -> Result<(CurrentRows, Taker)> {
        let put = rows.with_index(move |index, files| match taker {
            Taker::Filling(mut filling) => filling.add(put).map(|()| Taker::Filling(filling)),
            Taker::Index => index_rows(index, files, put, next).map(|()| Taker::Index),
        });
        let (rows, taker) = put.await?;
        Ok((rows, taker?))
    }

    /// The error of rows of which two have the same key, which it names.
    async fn twice(&self, rows: &CurrentRows, from: &Reading) -> Result<Error> {
        let files: Vec<&RowFile> = rows.files.iter().map(|(_, file)| file).collect();
        let wanted = whole(files.iter().map(|file| file.live.clone()).collect());
        let mut pieces = data_file::read(&from.origin, wanted, &from.key(&self.view)?);
        while let Some(piece) = pieces.try_next().await? {
            let Some(file) = files.get(piece.file) else { continue };
            let found = rows.index.find(&rows.index.hashes(&piece.rows)?)?;
            for (at, known) in found.into_iter().enumerate() {
                let place = (piece.first_row + at) as u64;
                // One of them is the one that is known.
                let is_another = known.is_some_and(|known| file.rows.place(known.row) != Some(place));
                if is_another && !file.deleted.contains(place) {
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

/// The numbers of the file and the row that are next.
#[derive(Debug, Clone, Copy)]
struct Next {
    file: u32,
    row: u64,
}

/// Where rows that are read go.
enum Taker {
    /// To an index that knows others.
    Index,
    /// To be sorted for one that knows nothing.
    Filling(Filling),
}

/// Puts rows into an index that knows others.
fn index_rows(index: &mut KeyIndex, files: &RowFiles, put: Vec<(KeyHash, Known)>, next: Next) -> Result<()> {
    let mut tally = Tally { next_file: next.file, next_row: next.row, ..index.tally() };
    let keys: Vec<KeyHash> = put.iter().map(|(key, _)| *key).collect();
    for ((_, known), before) in put.iter().zip(index.find(&keys)?) {
        match before {
            Some(before) => tally.digest = tally.digest.minus(before.digest),
            None => tally.rows += 1,
        }
        if let Some(before) = before
            && files.is_live(before.row)
        {
            return Err(Error::corrupt(
                "two rows of the table have the same key; see `cutover verify --deep`, then repair the table with a reset",
            ));
        }
        tally.digest = tally.digest.plus(known.digest);
    }
    index.apply(Edit { put, tally, ..Edit::default() })
}

impl CurrentRows {
    /// Works on the index, beside the task unless it is in memory.
    pub(super) async fn with_index<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut KeyIndex, &RowFiles) -> T + Send + 'static,
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
        let swept = self.with_index(|index, files| index.sweep(|row| files.is_live(row))).await;
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
