//! How far a webhook is, on disk.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Ids;
use crate::disk::{misplaced, open_own};
use crate::error::{Error, Result};
use crate::inspect::staged::StagedFile;

/// So many events that it is not told of may be passed again after a restart.
const UNWRITTEN: u64 = 1000;

#[derive(Serialize, Deserialize)]
struct Form {
    after: u64,
}

/// The place of one webhook.
pub(super) struct Place {
    path: PathBuf,
    ids: Arc<Ids>,
    after: u64,
    written: u64,
}

impl Place {
    /// What the file says; `otherwise` where there is none. A file that says nothing means the oldest event that there is:
    /// better twice than not at all.
    pub(super) fn open(path: PathBuf, otherwise: u64, ids: Arc<Ids>) -> Result<Self> {
        let mut text = String::new();
        let read = open_own(OpenOptions::new().read(true), &path).and_then(|mut file| file.read_to_string(&mut text));
        let (after, is_there) = match read {
            Ok(_) => (serde_json::from_str::<Form>(&text).map_or(0, |form| form.after), true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (otherwise, false),
            Err(e) => {
                let unreadable =
                    || Error::config(format!("{} cannot be read; correct its permissions", path.display()));
                return Err(misplaced(&path, &e).unwrap_or_else(|| unreadable().with_source(e)));
            }
        };
        let mut place = Self { path, ids, after, written: after };
        if !is_there {
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
        let mut file = StagedFile::create(&self.path, &self.ids)?;
        let form = serde_json::to_vec(&Form { after: self.after })
            .map_err(|e| Error::internal("the place of a webhook was not encoded").with_source(e))?;
        file.write_all(&form)
            .map_err(|e| Error::unavailable(format!("{} cannot be written", self.path.display())).with_source(e))?;
        file.appear()?;
        self.written = self.after;
        Ok(())
    }
}
