use std::io;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;
use bytes::Bytes;
use futures::stream;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::fixture::{INGRESS, LAKE, Raw, Served, answer, beside, connector, orders, unreachable};
use super::problem::Problem;
use super::{Bounds, ingress};
use crate::config::{FilesConfig, SourceConfig};
use crate::continuity::stamp::Mode;
use crate::error::{Error, ErrorKind};
use crate::ingest::Limits;

const SEVEN: &str = "{\"insert\":{\"id\":7,\"name\":\"a\"}}\n";

fn stream_of(ids: &[i64]) -> Vec<u8> {
    let fields = vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)];
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(ids.to_vec())), Arc::new(StringArray::from(vec!["a"; ids.len()]))];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// The status and what the answer says besides the token.
fn told((status, mut body): (StatusCode, Value)) -> (u16, Value) {
    if status == 200 {
        assert!(body["token"].as_str().unwrap().starts_with("orders."), "{body}");
        body.as_object_mut().unwrap().remove("token");
        return (200, body);
    }
    (status.as_u16(), json!({ "code": body["error_code"], "details": body["details"] }))
}

#[tokio::test]
async fn each_step_is_stored_once_and_in_order() {
    let served = Served::usual().await;
    let stored = |step: u64, again: bool| (200, json!({ "step": step, "already_applied": again }));
    let refused = |status: u16, code: &str, details: Value| (status, json!({ "code": code, "details": details }));
    for (query, lines, expected) in [
        ("", SEVEN, stored(1, false)),
        ("&step=2", "{\"delete\":{\"id\":7}}", stored(2, false)),
        ("&step=2", " {\"delete\": {\"id\": 7} }\n\n", stored(2, true)),
        ("&step=2", SEVEN, refused(409, "other_content", json!({ "step": 2 }))),
        ("&step=4", SEVEN, refused(409, "gap", json!({ "last_step": 2, "expected_step": 3 }))),
        ("&step=9&after=3", SEVEN, refused(409, "gap", json!({ "last_step": 2, "expected_step": 3 }))),
        ("&step=9&after=2", SEVEN, stored(9, false)),
        ("&step=9&after=2", SEVEN, stored(9, true)),
        ("&step=9", SEVEN, refused(409, "other_content", json!({ "step": 9 }))),
        ("&update_format=insert_delete", "", stored(10, false)),
        ("&update_format=raw", "{\"ID\":8}", stored(11, false)),
        ("&update_format=debezium&step=12", "{\"payload\":{\"op\":\"d\",\"before\":{\"id\":8}}}", stored(12, false)),
    ] {
        assert_eq!(told(served.push(query, lines).await), expected, "{query} {lines}");
    }
    let feldera = "/v0/pipelines/shop/ingress/orders?format=json&update_format=insert_delete&array=false";
    let feldera = served.ask(Method::POST, feldera).header("content-type", "application/json").body(SEVEN);
    assert_eq!(told(answer(feldera).await), stored(13, false));
    let arrow = || {
        let request = served.ask(Method::POST, &format!("{INGRESS}?format=arrow&step=14"));
        request.header("content-type", "application/vnd.apache.arrow.stream").body(stream_of(&[1, 2, 3]))
    };
    assert_eq!(told(answer(arrow()).await), stored(14, false));
    assert_eq!(told(answer(arrow()).await), stored(14, true));
    let (_, orders) = served.get("/v1/pipelines/shop").await;
    assert_eq!(orders["views"][0]["rows"], 4, "1, 2, 3 and 7");
}

#[tokio::test]
async fn a_step_is_a_whole_number_that_can_be_stored() {
    let served = Served::usual().await;
    for query in [
        "&step=18446744073709551615",
        "&step=9223372036854775807",
        "&step=99999999999999999999999",
        "&step=-1",
        "&step=1.0",
        "&step=1e1",
        "&step=%2B1",
        "&step=",
        "&step=0",
        "&step=5&after=5",
        "&step=5&after=6",
        "&after=1",
        "&step=1&step=1",
    ] {
        let (status, body) = served.push(query, SEVEN).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_request")), "{query}: {body}");
    }
    assert_eq!(served.last_step(), 0);
    let (status, body) = served.push("&step=9223372036854775806&after=0", SEVEN).await;
    assert_eq!((status.as_u16(), &body["step"]), (200, &json!(i64::MAX as u64 - 1)), "{body}");
    let (status, body) = served.push("", SEVEN).await;
    assert_eq!(status, 400, "no step follows the last possible one: {body}");
}

#[tokio::test]
async fn words_of_the_query_are_checked() {
    let served = Served::usual().await;
    for (path, hint) in [
        (INGRESS.to_owned(), "lacks the key \"format\""),
        (format!("{INGRESS}?format=csv"), "\"ndjson\", \"arrow\", \"json\""),
        (format!("{INGRESS}?format=ndjsn"), "did you mean \"ndjson\"?"),
        (format!("{INGRESS}?format=ndjson&update_format=insert-delete"), "did you mean \"insert_delete\"?"),
        (format!("{INGRESS}?format=arrow&update_format=raw"), "__op"),
        (format!("{INGRESS}?format=json&array=true"), "array=false"),
        (format!("{INGRESS}?format=json&stpe=1"), "did you mean \"step\"?"),
    ] {
        let request = served.ask(Method::POST, &path).header("content-type", "application/json").body(SEVEN);
        let (status, body) = answer(request).await;
        assert_eq!(status, 400, "{path}: {body}");
        assert!(body["detail"].as_str().unwrap().contains(hint), "{path}: {body}");
    }
    assert_eq!(served.last_step(), 0);
}

#[tokio::test]
async fn nothing_is_applied_of_a_bad_request() {
    let served = Served::usual().await;
    let deep = format!("{{\"insert\":{{\"id\":{}1{}}}}}", "[".repeat(1000), "]".repeat(1000));
    for bad in [
        "{\"insert\":{\"id\":1e400}}",
        "{\"insert\":{\"id\":9223372036854775808}}",
        "{\"insert\":{\"id\":1.5}}",
        "{\"insert\":{\"id\":8,\"id\":9}}",
        "{\"insert\":{\"id\":8,\"nmae\":\"a\"}}",
        "{\"insert\":{\"id\":8,\"name\":\"\\ud800\"}}",
        "{\"insert\":{\"name\":\"no key\"}}",
        "{\"upsert\":{\"id\":8}}",
        "{\"insert\":{\"id\":8}",
        "[]",
        "\u{1b}[31m",
        &deep,
    ] {
        let (status, body) = served.push("", &format!("{SEVEN}{bad}\n{SEVEN}")).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (400, &json!("bad_changes")), "{bad}: {body}");
        assert!(!body["detail"].as_str().unwrap().contains(char::is_control), "{body}");
    }
    let whole = stream_of(&[1, 2, 3]);
    let mut bent = whole.clone();
    bent[4] ^= 0x7f;
    for bad in [&whole[..whole.len() / 2], &bent, b"ARROW1\0\0", b""] {
        let request = served.ask(Method::POST, &format!("{INGRESS}?format=arrow"));
        let request = request.header("content-type", "application/vnd.apache.arrow.stream").body(bad.to_vec());
        assert_eq!(answer(request).await.0, 400, "{} bytes", bad.len());
    }
    assert_eq!(served.last_step(), 0);
    assert_eq!(served.push("", SEVEN).await.0, 200);
}

#[tokio::test]
async fn what_is_too_long_is_refused_while_it_arrives() {
    let limits = Limits { request: 4096, line: 512, unfolded: 1 << 20 };
    let served = Served::with(Bounds::default(), |config, _| config.server.ingress = limits).await;
    let long_line = format!("{{\"insert\":{{\"id\":1,\"name\":\"{}\"}}}}\n", "x".repeat(600));
    let many_lines = SEVEN.repeat(200);
    for (body, code, limit) in [(&long_line, "line_too_long", 512), (&many_lines, "request_too_long", 4096)] {
        let pieces: Vec<io::Result<Bytes>> =
            body.as_bytes().chunks(100).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let in_pieces = served.pushing("", reqwest::Body::wrap_stream(stream::iter(pieces)));
        for request in [served.pushing("", body.clone()), in_pieces] {
            let (status, body) = answer(request).await;
            assert_eq!((status.as_u16(), &body["error_code"]), (413, &json!(code)), "{body}");
            assert_eq!(body["details"]["limit_bytes"], limit);
        }
    }
    let address = served.address;
    beside(move || {
        let mut raw = Raw::open(address);
        raw.send(&format!("POST {INGRESS}?format=ndjson HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\ncontent-length: 99999999999\r\n\r\n"));
        assert_eq!(raw.answer().0, 413, "before anything of it arrives");
        // Who asks first does not send in vain.
        let mut raw = Raw::open(address);
        raw.send(&format!("POST {INGRESS}?format=ndjson HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n"));
        assert_eq!(raw.answer().0, 413);
    })
    .await;
    assert_eq!(served.last_step(), 0);
    assert_eq!(served.push("", &SEVEN.repeat(100)).await.0, 200);
}

/// A push that is being read when this returns, of as many bytes as [`SEVEN`].
fn begun(address: std::net::SocketAddr) -> Raw {
    let mut raw = Raw::open(address);
    raw.send(&format!("POST {INGRESS}?format=ndjson HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n", SEVEN.len()));
    assert!(raw.head().starts_with("HTTP/1.1 100 "));
    raw
}

#[tokio::test]
async fn only_so_many_pushes_are_read_at_once() {
    let served = Served::with(Bounds { requests: 1, ..Bounds::default() }, |_, _| {}).await;
    let address = served.address;
    let mut first = beside(move || begun(address)).await;
    let second = served.pushing("", SEVEN).send().await.unwrap();
    assert_eq!(second.status(), 429);
    assert_eq!(second.headers()["retry-after"], "1");
    beside(move || {
        first.send(SEVEN);
        assert_eq!(first.answer().0, 200);
    })
    .await;
    assert_eq!(told(served.push("", SEVEN).await).1["step"], 2);
}

#[tokio::test]
async fn what_pushes_take_together_is_bounded() {
    let limits = Limits { request: 8192, ..Limits::default() };
    let bounds = Bounds { largest: 1, ..Bounds::default() };
    let served = Served::with(bounds, |config, _| config.server.ingress = limits).await;
    let address = served.address;
    let mut first = beside(move || begun(address)).await;
    let large = SEVEN.repeat(250);
    assert!(large.len() > 7168 && large.len() <= 8192);
    assert_eq!(told(served.push("", &large).await).0, 429, "a KiB of eight is taken");
    assert_eq!(told(served.push("", SEVEN).await).0, 200);
    let unannounced = reqwest::Body::wrap_stream(stream::iter([io::Result::Ok(Bytes::from(large.clone()))]));
    assert_eq!(told(answer(served.pushing("", unannounced)).await).0, 429);
    beside(move || {
        first.send(SEVEN);
        assert_eq!(first.answer().0, 200);
    })
    .await;
    assert_eq!(told(served.push("", &large).await).0, 200, "all room is given back");
    assert_eq!(told(served.push("", &large).await).0, 200);
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing() {
    let served = Served::with(Bounds { requests: 1, ..Bounds::default() }, |_, _| {}).await;
    let address = served.address;
    beside(move || drop(begun(address))).await;
    let step = loop {
        let (status, body) = told(served.push("", SEVEN).await);
        if status == 200 {
            break body["step"].clone();
        }
        assert_eq!(status, 429, "its place is taken until the server knows");
    };
    assert_eq!(step, 1);
}

#[tokio::test]
async fn views_that_are_not_pushed_take_nothing() {
    let served = Served::with(Bounds::default(), |config, home| {
        let files =
            FilesConfig { path: home.to_path_buf(), id: None, poll_interval: std::time::Duration::from_secs(1) };
        let landed = SourceConfig::Files(files);
        config.views.push(crate::config::ViewConfig { name: "landed".into(), source: landed, ..orders() });
    })
    .await;
    for (path, status, hint) in [
        ("/v1/pipelines/shop/ingress/landed?format=ndjson", 409, "files"),
        ("/v1/pipelines/shop/ingress/ordres?format=ndjson", 404, "did you mean \"orders\"?"),
        ("/v1/pipelines/shpo/ingress/orders?format=ndjson", 404, "did you mean \"shop\"?"),
    ] {
        let request = served.ask(Method::POST, path).header("content-type", "application/json").body(SEVEN);
        let (found, body) = answer(request).await;
        assert_eq!(found, status, "{body}");
        assert!(body["detail"].as_str().unwrap().contains(hint), "{body}");
    }
}

#[tokio::test]
async fn a_full_step_log_asks_to_come_again() {
    let served = Served::with(Bounds::default(), |config, home| {
        config.views[0].step_log_bytes = 1 << 20;
        config.connectors = vec![unreachable(connector("lake", Mode::Follow, home))];
    })
    .await;
    let large = format!("{{\"insert\":{{\"id\":7,\"name\":\"{}\"}}}}\n", "x".repeat(200_000));
    for step in 1..100 {
        let response = served.pushing(&format!("&step={step}"), large.clone()).send().await.unwrap();
        if response.status() == 200 {
            continue;
        }
        assert_eq!(response.headers()["retry-after"], "1");
        let (status, body) = super::fixture::parsed(response).await;
        assert_eq!((status.as_u16(), &body["error_code"]), (503, &json!("step_log_full")), "{body}");
        assert!(step > 2 && body["details"]["bytes"].as_u64() <= body["details"]["max_bytes"].as_u64(), "{body}");
        assert_eq!(served.last_step(), step - 1);
        return;
    }
    panic!("the log is never full");
}

#[tokio::test]
async fn a_step_that_was_let_go_of_is_gone() {
    let served = Served::with(Bounds::default(), |config, _| {
        config.views[0].step_log_bytes = 1 << 20;
        config.connectors.clear();
    })
    .await;
    let large = format!("{{\"insert\":{{\"id\":7,\"name\":\"{}\"}}}}\n", "x".repeat(200_000));
    for step in 1..=10 {
        assert_eq!(told(served.push(&format!("&step={step}"), &large).await).0, 200);
    }
    let (status, body) = served.push("&step=1", &large).await;
    assert_eq!((status.as_u16(), &body["error_code"]), (410, &json!("gone")), "{body}");
    assert!(body["details"]["earliest_step"].as_u64().unwrap() >= 1, "{body}");
}

#[tokio::test]
async fn a_token_tells_when_every_table_has_its_step() {
    let served = Served::usual().await;
    let (_, pushed) = served.push("", SEVEN).await;
    let token = pushed["token"].as_str().unwrap().to_owned();
    served.until(|status| status.last_step.is_some_and(|step| step.get() >= 1)).await;
    let status = |token: &str| format!("/v1/pipelines/shop/completion_status?token={token}");
    assert_eq!(served.get(&status(&token)).await, (StatusCode::OK, json!({ "status": "complete" })));
    assert_eq!(served.get(&format!("{LAKE}/holds?step=1")).await.1, json!({ "holds": true, "last_step": 1 }));
    assert_eq!(served.get(&format!("{LAKE}/holds?step=2")).await.1, json!({ "holds": false, "last_step": 1 }));
    let (life, _) = token.rsplit_once('.').unwrap();
    assert_eq!(served.get(&status(&format!("{life}.2"))).await.0, 410, "a step that the view never had");
    let other = token.replace(life.rsplit_once('.').unwrap().1, &"0".repeat(32));
    assert_eq!(served.get(&status(&other)).await.0, 410, "another life");
    assert_eq!(served.get(&status("x")).await.0, 404);
    assert_eq!(served.get(&status(&token).replace("shop/", "shpo/")).await.0, 404);
    assert_eq!(served.get("/v1/pipelines/shop/completion_status").await.0, 400);
    assert_eq!(answer(served.ask(Method::POST, &format!("{LAKE}/pause"))).await.0, 200);
    served.until(|status| status.phase == crate::connector::Phase::Paused).await;
    let (_, pushed) = served.push("", SEVEN).await;
    let token = pushed["token"].as_str().unwrap().to_owned();
    assert_eq!(served.get(&status(&token)).await.1, json!({ "status": "inprogress" }));
}

#[test]
fn a_disk_without_room_and_what_is_damaged_here_have_a_status_of_their_own() {
    let status = |error: Error| {
        use axum::response::IntoResponse;
        let problem: Problem = ingress::failed(error);
        problem.into_response().status().as_u16()
    };
    let unavailable = || Error::new(ErrorKind::Unavailable, "no");
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    assert_eq!(status(unavailable().with_source(full())), 507);
    assert_eq!(status(unavailable().with_source(Arc::new(full()))), 507);
    assert_eq!(status(unavailable().with_source(unavailable().with_source(full()))), 507);
    assert_eq!(status(unavailable().with_source(io::Error::other("broken"))), 503);
    assert_eq!(status(unavailable()), 503);
    assert_eq!(status(Error::new(ErrorKind::Internal, "no").with_source(full())), 500);
    assert_eq!([Error::refused("no"), Error::corrupt("no")].map(status), [400, 500]);
}

#[tokio::test]
async fn a_configuration_that_gives_an_open_view_other_columns_is_refused_and_changes_nothing() {
    let served = Served::usual().await;
    let (status, body) = served.push("", "{\"insert\":{\"id\":1,\"name\":\"a\"}}\n").await;
    assert_eq!(status, 200, "{body}");
    let as_before = served.file.lock().unwrap().clone();
    let change = |columns: &mut Vec<(String, DataType)>| columns.push(("more".into(), DataType::Int64));
    {
        let mut file = served.file.lock().unwrap();
        change(&mut file.views[0].columns);
        file.connectors.iter_mut().for_each(|connector| change(&mut connector.columns));
    }
    let (status, body) = served.post("/v1/reload").await;
    assert_eq!((status.as_u16(), &body["error_code"]), (422, &json!("incompatible")), "{body}");
    assert!(body["message"].as_str().unwrap().contains("\"more\""), "{body}");
    let (status, body) = served.push("", "{\"insert\":{\"id\":2,\"name\":\"b\"}}\n").await;
    assert_eq!(status, 200, "the view goes on: {body}");
    *served.file.lock().unwrap() = as_before;
    let (status, body) = served.post("/v1/reload").await;
    assert_eq!((status.as_u16(), &body["failed"]), (200, &json!({})), "{body}");
}
