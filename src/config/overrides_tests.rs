use std::path::PathBuf;

use super::*;
use crate::config::Mode;
use crate::config::tests::{SMALL, check, files, load_with, message};

#[test]
fn an_argument_is_a_path_and_a_value() {
    let cases = [
        ("a=1", vec!["a"], "1"),
        ("a.b-c.d_2=x=y", vec!["a", "b-c", "d_2"], "x=y"),
        ("a.\"b.c\".'d=e'=", vec!["a", "b.c", "d=e"], ""),
    ];
    for (argument, path, raw) in cases {
        let path: Vec<String> = path.into_iter().map(str::to_string).collect();
        assert_eq!(split_argument(argument), Ok((path, raw)), "{argument}");
    }
    for (bad, shown) in [("", ""), ("=1", ""), ("a..b=1", ""), ("a.b", "a.b"), ("a.b: x=1", "a.b"), ("a.\"b=1", "")] {
        assert_eq!(split_argument(bad).unwrap_err().0, shown, "{bad}");
    }
}

#[test]
fn a_variable_finds_the_files_spelling() {
    let problems = Problems::default();
    let text = "[p.My-View.x]\n[p.my__view.\"delta.Log\"]\n[q.a-b]\n[q.a_b]\n";
    let root = super::super::tree::parse(text, &problems).unwrap();
    let cases = [
        ("P__MY_VIEW__X", Ok(vec!["p", "My-View", "x"])),
        ("P__MY__VIEW__DELTA_LOG", Ok(vec!["p", "my__view", "delta.Log"])),
        ("P__OTHER__MODE", Ok(vec!["p", "other", "mode"])),
        ("Q__A_B", Err("several keys of the file: \"a-b\", \"a_b\"")),
        ("Q____A", Err("an empty part")),
        ("", Err("an empty part")),
        ("X__PROPERTIES__DELTA_LOG", Err("use --set")),
    ];
    for (variable, expected) in cases {
        match (resolve(&root, variable), expected) {
            (Ok(path), Ok(expected)) => assert_eq!(path, expected, "{variable}"),
            (Err(message), Err(part)) => assert!(message.contains(part), "{variable}: {message}"),
            (found, expected) => panic!("{variable}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn flags_win_over_the_environment_which_wins_over_the_file() {
    let text = SMALL.replace("c.delta]", "c]\ncommit.max_rows = 1\ndelta.");
    let text = text.replace("delta.\nuri", "delta.uri");
    let variable = ("CUTOVER__PIPELINES__P__VIEWS__V__CONNECTORS__C__COMMIT__MAX_ROWS", "2");
    let flag = "pipelines.p.views.v.connectors.c.commit.max_rows=3";
    let rows = |sets: &[&str], env: &[(&str, &str)]| load_with(&text, sets, env).unwrap().connectors[0].commit.max_rows;
    assert_eq!(rows(&[], &[]), 1);
    assert_eq!(rows(&[], &[variable]), 2);
    assert_eq!(rows(&[flag], &[variable]), 3);
    let last = "pipelines.p.views.v.connectors.c.commit.max_rows=4";
    assert_eq!(rows(&[flag, last], &[variable]), 4);
    let defaults = "defaults.connector.commit.max_rows=9";
    assert_eq!(rows(&[defaults], &[]), 1, "a connector's own value wins over a default, whatever set that");
}

#[test]
fn an_override_is_toml_where_it_can_be_and_a_string_where_one_is_wanted() {
    let delta = "pipelines.p.views.v.connectors.c.delta";
    let sets = [
        format!("{delta}.uri=s3://lake/t"),
        format!("{delta}.storage.secret_access_key=1e5"),
        format!("{delta}.storage.user_agent=123 # 4"),
        format!("{delta}.storage.role_session_name=\"a b\""),
        format!("{delta}.storage.region=${{env:HOST}}"),
        format!("{delta}.properties.\"delta.appendOnly\"=true"),
        format!("{delta}.target_file_size=64KiB"),
        "pipelines.p.views.v.key=[\"a\", \"b\"]".to_string(),
        "pipelines.p.views.v.connectors.c.send_snapshot=false".to_string(),
    ];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let env = [("HOST", "h"), ("CUTOVER__PIPELINES__P__VIEWS__V__CONNECTORS__C__DELTA__STORAGE__ACCESS_KEY_ID", "007")];
    let config = load_with(SMALL, &sets, &env).unwrap();
    let c = &config.connectors[0];
    let storage: Vec<(&str, &str)> = c.delta().unwrap().storage.iter().map(|(k, v)| (k.as_str(), v.expose())).collect();
    assert_eq!(
        storage,
        [
            ("access_key_id", "007"),
            ("region", "h"),
            ("role_session_name", "a b"),
            ("secret_access_key", "1e5"),
            ("user_agent", "123 # 4")
        ]
    );
    assert_eq!(c.delta().unwrap().properties["delta.appendOnly"], "true");
    assert_eq!(c.delta().unwrap().target_file_size, 65_536);
    assert_eq!(c.key, ["a", "b"]);
    assert_eq!(c.mode, Mode::Follow);
}

#[test]
fn a_wrong_override_is_named_by_its_flag_or_variable() {
    let flag = |set: &str, expected: &str| assert_eq!(message(load_with(SMALL, &[set], &[])), expected);
    flag(
        "pipelines.p.source.files.path",
        "--set pipelines.p.source.files.path=…: not of the form a.b.c=value; a part of the path with dots in it is written in quotes",
    );
    flag("pipelines.q.x=1", "--set pipelines.q.x=…: the file has no pipeline \"q\"; did you mean \"p\"?");
    flag(
        "pipelines.p.views.other.x=1",
        "--set pipelines.p.views.other.x=…: the file has no view \"other\"; it has \"v\"",
    );
    flag(
        "pipelines.p.source.files.path.x=1",
        "--set pipelines.p.source.files.path.x=…: pipelines.p.source.files.path is a string, not a table",
    );
    flag(
        "pipelines.p.source.files.poll_interval=soon",
        "--set pipelines.p.source.files.poll_interval=…: pipelines.p.source.files.poll_interval: \"soon\" is not valid; write a whole number and one of ms, s, m, h, d, such as \"10s\"",
    );
    flag(
        "mode=1",
        "--set mode=…: mode: unknown key; known here: \"config_version\", \"server\", \"defaults\", \"pipelines\"",
    );
    let variable = |name: &str, expected: &str| {
        assert_eq!(message(load_with(SMALL, &[], &[(name, "canary")])), format!("{name}: {expected}"));
    };
    variable(
        "CUTOVER__PIPELINES__P__SOURCE__FILES__PAHT",
        "pipelines.p.source.files.paht: unknown key; did you mean \"path\"?",
    );
    variable("CUTOVER__PIPELINES__Q__SOURCE__FILES__PATH", "the file has no pipeline \"q\"; did you mean \"p\"?");
    variable(
        "CUTOVER__PIPELINES__P__VIEWS__V__CONNECTORS__C__DELTA__PROPERTIES__DELTA_APPENDONLY",
        "nothing in the file matches \"DELTA_APPENDONLY\", and a variable's name cannot spell it exactly; use --set",
    );
    variable("CUTOVER__", "has an empty part; parts are separated by two underscores");
    let deep = format!("{}=1", vec!["a"; 100_000].join("."));
    assert!(message(load_with(SMALL, &[&deep], &[])).ends_with("has more than 16 parts"));
}

#[test]
fn variables_match_names_whatever_their_case() {
    let text = SMALL.replace("pipelines.p", "pipelines.My-Orders");
    let variable = ("CUTOVER__PIPELINES__MY_ORDERS__SOURCE__FILES__PATH", "elsewhere");
    let config = load_with(&text, &[], &[variable, ("CUTOVER_CONFIG", "x"), ("PATH", "y")]).unwrap();
    assert_eq!(files(&config.connectors[0]).path, PathBuf::from("elsewhere"));
    assert_eq!(config.connectors[0].name.pipeline(), "My-Orders");
}

#[test]
fn references_are_replaced_in_strings_and_placed_when_they_fail() {
    let text = SMALL.replace("\"feed\"", "\"${env:ROOT:-/data}/${env:NAME}\"").replace("out/t", "$${x}");
    let config = load_with(&text, &[], &[("NAME", "${env:ROOT}")]).unwrap();
    assert_eq!(files(&config.connectors[0]).path, PathBuf::from("/data/${env:ROOT}"));
    assert_eq!(config.connectors[0].delta().unwrap().uri, "${x}");
    check(
        "\"feed\"",
        "\"${env:NONE}${file:none}\"",
        &[
            "cutover.toml:3:8: pipelines.p.source.files.path: the environment variable NONE is not set; set it, or write ${env:NONE:-default}",
            "cutover.toml:3:8: pipelines.p.source.files.path: the file \"none\" cannot be read: entity not found",
        ],
    );
    let overridden = SMALL.replace("feed", "${env:NONE}");
    assert!(
        load_with(&overridden, &["pipelines.p.source.files.path=x"], &[]).is_ok(),
        "what is overridden is not read"
    );
}
