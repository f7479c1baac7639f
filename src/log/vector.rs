//! Deletion vectors: which rows of a data file are deleted, as the Delta protocol writes them.

use std::collections::BTreeMap;

use bytes::Bytes;
use crc::{CRC_32_ISO_HDLC, Crc};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{LiveFile, Log};
use crate::error::{Error, ErrorKind, Result};
use crate::store::store_error;

/// Places of rows in a data file, counted from 0.
pub type RowSet = RoaringTreemap;

/// Begins the name of a file of vectors, which the protocol gives; an id follows.
pub(super) const VECTOR_PREFIX: &str = "deletion_vector_";
/// A vector of at most so many bytes stands in the log itself.
const MOST_INLINE: usize = 512;
/// How many files are read at once.
const READS_AT_ONCE: usize = 16;
/// The first byte of a file of vectors.
const VERSION: u8 = 1;
const MAGIC: u32 = 1_681_511_377;
/// The characters that stand for a file's id at the end of its place.
const ID_CHARS: usize = 20;

const CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// A deletion vector's descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    storage_type: String,
    path_or_inline_dv: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offset: Option<u32>,
    size_in_bytes: u32,
    cardinality: u64,
}

/// Where a vector's bytes are.
enum Place {
    Inline,
    /// In an object of the table, from a byte on.
    Object(Path, usize),
}

impl Descriptor {
    fn read(file: &LiveFile, vector: &Value) -> Result<Self> {
        serde_json::from_value(vector.clone())
            .map_err(|e| damaged(&file.path, "its descriptor is incomplete").with_source(e))
    }

    fn place(&self, file: &str) -> Result<Place> {
        match self.storage_type.as_str() {
            "i" => Ok(Place::Inline),
            "u" => {
                let object = object(&self.path_or_inline_dv).ok_or_else(|| damaged(file, "it names no file"))?;
                Ok(Place::Object(object, self.offset.unwrap_or(1) as usize))
            }
            other => Err(Error::incompatible(format!(
                "the deletion vector of the data file {file} is stored as {other:?}, outside of the table's folder, which is not read here; rewrite such files (REORG TABLE … APPLY (PURGE))"
            ))),
        }
    }

    /// The rows that `framed` says are deleted: its bytes from the magic number on, without length and checksum.
    fn rows(&self, framed: &[u8], file: &str) -> Result<RowSet> {
        let (magic, bitmap) = framed.split_first_chunk::<4>().ok_or_else(|| damaged(file, "it ends early"))?;
        if u32::from_le_bytes(*magic) != MAGIC {
            return Err(damaged(file, "it has another format"));
        }
        let rows = RowSet::deserialize_from(bitmap).map_err(|e| damaged(file, "it does not decode").with_source(e))?;
        if rows.len() != self.cardinality {
            return Err(damaged(file, &format!("it has {} rows, the log says {}", rows.len(), self.cardinality)));
        }
        Ok(rows)
    }

    fn inline(&self, file: &str) -> Result<RowSet> {
        let bytes =
            z85::decode(&self.path_or_inline_dv).map_err(|e| damaged(file, "it does not decode").with_source(e))?;
        let framed = bytes.get(..self.size_in_bytes as usize).ok_or_else(|| damaged(file, "it ends early"))?;
        self.rows(framed, file)
    }

    /// The rows of the vector that begins at `offset` of `object`.
    fn stored(&self, object: &Bytes, offset: usize, file: &str) -> Result<RowSet> {
        let early = || damaged(file, "its file ends early");
        let word = |at: usize| object.get(at..)?.first_chunk::<4>().copied().map(u32::from_be_bytes);
        if object.first() != Some(&VERSION) {
            return Err(damaged(file, "its file has another format"));
        }
        if word(offset).ok_or_else(early)? != self.size_in_bytes {
            return Err(damaged(file, "its file gives it another length than the log"));
        }
        let end = offset + 4 + self.size_in_bytes as usize;
        let framed = object.get(offset + 4..end).ok_or_else(early)?;
        if word(end).ok_or_else(early)? != CHECKSUM.checksum(framed) {
            return Err(damaged(file, "its checksum does not hold"));
        }
        self.rows(framed, file)
    }
}

/// The object that a descriptor of the type `u` names: a folder, where there is one, then an id.
pub(super) fn object(place: &str) -> Option<Path> {
    let (folder, id) = place.split_at_checked(place.len().checked_sub(ID_CHARS)?)?;
    let id = Uuid::from_slice(&z85::decode(id).ok()?).ok()?;
    let name = name(&id);
    let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
    Path::parse(path).ok()
}

/// The object at the table's root that a descriptor of the type `p` may name: how its URI begins is spelled in many ways, and
/// no other file has its name.
pub(super) fn object_at(uri: &str) -> Option<Path> {
    let name = uri.rsplit('/').next().filter(|name| name.starts_with(VECTOR_PREFIX))?;
    Path::parse(name).ok()
}

fn name(id: &Uuid) -> String {
    format!("{VECTOR_PREFIX}{id}.bin")
}

fn damaged(file: &str, why: &str) -> Error {
    Error::corrupt(format!("the deletion vector of the data file {file} is damaged: {why}"))
}

impl Log {
    /// The objects that hold the vectors of `files`.
    pub fn vector_objects(&self, files: &[LiveFile]) -> Result<Vec<Path>> {
        let vectors = files.iter().filter_map(|file| Some((file, file.vector.as_ref()?)));
        let places = vectors.map(|(file, vector)| Descriptor::read(file, vector)?.place(&file.path));
        let objects = places.filter_map(|place| match place {
            Ok(Place::Object(path, _)) => Some(Ok(path)),
            Ok(Place::Inline) => None,
            Err(e) => Some(Err(e)),
        });
        objects.collect()
    }

    /// The deleted rows of each file of `files`.
    ///
    /// Corrupt: a vector that is missing or damaged. Incompatible: one outside of the table's folder.
    pub async fn deleted_rows(&self, files: &[LiveFile]) -> Result<Vec<RowSet>> {
        self.each_deleted_rows(files).await?.into_iter().collect()
    }

    /// The same, file by file: a vector that is missing, damaged or elsewhere says nothing of the others.
    ///
    /// Unavailable, or refused: the storage cannot be read.
    pub(crate) async fn each_deleted_rows(&self, files: &[LiveFile]) -> Result<Vec<Result<RowSet>>> {
        let mut found: BTreeMap<usize, Result<RowSet>> = BTreeMap::new();
        let mut stored: BTreeMap<Path, Vec<(usize, usize, Descriptor)>> = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            let Some(vector) = &file.vector else { continue };
            let placed = Descriptor::read(file, vector).and_then(|found| Ok((found.place(&file.path)?, found)));
            match placed {
                Ok((Place::Inline, descriptor)) => _ = found.insert(at, descriptor.inline(&file.path)),
                Ok((Place::Object(object, offset), descriptor)) => {
                    stored.entry(object).or_default().push((at, offset, descriptor));
                }
                Err(e) => _ = found.insert(at, Err(e)),
            }
        }
        let read = stream::iter(stored).map(|(object, vectors)| async move {
            match self.bytes_of(&object).await {
                Ok(bytes) => Ok((object, Some(bytes), vectors)),
                Err(e) if e.kind() == ErrorKind::Corrupt => Ok((object, None, vectors)),
                Err(e) => Err(e),
            }
        });
        let mut read = read.buffered(READS_AT_ONCE);
        while let Some((object, bytes, vectors)) = read.try_next().await? {
            for (at, offset, descriptor) in vectors {
                let path = files.get(at).map_or("", |file| file.path.as_str());
                let rows = match &bytes {
                    Some(bytes) => descriptor.stored(bytes, offset, &format!("{path}, in {object},")),
                    None => Err(Error::corrupt(format!(
                        "{object} is gone, which holds the deletion vector of the data file {path}"
                    ))),
                };
                found.insert(at, rows);
            }
        }
        let deleted = files.iter().enumerate().map(|(at, file)| match found.remove(&at) {
            Some(rows) => within(file, rows?),
            None => Ok(RowSet::new()),
        });
        Ok(deleted.collect())
    }
}

/// The deleted rows of a file, where it has as many.
fn within(file: &LiveFile, deleted: RowSet) -> Result<RowSet> {
    let all = file.rows.map(|left| left + deleted.len());
    match (all, deleted.max()) {
        (Some(all), Some(last)) if last >= all => Err(damaged(&file.path, &format!("it deletes row {last} of {all}"))),
        _ => Ok(deleted),
    }
}

/// Deletion vectors on their way to the log: short ones stand in it, all others in one file beside it.
#[derive(Debug)]
pub(crate) struct Vectors {
    id: Uuid,
    file: Vec<u8>,
}

impl Vectors {
    /// Whose file, where there will be one, has the name `id`.
    pub(crate) fn new(id: &str) -> Result<Self> {
        let id = Uuid::parse_str(id).map_err(|e| Error::internal("an id is no UUID").with_source(e))?;
        Ok(Self { id, file: Vec::new() })
    }

    /// The descriptor of a vector that deletes `rows`.
    pub(crate) fn add(&mut self, rows: &RowSet) -> Result<Value> {
        let broken = |e| Error::internal("a deletion vector was not encoded").with_source(e);
        let mut framed = MAGIC.to_le_bytes().to_vec();
        rows.serialize_into(&mut framed).map_err(broken)?;
        let size = u32::try_from(framed.len()).ok().filter(|size| *size <= i32::MAX as u32);
        let size_in_bytes = size.ok_or_else(|| Error::internal("a deletion vector is too large"))?;
        let mut descriptor = Descriptor {
            storage_type: "i".into(),
            path_or_inline_dv: String::new(),
            offset: None,
            size_in_bytes,
            cardinality: rows.len(),
        };
        if framed.len() <= MOST_INLINE {
            framed.resize(framed.len().next_multiple_of(4), 0);
            descriptor.path_or_inline_dv = z85::encode(&framed);
        } else {
            if self.file.is_empty() {
                self.file.push(VERSION);
            }
            let offset = u32::try_from(self.file.len()).ok().filter(|offset| *offset <= i32::MAX as u32);
            let offset = offset.ok_or_else(|| Error::internal("the deletion vectors of a commit are too large"))?;
            self.file.extend(size_in_bytes.to_be_bytes());
            self.file.extend(&framed);
            self.file.extend(CHECKSUM.checksum(&framed).to_be_bytes());
            descriptor.storage_type = "u".into();
            descriptor.path_or_inline_dv = z85::encode(self.id.as_bytes());
            descriptor.offset = Some(offset);
        }
        serde_json::to_value(descriptor).map_err(|e| Error::internal("a descriptor was not encoded").with_source(e))
    }

    /// Puts the file that the descriptors name, where they name one.
    pub(crate) async fn put(self, log: &Log) -> Result<()> {
        if self.file.is_empty() {
            return Ok(());
        }
        let path = Path::from(name(&self.id));
        let put = log.store().put(&path, PutPayload::from(self.file)).await;
        put.map(|_| ()).map_err(|e| store_error(format!("the deletion vectors {path} cannot be written"), e))
    }
}

#[cfg(test)]
#[path = "vector_tests.rs"]
mod tests;
