//! How far a webhook is, on disk.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::disk::{self, FileSystem, misplaced, read_own};
use crate::error::{Error, Result};

/// So many events that it is not told of may be passed again after a restart.
const UNWRITTEN: u64 = 1000;

#[derive(Serialize, Deserialize)]
struct Form {
    after: u64,
}

/// The place of one webhook.
pub(super) struct Place {
    path: PathBuf,
    after: u64,
    written: u64,
}

impl Place {
    /// What the file says; `otherwise` where there is none. A file that says nothing means the oldest event that there is:
    /// better twice than not at all.
    pub(super) fn open(path: PathBuf, otherwise: u64) -> Result<Self> {
        let unreadable = || Error::config(format!("{} cannot be read; correct its permissions", path.display()));
        let read = read_own(&path).map_err(|e| misplaced(&path, &e).unwrap_or_else(|| unreadable().with_source(e)))?;
        let said = |bytes: &Vec<u8>| serde_json::from_slice::<Form>(bytes).map_or(0, |form| form.after);
        let after = read.as_ref().map_or(otherwise, said);
        let mut place = Self { path, after, written: after };
        if read.is_none() {
            place.write()?;
        }
        Ok(place)
    }

    /// The last event that is done with.
    pub(super) fn after(&self) -> u64 {
        self.after
    }

    /// An event was not wanted.
    pub(super) fn pass(&mut self, id: u64) -> Result<()> {
        self.after = id;
        if id > self.written + UNWRITTEN { self.write() } else { Ok(()) }
    }

    /// An event was taken.
    pub(super) fn take(&mut self, id: u64) -> Result<()> {
        self.after = id;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        let form = serde_json::to_vec(&Form { after: self.after })
            .map_err(|e| Error::internal("the place of a webhook was not encoded").with_source(e))?;
        disk::replace(&FileSystem, &self.path, &form)
            .map_err(|e| Error::unavailable(format!("{} cannot be written", self.path.display())).with_source(e))?;
        self.written = self.after;
        Ok(())
    }
}
