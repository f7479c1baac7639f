//! Checks the contract with readers, from the oldest entry that the log still holds.

use std::collections::HashMap;

use futures::StreamExt;
use percent_encoding::percent_decode_str;

use super::{contiguous, listing};
use crate::continuity::commit::FileId;
use crate::continuity::history::{Finding, History, Live, Rule, Segment};
use crate::continuity::stamp::TableStamp;
use crate::epoch::Epoch;
use crate::error::{ErrorKind, Result};
use crate::generation::Generation;
use crate::log::{Log, Replayed};
use crate::step::Step;

/// What the check comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// No rule is broken in the current generation.
    Healthy,
    /// A rule is broken in the current generation.
    Broken,
    /// It cannot be told; why.
    Inconclusive(String),
}

/// The result of a check.
#[derive(Debug, Clone)]
pub struct Report {
    /// What it comes to.
    pub verdict: Verdict,
    /// The newest version.
    pub head: u64,
    /// The first version that was checked.
    pub since: u64,
    /// The connector that the table belongs to.
    pub connector: Option<String>,
    /// The current generation.
    pub generation: Option<Generation>,
    /// Its cutover step.
    pub cutover: Option<Step>,
    /// The last step.
    pub last_step: Option<Step>,
    /// The highest epoch.
    pub epoch: Option<Epoch>,
    /// Live files.
    pub live_files: usize,
    /// Whether the log can be loaded, which a reset needs.
    pub loads: bool,
    /// Rules broken in the current generation, in version order.
    pub findings: Vec<Finding>,
    /// Rules broken in older generations, which a reload has healed.
    pub older: Vec<Finding>,
    /// The generations that the log still shows.
    pub segments: Vec<Segment>,
}

/// Checks the table, from `since_version` or the oldest entry of the log on.
pub async fn verify(log: &Log, since_version: Option<u64>) -> Result<Report> {
    let (listing, head) = listing(log).await?;
    let versions: Vec<u64> =
        contiguous(&listing, head).into_iter().filter(|v| since_version.is_none_or(|since| *v >= since)).collect();
    let since = versions.first().copied().unwrap_or(head);
    let replayed = log.replay(None).await;
    let mut history = match since.checked_sub(1) {
        None => History::from_the_start(),
        Some(before) => History::from_the_middle(log.replay(Some(before)).await.ok().map(|r| r.metadata.table())),
    };
    // What a clean-up took lies below a checkpoint; an entry that is missing above the newest one is a loss.
    let start = contiguous(&listing, head).first().copied().unwrap_or(head + 1);
    if start > 0 && listing.checkpoints.last().is_none_or(|checkpoint| *checkpoint < start - 1) {
        history.find(start - 1, Rule::Files, format!("the log entry of version {} is missing", start - 1));
    }
    let mut checkpoints = listing.checkpoints.range(since..).copied().peekable();
    let mut commits = std::pin::pin!(log.commits(versions));
    while let Some((version, commit)) = commits.next().await {
        match commit {
            Ok(Some(commit)) => history.fold(&commit),
            Ok(None) => history.find(version, Rule::Files, format!("the log entry of version {version} is missing")),
            Err(e) if e.kind() == ErrorKind::Corrupt => history.find(version, Rule::Files, e.message().to_string()),
            Err(e) => return Err(e),
        }
        if checkpoints.next_if(|c| *c <= version).is_some()
            && history.live().is_none()
            && let Ok(files) = log.live_files_at(version).await
        {
            history.know_live_files(|| {
                let live =
                    |f: &crate::log::LiveFile| Live { size: f.size.unsigned_abs(), rows: f.rows, added_at: version };
                files.iter().map(|f| (f.id(), live(f))).collect()
            });
        }
    }
    let replayed = match replayed {
        Ok(replayed) => Some(replayed),
        Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
        Err(e) => {
            history.find(head, Rule::Files, format!("the log cannot be loaded: {}", e.message()));
            None
        }
    };
    let mut live_files = history.live().map_or(0, HashMap::len);
    if let Some(replayed) = &replayed {
        check_head(&mut history, replayed, head);
        if let Some(found) = check_files(log, &mut history, replayed).await? {
            live_files = found;
        }
    }
    Ok(report(history, replayed.as_ref(), head, since, live_files))
}

/// What survives log clean-up must agree with the newest commit.
fn check_head(history: &mut History, replayed: &Replayed, head: u64) {
    if replayed.version < head {
        history.find(
            head,
            Rule::Files,
            format!("a replay of the log ends at version {}, before its newest entry", replayed.version),
        );
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

/// Every live file is there with its size, and a replay from the checkpoint gives the files that the commits give.
async fn check_files(log: &Log, history: &mut History, replayed: &Replayed) -> Result<Option<usize>> {
    let files = match log.live_files_at(replayed.version).await {
        Ok(files) => files,
        Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
        Err(e) => {
            history.find(
                replayed.version,
                Rule::Files,
                format!("the live files cannot be listed from the log: {}", e.message()),
            );
            return Ok(None);
        }
    };
    let replay: HashMap<FileId, u64> = files.iter().map(|f| (f.id(), f.size.unsigned_abs())).collect();
    if let Some(folded) = history.live() {
        let lost = folded.keys().find(|id| !replay.contains_key(id)).map(|id| format!("{} is missing from", id.path));
        let odd = replay.keys().find(|id| !folded.contains_key(id)).map(|id| format!("{} is only in", id.path));
        if let Some(difference) = lost.or(odd) {
            let message = format!("{difference} the state that the newest checkpoint gives; the commits give another");
            history.find(replayed.version, Rule::Files, message);
        }
    }
    let sizes = log.object_sizes().await?;
    let mut broken: Vec<(u64, String)> = Vec::new();
    for (id, size) in &replay {
        let added_at = history.live().and_then(|l| l.get(id)).map_or(replayed.version, |l| l.added_at);
        let path = percent_decode_str(&id.path).decode_utf8_lossy();
        match sizes.get(path.as_ref()) {
            Some(found) if found == size => {}
            Some(found) => {
                broken.push((added_at, format!("the file {} has {found} bytes, the log says {size}", id.path)))
            }
            None if path.contains("://") => {}
            None => broken.push((added_at, format!("the file {} is gone", id.path))),
        }
    }
    broken.sort();
    for (version, message) in broken {
        history.find(version, Rule::Files, message);
    }
    Ok(Some(replay.len()))
}

fn report(history: History, replayed: Option<&Replayed>, head: u64, since: u64, live_files: usize) -> Report {
    let stamp = replayed.map(|r| TableStamp::decode(&r.metadata.configuration));
    let last = history.last().map(|l| l.stamp.clone());
    let generation = history.generation();
    let (findings, older): (Vec<Finding>, Vec<Finding>) =
        history.findings().iter().cloned().partition(|f| f.generation.is_none() || f.generation >= generation);
    let foreign_contract = matches!(&stamp, Some(Err(e)) if e.kind() == ErrorKind::Incompatible);
    let carries_txn = replayed.is_some_and(|r| r.step.is_some() || r.epoch.is_some());
    let stamp = stamp.and_then(Result::ok).flatten();
    let verdict = if foreign_contract {
        Verdict::Inconclusive("the table has a contract number that this program does not know".into())
    } else if last.is_none() && stamp.is_none() && !carries_txn {
        Verdict::Inconclusive("the table is not ours: it has neither properties nor commits of ours".into())
    } else if !findings.is_empty() {
        Verdict::Broken
    } else if last.is_none() {
        Verdict::Inconclusive(
            "the log no longer holds a commit of ours, so only files and properties were checked".into(),
        )
    } else {
        Verdict::Healthy
    };
    Report {
        verdict,
        head,
        since,
        connector: last.as_ref().map(|l| l.connector.clone()).or(stamp.as_ref().map(|s| s.connector.clone())),
        generation,
        cutover: stamp.as_ref().map(|s| s.step),
        last_step: last.as_ref().map(|l| l.to),
        epoch: last.as_ref().map(|l| l.epoch),
        live_files,
        loads: replayed.is_some(),
        findings: in_version_order(findings),
        older: in_version_order(older),
        segments: history.segments().to_vec(),
    }
}

fn in_version_order(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|f| f.version);
    findings
}
