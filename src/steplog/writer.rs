//! The one owner of a log's files: judges entries, writes and syncs those of all who wait at once, and lets go of segments.

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use uuid::Uuid;

use super::entry::{At, Entry};
use super::files::{Fault, Files};
use super::frame::{self, Head};
use super::header::Header;
use super::recovery::Recovered;
use super::segment::{Frames, Segment};
use super::{Answer, Limits};
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::step::Step;
use crate::strand::Strands;

/// What the writer is asked for.
pub(super) enum Request {
    Append(Append),
    Release(Step, oneshot::Sender<Result<()>>),
}

/// An entry whose sender waits.
pub(super) struct Append {
    pub(super) entry: Entry,
    pub(super) reply: oneshot::Sender<Result<Answer>>,
    /// Room in the queue.
    pub(super) _room: OwnedSemaphorePermit,
}

/// What of the log is durable.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Oldest first; never none.
    pub(super) segments: Vec<Segment>,
    pub(super) last: Step,
    /// What it takes on disk.
    pub(super) bytes: u64,
}

impl Layout {
    /// The step before the first one that is held.
    pub(super) fn earliest(&self) -> Step {
        earliest(&self.segments, self.last)
    }
}

fn earliest(segments: &[Segment], last: Step) -> Step {
    segments.first().map_or(last, |segment| segment.base)
}

pub(super) struct Writer {
    files: Files,
    id: Uuid,
    limits: Limits,
    segments: Vec<Segment>,
    last: Step,
    /// The last segment's file; `None` once nothing more may be written to it.
    file: Option<Box<dyn DiskFile>>,
    highest: u64,
    /// Segments that the log does not consist of and that may still be there, with their lengths.
    dead: Vec<(u64, u64)>,
    /// Whether every name that was taken away is sure to stay away.
    are_names_sure: bool,
    strands: Strands,
    layout: watch::Sender<Layout>,
}

/// Entries that are to become frames.
#[derive(Default)]
struct Plan {
    frames: Vec<(Head, Bytes)>,
    bytes: u64,
    answers: Vec<(Append, Answer)>,
}

impl Writer {
    pub(super) fn new(files: Files, limits: Limits, recovered: Recovered) -> Self {
        let Recovered { id, segments, last, file, dead, strands } = recovered;
        let highest = segments.iter().map(|segment| segment.number).max().unwrap_or(0);
        let (layout, _) = watch::channel(Layout { segments: Vec::new(), last, bytes: 0 });
        let are_names_sure = true;
        let file = Some(file);
        let writer = Self { files, id, limits, segments, last, file, highest, dead, are_names_sure, strands, layout };
        writer.publish();
        writer
    }

    pub(super) fn layout(&self) -> watch::Receiver<Layout> {
        self.layout.subscribe()
    }

    /// Serves until nobody can ask any more.
    pub(super) fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        let mut next = requests.blocking_recv();
        while let Some(request) = next.take() {
            match request {
                Request::Release(up_to, reply) => {
                    let released = self.release(up_to);
                    self.publish();
                    let _ = reply.send(released.map_err(|fault| fault.error()));
                }
                Request::Append(first) => {
                    let mut batch = vec![first];
                    loop {
                        match requests.try_recv() {
                            Ok(Request::Append(append)) => batch.push(append),
                            Ok(other) => break next = Some(other),
                            Err(_) => break,
                        }
                    }
                    self.append(batch);
                }
            }
            if next.is_none() {
                next = requests.blocking_recv();
            }
        }
    }

    /// Who goes away without waiting for the answer is answered all the same, into the void.
    fn append(&mut self, batch: Vec<Append>) {
        let mut plan = Plan::default();
        for append in batch {
            match self.judge(&append.entry, &plan) {
                Ok(Ok(head)) => {
                    plan.bytes += head.frame_length();
                    plan.frames.push((head, append.entry.payload.clone()));
                    plan.answers.push((append, Answer::Stored(head.step)));
                }
                // What rests on entries before it waits for what becomes of them.
                Ok(Err(answer)) if !plan.frames.is_empty() => plan.answers.push((append, answer)),
                Ok(Err(answer)) => drop(append.reply.send(Ok(answer))),
                Err(e) => drop(append.reply.send(Err(e))),
            }
        }
        if plan.answers.is_empty() {
            return;
        }
        let written = self.write(&plan.frames);
        self.publish();
        for (append, answer) in plan.answers {
            let _ = append.reply.send(written.as_ref().map(|()| answer).map_err(Fault::error));
        }
    }

    /// The head of the frame that an entry becomes behind those planned, or the answer that it gets without.
    fn judge(&self, entry: &Entry, plan: &Plan) -> Result<Result<Head, Answer>> {
        let last = plan.frames.last().map_or(self.last, |(head, _)| head.step);
        let (step, after) = match entry.at {
            At::Next => (Step::new(last.get() + 1)?, last),
            At::Step { step, after } => (step, after),
        };
        if step <= after {
            return Err(Error::refused(format!("step {step} cannot follow step {after}; steps increase")));
        }
        if step <= last {
            return self.stored_already(step, after, entry, plan).map(Err);
        }
        if after != last {
            return Ok(Err(Answer::Gap { last }));
        }
        let length = entry.payload.len() as u64;
        let head = Head { length, after, step, rows: entry.rows, content: entry.content, durable: 0, payload_sum: 0 };
        let (frame, largest) = (head.frame_length(), self.limits.largest_step(&self.strands));
        if frame > largest {
            return Err(Error::refused(format!(
                "step {step} takes {frame} bytes, and one of more than {largest} has no room in the step log; raise \
                 step_log.max_bytes, or send smaller steps"
            )));
        }
        // There is always room for the header by which everything can be released.
        let header = Header::length(self.segments.len(), &self.strands);
        let (bytes, max_bytes) = (self.bytes(), self.limits.max_bytes);
        if bytes + header * 2 + plan.bytes + frame > max_bytes {
            return Ok(Err(Answer::Full { bytes: bytes + plan.bytes, max_bytes }));
        }
        Ok(Ok(head))
    }

    /// What to say of a step at or before the last one.
    fn stored_already(&self, step: Step, after: Step, entry: &Entry, plan: &Plan) -> Result<Answer> {
        let same = |head: &Head| match head.content == entry.content && head.rows == entry.rows && head.after == after {
            true => Answer::AlreadyStored(step),
            false => Answer::OtherContent(step),
        };
        if let Some((head, _)) = plan.frames.iter().find(|(head, _)| head.step == step) {
            return Ok(same(head));
        }
        let last = plan.frames.last().map_or(self.last, |(head, _)| head.step);
        let Some(segment) = self.segments.iter().rev().find(|segment| segment.base < step) else {
            return Ok(Answer::Gone { earliest: earliest(&self.segments, self.last) });
        };
        let before = Step::new(step.get() - 1)?;
        let mut frames = Frames::open(self.files.path(), segment, before)?;
        while let Some(head) = frames.skip().map_err(|flaw| frames.error(flaw))? {
            if head.step >= step {
                return Ok(if head.step == step { same(&head) } else { Answer::Gap { last } });
            }
        }
        Ok(Answer::Gap { last })
    }

    /// Writes frames and makes them durable: all of them, or none that counts.
    fn write(&mut self, frames: &[(Head, Bytes)]) -> Result<(), Fault> {
        if self.must_roll() {
            self.roll()?;
        }
        let (Some(file), Some(segment)) = (&self.file, self.segments.last_mut()) else {
            let closed = std::io::Error::other("no segment takes steps");
            return Err(Fault::new(self.files.path(), "cannot be written", closed));
        };
        let end = segment.end;
        let length: u64 = frames.iter().map(|(head, _)| head.frame_length()).sum();
        let mut buffer = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        for (head, payload) in frames {
            let offset = end + buffer.len() as u64;
            frame::write(&mut buffer, &Head { durable: end, ..*head }, payload, segment.salt, offset);
        }
        if let Err(e) = file.write_all_at(&buffer, end) {
            if file.set_len(end).is_err() {
                segment.length = end + length;
                self.file = None;
            }
            return Err(Fault::new(self.files.path(), "cannot be written", e));
        }
        if let Err(e) = file.sync() {
            // No later sync tells anything of these bytes: nothing is written behind them.
            segment.length = if file.set_len(end).is_ok() { end } else { end + length };
            self.file = None;
            let fault = Fault::new(self.files.path(), "cannot be synced", e);
            return Err(fault.and("whether the step is stored shows when it is sent again"));
        }
        for (head, _) in frames {
            segment.push(head.after, head.frame_length());
            self.last = head.step;
        }
        Ok(())
    }

    fn must_roll(&self) -> bool {
        self.file.is_none() || self.segments.last().is_none_or(|segment| segment.end >= self.limits.segment_bytes)
    }

    /// Begins a segment behind the last one.
    fn roll(&mut self) -> Result<(), Fault> {
        // A number that was tried may be the name of something.
        self.highest += 1;
        let before: Vec<_> =
            self.segments.iter().filter(|segment| segment.end > segment.begin).map(Segment::before).collect();
        let (strands, begin) = (self.strands.clone(), Header::length(before.len(), &self.strands));
        let header = Header { id: self.id, number: self.highest, base: self.last, whole: begin, before, strands };
        match self.files.create(&header, |_, _| Ok(())) {
            Ok(created) => {
                let (kept, empty) = self.segments.drain(..).partition(|segment| segment.end > segment.begin);
                let empty: Vec<Segment> = empty;
                self.segments = kept;
                self.dead.extend(empty.iter().map(|segment| (segment.number, segment.length)));
                self.segments.push(Segment::new(header.number, header.base, begin, created.salt));
                self.file = Some(created.file);
                self.are_names_sure = true;
                self.bury();
                Ok(())
            }
            Err(e) => {
                if e.may_be_named {
                    // Its header says where the segment before it ends, so that one is closed too.
                    self.file = None;
                    self.are_names_sure = false;
                    self.dead.push((header.number, begin));
                }
                Err(e.fault)
            }
        }
    }

    /// Removes what the log does not consist of, as far as that works.
    ///
    /// A segment that is removed may come back. One that failed to come into being is numbered above the others, so it stays
    /// until another one above it is sure to be found.
    fn bury(&mut self) {
        if !self.are_names_sure {
            return;
        }
        let files = &self.files;
        self.dead.retain(|(number, _)| files.remove(*number).is_err());
    }

    /// Lets go of whole segments, oldest first, whose steps are all at or before `up_to`.
    fn release(&mut self, up_to: Step) -> Result<(), Fault> {
        if self.last <= up_to && self.segments.last().is_some_and(|segment| segment.end >= self.limits.segment_bytes) {
            self.roll()?;
        }
        self.bury();
        while let Some(next) = self.segments.get(1).filter(|next| next.base <= up_to) {
            if !self.are_names_sure {
                // Only a header that does not name them makes sure that they stay away.
                self.roll()?;
                continue;
            }
            let (earliest, number) = (next.base, self.segments.first().map_or(0, |segment| segment.number));
            tracing::debug!(%earliest, number, "a segment of the step log is released");
            self.files.remove(number)?;
            self.segments.remove(0);
            self.files.sync_names().inspect_err(|_| self.are_names_sure = false)?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let live: u64 = self.segments.iter().map(|segment| segment.length).sum();
        live + self.dead.iter().map(|(_, length)| length).sum::<u64>()
    }

    fn publish(&self) {
        self.layout.send_replace(Layout { segments: self.segments.clone(), last: self.last, bytes: self.bytes() });
    }
}
