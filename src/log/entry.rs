//! One log entry: our actions as JSON lines, and anybody's lines as a [`Commit`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{features, mapping};
use crate::continuity::commit::{Added, Author, Commit, FileId, Removed, Shown, Table};
use crate::continuity::stamp::{COLUMN_STEP, CommitStamp, Kind, Layout, USER_METADATA};
use crate::error::{Error, Result};

/// The `metaData` action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The table's id; a reload keeps it.
    pub id: String,
    /// The table's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The table's description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How data files are encoded.
    pub format: Value,
    /// The schema's JSON.
    pub schema_string: String,
    /// The partition columns.
    pub partition_columns: Vec<String>,
    /// When the table was created, in milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
    /// The table's properties.
    #[serde(default)]
    pub configuration: BTreeMap<String, String>,
}

impl Metadata {
    /// How long removed files stay where the table does not say: a week.
    pub const FILE_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    /// How long log entries stay where the table does not say: thirty days.
    pub const LOG_RETENTION: Duration = Duration::from_secs(30 * 24 * 60 * 60);

    /// How long others leave files alone that no version names, by `delta.deletedFileRetentionDuration`.
    pub fn file_retention(&self) -> Duration {
        self.told_file_retention().unwrap_or(Self::FILE_RETENTION)
    }

    /// The same, for who deletes files; `None` where the table says something that is not understood.
    pub(super) fn told_file_retention(&self) -> Option<Duration> {
        self.told("delta.deletedFileRetentionDuration", Self::FILE_RETENTION)
    }

    /// How long log entries stay, by `delta.logRetentionDuration`; `None` where that is not understood.
    pub(super) fn told_log_retention(&self) -> Option<Duration> {
        self.told("delta.logRetentionDuration", Self::LOG_RETENTION)
    }

    fn told(&self, property: &str, otherwise: Duration) -> Option<Duration> {
        self.configuration.get(property).map_or(Some(otherwise), |text| interval(text))
    }

    /// What continuity needs of it.
    pub fn table(&self) -> Table {
        Table {
            id: self.id.clone(),
            schema: mapping::comparable(&self.schema_string),
            partition_by: self.partition_columns.clone(),
            properties: self.configuration.clone(),
            switches: features::switches(&self.configuration),
        }
    }
}

/// An interval such as `interval 2 days` or `interval 1 day 12 hours`.
fn interval(text: &str) -> Option<Duration> {
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.eq_ignore_ascii_case("interval")).collect();
    let parts = words.chunks(2).map(|part| {
        let [number, unit] = part else { return None };
        let (number, unit) = (number.parse::<u64>().ok()?, unit.to_lowercase());
        let seconds = match unit.trim_end_matches('s') {
            "week" => 7 * 24 * 60 * 60,
            "day" => 24 * 60 * 60,
            "hour" => 60 * 60,
            "minute" => 60,
            "second" => 1,
            "millisecond" => return Some(Duration::from_millis(number)),
            "microsecond" => return Some(Duration::from_micros(number)),
            _ => return None,
        };
        Some(Duration::from_secs(number.checked_mul(seconds)?))
    });
    let parts = parts.collect::<Option<Vec<Duration>>>().filter(|parts| !parts.is_empty())?;
    parts.into_iter().try_fold(Duration::ZERO, Duration::checked_add)
}

/// The `protocol` action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// The version that a reader must know.
    pub min_reader_version: i32,
    /// The version that a writer must know.
    pub min_writer_version: i32,
    /// The features that a reader must know, from reader version 3 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    /// The features that a writer must know, from writer version 7 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

/// The `add` action of a data file of ours.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddAction {
    /// The path relative to the table's root.
    pub path: String,
    /// Partition values by column.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// The size in bytes.
    pub size: u64,
    /// When the file was written, in milliseconds since 1970 UTC.
    pub modification_time: i64,
    /// Whether rows change.
    pub data_change: bool,
    /// The statistics' JSON.
    pub stats: String,
    /// Notes on the file, by key.
    pub tags: BTreeMap<String, String>,
    /// The descriptor of the vector that deletes some of its rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<Value>,
    /// What the table's row tracking says of a file that was live before, with another vector; `None` for a new file.
    #[serde(skip)]
    pub again: Option<RowIds>,
}

/// What row tracking says of a file's rows; nothing in tables without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowIds {
    /// The id of the first row.
    pub base: Option<i64>,
    /// The version that the rows are taken to come from.
    pub commit_version: Option<i64>,
}

/// An `add` action as it is put: with what the table's features ask of it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PutAdd<'a> {
    #[serde(flatten)]
    pub(super) add: &'a AddAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base_row_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_row_commit_version: Option<i64>,
}

/// The `remove` action of a live file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveAction {
    pub(super) path: String,
    pub(super) deletion_timestamp: i64,
    pub(super) data_change: bool,
    pub(super) extended_file_metadata: bool,
    pub(super) partition_values: BTreeMap<String, Option<String>>,
    pub(super) size: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deletion_vector: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) base_row_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_row_commit_version: Option<i64>,
}

/// Lines of a log entry, in order.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    pub(super) fn push(&mut self, name: &str, action: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.0, &BTreeMap::from([(name, action)]))
            .map_err(|e| Error::internal(format!("the action {name} was not encoded")).with_source(e))?;
        self.0.push(b'\n');
        Ok(())
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The commit info of one of our commits.
pub(super) fn commit_info(
    stamp: &CommitStamp,
    partition_by: &[String],
    adds: &[AddAction],
    removed: usize,
    layout: Layout,
    millis: i64,
) -> Result<serde_json::Map<String, Value>> {
    let new = || adds.iter().filter(|add| add.again.is_none());
    let again = adds.len() - new().count();
    let reload = stamp.kind == Kind::Reload;
    let mut metrics = serde_json::Map::new();
    for (key, value) in [
        ("numFiles", new().count() as u64),
        ("numOutputRows", layout.output_rows(stamp.kind, stamp.rows)),
        ("numOutputBytes", new().map(|add| add.size).sum()),
    ] {
        metrics.insert(key.into(), value.to_string().into());
    }
    if reload || removed > 0 {
        metrics.insert("numRemovedFiles".into(), (removed - again.min(removed)).to_string().into());
    }
    if again > 0 {
        metrics.insert("numDeletionVectorsUpdated".into(), again.to_string().into());
    }
    let info = json!({
        "timestamp": millis,
        "operation": "WRITE",
        "operationParameters": {
            "mode": if reload { "Overwrite" } else { "Append" },
            "partitionBy": Value::from(partition_by).to_string(),
        },
        "operationMetrics": metrics,
        "isBlindAppend": !reload && removed == 0,
        "engineInfo": concat!("cutover/", env!("CARGO_PKG_VERSION")),
        USER_METADATA: stamp.encode()?,
    });
    Ok(info.as_object().cloned().unwrap_or_default())
}

/// The in-commit timestamp of an entry, in milliseconds since 1970 UTC.
pub(super) fn in_commit_timestamp(bytes: &[u8]) -> Option<i64> {
    let lines = bytes.split(|b| *b == b'\n');
    let infos = lines.filter_map(|line| serde_json::from_slice::<BTreeMap<String, &RawValue>>(line).ok());
    let info = infos.filter_map(|mut action| action.remove("commitInfo")).next()?;
    serde_json::from_str::<Value>(info.get()).ok()?.get("inCommitTimestamp")?.as_i64()
}

/// Reads the log entry `version`. Tolerant of what others write; an entry that is empty or not whole is corrupt.
pub fn parse(version: u64, bytes: &[u8]) -> Result<Commit> {
    let mut commit = Commit {
        version,
        millis: None,
        author: Author::Foreign(None),
        adds: Vec::new(),
        removes: Vec::new(),
        txns: Vec::new(),
        dated_txns: Vec::new(),
        table: None,
        refused_features: Vec::new(),
        unknown_actions: Vec::new(),
        repeated_actions: Vec::new(),
    };
    let mut single: Vec<String> = Vec::new();
    let mut actions = 0usize;
    for line in bytes.split(|b| *b == b'\n').filter(|l| !l.trim_ascii().is_empty()) {
        let torn = |e: serde_json::Error| {
            Error::corrupt(format!("the log entry of version {version} is torn or damaged")).with_source(e)
        };
        let Line(found) = serde_json::from_slice(line).map_err(torn)?;
        if found.len() > 1 {
            // Readers differ on which of them counts.
            let (line, many) = (actions + 1, found.len());
            return Err(Error::corrupt(format!(
                "the log entry of version {version} is damaged: line {line} has {many} actions, not one"
            )));
        }
        for (name, value) in found {
            take_action(&mut commit, &name, value.get(), actions == 0).map_err(torn)?;
            if matches!(name.as_str(), "commitInfo" | "metaData" | "protocol") {
                if single.contains(&name) {
                    commit.repeated_actions.push(name);
                } else {
                    single.push(name);
                }
            }
        }
        actions += 1;
    }
    if actions == 0 {
        return Err(Error::corrupt(format!("the log entry of version {version} is empty")));
    }
    Ok(commit)
}

/// The actions of one line, in order; a map would hide one that stands twice.
struct Line<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Line<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Actions;
        impl<'de> serde::de::Visitor<'de> for Actions {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an action")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut found = Vec::with_capacity(1);
                while let Some(action) = map.next_entry()? {
                    found.push(action);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Actions).map(Self)
    }
}

fn take_action(
    commit: &mut Commit,
    name: &str,
    value: &str,
    first: bool,
) -> std::result::Result<(), serde_json::Error> {
    match name {
        "commitInfo" => {
            let info: Value = serde_json::from_str(value)?;
            commit.millis = info.get("timestamp").and_then(Value::as_i64);
            commit.author = author(&info, first);
        }
        "add" => {
            let add: FileAction = serde_json::from_str(value)?;
            let records = add.stats.as_deref().and_then(|stats| FileStats::read(stats).records);
            let deleted =
                add.deletion_vector.as_ref().and_then(|v| v.get("cardinality")).and_then(Value::as_u64).unwrap_or(0);
            commit.adds.push(Added {
                file: add.file(),
                size: add.size.unwrap_or(0),
                rows: records.map(|n| n.saturating_sub(deleted)),
                data_change: add.data_change,
                partition_values: add.partition_values.map_or(0, |values| values.len()),
            });
        }
        "remove" => {
            let remove: FileAction = serde_json::from_str(value)?;
            commit.removes.push(Removed { file: remove.file(), data_change: remove.data_change });
        }
        "txn" => {
            let txn: TxnAction = serde_json::from_str(value)?;
            if txn.last_updated.is_some() {
                commit.dated_txns.push(txn.app_id.clone());
            }
            commit.txns.push((txn.app_id, txn.version));
        }
        "metaData" => {
            let metadata: Metadata = serde_json::from_str(value)?;
            commit.table = Some(metadata.table());
        }
        "protocol" => {
            let protocol: Protocol = serde_json::from_str(value)?;
            commit.refused_features = features::refused(&protocol);
        }
        "cdc" | "domainMetadata" | "checkpointMetadata" | "sidecar" => {}
        other => commit.unknown_actions.push(other.to_string()),
    }
    Ok(())
}

fn author(info: &Value, first: bool) -> Author {
    let operation = info.get("operation").and_then(Value::as_str).map(str::to_string);
    let Some(text) = info.get(USER_METADATA).and_then(Value::as_str) else { return Author::Foreign(operation) };
    match CommitStamp::decode(text) {
        Ok(None) => Author::Foreign(operation),
        Ok(Some(stamp)) => {
            let metrics = info.get("operationMetrics");
            let number = |n: &Value| n.as_str().map_or_else(|| n.as_u64(), |s| s.parse().ok());
            let metric = |name: &str| metrics.and_then(|m| m.get(name)).and_then(number);
            let shown = Shown {
                first,
                blind_append: info.get("isBlindAppend").and_then(Value::as_bool),
                rows: metric("numOutputRows"),
                files: metric("numFiles"),
                bytes: metric("numOutputBytes"),
                removed: metric("numRemovedFiles"),
            };
            Author::Ours { stamp: Box::new(stamp), shown }
        }
        Err(e) => Author::Damaged(e.message().to_string()),
    }
}

/// What is used of a file's statistics.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FileStats {
    /// `numRecords`.
    pub(super) records: Option<u64>,
    /// Bounds of the rows' steps.
    pub(super) steps: Option<(i64, i64)>,
}

impl FileStats {
    /// The statistics in this JSON; nothing where it is not understood.
    pub(super) fn read(stats: &str) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Stats {
            num_records: Option<u64>,
            min_values: Option<StepBound>,
            max_values: Option<StepBound>,
        }
        let Ok(stats) = serde_json::from_str::<Stats>(stats) else { return Self::default() };
        let bound = |values: Option<StepBound>| values.and_then(|bound| bound.0);
        let steps = bound(stats.min_values).zip(bound(stats.max_values));
        Self { records: stats.num_records, steps }
    }
}

/// The step among the bounds of a file's columns; the others are passed over.
struct StepBound(Option<i64>);

impl<'de> Deserialize<'de> for StepBound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Bounds;
        impl<'de> Visitor<'de> for Bounds {
            type Value = StepBound;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bounds by column")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<StepBound, A::Error> {
                let mut step = None;
                while let Some(column) = map.next_key::<Cow<'de, str>>()? {
                    if column == COLUMN_STEP {
                        step = map.next_value::<Value>()?.as_i64();
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(StepBound(step))
            }
        }
        deserializer.deserialize_map(Bounds)
    }
}

/// What `add` and `remove` share.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileAction {
    path: String,
    size: Option<u64>,
    #[serde(default = "changes_data")]
    data_change: bool,
    stats: Option<String>,
    deletion_vector: Option<Value>,
    partition_values: Option<BTreeMap<String, Option<String>>>,
}

/// What an action without the word says is not known to be harmless.
fn changes_data() -> bool {
    true
}

impl FileAction {
    fn file(&self) -> FileId {
        FileId { path: self.path.clone(), vector: self.deletion_vector.as_ref().and_then(vector_id) }
    }
}

/// The unique id of a deletion vector's descriptor.
pub(super) fn vector_id(descriptor: &Value) -> Option<String> {
    let storage = descriptor.get("storageType")?.as_str()?;
    let place = descriptor.get("pathOrInlineDv")?.as_str()?;
    let offset = descriptor.get("offset").and_then(Value::as_i64).map(|o| format!("@{o}")).unwrap_or_default();
    Some(format!("{storage}{place}{offset}"))
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TxnAction {
    pub(super) app_id: String,
    pub(super) version: i64,
    /// Others let a `txn` expire by it; ours have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last_updated: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_tell_the_steps_where_they_hold_both_bounds() {
        let cases = [
            (
                r#"{"numRecords":3,"minValues":{"a":{"__step":9},"__step":4},"maxValues":{"__step":7}}"#,
                Some(3),
                Some((4, 7)),
            ),
            (r#"{"numRecords":3,"minValues":{"__step":4},"maxValues":{"\u005f_step":7}}"#, Some(3), Some((4, 7))),
            (r#"{"numRecords":3,"minValues":{"__step":4},"maxValues":{}}"#, Some(3), None),
            (r#"{"numRecords":3,"minValues":{"__step":"4"},"maxValues":{"__step":"7"}}"#, Some(3), None),
            (r#"{"numRecords":3}"#, Some(3), None),
            ("damaged", None, None),
        ];
        for (text, records, steps) in cases {
            let stats = FileStats::read(text);
            assert_eq!((stats.records, stats.steps), (records, steps), "{text}");
        }
    }

    #[test]
    fn intervals_are_read_in_the_units_that_people_write() {
        for (text, hours) in [
            ("interval 2 days", Some(48)),
            ("INTERVAL 1 week", Some(168)),
            ("7 hours", Some(7)),
            ("interval 1 day 12 hours", Some(36)),
            ("interval 1 day and", None),
            ("interval", None),
            ("soon", None),
        ] {
            assert_eq!(interval(text), hours.map(|h| Duration::from_secs(h * 3600)), "{text}");
        }
    }
}
