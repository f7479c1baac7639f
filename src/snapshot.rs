//! A view's complete rows at one step, as a stream of batches.

use arrow::array::RecordBatch;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::Result;
use crate::step::Step;

/// The complete rows of a view at one step.
pub struct Snapshot {
    /// The step whose state this is: the cutover of the reload that writes it.
    pub step: Step,
    /// The rows, in batches with the columns of the view, in any order.
    pub rows: BoxStream<'static, Result<RecordBatch>>,
    /// How many rows there will be, where the source knows.
    pub known_rows: Option<u64>,
    /// The position in the source's own words, for the commit info.
    pub position: String,
}

impl Snapshot {
    /// A snapshot from batches in memory.
    pub fn from_batches(step: Step, batches: Vec<RecordBatch>) -> Self {
        let known_rows = Some(batches.iter().map(|b| b.num_rows() as u64).sum());
        Self {
            step,
            rows: stream::iter(batches.into_iter().map(Ok)).boxed(),
            known_rows,
            position: format!("step {step}"),
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot")
            .field("step", &self.step)
            .field("known_rows", &self.known_rows)
            .finish_non_exhaustive()
    }
}
