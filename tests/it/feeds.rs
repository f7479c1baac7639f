//! Feeds as they are in use: files that come late, in any order, or damaged.

use crate::program::{Chance, Format, Landing, Model, PATIENCE, Site, wait_until};

#[test]
fn changes_that_arrive_in_any_order_are_delivered_in_theirs() {
    const TEST: &str = "changes_that_arrive_in_any_order_are_delivered_in_theirs";
    let site = Site::new();
    let mut model = Model::new(&site, 300, Chance::new(TEST));
    let mut process = site.start(&["run"]);
    let mut staged: Vec<Landing> = (0..60).map(|_| model.stage_changes()).collect();
    while !staged.is_empty() {
        let next = model.chance.below(staged.len() as u64) as usize;
        staged.swap_remove(next).land();
        (0..model.chance.below(200)).for_each(|_| std::thread::yield_now());
    }
    let arrived = wait_until(PATIENCE, || site.last_step() == Some(model.step) || process.ended().is_some());
    assert!(arrived && process.ended().is_none(), "{}; seed {}", process.said(), model.chance.seed);
    process.signal("TERM");
    assert_eq!(process.code(), Some(0), "{}; seed {}", process.said(), model.chance.seed);
    site.check(&model, TEST);
}

#[test]
fn a_hole_is_told_and_then_filled() {
    const TEST: &str = "a_hole_is_told_and_then_filled";
    let site = Site::new();
    let mut model = Model::new(&site, 50, Chance::new(TEST));
    let seed = model.chance.seed;
    model.land_changes();
    let before = model.step;
    let late = model.stage_changes();
    let beyond = model.stage_changes();
    let next = beyond.name();
    beyond.land();
    let said = site.run(&["run", "--once"]).ended(75, seed).stderr;
    assert!(said.contains(&format!("after step {before}")) && said.contains(&next), "{said}; seed {seed}");
    assert_eq!(site.last_step(), Some(before), "seed {seed}");
    late.land();
    site.check(&model, TEST);
}

#[test]
fn a_truncated_file_ends_the_run_by_its_name_and_leaves_the_table() {
    const TEST: &str = "a_truncated_file_ends_the_run_by_its_name_and_leaves_the_table";
    let site = Site::new();
    let mut model = Model::new(&site, 50, Chance::new(TEST));
    let seed = model.chance.seed;
    model.land_changes();
    site.run(&["run", "--once"]).ended(0, seed);
    let before = site.listing();
    let staged = model.stage_changes_as(Format::Parquet);
    let (name, whole) = (staged.name(), staged.content());
    staged.bytes(&whole[..whole.len() - 1]).land();
    let said = site.run(&["run", "--once"]).ended(3, seed).stderr;
    assert!(said.contains(&name), "{said}; seed {seed}");
    assert_eq!(site.listing(), before, "seed {seed}");
    Landing::new(&site.feed().join("rows"), name).bytes(&whole).land();
    site.check(&model, TEST);
}
