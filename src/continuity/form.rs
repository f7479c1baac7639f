//! The form of a commit of ours: what stands in it beside its place in the chain.

use std::collections::HashSet;

use serde_json::Value;

use crate::continuity::commit::{Author, Commit, Shown, Table};
use crate::continuity::finding::Rule;
use crate::continuity::stamp::{CommitStamp, Kind, Layout, TXN_EPOCH, TXN_STEP, TableStamp, row_columns};

/// A fault: the rule, the file that it is about, and what disagrees.
pub(super) type Fault = (Rule, Option<String>, String);

/// The faults in the form of a commit of ours; `table` is the metadata that holds for it, where known, `layout` the table's
/// where that does not tell.
pub(super) fn faults(commit: &Commit, stamp: &CommitStamp, table: Option<&Table>, layout: Layout) -> Vec<Fault> {
    let mut faults = Vec::new();
    let properties = table.and_then(|t| TableStamp::decode(&t.properties).ok().flatten());
    let layout = properties.as_ref().map_or(layout, |properties| properties.layout);
    if let Author::Ours { shown, .. } = &commit.author {
        told_to_others(commit, stamp, shown, layout, &mut faults);
    }
    txns(commit, stamp, &mut faults);
    if let Some(action) = commit.repeated_actions.first() {
        faults.push((Rule::Chain, None, format!("the commit has the action {action} twice")));
    }
    files(commit, table, &mut faults);
    if stamp.kind == Kind::Reload
        && let Some(table) = &commit.table
    {
        faults.extend(schema(table, layout).map(|why| (Rule::Reload, None, why)));
    }
    if let Some(properties) = properties {
        faults.extend(mode(stamp, &properties).map(|why| (Rule::Reload, None, why)));
    }
    faults
}

/// What other engines read of the commit must be what the stamp and the actions say.
fn told_to_others(commit: &Commit, stamp: &CommitStamp, shown: &Shown, layout: Layout, faults: &mut Vec<Fault>) {
    if !shown.first {
        faults.push((Rule::Chain, None, "the commit info is not the first action".into()));
    }
    if stamp.kind == Kind::Maintenance {
        return;
    }
    let reload = stamp.kind == Kind::Reload;
    if shown.blind_append != Some(!reload && commit.removes.is_empty()) {
        let found = shown.blind_append.map_or("nothing".to_string(), |b| b.to_string());
        faults.push((Rule::Chain, None, format!("the commit info says isBlindAppend {found} of the {}", stamp.kind)));
    }
    let removed: HashSet<&str> = commit.removes.iter().map(|r| r.file.path.as_str()).collect();
    let new = || commit.adds.iter().filter(|add| !removed.contains(add.file.path.as_str()));
    let again = commit.adds.len() - new().count();
    let bytes = new().map(|add| add.size).sum();
    let gone = (commit.removes.len() as u64).saturating_sub(again as u64);
    let removed = (reload || !commit.removes.is_empty()).then_some(gone);
    for (name, shown, expected) in [
        ("numOutputRows", shown.rows, Some(layout.output_rows(stamp.kind, stamp.rows))),
        ("numFiles", shown.files, Some(new().count() as u64)),
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

/// Whether the columns of continuity stand first, as a changelog has them, and nowhere in another table.
fn schema(table: &Table, layout: Layout) -> Option<String> {
    let schema: Value = serde_json::from_str(&table.schema).ok()?;
    let fields = schema.get("fields")?.as_array()?;
    if layout == Layout::Current {
        let names = fields.iter().filter_map(|field| field.get("name")?.as_str());
        let ours = names.into_iter().find(|name| row_columns().iter().any(|column| column.name() == name));
        return ours.map(|name| format!("the table has the column {name}, and its layout is {layout}"));
    }
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
