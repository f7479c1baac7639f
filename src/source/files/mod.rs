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
mod given;
mod ipc;
#[cfg(test)]
mod landing_tests;
mod ndjson;
mod pieces;
mod reader;
mod shape;
mod views;

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use async_trait::async_trait;

use crate::continuity::columns::Difference;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::source::rows::{blocking, streamed};
use crate::source::{Next, NextView, Pick, Position, Source};
use crate::step::Step;
pub use columns::parse_column_type;
pub(crate) use directory::Format;
use directory::{ChangeFile, Folder, Landed, SnapshotFile};
use fold::Fold;
pub(crate) use given::Given;
use pieces::Pieces;
use reader::Batches;
use shape::Shape;
use views::Holds;

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
        Ok(Self { feed: Arc::new(Feed { settings, folder }), fingerprint, reading: Reading::default() })
    }
}

impl std::fmt::Debug for FilesSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilesSource").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for FilesSource {
    fn name(&self) -> &str {
        &self.feed.settings.view
    }

    fn key(&self) -> &[String] {
        &self.feed.settings.key
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    async fn position(&mut self) -> Result<Position> {
        let feed = Arc::clone(&self.feed);
        blocking(move || Ok(Folder::scan(&feed.folder)?.position())).await
    }

    async fn view(&mut self, after: Step) -> Result<View> {
        let feed = Arc::clone(&self.feed);
        blocking(move || feed.view(after)).await
    }

    async fn snapshot(&mut self, pick: Pick) -> Result<(View, Snapshot)> {
        let feed = Arc::clone(&self.feed);
        blocking(move || feed.snapshot(pick)).await
    }

    async fn changes(&mut self, after: Step, view: &View) -> Result<Next> {
        let (feed, view) = (Arc::clone(&self.feed), view.clone());
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
    open: Option<(Pieces, View)>,
    /// The snapshot's step and the view that were last found to agree.
    compared: Option<(Step, View)>,
    /// What the folder held, and when it had been changed last before that was looked at.
    folder: Option<(SystemTime, Arc<Folder>)>,
}

/// Where the feed is landed, without anything that changes.
struct Feed {
    settings: FilesSettings,
    folder: PathBuf,
}

impl Feed {
    /// The view of which the settings name the columns, where they do.
    fn configured(&self) -> Result<Option<View>> {
        let FilesSettings { view, key, columns, .. } = &self.settings;
        if columns.is_empty() {
            return Ok(None);
        }
        let fields = columns.iter().map(|(name, data_type)| Field::new(name, data_type.clone(), true));
        View::new(view, &Schema::new(fields.collect::<Vec<_>>()), key.clone()).map(Some)
    }

    fn view(&self, after: Step) -> Result<View> {
        let folder = Folder::scan(&self.folder)?;
        match (self.configured()?, folder.leading(after)) {
            (Some(view), _) => Ok(view),
            (None, Some(file)) => self.first_view(&folder, &file.landed, Holds::Changes, after),
            (None, None) => Err(self.nothing_landed()),
        }
    }

    /// The view of a file, by its own columns or by those of the file nearest to step `at`.
    fn first_view(&self, folder: &Folder, landed: &Landed, holds: Holds, at: Step) -> Result<View> {
        let FilesSettings { view, key, .. } = &self.settings;
        for (landed, holds) in std::iter::once((landed, holds)).chain(views::nearest(folder, at)) {
            if let Some(view) = views::first_view(landed, holds, view, key)? {
                return Ok(view);
            }
        }
        Err(Error::config(format!(
            "{}: NDJSON files do not say their columns' types; add `columns = {{ id = \"bigint\", … }}` to the section of view {view}",
            self.folder.display()
        )))
    }

    fn nothing_landed(&self) -> Error {
        Error::unavailable(format!("no snapshot yet in {}; land one as snapshot-<step>.parquet", self.folder.display()))
    }

    fn snapshot(&self, pick: Pick) -> Result<(View, Snapshot)> {
        let (Pick::Newest { until } | Pick::Reached { until } | Pick::Since { until, .. }) = pick;
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
        if let Pick::Since { from, .. } = pick
            && snapshot.step < from
        {
            return Err(Error::unavailable(format!(
                "the view has other columns than {} and what follows it up to step {from}; land a snapshot of step {from} or later with the view's columns",
                snapshot.landed
            )));
        }
        let view = match self.configured()? {
            Some(view) => {
                let SnapshotFile { step, landed } = &snapshot;
                let mut checked = check_configured(&folder, landed, Holds::Rows, *step, &view);
                if pick == (Pick::Since { from: *step, until }) {
                    // It may be the last one of the columns before, which NDJSON and types tell only where rows are read.
                    let first = || Batches::new(landed, Shape::Rows(view.clone())).next().transpose();
                    checked = checked.and_then(|()| first().map(drop)).map_err(|e| match e.kind() {
                        ErrorKind::Incompatible | ErrorKind::Refused => Error::unavailable(format!(
                            "{}, or land a later snapshot with the view's columns",
                            e.message()
                        )),
                        _ => e,
                    });
                }
                checked?;
                view
            }
            None => self.first_view(&folder, &snapshot.landed, Holds::Rows, snapshot.step)?,
        };
        let (links, view) = match pick {
            Pick::Newest { .. } => (Vec::new(), view),
            Pick::Reached { .. } | Pick::Since { .. } => {
                chain::chain(&folder, view, snapshot.step, until, |file, view| self.grown(&folder, file, view))?
            }
        };
        let Some(step) = links.last().map(|link| link.range.to()) else {
            let known_rows = reader::rows_of(&snapshot.landed)?;
            let SnapshotFile { step, landed } = snapshot;
            let rows = streamed(Batches::new(&landed, Shape::Rows(view.clone())));
            return Ok((view, Snapshot { step, rows, known_rows, position: landed.name }));
        };
        let position = format!("{} + changes to {step}", snapshot.landed);
        let rows = streamed(Fold::new(&view, snapshot, links, self.settings.fold_memory)?);
        Ok((view, Snapshot { step, rows, known_rows: None, position }))
    }

    /// The view after a file of changes is folded in, which may add columns to the one before it and nothing else.
    fn grown(&self, folder: &Folder, file: &ChangeFile, view: &View) -> Result<View> {
        if !self.settings.columns.is_empty() {
            check_configured(folder, &file.landed, Holds::Changes, file.range.from(), view)?;
            return Ok(view.clone());
        }
        let own = views::view_of(&file.landed, Holds::Changes, view)?;
        let difference = Difference::between(view.schema(), own.schema());
        if difference.added().is_some() {
            return Ok(own);
        }
        Err(Error::unavailable(format!(
            "{} cannot be folded into an older snapshot: {difference}; land a snapshot of step {} or later with these columns",
            file.landed,
            file.range.from()
        )))
    }

    fn changes(&self, view: &View, after: Step, reading: &mut Reading) -> Result<Next> {
        let open = reading.open.take().filter(|(pieces, of)| pieces.reached() == after && of == view);
        if let Some((mut pieces, of)) = open
            && let Some(changes) = pieces.next()?
        {
            let changes = changes.at_position(pieces.name());
            reading.open = Some((pieces, of));
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
        if let Some(next) = self.next_view(folder, view, after, reading)? {
            return Ok(Some(Next::View(next)));
        }
        let Some(link) = chain::link(folder, view, after)? else { return Ok(None) };
        let mut pieces = Pieces::open(&link.file, view, after)?;
        let changes = pieces.next()?.map(|changes| Next::Changes(changes.at_position(pieces.name())));
        reading.open = Some((pieces, view.clone()));
        Ok(changes)
    }

    /// The view after step `after`, where it has other columns than `view`.
    fn next_view(&self, folder: &Folder, view: &View, after: Step, reading: &mut Reading) -> Result<Option<NextView>> {
        let here = folder.snapshots.iter().find(|s| s.step == after);
        let leading = folder.leading(after);
        if let Some(configured) = self.configured()? {
            let difference = Difference::between(view.schema(), configured.schema());
            if difference.is_empty() {
                let file = leading.map(|file| (&file.landed, file.range.from()));
                file.map_or(Ok(()), |(landed, at)| check_configured(folder, landed, Holds::Changes, at, view))?;
                return Ok(None);
            }
            let view = views::in_order_of(view, &configured)?;
            let is_filled = match (here, difference.added()) {
                (Some(here), Some(added)) => views::is_filled(here, &view, &added)?,
                _ => false,
            };
            return Ok(Some(NextView { view, is_filled, position: "`columns`".to_owned() }));
        }
        if let Some(here) = here
            && reading.compared.as_ref().is_none_or(|(step, of)| *step != after || of != view)
        {
            if let Some(next) = at_snapshot(folder, here, view)? {
                return Ok(Some(next));
            }
            reading.compared = Some((after, view.clone()));
        }
        let Some(file) = leading else { return Ok(None) };
        let own = views::view_of(&file.landed, Holds::Changes, view)?;
        let is_same = Difference::between(view.schema(), own.schema()).is_empty();
        Ok((!is_same).then(|| NextView { view: own, is_filled: false, position: file.landed.name.clone() }))
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

/// The view of a snapshot of the very step that is reached, where changes do not lead to it. A column that it adds without
/// values is told with the first changes that have it, and one that begins with the changes behind it is not removed.
fn at_snapshot(folder: &Folder, snapshot: &SnapshotFile, known: &View) -> Result<Option<NextView>> {
    let both = views::known_at(folder, snapshot, known)
        .and_then(|known| Ok((views::view_of(&snapshot.landed, Holds::Rows, &known)?, known)));
    let (view, known) = match both {
        // Nothing needs the snapshot to go on.
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unavailable) => return Ok(None),
        both => both?,
    };
    let is_filled = match Difference::between(known.schema(), view.schema()).added() {
        Some(added) if added.is_empty() || !views::is_filled(snapshot, &view, &added)? => return Ok(None),
        added => added.is_some(),
    };
    Ok(Some(NextView { view, is_filled, position: snapshot.landed.name.clone() }))
}

/// Refuses a file with a column that the settings do not name, or without one that the file before it has.
fn check_configured(folder: &Folder, landed: &Landed, holds: Holds, at: Step, view: &View) -> Result<()> {
    let Some(columns) = views::columns_of(landed, holds)? else { return Ok(()) };
    let fields = view.schema().fields();
    if let Some(unknown) = columns.iter().find(|f| fields.find(f.name()).is_none()) {
        return Err(Error::incompatible(format!(
            "{landed}: column {:?} is not among the view's `columns`; add it there, or take it out of the file",
            unknown.name()
        )));
    }
    let missing = |f: &&FieldRef| !columns.iter().any(|c| c.name() == f.name());
    let missing: Vec<&FieldRef> = fields.iter().filter(missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let others = views::nearest(folder, at).into_iter().filter(|(other, _)| *other != landed);
    for (before, holds) in others {
        let Some(columns) = views::columns_of(before, holds)? else { continue };
        if let Some(lost) = missing.iter().find(|f| columns.iter().any(|c| c.name() == f.name())) {
            return Err(Error::incompatible(format!(
                "{landed}: the column {:?} is missing, and {before} has it; correct the file, or take the column out of `columns`",
                lost.name()
            )));
        }
        break;
    }
    Ok(())
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
