//! What `verify` says beside the damage that it names: verdicts, what is proved, what repairs, exit codes.

use std::process::Command;

use cutover::inspect::state::state;
use cutover::inspect::{Repair, Verdict};
use futures::TryStreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tables::{Made, Table, checkpoint, entry, made, remove};
use crate::world::{log, step, world};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_table_is_left_alone() {
    let report = made(Made::Plain, 2).await.verify().await;
    assert_eq!((&report.verdict, report.head, report.since), (&Verdict::Healthy, 10, 0), "{:#?}", report.findings);
    let generations: Vec<_> =
        report.segments.iter().map(|s| (s.generation.get(), s.reload, s.last_step.get())).collect();
    assert_eq!(generations, [(1, Some(0), 12), (2, Some(2), 24)]);
    let trusted = report.trusted.unwrap();
    assert_eq!((trusted.first, trusted.last, trusted.step), (2, 10, Some(step(24))));
    assert!(report.repairs.is_empty() && report.notes.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_or_of_another_contract_is_inconclusive() {
    let mut foreign = Table { files: Default::default() };
    foreign.set(
        0,
        &[
            json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}),
            json!({"metaData": {"id": "i", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
            "schemaString": "{\"type\":\"struct\",\"fields\":[]}", "configuration": {}}}),
        ],
    );
    let verdict = foreign.verify().await.verdict;
    assert!(matches!(&verdict, Verdict::Inconclusive(why) if why.contains("not ours")), "{verdict:?}");
    let mut table = made(Made::Plain, 2).await;
    table.edit(2, |a| {
        if a.get("metaData").is_some() {
            a["metaData"]["configuration"]["cutover.contract"] = "9".into();
        }
    });
    let verdict = table.verify().await.verdict;
    assert!(matches!(&verdict, Verdict::Inconclusive(why) if why.contains("contract number \"9\"")), "{verdict:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_may_write_is_no_damage() {
    let mut table = made(Made::Checkpoints, 2).await;
    let head = table.head();
    table
        .set(head + 1, &[json!({"fromTheFuture": {"a": [1]}, }), json!({"commitInfo": {"operation": "NEW", "x": {}}})]);
    table.set(head + 2, &[json!({"txn": {"appId": "theirs", "version": 3, "lastUpdated": 4}})]);
    table.set(
        head + 3,
        &[
            json!({"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 3, "dataChange": false}}),
            json!({"domainMetadata": {"domain": "d", "configuration": "{}", "removed": false}}),
        ],
    );
    for name in [
        "00000000000000000006.crc",
        "00000000000000000003.00000000000000000006.compacted.json.tmp",
        "_staged_commits/00000000000000000014.4b1a.json",
        "_sidecars/a.parquet",
        ".s3-optimization-0",
        "x.tmp",
    ] {
        table.files.insert(format!("_delta_log/{name}"), b"{}".to_vec());
    }
    // A part of a checkpoint that some writer did not end.
    table.files.insert(
        "_delta_log/00000000000000000009.checkpoint.0000000002.0000000002.parquet".into(),
        table.files[&checkpoint(7)].clone(),
    );
    let report = table.verify().await;
    assert_eq!(report.verdict, Verdict::Healthy, "{:#?}", report.findings);
    let notes: Vec<_> = report.notes.iter().map(|n| (n.version, n.message.as_str())).collect();
    assert!(notes.iter().any(|(v, m)| *v == head + 1 && m.contains("fromTheFuture")), "{notes:?}");
    assert!(notes.iter().any(|(v, m)| *v == 9 && m.contains("lacks the other parts")), "{notes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hole_below_a_checkpoint_and_files_that_no_version_names_are_noted() {
    let mut table = made(Made::Checkpoints, 2).await;
    table.files.remove(&entry(4));
    let report = table.verify().await;
    assert_eq!((report.verdict, report.since), (Verdict::Healthy, 5), "{:#?}", report.findings);
    assert!(report.notes[0].message.contains("versions 4 to 4 are missing below a checkpoint"), "{:?}", report.notes);
    let mut table = made(Made::Plain, 2).await;
    table.files.remove(&entry(10));
    let report = table.verify().await;
    assert_eq!(report.verdict, Verdict::Healthy, "a lost newest version leaves the table as it was");
    assert!(report.notes[0].message.contains("1 data files of ours are named by no version"), "{:?}", report.notes);
}

/// A damage, then: the last version proved, whether it can be read, whether `state` reads it, and the repairs.
type Case = (&'static str, fn(&mut Table), Option<u64>, bool, bool, &'static [&'static str]);

const CASES: &[Case] = &[
    ("a gap", |t| t.restamp(8, |s| s["from"] = 22.into()), Some(7), true, true, &["reset"]),
    (
        "a digest that does not add up",
        |t| t.restamp(9, |s| s["digest"] = "0".repeat(32).into()),
        Some(8),
        true,
        true,
        &["reset"],
    ),
    ("steps twice", |t| t.restamp(8, |s| s["from"] = 20.into()), Some(7), true, false, &["reset"]),
    (
        "a file gone",
        |t| {
            let (_, add) = t.live().into_iter().find(|(v, _)| *v == 8).unwrap();
            t.files.remove(add["path"].as_str().unwrap());
        },
        Some(7),
        true,
        false,
        &["reset"],
    ),
    (
        "a file of the reload gone",
        |t| {
            let (_, add) = t.live().into_iter().find(|(v, _)| *v == 2).unwrap();
            t.files.remove(add["path"].as_str().unwrap());
        },
        None,
        false,
        false,
        &["reset"],
    ),
    (
        "rows deleted by others",
        |t| {
            let (_, add) = t.live().into_iter().find(|(v, _)| *v == 3).unwrap();
            t.push("DELETE", vec![remove(&add, true)]);
        },
        Some(10),
        true,
        false,
        &["reset"],
    ),
    ("a torn entry", |t| t.files.get_mut(&entry(9)).unwrap().truncate(70), Some(8), true, false, &["rebuild"]),
    (
        "a damaged checkpoint above a whole log",
        |t| drop(t.files.insert(checkpoint(7), vec![])),
        Some(6),
        true,
        false,
        &["reset"],
    ),
    (
        "a hint that leads nowhere",
        |t| {
            drop(t.files.insert("_delta_log/_last_checkpoint".into(), b"{\"version\":8,\"size\":1}".to_vec()));
        },
        Some(7),
        true,
        false,
        &["reset"],
    ),
    (
        "our txn may expire",
        |t| {
            let (_, mut metadata) = t.metadata().unwrap();
            metadata["metaData"]["configuration"]["delta.setTransactionRetentionDuration"] = "interval 1 day".into();
            t.push("SET TBLPROPERTIES", vec![metadata]);
        },
        Some(10),
        true,
        false,
        &["unset", "reset"],
    ),
];

fn word(repair: &Repair) -> &'static str {
    match repair {
        Repair::Unset(_) => "unset",
        Repair::Reset => "reset",
        Repair::RebuildLog => "rebuild",
    }
}

async fn rows(table: &Table, at: Option<cutover::Step>) -> cutover::Result<usize> {
    let batches: Vec<_> = state(&log(&table.store().await, &world(0).0), at).await?.rows.try_collect().await?;
    Ok(batches.iter().map(|b| b.num_rows()).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_still_proved_and_what_repairs_is_said_and_true() {
    for (what, damage, last, readable, is_state, repairs) in CASES {
        let healthy = made(Made::Checkpoints, 2).await;
        let mut table = healthy.clone();
        damage(&mut table);
        let report = table.verify().await;
        assert_eq!(report.verdict, Verdict::Broken, "{what}");
        let found: Vec<_> = report.repairs.iter().map(word).collect();
        assert_eq!(&found, repairs, "{what}: {:#?}", report.findings);
        let Some(trusted) = report.trusted else {
            assert_eq!(*last, None, "{what}: {:#?}", report.findings);
            continue;
        };
        assert_eq!(
            (Some(trusted.last), trusted.is_readable, trusted.is_state),
            (*last, *readable, *is_state),
            "{what}: {:#?}",
            report.findings
        );
        if trusted.is_state {
            let expected = rows(&healthy, trusted.step).await.unwrap();
            assert_eq!(rows(&table, trusted.step).await.unwrap(), expected, "{what}");
        }
        if trusted.is_readable {
            let files = log(&table.store().await, &world(0).0).live_files_at(trusted.last).await.unwrap();
            assert!(files.iter().all(|f| table.files.contains_key(&f.path)), "{what}");
        }
    }
}

/// Runs `cutover verify` on a table in a folder.
fn program(table: &Table, args: &[&str]) -> (Option<i32>, String) {
    let home = TempDir::new().unwrap();
    table.write_to(&home.path().join("t"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
    let output = command.current_dir(home.path()).args(["verify", "t"]).args(args).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_ends_with_the_verdict_and_prints_what_to_do() {
    let healthy = made(Made::Checkpoints, 2).await;
    let (code, text) = program(&healthy, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("t: healthy\n") && text.contains("versions 0 to 10, 8 live files"), "{text}");

    let mut gap = healthy.clone();
    gap.restamp(8, |s| s["from"] = 22.into());
    let (code, text) = program(&gap, &[]);
    assert_eq!(code, Some(3), "{text}");
    for line in [
        "t: broken",
        "version 8: R2 a gap: the append starts at step 22, the commit before it ended at 21",
        "proved: versions 2 to 7 of this generation, up to step 21",
        "read: version 7 of the table is whole",
        "read: cutover state t --step 21",
        "repair: cutover reset -c CONFIG p/v/c --yes",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let (code, text) = program(&gap, &["-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, report["schema"].as_str(), report["verdict"].as_str()),
        (Some(3), Some("cutover.verify/2"), Some("broken"))
    );
    assert_eq!(report["findings"][0]["rule"], "R2");
    assert_eq!(
        report["trusted"],
        json!({"first_version": 2, "last_version": 7, "step": 21, "readable": true, "state": true})
    );
    assert_eq!(report["repairs"], json!(["cutover reset -c CONFIG p/v/c --yes"]));

    let mut torn = healthy.clone();
    torn.files.insert(entry(10), vec![]);
    let (code, text) = program(&torn, &[]);
    assert!(code == Some(3) && text.contains("repair: cutover reset -c CONFIG p/v/c --rebuild-log --yes"), "{text}");

    let mut newer = made(Made::Plain, 2).await;
    newer.edit(2, |a| {
        if a.get("metaData").is_some() {
            a["metaData"]["configuration"]["cutover.contract"] = "2".into();
        }
    });
    for (args, expected) in [(&[][..], 4), (&["--strict"], 3)] {
        let (code, text) = program(&newer, args);
        assert!(code == Some(expected) && text.starts_with("t: inconclusive: R7: "), "{code:?} {text}");
    }
    assert_eq!(program(&Table { files: Default::default() }, &[]).0, Some(1), "no table");
}
