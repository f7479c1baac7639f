//! What a view must not forget beside its steps: which connectors were detached, so that a restart does not attach them as if
//! they had missed nothing, and which history it is, since a log that lost steps gives their numbers to others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::error::Result;
use crate::state_file::StateFile;
use crate::step::Step;

/// What is known of a connector that was detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The last step that it had said to have.
    pub acknowledged: Option<Step>,
    /// The view's last step at that time.
    pub at: Step,
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
pub(in crate::source) type Register = StateFile<Kept>;

/// The register `path`, and what it holds. Corrupt: it holds something else.
pub(in crate::source) fn open_register(path: &Path, disk: Arc<dyn Disk>) -> Result<(Register, Kept)> {
    let (register, kept) = StateFile::open(path, disk, " and reset the view's connectors")?;
    Ok((register, kept.unwrap_or_default()))
}
