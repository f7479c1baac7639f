//! Who owns a connector's task.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{ControlSettings, Handle, Task, Work, defect};
use crate::clock::World;
use crate::connector::{Phase, Status, Trouble};
use crate::error::{Error, Result};

/// The longest that a stop takes.
const LONGEST_STOP: Duration = Duration::from_secs(10);

/// A connector whose task runs. Whoever holds this owns the task: dropped, it ends the task; [`Running::stop`] awaits it too.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    /// `None` once its end was awaited.
    task: Option<JoinHandle<()>>,
    status: watch::Sender<Status>,
    world: World,
}

impl Running {
    /// Starts the task of a connector, to a table or to clients, within a Tokio runtime.
    ///
    /// Corrupt, or refused: its journal is damaged, or held by another process.
    pub fn start(work: impl Into<Work>, settings: ControlSettings) -> Result<Self> {
        let work = work.into();
        let (status, world) = (work.shown().clone(), work.world().clone());
        let (handle, task) = Task::new(work, settings)?;
        Ok(Self { handle, task: Some(tokio::spawn(task.run())), status, world })
    }

    /// By which the connector is controlled.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the task's end, which nothing but a stop brings about. Internal: it met a defect, and the connector is `failed`.
    pub async fn ended(&mut self) -> Result<()> {
        let Some(task) = &mut self.task else { return Ok(()) };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = match error.try_into_panic() {
                    Ok(panic) => defect(&*panic),
                    Err(error) => Error::internal("the connector's task ended early").with_source(error),
                };
                Status::change(&self.status, &*self.world.clock, |s| {
                    (s.phase, s.trouble) = (Phase::Failed, Some(Trouble::of(&error)));
                });
                Err(error)
            }
        }
    }

    /// Stops the connector, and waits until its task has ended: ten seconds at most, after which it is aborted. What is not
    /// finished is gone on with at the next start.
    pub async fn stop(mut self) -> Result<()> {
        let (handle, clock) = (self.handle.clone(), self.world.clock.clone());
        let stopped = async {
            handle.stop().await;
            self.ended().await
        };
        tokio::select! {
            ended = stopped => return ended,
            () = clock.deadline(LONGEST_STOP) => {}
        }
        Err(Error::internal(format!(
            "the connector {} did not stop within {LONGEST_STOP:?}, and was aborted",
            handle.name()
        )))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
