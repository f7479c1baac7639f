//! Rows of a table, gathered into columns.

use arrow::array::ArrayRef;

use super::catalog::Column;
use super::kinds::{self, Cells, Misfit};
use super::message::{Cell, Tuple};
use crate::error::{Error, Result};

/// Which cells of a row count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// All of them.
    Whole,
    /// Those in these columns, by their places; the others are null.
    Key(&'a [usize]),
}

/// Rows of one table that are being gathered. After an error they are to be thrown away.
pub(crate) struct Rows {
    place: String,
    columns: Vec<(Column, Cells)>,
    rows: usize,
    bytes: usize,
}

impl Rows {
    /// No rows yet, in these columns; `place` begins each error's message.
    pub(crate) fn new(place: impl Into<String>, columns: &[Column]) -> Self {
        let columns = columns.iter().map(|column| (column.clone(), Cells::new(&column.kind))).collect();
        Self { place: place.into(), columns, rows: 0, bytes: 0 }
    }

    /// Adds a row of the log; what it leaves out as unchanged stands in the row `before` it.
    ///
    /// Incompatible: a value does not fit. Internal: a value was left out as unchanged, or the row is of other columns.
    pub(crate) fn push(&mut self, row: Tuple<'_>, before: Option<Tuple<'_>>, part: Part<'_>) -> Result<()> {
        if row.len() != self.columns.len() {
            return Err(self.torn());
        }
        for (at, (cell, (column, cells))) in row.cells().zip(&mut self.columns).enumerate() {
            let cell = match (cell, before) {
                (Cell::Unchanged, Some(before)) => before.cells().nth(at).unwrap_or(Cell::Unchanged),
                (cell, _) => cell,
            };
            let is_wanted = match part {
                Part::Whole => true,
                Part::Key(places) => places.contains(&at),
            };
            let fitted = match cell {
                _ if !is_wanted => {
                    cells.null();
                    Ok(())
                }
                Cell::Null => {
                    cells.null();
                    Ok(())
                }
                Cell::Text(value) => cells.text(value),
                Cell::Binary(value) if !column.is_printed() => cells.binary(value),
                Cell::Binary(_) => Err(Misfit("has a value in binary that only the server can print".into())),
                Cell::Unchanged => {
                    return Err(Error::internal(format!(
                        "{}: column {:?} has a value that the log left out as unchanged",
                        self.place, column.name
                    )));
                }
            };
            fitted.map_err(|misfit| misplaced(&self.place, column, misfit))?;
        }
        self.rows += 1;
        self.bytes += row.bytes();
        Ok(())
    }

    /// Adds a row that COPY gave in binary, behind its number of columns; gives what stands behind it.
    ///
    /// `None`: the bytes end before the row does, and nothing was added.
    pub(super) fn push_copied<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let Some(end) = end_of_copied(bytes, self.columns.len()) else { return Ok(None) };
        let (row, behind) = bytes.split_at_checked(end).ok_or_else(|| self.torn())?;
        let mut rest = row;
        for (column, cells) in &mut self.columns {
            let (length, after) =
                length(rest).ok_or_else(|| Error::internal(format!("{}: a row is torn", self.place)))?;
            let Ok(length) = usize::try_from(length) else {
                cells.null();
                rest = after;
                continue;
            };
            let Some((value, after)) = after.split_at_checked(length) else {
                return Err(Error::internal(format!("{}: a row is torn", self.place)));
            };
            let fitted = if column.is_printed() { cells.text(value) } else { cells.binary(value) };
            fitted.map_err(|misfit| misplaced(&self.place, column, misfit))?;
            rest = after;
        }
        self.rows += 1;
        self.bytes += row.len();
        Ok(Some(behind))
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// About what they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The columns; there are no rows from here on.
    pub(crate) fn finish(&mut self) -> Vec<ArrayRef> {
        (self.rows, self.bytes) = (0, 0);
        self.columns.iter_mut().map(|(_, cells)| cells.finish()).collect()
    }

    fn torn(&self) -> Error {
        let count = self.columns.len();
        Error::internal(format!("{}: a row does not have {count} columns, as its table does", self.place))
    }
}

/// Where the cells of a row end; `None` when that is not among these bytes.
fn end_of_copied(bytes: &[u8], columns: usize) -> Option<usize> {
    let mut rest = bytes;
    for _ in 0..columns {
        let (length, after) = length(rest)?;
        rest = match usize::try_from(length) {
            Ok(length) => after.split_at_checked(length)?.1,
            Err(_) => after,
        };
    }
    Some(bytes.len() - rest.len())
}

fn length(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((i32::from_be_bytes(*length), rest))
}

fn misplaced(place: &str, column: &Column, misfit: Misfit) -> Error {
    let is_bare = column.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if is_bare { column.name.clone() } else { format!("{:?}", column.name) };
    let why = misfit.0.replace(kinds::NAME, &name);
    Error::incompatible(format!("{place}: column {:?} {why}", column.name))
}
