//! NDJSON: one row or one change a line, exact or refused.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Builder, RecordBatch, RecordBatchOptions, StringBuilder};
use arrow::datatypes::SchemaRef;

use super::shape::Shape;
use crate::change::Op;
use crate::error::{Error, Result};
use crate::json::{Entries, Misplaced, Names, NotEntries, Record, Room, integer, kind_of};
use crate::schema::View;
use crate::step::Step;

/// The longest line, in bytes.
const MAX_LINE: u64 = 8 << 20;
/// A batch ends at this many rows …
const BATCH_ROWS: usize = 8192;
/// … or this many bytes of lines.
const BATCH_BYTES: usize = 16 << 20;
/// The most memory that one batch may take, in bytes: a short line can name a row of very many columns.
const MAX_UNFOLDED: u64 = 4 << 30;

/// The batches of an NDJSON file.
pub(crate) struct Ndjson<R> {
    lines: Lines<R>,
    label: String,
    shape: Shape,
    schema: SchemaRef,
    record: Record,
    steps: Int64Builder,
    ops: StringBuilder,
    ended: bool,
}

impl<R: Read> Ndjson<R> {
    /// Reads `input`; `label` begins each error's message.
    pub(crate) fn new(input: R, label: &str, shape: Shape) -> Result<Self> {
        // In a change too, the key and what may not be null must be there.
        let (Shape::Rows(view) | Shape::Changes(view, _)) = &shape;
        Ok(Self {
            lines: Lines::new(input, label),
            label: label.to_owned(),
            schema: shape.schema(),
            record: Record::new(view.schema().fields(), Names::Exact)?,
            shape,
            steps: Int64Builder::new(),
            ops: StringBuilder::new(),
            ended: false,
        })
    }

    /// The next batch; `None` at the end.
    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let (mut rows, mut bytes) = (0, 0);
        let mut room = Room::new(MAX_UNFOLDED, "write shorter lines");
        while rows < BATCH_ROWS && bytes < BATCH_BYTES {
            let Some((number, line)) = self.lines.next()? else {
                self.ended = true;
                break;
            };
            let place = |why: String| Error::refused(format!("{} line {number}: {why}", self.label));
            let misplaced = |why: Misplaced| place(why.to_string());
            let entries = Entries::parse(line).map_err(|e| not_entries(e, &self.label, number))?;
            match &self.shape {
                Shape::Rows(_) => self.record.append(&entries, &mut room).map_err(misplaced)?,
                Shape::Changes(view, _) => {
                    let change = Change::of(&entries, view).map_err(place)?;
                    self.shape.check_step(change.step).map_err(place)?;
                    let row = Entries::parse(change.row).map_err(|e| not_entries(e, &self.label, number))?;
                    self.record.append(&row, &mut room).map_err(misplaced)?;
                    self.steps.append_value(change.step);
                    self.ops.append_value(change.op.letter());
                }
            }
            rows += 1;
            bytes += line.len();
        }
        if rows == 0 {
            return Ok(None);
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        if let Shape::Changes(..) = self.shape {
            columns.push(Arc::new(self.steps.finish()));
            columns.push(Arc::new(self.ops.finish()));
        }
        columns.extend(self.record.finish()?);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map(Some)
            .map_err(|e| Error::internal(format!("{}: the lines made no batch", self.label)).with_source(e))
    }
}

impl<R: Read> Iterator for Ndjson<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch();
        self.ended |= batch.is_err();
        batch.transpose()
    }
}

/// Whether the steps of an NDJSON file of changes never go back; says nothing about its rows.
pub(crate) fn is_sorted(input: impl Read, label: &str, view: &View) -> Result<bool> {
    let mut lines = Lines::new(input, label);
    let mut last = i64::MIN;
    while let Some((number, line)) = lines.next()? {
        let entries = Entries::parse(line).map_err(|e| not_entries(e, label, number))?;
        let change =
            Change::of(&entries, view).map_err(|why| Error::refused(format!("{label} line {number}: {why}")))?;
        if change.step < last {
            return Ok(false);
        }
        last = change.step;
    }
    Ok(true)
}

/// `{"step":N,"insert":{…}}`
struct Change<'a> {
    step: i64,
    op: Op,
    row: &'a str,
}

impl<'a> Change<'a> {
    fn of(entries: &Entries<'a>, view: &View) -> Result<Self, String> {
        let (mut step, mut change) = (None, None);
        for (name, value) in &entries.0 {
            let op = match name.as_ref() {
                "step" => {
                    let number: i64 = integer(value.get(), "step")?;
                    Step::from_i64(number).map_err(|e| e.to_string())?;
                    step = Some(number);
                    continue;
                }
                "insert" => Op::Insert,
                "update" => Op::Update,
                "delete" => Op::Delete,
                _ => return Err(format!("{name:?} is none of step, insert, update and delete")),
            };
            if op == Op::Update && !view.is_keyed() {
                return Err("an update in a view without key; give a delete and an insert, or declare the key".into());
            }
            if !value.get().starts_with('{') {
                return Err(format!("{name:?} wants the row as an object, not {}", kind_of(value.get())));
            }
            if change.replace((op, value.get())).is_some() {
                return Err("more than one of insert, update and delete in one line".into());
            }
        }
        let step = step.ok_or("\"step\" is missing")?;
        let (op, row) = change.ok_or("one of insert, update and delete is missing")?;
        Ok(Self { step, op, row })
    }
}

fn not_entries(e: NotEntries, label: &str, number: u64) -> Error {
    match e {
        NotEntries::Repeated(name) => Error::refused(format!("{label} line {number}: {name:?} stands there twice")),
        NotEntries::Json(e) if e.is_data() => {
            Error::refused(format!("{label} line {number}: wants one object a line")).with_source(e)
        }
        NotEntries::Json(e) => Error::corrupt(format!("{label} line {number} is no JSON")).with_source(e),
    }
}

/// Lines with their numbers, from 1; blank ones are left out.
struct Lines<R> {
    input: BufReader<R>,
    label: String,
    number: u64,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    fn new(input: R, label: &str) -> Self {
        Self { input: BufReader::with_capacity(1 << 18, input), label: label.to_owned(), number: 0, line: Vec::new() }
    }

    fn next(&mut self) -> Result<Option<(u64, &str)>> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut self.line);
            let read = read.map_err(|e| Error::unavailable(format!("{} cannot be read", self.label)).with_source(e))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.len() as u64 > MAX_LINE {
                return Err(Error::refused(format!(
                    "{} line {}: is longer than {MAX_LINE} bytes",
                    self.label, self.number
                )));
            }
            if self.number == 1 && self.line.starts_with(b"\xEF\xBB\xBF") {
                self.line.drain(..3);
            }
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let text = std::str::from_utf8(&self.line)
            .map_err(|e| Error::corrupt(format!("{} line {} is no UTF-8", self.label, self.number)).with_source(e))?;
        Ok(Some((self.number, text.trim_ascii())))
    }
}

#[cfg(test)]
#[path = "ndjson_tests.rs"]
mod tests;
