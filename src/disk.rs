//! What local tables and step logs ask of their file system in order to write.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::Error;

/// The calls by which files and names come into being; paths are absolute. What was not synced may be lost, in any part
/// and order, when the machine stops.
pub trait Disk: fmt::Debug + Send + Sync {
    /// A new, empty file; an error where the name is taken.
    fn create(&self, path: &Path, readers: Readers) -> io::Result<Box<dyn DiskFile>>;

    /// A second name for a file; an error where it is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Another name for a file, taken from who has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Takes a name away.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// A new, empty directory; an error where the name is taken.
    fn create_dir(&self, path: &Path, readers: Readers) -> io::Result<()>;

    /// Takes the name of an empty directory away.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Who may read what is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Whoever the process's umask lets.
    Umask,
    /// The user that the process runs as.
    Owner,
}

/// A file that is being written.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Writes all of `bytes` from `offset` on.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Ends the file after `length` bytes.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Makes what was written durable. After an error nothing is known of it, whatever the next call says.
    fn sync(&self) -> io::Result<()>;
}

/// Opens a file of our own, for its owner alone where it is made: no link is followed, and what is no file, as a pipe, is
/// refused without a wait. [`misplaced`] says what helps then.
pub(crate) fn open_own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::NXIO.into()) }
}

/// What a file of our own holds; `None` where there is none. It is opened as by [`open_own`].
pub(crate) fn read_own(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match open_own(OpenOptions::new().read(true), path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// What [`open_own`] has to say of something else that has the file's name; `None` of any other error.
pub(crate) fn misplaced(path: &Path, error: &io::Error) -> Option<Error> {
    let what = match Errno::from_io_error(error)? {
        Errno::LOOP => "a link, which is not followed",
        Errno::NXIO | Errno::ISDIR => "no file",
        _ => return None,
    };
    Some(Error::refused(format!("{} is {what}; move it away", path.display())))
}

/// Whether the disk, or what somebody may have of it, is full.
pub(crate) fn lacks_room(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error, StorageFull | QuotaExceeded | FileTooLarge)
}

/// Makes sure of a directory and of its name, and of those above it; those that are missing are created.
///
/// What was created and could not be made sure of is taken away again: that a directory is synced the second time proves
/// nothing about the names that it held at the first.
pub(crate) fn create_durable_dir(disk: &dyn Disk, directory: &Path, readers: Readers) -> io::Result<()> {
    let mut missing: Vec<&Path> = directory.ancestors().take_while(|p| !p.exists()).collect();
    missing.reverse();
    let sure = create_dirs(disk, directory, &missing, readers);
    if sure.is_err() {
        missing.iter().rev().for_each(|created| drop(disk.remove_dir(created)));
    }
    sure
}

fn create_dirs(disk: &dyn Disk, directory: &Path, missing: &[&Path], readers: Readers) -> io::Result<()> {
    for directory in missing {
        match disk.create_dir(directory, readers) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    for above in directory.ancestors().skip(1) {
        match disk.sync_dir(above) {
            // Nothing was created there by somebody who may not look at it, or where nothing is written.
            Err(e) if is_beyond_us(e.kind()) => break,
            synced => synced?,
        }
    }
    Ok(())
}

fn is_beyond_us(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    matches!(error, PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported)
}

/// Puts a file of `bytes` in the place of `path`, which its owner alone may read; it is durable, and whole, when this
/// returns without an error.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let staged = path.with_extension("tmp");
    match disk.remove(&staged) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = disk.create(&staged, Readers::Owner)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    disk.rename(&staged, path)?;
    disk.sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// The machine's own file systems.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileSystem;

impl Disk for FileSystem {
    fn create(&self, path: &Path, readers: Readers) -> io::Result<Box<dyn DiskFile>> {
        let mode = if readers == Readers::Owner { 0o600 } else { 0o666 };
        Ok(Box::new(OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?))
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

    fn create_dir(&self, path: &Path, readers: Readers) -> io::Result<()> {
        let mode = if readers == Readers::Owner { 0o700 } else { 0o777 };
        DirBuilder::new().mode(mode).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

impl DiskFile for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
