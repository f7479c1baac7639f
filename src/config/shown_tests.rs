use std::collections::BTreeMap;

use super::super::keys::tests::{DOCUMENTS, ENV};
use super::super::place::join;
use super::super::tests::with_inputs;
use super::*;

/// What is shown, as a configuration of its own.
fn written(settings: &[Setting]) -> String {
    let mut tables: Vec<(String, String)> = vec![(String::new(), String::new())];
    for Setting { path, value, .. } in settings {
        let (key, around) = path.split_last().unwrap();
        let around = if *value == Shown::Table { path } else { around };
        let header = around.iter().fold(String::new(), |header, part| join(&header, part));
        let line = match value {
            Shown::Value(value) => format!("{} = {}\n", join("", key), to_toml(value)),
            Shown::Hidden => panic!("{path:?} is hidden"),
            Shown::Table => String::new(),
        };
        match tables.iter_mut().find(|(of, _)| *of == header) {
            Some((_, lines)) => lines.push_str(&line),
            None => tables.push((header, line)),
        }
    }
    let text = |(header, lines): &(String, String)| match header.as_str() {
        "" => lines.clone(),
        _ => format!("[{header}]\n{lines}"),
    };
    tables.iter().map(text).collect()
}

#[test]
fn what_is_shown_is_a_configuration_that_means_the_same() {
    let small = "config_version = 1\n[pipelines.p.source.files]\npath = \"feed\"\n[pipelines.p.views.v.connectors.c.delta]\nuri = \"t\"\n";
    let database = "config_version = 1\n[pipelines.\"a.B\".source.postgres]\nurl = \"${env:PG_URL}\"\n[pipelines.\"a.B\".views.v]\ntable = \"public.t\"\n[pipelines.\"a.B\".views.v.connectors.c.delta]\nuri = \"t\"\n";
    let narrow = "[server.ingress]\nmax_request = \"1MiB\"\n[defaults.connector]\nsend_snapshot = false\n[pipelines.p.source.push]\n[pipelines.p.views.v]\ncolumns = { a = \"bigint\" }\n[pipelines.p.views.v.connectors.c.http]\n[pipelines.p.views.v.connectors.d]\nmode = \"snapshot\"\n[pipelines.p.views.v.connectors.d.delta]\nuri = \"t\"\n";
    for text in DOCUMENTS.into_iter().chain([small, database, narrow]) {
        with_inputs(text, &[], &ENV, |inputs| {
            let settings = settings(inputs).unwrap();
            let shown = written(&settings);
            let again = Inputs { text: &shown, ..*inputs };
            let (config, other) =
                (Config::load(inputs).unwrap(), Config::load(&again).unwrap_or_else(|e| panic!("{e}\n{shown}")));
            assert_eq!(config, other, "{shown}");
        });
    }
}

#[test]
fn each_setting_says_where_it_comes_from() {
    let text = "[defaults.connector]\ndurability = \"none\"\n[pipelines.p.source.files]\npath = \"feed\"\n[pipelines.p.views.v.connectors.c.delta]\nuri = \"t\"\nlayout = \"changelog\"\n";
    let env = [("CUTOVER__PIPELINES__P__SOURCE__FILES__PATH", "other")];
    let sets = ["pipelines.p.views.v.connectors.c.delta.compaction=false"];
    let found: BTreeMap<String, (Shown, Origin)> = with_inputs(text, &sets, &env, |inputs| {
        let settings = settings(inputs).unwrap();
        settings.into_iter().map(|s| (s.path.join("."), (s.value, s.origin))).collect()
    });
    let connector = "pipelines.p.views.v.connectors.c";
    let flag = sets[0].split('=').next().unwrap();
    for (path, value, origin) in [
        ("pipelines.p.source.files.path".to_owned(), Json::from("other"), Origin::Variable(env[0].0.to_owned())),
        (format!("{connector}.durability"), "none".into(), Origin::File { line: 2, column: 14 }),
        (format!("{connector}.delta.layout"), "changelog".into(), Origin::File { line: 7, column: 10 }),
        (format!("{connector}.delta.compaction"), false.into(), Origin::Flag(flag.to_owned())),
        (format!("{connector}.mode"), "snapshot_and_follow".into(), Origin::Default),
        ("server.listen".to_owned(), "127.0.0.1:8090".into(), Origin::Default),
    ] {
        assert_eq!(found.get(&path), Some(&(Shown::Value(value), origin)), "{path}");
    }
}

#[test]
fn a_secret_is_shown_as_the_reference_that_leads_to_it_or_not_at_all() {
    let of = |url: &str| {
        let text = format!(
            "[pipelines.p.source.postgres]\nurl = {url:?}\n[pipelines.p.views.v]\ntable = \"t\"\n[pipelines.p.views.v.connectors.c.delta]\nuri = \"t\"\n"
        );
        with_inputs(&text, &[], &ENV, |inputs| {
            settings(inputs).unwrap().into_iter().find(|s| s.path.ends_with(&["url".to_owned()])).unwrap().value
        })
    };
    assert_eq!(of("${env:PG_URL}"), Shown::Value("${env:PG_URL}".into()));
    for hidden in ["postgres://u:CANARY@h/d", "${env:PG_URL:-postgres://u:CANARY@h/d}", "${env:PG_URL}?password=CANARY"]
    {
        assert_eq!(of(hidden), Shown::Hidden, "{hidden}");
    }
}
