//! How a source asks the one who writes its log.

use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Result};

/// Asks for something, and waits for the answer; `ended` where nobody gives one any more. Whoever asks does not keep the
/// writer from ending.
pub(in crate::source) async fn ask<R>(
    requests: &mpsc::WeakSender<R>,
    request: impl FnOnce(oneshot::Sender<Result<()>>) -> R,
    ended: impl Fn() -> Error,
) -> Result<()> {
    let (reply, answer) = oneshot::channel();
    let requests = requests.upgrade().ok_or_else(&ended)?;
    requests.send(request(reply)).await.map_err(|_| ended())?;
    drop(requests);
    answer.await.map_err(|_| ended())?
}
