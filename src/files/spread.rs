//! Rows on their way to the files of their partitions, bounded in memory whatever their number and order.
//!
//! Rows of a partition with an open file go there. Other rows are held in a compact form until there are enough of
//! them for a file; when memory runs short, the partitions that hold most are written out.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::take_record_batch;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use twox_hash::XxHash3_64;

use super::DataFile;
use super::encoder::{Expected, Job, OpenFile};
use super::partition::{PartitionValues, Partitioning};
use super::upload::Overlap;
use crate::change::RowKeys;
use crate::digest::Digest;
use crate::error::{Error, Result};

/// The bytes that held rows, open files, and parts under way may take together.
const MOST_BYTES: usize = 40 << 20;
/// The bytes of held rows for which a file is opened that stays open.
const OPEN_BYTES: usize = 1 << 20;
/// The bytes in memory of a row group that is ended rather than its file.
const ROW_GROUP_BYTES: usize = 2 << 20;
/// The most open files; each has buffers of its own.
const MOST_OPEN: usize = 16;
/// The most files that are being completed at once.
const MOST_ENDING: usize = 8;
/// What a partition with held rows takes beside them.
const HELD_OVERHEAD: usize = 256;

/// The rows of a partition in one slice that are worth an encoder of their own.
const MANY_ROWS: usize = 8192;

/// The bytes of a row's partition columns, which are equal when these are.
type Tuple = Box<[u8]>;

/// Which rows of the slices that each of a writer's encoders gets are one encoder's own.
///
/// A partition with few rows in a slice has one encoder, so that it ends up in one file. One with many is taken by
/// each in turn, so that a single huge partition keeps all of them busy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    place: u64,
    of: u64,
}

impl Share {
    /// Every row, for an encoder without others beside it.
    pub(super) const WHOLE: Self = Self { place: 0, of: 1 };

    /// That of the encoder at `place` of `of`.
    pub(super) fn new(place: usize, of: usize) -> Self {
        Self { place: place as u64, of: (of as u64).max(1) }
    }

    fn takes(self, group: &Group, slice: u64) -> bool {
        let turn = if group.rows.len() < MANY_ROWS { 0 } else { slice };
        self.of == 1 || XxHash3_64::oneshot(&group.tuple).wrapping_add(turn) % self.of == self.place
    }
}

/// The rows of one encoder that are not in complete files yet.
pub(super) struct Spread {
    tuples: RowKeys,
    rows: RowKeys,
    overlap: Overlap,
    share: Share,
    open: HashMap<Tuple, Open>,
    held: HashMap<Tuple, Held>,
    held_bytes: usize,
    ending: FuturesUnordered<BoxFuture<'static, (usize, Result<DataFile>)>>,
    ending_bytes: usize,
    done: Vec<DataFile>,
    /// Slices so far.
    slices: u64,
}

struct Open {
    file: OpenFile,
    /// The slice that it had rows of last.
    used: u64,
}

struct Held {
    values: PartitionValues,
    digest: Digest,
    bytes: Vec<u8>,
    /// Where each row ends in `bytes`.
    ends: Vec<usize>,
}

impl std::fmt::Debug for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spread").field("open", &self.open.len()).field("held", &self.held.len()).finish_non_exhaustive()
    }
}

/// The rows of a slice that are of one partition.
struct Group {
    tuple: Tuple,
    rows: Vec<u32>,
}

impl Spread {
    pub(super) fn new(partitioning: &Partitioning, overlap: Overlap, share: Share) -> Result<Self> {
        let empty = RecordBatch::new_empty(Arc::clone(partitioning.schema()));
        let stored: Vec<_> =
            partitioning.file_schema().fields().iter().map(|f| new_empty_array(f.data_type())).collect();
        Ok(Self {
            tuples: RowKeys::new(&partitioning.keys(&empty))?,
            rows: RowKeys::new(&stored)?,
            overlap,
            share,
            open: HashMap::new(),
            held: HashMap::new(),
            held_bytes: 0,
            ending: FuturesUnordered::new(),
            ending_bytes: 0,
            done: Vec::new(),
            slices: 0,
        })
    }

    /// Adds the rows of `slice` that are its own; the files that were completed since the last call.
    pub(super) async fn add(
        &mut self,
        job: &Arc<Job>,
        partitioning: &Partitioning,
        slice: &RecordBatch,
    ) -> Result<Vec<DataFile>> {
        self.slices += 1;
        let keys = partitioning.keys(slice);
        let groups = self.groups(&keys)?;
        let rows = partitioning.file_rows(slice)?;
        let bytes = super::slices::batch_bytes(&rows);
        let mut to_hold: Vec<(Tuple, Vec<u32>)> = Vec::new();
        let (share, number) = (self.share, self.slices);
        let own: Vec<Group> = groups.into_iter().filter(|group| share.takes(group, number)).collect();
        for (digest, group) in digests(slice, &own)?.into_iter().zip(own) {
            let Some(first) = group.rows.first() else { continue };
            let values = if self.open.contains_key(&group.tuple) || self.held.contains_key(&group.tuple) {
                None
            } else {
                Some(partitioning.values(&keys, *first as usize)?)
            };
            let share = bytes * group.rows.len() / slice.num_rows().max(1);
            let is_open = self.open.contains_key(&group.tuple);
            let waiting = self.held.get(&group.tuple).map_or(0, |held| held.bytes.len());
            if is_open || (waiting + share >= OPEN_BYTES && self.make_room(job)) {
                let rows = if group.rows.len() == slice.num_rows() { rows.clone() } else { take(&rows, &group.rows)? };
                self.write(job, group.tuple, values, &rows, digest).await?;
            } else {
                if let Some(values) = values {
                    self.held_bytes += 2 * group.tuple.len() + HELD_OVERHEAD;
                    let held = Held { values, digest: Digest::EMPTY, bytes: Vec::new(), ends: Vec::new() };
                    self.held.insert(group.tuple.clone(), held);
                }
                if let Some(held) = self.held.get_mut(&group.tuple) {
                    held.digest = held.digest.plus(digest);
                }
                to_hold.push((group.tuple, group.rows));
            }
        }
        self.hold(&rows, &to_hold)?;
        self.relieve(job).await?;
        Ok(std::mem::take(&mut self.done))
    }

    /// Completes every file; after an error the others are given up.
    pub(super) async fn finish(&mut self, job: &Arc<Job>) -> Result<Vec<DataFile>> {
        let ended = self.end_all(job).await;
        if ended.is_err() {
            self.give_up().await;
        }
        ended.map(|()| std::mem::take(&mut self.done))
    }

    /// Gives every file up.
    pub(super) async fn abort(mut self) {
        self.give_up().await;
    }

    async fn end_all(&mut self, job: &Arc<Job>) -> Result<()> {
        let tuples: Vec<Tuple> = self.open.keys().cloned().collect();
        for tuple in tuples {
            if let Some(open) = self.open.remove(&tuple) {
                self.end(job, open.file).await?;
            }
        }
        for (_, held) in std::mem::take(&mut self.held) {
            self.write_held(job, held).await?;
        }
        self.held_bytes = 0;
        while !self.ending.is_empty() {
            self.one_ended().await?;
        }
        Ok(())
    }

    async fn give_up(&mut self) {
        for (_, open) in std::mem::take(&mut self.open) {
            open.file.abort().await;
        }
        // A file that is being completed ends by itself, whatever becomes of it.
        while self.ending.next().await.is_some() {}
    }

    /// The rows of each partition, in their order.
    fn groups(&self, keys: &[arrow::array::ArrayRef]) -> Result<Vec<Group>> {
        let tuples = self.tuples.convert(keys)?;
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut last: Option<(&[u8], usize)> = None;
        for (row, number) in tuples.iter().zip(0u32..) {
            let data = row.data();
            let place = match last {
                Some((same, place)) if same == data => place,
                _ => *places.entry(data).or_insert_with(|| {
                    groups.push(Group { tuple: data.into(), rows: Vec::new() });
                    groups.len() - 1
                }),
            };
            last = Some((data, place));
            if let Some(group) = groups.get_mut(place) {
                group.rows.push(number);
            }
        }
        Ok(groups)
    }

    /// Whether one more file may be open, after one that the last slices did not use was ended.
    fn make_room(&mut self, job: &Arc<Job>) -> bool {
        if self.open.len() < MOST_OPEN {
            return true;
        }
        let idle = self.open.iter().filter(|(_, open)| open.used + 1 < self.slices).min_by_key(|(_, open)| open.used);
        let Some(open) = idle.map(|(tuple, _)| tuple.clone()).and_then(|tuple| self.open.remove(&tuple)) else {
            return false;
        };
        self.begin_end(job, open.file);
        true
    }

    async fn write(
        &mut self,
        job: &Arc<Job>,
        tuple: Tuple,
        values: Option<PartitionValues>,
        rows: &RecordBatch,
        digest: Digest,
    ) -> Result<()> {
        let used = self.slices;
        let mut open = match (self.open.remove(&tuple), self.held.remove(&tuple), values) {
            (Some(open), ..) => open,
            (None, Some(held), _) => {
                self.held_bytes = self.held_bytes.saturating_sub(held.bytes.len() + 2 * tuple.len() + HELD_OVERHEAD);
                Open { file: self.file_of(job, held)?, used }
            }
            (None, None, Some(values)) => {
                Open { file: OpenFile::new(job, self.overlap, values, Expected::Many, rows)?, used }
            }
            (None, None, None) => return Err(Error::internal("rows of a partition without values")),
        };
        open.used = used;
        let sent = match open.file.add(rows, digest) {
            Ok(()) => open.file.send_full_parts(job).await,
            failed => failed,
        };
        let is_full = open.file.size() >= job.target_file_size();
        if sent.is_ok() && is_full {
            return self.end(job, open.file).await;
        }
        self.open.insert(tuple, open);
        sent
    }

    /// Holds the rows of `groups`.
    fn hold(&mut self, rows: &RecordBatch, groups: &[(Tuple, Vec<u32>)]) -> Result<()> {
        if groups.is_empty() {
            return Ok(());
        }
        let places: Vec<u32> = groups.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
        let encoded = self.rows.convert(take(rows, &places)?.columns())?;
        let mut encoded = encoded.iter();
        for (tuple, places) in groups {
            let Some(held) = self.held.get_mut(tuple) else { continue };
            let before = held.bytes.len();
            for row in encoded.by_ref().take(places.len()) {
                held.bytes.extend_from_slice(row.data());
                held.ends.push(held.bytes.len());
            }
            self.held_bytes += held.bytes.len() - before;
        }
        Ok(())
    }

    fn file_of(&self, job: &Job, held: Held) -> Result<OpenFile> {
        let starts = std::iter::once(0).chain(held.ends.iter().copied());
        let rows = starts.zip(&held.ends).filter_map(|(start, end)| held.bytes.get(start..*end));
        let columns = self.rows.restore(rows)?;
        let rows = RecordBatch::try_new(Arc::clone(job.file_schema()), columns)
            .map_err(|e| Error::internal("held rows were not put together again").with_source(e))?;
        let mut file = OpenFile::new(job, self.overlap, held.values, Expected::Few, &rows)?;
        file.add(&rows, held.digest)?;
        Ok(file)
    }

    async fn write_held(&mut self, job: &Arc<Job>, held: Held) -> Result<()> {
        let file = self.file_of(job, held)?;
        self.end(job, file).await
    }

    fn bytes(&self) -> usize {
        self.held_bytes + self.ending_bytes + self.open.values().map(|open| open.file.memory()).sum::<usize>()
    }

    /// Writes out what takes most memory, until there is not too much of it.
    async fn relieve(&mut self, job: &Arc<Job>) -> Result<()> {
        while self.bytes() > MOST_BYTES {
            if !self.ending.is_empty() {
                self.one_ended().await?;
            } else if let Some(open) = self.open.values_mut().find(|open| open.file.under_way_bytes() > 0) {
                open.file.settle().await?;
            } else if self.held_bytes > MOST_BYTES / 2 || self.open.is_empty() {
                self.write_most_held(job).await?;
            } else {
                self.shrink_an_open_file(job).await?;
            }
        }
        Ok(())
    }

    /// Ends the largest row group, or the file with most unsent bytes when no row group is worth it.
    async fn shrink_an_open_file(&mut self, job: &Arc<Job>) -> Result<()> {
        let row_groups = self.open.values_mut().max_by_key(|open| open.file.row_group_memory());
        if let Some(open) = row_groups.filter(|open| open.file.row_group_memory() >= ROW_GROUP_BYTES) {
            return open.file.flush(job).await;
        }
        let largest = self.open.iter().max_by_key(|(_, open)| open.file.memory()).map(|(tuple, _)| tuple.clone());
        match largest.and_then(|tuple| self.open.remove(&tuple)) {
            Some(open) => self.end(job, open.file).await,
            None => Ok(()),
        }
    }

    /// Writes the partitions with the most held rows, until a quarter of what may be held is gone.
    async fn write_most_held(&mut self, job: &Arc<Job>) -> Result<()> {
        let mut sizes: Vec<(usize, Tuple)> =
            self.held.iter().map(|(tuple, held)| (held.bytes.len(), tuple.clone())).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let enough = self.held_bytes.saturating_sub(MOST_BYTES / 4);
        for (size, tuple) in sizes {
            if self.held_bytes <= enough {
                break;
            }
            if let Some(held) = self.held.remove(&tuple) {
                self.held_bytes = self.held_bytes.saturating_sub(size + 2 * tuple.len() + HELD_OVERHEAD);
                self.write_held(job, held).await?;
            }
        }
        Ok(())
    }

    /// Completes a file, waiting while too many are being completed.
    async fn end(&mut self, job: &Arc<Job>, file: OpenFile) -> Result<()> {
        self.begin_end(job, file);
        while self.ending.len() > MOST_ENDING || self.ending_bytes > MOST_BYTES {
            self.one_ended().await?;
        }
        Ok(())
    }

    fn begin_end(&mut self, job: &Arc<Job>, file: OpenFile) {
        let (job, bytes) = (Arc::clone(job), file.memory());
        self.ending_bytes += bytes;
        self.ending.push(Box::pin(async move { (bytes, file.complete(&job).await) }));
    }

    async fn one_ended(&mut self) -> Result<()> {
        if let Some((bytes, ended)) = self.ending.next().await {
            self.ending_bytes -= bytes;
            self.done.push(ended?);
        }
        Ok(())
    }
}

/// The digest of each group's rows, their partition columns included.
fn digests(slice: &RecordBatch, groups: &[Group]) -> Result<Vec<Digest>> {
    let places: Vec<u32> = groups.iter().flat_map(|group| group.rows.iter().copied()).collect();
    let of_rows = match places.len() == slice.num_rows() && places.is_sorted() {
        true => Digest::of_rows(slice)?,
        false => Digest::of_rows(&take(slice, &places)?)?,
    };
    let mut of_rows = of_rows.into_iter();
    Ok(groups.iter().map(|group| of_rows.by_ref().take(group.rows.len()).sum()).collect())
}

fn take(rows: &RecordBatch, places: &[u32]) -> Result<RecordBatch> {
    let places = UInt32Array::from_iter_values(places.iter().copied());
    take_record_batch(rows, &places)
        .map_err(|e| Error::internal("rows of a partition were not selected").with_source(e))
}

#[cfg(test)]
#[path = "spread_tests.rs"]
mod tests;
