//! Daemons that are killed at any moment, and what they leave.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use super::ledger::Ledger;
use super::{FREE_RESETS, Home, Service, connector};
use crate::program::{Chance, size, wait_until};

#[test]
fn kills_of_a_daemon_lose_and_double_nothing_that_was_answered() {
    const TEST: &str = "kills_of_a_daemon_lose_and_double_nothing_that_was_answered";
    let two = format!("durability = \"commit\"\n{FREE_RESETS}");
    let home = Home::new(&format!("{}{}", connector("one", FREE_RESETS), connector("two", &two)));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let (kills, seed) = (size("CUTOVER_DAEMON_KILLS", 8), ledger.chance.seed);
    // A request without an answer is sent again.
    let mut open = Some(ledger.insert(3000));
    let (mut repeated, mut resets) = (0, 0);
    for kill in 0..kills {
        let mut service = home.start();
        let is_reset = kill > 0 && ledger.chance.one_in(2);
        if is_reset {
            let one = ["one", "two"][ledger.chance.below(2) as usize];
            // The breaker may be open after so many; then there is none.
            let asked = service.post(&service.of(one, "/reset"), json!({"reason": TEST, "override_breaker": true}));
            assert_eq!(asked.status, 202, "{asked:?}; seed {seed}");
            resets += 1;
        }
        let (wanted, yields) = (ledger.chance.below(60), ledger.chance.below(3000));
        let process = service.process.id();
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Killed from outside, at any moment of a push.
                wait_until(crate::program::PATIENCE, || sent.load(Ordering::Relaxed) >= wanted);
                (0..yields).for_each(|_| std::thread::yield_now());
                let killed = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
                assert!(killed.unwrap().success());
            });
            loop {
                let lines = open.take().unwrap_or_else(|| ledger.change(200));
                match push(&service, &ledger, &lines, &mut repeated) {
                    true => _ = sent.fetch_add(1, Ordering::Relaxed),
                    false => {
                        open = Some(lines);
                        break;
                    }
                }
            }
        });
        assert!(service.process.code().is_none(), "{}", service.process.said());
    }
    let service = home.start();
    if let Some(lines) = open {
        assert!(push(&service, &ledger, &lines, &mut repeated), "{}; seed {seed}", service.process.said());
    }
    service.arrives("one", &ledger);
    service.arrives("two", &ledger);
    service.stop();
    for table in ["one", "two"] {
        let stamps = home.check(table, &ledger);
        let reloads: Vec<_> = stamps.iter().filter(|s| s["kind"] == "reload").collect();
        let unasked = reloads.iter().filter(|s| s.get("reset").is_none()).count();
        assert_eq!(unasked, 1, "{table}: a restart loads nothing anew; seed {seed}");
        let mut ids: Vec<_> = reloads.iter().filter_map(|s| s.get("reset")).map(|r| r["id"].to_string()).collect();
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), count, "{table}: a reset is carried out once; seed {seed}");
    }
    home.check_with_readers(TEST, "one", &mut ledger, 2);
    eprintln!(
        "{TEST}: {kills} kills, {} steps, {repeated} of them sent twice, {resets} resets asked for",
        ledger.step()
    );
}

/// Whether the step was answered; it must be stored then, once.
fn push(service: &Service<'_>, ledger: &Ledger, lines: &str, repeated: &mut u64) -> bool {
    let Some(answer) = service.try_push(ledger.step(), lines.to_owned()) else { return false };
    let answer = answer.is(200);
    *repeated += u64::from(answer.body["already_applied"] == true);
    true
}
