//! What a reader begins with: `_last_checkpoint`, and the files of checkpoints, looked at without a replay.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use serde_json::Value;

use super::names::{CheckpointFile, LogName};
use super::{LOG_DIR, Listing, Log};
use crate::error::{Error, Result};
use crate::store::store_error;

/// The name of the hint in the log's folder.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";
/// What is read of a checkpoint's end at once, in the hope that it holds the footer.
const FOOTER_BYTES: u64 = 64 << 10;

/// What is wrong with the hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintFault {
    /// The version that it names; 0 where it names none.
    pub version: u64,
    /// What it says, and what is there.
    pub message: String,
    /// Whether it leads readers to what is not there; else it only counts wrong.
    pub misleads: bool,
}

/// A number that the bytes of a hint tell.
pub(super) fn number(hint: &[u8], member: &str) -> Option<u64> {
    serde_json::from_slice::<Value>(hint).ok()?.get(member)?.as_u64()
}

impl Log {
    /// The version of the checkpoint that `_last_checkpoint` names; `None` when there is no such file.
    ///
    /// Corrupt: it is no JSON, or names no version.
    pub async fn last_checkpoint(&self) -> Result<Option<u64>> {
        let Some(bytes) = self.hint().await? else { return Ok(None) };
        let hint: serde_json::Value =
            serde_json::from_slice(&bytes).map_err(|e| Error::corrupt("_last_checkpoint is no JSON").with_source(e))?;
        let version = hint.get("version").and_then(serde_json::Value::as_u64);
        version.map(Some).ok_or_else(|| Error::corrupt("_last_checkpoint names no version"))
    }

    /// Why a checkpoint's file cannot be whole; `None` when its ends look right.
    pub async fn checkpoint_damage(&self, file: &CheckpointFile) -> Result<Option<String>> {
        let path = Path::from_iter([LOG_DIR, &file.name]);
        let failed = |e| store_error(format!("the checkpoint file {} cannot be read", file.name), e);
        if file.name.ends_with(".json") {
            let bytes = self.store().get(&path).await.map_err(failed)?.bytes().await.map_err(failed)?;
            let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
            let broken = bytes.trim_ascii().is_empty()
                || lines.into_iter().any(|line| serde_json::from_slice::<&serde_json::value::RawValue>(line).is_err());
            return Ok(broken.then(|| format!("has {} bytes that are no lines of JSON", file.size)));
        }
        Ok(self.footer(&path, file.size).await?.err())
    }

    /// The footer of a Parquet file of this size; why there is none.
    pub(crate) async fn footer(&self, path: &Path, size: u64) -> Result<Result<ParquetMetaData, String>> {
        if size < 12 {
            return Ok(Err(format!("has {size} bytes, too few for a Parquet file")));
        }
        let mut take = FOOTER_BYTES.min(size);
        loop {
            let end = match self.store().get_range(path, size - take..size).await {
                Ok(end) => end,
                Err(e) => return Err(store_error(format!("the file {path} cannot be read"), e)),
            };
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&end, size).and_then(|()| reader.finish()) {
                Ok(footer) => return Ok(Ok(footer)),
                Err(ParquetError::NeedMoreData(needed)) if needed as u64 > take && needed as u64 <= size => {
                    take = needed as u64;
                }
                Err(e) => return Ok(Err(format!("has {size} bytes without a Parquet footer: {e}"))),
            }
        }
    }

    /// What is wrong with `_last_checkpoint`; `None` when it leads to a checkpoint, or there is none.
    pub async fn hint_fault(&self, listing: &Listing) -> Result<Option<HintFault>> {
        let Some(bytes) = self.hint().await? else { return Ok(None) };
        let misleading = |version, what: &str| {
            Ok(Some(HintFault { version, message: format!("{LAST_CHECKPOINT} {what}"), misleads: true }))
        };
        let Ok(hint) = serde_json::from_slice::<Value>(&bytes) else { return misleading(0, "is no JSON") };
        let Some(version) = hint.get("version").and_then(Value::as_u64) else {
            return misleading(0, "names no version");
        };
        if !listing.checkpoints.contains(&version) {
            return misleading(version, &format!("names the checkpoint of version {version}, which is not there"));
        }
        let mut files = listing.checkpoint_files();
        files.retain(|file| file.version == version && file.is_complete);
        let parts = hint.get("parts").filter(|parts| !parts.is_null());
        let is_part_of = |file: &CheckpointFile, of: u64| matches!(LogName::parse(&file.name), Some(LogName::Checkpoint(_, Some(part))) if part.of == of);
        let are_there = |of: u64| of <= 1 || files.iter().any(|file| is_part_of(file, of));
        if let Some(parts) = parts.filter(|parts| !parts.as_u64().is_some_and(are_there)) {
            let message = format!("names {parts} parts of the checkpoint of version {version}, which are not there");
            return misleading(version, &message);
        }
        // A checkpoint in one file of the classic name holds every action itself, unless it has sidecars.
        let classic = format!("{version:020}.checkpoint.parquet");
        let file = files.iter().find(|file| parts.is_none() && file.name == classic);
        let (Some(file), Some(size)) = (file, hint.get("size")) else { return Ok(None) };
        let Ok(footer) = self.footer(&Path::from_iter([LOG_DIR, &file.name]), file.size).await? else {
            return Ok(None);
        };
        let mut columns = footer.file_metadata().schema_descr().columns().iter();
        let has_sidecars = columns.any(|c| c.path().parts().first().is_some_and(|root| root == "sidecar"));
        let rows = footer.file_metadata().num_rows();
        if has_sidecars || size.as_i64() == Some(rows) {
            return Ok(None);
        }
        let message =
            format!("{LAST_CHECKPOINT} says {size} actions of the checkpoint of version {version}, which has {rows}");
        Ok(Some(HintFault { version, message, misleads: false }))
    }

    /// The bytes of the hint; `None` when there is no such file.
    pub(super) async fn hint(&self) -> Result<Option<Bytes>> {
        let bytes = match self.store().get(&Path::from_iter([LOG_DIR, LAST_CHECKPOINT])).await {
            Ok(object) => object.bytes().await,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => Err(e),
        };
        bytes.map(Some).map_err(|e| store_error("_last_checkpoint cannot be read", e))
    }
}
