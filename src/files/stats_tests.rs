use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{Int32Type, Schema};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;

/// The statistics as a reader finds them, each bound as the JSON text it is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Read {
    num_records: u64,
    min_values: BTreeMap<String, Box<RawValue>>,
    max_values: BTreeMap<String, Box<RawValue>>,
    null_count: BTreeMap<String, u64>,
}

impl Read {
    fn bounds(&self, column: &str) -> (Option<&str>, Option<&str>) {
        (self.min_values.get(column).map(|v| v.get()), self.max_values.get(column).map(|v| v.get()))
    }
}

/// The statistics of `batches`, each of one column `c` of the same type.
fn stats_of(columns: &[ArrayRef]) -> Read {
    let schema = Arc::new(Schema::new(vec![Field::new("c", columns[0].data_type().clone(), true)]));
    let mut stats = FileStats::new(schema.fields(), 32, &[]);
    for column in columns {
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::clone(column)]).unwrap();
        stats.add(&batch, &text_ranges(&batch));
    }
    serde_json::from_str(&stats.to_json()).unwrap()
}

fn check(column: impl Array + 'static, min: Option<&str>, max: Option<&str>) {
    let column: ArrayRef = Arc::new(column);
    let shown = format!("{column:?}");
    let read = stats_of(&[Arc::clone(&column)]);
    assert_eq!(read.bounds("c"), (min, max), "{shown}");
    assert_eq!(read.null_count["c"], column.null_count() as u64, "{shown}");
    assert_eq!(read.num_records, column.len() as u64);
}

fn decimals(precision: u8, scale: i8, values: &[i128]) -> Decimal128Array {
    Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap()
}

#[test]
fn integers_are_exact_at_every_width() {
    check(Int8Array::from(vec![Some(-128), None, Some(127)]), Some("-128"), Some("127"));
    check(Int16Array::from(vec![-32768, 5]), Some("-32768"), Some("5"));
    check(Int32Array::from(vec![i32::MIN, i32::MAX]), Some("-2147483648"), Some("2147483647"));
    check(Int64Array::from(vec![i64::MIN, i64::MAX]), Some("-9223372036854775808"), Some("9223372036854775807"));
}

#[test]
fn types_without_an_order_have_null_counts_only() {
    check(BooleanArray::from(vec![Some(true), None]), None, None);
    check(BinaryArray::from(vec![Some(b"a".as_ref()), None]), None, None);
    check(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1)]), None, None]), None, None);
}

#[test]
fn a_column_of_nulls_has_no_bounds() {
    check(Int64Array::from(vec![None, None]), None, None);
    check(StringArray::from(vec![None::<&str>]), None, None);
    check(decimals(5, 2, &[]), None, None);
}

#[test]
fn floats_keep_only_bounds_that_hold() {
    check(Float64Array::from(vec![1.5, -2.25]), Some("-2.25"), Some("1.5"));
    check(Float64Array::from(vec![0.0]), Some("-0.0"), Some("0.0"));
    check(Float64Array::from(vec![-0.0]), Some("-0.0"), Some("0.0"));
    check(Float64Array::from(vec![1.0, f64::INFINITY]), Some("1.0"), None);
    check(Float64Array::from(vec![f64::NEG_INFINITY, 1.0]), None, Some("1.0"));
    check(Float64Array::from(vec![1.0, f64::NAN]), None, None);
    check(Float64Array::from(vec![1.0, -f64::NAN, 2.0]), None, None);
    check(Float32Array::from(vec![0.1]), Some("0.10000000149011612"), Some("0.10000000149011612"));
    check(Float32Array::from(vec![f32::NAN, 0.1]), None, None);
    check(
        Float64Array::from(vec![f64::MIN_POSITIVE, f64::MAX]),
        Some("2.2250738585072014e-308"),
        Some("1.7976931348623157e+308"),
    );
}

#[test]
fn a_nan_in_any_batch_takes_the_bounds_away() {
    let batch = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
    for values in [[f64::NAN, 1.0, 2.0], [1.0, f64::NAN, 2.0], [1.0, 2.0, -f64::NAN]] {
        assert_eq!(stats_of(&values.map(batch)).bounds("c"), (None, None), "{values:?}");
    }
}

#[test]
fn decimals_are_exact_up_to_fifteen_digits_and_moved_outwards_beyond() {
    check(decimals(5, 2, &[-12345, 7]), Some("-123.45"), Some("0.07"));
    check(decimals(5, 0, &[0, 99999]), Some("0"), Some("99999"));
    check(decimals(18, 3, &[999_999_999_999_999]), Some("999999999999.999"), Some("999999999999.999"));
    check(decimals(20, 0, &[1_234_567_890_123_456]), Some("1234567890123450"), Some("1234567890123460"));
    check(decimals(20, 0, &[-1_234_567_890_123_456]), Some("-1234567890123460"), Some("-1234567890123450"));
    check(decimals(20, 2, &[12_345_678_901_234_500_000]), Some("123456789012345000.00"), Some("123456789012345000.00"));
    check(
        decimals(38, 38, &[1]),
        Some("0.00000000000000000000000000000000000001"),
        Some("0.00000000000000000000000000000000000001"),
    );
}

#[test]
fn a_decimal_bound_that_its_type_cannot_hold_is_absent() {
    check(decimals(16, 0, &[9_999_999_999_999_999]), Some("9999999999999990"), None);
    check(decimals(16, 0, &[-9_999_999_999_999_999]), None, Some("-9999999999999990"));
    let most = 10i128.pow(38) - 1;
    check(decimals(38, 0, &[most, -most]), None, None);
}

#[test]
fn strings_are_cut_at_thirty_two_characters() {
    let thirty_two = "é".repeat(32);
    let quoted = |text: &str| format!("\"{text}\"");
    check(StringArray::from(vec![thirty_two.as_str()]), Some(&quoted(&thirty_two)), Some(&quoted(&thirty_two)));
    let longer = format!("{thirty_two}z");
    let raised = format!("{}ê", "é".repeat(31));
    check(StringArray::from(vec![longer.as_str()]), Some(&quoted(&thirty_two)), Some(&quoted(&raised)));
    let values = vec![thirty_two.as_str(), longer.as_str()];
    check(StringArray::from(values), Some(&quoted(&thirty_two)), Some(&quoted(&raised)));
}

#[test]
fn the_last_character_that_can_be_raised_is() {
    let (last, before_surrogates) = (char::MAX.to_string(), "\u{d7ff}");
    let cut = |text: String| Prefix { text, cut: true }.ceiling();
    assert_eq!(cut(format!("a{last}{last}")), Some("b".to_string()));
    assert_eq!(cut(format!("a{before_surrogates}")), Some("a\u{e000}".to_string()));
    assert_eq!(cut(last.repeat(32)), None);
    let value = last.repeat(33);
    let min = serde_json::to_string(&last.repeat(32)).unwrap();
    check(StringArray::from(vec![value.as_str()]), Some(&min), None);
}

#[test]
fn a_longer_string_in_a_later_batch_raises_the_bound() {
    let (short, long) = ("a".repeat(32), "a".repeat(40));
    let batch = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
    let raised = format!("\"{}b\"", "a".repeat(31));
    for texts in [[&short, &long], [&long, &short]] {
        assert_eq!(stats_of(&texts.map(|t| batch(t))).bounds("c").1, Some(raised.as_str()));
    }
}

#[test]
fn strings_that_share_their_first_bytes_are_told_apart() {
    let check_order = |texts: &[&str], min: &str, max: &str| {
        let read = stats_of(&[Arc::new(StringArray::from(texts.to_vec()))]);
        let parse = |text: Option<&str>| serde_json::from_str::<String>(text.unwrap()).unwrap();
        let (least, greatest) = read.bounds("c");
        assert_eq!((parse(least).as_str(), parse(greatest).as_str()), (min, max), "{texts:?}");
    };
    check_order(&["a\0", "a", "a\0\0"], "a", "a\0\0");
    check_order(&["", "\0"], "", "\0");
    check_order(&["same bytes b", "same bytes a", "same bytes c"], "same bytes a", "same bytes c");
    check_order(&["é", "z", "\u{10000}", "\u{ffff}"], "z", "\u{10000}");
}

#[test]
fn text_is_escaped() {
    let text = "\u{0}\"\\\n\u{2028}";
    let read = stats_of(&[Arc::new(StringArray::from(vec![text]))]);
    assert_eq!(serde_json::from_str::<String>(read.bounds("c").0.unwrap()).unwrap(), text);
    let schema = Schema::new(vec![Field::new("a\"b\\", DataType::Int32, true)]);
    let read: Read = serde_json::from_str(&FileStats::new(schema.fields(), 1, &[]).to_json()).unwrap();
    assert_eq!(read.null_count["a\"b\\"], 0);
}

#[test]
fn dates_and_times_have_four_digit_years() {
    check(Date32Array::from(vec![0, -719_162, 2_932_896]), Some("\"0001-01-01\""), Some("\"9999-12-31\""));
    check(Date32Array::from(vec![-719_163, 2_932_897]), None, None);
    check(Date32Array::from(vec![i32::MIN, i32::MAX]), None, None);
    let times = || TimestampMicrosecondArray::from(vec![1, -1]);
    let (min, max) = ("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.000001");
    check(times(), Some(&format!("\"{min}\"")), Some(&format!("\"{max}\"")));
    check(times().with_timezone("UTC"), Some(&format!("\"{min}Z\"")), Some(&format!("\"{max}Z\"")));
    check(TimestampMicrosecondArray::from(vec![i64::MIN, i64::MAX]), None, None);
    check(TimestampMicrosecondArray::from(vec![-62_135_596_800_000_001, 253_402_300_800_000_000]), None, None);
    check(
        TimestampMicrosecondArray::from(vec![-62_135_596_800_000_000, 253_402_300_799_999_999]),
        Some("\"0001-01-01T00:00:00.000000\""),
        Some("\"9999-12-31T23:59:59.999999\""),
    );
}

/// The statistics of one batch, the first `indexed` leaves of it.
fn json_of(columns: Vec<(&str, ArrayRef)>, indexed: usize) -> String {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let mut stats = FileStats::new(batch.schema_ref().fields(), indexed, &[]);
    stats.add(&batch, &text_ranges(&batch));
    stats.to_json()
}

fn structure(fields: Vec<(&str, ArrayRef)>, valid: Vec<bool>) -> ArrayRef {
    let (names, columns): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
    let field = |(name, column): (&str, &ArrayRef)| Field::new(name, column.data_type().clone(), true);
    let fields: Vec<Field> = names.into_iter().zip(&columns).map(field).collect();
    Arc::new(StructArray::new(fields.into(), columns, Some(valid.into())))
}

fn ints(values: Vec<Option<i32>>) -> ArrayRef {
    Arc::new(Int32Array::from(values))
}

#[test]
fn the_leaves_of_structs_are_counted_and_have_bounds_of_their_own() {
    let one = |n: i32| ints(vec![Some(n)]);
    let deep = structure(vec![("y", one(2)), ("z", one(3))], vec![true]);
    let columns = || {
        let s = structure(vec![("x", one(1)), ("d", Arc::clone(&deep))], vec![true]);
        vec![("a", one(0)), ("s", s), ("b", one(4))]
    };
    assert_eq!(
        json_of(columns(), 32),
        r#"{"numRecords":1,"minValues":{"a":0,"s":{"x":1,"d":{"y":2,"z":3}},"b":4},"maxValues":{"a":0,"s":{"x":1,"d":{"y":2,"z":3}},"b":4},"nullCount":{"a":0,"s":{"x":0,"d":{"y":0,"z":0}},"b":0}}"#
    );
    assert_eq!(
        json_of(columns(), 3),
        r#"{"numRecords":1,"minValues":{"a":0,"s":{"x":1,"d":{"y":2}}},"maxValues":{"a":0,"s":{"x":1,"d":{"y":2}}},"nullCount":{"a":0,"s":{"x":0,"d":{"y":0}}}}"#
    );
    let batch = RecordBatch::try_from_iter_with_nullable(columns().into_iter().map(|(n, c)| (n, c, true))).unwrap();
    let mut stats = FileStats::new(batch.schema_ref().fields(), 1, &["b".into()]);
    stats.add(&batch, &text_ranges(&batch));
    assert_eq!(
        stats.to_json(),
        r#"{"numRecords":1,"minValues":{"a":0,"b":4},"maxValues":{"a":0,"b":4},"nullCount":{"a":0,"b":0}}"#
    );
    assert_eq!(
        json_of(columns(), 1),
        r#"{"numRecords":1,"minValues":{"a":0},"maxValues":{"a":0},"nullCount":{"a":0}}"#
    );
}

#[test]
fn a_null_struct_makes_its_leaves_null_whatever_stands_below_it() {
    let x = ints(vec![Some(5), None, Some(-100), Some(7)]);
    let deep = structure(vec![("y", ints(vec![Some(1), Some(2), Some(3), Some(-4)]))], vec![true, false, true, true]);
    let s = structure(vec![("x", x), ("d", deep)], vec![true, true, false, true]);
    assert_eq!(
        json_of(vec![("s", s)], 32),
        r#"{"numRecords":4,"minValues":{"s":{"x":5,"d":{"y":-4}}},"maxValues":{"s":{"x":7,"d":{"y":1}}},"nullCount":{"s":{"x":2,"d":{"y":2}}}}"#
    );
    let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
    assert_eq!(
        json_of(vec![("s", structure(vec![("f", flags)], vec![false]))], 32),
        r#"{"numRecords":1,"minValues":{},"maxValues":{},"nullCount":{"s":{"f":1}}}"#
    );
}

/// The unscaled integer of a decimal's JSON text.
fn unscaled(text: &str, scale: usize) -> i128 {
    let fraction = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    assert!(fraction <= scale, "{text}");
    text.replace('.', "").parse::<i128>().unwrap() * 10i128.pow((scale - fraction) as u32)
}

fn significant_digits(text: &str) -> usize {
    let digits = text.trim_start_matches('-').replace('.', "");
    digits.trim_start_matches('0').trim_end_matches('0').len()
}

/// Characters at the edges of what a bound has to bear, and plain ones.
fn any_text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => proptest::char::range('a', 'c'),
        1 => Just(char::MAX),
        1 => Just('\u{d7ff}'),
        1 => Just('"'),
        1 => any::<char>(),
    ];
    prop_oneof![
        proptest::collection::vec(character, 0..80).prop_map(String::from_iter),
        (0..70usize, ".{0,3}").prop_map(|(n, end)| "a".repeat(n) + &end),
        (0..70usize).prop_map(|n| char::MAX.to_string().repeat(n)),
    ]
}

/// One to three batches of values, some null.
fn batches<T: std::fmt::Debug + Clone>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Vec<Vec<Option<T>>>> {
    proptest::collection::vec(proptest::collection::vec(proptest::option::of(value), 0..8), 1..4)
}

proptest! {
    #[test]
    fn every_decimal_is_within_bounds(
        values in batches((any::<i128>(), 0u32..38).prop_map(|(v, n)| v % 10i128.pow(n + 1))),
        scale in 0i8..=38,
    ) {
        let columns: Vec<ArrayRef> = values.iter().map(|batch| -> ArrayRef {
            Arc::new(Decimal128Array::from(batch.clone()).with_precision_and_scale(38, scale).unwrap())
        }).collect();
        let read = stats_of(&columns);
        let (min, max) = read.bounds("c");
        for value in values.iter().flatten().flatten() {
            if let Some(min) = min {
                prop_assert!(unscaled(min, scale as usize) <= *value, "{min} {value}");
            }
            if let Some(max) = max {
                prop_assert!(unscaled(max, scale as usize) >= *value, "{max} {value}");
            }
        }
        for bound in min.iter().chain(&max) {
            prop_assert!(significant_digits(bound) <= 15, "{bound}");
            serde_json::from_str::<f64>(bound).unwrap();
        }
    }

    #[test]
    fn every_string_is_within_bounds(values in batches(any_text())) {
        let columns: Vec<ArrayRef> =
            values.iter().map(|batch| -> ArrayRef { Arc::new(StringArray::from(batch.clone())) }).collect();
        let read = stats_of(&columns);
        let parse = |text: Option<&str>| text.map(|text| serde_json::from_str::<String>(text).unwrap());
        let (min, max) = read.bounds("c");
        let (min, max) = (parse(min), parse(max));
        let all: Vec<&String> = values.iter().flatten().flatten().collect();
        prop_assert_eq!(min.is_some(), !all.is_empty());
        for value in all {
            prop_assert!(min.as_ref().unwrap() <= value);
            prop_assert!(max.as_ref().is_none_or(|max| max >= value), "{max:?} {value:?}");
        }
        for bound in min.iter().chain(&max) {
            prop_assert!(bound.chars().count() <= 32);
        }
    }

    #[test]
    fn every_float_is_within_bounds(values in batches(prop_oneof![any::<f64>(), Just(0.0), Just(-0.0), -9.0..9.0])) {
        let columns: Vec<ArrayRef> =
            values.iter().map(|batch| -> ArrayRef { Arc::new(Float64Array::from(batch.clone())) }).collect();
        let read = stats_of(&columns);
        let (min, max) = read.bounds("c");
        for value in values.iter().flatten().flatten() {
            let within = |bound: Option<&str>, order: std::cmp::Ordering| {
                bound.is_none_or(|b| b.parse::<f64>().unwrap().total_cmp(value) != order)
            };
            prop_assert!(within(min, std::cmp::Ordering::Greater), "{min:?} {value}");
            prop_assert!(within(max, std::cmp::Ordering::Less), "{max:?} {value}");
        }
    }

    #[test]
    fn every_integer_date_and_time_is_within_bounds(values in batches(any::<i64>()), shift in 0u32..64) {
        let values: Vec<Vec<Option<i64>>> =
            values.into_iter().map(|batch| batch.into_iter().map(|v| v.map(|v| v >> shift)).collect()).collect();
        let all: Vec<i64> = values.iter().flatten().flatten().copied().collect();
        let columns = |array: fn(Vec<Option<i64>>) -> ArrayRef| -> Vec<ArrayRef> {
            values.iter().map(|batch| array(batch.clone())).collect()
        };
        let read = stats_of(&columns(|batch| Arc::new(Int64Array::from(batch))));
        let exact = |text: Option<&str>| text.map(|text| text.parse::<i64>().unwrap());
        prop_assert_eq!(exact(read.bounds("c").0), all.iter().min().copied());
        prop_assert_eq!(exact(read.bounds("c").1), all.iter().max().copied());
        prop_assert_eq!(read.null_count["c"], values.iter().flatten().filter(|v| v.is_none()).count() as u64);

        let read = stats_of(&columns(|batch| Arc::new(TimestampMicrosecondArray::from(batch))));
        let micros = |text: Option<&str>| text.map(|text| {
            let text: String = serde_json::from_str(text).unwrap();
            assert_eq!(text.len(), 26);
            text.parse::<chrono::NaiveDateTime>().unwrap().and_utc().timestamp_micros()
        });
        let within = |value: Option<i64>| value.filter(|v| (-62_135_596_800_000_000..253_402_300_800_000_000).contains(v));
        prop_assert_eq!(micros(read.bounds("c").0), within(all.iter().min().copied()));
        prop_assert_eq!(micros(read.bounds("c").1), within(all.iter().max().copied()));
    }
}
