//! What other engines read of it.

use serde_json::Value;

use super::tables::{Table, changes, digest, reload, rows};
use crate::program::{Chance, Readers, size};

const ENGINES: &str = "duckdb,chdb,polars,deltalake,sail";

/// What the rows must come to at versions of a table.
struct Expected(Vec<(u64, usize, String)>);

impl Expected {
    fn check(&self, readers: &Readers, table: &Table, seed: u64) {
        let lines: Vec<String> = self.0.iter().map(|(version, ..)| format!("{}\t{version}", table.path())).collect();
        let told = readers.tell("read.py", &["many", ENGINES], &lines.join("\n"));
        let answers: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), self.0.len() * ENGINES.split(',').count());
        let expected = self.0.iter().flat_map(|at| ENGINES.split(',').map(move |engine| (engine, at)));
        for ((engine, (version, rows, digest)), answer) in expected.zip(&answers) {
            assert_eq!(answer["rows"], *rows, "{engine} at version {version}: {answer}; seed {seed}");
            assert_eq!(answer["digest"], **digest, "{engine} at version {version}; seed {seed}");
        }
    }
}

#[tokio::test]
async fn every_engine_reads_the_rows_of_the_view_at_every_tenth_version() {
    let mut chance = Chance::new("every_engine_reads_the_rows_of_the_view");
    let seed = chance.seed;
    let readers = Readers::find("every_engine_reads_the_rows_of_the_view");
    for partitioned in [false, true] {
        let mut table = Table::new();
        if partitioned {
            table.settings.partition_by = Some(vec!["region".into()]);
        }
        let steps = size("CUTOVER_CURRENT_STEPS", 60);
        let mut model = rows(&mut chance, 300, 200, 5);
        let mut sink = table.sink(&model, 5).await;
        let mut expected = Expected(vec![(0, model.len(), digest(&model).to_string())]);
        let mut at = 5;
        for n in 1..=steps {
            let to = at + 1 + chance.below(3);
            let applied = sink.append(changes(&mut chance, &mut model, 300, at, to, 40)).await.unwrap();
            at = to;
            assert_ne!(applied, cutover::Applied::Already, "step {at}; seed {seed}");
            if n == steps / 2 {
                model = rows(&mut chance, 300, 250, at);
                reload(&mut sink, &model, at).await;
            }
            if n % 20 == 0 {
                sink.close().await;
                sink = table.sink(&model, at).await;
            }
            if n % 10 == 0 {
                let version = sink.facts().version.unwrap();
                expected.0.push((version, model.len(), digest(&model).to_string()));
                table.holds(&model, seed).await;
            }
        }
        if let Some(readers) = &readers {
            expected.check(readers, &table, seed);
        }
    }
}
