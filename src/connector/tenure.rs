//! What a process remembers of its claims, so that it does not take back by itself what another process has taken.

use std::collections::BTreeSet;

use crate::continuity::plan::{self, Claim, Ours};
use crate::epoch::Epoch;
use crate::error::Result;
use crate::sink::{Sink, Target};

/// The claims of one process on one table.
#[derive(Debug, Default)]
pub(super) struct Tenure {
    /// The epoch of the last claim that is known to be made; `None` before the first.
    epoch: Option<Epoch>,
    /// The writers that claimed, or tried to: one whose answer was lost may have.
    writers: BTreeSet<String>,
}

impl Tenure {
    /// Claims the table because somebody wants it: whoever holds it is fenced.
    pub(super) async fn take(&mut self, target: Target) -> Result<Sink> {
        *self = Self::default();
        self.keep(target).await
    }

    /// Claims the table to go on with it.
    ///
    /// Fenced: another process claimed it since this one did.
    pub(super) async fn keep(&mut self, target: Target) -> Result<Sink> {
        self.writers.insert(target.writer().to_string());
        let sink = target.claim_while(|ours| self.check(ours)).await?;
        self.begin(&sink);
        Ok(sink)
    }

    /// Begins with a sink that has claimed.
    pub(super) fn begin(&mut self, sink: &Sink) {
        let Claim { epoch, writer } = sink.held();
        self.epoch = Some(*epoch);
        self.writers.insert(writer.clone());
    }

    fn check(&self, ours: &Ours) -> Result<()> {
        let Some(epoch) = self.epoch.filter(|epoch| ours.epoch > *epoch) else { return Ok(()) };
        // A reload of one's own takes an epoch too. A log that was cleaned up does not tell who holds the table.
        match &ours.writer {
            Some(writer) if !self.writers.contains(writer) => {
                plan::check_claim(ours, &Claim { epoch, writer: String::new() })
            }
            _ => Ok(()),
        }
    }
}
