//! Two writers, a source, readers, somebody else and an operator, on a virtual clock and a storage that fails.
//!
//! One seed decides about everything: who moves next, what fails, who dies, how long all sleep. `oracle` judges every
//! version from its bytes and from the view's history.

mod feed;
mod gate;
mod oracle;
mod others;
mod process;
mod schedule;
mod storage;
mod time;

use std::collections::BTreeMap;

use self::schedule::{Played, play};
use crate::program::size;

/// How many lines of a history are shown.
const TAIL: usize = 60;

fn played(seed: u64) -> Played {
    // The kernel's calls run on the one worker, those of processes on this thread.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.block_on(play(seed))
}

fn demand_sound(seed: u64, played: &Played) {
    let Some(violation) = &played.violation else { return };
    let tail = &played.history[played.history.len().saturating_sub(TAIL)..];
    panic!(
        "{}\n\nseed {seed}: {violation}\nalone: CUTOVER_SEED={seed} CUTOVER_SEEDS=1 cargo test --test it simulation::seeds",
        tail.join("\n")
    );
}

#[test]
fn seeds_of_faults_break_no_rule() {
    let first: u64 = std::env::var("CUTOVER_SEED").map_or(1, |text| text.parse().unwrap());
    let seeds = size("CUTOVER_SEEDS", 60);
    let (mut faults, mut fewest, mut versions, mut fired) = (0, u64::MAX, 0, BTreeMap::new());
    for seed in first..first + seeds {
        let played = played(seed);
        demand_sound(seed, &played);
        faults += played.faults;
        fewest = fewest.min(played.faults);
        versions += played.versions;
        for (fault, times) in played.fired {
            *fired.entry(fault).or_insert(0) += times;
        }
    }
    eprintln!("{seeds} seeds from {first}: {versions} versions, {faults} faults, {fewest} at least in each; {fired:?}");
}

#[test]
fn one_seed_gives_one_history() {
    for seed in 1..=size("CUTOVER_SEEDS_TWICE", 4) {
        let (once, again) = (played(seed), played(seed));
        let differ = once.history.iter().zip(&again.history).position(|(a, b)| a != b);
        assert_eq!(differ.map(|at| (&once.history[at], &again.history[at])), None, "seed {seed}");
        assert_eq!(once.history.len(), again.history.len(), "seed {seed}");
    }
}
