//! Kinds of damage, each found and named by `verify`.

mod commits;
mod files;
mod log;
mod others;

use cutover::inspect::{Report, Verdict};
use serde_json::{Value, json};

use crate::program::Chance;
use crate::tables::{Made, Table, entry, made, records, restamp};

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
    t: &mut Table,
    c: &mut Chance,
    kind: &str,
    rule: &'static str,
    words: &[&str],
    change: impl Fn(&mut Value),
) -> Option<Named> {
    let version = pick(c, &t.ours(kind))?;
    t.edit(version, change);
    named(rule, version, words)
}

/// A version of ours of the kind, with another stamp.
fn forged(
    t: &mut Table,
    c: &mut Chance,
    kind: &str,
    rule: &'static str,
    words: &[&str],
    change: impl Fn(&mut Value),
) -> Option<Named> {
    edited(t, c, kind, rule, words, |action| restamp(action, &change))
}

/// An append's file action, changed.
fn added(
    t: &mut Table,
    c: &mut Chance,
    rule: &'static str,
    words: &[&str],
    change: impl Fn(&mut Value),
) -> Option<Named> {
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
    t: &mut Table,
    c: &mut Chance,
    words: &[&str],
    actions: impl Fn(&mut Table, &mut Chance, &Value) -> Vec<Value>,
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

/// Every kind, by its name.
pub(crate) fn kinds() -> Vec<(&'static str, Damage)> {
    [log::KINDS, files::KINDS, commits::KINDS, others::KINDS].concat()
}

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
    add["deletionVector"] = json!({"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000", "sizeInBytes": 34, "cardinality": 1});
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
    for (name, damage) in kinds() {
        let mut places = 0;
        for (how, table) in &tables {
            let mut damaged = table.clone();
            let Some(expected) = damage(&mut damaged, &mut chance) else { continue };
            places += 1;
            let report = damaged.verify().await;
            // What a reload has healed is told and breaks nothing.
            let is_healed = report.older.iter().any(|f| f.version == expected.1);
            if (report.verdict != Verdict::Broken && !is_healed) || !is_named(&report, &expected) {
                failures
                    .push(format!("{name}, {how:?}: {expected:?} not in {:?} {:#?}", report.verdict, report.findings));
            }
        }
        assert!(places > 0, "{name} has no place; seed {}", chance.seed);
        tried += places;
    }
    assert!(failures.is_empty(), "seed {}: {} failures\n{}", chance.seed, failures.len(), failures.join("\n"));
    assert!(kinds().len() >= 90 && tried > 200, "{} kinds, {tried} tables", kinds().len());
}
