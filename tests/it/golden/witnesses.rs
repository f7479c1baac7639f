//! Engines that look at golden tables: what they saw before anything was done, and what they see afterwards.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::Golden;
use super::must::Must;
use crate::program::{Readers, Site};

/// Tables whose rows DuckDB reads otherwise than the engine that made them.
const READ_OTHERWISE: &[(&str, &str)] = &[
    ("data-reader-partition-values", "a partition's binary value is text"),
    ("sail-column-mapping-partitioned", "under column mapping it reads partition columns as null"),
    ("sail-variant", "it has no variant"),
];

/// Tables that an engine reads neither before a reload nor after it.
const UNREAD: &[(&str, &str)] =
    &[("deltalake", "basic-with-vacuum-protocol-check-feature"), ("deltalake", "sail-type-widening")];

/// An engine that reads tables as long as it is asked.
struct Engine {
    name: &'static str,
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Engine {
    fn start(readers: &Readers, name: &'static str) -> Self {
        let mut command = readers.command("read.py", &["many", name]);
        // What engines say beside their answers is of no use.
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { name, child, answers }
    }

    /// What it reads in a folder, at a version or the newest.
    fn read(&mut self, folder: &Path, version: Option<u64>) -> Value {
        let version = version.map_or(String::new(), |v| format!("\t{v}"));
        let asked = writeln!(self.child.stdin.as_mut().unwrap(), "{}{version}", folder.display());
        let mut answer = String::new();
        asked.and_then(|()| self.answers.read_line(&mut answer)).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{} ended at {}", self.name, folder.display()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rows and digest of an answer, or the error.
fn essence(answer: &Value) -> Value {
    json!([answer["rows"], answer["digest"], answer["error"]])
}

/// What a table says of itself beside what is ours.
fn kept(about: &Value) -> Value {
    let mut about = about.clone();
    about.as_object_mut().unwrap().remove("version");
    if let Some(properties) = about["properties"].as_object_mut() {
        // The view's columns are mapped too, which counts them.
        properties.retain(|key, _| !key.starts_with("cutover.") && key != "delta.columnMapping.maxColumnId");
    }
    about
}

/// Engines that look at all tables, and what they saw before.
pub(super) struct Witnesses {
    readers: Readers,
    engines: Vec<Engine>,
    duckdb: Engine,
    about: Engine,
    /// What each table said of itself, and its rows, before anything was done to it.
    before: Vec<(Value, Value)>,
}

impl Witnesses {
    pub(super) fn gather(readers: Readers, tables: &mut [Golden]) -> Self {
        let engines = ["duckdb", "chdb", "polars", "deltalake"].map(|name| Engine::start(&readers, name)).into();
        let [mut duckdb, mut about, mut parquet] =
            ["duckdb", "about", "parquet"].map(|name| Engine::start(&readers, name));
        let mut before = Vec::new();
        for golden in tables {
            let table = golden.site.table();
            let (said, read) = (about.read(&table, None), duckdb.read(&table, None));
            let expected = golden.site.path("expected");
            if expected.exists() && !READ_OTHERWISE.iter().any(|(name, _)| *name == golden.name) {
                let expected = parquet.read(&expected, None);
                let is_same = essence(&expected) == essence(&read);
                golden.expect(is_same, || format!("DuckDB reads {read}, the engine that made it {expected}"));
            }
            before.push((said, read));
        }
        Self { readers, engines, duckdb, about, before }
    }

    /// The engines read exactly the rows that the feed's files come to.
    pub(super) fn check_rows(&mut self, site: &Site, tables: &mut [Golden]) {
        let feed = site.feed().display().to_string();
        let args = [feed.as_str(), "rows", "--key=id", "--changelog", "1", "--cutover", "10"];
        let expected = self.readers.expect(&args);
        std::thread::scope(|scope| {
            let mut running = Vec::new();
            for engine in &mut self.engines {
                let places: Vec<(usize, PathBuf)> = tables
                    .iter()
                    .enumerate()
                    .filter(|(_, g)| !g.is_refused)
                    .map(|(n, g)| (n, g.site.table()))
                    .collect();
                running.push(scope.spawn(move || {
                    let read = |(n, place): (usize, PathBuf)| (n, engine.name, engine.read(&place, None));
                    places.into_iter().map(read).collect::<Vec<_>>()
                }));
            }
            for (n, engine, answer) in running.into_iter().flat_map(|r| r.join().unwrap()) {
                let is_same = essence(&answer) == essence(&expected);
                let is_unread = UNREAD.contains(&(engine, &tables[n].name)) && answer["error"].is_string();
                tables[n].expect(is_same || is_unread, || format!("{engine} reads {answer}, not {expected}"));
            }
        });
    }

    /// What is not ours is what it was, and the version before the reload is read as before.
    pub(super) fn check_kept(&mut self, tables: &mut [Golden]) {
        for (golden, (said, read)) in tables.iter_mut().zip(&self.before).filter(|(g, _)| !g.is_refused) {
            let table = golden.site.table();
            let about = self.about.read(&table, None);
            if let Must::Repair { .. } = golden.must {
                golden.expect(about["error"].is_null(), || format!("deltalake does not open it: {about}"));
                continue;
            }
            golden.expect(kept(&about) == kept(said), || format!("it said {said} before, and now {about}"));
            let again = self.duckdb.read(&table, said["version"].as_u64());
            // Of some tables the files are not there.
            let is_same = essence(&again) == essence(read) || (again["error"].is_string() && read["error"].is_string());
            golden.expect(is_same, || format!("before the reload it held {read}, and at that version now {again}"));
        }
    }
}
