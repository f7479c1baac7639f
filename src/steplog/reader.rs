//! Reads a log's steps in order, while others are appended and released.

use std::path::PathBuf;

use tokio::sync::watch;

use super::entry::Stored;
use super::segment::Frames;
use super::writer::Layout;
use crate::error::Result;
use crate::step::Step;

/// What follows in a log.
#[derive(Debug)]
pub enum Next {
    /// The next step.
    Step(Stored),
    /// Nothing more for now.
    End,
    /// What follows was released: the log reaches back to the steps after `earliest`.
    Gone {
        /// The step before the first one that is held.
        earliest: Step,
    },
}

/// A place in a log. It keeps one step in memory, and up to 256 KiB of those that follow it.
#[derive(Debug)]
pub struct Reader {
    pub(super) directory: PathBuf,
    pub(super) layout: watch::Receiver<Layout>,
    pub(super) frames: Option<Frames>,
    pub(super) last: Step,
}

impl Reader {
    /// The next durable step after the last one that this reader gave; reads a file, and waits for nothing else.
    ///
    /// Corrupt: what the disk holds is not what was written there.
    pub fn read_next(&mut self) -> Result<Next> {
        loop {
            let layout = self.layout.borrow_and_update().clone();
            if self.last >= layout.last {
                return Ok(Next::End);
            }
            let earliest = layout.earliest();
            let holder = layout.segments.iter().rev().find(|segment| segment.base <= self.last);
            let open = self
                .frames
                .take()
                .filter(|frames| frames.at < frames.end || holder.is_some_and(|s| s.number == frames.number));
            let mut frames = match (open, holder) {
                (Some(frames), _) => frames,
                (None, None) => return Ok(Next::Gone { earliest }),
                (None, Some(segment)) => match Frames::open(&self.directory, segment, self.last) {
                    Ok(frames) => frames,
                    // Released between the look at the layout and the opening.
                    Err(_) if self.layout.has_changed().unwrap_or(false) => continue,
                    Err(e) => return Err(e),
                },
            };
            if let Some(segment) = holder.filter(|segment| segment.number == frames.number) {
                frames.end = segment.end;
            }
            let frame = frames.next().map_err(|flaw| frames.error(flaw))?;
            self.frames = Some(frames);
            if let Some((head, payload)) = frame
                && head.step > self.last
            {
                self.last = head.step;
                return Ok(Next::Step(Stored { step: head.step, after: head.after, rows: head.rows, payload }));
            }
        }
    }

    /// Completes when there is more to read; `false` once the log is closed.
    pub async fn more(&mut self) -> bool {
        let last = self.last;
        self.layout.wait_for(|layout| layout.last > last).await.is_ok()
    }
}
