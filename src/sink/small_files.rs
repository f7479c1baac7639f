//! The data files of a changelog that are small enough to be joined.
//!
//! ```text
//!   look ── all small files at a version ──┐
//!   appends since ── theirs ───────────────┴──► those at the head; nothing is known once others may have committed
//! ```

use std::collections::BTreeMap;

use super::row_files::RowFile;
use crate::files::DataFile;
use crate::log::LiveFile;

/// The most that are held.
const MOST: usize = 10_000;

/// Small files by numbers that nobody else knows; older ones have smaller numbers where one look found both.
#[derive(Debug)]
pub(super) struct SmallFiles {
    /// The size that files aim at.
    target: u64,
    files: BTreeMap<u32, RowFile>,
    next: u32,
    /// At which they are live; `None` where the files are not known.
    version: Option<u64>,
    /// Whether there are more than are held.
    is_cut: bool,
}

impl SmallFiles {
    /// Nothing is known yet.
    pub(super) fn new(target: u64) -> Self {
        Self { target, files: BTreeMap::new(), next: 0, version: None, is_cut: false }
    }

    /// Those at `version`, where they are known.
    pub(super) fn at(&self, version: Option<u64>) -> Option<&BTreeMap<u32, RowFile>> {
        (version.is_some() && self.version == version).then_some(&self.files)
    }

    /// The number of the file that comes next.
    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Others may have committed.
    pub(super) fn doubt(&mut self) {
        *self = Self { next: self.next, ..Self::new(self.target) };
    }

    /// Somebody looks at the files of `version`; what is appended meanwhile is known already.
    pub(super) fn begin_look(&mut self, version: u64) {
        *self = Self { next: self.next, version: Some(version), ..Self::new(self.target) };
    }

    /// Takes the `files` that were looked at; not when others may have committed since.
    pub(super) fn looked(&mut self, mut files: Vec<LiveFile>) {
        if self.version.is_some() {
            files.sort_by(|a, b| (a.steps, &a.path).cmp(&(b.steps, &b.path)));
            files.into_iter().filter_map(file_of).for_each(|file| self.insert(file));
        }
    }

    /// A load, committed as `version`, left these files alone.
    pub(super) fn loaded(&mut self, files: &[DataFile], version: u64) {
        self.begin_look(version);
        files.iter().for_each(|file| self.insert(RowFile::new(file, 0)));
    }

    /// An append, committed as `version`, added these files.
    pub(super) fn appended(&mut self, files: &[DataFile], version: u64) {
        if self.follows(version) {
            files.iter().for_each(|file| self.insert(RowFile::new(file, 0)));
        }
    }

    /// Files were joined by a commit of ours, `version`: by their numbers what they are from there on, `None` for those that
    /// are gone.
    pub(super) fn joined(&mut self, files: BTreeMap<u32, Option<RowFile>>, version: u64) {
        if !self.follows(version) {
            return;
        }
        for (number, file) in files {
            self.files.remove(&number);
            if let Some(file) = file {
                self.insert(file);
            }
        }
        if self.is_cut && self.files.len() < MOST / 2 {
            self.doubt();
        }
    }

    /// A commit of ours that named no files.
    pub(super) fn stay(&mut self, version: u64) {
        self.follows(version);
    }

    /// Whether the files are known up to `version`, a commit of ours.
    fn follows(&mut self, version: u64) -> bool {
        let follows = self.version.is_some_and(|before| before + 1 == version);
        if follows {
            self.version = Some(version);
        } else if self.version != Some(version) {
            self.doubt();
        }
        follows
    }

    fn insert(&mut self, mut file: RowFile) {
        if file.live.size.unsigned_abs() >= self.target / 2 {
            return;
        }
        if self.files.len() >= MOST {
            self.is_cut = true;
            return;
        }
        // It is added as it is by nobody again.
        file.stats = None;
        self.files.insert(self.next, file);
        self.next += 1;
    }
}

/// A file of which every row is known to be live; `None` for others.
fn file_of(live: LiveFile) -> Option<RowFile> {
    let rows = live.rows.filter(|_| live.vector.is_none())?;
    Some(RowFile::whole(live, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 1000;

    fn live(name: &str, size: i64, steps: Option<(i64, i64)>) -> LiveFile {
        LiveFile {
            path: name.into(),
            vector: None,
            partition_values: BTreeMap::new(),
            size,
            modified_millis: 0,
            rows: Some(3),
            steps,
            base_row_id: None,
            default_row_commit_version: None,
            digest: None,
        }
    }

    fn paths(files: &SmallFiles, version: u64) -> Option<Vec<&str>> {
        files.at(Some(version)).map(|files| files.values().map(|file| file.live.path.as_str()).collect())
    }

    #[test]
    fn what_a_look_finds_is_known_with_what_came_meanwhile() {
        let mut files = SmallFiles::new(TARGET);
        assert_eq!(files.at(None).map(BTreeMap::len), None, "no table, no files");
        files.begin_look(7);
        files.stay(8);
        let vector = LiveFile { vector: Some(serde_json::json!({})), ..live("v", 10, None) };
        files.looked(vec![live("b", 10, Some((5, 6))), live("a", 10, Some((1, 2))), live("large", 500, None), vector]);
        assert_eq!(
            paths(&files, 8),
            Some(vec!["a", "b"]),
            "by their steps, without large ones and those with a vector"
        );
        assert_eq!(paths(&files, 7), None);
    }

    #[test]
    fn nothing_is_known_once_others_may_have_committed() {
        let mut files = SmallFiles::new(TARGET);
        files.begin_look(7);
        files.doubt();
        files.looked(vec![live("a", 10, None)]);
        assert_eq!(paths(&files, 7), None, "a look that began before tells nothing");
        files.begin_look(9);
        files.stay(11);
        assert_eq!(paths(&files, 11), None, "a version between was another's");
    }

    #[test]
    fn the_rest_of_many_files_is_looked_at_when_those_that_are_held_were_joined() {
        let mut files = SmallFiles::new(TARGET);
        files.begin_look(1);
        let many = (0..MOST as i64 + 5).map(|n| live(&format!("f{n}"), 10, Some((n, n))));
        files.looked(many.collect());
        assert_eq!(files.at(Some(1)).unwrap().len(), MOST);
        let first = |many: u32| (0..many).map(|number| (number, None)).collect();
        files.joined(first(10), 2);
        assert_eq!(files.at(Some(2)).unwrap().len(), MOST - 10);
        files.joined(first(MOST as u32 / 2 + 1), 3);
        assert_eq!(paths(&files, 3), None);
    }
}
