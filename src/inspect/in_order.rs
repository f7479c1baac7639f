//! The rows of data files in the order of their steps, in bounded memory.
//!
//! Files whose steps do not overlap follow each other. What overlaps, as after a compaction by others, is read in
//! windows of whole steps: a pass over the step column finds where the next window ends, then its rows are read and
//! sorted. A single step of any size is passed through, since the order within a step means nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow::compute::{filter_record_batch, interleave_record_batch};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use super::state::selection;
use crate::change::Op;
use crate::continuity::stamp::row_columns;
use crate::data_file::{self, Origin, Piece, Wanted};
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::log::LiveFile;

/// The rows that are held and sorted at once.
const WINDOW_ROWS: u64 = 131_072;
/// The most rows of a batch that was sorted.
const BATCH_ROWS: usize = 4096;

/// What is read: the rows of one generation with steps in `(after, until]`.
#[derive(Clone)]
pub(super) struct InOrder {
    pub(super) from: Origin,
    /// The continuity columns, then the view's.
    pub(super) columns: SchemaRef,
    pub(super) generation: Generation,
    pub(super) after: i64,
    pub(super) until: i64,
}

impl InOrder {
    /// The rows of `files` in step order. A file whose statistics exclude the range is not opened.
    ///
    /// Corrupt: a file that is missing or damaged, or a row of another generation or of no operation.
    pub(super) fn read(self, files: Vec<LiveFile>) -> BoxStream<'static, Result<RecordBatch>> {
        self.read_in_windows(files, WINDOW_ROWS)
    }

    fn read_in_windows(self, files: Vec<LiveFile>, most: u64) -> BoxStream<'static, Result<RecordBatch>> {
        let concerned = |f: &LiveFile| f.steps.is_none_or(|(min, max)| max > self.after && min <= self.until);
        let groups = groups(files.into_iter().filter(concerned).collect(), most);
        let walk = Walk { order: self, groups, left: None, most };
        let windows = stream::try_unfold(walk, |mut walk| async {
            let window = walk.next().await?;
            Ok::<_, Error>(window.map(|rows| (rows, walk)))
        });
        windows.try_flatten().boxed()
    }

    /// The rows of a piece that are in the range.
    fn pick(&self, piece: &Piece) -> Result<RecordBatch> {
        let (generations, steps, ops) = continuity(&piece.rows)?;
        let own = self.generation.as_i64();
        if let Some(other) = generations.values().iter().find(|g| **g != own) {
            return Err(Error::corrupt(format!(
                "the data file {} has a row of generation {other}, the table is at {own}; see `cutover verify`, then repair the table with a reset",
                piece.path
            )));
        }
        let wanted = |step: &i64| *step > self.after && *step <= self.until;
        if let Some(letter) = ops.iter().flatten().find(|letter| Op::from_letter(letter).is_none()) {
            return Err(Error::corrupt(format!(
                "the data file {} has the operation {letter:?}, which is none of i, u and d",
                piece.path
            )));
        }
        if steps.values().iter().all(wanted) {
            return Ok(piece.rows.clone());
        }
        let keep: BooleanArray = steps.values().iter().map(|step| Some(wanted(step))).collect();
        filter_record_batch(&piece.rows, &keep).map_err(|e| Error::internal("rows were not selected").with_source(e))
    }

    /// The rows as they stand in the files.
    fn pass(&self, files: Vec<LiveFile>) -> BoxStream<'static, Result<RecordBatch>> {
        let wanted = files.into_iter().map(|file| Wanted { file, rows: None }).collect();
        let order = self.clone();
        let rows = data_file::read(&self.from, wanted, &self.columns).map(move |piece| order.pick(&piece?));
        rows.try_filter(|rows| std::future::ready(rows.num_rows() > 0)).boxed()
    }

    /// The rows, read whole and sorted.
    async fn sorted(&self, wanted: Vec<Wanted>) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let (mut batches, mut places): (Vec<RecordBatch>, Vec<(i64, usize, usize)>) = (Vec::new(), Vec::new());
        let mut pieces = data_file::read(&self.from, wanted, &self.columns);
        while let Some(piece) = pieces.try_next().await? {
            let rows = self.pick(&piece)?;
            let (_, steps, _) = continuity(&rows)?;
            places.extend(steps.values().iter().enumerate().map(|(row, step)| (*step, batches.len(), row)));
            batches.push(rows);
        }
        if places.is_sorted_by_key(|(step, ..)| *step) {
            batches.retain(|b| b.num_rows() > 0);
            return Ok(stream::iter(batches.into_iter().map(Ok)).boxed());
        }
        places.sort_by_key(|(step, ..)| *step);
        let chunks: Vec<Vec<(usize, usize)>> =
            places.chunks(BATCH_ROWS).map(|c| c.iter().map(|(_, batch, row)| (*batch, *row)).collect()).collect();
        let taken = stream::iter(chunks).map(move |chunk| {
            let batches: Vec<&RecordBatch> = batches.iter().collect();
            interleave_record_batch(&batches, &chunk)
                .map_err(|e| Error::internal("rows were not sorted").with_source(e))
        });
        Ok(taken.boxed())
    }
}

/// Where the reading stands.
struct Walk {
    order: InOrder,
    groups: VecDeque<Vec<LiveFile>>,
    /// Files that are read in windows, and the step up to which they were.
    left: Option<(Vec<LiveFile>, i64)>,
    most: u64,
}

impl Walk {
    /// The next rows; `None` at the end.
    async fn next(&mut self) -> Result<Option<BoxStream<'static, Result<RecordBatch>>>> {
        loop {
            let Some((mut files, after)) = self.left.take() else {
                let Some(files) = self.groups.pop_front() else { return Ok(None) };
                if only_step(&files).is_some() {
                    return Ok(Some(self.order.pass(files)));
                }
                if rows_of(&files).is_some_and(|rows| rows <= self.most) {
                    let wanted = files.into_iter().map(|file| Wanted { file, rows: None }).collect();
                    return self.order.sorted(wanted).await.map(Some);
                }
                self.left = Some((files, self.order.after));
                continue;
            };
            files.retain(|f| f.steps.is_none_or(|(_, max)| max > after));
            let Some(window) = self.window(&files, after).await? else { continue };
            let order = InOrder { after, until: window.until, ..self.order.clone() };
            let rows = if window.is_one_step {
                order.pass(files.clone())
            } else {
                let wanted = order.places(&files).await?;
                order.sorted(wanted).await?
            };
            self.left = Some((files, window.until));
            return Ok(Some(rows));
        }
    }

    /// The steps after `after` whose rows are read next: as many whole ones as fit, at least one.
    async fn window(&self, files: &[LiveFile], after: i64) -> Result<Option<Window>> {
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        let mut total = 0;
        let range = InOrder { after, ..self.order.clone() };
        let mut pieces = range.steps(files);
        while let Some(piece) = pieces.try_next().await? {
            for step in steps_of(&piece.rows)?.values().iter().filter(|s| **s > after && **s <= range.until) {
                *counts.entry(*step).or_default() += 1;
                total += 1;
                while total > self.most && counts.len() > 1 {
                    total -= counts.pop_last().map_or(0, |(_, rows)| rows);
                }
            }
        }
        let last = counts.last_key_value().map(|(step, _)| *step);
        Ok(last.map(|until| Window { until, is_one_step: counts.len() == 1 }))
    }
}

struct Window {
    until: i64,
    is_one_step: bool,
}

impl InOrder {
    /// The step column alone.
    fn steps(&self, files: &[LiveFile]) -> BoxStream<'static, Result<Piece>> {
        let [_, step, _] = row_columns();
        let columns: SchemaRef = Arc::new(Schema::new(vec![Arc::clone(step)]));
        let wanted = files.iter().map(|file| Wanted { file: file.clone(), rows: None }).collect();
        data_file::read(&self.from, wanted, &columns)
    }

    /// The files that hold rows of the range, and where.
    async fn places(&self, files: &[LiveFile]) -> Result<Vec<Wanted>> {
        let mut places: Vec<(Vec<usize>, usize)> = vec![(Vec::new(), 0); files.len()];
        let mut pieces = self.steps(files);
        while let Some(piece) = pieces.try_next().await? {
            let Some((rows, all)) = places.get_mut(piece.file) else { continue };
            let steps = steps_of(&piece.rows)?.values().iter().enumerate();
            rows.extend(steps.filter(|(_, s)| **s > self.after && **s <= self.until).map(|(i, _)| piece.first_row + i));
            *all = piece.first_row + piece.rows.num_rows();
        }
        let found = files.iter().zip(places).filter(|(_, (rows, _))| !rows.is_empty());
        Ok(found.map(|(file, (rows, all))| Wanted { file: file.clone(), rows: Some(selection(rows, all)) }).collect())
    }
}

/// Files that must be read together, in step order: all that overlap, neighbours while they are small, and all of one
/// step.
fn groups(mut files: Vec<LiveFile>, most: u64) -> VecDeque<Vec<LiveFile>> {
    files.sort_by_key(|f| f.steps.unwrap_or((i64::MIN, i64::MAX)));
    let mut groups: VecDeque<Vec<LiveFile>> = VecDeque::new();
    let mut end = i64::MIN;
    for file in files {
        let (min, max) = file.steps.unwrap_or((i64::MIN, i64::MAX));
        let joins = groups.back().is_some_and(|group| {
            let is_same_step = min == max && only_step(group) == Some(min);
            let is_small = rows_of(group).zip(file.rows).is_some_and(|(a, b)| a.saturating_add(b) <= most);
            min < end || is_same_step || is_small
        });
        match groups.back_mut().filter(|_| joins) {
            Some(group) => group.push(file),
            None => groups.push_back(vec![file]),
        }
        end = end.max(max);
    }
    groups
}

/// The step that all rows of the files have, where statistics tell.
fn only_step(files: &[LiveFile]) -> Option<i64> {
    let (step, _) = files.first()?.steps?;
    files.iter().all(|f| f.steps == Some((step, step))).then_some(step)
}

fn rows_of(files: &[LiveFile]) -> Option<u64> {
    files.iter().try_fold(0u64, |sum, f| Some(sum.saturating_add(f.rows?)))
}

type Longs = PrimitiveArray<Int64Type>;

/// Generations, steps and operations of rows.
pub(super) fn continuity(rows: &RecordBatch) -> Result<(&Longs, &Longs, &StringArray)> {
    let other = || Error::internal("the continuity columns have other types than were read");
    let [generations, steps, ops, ..] = rows.columns() else { return Err(other()) };
    match (generations.as_primitive_opt(), steps.as_primitive_opt(), ops.as_string_opt::<i32>()) {
        (Some(generations), Some(steps), Some(ops)) => Ok((generations, steps, ops)),
        _ => Err(other()),
    }
}

fn steps_of(rows: &RecordBatch) -> Result<&Longs> {
    let steps = rows.columns().first().and_then(|c| c.as_primitive_opt::<Int64Type>());
    steps.ok_or_else(|| Error::internal("the step column has another type than was read"))
}

#[cfg(test)]
#[path = "in_order_tests.rs"]
mod tests;
