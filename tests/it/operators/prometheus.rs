//! The dashboard and the alerts on a Prometheus server that scrapes a daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{has, read, repository};
use crate::object_stores::server::{exchange, head_end};
use crate::program::{Chance, PATIENCE, Running, free_port, wait_until};
use crate::service::ledger::Ledger;
use crate::service::{Home, Service, client, connector};

/// A Prometheus server that has the alert rules.
struct Prometheus {
    port: u16,
    process: Running,
}

impl Prometheus {
    fn start(service: &Service<'_>) -> Self {
        let home = service.home;
        let config = json!({
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [repository("operators/alerts.yml")],
            "scrape_configs": [{
                "job_name": "cutover",
                "static_configs": [{"targets": [service.url.strip_prefix("http://").unwrap()]}],
            }],
        });
        // JSON is YAML.
        home.write("prometheus.yml", &config.to_string());
        let port = free_port();
        let option = |name: &str, value: String| format!("--{name}={value}");
        let mut command = Command::new("prometheus");
        command.args([
            option("config.file", home.path("prometheus.yml").display().to_string()),
            option("storage.tsdb.path", home.path("prometheus").display().to_string()),
            option("web.listen-address", format!("127.0.0.1:{port}")),
            option("log.level", "warn".to_owned()),
        ]);
        let process = Running::start(command, NamedTempFile::new_in(home.path("")).unwrap());
        Self { port, process }
    }

    /// The `data` of an answer; `None` while it does not answer well.
    fn ask(&self, path: &str) -> Option<Value> {
        let request = format!("GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n");
        let answer = exchange(self.port, request.as_bytes()).ok()?;
        let mut body: Value = serde_json::from_slice(&answer[head_end(&answer)?..]).ok()?;
        assert_ne!(body["errorType"], "bad_data", "{path}: {body}");
        (body["status"] == "success").then(|| body["data"].take())
    }

    /// How many series an expression gives.
    fn count(&self, expression: &str) -> Option<usize> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        Some(self.ask(&format!("/api/v1/query?query={query}"))?["result"].as_array()?.len())
    }

    /// The alerts that fire, each with its connector.
    fn firing(&self) -> Option<BTreeSet<(String, String)>> {
        let label = |alert: &Value, name: &str| alert["labels"][name].as_str().unwrap_or_default().to_owned();
        let data = self.ask("/api/v1/alerts")?;
        let firing = data["alerts"].as_array()?.iter().filter(|alert| alert["state"] == "firing");
        Some(firing.map(|alert| (label(alert, "alertname"), label(alert, "connector"))).collect())
    }

    /// Waits until exactly these alerts of the connector `lake` fire, and none of others.
    fn fires(&self, expected: &[&str]) {
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|name| ((*name).to_owned(), "lake".to_owned())).collect();
        let mut firing = None;
        let does = wait_until(PATIENCE, || {
            firing = self.firing();
            firing.as_ref() == Some(&expected)
        });
        assert!(does, "{firing:?} fire, and not {expected:?}: {}", self.process.said());
    }
}

/// The expressions of the dashboard by panel, with everything chosen.
fn panels() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("operators/grafana.json")).unwrap();
    let mut found = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            for variable in ["$pipeline", "$view", "$connector"] {
                expression = expression.replace(variable, ".*");
            }
            found.push((panel["title"].as_str().unwrap().to_owned(), expression));
        }
    }
    found
}

/// The metrics that an expression is about.
fn families(expression: &str) -> impl Iterator<Item = String> {
    let words = expression.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("cutover_")).map(|word| {
        let ends = ["_total", "_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word).to_owned()
    })
}

#[test]
fn panels_show_what_a_daemon_tells_and_alerts_come_and_go_with_a_lost_continuity() {
    const TEST: &str = "panels_show_what_a_daemon_tells_and_alerts_come_and_go_with_a_lost_continuity";
    if !has("prometheus", TEST, "prometheus") {
        return;
    }
    let home = Home::new(&format!("{}{}", connector("lake", ""), client("app", "")));
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(TEST));
    let lines = ledger.insert(50);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    let prometheus = Prometheus::start(&service);
    prometheus.fires(&[]);

    // Somebody else's commit takes rows away; the next step meets it.
    let next = home.stamps("lake").len();
    let remove = json!({"remove": {"path": home.data_file("lake"), "deletionTimestamp": 1, "dataChange": true}});
    let entry = format!("{{\"commitInfo\":{{\"operation\":\"DELETE\"}}}}\n{remove}\n");
    home.write(&format!("lake/_delta_log/{next:020}.json"), &entry);
    let lines = ledger.change(20);
    service.push(ledger.step(), lines);
    service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    prometheus.fires(&["CutoverContinuityLost", "CutoverContinuityWasLost"]);

    let page = service.get("/metrics").is(200).body;
    let told: BTreeSet<&str> =
        page.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let (mut lacking, mut shown) = (BTreeMap::new(), 0);
    let have_all = wait_until(PATIENCE, || {
        (lacking, shown) = (BTreeMap::new(), 0);
        for (title, expression) in panels() {
            let is_told = families(&expression).all(|family| told.contains(family.as_str()));
            let count = prometheus.count(&expression);
            shown += usize::from(count.is_some_and(|count| count > 0));
            if is_told && count.is_none_or(|count| count == 0) {
                lacking.insert(title, expression);
            }
        }
        lacking.is_empty()
    });
    assert!(have_all, "panels without data: {lacking:?}; {}", prometheus.process.said());
    assert!(shown > 20, "only {shown} expressions give anything");
    // Gone is what does not pass by itself; that it was lost is told for a while.
    assert_eq!(service.reset("lake", json!({"reason": "rows were deleted"}))["state"], "committed");
    prometheus.fires(&["CutoverContinuityWasLost"]);
    drop(prometheus);
    service.stop();
}

#[test]
fn every_panel_has_a_title_a_description_and_a_place_of_its_own() {
    let dashboard: Value = serde_json::from_str(&read("operators/grafana.json")).unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "two panels are at {x}, {y}: {panel}");
            }
        }
        assert!(!panel["title"].as_str().unwrap().is_empty());
        if panel["type"] == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.len() > 5), "{panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string() || panel["type"] == "text", "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        let names: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(names.len(), targets.len(), "{panel}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
}
