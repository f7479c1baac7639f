//! What stands at the beginning of a segment: whose it is, where its steps begin, and which segments stand before it.
//!
//! ```text
//!   0 magic (8)   8 version   12 length of the header   16 id (16)   32 number   40 base   48 whole
//!  56 count of the segments before it, each: number, base, end (24)   …   checksum of all before (8)
//! ```
//!
//! A header that names the segments before it, and where each ends, needs no file beside the segments: the newest header is
//! the list of what the log consists of. Segments that it does not name are left over.

use twox_hash::XxHash3_64;
use uuid::Uuid;

use super::wire::Fields;
use crate::step::Step;

const MAGIC: &[u8; 8] = b"cutsteps";
const VERSION: u32 = 1;
/// The length of a header that names no segment.
const SHORTEST: u32 = 72;
const NAMED: u32 = 24;
/// The most bytes that a header may claim to have.
const LONGEST: u32 = 16 << 20;

/// A segment before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) number: u64,
    /// The step before its first one.
    pub(super) base: Step,
    /// The offset at which its steps end, whatever the file holds beyond.
    pub(super) end: u64,
}

/// The header of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) id: Uuid,
    pub(super) number: u64,
    /// The step before the first one.
    pub(super) base: Step,
    /// The offset up to which the segment was there when it got its name.
    pub(super) whole: u64,
    /// The segments before it, oldest first.
    pub(super) before: Vec<Before>,
}

impl Header {
    /// The length in bytes of a header that names `count` segments.
    pub(super) fn length(count: usize) -> u64 {
        u64::from(SHORTEST) + count as u64 * u64::from(NAMED)
    }

    /// Its bytes, and the salt of its frames' checksums.
    pub(super) fn encode(&self) -> (Vec<u8>, u64) {
        let length = Self::length(self.before.len()) as u32;
        let mut bytes = Vec::with_capacity(length as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(self.id.as_bytes());
        for number in [self.number, self.base.get(), self.whole, self.before.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for before in &self.before {
            for number in [before.number, before.base.get(), before.end] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let sum = XxHash3_64::oneshot(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        (bytes, sum)
    }

    /// The length that the first 16 bytes of a segment give to its header.
    pub(super) fn claimed_length(bytes: &[u8]) -> Option<u32> {
        let mut fields = Fields(bytes);
        let is_ours = fields.take::<8>()? == *MAGIC && fields.u32()? == VERSION;
        fields.u32().filter(|length| is_ours && (SHORTEST..=LONGEST).contains(length))
    }

    /// The header in `bytes`, which are as many as it claims, and its salt.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        let sum = u64::from_le_bytes(*sum);
        let mut fields = Fields(content);
        if XxHash3_64::oneshot(content) != sum || fields.take::<16>().is_none() {
            return None;
        }
        let id = Uuid::from_bytes(fields.take()?);
        let (number, base, whole) = (fields.u64()?, Step::new(fields.u64()?).ok()?, fields.u64()?);
        let count = fields.u64()?;
        let mut before = Vec::new();
        for _ in 0..count {
            let (number, base, end) = (fields.u64()?, Step::new(fields.u64()?).ok()?, fields.u64()?);
            before.push(Before { number, base, end });
        }
        fields.0.is_empty().then_some((Self { id, number, base, whole, before }, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_and_no_bit_of_it_may_differ() {
        let before = |number, base, end| Before { number, base: Step::new(base).unwrap(), end };
        let header = Header {
            id: Uuid::from_u128(77),
            number: 9,
            base: Step::new(40).unwrap(),
            whole: 120,
            before: vec![before(4, 2, 1000), before(7, 30, 900)],
        };
        let (bytes, salt) = header.encode();
        assert_eq!(bytes.len() as u64, Header::length(2));
        assert_eq!(Header::claimed_length(&bytes), Some(bytes.len() as u32));
        assert_eq!(Header::decode(&bytes), Some((header, salt)));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&other), None, "bit {bit}");
        }
    }
}
