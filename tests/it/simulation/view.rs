//! What the table must be where it is the view: the rows that a commit deletes and adds, and files that are joined.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use twox_hash::{XxHash3_64, XxHash3_128};

use super::feed::{Feed, State};
use super::oracle::{Commit, Oracle, Violation, demand, text};
use super::rows::{File, Row};

impl Row {
    /// A row of a table that is the view.
    pub(super) fn of_view(id: i64, name: Option<String>) -> Self {
        Self { generation: -1, change: (-1, String::new(), id, name) }
    }

    /// The row's digest, as PROTOCOL.md has it.
    fn digest(&self) -> u128 {
        let key = |column: &str| XxHash3_128::oneshot(column.as_bytes()) | 1;
        let name =
            self.change.3.as_ref().map_or(0, |name| (5 << 64) | u128::from(XxHash3_64::oneshot(name.as_bytes())));
        let id = (2 << 64) | u128::from(self.change.2 as u64);
        let sum = id.wrapping_mul(key("id")).wrapping_add(name.wrapping_mul(key("name")));
        XxHash3_128::oneshot(&sum.to_le_bytes())
    }
}

/// The view that rows are, each of another key.
pub(super) fn state<'a>(rows: impl Iterator<Item = &'a Row>) -> Result<State, Violation> {
    let mut state = State::new();
    for row in rows {
        let (step, op, id, name) = &row.change;
        demand(*step == -1 && op.is_empty() && row.generation == -1, || format!("{row:?} is no row of the view"))?;
        demand(state.insert(*id, name.clone()).is_none(), || format!("two rows have the key {id}"))?;
    }
    Ok(state)
}

/// The digest of the rows that are left in `files`.
fn digest<'a>(files: impl Iterator<Item = &'a File>) -> u128 {
    files.flat_map(File::left).fold(0, |sum, row| sum.wrapping_add(row.digest()))
}

fn hexadecimal(stamp: &Value, key: &str) -> Result<u128, Violation> {
    u128::from_str_radix(text(stamp, key)?, 16).map_err(|e| format!("{key} is {}: {e}", stamp[key]))
}

impl Oracle {
    /// An append of the steps up to `to` deletes rows where they stand, and adds what comes.
    pub(super) fn judge_replaced(&mut self, commit: &Commit, feed: &Feed, to: u64) -> Result<(), Violation> {
        demand(commit.changes_data, || "an append says that it changes no rows".into())?;
        let added: BTreeSet<&str> = commit.adds.iter().filter_map(|file| file.add["path"].as_str()).collect();
        for file in &commit.adds {
            let path = text(&file.add, "path")?;
            match commit.gone.get(path) {
                Some(before) => {
                    let grows = file.deleted.is_superset(&before.deleted) && file.deleted != before.deleted;
                    demand(grows, || format!("{path} is added again without more rows deleted"))?;
                    demand((file.deleted.len() as usize) < file.rows.len(), || format!("nothing is left of {path}"))?;
                    self.moved.vectors += 1;
                    self.moved.stored += u64::from(file.add["deletionVector"]["storageType"] == "u");
                }
                None => {
                    demand(file.add.get("deletionVector").is_none(), || format!("{path} begins with a vector"))?;
                    demand(!self.named.contains(path), || format!("{path} comes back"))?;
                }
            }
        }
        // Rows that go are deleted where they stand, and nothing else is.
        let (was, is) = (feed.state(self.last_step), feed.state(to));
        let goes = |id: &i64| was.get(id) != is.get(id);
        for (path, file) in &commit.gone {
            let lost = file.left().all(|row| goes(&row.change.2));
            demand(added.contains(path.as_str()) || lost, || format!("{path} is removed, and rows of it stay"))?;
        }
        let comes = commit.adds.iter().filter(|file| !commit.gone.contains_key(text(&file.add, "path").unwrap_or("")));
        let found = state(comes.flat_map(File::left))?;
        let expected: State = is.iter().filter(|(id, _)| goes(id)).map(|(id, name)| (*id, name.clone())).collect();
        demand(found == expected, || format!("the new files have {found:?}, expected {expected:?}"))?;
        let count = |op: &str| commit.stamp["rows"][op].as_u64().unwrap_or(0);
        let inserted = is.keys().filter(|id| !was.contains_key(id)).count() as u64;
        let updated = is.iter().filter(|(id, name)| was.get(id).is_some_and(|before| before != *name)).count() as u64;
        let deleted = was.keys().filter(|id| !is.contains_key(id)).count() as u64;
        let (says, expected) = ([count("i"), count("u"), count("d")], [inserted, updated, deleted]);
        demand(says == expected, || format!("the rows are counted as {says:?}, expected {expected:?}"))
    }

    /// Files were joined: the same rows stand in another one.
    pub(super) fn judge_joined(&mut self, commit: &Commit) -> Result<(), Violation> {
        demand(commit.keeps_data, || "joining files says that it changes rows".into())?;
        demand(!commit.gone.is_empty() && commit.adds.len() <= 1, || "no files are joined to one".into())?;
        let rows = |files: &mut dyn Iterator<Item = &File>| {
            let mut rows: BTreeMap<Row, u64> = BTreeMap::new();
            files.flat_map(File::left).for_each(|row| *rows.entry(row.clone()).or_default() += 1);
            rows
        };
        let (before, after) = (rows(&mut commit.gone.values()), rows(&mut commit.adds.iter()));
        demand(before == after, || format!("joining files makes {after:?} of {before:?}"))?;
        for file in &commit.adds {
            let path = text(&file.add, "path")?;
            demand(!self.named.contains(path), || format!("{path} comes back"))?;
            self.moved.joined_with_deleted += u64::from(!file.deleted.is_empty());
        }
        self.moved.joins += 1;
        Ok(())
    }

    /// A commit's digests are those of the rows; where others changed rows before it, it changes none.
    pub(super) fn judge_digest(&mut self, commit: &Commit) -> Result<(), Violation> {
        let (own, total) = (hexadecimal(&commit.stamp, "digest")?, hexadecimal(&commit.stamp, "digest_total")?);
        let before = if commit.stamp["kind"] == "reload" { 0 } else { self.digest };
        demand(before.wrapping_add(own) == total, || format!("the digest goes to {total:032x} from {before:032x}"))?;
        let found = digest(self.live.values());
        demand(self.drift.is_some() || found == total, || format!("the digest of the rows is {found:032x}"))?;
        for file in &commit.adds {
            // Of all rows that were written to it, deleted ones included.
            let whole = file.rows.iter().fold(0, |sum: u128, row| sum.wrapping_add(row.digest()));
            let tag = &file.add["tags"]["cutover.digest"];
            let is_ours = text(&file.add, "path")?.starts_with("cutover-");
            demand(!is_ours || tag == &format!("{whole:032x}"), || {
                format!("a file's digest is {tag}, not {whole:032x}")
            })?;
        }
        self.digest = total;
        Ok(())
    }
}

#[test]
fn the_digest_of_a_row_is_that_of_the_protocol() {
    let rows = [Row::of_view(1, Some("ä".into())), Row::of_view(2, Some(String::new()))];
    let sum = rows.iter().fold(0, |sum: u128, row| sum.wrapping_add(row.digest()));
    assert_eq!(format!("{sum:032x}"), "b42bfe5b00ef7c7704afd342bbc2b309");
}
