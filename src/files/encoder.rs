//! One open file at a time: rows in, complete files out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use object_store::ObjectStore;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::encoding;
use super::groups::RowGroups;
use super::partition::{PartitionValues, Partitioning};
use super::relabel::relabel;
use super::spread::{Share, Spread};
use super::stats::{FileStats, text_ranges};
use super::upload::{Overlap, Upload};
use super::{DataFile, FileSettings, Written};
use crate::clock::World;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::schema::StoredFields;

/// The most rows in a row group; with encodings of their own columns gain nothing from more.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// The memory in bytes of the open row group at which it ends; a slice of rows may overshoot it by its own size.
const ROW_GROUP_BYTES: usize = 24 << 20;

/// What all encoders of one writer share.
#[derive(Debug)]
pub(super) struct Job {
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    partitioning: Option<Partitioning>,
    /// The columns as the files hold them, in the order of [`Job::file_schema`].
    stored: SchemaRef,
    stored_fields: StoredFields,
    properties: WriterProperties,
    target_file_size: u64,
    indexed_columns: usize,
    always_indexed: Vec<String>,
    prefix: &'static str,
    world: World,
    encoded: AtomicU64,
}

impl Job {
    pub(super) fn new(store: Arc<dyn ObjectStore>, schema: SchemaRef, settings: &FileSettings, world: &World) -> Self {
        let notes = settings.notes.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
        let noted = (!settings.notes.is_empty()).then(|| notes.collect());
        let properties = WriterProperties::builder()
            .set_compression(settings.compression.codec())
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_key_value_metadata(noted)
            .build();
        let stored = stored_schema(&schema, &settings.stored_fields);
        Self {
            store,
            schema,
            partitioning: None,
            stored,
            stored_fields: settings.stored_fields.clone(),
            properties,
            target_file_size: settings.target_file_size,
            indexed_columns: settings.indexed_columns,
            always_indexed: settings.always_indexed.clone(),
            prefix: settings.prefix,
            world: world.clone(),
            encoded: AtomicU64::new(0),
        }
    }

    /// The same for rows that are partitioned.
    pub(super) fn partitioned(mut self, partitioning: Partitioning) -> Self {
        self.stored = stored_schema(partitioning.file_schema(), &self.stored_fields);
        self.partitioning = Some(partitioning);
        self
    }

    /// The schema of all batches.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The schema of all files.
    pub(super) fn file_schema(&self) -> &SchemaRef {
        self.partitioning.as_ref().map_or(&self.schema, Partitioning::file_schema)
    }

    /// The columns of a file that are no partition columns.
    fn data_columns(&self) -> impl Iterator<Item = &FieldRef> {
        let count = self.partitioning.as_ref().map_or(usize::MAX, Partitioning::unpartitioned);
        self.stored.fields().iter().take(count)
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.partitioning.is_some()
    }

    pub(super) fn target_file_size(&self) -> u64 {
        self.target_file_size
    }

    /// The properties of a file that begins with the rows of `first`.
    fn suited(&self, first: &RecordBatch) -> Result<WriterProperties> {
        encoding::suited(&self.properties, first, ROW_GROUP_ROWS)
            .map_err(|e| Error::internal("a sample of a data file's rows was not encoded").with_source(e))
    }

    /// The bytes that left the encoders, those of unfinished files included.
    pub(super) fn encoded(&self) -> u64 {
        self.encoded.load(Ordering::Relaxed)
    }

    /// Raises [`Job::encoded`] by what `reached` adds to the file's bytes counted so far.
    fn count(&self, counted: &mut u64, reached: u64) {
        self.encoded.fetch_add(reached.saturating_sub(*counted), Ordering::Relaxed);
        *counted = reached;
    }
}

/// How many rows there will be, as far as that is known when the first ones come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// One slice at most: choosing encodings would cost more than it saves.
    Few,
    /// Any number.
    Many,
}

/// Encodes rows into one file after another.
#[derive(Debug)]
pub(super) struct Encoder {
    job: Arc<Job>,
    overlap: Overlap,
    expected: Expected,
    open: Option<OpenFile>,
    /// What stands in for `open` when the rows are partitioned.
    spread: Option<Box<Spread>>,
    share: Share,
    written: Written,
}

impl Encoder {
    pub(super) fn new(job: Arc<Job>, overlap: Overlap, expected: Expected) -> Self {
        let share = Share::WHOLE;
        Self { job, overlap, expected, open: None, spread: None, share, written: Written::default() }
    }

    /// The same for one of several that each get every slice of partitioned rows.
    pub(super) fn sharing(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Adds rows; ends the file when it reaches the target size.
    ///
    /// After an error, or when the future is dropped, the open file misses bytes: [`Encoder::abort`] is what is left.
    pub(super) async fn encode(&mut self, slice: &RecordBatch) -> Result<()> {
        if slice.num_rows() == 0 {
            return Ok(());
        }
        if let Some(partitioning) = &self.job.partitioning {
            let spread = match &mut self.spread {
                Some(spread) => spread,
                none => none.insert(Box::new(Spread::new(partitioning, self.overlap, self.share)?)),
            };
            let done = spread.add(&self.job, partitioning, slice).await?;
            self.take(done);
            return Ok(());
        }
        let file = match &mut self.open {
            Some(file) => file,
            none => {
                let values = PartitionValues::new();
                none.insert(OpenFile::new(&self.job, self.overlap, values, self.expected, slice)?)
            }
        };
        file.add(slice, Digest::of(slice)?)?;
        file.send_full_parts(&self.job).await?;
        if file.size() >= self.job.target_file_size {
            self.end_file().await?;
        }
        Ok(())
    }

    /// Completes the open file and says what was written in all.
    pub(super) async fn finish(&mut self) -> Result<Written> {
        self.end_file().await?;
        if let Some(spread) = &mut self.spread {
            let done = spread.finish(&self.job).await?;
            self.take(done);
        }
        Ok(std::mem::take(&mut self.written))
    }

    /// Gives the open files up.
    pub(super) async fn abort(self) {
        if let Some(file) = self.open {
            file.abort().await;
        }
        if let Some(spread) = self.spread {
            spread.abort().await;
        }
    }

    async fn end_file(&mut self) -> Result<()> {
        let Some(file) = self.open.take() else { return Ok(()) };
        let done = file.complete(&self.job).await?;
        self.take(vec![done]);
        Ok(())
    }

    fn take(&mut self, files: Vec<DataFile>) {
        self.written.rows += files.iter().map(|file| file.rows).sum::<u64>();
        self.written.bytes += files.iter().map(|file| file.size).sum::<u64>();
        self.written.digest = self.written.digest.plus(files.iter().map(|file| file.digest).sum());
        self.written.files.extend(files);
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct OpenFile {
    name: String,
    partition_values: PartitionValues,
    stored: SchemaRef,
    writer: RowGroups,
    upload: Upload,
    stats: FileStats,
    digest: Digest,
    /// The bytes that [`Job::encoded`] knows of.
    counted: u64,
}

impl OpenFile {
    /// A file that is to begin with the rows of `first`, and to hold as many as `expected`.
    pub(super) fn new(
        job: &Job,
        overlap: Overlap,
        partition_values: PartitionValues,
        expected: Expected,
        first: &RecordBatch,
    ) -> Result<Self> {
        let name = format!("{}{}.parquet", job.prefix, job.world.ids.draw());
        let properties = match expected {
            Expected::Few => job.properties.clone(),
            Expected::Many => job.suited(&as_stored(first, &job.stored)?)?,
        };
        let writer = RowGroups::new(&job.stored, properties).map_err(|e| not_encoded(&name, e))?;
        let upload = Upload::new(Arc::clone(&job.store), &name, overlap);
        let stats = FileStats::new(job.data_columns(), job.indexed_columns, &job.always_indexed);
        let (stored, digest) = (Arc::clone(&job.stored), Digest::EMPTY);
        Ok(Self { name, partition_values, stored, writer, upload, stats, digest, counted: 0 })
    }

    /// Adds rows, whose partition columns may be missing, and their digest with all columns.
    pub(super) fn add(&mut self, slice: &RecordBatch, digest: Digest) -> Result<()> {
        self.digest = self.digest.plus(digest);
        let slice = as_stored(slice, &self.stored)?;
        let mut start = 0;
        while start < slice.num_rows() {
            let piece = slice.slice(start, self.writer.room().min(slice.num_rows() - start));
            let texts = text_ranges(&piece);
            self.stats.add(&piece, &texts);
            self.writer.write(&piece, &texts).map_err(|e| not_encoded(&self.name, e))?;
            start += piece.num_rows();
        }
        if self.writer.memory_size() >= ROW_GROUP_BYTES {
            self.writer.flush().map_err(|e| not_encoded(&self.name, e))?;
        }
        Ok(())
    }

    /// Ends the open row group, and sends what parts are full then.
    pub(super) async fn flush(&mut self, job: &Job) -> Result<()> {
        self.writer.flush().map_err(|e| not_encoded(&self.name, e))?;
        self.send_full_parts(job).await
    }

    /// Waits until every part that was sent is in the store.
    pub(super) async fn settle(&mut self) -> Result<()> {
        self.upload.settle().await
    }

    /// The bytes in memory of the open row group.
    pub(super) fn row_group_memory(&self) -> usize {
        self.writer.memory_size()
    }

    /// The bytes in memory: the open row group, what was not sent, and the parts under way.
    pub(super) fn memory(&self) -> usize {
        self.writer.memory_size() + self.writer.inner().unsent() + self.upload.under_way_bytes()
    }

    /// The bytes in memory of the parts under way.
    pub(super) fn under_way_bytes(&self) -> usize {
        self.upload.under_way_bytes()
    }

    pub(super) async fn abort(self) {
        self.upload.abort().await;
    }

    /// The bytes written and, by estimate, those of the open row group.
    pub(super) fn size(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    pub(super) async fn send_full_parts(&mut self, job: &Job) -> Result<()> {
        for part in self.writer.inner_mut().take_full() {
            self.upload.send(part).await?;
        }
        job.count(&mut self.counted, self.writer.bytes_written() as u64);
        Ok(())
    }

    pub(super) async fn complete(mut self, job: &Job) -> Result<DataFile> {
        let size = match send_rest(&self.name, self.writer, &mut self.upload).await {
            Ok(size) => size,
            Err(error) => {
                self.upload.abort().await;
                return Err(error);
            }
        };
        job.count(&mut self.counted, size);
        Ok(DataFile {
            path: self.name,
            partition_values: self.partition_values,
            size,
            rows: self.stats.rows(),
            digest: self.digest,
            stats: self.stats.to_json(),
            modified_millis: job.world.clock.unix_millis(),
        })
    }
}

/// The columns of `schema` as files hold them.
fn stored_schema(schema: &SchemaRef, stored_fields: &StoredFields) -> SchemaRef {
    match stored_fields {
        None => Arc::clone(schema),
        Some(stored) => {
            let fields = schema.fields().iter().map(|f| stored.get(f.name()).unwrap_or(f)).cloned();
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        }
    }
}

/// Rows as a file holds them.
fn as_stored(slice: &RecordBatch, stored: &SchemaRef) -> Result<RecordBatch> {
    if slice.schema_ref() == stored {
        return Ok(slice.clone());
    }
    let columns = slice.columns().iter().zip(stored.fields()).map(|(c, f)| relabel(c, f.data_type()));
    RecordBatch::try_new(Arc::clone(stored), columns.collect::<Result<Vec<_>>>()?)
        .map_err(|e| Error::internal("rows do not fit the names that their data file has for them").with_source(e))
}

/// Sends what is left of a file, its footer included; the file's size in bytes.
async fn send_rest(name: &str, writer: RowGroups, upload: &mut Upload) -> Result<u64> {
    let buffer = writer.into_inner().map_err(|e| not_encoded(name, e))?;
    let size = buffer.total();
    let (full, last) = buffer.into_parts();
    for part in full {
        upload.send(part).await?;
    }
    upload.complete(last).await?;
    Ok(size)
}

fn not_encoded(name: &str, error: ParquetError) -> Error {
    Error::internal(format!("the data file {name} was not encoded")).with_source(error)
}
