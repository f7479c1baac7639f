//! One file's bytes on their way to the store: in one piece while it is small, in parts beyond that.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::store::store_error;

/// The bytes of each part but the last; some stores want all of them equal and none below 5 MiB.
pub(super) const PART_BYTES: usize = 8 << 20;

/// Cuts what an encoder writes into parts.
#[derive(Debug, Default)]
pub(super) struct PartBuffer {
    filling: Vec<u8>,
    full: Vec<Bytes>,
    total: u64,
}

impl PartBuffer {
    /// All bytes written so far, those of the parts taken included.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The bytes of what was not taken yet.
    pub(super) fn unsent(&self) -> usize {
        self.filling.len() + self.full.iter().map(Bytes::len).sum::<usize>()
    }

    /// The parts that are full.
    pub(super) fn take_full(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.full)
    }

    /// The full parts, then the bytes of the last one.
    pub(super) fn into_parts(self) -> (Vec<Bytes>, Bytes) {
        (self.full, Bytes::from(self.filling))
    }
}

impl Write for PartBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let (fits, _) = bytes.split_at(bytes.len().min(PART_BYTES - self.filling.len()));
        self.filling.extend_from_slice(fits);
        self.total += fits.len() as u64;
        if self.filling.len() == PART_BYTES {
            self.full.push(Bytes::from(std::mem::take(&mut self.filling)));
        }
        Ok(fits.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// How many parts of a file are under way while the next one is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overlap {
    /// Each part is awaited where it is sent, without a task of its own.
    None,
    /// Up to this many parts are sent by tasks that the upload owns.
    Parts(usize),
}

/// A file on its way; nobody sees it before [`Upload::complete`].
#[derive(Debug)]
pub(super) struct Upload {
    store: Arc<dyn ObjectStore>,
    path: Path,
    overlap: Overlap,
    multipart: Option<Box<dyn MultipartUpload>>,
    under_way: JoinSet<object_store::Result<()>>,
}

impl Upload {
    /// An upload to `name` below the store's root; nothing is sent yet.
    pub(super) fn new(store: Arc<dyn ObjectStore>, name: &str, overlap: Overlap) -> Self {
        Self { store, path: Path::from(name), overlap, multipart: None, under_way: JoinSet::new() }
    }

    /// Sends one part, waiting while too many are under way.
    ///
    /// `Refused` when the store forbids it, `Unavailable` when this part or one before it failed otherwise.
    pub(super) async fn send(&mut self, part: Bytes) -> Result<()> {
        let multipart = match &mut self.multipart {
            Some(multipart) => multipart,
            none => {
                let begun = self.store.put_multipart(&self.path).await;
                none.insert(begun.map_err(|e| not_written(&self.path, e))?)
            }
        };
        let sent = multipart.put_part(part.into());
        match self.overlap {
            Overlap::None => sent.await.map_err(|e| not_written(&self.path, e)),
            Overlap::Parts(most) => {
                self.under_way.spawn(sent);
                self.wait_until_under_way(most).await
            }
        }
    }

    /// Waits until every part that was sent is in the store. Errors are those of [`Upload::send`].
    pub(super) async fn settle(&mut self) -> Result<()> {
        self.wait_until_under_way(0).await
    }

    /// The bytes of the parts under way.
    pub(super) fn under_way_bytes(&self) -> usize {
        self.under_way.len() * PART_BYTES
    }

    /// Sends the last bytes and makes the file visible.
    ///
    /// Errors are those of [`Upload::send`], for any part; the file may be there all the same.
    pub(super) async fn complete(&mut self, last: Bytes) -> Result<()> {
        if self.multipart.is_none() {
            let put = self.store.put(&self.path, last.into()).await;
            return put.map(|_| ()).map_err(|e| not_written(&self.path, e));
        }
        if !last.is_empty() {
            self.send(last).await?;
        }
        self.settle().await?;
        if let Some(multipart) = &mut self.multipart {
            multipart.complete().await.map_err(|e| not_written(&self.path, e))?;
        }
        Ok(())
    }

    /// Gives the parts up that the store holds, as far as it answers.
    pub(super) async fn abort(mut self) {
        self.under_way.shutdown().await;
        if let Some(mut multipart) = self.multipart
            && let Err(error) = multipart.abort().await
        {
            tracing::debug!(path = %self.path, %error, "the parts of an unfinished data file stay in the store");
        }
    }

    async fn wait_until_under_way(&mut self, most: usize) -> Result<()> {
        while self.under_way.len() > most {
            match self.under_way.join_next().await {
                Some(Ok(sent)) => sent.map_err(|e| not_written(&self.path, e))?,
                Some(Err(e)) => {
                    return Err(Error::internal(format!("sending a part of {} did not end", self.path)).with_source(e));
                }
                None => break,
            }
        }
        Ok(())
    }
}

fn not_written(path: &Path, error: object_store::Error) -> Error {
    let message = format!("the data file {path} was not written");
    match error {
        // The upload is gone, not anything that readers rely on: the next file begins one of its own.
        object_store::Error::NotFound { .. } => Error::unavailable(message).with_source(error),
        error => store_error(message, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use object_store::Error as StoreError;

    #[test]
    fn a_file_that_may_not_be_written_is_refused_and_a_lost_upload_is_begun_anew() {
        let (path, source) = (|| "a".to_owned(), || "as asked".into());
        for (error, kind) in [
            (StoreError::PermissionDenied { path: path(), source: source() }, ErrorKind::Refused),
            (StoreError::NotFound { path: path(), source: source() }, ErrorKind::Unavailable),
            (StoreError::Generic { store: "a", source: source() }, ErrorKind::Unavailable),
        ] {
            let words = error.to_string();
            assert_eq!(not_written(&Path::from("a"), error).kind(), kind, "{words}");
        }
    }

    #[test]
    fn the_largest_file_has_no_more_parts_than_stores_take() {
        let overshoot = 1 << 30;
        assert!(crate::files::FileSettings::LARGEST_TARGET + overshoot < 10_000 * PART_BYTES as u64);
    }

    #[test]
    fn parts_are_of_equal_size_but_the_last() {
        let mut buffer = PartBuffer::default();
        let bytes: Vec<u8> = (0..PART_BYTES * 2 + 5).map(|i| (i % 251) as u8).collect();
        buffer.write_all(&bytes[..3]).unwrap();
        buffer.write_all(&bytes[3..]).unwrap();
        assert_eq!(buffer.total(), bytes.len() as u64);
        let mut joined: Vec<u8> = Vec::new();
        let (full, last) = buffer.into_parts();
        assert_eq!(full.iter().map(Bytes::len).collect::<Vec<_>>(), [PART_BYTES, PART_BYTES]);
        assert_eq!(last.len(), 5);
        full.iter().chain([&last]).for_each(|part| joined.extend_from_slice(part));
        assert_eq!(joined, bytes);
    }
}
