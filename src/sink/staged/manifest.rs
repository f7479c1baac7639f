//! What a worker hands to whoever commits: a part of a snapshot, written.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::continuity::stamp::{FILE_PREFIX, Layout};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files::{DataFile, Written};
use crate::generation::Generation;
use crate::log::schema_of;
use crate::schema::{View, view_columns};
use crate::step::Step;

/// The form of a manifest, by its name and number.
const FORM: &str = "cutover.staged/1";
const LONGEST_ID: usize = 128;

/// Which part of how many: `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOf {
    number: u32,
    parts: u32,
}

impl PartOf {
    /// Part `number`, from 1, of `parts`. Config: there is none.
    pub fn new(number: u32, parts: u32) -> Result<Self> {
        if number == 0 || number > parts {
            return Err(Error::config(format!("there is no part {number} of {parts}; parts count from 1")));
        }
        Ok(Self { number, parts })
    }

    /// Which part, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many parts there are.
    pub fn parts(self) -> u32 {
        self.parts
    }
}

impl FromStr for PartOf {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let both = text.split_once('/').and_then(|(number, parts)| Some((number.parse().ok()?, parts.parse().ok()?)));
        let (number, parts) =
            both.ok_or_else(|| Error::config("a part is written I/N: 2/4 is the second of four".to_string()))?;
        Self::new(number, parts)
    }
}

/// Which part of which snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    snapshot: String,
    step: Step,
    of: PartOf,
}

impl Part {
    /// A part of the snapshot with the id `snapshot`, whose rows are those at `step`.
    ///
    /// Config: the id has other characters than letters, digits, `.`, `_`, `:` and `-`, or too many.
    pub fn new(snapshot: &str, step: Step, of: PartOf) -> Result<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', ':', '-'].contains(&c);
        if snapshot.is_empty() || snapshot.len() > LONGEST_ID || !snapshot.chars().all(is_plain) {
            return Err(Error::config(format!(
                "{snapshot:?} is no id of a snapshot; take 1 to {LONGEST_ID} letters, digits, '.', '_', ':' and '-'"
            )));
        }
        Ok(Self { snapshot: snapshot.to_string(), step, of })
    }

    /// The snapshot's id.
    pub fn snapshot(&self) -> &str {
        &self.snapshot
    }

    /// The snapshot's step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Which part of how many.
    pub fn of(&self) -> PartOf {
        self.of
    }
}

/// What all parts of a snapshot have in common: the snapshot, and the table as the workers found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// The snapshot's id, which whoever started the workers gave it.
    pub id: String,
    /// The step whose rows these are: the cutover of the reload.
    #[schemars(with = "u64")]
    pub step: Step,
    /// How many parts there are.
    #[schemars(range(min = 1))]
    pub parts: u32,
    /// The connector's full name.
    pub connector: String,
    /// The table's id; null where there is no table yet.
    pub table: Option<String>,
    /// The generation that the rows are written for.
    #[schemars(with = "u64", range(min = 1))]
    pub generation: Generation,
    /// How the rows stand in the table.
    #[schemars(with = "String", regex(pattern = "^(changelog|current)$"))]
    pub layout: Layout,
    /// The key's columns.
    pub key: Vec<String>,
    /// The table's columns after the reload, as the JSON of Delta's `schemaString`; where they are mapped, with their names in files.
    pub columns: String,
    /// The columns by which the rows are partitioned.
    pub partition_by: Vec<String>,
    /// Whether data files hold the partition columns too.
    pub holds_partition_columns: bool,
    /// The columns that have statistics because the table is clustered by them, by their names in files.
    pub clustered_by: Vec<String>,
}

impl Frame {
    /// The first thing that `other` has otherwise, in words; `None` where both are the same.
    pub fn difference(&self, other: &Self) -> Result<Option<String>> {
        let (own, others) = (members(self)?, members(other)?);
        let differs = own.iter().zip(&others).find(|(a, b)| a != b);
        Ok(differs.map(|((key, own), (_, other))| match key.as_str() {
            // Both are long.
            "columns" => "columns are others, or have other names in files".to_string(),
            _ => format!("{key} is {own}, not {other}"),
        }))
    }

    /// The view `name` whose rows these are.
    pub fn view(&self, name: &str) -> Result<View> {
        View::new(name, &view_columns(&*schema_of(&self.columns)?), self.key.clone())
    }
}

fn members(frame: &Frame) -> Result<Map<String, Value>> {
    match serde_json::to_value(frame) {
        Ok(Value::Object(members)) => Ok(members),
        other => Err(Error::internal(format!("what parts have in common is no object but {other:?}"))),
    }
}

/// A part of a snapshot, written: its data files, which no version names yet, and what the reload's commit says of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The form of this document: `cutover.staged/1`.
    #[schemars(regex(pattern = "^cutover\\.staged/1$"))]
    pub schema: String,
    /// What all parts of the snapshot have in common.
    pub snapshot: Frame,
    /// Which part this is, from 1.
    #[schemars(range(min = 1))]
    pub part: u32,
    /// The id of this writing of the part: a worker that does it again draws another.
    pub attempt: String,
    /// The rows of all files.
    pub rows: u64,
    /// The digest of all rows.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{32}$"))]
    pub digest: Digest,
    /// The files; none where the part has no rows.
    pub files: Vec<DataFile>,
}

#[derive(Deserialize)]
struct Formed {
    schema: String,
}

impl Manifest {
    pub(super) fn new(snapshot: Frame, part: u32, attempt: String, written: Written) -> Self {
        let Written { files, rows, digest, .. } = written;
        Self { schema: FORM.into(), snapshot, part, attempt, rows, digest, files }
    }

    /// The manifest as JSON, on one line.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal("a manifest was not written as JSON").with_source(e))
    }

    /// Reads a manifest; `name` says in messages where it is.
    ///
    /// Incompatible: it is of another form. Corrupt: it is none, or contradicts itself.
    pub fn from_json(name: &str, json: &[u8]) -> Result<Self> {
        let damaged =
            |e| Error::corrupt(format!("{name} is no manifest of a staged part; stage it again")).with_source(e);
        let Formed { schema } = serde_json::from_slice(json).map_err(damaged)?;
        if schema != FORM {
            return Err(Error::incompatible(format!(
                "{name} has the form {schema:?}, and this program reads {FORM}; stage and reload with the same version"
            )));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(damaged)?;
        match manifest.contradiction() {
            None => Ok(manifest),
            Some(why) => Err(Error::corrupt(format!("{name} contradicts itself: {why}; stage the part again"))),
        }
    }

    fn contradiction(&self) -> Option<&'static str> {
        if PartOf::new(self.part, self.snapshot.parts).is_err() {
            return Some("there is no such part");
        }
        if serde_json::from_str::<serde_json::Value>(&self.snapshot.columns).is_err() {
            return Some("its columns are no schema");
        }
        if self.files.iter().try_fold(0u64, |sum, file| sum.checked_add(file.rows)) != Some(self.rows) {
            return Some("the files do not have the rows of the part");
        }
        if self.files.iter().fold(Digest::EMPTY, |sum, file| sum.plus(file.digest)) != self.digest {
            return Some("the files do not have the digest of the part");
        }
        let is_ours = |path: &str| path.starts_with(FILE_PREFIX) && path.ends_with(".parquet") && !path.contains('/');
        if !self.files.iter().all(|file| is_ours(&file.path)) {
            return Some("a file has a name that no part gives");
        }
        let mut paths = HashSet::new();
        (!self.files.iter().all(|file| paths.insert(&file.path))).then_some("it names a file twice")
    }

    pub(super) fn written(&self) -> Written {
        let bytes = self.files.iter().map(|file| file.size).sum();
        Written { files: self.files.clone(), rows: self.rows, bytes, digest: self.digest }
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { id, step, parts, .. } = &self.snapshot;
        write!(f, "part {} of {parts} of the snapshot {id} at step {step}", self.part)
    }
}
