//! The program on tables of a server: its configuration, what it made, and what the server has.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::server::{PASSWORD, Postgres};
use crate::program::{PATIENCE, Ran, Running, wait_until};

/// A directory with a configuration, and with a table for each view.
pub(super) struct Site {
    home: TempDir,
    views: BTreeMap<String, String>,
    /// What is compared with a table, where that is not the same rows as JSON.
    selected: BTreeMap<String, String>,
}

impl Site {
    /// One pipeline with these views of tables, each delivered by a connector of these settings.
    pub(super) fn new(server: &Postgres, views: &[(&str, &str)], settings: &str) -> Self {
        let home = TempDir::new().unwrap();
        let views = views.iter().map(|(view, table)| ((*view).to_owned(), (*table).to_owned())).collect();
        let site = Self { home, views, selected: BTreeMap::new() };
        site.configure(&server.url(), settings);
        site
    }

    /// Writes the configuration anew.
    pub(super) fn configure(&self, url: &str, settings: &str) {
        let mut text = format!(
            "config_version = 1\n[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\
             [pipelines.p.source.postgres]\nurl = \"{url}\"\n"
        );
        for (view, table) in &self.views {
            text += &format!(
                "[pipelines.p.views.{view}]\ntable = '{table}'\n[pipelines.p.views.{view}.connectors.lake]\n\
                 commit = {{ max_interval = \"20ms\" }}\ndurability = \"none\"\n{settings}\n\
                 [pipelines.p.views.{view}.connectors.lake.delta]\nuri = \"{view}\"\n"
            );
        }
        fs::write(self.path("cutover.toml"), text).unwrap();
    }

    /// Follows one table more.
    pub(super) fn add(&mut self, server: &Postgres, view: &str, table: &str, settings: &str) {
        self.views.insert(view.to_owned(), table.to_owned());
        self.configure(&server.url(), settings);
    }

    /// The rows of a view are those of `select`, whose texts are as in the table.
    pub(super) fn compare_with(&mut self, view: &str, select: &str) {
        self.selected.insert(view.to_owned(), format!("({select})"));
    }

    /// What the server has of a view's table.
    fn truth(&self, server: &Postgres, view: &str, table: &str) -> Vec<String> {
        let table = self.selected.get(view).map_or(table, String::as_str);
        rows(&server.sql(&format!("SELECT row_to_json(t) FROM {table} t")))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        // Figures are wanted of a build that is released.
        let program = std::env::var_os("CUTOVER_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_cutover").into());
        let mut command = Command::new(program);
        command.args(args).current_dir(self.home.path());
        command
    }

    /// Runs the program until it ends; it says no password.
    pub(super) fn run(&self, args: &[&str]) -> Ran {
        let ran = Ran::of(self.command(args).output().unwrap());
        assert!(!ran.stdout.contains(PASSWORD) && !ran.stderr.contains(PASSWORD), "{}{}", ran.stdout, ran.stderr);
        ran
    }

    /// Starts the program, which goes on until it is told otherwise.
    pub(super) fn start(&self) -> Running {
        Running::start(self.command(&["run"]), tempfile::NamedTempFile::new_in(self.home.path()).unwrap())
    }

    /// Loads the table of a view anew.
    pub(super) fn reset(&self, view: &str) -> Ran {
        self.run(&["reset", &format!("{view}/lake"), "--yes"])
    }

    /// The rows of a table, each as JSON.
    pub(super) fn state(&self, view: &str) -> Vec<String> {
        rows(&self.run(&["state", view]).ended(0, 0).stdout)
    }

    /// The stamps of a table's versions, in order.
    pub(super) fn stamps(&self, view: &str) -> Vec<Value> {
        let stamp = |version: usize| {
            let text = fs::read_to_string(self.path(&format!("{view}/_delta_log/{version:020}.json"))).ok()?;
            let info: Value = serde_json::from_str(text.lines().next()?).ok()?;
            serde_json::from_str(info["commitInfo"]["userMetadata"].as_str()?).ok()
        };
        (0..).map_while(stamp).collect()
    }

    /// How many times a table was loaded.
    pub(super) fn generation(&self, view: &str) -> u64 {
        self.stamps(view).iter().filter_map(|stamp| stamp["generation"].as_u64()).max().unwrap_or(0)
    }

    /// Asserts that the tables have what the server has, and break no rule.
    pub(super) fn check(&self, server: &Postgres) {
        for (view, table) in &self.views {
            assert_eq!(self.state(view), self.truth(server, view, table), "{view}");
            self.run(&["verify", view, "--deep"]).ended(0, 0);
        }
    }

    /// Waits until the tables have what the server has.
    pub(super) fn catch_up(&self, server: &Postgres, running: &Running) {
        for (view, table) in &self.views {
            let is_equal = || {
                // Looking costs more than waiting.
                std::thread::park_timeout(Duration::from_millis(100));
                let ran = self.run(&["state", view]);
                ran.code == Some(0) && rows(&ran.stdout) == self.truth(server, view, table)
            };
            assert!(wait_until(PATIENCE, is_equal), "{view} is not what the server has; said: {}", running.said());
        }
    }
}

fn rows(lines: &str) -> Vec<String> {
    let mut rows: Vec<String> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap().to_string()).collect();
    rows.sort();
    rows
}
