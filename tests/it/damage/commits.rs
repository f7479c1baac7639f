//! Damage to commit info and `txn` of ours.

use serde_json::{Value, json};

use super::{Damage, count, edited, forged, metric, named, pick, shifted};

pub(super) const KINDS: &[(&str, Damage)] = &[
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
        let kept: Vec<Value> =
            t.actions(version).into_iter().filter(|a| a["txn"]["appId"] != "cutover/epoch").collect();
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
];
