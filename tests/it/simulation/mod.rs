//! Two writers, a source, readers, somebody else and an operator, on a virtual clock and a storage that fails.
//!
//! One seed decides about everything: who moves next, what fails, who dies, how long all sleep. `oracle` judges every
//! version from its bytes and from the view's history.

mod feed;
mod gate;
mod homes;
mod oracle;
mod others;
mod process;
mod rows;
mod schedule;
mod storage;
mod time;
mod view;

use std::collections::BTreeMap;

use cutover::continuity::stamp::Layout;

use self::oracle::Moved;
use self::schedule::{Played, Sums, play};
use crate::program::{Chance, size};

/// How many lines of a history are shown, unless it is played alone.
const TAIL: usize = 60;
/// After so many broken seeds the rest would say no more.
const MOST_BROKEN: usize = 5;

/// Every fault that is played.
const FAULTS: [&str; 15] = [
    "before",
    "busy",
    "crash after",
    "crash before",
    "done, then 500",
    "done, then hang",
    "doubled",
    "expired",
    "hang",
    "late",
    "lost",
    "no space",
    "resent",
    "taken",
    "truncated",
];
/// In so many seeds each of them happens.
const ENOUGH: u64 = 30;

/// Seeds that broke a rule once, and what they found. A change of the simulation gives them other histories.
const REGRESSIONS: &[(u64, Layout, &str)] = &[
    (200091, Layout::Changelog, "a checkpoint that somebody else made, without a hint, was taken for a damaged one"),
    (200112, Layout::Changelog, "a log that others cleaned up while gc read it was taken for a damaged one"),
    (
        1001264,
        Layout::Changelog,
        "a checkpoint from which the machine's own clock took removals let gc delete what they kept",
    ),
    (
        210935,
        Layout::Changelog,
        "a version below a checkpoint of others, whose entries they deleted, was taken for damage",
    ),
];

/// The layout of a seed's table: one of both, or what the environment names. What else is drawn from the seed does not hang
/// on it, so that each has its histories whatever the other plays.
fn layout_of(seed: u64) -> Layout {
    match std::env::var("CUTOVER_SEEDS_LAYOUT").as_deref() {
        Ok("changelog") => Layout::Changelog,
        Ok("current") => Layout::Current,
        Ok(other) => panic!("CUTOVER_SEEDS_LAYOUT is {other:?}"),
        Err(_) if Chance::from_seed(!seed).one_in(2) => Layout::Current,
        Err(_) => Layout::Changelog,
    }
}

fn played(seed: u64, layout: Layout) -> Played {
    // All but the kernel, and work on indexes that are on disk, runs on this thread.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(play(seed, layout))
}

/// The end of a history that broke a rule, the rule, and how to see it again.
fn told(seed: u64, layout: Layout, played: &Played, shown: usize) -> Option<String> {
    let violation = played.violation.as_ref()?;
    let tail = played.history[played.history.len().saturating_sub(shown)..].join("\n");
    let name = if layout == Layout::Current { "current" } else { "changelog" };
    let alone = format!(
        "CUTOVER_SEEDS_LAYOUT={name} CUTOVER_SEED={seed} CUTOVER_SEEDS=1 cargo test --test it simulation::seeds"
    );
    Some(format!("{tail}\nseed {seed}: {violation}\nalone: {alone}\n"))
}

#[test]
fn seeds_of_faults_break_no_rule() {
    let given: Option<u64> = std::env::var("CUTOVER_SEED").ok().map(|text| text.parse().unwrap());
    let first = given.unwrap_or(1);
    let seeds = size("CUTOVER_SEEDS", 16);
    let (mut faults, mut fewest, mut versions, mut fired) = (0, u64::MAX, 0, BTreeMap::new());
    let (mut broken, mut maintained) = (Vec::new(), Sums::default());
    let (mut currents, mut moved) = (0, Moved::default());
    let again = REGRESSIONS.iter().map(|(seed, layout, _)| (*seed, *layout)).filter(|_| given.is_none());
    for (seed, layout) in again.chain((first..first + seeds).map(|seed| (seed, layout_of(seed)))) {
        let played = played(seed, layout);
        broken.extend(told(seed, layout, &played, if seeds == 1 { usize::MAX } else { TAIL }));
        if broken.len() == MOST_BROKEN {
            break;
        }
        faults += played.faults;
        fewest = fewest.min(played.faults);
        versions += played.versions;
        maintained.add(played.maintained);
        moved.add(played.moved);
        currents += u64::from(layout == Layout::Current);
        for (fault, times) in played.fired {
            *fired.entry(fault).or_insert(0) += times;
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    if seeds >= ENOUGH {
        let never: Vec<&str> = FAULTS.into_iter().filter(|fault| !fired.contains_key(fault)).collect();
        assert!(never.is_empty(), "faults that never happened: {never:?}");
        let Sums { checkpoints, cleaned, garbage } = maintained;
        assert!(checkpoints > 0 && cleaned > 0 && garbage > 0, "maintenance did not do everything: {maintained:?}");
    }
    if currents >= ENOUGH {
        assert!(moved.vectors > 0 && moved.stored > 0 && moved.joins > 0, "rows did not move in all ways: {moved:?}");
    }
    eprintln!(
        "{seeds} seeds from {first}, of {currents} the table is the view: {versions} versions, {faults} faults, {fewest} at least in each; {fired:?}; {maintained:?}; {moved:?}"
    );
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 1..=size("CUTOVER_SEEDS_TWICE", 2) {
        for layout in [Layout::Changelog, Layout::Current] {
            let (once, again) = (played(seed, layout), played(seed, layout));
            let differ = once.history.iter().zip(&again.history).position(|(a, b)| a != b);
            let told = differ.map(|at| (&once.history[at], &again.history[at]));
            assert_eq!(told, None, "seed {seed}, {layout:?}, line {differ:?}");
            assert_eq!(once.history.len(), again.history.len(), "seed {seed}, {layout:?}");
        }
    }
}
