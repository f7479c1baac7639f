//! What a daemon may ask of a connector that runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use crate::connector::breaker::Permit;
use crate::connector::journal::{BreakerRule, Reloaded, ResetRecord, ResetState};
use crate::connector::{ResetPreview, Status};
use crate::continuity::stamp::ResetStamp;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;

/// A call for a reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetRequest {
    /// Who asks, as somebody who reads the table's history should see it; at most 256 bytes.
    pub who: String,
    /// Why; at most 4,096 bytes.
    pub why: String,
    /// The idempotency key; at most 256 bytes.
    pub key: Option<String>,
    /// The generation that the table must have.
    pub expected_generation: Option<Generation>,
    /// What an open breaker means.
    pub breaker: BreakerRule,
}

/// A reset that is written down: it is carried out, whatever happens to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its id.
    pub id: String,
    /// Whether this call began it; otherwise it is one that was accepted before.
    pub is_new: bool,
}

/// Why a call did not get what it asked for. Nothing was changed.
#[derive(Debug)]
pub enum Refusal {
    /// The table has another generation than the caller expects. HTTP 409.
    Generation {
        /// What the caller expects.
        expected: Generation,
        /// What the table has; `None` where there is no table of ours.
        found: Option<Generation>,
    },
    /// A reset is carried out, so what another would do cannot be told. HTTP 409.
    UnderWay {
        /// Its id.
        id: String,
    },
    /// The reset has ended, or its commit has begun. HTTP 409.
    NotCancellable {
        /// Its id.
        id: String,
        /// How far it is.
        state: ResetState,
    },
    /// No reset with this id is remembered: the last thousand are. HTTP 404.
    Unknown {
        /// The id.
        id: String,
    },
    /// Mode or source have no snapshot to load; why, with the remedy. HTTP 422.
    NoSnapshot(String),
    /// A part of the call is too long. HTTP 422.
    TooLong {
        /// Which.
        what: &'static str,
        /// The most bytes that it may have.
        most: usize,
    },
    /// The budget of resets is used up, or a probe failed. HTTP 429.
    BreakerOpen {
        /// When a reset may be asked for again.
        retry_after: Duration,
    },
    /// More calls with idempotency keys of their own got the same reset than are remembered, or more wait for a look at the
    /// table than may. HTTP 429.
    TooManyCalls {
        /// When another one may be made.
        retry_after: Duration,
    },
    /// The journal cannot be written, so nothing would be sure. HTTP 507.
    Unrecorded(Error),
    /// The table or the source could not be looked at; by the error's kind.
    Failed(Error),
    /// The connector was stopped. HTTP 503.
    Stopped,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generation { expected, found: Some(found) } => {
                write!(
                    f,
                    "the table has the generation {found}, expected was {expected}; look at it, then say what is expected"
                )
            }
            Self::Generation { expected, found: None } => {
                write!(
                    f,
                    "there is no table of ours yet, expected was generation {expected}; leave the expectation out"
                )
            }
            Self::UnderWay { id } => write!(f, "the reset {id} is under way; wait for its end, or cancel it"),
            Self::NotCancellable { id, state: ResetState::Committing | ResetState::Snapshotting } => {
                write!(f, "a commit of the reset {id} has begun, and the table may hold it; wait for its end")
            }
            Self::NotCancellable { id, state } => write!(f, "the reset {id} is {state}; there is nothing to cancel"),
            Self::Unknown { id } => write!(f, "no reset {id} is known; list those that are"),
            Self::NoSnapshot(why) => f.write_str(why),
            Self::TooLong { what, most } => write!(f, "the {what} has more than {most} bytes; shorten it"),
            Self::BreakerOpen { retry_after } => write!(
                f,
                "the breaker is open after too many resets; try again in {} seconds, or override it",
                ceil_secs(*retry_after)
            ),
            Self::TooManyCalls { retry_after } => write!(
                f,
                "too many calls got this reset or wait for a look; try again in {} seconds",
                ceil_secs(*retry_after)
            ),
            Self::Unrecorded(error) | Self::Failed(error) => error.fmt(f),
            Self::Stopped => f.write_str("the connector was stopped; start it, or try again later"),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unrecorded(error) | Self::Failed(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl Refusal {
    /// The same for who knows only errors.
    pub fn into_error(self) -> Error {
        match self {
            Self::Unrecorded(error) | Self::Failed(error) => error,
            Self::Stopped => Error::new(ErrorKind::Unavailable, self.to_string()),
            _ => Error::refused(self.to_string()),
        }
    }
}

/// `Retry-After` is in whole seconds, and too early is of no use.
fn ceil_secs(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// What the task is asked.
pub(in crate::connector) enum Command {
    /// With the generation that was shown when it was asked for.
    Reset(ResetRequest, Option<Generation>, Reply<Accepted>),
    Preview(ResetRequest, Reply<ResetPreview>),
    Cancel {
        id: String,
        who: String,
        reply: Reply<ResetRecord>,
    },
    Resets(Reply<Vec<ResetRecord>>),
    ResetById(String, Reply<Option<ResetRecord>>),
    Pause {
        who: String,
        reply: Reply<()>,
    },
    Resume {
        who: String,
        reply: Reply<()>,
    },
    Stop,
    /// The connector itself proposes a reset.
    Propose {
        who: String,
        why: String,
    },
    /// The connector itself asks whether it may reload a table because its view has other columns.
    Grant {
        why: String,
        reply: Reply<Grant>,
    },
    /// What became of that; `None` when there was nothing to do.
    Granted {
        id: String,
        reloaded: Option<Reloaded>,
        reply: Reply<()>,
    },
}

/// Whether a connector may reload its table by itself.
pub(in crate::connector) enum Grant {
    /// It may, as this reset.
    Go(ResetStamp),
    /// Not yet.
    Later(Permit),
}

/// A connector that runs, for whoever controls it; clones are the same connector.
///
/// Every call is answered by the connector's one task, in the order of their arrival, at any time: while rows are written,
/// while storage is away, while the breaker is open. It may have to wait for the end of a synchronous write, of the journal
/// or of files. When the connector was stopped, the answer is [`Refusal::Stopped`].
#[derive(Debug, Clone)]
pub struct Handle {
    name: Arc<str>,
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<Status>,
}

impl Handle {
    pub(super) fn new(name: &str, commands: mpsc::Sender<Command>, status: watch::Receiver<Status>) -> Self {
        Self { name: name.into(), commands, status }
    }

    /// The connector's full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether both are handles of the same start of the connector.
    pub fn is_same(&self, other: &Self) -> bool {
        self.commands.same_channel(&other.commands)
    }

    /// What an operator sees, as it changes; counters within it move without a change being told.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Stops delivery until it is resumed, across restarts too. Nothing is acknowledged to the source meanwhile, so the
    /// connector keeps its place. A reset that is accepted is still carried out; then delivery rests.
    pub async fn pause(&self, who: impl Into<String>) -> Result<(), Refusal> {
        self.ask(|reply| Command::Pause { who: who.into(), reply }).await
    }

    /// Delivers again: after a pause, and after a state that needed somebody's help, for which it is the order to try again.
    pub async fn resume(&self, who: impl Into<String>) -> Result<(), Refusal> {
        self.ask(|reply| Command::Resume { who: who.into(), reply }).await
    }

    /// Asks for a reset; answered when it is written down, long before it is done. What becomes of it is told by
    /// [`Handle::reset_by_id`].
    ///
    /// A call gets a reset that was accepted before, instead of another one, when
    /// * it has that one's idempotency key, as long as that one is remembered: the last thousand are;
    /// * that one has not ended;
    /// * that one ended between the call and its being read;
    /// * the call has no idempotency key, and the same asker's was accepted within `backoff.initial` before, and was not given
    ///   up. So a burst of calls makes one reload, even where a reload takes milliseconds.
    ///
    /// Without that one's key the call's `expected_generation` must be absent or that one's, or the table's while that one has
    /// not ended.
    ///
    /// It is carried out whatever state the connector is in: a paused one rests again afterwards, and a fenced one takes the
    /// table back from the other writer.
    pub async fn reset(&self, request: ResetRequest) -> Result<Accepted, Refusal> {
        let seen = self.status.borrow().generation;
        self.ask(|reply| Command::Reset(request, seen, reply)).await
    }

    /// What such a reset would do, or why it would be refused (`dry_run`). Nothing is written, to the journal neither;
    /// delivery rests while table and source are looked at, and then claims the table anew. Not told while a snapshot is
    /// written.
    pub async fn preview(&self, request: ResetRequest) -> Result<ResetPreview, Refusal> {
        self.ask(|reply| Command::Preview(request, reply)).await
    }

    /// The resets that are remembered, the newest first.
    pub async fn resets(&self) -> Result<Vec<ResetRecord>, Refusal> {
        self.ask(Command::Resets).await
    }

    /// The reset with this id; `None` when it is not remembered.
    pub async fn reset_by_id(&self, id: impl Into<String>) -> Result<Option<ResetRecord>, Refusal> {
        self.ask(|reply| Command::ResetById(id.into(), reply)).await
    }

    /// Takes a reset back; the reset as it is then. Only one whose commit has begun cannot be.
    pub async fn cancel(&self, id: impl Into<String>, who: impl Into<String>) -> Result<ResetRecord, Refusal> {
        self.ask(|reply| Command::Cancel { id: id.into(), who: who.into(), reply }).await
    }

    /// Ends the connector's task, and completes when it has ended. An unfinished reset is carried out by the next start.
    pub async fn stop(&self) {
        // One that is gone has stopped.
        let _ = self.commands.send(Command::Stop).await;
        self.commands.closed().await;
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| Refusal::Stopped)?;
        answer.await.unwrap_or(Err(Refusal::Stopped))
    }
}
