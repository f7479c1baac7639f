//! Every option of every command is used somewhere: by a test, or by a command that README.md shows.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};

use super::Args;

/// How far before an option its command stands.
const NEAR: usize = 500;

/// What uses options, and the command that it is named for, where it is.
struct Text {
    stem: String,
    text: String,
}

/// The tests, those beside the code too, and the commands of README.md.
fn texts() -> Vec<Text> {
    fn add(folder: &Path, found: &mut Vec<Text>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                add(&path, found);
            } else if [".rs", ".py", ".sh"].iter().any(|end| name.ends_with(end)) {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let is_code = path.components().any(|part| part.as_os_str() == "src") && !name.ends_with("_tests.rs");
                let tests = text.find("#[cfg(test)]").map_or("", |at| &text[at..]);
                let stem = name.split('.').next().unwrap().to_owned();
                found.push(Text { stem, text: if is_code { tests.to_owned() } else { text } });
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    add(&root.join("src"), &mut found);
    add(&root.join("tests"), &mut found);
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let shown = readme.split("\n```").skip(1).step_by(2);
    found.extend(shown.map(|text| Text { stem: String::new(), text: text.to_owned() }));
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// Whether `text` has `word` with nothing around it that belongs to a longer one.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back().is_some_and(is_word);
        let after = text[at + word.len()..].chars().next().is_some_and(is_word);
        !before && !after
    })
}

/// Whether `text` has the option, near behind the command where one is given.
fn is_used(text: &str, command: Option<&str>, option: &str) -> bool {
    text.match_indices(option).any(|(at, _)| {
        let ends = !text[at + option.len()..].chars().next().is_some_and(is_word);
        let start = (at.saturating_sub(NEAR)..=at).find(|at| text.is_char_boundary(*at)).unwrap();
        ends && command.is_none_or(|command| has_word(&text[start..at], command))
    })
}

fn options(command: &Command, name: &str, found: &mut Vec<(Option<String>, String)>) {
    let is_root = name.is_empty();
    for arg in command.get_arguments().filter(|arg| is_root || !arg.is_global_set()) {
        if let Some(long) = arg.get_long().filter(|long| !["help", "version"].contains(long)) {
            found.push(((!is_root).then(|| name.to_owned()), format!("--{long}")));
        }
    }
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        options(below, below.get_name(), found);
    }
}

#[test]
fn every_option_of_every_command_is_used_by_a_test_or_a_command_of_the_readme() {
    let (texts, mut all) = (texts(), Vec::new());
    options(&Args::command(), "", &mut all);
    assert!(all.len() > 50, "{all:?}");
    let uses = |Text { stem, text }: &Text, command: Option<&str>, option: &str| {
        is_used(text, command.filter(|command| command != stem), option)
    };
    let unused: Vec<String> = all
        .iter()
        .filter(|(command, option)| !texts.iter().any(|text| uses(text, command.as_deref(), option)))
        .map(|(command, option)| format!("{} {option}", command.as_deref().unwrap_or("cutover")))
        .collect();
    assert!(unused.is_empty(), "nothing uses {unused:?}");
}

#[test]
fn an_option_counts_only_near_behind_its_command_and_as_a_whole() {
    for (text, is_there) in [
        ("[\"gc\", \"table\", \"--dry-run\"]", true),
        ("gc table --dry-runs", false),
        ("reset table --dry-run", false),
        ("gcs --dry-run", false),
        (&format!("gc {} --dry-run", "x".repeat(NEAR)), false),
    ] {
        assert_eq!(is_used(text, Some("gc"), "--dry-run"), is_there, "{text}");
    }
}
