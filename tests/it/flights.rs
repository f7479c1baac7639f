//! Real input: a feed of flights delivered by the program, read by other engines, and computed anew from the feed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Ran, Readers, same};

const CUTOVER: &str = "20130930";
const MIDDLE: &str = "20131104";
const ENGINES: [&str; 3] = ["duckdb", "polars", "deltalake"];

/// A table for the feed in fixtures/.
struct Flights {
    home: TempDir,
}

impl Flights {
    fn new() -> Self {
        Self { home: TempDir::new().unwrap() }
    }

    fn table(&self) -> String {
        self.home.path().join("table").display().to_string()
    }

    /// Runs the program with the configuration that stands in fixtures/; it must end well.
    fn run(&self, args: &[&str]) -> Ran {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let uri = format!("--set=pipelines.flights.views.flights.connectors.lake.delta.uri={}", self.table());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.current_dir(root).args(["-c", "fixtures/flights.toml"]).args(args);
        if args[0] != "verify" {
            command.arg(uri);
        }
        Ran::of(command.output().unwrap()).ended(0, 0)
    }

    fn check_state(&self, readers: &Readers, engines: &[&str]) {
        let expected = expect(readers, &[]);
        for engine in engines {
            same(&readers.read(&["state", engine, &self.table(), "--key=id"]), &expected, 0);
        }
        readers.read(&["log", &self.table()]);
        self.run(&["verify", &self.table()]);
    }
}

fn expect(readers: &Readers, args: &[&str]) -> Value {
    let feed: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/flights");
    readers.expect(&[&[feed.to_str().unwrap(), "flights", "--key=id"], args].concat())
}

#[test]
fn flights_are_what_their_feed_says() {
    let flights = Flights::new();
    flights.run(&["run", "--once"]);
    let Some(readers) = Readers::find("flights_are_what_their_feed_says") else { return };
    let first = expect(&readers, &["--changelog=1", "--cutover", CUTOVER, "--step", CUTOVER]);
    let all = expect(&readers, &["--changelog=1", "--cutover", CUTOVER]);
    for engine in ENGINES {
        same(&readers.read(&[engine, &flights.table(), "--version=0"]), &first, 0);
        same(&readers.read(&[engine, &flights.table()]), &all, 0);
    }
    flights.check_state(&readers, &ENGINES);
}

#[test]
fn a_second_run_writes_nothing() {
    let flights = Flights::new();
    flights.run(&["run", "--once"]);
    let listed = || {
        let walk = Command::new("find").args([&flights.table(), "-printf", "%p %s %i %T@\n"]).output().unwrap();
        Ran::of(walk).ended(0, 0).stdout
    };
    let before = listed();
    flights.run(&["run", "--once"]);
    assert_eq!(listed(), before);
}

#[test]
fn flights_are_what_their_feed_says_after_a_reset_in_the_middle() {
    let flights = Flights::new();
    flights.run(&["run", "--once", "--until-step", MIDDLE]);
    flights.run(&["reset", "lake", "--yes"]);
    flights.run(&["run", "--once"]);
    let Some(readers) = Readers::find("flights_are_what_their_feed_says_after_a_reset_in_the_middle") else { return };
    let log = readers.read(&["log", &flights.table()]);
    assert_eq!(log["generation"], 2);
    flights.check_state(&readers, &["duckdb"]);
}

#[test]
fn statistics_skip_no_row_that_matches() {
    let flights = Flights::new();
    flights.run(&["run", "--once"]);
    let Some(readers) = Readers::find("statistics_skip_no_row_that_matches") else { return };
    let matching = |engine: &str, predicate: &str| {
        readers.read(&[engine, &flights.table(), "--columns=__step,id,carrier", "--where", predicate])
    };
    let predicates = [
        "id = 256415",
        "__step > 20131229",
        "carrier = 'UA'",
        "time_hour >= '2013-10-05T09:00:00Z' and time_hour < '2013-10-05T11:00:00Z'",
    ];
    for predicate in predicates {
        // A predicate of every row that only the row itself can answer: nothing is skipped by it.
        let all = matching("duckdb", &format!("({predicate}) is not distinct from (random() >= 0.0)"));
        assert!(all["rows"].as_u64().unwrap() > 0, "{predicate} matches nothing");
        same(&matching("duckdb", predicate), &all, 0);
    }
}
