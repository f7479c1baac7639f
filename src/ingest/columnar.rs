//! An Arrow IPC stream to operations. Its lengths are held against the limits before a decoder sees it.

use std::io;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::{CompressionType, MessageHeader, root_as_message};

use super::operations::{Gathering, Partial, Place};
use super::unfold::plain_bytes;
use super::{Limits, REMEDY_ROOM};
use crate::change::Op;
use crate::continuity::stamp::COLUMN_OP;
use crate::error::{Error, ErrorKind, Result, guarded};
use crate::ipc::{Declared, unfolded_length};
use crate::json::{Room, shown};
use crate::schema::{View, fits};

/// The most that the schema of a stream may weigh: its names and metadata in bytes, and each field.
const MAX_SCHEMA: u64 = 16 << 20;
/// What a field, or a column of a batch, takes beside its contents, in bytes.
const OVERHEAD: u64 = 256;

/// What an operation takes beside its row, in bytes: its letter, and where it stands if it is a partial update.
const ROW: u64 = 16 + size_of::<Partial>() as u64;

/// Adds the operations of a whole stream.
pub(super) fn read(bytes: Vec<u8>, limits: Limits, into: &mut Gathering) -> Result<()> {
    if bytes.starts_with(b"ARROW1") {
        return Err(Error::refused("the request is an Arrow IPC file; send an Arrow IPC stream"));
    }
    guarded("the request", || measure(&bytes, limits.unfolded))?;
    let mut buffer = Buffer::from_vec(bytes);
    let mut decoder = StreamDecoder::new();
    let mut room = Room::new(limits.unfolded, REMEDY_ROOM);
    let mut columns = None;
    for number in 1.. {
        let label = format!("batch {number}");
        let decoded = guarded(&label, || {
            let batch = decoder.decode(&mut buffer).map_err(|e| damaged(&label, e))?;
            let schema = decoder.schema().ok_or_else(|| Error::corrupt("the request has no schema"))?;
            Ok((batch, schema))
        })?;
        let known = match columns.take() {
            Some(known) => known,
            None => Columns::of(&decoded.1, into.view())?,
        };
        let known = columns.insert(known);
        let Some(batch) = decoded.0 else { return Ok(()) };
        guarded(&label, || known.add(number, &batch, &mut room, into))?;
    }
    Ok(())
}

/// Looks at every message: what it declares must lie within the stream, and unfold to no more than `limit` bytes.
fn measure(bytes: &[u8], limit: u64) -> Result<()> {
    let (mut rest, mut unfolded, mut values, mut batch) = (bytes, 0u64, 0u64, 1u64);
    loop {
        let label = format!("batch {batch}");
        let torn = |why: &str| Error::corrupt(format!("{label}: the request is no complete Arrow IPC stream: {why}"));
        let cut = || torn("it ends before its end mark");
        let mut length = le_u32(&mut rest).ok_or_else(cut)?;
        if length == u32::MAX {
            length = le_u32(&mut rest).ok_or_else(cut)?;
        }
        match (length, rest.is_empty()) {
            (0, true) => return Ok(()),
            (0, false) => return Err(torn("there are bytes behind its end mark")),
            _ => {}
        }
        let (message, behind) = rest.split_at_checked(length as usize).ok_or_else(cut)?;
        let message = root_as_message(message).map_err(|e| damaged(&label, e.to_string()))?;
        let length = usize::try_from(message.bodyLength()).map_err(|_| torn("a message has a negative length"))?;
        let (body, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        rest = behind;
        match message.header_type() {
            MessageHeader::Schema => {
                let mut left = MAX_SCHEMA;
                let fields = message.header_as_schema().and_then(|schema| schema.fields());
                if !fields.into_iter().flatten().all(|field| weighs(&field, &mut left)) {
                    return Err(Error::refused("the schema: has too many fields, or too long names and metadata"));
                }
            }
            MessageHeader::RecordBatch => {}
            MessageHeader::DictionaryBatch if message.header_as_dictionary_batch().is_some_and(|d| d.isDelta()) => {
                let why = "adds to a dictionary, which is not taken; write whole dictionaries, or plain columns";
                return Err(Error::refused(format!("{label}: {why}")));
            }
            MessageHeader::DictionaryBatch => {}
            _ => return Err(Error::refused(format!("{label}: is neither a record batch nor a dictionary"))),
        }
        let Some(declared) = Declared::of(&message).map_err(torn)? else { continue };
        values = values.saturating_add(declared.values);
        if declared.rows > limit / ROW || values > limit.saturating_mul(8) {
            return Err(Error::refused(format!(
                "{label}: has more rows than {limit} bytes can hold for all rows; {REMEDY_ROOM}"
            )));
        }
        for range in declared.buffers {
            let buffer = body.get(range.start as usize..range.end as usize).unwrap_or_default();
            let length = match declared.compression.and_then(|codec| Some((codec, unfolded_length(buffer)?))) {
                None => buffer.len() as u64,
                Some((codec, length)) => {
                    let left = limit.saturating_sub(unfolded);
                    check_unfolding(codec, buffer.get(8..).unwrap_or_default(), length.min(left), &label)?;
                    length
                }
            };
            unfolded = unfolded.saturating_add(length);
            if unfolded > limit {
                let why = format!("its buffers unfold to more than {limit} bytes with those before it; {REMEDY_ROOM}");
                return Err(Error::refused(format!("{label}: {why}")));
            }
        }
        batch += u64::from(message.header_type() == MessageHeader::RecordBatch);
    }
}

/// Refuses a buffer that unfolds to more than it declares. The decoder of LZ4 would fill the memory before it compares;
/// that of Zstandard stops at what is declared.
fn check_unfolding(codec: CompressionType, compressed: &[u8], declared: u64, label: &str) -> Result<()> {
    if codec != CompressionType::LZ4_FRAME {
        return Ok(());
    }
    let mut unfolded = io::Read::take(lz4_flex::frame::FrameDecoder::new(compressed), declared + 1);
    let length = io::copy(&mut unfolded, &mut io::sink()).map_err(|e| damaged(label, e))?;
    if length > declared {
        let why = format!("a buffer unfolds to more bytes than it declares, or than may be; {REMEDY_ROOM}");
        return Err(Error::refused(format!("{label}: {why}")));
    }
    Ok(())
}

/// Whether there is room for a field and all that belongs to it. Parts of a message may be shared, and become many.
fn weighs(field: &arrow::ipc::Field<'_>, left: &mut u64) -> bool {
    let mut weight = OVERHEAD + field.name().map_or(0, str::len) as u64;
    for entry in field.custom_metadata().into_iter().flatten() {
        weight += OVERHEAD + (entry.key().map_or(0, str::len) + entry.value().map_or(0, str::len)) as u64;
    }
    match left.checked_sub(weight) {
        Some(rest) => *left = rest,
        None => return false,
    }
    field.children().into_iter().flatten().all(|child| weighs(&child, left))
}

fn le_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*first))
}

fn damaged(label: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::corrupt(format!("{label}: is damaged, or no Arrow IPC")).with_source(e)
}

/// Where the columns of a stream stand.
struct Columns {
    op: Option<usize>,
    /// For each column of the view.
    given: Vec<Option<usize>>,
    absent: Arc<[bool]>,
}

impl Columns {
    fn of(schema: &Schema, view: &View) -> Result<Self> {
        let refused = |why: String| Error::refused(format!("the schema: {why}"));
        let (mut op, mut given) = (None, vec![None; view.schema().fields().len()]);
        for (index, field) in schema.fields().iter().enumerate() {
            let name = shown(field.name());
            let slot = if field.name() == COLUMN_OP {
                if !fits(field.data_type(), &DataType::Utf8) {
                    return Err(refused(format!("column {name} has the type {}, and wants strings", kind(field))));
                }
                &mut op
            } else {
                let position = view.schema().fields().iter().position(|f| is_named(f.name(), field.name()));
                let unknown = || refused(format!("column {name} is not among the view's columns; leave it out"));
                let wanted = position.and_then(|i| view.schema().fields().get(i)).ok_or_else(unknown)?;
                if !fits(field.data_type(), wanted.data_type()) {
                    let types = format!("has the type {}, the view has {}", kind(field), wanted.data_type());
                    return Err(refused(format!("column {name} {types}; cast it")));
                }
                position.and_then(|i| given.get_mut(i)).ok_or_else(unknown)?
            };
            if slot.replace(index).is_some() {
                return Err(refused(format!("column {name} is given twice")));
            }
        }
        let fields = view.schema().fields();
        if let Some((field, _)) = fields.iter().zip(&given).find(|(f, given)| given.is_none() && !f.is_nullable()) {
            return Err(refused(format!("column {:?} is missing and may not be null; add it", field.name())));
        }
        let absent = given.iter().map(Option::is_none).collect();
        Ok(Self { op, given, absent })
    }

    fn add(&self, number: u64, batch: &RecordBatch, room: &mut Room, into: &mut Gathering) -> Result<()> {
        let place = |row: usize| Place::Row { batch: number, row: row as u64 + 1 };
        let refused = |row: usize, why: &str| Error::refused(format!("{}: {why}", place(row)));
        let mut need = OVERHEAD * self.given.len() as u64;
        let schema = Arc::clone(into.view().schema());
        for (field, given) in schema.fields().iter().zip(&self.given) {
            let bytes = match given.and_then(|i| batch.columns().get(i)) {
                Some(column) => plain_bytes(column, field.data_type()),
                None => crate::json::null_width(field.data_type()).saturating_mul(batch.num_rows() as u64),
            };
            need = need.saturating_add(bytes);
        }
        let letters = self.op.and_then(|i| batch.columns().get(i));
        need = need.saturating_add(letters.map_or(0, |letters| plain_bytes(letters, &DataType::Utf8)));
        need = need.saturating_add((batch.num_rows() as u64).saturating_mul(ROW));
        room.take(need).map_err(|why| Error::refused(format!("batch {number}: {why}")))?;

        let ops = match letters {
            None => vec![Op::Insert; batch.num_rows()],
            Some(letters) => ops_of(letters, into.view()).map_err(|(row, why)| refused(row, &why))?,
        };
        let rows = self.conformed(number, batch, into.view())?;
        let is_partial = self.absent.contains(&true);
        let partial = ops.iter().enumerate().filter(|(_, op)| is_partial && **op == Op::Update);
        let partial = partial.map(|(row, _)| Partial { row, place: place(row), absent: Arc::clone(&self.absent) });
        into.add(&ops, &rows, partial.collect())
    }

    /// The rows with all columns of the view, in its types.
    fn conformed(&self, number: u64, batch: &RecordBatch, view: &View) -> Result<RecordBatch> {
        let (mut fields, mut columns): (Vec<Field>, Vec<ArrayRef>) = (Vec::new(), Vec::new());
        for (field, given) in view.schema().fields().iter().zip(&self.given) {
            let column = match given.and_then(|i| batch.columns().get(i)) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), batch.num_rows()),
            };
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let named = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
            .map_err(|e| damaged(&format!("batch {number}"), e))?;
        let place = |row: usize| Place::Row { batch: number, row: row as u64 }.to_string();
        let Err(whole) = view.conform(&named, &place(0)) else { return view.conform(&named, "") };
        // The rows up to the first that does not fit are found by halves.
        let (mut good, mut bad) = (0, named.num_rows());
        while good + 1 < bad {
            let middle = good + (bad - good) / 2;
            if view.conform(&named.slice(0, middle), "").is_ok() { good = middle } else { bad = middle }
        }
        let first = view.conform(&named.slice(0, bad), &place(bad)).err().unwrap_or(whole);
        // What caused it quotes the value.
        Err(Error::new(ErrorKind::Refused, first.message()))
    }
}

/// Whether `name` means the column `column`; see [`Names::AnyCase`](crate::json::Names).
fn is_named(column: &str, name: &str) -> bool {
    match name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\"") == column,
        None => name.to_lowercase() == column.to_lowercase(),
    }
}

/// A type without what is below it, which may be of any length.
fn kind(field: &Field) -> String {
    shown(&field.data_type().to_string())
}

/// The operations of a column `__op`, or the first row that has none.
fn ops_of(letters: &ArrayRef, view: &View) -> Result<Vec<Op>, (usize, String)> {
    let letters = cast(letters, &DataType::Utf8).map_err(|_| (0, format!("{COLUMN_OP} does not hold strings")))?;
    let letters = letters.as_string_opt::<i32>().ok_or_else(|| (0, format!("{COLUMN_OP} does not hold strings")))?;
    letters
        .iter()
        .enumerate()
        .map(|(row, letter)| match letter.and_then(Op::from_letter) {
            None => Err((row, format!("column {COLUMN_OP:?} is none of i, u and d"))),
            Some(Op::Update) if !view.is_keyed() => {
                let remedy = "send a delete of the old row and an insert of the new one, or declare the key";
                Err((row, format!("column {COLUMN_OP:?} is u in a view without key; {remedy}")))
            }
            Some(op) => Ok(op),
        })
        .collect()
}
