//! `cutover reset`: reloads of tables, one after another, each after a look and a confirmation; by the daemon where one runs.

mod remote;

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;

use crate::cli::args::Output;
use crate::cli::consent::{Question, who};
use crate::cli::failure;
use crate::cli::progress::{Board, TICK};
use crate::cli::reach::Reach;
use crate::cli::resets::RemoteReset;
use crate::cli::run::close;
use crate::cli::signals::Signals;
use crate::cli::{Print, Session, text};
use crate::clock::World;
use crate::config::{Config, ConnectorConfig};
use crate::connector::{Connector, LogRepair, PreparedReset, Reset, ResetPreview, Status};
use crate::continuity::plan::Older;
use crate::continuity::stamp::ResetStamp;
use crate::daemon::{self, Alone, Daemon};
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;
use crate::sink::{Applied, RebuildPlan};
use crate::step::Step;

/// Arguments of `reset`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A reset replaces all rows of a table by the newest state that its source reaches and starts a generation, in one
version. Where a daemon holds the configuration's data directory, or --url is given, the daemon does it: the command asks
and ends, or waits for the end by --wait. Otherwise the command does it itself, and another process that delivers to the
table is fenced and stops. On a terminal the connector's name is asked for; elsewhere --yes is needed. A damaged
checkpoint or _last_checkpoint is passed over and replaced; a log that does not load at all needs --rebuild-log. Nothing is
deleted.")]
pub(super) struct ResetArgs {
    /// Connectors: full names, or ends of them that are unambiguous
    #[arg(required = true, value_name = "CONNECTOR")]
    connectors: Vec<String>,
    /// Why, for the table's history
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Refuse unless the table has this generation
    #[arg(long, value_name = "N", value_parser = parse_generation)]
    expected_generation: Option<Generation>,
    /// Say what would happen, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Let readers go back in time, where the source ends before the table
    #[arg(long)]
    allow_older: bool,
    /// For a log that does not load: put the whole state, with a checkpoint of its own, above all that is left of it
    #[arg(long)]
    rebuild_log: bool,
    /// Wait until the daemon has done it; without a daemon the command waits in any case
    #[arg(long)]
    wait: bool,
    /// Let the daemon do it although too many resets have opened the breaker
    #[arg(long)]
    override_breaker: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Replace a value of the configuration, as often as needed: --set pipelines.p.source.files.path=/data
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ResetArgs {
    /// The formats in which results are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];

    fn request(&self, world: &World) -> Reset {
        let stamp = ResetStamp { id: world.ids.draw(), who: who(), why: self.reason.clone() };
        let older = if self.allow_older { Older::Allowed } else { Older::Refused };
        Reset { stamp, expected_generation: self.expected_generation, older }
    }
}

fn parse_generation(text: &str) -> Result<Generation, String> {
    let number = text.parse().map_err(|_| "a generation is a number".to_string())?;
    Generation::new(number).map_err(|e| e.message().to_string())
}

/// Who does the resets.
enum By {
    /// This command.
    Us(Config),
    /// The daemon that --url names.
    Named(Reach),
    /// Whoever holds this data directory.
    Holder(Reach, PathBuf),
}

impl By {
    fn of(args: &ResetArgs, session: &Session) -> Result<Self> {
        if session.global.url.is_some() {
            return Ok(Self::Named(Reach::of(session)?));
        }
        let config = daemon::load(&session.global.config, &args.set)?;
        if !Daemon::is_running(&config.server.data_dir)? {
            return Ok(Self::Us(config));
        }
        Ok(Self::Holder(Reach::listening(config.server.listen, session)?, config.server.data_dir))
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: ResetArgs, session: &Session) -> Result<u8> {
    match By::of(&args, session)? {
        By::Us(config) => by_us(&config, &args, session),
        By::Named(reach) => remote::run(&args, &reach, session),
        By::Holder(reach, data_dir) => remote::run(&args, &reach, session).map_err(|error| {
            let held = format!("a cutover holds {}: wait for its end, or until it listens", data_dir.display());
            if error.kind() == ErrorKind::Unavailable { error.with_remedy(&held) } else { error }
        }),
    }
}

fn by_us(config: &Config, args: &ResetArgs, session: &Session) -> Result<u8> {
    let mut chosen: Vec<&ConnectorConfig> = Vec::new();
    for name in &args.connectors {
        let connector = config.find(name)?;
        if !chosen.contains(&connector) {
            chosen.push(connector);
        }
    }
    if args.override_breaker {
        session.talk.line("no daemon runs: no breaker counts these resets, so there is none to override");
    }
    session.block_on(async |world| {
        let views = Alone::open(config, &world).await?;
        let mut desk = Desk { args, session, signals: Signals::listen()?, views, world };
        let mut tally = Tally::new(session);
        let mut print: Print<'_> = Box::new(text::print);
        for connector in chosen {
            let done = desk.reset(connector).await;
            tally.add(connector.name.to_string(), done, &mut print)?;
        }
        close(desk.views, session).await;
        tally.finish(&mut print)
    })
}

/// What became of the resets of one command.
struct Tally<'a> {
    session: &'a Session,
    done: Vec<(String, Result<Done>)>,
}

impl<'a> Tally<'a> {
    fn new(session: &'a Session) -> Self {
        Self { session, done: Vec::new() }
    }

    /// Says what became of one.
    fn add(&mut self, name: String, done: Result<Done>, print: &mut Print<'_>) -> Result<()> {
        match &done {
            Ok(done) if self.session.global.output == Output::Text => print(&text::escaped(&done.line(&name)))?,
            Ok(_) => {}
            Err(error) => self.session.talk.failure(Some(&name), error),
        }
        self.done.push((name, done));
        Ok(())
    }

    /// Prints the document, if one is wanted; the exit code is that of the first failure.
    fn finish(self, print: &mut Print<'_>) -> Result<u8> {
        if self.session.global.output == Output::Json {
            let resets = self.done.iter().map(|(name, result)| report(name, result)).collect();
            print(&text::json(&Report { schema: "cutover.reset/1", resets })?)?;
        }
        let first = self.done.iter().find_map(|(_, result)| result.as_ref().err());
        Ok(first.map_or(0, failure::exit_code))
    }
}

/// Carries out resets for one command.
struct Desk<'a> {
    args: &'a ResetArgs,
    session: &'a Session,
    signals: Signals,
    views: Alone,
    world: World,
}

/// What became of a reset.
#[derive(Debug, Clone, PartialEq)]
enum Done {
    /// Nothing was written.
    DryRun(ResetPreview),
    /// The table is reloaded.
    Reloaded {
        /// The reset's id.
        id: String,
        /// What became of a damaged log.
        repair: LogRepair,
        /// The table's generation.
        generation: Option<Generation>,
        /// The step that it starts from.
        cutover: Option<Step>,
        /// What was committed.
        applied: Applied,
    },
    /// A daemon says what it would do.
    Planned(remote::Plan),
    /// A daemon has written it down.
    Accepted(remote::Accepted),
    /// A daemon has done it.
    Committed(RemoteReset),
}

impl Desk<'_> {
    async fn reset(&mut self, config: &ConnectorConfig) -> Result<Done> {
        let mut connector = self.views.connector(config).await?;
        let request = self.args.request(&self.world);
        let id = request.stamp.id.clone();
        if !self.args.dry_run {
            connector.renew().await?;
        }
        let prepared = match self.args.rebuild_log {
            true => connector.prepare_rebuild(request).await?,
            false => connector.prepare_reset(request).await?,
        };
        if self.args.dry_run {
            return Ok(Done::DryRun(prepared.preview().clone()));
        }
        if !self.args.yes {
            self.confirm(config, prepared.preview()).await?;
        }
        let status = connector.status();
        let repair = prepared.preview().repair.clone();
        if let LogRepair::Rebuild(RebuildPlan::Load { keeps_id: false, .. }) = repair {
            let name = connector.name();
            self.session
                .talk
                .line(&format!("{name}: nothing that is left of the log tells the table's id; it gets another"));
        }
        let applied = self.carry_out(&mut connector, prepared).await?;
        let Status { generation, cutover, .. } = *status.borrow();
        Ok(Done::Reloaded { id, repair, generation, cutover, applied })
    }

    /// Reloads while progress is shown, unless a signal comes first.
    async fn carry_out(&mut self, connector: &mut Connector, prepared: PreparedReset) -> Result<Applied> {
        let name = connector.name().to_string();
        let mut board = Board::new(&self.session.talk);
        board.add(&name, connector.status());
        let mut reload = std::pin::pin!(connector.reset(prepared));
        let applied = loop {
            tokio::select! {
                applied = &mut reload => break applied,
                () = self.world.clock.sleep(TICK) => board.tick(self.world.clock.boot()),
                () = self.signals.stop() => break Err(stopped()),
            }
        };
        board.remove(&name);
        applied
    }

    async fn confirm(&mut self, config: &ConnectorConfig, preview: &ResetPreview) -> Result<()> {
        let name = config.name.to_string();
        let question = Question {
            plan: plan_line(&name, preview),
            deed: "a reset replaces every row",
            answers: &[&name, config.name.connector()],
            last_millis: preview.ours.as_ref().and_then(|ours| ours.last_millis),
        };
        question.ask(self.session, &mut self.signals, &self.world).await
    }
}

/// A reset that a signal ended is not known to be done, so it does not end as if it were.
fn stopped() -> Error {
    Error::internal("stopped by a signal before the reset was complete: the table is as it was, or loaded whole")
}

/// What a reset would do, in one line.
pub(super) fn plan_line(name: &str, preview: &ResetPreview) -> String {
    let ResetPreview { ours, repair, generation, cutover } = preview;
    let repaired = match repair {
        LogRepair::Unneeded => String::new(),
        LogRepair::Past(why) => format!("; it goes past damage of the log ({why})"),
        LogRepair::Rebuild(RebuildPlan::Load { keeps_id, removes, .. }) => {
            let id = if *keeps_id { "keeps its id" } else { "gets another id, since nothing tells it" };
            format!("; the log is rebuilt: all {removes} files that it ever named are removed, and the table {id}")
        }
        LogRepair::Rebuild(RebuildPlan::Finish { version }) => {
            return format!(
                "{name}: the log was rebuilt by version {version}, generation {generation}, cutover step {cutover}; its checkpoint is written"
            );
        }
    };
    match ours {
        Some(ours) => format!(
            "{name}: generation {}, last step {}, is replaced by generation {generation}, cutover step {cutover}{repaired}",
            ours.generation, ours.last_step
        ),
        None => {
            format!("{name}: no table of ours yet; generation {generation} begins, cutover step {cutover}{repaired}")
        }
    }
}

impl Done {
    fn line(&self, name: &str) -> String {
        match self {
            Self::DryRun(preview) => format!("{}; nothing is written", plan_line(name, preview)),
            Self::Reloaded { repair, generation, cutover, applied, .. } => {
                let (generation, cutover) = (or_none(*generation), or_none(*cutover));
                let repaired = match repair {
                    LogRepair::Unneeded => "",
                    LogRepair::Past(_) => "; readers get past the damage by its checkpoint",
                    LogRepair::Rebuild(_) => "; the log is rebuilt",
                };
                let done = match applied {
                    Applied::Committed { version, rows, .. } => format!("version {version}, rows {rows}"),
                    Applied::Already => "committed before".to_string(),
                };
                format!("{name}: generation {generation}, cutover step {cutover}, {done}{repaired}")
            }
            Self::Planned(plan) => format!("{}; nothing is written", plan.line(name)),
            Self::Accepted(accepted) => accepted.line(name),
            Self::Committed(reset) => {
                let (generation, cutover) = (or_none(reset.generation), or_none(reset.step));
                let version = reset.version.map_or("committed".to_string(), |version| format!("version {version}"));
                format!("{name}: generation {generation}, cutover step {cutover}, {version}")
            }
        }
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or("none".to_string(), |v| v.to_string())
}

fn report<'a>(name: &'a str, result: &'a Result<Done>) -> ResetReport<'a> {
    let empty = ResetReport { name, ..ResetReport::default() };
    match result {
        Err(error) => ResetReport { outcome: "failed", error: Some(failure::to_json(error)), ..empty },
        Ok(Done::DryRun(ResetPreview { repair, generation, cutover, .. })) => ResetReport {
            outcome: "dry_run",
            log: word(repair),
            generation: Some(generation.get()),
            cutover: Some(cutover.get()),
            ..empty
        },
        Ok(Done::Reloaded { id, repair, generation, cutover, applied }) => {
            let (outcome, version, rows) = match applied {
                Applied::Committed { version, rows, .. } => ("committed", Some(*version), Some(*rows)),
                Applied::Already => ("already_committed", None, None),
            };
            let (generation, cutover) = (generation.map(Generation::get), cutover.map(Step::get));
            ResetReport { id: Some(id), outcome, log: word(repair), generation, cutover, version, rows, ..empty }
        }
        Ok(Done::Planned(plan)) => ResetReport {
            outcome: "dry_run",
            log: plan.repair(),
            generation: Some(plan.generation),
            cutover: Some(plan.cutover),
            ..empty
        },
        Ok(Done::Accepted(accepted)) => ResetReport { id: Some(&accepted.id), outcome: "accepted", ..empty },
        Ok(Done::Committed(reset)) => ResetReport {
            id: Some(&reset.id),
            outcome: "committed",
            generation: reset.generation,
            cutover: reset.step,
            version: reset.version,
            ..empty
        },
    }
}

/// What becomes of a damaged log; `None` where none is damaged.
fn word(repair: &LogRepair) -> Option<&'static str> {
    match repair {
        LogRepair::Unneeded => None,
        LogRepair::Past(_) => Some("passed"),
        LogRepair::Rebuild(RebuildPlan::Load { .. }) => Some("rebuilt"),
        LogRepair::Rebuild(RebuildPlan::Finish { .. }) => Some("finished"),
    }
}

/// What `reset -o json` prints.
#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    resets: Vec<ResetReport<'a>>,
}

/// What became of one reset; after a dry run, what would.
#[derive(Default, Serialize)]
struct ResetReport<'a> {
    name: &'a str,
    id: Option<&'a str>,
    outcome: &'static str,
    /// What became of a damaged log: `passed`, `rebuilt`, or `finished`; null where none was.
    log: Option<&'a str>,
    generation: Option<u64>,
    cutover: Option<u64>,
    version: Option<u64>,
    rows: Option<u64>,
    error: Option<Value>,
}
