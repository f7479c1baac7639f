//! The current rows of a view, folded from its changelog, or read from a table that is the view.
//!
//! Two passes over the live files. The first reads what identifies a row and keeps one entry a key, or a distinct row
//! in a view without key; the second reads the rows that are left. Memory grows with the keys, not with the changes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{FieldRef, Int64Type, Schema, SchemaRef};
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use parquet::arrow::arrow_reader::{RowSelection, RowSelector};

use super::{current, listing};
use crate::change::{Op, RowKeys};
use crate::continuity::plan::Standing;
use crate::continuity::stamp::{Layout, Mode, TableStamp, row_columns};
use crate::data_file::{self, Origin, Wanted};
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::log::{Facts, LiveFile, Log, Metadata, table_schema};
use crate::schema::view_columns;
use crate::step::Step;

/// A view's rows at a step.
pub struct State {
    /// The generation.
    pub generation: Generation,
    /// The step.
    pub step: Step,
    /// The view's columns.
    pub schema: SchemaRef,
    /// The rows, in no particular order.
    pub rows: BoxStream<'static, Result<RecordBatch>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("generation", &self.generation).field("step", &self.step).finish_non_exhaustive()
    }
}

/// The rows of the table's view at `step` of the current generation, or at its last step.
///
/// A table that drifted is folded too; only rows of the current generation count. A table in mode `follow` holds no
/// snapshot, so what is folded are the rows that changed.
///
/// Internal: there is no table. Refused: it is not ours, or `step` is not one of the generation's. Incompatible: a
/// feature that cannot be read. Corrupt: files that are missing or damaged, or rows that contradict each other.
pub async fn state(log: &Log, step: Option<Step>) -> Result<State> {
    listing(log).await?;
    let facts = log.facts().await?;
    let (stamp, last_step, metadata) = readable(log, &facts)?;
    if stamp.layout == Layout::Current {
        return current::state(log, &facts, stamp, step.unwrap_or(last_step)).await;
    }
    let step = step.unwrap_or(last_step);
    if step < stamp.step || step > last_step {
        return Err(Error::refused(format!(
            "step {step} is not in generation {}, which holds the steps {} to {last_step}",
            stamp.generation, stamp.step
        )));
    }
    let files = readable_files(log, &facts).await?;
    let table = table_schema(metadata)?;
    let from = Origin::of(log, &facts, &table)?;
    let fold = Fold { from, files, view: view_columns(&table), stamp: stamp.clone(), step };
    let rows = if stamp.key.is_empty() { fold.keyless().await? } else { fold.keyed().await? };
    Ok(State { generation: stamp.generation, step, schema: fold.view, rows })
}

/// The stamp, last step and metadata of a table of ours that can be read here.
pub(super) fn readable<'a>(log: &Log, facts: &'a Facts) -> Result<(&'a TableStamp, Step, &'a Metadata)> {
    let uri = log.location().uri();
    let ours = match &facts.standing {
        Standing::Absent => return Err(Error::internal(format!("no such table: {uri}"))),
        Standing::Foreign => {
            return Err(Error::refused(format!("the table {uri} is not ours; no connector of cutover loaded it")));
        }
        Standing::Ours(ours) => ours,
    };
    let (Some(stamp), Some(metadata)) = (&ours.stamp, &facts.metadata) else {
        return Err(Error::corrupt(
            "the table's properties that begin with cutover. are missing or broken, so its key is not known; a reset writes them anew",
        ));
    };
    if stamp.generation != ours.generation {
        return Err(Error::corrupt(format!(
            "the table's properties say generation {}, our last commit {}; a reset repairs it",
            stamp.generation, ours.generation
        )));
    }
    Ok((stamp, ours.last_step, metadata))
}

/// The live files, each of which can be read here.
pub(super) async fn readable_files(log: &Log, facts: &Facts) -> Result<Vec<LiveFile>> {
    let files = log.live_files(facts).await?;
    if let Some(file) = files.iter().find(|f| f.vector.is_some()) {
        return Err(Error::incompatible(format!(
            "others deleted rows of the data file {} by a deletion vector, which is not read here; rewrite such files (REORG TABLE … APPLY (PURGE)), or reset the table",
            file.path
        )));
    }
    // Every path is looked at before any is followed.
    files.iter().try_for_each(|f| f.object().map(|_| ()))?;
    Ok(files)
}

struct Fold {
    from: Origin,
    files: Vec<LiveFile>,
    view: SchemaRef,
    stamp: TableStamp,
    step: Step,
}

/// A row that counts.
pub(super) struct Mark {
    pub(super) row: usize,
    pub(super) step: i64,
    pub(super) op: Op,
}

/// The newest row of a key.
struct Newest {
    step: i64,
    op: Op,
    file: usize,
    row: usize,
    /// Whether another row of the key has the same step.
    contested: bool,
}

impl Fold {
    /// The newest row of each key, unless it is a delete.
    async fn keyed(&self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let key = self.stamp.key.iter().map(|name| {
            let field = self.view.fields().iter().find(|f| f.name() == name).cloned();
            field.ok_or_else(|| Error::corrupt(format!("the key column {name:?} is not a column of the table")))
        });
        let columns = marked(key.collect::<Result<Vec<_>>>()?);
        let keys = RowKeys::new(values(&RecordBatch::new_empty(Arc::clone(&columns))))?;
        let mut newest: HashMap<Box<[u8]>, Newest> = HashMap::new();
        let mut rows_read = vec![0; self.files.len()];
        let mut pieces = data_file::read(&self.from, self.whole_files(), &columns);
        while let Some(piece) = pieces.try_next().await? {
            let rows = keys.convert(values(&piece.rows))?;
            for Mark { row, step, op } in self.marks(&piece.rows, &piece.path)? {
                let found = Newest { step, op, file: piece.file, row: piece.first_row + row, contested: false };
                match newest.get_mut(rows.row(row).data()) {
                    None => _ = newest.insert(rows.row(row).data().into(), found),
                    Some(known) if known.step < step => *known = found,
                    Some(known) => known.contested |= known.step == step,
                }
            }
            if let Some(read) = rows_read.get_mut(piece.file) {
                *read = piece.first_row + piece.rows.num_rows();
            }
        }
        let mut left: Vec<Vec<usize>> = vec![Vec::new(); self.files.len()];
        for Newest { step, op, file, row, contested } in newest.into_values() {
            if contested {
                let path = self.files.get(file).map_or("", |f| f.path.as_str());
                return Err(Error::corrupt(format!(
                    "two rows have the same key and the step {step}, one of them in {path}, so which is the newest cannot be told; verify the table, then reset it"
                )));
            }
            if op != Op::Delete
                && let Some(rows) = left.get_mut(file)
            {
                rows.push(row);
            }
        }
        let wanted = self.files.iter().zip(left).zip(rows_read);
        let wanted = wanted.filter(|((_, rows), _)| !rows.is_empty());
        let wanted = wanted.map(|((file, rows), all)| Wanted { file: file.clone(), rows: Some(selection(rows, all)) });
        let rows = data_file::read(&self.from, wanted.collect(), &self.view);
        Ok(rows.map_ok(|piece| piece.rows).boxed())
    }

    /// As many copies of each row as its inserts exceed its deletes.
    async fn keyless(&self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let columns = marked(self.view.fields().to_vec());
        let keys = RowKeys::new(values(&RecordBatch::new_empty(Arc::clone(&columns))))?;
        let mut nets: HashMap<Box<[u8]>, i64> = HashMap::new();
        let mut pieces = data_file::read(&self.from, self.whole_files(), &columns);
        while let Some(piece) = pieces.try_next().await? {
            let rows = keys.convert(values(&piece.rows))?;
            for Mark { row, op, .. } in self.marks(&piece.rows, &piece.path)? {
                let weight = match op {
                    Op::Insert => 1,
                    Op::Delete => -1,
                    Op::Update => {
                        return Err(Error::corrupt(format!(
                            "the data file {} has an update, and the view has no key",
                            piece.path
                        )));
                    }
                };
                match nets.get_mut(rows.row(row).data()) {
                    Some(net) => *net += weight,
                    None => _ = nets.insert(rows.row(row).data().into(), weight),
                }
            }
        }
        if nets.values().any(|net| *net < 0) {
            return Err(self.more_deletes_than_inserts());
        }
        nets.retain(|_, net| *net > 0);
        let (generation, step, view) = (self.stamp.generation, self.step, Arc::clone(&self.view));
        let rows = data_file::read(&self.from, self.whole_files(), &columns).map(move |piece| {
            let piece = piece?;
            let rows = keys.convert(values(&piece.rows))?;
            let mut keep = vec![false; piece.rows.num_rows()];
            for Mark { row, op, .. } in marks(&piece.rows, &piece.path, generation, step)? {
                if op == Op::Insert
                    && let Some(net) = nets.get_mut(rows.row(row).data())
                    && *net > 0
                    && let Some(keep) = keep.get_mut(row)
                {
                    (*net, *keep) = (*net - 1, true);
                }
            }
            let broken = |e| Error::internal("the rows that are left were not selected").with_source(e);
            let rows = RecordBatch::try_new(Arc::clone(&view), values(&piece.rows).to_vec()).map_err(broken)?;
            filter_record_batch(&rows, &BooleanArray::from(keep)).map_err(broken)
        });
        Ok(rows.try_filter(|rows| std::future::ready(rows.num_rows() > 0)).boxed())
    }

    fn more_deletes_than_inserts(&self) -> Error {
        if self.stamp.mode == Mode::Follow {
            return Error::refused(format!(
                "the table has only the changes after step {}, among them deletes of rows from before, so it does not tell the rows of the view",
                self.stamp.step
            ));
        }
        Error::corrupt(format!(
            "at step {} a row was deleted more often than inserted; verify the table, then reset it",
            self.step
        ))
    }

    fn whole_files(&self) -> Vec<Wanted> {
        self.files.iter().map(|file| Wanted { file: file.clone(), rows: None }).collect()
    }

    fn marks(&self, batch: &RecordBatch, path: &str) -> Result<Vec<Mark>> {
        marks(batch, path, self.stamp.generation, self.step)
    }
}

/// The rows of a batch with [`marked`] columns that are in the generation and not after `until`.
pub(super) fn marks(batch: &RecordBatch, path: &str, generation: Generation, until: Step) -> Result<Vec<Mark>> {
    let [of_generation, steps, ops, ..] = batch.columns() else {
        return Err(Error::internal("the continuity columns were not read"));
    };
    let long = |column: &'_ ArrayRef| column.as_primitive_opt::<Int64Type>().cloned();
    let (Some(generations), Some(steps), Some(ops)) = (long(of_generation), long(steps), ops.as_string_opt::<i32>())
    else {
        return Err(Error::internal("the continuity columns have other types than were read"));
    };
    let rows = generations.values().iter().zip(steps.values()).zip(ops).enumerate();
    let counts = rows.filter(|(_, ((g, step), _))| **g == generation.as_i64() && **step <= until.as_i64());
    counts
        .map(|(row, ((_, step), letter))| {
            let letter = letter.unwrap_or_default();
            let op = Op::from_letter(letter).ok_or_else(|| {
                Error::corrupt(format!(
                    "the data file {path} has the operation {letter:?}, which is none of i, u and d"
                ))
            })?;
            Ok(Mark { row, step: *step, op })
        })
        .collect()
}

/// The continuity columns, then `fields`.
pub(super) fn marked(fields: Vec<FieldRef>) -> SchemaRef {
    let mut all = row_columns().to_vec();
    all.extend(fields);
    Arc::new(Schema::new(all))
}

/// The columns behind those of continuity.
pub(super) fn values(batch: &RecordBatch) -> &[ArrayRef] {
    batch.columns().get(row_columns().len()..).unwrap_or_default()
}

/// The rows at these places of a file of `all` rows.
pub(super) fn selection(mut rows: Vec<usize>, all: usize) -> RowSelection {
    rows.sort_unstable();
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut next = 0;
    for row in rows {
        if row > next {
            selectors.push(RowSelector::skip(row - next));
        }
        match selectors.last_mut() {
            Some(last) if !last.skip => last.row_count += 1,
            _ => selectors.push(RowSelector::select(1)),
        }
        next = row + 1;
    }
    if all > next {
        selectors.push(RowSelector::skip(all - next));
    }
    selectors.into()
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
