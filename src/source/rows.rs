//! Reading what blocks, without blocking who waits for it.

use arrow::array::RecordBatch;
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::{Error, Result};

/// Batches, one after another; asking for the next one may block.
pub(crate) type Rows = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Runs file I/O where it may block.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Error::internal("reading a source failed").with_source(e))?
}

/// The batches as a stream that reads one batch ahead, so that reading and writing overlap; at most that one batch is
/// read after the stream was dropped.
pub(crate) fn streamed(
    rows: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> BoxStream<'static, Result<RecordBatch>> {
    let ahead = |mut rows: Rows| tokio::task::spawn_blocking(move || (rows.next(), rows));
    let batches = stream::unfold(State::Start(Box::new(rows)), move |state| async move {
        let task = match state {
            State::Start(rows) => ahead(rows),
            State::Ahead(task) => task,
            State::End => return None,
        };
        match task.await {
            Ok((None, _)) => None,
            Ok((Some(Err(e)), _)) => Some((Err(e), State::End)),
            Ok((Some(Ok(batch)), rows)) => Some((Ok(batch), State::Ahead(ahead(rows)))),
            Err(e) => Some((Err(Error::internal("reading a source failed").with_source(e)), State::End)),
        }
    });
    batches.filter(|batch| ready(!batch.as_ref().is_ok_and(|b| b.num_rows() == 0))).boxed()
}

/// The batches once `first` is done, which is begun when the first of them is asked for; its error in their place.
pub(crate) fn behind(
    first: impl Future<Output = Result<()>> + Send + 'static,
    rows: BoxStream<'static, Result<RecordBatch>>,
) -> BoxStream<'static, Result<RecordBatch>> {
    stream::once(first)
        .flat_map(move |done| match done {
            Ok(()) => stream::empty().boxed(),
            Err(e) => stream::once(ready(Err(e))).boxed(),
        })
        .chain(rows)
        .boxed()
}

/// Where a stream of batches stands.
enum State {
    Start(Rows),
    Ahead(tokio::task::JoinHandle<(Option<Result<RecordBatch>>, Rows)>),
    End,
}
