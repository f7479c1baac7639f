//! The schemas that `cutover schema` prints, and what `cutover config show` does, against what they are about.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::documents::blocks;
use crate::program::{Chance, Ran, Readers};
use crate::service::ledger::Ledger;
use crate::service::{Home, client, connector};

fn run(home: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    Ran::of(command.args(args).current_dir(home).env_remove("CUTOVER_CONFIG").output().unwrap())
}

/// Writes a schema to a file of its own.
fn schema(home: &Path, of: &str) -> PathBuf {
    let path = home.join(format!("{of}.schema.json"));
    fs::write(&path, run(home, &["schema", of]).ended(0, 0).stdout).unwrap();
    path
}

/// What `validate.py` says of each file.
fn validated(readers: &Readers, schema: &Path, files: &[PathBuf]) -> Vec<Value> {
    let paths = [schema].into_iter().chain(files.iter().map(PathBuf::as_path)).map(|path| path.to_str().unwrap());
    let ran = Ran::of(readers.command("validate.py", &paths.collect::<Vec<_>>()).output().unwrap()).ended(0, 0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asserts that each file keeps the form, and that no key that it knows may be misspelled.
fn all_right(answers: &[Value]) {
    for answer in answers {
        assert_eq!(answer["errors"], Value::Array(Vec::new()), "{answer}");
        assert_eq!(answer["unseen"], Value::Array(Vec::new()), "{answer}");
        assert!(answer["keys"].as_u64().unwrap() > 4, "{answer}");
    }
}

fn repository(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The pieces of a document in `language`.
fn pieces(document: &str, language: &str) -> Vec<String> {
    blocks(document).into_iter().filter(|block| block.language == language).map(|block| block.text).collect()
}

/// Every configuration that the repository shows, in files of their own.
fn configurations(home: &Path) -> Vec<PathBuf> {
    let mut texts = pieces("README.md", "toml");
    for commands in ["README.md", "docs/OPERATING.md"].into_iter().flat_map(|document| pieces(document, "sh")) {
        let written = commands.split("cat > cutover.toml <<'END'\n").skip(1);
        texts.extend(written.map(|rest| rest.split("\nEND").next().unwrap().to_owned()));
    }
    let shown = texts.len();
    assert!(shown > 3, "the examples of the documents were not found");
    let mut files: Vec<PathBuf> = ["fixtures/flights.toml", "fixtures/shop.toml"].map(repository).into();
    for source in ["files", "push", "postgres"] {
        run(home, &["init", source, "--source", source]).ended(0, 0);
        files.push(home.join(source).join("cutover.toml"));
    }
    for (number, text) in texts.iter().enumerate() {
        files.push(home.join(format!("{number}.toml")));
        fs::write(files.last().unwrap(), text).unwrap();
    }
    files
}

#[test]
fn every_configuration_that_is_shown_keeps_the_schema_and_one_with_a_typo_does_not() {
    const TEST: &str = "every_configuration_that_is_shown_keeps_the_schema_and_one_with_a_typo_does_not";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = TempDir::new().unwrap();
    let files = configurations(home.path());
    let answers = validated(&readers, &schema(home.path(), "config"), &files);
    assert_eq!(answers.len(), files.len());
    all_right(&answers);
}

#[test]
fn every_stamp_keeps_the_schema_and_one_with_a_typo_does_not() {
    const TEST: &str = "every_stamp_keeps_the_schema_and_one_with_a_typo_does_not";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = Home::new(&connector("lake", ""));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let service = home.start();
    let lines = ledger.insert(5);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    let lines = ledger.change(5);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    let status = home.run(&["status", "-o", "json", "--url", &service.url]).ended(0, 0).stdout;
    let one = home.run(&["status", "lake", "-o", "json", "--url", &service.url]).ended(0, 0).stdout;
    service.reset("lake", serde_json::json!({"reason": "a stamp more"}));
    service.stop();
    home.run(&["adopt", "lake", "--as", "p/rows/other", "--yes"]).ended(0, 0);
    let mut stamps = pieces("PROTOCOL.md", "json");
    stamps.retain(|text| text.starts_with("{\"cutover\":1"));
    assert!(!stamps.is_empty(), "the example of PROTOCOL.md was not found");
    stamps.extend(home.stamps("lake").iter().map(Value::to_string));
    assert!(stamps.len() > 4, "{stamps:?}");
    let write = |(number, text): (usize, &String)| {
        let path = home.path(&format!("{number}.json"));
        fs::write(&path, text).unwrap();
        path
    };
    let files: Vec<PathBuf> = stamps.iter().enumerate().map(write).collect();
    let schemas = home.path("");
    all_right(&validated(&readers, &schema(&schemas, "commit"), &files));
    let files: Vec<PathBuf> = [status, one].iter().enumerate().map(write).collect();
    all_right(&validated(&readers, &schema(&schemas, "status"), &files));
}

#[test]
fn a_status_without_a_table_keeps_the_schema_too() {
    const TEST: &str = "a_status_without_a_table_keeps_the_schema_too";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = Home::new(&client("client", ""));
    let service = home.start();
    let status = home.run(&["status", "-o", "json", "--url", &service.url]).ended(0, 0).stdout;
    service.stop();
    let file = home.path("status.json");
    fs::write(&file, status).unwrap();
    all_right(&validated(&readers, &schema(&home.path(""), "status"), &[file]));
}

#[test]
fn the_configuration_that_counts_says_where_each_value_comes_from() {
    let home = TempDir::new().unwrap();
    let home = home.path();
    run(home, &["init", "--source", "files"]).ended(0, 0);
    let delta = "pipelines.shop.views.orders.connectors.lake.delta";
    let set = format!("{delta}.layout=current");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    command.current_dir(home).env("CUTOVER__SERVER__LISTEN", "127.0.0.1:0");
    let shown = Ran::of(command.args(["config", "show", "--origin", "--set", &set]).output().unwrap()).ended(0, 0);
    let text = fs::read_to_string(home.join("cutover.toml")).unwrap();
    let line = text.lines().position(|line| line.starts_with("mode = ")).unwrap() + 1;
    for said in [
        format!("mode = \"snapshot_and_follow\"  # cutover.toml:{line}:8"),
        "listen = \"127.0.0.1:0\"  # environment variable CUTOVER__SERVER__LISTEN".to_owned(),
        format!("layout = \"current\"  # --set {delta}.layout"),
        "poll_interval = \"1s\"  # default".to_owned(),
        "uri = \"${env:LAKE_URI:-lake/orders}\"  # cutover.toml:".to_owned(),
    ] {
        assert!(shown.stdout.contains(&said), "{said} is not in\n{}", shown.stdout);
    }
    // What is shown is a configuration, and shows itself.
    let plain = run(home, &["config", "show"]).ended(0, 0).stdout;
    fs::write(home.join("shown.toml"), &plain).unwrap();
    assert_eq!(run(home, &["config", "show", "-c", "shown.toml"]).ended(0, 0).stdout, plain);
    let document: Value =
        serde_json::from_str(&run(home, &["config", "show", "-o", "json"]).ended(0, 0).stdout).unwrap();
    let settings = document["settings"].as_array().unwrap();
    let path = "pipelines.shop.views.orders.connectors.lake.mode";
    let mode = settings.iter().find(|setting| setting["path"] == path).unwrap();
    assert_eq!(mode["origin"], serde_json::json!({"kind": "file", "file": "cutover.toml", "line": line, "column": 8}));
}

#[test]
fn a_secret_of_the_configuration_is_not_shown() {
    let home = TempDir::new().unwrap();
    let text = "[server.auth.tokens.ci]\nrole = \"read\"\ntoken = \"CANARY-0123456789\"\n\
        [server.webhooks.ops]\nurl = \"https://example.com/CANARY\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
        [pipelines.p.source.postgres]\nurl = \"postgres://u:CANARY@localhost/d\"\n[pipelines.p.views.v]\ntable = \"t\"\n\
        [pipelines.p.views.v.connectors.c.delta]\nuri = \"s3://b/t\"\n\
        storage = { secret_access_key = \"CANARY\", access_key_id = \"CANARY\" }\n";
    fs::write(home.path().join("cutover.toml"), text).unwrap();
    for (args, hidden) in [
        (&["config", "show", "--origin"][..], "\"(hidden)\""),
        (&["config", "show", "-o", "json"], "\"is_hidden\":true"),
    ] {
        let ran = run(home.path(), args).ended(0, 0);
        assert!(!ran.stdout.contains("CANARY") && !ran.stdout.contains("MfKQ"), "{}", ran.stdout);
        assert_eq!(ran.stdout.matches(hidden).count(), 6, "{}", ran.stdout);
    }
    fs::write(home.path().join("cutover.toml"), text.replace("role =", "rol =")).unwrap();
    let refused = run(home.path(), &["config", "show"]).ended(78, 0);
    assert!(refused.stderr.contains("cutover.toml:2:1: server.auth.tokens.ci.rol: unknown key"), "{}", refused.stderr);
}
