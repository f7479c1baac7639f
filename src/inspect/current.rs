//! The rows of a table of layout `current`: the view at its last step, or at an older one of which a version is left.

use std::collections::HashSet;

use futures::TryStreamExt;
use object_store::path::Path;

use super::show::show;
use super::state::State;
use crate::continuity::stamp::TableStamp;
use crate::data_file::{self, Origin};
use crate::error::{Error, Result};
use crate::log::{Facts, LiveFile, Log, table_schema};
use crate::step::Step;

/// The view's rows at `step`, which the table of `facts` holds, or held in a version that can still be read.
///
/// Refused: no commit ends at that step, or what it left is cleaned up.
pub(super) async fn state(log: &Log, facts: &Facts, stamp: &TableStamp, step: Step) -> Result<State> {
    let shown = show(log, Some(step)).await?;
    if shown.last_step != step {
        let before = shown.before.map(|before| format!("{before} or ")).unwrap_or_default();
        return Err(Error::refused(format!(
            "the table has the layout current, so it holds the view as it was where a commit ended, and none ended at step {step}; ask for step {before}{}",
            shown.last_step
        )));
    }
    let is_head = facts.version == Some(shown.version);
    let metadata = if is_head { facts.metadata.clone() } else { Some(log.replay(Some(shown.version)).await?.metadata) };
    let metadata = metadata.ok_or_else(|| Error::internal("a table that can be read has no metadata"))?;
    let files = log.live_files_at(shown.version).await?;
    // Every path is looked at before any is followed.
    let objects = files.iter().map(LiveFile::object).collect::<Result<Vec<Path>>>()?;
    if !is_head {
        let here: HashSet<Path> = log.objects().map_ok(|(path, _)| path).try_collect().await?;
        let gone = objects.iter().chain(&log.vector_objects(&files)?).find(|path| !here.contains(path)).cloned();
        if let Some(gone) = gone {
            return Err(Error::refused(format!(
                "the rows of step {step} are not kept any more: {gone} is cleaned up; the table keeps removed files as long as delta.deletedFileRetentionDuration says"
            )));
        }
    }
    let deleted = log.deleted_rows(&files).await?;
    let schema = table_schema(&metadata)?;
    let rows =
        data_file::read_live(&Origin::of(log, facts, &schema)?, files.into_iter().zip(deleted).collect(), &schema);
    Ok(State { generation: stamp.generation, step, schema, rows })
}
