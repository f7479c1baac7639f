//! The rows of the live files, held against the digests that their commits left, and against the statistics.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use tokio::task::JoinSet;

use super::reasons;
use super::statistics::Statistics;
use crate::continuity::finding::Rule;
use crate::continuity::history::History;
use crate::data_file::{self, Origin, Wanted};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::log::{LiveFile, Log, Replayed, RowSet, table_schema};

/// What was read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowsRead {
    /// Data files.
    pub files: u64,
    /// Their rows.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the rows of a file come to.
struct Found {
    file: LiveFile,
    rows: Result<Rows>,
}

/// What was read of a file.
struct Rows {
    count: u64,
    digest: Digest,
    /// How many of them are deleted, and the digest of the others.
    deleted: u64,
    live: Digest,
    /// The statistics that do not hold for its rows.
    untrue: Option<String>,
}

/// A file with the text of its statistics, and its deleted rows as far as its vector tells them.
type Stated = (LiveFile, Option<Box<str>>, Result<RowSet>);

/// Reads every live file of a table of ours at the version of `replayed`; as many at once as there are processors.
pub(super) async fn check(log: &Log, history: &mut History, replayed: &Replayed) -> Result<RowsRead> {
    let mut read = RowsRead::default();
    let (head, schema) = (replayed.version, table_schema(&replayed.metadata));
    let origin = async {
        let schema = schema?;
        let origin = Origin::of(log, &log.facts().await?, &schema)?;
        let (files, stats): (Vec<LiveFile>, Vec<_>) = log.live_stats_at(head).await?.into_iter().unzip();
        let deleted = log.each_deleted_rows(&files).await?;
        let files = files.into_iter().zip(stats).zip(deleted).map(|((file, stats), deleted)| (file, stats, deleted));
        let files: Vec<Stated> = files.collect();
        Ok::<_, Error>((origin, Arc::new((*schema).clone()), files))
    };
    let (origin, schema, files) = match super::loaded(origin.await)? {
        Ok(known) => known,
        Err(e) => {
            history.find(head, Rule::Files, format!("the rows cannot be read: {}", reasons(&e)));
            return Ok(read);
        }
    };
    let mut found = all(log, origin, &schema, files).await?;
    found.sort_by(|a, b| a.file.path.cmp(&b.file.path));
    let mut total = Some(Digest::EMPTY);
    let mut unnoted: Vec<(u64, String)> = Vec::new();
    for Found { file, rows } in found {
        let added_at = history.live().and_then(|live| live.get(&file.id())).map_or(head, |live| live.added_at);
        // What a file should hold counts, so that one that differs is named once and not again by the sum.
        let counted = match rows {
            Ok(Rows { count: rows, digest, deleted, live, untrue }) => {
                read.files += 1;
                read.rows += rows;
                read.bytes += u64::try_from(file.size).unwrap_or(0);
                let noted = file.digest.unwrap_or(digest);
                let says = file.rows.map(|left| left + deleted).filter(|says| *says != rows);
                if noted != digest || says.is_some() {
                    let says = says.map(|says| format!("{rows} rows, the log says {says}; ")).unwrap_or_default();
                    let message = format!(
                        "the file {} has other rows than were written to it: {says}their digest is {digest}, written was {noted}",
                        file.path
                    );
                    history.find_file(added_at, Rule::Files, file.path.clone(), message);
                }
                if let Some(untrue) = untrue.filter(|_| !history.has_found(&file.path)) {
                    let message = format!(
                        "readers skip rows of the file {} that they look for, by statistics that are not true: {untrue}",
                        file.path
                    );
                    history.find_file(added_at, Rule::Files, file.path.clone(), message);
                }
                if file.digest.is_none() {
                    unnoted.push((added_at, file.path));
                }
                // What is left of a file that differs is not known where rows of it are deleted.
                if deleted == 0 { Some(noted) } else { (noted == digest).then_some(live) }
            }
            Err(e) => {
                if !history.has_found(&file.path) {
                    history.find_file(added_at, Rule::Files, file.path.clone(), reasons(&e));
                }
                file.digest.filter(|_| file.vector.is_none())
            }
        };
        total = total.zip(counted).map(|(total, counted)| total.plus(counted));
    }
    let expected = history.last().and_then(|last| last.stamp.digest_total);
    if let (Some(total), Some(expected)) = (total, expected)
        && total != expected
    {
        total_differs(history, head, total, expected, unnoted);
    }
    Ok(read)
}

/// Names the files that others wrote, since those of ours hold what was written to them.
fn total_differs(history: &mut History, head: u64, total: Digest, expected: Digest, mut unnoted: Vec<(u64, String)>) {
    unnoted.sort();
    let message = format!("the live rows have the digest {total}, the commits add up to {expected}");
    let Some((version, first)) = unnoted.first().cloned() else {
        history.find(head, Rule::Chain, message);
        return;
    };
    let others = match unnoted.len() - 1 {
        0 => String::new(),
        more => format!(" or {more} more that others wrote"),
    };
    let message = format!("{message}: rows were lost, doubled or changed when {first}{others} was written");
    history.find_file(version, Rule::Chain, first, message);
}

async fn all(log: &Log, origin: Origin, schema: &SchemaRef, files: Vec<Stated>) -> Result<Vec<Found>> {
    let at_once = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut tasks: JoinSet<Found> = JoinSet::new();
    let mut found = Vec::with_capacity(files.len());
    let mut files = files.into_iter();
    loop {
        while tasks.len() < at_once
            && let Some(file) = files.next()
        {
            tasks.spawn(one(log.clone(), origin.clone(), Arc::clone(schema), file));
        }
        match tasks.join_next().await {
            None => return Ok(found),
            Some(Ok(Found { rows: Err(e), .. })) if e.kind().leaves_open() => return Err(e),
            Some(Ok(one)) => found.push(one),
            Some(Err(e)) => return Err(Error::internal("reading a data file did not end").with_source(e)),
        }
    }
}

async fn one(log: Log, origin: Origin, schema: SchemaRef, (file, stats, deleted): Stated) -> Found {
    let rows = match deleted {
        Ok(deleted) => rows(&log, &origin, &schema, &file, stats.as_deref(), &deleted).await,
        Err(e) => Err(e),
    };
    Found { file, rows }
}

async fn rows(
    log: &Log,
    origin: &Origin,
    schema: &SchemaRef,
    file: &LiveFile,
    stats: Option<&str>,
    deleted: &RowSet,
) -> Result<Rows> {
    let mut statistics = Statistics::of(log, origin, schema, file, stats).await?;
    let wanted = Wanted { file: file.clone(), rows: None };
    let mut pieces = data_file::read(origin, vec![wanted], schema);
    let (mut count, mut digest, mut live) = (0, Digest::EMPTY, Digest::EMPTY);
    while let Some(piece) = pieces.try_next().await? {
        statistics.see(count, &piece.rows);
        count += piece.rows.num_rows() as u64;
        digest = digest.plus(Digest::of(&piece.rows)?);
        if !deleted.is_empty() {
            live = live.plus(Digest::of(&piece.without(deleted)?)?);
        }
    }
    let live = if deleted.is_empty() { digest } else { live };
    Ok(Rows { count, digest, deleted: deleted.len(), live, untrue: statistics.untrue() })
}
