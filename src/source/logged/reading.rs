//! How a connector reads a step log.

use arrow::compute::concat_batches;

use crate::change::Changes;
use crate::error::{Error, Lost, Result};
use crate::schema::View;
use crate::source::rows::blocking;
use crate::step::{Step, StepRange};
use crate::steplog::{Next, Reader, StepLog, Stored};

use super::Detached;

/// What an answer has at most, but for a single step that has more: the bytes of its steps on disk.
pub(in crate::source) const ANSWER_BYTES: u64 = 4 << 20;

/// The same where many read at once, each at its own pace.
pub(in crate::source) const SMALL_ANSWER_BYTES: u64 = 256 << 10;

/// Where in a log the last answer ended, so that the next one goes on there.
#[derive(Debug, Default)]
pub(in crate::source) struct Reading {
    open: Option<(Reader, Step)>,
}

/// What a look into a log gave.
#[derive(Debug)]
pub(in crate::source) enum Found<T> {
    /// The changes of the next steps.
    Changes(Changes),
    /// The next step is none that changes lead to.
    Stopped(T),
    /// Nothing more for now.
    End,
    /// What follows was let go of: the log begins after this step.
    Gone(Step),
}

impl Reading {
    /// What follows step `after` in `log`, in the columns of `view`, of about `most` bytes on disk.
    ///
    /// Each step is shown to `judge`; the changes end before the first one of which it makes something.
    pub(in crate::source) async fn next<T: Send + 'static>(
        &mut self,
        log: &StepLog,
        after: Step,
        view: &View,
        most: u64,
        judge: impl FnMut(&Stored) -> Result<Option<T>> + Send + 'static,
    ) -> Result<Found<T>> {
        let open = self.open.take().filter(|(_, at)| *at == after);
        let reader = open.map_or_else(|| log.read(after), |(reader, _)| reader);
        let view = view.clone();
        let (found, reader) = blocking(move || read(reader, &view, most, judge)).await?;
        self.open = match &found {
            Found::Changes(changes) => reader.map(|reader| (reader, changes.range().to())),
            Found::End => reader.map(|reader| (reader, after)),
            Found::Stopped(_) | Found::Gone(_) => None,
        };
        Ok(found)
    }
}

/// What follows, and the reader that goes on there; `None` where it was led past the answer's end.
fn read<T>(
    mut reader: Reader,
    view: &View,
    most: u64,
    mut judge: impl FnMut(&Stored) -> Result<Option<T>>,
) -> Result<(Found<T>, Option<Reader>)> {
    let (mut range, mut batches, mut bytes, mut is_past) = (None::<StepRange>, Vec::new(), 0, false);
    while bytes < most {
        match reader.read_next()? {
            Next::Step(stored) => {
                bytes += stored.bytes();
                match judge(&stored)? {
                    Some(stopped) if range.is_none() => return Ok((Found::Stopped(stopped), None)),
                    Some(_) => {
                        is_past = true;
                        break;
                    }
                    None => {}
                }
                let more = stored.changes()?;
                let place = format!("step {} in the step log", stored.step);
                for batch in more.batches() {
                    batches.push(view.conform_changes(batch, &place)?);
                }
                range = Some(match range {
                    Some(before) => before.join(more.range())?,
                    None => more.range(),
                });
            }
            Next::End => break,
            Next::Gone { earliest } if range.is_none() => return Ok((Found::Gone(earliest), None)),
            // The next look tells.
            Next::Gone { .. } => break,
        }
    }
    let Some(range) = range else { return Ok((Found::End, (!is_past).then_some(reader))) };
    // A batch of one row takes as much as one of many.
    let all = concat_batches(&view.change_schema(), &batches)
        .map_err(|e| Error::internal("changes of the step log were not put together").with_source(e))?;
    let batches = if all.num_rows() > 0 { vec![all] } else { Vec::new() };
    let changes = Changes::new(range, batches)?.at_position(format!("step {}", range.to()));
    Ok((Found::Changes(changes), (!is_past).then_some(reader)))
}

/// Unavailable: the log of the view `view` let go of what follows a snapshot of `step`.
pub(in crate::source) fn check_held(view: &str, log: &StepLog, step: Step) -> Result<()> {
    if log.stand().earliest > step {
        return Err(Error::unavailable(format!(
            "view {view}: the step log let go of steps after the snapshot of step {step} before it was read; take another"
        )));
    }
    Ok(())
}

/// That the log of the view `view` holds nothing of what follows step `after` for `connector`, which may have been `detached`;
/// `None` for somebody who is no connector.
pub(in crate::source) fn gone(
    view: &str,
    after: Step,
    earliest: Step,
    connector: Option<&str>,
    detached: Option<Detached>,
) -> Error {
    let lost =
        format!("view {view}: changes after step {after} are wanted, and the step log begins after step {earliest}");
    let Some(connector) = connector else {
        return Error::continuity_lost(Lost::Gap, format!("{lost}; begin anew with a snapshot"));
    };
    let detached = detached.map(|d| format!(" (it was detached at step {}, when the log was full)", d.at));
    Error::continuity_lost(
        Lost::Gap,
        format!("{lost}{}; reset the connector {connector}", detached.unwrap_or_default()),
    )
}
