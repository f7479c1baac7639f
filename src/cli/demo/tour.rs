//! The chapters of the demo, and what must hold in each.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use super::daemon::{self, CONFIG, Daemon, SAID, until};
use super::feed::{Deed, ROWS_A_STEP};
use super::home::Home;
use super::narration::Narration;
use super::reader::{self, Poller};
use super::writers;
use crate::cli::text::{self, grouped, shell_word};
use crate::cli::verify::word;
use crate::clock::World;
use crate::error::{Error, Result};
use crate::inspect::{self, Repair, Report, Verdict};
use crate::log::{Access, Location, Log};

/// The steps by which the view comes to its rows.
const STEPS: u64 = 5;
/// The rows that it has then, and keeps.
const ROWS: u64 = STEPS * ROWS_A_STEP;
/// More steps than fit into the step log.
const MANY_STEPS: u64 = 100;
/// How often a kill is tried that must meet a snapshot in the middle.
const KILLS: u32 = 10;

/// Where the tour takes place.
struct Place<'a> {
    home: &'a Home,
    world: &'a World,
    page: String,
}

/// Goes through all chapters; the address of the daemon's page.
pub(super) async fn go(home: &Home, port: u16, world: &World) -> Result<String> {
    let mut say = Narration::new();
    let listen = free_address(port)?;
    daemon::configure(home, &listen)?;
    let place = Place { home, world, page: format!("http://{listen}") };
    let daemon = place.begin(&say).await?;
    let daemon = place.lose_a_step(daemon, &mut say).await?;
    let daemon = place.kill_in_the_middle(daemon, &mut say).await?;
    writers::meet(home, world, &mut say).await?;
    let daemon = place.delete_a_file(daemon, &mut say).await?;
    let daemon = place.reset_under_a_reader(daemon, &mut say).await?;
    drop(daemon);
    Ok(place.page)
}

/// An address that nobody listens at.
fn free_address(port: u16) -> Result<String> {
    let taken =
        |e| Error::config(format!("nothing can listen at port {port}; name another by --port, or none")).with_source(e);
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| listener.local_addr());
    Ok(address.map_err(taken)?.to_string())
}

/// What `cutover verify` finds of a table.
pub(super) async fn verify(table: &Path, world: &World) -> Result<Report> {
    let location = Location::open(&table.display().to_string(), Access::Read)?;
    inspect::verify(&Log::new(location, world.clone()), None).await
}

/// A table in one line.
fn line(seen: &reader::Seen) -> String {
    format!("version {}, {} rows", seen.version, grouped(seen.rows))
}

/// What is in a folder, unfinished files too.
fn things(folder: &Path) -> Result<BTreeSet<std::ffi::OsString>> {
    fs::read_dir(folder)
        .and_then(|found| found.map(|entry| Ok(entry?.file_name())).collect())
        .map_err(|e| Error::internal(format!("{} cannot be read", folder.display())).with_source(e))
}

impl<'a> Place<'a> {
    fn table(&self) -> std::path::PathBuf {
        self.home.at("orders")
    }

    fn read(&self) -> Result<reader::Seen> {
        reader::read(&self.table())
    }

    /// Starts the daemon and fills the view.
    async fn begin(&self, say: &Narration) -> Result<Daemon<'a>> {
        let shown = text::escaped(&self.home.path().display().to_string());
        text::print(&format!("cutover demo, in {shown}"))?;
        let mut daemon = Daemon::start(self.home, &self.page, self.world).await?;
        say.say(&format!(
            "Process {} is a daemon: cutover run -c {}. Its page is {}/ and what it says is in {SAID}.",
            daemon.process_id(),
            shell_word(&self.home.at(CONFIG).display().to_string()),
            self.page
        ))?;
        for step in 0..STEPS {
            let pushed = daemon.push(Deed::Insert, step * ROWS_A_STEP, step).await?;
            daemon.delivered(pushed).await?;
        }
        let seen = self.read()?;
        say.hold(
            &format!("the view's {} rows, pushed in {STEPS} steps, are in the Delta table orders", grouped(ROWS)),
            &format!("{}, read from the log and the footers of the files alone", line(&seen)),
            seen.rows == ROWS,
        )?;
        Ok(daemon)
    }

    /// Pushes other values of a step's rows, and waits until the table has them.
    async fn change(&self, daemon: &mut Daemon<'a>, salt: u64) -> Result<reader::Seen> {
        let step = daemon.push(Deed::Update, salt % STEPS * ROWS_A_STEP, salt).await?;
        daemon.delivered(step).await?;
        self.read()
    }

    async fn lose_a_step(&self, mut daemon: Daemon<'a>, say: &mut Narration) -> Result<Daemon<'a>> {
        say.chapter(
            "A step is lost",
            "The connector rests while the view moves on, until the view's log of steps (4 MiB) is full and lets go of \
             steps that the table lacks. Then the connector is to go on.",
        )?;
        daemon.tell("pause").await?;
        let paused = daemon.wait("the connector rests", |status| status.state == "paused").await?;
        let (last, before) = (paused.last_step.unwrap_or_default(), self.read()?);
        let mut pushed = last;
        for salt in 0..MANY_STEPS {
            if daemon.status().await?.place.is_none() {
                break;
            }
            pushed = daemon.push(Deed::Update, salt % STEPS * ROWS_A_STEP, 100 + salt).await?;
        }
        daemon.tell("resume").await?;
        let lost = daemon.wait("the connector stops", |status| status.state == "continuity_lost").await?;
        let earliest = daemon.earliest().await?.unwrap_or_default();
        let reason = lost.trouble.as_ref().map(|trouble| trouble.reason.clone()).unwrap_or_default();
        let after = self.read()?;
        say.hold(
            &format!("it stops, and names both steps: the table has all up to {last}, the log what follows {earliest}"),
            &format!("{}: {reason}", lost.state),
            earliest > last
                && reason.contains(&format!("changes after step {last} are wanted"))
                && reason.contains(&format!("begins after step {earliest}")),
        )?;
        say.hold(&format!("nothing is appended over the gap: {}", line(&before)), &line(&after), after == before)?;
        let repaired = daemon.reset("a step was lost").await?;
        let (seen, report) = (self.read()?, verify(&self.table(), self.world).await?);
        say.hold(
            &format!("a reset repairs it: generation 2 from step {pushed}, {} rows, healthy", grouped(ROWS)),
            &format!(
                "generation {} from step {}, {} rows, {}",
                number(repaired.generation),
                number(repaired.cutover),
                grouped(seen.rows),
                word(&report.verdict)
            ),
            repaired.generation == Some(2)
                && repaired.cutover == Some(pushed)
                && seen.rows == ROWS
                && report.verdict == Verdict::Healthy,
        )?;
        Ok(daemon)
    }

    async fn kill_in_the_middle(&self, mut daemon: Daemon<'a>, say: &mut Narration) -> Result<Daemon<'a>> {
        say.chapter(
            "A process is killed in the middle of a snapshot",
            "A reset is asked for, and SIGKILL ends the daemon once files of its snapshot appear in the table's folder.",
        )?;
        let table = self.table();
        let mut old = self.change(&mut daemon, 201).await?;
        for kill in 1..=KILLS {
            let seen = things(&table)?;
            let generation = daemon.status().await?.generation;
            let id = daemon.ask_reset("to be killed").await?;
            let written = until(self.world, "a file of the snapshot appears", async || {
                let written = things(&table)?.difference(&seen).count();
                Ok((written > 0).then_some(written))
            })
            .await?;
            let process = daemon.process_id();
            daemon.kill()?;
            let killed = self.read()?;
            // The reset's process took its epoch in a version without rows, perhaps.
            let is_old = killed.files == old.files;
            if !is_old && kill < KILLS {
                // Everything was committed before the signal came, which proves nothing.
                daemon = Daemon::start(self.home, &self.page, self.world).await?;
                daemon.reset_ended(&id).await?;
                old = self.change(&mut daemon, 201 + u64::from(kill)).await?;
                continue;
            }
            say.say(&format!(
                "Process {process} is dead; new files in the folder by then: {written}, which no version names."
            ))?;
            say.hold(
                &format!("readers see the old state: {} rows in the same files", grouped(old.rows)),
                &format!("{} in {}", line(&killed), if is_old { "the same files" } else { "other files" }),
                is_old && killed.rows == old.rows,
            )?;
            let mut daemon = Daemon::start(self.home, &self.page, self.world).await?;
            daemon.reset_ended(&id).await?;
            let finished = daemon.wait("the connector follows", |status| status.state == "following").await?;
            let (seen, report) = (self.read()?, verify(&table, self.world).await?);
            say.hold(
                &format!(
                    "a restart finishes the reset: generation {}, {} rows in one version, healthy",
                    number(generation.map(|generation| generation + 1)),
                    grouped(ROWS)
                ),
                &format!(
                    "process {}: generation {}, {}, {}",
                    daemon.process_id(),
                    number(finished.generation),
                    line(&seen),
                    word(&report.verdict)
                ),
                finished.generation == generation.map(|generation| generation + 1)
                    && seen.rows == ROWS
                    && report.verdict == Verdict::Healthy,
            )?;
            return Ok(daemon);
        }
        Err(Error::internal("no kill met a snapshot"))
    }

    async fn delete_a_file(&self, mut daemon: Daemon<'a>, say: &mut Narration) -> Result<Daemon<'a>> {
        let table = self.table();
        let seen = self.change(&mut daemon, 301).await?;
        let file = seen.files.first().cloned().unwrap_or_default();
        say.chapter(
            "A data file is deleted by hand",
            &format!("rm {}", reader::path(Path::new("orders"), &file).display()),
        )?;
        fs::remove_file(reader::path(&table, &file))
            .map_err(|e| Error::internal("a data file cannot be deleted").with_source(e))?;
        let report = verify(&table, self.world).await?;
        let finding = report.findings.iter().find(|finding| finding.file.as_deref() == Some(file.as_str()));
        let observed = finding.map_or_else(
            || "verify does not name it".to_string(),
            |found| format!("{}, version {}: {} {}", word(&report.verdict), found.version, found.rule, found.message),
        );
        let holds = report.verdict == Verdict::Broken && finding.is_some() && report.repairs.contains(&Repair::Reset);
        say.hold(
            "verify says that the table is broken, names the file, and a reset as what repairs it",
            &observed,
            holds,
        )?;
        daemon.reset("a data file is gone").await?;
        let (seen, report) = (self.read()?, verify(&table, self.world).await?);
        say.hold(
            &format!("the reset repairs it: {} rows, healthy", grouped(ROWS)),
            &format!("{}, {}", line(&seen), word(&report.verdict)),
            seen.rows == ROWS && report.verdict == Verdict::Healthy,
        )?;
        Ok(daemon)
    }

    async fn reset_under_a_reader(&self, mut daemon: Daemon<'a>, say: &mut Narration) -> Result<Daemon<'a>> {
        say.chapter(
            "A reset under a reader",
            "A thread reads the table's newest version again and again, as fast as it can, while all rows are replaced.",
        )?;
        let old = self.change(&mut daemon, 401).await?.rows;
        let poller = Poller::start(&self.table());
        self.reads_more(&poller, 1).await?;
        daemon.reset("with a reader beside it").await?;
        // The read that was under way may have begun before the commit.
        self.reads_more(&poller, 2).await?;
        let reads = poller.reads();
        let seen = poller.end()?;
        let shown: Vec<String> = seen.iter().map(|rows| grouped(*rows)).collect();
        say.hold(
            &format!("its count of rows is {}, then {}, and nothing else", grouped(old), grouped(ROWS)),
            &format!("{}, in {} reads", shown.join(", then "), grouped(reads)),
            old != ROWS && seen == [old, ROWS],
        )?;
        Ok(daemon)
    }

    /// Waits until the reader has read the table so often again, or gave up.
    async fn reads_more(&self, poller: &Poller, times: u64) -> Result<()> {
        let wanted = poller.reads() + times;
        until(self.world, "the reader reads", async || {
            Ok((poller.reads() >= wanted || poller.has_ended()).then_some(()))
        })
        .await
    }
}

fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "none".to_string(), |number| number.to_string())
}
