use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray};
use arrow::compute::concat_batches;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};

use super::*;

const ROWS: usize = 131_072;
const SLICE: usize = 65_536;

/// Numbers that nobody can foresee, the same in every run.
fn random() -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
    .take(ROWS)
}

fn integers(values: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values.map(|v| v as i64)))
}

fn texts(values: impl Iterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn properties(compression: Compression) -> WriterProperties {
    WriterProperties::builder().set_compression(compression).build()
}

fn write(properties: &WriterProperties, batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.clone())).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// Columns of data for which nobody tuned anything.
fn columns() -> Vec<(&'static str, ArrayRef)> {
    // A few values are most of the rows, and there are ever more that are rare.
    let skewed = |v: u64| (v >> 40) / (1 + (v & 0xffff));
    let sentence = |v: u64| format!("the {} of {} was {} by {}", v % 97, v % 89, v % 83, v % 79);
    let decimals = random().map(|v| i128::from(v) * i128::from(v >> 3));
    let decimals = Decimal128Array::from_iter_values(decimals).with_precision_and_scale(38, 4).unwrap();
    vec![
        ("constant", integers(random().map(|_| 42))),
        ("sorted", integers(0..ROWS as u64)),
        ("runs", integers((0..ROWS as u64).map(|i| (i / 1000) * 1_000_003))),
        ("dense", integers(random().map(|v| v % 200_000))),
        ("few", integers(random().map(|v| (v % 50) * 0x0123_4567_89ab))),
        ("some", integers(random().map(|v| (v % 5000).wrapping_mul(0x9e37_79b9_7f4a_7c15)))),
        ("any", integers(random())),
        ("skewed", integers(random().map(skewed))),
        ("cycle", integers((0..ROWS as u64).map(|i| (i % 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)))),
        ("small", Arc::new(Int32Array::from_iter_values(random().map(|v| (v % 2500) as i32)))),
        ("sparse", Arc::new(Int64Array::from_iter(random().map(|v| (v % 50 == 0).then_some(v as i64))))),
        ("nothing", Arc::new(Int64Array::from_iter(random().map(|_| None::<i64>)))),
        ("flag", Arc::new(BooleanArray::from_iter(random().map(|v| Some(v % 3 == 0))))),
        ("ratio", Arc::new(Float64Array::from_iter_values(random().map(|v| v as f64 / 3.0)))),
        ("price", Arc::new(Float64Array::from_iter_values(random().map(|v| (v % 10_000) as f64 / 100.0)))),
        ("wave", Arc::new(Float64Array::from_iter_values((0..ROWS).map(|i| (i as f64 / 1000.0).sin())))),
        ("wide", Arc::new(decimals)),
        ("word", texts(random().map(|v| format!("word {}", v % 30)))),
        ("name", texts(random().map(|v| format!("customer {}", v % 20_000)))),
        ("path", texts((0..ROWS).map(|i| format!("/data/region/of/the/north/device/{i:08}")))),
        ("sentence", texts(random().map(sentence))),
        ("code", texts(random().map(|v| format!("{v:016x}")))),
        ("empty", texts(random().map(|_| String::new()))),
        ("drift", texts((0..ROWS).map(|i| format!("day {}", i / 100)))),
    ]
}

#[test]
fn a_column_takes_hardly_more_bytes_than_by_default_and_reads_back_equal() {
    let columns = columns();
    for compression in [Compression::SNAPPY, Compression::ZSTD(ZstdLevel::try_new(1).unwrap())] {
        let defaults = properties(compression);
        for (name, column) in &columns {
            let batch = RecordBatch::try_from_iter_with_nullable([(name, Arc::clone(column), true)]).unwrap();
            let suited = suited(&defaults, &batch.slice(0, SLICE), ROWS).unwrap();
            let (by_default, ours) = (write(&defaults, &batch), write(&suited, &batch));
            let most = by_default.len() as f64 * 1.05 + 2048.0;
            assert!(ours.len() as f64 <= most, "{name}, {compression}: {} for {}", ours.len(), by_default.len());
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(ours)).unwrap().build().unwrap();
            let read: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
            assert_eq!(concat_batches(&batch.schema(), &read).unwrap(), batch, "{name}");
        }
    }
}

#[test]
fn each_kind_of_data_gets_what_suits_it() {
    let batch = RecordBatch::try_from_iter(columns()).unwrap();
    let suited = suited(&properties(Compression::SNAPPY), &batch.slice(0, SLICE), ROWS).unwrap();
    let check = |name: &str, expected: Encoding| {
        let path = parquet::schema::types::ColumnPath::from(name);
        let found = match suited.dictionary_enabled(&path) {
            true => Encoding::RLE_DICTIONARY,
            false => suited.encoding(&path).unwrap(),
        };
        assert_eq!(found, expected, "{name}");
    };
    for name in ["few", "word"] {
        check(name, Encoding::RLE_DICTIONARY);
    }
    for name in ["sorted", "dense", "small"] {
        check(name, Encoding::DELTA_BINARY_PACKED);
    }
    check("path", Encoding::DELTA_BYTE_ARRAY);
    check("code", Encoding::DELTA_LENGTH_BYTE_ARRAY);
    check("wave", Encoding::BYTE_STREAM_SPLIT);
    check("wide", Encoding::PLAIN);
}

#[test]
fn a_dictionary_grows_as_its_values_come() {
    let check = |so_far: f64, growth: f64, from: f64, to: f64| {
        let grown = dictionary_growth(so_far, growth);
        assert!((from..=to).contains(&grown), "{so_far} then {growth} times the rows: {grown}");
    };
    // All values seen; each row another one; 20,000 values of which 16,384 rows had 11,183.
    check(1.0, 8.0, 1.0, 1.1);
    check(4.0, 8.0, 7.9, 8.0);
    check(11_183.0 / 3_705.0, 8.0, 1.7, 3.2);
}

#[test]
fn few_rows_get_the_defaults() {
    let batch = RecordBatch::try_from_iter(columns()).unwrap();
    let suited = suited(&properties(Compression::SNAPPY), &batch.slice(0, FEWEST_ROWS - 1), ROWS).unwrap();
    let path = parquet::schema::types::ColumnPath::from("sorted");
    assert!(suited.dictionary_enabled(&path) && suited.encoding(&path).is_none());
}

#[test]
fn columns_inside_others_are_chosen_for_one_by_one() {
    let inner: Vec<(arrow::datatypes::FieldRef, ArrayRef)> = columns()
        .into_iter()
        .filter(|(name, _)| ["sorted", "word"].contains(name))
        .map(|(name, column)| (Arc::new(arrow::datatypes::Field::new(name, column.data_type().clone(), true)), column))
        .collect();
    let outer: ArrayRef = Arc::new(arrow::array::StructArray::from(inner));
    let batch = RecordBatch::try_from_iter([("outer", outer)]).unwrap();
    let suited = suited(&properties(Compression::SNAPPY), &batch, ROWS).unwrap();
    let leaf = |name: &str| parquet::schema::types::ColumnPath::new(vec!["outer".into(), name.into()]);
    assert!(suited.dictionary_enabled(&leaf("word")));
    assert!(!suited.dictionary_enabled(&leaf("sorted")));
}
