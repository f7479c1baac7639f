use std::fs;
use std::path::Path;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use futures::TryStreamExt;
use futures::future::join_all;
use tempfile::TempDir;

use super::*;
use crate::continuity::stamp::COLUMN_OP;
use crate::disk::FileSystem;
use crate::source::contract_tests::{Expected, State, apply, check_contract, check_follow, check_snapshot};
use crate::source::{Next, Pick, Source};

const SMALL: Limits = Limits { max_bytes: 64 << 10, segment_bytes: 2 << 10, queue_bytes: 1 << 20 };

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn view() -> View {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)];
    View::new("orders", &Schema::new(fields), vec!["id".into()]).unwrap()
}

fn batch(changes: &[(&str, i64, &str)]) -> RecordBatch {
    let fields = view().change_schema();
    let fields: Vec<_> = fields.fields().iter().skip(1).cloned().collect();
    assert_eq!(fields[0].name(), COLUMN_OP);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(changes.iter().map(|(op, ..)| *op))),
        Arc::new(Int64Array::from_iter_values(changes.iter().map(|(_, id, _)| *id))),
        Arc::new(StringArray::from_iter_values(changes.iter().map(|(.., text)| text))),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

fn whole(changes: &[(&str, i64, &str)]) -> Operations {
    Operations::whole(batch(changes)).unwrap()
}

fn at(n: u64) -> At {
    At::Step { step: step(n), after: step(n - 1) }
}

fn open(root: &Path, connectors: &[(&str, WhenFull)]) -> Result<LiveView> {
    let connectors = connectors.iter().map(|(name, when)| ((*name).to_owned(), *when)).collect();
    let (log, store) = (root.join("log"), Some(root.join("view")));
    let settings =
        PushSettings { view: view(), log, store, limits: SMALL, register: root.join("detached"), connectors };
    LiveView::open(settings, Arc::new(FileSystem), &World::system())
}

fn begun(connectors: &[(&str, WhenFull)]) -> (TempDir, LiveView) {
    let root = tempfile::tempdir().unwrap();
    let live = open(root.path(), connectors).unwrap();
    (root, live)
}

/// The row of key `id` after step `n` of the pushes below.
fn pushed(n: u64) -> Vec<(&'static str, i64, String)> {
    vec![("i", (n % 7) as i64, format!("at {n}")), ("d", (n % 5) as i64 + 2, String::new())]
}

async fn push(live: &LiveView, n: u64) -> Answer {
    let changes = pushed(n);
    let changes: Vec<_> = changes.iter().map(|(op, id, text)| (*op, *id, text.as_str())).collect();
    live.push(whole(&changes), at(n)).await.unwrap()
}

/// The states that steps 1 to `last` lead to.
fn expected(last: u64) -> Expected {
    let mut states = BTreeMap::from([(0, State::new())]);
    let mut state = State::new();
    for n in 1..=last {
        for (op, id, text) in pushed(n) {
            match op {
                "d" => drop(state.remove(&id.to_string())),
                _ => drop(state.insert(id.to_string(), (format!("{id}|{text}"), 1))),
            }
        }
        states.insert(n, state.clone());
    }
    Expected { states, snapshot: last, reached: last }
}

#[tokio::test]
async fn a_pushed_view_keeps_what_every_source_promises() {
    let (root, live) = begun(&[("lake", WhenFull::Wait)]);
    for n in 1..=20 {
        assert_eq!(push(&live, n).await, Answer::Stored(step(n)));
    }
    let mut source = live.source("lake");
    check_follow(&mut source, Step::ZERO, &mut State::new(), &expected(20)).await;
    check_contract(&mut source, &expected(20)).await;
    let too_early = source.snapshot(Pick::Reached { until: Some(step(19)) }).await.unwrap_err();
    assert!(too_early.message().contains("is at step 20"), "{too_early}");
    let fingerprint = source.fingerprint().to_owned();
    drop(source);
    live.close().await.unwrap();
    let live = open(root.path(), &[]).unwrap();
    let mut source = live.source("lake");
    assert_eq!(source.fingerprint(), fingerprint);
    check_snapshot(&mut source, Pick::Newest { until: None }, 20, &expected(20)).await;
}

#[tokio::test]
async fn a_step_is_stored_once_and_what_contradicts_it_is_told_apart() {
    let (root, live) = begun(&[("lake", WhenFull::Wait)]);
    push(&live, 1).await;
    push(&live, 2).await;
    assert_eq!(push(&live, 1).await, Answer::AlreadyStored(step(1)));
    assert_eq!(live.push(whole(&[("i", 1, "other")]), at(2)).await.unwrap(), Answer::OtherContent(step(2)));
    assert_eq!(push(&live, 4).await, Answer::Gap { last: step(2) });
    let update = || {
        Operations::new(1, 10, 99, |current| {
            let keys = RecordBatch::try_from_iter([("id", Arc::new(Int64Array::from(vec![2])) as ArrayRef)]).unwrap();
            let found = current(&keys)?;
            let text = found.column(1).as_string::<i32>().value(0).to_owned() + " again";
            Ok(batch(&[("u", 2, &text)]))
        })
    };
    assert_eq!(live.push(update(), at(3)).await.unwrap(), Answer::Stored(step(3)));
    live.close().await.unwrap();
    let live = open(root.path(), &[]).unwrap();
    assert_eq!(
        live.push(update(), at(3)).await.unwrap(),
        Answer::AlreadyStored(step(3)),
        "the row is another one by now"
    );
    let (_, snapshot) = live.source("x").snapshot(Pick::Newest { until: None }).await.unwrap();
    let rows: Vec<RecordBatch> = snapshot.rows.try_collect().await.unwrap();
    let texts: Vec<&str> = rows.iter().flat_map(|b| b.column(1).as_string::<i32>().iter().flatten()).collect();
    assert_eq!(texts, ["at 1", "at 2 again"]);
    let error = live.push(whole(&[("i", 1, "a")]), At::Step { step: step(3), after: step(3) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn pushes_that_wait_at_once_get_a_step_each_and_a_refused_one_takes_none() {
    let (_root, live) = begun(&[("lake", WhenFull::Wait)]);
    let batches: Vec<RecordBatch> = (0..40).map(|n| batch(&[("i", n, "x")])).collect();
    let unkeyed = batch(&[("i", 1, "x")]);
    let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
    let unkeyed =
        RecordBatch::try_new(unkeyed.schema(), vec![unkeyed.column(0).clone(), null, unkeyed.column(2).clone()]);
    let mut pushes: Vec<_> = batches.into_iter().map(|b| live.push(Operations::whole(b).unwrap(), At::Next)).collect();
    pushes.insert(20, live.push(Operations::whole(unkeyed.unwrap()).unwrap(), At::Next));
    let mut answers = join_all(pushes).await;
    let refused = answers.remove(20).unwrap_err();
    assert!(refused.message().contains("null in the key column \"id\""), "{refused}");
    let mut steps: Vec<u64> = answers
        .into_iter()
        .map(|answer| match answer.unwrap() {
            Answer::Stored(step) => step.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    steps.sort_unstable();
    assert_eq!(steps, (1..=40).collect::<Vec<_>>());
    assert_eq!((live.standing().log.last, live.standing().rows), (step(40), Some(40)));
}

#[tokio::test]
async fn a_snapshot_stays_as_it_is_while_steps_go_on() {
    let (_root, live) = begun(&[("lake", WhenFull::Wait)]);
    for n in 1..=10 {
        push(&live, n).await;
    }
    let mut source = live.source("lake");
    let (view, snapshot) = source.snapshot(Pick::Newest { until: None }).await.unwrap();
    for n in 11..=30 {
        push(&live, n).await;
    }
    assert_eq!(snapshot.step, step(10));
    let mut state = State::new();
    for batch in snapshot.rows.try_collect::<Vec<_>>().await.unwrap() {
        crate::source::contract_tests::add_rows(&mut state, &batch, &view);
    }
    assert_eq!(state, expected(30).at(step(10)));
    check_follow(&mut source, step(10), &mut state, &expected(30)).await;
}

#[tokio::test]
async fn a_full_log_waits_for_one_connector_and_lets_go_of_another() {
    let (root, live) = begun(&[("slow", WhenFull::Wait)]);
    let text = "x".repeat(3000);
    let mut n = 0;
    let full = loop {
        n += 1;
        match live.push(whole(&[("i", n as i64, &text)]), at(n)).await.unwrap() {
            Answer::Stored(_) => {}
            answer => break answer,
        }
    };
    assert!(matches!(full, Answer::Full { .. }), "{full:?}");
    let standing = live.standing();
    assert!(standing.is_full && standing.refusal.is_some_and(|why| why.contains("full")));
    let mut slow = live.source("slow");
    slow.acknowledge(step(n - 1)).await.unwrap();
    assert_eq!(live.push(whole(&[("i", n as i64, &text)]), at(n)).await.unwrap(), Answer::Stored(step(n)));
    let standing = live.standing();
    assert!(!standing.is_full && standing.refusal.is_none(), "{standing:?}");
    let view = view();
    let gone = slow.changes(step(1), &view).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::ContinuityLost);
    assert!(gone.message().contains("after step 1 are wanted"), "{gone}");
    live.attach("slow", WhenFull::Detach).await.unwrap();
    let mut troubles = live.troubles();
    for n in n + 1..n + 60 {
        assert_eq!(live.push(whole(&[("i", n as i64, &text)]), at(n)).await.unwrap(), Answer::Stored(step(n)));
    }
    assert!(live.standing().connectors.is_empty());
    let told = troubles.next().await.unwrap();
    assert!(matches!(told.as_slice(), [Trouble::Detached { connector, .. }] if connector == "slow"), "{told:?}");
    assert!(live.standing().log.bytes <= SMALL.max_bytes);
    // It is so after a restart, too, until it takes a snapshot.
    drop(slow);
    live.close().await.unwrap();
    assert_eq!(troubles.next().await, None, "it is told once");
    let live = open(root.path(), &[("slow", WhenFull::Detach)]).unwrap();
    assert!(live.standing().connectors.is_empty(), "{:?}", live.standing());
    let mut slow = live.source("slow");
    let gone = slow.changes(step(1), &view).await.unwrap_err();
    assert!(gone.message().contains("it was detached at step"), "{gone}");
    // Looking at a snapshot is not yet taking it.
    let (_, snapshot) = slow.snapshot(Pick::Newest { until: None }).await.unwrap();
    assert!(live.standing().connectors.is_empty(), "{:?}", live.standing());
    let rows: Vec<RecordBatch> = snapshot.rows.try_collect().await.unwrap();
    assert_eq!(live.standing().connectors.keys().collect::<Vec<_>>(), ["slow"]);
    assert_eq!(live.standing().rows, Some(rows.iter().map(|batch| batch.num_rows() as u64).sum()));
    slow.acknowledge(snapshot.step).await.unwrap();
    drop(slow);
    live.close().await.unwrap();
    let live = open(root.path(), &[("slow", WhenFull::Detach)]).unwrap();
    assert_eq!(live.standing().connectors.keys().collect::<Vec<_>>(), ["slow"]);
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copied(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test]
async fn whatever_the_process_dies_after_what_was_answered_is_there_once() {
    let (root, live) = begun(&[("lake", WhenFull::Wait)]);
    for n in 1..=8 {
        push(&live, n).await;
        let copy = root.path().join(format!("after {n}"));
        for part in ["log", "view"] {
            copied(&root.path().join(part), &copy.join(part));
        }
        let risen = open(&copy, &[("lake", WhenFull::Wait)]).unwrap();
        check_snapshot(&mut risen.source("x"), Pick::Newest { until: None }, n, &expected(n)).await;
        assert_eq!(push(&risen, n).await, Answer::AlreadyStored(step(n)));
        assert_eq!(push(&risen, n + 1).await, Answer::Stored(step(n + 1)));
        check_follow(&mut risen.source("x"), Step::ZERO, &mut State::new(), &expected(n + 1)).await;
        risen.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_store_is_caught_up_or_made_again_as_long_as_the_log_reaches_back() {
    let (root, live) = begun(&[("lake", WhenFull::Wait)]);
    for n in 1..=9 {
        push(&live, n).await;
    }
    live.close().await.unwrap();
    fs::remove_dir_all(root.path().join("view")).unwrap();
    let live = open(root.path(), &[("lake", WhenFull::Wait)]).unwrap();
    let mut source = live.source("lake");
    check_snapshot(&mut source, Pick::Newest { until: None }, 9, &expected(9)).await;
    drop(source);
    let text = "x".repeat(3000);
    for n in 10..=40 {
        live.push(whole(&[("i", n as i64, &text)]), at(n)).await.unwrap();
        live.source("lake").acknowledge(step(n)).await.unwrap();
    }
    assert!(live.standing().log.earliest > Step::ZERO, "{:?}", live.standing());
    live.close().await.unwrap();
    fs::remove_dir_all(root.path().join("view")).unwrap();
    let error = open(root.path(), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("what is between is gone"), "{error}");
}

#[tokio::test]
async fn a_view_that_is_not_materialized_has_changes_and_no_snapshot() {
    let root = tempfile::tempdir().unwrap();
    let settings = PushSettings {
        view: view(),
        log: root.path().join("log"),
        store: None,
        limits: SMALL,
        register: root.path().join("detached"),
        connectors: vec![("lake".into(), WhenFull::Wait)],
    };
    let live = LiveView::open(settings, Arc::new(FileSystem), &World::system()).unwrap();
    let mut source = live.source("lake");
    let mut waiting = live.source("lake");
    let (woken, answer) = tokio::join!(waiting.more(Step::ZERO), push(&live, 1));
    woken.unwrap();
    assert_eq!(answer, Answer::Stored(step(1)));
    let refused = source.snapshot(Pick::Newest { until: None }).await.unwrap_err();
    assert!(refused.message().contains("materialized = true"), "{refused}");
    let partial = Operations::new(1, 1, 1, |current| current(&RecordBatch::new_empty(view().schema().clone())));
    assert_eq!(live.push(partial, At::Next).await.unwrap_err().kind(), ErrorKind::Refused);
    let Next::Changes(changes) = source.changes(Step::ZERO, &view()).await.unwrap() else { panic!("no changes") };
    let mut state = State::new();
    apply(&mut state, &changes, &view());
    assert_eq!(state, expected(1).at(step(1)));
    assert_eq!(changes.batches()[0].column(0).as_primitive::<Int64Type>().value(0), 1);
}

#[tokio::test]
async fn many_readers_share_pinned_rows_that_are_near_and_followed_in_the_log() {
    let (_root, live) = begun(&[("lake", WhenFull::Wait)]);
    push(&live, 1).await;
    let step_of = async |source: PushSource| {
        let mut source = source;
        let (_, snapshot) = source.snapshot(Pick::Newest { until: None }).await.unwrap();
        (snapshot.step.get(), snapshot)
    };
    let (first, held) = step_of(live.anonymous_source().among_many()).await;
    push(&live, 2).await;
    let (second, shared) = step_of(live.anonymous_source().among_many()).await;
    let (alone, _) = step_of(live.anonymous_source()).await;
    assert_eq!((first, second, alone), (1, 1, 2), "one of few gets the rows as they are");
    let rows: Vec<RecordBatch> = shared.rows.try_collect().await.unwrap();
    assert_eq!(rows, held.rows.try_collect::<Vec<_>>().await.unwrap());
    assert_eq!(step_of(live.anonymous_source().among_many()).await.0, 2, "nobody reads the older ones any more");
    let (near, held) = step_of(live.anonymous_source().among_many()).await;
    for n in 3..=103 {
        push(&live, n).await;
        live.source("lake").acknowledge(step(n)).await.unwrap();
    }
    assert_eq!((near, step_of(live.anonymous_source().among_many()).await.0), (2, 103), "too far behind");
    drop(held);
}
