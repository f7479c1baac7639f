//! What transactions do to tables, by snapshots and by changes.

use std::fs;
use std::time::Duration;

use super::server::Postgres;
use super::site::Site;
use crate::program::{PATIENCE, Running, wait_until};

const ORDERS: &str = "CREATE TABLE orders (id int PRIMARY KEY, amount int, note text);
    INSERT INTO orders SELECT i, i * 3, 'note ' || i FROM generate_series(1, 500) i;";

#[test]
fn a_transaction_is_a_step_of_each_table_that_it_changed() {
    let Some(server) = Postgres::find("a_transaction_is_a_step_of_each_table_that_it_changed") else { return };
    server.sql(ORDERS);
    server.sql(
        "CREATE TABLE \"Odd Name\" (a text, b int, v text, PRIMARY KEY (b, a));
        INSERT INTO \"Odd Name\" VALUES ('x', 1, 'y'), ('', 2, NULL)",
    );
    let mut site = Site::new(&server, &[("orders", "orders"), ("odd", "\"Odd Name\"")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    server.sql("BEGIN; INSERT INTO orders VALUES (501, 1, 'new'); UPDATE orders SET note = NULL WHERE id = 1;
        UPDATE orders SET id = 1002 WHERE id = 2; DELETE FROM orders WHERE id = 3; INSERT INTO orders VALUES (3, 9, 'again');
        DELETE FROM orders WHERE id = 501; UPDATE \"Odd Name\" SET a = 'z', v = 'w' WHERE b = 1; COMMIT;
        BEGIN; INSERT INTO orders VALUES (7777, 0, 'never'); ROLLBACK;
        UPDATE orders SET amount = amount + 1 WHERE id % 2 = 0;");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    let steps: Vec<u64> = site.stamps("orders").iter().filter_map(|stamp| stamp["to"].as_u64()).collect();
    assert!(steps.windows(2).all(|pair| pair[0] <= pair[1]), "{steps:?}");
    // A table that is added later begins with a snapshot of its own, and the others go on.
    server.sql("CREATE TABLE later (id int PRIMARY KEY, v text); INSERT INTO later VALUES (1, 'a')");
    site.add(&server, "later", "later", "");
    server.sql("INSERT INTO orders VALUES (600, 6, 'six')");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql("INSERT INTO later VALUES (2, 'b'); INSERT INTO orders VALUES (601, 6, 'six')");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 1);
    // What is not followed any more is not kept for anybody, and one that comes back has a hole.
    let kept = server.sql("SELECT count(*) FROM pg_replication_slots");
    assert_eq!(kept, "1", "slots of snapshots are gone");
}

#[test]
fn a_table_that_is_added_is_followed_from_where_all_is_told() {
    let Some(server) = Postgres::find("a_table_that_is_added_is_followed_from_where_all_is_told") else { return };
    server.sql("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE later (id int PRIMARY KEY, v text)");
    let mut site = Site::new(&server, &[("t", "t")], "mode = \"follow\"");
    site.run(&["run", "--once"]).ended(0, 0);
    // It writes before the table is published, and commits after that.
    let mut open = server.open("BEGIN; INSERT INTO later VALUES (1, 'never told');");
    site.add(&server, "later", "later", "mode = \"follow\"");
    server.sql("INSERT INTO t VALUES (1)");
    let ran = site.run(&["run", "--once"]).ended(75, 0);
    assert!(ran.stderr.contains("once the transactions are over that were under way"), "{}", ran.stderr);
    site.run(&["run", "--once", "t"]);
    assert_eq!(site.state("t").len(), 1, "the other table goes on");
    open.say("COMMIT;");
    open.end();
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql("INSERT INTO later VALUES (2, 'told')");
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(site.state("later"), [r#"{"id":2,"v":"told"}"#]);
    let begun = site.stamps("later").iter().filter_map(|stamp| stamp["to"].as_u64()).min();
    assert!(begun.is_some(), "{:?}", site.stamps("later"));
}

#[test]
fn a_daemon_follows_what_is_written_and_keeps_no_wal() {
    let Some(server) = Postgres::find("a_daemon_follows_what_is_written_and_keeps_no_wal") else { return };
    server.sql(ORDERS);
    let site = Site::new(&server, &[("orders", "orders")], "");
    let mut running = site.start();
    site.catch_up(&server, &running);
    for round in 0..5 {
        server.sql(&format!(
            "INSERT INTO orders SELECT i, {round}, repeat('x', 100) FROM generate_series({0}, {0} + 999) i;
            DELETE FROM orders WHERE id % 7 = {round}",
            1000 + round * 1000
        ));
    }
    site.catch_up(&server, &running);
    // What others write does not stay either.
    server.sql("CREATE TABLE other AS SELECT i, repeat('y', 1000) FROM generate_series(1, 5000) i; CHECKPOINT");
    let behind =
        "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), confirmed_flush_lsn)::int8 FROM pg_replication_slots";
    let is_told = || server.sql(behind).parse::<i64>().unwrap() < 100_000;
    assert!(wait_until(PATIENCE, is_told), "{}", server.sql(behind));
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}", running.said());
    site.check(&server);
}

#[test]
fn status_tells_what_is_behind_and_what_waits_for_the_server() {
    let Some(mut server) = Postgres::find("status_tells_what_is_behind_and_what_waits_for_the_server") else { return };
    server.sql(ORDERS);
    server.sql("CREATE TABLE quiet (id int PRIMARY KEY); INSERT INTO quiet VALUES (1)");
    let site = Site::new(&server, &[("orders", "orders"), ("quiet", "quiet")], "");
    let mut running = site.start();
    let url = address(&running);
    site.catch_up(&server, &running);
    let status = || -> Vec<serde_json::Value> {
        // Looking costs more than waiting.
        std::thread::park_timeout(Duration::from_millis(100));
        let shown = site.run(&["status", "--url", &url, "-o", "json"]).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let views = shown["pipelines"][0]["views"].as_array().unwrap();
        views.iter().map(|view| view["connectors"][0].clone()).collect()
    };
    server
        .sql("INSERT INTO orders SELECT i, 1, 'new' FROM generate_series(1000, 3000) i; UPDATE orders SET amount = 2");
    site.catch_up(&server, &running);
    let is_caught_up = || status().iter().all(|c| c["lag_steps"] == 0 && c["health"] == "healthy");
    assert!(wait_until(PATIENCE, is_caught_up), "{:?}", status());
    // The source went on, and there is nothing of it that the table lacks.
    let quiet = status().into_iter().find(|c| c["name"] == "p/quiet/lake").unwrap();
    assert!(quiet["source_step"].as_u64() > quiet["last_step"].as_u64(), "{quiet}");
    server.stop();
    let waits = || {
        status().iter().all(|c| {
            let why = c["trouble"]["reason"].as_str().unwrap_or_default();
            c["state"] == "retrying" && c["health"] == "degraded" && why.contains("127.0.0.1")
        })
    };
    assert!(wait_until(PATIENCE, waits), "{:?}", status());
    server.start();
    assert!(wait_until(PATIENCE, || status().iter().all(|c| c["state"] == "following")), "{:?}", status());
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}", running.said());
    site.check(&server);
}

#[test]
fn a_server_that_does_not_answer_holds_nobody_up_for_long() {
    const TEST: &str = "a_server_that_does_not_answer_holds_nobody_up_for_long";
    let Some(mut server) = Postgres::find(TEST) else { return };
    server.sql(ORDERS);
    let site = Site::new(&server, &[("orders", "orders")], "");
    server.stop();
    let ran = site.run(&["run", "--once"]).ended(75, 0);
    assert!(ran.stderr.contains("see that the server runs") && ran.stderr.contains("127.0.0.1"), "{}", ran.stderr);
    // A daemon answers, and begins once the server is there.
    let mut running = site.start();
    let url = address(&running);
    let shown = site.run(&["status", "--url", &url, "-o", "json"]).stdout;
    assert!(shown.contains("\"state\":\"retrying\"") && shown.contains("see that the server runs"), "{shown}");
    server.start();
    site.catch_up(&server, &running);
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}", running.said());
}

#[test]
fn a_table_that_is_emptied_is_loaded_with_what_came_after() {
    let Some(server) = Postgres::find("a_table_that_is_emptied_is_loaded_with_what_came_after") else { return };
    server.sql(ORDERS);
    let site = Site::new(&server, &[("orders", "orders")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql("INSERT INTO orders VALUES (1000, 1, 'before');
        BEGIN; INSERT INTO orders VALUES (1001, 1, 'gone'); TRUNCATE orders; INSERT INTO orders VALUES (1, 1, 'a'), (2, 2, 'b');
        DELETE FROM orders WHERE id = 2; COMMIT; INSERT INTO orders VALUES (3, 3, 'after')");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 2);
    server.sql("TRUNCATE orders");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 3);
}

#[test]
fn a_value_that_an_update_leaves_out_is_never_null() {
    let Some(server) = Postgres::find("a_value_that_an_update_leaves_out_is_never_null") else { return };
    server.sql(
        "CREATE TABLE large (id int PRIMARY KEY, n int, v text); ALTER TABLE large ALTER v SET STORAGE EXTERNAL;
        INSERT INTO large VALUES (1, 0, repeat('x', 20000)), (2, 0, 'small')",
    );
    let site = Site::new(&server, &[("large", "large")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql("UPDATE large SET n = 1 WHERE id = 2");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    let before = site.state("large");
    server.sql("UPDATE large SET n = 1 WHERE id = 1");
    let ran = site.run(&["run", "--once"]).ended(3, 0);
    assert!(ran.stderr.contains("REPLICA IDENTITY FULL"), "{}", ran.stderr);
    site.run(&["run", "--once"]).ended(3, 0);
    assert_eq!(site.state("large"), before);
    server.sql("ALTER TABLE large REPLICA IDENTITY FULL");
    site.reset("large").ended(0, 0);
    server.sql("UPDATE large SET n = 2 WHERE id = 1; UPDATE large SET id = 5, n = 3 WHERE id = 1");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
}

#[test]
fn a_table_without_key_is_published_only_when_its_rows_are_told() {
    let Some(server) = Postgres::find("a_table_without_key_is_published_only_when_its_rows_are_told") else { return };
    server.sql("CREATE TABLE bag (a int, b text); INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (2, NULL)");
    let site = Site::new(&server, &[("bag", "bag")], "");
    let ran = site.run(&["run", "--once"]).ended(5, 0);
    assert!(ran.stderr.contains("ALTER TABLE \"public\".\"bag\" REPLICA IDENTITY FULL"), "{}", ran.stderr);
    server.sql("UPDATE bag SET b = 'y' WHERE a = 2");
    server.sql("ALTER TABLE bag REPLICA IDENTITY FULL");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql(
        "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE a = 1);
        UPDATE bag SET b = 'z' WHERE a = 2; INSERT INTO bag VALUES (3, 'q'), (3, 'q')",
    );
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
}

#[test]
fn columns_come_and_go_as_the_policy_allows() {
    let Some(server) = Postgres::find("columns_come_and_go_as_the_policy_allows") else { return };
    server.sql(ORDERS);
    let site = Site::new(&server, &[("orders", "orders")], "schema_change = \"add_columns\"");
    site.run(&["run", "--once"]).ended(0, 0);
    server.sql(
        "ALTER TABLE orders ADD COLUMN colour text; INSERT INTO orders VALUES (901, 1, 'n', 'red');
        UPDATE orders SET colour = 'blue' WHERE id = 1",
    );
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 1);
    server.sql("ALTER TABLE orders ADD COLUMN size int DEFAULT 7; INSERT INTO orders VALUES (902, 1, 'n', 'red', 8)");
    let ran = site.run(&["run", "--once"]).ended(5, 0);
    assert!(ran.stderr.contains("size"), "{}", ran.stderr);
    site.configure(&server.url(), "schema_change = \"reload\"");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 2);
    server.sql(
        "ALTER TABLE orders RENAME COLUMN note TO remark; ALTER TABLE orders DROP COLUMN size;
        UPDATE orders SET remark = 'r' WHERE id < 10",
    );
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    server.sql("ALTER TABLE orders ALTER COLUMN amount TYPE bigint; UPDATE orders SET remark = 's' WHERE id < 10");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("orders"), 4);
}

#[test]
fn partitions_are_followed_through_their_root() {
    let Some(server) = Postgres::find("partitions_are_followed_through_their_root") else { return };
    server.sql("CREATE TABLE parts (id int, k int, v text, PRIMARY KEY (id, k)) PARTITION BY RANGE (k);
        CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
        CREATE TABLE parts_2 (v text, k int NOT NULL, id int NOT NULL);
        ALTER TABLE parts_2 ADD PRIMARY KEY (id, k); ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES FROM (10) TO (20);
        INSERT INTO parts SELECT i, i % 20, 'v' FROM generate_series(1, 100) i");
    let site = Site::new(&server, &[("parts", "parts")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    server.sql(
        "UPDATE parts SET k = 15 WHERE k = 5; DELETE FROM parts WHERE k = 12; INSERT INTO parts VALUES (200, 19, 'w')",
    );
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
}

/// The address on which the program listens.
pub(super) fn address(running: &Running) -> String {
    let mut found = None;
    wait_until(PATIENCE, || {
        let said = running.said();
        found = said.lines().find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
        found.is_some()
    });
    found.unwrap_or_else(|| panic!("it does not listen: {}", running.said()))
}

#[test]
fn a_full_step_log_holds_the_slot_until_its_connector_goes_on_or_wal_is_limited() {
    const TEST: &str = "a_full_step_log_holds_the_slot_until_its_connector_goes_on_or_wal_is_limited";
    let Some(server) = Postgres::find(TEST) else { return };
    server.sql(ORDERS);
    let site = Site::new(&server, &[("orders", "orders")], "");
    let limited = fs::read_to_string(site.path("cutover.toml")).unwrap();
    let limited = limited.replace("\ntable =", "\nstep_log = { max_bytes = \"1MiB\" }\ntable =");
    let limited = limited.replace("\nurl =", "\nmax_wal = \"16MiB\"\nurl =");
    fs::write(site.path("cutover.toml"), limited).unwrap();
    let mut running = site.start();
    let url = address(&running);
    site.catch_up(&server, &running);
    let views = || {
        // Looking costs more than waiting.
        std::thread::park_timeout(Duration::from_millis(100));
        site.run(&["status", "--url", &url, "-o", "json"]).stdout
    };
    let fill = |from: u64, text: &str| {
        for round in 0..12 {
            let from = from + round * 1000;
            server.sql(&format!(
                "INSERT INTO orders SELECT i, {round}, (SELECT string_agg(md5({text} || i || g), '') FROM generate_series(1, 10) g)
                FROM generate_series({from}, {from} + 499) i"
            ));
        }
    };
    site.run(&["pause", "p/orders/lake", "--url", &url]).ended(0, 0);
    fill(10_000, "'a'");
    assert!(wait_until(PATIENCE, || views().contains("\"is_full\":true")), "{}", views());
    site.run(&["resume", "p/orders/lake", "--url", &url]).ended(0, 0);
    site.catch_up(&server, &running);
    assert!(wait_until(PATIENCE, || views().contains("\"is_full\":false")), "{}", views());
    assert_eq!(site.generation("orders"), 1);
    // The slot may make the server keep only so much.
    site.run(&["pause", "p/orders/lake", "--url", &url]).ended(0, 0);
    fill(100_000, "'b'");
    server.sql("CREATE TABLE other AS SELECT repeat('y', 1000) FROM generate_series(1, 30000) i");
    let is_dropped = || server.sql("SELECT count(*) FROM pg_replication_slots") == "0";
    assert!(wait_until(PATIENCE, is_dropped), "{}", running.said());
    assert!(wait_until(PATIENCE, || views().contains("max_wal is 16777216")), "{}", views());
    site.run(&["resume", "p/orders/lake", "--url", &url]).ended(0, 0);
    assert!(wait_until(PATIENCE, || views().contains("continuity_lost")), "{}", views());
    site.run(&["reset", "p/orders/lake", "--url", &url, "--yes", "--wait"]).ended(0, 0);
    server.sql("INSERT INTO orders VALUES (999999, 1, 'the last')");
    site.catch_up(&server, &running);
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}", running.said());
}
