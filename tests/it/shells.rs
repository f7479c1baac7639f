//! Completions of shells: what a shell completes once it has read them.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use crate::program::Ran;

fn script(shell: &str) -> String {
    let ran = Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).args(["completions", shell]).output().unwrap());
    ran.ended(0, 0).stdout
}

/// What bash offers for the last of `words`.
fn offered(words: &[&str]) -> Vec<String> {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("cutover.bash"), script("bash")).unwrap();
    let line = words.join(" ");
    let program = format!(
        "set -e; source cutover.bash; COMP_WORDS=({}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}; \
         function=$(complete -p cutover | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
         $function cutover \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words.len() - 1,
        line.len()
    );
    let ran = Ran::of(Command::new("bash").args(["--norc", "-c", &program]).current_dir(home.path()).output().unwrap());
    ran.ended(0, 0).stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    for (words, expected) in [
        (&["cutover", "sni"][..], "snippets"),
        (&["cutover", "config", "sh"], "show"),
        (&["cutover", "reset", "--override"], "--override-breaker"),
        (&["cutover", "init", "--source", "po"], "postgres"),
        (&["cutover", "schema", "sta"], "status"),
    ] {
        assert_eq!(offered(words), [expected], "{words:?}");
    }
    let commands = offered(&["cutover", ""]);
    for command in ["run", "reset", "verify", "init", "explain", "completions"] {
        assert!(commands.iter().any(|offered| offered == command), "{command}: {commands:?}");
    }
}

#[test]
fn each_shell_gets_a_script_that_names_every_command() {
    let help = Ran::of(Command::new(env!("CARGO_BIN_EXE_cutover")).arg("--help").output().unwrap()).stdout;
    let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 15, "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = script(shell);
        for command in &commands {
            assert!(script.contains(command), "{shell} does not complete {command}");
        }
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_cutover")).args(["completions", "tcsh"]).output().unwrap();
    Ran::of(unknown).ended(2, 0);
}
