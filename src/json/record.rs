//! Columns that are filled together, from the members of one JSON object a row.

use std::collections::HashMap;

use arrow::array::ArrayRef;
use arrow::datatypes::Fields;

use super::column::Column;
use super::entries::Entries;
use super::misplaced::Misplaced;
use super::room::Room;
use crate::error::Result;

/// How members name columns, and fields of structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// As they are called.
    Exact,
    /// In upper or lower case, unless the member's name is in double quotes of its own; one within it stands twice.
    AnyCase,
}

/// Columns that are filled together.
pub(crate) struct Record {
    fields: Fields,
    columns: Vec<Column>,
    names: Names,
    indices: HashMap<String, usize>,
    /// The same by names in lower case, which a view keeps distinct.
    folded: HashMap<String, usize>,
}

impl Record {
    /// Empty columns for `fields`.
    pub(crate) fn new(fields: &Fields, names: Names) -> Result<Self> {
        let columns = fields.iter().map(|f| Column::new(f, names)).collect::<Result<_>>()?;
        let indices = fields.iter().enumerate().map(|(i, f)| (f.name().clone(), i)).collect();
        let folded = match names {
            Names::Exact => HashMap::new(),
            Names::AnyCase => fields.iter().enumerate().map(|(i, f)| (f.name().to_lowercase(), i)).collect(),
        };
        Ok(Self { fields: fields.clone(), columns, names, indices, folded })
    }

    /// The columns' fields.
    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }

    pub(super) fn columns_mut(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// Appends one row; members that are no columns are a misfit, missing ones are null.
    pub(crate) fn append(&mut self, row: &Entries<'_>, room: &mut Room) -> Result<(), Misplaced> {
        let cells = self.cells(row)?;
        self.append_cells(&cells, room)
    }

    /// The JSON of each column; `None` where the row has no such member.
    pub(crate) fn cells<'a>(&self, row: &Entries<'a>) -> Result<Vec<Option<&'a str>>, Misplaced> {
        let mut cells: Vec<Option<&str>> = vec![None; self.columns.len()];
        for (position, (name, value)) in row.0.iter().enumerate() {
            let Some(cell) = self.position(name, position).and_then(|i| cells.get_mut(i)) else {
                return Err(
                    Misplaced::here("is not among the view's columns; leave it out, or add it to them").below(name)
                );
            };
            if cell.replace(value.get()).is_some() {
                return Err(Misplaced::here("is given twice, in two spellings of its name").below(name));
            }
        }
        Ok(cells)
    }

    /// Appends one row, `None` as null.
    pub(crate) fn append_cells(&mut self, cells: &[Option<&str>], room: &mut Room) -> Result<(), Misplaced> {
        for ((column, field), cell) in self.columns.iter_mut().zip(&self.fields).zip(cells) {
            column.append(*cell, room).map_err(|misfit| misfit.below(field.name()))?;
        }
        Ok(())
    }

    /// The columns since the last `finish`.
    pub(crate) fn finish(&mut self) -> Result<Vec<ArrayRef>> {
        self.columns.iter_mut().map(Column::finish).collect()
    }

    /// The column that `name` means. Writers repeat the columns' order, so the member's place is the first `guess`.
    fn position(&self, name: &str, guess: usize) -> Option<usize> {
        if self.names == Names::AnyCase
            && let Some(quoted) = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'))
        {
            let is_whole = !quoted.replace("\"\"", "").contains('"');
            return self.indices.get(&quoted.replace("\"\"", "\"")).copied().filter(|_| is_whole);
        }
        if self.fields.get(guess).is_some_and(|field| field.name() == name) {
            return Some(guess);
        }
        let exact = self.indices.get(name).copied();
        exact.or_else(|| self.folded.get(&name.to_lowercase()).copied())
    }
}
