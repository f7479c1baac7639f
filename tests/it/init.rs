//! What `cutover init` writes works as it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::program::{PATIENCE, Ran, Running, wait_until};

fn command(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    command.args(args).current_dir(home).env("CUTOVER__SERVER__LISTEN", "127.0.0.1:0");
    command
}

fn run(home: &Path, args: &[&str], code: i32) -> Ran {
    Ran::of(command(home, args).output().unwrap()).ended(code, 0)
}

/// The variables that the example of an environment sets.
fn environment(home: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(home.join(".env.example")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let variables = lines.map(|line| line.split_once('=').unwrap_or_else(|| panic!("{line} sets nothing")));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn each_source_gets_a_configuration_that_a_check_finds_nothing_wrong_with() {
    for source in ["files", "push", "postgres"] {
        let home = TempDir::new().unwrap();
        let written = run(home.path(), &["init", "--source", source, "-o", "json"], 0);
        let document: Value = serde_json::from_str(&written.stdout).unwrap();
        for file in document["files"].as_array().unwrap() {
            assert!(home.path().join(file.as_str().unwrap()).is_file(), "{file}");
        }
        let variables = environment(home.path());
        assert!(variables.iter().any(|(name, _)| name == "LAKE_URI"), "{variables:?}");
        let mut check = command(home.path(), &["check", "--offline"]);
        let checked = Ran::of(check.envs(variables).output().unwrap()).ended(0, 0);
        assert_eq!(checked.stdout, "nothing is wrong\n", "{source}");
        if source == "postgres" {
            let without = run(home.path(), &["check", "--offline"], 78);
            assert!(without.stdout.contains("the environment variable PG_URL is not set"), "{}", without.stdout);
        }
    }
}

#[test]
fn nothing_is_overwritten_and_nothing_is_written_beside_what_is_there() {
    for name in ["cutover.toml", ".env.example", ".gitignore", "feed/orders/snapshot-1.ndjson"] {
        let home = TempDir::new().unwrap();
        let own = home.path().join("shop").join(name);
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::write(&own, "mine").unwrap();
        let refused = run(home.path(), &["init", "shop", "--source", "files"], 5);
        let said = format!("shop/{name} is there already, and nothing is overwritten; move it away");
        assert!(refused.stderr.contains(&said), "{}", refused.stderr);
        assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
        let others = ["cutover.toml", ".env.example", ".gitignore"].into_iter().filter(|other| *other != name);
        for other in others {
            assert!(!home.path().join("shop").join(other).exists(), "{other} was written beside {name}");
        }
    }
}

#[test]
fn the_files_that_were_written_run_at_once() {
    let home = TempDir::new().unwrap();
    let made = run(home.path(), &["init", "a/b", "--source", "files"], 0);
    assert!(made.stdout.contains("a/b/cutover.toml\n") && made.stderr.contains("cd a/b"), "{made:?}");
    let home = home.path().join("a/b");
    run(&home, &["run", "--once"], 0);
    let rows = run(&home, &["state", "lake/orders"], 0).stdout;
    assert_eq!(rows, "{\"id\":1,\"item\":\"tea\",\"amount\":3.95}\n");
    let ignored = fs::read_to_string(home.join(".gitignore")).unwrap();
    for made in fs::read_dir(&home).unwrap() {
        let name = made.unwrap().file_name().into_string().unwrap();
        let is_kept = ["cutover.toml", ".env.example", ".gitignore", "feed"].contains(&name.as_str());
        assert!(is_kept || ignored.contains(&format!("/{name}/")), "{name} is not ignored:\n{ignored}");
    }
}

#[test]
fn a_view_that_was_written_to_be_pushed_takes_pushes() {
    let home = TempDir::new().unwrap();
    run(home.path(), &["init", "--source", "push"], 0);
    let said = NamedTempFile::new_in(home.path()).unwrap();
    let mut daemon = Running::start(command(home.path(), &["run"]), said);
    let listening =
        |daemon: &Running| daemon.said().lines().find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
    wait_until(PATIENCE, || listening(&daemon).is_some() || daemon.ended().is_some());
    let url = listening(&daemon).unwrap_or_else(|| panic!("{}", daemon.said()));
    fs::write(home.path().join("one"), "{\"insert\": {\"id\": 1, \"item\": \"tea\", \"amount\": 3.75}}\n").unwrap();
    run(home.path(), &["push", "orders", "one", "--url", &url], 0);
    run(home.path(), &["wait", "lake", "--step", "1", "--url", &url], 0);
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0), "{}", daemon.said());
    assert_eq!(run(home.path(), &["state", "lake/orders"], 0).stdout, "{\"id\":1,\"item\":\"tea\",\"amount\":3.75}\n");
}
