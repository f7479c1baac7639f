//! A storage in memory that dates its objects by virtual time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, BooleanArray, RecordBatchReader};
use arrow::compute::filter_record_batch;
use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::time::Time;

#[derive(Debug)]
pub(super) struct Storage {
    objects: InMemory,
    time: Arc<Time>,
    dates: Arc<Mutex<BTreeMap<Path, i64>>>,
}

impl Storage {
    pub(super) fn new(time: Arc<Time>) -> Self {
        Self { objects: InMemory::new(), time, dates: Arc::default() }
    }

    /// What stands at `path`, without any process in between.
    pub(super) fn peek(&self, path: &str) -> Option<Bytes> {
        let path = Path::parse(path).unwrap();
        let read = async { self.objects.get(&path).await.ok()?.bytes().await.ok() };
        read.now_or_never().expect("memory answers at once")
    }

    pub(super) fn poke(&self, path: &str, bytes: Vec<u8>, opts: PutOptions) -> bool {
        let path = Path::parse(path).unwrap();
        self.put_opts(&path, bytes.into(), opts).now_or_never().expect("memory answers at once").is_ok()
    }

    pub(super) fn remove(&self, path: &str) {
        let path = Path::parse(path).unwrap();
        let _ = self.objects.delete(&path).now_or_never().expect("memory answers at once");
    }

    /// The files of checkpoints, and the hint, with their bytes.
    pub(super) fn checkpoints(&self) -> BTreeMap<String, Bytes> {
        let paths = self.dated().into_iter().map(|(path, _)| path);
        let leads = |path: &String| path.contains(".checkpoint.") || path.ends_with("_last_checkpoint");
        paths.filter(leads).filter_map(|path| Some((path.clone(), self.peek(&path)?))).collect()
    }

    /// Leads readers by these checkpoints and this hint alone.
    pub(super) fn lead_back(&self, before: &BTreeMap<String, Bytes>) {
        let found = self.checkpoints();
        found.keys().filter(|path| !before.contains_key(*path)).for_each(|path| self.remove(path));
        for (path, bytes) in before.iter().filter(|(path, bytes)| found.get(*path) != Some(bytes)) {
            self.poke(path, bytes.to_vec(), PutOptions::default());
        }
    }

    /// Takes a live file out of the checkpoint of `version`, if it names one.
    pub(super) fn falsify_checkpoint(&self, version: u64) -> bool {
        let path = format!("_delta_log/{version:020}.checkpoint.parquet");
        let Some(bytes) = self.peek(&path) else { return false };
        let mut reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), reader.schema(), None).unwrap();
        let mut is_false = false;
        while let Some(batch) = reader.next().transpose().unwrap() {
            let adds = batch.column_by_name("add").unwrap();
            let live = (0..batch.num_rows()).find(|row| !is_false && adds.is_valid(*row));
            is_false |= live.is_some();
            let stays = BooleanArray::from_iter((0..batch.num_rows()).map(|row| Some(Some(row) != live)));
            writer.write(&filter_record_batch(&batch, &stays).unwrap()).unwrap();
        }
        let bytes = writer.into_inner().unwrap();
        is_false && self.poke(&path, bytes, PutOptions::default())
    }

    /// Every object and when it was written, in milliseconds since 1970 UTC.
    pub(super) fn dated(&self) -> Vec<(String, i64)> {
        let listed = self.list(None).collect::<Vec<_>>().now_or_never().expect("memory answers at once");
        let dated = |meta: ObjectMeta| (meta.location.to_string(), meta.last_modified.timestamp_millis());
        listed.into_iter().map(|meta| dated(meta.unwrap())).collect()
    }
}

fn date(dates: &Mutex<BTreeMap<Path, i64>>, mut meta: ObjectMeta) -> ObjectMeta {
    let millis = dates.lock().unwrap().get(&meta.location).copied().unwrap_or_default();
    meta.last_modified = DateTime::from_timestamp_millis(millis).unwrap();
    meta
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Storage")
    }
}

#[async_trait]
impl ObjectStore for Storage {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let put = self.objects.put_opts(location, payload, opts).await?;
        self.dates.lock().unwrap().insert(location.clone(), self.time.unix_millis());
        Ok(put)
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.dates.lock().unwrap().insert(location.clone(), self.time.unix_millis());
        self.objects.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found = self.objects.get_opts(location, options).await?;
        found.meta = date(&self.dates, found.meta);
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let dates = Arc::clone(&self.dates);
        self.objects.list(prefix).map(move |meta| Ok(date(&dates, meta?))).boxed()
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let dates = Arc::clone(&self.dates);
        self.objects.list_with_offset(prefix, offset).map(move |meta| Ok(date(&dates, meta?))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut listing = self.objects.list_with_delimiter(prefix).await?;
        listing.objects = listing.objects.into_iter().map(|meta| date(&self.dates, meta)).collect();
        Ok(listing)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
