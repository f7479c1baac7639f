//! What the table must be at each version, judged from its bytes and from the view's history alone.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;

use super::feed::{Change, Feed, State};
use super::storage::Storage;
use crate::tables::entry;

/// Removed files stay for a week, but for an hour by which a clock may be ahead.
const RETAINED_MILLIS: i64 = (7 * 24 - 1) * 3600 * 1000;

/// A rule that is broken, in words.
pub(super) type Violation = String;

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) generation: i64,
    pub(super) change: (i64, String, i64, Option<String>),
}

/// A live data file.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) add: Value,
    pub(super) rows: Vec<Row>,
}

/// The table at its head, and what its versions were.
#[derive(Default)]
pub(super) struct Oracle {
    pub(super) head: Option<u64>,
    pub(super) entries: BTreeMap<u64, Bytes>,
    /// Versions whose entries were deleted.
    cleaned: BTreeSet<u64>,
    pub(super) live: BTreeMap<String, File>,
    /// Removed files and when.
    pub(super) removed: BTreeMap<String, i64>,
    /// When removed files were removed, as their removers say.
    removal_dates: BTreeMap<String, i64>,
    pub(super) metadata: Value,
    /// Whether it is a table of ours.
    pub(super) is_ours: bool,
    pub(super) generation: u64,
    pub(super) last_step: u64,
    pub(super) epoch: u64,
    /// The writer of each epoch.
    writers: BTreeMap<u64, String>,
    commits: BTreeSet<String>,
    /// The versions that the foreign writer put.
    pub(super) foreign: BTreeSet<u64>,
    /// What others did to the table since its last reload that no append may follow.
    pub(super) drift: Option<&'static str>,
    /// How often that happened at all.
    pub(super) drifts: u64,
    /// Ids of resets that were asked for.
    pub(super) asked: BTreeSet<String>,
    /// Ids of resets that were committed.
    pub(super) reset: BTreeSet<String>,
    /// The last version of rows of ours.
    pub(super) anchor: u64,
    /// The state of each version whose files others may still read.
    pub(super) states: BTreeMap<u64, Option<State>>,
    added: BTreeSet<String>,
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Violation> {
    value[key].as_str().ok_or_else(|| format!("{key} is {}", value[key]))
}

fn number(value: &Value, key: &str) -> Result<u64, Violation> {
    value[key].as_u64().ok_or_else(|| format!("{key} is {}", value[key]))
}

fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// The rows of a data file of the table, sorted.
pub(super) fn rows_of(bytes: Bytes) -> Result<Vec<Row>, Violation> {
    let failed = |e: &dyn std::fmt::Display| format!("a data file cannot be read: {e}");
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| failed(&e))?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| failed(&e))?;
        let long = |name: &str| batch.column_by_name(name).map(|c| c.as_primitive::<Int64Type>());
        let string = |name: &str| batch.column_by_name(name).map(|c| c.as_string::<i32>());
        for at in 0..batch.num_rows() {
            let long = |name: &str| long(name).map_or(-1, |c| c.value(at));
            let string = |name: &str| string(name).and_then(|c| c.iter().nth(at).flatten().map(str::to_string));
            let op = string("__op").unwrap_or_default();
            rows.push(Row {
                generation: long("__generation"),
                change: (long("__step"), op, long("id"), string("name")),
            });
        }
    }
    rows.sort();
    Ok(rows)
}

/// The current state by a changelog's rows.
pub(super) fn fold<'a>(rows: impl Iterator<Item = &'a Row>) -> State {
    let mut latest: BTreeMap<i64, &'a Row> = BTreeMap::new();
    for row in rows {
        let held = latest.entry(row.change.2).or_insert(row);
        if row.change.0 > held.change.0 {
            *held = row;
        }
    }
    latest.into_iter().filter(|(_, r)| r.change.1 != "d").map(|(id, r)| (id, r.change.3.clone())).collect()
}

impl Oracle {
    /// Takes every version that has appeared.
    pub(super) fn observe(&mut self, storage: &Storage, feed: &Feed, millis: i64) -> Result<(), Violation> {
        // A put that arrives where the log was cleaned up is no version of the table: others clean up again.
        self.cleaned.iter().for_each(|version| storage.remove(&entry(*version)));
        let is_gone = |version: &u64| storage.peek(&entry(*version)).is_none();
        self.cleaned.extend(self.entries.keys().copied().filter(is_gone));
        loop {
            let version = self.head.map_or(0, |head| head + 1);
            let Some(bytes) = storage.peek(&entry(version)) else { return Ok(()) };
            self.take(version, &bytes, storage, feed, millis)
                .map_err(|e| format!("version {version}: {e}; its entry is\n{}", String::from_utf8_lossy(&bytes)))?;
            self.head = Some(version);
            self.entries.insert(version, bytes);
            let state = fold(self.live.values().flat_map(|f| &f.rows));
            let is_sound = self.is_ours && self.drift.is_none();
            demand(!is_sound || state == *feed.state(self.last_step), || {
                format!("version {version}: the rows give {state:?} at step {}", self.last_step)
            })?;
            self.states.insert(version, is_sound.then_some(state));
        }
    }

    fn take(
        &mut self,
        version: u64,
        bytes: &Bytes,
        storage: &Storage,
        feed: &Feed,
        millis: i64,
    ) -> Result<(), Violation> {
        let content = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
        let actions: Vec<Value> =
            content.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let all = |kind: &'static str| actions.iter().filter_map(move |a| a.get(kind));
        let stamp: Option<Value> = all("commitInfo")
            .find_map(|info| info["userMetadata"].as_str())
            .map(serde_json::from_str)
            .transpose()
            .map_err(|e| e.to_string())?;
        let is_foreign = self.foreign.contains(&version);
        demand(stamp.is_none() == is_foreign, || "an entry without our stamp that nobody else wrote".into())?;
        let mut gone: Vec<File> = Vec::new();
        for remove in all("remove") {
            let path = text(remove, "path")?;
            gone.push(self.live.remove(path).ok_or_else(|| format!("{path} is removed and was not live"))?);
            self.removed.insert(path.into(), millis);
            let date =
                remove["deletionTimestamp"].as_i64().ok_or_else(|| format!("{path} is removed without a date"))?;
            self.removal_dates.insert(path.into(), date);
        }
        let left = self.live.len();
        let mut rows: Vec<Row> = Vec::new();
        for add in all("add") {
            let path = text(add, "path")?;
            let bytes = storage.peek(path).ok_or_else(|| format!("{path} is named and does not exist"))?;
            demand(number(add, "size")? == bytes.len() as u64, || format!("{path} has {} bytes", bytes.len()))?;
            let found = rows_of(bytes)?;
            let stats: Value = serde_json::from_str(text(add, "stats")?).map_err(|e| e.to_string())?;
            demand(number(&stats, "numRecords")? == found.len() as u64, || format!("{path} has {} rows", found.len()))?;
            demand(self.added.insert(path.into()), || format!("{path} was added before"))?;
            rows.extend(found.iter().cloned());
            self.live.insert(path.into(), File { add: add.clone(), rows: found });
        }
        rows.sort();
        let before = std::mem::take(&mut self.metadata);
        self.metadata = all("metaData").next_back().cloned().unwrap_or_else(|| before.clone());
        match stamp {
            None => Ok(()),
            Some(stamp) => {
                let txn = |app: &str| all("txn").find(|t| t["appId"] == app).and_then(|t| t["version"].as_u64());
                let (step, epoch) = (txn("cutover/step"), txn("cutover/epoch"));
                demand(step == stamp["to"].as_u64(), || format!("the step's txn is {step:?}"))?;
                demand(stamp["kind"] == "append" || epoch == stamp["epoch"].as_u64(), || {
                    format!("the epoch's txn is {epoch:?}")
                })?;
                let commit = Commit { version, stamp, rows, left, removes: gone.len(), before };
                self.judge(commit, feed)
            }
        }
    }

    fn judge(&mut self, commit: Commit, feed: &Feed) -> Result<(), Violation> {
        let Commit { version, stamp, rows, left, removes, before } = commit;
        let (kind, id) = (text(&stamp, "kind")?, text(&stamp, "commit")?);
        let (generation, epoch, to) = (number(&stamp, "generation")?, number(&stamp, "epoch")?, number(&stamp, "to")?);
        demand(self.commits.insert(id.into()), || format!("the commit {id} stands in two versions"))?;
        let writer = text(&stamp, "writer")?;
        let holder = self.writers.entry(epoch).or_insert_with(|| writer.into());
        demand(holder == writer, || format!("the epoch {epoch} has the writers {holder} and {writer}"))?;
        demand(epoch >= self.epoch, || format!("the epoch {epoch} follows {}", self.epoch))?;
        let counted: u64 = ["i", "u", "d"].iter().map(|op| stamp["rows"][op].as_u64().unwrap_or(0)).sum();
        demand(counted == rows.len() as u64, || format!("the stamp counts {counted} rows of {}", rows.len()))?;
        let expected = |changes: Vec<Change>| -> Vec<Row> {
            let row = |c: Change| Row {
                generation: generation as i64,
                change: (c.step as i64, c.op.to_string(), c.id, c.name),
            };
            let mut rows: Vec<Row> = changes.into_iter().map(row).collect();
            rows.sort();
            rows
        };
        let from = stamp["from"].as_u64();
        match kind {
            "mark" => {
                let is_new = self.writers.iter().all(|(taken, by)| *taken == epoch || by != writer);
                demand(is_new, || format!("{writer} claims twice"))?;
                demand(self.is_ours && epoch == self.epoch + 1, || {
                    format!("a claim takes {epoch} after {}", self.epoch)
                })?;
                let is_bare = rows.is_empty() && removes == 0 && generation == self.generation;
                demand(is_bare && from == Some(to) && to == self.last_step, || "a claim changes something".into())?;
            }
            "append" => {
                demand(self.is_ours && epoch == self.epoch, || {
                    format!("an append of epoch {epoch}, held is {}", self.epoch)
                })?;
                demand(generation == self.generation && removes == 0, || "an append is not of the generation".into())?;
                demand(self.drift.is_none(), || format!("an append follows drift: {:?}", self.drift))?;
                demand(from == Some(self.last_step), || format!("an append follows step {}", self.last_step))?;
                let expected = expected(feed.netted(self.last_step, to).cloned().collect());
                demand(rows == expected, || format!("the rows are {rows:?}, expected {expected:?}"))?;
                self.anchor = version;
            }
            "reload" => {
                demand(left == 0, || format!("a reload leaves {left} files"))?;
                demand(generation == self.generation + 1, || {
                    format!("generation {generation} follows {}", self.generation)
                })?;
                demand(!self.is_ours || to >= self.last_step, || {
                    format!("a reload goes back to {to} from {}", self.last_step)
                })?;
                demand(epoch == self.epoch.max(1), || format!("a reload of epoch {epoch}, held is {}", self.epoch))?;
                let insert =
                    |(id, name): (&i64, &Option<String>)| Change { step: to, op: "i", id: *id, name: name.clone() };
                let expected = expected(feed.state(to).iter().map(insert).collect());
                demand(rows == expected, || format!("the rows are {rows:?}, expected {expected:?}"))?;
                match id.strip_prefix("reset:") {
                    Some(reset) => {
                        demand(self.asked.contains(reset), || format!("nobody asked for the reset {reset}"))?;
                        self.reset.insert(reset.into());
                    }
                    None => demand(!self.is_ours, || "a reload that nobody asked for".into())?,
                }
                let property = |key: &str| self.metadata["configuration"][key].as_str().unwrap_or_default();
                let says = [property("cutover.generation"), property("cutover.step"), property("cutover.commit")];
                let expected = [generation.to_string(), to.to_string(), id.to_string()];
                demand(says == expected.each_ref().map(String::as_str), || format!("the properties are {says:?}"))?;
                let theirs = |metadata: &Value| -> BTreeMap<String, Value> {
                    let all = metadata["configuration"].as_object().cloned().unwrap_or_default();
                    all.into_iter().filter(|(key, _)| !key.starts_with("cutover.")).collect()
                };
                let kept = theirs(&self.metadata);
                let lost = theirs(&before).into_iter().find(|(key, value)| kept.get(key) != Some(value));
                demand(lost.is_none(), || format!("a reload changes a property of others: {lost:?}"))?;
                (self.is_ours, self.drift, self.anchor) = (true, None, version);
            }
            other => return Err(format!("a commit of the kind {other}")),
        }
        (self.generation, self.epoch, self.last_step) = (generation, epoch, to);
        Ok(())
    }

    /// Every step that a process was told is safe stands in the table.
    pub(super) fn check_acknowledged(&self, feed: &mut Feed) -> Result<(), Violation> {
        for (owner, step) in feed.acknowledged.drain(..) {
            demand(self.is_ours && self.last_step >= step, || {
                format!("process {owner} acknowledged step {step}, the table ends at {}", self.last_step)
            })?;
        }
        Ok(())
    }

    /// How many entries were deleted so far.
    pub(super) fn cleaned(&self) -> usize {
        self.cleaned.len()
    }

    /// Files that versions of the retention name are there.
    pub(super) fn check_retained(&self, storage: &Storage, millis: i64) -> Result<(), Violation> {
        for (path, removed) in self.removal_dates.iter().filter(|(_, removed)| millis - **removed < RETAINED_MILLIS) {
            demand(storage.peek(path).is_some(), || format!("{path}, removed at {removed}, is gone at {millis}"))?;
        }
        Ok(())
    }

    /// A file that was removed becomes live once more.
    pub(super) fn expect_again(&mut self, path: &str) {
        self.added.remove(path);
        self.removed.remove(path);
        self.removal_dates.remove(path);
    }

    /// What was written once stays: entries that are there are those that were seen, and live files exist.
    pub(super) fn check_kept(&self, storage: &Storage) -> Result<(), Violation> {
        for (version, seen) in self.entries.iter().filter(|(version, _)| !self.cleaned.contains(version)) {
            let found = storage.peek(&entry(*version));
            demand(found.as_ref() == Some(seen), || format!("version {version} was overwritten"))?;
        }
        if let Some(head) = self.head {
            demand(storage.peek(&entry(head)).is_some(), || format!("version {head}, the head, is gone"))?;
        }
        for (path, file) in &self.live {
            let size = storage.peek(path).map(|bytes| bytes.len() as u64);
            demand(size == file.add["size"].as_u64(), || format!("the live file {path} has {size:?} bytes"))?;
        }
        Ok(())
    }
}

/// A commit of ours, and what came of its files.
struct Commit {
    version: u64,
    stamp: Value,
    rows: Vec<Row>,
    /// Live files that it did not add and did not remove.
    left: usize,
    removes: usize,
    /// The metadata before it.
    before: Value,
}
