//! Every metric has a sample here, so that what operators are given can be held against all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::error::Lost;

/// A view and a connector of which everything is known, once as a table and once as a client's stream.
fn reports() -> [ViewReport; 2] {
    let lost: BTreeMap<String, u64> = Lost::ALL.iter().map(ToString::to_string).zip(1..).collect();
    let work = json!({
        "commits": {"append": {"commits": 3, "rows": {"i": 1, "u": 2, "d": 3}, "bytes": 9}},
        "commit_seconds": {"bounds": [0.1, 1.0], "counts": [1, 1, 1], "sum": 2.5},
        "conflicts": 1, "retries": {"commit": 1}, "continuity_lost": lost,
    });
    ["delta", "http"].map(|destination| {
        let is_stream = destination == "http";
        let connector = json!({
            "schema": "cutover.status/1", "name": format!("p/v/{destination}"), "mode": "snapshot_and_follow",
            "destination": destination, "uri": "lake", "state": "following", "since": 1, "health": "healthy",
            "trouble": null, "reset": null, "generation": 2, "cutover": 3, "last_step": 4, "table_rows": 5,
            "current_rows": 6, "source_step": 7, "lag_steps": 3, "lag_seconds": 0.5,
            "snapshot": {"step": 7, "rows": 1, "rows_known": 2, "bytes": 3, "rows_per_second": 1.0, "seconds_left": 1.0},
            "place": null, "streams": is_stream.then_some(1), "sent_step": null, "appends": 1, "rows": 2, "bytes": 3,
            "work": work,
        });
        let view = json!({
            "name": "v", "source": "postgres", "materialized": null, "rows": 5, "trouble": null, "refusal": null,
            "step_log": {
                "earliest": 1, "last": 7, "bytes": 10, "max_bytes": 100, "is_full": false, "backpressure_seconds": 0.25,
            },
            "wal": {"bytes": 11, "status": "reserved"}, "streams": 0, "connectors": [connector],
        });
        serde_json::from_value(view).unwrap()
    })
}

/// The page of a daemon of which everything is known, and how many metrics are registered.
fn page() -> (String, usize) {
    let mut registry = Registry::with_prefix("cutover");
    let (connectors, views, resets) =
        (Connectors::new(&mut registry), Views::new(&mut registry), resets(&mut registry));
    for view in reports() {
        views.take("p", &view);
        view.connectors.iter().for_each(|report| connectors.take(report));
    }
    let outcome = with(&labels("p/v/delta"), "outcome", "failed".to_owned());
    resets.get_or_create(&with(&outcome, "trigger", trigger(Trigger::Asked).to_owned())).set(1.0);
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    (page, format!("{registry:?}").matches("Descriptor {").count())
}

/// The series that a scrape stores, each with the names of its labels.
fn series() -> BTreeMap<String, BTreeSet<String>> {
    let (page, registered) = page();
    assert_eq!(page.matches("# TYPE ").count(), registered, "a metric has no sample here:\n{page}");
    let mut series: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_once('{').unwrap();
        let names = rest.split("=\"").filter_map(|part| part.rsplit(['"', ',', '{']).next());
        let names = names.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.is_empty());
        series.entry(name.to_owned()).or_default().extend(names.map(str::to_owned));
    }
    series
}

/// What a metric is called without what its kind adds to series.
fn family(series: &str) -> &str {
    let ends = ["_total", "_bucket", "_sum", "_count"];
    ends.iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series)
}

fn operators(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("operators").join(name)).unwrap()
}

/// Every query of the dashboard, with those that its variables are made of.
fn panels() -> Vec<String> {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member {
                        Value::String(text) if ["expr", "query", "definition"].contains(&name.as_str()) => {
                            found.push(text.clone());
                        }
                        member => walk(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&serde_json::from_str(&operators("grafana.json")).unwrap(), &mut found);
    found
}

/// The lines of the alerts that hold expressions.
fn alerts() -> Vec<String> {
    let text = operators("alerts.yml");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with(['#', 's', 'r']));
    lines.filter(|line| line.contains("cutover_")).map(str::to_owned).collect()
}

/// The series that an expression names, each with the matchers behind it.
fn named(expression: &str) -> Vec<(String, String)> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = expression.match_indices("cutover_").filter(|(at, _)| !expression[..*at].ends_with(is_name));
    starts
        .map(|(at, _)| {
            let rest = &expression[at..];
            let (name, rest) = rest.split_at(rest.find(|c: char| !is_name(c)).unwrap_or(rest.len()));
            let matchers = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
            (name.to_owned(), matchers.to_owned())
        })
        .collect()
}

#[test]
fn every_metric_is_on_a_panel_and_panels_and_alerts_name_no_other() {
    let (series, panels) = (series(), panels());
    let mut shown = BTreeSet::new();
    for expression in panels.iter().chain(&alerts()) {
        for (name, matchers) in named(expression) {
            let labels = series.get(&name).unwrap_or_else(|| panic!("no metric is {name}: {expression}"));
            for matcher in matchers.split(',').map(str::trim).filter(|matcher| !matcher.is_empty()) {
                let label = matcher.split(['=', '!']).next().unwrap();
                assert!(labels.contains(label), "{name} has no label {label}: {expression}");
            }
        }
    }
    shown.extend(panels.iter().flat_map(|expression| named(expression)).map(|(name, _)| family(&name).to_owned()));
    let all: BTreeSet<String> = series.keys().map(|name| family(name).to_owned()).collect();
    assert!(all.len() > 25, "{all:?}");
    assert_eq!(shown, all);
}

#[test]
fn alerts_ask_for_states_and_outcomes_that_there_are() {
    let states: BTreeSet<String> = PHASES.iter().map(ToString::to_string).collect();
    let mut asked = 0;
    for expression in alerts() {
        for (name, matchers) in named(&expression) {
            let values = matchers.split('"').nth(1).unwrap_or_default().split('|').filter(|value| !value.is_empty());
            for value in values {
                let is_there = match name.as_str() {
                    "cutover_state" => states.contains(value),
                    "cutover_resets" => ["committed", "cancelled", "failed", "expired"].contains(&value),
                    _ => false,
                };
                assert!(is_there, "{name} is never {value}: {expression}");
                asked += 1;
            }
        }
    }
    assert!(asked > 5, "the alerts were not found");
}

#[test]
fn the_documents_list_every_metric() {
    let rest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("REST.md")).unwrap();
    let listed = rest.split("### Metrics").nth(1).unwrap().split("\n## ").next().unwrap();
    let families: BTreeSet<String> = series().keys().map(|name| family(name).to_owned()).collect();
    for family in families {
        let short = family.strip_prefix("cutover").unwrap();
        let is_listed = listed.split('`').any(|word| {
            let word = word.split('{').next().unwrap();
            let word = word.strip_suffix("_total").unwrap_or(word);
            word == family || word == short
        });
        assert!(is_listed, "REST.md does not list {family}");
    }
}
