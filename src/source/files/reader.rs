//! The rows of a landed file, in the view's types.

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};

use super::columnar::Columnar;
use super::directory::{ChangeFile, Format, Landed, Part, open_file};
use super::ndjson::{self, Ndjson};
use super::shape::Shape;
use crate::continuity::stamp::COLUMN_STEP;
use crate::error::Result;
use crate::schema::View;

/// Batches of a landed file, part after part; each part is opened when its turn comes.
pub(crate) struct Batches {
    parts: std::vec::IntoIter<Part>,
    shape: Shape,
    open: Option<Open>,
}

enum Open {
    /// With the rows given before.
    Columnar(Box<Columnar>, String, u64),
    Ndjson(Box<Ndjson<std::fs::File>>),
}

impl Batches {
    /// The rows of `landed`, which are of `shape`.
    pub(crate) fn new(landed: &Landed, shape: Shape) -> Self {
        Self { parts: landed.parts.clone().into_iter(), shape, open: None }
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match &mut self.open {
                Some(Open::Columnar(file, label, before)) => {
                    if let Some(batch) = file.next().transpose()? {
                        let conformed = self.shape.conform(&batch, label, *before)?;
                        *before += batch.num_rows() as u64;
                        return Ok(Some(conformed));
                    }
                }
                Some(Open::Ndjson(file)) => {
                    if let Some(batch) = file.next().transpose()? {
                        return Ok(Some(batch));
                    }
                }
                None => {}
            }
            let Some(part) = self.parts.next() else { return Ok(None) };
            self.open = Some(match part.format {
                Format::Ndjson => {
                    Open::Ndjson(Box::new(Ndjson::new(open_file(&part)?, &part.label, self.shape.clone())?))
                }
                Format::Parquet | Format::Arrow => {
                    let file = Columnar::open(&part, None)?;
                    // A file without rows is held to the view's columns like any other.
                    self.shape.conform(&RecordBatch::new_empty(file.schema().clone()), &part.label, 0)?;
                    Open::Columnar(Box::new(file), part.label, 0)
                }
            });
        }
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batch();
        if batch.is_err() {
            (self.parts, self.open) = (Vec::new().into_iter(), None);
        }
        batch.transpose()
    }
}

/// How many rows a landed file holds, where its metadata say so.
pub(crate) fn rows_of(landed: &Landed) -> Result<Option<u64>> {
    let mut rows = Some(0);
    for part in &landed.parts {
        if part.format == Format::Ndjson {
            return Ok(None);
        }
        rows = rows.zip(Columnar::open(part, None)?.rows).map(|(a, b)| a + b);
    }
    Ok(rows)
}

/// Roughly how much memory the rows of a landed file take, in bytes.
pub(crate) fn bytes_of(landed: &Landed) -> Result<u64> {
    let mut bytes = 0u64;
    for part in &landed.parts {
        bytes = bytes.saturating_add(match part.format {
            Format::Parquet => Columnar::open(part, None)?.bytes,
            Format::Arrow | Format::Ndjson => open_file(part)?.metadata().map_or(u64::MAX, |m| m.len()),
        });
    }
    Ok(bytes)
}

/// Whether the steps of a file of changes never go back, found by reading no other column where the format allows it.
pub(crate) fn is_sorted(file: &ChangeFile, view: &View) -> Result<bool> {
    if file.landed.parts.len() > 1 {
        // Parts are written side by side, so steps go back from one to the next; sorting costs no more than looking.
        return Ok(false);
    }
    for part in &file.landed.parts {
        if part.format == Format::Ndjson {
            return ndjson::is_sorted(open_file(part)?, &part.label, view);
        }
        let mut last = i64::MIN;
        for batch in Columnar::open(part, Some(COLUMN_STEP))? {
            let batch = batch?;
            let steps = batch.column_by_name(COLUMN_STEP).and_then(|c| cast(c, &DataType::Int64).ok());
            let Some(steps) = steps.as_ref().and_then(|s| s.as_primitive_opt::<Int64Type>()) else { return Ok(false) };
            for step in steps.values() {
                if *step < last {
                    return Ok(false);
                }
                last = *step;
            }
        }
    }
    Ok(true)
}
