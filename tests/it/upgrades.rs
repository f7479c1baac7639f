//! State that earlier versions left behind: this one goes on with it. The archives are made by fixtures/make_state.sh, and by
//! fixtures/make_older_state.py for what was written before steps had strands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::program::{PATIENCE, wait_until};
use crate::service::Home;

const ORDERS: [&str; 2] = [r#"{"id":1,"item":"mate"}"#, r#"{"id":3,"item":"gin"}"#];
const HELD: [&str; 2] = [r#"{"id":1,"item":"tea"}"#, r#"{"id":2,"item":"rum"}"#];
const MORE: &str = r#"{"id":4,"item":"ale"}"#;
const PRICES: [&str; 1] = [r#"{"id":1,"price":1.75}"#];

/// The archives of all versions.
fn archives() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_state = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("state-") && name.ends_with(".tar.zst")
    };
    let found: Vec<PathBuf> = paths.filter(is_state).collect();
    assert!(found.len() > 1, "{found:?}");
    found
}

/// A copy of what a version left behind.
fn unpacked(archive: &Path) -> Home {
    let home = Home::new("");
    let tar = Command::new("tar").args(["--zstd", "-xf"]).arg(archive).arg("-C").arg(home.path("")).status();
    assert!(tar.unwrap().success(), "{}", archive.display());
    home
}

/// Asserts that a table keeps every rule and has these rows; the generation that it is at.
fn holds(home: &Home, table: &str, rows: &[&str]) -> Value {
    home.run(&["verify", table, "--deep"]).ended(0, 0);
    let state = home.run(&["state", table]).ended(0, 0).stdout;
    let found: BTreeSet<&str> = state.lines().collect();
    let expected: BTreeSet<&str> = rows.iter().copied().collect();
    assert_eq!((found, state.lines().count()), (expected, rows.len()), "{table}");
    let shown = home.run(&["show", table, "-o", "json"]).ended(0, 0).stdout;
    serde_json::from_str::<Value>(&shown).unwrap()["generation"].clone()
}

#[test]
fn landed_files_are_gone_on_with_where_an_earlier_version_stopped() {
    for archive in archives() {
        let home = unpacked(&archive);
        let generation = holds(&home, "prices", &PRICES);
        let config = fs::read_to_string(home.path("cutover.toml")).unwrap();
        home.write("once.toml", config.split("[pipelines.pushed.").next().unwrap());
        home.write("feed/prices/changes-3-5.ndjson", "{\"step\":4,\"insert\":{\"id\":3,\"price\":9.00}}\n");
        home.run(&["run", "--once", "-c", "once.toml"]).ended(0, 0);
        let more = [&PRICES[..], &[r#"{"id":3,"price":9.00}"#]].concat();
        assert_eq!(holds(&home, "prices", &more), generation, "{}", archive.display());
    }
}

#[test]
fn a_daemon_goes_on_with_logs_rows_journals_and_clients_of_an_earlier_version() {
    for archive in archives() {
        let home = unpacked(&archive);
        let before = ["orders", "held", "view"].map(|table| {
            let rows = if table == "held" { HELD } else { ORDERS };
            holds(&home, table, &rows)
        });
        let service = home.start();
        let url = ["--url", service.url.as_str()];
        let asked = |args: &[&str]| home.run(&[args, &url[..]].concat()).ended(0, 0).stdout;
        let status =
            |connector: &str| -> Value { serde_json::from_str(&asked(&["status", connector, "-o", "json"])).unwrap() };
        assert_eq!(status("held")["state"], "paused", "it rests as it was told to");
        assert!(asked(&["resets", "lake"]).contains("a reset to remember"));

        let path = "/v1/pipelines/pushed/ingress/orders?format=ndjson&step=6";
        let line = format!("{{\"insert\":{MORE}}}\n");
        let push = service.request(reqwest::Method::POST, path).header("Content-Type", "application/x-ndjson");
        assert_eq!(service.send(push.body(line)).is(200).body["step"], 6);
        asked(&["resume", "held"]);
        for connector in ["lake", "held", "view"] {
            asked(&["wait", connector, "--step", "6"]);
        }

        // The client's place, and the strand of its step, are those that it was told.
        let app = status("app");
        assert_eq!((&app["last_step"], &app["destination"]), (&json!(2), &json!("http")), "{app}");
        let told = wait_until(PATIENCE, || status("app")["source_step"] == 6);
        assert!(told, "{}", status("app"));
        let place = fs::read_to_string(home.path("data/connectors/pushed/orders/app/egress.json")).unwrap();
        let place: Value = serde_json::from_str(&place).unwrap();
        let generation = place["generation"].as_u64().unwrap();
        let acknowledge = |strand: &str| {
            let call = "/v1/pipelines/pushed/views/orders/connectors/app/acknowledge";
            service.call(&format!("{call}?generation={generation}&after_step=2{strand}"))
        };
        // What was written before steps had strands tells none.
        if let Some(strand) = place["place"]["strand"].as_str() {
            assert_eq!(acknowledge("&after_strand=0000000000000001").status, 410, "a step of another strand");
            assert_eq!(acknowledge(&format!("&after_strand={strand}")).is(200).body["step"], 2);
        }
        assert_eq!(acknowledge("").is(200).body["step"], 2);
        service.stop();

        let rows = [&ORDERS[..], &[MORE]].concat();
        let after = ["orders", "held", "view"].map(|table| holds(&home, table, &rows));
        assert_eq!(after, before, "nothing was loaded anew");
    }
}

#[test]
fn state_of_a_later_version_is_refused_with_its_version() {
    for archive in archives() {
        let home = unpacked(&archive);
        let place = home.path("data/connectors/pushed/orders/app/egress.json");
        let later = fs::read_to_string(&place).unwrap().replacen("\"v\":1", "\"v\":2", 1);
        fs::write(&place, &later).unwrap();
        let service = home.start();
        let status = home.run(&["status", "app", "-o", "json", "--url", &service.url]).ended(0, 0).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        let reason = status["trouble"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("has the version 2, known is 1; run the program that wrote it"), "{status}");
        service.stop();
        assert_eq!(fs::read_to_string(&place).unwrap(), later, "it is left as it is");
    }
}
