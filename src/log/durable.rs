//! A local object store whose writes survive a crash of the machine: all knowledge of syncing is here.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path as FsPath, PathBuf};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::clock::Ids;

/// Syncs each object before its name appears, and the directory before the write is acknowledged.
#[derive(Debug)]
pub(super) struct SyncedStore {
    files: LocalFileSystem,
    ids: Ids,
}

impl SyncedStore {
    pub(super) fn new(files: LocalFileSystem) -> Self {
        Self { files, ids: Ids::from_system() }
    }

    /// A name beside `path` that no reader of the table looks at and nobody else draws.
    fn stage(&self, path: &FsPath) -> PathBuf {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.with_file_name(format!(".{name}.{}.tmp", self.ids.draw()))
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
        let name = location.to_string();
        blocking(move || write(&path, &staged, &payload, create).map_err(|e| store_error(name, e))).await?;
        let e_tag = self.files.get_opts(location, GetOptions::new().with_head(true)).await?.meta.e_tag;
        Ok(PutResult { e_tag, version: None })
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let path = self.files.path_to_filesystem(location)?;
        let upload = self.files.put_multipart_opts(location, opts).await?;
        Ok(Box::new(SyncedUpload { upload, path, name: location.to_string() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list(prefix)
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.files.list_with_offset(prefix, offset)
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
    upload: Box<dyn MultipartUpload>,
    path: PathBuf,
    name: String,
}

#[async_trait]
impl MultipartUpload for SyncedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    /// The name appears before the sync, which is sound for data files: no version names one before this returns.
    async fn complete(&mut self) -> Result<PutResult> {
        let result = self.upload.complete().await?;
        let (path, name) = (self.path.clone(), self.name.clone());
        blocking(move || {
            let synced = File::open(&path).and_then(|f| f.sync_all()).and_then(|()| sync_parent(&path));
            synced.map_err(|e| store_error(name, e))
        })
        .await?;
        Ok(result)
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

/// Writes and syncs a staged file, gives it its name, syncs the directory.
fn write(path: &FsPath, staged: &FsPath, payload: &PutPayload, create: bool) -> io::Result<()> {
    let opened = || OpenOptions::new().write(true).create_new(true).open(staged);
    let mut file = match opened() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            create_parent(path)?;
            opened()?
        }
        file => file?,
    };
    let named = (|| {
        for chunk in payload {
            file.write_all(chunk)?;
        }
        file.sync_all()?;
        if create { fs::hard_link(staged, path) } else { fs::rename(staged, path) }
    })();
    if create || named.is_err() {
        // Left behind it would only be garbage, so its removal decides nothing.
        let _ = fs::remove_file(staged);
    }
    // Another's object counts as durable too for who learns that it exists.
    if named.as_ref().map_or_else(|e| e.kind() == io::ErrorKind::AlreadyExists, |()| true) {
        sync_parent(path)?;
    }
    named
}

fn create_parent(path: &FsPath) -> io::Result<()> {
    let mut missing: Vec<&FsPath> = path.ancestors().skip(1).take_while(|p| !p.exists()).collect();
    while let Some(directory) = missing.pop() {
        match fs::create_dir(directory) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => sync_parent(directory)?,
        }
    }
    Ok(())
}

fn sync_parent(path: &FsPath) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
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
        let store = SyncedStore::new(LocalFileSystem::new());
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
        let store = SyncedStore::new(LocalFileSystem::new());
        let path = Path::from_absolute_path(dir.path().join("data.parquet")).unwrap();
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part("ab".into()).await.unwrap();
        upload.put_part("cd".into()).await.unwrap();
        assert!(store.get(&path).await.is_err());
        upload.complete().await.unwrap();
        assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "abcd");
    }
}
