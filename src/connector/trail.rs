//! What happened to a connector, in order: a watch alone shows the latest state, and not those between.

use std::collections::VecDeque;
use std::sync::Arc;

use super::journal::ResetRecord;
use super::status::{Phase, Trouble};
use crate::generation::Generation;
use crate::step::Step;

/// How many occurrences are kept for who looks late.
const KEPT: usize = 256;

/// The last occurrences, as part of a status.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    kept: VecDeque<Arc<Occurrence>>,
    /// The number of the last one.
    last: u64,
    /// The phase that was told of last.
    told: Phase,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub struct Occurrence {
    /// Its number within this run, from 1 on.
    pub number: u64,
    /// When, in milliseconds since 1970 UTC.
    pub at: i64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum What {
    /// The connector does something else. `starting` and `stopped`, which pass, are left out, and so is the way back and
    /// forth between `following` and `catching_up`, which each commit takes.
    Phase {
        /// What it did before.
        from: Phase,
        /// What it does.
        to: Phase,
        /// What is wrong, where something is.
        trouble: Option<Trouble>,
    },
    /// A generation begins.
    Reloaded {
        /// Which.
        generation: Generation,
        /// The step that it starts from.
        step: Step,
        /// The version that holds it.
        version: Option<u64>,
        /// Its rows, where that is known.
        rows: Option<u64>,
    },
    /// Changes are committed.
    Appended(Append),
    /// The client of a stream said what it has.
    Acknowledged(Acknowledged),
    /// A reset is accepted, or has ended.
    Reset(Box<ResetRecord>),
}

/// Changes that were committed, in one version or several that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Append {
    /// The generation that they belong to.
    pub generation: Option<Generation>,
    /// The step before the first one.
    pub from: Step,
    /// The last step.
    pub to: Step,
    /// The last version.
    pub version: u64,
    /// How many versions.
    pub commits: u64,
    /// Rows in all.
    pub rows: u64,
    /// Bytes in all.
    pub bytes: u64,
}

/// What a client said to have, once or in several calls that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acknowledged {
    /// The generation of its stream.
    pub generation: Generation,
    /// The step that it had before.
    pub from: Step,
    /// The step that it has.
    pub to: Step,
}

impl Acknowledged {
    /// This one with what follows it; `None` where `next` does not.
    pub fn and(self, next: Self) -> Option<Self> {
        let follows = self.generation == next.generation && self.to == next.from;
        follows.then_some(Self { to: next.to, ..self })
    }
}

impl Append {
    /// This one with what follows it; `None` where `next` does not.
    pub fn and(self, next: Self) -> Option<Self> {
        let follows = self.generation == next.generation && self.to == next.from;
        follows.then_some(Self {
            from: self.from,
            commits: self.commits + next.commits,
            rows: self.rows + next.rows,
            bytes: self.bytes + next.bytes,
            ..next
        })
    }
}

impl Trail {
    /// What happened after the occurrence numbered `seen`, and how many others did that are not kept.
    pub fn after(&self, seen: u64) -> (u64, Vec<Arc<Occurrence>>) {
        let found: Vec<_> = self.kept.iter().filter(|o| o.number > seen).cloned().collect();
        let first = found.first().map_or(self.last + 1, |o| o.number);
        (first.saturating_sub(seen + 1), found)
    }

    pub(super) fn add(&mut self, at: i64, what: What) {
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.last += 1;
        self.kept.push_back(Arc::new(Occurrence { number: self.last, at, what }));
    }

    /// The connector goes over to `phase`, or stays in it.
    pub(super) fn enter(&mut self, at: i64, phase: Phase, trouble: Option<&Trouble>) {
        let passes = matches!(phase, Phase::Starting | Phase::Stopped);
        let is_commit = self.told == Phase::Following && phase == Phase::CatchingUp;
        if passes || is_commit || phase == self.told {
            return;
        }
        let from = std::mem::replace(&mut self.told, phase);
        self.add(at, What::Phase { from, to: phase, trouble: trouble.cloned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(trail: &Trail) -> Vec<(Phase, Phase)> {
        let phase = |o: &Arc<Occurrence>| match &o.what {
            What::Phase { from, to, .. } => Some((*from, *to)),
            _ => None,
        };
        trail.after(0).1.iter().filter_map(phase).collect()
    }

    #[test]
    fn a_commit_is_no_change_of_state_and_what_passes_is_not_told() {
        let mut trail = Trail::default();
        use Phase::{CatchingUp, ContinuityLost, Following, Snapshotting, Starting, Stopped};
        for phase in [Starting, CatchingUp, Following, CatchingUp, Following, Snapshotting, Stopped, Starting] {
            trail.enter(0, phase, None);
        }
        for phase in [CatchingUp, Following, ContinuityLost, ContinuityLost] {
            trail.enter(0, phase, None);
        }
        let expected = [
            (Starting, CatchingUp),
            (CatchingUp, Following),
            (Following, Snapshotting),
            (Snapshotting, CatchingUp),
            (CatchingUp, Following),
            (Following, ContinuityLost),
        ];
        assert_eq!(phases(&trail), expected);
    }

    #[test]
    fn who_looks_late_is_told_how_much_was_missed() {
        let mut trail = Trail::default();
        let append = |n: u64| {
            let (from, to) = (Step::new(n).unwrap(), Step::new(n + 1).unwrap());
            Append { generation: None, from, to, version: n, commits: 1, rows: 2, bytes: 3 }
        };
        assert_eq!(trail.after(0).0, 0);
        (0..300).for_each(|n| trail.add(0, What::Appended(append(n))));
        let (missed, kept) = trail.after(10);
        assert_eq!((missed, kept.len()), (300 - 10 - KEPT as u64, KEPT));
        let (missed, kept) = trail.after(300);
        assert!(missed == 0 && kept.is_empty());
        let two = append(1).and(append(2)).unwrap();
        assert_eq!((two.from.get(), two.to.get(), two.version, two.commits, two.rows), (1, 3, 2, 2, 4));
        assert!(append(1).and(append(3)).is_none());
    }
}
