//! An object store that fails where a test says so.

use std::fmt;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// What happens to one put of a log entry.
pub(crate) enum Fault {
    /// It fails and writes nothing.
    Before,
    /// It is written, and an error comes back.
    Lost,
    /// It is written, and "already exists" comes back, as after a client's own second sending.
    Resent,
    /// An error comes back, and it is written just before the next put.
    Late,
    /// Something else happens first, then it goes on as ever.
    First(Box<dyn FnOnce(Arc<dyn ObjectStore>) -> BoxFuture<'static, ()> + Send>),
}

/// Wraps a store; puts of log entries meet the faults in order, one each.
pub(crate) struct FaultStore {
    inner: Arc<dyn ObjectStore>,
    faults: Mutex<Vec<Fault>>,
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
}

impl FaultStore {
    pub(crate) fn around(inner: Arc<dyn ObjectStore>, mut faults: Vec<Fault>) -> Arc<dyn ObjectStore> {
        faults.reverse();
        Arc::new(Self { inner, faults: Mutex::new(faults), late: Mutex::default() })
    }
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

impl fmt::Display for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultStore")
    }
}

fn lost() -> Error {
    Error::Generic { store: "FaultStore", source: "the connection was reset".into() }
}

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let is_entry = location.as_ref().starts_with("_delta_log/") && location.as_ref().ends_with(".json");
        if !is_entry {
            return self.inner.put_opts(location, payload, opts).await;
        }
        let late: Vec<_> = self.late.lock().unwrap().drain(..).collect();
        for (path, payload, opts) in late {
            let _ = self.inner.put_opts(&path, payload, opts).await;
        }
        let fault = self.faults.lock().unwrap().pop();
        match fault {
            None => self.inner.put_opts(location, payload, opts).await,
            Some(Fault::Before) => Err(lost()),
            Some(Fault::Lost) => self.inner.put_opts(location, payload, opts).await.and(Err(lost())),
            Some(Fault::Resent) => {
                self.inner.put_opts(location, payload, opts).await?;
                Err(Error::AlreadyExists { path: location.to_string(), source: "sent twice".into() })
            }
            Some(Fault::Late) => {
                self.late.lock().unwrap().push((location.clone(), payload, opts));
                Err(lost())
            }
            Some(Fault::First(event)) => {
                event(Arc::clone(&self.inner)).await;
                self.inner.put_opts(location, payload, opts).await
            }
        }
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
