//! `cutover run` without an end: a daemon, reached over HTTP.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Session;
use super::progress::{Board, TICK};
use super::run::Member;
use super::signals::{Hangups, Signals};
use crate::clock::World;
use crate::config::Config;
use crate::connector::{Handle, Phase, Status};
use crate::daemon::{Daemon, Load};
use crate::error::{Error, ErrorKind, Result};
use crate::server;

/// So long the server may take to end when the program is to stop; it gives requests that were begun less.
const LAST_ANSWERS: Duration = Duration::from_secs(6);

/// Runs everything that `config` describes until a signal, or until nothing is left that could be delivered. Gives back how
/// each connector ended.
pub(super) async fn serve(
    config: Config,
    load: Load,
    session: &Session,
    signals: &mut Signals,
    world: &World,
) -> Result<Vec<Member>> {
    let mut hangups = Hangups::listen()?;
    let listener = listen(config.server.listen).await?;
    let daemon = Daemon::take(&config.server, load, world.clone())?;
    let address = listener.local_addr().map_err(|e| Error::internal("the listener has no address").with_source(e))?;
    let (stop, stopped) = oneshot::channel::<()>();
    // A sender that is gone is the sign to stop.
    let stopped = async move { drop(stopped.await) };
    let mut serving = tokio::spawn(server::serve(Arc::clone(&daemon), listener, stopped));
    let mut watch = Watch { session, board: Board::new(&session.talk), seen: BTreeMap::new() };
    // Who looks whether the program lives is answered while views are opened.
    let begun = tokio::select! {
        begun = daemon.begin(config) => begun.map(|()| true),
        () = signals.stop() => Ok(false),
    };
    let served = match begun {
        Ok(true) => {
            session.talk.line(&format!("listening on http://{address}"));
            keep(&daemon, &mut serving, signals, &mut hangups, &mut watch).await
        }
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    watch.look(&daemon);
    let is_over = served.is_ok() && is_done(&daemon);
    let members = watch.members(is_over);
    drop(stop);
    if !serving.is_finished() {
        tokio::select! {
            _ = &mut serving => {}
            () = world.clock.deadline(LAST_ANSWERS) => serving.abort(),
            () = signals.stop() => serving.abort(),
        }
    }
    // A second signal does not wait for what is in the middle of something.
    tokio::select! {
        stopped = daemon.stop() => stopped?,
        () = signals.stop() => {}
    }
    for member in &members {
        let stopped = if is_over { "" } else { "stopped " };
        session.talk.line(&format!("{stopped}{}", member.summary()));
    }
    served.map(|()| members)
}

/// Until a signal says so, the server ends, or nothing is left that could be delivered.
async fn keep(
    daemon: &Daemon,
    serving: &mut JoinHandle<Result<()>>,
    signals: &mut Signals,
    hangups: &mut Hangups,
    watch: &mut Watch<'_>,
) -> Result<()> {
    let clock = daemon.clock();
    loop {
        watch.look(daemon);
        if is_done(daemon) {
            return Ok(());
        }
        if daemon.is_mended() {
            tokio::select! {
                mended = daemon.mend() => mended?,
                () = signals.stop() => return Ok(()),
            }
        }
        tokio::select! {
            () = clock.sleep(TICK) => watch.board.tick(clock.boot()),
            () = signals.stop() => return Ok(()),
            () = hangups.next() => tokio::select! {
                () = reload(daemon, watch.session) => {}
                () = signals.stop() => return Ok(()),
            },
            ended = &mut *serving => return ended.unwrap_or_else(|e| {
                Err(Error::internal("the server ended").with_source(e))
            }),
        }
    }
}

async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| {
        Error::config(format!(
            "nothing can listen on {address}, which server.listen names; stop what does, or name another address"
        ))
        .with_source(e)
    })
}

/// Whether everything that was wanted is delivered, or belongs to other processes. A view that is pushed may always grow.
fn is_done(daemon: &Daemon) -> bool {
    let phases = daemon.phases();
    let is_over = |phase: &Phase| matches!(phase, Phase::Completed | Phase::Fenced);
    !phases.is_empty() && !daemon.has_pushed_views() && phases.iter().all(is_over)
}

async fn reload(daemon: &Daemon, session: &Session) {
    match daemon.reload().await {
        Ok(changed) => {
            session.talk.line(&format!(
                "the configuration was loaded anew: connectors added {}, changed {}, removed {}",
                changed.added.len(),
                changed.changed.len(),
                changed.removed.len()
            ));
            for (name, why) in &changed.failed {
                session.talk.failure(Some(name), &Error::new(ErrorKind::Internal, why.clone()));
            }
            if !changed.restart.is_empty() {
                session.talk.line(&format!("counts from the next start on: {}", changed.restart.join(", ")));
            }
        }
        Err(error) => session.talk.failure(None, &error),
    }
}

/// What was said of the connectors.
struct Watch<'a> {
    session: &'a Session,
    board: Board,
    /// The connectors on the board, and the state in which each was when something was said of it last.
    seen: BTreeMap<String, (Handle, Phase)>,
}

impl Watch<'_> {
    /// Says what is new, and keeps the board to what there is.
    fn look(&mut self, daemon: &Daemon) {
        let handles = daemon.handles();
        for name in self.seen.keys().filter(|name| !handles.contains_key(*name)).cloned().collect::<Vec<_>>() {
            self.seen.remove(&name);
            self.board.remove(&name);
        }
        for (name, handle) in handles {
            let status = handle.status();
            let status = status.borrow().clone();
            let before = self.seen.get(&name).filter(|(seen, _)| seen.is_same(&handle)).map(|(_, phase)| *phase);
            if before.is_none() {
                self.board.remove(&name);
                self.board.add(&name, handle.status());
            }
            if before != Some(status.phase) {
                self.say(&name, &status);
            }
            self.seen.insert(name, (handle, status.phase));
        }
    }

    fn say(&self, name: &str, status: &Status) {
        let talk = &self.session.talk;
        match (status.phase, &status.trouble) {
            (Phase::Completed, _) => talk.line(&format!(
                "{name}: completed, step {}",
                status.last_step.map_or("none".to_string(), |step| step.to_string())
            )),
            (Phase::Retrying, Some(trouble)) => talk.line(&format!("{name}: {}; it is tried again", trouble.reason)),
            (Phase::ContinuityLost | Phase::BreakerOpen | Phase::Fenced | Phase::Failed, Some(trouble)) => {
                talk.failure(Some(name), &Error::new(trouble.kind, trouble.reason.clone()));
                talk.say(&format!("  {}: {}", status.phase, trouble.next_action));
            }
            _ => {}
        }
    }

    /// How the connectors ended; those that something is wrong with have failed, where all `ended` by themselves.
    fn members(&self, ended: bool) -> Vec<Member> {
        let outcome = |status: &Status| {
            let trouble = status.trouble.as_ref().filter(|_| ended)?;
            Some(Err(Error::new(trouble.kind, trouble.reason.clone())))
        };
        self.seen
            .iter()
            .map(|(name, (handle, _))| {
                let outcome = outcome(&handle.status().borrow());
                Member { name: name.clone(), status: handle.status(), outcome }
            })
            .collect()
    }
}
