//! Who moves next: one seed decides about every call, fault, crash and moment.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cutover::continuity::plan::OnExisting;
use cutover::continuity::stamp::Layout;
use cutover::log::Log;
use cutover::{ErrorKind, Location, Result};
use futures::future::LocalBoxFuture;
use object_store::ObjectStore;

use super::feed::{Feed, Honesty};
use super::gate::{Gate, Pass, Ticket};
use super::homes::Homes;
use super::oracle::{Moved, Oracle, Violation};
use super::others::Foreign;
use super::process::{Ended, Process, Role, STILL, Stage};
use super::rows::state_of;
use super::storage::Storage;
use super::time::{Home, Time};
use crate::faults::Verb;
use crate::program::Chance;
use crate::vectors;
use crate::world::world;

/// Fewer moves are no simulation; more come until there were faults enough.
const MOVES: u64 = 350;
/// Where the table is the view, each process has the table to read first, and files are joined by those that live long.
const MOVES_OF_CURRENT: u64 = 700;
/// Calls, and moments of waiting, in which a writer commits often enough that files are joined.
const LONG: u64 = 400;
/// Faults that each seed meets.
const FAULTS: u64 = 20;
/// Everything that was fed is committed, or an end that has a name is reached, within this time of a sound storage.
const QUIET: Duration = Duration::from_secs(600);
/// Longer than removed files are kept, whatever a clock says.
const LONG_AGO: Duration = Duration::from_secs(8 * 24 * 3600);
/// A call that takes this long is given up.
const CALL: Duration = Duration::from_secs(60);

/// What a seed led to.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) history: Vec<String>,
    pub(super) faults: u64,
    pub(super) fired: BTreeMap<&'static str, u64>,
    pub(super) versions: u64,
    pub(super) maintained: Sums,
    pub(super) moved: Moved,
    pub(super) violation: Option<Violation>,
}

/// What all maintenance did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) checkpoints: u64,
    pub(super) cleaned: u64,
    pub(super) garbage: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: Self) {
        self.checkpoints += other.checkpoints;
        self.cleaned += other.cleaned;
        self.garbage += other.garbage;
    }
}

/// Plays `seed` over a table of this layout.
pub(super) async fn play(seed: u64, layout: Layout) -> Played {
    let mut schedule = Schedule::new(seed, layout);
    let violation = schedule.play().await.err();
    let stage = &schedule.stage;
    Played {
        history: std::mem::take(&mut stage.history.lock().unwrap()),
        faults: stage.faults.load(Ordering::Relaxed),
        fired: stage.fired.lock().unwrap().clone(),
        versions: schedule.oracle.head.map_or(0, |head| head + 1),
        maintained: schedule.maintained,
        moved: schedule.oracle.moved,
        violation,
    }
}

/// Whether a process has something to do since it was polled.
#[derive(Default)]
struct Woken {
    is_woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Woken {
    fn poll<T>(self: &Arc<Self>, future: &mut LocalBoxFuture<'static, T>, context: &mut Context<'_>) -> Poll<T> {
        *self.outer.lock().unwrap() = Some(context.waker().clone());
        self.is_woken.store(false, Ordering::SeqCst);
        future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(self))))
    }

    fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.outer.lock().unwrap().take().into_iter().for_each(Waker::wake);
    }
}

struct Schedule {
    stage: Arc<Stage>,
    oracle: Oracle,
    processes: Vec<Process>,
    /// The stores of processes that are gone, whose late puts may yet arrive.
    gone: Vec<crate::faults::FaultStore>,
    begun: usize,
    resets: u64,
    maintained: Sums,
    /// Whether others have left a checkpoint that is untrue.
    is_untrue: bool,
    /// Processes end, and are joined by others, in one of so many moves that would have it so.
    steadiness: u64,
}

impl Schedule {
    fn new(seed: u64, layout: Layout) -> Self {
        let home = Home::here();
        let time = Arc::new(Time::new(home));
        let mut chance = Chance::from_seed(seed);
        let is_current = layout == Layout::Current;
        let feed = if is_current { Feed::of_many_rows(&mut chance) } else { Feed::new(&mut chance) };
        let rates = (3 + chance.below(10), 20 + chance.below(100));
        let on_existing = if chance.one_in(4) { OnExisting::Truncate } else { OnExisting::Error };
        let heartbeat = chance.one_in(3).then_some(Duration::from_secs(5));
        let log_retention = chance.one_in(2).then_some("interval 2 hours");
        let steadiness = if is_current { [2, 20][chance.below(2) as usize] } else { 1 };
        let homes = (is_current && chance.one_in(2)).then(Homes::new);
        let stage = Stage {
            seed,
            gate: Arc::new(Gate::new(home, is_current)),
            storage: Arc::new(Storage::new(Arc::clone(&time))),
            time,
            feed: Arc::new(Mutex::new(feed)),
            chance: Arc::new(Mutex::new(chance)),
            rates,
            is_calm: Arc::new(AtomicBool::new(false)),
            history: Arc::default(),
            faults: Arc::new(AtomicU64::new(0)),
            fired: Arc::default(),
            on_existing,
            heartbeat,
            log_retention,
            layout,
            homes,
        };
        Self {
            stage: Arc::new(stage),
            oracle: Oracle::new(layout),
            processes: Vec::new(),
            gone: Vec::new(),
            begun: 0,
            resets: 0,
            maintained: Sums::default(),
            is_untrue: false,
            steadiness,
        }
    }

    async fn play(&mut self) -> Result<(), Violation> {
        if self.stage.on_existing == OnExisting::Truncate {
            self.foreign(|foreign| foreign.create())?;
        }
        let mut moves = 0;
        let many = if self.oracle.layout == Layout::Current { MOVES_OF_CURRENT } else { MOVES };
        while moves < many || self.stage.faults.load(Ordering::Relaxed) < FAULTS {
            self.act().await?;
            self.oracle.check_retained(&self.stage.storage, self.stage.time.unix_millis())?;
            moves += 1;
        }
        self.end_faults().await?;
        self.quiet().await?;
        self.check_end().await
    }

    /// One move.
    async fn act(&mut self) -> Result<(), Violation> {
        let stage = Arc::clone(&self.stage);
        match stage.below(100) {
            0..=5 => {
                let (mut feed, mut chance) = (stage.feed.lock().unwrap(), stage.chance.lock().unwrap());
                feed.grow(&mut chance);
                let latest = feed.latest();
                stage.note(|| format!("the source reaches {latest}"));
                Ok(())
            }
            6..=9 if self.is_unsteady() => self.begin_writer().await,
            10 => self.begin_reset().await,
            11 if self.oracle.head.is_some() => self.begin(Role::Reader).await,
            12 if self.oracle.is_ours && stage.one_in(3) => self.begin(Role::Gc).await,
            12 if self.oracle.is_ours => self.begin(Role::Checkpoint).await,
            13 if self.oracle.is_ours && stage.one_in(3) => self.begin(Role::Maintenance).await,
            13 if self.oracle.is_ours => self.foreign(|foreign| foreign.maintain()),
            14 if self.oracle.is_ours && stage.one_in(6) => self.foreign(|foreign| foreign.drift()),
            15 if self.may_follow_long() && stage.one_in(3) => self.follow_long().await,
            15 if stage.one_in(3) => self.clean().await,
            16 => self.land_late_puts().await,
            17 if self.is_unsteady() => self.crash(None).await,
            18 if stage.one_in(2) => {
                let hours = [1, 5, 20, 60][stage.below(4) as usize];
                self.sleep(Duration::from_secs(hours * 3600)).await
            }
            18 if self.oracle.is_ours && stage.one_in(4) => self.gc_beside_restore().await,
            18 if self.oracle.is_ours && stage.one_in(2) => self.maintain_alone().await,
            19 | 20 => self.move_time().await,
            _ => self.let_pass().await,
        }
    }

    /// Whether processes come and go in this move. Nothing is drawn where they always do.
    fn is_unsteady(&self) -> bool {
        self.steadiness == 1 || self.processes.is_empty() || self.stage.one_in(self.steadiness)
    }

    async fn begin_writer(&mut self) -> Result<(), Violation> {
        if self.processes.iter().filter(|p| matches!(p.role, Role::Writer(_))).count() >= 2 {
            return Ok(());
        }
        let honesty = match self.stage.below(12) {
            _ if !self.oracle.is_ours => Honesty::Sound,
            0 => Honesty::Forgetful,
            1 => Honesty::Rewound,
            2 => Honesty::Impostor,
            _ => Honesty::Sound,
        };
        self.begin(Role::Writer(honesty)).await
    }

    async fn begin_reset(&mut self) -> Result<(), Violation> {
        if self.processes.iter().any(|p| matches!(p.role, Role::Reset(_))) {
            return Ok(());
        }
        // An operator who saw no answer asks for the same reset again.
        if self.resets == 0 || !self.stage.one_in(3) {
            self.resets += 1;
        }
        let id = format!("r{}", self.resets);
        self.oracle.asked.insert(id.clone());
        self.begin(Role::Reset(id)).await
    }

    async fn begin(&mut self, role: Role) -> Result<(), Violation> {
        let id = self.begun;
        self.begun += 1;
        self.stage.note(|| format!("p{id} begins: {role:?}"));
        let process = self.stage.process(id, role, &self.oracle);
        self.processes.push(process);
        self.drive(id).await
    }

    /// Runs a process until it waits for the schedule, then looks at what it did.
    async fn drive(&mut self, id: usize) -> Result<(), Violation> {
        // What ran beside a process may outlive it for a while.
        let Some(at) = self.processes.iter().position(|p| p.id == id) else { return self.stage.rest().await };
        let (gate, time) = (Arc::clone(&self.stage.gate), Arc::clone(&self.stage.time));
        let process = &mut self.processes[at];
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let may_wait_for_tasks = || process.role == Role::Maintenance || time.has_deadline(id);
        let waits_for_tasks = || may_wait_for_tasks() && (gate.holds_beside(id) || time.sleeps_beside(id));
        let mut ended = None;
        while ended.is_none() {
            let woken = Arc::new(Woken::default());
            let moved = poll_fn(|context| match woken.poll(&mut process.future, context) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if gate.holds(id) || time.sleeps(id) => Poll::Ready(None),
                // What runs beside it is run by the runtime, which must be let.
                Poll::Pending if may_wait_for_tasks() && tasks() > 0 => Poll::Ready(None),
                // The kernel works on a thread of its own, and wakes this one.
                Poll::Pending => Poll::Pending,
            });
            ended =
                tokio::time::timeout(STILL, moved).await.map_err(|_| format!("process {id} does not move any more"))?;
            let is_held = ended.is_some() || gate.holds(id) || time.sleeps(id) || waits_for_tasks();
            if is_held && self.stage.rests() {
                if self.stage.homes.is_none() {
                    break;
                }
                // One thread works on all indexes, in order: what the process has there is done after this.
                tokio::task::spawn_blocking(|| ()).await.map_err(|e| e.to_string())?;
                if !woken.is_woken() {
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        self.observe()?;
        if let Some(ended) = ended {
            let process = self.processes.remove(at);
            self.judge(&process, ended)?;
            self.bury(process).await?;
        }
        Ok(())
    }

    /// Drops a process and what runs beside it.
    async fn bury(&mut self, process: Process) -> Result<(), Violation> {
        self.gone.push(process.store);
        drop(process.future);
        self.stage.rest().await
    }

    /// The same for a process that dies; the machine writes down what the process held in memory, or does not.
    async fn kill(&mut self, process: Process) -> Result<(), Violation> {
        let Process { future, home, .. } = process;
        self.gone.push(process.store);
        match home.filter(|_| self.stage.one_in(2)) {
            Some(home) => home.killed(|| drop(future)),
            None => drop(future),
        }
        self.stage.rest().await
    }

    fn observe(&mut self) -> Result<(), Violation> {
        let mut feed = self.stage.feed.lock().unwrap();
        self.oracle.observe(&self.stage.storage, &feed, self.stage.time.unix_millis())?;
        self.oracle.check_acknowledged(&mut feed)
    }

    /// Whether a process may end so.
    fn judge(&mut self, process: &Process, ended: Result<Ended>) -> Result<(), Violation> {
        let said = match &ended {
            Ok(Ended::Read(version, _)) => format!("read version {version}"),
            Ok(ended) => format!("{ended:?}"),
            Err(e) => format!("{:?}: {e}", e.kind()),
        };
        self.stage.note(|| format!("p{} ends: {said}", process.id));
        let wrong = || Err(format!("process {} ({:?}) ends with {said}", process.id, process.role));
        let saw_drift = process.began_in_drift || self.oracle.drifts > process.drifts;
        let is_housekeeping = matches!(process.role, Role::Checkpoint | Role::Maintenance | Role::Gc);
        // All that sleep let a call take longer than it may.
        let waited = self.stage.time.passed() - process.begun >= CALL;
        let is_overtaken = self.oracle.cleaned() > process.cleaned;
        let is_beside = is_housekeeping || process.role == Role::Reader;
        let is_led_astray = matches!(process.role, Role::Writer(honesty) if honesty != Honesty::Sound);
        match ended {
            Ok(Ended::Reset) => {
                let Role::Reset(id) = &process.role else { return wrong() };
                if self.oracle.reset.contains(id) { Ok(()) } else { wrong() }
            }
            Ok(Ended::Read(version, rows)) => match self.oracle.states.get(&version) {
                Some(Some(state)) if state_of(self.oracle.layout, rows.iter()).as_ref() != Ok(state) => {
                    Err(format!("a reader of version {version} sees {rows:?}, not {state:?}"))
                }
                Some(_) => Ok(()),
                None => wrong(),
            },
            Ok(Ended::Unread) => Ok(()),
            Ok(Ended::Maintained(did)) => {
                let (checkpoints, cleaned, garbage) = (u64::from(did.checkpoint.is_some()), did.cleaned, did.garbage);
                self.maintained.add(Sums { checkpoints, cleaned, garbage });
                Ok(())
            }
            Ok(Ended::Done) if process.role == Role::Checkpoint => Ok(()),
            Ok(Ended::Done) => wrong(),
            Err(e) => match e.kind() {
                ErrorKind::Unavailable if is_beside && (process.met_any() || waited || is_overtaken) => Ok(()),
                ErrorKind::Corrupt | ErrorKind::ContinuityLost
                    if self.is_untrue && process.role == Role::Maintenance =>
                {
                    Ok(())
                }
                ErrorKind::Refused if is_housekeeping && process.skew_millis < 0 => Ok(()),
                ErrorKind::Fenced if self.oracle.epoch > 1 => Ok(()),
                ErrorKind::ContinuityLost if saw_drift || is_led_astray => Ok(()),
                ErrorKind::Refused if process.met("expired") || is_led_astray => Ok(()),
                ErrorKind::Unavailable | ErrorKind::Refused if matches!(process.role, Role::Reset(_)) => Ok(()),
                _ => wrong(),
            },
        }
    }

    /// Lets a call pass, or hang.
    async fn let_pass(&mut self) -> Result<(), Violation> {
        let waiting = self.stage.gate.waiting();
        if waiting.is_empty() {
            return self.move_time().await;
        }
        let ticket = &waiting[self.stage.below(waiting.len() as u64) as usize];
        let is_storage = ticket.verb.is_some();
        match self.stage.below(100) {
            0 if is_storage => self.hang(ticket, Pass::Hang, "hang").await,
            1 if is_storage => self.hang(ticket, Pass::DoneThenHang, "done, then hang").await,
            2 if self.is_unsteady() => {
                self.hang(ticket, Pass::DoneThenHang, "crash after").await?;
                self.crash(Some(ticket.owner)).await
            }
            3 if self.is_unsteady() => {
                self.stage.count("crash before");
                self.crash(Some(ticket.owner)).await
            }
            _ => {
                self.stage.gate.let_pass(ticket.id, Pass::Go);
                self.drive(ticket.owner).await
            }
        }
    }

    async fn hang(&mut self, ticket: &Ticket, pass: Pass, name: &'static str) -> Result<(), Violation> {
        self.stage.count(name);
        self.stage.note(|| format!("p{} {:?} {}: {name}", ticket.owner, ticket.verb, ticket.path));
        self.stage.gate.let_pass(ticket.id, pass);
        self.drive(ticket.owner).await
    }

    /// A process dies; without one named, one that gets no answer, or any.
    async fn crash(&mut self, owner: Option<usize>) -> Result<(), Violation> {
        let silent = || self.processes.iter().position(|p| self.stage.gate.is_silent(p.id));
        let at = match owner {
            Some(owner) => self.processes.iter().position(|p| p.id == owner),
            None => silent().or_else(|| {
                let many = self.processes.len() as u64;
                (many > 0).then(|| self.stage.below(many) as usize)
            }),
        };
        if let Some(at) = at {
            let process = self.processes.remove(at);
            self.stage.note(|| format!("p{} dies", process.id));
            self.kill(process).await?;
        }
        Ok(())
    }

    /// Time goes on to the next moment that somebody waits for.
    async fn move_time(&mut self) -> Result<(), Violation> {
        match self.stage.time.next() {
            Some(moment) => self.move_to(moment).await,
            None => Ok(()),
        }
    }

    async fn sleep(&mut self, duration: Duration) -> Result<(), Violation> {
        self.stage.note(|| format!("all sleep for {duration:?}"));
        self.move_to(self.stage.time.passed() + duration).await
    }

    async fn move_to(&mut self, moment: Duration) -> Result<(), Violation> {
        for owner in self.stage.time.move_to(moment) {
            self.drive(owner).await?;
        }
        Ok(())
    }

    async fn land_late_puts(&mut self) -> Result<(), Violation> {
        let stores = self.processes.iter().map(|p| &p.store).chain(&self.gone);
        for store in stores {
            store.land_late_puts().await;
        }
        self.observe()
    }

    fn foreign(&mut self, act: impl FnOnce(&mut Foreign<'_>) -> &'static str) -> Result<(), Violation> {
        let stage = Arc::clone(&self.stage);
        // What is on its way may have landed since.
        self.observe()?;
        let mut chance = stage.chance.lock().unwrap();
        let mut foreign =
            Foreign { oracle: &mut self.oracle, storage: &stage.storage, time: &stage.time, chance: &mut chance };
        let what = act(&mut foreign);
        drop(chance);
        stage.note(|| format!("others: {what}"));
        self.observe()
    }

    /// Others write a checkpoint and clean the log up to it.
    async fn clean(&mut self) -> Result<(), Violation> {
        if !self.oracle.is_ours {
            return Ok(());
        }
        let log = self.plain_log();
        let mut facts = log.facts().await.map_err(|e| format!("the log cannot be read by others: {e:?}"))?;
        // A checkpoint whose maker died before it was named stays so.
        if log.checkpoint(&mut facts).await.is_err() {
            return Ok(());
        }
        let listing = log.list(0).await.map_err(|e| format!("the log cannot be listed by others: {e:?}"))?;
        // What our last rows followed stays readable, as it does where logs are kept for weeks.
        match listing.checkpoints.range(..=self.oracle.anchor).next_back().copied() {
            Some(limit) => self.foreign(|foreign| foreign.clean(limit)),
            None => Ok(()),
        }
    }

    /// Somebody deletes garbage, and once the folder is listed others bring back a file that was removed long ago. No one
    /// else moves.
    async fn gc_beside_restore(&mut self) -> Result<(), Violation> {
        if self.restorable().is_none() {
            return Ok(());
        }
        self.sleep(LONG_AGO).await?;
        self.land_late_puts().await?;
        let long_ago = self.stage.time.unix_millis() - LONG_AGO.as_millis() as i64;
        let Some((path, _)) = self.restorable().filter(|(_, removed)| *removed <= long_ago) else { return Ok(()) };
        self.stage.is_calm.store(true, Ordering::Relaxed);
        let id = self.begun;
        self.begin(Role::Gc).await?;
        let mut restored = false;
        while let Some(ticket) = self.ticket_of(id) {
            let lists_folder = ticket.verb == Some(Verb::List) && ticket.path.is_empty();
            self.stage.gate.let_pass(ticket.id, Pass::Go);
            self.drive(id).await?;
            if lists_folder && !restored {
                restored = true;
                self.foreign(|foreign| foreign.restore(&path))?;
            }
        }
        self.crash_if_there(id).await?;
        self.stage.is_calm.store(false, Ordering::Relaxed);
        self.oracle.check_kept(&self.stage.storage)
    }

    /// Somebody maintains a table whose oldest versions may have expired. No one else moves.
    async fn maintain_alone(&mut self) -> Result<(), Violation> {
        self.sleep(Duration::from_secs(5 * 3600)).await?;
        self.land_late_puts().await?;
        if self.stage.log_retention.is_some() && self.oracle.drift.is_none() {
            self.tempt_clean_up().await?;
        }
        self.alone(Role::Maintenance).await?;
        self.check_end().await
    }

    /// Others make a checkpoint, first one that lacks a live file: somebody maintains the table, and others put it right.
    async fn tempt_clean_up(&mut self) -> Result<(), Violation> {
        let (log, version) = (self.plain_log(), self.oracle.anchor);
        let failed = |e: cutover::Error| format!("the log cannot be read by others: {e:?}");
        let listing = log.list(0).await.map_err(failed)?;
        let base = listing.checkpoints.range(..version).next_back().map_or(0, |base| base + 1);
        // Else there is nothing that the checkpoint can be held against.
        let is_whole = (base..=version).all(|version| listing.versions.contains(&version));
        if !is_whole || log.write_checkpoint(version).await.is_err() {
            return Ok(());
        }
        let right = self.stage.storage.checkpoints();
        if self.stage.storage.falsify_checkpoint(version) {
            self.stage.note(|| format!("others leave an untrue checkpoint of version {version}"));
            self.is_untrue = true;
            self.alone(Role::Maintenance).await?;
            self.is_untrue = false;
            self.stage.storage.lead_back(&right);
            self.check_end().await?;
        }
        Ok(())
    }

    /// Lets one process go on to its end, on a sound storage.
    async fn alone(&mut self, role: Role) -> Result<(), Violation> {
        self.stage.is_calm.store(true, Ordering::Relaxed);
        let id = self.begun;
        self.begin(role).await?;
        while let Some(ticket) = self.ticket_of(id) {
            self.stage.gate.let_pass(ticket.id, Pass::Go);
            self.drive(id).await?;
        }
        self.crash_if_there(id).await?;
        self.stage.is_calm.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn may_follow_long(&self) -> bool {
        self.oracle.layout == Layout::Current && self.oracle.is_ours && self.oracle.drift.is_none()
    }

    /// One writer delivers for so long, on a sound storage, that files are joined; then it goes on among the others.
    async fn follow_long(&mut self) -> Result<(), Violation> {
        self.stage.is_calm.store(true, Ordering::Relaxed);
        let id = self.begun;
        self.begin(Role::Writer(Honesty::Sound)).await?;
        for _ in 0..LONG {
            if !self.processes.iter().any(|process| process.id == id) {
                break;
            }
            match self.ticket_of(id) {
                Some(ticket) => {
                    self.stage.gate.let_pass(ticket.id, Pass::Go);
                    self.drive(id).await?;
                }
                None => {
                    self.stage.feed.lock().unwrap().grow(&mut self.stage.chance.lock().unwrap());
                    self.move_time().await?;
                }
            }
        }
        self.stage.is_calm.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn restorable(&mut self) -> Option<(String, i64)> {
        let stage = Arc::clone(&self.stage);
        let mut chance = stage.chance.lock().unwrap();
        let foreign =
            Foreign { oracle: &mut self.oracle, storage: &stage.storage, time: &stage.time, chance: &mut chance };
        foreign.restorable()
    }

    fn ticket_of(&self, id: usize) -> Option<Ticket> {
        self.stage.gate.waiting().into_iter().find(|ticket| ticket.owner == id)
    }

    async fn crash_if_there(&mut self, id: usize) -> Result<(), Violation> {
        match self.processes.iter().any(|process| process.id == id) {
            true => self.crash(Some(id)).await,
            false => Ok(()),
        }
    }

    fn plain_log(&self) -> Log {
        let storage: Arc<dyn ObjectStore> = Arc::clone(&self.stage.storage) as Arc<dyn ObjectStore>;
        Log::new(Location::on(storage), world(self.stage.seed).0)
    }

    async fn end_faults(&mut self) -> Result<(), Violation> {
        self.stage.note(|| "faults end".into());
        self.stage.is_calm.store(true, Ordering::Relaxed);
        self.land_late_puts().await?;
        // Whoever gets no answer is started anew, and at most one writer stays.
        let gate = Arc::clone(&self.stage.gate);
        let survivor = self.stage.below(4);
        let mut writers = 0;
        let mut stays = |p: &mut Process| {
            let is_writer = matches!(p.role, Role::Writer(Honesty::Sound));
            writers += u64::from(is_writer);
            is_writer && writers == survivor && !gate.is_silent(p.id)
        };
        let dead: Vec<Process> = self.processes.extract_if(.., |p| !stays(p)).collect();
        for process in dead {
            self.kill(process).await?;
        }
        self.observe()
    }

    /// A sound storage and one writer: what was fed arrives, after a reset where continuity was lost.
    async fn quiet(&mut self) -> Result<(), Violation> {
        let begun = self.stage.time.passed();
        let wanted = self.stage.feed.lock().unwrap().latest();
        while !self.oracle.is_ours || self.oracle.drift.is_some() || self.oracle.last_step < wanted {
            // A writer that has nothing to deliver looks at nothing, so what others did then is for `verify` to find.
            let is_delivered = self.oracle.is_ours && self.is_delivered(wanted);
            match self.oracle.drift.is_some() {
                true if self.processes.is_empty() || is_delivered => self.begin_reset().await?,
                false if self.processes.is_empty() => self.begin(Role::Writer(Honesty::Sound)).await?,
                _ => {}
            }
            match self.stage.gate.waiting().first() {
                Some(ticket) => {
                    self.stage.gate.let_pass(ticket.id, Pass::Go);
                    self.drive(ticket.owner).await?;
                }
                None => self.move_time().await?,
            }
            if self.oracle.is_ours && self.oracle.drift.is_none() && self.is_delivered(wanted) {
                break;
            }
            if self.stage.time.passed() - begun > QUIET {
                return Err(format!(
                    "{QUIET:?} after the faults ended the table stands at {} of {wanted}, drift {:?}",
                    self.oracle.last_step, self.oracle.drift
                ));
            }
        }
        Ok(())
    }

    /// Whether no writer has anything to commit up to the step `wanted`.
    fn is_delivered(&self, wanted: u64) -> bool {
        // Steps without changes are recorded by a heartbeat only.
        let feed = self.stage.feed.lock().unwrap();
        let last = self.oracle.last_step;
        last >= wanted || (self.stage.heartbeat.is_none() && feed.netted(last, wanted).next().is_none())
    }

    /// The storage at the end: kept bytes, and a replay by the kernel that agrees with the oracle's.
    async fn check_end(&mut self) -> Result<(), Violation> {
        self.oracle.check_kept(&self.stage.storage)?;
        let log = self.plain_log();
        let failed = |e: cutover::Error| format!("the log cannot be replayed: {e:?}");
        let replayed = log.replay(None).await.map_err(failed)?;
        let files = log.live_files_at(replayed.version).await.map_err(failed)?;
        let id = |path: &str, vector: &serde_json::Value| (path.to_string(), vectors::id(vector));
        let none = serde_json::Value::Null;
        let found: BTreeSet<_> = files.iter().map(|f| id(&f.path, f.vector.as_ref().unwrap_or(&none))).collect();
        let live = self.oracle.live.iter();
        let expected: BTreeSet<_> = live.map(|(path, file)| id(path, &file.add["deletionVector"])).collect();
        let says = (Some(replayed.version), replayed.step, replayed.epoch);
        let knows = (self.oracle.head, Some(self.oracle.last_step as i64), Some(self.oracle.epoch as i64));
        if says != knows || found != expected {
            return Err(format!("a replay gives {says:?} with {found:?}, the entries {knows:?} with {expected:?}"));
        }
        Ok(())
    }
}
