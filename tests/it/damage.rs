//! Kinds of damage, each found and named by `verify`.

use cutover::inspect::{Report, Verdict};
use serde_json::{Value, json};

use crate::program::Chance;
use crate::tables::{Made, Table, checkpoint, entry, made, records, remove};

/// What a finding must say: rule (any when empty), version, words.
pub(crate) type Named = (&'static str, u64, Vec<String>);

/// Damages a table; `None` where it has no place for this kind.
pub(crate) type Damage = fn(&mut Table, &mut Chance) -> Option<Named>;

fn pick<T: Clone>(chance: &mut Chance, from: &[T]) -> Option<T> {
    if from.is_empty() { None } else { Some(from[chance.below(from.len() as u64) as usize].clone()) }
}

fn named(rule: &'static str, version: u64, words: &[&str]) -> Option<Named> {
    Some((rule, version, words.iter().map(|w| w.to_string()).collect()))
}

/// A version of ours of the kind, changed action by action.
fn edited(
    t: &mut Table, c: &mut Chance, kind: &str, rule: &'static str, words: &[&str], change: impl Fn(&mut Value),
) -> Option<Named> {
    let version = pick(c, &t.ours(kind))?;
    t.edit(version, change);
    named(rule, version, words)
}

/// A version of ours of the kind, with another stamp.
fn forged(
    t: &mut Table, c: &mut Chance, kind: &str, rule: &'static str, words: &[&str], change: impl Fn(&mut Value),
) -> Option<Named> {
    let version = pick(c, &t.ours(kind))?;
    t.restamp(version, change);
    named(rule, version, words)
}

/// An append's file action, changed.
fn added(t: &mut Table, c: &mut Chance, rule: &'static str, words: &[&str], change: impl Fn(&mut Value)) -> Option<Named> {
    edited(t, c, "append", rule, words, |a| {
        if let Some(add) = a.get_mut("add") {
            change(add);
        }
    })
}

fn count(stamp: &mut Value, op: &str) {
    stamp["rows"][op] = (stamp["rows"][op].as_u64().unwrap() + 1).into();
}

fn shifted(value: &mut Value, by: i64) {
    *value = (value.as_i64().unwrap() + by).into();
}

fn metric(t: &mut Table, c: &mut Chance, kind: &str, name: &'static str) -> Option<Named> {
    edited(t, c, kind, "R6", &[name, "77"], |a| {
        if a.get("commitInfo").is_some() {
            a["commitInfo"]["operationMetrics"][name] = "77".into();
        }
    })
}

/// The metadata as somebody else's commit changes them.
fn altered(t: &mut Table, words: &[&str], change: impl Fn(&mut Value)) -> Option<Named> {
    let (_, mut metadata) = t.metadata()?;
    change(&mut metadata["metaData"]);
    let version = t.push("SET TBLPROPERTIES", vec![metadata]);
    named("R5", version, words)
}

/// The metadata of the current reload, changed where they stand.
fn relabelled(t: &mut Table, rule: &'static str, words: &[&str], change: impl Fn(&mut Value)) -> Option<Named> {
    let version = reload(t)?;
    t.edit(version, |a| {
        if a.get("metaData").is_some() {
            change(&mut a["metaData"]);
        }
    });
    named(rule, version, words)
}

fn reload(t: &Table) -> Option<u64> {
    t.ours("reload").last().copied()
}

/// Whether the log tells which files were live before `version`.
fn knows(t: &Table, version: u64) -> bool {
    let start = t.versions()[0];
    start == 0 || t.checkpoints().iter().any(|c| c + 1 >= start && *c < version)
}

/// Whether nobody changed the metadata after `version`.
fn is_last_word(t: &Table, version: u64) -> bool {
    t.metadata().is_some_and(|(at, _)| at == version)
}

/// A live file that entries name.
fn file(t: &Table, c: &mut Chance) -> Option<(u64, String)> {
    let (version, add) = pick(c, &t.live())?;
    Some((version, add["path"].as_str().unwrap().to_string()))
}

/// Somebody else's commit over some live files.
fn rewritten(
    t: &mut Table, c: &mut Chance, words: &[&str], actions: impl Fn(&mut Table, &mut Chance, &Value) -> Vec<Value>,
) -> Option<Named> {
    let live: Vec<_> = t.live().into_iter().filter(|(_, add)| records(add) > 0).collect();
    let (_, add) = pick(c, &live)?;
    let actions = actions(t, c, &add);
    let version = t.push("OPTIMIZE", actions);
    named("R5", version, words)
}

/// The entries above the newest checkpoint that have one above them.
fn middle(t: &Table) -> Vec<u64> {
    let checkpoint = t.checkpoints().last().copied();
    let first = checkpoint.map_or(0, |c| c + 1);
    (first.max(1)..t.head()).collect()
}

fn newest_checkpoint(t: &Table) -> Option<u64> {
    t.checkpoints().last().copied()
}

fn swap(t: &mut Table, a: u64, b: u64) {
    let (first, second) = (t.files[&entry(a)].clone(), t.files[&entry(b)].clone());
    t.files.insert(entry(a), second);
    t.files.insert(entry(b), first);
}

const OUTSIDE: [&str; 4] = ["/etc/passwd", "../other/f.parquet", "s3://bucket/f.parquet", "file:///tmp/f.parquet"];

pub(crate) const KINDS: &[(&str, Damage)] = &[
    // The log's own files.
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
    // Data files.
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
    // Actions on files.
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
    ("an add has another size", |t, c| {
        added(t, c, "R6", &["numOutputBytes"], |add| shifted(&mut add["size"], 5))
    }),
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
    // The commit info.
    ("the commit info is missing", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let actions = t.actions(version);
        t.set(version, &actions[1..]);
        named("R5", version, &["without our commit info", "cutover/step"])
    }),
    ("the stamp is missing", |t, c| {
        edited(t, c, "append", "R5", &["without our commit info"], |a| {
            if let Some(info) = a.get_mut("commitInfo") {
                info.as_object_mut().unwrap().remove("userMetadata");
            }
        })
    }),
    ("the stamp is cut", |t, c| {
        edited(t, c, "append", "R2", &["cannot be trusted"], |a| {
            if a.get("commitInfo").is_some() {
                a["commitInfo"]["userMetadata"] = "{\"cutover\":1,\"kind\":\"app".into();
            }
        })
    }),
    ("the stamp lacks a field", |t, c| {
        let field = pick(c, &["kind", "connector", "generation", "epoch", "writer", "commit", "to", "rows", "digest"])?;
        forged(t, c, "append", "R2", &["cannot be trusted"], |s| drop(s.as_object_mut().unwrap().remove(field)))
    }),
    ("the commit info is not first", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let mut actions = t.actions(version);
        actions.swap(0, 1);
        t.set(version, &actions);
        named("R2", version, &["not the first action"])
    }),
    ("the commit info stands twice", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let actions = t.actions(version);
        t.set(version, &[vec![actions[0].clone()], actions].concat());
        named("R2", version, &["commitInfo twice"])
    }),
    ("the contract number is another", |t, c| {
        forged(t, c, "append", "R2", &["contract number 2"], |s| s["cutover"] = 2.into())
    }),
    ("an append is called a mark", |t, c| {
        forged(t, c, "append", "R2", &["covers no valid range"], |s| s["kind"] = "mark".into())
    }),
    ("an append is called maintenance", |t, c| {
        forged(t, c, "append", "R2", &["covers no valid range"], |s| s["kind"] = "maintenance".into())
    }),
    ("an append is called a reload", |t, c| {
        forged(t, c, "append", "R1", &["has a first step"], |s| s["kind"] = "reload".into())
    }),
    ("a mark is called an append", |t, c| {
        forged(t, c, "mark", "R2", &["covers no valid range"], |s| s["kind"] = "append".into())
    }),
    ("the connector is another", |t, c| {
        forged(t, c, "append", "R3", &["p/v/other", "p/v/c"], |s| s["connector"] = "p/v/other".into())
    }),
    ("the generation is higher", |t, c| {
        forged(t, c, "append", "R1", &["begins without a reload"], |s| shifted(&mut s["generation"], 1))
    }),
    ("the generation goes back", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        (t.stamp(version)?["generation"].as_u64()? > 1).then_some(())?;
        t.restamp(version, |s| shifted(&mut s["generation"], -1));
        named("R3", version, &["commits after the generation"])
    }),
    ("the epoch is higher", |t, c| {
        forged(t, c, "append", "R3", &["begins without a claim"], |s| shifted(&mut s["epoch"], 1))
    }),
    ("the epoch goes back", |t, c| {
        let high = t.ours("append").into_iter().filter(|v| {
            let before = t.stamp(v - 1).map(|s| s["epoch"].clone());
            before == t.stamp(*v).map(|s| s["epoch"].clone()) && before.and_then(|e| e.as_u64()) > Some(1)
        });
        let version = pick(c, &high.collect::<Vec<_>>())?;
        t.restamp(version, |s| shifted(&mut s["epoch"], -1));
        named("R3", version, &["commits after the epoch"])
    }),
    ("one epoch has two writers", |t, c| {
        let shared = t.ours("append").into_iter().filter(|v| {
            let before = v.checked_sub(1).filter(|b| t.versions().contains(b)).and_then(|b| t.stamp(b));
            before.map(|s| s["epoch"].clone()) == t.stamp(*v).map(|s| s["epoch"].clone())
        });
        let version = pick(c, &shared.collect::<Vec<_>>())?;
        t.restamp(version, |s| s["writer"] = "somebody".into());
        named("R3", version, &["two writers", "somebody"])
    }),
    ("a commit id stands twice", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let earlier = t.versions().into_iter().find_map(|v| t.stamp(v).filter(|_| v < version))?["commit"].clone();
        t.restamp(version, |s| s["commit"] = earlier.clone());
        named("R2", version, &["stands in two versions"])
    }),
    ("an append starts too early", |t, c| {
        forged(t, c, "append", "R2", &["steps twice"], |s| shifted(&mut s["from"], -1))
    }),
    ("an append starts too late", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        t.restamp(version, |s| shifted(&mut s["from"], 1));
        let stamp = t.stamp(version)?;
        let words = if stamp["from"] == stamp["to"] { "covers no valid range" } else { "a gap" };
        named("R2", version, &[words])
    }),
    ("an append ends at another step", |t, c| {
        let by = 1 + c.below(9) as i64;
        forged(t, c, "append", "R2", &["txn cutover/step is set to"], |s| shifted(&mut s["to"], by))
    }),
    ("inserts are counted wrong", |t, c| forged(t, c, "append", "R6", &["hold"], |s| count(s, "i"))),
    ("updates are counted wrong", |t, c| forged(t, c, "append", "R6", &["hold"], |s| count(s, "u"))),
    ("deletes are counted wrong", |t, c| forged(t, c, "append", "R6", &["hold"], |s| count(s, "d"))),
    ("a digest is another", |t, c| {
        forged(t, c, "append", "R2", &["its commits add up to"], |s| {
            s["digest"] = "00000000000000000000000000000001".into();
        })
    }),
    ("a digest of the generation is another", |t, c| {
        forged(t, c, "append", "R2", &["00000000000000000000000000000001, its commits add up to"], |s| {
            s["digest_total"] = "00000000000000000000000000000001".into();
        })
    }),
    ("a digest of the generation is missing", |t, c| {
        forged(t, c, "append", "R2", &["is absent, its commits"], |s| {
            s.as_object_mut().unwrap().remove("digest_total");
        })
    }),
    ("the metrics count other rows", |t, c| metric(t, c, "append", "numOutputRows")),
    ("the metrics count other files", |t, c| metric(t, c, "append", "numFiles")),
    ("the metrics count other bytes", |t, c| metric(t, c, "append", "numOutputBytes")),
    ("the metrics of a reload count other removed files", |t, c| metric(t, c, "reload", "numRemovedFiles")),
    ("an append is no blind append", |t, c| {
        edited(t, c, "append", "R2", &["isBlindAppend false"], |a| {
            if a.get("commitInfo").is_some() {
                a["commitInfo"]["isBlindAppend"] = false.into();
            }
        })
    }),
    // txn.
    ("the step's txn is missing", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let kept: Vec<Value> = t.actions(version).into_iter().filter(|a| a["txn"]["appId"] != "cutover/step").collect();
        t.set(version, &kept);
        named("R2", version, &["cutover/step is not set"])
    }),
    ("the step's txn is higher", |t, c| {
        edited(t, c, "append", "R2", &["cutover/step is set to"], |a| {
            if a["txn"]["appId"] == "cutover/step" {
                shifted(&mut a["txn"]["version"], 3);
            }
        })
    }),
    ("the step's txn is lower", |t, c| {
        edited(t, c, "append", "R2", &["cutover/step is set to"], |a| {
            if a["txn"]["appId"] == "cutover/step" {
                shifted(&mut a["txn"]["version"], -3);
            }
        })
    }),
    ("the claim's txn is missing", |t, c| {
        let version = pick(c, &[t.ours("mark"), t.ours("reload")].concat())?;
        let kept: Vec<Value> = t.actions(version).into_iter().filter(|a| a["txn"]["appId"] != "cutover/epoch").collect();
        t.set(version, &kept);
        named("R3", version, &["does not set txn cutover/epoch"])
    }),
    ("the claim's txn is another", |t, c| {
        let by = [-1, 2][c.below(2) as usize];
        edited(t, c, "mark", "R3", &["cutover/epoch is set to"], |a| {
            if a["txn"]["appId"] == "cutover/epoch" {
                shifted(&mut a["txn"]["version"], by);
            }
        })
    }),
    ("a txn has lastUpdated", |t, c| {
        edited(t, c, "append", "R2", &["lastUpdated"], |a| {
            if a.get("txn").is_some() {
                a["txn"]["lastUpdated"] = 1.into();
            }
        })
    }),
    ("a txn stands twice", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let mut actions = t.actions(version);
        let mut txn = actions.iter().find(|a| a.get("txn").is_some())?.clone();
        shifted(&mut txn["txn"]["version"], c.below(3) as i64);
        actions.push(txn);
        t.set(version, &actions);
        named("R2", version, &["is set 2 times"])
    }),
    ("an append sets an epoch", |t, c| {
        let version = pick(c, &t.ours("append"))?;
        let epoch = t.stamp(version)?["epoch"].clone();
        let actions = [t.actions(version), vec![json!({"txn": {"appId": "cutover/epoch", "version": epoch}})]].concat();
        t.set(version, &actions);
        named("R3", version, &["which only a claim does"])
    }),
    ("a foreign commit sets our txn", |t, c| {
        let app = pick(c, &["cutover/step", "cutover/epoch"])?;
        let version = t.push("WRITE", vec![json!({"txn": {"appId": app, "version": 99}})]);
        named("R5", version, &[app, "99"])
    }),
    // Properties, schema, protocol.
    ("a property of ours is changed by others", |t, c| {
        let key = property(c);
        altered(t, &[key, "\"else\""], |m| m["configuration"][key] = "else".into())
    }),
    ("a property of ours is removed by others", |t, c| {
        let key = property(c);
        altered(t, &[key, "to nothing"], |m| drop(m["configuration"].as_object_mut().unwrap().remove(key)))
    }),
    ("a reload's properties contradict it", |t, c| {
        let (key, value) = pick(c, &[
            ("cutover.generation", "7"), ("cutover.step", "9"), ("cutover.connector", "p/v/x"), ("cutover.commit", "x"),
        ])?;
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
            m["schemaString"] = m["schemaString"].as_str().unwrap().replace("\"name\":\"name\"", "\"name\":\"title\"").into();
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
        let version = t.push("UPGRADE", vec![json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["fromTheFuture"], "writerFeatures": ["fromTheFuture"]}})]);
        named("R5", version, &["fromTheFuture"])
    }),
    // Rows of others.
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
        let (version, gone) = (t.head() + 1, t.versions().into_iter().flat_map(|v| t.actions(v)).find(|a| {
            let path = a["add"]["path"].as_str();
            path.is_some() && t.live().iter().all(|(_, add)| add["path"].as_str() != path)
        })?);
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
        rewritten(t, c, &["replaces"], |t, c, add| vec![remove(add, false), t.foreign_file(c, 2 * records(add) + 1, false)])
    }),
    ("an OPTIMIZE leaves the old file live", |t, c| {
        rewritten(t, c, &["replaces 0 rows by"], |t, c, add| vec![t.foreign_file(c, records(add).max(1), false)])
    }),
    ("a delete says that no rows change", |t, c| {
        rewritten(t, c, &["replaces", "by 0"], |_, _, add| vec![remove(add, false)])
    }),
    ("a vector comes in as if no rows changed", |t, c| {
        let live: Vec<_> = t.live().into_iter().filter(|(_, add)| records(add) > 0 && add.get("deletionVector").is_none()).collect();
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
    // Order.
    ("two entries are exchanged", |t, c| {
        let appends = t.ours("append");
        let pairs: Vec<u64> = appends.iter().copied().filter(|v| appends.contains(&(v + 1))).collect();
        let version = pick(c, &pairs)?;
        swap(t, version, version + 1);
        named("R2", version, &["a gap"])
    }),
    ("an append is cut out and the rest moved down", |t, c| {
        let free: Vec<u64> = t.ours("append").into_iter().filter(|v| newest_checkpoint(t) < Some(*v) && *v < t.head()).collect();
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

/// One of our properties; that of the contract has a test of its own.
fn property(c: &mut Chance) -> &'static str {
    let all = ["connector", "generation", "step", "mode", "layout", "key", "source", "commit"];
    match all[c.below(8) as usize] {
        "connector" => "cutover.connector",
        "generation" => "cutover.generation",
        "step" => "cutover.step",
        "mode" => "cutover.mode",
        "layout" => "cutover.layout",
        "key" => "cutover.key",
        "source" => "cutover.source",
        _ => "cutover.commit",
    }
}

/// The file with one row deleted by a vector that stands in the log.
fn vectored(add: &Value, data_change: bool) -> Value {
    let mut add = add.clone();
    add["dataChange"] = data_change.into();
    add["deletionVector"] =
        json!({"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40, "cardinality": 1});
    add
}

/// Whether the report names what was done.
pub(crate) fn is_named(report: &Report, (rule, version, words): &Named) -> bool {
    report.findings.iter().chain(&report.older).any(|f| {
        f.version == *version
            && (rule.is_empty() || f.rule.to_string() == *rule)
            && words.iter().all(|w| f.message.contains(w.as_str()))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_damage_is_found_and_named() {
    let mut chance = Chance::new("each_kind_of_damage_is_found_and_named");
    let ways = [Made::Plain, Made::Checkpoints, Made::Cleaned, Made::AtHead];
    let mut tables = Vec::new();
    for how in ways {
        let table = made(how, 2).await;
        let report = table.verify().await;
        assert_eq!(report.verdict, Verdict::Healthy, "{how:?}: {:#?}", report.findings);
        assert!(report.notes.is_empty() && report.older.is_empty(), "{how:?}: {:#?}", report.notes);
        tables.push((how, table));
    }
    let mut failures = Vec::new();
    let mut tried = 0;
    for (name, damage) in KINDS {
        let mut places = 0;
        for (how, table) in &tables {
            let mut damaged = table.clone();
            let Some(expected) = damage(&mut damaged, &mut chance) else { continue };
            places += 1;
            let report = damaged.verify().await;
            if report.verdict != Verdict::Broken || !is_named(&report, &expected) {
                failures.push(format!("{name}, {how:?}: {expected:?} not in {:?} {:#?}", report.verdict, report.findings));
            }
        }
        assert!(places > 0, "{name} has no place; seed {}", chance.seed);
        tried += places;
    }
    assert!(failures.is_empty(), "seed {}: {} failures\n{}", chance.seed, failures.len(), failures.join("\n"));
    assert!(KINDS.len() >= 90 && tried > 200, "{} kinds, {tried} tables", KINDS.len());
}
