//! What pgoutput says, version 1 of its protocol: one transaction after another, each from `Begin` to `Commit`.
//!
//! A message borrows the bytes that it came in. Its lengths are checked when it is read, so that what is read later, the
//! cells of a row, cannot run over its end.

use crate::error::{Error, Result};

/// A position in the server's log, in bytes; printed as `16/B374D848`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lsn(pub(crate) u64);

impl std::fmt::Display for Lsn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xFFFF_FFFF)
    }
}

impl std::str::FromStr for Lsn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let half = |digits: &str| u32::from_str_radix(digits, 16).ok().map(u64::from);
        let halves = text.split_once('/').and_then(|(high, low)| half(high).zip(half(low)));
        let (high, low) =
            halves.ok_or_else(|| Error::internal(format!("{text:?} is no position of a server's log")))?;
        Ok(Self(high << 32 | low))
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// A transaction begins.
    Begin {
        /// Where the record of its commit stands.
        commit: Lsn,
        /// When it was committed, in microseconds since 2000.
        micros: i64,
        /// Its number.
        transaction: u32,
    },
    /// It ends.
    Commit {
        /// Where the record of its commit stands.
        commit: Lsn,
        /// Where that record ends.
        end: Lsn,
        /// When it was committed, in microseconds since 2000.
        micros: i64,
    },
    /// The transaction came from another server.
    Origin {
        /// Which one.
        name: &'a str,
    },
    /// What the rows of a table look like from here on.
    Relation(Relation),
    /// The name of a type that is not built in.
    Type {
        /// Its number.
        oid: u32,
    },
    /// A row appeared.
    Insert {
        /// The table.
        relation: u32,
        /// The row.
        new: Tuple<'a>,
    },
    /// A row became another.
    Update {
        /// The table.
        relation: u32,
        /// What is told of the row before: nothing where its identity stayed and is not the whole row.
        old: Option<Old<'a>>,
        /// The row after.
        new: Tuple<'a>,
    },
    /// A row went away.
    Delete {
        /// The table.
        relation: u32,
        /// What is told of it.
        old: Old<'a>,
    },
    /// Tables were emptied.
    Truncate {
        /// Which.
        relations: Vec<u32>,
    },
    /// Something that an application wrote into the log.
    Logical,
}

/// A table, as its rows stand in what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    /// The number by which rows name it.
    pub(crate) oid: u32,
    /// Its schema.
    pub(crate) schema: String,
    /// Its name there.
    pub(crate) table: String,
    /// What the log says of old rows: `d` the primary key, `i` another index, `f` all, `n` nothing.
    pub(crate) identity: u8,
    /// Its columns, in the order of rows.
    pub(crate) columns: Vec<RelationColumn>,
}

/// A column of a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelationColumn {
    /// Its name.
    pub(crate) name: String,
    /// Whether it is part of what the log says of old rows.
    pub(crate) is_identity: bool,
    /// The number of its type.
    pub(crate) type_oid: u32,
    /// What its declaration adds to the type, such as digits; -1: nothing.
    pub(crate) modifier: i32,
}

/// A row before its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Old<'a> {
    /// The columns of its identity; the others are null here, whatever they were.
    Key(Tuple<'a>),
    /// All of it.
    Whole(Tuple<'a>),
}

impl<'a> Old<'a> {
    /// The columns, whichever they are.
    pub(crate) fn tuple(self) -> Tuple<'a> {
        match self {
            Self::Key(tuple) | Self::Whole(tuple) => tuple,
        }
    }
}

/// The cells of a row, in the order of its relation's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tuple<'a> {
    cells: u16,
    bytes: &'a [u8],
}

/// One cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    /// Null.
    Null,
    /// A large value that the update did not touch, and that the log does not repeat.
    Unchanged,
    /// The text of a value.
    Text(&'a [u8]),
    /// The binary form of a value.
    Binary(&'a [u8]),
}

impl<'a> Tuple<'a> {
    /// How many cells there are.
    pub(crate) fn len(self) -> usize {
        usize::from(self.cells)
    }

    /// What the values take, in bytes, with what says how long they are.
    pub(crate) fn bytes(self) -> usize {
        self.bytes.len()
    }

    /// The cells.
    pub(crate) fn cells(self) -> impl Iterator<Item = Cell<'a>> {
        let mut reader = Reader { rest: self.bytes };
        (0..self.cells).map_while(move |_| reader.cell().ok())
    }
}

impl<'a> Message<'a> {
    /// Reads one message. Internal: the bytes are none, or of a kind that version 1 does not have.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader { rest: bytes };
        let read = reader.message();
        match read {
            Ok(message) if reader.rest.is_empty() => Ok(message),
            _ => {
                let kind = bytes.first().map(|byte| char::from(*byte));
                let length = bytes.len();
                Err(Error::internal(format!(
                    "the server sent {length} bytes that are no message of pgoutput's version 1, of the kind {kind:?}"
                )))
            }
        }
    }
}

/// The bytes do not go on as they should.
struct Torn;

/// Takes parts off the front of a message.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn message(&mut self) -> Result<Message<'a>, Torn> {
        Ok(match self.byte()? {
            b'B' => Message::Begin { commit: self.lsn()?, micros: self.long()?, transaction: self.number()? },
            b'C' => {
                let _flags = self.byte()?;
                Message::Commit { commit: self.lsn()?, end: self.lsn()?, micros: self.long()? }
            }
            b'O' => {
                let _commit = self.lsn()?;
                Message::Origin { name: self.name()? }
            }
            b'R' => Message::Relation(self.relation()?),
            b'Y' => {
                let (oid, _schema, _name) = (self.number()?, self.name()?, self.name()?);
                Message::Type { oid }
            }
            b'I' => {
                let relation = self.number()?;
                self.mark(b'N')?;
                Message::Insert { relation, new: self.tuple()? }
            }
            b'U' => {
                let relation = self.number()?;
                let (old, mark) = match self.byte()? {
                    b'N' => (None, b'N'),
                    mark => (Some(self.old(mark)?), self.byte()?),
                };
                if mark != b'N' {
                    return Err(Torn);
                }
                Message::Update { relation, old, new: self.tuple()? }
            }
            b'D' => {
                let relation = self.number()?;
                let mark = self.byte()?;
                Message::Delete { relation, old: self.old(mark)? }
            }
            b'T' => {
                let (count, _options) = (self.number()?, self.byte()?);
                let mut relations = Vec::new();
                for _ in 0..count {
                    relations.push(self.number()?);
                }
                Message::Truncate { relations }
            }
            b'M' => {
                let (_flags, _at, _prefix) = (self.byte()?, self.lsn()?, self.name()?);
                let length = self.number()?;
                self.take(length as usize)?;
                Message::Logical
            }
            _ => return Err(Torn),
        })
    }

    fn relation(&mut self) -> Result<Relation, Torn> {
        let oid = self.number()?;
        let (schema, table) = (self.name()?, self.name()?);
        // An empty name is how pgoutput spells the schema of what is built in.
        let schema = if schema.is_empty() { "pg_catalog" } else { schema }.to_owned();
        let identity = self.byte()?;
        let count = self.short()?;
        let mut columns = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let flags = self.byte()?;
            let (name, type_oid, modifier) = (self.name()?.to_owned(), self.number()?, self.number()? as i32);
            columns.push(RelationColumn { name, is_identity: flags & 1 == 1, type_oid, modifier });
        }
        Ok(Relation { oid, schema, table: table.to_owned(), identity, columns })
    }

    fn old(&mut self, mark: u8) -> Result<Old<'a>, Torn> {
        match mark {
            b'K' => Ok(Old::Key(self.tuple()?)),
            b'O' => Ok(Old::Whole(self.tuple()?)),
            _ => Err(Torn),
        }
    }

    fn tuple(&mut self) -> Result<Tuple<'a>, Torn> {
        let cells = self.short()?;
        let all = self.rest;
        for _ in 0..cells {
            self.cell()?;
        }
        let bytes = all.get(..all.len() - self.rest.len()).ok_or(Torn)?;
        Ok(Tuple { cells, bytes })
    }

    fn cell(&mut self) -> Result<Cell<'a>, Torn> {
        Ok(match self.byte()? {
            b'n' => Cell::Null,
            b'u' => Cell::Unchanged,
            kind @ (b't' | b'b') => {
                let length = self.number()?;
                let value = self.take(length as usize)?;
                if kind == b't' { Cell::Text(value) } else { Cell::Binary(value) }
            }
            _ => return Err(Torn),
        })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Torn> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Torn)?;
        self.rest = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Torn> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Torn)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn mark(&mut self, wanted: u8) -> Result<(), Torn> {
        if self.byte()? == wanted { Ok(()) } else { Err(Torn) }
    }

    fn byte(&mut self) -> Result<u8, Torn> {
        self.fixed().map(u8::from_be_bytes)
    }

    fn short(&mut self) -> Result<u16, Torn> {
        self.fixed().map(u16::from_be_bytes)
    }

    fn number(&mut self) -> Result<u32, Torn> {
        self.fixed().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Result<i64, Torn> {
        self.fixed().map(i64::from_be_bytes)
    }

    fn lsn(&mut self) -> Result<Lsn, Torn> {
        self.fixed().map(|bytes| Lsn(u64::from_be_bytes(bytes)))
    }

    /// A text that a zero ends.
    fn name(&mut self) -> Result<&'a str, Torn> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(Torn)?;
        let name = self.take(end)?;
        self.byte()?;
        std::str::from_utf8(name).map_err(|_| Torn)
    }
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
