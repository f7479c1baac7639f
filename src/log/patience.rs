//! A deadline for every call of a store, by the clock that is passed in.
//!
//! What a stream gives piece by piece has the deadline for each piece, and is no shorter than the store said; what is
//! listed is listed once. A call that is given up may take effect later all the same; who writes a version reads it before
//! anything else.

use std::fmt;
use std::future::Future;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};

use crate::clock::Clock;

/// How long a call may take; longer than a client takes for all its attempts at one request.
const LIMIT: Duration = Duration::from_secs(60);
/// What is added to it for bytes on their way: a line of this many bytes a second is slow, not dead.
const SLOWEST: u64 = 128 << 10;
/// The bytes of a local file that are read at once.
const PIECE: u64 = 8 << 20;

/// A call of a store that did not end in time.
#[derive(Debug)]
struct TookTooLong {
    what: &'static str,
    limit: Duration,
}

impl fmt::Display for TookTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} had no answer within {:?}", self.what, self.limit)
    }
}

impl std::error::Error for TookTooLong {}

impl From<TookTooLong> for Error {
    fn from(error: TookTooLong) -> Self {
        Self::Generic { store: "deadline", source: Box::new(error) }
    }
}

/// Waits for so long and not longer.
#[derive(Debug, Clone)]
struct Patience {
    clock: Arc<dyn Clock>,
}

impl Patience {
    async fn wait<T>(&self, what: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.wait_for_bytes(0, what, call).await
    }

    async fn wait_for_bytes<T>(
        &self,
        bytes: u64,
        what: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let limit = LIMIT + Duration::from_secs(bytes / SLOWEST);
        match select(std::pin::pin!(call), self.clock.deadline(limit)).await {
            Either::Left((done, _)) => done,
            Either::Right(((), _)) => Err(TookTooLong { what, limit }.into()),
        }
    }

    /// `pieces` until one of them does not come in time.
    fn paced<T: Send + 'static>(
        &self,
        what: &'static str,
        pieces: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        stream::unfold((self.clone(), Some(pieces)), move |(patience, pieces)| async move {
            let mut pieces = pieces?;
            let next = patience.wait(what, async { Ok(pieces.next().await) }).await;
            match next {
                Ok(next) => next.map(|piece| (piece, (patience, Some(pieces)))),
                Err(late) => Some((Err(late), (patience, None))),
            }
        })
        // Some readers ask once more behind the end.
        .fuse()
        .boxed()
    }
}

/// A listing that names an object again where its next page begins names it once.
fn each_once(listed: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
    let mut last: Option<Path> = None;
    let is_new = move |object: &ObjectMeta| {
        let is_new = last.as_ref() != Some(&object.location);
        if is_new {
            last = Some(object.location.clone());
        }
        std::future::ready(is_new)
    };
    listed.try_filter(is_new).boxed()
}

/// A store whose calls end.
pub(super) struct PatientStore {
    inner: Arc<dyn ObjectStore>,
    patience: Patience,
}

impl PatientStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Self {
        Self { inner, patience: Patience { clock } }
    }
}

/// A client's own `Debug` may hold what it signs with.
impl fmt::Debug for PatientStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PatientStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PatientStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for PatientStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let bytes = payload.content_length() as u64;
        self.patience.wait_for_bytes(bytes, "a put", self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.inner.put_multipart_opts(location, opts);
        let inner = self.patience.wait("the begin of an upload", begun).await?;
        Ok(Box::new(PatientUpload { inner, patience: self.patience.clone(), bytes: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut found = self.patience.wait("a get", self.inner.get_opts(location, options)).await?;
        let pieces = match found.payload {
            GetResultPayload::File(file, _) => file_pieces(file, found.range.clone(), location.to_string()),
            GetResultPayload::Stream(pieces) => pieces,
        };
        let pieces = whole(pieces, found.range.clone(), location.to_string());
        found.payload = GetResultPayload::Stream(self.patience.paced("the rest of a get", pieces));
        Ok(found)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start)).sum();
        self.patience.wait_for_bytes(bytes, "a get of ranges", self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.patience.paced("a delete", self.inner.delete_stream(locations))
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.patience.paced("a listing", each_once(self.inner.list(prefix)))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.patience.paced("a listing", each_once(self.inner.list_with_offset(prefix, offset)))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.patience.wait("a listing", self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.patience.wait("a copy", self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.patience.wait("a rename", self.inner.rename_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct PatientUpload {
    inner: Box<dyn MultipartUpload>,
    patience: Patience,
    bytes: u64,
}

#[async_trait]
impl MultipartUpload for PatientUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let bytes = data.content_length() as u64;
        self.bytes += bytes;
        let (patience, sent) = (self.patience.clone(), self.inner.put_part(data));
        Box::pin(async move { patience.wait_for_bytes(bytes, "a part of an upload", sent).await })
    }

    /// A store may put the parts together by then only.
    async fn complete(&mut self) -> Result<PutResult> {
        let Self { inner, patience, bytes } = self;
        patience.wait_for_bytes(*bytes, "the end of an upload", inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        let Self { inner, patience, .. } = self;
        patience.wait("the abort of an upload", inner.abort()).await
    }
}

/// `pieces`, and an error behind the last one where they are not as many bytes as the store spoke of: half an object may
/// look like a whole one that says less.
fn whole(
    pieces: BoxStream<'static, Result<Bytes>>,
    range: Range<u64>,
    path: String,
) -> BoxStream<'static, Result<Bytes>> {
    let wanted = range.end.saturating_sub(range.start);
    stream::unfold((Some(pieces), 0), move |(pieces, read)| {
        let path = path.clone();
        async move {
            let mut pieces = pieces?;
            match pieces.next().await {
                Some(Ok(piece)) => {
                    let read = read + piece.len() as u64;
                    Some((Ok(piece), (Some(pieces), read)))
                }
                Some(Err(e)) => Some((Err(e), (None, read))),
                None if read == wanted => None,
                None => {
                    let source = format!("{path}: the answer ended after {read} of {wanted} bytes").into();
                    Some((Err(Error::Generic { store: "length", source }), (None, read)))
                }
            }
        }
    })
    .boxed()
}

/// The bytes of a local file in pieces that threads for blocking work read.
fn file_pieces(file: std::fs::File, range: Range<u64>, path: String) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold((Arc::new(file), range.start), move |(file, at)| {
        let (end, path) = ((at + PIECE).min(range.end), path.clone());
        async move {
            if at >= end {
                return Ok(None);
            }
            let source = Arc::clone(&file);
            let read = tokio::task::spawn_blocking(move || read_at(&source, at..end)).await;
            let piece = read
                .map_err(|source| Error::JoinError { source })?
                .map_err(|e| Error::Generic { store: "LocalFileSystem", source: format!("{path}: {e}").into() })?;
            Ok(Some((Bytes::from(piece), (file, end))))
        }
    })
    .boxed()
}

fn read_at(mut file: &std::fs::File, range: Range<u64>) -> std::io::Result<Vec<u8>> {
    let mut piece = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
    file.seek(SeekFrom::Start(range.start))?;
    file.read_exact(&mut piece)?;
    Ok(piece)
}

#[cfg(test)]
#[path = "patience_tests.rs"]
mod tests;
