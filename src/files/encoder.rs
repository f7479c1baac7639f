//! One open file at a time: rows in, complete files out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::encoding;
use super::groups::RowGroups;
use super::stats::FileStats;
use super::upload::{Overlap, Upload};
use super::{DataFile, FileSettings, Written};
use crate::clock::World;
use crate::digest::Digest;
use crate::error::{Error, Result};

/// The most rows in a row group; with encodings of their own columns gain nothing from more.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// The memory in bytes of the open row group at which it ends; a slice of rows may overshoot it by its own size.
const ROW_GROUP_BYTES: usize = 24 << 20;

/// What all encoders of one writer share.
#[derive(Debug)]
pub(super) struct Job {
    store: Arc<dyn ObjectStore>,
    schema: SchemaRef,
    properties: WriterProperties,
    target_file_size: u64,
    indexed_columns: usize,
    prefix: &'static str,
    world: World,
    encoded: AtomicU64,
}

impl Job {
    pub(super) fn new(store: Arc<dyn ObjectStore>, schema: SchemaRef, settings: &FileSettings, world: &World) -> Self {
        let properties = WriterProperties::builder()
            .set_compression(settings.compression.codec())
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        Self {
            store,
            schema,
            properties,
            target_file_size: settings.target_file_size,
            indexed_columns: settings.indexed_columns,
            prefix: settings.prefix,
            world: world.clone(),
            encoded: AtomicU64::new(0),
        }
    }

    /// The schema of all batches.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
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
    written: Written,
}

impl Encoder {
    pub(super) fn new(job: Arc<Job>, overlap: Overlap, expected: Expected) -> Self {
        Self { job, overlap, expected, open: None, written: Written::default() }
    }

    /// Adds rows; ends the file when it reaches the target size.
    ///
    /// After an error, or when the future is dropped, the open file misses bytes: [`Encoder::abort`] is what is left.
    pub(super) async fn encode(&mut self, slice: &RecordBatch) -> Result<()> {
        if slice.num_rows() == 0 {
            return Ok(());
        }
        let file = match &mut self.open {
            Some(file) => file,
            none => {
                let properties = match self.expected {
                    Expected::Few => self.job.properties.clone(),
                    Expected::Many => self.job.suited(slice)?,
                };
                none.insert(OpenFile::new(&self.job, self.overlap, properties)?)
            }
        };
        self.written.digest = self.written.digest.plus(Digest::of(slice)?);
        file.add(slice)?;
        file.send_full_parts(&self.job).await?;
        if file.size() >= self.job.target_file_size {
            self.end_file().await?;
        }
        Ok(())
    }

    /// Completes the open file and says what was written in all.
    pub(super) async fn finish(&mut self) -> Result<Written> {
        self.end_file().await?;
        Ok(std::mem::take(&mut self.written))
    }

    /// Gives the open file up.
    pub(super) async fn abort(self) {
        if let Some(file) = self.open {
            file.upload.abort().await;
        }
    }

    async fn end_file(&mut self) -> Result<()> {
        let Some(file) = self.open.take() else { return Ok(()) };
        let done = file.complete(&self.job).await?;
        self.written.rows += done.rows;
        self.written.bytes += done.size;
        self.written.files.push(done);
        Ok(())
    }
}

/// A file that is being written.
#[derive(Debug)]
struct OpenFile {
    name: String,
    writer: RowGroups,
    upload: Upload,
    stats: FileStats,
    /// The bytes that [`Job::encoded`] knows of.
    counted: u64,
}

impl OpenFile {
    fn new(job: &Job, overlap: Overlap, properties: WriterProperties) -> Result<Self> {
        let name = format!("{}{}.parquet", job.prefix, job.world.ids.draw());
        let writer = RowGroups::new(&job.schema, properties).map_err(|e| not_encoded(&name, e))?;
        let upload = Upload::new(Arc::clone(&job.store), &name, overlap);
        let stats = FileStats::new(&job.schema, job.indexed_columns);
        Ok(Self { name, writer, upload, stats, counted: 0 })
    }

    fn add(&mut self, slice: &RecordBatch) -> Result<()> {
        self.stats.add(slice);
        self.writer.write(slice).map_err(|e| not_encoded(&self.name, e))?;
        if self.writer.memory_size() >= ROW_GROUP_BYTES {
            self.writer.flush().map_err(|e| not_encoded(&self.name, e))?;
        }
        Ok(())
    }

    /// The bytes written and, by estimate, those of the open row group.
    fn size(&self) -> u64 {
        (self.writer.bytes_written() + self.writer.in_progress_size()) as u64
    }

    async fn send_full_parts(&mut self, job: &Job) -> Result<()> {
        for part in self.writer.inner_mut().take_full() {
            self.upload.send(part).await?;
        }
        job.count(&mut self.counted, self.writer.bytes_written() as u64);
        Ok(())
    }

    async fn complete(mut self, job: &Job) -> Result<DataFile> {
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
            size,
            rows: self.stats.rows(),
            stats: self.stats.to_json(),
            modified_millis: job.world.clock.unix_millis(),
        })
    }
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
