//! Damage to the log's own files and to the order of versions.

use serde_json::json;

use super::{Damage, middle, named, newest_checkpoint, pick, swap};
use crate::tables::{Table, checkpoint, entry};

pub(super) const KINDS: &[(&str, Damage)] = &[
    ("an entry in the middle is missing", |t, c| {
        let version = pick(c, &middle(t))?;
        t.files.remove(&entry(version));
        named("R6", version, &["is missing"])
    }),
    ("an entry is torn", |t, c| {
        let version = pick(c, &[t.ours("append"), t.ours("mark"), t.ours("reload")].concat())?;
        let bytes = t.files.get_mut(&entry(version)).unwrap();
        bytes.truncate(1 + c.below(bytes.len() as u64 - 2) as usize);
        named("", version, &[])
    }),
    ("an entry has no bytes", |t, c| {
        let version = pick(c, &t.versions())?;
        t.files.insert(entry(version), vec![]);
        named("R6", version, &["empty"])
    }),
    ("an entry is garbage", |t, c| {
        let version = pick(c, &t.versions())?;
        let bytes = (0..200).map(|_| c.below(256) as u8).collect();
        t.files.insert(entry(version), bytes);
        named("R6", version, &[])
    }),
    ("an entry has zeros at its end", |t, c| {
        let version = pick(c, &t.versions())?;
        let bytes = t.files.get_mut(&entry(version)).unwrap();
        let half = bytes.len() / 2;
        bytes[half..].fill(0);
        named("R6", version, &["torn or damaged"])
    }),
    ("two actions stand in one line", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let text = String::from_utf8(t.files[&entry(version)].clone()).unwrap();
        t.files.insert(entry(version), text.replacen('\n', "", 1).into_bytes());
        named("R6", version, &["torn or damaged"])
    }),
    ("two actions stand in one object", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let mut actions = t.actions(version);
        let txn = actions.remove(1)["txn"].clone();
        actions[0]["txn"] = txn;
        t.set(version, &actions);
        named("R6", version, &["line 1 has 2 actions"])
    }),
    ("the newest entry is missing and a checksum is there", |t, _| {
        let version = t.head();
        t.files.remove(&entry(version));
        t.files.insert(format!("_delta_log/{version:020}.crc"), b"{}".to_vec());
        (newest_checkpoint(t) != Some(version)).then_some(())?;
        named("R6", version, &["is missing", ".crc speaks of it"])
    }),
    ("the newest entry is missing beside its checkpoint", |t, _| {
        let version = newest_checkpoint(t).filter(|v| *v == t.head())?;
        t.files.remove(&entry(version));
        named("R6", version, &["is missing", "there is a checkpoint of it"])
    }),
    ("a checkpoint is cut", |t, c| {
        let version = pick(c, &t.checkpoints())?;
        let bytes = t.files.get_mut(&checkpoint(version)).unwrap();
        bytes.truncate(12 + c.below(bytes.len() as u64 - 13) as usize);
        named("R6", version, &["without a Parquet footer"])
    }),
    ("a checkpoint has no bytes", |t, c| {
        let version = pick(c, &t.checkpoints())?;
        t.files.insert(checkpoint(version), vec![]);
        named("R6", version, &["has 0 bytes"])
    }),
    ("a checkpoint is garbage", |t, c| {
        let version = pick(c, &t.checkpoints())?;
        let bytes = (0..5000).map(|_| c.below(256) as u8).collect();
        t.files.insert(checkpoint(version), bytes);
        named("R6", version, &["5000 bytes without a Parquet footer"])
    }),
    ("a checkpoint holds an older state", |t, _| {
        let all = t.checkpoints();
        let [.., older, newer] = all.as_slice() else { return None };
        let says = |t: &Table, v: u64| t.stamp(v).map(|s| s["to"].clone());
        if says(t, *newer).is_some() && says(t, *older) == says(t, *newer) {
            return None;
        }
        t.files.insert(checkpoint(*newer), t.files[&checkpoint(*older)].clone());
        named("R6", *newer, &["says step"])
    }),
    ("a part of the only checkpoint is missing", |t, _| {
        let version = newest_checkpoint(t)?;
        let bytes = t.files.remove(&checkpoint(version)).unwrap();
        let part = format!("_delta_log/{version:020}.checkpoint.0000000001.0000000002.parquet");
        t.files.insert(part, bytes);
        let start = t.versions()[0];
        t.checkpoints().iter().for_each(|c| drop(t.files.remove(&checkpoint(*c))));
        (start > 0).then_some(())?;
        named("R6", start - 1, &["is missing", "lacks the other parts"])
    }),
    ("the only checkpoint is missing", |t, _| {
        let start = t.versions()[0];
        (start > 0).then_some(())?;
        t.checkpoints().iter().for_each(|c| drop(t.files.remove(&checkpoint(*c))));
        named("R6", start - 1, &["is missing"])
    }),
    ("the hint is garbage", |t, _| {
        t.files.insert("_delta_log/_last_checkpoint".into(), b"{\"version\":".to_vec());
        named("R6", 0, &["_last_checkpoint is no JSON"])
    }),
    ("the hint names no version", |t, _| {
        t.files.insert("_delta_log/_last_checkpoint".into(), b"{\"size\":9}".to_vec());
        named("R6", 0, &["_last_checkpoint names no version"])
    }),
    ("the hint names a checkpoint that is not there", |t, c| {
        let absent: Vec<u64> = (0..t.head()).filter(|v| !t.checkpoints().contains(v)).collect();
        let version = pick(c, &absent)?;
        let hint = json!({"version": version, "size": 9}).to_string();
        t.files.insert("_delta_log/_last_checkpoint".into(), hint.into_bytes());
        named("R6", version, &["_last_checkpoint names the checkpoint of version", "not there"])
    }),
    ("two entries are exchanged", |t, c| {
        let appends = t.ours("append");
        let pairs: Vec<u64> = appends.iter().copied().filter(|v| appends.contains(&(v + 1))).collect();
        let version = pick(c, &pairs)?;
        swap(t, version, version + 1);
        named("R2", version, &["a gap"])
    }),
    ("an append is cut out and the rest moved down", |t, c| {
        let free: Vec<u64> =
            t.ours("append").into_iter().filter(|v| newest_checkpoint(t) < Some(*v) && *v < t.head()).collect();
        let version = pick(c, &free)?;
        let next = t.stamp(version + 1)?;
        (next["kind"] == "append").then_some(())?;
        (version..t.head()).for_each(|v| drop(t.files.insert(entry(v), t.files[&entry(v + 1)].clone())));
        t.files.remove(&entry(t.head()));
        named("R2", version, &["a gap"])
    }),
    ("an append stands twice and the rest is moved up", |t, c| {
        let free: Vec<u64> = t.ours("append").into_iter().filter(|v| newest_checkpoint(t) < Some(*v)).collect();
        let version = pick(c, &free)?;
        (version..=t.head()).rev().for_each(|v| drop(t.files.insert(entry(v + 1), t.files[&entry(v)].clone())));
        named("R4", version + 1, &["a second time"])
    }),
];
