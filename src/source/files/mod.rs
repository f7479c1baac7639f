//! A directory to which another system lands data.
//!
//! ```text
//!   <path>/<view>/snapshot-100.parquet       the rows at step 100
//!                 changes-100-140.arrow      every change of the steps 101 … 140
//!                 changes-140-150.ndjson/    a folder of part files counts as one file
//!                 .changes-150-160.ndjson    still being written: . or _ begins its name
//! ```
//!
//! Files are taken in step order, whatever order they arrive in. A hole is waited for. Where files share steps that are
//! not delivered yet, they must say the same.

mod chain;
mod columnar;
mod columns;
#[cfg(test)]
mod damage_tests;
mod directory;
mod effect;
mod fold;
mod footer;
mod ipc;
#[cfg(test)]
mod landing_tests;
mod ndjson;
mod pieces;
mod reader;
mod shape;

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};

use crate::continuity::stamp::{COLUMN_OP, COLUMN_STEP};
use crate::error::{Error, Result};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::source::{Next, Pick, Position, Source};
use crate::step::Step;
pub use columns::parse_column_type;
use directory::{Folder, SnapshotFile, check_folder};
use fold::Fold;
use pieces::Pieces;
use reader::{Batches, Rows};
use shape::Shape;

/// Where a view's files are landed, and what the view is.
#[derive(Debug, Clone)]
pub struct FilesSettings {
    /// The directory that holds one folder a view.
    pub path: PathBuf,
    /// Names the feed in the fingerprint, so that its directory may move; `None`: the directory's path does.
    pub id: Option<String>,
    /// The view's name, which is its folder's.
    pub view: String,
    /// The columns that identify a row; empty for a view without key.
    pub key: Vec<String>,
    /// The columns' names and types; empty: those of the newest Parquet or Arrow file.
    pub columns: Vec<(String, DataType)>,
    /// The memory for folding changes into a snapshot, in bytes.
    pub fold_memory: u64,
}

impl FilesSettings {
    /// The memory for folding where nobody says otherwise: 256 MiB.
    pub const FOLD_MEMORY: u64 = 256 << 20;
}

/// A view whose files are landed in a directory.
pub struct FilesSource {
    feed: Arc<Feed>,
    fingerprint: String,
    view: Option<View>,
    reading: Reading,
}

impl FilesSource {
    /// A source over the folder `<path>/<view>`.
    ///
    /// Without an `id` the directory must be there, since its path, links resolved, is part of the fingerprint.
    pub fn new(settings: FilesSettings) -> Result<Self> {
        let mut components = Path::new(&settings.view).components();
        let (Some(Component::Normal(_)), None) = (components.next(), components.next()) else {
            return Err(Error::config(format!("{:?} is no name of a view's folder", settings.view)));
        };
        let home = match &settings.id {
            Some(id) => id.clone(),
            None => {
                let path = settings.path.canonicalize().map_err(|e| {
                    let path = settings.path.display();
                    Error::unavailable(format!("the directory {path} is missing; create it, or correct `path`"))
                        .with_source(e)
                })?;
                path.display().to_string()
            }
        };
        let fingerprint = format!("files:{home}/{}", settings.view);
        let folder = settings.path.join(&settings.view);
        Ok(Self { feed: Arc::new(Feed { settings, folder }), fingerprint, view: None, reading: Reading::default() })
    }
}

impl std::fmt::Debug for FilesSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilesSource").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for FilesSource {
    async fn view(&mut self) -> Result<View> {
        if let Some(view) = &self.view {
            return Ok(view.clone());
        }
        let feed = Arc::clone(&self.feed);
        let view = blocking(move || feed.view()).await?;
        Ok(self.view.insert(view).clone())
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    async fn position(&mut self) -> Result<Position> {
        let feed = Arc::clone(&self.feed);
        blocking(move || Ok(Folder::scan(&feed.folder)?.position())).await
    }

    async fn snapshot(&mut self, pick: Pick) -> Result<Snapshot> {
        let (feed, view) = (Arc::clone(&self.feed), self.view().await?);
        blocking(move || feed.snapshot(&view, pick)).await
    }

    async fn changes(&mut self, after: Step) -> Result<Next> {
        let (feed, view) = (Arc::clone(&self.feed), self.view().await?);
        // Whoever drops this future leaves the default behind: the next call opens the file anew.
        let mut reading = std::mem::take(&mut self.reading);
        let (next, reading) = blocking(move || Ok((feed.changes(&view, after, &mut reading)?, reading))).await?;
        self.reading = reading;
        Ok(next)
    }

    async fn acknowledge(&mut self, _step: Step) -> Result<()> {
        Ok(())
    }
}

/// What a call of `changes` leaves for the next.
#[derive(Default)]
struct Reading {
    open: Option<Pieces>,
    /// What the folder held, and when it had been changed last before that was looked at.
    folder: Option<(SystemTime, Arc<Folder>)>,
}

/// Where the feed is landed, without anything that changes.
struct Feed {
    settings: FilesSettings,
    folder: PathBuf,
}

impl Feed {
    fn view(&self) -> Result<View> {
        let FilesSettings { view, key, columns, .. } = &self.settings;
        if !columns.is_empty() {
            check_folder(&self.folder)?;
            let fields = columns.iter().map(|(name, data_type)| Field::new(name, data_type.clone(), true));
            return View::new(view, &Schema::new(fields.collect::<Vec<_>>()), key.clone());
        }
        let folder = Folder::scan(&self.folder)?;
        for snapshot in folder.snapshots.iter().rev() {
            if let Some(schema) = reader::schema_of(&snapshot.landed)? {
                return View::new(view, &schema, key.clone());
            }
        }
        for changes in folder.changes.iter().rev() {
            if let Some(schema) = reader::schema_of(&changes.landed)? {
                let is_column = |f: &&FieldRef| f.name() != COLUMN_STEP && f.name() != COLUMN_OP;
                let fields = schema.fields().iter().filter(is_column);
                let fields: Vec<Field> = fields.map(|f| f.as_ref().clone().with_nullable(true)).collect();
                return View::new(view, &Schema::new(fields), key.clone());
            }
        }
        if folder.snapshots.is_empty() && folder.changes.is_empty() {
            return Err(self.nothing_landed());
        }
        Err(Error::config(format!(
            "{}: NDJSON files do not say their columns' types; add `columns = {{ id = \"bigint\", … }}` to the section of view {view}",
            self.folder.display()
        )))
    }

    fn nothing_landed(&self) -> Error {
        Error::unavailable(format!("no snapshot yet in {}; land one as snapshot-<step>.parquet", self.folder.display()))
    }

    fn snapshot(&self, view: &View, pick: Pick) -> Result<Snapshot> {
        let (Pick::Newest { until } | Pick::Reached { until }) = pick;
        let folder = Folder::scan(&self.folder)?;
        let snapshot = match (folder.newest(until), folder.snapshots.first(), until) {
            (Some(snapshot), _, _) => snapshot.clone(),
            (None, Some(oldest), Some(until)) => {
                return Err(Error::refused(format!(
                    "every snapshot in {} is newer than step {until}, the oldest being {}; land one of step {until} or before",
                    self.folder.display(),
                    oldest.landed
                )));
            }
            _ => return Err(self.nothing_landed()),
        };
        let links = match pick {
            Pick::Newest { .. } => Vec::new(),
            Pick::Reached { .. } => chain::chain(&folder, view, snapshot.step, until)?,
        };
        let Some(step) = links.last().map(|link| link.range.to()) else {
            let known_rows = reader::rows_of(&snapshot.landed)?;
            let SnapshotFile { step, landed } = snapshot;
            let rows = Batches::new(&landed, Shape::Rows(view.clone()));
            return Ok(Snapshot { step, rows: streamed(rows), known_rows, position: landed.name });
        };
        let position = format!("{} + changes to {step}", snapshot.landed);
        let rows = streamed(Fold::new(view, snapshot, links, self.settings.fold_memory)?);
        Ok(Snapshot { step, rows, known_rows: None, position })
    }

    fn changes(&self, view: &View, after: Step, reading: &mut Reading) -> Result<Next> {
        if let Some(mut pieces) = reading.open.take().filter(|pieces| pieces.reached() == after)
            && let Some(changes) = pieces.next()?
        {
            let changes = changes.at_position(pieces.name());
            reading.open = Some(pieces);
            return Ok(Next::Changes(changes));
        }
        if let Some(kept) = self.kept(reading)
            && let Some(next) = self.open(&kept, view, after, reading)?
        {
            return Ok(next);
        }
        let folder = self.scan(reading)?;
        match self.open(&folder, view, after, reading)? {
            Some(next) => Ok(next),
            None => Ok(Next::Idle { hole: folder.hole(after) }),
        }
    }

    fn open(&self, folder: &Folder, view: &View, after: Step, reading: &mut Reading) -> Result<Option<Next>> {
        let Some(link) = chain::link(folder, view, after)? else { return Ok(None) };
        let mut pieces = Pieces::open(&link.file, view, after)?;
        let changes = pieces.next()?.map(|changes| Next::Changes(changes.at_position(pieces.name())));
        reading.open = Some(pieces);
        Ok(changes)
    }

    /// The folder as it was seen last, as long as nothing in it changed since; this spares a feed of many small files from
    /// being listed once a file.
    fn kept(&self, reading: &Reading) -> Option<Arc<Folder>> {
        let (seen, folder) = reading.folder.as_ref()?;
        (self.changed() == Some(*seen)).then(|| Arc::clone(folder))
    }

    /// The folder as it is, kept for later calls.
    fn scan(&self, reading: &mut Reading) -> Result<Arc<Folder>> {
        let changed = self.changed();
        let folder = Arc::new(Folder::scan(&self.folder)?);
        reading.folder = changed.filter(|_| !folder.unsettled).map(|changed| (changed, Arc::clone(&folder)));
        Ok(folder)
    }

    /// When an entry of the folder itself changed last.
    fn changed(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.folder).and_then(|m| m.modified()).ok()
    }
}

/// Runs file I/O where it may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| Error::internal("reading landed files failed").with_source(e))?
}

/// The batches as a stream that reads one batch ahead, so that reading and writing overlap; at most that one batch is
/// read after the stream was dropped.
fn streamed(
    rows: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> BoxStream<'static, Result<RecordBatch>> {
    let ahead = |mut rows: Rows| tokio::task::spawn_blocking(move || (rows.next(), rows));
    let batches = stream::unfold(State::Start(Box::new(rows)), move |state| async move {
        let task = match state {
            State::Start(rows) => ahead(rows),
            State::Ahead(task) => task,
            State::End => return None,
        };
        match task.await {
            Ok((None, _)) => None,
            Ok((Some(Err(e)), _)) => Some((Err(e), State::End)),
            Ok((Some(Ok(batch)), rows)) => Some((Ok(batch), State::Ahead(ahead(rows)))),
            Err(e) => Some((Err(Error::internal("reading landed files failed").with_source(e)), State::End)),
        }
    });
    batches.filter(|batch| futures::future::ready(!batch.as_ref().is_ok_and(|b| b.num_rows() == 0))).boxed()
}

/// Where a stream of batches stands.
enum State {
    Start(Rows),
    Ahead(tokio::task::JoinHandle<(Option<Result<RecordBatch>>, Rows)>),
    End,
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
