//! Where each call of a process waits until the schedule lets it pass.

use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::task::Id;

use super::time::Home;
use crate::faults::{FaultStore, Verb};

/// How a call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// It is done, as its store has it.
    Go,
    /// Nothing is done and no answer comes.
    Hang,
    /// It is done and no answer comes.
    DoneThenHang,
}

/// A call that waits.
#[derive(Debug, Clone)]
pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) owner: usize,
    /// What is asked of the storage; `None` for the source.
    pub(super) verb: Option<Verb>,
    pub(super) path: String,
    /// What runs beside a process's own work.
    task: Option<Id>,
    pass: Option<Pass>,
    waker: Option<Waker>,
}

/// All calls that wait, of all processes.
pub(super) struct Gate {
    /// The kernel has other threads, whose calls nobody can come between.
    home: Home,
    /// Whether calls are told apart by what they ask, not by when they came: of two tasks beside a process, the kernel may let
    /// either go on first.
    by_content: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tickets: Vec<Ticket>,
    drawn: u64,
}

impl Gate {
    pub(super) fn new(home: Home, by_content: bool) -> Self {
        Self { home, by_content, state: Mutex::default() }
    }

    /// The calls that can be let pass.
    pub(super) fn waiting(&self) -> Vec<Ticket> {
        let mut waiting: Vec<Ticket> =
            self.state.lock().unwrap().tickets.iter().filter(|t| t.pass.is_none()).cloned().collect();
        if self.by_content {
            waiting.sort_by_cached_key(|t| (t.owner, t.task.is_some(), format!("{:?}", t.verb), t.path.clone(), t.id));
        }
        waiting
    }

    /// Whether `owner` itself can do nothing before the schedule moves.
    pub(super) fn holds(&self, owner: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.tickets.iter().any(|t| t.owner == owner && t.task.is_none())
    }

    /// Whether what runs beside `owner` can do nothing before the schedule moves.
    pub(super) fn holds_beside(&self, owner: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.tickets.iter().any(|t| t.owner == owner && t.task.is_some())
    }

    /// The tasks beside processes whose calls wait; `None` while a call that was let pass is not done.
    pub(super) fn tasks(&self) -> Option<HashSet<Id>> {
        let state = self.state.lock().unwrap();
        let is_moving = state.tickets.iter().any(|t| t.pass == Some(Pass::Go));
        (!is_moving).then(|| state.tickets.iter().filter_map(|t| t.task).collect())
    }

    /// Whether a call of `owner` gets no answer.
    pub(super) fn is_silent(&self, owner: usize) -> bool {
        let state = self.state.lock().unwrap();
        state.tickets.iter().any(|t| t.owner == owner && t.pass.is_some_and(|p| p != Pass::Go))
    }

    pub(super) fn let_pass(&self, id: u64, pass: Pass) {
        let mut state = self.state.lock().unwrap();
        if let Some(ticket) = state.tickets.iter_mut().find(|t| t.id == id) {
            ticket.pass = Some(pass);
            ticket.waker.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Waits until the schedule has decided.
    pub(super) async fn enter(self: &Arc<Self>, owner: usize, verb: Option<Verb>, path: &str) -> Entered {
        if !self.home.is_this_thread() {
            return Entered { pass: Pass::Go, ticket: None };
        }
        let id = {
            let mut state = self.state.lock().unwrap();
            state.drawn += 1;
            let id = state.drawn;
            state.tickets.push(Ticket {
                id,
                owner,
                verb,
                path: path.into(),
                task: self.home.beside(),
                pass: None,
                waker: None,
            });
            id
        };
        let held = Held { gate: Arc::clone(self), id };
        let pass = poll_fn(|context| {
            let mut state = self.state.lock().unwrap();
            let ticket = state.tickets.iter_mut().find(|t| t.id == id).expect("it is held");
            match ticket.pass {
                Some(pass) => Poll::Ready(pass),
                None => {
                    ticket.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        // A call without an answer stays where the schedule can see it.
        Entered { pass, ticket: (pass != Pass::Go).then_some(held) }
    }
}

struct Held {
    gate: Arc<Gate>,
    id: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gate.state.lock().unwrap().tickets.retain(|t| t.id != self.id);
    }
}

/// A call about which the schedule has decided.
pub(super) struct Entered {
    pass: Pass,
    ticket: Option<Held>,
}

impl Entered {
    pub(super) async fn carry_out<T>(self, work: impl Future<Output = T>) -> T {
        match self.pass {
            Pass::Go => return work.await,
            Pass::Hang => {}
            Pass::DoneThenHang => drop(work.await),
        }
        let _silent = self.ticket;
        std::future::pending().await
    }
}

/// The storage as one process sees it: calls wait at the gate, then meet their faults.
#[derive(Clone)]
pub(super) struct GateStore {
    pub(super) gate: Arc<Gate>,
    pub(super) owner: usize,
    pub(super) inner: FaultStore,
}

impl GateStore {
    async fn enter(&self, verb: Verb, path: &Path) -> Entered {
        self.gate.enter(self.owner, Some(verb), path.as_ref()).await
    }
}

impl fmt::Debug for GateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateStore")
    }
}

impl fmt::Display for GateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateStore")
    }
}

#[async_trait]
impl ObjectStore for GateStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let verb = if opts.mode == PutMode::Create { Verb::Create } else { Verb::Overwrite };
        self.enter(verb, location).await.carry_out(self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.enter(Verb::Begin, location).await.carry_out(self.inner.put_multipart_opts(location, opts)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let verb = if options.head { Verb::Head } else { Verb::Get };
        self.enter(verb, location).await.carry_out(self.inner.get_opts(location, options)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        locations
            .then(move |location| {
                let store = store.clone();
                async move {
                    let location = location?;
                    store.enter(Verb::Delete, &location).await.carry_out(store.inner.delete(&location)).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_with_offset(prefix, &Path::default())
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix, offset) = (self.clone(), prefix.cloned(), offset.clone());
        let listed = async move {
            let path = prefix.clone().unwrap_or_default();
            let objects = match offset.as_ref() {
                "" => store.inner.list(prefix.as_ref()),
                _ => store.inner.list_with_offset(prefix.as_ref(), &offset),
            };
            let listed: Vec<_> = store.enter(Verb::List, &path).await.carry_out(objects.try_collect()).await?;
            Ok::<_, object_store::Error>(futures::stream::iter(listed.into_iter().map(Ok)))
        };
        listed.into_stream().try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let path = prefix.cloned().unwrap_or_default();
        self.enter(Verb::List, &path).await.carry_out(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.enter(Verb::Copy, to).await.carry_out(self.inner.copy_opts(from, to, options)).await
    }
}
