//! The journal of one connector's resets: what was answered to somebody is in it, and outlives any crash.
//!
//! ```text
//!   accepted ─► snapshotting ─► committing ─► committed
//!      │         ▲     │  └──────────┘
//!      │         └─────┘ another try
//!      └──────────────┴───────────► cancelled, failed, expired
//! ```

mod book;
mod event;

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

pub(super) use self::book::Book;
pub use self::book::{Reloaded, ResetRecord, ResetState};
use self::event::Entry;
pub(super) use self::event::Event;
pub use self::event::{BreakerRule, Trigger};
use super::breaker::Breaker;
use super::moment::{BootId, Moment};
use crate::clock::World;
use crate::error::{Error, Result};
use crate::lines::Lines;

const FILE: &str = "resets.jsonl";
/// The lines after which those are dropped that are about forgotten resets.
const LONG: usize = 10_000;

/// The journal, held by this process alone.
#[derive(Debug)]
pub(super) struct Journal {
    lines: Lines,
    book: Book,
    timeline: super::moment::Timeline,
    boot: BootId,
    world: World,
    /// The lines after which it is compacted.
    long: usize,
}

impl Journal {
    /// The journal of `connector` in `directory`, which is the connector's own; both are made where they are not there.
    ///
    /// Corrupt: an entry is damaged, or does not follow from those before. Refused: another process holds it.
    pub(super) fn open(
        directory: &Path,
        connector: &str,
        breaker: Breaker,
        boot: BootId,
        world: World,
    ) -> Result<Self> {
        let (lines, objects) = Lines::open(directory, FILE)?;
        let mut book = Book::new(breaker);
        let mut last = None;
        for (i, object) in objects.iter().enumerate() {
            let place = format!("line {} of the journal {}", i + 1, lines.path().display());
            let entry = Entry::decode(object, &place)?;
            match &entry.event {
                Event::Begun { connector: other } if i == 0 && other != connector => {
                    return Err(Error::refused(format!(
                        "the journal {} is that of the connector {other}, not of {connector}; give each a directory of its own",
                        lines.path().display()
                    )));
                }
                Event::Begun { .. } if i == 0 => {}
                _ if i == 0 => {
                    return Err(Error::corrupt(format!(
                        "{place} does not say whose it is; restore the file, or move it away"
                    )));
                }
                _ => {}
            }
            book.check(&entry.event).map_err(|e| {
                Error::corrupt(format!("{place} does not follow from those before; restore the file, or move it away"))
                    .with_source(e)
            })?;
            book.take(&entry);
            last = Some(entry);
        }
        let opened = Moment::read(&*world.clock, &boot);
        let mut timeline = match &last {
            Some(entry) => entry.timeline(),
            None => super::moment::Timeline::through(Duration::ZERO, opened.clone()),
        };
        // How long the machine was off is asked once: what the wall clock is set to later is no time that passed.
        timeline.reach(&opened);
        let mut journal = Self { lines, book, timeline, boot, world, long: LONG };
        if last.is_none() {
            journal.record(Event::Begun { connector: connector.to_string() })?;
        }
        Ok(journal)
    }

    /// What it comes to.
    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Where on its line of time it is, which crashes and set clocks do not move back.
    pub(super) fn now(&mut self) -> Duration {
        let moment = Moment::read(&*self.world.clock, &self.boot);
        self.timeline.reach(&moment)
    }

    /// Writes `event` down; it is durable, and counts, when this returns without an error.
    pub(super) fn record(&mut self, event: Event) -> Result<()> {
        self.book.check(&event)?;
        let moment = Moment::read(&*self.world.clock, &self.boot);
        let entry = Entry::new(self.timeline.reach(&moment), moment, event);
        self.lines.append(&entry.encode()?)?;
        self.book.take(&entry);
        if self.lines.count() >= self.long
            && let Err(error) = self.compact()
        {
            tracing::warn!(event = "journal_not_compacted", error = %error, "the journal stays long for now");
        }
        Ok(())
    }

    /// Drops lines about resets that are forgotten, and about pauses that ended.
    fn compact(&mut self) -> Result<()> {
        let known: HashSet<&str> = self.book.resets().map(|reset| reset.id.as_str()).collect();
        let last = self.lines.count();
        let (book, line) = (&self.book, std::cell::Cell::new(0));
        self.lines.rewrite(|object| {
            line.set(line.get() + 1);
            let Ok(entry) = Entry::decode(object, "a line") else { return true };
            match (&entry.event, entry.event.id()) {
                (_, Some(id)) => known.contains(id),
                // The last line holds the time.
                _ if line.get() == last => true,
                (Event::Paused { .. }, _) => book.is_paused(),
                (Event::Resumed { .. }, _) => false,
                _ => true,
            }
        })?;
        self.long = LONG.max(self.lines.count() * 2);
        Ok(())
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
