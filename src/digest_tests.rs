use std::sync::Arc;

use arrow::array::{
    Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, ListArray, ListBuilder,
    MapBuilder, StringArray, StringBuilder, StructArray, UInt32Array,
};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::Field;
use proptest::prelude::*;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, a)| (n, a, true))).unwrap()
}

fn digest(columns: Vec<(&str, ArrayRef)>) -> Digest {
    Digest::of(&batch(columns)).unwrap()
}

fn ints(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn decimals(values: Vec<i128>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn the_digest_of_known_rows_stays_what_it_is() {
    let rows = digest(vec![("id", ints(vec![Some(1), Some(2)])), ("name", Arc::new(StringArray::from(vec!["ä", ""])))]);
    assert_eq!(
        rows.to_string(),
        "b42bfe5b00ef7c7704afd342bbc2b309",
        "the stable value; a change breaks every table written so far"
    );
}

#[test]
fn widening_and_added_columns_of_nulls_change_nothing() {
    let narrow = digest(vec![("n", Arc::new(Int16Array::from(vec![5, -7])))]);
    assert_eq!(narrow, digest(vec![("n", Arc::new(Int32Array::from(vec![5, -7])))]));
    assert_eq!(narrow, digest(vec![("n", ints(vec![Some(5), Some(-7)]))]));
    assert_eq!(narrow, digest(vec![("n", decimals(vec![500, -700], 10, 2))]));
    assert_eq!(narrow, digest(vec![("n", ints(vec![Some(5), Some(-7)])), ("added", ints(vec![None, None]))]));
    assert_eq!(digest(vec![("d", decimals(vec![125], 10, 2))]), digest(vec![("d", decimals(vec![12500], 38, 4))]));
    assert_eq!(
        digest(vec![("f", Arc::new(Float32Array::from(vec![0.5])))]),
        digest(vec![("f", Arc::new(Float64Array::from(vec![0.5])))])
    );
}

#[test]
fn a_decimal_counts_the_same_by_either_way_of_dividing() {
    for value in [0, 1, -1, 10, -1250, 99, 1_000_000, i128::from(i64::MAX), i128::from(i64::MIN), 123_456_789_000] {
        for scale in 0..10 {
            assert_eq!(decimal_cell(value, scale), wide_decimal_cell(value, scale), "{value} at {scale}");
        }
    }
}

proptest! {
    #[test]
    fn a_fraction_is_hashed_as_the_library_hashes_its_bytes(value in any::<i128>(), scale in any::<u8>()) {
        let bytes = [&value.to_le_bytes()[..], &[scale]].concat();
        prop_assert_eq!(fraction_cell(value, scale), cell(3, XxHash3_64::oneshot(&bytes)));
    }

    #[test]
    fn a_short_decimal_counts_as_a_wide_one(value in any::<i64>(), zeros in 0u32..6, scale in 0..=SHORT_SCALE) {
        let value = value / 10i64.pow(6) * 10i64.pow(zeros);
        prop_assert_eq!(short_decimal_cell(value, scale), wide_decimal_cell(i128::from(value), scale));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn values_that_come_again_count_as_they_did(
        texts in proptest::collection::vec("[\\x00aä]{0,4}|[\\x00ab]{7}|.{0,12}", 1..300),
        numbers in proptest::collection::vec((any::<i128>(), 0u32..128), 1..300),
        steps in (1usize..50, 1usize..50),
    ) {
        const KEY: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;
        for most in [7, usize::MAX] {
            let texts = texts.iter().filter(|text| text.len() <= most).map(String::as_str).chain([""]);
            let texts: Vec<&str> = texts.collect();
            let numbers: Vec<i128> = numbers.iter().map(|(number, bits)| number >> bits).collect();
            // Each value comes more than once, and one of 13 rows is null.
            let row = |i: usize| (!i.is_multiple_of(13)).then_some(i);
            let text = |i: usize| texts[i / steps.0 * 7 % texts.len()];
            let number = |i: usize| numbers[i / steps.1 * 7 % numbers.len()];
            let column: StringArray = (0..2_000).map(|i| row(i).map(text)).collect();
            let decimals: Decimal128Array = (0..2_000).map(|i| row(i).map(number)).collect();
            let decimals = decimals.with_data_type(DataType::Decimal128(38, 3));
            let (mut of_texts, mut of_decimals) = (vec![0u128; 1_999], vec![0u128; 1_999]);
            add_cells(&mut of_texts, &(Arc::new(column.slice(1, 1_999)) as ArrayRef), KEY).unwrap();
            add_cells(&mut of_decimals, &(Arc::new(decimals.slice(1, 1_999)) as ArrayRef), KEY).unwrap();
            for i in 1..2_000 {
                let hash = |i: usize| cell(5, XxHash3_64::oneshot(text(i).as_bytes())).wrapping_mul(KEY);
                prop_assert_eq!(of_texts[i - 1], row(i).map_or(0, hash));
                let cell = |i: usize| wide_decimal_cell(number(i), 3).wrapping_mul(KEY);
                prop_assert_eq!(of_decimals[i - 1], row(i).map_or(0, cell));
            }
        }
    }
}

#[test]
fn every_nan_is_one_value_and_null_is_not_zero() {
    let other_nan = f64::from_bits(f64::NAN.to_bits() | 1);
    assert_eq!(
        digest(vec![("f", Arc::new(Float64Array::from(vec![f64::NAN])))]),
        digest(vec![("f", Arc::new(Float64Array::from(vec![other_nan])))])
    );
    assert_ne!(digest(vec![("n", ints(vec![None]))]), digest(vec![("n", ints(vec![Some(0)]))]));
    assert_ne!(
        digest(vec![("s", Arc::new(StringArray::from(vec![Some("")])))]),
        digest(vec![("s", Arc::new(StringArray::from(vec![None::<&str>])))])
    );
}

#[test]
fn cells_swapped_between_rows_or_columns_are_seen() {
    let pair =
        |a: [i64; 2], b: [i64; 2]| digest(vec![("a", ints(a.map(Some).to_vec())), ("b", ints(b.map(Some).to_vec()))]);
    assert_ne!(pair([1, 2], [3, 4]), pair([1, 2], [4, 3]));
    assert_ne!(pair([1, 2], [3, 4]), pair([3, 4], [1, 2]));
}

#[test]
fn nested_values_count_by_their_content() {
    let list = |values: Vec<Option<Vec<Option<i32>>>>| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(values))
    };
    let of = |values| digest(vec![("l", list(values))]);
    let variants = [
        of(vec![None]),
        of(vec![Some(vec![])]),
        of(vec![Some(vec![None])]),
        of(vec![Some(vec![Some(1), Some(2)])]),
        of(vec![Some(vec![Some(2), Some(1)])]),
        of(vec![Some(vec![Some(1)])]),
    ];
    for (i, a) in variants.iter().enumerate() {
        assert!(!variants[i + 1..].contains(a), "variant {i}");
    }
    let structs = |swap| {
        let (x, y) = (ints(vec![Some(1)]), ints(vec![Some(2)]));
        let (x, y) = if swap { (y, x) } else { (x, y) };
        let field = |n: &str| Arc::new(Field::new(n, DataType::Int64, true));
        digest(vec![("s", Arc::new(StructArray::from(vec![(field("x"), x), (field("y"), y)])))])
    };
    assert_ne!(structs(false), structs(true));
    let map = |pairs: &[(&str, i64)]| {
        let mut builder = MapBuilder::new(None, StringBuilder::new(), Int64Array::builder(2));
        for (key, value) in pairs {
            builder.keys().append_value(key);
            builder.values().append_value(*value);
        }
        builder.append(true).unwrap();
        digest(vec![("m", Arc::new(builder.finish()))])
    };
    assert_eq!(map(&[("a", 1), ("b", 2)]), map(&[("b", 2), ("a", 1)]));
    assert_ne!(map(&[("a", 1), ("b", 2)]), map(&[("a", 2), ("b", 1)]));
}

/// Rows of lists, maps and structs of lists; of any length up to 4, null ones with elements behind them among them.
fn nested(rows: usize) -> RecordBatch {
    let mut lists = ListBuilder::new(ListBuilder::new(Int64Array::builder(0)));
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Array::builder(0));
    for row in 0..rows {
        for outer in 0..row % 5 {
            for inner in 0..(row + outer) % 3 {
                lists.values().values().append_option((inner != 1).then_some((row * 100 + inner) as i64));
            }
            lists.values().append(outer != 2);
            maps.keys().append_value(format!("k{outer}"));
            maps.values().append_option((outer != 1).then_some(row as i64));
        }
        lists.append(row % 7 != 3);
        maps.append(row % 7 != 4).unwrap();
    }
    let lists = Arc::new(lists.finish()) as ArrayRef;
    let structs =
        StructArray::from(vec![(Arc::new(Field::new("l", lists.data_type().clone(), true)), Arc::clone(&lists))]);
    batch(vec![("l", lists), ("m", Arc::new(maps.finish())), ("s", Arc::new(structs))])
}

#[test]
fn slices_of_lists_and_maps_count_as_their_rows_do() {
    let whole = nested(40);
    assert_eq!(
        Digest::of(&whole).unwrap().to_string(),
        "ea1e5e563f1e6da735f203e9a8c325a8",
        "the stable value; a change breaks every table written so far"
    );
    for size in [1, 3, 40] {
        let mut sum = Digest::EMPTY;
        for start in (0..40).step_by(size) {
            let slice = whole.slice(start, size.min(40 - start));
            let rows: Vec<u32> = (start..start + slice.num_rows()).map(|row| row as u32).collect();
            let own = take_record_batch(&whole, &UInt32Array::from(rows)).unwrap();
            let digest = Digest::of(&slice).unwrap();
            assert_eq!(digest, Digest::of(&own).unwrap(), "rows from {start}, {size} at a time");
            assert_eq!(digest, Digest::of(&slice.slice(0, slice.num_rows())).unwrap());
            sum = sum.plus(digest);
        }
        assert_eq!(sum, Digest::of(&whole).unwrap(), "{size} rows at a time");
    }
    assert_eq!(Digest::of(&whole.slice(7, 0)).unwrap(), Digest::EMPTY);
}

proptest! {
    #[test]
    fn order_and_file_boundaries_do_not_matter(values in proptest::collection::vec((any::<Option<i64>>(), ".*"), 1..40), cut in 0usize..40, seed in any::<u64>()) {
        let whole = batch(vec![
            ("n", ints(values.iter().map(|v| v.0).collect())),
            ("s", Arc::new(StringArray::from_iter_values(values.iter().map(|v| v.1.as_str())))),
        ]);
        let cut = cut % values.len();
        let parts = Digest::of(&whole.slice(0, cut)).unwrap().plus(Digest::of(&whole.slice(cut, values.len() - cut)).unwrap());
        prop_assert_eq!(parts, Digest::of(&whole).unwrap());
        let mut order: Vec<u32> = (0..values.len() as u32).collect();
        order.sort_by_key(|i| XxHash3_64::oneshot_with_seed(seed, &i.to_le_bytes()));
        let shuffled = take_record_batch(&whole, &UInt32Array::from(order)).unwrap();
        prop_assert_eq!(Digest::of(&shuffled).unwrap(), Digest::of(&whole).unwrap());
        let doubled = concat_batches(whole.schema_ref(), [&whole, &whole.slice(0, 1)]).unwrap();
        prop_assert_ne!(Digest::of(&doubled).unwrap(), Digest::of(&whole).unwrap());
    }
}
