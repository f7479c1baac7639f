//! Events in words.

use maud::{Markup, html};
use serde_json::Value;

use crate::events::{Event, Kind};
use crate::quantity::grouped;

/// Whether a list says whom each event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// It does.
    Shown,
    /// All are about one, which is named beside the list.
    Known,
}

pub(super) fn list<'a>(events: impl Iterator<Item = &'a Event>, names: Names) -> Markup {
    let mut events = events.peekable();
    html! {
        @if events.peek().is_none() { p.note { "Nothing yet." } } @else {
            ol.happened {
                @for event in events {
                    li class=(class(event.event)) {
                        (time(event.at)) " "
                        @if names == Names::Shown { strong { (event.about.path()) } " " }
                        (said(event))
                    }
                }
            }
        }
    }
}

/// A time that a script may show as an age.
pub(super) fn time(millis: i64) -> Markup {
    let time = chrono::DateTime::from_timestamp_millis(millis);
    let form = |form: &str| time.map_or("?".to_owned(), |time| time.format(form).to_string());
    html! { time datetime=(form("%Y-%m-%dT%H:%M:%S%.3fZ")) data-millis=(millis) { (form("%Y-%m-%d %H:%M:%S UTC")) } }
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::ContinuityLost
        | Kind::BreakerOpen
        | Kind::Fenced
        | Kind::Failed
        | Kind::ConnectorFailed
        | Kind::ViewFailed => "bad",
        Kind::Retrying | Kind::Detached | Kind::ResetFailed | Kind::ResetExpired | Kind::EventsLost => "poor",
        _ => "good",
    }
}

fn said(event: &Event) -> String {
    let data = &event.data;
    let number = |name: &str| data.get(name).and_then(Value::as_u64).map_or("?".to_owned(), |n| n.to_string());
    let rows = || match data.get("rows").and_then(Value::as_u64) {
        Some(1) => "1 row".to_owned(),
        rows => format!("{} rows", rows.map_or("?".to_owned(), grouped)),
    };
    let text = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or("?").to_owned();
    let version = || data.get("version").and_then(Value::as_u64).map_or(String::new(), |v| format!(", version {v}"));
    let names = |name: &str| data.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    match event.event {
        Kind::DaemonStarted => format!("the daemon started, version {}", text("version")),
        Kind::DaemonStopped => "the daemon was stopped".to_owned(),
        Kind::ConfigurationReloaded => format!(
            "the configuration was loaded anew: {} added, {} changed, {} removed",
            names("added"),
            names("changed"),
            names("removed")
        ),
        Kind::ConnectorFailed => format!("could not be started: {}", text("reason")),
        Kind::ViewFailed => format!("the view is not open: {}", text("reason")),
        Kind::Detached => format!("lost its place in the full step log at step {}", number("acknowledged")),
        Kind::StateChanged
        | Kind::Retrying
        | Kind::ContinuityLost
        | Kind::BreakerOpen
        | Kind::Fenced
        | Kind::Failed => {
            let reason = data.get("trouble").and_then(|trouble| trouble.get("reason")?.as_str());
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            format!("{} → {}{reason}", text("from").replace('_', " "), text("to").replace('_', " "))
        }
        Kind::Reloaded => {
            let is_known = data.get("rows").is_some_and(Value::is_u64);
            let rows = if is_known { format!(", {}", rows()) } else { String::new() };
            format!("generation {} begins at step {}{rows}{}", number("generation"), number("step"), version())
        }
        Kind::Appended => {
            format!("steps ({}, {}] appended, {}{}", number("from"), number("to"), rows(), version())
        }
        Kind::Acknowledged => {
            format!(
                "the client has steps ({}, {}] of generation {}",
                number("from"),
                number("to"),
                number("generation")
            )
        }
        Kind::ResetAccepted => format!("reset asked for by {}: {}", text("who"), reason(&text("why"))),
        Kind::ResetCommitted => format!("reset committed as generation {}{}", number("generation"), version()),
        Kind::ResetCancelled => format!("reset cancelled by {}", text("cancelled_by")),
        Kind::ResetFailed => format!("reset given up: {}", text("reason")),
        Kind::ResetExpired => "reset given up: it was not carried out within a day".to_owned(),
        Kind::EventsLost => format!("{} events are not here", number("count")),
    }
}

fn reason(why: &str) -> &str {
    if why.is_empty() { "no reason given" } else { why }
}
