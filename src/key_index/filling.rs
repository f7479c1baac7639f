//! All rows of a table on their way into an index that knows nothing.
//!
//! ```text
//!   rows ─► in memory, sorted when there are many ─► parts on disk, by the first byte of the key's hash
//!                                                        └─► each is sorted ─► the store takes all of them in their order
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::{KeyHash, KeyIndex, Known, Tally, known, row_key, value};
use crate::digest::Digest;
use crate::disk::lacks_room;
use crate::embedded;
use crate::error::{Error, ErrorKind, Result};

/// The directory of the parts, beside the index.
const FOLDER: &str = "filling";
/// How many rows are held in memory, of 48 bytes each.
const MOST_HELD: usize = 1 << 20;
const PARTS: usize = 256;
/// A row in a part: the hash of its key, and what the store keeps of it.
const RECORD: usize = 16 + VALUE;
const VALUE: usize = 28;

/// The rows so far, and where those are that do not fit into memory.
#[derive(Debug)]
pub(crate) struct Filling {
    held: Vec<(KeyHash, Known)>,
    most_held: usize,
    directory: PathBuf,
    parts: Vec<File>,
}

/// What the rows of a filled index come to.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    rows: u64,
    digest: Digest,
}

impl Filling {
    /// No rows yet; `home` is the directory of the index, which holds the parts until they are in it.
    pub(crate) fn new(home: Option<&Path>) -> Result<Self> {
        let most_held = if home.is_some() { MOST_HELD } else { usize::MAX };
        let directory = home.map(|home| home.join(FOLDER)).unwrap_or_default();
        let filling = Self { held: Vec::new(), most_held, directory, parts: Vec::new() };
        filling.clear()?;
        Ok(filling)
    }

    /// Adds rows, in any order.
    pub(crate) fn add(&mut self, rows: Vec<(KeyHash, Known)>) -> Result<()> {
        self.held.extend(rows);
        if self.held.len() >= self.most_held { self.spill().map_err(|e| self.failed(e)) } else { Ok(()) }
    }

    /// Gives `index` one row for each key, whose tally tells how many there are; more rows of a key are left out. The numbers are
    /// those of the file and the row that are next.
    pub(crate) fn finish(mut self, index: &mut KeyIndex, next_file: u32, next_row: u64) -> Result<()> {
        let mut sum = Sum::default();
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            let mut rows = std::mem::take(&mut self.held);
            rows.sort_unstable_by_key(|(key, _)| *key);
            index.store.fill(unique(rows, &mut sum).map(Ok))?;
        } else {
            self.spill_to(&parts).map_err(|e| self.failed(e))?;
            let read = parts.into_iter().flat_map(|part| match sorted(part).map_err(|e| self.failed(e)).flatten() {
                Ok(rows) => unique(rows, &mut sum).map(Ok).collect(),
                Err(error) => vec![Err(error)],
            });
            index.store.fill(read)?;
            self.clear()?;
        }
        index.tally = Tally { rows: sum.rows, digest: sum.digest, next_file, next_row };
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.parts.is_empty() {
            std::fs::create_dir_all(&self.directory)?;
            let part = |number| {
                let path = self.directory.join(format!("{number:03}"));
                File::options().read(true).write(true).create_new(true).open(path)
            };
            self.parts = (0..PARTS).map(part).collect::<io::Result<_>>()?;
        }
        let parts = std::mem::take(&mut self.parts);
        let spilled = self.spill_to(&parts);
        self.parts = parts;
        spilled
    }

    fn spill_to(&mut self, parts: &[File]) -> io::Result<()> {
        self.held.sort_unstable_by_key(|(key, _)| *key);
        let mut bytes = Vec::new();
        for rows in self.held.chunk_by(|(a, _), (b, _)| part_of(*a) == part_of(*b)) {
            bytes.clear();
            for (key, known) in rows {
                bytes.extend(key.0.to_be_bytes());
                bytes.extend(value(*key, known));
            }
            let part = rows.first().and_then(|(key, _)| parts.get(part_of(*key)));
            let mut part = part.ok_or_else(|| io::Error::other("a hash belongs to no part"))?;
            part.write_all(&bytes)?;
        }
        self.held.clear();
        Ok(())
    }

    /// Removes what an earlier one left.
    fn clear(&self) -> Result<()> {
        if self.directory.as_os_str().is_empty() {
            return Ok(());
        }
        embedded::remove(&self.directory).map_err(|e| self.failed(e))
    }

    fn failed(&self, error: io::Error) -> Error {
        let remedy = if lacks_room(error.kind()) { "free space on its disk" } else { "see that it can be written to" };
        let what = format!("rows cannot be sorted for the key index in {}; {remedy}", self.directory.display());
        Error::new(ErrorKind::Unavailable, what).with_source(error)
    }
}

fn part_of(key: KeyHash) -> usize {
    usize::from(key.0.to_be_bytes()[0])
}

/// The rows of a part in the order of their keys.
fn sorted(mut part: File) -> io::Result<Result<Vec<(KeyHash, Known)>>> {
    let mut bytes = Vec::new();
    part.rewind()?;
    part.read_to_end(&mut bytes)?;
    let record = |record: &[u8; RECORD]| {
        let (key, value) = record.split_first_chunk::<16>().ok_or_else(super::damaged)?;
        let key = KeyHash(u128::from_be_bytes(*key));
        Ok((key, known(key, value)?))
    };
    let (records, _) = bytes.as_chunks::<RECORD>();
    let rows: Result<Vec<_>> = records.iter().map(record).collect();
    Ok(rows.map(|mut rows| {
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }))
}

/// What the store keeps of sorted rows, the first of each key.
fn unique(rows: Vec<(KeyHash, Known)>, sum: &mut Sum) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    let mut last = None;
    rows.into_iter().filter_map(move |(key, known)| {
        if last.replace(key) == Some(key) {
            return None;
        }
        *sum = Sum { rows: sum.rows + 1, digest: sum.digest.plus(known.digest) };
        Some((row_key(key), value(key, &known)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(home: Option<&Path>) -> KeyIndex {
        KeyIndex::open(home, "load", &["id".to_string()], 7, "p/v/c").unwrap()
    }

    fn row(number: u64) -> (KeyHash, Known) {
        let key = KeyHash(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        (key, Known { row: number, digest: Digest::from_u128(u128::from(number) << 70 | 1) })
    }

    #[test]
    fn an_index_has_the_rows_that_it_was_filled_with_whether_or_not_they_fit_into_memory() {
        const MANY: u64 = 10_000;
        for (on_disk, most_held) in [(false, usize::MAX), (true, MOST_HELD), (true, 700)] {
            let home = tempfile::tempdir().unwrap();
            let place = on_disk.then(|| home.path());
            let mut index = index(place);
            let mut filling = Filling { most_held, ..Filling::new(place).unwrap() };
            for from in (0..MANY).step_by(300) {
                filling.add((from..MANY.min(from + 300)).map(row).collect()).unwrap();
            }
            // A key that stands in the table twice is one key.
            filling.add(vec![(row(5).0, row(77).1)]).unwrap();
            filling.finish(&mut index, 3, MANY).unwrap();
            let tally = index.tally();
            assert_eq!((tally.rows, tally.next_file, tally.next_row), (MANY, 3, MANY), "{on_disk} {most_held}");
            let keys: Vec<KeyHash> = (0..MANY).map(|number| row(number).0).collect();
            let found = index.find(&keys).unwrap();
            for (number, found) in (0..).zip(&found).filter(|(number, _)| *number != 5) {
                assert_eq!(*found, Some(row(number).1), "{on_disk} {most_held}");
            }
            assert!([row(5).1, row(77).1].map(Some).contains(&found[5]), "{:?}", found[5]);
            assert_eq!(index.find(&[row(MANY).0]).unwrap(), [None]);
            assert!(!home.path().join(FOLDER).exists());
        }
    }

    #[test]
    fn rows_that_another_left_are_none_of_the_next_one() {
        let home = tempfile::tempdir().unwrap();
        let mut left = Filling { most_held: 10, ..Filling::new(Some(home.path())).unwrap() };
        left.add((0..50).map(row).collect()).unwrap();
        drop(left);
        let mut index = index(Some(home.path()));
        let mut filling = Filling { most_held: 10, ..Filling::new(Some(home.path())).unwrap() };
        filling.add((100..150).map(row).collect()).unwrap();
        filling.finish(&mut index, 1, 150).unwrap();
        assert_eq!(index.tally().rows, 50);
        assert_eq!(index.find(&[row(7).0]).unwrap(), [None]);
    }
}
