//! An object store that hides some names of the log's folder from who reads through it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use super::LOG_DIR;

/// Which names of the log's folder are hidden.
pub(super) type Hides = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Answers as if the hidden objects were not there. What is written goes through.
pub(super) struct HiddenStore {
    inner: Arc<dyn ObjectStore>,
    hides: Hides,
}

impl HiddenStore {
    pub(super) fn new(inner: Arc<dyn ObjectStore>, hides: Hides) -> Self {
        Self { inner, hides }
    }

    fn hides(&self, path: &Path) -> bool {
        hides(&self.hides, path)
    }
}

fn hides(hides: &Hides, path: &Path) -> bool {
    let mut parts = path.parts().rev();
    let name = parts.next();
    let folder = parts.next();
    let in_log = folder.is_some_and(|folder| folder.as_ref() == LOG_DIR);
    in_log && name.is_some_and(|name| hides(name.as_ref()))
}

fn shown(found: BoxStream<'static, Result<ObjectMeta>>, hidden: Hides) -> BoxStream<'static, Result<ObjectMeta>> {
    found.try_filter(move |object| std::future::ready(!hides(&hidden, &object.location))).boxed()
}

impl fmt::Debug for HiddenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HiddenStore({:?})", self.inner)
    }
}

impl fmt::Display for HiddenStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HiddenStore({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for HiddenStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.hides(location) {
            return Err(Error::NotFound { path: location.to_string(), source: "it is hidden".into() });
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        shown(self.inner.list(prefix), Arc::clone(&self.hides))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        shown(self.inner.list_with_offset(prefix, offset), Arc::clone(&self.hides))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found.objects.retain(|object| !self.hides(&object.location));
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn what_is_hidden_is_neither_listed_nor_found_and_only_in_the_log() {
        let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        for path in ["t/_delta_log/1.json", "t/_delta_log/2.json", "t/2.json", "t/_delta_log/_sidecars/2.json"] {
            inner.put(&Path::from(path), "x".into()).await.unwrap();
        }
        let store = HiddenStore::new(inner, Arc::new(|name: &str| name == "2.json"));
        let mut listed: Vec<String> = store.list(None).map_ok(|o| o.location.to_string()).try_collect().await.unwrap();
        listed.sort();
        assert_eq!(listed, ["t/2.json", "t/_delta_log/1.json", "t/_delta_log/_sidecars/2.json"]);
        let hidden = Path::from("t/_delta_log/2.json");
        assert!(matches!(store.get(&hidden).await, Err(Error::NotFound { .. })));
        assert!(matches!(store.head(&hidden).await, Err(Error::NotFound { .. })));
        assert!(store.get(&Path::from("t/2.json")).await.is_ok());
        let folder = store.list_with_delimiter(Some(&Path::from("t/_delta_log"))).await.unwrap();
        assert_eq!(folder.objects.len(), 1);
    }
}
