//! The one that writes events down.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::event::{About, Draft, Event, Kind};
use super::{FILE, KEPT, List};
use crate::clock::World;
use crate::error::{Error, ErrorKind, Result};
use crate::lines::Lines;

/// How many events are written with one sync.
const BATCH: usize = 128;
/// How long it is waited after the disk failed.
const AGAIN: Duration = Duration::from_secs(5);

/// Events that were written at once: a line of the file, so that a crash takes all of them or none.
#[derive(Serialize, Deserialize)]
struct Batch {
    events: Vec<Event>,
}

/// As much of a line as tells which numbers were given.
#[derive(Deserialize)]
struct Numbers {
    events: Vec<Number>,
}

#[derive(Deserialize)]
struct Number {
    id: u64,
}

pub(super) struct Recorder {
    /// `None` only while a thread has it.
    lines: Option<Lines>,
    /// The events in the file.
    on_file: usize,
    /// The id of the next event.
    next: u64,
    /// What was not told yet of the past: the number of events that were lost.
    lost: Arc<AtomicU64>,
    list: Arc<List>,
    world: World,
}

impl Recorder {
    pub(super) fn open(directory: &Path, list: Arc<List>, lost: Arc<AtomicU64>, world: World) -> Result<Self> {
        let (lines, objects, after) = match Lines::open(directory, FILE) {
            Ok((lines, objects)) => (lines, objects, 0),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                let after = set_aside(directory, &error)?;
                lost.fetch_add(1, Ordering::Relaxed);
                let (lines, objects) = Lines::open(directory, FILE)?;
                (lines, objects, after)
            }
            Err(error) => return Err(error),
        };
        let mut recorder = Self { lines: Some(lines), on_file: 0, next: after + 1, lost, list, world };
        for object in &objects {
            recorder.next = recorder.next.max(greatest(object) + 1);
            match serde_json::from_str::<Batch>(object) {
                Ok(batch) => {
                    recorder.on_file += batch.events.len();
                    recorder.list.add(batch.events);
                }
                // Another version of this program may know more.
                Err(error) => {
                    tracing::warn!(event = "events_unknown", error = %error, "a line of events is not understood and left out");
                }
            }
        }
        // Numbers that were given to events that are not understood are not given again.
        recorder.list.last.send_replace(recorder.next - 1);
        Ok(recorder)
    }

    /// Writes down what comes, until it is closed and nothing is left.
    pub(super) async fn run(mut self, mut drafts: mpsc::Receiver<Draft>, mut closing: watch::Receiver<bool>) {
        let mut waiting = Vec::new();
        loop {
            tokio::select! {
                biased;
                count = drafts.recv_many(&mut waiting, BATCH) => if count == 0 {
                    return;
                },
                _ = closing.wait_for(|closing| *closing), if !drafts.is_closed() => {
                    drafts.close();
                    continue;
                }
            }
            let mut events = self.numbered(waiting.drain(..));
            loop {
                match self.write(events).await {
                    Ok(()) => break,
                    Err((unwritten, error)) => {
                        tracing::warn!(event = "events_not_written", error = %error, "what happened is not written down for now");
                        events = unwritten;
                    }
                }
                tokio::select! {
                    () = self.world.clock.sleep(AGAIN) => {}
                    _ = closing.wait_for(|closing| *closing) => return,
                }
            }
        }
    }

    fn numbered(&mut self, drafts: impl Iterator<Item = Draft>) -> Vec<Event> {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        let at = self.world.clock.unix_millis();
        let lost = (lost > 0).then(|| Draft::new(at, Kind::EventsLost, About::default(), json!({ "count": lost })));
        let mut number = |Draft { at, kind, about, data }| {
            let id = self.next;
            self.next += 1;
            Event { id, uid: self.world.ids.draw(), at, event: kind, about, data }
        };
        lost.into_iter().chain(drafts).map(&mut number).collect()
    }

    /// Makes events durable, then known; gives them back where that fails.
    async fn write(&mut self, events: Vec<Event>) -> Result<(), (Vec<Event>, Error)> {
        let batch = Batch { events };
        let encoded =
            serde_json::to_string(&batch).map_err(|e| Error::internal("the events were not encoded").with_source(e));
        let object = match encoded {
            Ok(object) => object,
            Err(error) => return Err((batch.events, error)),
        };
        let Some(mut lines) = self.lines.take() else {
            return Err((batch.events, Error::internal("the file of the events is gone; start the program anew")));
        };
        let is_long = self.on_file >= KEPT * 2;
        let keep_from = self.next.saturating_sub(KEPT as u64);
        let written = tokio::task::spawn_blocking(move || {
            let done = match is_long {
                true => lines.rewrite(|object| greatest(object) >= keep_from).and_then(|()| lines.append(&object)),
                false => lines.append(&object),
            };
            (lines, done)
        });
        match written.await {
            Ok((lines, done)) => {
                self.lines = Some(lines);
                if let Err(error) = done {
                    return Err((batch.events, error));
                }
            }
            Err(e) => return Err((batch.events, Error::internal("the events were not written").with_source(e))),
        }
        self.on_file = batch.events.len() + if is_long { KEPT } else { self.on_file };
        self.list.add(batch.events);
        Ok(())
    }
}

/// The greatest number in a line.
fn greatest(object: &str) -> u64 {
    let numbers = serde_json::from_str::<Numbers>(object);
    numbers.map_or(0, |n| n.events.iter().map(|n| n.id).max().unwrap_or(0))
}

/// Moves a damaged file away; a number that is not below any that was given in it.
fn set_aside(directory: &Path, error: &Error) -> Result<u64> {
    let path = directory.join(FILE);
    let aside = path.with_extension("jsonl.damaged");
    tracing::error!(event = "events_damaged", error = %error, moved_to = %aside.display(), "the list of events begins anew");
    let failed = |e| {
        Error::config(format!("{} cannot be moved away; make its directory writable", path.display())).with_source(e)
    };
    let bytes = fs::read(&path).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    let found = text.lines().map(greatest).max().unwrap_or(0);
    fs::rename(&path, &aside).map_err(failed)?;
    // A line that cannot be read had as many events as a batch at most.
    Ok(found + (text.lines().count() * (BATCH + 1)) as u64)
}
