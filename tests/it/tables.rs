//! A table as its files, to be changed by hand: entries as lines of JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path as FsPath;
use std::sync::Arc;

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::{Report, verify};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use crate::program::Chance;
use crate::world::{changes, log, memory, sink, state, world};

/// The files of a table by their paths.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

/// How a table came to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Made {
    /// Without a checkpoint.
    Plain,
    /// With two checkpoints, the newer at version 7.
    Checkpoints,
    /// The same, and the log cleaned below the newer one.
    Cleaned,
    /// With a checkpoint of the newest version.
    AtHead,
}

pub(crate) fn entry(version: u64) -> String {
    format!("_delta_log/{version:020}.json")
}

pub(crate) fn checkpoint(version: u64) -> String {
    format!("_delta_log/{version:020}.checkpoint.parquet")
}

/// Versions: 0 load, 1 append, 2 reload (generation 2), 3 and 4 append, 5 claim, 6 to 10 append.
pub(crate) async fn made(how: Made, seed: u64) -> Table {
    let (store, (world, _)) = (memory(), world(seed));
    let mut first = sink(&store, &world).await;
    first.append(changes(10, 12 + seed % 2)).await.unwrap();
    let reset = ResetStamp { id: format!("r{seed}"), who: "a test".into(), why: "to see".into() };
    first.reload(state(13, &[4, 5]), reset, Older::Refused).await.unwrap();
    first.append(changes(13, 15)).await.unwrap();
    first.append(changes(15, 17 + seed % 2)).await.unwrap();
    let table = log(&store, &world);
    if matches!(how, Made::Checkpoints | Made::Cleaned) {
        table.checkpoint(&mut table.facts().await.unwrap()).await.unwrap();
    }
    let mut second = sink(&store, &world).await;
    second.append(changes(17 + seed % 2, 20)).await.unwrap();
    second.append(changes(20, 21)).await.unwrap();
    if matches!(how, Made::Checkpoints | Made::Cleaned) {
        table.checkpoint(&mut table.facts().await.unwrap()).await.unwrap();
    }
    for step in 21..24 {
        second.append(changes(step, step + 1)).await.unwrap();
    }
    if how == Made::AtHead {
        table.checkpoint(&mut table.facts().await.unwrap()).await.unwrap();
    }
    let mut made = Table::read(&store).await;
    if how == Made::Cleaned {
        (0..7).for_each(|version| drop(made.files.remove(&entry(version))));
    }
    made
}

impl Table {
    pub(crate) async fn read(store: &Arc<dyn ObjectStore>) -> Self {
        let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
        let mut files = BTreeMap::new();
        for object in objects {
            let bytes = store.get(&object.location).await.unwrap().bytes().await.unwrap();
            files.insert(object.location.to_string(), bytes.to_vec());
        }
        Self { files }
    }

    pub(crate) async fn store(&self) -> Arc<dyn ObjectStore> {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        for (path, bytes) in &self.files {
            store.put(&Path::parse(path).unwrap(), bytes.clone().into()).await.unwrap();
        }
        store
    }

    /// The files of a folder.
    pub(crate) fn read_from(folder: &FsPath) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(below) = folders.pop() {
            for path in std::fs::read_dir(&below).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_string();
                    files.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
        Self { files }
    }

    pub(crate) fn write_to(&self, folder: &FsPath) {
        for (path, bytes) in &self.files {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
    }

    pub(crate) async fn verify(&self) -> Report {
        verify(&log(&self.store().await, &world(0).0), None).await.unwrap()
    }

    fn numbers(&self, rest: &str) -> Vec<u64> {
        let names = self.files.keys().filter_map(|path| path.strip_prefix("_delta_log/")?.strip_suffix(rest));
        names.filter_map(|digits| digits.parse().ok()).collect()
    }

    /// The versions whose entries are there.
    pub(crate) fn versions(&self) -> Vec<u64> {
        self.numbers(".json")
    }

    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        self.numbers(".checkpoint.parquet")
    }

    pub(crate) fn head(&self) -> u64 {
        *self.versions().last().unwrap()
    }

    /// The actions of an entry.
    pub(crate) fn actions(&self, version: u64) -> Vec<Value> {
        let text = std::str::from_utf8(&self.files[&entry(version)]).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn set(&mut self, version: u64, actions: &[Value]) {
        let lines: String = actions.iter().map(|a| format!("{a}\n")).collect();
        self.files.insert(entry(version), lines.into_bytes());
    }

    /// Changes each action of an entry.
    pub(crate) fn edit(&mut self, version: u64, change: impl Fn(&mut Value)) {
        let mut actions = self.actions(version);
        actions.iter_mut().for_each(change);
        self.set(version, &actions);
    }

    /// Adds an entry of somebody else's at the end.
    pub(crate) fn push(&mut self, operation: &str, actions: Vec<Value>) -> u64 {
        let version = self.head() + 1;
        let info = json!({"commitInfo": {"operation": operation, "timestamp": 1}});
        self.set(version, &[vec![info], actions].concat());
        version
    }

    pub(crate) fn stamp(&self, version: u64) -> Option<Value> {
        let actions = self.files.contains_key(&entry(version)).then(|| self.actions(version))?;
        let text = actions.iter().find_map(|a| a["commitInfo"]["userMetadata"].as_str())?;
        serde_json::from_str(text).ok()
    }

    pub(crate) fn restamp(&mut self, version: u64, change: impl Fn(&mut Value)) {
        self.edit(version, |action| restamp(action, &change));
    }

    /// The versions of the current generation whose commits of ours are of `kind` and have another of ours before them.
    pub(crate) fn ours(&self, kind: &str) -> Vec<u64> {
        let stamps: Vec<_> = self.versions().into_iter().filter_map(|v| Some((v, self.stamp(v)?))).collect();
        let generation = stamps.last().map(|(_, s)| s["generation"].clone());
        let of_kind =
            stamps.iter().skip(1).filter(|(_, s)| s["kind"] == kind && Some(&s["generation"]) == generation.as_ref());
        of_kind.map(|(v, _)| *v).collect()
    }

    /// The live files that entries still name, by the version that added them.
    pub(crate) fn live(&self) -> Vec<(u64, Value)> {
        let mut live: Vec<(u64, Value)> = Vec::new();
        for version in self.versions() {
            for action in self.actions(version) {
                let path = |kind: &str| action[kind]["path"].as_str().map(str::to_string);
                if let Some(path) = path("remove").or(path("add")) {
                    live.retain(|(_, add)| add["path"].as_str() != Some(&path));
                }
                if path("add").is_some() {
                    live.push((version, action["add"].clone()));
                }
            }
        }
        live
    }

    /// The newest `metaData` that entries still hold, with its version.
    pub(crate) fn metadata(&self) -> Option<(u64, Value)> {
        let all = self.versions().into_iter().rev();
        all.into_iter().find_map(|v| {
            let found = self.actions(v).into_iter().find(|a| a.get("metaData").is_some())?;
            Some((v, found))
        })
    }

    /// A data file of somebody else's, and its `add`.
    pub(crate) fn foreign_file(&mut self, chance: &mut Chance, rows: u64, data_change: bool) -> Value {
        let path = format!("part-{}-{}.parquet", self.files.len(), chance.below(1 << 40));
        let bytes = vec![7; 10 + chance.below(90) as usize];
        let add = json!({"add": {"path": path, "partitionValues": {}, "size": bytes.len(), "modificationTime": 1,
            "dataChange": data_change, "stats": json!({"numRecords": rows}).to_string(), "tags": {"ZCUBE_ID": "1"}}});
        self.files.insert(path, bytes);
        add
    }

    /// Paths that no version may name twice.
    pub(crate) fn paths(&self) -> BTreeSet<String> {
        self.files.keys().filter(|p| !p.starts_with("_delta_log")).cloned().collect()
    }
}

pub(crate) fn records(add: &Value) -> u64 {
    let stats: Value = serde_json::from_str(add["stats"].as_str().unwrap()).unwrap();
    stats["numRecords"].as_u64().unwrap() - add["deletionVector"]["cardinality"].as_u64().unwrap_or(0)
}

/// The `remove` of a live file.
pub(crate) fn remove(add: &Value, data_change: bool) -> Value {
    let mut remove = json!({"path": add["path"], "dataChange": data_change, "deletionTimestamp": 1,
        "extendedFileMetadata": true, "partitionValues": {}, "size": add["size"]});
    if add.get("deletionVector").is_some() {
        remove["deletionVector"] = add["deletionVector"].clone();
    }
    json!({ "remove": remove })
}

/// Changes the stamp of an action that has one.
pub(crate) fn restamp(action: &mut Value, change: impl Fn(&mut Value)) {
    if let Some(text) = action["commitInfo"]["userMetadata"].as_str() {
        let mut stamp: Value = serde_json::from_str(text).unwrap();
        change(&mut stamp);
        action["commitInfo"]["userMetadata"] = stamp.to_string().into();
    }
}
