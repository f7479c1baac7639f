//! The form of a commit of ours: what stands in it beside its place in the chain.

use serde_json::Value;

use crate::continuity::commit::{Author, Commit, Shown, Table};
use crate::continuity::finding::Rule;
use crate::continuity::stamp::{CommitStamp, Kind, TXN_EPOCH, TXN_STEP, TableStamp, row_columns};

/// A fault: the rule, the file that it is about, and what disagrees.
pub(super) type Fault = (Rule, Option<String>, String);

/// The faults in the form of a commit of ours; `table` is the metadata that holds for it, where known.
pub(super) fn faults(commit: &Commit, stamp: &CommitStamp, table: Option<&Table>) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Author::Ours { shown, .. } = &commit.author {
        told_to_others(commit, stamp, shown, &mut faults);
    }
    txns(commit, stamp, &mut faults);
    if let Some(action) = commit.repeated_actions.first() {
        faults.push((Rule::Chain, None, format!("the commit has the action {action} twice")));
    }
    files(commit, table, &mut faults);
    if stamp.kind == Kind::Reload
        && let Some(table) = &commit.table
    {
        faults.extend(schema(table).map(|why| (Rule::Reload, None, why)));
    }
    if let Some(properties) = table.and_then(|t| TableStamp::decode(&t.properties).ok().flatten()) {
        faults.extend(mode(stamp, &properties).map(|why| (Rule::Reload, None, why)));
    }
    faults
}

/// What other engines read of the commit must be what the stamp and the actions say.
fn told_to_others(commit: &Commit, stamp: &CommitStamp, shown: &Shown, faults: &mut Vec<Fault>) {
    if !shown.first {
        faults.push((Rule::Chain, None, "the commit info is not the first action".into()));
    }
    if stamp.kind == Kind::Maintenance {
        return;
    }
    let reload = stamp.kind == Kind::Reload;
    if shown.blind_append != Some(!reload) {
        let found = shown.blind_append.map_or("nothing".to_string(), |b| b.to_string());
        faults.push((Rule::Chain, None, format!("the commit info says isBlindAppend {found} of the {}", stamp.kind)));
    }
    let bytes = commit.adds.iter().map(|a| a.size).sum();
    let removed = reload.then_some(commit.removes.len() as u64);
    for (name, shown, expected) in [
        ("numOutputRows", shown.rows, Some(stamp.rows.total())),
        ("numFiles", shown.files, Some(commit.adds.len() as u64)),
        ("numOutputBytes", shown.bytes, Some(bytes)),
        ("numRemovedFiles", shown.removed, removed),
    ] {
        if shown != expected {
            let text = |n: Option<u64>| n.map_or("nothing".to_string(), |n| n.to_string());
            let (shown, expected) = (text(shown), text(expected));
            let message = format!("the operation metrics say {name} {shown}, the commit holds {expected}");
            faults.push((Rule::Files, None, message));
        }
    }
}

fn txns(commit: &Commit, stamp: &CommitStamp, faults: &mut Vec<Fault>) {
    for app in [TXN_STEP, TXN_EPOCH] {
        let rule = if app == TXN_STEP { Rule::Chain } else { Rule::Fence };
        let set: Vec<i64> = commit.txns.iter().filter(|(id, _)| id == app).map(|(_, version)| *version).collect();
        if set.len() > 1 {
            faults.push((rule, None, format!("txn {app} is set {} times, to {set:?}", set.len())));
        }
        if commit.dated_txns.iter().any(|id| id == app) {
            faults.push((rule, None, format!("txn {app} has lastUpdated, by which other engines forget it")));
        }
    }
    if commit.txn(TXN_EPOCH).is_some() && !matches!(stamp.kind, Kind::Reload | Kind::Mark) {
        faults.push((Rule::Fence, None, format!("the {} sets txn {TXN_EPOCH}, which only a claim does", stamp.kind)));
    }
}

fn files(commit: &Commit, table: Option<&Table>, faults: &mut Vec<Fault>) {
    for add in &commit.adds {
        let path = &add.file.path;
        if !add.file.is_inside() {
            faults.push((Rule::Files, Some(path.clone()), format!("the file {path} lies outside the table")));
        }
        if let Some(columns) = table.map(|t| t.partition_by.len()).filter(|n| *n != add.partition_values) {
            let values = add.partition_values;
            let message =
                format!("the file {path} has {values} partition values, the table is partitioned by {columns} columns");
            faults.push((Rule::Files, Some(path.clone()), message));
        }
    }
}

/// Whether the columns of continuity stand first, as a changelog has them.
fn schema(table: &Table) -> Option<String> {
    let schema: Value = serde_json::from_str(&table.schema).ok()?;
    let fields = schema.get("fields")?.as_array()?;
    let types = ["long", "long", "string"];
    row_columns().iter().zip(types).enumerate().find_map(|(at, (column, data_type))| {
        let field = fields.get(at);
        let text = |key: &str| field.and_then(|f| f.get(key)).and_then(Value::as_str);
        let is_it = text("name") == Some(column.name()) && text("type") == Some(data_type);
        let found = text("name").unwrap_or("nothing");
        (!is_it).then(|| format!("column {} of the table is {found}, not {} {data_type}", at + 1, column.name()))
    })
}

/// What a commit holds that the table's mode and key forbid.
fn mode(stamp: &CommitStamp, properties: &TableStamp) -> Option<String> {
    use crate::continuity::stamp::Mode;
    if properties.generation != stamp.generation {
        return None;
    }
    if properties.mode == Mode::Snapshot && stamp.kind == Kind::Append && stamp.rows.total() > 0 {
        return Some("the table properties say mode snapshot, and rows are appended".into());
    }
    (properties.key.is_empty() && stamp.rows.u > 0)
        .then(|| format!("the table properties say no key, the commit counts {} updates", stamp.rows.u))
}
