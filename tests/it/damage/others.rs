//! What others commit that changes rows or what is ours, and metadata that contradict.

use serde_json::{Value, json};

use super::{
    Damage, OUTSIDE, altered, is_last_word, named, newest_checkpoint, pick, property, relabelled, reload, rewritten,
    vectored,
};
use crate::tables::{records, remove};

pub(super) const KINDS: &[(&str, Damage)] = &[
    ("a property of ours is changed by others", |t, c| {
        let key = property(c);
        altered(t, &[key, "\"else\""], |m| m["configuration"][key] = "else".into())
    }),
    ("a property of ours is removed by others", |t, c| {
        let key = property(c);
        altered(t, &[key, "to nothing"], |m| drop(m["configuration"].as_object_mut().unwrap().remove(key)))
    }),
    ("a reload's properties contradict it", |t, c| {
        let (key, value) = pick(
            c,
            &[
                ("cutover.generation", "7"),
                ("cutover.step", "9"),
                ("cutover.connector", "p/v/x"),
                ("cutover.commit", "x"),
            ],
        )?;
        relabelled(t, "R1", &["disagree", value], |m| m["configuration"][key] = value.into())
    }),
    ("a reload lacks a property", |t, c| {
        let key = property(c);
        relabelled(t, "R1", &[key, "missing"], |m| drop(m["configuration"].as_object_mut().unwrap().remove(key)))
    }),
    ("a reload's mode forbids what follows", |t, _| {
        let at = reload(t).filter(|v| is_last_word(t, *v))?;
        let append = t.ours("append").into_iter().find(|v| *v > at)?;
        relabelled(t, "R1", &[], |m| m["configuration"]["cutover.mode"] = "snapshot".into())?;
        named("R1", append, &["mode snapshot"])
    }),
    ("a reload's key forbids what follows", |t, _| {
        let at = reload(t).filter(|v| is_last_word(t, *v))?;
        let append = t.ours("append").into_iter().find(|v| *v > at)?;
        relabelled(t, "R1", &[], |m| m["configuration"]["cutover.key"] = "[]".into())?;
        named("R1", append, &["no key"])
    }),
    ("a reload's schema lacks the columns of continuity", |t, _| {
        relabelled(t, "R1", &["not __step long"], |m| {
            m["schemaString"] = m["schemaString"].as_str().unwrap().replace("__step", "step").into();
        })
    }),
    ("a reload's schema is another than the checkpoint's", |t, _| {
        let at = reload(t).filter(|v| is_last_word(t, *v))?;
        newest_checkpoint(t).filter(|c| *c > at)?;
        relabelled(t, "R6", &[], |m| {
            m["schemaString"] = m["schemaString"].as_str().unwrap().replace("\"name\",", "\"title\",").into();
        })?;
        named("R6", t.head(), &["metadata", "schema"])
    }),
    ("others change the schema", |t, _| {
        altered(t, &["schema", "title"], |m| {
            m["schemaString"] =
                m["schemaString"].as_str().unwrap().replace("\"name\":\"name\"", "\"name\":\"title\"").into();
        })
    }),
    ("others change the partitioning", |t, _| {
        altered(t, &["partitioning", "id"], |m| m["partitionColumns"] = json!(["id"]))
    }),
    ("a reload's partitioning is another than its files'", |t, _| {
        let at = reload(t)?;
        t.actions(at).iter().find(|a| a.get("add").is_some())?;
        relabelled(t, "R6", &["0 partition values", "1 columns"], |m| m["partitionColumns"] = json!(["id"]))
    }),
    ("others change the table's id", |t, _| altered(t, &["table's id", "another"], |m| m["id"] = "another".into())),
    ("others let our txn expire", |t, _| {
        altered(t, &["delta.setTransactionRetentionDuration", "interval 1 day"], |m| {
            m["configuration"]["delta.setTransactionRetentionDuration"] = "interval 1 day".into();
        })
    }),
    ("the protocol is raised", |t, _| {
        let version = t.push("UPGRADE", vec![json!({"protocol": {"minReaderVersion": 4, "minWriterVersion": 8}})]);
        named("R5", version, &["protocol (4, 8)"])
    }),
    ("others demand an unknown feature", |t, _| {
        let version = t.push(
            "UPGRADE",
            vec![json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]}})],
        );
        named("R5", version, &["fromTheFuture"])
    }),
    ("others append", |t, c| {
        let add = t.foreign_file(c, 4, true);
        let version = t.push("WRITE", vec![add]);
        named("R5", version, &["changes rows", "adds 1 files and removes 0"])
    }),
    ("others delete", |t, c| rewritten(t, c, &["changes rows"], |_, _, add| vec![remove(add, true)])),
    ("others update", |t, c| {
        rewritten(t, c, &["changes rows"], |t, c, add| vec![remove(add, true), t.foreign_file(c, records(add), true)])
    }),
    ("others overwrite", |t, c| {
        let live = t.live();
        (!live.is_empty()).then_some(())?;
        let mut actions: Vec<Value> = live.iter().map(|(_, add)| remove(add, true)).collect();
        actions.push(t.foreign_file(c, 2, true));
        let version = t.push("WRITE", actions);
        named("R5", version, &["changes rows", &format!("removes {}", live.len())])
    }),
    ("others restore an older version", |t, _| {
        let (version, gone) = (
            t.head() + 1,
            t.versions().into_iter().flat_map(|v| t.actions(v)).find(|a| {
                let path = a["add"]["path"].as_str();
                path.is_some() && t.live().iter().all(|(_, add)| add["path"].as_str() != path)
            })?,
        );
        t.push("RESTORE", vec![gone]);
        named("R5", version, &["changes rows"])
    }),
    ("others delete by a vector", |t, c| {
        rewritten(t, c, &["changes rows"], |_, _, add| vec![remove(add, true), json!({"add": vectored(add, true)})])
    }),
    ("an OPTIMIZE loses rows", |t, c| {
        rewritten(t, c, &["replaces", "by 0"], |t, c, add| vec![remove(add, false), t.foreign_file(c, 0, false)])
    }),
    ("an OPTIMIZE doubles rows", |t, c| {
        rewritten(t, c, &["replaces"], |t, c, add| {
            vec![remove(add, false), t.foreign_file(c, 2 * records(add) + 1, false)]
        })
    }),
    ("an OPTIMIZE leaves the old file live", |t, c| {
        rewritten(t, c, &["replaces 0 rows by"], |t, c, add| vec![t.foreign_file(c, records(add).max(1), false)])
    }),
    ("a delete says that no rows change", |t, c| {
        rewritten(t, c, &["replaces", "by 0"], |_, _, add| vec![remove(add, false)])
    }),
    ("a vector comes in as if no rows changed", |t, c| {
        let live: Vec<_> =
            t.live().into_iter().filter(|(_, add)| records(add) > 0 && add.get("deletionVector").is_none()).collect();
        let (_, add) = pick(c, &live)?;
        let version = t.push("OPTIMIZE", vec![remove(&add, false), json!({"add": vectored(&add, false)})]);
        named("R5", version, &["replaces"])
    }),
    ("others remove a file that never was", |t, _| {
        let version = t.push("OPTIMIZE", vec![remove(&json!({"path": "never.parquet", "size": 3}), false)]);
        named("R5", version, &["never.parquet", "was not live"])
    }),
    ("an OPTIMIZE adds a file outside the table", |t, c| {
        let outside = pick(c, &OUTSIDE)?;
        rewritten(t, c, &[outside, "outside the table"], |t, c, add| {
            let mut file = t.foreign_file(c, records(add), false);
            file["add"]["path"] = outside.into();
            vec![remove(add, false), file]
        })
    }),
];
