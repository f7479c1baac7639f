//! What a reader begins with: `_last_checkpoint`, and the files of checkpoints, looked at without a replay.

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use parquet::file::metadata::ParquetMetaDataReader;

use super::names::CheckpointFile;
use super::{LOG_DIR, Log};
use crate::error::{Error, Result};
use crate::store::store_error;

/// The name of the hint in the log's folder.
pub const LAST_CHECKPOINT: &str = "_last_checkpoint";
/// What is read of a checkpoint's end at once, in the hope that it holds the footer.
const FOOTER_BYTES: u64 = 64 << 10;

impl Log {
    /// The version of the checkpoint that `_last_checkpoint` names; `None` when there is no such file.
    ///
    /// Corrupt: it is no JSON, or names no version.
    pub async fn last_checkpoint(&self) -> Result<Option<u64>> {
        let bytes = match self.store().get(&Path::from_iter([LOG_DIR, LAST_CHECKPOINT])).await {
            Ok(object) => object.bytes().await,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => Err(e),
        };
        let bytes = bytes.map_err(|e| store_error("_last_checkpoint cannot be read", e))?;
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
        if file.size < 12 {
            return Ok(Some(format!("has {} bytes, too few for a Parquet file", file.size)));
        }
        let mut take = FOOTER_BYTES.min(file.size);
        loop {
            let end = self.store().get_range(&path, file.size - take..file.size).await.map_err(failed)?;
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&end, file.size) {
                Ok(()) => return Ok(None),
                Err(parquet::errors::ParquetError::NeedMoreData(needed))
                    if needed as u64 > take && needed as u64 <= file.size =>
                {
                    take = needed as u64;
                }
                Err(e) => return Ok(Some(format!("has {} bytes without a Parquet footer: {e}", file.size))),
            }
        }
    }
}
