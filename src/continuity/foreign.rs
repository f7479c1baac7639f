//! What others commit to a table of ours: maintenance, drift, or what cannot be told.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::continuity::commit::{Commit, FileId, Table};
use crate::continuity::history::Live;
use crate::continuity::stamp::{PROPERTY_PREFIX, TXN_EPOCH, TXN_RETENTION, TXN_STEP};

/// What kind of commit somebody else made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// No row changes and nothing of ours.
    Maintenance,
    /// The table is no longer what our commits made it; why.
    Drift(String),
    /// It cannot be told which of both; why.
    Unclear(String),
}

/// Judges `commit` by the metadata and the live files before it, where they are known.
///
/// An action that is not known here is left to the table's features: what a reader must understand has one.
pub(super) fn classify(commit: &Commit, table: Option<&Table>, live: Option<&HashMap<FileId, Live>>) -> Foreign {
    if let Some((app, version)) = commit.txns.iter().find(|(app, _)| *app == TXN_STEP || *app == TXN_EPOCH) {
        return Foreign::Drift(format!("a commit without our commit info sets txn {app} to {version}"));
    }
    if let Some(feature) = commit.refused_features.first() {
        return Foreign::Drift(format!(
            "a foreign commit demands the table feature {feature}, which is not known here"
        ));
    }
    if let Some(action) = commit.repeated_actions.first() {
        return Foreign::Unclear(format!("a foreign commit has the action {action} twice, and readers differ on it"));
    }
    match rows_kept(commit, live) {
        Foreign::Maintenance => {}
        other => return other,
    }
    let change = commit.table.as_ref().and_then(|new| changed(table, new));
    change.map_or(Foreign::Maintenance, Foreign::Drift)
}

/// Whether a commit that should change no row says so, stays inside the table, and keeps the number of rows.
pub(super) fn rows_kept(commit: &Commit, live: Option<&HashMap<FileId, Live>>) -> Foreign {
    let changed =
        commit.adds.iter().filter(|a| a.data_change).count() + commit.removes.iter().filter(|r| r.data_change).count();
    if changed > 0 {
        let (added, removed) = (commit.adds.len(), commit.removes.len());
        return Foreign::Drift(format!("the commit changes rows: it adds {added} files and removes {removed}"));
    }
    if let Some(outside) = commit.adds.iter().find(|a| !a.file.is_inside()) {
        return Foreign::Drift(format!("the commit adds the file {}, which lies outside the table", outside.file.path));
    }
    if commit.adds.is_empty() && commit.removes.is_empty() {
        return Foreign::Maintenance;
    }
    if let Some(live) = live
        && let Some(remove) = commit.removes.iter().find(|r| !live.contains_key(&r.file))
    {
        return Foreign::Drift(format!("the commit removes the file {}, which was not live", remove.file.path));
    }
    match (commit.added_rows(), replaced_rows(commit, live)) {
        (Some(after), Some(before)) if after != before => {
            Foreign::Drift(format!("the commit says that it changes no rows, but replaces {before} rows by {after}"))
        }
        (Some(_), Some(_)) => Foreign::Maintenance,
        _ => Foreign::Unclear("the commit replaces files, and how many rows they hold cannot be told".into()),
    }
}

/// The rows of the files that the commit takes the place of; a live file that is added again, with other statistics
/// or row ids, takes its own.
fn replaced_rows(commit: &Commit, live: Option<&HashMap<FileId, Live>>) -> Option<u64> {
    let live = live?;
    let again = commit.adds.iter().map(|a| &a.file).filter(|file| live.contains_key(file));
    let replaced: HashSet<&FileId> = commit.removes.iter().map(|r| &r.file).chain(again).collect();
    replaced.into_iter().try_fold(0u64, |sum, file| Some(sum.saturating_add(live.get(file)?.rows?)))
}

/// What of ours the metadata no longer says.
fn changed(old: Option<&Table>, new: &Table) -> Option<String> {
    if let Some(retention) = new.properties.get(TXN_RETENTION) {
        return Some(format!(
            "the property {TXN_RETENTION} was set to {retention:?}, which makes other engines forget our last step"
        ));
    }
    let old = old?;
    if let Some(switch) = new.switches.iter().find(|switch| !old.switches.contains(switch)) {
        return Some(format!("a foreign commit sets the property {switch}, which is not honoured here"));
    }
    Some(format!("a foreign commit changes {}", difference(old, new)?))
}

/// How two metadata of one table differ in what continuity needs.
pub fn difference(old: &Table, new: &Table) -> Option<String> {
    if old.id != new.id {
        return Some(format!("the table's id from {} to {}", old.id, new.id));
    }
    if let Some(difference) = differing_schema(&old.schema, &new.schema) {
        return Some(format!("the schema: {difference}"));
    }
    if old.partition_by != new.partition_by {
        return Some(format!("the partitioning from {:?} to {:?}", old.partition_by, new.partition_by));
    }
    let (before, after) = (ours(old), ours(new));
    let key = before.keys().chain(after.keys()).find(|key| before.get(*key) != after.get(*key))?;
    let shown = |properties: &BTreeMap<&str, &str>| properties.get(key).map_or("nothing".into(), |v| format!("{v:?}"));
    Some(format!("the property {key} from {} to {}", shown(&before), shown(&after)))
}

fn ours(table: &Table) -> BTreeMap<&str, &str> {
    let ours = table.properties.iter().filter(|(key, _)| key.starts_with(PROPERTY_PREFIX));
    ours.map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// How two schemas differ; what people wrote about columns is no difference.
fn differing_schema(old: &str, new: &str) -> Option<String> {
    if old == new {
        return None;
    }
    let (Some(old), Some(new)) = (without_comments(old), without_comments(new)) else {
        return Some("it is no JSON".into());
    };
    if old == new {
        return None;
    }
    let fields = |schema: &Value| schema.get("fields").and_then(Value::as_array).cloned().unwrap_or_default();
    let (old, new) = (fields(&old), fields(&new));
    let at = (0..old.len().max(new.len())).find(|at| old.get(*at) != new.get(*at))?;
    let shown = |fields: &[Value]| fields.get(at).map_or("nothing".to_string(), Value::to_string);
    Some(format!("column {} was {}, and is {}", at + 1, shown(&old), shown(&new)))
}

/// The schema's JSON without what people wrote about columns; `None` when it is no JSON.
fn without_comments(schema: &str) -> Option<Value> {
    let mut schema: Value = serde_json::from_str(schema).ok()?;
    strip_comments(&mut schema);
    Some(schema)
}

fn strip_comments(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(strip_comments),
        Value::Object(fields) => {
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("comment");
            }
            fields.values_mut().for_each(strip_comments);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
