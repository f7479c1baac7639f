//! A reader of a table that knows Delta's log and Parquet's footers, and nothing of Cutover.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parquet::file::reader::{FileReader, SerializedFileReader};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::error::{Error, Result};

/// A table at its newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) version: u64,
    /// The rows that the footers of its live files count.
    pub(super) rows: u64,
    /// Its live files, relative to the table.
    pub(super) files: BTreeSet<String>,
}

/// Reads the table at `table`, whose log must be whole from version 0 on.
pub(super) fn read(table: &Path) -> Result<Seen> {
    let mut entries = fs::read_dir(table.join("_delta_log"))
        .and_then(|found| found.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>())
        .map_err(|e| unread(table).with_source(e))?;
    entries.retain(|path| version(path).is_some());
    entries.sort();
    let mut files = BTreeSet::new();
    for (expected, path) in (0..).zip(&entries) {
        if version(path) != Some(expected) {
            return Err(Error::corrupt(format!("{} lacks version {expected}", table.display())));
        }
        for line in fs::read_to_string(path).map_err(|e| unread(path).with_source(e))?.lines() {
            let action: Value = serde_json::from_str(line).map_err(|e| unread(path).with_source(e))?;
            let named = |kind: &str| Some(action.get(kind)?.get("path")?.as_str()?.to_string());
            if let Some(file) = named("remove") {
                files.remove(&file);
            }
            files.extend(named("add"));
        }
    }
    let Some(version) = (entries.len() as u64).checked_sub(1) else { return Err(unread(table)) };
    let rows = files.iter().map(|file| rows(&path(table, file))).sum::<Result<u64>>()?;
    Ok(Seen { version, rows, files })
}

/// Where a file is that the log names.
pub(super) fn path(table: &Path, file: &str) -> PathBuf {
    table.join(percent_decode_str(file).decode_utf8_lossy().as_ref())
}

fn rows(path: &Path) -> Result<u64> {
    let file = File::open(path).map_err(|e| unread(path).with_source(e))?;
    let reader = SerializedFileReader::new(file).map_err(|e| unread(path).with_source(e))?;
    Ok(reader.metadata().file_metadata().num_rows().unsigned_abs())
}

/// The version whose entry is at `path`.
fn version(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".json")?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

fn unread(path: &Path) -> Error {
    Error::internal(format!("{} cannot be read", path.display()))
}

/// A thread that reads a table's newest version again and again.
#[derive(Debug)]
pub(super) struct Poller {
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<Vec<u64>>>>,
}

impl Poller {
    pub(super) fn start(table: &Path) -> Self {
        let (stop, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (table, asked, count) = (table.to_path_buf(), Arc::clone(&stop), Arc::clone(&reads));
        let thread = std::thread::spawn(move || {
            let mut counts: Vec<u64> = Vec::new();
            while !asked.load(Ordering::Relaxed) {
                let rows = read(&table)?.rows;
                if counts.last() != Some(&rows) {
                    counts.push(rows);
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(counts)
        });
        Self { stop, reads, thread: Some(thread) }
    }

    /// How often it has read the table, to the end.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Whether it gave up.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it; the counts of rows in the order in which they were seen, each once until another was.
    pub(super) fn end(mut self) -> Result<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(|joined| joined.ok()).unwrap_or_else(|| Err(Error::internal("a reading thread broke down")))
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it saw is asked for by `end`.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;

    use super::*;

    /// A file of so many rows in a table.
    fn file(table: &Path, name: &str, rows: i64) {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(table.join(name)).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn entry(table: &Path, version: u64, text: &str) {
        fs::write(table.join(format!("_delta_log/{version:020}.json")), text).unwrap();
    }

    #[test]
    fn rows_are_those_of_the_files_that_were_added_and_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path();
        fs::create_dir(table.join("_delta_log")).unwrap();
        read(table).unwrap_err();
        file(table, "a.parquet", 3);
        file(table, "b c.parquet", 4);
        entry(table, 0, "{\"commitInfo\":{}}\n{\"add\":{\"path\":\"a.parquet\"}}\n");
        assert_eq!(read(table).unwrap().rows, 3);
        entry(table, 1, "{\"remove\":{\"path\":\"a.parquet\"}}\n{\"add\":{\"path\":\"b%20c.parquet\"}}\n");
        let seen = read(table).unwrap();
        assert_eq!((seen.version, seen.rows, seen.files.len()), (1, 4, 1));
        fs::remove_file(table.join("b c.parquet")).unwrap();
        read(table).unwrap_err();
        file(table, "b c.parquet", 4);
        entry(table, 3, "");
        read(table).unwrap_err();
    }

    #[test]
    fn a_poller_tells_each_count_in_turn() {
        let dir = tempfile::tempdir().unwrap();
        let table = dir.path();
        fs::create_dir(table.join("_delta_log")).unwrap();
        file(table, "a.parquet", 3);
        file(table, "b.parquet", 4);
        entry(table, 0, "{\"add\":{\"path\":\"a.parquet\"}}\n");
        let poller = Poller::start(table);
        let again = |seen: u64| while poller.reads() < seen + 2 && !poller.has_ended() {};
        again(0);
        fs::write(table.join("entry"), "{\"add\":{\"path\":\"b.parquet\"}}\n").unwrap();
        fs::rename(table.join("entry"), table.join(format!("_delta_log/{:020}.json", 1))).unwrap();
        again(poller.reads());
        assert_eq!(poller.end().unwrap(), [3, 7]);
    }
}
