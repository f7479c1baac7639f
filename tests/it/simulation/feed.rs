//! A view whose every state is known, and sources of it: sound ones, and some that lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use async_trait::async_trait;
use cutover::source::{Next, Pick, Position, Source};
use cutover::{Changes, Result, Snapshot, Step, StepRange, View};
use futures::StreamExt;

use super::gate::Gate;
use crate::program::Chance;
use crate::world::{step, view};

/// The rows of a view: names by id.
pub(super) type State = BTreeMap<i64, Option<String>>;

/// What happens to one row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) step: u64,
    pub(super) op: &'static str,
    pub(super) id: i64,
    pub(super) name: Option<String>,
}

/// The history of the view.
pub(super) struct Feed {
    /// All changes as sources give them, in step order; within a step a row may change twice.
    raw: Vec<Change>,
    /// The same, with one change of a row in a step at most.
    netted: Vec<Change>,
    states: BTreeMap<u64, State>,
    /// The ids that its rows have are below it.
    ids: u64,
    /// How many rows of a snapshot come at once.
    batch: usize,
    /// One step in so many changes most rows at once; 0 for none.
    sweeps: u64,
    /// What processes said is safe, and not checked yet.
    pub(super) acknowledged: Vec<(usize, u64)>,
}

impl Feed {
    pub(super) const FIRST: u64 = 10;

    pub(super) fn new(chance: &mut Chance) -> Self {
        let rows = (0..chance.below(5) as i64).map(|id| (id, Some(format!("row {id}"))));
        let states = BTreeMap::from([(Self::FIRST, rows.collect())]);
        let (raw, netted, acknowledged) = (Vec::new(), Vec::new(), Vec::new());
        Self { raw, netted, states, ids: 8, batch: 2, sweeps: 0, acknowledged }
    }

    /// One with rows enough for many files, or for a file of which so many are deleted that the log does not hold them.
    pub(super) fn of_many_rows(chance: &mut Chance) -> Self {
        let is_wide = chance.one_in(4);
        let (rows, batch, sweeps) = if is_wide { (600, 400, 5) } else { (40, 2, 0) };
        let first = (0..(rows - chance.below(rows / 4)) as i64).map(|id| (id, Some(format!("row {id}"))));
        let states = BTreeMap::from([(Self::FIRST, first.collect())]);
        Self { states, ids: rows + 8, batch, sweeps, ..Self::new(chance) }
    }

    pub(super) fn latest(&self) -> u64 {
        *self.states.keys().last().unwrap()
    }

    pub(super) fn state(&self, at: u64) -> &State {
        self.states.range(..=at).next_back().expect("no step is before the first").1
    }

    /// What a table's rows are for the steps after `from` and up to `to`.
    pub(super) fn netted(&self, from: u64, to: u64) -> impl Iterator<Item = &Change> {
        self.netted.iter().filter(move |c| c.step > from && c.step <= to)
    }

    /// A step with a few changes, or with none.
    pub(super) fn grow(&mut self, chance: &mut Chance) {
        let step = self.latest() + 1 + chance.below(3);
        let mut state = self.state(step).clone();
        let ids: BTreeSet<i64> = match self.sweeps > 0 && chance.one_in(self.sweeps) {
            true => (0..self.ids as i64).filter(|_| !chance.one_in(4)).collect(),
            false => (0..chance.below(5)).map(|_| chance.below(self.ids) as i64).collect(),
        };
        for id in ids {
            let twice = chance.one_in(4);
            let name = |text: &str| Some(format!("{text} at {step}"));
            let mut push = |op, name: Option<String>| self.raw.push(Change { step, op, id, name });
            let is_there = state.contains_key(&id);
            let (op, name) = match (is_there, chance.one_in(3)) {
                (true, true) => {
                    if twice {
                        push("u", name("changed, then deleted"));
                    }
                    push("d", None);
                    ("d", None)
                }
                (true, false) => {
                    if twice {
                        push("u", name("changed"));
                    }
                    push("u", name("changed again"));
                    ("u", name("changed again"))
                }
                (false, _) => {
                    push("i", name("added"));
                    if twice {
                        push("u", name("added and changed"));
                        ("i", name("added and changed"))
                    } else {
                        ("i", name("added"))
                    }
                }
            };
            match op {
                "d" => drop(state.remove(&id)),
                _ => drop(state.insert(id, name.clone())),
            }
            self.netted.push(Change { step, op, id, name });
        }
        self.states.insert(step, state);
    }
}

/// How far a source is to be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Honesty {
    Sound,
    /// It forgot the step that is asked for first.
    Forgetful,
    /// It was restored to an older state.
    Rewound,
    /// It is another history with the same steps.
    Impostor,
}

/// The view as one process sees it.
pub(super) struct FeedSource {
    feed: Arc<Mutex<Feed>>,
    gate: Arc<Gate>,
    owner: usize,
    honesty: Honesty,
    chance: Arc<Mutex<Chance>>,
    key: Vec<String>,
    was_asked: bool,
}

impl FeedSource {
    pub(super) fn new(
        feed: Arc<Mutex<Feed>>,
        gate: Arc<Gate>,
        owner: usize,
        honesty: Honesty,
        chance: Arc<Mutex<Chance>>,
    ) -> Self {
        Self { feed, gate, owner, honesty, chance, key: vec!["id".into()], was_asked: false }
    }

    async fn wait(&self, what: &'static str) {
        self.gate.enter(self.owner, None, what).await.carry_out(async {}).await;
    }

    fn latest(&self, feed: &Feed) -> u64 {
        if self.honesty == Honesty::Rewound { Feed::FIRST } else { feed.latest() }
    }
}

fn batch(state: &[(i64, Option<String>)]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(state.iter().map(|(id, _)| *id))),
        Arc::new(StringArray::from_iter(state.iter().map(|(_, name)| name.clone()))),
    ];
    RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap()
}

#[async_trait]
impl Source for FeedSource {
    fn name(&self) -> &str {
        "v"
    }

    fn key(&self) -> &[String] {
        &self.key
    }

    fn fingerprint(&self) -> &str {
        if self.honesty == Honesty::Impostor { "source-2" } else { "source-1" }
    }

    async fn position(&mut self) -> Result<Position> {
        let latest = self.latest(&self.feed.lock().unwrap());
        Ok(Position { earliest: Some(step(Feed::FIRST)), latest: Some(step(latest)) })
    }

    async fn view(&mut self, _: Step) -> Result<View> {
        Ok(view())
    }

    async fn snapshot(&mut self, pick: Pick) -> Result<(View, Snapshot)> {
        self.wait("choose a snapshot").await;
        let (at, rows, size) = {
            let feed = self.feed.lock().unwrap();
            let mut at = feed.latest();
            if matches!(pick, Pick::Newest { .. }) {
                let held: Vec<u64> = feed.states.keys().rev().take(3).copied().collect();
                at = held[self.chance.lock().unwrap().below(held.len() as u64) as usize];
            }
            let rows: Vec<_> = feed.state(at).iter().map(|(id, name)| (*id, name.clone())).collect();
            (at, rows, feed.batch)
        };
        let batches: Vec<RecordBatch> = rows.chunks(size).map(batch).collect();
        let (gate, owner) = (Arc::clone(&self.gate), self.owner);
        let mut snapshot = Snapshot::from_batches(step(at), batches);
        snapshot.rows = snapshot
            .rows
            .then(move |batch| {
                let gate = Arc::clone(&gate);
                async move { gate.enter(owner, None, "a batch").await.carry_out(async { batch }).await }
            })
            .boxed();
        Ok((view(), snapshot))
    }

    async fn changes(&mut self, after: Step, view: &View) -> Result<Next> {
        let is_first = !std::mem::replace(&mut self.was_asked, true);
        let (feed, mut chance) = (self.feed.lock().unwrap(), self.chance.lock().unwrap());
        let (mut from, latest) = (after.get(), self.latest(&feed));
        if self.honesty == Honesty::Forgetful && is_first {
            from += 1;
        }
        if latest <= from {
            return Ok(Next::Idle { hole: None });
        }
        let to = from + 1 + chance.below(latest - from);
        // A file that is asked for from the middle on is given whole.
        if is_first && self.honesty != Honesty::Forgetful && chance.one_in(2) {
            from = from.saturating_sub(chance.below(4)).max(Feed::FIRST);
        }
        let rows: Vec<&Change> = feed.raw.iter().filter(|c| c.step > from && c.step <= to).collect();
        let name = |c: &&Change| match self.honesty {
            Honesty::Impostor => c.name.as_ref().map(|name| format!("another's {name}")),
            _ => c.name.clone(),
        };
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|c| c.step as i64))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|c| c.op))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|c| c.id))),
            Arc::new(StringArray::from_iter(rows.iter().map(name))),
        ];
        let batch = RecordBatch::try_new(view.change_schema(), columns).unwrap();
        Changes::new(StepRange::new(step(from), step(to))?, vec![batch]).map(Next::Changes)
    }

    async fn acknowledge(&mut self, step: Step) -> Result<()> {
        self.feed.lock().unwrap().acknowledged.push((self.owner, step.get()));
        Ok(())
    }
}
