//! Two or more processes that deliver the same view to one table: one goes on, the others are fenced.

use crate::program::{Chance, Model, PATIENCE, Running, Site, UNSYNCED, wait_until};

const FENCED: Option<i32> = Some(6);

/// A site whose view is seen by every process.
struct Race {
    test: &'static str,
    site: Site,
    model: Model,
}

impl Race {
    fn new(test: &'static str, rows: u64) -> Self {
        let site = Site::new();
        let model = Model::new(&site, rows, Chance::new(test));
        Self { test, site, model }
    }

    fn follow(&mut self) -> Running {
        let unsynced = self.model.chance.one_in(2);
        self.site.start(if unsynced { &["run", UNSYNCED] } else { &["run"] })
    }

    /// Waits until the table holds everything, or until each of `processes` has ended; whether it holds everything.
    fn arrived(&self, processes: &mut [Running]) -> bool {
        let has_arrived = || self.site.last_step() == Some(self.model.step);
        let moved = wait_until(PATIENCE, || has_arrived() || processes.iter_mut().all(|p| p.ended().is_some()));
        let said: Vec<String> = processes.iter().map(Running::said).collect();
        assert!(moved, "step {} does not arrive: {said:#?}; seed {}", self.model.step, self.model.chance.seed);
        has_arrived()
    }

    /// Lands changes, which `process` must deliver.
    fn deliver(&mut self, process: &mut Running) {
        self.model.land_changes();
        let arrived = self.arrived(std::slice::from_mut(process));
        assert!(arrived, "{}; seed {}", process.said(), self.model.chance.seed);
    }

    /// Lands changes until one of `processes` is left at most; the others ended fenced and say so.
    fn one_is_left(&mut self, mut processes: Vec<Running>) -> Option<Running> {
        while processes.len() > 1 {
            // One that is always the first leaves the others nothing to claim the table for.
            let held = self.model.chance.below(2 * processes.len() as u64) as usize;
            let held = (held < processes.len()).then(|| processes.swap_remove(held));
            held.iter().for_each(|process| process.signal("STOP"));
            self.model.land_changes();
            self.arrived(&mut processes);
            held.iter().for_each(|process| process.signal("CONT"));
            processes.extend(held);
            processes.extract_if(.., |p| p.ended().is_some()).for_each(|process| self.is_fenced(process));
        }
        processes.pop()
    }

    /// The same where nobody else writes, so that one must be left.
    fn one_goes_on(&mut self, processes: Vec<Running>) -> Running {
        let last = self.one_is_left(processes);
        last.unwrap_or_else(|| panic!("every process was fenced; seed {}", self.model.chance.seed))
    }

    fn is_fenced(&self, mut process: Running) {
        let (code, said) = (process.code(), process.said());
        assert_eq!(code, FENCED, "{said}; seed {}", self.model.chance.seed);
        assert!(said.contains("another process delivers to it"), "{said}; seed {}", self.model.chance.seed);
    }

    /// The one that is left delivers everything, ends when asked, and leaves what it should.
    fn check(&mut self, mut last: Running) {
        self.deliver(&mut last);
        last.signal("TERM");
        assert_eq!(last.code(), Some(0), "{}; seed {}", last.said(), self.model.chance.seed);
        self.site.check(&self.model, self.test);
    }
}

#[test]
fn a_second_writer_takes_over() {
    let mut race = Race::new("a_second_writer_takes_over", 500);
    let mut first = race.follow();
    race.deliver(&mut first);
    let second = race.follow();
    let newest = second.id();
    let last = race.one_goes_on(vec![first, second]);
    assert_eq!(last.id(), newest, "{}; seed {}", last.said(), race.model.chance.seed);
    race.check(last);
}

#[test]
fn a_writer_that_slept_is_fenced_when_it_wakes() {
    let mut race = Race::new("a_writer_that_slept_is_fenced_when_it_wakes", 500);
    let sleeper = race.follow();
    for _ in 0..race.model.chance.below(6) + 1 {
        race.model.land_changes();
    }
    let wanted = race.site.things() + 1 + race.model.chance.below(12) as usize;
    let step = race.model.step;
    assert!(wait_until(PATIENCE, || race.site.things() >= wanted || race.site.last_step() == Some(step)));
    sleeper.signal("STOP");
    // Who has written nothing yet holds nothing that could be taken from it.
    let held = race.site.last_step().is_some();
    let mut second = race.follow();
    race.deliver(&mut second);
    let (taken, newest) = (race.site.stamps().len(), second.id());
    sleeper.signal("CONT");
    let last = race.one_goes_on(vec![sleeper, second]);
    if held {
        assert_eq!(last.id(), newest, "{}; seed {}", last.said(), race.model.chance.seed);
        let writers: Vec<_> = race.site.stamps().split_off(taken).iter().map(|s| s["writer"].clone()).collect();
        assert!(writers.iter().all(|w| *w == writers[0]), "{writers:?}; seed {}", race.model.chance.seed);
    }
    race.check(last);
}

#[test]
fn a_chain_of_sleepers_leaves_only_the_newest_writer() {
    let mut race = Race::new("a_chain_of_sleepers_leaves_only_the_newest_writer", 500);
    let mut sleepers = Vec::new();
    for _ in 0..2 {
        let mut sleeper = race.follow();
        race.deliver(&mut sleeper);
        sleeper.signal("STOP");
        race.model.land_changes();
        sleepers.push(sleeper);
    }
    let mut third = race.follow();
    race.deliver(&mut third);
    for sleeper in &sleepers {
        sleeper.signal("CONT");
    }
    race.model.land_changes();
    sleepers.into_iter().for_each(|sleeper| race.is_fenced(sleeper));
    race.check(third);
}

#[test]
fn writers_that_start_at_once_on_no_table_load_it_once() {
    let mut race = Race::new("writers_that_start_at_once_on_no_table_load_it_once", 3000);
    let processes = vec![race.follow(), race.follow(), race.follow()];
    let last = race.one_goes_on(processes);
    race.check(last);
}

#[test]
fn a_writer_that_starts_during_a_first_load_loads_nothing_twice() {
    let mut race = Race::new("a_writer_that_starts_during_a_first_load_loads_nothing_twice", 30_000);
    let first = race.follow();
    assert!(wait_until(PATIENCE, || race.site.things() > 0), "seed {}", race.model.chance.seed);
    let second = race.follow();
    let last = race.one_goes_on(vec![first, second]);
    race.check(last);
}

#[test]
fn a_writer_and_a_reset_that_meet_fence_one_another() {
    let mut race = Race::new("a_writer_and_a_reset_that_meet_fence_one_another", 30_000);
    let seed = race.model.chance.seed;
    race.site.run(&["run", "--once"]).ended(0, seed);
    let mut resets = 0;
    for round in 0..3 {
        let mut before = race.follow();
        race.deliver(&mut before);
        let wanted = race.site.things() + race.model.chance.below(4) as usize;
        let mut reset = race.site.start(&["reset", "lake", "--yes"]);
        wait_until(PATIENCE, || race.site.things() >= wanted || reset.ended().is_some());
        let after = race.follow();
        race.model.land_changes();
        let code = reset.code();
        resets += u64::from(code == Some(0));
        assert!([Some(0), FENCED].contains(&code), "round {round}: {code:?}, {}; seed {seed}", reset.said());
        // The reset may have fenced both.
        let Some(mut last) = race.one_is_left(vec![before, after]) else { continue };
        race.model.land_changes();
        if race.arrived(std::slice::from_mut(&mut last)) {
            last.signal("TERM");
            assert_eq!(last.code(), Some(0), "round {round}: {}; seed {seed}", last.said());
        } else {
            race.is_fenced(last);
        }
    }
    race.site.check(&race.model, race.test);
    let reloads = race.site.stamps().iter().filter(|s| s["kind"] == "reload").count() as u64;
    assert_eq!(reloads, 1 + resets, "reloads and resets that say that they are done; seed {seed}");
}
