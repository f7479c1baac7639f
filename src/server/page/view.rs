//! A view and its connectors.

use std::sync::Arc;

use maud::{Markup, html};

use super::connector;
use crate::daemon::ViewReport;
use crate::events::Events;
use crate::quantity::{bytes, grouped};
use crate::server::access::Caller;

/// From this share on, a step log is nearly full.
const NEARLY: f64 = 0.8;

pub(super) fn section(pipeline: &str, view: &ViewReport, events: &Arc<Events>, caller: &Caller) -> Markup {
    let id = format!("v:{}:{}", pipeline, view.name);
    html! {
        section.view aria-labelledby=(id) {
            h2 #(id) { (pipeline) " / " (view.name) }
            div.facts #{ (id) "-facts" } data-part {
                p {
                    @match view.source.as_str() {
                        "push" => "pushed to",
                        "postgres" => "from a PostgreSQL table",
                        _ => "from files",
                    }
                    @if let Some(rows) = view.rows { ", " span.number { (grouped(rows)) } " rows" }
                    @if view.materialized == Some(false) { ", not materialized: it has no snapshots" }
                }
                @if let Some(log) = &view.step_log {
                    p.log {
                        label for={ (id) "-log" } { "Step log: steps " (log.earliest) " to " (log.last) ", " (bytes(log.bytes)) " of " (bytes(log.max_bytes)) }
                        " "
                        meter id={ (id) "-log" } min="0" max=(log.max_bytes) high=(log.max_bytes as f64 * NEARLY) optimum="0" value=(log.bytes) {}
                    }
                }
                @if let Some(wal) = &view.wal {
                    p { "The server keeps " (bytes(wal.bytes)) " of WAL for it (" (wal.status) ")." }
                }
                @if let Some(refusal) = &view.refusal {
                    div.trouble { p { strong { @if view.source == "push" { "pushes are not stored" } @else { "nothing is read for now" } } } p { (refusal) } }
                }
                @if let Some(trouble) = &view.trouble {
                    div.trouble { p { strong { "not open" } } p { (trouble) } p.next { "Next: load the configuration anew once that is mended." } }
                }
            }
            @for report in &view.connectors { (connector::article(report, events, caller)) }
            @if view.connectors.is_empty() { p.note { "No connector delivers it." } }
        }
    }
}
