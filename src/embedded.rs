//! An embedded store of keys on disk: its bounds, and what its failures ask of the caller.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, LsmError};

use crate::disk::lacks_room;
use crate::error::{Error, Result};

/// What is kept of blocks that were read, in bytes.
const CACHE: u64 = 64 << 20;
/// Entries that are in no table yet, in bytes: one part of them, and all.
const MEMTABLE: u64 = 32 << 20;
const MEMTABLES: u64 = 96 << 20;
/// The journals, in bytes; opening reads them.
const JOURNALS: u64 = 128 << 20;

/// Removes a store that nobody has open, where there is one.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Which store it is, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    /// What it is, and whose.
    what: &'static str,
    whose: String,
    /// What to do when it is damaged.
    remedy: &'static str,
}

impl Place {
    pub(crate) fn new(directory: &Path, what: &'static str, whose: impl Into<String>, remedy: &'static str) -> Self {
        Self { directory: directory.to_path_buf(), what, whose: whose.into(), remedy }
    }

    /// Opens the store, or makes an empty one; everything in it is in the one keyspace `name`.
    #[expect(deprecated, reason = "the bound of all memtables together has no other name")]
    pub(crate) fn open(&self, name: &str) -> Result<(Database, Keyspace)> {
        let failed = |e| self.error(e);
        let database = Database::builder(&self.directory)
            .cache_size(CACHE)
            .worker_threads(2)
            .manual_journal_persist(true)
            .max_journaling_size(JOURNALS)
            .max_write_buffer_size(Some(MEMTABLES))
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let keyspace = database.keyspace(name, options).map_err(failed)?;
        Ok((database, keyspace))
    }

    pub(crate) fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!("{self} is damaged: {why}; {}", self.remedy))
    }

    pub(crate) fn error(&self, error: fjall::Error) -> Error {
        let io = match &error {
            fjall::Error::Io(io) | fjall::Error::Storage(LsmError::Io(io)) => Some(io.kind()),
            _ => None,
        };
        use io::ErrorKind::{AlreadyExists, InvalidData, NotFound, UnexpectedEof};
        match (&error, io) {
            (_, Some(kind)) if lacks_room(kind) => {
                Error::unavailable(format!("there is no room for {self}; free space on its disk, then start again"))
                    .with_source(error)
            }
            // Which one is missing decides what is found in its place.
            (_, Some(UnexpectedEof | InvalidData | NotFound | AlreadyExists)) => {
                self.damaged("a file of it is missing or ends early").with_source(error)
            }
            (_, Some(_)) | (fjall::Error::Poisoned, _) => {
                Error::unavailable(format!("{self} cannot be used, because its disk failed; start again"))
                    .with_source(error)
            }
            (fjall::Error::Locked, _) => {
                Error::refused(format!("{self} is in use by another process; stop it, or name another data directory"))
            }
            _ => self.damaged("what it holds is not what was written there").with_source(error),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.what, self.directory.display(), self.whose)
    }
}
