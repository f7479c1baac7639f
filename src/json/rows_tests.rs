use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int32Array, Int64Array, ListArray, MapArray, MapBuilder, MapFieldNames, StringArray, StringBuilder, StructArray,
    TimestampMicrosecondArray,
};
use arrow::array::{Int32Builder, Int64Builder};
use arrow::datatypes::{Field, Fields, Schema};
use futures::TryStreamExt;

use super::*;
use crate::error::ErrorKind;
use crate::source::files::{FilesSettings, FilesSource};
use crate::source::{Pick, Source};

fn decimals(precision: u8, scale: i8, values: Vec<Option<i128>>) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

fn map_names() -> MapFieldNames {
    MapFieldNames { entry: "key_value".into(), key: "key".into(), value: "value".into() }
}

fn text_map() -> MapArray {
    let mut map = MapBuilder::new(Some(map_names()), StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("a\"b");
    map.values().append_value(1);
    map.keys().append_value("");
    map.values().append_null();
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    map.finish()
}

fn long_map() -> MapArray {
    let mut map = MapBuilder::new(Some(map_names()), Int64Builder::new(), StringBuilder::new());
    map.keys().append_value(7);
    map.values().append_value("x");
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    map.finish()
}

fn list() -> ListArray {
    let values = [Some(vec![Some(1i64), None, Some(-3)]), None, Some(vec![])];
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(values);
    let (_, offsets, values, nulls) = list.into_parts();
    ListArray::new(Arc::new(Field::new("element", DataType::Int64, true)), offsets, values, nulls)
}

fn structs() -> StructArray {
    let fields = Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("d", DataType::Date32, true)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), Some(2), None])),
        Arc::new(Date32Array::from(vec![Some(0), None, None])),
    ];
    StructArray::new(fields, columns, Some(vec![true, false, true].into()))
}

fn micros(zone: Option<&str>, values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone))
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let mut written = Vec::new();
    write_ndjson(batch, &mut written).unwrap();
    String::from_utf8(written).unwrap().lines().map(str::to_string).collect()
}

/// Columns of three rows, and what their cells are as JSON.
fn columns() -> Vec<(&'static str, ArrayRef, [&'static str; 3])> {
    vec![
        ("bool", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])), ["true", "false", "null"]),
        ("tiny", Arc::new(Int8Array::from(vec![Some(-128), Some(127), None])), ["-128", "127", "null"]),
        (
            "big",
            Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX, 0])),
            ["-9223372036854775808", "9223372036854775807", "0"],
        ),
        ("money", decimals(10, 2, vec![Some(1250), Some(-5), None]), ["12.50", "-0.05", "null"]),
        (
            "whole",
            decimals(38, 0, vec![Some(10i128.pow(38) - 1), Some(0), Some(-7)]),
            ["99999999999999999999999999999999999999", "0", "-7"],
        ),
        (
            "small",
            decimals(38, 38, vec![Some(1), Some(-10i128.pow(37)), Some(0)]),
            [
                "0.00000000000000000000000000000000000001",
                "-0.10000000000000000000000000000000000000",
                "0.00000000000000000000000000000000000000",
            ],
        ),
        ("float", Arc::new(Float32Array::from(vec![0.1, f32::NAN, f32::MAX])), ["0.1", "\"NaN\"", "3.4028235e+38"]),
        (
            "double",
            Arc::new(Float64Array::from(vec![-0.0, f64::INFINITY, f64::NEG_INFINITY])),
            ["-0.0", "\"Infinity\"", "\"-Infinity\""],
        ),
        (
            "double2",
            Arc::new(Float64Array::from(vec![1.0, 5e-324, 0.1 + 0.2])),
            ["1.0", "5e-324", "0.30000000000000004"],
        ),
        (
            "text",
            Arc::new(StringArray::from(vec![Some("a\"\\\n\u{1}é\u{1F600}"), Some(""), None])),
            ["\"a\\\"\\\\\\n\\u0001é\u{1F600}\"", "\"\"", "null"],
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from(vec![Some(&[0xff_u8, 0xfe, 0x00][..]), Some(&[0x61][..]), None])),
            ["\"//4A\"", "\"YQ==\"", "null"],
        ),
        (
            "day",
            Arc::new(Date32Array::from(vec![0, 11_016, -719_528])),
            ["\"1970-01-01\"", "\"2000-02-29\"", "\"0000-01-01\""],
        ),
        (
            "day2",
            Arc::new(Date32Array::from(vec![-1, 11_017, 2_932_896])),
            ["\"1969-12-31\"", "\"2000-03-01\"", "\"9999-12-31\""],
        ),
        (
            "at",
            micros(Some("UTC"), vec![Some(0), Some(-1), Some(1_769_860_800_250_000)]),
            ["\"1970-01-01T00:00:00Z\"", "\"1969-12-31T23:59:59.999999Z\"", "\"2026-01-31T12:00:00.25Z\""],
        ),
        (
            "local",
            micros(None, vec![Some(1), Some(86_399_000_000), None]),
            ["\"1970-01-01T00:00:00.000001\"", "\"1970-01-01T23:59:59\"", "null"],
        ),
        ("list", Arc::new(list()), ["[1,null,-3]", "null", "[]"]),
        ("struct", Arc::new(structs()), ["{\"x\":1,\"d\":\"1970-01-01\"}", "null", "{\"x\":null,\"d\":null}"]),
        ("map", Arc::new(text_map()), ["{\"a\\\"b\":1,\"\":null}", "null", "{}"]),
    ]
}

#[test]
fn each_type_is_written_exactly() {
    let mut all = columns();
    all.push(("pairs", Arc::new(long_map()), ["[[7,\"x\"]]", "null", "[]"]));
    all.push((
        "far",
        Arc::new(Date32Array::from(vec![2_932_897, -719_529, i32::MAX])),
        ["\"+10000-01-01\"", "\"-0001-12-31\"", "\"+5881580-07-11\""],
    ));
    for (name, column, expected) in all {
        let batch = RecordBatch::try_from_iter_with_nullable(vec![(name, column, true)]).unwrap();
        let expected: Vec<String> = expected.iter().map(|cell| format!("{{\"{name}\":{cell}}}")).collect();
        assert_eq!(lines(&batch), expected, "{name}");
        let cut: Vec<String> = expected.iter().skip(1).cloned().collect();
        assert_eq!(lines(&batch.slice(1, 2)), cut, "{name}, sliced");
    }
}

#[test]
fn an_object_has_the_columns_in_order() {
    let columns: Vec<(&str, ArrayRef)> =
        vec![("b", Arc::new(Int32Array::from(vec![1, 2]))), ("a\"", Arc::new(StringArray::from(vec!["x", "y"])))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    assert_eq!(lines(&batch), ["{\"b\":1,\"a\\\"\":\"x\"}", "{\"b\":2,\"a\\\"\":\"y\"}"]);
}

#[test]
fn a_type_without_form_is_named() {
    let column: ArrayRef = Arc::new(arrow::array::UInt8Array::from(vec![1]));
    let batch = RecordBatch::try_from_iter(vec![("odd", column)]).unwrap();
    let err = write_ndjson(&batch, &mut Vec::new()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Incompatible);
    assert!(err.message().contains("\"odd\""), "{err}");
}

async fn read_back(folder: &Path, schema: &Schema) -> Vec<RecordBatch> {
    let settings = FilesSettings {
        path: folder.to_owned(),
        id: None,
        view: "v".into(),
        key: vec![],
        columns: schema.fields().iter().map(|f| (f.name().clone(), f.data_type().clone())).collect(),
        fold_memory: FilesSettings::FOLD_MEMORY,
    };
    let mut source = FilesSource::new(settings).unwrap();
    source.snapshot(Pick::Newest { until: None }).await.unwrap().1.rows.try_collect().await.unwrap()
}

#[tokio::test]
async fn the_files_source_reads_back_what_is_written() {
    let cells = columns().into_iter().map(|(name, column, _)| (name, column, true));
    let batch = RecordBatch::try_from_iter_with_nullable(cells).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("v")).unwrap();
    let mut file = std::fs::File::create(dir.path().join("v/snapshot-1.ndjson")).unwrap();
    write_ndjson(&batch, &mut file).unwrap();
    let read = read_back(dir.path(), batch.schema_ref()).await;
    assert_eq!(read.len(), 1);
    for (name, column, _) in columns() {
        assert_eq!(read[0].column_by_name(name).unwrap(), &column, "{name}");
    }
}
