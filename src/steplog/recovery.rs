//! How a log is found, and what of it is to be relied upon.
//!
//! The newest segment's header names those before it. Their frames must be there up to the ends named; the oldest of them
//! may be gone, because they are released in that order. Of the newest segment, what a write left that never became durable
//! is cut off.
//!
//! What of the newest segment is durable, nobody knows: the process before may have been told that a sync failed, and a sync
//! that succeeds afterwards proves nothing. So what is good of it is copied to a segment of its own, which takes its place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use uuid::Uuid;

use super::files::{Files, damaged, open_segment, read_header};
use super::frame::{self, Head};
use super::header::{Before, Header};
use super::segment::{Flaw, Frames, Mark, Segment};
use crate::clock::Ids;
use crate::disk::DiskFile;
use crate::error::{Error, Result};
use crate::step::Step;
use crate::strand::{Strand, Strands};

/// How much is copied at once, in bytes.
const COPIED: usize = 1 << 20;

/// What opening a log found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Whether there was no log: this one's history begins here.
    pub is_new: bool,
    /// What was cut off the end.
    pub cut: Option<Cut>,
}

/// The trace of a write that nobody was told had succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: PathBuf,
    /// Where in it the last good step ends.
    pub offset: u64,
    /// How many bytes there are beyond.
    pub bytes: u64,
}

/// A log that takes appends.
pub(super) struct Recovered {
    pub(super) id: Uuid,
    /// Its segments, oldest first.
    pub(super) segments: Vec<Segment>,
    pub(super) last: Step,
    /// The last segment's file.
    pub(super) file: Box<dyn DiskFile>,
    /// Segments that are left over and could not be removed, with their lengths.
    pub(super) dead: Vec<(u64, u64)>,
    /// Of which its steps are; what follows is of the last one.
    pub(super) strands: Strands,
}

/// Finds the log in `files`, or begins one whose first step follows `begin`; of its strands, `most` are remembered.
pub(super) fn recover(files: &Files, begin: Step, ids: &Ids, most: usize) -> Result<(Recovered, Recovery)> {
    let found = files.segments()?;
    let Some((newest, length)) = found.last_key_value().map(|(number, length)| (*number, *length)) else {
        return create(files, begin, ids);
    };
    let file = open_segment(files.path(), newest)?;
    let (header, salt, begin) = read_header(files.path(), &file, newest)?;
    let segments = named(files, &header, &found)?;
    let expected = segments.last().map_or(header.base, |(_, last)| *last);
    if expected != header.base {
        return Err(damaged(&files.segment(newest), 0, "its steps do not follow those of the segment before it"));
    }
    let mut segments: Vec<Segment> = segments.into_iter().map(|(segment, _)| segment).collect();
    let (source, last, cut) = tail(files, file, &header, Segment::new(newest, header.base, begin, salt), length)?;
    let strands = header.strands.and(last, Strand::draw(ids), most);
    let (copy, file) = copied(files, &header, &strands, (&source, segments.as_slice()))?;
    segments.push(copy);
    let left: Vec<(u64, u64)> = found
        .into_iter()
        .filter(|(number, _)| !segments.iter().any(|segment| segment.number == *number))
        .filter(|(number, _)| files.remove(*number).is_err())
        .collect();
    let recovered = Recovered { id: header.id, segments, last, file, dead: left, strands };
    Ok((recovered, Recovery { is_new: false, cut }))
}

fn create(files: &Files, begin: Step, ids: &Ids) -> Result<(Recovered, Recovery)> {
    let drawn = ids.draw();
    let id = Uuid::try_parse(&drawn).map_err(|e| Error::internal("an id is no UUID").with_source(e))?;
    let strands = Strands::default().and(begin, Strand::draw(ids), 1);
    let whole = Header::length(0, &strands);
    let header = Header { id, number: 1, base: begin, whole, before: Vec::new(), strands: strands.clone() };
    let created = files.create(&header, |_, _| Ok(())).map_err(|e| e.fault.error())?;
    let segment = Segment::new(header.number, begin, header.whole, created.salt);
    let recovered =
        Recovered { id, segments: vec![segment], last: begin, file: created.file, dead: Vec::new(), strands };
    Ok((recovered, Recovery { is_new: true, cut: None }))
}

/// The segments that the newest header names and that were not released, each with its last step; all their frames are good.
fn named(files: &Files, newest: &Header, found: &BTreeMap<u64, u64>) -> Result<Vec<(Segment, Step)>> {
    let mut segments: Vec<(Segment, Step)> = Vec::with_capacity(newest.before.len());
    for before in &newest.before {
        let path = files.segment(before.number);
        let Some(length) = found.get(&before.number) else {
            if segments.is_empty() {
                continue;
            }
            return Err(damaged(&path, 0, "it is missing, and segments on both sides of it are there"));
        };
        let (segment, last) = sealed(files, newest, *before, *length)?;
        if segments.last().is_some_and(|(_, end)| *end != segment.base) {
            return Err(damaged(&path, 0, "its steps do not follow those of the segment before it"));
        }
        segments.push((segment, last));
    }
    Ok(segments)
}

fn sealed(files: &Files, newest: &Header, before: Before, length: u64) -> Result<(Segment, Step)> {
    let path = files.segment(before.number);
    let file = open_segment(files.path(), before.number)?;
    let (header, salt, begin) = read_header(files.path(), &file, before.number)?;
    if header.id != newest.id || header.base != before.base {
        return Err(damaged(&path, 0, "its header is not that of the segment which the newest one names"));
    }
    if length < before.end {
        return Err(damaged(&path, length, "it ends before its last step does"));
    }
    let mut segment = Segment::new(before.number, before.base, begin, salt);
    segment.end = before.end;
    let mut frames = Frames::of(files.path(), file, &segment, segment.mark(before.base));
    segment.end = begin;
    segment.length = length;
    while let Some((head, _)) = frames.next().map_err(|flaw| frames.error(flaw))? {
        segment.push(head.after, head.frame_length());
    }
    Ok((segment, frames.last))
}

/// The newest segment as far as it is good, and its last step.
fn tail(
    files: &Files,
    file: File,
    header: &Header,
    mut segment: Segment,
    length: u64,
) -> Result<(Segment, Step, Option<Cut>)> {
    let path = files.segment(header.number);
    if length < header.whole {
        return Err(damaged(&path, length, "it ends before what was there when it got its name"));
    }
    let begin = Mark { after: header.base, offset: segment.begin };
    segment.end = length;
    let mut frames = Frames::of(files.path(), file, &segment, begin);
    segment.end = segment.begin;
    loop {
        match frames.next() {
            Ok(None) => return Ok((segment, frames.last, None)),
            Ok(Some((head, _))) => segment.push(head.after, head.frame_length()),
            Err(Flaw::Damaged { offset, why }) => {
                let is_damage =
                    offset < header.whole || frames.is_cut_by_damage().map_err(|e| frames.error(Flaw::Unread(e)))?;
                if is_damage {
                    return Err(damaged(&path, offset, why));
                }
                return Ok((segment, frames.last, Some(Cut { file: path, offset, bytes: length - offset })));
            }
            Err(flaw) => return Err(frames.error(flaw)),
        }
    }
}

/// A segment with the frames of `source`, which takes its place.
fn copied(
    files: &Files,
    header: &Header,
    strands: &Strands,
    (source, before): (&Segment, &[Segment]),
) -> Result<(Segment, Box<dyn DiskFile>)> {
    let begin = Header::length(before.len(), strands);
    let header = Header {
        id: header.id,
        number: header.number.checked_add(1).ok_or_else(|| Error::internal("the step log has no number left"))?,
        base: header.base,
        whole: begin + (source.end - source.begin),
        before: before.iter().map(Segment::before).collect(),
        strands: strands.clone(),
    };
    let mut frames = Frames::open(files.path(), source, source.base)?;
    frames.end = source.end;
    let mut pushed: Vec<(Step, u64)> = Vec::new();
    let created = files.create(&header, |file, salt| {
        let (mut at, mut buffer) = (begin, Vec::new());
        let mut flush = |buffer: &mut Vec<u8>| -> io::Result<()> {
            file.write_all_at(buffer, at)?;
            at += buffer.len() as u64;
            buffer.clear();
            Ok(())
        };
        let mut offset = begin;
        while let Some((head, payload)) = frames.next().map_err(|flaw| io::Error::other(format!("{flaw:?}")))? {
            frame::write(&mut buffer, &Head { durable: offset, ..head }, &payload, salt, offset);
            offset += head.frame_length();
            pushed.push((head.after, head.frame_length()));
            if buffer.len() >= COPIED {
                flush(&mut buffer)?;
            }
        }
        if buffer.is_empty() { Ok(()) } else { flush(&mut buffer) }
    });
    let created = created.map_err(|e| e.fault.error())?;
    let mut segment = Segment::new(header.number, header.base, begin, created.salt);
    pushed.into_iter().for_each(|(after, length)| segment.push(after, length));
    Ok((segment, created.file))
}
