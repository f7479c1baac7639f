//! Random histories of healthy tables: no false alarm, and one damage in each is found.

use std::sync::Arc;

use cutover::continuity::plan::Older;
use cutover::continuity::stamp::ResetStamp;
use cutover::inspect::Verdict;
use cutover::{Sink, World};
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use crate::damage::{is_named, kinds};
use crate::program::{Chance, Model, Ran, Readers, Site, size};
use crate::tables::{Table, entry, records, remove};
use crate::world::{changes, log, memory, sink, state, world};

/// A table that keeps the contract, and its writer.
struct Healthy {
    store: Arc<dyn ObjectStore>,
    world: World,
    sink: Sink,
    step: u64,
    resets: u64,
}

impl Healthy {
    async fn new(seed: u64) -> Self {
        let (store, (world, _)) = (memory(), world(seed));
        let sink = sink(&store, &world).await;
        Self { store, world, sink, step: 10, resets: 0 }
    }

    async fn append(&mut self, chance: &mut Chance) {
        let to = self.step + 1 + chance.below(3);
        self.sink.append(changes(self.step, to)).await.unwrap();
        self.step = to;
    }

    async fn reset(&mut self, chance: &mut Chance) {
        self.resets += 1;
        self.step += chance.below(2);
        let ids: Vec<i64> = (0..chance.below(4) as i64).collect();
        let reset = ResetStamp { id: format!("r{}", self.resets), who: "a test".into(), why: String::new() };
        self.sink.reload(state(self.step, &ids), reset, Older::Refused).await.unwrap();
    }

    /// What somebody else does; it goes to the store as it is written.
    async fn foreign(&mut self, chance: &mut Chance) {
        let mut table = Table::read(&self.store).await;
        let live = table.live();
        // A log that was cleaned no longer names all of them.
        let some: Vec<Value> = live.into_iter().map(|(_, add)| add).filter(|_| chance.one_in(2)).collect();
        let before = table.paths();
        match chance.below(8) {
            0 | 1 if !some.is_empty() => {
                let rows: u64 = some.iter().map(records).sum();
                let parts = 1 + chance.below(3);
                let mut actions: Vec<Value> = some.iter().map(|add| remove(add, false)).collect();
                for part in 0..parts {
                    let share = rows / parts + if part == 0 { rows % parts } else { 0 };
                    let mut add = table.foreign_file(chance, share, false);
                    if chance.one_in(3) {
                        // Rows that a vector takes away stand in the file beside those that count.
                        add["add"]["stats"] = json!({"numRecords": share + 1}).to_string().into();
                        add["add"]["deletionVector"] = json!({"storageType": "i", "sizeInBytes": 34, "cardinality": 1,
                            "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000"});
                    }
                    actions.push(add);
                }
                table.push("OPTIMIZE", actions);
            }
            2 if !some.is_empty() => {
                let mut add = some[0].clone();
                add["dataChange"] = false.into();
                add["tags"] = json!({"analyzed": "true"});
                table.push("COMPUTE STATS", vec![json!({ "add": add })]);
            }
            3 => drop(table.push("VACUUM START", vec![])),
            4 => drop(table.push("VACUUM END", vec![json!({"txn": {"appId": "theirs", "version": 1, "lastUpdated": 1}})])),
            5 | 6 => {
                if let Some((_, mut metadata)) = table.metadata() {
                    if chance.one_in(2) {
                        metadata["metaData"]["configuration"][format!("owner.{}", chance.below(9))] = "them".into();
                    } else {
                        let schema = metadata["metaData"]["schemaString"].as_str().unwrap();
                        let mut schema: Value = serde_json::from_str(schema).unwrap();
                        schema["fields"][3]["metadata"]["comment"] = format!("comment {}", chance.below(9)).into();
                        metadata["metaData"]["schemaString"] = schema.to_string().into();
                        metadata["metaData"]["description"] = "a table".into();
                    }
                    table.push("SET TBLPROPERTIES", vec![metadata]);
                }
            }
            _ => drop(table.push("UPGRADE PROTOCOL", vec![json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly", "invariants"]}})])),
        }
        let head = table.head();
        for path in table.paths().difference(&before).chain([&entry(head)]) {
            self.put(&table, path).await;
        }
    }

    /// Brings a file of `table` to the store.
    async fn put(&self, table: &Table, path: &str) {
        let bytes = table.files[path].clone();
        self.store.put(&object_store::path::Path::parse(path).unwrap(), bytes.into()).await.unwrap();
    }

    async fn checkpoint(&self) {
        let table = log(&self.store, &self.world);
        table.checkpoint(&mut table.facts().await.unwrap()).await.unwrap();
    }

    /// A clean-up deletes the oldest entries, none that the newest checkpoint does not stand for.
    async fn clean(&self, chance: &mut Chance) {
        let table = Table::read(&self.store).await;
        let Some(newest) = table.checkpoints().last().copied() else { return };
        // Where others changed metadata since, a writer must find what stood at its last commit.
        let ours = table.ours("append").last().copied().unwrap_or(0);
        if newest > ours {
            return;
        }
        let end = chance.below(newest + 1);
        for path in table.files.keys() {
            let digits = path.strip_prefix("_delta_log/").and_then(|name| name.get(..20));
            if digits.and_then(|d| d.parse::<u64>().ok()).is_some_and(|version| version < end) {
                self.store.delete(&object_store::path::Path::parse(path).unwrap()).await.unwrap();
            }
        }
    }

    async fn go_on(&mut self, chance: &mut Chance) {
        match chance.below(12) {
            0..=3 => self.append(chance).await,
            4 => {
                self.sink = sink(&self.store, &self.world).await;
                self.append(chance).await;
            }
            5 => self.reset(chance).await,
            6..=9 => self.foreign(chance).await,
            10 => self.checkpoint().await,
            _ => self.clean(chance).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_healthy_logs_give_no_alarm_and_one_damage_is_found() {
    const TEST: &str = "random_healthy_logs_give_no_alarm_and_one_damage_is_found";
    let mut chance = Chance::new(TEST);
    let (seed, mut damaged) = (chance.seed, 0);
    let kinds = kinds();
    let cases = size("CUTOVER_LOGS", 40);
    for case in 0..cases {
        let mut healthy = Healthy::new(seed.wrapping_add(case)).await;
        for _ in 0..2 + chance.below(14) {
            healthy.go_on(&mut chance).await;
        }
        healthy.append(&mut chance).await;
        let mut table = Table::read(&healthy.store).await;
        let report = table.verify().await;
        let versions: Vec<_> = table.versions().iter().map(|v| (*v, table.actions(*v)[0].to_string())).collect();
        let is_healthy = report.verdict == Verdict::Healthy && report.older.is_empty();
        assert!(is_healthy, "case {case} of seed {seed}: {report:#?} {versions:#?}");
        let (name, expected) = loop {
            let (name, damage) = kinds[chance.below(kinds.len() as u64) as usize];
            let mut copy = table.clone();
            if let Some(expected) = damage(&mut copy, &mut chance) {
                table = copy;
                break (name, expected);
            }
        };
        let report = table.verify().await;
        assert!(
            is_named(&report, &expected),
            "case {case} of seed {seed}: {name} {expected:?} in {report:#?} {versions:#?}"
        );
        damaged += 1;
    }
    eprintln!("{TEST}: {cases} logs without a finding, {damaged} damages found");
}

#[tokio::test]
async fn a_cleaned_log_whose_entries_would_load_alone_is_reset_as_it_is() {
    let (mut healthy, mut chance) = (Healthy::new(1).await, Chance::of(1));
    let mut table = Table::read(&healthy.store).await;
    let protocol = table.actions(0).into_iter().find(|action| action.get("protocol").is_some()).unwrap();
    let (_, mut metadata) = table.metadata().unwrap();
    metadata["metaData"]["description"] = "a table".into();
    for version in [table.push("SET TBLPROPERTIES", vec![metadata]), table.push("UPGRADE PROTOCOL", vec![protocol])] {
        healthy.put(&table, &entry(version)).await;
    }
    healthy.append(&mut chance).await;
    healthy.checkpoint().await;
    healthy.store.delete(&object_store::path::Path::parse(entry(0)).unwrap()).await.unwrap();
    healthy.append(&mut chance).await;
    healthy.reset(&mut chance).await;
    assert_eq!(Table::read(&healthy.store).await.verify().await.verdict, Verdict::Healthy);
}

#[test]
fn maintenance_by_another_engine_gives_no_alarm_and_appends_go_on() {
    const TEST: &str = "maintenance_by_another_engine_gives_no_alarm_and_appends_go_on";
    let Some(readers) = Readers::find(TEST) else { return };
    let site = Site::new();
    let mut model = Model::new(&site, 200, Chance::new(TEST));
    let seed = model.chance.seed;
    for what in ["property", "compact", "describe", "checkpoint", "vacuum", "clean", "compact", "clean"] {
        model.land_changes();
        site.run(&["run", "--once"]).ended(0, seed);
        assert_eq!(site.last_step(), Some(model.step), "before {what}; seed {seed}");
        let ran =
            Ran::of(readers.command("maintain.py", &[what, &site.table().display().to_string()]).output().unwrap());
        ran.ended(0, seed);
        site.run(&["verify", "table"]).ended(0, seed);
    }
    model.land_changes();
    site.run(&["run", "--once"]).ended(0, seed);
    let said = site.run(&["verify", "table"]).ended(0, seed).stdout;
    assert!(!said.contains("versions 0 to"), "the log was not cleaned: {said}");
}
