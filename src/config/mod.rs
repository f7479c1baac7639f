//! The configuration: plain, validated settings out of a TOML file, the environment and flags.
//!
//! Everything that is wrong is found at once. Each problem names the file, line and column (or the flag or
//! variable), the path of the key, and the remedy; a key that nothing reads is a problem too.

mod interpolate;
mod load;
mod name;
mod overrides;
mod place;
mod secret;
mod section;
mod tree;
mod units;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow::datatypes::DataType;

use crate::connector::CommitBounds;
use crate::continuity::columns::SchemaChange;
use crate::continuity::plan::OnExisting;
use crate::continuity::stamp::{Layout, Mode};
use crate::error::{Error, Result};
use crate::files::Compression;
use crate::log::{Durability, StorageOptions};

pub use name::ConnectorName;
pub use secret::Secret;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The connectors, in the file's order; never empty.
    pub connectors: Vec<ConnectorConfig>,
}

/// One view of one source, delivered to one destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorConfig {
    /// The full name.
    pub name: ConnectorName,
    /// What is delivered.
    pub mode: Mode,
    /// What to do with a table that is not ours.
    pub on_existing: OnExisting,
    /// What to do when the view has other columns than the table.
    pub schema_change: SchemaChange,
    /// When collected steps are committed.
    pub commit: CommitBounds,
    /// What a local table syncs before a step counts as delivered.
    pub durability: Durability,
    /// How long steps may pass without changes before an append without rows records them; `None` is never.
    pub heartbeat: Option<Duration>,
    /// Where the rows come from.
    pub source: FilesConfig,
    /// The columns of the view's key; empty when the file names none.
    pub key: Vec<String>,
    /// The view's columns in the file's order; empty when the file names none.
    pub columns: Vec<(String, DataType)>,
    /// Where the rows go.
    pub delta: DeltaConfig,
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

/// A Delta table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaConfig {
    /// A local path or a URL without credentials, as written.
    pub uri: String,
    /// How rows stand in the table.
    pub layout: Layout,
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

fn names<'a>(connectors: impl IntoIterator<Item = &'a ConnectorConfig>) -> String {
    let names: Vec<String> = connectors.into_iter().map(|c| c.name.to_string()).collect();
    names.join(", ")
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
