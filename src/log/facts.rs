//! What the table says of itself at its head: read anew, then advanced by each own commit.

use std::collections::HashMap;
use std::time::Duration;

use arrow::datatypes::Schema;

use super::clustering::CLUSTERING_DOMAIN;
use super::entry::{Metadata, Protocol};
use super::salvage::Carried;
use super::upkeep::{self, ROW_TRACKING_DOMAIN, Upkeep};
use super::{Condition, Listing, LiveFile, Log, Replayed, clustering, entry, features, mapping};
use crate::continuity::commit::{Commit, FileId};
use crate::continuity::history::{History, Live};
use crate::continuity::plan::{Ours, Standing};
use crate::continuity::stamp::{CommitStamp, Kind, TXN_RETENTION, TableStamp};
use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind, Result};
use crate::step::Step;

/// The table at one version.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The version; `None` when there is no table.
    pub version: Option<u64>,
    /// The metadata; `None` when there is no table.
    pub metadata: Option<Metadata>,
    /// The protocol; `None` when there is no table.
    pub protocol: Option<Protocol>,
    /// What continuity makes of it.
    pub standing: Standing,
    /// The version of the newest checkpoint, by its name.
    pub checkpoint: Option<u64>,
    /// What features ask the next commit to carry on.
    pub(super) upkeep: Upkeep,
    /// The columns that the table is clustered by, as paths of their names in data files.
    pub(super) clustered_by: Vec<Vec<String>>,
    /// The head's size and tag, by which it is known again.
    pub(super) head: Option<HeadMark>,
    /// The version of which this writer itself may write a checkpoint meanwhile.
    pub(super) own_checkpoint: Option<u64>,
    /// What the next commit must repeat, since no reader gets to the entries that say it.
    pub(super) carried: Carried,
    /// The files of a log that does not load, by which it is known again; `None` where the head is a base.
    pub(super) ruins: Option<Vec<(String, u64)>>,
    /// When these facts were last known to be the head's, by the boot clock.
    pub(super) checked: Duration,
}

/// What tells an entry from another of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadMark {
    pub(super) size: u64,
    pub(super) tag: Option<String>,
    pub(super) checkpoint: Option<(u64, chrono::DateTime<chrono::Utc>)>,
}

impl Facts {
    /// No table, as of `checked`.
    pub(super) fn absent(checked: Duration) -> Self {
        Self {
            version: None,
            metadata: None,
            protocol: None,
            standing: Standing::Absent,
            checkpoint: None,
            upkeep: Upkeep::default(),
            clustered_by: Vec::new(),
            head: None,
            own_checkpoint: None,
            carried: Carried::default(),
            ruins: None,
            checked,
        }
    }

    /// The table of ours, if it is.
    pub fn ours(&self) -> Option<&Ours> {
        match &self.standing {
            Standing::Ours(ours) => Some(ours),
            Standing::Absent | Standing::Foreign => None,
        }
    }

    /// Says that the writer who holds these facts writes a checkpoint of `version`, so that it is not taken for another's.
    pub fn expect_checkpoint(&mut self, version: u64) {
        self.own_checkpoint = Some(version);
    }

    /// Takes over what the facts `before` say that others do not know.
    pub(crate) fn succeed(&mut self, before: &Self) {
        self.own_checkpoint = before.own_checkpoint;
    }

    /// Whether data files know the columns by names or ids of their own.
    pub fn maps_columns(&self) -> bool {
        let both = self.protocol.as_ref().zip(self.metadata.as_ref());
        both.is_some_and(|(protocol, metadata)| mapping::mode(protocol, metadata).is_some())
    }

    /// Whether data files hold the partition columns too.
    pub fn materializes_partition_columns(&self) -> bool {
        self.protocol.as_ref().is_some_and(|protocol| features::supports(protocol, features::MATERIALIZED))
    }
}

impl Log {
    /// Reads the facts anew.
    ///
    /// Refused: a folder that has files but no log; a table whose features our commits do not keep. Corrupt: a log
    /// that cannot be replayed, or whose newest entry is torn; the message names the command that repairs it.
    pub async fn facts(&self) -> Result<Facts> {
        // Damage and drift stay; a listing that names entries twice, or others cleaned up behind, does not.
        match self.facts_at_once().await {
            Ok(facts) if facts.ours().is_none_or(|ours| ours.drift.is_none()) => return Ok(facts),
            Err(e) if e.kind() != ErrorKind::Corrupt => return Err(e),
            _ => {}
        }
        match self.facts_at_once().await {
            Err(e) if e.kind() == ErrorKind::Corrupt => Err(self.explained(e).await),
            other => other,
        }
    }

    /// The same, where a log that does not load has no remedy yet.
    pub(super) async fn facts_at_once(&self) -> Result<Facts> {
        let checked = self.world.clock.boot();
        let mut listing = self.list(0).await?;
        let mut stray = None;
        if listing.head().is_none() {
            stray = self.object_without_log().await?;
            if stray.is_some() {
                // Others may have loaded the table since: its log is there before such files are.
                listing = self.list(0).await?;
            }
        }
        if listing.head().is_none() {
            if let Some(object) = stray {
                return Err(Error::refused(format!(
                    "the folder {} has files ({object} among them) but no Delta log; restore its _delta_log, or replace it with `cutover reset --rebuild-log`, or choose an empty folder or a Delta table",
                    self.location().uri()
                )));
            }
            return Ok(Facts::absent(checked));
        }
        let listing = self.led(listing).await??;
        let replayed = match self.kernel.replay(None).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => return Err(self.diagnose(&listing, e).await),
            other => other?,
        };
        let version = replayed.version;
        if listing.versions.last().is_some_and(|newest| *newest > version) {
            return Err(self.passed_over(version).await);
        }
        let head = self.head_mark(version).await?;
        let checkpoint = listing.checkpoints.last().copied();
        let time = match upkeep::has_times(&replayed.protocol, &replayed.metadata) {
            true => self.read(version).await?.and_then(|bytes| entry::in_commit_timestamp(&bytes)),
            false => None,
        };
        let domain = |name: &str| replayed.domains.get(name).map(String::as_str);
        let upkeep = Upkeep::new(&replayed.protocol, &replayed.metadata, time, domain(ROW_TRACKING_DOMAIN))?;
        let clustered_by = domain(CLUSTERING_DOMAIN).map_or(Ok(Vec::new()), clustering::columns)?;
        let (metadata, protocol) = (replayed.metadata, replayed.protocol);
        let stamp = TableStamp::decode(&metadata.configuration);
        let carries_txn = replayed.step.is_some() || replayed.epoch.is_some();
        let standing = if matches!(stamp, Ok(None)) && !carries_txn {
            // The newest entry must be whole whoever wrote it.
            self.commit(version).await?;
            Standing::Foreign
        } else {
            // Another contract is never guessed at.
            let stamp = match stamp {
                Err(e) if e.kind() == ErrorKind::Incompatible => return Err(e),
                other => other.ok().flatten(),
            };
            let step = replayed.step.map(Step::from_i64).transpose()?;
            let epoch = replayed
                .epoch
                .map(|e| u64::try_from(e).map_err(|_| negative_epoch(e)).and_then(Epoch::new))
                .transpose()?;
            Standing::Ours(Box::new(self.ours(&listing, version, stamp, step, epoch).await?))
        };
        Ok(Facts {
            version: Some(version),
            metadata: Some(metadata),
            protocol: Some(protocol),
            standing,
            checkpoint,
            upkeep,
            clustered_by,
            head,
            own_checkpoint: None,
            carried: Carried::default(),
            ruins: None,
            checked,
        })
    }

    /// The live files at the version of `facts`.
    pub async fn live_files(&self, facts: &Facts) -> Result<Vec<LiveFile>> {
        match facts.version {
            Some(version) => self.live_files_at(version).await,
            None => Ok(Vec::new()),
        }
    }

    /// The live files at `version`.
    pub async fn live_files_at(&self, version: u64) -> Result<Vec<LiveFile>> {
        self.kernel.live_files(version, Vec::new(), |files, file| files.push(file)).await
    }

    /// The live files at `version`, each with the text of its statistics.
    pub async fn live_stats_at(&self, version: u64) -> Result<Vec<(LiveFile, Option<Box<str>>)>> {
        let take = |files: &mut Vec<_>, file, stats: Option<&str>| files.push((file, stats.map(Box::from)));
        self.kernel.live_files_with_stats(version, Vec::new(), take).await
    }

    /// The live files at `version` as the fold knows them, each taken as added there.
    pub async fn live_map_at(&self, version: u64) -> Result<HashMap<FileId, Live>> {
        let take = move |files: &mut HashMap<FileId, Live>, file: LiveFile| {
            let live = live(&file, version);
            files.insert(file.into_id(), live);
        };
        self.kernel.live_files(version, HashMap::new(), take).await
    }

    /// The same; `None` where the log was cleaned up so far that nobody can tell.
    async fn live_map_where_kept(&self, version: u64) -> Result<Option<HashMap<FileId, Live>>> {
        match self.live_map_at(version).await {
            Err(e) if e.kind().leaves_open() => Err(e),
            found => Ok(found.ok()),
        }
    }

    /// What the log says at `version`, or at its head, by a replay from its newest checkpoint on.
    pub async fn replay(&self, version: Option<u64>) -> Result<Replayed> {
        self.kernel.replay(version).await
    }

    /// Refuses a table in which no commit of ours would be right.
    pub fn check_features(&self, facts: &Facts) -> Result<()> {
        let (Some(protocol), Some(metadata)) = (&facts.protocol, &facts.metadata) else { return Ok(()) };
        if metadata.configuration.contains_key(TXN_RETENTION) {
            return Err(Error::incompatible(format!(
                "the table sets {TXN_RETENTION}, by which other engines forget our last step; unset it (ALTER TABLE … UNSET TBLPROPERTIES)"
            )));
        }
        features::check(protocol, metadata)?;
        facts.upkeep.check()
    }

    /// Refuses a table of which no reload may remove the files.
    pub fn check_reload(&self, facts: &Facts) -> Result<()> {
        features::check_removals(facts, "a reload")
    }

    /// Refuses a table in which no commit of ours may delete single rows.
    pub fn check_deletions(&self, facts: &Facts) -> Result<()> {
        features::check_deletions(facts)
    }

    /// Whether the table gives ids to rows, which a commit draws when it is put.
    pub(crate) fn tracks_rows(&self, facts: &Facts) -> bool {
        let both = facts.protocol.as_ref().zip(facts.metadata.as_ref());
        both.is_some_and(|(protocol, metadata)| upkeep::tracks_rows(protocol, metadata))
    }

    /// Refuses rows with `schema` that a feature of the table has no room for.
    pub fn check_columns(&self, facts: &Facts, schema: &Schema) -> Result<()> {
        features::check_columns(facts, schema)
    }

    /// Goes back from the head to our last commit of rows; what others did since is maintenance or drift.
    ///
    /// A claim changes no row and is passed over, so that drift before it is not forgotten.
    async fn ours(
        &self,
        listing: &Listing,
        head: u64,
        stamp: Option<TableStamp>,
        step: Option<Step>,
        epoch: Option<Epoch>,
    ) -> Result<Ours> {
        let mut since: Vec<Commit> = Vec::new();
        for version in (0..=head).rev() {
            let Some(commit) = self.commit(version).await? else { break };
            let anchor = commit.stamp().is_some_and(|s| matches!(s.kind, Kind::Reload | Kind::Append));
            since.push(commit);
            if anchor {
                break;
            }
        }
        since.reverse();
        let last = since.iter().rev().find_map(|c| c.stamp()).cloned();
        let drift = match self.emptied(listing, head).await? {
            // The kernel takes it for a commit without actions.
            Some(version) => Some(format!("the log entry of version {version} is empty")),
            None => self.misfit(since.first()).await?,
        };
        let drift = match drift {
            Some(drift) => Some(drift),
            None => self.drift(&since, stamp.as_ref()).await?.or(disagreement(stamp.as_ref(), last.as_ref(), step)),
        };
        let (connector, generation) = match (&last, &stamp) {
            (Some(l), Some(s)) => (l.connector.clone(), l.generation.max(s.generation)),
            (Some(l), None) => (l.connector.clone(), l.generation),
            (None, Some(s)) => (s.connector.clone(), s.generation),
            (None, None) => {
                return Err(Error::corrupt(
                    "the table carries txns of ours, but neither its properties nor its log tell of which connector",
                ));
            }
        };
        let last_step = last.as_ref().map(|l| l.to).or(step).or(stamp.as_ref().map(|s| s.step));
        let highest = last.as_ref().map(|l| l.epoch).max(epoch);
        let (Some(last_step), Some(epoch)) = (last_step, highest) else {
            return Err(Error::corrupt("the table is ours, but nothing in it tells the last step and the epoch"));
        };
        Ok(Ours {
            stamp,
            connector,
            generation,
            last_step,
            strand: last.as_ref().and_then(|l| l.strand),
            epoch,
            writer: last.as_ref().filter(|l| l.epoch == epoch).map(|l| l.writer.clone()),
            digest_total: last.as_ref().and_then(|l| l.digest_total),
            rows_total: last.and_then(|l| l.rows_total),
            drift,
            last_millis: since.iter().rev().find(|c| c.stamp().is_some()).and_then(|c| c.millis),
        })
    }

    /// The newest entry above the newest checkpoint that has no bytes, unless a reload of ours came after it.
    async fn emptied(&self, listing: &Listing, head: u64) -> Result<Option<u64>> {
        let Some(newest) = listing.empty.last().copied() else { return Ok(None) };
        if listing.checkpoints.last().is_some_and(|checkpoint| *checkpoint > newest) {
            return Ok(None);
        }
        for version in newest + 1..=head {
            let commit = self.commit(version).await?;
            if commit.is_some_and(|commit| commit.stamp().is_some_and(|stamp| stamp.kind == Kind::Reload)) {
                return Ok(None);
            }
        }
        Ok(Some(newest))
    }

    /// How our commit `first` does not follow the one before it, where that is ours too: an entry that was copied or
    /// left out shows there.
    async fn misfit(&self, first: Option<&Commit>) -> Result<Option<String>> {
        let Some((first, stamp)) = first.and_then(|c| Some((c, c.stamp()?))) else { return Ok(None) };
        let Some(before) = first.version.checked_sub(1) else { return Ok(None) };
        let before = match self.commit(before).await {
            Err(e) if e.kind() == ErrorKind::Corrupt => return Ok(None),
            other => other?,
        };
        let Some(earlier) = before.as_ref().and_then(|c| c.stamp()) else { return Ok(None) };
        let version = first.version;
        Ok(match stamp.from {
            _ if stamp.commit == earlier.commit => {
                Some(format!("version {version} repeats the one before it: the same commit stands in two versions"))
            }
            Some(from) if from != earlier.to => {
                let what = if from > earlier.to { "a gap" } else { "steps twice" };
                Some(format!(
                    "{what}: version {version} starts at step {from}, the one before it ended at {}",
                    earlier.to
                ))
            }
            Some(_) if stamp.generation != earlier.generation => Some(format!(
                "version {version} goes on in generation {}, the one before it was of {}",
                stamp.generation, earlier.generation
            )),
            _ => None,
        })
    }

    /// The first rule that the newest commits break, or what of them cannot be told.
    async fn drift(&self, since: &[Commit], stamp: Option<&TableStamp>) -> Result<Option<String>> {
        let Some(first) = since.first() else { return Ok(None) };
        let foreign = || since.iter().filter(|c| c.stamp().is_none());
        // What others did is judged against what stood before it. A reload, an adoption and an append that adds columns say
        // that themselves; another commit of ours changes neither metadata nor the files that were live before it.
        let kind = first.stamp().map(|s| s.kind);
        let before = match kind {
            Some(_) if first.table.is_some() => None,
            Some(_) => Some(first.version),
            None => first.version.checked_sub(1),
        };
        // What our own maintenance replaced is judged by the files before it as well.
        let rewrites = |c: &&Commit| c.stamp().is_none_or(|stamp| stamp.kind == Kind::Maintenance);
        let adopted = since.iter().any(|c| c.stamp().is_some_and(|s| s.adopt.is_some()));
        let changed = foreign().any(|c| c.table.is_some());
        let (needs_table, needs_files) =
            (adopted || changed, since.iter().filter(rewrites).any(|c| !c.adds.is_empty() || !c.removes.is_empty()));
        let mut history = History::from_the_middle(None);
        if let Some(before) = before {
            if needs_table {
                match self.kernel.replay(Some(before)).await {
                    Ok(replayed) => history = History::from_the_middle(Some(replayed.metadata.table())),
                    Err(e) if e.kind().leaves_open() => return Err(e),
                    Err(_) if !changed => {}
                    Err(_) => {
                        return Ok(Some(
                            "others changed the metadata, and what it was before cannot be read any more".into(),
                        ));
                    }
                }
            }
            if kind.is_none()
                && needs_files
                && let Some(files) = self.live_map_where_kept(before).await?
            {
                history.know_live_files(|| files);
            }
        }
        history.know_as_ours();
        if let Some(stamp) = stamp {
            history.know_layout(stamp);
        }
        for commit in since {
            history.fold(commit);
            if commit.version == first.version
                && kind.is_some()
                && needs_files
                && history.live().is_none()
                && let Some(files) = self.live_map_where_kept(first.version).await?
            {
                history.know_live_files(|| files);
            }
        }
        let found = history.findings().first().or(history.unclear().first());
        Ok(found.map(|f| format!("version {}: {}", f.version, f.message)))
    }

    /// Why a replay ended at `version`, though a listing has later ones.
    async fn passed_over(&self, version: u64) -> Error {
        let next = version + 1;
        match self.commit(next).await {
            // The replay lists for itself, and not every store lists at once what is there.
            Ok(Some(_)) => Error::unavailable(format!("version {next} is there, and a listing of the log lacks it")),
            Ok(None) => Error::corrupt(format!("the log goes on after version {version}, but not without a gap")),
            // A replay passes over an entry that it cannot read.
            Err(e) => e,
        }
    }

    /// Why a log cannot be loaded, by the entry that is to blame where one can be named.
    async fn diagnose(&self, listing: &Listing, error: Error) -> Error {
        let Some(head) = listing.head() else { return error };
        let end = listing.checkpoints.last().map_or(0, |checkpoint| checkpoint + 1);
        for version in (end..=head).rev() {
            match self.commit(version).await {
                Ok(Some(commit)) => {
                    if let Some(feature) = commit.refused_features.first() {
                        return Error::incompatible(format!(
                            "the log cannot be replayed, and since version {version} the table has the feature {feature:?}, which is not known here; drop it (ALTER TABLE … DROP FEATURE `{feature}`)"
                        ))
                        .with_source(error);
                    }
                }
                Ok(None) => {
                    return Error::corrupt(format!("the log entry of version {version} is missing")).with_source(error);
                }
                // What is wrong in the entry says more than what the replay made of it.
                Err(e) => return e,
            }
        }
        match listing.checkpoints.last() {
            Some(checkpoint) => {
                Error::corrupt(format!("the log cannot be replayed from its checkpoint of version {checkpoint}"))
                    .with_source(error)
            }
            None => error,
        }
    }

    /// The error with the command that repairs what it is about.
    async fn explained(&self, error: Error) -> Error {
        match self.condition().await {
            Ok(Condition::Around(_)) => error.with_remedy(RESET),
            Ok(Condition::Lost(_)) => error.with_remedy(REBUILD),
            Ok(Condition::Absent | Condition::Sound) | Err(_) => error.with_remedy(LOOK),
        }
    }
}

fn negative_epoch(epoch: i64) -> Error {
    Error::corrupt(format!("the table's txn holds the epoch {epoch}, which is no epoch of ours"))
}

const LOOK: &str = "see what `cutover verify` finds";
const RESET: &str = "see what `cutover verify` finds, and repair the table with `cutover reset`";
const REBUILD: &str = "see what `cutover verify` finds, and repair the table with `cutover reset --rebuild-log`, which needs no file of its log";

/// Live files as the fold knows them, each taken as added at `version`.
pub fn live_map(files: &[LiveFile], version: u64) -> HashMap<FileId, Live> {
    files.iter().map(|file| (file.id(), live(file, version))).collect()
}

fn live(file: &LiveFile, version: u64) -> Live {
    Live { size: file.size.unsigned_abs(), rows: file.rows, added_at: version }
}

/// How properties, txn and our last commit contradict each other.
fn disagreement(stamp: Option<&TableStamp>, last: Option<&CommitStamp>, step: Option<Step>) -> Option<String> {
    let last = last?;
    if let Some(step) = step
        && last.to != step
    {
        return Some(format!("the table's txn says step {step}, our last commit {}", last.to));
    }
    let generation = stamp?.generation;
    (generation != last.generation)
        .then(|| format!("the table's properties say generation {generation}, our last commit {}", last.generation))
}
