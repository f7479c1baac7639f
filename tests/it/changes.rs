//! Batch jobs that follow a table by `cutover changes` and the recipe of PROTOCOL.md.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::Bookmark;
use cutover::inspect::changes::{Outcome, changes};
use cutover::log::Log;
use cutover::{
    Access, Changes, Clock, Durability, ErrorKind, Location, Sink, SinkSettings, Snapshot, Standing, StepRange,
    SystemClock, Target, View, World,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Chance, Ran, Readers, names, size};
use crate::world::step;

/// Rows of the view `(id bigint, name string)` and how many copies there are.
type Rows = BTreeMap<(i64, Option<String>), i64>;

/// A table that a writer changes, and what its view holds.
struct Table {
    dir: TempDir,
    view: View,
    world: World,
    sink: Option<Sink>,
    chance: Chance,
    rows: Rows,
    step: u64,
    next_id: i64,
}

impl Table {
    async fn new(key: &[&str], chance: Chance) -> Self {
        let columns = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
        let key = key.iter().map(|k| k.to_string()).collect();
        let view = View::new("v", &Schema::new(columns), key).unwrap();
        let (dir, world) = (TempDir::new().unwrap(), World::system());
        let (rows, step, next_id) = (Rows::new(), 100, 0);
        let mut table = Self { dir, view, world, sink: None, chance, rows, step, next_id };
        table.draw_rows();
        let loaded = table.target().await.load(table.snapshot()).await.unwrap();
        table.sink = Some(loaded);
        table
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn location(&self) -> Location {
        Location::open(self.path("table").to_str().unwrap(), Access::Write(Durability::None)).unwrap()
    }

    fn log(&self) -> Log {
        Log::new(self.location(), self.world.clone())
    }

    async fn target(&self) -> Target {
        let settings = SinkSettings::new("p/v/c", "source-1");
        Target::open(self.location(), self.view.clone(), settings, self.world.clone()).await.unwrap()
    }

    async fn sink(&mut self) -> &mut Sink {
        if self.sink.is_none() {
            self.sink = Some(self.target().await.claim().await.unwrap());
        }
        self.sink.as_mut().unwrap()
    }

    fn draw_rows(&mut self) {
        self.rows.clear();
        for _ in 0..self.chance.below(40) {
            let row = self.draw_row();
            self.rows.insert(row, 1);
        }
    }

    fn draw_row(&mut self) -> (i64, Option<String>) {
        self.next_id += 1;
        (self.next_id, self.draw_name())
    }

    fn draw_name(&mut self) -> Option<String> {
        let number = self.chance.below(1000);
        (!number.is_multiple_of(7)).then(|| format!("näme {number}"))
    }

    fn snapshot(&self) -> Snapshot {
        let rows = || self.rows.iter().flat_map(|(row, copies)| (0..*copies).map(move |_| row));
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows().map(|r| r.0)));
        let names: ArrayRef = Arc::new(rows().map(|r| r.1.as_deref()).collect::<StringArray>());
        let batch = RecordBatch::try_new(Arc::clone(self.view.schema()), vec![ids, names]).unwrap();
        Snapshot::from_batches(step(self.step), vec![batch])
    }

    /// Changes of some more steps, none of which touches a row twice.
    async fn append(&mut self) {
        let from = self.step;
        let mut changed: Vec<(u64, &str, i64, Option<String>)> = Vec::new();
        for _ in 0..2 + self.chance.below(3) {
            self.step += 1 + self.chance.below(3);
            let mut here: Vec<i64> = Vec::new();
            for _ in 0..self.chance.below(6) {
                let at = self.chance.below(self.rows.len() as u64 + 1) as usize;
                let some = self.rows.keys().nth(at).cloned().filter(|(id, _)| !here.contains(id));
                let (op, row) = match (some, self.chance.below(3)) {
                    (Some(row), 0) => {
                        self.take(&row);
                        ("d", row)
                    }
                    (Some(row), 1) if self.view.is_keyed() => {
                        self.take(&row);
                        let row = (row.0, self.draw_name());
                        self.rows.insert(row.clone(), 1);
                        ("u", row)
                    }
                    (Some(row), 1) => {
                        *self.rows.entry(row.clone()).or_default() += 1;
                        ("i", row)
                    }
                    _ => {
                        let row = self.draw_row();
                        self.rows.insert(row.clone(), 1);
                        ("i", row)
                    }
                };
                here.push(row.0);
                changed.push((self.step, op, row.0, row.1));
            }
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(changed.iter().map(|c| c.0 as i64))),
            Arc::new(StringArray::from_iter_values(changed.iter().map(|c| c.1))),
            Arc::new(Int64Array::from_iter_values(changed.iter().map(|c| c.2))),
            Arc::new(changed.iter().map(|c| c.3.as_deref()).collect::<StringArray>()),
        ];
        let batch = RecordBatch::try_new(self.view.change_schema(), columns).unwrap();
        let range = StepRange::new(step(from), step(self.step)).unwrap();
        self.sink().await.append(Changes::new(range, vec![batch]).unwrap()).await.unwrap();
    }

    fn take(&mut self, row: &(i64, Option<String>)) {
        let copies = self.rows.get_mut(row).unwrap();
        *copies -= 1;
        if *copies == 0 {
            self.rows.remove(row);
        }
    }

    async fn reset(&mut self) {
        self.step += self.chance.below(5);
        self.draw_rows();
        let reset = ResetStamp { id: self.world.ids.draw(), who: "a test".into(), why: "to see".into() };
        let snapshot = self.snapshot();
        self.sink().await.reload(snapshot, reset, Older::Refused).await.unwrap();
    }

    fn entries(&self) -> Vec<PathBuf> {
        let log = self.path("table/_delta_log");
        names(&log).into_iter().filter(|n| n.ends_with(".json")).map(|n| log.join(n)).collect()
    }

    /// Writes a checkpoint of the head and removes the entries below it, as log clean-up does.
    async fn clean_log(&self) {
        let log = self.log();
        let mut facts = log.facts().await.unwrap();
        log.checkpoint(&mut facts).await.unwrap();
        let mut entries = self.entries();
        entries.pop();
        entries.iter().for_each(|entry| fs::remove_file(entry).unwrap());
    }

    /// Changes the stamp of the newest version.
    fn restamp(&mut self, change: impl Fn(&mut Value)) {
        let path = self.entries().pop().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let (first, rest) = text.split_once('\n').unwrap();
        let mut info: Value = serde_json::from_str(first).unwrap();
        let mut stamp: Value = serde_json::from_str(info["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap();
        change(&mut stamp);
        info["commitInfo"]["userMetadata"] = stamp.to_string().into();
        fs::write(&path, format!("{info}\n{rest}")).unwrap();
        self.sink = None;
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.current_dir(self.dir.path()).args(["changes", "table"]).args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }
}

/// Where a job dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// While the program runs.
    Killed,
    /// While it reads what the program prints.
    ClosedPipe,
    /// Before it applied the rows.
    BeforeApplying,
    /// After it applied the rows and before it kept the bookmark.
    BeforeKeeping,
}

/// A job that knows the recipe only: a store, and the bookmark that belongs to it.
#[derive(Default)]
struct Job {
    rows: Rows,
    /// Generation and step that the store holds, kept in one transaction with its rows.
    holds: Option<(u64, u64)>,
}

const TRIED: [&str; 6] = ["--bookmark", "try.json", "--to", "rows.ndjson", "-o", "json"];

impl Job {
    fn prepare(table: &Table) {
        let _ = fs::remove_file(table.path("try.json"));
        if table.path("done.json").exists() {
            fs::copy(table.path("done.json"), table.path("try.json")).unwrap();
        }
    }

    /// Runs once; what the program said the rows were, or how it failed.
    fn run(&mut self, table: &Table) -> Result<Value, Ran> {
        Self::prepare(table);
        let ran = table.run(&TRIED);
        if ran.code != Some(0) {
            return Err(ran);
        }
        let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
        self.apply(table, &summary);
        fs::rename(table.path("try.json"), table.path("done.json")).unwrap();
        Ok(summary)
    }

    fn apply(&mut self, table: &Table, summary: &Value) {
        if summary["outcome"] == "reload" {
            (self.rows, self.holds) = (Rows::new(), None);
        }
        let mut last = 0;
        for line in fs::read_to_string(table.path("rows.ndjson")).unwrap().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            let (generation, at) = (row["__generation"].as_u64().unwrap(), row["__step"].as_u64().unwrap());
            assert!(at >= last, "step {at} stands behind {last}");
            last = at;
            if self.holds.is_some_and(|(g, s)| g == generation && at <= s) {
                continue;
            }
            let id = row["id"].as_i64().unwrap();
            let full = (id, row["name"].as_str().map(str::to_string));
            let is_delete = row["__op"] == "d";
            if table.view.is_keyed() {
                self.rows.retain(|(other, _), _| *other != id);
                if !is_delete {
                    self.rows.insert(full, 1);
                }
            } else {
                *self.rows.entry(full).or_default() += if is_delete { -1 } else { 1 };
            }
        }
        self.rows.retain(|_, copies| *copies != 0);
        self.holds = Some((summary["generation"].as_u64().unwrap(), summary["step"].as_u64().unwrap()));
    }

    /// Runs and dies.
    fn die(&mut self, table: &mut Table, death: Death) {
        Self::prepare(table);
        let before = fs::read(table.path("try.json")).ok();
        match death {
            Death::Killed => {
                let yields = table.chance.below(20_000);
                let mut child = table.command(&TRIED).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                (0..yields).for_each(|_| std::thread::yield_now());
                let _ = child.kill();
                child.wait().unwrap();
            }
            Death::ClosedPipe => {
                let mut command = table.command(&["--bookmark", "try.json", "--reload"]);
                let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
                let _ = child.stdout.take().unwrap().read(&mut [0; 16]).unwrap();
                if child.wait().unwrap().code() != Some(0) {
                    assert_eq!(fs::read(table.path("try.json")).ok(), before, "the bookmark moved without its rows");
                }
            }
            Death::BeforeApplying | Death::BeforeKeeping => {
                let ran = table.run(&TRIED).ended(0, table.chance.seed);
                if death == Death::BeforeKeeping {
                    self.apply(table, &serde_json::from_str(&ran.stdout).unwrap());
                }
            }
        }
    }

    /// Runs, dying before perhaps, and holds the store to the view.
    fn follow(&mut self, table: &mut Table, what: &str) -> Value {
        let deaths = [Death::Killed, Death::ClosedPipe, Death::BeforeApplying, Death::BeforeKeeping];
        if let Some(death) = deaths.get(table.chance.below(12) as usize) {
            self.die(table, *death);
        }
        let seed = table.chance.seed;
        let summary = self.run(table).unwrap_or_else(|ran| panic!("{what}: {ran:?}; seed {seed}"));
        assert!(self.rows == table.rows, "{what}: the store is not the view: {summary}; seed {seed}");
        assert_eq!(self.holds.map(|h| h.1), Some(table.step), "{what}; seed {seed}");
        summary
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_job_equals_the_view_at_each_run() {
    const TEST: &str = "a_batch_job_equals_the_view_at_each_run";
    let appends = size("CUTOVER_JOB_APPENDS", 50);
    for key in [&["id"][..], &[]] {
        let mut table = Table::new(key, Chance::new(TEST)).await;
        let seed = table.chance.seed;
        let mut job = Job::default();
        assert_eq!(job.follow(&mut table, "the first run")["outcome"], "reload");
        assert_eq!(job.follow(&mut table, "without news")["outcome"], "nothing");
        let mut resets = 0;
        for n in 1..=appends {
            table.append().await;
            let turn = n % (appends / 5).max(1);
            if turn == 3 && resets < 3 {
                resets += 1;
                table.reset().await;
                assert_eq!(job.follow(&mut table, "after a reset")["outcome"], "reload", "seed {seed}");
            } else if turn == 5 && n < appends / 2 {
                // The job was away while the log below a checkpoint was cleaned up.
                table.append().await;
                table.append().await;
                table.clean_log().await;
                let summary = job.follow(&mut table, "its part of the log is gone");
                assert_eq!(
                    (&summary["outcome"], &summary["proof"]),
                    (&"changes".into(), &"digest".into()),
                    "seed {seed}"
                );
            } else if turn == 6 && n > appends / 2 && n <= appends / 2 + appends / 5 {
                table.restamp(|stamp| stamp["from"] = (stamp["from"].as_u64().unwrap() + 1).into());
                let (rows, done) = (job.rows.clone(), fs::read(table.path("done.json")).unwrap());
                fs::write(table.path("rows.ndjson"), "as it was").unwrap();
                let ran = job.run(&table).unwrap_err().ended(3, seed);
                assert!(ran.stderr.contains("a gap") && ran.stderr.contains("reset"), "{ran:?}; seed {seed}");
                assert_eq!((ran.stdout.as_str(), &job.rows), ("", &rows), "seed {seed}");
                assert_eq!(fs::read_to_string(table.path("rows.ndjson")).unwrap(), "as it was");
                assert_eq!(fs::read(table.path("done.json")).unwrap(), done);
                assert_eq!(fs::read(table.path("try.json")).unwrap(), done);
                table.reset().await;
                assert_eq!(job.follow(&mut table, "after the repair")["outcome"], "reload", "seed {seed}");
            } else if !table.chance.one_in(4) {
                let summary = job.follow(&mut table, "after appends");
                assert_eq!((&summary["outcome"], &summary["proof"]), (&"changes".into(), &"log".into()), "seed {seed}");
            }
        }
        job.follow(&mut table, "at the end");
        let hidden = names(table.dir.path()).into_iter().filter(|n| n.starts_with('.') && n.contains("done"));
        assert_eq!(hidden.count(), 0, "seed {seed}");
    }
}

/// The bookmark in a file, as JSON.
fn read_json(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bookmark_that_does_not_fit_is_never_taken_for_another() {
    let mut table = Table::new(&["id"], Chance::new("a_bookmark_that_does_not_fit")).await;
    table.append().await;
    table.run(&["--bookmark", "b.json"]).ended(0, 0);
    let kept = read_json(table.path("b.json"));
    let cases: [(&str, Value, i32, &str); 9] = [
        ("table", "another".into(), 5, "the table another"),
        ("connector", "p/v/other".into(), 5, "p/v/other"),
        ("source", "source-2".into(), 3, "source-2"),
        ("generation", 7.into(), 3, "generation 7"),
        ("reload", "reset:x".into(), 3, "reset:x"),
        ("step", 99_999.into(), 3, "99999"),
        ("step", 1.into(), 3, "damaged"),
        ("version", 50.into(), 3, "version 50"),
        ("schema", "cutover.bookmark/9".into(), 3, "cutover.bookmark/9"),
    ];
    let mut texts: Vec<(String, i32, &str)> = cases
        .into_iter()
        .map(|(member, value, code, said)| {
            let mut bookmark = kept.clone();
            bookmark[member] = value;
            (bookmark.to_string(), code, said)
        })
        .collect();
    let whole = kept.to_string();
    texts.extend([(String::new(), 3, "no JSON"), (whole[..whole.len() / 2].to_string(), 3, "no JSON")]);
    for (text, code, said) in texts {
        fs::write(table.path("b.json"), &text).unwrap();
        let ran = table.run(&["--bookmark", "b.json"]).ended(code, 0);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(said), "{text}: {ran:?}");
        assert_eq!(fs::read_to_string(table.path("b.json")).unwrap(), text);
    }
    let ran = table.run(&["--bookmark", "b.json", "--reload", "--exit-code"]).ended(10, 0);
    assert!(ran.stderr.contains("\"outcome\":\"reload\""), "{ran:?}");
    table.run(&["--bookmark", "b.json", "--exit-code"]).ended(11, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_since_the_bookmark_gives_no_row() {
    type Break = (&'static str, fn(&mut Table));
    let breaks: [Break; 6] = [
        ("a gap", |table| table.restamp(|stamp| stamp["from"] = (stamp["from"].as_u64().unwrap() + 1).into())),
        ("steps twice", |table| table.restamp(|stamp| stamp["from"] = (stamp["from"].as_u64().unwrap() - 1).into())),
        ("two versions", |table| table.restamp(|stamp| stamp["commit"] = "fixed".into())),
        ("digest", |table| table.restamp(|stamp| stamp["digest_total"] = "0".repeat(32).into())),
        ("torn", |table| {
            let path = table.entries().pop().unwrap();
            let text = fs::read(&path).unwrap();
            fs::write(&path, &text[..text.len() / 2]).unwrap();
        }),
        ("changes the schema", |table| {
            let first = fs::read_to_string(&table.entries()[0]).unwrap();
            let metadata = first.lines().find(|l| l.starts_with("{\"metaData\"")).unwrap();
            let metadata = metadata.replace("\\\"name\\\":\\\"name\\\"", "\\\"name\\\":\\\"other\\\"");
            let version = table.entries().len();
            fs::write(table.path(&format!("table/_delta_log/{version:020}.json")), metadata + "\n").unwrap();
        }),
    ];
    for (said, spoil) in breaks {
        let mut table = Table::new(&["id"], Chance::new("a_break_since_the_bookmark")).await;
        table.append().await;
        if said == "two versions" {
            spoil(&mut table);
        }
        table.run(&["--bookmark", "b.json"]).ended(0, table.chance.seed);
        let before = fs::read(table.path("b.json")).unwrap();
        table.append().await;
        spoil(&mut table);
        let ran = table.run(&["--bookmark", "b.json"]).ended(3, table.chance.seed);
        assert!(ran.stdout.is_empty() && ran.stderr.contains(said), "{said}: {ran:?}");
        assert!(ran.stderr.contains("cutover verify"), "{said}: no remedy: {ran:?}");
        assert_eq!(fs::read(table.path("b.json")).unwrap(), before, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_are_lost_behind_a_cleaned_log_are_missed() {
    let mut table = Table::new(&["id"], Chance::new("rows_that_are_lost_behind_a_cleaned_log")).await;
    table.run(&["--bookmark", "b.json"]).ended(0, 0);
    let before = fs::read(table.path("b.json")).unwrap();
    let file_of = |entry: &PathBuf| -> Option<Value> {
        let text = fs::read_to_string(entry).unwrap();
        text.lines().find_map(|line| serde_json::from_str::<Value>(line).unwrap().get("add").cloned())
    };
    let mut added = None;
    while added.is_none() {
        table.append().await;
        added = table.entries().last().and_then(file_of);
    }
    let version = table.entries().len();
    let remove = format!(
        "{{\"commitInfo\":{{\"operation\":\"DELETE\"}}}}\n{{\"remove\":{{\"path\":{},\"deletionTimestamp\":1,\"dataChange\":true}}}}\n",
        added.unwrap()["path"]
    );
    fs::write(table.path(&format!("table/_delta_log/{version:020}.json")), remove).unwrap();
    // A claim of ours is the newest entry then, and the drift is out of sight.
    table.sink = None;
    table.sink().await;
    table.clean_log().await;
    let ran = table.run(&["--bookmark", "b.json", "--to", "rows"]).ended(3, 0);
    assert!(ran.stderr.contains("digest") && ran.stderr.contains("reset"), "{ran:?}");
    assert!(!table.path("rows").exists());
    assert_eq!(fs::read(table.path("b.json")).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_within_a_commit_is_read_on_from() {
    let mut table = Table::new(&[], Chance::new("a_cut_within_a_commit")).await;
    for _ in 0..4 {
        table.append().await;
    }
    let steps = |text: &str| -> Vec<u64> {
        text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["__step"].as_u64().unwrap()).collect()
    };
    let all = table.run(&["--bookmark", "all.json"]).ended(0, 0).stdout;
    let mut parts = String::new();
    for until in 100..=table.step {
        let ran = table.run(&["--bookmark", "b.json", "--until-step", &until.to_string()]).ended(0, 0);
        assert!(steps(&ran.stdout).iter().all(|s| *s <= until), "{until}");
        assert_eq!(read_json(table.path("b.json"))["step"].as_u64(), Some(until));
        parts.push_str(&ran.stdout);
    }
    assert_eq!(parts, all);
    assert_eq!(read_json(table.path("b.json")), read_json(table.path("all.json")));
    let ran = table.run(&["--bookmark", "b.json", "--until-step", "101"]).ended(5, 0);
    assert!(ran.stderr.contains("101") && ran.stderr.contains(&table.step.to_string()), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_holds_the_same_rows_and_none_with_their_columns() {
    let mut table = Table::new(&["id"], Chance::new("parquet_holds_the_same_rows")).await;
    let parquet = ["--bookmark", "p.json", "--format", "parquet", "--to", "rows.parquet", "-o", "json"];
    let refused = table.run(&["--bookmark", "p.json", "--format", "parquet"]).ended(2, 0);
    assert!(refused.stderr.contains("--to"), "{refused:?}");
    table.run(&["--bookmark", "n.json", "-o", "json"]).ended(2, 0);
    for appends in [3, 0, 2] {
        for _ in 0..appends {
            table.append().await;
        }
        let lines = table.run(&["--bookmark", "n.json"]).ended(0, 0).stdout;
        let summary: Value = serde_json::from_str(&table.run(&parquet).ended(0, 0).stdout).unwrap();
        let file = fs::File::open(table.path("rows.parquet")).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let columns: Vec<String> = reader.schema().fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(columns, ["__generation", "__step", "__op", "id", "name"]);
        let mut printed = Vec::new();
        for batch in reader.build().unwrap() {
            cutover::inspect::json_rows::write_ndjson(&batch.unwrap(), &mut printed).unwrap();
        }
        assert_eq!(String::from_utf8(printed).unwrap(), lines);
        assert_eq!(summary["version"], read_json(table.path("p.json"))["version"]);
        assert_eq!(read_json(table.path("p.json")), read_json(table.path("n.json")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_pipe_leaves_the_bookmark() {
    let mut table = Table::new(&["id"], Chance::new("a_closed_pipe_leaves_the_bookmark")).await;
    table.run(&["--bookmark", "b.json"]).ended(0, 0);
    let before = fs::read(table.path("b.json")).unwrap();
    table.rows = (0..20_000).map(|id| ((id, Some("a name that fills the pipe".to_string())), 1)).collect();
    let reset = ResetStamp { id: "r".into(), who: "a test".into(), why: "to see".into() };
    let snapshot = table.snapshot();
    table.sink().await.reload(snapshot, reset, Older::Refused).await.unwrap();
    let mut child =
        table.command(&["--bookmark", "b.json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let read = child.stdout.take().unwrap().read(&mut [0; 16]).unwrap();
    assert!(read > 0);
    let ran = Ran::of(child.wait_with_output().unwrap()).ended(1, 0);
    assert!(ran.stderr.contains("cannot be written"), "{ran:?}");
    assert_eq!(fs::read(table.path("b.json")).unwrap(), before);
    assert_eq!(table.run(&["--bookmark", "b.json"]).ended(0, 0).stdout.lines().count(), 20_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_compacted_comes_in_step_order() {
    const TEST: &str = "what_others_compacted_comes_in_step_order";
    let Some(readers) = Readers::find(TEST) else { return };
    for key in [&["id"][..], &[]] {
        let mut table = Table::new(key, Chance::new(TEST)).await;
        let mut job = Job::default();
        for round in 0..4 {
            for _ in 0..3 {
                table.append().await;
            }
            let table_path = table.path("table").display().to_string();
            readers.optimize(&table_path, if round % 2 == 0 { "compact" } else { "z_order" });
            table.append().await;
            let summary = job.follow(&mut table, "after OPTIMIZE");
            assert_eq!(summary["proof"], "log", "seed {}", table.chance.seed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_follows_the_news_and_not_the_table() {
    const TEST: &str = "the_cost_follows_the_news_and_not_the_table";
    let commits = size("CUTOVER_COMMITS", 100);
    let mut table = Table::new(&["id"], Chance::new(TEST)).await;
    for _ in 1..commits {
        table.append().await;
    }
    table.run(&["--bookmark", "b.json"]).ended(0, table.chance.seed);
    let older = names(&table.path("table")).into_iter().filter(|n| n.ends_with(".parquet"));
    // A file that holds nothing new is not even opened, so nothing is lost by its absence.
    older.for_each(|name| fs::rename(table.path("table").join(&name), table.path(&name)).unwrap());
    table.append().await;
    let before = read_json(table.path("b.json"))["version"].as_u64().unwrap();
    let begun = SystemClock.boot();
    let ran = table.run(&["--bookmark", "b.json"]).ended(0, table.chance.seed);
    eprintln!("{TEST}: {} commits, {:?}, {}", before + 1, SystemClock.boot() - begun, ran.stderr.trim());
    assert!(ran.stderr.contains("\"outcome\":\"changes\""), "{ran:?}; seed {}", table.chance.seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_reads_changes_as_batches_and_gets_the_bookmark_behind_the_last() {
    let mut table = Table::new(&["id"], Chance::new("a_program_reads_changes_as_batches")).await;
    let log = table.log();
    let mut bookmark: Option<Bookmark> = None;
    for expected in [Outcome::Reload, Outcome::Changes, Outcome::Nothing] {
        if expected == Outcome::Changes {
            table.append().await;
        }
        let mut news = changes(&log, bookmark.as_ref(), None).await.unwrap();
        assert_eq!((news.outcome, news.step), (expected, step(table.step)));
        while let Some(rows) = news.next().await.unwrap() {
            assert_eq!(rows.schema_ref(), &news.schema);
        }
        bookmark = Some(news.finish().unwrap());
    }
    let early = changes(&log, None, None).await.unwrap();
    assert_eq!(early.finish().unwrap_err().kind(), ErrorKind::Internal);
    assert!(matches!(table.target().await.standing(), Standing::Ours(_)));
}
