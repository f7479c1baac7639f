//! What step logs may take, and what happens when one is full.

use std::ops::RangeInclusive;

use super::section::{Field, Section};
use crate::source::logged::WhenFull;

/// What a step log may take in bytes where nothing is said.
pub(super) const MAX_BYTES: u64 = 8 << 30;
const BOUNDS: RangeInclusive<u64> = 1 << 20..=1 << 50;

/// `[defaults.step_log]`, as far as it is written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StepLogPart {
    /// What a log may take in bytes.
    pub(super) max_bytes: Option<u64>,
    /// What becomes of pushes when it is full because of a connector.
    pub(super) when_full: Option<WhenFull>,
}

impl StepLogPart {
    pub(super) fn read(mut log: Section<'_>) -> Self {
        let part = Self {
            max_bytes: read_max_bytes(&mut log),
            when_full: log.field("when_full").and_then(|f| read_when_full(&f)),
        };
        log.finish(&[]);
        part
    }
}

/// What the log of a view may take, by the view's `step_log`.
pub(super) fn read_of_view(field: &Field<'_>) -> Option<u64> {
    let mut log = field.section()?;
    let max_bytes = read_max_bytes(&mut log);
    log.misplaced("when_full", "is each connector's own; put it there, or into [defaults.step_log]");
    log.finish(&[]);
    max_bytes
}

pub(super) fn read_when_full(field: &Field<'_>) -> Option<WhenFull> {
    field.word(&[WhenFull::Wait, WhenFull::Detach], &[])
}

fn read_max_bytes(log: &mut Section<'_>) -> Option<u64> {
    log.field("max_bytes").and_then(|f| f.within(f.size()?, BOUNDS, "1MiB and 1024TiB"))
}
