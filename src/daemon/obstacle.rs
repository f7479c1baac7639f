//! What keeps this process from a directory, and which one has to be changed.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use crate::ailment::Ailment;
use crate::error::ErrorKind;

/// Why a directory cannot be used, and where that is.
#[derive(Debug)]
pub(super) struct Obstacle {
    wanted: PathBuf,
    /// The directory that forbids it, or lacks the next one on the way.
    at: PathBuf,
    error: io::Error,
    use_of_it: Use,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Reading,
    Writing,
}

impl Obstacle {
    /// What keeps this process from making something at `path`, or in it.
    pub(super) fn to_writing(path: &Path) -> Option<Self> {
        let at = existing(path);
        let error = if at.is_dir() {
            access(&*at, Access::WRITE_OK | Access::EXEC_OK).err()?.into()
        } else {
            io::Error::from(io::ErrorKind::NotADirectory)
        };
        Some(Self { wanted: path.to_path_buf(), at, error, use_of_it: Use::Writing })
    }

    /// What keeps this process from reading the directory `path`.
    pub(super) fn to_reading(path: &Path) -> Option<Self> {
        let error = fs::read_dir(path).err()?;
        Some(Self { wanted: path.to_path_buf(), at: existing(path), error, use_of_it: Use::Reading })
    }

    /// Whether the directory is not there, and nothing keeps it from being looked for.
    pub(super) fn is_missing(&self) -> bool {
        self.error.kind() == io::ErrorKind::NotFound
    }

    /// Whether it is a directory above the one that is wanted.
    fn is_above(&self) -> bool {
        self.at != absolute(&self.wanted)
    }

    /// What repairs it.
    pub(super) fn remedy(&self) -> String {
        let (wanted, at) = (self.wanted.display(), self.at.display());
        match (self.error.kind(), self.use_of_it) {
            (io::ErrorKind::NotFound, _) => format!("mkdir -p {wanted}"),
            (io::ErrorKind::NotADirectory, _) => format!("move {at} away"),
            (io::ErrorKind::ReadOnlyFilesystem, _) => format!("mount the file system of {at} for writing"),
            (_, Use::Reading) if self.is_above() => format!("chmod +rx {at}"),
            (_, Use::Reading) => format!("chmod -R +rX {at}"),
            // What lies beside the one that is wanted stays whose it is.
            (_, Use::Writing) if self.is_above() => format!("chown \"$USER\" {at}"),
            (_, Use::Writing) => format!("chown -R \"$USER\" {at}"),
        }
    }

    /// As what a checkup finds at `place`.
    pub(super) fn ailment(&self, place: &str) -> Ailment {
        let mut remedy = self.remedy();
        let is_forbidden = self.error.kind() == io::ErrorKind::PermissionDenied;
        if is_forbidden && self.use_of_it == Use::Writing && self.is_above() {
            remedy = format!("{remedy} # or as root: install -d -o \"$USER\" {}", self.wanted.display());
        }
        Ailment::error(ErrorKind::Config, place, self.to_string(), remedy)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, at, error, use_of_it } = self;
        let verb = match use_of_it {
            Use::Reading => "read",
            Use::Writing => "written to",
        };
        write!(f, "{} cannot be {verb}: ", wanted.display())?;
        if !self.is_missing() && self.is_above() {
            write!(f, "{}: ", at.display())?;
        }
        write!(f, "{error}")
    }
}

/// What is free where `path` is or will be, in bytes.
pub(super) fn free(path: &Path) -> Option<u64> {
    let found = statvfs(&*existing(path)).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// `path`, or the nearest above it that is there.
fn existing(path: &Path) -> PathBuf {
    let path = absolute(path);
    path.ancestors().find(|above| above.exists()).map_or_else(|| PathBuf::from("/"), Path::to_path_buf)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
