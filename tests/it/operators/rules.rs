//! The alert rules: their own tests, what they tell to do, and that the page for operators has each of them.

use std::collections::BTreeSet;
use std::process::Command;

use super::{commands, has, read, repository};
use crate::program::Ran;

/// The names of the alerts, in order.
pub(super) fn alerts() -> Vec<String> {
    let text = read("operators/alerts.yml");
    text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

#[test]
fn the_rules_pass_their_tests() {
    if !has("promtool", "the_rules_pass_their_tests", "prometheus") {
        return;
    }
    for args in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let mut command = Command::new("promtool");
        Ran::of(command.args(args).current_dir(repository("operators")).output().unwrap()).ended(0, 0);
    }
}

#[test]
fn every_alert_fires_in_a_test_of_the_rules() {
    let tests = read("operators/alerts_test.yml");
    let alerts = alerts();
    assert!(alerts.len() > 15, "{alerts:?}");
    for alert in alerts {
        assert!(tests.contains(&format!("alertname=\"{alert}\"")), "nothing tests {alert}");
    }
}

#[test]
fn every_alert_says_what_to_do_by_commands_that_there_are() {
    let (text, commands) = (read("operators/alerts.yml"), commands());
    let repairs: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("repair: ")).collect();
    assert_eq!(repairs.len(), alerts().len());
    for repair in repairs {
        // Of a path or a unit the word is a part, not a command.
        for (at, _) in repair.match_indices("cutover ") {
            let word = repair[at + "cutover ".len()..].split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
            let is_command = !word.is_empty() && (at == 0 || repair[..at].ends_with(' '));
            assert!(!is_command || commands.iter().any(|command| command == word), "{word:?} in: {repair}");
        }
    }
}

#[test]
fn the_page_for_operators_has_every_alert_and_no_other() {
    let page = read("docs/OPERATING.md");
    let told: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `Cutover"))
        .filter_map(|rest| rest.split('`').next())
        .map(|rest| format!("Cutover{rest}"))
        .collect();
    assert_eq!(told, alerts().into_iter().collect());
}
