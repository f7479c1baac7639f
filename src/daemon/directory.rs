//! The data directory: one process at a time, and a place for each view and connector.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::obstacle::Obstacle;
use crate::config::{ConnectorConfig, ConnectorName};
use crate::disk::{FileSystem, Readers, create_durable_dir, lacks_room, misplaced, open_own};
use crate::error::{Error, Result};

const LOCK: &str = "lock";
/// So many looks of others may come in between.
const LOOKS: u32 = 1000;
const EGRESS: &str = "egress.json";

/// A data directory that this process holds.
#[derive(Debug)]
pub(super) struct DataDirectory {
    path: PathBuf,
    /// Held until this is dropped.
    _lock: File,
}

impl DataDirectory {
    /// Takes the directory, and makes it where it is missing.
    ///
    /// Refused: another process holds it. Config: it cannot be made or used.
    pub(super) fn take(path: &Path) -> Result<Self> {
        create_durable_dir(&FileSystem, &absolute(path)?, Readers::Owner).map_err(|e| unusable(path, e))?;
        let path = &fs::canonicalize(path).map_err(|e| unusable(path, e))?;
        let lock = path.join(LOCK);
        let file = open_own(OpenOptions::new().write(true).create(true).truncate(false), &lock)
            .map_err(|e| unopened(&lock, e))?;
        match patient_lock(&file) {
            Ok(()) => Ok(Self { path: path.to_path_buf(), _lock: file }),
            Err(TryLockError::WouldBlock) => Err(in_use(path)),
            Err(TryLockError::Error(e)) => Err(unusable(&lock, e)),
        }
    }

    /// Whether a process holds the directory; one that is missing is held by nobody.
    pub(super) fn is_held(path: &Path) -> Result<bool> {
        let lock = path.join(LOCK);
        let file = match open_own(OpenOptions::new().read(true), &lock) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(unopened(&lock, e)),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(unusable(&lock, e)),
        }
    }

    /// Where a view keeps its step log; the directory is there.
    pub(super) fn step_log(&self, pipeline: &str, view: &str) -> Result<PathBuf> {
        self.place(&["views", pipeline, view, "log"])
    }

    /// Where a pushed view keeps its rows; the directory above is there.
    pub(super) fn rows(&self, pipeline: &str, view: &str) -> Result<PathBuf> {
        let rows = self.place(&["views", pipeline, view])?.join("rows");
        match fs::symlink_metadata(&rows) {
            Ok(found) if !found.is_dir() => Err(no_directory(&rows)),
            Ok(_) => Ok(rows),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(rows),
            Err(e) => Err(unusable(&rows, e)),
        }
    }

    /// Where a view with a step log keeps who was detached from it; the directory above is there.
    pub(super) fn register(&self, pipeline: &str, view: &str) -> Result<PathBuf> {
        Ok(self.place(&["views", pipeline, view])?.join("detached.json"))
    }

    #[cfg(feature = "postgres")]
    /// Where it is kept what must be known of a pipeline's server; the directory above is there.
    pub(super) fn evidence(&self, pipeline: &str) -> Result<PathBuf> {
        self.place(&["sources", pipeline])?;
        Ok(Self::evidence_of(&self.path, pipeline))
    }

    #[cfg(feature = "postgres")]
    /// The same in the data directory `path`, whoever holds it; nothing need be there.
    pub(super) fn evidence_of(path: &Path, pipeline: &str) -> PathBuf {
        path.join("sources").join(pipeline).join("postgres.json")
    }

    /// Where a connector keeps its journal; the directory is there.
    pub(super) fn journal(&self, name: &ConnectorName) -> Result<PathBuf> {
        self.place(&["connectors", name.pipeline(), name.view(), name.connector()])
    }

    /// Where a connector keeps the index of its table's keys, where it needs one; the directory is there.
    pub(super) fn key_index(&self, config: &ConnectorConfig) -> Result<Option<PathBuf>> {
        if !config.needs_key_index() {
            return Ok(None);
        }
        let name = &config.name;
        self.place(&["connectors", name.pipeline(), name.view(), name.connector(), "keys"]).map(Some)
    }

    /// Where the streams of a view keep their generation; the directory above is there.
    pub(super) fn egress(&self, pipeline: &str, view: &str) -> Result<PathBuf> {
        Ok(self.place(&["views", pipeline, view])?.join(EGRESS))
    }

    /// Where the streams of a connector keep their generation, and its client's place; the directory above is there.
    pub(super) fn egress_of(&self, name: &ConnectorName) -> Result<PathBuf> {
        Ok(self.journal(name)?.join(EGRESS))
    }

    /// Where the daemon itself keeps what it must not forget.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a webhook keeps how far it is; the directory above is there.
    pub(super) fn webhook(&self, name: &str) -> Result<PathBuf> {
        Ok(self.place(&["webhooks"])?.join(format!("{name}.json")))
    }

    fn place(&self, parts: &[&str]) -> Result<PathBuf> {
        let mut path = self.path.clone();
        for part in parts {
            path.push(part);
            make_one(&path)?;
        }
        Ok(path)
    }
}

/// Who only looks whether a directory is held has its lock for a moment.
fn patient_lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKS {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            locked => return locked,
        }
    }
    file.try_lock()
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| unusable(path, e))
}

/// A directory that is no symbolic link: whoever can write beside it does not choose where data goes.
fn make_one(path: &Path) -> Result<()> {
    let found = fs::symlink_metadata(path);
    if found.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return create_durable_dir(&FileSystem, path, Readers::Owner).map_err(|e| unusable(path, e));
    }
    let found = found.map_err(|e| unusable(path, e))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(no_directory(path))
}

fn no_directory(path: &Path) -> Error {
    Error::config(format!("{} is no directory; move it away, or name another server.data_dir", path.display()))
}

fn unopened(path: &Path, e: io::Error) -> Error {
    misplaced(path, &e).unwrap_or_else(|| unusable(path, e))
}

fn in_use(path: &Path) -> Error {
    Error::refused(format!(
        "another cutover uses the data directory {}; stop it, or name another server.data_dir",
        path.display()
    ))
}

fn unusable(path: &Path, e: io::Error) -> Error {
    if lacks_room(e.kind()) {
        let said = format!("there is no room for {}; free space on its disk", path.display());
        return Error::unavailable(said).with_source(e);
    }
    let remedy = match Obstacle::to_writing(path) {
        Some(obstacle) => obstacle.remedy(),
        None => "correct its permissions".to_owned(),
    };
    let said = format!("{} cannot be used; {remedy}, or name another server.data_dir", path.display());
    Error::config(said).with_source(e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn one_process_holds_a_data_directory() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        assert!(!DataDirectory::is_held(&path).unwrap(), "nothing is there");
        let held = DataDirectory::take(&path).unwrap();
        assert!(DataDirectory::is_held(&path).unwrap());
        let refused = DataDirectory::take(&path).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(refused.message().contains("another cutover uses"), "{refused}");
        drop(held);
        assert!(!DataDirectory::is_held(&path).unwrap());
        DataDirectory::take(&path).unwrap();
    }

    #[test]
    fn links_in_a_data_directory_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let data = DataDirectory::take(home.path()).unwrap();
        std::os::unix::fs::symlink("/tmp", home.path().join("views")).unwrap();
        let refused = data.step_log("p", "v").unwrap_err();
        assert!(refused.message().contains("is no directory"), "{refused}");
        fs::remove_file(home.path().join("views")).unwrap();
        let rows = data.rows("p", "v").unwrap();
        std::os::unix::fs::symlink("/tmp", rows).unwrap();
        let refused = data.rows("p", "v").unwrap_err();
        assert!(refused.message().contains("is no directory"), "{refused}");
    }
}
