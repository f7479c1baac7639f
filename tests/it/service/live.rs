//! Connectors come, are reset and go while a view is pushed to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::ledger::Ledger;
use super::{FREE_RESETS, Home, Service, connector, memory};
use crate::program::{Chance, size};

/// The rows of one push of the first load.
const LOAD: u64 = 20_000;

fn load(service: &Service<'_>, ledger: &mut Ledger, rows: u64) {
    let mut left = rows;
    while left > 0 {
        let lines = ledger.insert(left.min(LOAD));
        service.push(ledger.step(), lines);
        left -= left.min(LOAD);
    }
}

/// Pushes until `stop`, a step a call; the greatest lag that `steady` ever had meanwhile, in steps.
fn push_until(service: &Service<'_>, ledger: &mut Ledger, stop: &AtomicBool, steps: &AtomicU64) -> u64 {
    let mut worst = 0;
    while !stop.load(Ordering::Relaxed) {
        let lines = ledger.change(60);
        service.push(ledger.step(), lines);
        if steps.fetch_add(1, Ordering::Relaxed).is_multiple_of(50) {
            worst = worst.max(service.status("steady")["lag_steps"].as_u64().unwrap_or(0));
        }
    }
    worst
}

#[test]
fn a_connector_is_added_and_reset_while_changes_go_on() {
    const TEST: &str = "a_connector_is_added_and_reset_while_changes_go_on";
    let (rows, times) = (size("CUTOVER_VIEW_ROWS", 20_000), size("CUTOVER_VIEW_RESETS", 2));
    let home = Home::new(&connector("steady", ""));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let service = home.start();
    load(&service, &mut ledger, rows);
    service.arrives("steady", &ledger);
    let before = memory(service.process.id());
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut both = connector("steady", "");
    let worst = std::thread::scope(|scope| {
        let pushing = scope.spawn(|| push_until(&service, &mut ledger, &stop, &steps));
        // Whatever fails below, the other thread must end.
        let stopping = StopOnDrop(&stop);
        for time in 0..times {
            let name = format!("added{time}");
            both.push_str(&connector(&name, FREE_RESETS));
            home.configure(&both);
            service.send(service.request(reqwest::Method::PUT, &service.of(&name, ""))).is(201);
            service.wait(&name, "following", |s| s["state"] == "following");
            let record = service.reset("added0", json!({"reason": format!("reset {time}")}));
            assert_eq!((&record["state"], &record["generation"]), (&json!("committed"), &json!(time + 2)), "{record}");
        }
        drop(stopping);
        pushing.join().unwrap()
    });
    let used = memory(service.process.id()).saturating_sub(before);
    let pushed = ledger.step();
    let names: Vec<String> =
        std::iter::once("steady".to_string()).chain((0..times).map(|time| format!("added{time}"))).collect();
    for name in &names {
        service.arrives(name, &ledger);
    }
    let reloads = |name: &str, stamps: &[Value]| {
        let reloads: Vec<u64> =
            stamps.iter().filter(|s| s["kind"] == "reload").map(|s| s["to"].as_u64().unwrap()).collect();
        assert!(reloads.iter().all(|step| *step > 0 && *step <= pushed), "{name}: {reloads:?}");
        reloads.len() as u64
    };
    service.stop();
    for name in &names {
        let stamps = home.check(name, &ledger);
        assert_eq!(reloads(name, &stamps), if name == "added0" { times + 1 } else { 1 }, "{name}");
    }
    home.check_with_readers(TEST, "added0", &mut ledger, 10);
    home.check_with_readers(TEST, "steady", &mut ledger, 1);
    eprintln!(
        "{TEST}: {rows} rows, {} steps meanwhile, {times} connectors added and {times} resets; steady was {worst} steps behind at most; {} MiB more memory",
        steps.into_inner(),
        used >> 20
    );
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_connector_that_is_stuck_delays_no_other() {
    const TEST: &str = "a_connector_that_is_stuck_delays_no_other";
    let home = Home::new(&format!("{}{}", connector("stuck", ""), connector("good", "")));
    let mut ledger = Ledger::new(Chance::new(TEST));
    // A folder with files and no log is refused: they may be somebody's.
    std::fs::create_dir(home.path("stuck")).unwrap();
    home.write("stuck/somebodys.parquet", "");
    let service = home.start();
    load(&service, &mut ledger, 100);
    for _ in 0..20 {
        let lines = ledger.change(10);
        service.push(ledger.step(), lines);
    }
    service.arrives("good", &ledger);
    let stuck = service.wait("stuck", "failed", |s| s["state"] == "failed");
    assert!(stuck["trouble"]["reason"].as_str().unwrap().contains("stuck"), "{stuck}");
    assert_eq!(service.get("/v1/health").status, 503, "the worst decides");
    // What was in the way is taken away, and nothing was lost meanwhile.
    std::fs::remove_dir_all(home.path("stuck")).unwrap();
    service.call(&service.of("stuck", "/resume")).is(200);
    service.arrives("stuck", &ledger);
    assert_eq!(service.get("/v1/health").status, 200);
    service.stop();
    home.check("stuck", &ledger);
    home.check("good", &ledger);
}

#[test]
fn a_connector_that_holds_too_much_is_detached_by_policy_and_reset_afterwards() {
    const TEST: &str = "a_connector_that_holds_too_much_is_detached_by_policy_and_reset_afterwards";
    let small = "[pipelines.p.views.rows.step_log]\nmax_bytes = \"4MiB\"\n";
    let detaches = connector("lazy", "when_full = \"detach\"");
    let home = Home::new(&format!("{small}{detaches}{}", connector("good", "")));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let service = home.start();
    load(&service, &mut ledger, 100);
    service.arrives("lazy", &ledger);
    service.call(&service.of("lazy", "/pause")).is(200);
    let first = ledger.step();
    loop {
        let lines = ledger.change(2000);
        service.push(ledger.step(), lines);
        let view = service.get("/v1/pipelines/p").is(200).body["views"][0].clone();
        if view["step_log"]["earliest"].as_u64().unwrap() > first {
            break;
        }
        assert!(ledger.step() < 5000, "nothing was let go of: {view}");
    }
    service.arrives("good", &ledger);
    assert!(service.status("lazy")["place"].is_null(), "{}", service.status("lazy"));
    service.call(&service.of("lazy", "/resume")).is(200);
    let lost = service.wait("lazy", "lost", |s| s["state"] == "continuity_lost");
    assert!(lost["trouble"]["reason"].as_str().unwrap().contains("detached"), "{lost}");
    let record = service.reset("lazy", json!({}));
    assert_eq!(record["state"], "committed", "{record}");
    // It keeps its place again.
    service.arrives("lazy", &ledger);
    assert!(service.status("lazy")["place"].is_object(), "{}", service.status("lazy"));
    service.stop();
    home.check("lazy", &ledger);
    home.check("good", &ledger);
}

#[test]
fn a_full_log_holds_pushes_back_and_goes_on_by_itself() {
    const TEST: &str = "a_full_log_holds_pushes_back_and_goes_on_by_itself";
    let small = "[pipelines.p.views.rows.step_log]\nmax_bytes = \"4MiB\"\n";
    let home = Home::new(&format!("{small}{}", connector("lake", "")));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let service = home.start();
    load(&service, &mut ledger, 100);
    service.arrives("lake", &ledger);
    service.call(&service.of("lake", "/pause")).is(200);
    let (held, lines) = loop {
        let lines = ledger.change(2000);
        let answer = service.try_push(ledger.step(), lines.clone()).unwrap();
        if answer.status != 200 {
            break (answer, lines);
        }
        assert!(ledger.step() < 5000, "the log is never full");
    };
    assert_eq!(held.status, 503, "{held:?}");
    assert!(held.header("retry-after").is_some(), "{held:?}");
    service.call(&service.of("lake", "/resume")).is(200);
    // The same request, as its sender is told to.
    while service.try_push(ledger.step(), lines.clone()).unwrap().status == 503 {}
    service.arrives("lake", &ledger);
    service.stop();
    home.check("lake", &ledger);
}
