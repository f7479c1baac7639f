//! A small file of our own that is replaced as a whole.

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk::{self, Disk, misplaced, read_own};
use crate::error::{Error, Result};

const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Form<T> {
    v: u64,
    #[serde(flatten)]
    state: T,
}

/// What is read before the rest, which other versions may spell otherwise.
#[derive(Deserialize)]
struct Numbered {
    v: u64,
}

/// The file in which a `T` stands; there is none before one is written.
#[derive(Debug)]
pub(crate) struct StateFile<T> {
    path: PathBuf,
    disk: Arc<dyn Disk>,
    state: PhantomData<fn(T) -> T>,
}

impl<T: Serialize + DeserializeOwned> StateFile<T> {
    /// The file `path`, and what it holds.
    ///
    /// Corrupt: it holds something else; `removed` says what is to be done once it is removed, or follows from that.
    /// Incompatible: it is of another version. Refused: a link or a folder has its name.
    pub(crate) fn open(path: &Path, disk: Arc<dyn Disk>, removed: &str) -> Result<(Self, Option<T>)> {
        let file = Self { path: path.to_path_buf(), disk, state: PhantomData };
        let read = read_own(path).map_err(|e| misplaced(path, &e).unwrap_or_else(|| file.failed("read", e)))?;
        let Some(bytes) = read else { return Ok((file, None)) };
        let damaged = || {
            Error::corrupt(format!(
                "{} does not hold what it was written with; restore it, or remove it{removed}",
                path.display()
            ))
        };
        let Numbered { v } = serde_json::from_slice(&bytes).map_err(|e| damaged().with_source(e))?;
        if v != VERSION {
            return Err(Error::other_version(path.display(), v, VERSION));
        }
        let form: Form<T> = serde_json::from_slice(&bytes).map_err(|e| damaged().with_source(e))?;
        Ok((file, Some(form.state)))
    }

    /// Replaces what the file holds; it is durable when this returns without an error.
    pub(crate) fn write(&self, state: &T) -> Result<()> {
        let text = serde_json::to_vec(&Form { v: VERSION, state })
            .map_err(|e| Error::internal(format!("{} was not encoded", self.path.display())).with_source(e))?;
        disk::replace(&*self.disk, &self.path, &text).map_err(|e| self.failed("written", e))
    }

    fn failed(&self, what: &str, e: io::Error) -> Error {
        Error::unavailable(format!("{} cannot be {what}; make room, or look at the disk", self.path.display()))
            .with_source(e)
    }
}
