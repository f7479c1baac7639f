//! What a table holds at a step, as far as its keys are in one part.

use std::collections::{HashMap, HashSet};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;

use super::eye::{Eye, Part, Seen};
use super::{DifferenceKind, Rows};
use crate::change::Op;
use crate::continuity::stamp::{Layout, TableStamp};
use crate::data_file::{self, Origin, Piece, Wanted};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::inspect::state::{Mark, marked, marks, readable, readable_files, values};
use crate::inspect::{listing, show};
use crate::log::{LiveFile, Log, RowSet, table_schema};
use crate::schema::view_columns;
use crate::step::Step;

/// A table at its head, or at an older version.
pub(super) struct Table {
    origin: Origin,
    files: Vec<LiveFile>,
    /// The places of deleted rows, for each file, in a table that is the view; `None` for a changelog.
    deleted: Option<Vec<RowSet>>,
    /// The view's columns.
    pub(super) view: SchemaRef,
    pub(super) stamp: TableStamp,
    /// The last step of the version.
    pub(super) last_step: Step,
    /// The last step at the head.
    pub(super) head_step: Step,
}

impl Table {
    /// The table at its head. One that is the view tells its rows where commits ended: it is opened at the last version that
    /// is not after `until`.
    pub(super) async fn open(log: &Log, until: Option<Step>) -> Result<Self> {
        listing(log).await?;
        let facts = log.facts().await?;
        let (stamp, head_step, metadata) = readable(log, &facts)?;
        let table = table_schema(metadata)?;
        let (origin, view) = (Origin::of(log, &facts, &table)?, view_columns(&table));
        let stamp = stamp.clone();
        if stamp.layout == Layout::Changelog {
            let files = readable_files(log, &facts).await?;
            return Ok(Self { origin, files, deleted: None, view, stamp, last_step: head_step, head_step });
        }
        let (mut version, mut last_step) = (facts.version, head_step);
        if let Some(until) = until.filter(|until| stamp.step <= *until && *until < head_step) {
            let mut shown = show(log, Some(until)).await?;
            if shown.last_step > until {
                let before = shown.before.unwrap_or(stamp.step);
                shown = show(log, Some(before)).await?;
            }
            (version, last_step) = (Some(shown.version), shown.last_step);
        }
        let version = version.ok_or_else(|| Error::internal("a table that can be read has a version"))?;
        let files = log.live_files_at(version).await?;
        files.iter().try_for_each(|file| file.object().map(|_| ()))?;
        let deleted = Some(log.deleted_rows(&files).await?);
        Ok(Self { origin, files, deleted, view, stamp, last_step, head_step })
    }

    /// The rows of its files, of all steps.
    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows.unwrap_or(0)).sum()
    }

    /// What it has of a part at step `at`.
    pub(super) async fn part(&self, eye: &Eye, part: Part, at: Step) -> Result<Held> {
        let mut held = if eye.is_keyed() { Held::Keyed(HashMap::new()) } else { Held::Keyless(HashMap::new()) };
        let mut pieces = data_file::read(&self.origin, self.all(), &self.columns());
        while let Some(piece) = pieces.try_next().await? {
            let (marks, seen) = (self.marks(&piece, at)?, eye.see(&self.view_of(&piece)?)?);
            for mark in marks {
                if let Some(seen) = seen.get(mark.row).filter(|seen| part.has(seen.id)) {
                    held.take(&mark, *seen, &piece.path)?;
                }
            }
        }
        held.check(at)?;
        Ok(held)
    }

    /// What names these rows, which it has at step `at`.
    pub(super) async fn texts(&self, eye: &Eye, at: Step, ids: &HashSet<u128>) -> Result<HashMap<u128, String>> {
        let mut texts = HashMap::new();
        if ids.is_empty() {
            return Ok(texts);
        }
        let mut pieces = data_file::read(&self.origin, self.all(), &self.columns());
        while let Some(piece) = pieces.try_next().await? {
            let rows = self.view_of(&piece)?;
            let seen = eye.see(&rows)?;
            for Mark { row, .. } in self.marks(&piece, at)? {
                if let Some(Seen { id, .. }) = seen.get(row).filter(|seen| ids.contains(&seen.id)) {
                    texts.insert(*id, eye.text(&rows, row)?);
                }
            }
            if texts.len() == ids.len() {
                break;
            }
        }
        Ok(texts)
    }

    fn all(&self) -> Vec<Wanted> {
        self.files.iter().map(|file| Wanted { file: file.clone(), rows: None }).collect()
    }

    fn columns(&self) -> SchemaRef {
        match self.deleted {
            Some(_) => self.view.clone(),
            None => marked(self.view.fields().to_vec()),
        }
    }

    /// The rows that count; those of a table that is the view are there because they are not deleted.
    fn marks(&self, piece: &Piece, at: Step) -> Result<Vec<Mark>> {
        let Some(deleted) = &self.deleted else {
            return marks(&piece.rows, &piece.path, self.stamp.generation, at);
        };
        let deleted = deleted.get(piece.file);
        let is_live = |row: &usize| !deleted.is_some_and(|deleted| deleted.contains((piece.first_row + row) as u64));
        let rows = (0..piece.rows.num_rows()).filter(is_live);
        Ok(rows.map(|row| Mark { row, step: at.as_i64(), op: Op::Insert }).collect())
    }

    fn view_of(&self, piece: &Piece) -> Result<RecordBatch> {
        let columns = match self.deleted {
            Some(_) => piece.rows.columns(),
            None => values(&piece.rows),
        };
        let (schema, columns) = (self.view.clone(), columns.to_vec());
        // A delete has null in columns that never are in other rows.
        let nullable = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
        let schema = arrow::datatypes::Schema::new(nullable.collect::<Vec<_>>());
        RecordBatch::try_new(schema.into(), columns)
            .map_err(|e| Error::internal("the rows of a table are not in its columns").with_source(e))
    }
}

/// What a table has, by what identifies rows.
pub(super) enum Held {
    /// The newest row of each key.
    Keyed(HashMap<u128, Newest>),
    /// How often each row was inserted more than deleted, and its digest.
    Keyless(HashMap<u128, i64>),
}

/// The newest row of a key.
pub(super) struct Newest {
    row: Digest,
    step: i64,
    is_deleted: bool,
    /// Whether another one has the same step.
    is_contested: bool,
}

impl Held {
    fn take(&mut self, mark: &Mark, seen: Seen, path: &str) -> Result<()> {
        match self {
            Self::Keyed(rows) => {
                let is_deleted = mark.op == Op::Delete;
                let found = Newest { row: seen.row, step: mark.step, is_deleted, is_contested: false };
                match rows.get_mut(&seen.id) {
                    None => _ = rows.insert(seen.id, found),
                    Some(known) if known.step < found.step => *known = found,
                    Some(known) => known.is_contested |= known.step == found.step,
                }
            }
            Self::Keyless(rows) => {
                let weight = match mark.op {
                    Op::Insert => 1,
                    Op::Delete => -1,
                    Op::Update => {
                        return Err(Error::corrupt(format!(
                            "the data file {path} has an update, and the view has no key"
                        )));
                    }
                };
                *rows.entry(seen.id).or_default() += weight;
            }
        }
        Ok(())
    }

    fn check(&mut self, at: Step) -> Result<()> {
        let contradiction = match self {
            Self::Keyed(rows) => {
                let is_contested = rows.values().any(|newest| newest.is_contested);
                rows.retain(|_, newest| !newest.is_deleted);
                is_contested.then_some("two rows have the same key and the same step")
            }
            Self::Keyless(rows) => {
                rows.retain(|_, net| *net != 0);
                rows.values().any(|net| *net < 0).then_some("a row was deleted more often than inserted")
            }
        };
        match contradiction {
            None => Ok(()),
            Some(what) => Err(Error::corrupt(format!(
                "at step {at} {what}, so the table does not tell its rows; verify it, then reset it"
            ))),
        }
    }

    /// How many rows it is, and their digest.
    pub(super) fn rows(&self) -> Rows {
        match self {
            Self::Keyed(rows) => {
                Rows { count: rows.len() as u64, digest: rows.values().map(|newest| newest.row).sum() }
            }
            Self::Keyless(rows) => rows.iter().fold(Rows::default(), |sum, (row, net)| Rows {
                count: sum.count + net.unsigned_abs(),
                digest: sum.digest.plus(Digest::from_u128(row.wrapping_mul(u128::from(net.unsigned_abs())))),
            }),
        }
    }

    /// Takes the server's row away; how it differs, if it does.
    pub(super) fn meet(&mut self, seen: Seen) -> Option<DifferenceKind> {
        match self {
            Self::Keyed(rows) => match rows.remove(&seen.id) {
                None => Some(DifferenceKind::Missing),
                Some(newest) => (newest.row != seen.row).then_some(DifferenceKind::Changed),
            },
            Self::Keyless(rows) => match rows.get_mut(&seen.id) {
                Some(net) if *net > 0 => {
                    *net -= 1;
                    None
                }
                _ => Some(DifferenceKind::Missing),
            },
        }
    }

    /// What is left: how often the table has rows that the server has not.
    pub(super) fn left(self) -> HashMap<u128, u64> {
        match self {
            Self::Keyed(rows) => rows.into_keys().map(|id| (id, 1)).collect(),
            Self::Keyless(rows) => {
                rows.into_iter().filter(|(_, net)| *net > 0).map(|(id, net)| (id, net.unsigned_abs())).collect()
            }
        }
    }
}
