//! The code that `cutover snippets` prints, run as it is printed by the engines that it is for.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Ran, Readers};

const ENGINES: [&str; 4] = ["duckdb", "polars", "pandas", "spark"];

/// Three views of one feed: with key as changelog and as the view itself, and without.
const CONFIG: &str = r#"config_version = 1
[server]
data_dir = "data"
[pipelines.p.source.files]
path = "feed"
[pipelines.p.views.keyed]
key = ["id", "part"]
columns = { id = "bigint", part = "string", name = "string" }
[pipelines.p.views.keyed.connectors.changelog.delta]
uri = "changelog"
[pipelines.p.views.keyed.connectors.current.delta]
uri = "current"
layout = "current"
[pipelines.p.views.keyless]
columns = { id = "bigint", name = "string" }
[pipelines.p.views.keyless.connectors.keyless.delta]
uri = "keyless"
"#;

/// What an engine is asked beside the code, with the names that the code gives things.
const DUCKDB: &str = "rows, names = state.fetchall(), state.columns";
const POLARS: &str = "rows, names = state.rows(), state.columns";
const PANDAS: &str =
    "rows, names = state.astype(object).where(state.notna(), None).values.tolist(), list(state.columns)";
const SPARK: &str = "rows, names = state.collect(), state.columns";
const TOLD: &str = r#"
import json
rows = [[value.item() if hasattr(value, "item") else value for value in row] for row in rows]
print("\n" + json.dumps({"rows": sorted(rows, key=str), "names": names, "cutover": cutover[:2], "broken": len(broken)}))
"#;
const SAIL: &str = r#"
import os
from pysail.spark import SparkConnectServer
server = SparkConnectServer("127.0.0.1", 0)
server.start(background=True)
os.environ["SPARK_REMOTE"] = f"sc://127.0.0.1:{server.listening_address[1]}"
"#;

struct Tables(TempDir);

impl Tables {
    /// Loaded, followed, reset and followed again.
    fn new() -> Self {
        let tables = Self(TempDir::new().unwrap());
        fs::write(tables.home().join("cutover.toml"), CONFIG).unwrap();
        tables.land(
            "keyed/snapshot-1.ndjson",
            &[
                json!({"id": 1, "part": "a", "name": "tea"}),
                json!({"id": 2, "part": "b", "name": "cocoa"}),
                json!({"id": 3, "part": "a"}),
            ],
        );
        let tea = json!({"id": 1, "name": "tea"});
        tables.land("keyless/snapshot-1.ndjson", &[tea.clone(), tea.clone(), json!({"id": 3})]);
        tables.run(&["run", "--once"]);
        tables.land(
            "keyed/changes-1-3.ndjson",
            &[
                json!({"step": 2, "delete": {"id": 2, "part": "b"}}),
                json!({"step": 3, "insert": {"id": 4, "part": "b", "name": "x"}}),
            ],
        );
        tables.land(
            "keyless/changes-1-3.ndjson",
            &[json!({"step": 2, "delete": tea}), json!({"step": 3, "insert": {"id": 4, "name": "x"}})],
        );
        tables.run(&["run", "--once"]);
        for connector in ["changelog", "current", "keyless"] {
            tables.run(&["reset", connector, "--yes"]);
        }
        tables.land("keyed/changes-3-5.ndjson", &[json!({"step": 5, "update": {"id": 3, "part": "a", "name": "y"}})]);
        tables.land("keyless/changes-3-5.ndjson", &[json!({"step": 5, "delete": {"id": 3}})]);
        tables.run(&["run", "--once"]);
        tables
    }

    fn home(&self) -> &Path {
        self.0.path()
    }

    fn land(&self, name: &str, lines: &[Value]) {
        let path = self.home().join("feed").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        Ran::of(command.args(args).current_dir(self.home()).output().unwrap()).ended(0, 0)
    }

    /// The newest entry of a table with another first step in its stamp.
    fn break_continuity(&self, table: &str) {
        let log = self.home().join(table).join("_delta_log");
        let mut entries: Vec<_> = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.retain(|path| path.extension().is_some_and(|end| end == "json"));
        entries.sort();
        let newest = entries.last().unwrap();
        let text = fs::read_to_string(newest).unwrap();
        let broken = text.replace(r#"\"from\":3,"#, r#"\"from\":4,"#);
        assert_ne!(text, broken, "{text}");
        fs::write(newest, broken).unwrap();
    }

    /// What the code of `engine` for `table` comes to.
    fn read(&self, readers: &Readers, engine: &str, table: &str) -> Value {
        let code = self.run(&["snippets", engine, table]).stdout;
        let (before, after) = match engine {
            "duckdb" => ("", DUCKDB),
            "polars" => ("", POLARS),
            "pandas" => ("", PANDAS),
            _ => (SAIL, SPARK),
        };
        let program = self.home().join(format!("{engine}_reads.py"));
        fs::write(&program, format!("{before}\n{code}\n{after}\n{TOLD}")).unwrap();
        let mut python = readers.python();
        python.arg(program).current_dir(self.home());
        let ran = Ran::of(python.stdin(Stdio::null()).output().unwrap());
        assert_eq!(ran.code, Some(0), "{engine} {table}: {}{}\n{code}", ran.stdout, ran.stderr);
        let line = ran.stdout.lines().rfind(|line| line.starts_with("{\"rows\"")).unwrap();
        let verdict = if line.contains("\"broken\": 0") { "\ncontinuous" } else { "not continuous" };
        assert!(ran.stdout.contains(verdict), "{engine} {table}: {}", ran.stdout);
        serde_json::from_str(line).unwrap()
    }
}

#[test]
fn code_for_each_engine_gives_the_state_the_cutover_and_whether_it_is_continuous() {
    const TEST: &str = "code_for_each_engine_gives_the_state_the_cutover_and_whether_it_is_continuous";
    let Some(readers) = Readers::find(TEST) else { return };
    let tables = Tables::new();
    let keyed = json!([[1, "a", "tea"], [3, "a", "y"], [4, "b", "x"]]);
    let keyless = json!([[1, "tea", 1], [4, "x", 1]]);
    for engine in ENGINES {
        for (table, names, rows) in [
            ("changelog", json!(["id", "part", "name"]), &keyed),
            ("current", json!(["id", "part", "name"]), &keyed),
            ("keyless", json!(["id", "name", "copies"]), &keyless),
        ] {
            let read = tables.read(&readers, engine, table);
            let expected = json!({"rows": rows, "names": names, "cutover": [2, 3], "broken": 0});
            assert_eq!(read, expected, "{engine} {table}");
        }
    }
    tables.break_continuity("changelog");
    for engine in ENGINES {
        assert_eq!(tables.read(&readers, engine, "changelog")["broken"], 1, "{engine}");
    }
}

#[test]
fn code_without_a_table_is_python_with_placeholders() {
    const TEST: &str = "code_without_a_table_is_python_with_placeholders";
    let home = TempDir::new().unwrap();
    let snippet = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        Ran::of(command.arg("snippets").args(args).current_dir(home.path()).output().unwrap()).ended(0, 0)
    };
    let codes: Vec<String> = ENGINES.iter().map(|engine| snippet(&[engine]).stdout).collect();
    for code in &codes {
        assert!(code.contains("TABLE = \"lake/orders\"") && code.contains("In layout `current`"), "{code}");
    }
    // One that cannot be read is named all the same.
    let missing = snippet(&["polars", "nowhere"]);
    assert!(missing.stdout.contains("TABLE = \"nowhere\""), "{}", missing.stdout);
    assert!(
        missing.stderr.contains("the table was not read, so layout and key are placeholders"),
        "{}",
        missing.stderr
    );
    let document: Value = serde_json::from_str(&snippet(&["duckdb", "-o", "json"]).stdout).unwrap();
    assert_eq!(document["language"], "python");
    let Some(readers) = Readers::find(TEST) else { return };
    for (number, code) in codes.iter().enumerate() {
        let file = home.path().join(format!("{number}.py"));
        fs::write(&file, code).unwrap();
        let compiled = readers.python().args(["-m", "py_compile"]).arg(&file).output().unwrap();
        Ran::of(compiled).ended(0, 0);
    }
}
