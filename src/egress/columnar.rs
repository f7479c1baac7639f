//! Chunks as batches of an Arrow IPC stream.
//!
//! The head of a chunk, or what is wrong, is JSON in the metadata of a batch's message, under one key. The library writes
//! messages without metadata, so a message that it made is made again with it.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::write_message;
use arrow::ipc::writer::{DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow::ipc::{
    BodyCompressionBuilder, KeyValueBuilder, MessageBuilder, MessageHeader, RecordBatchBuilder, root_as_message,
};
use bytes::Bytes;
use flatbuffers::FlatBufferBuilder;
use serde::Serialize;

use super::chunk::{Fault, Head};
use super::encoder::Rows;
use crate::change::Op;
use crate::error::{Error, Result};
use crate::schema::View;

/// Under which the head of a chunk stands in a batch's metadata.
const METADATA: &str = "cutover";
/// How a stream ends.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Writes the batches of one stream.
pub(super) struct Columnar {
    view: View,
    options: IpcWriteOptions,
    generator: IpcDataGenerator,
    dictionaries: DictionaryTracker,
    context: IpcWriteContext,
    has_begun: bool,
}

impl Columnar {
    pub(super) fn new(view: &View) -> Self {
        Self {
            view: view.clone(),
            options: IpcWriteOptions::default(),
            generator: IpcDataGenerator::default(),
            dictionaries: DictionaryTracker::new(false),
            context: IpcWriteContext::default(),
            has_begun: false,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// A batch with a head and rows; before the first one, the schema.
    pub(super) fn chunk(&mut self, head: &Head, rows: &Rows<'_>) -> Result<Bytes> {
        let batch = changelog(&self.view, head, rows)?;
        let mut bytes = Vec::new();
        self.message(&batch, head, &mut bytes)?;
        Ok(bytes.into())
    }

    /// A batch without rows, and the end of the stream.
    pub(super) fn last(&mut self, last: Result<&Head, &Fault>) -> Result<Bytes> {
        let batch = RecordBatch::new_empty(self.view.changelog_schema());
        let mut bytes = Vec::new();
        match last {
            Ok(head) => self.message(&batch, head, &mut bytes)?,
            Err(fault) => self.message(&batch, fault, &mut bytes)?,
        }
        bytes.extend_from_slice(&END);
        Ok(bytes.into())
    }

    fn message(&mut self, batch: &RecordBatch, metadata: &impl Serialize, out: &mut Vec<u8>) -> Result<()> {
        let failed = |e| Error::internal("a batch was not encoded").with_source(e);
        if !std::mem::replace(&mut self.has_begun, true) {
            let schema = self.generator.schema_to_bytes_with_dictionary_tracker(
                batch.schema_ref(),
                &mut self.dictionaries,
                &self.options,
            );
            write_message(&mut *out, schema, &self.options).map_err(failed)?;
        }
        let encoded = self.generator.encode(batch, &mut self.dictionaries, &self.options, &mut self.context);
        let (_, encoded) = encoded.map_err(failed)?;
        let metadata = serde_json::to_string(metadata)
            .map_err(|e| Error::internal("the head of a chunk was not encoded").with_source(e))?;
        let encoded = EncodedData { ipc_message: with_metadata(&encoded.ipc_message, &metadata)?, ..encoded };
        write_message(out, encoded, &self.options).map_err(failed)?;
        Ok(())
    }
}

/// The rows as a table's changelog has them.
fn changelog(view: &View, head: &Head, rows: &Rows<'_>) -> Result<RecordBatch> {
    let of_generation = |rows: usize| -> ArrayRef { Arc::new(Int64Array::from_value(head.generation.as_i64(), rows)) };
    let columns = match rows {
        Rows::None => return Ok(RecordBatch::new_empty(view.changelog_schema())),
        Rows::Snapshot(batch) => {
            let count = batch.num_rows();
            let steps: ArrayRef = Arc::new(Int64Array::from_value(head.to.as_i64(), count));
            let ops: ArrayRef = Arc::new(StringArray::from(vec![Op::Insert.letter(); count]));
            [vec![of_generation(count), steps, ops], batch.columns().to_vec()].concat()
        }
        Rows::Changes(batch) => [vec![of_generation(batch.num_rows())], batch.columns().to_vec()].concat(),
    };
    RecordBatch::try_new(view.changelog_schema(), columns).map_err(|e| {
        Error::incompatible(format!("view {}: the rows do not fit the view's columns", view.name())).with_source(e)
    })
}

/// The message of a batch, with metadata.
fn with_metadata(message: &[u8], metadata: &str) -> Result<Vec<u8>> {
    let broken = || Error::internal("the message of a batch has no batch");
    let message = root_as_message(message).map_err(|e| broken().with_source(e.to_string()))?;
    let batch = message.header_as_record_batch().ok_or_else(broken)?;
    let mut builder = FlatBufferBuilder::new();
    let nodes = batch.nodes().map(|nodes| builder.create_vector_from_iter(nodes.iter().copied()));
    let buffers = batch.buffers().map(|buffers| builder.create_vector_from_iter(buffers.iter().copied()));
    let counts = batch.variadicBufferCounts().map(|counts| builder.create_vector_from_iter(counts.iter()));
    let compression = batch.compression().map(|compression| {
        let mut copy = BodyCompressionBuilder::new(&mut builder);
        copy.add_method(compression.method());
        copy.add_codec(compression.codec());
        copy.finish()
    });
    let (key, value) = (builder.create_string(METADATA), builder.create_string(metadata));
    let mut pair = KeyValueBuilder::new(&mut builder);
    pair.add_key(key);
    pair.add_value(value);
    let pair = pair.finish();
    let pairs = builder.create_vector(&[pair]);
    let mut header = RecordBatchBuilder::new(&mut builder);
    header.add_length(batch.length());
    nodes.into_iter().for_each(|nodes| header.add_nodes(nodes));
    buffers.into_iter().for_each(|buffers| header.add_buffers(buffers));
    counts.into_iter().for_each(|counts| header.add_variadicBufferCounts(counts));
    compression.into_iter().for_each(|compression| header.add_compression(compression));
    let header = header.finish().as_union_value();
    let mut copy = MessageBuilder::new(&mut builder);
    copy.add_version(message.version());
    copy.add_header_type(MessageHeader::RecordBatch);
    copy.add_bodyLength(message.bodyLength());
    copy.add_header(header);
    copy.add_custom_metadata(pairs);
    let copy = copy.finish();
    builder.finish(copy, None);
    Ok(builder.finished_data().to_vec())
}
