//! What keeps a database from being followed, and the statements that repair it.

use serde_json::{Value, json};

use super::server::Postgres;
use super::site::Site;
use crate::program::{PATIENCE, wait_until};

/// What a command found, of a severity.
fn found(site: &Site, command: &str, code: i32) -> Vec<Value> {
    let ran = site.run(&[command, "-o", "json"]).ended(code, 0);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["schema"], json!(format!("cutover.{command}/1")));
    document["findings"].as_array().unwrap().clone()
}

fn errors(found: &[Value]) -> Vec<&Value> {
    found.iter().filter(|finding| finding["severity"] == "error").collect()
}

fn says(found: &[Value], severity: &str, place: &str, said: &str, remedy: &str) {
    let text = |finding: &Value, member: &str| finding[member].as_str().unwrap_or_default().to_owned();
    let is_it = |finding: &&Value| {
        finding["severity"] == severity
            && text(finding, "place").contains(place)
            && text(finding, "said").contains(said)
            && text(finding, "remedy").contains(remedy)
    };
    assert!(found.iter().any(|finding| is_it(&finding)), "{severity} {place} {said} {remedy}: {found:#?}");
}

#[test]
fn each_statement_that_check_gives_repairs_what_it_found() {
    let Some(server) = Postgres::find("each_statement_that_check_gives_repairs_what_it_found") else { return };
    server.sql(
        "CREATE ROLE weak LOGIN; CREATE SCHEMA inner_; CREATE TABLE inner_.a (id int PRIMARY KEY, v text);
        CREATE TABLE b (x int, y int); CREATE UNLOGGED TABLE c (id int PRIMARY KEY); CREATE VIEW d AS SELECT 1 AS one;
        CREATE TABLE e (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE e_1 PARTITION OF e FOR VALUES FROM (0) TO (9);
        ALTER TABLE e_1 REPLICA IDENTITY NOTHING; CREATE TABLE f (id int PRIMARY KEY); ALTER TABLE f ENABLE ROW LEVEL SECURITY;
        CREATE PUBLICATION cutover_p FOR TABLE b WITH (publish = 'insert')",
    );
    let url = server.url();
    let weak = format!("postgres://weak@{}", url.split_once('@').unwrap().1);
    let views = [("a", "inner_.a"), ("b", "b"), ("c", "c"), ("e", "e"), ("f", "f")];
    let site = Site::new(&server, &views, "");
    site.configure(&weak, "");
    let first = found(&site, "check", 5);
    says(
        &first,
        "error",
        "cutover.toml:6:1: pipelines.p.source.postgres.url",
        "no right to replicate",
        "ALTER ROLE \"weak\" REPLICATION;",
    );
    says(
        &first,
        "error",
        "pipelines.p.views.a.table",
        "no right to the schema",
        "GRANT USAGE ON SCHEMA \"inner_\" TO \"weak\";",
    );
    says(
        &first,
        "error",
        "pipelines.p.views.a.table",
        "may not read",
        "GRANT SELECT ON TABLE \"inner_\".\"a\" TO \"weak\";",
    );
    says(&first, "error", "pipelines.p.views.b.table", "no key", "ALTER TABLE \"public\".\"b\" REPLICA IDENTITY FULL;");
    says(&first, "error", "pipelines.p.views.c.table", "unlogged", "ALTER TABLE \"public\".\"c\" SET LOGGED");
    says(
        &first,
        "error",
        "pipelines.p.views.e.table",
        "public.e_1",
        "ALTER TABLE \"public\".\"e_1\" REPLICA IDENTITY FULL;",
    );
    says(&first, "error", "pipelines.p.views.f.table", "row security", "ALTER ROLE \"weak\" BYPASSRLS;");
    says(&first, "warning", "pipelines.p.source.postgres.max_wal", "disk fills", "max_wal");
    let mut rounds = 0;
    loop {
        let ran = site.run(&["check", "-o", "json"]);
        let document: Value = serde_json::from_str(&ran.stdout).unwrap();
        let all = document["findings"].as_array().unwrap().clone();
        let wrong = errors(&all);
        assert_eq!(document["errors"], wrong.len());
        if wrong.is_empty() {
            assert_eq!(ran.code, Some(0));
            break;
        }
        rounds += 1;
        assert!(rounds < 5, "{wrong:#?}");
        wrong.iter().for_each(|finding| _ = server.sql(finding["remedy"].as_str().unwrap()));
    }
    site.run(&["run", "--once"]).ended(0, 0);
    site.check(&server);
    // A view has no statement.
    let site = Site::new(&server, &[("d", "d")], "");
    says(&found(&site, "check", 5), "error", "views.d.table", "is a view", "name the tables below it");
}

#[test]
fn what_a_server_lacks_and_what_was_left_on_it_is_said() {
    let Some(mut server) = Postgres::find("what_a_server_lacks_and_what_was_left_on_it_is_said") else { return };
    server.sql("CREATE TABLE t (id int PRIMARY KEY); SELECT pg_create_logical_replication_slot('old', 'pgoutput')");
    let site = Site::new(&server, &[("t", "t")], "");
    let before = found(&site, "check", 0);
    says(
        &before,
        "warning",
        "postgres.slot",
        "nobody reads the replication slot \"old\"",
        "SELECT pg_drop_replication_slot('old');",
    );
    says(&before, "note", "postgres.publication", "the first run adds what is missing", "");
    server.sql("SELECT pg_drop_replication_slot('old')");
    site.run(&["run", "--once"]).ended(0, 0);
    assert_eq!(errors(&found(&site, "doctor", 0)).len(), 0);
    let running = site.start();
    assert!(wait_until(PATIENCE, || running.said().contains("following")));
    let followed = found(&site, "doctor", 0);
    says(&followed, "note", "server.data_dir", "a cutover that runs holds", "");
    says(&followed, "note", "postgres.slot", "was read up to", "");
    says(&followed, "note", "connectors.lake.delta.uri", "is at generation 1", "");
    drop(running);
    // The server notices in a moment that nobody reads it.
    let is_dropped = || server.try_sql("SELECT pg_drop_replication_slot('cutover_p')").code == Some(0);
    assert!(wait_until(PATIENCE, is_dropped));
    says(&found(&site, "check", 3), "error", "postgres.slot", "is gone, and it was read up to", "reset its connectors");
    server.configure("wal_level = replica\nmax_wal_senders = 1\n");
    server.stop();
    server.start();
    let replica = found(&site, "check", 78);
    says(&replica, "error", "postgres.url", "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical';");
    says(&replica, "error", "postgres.slot", "max_wal_senders is 1", "ALTER SYSTEM SET max_wal_senders = ");
    server.stop();
    says(&found(&site, "check", 75), "error", "postgres.url", "connecting failed", "see that the server runs");
    assert_eq!(errors(&site_offline(&site)).len(), 0);
}

fn site_offline(site: &Site) -> Vec<Value> {
    let ran = site.run(&["check", "--offline", "-o", "json"]).ended(0, 0);
    serde_json::from_str::<Value>(&ran.stdout).unwrap()["findings"].as_array().unwrap().clone()
}
