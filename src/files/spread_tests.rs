use std::collections::BTreeSet;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Int64Type, SchemaRef};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::clock::{Ids, SystemClock, World};
use crate::digest::Digest;
use crate::files::{FileSettings, FileWriter, Written};

/// Rows of `partitions` partitions in turn, null among them, with about 40 bytes that hardly compress.
fn rows(from: i64, to: i64, partitions: i64) -> RecordBatch {
    let name = |i: i64| match i % partitions {
        0 => None,
        p => Some(format!("p/{p}=")),
    };
    let noise = |i: i64| format!("{:020}{:020}", i.wrapping_mul(6_364_136_223_846_793_005), i * 7919);
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(from..to)), false),
        ("part", Arc::new(StringArray::from_iter((from..to).map(name))), true),
        ("noise", Arc::new(StringArray::from_iter_values((from..to).map(noise))), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn settings(threads: usize) -> FileSettings {
    FileSettings { threads, ..FileSettings::default() }
}

async fn write(store: &Arc<InMemory>, settings: &FileSettings, batches: &[RecordBatch]) -> Result<Written> {
    let world = World { clock: Arc::new(SystemClock), ids: Arc::new(Ids::from_seed(7)) };
    let schema: SchemaRef = batches[0].schema();
    let partitioning = Partitioning::new(&schema, &["part".to_string()])?;
    let store: Arc<dyn ObjectStore> = Arc::clone(store) as _;
    let mut writer = FileWriter::partitioned(store, partitioning, settings, &world);
    for batch in batches {
        writer.write(batch.clone()).await?;
    }
    writer.finish().await
}

async fn bytes(store: &InMemory, file: &DataFile) -> Bytes {
    store.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap()
}

/// The rows of all files with their partition column, in the order of their ids.
async fn read(store: &InMemory, written: &Written, schema: &SchemaRef) -> RecordBatch {
    let mut batches = Vec::new();
    for file in &written.files {
        let stats: serde_json::Value = serde_json::from_str(&file.stats).unwrap();
        assert_eq!(stats["numRecords"], file.rows);
        assert!(stats["nullCount"].get("part").is_none() && stats["nullCount"]["noise"] == 0, "{stats}");
        assert!(file.path.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{}", file.path);
        for batch in ParquetRecordBatchReaderBuilder::try_new(bytes(store, file).await).unwrap().build().unwrap() {
            let batch = batch.unwrap();
            let part: ArrayRef =
                Arc::new(StringArray::from(vec![file.partition_values["part"].clone(); batch.num_rows()]));
            let columns = vec![Arc::clone(batch.column(0)), part, Arc::clone(batch.column(1))];
            batches.push(RecordBatch::try_new(Arc::clone(schema), columns).unwrap());
        }
    }
    let all = concat_batches(schema, &batches).unwrap();
    let order = arrow::compute::sort_to_indices(all.column(0), None, None).unwrap();
    take_record_batch(&all, &order).unwrap()
}

#[tokio::test]
async fn each_file_holds_one_partition_and_all_together_every_row() {
    for (partitions, threads) in [(1, 0), (3, 0), (3, 2), (700, 2)] {
        let store = Arc::new(InMemory::new());
        let batches: Vec<RecordBatch> = (0..4).map(|i| rows(i * 50_000, (i + 1) * 50_000, partitions)).collect();
        let written = write(&store, &settings(threads), &batches).await.unwrap();
        let schema = batches[0].schema();
        assert_eq!(read(&store, &written, &schema).await, rows(0, 200_000, partitions), "{partitions}, {threads}");
        assert_eq!(written.digest, Digest::of(&rows(0, 200_000, partitions)).unwrap());
        assert_eq!(
            (written.rows, written.bytes),
            written.files.iter().fold((0, 0), |(r, b), f| (r + f.rows, b + f.size))
        );
        let distinct: BTreeSet<_> = written.files.iter().map(|f| f.partition_values["part"].clone()).collect();
        assert_eq!(distinct.len() as i64, partitions);
        // Few rows of a partition in a slice have one encoder, many have each in turn.
        let most = if partitions > 8 { partitions as usize } else { partitions as usize * threads.max(1) };
        assert!(written.files.len() <= most, "{} files of {partitions} partitions", written.files.len());
    }
}

#[tokio::test]
async fn few_rows_become_a_file_a_partition() {
    let store = Arc::new(InMemory::new());
    let batch = rows(0, 10, 4);
    let written = write(&store, &settings(2), std::slice::from_ref(&batch)).await.unwrap();
    assert_eq!(written.files.len(), 4);
    assert_eq!(read(&store, &written, &batch.schema()).await, batch);
}

#[tokio::test]
async fn more_rows_than_memory_holds_are_written_in_several_files_of_a_partition() {
    let store = Arc::new(InMemory::new());
    let batches: Vec<RecordBatch> = (0..16).map(|i| rows(i * 65_536, (i + 1) * 65_536, 1000)).collect();
    let written = write(&store, &settings(1), &batches).await.unwrap();
    assert_eq!(read(&store, &written, &batches[0].schema()).await, rows(0, 16 * 65_536, 1000));
    assert!((1001..8000).contains(&written.files.len()), "{} files", written.files.len());
}

#[tokio::test]
async fn rows_that_come_partition_after_partition_give_a_file_each() {
    let store = Arc::new(InMemory::new());
    let batches: Vec<RecordBatch> = (0..40)
        .map(|i| {
            let batch = rows(i * 30_000, (i + 1) * 30_000, 2);
            let part: ArrayRef = Arc::new(StringArray::from(vec![format!("p{}", i / 2); 30_000]));
            let columns = vec![Arc::clone(batch.column(0)), part, Arc::clone(batch.column(2))];
            RecordBatch::try_new(batch.schema(), columns).unwrap()
        })
        .collect();
    let written = write(&store, &settings(1), &batches).await.unwrap();
    assert_eq!(written.files.len(), 20);
    assert_eq!(
        read(&store, &written, &batches[0].schema()).await,
        concat_batches(&batches[0].schema(), &batches).unwrap()
    );
}

#[tokio::test]
async fn files_of_a_partition_end_at_the_target_size() {
    let store = Arc::new(InMemory::new());
    let settings = FileSettings { target_file_size: 1 << 19, ..settings(0) };
    let batches: Vec<RecordBatch> = (0..8).map(|i| rows(i * 50_000, (i + 1) * 50_000, 2)).collect();
    let written = write(&store, &settings, &batches).await.unwrap();
    assert!(written.files.len() >= 8, "{} files", written.files.len());
    assert_eq!(read(&store, &written, &batches[0].schema()).await, rows(0, 400_000, 2));
}

#[tokio::test]
async fn a_value_that_readers_take_for_null_ends_the_writer_before_anything_is_named() {
    for threads in [0, 1] {
        let store = Arc::new(InMemory::new());
        let batch = rows(0, 100_000, 3);
        let part: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..100_000).map(|i| if i == 90_000 { "" } else { "x" })));
        let columns = vec![Arc::clone(batch.column(0)), part, Arc::clone(batch.column(2))];
        let batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
        let refused = write(&store, &settings(threads), &[batch]).await.unwrap_err();
        assert!(
            refused.message().contains("\"part\"") && refused.message().contains("readers take for null"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn materialized_partition_columns_stand_in_the_files_behind_the_others() {
    let store = Arc::new(InMemory::new());
    let batch = rows(0, 10, 2);
    let world = World { clock: Arc::new(SystemClock), ids: Arc::new(Ids::from_seed(7)) };
    let partitioning = Partitioning::new(&batch.schema(), &["part".to_string()]).unwrap().materialized().unwrap();
    let mut writer = FileWriter::partitioned(Arc::clone(&store) as _, partitioning, &settings(0), &world);
    writer.write(batch.clone()).await.unwrap();
    let written = writer.finish().await.unwrap();
    assert_eq!((written.files.len(), written.digest), (2, Digest::of(&batch).unwrap()));
    for file in &written.files {
        assert!(!file.stats.contains("part"), "{}", file.stats);
        let mut batches = ParquetRecordBatchReaderBuilder::try_new(bytes(&store, file).await).unwrap().build().unwrap();
        let read = batches.next().unwrap().unwrap();
        let names: Vec<&String> = read.schema_ref().fields().iter().map(|f| f.name()).collect();
        assert_eq!(names, ["id", "noise", "part"]);
        let expected = file.partition_values["part"].as_deref();
        assert!(read.column(2).as_string::<i32>().iter().all(|part| part == expected));
        assert_eq!(read.column(0).as_primitive::<Int64Type>().len() as u64, file.rows);
    }
}
