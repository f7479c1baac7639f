//! By which a step is told from others of its number: a history that was taken back gives numbers again.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::clock::Ids;
use crate::error::Error;
use crate::step::Step;

/// A stretch of a history, drawn by who opens it and writes what follows. Two copies of a history that both went on have the
/// same strands up to where they parted, and others from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Strand(u64);

impl Strand {
    /// One that nobody else has.
    pub fn draw(ids: &Ids) -> Self {
        Self(XxHash3_64::oneshot(ids.draw().as_bytes()))
    }

    /// The one of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Strand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Strand {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let is_shown = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_shown);
        number
            .map(Self)
            .ok_or_else(|| Error::refused(format!("{text:?} is no strand, which has 16 hexadecimal digits")))
    }
}

impl TryFrom<String> for Strand {
    type Error = Error;
    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Strand> for String {
    fn from(strand: Strand) -> String {
        strand.to_string()
    }
}

/// The strands of a history, in order; none where nobody can tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Strands(Arc<Vec<(Step, Strand)>>);

impl Strands {
    /// Those in `strands`, each with the step before its first one.
    pub fn new(strands: Vec<(Step, Strand)>) -> Self {
        Self(Arc::new(strands))
    }

    /// Each with the step before its first one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Step, Strand)> {
        self.0.iter().copied()
    }

    /// The one that `step` is of, which the history has; `None` where that cannot be told.
    pub fn at(&self, step: Step) -> Option<Strand> {
        let until = self.0.partition_point(|(after, _)| *after < step);
        let holder = until.checked_sub(1).and_then(|at| self.0.get(at));
        holder.map(|(_, strand)| *strand)
    }

    /// These and `strand`, of the steps after `last`, at which the history ends; the newest `most` of them.
    #[must_use]
    pub fn and(&self, last: Step, strand: Strand, most: usize) -> Self {
        // One that begins there has no step, or lost those that it had.
        let mut strands: Vec<_> = self.iter().filter(|(after, _)| *after < last).collect();
        strands.push((last, strand));
        let old = strands.len().saturating_sub(most.max(1));
        Self::new(strands.split_off(old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> Step {
        Step::new(n).unwrap()
    }

    #[test]
    fn copies_that_both_went_on_agree_up_to_where_they_parted() {
        let [a, b, c, d] = [1, 2, 3, 4].map(Strand::new);
        let before = Strands::default().and(step(0), a, 9).and(step(0), b, 9).and(step(4), c, 9);
        assert_eq!([0, 1, 4, 5, 900].map(|n| before.at(step(n))), [None, Some(b), Some(b), Some(c), Some(c)]);
        let taken_back = before.and(step(7), d, 9);
        for n in 0..20 {
            assert_eq!(before.at(step(n)) == taken_back.at(step(n)), n <= 7, "step {n}");
        }
        let lost = taken_back.and(step(3), a, 9);
        assert_eq!([3, 4, 8].map(|n| lost.at(step(n))), [Some(b), Some(a), Some(a)]);
    }

    #[test]
    fn what_is_too_old_is_not_told() {
        let [a, b, c] = [1, 2, 3].map(Strand::new);
        let strands = Strands::default().and(step(0), a, 2).and(step(5), b, 2).and(step(9), c, 2);
        assert_eq!([5, 6, 10].map(|n| strands.at(step(n))), [None, Some(b), Some(c)]);
    }

    #[test]
    fn a_strand_has_one_form() {
        let strand = Strand::new(0xab);
        assert_eq!(strand.to_string(), "00000000000000ab");
        assert_eq!(strand.to_string().parse::<Strand>().unwrap(), strand);
        for wrong in ["", "ab", "00000000000000AB", "+0000000000000ab", "00000000000000abc"] {
            assert!(wrong.parse::<Strand>().is_err(), "{wrong}");
        }
    }
}
