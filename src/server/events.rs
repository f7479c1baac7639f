//! Events as they come: server-sent, each with its number, from any number on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Server;
use super::call::{self, Call, Content, Fault, Key, Reply, Shape};
use super::door::Endless;
use super::input::Query;
use super::problem::{Answer, Problem};
use crate::clock::Clock;
use crate::config::{Role, check_name};
use crate::events::{About, Event, Events};

const TYPE: &str = "text/event-stream";
const HEADER: &str = "last-event-id";
const LAST_EVENT_ID: HeaderName = HeaderName::from_static(HEADER);
/// How many events are sent at once.
const ROUND: usize = 64;
/// How long browsers wait before they come again, in milliseconds.
const RETRY: u64 = 2000;

pub(super) const LISTEN: Call = Call {
    id: "listen_to_events",
    about: "What happens, as it happens.",
    more: "Server-sent events: `id` is the number of the event, `event` its name, `data` its JSON; comments keep the connection. \
        Without a number, it begins with what happens next. `events_gone` says that older ones are not there any more, \
        `too_slow` that the listener is left behind and has to come again.",
    role: Some(Role::Read),
    query: &[
        Key::optional("after", call::Value::Number, "The number of the last event that the caller had."),
        Key::optional("pipeline", call::Value::Name, "Only what is about this pipeline."),
        Key::optional("view", call::Value::Name, "Only what is about views of this name."),
        Key::optional("connector", call::Value::Name, "Only what is about connectors of this name."),
    ],
    headers: &[Key::optional(HEADER, call::Value::Number, "As `after`, which it goes before; browsers send it.")],
    replies: &[Reply::new(
        200,
        Content::new(TYPE, Shape::Endless),
        "Events, until the caller has enough or the daemon stops.",
    )],
    faults: &[&[Fault::new(429, "too_many_listeners", "so many others listen")]],
    ..Call::BLANK
};

pub(super) async fn listen(State(server): State<Arc<Server>>, query: Query, headers: HeaderMap) -> Answer<Response> {
    query.only(&["after", "pipeline", "view", "connector"])?;
    let events = Arc::clone(server.daemon.events());
    // Who comes again names what it had; the query is the one that it came with first.
    let header = header(&headers)?;
    let asked = match header.or(query.get("after")) {
        Some(text) => Some(number(text, if header.is_some() { "the header Last-Event-ID" } else { "after" })?),
        None => None,
    };
    let name = |key: &str| -> Answer<Option<String>> {
        let Some(name) = query.get(key) else { return Ok(None) };
        check_name(name).map_err(Problem::bad_request)?;
        Ok(Some(name.to_owned()))
    };
    let wanted = About { pipeline: name("pipeline")?, view: name("view")?, connector: name("connector")? };
    let seat = Arc::clone(&server.seats).try_acquire_owned().map_err(|_| {
        let said = format!("{} others listen already; try again later", server.bounds.listeners);
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_listeners", said).retry_soon()
    })?;
    let last = events.last();
    let after = asked.unwrap_or_else(|| *last.borrow());
    let listener = Listener {
        after,
        last,
        events,
        wanted,
        stop: server.stop.subscribe(),
        clock: Arc::clone(&server.clock),
        silence: server.bounds.silence,
        stage: Stage::First,
        _seat: seat,
    };
    let frames = stream::unfold(listener, |mut listener| async move {
        let frame = listener.next().await?;
        Some((Ok::<_, Infallible>(frame), listener))
    });
    Ok((Extension(Endless), [(CONTENT_TYPE, TYPE)], Body::from_stream(frames)).into_response())
}

fn header(headers: &HeaderMap) -> Answer<Option<&str>> {
    let Some(value) = headers.get(&LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Problem::bad_request("the header Last-Event-ID is no number"))?;
    // A browser that has no number says so.
    Ok(Some(text).filter(|text| !text.is_empty()))
}

fn number(text: &str, what: &str) -> Answer<u64> {
    let is_whole = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_whole);
    number.ok_or_else(|| Problem::bad_request(format!("{what} is {text:?}; send the id of an event, or 0")))
}

/// How far a listener is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was said.
    First,
    /// It was told what it asked for, as far as it was there.
    Resumed,
    /// It is told nothing more.
    Ended,
}

/// Who listens. It takes what it can: nothing is kept for it but its number.
struct Listener {
    /// The last event that it was told of, or did not want.
    after: u64,
    last: watch::Receiver<u64>,
    events: Arc<Events>,
    wanted: About,
    stop: watch::Receiver<bool>,
    clock: Arc<dyn Clock>,
    silence: Duration,
    stage: Stage,
    _seat: OwnedSemaphorePermit,
}

impl Listener {
    /// What it is told next; `None` when it is told nothing more.
    async fn next(&mut self) -> Option<String> {
        match self.stage {
            Stage::Ended => return None,
            Stage::First => {
                self.stage = Stage::Resumed;
                let mut said = format!("retry: {RETRY}\n: events of cutover\n\n");
                let following = self.events.after(self.after, 0);
                if let Some(first) = following.gone {
                    said.push_str(&self.gone(first, "events_gone"));
                }
                return Some(said);
            }
            Stage::Resumed => {}
        }
        loop {
            let following = self.events.after(self.after, ROUND);
            if let Some(first) = following.gone {
                self.stage = Stage::Ended;
                return Some(self.gone(first, "too_slow"));
            }
            if let Some(last) = following.events.last() {
                self.after = last.id;
                let said: String =
                    following.events.iter().filter(|e| e.about.is_of(&self.wanted)).map(|e| frame(e)).collect();
                if !said.is_empty() {
                    return Some(said);
                }
                continue;
            }
            let after = self.after;
            tokio::select! {
                changed = self.last.wait_for(|last| *last != after) => if changed.is_err() {
                    return None;
                },
                _ = self.stop.wait_for(|stop| *stop) => return None,
                () = self.clock.deadline(self.silence) => return Some(": still here\n\n".to_owned()),
            }
        }
    }

    /// Says that what followed is not there any more, and goes on with what is.
    fn gone(&mut self, first: u64, name: &str) -> String {
        let data = json!({ "after": self.after, "first": first });
        self.after = first.saturating_sub(1);
        format!("event: {name}\ndata: {data}\n\n")
    }
}

/// An event as it is sent. Its JSON has no line end in it.
fn frame(event: &Event) -> String {
    let document: Value = event.document();
    format!("id: {}\nevent: {}\ndata: {document}\n\n", event.id, event.event)
}
