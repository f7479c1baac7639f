//! Bodies that are meant to break what reads them: what they say is kept exactly, or nothing of them is.

use std::io;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int8Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Int8Type, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow::util::display::array_value_to_string;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::Bounds;
use super::fixture::{INGRESS, Served, answer};
use crate::ingest::Limits;
use crate::inspect::state::state;
use crate::log::Log;
use crate::{Access, Location, World};

const SEVEN: &str = "{\"insert\":{\"id\":7,\"name\":\"a\"}}\n";

fn arrow(columns: Vec<(&str, ArrayRef)>, compression: Option<CompressionType>) -> Vec<u8> {
    let fields: Vec<Field> = columns.iter().map(|(name, c)| Field::new(*name, c.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn pushing_arrow(served: &Served, body: impl Into<reqwest::Body>) -> RequestBuilder {
    let request = served.ask(Method::POST, &format!("{INGRESS}?format=arrow"));
    request.header("content-type", "application/vnd.apache.arrow.stream").body(body)
}

#[tokio::test]
async fn a_body_is_taken_as_it_is() {
    let served = Served::usual().await;
    for encoding in ["gzip", "deflate", "br", "zstd", "x-gzip", "gzip, identity", ""] {
        for request in [served.pushing("", SEVEN), pushing_arrow(&served, "")] {
            let (status, body) = answer(request.header("content-encoding", encoding)).await;
            assert_eq!((status.as_u16(), &body["error_code"]), (415, &json!("unsupported_media_type")), "{encoding}");
        }
    }
    let twice = served.pushing("", SEVEN).header("content-encoding", "identity").header("content-encoding", "gzip");
    assert_eq!(answer(twice).await.0, 400);
    assert_eq!(served.last_step(), 0);
    assert_eq!(answer(served.pushing("", SEVEN).header("content-encoding", "identity")).await.0, 200);
}

#[tokio::test]
async fn what_unfolds_to_more_than_it_may_is_refused() {
    let limits = Limits { unfolded: 1 << 20, ..Limits::default() };
    let served = Served::with(Bounds::default(), |config, _| config.server.ingress = limits).await;
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let zeros: ArrayRef = Arc::new(StringArray::from(vec!["0".repeat(2 << 20)]));
    let long = StringArray::from(vec!["x".repeat(100_000)]);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let words: ArrayRef =
        Arc::new(DictionaryArray::<Int8Type>::try_new(Int8Array::from(vec![0; 1000]), Arc::new(long)).unwrap());
    let bombs = [
        arrow(vec![("id", Arc::clone(&id)), ("name", Arc::clone(&zeros))], Some(CompressionType::ZSTD)),
        arrow(vec![("id", id), ("name", zeros)], Some(CompressionType::LZ4_FRAME)),
        arrow(vec![("id", ids), ("name", words)], None),
    ];
    for bomb in bombs {
        assert!(bomb.len() < 1 << 18, "{} bytes are no bomb", bomb.len());
        let (status, body) = answer(pushing_arrow(&served, bomb)).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_changes")), "{body}");
        assert!(body["detail"].as_str().unwrap().contains("batch 1"), "{body}");
    }
    assert_eq!(served.last_step(), 0);
    assert_eq!(served.push("", SEVEN).await.0, 200);
}

#[tokio::test]
async fn ten_thousand_columns_are_read_or_refused() {
    let names: Vec<String> = (0..10_000).map(|n| format!("c{n}")).collect();
    let row: Vec<String> = names.iter().map(|name| format!("\"{name}\":1")).collect();
    let line = format!("{{\"insert\":{{\"id\":7,{}}}}}\n", row.join(","));
    let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let columns = names.iter().map(|name| (name.as_str(), Arc::clone(&one)));
    let stream = arrow([("id", Arc::clone(&one))].into_iter().chain(columns).collect(), None);

    let narrow = Served::usual().await;
    let (status, body) = narrow.push("", &line).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_changes")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("\"c0\""), "{body}");
    assert_eq!(answer(pushing_arrow(&narrow, stream.clone())).await.0, 400);
    assert_eq!(narrow.last_step(), 0);

    let wide = Served::with(Bounds::default(), |config, _| {
        config.connectors.clear();
        config.views[0].columns.extend(names.iter().map(|name| (name.clone(), DataType::Int64)));
    })
    .await;
    let (status, body) = wide.push("", &line).await;
    assert_eq!((status.as_u16(), &body["step"]), (200, &json!(1)), "{body}");
    let (status, body) = answer(pushing_arrow(&wide, stream)).await;
    assert_eq!((status.as_u16(), &body["step"]), (200, &json!(2)), "{body}");
    // A few bytes a row, and very many columns.
    let (status, body) = wide.push("&update_format=raw", &"{\"id\":1}\n".repeat(20_000)).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_changes")), "{body}");
    assert_eq!(wide.last_step(), 2);
}

#[tokio::test]
async fn a_cell_of_a_hundred_megabytes_is_refused_while_it_arrives() {
    let served = Served::usual().await;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let cell = |before: Vec<u8>| {
        let pieces = [Bytes::from(before)].into_iter().chain(std::iter::repeat_n(piece.clone(), 100));
        reqwest::Body::wrap_stream(stream::iter(pieces.map(io::Result::Ok)))
    };
    // Its sender may see the end of the connection before the answer.
    let before = b"{\"insert\":{\"id\":7,\"name\":\"".to_vec();
    if let Ok(response) = served.pushing("", cell(before)).send().await {
        let (status, body) = super::fixture::parsed(response).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (413, &json!("line_too_long")), "{body}");
    }
    let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let name: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100 << 20)]));
    let (status, body) = answer(pushing_arrow(&served, arrow(vec![("id", id), ("name", name)], None))).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (413, &json!("request_too_long")), "{body}");
    assert_eq!(served.last_step(), 0);
    assert_eq!(served.push("", SEVEN).await.0, 200);
}

/// With the columns `big`, `price` and `ratio` in view and table.
async fn priced() -> Served {
    Served::with(Bounds::default(), |config, _| {
        let more = [("big", DataType::Int64), ("price", DataType::Decimal128(38, 18)), ("ratio", DataType::Float64)];
        let more = || more.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone()));
        config.views[0].columns.extend(more());
        config.connectors[0].columns.extend(more());
    })
    .await
}

#[tokio::test]
async fn numbers_are_exact_in_the_table() {
    let served = priced().await;
    let lines = [
        r#"{"id":1,"big":9007199254740993,"price":0.100000000000000001,"ratio":0.1}"#,
        r#"{"id":2,"big":9223372036854775807,"price":"12345678901234567890.123456789012345678","ratio":1e308}"#,
        r#"{"id":3,"big":-9223372036854775808,"price":-1e-18,"ratio":5e-324}"#,
    ];
    let (status, body) = served.push("&update_format=raw", &lines.join("\n")).await;
    assert_eq!(status, 200, "{body}");
    served.until(|status| status.last_step.is_some_and(|step| step.get() == 1)).await;
    let location = Location::open(&served.home.path().join("lake").display().to_string(), Access::Read).unwrap();
    let state = state(&Log::new(location, World::system()), None).await.unwrap();
    let schema = Arc::clone(&state.schema);
    let rows = concat_batches(&schema, &state.rows.try_collect::<Vec<_>>().await.unwrap()).unwrap();
    let cell = |name: &str, row| array_value_to_string(rows.column_by_name(name).unwrap(), row).unwrap();
    let mut shown: Vec<_> =
        (0..rows.num_rows()).map(|row| ["id", "big", "price", "ratio"].map(|name| cell(name, row))).collect();
    shown.sort();
    assert_eq!(
        shown,
        [
            ["1", "9007199254740993", "0.100000000000000001", "0.1"],
            ["2", "9223372036854775807", "12345678901234567890.123456789012345678", "1e308"],
            ["3", "-9223372036854775808", "-0.000000000000000001", "5e-324"],
        ]
    );
}

#[tokio::test]
async fn what_is_not_exact_is_refused_by_line_and_column() {
    let served = priced().await;
    let deep = format!("{{\"id\":1,\"name\":{}1{}}}", "[".repeat(1000), "]".repeat(1000));
    for (bad, column) in [
        (r#"{"id":1,"big":9223372036854775808}"#, "big"),
        (r#"{"id":1,"big":-9223372036854775809}"#, "big"),
        (r#"{"id":1,"big":18446744073709551616}"#, "big"),
        (r#"{"id":1,"big":1.5}"#, "big"),
        (r#"{"id":1,"big":1e400}"#, "big"),
        (r#"{"id":1,"ratio":1e400}"#, "ratio"),
        (r#"{"id":1,"ratio":-1e400}"#, "ratio"),
        (r#"{"id":1,"price":1e400}"#, "price"),
        (r#"{"id":1,"price":0.1000000000000000001}"#, "price"),
        (r#"{"id":1,"price":123456789012345678901}"#, "price"),
        (r#"{"id":1,"price":"1,5"}"#, "price"),
        (r#"{"id":1,"name":"\ud800"}"#, ""),
        (r#"{"id":1,"name":"\udc00\ud800"}"#, ""),
        (r#"{"id":1,"big":1,"big":2}"#, "big"),
        (r#"{"id":1,"big":1,"BIG":2}"#, "big"),
        (r#"{"id":1,"ratio":NaN}"#, ""),
        (&deep, ""),
    ] {
        let lines = format!("{{\"id\":7}}\n{bad}\n{{\"id\":8}}\n");
        let (status, body) = served.push("&update_format=raw", &lines).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_changes")), "{bad}: {body}");
        let said = body["detail"].as_str().unwrap();
        assert!(said.contains("line 2") && said.to_lowercase().contains(column), "{bad}: {said}");
    }
    assert_eq!(served.last_step(), 0);
}
