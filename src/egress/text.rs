//! Chunks as lines of JSON.

use arrow::array::{Array, RecordBatch};
use bytes::Bytes;
use serde::Serialize;

use super::chunk::{Fault, Head};
use super::encoder::Rows;
use crate::change::{Op, column, ops_of};
use crate::error::{Error, Result};
use crate::json::rows::Objects;
use crate::schema::View;

/// A line with a head and rows.
pub(super) fn chunk(head: &Head, rows: &Rows<'_>, view: &View) -> Result<Bytes> {
    let mut line = encoded(head)?;
    // The head is an object, which goes on.
    line.pop();
    line.extend_from_slice(b",\"json_data\":[");
    match rows {
        Rows::None => {}
        Rows::Snapshot(batch) => {
            let row = objects(batch, view, Members::All)?;
            for at in 0..batch.num_rows() {
                operation(Op::Insert, at, &row, &mut line)?;
            }
        }
        Rows::Changes(batch) => {
            let (whole, deleted) = (objects(batch, view, Members::All)?, objects(batch, view, Members::Deleted)?);
            for (at, op) in ops_of(batch)?.into_iter().enumerate() {
                operation(op, at, if op == Op::Delete { &deleted } else { &whole }, &mut line)?;
            }
        }
    }
    line.extend_from_slice(b"]}\n");
    // It may wait for long.
    line.shrink_to_fit();
    Ok(line.into())
}

/// A line that says what is wrong.
pub(super) fn fault(fault: &Fault) -> Result<Bytes> {
    let mut line = encoded(fault)?;
    line.push(b'\n');
    Ok(line.into())
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal("the head of a chunk was not encoded").with_source(e))
}

/// Which columns stand in a row's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Members {
    All,
    /// What tells which row is deleted: the key, or all of a row without one.
    Deleted,
}

fn objects<'a>(batch: &'a RecordBatch, view: &'a View, members: Members) -> Result<Objects<'a>> {
    let is_member = |name: &String| members == Members::All || !view.is_keyed() || view.key().contains(name);
    let names = view.schema().fields().iter().map(|field| field.name()).filter(|name| is_member(name));
    let columns = names.map(|name| Ok((name, column(batch, name)?.as_ref()))).collect::<Result<Vec<_>>>()?;
    Objects::new(columns.into_iter().map(|(name, column): (&String, &dyn Array)| (name, column)))
}

fn operation(op: Op, row: usize, rows: &Objects<'_>, line: &mut Vec<u8>) -> Result<()> {
    if !line.ends_with(b"[") {
        line.push(b',');
    }
    line.extend_from_slice(match op {
        Op::Insert => b"{\"insert\":",
        Op::Update => b"{\"update\":",
        Op::Delete => b"{\"delete\":",
    });
    rows.write(row, line)?;
    line.push(b'}');
    Ok(())
}
