use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow::util::display::array_value_to_string;
use futures::stream;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::source::files::parse_column_type;

const COLUMNS: [(&str, &str); 6] = [
    ("Id", "bigint"),
    ("name", "string"),
    ("price", "decimal(5,2)"),
    ("at", "timestamp"),
    ("day", "date"),
    ("n", "struct<a:array<int>,b:map<string,double>>"),
];

pub(super) fn view_of(columns: &[(&str, &str)], key: &[&str]) -> View {
    let fields: Vec<Field> =
        columns.iter().map(|(name, word)| Field::new(*name, parse_column_type(word).unwrap(), true)).collect();
    View::new("v", &Schema::new(fields), key.iter().map(|k| (*k).to_string()).collect()).unwrap()
}

fn view(keyed: bool) -> View {
    view_of(&COLUMNS, if keyed { &["Id"] } else { &[] })
}

pub(super) fn read_within(view: &View, format: Format, limits: Limits, body: &[u8]) -> Result<Operations> {
    let mut request = Request::new(view, format, limits)?;
    request.push(body)?;
    request.finish()
}

pub(super) fn read_all(view: &View, format: Format, body: &[u8]) -> Result<Operations> {
    read_within(view, format, Limits::default(), body)
}

/// Each operation as its letter and cells; `-` is null, `~` absent.
pub(super) fn shown_operations(operations: &Operations) -> Vec<String> {
    let all = concat_batches(&Operations::schema(&operations.view), operations.batches()).unwrap();
    let cell = |row: usize, column: usize| {
        let absent = operations.partial().iter().find(|p| p.row == row);
        if column > 0 && absent.is_some_and(|p| p.absent[column - 1]) {
            assert!(all.column(column).is_null(row), "an absent cell holds something");
            return "~".to_owned();
        }
        let cells = all.column(column);
        if cells.is_null(row) { "-".to_owned() } else { array_value_to_string(cells, row).unwrap() }
    };
    assert_eq!(operations.rows(), all.num_rows() as u64);
    let row = |i| (0..all.num_columns()).map(|c| cell(i, c)).collect::<Vec<_>>().join(" ");
    (0..all.num_rows()).map(row).collect()
}

fn check(format: Format, keyed: bool, body: &str, expected: &[&str]) {
    let operations = read_all(&view(keyed), format, body.as_bytes()).unwrap_or_else(|e| panic!("{body}: {e}"));
    assert_eq!(shown_operations(&operations), expected, "{body}");
}

/// Refused as a whole, with a message of these parts, and `secret` nowhere in the error or what caused it.
pub(super) fn check_error(outcome: Result<Operations>, kind: ErrorKind, parts: &[&str]) {
    let err = outcome.expect_err(&format!("{parts:?}"));
    assert_eq!(err.kind(), kind, "{err}");
    assert!(err.message().starts_with(parts[0]), "{err}: does not begin with {}", parts[0]);
    for part in parts {
        assert!(err.message().contains(part), "{err}: no {part}");
    }
    assert!(err.message().contains("send"), "{err}: no remedy");
    let mut cause: Option<&dyn std::error::Error> = Some(&err);
    while let Some(e) = cause {
        assert!(!e.to_string().contains("secret"), "{e}: tells a value");
        assert!(!e.to_string().contains("31337"), "{e}: tells a value");
        cause = e.source();
    }
}

fn check_refused(format: Format, keyed: bool, body: &str, parts: &[&str]) {
    let parts: Vec<&str> = if parts[0].starts_with("line") { parts.to_vec() } else { [&["line 1: "], parts].concat() };
    check_error(read_all(&view(keyed), format, body.as_bytes()), ErrorKind::Refused, &parts);
}

#[test]
fn inserts_deletes_and_updates_are_read_in_their_order() {
    use Format::InsertDelete as F;
    check(F, true, "", &[]);
    check(F, true, "\n \r\n", &[]);
    check(F, true, r#"{"insert":{"Id":1}}"#, &["i 1 - - - - -"]);
    check(F, true, r#"{"delete":{"Id":1}}"#, &["d 1 - - - - -"]);
    check(F, true, r#"{"delete":{"Id":1,"name":"old"}}"#, &["d 1 - - - - -"]);
    check(F, false, r#"{"delete":{"Id":1,"name":"old"}}"#, &["d 1 old - - - -"]);
    check(F, true, r#"{"update":{"Id":1,"name":"x","price":null}}"#, &["u 1 x - ~ ~ ~"]);
    check(
        F,
        true,
        r#"{"update":{"Id":1,"name":"x"},"table":"t","insert":{"Id":2,"name":"y"},"delete":{"Id":3}}
           {"insert":null,"delete":{"Id":4},"table":null}"#,
        &["d 3 - - - - -", "i 2 y - - - -", "u 1 x ~ ~ ~ ~", "d 4 - - - - -"],
    );
    check(F, true, r#"{"update":{"Id":1,"name":"a","price":1,"at":null,"day":null,"n":null}}"#, &["u 1 a 1.00 - - -"]);
    check(F, true, r#"{"insert":{"Id":1,"n":{"A":[1,null],"b":{"X":1e0}}}}"#, &["i 1 - - - - {a: [1, ], b: {X: 1.0}}"]);
}

#[test]
fn values_are_exact_or_refused_by_line_column_and_shape() {
    use Format::Raw as F;
    check(F, true, r#"{"Id":9007199254740993,"price":"12.34"}"#, &["i 9007199254740993 - 12.34 - - -"]);
    check(F, true, r#"{"Id":-9223372036854775808,"price":1.5e1}"#, &["i -9223372036854775808 - 15.00 - - -"]);
    let time = "i 1 - - 2026-01-31T12:00:00.500Z 2026-01-31 -";
    check(F, true, r#"{"Id":1,"at":"2026-01-31T13:00:00.5+01:00","day":"2026-01-31"}"#, &[time]);
    check(F, true, r#"{"Id":1,"at":"2026-01-31 12:00:00.500Z","day":"2026-01-31"}"#, &[time]);
    for (body, parts) in [
        (r#"{"Id":31337.5}"#, vec!["\"Id\"", "bigint", "fraction"]),
        (r#"{"Id":1e400}"#, vec!["\"Id\"", "exponent"]),
        (r#"{"Id":9223372036854775808}"#, vec!["\"Id\"", "beyond its range"]),
        (r#"{"Id":"31337"}"#, vec!["\"Id\"", "a string"]),
        (r#"{"Id":1,"price":313.375}"#, vec!["\"price\"", "decimal(5,2)"]),
        (r#"{"Id":1,"price":"secret"}"#, vec!["\"price\"", "no number"]),
        (r#"{"Id":1,"at":"2026-01-31 12:00:00"}"#, vec!["\"at\"", "zone"]),
        (r#"{"Id":1,"at":"secret"}"#, vec!["\"at\"", "a time"]),
        (r#"{"Id":1,"day":"2026-02-30"}"#, vec!["\"day\"", "YYYY-MM-DD"]),
        (r#"{"Id":1,"day":31337}"#, vec!["\"day\"", "an integer"]),
        (r#"{"Id":1,"name":"secret \ud800"}"#, vec!["\"name\"", "surrogate"]),
        (r#"{"Id":1,"name":31337}"#, vec!["\"name\"", "an integer"]),
        (r#"{"Id":1,"n":"secret"}"#, vec!["\"n\"", "an object", "a string"]),
        (r#"{"Id":1,"n":{"a":[31337.5]}}"#, vec!["\"n.a[]\"", "int"]),
        (r#"{"Id":1,"n":{"b":{"secret":1e400}}}"#, vec!["\"n.b.value\"", "double"]),
        (r#"{"Id":1,"n":{"b":{"secret":1,"secret":2}}}"#, vec!["\"n.b\"", "same key twice"]),
        (r#"{"Id":1,"n":{"b":{"x":31337313373133731337}}}"#, vec!["\"n.b.value\"", "more digits"]),
        (r#"{"Id":1,"n":{"a":[],"A":[]}}"#, vec!["\"n.A\"", "twice"]),
        (r#"{"Id":1,"n":{"c":1}}"#, vec!["\"n.c\"", "not among"]),
        (r#"{"name":"secret"}"#, vec!["\"Id\"", "null or missing"]),
        (r#"{"Id":null}"#, vec!["\"Id\"", "null or missing"]),
        (r#"{"Id":1,"Id":1}"#, vec!["\"Id\"", "twice"]),
        (r#"{"Id":1,"\u0049d":1}"#, vec!["\"Id\"", "twice"]),
        ("{\"Id\":1}\n\n{\"Id\":true}", vec!["line 3: ", "\"Id\"", "a boolean"]),
        (r#""secret""#, vec!["an object", "a string"]),
        ("31337", vec!["an object", "an integer"]),
        (r#"[{"Id":31337}]"#, vec!["an object", "an array"]),
        ("{\"\\u001b[31m\":1}", vec!["\\u{1b}[31m", "not among"]),
    ] {
        check_refused(F, true, body, &parts);
    }
}

#[test]
fn names_are_found_in_any_case_unless_they_are_quoted() {
    use Format::Raw as F;
    for body in [r#"{"id":1,"NAME":"x"}"#, r#"{"ID":1,"Name":"x"}"#, r#"{"\"Id\"":1,"\"name\"":"x"}"#] {
        check(F, true, body, &["i 1 x - - - -"]);
    }
    for (body, parts) in [
        (r#"{"\"id\"":1}"#, ["id", "not among"]),
        (r#"{"Id":1,"ID":1}"#, ["\"ID\"", "twice"]),
        (r#"{"Id":1,"\"Id\"":1}"#, ["Id", "twice"]),
        (r#"{"Id":1,"\"na\"me\"":1}"#, ["na", "not among"]),
        (r#"{"Id":1,"naïve":1}"#, ["naïve", "not among"]),
    ] {
        check_refused(F, true, body, &parts);
    }
    let quoted = view_of(&[("a\"b", "int"), ("ÄGE", "int")], &[]);
    for body in [r#"{"a\"b":1,"äge":2}"#, r#"{"\"a\"\"b\"":1,"\"ÄGE\"":2}"#] {
        assert_eq!(shown_operations(&read_all(&quoted, F, body.as_bytes()).unwrap()), ["i 1 2"], "{body}");
    }
    let long = format!("{{\"{}\":1}}", "x".repeat(1 << 20));
    assert!(read_all(&view(true), F, long.as_bytes()).unwrap_err().message().len() < 400);
}

#[test]
fn a_line_states_known_operations_only() {
    use Format::InsertDelete as F;
    for (body, parts) in [
        (r#"{}"#, vec!["missing"]),
        (r#"{"table":"t"}"#, vec!["missing"]),
        (r#"{"insert":null}"#, vec!["missing"]),
        (r#"{"upsert":{"Id":1}}"#, vec!["\"upsert\"", "none of"]),
        (r#"{"Insert":{"Id":1}}"#, vec!["\"Insert\"", "none of"]),
        (r#"{"insert":{"Id":1},"insert":{"Id":2}}"#, vec!["\"insert\"", "twice"]),
        (r#"{"insert":"secret"}"#, vec!["\"insert\"", "as an object, not a string"]),
        (r#"{"insert":[{"Id":1}]}"#, vec!["\"insert\"", "an array"]),
        (r#"{"insert":{"Id":1},"table":{}}"#, vec!["\"table\"", "an object"]),
        (r#"{"delete":{"name":"secret"}}"#, vec!["\"Id\"", "missing"]),
        (r#"{"delete":{"Id":1,"price":"secret"}}"#, vec!["\"price\""]),
        (r#"{"update":{"name":"secret"}}"#, vec!["\"Id\"", "missing"]),
        (r#"{"insert":{"Id":1},"x":1}"#, vec!["\"x\"", "none of"]),
    ] {
        check_refused(F, true, body, &parts);
    }
    check_refused(F, false, r#"{"update":{"Id":1}}"#, &["without key", "declare the key"]);
}

#[test]
fn debezium_events_are_what_they_did_to_rows() {
    use Format::Debezium as F;
    check(
        F,
        true,
        r#"{"payload":{"op":"c","before":null,"after":{"id":1},"ts_ms":1,"source":{"a":[]}}}"#,
        &["i 1 - - - - -"],
    );
    check(F, true, r#"{"schema":{"x":1},"payload":{"op":"r","after":{"id":1}}}"#, &["i 1 - - - - -"]);
    check(F, true, r#"{"op":"d","before":{"id":1,"name":"x"},"after":null}"#, &["d 1 - - - - -"]);
    check(F, false, r#"{"op":"d","before":{"id":1,"name":"x"}}"#, &["d 1 x - - - -"]);
    let both = r#"{"op":"u","before":{"id":1},"after":{"id":2,"name":"y"}}"#;
    check(F, true, both, &["d 1 - - - - -", "i 2 y - - - -"]);
    check(F, false, both, &["d 1 - - - - -", "i 2 y - - - -"]);
    check(F, true, r#"{"op":"u","before":null,"after":{"id":2,"name":"y"}}"#, &["u 2 y - - - -"]);
    check(F, true, "null\n{\"payload\":null}\n{\"schema\":null,\"payload\":null}", &[]);
    // What the database did not log stays as it is.
    let lacking = r#"{"op":"u","after":{"id":1,"name":"__debezium_unavailable_value"}}"#;
    check(F, true, lacking, &["u 1 ~ - - - -"]);
    let lacking = r#"{"op":"u","before":{"id":1,"day":null},"after":{"id":1,"name":"__debezium_unavailable_value"}}"#;
    check(F, true, lacking, &["u 1 ~ - - - -"]);
    check_refused(F, false, lacking, &["REPLICA IDENTITY FULL"]);
    let moved = lacking.replace(r#""id":1,"name""#, r#""id":2,"name""#);
    check_refused(F, true, &moved, &["update of the key"]);
    let gone = r#"{"op":"d","before":{"id":1,"name":"__debezium_unavailable_value"}}"#;
    check(F, true, gone, &["d 1 - - - - -"]);

    for (keyed, body, parts) in [
        (true, r#"{"op":"t","before":null,"after":null}"#, vec!["truncation", "reset"]),
        (true, r#"{"op":"m","message":{}}"#, vec!["message", "leave"]),
        (true, r#"{"op":"secret","after":{"id":1}}"#, vec!["\"op\" is none of"]),
        (true, r#"{"op":1,"after":{"id":1}}"#, vec!["\"op\" is none of"]),
        (true, r#"{"after":{"id":1}}"#, vec!["\"op\" is missing"]),
        (true, r#"{"op":"c","before":{"id":1}}"#, vec!["before"]),
        (true, r#"{"op":"c"}"#, vec!["after", "missing"]),
        (true, r#"{"op":"c","before":{"id":1},"after":{"id":1}}"#, vec!["before"]),
        (true, r#"{"op":"d","after":null}"#, vec!["before", "missing"]),
        (true, r#"{"op":"d","before":{"id":1},"after":{"id":1}}"#, vec!["after"]),
        (true, r#"{"op":"u","before":{"id":1}}"#, vec!["after", "missing"]),
        (true, r#"{"op":"u","after":"secret"}"#, vec!["after", "a string"]),
        (true, r#"{"payload":{"op":"c","after":{"id":1}},"op":"c"}"#, vec!["\"op\"", "beside"]),
        (true, r#"{"payload":"secret"}"#, vec!["payload", "a string"]),
        (true, r#"{"payload":{"op":"c","op":"c","after":{"id":1}}}"#, vec!["\"op\"", "twice"]),
        (false, r#"{"op":"u","after":{"id":1}}"#, vec!["before", "REPLICA IDENTITY FULL"]),
    ] {
        check_refused(F, keyed, body, &parts);
    }
}

#[test]
fn what_is_no_json_is_damaged() {
    for body in [
        "{\"Id\":1",
        "{\"Id\":1}{\"Id\":2}",
        "{\"Id\":01}",
        "{'Id':1}",
        "{\"Id\":NaN}",
        "PAR1",
        "\0",
        "{\"\\ud800\":1}",
        "{\"name\":\"\t\"}",
    ] {
        check_error(read_all(&view(true), Format::Raw, body.as_bytes()), ErrorKind::Corrupt, &["line 1: ", "no JSON"]);
    }
    let body = b"{\"Id\":1}\n{\"Id\":2,\"name\":\"\xff\"}";
    check_error(read_all(&view(true), Format::Raw, body), ErrorKind::Corrupt, &["line 2: ", "UTF-8"]);
}

#[test]
fn depth_length_and_memory_are_bounded() {
    for depth in [129, 1 << 20] {
        let deep = format!("{{\"op\":\"c\",\"source\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
        check_refused(Format::Debezium, true, &deep, &["nested deeper than 128"]);
    }
    let deep = format!("{{\"op\":\"c\",\"source\":{}{},\"after\":{{\"Id\":1}}}}", "[".repeat(127), "]".repeat(127));
    check(Format::Debezium, true, &deep, &["i 1 - - - - -"]);

    let limits = Limits { request: 100, line: 40, unfolded: 1000 };
    let within = |body: &str| read_within(&view(true), Format::Raw, limits, body.as_bytes());
    let long = format!("{{\"Id\":1}}\n{{\"Id\":1,\"name\":\"{}\"}}", "x".repeat(40));
    check_error(within(&long), ErrorKind::Refused, &["line 2: ", "longer than 40 bytes"]);
    check_error(within(&"{\"Id\":1}\n".repeat(12)), ErrorKind::Refused, &["line 1: ", "100 bytes", "several steps"]);
    assert_eq!(within(&"{\"Id\":1}\n".repeat(11)).unwrap().rows(), 11);
    let small = Limits { request: 1000, ..limits };
    let many = read_within(&view(true), Format::Raw, small, "{\"Id\":1}\n".repeat(60).as_bytes());
    check_error(many, ErrorKind::Refused, &["line 1", "1000 bytes for all rows", "several steps"]);

    // A few bytes a row, and very many columns; and the same within one line.
    let columns: Vec<(String, &str)> = (0..2000).map(|i| (format!("c{i}"), "bigint")).collect();
    let columns: Vec<(&str, &str)> = columns.iter().map(|(name, word)| (name.as_str(), *word)).collect();
    let wide = view_of(&columns, &[]);
    let rows = read_all(&wide, Format::Raw, "{}\n".repeat(100_000).as_bytes());
    check_error(rows, ErrorKind::Refused, &["line 16", "for all rows"]);
    let members = columns.iter().map(|(name, word)| format!("{name}:{word}")).collect::<Vec<_>>().join(",");
    let nested = view_of(&[("l", &format!("array<struct<{members}>>"))], &[]);
    let line = format!("{{\"l\":[{}{{}}]}}", "{},".repeat(100_000));
    check_error(
        read_all(&nested, Format::Raw, line.as_bytes()),
        ErrorKind::Refused,
        &["line 1: ", "\"l[]", "for all rows"],
    );
}

#[test]
fn the_same_content_is_known_in_another_form() {
    let content = |format, keyed, body: &str| read_all(&view(keyed), format, body.as_bytes()).unwrap().content();
    let of = |body: &str| content(Format::InsertDelete, true, body);
    let base = of("{\"insert\":{\"Id\":1,\"price\":1.5}}\n{\"delete\":{\"Id\":2}}");
    for same in [
        "{ \"insert\" : {\"PRICE\":\"1.50\", \"\\u0049d\":1, \"name\":null} }\r\n\n{\"delete\":{\"Id\":2,\"name\":\"x\"}}\n",
        "{\"insert\":{\"price\":15e-1,\"Id\":1},\"table\":\"t\"}\n{\"delete\":{\"Id\":2}}",
    ] {
        assert_eq!(of(same), base, "{same}");
    }
    for other in [
        "{\"insert\":{\"Id\":1,\"price\":1.5},\"delete\":{\"Id\":2}}",
        "{\"insert\":{\"Id\":1,\"price\":1.51}}\n{\"delete\":{\"Id\":2}}",
        "{\"insert\":{\"Id\":1,\"price\":1.5}}",
        "{\"insert\":{\"Id\":1,\"price\":1.5}}\n{\"insert\":{\"Id\":2}}",
        "{\"insert\":{\"Id\":1,\"price\":1.5}}\n{\"delete\":{\"Id\":2}}\n{\"delete\":{\"Id\":2}}",
        "",
    ] {
        assert_ne!(of(other), base, "{other}");
    }
    let named = of(r#"{"update":{"Id":1,"name":null}}"#);
    assert_ne!(named, of(r#"{"update":{"Id":1}}"#), "null is not absent");
    assert_ne!(named, of(r#"{"update":{"Id":1,"price":null}}"#));
    assert_eq!(content(Format::Raw, true, r#"{"Id":1}"#), of(r#"{"insert":{"Id":1}}"#));
    let deleted = |name| content(Format::InsertDelete, false, &format!("{{\"delete\":{{\"Id\":1,\"name\":{name}}}}}"));
    assert_ne!(deleted("\"x\""), deleted("\"y\""), "without key, the whole row counts");
    assert_eq!(Content::from_bytes(base.to_bytes()), base);
    // A column that the view gets in between does not count.
    let wider = view_of(&[&COLUMNS[..], &[("more", "int")]].concat(), &["Id"]);
    for body in [r#"{"insert":{"Id":1}}"#, r#"{"update":{"Id":1,"name":"x"}}"#, r#"{"delete":{"Id":1}}"#] {
        assert_eq!(read_all(&wider, Format::InsertDelete, body.as_bytes()).unwrap().content(), of(body), "{body}");
    }
}

#[test]
fn the_debug_form_tells_no_rows() {
    let operations = read_all(&view(true), Format::Raw, br#"{"Id":31337,"name":"secret"}"#).unwrap();
    let debug = format!("{operations:?}");
    assert!(!debug.contains("secret") && !debug.contains("31337"), "{debug}");
}

/// A cut within a line is no JSON. A cut behind a line gives the lines before it: a text does not say how long it is, so
/// whoever carries it must, as HTTP does by its length or its last chunk.
#[test]
fn a_text_that_is_cut_is_refused_or_ends_with_a_line() {
    let body =
        "{\"insert\":{\"Id\":1,\"name\":\"é\"}}\n{\"delete\":{\"Id\":12}}\n{\"update\":{\"Id\":3,\"day\":null}}\n";
    let ends: Vec<usize> = body.match_indices('\n').map(|(at, _)| at).collect();
    for cut in 0..=body.len() {
        let outcome = read_all(&view(true), Format::InsertDelete, &body.as_bytes()[..cut]);
        let whole = ends.iter().filter(|end| **end <= cut).count() as u64;
        let at_line = cut == 0 || ends.iter().any(|end| cut == *end || cut == end + 1);
        match outcome {
            Ok(operations) => assert!(at_line && operations.rows() == whole, "cut at {cut}"),
            Err(e) => assert!(!at_line && e.kind() == ErrorKind::Corrupt, "cut at {cut}: {e}"),
        }
    }
}

#[tokio::test]
async fn a_body_is_read_while_it_arrives_and_its_error_is_the_outcome() {
    let text = "{\"Id\":1,\"name\":\"é\"}\n".repeat(20_000);
    for size in [1usize << 10, 1 << 20] {
        let chunks: Vec<Result<Bytes>> = text.as_bytes().chunks(size).map(|c| Ok(Bytes::copy_from_slice(c))).collect();
        let operations = read(stream::iter(chunks), &view(true), Format::Raw, Limits::default()).await.unwrap();
        assert_eq!(operations.rows(), 20_000);
        assert_eq!(operations.content(), read_all(&view(true), Format::Raw, text.as_bytes()).unwrap().content());
        assert_eq!(operations.batches().iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192, 8192, 3616]);
    }
    let broken = vec![Ok(Bytes::from("{\"Id\":1}\n")), Err(Error::unavailable("the client is gone"))];
    let err = read(stream::iter(broken), &view(true), Format::Raw, Limits::default()).await.unwrap_err();
    assert_eq!((err.kind(), err.message()), (ErrorKind::Unavailable, "the client is gone"));
    // An endless body is not waited for.
    let endless = stream::repeat_with(|| Ok(Bytes::from(" ".repeat(1 << 16))));
    let err = read(endless, &view(true), Format::Raw, Limits::default()).await.unwrap_err();
    assert!(err.message().starts_with("line 1: is longer than 8388608 bytes"), "{err}");
    let endless = stream::repeat_with(|| Ok(Bytes::from("\n".repeat(1 << 10))));
    let limits = Limits { request: 1 << 16, ..Limits::default() };
    let err = read(endless, &view(true), Format::Raw, limits).await.unwrap_err();
    assert!(err.message().contains("the request is longer than 65536 bytes"), "{err}");
}

/// Values as JSON, and as they must come out.
type Cells = (i64, Option<String>, Option<i64>, Option<f64>, Option<Vec<Option<i32>>>);

fn cells() -> impl Strategy<Value = Cells> {
    let text =
        prop::collection::vec(any::<char>(), 0..8).prop_map(|chars: Vec<char>| chars.into_iter().collect::<String>());
    (
        any::<i64>(),
        prop::option::of(text),
        prop::option::of(any::<i64>()),
        prop::option::of(any::<f64>().prop_filter("finite", |f| f.is_finite())),
        prop::option::of(prop::collection::vec(prop::option::of(any::<i32>()), 0..4)),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_rows_come_out_as_they_went_in(rows in prop::collection::vec(cells(), 1..20), cut in any::<prop::sample::Index>()) {
        use arrow::datatypes::{Decimal128Type, Float64Type, Int32Type, Int64Type};
        let view = view_of(&[("id", "bigint"), ("s", "string"), ("d", "decimal(19,4)"), ("f", "double"), ("l", "array<int>")], &[]);
        let mut body = String::new();
        for (id, text, decimal, float, list) in &rows {
            let decimal = decimal.map(|d| {
                let digits = format!("{:05}", d.unsigned_abs());
                let (whole, fraction) = digits.split_at(digits.len() - 4);
                format!("{}{whole}.{fraction}", if d < 0 { "-" } else { "" })
            });
            body += &serde_json::json!({"id": id, "S": text, "\"d\"": decimal, "F": float, "l": list}).to_string();
            body.push('\n');
        }
        // Chunks may end anywhere.
        let (first, second) = body.as_bytes().split_at(cut.index(body.len()));
        let mut request = Request::new(&view, Format::Raw, Limits::default()).unwrap();
        request.push(first).unwrap();
        request.push(second).unwrap();
        let operations = request.finish().unwrap();
        let batch = &operations.batches()[0];
        let column = |name: &str| -> ArrayRef { Arc::clone(batch.column_by_name(name).unwrap()) };
        for (i, (id, text, decimal, float, list)) in rows.iter().enumerate() {
            let is = |name: &str| column(name).is_valid(i);
            prop_assert_eq!(column("id").as_primitive::<Int64Type>().value(i), *id);
            prop_assert_eq!(is("s").then(|| column("s").as_string::<i32>().value(i).to_owned()), text.clone());
            prop_assert_eq!(is("d").then(|| column("d").as_primitive::<Decimal128Type>().value(i)), decimal.map(i128::from));
            let bits = is("f").then(|| column("f").as_primitive::<Float64Type>().value(i).to_bits());
            prop_assert_eq!(bits, float.map(f64::to_bits));
            let elements = is("l").then(|| column("l").as_list::<i32>().value(i).as_primitive::<Int32Type>().iter().collect::<Vec<_>>());
            prop_assert_eq!(elements, list.clone());
        }
    }
}
