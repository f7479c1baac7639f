//! A daemon whose data directory has no room left.

use std::fs::{self, File};

use serde_json::json;

use super::ledger::Ledger;
use super::{FREE_RESETS, Home, connector};
use crate::full_disk::{fill, in_a_namespace, mount};
use crate::program::{Chance, PATIENCE, wait_until};

const RESET: &str = "a_reset_of_rows_that_found_no_room_says_what_is_full_and_leaves_the_table_as_it_is";

#[test]
fn a_reset_of_rows_that_found_no_room_says_what_is_full_and_leaves_the_table_as_it_is() {
    in_a_namespace("service::room", RESET, || {
        let home = Home::new(&connector("lake", FREE_RESETS));
        let rows = home.path("data/views/p/rows/rows");
        fs::create_dir_all(&rows).unwrap();
        mount(&rows, "size=96m");
        let mut ledger = Ledger::new(Chance::new(RESET));
        let seed = ledger.chance.seed;
        let service = home.start();
        let lines = ledger.insert(1000);
        service.push(ledger.step(), lines);
        service.arrives("lake", &ledger);
        let filler = rows.join("filler");
        fill(&filler, 0);
        // The step log, on another disk, takes steps for which the rows have no room.
        let is_told = wait_until(PATIENCE, || {
            let lines = ledger.insert(2000);
            service.try_push(ledger.step(), lines).unwrap().status != 200
        });
        assert!(is_told, "there was room; seed {seed}");
        let last = ledger.step() - 1;
        service.wait("lake", "at the last step that was stored", |s| s["last_step"].as_u64() == Some(last));
        let versions = home.stamps("lake").len();
        let full = rows.display().to_string();
        let is_said = |text: &str| text.contains("no room") && text.contains(&full) && !text.contains("allow-older");
        let planned = service.post(&service.of("lake", "/reset"), json!({"dry_run": true}));
        assert!(planned.status == 503 && is_said(&planned.body.to_string()), "{planned:?}; seed {seed}");
        let ran = home.run(&["reset", "lake", "--yes", "--dry-run", "--url", &service.url]).ended(75, seed);
        assert!(is_said(&ran.stderr), "{}; seed {seed}", ran.stderr);
        let accepted = service.post(&service.of("lake", "/reset"), json!({})).is(202).body;
        let tried = service.wait("lake", "without room", |s| s["trouble"]["reason"].is_string());
        assert!(is_said(&tried.to_string()), "{tried}; seed {seed}");
        assert_eq!(home.stamps("lake").len(), versions, "the table is as it was; seed {seed}");
        // Its end is no good one: what the rows lack cannot be written either.
        drop(service);
        // With room the reset that was accepted comes to its end.
        File::options().write(true).open(&filler).unwrap().set_len(0).unwrap();
        let service = home.start();
        let record = service.reset_ends("lake", accepted["id"].as_str().unwrap());
        assert_eq!(record["state"], "committed", "{record}; seed {seed}");
        service.stop();
        home.run(&["verify", "lake", "--deep"]).ended(0, seed);
        assert_eq!(home.stamps("lake").last().unwrap()["to"].as_u64(), Some(last), "seed {seed}");
    });
}
