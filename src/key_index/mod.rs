//! Where the row of each key stands in a table that is the view itself, and what the row hashes to.
//!
//! ```text
//!   0 "identity"       whose index it is: format, load, key, seed
//!   0 "tally"          the rows, the sum of their hashes, the numbers of the next file and row
//!   1 number           a data file: its path, its deletion vector, the numbers of all of its rows
//!   2 hash of a key    the row's number, its hash, a checksum
//! ```
//!
//! A row keeps its number when its file is joined with others: only what is said of files changes then.
//!
//! It is a cache of what the table's files say. An edit is applied as a whole and is not synced: after a crash the index is of
//! some earlier version of the table, whose files it names, so that what differs can be read again. Nothing of it is ever
//! believed over the table: the rows and the sum of their hashes have to be those of the last commit.

mod filling;
mod hash;
mod runs;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use twox_hash::{XxHash3_64, XxHash3_128};

pub(crate) use self::filling::Filling;
pub(crate) use self::hash::KeyHash;
pub(crate) use self::runs::{RowRuns, chunk_of};
use self::store::{Store, Write};
use crate::digest::Digest;
use crate::embedded::{self, Place};
use crate::error::{Error, Result};

/// Which form an index has; another one is made anew.
const FORMAT: u32 = 1;
const IDENTITY: &[u8] = b"\0identity";
const TALLY: &[u8] = b"\0tally";
const FILE: u8 = 1;
const KEY: u8 = 2;
const REMEDY: &str = "it is made again from the table";

/// What is known of the row of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// Its number in the index.
    pub(crate) row: u64,
    /// Its digest.
    pub(crate) digest: Digest,
}

/// A data file whose rows are in the index.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexedFile {
    /// The path as the log spells it.
    pub(crate) path: String,
    /// The deletion vector's unique id.
    pub(crate) vector: Option<String>,
    /// All of its rows, the deleted ones included.
    pub(crate) rows: RowRuns,
}

/// What all rows of an index come to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// How many there are.
    pub(crate) rows: u64,
    /// Their digest.
    pub(crate) digest: Digest,
    /// The number of the file that is next.
    pub(crate) next_file: u32,
    /// The number of the row that is next.
    pub(crate) next_row: u64,
}

/// What changes at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Edit {
    /// Rows that a key has from here on.
    pub(crate) put: Vec<(KeyHash, Known)>,
    /// Keys that have no row any more.
    pub(crate) removed: Vec<KeyHash>,
    /// Files that are known from here on, or no more.
    pub(crate) files: Vec<(u32, Option<IndexedFile>)>,
    /// What all rows come to afterwards.
    pub(crate) tally: Tally,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    /// The id of the reload that the rows began with.
    load: String,
    key: Vec<String>,
    /// What keys are hashed with.
    seed: u64,
}

/// An index of the rows of one generation of a table.
pub(crate) struct KeyIndex {
    store: Store,
    seed: u64,
    key: Vec<String>,
    tally: Tally,
}

impl KeyIndex {
    /// Opens the index below `home` of the rows that began with the reload `load`, or begins an empty one; in memory where
    /// there is no home. Those of other loads stay where they are.
    ///
    /// Refused: another process has it. Corrupt: it is damaged; [`KeyIndex::remove`] makes room for another.
    pub(crate) fn open(home: Option<&Path>, load: &str, key: &[String], seed: u64, whose: &str) -> Result<Self> {
        let store = match home {
            None => Store::Memory(BTreeMap::new()),
            Some(home) => Store::open(Place::new(&directory(home, load), "the key index", whose, REMEDY))?,
        };
        let damaged = |what: &str| {
            Error::corrupt(format!("the key index of {whose} is damaged: its {what} does not decode; {REMEDY}"))
        };
        let own = Identity { format: FORMAT, load: load.to_owned(), key: key.to_vec(), seed };
        let found = store.get(IDENTITY)?;
        let mut index = Self { store, seed, key: key.to_vec(), tally: Tally::default() };
        let Some(found) = found else {
            let bytes = encoded(&own)?;
            index.store.write([(IDENTITY.to_vec(), Some(bytes)), (TALLY.to_vec(), Some(encoded(&index.tally)?))])?;
            return Ok(index);
        };
        let found: Identity = serde_json::from_slice(&found).map_err(|e| damaged("identity").with_source(e))?;
        index.seed = found.seed;
        if found != (Identity { seed: found.seed, ..own }) {
            return Err(Error::corrupt(format!(
                "the key index of {whose} is another one, of the load {}; {REMEDY}",
                found.load
            )));
        }
        let tally = index.store.get(TALLY)?.ok_or_else(|| damaged("tally"))?;
        index.tally = serde_json::from_slice(&tally).map_err(|e| damaged("tally").with_source(e))?;
        Ok(index)
    }

    /// Removes the index of `load` below `home`, which nobody has open.
    pub(crate) fn remove(home: &Path, load: &str) -> Result<()> {
        let directory = directory(home, load);
        embedded::remove(&directory).map_err(|e| irremovable(&directory, e))
    }

    /// Removes all below `home` but the index of `load`.
    pub(crate) fn keep_only(home: &Path, load: &str) -> Result<()> {
        let kept = directory(home, load);
        let entries = match std::fs::read_dir(home) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| irremovable(home, e))?,
        };
        for entry in entries {
            let path = entry.map_err(|e| irremovable(home, e))?.path();
            if path != kept {
                embedded::remove(&path).map_err(|e| irremovable(&path, e))?;
            }
        }
        Ok(())
    }

    /// Whether what is asked of it takes no time.
    pub(crate) fn is_in_memory(&self) -> bool {
        matches!(self.store, Store::Memory(_))
    }

    /// What all rows come to.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// The files whose rows are in it, by their numbers.
    pub(crate) fn files(&self) -> Result<BTreeMap<u32, IndexedFile>> {
        let mut files = BTreeMap::new();
        self.store.each(FILE, |key, value| {
            let number = key.get(1..).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
            let file = IndexedFile::decode(value);
            let (Some(number), Some(file)) = (number, file) else {
                return Err(Error::corrupt(format!(
                    "the key index is damaged: a file in it does not decode; {REMEDY}"
                )));
            };
            files.insert(number, file);
            Ok(())
        })?;
        Ok(files)
    }

    /// The hash of each row's key, in the rows' order.
    pub(crate) fn hashes(&self, rows: &RecordBatch) -> Result<Vec<KeyHash>> {
        hash::hashes(rows, &self.key, self.seed)
    }

    /// What is known of the row of each key, in the keys' order.
    pub(crate) fn find(&self, keys: &[KeyHash]) -> Result<Vec<Option<Known>>> {
        // Neighbours stand in the same blocks.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by_key(|at| keys.get(*at));
        let mut found = vec![None; keys.len()];
        for at in order {
            if let (Some(key), Some(slot)) = (keys.get(at), found.get_mut(at)) {
                *slot = self.store.get(&row_key(*key))?.map(|value| known(*key, &value)).transpose()?;
            }
        }
        Ok(found)
    }

    /// Applies an edit, all of it or, after a crash, nothing.
    pub(crate) fn apply(&mut self, edit: Edit) -> Result<()> {
        let tally = encoded(&edit.tally)?;
        let mut files = Vec::with_capacity(edit.files.len());
        for (number, file) in &edit.files {
            let key = [&[FILE][..], &number.to_be_bytes()].concat();
            files.push((key, file.as_ref().map(IndexedFile::encode).transpose()?));
        }
        let put = edit.put.iter().map(|(key, known)| (row_key(*key), Some(value(*key, known))));
        let removed = edit.removed.iter().map(|key| (row_key(*key), None));
        let rest: [Write; 1] = [(TALLY.to_vec(), Some(tally))];
        self.store.write(put.chain(removed).chain(files).chain(rest))?;
        self.tally = edit.tally;
        Ok(())
    }

    /// Removes the rows that are not live, and counts what is left.
    pub(crate) fn sweep(&mut self, is_live: impl Fn(u64) -> bool) -> Result<()> {
        let (mut dead, mut tally) = (Vec::new(), Tally { rows: 0, digest: Digest::EMPTY, ..self.tally });
        self.store.each(KEY, |key, value| {
            let hash = key.get(1..).and_then(|bytes| bytes.try_into().ok()).map(u128::from_be_bytes);
            let hash = KeyHash(hash.ok_or_else(damaged)?);
            let known = known(hash, value)?;
            if is_live(known.row) {
                tally.rows += 1;
                tally.digest = tally.digest.plus(known.digest);
            } else {
                dead.push(hash);
            }
            Ok(())
        })?;
        self.apply(Edit { removed: dead, tally, ..Edit::default() })
    }
}

impl IndexedFile {
    /// What is said of the file, a line, then its rows.
    fn encode(&self) -> Result<Vec<u8>> {
        let mut bytes = encoded(&(&self.path, &self.vector))?;
        bytes.push(b'\n');
        bytes.extend(self.rows.encode().map_err(|e| Error::internal("rows were not encoded").with_source(e))?);
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (path, vector) = serde_json::from_slice(bytes.get(..end)?).ok()?;
        Some(Self { path, vector, rows: RowRuns::decode(bytes.get(end + 1..)?)? })
    }
}

impl fmt::Debug for KeyIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyIndex").field("key", &self.key).field("tally", &self.tally).finish_non_exhaustive()
    }
}

fn directory(home: &Path, load: &str) -> PathBuf {
    home.join(format!("{:032x}", XxHash3_128::oneshot(load.as_bytes())))
}

fn irremovable(path: &Path, error: std::io::Error) -> Error {
    let what = format!("the key index {} cannot be removed; remove it by hand", path.display());
    Error::unavailable(what).with_source(error)
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal("a part of a key index was not encoded").with_source(e))
}

fn row_key(key: KeyHash) -> Vec<u8> {
    [&[KEY][..], &key.0.to_be_bytes()].concat()
}

fn value(key: KeyHash, known: &Known) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    bytes.extend(known.row.to_le_bytes());
    bytes.extend(known.digest.as_u128().to_le_bytes());
    bytes.extend(checksum(key, &bytes));
    bytes
}

fn known(key: KeyHash, value: &[u8]) -> Result<Known> {
    let parts = || {
        let (body, sum) = value.split_last_chunk::<4>()?;
        let (row, digest) = body.split_first_chunk::<8>()?;
        let digest = u128::from_le_bytes(digest.try_into().ok()?);
        let known = Known { row: u64::from_le_bytes(*row), digest: Digest::from_u128(digest) };
        (*sum == checksum(key, body)).then_some(known)
    };
    parts().ok_or_else(damaged)
}

fn checksum(key: KeyHash, body: &[u8]) -> [u8; 4] {
    let sum = XxHash3_64::oneshot_with_seed(key.0 as u64, body);
    (sum as u32).to_le_bytes()
}

fn damaged() -> Error {
    Error::corrupt(format!("the key index is damaged: the checksum of a row in it does not hold; {REMEDY}"))
}

#[cfg(test)]
#[path = "key_index_tests.rs"]
mod tests;
