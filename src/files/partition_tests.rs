use arrow::array::{
    BooleanArray, Date32Array, Decimal128Array, Int8Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, TimeUnit};

use super::*;
use crate::error::ErrorKind;

/// The partition value of a column with one row, beside another column.
fn written(cell: ArrayRef) -> Result<Option<String>> {
    let other: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let rows = RecordBatch::try_from_iter_with_nullable(vec![("p", cell, true), ("v", other, true)]).unwrap();
    let partitioning = Partitioning::new(&rows.schema(), &["p".to_string()]).unwrap();
    let mut values = partitioning.values(&partitioning.keys(&rows), 0)?;
    Ok(values.remove("p").unwrap())
}

#[test]
fn values_are_written_as_the_delta_protocol_says() {
    let decimal = |value, precision, scale| {
        let cells = Decimal128Array::from(vec![value]).with_precision_and_scale(precision, scale).unwrap();
        Arc::new(cells) as ArrayRef
    };
    let micros = |at| TimestampMicrosecondArray::from(vec![at]);
    let long = "é".repeat(10_000);
    let cases: Vec<(ArrayRef, Option<&str>)> = vec![
        (Arc::new(BooleanArray::from(vec![true])), Some("true")),
        (Arc::new(Int8Array::from(vec![i8::MIN])), Some("-128")),
        (Arc::new(Int64Array::from(vec![i64::MIN])), Some("-9223372036854775808")),
        (decimal(1, 18, 18), Some("0.000000000000000001")),
        (decimal(-150_000, 10, 4), Some("-15.0000")),
        (decimal(150, 10, 2), Some("1.50")),
        (decimal(7, 18, 0), Some("7")),
        (Arc::new(Date32Array::from(vec![*DAYS.start()])), Some("0001-01-01")),
        (Arc::new(Date32Array::from(vec![*DAYS.end()])), Some("9999-12-31")),
        (Arc::new(micros(-1)), Some("1969-12-31 23:59:59.999999")),
        (Arc::new(micros(0).with_timezone("UTC")), Some("1970-01-01T00:00:00.000000Z")),
        (Arc::new(micros(*MICROS.start()).with_timezone("UTC")), Some("0001-01-01T00:00:00.000000Z")),
        (Arc::new(micros(*MICROS.end())), Some("9999-12-31 23:59:59.999999")),
        (Arc::new(StringArray::from(vec!["a/b=%2F \n\u{1}'\""])), Some("a/b=%2F \n\u{1}'\"")),
        (Arc::new(StringArray::from(vec![long.as_str()])), Some(&long)),
        (Arc::new(StringArray::from(vec![None::<&str>])), None),
        (Arc::new(Date32Array::from(vec![None])), None),
    ];
    for (cell, expected) in cases {
        assert_eq!(written(Arc::clone(&cell)).unwrap().as_deref(), expected, "{cell:?}");
    }
}

#[test]
fn values_that_readers_do_not_find_again_are_refused() {
    let decimal = Decimal128Array::from(vec![-150]).with_precision_and_scale(10, 2).unwrap();
    let cases: Vec<(ArrayRef, &str)> = vec![
        (Arc::new(StringArray::from(vec![""])), "holds \"\""),
        (Arc::new(StringArray::from(vec!["__HIVE_DEFAULT_PARTITION__"])), "for null"),
        (Arc::new(decimal), "negative decimal"),
        (Arc::new(Date32Array::from(vec![DAYS.start() - 1])), "years"),
        (Arc::new(Date32Array::from(vec![DAYS.end() + 1])), "years"),
        (Arc::new(TimestampMicrosecondArray::from(vec![MICROS.start() - 1])), "years"),
        (Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX])), "years"),
    ];
    for (cell, part) in cases {
        let refused = written(Arc::clone(&cell)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{cell:?}");
        assert!(refused.message().contains(part) && refused.message().contains("\"p\""), "{refused}");
    }
}

#[test]
fn columns_that_cannot_partition_are_refused_by_name() {
    let field = |name: &str, data_type| Field::new(name, data_type, true);
    let schema = Schema::new(vec![
        field("__step", DataType::Int64),
        field("Region", DataType::Utf8),
        field("day", DataType::Date32),
        field("ratio", DataType::Float64),
        field("raw", DataType::Binary),
        field("wide", DataType::Decimal128(19, 0)),
        field("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
    ]);
    let check = |names: &[&str]| check_partition_by(&schema, &names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
    for names in [&[][..], &["Region"], &["day", "Region", "at"]] {
        check(names).unwrap();
    }
    let cases = [
        (&["none"][..], ErrorKind::Config, "not a column"),
        (&["region"], ErrorKind::Config, "did you mean \"Region\"?"),
        (&["day", "day"], ErrorKind::Config, "twice"),
        (&["__step"], ErrorKind::Config, "continuity"),
        (&["ratio"], ErrorKind::Incompatible, "Float64"),
        (&["raw"], ErrorKind::Incompatible, "Binary"),
        (&["wide"], ErrorKind::Incompatible, "Decimal128(19, 0)"),
    ];
    for (names, kind, part) in cases {
        let refused = check(names).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.message().contains(part) && refused.message().contains(names[0]), "{refused}");
    }
    let small = Schema::new(vec![field("__step", DataType::Int64), field("day", DataType::Date32)]);
    let every = check_partition_by(&small, &["day".to_string()]).unwrap_err();
    assert!(every.message().contains("every column"), "{every}");
}
