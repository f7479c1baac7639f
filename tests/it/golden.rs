//! Tables that other engines made, as targets: each is reloaded, or refused with the reason and not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use serde_json::{Value, json};

use crate::program::{Landing, Ran, Readers, Site, UNSYNCED, names};

const TEST: &str = "tables_of_other_engines_are_reloaded_or_refused_untouched";
const TRUNCATE: &str = "--set=pipelines.p.views.rows.connectors.lake.on_existing=truncate";

/// What a run with `on_existing = "truncate"` must do to a table.
#[derive(Debug, Clone, Copy)]
enum Must {
    Reload,
    Refuse { code: i32, reason: &'static str, remedy: &'static str },
}

const RELOAD: Must = Must::Reload;
const PARTITIONED: Must = incompatible("the table is partitioned by", "choose another uri");
const MAPPED: Must = incompatible("the table property delta.columnMapping.mode is", "unset it");
const CHANGE_FEED: Must = incompatible("the table property delta.enableChangeDataFeed is \"true\"", "unset it");
const CONSTRAINED: Must = incompatible("the table property delta.constraints.", "unset it");
const APPEND_ONLY: Must = incompatible("which forbids a reload", "SET TBLPROPERTIES");
const FORGETFUL: Must = incompatible("delta.setTransactionRetentionDuration", "UNSET TBLPROPERTIES");
const NOT_KEPT: Must = incompatible("which is not kept here", "DROP FEATURE");
const NO_SCHEMA: Must = damaged("missing field `schemaString`");
const NO_METADATA: Must = damaged("none of it holds the table's metadata");
const BAD_CHECKPOINT: Must = damaged("the log cannot be replayed from its checkpoint of version 10");
const NO_LOG: Must = Must::Refuse { code: 5, reason: "but no Delta log", remedy: "restore its _delta_log" };

const fn incompatible(reason: &'static str, remedy: &'static str) -> Must {
    Must::Refuse { code: 5, reason, remedy }
}

const fn damaged(reason: &'static str) -> Must {
    Must::Refuse { code: 3, reason, remedy: "restore the damaged files of _delta_log" }
}

/// What each table must do; those of tests/golden begin with the name of the engine that made them.
const MUST: &[(&str, Must)] = &[
    ("124-decimal-decode-bug", RELOAD),
    ("125-iterator-bug", RELOAD),
    ("basic-decimal-table", PARTITIONED),
    ("basic-with-inserts-deletes-checkpoint", RELOAD),
    ("basic-with-inserts-merge", RELOAD),
    ("basic-with-vacuum-protocol-check-feature", RELOAD),
    ("canonicalized-paths-normal-a", RELOAD),
    ("canonicalized-paths-special-b", RELOAD),
    ("cdf-column-mapping-name-mode", CHANGE_FEED),
    ("cdf-table-simple", CHANGE_FEED),
    ("cdf-table-with-dv", CHANGE_FEED),
    ("checkpoint", RELOAD),
    ("data-reader-escaped-chars", PARTITIONED),
    ("data-reader-map", RELOAD),
    ("data-reader-nested-struct", RELOAD),
    ("data-reader-partition-values", PARTITIONED),
    ("data-reader-primitives", RELOAD),
    ("data-reader-timestamp_ntz", PARTITIONED),
    ("data-skipping-basic-stats-all-types", RELOAD),
    ("delete-re-add-same-file-different-transactions", RELOAD),
    ("deltalake-app-txn", RELOAD),
    ("deltalake-append-only", APPEND_ONLY),
    ("deltalake-change-feed", CHANGE_FEED),
    ("deltalake-change-feed-off", RELOAD),
    ("deltalake-checkpoint", RELOAD),
    ("deltalake-checkpoint-below", RELOAD),
    ("deltalake-cleaned-log", RELOAD),
    ("deltalake-commit-info", RELOAD),
    ("deltalake-compacted-log", RELOAD),
    ("deltalake-constraint", CONSTRAINED),
    ("deltalake-constraint-dropped", RELOAD),
    ("deltalake-deletion-vectors-allowed", RELOAD),
    ("deltalake-domain-metadata", NOT_KEPT),
    ("deltalake-empty", RELOAD),
    ("deltalake-evolved", RELOAD),
    ("deltalake-iceberg-compat", NOT_KEPT),
    ("deltalake-invariant", RELOAD),
    ("deltalake-many-versions", RELOAD),
    ("deltalake-merged", RELOAD),
    ("deltalake-named", RELOAD),
    ("deltalake-nested", RELOAD),
    ("deltalake-odd-column-names", RELOAD),
    ("deltalake-optimized", RELOAD),
    ("deltalake-overwritten", RELOAD),
    ("deltalake-overwritten-where", RELOAD),
    ("deltalake-partitioned-by-odd-strings", PARTITIONED),
    ("deltalake-partitioned-by-types", PARTITIONED),
    ("deltalake-plain", RELOAD),
    ("deltalake-primitives", RELOAD),
    ("deltalake-renamed", RELOAD),
    ("deltalake-restored", RELOAD),
    ("deltalake-row-tracking-supported", NOT_KEPT),
    ("deltalake-timestamp-ntz", RELOAD),
    ("deltalake-txn-retention", FORGETFUL),
    ("deltalake-vacuumed", RELOAD),
    ("deltalake-wide", RELOAD),
    ("deltalake-z-ordered", RELOAD),
    ("deltalog-commit-info", NO_SCHEMA),
    ("deltalog-state-reconstruction-from-checkpoint-missing-protocol", BAD_CHECKPOINT),
    ("deltalog-state-reconstruction-without-metadata", NO_METADATA),
    ("duckdb-app-txn", RELOAD),
    ("duckdb-checkpoint", RELOAD),
    ("duckdb-inserted", RELOAD),
    ("duckdb-partitioned", PARTITIONED),
    ("duckdb-three-writers", RELOAD),
    ("dv-partitioned-with-checkpoint", PARTITIONED),
    ("kernel-timestamp-int96", PARTITIONED),
    ("log-replay-dv-key-cases", RELOAD),
    ("log-replay-special-characters-a", RELOAD),
    ("no-delta-log-folder", NO_LOG),
    ("only-checkpoint-files", RELOAD),
    ("parquet-all-types", RELOAD),
    ("sail-append-only", APPEND_ONLY),
    ("sail-changed", RELOAD),
    ("sail-checkpoint", RELOAD),
    ("sail-column-default", NOT_KEPT),
    ("sail-column-mapping-deletion-vectors", MAPPED),
    ("sail-column-mapping-id", MAPPED),
    ("sail-column-mapping-name", MAPPED),
    ("sail-column-mapping-partitioned", MAPPED),
    ("sail-constraint", CONSTRAINED),
    ("sail-deletion-vectors", RELOAD),
    ("sail-deletion-vectors-checkpoint", RELOAD),
    ("sail-deletion-vectors-partitioned", PARTITIONED),
    ("sail-described", RELOAD),
    ("sail-generated-column", RELOAD),
    ("sail-identity-column", RELOAD),
    ("sail-in-commit-timestamps", NOT_KEPT),
    ("sail-partitioned", PARTITIONED),
    ("sail-partitioned-by-times", PARTITIONED),
    ("sail-plain", RELOAD),
    ("sail-timestamp-ntz", RELOAD),
    ("sail-type-widening", NOT_KEPT),
    ("sail-v2-checkpoint", RELOAD),
    ("sail-variant", NOT_KEPT),
    ("snapshot-data1", RELOAD),
    ("snapshot-data3", RELOAD),
    ("snapshot-vacuumed", RELOAD),
    ("table-with-columnmapping-mode-id", MAPPED),
    ("time-travel-schema-changes-b", RELOAD),
    ("timestamp-partitioned-table", PARTITIONED),
    ("v2-checkpoint-json", RELOAD),
    ("v2-checkpoints-parquet-without-sidecars", RELOAD),
    ("v2-classic-checkpoint-parquet", RELOAD),
];

/// The partition columns of all tables, which the view has too, so that their partitioning can be kept.
const PARTITION_COLUMNS: &str = "part _2 as_int as_long as_byte as_short as_boolean as_float as_double as_string as_string_lit_null as_date as_timestamp as_big_decimal \
    tsNtzPartition time odd day price at long flag word local";

/// Tables whose rows DuckDB reads otherwise than the engine that made them.
const READ_OTHERWISE: &[(&str, &str)] = &[
    ("data-reader-partition-values", "a partition's binary value is text"),
    ("sail-column-mapping-partitioned", "a partition's empty string is null"),
    ("sail-variant", "it has no variant"),
];

/// Tables that an engine reads neither before a reload nor after it.
const UNREAD: &[(&str, &str)] = &[("deltalake", "basic-with-vacuum-protocol-check-feature")];

/// A table that another engine made, in a site of its own.
struct Golden {
    name: String,
    must: Must,
    site: Site,
    /// Every file of the table before anybody looked at it.
    untouched: BTreeMap<PathBuf, Vec<u8>>,
    is_refused: bool,
    problems: Vec<String>,
}

impl Golden {
    fn unpack(archive: &Path) -> Self {
        let name = archive.file_name().unwrap().to_str().unwrap().trim_end_matches(".tar.zst").to_string();
        let must = MUST.iter().find(|(known, _)| *known == name).map(|(_, must)| *must);
        let site = Site::new();
        let unpacked = Command::new("tar").arg("--zstd").arg("-xf").arg(archive).arg("-C").arg(site.path("")).status();
        assert!(unpacked.unwrap().success(), "tar --zstd -xf {}", archive.display());
        let table = folder_of("_delta_log", &site.path(&name)).unwrap_or_else(|| site.path(&name).join(&name));
        let expected = folder_of("expected", &site.path(&name)).map(|folder| folder.join("expected"));
        fs::rename(table, site.table()).unwrap();
        if let Some(expected) = expected {
            fs::rename(expected, site.path("expected")).unwrap();
        }
        let problems = Vec::from_iter(must.is_none().then(|| "MUST does not say what it must do".to_string()));
        let untouched = contents(&site.table());
        let must = must.unwrap_or(RELOAD);
        Self { name, must, site, untouched, is_refused: false, problems }
    }

    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    /// Runs the program, which must end with `code` and say `word`.
    fn run(&mut self, args: &[&str], code: i32, word: &str) -> Ran {
        let ran = self.site.run(args);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        self.expect(ran.code == Some(code), || format!("{args:?}: exit code {:?}, not {code}: {said}", ran.code));
        self.expect(said.contains(word), || format!("{args:?} does not say {word:?}: {said}"));
        self.expect(!said.contains("panicked"), || format!("{args:?} panicked: {said}"));
        if args.last().is_some_and(|last| last.ends_with("json")) {
            let mut lines = ran.stdout.lines();
            self.expect(lines.all(|line| serde_json::from_str::<Value>(line).is_ok()), || format!("no JSON: {said}"));
        }
        ran
    }

    fn expect_untouched(&mut self, after: &str) {
        let is_same = contents(&self.site.table()) == self.untouched;
        self.expect(is_same, || format!("after {after} the table's files are not what they were"));
    }

    /// The commands that read know that the table is not ours, and the default leaves it alone.
    fn look(&mut self) {
        let (codes, words) = match self.must {
            Must::Refuse { code: 3, .. } => ([4, 0, 3, 3], ["not ours", "", "restore", "restore"]),
            Must::Refuse { reason: "but no Delta log", .. } => ([1, 1, 1, 1], ["has no Delta log"; 4]),
            Must::Reload | Must::Refuse { .. } => {
                ([4, 0, 5, 5], ["not ours", "foreign", "not a table of ours", "not ours"])
            }
        };
        for (command, (code, word)) in
            ["verify", "history", "show", "state"].into_iter().zip(codes.into_iter().zip(words))
        {
            let format = if command == "state" { "ndjson" } else { "json" };
            self.run(&[command, "table"], code, word);
            // In JSON the words are fewer.
            self.run(&[command, "table", "-o", format], code, "");
        }
        // A table that would be refused anyway may be refused for that.
        let (code, remedy) = if let Must::Refuse { code, remedy, .. } = self.must { (code, remedy) } else { (5, "") };
        let said = self.run(&["run", "--once", UNSYNCED], code, "").stderr;
        let is_helpful =
            said.contains("set on_existing = \"truncate\"") || (!remedy.is_empty() && said.contains(remedy));
        self.expect(is_helpful, || format!("on_existing = \"error\" names no remedy: {said}"));
        self.expect_untouched("on_existing = \"error\"");
    }

    /// The run that may replace what is there.
    fn replace(&mut self) {
        match self.must {
            Must::Reload => {
                self.run(&["run", "--once", UNSYNCED, TRUNCATE], 0, "generation 1, cutover step 10");
                self.is_refused = contents(&self.site.table()) == self.untouched;
            }
            Must::Refuse { code, reason, remedy } => {
                let said = self.run(&["run", "--once", UNSYNCED, TRUNCATE], code, reason).stderr;
                self.expect(said.contains(remedy), || format!("it names no remedy {remedy:?}: {said}"));
                self.expect_untouched("the refusal");
                self.is_refused = true;
            }
        }
    }

    /// Delivers a further step to a table that was reloaded, and looks at it by the program's own commands.
    fn follow(&mut self) {
        if self.is_refused {
            return;
        }
        self.run(&["run", "--once", UNSYNCED], 0, "last step 12");
        self.run(&["verify", "table"], 0, "healthy");
        self.run(&["show", "table", "-o", "json"], 0, "\"generation\":1");
        self.run(&["history", "table"], 0, "foreign");
        let rows = self.run(&["state", "table"], 0, "").stdout.lines().count();
        self.expect(rows == STATE, || format!("its state has {rows} rows, not {STATE}"));
    }
}

/// The folder below `folder` that holds a folder `name`.
fn folder_of(name: &str, folder: &Path) -> Option<PathBuf> {
    if folder.join(name).is_dir() {
        return Some(folder.to_owned());
    }
    names(folder).iter().map(|n| folder.join(n)).filter(|p| p.is_dir()).find_map(|below| folder_of(name, &below))
}

/// Every file below a folder with what is in it.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in names(folder).into_iter().map(|name| folder.join(name)) {
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    found
}

/// The rows of the view after the last step.
const STATE: usize = 5;

/// Lands the snapshot of step 10.
fn land_snapshot(site: &Site) {
    let file = Landing::new(&site.feed().join("rows"), "snapshot-10.parquet".to_string());
    file.parquet(rows(&[1, 2, 3, 4, 5], &[true; 5])).land();
}

/// Lands an insert, an update and a delete at the steps 11 and 12.
fn land_changes(site: &Site) {
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("__step", Arc::new(Int64Array::from(vec![11, 11, 12]))),
        ("__op", Arc::new(StringArray::from(vec!["i", "u", "d"]))),
    ];
    columns.extend(rows(&[6, 1, 2], &[true, true, false]));
    Landing::new(&site.feed().join("rows"), "changes-10-12.parquet".to_string()).parquet(columns).land();
}

/// Rows whose columns beside the id are text, some of it of a kind that folders do not like, or null where `full` is not.
fn rows(ids: &[i64], full: &[bool]) -> Vec<(&'static str, ArrayRef)> {
    let text = |column: usize| -> ArrayRef {
        let words = [Some("plain"), None, Some("a/b=c %41 ü"), Some("..")];
        let word = |id: i64| words[(id as usize + column) % words.len()];
        Arc::new(StringArray::from_iter(ids.iter().zip(full).map(|(id, full)| word(*id).filter(|_| *full))))
    };
    let mut columns: Vec<(&str, ArrayRef)> = vec![("id", Arc::new(Int64Array::from(ids.to_vec())))];
    columns
        .extend(["name"].into_iter().chain(PARTITION_COLUMNS.split(' ')).enumerate().map(|(n, name)| (name, text(n))));
    columns
}

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
struct Witnesses {
    readers: Readers,
    engines: Vec<Engine>,
    duckdb: Engine,
    about: Engine,
    /// What each table said of itself, and its rows, before anything was done to it.
    before: Vec<(Value, Value)>,
}

impl Witnesses {
    fn gather(readers: Readers, tables: &mut [Golden]) -> Self {
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
    fn check_rows(&mut self, site: &Site, tables: &mut [Golden]) {
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
    fn check_kept(&mut self, tables: &mut [Golden]) {
        for (golden, (said, read)) in tables.iter_mut().zip(&self.before).filter(|(g, _)| !g.is_refused) {
            let table = golden.site.table();
            let about = self.about.read(&table, None);
            golden.expect(kept(&about) == kept(said), || format!("it said {said} before, and now {about}"));
            let again = self.duckdb.read(&table, said["version"].as_u64());
            // Of some tables the files are not there.
            let is_same = essence(&again) == essence(read) || (again["error"].is_string() && read["error"].is_string());
            golden.expect(is_same, || format!("before the reload it held {read}, and at that version now {again}"));
        }
    }
}

/// Does `work` on each table, several at a time.
fn on_each(tables: &mut [Golden], work: impl Fn(&mut Golden) + Sync) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let share = tables.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for part in tables.chunks_mut(share) {
            scope.spawn(|| part.iter_mut().for_each(&work));
        }
    });
}

/// The archives of the project's own tables, and of those that lie beside the project.
fn archives() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (own, shared) = (root.join("tests/golden"), root.join("../shared/golden"));
    if !shared.is_dir() {
        // Not by a macro, whose words the test harness would keep to itself.
        let _ = writeln!(std::io::stderr(), "skipped: the tables of ../shared/golden in {TEST}; they are not there");
    }
    let archives = |folder: &PathBuf| {
        names(folder).into_iter().filter(|n| n.ends_with(".tar.zst")).map(|n| folder.join(n)).collect()
    };
    let (own, shared): (Vec<PathBuf>, Vec<PathBuf>) = (archives(&own), archives(&shared));
    let known = |name: &str| [&own, &shared].iter().any(|a| a.iter().any(|p| p.ends_with(format!("{name}.tar.zst"))));
    for (name, _) in MUST {
        assert!(shared.is_empty() || known(name), "MUST speaks of {name}, which is not there");
    }
    [own, shared].concat()
}

/// How many were reloaded, how many refused, and why.
fn summary(tables: &[Golden]) -> String {
    let mut refused: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for golden in tables.iter().filter(|g| g.is_refused) {
        let why = if let Must::Refuse { reason, .. } = golden.must { reason } else { "it was to reload" };
        refused.entry(why).or_default().insert(&golden.name);
    }
    let count: usize = refused.values().map(BTreeSet::len).sum();
    let mut out = format!("{TEST}: {} tables, {} reloaded, {count} refused:\n", tables.len(), tables.len() - count);
    for (why, names) in refused {
        let names: Vec<&str> = names.into_iter().collect();
        writeln!(out, "{:>4}  {why}: {}", names.len(), names.join(", ")).unwrap();
    }
    out
}

#[test]
fn tables_of_other_engines_are_reloaded_or_refused_untouched() {
    let mut tables: Vec<Golden> = archives().iter().map(|archive| Golden::unpack(archive)).collect();
    let feed = Site::new();
    land_snapshot(&feed);
    tables.iter().for_each(|golden| land_snapshot(&golden.site));
    let mut witnesses = Readers::find(TEST).map(|readers| Witnesses::gather(readers, &mut tables));

    on_each(&mut tables, |golden| {
        golden.look();
        golden.replace();
    });
    if let Some(witnesses) = &mut witnesses {
        witnesses.check_kept(&mut tables);
        witnesses.check_rows(&feed, &mut tables);
    }
    land_changes(&feed);
    on_each(&mut tables, |golden| {
        land_changes(&golden.site);
        golden.follow();
    });
    if let Some(witnesses) = &mut witnesses {
        witnesses.check_rows(&feed, &mut tables);
    }

    let _ = write!(std::io::stderr(), "{}", summary(&tables));
    let problems: Vec<String> =
        tables.iter().flat_map(|g| g.problems.iter().map(|p| format!("{}: {p}", g.name))).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
