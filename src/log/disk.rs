//! What a local table asks of its file system in order to write.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The calls by which files and names come into being; paths are absolute. What was not synced may be lost, in any part
/// and order, when the machine stops.
pub trait Disk: fmt::Debug + Send + Sync {
    /// A new, empty file; an error where the name is taken.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// A second name for a file; an error where it is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Another name for a file, taken from who has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a name away.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A new, empty directory; an error where the name is taken.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Writes all of `bytes` from `offset` on.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes what was written durable. After an error nothing is known of it, whatever the next call says.
    fn sync(&self) -> io::Result<()>;
}

/// The machine's own file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Disk for FileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).open(path)?))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
