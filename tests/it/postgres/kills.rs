//! The program, its connection and the server are ended at any moment: rows are exact.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use super::server::Postgres;
use super::site::Site;
use crate::program::{Chance, PATIENCE, Running, size, wait_until};

/// Writes in three tables, in transactions of any size, until its input ends.
const WRITES: &str = "
DO $$
DECLARE n int := SEED;
BEGIN
    FOR round IN 1..ROUNDS LOOP
        INSERT INTO a SELECT g, 'r' || round FROM generate_series(n, n + round % 50) g ON CONFLICT (id) DO UPDATE SET v = excluded.v;
        DELETE FROM a WHERE id % 11 = round % 11;
        UPDATE a SET id = -id WHERE id = n;
        UPDATE b SET n = b.n + 1 WHERE id % 5 = round % 5;
        INSERT INTO c VALUES (round % 3, 'x');
        DELETE FROM c WHERE ctid = (SELECT min(ctid) FROM c WHERE k = (round + 1) % 3);
        n := n + 17;
        COMMIT;
    END LOOP;
END $$;
";

#[test]
fn rows_are_exact_whatever_is_killed() {
    const TEST: &str = "rows_are_exact_whatever_is_killed";
    let Some(mut server) = Postgres::find(TEST) else { return };
    let mut chance = Chance::new(TEST);
    server.sql(
        "CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, n int);
        INSERT INTO b SELECT i, 0 FROM generate_series(1, 50) i;
        CREATE TABLE c (k int, v text); ALTER TABLE c REPLICA IDENTITY FULL",
    );
    let site = Site::new(&server, &[("a", "a"), ("b", "b"), ("c", "c")], "");
    let mut running = site.start();
    for round in 0..size("CUTOVER_POSTGRES_KILLS", 4) {
        let writes = WRITES
            .replace("SEED", &(round * 1000 + 1).to_string())
            .replace("ROUNDS", &(20 + chance.below(200)).to_string());
        let mut psql = server.psql();
        let mut writer = psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(writes.as_bytes()).unwrap();
        let moment = Duration::from_millis(chance.below(1500));
        wait_until(moment, || false);
        match chance.below(3) {
            0 => restarted(&site, &mut running),
            1 => {
                drop(server.try_sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cutover'",
                ))
            }
            _ => {
                server.kill();
                server.start();
            }
        }
        writer.wait().unwrap();
        if chance.one_in(4) {
            restarted(&site, &mut running);
        }
    }
    server.sql("INSERT INTO a VALUES (1000000, 'the last')");
    site.catch_up(&server, &running);
    running.signal("TERM");
    assert_eq!(running.code(), Some(0), "{}; seed {}", running.said(), chance.seed);
    site.check(&server);
    let resets = site.stamps("a").iter().filter(|stamp| stamp["kind"] == "reload").count();
    assert_eq!(resets, 1, "nothing was lost; seed {}", chance.seed);
    assert!(wait_until(PATIENCE, || server.sql("SELECT count(*) FROM pg_replication_slots") == "1"));
}

fn restarted(site: &Site, running: &mut Running) {
    running.kill();
    *running = site.start();
}
