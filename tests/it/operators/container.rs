//! The recipe of the container, as far as it can be tried without building one.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::{read, repository};
use crate::program::Ran;
use crate::service::{Home, connector};

/// The instructions, each on one line.
fn instructions() -> Vec<String> {
    let text = read("operators/Containerfile");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    lines.join("\n").replace("\\\n", " ").lines().map(str::to_owned).collect()
}

/// What the instructions of a name say.
fn of(name: &str) -> Vec<String> {
    let with_name = |line: &String| line.strip_prefix(name)?.strip_prefix(' ').map(|rest| rest.trim().to_owned());
    instructions().iter().filter_map(with_name).collect()
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        copy(&path, &to.join(path.file_name().unwrap()));
    }
}

#[test]
fn the_container_is_built_with_the_version_of_rust_that_the_manifest_names() {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let version = manifest["package"]["rust-version"].as_str().unwrap();
    let stages = of("FROM");
    assert!(stages[0].starts_with(&format!("docker.io/library/rust:{version}-")), "{stages:?}");
    assert_eq!(stages.len(), 2, "{stages:?}");
}

#[test]
fn what_is_copied_is_all_that_the_build_needs() {
    let build = TempDir::new().unwrap();
    let into_build = of("COPY").into_iter().take_while(|line| !line.starts_with("--from"));
    for line in into_build {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (to, from) = words.split_last().unwrap();
        for name in from {
            let to = if *to == "./" { build.path().join(name) } else { build.path().join(to) };
            copy(&repository(name), &to);
        }
    }
    for line in of("COPY").iter().filter(|line| line.starts_with("LICENSE")) {
        assert!(repository(line.split(' ').next().unwrap()).is_file(), "{line}");
    }
    // Cargo misses what the manifest names and is not there.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(build.path());
    let package: Value = serde_json::from_str(&Ran::of(cargo.output().unwrap()).ended(0, 0).stdout).unwrap();
    let targets = package["packages"][0]["targets"].as_array().unwrap();
    assert!(targets.iter().any(|target| target["name"] == "cutover" && target["kind"][0] == "bin"), "{targets:?}");
    for target in targets {
        assert!(Path::new(target["src_path"].as_str().unwrap()).is_file(), "{target}");
    }
    // What the program takes in as text is copied with its sources.
    let mut folders = vec![repository("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") && !path.to_str().unwrap().ends_with("_tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                for name in text.split("include_str!(\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
                    let taken = fs::canonicalize(folder.join(name)).unwrap();
                    let within = taken.strip_prefix(fs::canonicalize(repository("")).unwrap()).unwrap();
                    assert!(build.path().join(within).is_file(), "{} is not copied", within.display());
                }
            }
        }
    }
}

#[test]
fn who_runs_in_the_container_is_nobody_special_and_listens_where_it_says() {
    let users = of("USER");
    assert!(users.len() == 1 && !users[0].starts_with('0') && !users[0].starts_with("root"), "{users:?}");
    let listening = of("ENV").join(" ");
    let (ports, volumes) = (of("EXPOSE"), of("VOLUME"));
    assert!(listening.contains(&format!("CUTOVER__SERVER__LISTEN=0.0.0.0:{}", ports[0])), "{listening}");
    assert!(listening.contains(&format!("CUTOVER__SERVER__DATA_DIR={}", volumes[0])), "{listening}");
}

#[test]
fn the_check_of_the_container_tells_a_daemon_that_answers_from_none() {
    let check = of("HEALTHCHECK").remove(0);
    let command: Vec<String> = serde_json::from_str(check.split("CMD ").nth(1).unwrap()).unwrap();
    let home = Home::new(&connector("lake", ""));
    let service = home.start();
    let port = service.url.rsplit(':').next().unwrap().to_owned();
    let healthy = || {
        let args = command[1..].iter().map(|arg| arg.replace("/8090", &format!("/{port}")));
        Command::new(&command[0]).args(args).output().unwrap().status.success()
    };
    assert!(healthy(), "{command:?}");
    service.stop();
    assert!(!healthy(), "{command:?}");
}
