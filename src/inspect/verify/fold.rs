//! The entries of the log, folded in order.

use std::collections::{BTreeSet, HashMap};

use futures::StreamExt;

use super::loaded;
use super::repair::CHECKPOINT;
use crate::continuity::commit::{Commit, FileId};
use crate::continuity::finding::Rule;
use crate::continuity::history::{History, Live};
use crate::continuity::stamp::Kind;
use crate::error::{ErrorKind, Result};
use crate::log::Log;
use crate::step::Step;

/// What a version does to what stood before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trace {
    /// The version.
    pub(super) version: u64,
    /// Where a commit of ours starts; `None` for one of others, and for a reload.
    pub(super) from: Option<Step>,
    /// Whether it is of ours.
    pub(super) is_ours: bool,
    /// Whether it removes files.
    pub(super) removes: bool,
}

/// Folds the entries. Whose the table was before the first commit of ours shows in that commit: a reload may have taken
/// it from others, anything else follows commits of ours that the log no longer holds.
pub(super) async fn fold(
    log: &Log,
    checkpoints: &BTreeSet<u64>,
    versions: Vec<u64>,
    history: &mut History,
    ours: bool,
) -> Result<Vec<Trace>> {
    let mut undecided: Vec<Commit> = Vec::new();
    let mut traces = Vec::with_capacity(versions.len());
    let from_the_middle = versions.first().is_some_and(|first| *first > 0);
    let mut is_decided = !from_the_middle;
    let mut commits = std::pin::pin!(log.commits(versions));
    while let Some((version, commit)) = commits.next().await {
        let file = || format!("{version:020}.json");
        let commit = match commit {
            Ok(Some(commit)) => commit,
            Ok(None) => {
                history.find_file(
                    version,
                    Rule::Files,
                    file(),
                    format!("the log entry of version {version} is missing"),
                );
                history.skip();
                continue;
            }
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                history.find_file(version, Rule::Files, file(), super::reasons(&e));
                history.skip();
                continue;
            }
            Err(e) => return Err(e),
        };
        traces.push(Trace {
            version,
            from: commit.stamp().and_then(|s| s.from),
            is_ours: commit.stamp().is_some(),
            removes: !commit.removes.is_empty(),
        });
        let kind = commit.stamp().map(|s| s.kind);
        undecided.push(commit);
        if is_decided || kind.is_some() {
            if !is_decided && kind != Some(Kind::Reload) {
                history.know_as_ours();
            }
            is_decided = true;
            for commit in undecided.drain(..) {
                fold_one(log, checkpoints, history, &commit).await?;
            }
        }
    }
    if ours {
        history.know_as_ours();
    }
    for commit in undecided {
        fold_one(log, checkpoints, history, &commit).await?;
    }
    Ok(traces)
}

/// Folds one entry, and holds what a checkpoint says against it.
async fn fold_one(log: &Log, checkpoints: &BTreeSet<u64>, history: &mut History, commit: &Commit) -> Result<()> {
    history.fold(commit);
    let version = commit.version;
    // Readers begin with the newest one; an older one serves where nothing else tells of the files.
    let is_newest = checkpoints.last() == Some(&version);
    if !is_newest && (history.live().is_some() || !checkpoints.contains(&version)) {
        return Ok(());
    }
    let (Ok(replayed), Ok(files)) = (loaded(log.replay(Some(version)).await)?, loaded(log.live_map_at(version).await)?)
    else {
        return Ok(());
    };
    let name = format!("{version:020}{CHECKPOINT}");
    if let Some(last) = history.last().map(|l| l.stamp.clone()) {
        for (what, found, expected) in
            [("step", replayed.step, last.to.as_i64()), ("epoch", replayed.epoch, last.epoch.as_i64())]
        {
            if found != Some(expected) {
                let found = found.map_or("nothing".to_string(), |n| n.to_string());
                let message =
                    format!("the checkpoint of version {version} says {what} {found}, the commits {expected}");
                history.find_file(version, Rule::Files, &name, message);
            }
        }
    }
    history.know_table(replayed.metadata.table());
    match history.live().map(|folded| differing(folded, &files)) {
        Some(Some(difference)) => {
            let message = format!("{difference} the checkpoint of version {version}, the commits say otherwise");
            history.find_file(version, Rule::Files, &name, message);
        }
        Some(None) => {}
        None => history.know_live_files(|| files),
    }
    Ok(())
}

/// How the files of a checkpoint differ from those that the commits give.
fn differing(folded: &HashMap<FileId, Live>, found: &HashMap<FileId, Live>) -> Option<String> {
    let lost = folded.keys().find(|id| !found.contains_key(id)).map(|id| format!("{} is missing from", id.path));
    let odd = || found.keys().find(|id| !folded.contains_key(id)).map(|id| format!("{} is only in", id.path));
    let other = || {
        let (id, live, told) = folded.iter().find_map(|(id, live)| {
            let told = found.get(id).filter(|told| told.size != live.size)?;
            Some((id, live, told))
        })?;
        Some(format!("{} has {} bytes by its add, {} by", id.path, live.size, told.size))
    };
    lost.or_else(odd).or_else(other)
}
