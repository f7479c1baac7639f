//! `cutover demo`: a tour that needs nothing. It feeds a view, breaks things, and holds what is observed against what was
//! expected.

mod daemon;
mod feed;
mod home;
mod narration;
mod process;
mod reader;
mod tour;
mod writers;

use std::path::PathBuf;

use self::home::Home;
use self::narration::Narration;
use super::args::Output;
use super::signals::Signals;
use super::{Session, text};
use crate::error::Result;

/// Arguments of `demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Starts a daemon of its own on this machine, and ends it. Exits with 0 when everything held that was expected, with 1 at the
first thing that did not; the directory is kept then.")]
pub(super) struct DemoArgs {
    /// Make the tables here, and keep them; a directory that is empty or does not exist
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the temporary directory
    #[arg(long, conflicts_with = "dir")]
    keep: bool,
    /// The port of the daemon's page on 127.0.0.1; 0 is any that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

impl DemoArgs {
    /// The formats in which the tour is told.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &DemoArgs, session: &Session) -> Result<u8> {
    session.block_on(async |world| {
        let mut signals = Signals::listen()?;
        let mut home = Home::make(args.dir.as_deref(), &world)?;
        let begun = world.clock.boot();
        // Dropped by a signal, the tour ends its processes.
        let ended = tokio::select! {
            ended = tour::go(&home, args.port, &world) => Some(ended),
            () = signals.stop() => None,
        };
        match ended {
            None => {
                home.end()?;
                session.talk.line("the demo was stopped; its processes have ended");
            }
            Some(Ok(page)) => {
                if args.keep {
                    home.keep();
                }
                let took = world.clock.boot().saturating_sub(begun);
                let is_kept = !home.is_temporary();
                let shown = if is_kept { home.path().to_path_buf() } else { PathBuf::from("cutover-demo") };
                home.end()?;
                Narration::new().close(took, &shown, is_kept, &page)?;
            }
            Some(Err(error)) => {
                if home.is_temporary() {
                    home.keep();
                    let shown = text::shell_word(&home.path().display().to_string());
                    session.talk.line(&format!("the tables, and what the daemon said, are kept in {shown}"));
                }
                return Err(error);
            }
        }
        Ok(0)
    })
}
