//! Time that survives restarts, and clocks that jump.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Ids};

/// One run of the machine, from its start to its stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    /// The run with this id.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The machine's own, from `/proc/sys/kernel/random/boot_id`. Where that cannot be read, each process counts as a run of
    /// its own.
    pub fn of_machine(ids: &Ids) -> Self {
        let read = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        Self(read.map(|id| id.trim().to_string()).filter(|id| !id.is_empty()).unwrap_or_else(|| ids.draw()))
    }
}

/// A point in time as it is stored: by every clock, because none of them holds always.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moment {
    /// Milliseconds since 1970 UTC. Anybody can set that clock.
    pub(super) wall: i64,
    /// Milliseconds by the boot clock, which means nothing beyond one run of the machine.
    boot: u64,
    boot_id: BootId,
}

impl Moment {
    pub(super) fn read(clock: &dyn Clock, boot_id: &BootId) -> Self {
        let boot = u64::try_from(clock.boot().as_millis()).unwrap_or(u64::MAX);
        Self { wall: clock.unix_millis(), boot, boot_id: boot_id.clone() }
    }
}

/// A line on which time only grows: the boot clock's within one run of the machine, the wall clock's from one run to the
/// next, where a step back counts as no time.
///
/// What clocks cannot tell, it cannot: a wall clock set ahead while the machine was off looks like time that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    at: Duration,
    last: Moment,
}

impl Timeline {
    /// The line on which `last` is at `at`.
    pub(super) fn through(at: Duration, last: Moment) -> Self {
        Self { at, last }
    }

    /// Where on the line `moment` is.
    pub(super) fn reach(&mut self, moment: &Moment) -> Duration {
        let passed = if moment.boot_id != self.last.boot_id {
            u64::try_from(moment.wall.saturating_sub(self.last.wall)).unwrap_or(0)
        } else if moment.boot >= self.last.boot {
            moment.boot.saturating_sub(self.last.boot)
        } else {
            // A machine that was taken back to an earlier state gets no time twice.
            return self.at;
        };
        self.at = self.at.saturating_add(Duration::from_millis(passed));
        self.last = moment.clone();
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(run: &str, boot: u64, wall: i64) -> Moment {
        Moment { wall, boot, boot_id: BootId::new(run) }
    }

    #[test]
    fn time_passes_by_the_clock_that_holds() {
        let mut line = Timeline::through(Duration::from_millis(100), moment("a", 1_000, 50_000));
        for (run, boot, wall, expected, why) in [
            ("a", 1_500, 50_500, 600, "both clocks agree"),
            ("a", 1_600, 900_000, 700, "the wall clock is set ahead"),
            ("a", 1_700, 3, 800, "the wall clock is set back"),
            ("a", 1_700, 4, 800, "no time"),
            ("a", 1_650, 4, 800, "the machine is taken back"),
            ("a", 1_701, 4, 801, "and counts from where it was"),
            ("b", 10, 2_004, 2_801, "started anew two seconds later by the wall clock"),
            ("b", 20, 1_000, 2_811, "the wall clock is set back"),
            ("c", 5_000, 10, 2_811, "started anew before the last start"),
            ("c", 5_010, 10, 2_821, "and goes on by the boot clock"),
            ("d", 0, i64::MAX, 2_821 + (i64::MAX as u64 - 10), "the largest step"),
            ("e", 0, i64::MIN, 2_821 + (i64::MAX as u64 - 10), "and back"),
        ] {
            let at = line.reach(&moment(run, boot, wall));
            assert_eq!(at, Duration::from_millis(expected), "{why}");
        }
    }

    #[test]
    fn the_machine_has_one_run_for_all_its_processes() {
        let ids = Ids::from_seed(1);
        let id = BootId::of_machine(&ids);
        assert_eq!(id, BootId::of_machine(&ids));
        assert!(!id.0.is_empty());
    }
}
