//! The page at `/`: what the reports and events say, as HTML. It works without its script, and better with it.
//!
//! It shows nothing to who may not see, and does nothing by itself: its script sends the calls that anybody else sends.

mod connector;
mod happened;
mod view;

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_FRAME_OPTIONS};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::Server;
use super::access::Caller;
use super::call::{Call, Content, Reply, Shape};
use super::input::Bare;
use crate::config::Role;
use crate::daemon::{ConnectorReport, Health, PipelineReport};
use crate::drawing;
use crate::events::About;

/// Everything that the page uses comes from here, and nobody puts it into a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// How often a page without script looks again, in seconds.
const REFRESH: u32 = 10;
/// How many events of all are shown.
const RECENT: usize = 12;

const HTML: Content = Content::new("text/html; charset=utf-8", Shape::Text);

pub(super) const WHOLE: Call = Call {
    id: "get_page",
    about: "The page, for people.",
    more: "Where tokens are asked for, it shows nothing without one, and asks for it.",
    replies: &[Reply::new(200, HTML, "HTML.")],
    ..Call::BLANK
};

pub(super) async fn whole(State(server): State<Arc<Server>>, caller: Caller, _: Bare) -> Response {
    let content = caller.may_see().then(|| content(&server, &caller));
    page(html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Cutover" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/page/style.css";
                noscript { meta http-equiv="refresh" content=(REFRESH); }
                script src="/page/script.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the connectors" }
                header {
                    h1 { "Cutover" }
                    p #link.needs-script { "connecting" }
                    button #forget.needs-script type="button" hidden { "Forget the token" }
                }
                p #said role="status" aria-live="polite" {}
                main #main tabindex="-1" {
                    @match content {
                        Some(content) => (content),
                        None => (locked()),
                    }
                }
                footer {
                    nav aria-label="Other views" {
                        a href="/v1/pipelines" { "Pipelines as JSON" } " · " a href="/v1/health" { "Health" } " · "
                        a href="/metrics" { "Metrics" }
                    }
                }
            }
        }
    })
}

pub(super) const CONNECTORS: Call = Call {
    id: "get_page_connectors",
    about: "What the page shows, for its script.",
    role: Some(Role::Read),
    replies: &[Reply::new(200, HTML, "A part of HTML.")],
    ..Call::BLANK
};

/// What the page's script puts in the place of what it shows.
pub(super) async fn connectors(State(server): State<Arc<Server>>, caller: Caller, _: Bare) -> Response {
    page(content(&server, &caller))
}

pub(super) const STYLE: Call = Call {
    id: "get_page_style",
    about: "The style of the page.",
    replies: &[Reply::new(200, Content::new("text/css; charset=utf-8", Shape::Text), "CSS.")],
    ..Call::BLANK
};

pub(super) async fn style(_: Bare) -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], [include_str!("style.css"), drawing::CSS].concat()).into_response()
}

pub(super) const SCRIPT: Call = Call {
    id: "get_page_script",
    about: "The script of the page.",
    replies: &[Reply::new(200, Content::new("text/javascript; charset=utf-8", Shape::Text), "JavaScript.")],
    ..Call::BLANK
};

pub(super) async fn script(_: Bare) -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("script.js")).into_response()
}

fn page(markup: Markup) -> Response {
    const OPENER: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
    const RESOURCE: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER, "same-origin"),
        (RESOURCE, "same-origin"),
    ];
    (headers, markup.into_string()).into_response()
}

/// Who comes without a token is asked for it.
fn locked() -> Markup {
    html! {
        form #unlock.needs-script autocomplete="off" {
            h2 { "This daemon asks for a token" }
            label for="token" { "Token" }
            input #token name="token" type="password" required spellcheck="false" autocapitalize="off";
            button type="submit" { "Show" }
            p.note { "It stays in this tab, and is sent in the header Authorization only." }
        }
        noscript {
            p { "This daemon asks for a token, and a page without scripts cannot send one. Ask it with "
                code { "cutover --token-file FILE status" } "." }
        }
    }
}

/// All that there is to see.
fn content(server: &Server, caller: &Caller) -> Markup {
    let events = server.daemon.events();
    // Before the reports: what happens meanwhile is told once more, and not missed.
    let after = *events.last().borrow();
    let pipelines = server.daemon.pipelines();
    let all: Vec<&ConnectorReport> = pipelines.iter().flat_map(|p| &p.views).flat_map(|v| &v.connectors).collect();
    let recent = events.newest(RECENT, |_| true);
    html! {
        div #content data-after=(after) data-moving[all.iter().any(|c| connector::moves(c))] {
            (summary(server, &pipelines, &all))
            @for pipeline in &pipelines {
                @for view in &pipeline.views { (view::section(&pipeline.name, view, events, caller)) }
            }
            section aria-labelledby="recent-title" {
                h2 #recent-title { "What happened last" }
                div #recent data-part { (happened::list(recent.iter().map(|e| &**e), happened::Names::Shown)) }
            }
        }
    }
}

fn summary(server: &Server, pipelines: &[PipelineReport], all: &[&ConnectorReport]) -> Markup {
    let count = |health| all.iter().filter(|c| c.health == health).count();
    let parts = [
        (count(Health::Healthy), "healthy"),
        (count(Health::Degraded), "degraded"),
        (count(Health::Unhealthy), "unhealthy"),
    ];
    let worst = pipelines.iter().map(PipelineReport::health).max().unwrap_or(Health::Healthy);
    let webhooks = server.daemon.webhooks();
    let silent: Vec<_> = webhooks.iter().filter(|hook| !hook.is_delivering()).collect();
    html! {
        section #summary data-part aria-labelledby="summary-title" class={ "summary " (class(worst)) } {
            h2 #summary-title {
                (all.len()) @if all.len() == 1 { " connector" } @else { " connectors" } ": "
                @for (n, (count, word)) in parts.iter().filter(|(count, _)| *count > 0).enumerate() {
                    @if n > 0 { ", " }
                    (count) " " (word)
                }
                @if !server.daemon.has_begun() { "views and connectors are being opened" }
                @else if all.is_empty() { "nothing is delivered" }
            }
            ul.next {
                @for connector in all.iter().filter(|c| c.health == Health::Unhealthy) {
                    li {
                        a href={ "#" (connector::id(connector)) } { (connector.name) } ": "
                        (connector.trouble.as_ref().map_or("it does not move", |t| &t.next_action))
                    }
                }
                @for hook in silent {
                    li { "webhook " (hook.name) " at " (hook.host) " is " (hook.state) ": " (hook.reason.as_deref().unwrap_or("")) }
                }
            }
        }
    }
}

fn class(health: Health) -> &'static str {
    match health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Unhealthy => "unhealthy",
    }
}

/// By which events about a connector are known.
fn about(connector: &ConnectorReport) -> About {
    let mut parts = connector.name.split('/');
    let mut next = || parts.next().unwrap_or_default();
    About::connector(next(), next(), next())
}
