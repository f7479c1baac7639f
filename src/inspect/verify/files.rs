//! The data files: every live one is there with the size that the log says, and its deletion vector as it was written.

use std::borrow::Cow;
use std::collections::HashMap;

use futures::TryStreamExt;
use percent_encoding::percent_decode_str;

use super::{loaded, reasons};
use crate::continuity::commit::FileId;
use crate::continuity::finding::Rule;
use crate::continuity::history::{History, Live};
use crate::continuity::stamp::FILE_PREFIX;
use crate::error::Result;
use crate::log::Log;

/// A live file that is not as the log says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Broken {
    /// The version that added it, where known.
    version: u64,
    rule: Rule,
    path: String,
    message: String,
}

/// Looks at every live file; their number, where they can be told. `knows_all` says that the history has seen every
/// commit, so that a file of ours that it does not know is named by none.
pub(super) async fn check(log: &Log, history: &mut History, head: u64, knows_all: bool) -> Result<Option<usize>> {
    if history.live().is_none() {
        match loaded(log.live_map_at(head).await)? {
            Ok(files) => history.know_live_files(|| files),
            Err(e) => {
                history.find(head, Rule::Files, format!("the live files cannot be told from the log: {}", reasons(&e)));
                return Ok(None);
            }
        }
    }
    let Some(live) = history.live() else { return Ok(None) };
    let many = live.len();
    let mut strays = 0u64;
    let is_stray = |path: &str| {
        let file = || FileId { path: path.to_string(), vector: None };
        knows_all && path.starts_with(FILE_PREFIX) && !history.has_added(&file())
    };
    let broken = broken(log, live, head, |path| strays += u64::from(is_stray(path))).await?;
    for Broken { version, rule, path, message } in broken {
        history.find_file(version, rule, path, message);
    }
    if strays > 0 {
        let message = format!(
            "{strays} data files of ours are named by no version: a writer did not end, is at work, or its newest versions are lost"
        );
        history.note(head, None, message);
    }
    Ok(Some(many))
}

/// The live files of `version` that are gone, have another size, lie outside the table or are live twice, by one listing of
/// the table's folder, and those whose deletion vectors do not read; `other` gets the path of every object that is not live.
pub(super) async fn broken(
    log: &Log,
    live: &HashMap<FileId, Live>,
    version: u64,
    mut other: impl FnMut(&str),
) -> Result<Vec<Broken>> {
    let mut broken = Vec::new();
    let mut wanted: HashMap<Cow<'_, str>, (&FileId, &Live)> = HashMap::with_capacity(live.len());
    let mut note = |id: &FileId, at: &Live, rule, message| {
        broken.push(Broken { version: at.added_at, rule, path: id.path.clone(), message });
    };
    for (id, at) in live {
        if !id.is_inside() {
            note(id, at, Rule::Files, format!("the file {} lies outside the table", id.path));
            continue;
        }
        let path = percent_decode_str(&id.path).decode_utf8_lossy();
        if wanted.insert(path, (id, at)).is_some() {
            let message = format!("the file {} is live twice, with two deletion vectors or spellings", id.path);
            note(id, at, Rule::Once, message);
        }
    }
    let mut objects = std::pin::pin!(log.objects());
    while let Some((path, found)) = objects.try_next().await? {
        match wanted.remove(path.as_ref()) {
            Some((id, at)) if at.size != found => {
                note(id, at, Rule::Files, format!("the file {} has {found} bytes, the log says {}", id.path, at.size));
            }
            Some(_) => {}
            None => other(path.as_ref()),
        }
    }
    for (id, at) in wanted.into_values() {
        note(id, at, Rule::Files, format!("the file {} is gone, the log says {} bytes", id.path, at.size));
    }
    broken.extend(broken_vectors(log, live, version).await?);
    broken.sort();
    Ok(broken)
}

/// The deletion vectors of live files that are gone, lie outside the table or are not what was written.
async fn broken_vectors(log: &Log, live: &HashMap<FileId, Live>, version: u64) -> Result<Vec<Broken>> {
    if live.keys().all(|id| id.vector.is_none()) {
        return Ok(Vec::new());
    }
    let mut broken = Vec::new();
    let mut files = match loaded(log.live_files_at(version).await)? {
        Ok(files) => files,
        Err(e) => {
            let message = format!("the deletion vectors cannot be told from the log: {}", reasons(&e));
            broken.push(Broken { version, rule: Rule::Files, path: format!("{version:020}.json"), message });
            return Ok(broken);
        }
    };
    files.retain(|file| file.vector.is_some());
    let deleted = log.each_deleted_rows(&files).await?;
    for (file, deleted) in files.into_iter().zip(deleted) {
        if let Err(e) = deleted {
            let version = live.get(&file.id()).map_or(version, |at| at.added_at);
            broken.push(Broken { version, rule: Rule::Files, path: file.path, message: reasons(&e) });
        }
    }
    Ok(broken)
}
