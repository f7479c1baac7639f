//! The rows of a table as an exported snapshot of the database has them.
//!
//! ```text
//!   exported snapshot ─► transactions, one a connection ─► COPY of ranges of pages ─► batches
//! ```
//!
//! A snapshot keeps rows, not tables: one that was truncated or rewritten after it is empty to it, without an error. So a
//! lock is taken that keeps the table as it is, and then what the snapshot knows of the table must be what it is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::catalog::{Column, Table, TableName, Wishes};
use super::rows::Rows;
use super::server::{Server, Session};
use crate::error::{Error, ErrorKind, Result, panic_text};

/// How long the table's lock may be waited for.
const LOCK: &str = "30s";
/// The fewest and the most pages that are read at once, so that all connections end about together.
const PAGES: std::ops::RangeInclusive<u64> = 1024..=16_384;
/// How many ranges there are for each connection, within these bounds.
const RANGES: u64 = 8;
/// What a batch holds at most, but for its last row.
const BATCH_ROWS: usize = 16_384;
/// The same in bytes.
const BATCH_BYTES: usize = 8 << 20;
/// The first version that finds rows by ranges of pages without reading all others.
const FIRST_WITH_RANGES: i32 = 140_000;
/// What binary COPY begins with.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// A table at an exported snapshot, held as it is there. The one who exported the snapshot may go.
pub(crate) struct Copy {
    table: Table,
    sessions: Vec<Session>,
    ranges: Vec<Range>,
}

/// Some pages of a part of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Range {
    part: TableName,
    from: u64,
    /// The page behind the last one; `None`: to the end.
    until: Option<u64>,
}

impl Copy {
    /// Opens the snapshot on as many connections. `None`: the table was altered, truncated or rewritten since the snapshot
    /// was taken, which is not good for it any more.
    pub(crate) async fn open(
        server: &Server,
        name: &TableName,
        wishes: &Wishes,
        snapshot: &str,
        connections: usize,
    ) -> Result<Option<Self>> {
        if !snapshot.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(Error::internal(format!("{snapshot:?} is no name of a snapshot")));
        }
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '{snapshot}'; \
             SET LOCAL lock_timeout = '{LOCK}'; LOCK TABLE {} IN ACCESS SHARE MODE",
            name.quoted()
        );
        let open = || async {
            let session = server.connect().await?;
            session.execute(&begin).await.map_err(|e| match e.kind() {
                // Who exported it has gone, with the snapshot.
                ErrorKind::Internal => Error::unavailable(e.message()).with_source(e),
                _ => e,
            })?;
            Ok::<_, Error>(session)
        };
        let (witness, sessions) = futures::future::try_join(
            server.connect(),
            futures::future::try_join_all((0..connections.max(1)).map(|_| open())),
        )
        .await?;
        let Some(first) = sessions.first() else { return Err(Error::internal("no connection was opened")) };
        let is = witness.steadily(Table::read(&witness, name, wishes)).await?;
        let table = Table::read(first, name, wishes).await?;
        if table != is {
            return Ok(None);
        }
        table.check_readable(server.role())?;
        let ranges = ranges(&witness, &table, sessions.len()).await?;
        Ok(Some(Self { table, sessions, ranges }))
    }

    /// The table as it is at the snapshot.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// The rows, with the columns of `schema`, which are the table's; in any order.
    pub(crate) fn rows(self, schema: SchemaRef) -> BoxStream<'static, Result<RecordBatch>> {
        let work = Arc::new(Work { table: self.table, schema, ranges: self.ranges, begun: AtomicUsize::new(0) });
        let (sender, batches) = mpsc::channel(self.sessions.len());
        let mut readers = JoinSet::new();
        for session in self.sessions {
            readers.spawn(work.clone().read(session, sender.clone()));
        }
        stream::try_unfold((batches, readers), |(mut batches, mut readers)| async move {
            loop {
                tokio::select! {
                    Some(batch) = batches.recv() => return Ok(Some((batch, (batches, readers)))),
                    Some(ended) = readers.join_next() => ended.map_err(lost)??,
                    else => return Ok(None),
                }
            }
        })
        .boxed()
    }
}

impl std::fmt::Debug for Copy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copy").field("table", &self.table.name).finish_non_exhaustive()
    }
}

/// The pages of the table's parts, in ranges.
async fn ranges(session: &Session, table: &Table, connections: usize) -> Result<Vec<Range>> {
    const PAGES_OF: &str = "SELECT oid, pg_catalog.pg_relation_size(oid) / current_setting('block_size')::int8,
        current_setting('server_version_num')::int4 FROM unnest($1::oid[]) oid";
    let oids: Vec<u32> = table.parts.iter().map(|part| part.oid).collect();
    let sizes = session.query(PAGES_OF, &[&oids]).await?;
    let pages = |oid: u32| sizes.iter().find(|row| row.get::<_, u32>(0) == oid);
    let total: u64 = sizes.iter().map(|row| row.get::<_, i64>(1).unsigned_abs()).sum();
    let size = (total / (connections as u64 * RANGES)).clamp(*PAGES.start(), *PAGES.end());
    let mut ranges = Vec::new();
    for part in &table.parts {
        let Some(row) = pages(part.oid) else { continue };
        let (pages, version) = (row.get::<_, i64>(1).unsigned_abs(), row.get::<_, i32>(2));
        let starts: BTreeSet<u64> = match version {
            FIRST_WITH_RANGES.. => (0..pages.max(1)).step_by(size as usize).collect(),
            _ => [0].into(),
        };
        for from in &starts {
            let until = Some(from + size).filter(|until| starts.contains(until));
            ranges.push(Range { part: part.name.clone(), from: *from, until });
        }
    }
    Ok(ranges)
}

fn lost(error: JoinError) -> Error {
    match error.try_into_panic() {
        Ok(panic) => Error::internal(format!("reading a table panicked: {}", panic_text(&*panic))),
        Err(e) => Error::internal("nobody waited for a table's reader").with_source(e),
    }
}

/// What the readers share.
struct Work {
    table: Table,
    schema: SchemaRef,
    ranges: Vec<Range>,
    /// How many ranges are taken.
    begun: AtomicUsize,
}

impl Work {
    /// Reads ranges until none is left, or nobody wants more.
    async fn read(self: Arc<Self>, session: Session, batches: mpsc::Sender<RecordBatch>) -> Result<()> {
        let mut rows = Rows::new(format!("{}: {}", session.place(), self.table.name), &self.table.columns);
        while let Some(range) = self.ranges.get(self.begun.fetch_add(1, Ordering::Relaxed)) {
            let (doing, statement) = (format!("reading {}", range.part), range.statement(&self.table.columns));
            let mut copy = Box::pin(session.answer(&doing, session.client().copy_out(&statement)).await?);
            let mut form = Form::default();
            while let Some(bytes) = session.answer(&doing, copy.try_next()).await? {
                form.take(&bytes, &mut rows)?;
                if (rows.len() >= BATCH_ROWS || rows.bytes() >= BATCH_BYTES)
                    && batches.send(self.batch(&mut rows)?).await.is_err()
                {
                    return Ok(());
                }
            }
            form.check_end(session.place())?;
        }
        if rows.len() > 0 {
            // Nobody who wants more is no failure.
            let _ = batches.send(self.batch(&mut rows)?).await;
        }
        Ok(())
    }

    fn batch(&self, rows: &mut Rows) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), rows.finish(), &options).map_err(|e| {
            Error::incompatible(format!("the rows of {} do not fit the view's columns", self.table.name)).with_source(e)
        })
    }
}

impl Range {
    fn statement(&self, columns: &[Column]) -> String {
        let selected: Vec<String> = columns.iter().map(Column::selected).collect();
        let within = match (self.from, self.until) {
            (0, None) => String::new(),
            (from, None) => format!(" WHERE ctid >= '({from},0)'"),
            (from, Some(until)) => format!(" WHERE ctid >= '({from},0)' AND ctid < '({until},0)'"),
        };
        let (selected, part) = (selected.join(", "), self.part.quoted());
        format!("COPY (SELECT {selected} FROM ONLY {part}{within}) TO STDOUT (FORMAT binary)")
    }
}

/// How far a COPY is: a head, rows, and an end, in pieces that are cut anywhere.
#[derive(Debug, Default)]
struct Form {
    rest: Vec<u8>,
    has_head: bool,
    has_ended: bool,
}

impl Form {
    fn take(&mut self, bytes: &[u8], rows: &mut Rows) -> Result<()> {
        if self.rest.is_empty() {
            let rest = self.taken(bytes, rows)?;
            self.rest.extend_from_slice(rest);
            return Ok(());
        }
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        self.rest = self.taken(&all, rows)?.to_vec();
        Ok(())
    }

    /// Takes whole rows; gives what is left.
    fn taken<'a>(&mut self, mut bytes: &'a [u8], rows: &mut Rows) -> Result<&'a [u8]> {
        if !self.has_head {
            let Some(behind) = head(bytes)? else { return Ok(bytes) };
            (bytes, self.has_head) = (behind, true);
        }
        while let Some((count, row)) = bytes.split_first_chunk::<2>() {
            if self.has_ended {
                return Err(Error::internal("COPY goes on behind its end"));
            }
            if i16::from_be_bytes(*count) == -1 {
                (bytes, self.has_ended) = (row, true);
                continue;
            }
            match rows.push_copied(row)? {
                Some(behind) => bytes = behind,
                None => break,
            }
        }
        Ok(bytes)
    }

    fn check_end(&self, place: &str) -> Result<()> {
        if self.has_ended && self.rest.is_empty() {
            return Ok(());
        }
        Err(Error::unavailable(format!("{place}: COPY ended before its end; it is done again")))
    }
}

/// What stands behind the head; `None`: it is not all there.
fn head(bytes: &[u8]) -> Result<Option<&[u8]>> {
    let wrong = || Error::internal("the server's COPY is not of the binary form that is known");
    let Some((signature, rest)) = bytes.split_at_checked(SIGNATURE.len()) else { return Ok(None) };
    if signature != SIGNATURE {
        return Err(wrong());
    }
    let Some((numbers, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
    let [f0, f1, f2, f3, l0, l1, l2, l3] = *numbers;
    if u32::from_be_bytes([f0, f1, f2, f3]) & 0xFFFF_0000 != 0 {
        return Err(wrong());
    }
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    Ok(rest.split_at_checked(length).map(|(_, rest)| rest))
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
