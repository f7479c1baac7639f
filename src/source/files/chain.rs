//! The change files that lead from a step onwards, each checked against those that share steps with it.

use super::directory::{ChangeFile, Folder};
use super::pieces::Pieces;
use super::views::{Holds, view_of};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::schema::View;
use crate::step::{Step, StepRange};

/// A change file, and the steps of it that are taken.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The file.
    pub(crate) file: ChangeFile,
    /// The steps taken.
    pub(crate) range: StepRange,
}

/// The file that leads furthest from `after`, if any does and the others agree with it.
pub(crate) fn link(folder: &Folder, view: &View, after: Step) -> Result<Option<Link>> {
    let Some(file) = folder.leading(after) else { return Ok(None) };
    let Some(range) = file.range.after(after) else { return Ok(None) };
    agree(folder, view, file, range)?;
    Ok(Some(Link { file: file.clone(), range }))
}

/// The links from `after` as far as they go, at most to `until`, and the view at their end; `grown` gives the view with
/// which a file leaves the one before it.
pub(crate) fn chain(
    folder: &Folder,
    view: View,
    after: Step,
    until: Option<Step>,
    grown: impl Fn(&ChangeFile, &View) -> Result<View>,
) -> Result<(Vec<Link>, View)> {
    let (mut links, mut reached, mut view) = (Vec::new(), after, view);
    while until.is_none_or(|until| reached < until)
        && let Some(mut link) = link(folder, &view, reached)?
    {
        view = grown(&link.file, &view)?;
        link.range = until.map_or(Some(link.range), |until| link.range.until(until)).unwrap_or(link.range);
        reached = link.range.to();
        links.push(link);
    }
    Ok((links, view))
}

/// Every file that shares steps of `range` with `chosen` must say the same of them once netted.
fn agree(folder: &Folder, view: &View, chosen: &ChangeFile, range: StepRange) -> Result<()> {
    for (other, shared) in folder.sharing(chosen, range) {
        if digest(chosen, view, shared)? != digest(other, view, shared)? {
            return Err(Error::corrupt(format!(
                "{} and {} differ in the steps {shared}; remove the wrong one, and run again",
                chosen.landed, other.landed
            )));
        }
    }
    Ok(())
}

/// The digest of a file's netted changes in `range`. Netting stops at the end of a step, so it can be summed over pieces.
/// Each file is taken with its own columns, because a column of nulls does not count.
fn digest(file: &ChangeFile, view: &View, range: StepRange) -> Result<Digest> {
    let view = &view_of(&file.landed, Holds::Changes, view)?;
    let mut pieces = Pieces::open(file, view, range.from())?;
    let mut digest = Digest::EMPTY;
    while pieces.reached() < range.to()
        && let Some(changes) = pieces.next()?
    {
        let Some(changes) = changes.until(range.to())? else { break };
        let (netted, _) = changes.net(view)?;
        digest = digest.plus(Digest::of(&netted)?);
    }
    Ok(digest)
}
