//! What stands at the beginning of a segment: whose it is, where its steps begin, which segments stand before it, and of
//! which strands the log's steps are.
//!
//! ```text
//!   0 magic (8)   8 version   12 length of the header   16 id (16)   32 number   40 base   48 whole
//!  56 count of the segments before it, each: number, base, end (24)
//!   … count of strands, each: the step before its first one, number (16)   …   checksum of all before (8)
//! ```
//!
//! A header that names the segments before it, and where each ends, needs no file beside the segments: the newest header is
//! the list of what the log consists of. Segments that it does not name are left over. Headers of version 1 end before the
//! strands: of which one older steps are cannot be told.

use twox_hash::XxHash3_64;
use uuid::Uuid;

use super::wire::Fields;
use crate::step::Step;
use crate::strand::{Strand, Strands};

const MAGIC: &[u8; 8] = b"cutsteps";
pub(super) const VERSION: u32 = 2;
/// The version whose headers have no strands.
const WITHOUT_STRANDS: u32 = 1;
/// The length of a header of that version that names no segment.
const SHORTEST: u32 = 72;
const COUNT: u32 = 8;
const NAMED: u32 = 24;
const STRAND: u32 = 16;
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
    /// Of which the log's steps are, those before it and those that follow.
    pub(super) strands: Strands,
}

impl Header {
    /// The length in bytes of a header that names `count` segments, of a log of these strands.
    pub(super) fn length(count: usize, strands: &Strands) -> u64 {
        let (named, strands) = (count as u64 * u64::from(NAMED), strands.iter().len() as u64 * u64::from(STRAND));
        u64::from(SHORTEST + COUNT) + named + strands
    }

    /// Its bytes, and the salt of its frames' checksums.
    pub(super) fn encode(&self) -> (Vec<u8>, u64) {
        let length = Self::length(self.before.len(), &self.strands) as u32;
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
        bytes.extend_from_slice(&(self.strands.iter().len() as u64).to_le_bytes());
        for (after, strand) in self.strands.iter() {
            for number in [after.get(), strand.get()] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let sum = XxHash3_64::oneshot(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        (bytes, sum)
    }

    /// The length that the first 16 bytes of a segment give to its header, of whatever version.
    pub(super) fn claimed_length(bytes: &[u8]) -> Option<u32> {
        let mut fields = Fields(bytes);
        let is_ours = fields.take::<8>()? == *MAGIC && fields.u32()? >= WITHOUT_STRANDS;
        fields.u32().filter(|length| is_ours && (SHORTEST..=LONGEST).contains(length))
    }

    /// The version of a header that is whole and of a later one than is known. Magic, version, length and the hash at the end
    /// stand where they do in all versions, so a damaged header is not taken for a later one.
    pub(super) fn later_version(bytes: &[u8]) -> Option<u32> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        let mut fields = Fields(content);
        fields.take::<8>()?;
        let version = fields.u32()?;
        let is_whole = XxHash3_64::oneshot(content) == u64::from_le_bytes(*sum);
        (is_whole && version > VERSION).then_some(version)
    }

    /// The header in `bytes`, which are as many as it claims, and its salt.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, u64)> {
        let (content, sum) = bytes.split_last_chunk::<8>()?;
        let sum = u64::from_le_bytes(*sum);
        let mut fields = Fields(content);
        if XxHash3_64::oneshot(content) != sum || fields.take::<8>().is_none() {
            return None;
        }
        let (version, _length) = (fields.u32()?, fields.u32()?);
        if version > VERSION {
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
        let mut strands = Vec::new();
        let count = if version == WITHOUT_STRANDS { 0 } else { fields.u64()? };
        for _ in 0..count {
            strands.push((Step::new(fields.u64()?).ok()?, Strand::new(fields.u64()?)));
        }
        let strands = Strands::new(strands);
        fields.0.is_empty().then_some((Self { id, number, base, whole, before, strands }, sum))
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
            strands: Strands::new(vec![
                (Step::new(3).unwrap(), Strand::new(5)),
                (Step::new(8).unwrap(), Strand::new(6)),
            ]),
        };
        let (bytes, salt) = header.encode();
        assert_eq!(bytes.len() as u64, Header::length(2, &header.strands));
        assert_eq!(Header::claimed_length(&bytes), Some(bytes.len() as u32));
        assert_eq!(Header::decode(&bytes), Some((header, salt)));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&other), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_of_a_later_version_is_told_from_a_damaged_one() {
        let header = Header {
            id: Uuid::from_u128(7),
            number: 1,
            base: Step::new(0).unwrap(),
            whole: 80,
            before: Vec::new(),
            strands: Strands::default(),
        };
        let (bytes, _) = header.encode();
        assert_eq!(Header::later_version(&bytes), None);
        let mut later = bytes.split_last_chunk::<8>().unwrap().0.to_vec();
        later[8..12].copy_from_slice(&(VERSION + 1).to_le_bytes());
        later.extend_from_slice(&XxHash3_64::oneshot(&later).to_le_bytes());
        assert_eq!((Header::later_version(&later), Header::decode(&later)), (Some(VERSION + 1), None));
        for bit in 0..later.len() * 8 {
            let mut other = later.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::later_version(&other), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_of_the_first_version_tells_no_strands() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        [1u32, 72].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(Uuid::from_u128(7).as_bytes());
        [3u64, 12, 72, 0].iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(&XxHash3_64::oneshot(&bytes).to_le_bytes());
        assert_eq!(Header::claimed_length(&bytes), Some(bytes.len() as u32));
        let (header, _) = Header::decode(&bytes).unwrap();
        assert_eq!((header.number, header.base.get(), header.strands), (3, 12, Strands::default()));
    }
}
