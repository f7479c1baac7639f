//! What every [`Source`] promises, as checks that any implementation can be held to.
//!
//! The caller says which states the view had; the checks ask the source for snapshots and changes, and apply them.

use std::collections::BTreeMap;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;

use super::{Next, Pick, Source};
use crate::change::{Changes, Op, ops_of};
use crate::digest::Digest;
use crate::error::ErrorKind;
use crate::schema::View;
use crate::step::Step;

/// A view's rows: by key, or by the row itself with the number of its copies.
pub(crate) type State = BTreeMap<String, (String, i64)>;

/// What the source should give.
pub(crate) struct Expected {
    /// The state after each step that changed it; the state of another step is that of the step before it.
    pub(crate) states: BTreeMap<u64, State>,
    /// The step of the newest snapshot.
    pub(crate) snapshot: u64,
    /// The last step that can be reached from that snapshot.
    pub(crate) reached: u64,
}

impl Expected {
    pub(crate) fn at(&self, step: Step) -> State {
        self.states.range(..=step.get()).next_back().map(|(_, state)| state.clone()).unwrap_or_default()
    }
}

/// Everything that `source` promises, given what it should give.
pub(crate) async fn check_contract(source: &mut dyn Source, expected: &Expected) {
    let (name, key, fingerprint) = (source.name().to_owned(), source.key().to_vec(), source.fingerprint().to_owned());
    let snapshot = check_snapshot(source, Pick::Newest { until: None }, expected.snapshot, expected).await;
    check_snapshot(source, Pick::Reached { until: None }, expected.reached, expected).await;
    check_snapshot(source, Pick::Since { from: snapshot, until: None }, expected.reached, expected).await;
    let from = Step::new(snapshot.get() + 1).unwrap();
    let missing = source.snapshot(Pick::Since { from, until: None }).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unavailable, "{missing}");
    for step in snapshot.get()..=expected.reached {
        let until = Some(Step::new(step).unwrap());
        check_snapshot(source, Pick::Reached { until }, step, expected).await;
    }
    let answers = check_follow(source, snapshot, &mut expected.at(snapshot), expected).await;
    let reached = answers.last().map_or(snapshot, |changes| changes.range().to());
    assert_eq!(reached.get(), expected.reached, "where the changes end");
    let (view, _) = source.snapshot(Pick::Newest { until: None }).await.unwrap();
    assert_eq!((view.name(), view.key()), (name.as_str(), key.as_slice()));
    check_repeats(source, &view, snapshot, &answers).await;
    source.acknowledge(reached).await.unwrap();
    assert_eq!((source.name(), source.key(), source.fingerprint()), (&*name, &*key, &*fingerprint));
    assert!(source.position().await.unwrap().latest >= Some(reached));
}

/// A snapshot has the wanted step, and the state of it.
pub(crate) async fn check_snapshot(source: &mut dyn Source, pick: Pick, step: u64, expected: &Expected) -> Step {
    let (view, snapshot) = source.snapshot(pick).await.unwrap();
    assert_eq!(snapshot.step.get(), step, "{pick:?}");
    let (step, known_rows) = (snapshot.step, snapshot.known_rows);
    let batches: Vec<RecordBatch> = snapshot.rows.try_collect().await.unwrap();
    let mut state = State::new();
    for batch in &batches {
        assert_eq!(batch.schema_ref(), view.schema(), "{pick:?}");
        add_rows(&mut state, batch, &view);
    }
    assert_eq!(state, expected.at(step), "{pick:?} at step {step}");
    let rows: u64 = batches.iter().map(|b| b.num_rows() as u64).sum();
    assert!(known_rows.is_none_or(|known| known == rows), "{known_rows:?} rows were announced, {rows} came");
    step
}

/// The changes after `after` lead from state to state, without gap, until the source is idle.
pub(crate) async fn check_follow(
    source: &mut dyn Source,
    after: Step,
    state: &mut State,
    expected: &Expected,
) -> Vec<Changes> {
    let view = source.view(after).await.unwrap();
    let (mut reached, mut answers) = (after, Vec::new());
    while let Next::Changes(changes) = source.changes(reached, &view).await.unwrap() {
        assert!(
            changes.range().from() <= reached && reached < changes.range().to(),
            "{} at {reached}",
            changes.range()
        );
        let changes = changes.after(reached).unwrap().unwrap();
        reached = changes.range().to();
        apply(state, &changes, &view);
        assert_eq!(*state, expected.at(reached), "at step {reached}, after {}", changes.range());
        answers.push(changes);
    }
    answers
}

/// Asking again gives the same changes again, from the start of any answer.
async fn check_repeats(source: &mut dyn Source, view: &View, after: Step, answers: &[Changes]) {
    let digest = |changes: &Changes| Digest::of(&changes.net(view).unwrap().0).unwrap();
    for start in (0..answers.len()).rev() {
        let mut reached = if start == 0 { after } else { answers[start].range().from() };
        let mut again = Digest::EMPTY;
        while let Next::Changes(changes) = source.changes(reached, view).await.unwrap() {
            let changes = changes.after(reached).unwrap().unwrap();
            reached = changes.range().to();
            again = again.plus(digest(&changes));
        }
        let first = answers[start..].iter().fold(Digest::EMPTY, |sum, changes| sum.plus(digest(changes)));
        assert_eq!(first, again, "from answer {start}");
    }
}

/// Applies changes in their order.
pub(crate) fn apply(state: &mut State, changes: &Changes, view: &View) {
    for batch in changes.batches() {
        let ops = ops_of(batch).unwrap();
        let rows: Vec<usize> = (2..batch.num_columns()).collect();
        let rows = batch.project(&rows).unwrap();
        for ((key, row), op) in rendered(&rows, view).into_iter().zip(ops) {
            match (op, view.is_keyed()) {
                (Op::Delete, true) => drop(state.remove(&key)),
                (_, true) => drop(state.insert(key, (row, 1))),
                (_, false) => count(state, key, row, if op == Op::Delete { -1 } else { 1 }),
            }
        }
    }
}

/// Adds rows that must not be there yet in a keyed view.
pub(crate) fn add_rows(state: &mut State, rows: &RecordBatch, view: &View) {
    for (key, row) in rendered(rows, view) {
        if view.is_keyed() {
            assert_eq!(state.insert(key, (row.clone(), 1)), None, "two rows with the key of {row}");
        } else {
            count(state, key, row, 1);
        }
    }
}

fn count(state: &mut State, key: String, row: String, weight: i64) {
    let entry = state.entry(key.clone()).or_insert((row, 0));
    entry.1 += weight;
    if entry.1 == 0 {
        state.remove(&key);
    }
}

/// Each row's key and the whole row, as text.
fn rendered(rows: &RecordBatch, view: &View) -> Vec<(String, String)> {
    let options = FormatOptions::new().with_null("∅");
    let cells: Vec<ArrayFormatter<'_>> =
        rows.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap()).collect();
    let keys = if view.is_keyed() { view.key_indices() } else { (0..cells.len()).collect() };
    let text = |columns: &[usize], row: usize| {
        columns.iter().map(|c| cells[*c].value(row).to_string()).collect::<Vec<_>>().join("|")
    };
    let all: Vec<usize> = (0..cells.len()).collect();
    (0..rows.num_rows()).map(|row| (text(&keys, row), text(&all, row))).collect()
}
