//! Types by their number in the catalogs, and the kind that each comes to.

use std::collections::{BTreeMap, BTreeSet};

use super::super::kinds::Kind;
use super::super::server::Session;
use super::name::quoted;
use crate::error::{Error, Result};

/// The type `numeric`.
pub(super) const NUMERIC: u32 = 1700;
/// The most digits of a decimal.
const DECIMAL_DIGITS: i32 = 38;

const QUERY: &str = "SELECT t.oid, t.typname, t.typtype::text, t.typbasetype, t.typtypmod, t.typelem,
    coalesce(e.typarray = t.oid, false), coalesce(e.typdelim, t.typdelim)::text, n.nspname, o.proname
    FROM pg_catalog.pg_type t
    JOIN pg_catalog.pg_proc o ON o.oid = t.typoutput
    JOIN pg_catalog.pg_namespace n ON n.oid = o.pronamespace
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    WHERE t.oid = ANY($1)";

/// What a column's type comes to.
#[derive(Debug, Clone)]
pub(super) struct Resolved {
    pub(super) kind: Kind,
    /// The type below domains.
    pub(super) base: u32,
    /// Its name there.
    pub(super) name: String,
    /// The function that prints its values.
    pub(super) output: String,
    /// Whether only the server can print them.
    pub(super) is_printed: bool,
}

impl Resolved {
    /// Whether values become others of the kind, and back, without a word: `text` and `varchar`.
    pub(super) fn is_plain_text(&self) -> bool {
        matches!(self.base, 25 | 1043)
    }
}

/// A row of the catalog of types.
struct Type {
    name: String,
    class: String,
    base: u32,
    modifier: i32,
    element: u32,
    is_array: bool,
    delimiter: u8,
    output: String,
}

/// The types of columns, each with what its declaration adds; in their order.
pub(super) async fn resolve(session: &Session, columns: &[(u32, i32)]) -> Result<Vec<Resolved>> {
    let mut known: BTreeMap<u32, Type> = BTreeMap::new();
    let mut wanted: BTreeSet<u32> = columns.iter().map(|(oid, _)| *oid).collect();
    while !wanted.is_empty() {
        let asked: Vec<u32> = std::mem::take(&mut wanted).into_iter().collect();
        for row in session.query(QUERY, &[&asked]).await? {
            let (schema, function): (&str, &str) = (row.get(8), row.get(9));
            let found = Type {
                name: row.get(1),
                class: row.get(2),
                base: row.get(3),
                modifier: row.get(4),
                element: row.get(5),
                is_array: row.get(6),
                delimiter: row.get::<_, &str>(7).bytes().next().unwrap_or(b','),
                output: format!("{}.{}", quoted(schema), quoted(function)),
            };
            wanted.extend([found.base, found.element].into_iter().filter(|oid| *oid != 0));
            known.insert(row.get(0), found);
        }
        if let Some(missing) = asked.iter().find(|oid| !known.contains_key(oid)) {
            return Err(Error::unavailable(format!(
                "{}: the type number {missing} is in the log and no more in the catalogs",
                session.place()
            )));
        }
        wanted.retain(|oid| !known.contains_key(oid));
    }
    columns.iter().map(|(oid, modifier)| resolved(&known, *oid, *modifier)).collect()
}

fn resolved(known: &BTreeMap<u32, Type>, oid: u32, modifier: i32) -> Result<Resolved> {
    let found = known.get(&oid).ok_or_else(|| Error::internal(format!("the type number {oid} was not looked up")))?;
    if found.class == "d" {
        return resolved(known, found.base, found.modifier);
    }
    let (kind, is_printed) = if found.is_array {
        let element = resolved(known, found.element, modifier)?;
        (Kind::Array(Box::new(element.kind), found.delimiter), element.is_printed)
    } else {
        match (built_in(oid, modifier), found.class.as_str()) {
            (Some(kind), _) => (kind, false),
            // The binary form of these is their text.
            (None, "e") => (Kind::Text, false),
            (None, _) => (Kind::Text, !matches!(oid, 19 | 25 | 114 | 1042 | 1043)),
        }
    };
    Ok(Resolved { kind, base: oid, name: found.name.clone(), output: found.output.clone(), is_printed })
}

/// The kinds of types whose values are more than their text.
fn built_in(oid: u32, modifier: i32) -> Option<Kind> {
    Some(match oid {
        16 => Kind::Bool,
        17 => Kind::Bytes,
        20 => Kind::Int8,
        21 => Kind::Int2,
        23 => Kind::Int4,
        26 | 28 | 29 => Kind::Unsigned,
        700 => Kind::Float4,
        701 => Kind::Float8,
        1082 => Kind::Date,
        1114 => Kind::Timestamp,
        1184 => Kind::Instant,
        NUMERIC => return decimal(modifier),
        2950 => Kind::Uuid,
        3802 => Kind::Jsonb,
        _ => return None,
    })
}

/// The decimal that holds `numeric(p,s)`. A scale below zero counts digits before the point, one above the precision
/// counts zeros behind it.
fn decimal(modifier: i32) -> Option<Kind> {
    let bits = modifier.checked_sub(4).filter(|bits| *bits >= 0)?;
    let precision = (bits >> 16) & 0xFFFF;
    // Eleven bits with a sign.
    let scale = ((bits & 0x7FF) ^ 0x400) - 0x400;
    let (precision, scale) = if scale < 0 { (precision - scale, 0) } else { (precision.max(scale), scale) };
    let precision = u8::try_from(precision).ok().filter(|_| precision <= DECIMAL_DIGITS)?;
    Some(Kind::Decimal(precision, i8::try_from(scale).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PostgreSQL encodes digits in a type's modifier.
    fn modifier(precision: i32, scale: i32) -> i32 {
        ((precision << 16) | (scale & 0x7FF)) + 4
    }

    #[test]
    fn a_declared_numeric_is_the_decimal_that_holds_it() {
        for (precision, scale, expected) in [
            (10, 2, Some((10, 2))),
            (38, 38, Some((38, 38))),
            (39, 0, None),
            (1000, 2, None),
            (5, -2, Some((7, 0))),
            (3, 5, Some((5, 5))),
            (38, -1, None),
            (2, 1000, None),
        ] {
            let kind = decimal(modifier(precision, scale));
            assert_eq!(kind, expected.map(|(p, s)| Kind::Decimal(p, s)), "numeric({precision},{scale})");
        }
        assert_eq!(decimal(-1), None);
    }
}
