//! What changes a table's values without a row that changes, and so without a word in the server's log.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::spelling::Spelling;

/// How a table stands in the catalogs, as far as the values of its rows depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    /// Every transaction below this number was over when it was looked at.
    pub(crate) since: u64,
    /// Whether the publication has the table because it has all, of the database or of a schema: the server then lets it be
    /// unlogged for a while.
    pub(crate) is_swept: bool,
    /// The table, or its partitions, that hold rows.
    pub(super) files: Vec<File>,
    /// The columns.
    pub(super) columns: Vec<Entry>,
    /// The types of users by which values are printed, and what they are made of.
    pub(super) types: Vec<Spelling>,
}

/// Where rows are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct File {
    /// The number of the table or partition.
    pub(super) part: u32,
    /// The file; another one once it was truncated or rewritten.
    pub(super) file: u32,
    /// Whether it was a table of its own before it was a partition.
    pub(super) is_adopted: bool,
    /// Whether it is a partition.
    pub(super) is_part: bool,
    /// Which transaction wrote what the catalogs say of it, and which ones what they say of its indexes and of its large
    /// values: whoever empties or rewrites it writes all of that, and whoever alters it only the first.
    pub(super) writer: String,
    pub(super) deep_writers: BTreeSet<String>,
    /// By which entries it became a partition: the transactions, and the numbers of their commands.
    pub(super) links: (Vec<String>, Vec<i64>),
}

/// What the catalogs say of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its name, by which the log would tell of another one.
    pub(super) name: String,
    /// Its number, its type, and what its declaration adds to that.
    pub(super) column: (i16, u32, i32),
    /// Which transaction wrote the entry.
    pub(super) written: String,
    /// What its values are in a table and the function that prints them; `None` for a generated one, of which nothing is told.
    pub(super) told: Option<(String, String)>,
    /// Whether rows from before have values in it, because they were written anew when it was added.
    pub(super) is_filled: bool,
}

/// What two looks at the catalogs show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The log tells of all that happened.
    Told,
    /// It does not.
    Untold(String),
    /// It does if each of these was emptied at last by one of its transactions.
    IfEmptied(Vec<BTreeSet<String>>),
}

impl Form {
    /// The parts whose rows are in another file at `later`, by TRUNCATE or by whatever moves or rewrites rows.
    pub(crate) fn moved(&self, later: &Self) -> Vec<u32> {
        let is_moved = |file: &&File| {
            let other = later.files.iter().find(|other| other.part == file.part);
            other.is_some_and(|other| other.file != file.file)
        };
        self.files.iter().filter(is_moved).map(|file| file.part).collect()
    }

    /// The columns of `later` with what is known of them from before: those that came with a file that was `written` anew.
    pub(crate) fn fill(&self, later: &mut Self) {
        let is_written = !self.moved(later).is_empty();
        for entry in &mut later.columns {
            let before = self.columns.iter().find(|before| before.column.0 == entry.column.0);
            entry.is_filled = before.map_or(is_written, |before| before.is_filled);
        }
    }

    /// Whether rows from before the column `name` have values in it.
    pub(crate) fn is_filled(&self, name: &str) -> bool {
        self.columns.iter().any(|entry| entry.name == name && entry.is_filled)
    }

    /// The partitions of `later` that are there since this, each with the transactions and commands that made it one.
    pub(crate) fn joined(&self, later: &Self) -> Vec<(u32, Vec<String>, Vec<i64>)> {
        let is_there = |part: u32| self.files.iter().any(|file| file.part == part);
        let joined = later.files.iter().filter(|file| !is_there(file.part)).cloned();
        joined.map(|File { part, links: (transactions, commands), .. }| (part, transactions, commands)).collect()
    }

    /// The types of users by which values are printed.
    pub(crate) fn types(&self) -> impl Iterator<Item = u32> {
        self.types.iter().map(|spelling| spelling.oid)
    }

    /// What happened between this and `later`. `kept` are the parts in whose files are rows from before.
    ///
    /// A file changes by TRUNCATE, which the log tells of a whole table, by what only moves rows, and then older rows are in
    /// it, and by what writes rows anew. The entry of a column changes by constraints and defaults, and by what makes other
    /// values of it.
    pub(crate) fn compare(&self, later: &Self, kept: &BTreeSet<u32>) -> Verdict {
        let untold = |why: &str| Verdict::Untold(format!("{why}, and no row of that is told"));
        let parts = |form: &Self| form.files.iter().map(|file| file.part).collect::<BTreeSet<_>>();
        let (before, after) = (parts(self), parts(later));
        if !before.is_subset(&after) {
            return untold("a partition of it was detached or dropped");
        }
        if later.files.iter().any(|file| file.is_adopted && !before.contains(&file.part)) {
            return untold("a table was attached to it as a partition");
        }
        let other = |spelling: &Spelling| {
            let other = later.types.iter().find(|other| other.oid == spelling.oid);
            other.filter(|other| !spelling.leads_to(other)).map(|other| other.name.clone())
        };
        if let Some(name) = self.types.iter().find_map(other) {
            return untold(&format!("the type {name} was altered, so its values have other texts"));
        }
        if self.columns.iter().any(|entry| later.columns.iter().any(|other| entry.is_replaced(other))) {
            return untold("a column of it was dropped and made again, or has the name of another");
        }
        let same = |entry: &Entry| later.columns.iter().find(|other| other.column.0 == entry.column.0).cloned();
        let pairs: Vec<(&Entry, Entry)> = self.columns.iter().filter_map(|entry| Some((entry, same(entry)?))).collect();
        if let Some((_, other)) = pairs.iter().find(|(entry, other)| entry.has_other_texts(other)) {
            return untold(&format!(
                "the column {:?} of it has another type, whose values have other texts",
                other.name
            ));
        }
        let moved = self.moved(later);
        // The first file of a table has the table's number.
        let is_new = |file: &File| file.is_part && file.file != file.part && !before.contains(&file.part);
        let is_anew = |file: &File| moved.contains(&file.part) && !kept.contains(&file.part);
        let anew: Vec<&File> = later.files.iter().filter(|file| is_anew(file) || is_new(file)).collect();
        if anew.is_empty() {
            return Verdict::Told;
        }
        if pairs.iter().any(|(entry, other)| entry.is_altered(other)) {
            return untold("its rows were written anew by ALTER TABLE");
        }
        let is_explained = |file: &&File| {
            let is_new = |entry: &Entry| !pairs.iter().any(|(_, other)| other.column.0 == entry.column.0);
            let is_other = |entry: &Entry| pairs.iter().any(|(before, other)| other == entry && *before != other);
            let columns = later.columns.iter().filter(|entry| is_new(entry) || is_other(entry));
            let is_deep = |written: &String| file.deep_writers.iter().eq([written]);
            columns.map(|entry| &entry.written).any(is_deep)
        };
        let doubtful = anew.iter().filter(|file| file.is_part || later.is_swept).filter(|file| !is_explained(file));
        let writers = |file: &File| file.deep_writers.iter().chain([&file.writer]).cloned().collect();
        let doubtful: Vec<_> = doubtful.map(|file| writers(file)).collect();
        if doubtful.is_empty() { Verdict::Told } else { Verdict::IfEmptied(doubtful) }
    }
}

impl Entry {
    /// Whether `other` has its name and is another column, which looks the same in a table.
    fn is_replaced(&self, other: &Self) -> bool {
        self.name == other.name && self.column.0 != other.column.0 && self.has_kind_of(other)
    }

    /// Whether both have the same type in a table.
    fn has_kind_of(&self, other: &Self) -> bool {
        let kind = |entry: &Self| entry.told.as_ref().map(|(kind, _)| kind.clone());
        self.told.is_some() && kind(self) == kind(other)
    }

    /// Whether `other`, the same column at another time, has other texts of the same values, and nobody would see it.
    fn has_other_texts(&self, other: &Self) -> bool {
        self.has_kind_of(other) && self.told != other.told
    }

    /// Whether something was done to what `other` is now that a table does not show: it has the same values in a table.
    fn is_altered(&self, other: &Self) -> bool {
        self.written != other.written && self.name == other.name && self.has_kind_of(other)
    }
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
