//! The processes of the demo: each is this very program, killed when nobody holds it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::home::Home;
use crate::error::{Error, Result};

/// A running `cutover run`.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    said: PathBuf,
}

impl Process {
    /// Starts `cutover run` with a configuration of `home`. What it says goes to the end of the file `said` there.
    pub(super) fn start(home: &Home, config: &str, data: Option<&str>, said: &str) -> Result<Self> {
        let unstarted = |e| Error::internal("a process of the demo cannot be started").with_source(e);
        let said = home.at(said);
        let log = File::options().create(true).append(true).open(&said).map_err(unstarted)?;
        let mut command = Command::new(std::env::current_exe().map_err(unstarted)?);
        command.arg("run").arg("-c").arg(home.at(config)).current_dir(home.path());
        // What the user's own daemon is told is not for these.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CUTOVER_") {
                command.env_remove(name);
            }
        }
        if let Some(data) = data {
            command.env("CUTOVER__SERVER__DATA_DIR", home.at(data));
        }
        // A terminal's Ctrl-C is for the demo, which ends them.
        command.process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(unstarted)?).stderr(log);
        Ok(Self { child: command.spawn().map_err(unstarted)?, said })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|e| Error::internal("a process cannot be looked at").with_source(e))
    }

    /// What it said.
    pub(super) fn said(&self) -> Result<String> {
        fs::read_to_string(&self.said)
            .map_err(|e| Error::internal(format!("{} cannot be read", self.said.display())).with_source(e))
    }

    /// Kills it by SIGKILL.
    pub(super) fn kill(mut self) -> Result<()> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map(drop).map_err(|e| Error::internal("a process cannot be killed").with_source(e))
    }

    /// Fails when it has ended, with the last line that it said.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(status) = self.ended()? else { return Ok(()) };
        let said = self.said()?;
        let last = said.lines().last().unwrap_or_default().to_string();
        Err(Error::internal(format!("the process {} of the demo ended by itself ({status}): {last}", self.id())))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
