//! Damage to data files, and to the actions that name them.

use serde_json::json;

use super::{Damage, OUTSIDE, added, file, knows, named, pick, reload, shifted};
use crate::tables::remove;

pub(super) const KINDS: &[(&str, Damage)] = &[
    ("a data file is gone", |t, c| {
        let (version, path) = file(t, c)?;
        t.files.remove(&path);
        named("R6", version, &[&path, "is gone"])
    }),
    ("a data file is cut", |t, c| {
        let (version, path) = file(t, c)?;
        let bytes = t.files.get_mut(&path)?;
        let (all, left) = (bytes.len(), c.below(bytes.len() as u64) as usize);
        bytes.truncate(left);
        named("R6", version, &[&path, &format!("has {left} bytes, the log says {all}")])
    }),
    ("a data file is longer", |t, c| {
        let (version, path) = file(t, c)?;
        t.files.get_mut(&path)?.push(0);
        named("R6", version, &[&path, "bytes, the log says"])
    }),
    ("a data file has another name", |t, c| {
        let (version, path) = file(t, c)?;
        let bytes = t.files.remove(&path)?;
        t.files.insert(format!("{path}.bak"), bytes);
        named("R6", version, &[&path, "is gone"])
    }),
    ("an add stands twice in its commit", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let mut actions = t.actions(version);
        let add = actions.iter().find(|a| a.get("add").is_some())?.clone();
        actions.push(add);
        t.set(version, &actions);
        named("R4", version, &["a second time"])
    }),
    ("an add stands again in a later commit", |t, c| {
        let (from, add) = pick(c, &t.live())?;
        let later: Vec<u64> = t.ours("append").into_iter().filter(|v| *v > from).collect();
        let version = pick(c, &later)?;
        let mut add = add.clone();
        add["dataChange"] = true.into();
        let actions = [t.actions(version), vec![json!({ "add": add })]].concat();
        t.set(version, &actions);
        named("R4", version, &["a second time"])
    }),
    ("an add has another size", |t, c| added(t, c, "R6", &["numOutputBytes"], |add| shifted(&mut add["size"], 5))),
    ("an add counts other rows", |t, c| {
        added(t, c, "R6", &["hold 9999 rows"], |add| add["stats"] = "{\"numRecords\":9999}".into())
    }),
    ("an add has no statistics", |t, c| {
        added(t, c, "R6", &["without a row count"], |add| drop(add.as_object_mut().unwrap().remove("stats")))
    }),
    ("an add has a partition value", |t, c| {
        added(t, c, "R6", &["1 partition values"], |add| add["partitionValues"] = json!({"id": "3"}))
    }),
    ("an add says that no rows change", |t, c| {
        added(t, c, "R4", &["as if no rows changed"], |add| add["dataChange"] = false.into())
    }),
    ("an add lies outside the table", |t, c| {
        let outside = pick(c, &OUTSIDE)?;
        added(t, c, "R6", &[outside, "lies outside the table"], |add| add["path"] = outside.into())
    }),
    ("an add is left out", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let mut actions = t.actions(version);
        let at = actions.iter().position(|a| a.get("add").is_some())?;
        actions.remove(at);
        t.set(version, &actions);
        named("R6", version, &["hold"])
    }),
    ("a reload leaves a file live", |t, _| {
        let version = reload(t).filter(|v| knows(t, *v))?;
        let mut actions = t.actions(version);
        let at = actions.iter().position(|a| a.get("remove").is_some())?;
        actions.remove(at);
        t.set(version, &actions);
        named("R1", version, &["older files live"])
    }),
    ("a reload removes a file that never was", |t, _| {
        let version = reload(t).filter(|v| knows(t, *v))?;
        let actions = [t.actions(version), vec![remove(&json!({"path": "never.parquet", "size": 3}), true)]].concat();
        t.set(version, &actions);
        named("R1", version, &["never.parquet", "was not live"])
    }),
    ("an append removes a file", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let (_, add) = t.live().into_iter().find(|(from, _)| *from < version)?;
        let actions = [t.actions(version), vec![remove(&add, true)]].concat();
        t.set(version, &actions);
        named("R1", version, &["removes the file"])
    }),
];
