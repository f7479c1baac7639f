//! The program as a daemon: changes are pushed over HTTP, tables are read by others.

mod browser;
mod egress;
mod egress_questions;
mod events;
mod follow;
mod kills;
pub(crate) mod ledger;
mod live;
mod page;
mod puller;
mod questions;
mod resets;
mod room;
mod schema;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cutover::{Clock, SystemClock};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use self::ledger::Ledger;
use crate::program::{PATIENCE, Ran, Readers, Running, same, wait_until};

/// How long a state may take to come: a view of a million rows is loaded by a machine that others use too.
const STATE_PATIENCE: Duration = Duration::from_secs(600);

/// A directory with a daemon's configuration, state and tables.
pub(crate) struct Home {
    dir: TempDir,
    runtime: tokio::runtime::Runtime,
    client: Client,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Asserts the status.
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

/// A running daemon.
pub(crate) struct Service<'a> {
    pub(crate) home: &'a Home,
    pub(crate) process: Running,
    pub(crate) url: String,
}

/// So many resets as a test likes, each of them one of its own.
pub(crate) const FREE_RESETS: &str = "reset = { breaker = { max_resets = 1000, window = \"1m\", cooldown = \"1s\" }, backoff = { initial = \"1ms\", factor = 1.0, max = \"1ms\" } }";

const VIEW: &str = "config_version = 1\n\
    [server]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\n\
    [pipelines.p.source.push]\n\
    [pipelines.p.views.rows]\nkey = [\"id\"]\ncolumns = { id = \"bigint\", name = \"string\", amount = \"bigint\" }\n";

/// What the configuration says of a connector of the view, whose table has its name.
pub(crate) fn connector(name: &str, more: &str) -> String {
    let durability = if more.contains("durability") { "" } else { "durability = \"none\"\n" };
    format!(
        "[pipelines.p.views.rows.connectors.{name}]\ncommit = {{ max_rows = 2000, max_interval = \"20ms\" }}\n{durability}{more}\n\
         [pipelines.p.views.rows.connectors.{name}.delta]\nuri = \"{name}\"\n"
    )
}

/// What the configuration says of a connector of the view whose client comes for the changes.
pub(crate) fn client(name: &str, more: &str) -> String {
    format!("[pipelines.p.views.rows.connectors.{name}]\n{more}\n[pipelines.p.views.rows.connectors.{name}.http]\n")
}

impl Home {
    /// With a pushed view `p/rows` and what `connectors` says.
    pub(crate) fn new(connectors: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let home = Self { dir: TempDir::new().unwrap(), runtime, client: Client::new() };
        home.configure(connectors);
        home
    }

    /// Writes the configuration anew.
    pub(crate) fn configure(&self, connectors: &str) {
        self.write("cutover.toml", &format!("{VIEW}{connectors}"));
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cutover"));
        command.args(args).current_dir(self.dir.path());
        command
    }

    /// Runs the program until it ends.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Starts the daemon, and waits until it listens.
    pub(crate) fn start(&self) -> Service<'_> {
        let said = NamedTempFile::new_in(self.dir.path()).unwrap();
        let mut process = Running::start(self.command(&["run"]), said);
        let mut url = None;
        wait_until(PATIENCE, || {
            let said = process.said();
            let listens = |line: &str| line.strip_prefix("listening on ").map(str::to_owned);
            url = said.ends_with('\n').then(|| said.lines().find_map(listens)).flatten();
            url.is_some() || process.ended().is_some()
        });
        let Some(url) = url else { panic!("the daemon does not listen: {}", process.said()) };
        Service { home: self, process, url }
    }

    /// The stamps of a table's versions, in order.
    pub(crate) fn stamps(&self, table: &str) -> Vec<Value> {
        let stamp = |version: usize| {
            let text = fs::read_to_string(self.path(&format!("{table}/_delta_log/{version:020}.json"))).ok()?;
            let info: Value = serde_json::from_str(text.lines().next()?).ok()?;
            Some(serde_json::from_str(info["commitInfo"]["userMetadata"].as_str().unwrap()).unwrap())
        };
        (0..).map_while(stamp).collect()
    }

    /// A data file that a table's log adds.
    pub(crate) fn data_file(&self, table: &str) -> String {
        let entry =
            |version: usize| fs::read_to_string(self.path(&format!("{table}/_delta_log/{version:020}.json"))).ok();
        let added =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["add"]["path"].as_str().map(str::to_owned);
        let mut entries = (0..).map_while(entry);
        entries.find_map(|text| text.lines().find_map(added)).unwrap()
    }

    /// Holds a table to the ledger at its last step, by every version's digest and by the rules of the contract.
    pub(crate) fn check(&self, table: &str, ledger: &Ledger) -> Vec<Value> {
        let seed = ledger.chance.seed;
        self.run(&["verify", table, "--deep"]).ended(0, seed);
        let stamps = self.stamps(table);
        assert_eq!(stamps.last().unwrap()["to"].as_u64(), Some(ledger.step()), "{table}: the last step; seed {seed}");
        let state = self.run(&["state", table]).ended(0, seed).stdout;
        assert!(ledger.is(&state), "{table}: the state is not the ledger's; seed {seed}");
        ledger.check_digests(&stamps);
        stamps
    }

    /// The same by readers that know nothing of the program: the state now, and the changelog at `samples` of its versions.
    pub(crate) fn check_with_readers(&self, test: &str, table: &str, ledger: &mut Ledger, samples: usize) {
        let Some(readers) = Readers::find(test) else { return };
        let (seed, stamps) = (ledger.chance.seed, self.stamps(table));
        let feed = self.path("mirror");
        if !feed.exists() {
            ledger.mirror(&feed);
        }
        let (feed, path) = (feed.display().to_string(), self.path(table).display().to_string());
        let expected = readers.expect(&[&feed, "rows", "--key=id"]);
        same(&readers.read(&["state", "duckdb", &path, "--key=id"]), &expected, seed);
        for sample in 0..samples {
            let version = match sample {
                0 => stamps.len() - 1,
                _ => ledger.chance.below(stamps.len() as u64) as usize,
            };
            let reload = stamps[..=version].iter().rfind(|s| s["kind"] == "reload").unwrap();
            let [generation, cutover] = [&reload["generation"], &reload["to"]].map(ToString::to_string);
            let (step, version) = (stamps[version]["to"].to_string(), version.to_string());
            let expected = readers.expect(&[
                &feed,
                "rows",
                "--key=id",
                "--step",
                &step,
                "--changelog",
                &generation,
                "--cutover",
                &cutover,
            ]);
            same(&readers.read(&["polars", &path, "--version", &version]), &expected, seed);
        }
    }
}

impl Service<'_> {
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.home.client.request(method, format!("{}{path}", self.url)).timeout(PATIENCE)
    }

    /// The answer, or `None` when the daemon went away.
    pub(crate) fn try_send(&self, request: RequestBuilder) -> Option<Answer> {
        self.home.runtime.block_on(async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            let header = |(n, v): (&reqwest::header::HeaderName, &reqwest::header::HeaderValue)| {
                (n.to_string(), v.to_str().unwrap().to_owned())
            };
            let headers = response.headers().iter().map(header).collect();
            let text = response.text().await.ok()?;
            let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
            Some(Answer { status, headers, body })
        })
    }

    pub(crate) fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).unwrap_or_else(|| panic!("no answer; {}", self.process.said()))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path))
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body))
    }

    /// A call that needs no more than its path.
    pub(crate) fn call(&self, path: &str) -> Answer {
        self.send(self.request(Method::POST, path))
    }

    /// A call to a connector of the view.
    pub(crate) fn of(&self, connector: &str, call: &str) -> String {
        format!("/v1/pipelines/p/views/rows/connectors/{connector}{call}")
    }

    pub(crate) fn status(&self, connector: &str) -> Value {
        self.get(&self.of(connector, "")).is(200).body
    }

    /// Pushes lines as the step; `None` when the daemon went away.
    pub(crate) fn try_push(&self, step: u64, lines: String) -> Option<Answer> {
        let path = format!("/v1/pipelines/p/ingress/rows?format=ndjson&step={step}");
        self.try_send(self.request(Method::POST, &path).header("Content-Type", "application/x-ndjson").body(lines))
    }

    pub(crate) fn push(&self, step: u64, lines: String) {
        let answer = self.try_push(step, lines).unwrap_or_else(|| panic!("no answer; {}", self.process.said()));
        assert_eq!(answer.is(200).body["step"].as_u64(), Some(step));
    }

    /// Waits until what a connector shows is as `is` wants it; what it shows then.
    pub(crate) fn wait(&self, connector: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        let has = wait_until(STATE_PATIENCE, || {
            status = self.status(connector);
            is(&status)
        });
        assert!(has, "{connector} is not {what}: {status}; {}", self.process.said());
        status
    }

    /// Waits until a connector's table has everything.
    pub(crate) fn arrives(&self, connector: &str, ledger: &Ledger) -> Value {
        self.wait(connector, "at the last step", |s| {
            s["last_step"].as_u64() == Some(ledger.step()) && s["state"] == "following"
        })
    }

    /// Asks for a reset and waits for its end; its record.
    pub(crate) fn reset(&self, connector: &str, body: Value) -> Value {
        let accepted = self.post(&self.of(connector, "/reset"), body).is(202).body;
        self.reset_ends(connector, accepted["id"].as_str().unwrap())
    }

    pub(crate) fn reset_ends(&self, connector: &str, id: &str) -> Value {
        let mut record = Value::Null;
        let path = self.of(connector, &format!("/resets/{id}"));
        let has_ended = wait_until(STATE_PATIENCE, || {
            record = self.get(&path).is(200).body;
            ["committed", "cancelled", "failed", "expired"].iter().any(|end| record["state"] == *end)
        });
        assert!(has_ended, "the reset goes on: {record}; {}", self.process.said());
        record
    }

    /// Ends the daemon as a supervisor does.
    pub(crate) fn stop(mut self) {
        let begun = SystemClock.boot();
        self.process.signal("TERM");
        assert_eq!(self.process.code(), Some(0), "{}", self.process.said());
        assert!(SystemClock.boot() - begun < Duration::from_secs(10), "{}", self.process.said());
    }
}

/// The resident memory of a process in bytes.
pub(crate) fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
