use arrow::array::{
    Date32Array, Date64Array, Decimal32Array, Decimal128Array, Decimal256Array, DictionaryArray, FixedSizeListArray,
    Float16Array, Int32Array, Int64Array, LargeListViewArray, LargeStringArray, ListViewArray, NullArray, RunArray,
    StringArray, TimestampMicrosecondArray, TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray,
    UInt64Array,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{Int8Type, Int32Type, Int64Type, Schema, i256};

use super::*;
use crate::error::ErrorKind;
use crate::schema::View;

fn schema(fields: Vec<(&str, DataType)>) -> Schema {
    Schema::new(fields.into_iter().map(|(n, t)| Field::new(n, t, true)).collect::<Vec<_>>())
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

fn refused(given: ArrayRef) -> String {
    let err = conformed(&Arc::clone(&given), given).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Incompatible);
    err.message().to_string()
}

fn same(given: ArrayRef, expected: &dyn Array) {
    assert_eq!(conformed(&given, Arc::clone(&given)).unwrap().as_ref(), expected);
}

#[test]
fn values_are_widened_exactly() {
    same(
        Arc::new(UInt64Array::from(vec![Some(u64::MAX), None])),
        &Decimal128Array::from(vec![Some(i128::from(u64::MAX)), None]).with_precision_and_scale(20, 0).unwrap(),
    );
    let half = |v: f32| Float16Array::from(vec![Some(v)].into_iter().map(|v| v.map(half)).collect::<Vec<_>>());
    same(Arc::new(half(0.5)), &arrow::array::Float32Array::from(vec![0.5]));
    let decimal = |v, p, s| Decimal128Array::from(vec![v]).with_precision_and_scale(p, s).unwrap();
    same(Arc::new(Decimal32Array::from(vec![-5]).with_precision_and_scale(4, 2).unwrap()), &decimal(-5, 4, 2));
    same(Arc::new(Decimal32Array::from(vec![-5]).with_precision_and_scale(4, -2).unwrap()), &decimal(-500, 6, 0));
    let most = 10i128.pow(38) - 1;
    let wide = Decimal256Array::from(vec![i256::from_i128(-most)]).with_precision_and_scale(38, 7).unwrap();
    same(Arc::new(wide), &decimal(-most, 38, 7));
    same(Arc::new(Date64Array::from(vec![-86_400_000])), &Date32Array::from(vec![-1]));
    let micros = |v| TimestampMicrosecondArray::from(vec![v]);
    same(Arc::new(TimestampSecondArray::from(vec![-3])), &micros(-3_000_000));
    same(
        Arc::new(TimestampMillisecondArray::from(vec![4]).with_timezone("+05:30")),
        &micros(4_000).with_timezone("UTC"),
    );
    same(Arc::new(TimestampNanosecondArray::from(vec![-5_000])), &micros(-5));
    same(
        Arc::new(TimestampMicrosecondArray::from(vec![7]).with_timezone("Asia/Kabul")),
        &micros(7).with_timezone("UTC"),
    );
}

fn half(value: f32) -> <arrow::datatypes::Float16Type as ArrowPrimitiveType>::Native {
    <arrow::datatypes::Float16Type as ArrowPrimitiveType>::Native::from_f32(value)
}

#[test]
fn a_value_that_does_not_fit_is_refused_by_its_path() {
    for (given, part) in [
        (Arc::new(TimestampSecondArray::from(vec![i64::MAX])) as ArrayRef, "Timestamp(s)"),
        (Arc::new(TimestampMillisecondArray::from(vec![i64::MIN / 1_000 - 1])), "Timestamp(ms)"),
        (Arc::new(TimestampNanosecondArray::from(vec![1])), "microsecond"),
        (Arc::new(Date64Array::from(vec![86_400_001])), "no whole day"),
        (Arc::new(Date64Array::from(vec![86_400_000 * (i64::from(i32::MAX) + 1)])), "no whole day"),
        (Arc::new(Decimal128Array::from(vec![1000]).with_precision_and_scale(3, 1).unwrap()), "Decimal128(3, 1)"),
    ] {
        let message = refused(Arc::clone(&given));
        assert!(message.contains("\"c\"") && message.contains(part), "{message}");
        let message = refused(list("item", given));
        assert!(message.contains("\"c[]\"") && message.contains(part), "{message}");
    }
    let times = Arc::new(TimestampNanosecondArray::from(vec![1])) as ArrayRef;
    let inner = StructArray::from(vec![(field("t", times.data_type().clone()), times)]);
    let message = refused(map(["entries", "key", "value"], list("item", Arc::new(inner))));
    assert!(message.contains("\"c.value[].t\""), "{message}");
}

#[test]
fn what_stands_below_a_null_is_not_looked_at() {
    let odd = Arc::new(TimestampNanosecondArray::from(vec![1, 2_000])) as ArrayRef;
    let fields = Fields::from(vec![Field::new("t", odd.data_type().clone(), false)]);
    let given = StructArray::new(fields, vec![Arc::clone(&odd)], Some(vec![false, true].into()));
    let given = Arc::new(given) as ArrayRef;
    let rows = conformed(&Arc::clone(&given), given).unwrap();
    assert!(rows.is_null(0));
    assert_eq!(rows.as_struct().column(0).as_primitive::<TimestampMicrosecondType>().value(1), 2);

    let pairs = |valid: Vec<bool>| {
        FixedSizeListArray::new(field("item", odd.data_type().clone()), 1, Arc::clone(&odd), Some(valid.into()))
    };
    let rows = conformed(&(Arc::new(pairs(vec![true, true])) as ArrayRef), Arc::new(pairs(vec![false, true]))).unwrap();
    assert_eq!(rows.as_list::<i32>().value_offsets(), [0, 0, 1]);
    let offsets = OffsetBuffer::from_lengths([1, 1]);
    let lists = ListArray::new(
        field("item", odd.data_type().clone()),
        offsets,
        Arc::clone(&odd),
        Some(vec![false, true].into()),
    );
    same(Arc::new(lists), &rows);
}

#[test]
fn encodings_are_undone_at_every_depth() {
    let words = ["b", "a", "b"].into_iter().collect::<DictionaryArray<Int8Type>>();
    same(Arc::new(words.clone()), &StringArray::from(vec!["b", "a", "b"]));
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 3]), &StringArray::from(vec![Some("x"), None]))
        .unwrap();
    same(Arc::new(runs.clone()), &StringArray::from(vec![Some("x"), Some("x"), None]));
    same(Arc::new(runs.slice(1, 2)), &StringArray::from(vec![Some("x"), None]));
    let plain = list("element", Arc::new(StringArray::from(vec!["b", "a", "b"])));
    same(list("item", Arc::new(words.clone())), &plain);
    let inner =
        |array: ArrayRef| Arc::new(StructArray::from(vec![(field("s", array.data_type().clone()), array)])) as ArrayRef;
    let runs_of = |array: ArrayRef| {
        Arc::new(RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2]), &array).unwrap()) as ArrayRef
    };
    let given = runs_of(inner(list("item", Arc::new(words))));
    let twice = Int32Array::from(vec![0, 0]);
    same(given, &take(&inner(plain), &twice, None).unwrap());
}

#[test]
fn a_dictionary_is_judged_by_the_values_that_rows_use() {
    let values = Arc::new(TimestampNanosecondArray::from(vec![1, 2_000])) as ArrayRef;
    let of = |key: i32| {
        Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(vec![key]), Arc::clone(&values))) as ArrayRef
    };
    same(of(1), &TimestampMicrosecondArray::from(vec![2]));
    refused(of(0));
}

#[test]
fn a_column_without_any_type_is_all_null() {
    let like = numbers(&[("a", 1)]);
    let rows = conformed(&like, Arc::new(NullArray::new(2))).unwrap();
    assert_eq!((rows.data_type(), rows.null_count()), (like.data_type(), 2));
}

#[test]
fn lists_that_overlap_or_stand_in_any_order_become_plain_ones() {
    let values = Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef;
    let (starts, sizes) = (ScalarBuffer::from(vec![2i32, 0, 1, 0]), ScalarBuffer::from(vec![2i32, 3, 0, 4]));
    let nulls = Some(vec![true, true, true, false].into());
    let given = ListViewArray::new(field("item", DataType::Int64), starts, sizes, values, nulls);
    let rows = conformed(&(Arc::new(given.clone()) as ArrayRef), Arc::new(given)).unwrap();
    let rows = rows.as_list::<i32>();
    assert_eq!(rows.value_offsets(), [0, 2, 5, 5, 5]);
    assert_eq!(rows.values().as_primitive::<Int64Type>().values(), &[3, 4, 1, 2, 3]);
    assert!(rows.is_null(3));
}

#[test]
fn ten_thousand_columns_are_conformed_in_any_order() {
    let names: Vec<String> = (0..10_000).map(|i| format!("c{i}")).collect();
    let fields: Vec<Field> = names.iter().map(|name| Field::new(name, DataType::Int64, true)).collect();
    let view = View::new("wide", &Schema::new(fields), vec!["c0".into()]).unwrap();
    let column = Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let batch = RecordBatch::try_from_iter(names.iter().rev().map(|name| (name, Arc::clone(&column)))).unwrap();
    assert_eq!(view.conform(&batch, "here").unwrap().schema_ref(), view.schema());
}
