//! The log's directory: its lock, the names in it, and how a segment comes into being.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};

use super::header::{Header, VERSION};
use crate::disk::{Disk, DiskFile, Readers, create_durable_dir, lacks_room, misplaced, open_own};
use crate::error::{Error, Result};

const LOCK: &str = "lock";
const SEGMENT: &str = "steps";
const STAGED: &str = "tmp";

/// An error of the disk that several callers may have to be told.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    message: String,
    source: Arc<io::Error>,
}

impl Fault {
    pub(super) fn new(path: &Path, what: &str, source: io::Error) -> Self {
        let message = match lacks_room(source.kind()) {
            true => format!("there is no room for the step log {}; free space on its disk", path.display()),
            false => format!("the step log {} {what}", path.display()),
        };
        Self { message, source: Arc::new(source) }
    }

    /// The same fault, of which this is known besides.
    pub(super) fn and(mut self, more: &str) -> Self {
        self.message = format!("{}; {more}", self.message);
        self
    }

    pub(super) fn error(&self) -> Error {
        Error::unavailable(self.message.clone()).with_source(Arc::clone(&self.source))
    }
}

/// A segment that did not come into being.
#[derive(Debug)]
pub(super) struct Uncreated {
    pub(super) fault: Fault,
    /// Whether it may have its name all the same.
    pub(super) may_be_named: bool,
}

/// A segment that did.
pub(super) struct Created {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) salt: u64,
}

/// A directory that nobody else has open as a log.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    /// Held until the last handle on it is gone.
    _lock: File,
}

impl Files {
    /// Creates the directory where it is missing.
    ///
    /// Refused: another process has it, or it is a link or no directory.
    pub(super) fn lock(path: &Path, disk: Arc<dyn Disk>) -> Result<Self> {
        let unusable = |e| Fault::new(path, "cannot be opened", e).error();
        create_durable_dir(&*disk, path, Readers::Owner).map_err(unusable)?;
        let found = fs::symlink_metadata(path).map_err(unusable)?;
        if !found.is_dir() {
            let what = if found.is_symlink() { "a link" } else { "no directory" };
            return Err(Error::refused(format!(
                "the step log {} is {what}; move it away, or name another data directory",
                path.display()
            )));
        }
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(unusable)?;
        }
        let lock = open_own(OpenOptions::new().write(true).create(true).truncate(false), &path.join(LOCK))
            .map_err(|e| unopened(&path.join(LOCK), e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.to_path_buf(), disk, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::refused(format!(
                "the step log {} is in use by another process; stop it, or name another data directory",
                path.display()
            ))),
            Err(e) => Err(unusable(e.into())),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn segment(&self, number: u64) -> PathBuf {
        segment_path(&self.path, number)
    }

    /// The numbers of the segments that are there, with their lengths; what was only staged is removed.
    pub(super) fn segments(&self) -> Result<BTreeMap<u64, u64>> {
        let unread = |e| Fault::new(&self.path, "cannot be listed", e).error();
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(&self.path).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            match (number, path.extension().and_then(|extension| extension.to_str())) {
                (Some(number), Some(SEGMENT)) if path == self.segment(number) => {
                    let length = open_segment(&self.path, number)?.metadata().map_err(unread)?.len();
                    found.insert(number, length);
                }
                // Left behind it is only garbage, so its removal decides nothing.
                (Some(_), Some(STAGED)) => drop(self.disk.remove(&path)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Creates a segment: header, what `fill` writes behind it, sync, name, sync of the directory. Nobody finds it under its
    /// name before it is whole.
    pub(super) fn create(
        &self,
        header: &Header,
        fill: impl FnOnce(&dyn DiskFile, u64) -> io::Result<()>,
    ) -> Result<Created, Uncreated> {
        let path = self.segment(header.number);
        let staged = path.with_extension(STAGED);
        let (bytes, salt) = header.encode();
        let fault = |e| Fault::new(&self.path, "cannot be written", e);
        let written = self.disk.create(&staged, Readers::Owner).and_then(|file| {
            file.write_all_at(&bytes, 0)?;
            fill(&*file, salt)?;
            file.sync()?;
            Ok(file)
        });
        let file = written.map_err(|e| {
            let _ = self.disk.remove(&staged);
            Uncreated { fault: fault(e), may_be_named: false }
        })?;
        let named = self.disk.rename(&staged, &path).and_then(|()| self.disk.sync_dir(&self.path));
        match named {
            Ok(()) => Ok(Created { file, salt }),
            Err(e) => {
                let _ = self.disk.remove(&staged);
                Err(Uncreated { fault: fault(e), may_be_named: true })
            }
        }
    }

    /// Takes a segment away; one that is not there is gone already.
    pub(super) fn remove(&self, number: u64) -> Result<(), Fault> {
        match self.disk.remove(&self.segment(number)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Fault::new(&self.path, "keeps what was released", e)),
            _ => Ok(()),
        }
    }

    pub(super) fn sync_names(&self) -> Result<(), Fault> {
        self.disk.sync_dir(&self.path).map_err(|e| Fault::new(&self.path, "cannot be synced", e))
    }
}

pub(super) fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:020}.{SEGMENT}"))
}

/// Opens a segment in order to read it; links are not followed.
pub(super) fn open_segment(directory: &Path, number: u64) -> Result<File> {
    let path = segment_path(directory, number);
    open_own(OpenOptions::new().read(true), &path).map_err(|e| unopened(&path, e))
}

/// A segment's header, the salt of its frames, and where they begin.
pub(super) fn read_header(directory: &Path, file: &File, number: u64) -> Result<(Header, u64, u64)> {
    let path = segment_path(directory, number);
    let unread = |e| Fault::new(&path, "cannot be read", e).error();
    let length = file.metadata().map_err(unread)?.len();
    let read = || -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut first = [0; 16];
        if length < first.len() as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut first, 0)?;
        let claimed = Header::claimed_length(&first).filter(|claimed| u64::from(*claimed) <= length);
        let Some(claimed) = claimed else { return Ok(None) };
        let mut bytes = vec![0; claimed as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some((bytes, u64::from(claimed))))
    };
    let flawed = || damaged(&path, 0, "the header does not hold what it was written with");
    let (bytes, claimed) = read().map_err(unread)?.ok_or_else(flawed)?;
    if let Some(version) = Header::later_version(&bytes) {
        return Err(Error::other_version(format!("the step log's {}", path.display()), version, VERSION));
    }
    let (header, salt) = Header::decode(&bytes).filter(|(header, _)| header.number == number).ok_or_else(flawed)?;
    Ok((header, salt, claimed))
}

/// What is said of damage, wherever it is found.
pub(super) fn damaged(path: &Path, offset: u64, why: &str) -> Error {
    Error::corrupt(format!(
        "the step log's {} is damaged at byte {offset}: {why}; restore it, or move the log's directory away: the source \
         then begins anew, and its connectors need a reset",
        path.display()
    ))
}

fn unopened(path: &Path, e: io::Error) -> Error {
    misplaced(path, &e).unwrap_or_else(|| Fault::new(path, "cannot be opened", e).error())
}
