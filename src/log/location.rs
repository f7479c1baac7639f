//! Where a table is: a URI turned into an object store rooted at the table.

use std::fmt;
use std::path::{Component, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use tokio::sync::OnceCell;
use url::Url;

use super::cloud::{CloudPlace, Service, StorageOptions};
use super::durable::SyncedStore;
use super::patience::PatientStore;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// What a local table syncs before a commit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Files and their directories, data before log.
    Commit,
    /// Nothing: a crash of the machine may lose the newest commits, a crash of the process does not.
    None,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commit => "commit",
            Self::None => "none",
        })
    }
}

/// What the table is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and committing.
    Write(Durability),
}

/// Where a table is.
#[derive(Clone)]
pub struct Location {
    uri: String,
    url: Url,
    store: Arc<dyn ObjectStore>,
    root: Arc<dyn ObjectStore>,
    /// The table's root in `root`.
    prefix: Path,
    access: Access,
    /// Whether conditional puts were tried; `None` where they need no trial.
    probed: Option<Arc<OnceCell<()>>>,
}

/// A store's own `Debug` may hold credentials.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("uri", &self.uri).field("access", &self.access).finish_non_exhaustive()
    }
}

impl Location {
    /// The table at `uri`: a local path, `file://`, `memory://`, or a place in an object store, about which the
    /// environment says the rest.
    ///
    /// Nothing is created. A `memory://` table lives as long as the location and its clones.
    pub fn open(uri: &str, access: Access) -> Result<Self> {
        Self::open_with(uri, access, &StorageOptions::default())
    }

    /// The same; of an object store `options` say what they say before the environment does.
    ///
    /// Config: an option that the store's client does not know, or any for a table elsewhere.
    pub fn open_with(uri: &str, access: Access, options: &StorageOptions) -> Result<Self> {
        if Service::of(uri).is_some() {
            return Self::cloud(uri, access, options);
        }
        if !options.is_empty() {
            return Err(Error::config(
                "storage options are those of an object store; a local table has none; remove them, or correct the URI",
            ));
        }
        match uri.split_once("://") {
            None => match misspelled(uri) {
                None => Self::local(PathBuf::from(uri), access),
                Some(why) => Err(Error::config(format!("the table's URI {why}"))),
            },
            Some(("file", _)) => {
                // A query or fragment would be dropped without a word.
                let url = Url::parse(uri).ok().filter(|url| url.query().is_none() && url.fragment().is_none());
                let path = url.and_then(|url| url.to_file_path().ok());
                let path = path.ok_or_else(|| {
                    Error::config(format!("{uri:?} names no local path; write file:///path/to/table"))
                })?;
                Self::local(path, access)
            }
            Some(("memory", _)) => Ok(Self::on(Arc::new(InMemory::new()))),
            Some((scheme, _)) => Err(Error::config(format!(
                "tables at {scheme}:// are not available; available are local paths, file://, memory://, s3://, az://, abfss:// and gs://"
            ))),
        }
    }

    /// The table at the root of `store`.
    pub fn on(store: Arc<dyn ObjectStore>) -> Self {
        let uri = "memory:///".to_string();
        #[expect(clippy::expect_used, reason = "a constant")]
        let url = Url::parse(&uri).expect("a valid URL");
        Self::at(uri, url, store, Path::default(), Access::Write(Durability::None), None)
    }

    fn at(
        uri: String,
        url: Url,
        root: Arc<dyn ObjectStore>,
        prefix: Path,
        access: Access,
        probed: Option<Arc<OnceCell<()>>>,
    ) -> Self {
        let store = below(&root, &prefix);
        Self { uri, url, store, root, prefix, access, probed }
    }

    /// What is wrong with the spelling of a place, without quoting it.
    pub(crate) fn check(uri: &str) -> Result<(), String> {
        if Service::of(uri).is_some() {
            return CloudPlace::parse(uri).map(|_| ());
        }
        misspelled(uri).map_or(Ok(()), Err)
    }

    fn cloud(uri: &str, access: Access, options: &StorageOptions) -> Result<Self> {
        let place = CloudPlace::parse(uri).map_err(|why| {
            // What stands before an @ or behind a ? may be a secret.
            let shown = if uri.contains(['@', '?']) { "the table's URI".to_string() } else { format!("{uri:?}") };
            Error::config(format!("{shown} {why}"))
        })?;
        let environment = std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?)));
        let bucket = place.bucket(options, environment)?;
        Ok(Self::at(uri.to_string(), place.url, bucket, place.prefix, access, Some(Arc::default())))
    }

    /// The same place, each call of whose store ends by `clock`.
    pub(super) fn patient(&self, clock: &Arc<dyn Clock>) -> Self {
        let root: Arc<dyn ObjectStore> = Arc::new(PatientStore::new(Arc::clone(&self.root), Arc::clone(clock)));
        Self { store: below(&root, &self.prefix), root, ..self.clone() }
    }

    fn local(path: PathBuf, access: Access) -> Result<Self> {
        let bad = |why: &str| Error::config(format!("the table's path {} {why}", path.display()));
        let absolute = std::path::absolute(&path).map_err(|e| bad("is not usable").with_source(e))?;
        if absolute.components().any(|c| c == Component::ParentDir) && !absolute.exists() {
            return Err(bad("does not exist and goes up by \"..\"; write it without"));
        }
        // The table keeps its place when it is reached through a link.
        let absolute = absolute.canonicalize().unwrap_or(absolute);
        if is_ambiguous(&absolute) {
            return Err(bad(
                "holds a backslash or a %XX sequence, from the root on, which readers take for something else; choose another",
            ));
        }
        if absolute.is_file() {
            return Err(bad("is a file; a table is a directory"));
        }
        let prefix =
            Path::from_absolute_path(&absolute).map_err(|e| bad("cannot be held by an object store").with_source(e))?;
        let url = Url::from_directory_path(&absolute).map_err(|()| bad("is not absolute"))?;
        let root: Arc<dyn ObjectStore> = match access {
            Access::Write(Durability::Commit) => Arc::new(SyncedStore::new()),
            Access::Write(Durability::None) | Access::Read => Arc::new(LocalFileSystem::new()),
        };
        Ok(Self::at(path.display().to_string(), url, root, prefix, access, None))
    }

    /// Makes everything durable that was written to a local file system, whoever wrote it and whatever is synced of it
    /// else.
    pub(super) async fn sync(&self) -> Result<()> {
        let Ok(folder) = self.url.to_file_path() else { return Ok(()) };
        let synced = tokio::task::spawn_blocking(move || {
            let folder = std::fs::File::open(folder)?;
            rustix::fs::syncfs(folder).map_err(std::io::Error::from)
        });
        let failed = || Error::unavailable(format!("the file system of {} cannot be synced", self.uri));
        match synced.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(e)) => Err(failed().with_source(e)),
            Err(e) => Err(failed().with_source(e)),
        }
    }

    /// Refuses a location that was opened for reading.
    pub fn check_writable(&self) -> Result<()> {
        match self.access {
            Access::Write(_) => Ok(()),
            Access::Read => Err(Error::refused(format!("{} was opened for reading; open it for writing", self.uri))),
        }
    }

    /// What the table was opened for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The URI as it was given; for messages.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The table's root; ends with a slash.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The table's objects, paths relative to its root.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Whether conditional puts were tried; `None` where they need no trial.
    pub(super) fn probed(&self) -> Option<&OnceCell<()>> {
        self.probed.as_deref()
    }

    /// The same place, its objects seen through `wrap`.
    pub(super) fn through(&self, wrap: impl Fn(Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore>) -> Self {
        Self { store: wrap(Arc::clone(&self.store)), root: wrap(Arc::clone(&self.root)), ..self.clone() }
    }

    /// The store in which the paths of [`Location::url`] are absolute.
    pub(super) fn root(&self) -> &Arc<dyn ObjectStore> {
        &self.root
    }
}

/// What `root` holds below `prefix`.
fn below(root: &Arc<dyn ObjectStore>, prefix: &Path) -> Arc<dyn ObjectStore> {
    if prefix.as_ref().is_empty() {
        return Arc::clone(root);
    }
    Arc::new(PrefixStore::new(Arc::clone(root), prefix.clone()))
}

/// What is wrong with a path that begins like a URL and lacks a slash: `s3:/lake/t`.
fn misspelled(uri: &str) -> Option<String> {
    let (scheme, _) = uri.split_once(":/").filter(|(_, rest)| !rest.starts_with('/'))?;
    let is_scheme = scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    is_scheme
        .then(|| format!("lacks a slash; write {scheme}:// for a store, or ./{scheme}:/ for a directory of that name"))
}

/// Whether readers that decode URLs would look for another path.
fn is_ambiguous(path: &std::path::Path) -> bool {
    let text = path.to_string_lossy();
    let is_escape = |(at, _): (usize, &str)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    };
    text.contains('\\') || text.match_indices('%').any(is_escape)
}
