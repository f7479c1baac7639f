//! Rows in files that somebody names one by one, or on stdin, outside any feed.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;

use super::columnar::Columnar;
use super::directory::{Format, Part};
use super::ndjson::Ndjson;
use super::shape::Shape;
use crate::error::{Error, Result, guarded};
use crate::schema::View;
use crate::source::rows::Rows;

/// The most that is read of a stream at once, in bytes.
const PIECE: usize = 1 << 20;
/// What means stdin.
const STDIN: &str = "-";

/// Rows, batch after batch, and their columns.
pub(crate) struct Given {
    /// The columns of the first input.
    pub(crate) schema: SchemaRef,
    /// The rows of all inputs; each is opened when its turn comes.
    pub(crate) rows: Rows,
}

impl Given {
    /// The rows of `paths`, `-` being stdin, all of them in `format`. NDJSON is read in the columns of `view`.
    ///
    /// Refused: NDJSON without a view, or Parquet on stdin, which cannot be read from its end. Unavailable: a file cannot be opened. Corrupt: it is not of the format.
    pub(crate) fn open(paths: Vec<PathBuf>, format: Format, view: Option<View>) -> Result<Self> {
        let mut paths = paths.into_iter();
        let first = paths.next().ok_or_else(|| Error::refused("no input is given; name a file, or - for stdin"))?;
        let (schema, rows) = input(&first, format, view.as_ref())?;
        let others = paths.flat_map(move |path| match input(&path, format, view.as_ref()) {
            Ok((_, rows)) => rows,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        Ok(Self { schema, rows: Box::new(rows.chain(others)) })
    }
}

fn input(path: &Path, format: Format, view: Option<&View>) -> Result<(SchemaRef, Rows)> {
    let is_stdin = path == Path::new(STDIN);
    let label = if is_stdin { "stdin".to_string() } else { path.display().to_string() };
    match format {
        Format::Ndjson => {
            let view = view.ok_or_else(|| {
                Error::refused(format!(
                    "{label}: lines of NDJSON do not say their columns' types; add `columns` to the view's configuration, or give Arrow or Parquet"
                ))
            })?;
            let rows = Ndjson::new(reader(path, is_stdin)?, &label, Shape::Rows(view.clone()))?;
            Ok((view.schema().clone(), Box::new(rows)))
        }
        Format::Arrow if is_stdin => {
            let rows = Arrow::open(reader(path, true)?, label)?;
            Ok((rows.schema.clone(), Box::new(rows)))
        }
        Format::Parquet if is_stdin => {
            Err(Error::refused("Parquet cannot be read from stdin, since its end says what it holds; name a file"))
        }
        Format::Arrow | Format::Parquet => {
            // A link may lead to what somebody names himself.
            let path = path.canonicalize().map_err(|e| unread(&label, e))?;
            let rows = Columnar::open(&Part { path, label, format }, None)?;
            Ok((rows.schema().clone(), Box::new(rows)))
        }
    }
}

fn reader(path: &Path, is_stdin: bool) -> Result<Box<dyn Read + Send>> {
    if is_stdin {
        return Ok(Box::new(io::stdin()));
    }
    let file = std::fs::File::open(path).map_err(|e| unread(&path.display().to_string(), e))?;
    Ok(Box::new(file))
}

/// An Arrow IPC stream of any length. Nothing is allocated by the lengths that it declares but for what it unfolds.
struct Arrow {
    input: Box<dyn Read + Send>,
    label: String,
    decoder: StreamDecoder,
    unread: Buffer,
    schema: SchemaRef,
    first: Option<RecordBatch>,
    is_done: bool,
}

impl Arrow {
    fn open(input: Box<dyn Read + Send>, label: String) -> Result<Self> {
        let (decoder, unread) = (StreamDecoder::new(), Buffer::from_vec(Vec::<u8>::new()));
        let schema = SchemaRef::new(arrow::datatypes::Schema::empty());
        let mut stream = Self { input, label, decoder, unread, schema, first: None, is_done: false };
        stream.first = stream.batch()?;
        stream.schema = stream.decoder.schema().ok_or_else(|| stream.torn())?;
        Ok(stream)
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let damaged = |e| Error::corrupt(format!("{} is damaged, or no Arrow IPC stream", self.label)).with_source(e);
        loop {
            let decoded = guarded(&self.label, || self.decoder.decode(&mut self.unread).map_err(damaged))?;
            if let Some(batch) = decoded {
                return Ok(Some(batch));
            }
            let mut piece = Vec::with_capacity(PIECE);
            let read = self.input.by_ref().take(PIECE as u64).read_to_end(&mut piece);
            if read.map_err(|e| unread(&self.label, e))? == 0 {
                self.is_done = true;
                return if self.has_ended() { Ok(None) } else { Err(self.torn()) };
            }
            self.unread = Buffer::from_vec(piece);
        }
    }
}

impl Arrow {
    /// Whether the mark was read that ends a stream: one that is cut between two batches is not all that was to come. The
    /// decoder tells by refusing whatever follows.
    fn has_ended(&mut self) -> bool {
        self.decoder.decode(&mut Buffer::from_vec(vec![0u8])).is_err() && self.decoder.finish().is_ok()
    }

    fn torn(&self) -> Error {
        Error::corrupt(format!("{} ends before the end mark of an Arrow IPC stream; give all of it", self.label))
    }
}

impl Iterator for Arrow {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(batch) = self.first.take() {
            return Some(Ok(batch));
        }
        if self.is_done {
            return None;
        }
        let batch = self.batch();
        self.is_done |= batch.is_err();
        batch.transpose()
    }
}

fn unread(label: &str, e: io::Error) -> Error {
    Error::unavailable(format!("{label} cannot be read")).with_source(e)
}

#[cfg(test)]
#[path = "given_tests.rs"]
mod tests;
