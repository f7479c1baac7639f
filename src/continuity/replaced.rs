//! Rows that have successors: what an append to a table of layout `current` may do to the files.

use std::collections::HashMap;

use crate::continuity::commit::{Added, Commit, FileId};
use crate::continuity::finding::Rule;
use crate::continuity::form::Fault;
use crate::continuity::history::Live;
use crate::continuity::stamp::{CommitStamp, Layout};

/// The faults of an append that marks rows as deleted in the files that hold them, and adds the rows that came instead;
/// `live` are the live files before it, where known.
pub(super) fn faults(commit: &Commit, stamp: &CommitStamp, live: Option<&HashMap<FileId, Live>>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let added: HashMap<&str, &Added> = commit.adds.iter().map(|add| (add.file.path.as_str(), add)).collect();
    let removed: HashMap<&str, &FileId> = commit.removes.iter().map(|r| (r.file.path.as_str(), &r.file)).collect();
    unmarked(commit, &mut faults);
    new_files(commit, stamp, &removed, &mut faults);
    if let Some(live) = live {
        older_files(stamp, &added, &removed, live, &mut faults);
    }
    faults
}

/// Whatever the commit does changes rows, and says so.
fn unmarked(commit: &Commit, faults: &mut Vec<Fault>) {
    let added = commit.adds.iter().filter(|add| !add.data_change).map(|add| (&add.file.path, "added"));
    let removed = commit.removes.iter().filter(|remove| !remove.data_change).map(|r| (&r.file.path, "removed"));
    if let Some((path, what)) = added.chain(removed).next() {
        faults.push((Rule::Once, Some(path.clone()), format!("the file {path} is {what} as if no rows changed")));
    }
}

/// New files hold the rows that were inserted and updated.
fn new_files(commit: &Commit, stamp: &CommitStamp, removed: &HashMap<&str, &FileId>, faults: &mut Vec<Fault>) {
    let mut rows = 0u64;
    for add in commit.adds.iter().filter(|add| !removed.contains_key(add.file.path.as_str())) {
        let path = &add.file.path;
        let mut fault = |rule, message| faults.push((rule, Some(path.clone()), message));
        if add.file.vector.is_some() {
            fault(Rule::Once, format!("the file {path} is new, and rows of it are deleted"));
        }
        match add.rows {
            Some(more) => rows = rows.saturating_add(more),
            None => fault(Rule::Files, format!("the file {path} is added without a row count")),
        }
    }
    let written = Layout::Current.output_rows(stamp.kind, stamp.rows);
    if rows != written {
        let message = format!("the files added hold {rows} rows, the commit info counts {written}");
        faults.push((Rule::Files, None, message));
    }
}

/// Older files lose the rows that were updated and deleted.
fn older_files(
    stamp: &CommitStamp,
    added: &HashMap<&str, &Added>,
    removed: &HashMap<&str, &FileId>,
    live: &HashMap<FileId, Live>,
    faults: &mut Vec<Fault>,
) {
    let mut deleted = Some(0u64);
    for (path, file) in removed {
        let mut fault = |rule, message| faults.push((rule, Some((*path).to_string()), message));
        let Some(before) = live.get(file) else {
            fault(Rule::Reload, format!("the append removes the file {path}, which was not live"));
            continue;
        };
        let after = added.get(path).map_or(Some(0), |add| add.rows);
        let fewer = match before.rows.zip(after) {
            Some((before, after)) if after >= before => {
                fault(Rule::Files, format!("the file {path} had {before} rows, and has {after} with another vector"));
                None
            }
            known => known.map(|(before, after)| before - after),
        };
        deleted = deleted.zip(fewer).map(|(sum, fewer)| sum.saturating_add(fewer));
    }
    let counted = stamp.rows.u.saturating_add(stamp.rows.d);
    if let Some(deleted) = deleted.filter(|deleted| *deleted != counted) {
        let message = format!("{deleted} rows of older files are deleted, the commit info counts {counted}");
        faults.push((Rule::Files, None, message));
    }
}
