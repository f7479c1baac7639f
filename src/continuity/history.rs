//! A table's history as a fold over its commits: writers resume from it, `verify` and `history` print it.

use std::collections::{HashMap, HashSet};

use crate::continuity::columns;
use crate::continuity::commit::{Author, Commit, FileId, Table};
use crate::continuity::finding::{Finding, Rule, Segment};
use crate::continuity::foreign::{self, Foreign, rows_kept};
use crate::continuity::form;
use crate::continuity::replaced;
use crate::continuity::stamp::{
    AdoptStamp, COMMIT_PREFIX_REBUILD, CONNECTOR_PROPERTY, CommitStamp, Kind, Layout, Mode, RowCounts, TXN_EPOCH,
    TXN_STEP, TableStamp,
};
use crate::digest::Digest;
use crate::epoch::Epoch;
use crate::generation::Generation;

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

/// The fold.
#[derive(Debug, Clone, Default)]
pub struct History {
    table: Option<Table>,
    stamp: Option<TableStamp>,
    last: Option<Last>,
    writers: HashMap<Epoch, String>,
    commits: HashSet<String>,
    added: HashSet<u128>,
    live: Option<HashMap<FileId, Live>>,
    segments: Vec<Segment>,
    findings: Vec<Finding>,
    unclear: Vec<Finding>,
    notes: Vec<Finding>,
    anchor: Anchor,
    /// Whether the commit before could not be read.
    skipped: bool,
    /// The generation that a finding belongs to.
    context: Option<Generation>,
    /// Whether the table is known to be ours before a commit of ours was seen.
    known_as_ours: bool,
    /// The layout of a generation, where metadata do not tell it.
    known_layout: Option<(Generation, Layout)>,
    /// The version of the newest reload that rebuilt the log: what lies below it no longer counts.
    rebuilt_at: Option<u64>,
}

/// What `txn` said before the first commit folded.
#[derive(Debug, Clone, Copy, Default)]
struct Anchor {
    step: Option<i64>,
    epoch: Option<i64>,
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

    /// Takes what `stamp` says of the layout of its generation for true, as long as no metadata tell it.
    pub fn know_layout(&mut self, stamp: &TableStamp) {
        self.known_layout = Some((stamp.generation, stamp.layout));
    }

    /// Takes `step` and `epoch` for what `txn` said just before the first commit folded.
    pub fn know_txns(&mut self, step: Option<i64>, epoch: Option<i64>) {
        self.anchor = Anchor { step, epoch };
    }

    /// Takes `table` for the metadata after the last commit folded, when they are not known.
    pub fn know_table(&mut self, table: Table) {
        if self.table.is_none() {
            self.stamp = TableStamp::decode(&table.properties).ok().flatten();
            self.table = Some(table);
        }
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

    /// Whether one of them is about `file`.
    pub fn has_found(&self, file: &str) -> bool {
        self.findings.iter().any(|finding| finding.file.as_deref() == Some(file))
    }

    /// The live files after the last commit folded, where known.
    pub fn live(&self) -> Option<&HashMap<FileId, Live>> {
        self.live.as_ref()
    }

    /// The metadata after the last commit folded, where known.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The current generation.
    pub fn generation(&self) -> Option<Generation> {
        self.last.as_ref().map(|l| l.stamp.generation).or(self.stamp.as_ref().map(|s| s.generation))
    }

    /// Notes a rule broken that the fold itself cannot see.
    pub fn find(&mut self, version: u64, rule: Rule, message: impl Into<String>) {
        self.findings.push(self.finding(version, rule, None, message.into()));
    }

    /// Notes a rule broken about a file that the fold itself cannot see.
    pub fn find_file(&mut self, version: u64, rule: Rule, file: impl Into<String>, message: impl Into<String>) {
        self.findings.push(self.finding(version, rule, Some(file.into()), message.into()));
    }

    /// The same for what shows once later versions are folded: it is about the generation of its version.
    pub fn find_file_later(&mut self, version: u64, rule: Rule, file: impl Into<String>, message: impl Into<String>) {
        let mut finding = self.finding(version, rule, Some(file.into()), message.into());
        let segment = self.segments.iter().rev().find(|s| s.first_version <= version).or(self.segments.first());
        finding.generation = segment.map(|s| s.generation).or(finding.generation);
        self.findings.push(finding);
    }

    /// Notes what breaks no rule and is worth knowing.
    pub fn note(&mut self, version: u64, file: Option<String>, message: impl Into<String>) {
        self.notes.push(self.finding(version, Rule::Files, file, message.into()));
    }

    /// What is worth knowing and breaks no rule.
    pub fn notes(&self) -> &[Finding] {
        &self.notes
    }

    fn finding(&self, version: u64, rule: Rule, file: Option<String>, message: String) -> Finding {
        Finding { version, generation: self.context, rule, file, message }
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
                self.unclear.push(self.finding(version, Rule::Drift, None, message));
            }
        }
    }

    /// Goes on behind a commit that cannot be read: what it did is not known.
    pub fn skip(&mut self) {
        self.live = None;
        self.skipped = true;
    }

    /// The version of the newest reload that rebuilt the log.
    pub fn rebuilt_at(&self) -> Option<u64> {
        self.rebuilt_at
    }

    /// Whether a commit folded added the file and said that rows change.
    pub fn has_added(&self, file: &FileId) -> bool {
        self.added.contains(&file.fingerprint())
    }

    /// Goes on by one commit.
    pub fn fold(&mut self, commit: &Commit) {
        self.context = self.generation().max(commit.stamp().map(|s| s.generation));
        match &commit.author {
            Author::Ours { stamp, .. } => self.fold_ours(commit, stamp),
            Author::Damaged(why) => {
                self.find(commit.version, Rule::Chain, format!("the commit info cannot be trusted: {why}"))
            }
            Author::Foreign(_) => {
                if self.is_ours() {
                    self.judge(commit.version, self.classify(commit));
                }
                if let Some(action) = commit.unknown_actions.first() {
                    let message = format!("a foreign commit has the action {action:?}, which is not known here");
                    self.note(commit.version, None, message);
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
        foreign::classify(commit, self.table.as_ref(), self.live.as_ref())
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
        if self.last.is_none() {
            self.check_anchor(commit, stamp);
        }
        self.check_actions(commit, stamp);
        let table = commit.table.as_ref().or(self.table.as_ref());
        for (rule, file, message) in form::faults(commit, stamp, table, self.layout(commit, stamp)) {
            self.findings.push(self.finding(at, rule, file, message));
        }
        for add in commit.adds.iter().filter(|a| a.data_change) {
            let is_live = self.live.as_ref().is_some_and(|live| live.contains_key(&add.file))
                && commit.removes.iter().all(|r| r.file != add.file);
            if !self.added.insert(add.file.fingerprint()) || is_live {
                let path = &add.file.path;
                self.find_file(at, Rule::Once, path, format!("the file {path} is added a second time"));
            }
        }
        self.extend_segments(at, stamp);
        self.skipped = false;
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
            if stamp.epoch > before.epoch && !self.skipped && !matches!(stamp.kind, Kind::Mark | Kind::Reload) {
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
            let total = show(stamp.digest_total);
            self.find(
                at,
                Rule::Chain,
                format!("the digest of the generation is {total}, not the reload's own {}", stamp.digest),
            );
        }
        // Commits of programs that did not count them have none.
        if let Some(total) = stamp.rows_total.filter(|total| *total != stamp.rows) {
            self.find(
                at,
                Rule::Chain,
                format!("the rows of the generation are {total}, not the reload's own {}", stamp.rows),
            );
        }
        let rebuilds = stamp.commit.starts_with(COMMIT_PREFIX_REBUILD);
        if rebuilds {
            self.rebuilt_at = Some(at);
        }
        // A rebuild removes whatever was ever named, live or not.
        if !rebuilds
            && let Some(live) = &self.live
            && let Some(stray) = commit.removes.iter().find(|r| !live.contains_key(&r.file))
        {
            let path = stray.file.path.clone();
            self.find_file(at, Rule::Reload, &path, format!("the reload removes the file {path}, which was not live"));
        }
        let removed: HashSet<&FileId> = commit.removes.iter().map(|r| &r.file).collect();
        let live = self.live.iter().flat_map(|live| live.keys());
        let leftover: Vec<String> = live.filter(|file| !removed.contains(file)).map(|file| file.path.clone()).collect();
        if let Some(path) = leftover.first() {
            let message = format!("the reload leaves {} older files live, {path} among them", leftover.len());
            self.find_file(at, Rule::Reload, path, message);
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
            Some(Ok(Some(t))) => {
                let message = format!(
                    "the table properties and the commit info of the reload disagree: generation {} and {}, step {} and {}, connector {} and {}, commit {} and {}",
                    t.generation,
                    stamp.generation,
                    t.step,
                    stamp.to,
                    t.connector,
                    stamp.connector,
                    t.commit,
                    stamp.commit
                );
                self.find(at, Rule::Reload, message);
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
        } else if self.skipped {
            // What it follows is not known.
            return;
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
        if stamp.digest_total != expected {
            let (shown, expected) = (show(stamp.digest_total), show(expected));
            self.find(
                at,
                Rule::Chain,
                format!("the digest of the generation is {shown}, its commits add up to {expected}"),
            );
        }
        if let (Some(total), Some(before)) = (stamp.rows_total, before.rows_total)
            && total != before + stamp.rows
        {
            let expected = before + stamp.rows;
            self.find(
                at,
                Rule::Chain,
                format!("the rows of the generation are {total}, its commits add up to {expected}"),
            );
        }
    }

    /// The first commit folded goes on from what `txn` and properties said before it.
    fn check_anchor(&mut self, commit: &Commit, stamp: &CommitStamp) {
        let at = commit.version;
        if let Some(epoch) = self.anchor.epoch {
            let claims = matches!(stamp.kind, Kind::Mark | Kind::Reload);
            if stamp.epoch.as_i64() < epoch {
                self.find(at, Rule::Fence, format!("the epoch {} commits after the epoch {epoch}", stamp.epoch));
            } else if stamp.epoch.as_i64() > epoch && !claims {
                self.find(at, Rule::Fence, format!("the epoch {} begins without a claim", stamp.epoch));
            }
        }
        if stamp.kind == Kind::Reload {
            return;
        }
        if let (Some(step), Some(from)) = (self.anchor.step, stamp.from)
            && from.as_i64() != step
        {
            let message = format!("the {} starts at step {from}, the table ended at {step} before it", stamp.kind);
            self.find(at, Rule::Chain, message);
        }
        let Some(before) = self.stamp.clone() else { return };
        if stamp.generation != before.generation {
            let message =
                format!("the generation {} commits to a table of generation {}", stamp.generation, before.generation);
            self.find(at, Rule::Fence, message);
        }
        if stamp.connector != before.connector && commit.table.is_none() {
            let message = format!("the connector {} commits to the table of {}", stamp.connector, before.connector);
            self.find(at, Rule::Fence, message);
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
            match rows_kept(commit, self.live.as_ref()) {
                // Of ours it is believed, as the rows of an append are: the live files have all that commits count.
                Foreign::Unclear(_) if self.live.is_none() => {}
                judged => self.judge(at, judged),
            }
            return;
        }
        if stamp.kind == Kind::Append && self.layout(commit, stamp) == Layout::Current {
            for (rule, file, message) in replaced::faults(commit, stamp, self.live.as_ref()) {
                self.findings.push(self.finding(at, rule, file, message));
            }
            self.check_metadata(commit, stamp);
            return;
        }
        let Some(rows) = commit.added_rows() else {
            let path = commit.adds.iter().find(|a| a.rows.is_none()).map(|a| a.file.path.clone()).unwrap_or_default();
            self.find_file(at, Rule::Files, &path, format!("the file {path} is added without a row count"));
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
            let path = add.file.path.clone();
            self.find_file(at, Rule::Once, &path, format!("the file {path} is added as if no rows changed"));
        }
        let is_reload = stamp.kind == Kind::Reload;
        // Sources that stream versions learn of a reload by what it removes.
        if let Some(removed) = commit.removes.iter().find(|removed| !(is_reload && removed.data_change)) {
            let path = removed.file.path.clone();
            let how = if is_reload { " as if no rows changed" } else { "" };
            self.find_file(at, Rule::Reload, &path, format!("the {} removes the file {path}{how}", stamp.kind));
        }
        self.check_metadata(commit, stamp);
    }

    /// The layout of the table in which a commit of ours was made.
    fn layout(&self, commit: &Commit, stamp: &CommitStamp) -> Layout {
        let told = self.stamp.as_ref().map(|table| table.layout);
        let known = self.known_layout.filter(|(generation, _)| *generation == stamp.generation);
        told.or(known.map(|(_, layout)| layout)).unwrap_or({
            // Of a generation that is gone only its commits are left.
            if commit.removes.is_empty() { Layout::Changelog } else { Layout::Current }
        })
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
        } else if !columns::same_properties(&old.properties, &new.properties) {
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
        let rebuilds = self.rebuilt_at == Some(commit.version);
        if rebuilds || (commit.stamp().is_some_and(|s| s.kind == Kind::Reload) && self.live.is_none()) {
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
