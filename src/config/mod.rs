//! The configuration: plain, validated settings out of a TOML file, the environment and flags.
//!
//! Everything that is wrong is found at once. Each problem names the file, line and column (or the flag or
//! variable), the path of the key, and the remedy; a key that nothing reads is a problem too.

mod connector;
mod defaults;
mod delta;
mod interpolate;
mod keys;
mod load;
mod name;
mod overrides;
mod place;
mod reset;
mod schema;
mod secret;
mod section;
mod server;
mod shown;
mod source;
mod step_log;
mod tree;
mod units;
mod view;
mod webhook;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::DataType;

use crate::connector::{Backoff, BreakerSettings, CommitBounds, OnContinuityLoss};
use crate::continuity::columns::SchemaChange;
use crate::continuity::plan::OnExisting;
use crate::continuity::stamp::{Layout, Mode};
use crate::error::{Error, Result};
use crate::events::Kind;
use crate::files::Compression;
use crate::ingest;
use crate::log::{Durability, StorageOptions};
use crate::source::logged::WhenFull;

pub use name::{ConnectorName, check as check_name};
pub(crate) use place::{join, nearest};
pub(crate) use schema::schema;
pub use secret::Secret;
pub(crate) use section::did_you_mean;
pub(crate) use shown::to_toml;
pub use shown::{Origin, Setting, Shown};
pub(crate) use tree::position;
pub(crate) use units::duration as parse_duration;

/// Everything that [`Config::load`] looks at; it reads neither the environment nor files by itself.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// The file's name, as errors show it.
    pub path: &'a Path,
    /// The file's text.
    pub text: &'a str,
    /// The values of `--set`, each `a.b.c=value`, in the order given.
    pub sets: &'a [String],
    /// The environment: `CUTOVER__A__B` overrides the file, `${env:NAME}` refers to it.
    pub env: &'a BTreeMap<String, String>,
    /// Parses a column's type; the source knows the words.
    pub parse_type: &'a dyn Fn(&str) -> Result<DataType>,
    /// Reads the file that `${file:PATH}` names.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<String>,
}

/// All settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// How the daemon is reached, and where it keeps what it must not forget.
    pub server: ServerConfig,
    /// The views, in the file's order; never empty.
    pub views: Vec<ViewConfig>,
    /// The connectors, in the file's order; empty only where each view is pushed.
    pub connectors: Vec<ConnectorConfig>,
}

/// How the daemon is reached, and where it keeps what it must not forget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// Step logs, rows of pushed views and journals, as written: relative to the working directory.
    pub data_dir: PathBuf,
    /// The names besides the loopback's and the address itself that requests may give in `Host`: in lower case, without
    /// port, an IPv6 address in brackets.
    pub hosts: Vec<String>,
    /// Who may do what; empty: whoever reaches it may do everything, which only a loopback address allows.
    pub tokens: Vec<TokenConfig>,
    /// What a request of changes may take in bytes, and a line of it.
    pub ingress: ingest::Limits,
    /// Who is told of events.
    pub webhooks: Vec<WebhookConfig>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8090)),
            data_dir: PathBuf::from("./cutover-data"),
            hosts: Vec::new(),
            tokens: Vec::new(),
            ingress: ingest::Limits::default(),
            webhooks: Vec::new(),
        }
    }
}

/// A token, and what it allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenConfig {
    /// Whose it is, as histories and logs name them.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The token itself.
    pub token: Secret,
}

/// Somebody who is told of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookConfig {
    /// Its name.
    pub name: String,
    /// Where it is, with what may be a secret in path or query.
    pub url: Secret,
    /// The host in it.
    pub host: String,
    /// Of what it is told.
    pub events: Vec<Kind>,
    /// What signs what it is sent: `whsec_`, and a key in base64.
    pub secret: Secret,
}

/// What somebody may do; each role may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// See.
    Read,
    /// Push changes.
    Push,
    /// Pause, resume, reset, load the configuration anew.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Push => "push",
            Self::Admin => "admin",
        })
    }
}

/// A view, whether anything of it is delivered or not.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewConfig {
    /// Its pipeline's name.
    pub pipeline: String,
    /// Its name.
    pub name: String,
    /// Where the rows come from.
    pub source: SourceConfig,
    /// The columns of its key; empty when the file names none.
    pub key: Vec<String>,
    /// Its columns in the file's order; empty when the file names none, which only a source that tells them allows.
    pub columns: Vec<(String, DataType)>,
    /// Whether its rows are kept, so that snapshots of it can be given; of a pushed view.
    pub materialized: bool,
    /// What its step log may take in bytes; of a view that has one.
    pub step_log_bytes: u64,
    /// The table, as SQL names it; of a PostgreSQL database.
    pub table: Option<String>,
}

/// Where rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceConfig {
    /// Files that others land.
    Files(FilesConfig),
    /// Requests that others send.
    Push,
    /// Tables of a PostgreSQL database.
    Postgres(PostgresConfig),
}

impl SourceConfig {
    /// Whether what it gives is kept in step logs until connectors have it.
    pub fn is_logged(&self) -> bool {
        match self {
            Self::Files(_) => false,
            Self::Push | Self::Postgres(_) => true,
        }
    }
}

/// One view of one source, delivered to one destination.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectorConfig {
    /// The full name.
    pub name: ConnectorName,
    /// What is delivered.
    pub mode: Mode,
    /// What to do with a table that is not ours.
    pub on_existing: OnExisting,
    /// What to do when continuity is lost.
    pub on_continuity_loss: OnContinuityLoss,
    /// How many resets it may have.
    pub breaker: BreakerSettings,
    /// How long is waited between tries of a reset.
    pub backoff: Backoff,
    /// What becomes of pushes when the step log is full because of it.
    pub when_full: WhenFull,
    /// What to do when the view has other columns than the table.
    pub schema_change: SchemaChange,
    /// When collected steps are committed.
    pub commit: CommitBounds,
    /// What a local table syncs before a step counts as delivered.
    pub durability: Durability,
    /// How long steps may pass without changes before an append without rows records them; `None` is never.
    pub heartbeat: Option<Duration>,
    /// Where the rows come from.
    pub source: SourceConfig,
    /// The columns of the view's key; empty when the file names none.
    pub key: Vec<String>,
    /// The view's columns in the file's order; empty when the file names none.
    pub columns: Vec<(String, DataType)>,
    /// Where the rows go.
    pub destination: Destination,
}

/// Where rows go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Into a Delta table.
    Delta(DeltaConfig),
    /// To a client that asks for them over HTTP.
    Http,
}

impl ConnectorConfig {
    /// The table; `None` where there is another destination.
    pub fn delta(&self) -> Option<&DeltaConfig> {
        match &self.destination {
            Destination::Delta(delta) => Some(delta),
            Destination::Http => None,
        }
    }

    /// Whether it keeps an index of its table's keys in the data directory.
    pub fn needs_key_index(&self) -> bool {
        self.delta().is_some_and(|delta| delta.layout == Layout::Current)
    }
}

/// A directory of snapshot and change files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesConfig {
    /// The directory, as written: relative to the working directory.
    pub path: PathBuf,
    /// Names the feed's history, so that its directory can be moved.
    pub id: Option<String>,
    /// How often the directory is listed.
    pub poll_interval: Duration,
}

/// A PostgreSQL database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Where it is, and who connects, with a password where one is wanted.
    pub url: Secret,
    /// The name of the replication slot.
    pub slot: String,
    /// The name of the publication.
    pub publication: String,
    /// What the slot may make the server keep, in bytes, before it is dropped; `None`: anything.
    pub max_wal: Option<u64>,
}

/// A Delta table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaConfig {
    /// A local path or a URL without credentials, as written.
    pub uri: String,
    /// How rows stand in the table.
    pub layout: Layout,
    /// Whether files are joined beside the commits.
    pub compaction: bool,
    /// A changelog with more than so many rows for each of the view's is loaded anew.
    pub reload_ratio: Option<NonZeroU32>,
    /// How data files are compressed.
    pub compression: Compression,
    /// The size in bytes that data files aim at.
    pub target_file_size: u64,
    /// The columns by which the table is partitioned; `None` leaves it as it is.
    pub partition_by: Option<Vec<String>>,
    /// The object store's options.
    pub storage: BTreeMap<String, Secret>,
    /// Table properties that a reload sets besides ours.
    pub properties: BTreeMap<String, String>,
}

impl DeltaConfig {
    /// The object store's options, for opening the table.
    pub fn storage_options(&self) -> StorageOptions {
        self.storage.iter().map(|(name, value)| (name.clone(), value.expose().to_string())).collect()
    }
}

impl Config {
    /// The validated settings, or one [`ErrorKind::Config`](crate::error::ErrorKind::Config) error with every
    /// problem, one a line: `cutover.toml:12:5: path.of.key: what is wrong; the remedy`.
    pub fn load(inputs: &Inputs<'_>) -> Result<Self> {
        load::load(inputs)
    }

    /// Every setting that counts, with its value and where that was said: what is said nowhere too.
    ///
    /// Config: there are problems, as [`Config::load`] finds them.
    pub fn settings(inputs: &Inputs<'_>) -> Result<Vec<Setting>> {
        shown::settings(inputs)
    }

    /// The connector called `name`: its full name `pipeline/view/connector`, or the end of it, if only one
    /// ends so.
    pub fn find(&self, name: &str) -> Result<&ConnectorConfig> {
        let found: Vec<&ConnectorConfig> = self.connectors.iter().filter(|c| c.name.ends_with(name)).collect();
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(Error::config(match self.nearest(name) {
                Some(near) => format!("no connector is called {name:?}; did you mean {near:?}?"),
                None => format!("no connector is called {name:?}; there are {}", names(&self.connectors)),
            })),
            several => Err(Error::config(format!(
                "{name:?} is the end of several connectors' names; write one of {}",
                names(several.iter().copied())
            ))),
        }
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let endings: Vec<String> = self.connectors.iter().flat_map(|c| c.name.endings()).collect();
        place::nearest(name, endings.iter().map(String::as_str)).map(str::to_string)
    }
}

/// `text` with every reference in it replaced, as in a string of the file, or all that is wrong with them.
pub(crate) fn resolve(
    text: &str,
    env: &BTreeMap<String, String>,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<String, Vec<String>> {
    interpolate::Referents { env, read_file }.resolve(text)
}

fn names<'a>(connectors: impl IntoIterator<Item = &'a ConnectorConfig>) -> String {
    let names: Vec<String> = connectors.into_iter().map(|c| c.name.to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
