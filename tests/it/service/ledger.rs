//! What was pushed to a view, step by step, and what tables must hold because of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use cutover::digest::Digest;
use serde_json::{Value, json};

use crate::program::{Chance, Landing};

/// A row of the view, without its id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: Option<String>,
    pub(crate) amount: Option<i64>,
}

/// A change of one step: the row after it, or none.
type Change = (i64, &'static str, Option<Row>);

/// Every step of a view. No two changes of a step have the same key.
#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) chance: Chance,
    /// The rows after the last step.
    rows: BTreeMap<i64, Row>,
    next_id: i64,
    /// The changes of step `i + 1`.
    steps: Vec<Vec<Change>>,
    mark: Mark,
}

/// What tells a state of the rows from others: their number, and a sum over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    rows: u64,
    sum: u64,
}

impl Mark {
    /// After a row took the place of another one, or of none.
    pub(crate) fn change(&mut self, id: i64, before: Option<&Row>, after: Option<&Row>) {
        let hash = |row: &Row| {
            use std::hash::{DefaultHasher, Hash, Hasher};
            let mut hasher = DefaultHasher::new();
            (id, &row.name, row.amount).hash(&mut hasher);
            hasher.finish()
        };
        if let Some(row) = before {
            (self.rows, self.sum) = (self.rows - 1, self.sum.wrapping_sub(hash(row)));
        }
        if let Some(row) = after {
            (self.rows, self.sum) = (self.rows + 1, self.sum.wrapping_add(hash(row)));
        }
    }
}

impl Ledger {
    pub(crate) fn new(chance: Chance) -> Self {
        Self { chance, rows: BTreeMap::new(), next_id: 0, steps: Vec::new(), mark: Mark::default() }
    }

    /// The state after the last step.
    pub(crate) fn mark(&self) -> Mark {
        self.mark
    }

    /// The rows after the last step.
    pub(crate) fn rows(&self) -> &BTreeMap<i64, Row> {
        &self.rows
    }

    pub(crate) fn step(&self) -> u64 {
        self.steps.len() as u64
    }

    fn row(&mut self) -> Row {
        let number = self.chance.below(1_000_000);
        let name = (!number.is_multiple_of(7)).then(|| format!("näme {number}"));
        Row { name, amount: (!number.is_multiple_of(5)).then_some(number as i64 - 500_000) }
    }

    /// Another step, which inserts `rows`; as it is pushed.
    pub(crate) fn insert(&mut self, rows: u64) -> String {
        let mut changes = Vec::new();
        for _ in 0..rows {
            let row = self.row();
            changes.push((self.next_id, "i", Some(row)));
            self.next_id += 1;
        }
        self.take(changes)
    }

    /// Another step of up to `most` changes; as it is pushed.
    pub(crate) fn change(&mut self, most: u64) -> String {
        let mut changes: BTreeMap<i64, Change> = BTreeMap::new();
        for _ in 0..=self.chance.below(most) {
            let some = self.chance.below(self.next_id.max(1) as u64) as i64;
            let (id, op) = match self.chance.below(10) {
                0..4 => (self.next_id, "i"),
                4..6 if self.rows.contains_key(&some) => (some, "d"),
                _ if self.rows.contains_key(&some) => (some, "u"),
                _ => (some, "i"),
            };
            self.next_id = self.next_id.max(id + 1);
            let row = (op != "d").then(|| self.row());
            changes.entry(id).or_insert((id, op, row));
        }
        self.take(changes.into_values().collect())
    }

    fn take(&mut self, changes: Vec<Change>) -> String {
        let mut lines = String::new();
        for (id, op, row) in &changes {
            let before = self.rows.get(id).cloned();
            let line = match (*op, row) {
                ("i", Some(row)) => json!({"insert": {"id": id, "name": row.name, "amount": row.amount}}),
                // What does not change may be left out.
                ("u", Some(row)) if before.as_ref().is_some_and(|b| b.name == row.name) => {
                    json!({"update": {"id": id, "amount": row.amount}})
                }
                ("u", Some(row)) => json!({"update": {"id": id, "name": row.name, "amount": row.amount}}),
                _ => json!({"delete": {"id": id}}),
            };
            lines.push_str(&format!("{line}\n"));
            self.mark.change(*id, before.as_ref(), row.as_ref());
            match row {
                Some(row) => self.rows.insert(*id, row.clone()),
                None => self.rows.remove(id),
            };
        }
        self.steps.push(changes);
        lines
    }

    /// Whether `text`, which `cutover state` printed, is the rows after the last step.
    pub(crate) fn is(&self, text: &str) -> bool {
        let row = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            let name = row["name"].as_str().map(str::to_owned);
            (row["id"].as_i64().unwrap(), Row { name, amount: row["amount"].as_i64() })
        };
        let rows: Vec<(i64, Row)> = text.lines().map(row).collect();
        rows.len() == self.rows.len() && BTreeMap::from_iter(rows) == self.rows
    }

    /// Every step as files from which the Python readers tell what a table must hold.
    pub(crate) fn mirror(&self, feed: &Path) {
        let folder = feed.join("rows");
        fs::create_dir_all(&folder).unwrap();
        let ids: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        let names: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
        let amounts = Arc::clone(&ids);
        Landing::new(&folder, "snapshot-0.parquet".into())
            .parquet(vec![("id", ids), ("name", names), ("amount", amounts)])
            .land();
        let mut lines = String::new();
        for (i, changes) in self.steps.iter().enumerate() {
            for (id, op, row) in changes {
                let row = match row {
                    Some(row) => json!({"id": id, "name": row.name, "amount": row.amount}),
                    None => json!({"id": id}),
                };
                let word = if *op == "i" {
                    "insert"
                } else if *op == "u" {
                    "update"
                } else {
                    "delete"
                };
                lines.push_str(&format!("{}\n", json!({"step": i + 1, word: row})));
            }
        }
        let name = format!("changes-0-{}.ndjson", self.step());
        Landing::new(&folder, name).bytes(lines.as_bytes()).land();
    }

    /// Holds every version of a table, oldest first, to the digest of what it must hold.
    pub(crate) fn check_digests(&self, stamps: &[Value]) {
        let seed = self.chance.seed;
        let (mut rows, mut at, mut total) = (BTreeMap::new(), 0, Digest::default());
        // Reloads never go back, so one walk over the steps serves all.
        let mut go_to = |rows: &mut BTreeMap<i64, Row>, step: u64| {
            for change in self.steps.iter().take(step as usize).skip(at as usize).flatten() {
                match &change.2 {
                    Some(row) => rows.insert(change.0, row.clone()),
                    None => rows.remove(&change.0),
                };
            }
            at = at.max(step);
        };
        for (version, stamp) in stamps.iter().enumerate() {
            let number = |name: &str| stamp[name].as_u64().unwrap();
            let (generation, to) = (number("generation"), number("to"));
            let expected = match stamp["kind"].as_str().unwrap() {
                "reload" => {
                    go_to(&mut rows, to);
                    let all = rows.iter().map(|(id, row)| (to, (*id, "i", Some(row.clone()))));
                    total = Digest::default();
                    digest_of(generation, all)
                }
                "append" => {
                    let from = number("from");
                    let steps = (from + 1..=to).zip(&self.steps[from as usize..to as usize]);
                    digest_of(generation, steps.flat_map(|(step, c)| c.iter().map(move |c| (step, c.clone()))))
                }
                _ => Digest::default(),
            };
            total = total.plus(expected);
            let told = |name: &str| stamp[name].as_str().map(str::to_owned);
            assert_eq!(told("digest"), Some(expected.to_string()), "version {version}: {stamp}; seed {seed}");
            assert_eq!(told("digest_total"), Some(total.to_string()), "version {version}: {stamp}; seed {seed}");
        }
    }
}

/// The digest of rows of a changelog: the steps and changes given.
fn digest_of(generation: u64, changes: impl Iterator<Item = (u64, Change)>) -> Digest {
    let changes: Vec<(u64, Change)> = changes.collect();
    let numbers = |numbers: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(numbers)) };
    let texts = |texts: Vec<Option<&str>>| -> ArrayRef { Arc::new(StringArray::from(texts)) };
    let rows = || changes.iter().map(|(_, (_, _, row))| row.as_ref());
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("__generation", numbers(vec![Some(generation as i64); changes.len()]), true),
        ("__step", numbers(changes.iter().map(|(step, _)| Some(*step as i64)).collect()), true),
        ("__op", texts(changes.iter().map(|(_, (_, op, _))| Some(*op)).collect()), true),
        ("id", numbers(changes.iter().map(|(_, (id, ..))| Some(*id)).collect()), true),
        ("name", texts(rows().map(|row| row.and_then(|r| r.name.as_deref())).collect()), true),
        ("amount", numbers(rows().map(|row| row.and_then(|r| r.amount)).collect()), true),
    ]);
    Digest::of(&batch.unwrap()).unwrap()
}
