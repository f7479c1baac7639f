//! What the table must be at each version, judged from its bytes and from the view's history alone.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use cutover::continuity::stamp::Layout;
use serde_json::Value;

use super::feed::{Change, Feed, State};
use super::rows::{File, Row, file_of, state_of};
use super::storage::Storage;
use crate::tables::entry;
use crate::vectors;

/// Removed files stay for a week, but for an hour by which a clock may be ahead.
const RETAINED_MILLIS: i64 = (7 * 24 - 1) * 3600 * 1000;

/// A rule that is broken, in words.
pub(super) type Violation = String;

/// The table at its head, and what its versions were.
pub(super) struct Oracle {
    pub(super) layout: Layout,
    pub(super) head: Option<u64>,
    pub(super) entries: BTreeMap<u64, Bytes>,
    /// Versions whose entries were deleted.
    cleaned: BTreeSet<u64>,
    pub(super) live: BTreeMap<String, File>,
    /// Removed files as they were, by their paths.
    pub(super) gone: BTreeMap<String, File>,
    /// Objects of removed files and when.
    pub(super) removed: BTreeMap<String, i64>,
    /// When they were removed, as their removers say.
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
    /// Files that were added as rows that come, or go: path and vector.
    added: BTreeSet<(String, String)>,
    /// All paths that were added.
    pub(super) named: BTreeSet<String>,
    /// The digest of the generation's rows, as the last commit says.
    pub(super) digest: u128,
    /// What commits came to that a table has which is the view.
    pub(super) moved: Moved,
}

/// How often files were given vectors, and joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// Files that were given another vector.
    pub(super) vectors: u64,
    /// Those of them that stand in an object of their own.
    pub(super) stored: u64,
    pub(super) joins: u64,
    /// Files that had deleted rows from the beginning.
    pub(super) joined_with_deleted: u64,
}

impl Moved {
    pub(super) fn add(&mut self, other: Self) {
        self.vectors += other.vectors;
        self.stored += other.stored;
        self.joins += other.joins;
        self.joined_with_deleted += other.joined_with_deleted;
    }
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, Violation> {
    value[key].as_str().ok_or_else(|| format!("{key} is {}", value[key]))
}

pub(super) fn number(value: &Value, key: &str) -> Result<u64, Violation> {
    value[key].as_u64().ok_or_else(|| format!("{key} is {}", value[key]))
}

pub(super) fn demand(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

impl Oracle {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            layout,
            head: None,
            entries: BTreeMap::new(),
            cleaned: BTreeSet::new(),
            live: BTreeMap::new(),
            gone: BTreeMap::new(),
            removed: BTreeMap::new(),
            removal_dates: BTreeMap::new(),
            metadata: Value::Null,
            is_ours: false,
            generation: 0,
            last_step: 0,
            epoch: 0,
            writers: BTreeMap::new(),
            commits: BTreeSet::new(),
            foreign: BTreeSet::new(),
            drift: None,
            drifts: 0,
            asked: BTreeSet::new(),
            reset: BTreeSet::new(),
            anchor: 0,
            states: BTreeMap::new(),
            added: BTreeSet::new(),
            named: BTreeSet::new(),
            digest: 0,
            moved: Moved::default(),
        }
    }

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
            let is_sound = self.is_ours && self.drift.is_none();
            let state = match is_sound {
                true => {
                    let state = state_of(self.layout, self.live.values().flat_map(File::left))
                        .map_err(|e| format!("version {version}: {e}"))?;
                    demand(state == *feed.state(self.last_step), || {
                        format!("version {version}: the rows give {state:?} at step {}", self.last_step)
                    })?;
                    Some(state)
                }
                false => None,
            };
            self.states.insert(version, state);
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
        let mut gone: BTreeMap<String, File> = BTreeMap::new();
        for remove in all("remove") {
            let path = text(remove, "path")?;
            let file = self.live.remove(path).ok_or_else(|| format!("{path} is removed and was not live"))?;
            let vector = vectors::id(&remove["deletionVector"]);
            demand(file.id().1 == vector, || format!("{path} is removed with the vector {vector:?}"))?;
            let date =
                remove["deletionTimestamp"].as_i64().ok_or_else(|| format!("{path} is removed without a date"))?;
            for object in file.objects() {
                self.removed.insert(object.clone(), millis);
                self.removal_dates.insert(object, date);
            }
            self.gone.insert(path.into(), file.clone());
            gone.insert(path.into(), file);
        }
        let left = self.live.len();
        let mut adds: Vec<File> = Vec::new();
        for add in all("add") {
            let file = file_of(add, storage)?;
            let (path, vector) = file.id();
            demand(add["dataChange"] == false || self.added.insert((path.clone(), vector)), || {
                format!("{path} was added before")
            })?;
            demand(gone.get(&path).is_none_or(|before| before.id() != file.id()), || {
                format!("{path} is removed and added with the same vector")
            })?;
            demand(self.live.insert(path.clone(), file.clone()).is_none(), || format!("{path} is live twice"))?;
            adds.push(file);
        }
        let named: Vec<String> = self.live.values().flat_map(File::objects).collect();
        for object in named {
            self.removed.remove(&object);
            self.removal_dates.remove(&object);
        }
        let removes: Vec<&Value> = all("remove").collect();
        let before = std::mem::take(&mut self.metadata);
        self.metadata = all("metaData").next_back().cloned().unwrap_or_else(|| before.clone());
        match stamp {
            None => Ok(()),
            Some(stamp) => {
                let txn = |app: &str| all("txn").find(|t| t["appId"] == app).and_then(|t| t["version"].as_u64());
                let (step, epoch) = (txn("cutover/step"), txn("cutover/epoch"));
                demand(step == stamp["to"].as_u64(), || format!("the step's txn is {step:?}"))?;
                let claims = stamp["kind"] != "append" && stamp["kind"] != "maintenance";
                demand(!claims || epoch == stamp["epoch"].as_u64(), || format!("the epoch's txn is {epoch:?}"))?;
                let changes = |actions: &[&Value]| actions.iter().all(|action| action["dataChange"] != false);
                let changes_data = changes(&removes) && changes(&all("add").collect::<Vec<_>>());
                let keeps_data = removes.iter().copied().chain(all("add")).all(|action| action["dataChange"] == false);
                let commit = Commit { version, stamp, adds, left, gone, before, changes_data, keeps_data };
                self.judge(commit, feed)
            }
        }?;
        self.named.extend(all("add").filter_map(|add| add["path"].as_str()).map(str::to_string));
        Ok(())
    }

    fn judge(&mut self, commit: Commit, feed: &Feed) -> Result<(), Violation> {
        let Commit { version, stamp, adds, left, gone, before, .. } = &commit;
        let version = *version;
        let (kind, id) = (text(stamp, "kind")?, text(stamp, "commit")?);
        let (generation, epoch, to) = (number(stamp, "generation")?, number(stamp, "epoch")?, number(stamp, "to")?);
        demand(self.commits.insert(id.into()), || format!("the commit {id} stands in two versions"))?;
        let writer = text(stamp, "writer")?;
        let holder = self.writers.entry(epoch).or_insert_with(|| writer.into());
        demand(holder == writer, || format!("the epoch {epoch} has the writers {holder} and {writer}"))?;
        demand(epoch >= self.epoch, || format!("the epoch {epoch} follows {}", self.epoch))?;
        let mut rows: Vec<Row> = adds.iter().flat_map(|file| file.rows.iter().cloned()).collect();
        rows.sort();
        let counted: u64 = ["i", "u", "d"].iter().map(|op| stamp["rows"][op].as_u64().unwrap_or(0)).sum();
        demand(self.layout == Layout::Current || counted == rows.len() as u64, || {
            format!("the stamp counts {counted} rows of {}", rows.len())
        })?;
        let layout = self.layout;
        let expected = |changes: Vec<Change>| -> Vec<Row> {
            let row = |c: Change| match layout {
                Layout::Changelog => {
                    Row { generation: generation as i64, change: (c.step as i64, c.op.to_string(), c.id, c.name) }
                }
                Layout::Current => Row::of_view(c.id, c.name),
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
                let is_bare = adds.is_empty() && gone.is_empty() && generation == self.generation;
                demand(is_bare && from == Some(to) && to == self.last_step, || "a claim changes something".into())?;
            }
            "append" => {
                demand(self.is_ours && epoch == self.epoch, || {
                    format!("an append of epoch {epoch}, held is {}", self.epoch)
                })?;
                demand(generation == self.generation, || "an append is not of the generation".into())?;
                demand(self.drift.is_none(), || format!("an append follows drift: {:?}", self.drift))?;
                demand(from == Some(self.last_step), || format!("an append follows step {}", self.last_step))?;
                match layout {
                    Layout::Changelog => {
                        demand(gone.is_empty(), || "an append removes files".into())?;
                        let expected = expected(feed.netted(self.last_step, to).cloned().collect());
                        demand(rows == expected, || format!("the rows are {rows:?}, expected {expected:?}"))?;
                    }
                    Layout::Current => self.judge_replaced(&commit, feed, to)?,
                }
                self.anchor = version;
            }
            "reload" => {
                demand(*left == 0, || format!("a reload leaves {left} files"))?;
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
                demand(counted == rows.len() as u64, || format!("a reload of {} rows counts {counted}", rows.len()))?;
                demand(adds.iter().all(|file| file.deleted.is_empty()), || "a reload deletes rows".into())?;
                match id.strip_prefix("reset:") {
                    Some(reset) => {
                        demand(self.asked.contains(reset), || format!("nobody asked for the reset {reset}"))?;
                        self.reset.insert(reset.into());
                    }
                    None => demand(!self.is_ours, || "a reload that nobody asked for".into())?,
                }
                let property = |key: &str| self.metadata["configuration"][key].as_str().unwrap_or_default();
                let says = ["generation", "step", "commit", "layout"].map(|key| property(&format!("cutover.{key}")));
                let layout = if layout == Layout::Current { "current" } else { "changelog" };
                let expected = [generation.to_string(), to.to_string(), id.to_string(), layout.to_string()];
                demand(says == expected.each_ref().map(String::as_str), || format!("the properties are {says:?}"))?;
                let theirs = |metadata: &Value| -> BTreeMap<String, Value> {
                    let all = metadata["configuration"].as_object().cloned().unwrap_or_default();
                    all.into_iter().filter(|(key, _)| !key.starts_with("cutover.")).collect()
                };
                let kept = theirs(&self.metadata);
                let lost = theirs(before).into_iter().find(|(key, value)| kept.get(key) != Some(value));
                demand(lost.is_none(), || format!("a reload changes a property of others: {lost:?}"))?;
                (self.is_ours, self.drift, self.anchor) = (true, None, version);
            }
            "maintenance" if layout == Layout::Current => {
                demand(self.is_ours && epoch == self.epoch && generation == self.generation, || {
                    format!("files of epoch {epoch} are joined, held is {}", self.epoch)
                })?;
                demand(self.drift.is_none(), || format!("files are joined after drift: {:?}", self.drift))?;
                demand(from == Some(to) && to == self.last_step && counted == 0, || "joining files is a step".into())?;
                self.judge_joined(&commit)?;
            }
            other => return Err(format!("a commit of the kind {other}")),
        }
        if layout == Layout::Current {
            self.judge_digest(&commit)?;
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

    /// Whether a live file cannot be read without the object.
    pub(super) fn needs(&self, object: &str) -> bool {
        self.live.contains_key(object) || self.live.values().any(|file| file.objects().any(|path| path == object))
    }

    /// A file that was removed becomes live once more, as it was.
    pub(super) fn expect_again(&mut self, path: &str) -> Option<File> {
        let file = self.gone.get(path)?.clone();
        self.added.remove(&file.id());
        Some(file)
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
            let deleted = vectors::deleted(&file.add["deletionVector"], |object| storage.peek(object));
            demand(deleted.as_ref() == Some(&Ok(file.deleted.clone())), || {
                format!("the vector of {path} gives {deleted:?}, once it was {:?}", file.deleted)
            })?;
        }
        Ok(())
    }
}

/// A commit of ours, and what came of its files.
pub(super) struct Commit {
    version: u64,
    pub(super) stamp: Value,
    pub(super) adds: Vec<File>,
    /// Live files that it did not add and did not remove.
    left: usize,
    /// The files that it removed, by their paths.
    pub(super) gone: BTreeMap<String, File>,
    /// The metadata before it.
    before: Value,
    /// Whether all that it adds and removes changes rows, by its own words.
    pub(super) changes_data: bool,
    /// Whether none of it does.
    pub(super) keeps_data: bool,
}
