//! What a foreign writer does to the table, between two calls of ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use cutover::continuity::stamp::Layout;
use object_store::{PutMode, PutOptions};
use parquet::arrow::ArrowWriter;
use roaring::RoaringTreemap;
use serde_json::{Value, json};

use super::oracle::Oracle;
use super::rows::{File, Row};
use super::storage::Storage;
use super::time::Time;
use crate::program::Chance;
use crate::tables::{entry, remove};
use crate::vectors;
use crate::world::view;

/// Removed and unknown files are deleted after this long, as engines have it.
const RETENTION_MILLIS: i64 = 7 * 24 * 3600 * 1000;
/// How vectors are stored that stay in the table, and all ways: with its rows, in a file of the table's, in one that is
/// named by a whole path.
const WITHIN: &[&str] = &["i", "u"];
const ANYWHERE: &[&str] = &["i", "u", "p"];
/// No engine keeps a log for less: a put that is under way is done or given up by then.
const YOUNG_MILLIS: i64 = 10 * 60 * 1000;

/// Somebody else's hand on the table; knows no more than the table says.
pub(super) struct Foreign<'a> {
    pub(super) oracle: &'a mut Oracle,
    pub(super) storage: &'a Storage,
    pub(super) time: &'a Time,
    pub(super) chance: &'a mut Chance,
}

fn data_file(layout: Layout, rows: &[Row]) -> Vec<u8> {
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.generation))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.change.0))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.change.1))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.change.2))),
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.change.3.as_ref()))),
    ];
    if layout == Layout::Current {
        drop(columns.drain(..3));
    }
    let batch = RecordBatch::try_new(view().table_schema(layout), columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

impl Foreign<'_> {
    /// A table of somebody else's, before anything of ours.
    pub(super) fn create(&mut self) -> &'static str {
        let schema = json!({"type": "struct", "fields": [
            {"name": "id", "type": "long", "nullable": true, "metadata": {}},
            {"name": "name", "type": "string", "nullable": true, "metadata": {}}]});
        let metadata = json!({"id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9", "format": {"provider": "parquet", "options": {}},
            "schemaString": schema.to_string(), "partitionColumns": [], "createdTime": 1, "configuration": {"owner": "them"}});
        let mut actions =
            vec![json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}), json!({ "metaData": metadata })];
        for _ in 0..self.chance.below(3) {
            let row = Row { generation: 0, change: (0, "i".into(), 1, Some("theirs".into())) };
            actions.push(self.add(&[row], true));
        }
        self.commit("CREATE TABLE", actions);
        "CREATE TABLE"
    }

    /// Something that no reader of rows notices; what it was.
    pub(super) fn maintain(&mut self) -> &'static str {
        if self.oracle.layout == Layout::Current && self.chance.one_in(3) {
            return self.rewrite();
        }
        match self.chance.below(5) {
            0 | 1 => self.optimize(),
            2 => self.vacuum(),
            3 => self.set_property("owner.note"),
            _ => {
                self.commit("COMPUTE STATS", vec![json!({"txn": {"appId": "theirs", "version": 1}})]);
                "an empty commit"
            }
        }
    }

    /// Something after which the table is not what our commits made it; what it was.
    pub(super) fn drift(&mut self) -> &'static str {
        let is_current = self.oracle.layout == Layout::Current;
        let what = match self.chance.below(if is_current { 6 } else { 3 }) {
            0 | 1 => {
                let row = Row { generation: 1, change: (1, "i".into(), 999, Some("theirs".into())) };
                let action = self.add(&[row], true);
                self.commit("WRITE", vec![action]);
                "an append of others"
            }
            3 | 4 if self.delete() => "a row that others deleted",
            5 if self.falsify() => "files that others rewrote with another value",
            _ => {
                let mut metadata = self.oracle.metadata.clone();
                metadata["configuration"]["cutover.step"] = "1".into();
                self.commit("SET TBLPROPERTIES", vec![json!({ "metaData": metadata })]);
                "a changed property"
            }
        };
        self.oracle.drift = Some(what);
        self.oracle.drifts += 1;
        what
    }

    fn optimize(&mut self) -> &'static str {
        let chosen: Vec<_> = self.oracle.live.values().filter(|_| self.chance.one_in(2)).cloned().collect();
        if chosen.is_empty() {
            return "nothing to compact";
        }
        let rows: Vec<Row> = chosen.iter().flat_map(|f| f.left().cloned()).collect();
        let mut actions: Vec<Value> = chosen.iter().map(|f| self.remove(f, false)).collect();
        actions.push(self.add(&rows, false));
        self.commit("OPTIMIZE", actions);
        "OPTIMIZE"
    }

    fn remove(&self, file: &File, data_change: bool) -> Value {
        let mut action = remove(&file.add, data_change);
        action["remove"]["deletionTimestamp"] = self.time.unix_millis().into();
        action
    }

    fn one_live(&mut self) -> Option<File> {
        let many = self.oracle.live.len() as u64;
        let at = (many > 0).then(|| self.chance.below(many) as usize)?;
        self.oracle.live.values().nth(at).cloned()
    }

    /// Writes one file anew: without the rows that are deleted, or with them and a vector, or its vector alone.
    fn rewrite(&mut self) -> &'static str {
        let Some(file) = self.one_live() else { return "nothing to rewrite" };
        let removed = self.remove(&file, false);
        let (add, what) = match self.chance.below(3) {
            0 => {
                let left: Vec<Row> = file.left().cloned().collect();
                (self.add(&left, false), "a file is purged")
            }
            1 => {
                let add = self.add(&file.rows, false);
                (self.with_vector(add, &file.deleted, WITHIN), "a file is copied with its deleted rows")
            }
            _ if file.deleted.is_empty() => return "no vector to rewrite",
            _ => {
                // No commit adds what it removes: the same rows, held by the log, are the same vector.
                let is_inline = file.add["deletionVector"]["storageType"] == "i";
                let storages = if is_inline { &["u"] } else { WITHIN };
                let again = json!({ "add": file.add });
                (self.with_vector(again, &file.deleted, storages), "a vector is written anew")
            }
        };
        let mut add = add;
        add["add"]["dataChange"] = false.into();
        self.commit("REORG", vec![removed, add]);
        what
    }

    /// Deletes a row where it stands; whether there was one.
    fn delete(&mut self) -> bool {
        let Some(file) = self.one_live() else { return false };
        let left: Vec<u64> = (0..file.rows.len() as u64).filter(|place| !file.deleted.contains(*place)).collect();
        if left.is_empty() {
            return false;
        }
        let mut deleted = file.deleted.clone();
        deleted.insert(left[self.chance.below(left.len() as u64) as usize]);
        let mut actions = vec![self.remove(&file, true)];
        if left.len() > 1 {
            let mut again = self.with_vector(json!({ "add": file.add }), &deleted, ANYWHERE);
            again["add"]["dataChange"] = true.into();
            actions.push(again);
        }
        self.commit("DELETE", actions);
        true
    }

    /// Rewrites a file with another value in it, and says that no row changes; whether there was one.
    fn falsify(&mut self) -> bool {
        let Some(file) = self.one_live() else { return false };
        let mut rows: Vec<Row> = file.left().cloned().collect();
        let Some(row) = rows.first_mut() else { return false };
        row.change.3 = Some("theirs".into());
        let actions = vec![self.remove(&file, false), self.add(&rows, false)];
        self.commit("OPTIMIZE", actions);
        true
    }

    /// The `add` with a vector that deletes these rows, stored in one of these ways.
    fn with_vector(&mut self, mut add: Value, deleted: &RoaringTreemap, storages: &[&str]) -> Value {
        let mut stats: Value = serde_json::from_str(add["add"]["stats"].as_str().unwrap()).unwrap();
        stats["tightBounds"] = false.into();
        add["add"]["stats"] = stats.to_string().into();
        if deleted.is_empty() {
            return add;
        }
        let folder = ["", "ab"][self.chance.below(2) as usize];
        add["add"]["deletionVector"] = match storages[self.chance.below(storages.len() as u64) as usize] {
            "i" => vectors::inlined(deleted),
            storage => {
                let id = u128::from(self.chance.below(u64::MAX)) << 64 | u128::from(self.chance.below(u64::MAX));
                let (vector, path, bytes) = vectors::beside(deleted, folder, id, storage);
                self.storage.poke(&path, bytes, PutOptions::default());
                vector
            }
        };
        add
    }

    /// Deletes what no version of the retention needs; what is not committed is old enough, too.
    fn vacuum(&mut self) -> &'static str {
        self.commit("VACUUM START", vec![]);
        let limit = self.time.unix_millis() - RETENTION_MILLIS;
        for (path, written) in self.storage.dated() {
            if path.starts_with("_delta_log/") || self.oracle.needs(&path) {
                continue;
            }
            if self.oracle.removed.get(&path).copied().unwrap_or(written) < limit {
                self.storage.remove(&path);
            }
        }
        self.commit("VACUUM END", vec![]);
        "VACUUM"
    }

    fn set_property(&mut self, key: &str) -> &'static str {
        let mut metadata = self.oracle.metadata.clone();
        metadata["configuration"][key] = self.chance.below(9).to_string().into();
        self.commit("SET TBLPROPERTIES", vec![json!({ "metaData": metadata })]);
        "SET TBLPROPERTIES"
    }

    /// The file of ours that was removed first and is still there, and when it was removed.
    pub(super) fn restorable(&self) -> Option<(String, i64)> {
        let is_there = |path: &str| {
            let mut objects = self.oracle.gone.get(path).into_iter().flat_map(File::objects);
            path.starts_with("cutover-") && objects.all(|object| self.storage.peek(&object).is_some())
        };
        let removed = self.oracle.removed.iter().filter(|(path, _)| is_there(path));
        removed.min_by_key(|(_, millis)| **millis).map(|(path, millis)| (path.clone(), *millis))
    }

    /// Brings a removed file back.
    pub(super) fn restore(&mut self, path: &str) -> &'static str {
        if self.restorable().is_none_or(|(first, _)| first != path) {
            return "nothing to restore";
        }
        let Some(file) = self.oracle.expect_again(path) else { return "nothing to restore" };
        let mut add = file.add;
        (add["dataChange"], add["modificationTime"]) = (true.into(), self.time.unix_millis().into());
        self.commit("RESTORE", vec![json!({ "add": add })]);
        self.oracle.drift = Some("a restored file");
        self.oracle.drifts += 1;
        "RESTORE"
    }

    /// Deletes entries that `checkpoint` stands for, none of which is young.
    pub(super) fn clean(&mut self, checkpoint: u64) -> &'static str {
        let end = self.chance.below(checkpoint + 1);
        let dated: BTreeMap<String, i64> = self.storage.dated().into_iter().collect();
        let now = self.time.unix_millis();
        let is_young = |version: &u64| dated.get(&entry(*version)).is_some_and(|date| now - date < YOUNG_MILLIS);
        let end = (0..end).find(is_young).unwrap_or(end);
        for version in 0..end {
            self.storage.remove(&entry(version));
        }
        "a checkpoint, and entries below it are deleted"
    }

    fn add(&mut self, rows: &[Row], data_change: bool) -> Value {
        let bytes = data_file(self.oracle.layout, rows);
        let path = format!("part-{}-{}.parquet", self.oracle.entries.len(), self.chance.below(1 << 40));
        let add = json!({"add": {"path": path, "partitionValues": {}, "size": bytes.len(), "dataChange": data_change,
            "modificationTime": self.time.unix_millis(), "stats": json!({"numRecords": rows.len()}).to_string()}});
        self.storage.poke(&path, bytes, PutOptions::default());
        add
    }

    fn commit(&mut self, operation: &str, actions: Vec<Value>) {
        let version = self.oracle.head.map_or(0, |head| head + 1) + self.pending();
        let info = json!({"commitInfo": {"operation": operation, "timestamp": self.time.unix_millis()}});
        let lines: String = std::iter::once(info).chain(actions).map(|action| format!("{action}\n")).collect();
        let is_put = self.storage.poke(&entry(version), lines.into_bytes(), PutMode::Create.into());
        assert!(is_put, "version {version} is free while nobody else moves");
        self.oracle.foreign.insert(version);
    }

    /// Versions of this writer that the oracle has not read yet.
    fn pending(&self) -> u64 {
        self.oracle.foreign.iter().filter(|v| self.oracle.head.is_none_or(|head| **v > head)).count() as u64
    }
}
