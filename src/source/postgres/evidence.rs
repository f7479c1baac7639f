//! What must be known of a server when it is met again, so that another history is never taken for the one that is followed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalog::Form;
use super::message::Lsn;
use crate::disk::Disk;
use crate::error::{Error, Lost, Result};
use crate::state_file::StateFile;
use crate::step::Step;

/// Which server and database it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The number that a cluster gets when it is made; replicas and restored copies have the same.
    pub(super) system: String,
    /// Another one follows each promotion and each recovery to a moment.
    pub(super) timeline: u32,
    /// The database's name.
    pub(super) database: String,
    /// Its number in the cluster.
    pub(super) database_oid: u32,
}

/// A transaction, by which it is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Boundary {
    /// Where its commit ends.
    pub(super) end: Step,
    /// Its number.
    pub(super) xid: u32,
    /// When it was committed, in microseconds since 2000.
    pub(super) committed: i64,
}

/// What is kept of one view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Followed {
    /// The directory of its step log, below that of the view.
    pub(super) log: String,
    /// The table's number: one of the same name that was made later has another.
    pub(super) table_oid: u32,
    /// The columns of the view's key.
    pub(super) key: Vec<String>,
    /// The columns that were told of.
    pub(super) columns: Vec<String>,
    /// How the table stood in the catalogs when it was looked at last.
    pub(super) form: Form,
    /// Its membership in the publication.
    pub(super) membership: String,
    /// Up to here the log has every change. The server is told so afterwards.
    pub(super) complete_to: Step,
    /// Why it is not followed any more, if it was seen that something is missing.
    pub(super) lost: Option<String>,
}

/// What is kept of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Evidence {
    /// Where the history was met.
    #[serde(flatten)]
    pub(super) identity: Identity,
    /// The slot that holds what was not read.
    pub(super) slot: String,
    /// What the slot is asked for.
    pub(super) publication: String,
    /// What tells this history from an earlier one of the same server, which was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<String>,
    /// Up to here the server was told that everything is safe, or is about to be.
    pub(super) told: Step,
    /// The last transaction that any log got.
    pub(super) boundary: Option<Boundary>,
    /// The views, by their names.
    pub(super) views: BTreeMap<String, Followed>,
}

/// What a server says of itself and of the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) identity: Identity,
    /// The end of what it has on disk.
    pub(super) flushed: Step,
    /// The slot; `None` where there is none of the name.
    pub(super) slot: Option<SeenSlot>,
}

/// What a server says of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenSlot {
    /// Up to where it was told that everything is safe.
    pub(super) confirmed: Option<Step>,
    /// Why it gives nothing any more; `None` where it does.
    pub(super) invalid: Option<String>,
}

impl Identity {
    /// What the fingerprints of all histories of this cluster, timeline and database begin with.
    pub(super) fn begins(&self) -> String {
        let Self { system, timeline, database, .. } = self;
        format!("postgres:{system}/{timeline}/{database}/")
    }
}

impl Evidence {
    pub(super) fn new(identity: Identity, slot: &str, publication: &str) -> Self {
        let (slot, publication) = (slot.to_owned(), publication.to_owned());
        Self { identity, slot, publication, history: None, told: Step::ZERO, boundary: None, views: BTreeMap::new() }
    }

    /// What makes two histories the same: steps are positions in the log of this cluster, on this timeline.
    pub(super) fn fingerprint(&self) -> String {
        let history = self.history.as_ref().map(|history| format!("/{history}")).unwrap_or_default();
        format!("{}{}{history}", self.identity.begins(), self.slot)
    }

    /// The first step up to which any log is complete; `None` without a view.
    pub(super) fn complete_to(&self) -> Option<Step> {
        self.views.values().map(|view| view.complete_to).min()
    }

    /// Whether a transaction that is given again is the one that is known; `expected` are those that must come first.
    ///
    /// Continuity lost: one of them is left out, or another one stands in its place.
    pub(super) fn recognize(expected: &mut BTreeMap<Step, Option<Boundary>>, found: Boundary) -> Result<()> {
        Self::reach(expected, Step::new(found.end.get().saturating_sub(1))?)?;
        match expected.remove(&found.end) {
            Some(Some(known)) if known != found => Err(Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "the transaction that ends at {} has the number {} and was read as {}, and was committed {} microseconds after 2000 and read as {}: this is another history; {REMEDY}",
                    lsn(found.end),
                    found.xid,
                    known.xid,
                    found.committed,
                    known.committed
                ),
            )),
            _ => Ok(()),
        }
    }

    /// That everything up to `reached` was given, and with it all that is `expected` there.
    pub(super) fn reach(expected: &mut BTreeMap<Step, Option<Boundary>>, reached: Step) -> Result<()> {
        match expected.first_key_value() {
            Some((missing, _)) if *missing <= reached => Err(Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "the transaction that ended at {} was read and is not given again, the server is at {}: this is another history; {REMEDY}",
                    lsn(*missing),
                    lsn(reached)
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Whether `seen` is the history that is followed, with all that follows what the logs hold, the last of it at step `held`;
    /// where the slot stands.
    ///
    /// Continuity lost: it is not, and in which two values it shows.
    pub(super) fn check(&self, seen: &Seen, held: Step) -> Result<Step> {
        let (own, its) = (&self.identity, &seen.identity);
        let other = |what: &str, own: &dyn std::fmt::Display, its: &dyn std::fmt::Display| {
            Error::continuity_lost(
                Lost::OtherSource,
                format!(
                    "the server has the {what} {its}, and what was read is of {own}: this is another history; {REMEDY}"
                ),
            )
        };
        if own.system != its.system {
            return Err(other("system identifier", &own.system, &its.system));
        }
        if own.timeline != its.timeline {
            return Err(other("timeline", &own.timeline, &its.timeline));
        }
        if own.database_oid != its.database_oid {
            let named = |identity: &Identity| format!("{:?} (oid {})", identity.database, identity.database_oid);
            return Err(other("database", &named(own), &named(its)));
        }
        let complete_to = self.complete_to().unwrap_or(Step::ZERO);
        let complete = self.views.values().map(|view| view.complete_to).max().unwrap_or(Step::ZERO);
        let furthest = complete.max(self.told).max(held);
        if seen.flushed < furthest {
            return Err(Error::continuity_lost(
                Lost::SourceBehind,
                format!(
                    "the server ends at {}, and it was read up to {}: it was taken back; {REMEDY}",
                    lsn(seen.flushed),
                    lsn(furthest)
                ),
            ));
        }
        let name = &self.slot;
        let Some(slot) = &seen.slot else {
            let said = format!(
                "the replication slot {name:?} is gone, and it was read up to {}: what the server did since is missing; {REMEDY}",
                lsn(complete_to)
            );
            return Err(Error::continuity_lost(Lost::Gap, said));
        };
        if let Some(why) = &slot.invalid {
            let said = format!(
                "the replication slot {name:?} is invalid ({why}), and it was read up to {}: what follows was removed; {REMEDY}",
                lsn(complete_to)
            );
            return Err(Error::continuity_lost(Lost::Gap, said));
        }
        let confirmed = slot.confirmed.unwrap_or(Step::ZERO);
        if confirmed > furthest {
            let said = format!(
                "the replication slot {name:?} stands at {}, and it was read up to {}: it was made anew or moved by others, and what is between is missing; {REMEDY}",
                lsn(confirmed),
                lsn(furthest)
            );
            return Err(Error::continuity_lost(Lost::Gap, said));
        }
        Ok(confirmed)
    }
}

const REMEDY: &str = "reset its connectors, which begins with another slot and another log where needed";

/// A position as PostgreSQL writes it.
fn lsn(step: Step) -> Lsn {
    Lsn(step.get())
}

/// The file in which evidence stands.
pub(super) type EvidenceFile = StateFile<Evidence>;

/// The file `path`, and what it holds; nothing where nothing was ever followed.
///
/// Corrupt: it holds something else.
pub(super) fn open_evidence(path: &Path, disk: Arc<dyn Disk>) -> Result<(EvidenceFile, Option<Evidence>)> {
    StateFile::open(path, disk, " and reset the pipeline's connectors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::FileSystem;

    fn step(n: u64) -> Step {
        Step::new(n).unwrap()
    }

    fn identity() -> Identity {
        Identity { system: "7".into(), timeline: 1, database: "shop".into(), database_oid: 5 }
    }

    fn evidence() -> Evidence {
        let mut evidence = Evidence::new(identity(), "cutover_shop", "cutover_shop");
        for (name, complete_to) in [("a", 100), ("b", 120)] {
            let followed = Followed {
                log: "1".into(),
                table_oid: 1,
                key: Vec::new(),
                columns: Vec::new(),
                form: Form::default(),
                membership: "2/1".into(),
                complete_to: step(complete_to),
                lost: None,
            };
            evidence.views.insert(name.into(), followed);
        }
        evidence
    }

    fn seen(confirmed: u64) -> Seen {
        let slot = SeenSlot { confirmed: Some(step(confirmed)), invalid: None };
        Seen { identity: identity(), flushed: step(500), slot: Some(slot) }
    }

    #[test]
    fn another_history_shows_in_two_values() {
        assert_eq!(evidence().check(&seen(100), Step::ZERO).unwrap(), step(100));
        assert_eq!(evidence().check(&seen(40), step(500)).unwrap(), step(40));
        let behind = evidence().check(&seen(40), step(501)).unwrap_err();
        assert!(behind.message().contains("ends at 0/1F4, and it was read up to 0/1F5"), "{behind}");
        type Change = fn(&mut Seen);
        let cases: [(&str, Lost, Change); 7] = [
            ("system identifier 8, and what was read is of 7", Lost::OtherSource, |s| s.identity.system = "8".into()),
            ("timeline 2, and what was read is of 1", Lost::OtherSource, |s| s.identity.timeline = 2),
            ("\"shop\" (oid 6), and what was read is of \"shop\" (oid 5)", Lost::OtherSource, |s| {
                s.identity.database_oid = 6;
            }),
            ("ends at 0/64, and it was read up to 0/78", Lost::SourceBehind, |s| s.flushed = step(100)),
            ("is gone, and it was read up to 0/64", Lost::Gap, |s| s.slot = None),
            ("invalid (wal_removed), and it was read up to 0/64", Lost::Gap, |s| {
                s.slot.as_mut().unwrap().invalid = Some("wal_removed".into());
            }),
            ("stands at 0/79, and it was read up to 0/78", Lost::Gap, |s| {
                s.slot.as_mut().unwrap().confirmed = Some(step(121));
            }),
        ];
        for (said, lost, change) in cases {
            let mut seen = seen(100);
            change(&mut seen);
            let error = evidence().check(&seen, Step::ZERO).unwrap_err();
            assert!(error.message().contains(said), "{error}");
            assert_eq!(error.lost(), Some(lost), "{error}");
        }
    }

    #[test]
    fn what_was_read_must_be_given_again_as_it_was() {
        let boundary = |end, xid| Boundary { end: step(end), xid, committed: 1 };
        let expected = || BTreeMap::from([(step(10), None), (step(20), Some(boundary(20, 7)))]);
        let mut all = expected();
        for (end, xid) in [(5, 1), (10, 2), (20, 7), (30, 8)] {
            Evidence::recognize(&mut all, boundary(end, xid)).unwrap();
        }
        assert!(all.is_empty());
        Evidence::reach(&mut expected(), step(9)).unwrap();
        let said = |error: Error| (error.lost(), error.message().to_owned());
        let (lost, missing) = said(Evidence::reach(&mut expected(), step(10)).unwrap_err());
        assert!(lost == Some(Lost::OtherSource) && missing.contains("ended at 0/A was read"), "{missing}");
        let (_, missing) = said(Evidence::recognize(&mut expected(), boundary(20, 7)).unwrap_err());
        assert!(missing.contains("ended at 0/A was read"), "{missing}");
        let mut second = BTreeMap::from([(step(20), Some(boundary(20, 7)))]);
        let (_, other) = said(Evidence::recognize(&mut second, boundary(20, 9)).unwrap_err());
        assert!(other.contains("has the number 9 and was read as 7"), "{other}");
    }

    #[test]
    fn evidence_is_read_as_it_was_written_and_damage_is_said() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("postgres.json");
        let (file, none) = open_evidence(&path, Arc::new(FileSystem)).unwrap();
        assert_eq!(none, None);
        file.write(&evidence()).unwrap();
        assert_eq!(open_evidence(&path, Arc::new(FileSystem)).unwrap().1, Some(evidence()));
        std::fs::write(&path, "{").unwrap();
        assert!(open_evidence(&path, Arc::new(FileSystem)).unwrap_err().message().contains("restore it"));
    }
}
