//! Resets that a daemon does: asked for, and waited for where that is wanted.

use std::time::Duration;

use indicatif::ProgressBar;
use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::{Done, ResetArgs, Tally};
use crate::cli::client::{Client, Failure, LONG_DEADLINE, kind_named};
use crate::cli::consent::Question;
use crate::cli::progress::{BAR, LINE_EVERY, SPINNER, restyle};
use crate::cli::reach::Reach;
use crate::cli::resets::{RemoteReset, reset};
use crate::cli::signals::Signals;
use crate::cli::{Print, Session, names, status, text};
use crate::clock::World;
use crate::error::{Error, ErrorKind, Result};
use crate::generation::Generation;

/// How often a reset is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For how long a daemon may be away that was reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a daemon is asked for; what is absent is as the daemon has it.
#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    override_breaker: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
}

/// What a daemon would do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Plan {
    /// The generation that would begin.
    pub(super) generation: u64,
    /// The step that it would start from.
    pub(super) cutover: u64,
    replaces: Option<Replaced>,
    /// What would become of a damaged log.
    log: Option<String>,
}

/// The table that there is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Replaced {
    generation: u64,
    last_step: u64,
}

/// A reset that a daemon has written down.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Accepted {
    /// Its id.
    pub(super) id: String,
    /// Whether this call began it.
    #[serde(rename = "new")]
    is_new: bool,
}

impl Plan {
    /// What would become of a damaged log; `None` where none is damaged.
    pub(super) fn repair(&self) -> Option<&str> {
        self.log.as_deref().filter(|word| *word != "unneeded")
    }

    /// What would happen, in one line.
    pub(super) fn line(&self, name: &str) -> String {
        let Self { generation, cutover, .. } = self;
        let repaired = self.repair().map(|word| format!("; the damaged log is {word}")).unwrap_or_default();
        match &self.replaces {
            Some(ours) => format!(
                "{name}: generation {}, last step {}, is replaced by generation {generation}, cutover step {cutover}{repaired}",
                ours.generation, ours.last_step
            ),
            None => {
                format!(
                    "{name}: no table of ours yet; generation {generation} begins, cutover step {cutover}{repaired}"
                )
            }
        }
    }
}

impl Accepted {
    /// What was accepted, in one line.
    pub(super) fn line(&self, name: &str) -> String {
        let Self { id, .. } = self;
        match self.is_new {
            true => format!("{name}: the reset {id} is accepted; its state: cutover resets {name}"),
            false => format!("{name}: the reset {id}, which was accepted before, is what was asked for"),
        }
    }
}

/// Runs the command; the exit code.
pub(super) fn run(args: &ResetArgs, reach: &Reach, session: &Session) -> Result<u8> {
    check(args)?;
    session.block_on(async |world| {
        let client = Client::new(reach)?;
        let mut print: Print<'_> = Box::new(text::print);
        ask(args, session, &client, &world, &mut print).await
    })
}

/// Refuses what a daemon cannot be told.
fn check(args: &ResetArgs) -> Result<()> {
    let stop = "stop the daemon, run the command without --url and CUTOVER_URL, and start it again";
    if args.rebuild_log {
        return Err(Error::refused(format!("--rebuild-log is not for a table that a daemon holds; {stop}")));
    }
    if args.allow_older {
        return Err(Error::refused(format!("--allow-older is not for a table that a daemon holds; {stop}")));
    }
    if args.set.iter().any(|set| !set.starts_with("server.")) {
        return Err(Error::refused(
            "--set does not reach the daemon; change its configuration, or stop it and run the command again",
        ));
    }
    Ok(())
}

async fn ask(args: &ResetArgs, session: &Session, client: &Client, world: &World, print: &mut Print<'_>) -> Result<u8> {
    let pipelines = client.pipelines().await?;
    let mut chosen: Vec<&str> = Vec::new();
    for name in &args.connectors {
        let name = names::connector(&pipelines, name)?.name.as_str();
        if !chosen.contains(&name) {
            chosen.push(name);
        }
    }
    let mut desk = Desk { args, session, client, world, signals: Signals::listen()? };
    let mut tally = Tally::new(session);
    for name in chosen {
        let done = desk.reset(name).await;
        tally.add(name.to_string(), done, print)?;
    }
    tally.finish(print)
}

/// Asks for resets for one command.
struct Desk<'a> {
    args: &'a ResetArgs,
    session: &'a Session,
    client: &'a Client,
    world: &'a World,
    signals: Signals,
}

impl Desk<'_> {
    async fn reset(&mut self, name: &str) -> Result<Done> {
        if self.args.dry_run {
            return Ok(Done::Planned(self.plan(name).await?));
        }
        if !self.args.yes {
            let plan = self.plan(name).await?.line(name);
            let own = name.rsplit('/').next().unwrap_or(name);
            // That the daemon delivers to the table is no reason to ask twice.
            let deed = "a reset replaces every row";
            let question = Question { plan, deed, answers: &[name, own], last_millis: None };
            question.ask(self.session, &mut self.signals, self.world).await?;
        }
        let accepted = self.accepted(name).await?;
        if !self.args.wait {
            return Ok(Done::Accepted(accepted));
        }
        let mut meter = Meter::new(self.session, name);
        let ended = self.ended(name, &accepted.id, &mut meter).await;
        meter.finish();
        ended.map(Done::Committed)
    }

    fn request(&self, dry_run: Option<bool>) -> Request<'_> {
        Request {
            reason: Some(self.args.reason.as_str()).filter(|reason| !reason.is_empty()),
            expected_generation: self.args.expected_generation.map(Generation::get),
            override_breaker: self.args.override_breaker.then_some(true),
            dry_run,
        }
    }

    async fn plan(&self, name: &str) -> Result<Plan> {
        let call = self.client.connector(Method::POST, name, &["reset"]).json(&self.request(Some(true)));
        call.deadline(LONG_DEADLINE).answer().await
    }

    /// Asks until it is known to be written down, with one key, so that it is one reset.
    async fn accepted(&self, name: &str) -> Result<Accepted> {
        let key = self.world.ids.draw();
        let begun = self.world.clock.boot();
        let mut is_asked_before = false;
        loop {
            let call = self.client.connector(Method::POST, name, &["reset"]).json(&self.request(None));
            match call.header("idempotency-key", &key).attempt::<Accepted>().await {
                // It is this call's, whose first answer was lost.
                Ok(accepted) => return Ok(Accepted { is_new: accepted.is_new || is_asked_before, ..accepted }),
                Err(Failure::Lost(error)) => self.bear(error, begun)?,
                Err(failure) => return Err(failure.into_error()),
            }
            is_asked_before = true;
            self.world.clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for the end of the reset; what it made.
    async fn ended(&mut self, name: &str, id: &str, meter: &mut Meter<'_>) -> Result<RemoteReset> {
        let mut seen = self.world.clock.boot();
        loop {
            match reset(self.client, name, id).await {
                Ok(reset) => {
                    seen = self.world.clock.boot();
                    if let Some(end) = end(&reset) {
                        return end.map(|()| reset);
                    }
                    meter.show(&reset, seen);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => self.bear(error, seen)?,
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = self.world.clock.sleep(LOOK_EVERY) => {}
                () = self.signals.stop() => {
                    return Err(Error::internal(format!(
                        "stopped by a signal; the daemon goes on with the reset {id}: cutover resets {name}"
                    )));
                }
            }
        }
    }

    /// Bears an error of a daemon that was last seen `since`, unless that is too long ago.
    fn bear(&self, error: Error, since: Duration) -> Result<()> {
        if self.world.clock.boot().saturating_sub(since) >= PATIENCE { Err(error) } else { Ok(()) }
    }
}

/// How a reset ended; `None` while it has not.
fn end(reset: &RemoteReset) -> Option<Result<()>> {
    let reason = reset.reason.as_deref().unwrap_or("the daemon does not say why");
    match reset.state.as_str() {
        "accepted" | "snapshotting" | "committing" => None,
        "committed" => Some(Ok(())),
        "cancelled" => {
            Some(Err(Error::refused(format!("the reset {} was cancelled; the table is as it was", reset.id))))
        }
        "expired" => Some(Err(Error::unavailable(format!(
            "the reset {} could not be carried out within a day; ask again when cutover status says that it can",
            reset.id
        )))),
        _ => {
            let kind = reset.code.as_deref().and_then(kind_named).unwrap_or(ErrorKind::Internal);
            Some(Err(Error::new(kind, format!("the reset {} failed, and the table is as it was: {reason}", reset.id))))
        }
    }
}

/// Shows how far a reset is: a bar on a terminal, a line every ten seconds elsewhere.
struct Meter<'a> {
    session: &'a Session,
    name: &'a str,
    bar: Option<ProgressBar>,
    said: Option<(Duration, String)>,
}

impl<'a> Meter<'a> {
    fn new(session: &'a Session, name: &'a str) -> Self {
        let bar = (session.talk.is_terminal() && !session.talk.is_quiet()).then(|| {
            // Styled before it is added: adding draws it.
            let bar = ProgressBar::no_length().with_prefix(text::escaped(name));
            restyle(&bar, SPINNER);
            session.talk.bars().add(bar)
        });
        Self { session, name, bar, said: None }
    }

    fn show(&mut self, reset: &RemoteReset, now: Duration) {
        let progress = reset.progress.as_ref();
        let far = progress.map(|progress| format!(": {}", status::progress(progress))).unwrap_or_default();
        let message = format!("{}{far}", reset.state);
        if let Some(bar) = &self.bar {
            let known = progress.and_then(|p| Some((p.rows, p.rows_known?)));
            restyle(bar, if known.is_some() { BAR } else { SPINNER });
            if let Some((rows, known)) = known {
                bar.set_length(known);
                bar.set_position(rows);
            }
            bar.set_message(text::escaped(&message));
            bar.tick();
            return;
        }
        let is_due =
            self.said.as_ref().is_none_or(|(at, state)| *state != reset.state || now.saturating_sub(*at) >= LINE_EVERY);
        if is_due {
            self.session.talk.line(&format!("{}: {message}", self.name));
            self.said = Some((now, reset.state.clone()));
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
            self.session.talk.bars().remove(&bar);
        }
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
