//! What one log entry says, reduced to what continuity needs.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use twox_hash::XxHash3_128;

use crate::continuity::stamp::CommitStamp;

/// One version of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Commit {
    /// The version.
    pub version: u64,
    /// When, in milliseconds since 1970 UTC, by the writer's own clock.
    pub millis: Option<i64>,
    /// Whose commit it is.
    pub author: Author,
    /// The files that it adds.
    pub adds: Vec<Added>,
    /// The files that it removes.
    pub removes: Vec<Removed>,
    /// The `txn` actions: application and version.
    pub txns: Vec<(String, i64)>,
    /// The applications whose `txn` has `lastUpdated`.
    pub dated_txns: Vec<String>,
    /// The table's metadata, when the commit sets it.
    pub table: Option<Table>,
    /// Protocol features that the commit demands and this program does not honour.
    pub refused_features: Vec<String>,
    /// Actions that this program does not know.
    pub unknown_actions: Vec<String>,
    /// Actions that stand in the commit more than once, where there may be one.
    pub repeated_actions: Vec<String>,
}

/// Whose commit it is.
#[derive(Debug, Clone, PartialEq)]
pub enum Author {
    /// Ours.
    Ours {
        /// Its stamp.
        stamp: Box<CommitStamp>,
        /// What the commit info says beside it.
        shown: Shown,
    },
    /// It claims to be ours and cannot be trusted; why.
    Damaged(String),
    /// Somebody else's, with the operation that it names.
    Foreign(Option<String>),
}

/// What the commit info of ours says to other engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shown {
    /// Whether it is the first action.
    pub first: bool,
    /// `isBlindAppend`.
    pub blind_append: Option<bool>,
    /// `operationMetrics.numOutputRows`.
    pub rows: Option<u64>,
    /// `operationMetrics.numFiles`.
    pub files: Option<u64>,
    /// `operationMetrics.numOutputBytes`.
    pub bytes: Option<u64>,
    /// `operationMetrics.numRemovedFiles`.
    pub removed: Option<u64>,
}

/// A data file: its path in the log, byte for byte, and its deletion vector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// The path as the log spells it.
    pub path: String,
    /// The deletion vector's unique id.
    pub vector: Option<String>,
}

impl FileId {
    /// A number in its place, where only equality counts.
    pub fn fingerprint(&self) -> u128 {
        let vector = self.vector.as_deref().map(|v| format!("\0{v}")).unwrap_or_default();
        XxHash3_128::oneshot([self.path.as_bytes(), vector.as_bytes()].concat().as_slice())
    }

    /// Whether the path, decoded, stays below the table's root.
    pub fn is_inside(&self) -> bool {
        let path = percent_decode_str(&self.path).decode_utf8_lossy();
        let is_relative = !path.starts_with('/') && !path.contains("://") && !path.starts_with("file:");
        is_relative && path.split(['/', '\\']).all(|part| part != "..")
    }
}

/// A file added.
#[derive(Debug, Clone, PartialEq)]
pub struct Added {
    /// Which file.
    pub file: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// Its rows, after the deletion vector, where statistics tell.
    pub rows: Option<u64>,
    /// Whether the commit says that rows change.
    pub data_change: bool,
    /// How many partition values it has.
    pub partition_values: usize,
}

/// A file removed.
#[derive(Debug, Clone, PartialEq)]
pub struct Removed {
    /// Which file.
    pub file: FileId,
    /// Whether the commit says that rows change.
    pub data_change: bool,
}

/// A table's metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The table's id.
    pub id: String,
    /// The schema's JSON.
    pub schema: String,
    /// The partition columns.
    pub partition_by: Vec<String>,
    /// The properties.
    pub properties: BTreeMap<String, String>,
    /// Those of them that switch on table features which this program does not honour.
    pub switches: Vec<String>,
}

impl Commit {
    /// The stamp, if the commit is ours.
    pub fn stamp(&self) -> Option<&CommitStamp> {
        match &self.author {
            Author::Ours { stamp, .. } => Some(stamp),
            Author::Damaged(_) | Author::Foreign(_) => None,
        }
    }

    /// The version of the `txn` of application `app`.
    pub fn txn(&self, app: &str) -> Option<i64> {
        self.txns.iter().find(|(id, _)| id == app).map(|(_, version)| *version)
    }

    /// The rows of all added files; `None` when a file does not tell.
    pub fn added_rows(&self) -> Option<u64> {
        self.adds.iter().try_fold(0u64, |sum, a| Some(sum.saturating_add(a.rows?)))
    }
}
