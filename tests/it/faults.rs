//! An object store that fails where a test says so.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use cutover::Clock;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::world::TestClock;

/// Longer than any deadline of a storage call.
const BEYOND_DEADLINES: Duration = Duration::from_secs(3600);

/// What a user of a store asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Create,
    Overwrite,
    Begin,
    Part,
    Complete,
    Abort,
    Get,
    Head,
    List,
    Delete,
    Copy,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    /// Which call of the store it is, from 0.
    pub(crate) number: usize,
    pub(crate) verb: Verb,
    /// The object, or what is listed.
    pub(crate) path: String,
}

impl Call {
    /// Whether it puts an entry of the log.
    pub(crate) fn puts_entry(&self) -> bool {
        self.verb == Verb::Create && self.path.starts_with("_delta_log/") && self.path.ends_with(".json")
    }
}

/// What happens to one call.
pub(crate) enum Fault {
    /// It fails and does nothing.
    Before,
    /// It is done, and an error comes back.
    Lost,
    /// A put is done, and "already exists" comes back, as after a client's own second sending; after a delete, that there
    /// is nothing.
    Resent,
    /// An error comes back to a put or a delete. A put is done once somebody has found its object absent, either before
    /// the next put of its object.
    Late,
    /// The storage is too busy: it does nothing and says 503.
    Busy,
    /// It is done, and 500 comes back.
    DoneThen500,
    /// "Already exists" comes back to a put, and nothing was done: what clients make of a 409.
    Taken,
    /// Nothing is done and no answer comes.
    Hang,
    /// It is done and no answer comes.
    DoneThenHang,
    /// It takes so long.
    Slow(Duration),
    /// The credentials have expired.
    Expired,
    /// There is no room.
    NoSpace,
    /// A read breaks off in the middle with an error.
    Truncated,
    /// A read breaks off in the middle as if that were all.
    Torn,
    /// A listing lacks what was created last.
    Stale,
    /// A listing has each object twice.
    Doubled,
    /// The process dies before the call: nothing is done, by this call or any later one.
    CrashBefore,
    /// The process dies after the call.
    CrashAfter,
    /// Something else happens first, then it goes on as ever.
    First(Box<dyn FnOnce(Arc<dyn ObjectStore>) -> BoxFuture<'static, ()> + Send>),
}

impl Fault {
    /// The name under which it is counted.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Lost => "lost",
            Self::Resent => "resent",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::DoneThen500 => "done, then 500",
            Self::Taken => "taken",
            Self::Hang => "hang",
            Self::DoneThenHang => "done, then hang",
            Self::Slow(_) => "slow",
            Self::Expired => "expired",
            Self::NoSpace => "no space",
            Self::Truncated => "truncated",
            Self::Torn => "torn",
            Self::Stale => "stale",
            Self::Doubled => "doubled",
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after",
            Self::First(_) => "first",
        }
    }

    /// Whether it can happen to such a call.
    pub(crate) fn fits(&self, verb: Verb) -> bool {
        match self {
            Self::Resent | Self::Taken | Self::Late => matches!(verb, Verb::Create | Verb::Overwrite | Verb::Delete),
            Self::NoSpace => matches!(verb, Verb::Create | Verb::Overwrite | Verb::Begin | Verb::Part | Verb::Complete),
            Self::Truncated | Self::Torn => verb == Verb::Get,
            Self::Stale | Self::Doubled => verb == Verb::List,
            _ => true,
        }
    }

    fn error(&self, path: &str) -> Error {
        let generic = |source: Box<dyn std::error::Error + Send + Sync>| Error::Generic { store: "FaultStore", source };
        match self {
            Self::Resent | Self::Taken => {
                Error::AlreadyExists { path: path.to_string(), source: "HTTP status 409 or 412".into() }
            }
            Self::Busy => generic("HTTP status 503: SlowDown".into()),
            Self::DoneThen500 => generic("HTTP status 500: InternalError".into()),
            Self::Expired => Error::Unauthenticated { path: path.to_string(), source: "ExpiredToken".into() },
            Self::NoSpace => generic(Box::new(std::io::Error::from(std::io::ErrorKind::StorageFull))),
            Self::CrashBefore | Self::CrashAfter => generic("the process is gone".into()),
            _ => generic("the connection was reset".into()),
        }
    }
}

/// Decides what happens to each call; `None` lets it be.
pub(crate) type Script = Box<dyn FnMut(&Call) -> Option<Fault> + Send>;

/// A store between a user and the storage, as one process sees it.
#[derive(Clone)]
pub(crate) struct FaultStore {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn ObjectStore>,
    /// Moved by what takes long.
    clock: Option<Arc<TestClock>>,
    state: Mutex<State>,
}

/// What is under way.
enum Late {
    Put(PutPayload, PutOptions),
    Delete,
}

struct State {
    script: Script,
    calls: Vec<Call>,
    fired: BTreeMap<&'static str, u64>,
    late: Vec<(Path, Late)>,
    newest: Option<Path>,
    is_dead: bool,
}

impl FaultStore {
    /// A store on which `script` decides about every call; calls that take long move `clock`.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, clock: Option<Arc<TestClock>>, script: Script) -> Self {
        let state =
            State { script, calls: Vec::new(), fired: BTreeMap::new(), late: Vec::new(), newest: None, is_dead: false };
        Self { shared: Arc::new(Shared { inner, clock, state: Mutex::new(state) }) }
    }

    /// A store on which puts of log entries meet `faults` in order, one each.
    pub(crate) fn around(inner: Arc<dyn ObjectStore>, faults: Vec<Fault>) -> Arc<dyn ObjectStore> {
        let mut faults = faults.into_iter();
        let script = move |call: &Call| if call.puts_entry() { faults.next() } else { None };
        Arc::new(Self::new(inner, None, Box::new(script)))
    }

    /// What was asked for, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.shared.state.lock().unwrap().calls.clone()
    }

    /// How often each fault happened, by its name.
    pub(crate) fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.shared.state.lock().unwrap().fired.clone()
    }

    /// Whether the process that uses it has died.
    pub(crate) fn is_dead(&self) -> bool {
        self.shared.state.lock().unwrap().is_dead
    }

    /// Does what is under way at last, as a network may after all its users are gone.
    pub(crate) async fn land_late_puts(&self) {
        self.shared.land(|_| true).await;
    }
}

impl Shared {
    fn decide(&self, verb: Verb, path: &Path) -> Result<Option<Fault>> {
        let mut state = self.state.lock().unwrap();
        if state.is_dead {
            return Err(Fault::CrashBefore.error(path.as_ref()));
        }
        let call = Call { number: state.calls.len(), verb, path: path.to_string() };
        let fault = (state.script)(&call);
        state.calls.push(call);
        if let Some(fault) = &fault {
            assert!(fault.fits(verb), "{} cannot happen to {verb:?} of {path}", fault.name());
            *state.fired.entry(fault.name()).or_default() += 1;
            state.is_dead = matches!(fault, Fault::CrashBefore | Fault::CrashAfter);
        }
        Ok(fault)
    }

    fn pass(&self, time: Duration) {
        self.clock.as_ref().expect("what takes long needs a clock").advance(time);
    }

    async fn silence<T>(&self) -> Result<T> {
        self.pass(BEYOND_DEADLINES);
        std::future::pending().await
    }

    /// Does the late puts of the objects that `is_meant`.
    async fn land(&self, is_meant: impl Fn(&Path) -> bool) {
        let late: Vec<_> = {
            let mut state = self.state.lock().unwrap();
            let (landing, waiting) = state.late.drain(..).partition(|(path, _)| is_meant(path));
            state.late = waiting;
            landing
        };
        for (path, late) in late {
            // It may come too late, and nobody hears of it.
            let _ = match late {
                Late::Put(payload, opts) => self.inner.put_opts(&path, payload, opts).await.map(|_| ()),
                Late::Delete => self.inner.delete(&path).await,
            };
        }
    }

    /// Does `work` as the fault has it.
    async fn carry_out<T: Send>(
        &self,
        fault: Option<Fault>,
        path: &Path,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let Some(fault) = fault else { return work.await };
        match fault {
            Fault::Before | Fault::Busy | Fault::Taken | Fault::Expired | Fault::NoSpace | Fault::CrashBefore => {
                Err(fault.error(path.as_ref()))
            }
            // What fails by itself fails as it would have.
            Fault::Lost | Fault::DoneThen500 | Fault::Resent | Fault::CrashAfter => {
                work.await.and(Err(fault.error(path.as_ref())))
            }
            Fault::Hang => self.silence().await,
            Fault::DoneThenHang => {
                let _ = work.await;
                self.silence().await
            }
            Fault::Slow(time) => {
                self.pass(time);
                work.await
            }
            Fault::First(event) => {
                event(Arc::clone(&self.inner)).await;
                work.await
            }
            Fault::Late | Fault::Truncated | Fault::Torn | Fault::Stale | Fault::Doubled => {
                unreachable!("{} is seen to by the call itself", fault.name())
            }
        }
    }

    async fn meet<T: Send>(&self, verb: Verb, path: &Path, work: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let fault = self.decide(verb, path)?;
        self.carry_out(fault, path, work).await
    }

    async fn listed(
        &self,
        path: &Path,
        work: impl Future<Output = Result<Vec<ObjectMeta>>> + Send,
    ) -> Result<Vec<ObjectMeta>> {
        // Directories are listed in any order, the keys of object stores in theirs.
        let work = async {
            let mut objects = work.await?;
            objects.sort_by(|a, b| a.location.cmp(&b.location));
            Ok(objects)
        };
        match self.decide(Verb::List, path)? {
            Some(Fault::Stale) => {
                let newest = self.state.lock().unwrap().newest.clone();
                Ok(work.await?.into_iter().filter(|object| Some(&object.location) != newest.as_ref()).collect())
            }
            Some(Fault::Doubled) => Ok(work.await?.into_iter().flat_map(|object| [object.clone(), object]).collect()),
            fault => self.carry_out(fault, path, work).await,
        }
    }

    fn note_created<T>(&self, path: &Path, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.state.lock().unwrap().newest = Some(path.clone());
        }
        result
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

#[async_trait]
impl ObjectStore for FaultStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let shared = &self.shared;
        let verb = if opts.mode == PutMode::Create { Verb::Create } else { Verb::Overwrite };
        shared.land(|path| path == location).await;
        let fault = shared.decide(verb, location)?;
        if let Some(Fault::Late) = fault {
            shared.state.lock().unwrap().late.push((location.clone(), Late::Put(payload, opts)));
            return Err(Fault::Late.error(location.as_ref()));
        }
        let put = async { shared.note_created(location, shared.inner.put_opts(location, payload, opts).await) };
        shared.carry_out(fault, location, put).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let begun = self.shared.inner.put_multipart_opts(location, opts);
        let upload = self.shared.meet(Verb::Begin, location, begun).await?;
        Ok(Box::new(FaultUpload { upload, path: location.clone(), shared: Arc::clone(&self.shared) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let shared = &self.shared;
        let verb = if options.head { Verb::Head } else { Verb::Get };
        let fault = shared.decide(verb, location)?;
        let get = shared.inner.get_opts(location, options);
        let result = match fault {
            Some(Fault::Truncated) => half(get.await?, Some(Fault::Truncated.error(location.as_ref()))).await,
            Some(Fault::Torn) => half(get.await?, None).await,
            fault => shared.carry_out(fault, location, get).await,
        };
        if matches!(result, Err(Error::NotFound { .. })) {
            shared.land(|path| path == location).await;
        }
        result
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let shared = Arc::clone(&self.shared);
        locations
            .then(move |location| {
                let shared = Arc::clone(&shared);
                async move {
                    let location = location?;
                    let fault = shared.decide(Verb::Delete, &location)?;
                    let lost = matches!(fault, Some(Fault::Resent)).then(|| Error::NotFound {
                        path: location.to_string(),
                        source: "it was deleted by the first sending".into(),
                    });
                    if let Some(Fault::Late) = fault {
                        shared.state.lock().unwrap().late.push((location.clone(), Late::Delete));
                        return Err(Fault::Late.error(location.as_ref()));
                    }
                    let deleted = shared.carry_out(fault, &location, shared.inner.delete(&location)).await;
                    deleted.map_err(|e| lost.unwrap_or(e))?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_with_offset(prefix, &Path::default())
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (shared, prefix, offset) = (Arc::clone(&self.shared), prefix.cloned(), offset.clone());
        let listed = async move {
            let path = prefix.clone().unwrap_or_default();
            let objects = match offset.as_ref() {
                "" => shared.inner.list(prefix.as_ref()),
                _ => shared.inner.list_with_offset(prefix.as_ref(), &offset),
            };
            let objects = shared.listed(&path, objects.try_collect()).await?;
            Ok::<_, Error>(stream::iter(objects.into_iter().map(Ok)))
        };
        listed.into_stream().try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        let mut listing = None;
        let objects = async {
            let found = self.shared.inner.list_with_delimiter(prefix).await?;
            let objects = found.objects.clone();
            listing = Some(found);
            Ok(objects)
        };
        let objects = self.shared.listed(&path, objects).await?;
        Ok(ListResult { objects, ..listing.expect("what is listed was found") })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.shared.meet(Verb::Copy, to, self.shared.inner.copy_opts(from, to, options)).await
    }
}

/// The first half of what was read, and the error that follows.
async fn half(result: GetResult, error: Option<Error>) -> Result<GetResult> {
    let (meta, range, attributes) = (result.meta.clone(), result.range.clone(), result.attributes.clone());
    let bytes: Bytes = result.bytes().await?;
    let pieces = std::iter::once(Ok(bytes.slice(..bytes.len() / 2))).chain(error.map(Err));
    let payload = GetResultPayload::Stream(stream::iter(pieces.collect::<Vec<_>>()).boxed());
    Ok(GetResult { payload, meta, range, attributes })
}

struct FaultUpload {
    upload: Box<dyn MultipartUpload>,
    path: Path,
    shared: Arc<Shared>,
}

impl fmt::Debug for FaultUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultUpload")
    }
}

#[async_trait]
impl MultipartUpload for FaultUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (shared, path, part) = (Arc::clone(&self.shared), self.path.clone(), self.upload.put_part(data));
        async move { shared.meet(Verb::Part, &path, part).await }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let (shared, upload) = (&self.shared, &mut self.upload);
        let done = async { shared.note_created(&self.path, upload.complete().await) };
        shared.meet(Verb::Complete, &self.path, done).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.shared.meet(Verb::Abort, &self.path, self.upload.abort()).await
    }
}

#[tokio::test]
async fn each_fault_does_what_its_name_says() {
    type Expected = (Fault, bool, fn(&Error) -> bool);
    let clock = Arc::new(TestClock::default());
    let is_generic: fn(&Error) -> bool = |e| matches!(e, Error::Generic { .. });
    let is_taken: fn(&Error) -> bool = |e| matches!(e, Error::AlreadyExists { .. });
    let puts: [Expected; 11] = [
        (Fault::Before, false, is_generic),
        (Fault::Lost, true, is_generic),
        (Fault::Resent, true, is_taken),
        (Fault::Late, false, is_generic),
        (Fault::Busy, false, is_generic),
        (Fault::DoneThen500, true, is_generic),
        (Fault::Taken, false, is_taken),
        (Fault::Expired, false, |e| matches!(e, Error::Unauthenticated { .. })),
        (Fault::NoSpace, false, is_generic),
        (Fault::CrashBefore, false, is_generic),
        (Fault::CrashAfter, true, is_generic),
    ];
    for (fault, is_done, is_expected) in puts {
        let inner = crate::world::memory();
        let (name, path) = (fault.name(), Path::from("a"));
        let is_crash = name.starts_with("crash");
        let mut once = Some(fault);
        let store = FaultStore::new(Arc::clone(&inner), Some(Arc::clone(&clock)), Box::new(move |_| once.take()));
        let error = store.put_opts(&path, "text".into(), PutMode::Create.into()).await.unwrap_err();
        assert!(is_expected(&error), "{name}: {error:?}");
        assert_eq!(inner.head(&path).await.is_ok(), is_done, "{name}");
        assert_eq!((store.fired().get(name), store.is_dead()), (Some(&1), is_crash), "{name}");
        let read = store.get(&path).await;
        assert_eq!(read.is_ok(), is_done && !is_crash, "{name}");
        assert_eq!(store.calls().len(), if is_crash { 1 } else { 2 }, "{name}");
        // What was found absent arrives after that.
        assert_eq!(inner.head(&path).await.is_ok(), is_done || name == "late", "{name}");
    }
}

#[tokio::test]
async fn reads_and_listings_are_cut_short_and_silence_moves_the_clock() {
    let (inner, clock) = (crate::world::memory(), Arc::new(TestClock::default()));
    let faults = [
        Fault::Truncated,
        Fault::Torn,
        Fault::Stale,
        Fault::Doubled,
        Fault::Late,
        Fault::Hang,
        Fault::DoneThenHang,
        Fault::Slow(Duration::from_secs(5)),
    ];
    let mut faults = faults.into_iter();
    let mut free = 2;
    let script = move |_: &Call| {
        free -= 1;
        if free < 0 { faults.next() } else { None }
    };
    let store = FaultStore::new(Arc::clone(&inner), Some(Arc::clone(&clock)), Box::new(script));
    for name in ["old", "new"] {
        store.put(&Path::from(name), "text".into()).await.unwrap();
    }
    let path = Path::from("new");
    assert!(store.get(&path).await.unwrap().bytes().await.is_err());
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "te");
    let names = |listed: Vec<ObjectMeta>| listed.iter().map(|o| o.location.to_string()).collect::<Vec<_>>();
    assert_eq!(names(store.list(None).try_collect().await.unwrap()), ["old"]);
    assert_eq!(names(store.list_with_delimiter(None).await.unwrap().objects), ["new", "new", "old", "old"]);
    store.put(&Path::from("late"), "text".into()).await.unwrap_err();
    store.land_late_puts().await;
    let silent = Path::from("silent");
    for is_done in [false, true] {
        let begun = clock.boot();
        tokio::select! {
            biased;
            _ = store.put(&silent, "text".into()) => panic!("an answer came"),
            () = clock.deadline(Duration::from_secs(60)) => {}
        }
        assert_eq!(clock.boot() - begun, BEYOND_DEADLINES);
        assert_eq!(inner.head(&silent).await.is_ok(), is_done);
    }
    store.head(&path).await.unwrap();
    assert_eq!(clock.boot(), 2 * BEYOND_DEADLINES + Duration::from_secs(5));
    assert_eq!(store.get(&Path::from("late")).await.unwrap().bytes().await.unwrap(), "text");
}
