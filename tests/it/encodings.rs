//! What other engines read of columns that are encoded in every way in use.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray};
use cutover::{Access, Durability, Location, SinkSettings, Snapshot, Target, View, World};
use parquet::basic::Encoding;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::program::Readers;
use crate::world::step;

const TEST: &str = "every_encoding_is_read_by_every_engine";
/// More than a writer encodes without choosing.
const ROWS: i64 = 70_000;

fn rows() -> RecordBatch {
    // Every seventh value is missing, and the others have no order that a sort would find.
    let some = |i: i64| (i % 7 != 3).then_some((i * 7919) % 10_007);
    let texts = |text: fn(i64) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter((0..ROWS).map(|i| some(i).map(|v| text(v * 1_000_003 + i)))))
    };
    let prices = Decimal128Array::from_iter((0..ROWS).map(|i| some(i).map(|v| i128::from(v * i))));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..ROWS))),
        ("spread", Arc::new(Int64Array::from_iter((0..ROWS).map(|i| some(i).map(|v| v * (i % 2 * 2 - 1)))))),
        ("price", Arc::new(prices.with_precision_and_scale(15, 2).unwrap())),
        ("wave", Arc::new(Float64Array::from_iter((0..ROWS).map(|i| some(i).map(|_| (i as f64 / 1e3).sin()))))),
        ("word", texts(|v| format!("word {}", v % 20))),
        ("code", texts(|v| format!("{:x}", v.wrapping_mul(0x9e37_79b9_7f4a_7c15u64 as i64)))),
        ("path", Arc::new(StringArray::from_iter_values((0..ROWS).map(|i| format!("/a/path/of/some/length/{i:08}"))))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, n != "id"))).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_encoding_is_read_by_every_engine() {
    let (folder, rows) = (tempfile::tempdir().unwrap(), rows());
    let table = folder.path().to_string_lossy().to_string();
    let view = View::new("v", &rows.schema(), vec!["id".into()]).unwrap();
    let location = Location::open(&table, Access::Write(Durability::None)).unwrap();
    let target = Target::open(location, view, SinkSettings::new("p/v/c", "a test"), World::system()).await.unwrap();
    let sink = target.load(Snapshot::from_batches(step(1), vec![rows])).await.unwrap();

    let mut encodings = BTreeSet::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "parquet") {
            let file = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
            let chunks = file.metadata().row_groups().iter().flat_map(|group| group.columns());
            encodings.extend(chunks.flat_map(|chunk| chunk.encodings().map(|e| e.to_string())));
        }
    }
    let used = |encoding: Encoding| encodings.contains(&encoding.to_string());
    for encoding in [
        Encoding::RLE_DICTIONARY,
        Encoding::DELTA_BINARY_PACKED,
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
        Encoding::BYTE_STREAM_SPLIT,
    ] {
        assert!(used(encoding), "{encoding} is not among {encodings:?}");
    }

    let Some(readers) = Readers::find(TEST) else { return };
    let digest = sink.facts().ours().unwrap().digest_total.unwrap().to_string();
    for engine in ["duckdb", "polars", "deltalake"] {
        let read = readers.read(&[engine, &table]);
        assert_eq!((read["rows"].as_i64(), read["digest"].as_str()), (Some(ROWS), Some(digest.as_str())), "{engine}");
    }
}
