//! What lies in a view's folder: names, and what they say.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::source::{Hole, Position};
use crate::step::{Step, StepRange};

/// The patterns, as errors quote them.
const PATTERNS: &str = "snapshot-<step>.<ext> or changes-<from>-<to>.<ext> with ext parquet, arrow or ndjson, or a \
                        folder of that name; a name that begins with . or _ is left alone until it is renamed";

/// How a file holds its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, the file or the stream format.
    Arrow,
    /// One JSON object a line.
    Ndjson,
}

impl Format {
    fn from_extension(extension: &str) -> Option<Self> {
        match extension {
            "parquet" => Some(Self::Parquet),
            "arrow" => Some(Self::Arrow),
            "ndjson" => Some(Self::Ndjson),
            _ => None,
        }
    }
}

/// What the name of an entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The view's rows at a step; without a format it can only be a folder.
    Snapshot(Step, Option<Format>),
    /// The changes of a range of steps; without a format it can only be a folder.
    Changes(StepRange, Option<Format>),
    /// Still being written.
    Unfinished,
    /// Not part of the feed.
    Other,
}

/// Reads a name; refused when it looks like one of the patterns without being one.
pub(crate) fn parse_name(name: &str) -> Result<Name> {
    if name.starts_with(['.', '_']) {
        return Ok(Name::Unfinished);
    }
    let refuse = |why: &str| Error::refused(format!("{name:?} {why}; the names are {PATTERNS}"));
    let (stem, format) = match name.split_once('.') {
        None => (name, None),
        Some((stem, extension)) => (stem, Some(Format::from_extension(extension))),
    };
    let format = match format {
        None => None,
        Some(Some(format)) => Some(format),
        Some(None) if is_ours(name) => return Err(refuse("has an extension that is not known")),
        Some(None) => return Ok(Name::Other),
    };
    if let Some(step) = stem.strip_prefix("snapshot-") {
        let step = parse_step(step).ok_or_else(|| refuse("names no step"))?;
        return Ok(Name::Snapshot(step, format));
    }
    if let Some((from, to)) = stem.strip_prefix("changes-").and_then(|steps| steps.split_once('-')) {
        let steps = parse_step(from).zip(parse_step(to)).ok_or_else(|| refuse("names no steps"))?;
        let range = StepRange::new(steps.0, steps.1).map_err(|_| refuse("covers no step"))?;
        return Ok(Name::Changes(range, format));
    }
    if is_ours(name) { Err(refuse("is close to a name of the feed and is none")) } else { Ok(Name::Other) }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("snapshot") || name.starts_with("change")
}

/// Digits only: no sign, no space, at most [`Step::MAX`].
fn parse_step(digits: &str) -> Option<Step> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().and_then(|n| Step::new(n).ok())
}

/// One file with rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its name below the view's folder, for messages.
    pub(crate) label: String,
    /// How it holds its rows.
    pub(crate) format: Format,
}

/// A complete file of the feed, or a folder of part files that counts as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Landed {
    /// Its name in the view's folder.
    pub(crate) name: String,
    /// The files, in the order of their names; at least one.
    pub(crate) parts: Vec<Part>,
}

impl fmt::Display for Landed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What tells a file from one that took its place: number, length, and the time of its last change.
pub(crate) type FileMark = (u64, u64, i64, i64);

impl Landed {
    /// The mark of each part.
    pub(crate) fn marks(&self) -> Result<Vec<FileMark>> {
        let mark = |part: &Part| {
            let m = std::fs::symlink_metadata(&part.path).map_err(|e| unopened(part, e))?;
            Ok((m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
        };
        self.parts.iter().map(mark).collect()
    }
}

/// The view's rows at a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    /// The step.
    pub(crate) step: Step,
    /// The rows.
    pub(crate) landed: Landed,
}

/// The changes of a range of steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeFile {
    /// The steps.
    pub(crate) range: StepRange,
    /// The changes.
    pub(crate) landed: Landed,
}

/// Everything that is complete in a view's folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Folder {
    /// In step order, each step once.
    pub(crate) snapshots: Vec<SnapshotFile>,
    /// In the order of `from`, then `to`, then name.
    pub(crate) changes: Vec<ChangeFile>,
    /// Whether a folder among them is still being written, which changes nothing in the view's folder itself
    /// when it ends.
    pub(crate) unsettled: bool,
}

impl Folder {
    /// Lists the folder at `path`; names that are close to the patterns and symbolic links are refused.
    pub(crate) fn scan(path: &Path) -> Result<Self> {
        let mut folder = Self::default();
        check_folder(path)?;
        for entry in std::fs::read_dir(path).map_err(|e| unreadable(path, e))? {
            let entry = entry.map_err(|e| unreadable(path, e))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let parsed = parse_name(&name)?;
            if let Name::Unfinished | Name::Other = parsed {
                tracing::debug!(folder = %path.display(), name, "not part of the feed");
                continue;
            }
            let landed = match landed(entry, name, parsed)? {
                Found::Landed(landed) => landed,
                Found::Unsettled => {
                    folder.unsettled = true;
                    continue;
                }
                Found::Gone => continue,
            };
            match parsed {
                Name::Snapshot(step, _) => folder.snapshots.push(SnapshotFile { step, landed }),
                Name::Changes(range, _) => folder.changes.push(ChangeFile { range, landed }),
                Name::Unfinished | Name::Other => {}
            }
        }
        folder.snapshots.sort_by(|a, b| (a.step, &a.landed.name).cmp(&(b.step, &b.landed.name)));
        for (a, b) in folder.snapshots.iter().zip(folder.snapshots.iter().skip(1)) {
            if a.step == b.step {
                return Err(Error::refused(format!(
                    "{}: both {} and {} are the snapshot of step {}; remove one",
                    path.display(),
                    a.landed,
                    b.landed,
                    a.step
                )));
            }
        }
        let order = |c: &ChangeFile| (c.range.from(), c.range.to());
        folder.changes.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.landed.name.cmp(&b.landed.name)));
        Ok(folder)
    }

    /// Where the feed stands, by its names.
    pub(crate) fn position(&self) -> Position {
        let snapshot = self.snapshots.last().map(|s| s.step);
        let change = self.changes.iter().map(|c| c.range.to()).max();
        Position { earliest: self.changes.first().map(|c| c.range.from()), latest: snapshot.max(change) }
    }

    /// The newest snapshot at or before `until`.
    pub(crate) fn newest(&self, until: Option<Step>) -> Option<&SnapshotFile> {
        self.snapshots.iter().rfind(|s| until.is_none_or(|until| s.step <= until))
    }

    /// The change file that leads furthest from `after`; of several, the one that skips least.
    pub(crate) fn leading(&self, after: Step) -> Option<&ChangeFile> {
        self.changes
            .iter()
            .take_while(|c| c.range.from() <= after)
            .filter(|c| after < c.range.to())
            .max_by_key(|c| (c.range.to(), c.range.from()))
    }

    /// The change files other than `chosen` that hold steps of `range`, with the steps that they share with it.
    pub(crate) fn sharing(&self, chosen: &ChangeFile, range: StepRange) -> Vec<(&ChangeFile, StepRange)> {
        let shared = |c: &ChangeFile| c.range.after(range.from())?.until(range.to());
        self.changes.iter().filter(|c| *c != chosen).filter_map(|c| Some((c, shared(c)?))).collect()
    }

    /// The first thing beyond `after` that no change file leads to.
    pub(crate) fn hole(&self, after: Step) -> Option<Hole> {
        let change = self.changes.iter().find(|c| c.range.from() > after).map(|c| (c.range.from(), &c.landed));
        let snapshot = self.snapshots.iter().find(|s| s.step > after).map(|s| (s.step, &s.landed));
        let (_, before) = [change, snapshot].into_iter().flatten().min_by_key(|(step, _)| *step)?;
        Some(Hole { after, before: before.name.clone() })
    }
}

/// Refused unless `folder` is there and no symbolic link.
pub(crate) fn check_folder(folder: &Path) -> Result<()> {
    let kind = std::fs::symlink_metadata(folder).map_err(|e| unreadable(folder, e))?.file_type();
    if kind.is_dir() {
        return Ok(());
    }
    let what = if kind.is_symlink() { "a symbolic link, which is not followed" } else { "not a folder" };
    Err(Error::refused(format!("{} is {what}; land the view's files in a folder of that name", folder.display())))
}

fn unreadable(folder: &Path, e: std::io::Error) -> Error {
    let remedy = match e.kind() {
        std::io::ErrorKind::NotFound => "is missing; create it, or correct `path` and the view's name",
        _ => "cannot be read; check its permissions and its disk",
    };
    Error::unavailable(format!("the folder {} {remedy}", folder.display())).with_source(e)
}

/// What an entry turns out to be.
enum Found {
    /// A complete file, or a complete folder of part files.
    Landed(Landed),
    /// A folder whose part files are still being written.
    Unsettled,
    /// Nothing any more.
    Gone,
}

/// The entry's files.
fn landed(entry: std::fs::DirEntry, name: String, parsed: Name) -> Result<Found> {
    let path = entry.path();
    let kind = entry.file_type().map_err(|e| unreadable(&path, e))?;
    if kind.is_dir() {
        let parts = match parts(&path, &name) {
            Err(e) if !path.exists() => {
                tracing::debug!(path = %path.display(), error = %e, "gone while it was listed");
                return Ok(Found::Gone);
            }
            parts => parts?,
        };
        return Ok(parts.map_or(Found::Unsettled, |parts| Found::Landed(Landed { name, parts })));
    }
    check_kind(kind, &path)?;
    let format = match parsed {
        Name::Snapshot(_, Some(format)) | Name::Changes(_, Some(format)) => format,
        _ => return Err(Error::refused(format!("the file {name:?} has no extension; the names are {PATTERNS}"))),
    };
    Ok(Found::Landed(Landed { parts: vec![Part { path, label: name.clone(), format }], name }))
}

/// The part files of a folder, in name order; `None` while it is being written.
fn parts(folder: &Path, name: &str) -> Result<Option<Vec<Part>>> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| unreadable(folder, e))? {
        let entry = entry.map_err(|e| unreadable(folder, e))?;
        let part = entry.file_name().to_string_lossy().into_owned();
        if part == "_temporary" {
            return Ok(None);
        }
        if part.starts_with(['.', '_']) {
            continue;
        }
        let kind = entry.file_type().map_err(|e| unreadable(folder, e))?;
        check_kind(kind, &entry.path())?;
        let format = part.rsplit_once('.').and_then(|(_, extension)| Format::from_extension(extension));
        let format = format.ok_or_else(|| {
            Error::refused(format!("the folder {name} holds {part:?}, which is no parquet, arrow or ndjson file"))
        })?;
        parts.push(Part { path: entry.path(), label: format!("{name}/{part}"), format });
    }
    if parts.is_empty() {
        return Err(Error::refused(format!(
            "the folder {} holds no part file; write it under a name that begins with _ and rename it when it is complete, or land an empty file",
            folder.display()
        )));
    }
    parts.sort_by(|a, b| a.label.cmp(&b.label));
    Ok(Some(parts))
}

/// Refused unless it is a plain file: a link may point anywhere, a pipe may never end.
fn check_kind(kind: std::fs::FileType, path: &Path) -> Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let what = match kind {
        _ if kind.is_symlink() => "a symbolic link, which is not followed",
        _ if kind.is_dir() => "a folder within a folder",
        _ => "no plain file",
    };
    Err(Error::refused(format!("{} is {what}; land the file itself", path.display())))
}

/// Opens a part for reading; links are refused here too, since the entry may have been replaced since the listing.
pub(crate) fn open_file(part: &Part) -> Result<std::fs::File> {
    let metadata = std::fs::symlink_metadata(&part.path).map_err(|e| unopened(part, e))?;
    check_kind(metadata.file_type(), &part.path)?;
    std::fs::File::open(&part.path).map_err(|e| unopened(part, e))
}

fn unopened(part: &Part, e: std::io::Error) -> Error {
    Error::unavailable(format!("{} cannot be read; check that it is there", part.path.display())).with_source(e)
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
