//! Every type at its edges: what PostgreSQL prints against what DuckDB reads from the table.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::server::Postgres;
use crate::program::{Ran, Readers};

/// A column: its type, what DuckDB sees of it, and values.
struct Case(&'static str, &'static str, &'static [&'static str]);

const MOMENTS: &[&str] = &[
    "4713-01-01 00:00:00 BC",
    "0044-03-15 12:00:00 BC",
    "0001-12-31 23:59:59.999999 BC",
    "0001-01-01",
    "1582-10-10 10:10:10.1",
    "1969-12-31 23:59:59.999999",
    "1970-01-01",
    "2000-02-29 24:00:00",
    "9999-12-31 23:59:59.999999",
    "294246-12-31 23:59:59.999999",
];
const DATES: &[&str] =
    &["4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "1582-10-04", "1970-01-01", "9999-12-31", "5874897-12-31"];
const NUMBERS: &[&str] = &["0", "-1.5", "99999999.99", "-99999999.99", "0.01", "1e7"];
const LONG_NUMBERS: &[&str] = &[
    "0.00",
    "NaN",
    "Infinity",
    "-Infinity",
    "1e-100",
    "-12345678901234567890123456789012345678901234567890.000000000000000000000000000000000000000000000001",
    "1.10",
    "1.1",
];
const TEXTS: &[&str] = &["", " ", "NULL", "\\N", "a\tb\nc\r\"d',{}\\", "\u{1F980}\u{0301}", "\u{7f}\u{1}"];
const INTERVALS: &[&str] = &[
    "0",
    "-1 year -2 mons +3 days -04:05:06.789",
    "178000000 years",
    "1 mon -1 day 00:00:00.000001",
    "2562047:00:54.775807",
];

const CASES: &[Case] = &[
    Case("boolean", "BOOLEAN", &["true", "false"]),
    Case("smallint", "SMALLINT", &["-32768", "32767", "0"]),
    Case("integer", "INTEGER", &["-2147483648", "2147483647"]),
    Case("bigint", "BIGINT", &["-9223372036854775808", "9223372036854775807"]),
    Case("oid", "BIGINT", &["0", "4294967295"]),
    Case("xid", "BIGINT", &["4294967295"]),
    Case("xid8", "VARCHAR", &["18446744073709551615"]),
    Case("real", "FLOAT", &["0", "-0", "1e-45", "3.4028235e38", "NaN", "Infinity", "-Infinity", "0.1", "16777217"]),
    Case(
        "double precision",
        "DOUBLE",
        &["-0", "5e-324", "1.7976931348623157e308", "NaN", "Infinity", "-Infinity", "0.1"],
    ),
    Case("numeric(10,2)", "DECIMAL(10,2)", NUMBERS),
    Case("numeric(38,0)", "DECIMAL(38,0)", &["99999999999999999999999999999999999999", "-1"]),
    Case("numeric(38,38)", "DECIMAL(38,38)", &["0.99999999999999999999999999999999999999", "-1e-38", "0"]),
    Case("numeric(5,-2)", "DECIMAL(7,0)", &["9999900", "-149"]),
    Case("numeric(3,5)", "DECIMAL(5,5)", &["0.00999", "-0.00001"]),
    Case("numeric(39,2)", "VARCHAR", &["1234567890123456789012345678901234567.10", "NaN"]),
    Case("numeric", "VARCHAR", LONG_NUMBERS),
    Case("date", "DATE", DATES),
    Case("timestamp", "TIMESTAMP", MOMENTS),
    Case("timestamp(0)", "TIMESTAMP", &["2024-02-29 23:59:59.6"]),
    Case("timestamptz", "TIMESTAMP WITH TIME ZONE", MOMENTS),
    Case("timestamptz", "TIMESTAMP WITH TIME ZONE", &["2024-07-01 00:00:00+05:30", "1890-01-01 00:00:00 Europe/Paris"]),
    Case("time", "VARCHAR", &["00:00:00", "24:00:00", "23:59:59.999999", "12:30:00.1"]),
    Case("timetz", "VARCHAR", &["24:00:00-15:59:59", "12:34:56.7+05:30"]),
    Case("interval", "VARCHAR", INTERVALS),
    Case("uuid", "VARCHAR", &["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "00000000-0000-0000-0000-000000000000"]),
    Case("json", "VARCHAR", &["{\"a\" : 1.50,\n \"a\":2 }", "null", "\"\\u00e9\""]),
    Case("jsonb", "VARCHAR", &["{\"b\":[1,2.50,\"x\"],\"a\":null}", "1e400", "\"\\u0001\""]),
    Case("xml", "VARCHAR", &["<?xml version=\"1.0\"?><a>1</a>", "x"]),
    Case("text", "VARCHAR", TEXTS),
    Case("varchar(5)", "VARCHAR", &["", "abcde", "é    "]),
    Case("char(5)", "VARCHAR", &["", "ab", "abcde"]),
    Case("\"char\"", "VARCHAR", &["", "x"]),
    Case("name", "VARCHAR", &["public"]),
    Case("bytea", "BLOB", &["", "\\x00ff5c27", "\\x0a0d09"]),
    Case("bit(5)", "VARCHAR", &["10101"]),
    Case("varbit", "VARCHAR", &["", "101"]),
    Case("money", "VARCHAR", &["-1234.56", "92233720368547758.07"]),
    Case("inet", "VARCHAR", &["10.0.0.1", "10.0.0.0/8", "::ffff:1.2.3.4", "fe80::1/64"]),
    Case("cidr", "VARCHAR", &["10.0.0.0/8", "::/0"]),
    Case("macaddr", "VARCHAR", &["08:00:2b:01:02:03"]),
    Case("macaddr8", "VARCHAR", &["08:00:2b:01:02:03:04:05"]),
    Case("point", "VARCHAR", &["(1.5,-2)", "(NaN,Infinity)"]),
    Case("box", "VARCHAR", &["(1,1),(0,0)"]),
    Case("path", "VARCHAR", &["[(0,0),(1,1)]", "((0,0),(1,1))"]),
    Case("tsvector", "VARCHAR", &["a:1 'b c':2,3A"]),
    Case("tsquery", "VARCHAR", &["a & !'b c':*"]),
    Case("pg_lsn", "VARCHAR", &["16/B374D848"]),
    Case("regclass", "VARCHAR", &["pg_class", "kinds.plain"]),
    Case("jsonpath", "VARCHAR", &["$.a[*] ? (@ > 1)"]),
    Case("int4range", "VARCHAR", &["empty", "[1,5]", "(,)"]),
    Case("numrange", "VARCHAR", &["(1.50,)"]),
    Case("tstzrange", "VARCHAR", &["[2024-01-01 00:00:00+05:30,infinity]", "(,0044-03-15 BC)"]),
    Case("daterange", "VARCHAR", &["[2024-01-01,infinity)"]),
    Case("int4multirange", "VARCHAR", &["{}", "{[1,3),[5,7)}"]),
    Case("kinds.mood", "VARCHAR", &["sad", "o\"k", "ha, ppy"]),
    Case("kinds.amount", "DECIMAL(12,2)", &["99.5", "-9999999999.99"]),
    Case("kinds.amount_again", "DECIMAL(12,2)", &["1"]),
    Case("kinds.digits", "INTEGER[]", &["{}", "{1,NULL}"]),
    Case("kinds.plain", "VARCHAR", &["(1,\"a b\",\"{1,2}\")", "(,,)", "(0,\"\",)"]),
    Case("kinds.floats", "VARCHAR", &["[1.5,2.5)"]),
    Case("integer[]", "INTEGER[]", &["{}", "{NULL}", "{-2147483648,0,NULL}"]),
    Case("bigint[]", "BIGINT[]", &["{9223372036854775807}"]),
    Case("boolean[]", "BOOLEAN[]", &["{t,f,NULL}"]),
    Case("double precision[]", "DOUBLE[]", &["{NaN,-Infinity,0.1}"]),
    Case("text[]", "VARCHAR[]", &["{}", r#"{"a,b","\"q\"",NULL,"NULL","","\\","{x}"," s ",é}"#]),
    Case("numeric(10,2)[]", "DECIMAL(10,2)[]", &["{1.1,NULL,-99999999.99}"]),
    Case("numeric[]", "VARCHAR[]", &["{NaN,1.10,1e50}"]),
    Case("date[]", "DATE[]", &["{2024-02-29,NULL}"]),
    Case("timestamp[]", "TIMESTAMP[]", &["{\"2024-02-29 01:02:03.000004\"}"]),
    Case("timestamptz[]", "TIMESTAMP WITH TIME ZONE[]", &["{\"2024-02-29 01:02:03+05:30\"}"]),
    Case("bytea[]", "BLOB[]", &[r#"{"\\x00ff","\\x",NULL}"#]),
    Case("uuid[]", "VARCHAR[]", &["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"]),
    Case("jsonb[]", "VARCHAR[]", &[r#"{"{\"a\": [1, \"x\"]}",null}"#]),
    Case("inet[]", "VARCHAR[]", &["{10.0.0.1,::1/64}"]),
    Case("interval[]", "VARCHAR[]", &["{\"1 day 02:03:04\"}"]),
    Case("kinds.mood[]", "VARCHAR[]", &[r#"{sad,"o\"k","ha, ppy",NULL}"#]),
    Case("kinds.plain[]", "VARCHAR[]", &[r#"{"(1,\"a b\",)",NULL,"(,,)"}"#]),
    Case("kinds.amount[]", "DECIMAL(12,2)[]", &["{1.5,2}"]),
    Case("box[]", "VARCHAR[]", &["{(1,1),(0,0);(3,3),(2,2)}"]),
    Case("int4range[]", "VARCHAR[]", &[r#"{"[1,5)",empty}"#]),
];

/// What the types above need, and what the server prints unless it is told otherwise.
const SETTING: &str = "
    CREATE SCHEMA kinds;
    CREATE TYPE kinds.mood AS ENUM ('sad', 'o\"k', 'ha, ppy');
    CREATE DOMAIN kinds.amount AS numeric(12,2) CHECK (VALUE < 1e10);
    CREATE DOMAIN kinds.amount_again AS kinds.amount NOT NULL DEFAULT 0;
    CREATE DOMAIN kinds.digits AS int[];
    CREATE TYPE kinds.plain AS (x int, \"Y y\" text, z int[]);
    CREATE TYPE kinds.floats AS RANGE (SUBTYPE = float8);
    ALTER SYSTEM SET datestyle = 'SQL, DMY';
    ALTER SYSTEM SET timezone = 'Asia/Kolkata';
    ALTER SYSTEM SET intervalstyle = 'iso_8601';
    ALTER SYSTEM SET bytea_output = 'escape';
    ALTER SYSTEM SET extra_float_digits = -5;
    ALTER ROLE guarded SET intervalstyle = 'sql_standard';
    SELECT pg_reload_conf();";
/// What a table is compared in.
const PRINTED: &str = "SET datestyle = ISO; SET timezone = UTC; SET intervalstyle = postgres; SET bytea_output = hex;
    SET extra_float_digits = 1; SET search_path = '';";

fn literal(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// The types that the server has: before version 15 a scale was between 0 and the precision.
fn cases(server: &Postgres) -> Vec<&'static Case> {
    let version: u32 = server.sql("SHOW server_version_num").parse().unwrap();
    let is_later = |kind: &str| ["numeric(5,-2)", "numeric(3,5)"].contains(&kind);
    CASES.iter().filter(|Case(kind, ..)| version >= 150_000 || !is_later(kind)).collect()
}

/// Rows that together have every value, the first one null throughout.
fn insert(cases: &[&Case], from: usize) -> String {
    let rows = 1 + cases.iter().map(|Case(_, _, values)| values.len()).max().unwrap();
    let row = |i: usize| {
        let cells = cases.iter().map(|Case(kind, _, values)| match i.checked_sub(1).and_then(|i| values.get(i)) {
            Some(value) => literal(value),
            // A domain of its own that is never null.
            None if *kind == "kinds.amount_again" => "0".to_owned(),
            None => "NULL".to_owned(),
        });
        format!("({}, {})", from + i, cells.collect::<Vec<_>>().join(", "))
    };
    // Of its own statement each, so that the literals are read as what they are for.
    (0..rows).map(|i| format!("INSERT INTO kinds.all_types VALUES {};\n", row(i))).collect()
}

/// The configuration of a view, and of a table for it in the folder.
pub(super) fn view(name: &str, settings: &str) -> String {
    format!(
        "[pipelines.p.views.{name}]\n{settings}\n[pipelines.p.views.{name}.connectors.lake]\ndurability = \"none\"\n\
         [pipelines.p.views.{name}.connectors.lake.delta]\nuri = \"table-{name}\"\n"
    )
}

/// Views of the database at `url`, in the folder `home`.
pub(super) fn configure(home: &Path, url: &str, views: &str) {
    let config = format!("config_version = 1\n[pipelines.p.source.postgres]\nurl = \"{url}\"\n{views}");
    fs::write(home.join("cutover.toml"), config).unwrap();
}

/// Runs the program until it ends.
pub(super) fn cutover(home: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    Ran::of(command.args(args).current_dir(home).output().unwrap())
}

/// Holds the table of a view against what the server prints of `rows`.
pub(super) fn compare(
    home: &Path,
    server: &Postgres,
    readers: &Readers,
    (view, key): (&str, &str),
    rows: &str,
    kinds: &[String],
) {
    let file = home.join("rows.csv");
    let printed = format!("{PRINTED} COPY ({rows}) TO STDOUT (FORMAT csv, HEADER, NULL '<null>');");
    let mut psql = server.psql();
    psql.args(["-c", &printed]).stdout(Stdio::from(fs::File::create(&file).unwrap()));
    assert!(psql.status().unwrap().success());
    let (table, file) = (home.join(format!("table-{view}")).display().to_string(), file.display().to_string());
    let mut args = vec![table.as_str(), key, file.as_str()];
    args.extend(kinds.iter().map(String::as_str));
    let ran = Ran::of(readers.command("postgres.py", &args).output().unwrap());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    eprintln!("{}", ran.stdout.trim_end());
}

#[test]
fn every_value_of_every_type_is_what_the_server_prints() {
    const TEST: &str = "every_value_of_every_type_is_what_the_server_prints";
    let (Some(server), Some(readers)) = (Postgres::find(TEST), Readers::find(TEST)) else { return };
    let home = TempDir::new().unwrap();
    server.sql(SETTING);
    let cases = cases(&server);
    let columns: Vec<String> = cases.iter().enumerate().map(|(i, Case(kind, ..))| format!("c{i} {kind}")).collect();
    server.sql(&format!("CREATE TABLE kinds.all_types (id int PRIMARY KEY, {})", columns.join(", ")));
    server.sql(&insert(&cases, 0));
    configure(home.path(), &server.url(), &view("v", "table = \"kinds.all_types\""));
    let kinds: Vec<String> = cases.iter().enumerate().map(|(i, Case(_, kind, _))| format!("c{i}={kind}")).collect();
    let rows = "SELECT * FROM kinds.all_types";

    // By a snapshot.
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    compare(home.path(), &server, &readers, ("v", "id"), rows, &kinds);
    // By changes: rows that appear, that become others in every column, and that go away.
    server.sql(&insert(&cases, 100));
    let next = |i: usize| format!("c{i} = (SELECT c{i} FROM kinds.all_types o WHERE o.id = t.id + 1 - 100)");
    let set: Vec<String> = (0..cases.len()).map(next).collect();
    server.sql(&format!(
        "UPDATE kinds.all_types t SET {} WHERE id BETWEEN 100 AND 104; DELETE FROM kinds.all_types WHERE id = 108",
        set.join(", ")
    ));
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    compare(home.path(), &server, &readers, ("v", "id"), rows, &kinds);
    cutover(home.path(), &["verify", "table-v", "--deep"]).ended(0, 0);
}

#[test]
fn a_value_that_no_table_holds_is_refused_and_kept_as_a_string_when_asked() {
    const TEST: &str = "a_value_that_no_table_holds_is_refused_and_kept_as_a_string_when_asked";
    let (Some(server), Some(readers)) = (Postgres::find(TEST), Readers::find(TEST)) else { return };
    let odd = [
        ("numeric(10,2)", "NaN", "has NaN, which decimal(10,2) cannot hold"),
        ("date", "infinity", "has infinity, which a date cannot hold"),
        ("date", "-infinity", "has -infinity, which a date cannot hold"),
        ("timestamp", "infinity", "has infinity, which a timestamp cannot hold"),
        ("timestamptz", "-infinity", "has -infinity, which a timestamp cannot hold"),
        ("timestamp", "294276-12-31 23:59:59", "has a time after the year 294246, which a timestamp cannot hold"),
        ("int[]", "{{1,2},{3,4}}", "has an array of several dimensions, which a list does not keep"),
        ("text[]", "[0:1]={a,b}", "has an array whose first element is number 0, which a list does not keep"),
    ];
    let home = TempDir::new().unwrap();
    let mut views = String::new();
    for (i, (kind, value, _)) in odd.iter().enumerate() {
        let value = literal(value);
        server.sql(&format!(
            "CREATE TABLE odd_{i} (id int PRIMARY KEY, v {kind}); INSERT INTO odd_{i} VALUES (1, {value})"
        ));
        views += &view(&format!("v{i}"), &format!("table = \"odd_{i}\""));
    }
    configure(home.path(), &server.url(), &views);
    let ran = cutover(home.path(), &["run", "--once"]).ended(5, 0);
    for (i, (_, _, said)) in odd.iter().enumerate() {
        let wanted = format!("odd_{i}: column \"v\" {said}; add columns = {{ v = \"string\" }}");
        assert!(ran.stderr.contains(&wanted), "{wanted}: {}", ran.stderr);
        assert!(!home.path().join(format!("table-v{i}/_delta_log")).exists());
    }

    // The same as strings, by a snapshot and by a change.
    let columns: Vec<String> = odd.iter().enumerate().map(|(i, (kind, ..))| format!("c{i} {kind}")).collect();
    server.sql(&format!("CREATE TABLE kept (id int PRIMARY KEY, {})", columns.join(", ")));
    let values: Vec<String> = odd.iter().map(|(_, value, _)| literal(value)).collect();
    let insert = |id: u32| format!("INSERT INTO kept VALUES ({id}, {})", values.join(", "));
    server.sql(&insert(1));
    let strings: Vec<String> = (0..odd.len()).map(|i| format!("c{i} = \"string\"")).collect();
    let kept = format!("table = \"kept\"\ncolumns = {{ {} }}", strings.join(", "));
    configure(home.path(), &server.url(), &view("kept", &kept));
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    server.sql(&insert(2));
    cutover(home.path(), &["run", "--once"]).ended(0, 0);
    let kinds: Vec<String> = (0..odd.len()).map(|i| format!("c{i}=VARCHAR")).collect();
    compare(home.path(), &server, &readers, ("kept", "id"), "SELECT * FROM public.kept", &kinds);
}
