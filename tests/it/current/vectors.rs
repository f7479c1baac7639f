//! What becomes of the deletion vectors of a table, and what `verify` says of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cutover::continuity::finding::Rule;
use cutover::inspect::{Repair, Report, Verdict, verify};
use cutover::{Changes, StepRange};
use serde_json::Value;

use super::tables::{Model, Table, changes, reload, rows};
use crate::program::{Chance, Ran};
use crate::world::step;

/// A table of which so many rows were deleted that their vectors stand in a file, or in the log; the model, and its last step.
async fn table(chance: &mut Chance, keys: u64, many: usize) -> (Table, Model, u64) {
    let mut table = Table::new();
    table.settings.compaction = false;
    let mut model = rows(chance, keys, many, 5);
    let mut sink = table.sink(&model, 5).await;
    for at in 5..11 {
        sink.append(changes(chance, &mut model, keys, at, at + 1, many as u64)).await.unwrap();
    }
    sink.close().await;
    (table, model, 11)
}

fn vector_files(table: &Table) -> Vec<PathBuf> {
    let files = fs::read_dir(table.path()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| name(path).starts_with("deletion_vector_")).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// The live files' adds, by path, with the version that added each.
fn live(table: &Table) -> BTreeMap<String, (u64, Value)> {
    let mut live = BTreeMap::new();
    let log = |version: u64| Path::new(&table.path()).join(format!("_delta_log/{version:020}.json"));
    for (version, text) in (0..).map_while(|v| Some((v, fs::read_to_string(log(v)).ok()?))) {
        for action in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
            let path = |member: &str| action[member]["path"].as_str().map(str::to_owned);
            if let Some(removed) = path("remove") {
                // A file that comes again with another vector may stand before its removal.
                live.retain(|path, (at, _)| *path != removed || *at == version);
            }
            if let Some(added) = path("add") {
                live.insert(added, (version, action["add"].clone()));
            }
        }
    }
    live
}

/// What `verify` says without reading rows: the files that are named, each with the version that gave it its vector.
async fn found(table: &Table) -> (Report, Vec<(String, u64)>) {
    let report = verify(&table.log(), None).await.unwrap();
    let named = report.findings.iter().map(|finding| {
        assert_eq!(finding.rule, Rule::Files, "{finding:?}");
        assert!(finding.message.contains("deletion vector"), "{finding:?}");
        (finding.file.clone().unwrap(), finding.version)
    });
    let mut named: Vec<_> = named.collect();
    named.sort();
    (report, named)
}

#[tokio::test]
async fn a_file_of_vectors_that_is_not_as_it_was_written_is_found_without_reading_rows_and_a_reset_repairs_it() {
    let mut chance = Chance::new("a_file_of_vectors_that_is_not_as_it_was_written");
    let seed = chance.seed;
    let (table, model, at) = table(&mut chance, 2_000, 4_000).await;
    let mut holders: BTreeMap<PathBuf, Vec<(String, u64)>> = BTreeMap::new();
    let files = vector_files(&table);
    for (path, (version, add)) in live(&table) {
        if add["deletionVector"]["storageType"] != "u" {
            continue;
        }
        let place = add["deletionVector"]["pathOrInlineDv"].as_str().unwrap();
        let id = uuid::Uuid::from_slice(&z85::decode(place).unwrap()).unwrap();
        let file = Path::new(&table.path()).join(format!("deletion_vector_{id}.bin"));
        assert!(files.contains(&file), "{file:?}; seed {seed}");
        holders.entry(file).or_default().push((path, version));
    }
    let (file, expected) = holders.iter().next().unwrap();
    let whole = fs::read(file).unwrap();
    assert_eq!(found(&table).await.0.verdict, Verdict::Healthy, "seed {seed}");
    let other = {
        let mut other = whole.clone();
        let at = 1 + chance.below(other.len() as u64 - 1) as usize;
        other[at] ^= 1 << chance.below(8);
        other
    };
    let short = chance.below(whole.len() as u64) as usize;
    let stale = files.iter().find(|stale| !holders.contains_key(*stale)).map(|stale| fs::read(stale).unwrap());
    let cases = [
        ("gone", None),
        ("empty", Some(Vec::new())),
        ("cut short", Some(whole[..short].to_vec())),
        ("without its checksum", Some(whole[..whole.len() - 1].to_vec())),
        ("changed in a bit", Some(other)),
        ("replaced by an older one", Some(stale.expect("an older file of vectors is kept"))),
    ];
    for (what, bytes) in cases {
        match bytes {
            Some(bytes) => fs::write(file, bytes).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        let (report, named) = found(&table).await;
        assert_eq!(report.verdict, Verdict::Broken, "{what}; seed {seed}");
        // It may hold the vectors of several files, and be damaged in that of one.
        let is_named = |file: &(String, u64)| expected.contains(file);
        assert!(!named.is_empty() && named.iter().all(is_named), "{what}: {named:?}, {expected:?}; seed {seed}");
        assert!(named == *expected || !["gone", "empty"].contains(&what), "{what}: {named:?}; seed {seed}");
        assert_eq!(report.repairs, [Repair::Reset], "{what}; seed {seed}");
        let deep = table.verified().await.findings.into_iter().map(|f| (f.file.unwrap_or_default(), f.version));
        let mut deep: Vec<_> = deep.collect();
        deep.sort();
        assert_eq!(deep, named, "{what}, once; seed {seed}");
        let mut program = Command::new(env!("CARGO_BIN_EXE_cutover"));
        let ran = Ran::of(program.args(["verify", &table.path()]).output().unwrap()).ended(3, seed);
        assert!(ran.stdout.contains(&named[0].0), "{what}: {}; seed {seed}", ran.stdout);
        fs::write(file, &whole).unwrap();
    }
    // Nothing says how a file ends.
    fs::write(file, [&whole[..], b"more"].concat()).unwrap();
    assert_eq!(found(&table).await.0.verdict, Verdict::Healthy, "seed {seed}");
    fs::remove_file(file).unwrap();
    let mut sink = table.target().await.unwrap().claim().await.unwrap();
    reload(&mut sink, &model, at).await;
    table.holds(&model, seed).await;
    sink.append(Changes::new(StepRange::new(step(at), step(at + 1)).unwrap(), Vec::new()).unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_vector_in_the_log_that_does_not_hold_or_lies_elsewhere_is_found_without_reading_rows() {
    let mut chance = Chance::new("a_vector_in_the_log_that_does_not_hold");
    let seed = chance.seed;
    let (table, ..) = table(&mut chance, 40, 30).await;
    let all = live(&table);
    let (path, (version, add)) = all.iter().find(|(_, (_, add))| add["deletionVector"].is_object()).unwrap();
    assert_eq!(add["deletionVector"]["storageType"], "i", "{add}; seed {seed}");
    let entry = Path::new(&table.path()).join(format!("_delta_log/{version:020}.json"));
    let whole = fs::read_to_string(&entry).unwrap();
    let vector = add["deletionVector"].to_string();
    assert!(whole.contains(&vector), "{whole}; seed {seed}");
    for (member, value) in [
        ("pathOrInlineDv", Value::from("0000000000")),
        ("cardinality", Value::from(add["deletionVector"]["cardinality"].as_u64().unwrap() + 1)),
        ("storageType", Value::from("p")),
    ] {
        let mut other = add["deletionVector"].clone();
        other[member] = value;
        fs::write(&entry, whole.replace(&vector, &other.to_string())).unwrap();
        let report = verify(&table.log(), None).await.unwrap();
        assert_eq!(report.verdict, Verdict::Broken, "{member}; seed {seed}");
        let is_named = report.findings.iter().any(|f| {
            f.rule == Rule::Files
                && f.file.as_ref() == Some(path)
                && f.message.contains("deletion vector of the data file")
        });
        assert!(is_named, "{member}: {:?}; seed {seed}", report.findings);
    }
}
