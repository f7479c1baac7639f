//! Files of the table's folder that nothing needs: named by no version, or removed longer ago than the retention.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta};
use percent_encoding::percent_decode_str;
use twox_hash::XxHash3_128;

use super::actions::Action;
use super::cleanup::millis;
use super::compare::checkpoint_files;
use super::names::LogName;
use super::probe::PROBE_PREFIX;
use super::vector::VECTOR_PREFIX;
use super::{Facts, LOG_DIR, Listing, Log};
use crate::continuity::commit::FileId;
use crate::continuity::stamp::{FILE_PREFIX, FIRST_LOAD_PREFIX};
use crate::error::{Error, ErrorKind, Result};
use crate::store::store_error;

/// A file that no version names is left alone at least this long, whatever the table's retention: a writer may be about
/// to name it.
pub const LEAST_AGE: Duration = Duration::from_secs(60 * 60);
/// Files as much younger than the clock tells that one of both clocks is wrong.
const MOST_SKEW: Duration = Duration::from_secs(5 * 60);
/// How many files are deleted at once.
const CHUNK: usize = 256;
/// A storage that fails so many deletions in a row, for whatever reason, is not asked for more.
const MOST_IN_A_ROW: u32 = 10;
const CHANGE_DATA: &str = "_change_data";

/// Why a file is garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A data file of ours that no version names.
    Unnamed,
    /// A file that was removed longer ago than the table keeps removed files.
    Removed,
    /// What a local write of ours, or a trial of conditional puts, left that did not end.
    Staged,
}

/// A file that nothing needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GarbageFile {
    /// The path relative to the table's root.
    pub path: Path,
    /// The size in bytes.
    pub size: u64,
    /// Why it is garbage.
    pub why: Why,
}

/// What happened to a file so old that it may be garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unnamed,
    Named,
    Removed { millis: i64 },
}

/// What is garbage at a version.
#[derive(Debug)]
pub struct Garbage {
    /// The table at the version.
    pub facts: Facts,
    /// By hashes of the files' paths; a path costs the same however long it is.
    fates: HashMap<u128, Fate>,
    /// The files whose deletion vectors an object holds, by hashes of both.
    vectors: HashMap<u128, HashSet<u128>>,
    /// Before it a file was written, or removed, long enough ago; in milliseconds since 1970 UTC.
    before: i64,
    /// The same for files that no version names.
    unnamed_before: i64,
    /// A path in the log that may mean any file.
    odd: Option<String>,
}

impl Log {
    /// Finds what is garbage. The folder is listed first and the head read afterwards, so that a file is either young or
    /// its name can be seen.
    ///
    /// Internal: there is no table. Refused: it is not ours, a file is younger than the clock, or the retention is not
    /// understood. Corrupt: the log cannot be read whole; then nothing is garbage. Unavailable: others cleaned up the log
    /// meanwhile.
    pub async fn garbage(&self) -> Result<Garbage> {
        let clock = self.world.clock.unix_millis();
        let (mut written, mut newest) = (Vec::new(), i64::MIN);
        let mut objects = self.store().list(None);
        while let Some(object) = objects.try_next().await.map_err(unlisted)? {
            let millis = object.last_modified.timestamp_millis();
            if is_ours(&object.location) || is_entry(&object.location) {
                newest = newest.max(millis);
            }
            if is_candidate(&object.location) {
                written.push((hash(object.location.as_ref()), millis));
            }
        }
        let facts = self.facts().await?;
        let (Some(head), Some(metadata)) = (facts.version, &facts.metadata) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("no such table: {} has no Delta log", self.location().uri()),
            ));
        };
        if facts.ours().is_none() {
            return Err(Error::refused(format!(
                "the table {} is not ours, so its garbage is another's to remove; use VACUUM of the engine that writes to it",
                self.location().uri()
            )));
        }
        self.check_features(&facts)?;
        if newest.saturating_sub(clock) > millis(MOST_SKEW) {
            return Err(Error::refused(format!(
                "files of the table are {} s younger than this machine's clock tells; set the clock, nothing is deleted by a wrong one",
                newest.saturating_sub(clock) / 1000
            )));
        }
        let retention = metadata.told_file_retention().ok_or_else(|| {
            Error::incompatible(
                "the table property delta.deletedFileRetentionDuration is no interval that is understood here, so no file is deleted; write one like \"interval 7 days\"",
            )
        })?;
        let before = clock.saturating_sub(millis(retention));
        let unnamed_before = clock.saturating_sub(millis(retention.max(LEAST_AGE)));
        let old = written.into_iter().filter(|(_, written)| *written < before);
        let mut garbage = Garbage {
            fates: old.map(|(path, _)| (path, Fate::Unnamed)).collect(),
            vectors: HashMap::new(),
            before,
            unnamed_before,
            odd: None,
            facts,
        };
        let listing = self.list(0).await?;
        if let Err(error) = self.read_fates(&listing, head, &mut garbage).await {
            return Err(self.unless_cleaned(&listing, head, error).await);
        }
        match &garbage.odd {
            Some(path) => Err(Error::corrupt(format!(
                "the log names the file {path:?}, and which one that is readers may see otherwise, so nothing is deleted; reset the table, and try again when the log has forgotten that name"
            ))),
            None => Ok(garbage),
        }
    }

    /// Reads what every retained version says of the files: from the oldest entry that is left, or from the oldest
    /// checkpoint above which nothing is damaged.
    async fn read_fates(&self, listing: &Listing, head: u64, garbage: &mut Garbage) -> Result<()> {
        let first = (0..=head).rev().take_while(|version| listing.versions.contains(version)).last();
        let first = first.unwrap_or(head.saturating_add(1));
        // The oldest checkpoint from which the entries lead on; there is none for a log from the beginning.
        let base = listing.checkpoints.range(first.saturating_sub(1)..=head).next().copied();
        if first > 0 && base.is_none() {
            return Err(Error::corrupt(format!(
                "the log entries below version {first} are gone, and no checkpoint stands for them; see `cutover verify`"
            )));
        }
        let oldest = base.filter(|_| first > 0);
        let mut read = self.read_fates_from(listing, first, oldest, head, garbage).await;
        for base in listing.checkpoints.iter().filter(|base| oldest < Some(**base) && **base <= head) {
            if !matches!(&read, Err(e) if e.kind() == ErrorKind::Corrupt) {
                break;
            }
            // What is damaged lies below a checkpoint, which names all files that are not forgotten yet.
            garbage.forget();
            read = self.read_fates_from(listing, base + 1, Some(*base), head, garbage).await;
        }
        read
    }

    /// The same from the entry of `first`, below the checkpoint of `base` where there is one.
    async fn read_fates_from(
        &self,
        listing: &Listing,
        first: u64,
        base: Option<u64>,
        head: u64,
        garbage: &mut Garbage,
    ) -> Result<()> {
        let Some(base) = base else { return self.take_entries(first..=head, garbage).await };
        self.take_entries(first..=base, garbage).await?;
        let mut live = HashSet::new();
        let of_state = |action| {
            garbage.take_state(action, &mut live);
            Ok(())
        };
        self.checkpoint_actions(&checkpoint_files(listing, base), of_state).await?;
        self.take_entries(base + 1..=head, garbage).await
    }

    async fn take_entries(&self, versions: RangeInclusive<u64>, garbage: &mut Garbage) -> Result<()> {
        let take = |_, actions| {
            garbage.take(actions);
            Ok(())
        };
        self.entry_actions(versions, take).await
    }

    /// The files of `garbage`, listed again.
    pub fn garbage_files<'a>(&'a self, garbage: &'a Garbage) -> impl Stream<Item = Result<GarbageFile>> + 'a {
        self.store().list(None).map_err(unlisted).try_filter_map(|object| {
            let why = garbage.why(&object);
            std::future::ready(Ok(why.map(|why| GarbageFile { path: object.location, size: object.size, why })))
        })
    }

    /// Deletes the files of `garbage`, and tells `deleted` of each that is gone. One that cannot be deleted keeps none of
    /// the others; behind some in a row that cannot, the rest is left.
    ///
    /// The error counts those that could not be deleted, and is of the kind of the first.
    pub async fn delete_garbage(&self, garbage: &Garbage, mut deleted: impl FnMut(&GarbageFile)) -> Result<()> {
        let mut left = Left::default();
        let mut files = std::pin::pin!(self.garbage_files(garbage).chunks(CHUNK));
        while let Some(files) = files.next().await {
            let files = files.into_iter().collect::<Result<Vec<_>>>()?;
            let paths: Vec<Result<Path, StoreError>> = files.iter().map(|file| Ok(file.path.clone())).collect();
            let mut results = self.store().delete_stream(futures::stream::iter(paths).boxed());
            // Answers come in the order of the paths.
            for file in &files {
                match results.next().await {
                    Some(Ok(_)) => {
                        deleted(file);
                        left.in_a_row = 0;
                    }
                    Some(Err(StoreError::NotFound { .. })) => left.in_a_row = 0,
                    Some(Err(e)) => left.take(&file.path, e),
                    // A store that is asked for many at once fails once for all of them.
                    None => left.files += 1,
                }
                if left.in_a_row == MOST_IN_A_ROW {
                    return left.end();
                }
            }
        }
        left.end()
    }
}

/// Files that could not be deleted.
#[derive(Default)]
struct Left {
    files: u64,
    in_a_row: u32,
    first: Option<(Path, StoreError)>,
}

impl Left {
    fn take(&mut self, path: &Path, error: StoreError) {
        self.files += 1;
        self.in_a_row += 1;
        self.first.get_or_insert_with(|| (path.clone(), error));
    }

    fn end(self) -> Result<()> {
        let Some((path, error)) = self.first else { return Ok(()) };
        let rest = if self.in_a_row == MOST_IN_A_ROW { "; what comes after them is left as it is" } else { "" };
        let message =
            format!("of the files that nothing needs {} cannot be deleted, the first is {path}{rest}", self.files);
        Err(store_error(message, error))
    }
}

impl Garbage {
    /// As before anything was read.
    fn forget(&mut self) {
        self.fates.values_mut().for_each(|fate| *fate = Fate::Unnamed);
        self.vectors.clear();
    }

    /// Takes in the actions of one commit.
    fn take(&mut self, actions: Vec<Action>) {
        self.take_vectors(&actions);
        self.take_files(&actions);
    }

    /// An object with vectors is needed as long as one file has one of them.
    fn take_vectors(&mut self, actions: &[Action]) {
        for action in actions {
            let (Action::Remove(file) | Action::Add(file)) = action else { continue };
            let object = file.vector_object().map(|object| hash(object.as_ref()));
            let Some(object) = object.filter(|object| self.fates.contains_key(object)) else { continue };
            let Ok(key) = file.key() else { continue };
            let named = self.vectors.entry(object).or_default();
            let fate = match action {
                Action::Remove(_) => {
                    named.remove(&key);
                    Fate::Removed { millis: file.deletion_timestamp.unwrap_or(i64::MAX) }
                }
                _ => {
                    named.insert(key);
                    Fate::Named
                }
            };
            let is_named = !named.is_empty();
            if let Some(known) = self.fates.get_mut(&object) {
                *known = match (*known, fate) {
                    _ if is_named => Fate::Named,
                    (Fate::Removed { millis: a }, Fate::Removed { millis: b }) => Fate::Removed { millis: a.max(b) },
                    (_, fate) => fate,
                };
            }
        }
    }

    fn take_files(&mut self, actions: &[Action]) {
        // A commit that gives a file another deletion vector removes and adds the same path.
        for action in actions {
            if let Action::Remove(file) = action {
                // A removal without a date is never old enough.
                let millis = file.deletion_timestamp.unwrap_or(i64::MAX);
                self.set(&file.path, Fate::Removed { millis });
            }
        }
        for action in actions {
            if let Action::Add(file) = action {
                self.set(&file.path, Fate::Named);
            }
        }
    }

    /// Takes in an action of a checkpoint, which are in no order: a file that is live with another deletion vector is
    /// removed there, too. `live` holds those that were live before.
    fn take_state(&mut self, action: Action, live: &mut HashSet<u128>) {
        let key = |path: &str| hash(&percent_decode_str(path).decode_utf8_lossy());
        self.take_vectors(std::slice::from_ref(&action));
        match &action {
            Action::Add(file) if self.fates.contains_key(&key(&file.path)) => {
                live.insert(key(&file.path));
            }
            Action::Remove(file) if live.contains(&key(&file.path)) => return,
            _ => {}
        }
        self.take_files(&[action]);
    }

    fn set(&mut self, path: &str, fate: Fate) {
        if !is_plain(path) && self.odd.is_none() {
            self.odd = Some(path.to_string());
        }
        // Entries spell paths as parts of a URL, and some writers as they are.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        if decoded != path
            && let Some(known) = self.fates.get_mut(&hash(path))
        {
            *known = Fate::Named;
        }
        if let Some(known) = self.fates.get_mut(&hash(&decoded)) {
            *known = match (*known, fate) {
                (Fate::Removed { millis: a }, Fate::Removed { millis: b }) => Fate::Removed { millis: a.max(b) },
                (_, fate) => fate,
            };
        }
    }

    fn why(&self, object: &ObjectMeta) -> Option<Why> {
        let (path, written) = (&object.location, object.last_modified.timestamp_millis());
        if is_staged(path) || is_probe(path) {
            return (written < self.unnamed_before).then_some(Why::Staged);
        }
        if written >= self.before {
            return None;
        }
        match self.fates.get(&hash(path.as_ref()))? {
            Fate::Named => None,
            Fate::Removed { millis } => (*millis < self.before).then_some(Why::Removed),
            Fate::Unnamed => (is_ours(path) && written < self.unnamed_before).then_some(Why::Unnamed),
        }
    }
}

/// Whether a file may be a data file.
fn is_candidate(path: &Path) -> bool {
    let top = path.parts().next();
    top.is_some_and(|part| part.as_ref() != LOG_DIR && part.as_ref() != CHANGE_DATA)
}

/// Whether a name is one that our writers give, in the one place where they write: `cutover-[load-]id.parquet`, which nobody
/// else gives, or what every writer calls the deletion vectors of a commit.
fn is_ours(path: &Path) -> bool {
    let name = path.as_ref();
    if let Some(id) = name.strip_prefix(VECTOR_PREFIX) {
        return id.strip_suffix(".bin").is_some_and(is_id);
    }
    let id = name.strip_prefix(FIRST_LOAD_PREFIX).or_else(|| name.strip_prefix(FILE_PREFIX));
    id.and_then(|id| id.strip_suffix(".parquet")).is_some_and(is_id)
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// Whether a path of the log is spelled as a listing spells it, so that the file that it means is known.
fn is_plain(path: &str) -> bool {
    let is_inside = FileId { path: path.to_string(), vector: None }.is_inside();
    is_inside && path.split('/').all(|part| !part.is_empty() && part != "." && !part.eq_ignore_ascii_case("%2e"))
}

/// Whether it is a file of the log's folder.
fn is_entry(path: &Path) -> bool {
    path.prefix_matches(&Path::from(LOG_DIR))
}

/// Whether it is what a trial of conditional puts left that could not remove it.
fn is_probe(path: &Path) -> bool {
    let id = path.as_ref().strip_prefix(PROBE_PREFIX);
    id.is_some_and(is_id)
}

/// Whether it is a file that a local write of ours gives its name to when it is whole: `.name.id.tmp`.
fn is_staged(path: &Path) -> bool {
    let folder = path.prefix_matches(&Path::from(LOG_DIR));
    let Some(name) = path.filename().and_then(|name| name.strip_prefix('.')?.strip_suffix(".tmp")) else {
        return false;
    };
    let Some((name, id)) = name.rsplit_once('.') else { return false };
    let in_log =
        folder && path.parts().count() == 2 && (LogName::parse(name).is_some() || name == super::LAST_CHECKPOINT);
    let is_ours = [FILE_PREFIX, VECTOR_PREFIX].iter().any(|prefix| name.starts_with(prefix));
    is_id(id) && (in_log || (path.parts().count() == 1 && is_ours))
}

fn hash(path: &str) -> u128 {
    XxHash3_128::oneshot(path.as_bytes())
}

fn unlisted(error: StoreError) -> Error {
    store_error("the table's folder cannot be listed", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A search that has found one object, which no version names so far.
    fn unnamed(path: &str) -> Garbage {
        Garbage {
            facts: Facts::absent(Duration::ZERO),
            fates: HashMap::from([(hash(path), Fate::Unnamed)]),
            vectors: HashMap::new(),
            before: 9,
            unnamed_before: 9,
            odd: None,
        }
    }

    #[test]
    fn only_names_that_our_own_writes_stage_are_staged() {
        let id = "0192f3c4-7d8e-8a7b-9c0d-112233445566";
        let log = format!("_delta_log/.{:020}.json.{id}.tmp", 7);
        for (path, expected) in [
            (log.as_str(), true),
            (&format!(".cutover-load-1.parquet.{id}.tmp"), true),
            (&format!(".other.parquet.{id}.tmp"), false),
            (&format!("sub/.cutover-1.parquet.{id}.tmp"), false),
            (".cutover-1.parquet.7.tmp", false),
            (&format!("_delta_log/.mine.{id}.tmp"), false),
            (&format!("_delta_log/{:020}.json", 7), false),
        ] {
            assert_eq!(is_staged(&Path::from(path)), expected, "{path}");
        }
    }

    #[test]
    fn a_checkpoint_names_a_live_file_whatever_it_says_of_its_older_vectors_and_in_any_order() {
        let parsed = |line: &str| super::super::actions::lines(line.as_bytes()).unwrap().pop().unwrap();
        let add = || parsed(r#"{"add":{"path":"a%20b.parquet","size":1,"modificationTime":1,"dataChange":true}}"#);
        let remove = || parsed(r#"{"remove":{"path":"a%20b.parquet","deletionTimestamp":1,"dataChange":true}}"#);
        for actions in [[add(), remove()], [remove(), add()]] {
            let mut garbage = unnamed("a b.parquet");
            let mut live = HashSet::new();
            actions.into_iter().for_each(|action| garbage.take_state(action, &mut live));
            assert_eq!(garbage.fates.values().collect::<Vec<_>>(), [&Fate::Named]);
        }
    }

    #[test]
    fn vectors_are_needed_as_long_as_one_file_has_one_of_them() {
        let object = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin";
        let line = |kind: &str, path: &str, offset: u32, millis: i64| {
            let vector = format!(
                r#"{{"storageType":"u","pathOrInlineDv":"vBn[lx{{q8@P<9BNH/isA","offset":{offset},"sizeInBytes":40,"cardinality":1}}"#
            );
            let text = format!(
                r#"{{"{kind}":{{"path":"{path}","size":1,"modificationTime":1,"dataChange":true,"deletionTimestamp":{millis},"deletionVector":{vector}}}}}"#
            );
            super::super::actions::lines(text.as_bytes()).unwrap()
        };
        let mut garbage = unnamed(object);
        let fate = |garbage: &Garbage| garbage.fates[&hash(object)];
        garbage.take(line("add", "a", 1, 0));
        garbage.take(line("add", "b", 50, 0));
        garbage.take(line("remove", "a", 1, 5));
        assert_eq!(fate(&garbage), Fate::Named, "b still has one");
        garbage.take(line("remove", "b", 50, 7));
        assert_eq!(fate(&garbage), Fate::Removed { millis: 7 });
        // A checkpoint holds both kinds of actions in no order.
        garbage.forget();
        let mut live = HashSet::new();
        let state = [line("remove", "a", 1, 5), line("add", "b", 50, 0), line("remove", "c", 99, 6)];
        state.into_iter().flatten().for_each(|action| garbage.take_state(action, &mut live));
        assert_eq!(fate(&garbage), Fate::Named);
        garbage.take(line("remove", "b", 50, 7));
        assert_eq!(fate(&garbage), Fate::Removed { millis: 7 });
    }

    #[test]
    fn vectors_that_are_named_by_a_whole_path_are_needed_too() {
        let object = "deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin";
        let line = |kind: &str, millis: i64| {
            let vector = format!(
                r#"{{"storageType":"p","pathOrInlineDv":"s3a://bucket/tables/t/{object}","offset":1,"sizeInBytes":40,"cardinality":1}}"#
            );
            let text = format!(
                r#"{{"{kind}":{{"path":"a","size":1,"modificationTime":1,"dataChange":true,"deletionTimestamp":{millis},"deletionVector":{vector}}}}}"#
            );
            super::super::actions::lines(text.as_bytes()).unwrap()
        };
        let mut garbage = unnamed(object);
        garbage.take(line("add", 0));
        assert_eq!(garbage.fates[&hash(object)], Fate::Named);
        garbage.take(line("remove", 5));
        assert_eq!(garbage.fates[&hash(object)], Fate::Removed { millis: 5 });
    }

    #[test]
    fn only_paths_as_listings_spell_them_are_plain() {
        for (path, expected) in [
            ("a.parquet", true),
            ("region=a%20b/a.parquet", true),
            ("./a.parquet", false),
            ("x/../a.parquet", false),
            ("x/%2e/a.parquet", false),
            ("x//a.parquet", false),
            ("/tables/t/a.parquet", false),
            ("file:///tables/t/a.parquet", false),
            ("s3://bucket/t/a.parquet", false),
        ] {
            assert_eq!(is_plain(path), expected, "{path}");
        }
    }
}
