//! Arrow IPC files, measured before they are decoded.
//!
//! The decoder allocates whatever lengths a file declares, and a failed allocation ends the process. So every declared
//! length is compared with the file's size, or with a cap where the data is compressed, before the decoder sees it.

use std::io::{BufReader, Read, Seek, SeekFrom};

use arrow::datatypes::Schema;
use arrow::ipc::reader::{FileReader, StreamReader};
use arrow::ipc::{Message, root_as_footer, root_as_message};

use super::columnar::Columnar;
use crate::error::{Error, Result};
use crate::ipc::{Declared, unfolded_length};

/// The most bytes that one compressed record batch may declare to unfold to.
const MAX_UNFOLDED: u64 = 4 << 30;
const MAGIC: &[u8] = b"ARROW1";

/// Opens the file or the stream format, by the magic, with all columns or `only` one of that name.
pub(crate) fn open(mut file: std::fs::File, label: &str, only: Option<&str>) -> Result<Columnar> {
    let length = file.seek(SeekFrom::End(0)).map_err(|e| unread(label, e))?;
    let mut measured =
        Measured { input: BufReader::with_capacity(1 << 16, &mut file), at: length, length, label, rows: 0 };
    let is_file = length >= MAGIC.len() as u64 && measured.read_at(0, MAGIC.len())? == MAGIC;
    if is_file {
        measured.file_format()?;
    } else {
        measured.stream_format()?;
    }
    let rows = measured.rows;
    let input = || {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(BufReader::with_capacity(1 << 18, file))
    };
    let again = || input().map_err(|e| unread(label, e));
    let wanted = |schema: &Schema| Some(vec![only.and_then(|name| schema.index_of(name).ok())?]);
    if is_file {
        let mut reader = FileReader::try_new(again()?, None).map_err(|e| damaged(label, e))?;
        if let Some(columns) = wanted(&reader.schema()) {
            reader = FileReader::try_new(again()?, Some(columns)).map_err(|e| damaged(label, e))?;
        }
        Ok(Columnar::new(reader.schema(), Some(rows), length, Box::new(reader)))
    } else {
        let mut reader = StreamReader::try_new(again()?, None).map_err(|e| damaged(label, e))?;
        if let Some(columns) = wanted(&reader.schema()) {
            reader = StreamReader::try_new(again()?, Some(columns)).map_err(|e| damaged(label, e))?;
        }
        Ok(Columnar::new(reader.schema(), Some(rows), length, Box::new(reader)))
    }
}

struct Measured<'a> {
    /// Buffered, because a file of many small batches is measured in many small reads.
    input: BufReader<&'a mut std::fs::File>,
    at: u64,
    length: u64,
    label: &'a str,
    rows: u64,
}

impl Measured<'_> {
    fn file_format(&mut self) -> Result<()> {
        let too_short = || torn(self.label, "it is shorter than its parts");
        let end = self.length.checked_sub(10).ok_or_else(too_short)?;
        let tail = self.read_at(end, 10)?;
        if !tail.ends_with(MAGIC) {
            return Err(torn(self.label, "it does not end with the magic of an Arrow file"));
        }
        let footer_length = u64::from(le_u32(&tail).ok_or_else(too_short)?);
        let start = end.checked_sub(footer_length).ok_or_else(too_short)?;
        let footer = self.read_at(start, footer_length as usize)?;
        let footer = root_as_footer(&footer).map_err(|e| damaged(self.label, e))?;
        let blocks = footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
        for block in blocks {
            let parts = (block.offset(), i64::from(block.metaDataLength()), block.bodyLength());
            let (Ok(offset), Ok(meta), Ok(body)) =
                (u64::try_from(parts.0), u64::try_from(parts.1), u64::try_from(parts.2))
            else {
                return Err(torn(self.label, "a block has a negative length"));
            };
            let fits = offset.checked_add(meta).and_then(|o| o.checked_add(body)).is_some_and(|o| o <= self.length);
            if !fits || meta < 8 {
                return Err(torn(self.label, "a block lies outside the file"));
            }
            let bytes = self.read_at(offset, meta as usize)?;
            let skipped = if bytes.starts_with(&[0xFF; 4]) { 8 } else { 4 };
            let message = bytes.get(skipped..).unwrap_or_default();
            let message = root_as_message(message).map_err(|e| damaged(self.label, e))?;
            if message.bodyLength() != block.bodyLength() {
                return Err(torn(self.label, "a block and its message disagree about the length"));
            }
            self.message(&message, offset + meta)?;
        }
        Ok(())
    }

    fn stream_format(&mut self) -> Result<()> {
        let mut at = 0;
        loop {
            let mut prefix = self.read_at(at, 4)?;
            at += 4;
            if prefix == [0xFF; 4] {
                prefix = self.read_at(at, 4)?;
                at += 4;
            }
            let meta = u64::from(le_u32(&prefix).unwrap_or(0));
            if meta == 0 && at == self.length {
                return Ok(());
            }
            if meta == 0 {
                return Err(torn(self.label, "there are bytes behind the end of the stream"));
            }
            if at.checked_add(meta).is_none_or(|end| end > self.length) {
                return Err(torn(self.label, "a message is longer than the file"));
            }
            let bytes = self.read_at(at, meta as usize)?;
            at += meta;
            let message = root_as_message(&bytes).map_err(|e| damaged(self.label, e))?;
            let body = u64::try_from(message.bodyLength()).ok().and_then(|body| at.checked_add(body));
            let Some(end) = body.filter(|end| *end <= self.length) else {
                return Err(torn(self.label, "a message is longer than the file"));
            };
            self.message(&message, at)?;
            at = end;
        }
    }

    fn read_at(&mut self, at: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let distance = i64::try_from(i128::from(at) - i128::from(self.at)).unwrap_or(i64::MAX);
        let read = self.input.seek_relative(distance).and_then(|()| self.input.read_exact(&mut bytes));
        read.map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => torn(self.label, "it ends in the middle; write it again"),
            _ => unread(self.label, e),
        })?;
        self.at = at + length as u64;
        Ok(bytes)
    }

    /// Compares what a message declares with what its body, which lies at `body`, can hold.
    fn message(&mut self, message: &Message<'_>, body: u64) -> Result<()> {
        let Some(declared) = Declared::of(message).map_err(|why| torn(self.label, why))? else { return Ok(()) };
        self.rows += declared.rows;
        let mut unfolded = 0u64;
        let compressed = declared.buffers.iter().filter(|b| declared.compression.is_some() && b.end - b.start >= 8);
        for buffer in compressed {
            let prefix = self.read_at(body + buffer.start, 8)?;
            unfolded = unfolded.saturating_add(unfolded_length(&prefix).unwrap_or(0));
        }
        if unfolded > MAX_UNFOLDED {
            return Err(Error::refused(format!(
                "{}: a batch unfolds to {unfolded} bytes, more than {MAX_UNFOLDED}; write smaller batches",
                self.label
            )));
        }
        Ok(())
    }
}

fn le_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
}

fn torn(label: &str, why: &str) -> Error {
    Error::corrupt(format!("{label} is no complete Arrow file: {why}"))
}

/// The verifier's error is no standard error, so its words are kept.
fn damaged(label: &str, e: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("{label} is damaged, or no Arrow file")).with_source(e.to_string())
}

fn unread(label: &str, e: std::io::Error) -> Error {
    Error::unavailable(format!("{label} cannot be read")).with_source(e)
}
