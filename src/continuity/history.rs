//! A table's history as a fold over its commits: writers resume from it, `verify` and `history` print it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::continuity::columns;
use crate::continuity::commit::{Author, Commit, FileId, Table};
use crate::continuity::stamp::{
    AdoptStamp, CONNECTOR_PROPERTY, CommitStamp, Kind, Mode, PROPERTY_PREFIX, RowCounts, TXN_EPOCH, TXN_RETENTION,
    TXN_STEP, TableStamp,
};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::generation::Generation;
use crate::step::Step;

/// A rule of the contract with readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A generation begins with one reload, after which the live files are that snapshot's.
    Reload,
    /// Each commit starts where the one before ended, in steps and in digests.
    Chain,
    /// Generations and epochs never decrease, and one epoch has one writer.
    Fence,
    /// Each data file is added once.
    Once,
    /// What others commit changes no row and nothing of ours.
    Drift,
    /// Counts, files and sizes are what the log says.
    Files,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reload => "R1",
            Self::Chain => "R2",
            Self::Fence => "R3",
            Self::Once => "R4",
            Self::Drift => "R5",
            Self::Files => "R6",
        })
    }
}

/// A rule broken at a version.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Where.
    pub version: u64,
    /// The generation that was current there.
    pub generation: Option<Generation>,
    /// Which rule.
    pub rule: Rule,
    /// What, with both values that disagree.
    pub message: String,
}

/// One generation as the log shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Which.
    pub generation: Generation,
    /// The reload's version; `None` when the log no longer has it.
    pub reload: Option<u64>,
    /// The cutover step; `None` when the log no longer has the reload.
    pub cutover: Option<Step>,
    /// The first version seen.
    pub first_version: u64,
    /// The last version seen.
    pub last_version: u64,
    /// The last step.
    pub last_step: Step,
    /// Commits of ours.
    pub commits: u64,
    /// Rows of all kinds in those commits.
    pub rows: RowCounts,
}

/// A file that is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// Its size in bytes.
    pub size: u64,
    /// Its rows, where statistics tell.
    pub rows: Option<u64>,
    /// The version that added it.
    pub added_at: u64,
}

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

/// The fold.
#[derive(Debug, Clone, Default)]
pub struct History {
    table: Option<Table>,
    stamp: Option<TableStamp>,
    last: Option<Last>,
    writers: HashMap<Epoch, String>,
    commits: HashSet<String>,
    added: HashSet<FileId>,
    live: Option<HashMap<FileId, Live>>,
    segments: Vec<Segment>,
    findings: Vec<Finding>,
    unclear: Vec<Finding>,
    /// The generation that a finding belongs to.
    context: Option<Generation>,
    /// Whether the table is known to be ours before a commit of ours was seen.
    known_as_ours: bool,
}

/// Where our last commit left the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Last {
    /// Its version.
    pub version: u64,
    /// Its stamp.
    pub stamp: CommitStamp,
}

impl History {
    /// The history of a table from its first version on.
    pub fn from_the_start() -> Self {
        Self { live: Some(HashMap::new()), ..Self::default() }
    }

    /// The history of a table whose beginning is not at hand; `table` is its metadata just before the
    /// first commit folded, where known.
    pub fn from_the_middle(table: Option<Table>) -> Self {
        let stamp = table.as_ref().and_then(|t| TableStamp::decode(&t.properties).ok().flatten());
        Self { table, stamp, ..Self::default() }
    }

    /// Takes the table for ours from here on, though no commit of ours was seen.
    pub fn know_as_ours(&mut self) {
        self.known_as_ours = true;
    }

    /// Takes `live` for the live files after the last commit folded, when they are not known.
    pub fn know_live_files(&mut self, live: impl FnOnce() -> HashMap<FileId, Live>) {
        self.live.get_or_insert_with(live);
    }

    /// Our last commit.
    pub fn last(&self) -> Option<&Last> {
        self.last.as_ref()
    }

    /// The generations seen, in order.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The rules broken so far, in version order.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The live files after the last commit folded, where known.
    pub fn live(&self) -> Option<&HashMap<FileId, Live>> {
        self.live.as_ref()
    }

    /// The current generation.
    pub fn generation(&self) -> Option<Generation> {
        self.last.as_ref().map(|l| l.stamp.generation).or(self.stamp.as_ref().map(|s| s.generation))
    }

    /// Notes a rule broken that the fold itself cannot see.
    pub fn find(&mut self, version: u64, rule: Rule, message: impl Into<String>) {
        self.findings.push(Finding { version, generation: self.context, rule, message: message.into() });
    }

    /// What could not be told, in version order, with the generation that it is about.
    pub fn unclear(&self) -> &[Finding] {
        &self.unclear
    }

    fn judge(&mut self, version: u64, foreign: Foreign) {
        match foreign {
            Foreign::Maintenance => {}
            Foreign::Drift(message) => self.find(version, Rule::Drift, message),
            Foreign::Unclear(message) => {
                self.unclear.push(Finding { version, generation: self.context, rule: Rule::Drift, message });
            }
        }
    }

    /// Goes on by one commit.
    pub fn fold(&mut self, commit: &Commit) {
        self.context = self.generation().max(commit.stamp().map(|s| s.generation));
        match &commit.author {
            Author::Ours { stamp, output_rows, first } => {
                self.fold_ours(commit, stamp);
                if !first {
                    self.find(commit.version, Rule::Chain, "the commit info is not the first action");
                }
                if let Some(shown) = output_rows.filter(|n| *n != stamp.rows.total()) {
                    self.find(
                        commit.version,
                        Rule::Files,
                        format!("the operation metrics count {shown} rows, the commit info {}", stamp.rows.total()),
                    );
                }
            }
            Author::Damaged(why) => {
                self.find(commit.version, Rule::Chain, format!("the commit info cannot be trusted: {why}"))
            }
            Author::Foreign(_) => {
                if self.is_ours() {
                    self.judge(commit.version, self.classify(commit));
                }
            }
        }
        self.move_files(commit);
        if let Some(table) = &commit.table {
            self.stamp = TableStamp::decode(&table.properties).ok().flatten();
            self.table = Some(table.clone());
        }
    }

    /// Whether a commit of ours was seen, or the table is known to be ours.
    pub fn is_ours(&self) -> bool {
        self.last.is_some() || self.stamp.is_some() || self.known_as_ours
    }

    /// What somebody else's commit does to a table of ours.
    pub fn classify(&self, commit: &Commit) -> Foreign {
        let drift = |why: String| Foreign::Drift(why);
        if let Some(app) = commit.txns.iter().map(|(app, _)| app).find(|app| *app == TXN_STEP || *app == TXN_EPOCH) {
            return drift(format!("a commit without our commit info sets txn {app}"));
        }
        if let Some(action) = commit.unknown_actions.first() {
            return drift(format!("a foreign commit has the unknown action {action:?}"));
        }
        if let Some(feature) = commit.refused_features.first() {
            return drift(format!("a foreign commit demands the table feature {feature}, which is not known here"));
        }
        match self.rows_kept(commit) {
            Foreign::Maintenance => {}
            other => return other,
        }
        if let Some(new) = &commit.table {
            if new.properties.contains_key(TXN_RETENTION) {
                return drift(format!(
                    "the property {TXN_RETENTION} was set, which makes other engines forget our last step"
                ));
            }
            if let Some(old) = &self.table {
                if let Some(switch) = new.switches.iter().find(|switch| !old.switches.contains(switch)) {
                    return drift(format!("a foreign commit sets the property {switch}, which is not honoured here"));
                }
                if old.schema != new.schema {
                    return drift("a foreign commit changes the schema".into());
                }
                if old.partition_by != new.partition_by {
                    return drift("a foreign commit changes the partitioning".into());
                }
                let ours = |t: &Table| -> Vec<(String, String)> {
                    t.properties
                        .iter()
                        .filter(|(k, _)| k.starts_with(PROPERTY_PREFIX))
                        .map(|(k, v)| (k.clone(), v.clone()))
                        .collect()
                };
                if ours(old) != ours(new) {
                    return drift(format!("a foreign commit changes properties that begin with {PROPERTY_PREFIX}"));
                }
            }
        }
        Foreign::Maintenance
    }

    /// Whether a commit that should change no row says so, stays inside the table, and keeps the number of rows.
    fn rows_kept(&self, commit: &Commit) -> Foreign {
        let changed = commit.adds.iter().filter(|a| a.data_change).count()
            + commit.removes.iter().filter(|r| r.data_change).count();
        if changed > 0 {
            let (added, removed) = (commit.adds.len(), commit.removes.len());
            return Foreign::Drift(format!("the commit changes rows: it adds {added} files and removes {removed}"));
        }
        if let Some(outside) = commit.adds.iter().find(|a| !a.file.is_inside()) {
            return Foreign::Drift(format!(
                "the commit adds the file {}, which lies outside the table",
                outside.file.path
            ));
        }
        match (commit.added_rows(), self.live_rows(commit)) {
            (Some(after), Some(before)) if after != before => Foreign::Drift(format!(
                "the commit says that it changes no rows, but replaces {before} rows by {after}"
            )),
            (Some(_), Some(_)) => Foreign::Maintenance,
            _ if commit.adds.is_empty() && commit.removes.is_empty() => Foreign::Maintenance,
            _ => Foreign::Unclear("the commit replaces files, and how many rows they hold cannot be told".into()),
        }
    }

    /// The rows of the live files that the commit removes, or adds again.
    fn live_rows(&self, commit: &Commit) -> Option<u64> {
        let live = self.live.as_ref()?;
        let removed =
            commit.removes.iter().try_fold(0u64, |sum, r| Some(sum.saturating_add(live.get(&r.file)?.rows?)))?;
        let gone: HashSet<&FileId> = commit.removes.iter().map(|r| &r.file).collect();
        let mut again = commit.adds.iter().filter(|a| !gone.contains(&a.file)).filter_map(|a| live.get(&a.file));
        again.try_fold(removed, |sum, file| Some(sum.saturating_add(file.rows?)))
    }

    fn fold_ours(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let at = commit.version;
        if !self.commits.insert(stamp.commit.clone()) {
            self.find(at, Rule::Chain, format!("the commit id {} stands in two versions", stamp.commit));
        }
        self.check_fence(commit, stamp);
        if let Some(adopt) = &stamp.adopt
            && let Some(why) = self.misadopted(commit, stamp, adopt)
        {
            self.find(
                at,
                Rule::Fence,
                format!("the connector {} takes the table of {}: {why}", stamp.connector, adopt.from),
            );
        }
        if stamp.kind == Kind::Reload {
            self.check_reload(commit, stamp);
        } else {
            self.check_chain(at, stamp);
        }
        self.check_actions(commit, stamp);
        for add in commit.adds.iter().filter(|a| a.data_change) {
            if !self.added.insert(add.file.clone()) {
                self.find(at, Rule::Once, format!("the file {} is added a second time", add.file.path));
            }
        }
        self.extend_segments(at, stamp);
        self.last = Some(Last { version: at, stamp: stamp.clone() });
    }

    fn check_fence(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let at = commit.version;
        let before = self.last.as_ref().map(|l| l.stamp.clone());
        if let Some(before) = &before {
            if stamp.epoch < before.epoch {
                self.find(
                    at,
                    Rule::Fence,
                    format!("the epoch {} commits after the epoch {}", stamp.epoch, before.epoch),
                );
            }
            if stamp.epoch > before.epoch && !matches!(stamp.kind, Kind::Mark | Kind::Reload) {
                self.find(at, Rule::Fence, format!("the epoch {} begins without a claim", stamp.epoch));
            }
            if stamp.connector != before.connector && stamp.adopt.is_none() {
                self.find(
                    at,
                    Rule::Fence,
                    format!("the connector {} commits to the table of {}", stamp.connector, before.connector),
                );
            }
        }
        let writer = self.writers.entry(stamp.epoch).or_insert_with(|| stamp.writer.clone()).clone();
        if writer != stamp.writer {
            self.find(
                at,
                Rule::Fence,
                format!("the epoch {} has two writers, {writer} and {}", stamp.epoch, stamp.writer),
            );
        }
        let claims = stamp.kind == Kind::Reload || before.is_some_and(|b| stamp.epoch > b.epoch);
        match commit.txn(TXN_EPOCH) {
            None if claims => {
                self.find(at, Rule::Fence, format!("the claim of epoch {} does not set txn {TXN_EPOCH}", stamp.epoch))
            }
            Some(set) if set != stamp.epoch.as_i64() => {
                self.find(
                    at,
                    Rule::Fence,
                    format!("txn {TXN_EPOCH} is set to {set}, the commit info says {}", stamp.epoch),
                );
            }
            _ => {}
        }
    }

    /// Why a commit that gives the table to another connector is not the one that may; `None` when it is.
    fn misadopted(&self, commit: &Commit, stamp: &CommitStamp, adopt: &AdoptStamp) -> Option<String> {
        if stamp.kind != Kind::Mark {
            return Some(format!("only a mark may, this is the {}", stamp.kind));
        }
        if let Some(before) = self.last.as_ref().map(|l| &l.stamp) {
            if before.connector != adopt.from {
                return Some(format!("it belonged to {}", before.connector));
            }
            if stamp.epoch <= before.epoch {
                return Some(format!("it claims no epoch after {}", before.epoch));
            }
        }
        let Some(after) = &commit.table else { return Some("the table properties keep the name".into()) };
        if after.properties.get(CONNECTOR_PROPERTY) != Some(&stamp.connector) {
            return Some("the table properties have another name".into());
        }
        let before = self.table.as_ref()?;
        if before.properties.get(CONNECTOR_PROPERTY) != Some(&adopt.from) {
            return Some("the table properties had another name".into());
        }
        let mut expected = before.clone();
        expected.properties.insert(CONNECTOR_PROPERTY.into(), stamp.connector.clone());
        (*after != expected).then(|| "the metadata changes beyond the name".into())
    }

    fn check_reload(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let at = commit.version;
        if let Some(before) = self.generation()
            && stamp.generation <= before
        {
            self.find(at, Rule::Fence, format!("a reload starts the generation {} after {before}", stamp.generation));
        }
        if stamp.from.is_some() {
            self.find(at, Rule::Reload, "a reload has a first step");
        }
        if stamp.digest_total != Some(stamp.digest) {
            self.find(at, Rule::Chain, "the digest of the generation is not the reload's own");
        }
        let removed: HashSet<&FileId> = commit.removes.iter().map(|r| &r.file).collect();
        let live = self.live.iter().flat_map(|live| live.keys());
        let leftover: Vec<String> = live.filter(|file| !removed.contains(file)).map(|file| file.path.clone()).collect();
        if let Some(path) = leftover.first() {
            self.find(
                at,
                Rule::Reload,
                format!("the reload leaves {} older files live, {path} among them", leftover.len()),
            );
        }
        let written = commit.table.as_ref().map(|t| TableStamp::decode(&t.properties));
        match written {
            Some(Ok(Some(t)))
                if t.commit == stamp.commit
                    && t.generation == stamp.generation
                    && t.step == stamp.to
                    && t.connector == stamp.connector =>
            {
                if t.mode == Mode::Follow && stamp.rows.total() > 0 {
                    self.find(at, Rule::Reload, "a reload in mode follow has rows");
                }
            }
            Some(Ok(Some(_))) => {
                self.find(at, Rule::Reload, "the table properties and the commit info of the reload disagree")
            }
            Some(Err(e)) => self.find(at, Rule::Reload, e.message().to_string()),
            Some(Ok(None)) | None => {
                self.find(at, Rule::Reload, "the reload does not record the cutover in the table properties")
            }
        }
    }

    fn check_chain(&mut self, at: u64, stamp: &CommitStamp) {
        let from = stamp.from;
        let sound = match stamp.kind {
            Kind::Append => from.is_some_and(|from| from < stamp.to),
            Kind::Mark | Kind::Maintenance | Kind::Reload => from == Some(stamp.to),
        };
        if !sound {
            let from = from.map_or("nothing".to_string(), |f| f.to_string());
            self.find(
                at,
                Rule::Chain,
                format!("the {} covers no valid range: from {from} to {}", stamp.kind, stamp.to),
            );
        }
        let Some(before) = self.last.as_ref().map(|l| l.stamp.clone()) else { return };
        if stamp.generation < before.generation {
            self.find(
                at,
                Rule::Fence,
                format!("the generation {} commits after the generation {}", stamp.generation, before.generation),
            );
        } else if stamp.generation > before.generation {
            self.find(at, Rule::Reload, format!("the generation {} begins without a reload", stamp.generation));
        }
        if let Some(from) = from
            && from != before.to
        {
            let what = if from > before.to { "a gap" } else { "steps twice" };
            self.find(
                at,
                Rule::Chain,
                format!(
                    "{what}: the {} starts at step {from}, the commit before it ended at {}",
                    stamp.kind, before.to
                ),
            );
        }
        let expected = before.digest_total.map(|total| total.plus(stamp.digest));
        if expected.is_some() && stamp.digest_total != expected {
            let (shown, expected) = (show(stamp.digest_total), show(expected));
            self.find(
                at,
                Rule::Chain,
                format!("the digest of the generation is {shown}, its commits add up to {expected}"),
            );
        }
    }

    fn check_actions(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let at = commit.version;
        match commit.txn(TXN_STEP) {
            Some(set) if set == stamp.to.as_i64() => {}
            Some(set) => {
                self.find(at, Rule::Chain, format!("txn {TXN_STEP} is set to {set}, the commit info says {}", stamp.to))
            }
            None => self.find(at, Rule::Chain, format!("txn {TXN_STEP} is not set, the commit info says {}", stamp.to)),
        }
        if !commit.unknown_actions.is_empty() {
            self.find(at, Rule::Drift, format!("a commit of ours has the unknown action {:?}", commit.unknown_actions));
        }
        if stamp.kind == Kind::Maintenance {
            self.judge(at, self.rows_kept(commit));
            return;
        }
        let Some(rows) = commit.added_rows() else {
            self.find(at, Rule::Files, "a file is added without a row count");
            return;
        };
        if rows != stamp.rows.total() {
            self.find(
                at,
                Rule::Files,
                format!("the files added hold {rows} rows, the commit info counts {}", stamp.rows.total()),
            );
        }
        if let Some(add) = commit.adds.iter().find(|a| !a.data_change) {
            self.find(at, Rule::Once, format!("the file {} is added as if no rows changed", add.file.path));
        }
        if stamp.kind != Kind::Reload
            && let Some(removed) = commit.removes.first()
        {
            self.find(at, Rule::Reload, format!("the {} removes the file {}", stamp.kind, removed.file.path));
        }
        self.check_metadata(commit, stamp);
    }

    /// Between reloads the table's metadata stays as it is, but for the columns that an append adds.
    fn check_metadata(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let (Some(new), Some(old)) = (&commit.table, &self.table) else { return };
        if stamp.kind == Kind::Reload || stamp.adopt.is_some() {
            return;
        }
        let (at, kind) = (commit.version, stamp.kind);
        let mut found = Vec::new();
        if TableStamp::decode(&new.properties).ok().flatten() != self.stamp {
            found.push((Rule::Reload, format!("the {kind} changes the table properties that a reload writes")));
        } else if new.properties != old.properties {
            found.push((Rule::Drift, format!("the {kind} changes the table properties")));
        }
        if new.partition_by != old.partition_by {
            found.push((Rule::Drift, format!("the {kind} changes the partitioning")));
        }
        match columns::why_not_wider(&old.schema, &new.schema) {
            Some(why) => found.push((Rule::Drift, format!("the {kind} changes the schema: {why}"))),
            None if kind != Kind::Append && old.schema != new.schema => {
                found.push((Rule::Drift, format!("the {kind} adds columns, which an append alone does")));
            }
            None => {}
        }
        found.into_iter().for_each(|(rule, message)| self.find(at, rule, message));
    }

    fn extend_segments(&mut self, at: u64, stamp: &CommitStamp) {
        let reload = stamp.kind == Kind::Reload;
        if reload || self.segments.last().is_none_or(|s| s.generation != stamp.generation) {
            self.segments.push(Segment {
                generation: stamp.generation,
                reload: reload.then_some(at),
                cutover: reload.then_some(stamp.to),
                first_version: at,
                last_version: at,
                last_step: stamp.to,
                commits: 0,
                rows: RowCounts::default(),
            });
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.last_version = at;
            segment.last_step = stamp.to;
            segment.commits += 1;
            segment.rows += stamp.rows;
        }
    }

    fn move_files(&mut self, commit: &Commit) {
        if commit.stamp().is_some_and(|s| s.kind == Kind::Reload) && self.live.is_none() {
            self.live = Some(HashMap::new());
        }
        let Some(live) = &mut self.live else { return };
        for remove in &commit.removes {
            live.remove(&remove.file);
        }
        for add in &commit.adds {
            live.insert(add.file.clone(), Live { size: add.size, rows: add.rows, added_at: commit.version });
        }
    }
}

fn show(digest: Option<Digest>) -> String {
    digest.map_or("absent".to_string(), |d| d.to_string())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
