//! Manifests of staged parts, in files or in object stores.

use std::io::Write as _;
use std::path::PathBuf;

use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt as _};

use crate::clock::World;
use crate::config::DeltaConfig;
use crate::error::{Error, Result};
use crate::inspect::staged::StagedFile;
use crate::log::{Access, Durability, Location, Service, StorageOptions};
use crate::sink::Manifest;
use crate::store::store_error;

/// Where a manifest is.
enum Place {
    File(PathBuf),
    Object { folder: Location, name: Path },
}

impl Place {
    /// A path, `file://`, or a place in an object store, which is reached as the table `delta` is where both are in the same.
    fn of(written: &str, delta: &DeltaConfig, access: Access) -> Result<Self> {
        if let Some(path) = written.strip_prefix("file://") {
            return Ok(Self::File(path.into()));
        }
        if Service::of(written).is_none() {
            return Ok(Self::File(written.into()));
        }
        let same = Service::of(written) == Service::of(&delta.uri);
        let options = if same { delta.storage_options() } else { StorageOptions::default() };
        let both = written.rsplit_once('/').filter(|(folder, name)| !name.is_empty() && !folder.ends_with('/'));
        let (folder, name) = both.ok_or_else(|| {
            Error::config(format!("{written} names no manifest; write for example s3://bucket/staged/part-1.json"))
        })?;
        Ok(Self::Object { folder: Location::open_with(folder, access, &options)?, name: Path::from(name) })
    }
}

/// Writes `manifest` to the place `written`, whole or not at all, over one that is there.
pub(super) async fn write(written: &str, manifest: &Manifest, delta: &DeltaConfig, world: &World) -> Result<()> {
    let mut json = manifest.to_json()?;
    json.push('\n');
    match Place::of(written, delta, Access::Write(Durability::Commit))? {
        Place::File(path) => {
            let mut file = StagedFile::create(&path, &world.ids)?;
            file.write_all(json.as_bytes())
                .map_err(|e| Error::internal(format!("the manifest {written} cannot be written")).with_source(e))?;
            file.appear()
        }
        Place::Object { folder, name } => {
            let put = folder.store().put(&name, json.into()).await;
            put.map(drop).map_err(|e| store_error(format!("the manifest {written} cannot be written"), e))
        }
    }
}

/// Reads the manifest at the place `written`.
///
/// Refused: there is none.
pub(super) async fn read(written: &str, delta: &DeltaConfig) -> Result<Manifest> {
    let missing = || format!("there is no manifest {written}; stage its part, or correct the name");
    let json = match Place::of(written, delta, Access::Read)? {
        Place::File(path) => std::fs::read(path).map_err(|e| Error::refused(missing()).with_source(e))?.into(),
        Place::Object { folder, name } => {
            let unread = |e| match e {
                StoreError::NotFound { .. } => Error::refused(missing()).with_source(e),
                e => store_error(format!("the manifest {written} cannot be read"), e),
            };
            folder.store().get(&name).await.map_err(unread)?.bytes().await.map_err(unread)?
        }
    };
    Manifest::from_json(written, &json)
}
