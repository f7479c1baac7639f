//! Small files are joined while steps go on, and no row changes by it.

use std::collections::BTreeSet;
use std::fs;

use cutover::continuity::stamp::Layout;
use cutover::digest::Digest;
use cutover::inspect::Bookmark;
use cutover::inspect::changes::changes as changes_since;
use serde_json::Value;

use crate::current::tables::{Table, changes, digest, reload, rows};
use crate::program::{Chance, Readers, size};
use crate::world::step;

/// What the log says of joining: maintenance commits, files that are live at the end, and vectors that a joined file began with.
#[derive(Debug, Default)]
struct Told {
    joins: usize,
    live: BTreeSet<String>,
    most_live: usize,
    born_with_deleted_rows: usize,
}

fn told(table: &Table) -> Told {
    let mut told = Told::default();
    for version in 0.. {
        let entry = table.home.path().join(format!("table/_delta_log/{version:020}.json"));
        let Ok(text) = fs::read_to_string(entry) else { return told };
        let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_join = actions[0]["commitInfo"]["userMetadata"].as_str().unwrap().contains("\"kind\":\"maintenance\"");
        told.joins += usize::from(is_join);
        for remove in actions.iter().filter_map(|action| action.get("remove")) {
            told.live.remove(remove["path"].as_str().unwrap());
        }
        for add in actions.iter().filter_map(|action| action.get("add")) {
            told.live.insert(add["path"].as_str().unwrap().to_string());
            told.born_with_deleted_rows += usize::from(is_join && add.get("deletionVector").is_some());
            assert_eq!(add["dataChange"], !is_join, "version {version}");
        }
        told.most_live = told.most_live.max(told.live.len());
    }
    told
}

/// Every engine reads so many rows with this digest, and the log keeps the contract.
fn is_read(table: &Table, rows: usize, digest: Digest, seed: u64) {
    let Some(readers) = Readers::find("files_are_joined") else { return };
    for engine in ["duckdb", "chdb", "polars", "deltalake"] {
        let read = readers.read(&[engine, &table.path()]);
        assert_eq!(
            (&read["rows"], &read["digest"]),
            (&rows.into(), &digest.to_string().into()),
            "{engine}; seed {seed}"
        );
    }
    readers.read(&["log", &table.path()]);
}

/// What a reader gets that comes with `bookmark`, in rows, and the bookmark that it leaves with.
async fn drained(table: &Table, bookmark: Option<&Bookmark>) -> (Bookmark, usize) {
    let mut news = changes_since(&table.log(), bookmark, None).await.unwrap();
    let mut read = 0;
    while let Some(rows) = news.next().await.unwrap() {
        read += rows.num_rows();
    }
    (news.finish().unwrap(), read)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_view_are_joined_while_steps_go_on_and_rows_stay_exact() {
    let mut chance = Chance::new("files_of_a_view_are_joined_while_steps_go_on");
    let seed = chance.seed;
    let steps = size("CUTOVER_CURRENT_SMALL_STEPS", 250);
    let table = Table::new();
    let mut model = rows(&mut chance, 400, 300, 5);
    let mut sink = table.sink(&model, 5).await;
    for at in 5..5 + steps {
        sink.append(changes(&mut chance, &mut model, 400, at, at + 1, 12)).await.unwrap();
        if chance.one_in(4) {
            // What is joined is ready, and rows of it go before it is committed.
            sink.rest().await;
        }
        if chance.one_in(100) {
            sink.close().await;
            sink = table.sink(&model, at).await;
        }
    }
    table.holds(&model, seed).await;
    let told = told(&table);
    assert!(told.joins > steps as usize / 60, "{} joins; seed {seed}", told.joins);
    assert!(told.most_live < 80, "{} files at once; seed {seed}", told.most_live);
    assert!(told.born_with_deleted_rows > 0, "no row went while files were joined; seed {seed}");
    is_read(&table, model.len(), digest(&model), seed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_of_a_changelog_are_joined_and_every_step_stays_readable() {
    let mut chance = Chance::new("files_of_a_changelog_are_joined");
    let seed = chance.seed;
    let steps = size("CUTOVER_SMALL_STEPS", 250);
    for partitioned in [false, true] {
        let mut table = Table::of(Layout::Changelog);
        if partitioned {
            table.settings.partition_by = Some(vec!["region".into()]);
        }
        let mut model = rows(&mut chance, 400, 300, 5);
        let mut sink = table.sink(&model, 5).await;
        let (mut half, mut read) = (model.clone(), None);
        for at in 5..5 + steps {
            sink.append(changes(&mut chance, &mut model, 400, at, at + 1, 12)).await.unwrap();
            if chance.one_in(4) {
                sink.rest().await;
            }
            if at == 5 + steps / 2 {
                half.clone_from(&model);
                read = Some(drained(&table, None).await);
            }
            if chance.one_in(60) {
                // Another process does not know the files.
                sink.close().await;
                sink = table.sink(&model, at).await;
            }
        }
        let told = told(&table);
        assert!(told.joins > steps as usize / 60, "{} joins; seed {seed}", told.joins);
        assert!(told.most_live < if partitioned { 160 } else { 80 }, "{} files at once; seed {seed}", told.most_live);
        assert_eq!(told.born_with_deleted_rows, 0, "seed {seed}");
        table.holds(&model, seed).await;
        let middle = 5 + steps / 2 + 1;
        assert_eq!(table.state_at(Some(middle)).await, (half.len(), digest(&half)), "step {middle}; seed {seed}");
        // A bookmark from before most files were joined finds the rows behind it, and no others.
        let (bookmark, before) = read.unwrap();
        let (whole, after) = drained(&table, Some(&bookmark)).await;
        assert_eq!(whole.step, step(5 + steps), "seed {seed}");
        let all = drained(&table, None).await.1;
        assert_eq!(before + after, all, "rows read; seed {seed}");
        let ours = sink.facts().ours().unwrap();
        assert_eq!(ours.rows_total.unwrap().total(), all as u64, "seed {seed}");
        is_read(&table, all, ours.digest_total.unwrap(), seed);
        reload(&mut sink, &model, 5 + steps).await;
        let files = if partitioned { 3 } else { 1 };
        assert_eq!(self::told(&table).live.len(), files, "a load replaces what was joined too; seed {seed}");
        table.holds(&model, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_end_after_one_commit_leave_few_files() {
    let mut chance = Chance::new("processes_that_end_after_one_commit_leave_few_files");
    let seed = chance.seed;
    for layout in [Layout::Changelog, Layout::Current] {
        let table = Table::of(layout);
        let mut model = rows(&mut chance, 100, 60, 5);
        for at in 5..45 {
            let mut sink = table.sink(&model, at).await;
            sink.append(changes(&mut chance, &mut model, 100, at, at + 1, 12)).await.unwrap();
            sink.close().await;
        }
        let told = told(&table);
        assert!(told.most_live <= 18, "{layout}: {} files at once; seed {seed}", told.most_live);
        table.holds(&model, seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_due_together_is_joined_one_behind_the_other() {
    let mut chance = Chance::new("what_is_due_together_is_joined");
    let seed = chance.seed;
    for layout in [Layout::Changelog, Layout::Current] {
        let mut table = Table::of(layout);
        table.settings.partition_by = Some(vec!["region".into()]);
        let mut model = rows(&mut chance, 400, 300, 5);
        let mut sink = table.sink(&model, 5).await;
        // Each commit leaves a file in each of the three partitions, and the one behind which they are looked at is the 17th.
        for number in 0..21 {
            let (from, to) = (5 + 4 * number, 9 + 4 * number);
            sink.append(changes(&mut chance, &mut model, 400, from, to, 60)).await.unwrap();
            if number >= 16 {
                sink.rest().await;
            }
        }
        let told = told(&table);
        assert_eq!(told.joins, 3, "{layout}: {} files; seed {seed}", told.live.len());
        table.holds(&model, seed).await;
    }
}
