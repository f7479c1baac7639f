//! The program as a process on a table of its own, a feed that grows beside it, and the readers that look at both.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use cutover::{Clock, Ids, SystemClock};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::object_stores::server::{BUCKET, Server};

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The option that leaves syncing out.
pub(crate) const UNSYNCED: &str = "--set=pipelines.p.views.rows.connectors.lake.durability=none";

/// Waits until `condition` holds, but not longer than `limit`; whether it held.
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let begun = SystemClock.boot();
    while !condition() {
        if SystemClock.boot() - begun > limit {
            return false;
        }
        std::thread::park_timeout(Duration::from_micros(500));
    }
    true
}

/// The number in the environment variable `name`.
pub(crate) fn size(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Numbers that follow from a seed.
#[derive(Clone)]
pub(crate) struct Chance {
    pub(crate) seed: u64,
    state: u64,
}

impl Chance {
    /// From CUTOVER_SEED, or a seed of its own, which a test that fails prints.
    pub(crate) fn new(test: &str) -> Self {
        let drawn = || u64::from_str_radix(&Ids::from_system().draw()[..8], 16).unwrap();
        let seed = std::env::var("CUTOVER_SEED").map_or_else(|_| drawn(), |text| text.parse().unwrap());
        eprintln!("{test}: CUTOVER_SEED={seed}");
        Self::from_seed(seed)
    }

    pub(crate) fn from_seed(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// From a seed that follows from another.
    pub(crate) fn of(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Where a site's table is.
enum Place {
    Folder,
    Bucket { server: &'static Server, prefix: String },
}

/// A directory with a feed, a table there or in an object store, and the configuration of both.
pub(crate) struct Site {
    home: TempDir,
    place: Place,
    /// Whether its table is the view.
    is_current: bool,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::at(Place::Folder)
    }

    /// The table is in the server's bucket, which the environment tells how to reach.
    pub(crate) fn in_bucket(server: &'static Server) -> Self {
        let prefix = format!("site-{}", Ids::from_system().draw());
        Self::at(Place::Bucket { server, prefix })
    }

    fn at(place: Place) -> Self {
        let site = Self { home: TempDir::new().unwrap(), place, is_current: false };
        fs::create_dir_all(site.feed().join("rows")).unwrap();
        let config = "config_version = 1\n\
            [pipelines.p.source.files]\npath = \"feed\"\npoll_interval = \"5ms\"\n\
            [pipelines.p.views.rows]\nkey = [\"id\"]\n\
            [pipelines.p.views.rows.connectors.lake]\ncommit = { max_rows = 20, max_interval = \"20ms\" }\n\
            [pipelines.p.views.rows.connectors.lake.delta]\n";
        fs::write(site.path("cutover.toml"), format!("{config}uri = \"{}\"\n", site.uri())).unwrap();
        site
    }

    /// The same with a table that is the view.
    pub(crate) fn of_current(self) -> Self {
        let config = fs::read_to_string(self.path("cutover.toml")).unwrap();
        fs::write(self.path("cutover.toml"), config + "layout = \"current\"\n").unwrap();
        Self { is_current: true, ..self }
    }

    pub(crate) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The table's URI, as the program is told.
    pub(crate) fn uri(&self) -> String {
        match &self.place {
            Place::Folder => "table".into(),
            Place::Bucket { prefix, .. } => format!("s3://{BUCKET}/{prefix}"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The directory that holds one folder a view.
    pub(crate) fn feed(&self) -> PathBuf {
        self.path("feed")
    }

    pub(crate) fn table(&self) -> PathBuf {
        self.path("table")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.args(args).current_dir(self.home.path());
        if let Place::Bucket { server, .. } = &self.place {
            command.envs(Server::environment(server.port));
        }
        command
    }

    /// Runs the program until it ends.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Starts the program; what it says goes to files.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        // Several daemons may share a site's table, each with a state and an address of its own.
        command.env("CUTOVER__SERVER__LISTEN", "127.0.0.1:0");
        // What a table that is the view needs lasts from one to the next.
        let data = if self.is_current { "data".into() } else { format!("data-{}", Ids::from_system().draw()) };
        command.env("CUTOVER__SERVER__DATA_DIR", self.path(&data));
        Running::start(command, tempfile::NamedTempFile::new_in(self.home.path()).unwrap())
    }

    /// The stamps of the table's versions, in order; a version without one is null.
    pub(crate) fn stamps(&self) -> Vec<Value> {
        (0..).map_while(|version| self.stamp(version)).collect()
    }

    fn stamp(&self, version: usize) -> Option<Value> {
        let name = format!("_delta_log/{version:020}.json");
        let text = match &self.place {
            Place::Folder => fs::read_to_string(self.table().join(name)).ok()?,
            Place::Bucket { server, prefix } => String::from_utf8(server.get(&format!("{prefix}/{name}"))?).unwrap(),
        };
        // An entry that is being linked is whole; one of a version that is torn is not JSON.
        let info: Value = serde_json::from_str(text.lines().next()?).ok()?;
        let stamp = info["commitInfo"]["userMetadata"].as_str();
        Some(stamp.map_or(Value::Null, |text| serde_json::from_str(text).unwrap()))
    }

    /// The step that the newest version reaches; `None` where there is no table.
    pub(crate) fn last_step(&self) -> Option<u64> {
        let log = match &self.place {
            Place::Folder => names(&self.table().join("_delta_log")),
            Place::Bucket { server, prefix } => {
                let folder = format!("{prefix}/_delta_log/");
                server.keys(&folder).iter().map(|key| key[folder.len()..].to_string()).collect()
            }
        };
        let version = log.into_iter().rfind(|name| is_entry(name))?;
        self.stamp(version[..20].parse().unwrap())?["to"].as_u64()
    }

    /// How many things there are in the table's directory and its log, unfinished ones too.
    pub(crate) fn things(&self) -> usize {
        if let Place::Bucket { server, prefix } = &self.place {
            // Who asks does so again and again, and the server has one thread of Python for all.
            std::thread::park_timeout(Duration::from_millis(10));
            return server.keys(prefix).len();
        }
        names(&self.table()).len() + names(&self.table().join("_delta_log")).len()
    }

    /// Every file of the table by its length and name.
    pub(crate) fn listing(&self) -> Vec<(u64, String)> {
        let listed = |folder: PathBuf| {
            let length = |name: String| (fs::metadata(folder.join(&name)).unwrap().len(), name);
            names(&folder).into_iter().map(length).collect::<Vec<_>>()
        };
        [listed(self.table()), listed(self.table().join("_delta_log"))].concat()
    }

    /// Delivers what is left, and holds the table to the model and to the rules of the contract, with the readers too.
    pub(crate) fn check(&self, model: &Model, test: &str) {
        self.check_alone(model);
        let Some(readers) = Readers::find(test) else { return };
        match &self.place {
            Place::Folder => self.check_with(&readers, model),
            Place::Bucket { server, .. } => {
                let (readers, feed) = (readers.at(Server::environment(server.port)), self.feed().display().to_string());
                let expected = readers.expect(&[&feed, "rows", "--key=id"]);
                for engine in ["duckdb", "deltalake"] {
                    if self.is_current {
                        same(&readers.read(&[engine, &self.uri()]), &expected, model.chance.seed);
                        continue;
                    }
                    same(&readers.read(&["state", engine, &self.uri(), "--key=id"]), &expected, model.chance.seed);
                }
            }
        }
    }

    /// The same by the program's own commands and the log.
    pub(crate) fn check_alone(&self, model: &Model) {
        let seed = model.chance.seed;
        self.run(&["run", "--once"]).ended(0, seed);
        self.run(&["verify", &self.uri()]).ended(0, seed);
        let stamps = self.stamps();
        for (version, stamp) in stamps.iter().enumerate() {
            assert!(stamp.is_object(), "version {version} has no commit info of ours; seed {seed}");
        }
        let reloads: Vec<&Value> = stamps.iter().filter(|s| s["kind"] == "reload").collect();
        let first_loads = reloads.iter().filter(|s| s.get("reset").is_none()).count();
        assert_eq!(first_loads, 1, "reloads that nobody asked for; seed {seed}");
        let last = stamps.last().unwrap();
        assert_eq!(last["generation"].as_u64(), Some(reloads.len() as u64), "generations and reloads; seed {seed}");
        assert_eq!(last["to"].as_u64(), Some(model.step), "the last step; seed {seed}");
        let state = self.run(&["state", &self.uri()]).ended(0, seed).stdout;
        assert!(rows_of(&state) == model.rows, "the state is not the model's; seed {seed}");
    }

    fn check_with(&self, readers: &Readers, model: &Model) {
        let (seed, stamps) = (model.chance.seed, self.stamps());
        let reload = stamps.iter().rfind(|s| s["kind"] == "reload").unwrap();
        let (table, feed) = (self.table().display().to_string(), self.feed().display().to_string());
        let (generation, cutover) = (reload["generation"].to_string(), reload["to"].to_string());
        readers.read(&["log", &table]);
        let expected = readers.expect(&[&feed, "rows", "--key=id"]);
        assert_eq!(expected["rows"].as_u64(), Some(model.rows.len() as u64), "two models differ; seed {seed}");
        if self.is_current {
            return same(&readers.read(&["duckdb", &table]), &expected, seed);
        }
        same(&readers.read(&["state", "duckdb", &table, "--key=id"]), &expected, seed);
        let changelog = ["--changelog", &generation, "--cutover", &cutover];
        let expected = readers.expect(&[&[feed.as_str(), "rows", "--key=id"], &changelog[..]].concat());
        same(&readers.read(&["polars", &table]), &expected, seed);
    }
}

/// Asserts that two readers give the same rows.
pub(crate) fn same(read: &Value, expected: &Value, seed: u64) {
    let essence = |answer: &Value| (answer["rows"].clone(), answer["digest"].clone(), answer["columns"].clone());
    assert_eq!(essence(read), essence(expected), "rows, digest and columns; seed {seed}");
}

/// The names in a directory, sorted; none where it is missing.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.unwrap().file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn is_entry(name: &str) -> bool {
    name.len() == 25 && name.ends_with(".json")
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Asserts the exit code.
    pub(crate) fn ended(self, code: i32, seed: u64) -> Self {
        assert_eq!(self.code, Some(code), "{}{}seed {seed}", self.stdout, self.stderr);
        self
    }
}

/// A process of the program; dropped, it is killed.
pub(crate) struct Running {
    child: Child,
    said: tempfile::NamedTempFile,
}

impl Running {
    /// Starts `command`; what it says goes to the file.
    pub(crate) fn start(mut command: Command, said: tempfile::NamedTempFile) -> Self {
        let child = command.stdout(said.reopen().unwrap()).stderr(said.reopen().unwrap()).spawn().unwrap();
        Self { child, said }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// The exit code, once it ends by itself.
    pub(crate) fn code(&mut self) -> Option<i32> {
        assert!(wait_until(PATIENCE, || self.ended().is_some()), "a process does not end; it said: {}", self.said());
        self.ended().unwrap().code()
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.said.path()).unwrap()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status().unwrap();
        assert!(sent.success(), "kill -{name}");
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of this machine that nobody listens at.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers")
}

/// The scripts of tests/readers.
pub(crate) struct Readers {
    python: PathBuf,
    /// Variables that say how to reach an object store.
    environment: Vec<(String, String)>,
}

impl Readers {
    /// With the interpreter in CUTOVER_PYTHON; without one, says that `test` is not what it could be.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let python = std::env::var_os("CUTOVER_PYTHON").map(PathBuf::from);
        if python.is_none() {
            // Not by a macro, whose words the test harness would keep to itself.
            let _ = writeln!(std::io::stderr(), "skipped: readers of {test}; set CUTOVER_PYTHON, see tests/run.sh");
        }
        python.map(|python| Self { python, environment: Vec::new() })
    }

    /// The same, for tables that are reached by these variables.
    pub(crate) fn at(self, environment: Vec<(String, String)>) -> Self {
        Self { environment, ..self }
    }

    /// The interpreter that has them.
    pub(crate) fn python(&self) -> Command {
        Command::new(&self.python)
    }

    /// Code that may import the scripts.
    pub(crate) fn code(&self, code: &str) -> Command {
        let mut command = self.python();
        command.arg("-c").arg(code).env("PYTHONPATH", scripts());
        command
    }

    /// A call of one of the scripts.
    pub(crate) fn command(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(scripts().join(script)).args(args);
        command.envs(self.environment.iter().cloned());
        command
    }

    /// What a script prints when it is given `lines` to read.
    pub(crate) fn tell(&self, script: &str, args: &[&str], lines: &str) -> String {
        let mut command = self.command(script, args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{script} {args:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// What `read.py` prints.
    pub(crate) fn read(&self, args: &[&str]) -> Value {
        self.answer("read.py", args)
    }

    /// What `expect.py` prints.
    pub(crate) fn expect(&self, args: &[&str]) -> Value {
        self.answer("expect.py", args)
    }

    /// Rewrites a table's files as other engines do, changing no row: `compact`, or `z_order` by name and step.
    pub(crate) fn optimize(&self, table: &str, how: &str) {
        let call = if how == "compact" { "compact()" } else { "z_order(['name', '__step'])" };
        let code = format!("import sys, deltalake; deltalake.DeltaTable(sys.argv[1]).optimize.{call}");
        let ran = Ran::of(Command::new(&self.python).args(["-c", &code, table]).output().unwrap());
        assert_eq!(ran.code, Some(0), "{how}: {}", ran.stderr);
    }

    fn answer(&self, script: &str, args: &[&str]) -> Value {
        let ran = Ran::of(self.command(script, args).output().unwrap());
        assert_eq!(ran.code, Some(0), "{script} {args:?}: {}{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }
}

/// How a change file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    Ndjson,
}

/// A row of the view, without its id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    name: Option<String>,
    amount: Option<i64>,
}

/// One line of a change file; without a row it is a delete.
struct Change {
    step: u64,
    op: &'static str,
    id: i64,
    row: Option<Row>,
}

/// A view `rows (id bigint, name string, amount bigint)` that changes, and the files that tell of it.
pub(crate) struct Model {
    pub(crate) chance: Chance,
    pub(crate) rows: BTreeMap<i64, Row>,
    pub(crate) step: u64,
    next_id: i64,
    folder: PathBuf,
}

impl Model {
    /// A view of `rows` rows at step 100, landed in the feed of `site`.
    pub(crate) fn new(site: &Site, rows: u64, chance: Chance) -> Self {
        let folder = site.feed().join("rows");
        let mut model = Self { chance, rows: BTreeMap::new(), step: 100, next_id: 0, folder };
        (0..rows).for_each(|_| model.insert());
        model.land_snapshot();
        model
    }

    fn insert(&mut self) {
        let row = self.row();
        self.rows.insert(self.next_id, row);
        self.next_id += 1;
    }

    fn row(&mut self) -> Row {
        let number = self.chance.below(1_000_000);
        let name = (!number.is_multiple_of(7)).then(|| format!("näme {number}"));
        Row { name, amount: (!number.is_multiple_of(5)).then_some(number as i64 - 500_000) }
    }

    /// Lands the rows as they are as a snapshot.
    pub(crate) fn land_snapshot(&self) {
        let (ids, rows): (Vec<i64>, Vec<Option<&Row>>) = self.rows.iter().map(|(id, row)| (*id, Some(row))).unzip();
        let file = Landing::new(&self.folder, format!("snapshot-{}.parquet", self.step));
        file.parquet(columns(ids, &rows)).land();
    }

    /// Lands the changes of some more steps.
    pub(crate) fn land_changes(&mut self) {
        self.stage_changes().land();
    }

    /// Writes the changes of some more steps under a name that hides them.
    pub(crate) fn stage_changes(&mut self) -> Landing {
        let format = if self.chance.one_in(3) { Format::Ndjson } else { Format::Parquet };
        self.stage_changes_as(format)
    }

    pub(crate) fn stage_changes_as(&mut self, format: Format) -> Landing {
        let from = self.step;
        let mut changes = Vec::new();
        for _ in 0..=self.chance.below(3) {
            self.step += 1 + self.chance.below(3);
            for _ in 0..=self.chance.below(6) {
                self.change(&mut changes);
            }
        }
        self.step += self.chance.below(2);
        let named = |extension| Landing::new(&self.folder, format!("changes-{from}-{}.{extension}", self.step));
        if format == Format::Ndjson {
            return named("ndjson").bytes(changes.iter().map(Change::line).collect::<String>().as_bytes());
        }
        let rows: Vec<Option<&Row>> = changes.iter().map(|c| c.row.as_ref()).collect();
        let mut front: Vec<(&str, ArrayRef)> = vec![
            ("__step", Arc::new(Int64Array::from_iter_values(changes.iter().map(|c| c.step as i64)))),
            ("__op", Arc::new(StringArray::from_iter_values(changes.iter().map(|c| c.op)))),
        ];
        front.extend(columns(changes.iter().map(|c| c.id).collect(), &rows));
        named("parquet").parquet(front)
    }

    /// One change of a step: mostly of a key that no other change of the step touches, sometimes of one that does.
    fn change(&mut self, changes: &mut Vec<Change>) {
        let touched = changes.last().map(|c| c.id).filter(|_| self.chance.one_in(8));
        let some = touched.unwrap_or_else(|| self.chance.below(self.next_id as u64) as i64);
        let exists = self.rows.contains_key(&some);
        let (op, id) = match self.chance.below(10) {
            0..3 => ("i", self.next_id),
            3..5 if exists => ("d", some),
            _ if exists => ("u", some),
            _ => ("i", some),
        };
        self.next_id = self.next_id.max(id + 1);
        let row = (op != "d").then(|| self.row());
        match &row {
            Some(row) => self.rows.insert(id, row.clone()),
            None => self.rows.remove(&id),
        };
        changes.push(Change { step: self.step, op, id, row });
    }
}

impl Change {
    fn line(&self) -> String {
        let word = match self.op {
            "i" => "insert",
            "u" => "update",
            _ => "delete",
        };
        let row = match &self.row {
            Some(row) => json!({"id": self.id, "name": row.name, "amount": row.amount}),
            None => json!({"id": self.id}),
        };
        format!("{}\n", json!({"step": self.step, word: row}))
    }
}

/// The view's columns; a missing row has nulls beside its id.
fn columns(ids: Vec<i64>, rows: &[Option<&Row>]) -> Vec<(&'static str, ArrayRef)> {
    let names: StringArray = rows.iter().map(|row| row.and_then(|r| r.name.as_deref())).collect();
    let amounts: Int64Array = rows.iter().map(|row| row.and_then(|r| r.amount)).collect();
    vec![("id", Arc::new(Int64Array::from(ids))), ("name", Arc::new(names)), ("amount", Arc::new(amounts))]
}

/// A file of a feed before it is landed.
pub(crate) struct Landing {
    folder: PathBuf,
    name: String,
}

impl Landing {
    pub(crate) fn new(folder: &Path, name: String) -> Self {
        Self { folder: folder.to_owned(), name }
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    fn hidden(&self) -> PathBuf {
        self.folder.join(format!(".{}", self.name))
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        fs::write(self.hidden(), bytes).unwrap();
        self
    }

    pub(crate) fn parquet(self, columns: Vec<(&str, ArrayRef)>) -> Self {
        let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
        let mut writer = ArrowWriter::try_new(File::create(self.hidden()).unwrap(), batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        self
    }

    /// What the file holds.
    pub(crate) fn content(&self) -> Vec<u8> {
        fs::read(self.hidden()).unwrap()
    }

    /// Gives the file its name, by which it is part of the feed.
    pub(crate) fn land(self) {
        fs::rename(self.hidden(), self.folder.join(&self.name)).unwrap();
    }
}

/// The rows in what `cutover state` prints.
fn rows_of(text: &str) -> BTreeMap<i64, Row> {
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["name"].as_str().map(str::to_owned);
        (row["id"].as_i64().unwrap(), Row { name, amount: row["amount"].as_i64() })
    };
    let rows: Vec<(i64, Row)> = text.lines().map(row).collect();
    let count = rows.len();
    let rows = BTreeMap::from_iter(rows);
    assert_eq!(rows.len(), count, "a key stands there twice");
    rows
}
