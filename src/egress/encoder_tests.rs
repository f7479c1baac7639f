use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;
use futures::executor::block_on;
use futures::stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::chunk::{Mark, Reason};
use super::*;
use crate::generation::Generation;
use crate::ingest::{self, Limits};
use crate::source::files::parse_column_type;
use crate::step::Step;

/// A column of each type that is kept, and values at the edges of it.
const COLUMNS: &[(&str, &str, [&str; 3])] = &[
    ("Id", "bigint", ["-9223372036854775808", "9223372036854775807", "0"]),
    ("b", "boolean", ["true", "false", "null"]),
    ("i8", "tinyint", ["-128", "127", "null"]),
    ("i16", "smallint", ["-32768", "32767", "null"]),
    ("i32", "int", ["-2147483648", "2147483647", "null"]),
    ("i64", "bigint", ["9007199254740993", "-9007199254740993", "null"]),
    ("f32", "float", ["0.1", "\"NaN\"", "3.4028235e38"]),
    ("f64", "double", ["0.30000000000000004", "\"-Infinity\"", "5e-324"]),
    ("d2", "decimal(10,2)", ["12.50", "-0.05", "null"]),
    ("d38", "decimal(38,0)", ["99999999999999999999999999999999999999", "-7", "0"]),
    ("d0", "decimal(38,38)", ["0.00000000000000000000000000000000000001", "0", "null"]),
    ("s", "string", ["\"a\\\"\\\\\\n\\u0001é\u{1F600}\"", "\"\"", "null"]),
    ("bin", "binary", ["\"//4A\"", "\"\"", "null"]),
    ("day", "date", ["\"0000-01-01\"", "\"9999-12-31\"", "null"]),
    ("at", "timestamp", ["\"2026-01-31T12:00:00.25Z\"", "\"1969-12-31T23:59:59.999999Z\"", "null"]),
    ("local", "timestamp_ntz", ["\"1970-01-01 00:00:00.000001\"", "\"2026-01-31T12:00:00\"", "null"]),
    ("list", "array<bigint>", ["[1,null,9223372036854775807]", "[]", "null"]),
    ("st", "struct<x:bigint,y:array<string>>", ["{\"x\":1,\"y\":[\"a\",null]}", "{\"x\":null,\"y\":null}", "null"]),
    ("m", "map<string,double>", ["{\"k\":1.5,\"\":null}", "{}", "null"]),
    ("m2", "map<bigint,string>", ["[[1,\"a\"],[2,null]]", "[]", "null"]),
];

fn view(key: &[&str]) -> View {
    let fields = COLUMNS.iter().map(|(name, kind, _)| Field::new(*name, parse_column_type(kind).unwrap(), true));
    View::new("v", &Schema::new(fields.collect::<Vec<_>>()), key.iter().map(|k| (*k).to_owned()).collect()).unwrap()
}

fn row(at: usize) -> String {
    let members = COLUMNS.iter().map(|(name, _, values)| format!("{:?}:{}", format!("\"{name}\""), values[at]));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// What the pushed lines come to: the operation and the columns.
fn pushed(view: &View, lines: &str) -> RecordBatch {
    let body = stream::iter([Ok(Bytes::from(lines.to_owned()))]);
    let read = block_on(ingest::read(body, view, ingest::Format::InsertDelete, Limits::default()));
    read.unwrap_or_else(|e| panic!("{e}: {lines}")).resolve(|_| panic!("a row is whole: {lines}")).unwrap()
}

/// The same as a source has them, all of one step.
fn changes(view: &View, pushed: &RecordBatch) -> RecordBatch {
    let steps: ArrayRef = Arc::new(Int64Array::from(vec![7; pushed.num_rows()]));
    RecordBatch::try_new(view.change_schema(), [vec![steps], pushed.columns().to_vec()].concat()).unwrap()
}

fn head() -> Head {
    let (from, to) = (Step::new(6).unwrap(), Step::new(7).unwrap());
    let generation = Generation::new(3).unwrap();
    Head { sequence_number: 9, snapshot: false, generation, from, to, partial: false, strand: None, mark: None }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    json_data: Vec<&'a RawValue>,
}

fn runtime<T>(work: impl FnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let _entered = runtime.enter();
    work()
}

#[test]
fn what_is_told_in_text_can_be_pushed_with_every_kept_type() {
    runtime(|| {
        for key in [&["Id"][..], &[]] {
            let view = view(key);
            let updates = if key.is_empty() { String::new() } else { format!("{{\"update\":{}}}\n", row(2)) };
            let lines = format!(
                "{{\"insert\":{}}}\n{{\"insert\":{}}}\n{updates}{{\"delete\":{}}}\n",
                row(0),
                row(1),
                row(if key.is_empty() { 2 } else { 0 })
            );
            let first = pushed(&view, &lines);
            let told = Encoder::new(Format::Ndjson, &view).chunk(&head(), &Rows::Changes(&changes(&view, &first)));
            let told = told.unwrap();
            let text = std::str::from_utf8(&told).unwrap();
            assert!(text.ends_with("]}\n") && text.matches('\n').count() == 1, "{text}");
            let line: Line<'_> = serde_json::from_str(text).unwrap();
            let again: Vec<String> = line.json_data.iter().map(|data| data.get().to_owned()).collect();
            assert_eq!(again.len(), first.num_rows());
            if !key.is_empty() {
                assert_eq!(again.last().unwrap(), "{\"delete\":{\"Id\":-9223372036854775808}}");
            }
            assert_eq!(pushed(&view, &again.join("\n")), first, "{text}");
        }
    });
}

#[test]
fn a_snapshot_is_told_as_inserts_and_marks_have_no_rows() {
    runtime(|| {
        let view = view(&["Id"]);
        let first = pushed(&view, &format!("{{\"insert\":{}}}\n{{\"insert\":{}}}\n", row(0), row(1)));
        let rows = first.project(&(1..first.num_columns()).collect::<Vec<_>>()).unwrap();
        let rows = view.conform(&rows, "the test").unwrap();
        let mut encoder = Encoder::new(Format::Ndjson, &view);
        let told = encoder.chunk(&Head { snapshot: true, partial: true, ..head() }, &Rows::Snapshot(&rows)).unwrap();
        let line: Line<'_> = serde_json::from_slice(&told).unwrap();
        let again: Vec<&str> = line.json_data.iter().map(|data| data.get()).collect();
        assert_eq!(pushed(&view, &again.join("\n")), first);
        let told: Value = serde_json::from_slice(&told).unwrap();
        assert_eq!((&told["snapshot"], &told["partial"], &told["to"]), (&json!(true), &json!(true), &json!(7)));
        for (mark, expected) in [
            (Mark::Start, json!({"mark": "start"})),
            (Mark::Begin { rows: Some(3) }, json!({"mark": "begin", "rows": 3})),
            (Mark::Begin { rows: None }, json!({"mark": "begin", "rows": null})),
            (Mark::End { rows: 0 }, json!({"mark": "end", "rows": 0})),
            (Mark::Alive, json!({"mark": "alive"})),
            (Mark::Close { reason: Reason::Stopped }, json!({"mark": "close", "reason": "stopped"})),
        ] {
            let told = encoder.chunk(&Head { mark: Some(mark), ..head() }, &Rows::None).unwrap();
            let mut whole =
                json!({"sequence_number": 9, "snapshot": false, "generation": 3, "from": 6, "to": 7, "json_data": []});
            whole.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
            assert_eq!(serde_json::from_slice::<Value>(&told).unwrap(), whole);
        }
        let fault = Fault::new("slow_client", "why").with("step", 4);
        let last: Value = serde_json::from_slice(&encoder.last(Err(&fault)).unwrap()).unwrap();
        assert_eq!(last, json!({"message": "why", "error_code": "slow_client", "details": {"step": 4}}));
    });
}

/// The metadata of each batch's message.
fn metadata(mut stream: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    loop {
        let (marker, rest) = stream.split_first_chunk::<4>().unwrap();
        assert_eq!(*marker, [0xff; 4]);
        let (length, rest) = rest.split_first_chunk::<4>().unwrap();
        let (message, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        if message.is_empty() {
            assert!(rest.is_empty());
            return found;
        }
        let message = root_as_message(message).unwrap();
        stream = &rest[message.bodyLength() as usize..];
        if message.header_as_record_batch().is_some() {
            let pairs = message.custom_metadata().unwrap();
            assert_eq!((pairs.len(), pairs.get(0).key()), (1, Some("cutover")));
            found.push(serde_json::from_str(pairs.get(0).value().unwrap()).unwrap());
        }
    }
}

#[test]
fn an_arrow_stream_has_the_columns_of_a_changelog_and_heads_beside_its_batches() {
    runtime(|| {
        let view = view(&["Id"]);
        let lines = format!("{{\"insert\":{}}}\n{{\"delete\":{}}}\n", row(1), row(0));
        let first = pushed(&view, &lines);
        let batch = changes(&view, &first);
        let rows = view.conform(&first.project(&(1..first.num_columns()).collect::<Vec<_>>()).unwrap(), "the test");
        let mut encoder = Encoder::new(Format::Arrow, &view);
        let mut stream = encoder.chunk(&Head { mark: Some(Mark::Start), ..head() }, &Rows::None).unwrap().to_vec();
        stream.extend(encoder.chunk(&head(), &Rows::Changes(&batch)).unwrap());
        stream.extend(encoder.chunk(&head(), &Rows::Snapshot(&rows.unwrap())).unwrap());
        let close = Head { mark: Some(Mark::Close { reason: Reason::Complete }), ..head() };
        stream.extend(encoder.last(Ok(&close)).unwrap());
        let read: Vec<RecordBatch> =
            StreamReader::try_new(stream.as_slice(), None).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(read.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [0, 2, 2, 0]);
        assert_eq!(read[1].schema(), view.changelog_schema());
        assert_eq!(read[1].columns()[1..], batch.columns()[..]);
        assert_eq!(read[1].column(0).as_primitive::<Int64Type>().values(), &[3, 3]);
        let ops: Vec<_> = read[2].column(2).as_string::<i32>().iter().flatten().collect();
        assert_eq!((ops, read[2].column(1).as_primitive::<Int64Type>().value(1)), (vec!["i", "i"], 7));
        assert_eq!(read[2].column(3).data_type(), &DataType::Int64);
        let heads = metadata(&stream);
        assert_eq!(heads.len(), 4);
        assert_eq!((&heads[0]["mark"], &heads[3]["reason"]), (&json!("start"), &json!("complete")));
        assert_eq!(heads[1], json!({"sequence_number": 9, "snapshot": false, "generation": 3, "from": 6, "to": 7}));
    });
}

#[test]
fn an_arrow_stream_that_ends_at_once_says_why_in_a_stream() {
    let view = view(&["Id"]);
    let fault = Fault::new("unavailable", "why");
    let stream = Encoder::new(Format::Arrow, &view).last(Err(&fault)).unwrap();
    assert_eq!(metadata(&stream), [json!({"message": "why", "error_code": "unavailable", "details": {}})]);
    assert_eq!(StreamReader::try_new(&stream[..], None).unwrap().count(), 1);
}
