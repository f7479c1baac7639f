//! The release that operators unpack.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::{commands, read, repository};
use crate::program::Ran;

#[test]
fn a_release_has_a_program_that_runs_and_what_belongs_to_it() {
    let home = TempDir::new().unwrap();
    let mut script = Command::new(repository("operators/release.sh"));
    script.args(["--program", env!("CARGO_BIN_EXE_cutover")]).arg(home.path());
    let made = Ran::of(script.output().unwrap()).ended(0, 0).stdout;
    let sizes: Vec<(&str, u64)> = made
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            (words.next().unwrap(), words.next().unwrap().parse().unwrap())
        })
        .collect();
    let [("program", whole), ("stripped", stripped), ("archive", packed)] = sizes[..] else { panic!("{made}") };
    assert!(whole > stripped && stripped > packed && packed > 1 << 20, "{made}");

    let archive = made.trim_end().rsplit(' ').next().unwrap();
    let sum = format!("{archive}.sha256");
    for (program, args) in
        [("sha256sum", ["--check", "--quiet", sum.as_str()]), ("tar", ["-xzf", archive, "--strip-components=1"])]
    {
        Ran::of(Command::new(program).args(args).current_dir(home.path()).output().unwrap()).ended(0, 0);
    }
    let version = Command::new(home.path().join("bin/cutover")).arg("--version").output().unwrap();
    assert_eq!(Ran::of(version).ended(0, 0).stdout, format!("cutover {}\n", env!("CARGO_PKG_VERSION")));
    for name in ["README.md", "LICENSE", "CHANGELOG.md", "operators/cutover.service", "docs/OPERATING.md"] {
        assert_eq!(fs::read_to_string(home.path().join(name)).unwrap(), read(name), "{name}");
    }
    let completions = fs::read_to_string(home.path().join("completions/cutover.bash")).unwrap();
    assert!(commands().iter().all(|command| completions.contains(command.as_str())));
}

#[test]
fn the_changelog_begins_with_this_version() {
    let changelog = read("CHANGELOG.md");
    let first = changelog.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(first.split([',', ' ']).next(), Some(env!("CARGO_PKG_VERSION")));
}
