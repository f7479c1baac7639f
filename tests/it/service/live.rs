//! Connectors come, are reset and go while a view is pushed to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::ledger::Ledger;
use super::{FREE_RESETS, Home, Service, connector, memory};
use crate::program::{Chance, PATIENCE, size, wait_until};

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
    // In steps: however large the snapshots beside it are, what is pushed is in the table with one of its next commits.
    assert!(worst < 500, "steady was {worst} steps behind; seed {}", ledger.chance.seed);
    assert!(used < 1 << 30, "{} MiB more memory; seed {}", used >> 20, ledger.chance.seed);
    let pushed = ledger.step();
    let names: Vec<String> =
        std::iter::once("steady".to_string()).chain((0..times).map(|time| format!("added{time}"))).collect();
    for name in &names {
        service.arrives(name, &ledger);
    }
    let reloads = |name: &str, stamps: &[Value]| {
        let reloads: Vec<u64> =
            stamps.iter().filter(|s| s["kind"] == "reload").map(|s| s["to"].as_u64().unwrap()).collect();
        assert!(reloads.iter().all(|step| *step <= pushed), "{name}: {reloads:?}");
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
    let (service, ledger, lines) = filled(&home, TEST, &["lake"]);
    service.call(&service.of("lake", "/resume")).is(200);
    // The same request, as its sender is told to.
    goes_on(&service, &ledger, &lines);
    service.arrives("lake", &ledger);
    service.stop();
    home.check("lake", &ledger);
}

/// A daemon with connectors of these names whose log is full because `lake` is paused, and the lines that it does not take.
fn filled<'a>(home: &'a Home, test: &str, names: &[&str]) -> (Service<'a>, Ledger, String) {
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(test));
    load(&service, &mut ledger, 100);
    for name in names {
        service.arrives(name, &ledger);
    }
    service.call(&service.of("lake", "/pause")).is(200);
    loop {
        let lines = ledger.change(2000);
        let answer = service.try_push(ledger.step(), lines.clone()).unwrap();
        if answer.status != 200 {
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            return (service, ledger, lines);
        }
        assert!(ledger.step() < 5000, "the log is never full");
    }
}

fn goes_on(service: &Service<'_>, ledger: &Ledger, lines: &str) {
    let pushed = || service.try_push(ledger.step(), lines.to_owned()).unwrap().status == 200;
    assert!(wait_until(PATIENCE, pushed), "the log stays full: {}", service.get("/v1/pipelines/p").body);
}

const TWO_ON_A_SMALL_LOG: [&str; 2] = ["lake", "other"];

fn two_on_a_small_log() -> Home {
    let connectors = TWO_ON_A_SMALL_LOG.map(|name| connector(name, FREE_RESETS)).concat();
    Home::new(&format!("[pipelines.p.views.rows.step_log]\nmax_bytes = \"4MiB\"\n{connectors}"))
}

#[test]
fn a_full_log_goes_on_after_a_reset_of_the_connector_that_held_it() {
    let home = two_on_a_small_log();
    let (service, ledger, lines) =
        filled(&home, "a_full_log_goes_on_after_a_reset_of_the_connector_that_held_it", &TWO_ON_A_SMALL_LOG);
    // The reset loads the state at the last step, behind which there is nothing to append.
    let accepted = service.post(&service.of("lake", "/reset"), json!({})).is(202).body;
    service.reset_ends("lake", accepted["id"].as_str().unwrap());
    service.call(&service.of("lake", "/resume")).is(200);
    goes_on(&service, &ledger, &lines);
    TWO_ON_A_SMALL_LOG.iter().for_each(|name| drop(service.arrives(name, &ledger)));
    service.stop();
    TWO_ON_A_SMALL_LOG.iter().for_each(|name| drop(home.check(name, &ledger)));
}

#[test]
fn a_full_log_goes_on_after_a_restart() {
    let home = two_on_a_small_log();
    let (service, ledger, lines) = filled(&home, "a_full_log_goes_on_after_a_restart", &TWO_ON_A_SMALL_LOG);
    drop(service);
    let service = home.start();
    service.call(&service.of("lake", "/resume")).is(200);
    goes_on(&service, &ledger, &lines);
    TWO_ON_A_SMALL_LOG.iter().for_each(|name| drop(service.arrives(name, &ledger)));
    service.stop();
    TWO_ON_A_SMALL_LOG.iter().for_each(|name| drop(home.check(name, &ledger)));
}

#[test]
fn what_could_not_be_opened_is_tried_again_when_the_configuration_is_loaded_anew() {
    const TEST: &str = "what_could_not_be_opened_is_tried_again_when_the_configuration_is_loaded_anew";
    let home = Home::new(&connector("lake", ""));
    // Something stands where the view's step log is to be.
    std::fs::create_dir_all(home.path("data/views/p")).unwrap();
    home.write("data/views/p/rows", "in the way");
    let service = home.start();
    let mut ledger = Ledger::new(Chance::new(TEST));
    let lines = ledger.insert(10);
    service.try_push(ledger.step(), lines.clone()).unwrap().is(503);
    assert_eq!(service.status("lake")["state"], "failed");
    std::fs::remove_file(home.path("data/views/p/rows")).unwrap();
    let changed = service.call("/v1/reload").is(200).body;
    assert_eq!(changed["changed"], json!(["p/rows/lake"]), "{changed}");
    service.push(ledger.step(), lines);
    service.arrives("lake", &ledger);
    service.stop();
    home.check("lake", &ledger);
}

#[test]
fn a_token_that_is_taken_away_counts_no_more() {
    let home = Home::new("");
    let tokens = |tokens: &str| {
        let server = super::VIEW.replace("[pipelines.p.source", &format!("{tokens}\n[pipelines.p.source"));
        home.write("cutover.toml", &format!("{server}{}", connector("lake", "")));
    };
    let token =
        |name: &str| format!("[server.auth.tokens.{name}]\nrole = \"admin\"\ntoken = \"{name}-0123456789abcdef\"");
    let asked = |service: &Service<'_>, name: &str| {
        let request = service.request(reqwest::Method::POST, "/v1/reload");
        service.send(request.bearer_auth(format!("{name}-0123456789abcdef"))).status
    };
    tokens(&[token("ada"), token("bob")].join("\n"));
    let service = home.start();
    assert_eq!((asked(&service, "ada"), asked(&service, "bob"), asked(&service, "eve")), (200, 200, 401));
    tokens(&token("ada"));
    assert_eq!(asked(&service, "ada"), 200);
    assert_eq!((asked(&service, "ada"), asked(&service, "bob")), (200, 401));
    // Without any there is nobody to be asked, until a start looks at the address too.
    tokens("");
    assert_eq!(asked(&service, "ada"), 200);
    assert_eq!((asked(&service, "ada"), service.get("/v1/pipelines").status), (401, 401));
    service.stop();
}

fn copied(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copied(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_data_directory_that_is_taken_back_is_another_history_and_never_goes_on_as_the_same() {
    const TEST: &str = "a_data_directory_that_is_taken_back_is_another_history_and_never_goes_on_as_the_same";
    let home = Home::new(&connector("lake", ""));
    let mut ledger = Ledger::new(Chance::new(TEST));
    let seed = ledger.chance.seed;
    let service = home.start();
    load(&service, &mut ledger, 50);
    service.arrives("lake", &ledger);
    service.stop();
    let (data, old) = (home.path("data"), home.path("old"));
    copied(&data, &old);
    let mut lost = ledger.clone();
    let service = home.start();
    for _ in 0..5 {
        let lines = lost.change(20);
        service.push(lost.step(), lines);
    }
    service.arrives("lake", &lost);
    service.stop();
    let versions = home.stamps("lake").len();
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&old, &data).unwrap();

    let service = home.start();
    let status = service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    assert!(status["trouble"]["reason"].as_str().unwrap().contains("lost steps"), "{status}; seed {seed}");
    // Those steps are not given out again within this history, nor does anybody's resume make it whole.
    let lines = ledger.insert(7);
    let refused = service.try_push(ledger.step(), lines.clone()).unwrap().is(503);
    assert!(refused.body["detail"].as_str().unwrap().contains("lost steps"), "{refused:?}; seed {seed}");
    service.call(&service.of("lake", "/resume")).is(200);
    service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    assert_eq!(service.get("/v1/health").status, 503);

    service.call("/v1/reload").is(200);
    service.push(ledger.step(), lines);
    for _ in 0..10 {
        let lines = ledger.change(20);
        service.push(ledger.step(), lines);
    }
    service.call(&service.of("lake", "/resume")).is(200);
    service.wait("lake", "lost", |s| s["state"] == "continuity_lost");
    assert_eq!(home.stamps("lake").len(), versions, "nothing was appended; seed {seed}");
    let record = service.reset("lake", json!({"reason": TEST}));
    assert_eq!(record["state"], "committed", "{record}");
    service.arrives("lake", &ledger);
    service.stop();
    home.run(&["verify", "lake", "--deep"]).ended(0, seed);
    assert!(ledger.is(&home.run(&["state", "lake"]).ended(0, seed).stdout), "the table is not the view; seed {seed}");
    // It is so after a restart, too.
    let service = home.start();
    service.arrives("lake", &ledger);
    service.stop();
}
