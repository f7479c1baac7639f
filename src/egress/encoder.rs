//! Chunks as bytes, in one of the formats.

use arrow::array::RecordBatch;
use bytes::Bytes;

use super::chunk::{Fault, Head};
use super::columnar::Columnar;
use super::text;
use crate::error::Result;
use crate::schema::View;

/// How chunks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A JSON object a line, whose `json_data` has a row's operation each, in the form in which they are pushed.
    Ndjson,
    /// An Arrow IPC stream in the columns of a table's changelog; a batch's metadata has the rest.
    Arrow,
}

/// The rows of a chunk.
pub(super) enum Rows<'a> {
    None,
    /// Rows of the view, each of them inserted.
    Snapshot(&'a RecordBatch),
    /// Changes, as [`View::change_schema`] has them.
    Changes(&'a RecordBatch),
}

impl Rows<'_> {
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Snapshot(batch) | Self::Changes(batch) => batch.num_rows() as u64,
        }
    }
}

/// Writes the chunks of one stream.
pub(super) enum Encoder {
    Text(View),
    Columnar(Box<Columnar>),
}

impl Encoder {
    pub(super) fn new(format: Format, view: &View) -> Self {
        match format {
            Format::Ndjson => Self::Text(view.clone()),
            Format::Arrow => Self::Columnar(Box::new(Columnar::new(view))),
        }
    }

    pub(super) fn view(&self) -> &View {
        match self {
            Self::Text(view) => view,
            Self::Columnar(columnar) => columnar.view(),
        }
    }

    pub(super) fn chunk(&mut self, head: &Head, rows: &Rows<'_>) -> Result<Bytes> {
        match self {
            Self::Text(view) => text::chunk(head, rows, view),
            Self::Columnar(columnar) => columnar.chunk(head, rows),
        }
    }

    /// The last bytes of a stream: a chunk without rows, or what is wrong.
    pub(super) fn last(mut self, last: Result<&Head, &Fault>) -> Result<Bytes> {
        match (&mut self, last) {
            (Self::Text(view), Ok(head)) => text::chunk(head, &Rows::None, view),
            (Self::Text(_), Err(fault)) => text::fault(fault),
            (Self::Columnar(columnar), last) => columnar.last(last),
        }
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
