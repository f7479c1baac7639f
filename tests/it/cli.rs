//! The program itself, over small feeds: what it prints, what it leaves in tables, and its exit codes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A feed of the view `v (id bigint, name string)`, a table beside it, and a configuration of both.
struct Feed {
    dir: TempDir,
}

const URI: &str = "pipelines.p.views.v.connectors.lake.delta.uri";

impl Feed {
    fn new() -> Self {
        let feed = Self { dir: TempDir::new().unwrap() };
        fs::create_dir_all(feed.path("feed/v")).unwrap();
        feed.configure("");
        feed
    }

    /// A feed with a snapshot at step 10 and the changes up to step 30.
    fn of_three_files() -> Self {
        let feed = Self::new();
        feed.snapshot(10, &[1, 2, 3]);
        feed.changes(10, 20);
        feed.ndjson(20, 30);
        feed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn configure(&self, connector: &str) {
        let config = format!(
            "config_version = 1\n\
             [pipelines.p.source.files]\npath = \"feed\"\npoll_interval = \"10ms\"\n\
             [pipelines.p.views.v]\nkey = [\"id\"]\ncolumns = {{ id = \"bigint\", name = \"string\" }}\n\
             [pipelines.p.views.v.connectors.lake]\n{connector}\n\
             [pipelines.p.views.v.connectors.lake.delta]\nuri = \"table\"\n"
        );
        fs::write(self.path("cutover.toml"), config).unwrap();
    }

    fn snapshot(&self, step: u64, ids: &[i64]) {
        let names: Vec<String> = ids.iter().map(|id| format!("row {id}")).collect();
        self.land(&format!("snapshot-{step}"), vec![ints("id", ids.to_vec()), texts("name", names)]);
    }

    /// One changed row a step: the row whose id is the step.
    fn changes(&self, from: u64, to: u64) {
        let steps: Vec<i64> = (from + 1..=to).map(|s| s as i64).collect();
        let texts_of = |text: &str| steps.iter().map(|_| text.to_string()).collect();
        let columns = vec![
            ints("__step", steps.clone()),
            texts("__op", texts_of("u")),
            ints("id", steps.clone()),
            texts("name", texts_of("changed")),
        ];
        self.land(&format!("changes-{from}-{to}"), columns);
    }

    fn ndjson(&self, from: u64, to: u64) {
        let lines = (from + 1..=to).map(|s| format!("{}\n", json!({"step": s, "insert": {"id": s, "name": "new"}})));
        fs::write(self.path(&format!("feed/v/changes-{from}-{to}.ndjson")), lines.collect::<String>()).unwrap();
    }

    fn land(&self, name: &str, columns: Vec<(&str, ArrayRef)>) {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let file = File::create(self.path(&format!("feed/v/{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.env("CUTOVER__SERVER__LISTEN", "127.0.0.1:0");
        command.current_dir(self.dir.path()).args(line.split_whitespace()).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CUTOVER") || name == "RUST_LOG") {
            command.env_remove(name);
        }
        command.env("USER", "ada").env("HOSTNAME", "engine");
        command
    }

    /// Runs the program to its end and checks its exit code.
    fn run(&self, line: &str, code: i32) -> Ran {
        let ran = Ran::of(self.command(line).output().unwrap());
        assert_eq!(ran.code, Some(code), "cutover {line}\n{}\n{}", ran.stdout, ran.stderr);
        ran
    }

    /// The user metadata of each commit, by version.
    fn stamps(&self) -> Vec<Value> {
        let log = self.path("table/_delta_log");
        let entry = |version: usize| fs::read_to_string(log.join(format!("{version:020}.json"))).ok();
        let stamp = |text: String| -> Value {
            let info: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            serde_json::from_str(info["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap()
        };
        (0..).map_while(entry).map(stamp).collect()
    }

    fn last_step(&self) -> u64 {
        self.stamps().last().unwrap()["to"].as_u64().unwrap()
    }
}

fn ints(name: &str, values: Vec<i64>) -> (&str, ArrayRef) {
    (name, Arc::new(Int64Array::from(values)))
}

fn texts(name: &str, values: Vec<String>) -> (&str, ArrayRef) {
    (name, Arc::new(StringArray::from(values)))
}

/// What a run of the program left.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "{part:?} is not in:\n{}", self.stderr);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

#[test]
fn once_delivers_everything_and_again_writes_nothing() {
    let feed = Feed::of_three_files();
    let ran = feed.run("run --once", 0);
    ran.says("p/v/lake: generation 1, cutover step 10, last step 30, 3 rows loaded, 1 appends, 20 rows appended");
    assert_eq!(ran.stdout, "");
    let before = feed.stamps();
    feed.run("run --once", 0).says("p/v/lake: generation 1, cutover step 10, last step 30, 0 appends, 0 rows appended");
    assert_eq!(feed.stamps(), before);
}

#[test]
fn results_are_one_json_document() {
    let feed = Feed::of_three_files();
    let ran = feed.run("run --once -o json -q", 0);
    assert_eq!(ran.stderr, "");
    assert!(ran.stdout.starts_with("{\"schema\":\"cutover.run/1\""), "{}", ran.stdout);
    let expected = json!([{
        "name": "p/v/lake", "generation": 1, "cutover": 10, "last_step": 30, "rows_loaded": 3, "appends": 1, "rows": 20,
        "hole": null, "error": null,
    }]);
    assert_eq!(ran.json()["connectors"], expected);
}

#[test]
fn until_step_cuts_exactly_there() {
    let feed = Feed::of_three_files();
    feed.run("run --until-step 15", 0);
    assert_eq!(feed.last_step(), 15);
    feed.run("run --once --until-step 99", 0);
    assert_eq!(feed.last_step(), 30);
}

#[test]
fn a_hole_is_named_and_ends_with_75() {
    let feed = Feed::of_three_files();
    feed.changes(40, 50);
    let ran = feed.run("run --once -o json", 75);
    ran.says("p/v/lake: waits for the changes after step 30; next is changes-40-50.parquet");
    assert_eq!(ran.json()["connectors"][0]["hole"], json!({"after": 30, "before": "changes-40-50.parquet"}));
    assert_eq!(feed.last_step(), 30);
}

#[test]
fn modes_choose_what_is_delivered() {
    let feed = Feed::of_three_files();
    feed.configure("mode = \"snapshot\"");
    for _ in 0..2 {
        feed.run("run", 0);
        assert_eq!(feed.stamps().len(), 1);
        assert_eq!(feed.last_step(), 10);
    }
    let feed = Feed::of_three_files();
    feed.configure("mode = \"follow\"");
    feed.run("run --once", 0);
    let stamps = feed.stamps();
    assert_eq!(stamps[0]["rows"], json!({"i": 0, "u": 0, "d": 0}));
    assert_eq!((stamps.len(), feed.last_step()), (2, 30));
    feed.run("reset lake --yes", 5).says("which has no snapshot to load");
}

#[test]
fn every_problem_of_a_configuration_is_placed() {
    let feed = Feed::of_three_files();
    feed.configure("mode = \"folow\"\ncolour = 1");
    feed.run("run --once", 78)
        .says("error: cutover.toml:9:8: pipelines.p.views.v.connectors.lake.mode: \"folow\" is not known")
        .says("error: cutover.toml:10:1: ");
    feed.run("run -c none.toml", 78).says("there is no configuration none.toml; write one");
    feed.configure("");
    let storage = "pipelines.p.views.v.connectors.lake.delta.storage.token=CANARY";
    let ran = feed.run(&format!("run --once -vvv -o json --set {storage}"), 78);
    ran.says("a local table has none");
    assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("CANARY"), "{}", ran.stderr);
    assert!(!feed.path("table").exists());
}

#[test]
fn a_wrong_command_line_is_2() {
    let feed = Feed::new();
    let lines =
        ["", "run --onec", "run --until-step x", "run -o env", "reset", "reset lake --expected-generation 0", "walk"];
    for line in lines {
        feed.run(line, 2);
    }
    feed.run("run --help", 0);
    feed.run("--version", 0);
}

#[test]
fn a_table_of_others_is_refused() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    let entry = feed.path("table/_delta_log/00000000000000000000.json");
    let foreign: String = fs::read_to_string(&entry)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|action| action.get("txn").is_none() && action.get("commitInfo").is_none())
        .map(|mut action| {
            if let Some(metadata) = action.get_mut("metaData") {
                metadata["configuration"] = json!({});
            }
            format!("{action}\n")
        })
        .collect();
    fs::remove_dir_all(feed.path("table/_delta_log")).unwrap();
    fs::create_dir(feed.path("table/_delta_log")).unwrap();
    fs::write(&entry, foreign).unwrap();
    feed.run("run --once", 5).says("error: p/v/lake: the table exists and is not ours");
    feed.run("reset lake --yes", 5).says("the table exists and is not ours");
    assert_eq!(fs::read_dir(feed.path("table/_delta_log")).unwrap().count(), 1);
}

#[test]
fn a_connector_that_fails_leaves_the_others_running() {
    let feed = Feed::of_three_files();
    let second = "[pipelines.p.views.v.connectors.other.delta]\nuri = \"occupied\"\n";
    let mut config = File::options().append(true).open(feed.path("cutover.toml")).unwrap();
    config.write_all(second.as_bytes()).unwrap();
    fs::create_dir(feed.path("occupied")).unwrap();
    fs::write(feed.path("occupied/other.parquet"), "PAR1").unwrap();
    let ran = feed.run("run --once -o json", 5);
    ran.says("error: p/v/other: ").says("p/v/lake: generation 1");
    let connectors = &ran.json()["connectors"];
    assert_eq!(connectors[0]["error"], Value::Null);
    assert_eq!(connectors[1]["error"]["kind"], "refused");
    assert_eq!(feed.last_step(), 30);
}

#[test]
fn a_reset_wants_a_confirmation_and_starts_a_generation() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    let before = feed.stamps();
    feed.run("reset lake", 5).says("confirm it with --yes").says("committed to the table");
    let dry = feed.run("reset v/lake --dry-run", 0);
    assert_eq!(
        dry.stdout,
        "p/v/lake: generation 1, last step 30, is replaced by generation 2, cutover step 30; nothing is written\n"
    );
    feed.run("reset lake --yes --expected-generation 7", 5).says("the table has the generation 1, expected was 7");
    feed.run("reset lak --yes", 78).says("did you mean \"lake\"");
    assert_eq!(feed.stamps(), before);

    let ran = feed.run("reset lake --yes --reason tidy --expected-generation 1", 0);
    let stamps = feed.stamps();
    let version = stamps.len() - 1;
    assert_eq!(ran.stdout, format!("p/v/lake: generation 2, cutover step 30, version {version}, rows 23\n"));
    let last = &stamps[version];
    assert_eq!((&last["kind"], &last["generation"]), (&json!("reload"), &json!(2)));
    assert_eq!((&last["reset"]["who"], &last["reset"]["why"]), (&json!("ada@engine"), &json!("tidy")));
    feed.run("run --once", 0).says("generation 2, cutover step 30, last step 30, 0 appends");
}

#[test]
fn a_reset_that_would_go_back_fences_nobody() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    fs::remove_file(feed.path("feed/v/changes-20-30.ndjson")).unwrap();
    let before = feed.stamps();
    feed.run("reset lake --yes", 5).says("readers never go back");
    assert_eq!(feed.stamps(), before);
    feed.run("run --once", 3).says("to load the table anew: cutover reset -c cutover.toml p/v/lake --yes");
    let ran = feed.run("reset lake --yes --allow-older -o json", 0);
    let reset = &ran.json()["resets"][0];
    assert_eq!((&reset["outcome"], &reset["cutover"]), (&json!("committed"), &json!(20)));
}

#[test]
fn a_partitioning_that_the_table_does_not_have_is_refused_before_anything_is_delivered() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    let other = "run --once --set pipelines.p.views.v.connectors.lake.delta.partition_by=[\"name\"]";
    feed.run(other, 5).says("the table is partitioned by [], and partition_by asks for [\"name\"]");
}

#[test]
fn every_named_connector_is_reset_and_the_first_failure_decides() {
    let feed = Feed::of_three_files();
    let second = "[pipelines.p.views.v.connectors.other.delta]\nuri = \"other\"\n";
    let mut config = File::options().append(true).open(feed.path("cutover.toml")).unwrap();
    config.write_all(second.as_bytes()).unwrap();
    feed.run("run --once", 0);
    let mode = "pipelines.p.views.v.connectors.other.mode=follow";
    let ran = feed.run(&format!("reset other lake lake --yes -o json --set {mode}"), 5);
    let outcomes: Vec<Value> = ran.json()["resets"].as_array().unwrap().iter().map(|r| r["outcome"].clone()).collect();
    assert_eq!(outcomes, ["failed", "committed"]);
}

#[test]
fn sigterm_ends_a_following_run_well() {
    let feed = Feed::of_three_files();
    let mut child = feed.command("run --set pipelines.p.views.v.connectors.lake.commit.max_interval=1ms");
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| line.unwrap());
    let following = said.by_ref().find(|line| line.starts_with("p/v/lake: following"));
    assert!(following.is_some(), "the program ended before it followed");
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let last = said.last().unwrap_or_default();
    assert_eq!(
        last,
        "stopped p/v/lake: generation 1, cutover step 10, last step 30, 3 rows loaded, 1 appends, 20 rows appended"
    );
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(feed.last_step(), 30);
}

#[test]
fn the_tables_place_can_be_set_from_outside() {
    let feed = Feed::of_three_files();
    feed.run(&format!("run --once --set {URI}=elsewhere"), 0);
    let variable = "CUTOVER__PIPELINES__P__VIEWS__V__CONNECTORS__LAKE__DELTA__URI";
    let ran = Ran::of(feed.command("-q run --once").env(variable, "by-variable").output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(feed.path("elsewhere/_delta_log").exists() && feed.path("by-variable/_delta_log").exists());
    assert!(!feed.path("table").exists());
}

#[test]
fn nothing_from_outside_steers_the_terminal() {
    let feed = Feed::of_three_files();
    feed.run("run -c \u{1b}[31m.toml", 78).says("there is no configuration \\u{1b}[31m.toml");
}

#[test]
fn a_history_is_drawn_as_svg() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    feed.run("reset lake --yes", 0);
    let drawn = feed.run("history table --svg", 0).stdout;
    let count = |part: &str| drawn.matches(part).count();
    let (kinds, stamps) = (|kind: &str| feed.stamps().iter().filter(|s| s["kind"] == kind).count(), feed.stamps());
    assert_eq!(count("<g class=\"lane\">"), kinds("reload"), "{stamps:?}");
    assert_eq!(count("class=\"append"), kinds("append"));
    assert_eq!((count("<svg"), count("</svg>"), count("<style>"), count("<script")), (1, 1, 1, 0));
    assert!(
        drawn.contains("Generation 1: steps 10 to 30, 3 rows loaded at step 10, 1 appends with 20 rows"),
        "{drawn}"
    );
    assert_eq!(feed.run("history table --svg picture.svg", 0).stdout, "");
    assert_eq!(fs::read_to_string(feed.path("picture.svg")).unwrap(), drawn);
    feed.run("history table --svg -o json", 2);
}

#[test]
fn who_asks_a_daemon_is_told_where_when_the_configuration_does_not_say() {
    let feed = Feed::new();
    fs::write(feed.path("broken.toml"), "config_version = 1\n[server\n").unwrap();
    for line in ["-c none.toml status", "-c broken.toml push v"] {
        let said = Ran::of(feed.command(line).output().unwrap()).stderr;
        assert!(said.contains("http://127.0.0.1:8090 is asked"), "{line}: {said}");
    }
}

#[test]
fn options_of_every_command_do_what_they_say() {
    let feed = Feed::of_three_files();
    fs::rename(feed.path("cutover.toml"), feed.path("other.toml")).unwrap();
    let ran = feed.run("run --config other.toml --once --output json --verbose --color always", 0);
    assert_eq!(ran.json()["connectors"][0]["last_step"], 30);
    assert!(ran.stderr.contains("\u{1b}["), "{}", ran.stderr);
    let plain = feed.run("run --config other.toml --once --verbose --color never", 0);
    assert!(!plain.stderr.contains('\u{1b}'), "{}", plain.stderr);
    feed.run("reset lake --config other.toml --no-input", 5).says("--yes");
    let newest = feed.run("history table --limit 1", 0).stdout;
    assert_eq!(newest.lines().count(), 2, "{newest}");
    let at = feed.run("show table --at-step 10 -o json", 0).json();
    assert_eq!((&at["version"], &at["last_step"]), (&json!(0), &json!(10)), "{at}");
    let verified = feed.run("verify table --since-version 1 -o json", 0).json();
    assert_eq!((&verified["since_version"], &verified["verdict"]), (&json!(1), &json!("healthy")), "{verified}");
    fs::write(feed.path("token"), "CANARY-0123456789\n").unwrap();
    let status = "status --token-file token --url http://127.0.0.1:1";
    for (mode, code) in [(0o644, 78), (0o600, 69)] {
        fs::set_permissions(feed.path("token"), fs::Permissions::from_mode(mode)).unwrap();
        assert!(!feed.run(status, code).stderr.contains("CANARY"));
    }
    let last = feed.stamps().len() - 1;
    assert!(newest.lines().nth(1).unwrap().trim_start().starts_with(&last.to_string()), "{newest}");
}

#[test]
fn options_of_an_object_store_are_taken_by_every_command_that_names_a_table() {
    let feed = Feed::of_three_files();
    feed.run("run --once", 0);
    for command in [
        "verify table",
        "history table",
        "show table",
        "state table",
        "changes table --bookmark done",
        "gc table",
        "adopt table --as p/v/other --yes",
        "snippets duckdb table",
    ] {
        let refused = feed.run(&format!("{command} --storage CANARY"), 78);
        refused.says("a --storage is not of the form KEY=VALUE");
        assert!(!refused.stderr.contains("CANARY"), "{command}: {}", refused.stderr);
    }
    let local = feed.run("show table --storage region=eu-west-1", 78);
    local.says("a local table has none");
}
