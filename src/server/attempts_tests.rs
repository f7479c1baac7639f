//! What others try, and what they are answered; REST.md has the same table.

use super::Bounds;
use super::fixture::{Raw, Served, beside, check_problem};
use crate::config::{Role, Secret, TokenConfig};

/// What is tried; the request, `PORT` being the server's; the answer.
type Attempt = (&'static str, &'static str, &'static str);

/// From a page of another site, or by a browser that such a page leads.
const PAGES: &[Attempt] = &[
    (
        "preflight of a page of another origin",
        "OPTIONS LAKE/reset\nHost: localhost:PORT\nOrigin: http://evil.example\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: content-type",
        "403 origin_not_allowed",
    ),
    (
        "preflight that asks for access to a private network",
        "OPTIONS LAKE/reset\nHost: localhost:PORT\nOrigin: http://evil.example\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Private-Network: true",
        "403 origin_not_allowed",
    ),
    (
        "preflight of the server's own origin, which browsers never send",
        "OPTIONS LAKE/reset\nHost: localhost:PORT\nOrigin: http://localhost:PORT\nAccess-Control-Request-Method: POST",
        "405 method_not_allowed",
    ),
    (
        "form of another origin, as `application/x-www-form-urlencoded`",
        "POST LAKE/reset\nHost: localhost:PORT\nOrigin: http://evil.example\nContent-Type: application/x-www-form-urlencoded\nContent-Length: 2\n\n{}",
        "403 origin_not_allowed",
    ),
    (
        "form of another origin, as `multipart/form-data`",
        "POST LAKE/reset\nHost: localhost:PORT\nOrigin: http://evil.example\nContent-Type: multipart/form-data; boundary=a\nContent-Length: 2\n\n{}",
        "403 origin_not_allowed",
    ),
    (
        "form of another origin, as `text/plain`",
        "POST LAKE/reset\nHost: localhost:PORT\nOrigin: http://evil.example\nContent-Type: text/plain\nContent-Length: 2\n\n{}",
        "403 origin_not_allowed",
    ),
    (
        "`fetch` of another origin with `no-cors`, without a body",
        "POST LAKE/pause\nHost: localhost:PORT\nOrigin: http://evil.example\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "the same of a page that hides its origin: `Origin: null`",
        "POST LAKE/pause\nHost: localhost:PORT\nOrigin: null\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "a page of another scheme, such as an extension's",
        "POST LAKE/pause\nHost: localhost:PORT\nOrigin: chrome-extension://abcdefgh\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "a page of the same host on another port",
        "POST LAKE/pause\nHost: localhost:PORT\nOrigin: http://localhost:1\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "no `Origin`, and `Sec-Fetch-Site: cross-site`",
        "POST LAKE/pause\nHost: localhost:PORT\nSec-Fetch-Site: cross-site\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "no `Origin`, and `Sec-Fetch-Site: same-site`: another port, or a sister's name",
        "POST LAKE/pause\nHost: localhost:PORT\nSec-Fetch-Site: same-site\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "`Sec-Fetch-Site` with a word that nobody knows",
        "GET /v1/pipelines\nHost: localhost:PORT\nSec-Fetch-Site: cross-origin",
        "403 origin_not_allowed",
    ),
    (
        "image or script of a page of another site",
        "GET /metrics\nHost: localhost:PORT\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image",
        "403 origin_not_allowed",
    ),
    (
        "frame in a page of another site",
        "GET /v1/pipelines\nHost: localhost:PORT\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe",
        "403 origin_not_allowed",
    ),
    (
        "form of another site that leads the browser here",
        "POST LAKE/pause\nHost: localhost:PORT\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "link on a page of another site: who follows it sees the answer, and the page does not",
        "GET /v1/pipelines\nHost: localhost:PORT\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document",
        "200",
    ),
    (
        "address that is typed",
        "GET /v1/pipelines\nHost: localhost:PORT\nSec-Fetch-Site: none\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document",
        "200",
    ),
    (
        "page of the server's own origin",
        "POST LAKE/resume\nHost: localhost:PORT\nOrigin: http://localhost:PORT\nSec-Fetch-Site: same-origin\nContent-Length: 0",
        "200",
    ),
    (
        "WebSocket of another origin",
        "GET /v1/pipelines\nHost: localhost:PORT\nOrigin: http://evil.example\nConnection: upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "403 origin_not_allowed",
    ),
    (
        "two `Origin`",
        "POST LAKE/pause\nHost: localhost:PORT\nOrigin: http://localhost:PORT\nOrigin: http://evil.example\nContent-Length: 0",
        "400 bad_request",
    ),
    (
        "two `Sec-Fetch-Site`",
        "POST LAKE/pause\nHost: localhost:PORT\nSec-Fetch-Site: same-origin\nSec-Fetch-Site: cross-site\nContent-Length: 0",
        "400 bad_request",
    ),
    (
        "body as `text/plain`, from no page",
        "POST LAKE/reset\nHost: localhost:PORT\nContent-Type: text/plain\nContent-Length: 2\n\n{}",
        "415 unsupported_media_type",
    ),
    (
        "body as a form, from no page",
        "POST LAKE/reset\nHost: localhost:PORT\nContent-Type: application/x-www-form-urlencoded\nContent-Length: 2\n\n{}",
        "415 unsupported_media_type",
    ),
    (
        "body without `Content-Type`",
        "POST LAKE/reset\nHost: localhost:PORT\nContent-Length: 2\n\n{}",
        "415 unsupported_media_type",
    ),
    (
        "push as `text/plain`",
        "POST /v1/pipelines/shop/ingress/orders?format=ndjson\nHost: localhost:PORT\nContent-Type: text/plain\nContent-Length: 0",
        "415 unsupported_media_type",
    ),
    (
        "another method in a header: `X-HTTP-Method-Override`, which nobody reads",
        "GET LAKE\nHost: localhost:PORT\nX-HTTP-Method-Override: DELETE",
        "200",
    ),
    ("method in the query", "GET LAKE?_method=DELETE\nHost: localhost:PORT", "400 bad_request"),
];

/// By a name that leads to this machine; the configuration names the host `lake.example`.
const NAMES: &[Attempt] = &[
    ("`Host` that was made to lead here", "GET /v1/pipelines\nHost: evil.example", "421 host_not_allowed"),
    ("the same with the server's port", "GET /v1/pipelines\nHost: evil.example:PORT", "421 host_not_allowed"),
    (
        "the same with an `Origin` that fits it",
        "POST LAKE/pause\nHost: evil.example:PORT\nOrigin: http://evil.example:PORT\nSec-Fetch-Site: same-origin\nContent-Length: 0",
        "421 host_not_allowed",
    ),
    ("name that begins like ours", "GET /v1/pipelines\nHost: localhost.evil.example", "421 host_not_allowed"),
    ("name that ends like ours", "GET /v1/pipelines\nHost: evil-localhost", "421 host_not_allowed"),
    ("name below one of ours", "GET /v1/pipelines\nHost: evil.lake.example", "421 host_not_allowed"),
    ("another address", "GET /v1/pipelines\nHost: 10.0.0.1", "421 host_not_allowed"),
    ("address of any interface", "GET /v1/pipelines\nHost: 0.0.0.0:PORT", "421 host_not_allowed"),
    ("IPv6 address of any interface", "GET /v1/pipelines\nHost: [::]:PORT", "421 host_not_allowed"),
    ("another IPv6 address", "GET /v1/pipelines\nHost: [fe80::1]:PORT", "421 host_not_allowed"),
    ("loopback address as one number", "GET /v1/pipelines\nHost: 2130706433", "421 host_not_allowed"),
    ("user before the host", "GET /v1/pipelines\nHost: me@localhost", "421 host_not_allowed"),
    (
        "our name as the user of another host",
        "GET /v1/pipelines\nHost: localhost:PORT@evil.example",
        "421 host_not_allowed",
    ),
    ("`localhost`, with any port", "GET /v1/pipelines\nHost: localhost:1", "200"),
    ("`localhost` in other letters, with a dot", "GET /v1/pipelines\nHost: LocalHost.:PORT", "200"),
    ("loopback address", "GET /v1/pipelines\nHost: 127.0.0.1:PORT", "200"),
    ("IPv6 loopback address", "GET /v1/pipelines\nHost: [::1]:PORT", "200"),
    ("host of the configuration, with any port", "GET /v1/pipelines\nHost: Lake.Example:443", "200"),
    ("no `Host`", "GET /v1/pipelines", "400 bad_request"),
    ("empty `Host`", "GET /v1/pipelines\nHost: ", "400 bad_request"),
    ("`Host` that is none", "GET /v1/pipelines\nHost: a b", "400 bad_request"),
    ("list of hosts", "GET /v1/pipelines\nHost: localhost, evil.example", "400 bad_request"),
    ("two `Host`", "GET /v1/pipelines\nHost: localhost\nHost: evil.example", "400 bad_request"),
    ("two `Host` that are the same", "GET /v1/pipelines\nHost: localhost\nHost: localhost", "400 bad_request"),
    ("target with another host", "GET http://evil.example/v1/pipelines\nHost: localhost:PORT", "421 host_not_allowed"),
    (
        "target with our host, and another `Host`",
        "GET http://localhost:PORT/v1/pipelines\nHost: evil.example",
        "421 host_not_allowed",
    ),
    ("target with our host", "GET http://localhost:PORT/v1/pipelines\nHost: localhost:PORT", "200"),
    (
        "`X-Forwarded-Host`, which nobody reads",
        "GET /v1/pipelines\nHost: evil.example\nX-Forwarded-Host: localhost",
        "421 host_not_allowed",
    ),
    ("tunnel: `CONNECT`", "CONNECT localhost:80\nHost: localhost:80", "404 not_found"),
];

/// With tokens; `feeder` may push, `boss` may everything.
const TOKENS: &[Attempt] = &[
    ("no token", "GET /v1/pipelines\nHost: localhost", "401 unauthorized"),
    ("unknown token", "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer secret-of-nobody", "401 unauthorized"),
    (
        "beginning of a token",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer secret-of-the-bos",
        "401 unauthorized",
    ),
    (
        "token and more",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer secret-of-the-boss1",
        "401 unauthorized",
    ),
    (
        "token in other letters",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer SECRET-OF-THE-BOSS",
        "401 unauthorized",
    ),
    ("empty token", "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer ", "401 unauthorized"),
    ("no scheme", "GET /v1/pipelines\nHost: localhost\nAuthorization: secret-of-the-boss", "401 unauthorized"),
    (
        "`Basic`",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Basic c2VjcmV0LW9mLXRoZS1ib3NzOg==",
        "401 unauthorized",
    ),
    (
        "two tokens in one header",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer secret-of-the-boss secret-of-the-feeder",
        "401 unauthorized",
    ),
    (
        "two `Authorization`",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer secret-of-the-boss\nAuthorization: Bearer secret-of-the-boss",
        "400 bad_request",
    ),
    ("token that is no text", "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer \u{e9}", "400 bad_request"),
    ("token in the query", "GET /v1/pipelines?access_token=secret-of-the-boss\nHost: localhost", "401 unauthorized"),
    (
        "token in the query beside a good one",
        "GET /v1/pipelines?access_token=secret-of-the-boss\nHost: localhost\nAuthorization: Bearer secret-of-the-boss",
        "400 bad_request",
    ),
    ("token in a cookie", "GET /v1/pipelines\nHost: localhost\nCookie: token=secret-of-the-boss", "401 unauthorized"),
    (
        "token as the user of the target",
        "GET http://secret-of-the-boss@localhost/v1/pipelines\nHost: localhost",
        "421 host_not_allowed",
    ),
    ("token of 12,000 bytes", "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer LONG", "401 unauthorized"),
    ("token of 24,000 bytes", "GET /v1/pipelines\nHost: localhost\nAuthorization: Bearer LONGLONG", "431"),
    ("path that there is not", "GET /v1/nothing\nHost: localhost", "401 unauthorized"),
    ("method that there is not", "OPTIONS /v1/pipelines\nHost: localhost", "401 unauthorized"),
    (
        "token of a role that is not enough",
        "POST LAKE/reset\nHost: localhost\nAuthorization: Bearer secret-of-the-feeder\nContent-Length: 0",
        "403 forbidden",
    ),
    (
        "good token, page of another origin",
        "POST LAKE/pause\nHost: localhost\nOrigin: http://evil.example\nAuthorization: Bearer secret-of-the-boss\nContent-Length: 0",
        "403 origin_not_allowed",
    ),
    (
        "good token, another host",
        "GET /v1/pipelines\nHost: evil.example\nAuthorization: Bearer secret-of-the-boss",
        "421 host_not_allowed",
    ),
    (
        "good token, scheme in other letters",
        "GET /v1/pipelines\nHost: localhost\nAuthorization: bearer secret-of-the-boss",
        "200",
    ),
];

fn tokens() -> Vec<TokenConfig> {
    let token =
        |name: &str, role| TokenConfig { name: name.into(), role, token: Secret::new(format!("secret-of-the-{name}")) };
    vec![token("feeder", Role::Push), token("boss", Role::Admin)]
}

async fn check(served: &Served, attempts: &'static [Attempt]) {
    let address = served.address;
    beside(move || {
        for (what, request, expected) in attempts {
            let request = request.replace("LAKE", super::fixture::LAKE).replace("PORT", &address.port().to_string());
            let request = request.replace("LONG", &"x".repeat(12_000));
            let (head, body) = request.split_once("\n\n").unwrap_or((&request, ""));
            let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
            let headers: String = headers.lines().map(|header| format!("{header}\r\n")).collect();
            let mut raw = Raw::open(address);
            raw.send(&format!("{line} HTTP/1.1\r\n{headers}\r\n{body}"));
            let (head, status, body) = raw.answer_with_head();
            let code = body["error_code"].as_str().map(|code| format!(" {code}")).unwrap_or_default();
            assert_eq!(format!("{status}{code}"), *expected, "{what}: {body}");
            assert!(!head.contains("access-control") && !head.contains("set-cookie"), "{what}: {head}");
            if !code.is_empty() {
                check_problem(status, &body);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn pages_of_others_get_nothing_done() {
    let served = Served::usual().await;
    check(&served, PAGES).await;
    assert_eq!(served.get(&format!("{}/resets", super::fixture::LAKE)).await.1, serde_json::json!([]));
}

#[tokio::test]
async fn names_of_others_lead_nowhere() {
    let served = Served::with(Bounds::default(), |config, _| config.server.hosts = vec!["lake.example".into()]).await;
    check(&served, NAMES).await;
}

#[tokio::test]
async fn tokens_are_whole_known_and_of_the_right_role() {
    let served = Served::with(Bounds::default(), |config, _| config.server.tokens = tokens()).await;
    check(&served, TOKENS).await;
    let boss = || served.ask(reqwest::Method::GET, "/v1/pipelines").bearer_auth("secret-of-the-boss");
    assert_eq!(super::fixture::answer(boss()).await.0, 200);
    served.file.lock().unwrap().server.tokens.retain(|token| token.name != "boss");
    served.daemon.reload().await.unwrap();
    assert_eq!(super::fixture::answer(boss()).await.0, 401, "a token that was taken away opens nothing");
    served.file.lock().unwrap().server.tokens.clear();
    served.daemon.reload().await.unwrap();
    assert_eq!(super::fixture::answer(boss()).await.0, 401, "nor does the end of all tokens");
}

#[test]
fn every_attempt_stands_in_the_documentation() {
    let text = include_str!("../../REST.md");
    let (_, text) = text.split_once("## Attempts").unwrap();
    let text = text.split("\n## ").next().unwrap();
    let told: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| attempt")).collect();
    let row = |(what, _, expected): &Attempt| match expected.split_once(' ') {
        Some((status, code)) => format!("| {what} | {status} `{code}` |"),
        None => format!("| {what} | {expected} |"),
    };
    let rows: Vec<String> = [PAGES, NAMES, TOKENS].into_iter().flatten().map(row).collect();
    assert_eq!(told, rows, "REST.md: write {}", rows.join("\n"));
}
