//! Processes that are killed at any moment, and what they leave.

use crate::object_stores::server::Server;
use crate::program::{Chance, Model, PATIENCE, Site, UNSYNCED, size, wait_until};

/// In so many kills of a writer files are joined.
const ENOUGH: u64 = 20;

#[test]
fn kills_at_random_moments_lose_and_double_nothing() {
    const TEST: &str = "kills_at_random_moments_lose_and_double_nothing";
    kill_at_random_moments(TEST, &Site::new(), size("CUTOVER_KILLS", 12));
}

#[test]
fn kills_of_a_writer_whose_table_is_the_view_leave_the_view() {
    const TEST: &str = "kills_of_a_writer_whose_table_is_the_view_leave_the_view";
    kill_at_random_moments(TEST, &Site::new().of_current(), size("CUTOVER_CURRENT_KILLS", 4));
}

#[test]
fn kills_of_a_writer_to_an_object_store_lose_and_double_nothing() {
    const TEST: &str = "kills_of_a_writer_to_an_object_store_lose_and_double_nothing";
    let Some(server) = Server::find(TEST) else { return };
    kill_at_random_moments(TEST, &Site::in_bucket(server), size("CUTOVER_S3_KILLS", 3));
}

fn kill_at_random_moments(test: &str, site: &Site, kills: u64) {
    let mut model = Model::new(site, 2000, Chance::new(test));
    let (mut killed, mut resets) = (0, 0);
    // Files are joined by a process that commits often.
    let (most, landings) = if site.is_current() { (90, 80) } else { (14, 30) };
    while killed < kills {
        let seed = model.chance.seed;
        let is_reset = site.last_step().is_some() && model.chance.one_in(4);
        let mut args = if is_reset { vec!["reset", "rows/lake", "--yes"] } else { vec!["run"] };
        if model.chance.one_in(2) {
            args.push(UNSYNCED);
        }
        let seen = site.things();
        // Nothing yet, a file that is being written, one that no version names, a version …
        let wanted = seen + model.chance.below(if is_reset { 5 } else { most }) as usize;
        let yields = if model.chance.one_in(2) { 0 } else { model.chance.below(3000) };
        model.land_changes();
        let mut process = site.start(&args);
        let mut landed = 0;
        wait_until(PATIENCE, || {
            if landed < landings && model.chance.one_in(10) {
                model.land_changes();
                landed += 1;
            }
            // A run that waits for more than it will ever have is killed while it is idle.
            let is_idle = landed == landings && site.last_step() == Some(model.step);
            site.things() >= wanted || is_idle || process.ended().is_some()
        });
        (0..yields).for_each(|_| std::thread::yield_now());
        match process.ended() {
            None => {
                process.kill();
                killed += 1;
                resets += u64::from(is_reset);
            }
            Some(status) => {
                let said = process.said();
                assert!(is_reset && status.success(), "{args:?} ended by itself: {status}; {said}; seed {seed}");
            }
        }
        if site.last_step().is_some() {
            site.run(&["verify", &site.uri()]).ended(0, seed);
        }
    }
    site.check(&model, test);
    let stamps = site.stamps();
    let joins = stamps.iter().filter(|stamp| stamp["kind"] == "maintenance").count();
    eprintln!("{test}: {killed} kills, {resets} of them of resets; {} versions, {joins} of joined files", stamps.len());
    assert!(joins > 0 || !site.is_current() || kills < ENOUGH, "no files were joined; seed {}", model.chance.seed);
}

#[test]
fn a_first_load_that_was_killed_is_done_once_by_the_next_run() {
    const TEST: &str = "a_first_load_that_was_killed_is_done_once_by_the_next_run";
    let mut chance = Chance::new(TEST);
    let seed = chance.seed;
    for _ in 0..size("CUTOVER_KILLS", 12) / 2 {
        let site = Site::new();
        let mut model = Model::new(&site, 20_000, chance);
        model.land_changes();
        let wanted = 1 + model.chance.below(4) as usize;
        let yields = model.chance.below(3000);
        let durability: &[&str] = if model.chance.one_in(2) { &[UNSYNCED] } else { &[] };
        let args = [&["run"], durability].concat();
        let mut process = site.start(&args);
        assert!(wait_until(PATIENCE, || site.things() >= wanted || process.ended().is_some()), "seed {seed}");
        (0..yields).for_each(|_| std::thread::yield_now());
        assert!(process.ended().is_none(), "{}; seed {seed}", process.said());
        process.kill();
        site.check_alone(&model);
        chance = model.chance;
    }
}
