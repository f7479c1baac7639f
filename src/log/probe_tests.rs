use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions, PutOptions,
    PutResult,
};

use super::*;
use crate::error::ErrorKind;

/// How a store treats the put of an object that is there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Honors {
    Yes,
    /// Lets it through.
    No,
    /// Replaces it, and says that it did not.
    InWordsOnly,
    /// Does not know how.
    Unsupported,
    Failing,
}

#[derive(Debug)]
struct Store(InMemory, Honors);

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(&self, path: &Path, payload: PutPayload, opts: PutOptions) -> object_store::Result<PutResult> {
        match self.1 {
            Honors::Yes => self.0.put_opts(path, payload, opts).await,
            Honors::No => self.0.put(path, payload).await,
            Honors::InWordsOnly => {
                let done = self.0.put_opts(path, payload.clone(), opts).await;
                self.0.put(path, payload).await?;
                done
            }
            Honors::Unsupported => Err(StoreError::NotSupported { source: "as asked".into() }),
            Honors::Failing => Err(StoreError::Generic { store: "a", source: "as asked".into() }),
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        opts: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, opts).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

#[tokio::test]
async fn a_store_that_lets_a_second_writer_through_is_refused() {
    for (honors, expected) in [
        (Honors::Yes, None),
        (Honors::No, Some(ErrorKind::Incompatible)),
        (Honors::InWordsOnly, Some(ErrorKind::Incompatible)),
        (Honors::Unsupported, Some(ErrorKind::Incompatible)),
        (Honors::Failing, Some(ErrorKind::Unavailable)),
    ] {
        let store = Store(InMemory::new(), honors);
        let tried = probe(&store, &Path::from("_probe"), "s3://lake/t").await;
        assert_eq!(tried.as_ref().err().map(Error::kind), expected, "{honors:?}: {tried:?}");
        if let Err(error) = tried {
            assert!(error.message().contains("s3://lake/t"), "{error}");
        }
    }
}
