//! Small files are joined while steps go on, and no row changes by it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use super::tables::{Table, changes, digest, rows};
use crate::program::{Chance, Readers, size};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_joined_while_steps_go_on_and_rows_stay_exact() {
    let mut chance = Chance::new("files_are_joined_while_steps_go_on");
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
    if let Some(readers) = Readers::find("files_are_joined_while_steps_go_on") {
        for engine in ["duckdb", "chdb", "polars", "deltalake"] {
            let read = readers.read(&[engine, &table.path()]);
            assert_eq!(
                (&read["rows"], &read["digest"]),
                (&model.len().into(), &digest(&model).to_string().into()),
                "{engine}; seed {seed}"
            );
        }
        readers.read(&["log", &table.path()]);
    }
}
