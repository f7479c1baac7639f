use std::fs;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::clock::{Clock, Ids};
use crate::connector::breaker::{Backoff, BreakerSettings, Permit};
use crate::connector::manual_clock::ManualClock;
use crate::error::ErrorKind;
use crate::generation::Generation;
use crate::step::Step;

struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    settings: BreakerSettings,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), clock: Arc::default(), settings: BreakerSettings::default() }
    }

    fn try_open(&self, run: &str) -> Result<Journal> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let world = World { clock, ids: Arc::new(Ids::from_seed(1)) };
        let breaker = Breaker::new(self.settings, Backoff::default());
        Journal::open(self.dir.path(), "p/v/c", breaker, BootId::new(run), world)
    }

    fn open(&self) -> Journal {
        self.try_open("run").unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.dir.path().join(FILE)).unwrap()
    }

    fn write(&self, bytes: &[u8]) {
        fs::write(self.dir.path().join(FILE), bytes).unwrap();
    }
}

fn accepted(id: &str) -> Event {
    Event::Accepted {
        id: id.into(),
        key: Some(format!("key of {id}")),
        who: "ops".into(),
        why: "\"rows\"\nlook wrong \u{1b}".into(),
        trigger: Trigger::Asked,
        expected_generation: Some(Generation::FIRST),
        breaker: BreakerRule::Heed,
    }
}

fn committed(id: &str) -> Event {
    Event::Committed { id: id.into(), version: Some(7), generation: Generation::FIRST, step: Step::ZERO }
}

/// The events of a life with all of them.
fn life() -> Vec<Event> {
    let id = |id: &str| id.to_string();
    vec![
        accepted("a"),
        Event::Joined { id: id("a"), key: "another".into() },
        Event::Snapshotting { id: id("a") },
        Event::Committing { id: id("a") },
        Event::Snapshotting { id: id("a") },
        committed("a"),
        Event::Paused { who: "ops".into() },
        accepted("b"),
        Event::Cancelled { id: id("b"), who: "ops".into() },
        Event::Resumed { who: "ops".into() },
        accepted("c"),
        Event::Snapshotting { id: id("c") },
        Event::Failed { id: id("c"), code: "refused".into(), reason: "no".into() },
        accepted("d"),
        Event::Expired { id: id("d") },
        Event::Paused { who: "ops".into() },
    ]
}

fn told(book: &Book) -> (Vec<ResetRecord>, bool, Breaker, Option<String>) {
    let keyed = book.keyed("another").map(|reset| reset.id.clone());
    (book.resets().cloned().collect(), book.is_paused(), book.breaker().clone(), keyed)
}

#[test]
fn a_journal_cut_anywhere_tells_what_its_whole_lines_do() {
    let bench = Bench::new();
    let mut journal = bench.open();
    let mut after = vec![told(journal.book())];
    for event in life() {
        bench.clock.advance(Duration::from_secs(7));
        journal.record(event).unwrap();
        after.push(told(journal.book()));
    }
    drop(journal);
    let bytes = bench.bytes();
    // Every byte is cut at in the tests of lines; here those count that end one.
    for end in (0..=bytes.len()).filter(|end| end % 50 == 0 || bytes[..*end].ends_with(b"\n")) {
        bench.write(&bytes[..end]);
        let whole = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(told(bench.open().book()), after[whole.saturating_sub(1)], "cut at {end}");
    }
}

#[test]
fn what_does_not_follow_is_refused_and_not_written() {
    let bench = Bench::new();
    let mut journal = bench.open();
    journal.record(accepted("a")).unwrap();
    for wrong in [accepted("b"), accepted("a"), committed("b"), Event::Expired { id: "b".into() }] {
        assert_eq!(journal.record(wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    journal.record(committed("a")).unwrap();
    assert!(journal.record(committed("a")).is_err() && journal.record(accepted("a")).is_err());
    drop(journal);
    assert_eq!(bench.open().book().resets().count(), 1);
}

#[test]
fn a_damaged_line_in_the_middle_names_its_place_and_remedy() {
    let bench = Bench::new();
    let mut journal = bench.open();
    life().into_iter().for_each(|event| journal.record(event).unwrap());
    drop(journal);
    let text = String::from_utf8(bench.bytes()).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let changed = lines[3].replace("snapshotting", "committing");
    lines[3] = &changed;
    bench.write((lines.join("\n") + "\n").as_bytes());
    let error = bench.try_open("run").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("line 4") && error.message().contains("move it away"), "{error}");

    lines.remove(3);
    lines.remove(1);
    bench.write((lines.join("\n") + "\n").as_bytes());
    let error = bench.try_open("run").unwrap_err();
    assert!(error.message().contains("line 3") && error.message().contains("does not follow"), "{error}");
}

#[test]
fn a_journal_belongs_to_one_connector_and_one_process() {
    let bench = Bench::new();
    let journal = bench.open();
    assert_eq!(bench.try_open("run").unwrap_err().kind(), ErrorKind::Refused);
    drop(journal);
    let world = World { clock: Arc::clone(&bench.clock) as Arc<dyn Clock>, ids: Arc::new(Ids::from_seed(1)) };
    let breaker = Breaker::new(bench.settings, Backoff::default());
    let other = Journal::open(bench.dir.path(), "p/v/d", breaker, BootId::new("run"), world);
    assert_eq!(other.unwrap_err().kind(), ErrorKind::Refused);
}

#[test]
fn a_long_journal_is_compacted_to_what_is_remembered() {
    let bench = Bench::new();
    let mut journal = bench.open();
    journal.long = 40;
    let (mut longest, count) = (0, 1200);
    for n in 0..count {
        let id = format!("reset {n}");
        journal.long = journal.long.min(2500);
        journal.record(accepted(&id)).unwrap();
        journal.record(committed(&id)).unwrap();
        if n % 50 == 0 {
            journal.record(Event::Paused { who: "ops".into() }).unwrap();
            journal.record(Event::Resumed { who: "ops".into() }).unwrap();
        }
        longest = longest.max(journal.lines.count());
    }
    bench.clock.advance(Duration::from_secs(60));
    journal.compact().unwrap();
    assert!(longest <= 2500 && journal.lines.count() <= 2010, "{longest} {}", journal.lines.count());
    let (expected, now) = (told(journal.book()), journal.now());
    drop(journal);
    let mut again = bench.open();
    assert_eq!(told(again.book()), expected);
    assert_eq!(again.now(), now);
    assert_eq!(again.book().resets().count(), 1000);
    assert!(again.book().keyed("key of reset 199").is_none() && again.book().keyed("key of reset 200").is_some());
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Pass(u64),
    SetWall(i64),
    Crash,
    Reboot { off: u64, wall_back: i64 },
    Lost,
    Committed,
    Failed,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => (0u64..1500).prop_map(Move::Pass),
        1 => (-1_000_000i64..1_000_000).prop_map(Move::SetWall),
        1 => Just(Move::Crash),
        1 => (0u64..5000, 0i64..100_000).prop_map(|(off, wall_back)| Move::Reboot { off, wall_back }),
        4 => Just(Move::Lost),
        2 => Just(Move::Committed),
        1 => Just(Move::Failed),
    ];
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]

    /// By true time, which no clock shows: the boot clock starts anew, the wall clock is set at will, and across a reboot it
    /// is never ahead of where it was.
    #[test]
    fn no_window_has_more_automatic_resets_than_the_budget_over_crashes_and_clocks_that_jump(moves in moves()) {
        let bench = Bench::new();
        let mut run = 0;
        let mut journal = bench.try_open("0").unwrap();
        let (mut truth, mut begun, mut noted_wall, mut noted_truth) = (0u64, Vec::new(), 0i64, 0u64);
        for one in moves {
            match one {
                Move::Pass(secs) => {
                    truth += secs;
                    bench.clock.advance(Duration::from_secs(secs));
                }
                Move::SetWall(by) => bench.clock.set_wall_ahead(by * 1000),
                Move::Crash => {
                    drop(journal);
                    journal = bench.try_open(&run.to_string()).unwrap();
                }
                Move::Reboot { off, wall_back } => {
                    drop(journal);
                    run += 1;
                    truth += off;
                    let wall = noted_wall + (truth - noted_truth) as i64 * 1000 - wall_back * 1000;
                    bench.clock.reboot(wall);
                    journal = bench.try_open(&run.to_string()).unwrap();
                }
                Move::Lost | Move::Committed | Move::Failed => {
                    let unfinished = journal.book().unfinished().map(|reset| reset.id.clone());
                    let now = journal.now();
                    let event = match (one, unfinished) {
                        (Move::Lost, None) if journal.book().breaker().automatic(now, 0.5) == Permit::Go => {
                            begun.push(truth);
                            accepted(&format!("{}", begun.len()))
                        }
                        (Move::Committed, Some(id)) => committed(&id),
                        (Move::Failed, Some(id)) => Event::Failed { id, code: "c".into(), reason: "r".into() },
                        _ => continue,
                    };
                    journal.record(event).unwrap();
                    (noted_wall, noted_truth) = (bench.clock.unix_millis(), truth);
                }
            }
        }
        let window = bench.settings.window.as_secs();
        for (i, at) in begun.iter().enumerate() {
            let within = begun.iter().skip(i).filter(|other| **other < at + window).count();
            prop_assert!(within <= 3, "{within} from {at} on: {begun:?}");
        }
    }
}
