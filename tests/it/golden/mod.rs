//! Tables that other engines made, as targets: each is reloaded, or refused with the reason and not touched.

mod must;
mod witnesses;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use serde_json::Value;

use self::must::{MUST, Must, RELOAD};
use self::witnesses::Witnesses;
use crate::program::{Landing, Ran, Readers, Site, UNSYNCED, names};

const TEST: &str = "tables_of_other_engines_are_reloaded_or_refused_untouched";
const TRUNCATE: &str = "--set=pipelines.p.views.rows.connectors.lake.on_existing=truncate";

/// The partition columns of all tables, which the view has too, so that their partitioning can be kept.
const PARTITION_COLUMNS: &str = "part _2 as_int as_long as_byte as_short as_boolean as_float as_double as_string \
    as_string_lit_null as_date as_timestamp as_big_decimal tsNtzPartition time odd day price at long flag word local";

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
            Must::Repair { code: 3, .. } => ([4, 0, 3, 3], ["not ours", "", "cutover reset", "cutover reset"]),
            Must::Repair { .. } => ([1, 1, 1, 1], ["has no Delta log"; 4]),
            Must::Reload | Must::Refuse { .. } => ([4, 0, 5, 5], ["not ours", "foreign", "not ours", "not ours"]),
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
        let (code, remedy) = match self.must {
            Must::Refuse { code, remedy, .. } => (code, remedy),
            Must::Repair { code, .. } => (code, "cutover reset"),
            Must::Reload => (5, ""),
        };
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
            Must::Repair { code, reason } => {
                let said = self.run(&["run", "--once", UNSYNCED, TRUNCATE], code, reason).stderr;
                self.expect_untouched("the refusal");
                let flag: &[&str] = if said.contains("--rebuild-log") { &["--rebuild-log"] } else { &[] };
                let args = [&["reset", "lake", "--yes", UNSYNCED, TRUNCATE], flag].concat();
                self.run(&args, 0, "generation 1, cutover step 10");
            }
        }
    }

    /// Delivers a further step to a table that was reloaded, and looks at it by the program's own commands.
    fn follow(&mut self) {
        if self.is_refused {
            return;
        }
        self.run(&["run", "--once", UNSYNCED], 0, "last step 12");
        self.run(&["verify", "table", "--deep"], 0, "healthy");
        self.run(&["show", "table", "-o", "json"], 0, "\"generation\":1");
        // Of a table whose log is gone nothing of others is left.
        let others = if let Must::Repair { .. } = self.must { "reload" } else { "foreign" };
        self.run(&["history", "table"], 0, others);
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
    file.parquet(view_rows(&[1, 2, 3, 4, 5], &[true; 5])).land();
}

/// Lands an insert, an update and a delete at the steps 11 and 12.
fn land_changes(site: &Site) {
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("__step", Arc::new(Int64Array::from(vec![11, 11, 12]))),
        ("__op", Arc::new(StringArray::from(vec!["i", "u", "d"]))),
    ];
    columns.extend(view_rows(&[6, 1, 2], &[true, true, false]));
    Landing::new(&site.feed().join("rows"), "changes-10-12.parquet".to_string()).parquet(columns).land();
}

/// Rows whose columns beside the id are text, some of it of a kind that folders do not like, or null where `full` is not.
pub(crate) fn view_rows(ids: &[i64], full: &[bool]) -> Vec<(&'static str, ArrayRef)> {
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
