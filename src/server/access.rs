//! Who may ask for what: the host that a request names, the page that it comes from, its token and the token's role.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use subtle::ConstantTimeEq;
use url::Url;

use super::Server;
use super::problem::{Answer, Problem};
use crate::config::{Role, ServerConfig};

/// By which browsers say where a request comes from, what it is for, and what becomes of its answer.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");
/// What is asked without a token: by probes, by those who look for how to ask, and by a browser before it can have one.
/// None of it tells anything.
pub(super) const OPEN: [&str; 6] = ["/livez", "/readyz", "/openapi.json", "/", "/page/style.css", "/page/script.js"];

/// Both ends of the connection on which a request came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// As histories and logs name them.
    pub(super) who: String,
    role: Option<Role>,
}

impl Caller {
    /// Whether they may see what is here.
    pub(super) fn may_see(&self) -> bool {
        self.role.is_some()
    }

    /// Whether they may pause, resume and reset.
    pub(super) fn may_rule(&self) -> bool {
        self.role == Some(Role::Admin)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        parts.extensions.get::<Self>().cloned().ok_or_else(unknown)
    }
}

/// Lets a request in, before anything of its body is read.
pub(super) async fn enter(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Answer {
    let Some(ends) = request.extensions().get::<Ends>().copied() else { return Err(unknown()) };
    let config = server.daemon.config();
    check_host(request.headers(), request.uri(), ends, &config.server)?;
    check_site(request.method(), request.headers())?;
    // The last token that is taken away opens nothing before the next start, which looks at the address too.
    let is_open = server.config.tokens.is_empty() && config.server.tokens.is_empty();
    let caller = if is_open { anonymous(ends) } else { caller(request.headers(), &config.server)? };
    if caller.role.is_none() && !OPEN.contains(&request.uri().path()) {
        return Err(unknown());
    }
    let needs_nothing = OPEN.contains(&request.uri().path());
    if !needs_nothing {
        tokio::select! {
            () = server.daemon.begun() => {}
            () = server.clock.deadline(server.bounds.patience) => {}
        }
    }
    if !needs_nothing && !server.daemon.has_begun() {
        let said = "the views and connectors are being opened; ask again when /readyz says so";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", said).retry_soon());
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Lets a request on that has `role`, or a higher one.
pub(super) async fn need(State(role): State<Role>, caller: Caller, request: Request, next: Next) -> Answer {
    match caller.role {
        Some(has) if has >= role => Ok(next.run(request).await),
        Some(has) => {
            let said = format!(
                "this needs a token of the role {}, and that of {} has the role {}",
                name(role),
                caller.who,
                name(has)
            );
            Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", said).with("role", name(role)))
        }
        None => Err(unknown()),
    }
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Read => "read",
        Role::Push => "push",
        Role::Admin => "admin",
    }
}

fn unknown() -> Problem {
    let said = "this needs a token of server.auth: Authorization: Bearer TOKEN";
    Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", said).next("cutover --token-file FILE …")
}

fn anonymous(ends: Ends) -> Caller {
    Caller { who: format!("anonymous {}", ends.peer.ip().to_canonical()), role: Some(Role::Admin) }
}

fn caller(headers: &HeaderMap, config: &ServerConfig) -> Answer<Caller> {
    let given = only(headers, AUTHORIZATION)?.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    // Every token is compared to its end: how long that takes tells nothing of what they are.
    let mut found = Caller { who: String::new(), role: None };
    for token in &config.tokens {
        let is_it: bool = given.unwrap_or("").as_bytes().ct_eq(token.token.expose().as_bytes()).into();
        if is_it && given.is_some_and(|given| !given.is_empty()) {
            found = Caller { who: token.name.clone(), role: Some(token.role) };
        }
    }
    Ok(found)
}

/// The one value of a header.
fn only(headers: &HeaderMap, name: HeaderName) -> Answer<Option<&str>> {
    let mut values = headers.get_all(&name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    match (first.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(Problem::bad_request(format!("the header {name} stands twice, or is no text; send it once"))),
    }
}

/// A page in a browser may be made to send requests here: by a name that leads here, or from another origin.
fn check_host(headers: &HeaderMap, uri: &Uri, ends: Ends, config: &ServerConfig) -> Answer<()> {
    let missing = || Problem::bad_request("the header Host is missing, or is no host; say which one is meant");
    let host: Authority = only(headers, HOST)?.and_then(|host| host.parse().ok()).ok_or_else(missing)?;
    for authority in [Some(&host), uri.authority()].into_iter().flatten() {
        if !is_ours(authority, ends, config) {
            let said = format!(
                "the host {:?} is not one of this server's; name it in server.hosts if it leads here",
                authority.as_str()
            );
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", said));
        }
    }
    match only(headers, ORIGIN)? {
        Some(origin) if !is_same(origin, &host) => {
            let said = format!("a page of {origin:?} may not ask {host}: no page of another origin may");
            Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", said))
        }
        _ => Ok(()),
    }
}

/// Browsers name no origin where a page of another site has them fetch an image, a script or a frame. A link may lead here:
/// who follows it sees an answer, and the page that has the link does not.
fn check_site(method: &Method, headers: &HeaderMap) -> Answer<()> {
    let is_navigation = only(headers, MODE)? == Some("navigate") && only(headers, DESTINATION)? == Some("document");
    match only(headers, SITE)? {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) if is_navigation && matches!(*method, Method::GET | Method::HEAD) => Ok(()),
        Some(site) => {
            let said = format!("a page of another origin ({site:?}) may not have a browser ask for this");
            Err(Problem::new(StatusCode::FORBIDDEN, "origin_not_allowed", said))
        }
    }
}

fn is_ours(authority: &Authority, ends: Ends, config: &ServerConfig) -> bool {
    let host = bare(authority.host());
    let is_named =
        |name: &String| name.eq_ignore_ascii_case(authority.as_str()) || bare(name).eq_ignore_ascii_case(host);
    if authority.as_str().contains('@') {
        return false;
    }
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() || ip.to_canonical() == ends.local.ip().to_canonical() => true,
        _ => host.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(is_named),
    }
}

/// A host without the brackets of an address.
fn bare(host: &str) -> &str {
    host.trim_end_matches('.').trim_start_matches('[').trim_end_matches(']')
}

fn is_same(origin: &str, host: &Authority) -> bool {
    let Ok(origin) = Url::parse(origin) else { return false };
    let port = host.port_u16().filter(|port| !matches!(port, 80 | 443));
    origin.host_str().is_some_and(|name| name.eq_ignore_ascii_case(host.host())) && origin.port() == port
}

/// What a request says that its body is, without parameters.
pub(super) fn content_type(headers: &HeaderMap) -> Answer<Option<String>> {
    let value = only(headers, axum::http::header::CONTENT_TYPE)?;
    Ok(value.map(|value| value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()))
}

/// Refuses a body that is not said to be one of `allowed`: a form on a page can send others without asking.
pub(super) fn check_content_type(headers: &HeaderMap, allowed: &[&str]) -> Answer<()> {
    if let Some(encoding) = only(headers, CONTENT_ENCODING)?
        && !encoding.eq_ignore_ascii_case("identity")
    {
        let said = format!("the header Content-Encoding is {encoding:?}; send the body as it is, without one");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", said));
    }
    let given = content_type(headers)?;
    if given.as_deref().is_some_and(|given| allowed.contains(&given)) {
        return Ok(());
    }
    let said = format!(
        "the header Content-Type is {}; send {}",
        given.map_or("missing".to_owned(), |given| format!("{given:?}")),
        allowed.join(" or ")
    );
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", said)
        .with("allowed", allowed.iter().map(|a| serde_json::Value::from(*a)).collect::<Vec<_>>()))
}

/// Which no answer is kept by, and no browser guesses at.
pub(super) async fn leave(mut response: Response) -> Response {
    use axum::http::header::{CACHE_CONTROL, HeaderValue, X_CONTENT_TYPE_OPTIONS};
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
