//! What a failure of the store asks of the caller.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use fjall::LsmError;

use crate::error::Error;

/// Which store it is, for messages.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) view: String,
}

impl Place {
    pub(super) fn new(directory: &Path, view: &str) -> Self {
        Self { directory: directory.to_path_buf(), view: view.to_owned() }
    }

    pub(super) fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!(
            "{self} is damaged: {why}; stop, and remove it: it is made again from a step log that reaches back to its beginning, and otherwise the view has to be pushed anew"
        ))
    }

    pub(super) fn error(&self, error: fjall::Error) -> Error {
        let io = match &error {
            fjall::Error::Io(io) | fjall::Error::Storage(LsmError::Io(io)) => Some(io.kind()),
            _ => None,
        };
        use io::ErrorKind::{InvalidData, QuotaExceeded, StorageFull, UnexpectedEof};
        match (&error, io) {
            (_, Some(StorageFull | QuotaExceeded)) => {
                Error::unavailable(format!("there is no room for {self}; free space on its disk, then start again"))
                    .with_source(error)
            }
            (_, Some(UnexpectedEof | InvalidData)) => self.damaged("a file of it ends early").with_source(error),
            (_, Some(_)) | (fjall::Error::Poisoned, _) => {
                Error::unavailable(format!("{self} cannot be used, because its disk failed; start again"))
                    .with_source(error)
            }
            (fjall::Error::Locked, _) => {
                Error::refused(format!("{self} is in use by another process; stop it, or name another data directory"))
            }
            _ => self.damaged("what it holds is not what was written there").with_source(error),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store {} of view {}", self.directory.display(), self.view)
    }
}
