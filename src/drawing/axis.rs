//! Steps as places on a line.

/// How many marks there are between the ends, about.
const MARKS: f64 = 4.0;
/// What the words at a mark take, about.
const ROOM: f64 = 80.0;

/// A line of steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    first: u64,
    last: u64,
    left: f64,
    right: f64,
}

impl Axis {
    /// One that has all of `steps` on it.
    pub(super) fn over(steps: impl Iterator<Item = u64>, left: f64, right: f64) -> Self {
        let (first, last) = steps.fold((u64::MAX, 0), |(first, last), step| (first.min(step), last.max(step)));
        Self { first: first.min(last), last, left, right }
    }

    pub(super) fn x(&self, step: u64) -> f64 {
        let length = self.last.saturating_sub(self.first);
        if length == 0 {
            return self.left;
        }
        let share = step.saturating_sub(self.first).min(length) as f64 / length as f64;
        self.left + share * (self.right - self.left)
    }

    /// Steps to be named: both ends, and round numbers between them where there is room. Each with its place, and where
    /// its words are anchored.
    pub(super) fn ticks(&self) -> Vec<(u64, f64, &'static str)> {
        let mut ticks = vec![(self.first, self.x(self.first), "start")];
        if self.last == self.first {
            return ticks;
        }
        let stride = stride(self.last - self.first);
        let mut step = (self.first / stride).saturating_add(1).saturating_mul(stride);
        while step < self.last {
            let x = self.x(step);
            let is_free = ticks
                .last()
                .is_none_or(|(_, before, anchor)| x - before >= if *anchor == "start" { ROOM * 1.5 } else { ROOM });
            if is_free && self.right - x >= ROOM * 1.5 {
                ticks.push((step, x, "middle"));
            }
            step = step.saturating_add(stride);
        }
        ticks.push((self.last, self.right, "end"));
        ticks
    }
}

/// The round number, 1, 2 or 5 times a power of ten, of which about as many fit into `length` as there are marks.
fn stride(length: u64) -> u64 {
    let least = (length as f64 / MARKS).max(1.0);
    let mut power = 1u64;
    loop {
        for factor in [1, 2, 5] {
            let stride = power.saturating_mul(factor);
            if stride as f64 >= least || stride == u64::MAX {
                return stride;
            }
        }
        power = power.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_do_not_touch() {
        for (first, last, expected) in [
            (0, 0, vec![0]),
            (7, 8, vec![7, 8]),
            (0, 100, vec![0, 50, 100]),
            (20_130_930, 20_131_231, vec![20_130_930, 20_131_100, 20_131_231]),
            (0, i64::MAX as u64, vec![0, 5_000_000_000_000_000_000, i64::MAX as u64]),
        ] {
            let axis = Axis::over([last, first].into_iter(), 0.0, 400.0);
            let ticks = axis.ticks();
            assert_eq!(ticks.iter().map(|t| t.0).collect::<Vec<_>>(), expected);
            assert!(ticks.iter().zip(ticks.iter().skip(1)).all(|(a, b)| b.1 - a.1 >= ROOM), "{ticks:?}");
        }
        let empty = Axis::over(std::iter::empty(), 1.0, 2.0);
        assert_eq!((empty.x(5), empty.ticks().len()), (1.0, 1));
    }
}
