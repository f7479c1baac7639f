//! Which columns a landed file has, and so the view from its step on.
//!
//! Parquet and Arrow files name their columns. NDJSON files do not: they are of the view that is known, or of that of the
//! file nearest to them.

use arrow::array::Array;
use arrow::datatypes::{Field, FieldRef, Schema};

use super::columnar::Columnar;
use super::directory::{Folder, Format, Landed, SnapshotFile};
use super::reader::Batches;
use super::shape::Shape;
use crate::continuity::stamp::{COLUMN_OP, COLUMN_STEP};
use crate::error::{Error, Result};
use crate::schema::{View, fits};
use crate::step::Step;

/// What a landed file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Rows of the view.
    Rows,
    /// Changes of the view.
    Changes,
}

/// The columns that a file names, without those that only changes have; `None` when all of it is NDJSON.
///
/// Incompatible: parts of one file with other columns.
pub(crate) fn columns_of(landed: &Landed, holds: Holds) -> Result<Option<Vec<FieldRef>>> {
    let is_column = |f: &&FieldRef| holds == Holds::Rows || (f.name() != COLUMN_STEP && f.name() != COLUMN_OP);
    let mut first: Option<(Vec<FieldRef>, &str)> = None;
    for part in landed.parts.iter().filter(|part| part.format != Format::Ndjson) {
        let opened = Columnar::open(part, None)?;
        let columns: Vec<FieldRef> = opened.schema().fields().iter().filter(is_column).cloned().collect();
        let Some((known, label)) = &first else {
            first = Some((columns, &part.label));
            continue;
        };
        let lacks = |a: &[FieldRef], b: &[FieldRef]| a.iter().find(|f| named(b, f.name()).is_none()).cloned();
        for (lacking, having, missing) in
            [(part.label.as_str(), *label, lacks(known, &columns)), (label, &part.label, lacks(&columns, known))]
        {
            if let Some(missing) = missing {
                return Err(Error::incompatible(format!(
                    "{lacking}: the column {:?} is missing, and {having} has it; give all parts of a file the same columns",
                    missing.name()
                )));
            }
        }
    }
    Ok(first.map(|(columns, _)| columns))
}

/// The view as a file has it, where it was `known` before: what both have is as `known` has it, unless the file has other
/// types, and stands in its order.
pub(crate) fn view_of(landed: &Landed, holds: Holds, known: &View) -> Result<View> {
    let Some(columns) = columns_of(landed, holds)? else { return Ok(known.clone()) };
    if let Some(key) = known.key().iter().find(|key| named(&columns, key).is_none()) {
        return Err(Error::incompatible(format!("{landed}: the key column {key:?} is missing; a key does not change")));
    }
    // A file of changes cannot say that a column is never null, nor a key that it may be.
    let fits = |field: &FieldRef, column: &FieldRef| {
        let may_be_null = column.is_nullable() && holds == Holds::Rows && !known.is_keyed();
        fits(column.data_type(), field.data_type()) && (field.is_nullable() || !may_be_null)
    };
    let fields = known.schema().fields().iter().filter_map(|field| {
        let column = named(&columns, field.name())?;
        Some(if fits(field, column) { field.clone() } else { column.clone() })
    });
    let added = columns.iter().filter(|f| known.schema().fields().find(f.name()).is_none()).cloned();
    let fields: Vec<FieldRef> = fields.chain(added).collect();
    if fields.iter().eq(known.schema().fields()) {
        return Ok(known.clone());
    }
    new_view(landed, known.name(), fields, known.key())
}

/// The view of a file before which no other is known; `None` when all of it is NDJSON.
pub(crate) fn first_view(landed: &Landed, holds: Holds, name: &str, key: &[String]) -> Result<Option<View>> {
    let Some(mut columns) = columns_of(landed, holds)? else { return Ok(None) };
    if holds == Holds::Changes {
        columns = columns.iter().map(|f| f.as_ref().clone().with_nullable(true).into()).collect();
    }
    new_view(landed, name, columns, key).map(Some)
}

/// `view` as it may have been at the snapshot's step: without the columns that begin with the changes behind it. They have
/// them; neither the snapshot nor the file before it does.
pub(crate) fn known_at(folder: &Folder, snapshot: &SnapshotFile, view: &View) -> Result<View> {
    let SnapshotFile { step, landed } = snapshot;
    let fields = view.schema().fields();
    let Some(columns) = columns_of(landed, Holds::Rows)? else { return Ok(view.clone()) };
    if fields.iter().all(|f| named(&columns, f.name()).is_some()) {
        return Ok(view.clone());
    }
    let behind = folder.leading(*step).map_or(Ok(None), |file| columns_of(&file.landed, Holds::Changes))?;
    let Some(behind) = behind else { return Ok(view.clone()) };
    // A file that was delivered may be damaged, or gone.
    let before = around(folder, *step).0.into_iter().filter(|(file, _)| *file != landed);
    let before = before.filter_map(|(file, holds)| columns_of(file, holds).ok().flatten()).next().unwrap_or_default();
    let begins = |name: &str| {
        let lacks = |columns: &[FieldRef]| named(columns, name).is_none();
        lacks(&columns) && lacks(&before) && !lacks(&behind) && !view.key().iter().any(|key| key == name)
    };
    let fields = fields.iter().filter(|f| !begins(f.name())).cloned().collect();
    new_view(landed, view.name(), fields, view.key())
}

/// Every file of the folder, beginning with the newest one that ends at or before `at` and going back from there, then
/// those behind `at` in their order.
pub(crate) fn nearest(folder: &Folder, at: Step) -> Vec<(&Landed, Holds)> {
    let (before, behind) = around(folder, at);
    before.into_iter().chain(behind).collect()
}

/// Files, and what each holds.
type Files<'a> = Vec<(&'a Landed, Holds)>;

/// The files that end at or before `at`, the newest first, and those behind it in their order.
fn around(folder: &Folder, at: Step) -> (Files<'_>, Files<'_>) {
    let snapshots = folder.snapshots.iter().map(|s| (s.step, s.step, &s.landed, Holds::Rows));
    let changes = folder.changes.iter().map(|c| (c.range.from(), c.range.to(), &c.landed, Holds::Changes));
    let (mut before, mut behind): (Vec<_>, Vec<_>) = snapshots.chain(changes).partition(|(_, to, _, _)| *to <= at);
    before.sort_by_key(|(_, to, _, _)| std::cmp::Reverse(*to));
    behind.sort_by_key(|(from, _, _, _)| *from);
    let file = |(_, _, landed, holds)| (landed, holds);
    (before.into_iter().map(file).collect(), behind.into_iter().map(file).collect())
}

/// `view` in the order of `known`, as far as both have the same columns.
pub(crate) fn in_order_of(known: &View, view: &View) -> Result<View> {
    let (old, new) = (known.schema().fields(), view.schema().fields());
    let both = old.iter().filter_map(|f| Some(new.find(f.name())?.1.clone()));
    let added = new.iter().filter(|f| old.find(f.name()).is_none()).cloned();
    View::new(view.name(), &Schema::new(both.chain(added).collect::<Vec<_>>()), view.key().to_vec())
}

/// Whether a row of the snapshot has a value in one of the columns `added`, which `view` has.
pub(crate) fn is_filled(snapshot: &SnapshotFile, view: &View, added: &[FieldRef]) -> Result<bool> {
    let has_values = |column: &dyn Array| column.logical_null_count() < column.len();
    for part in &snapshot.landed.parts {
        if part.format == Format::Ndjson {
            let part = Landed { name: snapshot.landed.name.clone(), parts: vec![part.clone()] };
            for batch in Batches::new(&part, Shape::Rows(view.clone())) {
                let batch = batch?;
                if added.iter().filter_map(|f| batch.column_by_name(f.name())).any(|c| has_values(c)) {
                    return Ok(true);
                }
            }
            continue;
        }
        let schema = Columnar::open(part, None)?.schema().clone();
        for column in added.iter().filter(|f| schema.fields().find(f.name()).is_some()) {
            for batch in Columnar::open(part, Some(column.name()))? {
                if batch?.column_by_name(column.name()).is_some_and(|c| has_values(c)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

fn named<'a>(columns: &'a [FieldRef], name: &str) -> Option<&'a FieldRef> {
    columns.iter().find(|f| f.name() == name)
}

fn new_view(landed: &Landed, name: &str, fields: Vec<FieldRef>, key: &[String]) -> Result<View> {
    let fields: Vec<Field> = fields.iter().map(|f| f.as_ref().clone()).collect();
    View::new(name, &Schema::new(fields), key.to_vec())
        .map_err(|e| Error::new(e.kind(), format!("{landed}: {}", e.message())))
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
