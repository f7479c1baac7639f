//! What a table holds beyond a bookmark, given only where nothing in between is missing, doubled or changed.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use futures::stream::{BoxStream, StreamExt};
use serde::Serialize;

use super::bookmark::Bookmark;
use super::in_order::{InOrder, continuity};
use super::state::{marked, readable, readable_files};
use crate::change::Op;
use crate::continuity::commit::Commit;
use crate::continuity::history::History;
use crate::continuity::plan::Ours;
use crate::continuity::stamp::{Kind, Layout, RowCounts, TableStamp};
use crate::data_file::Origin;
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Lost, Result};
use crate::generation::Generation;
use crate::log::{Facts, LiveFile, Log, live_map, table_schema};
use crate::schema::view_columns;
use crate::step::Step;

/// What the reader of the rows must do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Empty what was derived from the table, then apply the rows: they are all of the generation.
    Reload,
    /// Apply the rows: they are those of the steps after the bookmark's.
    Changes,
    /// Nothing: the table ends where the bookmark does.
    Nothing,
}

/// By what it is known that nothing is missing, doubled or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// By the commits since, each of which the log still holds.
    Log,
    /// By the digest of the rows, since the log does not hold or tell all of it any more.
    Digest,
    /// By the commits that the log still holds, and for a reload only: those before are gone, and the digest with them.
    LogInPart,
}

/// Rows of a table that a reader does not have yet.
pub struct News {
    /// What to do with them.
    pub outcome: Outcome,
    /// Why they can be trusted.
    pub proof: Proof,
    /// The generation.
    pub generation: Generation,
    /// The view's key; empty for a view without one.
    pub key: Vec<String>,
    /// The step that the rows follow; `None` for a reload.
    pub after: Option<Step>,
    /// The last step that they cover.
    pub step: Step,
    /// The version that is read.
    pub version: u64,
    /// The columns: generation, step and operation, then the view's.
    pub schema: SchemaRef,
    rows: BoxStream<'static, Result<RecordBatch>>,
    counts: RowCounts,
    is_drained: bool,
    bookmark: Bookmark,
    /// The digest of the generation up to `step`, where a commit tells.
    expected: Option<Digest>,
}

impl std::fmt::Debug for News {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("News").field("outcome", &self.outcome).field("bookmark", &self.bookmark).finish_non_exhaustive()
    }
}

/// The rows that the table holds beyond `bookmark`, in step order; those of the whole generation without a bookmark,
/// or when the table was loaded anew since. With `until`, no row of a later step.
///
/// The table is read at one version, its head at the call. Rows go through in bounded memory; files that hold none of
/// them are not opened.
///
/// Internal: there is no table. Refused: it is not ours, the bookmark is of another table or connector, or `until`
/// lies before what was read. Continuity lost: a gap, steps twice, drift, a table that was taken back to before the
/// bookmark, or continuity that cannot be proved. Corrupt: log or files are damaged. Incompatible: a feature that
/// cannot be read.
pub async fn changes(log: &Log, bookmark: Option<&Bookmark>, until: Option<Step>) -> Result<News> {
    let facts = log.facts().await?;
    let (stamp, last_step, metadata) = readable(log, &facts)?;
    if stamp.layout == Layout::Current {
        return Err(Error::incompatible(
            "the table has the layout current: it holds the view's rows, and not what changed; read it whole, or deliver the view to a table with layout = \"changelog\" as well",
        ));
    }
    let (Some(ours), Some(version)) = (facts.ours(), facts.version) else {
        return Err(Error::internal("a table that can be read has a version and is ours"));
    };
    if let Some(drift) = &ours.drift {
        return Err(broken(drift));
    }
    let followed = match bookmark {
        Some(bookmark) => followed(bookmark, &metadata.id, stamp, last_step, version)?,
        None => None,
    };
    let (after, least) = (followed.map(|b| b.step), followed.map_or(stamp.step, |b| b.step));
    if let Some(until) = until.filter(|until| *until < least) {
        return Err(Error::refused(format!(
            "step {until} was asked for, and what is read anyway goes up to step {least}; ask for that or a later one"
        )));
    }
    let step = until.map_or(last_step, |until| until.min(last_step));
    let outcome = match after {
        None => Outcome::Reload,
        Some(after) if after == step => Outcome::Nothing,
        Some(_) => Outcome::Changes,
    };
    let table = table_schema(metadata)?;
    let columns = marked(view_columns(&table).fields().to_vec());
    let order = InOrder {
        from: Origin::of(log, &facts, &table)?,
        columns: Arc::clone(&columns),
        generation: stamp.generation,
        after: after.map_or(i64::MIN, Step::as_i64),
        until: step.as_i64(),
    };
    let files = readable_files(log, &facts).await?;
    let read_before = followed.map_or(Digest::EMPTY, |b| b.digest);
    let told = commits(log, &facts, ours, stamp, followed).await?;
    let proof = match told {
        Told::Continuous(_) => Proof::Log,
        Told::Unclear(_) if ours.digest_total.is_some() => {
            let all = InOrder { until: last_step.as_i64(), ..order.clone() };
            add_up(all, files.clone(), read_before, ours.digest_total, last_step).await?;
            Proof::Digest
        }
        Told::Unclear(_) if outcome == Outcome::Reload => Proof::LogInPart,
        Told::Unclear(ref why) => {
            return Err(Error::continuity_lost(
                Lost::Unproved,
                format!(
                    "that nothing is missing since step {} cannot be proved: {why}, and no digest of the generation is left; start anew with --reload",
                    least
                ),
            ));
        }
    };
    let expected = match &told {
        _ if step == last_step => ours.digest_total,
        Told::Continuous(commits) => {
            let stamps = commits.iter().filter_map(Commit::stamp);
            stamps.filter(|s| s.to == step).find_map(|s| s.digest_total)
        }
        Told::Unclear(_) => None,
    };
    let mut kept = Bookmark::new(metadata.id.clone(), stamp, step, version);
    kept.digest = read_before;
    Ok(News {
        outcome,
        proof,
        generation: stamp.generation,
        key: stamp.key.clone(),
        after,
        step,
        version,
        schema: columns,
        rows: if outcome == Outcome::Nothing { futures::stream::empty().boxed() } else { order.read(files) },
        counts: RowCounts::default(),
        is_drained: false,
        bookmark: kept,
        expected,
    })
}

impl News {
    /// The next rows; `None` at the end. After an error nothing of what was given may be kept.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = self.rows.try_next().await? else {
            self.is_drained = true;
            return Ok(None);
        };
        let (_, _, ops) = continuity(&rows)?;
        for op in ops.iter().flatten().filter_map(Op::from_letter) {
            match op {
                Op::Insert => self.counts.i += 1,
                Op::Update => self.counts.u += 1,
                Op::Delete => self.counts.d += 1,
            }
        }
        self.bookmark.digest = self.bookmark.digest.plus(Digest::of(&rows)?);
        Ok(Some(rows))
    }

    /// The rows given so far.
    pub fn counts(&self) -> RowCounts {
        self.counts
    }

    /// The bookmark behind the rows, once all of them were taken and are safe where they went.
    ///
    /// Continuity lost: the rows do not add up to the digest that their commits recorded.
    pub fn finish(self) -> Result<Bookmark> {
        if !self.is_drained {
            return Err(Error::internal("a bookmark was asked for before every row was taken"));
        }
        same_digest(self.bookmark.digest, self.expected, self.step)?;
        Ok(self.bookmark)
    }
}

/// The bookmark, when the table goes on in its generation; `None` when it was loaded anew.
fn followed<'a>(
    bookmark: &'a Bookmark,
    table: &str,
    stamp: &TableStamp,
    last_step: Step,
    version: u64,
) -> Result<Option<&'a Bookmark>> {
    if bookmark.table != table {
        return Err(Error::refused(format!(
            "the bookmark is of the table {}, this is {table}; name the bookmark of this one, or start anew with --reload",
            bookmark.table
        )));
    }
    let taken_back = |what: &str, read: String, found: String| {
        Error::continuity_lost(
            Lost::TableBehind,
            format!(
                "the table was taken back: the bookmark read {what} {read}, the table is at {found}; start anew with --reload once nothing restores older versions of it"
            ),
        )
    };
    if bookmark.generation > stamp.generation {
        return Err(taken_back("generation", bookmark.generation.to_string(), stamp.generation.to_string()));
    }
    if bookmark.version > version {
        return Err(taken_back("version", bookmark.version.to_string(), version.to_string()));
    }
    if bookmark.generation < stamp.generation {
        return Ok(None);
    }
    if bookmark.reload != stamp.commit {
        return Err(taken_back("the generation begun by", bookmark.reload.clone(), stamp.commit.clone()));
    }
    if bookmark.source != stamp.source {
        return Err(Error::continuity_lost(
            Lost::OtherSource,
            format!(
                "the bookmark is of the source {:?}, the table's generation {} of {:?}, and their steps cannot be compared; start anew with --reload",
                bookmark.source, stamp.generation, stamp.source
            ),
        ));
    }
    if bookmark.step > last_step {
        return Err(taken_back("step", bookmark.step.to_string(), last_step.to_string()));
    }
    if bookmark.step < stamp.step {
        return Err(Error::corrupt(format!(
            "the bookmark is damaged: it stands at step {}, before the cutover {} of its generation; start anew with --reload",
            bookmark.step, stamp.step
        )));
    }
    Ok(Some(bookmark))
}

/// What the log tells of what was not read yet.
enum Told {
    /// The commits, from the last one that was read or the reload on, and no rule is broken.
    Continuous(Vec<Commit>),
    /// It does not tell all of it; why.
    Unclear(String),
}

/// Folds the commits since the bookmark, or since the generation's reload.
async fn commits(
    log: &Log,
    facts: &Facts,
    ours: &Ours,
    stamp: &TableStamp,
    followed: Option<&Bookmark>,
) -> Result<Told> {
    let head = facts.version.unwrap_or_default();
    let is_start = |commit: &Commit| match (commit.stamp(), followed) {
        (Some(_), Some(bookmark)) => commit.version <= bookmark.version,
        (Some(found), None) => found.kind == Kind::Reload && found.commit == stamp.commit,
        (None, _) => false,
    };
    let mut found: Vec<Commit> = Vec::new();
    let mut down = std::pin::pin!(log.commits((0..=head).rev().collect()));
    while let Some((_, commit)) = down.next().await {
        let commit = commit.map_err(|e| match e.kind() {
            ErrorKind::Corrupt => Error::corrupt(format!(
                "{}; see what `cutover verify` finds, and repair the table with the reset that it names",
                e.message()
            ))
            .with_source(e),
            _ => e,
        })?;
        let Some(commit) = commit else { break };
        let ends = is_start(&commit);
        found.push(commit);
        if ends {
            break;
        }
    }
    found.reverse();
    let whole = found.first().filter(|first| is_start(first));
    if let (Some(first), Some(bookmark)) = (whole.and_then(Commit::stamp), followed)
        && (first.generation != bookmark.generation || first.to < bookmark.step)
    {
        return Err(Error::continuity_lost(
            Lost::TableBehind,
            format!(
                "the table was taken back: its version {} ended at step {} of generation {} when the bookmark read it, and is at step {} of generation {}; start anew with --reload once nothing restores older versions of it",
                bookmark.version, bookmark.step, bookmark.generation, first.to, first.generation
            ),
        ));
    }
    let is_whole = whole.is_some();
    let (history, opaque) = fold(log, &found).await?;
    if let Some(finding) = history.findings().first() {
        return Err(broken(&format!("version {}: {} {}", finding.version, finding.rule, finding.message)));
    }
    let names = found.iter().filter(|c| followed.is_some_and(|b| c.version > b.version));
    let names = names.filter_map(Commit::stamp).filter_map(|s| Some((s.adopt.as_ref()?, &s.connector)));
    if let Some(bookmark) = followed {
        let name = names.fold(&bookmark.connector, |name, (adopt, to)| if adopt.from == *name { to } else { name });
        if *name != ours.connector {
            return Err(Error::refused(format!(
                "the bookmark is of the connector {}, the table belongs to {}, and the log tells of no adoption; start anew with --reload",
                bookmark.connector, ours.connector
            )));
        }
    }
    if let Some(why) = opaque {
        return Ok(Told::Unclear(why));
    }
    if let Some(unclear) = history.unclear().first() {
        return Ok(Told::Unclear(format!("version {}: {}", unclear.version, unclear.message)));
    }
    if !is_whole {
        let since = found.first().map_or("no entry".to_string(), |c| format!("version {} on", c.version));
        return Ok(Told::Unclear(format!("the log holds {since} only")));
    }
    Ok(Told::Continuous(found))
}

/// The fold over `commits`, and why it could not judge all of what others did.
async fn fold(log: &Log, commits: &[Commit]) -> Result<(History, Option<String>)> {
    let mut history = History::from_the_middle(None);
    let mut opaque = None;
    let Some(first) = commits.first() else { return Ok((history, opaque)) };
    // The commit that sets the metadata itself is judged without what was there before it.
    let rest = || commits.iter().skip(1);
    let renews = |c: &&Commit| c.table.is_some() && c.stamp().is_none_or(|s| s.adopt.is_some());
    if first.table.is_none() && rest().any(|c| renews(&c)) {
        match log.replay(Some(first.version)).await {
            Ok(replayed) => history = History::from_the_middle(Some(replayed.metadata.table())),
            Err(e) if e.kind().leaves_open() => return Err(e),
            Err(_) => opaque = Some(format!("what version {} was cannot be read any more", first.version)),
        }
    }
    let is_kept = |c: &Commit| c.stamp().is_none_or(|stamp| stamp.kind == Kind::Maintenance);
    let rewrites = |c: &Commit| is_kept(c) && !(c.adds.is_empty() && c.removes.is_empty());
    let needs_files = rest().any(rewrites);
    history.know_as_ours();
    for commit in commits {
        history.fold(commit);
        if commit.version == first.version && needs_files && history.live().is_none() {
            match log.live_files_at(first.version).await {
                Ok(files) => history.know_live_files(|| live_map(&files, first.version)),
                Err(e) if e.kind().leaves_open() => return Err(e),
                Err(_) => {}
            }
        }
    }
    Ok((history, opaque))
}

/// Reads the rows once for their digest, which with `read_before` must be `expected`.
async fn add_up(
    order: InOrder,
    files: Vec<LiveFile>,
    read_before: Digest,
    expected: Option<Digest>,
    step: Step,
) -> Result<()> {
    let mut sum = read_before;
    let mut rows = order.read(files);
    while let Some(rows) = rows.try_next().await? {
        sum = sum.plus(Digest::of(&rows)?);
    }
    same_digest(sum, expected, step)
}

fn same_digest(found: Digest, expected: Option<Digest>, step: Step) -> Result<()> {
    match expected.filter(|expected| *expected != found) {
        None => Ok(()),
        Some(expected) => Err(broken(&format!(
            "the rows of the generation up to step {step} have the digest {found}, its commits add up to {expected}, so some were lost, doubled or changed"
        ))),
    }
}

fn broken(why: &str) -> Error {
    Error::continuity_lost(Lost::Drift, format!("{why}; see `cutover verify`, then repair the table with a reset"))
}
