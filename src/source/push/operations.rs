//! What is pushed as one step.

use arrow::array::{Array, RecordBatch};
use twox_hash::XxHash3_128;

use crate::change::{Op, column, ops_of};
use crate::continuity::stamp::COLUMN_STEP;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::schema::View;

/// Gives the rows of a view for a batch of keys with the key's columns, in any order, where there are any.
pub type Current<'a> = dyn FnMut(&RecordBatch) -> Result<RecordBatch> + 'a;

type Resolve = Box<dyn FnOnce(&mut Current<'_>) -> Result<RecordBatch> + Send>;

/// The operations of one step, in order. Those that name some columns only become whole rows when their turn comes.
pub struct Operations {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) content: u128,
    pub(super) resolve: Resolve,
}

impl Operations {
    /// As many operations as `rows`, which take about `bytes` of memory until they are resolved.
    ///
    /// `content` is what was meant: a step that is sent again counts as the same when content and number of rows are.
    /// `resolve` gives one batch of as many rows: `__op`, then the view's columns, all nullable. What it is handed looks up
    /// rows of the view as they are before this step, those of steps that are being written included.
    pub fn new(
        rows: u64,
        bytes: u64,
        content: u128,
        resolve: impl FnOnce(&mut Current<'_>) -> Result<RecordBatch> + Send + 'static,
    ) -> Self {
        Self { rows, bytes, content, resolve: Box::new(resolve) }
    }

    /// Operations with whole rows: `__op`, then the view's columns. The same rows in the same order are the same content.
    pub fn whole(batch: RecordBatch) -> Result<Self> {
        let digests: Vec<u8> =
            Digest::of_rows(&batch)?.iter().flat_map(|digest| digest.as_u128().to_le_bytes()).collect();
        let (rows, bytes) = (batch.num_rows() as u64, batch.get_array_memory_size() as u64);
        Ok(Self::new(rows, bytes, XxHash3_128::oneshot(&digests), move |_| Ok(batch)))
    }
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("rows", &self.rows).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Refuses a batch of operations that the view cannot hold.
pub(super) fn check(batch: &RecordBatch, rows: u64, view: &View) -> Result<()> {
    let name = view.name();
    let (given, wanted) = (batch.schema(), view.change_schema());
    let wanted = wanted.fields().iter().filter(|f| f.name() != COLUMN_STEP);
    let is_same = given.fields().len() == wanted.clone().count()
        && given.fields().iter().zip(wanted).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
    if !is_same || batch.num_rows() as u64 != rows {
        return Err(Error::internal(format!("operations on view {name} are not in its columns, or not {rows}")));
    }
    if !view.is_keyed() && ops_of(batch)?.contains(&Op::Update) {
        return Err(Error::refused(format!(
            "view {name} has no key, so it has no updates; send a delete of the old row and an insert of the new one, or declare the key"
        )));
    }
    for field in view.schema().fields().iter().filter(|f| !f.is_nullable()) {
        if column(batch, field.name())?.null_count() > 0 {
            let what = if view.is_keyed() { "key column" } else { "column" };
            return Err(Error::refused(format!(
                "view {name}: a row has null in the {what} {:?}, which must have a value",
                field.name()
            )));
        }
    }
    Ok(())
}
