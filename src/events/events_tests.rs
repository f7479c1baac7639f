use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::*;

fn draft(n: u64) -> Draft {
    Draft::new(5, Kind::Appended, About::connector("p", "v", "c"), json!({ "n": n }))
}

fn open(path: &Path) -> Arc<Events> {
    Events::open(path, &World::system()).unwrap()
}

async fn reached(events: &Events, id: u64) {
    let mut last = events.last();
    let waited = tokio::time::timeout(Duration::from_secs(60), last.wait_for(|last| *last >= id)).await;
    waited.expect("the events are written").unwrap();
}

/// Tells of `from..to`, and waits until each is written.
async fn tell(events: &Events, from: u64, to: u64) {
    for n in from..to {
        events.tell(draft(n));
        if n % 500 == 0 {
            reached(events, n).await;
        }
    }
    reached(events, to - 1).await;
}

#[tokio::test]
async fn numbers_go_on_over_restarts_and_none_is_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut kept = Vec::new();
    for round in 0..3 {
        let events = open(dir.path());
        let before = events.after(0, 100).events;
        assert_eq!(before, kept, "round {round}");
        (0..5).for_each(|n| events.tell(draft(n)));
        events.close().await.unwrap();
        events.tell(draft(9));
        kept = events.after(0, 100).events;
        let ids: Vec<u64> = kept.iter().map(|e| e.id).collect();
        assert_eq!(ids, (1..=5 * (round + 1)).collect::<Vec<_>>());
    }
    let events = open(dir.path());
    assert_eq!(events.after(12, 2).events, kept[12..14]);
    let newest = events.newest(2, |event| event.data["n"] == 3);
    assert_eq!(newest.iter().map(|e| e.id).collect::<Vec<_>>(), [14, 9]);
    let mut uids: Vec<&str> = kept.iter().map(|e| e.uid.as_str()).collect();
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), 15);
}

#[tokio::test]
async fn the_list_is_bounded_and_names_what_has_left_it() {
    let dir = tempfile::tempdir().unwrap();
    let events = open(dir.path());
    let last = KEPT as u64 * 2 + 1500;
    tell(&events, 1, last + 1).await;
    let first = last - KEPT as u64 + 1;
    let asked = |after: u64| events.after(after, 1);
    assert_eq!(asked(0).gone, Some(first));
    assert_eq!(asked(first - 2).gone, Some(first));
    assert_eq!(asked(first - 1).events[0].id, first);
    assert!(asked(last).events.is_empty() && asked(last).gone.is_none());
    assert_eq!(asked(last + 1).gone, Some(first), "a number of another list");
    events.close().await.unwrap();
    let lines = fs::read_to_string(dir.path().join(FILE)).unwrap();
    assert!(lines.matches("\"uid\"").count() < KEPT * 2 + 1000, "the file does not grow without end");
    let events = open(dir.path());
    assert_eq!((events.after(0, 1).gone, *events.last().borrow()), (Some(first), last));
}

#[tokio::test]
async fn what_comes_too_fast_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let events = open(dir.path());
    // Nobody writes meanwhile.
    (0..QUEUE as u64 + 7).for_each(|n| events.tell(draft(n)));
    reached(&events, QUEUE as u64 + 1).await;
    let lost = events.newest(10, |event| event.event == Kind::EventsLost);
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].data["count"], 7);
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_its_numbers_are_not_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let events = open(dir.path());
    for n in 1..4 {
        events.tell(draft(n));
        reached(&events, n).await;
    }
    events.close().await.unwrap();
    drop(events);
    let path = dir.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let events = open(dir.path());
    assert!(events.after(3, 1).events.is_empty());
    events.tell(draft(4));
    events.close().await.unwrap();
    let kept = events.newest(10, |_| true);
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept[1].id > 3 && kept[1].event == Kind::EventsLost, "{kept:?}");
    assert_eq!(fs::read(dir.path().join("events.jsonl.damaged")).unwrap(), bytes);
}

#[test]
fn names_are_words_and_all_are_listed() {
    let words: Vec<String> = Kind::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(words[0], "daemon_started");
    assert!(words.iter().all(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
    let mut sorted = Kind::ALL.to_vec();
    sorted.dedup();
    assert_eq!(sorted.len(), Kind::ALL.len());
}

#[test]
fn long_texts_are_cut_between_characters() {
    let draft = Draft::new(0, Kind::Failed, About::default(), json!({ "reason": "ä".repeat(5000), "n": [1] }));
    let reason = draft.data["reason"].as_str().unwrap();
    assert!(reason.len() < 4200 && reason.ends_with("ä…"), "{}", reason.len());
}
