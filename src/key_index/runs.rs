//! Which rows a file holds, by the numbers that an index gave them.

use std::ops::Range;

use roaring::RoaringTreemap;

/// Rows so close to each other are looked for in the same files.
const CHUNK_BITS: u32 = 16;

/// The numbers of a file's rows, in the file's order: they ascend within a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RowRuns(Vec<RoaringTreemap>);

impl RowRuns {
    /// Rows that are new, with the numbers of `range`.
    pub(crate) fn of(range: Range<u64>) -> Self {
        let mut run = RoaringTreemap::new();
        run.insert_range(range);
        Self::join([run])
    }

    /// The runs one after another; those that ascend across their border become one.
    pub(crate) fn join(runs: impl IntoIterator<Item = RoaringTreemap>) -> Self {
        let mut joined: Vec<RoaringTreemap> = Vec::new();
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.max() < run.min() => *last |= run,
                _ => joined.push(run),
            }
        }
        joined.iter_mut().for_each(|run| _ = run.optimize());
        Self(joined)
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.iter().map(RoaringTreemap::len).sum()
    }

    /// The place of a row in the file, counted from 0.
    pub(crate) fn place(&self, row: u64) -> Option<u64> {
        let mut before = 0;
        for run in &self.0 {
            if run.contains(row) {
                return Some(before + run.rank(row) - 1);
            }
            before += run.len();
        }
        None
    }

    /// The runs without the rows at the places of `deleted`.
    pub(crate) fn without(&self, deleted: &RoaringTreemap) -> Vec<RoaringTreemap> {
        let mut place = 0;
        let left = |run: &RoaringTreemap| {
            let rows = run.iter().zip(place..).filter(|(_, place)| !deleted.contains(*place)).map(|(row, _)| row);
            let left = rows.collect();
            place += run.len();
            left
        };
        self.0.iter().map(left).collect()
    }

    /// Chunks of numbers, among them all those that have a row here.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = u64> {
        let ends = self.0.iter().filter_map(|run| Some(chunk_of(run.min()?)..=chunk_of(run.max()?)));
        ends.flatten()
    }

    /// The runs as bytes, each behind its length.
    pub(super) fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for run in &self.0 {
            bytes.extend((run.serialized_size() as u64).to_le_bytes());
            run.serialize_into(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// What [`RowRuns::encode`] wrote; `None` for anything else.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut runs = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_first_chunk::<8>()?;
            let (run, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            runs.push(RoaringTreemap::deserialize_from(run).ok()?);
            bytes = rest;
        }
        Some(Self(runs))
    }
}

/// The chunk in which a row is.
pub(crate) fn chunk_of(row: u64) -> u64 {
    row >> CHUNK_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_where_they_stand_whatever_was_joined_and_left_out() {
        let first = RowRuns::of(100..200);
        let second = RowRuns::of(5..10);
        let third = RowRuns::of(1 << 40..(1 << 40) + 3);
        assert_eq!((first.len(), first.place(100), first.place(199), first.place(200)), (100, Some(0), Some(99), None));
        let deleted = RoaringTreemap::from_iter([0, 2, 50]);
        let joined = RowRuns::join(first.without(&deleted).into_iter().chain(second.0.clone()).chain(third.0));
        assert_eq!(joined.0.len(), 2, "the second begins below the first, the third goes on");
        assert_eq!(joined.len(), 105);
        for (row, place) in [
            (100, None),
            (101, Some(0)),
            (103, Some(1)),
            (150, None),
            (199, Some(96)),
            (5, Some(97)),
            (9, Some(101)),
            (1 << 40, Some(102)),
        ] {
            assert_eq!(joined.place(row), place, "{row}");
        }
        assert!([101, 7, 1 << 40].into_iter().all(|row| joined.chunks().any(|chunk| chunk == chunk_of(row))));
        assert_eq!(RowRuns::decode(&joined.encode().unwrap()), Some(joined.clone()));
        let bytes = joined.encode().unwrap();
        assert_eq!(RowRuns::decode(&bytes[..bytes.len() - 1]), None);
    }

    #[test]
    fn new_rows_take_little_room_whatever_their_number() {
        assert!(RowRuns::of(7..10_000_007).encode().unwrap().len() < 4_000);
    }
}
