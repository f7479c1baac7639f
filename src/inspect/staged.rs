//! A file that appears under its name whole and synced, or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::clock::Ids;
use crate::error::{Error, Result};

/// A file that is being written under a hidden name beside its own; dropped, it is removed.
#[derive(Debug)]
pub struct StagedFile {
    path: PathBuf,
    staged: PathBuf,
    file: File,
}

impl StagedFile {
    /// A file that is to be `path`, in a directory that is there; where that is a link, the file that it leads to.
    ///
    /// Config: what stands there is no file, as a directory, a device or a pipe.
    pub fn create(path: &Path, ids: &Ids) -> Result<Self> {
        let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::config(format!(
                "{} is no plain file and would be replaced by one; name a file of its own",
                path.display()
            )));
        }
        let unwritable = |e| Error::internal(format!("the file {} cannot be written", path.display())).with_source(e);
        let name = path
            .file_name()
            .ok_or_else(|| Error::config(format!("{} names no file; give the path of one", path.display())))?;
        let staged = path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), ids.draw()));
        let file = OpenOptions::new().write(true).create_new(true).open(&staged).map_err(unwritable)?;
        Ok(Self { path: path.to_path_buf(), staged, file })
    }

    /// Syncs the file and gives it its name, in place of one that has it.
    pub fn appear(self) -> Result<()> {
        let named = (|| {
            self.file.sync_all()?;
            fs::rename(&self.staged, &self.path)?;
            let directory = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(directory)?.sync_all()
        })();
        named.map_err(|e: io::Error| {
            Error::internal(format!("the file {} cannot be completed", self.path.display())).with_source(e)
        })
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // After a rename there is nothing to remove; otherwise what stays is only garbage.
        let _ = fs::remove_file(&self.staged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let ids = Ids::from_seed(1);
        let write = |text: &str| {
            let mut file = StagedFile::create(&path, &ids).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            file
        };
        drop(write("given up"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        write("first").appear().unwrap();
        let second = write("second");
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        second.appear().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_not_replaced_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        let ids = Ids::from_seed(2);
        assert!(StagedFile::create(dir.path(), &ids).is_err());
        fs::write(&target, "before").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let mut file = StagedFile::create(&link, &ids).unwrap();
        file.write_all(b"after").unwrap();
        file.appear().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
