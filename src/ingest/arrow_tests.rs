use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date64Array, Decimal128Array, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array, Int64Array,
    ListViewArray, NullArray, RecordBatch, RunArray, StringArray, StringViewArray, TimestampNanosecondArray,
};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, Int8Type, Int32Type, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};

use super::text_tests::{check_error, read_all, read_within, shown_operations, view_of};
use super::*;
use crate::error::ErrorKind;

fn view(keyed: bool) -> View {
    view_of(&[("Id", "bigint"), ("name", "string"), ("at", "timestamp")], if keyed { &["Id"] } else { &[] })
}

fn ids(ids: &[i64]) -> ArrayRef {
    Arc::new(Int64Array::from(ids.to_vec()))
}

fn texts(texts: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn batch(columns: &[(&str, ArrayRef)]) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.iter().map(|(_, c)| Arc::clone(c)).collect()).unwrap()
}

pub(super) fn stream_of(batches: &[RecordBatch], compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batches[0].schema(), options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

fn check(keyed: bool, columns: &[(&str, ArrayRef)], expected: &[&str]) {
    for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
        let body = stream_of(&[batch(columns)], compression);
        let operations = read_all(&view(keyed), Format::Arrow, &body).unwrap();
        assert_eq!(shown_operations(&operations), expected);
    }
}

fn check_refused(keyed: bool, columns: &[(&str, ArrayRef)], parts: &[&str]) {
    let body = stream_of(&[batch(columns)], None);
    check_error(read_all(&view(keyed), Format::Arrow, &body), ErrorKind::Refused, parts);
}

#[test]
fn batches_become_operations() {
    check(true, &[("id", ids(&[1, 2])), ("NAME", texts(&["a", "b"]))], &["i 1 a -", "i 2 b -"]);
    let ops = ("__op", texts(&["i", "u", "d"]));
    check(
        true,
        &[ops.clone(), ("Id", ids(&[1, 2, 3])), ("name", texts(&["a", "b", "c"]))],
        &["i 1 a -", "u 2 b ~", "d 3 - -"],
    );
    let whole: Vec<(&str, ArrayRef)> = vec![
        ("\"Id\"", Arc::new(Int64Array::from(vec![1]))),
        ("at", Arc::new(TimestampNanosecondArray::from(vec![1000]).with_timezone("Europe/Berlin"))),
        ("name", Arc::new(DictionaryArray::<Int8Type>::from_iter(["x"]))),
        ("__op", Arc::new(StringViewArray::from(vec!["u"]))),
    ];
    check(true, &whole, &["u 1 x 1970-01-01T00:00:00.000001Z"]);
    check(false, &[("Id", ids(&[1])), ("__op", texts(&["d"])), ("name", texts(&["x"]))], &["d 1 x -"]);
    let empty = stream_of(&[batch(&[("id", ids(&[]))])], None);
    assert_eq!(read_all(&view(true), Format::Arrow, &empty).unwrap().rows(), 0);
    let mut writer = StreamWriter::try_new(Vec::new(), &batch(&[("id", ids(&[]))]).schema()).unwrap();
    writer.finish().unwrap();
    assert_eq!(read_all(&view(true), Format::Arrow, &writer.into_inner().unwrap()).unwrap().rows(), 0);
}

#[test]
fn content_is_that_of_the_same_operations_as_text() {
    let lines =
        "{\"insert\":{\"Id\":1,\"name\":\"a\"}}\n{\"delete\":{\"Id\":2}}\n{\"update\":{\"Id\":3,\"name\":\"c\"}}";
    let text = read_all(&view(true), Format::InsertDelete, lines.as_bytes()).unwrap();
    let columns = [("name", texts(&["a", "b", "c"])), ("Id", ids(&[1, 2, 3])), ("__op", texts(&["i", "d", "u"]))];
    let one = read_all(&view(true), Format::Arrow, &stream_of(&[batch(&columns)], None)).unwrap();
    assert_eq!(one.content(), text.content());
    let parts = [batch(&columns).slice(0, 1), batch(&columns).slice(1, 2)];
    let two = read_all(&view(true), Format::Arrow, &stream_of(&parts, Some(CompressionType::ZSTD))).unwrap();
    assert_eq!(two.content(), text.content());
}

#[test]
fn rows_are_exact_or_refused_by_batch_row_and_column() {
    let id = || ("Id", ids(&[1, 2, 3]));
    let null_id: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]));
    check_refused(true, &[("Id", null_id)], &["batch 1 row 2: ", "\"Id\"", "null"]);
    let fine: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![1000, 2000, 31337]).with_timezone("UTC"));
    check_refused(true, &[id(), ("at", fine)], &["batch 1 row 3: ", "\"at\"", "microsecond"]);
    check_refused(true, &[id(), ("__op", texts(&["i", "secret", "d"]))], &["batch 1 row 2: ", "\"__op\"", "none of"]);
    check_refused(false, &[id(), ("__op", texts(&["i", "u", "d"]))], &["batch 1 row 2: ", "without key"]);
    let null_op: ArrayRef = Arc::new(StringArray::from(vec![Some("i"), None, Some("i")]));
    check_refused(true, &[id(), ("__op", null_op)], &["batch 1 row 2: ", "none of"]);

    let int: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    for (columns, parts) in [
        (vec![("Id", int.clone())], ["\"Id\"", "Int32", "cast it"]),
        (vec![id(), ("name", int.clone())], ["\"name\"", "Int32", "cast it"]),
        (vec![id(), ("__op", int.clone())], ["\"__op\"", "Int32", "strings"]),
        (vec![id(), ("x", int.clone())], ["\"x\"", "not among", "leave it out"]),
        (vec![id(), ("__step", int.clone())], ["\"__step\"", "not among", "leave it out"]),
        (vec![id(), ("ID", int.clone())], ["\"ID\"", "Int32", "cast it"]),
        (vec![id(), ("ID", ids(&[1, 2, 3]))], ["\"ID\"", "twice", ""]),
        (vec![("\"id\"", ids(&[1, 2, 3]))], ["id", "not among", ""]),
        (vec![("name", texts(&["a", "b", "c"]))], ["\"Id\"", "missing", "add it"]),
    ] {
        check_refused(true, &columns, &[&["the schema: "], &parts[..]].concat());
    }
    let odd = view_of(&[("d", "date"), ("p", "decimal(3,1)")], &[]);
    let columns: [(&str, ArrayRef, &str); 2] = [
        ("d", Arc::new(Date64Array::from(vec![0, 31337])), "whole day"),
        ("p", Arc::new(Decimal128Array::from(vec![1, 31337]).with_data_type(DataType::Decimal128(3, 1))), "decimal"),
    ];
    for (name, column, part) in columns {
        let body = stream_of(&[batch(&[(name, column)])], None);
        let outcome = read_all(&odd, Format::Arrow, &body);
        check_error(outcome, ErrorKind::Refused, &["batch 1 row 2: ", &format!("{name:?}"), part]);
    }
}

#[test]
fn a_stream_that_is_cut_or_longer_is_refused() {
    let body = stream_of(&[batch(&[("id", ids(&[1, 2]))]), batch(&[("id", ids(&[3]))])], None);
    for cut in 0..body.len() {
        let err = read_all(&view(true), Format::Arrow, &body[..cut]).expect_err(&format!("cut at {cut}"));
        assert_eq!(err.kind(), ErrorKind::Corrupt, "cut at {cut}: {err}");
    }
    let longer = [&body[..], &body[..]].concat();
    check_error(read_all(&view(true), Format::Arrow, &longer), ErrorKind::Corrupt, &["batch 3: ", "behind its end"]);
    let mut file = FileWriter::try_new(Vec::new(), &batch(&[("id", ids(&[1]))]).schema()).unwrap();
    file.finish().unwrap();
    let file = file.into_inner().unwrap();
    check_error(read_all(&view(true), Format::Arrow, &file), ErrorKind::Refused, &["the request is an Arrow IPC file"]);
    let text = read_all(&view(true), Format::Arrow, b"{\"insert\":{\"Id\":1}}");
    check_error(text, ErrorKind::Corrupt, &["batch 1: "]);
}

/// What a few bytes unfold to.
#[test]
fn bombs_are_refused() {
    let limits = Limits { unfolded: 1 << 20, ..Limits::default() };
    let check = |view: &View, columns: &[(&str, ArrayRef)], compression, part: &str| {
        let body = stream_of(&[batch(columns)], compression);
        assert!(body.len() < 1 << 18, "{part}: {} bytes are no bomb", body.len());
        check_error(read_within(view, Format::Arrow, limits, &body), ErrorKind::Refused, &["batch 1: ", part]);
    };
    let text = view_of(&[("s", "string")], &[]);
    let lists = view_of(&[("s", "array<bigint>")], &[]);
    let zeros: ArrayRef = Arc::new(StringArray::from(vec!["0".repeat(2 << 20)]));
    for compression in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
        check(&text, &[("s", Arc::clone(&zeros))], Some(compression), "unfold");
    }
    let long = "x".repeat(100_000);
    let keys = Int8Array::from(vec![0; 1000]);
    let dictionary =
        DictionaryArray::<Int8Type>::try_new(keys, Arc::new(StringArray::from(vec![long.as_str()]))).unwrap();
    check(&text, &[("s", Arc::new(dictionary))], None, "for all rows");
    let ends = Int32Array::from(vec![i32::MAX - 8]);
    let runs = RunArray::<Int32Type>::try_new(&ends, &StringArray::from(vec!["x"])).unwrap();
    check(&text, &[("s", Arc::new(runs))], None, "for all rows");
    let mut views = StringViewArray::from(vec![long.as_str()]);
    let word = views.views()[0];
    views =
        StringViewArray::try_new(ScalarBuffer::from(vec![word; 1000]), views.data_buffers().to_vec(), None).unwrap();
    check(&text, &[("s", Arc::new(views))], None, "for all rows");
    check(&text, &[("s", Arc::new(NullArray::new(1 << 30)))], None, "for all rows");
    let element = Arc::new(Field::new("element", DataType::Null, true));
    let sized = FixedSizeListArray::new(element, 1 << 18, Arc::new(NullArray::new(1 << 20)), None);
    check(&lists, &[("s", Arc::new(sized))], None, "for all rows");
    let element = Arc::new(Field::new("element", DataType::Int64, true));
    let overlapping = ListViewArray::new(
        element,
        ScalarBuffer::from(vec![0; 1000]),
        ScalarBuffer::from(vec![10_000; 1000]),
        Arc::new(Int64Array::from(vec![7; 10_000])),
        None,
    );
    check(&lists, &[("s", Arc::new(overlapping))], None, "for all rows");
    super::fuzz_tests::check_memory();
}

/// Puts another length before each compressed buffer that holds `zeros`.
#[test]
fn a_buffer_that_unfolds_to_more_than_it_declares_is_refused() {
    let length = 1_000_003u64;
    let zeros: ArrayRef = Arc::new(StringArray::from(vec!["0".repeat(length as usize)]));
    for (compression, kind) in
        [(CompressionType::ZSTD, ErrorKind::Corrupt), (CompressionType::LZ4_FRAME, ErrorKind::Refused)]
    {
        let mut body = stream_of(&[batch(&[("s", Arc::clone(&zeros))])], Some(compression));
        let at = body.windows(8).rposition(|w| w == length.to_le_bytes()).unwrap();
        body[at..at + 8].copy_from_slice(&100u64.to_le_bytes());
        let outcome = read_all(&view_of(&[("s", "string")], &[]), Format::Arrow, &body);
        check_error(outcome, kind, &["batch 1"]);
    }
}
