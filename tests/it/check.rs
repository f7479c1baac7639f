//! What `cutover check` finds of a configuration and of this machine.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::Ran;

const CONFIG: &str = "config_version = 1
[server]
listen = \"LISTEN\"
data_dir = \"data\"
[pipelines.p.source.files]
path = \"feed\"
[pipelines.p.views.v]
key = [\"id\"]
columns = { id = \"bigint\" }
[pipelines.p.views.v.connectors.c.delta]
uri = \"table\"
";

fn run(home: &Path, args: &[&str]) -> Ran {
    Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).args(args).current_dir(home).output().unwrap())
}

/// Each problem: how bad it is, and where.
fn places(home: &Path, code: i32) -> Vec<(String, String)> {
    let ran = run(home, &["check", "-o", "json"]).ended(code, 0);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap().to_owned();
    let findings = document["findings"].as_array().unwrap().iter();
    let wrong = findings.filter(|finding| finding["severity"] != "note");
    wrong.map(|finding| (text(finding, "severity"), text(finding, "place"))).collect()
}

fn configure(home: &Path, change: impl Fn(String) -> String) {
    fs::write(home.join("cutover.toml"), change(CONFIG.replace("LISTEN", "127.0.0.1:0"))).unwrap();
}

#[test]
fn each_problem_of_a_configuration_and_its_machine_is_said_at_its_place() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let at = |severity: &str, place: &str| (severity.to_owned(), format!("cutover.toml:{place}"));
    configure(home, |text| text.replace("version = 1", "version = 2").replace("key =", "kee ="));
    let listed = places(home, 78);
    assert_eq!(listed, [at("error", "1:18"), at("error", "8:1")]);
    // Whatever is held already.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    configure(home, |text| text.replace("127.0.0.1:0", &address));
    let expected = [at("error", "3:1: server.listen"), at("error", "6:1: pipelines.p.source.files.path")];
    assert_eq!(places(home, 78), expected);
    configure(home, |text| text);
    fs::create_dir(home.join("feed")).unwrap();
    assert_eq!(places(home, 0), [at("warning", "6:1: pipelines.p.source.files.path")]);
    fs::create_dir(home.join("feed/v")).unwrap();
    let nothing = run(home, &["check"]).ended(0, 0);
    assert_eq!(nothing.stdout, "nothing is wrong\n");
    assert!(!home.join("data").exists() && !home.join("table").exists(), "nothing is made");
    fs::write(home.join("data"), "no directory").unwrap();
    assert_eq!(places(home, 78).first(), Some(&at("error", "4:1: server.data_dir")));
    fs::remove_file(home.join("data")).unwrap();
    // A table of another connector, and one of nobody's.
    fs::write(home.join("feed/v/snapshot-1.ndjson"), "{\"id\":1}\n").unwrap();
    run(home, &["run", "--once"]).ended(0, 0);
    assert_eq!(places(home, 0), []);
    configure(home, |text| text.replace("connectors.c.", "connectors.d."));
    let ran = run(home, &["check", "-o", "json", "--offline"]).ended(5, 0);
    let found = &serde_json::from_str::<Value>(&ran.stdout).unwrap()["findings"][0];
    assert_eq!((&found["code"], &found["remedy"]), (&json!("refused"), &json!("cutover adopt table --as p/v/d")));
    fs::remove_dir_all(home.join("table/_delta_log")).unwrap();
    fs::write(home.join("table/others.parquet"), "rows").unwrap();
    let folder = places(home, 5);
    assert_eq!(folder, [at("error", "11:1: pipelines.p.views.v.connectors.d.delta.uri")]);
    let other = run(home, &["check", "-c", "none.toml"]).ended(78, 0);
    assert!(other.stdout.contains("there is no configuration none.toml"), "{}", other.stdout);
}
