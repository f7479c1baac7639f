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
    // Rows of a table that inherits from it are no rows of the view, and a query would show them.
    let before = site.stamps("t").len();
    server.sql("CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (900, 9); INSERT INTO t VALUES (20, 20)");
    let ran = site.run(&["run", "--once"]).ended(5, 0);
    assert!(ran.stderr.contains("has tables that inherit from it"), "{}", ran.stderr);
    assert_eq!(site.stamps("t").len(), before);
    goes_on(&server, &site, "t", "DROP TABLE child; DELETE FROM t WHERE id = 20");
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
fn what_changes_nothing_is_not_taken_for_a_loss() {
    let Some(server) = Postgres::find("what_changes_nothing_is_not_taken_for_a_loss") else { return };
    server.sql(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TYPE pair AS (a int, b text);
        CREATE TABLE t (id int PRIMARY KEY, v int, w varchar(10), m mood, p pair,
            twice int GENERATED ALWAYS AS (v * 2) STORED);
        INSERT INTO t SELECT i, i, 'w' || i, 'glad', row(i, 'x'::text)::pair FROM generate_series(1, 99) i;
        CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
        CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
        CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (100) TO (200);
        INSERT INTO parts SELECT i, 'v' FROM generate_series(50, 150) i",
    );
    let mut site = Site::new(&server, &[("t", "t"), ("parts", "parts")], "");
    site.compare_with("t", "SELECT id, v, w, m, p::text FROM t");
    site.run(&["run", "--once"]).ended(0, 0);
    for harmless in [
        "ANALYZE t; VACUUM t; CREATE INDEX ON t (w); GRANT SELECT ON t TO PUBLIC; COMMENT ON TABLE t IS 'c';
        ALTER TABLE t SET (fillfactor = 90); ALTER TABLE t OWNER TO CURRENT_USER",
        "VACUUM FULL t; ALTER TABLE t ALTER v SET DEFAULT 7; ALTER TABLE t ALTER v SET STATISTICS 9; GRANT SELECT ON parts_1 TO PUBLIC",
        "CLUSTER t USING t_pkey; ALTER TABLE t ALTER v SET NOT NULL; REINDEX TABLE t; VACUUM FULL parts_2",
        "ALTER TABLE t ALTER w TYPE text; ALTER TABLE t ADD CHECK (v > -9)",
        "ALTER TYPE mood ADD VALUE 'calm' BEFORE 'sad'; ALTER TYPE pair RENAME ATTRIBUTE b TO c; ALTER TYPE mood RENAME TO moods",
        "CREATE TABLE child () INHERITS (t); INSERT INTO child (id, v) VALUES (900, 9); DROP TABLE child",
        "CREATE TABLE parts_3 PARTITION OF parts FOR VALUES FROM (200) TO (300); VACUUM FULL parts_1; INSERT INTO parts VALUES (201, 'w')",
        "BEGIN; CREATE TABLE parts_4 (LIKE parts INCLUDING ALL);
        ALTER TABLE parts ATTACH PARTITION parts_4 FOR VALUES FROM (300) TO (400); INSERT INTO parts VALUES (301, 'w'); COMMIT",
    ] {
        let more = "; UPDATE t SET v = v + 1 WHERE id % 9 = 0; DELETE FROM parts WHERE id % 7 = 0; INSERT INTO parts VALUES (7, 'n')";
        goes_on(&server, &site, "t", &format!("{harmless}{more}"));
        assert_eq!(site.generation("parts"), 1, "{harmless}");
    }
}

#[test]
fn a_type_that_is_altered_is_seen_wherever_values_have_it() {
    let Some(server) = Postgres::find("a_type_that_is_altered_is_seen_wherever_values_have_it") else { return };
    server.sql(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE DOMAIN moods AS mood[];
        CREATE TYPE pair AS (a int, m moods); CREATE TYPE span AS RANGE (SUBTYPE = mood);
        CREATE TABLE t (id int PRIMARY KEY, p pair[], s span);
        INSERT INTO t VALUES (1, ARRAY[ROW(1, '{glad}')::pair], '[glad,sad]'), (2, NULL, NULL)",
    );
    let mut site = Site::new(&server, &[("t", "t")], "");
    let texts = "CASE WHEN p IS NOT NULL THEN ARRAY(SELECT x::text FROM unnest(p) x) END p";
    site.compare_with("t", &format!("SELECT id, {texts}, s::text FROM t"));
    site.run(&["run", "--once"]).ended(0, 0);
    for (alter, name) in [
        ("ALTER TYPE pair ADD ATTRIBUTE more int", "pair"),
        ("ALTER TYPE pair DROP ATTRIBUTE more", "pair"),
        ("ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'", "mood"),
    ] {
        let statement = format!("{alter}; INSERT INTO t SELECT max(id) + 1, NULL, NULL FROM t");
        is_lost(&server, &site, "t", &statement, &format!("the type {name} was altered"));
    }
}

#[test]
fn values_that_are_others_in_columns_that_look_the_same_are_never_overlooked() {
    const TEST: &str = "values_that_are_others_in_columns_that_look_the_same_are_never_overlooked";
    let Some(server) = Postgres::find(TEST) else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, a cidr);
        INSERT INTO t VALUES (1, 'long text', '10.0.0.1/32'), (2, NULL, NULL)",
    );
    let site = Site::new(&server, &[("t", "t")], "schema_change = \"add_columns\"");
    site.run(&["run", "--once"]).ended(0, 0);
    let insert = "INSERT INTO t (id) SELECT max(id) + 1 FROM t";
    let cut = format!("ALTER TABLE t ALTER v TYPE varchar(4) USING left(v, 4); {insert}");
    is_lost(&server, &site, "t", &cut, "its rows were written anew by ALTER TABLE");
    let again = format!("ALTER TABLE t DROP v; ALTER TABLE t ADD v varchar(9); {insert}");
    is_lost(&server, &site, "t", &again, "a column of it was dropped and made again");
    // Nothing is written anew, and the text is another.
    is_lost(
        &server,
        &site,
        "t",
        &format!("ALTER TABLE t ALTER a TYPE inet; {insert}"),
        "the column \"a\" of it has another type",
    );
    // Rows of before have values, and the catalogs do not say so any more.
    for (column, made) in [("u", "uuid DEFAULT gen_random_uuid()"), ("n", "int DEFAULT 7")] {
        let (generation, before) = (site.generation("t"), site.stamps("t").len());
        server.sql(&format!(
            "ALTER TABLE t ADD {column} {made}; ALTER TABLE t ALTER {column} DROP DEFAULT; VACUUM FULL t; {insert}"
        ));
        let ran = site.run(&["run", "--once"]).ended(5, 0);
        assert!(ran.stderr.contains(&format!("{column:?}")), "{}", ran.stderr);
        assert_eq!((site.generation("t"), site.stamps("t").len()), (generation, before));
        site.reset("t").ended(0, 0);
        site.check(&server);
    }
}

#[test]
fn a_table_that_was_unlogged_for_a_while_is_known() {
    let Some(server) = Postgres::find("a_table_that_was_unlogged_for_a_while_is_known") else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i;
        CREATE PUBLICATION cutover_p FOR ALL TABLES WITH (publish_via_partition_root = true)",
    );
    let site = Site::new(&server, &[("t", "t")], "");
    site.run(&["run", "--once"]).ended(0, 0);
    let unlogged =
        "ALTER TABLE t SET UNLOGGED; UPDATE t SET v = v + 1; ALTER TABLE t SET LOGGED; INSERT INTO t VALUES (10, 10)";
    is_lost(&server, &site, "t", unlogged, "emptied or rewritten by itself");
    server.sql("TRUNCATE t; INSERT INTO t VALUES (1, 1)");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("t"), 3);
}

#[test]
fn rows_that_are_hidden_from_the_role_are_not_left_out() {
    let Some(server) = Postgres::find("rows_that_are_hidden_from_the_role_are_not_left_out") else { return };
    server.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, i FROM generate_series(1, 9) i;
        CREATE ROLE plain LOGIN REPLICATION; GRANT SELECT ON t TO plain; CREATE PUBLICATION cutover_p FOR TABLE t;
        ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON t USING (id < 5)",
    );
    let site = Site::new(&server, &[("t", "t")], "");
    site.configure(&server.url_of("plain"), "");
    let ran = site.run(&["run", "--once"]).ended(5, 0);
    assert!(ran.stderr.contains("use ALTER ROLE \"plain\" BYPASSRLS"), "{}", ran.stderr);
    server.sql("ALTER ROLE plain BYPASSRLS");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    // What is followed goes on, and a snapshot is refused again.
    server.sql("ALTER ROLE plain NOBYPASSRLS; INSERT INTO t VALUES (10, 10)");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert!(site.reset("t").stderr.contains("row-level security hides rows"));
    site.check(&server);
}

#[test]
fn nothing_is_stored_that_follows_what_is_not_told() {
    let Some(server) = Postgres::find("nothing_is_stored_that_follows_what_is_not_told") else { return };
    server.sql(
        "CREATE TYPE mood AS ENUM ('glad', 'sad'); CREATE TABLE t (id int PRIMARY KEY, m mood);
        INSERT INTO t SELECT i, 'glad' FROM generate_series(1, 9) i;
        CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1)",
    );
    let site = Site::new(&server, &[("other", "other"), ("t", "t")], "");
    for (statement, said) in [
        ("ALTER TYPE mood RENAME VALUE 'glad' TO 'happy'", "the type mood was altered"),
        (
            "ALTER PUBLICATION cutover_p DROP TABLE t; UPDATE t SET m = 'sad'; ALTER PUBLICATION cutover_p ADD TABLE t",
            // By another entry than before; in between, by none.
            "is in the publication by ",
        ),
        ("ALTER PUBLICATION cutover_p DROP TABLE t; UPDATE t SET m = NULL", "is in the publication by no entry"),
    ] {
        let mut running = site.start();
        site.catch_up(&server, &running);
        let before = site.state("t");
        server.sql(&format!("{statement}; INSERT INTO t SELECT max(id) + 1, 'sad' FROM t; INSERT INTO other SELECT max(id) + 1 FROM other"));
        assert!(wait_until(PATIENCE, || running.said().contains(said)), "{statement}: {}", running.said());
        // The other table goes on.
        let is_there = || site.state("other").len() == server.sql("SELECT * FROM other").lines().count();
        assert!(wait_until(PATIENCE, is_there), "{statement}: {}", running.said());
        assert_eq!(site.state("t"), before, "{statement}");
        running.signal("TERM");
        running.code();
        site.reset("t").ended(0, 0);
        site.check(&server);
    }
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
    is_lost(&server, &site, "t", "TRUNCATE t_4", "emptied or rewritten by itself");
    let attached = "ALTER TABLE t ATTACH PARTITION t_3 FOR VALUES FROM (200) TO (300)";
    is_lost(&server, &site, "t", attached, "a table was attached to it as a partition");
    is_lost(&server, &site, "t", "ALTER TABLE t DETACH PARTITION t_2", "a partition of it was detached or dropped");
    is_lost(&server, &site, "t", "DROP TABLE t_1", "a partition of it was detached or dropped");
    let loaded = "BEGIN; CREATE TABLE t_5 (LIKE t INCLUDING ALL); INSERT INTO t_5 VALUES (400, 'e');
        ALTER TABLE t ATTACH PARTITION t_5 FOR VALUES FROM (400) TO (500); COMMIT; INSERT INTO t VALUES (401, 'f')";
    is_lost(&server, &site, "t", loaded, "a table with rows was attached to it as a partition");
    let all = "TRUNCATE t_3, t_4, t_5; INSERT INTO t VALUES (201, 'g')";
    is_lost(&server, &site, "t", all, "emptied or rewritten by itself");
    // What is told is a load of an empty table.
    let generation = site.generation("t");
    server.sql("TRUNCATE t; GRANT SELECT ON t_3 TO PUBLIC; INSERT INTO t VALUES (202, 'h')");
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    assert_eq!(site.generation("t"), generation + 1);
}
