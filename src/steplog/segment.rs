//! A segment of the log, and the frames in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use super::files::{Fault, damaged, open_segment, segment_path};
use super::frame::{self, HEAD, Head};
use super::header::Before;
use crate::error::Result;
use crate::step::Step;

/// How much is read at once, if the segment has it.
const CHUNK: u64 = 256 << 10;
/// How far marks are apart, in bytes.
const MARK_EVERY: u64 = 128 << 10;

/// Where frames may be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    /// The step before the frame at `offset`.
    pub(super) after: Step,
    pub(super) offset: u64,
}

/// A segment, as far as it is durable.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// The step before its first one.
    pub(super) base: Step,
    /// The offset of its first frame.
    pub(super) begin: u64,
    /// The offset behind its last frame.
    pub(super) end: u64,
    /// The bytes that it takes on disk.
    pub(super) length: u64,
    pub(super) salt: u64,
    /// Some of its frames, in order.
    marks: Arc<Vec<Mark>>,
}

impl Segment {
    pub(super) fn new(number: u64, base: Step, begin: u64, salt: u64) -> Self {
        Self { number, base, begin, end: begin, length: begin, salt, marks: Arc::default() }
    }

    /// Takes in that a frame stands at its end.
    pub(super) fn push(&mut self, after: Step, frame_length: u64) {
        let offset = self.end;
        if self.marks.last().is_none_or(|mark| offset - mark.offset >= MARK_EVERY) {
            Arc::make_mut(&mut self.marks).push(Mark { after, offset });
        }
        self.end += frame_length;
        self.length = self.length.max(self.end);
    }

    /// As later headers name it.
    pub(super) fn before(&self) -> Before {
        Before { number: self.number, base: self.base, end: self.end }
    }

    /// The last place at or before the frame that follows `after`.
    pub(super) fn mark(&self, after: Step) -> Mark {
        let until = self.marks.partition_point(|mark| mark.after <= after);
        let mark = until.checked_sub(1).and_then(|i| self.marks.get(i)).copied();
        mark.unwrap_or(Mark { after: self.base, offset: self.begin })
    }
}

/// What ends the reading of frames.
#[derive(Debug)]
pub(super) enum Flaw {
    Unread(io::Error),
    Damaged { offset: u64, why: &'static str },
}

/// Reads a segment's frames in order.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) path: PathBuf,
    pub(super) number: u64,
    file: File,
    salt: u64,
    /// The offset of the next frame.
    pub(super) at: u64,
    /// The offset behind the last one.
    pub(super) end: u64,
    /// The step before the next frame.
    pub(super) last: Step,
    chunk: Bytes,
    chunk_at: u64,
}

impl Frames {
    /// From the last mark at or before the frame that follows `after`.
    pub(super) fn open(directory: &Path, segment: &Segment, after: Step) -> Result<Self> {
        let file = open_segment(directory, segment.number)?;
        Ok(Self::of(directory, file, segment, segment.mark(after)))
    }

    pub(super) fn of(directory: &Path, file: File, segment: &Segment, from: Mark) -> Self {
        Self {
            path: segment_path(directory, segment.number),
            number: segment.number,
            file,
            salt: segment.salt,
            at: from.offset,
            end: segment.end,
            last: from.after,
            chunk: Bytes::new(),
            chunk_at: 0,
        }
    }

    /// The next frame with its payload; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(Head, Bytes)>, Flaw> {
        let Some(head) = self.head()? else { return Ok(None) };
        let offset = self.at;
        let payload = self.get(offset + HEAD as u64, head.length).map_err(Flaw::Unread)?;
        if !frame::holds(&head, &payload, self.salt, offset) {
            return Err(Flaw::Damaged { offset, why: "a step's changes do not hold what they were written with" });
        }
        self.pass(&head);
        Ok(Some((head, payload)))
    }

    /// The next frame without its payload, which is not looked at; `None` at the end.
    pub(super) fn skip(&mut self) -> Result<Option<Head>, Flaw> {
        let head = self.head()?;
        if let Some(head) = &head {
            self.pass(head);
        }
        Ok(head)
    }

    /// Whether a frame beyond the next bad one was written when that one was durable already.
    ///
    /// Frames of one write reach the disk in any order, so a frame that follows proves nothing; one that was written when
    /// everything below an offset was synced does.
    pub(super) fn is_cut_by_damage(&mut self) -> io::Result<bool> {
        let bad = self.at;
        let mut at = bad;
        while at + (HEAD as u64) <= self.end {
            let bytes = self.get(at, HEAD as u64)?;
            if let Some(head) = frame::read_head(&bytes, self.salt, at)
                && head.durable > bad
                && at.checked_add(head.frame_length()).is_some_and(|end| end <= self.end)
                && frame::holds(&head, &self.get(at + HEAD as u64, head.length)?, self.salt, at)
            {
                return Ok(true);
            }
            at += 1;
        }
        Ok(false)
    }

    /// What an end by `flaw` is to the caller.
    pub(super) fn error(&self, flaw: Flaw) -> crate::error::Error {
        match flaw {
            Flaw::Unread(e) => Fault::new(&self.path, "cannot be read", e).error(),
            Flaw::Damaged { offset, why } => damaged(&self.path, offset, why),
        }
    }

    fn head(&mut self) -> Result<Option<Head>, Flaw> {
        let offset = self.at;
        if offset >= self.end {
            return Ok(None);
        }
        let broken = |why| Flaw::Damaged { offset, why };
        let left = self.end - offset;
        if left < HEAD as u64 {
            return Err(broken("it ends in the middle of a step"));
        }
        let bytes = self.get(offset, HEAD as u64).map_err(Flaw::Unread)?;
        let head = frame::read_head(&bytes, self.salt, offset).ok_or_else(|| broken("no step begins there"))?;
        if head.frame_length() > left {
            return Err(broken("it ends in the middle of a step"));
        }
        if head.after != self.last || head.step <= head.after {
            return Err(broken("the step there does not follow the one before it"));
        }
        Ok(Some(head))
    }

    fn pass(&mut self, head: &Head) {
        self.at += head.frame_length();
        self.last = head.step;
    }

    /// The bytes from `offset` on; they are before the end.
    fn get(&mut self, offset: u64, length: u64) -> io::Result<Bytes> {
        let within = |chunk: &Bytes, at: u64| {
            let begin = usize::try_from(offset.checked_sub(at)?).ok()?;
            let end = begin.checked_add(usize::try_from(length).ok()?)?;
            (end <= chunk.len()).then(|| chunk.slice(begin..end))
        };
        if let Some(bytes) = within(&self.chunk, self.chunk_at) {
            return Ok(bytes);
        }
        let wanted = length.max(CHUNK.min(self.end - offset));
        let mut bytes = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, offset)?;
        if length > CHUNK {
            // It is not read again, and whoever follows slowly would hold it.
            return Ok(Bytes::from(bytes));
        }
        (self.chunk, self.chunk_at) = (Bytes::from(bytes), offset);
        within(&self.chunk, offset).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
