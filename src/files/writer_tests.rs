use std::fmt;
use std::ops::Range;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int64Array, ListArray,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStoreExt, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, UploadPart,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::clock::Ids;
use crate::digest::Digest;
use crate::error::ErrorKind;
use crate::files::{Compression, DataFile};

fn world() -> World {
    World { ids: Arc::new(Ids::from_seed(1)), ..World::system() }
}

fn settings(threads: usize) -> FileSettings {
    FileSettings { threads, ..FileSettings::default() }
}

/// Rows `from..to` of one relation with a column of each kind.
fn rows(from: i64, to: i64) -> RecordBatch {
    let n = || from..to;
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        n().map(|i| (i % 7 != 0).then(|| (0..i % 4).map(|j| Some((i + j) as i32)).collect::<Vec<_>>())),
    );
    let (_, offsets, values, nulls) = list.into_parts();
    let list = ListArray::new(Arc::new(Field::new("element", DataType::Int32, true)), offsets, values, nulls);
    let inner: ArrayRef = Arc::new(StringArray::from_iter(n().map(|i| (i % 3 != 0).then(|| format!("in {i}")))));
    let decimals = Decimal128Array::from_iter_values(n().map(|i| i128::from(i) * 1_000_003 - 7));
    RecordBatch::try_from_iter_with_nullable(vec![
        ("id", Arc::new(Int64Array::from_iter_values(n())) as ArrayRef, false),
        ("flag", Arc::new(BooleanArray::from_iter(n().map(|i| (i % 5 != 0).then_some(i % 2 == 0)))), true),
        ("price", Arc::new(decimals.with_precision_and_scale(20, 4).unwrap()), true),
        ("ratio", Arc::new(Float64Array::from_iter_values(n().map(|i| i as f64 / 3.0))), true),
        ("name", Arc::new(StringArray::from_iter_values(n().map(|i| format!("name {}", i * 7919 % 10007)))), true),
        ("raw", Arc::new(BinaryArray::from_iter_values(n().map(|i| i.to_le_bytes()))), true),
        ("day", Arc::new(Date32Array::from_iter_values(n().map(|i| (i % 3000) as i32))), true),
        ("local", Arc::new(TimestampMicrosecondArray::from_iter_values(n().map(|i| i * 1_000_001))), true),
        ("at", Arc::new(TimestampMicrosecondArray::from_iter_values(n().map(|i| i * 999)).with_timezone("UTC")), true),
        ("tags", Arc::new(list), true),
        ("pair", Arc::new(StructArray::from(vec![(Arc::new(Field::new("x", DataType::Utf8, true)), inner)])), true),
    ])
    .unwrap()
}

async fn write(store: Arc<dyn ObjectStore>, settings: &FileSettings, batches: &[RecordBatch]) -> Result<Written> {
    let schema = batches.first().map_or_else(|| rows(0, 0).schema(), RecordBatch::schema);
    let mut writer = FileWriter::new(store, schema, settings, &world());
    for batch in batches {
        writer.write(batch.clone()).await?;
    }
    assert_eq!(writer.rows(), batches.iter().map(|b| b.num_rows() as u64).sum::<u64>());
    writer.finish().await
}

/// A file's rows, after checking what its [`DataFile`] says of it.
async fn read(store: &dyn ObjectStore, file: &DataFile, schema: &SchemaRef) -> RecordBatch {
    let bytes = store.get(&Path::from(file.path.as_str())).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes.len() as u64, file.size);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    assert_eq!(builder.metadata().file_metadata().key_value_metadata(), None);
    let batches: Vec<RecordBatch> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
    let batches: Vec<RecordBatch> =
        batches.into_iter().map(|b| RecordBatch::try_new(Arc::clone(schema), b.columns().to_vec()).unwrap()).collect();
    let read = concat_batches(schema, &batches).unwrap();
    assert_eq!(read.num_rows() as u64, file.rows);
    let stats: serde_json::Value = serde_json::from_str(&file.stats).unwrap();
    assert_eq!(stats["numRecords"], file.rows);
    read
}

async fn read_all(store: &dyn ObjectStore, written: &Written, schema: &SchemaRef) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    for file in &written.files {
        batches.push(read(store, file, schema).await);
    }
    assert_eq!(written.rows, written.files.iter().map(|f| f.rows).sum::<u64>());
    assert_eq!(written.bytes, written.files.iter().map(|f| f.size).sum::<u64>());
    batches
}

fn digest(batches: &[RecordBatch]) -> Digest {
    batches.iter().fold(Digest::EMPTY, |sum, batch| sum.plus(Digest::of(batch).unwrap()))
}

#[tokio::test]
async fn few_rows_become_one_file_that_reads_back_equal() {
    for text in ["zstd", "snappy", "lz4", "none"] {
        let compression: Compression = text.parse().unwrap();
        let store = Arc::new(InMemory::new());
        let batches = [rows(0, 600), rows(600, 1000)];
        let settings = FileSettings { compression, ..settings(2) };
        let written = write(store.clone(), &settings, &batches).await.unwrap();
        assert_eq!(written.files.len(), 1, "{text}");
        let path = &written.files[0].path;
        assert!(path.starts_with("cutover-") && path.ends_with(".parquet"), "{path}");
        assert_eq!(read_all(&*store, &written, &batches[0].schema()).await, [rows(0, 1000)], "{text}");
        assert_eq!(written.digest, digest(&batches), "{text}");
    }
}

#[tokio::test]
async fn files_are_plain_parquet() {
    let store = Arc::new(InMemory::new());
    let written = write(store.clone(), &settings(0), &[rows(0, 10)]).await.unwrap();
    let path = Path::from(written.files[0].path.as_str());
    let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
    let columns: Vec<String> = builder.parquet_schema().columns().iter().map(|c| c.path().string()).collect();
    assert!(columns.contains(&"tags.list.element".to_string()), "{columns:?}");
    let types = builder.schema();
    let micros =
        |zone: Option<&str>| DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, zone.map(Into::into));
    assert_eq!(types.field_with_name("local").unwrap().data_type(), &micros(None));
    assert_eq!(types.field_with_name("at").unwrap().data_type(), &micros(Some("UTC")));
}

#[tokio::test]
async fn no_rows_leave_no_file() {
    for batches in [vec![], vec![rows(0, 0), rows(5, 5)]] {
        let store = Arc::new(InMemory::new());
        assert_eq!(write(store.clone(), &settings(2), &batches).await.unwrap(), Written::default());
        assert!(store.list_with_delimiter(None).await.unwrap().objects.is_empty());
    }
}

#[tokio::test]
async fn the_number_of_threads_changes_neither_rows_nor_digest() {
    let batches: Vec<RecordBatch> = (0..20).map(|i| rows(i * 10_000, (i + 1) * 10_000)).collect();
    for threads in [0, 1, 2, 5] {
        let store = Arc::new(InMemory::new());
        let written = write(store.clone(), &settings(threads), &batches).await.unwrap();
        assert_eq!(written.rows, 200_000, "{threads} threads");
        assert_eq!(written.digest, digest(&batches), "{threads} threads");
        assert!((1..=threads.max(1)).contains(&written.files.len()), "{threads} threads");
        assert_eq!(digest(&read_all(&*store, &written, &batches[0].schema()).await), written.digest);
    }
}

#[tokio::test]
async fn one_huge_batch_is_spread_over_files_of_the_target_size() {
    let huge = rows(0, 400_000);
    for threads in [0, 2] {
        let store = Arc::new(InMemory::new());
        let settings = FileSettings { target_file_size: 1 << 19, ..settings(threads) };
        let written = write(store.clone(), &settings, std::slice::from_ref(&huge)).await.unwrap();
        assert!(written.files.len() >= 4, "{} files", written.files.len());
        let read = read_all(&*store, &written, &huge.schema()).await;
        assert!(written.files.iter().all(|f| f.rows <= 131_072), "{:?}", written.files);
        assert_eq!(digest(&read), Digest::of(&huge).unwrap());
        if threads == 0 {
            assert_eq!(concat_batches(&huge.schema(), &read).unwrap(), huge);
        }
        let names: std::collections::HashSet<&String> = written.files.iter().map(|f| &f.path).collect();
        assert_eq!(names.len(), written.files.len());
    }
}

/// Bytes that no codec makes smaller, `n` rows of 1 KiB.
fn noise(n: usize, seed: u64) -> RecordBatch {
    let mut state = seed | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let values: Vec<Vec<u8>> = (0..n).map(|_| (0..128).flat_map(|_| word()).collect()).collect();
    RecordBatch::try_from_iter(vec![("raw", Arc::new(BinaryArray::from_iter_values(values)) as ArrayRef)]).unwrap()
}

#[tokio::test]
async fn a_file_of_several_parts_reads_back_equal() {
    let batches: Vec<RecordBatch> = (0..6).map(|i| noise(8 << 10, i + 1)).collect();
    for threads in [0, 1] {
        let store = Arc::new(InMemory::new());
        let written = write(store.clone(), &settings(threads), &batches).await.unwrap();
        assert_eq!(written.files.len(), 1);
        assert!(written.bytes > 48 << 20);
        let schema = batches[0].schema();
        assert_eq!(read_all(&*store, &written, &schema).await, [concat_batches(&schema, &batches).unwrap()]);
    }
}

#[tokio::test]
async fn progress_is_told_while_a_file_grows() {
    let mut writer = FileWriter::new(Arc::new(InMemory::new()), noise(1, 1).schema(), &settings(0), &world());
    writer.write(noise(8 << 10, 1)).await.unwrap();
    assert!(writer.rows() == 8 << 10 && writer.bytes() < 1024, "{}", writer.bytes());
    for seed in 2..7 {
        writer.write(noise(8 << 10, seed)).await.unwrap();
    }
    assert_eq!(writer.rows(), 6 * (8 << 10));
    assert!(writer.bytes() > 24 << 20, "{}", writer.bytes());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Put,
    PanicInPut,
    Begin,
    Part,
    Complete,
}

/// A store that fails at one thing.
#[derive(Debug)]
struct Faulty {
    inner: InMemory,
    fault: Fault,
    aborted: Arc<std::sync::atomic::AtomicUsize>,
}

impl Faulty {
    fn new(fault: Fault) -> Arc<Self> {
        Arc::new(Self { inner: InMemory::new(), fault, aborted: Arc::default() })
    }
}

fn fault() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "as asked".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.fault)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, payload: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        match self.fault {
            Fault::Put => Err(fault()),
            Fault::PanicInPut => panic!("as asked"),
            _ => self.inner.put_opts(at, payload, opts).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        if self.fault == Fault::Begin {
            return Err(fault());
        }
        let inner = self.inner.put_multipart_opts(at, opts).await?;
        Ok(Box::new(FaultyUpload { inner, fault: self.fault, aborted: Arc::clone(&self.aborted) }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> object_store::Result<Vec<Bytes>> {
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    fault: Fault,
    aborted: Arc<std::sync::atomic::AtomicUsize>,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        if self.fault == Fault::Part { Box::pin(async { Err(fault()) }) } else { self.inner.put_part(data) }
    }

    async fn complete(&mut self) -> object_store::Result<PutResult> {
        if self.fault == Fault::Complete { Err(fault()) } else { self.inner.complete().await }
    }

    async fn abort(&mut self) -> object_store::Result<()> {
        self.aborted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.inner.abort().await
    }
}

#[tokio::test]
async fn a_put_that_fails_is_an_error_of_the_writer() {
    let many = [rows(0, 100_000), rows(100_000, 200_000)];
    for threads in [0, 1, 2] {
        for batches in [&[rows(0, 10)][..], &many] {
            let err = write(Faulty::new(Fault::Put), &settings(threads), batches).await.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unavailable, "{threads} threads: {err}");
            assert!(std::error::Error::source(&err).is_some());
        }
    }
}

#[tokio::test]
async fn an_upload_in_parts_that_fails_is_aborted_and_an_error_of_the_writer() {
    let batches: Vec<RecordBatch> = (0..6).map(|i| noise(8 << 10, i + 1)).collect();
    for fault in [Fault::Begin, Fault::Part, Fault::Complete] {
        for threads in [0, 1, 2] {
            let store = Faulty::new(fault);
            let err = write(store.clone(), &settings(threads), &batches).await.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unavailable, "{fault:?}, {threads} threads: {err}");
            let aborted = store.aborted.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(aborted > 0, fault != Fault::Begin, "{fault:?}, {threads} threads: {aborted} aborted");
        }
    }
}

#[tokio::test]
async fn a_panic_in_an_encoder_thread_is_an_error_of_the_writer() {
    let batches = [rows(0, 100_000)];
    let err = write(Faulty::new(Fault::PanicInPut), &settings(1), &batches).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Internal);
    assert_eq!(std::error::Error::source(&err).map(ToString::to_string), Some("as asked".to_string()));
}

#[tokio::test]
async fn a_writer_that_failed_stays_failed() {
    let mut writer = FileWriter::new(Faulty::new(Fault::Begin), noise(1, 1).schema(), &settings(0), &world());
    let mut failed = 0;
    for seed in 0..10 {
        failed += usize::from(writer.write(noise(8 << 10, seed + 1)).await.is_err());
    }
    assert!(failed >= 2, "{failed}");
    assert!(writer.finish().await.is_err());
}

#[tokio::test]
async fn a_batch_of_another_schema_is_refused_and_harms_nothing() {
    let store = Arc::new(InMemory::new());
    let batch = rows(0, 10);
    let mut writer = FileWriter::new(store, batch.schema(), &settings(1), &world());
    writer.write(batch.clone()).await.unwrap();
    let other = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)])));
    assert_eq!(writer.write(other).await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(writer.finish().await.unwrap().rows, 10);
}

#[tokio::test]
async fn a_dropped_writer_gives_its_upload_up() {
    let store = Arc::new(Faulty { inner: InMemory::new(), fault: Fault::Complete, aborted: Arc::default() });
    let mut writer = FileWriter::new(store.clone(), noise(1, 1).schema(), &settings(1), &world());
    for seed in 0..6 {
        writer.write(noise(8 << 10, seed + 1)).await.unwrap();
    }
    drop(writer);
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.aborted.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(store.list_with_delimiter(None).await.unwrap().objects.is_empty());
}
