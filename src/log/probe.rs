//! Whether an object store lets only the first of two writers create an object, tried out before anything is written.

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};

use super::Log;
use crate::error::{Error, Result};
use crate::store::{is_unsupported, store_error};

/// Hidden from readers and clean-ups by its first character, as everything is in a table's folder that has it.
pub(super) const PROBE_PREFIX: &str = "_cutover_probe_";

impl Log {
    /// Refuses an object store in which two writers could both write a version; asks it once for each location.
    ///
    /// Incompatible: the store lets the second one through, or cannot tell.
    pub(crate) async fn check_conditional_put(&self) -> Result<()> {
        let Some(probed) = self.location().probed() else { return Ok(()) };
        let probe = async || {
            let path = Path::from(format!("{PROBE_PREFIX}{}", self.world.ids.draw()));
            let tried = probe(self.store().as_ref(), &path, self.location().uri()).await;
            if let Err(error) = self.store().delete(&path).await {
                tracing::warn!(event = "probe_left", %path, %error, "an object that tried conditional puts stays; remove it");
            }
            tried
        };
        probed.get_or_try_init(probe).await.map(|_| ())
    }
}

async fn probe(store: &dyn ObjectStore, path: &Path, uri: &str) -> Result<()> {
    let create =
        |bytes: &'static str| store.put_opts(path, PutPayload::from_static(bytes.as_bytes()), PutMode::Create.into());
    let unfit = |why: &str| {
        Error::incompatible(format!(
            "the object store of {uri} {why}: two writers could both write a version of the table; use a store that honors If-None-Match, and do not set conditional_put = \"disabled\""
        ))
    };
    let failed = |error: StoreError| {
        if is_unsupported(&error) {
            return unfit("does not support conditional puts").with_source(error);
        }
        store_error(format!("whether the object store of {uri} honors conditional puts cannot be told"), error)
    };
    match create("first").await {
        // The client sent it a second time after an answer that was lost.
        Ok(_) | Err(StoreError::AlreadyExists { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    match create("second").await {
        Ok(_) => return Err(unfit("lets a second writer create an object that is there")),
        Err(StoreError::AlreadyExists { .. }) => {}
        Err(error) => return Err(failed(error)),
    }
    let found = match store.get(path).await {
        Ok(found) => found.bytes().await,
        Err(error) => Err(error),
    };
    if found.map_err(failed)? == "first" { Ok(()) } else { Err(unfit("replaced an object that it said to leave")) }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
