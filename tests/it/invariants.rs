//! What must hold of a table after any run, read off its storage: entries as JSON, files as Parquet, and nothing of the
//! product's own judgement.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock, Mutex};

use arrow::array::{Array, AsArray, RecordBatch, StructArray};
use arrow::datatypes::{Int32Type, Int64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use bytes::Bytes;
use cutover::inspect::{Verdict, verify};
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use roaring::RoaringTreemap;
use serde_json::Value;
use twox_hash::XxHash3_128;

use crate::tables::{self, Table as Files};
use crate::vectors;
use crate::world::{changes, log, rows, world};

/// How many files' rows are remembered between two checks.
const REMEMBERED: usize = 4096;
/// How many rows of a difference are shown.
const SHOWN: usize = 6;

/// A row of the table without its generation: step, operation, and the columns that are not null by their names.
type Row = (i64, String, String);

/// What was fed, asked for and acknowledged: the truth that a table is held against.
#[derive(Debug, Clone, Default)]
pub(crate) struct Oracle {
    snapshots: BTreeMap<i64, Vec<Row>>,
    changes: BTreeMap<i64, Vec<Row>>,
    resets: BTreeSet<String>,
    acknowledged: Option<u64>,
    /// Whether a reload may have gone back to an older step.
    pub(crate) allows_older: bool,
}

impl Oracle {
    /// The view's rows at `step`, which is one state for each step; batches of the view's columns.
    pub(crate) fn snapshot(&mut self, step: u64, batches: &[RecordBatch]) {
        let rows =
            batches.iter().flat_map(|batch| texts(batch).into_iter().map(|text| (step as i64, "i".into(), text)));
        self.snapshots.insert(step as i64, rows.collect());
    }

    /// Changes, netted within each step; a batch with `__step` and `__op` before the view's columns. Feeding a step again
    /// changes nothing.
    pub(crate) fn changes(&mut self, batch: &RecordBatch) {
        let mut fed: BTreeMap<i64, Vec<Row>> = BTreeMap::new();
        for row in rows_of(batch) {
            fed.entry(row.0).or_default().push(row);
        }
        self.changes.extend(fed);
    }

    /// Somebody asked for a reload by the id `reset`; only the first load may be without one.
    pub(crate) fn reset(&mut self, reset: &str) {
        self.resets.insert(reset.to_string());
    }

    /// The sink said that everything up to `step` is in the table.
    pub(crate) fn acknowledge(&mut self, step: u64) {
        self.acknowledged = self.acknowledged.max(Some(step));
    }

    /// The last step that was acknowledged.
    pub(crate) fn acknowledged(&self) -> Option<u64> {
        self.acknowledged
    }

    /// The view's rows at `step`, by the snapshot of `cutover` and the last change of each key since; operation and step of a
    /// row are no part of it.
    fn rows_at(&self, cutover: i64, step: i64) -> Vec<Row> {
        let snapshot = self.snapshots.get(&cutover).cloned().unwrap_or_default();
        let mut rows: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (_, op, text) in snapshot.into_iter().chain(self.between(cutover, step)) {
            let key = text.split(';').next().unwrap_or_default().to_string();
            rows.insert(key, (op != "d").then_some(text));
        }
        rows.into_values().flatten().map(|text| (0, "i".into(), text)).collect()
    }

    fn between(&self, from: i64, to: i64) -> Vec<Row> {
        self.changes
            .range(from + 1..)
            .take_while(|(step, _)| **step <= to)
            .flat_map(|(_, rows)| rows.iter().cloned())
            .collect()
    }
}

/// A commit of ours, as its entry has it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stamped {
    pub(crate) version: u64,
    pub(crate) kind: String,
    pub(crate) generation: i64,
    pub(crate) epoch: i64,
    pub(crate) writer: String,
    pub(crate) commit: String,
    pub(crate) from: Option<i64>,
    pub(crate) to: i64,
    /// The id of the reset that a reload answers.
    pub(crate) reset: Option<String>,
}

/// What a table was found to be.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// The newest version; `None` where there is no table.
    pub(crate) head: Option<u64>,
    /// Our commits whose entries are there, in order.
    pub(crate) stamps: Vec<Stamped>,
    /// The last step, by the table's `txn`.
    pub(crate) last_step: Option<i64>,
    /// The epoch, by the table's `txn`.
    pub(crate) epoch: Option<i64>,
    /// The version by which others broke the current generation.
    pub(crate) lost: Option<u64>,
    /// The versions that have checkpoints.
    pub(crate) checkpoints: Vec<u64>,
    /// The paths of the live files.
    pub(crate) live: BTreeSet<String>,
    /// Paths of data files that no entry and no checkpoint names.
    pub(crate) orphans: BTreeSet<String>,
}

/// Reads everything under `store` and holds it against `oracle`: what it is, or every violation, one a line.
pub(crate) async fn check(store: &Arc<dyn ObjectStore>, oracle: &Oracle) -> Result<Seen, String> {
    let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut files = BTreeMap::new();
    for object in objects {
        let bytes = store.get(&object.location).await.unwrap().bytes().await.unwrap();
        files.insert(object.location.to_string(), bytes);
    }
    let mut table = Table { files, oracle, state: State::default(), seen: Seen::default(), violations: Vec::new() };
    table.replay();
    table.check_head();
    if table.violations.is_empty() { Ok(table.seen) } else { Err(table.violations.join("\n")) }
}

/// What the product makes of the table: `verify` finds it healthy, and the kernel, which begins at the newest checkpoint,
/// replays to the same live files, step and epoch as the entries one by one.
pub(crate) async fn check_product(store: &Arc<dyn ObjectStore>, seen: &Seen) -> Result<(), String> {
    let log = log(store, &world(9).0);
    let report = verify(&log, None).await.map_err(|e| format!("verify fails: {e}"))?;
    if report.verdict != Verdict::Healthy {
        return Err(format!("verify says {:?}: {:?}", report.verdict, report.findings));
    }
    let replayed = log.replay(None).await.map_err(|e| format!("the kernel fails: {e}"))?;
    let live = log.live_files_at(replayed.version).await.map_err(|e| format!("the kernel fails: {e}"))?;
    let live: BTreeSet<String> = live.into_iter().map(|file| file.path).collect();
    let found = (Some(replayed.version), replayed.step, replayed.epoch, live);
    let expected = (seen.head, seen.last_step, seen.epoch, seen.live.clone());
    if found == expected {
        Ok(())
    } else {
        Err(format!("the kernel replays to {found:?}, the entries to {expected:?}"))
    }
}

/// A file is its path and its deletion vector.
type FileKey = (String, Option<String>);

#[derive(Debug, Clone, PartialEq)]
struct Live {
    size: i64,
    rows: Option<u64>,
    /// The descriptor of its deletion vector; null without one.
    vector: Value,
}

/// What a replay knows at a version.
#[derive(Debug, Default, Clone)]
struct State {
    /// Unknown before the first version from which it can be told.
    live: Option<BTreeMap<FileKey, Live>>,
    metadata: Option<Value>,
    protocol: Option<Value>,
    txns: BTreeMap<String, i64>,
    added: HashSet<FileKey>,
    named: BTreeSet<String>,
    commits: HashSet<String>,
    writers: BTreeMap<i64, String>,
    last: Option<Stamped>,
    lost: Option<u64>,
    has_vectors: bool,
}

struct Table<'a> {
    files: BTreeMap<String, Bytes>,
    oracle: &'a Oracle,
    state: State,
    seen: Seen,
    violations: Vec<String>,
}

impl Table<'_> {
    fn violation(&mut self, version: u64, text: impl AsRef<str>) {
        self.violations.push(format!("version {version}: {}", text.as_ref()));
    }

    /// Versions of the log's files whose names end so.
    fn versions(&self, rest: &str) -> Vec<u64> {
        let names = self.files.keys().filter_map(|path| path.strip_prefix("_delta_log/")?.strip_suffix(rest));
        names.filter(|digits| digits.len() == 20).filter_map(|digits| digits.parse().ok()).collect()
    }

    fn replay(&mut self) {
        let (versions, checkpoints) = (self.versions(".json"), self.versions(".checkpoint.parquet"));
        self.seen.checkpoints.clone_from(&checkpoints);
        self.seen.head = versions.last().copied();
        let (Some(first), Some(head)) = (versions.first().copied(), self.seen.head) else {
            if !checkpoints.is_empty() || self.oracle.acknowledged.is_some() {
                self.violation(0, "no entry of the log is there");
            }
            return;
        };
        if versions.len() as u64 != head - first + 1 {
            self.violation(head, format!("the log has gaps: {versions:?}"));
        }
        if first == 0 {
            self.state.live = Some(BTreeMap::new());
        } else if !checkpoints.iter().any(|c| *c + 1 >= first) {
            self.violation(first, "the log begins here without a checkpoint");
        }
        if let Some(hint) = self.files.get("_delta_log/_last_checkpoint") {
            let hinted = serde_json::from_slice::<Value>(hint).ok().and_then(|hint| hint["version"].as_u64());
            if !hinted.is_some_and(|version| checkpoints.contains(&version)) {
                self.violation(head, format!("_last_checkpoint names {hinted:?}, there are {checkpoints:?}"));
            }
        }
        for version in checkpoints.iter().copied().filter(|c| *c + 1 == first) {
            self.checkpoint(version);
        }
        for version in versions {
            match self.actions(version) {
                Some(actions) if !actions.is_empty() => self.entry(version, &actions),
                _ => self.violation(version, "the entry is not whole"),
            }
            if checkpoints.contains(&version) {
                self.checkpoint(version);
            }
        }
        if checkpoints.last().is_some_and(|c| *c > head) {
            self.violation(head, format!("a checkpoint is above the head: {checkpoints:?}"));
        }
    }

    fn actions(&self, version: u64) -> Option<Vec<(String, Value)>> {
        let text = std::str::from_utf8(&self.files[&format!("_delta_log/{version:020}.json")]).ok()?;
        let mut actions = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let Value::Object(action) = serde_json::from_str(line).ok()? else { return None };
            actions.extend(action);
        }
        Some(actions)
    }

    fn entry(&mut self, version: u64, actions: &[(String, Value)]) {
        let of = |kind: &'static str| actions.iter().filter(move |(name, _)| name == kind).map(|(_, body)| body);
        let stamp = of("commitInfo").next().and_then(|info| stamped(version, info));
        let was_ours = self.state.last.is_some() || property(self.state.metadata.as_ref(), "generation").is_some();
        let before = self.state.before_entry();
        for protocol in of("protocol") {
            self.state.protocol = Some(protocol.clone());
        }
        for metadata in of("metaData") {
            self.state.metadata = Some(metadata.clone());
        }
        let mut txns = BTreeMap::new();
        for txn in of("txn") {
            txns.insert(text(txn, "appId"), txn["version"].as_i64().unwrap());
        }
        self.state.txns.extend(txns.clone());
        for remove in of("remove") {
            let key = key(remove);
            self.state.named.insert(key.0.clone());
            if let Some(live) = &mut self.state.live
                && live.remove(&key).is_none()
            {
                self.violation(version, format!("removes {}, which is not live", key.0));
            }
        }
        for add in of("add") {
            let key = key(add);
            self.state.has_vectors |= key.1.is_some();
            self.state.named.insert(key.0.clone());
            let is_again = !self.state.added.insert(key.clone());
            if is_again && add["dataChange"] == true {
                self.violation(version, format!("adds {} a second time", key.0));
            }
            let stats: Value = add["stats"].as_str().and_then(|s| serde_json::from_str(s).ok()).unwrap_or_default();
            let vector = add["deletionVector"].clone();
            let live = Live { size: add["size"].as_i64().unwrap(), rows: stats["numRecords"].as_u64(), vector };
            if let Some(all) = &mut self.state.live {
                all.insert(key, live);
            }
        }
        match stamp {
            Some(stamp) => {
                let adds: Vec<&Value> = of("add").collect();
                self.ours(&before, &stamp, &adds, of("remove").count(), &txns);
                if self.is_current() {
                    self.rows_at(version, stamp.to);
                }
                self.state.last = Some(stamp.clone());
                self.seen.stamps.push(stamp);
            }
            None if was_ours => {
                let changes_rows = of("add").chain(of("remove")).any(|action| action["dataChange"] != false);
                let is = |name: &str| property(self.state.metadata.as_ref(), name);
                let was = |name: &str| property(before.metadata.as_ref(), name);
                let ours = ["connector", "generation", "step", "source", "key", "commit"];
                let columns = |metadata: &Option<Value>| metadata.as_ref().map(names_and_types);
                let changes_table = columns(&before.metadata) != columns(&self.state.metadata)
                    || ours.iter().any(|name| is(name) != was(name));
                if changes_rows || (before.metadata.is_some() && changes_table) {
                    self.state.lost = self.state.lost.or(Some(version));
                }
            }
            None => {}
        }
    }

    fn ours(
        &mut self,
        before: &Before,
        stamp: &Stamped,
        adds: &[&Value],
        removes: usize,
        txns: &BTreeMap<String, i64>,
    ) {
        let version = stamp.version;
        if !self.state.commits.insert(stamp.commit.clone()) {
            self.violation(version, format!("the commit {} stands twice", stamp.commit));
        }
        let writer = self.state.writers.entry(stamp.epoch).or_insert_with(|| stamp.writer.clone());
        if *writer != stamp.writer {
            let writers = format!("the epoch {} has the writers {writer} and {}", stamp.epoch, stamp.writer);
            self.violation(version, writers);
        }
        if txns.get("cutover/step") != Some(&stamp.to) {
            self.violation(version, format!("txn {txns:?} beside a stamp that ends at {}", stamp.to));
        }
        let was_at = before.txns.get("cutover/step").copied();
        if was_at.is_some_and(|was| stamp.to < was) && !(stamp.kind == "reload" && self.oracle.allows_older) {
            self.violation(version, format!("goes back from step {was_at:?} to {}", stamp.to));
        }
        let last_epoch = before.txns.get("cutover/epoch").copied();
        let takes_epoch = txns.get("cutover/epoch");
        if last_epoch.is_some_and(|last| stamp.epoch < last) || takes_epoch.is_some_and(|e| *e != stamp.epoch) {
            self.violation(version, format!("epoch {} after {last_epoch:?}, txn {takes_epoch:?}", stamp.epoch));
        }
        if takes_epoch.is_none() && last_epoch != Some(stamp.epoch) && self.state.live.is_some() {
            self.violation(version, format!("commits under epoch {} that was never claimed", stamp.epoch));
        }
        if let Some(last) = &before.last {
            let continues = stamp.kind == "reload" || stamp.from == Some(last.to);
            if !continues || (stamp.kind != "reload" && stamp.generation != last.generation) {
                self.violation(version, format!("{stamp:?} does not go on from {last:?}"));
            }
            if stamp.kind == "reload" && stamp.generation <= last.generation {
                self.violation(
                    version,
                    format!("a reload goes from generation {} to {}", last.generation, stamp.generation),
                );
            }
        }
        match stamp.kind.as_str() {
            "reload" => {
                let answers_reset = stamp.reset.as_ref().is_some_and(|id| self.oracle.resets.contains(id));
                if !answers_reset && (before.last.is_some() || stamp.reset.is_some()) {
                    self.violation(version, format!("nobody asked for the reload {}", stamp.commit));
                }
                let keys: BTreeSet<FileKey> = adds.iter().map(|add| key(add)).collect();
                let others: Vec<_> = self.state.live.iter().flatten().filter(|(key, _)| !keys.contains(key)).collect();
                if !others.is_empty() {
                    let text = format!("a reload leaves other files than its own: {others:?}");
                    self.violation(version, text);
                }
                self.state.lost = None;
                let expected = self.oracle.snapshots.get(&stamp.to).cloned();
                match expected {
                    Some(_) if self.is_current() => {}
                    Some(expected) => self.rows_of_commit(stamp, adds, expected),
                    None => self.violation(version, format!("no snapshot was fed at step {}", stamp.to)),
                }
            }
            "append" => {
                if let Some(lost) = before.lost {
                    self.violation(version, format!("an append, though version {lost} broke continuity"));
                }
                if self.is_current() {
                    return;
                }
                if removes > 0 {
                    self.violation(version, format!("an append removes {removes} files"));
                }
                let from = stamp.from.unwrap_or(i64::MAX - 1);
                let expected = self.oracle.between(from, stamp.to);
                self.rows_of_commit(stamp, adds, expected);
            }
            _ if adds.iter().any(|add| add["dataChange"] != false) => {
                self.violation(version, format!("a {} changes rows", stamp.kind));
            }
            _ => {}
        }
    }

    /// Whether the table is the view, by the metadata at hand, or by those of the newest checkpoint.
    fn is_current(&self) -> bool {
        let told = |metadata: Option<&Value>| property(metadata, "layout").map(|layout| layout == "current");
        let newest = || {
            let version = self.seen.checkpoints.last()?;
            let bytes = self.files[&format!("_delta_log/{version:020}.checkpoint.parquet")].clone();
            told(checkpoint_state(bytes).ok().map(|state| state.metadata).as_ref())
        };
        told(self.state.metadata.as_ref()).or_else(newest).unwrap_or(false)
    }

    /// The live rows, without those that are deleted, are those of the view at `step`; files that a clean-up has taken since
    /// tell nothing.
    fn rows_at(&mut self, version: u64, step: i64) {
        let Some(live) = self.state.live.clone() else { return };
        if self.state.lost.is_some() {
            return;
        }
        let mut found = Vec::new();
        for ((path, _), file) in &live {
            let Some(rows) = self.data_file(version, path) else { return };
            let deleted = match deleted(&file.vector, &self.files) {
                Some(Ok(deleted)) => deleted,
                Some(Err(e)) => return self.violation(version, format!("the vector of {path}: {e}")),
                None => return,
            };
            if deleted.max().is_some_and(|last| last >= rows.len() as u64) {
                self.violation(version, format!("the vector of {path} deletes {deleted:?} of {} rows", rows.len()));
            }
            let left =
                rows.iter().zip(0..).filter(|(_, place)| !deleted.contains(*place)).map(|((_, row), _)| row.clone());
            found.extend(left);
        }
        let cutover = property(self.state.metadata.as_ref(), "step").and_then(|n| n.parse::<i64>().ok());
        let expected = self.oracle.rows_at(cutover.unwrap_or(-1), step);
        if let Some(difference) = difference(found, expected) {
            self.violation(version, format!("the rows at step {step}: {difference}"));
        }
    }

    /// The rows that a commit added are those that were fed; files that a clean-up has taken since tell nothing.
    fn rows_of_commit(&mut self, stamp: &Stamped, adds: &[&Value], expected: Vec<Row>) {
        let mut found = Vec::new();
        for add in adds {
            let Some(rows) = self.data_file(stamp.version, &key(add).0) else { return };
            for (generation, row) in rows.iter() {
                if *generation != stamp.generation {
                    self.violation(stamp.version, format!("a row of generation {generation}: {row:?}"));
                }
                found.push(row.clone());
            }
        }
        if let Some(difference) = difference(found, expected) {
            self.violation(stamp.version, format!("{}: {difference}", stamp.kind));
        }
    }

    /// A data file's rows with their generations; `None` where there is no such file.
    fn data_file(&mut self, version: u64, path: &str) -> Option<Arc<Vec<(i64, Row)>>> {
        let bytes = self.files.get(path)?;
        match file_rows(bytes) {
            Ok(rows) => Some(rows),
            Err(e) => {
                self.violation(version, format!("the data file {path} cannot be read: {e}"));
                None
            }
        }
    }

    /// A checkpoint's state is the one of the entries, or begins it.
    fn checkpoint(&mut self, version: u64) {
        let bytes = self.files[&format!("_delta_log/{version:020}.checkpoint.parquet")].clone();
        let found = match checkpoint_state(bytes) {
            Ok(found) => found,
            Err(e) => return self.violation(version, format!("the checkpoint cannot be read: {e}")),
        };
        self.state.named.extend(found.removed);
        if self.state.live.is_none() {
            self.state.named.extend(found.live.keys().map(|key| key.0.clone()));
            self.state.live = Some(found.live);
            self.state.txns = found.txns;
            self.state.metadata = Some(found.metadata);
            return;
        }
        let sizes = |live: &BTreeMap<FileKey, Live>| live.iter().map(|(k, l)| (k.clone(), l.size)).collect::<Vec<_>>();
        let known = self.state.live.as_ref().unwrap();
        let metadata = self.state.metadata.clone().unwrap_or_default();
        let told = |metadata: &Value| {
            let mut properties: Vec<(String, String)> = metadata["configuration"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_string()))
                .collect();
            properties.sort();
            (text(metadata, "id"), text(metadata, "schemaString"), properties)
        };
        let mut differs = Vec::new();
        if sizes(known) != sizes(&found.live) {
            differs.push(format!("files {:?}, by the entries {:?}", sizes(&found.live), sizes(known)));
        }
        if self.state.txns != found.txns {
            differs.push(format!("txns {:?}, by the entries {:?}", found.txns, self.state.txns));
        }
        if told(&metadata) != told(&found.metadata) {
            differs.push(format!("metadata {}, by the entries {metadata}", found.metadata));
        }
        for text in differs {
            self.violation(version, format!("the checkpoint has the {text}"));
        }
    }

    fn check_head(&mut self) {
        let Some(head) = self.seen.head else { return };
        self.seen.last_step = self.state.txns.get("cutover/step").copied();
        self.seen.epoch = self.state.txns.get("cutover/epoch").copied();
        self.seen.lost = self.state.lost;
        if let Some(acknowledged) = self.oracle.acknowledged
            && self.seen.last_step.is_none_or(|last| last < acknowledged as i64)
            && !self.oracle.allows_older
        {
            let text = format!("step {acknowledged} was acknowledged, the table ends at {:?}", self.seen.last_step);
            self.violation(head, text);
        }
        let live = self.state.live.clone().unwrap_or_default();
        self.seen.live = live.keys().map(|key| key.0.clone()).collect();
        let is_data = |path: &&String| !path.starts_with("_delta_log/") && path.ends_with(".parquet");
        self.seen.orphans =
            self.files.keys().filter(is_data).filter(|path| !self.state.named.contains(*path)).cloned().collect();
        let (mut found, mut generations) = (Vec::new(), BTreeSet::new());
        for ((path, vector), file) in &live {
            let size = self.files.get(path).map(|bytes| bytes.len() as i64);
            if size != Some(file.size) {
                self.violation(head, format!("{path} has {size:?} bytes, the log says {}", file.size));
                continue;
            }
            let Some(rows) = self.data_file(head, path) else { continue };
            if vector.is_none() && file.rows.is_some_and(|n| n != rows.len() as u64) {
                self.violation(head, format!("{path} has {} rows, the log says {:?}", rows.len(), file.rows));
            }
            generations.extend(rows.iter().map(|(generation, _)| *generation));
            found.extend(rows.iter().map(|(_, row)| row.clone()));
        }
        let number = |name: &str| property(self.state.metadata.as_ref(), name).and_then(|n| n.parse::<i64>().ok());
        let (Some(generation), Some(cutover), Some(last)) = (number("generation"), number("step"), self.seen.last_step)
        else {
            return;
        };
        if self.state.lost.is_some() {
            return;
        }
        if self.is_current() {
            if live.keys().any(|(path, _)| !self.files.contains_key(path)) {
                self.violation(head, "a live file is gone");
            }
            for file in live.values() {
                if deleted(&file.vector, &self.files).is_none() {
                    self.violation(head, "a live vector is gone");
                }
            }
            return self.rows_at(head, last);
        }
        if self.state.has_vectors {
            return;
        }
        if generations.iter().any(|g| *g != generation) {
            self.violation(head, format!("rows of the generations {generations:?}, the table is at {generation}"));
        }
        let snapshot = self.oracle.snapshots.get(&cutover).cloned().unwrap_or_default();
        let expected = [snapshot, self.oracle.between(cutover, last)].concat();
        if let Some(difference) = difference(found, expected) {
            self.violation(head, format!("the state at step {last}: {difference}"));
        }
    }
}

/// What an entry is judged against.
struct Before {
    metadata: Option<Value>,
    txns: BTreeMap<String, i64>,
    last: Option<Stamped>,
    lost: Option<u64>,
}

impl State {
    fn before_entry(&self) -> Before {
        Before { metadata: self.metadata.clone(), txns: self.txns.clone(), last: self.last.clone(), lost: self.lost }
    }
}

struct CheckpointState {
    live: BTreeMap<FileKey, Live>,
    removed: Vec<String>,
    txns: BTreeMap<String, i64>,
    metadata: Value,
}

fn checkpoint_state(bytes: Bytes) -> Result<CheckpointState, String> {
    let failed = |e: &dyn std::fmt::Display| e.to_string();
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(|e| failed(&e))?;
    let reader = reader.build().map_err(|e| failed(&e))?;
    let (mut live, mut removed, mut txns, mut metadata) = (BTreeMap::new(), Vec::new(), BTreeMap::new(), None);
    for batch in reader {
        let batch = batch.map_err(|e| failed(&e))?;
        let of = |name: &str| batch.column_by_name(name).and_then(|c| c.as_struct_opt()).cloned();
        for row in 0..batch.num_rows() {
            if let Some(add) = of("add").filter(|a| a.is_valid(row)) {
                let size = add.column_by_name("size").unwrap().as_primitive::<Int64Type>().value(row);
                let vectors = add.column_by_name("deletionVector").and_then(|v| v.as_struct_opt());
                let vector = vectors.filter(|v| v.is_valid(row)).and_then(|v| string(v, "pathOrInlineDv", row));
                let key = (decoded(&string(&add, "path", row).unwrap_or_default()), vector);
                let vector = vectors.filter(|v| v.is_valid(row)).map_or(Value::Null, |v| descriptor(v, row));
                if live.insert(key.clone(), Live { size, rows: None, vector }).is_some() {
                    return Err(format!("it has {} twice", key.0));
                }
            }
            if let Some(remove) = of("remove").filter(|r| r.is_valid(row)) {
                removed.extend(string(&remove, "path", row).map(|path| decoded(&path)));
            }
            if let Some(txn) = of("txn").filter(|t| t.is_valid(row)) {
                let version = txn.column_by_name("version").unwrap().as_primitive::<Int64Type>().value(row);
                txns.insert(string(&txn, "appId", row).unwrap_or_default(), version);
            }
            if let Some(found) = of("metaData").filter(|m| m.is_valid(row)) {
                let map = found.column_by_name("configuration").unwrap().as_map().value(row);
                let texts = |column: usize, at: usize| map.column(column).as_string::<i32>().value(at).to_string();
                let configuration: BTreeMap<String, String> =
                    (0..map.len()).map(|at| (texts(0, at), texts(1, at))).collect();
                let (id, schema) = (string(&found, "id", row), string(&found, "schemaString", row));
                metadata = Some(serde_json::json!({"id": id, "schemaString": schema, "configuration": configuration}));
            }
        }
    }
    let metadata = metadata.ok_or("it has no metadata")?;
    Ok(CheckpointState { live, removed, txns, metadata })
}

fn descriptor(vectors: &StructArray, row: usize) -> Value {
    let number = |name: &str| {
        let column = vectors.column_by_name(name)?.as_primitive_opt::<Int32Type>()?;
        column.is_valid(row).then(|| column.value(row))
    };
    serde_json::json!({
        "storageType": string(vectors, "storageType", row),
        "pathOrInlineDv": string(vectors, "pathOrInlineDv", row),
        "offset": number("offset"),
        "sizeInBytes": number("sizeInBytes"),
    })
}

/// The rows that a deletion vector deletes; `None` where the file that holds it is gone.
fn deleted(vector: &Value, files: &BTreeMap<String, Bytes>) -> Option<Result<RoaringTreemap, String>> {
    vectors::deleted(vector, |object| files.get(object).cloned())
}

fn string(of: &StructArray, name: &str, row: usize) -> Option<String> {
    let column = of.column_by_name(name)?.as_string_opt::<i32>()?;
    column.is_valid(row).then(|| column.value(row).to_string())
}

fn text(of: &Value, name: &str) -> String {
    of[name].as_str().unwrap_or_default().to_string()
}

/// A path of the log as an object's path.
fn decoded(path: &str) -> String {
    object_store::path::Path::from_url_path(path).map_or_else(|_| path.to_string(), String::from)
}

fn key(action: &Value) -> FileKey {
    (decoded(&text(action, "path")), action["deletionVector"]["pathOrInlineDv"].as_str().map(str::to_string))
}

fn property(metadata: Option<&Value>, name: &str) -> Option<String> {
    metadata?["configuration"][format!("cutover.{name}")].as_str().map(str::to_string)
}

fn names_and_types(metadata: &Value) -> Vec<(Value, Value)> {
    let schema: Value = serde_json::from_str(metadata["schemaString"].as_str().unwrap_or("{}")).unwrap_or_default();
    let fields = schema["fields"].as_array().cloned().unwrap_or_default();
    fields.into_iter().map(|field| (field["name"].clone(), field["type"].clone())).collect()
}

fn stamped(version: u64, info: &Value) -> Option<Stamped> {
    let stamp: Value = serde_json::from_str(info["userMetadata"].as_str()?).ok()?;
    stamp["cutover"].as_u64()?;
    let number = |name: &str| stamp[name].as_i64();
    Some(Stamped {
        version,
        kind: text(&stamp, "kind"),
        generation: number("generation")?,
        epoch: number("epoch")?,
        writer: text(&stamp, "writer"),
        commit: text(&stamp, "commit"),
        from: number("from"),
        to: number("to")?,
        reset: stamp["reset"]["id"].as_str().map(str::to_string),
    })
}

/// How two multisets of rows differ.
fn difference(mut found: Vec<Row>, mut expected: Vec<Row>) -> Option<String> {
    found.sort_unstable();
    expected.sort_unstable();
    if found == expected {
        return None;
    }
    let mut counts: BTreeMap<Row, i64> = BTreeMap::new();
    found.into_iter().for_each(|row| *counts.entry(row).or_default() += 1);
    expected.into_iter().for_each(|row| *counts.entry(row).or_default() -= 1);
    let of = |sign: i64| {
        let rows: Vec<_> = counts.iter().filter(|(_, n)| **n * sign > 0).map(|(row, n)| (n.abs(), row)).collect();
        format!("{} rows, such as {:?}", rows.len(), &rows[..rows.len().min(SHOWN)])
    };
    Some(format!("too much are {}; missing are {}", of(1), of(-1)))
}

type FileRows = Arc<Vec<(i64, Row)>>;

/// The rows of a data file, remembered by its bytes.
fn file_rows(bytes: &Bytes) -> Result<FileRows, String> {
    static REMEMBER: LazyLock<Mutex<HashMap<u128, FileRows>>> = LazyLock::new(Mutex::default);
    let hash = XxHash3_128::oneshot(bytes);
    if let Some(rows) = REMEMBER.lock().unwrap().get(&hash) {
        return Ok(Arc::clone(rows));
    }
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).map_err(|e| e.to_string())?;
    let mut rows = Vec::new();
    for batch in reader.build().map_err(|e| e.to_string())? {
        let batch = batch.map_err(|e| e.to_string())?;
        let generations = batch.column_by_name("__generation").map(|c| c.as_primitive::<Int64Type>().clone());
        match generations {
            Some(generations) => rows.extend(generations.values().iter().copied().zip(rows_of(&batch))),
            // The table is the view.
            None => rows.extend(texts(&batch).into_iter().map(|text| (0, (0, "i".into(), text)))),
        }
    }
    let rows = Arc::new(rows);
    let mut remembered = REMEMBER.lock().unwrap();
    if remembered.len() >= REMEMBERED {
        remembered.clear();
    }
    remembered.insert(hash, Arc::clone(&rows));
    Ok(rows)
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let steps = batch.column_by_name("__step").unwrap().as_primitive::<Int64Type>();
    let ops = batch.column_by_name("__op").unwrap().as_string::<i32>();
    let texts = texts(batch);
    texts.into_iter().enumerate().map(|(row, text)| (steps.value(row), ops.value(row).to_string(), text)).collect()
}

/// Each row's columns that are not null, by name; what a commit adds in front is left out.
fn texts(batch: &RecordBatch) -> Vec<String> {
    let schema = batch.schema();
    let mut columns: Vec<_> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .filter(|(field, _)| !field.name().starts_with("__"))
        .map(|(field, column)| {
            (field.name(), column, ArrayFormatter::try_new(column, &FormatOptions::default()).unwrap())
        })
        .collect();
    columns.sort_by_key(|(name, ..)| name.as_str());
    let row = |row: usize| {
        let cells = columns.iter().filter(|(_, column, _)| column.is_valid(row));
        cells.map(|(name, _, values)| format!("{name}={};", values.value(row))).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

/// A table as [`tables::made`] has it, and what was fed to it.
async fn table(how: tables::Made) -> (Files, Oracle) {
    let mut oracle = Oracle::default();
    oracle.snapshot(10, &[rows(10, &[1, 2, 3])]);
    oracle.snapshot(13, &[rows(13, &[4, 5])]);
    changes(10, 24).batches().iter().for_each(|batch| oracle.changes(batch));
    oracle.reset("r0");
    oracle.acknowledge(24);
    (tables::made(how, 0).await, oracle)
}

async fn checked(files: &Files, oracle: &Oracle) -> Result<Seen, String> {
    check(&files.store().await, oracle).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_made_well_keep_every_invariant() {
    for how in [tables::Made::Plain, tables::Made::Checkpoints, tables::Made::Cleaned, tables::Made::AtHead] {
        let (files, oracle) = table(how).await;
        let seen = checked(&files, &oracle).await.unwrap_or_else(|found| panic!("{how:?}: {found}"));
        check_product(&files.store().await, &seen).await.unwrap_or_else(|found| panic!("{how:?}: {found}"));
        assert_eq!((seen.head, seen.last_step, seen.epoch, seen.lost), (Some(10), Some(24), Some(2), None));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_invariant_is_missed_when_it_is_broken() {
    use serde_json::json;

    type Break = fn(&mut Files, &mut Oracle);
    let breaks: [(&str, Break); 19] = [
        ("the entry is not whole", |files, _| {
            let bytes = files.files.get_mut(&tables::entry(10)).unwrap();
            bytes.truncate(bytes.len() - 9);
        }),
        ("the log has gaps", |files, _| drop(files.files.remove(&tables::entry(9)))),
        ("was acknowledged", |files, _| drop(files.files.remove(&tables::entry(10)))),
        ("bytes, the log says", |files, _| {
            let path = files.live().last().unwrap().1["path"].as_str().unwrap().to_string();
            files.files.remove(&path);
        }),
        ("cannot be read", |files, _| {
            let path = files.live().last().unwrap().1["path"].as_str().unwrap().to_string();
            let bytes = files.files.get_mut(&path).unwrap();
            let end = bytes.len() - 4;
            bytes[end..].fill(0);
        }),
        ("rows, the log says", |files, _| {
            files.edit(10, |action| {
                if let Some(stats) = action["add"]["stats"].as_str() {
                    action["add"]["stats"] = stats.replace("\"numRecords\":1", "\"numRecords\":2").into();
                }
            });
        }),
        ("missing are 1 rows", |_, oracle| {
            oracle.changes.entry(24).or_default().push((24, "u".into(), "id=9;".into()));
        }),
        ("too much are 1 rows", |_, oracle| drop(oracle.changes.get_mut(&24).unwrap().pop())),
        ("does not go on from", |files, _| files.restamp(9, |stamp| stamp["from"] = 21.into())),
        ("a second time", |files, _| {
            let add = files.actions(9).into_iter().find(|action| action.get("add").is_some()).unwrap();
            let actions = [files.actions(10), vec![add]].concat();
            files.set(10, &actions);
        }),
        ("goes back from step", |files, _| {
            files.restamp(10, |stamp| stamp["to"] = 22.into());
            files.edit(10, |action| {
                if action.get("txn").is_some() {
                    action["txn"]["version"] = 22.into();
                }
            });
        }),
        ("beside a stamp that ends at", |files, _| files.restamp(10, |stamp| stamp["to"] = 25.into())),
        ("has the writers", |files, _| files.restamp(8, |stamp| stamp["writer"] = "another".into())),
        ("epoch 1 after Some(2)", |files, _| files.restamp(8, |stamp| stamp["epoch"] = 1.into())),
        ("stands twice", |files, _| {
            let commit = files.stamp(8).unwrap()["commit"].clone();
            files.restamp(9, |stamp| stamp["commit"] = commit.clone());
        }),
        ("nobody asked for the reload", |_, oracle| oracle.resets.clear()),
        ("leaves other files than its own", |files, _| {
            let actions = files.actions(2).into_iter().filter(|action| action.get("remove").is_none());
            let actions: Vec<Value> = actions.collect();
            files.set(2, &actions);
        }),
        ("broke continuity", |files, _| {
            let actions =
                [vec![json!({"commitInfo": {"operation": "DELETE"}})], files.actions(9)[1..].to_vec()].concat();
            files.set(9, &actions);
        }),
        ("the checkpoint has the", |files, _| {
            let older = files.files[&tables::checkpoint(4)].clone();
            files.files.insert(tables::checkpoint(7), older);
        }),
    ];
    for (words, damage) in breaks {
        let (mut files, mut oracle) = table(tables::Made::Checkpoints).await;
        damage(&mut files, &mut oracle);
        let found = checked(&files, &oracle).await.expect_err(words);
        assert!(found.contains(words), "{words}: {found}");
    }
}
