use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::DataType;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

pub(super) const SMALL: &str = r#"
[pipelines.p.source.files]
path = "feed"
[pipelines.p.views.v.connectors.c.delta]
uri = "out/t"
"#;

pub(super) const PUSHED: &str = r#"
[pipelines.p.source.push]
[pipelines.p.views.v]
columns = { id = "bigint" }
[pipelines.p.views.v.connectors.c.delta]
uri = "out/t"
"#;

const FULL: &str = r#"config_version = 1
[server]
listen = "[::]:80"
data_dir = "data"
hosts = ["Lake.example.com"]
auth.tokens.ci = { role = "push", token = "canary-0123456789" }
ingress = { max_request = "1MiB", max_line = 5000 }
[defaults.reset]
breaker = { max_resets = 9, window = "2h" }
backoff = { factor = 1.5 }
[defaults.step_log]
max_bytes = "2GiB"
when_full = "backpressure"
[defaults.connector]
mode = "follow"
heartbeat = "1m"
commit = { max_interval = "1s", max_rows = 5 }
[pipelines.zeta.source.files]
path = "./feed"
id = "orders"
poll_interval = "250ms"
[pipelines.zeta.views.v]
key = ["id"]
columns = { price = "double", id = "bigint", a_b = "string" }
[pipelines.zeta.views.v.connectors.c]
mode = "snapshot"
on_existing = "truncate"
on_continuity_loss = "fail_closed"
commit = { max_rows = 7, max_bytes = "1MiB" }
durability = "none"
heartbeat = "off"
schema_change = "add_columns"
[pipelines.zeta.views.v.connectors.c.delta]
uri = "s3://lake/t"
layout = "changelog"
compression = "zstd(5)"
target_file_size = 1_000_000
storage = { region = "eu-west-1", secret_access_key = "canary-1" }
properties = { "delta.logRetentionDuration" = "interval 90 days" }
[pipelines.alpha]
source.files.path = "other"
views.v.connectors.b = { send_snapshot = true, delta.uri = "out/b" }
views.v.connectors.a.delta.uri = "out/a"
[pipelines.live]
source.push = {}
views.w = { columns = { id = "bigint" }, materialized = false, step_log = { max_bytes = "1GiB" } }
"#;

fn parse_type(text: &str) -> Result<DataType> {
    match text {
        "bigint" => Ok(DataType::Int64),
        "double" => Ok(DataType::Float64),
        "string" => Ok(DataType::Utf8),
        _ => Err(Error::config(format!("unknown type {text:?}; known are bigint, double, string"))),
    }
}

fn read_file(path: &Path) -> io::Result<String> {
    if path == Path::new("/run/secret") { Ok("canary-file\n".to_string()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// What `look` makes of this text, these `--set` and this environment.
pub(super) fn with_inputs<R>(
    text: &str,
    sets: &[&str],
    env: &[(&str, &str)],
    look: impl FnOnce(&Inputs<'_>) -> R,
) -> R {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let env: BTreeMap<String, String> = env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    look(&Inputs {
        path: Path::new("cutover.toml"),
        text,
        sets: &sets,
        env: &env,
        parse_type: &parse_type,
        read_file: &read_file,
    })
}

pub(super) fn load_with(text: &str, sets: &[&str], env: &[(&str, &str)]) -> Result<Config> {
    with_inputs(text, sets, env, Config::load)
}

pub(super) fn load(text: &str) -> Result<Config> {
    load_with(text, &[], &[])
}

pub(super) fn message(result: Result<Config>) -> String {
    let err = result.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Config);
    err.message().to_string()
}

/// `SMALL` with `old` replaced by `new` gives exactly the problems `expected`.
pub(super) fn check(old: &str, new: &str, expected: &[&str]) {
    check_in(SMALL, old, new, expected);
}

/// `text` with `old` replaced by `new` gives exactly the problems `expected`.
pub(super) fn check_in(text: &str, old: &str, new: &str, expected: &[&str]) {
    assert!(text.contains(old), "{old}");
    let text = text.replacen(old, new, 1);
    assert_eq!(message(load(&text)), expected.join("\n"), "in {text}");
}

pub(super) const CONNECTOR: &str = "[pipelines.p.views.v.connectors.c.delta]";
pub(super) const URI: &str = "uri = \"out/t\"\n";
pub(super) const PATH: &str = "path = \"feed\"\n";

pub(super) fn files(connector: &ConnectorConfig) -> &FilesConfig {
    match &connector.source {
        SourceConfig::Files(files) => files,
        SourceConfig::Push | SourceConfig::Postgres(_) => panic!("{} is of no files", connector.name),
    }
}

#[test]
fn a_small_file_has_defaults() {
    let config = load(SMALL).unwrap();
    let expected = ConnectorConfig {
        name: ConnectorName::new("p", "v", "c").unwrap(),
        mode: Mode::SnapshotAndFollow,
        on_existing: OnExisting::Error,
        schema_change: SchemaChange::Fail,
        commit: CommitBounds { max_interval: Duration::from_secs(10), max_rows: 1_000_000, max_bytes: 128 << 20 },
        durability: Durability::Commit,
        heartbeat: None,
        on_continuity_loss: OnContinuityLoss::FailClosed,
        breaker: BreakerSettings::default(),
        backoff: Backoff::default(),
        when_full: WhenFull::Wait,
        source: SourceConfig::Files(FilesConfig {
            path: PathBuf::from("feed"),
            id: None,
            poll_interval: Duration::from_secs(1),
        }),
        key: vec![],
        columns: vec![],
        destination: Destination::Delta(DeltaConfig {
            uri: "out/t".to_string(),
            layout: Layout::Changelog,
            compaction: true,
            reload_ratio: None,
            compression: Compression::Zstd(1),
            target_file_size: 128 << 20,
            partition_by: None,
            storage: BTreeMap::new(),
            properties: BTreeMap::new(),
        }),
    };
    let view = ViewConfig {
        pipeline: "p".to_string(),
        name: "v".to_string(),
        source: expected.source.clone(),
        key: vec![],
        columns: vec![],
        materialized: true,
        step_log_bytes: 8 << 30,
        table: None,
    };
    let server = ServerConfig::default();
    assert_eq!(
        (server.listen.to_string().as_str(), server.data_dir.as_path()),
        ("127.0.0.1:8090", Path::new("./cutover-data"))
    );
    assert_eq!(config, Config { server, views: vec![view], connectors: vec![expected] });
}

#[test]
fn every_key_is_read_in_the_files_order() {
    let config = load(FULL).unwrap();
    let names: Vec<String> = config.connectors.iter().map(|c| c.name.to_string()).collect();
    assert_eq!(names, ["zeta/v/c", "alpha/v/b", "alpha/v/a"]);
    let views: Vec<String> = config.views.iter().map(|v| format!("{}/{}", v.pipeline, v.name)).collect();
    assert_eq!(views, ["zeta/v", "alpha/v", "live/w"]);
    let live = config.views.last().unwrap();
    assert_eq!((&live.source, live.materialized, live.step_log_bytes), (&SourceConfig::Push, false, 1 << 30));
    let server = &config.server;
    assert_eq!((server.listen.to_string().as_str(), &server.data_dir), ("[::]:80", &PathBuf::from("data")));
    assert_eq!(server.hosts, ["lake.example.com"]);
    assert_eq!(server.ingress, ingest::Limits { request: 1 << 20, line: 5000, unfolded: 4 << 20 });
    let tokens: Vec<_> = server.tokens.iter().map(|t| (t.name.as_str(), t.role, t.token.expose())).collect();
    assert_eq!(tokens, [("ci", Role::Push, "canary-0123456789")]);
    let c = config.find("zeta/v/c").unwrap();
    assert_eq!((c.breaker.max_resets.get(), c.breaker.window), (9, Duration::from_secs(7200)));
    assert_eq!(c.backoff, Backoff { factor: 1.5, ..Backoff::default() });
    assert_eq!((c.mode, c.on_existing, c.durability), (Mode::Snapshot, OnExisting::Truncate, Durability::None));
    assert_eq!(
        c.commit,
        CommitBounds { max_interval: Duration::from_secs(1), max_rows: 7, max_bytes: 1 << 20 },
        "each bound comes from the connector, else from the defaults"
    );
    assert_eq!(c.heartbeat, None, "\"off\" overrides a default");
    assert_eq!(files(c).path, PathBuf::from("./feed"));
    assert_eq!(files(c).id.as_deref(), Some("orders"));
    assert_eq!(files(c).poll_interval, Duration::from_millis(250));
    assert_eq!(c.key, ["id"]);
    let columns: Vec<&str> = c.columns.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(columns, ["price", "id", "a_b"]);
    assert_eq!(
        (c.delta().unwrap().compression, c.delta().unwrap().target_file_size),
        (Compression::Zstd(5), 1_000_000)
    );
    assert_eq!(c.delta().unwrap().storage["secret_access_key"].expose(), "canary-1");
    assert_eq!(c.delta().unwrap().properties["delta.logRetentionDuration"], "interval 90 days");
    let b = config.find("b").unwrap();
    assert_eq!((b.mode, b.heartbeat), (Mode::SnapshotAndFollow, Some(Duration::from_secs(60))));
    assert_eq!(config.find("v/a").unwrap().mode, Mode::Follow, "from the defaults");
}

#[test]
fn the_words_of_enumerations_are_those_of_the_file() {
    assert_eq!([OnExisting::Error, OnExisting::Truncate].map(|w| w.to_string()), ["error", "truncate"]);
    assert_eq!([Role::Read, Role::Push, Role::Admin].map(|w| w.to_string()), ["read", "push", "admin"]);
    assert_eq!([WhenFull::Wait, WhenFull::Detach].map(|w| w.to_string()), ["backpressure", "detach"]);
    let losses = [OnContinuityLoss::FailClosed, OnContinuityLoss::Reset];
    assert_eq!(losses.map(|w| w.to_string()), ["fail_closed", "reset"]);
    assert_eq!([Durability::Commit, Durability::None].map(|w| w.to_string()), ["commit", "none"]);
}

#[test]
fn a_misspelled_key_is_named_with_the_nearest_one() {
    let with = |line: &str| format!("[pipelines.p.views.v.connectors.c]\n{line}\n{CONNECTOR}");
    check(
        "",
        "confg_version = 1\n",
        &["cutover.toml:1:1: confg_version: unknown key; did you mean \"config_version\"?"],
    );
    check("", "[default]\n", &["cutover.toml:1:2: default: unknown key; did you mean \"defaults\"?"]);
    check(
        "",
        "[defaults.conector]\n",
        &["cutover.toml:1:11: defaults.conector: unknown key; did you mean \"connector\"?"],
    );
    check(
        "",
        "[defaults.connector]\nmoder = 1\n",
        &["cutover.toml:2:1: defaults.connector.moder: unknown key; did you mean \"mode\"?"],
    );
    check(
        "source.files",
        "source.file",
        &["cutover.toml:2:21: pipelines.p.source.file: unknown key; did you mean \"files\"?"],
    );
    check("source", "sorce", &["cutover.toml:2:14: pipelines.p.sorce: unknown key; did you mean \"source\"?"]);
    check("path", "paht", &["cutover.toml:3:1: pipelines.p.source.files.paht: unknown key; did you mean \"path\"?"]);
    check("views", "view", &["cutover.toml:4:14: pipelines.p.view: unknown key; did you mean \"views\"?"]);
    check(
        CONNECTOR,
        &format!("[pipelines.p.views.v]\nkeys = [\"a\"]\n{CONNECTOR}"),
        &["cutover.toml:5:1: pipelines.p.views.v.keys: unknown key; did you mean \"key\"?"],
    );
    check(
        "connectors",
        "conectors",
        &["cutover.toml:4:22: pipelines.p.views.v.conectors: unknown key; did you mean \"connectors\"?"],
    );
    check(
        CONNECTOR,
        &with("on-existing = \"error\""),
        &["cutover.toml:5:1: pipelines.p.views.v.connectors.c.on-existing: unknown key; did you mean \"on_existing\"?"],
    );
    check(
        CONNECTOR,
        &with("commit = { max_row = 1 }"),
        &[
            "cutover.toml:5:12: pipelines.p.views.v.connectors.c.commit.max_row: unknown key; did you mean \"max_rows\"?",
        ],
    );
    check(
        "c.delta",
        "c.detla",
        &["cutover.toml:4:35: pipelines.p.views.v.connectors.c.detla: unknown key; did you mean \"delta\"?"],
    );
    check(
        "uri",
        "url",
        &["cutover.toml:5:1: pipelines.p.views.v.connectors.c.delta.url: unknown key; did you mean \"uri\"?"],
    );
}

#[test]
fn an_unknown_key_without_a_near_one_lists_what_is_known() {
    check(
        PATH,
        "path = \"feed\"\ncolour = 1\n",
        &[
            r#"cutover.toml:4:1: pipelines.p.source.files.colour: unknown key; known here: "path", "id", "poll_interval""#,
        ],
    );
    check(
        "source.files",
        "source.kafka",
        &[r#"cutover.toml:2:21: pipelines.p.source.kafka: unknown key; known here: "files", "push", "postgres""#],
    );
}

#[test]
fn the_layout_that_is_the_view_needs_its_key_and_its_snapshot() {
    let place = "cutover.toml:4:33: pipelines.p.views.v.connectors.c:";
    let unknown = r#"cutover.toml:6:10: pipelines.p.views.v.connectors.c.delta.layout: "currant" is not known; did you mean "current"?"#;
    let keyless = format!(
        r#"{place} layout = "current" tells by the view's key which row a change is about; name the key columns in the view, or take layout = "changelog""#
    );
    check(URI, "uri = \"a\"\nlayout = \"currant\"\n", &[unknown]);
    check(URI, "uri = \"a\"\nlayout = \"current\"\n", &[&keyless]);
    let keyed = format!("[pipelines.p.views.v]\nkey = [\"id\"]\n{CONNECTOR}\nlayout = \"current\"");
    assert!(load(&SMALL.replace(CONNECTOR, &keyed)).unwrap().connectors[0].needs_key_index());
    let follows = format!(
        "[pipelines.p.views.v]\nkey = [\"id\"]\n[pipelines.p.views.v.connectors.c]\nmode = \"follow\"\n{CONNECTOR}\nlayout = \"current\""
    );
    let lacking = r#"mode follow has no snapshot to load, which layout = "current" needs; change one of them"#;
    assert!(message(load(&SMALL.replace(CONNECTOR, &follows))).contains(lacking));
}

#[test]
fn a_wrong_value_is_named_with_its_remedy() {
    let common = |line: &str, expected: &str| {
        check("", &format!("[defaults.connector]\n{line}\n"), &[&format!("cutover.toml:2:{expected}")]);
    };
    common(r#"mode = "folow""#, r#"8: defaults.connector.mode: "folow" is not known; did you mean "follow"?"#);
    common(
        r#"mode = "all""#,
        r#"8: defaults.connector.mode: "all" is not known; write one of "snapshot_and_follow", "follow", "snapshot""#,
    );
    common("mode = 1", "8: defaults.connector.mode: expected a string, found an integer");
    common("send_snapshot = \"true\"", "17: defaults.connector.send_snapshot: expected a boolean, found a string");
    check(
        "",
        "[defaults.connector]\nmode = \"follow\"\nsend_snapshot = false\n",
        &[
            "cutover.toml:3:1: defaults.connector.send_snapshot: says the same as \"mode\", which stands here too; remove one of them",
        ],
    );
    common("commit = 5", "10: defaults.connector.commit: expected a table, found an integer");
    common("commit.max_rows = 0", "19: defaults.connector.commit.max_rows: is not between 1 and 9223372036854775807");
    common("commit.max_rows = 1.5", "19: defaults.connector.commit.max_rows: expected an integer, found a float");
    common("commit.max_bytes = -1", "20: defaults.connector.commit.max_bytes: a size is above zero");
    common(
        "commit.max_bytes = \"1 MiB\"",
        "20: defaults.connector.commit.max_bytes: \"1 MiB\" is not valid; write a whole number of bytes, or one with B, KB, MB, GB, TB, KiB, MiB, GiB or TiB, such as \"128MiB\"",
    );
    common(
        "commit.max_interval = 10",
        "23: defaults.connector.commit.max_interval: has no unit; write one of ms, s, m, h, d after it, such as \"10s\"",
    );
    common(
        "heartbeat = \"on\"",
        "13: defaults.connector.heartbeat: \"on\" is not valid; write a whole number and one of ms, s, m, h, d, such as \"10s\", or write \"off\"",
    );
    let config_version = |value: &str, expected: &str| {
        check("", &format!("config_version = {value}\n"), &[&format!("cutover.toml:1:18: config_version: {expected}")]);
    };
    config_version("2", "the version 2 is not known to this program; it reads version 1");
    config_version("\"1\"", "expected an integer, found a string");
}

#[test]
fn what_is_missing_is_named_where_it_belongs() {
    assert_eq!(message(load("")), "cutover.toml:1:1: has no pipeline; add [pipelines.NAME]");
    assert_eq!(message(load("[pipelines]")), "cutover.toml:1:2: pipelines: has no pipeline; add [pipelines.NAME]");
    assert_eq!(
        message(load("[pipelines.p]")),
        "cutover.toml:1:12: pipelines.p: has no source; add [pipelines.p.source.files] or [pipelines.p.source.push] or [pipelines.p.source.postgres]\n\
         cutover.toml:1:12: pipelines.p: has no view; add [pipelines.p.views.NAME]"
    );
    assert_eq!(message(load("[[pipelines]]")), "cutover.toml:1:1: pipelines: expected a table, found an array");
    assert_eq!(
        message(load("[pipelines.p.source]\n[pipelines.p.views.v.connectors]")),
        "cutover.toml:1:14: pipelines.p.source: has no source; add [pipelines.p.source.files] or [pipelines.p.source.push] or [pipelines.p.source.postgres]\n\
         cutover.toml:2:22: pipelines.p.views.v.connectors: has no connector; add [pipelines.p.views.v.connectors.NAME]"
    );
    check(
        "[pipelines.p.source.files]\npath =",
        "[pipelines.p]\nsource =",
        &["cutover.toml:3:10: pipelines.p.source: expected a table, found a string"],
    );
    check(PATH, "", &["cutover.toml:2:21: pipelines.p.source.files: has no \"path\"; add it"]);
    check(URI, "", &["cutover.toml:4:35: pipelines.p.views.v.connectors.c.delta: has no \"uri\"; add it"]);
    check(
        "c.delta]\nuri = \"out/t\"",
        "c]",
        &[
            "cutover.toml:4:33: pipelines.p.views.v.connectors.c: has no destination; add [pipelines.p.views.v.connectors.c.delta] or [pipelines.p.views.v.connectors.c.http]",
        ],
    );
}

#[test]
fn names_are_checked_where_they_stand() {
    check(
        "views.v",
        "views.\"v/w\"",
        &[
            "cutover.toml:4:20: pipelines.p.views.\"v/w\": the name \"v/w\" is not allowed; use letters A-Z and a-z, digits, \"_\", \".\" and \"-\", and begin with a letter, digit or \"_\"",
        ],
    );
    assert!(
        message(load(&SMALL.replace("pipelines.p.", "pipelines.\"..\"."))).contains("the name \"..\" is not allowed")
    );
    let config = load(&SMALL.replace("views.v", "views.\"v.2\"")).unwrap();
    assert_eq!(config.connectors[0].name.to_string(), "p/v.2/c");
}

#[test]
fn all_problems_come_at_once_in_the_files_order() {
    let text = "config_version = 3\n[pipelines.p.source.files]\npoll_interval = \"0s\"\nid = \"${env:NONE}\"\n\
                [pipelines.p.views.v.connectors.c]\nmode = \"x\"\ndelta.compression = \"zip\"\n\
                [pipelines.p.views.w]\ntable = \"t\"\n[server]\nlisten = \"0.0.0.0:1\"\n";
    let found = message(load_with(text, &["nonsense", "a.b=1"], &[("CUTOVER__SERVR", "x")]));
    let starts: Vec<&str> = found.lines().map(|l| l.split(": ").next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "cutover.toml:1:18",
            "cutover.toml:2:21",
            "cutover.toml:3:17",
            "cutover.toml:4:6",
            "cutover.toml:6:8",
            "cutover.toml:7:1",
            "cutover.toml:7:21",
            "cutover.toml:8:20",
            "cutover.toml:9:1",
            "cutover.toml:11:10",
            "CUTOVER__SERVR",
            "--set a.b=…",
            "--set nonsense=…",
        ],
        "{found}"
    );
}

#[test]
fn text_that_is_not_toml_is_placed() {
    let found = message(load("a = 1\nb = x\nc = [\n"));
    assert!(found.starts_with("cutover.toml:2:5: not valid TOML: "), "{found}");
    assert_eq!(message(load("a = 1\na = 2\n")), "cutover.toml:2:1: not valid TOML: duplicate key");
    let deep = format!("{}x = 1", "a.".repeat(100_000));
    assert!(message(load(&deep)).contains("recursion limit"));
    assert!(load(&format!("a = {}", "[".repeat(100_000))).is_err());
    // What the parser lets through: dotted keys in inline tables in each other.
    let (keys, tables) = ("a.".repeat(78), 20);
    let nested = format!("{}x = 1{}", format!("{keys}a = {{ ").repeat(tables), " }".repeat(tables));
    assert_eq!(message(load(&nested)).lines().count(), 2);
}

#[test]
fn a_secret_shows_in_no_debug_output_and_in_no_error() {
    let storage = "storage = { access_key_id = \"canary-a\", role_arn = \"${env:B}\", secret_access_key = \"${file:/run/secret}\" }\n";
    let variable = "CUTOVER__PIPELINES__P__VIEWS__V__CONNECTORS__C__DELTA__STORAGE__SESSION_TOKEN";
    let env = [("B", "canary-b"), (variable, "canary-d")];
    let set = "pipelines.p.views.v.connectors.c.delta.storage.user_agent=canary-e";
    let text = SMALL.replace(URI, &format!("uri = \"s3://lake/t\"\n{storage}"));
    let config = load_with(&text, &[set], &env).unwrap();
    let exposed: Vec<&str> = config.connectors[0].delta().unwrap().storage.values().map(Secret::expose).collect();
    assert_eq!(exposed, ["canary-a", "canary-b", "canary-file", "canary-d", "canary-e"]);
    assert!(!format!("{config:?} {config:#?}").contains("canary"), "{config:?}");

    // Each secret, in each wrong place for it.
    let references = ["${env:B}", "${file:/run/secret}", "x${env:B}"];
    let fields = [
        "pipelines.p.source.files.poll_interval",
        "pipelines.p.views.v.columns.a",
        "pipelines.p.views.v.columns.b.c",
        "pipelines.p.views.v.key",
        "pipelines.p.views.v.connectors.c.mode",
        "pipelines.p.views.v.connectors.c.heartbeat",
        "pipelines.p.views.v.connectors.c.schema_change",
        "pipelines.p.views.v.connectors.c.commit.max_rows",
        "pipelines.p.views.v.connectors.c.commit.max_bytes",
        "pipelines.p.views.v.connectors.c.delta.compression",
        "pipelines.p.views.v.connectors.c.delta.storag",
        "pipelines.p.views.v.connectors.c.delta.storage.a.b",
        "server",
        "a",
    ];
    for reference in references {
        for field in fields {
            let found = message(load_with(&text, &[&format!("{field}={reference}")], &env));
            assert!(!found.contains("canary"), "{field}: {found}");
        }
    }
    let view = "[pipelines.p.views.v]\nkey = [\"${env:B}\"]\ncolumns = { a = \"bigint\" }\n";
    let found = message(load_with(&format!("{text}{view}"), &[], &env));
    assert!(found.contains("columns and the key do not fit") && !found.contains("canary"), "{found}");
    for set in ["canary", "a:canary", "a canary=1", "a.\"canary"] {
        let found = message(load_with(&text, &[set], &env));
        assert!(set == "canary" || !found.contains("canary"), "{set}: {found}");
    }
}

#[test]
fn a_connector_is_found_by_the_end_of_its_name() {
    let config = load(FULL).unwrap();
    for (name, full) in [("c", "zeta/v/c"), ("v/b", "alpha/v/b"), ("alpha/v/a", "alpha/v/a")] {
        assert_eq!(config.find(name).unwrap().name.to_string(), full, "{name}");
    }
    let missing = |name: &str| config.find(name).unwrap_err().message().to_string();
    assert_eq!(missing("alpa/v/a"), "no connector is called \"alpa/v/a\"; did you mean \"alpha/v/a\"?");
    assert_eq!(missing("warehouse"), "no connector is called \"warehouse\"; there are zeta/v/c, alpha/v/b, alpha/v/a");
    assert_eq!(
        missing("\u{1b}[31m-----------"),
        "no connector is called \"\\u{1b}[31m-----------\"; there are zeta/v/c, alpha/v/b, alpha/v/a"
    );
    let twice = FULL.replace("connectors.c", "connectors.a");
    let err = load(&twice).unwrap().find("v/a").unwrap_err().message().to_string();
    assert_eq!(err, "\"v/a\" is the end of several connectors' names; write one of zeta/v/a, alpha/v/a");
}

/// Text that is nearly right: lines of a right file, each perhaps cut, doubled or filled with something else.
fn nearly_right() -> impl Strategy<Value = String> {
    let line = (0..FULL.lines().count(), 0usize..60, ".{0,6}", any::<bool>());
    proptest::collection::vec(line, 0..25).prop_map(|edits| {
        let lines: Vec<&str> = FULL.lines().collect();
        let edited = edits.into_iter().map(|(i, at, put, whole)| {
            let (before, after) = lines[i].split_at(at.min(lines[i].len()));
            if whole { format!("{before}{after}\n") } else { format!("{before}{put}{after}\n") }
        });
        edited.collect()
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}", near in nearly_right(), set in ".{0,40}", path in "[a-z.\"'=_]{0,20}", variable in "[A-Z_]{0,20}") {
        let variable = format!("CUTOVER__{variable}");
        for text in [&text, &near] {
            if let Err(err) = load_with(text, &[&set, &path], &[(&variable, &set)]) {
                prop_assert_eq!(err.kind(), ErrorKind::Config, "{}", err);
                prop_assert!(!err.message().is_empty());
            }
        }
    }

    #[test]
    fn a_value_from_outside_is_a_value_or_a_problem(raw in ".{0,40}") {
        let set = format!("pipelines.p.views.v.connectors.c.delta.storage.region={raw}");
        let uri = "pipelines.p.views.v.connectors.c.delta.uri=s3://lake/t";
        match load_with(SMALL, &[uri, &set], &[]) {
            Ok(config) => prop_assert!(config.connectors[0].delta().unwrap().storage.contains_key("region")),
            Err(err) => prop_assert_eq!(err.kind(), ErrorKind::Config),
        }
    }
}
