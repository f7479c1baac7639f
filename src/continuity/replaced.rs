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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continuity::commit::{Author, Removed};
    use crate::continuity::stamp::{CONTRACT, Kind, RowCounts};
    use crate::digest::Digest;
    use crate::epoch::Epoch;
    use crate::generation::Generation;
    use crate::step::Step;

    fn file(path: &str, vector: Option<&str>) -> FileId {
        FileId { path: path.into(), vector: vector.map(str::to_string) }
    }

    fn added(file: FileId, rows: u64) -> Added {
        Added { file, size: 1, rows: Some(rows), data_change: true, partition_values: 0 }
    }

    /// Of ten rows of `a` three more go, all four of `b` go, and five come.
    fn commit() -> (Commit, CommitStamp, HashMap<FileId, Live>) {
        let stamp = CommitStamp {
            cutover: CONTRACT,
            kind: Kind::Append,
            connector: "p/v/c".into(),
            generation: Generation::FIRST,
            epoch: Epoch::FIRST,
            writer: "w".into(),
            commit: "c".into(),
            from: Some(Step::new(1).unwrap()),
            to: Step::new(2).unwrap(),
            rows: RowCounts { i: 1, u: 4, d: 3 },
            digest: Digest::EMPTY,
            digest_total: None,
            rows_total: None,
            source: None,
            strand: None,
            reset: None,
            adopt: None,
        };
        let removed = |file| Removed { file, data_change: true };
        let commit = Commit {
            version: 1,
            millis: None,
            author: Author::Foreign(None),
            adds: vec![added(file("new", None), 5), added(file("a", Some("2")), 6)],
            removes: vec![removed(file("a", Some("1"))), removed(file("b", None))],
            txns: vec![],
            table: None,
            dated_txns: vec![],
            refused_features: vec![],
            unknown_actions: vec![],
            repeated_actions: vec![],
        };
        let live = |rows| Live { size: 1, rows: Some(rows), added_at: 0 };
        let live =
            HashMap::from([(file("a", Some("1")), live(9)), (file("b", None), live(4)), (file("c", None), live(2))]);
        (commit, stamp, live)
    }

    #[test]
    fn rows_that_go_and_come_are_those_that_are_counted() {
        let (commit, stamp, live) = commit();
        assert_eq!(faults(&commit, &stamp, Some(&live)), []);
        assert_eq!(faults(&commit, &stamp, None), [], "what was live is not known");
    }

    #[test]
    fn each_fault_is_found() {
        type Break = fn(&mut Commit, &mut CommitStamp);
        let breaks: [(&str, Break); 8] = [
            ("the files added hold 5 rows", |_, stamp| stamp.rows.i = 2),
            ("7 rows of older files are deleted", |_, stamp| stamp.rows.d = 4),
            ("a had 9 rows, and has 9", |commit, _| commit.adds[1].rows = Some(9)),
            ("new is new, and rows of it are deleted", |commit, _| commit.adds[0].file.vector = Some("v".into())),
            ("new is added without a row count", |commit, _| commit.adds[0].rows = None),
            ("b is removed as if no rows changed", |commit, _| commit.removes[1].data_change = false),
            ("new is added as if no rows changed", |commit, _| commit.adds[0].data_change = false),
            ("d, which was not live", |commit, _| commit.removes[1].file.path = "d".into()),
        ];
        for (words, damage) in breaks {
            let (mut commit, mut stamp, live) = commit();
            damage(&mut commit, &mut stamp);
            let found = faults(&commit, &stamp, Some(&live));
            assert!(found.iter().any(|(.., message)| message.contains(words)), "{words}: {found:?}");
        }
    }
}
