//! How far connectors are: bars on a terminal, a line every ten seconds elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::sync::watch;

use super::talk::Talk;
use super::text;
use crate::connector::{Phase, Status};

/// How often the board is to be drawn.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// How far apart lines about one connector are.
pub(super) const LINE_EVERY: Duration = Duration::from_secs(10);
/// How far back the speed looks.
const WINDOW: Duration = Duration::from_secs(10);
pub(super) const SPINNER: &str = "{spinner} {prefix} {wide_msg}";
pub(super) const BAR: &str = "{spinner} {prefix} [{bar:24}] {wide_msg}";

/// What is shown of the connectors at work.
#[derive(Debug)]
pub(super) struct Board {
    talk: Talk,
    rows: Vec<Row>,
}

/// One connector on the board.
#[derive(Debug)]
struct Row {
    name: String,
    status: watch::Receiver<Status>,
    meter: Meter,
    lines: Lines,
    bar: Option<ProgressBar>,
}

impl Board {
    /// An empty board.
    pub(super) fn new(talk: &Talk) -> Self {
        Self { talk: talk.clone(), rows: Vec::new() }
    }

    /// Puts a connector on the board.
    pub(super) fn add(&mut self, name: &str, status: watch::Receiver<Status>) {
        let bar = (self.talk.is_terminal() && !self.talk.is_quiet()).then(|| {
            // Styled before it is added: adding draws it.
            let bar = ProgressBar::no_length().with_prefix(text::escaped(name));
            restyle(&bar, SPINNER);
            self.talk.bars().add(bar)
        });
        let (meter, lines) = (Meter::default(), Lines::default());
        self.rows.push(Row { name: name.to_string(), status, meter, lines, bar });
    }

    /// Takes a connector from the board.
    pub(super) fn remove(&mut self, name: &str) {
        for row in self.rows.extract_if(.., |row| row.name == name) {
            if let Some(bar) = row.bar {
                bar.finish_and_clear();
                self.talk.bars().remove(&bar);
            }
        }
    }

    /// Shows how things are at the boot-time `now`.
    pub(super) fn tick(&mut self, now: Duration) {
        for row in &mut self.rows {
            let status = row.status.borrow().clone();
            let rows = rows_of(&status);
            row.meter.sample(status.phase == Phase::Snapshotting, rows, now);
            let speed = row.meter.speed();
            match &row.bar {
                Some(bar) => draw(bar, &status, speed),
                None if row.lines.is_due(status.phase, rows, now) => {
                    self.talk.line(&format!("{}: {}", row.name, describe(&status, speed)));
                }
                None => {}
            }
        }
    }
}

fn draw(bar: &ProgressBar, status: &Status, speed: Option<f64>) {
    let progress = status.snapshot.as_ref().filter(|_| status.phase == Phase::Snapshotting);
    let known = progress.and_then(|p| Some((p.rows(), p.known_rows()?)));
    restyle(bar, if known.is_some() { BAR } else { SPINNER });
    if let Some((rows, known)) = known {
        bar.set_length(known);
        bar.set_position(rows);
    }
    bar.set_message(describe(status, speed));
    bar.tick();
}

pub(super) fn restyle(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

/// The rows that a connector has written in what it is doing.
fn rows_of(status: &Status) -> u64 {
    match &status.snapshot {
        Some(progress) if status.phase == Phase::Snapshotting => progress.rows(),
        _ => status.appended().rows.total(),
    }
}

/// A connector's state in one line; `speed` is in rows a second.
fn describe(status: &Status, speed: Option<f64>) -> String {
    let mut parts = Vec::new();
    if let (Phase::Snapshotting, Some(progress)) = (status.phase, &status.snapshot) {
        let (rows, known) = (progress.rows(), progress.known_rows());
        parts.push(match known {
            Some(known) => format!("{} of {} rows", text::grouped(rows), text::grouped(known)),
            None => format!("{} rows", text::grouped(rows)),
        });
        // The first bytes come with the first row group; until then only a file's beginning is written.
        parts.extend(Some(progress.bytes()).filter(|n| *n >= 1024).map(text::bytes));
        parts.extend(speed.map(say_speed));
        let left = known.zip(speed).map(|(known, speed)| known.saturating_sub(rows) as f64 / speed);
        parts.extend(
            left.and_then(|s| Duration::try_from_secs_f64(s).ok()).map(|t| format!("{} left", text::duration(t))),
        );
    } else {
        parts.extend(status.last_step.map(|step| format!("step {step}")));
        let appended = status.appended();
        if let Some(sent) = &status.sent {
            parts.push(format!("{} rows sent", text::grouped(sent.rows.load(Ordering::Relaxed))));
            parts.push(text::bytes(sent.bytes.load(Ordering::Relaxed)));
        }
        if appended.commits > 0 {
            parts.push(format!("{} appends", text::grouped(appended.commits)));
            parts.push(format!("{} rows", text::grouped(appended.rows.total())));
            parts.push(text::bytes(appended.bytes));
            parts.extend(speed.filter(|_| status.phase == Phase::CatchingUp).map(say_speed));
        }
    }
    let step = status.snapshot_step.filter(|_| status.phase == Phase::Snapshotting);
    let step = step.map(|step| format!(" step {step}")).unwrap_or_default();
    let separator = if parts.is_empty() { "" } else { ": " };
    format!("{}{step}{separator}{}", status.phase, parts.join(", "))
}

fn say_speed(speed: f64) -> String {
    format!("{} rows/s", text::grouped(speed as u64))
}

/// Rows a second, over the last seconds of one activity.
#[derive(Debug, Default)]
struct Meter {
    is_snapshot: bool,
    samples: VecDeque<(Duration, u64)>,
}

impl Meter {
    fn sample(&mut self, is_snapshot: bool, rows: u64, now: Duration) {
        let restarted = self.samples.back().is_some_and(|(_, last)| rows < *last);
        if is_snapshot != self.is_snapshot || restarted {
            self.samples.clear();
            self.is_snapshot = is_snapshot;
        }
        self.samples.push_back((now, rows));
        // The oldest sample is the last one that the window has left behind.
        while self.samples.get(1).is_some_and(|(at, _)| now.saturating_sub(*at) >= WINDOW) {
            self.samples.pop_front();
        }
    }

    fn speed(&self) -> Option<f64> {
        let ((begun, before), (now, rows)) = (self.samples.front()?, self.samples.back()?);
        let seconds = now.saturating_sub(*begun).as_secs_f64();
        (seconds >= 1.0 && rows > before).then(|| rows.saturating_sub(*before) as f64 / seconds)
    }
}

/// When a line is due: at once for a phase that was not told yet, else not more often than [`LINE_EVERY`].
#[derive(Debug, Default)]
struct Lines {
    told: Vec<Phase>,
    last: Option<(Duration, Phase, u64)>,
}

impl Lines {
    fn is_due(&mut self, phase: Phase, rows: u64, now: Duration) -> bool {
        let is_busy = match phase {
            Phase::Starting | Phase::CatchingUp | Phase::Following | Phase::Retrying => false,
            Phase::Snapshotting => true,
            // How a connector ended is told by whoever awaits it; only a daemon pauses one, or opens a breaker.
            Phase::Completed
            | Phase::Stopped
            | Phase::Paused
            | Phase::ContinuityLost
            | Phase::BreakerOpen
            | Phase::Fenced
            | Phase::Failed => return false,
        };
        let is_new = phase != Phase::Starting && !self.told.contains(&phase);
        let is_due = is_new
            || self.last.is_some_and(|(at, told, told_rows)| {
                now.saturating_sub(at) >= LINE_EVERY && (is_busy || told != phase || told_rows != rows)
            });
        if is_due {
            self.last = Some((now, phase, rows));
            if is_new {
                self.told.push(phase);
            }
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::continuity::stamp::{Kind, RowCounts};
    use crate::sink::Tally;
    use crate::step::Step;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_state_is_described_as_far_as_it_is_known() {
        let following = Status { phase: Phase::Following, last_step: Step::new(7).ok(), ..Status::default() };
        let tally = Arc::new(Tally::default());
        for rows in [12_000, 345] {
            tally.count(Kind::Append, RowCounts { i: rows, ..RowCounts::default() }, 1024);
        }
        let catching_up = Status { phase: Phase::CatchingUp, tally, ..following.clone() };
        let cases = [
            (Status::default(), None, "starting"),
            (following, Some(5.0), "following: step 7"),
            (catching_up, Some(1234.5), "catching_up: step 7, 2 appends, 12,345 rows, 2.0 KiB, 1,234 rows/s"),
        ];
        for (status, speed, expected) in cases {
            assert_eq!(describe(&status, speed), expected);
        }
    }

    #[test]
    fn a_snapshot_is_described_with_what_is_left() {
        let status = Status {
            phase: Phase::Snapshotting,
            snapshot: Some(Arc::default()),
            snapshot_step: Step::new(9).ok(),
            ..Status::default()
        };
        assert_eq!(describe(&status, None), "snapshotting step 9: 0 rows");
    }

    #[test]
    fn speed_looks_back_over_the_window_and_forgets_other_work() {
        let mut meter = Meter::default();
        meter.sample(true, 0, at(0));
        assert_eq!(meter.speed(), None);
        meter.sample(true, 100, at(1));
        assert_eq!(meter.speed(), Some(100.0));
        for second in 2..=30 {
            meter.sample(true, 100 + (second - 1) * 10, at(second));
        }
        assert_eq!(meter.speed(), Some(10.0));
        meter.sample(false, 5000, at(31));
        assert_eq!(meter.speed(), None);
    }

    #[test]
    fn lines_come_with_phases_and_then_every_ten_seconds() {
        let mut lines = Lines::default();
        let cases = [
            (Phase::Starting, 0, 0, false),
            (Phase::Snapshotting, 0, 1, true),
            (Phase::Snapshotting, 50, 5, false),
            (Phase::Snapshotting, 50, 11, true),
            (Phase::CatchingUp, 0, 12, true),
            (Phase::Following, 0, 13, true),
            (Phase::CatchingUp, 9, 14, false),
            (Phase::Following, 9, 15, false),
            (Phase::Following, 9, 23, true),
            (Phase::Following, 9, 99, false),
            (Phase::Failed, 9, 200, false),
        ];
        for (phase, rows, second, expected) in cases {
            assert_eq!(lines.is_due(phase, rows, at(second)), expected, "{phase} at {second} s");
        }
    }
}
