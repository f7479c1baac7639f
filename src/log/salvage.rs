//! All that can still be read of a log that does not load.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use object_store::path::Path;
use serde::Deserialize;
use serde_json::{Value, json};

use super::entry::{FileStats, Metadata, Protocol, TxnAction};
use super::names::LogName;
use super::relics::{self, FilesSay};
use super::upkeep::ROW_TRACKING_DOMAIN;
use super::{LAST_CHECKPOINT, LOG_DIR, LiveFile, Log, SIDECARS, features};
use crate::continuity::commit::FileId;
use crate::continuity::stamp::{
    COMMIT_PREFIX_REBUILD, CONTRACT, CommitStamp, Kind, TXN_EPOCH, TXN_STEP, TableStamp, USER_METADATA,
};
use crate::error::{Error, ErrorKind, Result};

/// The highest version that a version after it can follow.
const HIGHEST: u64 = i64::MAX as u64 - 1;
/// How many files of the log are held at once.
const AT_ONCE: usize = 16;
/// A schema without columns.
const NO_COLUMNS: &str = r#"{"type":"struct","fields":[]}"#;

/// Actions of others that outlive the log in which they stand.
#[derive(Debug, Clone, Default)]
pub(super) struct Carried {
    /// The `txn` of other applications.
    pub(super) txns: Vec<Value>,
    /// The domains, by name.
    pub(super) domains: BTreeMap<String, Value>,
}

/// Which of two statements is newer: the version, and whether an entry makes it.
type Rank = (u64, bool);

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// The log's files as they were listed.
    pub(super) ruins: Vec<(String, u64)>,
    /// The highest version that any name speaks of.
    pub(super) highest: Option<u64>,
    /// What data files say.
    pub(super) files_say: FilesSay,
    /// Every file that was ever named.
    pub(super) files: HashMap<FileId, LiveFile>,
    /// The newest stamp.
    pub(super) last: Option<(Rank, CommitStamp)>,
    /// When it was put, in milliseconds since 1970 UTC.
    pub(super) last_millis: Option<i64>,
    /// The highest generation, and the highest step in it.
    pub(super) newest: Option<(u64, u64)>,
    /// The highest epoch.
    pub(super) epoch: Option<u64>,
    /// The highest in-commit timestamp.
    pub(super) time: Option<i64>,
    /// The highest row id, from files and their rows.
    pub(super) row_id: Option<i64>,
    /// The version of a rebuild of ours at the top.
    pub(super) rebuilt_at: Option<u64>,
    metadata: Option<(bool, Rank, Value)>,
    protocol: Option<(Rank, Protocol)>,
    txns: BTreeMap<String, (Rank, Value)>,
    domains: BTreeMap<String, (Rank, Value)>,
    contract: Option<String>,
}

impl Log {
    /// Reads whatever there is: entries line by line, checkpoints part by part, checksums, data files' footers.
    ///
    /// Unavailable: the storage cannot be read. Incompatible: it is of another contract.
    pub(super) async fn salvage(&self) -> Result<Salvage> {
        let mut salvage = Salvage { ruins: self.log_files().await?, ..Salvage::default() };
        let sidecars = format!("{LOG_DIR}/{SIDECARS}/");
        let mut wanted = Vec::new();
        for (path, _) in &salvage.ruins {
            let name = path.rsplit('/').next().unwrap_or_default();
            let known = LogName::parse(name).filter(|_| path.matches('/').count() == 1);
            let is_sidecar = path.starts_with(&sidecars) && path.ends_with(".parquet");
            if let Some(known) = &known {
                salvage.highest = salvage.highest.max(Some(known.version()).filter(|v| *v < HIGHEST));
            }
            if known.is_some() || is_sidecar || name == LAST_CHECKPOINT {
                wanted.push(Path::from(path.as_str()));
            }
        }
        // In pieces, so that a long log is not held whole.
        for part in wanted.chunks(AT_ONCE) {
            for (path, bytes) in self.relics(part.to_vec()).await? {
                salvage = tokio::task::spawn_blocking(move || {
                    salvage.take_file(&path, &bytes);
                    salvage
                })
                .await
                .map_err(|e| Error::internal("reading the log's files panicked").with_source(e))?;
            }
        }
        if let Some(number) = &salvage.contract {
            return Err(Error::incompatible(format!(
                "the table has the contract number {number:?}, known is {CONTRACT}; use the version of this program that wrote it"
            )));
        }
        salvage.files_say = self.files_say().await?;
        salvage.newest = salvage.newest.max(salvage.files_say.newest);
        Ok(salvage)
    }
}

impl Salvage {
    /// The table's metadata, and whether its id was read; one without columns where the schema was not.
    pub(super) fn metadata(&self) -> Option<(Metadata, bool)> {
        let (_, _, told) = self.metadata.as_ref()?;
        let text = |key: &str| told.get(key).and_then(Value::as_str).map(str::to_string);
        let is_schema = |text: &String| serde_json::from_str::<Value>(text).is_ok_and(|v| v.get("fields").is_some());
        let list = told.get("partitionColumns").and_then(Value::as_array).into_iter().flatten();
        let configuration = told.get("configuration").and_then(Value::as_object).into_iter().flatten();
        let protocol = self.protocol();
        // A property of a feature that no protocol is known to have would lead readers astray.
        let is_kept = |key: &str| protocol.is_some() || !features::is_switch(key);
        let metadata = Metadata {
            id: text("id").unwrap_or_default(),
            name: text("name"),
            description: text("description"),
            format: told.get("format").filter(|f| f.is_object()).cloned().unwrap_or_else(plain_format),
            schema_string: text("schemaString").filter(is_schema).unwrap_or_else(|| NO_COLUMNS.to_string()),
            partition_columns: list.filter_map(Value::as_str).map(str::to_string).collect(),
            created_time: told.get("createdTime").and_then(Value::as_i64),
            configuration: configuration
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string())))
                .filter(|(key, _)| is_kept(key))
                .collect(),
        };
        let has_id = !metadata.id.is_empty();
        Some((metadata, has_id))
    }

    /// The newest protocol.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol.as_ref().map(|(_, protocol)| protocol.clone())
    }

    /// What others said that the next commit must repeat.
    pub(super) fn carried(&self) -> Carried {
        let of_others = |app: &&String| *app != TXN_STEP && *app != TXN_EPOCH;
        let is_there = |domain: &Value| domain.get("removed").and_then(Value::as_bool) != Some(true);
        let domains = self.domains.iter().filter(|(_, (_, domain))| is_there(domain));
        Carried {
            txns: self.txns.iter().filter(|(app, _)| of_others(app)).map(|(_, (_, txn))| txn.clone()).collect(),
            domains: domains.map(|(name, (_, domain))| (name.clone(), domain.clone())).collect(),
        }
    }

    /// The configuration of the row tracking domain, with the highest row id that anything tells.
    pub(super) fn row_tracking(&self) -> Option<String> {
        let told = self.domains.get(ROW_TRACKING_DOMAIN).and_then(|(_, domain)| domain.get("configuration")?.as_str());
        let told = told.and_then(|text| serde_json::from_str::<Value>(text).ok()?.get("rowIdHighWaterMark")?.as_i64());
        told.max(self.row_id).map(|last| json!({ "rowIdHighWaterMark": last }).to_string())
    }

    /// Whether anything of ours was read.
    pub(super) fn is_ours(&self) -> bool {
        self.last.is_some() || self.newest.is_some() || self.epoch.is_some()
    }

    fn take_file(&mut self, path: &Path, bytes: &Bytes) {
        let name = path.filename().unwrap_or_default();
        if name == LAST_CHECKPOINT {
            let hint: Option<Value> = serde_json::from_slice(bytes).ok();
            let version = hint.and_then(|hint| hint.get("version")?.as_u64());
            self.highest = self.highest.max(version.filter(|v| *v < HIGHEST));
            return;
        }
        match LogName::parse(name) {
            Some(LogName::Entry(version)) => self.take_lines((version, true), bytes),
            Some(LogName::Checksum(version)) => self.take_checksum((version, false), bytes),
            Some(LogName::Compacted(version)) => self.take_lines((version, false), bytes),
            Some(LogName::Checkpoint(version, _)) if name.ends_with(".json") => {
                self.take_lines((version, false), bytes)
            }
            Some(LogName::Checkpoint(version, _)) => self.take_lines((version, false), &relics::actions(bytes)),
            None => self.take_lines((0, false), &relics::actions(bytes)),
        }
    }

    /// Takes the lines that are whole; of one that is torn the table's id, where it stands before the end.
    fn take_lines(&mut self, rank: Rank, bytes: &[u8]) {
        let mut said = Said::default();
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let Ok(actions) = serde_json::from_slice::<serde_json::Map<String, Value>>(line) else {
                if let Some(id) = torn_id(line) {
                    self.take_metadata(rank, &json!({ "id": id }));
                }
                continue;
            };
            for (name, value) in &actions {
                self.take(rank, name, value, &mut said);
            }
        }
        self.conclude(rank, &said);
    }

    fn take_checksum(&mut self, rank: Rank, bytes: &[u8]) {
        let Ok(checksum) = serde_json::from_slice::<Value>(bytes) else { return };
        let mut said = Said::default();
        let each = |key: &str| checksum.get(key).and_then(Value::as_array).into_iter().flatten();
        for (key, action) in [("metadata", "metaData"), ("protocol", "protocol")] {
            if let Some(value) = checksum.get(key) {
                self.take(rank, action, value, &mut said);
            }
        }
        for (key, action) in [("setTransactions", "txn"), ("domainMetadata", "domainMetadata"), ("allFiles", "add")] {
            each(key).for_each(|value| self.take(rank, action, value, &mut said));
        }
        self.conclude(rank, &said);
    }

    fn take(&mut self, rank: Rank, name: &str, value: &Value, said: &mut Said) {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match name {
            "commitInfo" => {
                self.time = self.time.max(value.get("inCommitTimestamp").and_then(Value::as_i64));
                match text(USER_METADATA).map(CommitStamp::decode) {
                    Some(Ok(Some(stamp))) => {
                        said.stamp = Some((stamp, value.get("timestamp").and_then(Value::as_i64)));
                    }
                    Some(Err(e)) if e.kind() == ErrorKind::Incompatible => {
                        self.contract = Some(e.message().to_string())
                    }
                    _ => {}
                }
            }
            "metaData" => {
                self.take_metadata(rank, value);
                said.has_metadata = true;
                let properties = value.get("configuration").and_then(Value::as_object).into_iter().flatten();
                let properties: BTreeMap<String, String> =
                    properties.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string()))).collect();
                if let Some(number) = TableStamp::foreign_contract(&properties) {
                    self.contract = Some(number.to_string());
                }
                said.generation =
                    TableStamp::decode(&properties).ok().flatten().map(|s| (s.generation.get(), s.step.get()));
            }
            "protocol" => {
                said.has_protocol = true;
                if let Ok(protocol) = serde_json::from_value::<Protocol>(value.clone())
                    && self.protocol.as_ref().is_none_or(|(before, _)| *before <= rank)
                {
                    self.protocol = Some((rank, protocol));
                }
            }
            "txn" => {
                let Ok(txn) = serde_json::from_value::<TxnAction>(value.clone()) else { return };
                match txn.app_id.as_str() {
                    TXN_STEP => said.step = u64::try_from(txn.version).ok(),
                    TXN_EPOCH => self.epoch = self.epoch.max(u64::try_from(txn.version).ok()),
                    _ => {}
                }
                let before = self.txns.get(&txn.app_id);
                if before.is_none_or(|(before, _)| *before <= rank)
                    && let Ok(value) = serde_json::to_value(&txn)
                {
                    self.txns.insert(txn.app_id, (rank, value));
                }
            }
            "domainMetadata" => {
                let Some(domain) = text("domain") else { return };
                if self.domains.get(domain).is_none_or(|(before, _)| *before <= rank) {
                    let told = json!({
                        "domain": domain,
                        "configuration": text("configuration").unwrap_or_default(),
                        "removed": value.get("removed").and_then(Value::as_bool).unwrap_or(false),
                    });
                    self.domains.insert(domain.to_string(), (rank, told));
                }
            }
            "add" | "remove" => self.take_named(value),
            _ => {}
        }
    }

    fn take_metadata(&mut self, rank: Rank, value: &Value) {
        let has_id = value.get("id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
        let is_whole = has_id && serde_json::from_value::<Metadata>(value.clone()).is_ok();
        let better = |(whole, before, _): &(bool, Rank, Value)| (*whole, *before) <= (is_whole, rank);
        if has_id && self.metadata.as_ref().is_none_or(better) {
            self.metadata = Some((is_whole, rank, value.clone()));
        }
    }

    fn take_named(&mut self, value: &Value) {
        let Ok(named) = serde_json::from_value::<Named>(value.clone()) else { return };
        let stats = named.stats.as_deref().map(FileStats::read).unwrap_or_default();
        if let Some(first) = named.base_row_id {
            let rows = stats.records.and_then(|rows| i64::try_from(rows).ok()).unwrap_or(0);
            self.row_id = self.row_id.max(Some(first.saturating_add(rows.max(1)) - 1));
        }
        let file = LiveFile {
            path: named.path,
            vector: named.deletion_vector.filter(|v| v.get("storageType").is_some_and(Value::is_string)),
            partition_values: named.partition_values.unwrap_or_default(),
            size: named.size.unwrap_or(0),
            modified_millis: 0,
            rows: stats.records,
            steps: stats.steps,
            base_row_id: named.base_row_id,
            default_row_commit_version: named.default_row_commit_version,
            // A file that is removed needs none.
            digest: None,
        };
        let known = self.files.entry(file.id()).or_insert_with(|| file.clone());
        // A remove may say less of a file than its add.
        if known.size == 0 {
            *known = file;
        }
    }

    /// What a file as a whole says of where the table stands.
    fn conclude(&mut self, rank: Rank, said: &Said) {
        if let Some((stamp, millis)) = &said.stamp {
            self.newest = self.newest.max(Some((stamp.generation.get(), stamp.to.get())));
            self.epoch = self.epoch.max(Some(stamp.epoch.get()));
            if self.last.as_ref().is_none_or(|(before, _)| *before <= rank) {
                self.last = Some((rank, stamp.clone()));
                self.last_millis = *millis;
            }
            let is_rebuild = stamp.kind == Kind::Reload && stamp.commit.starts_with(COMMIT_PREFIX_REBUILD);
            if is_rebuild && said.has_metadata && said.has_protocol && rank.1 && self.highest == Some(rank.0) {
                self.rebuilt_at = Some(rank.0);
            }
        }
        if let Some((generation, step)) = said.generation {
            let reached = said.step.unwrap_or(step).max(step);
            self.newest = self.newest.max(Some((generation, reached)));
        } else if let (Some(step), None) = (said.step, &said.stamp) {
            self.newest = self.newest.max(Some((0, step)));
        }
    }
}

/// What one file of the log says beside the files and domains that it names.
#[derive(Debug, Default)]
struct Said {
    stamp: Option<(CommitStamp, Option<i64>)>,
    generation: Option<(u64, u64)>,
    step: Option<u64>,
    has_metadata: bool,
    has_protocol: bool,
}

/// What `add` and `remove` say that a remove repeats.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Named {
    path: String,
    size: Option<i64>,
    partition_values: Option<BTreeMap<String, Option<String>>>,
    deletion_vector: Option<Value>,
    stats: Option<String>,
    base_row_id: Option<i64>,
    default_row_commit_version: Option<i64>,
}

fn plain_format() -> Value {
    json!({ "provider": "parquet", "options": {} })
}

/// The table's id in a line that is torn behind it.
fn torn_id(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    let rest = text.strip_prefix("{\"metaData\":{\"id\":\"")?;
    let (id, _) = rest.split_once('"')?;
    (!id.is_empty() && !id.contains('\u{fffd}')).then(|| id.to_string())
}
