//! Events of a daemon that dies.

use serde_json::Value;

use super::ledger::Ledger;
use super::{Home, Service, connector};
use crate::program::{Chance, size};

/// All events up to the one with which the `life`-th daemon began.
fn until_started(service: &Service<'_>, life: usize) -> Vec<Value> {
    let request = service.request(reqwest::Method::GET, "/v1/events?after=0");
    service.home.runtime.block_on(async {
        let mut response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let (mut text, mut started, mut events) = (String::new(), 0, Vec::new());
        loop {
            text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
            while let Some((frame, rest)) = text.split_once("\n\n") {
                let data = frame.lines().find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
                text = rest.to_owned();
                let Some(data) = data else { continue };
                events.push(serde_json::from_str::<Value>(&data).unwrap());
                started += usize::from(events.last().unwrap()["event"] == "daemon_started");
                if started == life {
                    return events;
                }
            }
        }
    })
}

#[test]
fn events_outlive_kills_and_no_number_is_given_twice() {
    const TEST: &str = "events_outlive_kills_and_no_number_is_given_twice";
    let home = Home::new(&connector("lake", ""));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let mut heard: Vec<Value> = Vec::new();
    for life in 1..=size("CUTOVER_EVENT_KILLS", 5) as usize {
        let service = home.start();
        for _ in 0..ledger.chance.below(5) {
            let lines = ledger.insert(10);
            service.push(ledger.step(), lines);
        }
        service.arrives("lake", &ledger);
        let events = until_started(&service, life);
        assert_eq!(events[..heard.len()], heard, "what was told once stays; seed {}", ledger.chance.seed);
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event["id"].as_u64(), Some(n as u64 + 1), "seed {}", ledger.chance.seed);
        }
        heard = events;
        // Killed, while it may be writing what came last.
        drop(service);
    }
    home.check("lake", &ledger);
}
