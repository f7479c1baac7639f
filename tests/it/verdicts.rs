//! Readers of tables: the code of `readers/README.md` says of each table what `cutover verify` says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Ran, Readers};

const READERS: [&str; 5] = ["DuckDB", "Python", "Polars", "pandas", "Spark"];
/// By their makers in `readers/tests/tables.py`.
const TABLES: [&str; 12] = [
    "healthy_changelog",
    "healthy_current",
    "healthy_reset",
    "healthy_maintained",
    "healthy_cleaned",
    "broken_gap",
    "broken_missing_version",
    "broken_steps_twice",
    "broken_foreign_rows",
    "broken_digest_total",
    "broken_file_gone",
    "inconclusive_contract",
];

/// A script of `readers/tests`, which may call the program.
fn script(readers: &Readers, name: &str) -> Command {
    let mut command = readers.python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/tests").join(name));
    command.env("CUTOVER", env!("CARGO_BIN_EXE_cutover"));
    command
}

/// What a script prints, once it ended well.
fn told(command: &mut Command) -> String {
    Ran::of(command.output().unwrap()).ended(0, 0).stdout
}

fn made(readers: &Readers, home: &Path, names: &[&str]) -> Vec<PathBuf> {
    told(script(readers, "tables.py").arg(home).args(names)).lines().map(PathBuf::from).collect()
}

/// The verdict, which the exit code and the table's name say too.
fn verified(table: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    let ran = Ran::of(command.args(["verify", "-o", "json"]).arg(table).output().unwrap());
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let verdict = document["verdict"].as_str().unwrap().to_owned();
    let code = match verdict.as_str() {
        "healthy" => 0,
        "broken" => 3,
        _ => 4,
    };
    assert_eq!(ran.code, Some(code), "{}{}", ran.stdout, ran.stderr);
    assert!(table.to_str().unwrap().contains(&format!("/{verdict}_")), "{}: {document}", table.display());
    Value::String(verdict)
}

#[test]
fn each_reader_says_of_twelve_tables_what_verify_says() {
    const TEST: &str = "each_reader_says_of_twelve_tables_what_verify_says";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = TempDir::new().unwrap();
    let tables = made(&readers, home.path(), &TABLES);
    assert_eq!(tables.len(), TABLES.len());
    let expected: Value =
        tables.iter().map(|t| (t.display().to_string(), verified(t))).collect::<serde_json::Map<_, _>>().into();
    let answers = told(script(&readers, "judge.py").args(["verdicts", &READERS.join(",")]).args(&tables));
    let answers: Value = serde_json::from_str(&answers).unwrap();
    for reader in READERS {
        assert_eq!(answers[reader], expected, "{reader}");
    }
}

#[test]
fn the_code_of_the_readers_page_runs() {
    const TEST: &str = "the_code_of_the_readers_page_runs";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = TempDir::new().unwrap();
    let table = made(&readers, home.path(), &["healthy_reset"]).remove(0);
    let ran: Value = serde_json::from_str(&told(script(&readers, "judge.py").arg("page").arg(table))).unwrap();
    assert_eq!(ran, json!(["DuckDB 2", "Python 2", "Python 3", "Spark 2"]));
    // The rest are verdicts and the subscription, which other tests run, and what only Spark itself runs.
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/README.md")).unwrap();
    let blocks = page.lines().filter(|line| *line == "```python" || *line == "```sql").count();
    assert_eq!(blocks, ran.as_array().unwrap().len() + READERS.len() + 2, "a block that no test runs");
}

#[test]
fn changes_are_reloads_or_news_or_errors_as_the_program_has_them() {
    const TEST: &str = "changes_are_reloads_or_news_or_errors_as_the_program_has_them";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = TempDir::new().unwrap();
    let outcomes = told(script(&readers, "judge.py").arg("bookmarks").arg(home.path().join("site")));
    let outcomes: Value = serde_json::from_str(&outcomes).unwrap();
    let expected = ["reload", "nothing", "changes", "reload", "BookmarkError", "BookmarkError", "ContinuityLost"];
    assert_eq!(outcomes, json!(expected));
}
