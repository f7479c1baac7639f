//! How far the snapshot that is being written is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counters that the writer moves and anybody reads.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
    bytes: AtomicU64,
    known_rows: AtomicU64,
    is_committing: AtomicBool,
}

impl Progress {
    /// Rows written of the snapshot.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Bytes written of the snapshot.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows that the snapshot has, where its source knows.
    pub fn known_rows(&self) -> Option<u64> {
        Some(self.known_rows.load(Ordering::Relaxed)).filter(|n| *n > 0)
    }

    /// Whether all rows are written and their commit has begun: from then on the table may hold it, whatever is given up.
    pub fn is_committing(&self) -> bool {
        self.is_committing.load(Ordering::Relaxed)
    }

    pub(super) fn commits(&self) {
        self.is_committing.store(true, Ordering::Relaxed);
    }

    pub(super) fn begin(&self, known_rows: Option<u64>) {
        self.known_rows.store(known_rows.unwrap_or(0), Ordering::Relaxed);
        self.is_committing.store(false, Ordering::Relaxed);
        self.set(0, 0);
    }

    pub(super) fn set(&self, rows: u64, bytes: u64) {
        self.rows.store(rows, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}
