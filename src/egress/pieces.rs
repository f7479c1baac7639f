//! Changes of whole steps in pieces that each make one chunk.

use crate::error::Result;
use crate::step::{Step, StepRange};

/// Rows that make one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: Step,
    pub(super) to: Step,
    /// Whether more rows of step `to` follow.
    pub(super) is_partial: bool,
    /// Its first row.
    pub(super) at: usize,
    pub(super) rows: usize,
}

/// Cuts rows whose steps are `steps`, in ascending order, into pieces of at most `most` rows that cover `range`. A step that has
/// more is several pieces, of which the last alone is not partial; the steps before and behind it are in others.
pub(super) fn cut(steps: &[i64], range: StepRange, most: usize) -> Result<Vec<Piece>> {
    let most = most.max(1);
    let (mut pieces, mut from, mut at, mut rows, mut last) = (Vec::new(), range.from(), 0, 0, None);
    let mut begin = 0;
    while let Some(step) = steps.get(begin).copied() {
        let count = steps.get(begin..).unwrap_or_default().partition_point(|s| *s == step);
        if let Some(to) = last.filter(|_| rows > 0 && rows + count > most) {
            pieces.push(Piece { from, to, is_partial: false, at, rows });
            (from, at, rows) = (to, begin, 0);
        }
        let step = Step::from_i64(step)?;
        rows += count;
        while rows > most {
            pieces.push(Piece { from, to: step, is_partial: true, at, rows: most });
            (at, rows) = (at + most, rows - most);
        }
        if count > most {
            pieces.push(Piece { from, to: step, is_partial: false, at, rows });
            (from, at, rows) = (step, at + rows, 0);
        }
        (begin, last) = (begin + count, Some(step));
    }
    if from < range.to() {
        pieces.push(Piece { from, to: range.to(), is_partial: false, at, rows });
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(n: u64) -> Step {
        Step::new(n).unwrap()
    }

    #[track_caller]
    fn check(steps: &[i64], range: (u64, u64), most: usize, expected: &[(u64, u64, bool, usize, usize)]) {
        let range = StepRange::new(step(range.0), step(range.1)).unwrap();
        let pieces = cut(steps, range, most).unwrap();
        let shown: Vec<_> = pieces.iter().map(|p| (p.from.get(), p.to.get(), p.is_partial, p.at, p.rows)).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn steps_stand_together_while_they_fit_and_a_large_one_stands_alone() {
        check(&[], (3, 7), 4, &[(3, 7, false, 0, 0)]);
        check(&[4, 5, 5, 7], (3, 8), 4, &[(3, 8, false, 0, 4)]);
        check(&[4, 5, 5, 6, 7], (3, 7), 4, &[(3, 6, false, 0, 4), (6, 7, false, 4, 1)]);
        check(&[4, 5, 5, 5, 6], (3, 6), 3, &[(3, 4, false, 0, 1), (4, 5, false, 1, 3), (5, 6, false, 4, 1)]);
        check(
            &[4, 5, 5, 5, 5, 5, 6],
            (3, 9),
            2,
            &[(3, 4, false, 0, 1), (4, 5, true, 1, 2), (4, 5, true, 3, 2), (4, 5, false, 5, 1), (5, 9, false, 6, 1)],
        );
        check(&[5, 5, 5, 5], (3, 5), 2, &[(3, 5, true, 0, 2), (3, 5, false, 2, 2)]);
        check(
            &[5, 5, 5],
            (3, 6),
            0,
            &[(3, 5, true, 0, 1), (3, 5, true, 1, 1), (3, 5, false, 2, 1), (5, 6, false, 3, 0)],
        );
    }
}
