//! What survives log clean-up must agree with the newest commits.

use crate::continuity::finding::Rule;
use crate::continuity::foreign::difference;
use crate::continuity::history::History;
use crate::continuity::stamp::{Layout, TableStamp};
use crate::log::Replayed;

/// Holds a replay at the head against the history.
pub(super) fn check(history: &mut History, replayed: &Replayed, head: u64) {
    if replayed.version < head {
        history.find(
            head,
            Rule::Files,
            format!("a replay of the log ends at version {}, before its newest entry", replayed.version),
        );
    }
    let folded = history.table().cloned();
    if let Some(difference) = folded.and_then(|folded| difference(&folded, &replayed.metadata.table())) {
        let message = format!("against its own entries the log gives metadata that change {difference}");
        history.find(head, Rule::Files, message);
    }
    let Some(last) = history.last().map(|l| l.stamp.clone()) else { return };
    if replayed.step != Some(last.to.as_i64()) {
        let shown = replayed.step.map_or("nothing".to_string(), |s| s.to_string());
        history.find(head, Rule::Chain, format!("the table's txn says step {shown}, the last commit {}", last.to));
    }
    if replayed.epoch != Some(last.epoch.as_i64()) {
        let shown = replayed.epoch.map_or("nothing".to_string(), |s| s.to_string());
        history.find(head, Rule::Fence, format!("the table's txn says epoch {shown}, the last commit {}", last.epoch));
    }
    match TableStamp::decode(&replayed.metadata.configuration) {
        Ok(Some(stamp)) if stamp.generation == last.generation => {}
        Ok(Some(stamp)) => {
            let message = format!(
                "the table's properties say generation {}, the last commit {}",
                stamp.generation, last.generation
            );
            history.find(head, Rule::Reload, message);
        }
        Ok(None) => history.find(head, Rule::Drift, "the table's properties of ours are gone"),
        Err(e) => history.find(head, Rule::Drift, e.message().to_string()),
    }
}

/// Holds the rows of the live files against those of the commits; what is wrong with a commit or a file is named already.
pub(super) fn count(history: &mut History, layout: Layout, head: u64) {
    let Some(total) = history.last().and_then(|last| last.stamp.rows_total) else { return };
    let Some(live) = history.live().filter(|_| history.findings().is_empty()) else { return };
    // Others may write files that do not tell.
    let Some(found) = live.values().map(|file| file.rows).sum::<Option<u64>>() else { return };
    let expected = layout.live_rows(total);
    if found != expected {
        history.find(head, Rule::Files, format!("the live files have {found} rows, the commits add up to {expected}"));
    }
}
