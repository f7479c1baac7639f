//! What repairs a broken table.

use std::collections::BTreeSet;

use super::Report;
use super::checkpoints::Damage;
use crate::continuity::finding::Rule;
use crate::continuity::stamp::TXN_RETENTION;
use crate::log::{LAST_CHECKPOINT, Listing};

/// How a finding's file ends when it is about what a checkpoint says, whatever its parts are called.
pub(super) const CHECKPOINT: &str = ".checkpoint";

/// One step of a repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repair {
    /// Delete these files of the log's folder: readers do without them.
    Delete(Vec<String>),
    /// Restore these files of the log's folder; without them no reader gets past.
    Restore(Vec<String>),
    /// Restore what of the log's folder is damaged, by hand: which of its files it is cannot be told.
    RestoreLog,
    /// Unset this table property.
    Unset(String),
    /// Reset the connector: a reload replaces what is wrong.
    Reset,
}

/// What is to be done, in order.
pub(super) fn repairs(report: &Report, listing: &Listing, damage: &Damage, start: u64, loads: bool) -> Vec<Repair> {
    let mut repairs = Vec::new();
    let mut delete = Vec::new();
    let mut restore = Vec::new();
    if damage.hint {
        delete.push(LAST_CHECKPOINT.to_string());
    }
    // Readers do without a checkpoint when the entries lead to the head from an older one, or from the beginning.
    let named = |file: &str| file.strip_suffix(CHECKPOINT).and_then(|version| version.parse::<u64>().ok());
    let contradicted: BTreeSet<u64> =
        report.findings.iter().filter_map(|f| f.file.as_deref()).filter_map(named).collect();
    let is_sound = |c: &&u64| !damage.checkpoints.contains(c) && !contradicted.contains(c);
    let sound = listing.checkpoints.iter().rev().find(is_sound);
    let leads = start == 0 || sound.is_some_and(|c| c.saturating_add(1) >= start);
    let files = listing.checkpoint_files();
    let untrue = files.iter().filter(|f| contradicted.contains(&f.version)).map(|f| f.name.clone());
    if leads { &mut delete } else { &mut restore }.extend(damage.files.iter().cloned().chain(untrue));
    if leads && !contradicted.is_empty() && !damage.hint {
        delete.push(LAST_CHECKPOINT.to_string());
    }
    let above = sound.map_or(0, |c| c.saturating_add(1));
    let is_entry = |name: &str| name.ends_with(".json") && !name.contains("checkpoint");
    let entries = report.findings.iter().filter(|f| f.version >= above).filter_map(|f| f.file.clone());
    restore.extend(entries.filter(|name| is_entry(name)));
    restore.dedup();
    let explained = !delete.is_empty() || !restore.is_empty();
    if !delete.is_empty() {
        repairs.push(Repair::Delete(delete));
    }
    if !restore.is_empty() {
        repairs.push(Repair::Restore(restore.clone()));
    }
    if !loads && !explained {
        repairs.push(Repair::RestoreLog);
    }
    if report.findings.iter().any(|f| f.rule == Rule::Drift && f.message.contains(TXN_RETENTION)) {
        repairs.push(Repair::Unset(TXN_RETENTION.to_string()));
    }
    let known: Vec<&str> = damage.files.iter().map(String::as_str).chain([LAST_CHECKPOINT]).collect();
    let is_cured = |file: &Option<String>| {
        let is_known = |f: &str| known.contains(&f) || f.ends_with(CHECKPOINT) || restore.iter().any(|r| r == f);
        file.as_deref().is_some_and(is_known)
    };
    let loading = "the log cannot be loaded";
    let left = report.findings.iter().any(|f| !is_cured(&f.file) && !f.message.starts_with(loading));
    if left && report.connector.is_some() {
        repairs.push(Repair::Reset);
    }
    repairs
}
