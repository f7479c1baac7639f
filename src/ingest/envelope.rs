//! What a line says is to be done with which row.

use arrow::datatypes::DataType;
use serde_json::value::RawValue;

use crate::change::Op;
use crate::error::{Error, Result};
use crate::json::{Entries, NotEntries, kind_of, shown};
use crate::schema::View;

/// The text by which Debezium says that it does not have a value, which the row keeps.
const UNAVAILABLE: &str = "\"__debezium_unavailable_value\"";
/// The same in a column of bytes.
const UNAVAILABLE_BYTES: &str = "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"";

/// How lines state operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Envelope {
    InsertDelete,
    Raw,
    Debezium,
}

/// An operation that a line states.
pub(super) struct Stated<'a> {
    pub(super) op: Op,
    /// The row's JSON object.
    pub(super) row: &'a str,
    pub(super) gaps: Gaps<'a>,
}

/// What becomes of columns for which a row has no value.
pub(super) enum Gaps<'a> {
    /// They are null.
    Null,
    /// They keep their value where the row does not name them.
    Kept,
    /// They keep their value where the row says that it is unavailable; the key must be that of the row before, if there
    /// is one.
    Unavailable(Option<&'a str>),
}

impl Envelope {
    /// The operations that line `number` states, in the order in which they apply.
    pub(super) fn open<'a>(self, number: u64, line: &'a str, view: &View) -> Result<Vec<Stated<'a>>> {
        match self {
            Self::Raw => Ok(vec![Stated { op: Op::Insert, row: line, gaps: Gaps::Null }]),
            Self::InsertDelete => insert_delete(number, line, view),
            Self::Debezium => debezium(number, line, view),
        }
    }
}

/// The members of the object that is line `number`, or a part of it.
pub(super) fn entries(number: u64, json: &str) -> Result<Entries<'_>> {
    Entries::parse(json).map_err(|e| match e {
        NotEntries::Repeated(name) => refused(number, format!("{} stands there twice", shown(&name))),
        // That error quotes the value.
        NotEntries::Json(e) if e.is_data() => {
            refused(number, format!("wants an object with the row, not {}", kind_of(json)))
        }
        NotEntries::Json(e) => Error::corrupt(format!("line {number}: is no JSON")).with_source(e),
    })
}

pub(super) fn refused(number: u64, why: impl std::fmt::Display) -> Error {
    Error::refused(format!("line {number}: {why}"))
}

/// Whether the JSON of a column of this type says that Debezium does not have the value.
pub(super) fn is_unavailable(json: &str, data_type: &DataType) -> bool {
    json == if data_type == &DataType::Binary { UNAVAILABLE_BYTES } else { UNAVAILABLE }
}

fn insert_delete<'a>(number: u64, line: &'a str, view: &View) -> Result<Vec<Stated<'a>>> {
    let (mut delete, mut insert, mut update) = (None, None, None);
    for (name, value) in entries(number, line)?.0 {
        let slot = match name.as_ref() {
            "delete" => &mut delete,
            "insert" => &mut insert,
            "update" => &mut update,
            "table" if matches!(value.get().as_bytes().first(), Some(b'"' | b'n')) => continue,
            "table" => return Err(refused(number, format!("\"table\" wants a string, not {}", kind_of(value.get())))),
            _ => {
                let name = shown(&name);
                return Err(refused(number, format!("{name} is none of insert, delete, update and table")));
            }
        };
        *slot = object(number, &name, value)?;
    }
    if update.is_some() && !view.is_keyed() {
        let why = "an update in a view without key; send a delete of the old row and an insert of the new one, or declare the key";
        return Err(refused(number, why));
    }
    let stated = [(Op::Delete, delete, Gaps::Null), (Op::Insert, insert, Gaps::Null), (Op::Update, update, Gaps::Kept)];
    let stated: Vec<_> =
        stated.into_iter().filter_map(|(op, row, gaps)| Some(Stated { op, row: row?, gaps })).collect();
    if stated.is_empty() {
        return Err(refused(number, "one of insert, delete and update is missing"));
    }
    Ok(stated)
}

/// The text of an object; `None` for null.
fn object<'a>(number: u64, name: &str, value: &'a RawValue) -> Result<Option<&'a str>> {
    match value.get().as_bytes().first() {
        Some(b'{') => Ok(Some(value.get())),
        Some(b'n') => Ok(None),
        _ => Err(refused(number, format!("{name:?} wants the row as an object, not {}", kind_of(value.get())))),
    }
}

fn debezium<'a>(number: u64, line: &'a str, view: &View) -> Result<Vec<Stated<'a>>> {
    // A tombstone follows each delete, for Kafka's compaction.
    if line == "null" {
        return Ok(Vec::new());
    }
    let mut event = entries(number, line)?.0;
    if let Some(payload) = event.iter().find(|(name, _)| name == "payload").map(|(_, value)| *value) {
        if let Some((name, _)) = event.iter().find(|(name, _)| !matches!(name.as_ref(), "payload" | "schema")) {
            let name = shown(name);
            return Err(refused(number, format!("{name} stands beside \"payload\"; put it inside, or leave it out")));
        }
        match object(number, "payload", payload)? {
            Some(payload) => event = entries(number, payload)?.0,
            None => return Ok(Vec::new()),
        }
    }
    let member = |wanted: &str| event.iter().find(|(name, _)| name == wanted).map(|(_, value)| *value);
    let row = |name: &str| member(name).map_or(Ok(None), |value| object(number, name, value));
    let (before, after) = (row("before")?, row("after")?);
    let op = member("op").ok_or_else(|| refused(number, "\"op\" is missing"))?.get();
    let missing =
        |name: &str| refused(number, format!("an event of op {op} wants the row in {name:?}, which is missing"));
    let surplus =
        |name: &str| refused(number, format!("an event of op {op} has no {name:?}; send an update as op \"u\""));
    let insert = |row| Stated { op: Op::Insert, row, gaps: Gaps::Null };
    // Only the key of a keyed row counts, so what else is unavailable does not matter.
    let delete =
        |row| Stated { op: Op::Delete, row, gaps: if view.is_keyed() { Gaps::Unavailable(None) } else { Gaps::Null } };
    match op {
        "\"c\"" | "\"r\"" => match before {
            None => Ok(vec![insert(after.ok_or_else(|| missing("after"))?)]),
            Some(_) => Err(surplus("before")),
        },
        "\"d\"" => match after {
            None => Ok(vec![delete(before.ok_or_else(|| missing("before"))?)]),
            Some(_) => Err(surplus("after")),
        },
        "\"u\"" => {
            let after = after.ok_or_else(|| missing("after"))?;
            let lacks =
                entries(number, after)?.0.iter().any(|(_, v)| [UNAVAILABLE, UNAVAILABLE_BYTES].contains(&v.get()));
            let full = "let the database log whole rows, as by REPLICA IDENTITY FULL, or declare the view's key";
            match before {
                _ if lacks && !view.is_keyed() => {
                    Err(refused(number, format!("an update has unavailable values; {full}")))
                }
                _ if lacks => Ok(vec![Stated { op: Op::Update, row: after, gaps: Gaps::Unavailable(before) }]),
                Some(before) => Ok(vec![delete(before), insert(after)]),
                None if view.is_keyed() => Ok(vec![Stated { op: Op::Update, row: after, gaps: Gaps::Null }]),
                None => Err(refused(number, format!("an update in a view without key lacks \"before\"; {full}"))),
            }
        }
        "\"t\"" => Err(refused(number, "a truncation is no change of rows; reset the connectors of the view instead")),
        "\"m\"" => Err(refused(number, "a message is no change of a row; leave op m out where the events are made")),
        _ => Err(refused(number, "\"op\" is none of \"c\", \"r\", \"u\" and \"d\"")),
    }
}
