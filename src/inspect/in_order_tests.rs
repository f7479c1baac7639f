use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;
use crate::inspect::state::marked;
use crate::log::FileColumns;

/// A file of rows, each with its step and a number of its own.
#[derive(Debug, Clone)]
struct Drawn {
    rows: Vec<(i64, i64)>,
    /// Whether statistics tell rows and steps.
    has_statistics: bool,
}

fn columns() -> SchemaRef {
    marked(vec![Arc::new(Field::new("n", DataType::Int64, true))])
}

fn parquet(rows: &[(i64, i64)], generation: i64, op: &str) -> Vec<u8> {
    let longs = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let batch = RecordBatch::try_new(
        columns(),
        vec![
            longs(vec![generation; rows.len()]),
            longs(rows.iter().map(|r| r.0).collect()),
            Arc::new(StringArray::from(vec![op; rows.len()])),
            longs(rows.iter().map(|r| r.1).collect()),
        ],
    )
    .unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, columns(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    bytes
}

async fn stored(store: &InMemory, at: usize, drawn: &Drawn, bytes: Vec<u8>) -> LiveFile {
    let path = format!("f{at}.parquet");
    let size = bytes.len() as i64;
    store.put(&Path::from(path.as_str()), PutPayload::from(bytes)).await.unwrap();
    let steps = || drawn.rows.iter().map(|r| r.0);
    LiveFile {
        digest: None,
        path,
        vector: None,
        partition_values: BTreeMap::new(),
        size,
        modified_millis: 0,
        rows: drawn.has_statistics.then_some(drawn.rows.len() as u64),
        steps: steps().min().zip(steps().max()).filter(|_| drawn.has_statistics),
        base_row_id: None,
        default_row_commit_version: None,
    }
}

/// Steps and numbers as they come, for windows of `most` rows.
async fn read(drawn: &[Drawn], (after, until): (i64, i64), most: u64) -> Result<Vec<(i64, i64)>> {
    let store = Arc::new(InMemory::new());
    let mut files = Vec::new();
    for (at, file) in drawn.iter().enumerate() {
        files.push(stored(&store, at, file, parquet(&file.rows, 1, "i")).await);
    }
    let order = InOrder {
        from: Origin { store, columns: FileColumns::default() },
        columns: columns(),
        generation: Generation::FIRST,
        after,
        until,
    };
    let batches: Vec<RecordBatch> = order.read_in_windows(files, most).try_collect().await?;
    let mut all = Vec::new();
    for batch in &batches {
        let steps = batch.column(1).as_primitive::<Int64Type>().values();
        let numbers = batch.column(3).as_primitive::<Int64Type>().values();
        all.extend(steps.iter().copied().zip(numbers.iter().copied()));
    }
    Ok(all)
}

/// Appends one after another, or files whose steps lie anywhere, some of them of one step.
fn any_files() -> impl Strategy<Value = Vec<Drawn>> {
    let file = (proptest::collection::vec(0i64..40, 0..30), 0u8..4, any::<bool>(), 0u8..6);
    proptest::collection::vec(file, 0..8).prop_map(|files| {
        let mut number = 0;
        let mut base = 0;
        files
            .into_iter()
            .map(|(mut steps, kind, has_statistics, without)| {
                match kind {
                    0 => steps.fill(7),
                    1 | 2 => {
                        steps.iter_mut().for_each(|s| *s = base + *s % 5);
                        steps.sort_unstable();
                        base += 4;
                    }
                    _ => {}
                }
                let mut next = || {
                    number += 1;
                    number
                };
                Drawn {
                    rows: steps.into_iter().map(|s| (s, next())).collect(),
                    has_statistics: has_statistics || without > 0,
                }
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_row_of_the_range_comes_once_and_in_step_order(
        files in any_files(), after in -1i64..40, length in 0i64..45, most in 1u64..40,
    ) {
        let until = after + length;
        let found = tokio::runtime::Runtime::new().unwrap().block_on(read(&files, (after, until), most)).unwrap();
        prop_assert!(found.is_sorted_by_key(|(step, _)| *step), "{found:?}");
        let mut found = found;
        found.sort_unstable();
        let all = files.iter().flat_map(|f| f.rows.iter().copied());
        let mut expected: Vec<(i64, i64)> = all.filter(|(step, _)| *step > after && *step <= until).collect();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn rows_that_no_writer_of_ours_leaves_are_corrupt() {
    for (generation, op, words) in [(2, "i", "generation 2"), (1, "x", "\"x\"")] {
        let store = Arc::new(InMemory::new());
        let drawn = Drawn { rows: vec![(1, 1)], has_statistics: true };
        let file = stored(&store, 0, &drawn, parquet(&drawn.rows, generation, op)).await;
        let order = InOrder {
            from: Origin { store, columns: FileColumns::default() },
            columns: columns(),
            generation: Generation::FIRST,
            after: 0,
            until: 9,
        };
        let err = order.read(vec![file]).try_collect::<Vec<_>>().await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt);
        assert!(err.message().contains(words) && err.message().contains("f0.parquet"), "{err}");
    }
}

#[tokio::test]
async fn files_without_rows_of_the_range_are_not_opened() {
    let store = Arc::new(InMemory::new());
    let mut files = Vec::new();
    for (at, step) in [1, 2, 3].into_iter().enumerate() {
        let drawn = Drawn { rows: vec![(step, step)], has_statistics: true };
        files.push(stored(&store, at, &drawn, parquet(&drawn.rows, 1, "i")).await);
    }
    store.delete(&Path::from("f0.parquet")).await.unwrap();
    store.delete(&Path::from("f2.parquet")).await.unwrap();
    let order = InOrder {
        from: Origin { store, columns: FileColumns::default() },
        columns: columns(),
        generation: Generation::FIRST,
        after: 1,
        until: 2,
    };
    let rows: Vec<RecordBatch> = order.read(files).try_collect().await.unwrap();
    assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
}
