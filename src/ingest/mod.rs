//! What is pushed becomes one step: the bytes of one request to the operations of one step, exact, or refused as a whole.
//!
//! [`read()`] takes a request's body while it arrives. What it gives, [`Operations`], is not what a table takes yet: an
//! update may name some columns only, and the others keep what the view's row has. [`Operations::resolve`] asks for those
//! rows and gives whole ones.
//!
//! An error says where it stands (`line N`, `batch N row M`, counted from 1), which column does not fit and what its value
//! looks like, but never what it is. Its kind is [`ErrorKind::Refused`](crate::ErrorKind::Refused), or
//! [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) for bytes that are no JSON, no UTF-8 or no Arrow IPC.
//!
//! Memory is bounded by [`Limits`]. Text is parsed line by line as it arrives and not kept, so a request holds what its
//! rows take, at most `unfolded`, and a line. A request of Arrow is kept whole, since its lengths are looked at before a
//! decoder sees them: `request`, what its buffers unfold to, and the rows made of them, `unfolded` each.

mod columnar;
mod content;
mod envelope;
mod lines;
mod operations;
mod resolve;
mod rows;
mod unfold;

use std::pin::pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};

use crate::error::{Error, Result, guarded};
use crate::schema::View;
pub use content::Content;
use envelope::Envelope;
use lines::Lines;
use operations::Gathering;
pub use operations::{Operations, Partial, Place};
use rows::Rows;

/// So many bytes are parsed before other tasks of the same thread get their turn.
const PIECE: usize = 256 << 10;
/// What to do when rows need more memory than they may have.
const REMEDY_ROOM: &str = "send it as several steps";
const REMEDY: &str = "nothing of the request is applied: correct it and send all of it again";

/// How the operations of a request are written.
///
/// In text, each line is one JSON object; blank lines are left out. Members name columns in upper or lower case, unless
/// the name is in double quotes of its own (`"\"Id\""`), and so do the fields of structs. A column that is absent is null.
/// Dates are `"YYYY-MM-DD"`, times have a space or a `T` and, for a timestamp, a zone; decimals are numbers or strings,
/// binaries base64.
///
/// The last line need not end with a line break, so a request that is cut behind a line is a shorter request: that it was
/// cut, HTTP's own length tells. Cut anywhere else, a line is no JSON and all is refused. A stream of Arrow must have its
/// end mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `{"insert":{…}}`, `{"delete":{row or key}}`, `{"update":{key and changed columns}}`, or several of them in one
    /// object, which apply as delete, insert, update. `"table"` may stand there and means nothing. A column that an update
    /// lacks keeps its value.
    InsertDelete,
    /// The row, which is inserted.
    Raw,
    /// Debezium's change events, with or without the `payload` around them: `c` and `r` insert `after`, `d` deletes
    /// `before`, `u` does both, or updates where there is no `before`. Other members mean nothing.
    ///
    /// A tombstone (`null`, or a `payload` of null) follows a delete for Kafka's compaction and repeats it, so it is left
    /// out. A column of an update that holds `__debezium_unavailable_value` keeps its value.
    Debezium,
    /// An Arrow IPC stream with the view's columns, and optionally `__op`: `i`, `u` or `d`. Without it, rows are inserted.
    Arrow,
}

/// What a request may take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The body, as it arrives.
    pub request: u64,
    /// A line of it.
    pub line: usize,
    /// The rows that it unfolds to.
    pub unfolded: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { request: 64 << 20, line: 8 << 20, unfolded: 256 << 20 }
    }
}

/// The operations that `body` holds, all of them or an error; an error of `body` itself is handed on.
pub async fn read(
    body: impl Stream<Item = Result<Bytes>>,
    view: &View,
    format: Format,
    limits: Limits,
) -> Result<Operations> {
    let mut body = pin!(body);
    let mut request = Request::new(view, format, limits)?;
    while let Some(chunk) = body.next().await {
        for piece in chunk?.chunks(PIECE) {
            request.push(piece)?;
            if piece.len() == PIECE {
                tokio::task::yield_now().await;
            }
        }
    }
    // Whole batches are decoded here, which may take as long as a few frames of a film.
    tokio::task::spawn_blocking(move || request.finish())
        .await
        .map_err(|e| Error::internal("the request was not decoded").with_source(e))?
}

/// A request that is arriving.
struct Request {
    limits: Limits,
    length: u64,
    operations: Gathering,
    body: Body,
}

enum Body {
    Text(Lines, Box<Rows>),
    Arrow(Vec<u8>),
}

impl Request {
    fn new(view: &View, format: Format, limits: Limits) -> Result<Self> {
        let text = |envelope| Ok(Body::Text(Lines::new(limits.line), Box::new(Rows::new(view, envelope, limits)?)));
        let body = match format {
            Format::InsertDelete => text(Envelope::InsertDelete),
            Format::Raw => text(Envelope::Raw),
            Format::Debezium => text(Envelope::Debezium),
            Format::Arrow => Ok(Body::Arrow(Vec::new())),
        }?;
        Ok(Self { limits, length: 0, operations: Gathering::new(view), body })
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.length = self.length.saturating_add(bytes.len() as u64);
        let too_long = self.length > self.limits.request;
        let too_long = too_long.then(|| format!("the request is longer than {} bytes", self.limits.request));
        let pushed = match (&mut self.body, too_long) {
            (Body::Text(lines, _), Some(why)) => {
                return Err(Error::refused(format!("line {}: {why}; send it as several steps", lines.number())));
            }
            (Body::Arrow(_), Some(why)) => return Err(Error::refused(format!("{why}; send it as several steps"))),
            (Body::Text(lines, rows), None) => guarded("the request", || {
                lines.push(bytes, |number, line| rows.line(number, line, &mut self.operations))
            }),
            (Body::Arrow(all), None) => {
                all.extend_from_slice(bytes);
                Ok(())
            }
        };
        pushed.map_err(|e| e.with_remedy(REMEDY))
    }

    fn finish(mut self) -> Result<Operations> {
        let read = match self.body {
            Body::Text(mut lines, mut rows) => guarded("the request", || {
                lines.finish(|number, line| rows.line(number, line, &mut self.operations))?;
                rows.flush(&mut self.operations)
            }),
            Body::Arrow(all) => columnar::read(all, self.limits, &mut self.operations),
        };
        read.map_err(|e| e.with_remedy(REMEDY))?;
        Ok(self.operations.finish())
    }
}

#[cfg(test)]
#[path = "arrow_tests.rs"]
mod arrow_tests;
#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod fuzz_tests;
#[cfg(test)]
#[path = "text_tests.rs"]
mod text_tests;
