//! `cutover explain`: a page for every code that is met, and no page of one that is not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::program::Ran;

fn explain(args: &[&str]) -> Ran {
    Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).arg("explain").args(args).output().unwrap())
}

fn codes() -> Vec<String> {
    let document: Value = serde_json::from_str(&explain(&["-o", "json"]).ended(0, 0).stdout).unwrap();
    let pages = document["codes"].as_array().unwrap().iter();
    pages.map(|page| page["code"].as_str().unwrap().to_owned()).collect()
}

/// The text of every source beside the pages themselves, tests left out.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "explain" {
                sources(&path, found);
            }
        } else if name.ends_with(".rs") && !name.ends_with("_tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
        }
    }
}

#[test]
fn every_page_is_about_a_code_that_is_met_somewhere() {
    let mut texts = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut texts);
    let help = Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).arg("--help").output().unwrap()).stdout;
    let changes =
        Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).args(["changes", "--help"]).output().unwrap()).stdout;
    let codes = codes();
    assert!(codes.len() > 60, "{codes:?}");
    for code in codes {
        let is_met = match code.parse::<u8>() {
            Ok(_) => {
                let words = |text: &str| text.split(|c: char| !c.is_ascii_digit()).any(|word| word == code);
                help.split("Exit codes:").skip(1).any(words) || words(&changes)
            }
            Err(_) => texts.iter().any(|text| text.contains(&format!("\"{code}\""))),
        };
        assert!(is_met, "nothing gives the code {code}");
    }
}

#[test]
fn every_exit_that_the_help_lists_has_a_page() {
    let help = Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).arg("--help").output().unwrap()).stdout;
    let listed = help.split("Exit codes:").nth(1).unwrap().lines().filter_map(|line| {
        let number = line.trim_start().split(' ').next()?;
        number.parse::<u8>().is_ok().then(|| number.to_owned())
    });
    let (listed, codes): (Vec<String>, BTreeSet<String>) = (listed.collect(), codes().into_iter().collect());
    assert!(listed.len() > 8, "{listed:?}");
    for number in listed {
        assert!(codes.contains(&number), "no page is about the exit {number}");
    }
}

#[test]
fn a_page_says_what_to_do_and_an_unknown_code_is_answered_with_a_near_one() {
    let page = explain(&["breaker_open"]).ended(0, 0).stdout;
    for part in ["breaker_open\n", "  means ", "  why ", "  do ", "  shows ", "--override-breaker"] {
        assert!(page.contains(part), "{part} is not in\n{page}");
    }
    let list = explain(&[]).ended(0, 0).stdout;
    assert_eq!(list.lines().count(), codes().len());
    let document: Value = serde_json::from_str(&explain(&["r3", "-o", "json"]).ended(0, 0).stdout).unwrap();
    assert_eq!((&document["schema"], &document["code"]), (&"cutover.explain/1".into(), &"R3".into()));
    let unknown = explain(&["breaker_opn"]).ended(78, 0);
    assert!(unknown.stderr.contains("did you mean \"breaker_open\"?"), "{}", unknown.stderr);
}

#[test]
fn every_code_that_the_documents_list_has_a_page() {
    let rest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("REST.md")).unwrap();
    let (codes, mut listed): (BTreeSet<String>, BTreeSet<String>) = (codes().into_iter().collect(), BTreeSet::new());
    for table in rest.split("`error_code` | |\n|---|").skip(1) {
        let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
        for cell in rows.map(|row| row.split('|').find(|cell| cell.contains('`')).unwrap_or_default()) {
            listed.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(listed.len() > 25, "{listed:?}");
    let lacking: Vec<&String> = listed.difference(&codes).collect();
    assert!(lacking.is_empty(), "REST.md lists {lacking:?}, which no page is about");
}
