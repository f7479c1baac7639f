//! What the daemon says of itself in `/openapi.json`, taken at its word: schemathesis makes calls of it, good and bad ones,
//! and no answer may be a server error, or have a status, a type or a form that is not said.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::{FREE_RESETS, Home, connector};
use crate::program::{Ran, size};

const TOKENS: &str = "[server.auth.tokens.boss]\nrole = \"admin\"\ntoken = \"secret-of-the-boss\"\n";

/// The interpreter that has schemathesis; without one, says that `test` is skipped, but not to a machine that checks all.
fn interpreter(test: &str) -> Option<String> {
    let python = std::env::var("CUTOVER_PYTHON").ok();
    let has = |python: &String| {
        let asked = Command::new(python).args(["-c", "import schemathesis"]).output();
        asked.is_ok_and(|asked| asked.status.success())
    };
    let found = python.filter(has);
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{test}: CUTOVER_PYTHON has no schemathesis; see tests/run.sh");
        let _ = writeln!(std::io::stderr(), "skipped: {test}; CUTOVER_PYTHON has no schemathesis, see tests/run.sh");
    }
    found
}

/// Calls with the token, if there is one, a daemon that asks for it.
fn attack(test: &str, token: Option<&str>) {
    let Some(python) = interpreter(test) else { return };
    let (examples, seed) = (size("CUTOVER_SCHEMA_EXAMPLES", 5).to_string(), size("CUTOVER_SEED", 1).to_string());
    let tokens = if token.is_some() { TOKENS } else { "" };
    let home = Home::new(&format!("{}{tokens}", connector("lake", FREE_RESETS)));
    let service = home.start();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis");
    let mut command = Command::new(python);
    command.current_dir(home.path("")).env("PYTHONPATH", &scripts).args(["-m", "schemathesis.cli", "--config-file"]);
    command.arg(scripts.join("config.toml")).arg("run").arg(format!("{}/openapi.json", service.url));
    // Answers that go on until somebody has enough are read by other tests.
    command.args(["--exclude-by", "/x-endless == true", "--max-examples", &examples, "--seed", &seed]);
    match token {
        Some(token) => command.args(["--header", &format!("Authorization: Bearer {token}")]),
        // Who asks for no token does not refuse to go without.
        None => command.args(["--generation-with-security-parameters", "false", "--exclude-checks", "ignored_auth"]),
    };
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "seed {seed}: {}{}", ran.stdout, ran.stderr);
    let _ = writeln!(std::io::stderr(), "{test}: {}", ran.stdout.lines().last().unwrap_or_default());
    // It has gone through all that, and goes on.
    assert_eq!(service.send(service.request(reqwest::Method::GET, "/livez")).status, 200);
    service.stop();
}

#[test]
fn nothing_is_answered_that_is_not_said() {
    attack("nothing_is_answered_that_is_not_said", None);
}

#[test]
fn nor_to_one_who_has_a_token() {
    attack("nor_to_one_who_has_a_token", Some("secret-of-the-boss"));
}
