//! A table held against the one of the server: what is equal is proved, and what is not is named.

use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use cutover::inspect::against::{Bounds, Likeness, compare};
use cutover::log::Log;
use cutover::source::postgres::Original;
use cutover::{Access, Location, World};
use serde_json::{Value, json};

use super::server::Postgres;
use super::site::Site;
use crate::program::{PATIENCE, Ran};

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
    site.run(&["run", "--once"]).ended(0, 0);
    let running = site.start();
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

/// Writes that end with it, so that the server's log does not stand still.
struct Noise(Child);

impl Noise {
    fn begin(server: &Postgres) -> Self {
        server.sql("CREATE TABLE noise (i int)");
        let mut client = server.psql();
        client.arg("-c").arg(
            "DO $$ BEGIN FOR i IN 1..100000 LOOP INSERT INTO noise VALUES (i); COMMIT; PERFORM pg_sleep(0.05); END LOOP; END $$",
        );
        Self(client.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn rows_that_differ_from_the_original_are_named() {
    let Some(server) = Postgres::find("rows_that_differ_from_the_original_are_named") else { return };
    server.sql(TABLES);
    server.sql(
        "CREATE TABLE u AS SELECT * FROM t; UPDATE u SET note = 'other' WHERE id = 7; DELETE FROM u WHERE id = 8;
        INSERT INTO u VALUES (-1, 0, NULL, NULL); CREATE TABLE same AS SELECT * FROM t;
        CREATE TABLE doubled AS SELECT * FROM bag; INSERT INTO doubled VALUES (3, 'x1'), (NULL, NULL);
        CREATE TABLE wider AS SELECT *, 1 AS more FROM t; CREATE DATABASE elsewhere",
    );
    let site = Site::new(&server, &[("t", "t"), ("bag", "bag")], "heartbeat = \"50ms\"");
    std::fs::write(site.path("url"), server.url()).unwrap();
    std::fs::write(site.path("elsewhere"), server.url().replace("/postgres", "/elsewhere")).unwrap();
    site.run(&["run", "--once"]).ended(0, 0);
    let running = site.start();
    let noise = Noise::begin(&server);
    let against = |view: &str, url: &str, table: &str, code: i32| {
        let source = format!("${{file:{url}}}");
        let args = ["verify", view, "--against", &source, "--table", table, "-o", "json"];
        let ran = site.run(&args).ended(code, 1);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["against"].clone()
    };
    assert_eq!(against("t", "url", "same", 0)["rows"], 3000);
    let found = against("t", "url", "public.u", 3);
    assert_eq!(found["verdict"], "different");
    let named = json!([
        {"kind": "missing", "row": {"id": -1}},
        {"kind": "extra", "row": {"id": 8}},
        {"kind": "changed", "row": {"id": 7}},
    ]);
    assert_eq!(found["differences"], json!({"missing": 1, "extra": 1, "changed": 1, "named": named}));
    assert!(found["table_step"] == found["step"], "{found}");
    let doubled = against("bag", "url", "doubled", 3);
    assert_eq!(doubled["differences"]["missing"], 2, "{doubled}");
    assert_eq!(doubled["differences"]["extra"], 0, "{doubled}");
    assert_eq!((&doubled["rows"], &doubled["table_rows"]), (&json!(52), &json!(50)));
    // In parts, as a table of many keys is.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let in_parts = runtime.block_on(async {
        let world = World::system();
        let location = Location::open(site.path("t").to_str().unwrap(), Access::Read).unwrap();
        let original = Original::new(&server.url(), "u", &world).unwrap();
        let bounds = Bounds { patience: PATIENCE, keys: 250 };
        compare(&Log::new(location, world.clone()), &original, bounds, &world, |_, _| {}).await.unwrap()
    });
    let Likeness::Different(differences) = in_parts.likeness else { panic!("{in_parts:?}") };
    assert_eq!((differences.missing, differences.extra, differences.changed), (1, 1, 1));
    let rows: Vec<&str> = differences.named.iter().map(|difference| difference.row.as_str()).collect();
    assert_eq!(rows, ["{\"id\":-1}", "{\"id\":8}", "{\"id\":7}"]);
    let wider = against("t", "url", "wider", 3);
    assert!(wider["reason"].as_str().unwrap().contains("only the server has \"more\""), "{wider}");
    let elsewhere = against("t", "elsewhere", "t", 3);
    assert!(elsewhere["reason"].as_str().unwrap().contains("another server, timeline or database"), "{elsewhere}");
    // Nobody delivers any more, so what is missing may be on its way.
    drop((running, noise));
    server.sql("INSERT INTO t SELECT i, i, NULL, NULL FROM generate_series(5001, 5030) i");
    let (ran, late) = held(&site, "t", &["--timeout", "300ms"]);
    assert_eq!((ran.code, &late["verdict"]), (Some(4), &json!("inconclusive")), "{}", ran.stderr);
    assert!(ran.stderr.contains("waiting up to"), "{}", ran.stderr);
    assert_eq!(late["differences"]["missing"], 30);
    assert_eq!(late["differences"]["named"].as_array().unwrap().len(), 20);
    let text = site.run(&["verify", "t", "--against", "t/lake", "--timeout", "300ms"]).ended(4, 1);
    assert!(text.stdout.contains("    and 10 more"), "{}", text.stdout);
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(held(&site, "t", &[]).0.code, Some(0));
    for (args, code, said) in [
        (vec!["--against", "files/lake"], 78, "no connector is called"),
        (vec!["--against", "mysql://x:CANARY@h/d"], 78, "another source than a PostgreSQL database"),
        (vec!["--against", "postgres://x:CANARY@h/d"], 78, "say by --table"),
        (vec!["--against", "${env:CUTOVER_NOT_THERE}", "--table", "t"], 78, "CUTOVER_NOT_THERE is not set"),
        (vec!["--against", "t/lake", "--table", "nowhere"], 78, "nowhere"),
    ] {
        let ran = site.run(&[&["verify", "t"], args.as_slice()].concat());
        assert!(ran.stderr.contains(said) && !ran.stderr.contains("CANARY"), "{args:?}: {}", ran.stderr);
        ran.ended(code, 0);
    }
}
