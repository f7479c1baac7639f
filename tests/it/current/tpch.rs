//! TPC-H's orders and lineitem under refreshes, delivered by the program, as other engines read them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Chance, Ran, Readers, size};

const ENGINES: &str = "duckdb,chdb,polars,sail";
const VIEWS: [&str; 2] = ["orders", "lineitem"];

/// A step of orders is a version; one of lineitem may hold several.
const CONFIG: &str = r#"
config_version = 1
[defaults.connector]
durability = "none"
[pipelines.tpch.source.files]
path = "feed"
[pipelines.tpch.views.orders]
key = ["o_orderkey"]
[pipelines.tpch.views.orders.connectors.orders]
commit = { max_rows = 1 }
[pipelines.tpch.views.orders.connectors.orders.delta]
uri = "orders"
layout = "current"
[pipelines.tpch.views.lineitem]
key = ["l_orderkey", "l_linenumber"]
[pipelines.tpch.views.lineitem.connectors.lineitem]
commit = { max_rows = 700 }
[pipelines.tpch.views.lineitem.connectors.lineitem.delta]
uri = "lineitem"
layout = "current"
"#;

/// A feed of both views and a table of each.
struct Warehouse {
    home: TempDir,
    seed: u64,
}

impl Warehouse {
    fn new(readers: &Readers, scale: &str, steps: u64, seed: u64) -> Self {
        let home = TempDir::new().unwrap();
        fs::write(home.path().join("cutover.toml"), CONFIG).unwrap();
        let feed = home.path().join("feed").display().to_string();
        let args = ["feed", &feed, "--scale", scale, "--steps", &steps.to_string(), "--seed", &seed.to_string()];
        readers.tell("tpch.py", &args, "");
        Self { home, seed }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let ran = Command::new(env!("CARGO_BIN_EXE_cutover")).args(args).current_dir(self.home.path()).output();
        Ran::of(ran.unwrap()).ended(0, self.seed)
    }

    /// Holds every tenth version of each table, and its last, against the feed.
    fn check(&self, readers: &Readers, logs: &[Log]) {
        let mut lines = Vec::new();
        for (view, log) in VIEWS.iter().zip(logs) {
            let last = log.steps.len() - 1;
            let versions = (0..last).step_by(10).chain([last]);
            let table = self.path(view).display().to_string();
            lines.extend(versions.map(|version| format!("{view}\t{table}\t{version}\t{}", log.steps[version])));
        }
        let told =
            readers.tell("tpch.py", &["judge", &self.path("feed").display().to_string(), ENGINES], &lines.join("\n"));
        let answers: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), lines.len() * ENGINES.split(',').count());
        for answer in answers {
            assert!(answer["rows"].as_u64() > Some(0), "{answer}; seed {}", self.seed);
            assert_eq!((&answer["missing"], &answer["extra"]), (&0.into(), &0.into()), "{answer}; seed {}", self.seed);
        }
    }
}

/// What a table's log says.
#[derive(Debug, Default)]
struct Log {
    /// The step that each version reaches.
    steps: Vec<u64>,
    joins: usize,
    /// How often a file that had a vector got one with more rows.
    grown: usize,
}

impl Log {
    fn read(folder: PathBuf) -> Self {
        let (mut log, mut deleted) = (Self::default(), BTreeMap::new());
        while let Ok(text) = fs::read_to_string(folder.join(format!("_delta_log/{:020}.json", log.steps.len()))) {
            let actions: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let stamp: Value =
                serde_json::from_str(actions[0]["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap();
            log.steps.push(stamp["to"].as_u64().unwrap());
            log.joins += usize::from(stamp["kind"] == "maintenance");
            for add in actions.iter().filter_map(|action| action.get("add")) {
                if let Some(rows) = add["deletionVector"]["cardinality"].as_u64() {
                    let before = deleted.insert(add["path"].to_string(), rows);
                    log.grown += usize::from(before.is_some_and(|before| rows > before));
                }
            }
        }
        log
    }
}

#[test]
fn refreshed_orders_and_lines_are_read_exactly_at_every_tenth_version() {
    let test = "refreshed_orders_and_lines_are_read_exactly_at_every_tenth_version";
    let Some(readers) = Readers::find(test) else { return };
    let mut chance = Chance::new(test);
    let steps = size("CUTOVER_TPCH_STEPS", 20);
    let scale = std::env::var("CUTOVER_TPCH_SF").unwrap_or_else(|_| "0.001".into());
    let warehouse = Warehouse::new(&readers, &scale, steps, chance.seed);
    // One process goes on with the index of another, and the last one has to make it again.
    let first = 1 + chance.below(steps / 2);
    let second = first + 1 + chance.below(steps - first - 1);
    for until in [first, second] {
        warehouse.run(&["run", "--once", "--until-step", &until.to_string()]);
    }
    fs::remove_dir_all(warehouse.path("cutover-data")).unwrap();
    warehouse.run(&["run", "--once"]);
    let logs = VIEWS.map(|view| Log::read(warehouse.path(view)));
    for (view, log) in VIEWS.iter().zip(&logs) {
        assert_eq!(log.steps.last(), Some(&steps), "{view}; seed {}", warehouse.seed);
        assert!(log.grown > 0, "{view}: no vector grew; seed {}", warehouse.seed);
        warehouse.run(&["verify", "--deep", view]);
        readers.read(&["log", &warehouse.path(view).display().to_string()]);
    }
    assert!(logs[0].joins > 0, "no files were joined; seed {}", warehouse.seed);
    warehouse.check(&readers, &logs);
}
