//! The names of the log's files.

use std::collections::{BTreeMap, BTreeSet};

/// What a file in the log's folder is, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogName {
    /// A version's entry.
    Entry(u64),
    /// A checkpoint of a version, in one file or a part of several.
    Checkpoint(u64, Option<Part>),
    /// A version's checksum.
    Checksum(u64),
    /// The entries of several versions in one; the last of them.
    Compacted(u64),
}

/// Which part of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    number: u64,
    pub(super) of: u64,
}

impl LogName {
    /// The version that it speaks of; of several the last.
    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Entry(version)
            | Self::Checkpoint(version, _)
            | Self::Checksum(version)
            | Self::Compacted(version) => *version,
        }
    }

    /// Reads a name; `None` for a file that is none of these.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let words: Vec<&str> = name.split('.').collect();
        match words.as_slice() {
            [version, "json"] => Some(Self::Entry(number(version, 20)?)),
            [version, "crc"] => Some(Self::Checksum(number(version, 20)?)),
            [version, "checkpoint", "parquet"] => Some(Self::Checkpoint(number(version, 20)?, None)),
            [version, "checkpoint", part, of, "parquet"] => {
                let part = Part { number: number(part, 10)?, of: number(of, 10)? };
                Some(Self::Checkpoint(number(version, 20)?, Some(part)))
            }
            [version, "checkpoint", _, "parquet" | "json"] => Some(Self::Checkpoint(number(version, 20)?, None)),
            [first, last, "compacted", "json"] => {
                number(first, 20)?;
                Some(Self::Compacted(number(last, 20)?))
            }
            _ => None,
        }
    }
}

fn number(digits: &str, length: usize) -> Option<u64> {
    (digits.len() == length).then(|| digits.parse().ok()).flatten()
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFile {
    /// The version of the checkpoint.
    pub version: u64,
    /// The name in the log's folder.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// Whether the checkpoint is one file, or has all its parts.
    pub is_complete: bool,
}

/// What the folder of the log holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The versions whose entries are there.
    pub versions: BTreeSet<u64>,
    /// The versions with a whole checkpoint, by its name.
    pub checkpoints: BTreeSet<u64>,
    /// The highest version that the name of any other file speaks of, and that name.
    pub others: Option<(u64, String)>,
    /// The versions whose entries have no bytes.
    pub(super) empty: BTreeSet<u64>,
    whole: Vec<(u64, String, u64)>,
    parts: BTreeMap<(u64, u64), BTreeMap<u64, (String, u64)>>,
}

impl Listing {
    /// The newest version that an entry or a whole checkpoint is of.
    pub fn head(&self) -> Option<u64> {
        self.versions.last().copied().max(self.checkpoints.last().copied())
    }

    /// The files of all checkpoints, in the order of their versions.
    pub fn checkpoint_files(&self) -> Vec<CheckpointFile> {
        let file = |version, name: &str, size, is_complete| CheckpointFile {
            version,
            name: name.to_string(),
            size,
            is_complete,
        };
        let mut files: Vec<_> =
            self.whole.iter().map(|(version, name, size)| file(*version, name, *size, true)).collect();
        for ((version, of), found) in &self.parts {
            files.extend(found.values().map(|(name, size)| file(*version, name, *size, found.len() as u64 == *of)));
        }
        files.sort_by(|a, b| (a.version, &a.name).cmp(&(b.version, &b.name)));
        files
    }

    /// Takes in one file of the folder.
    pub(super) fn take(&mut self, name: &str, size: u64) {
        match LogName::parse(name) {
            Some(LogName::Entry(version)) => {
                self.versions.insert(version);
                if size == 0 {
                    self.empty.insert(version);
                }
            }
            Some(LogName::Checkpoint(version, None)) => {
                self.checkpoints.insert(version);
                self.whole.push((version, name.to_string(), size));
            }
            Some(LogName::Checkpoint(version, Some(part))) => {
                let found = self.parts.entry((version, part.of)).or_default();
                found.insert(part.number, (name.to_string(), size));
                if found.len() as u64 == part.of {
                    self.checkpoints.insert(version);
                }
            }
            Some(LogName::Checksum(version) | LogName::Compacted(version))
                if self.others.as_ref().is_none_or(|(highest, _)| *highest < version) =>
            {
                self.others = Some((version, name.to_string()));
            }
            Some(LogName::Checksum(_) | LogName::Compacted(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let v = "00000000000000000007";
        for (name, expected) in [
            (format!("{v}.json"), Some(LogName::Entry(7))),
            (format!("{v}.crc"), Some(LogName::Checksum(7))),
            (format!("{v}.checkpoint.parquet"), Some(LogName::Checkpoint(7, None))),
            (
                format!("{v}.checkpoint.0000000001.0000000002.parquet"),
                Some(LogName::Checkpoint(7, Some(Part { number: 1, of: 2 }))),
            ),
            (format!("{v}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"), Some(LogName::Checkpoint(7, None))),
            (format!("00000000000000000003.{v}.compacted.json"), Some(LogName::Compacted(7))),
            (format!("{v}.json.tmp"), None),
            ("7.json".to_string(), None),
            ("_last_checkpoint".to_string(), None),
        ] {
            assert_eq!(LogName::parse(&name), expected, "{name}");
        }
    }

    #[test]
    fn a_checkpoint_that_lacks_a_part_is_none() {
        let mut listing = Listing::default();
        let part = |n: u64| format!("00000000000000000009.checkpoint.{n:010}.0000000003.parquet");
        listing.take(&part(1), 5);
        listing.take(&part(3), 5);
        assert!(listing.checkpoints.is_empty() && listing.checkpoint_files().iter().all(|f| !f.is_complete));
        listing.take(&part(2), 5);
        assert!(listing.checkpoints.contains(&9) && listing.checkpoint_files().iter().all(|f| f.is_complete));
    }
}
