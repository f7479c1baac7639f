//! What every source promises, held against a table of a real server: its steps are the server's, so the states at them are
//! known by snapshots alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use cutover::arrow::array::{AsArray, RecordBatch};
use cutover::disk::FileSystem;
use cutover::inspect::json_rows::write_ndjson;
use cutover::source::postgres::{Feed, FeedSettings, TableSettings};
use cutover::source::{Next, Pick, Source};
use cutover::steplog::Limits;
use cutover::{Changes, ErrorKind, Step, View, World};
use futures::TryStreamExt;
use serde_json::Value;
use tempfile::TempDir;

use super::server::Postgres;
use crate::program::{PATIENCE, wait_until};

/// Rows by key; without a key by themselves, with the number of copies.
type State = BTreeMap<String, (String, i64)>;

const TABLES: &str = "CREATE TABLE t (a text, b int, v numeric(9,2), w text[], PRIMARY KEY (b, a));
    INSERT INTO t SELECT 'a' || i % 10, i, i / 3.0, ARRAY[i::text, NULL] FROM generate_series(1, 5000) i;
    CREATE TABLE bag (x int, y text); ALTER TABLE bag REPLICA IDENTITY FULL;
    INSERT INTO bag SELECT i % 5, NULL FROM generate_series(1, 40) i";
const WRITES: &str =
    "UPDATE t SET v = v + 1 WHERE b % 3 = 0; DELETE FROM t WHERE b % 11 = 0; INSERT INTO bag VALUES (1, 'x'), (1, 'x');
    BEGIN; INSERT INTO t VALUES ('new', 1, NULL, NULL); UPDATE t SET b = -b WHERE b < 9; DELETE FROM t WHERE b = -2;
    DELETE FROM bag WHERE x = 3; COMMIT; BEGIN; DELETE FROM t; ROLLBACK; UPDATE bag SET y = x::text WHERE x = 2";

async fn open(home: &TempDir, server: &Postgres) -> Feed {
    let table = |view: &str| TableSettings {
        view: view.into(),
        table: view.into(),
        key: Vec::new(),
        columns: Vec::new(),
        directory: home.path().join(view),
        limits: Limits::of(64 << 20),
        register: home.path().join(format!("{view}.json")),
        connectors: vec![("c".into(), cutover::source::logged::WhenFull::Wait)],
    };
    ["t", "bag"].iter().for_each(|view| std::fs::create_dir_all(home.path().join(view)).unwrap());
    let settings = FeedSettings {
        url: server.url(),
        slot: "contract".into(),
        publication: "contract".into(),
        max_wal: None,
        evidence: home.path().join("evidence.json"),
        tables: vec![table("t"), table("bag")],
    };
    let feed = Feed::open(settings, Arc::new(FileSystem), &World::system()).await.unwrap();
    feed.met().await;
    feed
}

/// What names each row, and the row.
fn rendered(rows: &RecordBatch, view: &View) -> Vec<(String, String)> {
    let mut text = Vec::new();
    write_ndjson(rows, &mut text).unwrap();
    let name = |line: &str| match view.key() {
        [] => line.to_owned(),
        key => {
            let row: Value = serde_json::from_str(line).unwrap();
            key.iter().map(|column| row[column].to_string()).collect::<Vec<_>>().join("|")
        }
    };
    String::from_utf8(text).unwrap().lines().map(|line| (name(line), line.to_owned())).collect()
}

fn apply(state: &mut State, op: &str, (key, row): (String, String), view: &View) {
    if view.is_keyed() && op == "d" {
        state.remove(&key);
    } else if view.is_keyed() {
        state.insert(key, (row, 1));
    } else {
        let entry = state.entry(key).or_insert((row, 0));
        entry.1 += if op == "d" { -1 } else { 1 };
    }
    state.retain(|_, (_, copies)| *copies != 0);
}

async fn snapshot(source: &mut dyn Source, pick: Pick) -> (View, Step, State) {
    let (view, snapshot) = source.snapshot(pick).await.unwrap();
    let step = snapshot.step;
    let batches: Vec<RecordBatch> = snapshot.rows.try_collect().await.unwrap();
    let mut state = State::new();
    for batch in &batches {
        assert_eq!(batch.schema_ref(), view.schema());
        for (key, row) in rendered(batch, &view) {
            let copies = &mut state.entry(key).or_insert((row, 0)).1;
            *copies += 1;
            assert!(!view.is_keyed() || *copies == 1, "a key comes twice");
        }
    }
    (view, step, state)
}

/// The changes after `after` until step `to`, each answer going on where the one before it ended.
async fn changes(source: &mut dyn Source, after: Step, to: Step, view: &View) -> Vec<Changes> {
    let (mut at, mut answers) = (after, Vec::new());
    while at < to {
        match source.changes(at, view).await.unwrap() {
            Next::Changes(changes) => {
                assert!(changes.range().from() <= at && at < changes.range().to(), "{} at {at}", changes.range());
                let changes = changes.after(at).unwrap().unwrap();
                at = changes.range().to();
                answers.push(changes);
            }
            Next::Pending | Next::Idle { hole: None } => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    }
    answers
}

fn folded(state: &State, answers: &[Changes], until: Step, view: &View) -> State {
    let mut state = state.clone();
    for changes in answers.iter().filter_map(|changes| changes.clone().until(until).unwrap()) {
        for batch in changes.batches() {
            let ops = batch.column_by_name("__op").unwrap().as_string::<i32>().clone();
            let columns: Vec<usize> = (2..batch.num_columns()).collect();
            let rows = rendered(&batch.project(&columns).unwrap(), view);
            rows.into_iter().zip(ops.iter()).for_each(|(row, op)| apply(&mut state, op.unwrap(), row, view));
        }
    }
    state
}

#[test]
fn a_table_of_a_server_keeps_what_every_source_promises() {
    let Some(server) = Postgres::find("a_table_of_a_server_keeps_what_every_source_promises") else { return };
    server.sql(TABLES);
    let home = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let feed = open(&home, &server).await;
        for view in ["t", "bag"] {
            let mut source = feed.source(view, Some("c")).unwrap();
            let (name, key) = (source.name().to_owned(), source.key().to_vec());
            let fingerprint = source.fingerprint().to_owned();
            let (own, first, state) = snapshot(&mut source, Pick::Newest { until: None }).await;
            assert_eq!((own.name(), own.key()), (name.as_str(), key.as_slice()));
            for _ in 0..3 {
                server.sql(WRITES);
                server.sql("DELETE FROM t WHERE a = 'new' OR b < 0");
            }
            let (_, last, expected) = snapshot(&mut source, Pick::Since { from: first, until: None }).await;
            assert!(first < last && state != expected);
            let answers = changes(&mut source, first, last, &own).await;
            assert_eq!(folded(&state, &answers, last, &own), expected, "{view}");
            // Asking again gives the same, from wherever an answer ended, by another reader too.
            let mut another = feed.source(view, None).unwrap();
            assert_eq!(another.fingerprint(), fingerprint);
            for (at, answer) in answers.iter().enumerate().rev() {
                let from = answer.range().from().max(first);
                let again = changes(&mut another, from, last, &own).await;
                let before = folded(&state, &answers[..at], last, &own);
                assert_eq!(folded(&before, &again, last, &own), expected, "{view} after {from}");
            }
            // A server keeps no older state, and what it has not reached is for later.
            let older = source.snapshot(Pick::Reached { until: Some(first) }).await.unwrap_err();
            assert_eq!(older.kind(), ErrorKind::Refused, "{older}");
            let far = Step::new(last.get() + (1 << 40)).unwrap();
            let later = source.snapshot(Pick::Since { from: far, until: None }).await.unwrap_err();
            assert_eq!(later.kind(), ErrorKind::Unavailable, "{later}");
            let position = source.position().await.unwrap();
            assert!(position.latest >= Some(last) && position.held_from() <= first, "{position:?}");
            // What is safe may be forgotten, and nothing after it is.
            let middle = answers[0].range().to();
            source.acknowledge(middle).await.unwrap();
            let before = folded(&state, &answers[..1], last, &own);
            let rest = changes(&mut source, middle, last, &own).await;
            assert_eq!(folded(&before, &rest, last, &own), expected, "{view}");
            assert_eq!((source.name(), source.key(), source.fingerprint()), (&*name, &*key, &*fingerprint));
            source.acknowledge(last).await.unwrap();
        }
        // What comes later is told without being asked for.
        let mut source = feed.source("t", Some("c")).unwrap();
        let at = source.position().await.unwrap().latest.unwrap();
        let view = source.view(at).await.unwrap();
        server.sql("INSERT INTO t VALUES ('late', 0, 1, NULL)");
        source.more(at).await.unwrap();
        let is_there = changes(&mut source, at, Step::new(at.get() + 1).unwrap(), &view).await;
        assert!(is_there.iter().map(Changes::rows).sum::<u64>() == 1);
        drop(source);
        feed.close().await.unwrap();
    });
    let is_free = || server.sql("SELECT count(*) FROM pg_replication_slots WHERE active") == "0";
    assert!(wait_until(PATIENCE, is_free));
}
