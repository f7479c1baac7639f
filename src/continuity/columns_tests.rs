use std::sync::Arc;

use super::*;

fn schema(columns: &[(&str, DataType, bool)]) -> Schema {
    Schema::new(columns.iter().map(|(name, kind, null)| Field::new(*name, kind.clone(), *null)).collect::<Vec<_>>())
}

#[test]
fn a_difference_says_what_became_of_each_column() {
    let (int, long, text) = (DataType::Int32, DataType::Int64, DataType::Utf8);
    let place = |x: &[&str]| DataType::Struct(x.iter().map(|n| Field::new(*n, DataType::Float64, true)).collect());
    let list = DataType::List(Arc::new(Field::new("element", DataType::Date32, false)));
    let old = schema(&[("a", long.clone(), false), ("b", int.clone(), true)]);
    for (new, said, added) in [
        (schema(&[("b", int.clone(), true), ("a", long.clone(), false)]), "", Some(0)),
        (
            schema(&[("c", text.clone(), true), ("a", long.clone(), false), ("b", int.clone(), true)]),
            "column \"c\" string is added",
            Some(1),
        ),
        (
            schema(&[("a", long.clone(), false), ("b", int.clone(), true), ("c", list, false)]),
            "column \"c\" array<date not null> not null is added",
            None,
        ),
        (schema(&[("a", long.clone(), false)]), "column \"b\" int is removed", None),
        (schema(&[("a", long.clone(), false), ("b", long.clone(), true)]), "column \"b\" is bigint and was int", None),
        (
            schema(&[("a", long.clone(), true), ("B", int, true)]),
            "column \"a\" is bigint and was bigint not null, column \"B\" int is added, column \"b\" int is removed",
            None,
        ),
    ] {
        let difference = Difference::between(&old, &new);
        assert_eq!(difference.to_string(), said);
        assert_eq!(difference.added().map(|fields| fields.len()), added, "{said}");
        assert_eq!(difference.is_empty(), said.is_empty());
    }
    let nested =
        Difference::between(&schema(&[("p", place(&["x"]), true)]), &schema(&[("p", place(&["x", "y"]), true)]));
    assert_eq!(nested.to_string(), "column \"p\" is struct<x:double,y:double> and was struct<x:double>");
    assert_eq!(nested.added(), None);
}

#[test]
fn a_table_grows_by_nullable_columns_behind_its_own() {
    let field = |name: &str, kind: &str, null: bool| {
        format!(r#"{{"name":"{name}","type":"{kind}","nullable":{null},"metadata":{{}}}}"#)
    };
    let table = |fields: &[String]| format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
    let (a, b) = (field("a", "long", false), field("b", "string", true));
    let old = table(&[a.clone(), b.clone()]);
    let respaced = old.replace(':', ": ");
    for (new, expected) in [
        (old.clone(), None),
        (respaced, None),
        (table(&[a.clone(), b.clone(), field("c", "long", true)]), None),
        (table(&[a.clone(), b.clone(), field("c", "long", false)]), Some("\"c\" is added and may not be null")),
        (table(&[a.clone(), b.clone(), field("B", "string", true)]), Some("\"B\" is added beside")),
        (table(&[a.clone(), field("c", "long", true), b.clone()]), Some("\"b\" is not what it was")),
        (table(std::slice::from_ref(&a)), Some("\"b\" is not what it was")),
        (table(&[field("a", "string", false), b]), Some("\"a\" is not what it was")),
        ("no schema".into(), Some("cannot be understood")),
    ] {
        let why = why_not_wider(&old, &new);
        match expected {
            None => assert_eq!(why, None, "{new}"),
            Some(part) => assert!(why.as_ref().is_some_and(|why| why.contains(part)), "{new}: {why:?}"),
        }
    }
}
