//! Listing versions and reading entries.

use bytes::Bytes;
use futures::stream::{self, Stream};
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};

use super::names::Listing;
use super::{LOG_DIR, Log, entry, version_path};
use crate::continuity::commit::Commit;
use crate::continuity::stamp::FIRST_LOAD_PREFIX;
use crate::error::{Error, Result};
use crate::store::store_error;

/// How many entries are read at once.
pub(super) const READS_AT_ONCE: usize = 32;

impl Log {
    /// Lists the log, from the objects of version `from` on.
    pub async fn list(&self, from: u64) -> Result<Listing> {
        let directory = Path::from(LOG_DIR);
        let objects = if from == 0 {
            self.store().list(Some(&directory))
        } else {
            self.store().list_with_offset(Some(&directory), &Path::from_iter([LOG_DIR, &format!("{:020}", from)]))
        };
        let mut listing = Listing::default();
        let mut objects = objects;
        loop {
            let object = match objects.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) | Err(StoreError::NotFound { .. }) => return Ok(listing),
                Err(e) => return Err(store_error("the log cannot be listed", e)),
            };
            // Folders below hold staged entries and the sidecars of checkpoints.
            if object.location.parts().count() == 2
                && let Some(name) = object.location.filename()
            {
                listing.take(name, object.size);
            }
        }
    }

    /// Every file of the log's folder, and of those below it, with its size in bytes, by name. Hidden ones are left out:
    /// what another writer stages beside the entry that it puts says nothing yet.
    pub(super) async fn log_files(&self) -> Result<Vec<(String, u64)>> {
        let failed = |e| store_error("the log cannot be listed", e);
        let mut objects = self.store().list(Some(&Path::from(LOG_DIR)));
        let mut files = Vec::new();
        loop {
            match objects.try_next().await {
                Ok(Some(object)) if object.location.filename().is_some_and(|name| name.starts_with('.')) => {}
                Ok(Some(object)) => files.push((object.location.to_string(), object.size)),
                Ok(None) | Err(StoreError::NotFound { .. }) => break,
                Err(e) => return Err(failed(e)),
            }
        }
        files.sort();
        Ok(files)
    }

    /// The bytes of the file of this path, relative to the table's root.
    pub(super) async fn bytes_of(&self, path: &Path) -> Result<Bytes> {
        let failed = |e| store_error(format!("the file {path} cannot be read"), e);
        let object = self.store().get(path).await.map_err(failed)?;
        let size = object.meta.size;
        let bytes = object.bytes().await.map_err(failed)?;
        // An answer that ends early would be taken for a file that does.
        if bytes.len() as u64 != size {
            let read = bytes.len();
            return Err(Error::unavailable(format!("of the file {path} {read} of {size} bytes were read")));
        }
        Ok(bytes)
    }

    /// The bytes of the entry `version`; `None` when it is not there.
    pub async fn read(&self, version: u64) -> Result<Option<Bytes>> {
        let failed = |e| store_error(format!("the entry of version {version} cannot be read"), e);
        let object = match self.store().get(&version_path(version)).await {
            Ok(object) => object,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let size = object.meta.size;
        let bytes = object.bytes().await.map_err(failed)?;
        // An answer that ends between two lines would be an entry that says less.
        if bytes.len() as u64 != size {
            let read = bytes.len();
            return Err(Error::unavailable(format!(
                "of the entry of version {version} {read} of {size} bytes were read"
            )));
        }
        Ok(Some(bytes))
    }

    /// The entry `version`, understood; `None` when it is not there.
    pub async fn commit(&self, version: u64) -> Result<Option<Commit>> {
        self.read(version).await?.map(|bytes| entry::parse(version, &bytes)).transpose()
    }

    /// The entries of `versions`, in that order, read several at a time.
    pub fn commits(&self, versions: Vec<u64>) -> impl Stream<Item = (u64, Result<Option<Commit>>)> + '_ {
        stream::iter(versions)
            .map(move |version| async move { (version, self.commit(version).await) })
            .buffered(READS_AT_ONCE)
    }

    /// Every object under the table's root with its size in bytes, the log's left out.
    pub fn objects(&self) -> impl Stream<Item = Result<(Path, u64)>> + '_ {
        let failed = |e| store_error("the table's folder cannot be listed", e);
        self.store()
            .list(None)
            .map_err(failed)
            .try_filter(|object| std::future::ready(!object.location.prefix_matches(&Path::from(LOG_DIR))))
            .map_ok(|object| (object.location, object.size))
    }

    /// A path in the folder that is neither hidden nor left by a first load that did not end; `None` when there is none.
    pub(super) async fn object_without_log(&self) -> Result<Option<Path>> {
        let mut objects = self.store().list(None);
        loop {
            let object = match objects.try_next().await {
                Ok(Some(object)) => object,
                Ok(None) | Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(e) => return Err(store_error("the table's folder cannot be listed", e)),
            };
            let hidden = object.location.parts().any(|p| p.as_ref().starts_with(['.', '_']));
            if !hidden && !object.location.as_ref().starts_with(FIRST_LOAD_PREFIX) {
                return Ok(Some(object.location));
            }
        }
    }
}
