//! What changes a table's values without a row that changes, and so without a word in the server's log.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// How a table stands in the catalogs, as far as the values of its rows depend on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    /// The table, or its partitions, that hold rows.
    pub(super) files: Vec<File>,
    /// The columns.
    pub(super) columns: Vec<Entry>,
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
}

impl Form {
    /// What happened between this and `later` that the log does not tell; `None` where nothing did.
    ///
    /// Files change by TRUNCATE, which the log tells, and by what only moves rows; entries by constraints and defaults. Of a
    /// statement that makes other values of a column, and keeps its type, both change. Of a single partition TRUNCATE is not
    /// told, and its file tells no more than that something was done to it alone.
    pub(crate) fn untold(&self, later: &Self) -> Option<&'static str> {
        let parts = |form: &Self| form.files.iter().map(|file| file.part).collect::<BTreeSet<_>>();
        let (before, after) = (parts(self), parts(later));
        if !before.is_subset(&after) {
            return Some("a partition of it was detached or dropped, and no row of that is told");
        }
        if later.files.iter().any(|file| file.is_adopted && !before.contains(&file.part)) {
            return Some("a table was attached to it as a partition, and no row of that is told");
        }
        let is_moved =
            |file: &&File| later.files.iter().any(|other| other.part == file.part && other.file != file.file);
        let moved = self.files.iter().filter(is_moved).count();
        if moved > 0 && moved < self.files.len() {
            return Some("a partition of it was emptied or rewritten by itself, and no row of that is told");
        }
        let is_replaced = |entry: &Entry| {
            let ((number, kind, more), name) = (entry.column, &entry.name);
            let is_there = |other: &Entry| other.name == *name && other.column.0 != number;
            later.columns.iter().any(|other| is_there(other) && (other.column.1, other.column.2) == (kind, more))
        };
        if self.columns.iter().any(is_replaced) {
            return Some(
                "a column of it was dropped and made again, or has the name of another, and no row of that is told",
            );
        }
        let is_altered = |entry: &Entry| {
            let is_same = |other: &&Entry| other.column == entry.column && other.name == entry.name;
            later.columns.iter().filter(is_same).any(|other| other.written != entry.written)
        };
        (moved > 0 && self.columns.iter().any(is_altered))
            .then_some("its rows were written anew by ALTER TABLE, and no row of that is told")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(files: &[(u32, u32, bool)], columns: &[(i16, u32, &str)]) -> Form {
        named("v", files, columns)
    }

    fn named(name: &str, files: &[(u32, u32, bool)], columns: &[(i16, u32, &str)]) -> Form {
        let file =
            |(part, file, is_adopted): &(u32, u32, bool)| File { part: *part, file: *file, is_adopted: *is_adopted };
        let entry = |(number, kind, written): &(i16, u32, &str)| Entry {
            name: format!("{name}{number}"),
            column: (*number, *kind, -1),
            written: (*written).into(),
        };
        Form { files: files.iter().map(file).collect(), columns: columns.iter().map(entry).collect() }
    }

    #[test]
    fn what_the_log_does_not_tell_is_seen_in_the_catalogs() {
        let before = form(&[(1, 1, false)], &[(1, 23, "7"), (2, 25, "7")]);
        for (later, expected) in [
            (before.clone(), None),
            // TRUNCATE, VACUUM FULL.
            (form(&[(1, 9, false)], &[(1, 23, "7"), (2, 25, "7")]), None),
            // SET NOT NULL.
            (form(&[(1, 1, false)], &[(1, 23, "8"), (2, 25, "7")]), None),
            // ADD COLUMN with a default that differs from row to row.
            (form(&[(1, 9, false)], &[(1, 23, "7"), (2, 25, "7"), (3, 23, "8")]), None),
            // Another type, of which the log tells.
            (form(&[(1, 9, false)], &[(1, 20, "8"), (2, 25, "7")]), None),
            // Another name, and another type of another column.
            (named("w", &[(1, 9, false)], &[(1, 23, "8"), (2, 20, "8")]), None),
            (form(&[(1, 9, false)], &[(1, 23, "8"), (2, 25, "7")]), Some("written anew")),
            (form(&[(1, 1, false), (2, 2, false)], &[(1, 23, "7"), (2, 25, "7")]), None),
            (form(&[(1, 1, false), (2, 2, true)], &[(1, 23, "7"), (2, 25, "7")]), Some("attached")),
            (form(&[(2, 2, false)], &[(1, 23, "7"), (2, 25, "7")]), Some("detached or dropped")),
        ] {
            is_untold(&before, &later, expected);
        }
        let columns = |all: &[(&str, i16)]| {
            let entry = |(name, number): &(&str, i16)| Entry {
                name: (*name).into(),
                column: (*number, 23, -1),
                written: "7".into(),
            };
            Form { files: Vec::new(), columns: all.iter().map(entry).collect() }
        };
        for (later, expected) in [
            (columns(&[("a", 1), ("c", 2)]), None),
            (columns(&[("a", 1), ("b", 2), ("c", 3)]), None),
            (columns(&[("a", 1), ("b", 3)]), Some("dropped and made again")),
            (columns(&[("b", 1), ("a", 2)]), Some("has the name of another")),
        ] {
            is_untold(&columns(&[("a", 1), ("b", 2)]), &later, expected);
        }
        let parts = |first, second| form(&[(1, first, false), (2, second, false)], &[(1, 23, "7")]);
        for (later, expected) in [
            (parts(1, 2), None),
            // TRUNCATE of the table, which is told.
            (parts(8, 9), None),
            // TRUNCATE, or VACUUM FULL, of a partition.
            (parts(1, 9), Some("emptied or rewritten by itself")),
        ] {
            is_untold(&parts(1, 2), &later, expected);
        }
    }

    fn is_untold(before: &Form, later: &Form, expected: Option<&str>) {
        let untold = before.untold(later);
        assert_eq!(untold.is_some(), expected.is_some(), "{later:?}: {untold:?}");
        assert!(untold.unwrap_or_default().contains(expected.unwrap_or_default()), "{untold:?}");
    }
}
