//! What is kept of one table: its step log, and who needs what of it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::DataType;
use tokio::sync::watch;

use super::catalog::TableName;
use crate::clock::Ids;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Lost, Result, with_causes};
use crate::schema::View;
use crate::source::logged::{Keeper, Kept, Places, Register, WhenFull, makes_room, open_register};
use crate::source::rows::blocking;
use crate::step::Step;
use crate::steplog::{Limits, StepLog};

/// A table that is followed, and where what is read of it is kept.
#[derive(Debug, Clone)]
pub struct TableSettings {
    /// The view's name.
    pub view: String,
    /// The table, as SQL names it.
    pub table: String,
    /// The columns of the view's key; empty: those of the table.
    pub key: Vec<String>,
    /// Columns whose types are to be others than those that the table has.
    pub columns: Vec<(String, DataType)>,
    /// The directory below which step logs are.
    pub directory: PathBuf,
    /// What a step log may take.
    pub limits: Limits,
    /// The file in which connectors that were detached are written down.
    pub register: PathBuf,
    /// The connectors that are attached from the beginning. Without them the log lets go of what they need.
    pub connectors: Vec<(String, WhenFull)>,
}

/// Why a table, or all of them, cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    kind: ErrorKind,
    lost: Option<Lost>,
    message: String,
}

impl Trouble {
    pub(super) fn of(error: &Error) -> Self {
        // What is not an answer of the server's says what happened in its causes.
        let is_silent = error.kind() == ErrorKind::Unavailable && error.lost().is_none();
        let message = if is_silent { with_causes(error) } else { error.message().to_owned() };
        Self { kind: error.kind(), lost: error.lost(), message }
    }

    pub(super) fn error(&self) -> Error {
        match self.lost {
            Some(lost) => Error::continuity_lost(lost, self.message.clone()),
            None => Error::new(self.kind, self.message.clone()),
        }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Whether it may pass without anybody's help.
    pub(super) fn passes(&self) -> bool {
        self.kind.is_retryable()
    }

    /// Whether what was read does not lead on to what the server has.
    pub(super) fn is_loss(&self) -> bool {
        self.kind == ErrorKind::ContinuityLost
    }
}

/// How a table stands.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The log; `None` until the server was met once.
    pub(super) log: Option<Arc<StepLog>>,
    /// The columns of the view's key.
    pub(super) key: Arc<[String]>,
    /// The view as the table was last seen.
    pub(super) view: Option<View>,
    /// Why it is not followed.
    pub(super) trouble: Option<Trouble>,
}

/// One table's place.
pub(super) struct Shelf {
    pub(super) settings: TableSettings,
    pub(super) name: TableName,
    pub(super) state: watch::Sender<State>,
    pub(super) places: watch::Sender<Places>,
    register: Register,
    disk: Arc<dyn Disk>,
    ids: Arc<Ids>,
}

impl Shelf {
    /// Config: the table's name is none.
    pub(super) fn new(settings: TableSettings, disk: Arc<dyn Disk>, ids: Arc<Ids>) -> Result<Self> {
        let name = TableName::parse(&settings.table)?;
        let (register, kept) = open_register(&settings.register, Arc::clone(&disk))?;
        let mut places = Places::new(kept.detached);
        settings.connectors.iter().for_each(|(name, when_full)| places.attach(name, *when_full));
        let (state, places) = (watch::Sender::new(State::default()), watch::Sender::new(places));
        Ok(Self { settings, name, state, places, register, disk, ids })
    }

    pub(super) fn view(&self) -> &str {
        &self.settings.view
    }

    /// The log; an error where there is none yet, or the table is in trouble.
    pub(super) fn log(&self) -> Result<Arc<StepLog>> {
        let state = self.state.borrow();
        if let Some(trouble) = &state.trouble {
            return Err(trouble.error());
        }
        let unmet = || Error::unavailable(format!("view {}: the server was not reached yet", self.view()));
        state.log.clone().ok_or_else(unmet)
    }

    /// Opens the log called `name`, or begins it after step `begin`, and forgets any other.
    pub(super) async fn open(&self, name: &str, begin: Step) -> Result<Arc<StepLog>> {
        let (directory, limits) = (self.settings.directory.clone(), self.settings.limits);
        let (disk, ids, name) = (Arc::clone(&self.disk), Arc::clone(&self.ids), name.to_owned());
        let log = blocking(move || {
            let (log, _) = StepLog::open(&directory.join(&name), begin, limits, disk, &ids)?;
            // Nothing names them any more; what cannot be removed is tried again at the next opening.
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_name() != *name && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
            Ok(Arc::new(log))
        })
        .await?;
        self.state.send_modify(|state| state.log = Some(Arc::clone(&log)));
        Ok(log)
    }

    pub(super) fn attach(&self, connector: &str, when_full: WhenFull) {
        self.places.send_modify(|places| places.attach(connector, when_full));
    }

    /// Forgets a connector: it holds no step any more.
    pub(super) fn detach(&self, connector: &str) -> Result<()> {
        self.change_detached(|places| places.remove(connector))
    }

    /// Who takes a snapshot misses nothing before it.
    pub(super) fn take_back(&self, connector: &str) -> Result<()> {
        self.change_detached(|places| places.take_back(connector))
    }

    /// Changes the places; what `change` says changes who is detached, and counts once it is written down.
    fn change_detached(&self, change: impl FnOnce(&mut Places) -> bool) -> Result<()> {
        let mut written = Ok(());
        self.places.send_modify(|places| {
            let mut changed = places.clone();
            if change(&mut changed) {
                written = self.register.write(&Kept { history: None, detached: changed.detached().clone() });
            }
            if written.is_ok() {
                *places = changed;
            }
        });
        written
    }

    /// A connector has everything up to `step`.
    pub(super) async fn acknowledge(&self, connector: &str, step: Step) -> Result<()> {
        self.places.send_modify(|places| places.acknowledge(connector, step));
        let Some(log) = self.state.borrow().log.clone() else { return Ok(()) };
        self.let_go(&log).await
    }

    /// Releases what nobody needs any more.
    async fn let_go(&self, log: &StepLog) -> Result<()> {
        let needless = self.places.borrow().needless(log.stand().last);
        match needless {
            Some(step) => log.release(step).await,
            None => Ok(()),
        }
    }

    /// Whether the log takes less than before, after those were detached that may be, if nothing else helps.
    pub(super) async fn has_made_room(&self, log: &StepLog) -> Result<bool> {
        makes_room(self.view(), log, &mut Keeping { shelf: self, log }).await
    }
}

/// Who makes room in a shelf's log.
struct Keeping<'a> {
    shelf: &'a Shelf,
    log: &'a StepLog,
}

impl Keeper for Keeping<'_> {
    async fn let_go(&mut self) -> Result<()> {
        self.shelf.let_go(self.log).await
    }

    fn detach_last(&mut self, at: Step) -> Result<Vec<String>> {
        let mut detached = Vec::new();
        self.shelf.change_detached(|places| {
            detached = places.detach_last(at);
            !detached.is_empty()
        })?;
        Ok(detached)
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("view", &self.settings.view).finish_non_exhaustive()
    }
}
