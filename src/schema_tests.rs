use arrow::array::{
    Array, AsArray, Int64Array, LargeListViewArray, LargeStringArray, ListArray, ListViewArray, MapArray, StringArray,
    StructArray, TimestampNanosecondArray,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::Int64Type;

use super::*;
use crate::error::ErrorKind;

fn schema(fields: Vec<(&str, DataType)>) -> Schema {
    Schema::new(fields.into_iter().map(|(n, t)| Field::new(n, t, true)).collect::<Vec<_>>())
}

#[test]
fn a_type_that_cannot_be_kept_is_refused_by_its_column() {
    for refused in
        [DataType::UInt8, DataType::Float16, DataType::Duration(TimeUnit::Second), DataType::Decimal256(40, 2)]
    {
        let err = View::new("v", &schema(vec![("id", DataType::Int64), ("odd", refused.clone())]), vec![]).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Incompatible);
        assert!(err.message().contains("\"odd\""), "{refused}: {err}");
    }
}

#[test]
fn names_that_the_table_cannot_hold_are_refused() {
    for name in ["__step", "__OP", "a b", "a=b", ""] {
        assert!(View::new("v", &schema(vec![(name, DataType::Int64)]), vec![]).is_err(), "{name:?}");
    }
    assert!(View::new("v", &schema(vec![("a", DataType::Int64), ("A", DataType::Int64)]), vec![]).is_err());
}

#[test]
fn a_keyed_view_is_nullable_outside_its_key() {
    let strict = Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("x", DataType::Utf8, false)]);
    let view = View::new("v", &strict, vec!["id".into()]).unwrap();
    let nullable: Vec<bool> = view.schema().fields().iter().map(|f| f.is_nullable()).collect();
    assert_eq!(nullable, [false, true]);
    let names: Vec<String> = view.changelog_schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(names, ["__generation", "__step", "__op", "id", "x"]);
}

#[test]
fn rows_are_conformed_by_name_and_never_lose_precision() {
    let view = View::new("v", &schema(vec![("s", DataType::Utf8), ("n", DataType::Int64)]), vec![]).unwrap();
    let batch = RecordBatch::try_from_iter(vec![
        ("n", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("s", Arc::new(LargeStringArray::from(vec!["x"])) as ArrayRef),
    ])
    .unwrap();
    let rows = view.conform(&batch, "here").unwrap();
    assert_eq!(rows.schema_ref(), view.schema());

    let times = View::new("v", &schema(vec![("t", DataType::Timestamp(TimeUnit::Nanosecond, None))]), vec![]).unwrap();
    for (nanos, fits) in [(5_000, true), (5_001, false)] {
        let column = Arc::new(TimestampNanosecondArray::from(vec![nanos])) as ArrayRef;
        let batch = RecordBatch::try_from_iter(vec![("t", column)]).unwrap();
        assert_eq!(times.conform(&batch, "here").is_ok(), fits, "{nanos}");
    }
}

#[test]
fn a_null_key_is_refused() {
    let view = View::new("v", &schema(vec![("id", DataType::Int64)]), vec!["id".into()]).unwrap();
    let batch =
        RecordBatch::try_from_iter(vec![("id", Arc::new(Int64Array::from(vec![None, Some(1)])) as ArrayRef)]).unwrap();
    let err = view.conform(&batch, "here").unwrap_err();
    assert!(err.message().contains("\"id\""), "{err}");
}

fn field(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

/// A struct of one row: each name with its number.
fn numbers(fields: &[(&str, i64)]) -> ArrayRef {
    let one =
        |(name, n): &(&str, i64)| (field(name, DataType::Int64), Arc::new(Int64Array::from(vec![*n])) as ArrayRef);
    Arc::new(StructArray::from(fields.iter().map(one).collect::<Vec<_>>()))
}

/// A list of one row that holds `values`, its element called `inner`.
fn list(inner: &str, values: ArrayRef) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    Arc::new(ListArray::new(field(inner, values.data_type().clone()), offsets, values, None))
}

/// A map of one row and entry, with the names `[entry, key, value]`.
fn map([entry, key, value]: [&str; 3], values: ArrayRef) -> ArrayRef {
    let fields = vec![Field::new(key, DataType::Utf8, false), Field::new(value, values.data_type().clone(), true)];
    let keys = Arc::new(StringArray::from(vec!["k"])) as ArrayRef;
    let entries = StructArray::new(fields.into(), vec![keys, values], None);
    let entry = Arc::new(Field::new(entry, entries.data_type().clone(), false));
    Arc::new(MapArray::new(entry, OffsetBuffer::from_lengths([1]), entries, None, false))
}

/// The column `c` with the values of `given`, as a view keeps it whose column `c` is of the type of `like`.
fn conformed(like: &ArrayRef, given: ArrayRef) -> Result<ArrayRef> {
    let view = View::new("v", &schema(vec![("c", like.data_type().clone())]), vec![])?;
    let batch = RecordBatch::try_from_iter_with_nullable(vec![("c", given, true)]).unwrap();
    view.conform(&batch, "here").map(|rows| Arc::clone(rows.column(0)))
}

#[test]
fn a_renamed_field_is_refused_at_every_depth() {
    let (wanted, renamed) = (numbers(&[("a", 1), ("b", 2)]), numbers(&[("a", 1), ("c", 2)]));
    let names = ["key_value", "key", "value"];
    for (like, given) in [
        (Arc::clone(&wanted), Arc::clone(&renamed)),
        (list("element", Arc::clone(&wanted)), list("element", Arc::clone(&renamed))),
        (map(names, Arc::clone(&wanted)), map(names, Arc::clone(&renamed))),
        (wanted, numbers(&[("a", 1), ("b", 2), ("c", 3)])),
        (numbers(&[("a", 1)]), numbers(&[("A", 1)])),
    ] {
        let err = conformed(&like, given).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Incompatible, "{like:?}");
        assert!(err.message().contains("\"c\""), "{err}");
    }
}

#[test]
fn what_a_writer_calls_the_members_of_lists_and_maps_does_not_matter() {
    let values = numbers(&[("a", 1), ("b", 2)]);
    let like = list("element", Arc::clone(&values));
    assert_eq!(&conformed(&like, list("item", Arc::clone(&values))).unwrap(), &like);
    let like = map(["key_value", "key", "value"], Arc::clone(&values));
    assert_eq!(&conformed(&like, map(["entries", "keys", "values"], values)).unwrap(), &like);
}

#[test]
fn fields_in_another_order_are_found_by_name() {
    let (like, given) = (numbers(&[("a", 1), ("b", 2)]), numbers(&[("b", 2), ("a", 1)]));
    assert_eq!(&conformed(&like, Arc::clone(&given)).unwrap(), &like);
    let (like, given) = (list("element", like), list("element", given));
    assert_eq!(&conformed(&like, Arc::clone(&given)).unwrap(), &like);
    let names = ["key_value", "key", "value"];
    let like = map(names, like);
    assert_eq!(&conformed(&like, map(names, given)).unwrap(), &like);
}

#[test]
fn what_may_be_null_may_differ_as_long_as_nothing_is() {
    let strict = Fields::from(vec![Field::new("n", DataType::Int64, false)]);
    let of = |n| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let like = Arc::new(StructArray::new(strict, vec![of(Some(1))], None)) as ArrayRef;
    let loose = |n| Arc::new(StructArray::from(vec![(field("n", DataType::Int64), of(n))])) as ArrayRef;
    assert_eq!(&conformed(&like, loose(Some(1))).unwrap(), &like);
    assert_eq!(conformed(&like, loose(None)).unwrap_err().kind(), ErrorKind::Incompatible);
    assert_eq!(conformed(&loose(None), like).unwrap().as_struct().column(0).as_primitive::<Int64Type>().value(0), 1);
}

#[test]
fn nanoseconds_are_found_in_every_kind_of_list() {
    for (nanos, fits) in [(5_000, true), (5_001, false)] {
        let times = Arc::new(TimestampNanosecondArray::from(vec![nanos])) as ArrayRef;
        let inner = field("item", times.data_type().clone());
        let (starts, sizes) = (ScalarBuffer::from(vec![0i32]), ScalarBuffer::from(vec![1i32]));
        let (wide_starts, wide_sizes) = (ScalarBuffer::from(vec![0i64]), ScalarBuffer::from(vec![1i64]));
        for given in [
            list("item", Arc::clone(&times)),
            Arc::new(ListViewArray::new(Arc::clone(&inner), starts, sizes, Arc::clone(&times), None)) as ArrayRef,
            Arc::new(LargeListViewArray::new(Arc::clone(&inner), wide_starts, wide_sizes, Arc::clone(&times), None)),
        ] {
            assert_eq!(conformed(&given, Arc::clone(&given)).is_ok(), fits, "{nanos} in {given:?}");
        }
    }
}
