//! Readers that poll a table while it is reloaded.

use std::fs;
use std::process::{Child, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use serde_json::Value;

use crate::program::{Chance, Landing, PATIENCE, Readers, Site, UNSYNCED, size, wait_until};

const TEST: &str = "a_reader_that_polls_during_reloads_sees_whole_states_only";

/// The numbers of rows that the states have in turn.
fn counts(rows: u64) -> [u64; 3] {
    [rows, rows / 2 + 1, rows + rows / 3]
}

/// Lands the state of `rows` rows at `step`, instead of the states before it.
fn land(site: &Site, step: u64, rows: u64) {
    let folder = site.feed().join("rows");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..rows).map(|id| format!("row {} at {step}", id % 9973))));
    Landing::new(&folder, format!("snapshot-{step}.parquet")).parquet(vec![("id", ids), ("name", names)]).land();
    if step > 1 {
        fs::remove_file(folder.join(format!("snapshot-{}.parquet", step - 1))).unwrap();
    }
}

/// A `read.py poll` that runs until a file appears.
struct Poller {
    engine: &'static str,
    child: Child,
    said: tempfile::NamedTempFile,
    until: std::path::PathBuf,
}

impl Poller {
    fn start(readers: &Readers, engine: &'static str, site: &Site, allowed: &str) -> Self {
        let until = site.path(&format!("until-{engine}"));
        let said = tempfile::NamedTempFile::new_in(site.path("")).unwrap();
        let (table, until_file) = (site.table().display().to_string(), until.display().to_string());
        let args = ["poll", engine, &table, "--allow", allowed, "--until-file", &until_file];
        let mut command = readers.command("read.py", &args);
        let child = command.stdout(Stdio::piped()).stderr(said.reopen().unwrap()).spawn().unwrap();
        let mut poller = Self { engine, child, said, until };
        let started = wait_until(PATIENCE, || poller.said().contains("reading") || poller.has_ended());
        assert!(started && !poller.has_ended(), "{engine}: {}", poller.said());
        poller
    }

    fn said(&self) -> String {
        fs::read_to_string(self.said.path()).unwrap()
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Lets it read once more and end; what it saw.
    fn end(self) -> Value {
        fs::write(&self.until, "").unwrap();
        let output = self.child.wait_with_output().unwrap();
        let answer = String::from_utf8(output.stdout).unwrap();
        let said = fs::read_to_string(self.said.path()).unwrap();
        assert!(output.status.success(), "{}: {answer}{said}", self.engine);
        serde_json::from_str(&answer).unwrap()
    }
}

#[test]
fn a_reader_that_polls_during_reloads_sees_whole_states_only() {
    let (reloads, rows) = (size("CUTOVER_RELOADS", 4), size("CUTOVER_RELOAD_ROWS", 50_000));
    let Some(readers) = Readers::find(TEST) else { return };
    let mut chance = Chance::new(TEST);
    let counts = counts(rows);
    let allowed = counts.map(|n| n.to_string()).join(",");
    for engine in ["duckdb", "polars", "deltalake"] {
        let site = Site::new();
        land(&site, 1, counts[0]);
        site.run(&["run", "--once"]).ended(0, chance.seed);
        let mut poller = Poller::start(&readers, engine, &site, &allowed);
        let mut last = 0;
        for step in 2..reloads + 2 {
            // Another state than the one before.
            last = (last + 1 + chance.below(2) as usize) % counts.len();
            land(&site, step, counts[last]);
            let args = ["reset", "lake", "--yes", "--reason", "the proof", UNSYNCED];
            site.run(&args[..if chance.one_in(2) { 5 } else { 6 }]).ended(0, chance.seed);
            assert!(!poller.has_ended(), "{engine}: {}; seed {}", poller.said(), chance.seed);
        }
        let answer = poller.end();
        eprintln!("{TEST}: {engine}: {reloads} reloads of {rows} rows, {answer}");
        let seen = answer["seen"].as_object().unwrap();
        assert!(seen.len() > 1, "{engine} saw one state only: {answer}; seed {}", chance.seed);
        let log = readers.read(&["log", &site.table().display().to_string()]);
        assert_eq!(log["generation"].as_u64(), Some(reloads + 1), "{log}; seed {}", chance.seed);
        site.run(&["verify", "table"]).ended(0, chance.seed);
    }
}
