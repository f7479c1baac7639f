//! A server that is not what it was: nothing is appended, and a reset repairs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::server::Postgres;
use super::site::Site;

const TABLE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100) i;";

/// A table that was loaded and followed a bit.
fn followed(test: &str) -> Option<(Postgres, Site)> {
    let server = Postgres::find(test)?;
    server.sql(TABLE);
    let site = Site::new(&server, &[("t", "t")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql("INSERT INTO t VALUES (101, 'w')");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    Some((server, site))
}

/// The program ends at the first contact, says all of `said`, and appends nothing; after a reset the table is the server's.
fn is_lost_and_repaired(server: &Postgres, site: &Site, said: &[&str]) {
    let before = site.stamps("t").len();
    for _ in 0..2 {
        let ran = site.run(&["run", "--once"]).ended(3, 0);
        for words in said {
            assert!(ran.stderr.contains(words), "{words:?} is not in {}", ran.stderr);
        }
    }
    let looked = site.run(&["reset", "t/lake", "--dry-run"]);
    assert_eq!(site.stamps("t").len(), before, "something was committed; {}", looked.stderr);
    site.reset("t").ended(0, 0);
    site.check(server);
    server.sql("INSERT INTO t VALUES (99999, 'after the reset'); DELETE FROM t WHERE id = 1");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(server);
    assert_eq!(site.generation("t"), 2);
}

#[test]
fn a_slot_that_is_gone() {
    let Some((server, site)) = followed("a_slot_that_is_gone") else { return };
    server.sql("SELECT pg_drop_replication_slot('cutover_p'); INSERT INTO t VALUES (102, 'unseen')");
    is_lost_and_repaired(&server, &site, &["the replication slot \"cutover_p\" is gone", "was read up to"]);
}

#[test]
fn a_slot_that_was_made_anew() {
    let Some((server, site)) = followed("a_slot_that_was_made_anew") else { return };
    server.sql(
        "SELECT pg_drop_replication_slot('cutover_p'); INSERT INTO t VALUES (102, 'unseen');
        SELECT pg_create_logical_replication_slot('cutover_p', 'pgoutput')",
    );
    is_lost_and_repaired(&server, &site, &["made anew or moved by others", "stands at", "was read up to"]);
}

#[test]
fn wal_that_was_removed() {
    let Some((mut server, site)) = followed("wal_that_was_removed") else { return };
    server.configure("max_slot_wal_keep_size = '1MB'\nmax_wal_size = '2MB'\n");
    server.stop();
    server.start();
    server.sql("CREATE TABLE other AS SELECT repeat('y', 1000) FROM generate_series(1, 10000) i");
    server.sql("CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT");
    assert_eq!(server.sql("SELECT wal_status FROM pg_replication_slots"), "lost");
    is_lost_and_repaired(&server, &site, &["the replication slot \"cutover_p\" is invalid", "was read up to"]);
}

#[test]
fn a_table_that_was_made_anew_or_taken_out_of_the_publication() {
    let Some((server, site)) = followed("a_table_that_was_made_anew") else { return };
    server.sql("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (7, 'other')");
    is_lost_and_repaired(&server, &site, &["it is another"]);
    let before = site.stamps("t").len();
    server.sql("ALTER PUBLICATION cutover_p DROP TABLE t; INSERT INTO t VALUES (8, 'unseen'); ALTER PUBLICATION cutover_p ADD TABLE t");
    let ran = site.run(&["run", "--once"]).ended(3, 0);
    assert!(ran.stderr.contains("is missing"), "{}", ran.stderr);
    assert_eq!(site.stamps("t").len(), before);
    site.reset("t").ended(0, 0);
    site.check(&server);
}

fn copied(server: &Postgres, from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
    server.give(to);
}

#[test]
fn a_server_that_was_restored_from_an_earlier_copy() {
    let Some((mut server, site)) = followed("a_server_that_was_restored_from_an_earlier_copy") else { return };
    let (data, copy) = (server.data(), server.data().with_file_name("copy"));
    server.stop();
    copied(&server, &data, &copy);
    server.start();
    server.sql("INSERT INTO t SELECT i, 'lost' FROM generate_series(200, 300) i");
    site.run(&["run", "--once"]).ended(0, 0);
    server.stop();
    copied(&server, &copy, &data);
    server.start();
    is_lost_and_repaired(&server, &site, &["the server ends at", "it was taken back"]);
    // The same with as much written since: positions alone do not tell.
    server.stop();
    copied(&server, &data, &copy);
    server.start();
    server.sql("INSERT INTO t SELECT i, 'lost' FROM generate_series(400, 410) i");
    site.run(&["run", "--once"]).ended(0, 0);
    server.stop();
    copied(&server, &copy, &data);
    server.start();
    server.sql("INSERT INTO t SELECT i, 'other' FROM generate_series(20000, 25000) i");
    let before = site.stamps("t").len();
    let ran = site.run(&["run", "--once"]).ended(3, 0);
    assert!(ran.stderr.contains("this is another history"), "{}", ran.stderr);
    assert_eq!(site.stamps("t").len(), before);
    site.reset("t").ended(0, 0);
    site.check(&server);
}

#[test]
fn another_server_at_the_same_address() {
    let Some((mut server, site)) = followed("another_server_at_the_same_address") else { return };
    server.replace();
    server.sql(TABLE);
    server.sql("INSERT INTO t SELECT i, 'other' FROM generate_series(200, 3000) i");
    is_lost_and_repaired(&server, &site, &["has the system identifier", "and what was read is of"]);
}

#[test]
fn a_replica_that_was_promoted() {
    let Some((mut server, site)) = followed("a_replica_that_was_promoted") else { return };
    let data = server.data();
    server.stop();
    // What a promotion does to the history: the same server goes on, on the next timeline.
    fs::write(data.join("standby.signal"), "").unwrap();
    server.give(&data.join("standby.signal"));
    server.start();
    server.sql("SELECT pg_promote()");
    is_lost_and_repaired(&server, &site, &["has the timeline 2", "is of 1"]);
}
