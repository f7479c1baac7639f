//! What the texts of a type's values are made of, as far as users may alter it.

use serde::{Deserialize, Serialize};

use super::super::server::Session;
use crate::error::Result;

/// What a type is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spelling {
    /// Its number.
    pub(super) oid: u32,
    /// Its name.
    pub(super) name: String,
    /// Whether something may be added without another text of what is there, as to an enum.
    pub(super) is_open: bool,
    /// Its labels, or the types of its members, by their numbers.
    pub(super) members: Vec<(i64, String)>,
}

/// The types of users that values of the types `$1` have in them, with the members of each: labels, attributes without their
/// names, which no text has, or the type below.
const SPELLED: &str = "WITH RECURSIVE used(oid) AS (
        SELECT oid FROM unnest($1::oid[]) oid WHERE oid >= 16384 UNION
        SELECT s.oid FROM used u CROSS JOIN LATERAL (
            SELECT unnest(ARRAY[t.typbasetype, t.typelem]) oid FROM pg_catalog.pg_type t WHERE t.oid = u.oid
            UNION ALL
            SELECT a.atttypid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid
                WHERE t.oid = u.oid AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT unnest(ARRAY[r.rngsubtype, r.rngtypid]) FROM pg_catalog.pg_range r
                WHERE u.oid IN (r.rngtypid, (pg_catalog.to_jsonb(r)->>'rngmultitypid')::oid)) s
        WHERE s.oid >= 16384)
    SELECT t.oid, t.typname::text, e.oid::int8, e.enumlabel::text, true
        FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid JOIN pg_catalog.pg_enum e ON e.enumtypid = t.oid
    UNION ALL
    SELECT t.oid, t.typname::text, a.attnum::int8, a.atttypid || '/' || a.atttypmod, false
        FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid
        WHERE a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT t.oid, t.typname::text, 0, t.typbasetype || '/' || t.typtypmod, false
        FROM used u JOIN pg_catalog.pg_type t ON t.oid = u.oid WHERE t.typtype = 'd'
    ORDER BY 1, 3";

impl Spelling {
    /// Whether what was printed by this has the same text by `other`.
    pub(super) fn leads_to(&self, other: &Self) -> bool {
        let is_there = |member: &(i64, String)| other.members.contains(member);
        self.members.iter().all(is_there) && (self.is_open || self.members.len() == other.members.len())
    }
}

/// The types of users that the values of `types` have in them.
pub(super) async fn spelled(session: &Session, types: &[u32]) -> Result<Vec<Spelling>> {
    let mut spelled: Vec<Spelling> = Vec::new();
    if types.iter().all(|oid| *oid < 16_384) {
        return Ok(spelled);
    }
    for row in session.query(SPELLED, &[&types]).await? {
        let (oid, member) = (row.get(0), (row.get(2), row.get(3)));
        match spelled.last_mut().filter(|spelling| spelling.oid == oid) {
            Some(spelling) => spelling.members.push(member),
            None => spelled.push(Spelling { oid, name: row.get(1), is_open: row.get(4), members: vec![member] }),
        }
    }
    Ok(spelled)
}
