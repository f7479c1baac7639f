//! What can still be read of Parquet files that may be damaged: actions of checkpoints, bounds in data files.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::json::LineDelimitedWriter;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::{LOG_DIR, Log};
use crate::continuity::stamp::{COLUMN_GENERATION, COLUMN_STEP, FILE_PREFIX, NOTE_GENERATION, NOTE_STEP};
use crate::error::Result;

/// How many footers are read at once.
const READS_AT_ONCE: usize = 32;
/// The actions of a checkpoint; of its other columns nothing is needed.
const ACTIONS: &[&str] = &["metaData", "protocol", "txn", "domainMetadata", "add", "remove"];
/// What of a file's action is not needed to remove it.
const NEEDLESS: &[&str] = &["stats", "stats_parsed", "partitionValues_parsed", "tags"];

/// The actions of a checkpoint file or sidecar as JSON lines, each part that cannot be read left out.
pub(super) fn actions(bytes: &Bytes) -> Vec<u8> {
    let mut lines = Vec::new();
    let Some(groups) = guarded(|| Some(builder(bytes)?.metadata().num_row_groups())) else { return lines };
    for group in 0..groups {
        for action in ACTIONS {
            // One part at a time, so that a damaged one takes no other with it.
            lines.extend(guarded(|| read(bytes, group, action)).unwrap_or_default());
        }
    }
    lines
}

fn builder(bytes: &Bytes) -> Option<ParquetRecordBatchReaderBuilder<Bytes>> {
    ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).ok()
}

fn read(bytes: &Bytes, group: usize, action: &str) -> Option<Vec<u8>> {
    let builder = builder(bytes)?;
    let schema = builder.parquet_schema();
    let wanted = schema.columns().iter().enumerate().filter(|(_, column)| {
        let parts = column.path().parts();
        parts.first().is_some_and(|root| root == action)
            && !parts.get(1).is_some_and(|p| NEEDLESS.contains(&p.as_str()))
    });
    let leaves: Vec<usize> = wanted.map(|(leaf, _)| leaf).collect();
    if leaves.is_empty() {
        return None;
    }
    let mask = ProjectionMask::leaves(schema, leaves);
    let reader = builder.with_projection(mask).with_row_groups(vec![group]).build().ok()?;
    let mut writer = LineDelimitedWriter::new(Vec::new());
    for batch in reader {
        writer.write(&batch.ok()?).ok()?;
    }
    writer.finish().ok()?;
    Some(writer.into_inner())
}

/// Decoders may panic on bytes that no encoder wrote.
fn guarded<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok().flatten()
}

/// What the data files of ours say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FilesSay {
    /// How many files there are, of anybody.
    pub(super) objects: u64,
    /// How many of them are not ours.
    pub(super) foreign: u64,
    /// The highest generation, and the highest step of its rows.
    pub(super) newest: Option<(u64, u64)>,
    /// A folder below that holds a table of its own, whose files are not this one's.
    pub(super) other_table: Option<String>,
}

impl Log {
    /// Reads the footers of all data files of ours, live or not; one that cannot be read says nothing.
    pub(super) async fn files_say(&self) -> Result<FilesSay> {
        let footers = self
            .objects()
            .map_ok(|(path, size)| async move {
                let is_ours = path.filename().is_some_and(|name| name.starts_with(FILE_PREFIX));
                let is_hidden = path.parts().any(|part| part.as_ref().starts_with(['.', '_']));
                let newest = if is_ours { self.newest_in(&path, size).await? } else { None };
                Ok((is_ours, is_hidden, newest, table_of(&path)))
            })
            .try_buffer_unordered(READS_AT_ONCE);
        let mut footers = std::pin::pin!(footers);
        let mut say = FilesSay::default();
        while let Some((is_ours, is_hidden, newest, table)) = footers.try_next().await? {
            say.objects += u64::from(!is_hidden);
            say.foreign += u64::from(!is_ours && !is_hidden);
            say.newest = say.newest.max(newest);
            say.other_table = say.other_table.or(table);
        }
        Ok(say)
    }

    async fn newest_in(&self, path: &Path, size: u64) -> Result<Option<(u64, u64)>> {
        let Ok(footer) = self.footer(path, size).await? else { return Ok(None) };
        let rows = || footer.row_groups().iter().filter_map(bounds).max();
        Ok(guarded(|| noted(&footer).max(rows())))
    }

    /// The bytes of these files, several at a time.
    pub(super) async fn relics(&self, paths: Vec<Path>) -> Result<Vec<(Path, Bytes)>> {
        let read = stream::iter(paths).map(|path| async move { Ok((self.bytes_of(&path).await?, path)) });
        read.buffered(READS_AT_ONCE).map_ok(|(bytes, path)| (path, bytes)).try_collect().await
    }
}

/// The generation and step that a file's footer notes.
fn noted(footer: &ParquetMetaData) -> Option<(u64, u64)> {
    let notes = footer.file_metadata().key_value_metadata()?;
    let note = |key: &str| notes.iter().find(|note| note.key == key)?.value.as_ref()?.parse().ok();
    Some((note(NOTE_GENERATION)?, note(NOTE_STEP)?))
}

/// The folder of the table in whose log `path` lies, where there is one.
fn table_of(path: &Path) -> Option<String> {
    let parts: Vec<_> = path.parts().collect();
    let log = parts.iter().position(|part| part.as_ref() == LOG_DIR)?;
    let folder: Path = parts.into_iter().take(log).collect();
    Some(folder.to_string())
}

/// The highest generation and step of a row group of ours. They are the first columns, under names of their own where
/// columns are mapped.
fn bounds(group: &RowGroupMetaData) -> Option<(u64, u64)> {
    let highest = |at: usize, name: &str| {
        let column = group.columns().get(at)?;
        let found = column.column_path().parts().first()?;
        let max = match column.statistics()? {
            Statistics::Int64(longs) => *longs.max_opt()?,
            _ => return None,
        };
        (found == name || found.starts_with("col-")).then(|| u64::try_from(max).ok()).flatten()
    };
    Some((highest(0, COLUMN_GENERATION)?, highest(1, COLUMN_STEP)?))
}
