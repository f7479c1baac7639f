//! The rows of a table's data files, column by column as they are wanted.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, StringArray, UInt32Array, new_null_array};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch, take};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, RowSelection};
use parquet::arrow::async_reader::{AsyncFileReader, ParquetRecordBatchStreamBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use crate::error::{Error, Result};
use crate::files::relabel;
use crate::log::{Facts, FileColumns, LiveFile, Log, RowSet};
use crate::schema::kept_type;
use crate::store::store_error;

/// The most rows of a batch.
const BATCH_ROWS: usize = 4096;
/// Files up to this many bytes are fetched whole, in one request.
const WHOLE_BYTES: u64 = 4 << 20;
/// What is fetched of a larger file's end at once, in the hope that it holds the footer.
const FOOTER_BYTES: usize = 64 << 10;
/// How many files are opened ahead of the one that is read.
const AHEAD: usize = 8;

/// Where files are, and how they hold the table's columns.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) columns: FileColumns,
}

impl Origin {
    /// The files of the table of `facts`, which has the columns `table`.
    pub(crate) fn of(log: &Log, facts: &Facts, table: &Schema) -> Result<Self> {
        Ok(Self { store: Arc::clone(log.store()), columns: log.file_columns(facts, None, table)? })
    }

    /// The column as the files hold it.
    pub(crate) fn stored<'a>(&'a self, field: &'a FieldRef) -> &'a FieldRef {
        self.columns.stored.as_ref().and_then(|stored| stored.get(field.name())).unwrap_or(field)
    }
}

/// A file to read, and which of its rows; all of them for `None`.
pub(crate) struct Wanted {
    pub(crate) file: LiveFile,
    pub(crate) rows: Option<RowSelection>,
}

/// Some rows of one file.
pub(crate) struct Piece {
    /// The file's place among those asked for.
    pub(crate) file: usize,
    /// The file's path as the log spells it; for messages.
    pub(crate) path: Arc<str>,
    /// The place of the first row among those read of the file.
    pub(crate) first_row: usize,
    /// The rows, with the columns asked for.
    pub(crate) rows: RecordBatch,
}

/// The rows of files that are not deleted, each file with the places of those that are; otherwise as [`read`] gives them.
pub(crate) fn read_live(
    from: &Origin,
    files: Vec<(LiveFile, RowSet)>,
    columns: &SchemaRef,
) -> BoxStream<'static, Result<RecordBatch>> {
    let (files, deleted): (Vec<LiveFile>, Vec<RowSet>) = files.into_iter().unzip();
    let wanted = files.into_iter().map(|file| Wanted { file, rows: None }).collect();
    let live = move |piece: Result<Piece>| {
        let piece = piece?;
        match deleted.get(piece.file).filter(|deleted| !deleted.is_empty()) {
            Some(deleted) => piece.without(deleted),
            None => Ok(piece.rows),
        }
    };
    read(from, wanted, columns).map(live).boxed()
}

impl Piece {
    /// The rows without those that are deleted, of a file that is read whole.
    pub(crate) fn without(&self, deleted: &RowSet) -> Result<RecordBatch> {
        let places = (self.first_row as u64..).take(self.rows.num_rows());
        let live: BooleanArray = places.map(|place| Some(!deleted.contains(place))).collect();
        filter_record_batch(&self.rows, &live)
            .map_err(|e| Error::internal("deleted rows were not left out").with_source(e))
    }
}

/// The rows of files, in the files' order and each file's own, cast to `columns`; null where a file lacks a column.
///
/// Corrupt: a file that is missing, has another size than the log says, is damaged, or does not fit the columns.
pub(crate) fn read(from: &Origin, files: Vec<Wanted>, columns: &SchemaRef) -> BoxStream<'static, Result<Piece>> {
    let (from, columns) = (from.clone(), Arc::clone(columns));
    let open = move |wanted| read_one(from.clone(), wanted, Arc::clone(&columns));
    stream::iter(files.into_iter().enumerate()).map(open).buffered(AHEAD).try_flatten().boxed()
}

async fn read_one(
    from: Origin,
    (file, wanted): (usize, Wanted),
    columns: SchemaRef,
) -> Result<BoxStream<'static, Result<Piece>>> {
    let path: Arc<str> = wanted.file.path.as_str().into();
    let constants = partition_columns(&wanted.file, &from, &columns)?;
    let reader = open(Arc::clone(&from.store), &wanted.file).await?;
    let decoding =
        AssertUnwindSafe(batches(reader, wanted.rows, from, Arc::clone(&columns), constants, Arc::clone(&path)));
    let decoded = decoding.catch_unwind().await.unwrap_or_else(|_| Err(gave_up(&path)))?;
    let mut first_row = 0;
    // A decoder that panics met bytes that no writer of ours leaves.
    let pieces = AssertUnwindSafe(decoded).catch_unwind().map(move |batch| {
        let rows = batch.unwrap_or_else(|_| Err(gave_up(&path)))?;
        let piece = Piece { file, path: Arc::clone(&path), first_row, rows };
        first_row += piece.rows.num_rows();
        Ok(piece)
    });
    Ok(pieces.boxed())
}

async fn open(store: Arc<dyn ObjectStore>, file: &LiveFile) -> Result<ObjectReader> {
    let object = file.object()?;
    let size = u64::try_from(file.size).unwrap_or(u64::MAX);
    let same_size = |found: u64| {
        let says = || format!("the data file {} has {found} bytes, the log says {}", file.path, file.size);
        if found == size { Ok(()) } else { Err(Error::corrupt(says())) }
    };
    let failed = |e| unreadable(&file.path, e);
    let whole = if size <= WHOLE_BYTES {
        let found = store.get(&object).await.map_err(failed)?;
        same_size(found.meta.size)?;
        Some(found.bytes().await.map_err(failed)?)
    } else {
        same_size(store.head(&object).await.map_err(failed)?.size)?;
        None
    };
    Ok(ObjectReader { store, object, size, whole })
}

/// A file for the Parquet reader.
struct ObjectReader {
    store: Arc<dyn ObjectStore>,
    object: Path,
    size: u64,
    whole: Option<Bytes>,
}

impl AsyncFileReader for ObjectReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        let ranges = self.get_byte_ranges(vec![range]);
        async move { ranges.await?.pop().ok_or_else(|| ParquetError::EOF("nothing was read".into())) }.boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        async move {
            if ranges.iter().any(|r| r.start > r.end || r.end > self.size) {
                return Err(ParquetError::EOF("a part lies beyond the file's end".into()));
            }
            let Some(whole) = &self.whole else {
                let read = self.store.get_ranges(&self.object, &ranges).await;
                return read.map_err(|e| ParquetError::External(Box::new(e)));
            };
            let cut = |r: Range<u64>| Ok(whole.slice(usize::try_from(r.start)?..usize::try_from(r.end)?));
            ranges.into_iter().map(cut).collect()
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        let size = self.size;
        let metadata = ParquetMetaDataReader::new().with_arrow_reader_options(options);
        let metadata = metadata.with_prefetch_hint(Some(FOOTER_BYTES));
        async move { Ok(Arc::new(metadata.load_and_finish(self, size).await?)) }.boxed()
    }
}

async fn batches(
    reader: ObjectReader,
    rows: Option<RowSelection>,
    from: Origin,
    columns: SchemaRef,
    constants: HashMap<String, ArrayRef>,
    path: Arc<str>,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let builder = ParquetRecordBatchStreamBuilder::new(reader).await.map_err(|e| undecoded(&path, e))?;
    let names: HashSet<&str> = columns.fields().iter().map(|f| from.stored(f).name().as_str()).collect();
    let roots = builder.parquet_schema().root_schema().get_fields().iter().enumerate();
    let roots: Vec<usize> = roots.filter(|(_, f)| names.contains(f.name())).map(|(i, _)| i).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    let builder = match rows {
        Some(rows) => builder.with_row_selection(rows),
        None => builder,
    };
    let decoded = builder.build().map_err(|e| undecoded(&path, e))?;
    let fitted = move |batch: Result<RecordBatch, ParquetError>| {
        fit(&batch.map_err(|e| undecoded(&path, e))?, &columns, &from, &constants, &path)
    };
    Ok(decoded.map(fitted).boxed())
}

/// The file's partition columns among `columns`, by name, each with its one value.
fn partition_columns(file: &LiveFile, from: &Origin, columns: &SchemaRef) -> Result<HashMap<String, ArrayRef>> {
    let column = |field: &FieldRef| {
        let value = file.partition_values.get(from.stored(field).name())?;
        // An empty value stands for null, whatever the type.
        let text = StringArray::from(vec![value.as_deref().filter(|text| !text.is_empty())]);
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = cast_with_options(&text, field.data_type(), &options).map_err(|e| {
            Error::corrupt(format!(
                "the log gives the data file {} the partition value {value:?} of {:?}, which is no {}",
                file.path,
                field.name(),
                field.data_type()
            ))
            .with_source(e)
        });
        Some(cast.map(|cast| (field.name().clone(), cast)))
    };
    columns.fields().iter().filter_map(column).collect()
}

/// The batch with the columns wanted.
fn fit(
    batch: &RecordBatch,
    wanted: &SchemaRef,
    from: &Origin,
    constants: &HashMap<String, ArrayRef>,
    path: &str,
) -> Result<RecordBatch> {
    let n = batch.num_rows();
    let repeat = |value: &ArrayRef| {
        take(value, &UInt32Array::from(vec![0; n]), None)
            .map_err(|e| Error::internal("a partition value was not repeated").with_source(e))
    };
    let columns: Vec<ArrayRef> = wanted
        .fields()
        .iter()
        .map(|field| {
            let stored = from.stored(field);
            match (constants.get(field.name()), batch.column_by_name(stored.name())) {
                (Some(value), _) => repeat(value),
                (None, Some(column)) => relabel(&fit_column(column, stored, path)?, field.data_type()),
                (None, None) => Ok(new_null_array(field.data_type(), n)),
            }
        })
        .collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(wanted), columns, &options).map_err(|e| {
        Error::corrupt(format!("the data file {path} lacks a column, or values in one, that every row has"))
            .with_source(e)
    })
}

/// The column in the type of `field`, where that holds each of its values.
pub(crate) fn fit_column(column: &ArrayRef, field: &Field, path: &str) -> Result<ArrayRef> {
    let (stored, wanted) = (column.data_type(), field.data_type());
    if stored == wanted {
        return Ok(Arc::clone(column));
    }
    let misfit = || {
        let name = field.name();
        Error::corrupt(format!("the data file {path} has the column {name:?} as {stored}, the table as {wanted}"))
    };
    if !holds(wanted, stored) {
        return Err(misfit());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(column, wanted, &options).map_err(|e| misfit().with_source(e))
}

/// Whether each value of the type `stored` is one of the type `wanted`.
fn holds(wanted: &DataType, stored: &DataType) -> bool {
    use DataType as T;
    match (wanted, stored) {
        (T::List(w), T::List(s) | T::LargeList(s)) => holds(w.data_type(), s.data_type()),
        (T::Struct(w), T::Struct(s)) => {
            let same = |(w, s): (&Arc<Field>, &Arc<Field>)| w.name() == s.name() && holds(w.data_type(), s.data_type());
            w.len() == s.len() && w.iter().zip(s).all(same)
        }
        (T::Map(w, _), T::Map(s, _)) => match (w.data_type(), s.data_type()) {
            // Writers differ in what they call an entry's two members.
            (T::Struct(w), T::Struct(s)) => w.iter().zip(s).all(|(w, s)| holds(w.data_type(), s.data_type())),
            _ => false,
        },
        (T::Timestamp(..), T::Timestamp(..)) => true,
        (T::Decimal128(wp, ws), T::Decimal128(sp, ss)) => {
            ws >= ss && i16::from(*wp) - i16::from(*ws) >= i16::from(*sp) - i16::from(*ss)
        }
        (T::Int16 | T::Int32 | T::Int64, T::Int8 | T::Int16 | T::Int32 | T::Int64)
        | (T::Float64, T::Float32 | T::Float64) => wanted.primitive_width() >= stored.primitive_width(),
        _ => kept_type(stored).as_ref() == Some(wanted),
    }
}

fn undecoded(path: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<StoreError>() {
            Ok(source) => unreadable(path, *source),
            Err(source) => damaged(path).with_source(source),
        },
        error => damaged(path).with_source(error),
    }
}

fn unreadable(path: &str, error: StoreError) -> Error {
    let what = if matches!(error, StoreError::NotFound { .. }) { "is missing" } else { "cannot be read" };
    store_error(format!("the data file {path} {what}"), error)
}

fn damaged(path: &str) -> Error {
    Error::corrupt(format!("the data file {path} is damaged, or no Parquet"))
}

fn gave_up(path: &str) -> Error {
    Error::corrupt(format!("the data file {path} is damaged: its decoder gave up"))
}
