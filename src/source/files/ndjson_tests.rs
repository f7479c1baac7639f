use arrow::array::AsArray;
use arrow::datatypes::{Field, Int64Type, Schema};
use arrow::util::display::array_value_to_string;

use super::*;
use crate::error::ErrorKind;
use crate::source::files::parse_column_type;
use crate::step::StepRange;

const COLUMNS: [(&str, &str); 5] = [
    ("id", "bigint"),
    ("d", "decimal(5,1)"),
    ("s", "string"),
    ("n", "struct<a:array<int>,b:map<string,double>>"),
    ("t", "timestamp"),
];

fn view(keyed: bool) -> View {
    let fields = COLUMNS.map(|(name, word)| Field::new(name, parse_column_type(word).unwrap(), true));
    View::new("v", &Schema::new(fields.to_vec()), if keyed { vec!["id".to_owned()] } else { vec![] }).unwrap()
}

fn rows(text: &[u8]) -> Result<Vec<RecordBatch>> {
    Ndjson::new(text, "f.ndjson", Shape::Rows(view(true)))?.collect()
}

fn changes(text: &str, keyed: bool) -> Result<Vec<RecordBatch>> {
    let range = StepRange::new(Step::new(2).unwrap(), Step::new(9).unwrap()).unwrap();
    Ndjson::new(text.as_bytes(), "f.ndjson", Shape::Changes(view(keyed), range))?.collect()
}

fn check_rows(text: &str, expected: &[&str]) {
    let batches = rows(text.as_bytes()).unwrap();
    let row = |b: &RecordBatch, i| {
        let cells =
            b.columns().iter().map(|c| if c.is_null(i) { "-".into() } else { array_value_to_string(c, i).unwrap() });
        cells.collect::<Vec<_>>().join(" ")
    };
    let rows: Vec<String> = batches.iter().flat_map(|b| (0..b.num_rows()).map(move |i| row(b, i))).collect();
    assert_eq!(rows, expected, "{text}");
}

fn check_refused(outcome: Result<Vec<RecordBatch>>, kind: ErrorKind, parts: &[&str]) {
    let err = outcome.expect_err(&format!("{parts:?}"));
    assert_eq!(err.kind(), kind, "{err}");
    for part in parts {
        assert!(err.message().contains(part), "{err}: no {part}");
    }
}

#[test]
fn lines_become_rows() {
    check_rows("", &[]);
    check_rows("\n \r\n", &[]);
    check_rows("{\"id\":1}", &["1 - - - -"]);
    check_rows(
        "\u{feff}{\"id\":1}\r\n\r\n{\"s\":null,\"id\":9007199254740993}\n",
        &["1 - - - -", "9007199254740993 - - - -"],
    );
    check_rows(
        r#"{"d":"12.5","\u0069d":-1,"s":"é","t":"2026-01-01 00:00:00+00:00"}"#,
        &["-1 12.5 é - 2026-01-01T00:00:00Z"],
    );
    check_rows(r#"{"id":1,"n":{"a":[1,null,2],"b":{"x":1e0,"y":null}}}"#, &["1 - - {a: [1, , 2], b: {x: 1.0, y: }} -"]);
    check_rows(r#"{"id":1,"n":{"a":[]}}"#, &["1 - - {a: [], b: } -"]);
}

#[test]
fn many_lines_make_several_batches() {
    let text: String = (0..20_000).map(|i| format!("{{\"id\":{i}}}\n")).collect();
    let batches = rows(text.as_bytes()).unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [8192, 8192, 3616]);
    let last = batches[2].column(0).as_primitive::<Int64Type>();
    assert_eq!(last.value(3615), 19_999);
}

#[test]
fn a_row_is_exact_or_refused_by_line_and_column() {
    for (text, parts) in [
        ("{\"id\":1}\n\n{\"id\":1.0}", vec!["f.ndjson line 3", "\"id\"", "bigint", "fraction"]),
        ("{\"id\":\"1\"}", vec!["line 1", "\"id\"", "a string"]),
        ("{\"id\":null}", vec!["\"id\"", "null"]),
        ("{\"s\":\"x\"}", vec!["\"id\"", "missing"]),
        ("{\"id\":1,\"id\":1}", vec!["\"id\"", "twice"]),
        ("{\"id\":1,\"\\u0069d\":1}", vec!["\"id\"", "twice"]),
        ("{\"id\":1,\"x\":null}", vec!["\"x\"", "not among the view's columns"]),
        ("{\"id\":1,\"ID\":1}", vec!["\"ID\"", "not among the view's columns"]),
        ("{\"id\":1,\"d\":1.25}", vec!["\"d\"", "decimal(5,1)"]),
        ("{\"id\":1,\"s\":\"\\ud800\"}", vec!["\"s\"", "surrogate"]),
        ("{\"id\":1,\"s\":{\"a\":[[[[]]]]}}", vec!["\"s\"", "an object"]),
        ("{\"id\":1,\"n\":{\"a\":[1.5]}}", vec!["\"n.a[]\"", "int"]),
        ("{\"id\":1,\"n\":{\"c\":1}}", vec!["\"n.c\"", "not among the view's columns"]),
        ("{\"id\":1,\"n\":{\"b\":{\"x\":1,\"x\":2}}}", vec!["\"n.b\"", "twice"]),
        ("{\"id\":1,\"n\":{\"b\":{\"x\":1e400}}}", vec!["\"n.b.value\"", "beyond a double"]),
        ("{\"id\":1,\"n\":[]}", vec!["\"n\"", "an array"]),
        ("[1]", vec!["line 1", "one object"]),
        ("1", vec!["line 1", "one object"]),
    ] {
        check_refused(rows(text.as_bytes()), ErrorKind::Refused, &parts);
    }
    let long = format!("{{\"id\":1,\"s\":\"{}\"}}", "x".repeat(8 << 20));
    check_refused(rows(long.as_bytes()), ErrorKind::Refused, &["line 1", "8388608 bytes"]);
}

#[test]
fn what_is_no_json_is_damaged() {
    for text in
        ["{\"id\":1", "{\"id\":1}{\"id\":2}", "{\"id\":01}", "{'id':1}", "{\"id\":NaN}", "PAR1", "\0", "{\"s\":\"\t\"}"]
    {
        check_refused(rows(text.as_bytes()), ErrorKind::Corrupt, &["f.ndjson line 1"]);
    }
    check_refused(rows(b"{\"id\":1,\"s\":\"\xff\"}"), ErrorKind::Corrupt, &["line 1", "UTF-8"]);
    // Far deeper than any stack; the text of a value is skipped without recursion.
    let deep = format!("{{\"id\":1,\"s\":{}", "[".repeat(1 << 20));
    check_refused(rows(deep.as_bytes()), ErrorKind::Corrupt, &["line 1"]);
    let deep = format!("{{\"id\":1,\"s\":{}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
    check_refused(rows(deep.as_bytes()), ErrorKind::Refused, &["line 1", "an array"]);
}

#[test]
fn changes_have_a_step_and_one_row() {
    let text = r#"
        {"step":9,"insert":{"id":1}}
        {"update":{"id":1,"s":"x"},"step":3}
        {"step":3,"delete":{"id":1}}"#;
    let batches = changes(text, true).unwrap();
    let steps = batches[0].column(0).as_primitive::<Int64Type>().values().to_vec();
    let ops: Vec<&str> = batches[0].column(1).as_string::<i32>().iter().flatten().collect();
    assert_eq!((steps, ops), (vec![9, 3, 3], vec!["i", "u", "d"]));

    for (line, part) in [
        (r#"{"insert":{"id":1}}"#, "\"step\" is missing"),
        (r#"{"step":3}"#, "missing"),
        (r#"{"step":3,"insert":{"id":1},"delete":{"id":1}}"#, "more than one"),
        (r#"{"step":3,"insert":{"id":1},"insert":{"id":2}}"#, "twice"),
        (r#"{"step":3,"insert":{"id":1},"ts":1}"#, "\"ts\""),
        (r#"{"step":3,"upsert":{"id":1}}"#, "\"upsert\""),
        (r#"{"step":3,"insert":null}"#, "as an object, not null"),
        (r#"{"step":3,"insert":[1]}"#, "an array"),
        (r#"{"step":3,"delete":{}}"#, "\"id\""),
        (r#"{"step":2,"insert":{"id":1}}"#, "step 2 is outside"),
        (r#"{"step":10,"insert":{"id":1}}"#, "step 10 is outside"),
        (r#"{"step":-3,"insert":{"id":1}}"#, "negative"),
        (r#"{"step":3.0,"insert":{"id":1}}"#, "digits alone"),
        (r#"{"step":"3","insert":{"id":1}}"#, "digits alone"),
        (r#"{"step":18446744073709551615,"insert":{"id":1}}"#, "range"),
        (r#"{"step":9223372036854775807,"insert":{"id":1}}"#, "beyond the largest"),
    ] {
        check_refused(changes(line, true), ErrorKind::Refused, &["f.ndjson line 1", part]);
    }
    check_refused(changes(r#"{"step":3,"update":{"id":1}}"#, false), ErrorKind::Refused, &["without key"]);
}
