//! The daemon, asked over HTTP.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use super::reach::Reach;
use crate::daemon::{ConnectorReport, PipelineReport};
use crate::error::{Error, ErrorKind, Result};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long one may take that looks at tables or waits for a disk.
pub(super) const LONG_DEADLINE: Duration = Duration::from_secs(180);
/// The bytes that an answer may have.
const LARGEST_ANSWER: usize = 64 << 20;

/// A daemon.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    /// The options of a command that asks the same daemon.
    options: String,
}

/// Why a call got no answer, or not the one that was hoped for.
#[derive(Debug)]
pub(super) enum Failure {
    /// No whole answer came: what was asked for may have been done.
    Lost(Error),
    /// The daemon says why not.
    Refused(Problem),
}

/// What the daemon says of a call that it does not carry out.
#[derive(Debug)]
pub(super) struct Problem {
    /// The HTTP status.
    pub(super) status: u16,
    /// What helps.
    pub(super) kind: ErrorKind,
    /// Why, and the remedy.
    pub(super) message: String,
    /// When to ask again.
    pub(super) retry_after: Option<Duration>,
}

/// The cause of an error that means that the daemon cannot be reached.
#[derive(Debug)]
pub(super) struct Unreachable(reqwest::Error);

/// A call that is put together.
#[derive(Debug)]
pub(super) struct Call<'a> {
    client: &'a Client,
    request: RequestBuilder,
}

impl Client {
    /// One for the daemon at `reach`; nothing is asked yet.
    pub(super) fn new(reach: &Reach) -> Result<Self> {
        let mut headers = HeaderMap::new();
        if let Some(token) = &reach.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                .map_err(|e| Error::config("the token cannot be sent; correct its file").with_source(e))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // A token goes to nobody but the daemon: neither a proxy of the environment nor where an answer points.
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .timeout(DEADLINE)
            .build()
            .map_err(|e| Error::internal("HTTP cannot be spoken").with_source(e))?;
        Ok(Self { http, base: reach.url.clone(), options: reach.options.clone() })
    }

    /// A call of the path that `parts` make.
    pub(super) fn call(&self, method: Method, parts: &[&str]) -> Call<'_> {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(parts);
        }
        Call { client: self, request: self.http.request(method, url) }
    }

    /// A call of what a connector of this full name has at `parts`.
    pub(super) fn connector(&self, method: Method, name: &str, parts: &[&str]) -> Call<'_> {
        let mut names = name.splitn(3, '/');
        let [pipeline, view, connector] = std::array::from_fn(|_| names.next().unwrap_or_default());
        let path = ["pipelines", pipeline, "views", view, "connectors", connector];
        self.call(method, &[&path, parts].concat())
    }

    /// All that there is.
    pub(super) async fn pipelines(&self) -> Result<Vec<PipelineReport>> {
        self.call(Method::GET, &["pipelines"]).answer().await
    }

    /// How a connector of this full name does.
    pub(super) async fn status(&self, name: &str) -> Result<ConnectorReport> {
        self.connector(Method::GET, name, &["status"]).answer().await
    }

    fn lost(&self, error: reqwest::Error) -> Failure {
        let what = if error.is_timeout() {
            "does not answer in time; look at its log"
        } else if error.is_connect() {
            "cannot be reached; start it by cutover run, or say by --url where it is"
        } else {
            "ended the connection before its answer was whole; look whether it still runs"
        };
        let message = format!("the daemon at {} {what}", self.base);
        Failure::Lost(Error::unavailable(message).with_source(Unreachable(error.without_url())))
    }

    fn strange(&self, status: u16, why: &str) -> Failure {
        let message = format!("what answers at {} {why}; is it a cutover daemon of this version?", self.base);
        Failure::Refused(Problem { status, kind: kind_of_status(status), message, retry_after: None })
    }
}

impl Call<'_> {
    /// With a value of the query.
    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.query(&[(name, value)]);
        self
    }

    /// With a header.
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// With a JSON document.
    pub(super) fn json(mut self, document: &impl Serialize) -> Self {
        self.request = self.request.json(document);
        self
    }

    /// With a body of this type.
    pub(super) fn body(mut self, content_type: &'static str, body: Bytes) -> Self {
        self.request = self.request.header(CONTENT_TYPE, HeaderValue::from_static(content_type)).body(body);
        self
    }

    /// Whose answer may take as long.
    pub(super) fn deadline(mut self, deadline: Duration) -> Self {
        self.request = self.request.timeout(deadline);
        self
    }

    /// Asks, once, for who does nothing else about a failure.
    pub(super) async fn answer<T: DeserializeOwned>(self) -> Result<T> {
        self.attempt().await.map_err(Failure::into_error)
    }

    /// Asks, once.
    pub(super) async fn attempt<T: DeserializeOwned>(self) -> Result<T, Failure> {
        let client = self.client;
        let response = self.request.send().await.map_err(|e| client.lost(e))?;
        let status = response.status();
        let retry_after = retry_after(&response);
        let body = client.whole(response).await?;
        if status.is_success() {
            let strange = |_| client.strange(500, "answers something else than was asked for");
            return serde_json::from_slice(&body).map_err(strange);
        }
        match serde_json::from_slice::<Told>(&body) {
            Ok(told) => Err(Failure::Refused(told.problem(status.as_u16(), retry_after, &client.options))),
            Err(_) => Err(client.strange(status.as_u16(), &format!("refuses by HTTP {}", status.as_u16()))),
        }
    }
}

impl Client {
    async fn whole(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let status = response.status().as_u16();
        let (mut body, mut chunks) = (Vec::new(), response.bytes_stream());
        while let Some(chunk) = chunks.next().await {
            body.extend_from_slice(&chunk.map_err(|e| self.lost(e))?);
            if body.len() > LARGEST_ANSWER {
                return Err(self.strange(status, "does not end its answer"));
            }
        }
        Ok(body)
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// What is read of a problem.
#[derive(Deserialize)]
struct Told {
    detail: Option<String>,
    message: Option<String>,
    title: Option<String>,
    error_code: Option<String>,
    next: Option<String>,
}

impl Told {
    fn problem(self, status: u16, retry_after: Option<Duration>, options: &str) -> Problem {
        let kind = self.error_code.as_deref().and_then(kind_named).unwrap_or_else(|| kind_of_status(status));
        let said = self
            .detail
            .or(self.message)
            .or(self.title)
            .unwrap_or_else(|| format!("the daemon refuses by HTTP {status}"));
        let next = self.next.filter(|next| !said.contains(next.as_str()));
        let message = next.map_or(said.clone(), |next| format!("{said}; what helps: {next}{options}"));
        Problem { status, kind, message, retry_after }
    }
}

/// The kind of this name.
pub(super) fn kind_named(name: &str) -> Option<ErrorKind> {
    use ErrorKind as K;
    let all =
        [K::Unavailable, K::Fenced, K::ContinuityLost, K::Incompatible, K::Refused, K::Corrupt, K::Config, K::Internal];
    all.into_iter().find(|kind| kind.name() == name)
}

fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        // Names and tokens are what the caller has configured.
        401 | 404 => ErrorKind::Config,
        408 | 502..=504 | 507 => ErrorKind::Unavailable,
        400..=499 => ErrorKind::Refused,
        _ => ErrorKind::Internal,
    }
}

impl Failure {
    /// The same for who only passes it on.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Lost(error) => error,
            Self::Refused(problem) => Error::new(problem.kind, problem.message),
        }
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Unreachable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
