//! `cutover push`: changes into a view of a daemon, each step once whatever happens on the way.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::args::Output;
use super::client::{Client, Failure, LONG_DEADLINE, Problem};
use super::push_input::{Batch, Input};
use super::reach::Reach;
use super::show::parse_step;
use super::{Print, Session, failure, names, text};
use crate::clock::World;
use crate::daemon::ViewReport;
use crate::error::{Error, Result};
use crate::step::Step;

/// For how long a step is tried again that the daemon cannot take.
const PATIENCE: Duration = Duration::from_secs(300);
/// The first pause where the daemon names none; they double.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often others may take the number of a step that was given none.
const MOST_RACES: u32 = 100;
const CONFLICT: u16 = 409;

/// Arguments of `push`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All of the input is one step, which the daemon takes whole or not at all. With --batch-rows it is a step for so many
lines. A step that the daemon cannot take for now, or whose answer is lost, is sent again for five minutes with the same
number, so it is there once. Give the numbers yourself by --step to make the whole command repeatable.")]
pub(super) struct PushArgs {
    /// The view, pipeline/view, or an end of it that is unambiguous
    view: String,
    /// The changes; - is stdin
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// What the input is
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    format: Format,
    /// What a line of NDJSON is
    #[arg(long, value_enum, default_value_t = UpdateFormat::InsertDelete)]
    update_format: UpdateFormat,
    /// The number of the step, of the first one with --batch-rows; absent: the one behind the last
    #[arg(long, value_name = "N", value_parser = parse_step)]
    step: Option<Step>,
    /// The number of the step before it; absent: the one before --step
    #[arg(long, value_name = "M", value_parser = parse_step, requires = "step")]
    after: Option<Step>,
    /// Make every so many lines a step
    #[arg(long, value_name = "N")]
    batch_rows: Option<NonZeroU64>,
}

impl PushArgs {
    /// The formats in which answers are printed.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json, Output::Ndjson];

    /// What the command line says that does not fit together.
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        let is_arrow = self.format == Format::Arrow;
        if is_arrow && self.batch_rows.is_some() {
            return Some("--batch-rows counts lines, which Arrow has none of; push it as one step");
        }
        let is_told = is_arrow && self.update_format != UpdateFormat::InsertDelete;
        is_told.then_some("--update-format tells of lines; Arrow has the column __op instead")
    }
}

/// What is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A JSON object a line.
    Ndjson,
    /// An Arrow IPC stream.
    Arrow,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum UpdateFormat {
    /// {"insert": {…}}, {"delete": {…}}, {"update": {…}}
    InsertDelete,
    /// The row, which is inserted.
    Raw,
    /// Debezium's change events.
    Debezium,
}

impl UpdateFormat {
    fn word(self) -> &'static str {
        match self {
            Self::InsertDelete => "insert_delete",
            Self::Raw => "raw",
            Self::Debezium => "debezium",
        }
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: &PushArgs, session: &Session) -> Result<u8> {
    let reach = Reach::of(session)?;
    session.block_on(async |world| {
        let mut print: Print<'_> = Box::new(text::print);
        push(args, session, &Client::new(&reach)?, &world, &mut print).await
    })
}

/// What the daemon answers to a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pushed {
    token: String,
    step: u64,
    #[serde(default)]
    already_applied: bool,
}

/// What `push -o json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    view: &'a str,
    steps: &'a [Pushed],
    error: Option<Value>,
}

async fn push(args: &PushArgs, session: &Session, client: &Client, world: &World, print: &mut Print<'_>) -> Result<u8> {
    let input = Input::open(&args.file, args.batch_rows)?;
    let pipelines = client.pipelines().await?;
    let (name, view) = names::view(&pipelines, &args.view)?;
    let numbers = match args.step {
        Some(step) => Numbers::Given { step, after: args.after },
        None => Numbers::behind(last_step(&name, view)?)?,
    };
    let output = session.global.output;
    let mut pusher = Pusher { args, session, client, world, name: &name, numbers, done: Vec::new(), lines: 0 };
    let pushed = pusher.all(input, output, print).await;
    if output == Output::Json {
        let error = pushed.as_ref().err().map(failure::to_json);
        print(&text::json(&Document { schema: "cutover.push/1", view: &name, steps: &pusher.done, error })?)?;
    }
    pushed.map(|()| 0)
}

/// The last step of a view that can be pushed to.
fn last_step(name: &str, view: &ViewReport) -> Result<u64> {
    if let Some(why) = &view.trouble {
        return Err(Error::unavailable(format!("the view {name} is not open: {why}")));
    }
    if view.source != "push" {
        let source = &view.source;
        return Err(Error::refused(format!("the view {name} comes from {source}; land its changes there")));
    }
    let log = view.step_log.as_ref();
    log.map(|log| log.last).ok_or_else(|| Error::unavailable(format!("the view {name} is being opened; try again")))
}

/// Which number the next step gets.
#[derive(Debug, Clone, Copy)]
enum Numbers {
    /// What the command line says, and what follows it.
    Given { step: Step, after: Option<Step> },
    /// The one behind the last of the view: another one when somebody was faster.
    Free { step: Step, after: Step },
}

impl Numbers {
    fn behind(last: u64) -> Result<Self> {
        let after = Step::new(last)?;
        Ok(Self::Free { step: next(after)?, after })
    }

    fn step(self) -> (Step, Option<Step>) {
        match self {
            Self::Given { step, after } => (step, after),
            Self::Free { step, after } => (step, Some(after)),
        }
    }

    /// The number behind that of this step.
    fn following(self) -> Result<Self> {
        let step = self.step().0;
        let following = next(step)?;
        Ok(match self {
            Self::Given { .. } => Self::Given { step: following, after: Some(step) },
            Self::Free { .. } => Self::Free { step: following, after: step },
        })
    }
}

fn next(step: Step) -> Result<Step> {
    step.get().checked_add(1).map_or_else(|| Err(Error::refused("there is no later step")), Step::new)
}

/// Pushes one batch after another.
struct Pusher<'a> {
    args: &'a PushArgs,
    session: &'a Session,
    client: &'a Client,
    world: &'a World,
    name: &'a str,
    numbers: Numbers,
    done: Vec<Pushed>,
    /// How many lines of the input are in the steps that are done.
    lines: u64,
}

/// How a step is tried.
#[derive(Default)]
struct Tries {
    begun: Duration,
    pause: Duration,
    races: u32,
    /// Whether the daemon may have taken it without saying so.
    is_in_doubt: bool,
    said: Option<String>,
}

impl Pusher<'_> {
    async fn all(&mut self, mut input: Input, output: Output, print: &mut Print<'_>) -> Result<()> {
        loop {
            let batch;
            (input, batch) = input.next().await?;
            let Some(batch) = batch else { break };
            if !self.done.is_empty() {
                self.numbers = self.numbers.following()?;
            }
            let pushed = self.step(&batch).await?;
            match output {
                Output::Text => print(&text::escaped(&self.line(&pushed)))?,
                Output::Ndjson => print(&text::json(&pushed)?)?,
                Output::Json | Output::Env => {}
            }
            self.lines = batch.last_line;
            self.done.push(pushed);
        }
        if self.done.is_empty() {
            self.session.talk.line(&format!("{}: the input has no lines, so no step is pushed", self.name));
        }
        Ok(())
    }

    fn line(&self, pushed: &Pushed) -> String {
        let again = if pushed.already_applied { ", applied before" } else { "" };
        format!("{}: step {}, token {}{again}", self.name, pushed.step, pushed.token)
    }

    /// Pushes one step until it is there, or cannot be.
    async fn step(&mut self, batch: &Batch) -> Result<Pushed> {
        let mut tries = Tries { begun: self.world.clock.boot(), pause: FIRST_PAUSE, ..Tries::default() };
        loop {
            match self.send(batch).await {
                // Somebody else pushed the same under this number, which ours has yet to get.
                Ok(pushed) if pushed.already_applied && self.is_free() && !tries.is_in_doubt => {
                    self.renumber(&mut tries).await?;
                }
                Ok(pushed) => return Ok(pushed),
                Err(Failure::Lost(error)) => {
                    tries.is_in_doubt = true;
                    self.pause(&mut tries, None, error).await?;
                }
                Err(Failure::Refused(problem)) if is_passing(problem.status) => {
                    // What stands between may say so of a step that the daemon has.
                    tries.is_in_doubt = true;
                    self.pause(&mut tries, problem.retry_after, Failure::Refused(problem).into_error()).await?;
                }
                // The number holds other content, so ours is not there.
                Err(Failure::Refused(problem)) if problem.status == CONFLICT && self.is_free() => {
                    tries.is_in_doubt = false;
                    self.renumber(&mut tries).await?;
                }
                Err(Failure::Refused(problem)) => return Err(self.refused(problem, batch)),
            }
        }
    }

    async fn send(&self, batch: &Batch) -> Result<Pushed, Failure> {
        let (step, after) = self.numbers.step();
        let (pipeline, view) = self.name.split_once('/').unwrap_or_default();
        let path = ["pipelines", pipeline, "ingress", view];
        let (format, content_type) = match self.args.format {
            Format::Ndjson => ("ndjson", "application/x-ndjson"),
            Format::Arrow => ("arrow", "application/vnd.apache.arrow.stream"),
        };
        let mut call = self.client.call(Method::POST, &path).query("format", format);
        if self.args.format == Format::Ndjson {
            call = call.query("update_format", self.args.update_format.word());
        }
        call = call.query("step", &step.to_string());
        if let Some(after) = after {
            call = call.query("after", &after.to_string());
        }
        call.body(content_type, batch.bytes.clone()).deadline(LONG_DEADLINE).attempt().await
    }

    fn is_free(&self) -> bool {
        matches!(self.numbers, Numbers::Free { .. })
    }

    /// Takes the number behind the last one that there is.
    async fn renumber(&mut self, tries: &mut Tries) -> Result<()> {
        tries.races += 1;
        if tries.races > MOST_RACES {
            let tried = format!("{}: others were faster {MOST_RACES} times to push the next step", self.name);
            return Err(Error::unavailable(format!("{tried}; {}", self.before())));
        }
        let pipelines = self.client.pipelines().await?;
        let (name, view) = names::view(&pipelines, self.name)?;
        self.numbers = Numbers::behind(last_step(&name, view)?)?;
        Ok(())
    }

    /// Waits before the next try, unless it was tried for long enough.
    async fn pause(&self, tries: &mut Tries, asked: Option<Duration>, error: Error) -> Result<()> {
        let (step, after) = self.numbers.step();
        let pause = asked.unwrap_or(tries.pause).max(FIRST_PAUSE);
        let tried = self.world.clock.boot().saturating_sub(tries.begun);
        if tried.saturating_add(pause) > PATIENCE {
            let after = after.map(|after| format!(" --after {after}")).unwrap_or_default();
            let doubt = "whether it is there is not known: push the same again with";
            let remedy = format!("{doubt} --step {step}{after}; {}", self.before());
            return Err(error.with_remedy(&remedy));
        }
        if tries.said.as_deref() != Some(error.message()) {
            self.session.talk.line(&format!("step {step} is sent again: {}", error.message()));
            tries.said = Some(error.message().to_string());
        }
        tries.pause = (tries.pause * 2).min(LONGEST_PAUSE);
        self.world.clock.sleep(pause).await;
        Ok(())
    }

    /// Why a step is refused, where in the input, and what is there of the input.
    fn refused(&self, problem: Problem, batch: &Batch) -> Error {
        let Problem { kind, message, .. } = problem;
        let Some(_) = self.args.batch_rows else { return Error::new(kind, message) };
        let step = self.numbers.step().0;
        let place = match line_of(&message) {
            Some((line, rest)) => format!("line {} of the input: {rest}", batch.first_line.saturating_add(line - 1)),
            None => format!("lines {} to {} of the input: {message}", batch.first_line, batch.last_line),
        };
        let next = format!("go on with line {}", self.lines + 1);
        Error::new(kind, format!("{place} (step {step}); {}; {next}", self.before()))
    }

    /// What of the input is there for sure.
    fn before(&self) -> String {
        match (self.done.first(), self.done.last()) {
            (Some(first), Some(last)) if first.step == last.step => {
                format!("step {} is applied before it (lines 1 to {})", last.step, self.lines)
            }
            (Some(first), Some(last)) => {
                format!("steps {} to {} are applied before it (lines 1 to {})", first.step, last.step, self.lines)
            }
            _ => "nothing was applied before it".to_string(),
        }
    }
}

/// Whether a step that is refused so may be taken later: too many at once, no answer from behind, the log full, the disk full.
fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 502..=504 | 507)
}

/// The line of its request that the daemon speaks of, and what it says: it counts from 1 and names the line first.
fn line_of(message: &str) -> Option<(u64, &str)> {
    let (number, rest) = message.strip_prefix("line ")?.split_once(": ")?;
    number.parse().ok().filter(|n| *n > 0).map(|n| (n, rest))
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
