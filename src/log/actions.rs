//! The actions of checkpoints and entries as they stand, read without the kernel that writes the checkpoints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::schema::types::SchemaDescriptor;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use twox_hash::{XxHash3_64, XxHash3_128};

use super::entry::{Metadata, Protocol, TxnAction, vector_id};
use super::names::CheckpointFile;
use super::read::READS_AT_ONCE;
use super::{LOG_DIR, Log, SIDECARS, vector};
use crate::error::{Error, Result};
use crate::store::store_error;

/// Few, so that whoever shares the thread does not wait long for a batch.
const BATCH_ROWS: usize = 256;
/// What is fetched of a file's end at once, in the hope that it holds the footer.
const FOOTER_BYTES: usize = 64 << 10;
/// What of a checkpoint repeats other columns of it.
const REPEATED: [&str; 2] = ["stats_parsed", "partitionValues_parsed"];

/// One action.
#[derive(Debug)]
pub(super) enum Action {
    Add(FileAction),
    Remove(FileAction),
    Txn(TxnAction),
    Metadata(Box<Metadata>),
    Protocol(Protocol),
    Domain(Domain),
    /// The name of a file with more actions of the checkpoint.
    Sidecar(String),
}

/// What an `add` or `remove` says of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileAction {
    pub(super) path: String,
    #[serde(default)]
    partition_values: Option<BTreeMap<String, Option<String>>>,
    size: Option<i64>,
    modification_time: Option<i64>,
    #[serde(default)]
    tags: Option<BTreeMap<String, Option<String>>>,
    deletion_vector: Option<Vector>,
    base_row_id: Option<i64>,
    default_row_commit_version: Option<i64>,
    clustering_provider: Option<String>,
    #[serde(skip_serializing)]
    stats: Option<String>,
    /// In milliseconds since 1970 UTC.
    #[serde(skip_serializing)]
    pub(super) deletion_timestamp: Option<i64>,
}

/// A deletion vector's descriptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    storage_type: String,
    path_or_inline_dv: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<i64>,
    size_in_bytes: Option<i64>,
    cardinality: Option<i64>,
}

/// A `domainMetadata` action.
#[derive(Debug, Deserialize)]
pub(super) struct Domain {
    pub(super) domain: String,
    #[serde(default)]
    pub(super) configuration: String,
    #[serde(default)]
    pub(super) removed: bool,
}

impl FileAction {
    /// What tells it from other files: its path and deletion vector.
    pub(super) fn key(&self) -> Result<u128> {
        let vector = self.deletion_vector.as_ref().map(serde_json::to_value).transpose().map_err(unencoded)?;
        let vector = vector.as_ref().and_then(vector_id).unwrap_or_default();
        Ok(XxHash3_128::oneshot(format!("{}\0{vector}", self.path).as_bytes()))
    }

    /// The object that holds its deletion vector, where one of the table's does, or may.
    pub(super) fn vector_object(&self) -> Option<Path> {
        let vector = self.deletion_vector.as_ref()?;
        match vector.storage_type.as_str() {
            "u" => vector::object(&vector.path_or_inline_dv),
            "p" => vector::object_at(&vector.path_or_inline_dv),
            _ => None,
        }
    }

    /// A hash of everything that describes the file but its statistics.
    pub(super) fn content(&self) -> Result<u64> {
        let mut plain = self.clone();
        // None and nothing mean the same, and checkpoints make one of the other.
        plain.tags = plain.tags.filter(|tags| !tags.is_empty());
        plain.partition_values = plain.partition_values.filter(|values| !values.is_empty());
        Ok(XxHash3_64::oneshot(&serde_json::to_vec(&plain).map_err(unencoded)?))
    }

    /// A hash of the statistics.
    pub(super) fn stats(&self) -> Option<u64> {
        self.stats.as_ref().map(|stats| XxHash3_64::oneshot(stats.as_bytes()))
    }
}

fn unencoded(error: serde_json::Error) -> Error {
    Error::internal("an action was not encoded").with_source(error)
}

/// What the action `name` says; `None` for one that no state holds.
fn action(name: &str, value: &str) -> Result<Option<Action>> {
    fn read<'a, T: Deserialize<'a>>(name: &str, value: &'a str) -> Result<T> {
        let broken = |e| Error::corrupt(format!("an action {name} cannot be understood")).with_source(e);
        serde_json::from_str(value).map_err(broken)
    }
    Ok(Some(match name {
        "add" => Action::Add(read(name, value)?),
        "remove" => Action::Remove(read(name, value)?),
        "txn" => Action::Txn(read(name, value)?),
        "metaData" => Action::Metadata(read(name, value)?),
        "protocol" => Action::Protocol(read(name, value)?),
        "domainMetadata" => Action::Domain(read(name, value)?),
        "sidecar" => {
            #[derive(Deserialize)]
            struct Sidecar {
                path: String,
            }
            Action::Sidecar(read::<Sidecar>(name, value)?.path)
        }
        _ => return Ok(None),
    }))
}

/// The actions of JSON lines, in order.
pub(super) fn lines(bytes: &[u8]) -> Result<Vec<Action>> {
    let (mut actions, mut is_empty) = (Vec::new(), true);
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let broken = |e| Error::corrupt("a line is no JSON").with_source(e);
        let found: BTreeMap<String, &RawValue> = serde_json::from_slice(line).map_err(broken)?;
        is_empty = false;
        for (name, value) in found {
            actions.extend(action(&name, value.get())?);
        }
    }
    if is_empty {
        return Err(Error::corrupt("there is nothing in it"));
    }
    Ok(actions)
}

impl Log {
    /// Gives the actions of each of `versions` to `take`, entry by entry in that order.
    ///
    /// Corrupt: an entry that is missing or damaged.
    pub(super) async fn entry_actions(
        &self,
        versions: impl Iterator<Item = u64>,
        mut take: impl FnMut(u64, Vec<Action>) -> Result<()>,
    ) -> Result<()> {
        let read = stream::iter(versions).map(|version| async move { (version, self.read(version).await) });
        let mut read = std::pin::pin!(read.buffered(READS_AT_ONCE));
        while let Some((version, bytes)) = read.next().await {
            let missing = || Error::corrupt(format!("the log entry of version {version} is missing"));
            let broken = |e| Error::corrupt(format!("the log entry of version {version} is damaged")).with_source(e);
            let actions = lines(&bytes?.ok_or_else(missing)?).map_err(broken)?;
            take(version, actions)?;
        }
        Ok(())
    }

    /// Gives every action of a checkpoint to `take`, those in its sidecars too.
    ///
    /// Corrupt: a file that is missing or damaged.
    pub(super) async fn checkpoint_actions(
        &self,
        files: &[CheckpointFile],
        mut take: impl FnMut(Action) -> Result<()>,
    ) -> Result<()> {
        let mut sidecars = Vec::new();
        for file in files {
            let take = |action| match action {
                Action::Sidecar(path) => {
                    sidecars.push(path);
                    Ok(())
                }
                other => take(other),
            };
            self.file_actions(&Path::from_iter([LOG_DIR, &file.name]), take).await?;
        }
        for name in sidecars {
            // Others write a sidecar's path as a name, or as a URL whose last part it is.
            let name = name.rsplit('/').next().unwrap_or(&name).to_string();
            self.file_actions(&Path::from_iter([LOG_DIR, SIDECARS, &name]), &mut take).await?;
        }
        Ok(())
    }

    async fn file_actions(&self, path: &Path, take: impl FnMut(Action) -> Result<()>) -> Result<()> {
        // A decoder that panics met bytes that no writer leaves.
        let read = AssertUnwindSafe(self.decoded_actions(path, take)).catch_unwind().await;
        read.unwrap_or_else(|_| Err(Error::corrupt(format!("the checkpoint file {path} cannot be decoded"))))
    }

    async fn decoded_actions(&self, path: &Path, mut take: impl FnMut(Action) -> Result<()>) -> Result<()> {
        let failed = |e| store_error(format!("the checkpoint file {path} cannot be read"), e);
        if path.as_ref().ends_with(".json") {
            let bytes = self.store().get(path).await.map_err(failed)?.bytes().await.map_err(failed)?;
            return lines(&bytes)?.into_iter().try_for_each(take);
        }
        let broken = |e| match e {
            ParquetError::External(source) => match source.downcast::<StoreError>() {
                Ok(e) => failed(*e),
                Err(e) => damaged(path).with_source(e),
            },
            e => damaged(path).with_source(e),
        };
        let size = self.store().head(path).await.map_err(failed)?.size;
        let reader = Object { store: Arc::clone(self.store()), path: path.clone(), size };
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await.map_err(broken)?;
        let mask = wanted_columns(builder.parquet_schema());
        let rows = builder.with_projection(mask).with_batch_size(BATCH_ROWS).build().map_err(broken)?;
        let mut rows = std::pin::pin!(rows);
        while let Some(batch) = rows.try_next().await.map_err(broken)? {
            batch_actions(&batch, &mut take)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

fn damaged(path: &Path) -> Error {
    Error::corrupt(format!("the checkpoint file {path} is damaged"))
}

/// A file of the log for the Parquet reader.
struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    size: u64,
}

impl AsyncFileReader for Object {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        async move {
            let wanted = range.end.saturating_sub(range.start);
            let read = self.store.get_range(&self.path, range).await;
            let read = read.map_err(|e| ParquetError::External(Box::new(e)))?;
            let is_whole = read.len() as u64 == wanted;
            is_whole.then_some(read).ok_or_else(|| ParquetError::EOF("less was read than was asked for".into()))
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        async move {
            let size = self.size;
            let reader = ParquetMetaDataReader::new().with_prefetch_hint(Some(FOOTER_BYTES));
            reader.load_and_finish(&mut *self, size).await.map(Arc::new)
        }
        .boxed()
    }
}

/// Every column but those that repeat others.
fn wanted_columns(schema: &SchemaDescriptor) -> ProjectionMask {
    let is_wanted = |leaf: &usize| {
        let column = schema.column(*leaf);
        !column.path().parts().get(1).is_some_and(|part| REPEATED.contains(&part.as_str()))
    };
    ProjectionMask::leaves(schema, (0..schema.num_columns()).filter(is_wanted))
}

fn batch_actions(batch: &RecordBatch, take: &mut impl FnMut(Action) -> Result<()>) -> Result<()> {
    let schema = batch.schema();
    let columns: Vec<(&str, &ArrayRef)> =
        schema.fields().iter().map(|f| f.name().as_str()).zip(batch.columns()).collect();
    for row in 0..batch.num_rows() {
        for (name, column) in columns.iter().filter(|(_, column)| column.is_valid(row)) {
            if let Some(action) = action(name, &value(column, row).to_string())? {
                take(action)?;
            }
        }
    }
    Ok(())
}

/// A cell as the JSON of an entry has it: without what is null, but for the values of maps.
fn value(array: &ArrayRef, row: usize) -> Value {
    if !array.is_valid(row) {
        return Value::Null;
    }
    let cell = match array.data_type() {
        DataType::Utf8 => array.as_string_opt::<i32>().map(|a| a.value(row).into()),
        DataType::Boolean => array.as_boolean_opt().map(|a| a.value(row).into()),
        DataType::Int32 => array.as_primitive_opt::<Int32Type>().map(|a| a.value(row).into()),
        DataType::Int64 => array.as_primitive_opt::<Int64Type>().map(|a| a.value(row).into()),
        DataType::Struct(fields) => array.as_struct_opt().map(|a| {
            let members = fields.iter().zip(a.columns()).filter(|(_, column)| column.is_valid(row));
            members.map(|(field, column)| (field.name().clone(), value(column, row))).collect::<Map<_, _>>().into()
        }),
        DataType::List(_) => array.as_list_opt::<i32>().map(|a| {
            let items = a.value(row);
            (0..items.len()).map(|i| value(&items, i)).collect::<Vec<_>>().into()
        }),
        DataType::Map(_, _) => array.as_map_opt().and_then(|a| {
            let entries = a.value(row);
            let (keys, values) = (entries.column(0).as_string_opt::<i32>()?, entries.column(1));
            let pair = |i: usize| (keys.value(i).to_string(), value(values, i));
            Some((0..entries.len()).map(pair).collect::<Map<_, _>>().into())
        }),
        _ => None,
    };
    cell.unwrap_or(Value::Null)
}
