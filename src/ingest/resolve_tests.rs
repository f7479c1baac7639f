use super::super::text_tests::{read_all, view_of};
use super::super::{Format, Operations};
use super::*;
use crate::error::ErrorKind;
use arrow::util::display::array_value_to_string;

fn view() -> View {
    view_of(&[("a", "string"), ("id", "bigint"), ("b", "array<int>"), ("k", "string")], &["k", "id"])
}

fn operations(body: &str) -> Operations {
    read_all(&view(), Format::InsertDelete, body.as_bytes()).unwrap()
}

/// The rows that the view has: those of these lines.
fn rows(body: &str) -> RecordBatch {
    let inserts = read_all(&view(), Format::Raw, body.as_bytes()).unwrap().resolve(|_| unreachable!()).unwrap();
    inserts.project(&[1, 2, 3, 4]).unwrap()
}

fn shown(batch: &RecordBatch) -> Vec<String> {
    let cell = |c: &ArrayRef, i| if c.is_null(i) { "-".to_owned() } else { array_value_to_string(c, i).unwrap() };
    let row = |i| batch.columns().iter().map(|c| cell(c, i)).collect::<Vec<_>>().join(" ");
    (0..batch.num_rows()).map(row).collect()
}

fn check(body: &str, current: &str, asked: &[&str], expected: &[&str]) {
    let resolved = operations(body)
        .resolve(|keys| {
            assert_eq!(shown(keys), asked, "{body}");
            Ok(rows(current))
        })
        .unwrap();
    assert_eq!(shown(&resolved), expected, "{body}");
}

#[test]
fn an_update_keeps_what_it_does_not_name() {
    let row = r#"{"k":"x","id":1,"a":"old","b":[1]}"#;
    check(r#"{"update":{"k":"x","id":1,"a":"new"}}"#, row, &["x 1"], &["u new 1 [1] x"]);
    check(r#"{"update":{"k":"x","id":1,"a":null}}"#, row, &["x 1"], &["u - 1 [1] x"]);
    check(r#"{"update":{"k":"x","id":1}}"#, row, &["x 1"], &["u old 1 [1] x"]);
    let other = r#"{"k":"y","id":1,"a":"other"}"#;
    check(
        r#"{"update":{"k":"x","id":1,"a":"1"}}
           {"update":{"k":"y","id":1,"b":[2]}}
           {"insert":{"k":"z","id":1,"a":"z"}}
           {"update":{"k":"x","id":1,"b":[3]}}
           {"delete":{"k":"y","id":1},"update":{"k":"z","id":1,"b":[4]}}"#,
        &format!("{other}\n{row}\n{}", r#"{"k":"unasked","id":1}"#),
        &["x 1", "y 1"],
        &["u 1 1 [1] x", "u other 1 [2] y", "i z 1 - z", "u 1 1 [3] x", "d - 1 - y", "u z 1 [4] z"],
    );
}

#[test]
fn rows_are_asked_for_only_where_an_update_lacks_columns() {
    for body in [
        "",
        r#"{"insert":{"k":"x","id":1}}"#,
        r#"{"delete":{"k":"x","id":1}}"#,
        r#"{"update":{"k":"x","id":1,"a":"a","b":null}}"#,
        r#"{"insert":{"k":"x","id":1}}
           {"update":{"k":"x","id":1,"a":"a"}}"#,
    ] {
        operations(body).resolve(|_| unreachable!("asked for {body}")).unwrap();
    }
}

#[test]
fn an_update_without_a_row_is_refused_by_its_line() {
    for (body, current) in [
        ("{\"insert\":{\"k\":\"x\",\"id\":2}}\n{\"update\":{\"k\":\"x\",\"id\":1}}", ""),
        ("{\"delete\":{\"k\":\"x\",\"id\":1}}\n{\"update\":{\"k\":\"x\",\"id\":1}}", r#"{"k":"x","id":1}"#),
    ] {
        let err = operations(body).resolve(|_| Ok(rows(current))).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Refused, "{body}");
        assert!(err.message().starts_with("line 2: "), "{err}");
        assert!(err.message().contains("insert the whole row"), "{err}");
    }
    let err = operations("{\"update\":{\"k\":\"x\",\"id\":1}}").resolve(|_| Err(crate::Error::unavailable("no store")));
    assert_eq!(err.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn many_updates_of_one_large_row_are_refused() {
    let large = format!("{{\"insert\":{{\"k\":\"x\",\"id\":1,\"a\":\"{}\"}}}}\n", "x".repeat(1 << 20));
    let body = large + &"{\"update\":{\"k\":\"x\",\"id\":1,\"b\":[]}}\n".repeat(2000);
    let operations = operations(&body);
    assert_eq!(operations.rows(), 2001);
    let err = operations.resolve(|_| unreachable!()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Refused);
    assert!(err.message().contains("several steps"), "{err}");
}
