//! Positions in a source's history, and ranges of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Lost, Result};

/// A position in the source's history. Strictly increasing, not necessarily dense.
///
/// At most `i64::MAX - 1`, because a Delta `txn.version` holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Step(u64);

impl Step {
    /// The first possible step.
    pub const ZERO: Step = Step(0);
    /// The last possible step.
    pub const MAX: Step = Step(i64::MAX as u64 - 1);

    /// A step, if `value` is at most [`Step::MAX`].
    pub fn new(value: u64) -> Result<Self> {
        if value > Self::MAX.0 {
            return Err(Error::refused(format!("step {value} is beyond the largest step {}", Self::MAX.0)));
        }
        Ok(Self(value))
    }

    /// A step from a stored signed number.
    pub fn from_i64(value: i64) -> Result<Self> {
        let value =
            u64::try_from(value).map_err(|_| Error::refused(format!("step {value} is negative; steps start at 0")))?;
        Self::new(value)
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// The number as Delta stores it; it always fits.
    pub fn as_i64(self) -> i64 {
        self.0 as i64
    }
}

impl TryFrom<u64> for Step {
    type Error = Error;
    fn try_from(value: u64) -> Result<Self> {
        Self::new(value)
    }
}

impl From<Step> for u64 {
    fn from(step: Step) -> u64 {
        step.0
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The steps after `from`, up to and including `to`; never empty.
///
/// ```text
///        from            to
///   ──────┤●──────●──────●├──────
///          first        last     steps in the range
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRange {
    from: Step,
    to: Step,
}

impl StepRange {
    /// The range `(from, to]`, if it covers at least one step.
    pub fn new(from: Step, to: Step) -> Result<Self> {
        if from >= to {
            return Err(Error::refused(format!("({from}, {to}] is no range of steps: it ends where it starts")));
        }
        Ok(Self { from, to })
    }

    /// The step before the first one covered.
    pub fn from(self) -> Step {
        self.from
    }

    /// The last step covered.
    pub fn to(self) -> Step {
        self.to
    }

    /// Whether `step` is covered.
    pub fn contains(self, step: Step) -> bool {
        self.from < step && step <= self.to
    }

    /// This range without the steps up to `at`; `None` when nothing is left.
    pub fn after(self, at: Step) -> Option<Self> {
        (at < self.to).then_some(Self { from: self.from.max(at), to: self.to })
    }

    /// This range without the steps beyond `at`; `None` when nothing is left.
    pub fn until(self, at: Step) -> Option<Self> {
        (at > self.from).then_some(Self { from: self.from, to: self.to.min(at) })
    }

    /// Both ranges as one, when `next` starts exactly where this one ends.
    pub fn join(self, next: Self) -> Result<Self> {
        if next.from != self.to {
            return Err(Error::continuity_lost(Lost::Gap, format!("the range {next} does not continue {self}")));
        }
        Ok(Self { from: self.from, to: next.to })
    }
}

impl fmt::Display for StepRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {}]", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> Step {
        Step::new(n).unwrap()
    }

    #[test]
    fn steps_stop_below_the_largest_signed_number() {
        assert!(Step::new(i64::MAX as u64 - 1).is_ok());
        assert!(Step::new(i64::MAX as u64).is_err());
        assert!(Step::from_i64(-1).is_err());
        assert!(serde_json::from_str::<Step>("9223372036854775807").is_err());
        assert_eq!(serde_json::from_str::<Step>("7").unwrap(), step(7));
    }

    #[test]
    fn a_range_covers_its_end_and_not_its_start() {
        let range = StepRange::new(step(3), step(5)).unwrap();
        let covered: Vec<u64> = (0..8).filter(|n| range.contains(step(*n))).collect();
        assert_eq!(covered, [4, 5]);
        assert!(StepRange::new(step(3), step(3)).is_err());
        assert!(StepRange::new(step(4), step(3)).is_err());
    }

    #[test]
    fn a_range_is_cut_and_joined_without_gaps() {
        let range = StepRange::new(step(3), step(9)).unwrap();
        assert_eq!(range.after(step(5)), Some(StepRange::new(step(5), step(9)).unwrap()));
        assert_eq!(range.after(step(1)), Some(range));
        assert_eq!(range.after(step(9)), None);
        assert_eq!(range.until(step(5)), Some(StepRange::new(step(3), step(5)).unwrap()));
        assert_eq!(range.until(step(3)), None);
        let next = StepRange::new(step(9), step(10)).unwrap();
        assert_eq!(range.join(next).unwrap(), StepRange::new(step(3), step(10)).unwrap());
        assert!(next.join(range).is_err());
    }
}
