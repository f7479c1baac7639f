//! A checkpoint that is not what the log says is taken out of readers' way by whoever has just written it.

use std::collections::HashSet;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};

use super::compare::checkpoint_files;
use super::hint::number;
use super::{Facts, LAST_CHECKPOINT, LOG_DIR, Log};
use crate::error::Result;
use crate::store::store_error;

/// What led readers before a checkpoint was written.
#[derive(Debug)]
pub struct Before {
    version: u64,
    hint: Option<Bytes>,
    /// The names of the files of a checkpoint of the version that are there already.
    others: HashSet<String>,
}

impl Log {
    /// Notes what leads readers, for a checkpoint of `version` that may have to be withdrawn.
    pub async fn before_checkpoint(&self, version: u64) -> Result<Before> {
        let listing = self.list(version).await?;
        let others = checkpoint_files(&listing, version).into_iter().map(|file| file.name).collect();
        Ok(Before { version, hint: self.hint().await?, others })
    }

    /// The table at its head, without the checkpoint that was written after `before`.
    ///
    /// Corrupt: nothing else leads there.
    pub async fn facts_without(&self, before: &Before) -> Result<Facts> {
        let mut seen: HashSet<u64> = self.list(0).await?.checkpoints.into_iter().collect();
        seen.remove(&before.version);
        self.past(before.version, &seen, "the checkpoint is untrue").facts_at_once().await
    }

    /// Leads readers where they were led `before`, and deletes what was written of the checkpoint since. The entries below
    /// it must be there.
    ///
    /// A hint to an absent checkpoint stops some readers, so the hint goes first: until the files are gone, readers see
    /// what they saw.
    pub async fn withdraw_checkpoint(&self, before: &Before) -> Result<()> {
        let listing = self.list(0).await?;
        let named = |hint: &Bytes| number(hint, "version");
        let path = |name: &str| Path::from_iter([LOG_DIR, name]);
        let unled = |e| store_error("_last_checkpoint cannot be put back", e);
        if self.hint().await?.as_ref().and_then(named) == Some(before.version) {
            let is_there = |hint: &&Bytes| {
                named(hint).is_some_and(|named| named != before.version && listing.checkpoints.contains(&named))
            };
            match before.hint.as_ref().filter(is_there) {
                Some(hint) => self.store().put(&path(LAST_CHECKPOINT), hint.clone().into()).await.map(drop),
                // Without a hint readers list the log.
                None => absent(self.store().delete(&path(LAST_CHECKPOINT)).await),
            }
            .map_err(unled)?;
        }
        for file in checkpoint_files(&listing, before.version) {
            if !before.others.contains(&file.name) {
                let failed = |e| store_error(format!("the checkpoint file {} cannot be deleted", file.name), e);
                absent(self.store().delete(&path(&file.name)).await).map_err(failed)?;
            }
        }
        Ok(())
    }
}

fn absent(deleted: Result<(), StoreError>) -> Result<(), StoreError> {
    match deleted {
        Err(StoreError::NotFound { .. }) => Ok(()),
        other => other,
    }
}
