//! A snapshot that many workers write and one process commits.
//!
//! ```text
//!   worker 1 ── Target::stage(part 1 of n, rows) ──► data files, manifest ─┐
//!   …                                                                      ├─ StagedSnapshot::of ──► one reload
//!   worker n ── Target::stage(part n of n, rows) ──► data files, manifest ─┘
//! ```
//!
//! No version names the files before the reload does. What a worker that died left, and the files of manifests that were
//! not chosen, is garbage of the usual kind.

mod manifest;
mod snapshot;

use arrow::array::RecordBatch;
use futures::stream::BoxStream;

pub use self::manifest::{Frame, Manifest, Part, PartOf};
pub use self::snapshot::StagedSnapshot;
use super::commit::{Age, Core};
use super::{Applied, Reason, Sink, Target};
use crate::continuity::plan::{Older, Ours, Standing};
use crate::continuity::stamp::{ResetStamp, reset_commit};
use crate::error::{Error, Result};
use crate::files::Written;
use crate::generation::Generation;
use crate::log::Columns;
use crate::snapshot::Snapshot;
use crate::step::Step;

/// Where the rows of a reload come from.
pub(super) enum Content {
    /// They are written as they come.
    Rows(Snapshot),
    /// Workers have written them.
    Files(Box<StagedSnapshot>),
}

impl Content {
    pub(super) fn step(&self) -> Step {
        match self {
            Self::Rows(snapshot) => snapshot.step,
            Self::Files(staged) => staged.frame().step,
        }
    }

    /// The position in the source's own words.
    pub(super) fn position(&self) -> String {
        match self {
            Self::Rows(snapshot) => snapshot.position.clone(),
            Self::Files(staged) => {
                let Frame { id, parts, .. } = staged.frame();
                format!("snapshot {id}, staged in {parts} parts")
            }
        }
    }
}

impl Target {
    /// Writes the rows of a part as data files that no version names yet, for the next generation of the table as it is.
    ///
    /// Refused: the table may not be reloaded, or was by this very snapshot; rows do not fit the view, or two have the same
    /// key. Other errors are those of the storage and of `rows`.
    pub async fn stage(&self, part: &Part, rows: BoxStream<'static, Result<RecordBatch>>) -> Result<Manifest> {
        let core = &self.core;
        // How far readers are by the time of the reload is told then.
        self.check_reload(part.step(), Older::Allowed)?;
        if core.begun_with(part.snapshot()).is_some() {
            return Err(Error::refused(format!(
                "the table is loaded with the snapshot {} already; there is nothing to stage, and another snapshot wants an id of its own",
                part.snapshot()
            )));
        }
        let columns = core.staged_columns(part.snapshot())?;
        let frame = core.frame(part.snapshot(), part.step(), part.of().parts(), &columns)?;
        let snapshot = Snapshot { step: part.step(), rows, known_rows: None, position: String::new() };
        let written = core.write_snapshot(snapshot, frame.generation, columns.in_files()).await?;
        Ok(Manifest::new(frame, part.of().number(), core.world.ids.draw(), written))
    }

    /// Whether the table's generation began with `staged`.
    ///
    /// Refused: it began with another snapshot of that id.
    pub fn has_loaded(&self, staged: &StagedSnapshot) -> Result<bool> {
        let Frame { id, generation, .. } = staged.frame();
        match self.core.begun_with(id) {
            None => Ok(false),
            Some(ours) if ours.generation == *generation => Ok(true),
            Some(ours) => Err(Error::refused(format!(
                "the snapshot {id} is the table's generation {}, and these parts of that id are for generation {generation}; stage them under another id",
                ours.generation
            ))),
        }
    }

    /// Refuses what a reload with `staged` would be refused for, without claiming anything: what the table is, and files that are
    /// missing or too old.
    pub async fn check_staged(&self, staged: &StagedSnapshot, older: Older) -> Result<()> {
        self.check_reload(staged.frame().step, older)?;
        let columns = self.core.staged_columns(&staged.frame().id)?;
        self.core.check_frame(staged.frame(), &columns)?;
        self.core.check_written(staged.written(), Age::OfFiles).await
    }

    /// Loads a table that is not ours yet with what workers staged; see [`Target::load`].
    pub async fn load_staged(self, staged: StagedSnapshot, reset: ResetStamp) -> Result<(Sink, Applied)> {
        self.first(Content::Files(Box::new(staged)), &Reason::Reset { stamp: reset, older: Older::Refused }).await
    }
}

impl Sink {
    /// Replaces every live file by those that workers staged, in one version, and starts a generation.
    ///
    /// Refused: the table is not the one that they were staged for any more.
    pub async fn reload_staged(&mut self, staged: StagedSnapshot, reset: ResetStamp, older: Older) -> Result<Applied> {
        self.reload_with(Content::Files(Box::new(staged)), reset, older).await
    }
}

impl Core {
    /// The files with the rows of a reload that begins `generation`, written here if they are not, and their columns.
    pub(super) async fn content(&self, content: Content, generation: Generation) -> Result<(Columns, Written, Age)> {
        match content {
            Content::Rows(snapshot) => {
                let begun = self.world.clock.boot();
                let columns = self.log.columns(&self.facts, &self.table_schema())?;
                let written = self.write_snapshot(snapshot, generation, columns.in_files()).await?;
                Ok((columns, written, Age::Since(begun)))
            }
            Content::Files(staged) => {
                let columns = self.staged_columns(&staged.frame().id)?;
                self.check_frame(staged.frame(), &columns)?;
                let written = staged.into_written();
                self.progress.begin(Some(written.rows));
                self.progress.set(written.rows, written.bytes);
                Ok((columns, written, Age::OfFiles))
            }
        }
    }

    /// The table, where its generation began with the snapshot `id`.
    fn begun_with(&self, id: &str) -> Option<&Ours> {
        let is_it = |ours: &&Ours| ours.stamp.as_ref().is_some_and(|stamp| stamp.commit == reset_commit(id));
        self.facts.ours().filter(is_it)
    }

    /// The columns in files of the snapshot `id`, the same for each of its workers.
    fn staged_columns(&self, id: &str) -> Result<Columns> {
        self.log.columns_of(&self.facts, &self.table_schema(), id)
    }

    /// Refuses parts that are staged for another table, or for this one as it was.
    fn check_frame(&self, staged: &Frame, columns: &Columns) -> Result<()> {
        let wanted = self.frame(&staged.id, staged.step, staged.parts, columns)?;
        match staged.difference(&wanted)? {
            None => Ok(()),
            Some(difference) => Err(Error::refused(format!(
                "the snapshot {} was staged for another table, or for this one as it was: {difference}; stage it again",
                staged.id
            ))),
        }
    }

    /// What the parts of a snapshot have in common that are staged for the table as it is.
    fn frame(&self, id: &str, step: Step, parts: u32, columns: &Columns) -> Result<Frame> {
        let generation = match &self.facts.standing {
            Standing::Ours(ours) => ours.generation.next()?,
            Standing::Absent | Standing::Foreign => Generation::FIRST,
        };
        Ok(Frame {
            id: id.to_string(),
            step,
            parts,
            connector: self.identity.connector.clone(),
            table: self.facts.metadata.as_ref().map(|metadata| metadata.id.clone()),
            generation,
            layout: self.identity.layout,
            key: self.identity.key.clone(),
            columns: columns.schema().to_string(),
            partition_by: self.partition_by().to_vec(),
            holds_partition_columns: self.facts.materializes_partition_columns(),
            clustered_by: columns.in_files().indexed.clone(),
        })
    }
}
