//! What a message of Arrow IPC declares, held against what it can hold.
//!
//! A decoder allocates whatever lengths a message declares, and a failed allocation ends the process. So readers look at
//! these before a decoder does.

use std::ops::Range;

use arrow::ipc::{CompressionType, Message};

/// What the message of a record batch or a dictionary declares.
pub(crate) struct Declared {
    /// How many rows the batch has; a dictionary has none.
    pub(crate) rows: u64,
    /// How many values all arrays have together. Arrays of nulls or of runs need no bytes for them, but a decoder may make a
    /// bit for each.
    pub(crate) values: u64,
    /// Where each buffer lies in the message's body.
    pub(crate) buffers: Vec<Range<u64>>,
    /// How the buffers are compressed; such a buffer begins with the length that it unfolds to, or with -1.
    pub(crate) compression: Option<CompressionType>,
}

impl Declared {
    /// What `message` declares, or why that cannot be; `None` for a message without a batch.
    pub(crate) fn of(message: &Message<'_>) -> Result<Option<Self>, &'static str> {
        let is_dictionary = message.header_as_dictionary_batch().is_some();
        let batch = match message.header_as_dictionary_batch() {
            Some(dictionary) => dictionary.data(),
            None => message.header_as_record_batch(),
        };
        let Some(batch) = batch else { return Ok(None) };
        let rows = u64::try_from(batch.length()).ok().filter(|rows| *rows <= u64::from(u32::MAX));
        let rows = if is_dictionary { 0 } else { rows.ok_or("a batch has an impossible number of rows")? };
        let mut values = 0u64;
        for node in batch.nodes().into_iter().flatten() {
            let length = u64::try_from(node.length()).map_err(|_| "an array has a negative length")?;
            values = values.saturating_add(length);
        }
        let mut buffers = Vec::new();
        for buffer in batch.buffers().into_iter().flatten() {
            let span = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
            let range = span.and_then(|(offset, length)| Some(offset..offset.checked_add(length)?));
            let within = range.filter(|range| range.end <= message.bodyLength().unsigned_abs());
            buffers.push(within.ok_or("a buffer lies outside its batch")?);
        }
        Ok(Some(Self { rows, values, buffers, compression: batch.compression().map(|c| c.codec()) }))
    }
}

/// The length to which a compressed buffer that begins with `prefix` says that it unfolds; `None` when it holds its bytes
/// as they are.
pub(crate) fn unfolded_length(prefix: &[u8]) -> Option<u64> {
    prefix.first_chunk::<8>().and_then(|bytes| u64::try_from(i64::from_le_bytes(*bytes)).ok())
}
