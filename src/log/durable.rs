//! A local object store whose writes survive a crash of the machine: all knowledge of syncing is here.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::clock::Ids;
use crate::disk::{Disk, DiskFile, FileSystem, Readers, create_durable_dir};

/// Syncs each object before its name appears, and the directory before the write is acknowledged. What others left
/// unsynced in a directory is synced before the directory is listed.
#[derive(Debug)]
pub struct SyncedStore {
    files: LocalFileSystem,
    ids: Ids,
    names: Names,
}

impl SyncedStore {
    /// A store on the machine's file systems.
    pub(super) fn new() -> Self {
        Self::on(Arc::new(FileSystem))
    }

    /// A store that writes by way of `disk`, and reads what is there afterwards.
    pub fn on(disk: Arc<dyn Disk>) -> Self {
        Self { files: LocalFileSystem::new(), ids: Ids::from_system(), names: Names { disk, known: Arc::default() } }
    }

    /// A name beside `path` that no reader of the table looks at and nobody else draws.
    fn stage(&self, path: &FsPath) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}.tmp", self.ids.draw()))
    }

    fn listed(
        &self,
        prefix: Option<&Path>,
        objects: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let Some(directory) = prefix.and_then(|prefix| self.files.path_to_filesystem(prefix).ok()) else {
            return objects;
        };
        let (names, name) = (self.names.clone(), directory.display().to_string());
        let synced = blocking(move || names.sync_listed(&directory).map_err(|e| store_error(name, e)));
        synced.map(|synced| synced.map(|()| objects)).into_stream().try_flatten().boxed()
    }
}

impl fmt::Display for SyncedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SyncedStore({})", self.files)
    }
}

#[async_trait]
impl ObjectStore for SyncedStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let create = match opts.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => return self.files.put_opts(location, payload, opts).await,
        };
        let path = self.files.path_to_filesystem(location)?;
        let staged = self.stage(&path);
        let (names, name) = (self.names.clone(), location.to_string());
        blocking(move || names.write(&path, &staged, &payload, create).map_err(|e| store_error(name, e))).await?;
        let e_tag = self.files.get_opts(location, GetOptions::new().with_head(true)).await?.meta.e_tag;
        Ok(PutResult { e_tag, version: None })
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let path = self.files.path_to_filesystem(location)?;
        let staged = self.stage(&path);
        let (names, name) = (self.names.clone(), location.to_string());
        let begun = {
            let (names, name, path, staged) = (names.clone(), name.clone(), path.clone(), staged.clone());
            move || names.begin(&path, &staged).map_err(|e| store_error(name, e))
        };
        let file = Some(Arc::from(blocking(begun).await?));
        Ok(Box::new(SyncedUpload { names, file, staged, path, name, length: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.names.has_unsure() {
            let path = self.files.path_to_filesystem(location)?;
            let staged = self.stage(&path);
            let (names, name) = (self.names.clone(), location.to_string());
            blocking(move || names.assure(&path, &staged).map_err(|e| store_error(name, e))).await?;
        }
        self.files.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.files.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(prefix, self.files.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct SyncedUpload {
    names: Names,
    /// Taken by whatever ends the upload: a file is synced once, and believed or given up.
    file: Option<Arc<dyn DiskFile>>,
    staged: PathBuf,
    path: PathBuf,
    name: String,
    length: u64,
}

#[async_trait]
impl MultipartUpload for SyncedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (file, name, mut offset) = (self.file.clone(), self.name.clone(), self.length);
        self.length += data.content_length() as u64;
        blocking(move || {
            let file = file.ok_or_else(|| ended(&name))?;
            for chunk in data {
                file.write_all_at(&chunk, offset).map_err(|e| store_error(name.clone(), e))?;
                offset += chunk.len() as u64;
            }
            Ok(())
        })
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let file = self.file.take().ok_or_else(|| ended(&self.name))?;
        let (names, staged, path, name) =
            (self.names.clone(), self.staged.clone(), self.path.clone(), self.name.clone());
        blocking(move || {
            names.name(&*file, &path, &staged, false).map_err(|e| store_error(name, e))?;
            Ok(PutResult { e_tag: None, version: None })
        })
        .await
    }

    async fn abort(&mut self) -> Result<()> {
        if self.file.take().is_none() {
            return Ok(());
        }
        let (names, staged, name) = (self.names.clone(), self.staged.clone(), self.name.clone());
        blocking(move || names.disk.remove(&staged).map_err(|e| store_error(name, e))).await
    }
}

impl Drop for SyncedUpload {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // Left behind it would only be garbage.
            let _ = self.names.disk.remove(&self.staged);
        }
    }
}

/// Gives files their names.
#[derive(Debug, Clone)]
struct Names {
    disk: Arc<dyn Disk>,
    known: Arc<Mutex<Known>>,
}

/// What is known of names and directories.
#[derive(Debug, Default)]
struct Known {
    /// Directories whose own names were synced, up to the root.
    durable: HashSet<PathBuf>,
    /// Objects that may have their names, in directories that were not synced afterwards.
    unsure: HashSet<PathBuf>,
}

impl Names {
    fn known<T>(&self, with: impl FnOnce(&mut Known) -> T) -> T {
        with(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn has_unsure(&self) -> bool {
        self.known(|known| !known.unsure.is_empty())
    }

    /// Writes and syncs a staged file, gives it its name, syncs the directory.
    fn write(&self, path: &FsPath, staged: &FsPath, payload: &PutPayload, create: bool) -> io::Result<()> {
        let file = self.begin(path, staged)?;
        let mut offset = 0;
        for chunk in payload {
            if let Err(e) = file.write_all_at(chunk, offset) {
                // Left behind it would only be garbage, so its removal decides nothing.
                let _ = self.disk.remove(staged);
                return Err(e);
            }
            offset += chunk.len() as u64;
        }
        let named = self.name(&*file, path, staged, create);
        if matches!(&named, Err(e) if e.kind() == io::ErrorKind::AlreadyExists) {
            // Another's object counts as durable too for who learns that it exists.
            self.assure(path, staged)?;
            self.sync_parent(path)?;
        }
        named
    }

    /// A staged file for `path`, whose directory is made durable where nobody knows that it is.
    fn begin(&self, path: &FsPath, staged: &FsPath) -> io::Result<Box<dyn DiskFile>> {
        let directory = path.parent().unwrap_or(path);
        if !self.known(|known| known.durable.contains(directory)) {
            self.create_dir(directory)?;
            self.known(|known| known.durable.insert(directory.to_path_buf()));
        }
        match self.disk.create(staged, Readers::Umask) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.create_dir(directory)?;
                self.disk.create(staged, Readers::Umask)
            }
            created => created,
        }
    }

    /// Syncs a staged file, gives it its name, and syncs the directory.
    fn name(&self, file: &dyn DiskFile, path: &FsPath, staged: &FsPath, create: bool) -> io::Result<()> {
        let named = file.sync().and_then(|()| match create {
            true => self.disk.link(staged, path),
            false => self.disk.rename(staged, path),
        });
        if create || named.is_err() {
            let _ = self.disk.remove(staged);
        }
        let is_taken = matches!(&named, Err(e) if e.kind() == io::ErrorKind::AlreadyExists);
        let done = named.and_then(|()| self.sync_parent(path));
        // An error does not tell that the name was not given.
        if done.is_err() && !is_taken {
            self.known(|known| known.unsure.insert(path.to_path_buf()));
        }
        done
    }

    /// Makes an object durable whose directory was not synced when it should have been. That a directory is synced the
    /// second time proves nothing about the names that it held at the first, so a copy takes the object's place.
    fn assure(&self, path: &FsPath, staged: &FsPath) -> io::Result<()> {
        if !self.known(|known| known.unsure.contains(path)) {
            return Ok(());
        }
        let bytes = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.known(|known| known.unsure.remove(path));
                return Ok(());
            }
            read => read?,
        };
        let file = self.disk.create(staged, Readers::Umask)?;
        if let Err(e) = file.write_all_at(&bytes, 0) {
            let _ = self.disk.remove(staged);
            return Err(e);
        }
        self.name(&*file, path, staged, false)?;
        self.known(|known| known.unsure.remove(path));
        Ok(())
    }

    /// Syncs a directory before it is listed: who finds a name in it may rely on it.
    fn sync_listed(&self, directory: &FsPath) -> io::Result<()> {
        match self.disk.sync_dir(directory) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
            synced => synced,
        }
    }

    fn create_dir(&self, directory: &FsPath) -> io::Result<()> {
        create_durable_dir(&*self.disk, directory, Readers::Umask)
    }

    fn sync_parent(&self, path: &FsPath) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.disk.sync_dir(parent))
    }
}

fn ended(name: &str) -> Error {
    store_error(name.to_owned(), io::Error::other("the upload has ended"))
}

fn store_error(path: String, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        io::ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => {
            Error::PermissionDenied { path, source: error.into() }
        }
        _ => Error::Generic { store: "SyncedStore", source: error.into() },
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| Error::JoinError { source })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;

    #[tokio::test]
    async fn only_the_first_create_wins_and_nothing_staged_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = SyncedStore::new();
        let path = Path::from_absolute_path(dir.path().join("a/b/log.json")).unwrap();
        let create = |text: &'static str| store.put_opts(&path, text.into(), PutMode::Create.into());
        create("first").await.unwrap();
        assert!(matches!(create("second").await, Err(Error::AlreadyExists { .. })));
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "first");
        store.put(&path, "third".into()).await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "third");
        let names: Vec<_> = fs::read_dir(dir.path().join("a/b")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["log.json"]);
    }

    #[tokio::test]
    async fn a_multipart_upload_appears_whole() {
        let dir = tempfile::tempdir().unwrap();
        let store = SyncedStore::new();
        let path = Path::from_absolute_path(dir.path().join("data.parquet")).unwrap();
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part("ab".into()).await.unwrap();
        upload.put_part("cd".into()).await.unwrap();
        assert!(store.get(&path).await.is_err());
        upload.complete().await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "abcd");
    }
}
