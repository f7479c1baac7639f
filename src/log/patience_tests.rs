use super::*;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::{ObjectStoreExt, PutMode};

use crate::error::ErrorKind;
use crate::store::store_error;

/// A clock on which every wait is over at once, or never.
#[derive(Debug)]
enum Waits {
    End,
    Last,
}

impl Clock for Waits {
    fn unix_millis(&self) -> i64 {
        0
    }

    fn boot(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        match self {
            Self::End => Box::pin(std::future::ready(())),
            Self::Last => Box::pin(std::future::pending()),
        }
    }
}

/// A store that never answers.
#[derive(Debug)]
struct Silent;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Silent")
    }
}

#[derive(Debug)]
struct SilentUpload;

#[async_trait]
impl MultipartUpload for SilentUpload {
    fn put_part(&mut self, _: PutPayload) -> UploadPart {
        Box::pin(std::future::pending())
    }

    async fn complete(&mut self) -> Result<PutResult> {
        std::future::pending().await
    }

    async fn abort(&mut self) -> Result<()> {
        std::future::pending().await
    }
}

#[async_trait]
impl ObjectStore for Silent {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        std::future::pending().await
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(SilentUpload))
    }

    async fn get_opts(&self, location: &Path, _: GetOptions) -> Result<GetResult> {
        if location.as_ref() == "silent" {
            return std::future::pending().await;
        }
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: 9,
            e_tag: None,
            version: None,
        };
        let half = stream::once(async { Ok(Bytes::from_static(b"half")) });
        let payload = GetResultPayload::Stream(half.chain(stream::pending()).boxed());
        Ok(GetResult { payload, meta, range: 0..9, attributes: Default::default() })
    }

    fn delete_stream(&self, _: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        stream::pending().boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::pending().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        std::future::pending().await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        std::future::pending().await
    }
}

fn around(inner: impl ObjectStore, clock: Waits) -> PatientStore {
    PatientStore::new(Arc::new(inner), Arc::new(clock))
}

#[tokio::test]
async fn every_call_that_has_no_answer_ends_and_may_be_made_again() {
    let store = around(Silent, Waits::End);
    let (a, silent) = (Path::from("a"), Path::from("silent"));
    let listed = |stream: BoxStream<'static, Result<ObjectMeta>>| stream.try_collect::<Vec<_>>();
    let mut upload = store.put_multipart(&a).await.unwrap();
    let failures: Vec<(&str, Option<Error>)> = vec![
        ("put", store.put_opts(&a, "x".into(), PutMode::Create.into()).await.err()),
        ("get", store.get(&silent).await.err()),
        ("the rest of a get", store.get(&a).await.unwrap().bytes().await.err()),
        ("head", store.head(&silent).await.err()),
        ("get of ranges", store.get_ranges(&silent, &[0..1, 4..5]).await.err()),
        ("listing", listed(store.list(None)).await.err()),
        ("listing from", listed(store.list_with_offset(None, &a)).await.err()),
        ("listing of a folder", store.list_with_delimiter(None).await.err()),
        ("delete", store.delete(&a).await.err()),
        ("copy", store.copy(&a, &silent).await.err()),
        ("rename", store.rename(&a, &silent).await.err()),
        ("part", upload.put_part("x".into()).await.err()),
        ("end of an upload", upload.complete().await.err()),
        ("abort", upload.abort().await.err()),
    ];
    for (what, failure) in failures {
        let error = store_error("it failed", failure.unwrap_or_else(|| panic!("{what} did not fail")));
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{what}");
        let said = std::error::Error::source(&error).unwrap().to_string();
        assert!(said.contains("had no answer within 60s"), "{what}: {said}");
    }
}

#[tokio::test]
async fn a_piece_that_came_is_given_before_the_one_that_does_not_come_ends_it() {
    let store = around(Silent, Waits::End);
    let mut pieces = store.get(&Path::from("a")).await.unwrap().into_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "half");
    assert!(pieces.next().await.unwrap().is_err());
    assert!(pieces.next().await.is_none());
}

#[tokio::test]
async fn a_local_file_is_read_whole_and_in_ranges_however_large() {
    let dir = tempfile::tempdir().unwrap();
    let store = around(object_store::local::LocalFileSystem::new_with_prefix(dir.path()).unwrap(), Waits::Last);
    let bytes: Vec<u8> = (0..(2 * PIECE + 5)).map(|i| (i % 251) as u8).collect();
    let path = Path::from("a");
    store.put(&path, bytes.clone().into()).await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), bytes);
    assert_eq!(store.get_range(&path, PIECE - 3..PIECE + 3).await.unwrap(), bytes[PIECE as usize - 3..][..6]);
    assert_eq!(store.get_ranges(&path, &[1..2, 8..9]).await.unwrap(), [&bytes[1..2], &bytes[8..9]]);
    store.put(&path, "".into()).await.unwrap();
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_answers_passes_through() {
    let store = around(InMemory::new(), Waits::Last);
    let path = Path::from("a/b");
    store.put(&path, "x".into()).await.unwrap();
    assert!(matches!(
        store.put_opts(&path, "y".into(), PutMode::Create.into()).await,
        Err(Error::AlreadyExists { .. })
    ));
    assert_eq!(store.list(None).try_collect::<Vec<_>>().await.unwrap().len(), 1);
    let mut upload = store.put_multipart(&Path::from("c")).await.unwrap();
    upload.put_part("p".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(store.get(&Path::from("c")).await.unwrap().bytes().await.unwrap(), "p");
    store.delete(&path).await.unwrap();
    assert!(matches!(store.get(&path).await, Err(Error::NotFound { .. })));
}
