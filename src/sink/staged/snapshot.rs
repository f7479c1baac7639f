//! All parts of a snapshot, each of them once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use super::manifest::{Frame, Manifest};
use crate::error::{Error, Result};
use crate::files::Written;

/// How many missing parts are named.
const NAMED: usize = 10;

/// A snapshot all of whose parts are staged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSnapshot {
    frame: Frame,
    written: Written,
    spare: usize,
}

impl StagedSnapshot {
    /// The snapshot whose parts these manifests are, each with the name that messages give it.
    ///
    /// A part that workers wrote more than once counts once: the attempt with the lowest id does, whatever the order.
    /// Refused: a part is missing, two of a part have other rows, or two are of different snapshots or tables.
    pub fn of(manifests: Vec<(String, Manifest)>) -> Result<Self> {
        let Some((first, frame)) = manifests.first().map(|(name, manifest)| (name.clone(), manifest.snapshot.clone()))
        else {
            return Err(Error::refused("no manifest is given; name those of all parts"));
        };
        let given = manifests.len();
        let mut chosen: BTreeMap<u32, (String, Manifest)> = BTreeMap::new();
        for (name, manifest) in manifests {
            if let Some(difference) = manifest.snapshot.difference(&frame)? {
                return Err(Error::refused(format!(
                    "{name} does not belong to {first}: {difference}; give the manifests of one snapshot"
                )));
            }
            match chosen.entry(manifest.part) {
                Entry::Vacant(place) => {
                    place.insert((name, manifest));
                }
                Entry::Occupied(mut place) => {
                    let (other_name, other) = place.get();
                    if (other.rows, other.digest) != (manifest.rows, manifest.digest) {
                        return Err(Error::refused(format!(
                            "{other_name} and {name} are both {manifest}, and have other rows: {} with the digest {}, and {} with the digest {}; find out which is right, and leave the other out",
                            other.rows, other.digest, manifest.rows, manifest.digest
                        )));
                    }
                    if manifest.attempt < other.attempt {
                        place.insert((name, manifest));
                    }
                }
            }
        }
        let missing: Vec<String> =
            (1..=frame.parts).filter(|part| !chosen.contains_key(part)).map(|part| part.to_string()).collect();
        if !missing.is_empty() {
            let named = missing.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if missing.len() > NAMED { ", …" } else { "" };
            return Err(Error::refused(format!(
                "{} of the {} parts of the snapshot {} are missing: {named}{more}; stage them, and give the manifests of all",
                missing.len(),
                frame.parts,
                frame.id
            )));
        }
        let spare = given - chosen.len();
        let mut written = Written::default();
        chosen.into_values().for_each(|(_, manifest)| written.absorb(manifest.written()));
        let paths: HashSet<&str> = written.files.iter().map(|file| file.path.as_str()).collect();
        if paths.len() < written.files.len() {
            return Err(Error::corrupt("two parts name the same file; stage one of them again"));
        }
        Ok(Self { frame, written, spare })
    }

    /// What the parts have in common.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// The rows of all parts.
    pub fn rows(&self) -> u64 {
        self.written.rows
    }

    /// How many manifests were given beyond one for each part.
    pub fn spare(&self) -> usize {
        self.spare
    }

    /// Refuses a snapshot that does not have just so many rows.
    pub fn check_rows(&self, rows: u64) -> Result<()> {
        if self.written.rows == rows {
            return Ok(());
        }
        Err(Error::refused(format!(
            "the parts of the snapshot {} have {} rows, and {rows} are expected; find the part that is wrong, and stage it again",
            self.frame.id, self.written.rows
        )))
    }

    /// The files of all parts.
    pub(in crate::sink) fn written(&self) -> &Written {
        &self.written
    }

    pub(in crate::sink) fn into_written(self) -> Written {
        self.written
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
