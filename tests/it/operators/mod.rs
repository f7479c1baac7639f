//! What operators are given: a dashboard, alerts, a unit, a container, a release and a page about all of it.

mod container;
mod page;
mod prometheus;
mod release;
mod rules;
mod unit;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a file of the repository.
fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(repository(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Whether the machine has a program; where it has not, says that `test` is skipped, and what brings it.
fn has(program: &str, test: &str, package: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        let _ = writeln!(std::io::stderr(), "skipped: {test}; install {program}, which Debian has in {package}");
    }
    is_there
}

/// The program's commands, as its help lists them.
fn commands() -> Vec<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_cutover")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}
