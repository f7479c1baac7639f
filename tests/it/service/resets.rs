//! Resets over HTTP: many of them, and over restarts.

use serde_json::{Value, json};

use super::ledger::Ledger;
use super::{Home, Service, connector};
use crate::program::{Chance, size};

fn begun<'a>(home: &'a Home, test: &str) -> (Service<'a>, Ledger) {
    let mut ledger = Ledger::new(Chance::new(test));
    let service = home.start();
    let lines = ledger.insert(500);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    (service, ledger)
}

fn reloads(stamps: &[Value]) -> usize {
    stamps.iter().filter(|s| s["kind"] == "reload").count()
}

#[test]
fn a_thousand_reset_calls_in_a_second_make_one_reload() {
    const TEST: &str = "a_thousand_reset_calls_in_a_second_make_one_reload";
    // However long a busy machine takes for them, they are one burst.
    let burst = "reset = { backoff = { initial = \"1h\", factor = 1.0, max = \"1h\" } }";
    let home = Home::new(&connector("lake", burst));
    let (service, ledger) = begun(&home, TEST);
    let path = service.of("lake", "/reset");
    let calls = (0..1000).map(|_| {
        let request = service.request(reqwest::Method::POST, &path).json(&json!({"reason": TEST}));
        async move {
            let response = request.send().await.unwrap();
            assert_eq!(response.status().as_u16(), 202);
            response.json::<Value>().await.unwrap()["id"].as_str().unwrap().to_owned()
        }
    });
    let mut ids = home.runtime.block_on(async {
        use futures::StreamExt;
        futures::stream::iter(calls).buffer_unordered(50).collect::<Vec<_>>().await
    });
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(service.reset_ends("lake", &ids[0])["state"], "committed");
    service.arrives("lake", &ledger);
    service.stop();
    let stamps = home.check("lake", &ledger);
    assert_eq!(reloads(&stamps), 2, "the first load and one reset");
}

#[test]
fn restarts_load_nothing_anew() {
    const TEST: &str = "restarts_load_nothing_anew";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = begun(&home, TEST);
    service.stop();
    for restart in 0..size("CUTOVER_RESTARTS", 5) {
        let service = home.start();
        let lines = ledger.change(20);
        service.push(ledger.step(), lines);
        service.arrives("lake", &ledger);
        match restart % 2 {
            0 => service.stop(),
            _ => drop(service),
        }
    }
    assert_eq!(reloads(&home.check("lake", &ledger)), 1);
}

#[test]
fn a_reset_repairs_a_table_whatever_is_broken_in_it() {
    const TEST: &str = "a_reset_repairs_a_table_whatever_is_broken_in_it";
    let home = Home::new(&connector("lake", ""));
    let (service, mut ledger) = begun(&home, TEST);
    // A data file is lost.
    std::fs::remove_file(home.path("lake").join(home.data_file("lake"))).unwrap();
    home.run(&["verify", "lake"]).ended(3, ledger.chance.seed);
    let record = service.reset("lake", json!({"reason": "a file was deleted", "expected_generation": 1}));
    assert_eq!((&record["state"], &record["generation"]), (&json!("committed"), &json!(2)), "{record}");
    let lines = ledger.change(20);
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    service.stop();
    let stamps = home.check("lake", &ledger);
    let reset = stamps.iter().rfind(|s| s["kind"] == "reload").unwrap()["reset"].clone();
    assert_eq!((&reset["id"], &reset["why"]), (&record["id"], &json!("a file was deleted")), "{reset}");
    home.check_with_readers(TEST, "lake", &mut ledger, 1);
}
