//! Checks the contract with readers, from the oldest entry that the log still holds.

mod checkpoints;
mod deep;
mod files;
mod fold;
mod head;
mod repair;
mod statistics;
mod trust;

pub use deep::RowsRead;
pub use repair::Repair;
pub use trust::Trusted;

use std::collections::{BTreeSet, HashMap};

use super::{contiguous, listing};
use crate::continuity::finding::{Finding, Rule, Segment};
use crate::continuity::history::History;
use crate::continuity::stamp::{CONTRACT, TableStamp};
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::log::{Listing, Log, Replayed};
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
    /// The rows that were read, where the check went so far.
    pub rows_read: Option<RowsRead>,
    /// Rules broken in the current generation, in version order.
    pub findings: Vec<Finding>,
    /// Rules broken in older generations, which a reload has healed.
    pub older: Vec<Finding>,
    /// What breaks no rule and is worth knowing, in version order.
    pub notes: Vec<Finding>,
    /// The generations that the log still shows.
    pub segments: Vec<Segment>,
    /// What of the current generation a reader may rely on; `None` when nothing is proved.
    pub trusted: Option<Trusted>,
    /// What repairs a broken table, in the order in which it is to be done.
    pub repairs: Vec<Repair>,
}

/// Checks the table, from `since_version` or the oldest entry of the log on.
///
/// Internal: there is no table. Refused: it ends before `since_version`. Unavailable: the storage cannot be read.
/// What is wrong with the table is in the report and no error.
pub async fn verify(log: &Log, since_version: Option<u64>) -> Result<Report> {
    checked(log, since_version, Depth::Log).await
}

/// The same, and reads every row of the live files: none is lost, doubled or changed if their digests are those that the
/// commits left, and none is skipped by statistics that do not hold for it. Each checkpoint is held against the log
/// without it.
pub async fn verify_deep(log: &Log, since_version: Option<u64>) -> Result<Report> {
    checked(log, since_version, Depth::Rows).await
}

/// How far a check goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The log, and which files are there.
    Log,
    /// Every row too.
    Rows,
}

async fn checked(log: &Log, since_version: Option<u64>, depth: Depth) -> Result<Report> {
    let (listing, head) = listing(log).await?;
    if let Some(since) = since_version.filter(|since| *since > head) {
        return Err(Error::refused(format!(
            "the table ends at version {head}, so nothing since {since} can be checked"
        )));
    }
    let whole = contiguous(&listing, head);
    let start = whole.first().copied().unwrap_or(head.saturating_add(1));
    let versions: Vec<u64> = whole.into_iter().filter(|v| since_version.is_none_or(|since| *v >= since)).collect();
    let since = versions.first().copied().unwrap_or(head);
    // Of a table that goes on meanwhile, what stood at this head is checked.
    let replayed = loaded(log.replay(Some(head)).await)?;
    let mut history = begin(log, since, start).await?;
    let stamp = replayed.as_ref().ok().and_then(|r| TableStamp::decode(&r.metadata.configuration).ok().flatten());
    if let Some(stamp) = &stamp {
        history.know_layout(stamp);
    }
    let damage = checkpoints::check(log, &listing, &mut history).await?;
    missing_entries(&mut history, &listing, start, head);
    let ours = replayed.as_ref().is_ok_and(is_ours);
    let sound: BTreeSet<u64> = listing.checkpoints.difference(&damage.checkpoints).copied().collect();
    let known_from = if history.live().is_none() { sound.range(since..).next().copied() } else { None };
    let traces = fold::fold(log, &sound, versions, &mut history, ours).await?;
    let replayed = match replayed {
        Ok(replayed) => Some(replayed),
        Err(e) => {
            history.find(head, Rule::Files, format!("the log cannot be loaded: {}", reasons(&e)));
            None
        }
    };
    let mut rows_read = None;
    let mut live_files = history.live().map_or(0, HashMap::len);
    if let Some(replayed) = &replayed {
        head::check(&mut history, replayed, head);
        if let Some(found) = files::check(log, &mut history, replayed.version, since == 0).await? {
            live_files = found;
        }
        if let Some(stamp) = &stamp {
            head::count(&mut history, stamp.layout, head);
        }
        if depth == Depth::Rows && is_ours(replayed) {
            checkpoints::compare(log, &listing, &sound, &mut history).await?;
            rows_read = Some(deep::check(log, &mut history, replayed).await?);
        }
    }
    let healed = healed(&history, &listing, &damage);
    let mut report = report(&history, replayed.as_ref(), head, since, live_files, known_from, &healed);
    report.rows_read = rows_read;
    report.trusted = trust::trusted(log, &report, &traces, replayed.is_some()).await?;
    if report.verdict == Verdict::Broken {
        report.repairs = repair::repairs(log, &report).await?;
    }
    Ok(report)
}

/// The history up to the first commit that is checked.
async fn begin(log: &Log, since: u64, start: u64) -> Result<History> {
    let Some(before) = since.checked_sub(1) else { return Ok(History::from_the_start()) };
    let Ok(replayed) = loaded(log.replay(Some(before)).await)? else { return Ok(History::from_the_middle(None)) };
    let mut history = History::from_the_middle(Some(replayed.metadata.table()));
    history.know_txns(replayed.step, replayed.epoch);
    // Entries that are left out on request lead to the files as those of a checkpoint do.
    if since > start || is_ours(&replayed) {
        let files = loaded(log.live_map_at(before).await)?;
        if let Ok(files) = files {
            history.know_live_files(|| files);
        }
    }
    Ok(history)
}

/// A storage that cannot be read ends the check; a log that cannot be loaded is a finding of it.
fn loaded<T>(replayed: Result<T>) -> Result<Result<T>> {
    match replayed {
        Err(e) if e.kind().leaves_open() => Err(e),
        other => Ok(other),
    }
}

fn is_ours(replayed: &Replayed) -> bool {
    let properties = !matches!(TableStamp::decode(&replayed.metadata.configuration), Ok(None));
    properties || replayed.step.is_some() || replayed.epoch.is_some()
}

/// The error and what caused it, in one line.
fn reasons(error: &Error) -> String {
    let mut text = error.message().to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a clean-up took lies below a checkpoint; an entry that is missing above the newest one is a loss.
fn missing_entries(history: &mut History, listing: &Listing, start: u64, head: u64) {
    let checkpoint = listing.checkpoints.last().copied();
    let missing = |version: u64| format!("the log entry of version {version} is missing");
    let file = |version: u64| format!("{version:020}.json");
    if let Some((named, other)) = listing.others.as_ref().filter(|(named, _)| *named > head) {
        let message = format!("{}, though the file {other} speaks of it", missing(*named));
        history.find_file(*named, Rule::Files, file(*named), message);
    }
    if start > head {
        let message = format!("{}, though there is a checkpoint of it", missing(head));
        history.find_file(head, Rule::Files, file(head), message);
    } else if start > 0 && checkpoint.is_none_or(|checkpoint| checkpoint.saturating_add(1) < start) {
        let files = listing.checkpoint_files();
        let partial = files.iter().rev().find(|f| !f.is_complete && f.version.saturating_add(1) >= start);
        let instead = partial.map(|f| format!(", and the checkpoint file {} lacks the other parts", f.name));
        let message = format!("{}{}", missing(start - 1), instead.unwrap_or_default());
        history.find_file(start - 1, Rule::Files, file(start - 1), message);
    } else if let Some(last) = listing.versions.range(..start).next_back() {
        let message = format!(
            "the log entries of versions {} to {} are missing below a checkpoint, so older versions were not checked",
            last + 1,
            start.saturating_sub(1)
        );
        history.note(last + 1, Some(file(last + 1)), message);
    }
}

/// `known_from` is the version whose checkpoint first tells of the live files, where those before it are not known.
fn report(
    history: &History,
    replayed: Option<&Replayed>,
    head: u64,
    since: u64,
    live_files: usize,
    known_from: Option<u64>,
    healed: &Healed,
) -> Report {
    let stamp = replayed.map(|r| TableStamp::decode(&r.metadata.configuration));
    let last = history.last().map(|l| l.stamp.clone());
    let generation = history.generation();
    let (findings, older): (Vec<Finding>, Vec<Finding>) = history
        .findings()
        .iter()
        .cloned()
        .partition(|f| (f.generation.is_none() || f.generation >= generation) && !healed.covers(f));
    let number = replayed.and_then(|r| TableStamp::foreign_contract(&r.metadata.configuration));
    let carries_txn = replayed.is_some_and(|r| r.step.is_some() || r.epoch.is_some());
    let stamp = stamp.and_then(Result::ok).flatten();
    let (told, unclear): (Vec<Finding>, Vec<Finding>) =
        history.unclear().iter().cloned().partition(|f| known_from.is_some_and(|known| f.version <= known));
    let counts = |f: &&Finding| (f.generation.is_none() || f.generation >= generation) && !healed.covers(f);
    let unclear = unclear.iter().find(counts);
    let verdict = if let Some(number) = number {
        let why = format!("{}: the table has the contract number {number:?}, known is {CONTRACT}", Rule::Ours);
        Verdict::Inconclusive(why)
    } else if last.is_none() && stamp.is_none() && !carries_txn && (replayed.is_some() || since == 0) {
        let why = format!("{}: the table is not ours: it has neither properties nor commits of ours", Rule::Ours);
        Verdict::Inconclusive(why)
    } else if !findings.is_empty() {
        Verdict::Broken
    } else if let Some(unclear) = unclear {
        Verdict::Inconclusive(format!("version {}: {}", unclear.version, unclear.message))
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
        rows_read: None,
        findings: in_version_order(findings),
        older: in_version_order(older),
        notes: in_version_order([history.notes().to_vec(), told].concat()),
        segments: history.segments().to_vec(),
        trusted: None,
        repairs: Vec::new(),
    }
}

/// What no reader gets to any more: what lies below a rebuild of the log, or below both a sound checkpoint and the reload
/// that began the current generation.
struct Healed {
    below: u64,
    /// The entry of a checkpoint below the reload: no reader opens it.
    covered: Option<String>,
}

fn healed(history: &History, listing: &Listing, damage: &checkpoints::Damage) -> Healed {
    let reload = history.segments().last().and_then(|segment| segment.reload).unwrap_or(0);
    let contradicted = history.findings().iter().filter_map(|f| f.file.as_deref()).filter_map(repair::contradicted);
    let contradicted: BTreeSet<u64> = contradicted.collect();
    let is_sound = |version: &&u64| !damage.checkpoints.contains(version) && !contradicted.contains(version);
    let sound = listing.checkpoints.iter().rev().find(is_sound).copied().filter(|_| !damage.hint);
    let passed = sound.map_or(0, |sound| sound.min(reload));
    let covered = sound.filter(|sound| *sound < reload).map(|sound| format!("{sound:020}.json"));
    Healed { below: history.rebuilt_at().unwrap_or(0).max(passed), covered }
}

impl Healed {
    fn covers(&self, finding: &Finding) -> bool {
        finding.version < self.below || (self.covered.is_some() && finding.file == self.covered)
    }
}

fn in_version_order(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by_key(|f| f.version);
    findings
}
