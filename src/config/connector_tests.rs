use std::time::Duration;

use super::*;
use crate::config::tests::{CONNECTOR, PUSHED, SMALL, URI, check, check_in, load, load_with, message};
use crate::connector::{Backoff, BreakerSettings};

#[test]
fn every_policy_of_changed_columns_is_read_and_a_connector_wins_over_the_defaults() {
    let policy = |defaults: &str, own: &str| {
        let text = SMALL.replace(URI, &format!("{own}{URI}"));
        let found = load_with(&format!("{text}[defaults.connector]\n{defaults}"), &[], &[]).unwrap();
        found.connectors[0].schema_change
    };
    for expected in [SchemaChange::Fail, SchemaChange::AddColumns, SchemaChange::Reload] {
        assert_eq!(policy(&format!("schema_change = \"{expected}\"\n"), ""), expected);
    }
    let set = "pipelines.p.views.v.connectors.c.schema_change=reload";
    let text = format!("{SMALL}[defaults.connector]\nschema_change = \"add_columns\"\n");
    assert_eq!(load_with(&text, &[set], &[]).unwrap().connectors[0].schema_change, SchemaChange::Reload);
    let follow = message(load_with(&text, &[set, "pipelines.p.views.v.connectors.c.mode=follow"], &[]));
    assert!(follow.contains("pipelines.p.views.v.connectors.c: mode follow has no snapshot"), "{follow}");
}

#[test]
fn bounds_of_resets_come_one_by_one_from_the_connector_else_from_the_defaults() {
    let own = "reset = { breaker = { max_resets = 1 }, backoff = { factor = 3, max = \"1h\" } }\n";
    let defaults = "[defaults.reset]\nbreaker = { max_resets = 7, window = \"1m\", cooldown = \"250ms\" }\nbackoff = { initial = \"2s\", factor = 1.25 }\n";
    let read = |text: &str| load(text).unwrap().connectors.remove(0);
    let with = |own: &str| SMALL.replace(CONNECTOR, &format!("[pipelines.p.views.v.connectors.c]\n{own}{CONNECTOR}"));
    let c = read(&with(own));
    let default = (BreakerSettings::default(), Backoff::default());
    assert_eq!(
        (c.breaker.max_resets.get(), c.breaker.window, c.breaker.cooldown),
        (1, default.0.window, default.0.cooldown)
    );
    assert_eq!(c.backoff, Backoff { factor: 3.0, max: Duration::from_secs(3600), ..default.1 });
    let c = read(&format!("{}{defaults}", with(own)));
    assert_eq!((c.breaker.max_resets.get(), c.breaker.window), (1, Duration::from_secs(60)));
    assert_eq!(c.breaker.cooldown, Duration::from_millis(250));
    let backoff = Backoff { initial: Duration::from_secs(2), factor: 3.0, max: Duration::from_secs(3600) };
    assert_eq!(c.backoff, backoff);
    assert_eq!(read(&format!("{SMALL}{defaults}")).backoff, Backoff { factor: 1.25, max: default.1.max, ..backoff });
    let set = "pipelines.p.views.v.connectors.c.reset.backoff.factor=2.5e0";
    assert_eq!(load_with(SMALL, &[set], &[]).unwrap().connectors[0].backoff.factor, 2.5);
}

#[test]
fn bounds_of_resets_are_sane() {
    let reset = |line: &str, expected: &str| {
        let expected = format!("cutover.toml:2:{expected}").replace('@', "defaults.reset");
        check("", &format!("[defaults.reset]\n{line}\n"), &[&expected]);
    };
    for wrong in ["0", "-1", "10001", "18446744073709551617"] {
        reset(&format!("breaker.max_resets = {wrong}"), "22: @.breaker.max_resets: is not between 1 and 1000");
    }
    reset("breaker.window = \"31d\"", "18: @.breaker.window: is not between 1ms and 30d");
    reset("breaker.cooldown = \"31d\"", "20: @.breaker.cooldown: is not between 1ms and 30d");
    reset("breaker.windows = \"1d\"", "9: @.breaker.windows: unknown key; did you mean \"window\"?");
    reset("backoff.max = \"25h\"", "15: @.backoff.max: is not between 1ms and 1d");
    for wrong in
        ["0.99", "0", "-2", "100.5", "inf", "-inf", "nan", "1e400", "99999999999999999999999999999999999999999"]
    {
        reset(&format!("backoff.factor = {wrong}"), "18: @.backoff.factor: is not between 1 and 100");
    }
    reset("backoff.factor = \"2\"", "18: @.backoff.factor: expected a number, found a string");
    reset(
        "backoff.initial = \"11m\"",
        "1: @.backoff: \"initial\" is 660s, which is more than \"max\", 600s; lower it, or raise \"max\"",
    );
    let defaults =
        "[defaults.reset]\nbackoff.max = \"6s\"\n[pipelines.p.views.v.connectors.c]\nreset.backoff.initial = \"7s\"\n";
    let said = message(load(&format!("{defaults}{SMALL}")));
    assert!(
        said.starts_with("cutover.toml:4:7: pipelines.p.views.v.connectors.c.reset.backoff: \"initial\" is 7s"),
        "{said}"
    );
}

#[test]
fn what_stands_in_the_wrong_table_is_told_the_right_one() {
    check(
        "",
        "[defaults.connector]\nreset = {}\nstep_log = {}\nwhen_full = \"detach\"\n",
        &[
            "cutover.toml:2:1: defaults.connector.reset: stands one table higher, as [defaults.reset]",
            "cutover.toml:3:1: defaults.connector.step_log: stands one table higher, in [defaults.step_log]",
            "cutover.toml:4:1: defaults.connector.when_full: stands one table higher, in [defaults.step_log]",
        ],
    );
    check_in(
        PUSHED,
        CONNECTOR,
        &format!("[pipelines.p.views.v.connectors.c]\nstep_log.when_full = \"detach\"\n{CONNECTOR}"),
        &[
            "cutover.toml:6:1: pipelines.p.views.v.connectors.c.step_log: is the view's; put it there, or write when_full here without it",
        ],
    );
}

/// `PUSHED` with `lines` in its connector, and `before` at the beginning.
fn pushed(before: &str, lines: &str) -> String {
    format!("{before}{}", PUSHED.replace(CONNECTOR, &format!("[pipelines.p.views.v.connectors.c]\n{lines}{CONNECTOR}")))
}

#[test]
fn a_full_step_log_is_answered_as_the_connector_says_else_the_defaults() {
    let read = |before: &str, lines: &str| load(&pushed(before, lines)).unwrap().connectors[0].when_full;
    let detach = "[defaults.step_log]\nwhen_full = \"detach\"\n";
    assert_eq!(read("", ""), WhenFull::Wait);
    assert_eq!(read(detach, ""), WhenFull::Detach);
    assert_eq!(read(detach, "when_full = \"backpressure\"\n"), WhenFull::Wait);
    assert_eq!(read("", "when_full = \"detach\"\n"), WhenFull::Detach);
    assert_eq!(read(detach, "mode = \"snapshot\"\n"), WhenFull::Wait, "it holds no steps");
    let files = load(&format!("{SMALL}{detach}")).unwrap();
    assert_eq!(files.connectors[0].when_full, WhenFull::Wait, "a default for others changes no connector of files");
    let refused = |text: &str, expected: &str| assert_eq!(message(load(text)), format!("cutover.toml:{expected}"));
    let place = "pipelines.p.views.v.connectors.c.when_full";
    refused(
        &pushed("", "mode = \"snapshot\"\nwhen_full = \"detach\"\n"),
        &format!("7:1: {place}: says nothing in mode snapshot, which holds no steps in the step log; remove it"),
    );
    refused(
        &pushed("", "when_full = \"detatch\"\n"),
        &format!("6:13: {place}: \"detatch\" is not known; did you mean \"detach\"?"),
    );
    refused(
        &format!("[pipelines.p.views.v.connectors.c]\nwhen_full = \"backpressure\"\n{SMALL}"),
        &format!("2:1: {place}: is for views that are pushed: one of files has no step log; remove it"),
    );
}

#[test]
fn a_lost_continuity_is_answered_as_the_connector_says_else_the_defaults() {
    let read = |before: &str, lines: &str| load(&pushed(before, lines)).unwrap().connectors[0].on_continuity_loss;
    let reset = "[defaults.connector]\non_continuity_loss = \"reset\"\n";
    assert_eq!(read("", ""), OnContinuityLoss::FailClosed);
    assert_eq!(read(reset, ""), OnContinuityLoss::Reset);
    assert_eq!(read(reset, "on_continuity_loss = \"fail_closed\"\nmode = \"follow\"\n"), OnContinuityLoss::FailClosed);
    check(
        "",
        "[defaults.connector]\non_continuity_loss = \"rest\"\n",
        &["cutover.toml:2:22: defaults.connector.on_continuity_loss: \"rest\" is not known; did you mean \"reset\"?"],
    );
}

#[test]
fn combinations_that_lose_data_are_refused_when_they_are_read() {
    // What a connector says, whether its view is kept, and how each problem begins.
    let mode = |mode: &str| {
        format!(
            "mode {mode} begins with a snapshot, which a view with materialized = false does not have; write mode = \"follow\", or remove materialized = false"
        )
    };
    let needs = |lacking: &str, what: &str| {
        format!("{lacking} has no snapshot to load, which {what} needs; change one of them")
    };
    let bare = "a view with materialized = false";
    let cases = [
        ("", true, vec![]),
        ("on_continuity_loss = \"reset\"", true, vec![]),
        ("mode = \"follow\"", false, vec![]),
        ("", false, vec![mode("snapshot_and_follow")]),
        ("mode = \"snapshot\"", false, vec![mode("snapshot")]),
        ("send_snapshot = true", false, vec![mode("snapshot_and_follow")]),
        ("mode = \"follow\"\non_continuity_loss = \"reset\"", true, vec![needs("mode follow", "on_continuity_loss = \"reset\"")]),
        ("mode = \"follow\"\non_continuity_loss = \"reset\"", false, vec![needs(bare, "on_continuity_loss = \"reset\"")]),
        ("mode = \"follow\"\nschema_change = \"reload\"", false, vec![needs(bare, "schema_change = \"reload\"")]),
        ("mode = \"follow\"\nwhen_full = \"detach\"", true, vec![needs("mode follow", "when_full = \"detach\"")]),
        ("mode = \"follow\"\nwhen_full = \"detach\"", false, vec![needs(bare, "when_full = \"detach\"")]),
        (
            "mode = \"follow\"\non_existing = \"truncate\"",
            true,
            vec!["mode follow loads no rows, so on_existing = \"truncate\" would leave nothing of a table; change one of them".to_string()],
        ),
        (
            "on_continuity_loss = \"reset\"\nschema_change = \"reload\"",
            false,
            vec![mode("snapshot_and_follow"), needs(bare, "on_continuity_loss = \"reset\""), needs(bare, "schema_change = \"reload\"")],
        ),
    ];
    for (lines, materialized, expected) in cases {
        let text = pushed("", &format!("{lines}\n")).replacen(
            "columns =",
            &format!("materialized = {materialized}\ncolumns ="),
            1,
        );
        let expected: Vec<String> =
            expected.iter().map(|e| format!("cutover.toml:6:33: pipelines.p.views.v.connectors.c: {e}")).collect();
        match load(&text) {
            Ok(_) => assert!(expected.is_empty(), "{text}"),
            Err(err) => assert_eq!(err.message(), expected.join("\n"), "{text}"),
        }
    }
}

#[test]
fn a_connector_without_a_table_has_what_is_of_clients_and_nothing_of_tables() {
    let read = |own: &str| {
        let text = PUSHED.replace(
            CONNECTOR,
            &format!("[pipelines.p.views.v.connectors.c]\n{own}[pipelines.p.views.v.connectors.c.http]"),
        );
        load(&format!(
            "{}[defaults.connector]\nschema_change = \"reload\"\nheartbeat = \"1s\"\n",
            text.replace(URI, "")
        ))
    };
    let found = read("mode = \"follow\"\n").unwrap().connectors.remove(0);
    assert_eq!((found.destination, found.mode, found.heartbeat), (Destination::Http, Mode::Follow, None));
    assert_eq!(found.schema_change, SchemaChange::Fail, "what is said of tables for all does not change it");
    for key in [
        "on_existing = \"error\"",
        "schema_change = \"fail\"",
        "commit.max_rows = 1",
        "durability = \"none\"",
        "heartbeat = \"1s\"",
    ] {
        let said = message(read(&format!("{key}\n")));
        assert!(said.contains("is for tables") && said.lines().count() == 1, "{said}");
    }
    let said = message(read("[pipelines.p.views.v.connectors.c.delta]\nuri = \"t\"\n"));
    assert!(said.contains("there is one destination"), "{said}");
}
