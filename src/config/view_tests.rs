use crate::config::SourceConfig;
#[cfg(feature = "postgres")]
use crate::config::tests::load_with;
use crate::config::tests::{CONNECTOR, PUSHED, check, check_in, load, message};

#[test]
fn the_views_own_rules_hold_for_its_columns() {
    let view = |lines: &str, expected: &[&str]| {
        check(CONNECTOR, &format!("[pipelines.p.views.v]\n{lines}\n{CONNECTOR}"), expected)
    };
    view(
        "columns = { a = \"int9\", b = 1 }",
        &[
            "cutover.toml:5:17: pipelines.p.views.v.columns.a: \"int9\" is not valid; unknown type \"int9\"; known are bigint, double, string",
            "cutover.toml:5:29: pipelines.p.views.v.columns.b: expected a string, found an integer",
        ],
    );
    view(
        "key = [\"c\"]\ncolumns = { a = \"bigint\" }",
        &["cutover.toml:6:1: pipelines.p.views.v.columns: view v: the key column \"c\" is not a column of the view"],
    );
    view(
        "key = [1, \"\"]",
        &[
            "cutover.toml:5:8: pipelines.p.views.v.key[0]: expected a string, found an integer",
            "cutover.toml:5:11: pipelines.p.views.v.key[1]: is empty",
        ],
    );
    view("key = \"id\"", &["cutover.toml:5:7: pipelines.p.views.v.key: expected an array, found a string"]);
    view(
        "key = []\ncolumns = {}",
        &[
            "cutover.toml:5:7: pipelines.p.views.v.key: is empty; name the columns that tell rows apart, or remove it for a view without key",
            "cutover.toml:6:11: pipelines.p.views.v.columns: is empty; remove it, and the columns are as the source has them",
        ],
    );
}

#[test]
fn a_pushed_view_needs_columns_and_no_connector() {
    let text = "[pipelines.p]\nsource.push = {}\nviews.v = { columns = { id = \"bigint\" } }\n";
    let config = load(text).unwrap();
    assert!(config.connectors.is_empty());
    let view = &config.views[0];
    assert_eq!((&view.source, view.materialized, view.step_log_bytes), (&SourceConfig::Push, true, 8 << 30));
    check_in(
        PUSHED,
        "columns = { id = \"bigint\" }\n",
        "",
        &[
            "cutover.toml:3:20: pipelines.p.views.v: has no columns, and a view that is pushed has no source that tells them; add columns = { NAME = \"TYPE\" }",
        ],
    );
    check_in(
        PUSHED,
        "{ id = \"bigint\" }",
        "{}",
        &[
            "cutover.toml:4:11: pipelines.p.views.v.columns: is empty, and a view that is pushed has no source that tells them; add columns = { NAME = \"TYPE\" }",
        ],
    );
    check_in(
        PUSHED,
        "columns",
        "colums",
        &["cutover.toml:4:1: pipelines.p.views.v.colums: unknown key; did you mean \"columns\"?"],
    );
    check_in(
        PUSHED,
        "[pipelines.p.source.push]\n",
        "[pipelines.p.source.push]\nport = 1\n",
        &["cutover.toml:3:1: pipelines.p.source.push.port: unknown key; known here: "],
    );
    check_in(
        PUSHED,
        "source.push",
        "source",
        &[
            "cutover.toml:2:14: pipelines.p.source: has no source; add [pipelines.p.source.files] or [pipelines.p.source.push] or [pipelines.p.source.postgres]",
        ],
    );
    check_in(
        PUSHED,
        "[pipelines.p.source.push]\n",
        "[pipelines.p.source.push]\n[pipelines.p.source.files]\npath = \"feed\"\n",
        &[
            "cutover.toml:2:21: pipelines.p.source.push: \"files\" stands here too, and there is one source; remove one of them",
        ],
    );
}

#[test]
fn what_a_step_log_may_take_is_the_views_else_the_defaults() {
    let bytes = |own: &str, defaults: &str, text: &str| {
        let text = text.replacen("columns =", &format!("{own}columns ="), 1);
        load(&format!("{text}[defaults.step_log]\n{defaults}")).unwrap().views[0].step_log_bytes
    };
    assert_eq!(bytes("", "", PUSHED), 8 << 30);
    assert_eq!(bytes("", "max_bytes = \"1MiB\"\n", PUSHED), 1 << 20);
    assert_eq!(bytes("step_log.max_bytes = \"3MiB\"\n", "max_bytes = \"1MiB\"\n", PUSHED), 3 << 20);
    let files = PUSHED.replace("[pipelines.p.source.push]", "[pipelines.p.source]\nfiles.path = \"feed\"");
    assert_eq!(bytes("", "max_bytes = \"1MiB\"\n", &files), 8 << 30, "a default for others changes no view of files");
    for bad in ["0", "1000KiB", "1025TiB", "\"x\""] {
        let said = message(load(&format!("{PUSHED}[defaults.step_log]\nmax_bytes = \"{}\"\n", bad.replace('"', ""))));
        assert!(said.starts_with("cutover.toml:8:13: defaults.step_log.max_bytes: "), "{said}");
    }
    check_in(
        PUSHED,
        "columns =",
        "step_log = { max_byte = 1, when_full = \"detach\" }\ncolumns =",
        &[
            "cutover.toml:4:14: pipelines.p.views.v.step_log.max_byte: unknown key; did you mean \"max_bytes\"?",
            "cutover.toml:4:28: pipelines.p.views.v.step_log.when_full: is each connector's own; put it there, or into [defaults.step_log]",
        ],
    );
}

#[test]
fn what_is_for_pushed_views_is_refused_with_the_reason_where_files_are_landed() {
    check(
        CONNECTOR,
        &format!("[pipelines.p.views.v]\nmaterialized = false\nstep_log = {{}}\n{CONNECTOR}"),
        &[
            "cutover.toml:5:1: pipelines.p.views.v.materialized: is for views that are pushed: a snapshot of this one is among its files; remove it",
            "cutover.toml:6:1: pipelines.p.views.v.step_log: is for views that are pushed: the changes of this one stay in its files; remove it",
        ],
    );
    // Also where the source itself has a problem.
    let text =
        "[pipelines.p.source.files]\n[pipelines.p.views.v]\nmaterialized = true\nconnectors.c.delta.uri = \"t\"\n";
    assert_eq!(message(load(text)).lines().count(), 2);
}

#[cfg(feature = "postgres")]
const FOLLOWED: &str = "[pipelines.My-Shop.source.postgres]\nurl = \"${env:PG_URL}\"\n\
    [pipelines.My-Shop.views.v]\ntable = \"public.orders\"\n\
    [pipelines.My-Shop.views.v.connectors.c.delta]\nuri = \"a\"\n";

#[cfg(feature = "postgres")]
#[test]
fn tables_of_a_database_are_named_and_their_address_stays_hidden() {
    let followed = |text: &str| load_with(text, &[], &[("PG_URL", "postgres://u:canary@h/shop")]);
    let config = followed(FOLLOWED).unwrap();
    let SourceConfig::Postgres(database) = &config.views[0].source else { panic!("{:?}", config.views) };
    assert_eq!(database.url.expose(), "postgres://u:canary@h/shop");
    assert_eq!(
        (&*database.slot, &*database.publication, database.max_wal),
        ("cutover_my_shop", "cutover_my_shop", None)
    );
    assert_eq!((config.views[0].table.as_deref(), config.views[0].step_log_bytes), (Some("public.orders"), 8 << 30));
    assert!(!format!("{config:?}").contains("canary"), "{config:?}");
    let named = "slot = \"a_1\"\npublication = \"P p\"\nmax_wal = \"1GiB\"\nurl";
    let config = followed(&FOLLOWED.replacen("url", named, 1)).unwrap();
    let SourceConfig::Postgres(database) = &config.views[0].source else { panic!("{:?}", config.views) };
    assert_eq!((&*database.slot, &*database.publication, database.max_wal), ("a_1", "P p", Some(1 << 30)));
    for (old, new, said) in [
        ("url =", "slot = \"A-1\"\nurl =", "a slot has up to 63 lower-case letters"),
        ("url =", "max_wal = \"1MiB\"\nurl =", "is not between 16MiB and more"),
        ("url = \"${env:PG_URL}\"\n", "", "has no \"url\"; add it"),
        ("table = \"public.orders\"\n", "", "has no \"table\"; add it"),
        ("table =", "materialized = true\ntable =", "a snapshot of this one is its table"),
    ] {
        let text = FOLLOWED.replacen(old, new, 1);
        let found = message(followed(&text));
        assert!(found.contains(said) && !found.contains("canary"), "{found} in {text}");
    }
    let pushed = PUSHED.replacen("columns", "table = \"t\"\ncolumns", 1);
    assert!(message(load(&pushed)).contains("is for views of a PostgreSQL database"), "{pushed}");
}
