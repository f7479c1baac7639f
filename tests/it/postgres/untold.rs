//! What changes values without a row that changes: the server's log does not tell it, and its catalogs show it.

use super::server::Postgres;
use super::site::Site;
use crate::program::{PATIENCE, wait_until};

/// Nothing is appended after `statement`, `said` says why, and a reset repairs it.
fn is_lost(server: &Postgres, site: &Site, view: &str, statement: &str, said: &str) {
    let (before, generation) = (site.stamps(view).len(), site.generation(view));
    server.sql(statement);
    let ran = site.run(&["run", "--once"]).ended(3, 0);
    assert!(ran.stderr.contains(said), "{statement}: {}", ran.stderr);
    assert_eq!(site.stamps(view).len(), before, "{statement}");
    site.reset(view).ended(0, 0);
    site.check(server);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.generation(view), generation + 1, "{statement}");
}

/// All goes on after `statement`.
fn goes_on(server: &Postgres, site: &Site, view: &str, statement: &str) {
    let generation = site.generation(view);
    server.sql(statement);
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(server);
    assert_eq!(site.generation(view), generation, "{statement}");
}

#[test]
fn rows_that_are_written_anew_are_never_taken_for_the_old_ones() {
    let Some(server) = Postgres::find("rows_that_are_written_anew_are_never_taken_for_the_old_ones") else { return };
    server.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i");
    let site = Site::new(&server, &[("t", "t")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    goes_on(&server, &site, "t", "VACUUM FULL t; INSERT INTO t VALUES (10, 10)");
    goes_on(&server, &site, "t", "ALTER TABLE t ALTER v SET NOT NULL; UPDATE t SET v = v + 1 WHERE id < 3");
    let doubled = "ALTER TABLE t ALTER v TYPE int USING v * 2; INSERT INTO t VALUES (11, 11)";
    is_lost(&server, &site, "t", doubled, "public.t: its rows were written anew by ALTER TABLE");

    let again = "ALTER TABLE t DROP v; ALTER TABLE t ADD v int; INSERT INTO t VALUES (14, 14)";
    is_lost(&server, &site, "t", again, "a column of it was dropped and made again");
    let mute = "ALTER PUBLICATION cutover_p SET (publish = 'insert'); UPDATE t SET v = 0;
        ALTER PUBLICATION cutover_p SET (publish = 'insert, update, delete, truncate'); INSERT INTO t VALUES (15, 15)";
    is_lost(&server, &site, "t", mute, "is in the publication by the entry");

    // Seen by one that follows.
    let running = site.start();
    server.sql("INSERT INTO t VALUES (12, 12)");
    site.catch_up(&server, &running);
    server.sql("ALTER TABLE t ALTER v TYPE int USING v + 1; INSERT INTO t VALUES (13, 13)");
    let is_seen = || running.said().contains("its rows were written anew by ALTER TABLE");
    assert!(wait_until(PATIENCE, is_seen), "{}", running.said());
    drop(running);
    assert_eq!(site.state("t").len(), 14);
    site.reset("t").ended(0, 0);
    site.check(&server);
}

#[test]
fn partitions_that_come_or_go_with_rows_are_never_overlooked() {
    let Some(server) = Postgres::find("partitions_that_come_or_go_with_rows_are_never_overlooked") else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
        CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100);
        CREATE TABLE t_2 PARTITION OF t FOR VALUES FROM (100) TO (200);
        CREATE TABLE t_3 (LIKE t INCLUDING ALL);
        INSERT INTO t VALUES (1, 'a'), (100, 'b'); INSERT INTO t_3 VALUES (200, 'c')",
    );
    let site = Site::new(&server, &[("t", "t")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    let made = "CREATE TABLE t_4 PARTITION OF t FOR VALUES FROM (300) TO (400); INSERT INTO t VALUES (300, 'd')";
    goes_on(&server, &site, "t", made);
    goes_on(&server, &site, "t", "DELETE FROM t WHERE id = 300; VACUUM t_4");
    is_lost(&server, &site, "t", "TRUNCATE t_4", "a partition of it was emptied or rewritten by itself");
    let attached = "ALTER TABLE t ATTACH PARTITION t_3 FOR VALUES FROM (200) TO (300)";
    is_lost(&server, &site, "t", attached, "a table was attached to it as a partition");
    is_lost(&server, &site, "t", "ALTER TABLE t DETACH PARTITION t_2", "a partition of it was detached or dropped");
    is_lost(&server, &site, "t", "DROP TABLE t_1", "a partition of it was detached or dropped");
}
