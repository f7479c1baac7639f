//! `cutover run`: every connector of the configuration, each in a task of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use super::Session;
use super::args::Output;
use super::failure::{self, End};
use super::progress::{Board, TICK};
use super::serve::serve;
use super::show::parse_step;
use super::signals::Signals;
use super::talk::Talk;
use super::text;
use crate::clock::World;
use crate::config::{Config, ConnectorConfig};
use crate::connector::{Connector, Ended, Phase, Status, Until};
use crate::daemon::{self, Alone};
use crate::error::{Error, ErrorKind, Result, panic_text};
use crate::source::Hole;
use crate::step::Step;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Connectors run side by side until SIGINT or SIGTERM, which may come at any time: the next run goes on where each table
ends. A connector that fails leaves the others running. Meanwhile the program answers on server.listen: status, pauses,
resets; SIGHUP loads the configuration anew. It ends by itself when other processes took over everything that it delivers,
or when all is complete.

With --once or --until-step it answers nobody and ends when that is delivered. The exit code is then that of the most
serious end; changes that are missing in the source make it 75.")]
pub(super) struct RunArgs {
    /// End when everything that the sources hold at the start is delivered
    #[arg(long)]
    once: bool,
    /// End when everything up to this step is delivered, and deliver nothing beyond it
    #[arg(long, value_name = "N", value_parser = parse_step)]
    until_step: Option<Step>,
    /// Replace a value of the configuration, as often as needed: --set pipelines.p.source.files.path=/data
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl RunArgs {
    /// The formats in which results are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];

    fn until(&self) -> Until {
        match (self.once, self.until_step) {
            (false, None) => Until::Stopped,
            (true, None) => Until::Drained,
            (false, Some(step)) => Until::Step(step),
            (true, Some(step)) => Until::DrainedOrStep(step),
        }
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: RunArgs, session: &Session) -> Result<u8> {
    let config = daemon::load(&session.global.config, &args.set)?;
    session.block_on(async |world| {
        let mut signals = Signals::listen()?;
        let members = if args.until() == Until::Stopped {
            let (path, sets) = (session.global.config.clone(), args.set.clone());
            serve(config, Arc::new(move || daemon::load(&path, &sets)), session, &mut signals, &world).await?
        } else {
            let views = Alone::open(&config, &world).await?;
            let mut fleet = Fleet::build(&config, &views, &args, session, &world).await;
            if !fleet.is_refused() {
                fleet.run(&mut signals).await;
            }
            let members = fleet.end();
            close(views, session).await;
            members
        };
        if session.global.output == Output::Json {
            let connectors = members.iter().map(Member::report).collect();
            text::print_json(&Report { schema: "cutover.run/1", connectors })?;
        }
        Ok(members.iter().fold(End::Good, |end, member| end.and(member.end())).exit_code())
    })
}

/// All connectors of a configuration.
struct Fleet<'a> {
    args: &'a RunArgs,
    session: &'a Session,
    world: World,
    members: Vec<Member>,
    /// Those that were built and do not run yet, by their place among the members.
    ready: Vec<(usize, Connector)>,
}

/// What is known of one connector while it runs and afterwards.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) status: watch::Receiver<Status>,
    /// How it ended by itself; `None` while it runs, and when a signal stopped it.
    pub(super) outcome: Option<Result<Ended>>,
}

impl<'a> Fleet<'a> {
    async fn build(config: &Config, views: &Alone, args: &'a RunArgs, session: &'a Session, world: &World) -> Self {
        let mut fleet = Self { args, session, world: world.clone(), members: Vec::new(), ready: Vec::new() };
        for connector in &config.connectors {
            let built = views.connector(connector).await;
            fleet.add(connector, built);
        }
        fleet
    }

    fn add(&mut self, config: &ConnectorConfig, built: Result<Connector>) {
        let name = config.name.to_string();
        match built {
            Ok(connector) => {
                self.members.push(Member { name, status: connector.status(), outcome: None });
                self.ready.push((self.members.len() - 1, connector));
            }
            Err(error) => {
                let (_, status) = watch::channel(Status::default());
                self.members.push(Member { name, status, outcome: None });
                self.ended(self.members.len() - 1, Err(error));
            }
        }
    }

    /// What is known of the connectors; those that did not run are gone.
    fn end(self) -> Vec<Member> {
        self.members
    }

    /// Whether the configuration of a connector is wrong: then none is started.
    fn is_refused(&self) -> bool {
        self.members.iter().any(|m| matches!(&m.outcome, Some(Err(e)) if e.kind() == ErrorKind::Config))
    }

    /// Runs every connector that was built until all have ended, or until a signal.
    async fn run(&mut self, signals: &mut Signals) {
        let until = self.args.until();
        let mut board = Board::new(&self.session.talk);
        let mut tasks = JoinSet::new();
        let mut places: HashMap<Id, usize> = HashMap::new();
        for (place, mut connector) in self.ready.drain(..) {
            board.add(connector.name(), connector.status());
            let task = tasks.spawn(async move { connector.run(until).await });
            places.insert(task.id(), place);
        }
        loop {
            tokio::select! {
                joined = tasks.join_next_with_id() => {
                    let Some(joined) = joined else { return };
                    let (task, outcome) = match joined {
                        Ok((task, outcome)) => (task, outcome),
                        Err(error) => (error.id(), Err(broken(error))),
                    };
                    let Some(place) = places.get(&task).copied() else { continue };
                    if let Some(member) = self.members.get(place) {
                        board.remove(&member.name);
                    }
                    self.ended(place, outcome);
                }
                () = self.world.clock.sleep(TICK) => board.tick(self.world.clock.boot()),
                () = signals.stop() => break,
            }
        }
        for member in &self.members {
            board.remove(&member.name);
        }
        // A second signal does not wait for tasks that are in the middle of something.
        tokio::select! {
            () = tasks.shutdown() => {}
            () = signals.stop() => {}
        }
        for member in self.members.iter().filter(|m| m.outcome.is_none()) {
            self.session.talk.line(&format!("stopped {}", member.summary()));
        }
    }

    fn ended(&mut self, place: usize, outcome: Result<Ended>) {
        let Some(member) = self.members.get_mut(place) else { return };
        let talk = &self.session.talk;
        match &outcome {
            Ok(ended) => {
                talk.line(&member.summary());
                ended.hole.iter().for_each(|hole| say_hole(talk, &member.name, hole));
            }
            Err(error) => {
                talk.failure(Some(&member.name), error);
                if error.kind() == ErrorKind::ContinuityLost {
                    let config = text::shell_word(&self.session.global.config.display().to_string());
                    // The values themselves may be secrets.
                    let sets = if self.args.set.is_empty() { "" } else { " (add the same --set options)" };
                    talk.say(&format!(
                        "  to load the table anew{sets}: cutover reset -c {config} {} --yes",
                        member.name
                    ));
                }
            }
        }
        member.outcome = Some(outcome);
    }
}

/// Lets sources know what is safe. What was delivered is, whatever becomes of that.
pub(super) async fn close(views: Alone, session: &Session) {
    if let Err(error) = views.close().await {
        session.talk.failure(None, &error);
    }
}

fn say_hole(talk: &Talk, name: &str, hole: &Hole) {
    talk.say(&format!("{name}: waits for the changes after step {}; next is {}", hole.after, hole.before));
}

/// A task that panicked: its connector failed, the others go on.
fn broken(error: JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => Error::internal(format!("a defect of this program: {}", panic_text(panic.as_ref()))),
        Err(error) => Error::internal("the connector's task ended early").with_source(error),
    }
}

impl Member {
    fn end(&self) -> End {
        match &self.outcome {
            Some(Err(error)) => End::Failed(error.kind()),
            Some(Ok(Ended { hole: Some(_), .. })) => End::Hole,
            Some(Ok(_)) | None => End::Good,
        }
    }

    /// Where the connector stands, in one line.
    pub(super) fn summary(&self) -> String {
        let status = self.status.borrow();
        if let Some(sent) = &status.sent {
            let generation = status.generation.map_or("no generation yet".to_string(), |g| format!("generation {g}"));
            let has = status
                .last_step
                .map_or("the client has said nothing".to_string(), |step| format!("the client has step {step}"));
            return format!("{}: {generation}, {has}, {} rows sent", self.name, sent.rows.load(Ordering::Relaxed));
        }
        let (Some(generation), Some(last)) = (status.generation, status.last_step) else {
            return format!("{}: no table yet", self.name);
        };
        let cutover = status.cutover.map(|step| format!(", cutover step {step}")).unwrap_or_default();
        let loaded = rows_loaded(&status).map(|rows| format!(", {rows} rows loaded")).unwrap_or_default();
        let appended = status.appended();
        format!(
            "{}: generation {generation}{cutover}, last step {last}{loaded}, {} appends, {} rows appended",
            self.name,
            appended.commits,
            appended.rows.total()
        )
    }

    fn report(&self) -> ConnectorReport<'_> {
        let status = self.status.borrow();
        let ended = self.outcome.as_ref().and_then(|o| o.as_ref().ok());
        let error = self.outcome.as_ref().and_then(|o| o.as_ref().err());
        ConnectorReport {
            name: &self.name,
            generation: status.generation.map(|g| g.get()),
            cutover: status.cutover.map(Step::get),
            last_step: status.last_step.map(Step::get),
            rows_loaded: rows_loaded(&status),
            appends: status.appended().commits,
            rows: status.appended().rows.total(),
            hole: ended.and_then(|e| e.hole.as_ref()).map(|h| HoleReport { after: h.after.get(), before: &h.before }),
            error: error.map(failure::to_json),
        }
    }
}

/// The rows of the snapshot that this run made the table's; a snapshot that is being written is not counted.
fn rows_loaded(status: &Status) -> Option<u64> {
    let is_loaded = status.generation.is_some() && status.phase != Phase::Snapshotting;
    status.snapshot.as_ref().filter(|_| is_loaded).map(|progress| progress.rows())
}

/// What `run -o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    connectors: Vec<ConnectorReport<'a>>,
}

/// How one connector ended.
#[derive(Serialize)]
struct ConnectorReport<'a> {
    name: &'a str,
    generation: Option<u64>,
    cutover: Option<u64>,
    last_step: Option<u64>,
    /// Rows of the snapshot that this run loaded; null when it loaded none.
    rows_loaded: Option<u64>,
    appends: u64,
    /// Rows that this run appended.
    rows: u64,
    hole: Option<HoleReport<'a>>,
    error: Option<Value>,
}

/// Changes that are missing in the source.
#[derive(Serialize)]
struct HoleReport<'a> {
    after: u64,
    before: &'a str,
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
