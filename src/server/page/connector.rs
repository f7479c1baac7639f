//! A connector on the page.

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::{about, class, happened};
use crate::connector::Phase;
use crate::daemon::{ConnectorReport, SnapshotReport, TroubleReport};
use crate::drawing::{Mark, Picture, Style};
use crate::error::ErrorKind;
use crate::events::{Event, Events, Kind};
use crate::quantity::{bytes, duration, grouped};
use crate::server::access::Caller;

/// How many events of a connector are shown.
const RECENT: usize = 6;
/// How many of them the picture is drawn from, and how many generations it shows.
const DRAWN: usize = 300;
const GENERATIONS: u64 = 6;

/// The id of a connector's part of the page. Names have no character that an id may not have.
pub(super) fn id(report: &ConnectorReport) -> String {
    format!("c:{}", report.name.replace('/', ":"))
}

/// Whether what is shown of it changes without an event.
pub(super) fn moves(report: &ConnectorReport) -> bool {
    report.snapshot.is_some()
        || report.lag_steps.is_some_and(|lag| lag > 0)
        || report.lag_seconds.is_some_and(|lag| lag > 0.0)
        || is(report, &[Phase::Retrying, Phase::Starting])
}

fn is(report: &ConnectorReport, phases: &[Phase]) -> bool {
    phases.iter().any(|phase| phase.to_string() == report.state)
}

pub(super) fn article(report: &ConnectorReport, events: &Arc<Events>, caller: &Caller) -> Markup {
    let id = id(report);
    let about = about(report);
    let recent = events.newest(RECENT, |event| event.about == about);
    let is_stream = report.is_stream();
    let is_commit = |event: &Event| {
        let is_one = match event.event {
            Kind::Appended | Kind::Acknowledged => true,
            Kind::Reloaded => !is_stream,
            _ => false,
        };
        is_one && event.about == about
    };
    let committed = events.newest(1, is_commit).first().map(|event| event.at);
    html! {
        article id=(id) data-name=(report.name) data-base=(base(report)) aria-labelledby={ (id) "-title" } {
            div.head #{ (id) "-head" } data-part {
                h3 id={ (id) "-title" } { (report.name) }
                p class={ "state " (class(report.health)) } {
                    span aria-hidden="true" { (sign(report)) " " } (report.state.replace('_', " "))
                    @if let Some(since) = report.since { span.since { " since " (happened::time(since)) } }
                }
            }
            div #{ (id) "-facts" } data-part {
                @if let Some(trouble) = &report.trouble { (self::trouble(report, trouble)) }
                @if let Some(snapshot) = &report.snapshot { (progress(&id, snapshot)) }
                (facts(report, committed))
                figure {
                    (picture(report, events))
                    figcaption { (continuity(report)) }
                }
            }
            @if caller.may_rule() { (actions(&id, report)) }
            details.events {
                summary { "What happened last" }
                div #{ (id) "-events" } data-part { (happened::list(recent.iter().map(|e| &**e), happened::Names::Known)) }
            }
        }
    }
}

/// Where its calls are.
fn base(report: &ConnectorReport) -> String {
    let mut parts = report.name.split('/');
    let mut next = || parts.next().unwrap_or_default();
    format!("/v1/pipelines/{}/views/{}/connectors/{}", next(), next(), next())
}

/// What tells states apart for who sees no colors.
fn sign(report: &ConnectorReport) -> &'static str {
    match report.state.as_str() {
        "following" => "●",
        "catching_up" | "starting" => "◐",
        "snapshotting" => "◔",
        "completed" => "✓",
        "paused" | "stopped" => "‖",
        "retrying" => "↻",
        _ => "✕",
    }
}

fn trouble(report: &ConnectorReport, trouble: &TroubleReport) -> Markup {
    html! {
        div.trouble {
            p { strong { (trouble.code.replace('_', " ")) } }
            p.reason { (trouble.reason) }
            p.next {
                "Next: " (trouble.next_action)
                @if let Some(command) = command(report, trouble) { " — " code { (command) } }
            }
        }
    }
}

/// The command that does what is to be done.
fn command(report: &ConnectorReport, trouble: &TroubleReport) -> Option<String> {
    let name = &report.name;
    let is_kind = |kind: ErrorKind| trouble.code == kind.name();
    if is_kind(ErrorKind::ContinuityLost) {
        return Some(format!("cutover reset {name}"));
    }
    if is_kind(ErrorKind::Corrupt) {
        return Some(format!("cutover verify {}", report.uri));
    }
    let is_resumed = [ErrorKind::Fenced, ErrorKind::Incompatible, ErrorKind::Refused].into_iter().any(is_kind);
    is_resumed.then(|| format!("cutover resume {name}"))
}

fn progress(id: &str, snapshot: &SnapshotReport) -> Markup {
    let label = format!("{id}-progress");
    let left = snapshot.seconds_left.and_then(|s| Duration::try_from_secs_f64(s).ok());
    html! {
        p.progress {
            label for=(label) {
                "Snapshot"
                @if let Some(step) = snapshot.step { " of step " (step) }
                ": " (grouped(snapshot.rows))
                @if let Some(known) = snapshot.rows_known { " of " (grouped(known)) }
                " rows, " (bytes(snapshot.bytes))
                @if let Some(speed) = snapshot.rows_per_second { ", " (grouped(speed as u64)) " rows/s" }
                @if let Some(left) = left { ", " (duration(left)) " left" }
            }
            @match snapshot.rows_known {
                Some(known) => { progress id=(label) max=(known.max(1)) value=(snapshot.rows) {} }
                None => { progress id=(label) {} }
            }
        }
    }
}

/// `committed` is when the last commit was, or when its client said what it has, in milliseconds since 1970 UTC.
fn facts(report: &ConnectorReport, committed: Option<i64>) -> Markup {
    let is_stream = report.is_stream();
    let numbers = [
        ("Generation", report.generation),
        (if is_stream { "Begins at step" } else { "Cutover at step" }, report.cutover),
        (if is_stream { "Client has step" } else { "Last step" }, report.last_step),
        ("Sent up to step", report.sent_step),
        ("Source's last step", report.source_step),
        ("Open streams", report.streams),
    ];
    html! {
        dl.facts {
            div { dt { "Data" } dd { (age(report)) } }
            @if let Some(at) = committed {
                div { dt { @if is_stream { "Client spoke last" } @else { "Last commit" } } dd { (happened::time(at)) } }
            }
            @for (name, number) in numbers {
                @if let Some(number) = number { div { dt { (name) } dd.number { (number) } } }
            }
            div { dt { @if is_stream { "Rows sent" } @else { "Rows appended" } } dd.number { (grouped(report.rows)) } }
            div { dt { "Mode" } dd { (report.mode.replace('_', " ")) } }
            div.wide { dt { @if is_stream { "Stream" } @else { "Table" } } dd { code { (report.uri) } } }
        }
    }
}

/// How old what readers see is, or what the client has said to have.
fn age(report: &ConnectorReport) -> String {
    let behind = report.lag_seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
    match (report.lag_steps, behind) {
        _ if report.last_step.is_none() && report.is_stream() => "the client has said nothing yet".to_owned(),
        _ if report.last_step.is_none() => "none yet".to_owned(),
        (Some(0), _) => "up to date".to_owned(),
        (Some(steps), Some(behind)) => format!("{} steps and {} behind", grouped(steps), duration(behind)),
        (Some(steps), None) => format!("{} steps behind", grouped(steps)),
        (None, Some(behind)) => format!("{} behind", duration(behind)),
        (None, None) if is(report, &[Phase::Following, Phase::Completed]) => "all that the source has".to_owned(),
        (None, None) => "behind its source".to_owned(),
    }
}

/// Continuity at a glance.
fn continuity(report: &ConnectorReport) -> String {
    let is_lost = is(report, &[Phase::ContinuityLost, Phase::BreakerOpen])
        || report.trouble.as_ref().is_some_and(|t| t.code == ErrorKind::Corrupt.name());
    match (report.generation, report.cutover, report.last_step) {
        (None, ..) if report.is_stream() => "No stream yet.".to_owned(),
        (None, ..) => "No table yet.".to_owned(),
        (Some(generation), _, Some(last)) if is_lost && report.is_stream() => {
            format!(
                "Continuity is lost: the client has generation {generation} up to step {last}, and nothing is sent."
            )
        }
        (Some(generation), Some(cutover), Some(last)) if report.is_stream() => {
            format!("Continuous: of generation {generation}, the client has every step from {cutover} to {last}.")
        }
        (Some(generation), Some(cutover), None) if report.is_stream() => {
            format!("Generation {generation} begins at step {cutover}; the client has not said to have it.")
        }
        (Some(generation), _, Some(last)) if is(report, &[Phase::Snapshotting]) => {
            format!("Being loaded anew: until then readers see generation {generation}, up to step {last}.")
        }
        (Some(generation), _, Some(last)) if is_lost => {
            format!("Continuity is lost: generation {generation} speaks up to step {last}, and nothing is appended.")
        }
        (Some(generation), Some(cutover), Some(last)) => {
            format!("Continuous: generation {generation} has every step from {cutover} to {last}.")
        }
        (Some(generation), ..) => format!("Generation {generation}."),
    }
}

fn picture(report: &ConnectorReport, events: &Arc<Events>) -> Markup {
    let about = about(report);
    let is_drawn = |event: &Event| {
        matches!(event.event, Kind::Reloaded | Kind::Appended | Kind::Acknowledged | Kind::ContinuityLost)
            && event.about == about
    };
    let mut drawn = events.newest(DRAWN, is_drawn);
    drawn.reverse();
    let (id, title) = (format!("{}-picture", id(report)), format!("Generations and steps of {}", report.name));
    Picture { id: &id, title: &title, marks: &marks(report, &drawn), style: Style::Page }.svg()
}

/// What events tell, and the report where they tell less. Events that are not there are no lost continuity.
fn marks(report: &ConnectorReport, events: &[Arc<Event>]) -> Vec<Mark> {
    let least = report.generation.unwrap_or(0).saturating_sub(GENERATIONS - 1);
    let mut marks = Vec::new();
    let mut reached: Option<(u64, u64)> = None;
    let loaded = |generation: u64| {
        let cutover = report.cutover.filter(|_| report.generation == Some(generation))?;
        Some(Mark::Reload { generation, step: cutover, rows: None, by: None })
    };
    for event in events {
        let number = |name: &str| event.data.get(name).and_then(serde_json::Value::as_u64);
        let generation = number("generation").or(reached.map(|(generation, _)| generation));
        let Some(generation) = generation.filter(|generation| *generation >= least) else { continue };
        match event.event {
            Kind::Reloaded => {
                let Some(step) = number("step") else { continue };
                marks.push(Mark::Reload { generation, step, rows: number("rows"), by: None });
                reached = Some((generation, step));
            }
            Kind::Appended => {
                let (Some(from), Some(to), rows) = (number("from"), number("to"), number("rows")) else { continue };
                if reached.is_none_or(|(known, _)| known != generation) {
                    marks.extend(loaded(generation));
                }
                marks.push(Mark::Reached { generation, to: from });
                marks.push(Mark::Append { generation, from, to, rows: rows.unwrap_or(0) });
                reached = Some((generation, to));
            }
            Kind::Acknowledged => {
                let Some(to) = number("to") else { continue };
                if reached.is_none_or(|(known, _)| known != generation) {
                    marks.extend(loaded(generation));
                }
                marks.push(Mark::Reached { generation, to });
                reached = Some((generation, to));
            }
            Kind::ContinuityLost => {
                let reason = event.data.get("trouble").and_then(|t| t.get("reason")?.as_str());
                marks.push(Mark::Lost(reason.unwrap_or("see its trouble").to_owned()));
            }
            _ => {}
        }
    }
    if let (Some(generation), Some(last)) = (report.generation, report.last_step) {
        if reached.is_none_or(|(known, _)| known != generation) {
            marks.extend(loaded(generation));
        }
        if reached.is_none_or(|(known, to)| known != generation || to < last) {
            marks.push(Mark::Reached { generation, to: last });
        }
    }
    marks
}

fn actions(id: &str, report: &ConnectorReport) -> Markup {
    let (name, is_paused) = (&report.name, is(report, &[Phase::Paused]));
    let is_resumed = is_paused || is(report, &[Phase::Failed, Phase::Fenced, Phase::ContinuityLost]);
    html! {
        div.actions {
            div #{ (id) "-buttons" }.needs-script.buttons data-part {
                @if !is_paused { button #{ (id) "-pause" } type="button" data-call="pause" { "Pause" span.hidden { " " (name) } } }
                @if is_resumed { button #{ (id) "-resume" } type="button" data-call="resume" { "Resume" span.hidden { " " (name) } } }
            }
            details.needs-script {
                summary { "Reset…" span.hidden { " " (name) } }
                form data-call="reset" autocomplete="off" {
                    p {
                        @if report.is_stream() { "Begins a generation of its own: the client is sent the view anew, from a snapshot on." }
                        @else { "Loads the view anew, in one version: a generation of its own. Readers see the old rows until it is complete." }
                    }
                    label for={ (id) "-reason" } { "Why" }
                    input id={ (id) "-reason" } name="reason" maxlength="1000";
                    label for={ (id) "-confirm" } { "Write " code { (name) } " to confirm" }
                    input id={ (id) "-confirm" } name="confirm" required spellcheck="false" autocapitalize="off";
                    label.check { input type="checkbox" name="override"; " although the breaker is open" }
                    button.danger type="submit" disabled { "Reset" }
                }
            }
            noscript {
                p.note { code { "cutover " @if is_paused { "resume " } @else { "pause " } (name) } ", " code { "cutover reset " (name) } }
            }
            p.answer role="status" {}
        }
    }
}
