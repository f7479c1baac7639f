//! Every key and codec of ours that touches a table: properties, commit info, `txn`, row columns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, Field, FieldRef};
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::step::Step;
use crate::strand::Strand;

/// The contract's number; a table with another one is beyond this program.
pub const CONTRACT: u64 = 1;

/// Begins every table property of ours.
pub const PROPERTY_PREFIX: &str = "cutover.";
/// `txn.appId` whose version is the last step.
pub const TXN_STEP: &str = "cutover/step";
/// `txn.appId` whose version is the writer's epoch.
pub const TXN_EPOCH: &str = "cutover/epoch";
/// The row column with the generation.
pub const COLUMN_GENERATION: &str = "__generation";
/// The row column with the step.
pub const COLUMN_STEP: &str = "__step";
/// The row column with the operation.
pub const COLUMN_OP: &str = "__op";
/// The tag of an `add` action with the digest of the file's rows.
pub const TAG_DIGEST: &str = "cutover.digest";
/// The commit info field that holds a [`CommitStamp`].
pub const USER_METADATA: &str = "userMetadata";
/// Begins the name of every data file of ours.
pub const FILE_PREFIX: &str = "cutover-";
/// Begins the names of a first load's data files: a folder that holds no others and no log was left by one that did not
/// end, and not by a table whose log is lost.
pub const FIRST_LOAD_PREFIX: &str = "cutover-load-";
/// The property that makes other engines forget `txn`; a table that sets it cannot be ours.
pub const TXN_RETENTION: &str = "delta.setTransactionRetentionDuration";
/// The note in a data file's footer with the generation that it was written in, where its rows do not tell.
pub const NOTE_GENERATION: &str = "cutover.generation";
/// The note in a data file's footer with the last step that it was written for, where its rows do not tell.
pub const NOTE_STEP: &str = "cutover.step";
/// The property with the connector's full name, which an adoption changes alone.
pub const CONNECTOR_PROPERTY: &str = "cutover.connector";

/// Begins the commit id of a reload that somebody asked for; the reset's id follows.
const COMMIT_PREFIX_RESET: &str = "reset:";
/// The same of a reload that rebuilds a log: what lies below it no longer counts.
pub const COMMIT_PREFIX_REBUILD: &str = "rebuild:";

const CONTRACT_PROPERTY: &str = "cutover.contract";
const GENERATION: &str = "cutover.generation";
const STEP: &str = "cutover.step";
const MODE: &str = "cutover.mode";
const LAYOUT: &str = "cutover.layout";
const KEY: &str = "cutover.key";
const SOURCE: &str = "cutover.source";
const COMMIT: &str = "cutover.commit";

/// The three columns that stand first in layout `changelog`.
pub fn row_columns() -> &'static [FieldRef; 3] {
    static COLUMNS: LazyLock<[FieldRef; 3]> = LazyLock::new(|| {
        [
            Arc::new(Field::new(COLUMN_GENERATION, DataType::Int64, false)),
            Arc::new(Field::new(COLUMN_STEP, DataType::Int64, false)),
            Arc::new(Field::new(COLUMN_OP, DataType::Utf8, false)),
        ]
    });
    &COLUMNS
}

/// What a connector delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The whole state at one step, then every later change.
    SnapshotAndFollow,
    /// Changes only.
    Follow,
    /// The whole state at one step, once.
    Snapshot,
}

impl Mode {
    /// How many rows the view has after commits with `rows` in a generation; not known where nobody loaded those of before.
    pub fn current_rows(self, rows: RowCounts) -> Option<u64> {
        (self != Self::Follow).then(|| rows.left())
    }
}

/// How a view's rows stand in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Every change as a row.
    Changelog,
    /// The view itself: the rows that it has at the last step.
    Current,
}

impl Layout {
    /// How many rows a commit of ours writes to new files.
    pub fn output_rows(self, kind: Kind, rows: RowCounts) -> u64 {
        match (self, kind) {
            // What is deleted is marked in the files that hold it.
            (Self::Current, Kind::Append) => rows.i.saturating_add(rows.u),
            _ => rows.total(),
        }
    }

    /// How many rows the table holds after commits with `rows` in a generation.
    pub fn live_rows(self, rows: RowCounts) -> u64 {
        match self {
            Self::Changelog => rows.total(),
            Self::Current => rows.left(),
        }
    }
}

/// What a commit of ours does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Replaces every live file by a snapshot's and starts a generation.
    Reload,
    /// Adds the changes of the steps `(from, to]`.
    Append,
    /// Changes no row: a writer's claim.
    Mark,
    /// Rewrites files without changing a row.
    Maintenance,
}

macro_rules! display_as_json_word {
    ($($t:ty),*) => {$(
        impl fmt::Display for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let word = serde_json::to_value(self).map_err(|_| fmt::Error)?;
                f.write_str(word.as_str().ok_or(fmt::Error)?)
            }
        }
        impl std::str::FromStr for $t {
            type Err = Error;
            fn from_str(word: &str) -> Result<Self> {
                serde_json::from_value(serde_json::Value::String(word.to_string()))
                    .map_err(|e| Error::config(format!("unknown word {word:?}")).with_source(e))
            }
        }
    )*};
}
display_as_json_word!(Mode, Layout, Kind);

/// How many rows of each operation a commit holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowCounts {
    /// Inserts.
    pub i: u64,
    /// Updates.
    pub u: u64,
    /// Deletes.
    pub d: u64,
}

impl RowCounts {
    /// All rows.
    pub fn total(self) -> u64 {
        self.i.saturating_add(self.u).saturating_add(self.d)
    }

    /// How many rows a view has that began empty and changed so.
    pub fn left(self) -> u64 {
        self.i.saturating_sub(self.d)
    }
}

impl fmt::Display for RowCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} i, {} u and {} d", self.i, self.u, self.d)
    }
}

impl std::ops::Add for RowCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl std::ops::AddAssign for RowCounts {
    fn add_assign(&mut self, other: Self) {
        self.i = self.i.saturating_add(other.i);
        self.u = self.u.saturating_add(other.u);
        self.d = self.d.saturating_add(other.d);
    }
}

/// Who asked for a reload, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResetStamp {
    /// The reset's id; the reload's commit id derives from it.
    pub id: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
}

/// The commit id of the reload that carries out the reset with this id.
pub fn reset_commit(id: &str) -> String {
    format!("{COMMIT_PREFIX_RESET}{id}")
}

/// Which connector a table belonged to before, who gave it to another, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AdoptStamp {
    /// The connector's full name until here.
    pub from: String,
    /// Who asked.
    pub who: String,
    /// Why.
    pub why: String,
}

/// The `userMetadata` of each commit of ours, as compact JSON; `cutover` stands first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CommitStamp {
    /// The contract's number.
    #[schemars(range(min = 1, max = 1))]
    pub cutover: u64,
    /// What the commit does.
    pub kind: Kind,
    /// The connector's full name.
    pub connector: String,
    /// The generation that the commit belongs to.
    #[schemars(with = "u64", range(min = 1))]
    pub generation: Generation,
    /// The writer's epoch.
    #[schemars(with = "u64", range(min = 1))]
    pub epoch: Epoch,
    /// The writer's id.
    pub writer: String,
    /// The commit's unique id.
    pub commit: String,
    /// The step before the first one covered; absent in a reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub from: Option<Step>,
    /// The last step covered; the cutover in a reload.
    #[schemars(with = "u64")]
    pub to: Step,
    /// The commit's rows.
    pub rows: RowCounts,
    /// The digest of the commit's rows.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{32}$"))]
    pub digest: Digest,
    /// The digest of the generation so far; absent when the commit before it could not be read any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{32}$"))]
    pub digest_total: Option<Digest>,
    /// The rows of the generation's commits so far; absent when the commit before does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_total: Option<RowCounts>,
    /// The position in the source's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The strand of step `to`, which tells it from others of its number; absent where the source cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{16}$"))]
    pub strand: Option<Strand>,
    /// For a reload that somebody asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetStamp>,
    /// For a mark that gives the table to another connector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<AdoptStamp>,
}

impl CommitStamp {
    /// The stamp as it stands in `userMetadata`.
    pub fn encode(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal("a commit stamp was not encoded").with_source(e))
    }

    /// The stamp in `user_metadata`: `None` when that is not ours at all, an error when it begins
    /// like ours and cannot be trusted.
    pub fn decode(user_metadata: &str) -> Result<Option<Self>> {
        let Ok(serde_json::Value::Object(object)) = serde_json::from_str(user_metadata) else {
            return if user_metadata.trim_start().starts_with("{\"cutover\"") {
                Err(Error::corrupt("the commit stamp is not valid JSON"))
            } else {
                Ok(None)
            };
        };
        // Somebody else's key may have the name too; a contract is a number.
        let Some(contract) = object.get("cutover").filter(|c| c.is_number()) else { return Ok(None) };
        if contract.as_u64() != Some(CONTRACT) {
            return Err(Error::incompatible(format!(
                "the commit stamp has the contract number {contract}, known is {CONTRACT}"
            )));
        }
        serde_json::from_value(serde_json::Value::Object(object))
            .map(Some)
            .map_err(|e| Error::corrupt("the commit stamp is incomplete or malformed").with_source(e))
    }
}

/// The table properties that a reload writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStamp {
    /// The connector's full name.
    pub connector: String,
    /// The current generation.
    pub generation: Generation,
    /// The cutover step.
    pub step: Step,
    /// The connector's mode.
    pub mode: Mode,
    /// The table's layout.
    pub layout: Layout,
    /// The key's columns.
    pub key: Vec<String>,
    /// The source's fingerprint.
    pub source: String,
    /// The reload commit's id.
    pub commit: String,
}

impl TableStamp {
    /// The properties, key by key.
    pub fn encode(&self) -> BTreeMap<String, String> {
        let key = serde_json::Value::from(self.key.clone()).to_string();
        [
            (CONTRACT_PROPERTY, CONTRACT.to_string()),
            (CONNECTOR_PROPERTY, self.connector.clone()),
            (GENERATION, self.generation.to_string()),
            (STEP, self.step.to_string()),
            (MODE, self.mode.to_string()),
            (LAYOUT, self.layout.to_string()),
            (KEY, key),
            (SOURCE, self.source.clone()),
            (COMMIT, self.commit.clone()),
        ]
        .into_iter()
        .map(|(k, v)| (k.to_string(), v))
        .collect()
    }

    /// The contract's number among a table's properties, where it is not the one that this program knows.
    pub fn foreign_contract(properties: &BTreeMap<String, String>) -> Option<&str> {
        properties.get(CONTRACT_PROPERTY).map(String::as_str).filter(|number| *number != CONTRACT.to_string())
    }

    /// Our stamp among a table's properties: `None` when there is none, an error when it is
    /// incomplete, malformed or of another contract.
    pub fn decode<'a>(properties: impl IntoIterator<Item = (&'a String, &'a String)>) -> Result<Option<Self>> {
        let ours: BTreeMap<&str, &str> = properties
            .into_iter()
            .filter(|(k, _)| k.starts_with(PROPERTY_PREFIX))
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        if ours.is_empty() {
            return Ok(None);
        }
        let text = |key: &str| {
            ours.get(key)
                .copied()
                .ok_or_else(|| Error::corrupt(format!("the table property {key} is missing beside others of ours")))
        };
        let number = |key: &str| {
            text(key)?
                .parse::<u64>()
                .map_err(|e| Error::corrupt(format!("the table property {key} is not a number")).with_source(e))
        };
        let contract = text(CONTRACT_PROPERTY)?;
        if contract != CONTRACT.to_string() {
            return Err(Error::incompatible(format!(
                "the table has the contract number {contract:?}, known is {CONTRACT}; use the version of this program that wrote it"
            )));
        }
        let word = |key: &str| text(key).map(str::to_string);
        Ok(Some(Self {
            connector: word(CONNECTOR_PROPERTY)?,
            generation: Generation::new(number(GENERATION)?)?,
            step: Step::new(number(STEP)?)?,
            mode: text(MODE)?
                .parse()
                .map_err(|e| Error::incompatible(format!("the table property {MODE} is unknown")).with_source(e))?,
            layout: text(LAYOUT)?
                .parse()
                .map_err(|e| Error::incompatible(format!("the table property {LAYOUT} is unknown")).with_source(e))?,
            key: serde_json::from_str(text(KEY)?).map_err(|e| {
                Error::corrupt(format!("the table property {KEY} is no JSON array of names")).with_source(e)
            })?,
            source: word(SOURCE)?,
            commit: word(COMMIT)?,
        }))
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
