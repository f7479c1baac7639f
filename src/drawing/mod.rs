//! A table's history as a picture: generations as segments over the steps that they cover. SVG without scripts, and with
//! words for who does not see it.
//!
//! ```text
//!   generation 1  ◆▬▬▬▬▬▬▬▬▬✕
//!   generation 2             ◆▬▬▬▬▲▬▬▬
//!                 └──────────┴─────────┴ steps
//! ```

mod axis;
mod segment;

use maud::{Markup, PreEscaped, html};

use self::axis::Axis;
pub(crate) use self::segment::Mark;
use self::segment::{Segment, segments};

/// How the picture looks, light and dark.
pub(crate) const CSS: &str = include_str!("drawing.css");

/// All lengths are in units of the picture, which scales with its place.
const WIDTH: f64 = 400.0;
/// Where steps begin and end.
const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 22.0;
const TOP: f64 = 8.0;
/// Of the lane of one generation.
const LANE: f64 = 24.0;
const BAR: f64 = 10.0;
/// Nothing is drawn narrower.
const LEAST: f64 = 2.0;
const AXIS: f64 = 24.0;
const LEGEND: f64 = 20.0;
/// Of one entry of the legend.
const ENTRY: f64 = 68.0;
/// How far behind the last step a loss of continuity stands.
const BEHIND: f64 = 11.0;
const CROSS: &str = "-4,-6 0,-2 4,-6 6,-4 2,0 6,4 4,6 0,2 -4,6 -6,4 -2,0 -6,-4";

/// Where the picture's style comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// The picture brings it: it is a file of its own.
    Own,
    /// The page that it stands on.
    Page,
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Picture<'a> {
    /// Begins the ids within it: they must differ from those of others on the same page.
    pub(crate) id: &'a str,
    /// What it shows.
    pub(crate) title: &'a str,
    /// The history, oldest first.
    pub(crate) marks: &'a [Mark],
    /// Where its style comes from.
    pub(crate) style: Style,
}

impl Picture<'_> {
    /// The picture.
    pub(crate) fn svg(&self) -> Markup {
        let segments = segments(self.marks);
        let axis = Axis::over(segments.iter().flat_map(|s| [s.from, s.to]), LEFT, RIGHT);
        let lanes = TOP + LANE * segments.len().max(1) as f64;
        let height = lanes + AXIS + LEGEND;
        let (title, desc) = (format!("{}-title", self.id), format!("{}-desc", self.id));
        html! {
            svg.cutover-picture xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
                aria-labelledby={ (title) " " (desc) }
            {
                title id=(title) { (clean(self.title)) }
                desc id=(desc) { (clean(&described(&segments))) }
                @if self.style == Style::Own { style { (PreEscaped(CSS)) } rect.ground width=(WIDTH) height=(height) {} }
                @for (lane, segment) in segments.iter().enumerate() {
                    (self::lane(segment, &axis, TOP + LANE * lane as f64))
                }
                @if segments.is_empty() { text.label x=(LEFT) y=(TOP + 14.0) { "nothing yet" } }
                (scale(&axis, lanes))
                (legend(&segments, height - 6.0))
            }
        }
    }
}

/// One generation.
fn lane(segment: &Segment, axis: &Axis, top: f64) -> Markup {
    let (middle, y) = (top + LANE / 2.0, top + (LANE - BAR) / 2.0);
    let (from, to) = (axis.x(segment.from), axis.x(segment.to));
    html! {
        g.lane {
            text.label x=(LEFT - 10.0) y=(number(middle + 4.0)) text-anchor="end" { (segment.name()) }
            rect.segment.open[!segment.is_whole] x=(number(from)) y=(number(y)) width=(width(from, to)) height=(BAR) rx="2" {
                title { (clean(&segment.said())) }
            }
            @for (n, append) in segment.appends.iter().enumerate() {
                @let (from, to) = (axis.x(append.from), axis.x(append.to));
                rect.append.even[n % 2 == 0] x=(number(from)) y=(number(y)) width=(width(from, to)) height=(BAR) {
                    title { (clean(&append.said())) }
                }
            }
            @if let Some(said) = &segment.reload {
                (shape("reload", from, middle, "0,-8 7,0 0,8 -7,0", said))
            }
            @for (at, said) in &segment.foreign {
                (shape("foreign", axis.x(*at), y - 1.0, "-4,-6 4,-6 0,1", said))
            }
            @for (at, said) in &segment.damaged {
                (shape("damaged", axis.x(*at), y - 1.0, "-3,-6 3,-6 3,0 -3,0", said))
            }
            @for (at, said) in &segment.lost {
                // Behind what was there until then.
                (shape("lost", axis.x(*at) + BEHIND, middle, CROSS, said))
            }
        }
    }
}

fn shape(class: &str, x: f64, y: f64, points: &str, said: &str) -> Markup {
    html! {
        polygon class=(class) points=(points) transform={ "translate(" (number(x)) " " (number(y)) ")" } {
            title { (clean(said)) }
        }
    }
}

fn scale(axis: &Axis, y: f64) -> Markup {
    html! {
        g.axis {
            path d={ "M" (LEFT) " " (number(y)) "H" (RIGHT) } {}
            @for (step, x, anchor) in axis.ticks() {
                path d={ "M" (number(x)) " " (number(y)) "v4" } {}
                text x=(number(x)) y=(number(y + 15.0)) text-anchor=(anchor) { (step) }
            }
            text x=(LEFT - 10.0) y=(number(y + 15.0)) text-anchor="end" { "step" }
        }
    }
}

fn legend(segments: &[Segment], y: f64) -> Markup {
    let has = |is_there: fn(&Segment) -> bool| segments.iter().any(is_there);
    let entries = [
        ("reload", "reload", "0,-6 5,0 0,6 -5,0", has(|s| s.reload.is_some())),
        ("append even", "appends", "-5,-4 5,-4 5,4 -5,4", has(|s| !s.appends.is_empty())),
        ("foreign", "by others", "-4,-4 4,-4 0,4", has(|s| !s.foreign.is_empty())),
        ("damaged", "damaged", "-3,-3 3,-3 3,3 -3,3", has(|s| !s.damaged.is_empty())),
        ("lost", "lost", CROSS, has(|s| !s.lost.is_empty())),
    ];
    html! {
        g.legend aria-hidden="true" {
            @for (n, (class, name, points, _)) in entries.into_iter().filter(|(.., is_there)| *is_there).enumerate() {
                @let x = LEFT + 6.0 + ENTRY * n as f64;
                polygon class={ "key " (class) } points=(points) transform={ "translate(" (number(x)) " " (number(y - 4.0)) ")" } {}
                text x=(number(x + 10.0)) y=(number(y)) { (name) }
            }
        }
    }
}

/// The same in words.
fn described(segments: &[Segment]) -> String {
    if segments.is_empty() {
        return "No commit is known.".to_owned();
    }
    segments.iter().map(Segment::said).collect::<Vec<_>>().join(". ") + "."
}

/// As short as it is exact to a tenth.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
}

fn width(from: f64, to: f64) -> String {
    number((to - from).max(LEAST))
}

/// Without what no XML may have.
fn clean(text: &str) -> String {
    let is_text = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r');
    text.chars().map(|c| if is_text(c) && !matches!(c, '\u{fffe}' | '\u{ffff}') { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
#[path = "drawing_tests.rs"]
mod tests;
