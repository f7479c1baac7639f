//! `cutover demo`: what it says, what it leaves, and what is left of one that is stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::program::{Chance, PATIENCE, Ran, Readers, Running, names, wait_until};

/// The headings of the chapters.
fn headings(text: &str) -> Vec<&str> {
    let is_heading = |line: &&str| line.chars().next().is_some_and(|c| c.is_ascii_digit());
    text.lines().filter(is_heading).collect()
}

/// A demo whose temporary directories are made in `home`.
fn demo(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    command.arg("demo").args(args).env("TMPDIR", home).current_dir(home);
    command
}

/// The processes that work in `home` or below it.
fn processes(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    entries.filter(|path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(home))).collect()
}

/// The stamps of a table's versions.
fn stamps(table: &Path) -> Vec<Value> {
    let entries = names(&table.join("_delta_log")).into_iter().filter(|name| name.len() == 25);
    let stamp = |name: String| {
        let text = fs::read_to_string(table.join("_delta_log").join(name)).unwrap();
        let info: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        serde_json::from_str(info["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap()
    };
    entries.filter(|name| name.ends_with(".json")).map(stamp).collect()
}

#[test]
fn a_demo_says_what_its_tables_show() {
    const TEST: &str = "a_demo_says_what_its_tables_show";
    let (home, seed) = (TempDir::new().unwrap(), Chance::new(TEST).seed);
    let dir = home.path().join("kept");
    let ran = Ran::of(demo(home.path(), &["--dir", "kept", "--port", "0"]).output().unwrap()).ended(0, seed);
    let said = &ran.stdout;
    assert_eq!(headings(said).len(), 5, "{said}");
    let (expected, observed) = (said.matches("expected  ").count(), said.matches("observed  ").count());
    assert!(expected == observed && expected >= 10, "{said}");
    assert_eq!(processes(home.path()), Vec::<PathBuf>::new(), "{said}");
    // What daemons say is in files, and the demo has nothing to say beside its narration.
    assert_eq!(ran.stderr, "", "{said}");

    let orders = stamps(&dir.join("orders"));
    let reloads: Vec<&Value> = orders.iter().filter(|stamp| stamp["kind"] == "reload").collect();
    let asked: Vec<&str> = reloads.iter().filter_map(|stamp| stamp["reset"]["why"].as_str()).collect();
    for why in ["a step was lost", "to be killed", "a data file is gone", "with a reader beside it"] {
        assert!(asked.contains(&why), "{asked:?}");
    }
    assert_eq!(asked.last(), Some(&"with a reader beside it"), "{asked:?}");
    assert_eq!(asked.len() + 1, reloads.len(), "one load that nobody asked for: {orders:?}");
    for pair in orders.windows(2).filter(|pair| pair[1]["kind"] == "append") {
        assert_eq!(pair[0]["to"], pair[1]["from"], "{pair:?}");
    }
    // A step was lost: a generation begins beyond the end of the one before.
    let jump = orders.windows(2).find(|pair| pair[1]["reset"]["why"] == "a step was lost").unwrap();
    assert!(jump[1]["to"].as_u64() > jump[0]["to"].as_u64(), "{jump:?}");
    let epochs: Vec<u64> = stamps(&dir.join("prices")).iter().filter_map(|stamp| stamp["epoch"].as_u64()).collect();
    assert!(epochs.is_sorted() && epochs.first() < epochs.last(), "two writers: {epochs:?}");

    // The commands that it ends with work as they stand there.
    let tried: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  cutover ")).collect();
    assert!(tried.len() >= 5, "{said}");
    for line in tried.iter().filter(|line| !line.starts_with("run ")) {
        let output = Command::new(env!("CARGO_BIN_EXE_cutover")).args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    }
    let config = tried.iter().find_map(|line| line.strip_prefix("run -c ")).unwrap().split(' ').next().unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_cutover")).args(["check", "-c", config]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");

    if let Some(readers) = Readers::find(TEST) {
        let orders = dir.join("orders").display().to_string();
        let state = readers.read(&["state", "duckdb", &orders, "--key=id"]);
        assert_eq!(state["rows"].as_u64(), Some(100_000), "{state}");
        let prices = dir.join("prices").display().to_string();
        let state = readers.read(&["state", "duckdb", &prices, "--key=id"]);
        let last = stamps(&dir.join("prices")).last().unwrap()["to"].as_u64().unwrap();
        assert_eq!(state["rows"].as_u64(), Some(last + 1), "{state}");
    }

    let again = Ran::of(demo(home.path(), &["--dir", "kept"]).output().unwrap()).ended(5, seed);
    assert!(again.stderr.contains("is not empty"), "{}", again.stderr);

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let picture = fs::read_to_string(root.join("docs/demo.svg")).unwrap();
    assert!(picture.len() < 200_000);
    for heading in headings(said) {
        assert!(picture.contains(heading), "docs/demo.svg shows another demo: it lacks {heading:?}; draw it anew");
    }
}

#[test]
fn a_demo_that_is_stopped_leaves_no_process_and_no_directory() {
    const TEST: &str = "a_demo_that_is_stopped_leaves_no_process_and_no_directory";
    let mut chance = Chance::new(TEST);
    for signal in ["INT", "TERM"] {
        let (home, said) = (TempDir::new().unwrap(), NamedTempFile::new().unwrap());
        let mut demo = Running::start(demo(home.path(), &[]), said);
        // In any chapter: before it, in it, or at its end.
        let wanted = chance.below(12) as usize;
        let begun = || !processes(home.path()).is_empty();
        let reached = wait_until(PATIENCE, || {
            begun() && demo.said().matches("observed").count() >= wanted || demo.ended().is_some()
        });
        assert!(reached && demo.ended().is_none(), "{}; seed {}", demo.said(), chance.seed);
        demo.signal(signal);
        assert_eq!(demo.code(), Some(0), "{}; seed {}", demo.said(), chance.seed);
        // The demo itself worked there too, and has ended.
        assert_eq!(processes(home.path()), Vec::<PathBuf>::new(), "{}; seed {}", demo.said(), chance.seed);
        assert_eq!(names(home.path()), Vec::<String>::new(), "{}; seed {}", demo.said(), chance.seed);
    }
}

#[test]
fn a_demo_keeps_its_directory_when_it_is_to_or_when_it_fails() {
    const TEST: &str = "a_demo_keeps_its_directory_when_it_is_to_or_when_it_fails";
    let mut chance = Chance::new(TEST);
    let home = TempDir::new().unwrap();
    let mut demo = Running::start(demo(home.path(), &["--keep"]), NamedTempFile::new().unwrap());
    let wanted = chance.below(3) as usize;
    let of_demo = |path: &Path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd != home.path());
    let daemon = || processes(home.path()).into_iter().find(|path| of_demo(path));
    let reached = wait_until(PATIENCE, || {
        daemon().is_some() && demo.said().matches("expected").count() >= wanted || demo.ended().is_some()
    });
    assert!(reached && demo.ended().is_none(), "{}; seed {}", demo.said(), chance.seed);
    // A process that is taken away is what nobody expects.
    let id = daemon().unwrap().file_name().unwrap().to_string_lossy().into_owned();
    assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
    assert_ne!(demo.code(), Some(0), "{}; seed {}", demo.said(), chance.seed);
    let kept = names(home.path());
    assert!(kept.len() == 1 && demo.said().contains(&kept[0]), "{kept:?}: {}; seed {}", demo.said(), chance.seed);
    assert!(home.path().join(&kept[0]).join("daemon.log").exists());
}
