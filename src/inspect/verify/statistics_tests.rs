use super::*;

fn read(json: &str, data_type: &DataType, side: Side) -> Option<Cell> {
    Cell::read(json, data_type, side)
}

#[test]
fn a_bound_is_read_so_that_it_compares_as_its_text_does() {
    let whole = |n: i128| Some(Cell::Whole(n));
    let cents = DataType::Decimal128(38, 2);
    let time = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    for (json, data_type, min, max) in [
        ("5", DataType::Int64, whole(5), whole(5)),
        ("5.5", DataType::Int64, None, None),
        ("1.25", cents.clone(), whole(125), whole(125)),
        ("1.255", cents.clone(), whole(126), whole(125)),
        ("-1.255", cents.clone(), whole(-125), whole(-126)),
        ("1.2e3", cents.clone(), whole(120_000), whole(120_000)),
        ("\"12345678901234567.89\"", cents, whole(1_234_567_890_123_456_789), whole(1_234_567_890_123_456_789)),
        ("\"NaN\"", DataType::Float64, None, None),
        ("0.1", DataType::Float32, Some(Cell::Float(f64::from(0.1f32))), Some(Cell::Float(f64::from(0.1f32)))),
        ("\"1970-01-02\"", DataType::Date32, whole(1), whole(1)),
        ("\"1970-01-01T00:00:00.001Z\"", time.clone(), whole(1000), whole(1999)),
        ("\"1970-01-01T01:00:00.000+01:00\"", time.clone(), whole(0), whole(999)),
        ("\"1970-01-01 00:00:00.000001\"", time, whole(1), whole(1)),
        ("\"a\"", DataType::Utf8, Some(Cell::Text("a".into())), Some(Cell::Text("a".into()))),
        ("\"a\"", DataType::Binary, None, None),
    ] {
        assert_eq!(read(json, &data_type, Side::Min), min, "{json} as the least {data_type}");
        assert_eq!(read(json, &data_type, Side::Max), max, "{json} as the greatest {data_type}");
    }
}
