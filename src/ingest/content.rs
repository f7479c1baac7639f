//! What a request means, in sixteen bytes.

use std::fmt;

use twox_hash::XxHash3_128;

use crate::change::Op;
use crate::digest::Digest;
use crate::schema::View;

/// A hash of the operations of a request, in their order, by which the same request is known when it comes again.
///
/// The same is what states the same operations on the same rows in the same order: white space, blank lines, the order
/// and the spelling of columns, escapes, other spellings of a number, the format and the bounds of batches do not count,
/// and neither does whether a column of null is named in an insert. Of a delete from a keyed view, only the key counts.
/// Of an update, it counts which columns it names. A column that the view gets in between changes nothing.
///
/// It is a check against accidents, not a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content(u128);

impl Content {
    /// The hash of sixteen bytes that [`Content::to_bytes`] gave.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The hash as bytes, to be kept beside the step.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A [`Content`] that is being made.
pub(super) struct ContentHasher {
    hasher: XxHash3_128,
    names: Vec<u128>,
}

impl ContentHasher {
    pub(super) fn new(view: &View) -> Self {
        let names = view.schema().fields().iter().map(|f| XxHash3_128::oneshot(f.name().as_bytes())).collect();
        Self { hasher: XxHash3_128::new(), names }
    }

    /// Adds an operation on the row of this digest, of which an update lacks the columns `absent`.
    pub(super) fn add(&mut self, op: Op, row: Digest, absent: Option<&[bool]>) {
        let named = match (op, absent) {
            (Op::Update, Some(absent)) => self
                .names
                .iter()
                .zip(absent)
                .filter(|(_, absent)| !**absent)
                .fold(0u128, |s, (n, _)| s.wrapping_add(*n)),
            (Op::Update, None) => self.names.iter().fold(0u128, |sum, name| sum.wrapping_add(*name)),
            _ => 0,
        };
        self.hasher.write(op.letter().as_bytes());
        self.hasher.write(&row.as_u128().to_le_bytes());
        self.hasher.write(&named.to_le_bytes());
    }

    pub(super) fn finish(&self) -> Content {
        Content(self.hasher.finish_128())
    }
}
