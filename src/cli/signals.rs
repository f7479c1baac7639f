//! The signals that ask the program for something.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{Error, Result};

/// Listens for SIGINT and SIGTERM from its making on.
#[derive(Debug)]
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let listen =
            |kind| signal(kind).map_err(|e| Error::internal("the program cannot listen for signals").with_source(e));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Completes at the next of them.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Listens for SIGHUP from its making on, which does not end the program any more.
#[derive(Debug)]
pub(super) struct Hangups(Signal);

impl Hangups {
    pub(super) fn listen() -> Result<Self> {
        let listened = signal(SignalKind::hangup());
        listened.map(Self).map_err(|e| Error::internal("the program cannot listen for signals").with_source(e))
    }

    /// Completes at the next of them.
    pub(super) async fn next(&mut self) {
        self.0.recv().await;
    }
}
