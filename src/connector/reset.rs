//! A reset without a daemon: the reload itself.

use super::{Connector, Phase};
use crate::continuity::plan::{Older, Ours, Standing};
use crate::continuity::stamp::{Mode, ResetStamp};
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::sink::Applied;
use crate::source::Pick;
use crate::step::Step;

/// A reload that somebody asks for.
#[derive(Debug, Clone)]
pub struct Reset {
    /// Its id, and who asked and why.
    pub stamp: ResetStamp,
    /// The generation that the table must have.
    pub expected_generation: Option<Generation>,
    /// Whether readers may be taken back in time.
    pub older: Older,
}

/// What a reset would do.
#[derive(Debug, Clone, PartialEq)]
pub struct ResetPreview {
    /// The table as it is; `None` where there is none of ours.
    pub ours: Option<Ours>,
    /// The step that the new generation would start from.
    pub cutover: Step,
}

impl Connector {
    /// What `reset` would do; nothing is written.
    pub async fn preview_reset(&mut self, reset: &Reset) -> Result<ResetPreview> {
        self.check_mode()?;
        let view = self.source.view().await?;
        let target = self.open(&view).await?;
        check_generation(target.standing(), reset)?;
        let snapshot = self.source.snapshot(Pick::Reached { until: None }).await?;
        Ok(ResetPreview { ours: target.facts().ours().cloned(), cutover: snapshot.step })
    }

    /// Reloads the table with the newest state that the source reaches. Readers see the old state until it is complete.
    pub async fn reset(&mut self, reset: Reset) -> Result<Applied> {
        self.check_mode()?;
        let view = self.source.view().await?;
        let target = self.open(&view).await?;
        check_generation(target.standing(), &reset)?;
        let snapshot = self.source.snapshot(Pick::Reached { until: None }).await?;
        let Standing::Ours(_) = target.standing() else {
            let sink = self.load(target, snapshot).await?;
            let version = sink.facts().version.unwrap_or(0);
            return Ok(Applied::Committed { version, rows: sink.progress().rows(), bytes: sink.progress().bytes() });
        };
        let mut sink = target.claim().await?;
        self.show_snapshot(&sink.progress(), snapshot.step);
        let applied = sink.reload(snapshot, reset.stamp, reset.older).await?;
        self.show_table(sink.facts().ours());
        self.show(|s| s.phase = Phase::Stopped);
        Ok(applied)
    }

    fn check_mode(&self) -> Result<()> {
        if self.settings.sink.mode == Mode::Follow {
            return Err(Error::refused(format!(
                "{} has the mode follow, which has no snapshot to load; set mode = \"snapshot_and_follow\" to reset it",
                self.name()
            )));
        }
        Ok(())
    }
}

fn check_generation(standing: &Standing, reset: &Reset) -> Result<()> {
    let found = match standing {
        Standing::Ours(ours) => Some(ours.generation),
        Standing::Absent | Standing::Foreign => None,
    };
    match reset.expected_generation {
        Some(expected) if found != Some(expected) => Err(Error::refused(format!(
            "the table has the generation {}, expected was {expected}: it was reset meanwhile",
            found.map_or("none".to_string(), |g| g.to_string())
        ))),
        _ => Ok(()),
    }
}
