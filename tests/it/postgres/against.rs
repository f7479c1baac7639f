//! A table held against the one of the server: what is equal is proved, and what is not is named.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use super::server::Postgres;
use super::site::Site;
use crate::program::Ran;

const TABLES: &str = "CREATE TABLE t (id int PRIMARY KEY, amount numeric(12,2), note text, at timestamptz);
    INSERT INTO t SELECT i, i * 1.25, 'note ' || i, '2026-01-01'::timestamptz + i * interval '1 second'
        FROM generate_series(1, 3000) i;
    CREATE TABLE bag (a int, b text); ALTER TABLE bag REPLICA IDENTITY FULL;
    INSERT INTO bag SELECT i % 7, 'x' || i % 3 FROM generate_series(1, 50) i";

fn held(site: &Site, view: &str, more: &[&str]) -> (Ran, Value) {
    let connector = format!("{view}/lake");
    let args = [&["verify", view, "--against", &connector, "-o", "json"], more].concat();
    let ran = site.run(&args);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    (ran, document["against"].clone())
}

#[test]
fn a_table_is_equal_to_its_original_while_that_is_written() {
    let Some(server) = Postgres::find("a_table_is_equal_to_its_original_while_that_is_written") else { return };
    server.sql(TABLES);
    let site = Site::new(&server, &[("t", "t"), ("bag", "bag")], "");
    let running = site.start();
    site.catch_up(&server, &running);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                server.sql(&format!(
                    "UPDATE t SET amount = amount + 1 WHERE id % 50 = {0}; DELETE FROM t WHERE id = {round};
                    INSERT INTO t VALUES (10000 + {round}, NULL, NULL, NULL);
                    INSERT INTO bag VALUES (1, 'x1'), (NULL, NULL); DELETE FROM bag WHERE a = {1}",
                    round % 50,
                    round % 7
                ));
            }
        });
        for view in ["t", "bag", "t"] {
            let (ran, against) = held(&site, view, &[]);
            is_over.store(ran.code != Some(0), Ordering::Relaxed);
            assert_eq!(ran.code, Some(0), "{}{}{}", ran.stdout, ran.stderr, running.said());
            assert_eq!(against["verdict"], "equal");
            assert_eq!(against["digest"], against["table_digest"]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
