//! The unit of systemd.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use cutover::ErrorKind;
use tempfile::TempDir;

use super::{has, read};
use crate::program::Ran;

const PROGRAM: &str = "/usr/local/bin/cutover";
/// What a wrong command line ends with.
const USAGE: u8 = 2;
/// How exposed systemd may call the service, in tenths: 0 is not at all, 100 wholly.
const EXPOSED: &str = "20";

/// The values of a key, in order.
fn values(key: &str) -> Vec<String> {
    let text = read("operators/cutover.service");
    let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    lines.map(str::to_owned).collect()
}

/// The exit codes after which the unit stays down.
pub(super) fn prevented() -> BTreeSet<u8> {
    let lines = values("RestartPreventExitStatus");
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines[0].split(' ').map(|code| code.parse().unwrap()).collect()
}

#[test]
fn what_a_restart_does_not_repair_is_not_restarted() {
    let prevented = prevented();
    // A defect may not be met again; all else that does not pass by itself is somebody's to decide.
    let kinds = ErrorKind::ALL.into_iter().filter(|kind| !kind.is_retryable() && *kind != ErrorKind::Internal);
    let expected: BTreeSet<u8> = kinds.map(ErrorKind::exit_code).chain([USAGE]).collect();
    assert_eq!(prevented, expected);
    assert!(prevented.contains(&ErrorKind::Fenced.exit_code()));
    assert_eq!(values("Restart"), ["on-failure"]);
}

#[test]
fn the_unit_names_settings_that_there_are() {
    let mut variables = values("Environment").into_iter().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    assert_eq!(variables.next().unwrap(), ("CUTOVER_CONFIG".into(), "/etc/cutover/cutover.toml".into()));
    let home = TempDir::new().unwrap();
    fs::write(
        home.path().join("cutover.toml"),
        "config_version = 1\n[pipelines.p.source.push]\n[pipelines.p.views.v]\ncolumns = { id = \"bigint\" }\n",
    )
    .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    command.args(["config", "show"]).current_dir(home.path()).env_remove("CUTOVER_CONFIG").envs(variables);
    let shown = Ran::of(command.output().unwrap()).ended(0, 0).stdout;
    assert!(shown.contains("data_dir = \"/var/lib/cutover\""), "{shown}");
    assert_eq!(
        (values("StateDirectory"), values("WorkingDirectory")),
        (vec!["cutover".into()], vec!["/var/lib/cutover".into()])
    );
}

/// The unit with the program that was built.
fn unit(home: &TempDir) -> PathBuf {
    let text = read("operators/cutover.service");
    let command = format!("ExecStart={PROGRAM} run\n");
    assert!(text.contains(&command), "the command was not found");
    let path = home.path().join("cutover.service");
    fs::write(&path, text.replace(&command, &format!("ExecStart={} run\n", env!("CARGO_BIN_EXE_cutover")))).unwrap();
    path
}

#[test]
fn systemd_understands_the_unit_and_calls_it_little_exposed() {
    if !has("systemd-analyze", "systemd_understands_the_unit_and_calls_it_little_exposed", "systemd") {
        return;
    }
    let home = TempDir::new().unwrap();
    let unit = unit(&home).display().to_string();
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no", &unit]).output().unwrap();
    let verified = Ran::of(verified).ended(0, 0);
    assert!(!verified.stderr.contains("cutover.service"), "{}", verified.stderr);
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager", &format!("--threshold={EXPOSED}"), &unit]);
    Ran::of(command.output().unwrap()).ended(0, 0);
}
