//! The directory that a demo lives in.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::clock::World;
use crate::error::{Error, Result};

/// A directory; a temporary one goes with it unless it is to be kept.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    is_temporary: bool,
}

impl Home {
    /// At `dir`, or a temporary one that only its owner can open.
    ///
    /// Refused: something is in `dir`.
    pub(super) fn make(dir: Option<&Path>, world: &World) -> Result<Self> {
        let path = match dir {
            Some(dir) => dir.to_path_buf(),
            None => std::env::temp_dir().join(format!("cutover-demo-{}", world.ids.draw())),
        };
        let shown = path.display().to_string();
        let unmade =
            |e| Error::config(format!("the directory {shown} cannot be used; name another by --dir")).with_source(e);
        fs::DirBuilder::new().recursive(dir.is_some()).mode(0o700).create(&path).map_err(unmade)?;
        // From here on a temporary one is removed with it.
        let mut home = Self { path, is_temporary: dir.is_none() };
        home.path = fs::canonicalize(&home.path).map_err(unmade)?;
        if fs::read_dir(&home.path).map_err(unmade)?.next().is_some() {
            return Err(Error::refused(format!(
                "{shown} is not empty; name a directory by --dir that the demo may fill"
            )));
        }
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of something within.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file within.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.at(name), text).map_err(|e| Error::internal(format!("{name} cannot be written")).with_source(e))
    }

    /// Whether it is removed in the end.
    pub(super) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// Leaves it there.
    pub(super) fn keep(&mut self) {
        self.is_temporary = false;
    }

    /// Removes it, unless it is kept.
    pub(super) fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_temporary) {
            return Ok(());
        }
        match fs::remove_dir_all(&self.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::internal(format!("{} cannot be removed", self.path.display())).with_source(e))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind as Kind;

    #[test]
    fn a_temporary_directory_goes_unless_it_is_kept() {
        let world = World::system();
        let mut home = Home::make(None, &world).unwrap();
        home.write("a", "text").unwrap();
        let path = home.path().to_path_buf();
        home.end().unwrap();
        assert!(!path.exists());
        let mut home = Home::make(None, &world).unwrap();
        let path = home.path().to_path_buf();
        home.keep();
        drop(home);
        assert!(path.exists());
        fs::remove_dir(path).unwrap();
    }

    #[test]
    fn a_directory_with_something_in_it_is_refused_and_left() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("mine"), "text").unwrap();
        assert_eq!(Home::make(Some(dir.path()), &World::system()).unwrap_err().kind(), Kind::Refused);
        assert!(dir.path().join("mine").exists());
    }
}
