//! Who asks for what cannot be undone, and the question that must be answered first.

use std::env;
use std::io::{self, IsTerminal};

use super::Session;
use super::signals::Signals;
use crate::clock::World;
use crate::error::{Error, Result};

/// A commit within so many milliseconds means that a process is at work.
const BUSY_MILLIS: i64 = 60_000;

/// What is to be done to a table, and to whom.
pub(super) struct Question<'a> {
    /// What would happen, in one line.
    pub(super) plan: String,
    /// What the command does, for those that cannot be asked.
    pub(super) deed: &'a str,
    /// The answers that mean yes, the connector's full name first.
    pub(super) answers: &'a [&'a str],
    /// When our last commit was made, in milliseconds since 1970 UTC.
    pub(super) last_millis: Option<i64>,
}

impl Question<'_> {
    /// Asks for the connector's name, where somebody can answer.
    pub(super) async fn ask(&self, session: &Session, signals: &mut Signals, world: &World) -> Result<()> {
        let busy = self.busy_seconds(world);
        let busy = busy.map(|s| {
            format!("somebody committed to the table {s} s ago, and a process that still delivers to it will be fenced")
        });
        let can_ask = !session.global.no_input && session.talk.is_terminal() && io::stdin().is_terminal();
        if !can_ask {
            let busy = busy.map(|busy| format!(" ({busy})")).unwrap_or_default();
            return Err(Error::refused(format!("{}{busy}; confirm it with --yes", self.deed)));
        }
        let busy = busy.map(|busy| format!("Attention: {busy}.\n")).unwrap_or_default();
        session.talk.ask(&format!("{}\n{busy}Type the connector's name to go on: ", self.plan));
        let read = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            io::stdin().read_line(&mut answer).map(|_| answer)
        });
        let answer = tokio::select! {
            answer = read => answer.map_err(|e| Error::internal("the answer was not read").with_source(e))?,
            () = signals.stop() => return Err(Error::refused("not confirmed: stopped by a signal")),
        };
        let answer =
            answer.map_err(|e| Error::refused("the answer cannot be read; confirm with --yes").with_source(e))?;
        if self.answers.contains(&answer.trim()) {
            return Ok(());
        }
        let name = self.answers.first().copied().unwrap_or_default();
        Err(Error::refused(format!("not confirmed: the answer was not {name}")))
    }

    /// How long ago somebody committed, if that was in the last minute.
    fn busy_seconds(&self, world: &World) -> Option<i64> {
        let ago = world.clock.unix_millis().saturating_sub(self.last_millis?);
        (ago < BUSY_MILLIS).then_some(ago.max(0) / 1000)
    }
}

/// The user and the machine, by the environment first.
pub(super) fn who() -> String {
    let variable = |name: &str| env::var(name).ok().filter(|v| !v.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME"));
    let user = user.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = variable("HOSTNAME");
    format!("{user}@{}", host.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned()))
}
