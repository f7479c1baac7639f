//! What a view must not forget beside its steps: which connectors were detached, so that a restart does not attach them as if
//! they had missed nothing, and which history it is, since a log that lost steps gives their numbers to others.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::disk::{self, Disk, misplaced, read_own};
use crate::error::{Error, Result};
use crate::step::Step;

const VERSION: u64 = 1;

/// What is known of a connector that was detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The last step that it had said to have.
    pub acknowledged: Option<Step>,
    /// The view's last step at that time.
    pub at: Step,
}

#[derive(Serialize, Deserialize)]
struct Form {
    v: u64,
    #[serde(flatten)]
    kept: Kept,
}

/// What stands in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::source) struct Kept {
    /// The history, where it is not that of the log's beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::source) history: Option<String>,
    /// The connectors that were detached.
    pub(in crate::source) detached: BTreeMap<String, Detached>,
}

/// The file in which they stand; there is none where nobody ever was.
#[derive(Debug)]
pub(in crate::source) struct Register {
    path: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Register {
    /// The file `path`, and what it holds. Corrupt: it holds something else.
    pub(in crate::source) fn open(path: &Path, disk: Arc<dyn Disk>) -> Result<(Self, Kept)> {
        let register = Self { path: path.to_path_buf(), disk };
        let read = read_own(path);
        let read = read.map_err(|e| misplaced(path, &e).unwrap_or_else(|| register.failed("read", e)))?;
        let Some(bytes) = read else { return Ok((register, Kept::default())) };
        let damaged = || {
            Error::corrupt(format!(
                "{} does not hold what it was written with; restore it, or remove it and reset the view's connectors",
                path.display()
            ))
        };
        let form: Form = serde_json::from_slice(&bytes).map_err(|e| damaged().with_source(e))?;
        if form.v == VERSION { Ok((register, form.kept)) } else { Err(damaged()) }
    }

    /// Replaces what the file holds; it is durable when this returns without an error.
    pub(in crate::source) fn write(&self, kept: &Kept) -> Result<()> {
        let text = serde_json::to_vec(&Form { v: VERSION, kept: kept.clone() })
            .map_err(|e| Error::internal("what a view keeps was not encoded").with_source(e))?;
        let written = disk::replace(&*self.disk, &self.path, &text);
        written.map_err(|e| self.failed("written", e))
    }

    fn failed(&self, what: &str, e: io::Error) -> Error {
        Error::unavailable(format!("{} cannot be {what}; make room, or look at the disk", self.path.display()))
            .with_source(e)
    }
}
