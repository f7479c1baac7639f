//! The page for operators: its commands run as they stand, and what it refers to is there.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::unit::prevented;
use super::{commands, has, read, repository};
use crate::documents::{Block, blocks};
use crate::program::{Ran, free_port};

const PAGE: &str = "docs/OPERATING.md";
/// Where the page's daemon listens.
const ADDRESS: &str = "127.0.0.1:8090";

#[test]
fn the_commands_of_the_page_run_as_they_stand() {
    if !has("curl", "the_commands_of_the_page_run_as_they_stand", "curl") {
        return;
    }
    let home = TempDir::new().unwrap();
    let port = free_port();
    let mut script =
        "set -euo pipefail\ntrap '[ -z \"${daemon:-}\" ] || kill -KILL \"$daemon\" 2> /dev/null || true' EXIT\n"
            .to_owned();
    for Block { language, text, .. } in blocks(PAGE) {
        match language.as_str() {
            "sh" => script.push_str(&text.replace(ADDRESS, &format!("127.0.0.1:{port}"))),
            "text" => {}
            other => panic!("{PAGE} has a block of {other}"),
        }
    }
    assert!(script.lines().count() > 80, "the blocks were not found");
    let programs = Path::new(env!("CARGO_BIN_EXE_cutover")).parent().unwrap();
    let path = std::env::join_paths(
        [programs.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]).current_dir(home.path()).env("PATH", path.unwrap());
    for name in ["CUTOVER_CONFIG", "CUTOVER_URL", "CUTOVER_TOKEN_FILE"] {
        bash.env_remove(name);
    }
    let ran = Ran::of(bash.output().unwrap()).ended(0, 0);
    assert!(ran.stdout.ends_with("{\"id\":1,\"item\":\"tea\"}\n{\"id\":2,\"item\":\"rum\"}\n"), "{}", ran.stdout);
    // What the page says of a copy that is put back is what is seen.
    assert!(ran.stdout.contains("it has lost steps that were answered"), "{}", ran.stdout);
}

#[test]
fn the_page_tells_of_each_exit_what_the_unit_does() {
    let page = read(PAGE);
    let section = page.split("## Exit codes and restarts").nth(1).unwrap().split("\n## ").next().unwrap();
    let stays: BTreeSet<u8> = section
        .lines()
        .filter(|line| line.ends_with("| stays down |"))
        .filter_map(|line| line.split(['|', ',']).nth(1)?.trim().parse().ok())
        .collect();
    let expected: BTreeSet<u8> = prevented().into_iter().chain([0]).collect();
    assert_eq!(stays, expected);
}

#[test]
fn the_page_refers_to_what_there_is() {
    let page = read(PAGE);
    let heading = |line: &str| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || *c == '-').collect::<String>()
    };
    let anchors = |text: &str| text.lines().filter(|line| line.starts_with('#')).map(heading).collect::<BTreeSet<_>>();
    let mut links = 0;
    for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let text = if file.is_empty() { page.clone() } else { read(&format!("docs/{file}")) };
        assert!(anchor.is_none_or(|anchor| anchors(&text).contains(anchor)), "{link} leads nowhere");
        links += 1;
    }
    assert!(links > 5, "the links were not found");
    // Files of the repository, wherever they are named.
    let words = page.split(|c: char| c.is_whitespace() || c == '`' || c == '(' || c == ')');
    for word in words.filter(|word| word.starts_with("operators/") && word.len() > "operators/".len()) {
        assert!(repository(word).is_file(), "{word} is not there");
    }
    let commands = commands();
    for named in page.split("`cutover ").skip(1) {
        let command = named.split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
        assert!(commands.iter().any(|known| known == command), "there is no command {command}");
    }
}
