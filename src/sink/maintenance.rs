//! What a claimed sink does beside its commits: checkpoints, log clean-up, removal of garbage.
//!
//! ```text
//!   append, reload ── count ──► due? ── spawn ──► checkpoint ─► compare ─► clean up ─► garbage
//!                       ▲                             │             │           │
//!                       └────── take what ended ──────┘     each one before it deletes: is the epoch still ours?
//! ```

use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinHandle;

use crate::clock::World;
use crate::continuity::plan::{self, Claim};
use crate::continuity::stamp::Kind;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::log::{Before, Cadence, Facts, Log};

/// Garbage is looked for when a sink has been held for this long. Behind a checkpoint or a reload it is looked for this
/// much before its time.
const FIRST_GARBAGE: Duration = Duration::from_secs(60 * 60);
/// How long garbage is left after it was looked for.
const GARBAGE_EVERY: Duration = Duration::from_secs(6 * 60 * 60);
/// Whoever closes a sink waits no longer for what is under way.
pub(super) const CLOSE: Duration = Duration::from_secs(60);
/// What is not the kernel's is given up after so long.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// What failed is tried again after this, then after twice as long each time, up to `GARBAGE_EVERY`.
const FIRST_RETRY: Duration = Duration::from_secs(60);

/// What one round did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Maintained {
    /// The version of the checkpoint that was written, read back and compared.
    pub checkpoint: Option<u64>,
    /// The files of the log that were deleted.
    pub cleaned: u64,
    /// The files that nothing needed and were deleted.
    pub garbage: u64,
    /// Their bytes.
    pub garbage_bytes: u64,
}

/// The one task beside the commits, and when the next is due.
#[derive(Debug)]
pub(super) struct Maintenance {
    world: World,
    cadence: Cadence,
    /// By the boot clock.
    garbage_due: Duration,
    /// When a checkpoint is due because the last one failed.
    checkpoint_again: Option<Again>,
    /// The same for clean-up and garbage; it is `garbage_due` as well.
    clean_again: Option<Again>,
    task: Option<JoinHandle<Done>>,
    /// What the last round that was started is to do.
    round: Round,
    is_stopped: bool,
}

/// How a round ended.
#[derive(Debug)]
struct Done {
    /// The checkpoint that was written, and its actions where they are known.
    written: Option<(u64, Option<u64>)>,
    /// What was done, whether or not the rest failed.
    did: Maintained,
    ended: Result<()>,
}

/// When something that failed is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Again {
    wait: Duration,
    /// By the boot clock.
    due: Duration,
}

impl Again {
    /// After a failure at the time of `boot`, and one before it.
    fn after(before: Option<Self>, boot: Duration) -> Self {
        let wait = before.map_or(FIRST_RETRY, |before| before.wait.saturating_mul(2).min(GARBAGE_EVERY));
        Self { wait, due: boot.saturating_add(wait) }
    }
}

/// What a round is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// The version to make a checkpoint of.
    checkpoint: Option<u64>,
    garbage: Collect,
}

impl Round {
    const NOTHING: Self = Self { checkpoint: None, garbage: Collect::Nothing };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collect {
    Garbage,
    Nothing,
}

impl Maintenance {
    /// For a table whose newest checkpoint is that of the version `checkpoint`.
    pub(super) fn since(checkpoint: u64, world: World) -> Self {
        let garbage_due = world.clock.boot().saturating_add(FIRST_GARBAGE);
        let cadence = Cadence::since(checkpoint);
        Self {
            world,
            cadence,
            garbage_due,
            checkpoint_again: None,
            clean_again: None,
            task: None,
            round: Round::NOTHING,
            is_stopped: false,
        }
    }

    /// Behind a commit: starts a round beside the next ones where one is due and none is under way.
    pub(super) fn committed(&mut self, kind: Kind, log: &Log, facts: &mut Facts, claim: &Claim) {
        self.take_ended(facts);
        let Some(version) = facts.version.filter(|_| self.task.is_none() && !self.is_stopped) else { return };
        let boot = self.world.clock.boot();
        let is_due = self.cadence.is_due(version) || self.checkpoint_again.is_some_and(|again| again.due <= boot);
        // A reload leaves much that will be garbage, and a process that does nothing else finds what the last one left.
        let beside = is_due || kind == Kind::Reload;
        let ahead = if beside && self.clean_again.is_none() { FIRST_GARBAGE } else { Duration::ZERO };
        let garbage = if self.garbage_due.saturating_sub(boot) <= ahead { Collect::Garbage } else { Collect::Nothing };
        let round = Round { checkpoint: is_due.then_some(version), garbage };
        if round != Round::NOTHING {
            self.start(log, facts, claim, round);
        }
    }

    fn start(&mut self, log: &Log, facts: &mut Facts, claim: &Claim, round: Round) {
        if let Some(version) = round.checkpoint {
            facts.expect_checkpoint(version);
            self.cadence.begin(version);
        }
        if round.garbage == Collect::Garbage {
            self.garbage_due = self.world.clock.boot().saturating_add(GARBAGE_EVERY);
        }
        self.round = round;
        let work = Work { log: log.clone(), world: self.world.clone(), claim: claim.clone() };
        self.task = Some(tokio::spawn(work.run(round)));
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Takes what a round that ended has to tell; never waits.
    pub(super) fn take_ended(&mut self, facts: &mut Facts) {
        if let Some(ended) = self.task.as_mut().and_then(FutureExt::now_or_never) {
            self.task = None;
            // What failed was said when it did.
            let _ = self.take(ended, facts);
        }
    }

    fn take(&mut self, ended: Result<Done, tokio::task::JoinError>, facts: &mut Facts) -> Result<Maintained> {
        let done = match ended {
            Ok(done) => done,
            Err(e) => {
                let error = Error::internal("the maintenance of the table ended early").with_source(e);
                warn("maintenance_failed", &error);
                Done { written: None, did: Maintained::default(), ended: Err(error) }
            }
        };
        self.plan_again(&done);
        if let Some((version, actions)) = done.written {
            facts.checkpoint = facts.checkpoint.max(Some(version));
            actions.into_iter().for_each(|actions| self.cadence.wrote(actions));
        }
        if matches!(&done.ended, Err(e) if e.kind() == ErrorKind::Fenced) {
            self.is_stopped = true;
        }
        done.ended.map(|()| done.did)
    }

    /// Sets when what failed is tried again.
    fn plan_again(&mut self, done: &Done) {
        let boot = self.world.clock.boot();
        let has_failed = done.ended.is_err();
        let has_checkpoint = self.round.checkpoint.is_none() || done.did.checkpoint.is_some();
        if !has_checkpoint {
            self.checkpoint_again = Some(Again::after(self.checkpoint_again, boot));
            if self.round.garbage == Collect::Garbage {
                // Nobody has looked for it.
                self.garbage_due = boot;
            }
            return;
        }
        if self.round.checkpoint.is_some() {
            self.checkpoint_again = None;
        }
        if has_failed {
            let again = Again::after(self.clean_again, boot);
            (self.clean_again, self.garbage_due) = (Some(again), again.due);
        } else if self.round.garbage == Collect::Garbage {
            self.clean_again = None;
        }
    }

    /// Waits for the round under way, then does one of everything, due or not.
    pub(super) async fn now(&mut self, log: &Log, facts: &mut Facts, claim: &Claim) -> Result<Maintained> {
        self.rest(facts).await;
        let checkpoint = facts.version.filter(|version| facts.checkpoint != Some(*version));
        self.start(log, facts, claim, Round { checkpoint, garbage: Collect::Garbage });
        match self.task.as_mut() {
            Some(task) => {
                let ended = task.await;
                self.task = None;
                self.take(ended, facts)
            }
            None => Err(Error::internal("a round was started and there is none")),
        }
    }

    /// Waits for the round under way.
    pub(super) async fn rest(&mut self, facts: &mut Facts) {
        if let Some(task) = self.task.as_mut() {
            let ended = task.await;
            self.task = None;
            // What failed was said when it did.
            let _ = self.take(ended, facts);
        }
    }

    /// Waits for the round under way, but not for ever, and starts none any more.
    pub(super) async fn close(&mut self, facts: &mut Facts) {
        self.is_stopped = true;
        let late = self.world.clock.deadline(CLOSE);
        tokio::select! {
            () = self.rest(facts) => {}
            () = late => {
                tracing::warn!(event = "maintenance_late", "the maintenance of the table is given up after {CLOSE:?}");
                self.stop();
            }
        }
    }

    /// Ends the round under way where it waits next, and starts none any more.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A round at work.
struct Work {
    log: Log,
    world: World,
    claim: Claim,
}

impl Work {
    async fn run(self, round: Round) -> Done {
        let mut done = Done { written: None, did: Maintained::default(), ended: Ok(()) };
        done.ended = self.work(round, &mut done).await;
        if let Err(error) = &done.ended {
            warn("maintenance_failed", error);
        }
        done
    }

    async fn work(&self, round: Round, done: &mut Done) -> Result<()> {
        self.current().await?;
        if let Some(version) = round.checkpoint {
            let before = self.log.before_checkpoint(version).await?;
            let actions = self.log.write_checkpoint(version).await?;
            done.written = Some((version, actions));
            if let Err(error) = self.in_time(self.log.compare_checkpoint(version)).await {
                if error.kind() == ErrorKind::Corrupt && self.withdraw(version, &before).await {
                    done.written = None;
                }
                return Err(error);
            }
            done.did.checkpoint = Some(version);
        }
        self.in_time(self.clean(round, &mut done.did)).await
    }

    /// Takes an untrue checkpoint out of readers' way; whether it is.
    async fn withdraw(&self, version: u64, before: &Before) -> bool {
        let withdrawn = async {
            // What the checkpoint says of the epoch may be untrue as well.
            self.check(&self.log.facts_without(before).await?)?;
            self.log.withdraw_checkpoint(before).await
        };
        let withdrawn = self.in_time(withdrawn).await;
        match &withdrawn {
            Ok(()) => {
                tracing::warn!(event = "checkpoint_withdrawn", version, "a checkpoint that is untrue is deleted again");
            }
            Err(error) => {
                let source = std::error::Error::source(error);
                tracing::warn!(
                    event = "checkpoint_not_withdrawn", version, kind = ?error.kind(), error = %error, source = ?source,
                    "a checkpoint that is untrue leads readers astray; reset the table"
                );
            }
        }
        withdrawn.is_ok()
    }

    async fn clean(&self, round: Round, did: &mut Maintained) -> Result<()> {
        let facts = self.current().await?;
        if let Some(expired) = self.log.expired(&facts).await? {
            self.current().await?;
            did.cleaned = self.log.clean_up(expired).await?;
            tracing::info!(event = "log_cleaned", below = expired.below, files = did.cleaned, "the log is cleaned up");
        }
        if round.garbage == Collect::Garbage {
            let garbage = self.log.garbage().await?;
            self.current().await?;
            let mut count = |file: &crate::log::GarbageFile| {
                did.garbage += 1;
                did.garbage_bytes += file.size;
            };
            let deleted = self.log.delete_garbage(&garbage, &mut count).await;
            let (files, bytes) = (did.garbage, did.garbage_bytes);
            tracing::info!(event = "garbage_deleted", files, bytes, "files that nothing needs are deleted");
            deleted?;
        }
        Ok(())
    }

    /// The table at its head, read anew; fenced where the epoch there is another writer's.
    async fn current(&self) -> Result<Facts> {
        let facts = self.log.facts().await?;
        self.check(&facts)?;
        Ok(facts)
    }

    fn check(&self, facts: &Facts) -> Result<()> {
        match facts.ours() {
            Some(ours) => plan::check_claim(ours, &self.claim),
            None => {
                Err(Error::continuity_lost(Lost::TableGone, "the table is not ours any more, so it is not maintained"))
            }
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            done = work => done,
            () = self.world.clock.deadline(DEADLINE) => {
                Err(Error::unavailable(format!("the maintenance of the table took longer than {DEADLINE:?}")))
            }
        }
    }
}

fn warn(event: &'static str, error: &Error) {
    let source = std::error::Error::source(error);
    tracing::warn!(event, kind = ?error.kind(), error = %error, source = ?source, "the table was not maintained; delivery goes on");
}
