//! Which tables are taken, by which key, and which are refused with what helps.

use tempfile::TempDir;

use super::server::Postgres;
use super::types::{compare, configure, cutover, view};
use crate::program::Readers;

#[test]
fn a_table_is_known_by_its_key_whatever_it_is_called_and_wherever_its_rows_are() {
    const TEST: &str = "a_table_is_known_by_its_key_whatever_it_is_called_and_wherever_its_rows_are";
    let (Some(server), Some(readers)) = (Postgres::find(TEST), Readers::find(TEST)) else { return };
    let home = TempDir::new().unwrap();
    server.sql(
        r#"CREATE SCHEMA "Od""d; DROP";
        CREATE TABLE "Od""d; DROP"."T.able" (id int PRIMARY KEY, "Käse.x" text, "select" int);
        INSERT INTO "Od""d; DROP"."T.able" VALUES (1, 'a', 1), (2, 'b', 2);
        -- A partition with its columns in another order, and one below another.
        CREATE TABLE parts (id int, day date, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
        CREATE TABLE parts_2023 PARTITION OF parts FOR VALUES FROM ('2023-01-01') TO ('2024-01-01');
        CREATE TABLE parts_2024 (v text, gone int, day date NOT NULL, id int NOT NULL);
        ALTER TABLE parts_2024 DROP COLUMN gone;
        ALTER TABLE parts ATTACH PARTITION parts_2024 FOR VALUES FROM ('2024-01-01') TO ('2025-01-01');
        CREATE TABLE parts_2025 PARTITION OF parts FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')
            PARTITION BY RANGE (id);
        CREATE TABLE parts_2025_all PARTITION OF parts_2025 DEFAULT;
        INSERT INTO parts SELECT i, date '2023-01-01' + i * 10, 'v' || i FROM generate_series(0, 99) i;
        -- Not by its primary key, and with a column that is not published.
        CREATE TABLE other (a int PRIMARY KEY, id int NOT NULL, twice int GENERATED ALWAYS AS (a * 2) STORED, v text);
        CREATE UNIQUE INDEX other_id ON other (id) INCLUDE (v);
        ALTER TABLE other REPLICA IDENTITY USING INDEX other_id;
        INSERT INTO other (a, id, v) SELECT i, 100 - i, 'v' || i FROM generate_series(1, 9) i;"#,
    );
    let tables = [
        ("odd", "id", r#"'"Od""d; DROP"."T.able"'"#, r#"SELECT * FROM "Od""d; DROP"."T.able""#),
        ("parts", "id, day", "'public.parts'", "SELECT * FROM public.parts"),
        ("other", "id", "'other'", "SELECT a, id, v FROM public.other"),
    ];
    let views: String = tables.iter().map(|(name, _, table, _)| view(name, &format!("table = {table}"))).collect();
    configure(home.path(), &server.url(), &views);
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    server.sql(
        r#"UPDATE "Od""d; DROP"."T.able" SET id = 3, "select" = NULL WHERE id = 1;
        INSERT INTO "Od""d; DROP"."T.able" VALUES (1, 'again', 4);
        INSERT INTO parts VALUES (200, '2024-05-05', 'new'), (201, '2025-05-05', 'new');
        UPDATE parts SET v = 'other' WHERE id % 7 = 0;
        -- From one partition to another.
        UPDATE parts SET day = '2025-12-31' WHERE id = 3;
        DELETE FROM parts WHERE id % 10 = 9;
        UPDATE other SET a = a + 100, v = 'moved' WHERE id = 95;
        DELETE FROM other WHERE a = 1;"#,
    );
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    for (name, key, _, rows) in tables {
        compare(home.path(), &server, &readers, (name, key), rows, &[]);
    }
}

#[test]
fn who_may_not_publish_gets_one_statement_for_all_tables() {
    const TEST: &str = "who_may_not_publish_gets_one_statement_for_all_tables";
    let Some(server) = Postgres::find(TEST) else { return };
    server.sql(
        "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE ROLE plain LOGIN REPLICATION;
        GRANT SELECT ON a, b TO plain",
    );
    let home = TempDir::new().unwrap();
    let views = format!("{}{}", view("a", "table = \"a\""), view("b", "table = \"b\""));
    configure(home.path(), &server.url_of("plain"), &views);
    let ran = cutover(home.path(), &["run", "--once"]).ended(5, 0);
    let statement = "CREATE PUBLICATION \"cutover_p\" FOR TABLE \"public\".\"a\", \"public\".\"b\" WITH (publish_via_partition_root = true)";
    assert!(ran.stderr.contains(statement), "{}", ran.stderr);
    server.sql(statement);
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
}

#[test]
fn a_table_that_cannot_be_followed_is_refused_with_what_helps() {
    const TEST: &str = "a_table_that_cannot_be_followed_is_refused_with_what_helps";
    let Some(server) = Postgres::find(TEST) else { return };
    server.sql(
        "CREATE TABLE good (id int PRIMARY KEY, email text NOT NULL UNIQUE, n numeric, f float8);
        CREATE TABLE keyless (a int);
        CREATE TABLE late (a int PRIMARY KEY DEFERRABLE);
        CREATE TABLE nothing (a int PRIMARY KEY);
        ALTER TABLE nothing REPLICA IDENTITY NOTHING;
        CREATE UNLOGGED TABLE unlogged (a int PRIMARY KEY);
        CREATE TABLE parent (a int PRIMARY KEY);
        CREATE TABLE child (b int) INHERITS (parent);
        CREATE VIEW shown AS SELECT * FROM good;
        CREATE TABLE spaced (a int PRIMARY KEY, \"b c\" int);
        CREATE TABLE floating (a float8 PRIMARY KEY);",
    );
    for (table, more, code, said) in [
        ("nope", "", 78, "there is no table public.nope"),
        ("a.b.c", "", 78, "\"a.b.c\" is not valid; it has more than two parts"),
        ("keyless", "", 5, "ALTER TABLE \"public\".\"keyless\" REPLICA IDENTITY FULL"),
        ("late", "", 5, "public.late has no key"),
        ("nothing", "", 5, "public.nothing does not tell its key (a) of rows that are deleted"),
        ("unlogged", "", 5, "public.unlogged is temporary or unlogged"),
        ("parent", "", 5, "public.parent has tables that inherit from it"),
        ("shown", "", 5, "public.shown is a view"),
        ("pg_catalog.pg_class", "", 5, "is a catalog of the server's own"),
        ("spaced", "", 5, "the column name \"b c\""),
        ("floating", "", 5, "the key column \"a\" has the type Float64"),
        ("good", "key = [\"email\"]", 5, "does not tell its key (email) of rows that are deleted"),
        ("good", "key = [\"f\"]", 5, "nothing says that no two rows have the same (f)"),
        ("good", "columns = { nope = \"string\" }", 78, "columns names the column \"nope\""),
        ("good", "columns = { f = \"int\" }", 78, "the column \"f\" is float8 in PostgreSQL"),
    ] {
        let home = TempDir::new().unwrap();
        configure(home.path(), &server.url(), &view("v", &format!("table = {table:?}\n{more}")));
        let ran = cutover(home.path(), &["run", "--once"]);
        assert!(ran.stderr.contains(said), "{table} {more}: {}", ran.stderr);
        ran.ended(code, 0);
        assert!(!home.path().join("table-v/_delta_log").exists(), "{table}");
        // What is refused leaves nothing behind that keeps WAL.
        assert_eq!(server.sql("SELECT count(*) FROM pg_replication_slots"), "0", "{table} {more}");
    }
}
