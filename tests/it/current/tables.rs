//! A keyed view of several types in a table of layout `current`, and the rows that it must have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use cutover::continuity::plan::Older;
use cutover::continuity::stamp::{Layout, ResetStamp};
use cutover::digest::Digest;
use cutover::inspect::state::state;
use cutover::inspect::{Report, Verdict, verify_deep};
use cutover::log::Log;
use cutover::{
    Access, Applied, Changes, Durability, Location, Sink, SinkSettings, Snapshot, Standing, StepRange, Target, View,
    World,
};
use futures::TryStreamExt;
use tempfile::TempDir;

use crate::program::Chance;
use crate::world::step;

/// A row without its key `(region, id)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    text: Option<String>,
    amount: Option<i128>,
    at: i64,
}

pub(crate) type Key = (String, i64);

/// The view's rows.
pub(crate) type Model = BTreeMap<Key, Row>;

pub(crate) fn view() -> View {
    let stamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = Schema::new(vec![
        Field::new("text", DataType::Utf8, true),
        Field::new("region", DataType::Utf8, false),
        Field::new("id", DataType::Int64, false),
        Field::new("amount", DataType::Decimal128(20, 3), true),
        Field::new("at", stamp, true),
    ]);
    View::new("orders", &schema, vec!["region".into(), "id".into()]).unwrap()
}

/// Rows as columns of the view.
pub(crate) fn batch<'a>(rows: impl IntoIterator<Item = (&'a Key, Option<&'a Row>)>) -> RecordBatch {
    let rows: Vec<_> = rows.into_iter().collect();
    let amounts: Decimal128Array = rows.iter().map(|(_, row)| row.and_then(|row| row.amount)).collect();
    let at: TimestampMicrosecondArray = rows.iter().map(|(_, row)| row.map(|row| row.at)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|(_, row)| row.and_then(|row| row.text.as_deref())).collect::<StringArray>()),
        Arc::new(rows.iter().map(|(key, _)| Some(key.0.as_str())).collect::<StringArray>()),
        Arc::new(rows.iter().map(|(key, _)| Some(key.1)).collect::<Int64Array>()),
        Arc::new(amounts.with_precision_and_scale(20, 3).unwrap()),
        Arc::new(at.with_timezone("UTC")),
    ];
    RecordBatch::try_new(Arc::clone(view().schema()), columns).unwrap()
}

fn row(chance: &mut Chance, at: u64) -> Row {
    let text = (!chance.one_in(7)).then(|| "x".repeat(chance.below(40) as usize) + &at.to_string());
    let amount = (!chance.one_in(9)).then(|| i128::from(chance.below(1 << 60)) - (1 << 59));
    Row { text, amount, at: at as i64 * 1_000_000 }
}

fn key(chance: &mut Chance, keys: u64) -> Key {
    (["eu", "us", ""][chance.below(3) as usize].to_string() + "-r", chance.below(keys) as i64)
}

/// Rows drawn by chance.
pub(crate) fn rows(chance: &mut Chance, keys: u64, many: usize, at: u64) -> Model {
    (0..many).map(|_| (key(chance, keys), row(chance, at))).collect()
}

/// The changes of the steps `(from, to]`, each of up to `most` operations, and what they make of `model`.
pub(crate) fn changes(chance: &mut Chance, model: &mut Model, keys: u64, from: u64, to: u64, most: u64) -> Changes {
    let (mut steps, mut ops, mut changed) = (Vec::new(), Vec::new(), Vec::new());
    for at in from + 1..=to {
        for _ in 0..chance.below(most + 1) {
            let key = key(chance, keys);
            let op = match (chance.below(3), model.contains_key(&key)) {
                (0, true) => "d",
                (_, true) => "u",
                (_, false) => "i",
            };
            let row = (op != "d").then(|| row(chance, at));
            match &row {
                Some(row) => _ = model.insert(key.clone(), row.clone()),
                None => _ = model.remove(&key),
            }
            steps.push(at as i64);
            ops.push(op);
            changed.push((key, row));
        }
    }
    let values = batch(changed.iter().map(|(key, row)| (key, row.as_ref())));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(steps)), Arc::new(StringArray::from(ops))];
    columns.extend(values.columns().iter().cloned());
    let batch = RecordBatch::try_new(view().change_schema(), columns).unwrap();
    Changes::new(StepRange::new(step(from), step(to)).unwrap(), vec![batch]).unwrap()
}

pub(crate) fn digest(model: &Model) -> Digest {
    Digest::of(&batch(model.iter().map(|(key, row)| (key, Some(row))))).unwrap()
}

/// A table in a folder of its own, with a directory for its index.
pub(crate) struct Table {
    pub(crate) home: TempDir,
    pub(crate) settings: SinkSettings,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self::of(Layout::Current)
    }

    /// The same with another layout.
    pub(crate) fn of(layout: Layout) -> Self {
        let home = TempDir::new().unwrap();
        let mut settings = SinkSettings::new("p/v/c", "source-1");
        settings.layout = layout;
        settings.key_index = Some(home.path().join("keys"));
        Self { home, settings }
    }

    pub(crate) fn path(&self) -> String {
        self.home.path().join("table").display().to_string()
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.home.path().join("keys")
    }

    pub(crate) async fn target(&self) -> cutover::Result<Target> {
        let location = Location::open(&self.path(), Access::Write(Durability::None))?;
        Target::open(location, view(), self.settings.clone(), World::system()).await
    }

    /// A sink on the table, which it loads with `model` at step `at` where there is none.
    pub(crate) async fn sink(&self, model: &Model, at: u64) -> Sink {
        let target = self.target().await.unwrap();
        match target.standing() {
            Standing::Ours(_) => target.claim().await.unwrap(),
            _ => target.load(snapshot(model, at)).await.unwrap(),
        }
    }

    pub(crate) fn log(&self) -> Log {
        Log::new(Location::open(&self.path(), Access::Read).unwrap(), World::system())
    }

    /// What `verify --deep` finds.
    pub(crate) async fn verified(&self) -> Report {
        verify_deep(&self.log(), None).await.unwrap()
    }

    /// How many rows the view had at a step, and their digest, by `cutover state`.
    pub(crate) async fn state_at(&self, at: Option<u64>) -> (usize, Digest) {
        let found: Vec<RecordBatch> = state(&self.log(), at.map(step)).await.unwrap().rows.try_collect().await.unwrap();
        let sum = found.iter().map(|rows| Digest::of(rows).unwrap()).sum();
        (found.iter().map(RecordBatch::num_rows).sum(), sum)
    }

    /// The table is healthy to the cell, and holds the rows of `model`.
    pub(crate) async fn holds(&self, model: &Model, seed: u64) {
        let report = self.verified().await;
        assert_eq!(report.verdict, Verdict::Healthy, "{:?}; seed {seed}", report.findings);
        assert_eq!(self.state_at(None).await, (model.len(), digest(model)), "rows and digest; seed {seed}");
    }
}

pub(crate) fn snapshot(model: &Model, at: u64) -> Snapshot {
    Snapshot::from_batches(step(at), vec![batch(model.iter().map(|(key, row)| (key, Some(row))))])
}

/// Loads the table anew.
pub(crate) async fn reload(sink: &mut Sink, model: &Model, at: u64) -> Applied {
    let reset = ResetStamp { id: format!("reset-{at}"), who: "test".into(), why: "test".into() };
    sink.reload(snapshot(model, at), reset, Older::Refused).await.unwrap()
}
