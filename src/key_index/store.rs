//! Where an index keeps its bytes: in memory, or on disk with bounded memory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fjall::{Database, Keyspace};

use crate::embedded::Place;
use crate::error::{Result, panic_text};

/// One change of a store: what stands under a key from here on, nothing for `None`.
pub(super) type Write = (Vec<u8>, Option<Vec<u8>>);

/// Bytes by keys that are bytes.
pub(super) enum Store {
    Memory(BTreeMap<Vec<u8>, Vec<u8>>),
    Disk(Disk),
}

/// A store in a directory of its own.
pub(super) struct Disk {
    database: Database,
    keyspace: Keyspace,
    place: Place,
}

impl Store {
    /// Opens the store in the directory of `place`, or begins an empty one.
    pub(super) fn open(place: Place) -> Result<Self> {
        // What stands in a damaged file is no reason to end the process.
        match catch_unwind(AssertUnwindSafe(|| place.open("keys"))) {
            Ok(opened) => opened.map(|(database, keyspace)| Self::Disk(Disk { database, keyspace, place })),
            Err(panic) => Err(place.damaged(&panic_text(&*panic))),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Memory(entries) => Ok(entries.get(key).cloned()),
            Self::Disk(disk) => {
                let found = disk.keyspace.get(key).map_err(|e| disk.place.error(e))?;
                Ok(found.map(|bytes| bytes.to_vec()))
            }
        }
    }

    /// Writes all of it or, after a crash, none; without a sync.
    pub(super) fn write(&mut self, writes: impl IntoIterator<Item = Write>) -> Result<()> {
        match self {
            Self::Memory(entries) => {
                for (key, value) in writes {
                    match value {
                        Some(value) => _ = entries.insert(key, value),
                        None => _ = entries.remove(&key),
                    }
                }
                Ok(())
            }
            Self::Disk(disk) => {
                let mut batch = disk.database.batch();
                for (key, value) in writes {
                    match value {
                        Some(value) => batch.insert(&disk.keyspace, key, value),
                        None => batch.remove(&disk.keyspace, key),
                    }
                }
                batch.commit().map_err(|e| disk.place.error(e))
            }
        }
    }

    /// Takes entries that none of those that it has shares a key with, in the order of their keys.
    pub(super) fn fill(&mut self, entries: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>) -> Result<()> {
        let mut entries = entries;
        match self {
            Self::Memory(held) => entries.try_for_each(|entry| {
                let (key, value) = entry?;
                held.insert(key, value);
                Ok(())
            }),
            Self::Disk(disk) => {
                let failed = |e| disk.place.error(e);
                let mut ingestion = disk.keyspace.start_ingestion().map_err(failed)?;
                for entry in entries {
                    let (key, value) = entry?;
                    ingestion.write(key, value).map_err(failed)?;
                }
                ingestion.finish().map_err(failed)
            }
        }
    }

    /// Gives every entry whose key begins with `tag` to `take`, in the order of the keys.
    pub(super) fn each(&self, tag: u8, mut take: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        match self {
            Self::Memory(entries) => {
                let found = entries.range(vec![tag]..vec![tag + 1]);
                found.into_iter().try_for_each(|(key, value)| take(key, value))
            }
            Self::Disk(disk) => {
                for guard in disk.keyspace.range([tag]..[tag + 1]) {
                    let (key, value) = guard.into_inner().map_err(|e| disk.place.error(e))?;
                    take(&key, &value)?;
                }
                Ok(())
            }
        }
    }
}
