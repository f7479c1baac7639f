//! A frame: one step as a segment holds it.
//!
//! ```text
//!   0 magic   4 zero   8 length of the payload   16 after   24 step   32 rows   40 content (16)
//!  56 durable   64 checksum of the payload   72 checksum of the 72 bytes before   80 payload
//! ```
//!
//! Checksums are XXH3-64. Their seeds follow from the segment's header and from the frame's offset, so a frame is valid in
//! the one place for which it was written. `durable` is the offset up to which the segment was synced when the frame was
//! written: a bad frame below it is damage, one at or above it may be the trace of a write that never became durable.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use super::wire::Fields;
use crate::step::Step;

/// The length of a frame before its payload, in bytes.
pub(super) const HEAD: usize = 80;
const MAGIC: &[u8; 4] = b"STEP";

/// What stands before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) length: u64,
    pub(super) after: Step,
    pub(super) step: Step,
    pub(super) rows: u64,
    pub(super) content: u128,
    pub(super) durable: u64,
    pub(super) payload_sum: u64,
}

impl Head {
    /// The frame's length with its payload, in bytes.
    pub(super) fn frame_length(&self) -> u64 {
        self.length.saturating_add(HEAD as u64)
    }
}

/// The offset-bound seed of a frame's checksums.
fn seed(salt: u64, offset: u64) -> u64 {
    salt ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Appends a frame that will stand at `offset` of a segment with `salt`.
pub(super) fn write(into: &mut Vec<u8>, head: &Head, payload: &[u8], salt: u64, offset: u64) {
    let seed = seed(salt, offset);
    let begin = into.len();
    into.extend_from_slice(MAGIC);
    into.extend_from_slice(&0u32.to_le_bytes());
    into.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    into.extend_from_slice(&head.after.get().to_le_bytes());
    into.extend_from_slice(&head.step.get().to_le_bytes());
    into.extend_from_slice(&head.rows.to_le_bytes());
    into.extend_from_slice(&head.content.to_le_bytes());
    into.extend_from_slice(&head.durable.to_le_bytes());
    into.extend_from_slice(&XxHash3_64::oneshot_with_seed(seed, payload).to_le_bytes());
    let sum = XxHash3_64::oneshot_with_seed(seed, into.get(begin..).unwrap_or_default());
    into.extend_from_slice(&sum.to_le_bytes());
    into.extend_from_slice(payload);
}

/// The head that stands at `offset`, if one does.
pub(super) fn read_head(bytes: &[u8], salt: u64, offset: u64) -> Option<Head> {
    let (head, sum) = bytes.get(..HEAD)?.split_at(HEAD - 8);
    let mut fields = Fields(head);
    if fields.take::<4>()? != *MAGIC || fields.u32()? != 0 {
        return None;
    }
    if Fields(sum).u64()? != XxHash3_64::oneshot_with_seed(seed(salt, offset), head) {
        return None;
    }
    Some(Head {
        length: fields.u64()?,
        after: Step::new(fields.u64()?).ok()?,
        step: Step::new(fields.u64()?).ok()?,
        rows: fields.u64()?,
        content: fields.u128()?,
        durable: fields.u64()?,
        payload_sum: fields.u64()?,
    })
}

/// Whether `payload` is what `head`, at `offset`, was written for.
pub(super) fn holds(head: &Head, payload: &Bytes, salt: u64, offset: u64) -> bool {
    payload.len() as u64 == head.length
        && XxHash3_64::oneshot_with_seed(seed(salt, offset), payload) == head.payload_sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_valid_at_its_own_place_only_and_no_bit_of_it_may_differ() {
        let (after, step) = (Step::new(3).unwrap(), Step::new(7).unwrap());
        let payload = Bytes::from_static(b"rows");
        let head = Head { length: 4, after, step, rows: 2, content: 9 << 80, durable: 64, payload_sum: 0 };
        let mut bytes = Vec::new();
        write(&mut bytes, &head, &payload, 11, 100);
        let read = read_head(&bytes, 11, 100).unwrap();
        assert_eq!(Head { payload_sum: 0, ..read }, head);
        assert!(holds(&read, &payload, 11, 100));
        assert!(read_head(&bytes, 12, 100).is_none() && read_head(&bytes, 11, 101).is_none());
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let rest = Bytes::copy_from_slice(&other[HEAD..]);
            let found = read_head(&other, 11, 100).filter(|head| holds(head, &rest, 11, 100));
            assert!(found.is_none(), "bit {bit}");
        }
    }
}
