//! Makes steps of what a slot tells: one transaction is one step.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringBuilder};
use arrow::datatypes::{Schema, SchemaRef};

use super::catalog::{Column, Form, Table, view_of};
use super::evidence::Boundary;
use super::message::{Cell, Lsn, Message, Old, Relation, Tuple};
use super::rows::{Part, Rows};
use super::server::Session;
use super::shelf::Shelf;
use super::turn::Note;
use crate::change::Op;
use crate::error::{Error, Result};
use crate::schema::View;
use crate::step::Step;

/// What a batch of a step holds at most, but for its last row, in bytes.
const BATCH_BYTES: usize = 8 << 20;

/// How many rows of a table there is room for at first: most transactions change few.
const FEW: usize = 8;

/// Which of a table's columns were added and have no value in rows that nothing was told of, in any of its partitions.
const EMPTY: &str = "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = ANY($1) AND attname = ANY($2)
    AND attnum > 0 AND NOT attisdropped
    GROUP BY attname HAVING bool_and(NOT attnotnull AND NOT atthasdef AND NOT atthasmissing)";
/// How many transactions are remembered that emptied a table.
const EMPTYINGS: usize = 64;

/// A table whose transactions are gathered.
pub(super) struct Track {
    /// Where they go.
    pub(super) shelf: Arc<Shelf>,
    /// The number by which the server's log names it.
    pub(super) oid: u32,
    /// The columns of the view's key.
    pub(super) key: Arc<[String]>,
    /// What ends at this step or before is on the shelf already.
    pub(super) last: Step,
    /// The columns that were told of.
    pub(super) known: Vec<String>,
    /// How the table stood in the catalogs when it was looked at last.
    pub(super) form: Form,
    /// The transactions that emptied it, as far as the log told them, the last one at the end.
    pub(super) emptied: VecDeque<String>,
    /// How its rows stand in the log, or why nothing can be made of them; `None` until it was said.
    shape: Option<Result<Shape, String>>,
    relation: Option<Relation>,
}

/// How rows of a table stand in the log.
struct Shape {
    place: String,
    /// The table, as a statement names it.
    table: String,
    columns: Vec<Column>,
    view: View,
    /// Operation and columns.
    schema: SchemaRef,
    /// Where the key's columns stand.
    key: Vec<usize>,
    filled: Vec<String>,
}

/// Transactions as they come.
pub(super) struct Assembly {
    pub(super) tracks: Vec<Track>,
    by_oid: HashMap<u32, usize>,
    open: Option<Open>,
}

/// A transaction whose end has not come.
struct Open {
    commit: Lsn,
    xid: u32,
    parts: BTreeMap<usize, Piece>,
}

/// What a transaction did to one table.
struct Piece {
    rows: Rows,
    ops: StringBuilder,
    batches: Vec<RecordBatch>,
    /// Whether the table was emptied before these rows.
    is_emptied: bool,
    /// Why the rows are not all known.
    lost: Option<String>,
}

/// A transaction that ended.
pub(super) struct Done {
    /// By what it is known again.
    pub(super) boundary: Boundary,
    /// The tables that it changed, by their places, each with its operations.
    pub(super) parts: Vec<(usize, Vec<RecordBatch>)>,
}

impl Track {
    pub(super) fn new(
        shelf: Arc<Shelf>,
        oid: u32,
        key: Arc<[String]>,
        last: Step,
        known: Vec<String>,
        form: Form,
    ) -> Self {
        Self { shelf, oid, key, last, known, form, emptied: VecDeque::new(), shape: None, relation: None }
    }
}

impl Assembly {
    pub(super) fn new(tracks: Vec<Track>) -> Self {
        let by_oid = tracks.iter().enumerate().map(|(i, track)| (track.oid, i)).collect();
        Self { tracks, by_oid, open: None }
    }

    /// Whether a transaction has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Takes a message; a transaction when that was its end.
    pub(super) async fn take(&mut self, message: &[u8], session: &Session) -> Result<Option<Done>> {
        match Message::read(message)? {
            Message::Begin { commit, transaction, .. } => {
                self.open = Some(Open { commit, xid: transaction, parts: BTreeMap::new() });
            }
            Message::Commit { end, micros, .. } => {
                let open = self.open.take().ok_or_else(outside)?;
                let boundary = Boundary { end: Step::new(end.0)?, xid: open.xid, committed: micros };
                let finish = |(i, piece): (usize, Piece)| Ok((i, piece.finish(self.tracks.get(i))?));
                let parts = open.parts.into_iter().map(finish).collect::<Result<_>>()?;
                return Ok(Some(Done { boundary, parts }));
            }
            Message::Relation(relation) => self.relate(relation, session).await?,
            Message::Insert { relation, new } => {
                self.with(relation, |shape, piece| piece.push(shape, Op::Insert, new, None, Part::Whole))?;
            }
            Message::Update { relation, old, new } => {
                self.with(relation, |shape, piece| piece.update(shape, old, new))?;
            }
            Message::Delete { relation, old } => self.with(relation, |shape, piece| piece.delete(shape, old))?,
            Message::Truncate { relations } => {
                for relation in relations {
                    self.note_emptied(relation);
                    self.with(relation, |shape, piece| {
                        *piece = Piece::new(shape);
                        piece.is_emptied = true;
                        Ok(())
                    })?;
                }
            }
            Message::Origin { .. } | Message::Type { .. } | Message::Logical => {}
        }
        Ok(None)
    }

    /// Does something to what the open transaction did to a table, if it is one of ours and not on its shelf. What cannot be
    /// done makes the step one that nothing leads to.
    fn with(&mut self, relation: u32, change: impl FnOnce(&Shape, &mut Piece) -> Result<(), String>) -> Result<()> {
        let Some(at) = self.by_oid.get(&relation).copied() else { return Ok(()) };
        let open = self.open.as_mut().ok_or_else(outside)?;
        let Some(track) = self.tracks.get_mut(at).filter(|track| open.commit.0 >= track.last.get()) else {
            return Ok(());
        };
        match &track.shape {
            None => Err(Error::internal(format!("the server tells rows of {} before their columns", track.shelf.name))),
            Some(Err(why)) => {
                open.parts.entry(at).or_insert_with(Piece::unknown).lose(why.clone());
                Ok(())
            }
            Some(Ok(shape)) => {
                let piece = open.parts.entry(at).or_insert_with(|| Piece::new(shape));
                if let Err(why) = change(shape, piece) {
                    piece.lose(why);
                }
                Ok(())
            }
        }
    }

    /// By this a file that is another is known to be so because of what the log tells, also where the shelf has it already.
    fn note_emptied(&mut self, relation: u32) {
        let (at, xid) = (self.by_oid.get(&relation), self.open.as_ref().map(|open| open.xid.to_string()));
        if let (Some(track), Some(xid)) = (at.and_then(|at| self.tracks.get_mut(*at)), xid) {
            track.emptied.push_back(xid);
            if track.emptied.len() > EMPTYINGS {
                track.emptied.pop_front();
            }
        }
    }

    async fn relate(&mut self, relation: Relation, session: &Session) -> Result<()> {
        let Some(at) = self.by_oid.get(&relation.oid).copied() else { return Ok(()) };
        let Some(track) = self.tracks.get_mut(at) else { return Ok(()) };
        if track.relation.as_ref() == Some(&relation) {
            return Ok(());
        }
        let shape = Shape::of(&relation, track, session).await;
        if let (Err(e), true) = (&shape, session.query("SELECT 1", &[]).await.is_err()) {
            return Err(Error::unavailable(e.message()));
        }
        let is_other = match (&track.shape, &shape) {
            (Some(Ok(before)), Ok(shape)) => before.columns != shape.columns,
            _ => true,
        };
        if let Some(piece) = self.open.as_mut().and_then(|open| open.parts.get_mut(&at)).filter(|_| is_other) {
            if piece.has_rows() {
                let name = &track.shelf.name;
                piece.lose(format!("a transaction changed rows of {name}, and then its columns"));
            } else if let Ok(shape) = &shape {
                let is_emptied = piece.is_emptied;
                *piece = Piece { is_emptied, ..Piece::new(shape) };
            }
        }
        if let Ok(shape) = &shape {
            track.known = shape.columns.iter().map(|column| column.name.clone()).collect();
            track.shelf.state.send_modify(|state| state.view = Some(shape.view.clone()));
        }
        (track.shape, track.relation) = (Some(shape.map_err(|e| e.message().to_owned())), Some(relation));
        Ok(())
    }
}

fn outside() -> Error {
    Error::internal("the server tells changes outside of a transaction")
}

impl Shape {
    async fn of(relation: &Relation, track: &Track, session: &Session) -> Result<Self> {
        let shelf = &track.shelf;
        let columns = Column::of_relation(session, relation, &shelf.settings.columns).await?;
        let view = view_of(shelf.view(), &columns, &track.key)?;
        let added: Vec<String> =
            columns.iter().map(|c| c.name.clone()).filter(|name| !track.known.contains(name)).collect();
        let mut filled = match &track.shape {
            Some(Ok(before)) => before.filled.clone(),
            _ => Vec::new(),
        };
        if !added.is_empty() {
            let table = session.steadily(Table::read(session, &shelf.name, &shelf.settings.columns)).await?;
            let (oids, is_moved) = (table.classes().collect::<Vec<_>>(), !track.form.moved(&table.form).is_empty());
            let empty = session.query(EMPTY, &[&oids, &added]).await?;
            let is_empty = |name: &String| empty.iter().any(|row| row.get::<_, &str>(0) == name);
            // A file that is another may have been written with values that the catalogs do not name any more.
            let is_filled = |name: &String| is_moved || track.form.is_filled(name) || !is_empty(name);
            filled.extend(added.into_iter().filter(is_filled));
        }
        let key = view.key_indices();
        let fields: Vec<_> = view.change_schema().fields().iter().skip(1).cloned().collect();
        let place = format!("{}: {}", session.place(), shelf.name);
        let table = shelf.name.quoted();
        Ok(Self { place, table, columns, view, schema: Arc::new(Schema::new(fields)), key, filled })
    }

    fn is_keyed(&self) -> bool {
        !self.key.is_empty()
    }
}

impl Piece {
    fn new(shape: &Shape) -> Self {
        Self {
            rows: Rows::new(shape.place.clone(), &shape.columns),
            ops: StringBuilder::with_capacity(FEW, FEW),
            batches: Vec::new(),
            is_emptied: false,
            lost: None,
        }
    }

    fn unknown() -> Self {
        let rows = Rows::new("", &[]);
        Self { rows, ops: StringBuilder::new(), batches: Vec::new(), is_emptied: false, lost: None }
    }

    fn has_rows(&self) -> bool {
        self.rows.len() > 0 || !self.batches.is_empty()
    }

    fn lose(&mut self, why: String) {
        self.batches.clear();
        self.lost.get_or_insert(why);
    }

    fn push(
        &mut self,
        shape: &Shape,
        op: Op,
        row: Tuple<'_>,
        before: Option<Tuple<'_>>,
        part: Part<'_>,
    ) -> Result<(), String> {
        // Once something is not known, the rest changes nothing.
        if self.lost.is_some() {
            return Ok(());
        }
        if before.is_none() && row.cells().any(|cell| cell == Cell::Unchanged) {
            return Err(format!(
                "{}: an update left a large value as it was, and the server's log does not repeat it; use ALTER TABLE {} REPLICA IDENTITY FULL, for each partition where it has some",
                shape.place, shape.table
            ));
        }
        self.rows.push(row, before, part).map_err(|e| e.message().to_owned())?;
        self.ops.append_value(op.letter());
        if self.rows.bytes() >= BATCH_BYTES {
            self.seal(shape).map_err(|e| e.message().to_owned())?;
        }
        Ok(())
    }

    fn update(&mut self, shape: &Shape, old: Option<Old<'_>>, new: Tuple<'_>) -> Result<(), String> {
        let before = match old {
            Some(Old::Whole(row)) => Some(row),
            Some(Old::Key(_)) | None => None,
        };
        match old {
            Some(old) if !shape.is_keyed() || shape.moves(old.tuple(), new) => {
                self.delete(shape, old)?;
                self.push(shape, Op::Insert, new, before, Part::Whole)
            }
            None if !shape.is_keyed() => Err(shape.unidentified()),
            _ => self.push(shape, Op::Update, new, before, Part::Whole),
        }
    }

    fn delete(&mut self, shape: &Shape, old: Old<'_>) -> Result<(), String> {
        match old {
            Old::Whole(row) if !shape.is_keyed() => self.push(shape, Op::Delete, row, None, Part::Whole),
            Old::Key(_) if !shape.is_keyed() => Err(shape.unidentified()),
            Old::Key(row) | Old::Whole(row) => {
                let is_whole = |place: &usize| matches!(row.cells().nth(*place), Some(Cell::Text(_) | Cell::Binary(_)));
                if !shape.key.iter().all(is_whole) {
                    return Err(shape.unidentified());
                }
                self.push(shape, Op::Delete, row, Some(row), Part::Key(&shape.key))
            }
        }
    }

    /// Makes a batch of the rows.
    fn seal(&mut self, shape: &Shape) -> Result<()> {
        if self.rows.len() == 0 {
            return Ok(());
        }
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.ops.finish())];
        columns.extend(self.rows.finish());
        let batch = RecordBatch::try_new(Arc::clone(&shape.schema), columns)
            .map_err(|e| Error::internal(format!("{}: rows do not fit the view", shape.place)).with_source(e))?;
        self.batches.push(batch);
        Ok(())
    }

    /// The operations, with what is to be known of the step besides.
    fn finish(mut self, track: Option<&Track>) -> Result<Vec<RecordBatch>> {
        let shape = track.and_then(|track| track.shape.as_ref()).and_then(|shape| shape.as_ref().ok());
        let note = match (&self.lost, shape) {
            (Some(why), _) => Note { lost: Some(why.clone()), ..Note::default() },
            (None, Some(shape)) => {
                self.seal(shape)?;
                Note { is_emptied: self.is_emptied, filled: shape.filled.clone(), lost: None }
            }
            (None, None) => return Err(Error::internal("rows were gathered of columns that nobody knows")),
        };
        let fields = shape.map_or_else(|| Arc::new(Schema::empty()), |shape| Arc::clone(&shape.schema));
        let schema = note.onto(&fields);
        if self.batches.is_empty() {
            return Ok(vec![RecordBatch::new_empty(schema)]);
        }
        let noted = |batch: RecordBatch| {
            batch.with_schema(Arc::clone(&schema)).map_err(|e| Error::internal("a step was not noted").with_source(e))
        };
        self.batches.into_iter().map(noted).collect()
    }
}

impl Shape {
    /// Whether an update changes the key.
    fn moves(&self, old: Tuple<'_>, new: Tuple<'_>) -> bool {
        self.key.iter().any(|place| {
            let (old, new) = (old.cells().nth(*place), new.cells().nth(*place));
            new != Some(Cell::Unchanged) && old != new
        })
    }

    fn unidentified(&self) -> String {
        format!(
            "{}: the server's log does not tell which row was changed; use ALTER TABLE {} REPLICA IDENTITY FULL",
            self.place, self.table
        )
    }
}
