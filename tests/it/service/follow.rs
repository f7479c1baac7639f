//! The client of the Python package, over connections that are cut off and a daemon that is killed.

use std::fs;
use std::path::Path;

use super::Home;
use super::ledger::Ledger;
use crate::program::{Chance, PATIENCE, Readers, Running, wait_until};

#[test]
fn the_packages_client_follows_a_view_over_reconnects() {
    const TEST: &str = "the_packages_client_follows_a_view_over_reconnects";
    let Some(readers) = Readers::find(TEST) else { return };
    let home = Home::new("");
    let mut ledger = Ledger::new(Chance::new(TEST));
    let seed = ledger.chance.seed;
    fs::create_dir(home.path("client")).unwrap();
    let tell = |url: &str| {
        home.write(".daemon", url);
        fs::rename(home.path(".daemon"), home.path("daemon")).unwrap();
    };
    let mut service = home.start();
    tell(&service.url);
    let lines = ledger.insert(2000);
    service.push(ledger.step(), lines);
    let mut command = readers.python();
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("readers/tests/follow.py"));
    command.arg(home.path("daemon")).arg("/v1/pipelines/p/egress/rows").current_dir(home.path("client"));
    let said = tempfile::NamedTempFile::new_in(home.path("")).unwrap();
    let mut client = Running::start(command, said);
    let mut has = |step: u64| {
        let line = step.to_string();
        let came = wait_until(PATIENCE, || client.ended().is_some() || client.said().lines().any(|said| said == line));
        assert!(came && client.ended().is_none(), "no step {step}: {}; seed {seed}", client.said());
    };
    has(ledger.step());
    for _ in 0..20 {
        let lines = ledger.change(40);
        service.push(ledger.step(), lines);
    }
    has(ledger.step());
    service.process.kill();
    let service = home.start();
    tell(&service.url);
    for _ in 0..20 {
        let lines = ledger.change(40);
        service.push(ledger.step(), lines);
    }
    has(ledger.step());
    // The stream says that the daemon stops, which ends the client.
    service.stop();
    assert_eq!(client.code(), Some(0), "{}; seed {seed}", client.said());
    let rows = fs::read_to_string(home.path("client/rows.ndjson")).unwrap();
    assert!(ledger.is(&rows), "the target is not the view: {}; seed {seed}", client.said());
}
