//! The rows of a table's data files, with and without those that are deleted.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use cutover::continuity::stamp::Layout;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use roaring::RoaringTreemap;
use serde_json::Value;

use super::feed::State;
use super::oracle::{Violation, demand, number, text};
use super::storage::Storage;
use super::view;
use crate::vectors;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) generation: i64,
    pub(super) change: (i64, String, i64, Option<String>),
}

/// A live data file.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) add: Value,
    /// All of its rows, as they stand in it.
    pub(super) rows: Vec<Row>,
    /// The places of those that are deleted.
    pub(super) deleted: RoaringTreemap,
}

impl File {
    /// Its rows without those that are deleted.
    pub(super) fn left(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().zip(0..).filter(|(_, place)| !self.deleted.contains(*place)).map(|(row, _)| row)
    }

    /// The path, and what tells its vector from others.
    pub(super) fn id(&self) -> (String, String) {
        (self.add["path"].as_str().unwrap_or_default().into(), vectors::id(&self.add["deletionVector"]))
    }

    /// The objects without which it cannot be read.
    pub(super) fn objects(&self) -> impl Iterator<Item = String> {
        self.add["path"].as_str().map(str::to_string).into_iter().chain(vectors::object(&self.add["deletionVector"]))
    }
}

/// The file that an `add` names, read whole.
pub(super) fn file_of(add: &Value, storage: &Storage) -> Result<File, Violation> {
    let path = text(add, "path")?;
    let bytes = storage.peek(path).ok_or_else(|| format!("{path} is named and does not exist"))?;
    demand(number(add, "size")? == bytes.len() as u64, || format!("{path} has {} bytes", bytes.len()))?;
    let rows = rows_of(bytes)?;
    let stats: Value = serde_json::from_str(text(add, "stats")?).map_err(|e| e.to_string())?;
    demand(number(&stats, "numRecords")? == rows.len() as u64, || format!("{path} has {} rows", rows.len()))?;
    let vector = &add["deletionVector"];
    let deleted = vectors::deleted(vector, |object| storage.peek(object));
    let deleted = deleted.ok_or_else(|| format!("the vector of {path} does not exist"))?;
    let deleted = deleted.map_err(|e| format!("the vector of {path}: {e}"))?;
    demand(deleted.max().is_none_or(|last| last < rows.len() as u64), || {
        format!("the vector of {path} deletes {deleted:?} of {} rows", rows.len())
    })?;
    demand(vector.is_null() || stats["tightBounds"] == false, || format!("{path} has a vector and tight bounds"))?;
    Ok(File { add: add.clone(), rows, deleted })
}

/// The rows of a data file of the table, as they stand in it.
pub(super) fn rows_of(bytes: Bytes) -> Result<Vec<Row>, Violation> {
    let failed = |e: &dyn std::fmt::Display| format!("a data file cannot be read: {e}");
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| failed(&e))?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| failed(&e))?;
        let long = |name: &str| batch.column_by_name(name).map(|c| c.as_primitive::<Int64Type>());
        let string = |name: &str| batch.column_by_name(name).map(|c| c.as_string::<i32>());
        let (generations, steps, ids) = (long("__generation"), long("__step"), long("id"));
        let (ops, names) = (string("__op"), string("name"));
        for at in 0..batch.num_rows() {
            let long = |column: Option<&Int64Array>| column.map_or(-1, |c| c.value(at));
            let string =
                |column: Option<&StringArray>| column.filter(|c| c.is_valid(at)).map(|c| c.value(at).to_string());
            let op = string(ops).unwrap_or_default();
            rows.push(Row { generation: long(generations), change: (long(steps), op, long(ids), string(names)) });
        }
    }
    Ok(rows)
}

/// The state that a table's rows are; two rows with one key are none.
pub(super) fn state_of<'a>(layout: Layout, rows: impl Iterator<Item = &'a Row>) -> Result<State, Violation> {
    match layout {
        Layout::Changelog => Ok(fold(rows)),
        Layout::Current => view::state(rows),
    }
}

/// The current state by a changelog's rows.
fn fold<'a>(rows: impl Iterator<Item = &'a Row>) -> State {
    let mut latest: BTreeMap<i64, &'a Row> = BTreeMap::new();
    for row in rows {
        let held = latest.entry(row.change.2).or_insert(row);
        if row.change.0 > held.change.0 {
            *held = row;
        }
    }
    latest.into_iter().filter(|(_, r)| r.change.1 != "d").map(|(id, r)| (id, r.change.3.clone())).collect()
}
