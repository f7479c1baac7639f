//! Damage to a table's log and files: one reset repairs each kind, and other engines read what it leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Verdict, verify, verify_deep};
use cutover::log::{Facts, Log};
use cutover::sink::{Rebuild, RebuildPlan};
use cutover::{Access, Applied, Durability, ErrorKind, Location, OnExisting, World};
use futures::FutureExt;
use object_store::ObjectStore;
use serde_json::{Value, json};

use crate::faults::{Call, Fault, FaultStore};
use crate::golden::view_rows;
use crate::program::{Chance, Landing, Readers, Site, UNSYNCED, size};
use crate::tables::{Made, Table, checkpoint, entry, made};
use crate::world::{changes, log, memory, settings, sink, state, target, view, world};

const TEST: &str = "each_kind_of_damage_is_repaired_by_one_reset_and_read_by_others";
const HINT: &str = "_delta_log/_last_checkpoint";

/// The table that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// One of ours: generation 2 from version 4 on, checkpoints at the versions 6 and 8, the head at 12.
    Whole,
    /// The same, cleaned up below version 8.
    Cleaned,
    /// One of tests/golden.
    Foreign(&'static str),
}

/// What a table needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Reset,
    RebuildLog,
}

use Needs::{RebuildLog, Reset};
use On::{Cleaned, Foreign, Whole};

/// Kind, table, how it is made, and what it needs.
type Damage = (&'static str, On, fn(&mut Table), Needs);

const KINDS: &[Damage] = &[
    ("a data file is gone", Whole, |t| drop(t.files.remove(&data_file(t))), Reset),
    ("a data file is cut", Whole, |t| t.at(&data_file(t)).truncate(100), Reset),
    ("a data file is flipped", Whole, |t| flip(t.at(&data_file(t))), Reset),
    ("a checkpoint has no bytes", Whole, |t| t.at(&checkpoint(8)).clear(), Reset),
    ("a checkpoint is cut", Whole, |t| halve(t.at(&checkpoint(8))), Reset),
    ("a checkpoint is garbage", Whole, |t| t.put(&checkpoint(8), &[7; 5000]), Reset),
    ("a checkpoint is flipped", Whole, |t| flip(t.at(&checkpoint(8))), Reset),
    ("every checkpoint is garbage", Whole, |t| [6, 8].iter().for_each(|v| t.put(&checkpoint(*v), &[7; 99])), Reset),
    ("a checkpoint holds an older state", Whole, |t| t.put(&checkpoint(8), &t.files[&checkpoint(6)].clone()), Reset),
    ("a checkpoint holds a later state", Whole, |t| t.put(&checkpoint(6), &t.files[&checkpoint(8)].clone()), Reset),
    (
        "a checkpoint lacks a part",
        Whole,
        |t| {
            let bytes = t.files.remove(&checkpoint(8)).unwrap();
            t.put("_delta_log/00000000000000000008.checkpoint.0000000001.0000000002.parquet", &bytes);
        },
        Reset,
    ),
    ("the hint is no JSON", Whole, |t| t.put(HINT, b"{\"version\":"), Reset),
    ("the hint has no bytes", Whole, |t| t.put(HINT, b""), Reset),
    ("the hint names no version", Whole, |t| t.put(HINT, b"{\"size\":3}"), Reset),
    ("the hint names a checkpoint that is not there", Whole, |t| t.put(HINT, b"{\"version\":7,\"size\":9}"), Reset),
    ("the hint names other parts", Whole, |t| t.put(HINT, b"{\"version\":8,\"size\":9,\"parts\":3}"), Reset),
    ("the hint says another size", Whole, |t| t.put(HINT, b"{\"version\":8,\"size\":999}"), Reset),
    (
        "the hint names a damaged checkpoint below a sound one",
        Whole,
        |t| {
            t.at(&checkpoint(6)).clear();
            t.put(HINT, b"{\"version\":6,\"size\":9}");
        },
        Reset,
    ),
    ("the checkpoint's entry is torn", Whole, |t| halve(t.at(&entry(8))), Reset),
    ("an old entry is torn", Whole, |t| halve(t.at(&entry(2))), Reset),
    ("an entry above the checkpoint is torn", Whole, |t| halve(t.at(&entry(10))), RebuildLog),
    ("an entry above the checkpoint is gone", Whole, |t| t.lose(&[&entry(10)]), RebuildLog),
    // It loads, for the kernel takes it for a version that does nothing.
    ("an entry above the checkpoint has no bytes", Whole, |t| t.at(&entry(9)).clear(), Reset),
    ("an entry above the checkpoint is garbage", Whole, |t| t.put(&entry(11), &[200; 300]), RebuildLog),
    ("the newest entry is torn", Whole, |t| halve(t.at(&entry(12))), RebuildLog),
    ("the newest entry has no bytes", Whole, |t| t.at(&entry(12)).clear(), RebuildLog),
    (
        "the newest entry is gone and its checksum is not",
        Whole,
        |t| {
            t.lose(&[&entry(12)]);
            t.put("_delta_log/00000000000000000012.crc", b"{\"tableSizeBytes\":1}");
        },
        RebuildLog,
    ),
    ("an entry stands far above the others", Whole, |t| t.put(&entry(40), &t.files[&entry(12)].clone()), RebuildLog),
    (
        "the newest entries are gone beside a checkpoint",
        Whole,
        |t| (8..=12).for_each(|v| t.lose(&[&entry(v)])),
        RebuildLog,
    ),
    (
        "entries are torn below and above damaged checkpoints",
        Whole,
        |t| {
            [6, 8].iter().for_each(|v| t.at(&checkpoint(*v)).clear());
            [3, 11].iter().for_each(|v| halve(t.at(&entry(*v))));
        },
        RebuildLog,
    ),
    (
        "the first entry is gone, and no checkpoint is left",
        Whole,
        |t| t.lose(&[&entry(0), &checkpoint(6), &checkpoint(8)]),
        RebuildLog,
    ),
    ("a cleaned log's checkpoint is gone", Cleaned, |t| t.lose(&[&checkpoint(8)]), RebuildLog),
    ("a cleaned log's checkpoint and hint are gone", Cleaned, |t| t.lose(&[&checkpoint(8), HINT]), RebuildLog),
    ("a cleaned log's checkpoint has no bytes", Cleaned, |t| t.at(&checkpoint(8)).clear(), RebuildLog),
    ("a cleaned log's checkpoint is cut", Cleaned, |t| halve(t.at(&checkpoint(8))), RebuildLog),
    ("a cleaned log's checkpoint is garbage", Cleaned, |t| t.put(&checkpoint(8), &[7; 5000]), RebuildLog),
    ("a cleaned log holds but its hint", Cleaned, |t| t.keep(|name| name.ends_with("_last_checkpoint")), RebuildLog),
    (
        "a cleaned log holds but a torn entry",
        Cleaned,
        |t| {
            t.keep(|name| name.ends_with("12.json"));
            halve(t.at(&entry(12)));
        },
        RebuildLog,
    ),
    (
        "a cleaned log's checkpoint holds an older state",
        Cleaned,
        |t| {
            let older = t.files.remove("older").unwrap();
            t.put(&checkpoint(8), &older);
        },
        RebuildLog,
    ),
    ("the log is gone", Whole, |t| t.keep(|_| false), RebuildLog),
    (
        "neither protocol nor metadata are left",
        Whole,
        |t| {
            t.lose(&[&checkpoint(6), &checkpoint(8), HINT]);
            for version in [0, 4] {
                let kept = t
                    .actions(version)
                    .into_iter()
                    .filter(|a| a.get("metaData").is_none() && a.get("protocol").is_none());
                let kept: Vec<Value> = kept.collect();
                t.set(version, &kept);
            }
        },
        RebuildLog,
    ),
    (
        "others' checkpoint is garbage",
        Foreign("deltalake-checkpoint"),
        |t| newest(t, ".parquet", |b| *b = vec![7; 99]),
        Reset,
    ),
    ("others' hint is no JSON", Foreign("duckdb-checkpoint"), |t| t.put(HINT, b"{"), Reset),
    ("others' v2 checkpoint is cut", Foreign("sail-v2-checkpoint"), |t| newest(t, ".checkpoint", halve), Reset),
    (
        "others' cleaned log lost its checkpoint",
        Foreign("deltalake-cleaned-log"),
        |t| t.keep(|n| !n.contains("checkpoint")),
        RebuildLog,
    ),
    ("others' newest entry is torn", Foreign("deltalake-named"), |t| newest(t, ".json", halve), RebuildLog),
    ("a txn of others outlives a torn log", Foreign("deltalake-app-txn"), |t| newest(t, ".json", halve), RebuildLog),
    (
        "deletion vectors, and the newest entry is torn",
        Foreign("sail-deletion-vectors"),
        |t| newest(t, ".json", halve),
        RebuildLog,
    ),
    (
        "partitions, and the newest entry has no bytes",
        Foreign("sail-partitioned"),
        |t| newest(t, ".json", Vec::clear),
        RebuildLog,
    ),
    (
        "mapped columns, and the newest entry is torn",
        Foreign("sail-column-mapping-name"),
        |t| newest(t, ".json", halve),
        RebuildLog,
    ),
    (
        "in-commit timestamps, and the newest entry is torn",
        Foreign("sail-in-commit-timestamps"),
        |t| newest(t, ".json", halve),
        RebuildLog,
    ),
    (
        "v2 checkpoints, and the newest entry is torn",
        Foreign("sail-v2-checkpoint"),
        |t| newest(t, ".json", halve),
        RebuildLog,
    ),
    ("others' log is gone", Foreign("deltalake-plain"), |t| t.keep(|_| false), RebuildLog),
];

impl Table {
    fn at(&mut self, path: &str) -> &mut Vec<u8> {
        self.files.get_mut(path).unwrap_or_else(|| panic!("{path}"))
    }

    fn put(&mut self, path: &str, bytes: &[u8]) {
        self.files.insert(path.to_string(), bytes.to_vec());
    }

    fn lose(&mut self, paths: &[&str]) {
        paths.iter().for_each(|path| drop(self.files.remove(*path).unwrap_or_else(|| panic!("{path}"))));
    }

    /// Loses the log's files whose names are not wanted.
    fn keep(&mut self, is_wanted: fn(&str) -> bool) {
        self.files.retain(|path, _| !path.starts_with("_delta_log/") || is_wanted(path));
    }
}

fn halve(bytes: &mut Vec<u8>) {
    bytes.truncate(bytes.len() / 2);
}

/// Other bits where a file's pages are.
fn flip(bytes: &mut [u8]) {
    let third = bytes.len() / 3;
    bytes[third..third + 40].iter_mut().for_each(|byte| *byte ^= 0xff);
}

fn newest(t: &mut Table, what: &str, damage: fn(&mut Vec<u8>)) {
    let is_it = |path: &str| match what {
        ".json" => path.len() == entry(0).len() && path.ends_with(".json"),
        _ => path.contains(".checkpoint."),
    };
    let path = t.files.keys().rfind(|p| p.starts_with("_delta_log/0") && is_it(p)).unwrap().clone();
    damage(t.at(&path));
}

/// A live file of ours.
fn data_file(t: &Table) -> String {
    t.live().last().unwrap().1["path"].as_str().unwrap().to_string()
}

/// Lands one changed and one added row a step.
fn land_changes(site: &Site, from: u64, to: u64) {
    let (from, to) = (from as i64, to as i64);
    let steps: Vec<i64> = (from + 1..=to).flat_map(|step| [step, step]).collect();
    let ids: Vec<i64> = (from + 1..=to).flat_map(|step| [1, step]).collect();
    let ops: Vec<&str> = ids.iter().map(|id| if *id == 1 { "u" } else { "i" }).collect();
    let mut columns: Vec<(&str, ArrayRef)> =
        vec![("__step", Arc::new(Int64Array::from(steps))), ("__op", Arc::new(StringArray::from(ops)))];
    columns.extend(view_rows(&ids, &vec![true; ids.len()]));
    Landing::new(&site.feed().join("rows"), format!("changes-{from}-{to}.parquet")).parquet(columns).land();
}

fn uri(folder: &str) -> String {
    format!("--set=pipelines.p.views.rows.connectors.lake.delta.uri={folder}")
}

fn write_checkpoint(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let location = Location::open(folder.to_str().unwrap(), Access::Write(Durability::None)).unwrap();
        let log = Log::new(location, World::system());
        log.checkpoint(&mut log.facts().await.unwrap()).await.unwrap();
    });
}

/// The tables by what they are.
struct Templates {
    whole: Table,
    cleaned: Table,
    foreign: BTreeMap<&'static str, Table>,
}

impl Templates {
    /// Makes ours by the program, over the feed of `site`, which ends at step 20.
    fn make(site: &Site) -> Self {
        let snapshot = Landing::new(&site.feed().join("rows"), "snapshot-10.parquet".to_string());
        snapshot.parquet(view_rows(&[1, 2, 3, 4, 5], &[true; 5])).land();
        let run = |args: &[&str]| drop(site.run(&[args, &[UNSYNCED]].concat()).ended(0, 0));
        run(&["run", "--once"]);
        land_changes(site, 10, 12);
        run(&["run", "--once"]);
        run(&["reset", "lake", "--yes"]);
        for (from, to) in [(12, 14), (14, 16), (16, 18), (18, 20)] {
            land_changes(site, from, to);
            run(&["run", "--once"]);
            if to <= 16 {
                write_checkpoint(&site.table());
            }
        }
        let whole = Table::read_from(&site.table());
        assert_eq!((whole.checkpoints(), whole.head()), (vec![6, 8], 12));
        let mut cleaned = whole.clone();
        (0..8).for_each(|version| cleaned.lose(&[&entry(version)]));
        let older = cleaned.files.remove(&checkpoint(6)).unwrap();
        cleaned.put("older", &older);
        let names: BTreeSet<&str> =
            KINDS.iter().filter_map(|(_, on, ..)| if let Foreign(name) = on { Some(*name) } else { None }).collect();
        let foreign = names.into_iter().map(|name| (name, unpacked(site, name))).collect();
        Self { whole, cleaned, foreign }
    }

    fn of(&self, on: On) -> Table {
        match on {
            Whole => self.whole.clone(),
            Cleaned => self.cleaned.clone(),
            Foreign(name) => self.foreign[name].clone(),
        }
    }
}

fn unpacked(site: &Site, name: &str) -> Table {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.tar.zst"));
    let tar = Command::new("tar").arg("--zstd").arg("-xf").arg(&archive).arg("-C").arg(site.path("")).status();
    assert!(tar.unwrap().success(), "{}", archive.display());
    let folder = site.path(name);
    let below = [folder.clone(), folder.join("delta"), folder.join(name)];
    Table::read_from(below.iter().find(|f| f.join("_delta_log").is_dir()).unwrap())
}

/// A table that is damaged.
struct Case {
    kind: &'static str,
    on: On,
    needs: Needs,
    folder: String,
    place: PathBuf,
    damaged: Table,
    whole: Table,
    problems: Vec<String>,
}

impl Case {
    fn expect(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    fn run(&mut self, site: &Site, args: &[&str], code: i32, word: &str) -> String {
        let place = uri(&self.folder);
        let truncate = "--set=pipelines.p.views.rows.connectors.lake.on_existing=truncate";
        let (sets, more): (&[&str], &[&str]) = (&[&place, UNSYNCED], &[truncate]);
        let sets = if args[0] == "verify" { &[][..] } else { sets };
        let more = if args[0] != "verify" && matches!(self.on, Foreign(_)) { more } else { &[] };
        let ran = site.run(&[args, sets, more].concat());
        let said = format!("{}{}", ran.stdout, ran.stderr);
        self.expect(ran.code == Some(code), || format!("{args:?}: exit code {:?}, not {code}: {said}", ran.code));
        self.expect(said.contains(word), || format!("{args:?} does not say {word:?}: {said}"));
        said
    }

    /// What is not the remedy changes nothing, what is repairs it.
    fn reset(&mut self, site: &Site) {
        let folder = self.folder.clone();
        let (right, wrong): (&[&str], &[&str]) = match self.needs {
            Reset => (&["reset", "lake", "--yes"], &["reset", "lake", "--yes", "--rebuild-log"]),
            RebuildLog => (&["reset", "lake", "--yes", "--rebuild-log"], &["reset", "lake", "--yes"]),
        };
        let told = site.run(&["verify", &folder]);
        if told.stdout.contains(": broken") {
            let (needs, rebuild) = (self.needs, told.stdout.contains("--rebuild-log"));
            self.expect(rebuild == (needs == RebuildLog), || format!("verify names another repair: {}", told.stdout));
        } else if self.needs == RebuildLog && !matches!(self.on, Foreign(_)) {
            self.expect(told.code == Some(1), || format!("verify finds nothing: {}", told.stdout));
        }
        let (code, word) = match self.needs {
            Reset => (5, "reset it without --rebuild-log"),
            RebuildLog if !self.damaged.files.keys().any(|path| path.starts_with("_delta_log/0")) => {
                (5, "--rebuild-log")
            }
            RebuildLog => (3, "--rebuild-log"),
        };
        self.run(site, wrong, code, word);
        let is_same = Table::read_from(&self.place).files == self.damaged.files;
        self.expect(is_same, || "what was refused changed the table".to_string());
        self.run(site, &[right, &["--dry-run"]].concat(), 0, "nothing is written");
        let is_same = Table::read_from(&self.place).files == self.damaged.files;
        self.expect(is_same, || "a dry run changed the table".to_string());
        self.run(site, right, 0, "cutover step 20");
        let after = Table::read_from(&self.place);
        for (path, bytes) in self.damaged.files.clone() {
            let is_kept = path == HINT || after.files.get(&path) == Some(&bytes);
            self.expect(is_kept, || format!("{path} is not what it was"));
        }
        self.expect_kept(&after);
    }

    /// The table is the one that it was, as far as anything tells.
    fn expect_kept(&mut self, after: &Table) {
        let version = after.head();
        let of = |t: &Table, version: u64, name: &str| -> Vec<Value> {
            let bytes = t.files.get(&entry(version)).cloned().unwrap_or_default();
            let lines = bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            lines.filter_map(|action| action.get(name).cloned()).collect()
        };
        let metadata = of(after, version, "metaData").pop().unwrap_or_default();
        let told = self.damaged.files.iter().filter(|(path, _)| path.starts_with("_delta_log/"));
        let is_told = told.into_iter().any(|(path, bytes)| {
            let text = String::from_utf8_lossy(bytes);
            path.ends_with(".json") && text.contains("\"metaData\":{") && text.contains("\"id\":\"")
        });
        let before = self.whole.metadata().map(|(_, action)| action["metaData"].clone()).unwrap_or_default();
        if is_told {
            let ids = (before["id"].clone(), metadata["id"].clone());
            self.expect(ids.0 == ids.1, || format!("the table's id was {} and is {}", ids.0, ids.1));
            let other = |m: &Value| -> BTreeMap<String, Value> {
                let all = m["configuration"].as_object().cloned().unwrap_or_default().into_iter();
                all.filter(|(key, _)| !key.starts_with("cutover.") && !key.ends_with("maxColumnId")).collect()
            };
            let (old, new) = (other(&before), other(&metadata));
            self.expect(old == new, || format!("the properties were {old:?} and are {new:?}"));
        }
        if self.needs == RebuildLog {
            let apps = |actions: Vec<Value>| -> BTreeSet<String> {
                actions.iter().map(|txn| txn["appId"].as_str().unwrap().to_string()).collect()
            };
            let old: BTreeSet<String> = (0..version)
                .flat_map(|v| apps(of(&self.damaged, v, "txn")))
                .filter(|a| !a.starts_with("cutover/"))
                .collect();
            let new = apps(of(after, version, "txn"));
            self.expect(old.is_subset(&new), || format!("txns of {old:?} became {new:?}"));
            let live: BTreeSet<String> =
                (0..version).flat_map(|v| of(&self.damaged, v, "add")).map(|a| a["path"].to_string()).collect();
            let removed: BTreeSet<String> =
                of(after, version, "remove").into_iter().map(|a| a["path"].to_string()).collect();
            self.expect(live.is_subset(&removed), || format!("of {live:?} only {removed:?} are removed"));
        }
    }

    /// A restart appends what came since, and reloads nothing.
    fn follow(&mut self, site: &Site) {
        let folder = self.folder.clone();
        let said = self.run(site, &["run", "--once"], 0, "last step 22");
        self.expect(!said.contains("rows loaded"), || format!("a restart reloads: {said}"));
        self.run(site, &["verify", &folder], 0, "healthy");
        let before = Table::read_from(&self.place).files;
        self.run(site, &["run", "--once"], 0, "0 appends");
        self.expect(Table::read_from(&self.place).files == before, || "a restart writes".to_string());
    }

    fn generation(&self) -> String {
        let table = Table::read_from(&self.place);
        table.stamp(table.head()).unwrap()["generation"].to_string()
    }
}

fn on_each(cases: &mut [Case], work: impl Fn(&mut Case) + Sync) {
    let share = cases.len().div_ceil(2);
    std::thread::scope(|scope| {
        for part in cases.chunks_mut(share) {
            scope.spawn(|| part.iter_mut().for_each(&work));
        }
    });
}

#[test]
fn each_kind_of_damage_is_repaired_by_one_reset_and_read_by_others() {
    let site = Site::new();
    let templates = Templates::make(&site);
    let mut chance = Chance::new(TEST);
    let wanted = size("CUTOVER_DAMAGES", 16);
    let mut cases: Vec<Case> = KINDS
        .iter()
        .enumerate()
        .filter(|_| chance.below(KINDS.len() as u64) < wanted)
        .map(|(n, (kind, on, damage, needs))| {
            let (folder, whole) = (format!("t{n}"), templates.of(*on));
            let mut damaged = whole.clone();
            damage(&mut damaged);
            damaged.files.remove("older");
            let place = site.path(&folder);
            damaged.write_to(&place);
            Case { kind, on: *on, needs: *needs, folder, place, damaged, whole, problems: Vec::new() }
        })
        .collect();
    on_each(&mut cases, |case| case.reset(&site));
    land_changes(&site, 20, 22);
    on_each(&mut cases, |case| case.follow(&site));
    if let Some(readers) = Readers::find(TEST) {
        check_rows(&readers, &site, &mut cases);
    }
    let problems: Vec<String> =
        cases.iter().flat_map(|c| c.problems.iter().map(|p| format!("{} ({}): {p}", c.kind, c.folder))).collect();
    assert!(problems.is_empty(), "seed {}: {} problems\n{}", chance.seed, problems.len(), problems.join("\n"));
}

/// Other engines read the rows that the feed's files come to.
fn check_rows(readers: &Readers, site: &Site, cases: &mut [Case]) {
    let feed = site.feed().display().to_string();
    let mut expected: BTreeMap<String, Value> = BTreeMap::new();
    for generation in cases.iter().map(Case::generation).collect::<BTreeSet<_>>() {
        let args = [feed.as_str(), "rows", "--key=id", "--changelog", &generation, "--cutover", "20"];
        let told = readers.expect(&args);
        expected.insert(generation, told);
    }
    let places: String = cases.iter().map(|c| format!("{}\n", c.place.display())).collect();
    let told = std::thread::scope(|scope| {
        let engines = ["duckdb", "chdb", "deltalake"];
        let asked = engines.map(|engine| scope.spawn(|| readers.tell("read.py", &["many", engine], &places)));
        asked.map(|asked| asked.join().unwrap()).concat()
    });
    let answers: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 3 * cases.len());
    for answer in answers {
        let case = cases.iter_mut().find(|c| answer["table"] == c.place.to_str().unwrap()).unwrap();
        let expected = &expected[&case.generation()];
        let is_same = (&answer["rows"], &answer["digest"]) == (&expected["rows"], &expected["digest"]);
        case.expect(is_same, || format!("{answer}, not {expected}"));
    }
}

fn stamp(id: &str) -> ResetStamp {
    ResetStamp { id: id.into(), who: "a test".into(), why: "to see".into() }
}

async fn look(store: &Arc<dyn ObjectStore>, world: &World) -> cutover::Result<Rebuild> {
    Rebuild::look(Location::on(Arc::clone(store)), settings(), world.clone()).await
}

/// Rebuilds the log with two rows at step 30.
async fn rebuild(store: &Arc<dyn ObjectStore>, world: &World, id: &str) -> cutover::Result<(Facts, Applied)> {
    let found = look(store, world).await?;
    found.deliver(view()).commit(state(30, &[7, 8]), stamp(id), Older::Refused).await
}

/// Tables of ours that do not load.
async fn wrecks() -> Vec<(&'static str, Table)> {
    let mut torn = made(Made::Checkpoints, 2).await;
    halve(torn.at(&entry(9)));
    let mut headless = made(Made::Cleaned, 2).await;
    headless.lose(&[&checkpoint(7)]);
    let mut gone = made(Made::Plain, 2).await;
    gone.keep(|_| false);
    vec![("torn", torn), ("headless", headless), ("gone", gone)]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_dies_anywhere_is_finished_by_the_next() {
    let mut chance = Chance::new("a_rebuild_that_dies_anywhere_is_finished_by_the_next");
    let mut runs = 0;
    for (what, table) in wrecks().await {
        let (world_of, clock) = world(3);
        let counting = FaultStore::new(table.store().await, Some(clock), Box::new(|_: &Call| None));
        let as_store: Arc<dyn ObjectStore> = Arc::new(counting.clone());
        rebuild(&as_store, &world_of, "a").await.unwrap();
        let every = size("CUTOVER_CRASH_EVERY", 6);
        for number in (chance.below(every) as usize..counting.calls().len()).step_by(every as usize) {
            for after in [false, true] {
                let (inner, (dying, clock)) = (table.store().await, world(4));
                let script = move |call: &Call| {
                    (call.number == number).then_some(if after { Fault::CrashAfter } else { Fault::CrashBefore })
                };
                let faulty: Arc<dyn ObjectStore> =
                    Arc::new(FaultStore::new(Arc::clone(&inner), Some(clock), Box::new(script)));
                let died = rebuild(&faulty, &dying, "a").await;
                let at = format!("{what}, call {number}, after it: {after}: {died:?}; seed {}", chance.seed);
                let restarted = world(5).0;
                match rebuild(&inner, &restarted, "b").await {
                    Ok(_) => {}
                    // All was done but the answer.
                    Err(e) => assert!(e.message().contains("so there is nothing to rebuild"), "{at}: {e}"),
                }
                let now = Table::read(&inner).await;
                let commits: Vec<Value> = now
                    .files
                    .iter()
                    .filter(|(path, _)| path.ends_with(".json") && !table.files.contains_key(*path))
                    .map(|(path, _)| now.stamp(path[11..31].parse().unwrap()).unwrap()["commit"].clone())
                    .collect();
                assert_eq!(commits.len(), 1, "{at}: {commits:?}");
                let report = verify(&log(&inner, &restarted), None).await.unwrap();
                assert_eq!(report.verdict, Verdict::Healthy, "{at}: {:#?}", report.findings);
                assert_eq!(report.last_step.map(|s| s.get()), Some(30), "{at}");
                assert!(table.files.iter().all(|(p, b)| p == HINT || now.files.get(p) == Some(b)), "{at}: lost files");
                runs += 1;
            }
        }
    }
    assert!(runs > 20, "{runs}; seed {}", chance.seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_rebuilds_at_once_one_is_fenced() {
    for (what, table) in wrecks().await {
        let inner = table.store().await;
        let first = Fault::First(Box::new(|store| {
            async move { drop(rebuild(&store, &world(8).0, "other").await.unwrap()) }.boxed()
        }));
        let raced = FaultStore::around(Arc::clone(&inner), vec![first]);
        let error = rebuild(&raced, &world(9).0, "ours").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{what}: {error}");
        let report = verify(&log(&inner, &world(2).0), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{what}: {:#?}", report.findings);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_rebuilds_at_once_one_is_fenced_while_the_other_stages_its_entry() {
    for (what, table) in wrecks().await {
        let inner = table.store().await;
        let first = Fault::First(Box::new(|store| {
            async move { drop(rebuild(&store, &world(8).0, "other").await.unwrap()) }.boxed()
        }));
        let raced = FaultStore::around(Arc::clone(&inner), vec![first]);
        let found = look(&raced, &world(9).0).await.unwrap();
        // On a disk an entry has a hidden name until it is synced.
        let staged = object_store::path::Path::from("_delta_log/.00000000000000000011.json.0.tmp");
        object_store::ObjectStoreExt::put(&inner, &staged, "{\"comm".into()).await.unwrap();
        let ended = found.deliver(view()).commit(state(30, &[7, 8]), stamp("ours"), Older::Refused).await;
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Fenced, "{what}");
        let report = verify_deep(&log(&inner, &world(2).0), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Healthy, "{what}: {:#?}", report.findings);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_with_another_table_below_is_not_rebuilt() {
    for (what, mut table) in wrecks().await {
        table.files.insert("day=1/part-0.parquet".into(), b"no Parquet".to_vec());
        let store = table.store().await;
        assert!(look(&store, &world(3).0).await.is_ok(), "{what}: folders of partitions are no tables");
        table.files.insert(format!("old/sales/{}", entry(0)), b"{}\n".to_vec());
        let store = table.store().await;
        let error = rebuild(&store, &world(3).0, "a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{what}: {error}");
        assert!(error.message().contains("\"old/sales\""), "{what}: {error}");
        assert_eq!(Table::read(&store).await.files, table.files, "{what}: something was written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_from_before_a_rebuild_is_fenced() {
    let (store, (world_of, clock)) = (memory(), world(1));
    let mut old = sink(&store, &world_of).await;
    old.append(changes(10, 12)).await.unwrap();
    old.append(changes(12, 14)).await.unwrap();
    let torn = object_store::path::Path::from(entry(1));
    object_store::ObjectStoreExt::put(&store, &torn, "{\"comm".into()).await.unwrap();
    rebuild(&store, &world(2).0, "a").await.unwrap();
    for wait in [false, true] {
        if wait {
            clock.advance(std::time::Duration::from_secs(60));
        }
        let error = old.append(changes(14, 16)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
    }
    let report = verify(&log(&store, &world(2).0), None).await.unwrap();
    assert_eq!((report.verdict, report.head), (Verdict::Healthy, 3), "{:#?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_exceeds_whatever_is_named_and_never_goes_back_unasked() {
    for (what, table) in wrecks().await {
        let (store, world) = (table.store().await, world(3).0);
        let found = look(&store, &world).await.unwrap();
        let older = found.plan(&view(), crate::world::step(9), Older::Refused).unwrap_err();
        assert!(older.message().contains("--allow-older"), "{what}: {older}");
        let plan = found.plan(&view(), crate::world::step(9), Older::Allowed).unwrap();
        let RebuildPlan::Load { generation, keeps_id, .. } = plan else { panic!("{what}: {plan:?}") };
        // The headless log has an older checkpoint that tells the id.
        assert_eq!((generation.get(), keeps_id), (3, what != "gone"), "{what}");
        let highest = table.files.keys().filter_map(|p| p.get(11..31)?.parse::<u64>().ok()).max();
        let (facts, _) = rebuild(&store, &world, "a").await.unwrap();
        assert_eq!(facts.version, Some(highest.map_or(0, |v| v + 1)), "{what}");
        let epoch = facts.ours().unwrap().epoch.get();
        assert_eq!(epoch, if what == "gone" { 1 } else { 3 }, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_of_what_is_not_ours_needs_consent_and_of_nothing_is_refused() {
    let mut foreign = Table { files: BTreeMap::new() };
    foreign.set(3, &[json!({"add": {"path": "a.parquet", "size": 3, "partitionValues": {}, "modificationTime": 1, "dataChange": true}})]);
    foreign.put("a.parquet", b"abc");
    let (store, world) = (foreign.store().await, world(3).0);
    let found = look(&store, &world).await.unwrap();
    let error = found.plan(&view(), crate::world::step(9), Older::Refused).unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("on_existing = \"truncate\""), "{error}");
    let mut consented = settings();
    consented.on_existing = OnExisting::Truncate;
    let found = Rebuild::look(Location::on(Arc::clone(&store)), consented, world.clone()).await.unwrap();
    let (facts, _) = found.deliver(view()).commit(state(30, &[1]), stamp("a"), Older::Refused).await.unwrap();
    assert_eq!(facts.version, Some(4));
    let error = look(&memory(), &world).await.unwrap_err();
    assert!(error.message().contains("no table to rebuild"), "{error}");
    let error = look(&made(Made::Checkpoints, 2).await.store().await, &world).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.message().contains("nothing to rebuild"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_sink_reloads_past_a_checkpoint_that_was_damaged_meanwhile() {
    let (store, world) = (memory(), world(1).0);
    let mut held = sink(&store, &world).await;
    held.append(changes(10, 12)).await.unwrap();
    let table = log(&store, &world);
    table.checkpoint(&mut table.facts().await.unwrap()).await.unwrap();
    let path = object_store::path::Path::from(checkpoint(1));
    object_store::ObjectStoreExt::put(&store, &path, "".into()).await.unwrap();
    assert!(target(&store, &world).await.unwrap_err().message().contains("`cutover reset`"));
    held.reload(state(13, &[4, 5]), stamp("a"), Older::Refused).await.unwrap();
    held.append(changes(13, 15)).await.unwrap();
    let report = verify(&table, None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
    assert_eq!(table.live_files(&table.facts().await.unwrap()).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_appended_to_a_table_whose_newest_entry_is_a_copy() {
    let mut table = made(Made::Plain, 2).await;
    table.put(&entry(11), &table.files[&entry(10)].clone());
    let store = table.store().await;
    let error = target(&store, &world(2).0).await.unwrap().check_follow().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContinuityLost);
    assert!(error.message().contains("version 11 repeats the one before it"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_appended_to_a_table_with_an_entry_without_bytes() {
    let mut table = made(Made::Plain, 2).await;
    table.put(&entry(8), &[]);
    let store = table.store().await;
    let error = target(&store, &world(2).0).await.unwrap().check_follow().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContinuityLost);
    assert!(error.message().contains("version 8 is empty"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_up_while_a_log_is_judged_is_no_damage() {
    let table = made(Made::Checkpoints, 2).await;
    for at in 0.. {
        let inner = table.store().await;
        let clean = |store: std::sync::Arc<dyn object_store::ObjectStore>| {
            Box::pin(async move {
                for version in 0..7 {
                    object_store::ObjectStoreExt::delete(&store, &object_store::path::Path::from(entry(version)))
                        .await
                        .unwrap();
                }
            }) as futures::future::BoxFuture<'static, ()>
        };
        let script =
            move |call: &crate::faults::Call| (call.number == at).then(|| crate::faults::Fault::First(Box::new(clean)));
        let faulty = crate::faults::FaultStore::new(inner, None, Box::new(script));
        let store: std::sync::Arc<dyn object_store::ObjectStore> = std::sync::Arc::new(faulty.clone());
        let condition = log(&store, &world(0).0).condition().await.unwrap();
        assert!(matches!(condition, cutover::log::Condition::Sound), "cleaned before call {at}: {condition:?}");
        if faulty.fired().is_empty() {
            assert!(at > 10, "a log is judged by {at} calls");
            break;
        }
    }
}
