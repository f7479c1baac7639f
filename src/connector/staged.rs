//! A reload with what workers staged: nothing is read of the source but where it stands.

use super::{Connector, LogRepair, ResetPreview};
use crate::continuity::columns::Difference;
use crate::continuity::plan::{Older, Standing};
use crate::continuity::stamp::{Mode, ResetStamp};
use crate::error::{Error, ErrorKind, Result};
use crate::sink::{Applied, Frame, StagedSnapshot, Target};

/// A reload that can be carried out: the table was looked at, and every file is there.
#[derive(Debug)]
pub struct PreparedReload {
    staged: StagedSnapshot,
    stamp: ResetStamp,
    older: Older,
    preview: ResetPreview,
    target: Box<Target>,
    is_done: bool,
}

impl PreparedReload {
    /// What it would do.
    pub fn preview(&self) -> &ResetPreview {
        &self.preview
    }

    /// Whether the table is loaded with this snapshot already.
    pub fn is_done(&self) -> bool {
        self.is_done
    }
}

impl Connector {
    /// Looks at what a reload with `staged` would do, as the reset of `stamp`, and refuses what would be refused; nothing is
    /// written.
    ///
    /// Unavailable: the source has not reached the snapshot's step. Refused: it no longer has the changes after it, or the
    /// parts are not for this table as it is, or of other columns than the view.
    pub async fn prepare_reload(
        &mut self,
        staged: StagedSnapshot,
        stamp: ResetStamp,
        older: Older,
    ) -> Result<PreparedReload> {
        self.check_mode()?;
        let Frame { step, generation, .. } = *staged.frame();
        let view = staged.frame().view(self.source.name())?;
        let destination = self.look().await?;
        let ours = destination.facts().ours().cloned();
        let target = Box::new(destination.deliver(view));
        let is_done = target.has_loaded(&staged)?;
        if !is_done {
            self.check_snapshot_of(&staged, &target).await?;
            target.check_staged(&staged, older).await?;
        }
        let preview = ResetPreview { ours, repair: LogRepair::Unneeded, generation, cutover: step };
        Ok(PreparedReload { staged, stamp, older, preview, target, is_done })
    }

    /// Carries out what was prepared. Readers see the old state until it is complete.
    ///
    /// Refused when the table was reloaded since it was looked at.
    pub async fn reload(&mut self, prepared: PreparedReload) -> Result<Applied> {
        if prepared.is_done {
            return Ok(Applied::Already);
        }
        let applied = self.load_staged(prepared).await;
        self.show_reload_ended(&applied);
        applied
    }

    async fn load_staged(&mut self, prepared: PreparedReload) -> Result<Applied> {
        let PreparedReload { staged, stamp, older, target, .. } = prepared;
        self.show_snapshot(&target.progress(), staged.frame().step);
        if !matches!(target.standing(), Standing::Ours(_)) {
            let (sink, applied) = target.load_staged(staged, stamp).await?;
            self.tenure.begin(&sink);
            self.show_applied(sink.facts(), &applied);
            return Ok(applied);
        }
        // From the claim on nobody else starts a generation, and the reload is refused where somebody did before.
        let mut sink = self.tenure.take(*target).await?;
        let applied = sink.reload_staged(staged, stamp, older).await?;
        self.show_applied(sink.facts(), &applied);
        sink.close().await;
        Ok(applied)
    }

    /// Refuses a snapshot that the source's changes cannot follow, and one in other columns.
    async fn check_snapshot_of(&mut self, staged: &StagedSnapshot, target: &Target) -> Result<()> {
        let Frame { id, step, key, .. } = staged.frame();
        if key != self.source.key() {
            return Err(Error::refused(format!(
                "the snapshot {id} was staged with the key {key:?}, and the view has {:?}; stage it with the view's configuration",
                self.source.key()
            )));
        }
        if self.settings.sink.mode == Mode::Snapshot {
            return Ok(());
        }
        let position = self.source.position().await?;
        if let Some(latest) = position.latest.filter(|latest| latest < step) {
            return Err(Error::unavailable(format!(
                "the snapshot {id} is of step {step}, and the source names none beyond {latest}; wait until it has reached that step"
            )));
        }
        if let Some(earliest) = position.earliest.filter(|earliest| earliest > step) {
            return Err(Error::refused(format!(
                "the snapshot {id} is of step {step}, and the source has changes after step {earliest} only; stage a snapshot of that step or a later one"
            )));
        }
        match self.source.view(*step).await {
            Ok(view) => {
                let difference = Difference::between(view.schema(), target.view().schema());
                if difference.is_empty() {
                    return Ok(());
                }
                Err(Error::refused(format!(
                    "the snapshot {id} is not in the view's columns: {difference}; stage it in these"
                )))
            }
            // It cannot tell before there are changes.
            Err(e) if matches!(e.kind(), ErrorKind::Unavailable | ErrorKind::Config) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
