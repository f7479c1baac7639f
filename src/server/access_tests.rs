use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpListener;

use super::fixture::{INGRESS, LAKE, Raw, Served, answer, beside, check_problem};
use super::{Bounds, Server, access, door};
use crate::config::{Role, Secret, TokenConfig};

fn tokens() -> Vec<TokenConfig> {
    let token =
        |name: &str, role| TokenConfig { name: name.into(), role, token: Secret::new(format!("secret-{name}")) };
    vec![token("viewer", Role::Read), token("feeder", Role::Push), token("boss", Role::Admin)]
}

async fn guarded() -> Served {
    Served::with(Bounds::default(), |config, _| config.server.tokens = tokens()).await
}

#[tokio::test]
async fn without_a_token_nothing_of_a_body_is_read() {
    let served = guarded().await;
    let address = served.address;
    let answers = beside(move || {
        ["", "authorization: Bearer wrong\r\n", "authorization: Bearer \r\n", "authorization: Basic secret-boss\r\n"].map(|token| {
            let mut raw = Raw::open(address);
            // The body that is announced never comes.
            raw.send(&format!(
                "POST {INGRESS}?format=ndjson HTTP/1.1\r\nhost: localhost\r\n{token}content-type: application/x-ndjson\r\ncontent-length: 1000000\r\n\r\n"
            ));
            let head = raw.head();
            assert!(head.contains("www-authenticate: Bearer"), "{head}");
            head.split(' ').nth(1).unwrap().to_owned()
        })
    })
    .await;
    assert_eq!(answers, ["401", "401", "401", "401"]);
    let twice = served.ask(Method::GET, "/v1/pipelines").bearer_auth("secret-boss").bearer_auth("secret-boss");
    assert_eq!(answer(twice).await.0, 400, "which of both is meant?");
}

#[tokio::test]
async fn each_role_may_do_what_those_before_it_may() {
    let served = guarded().await;
    let calls = [
        (Method::GET, "/v1/pipelines".to_owned(), Role::Read),
        (Method::GET, LAKE.to_owned(), Role::Read),
        (Method::GET, "/metrics".to_owned(), Role::Read),
        (Method::GET, "/v1/health".to_owned(), Role::Read),
        (Method::POST, format!("{INGRESS}?format=ndjson"), Role::Push),
        (Method::POST, format!("{LAKE}/pause"), Role::Admin),
        (Method::POST, format!("{LAKE}/resume"), Role::Admin),
        (Method::POST, format!("{LAKE}/reset"), Role::Admin),
        (Method::DELETE, format!("{LAKE}/resets/x"), Role::Admin),
        (Method::PUT, LAKE.to_owned(), Role::Admin),
        (Method::DELETE, LAKE.to_owned(), Role::Admin),
        (Method::POST, "/v1/reload".to_owned(), Role::Admin),
    ];
    for (method, path, least) in calls {
        for token in tokens() {
            let request = served.ask(method.clone(), &path).bearer_auth(token.token.expose());
            let (status, body) = answer(request).await;
            assert_eq!(status == 403, token.role < least, "{method} {path} by {}: {body}", token.name);
            assert_ne!(status, 401);
            if status == 403 {
                assert!(["push", "admin"].contains(&body["details"]["role"].as_str().unwrap()), "{body}");
            }
        }
        assert_eq!(answer(served.ask(method.clone(), &path)).await.0, 401, "{method} {path}");
    }
    assert_eq!(served.get("/livez").await.0, 200);
    assert_eq!(served.get("/nothing").await.0, 401, "who has no token learns not even what there is not");
    let (_, resets) = answer(served.ask(Method::GET, &format!("{LAKE}/resets")).bearer_auth("secret-viewer")).await;
    assert_eq!(resets[0]["who"], "boss");
}

#[tokio::test]
async fn a_body_must_say_what_it_is() {
    let served = Served::usual().await;
    let reset = format!("{LAKE}/reset");
    let text = format!("{INGRESS}?format=ndjson");
    let arrow = format!("{INGRESS}?format=arrow");
    for (path, kind, body, expected) in [
        (&text, Some("application/x-ndjson; charset=utf-8"), "", 200),
        (&text, Some("application/json"), "", 200),
        (&text, Some("text/plain"), "{}", 415),
        (&text, Some("application/x-www-form-urlencoded"), "{}", 415),
        (&text, None, "", 415),
        (&arrow, Some("application/x-ndjson"), "", 415),
        (&arrow, Some("application/vnd.apache.arrow.stream"), "no arrow", 400),
        (&reset, Some("text/plain"), "{}", 415),
        (&reset, Some("multipart/form-data; boundary=a"), "{}", 415),
        (&reset, None, "{}", 415),
        (&reset, Some("application/json"), "{}", 202),
    ] {
        let mut request = served.ask(Method::POST, path).body(body);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        assert_eq!(answer(request).await.0, expected, "{path} {kind:?}");
    }
}

#[tokio::test]
async fn names_that_mean_more_are_refused() {
    let served = Served::usual().await;
    let address = served.address;
    beside(move || {
        let long = "x".repeat(129);
        for name in ["..", "%2e%2e", "a%2Fb", "..%2f..%2fetc", "a%00b", "%1b[31m", "%ff", "-a", "a%20b", &long] {
            for path in [
                format!("/v1/pipelines/{name}/views/orders/connectors/lake"),
                format!("/v1/pipelines/shop/views/{name}/connectors/lake"),
                format!("/v1/pipelines/shop/views/orders/connectors/{name}/resets"),
                format!("/v1/pipelines/{name}"),
                format!("/v1/pipelines/shop/ingress/{name}?format=ndjson"),
            ] {
                let method = if path.contains("ingress") { "POST" } else { "GET" };
                let mut raw = Raw::open(address);
                raw.send(&format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"));
                let (status, body) = raw.answer();
                assert_eq!(status, 400, "{path}: {body}");
                check_problem(400, &body);
                let said = body["detail"].as_str().unwrap();
                assert!(!said.contains(char::is_control), "{said:?}");
            }
        }
    })
    .await;
    let kept: Vec<_> = std::fs::read_dir(served.home.path().join("data/views")).unwrap().collect();
    assert_eq!(kept.len(), 1, "no name became a directory");
}

#[tokio::test]
async fn a_request_never_says_where_a_table_is() {
    let served = Served::usual().await;
    let uri = json!({ "uri": "s3://elsewhere/table" });
    let (status, body) = answer(served.ask(Method::PUT, LAKE).json(&uri)).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(answer(served.ask(Method::PUT, &format!("{LAKE}?uri=s3://elsewhere"))).await.0, 400);
    assert_eq!(answer(served.ask(Method::POST, &format!("{LAKE}/reset")).json(&uri)).await.0, 400);
}

#[tokio::test]
async fn what_nobody_reads_is_refused_with_what_may_be_meant() {
    let served = Served::usual().await;
    let reset = format!("{LAKE}/reset");
    let post =
        |body: &'static str| served.ask(Method::POST, &reset).header("content-type", "application/json").body(body);
    for (request, status, hint) in [
        (served.ask(Method::GET, "/v2/pipelines"), 404, "REST.md"),
        (served.ask(Method::GET, "/v1/pipelines/shpo"), 404, "did you mean \"shop\"?"),
        (served.ask(Method::GET, &LAKE.replace("lake", "lakes")), 404, "did you mean \"shop/orders/lake\"?"),
        (served.ask(Method::GET, "/v1/pipelines?deep=1"), 400, "deep"),
        (served.ask(Method::GET, &format!("{LAKE}/holds?steps=1")), 400, "did you mean \"step\"?"),
        (served.ask(Method::GET, &format!("{LAKE}/holds")), 400, "lacks"),
        (served.ask(Method::GET, &format!("{LAKE}/holds?step=1&step=2")), 400, "twice"),
        (served.ask(Method::DELETE, "/v1/pipelines"), 405, "Allow"),
        (post(r#"{"reasons":"a"}"#), 400, "did you mean \"reason\"?"),
        (post(r#"{"reason":"a","reason":"b"}"#), 400, "twice"),
        (post(r#"{"reason":1}"#), 400, "not a string"),
        (post(r#"{"expected_generation":1.0}"#), 400, "whole number"),
        (post(r#"{"expected_generation":0}"#), 400, "at least 1"),
        (post(r#"{"dry_run":"true"}"#), 400, "true or false"),
        (post("[]"), 400, "no JSON object"),
        (post("{"), 400, "no JSON object"),
    ] {
        let (found, body) = answer(request).await;
        assert_eq!(found, status, "{body}");
        assert!(body["detail"].as_str().unwrap().contains(hint), "{hint}: {body}");
    }
    let refused = served.ask(Method::DELETE, "/v1/pipelines").send().await.unwrap();
    assert_eq!(refused.headers()["allow"], "GET,HEAD");
    let large = format!("{{\"reason\":\"{}\"}}", "x".repeat(70_000));
    let large = served.ask(Method::POST, &reset).header("content-type", "application/json").body(large);
    assert_eq!(answer(large).await.0, 413);
    assert_eq!(served.get(&format!("{LAKE}/resets")).await.1, json!([]), "nothing was begun");
}

#[tokio::test]
async fn who_is_slow_or_says_too_much_is_answered_and_left() {
    let bounds = Bounds { patience: Duration::from_millis(100), ..Bounds::default() };
    let served = Served::with(bounds, |_, _| {}).await;
    let address = served.address;
    beside(move || {
        let mut raw = Raw::open(address);
        raw.send("GET /livez HTTP/1.1\r\nhost: loc");
        let (status, body) = raw.answer();
        assert_eq!(status, 408);
        check_problem(408, &body);
        assert_eq!(raw.rest(), "");

        let mut raw = Raw::open(address);
        assert_eq!(raw.rest(), "", "nothing was asked, and nothing is said");

        for (path, kind) in [
            (format!("{INGRESS}?format=ndjson"), "application/x-ndjson"),
            (format!("{LAKE}/reset"), "application/json"),
        ] {
            let mut raw = Raw::open(address);
            raw.send(&format!(
                "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\ncontent-length: 9\r\n\r\n{{"
            ));
            let (status, body) = raw.answer();
            assert_eq!(status, 408, "{path}");
            check_problem(408, &body);
        }

        let mut raw = Raw::open(address);
        raw.send(&format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20_000)));
        assert_eq!(raw.answer().0, 431);
        let mut raw = Raw::open(address);
        raw.send(&format!("GET /livez HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: y\r\n".repeat(100)));
        assert_eq!(raw.answer().0, 431);
        let mut raw = Raw::open(address);
        raw.send("no http at all\r\n\r\n");
        assert_eq!(raw.answer().0, 400);
    })
    .await;
    assert_eq!(served.last_step(), 0);
    assert_eq!(served.get("/livez").await.0, 200);
}

#[tokio::test]
async fn there_are_only_so_many_connections() {
    let served = Served::with(Bounds { connections: 1, ..Bounds::default() }, |_, _| {}).await;
    let address = served.address;
    beside(move || {
        let mut first = Raw::open(address);
        first.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
        assert_eq!(first.answer().0, 200);
        let mut second = Raw::open(address);
        second.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
        for _ in 0..20 {
            first.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert_eq!(first.answer().0, 200);
        }
        assert!(!second.has_answer(), "it waits for a place");
        drop(first);
        assert_eq!(second.answer().0, 200);
    })
    .await;
}

#[tokio::test]
async fn a_panic_is_the_answer_of_one_request() {
    async fn panics() -> &'static str {
        panic!("on purpose")
    }
    let served = Served::usual().await;
    let server = Arc::new(Server::new(Arc::clone(&served.daemon), Bounds::default()));
    let router = Router::new()
        .route("/panics", get(panics))
        .route("/livez", get(|| async { "live\n" }))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&server), access::enter));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(door::open(server, router, listener, std::future::pending()));
    beside(move || {
        let mut raw = Raw::open(address);
        for _ in 0..2 {
            raw.send("GET /panics HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let (status, body) = raw.answer();
            assert_eq!(status, 500);
            check_problem(500, &body);
            assert!(!body.to_string().contains("on purpose"), "{body}");
            raw.send("GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n");
            assert_eq!(raw.answer().0, 200);
        }
    })
    .await;
    serving.abort();
}

/// The beginning of a push of ten bytes that is being read when this returns.
fn begun(address: std::net::SocketAddr) -> Raw {
    let mut raw = Raw::open(address);
    raw.send(&format!("POST {INGRESS}?format=ndjson HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\nexpect: 100-continue\r\ncontent-length: 21\r\n\r\n"));
    assert!(raw.head().starts_with("HTTP/1.1 100 "));
    raw
}

#[tokio::test]
async fn what_was_begun_is_answered_when_the_server_is_stopped() {
    let mut served = Served::usual().await;
    let address = served.address;
    let mut raw = beside(move || begun(address)).await;
    served.begin_stop();
    let (status, rest) = beside(move || {
        raw.send("{\"insert\":{\"id\":7}} \n");
        (raw.answer().0, raw.rest())
    })
    .await;
    assert_eq!((status, rest.as_str()), (200, ""));
    assert_eq!(served.last_step(), 1);
    beside(move || assert!(std::net::TcpStream::connect(address).is_err())).await;
    served.ended().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let bounds = Bounds { farewell: Duration::from_millis(100), ..Bounds::default() };
    let mut served = Served::with(bounds, |_, _| {}).await;
    let address = served.address;
    let mut raw = beside(move || begun(address)).await;
    served.begin_stop();
    assert_eq!(beside(move || raw.rest()).await, "");
    assert_eq!(served.last_step(), 0, "nothing of it is applied");
    served.ended().await;
}

#[tokio::test]
async fn who_reads_no_answer_keeps_no_place() {
    let patience = Duration::from_millis(300);
    let egress = crate::egress::Bounds { patience, ..Default::default() };
    let bounds = Bounds { patience, grace: Duration::ZERO, egress, ..Bounds::default() };
    let served = Served::with(bounds, |_, _| {}).await;
    let address = served.address;
    beside(move || {
        let mut raw = Raw::open(address);
        let asked = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
        // Until the server is held up by its own answers, and then until it gives up.
        raw.is_given_up(&asked)
    })
    .await;
    assert_eq!(served.get("/livez").await.0, 200);
}
