//! Small files, and files of which many rows are deleted, are joined to new ones beside the commits.
//!
//! ```text
//!   append ── enough small files? ── spawn ──► read what is left of them ─► one new file
//!     │           ▲                                                             │
//!     │           └──────── behind a later append: are they live still? ◄───────┘
//!     │                     rows deleted since become the new file's vector; one maintenance commit
//!     └────── are they known? ── spawn ──► look at them, once: layout `changelog` alone does not know its files
//! ```
//!
//! A step never waits for it, and it never loses to one: whatever steps deleted meanwhile is deleted in the new file too.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{FutureExt, TryStreamExt};
use tokio::task::{JoinError, JoinHandle};

use super::commit::Core;
use super::current::{Reading, Replacement};
use super::maintenance::CLOSE;
use super::row_files::RowFile;
use crate::continuity::plan::Claim;
use crate::continuity::stamp::{CommitStamp, FILE_PREFIX, Kind, Layout};
use crate::data_file;
use crate::error::{Error, Result};
use crate::files::{DataFile, FileSettings, FileWriter};
use crate::key_index::{Edit, RowRuns, Tally};
use crate::log::{AddAction, LiveFile, Log, Proposal, RowSet, Vectors};

/// So many files of about the same size are joined.
const FAN_IN: usize = 16;
/// The smallest size that is told apart from smaller ones, in bytes, and by how much each next one is larger.
const SMALLEST: u64 = 32 << 10;
const GROWTH: u64 = 8;
/// A file is written anew when so many of a hundred rows are deleted.
const MOST_DELETED: u64 = 25;
/// Small files are left to their tiers, however many of their rows are deleted.
const SMALLEST_WORN: u64 = SMALLEST * GROWTH;
/// Every so many commits it is looked for something to join.
const LOOK_EVERY: usize = 8;
/// The most files that are read at once.
const MOST_FILES: usize = 1000;
/// After a failure nothing is joined for so long.
const PAUSE: Duration = Duration::from_secs(60);

/// The one that is under way, and when the next may begin.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    task: Option<JoinHandle<Result<Done>>>,
    /// What came of the last one, until a commit takes it.
    ended: Option<Result<Done>>,
    /// Commits until it is looked whether there is something to join.
    left: usize,
    /// By the boot clock.
    not_before: Duration,
}

/// What is done beside the commits.
#[derive(Debug)]
enum Done {
    /// The live files of a changelog.
    Looked(Vec<LiveFile>),
    Joined(Box<Joined>),
}

/// A file to be joined, as it was.
#[derive(Debug, Clone)]
struct Input {
    number: u32,
    file: RowFile,
}

/// Files that were joined.
#[derive(Debug)]
struct Joined {
    /// In the order in which their rows stand in the new file.
    inputs: Vec<Input>,
    /// `None` where no row is left of them.
    output: Option<DataFile>,
    /// When it was begun, by the boot clock.
    begun: Duration,
}

/// What of a file decides whether it is joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    number: u32,
    size: u64,
    rows: u64,
    left: u64,
}

impl Candidate {
    /// Its bytes without those of deleted rows, about.
    fn left_size(self) -> u64 {
        let share = u128::from(self.size) * u128::from(self.left) / u128::from(self.rows.max(1));
        u64::try_from(share).unwrap_or(self.size)
    }

    fn is_worn(self) -> bool {
        self.size >= SMALLEST_WORN && (self.rows - self.left.min(self.rows)) * 100 >= self.rows * MOST_DELETED
    }

    /// Files of one tier are of about the same size; `None` for one that is large enough.
    fn tier(self, target: u64) -> Option<u32> {
        (self.left_size() < target / 2).then(|| (self.left_size() / SMALLEST).checked_ilog(GROWTH).map_or(0, |n| n + 1))
    }
}

/// The files of one partition that are to be joined: those of a tier that is full, or those of which many rows are deleted.
fn chosen(candidates: &[Candidate], target: u64) -> Vec<u32> {
    let mut tiers: BTreeMap<u32, Vec<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        if let Some(tier) = candidate.tier(target) {
            tiers.entry(tier).or_default().push(*candidate);
        }
    }
    let full = tiers.into_values().find(|files| files.len() >= FAN_IN);
    let worn = || candidates.iter().copied().filter(|candidate| candidate.is_worn()).collect();
    let mut size = 0;
    let fits = |candidate: &Candidate| {
        size += candidate.left_size();
        size <= target || size == candidate.left_size()
    };
    full.unwrap_or_else(worn).into_iter().take(MOST_FILES).take_while(fits).map(|candidate| candidate.number).collect()
}

impl Compaction {
    /// Gives up what is under way: the table was loaded anew.
    pub(super) fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.ended = None;
    }

    fn take_ended(&mut self) -> Option<Result<Done>> {
        if let Some(ended) = self.task.as_mut().and_then(FutureExt::now_or_never) {
            (self.task, self.ended) = (None, Some(flat(ended)));
        }
        self.ended.take()
    }

    /// Waits until what is under way has ended, and says whether something was; the next commit takes what came of it.
    pub(super) async fn rest(&mut self) -> bool {
        let Some(task) = &mut self.task else { return self.ended.is_some() };
        let ended = task.await;
        (self.task, self.ended) = (None, Some(flat(ended)));
        true
    }

    /// Whether there were commits since it was looked for something to join.
    fn has_seen_commits(&self) -> bool {
        (1..LOOK_EVERY).contains(&self.left)
    }

    /// Whether it is time to look for something to join. A process that ends soon would never do it: the first commit is
    /// one.
    fn is_due(&mut self, boot: Duration) -> bool {
        self.left = self.left.saturating_sub(1);
        let is_due = self.left == 0 && self.task.is_none() && boot >= self.not_before;
        if is_due {
            self.left = LOOK_EVERY;
        }
        is_due
    }
}

fn flat(ended: Result<Result<Done>, JoinError>) -> Result<Done> {
    ended.unwrap_or_else(|e| Err(Error::internal("joining files ended early").with_source(e)))
}

impl Drop for Compaction {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Core {
    /// Behind a commit of rows: puts what was joined in the place of its files, or begins with others.
    pub(super) async fn compact(&mut self, claim: &Claim) {
        if !self.settings.compaction || self.log.tracks_rows(&self.facts) {
            return self.compaction.stop();
        }
        let boot = self.world.clock.boot();
        let ended = self.compaction.take_ended();
        // Where one join was due, steps may have made others due meanwhile: they would wear files faster than every
        // `LOOK_EVERY` commits one is written anew.
        let goes_on = matches!(ended, Some(Ok(_)));
        let done = match ended {
            Some(Ok(Done::Joined(joined))) => self.put_joined(*joined, claim).await,
            Some(Ok(Done::Looked(files))) => {
                self.small_files.looked(files);
                Ok(())
            }
            Some(Err(error)) => Err(error),
            None => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!(event = "compaction_failed", error = %crate::error::with_causes(&error), "small files stay as they are for now");
            self.compaction.not_before = boot + PAUSE;
        }
        if self.compaction.is_due(boot) || goes_on && boot >= self.compaction.not_before {
            self.begin_to_join();
        }
    }

    /// Puts what is under way, until nothing is left to be joined, but not for ever.
    pub(super) async fn close_compaction(&mut self, claim: &Claim) {
        let late = self.world.clock.deadline(CLOSE);
        let last = async {
            if self.compaction.has_seen_commits() {
                self.compaction.left = 1;
                self.compact(claim).await;
            }
            while self.compaction.rest().await {
                self.compact(claim).await;
            }
        };
        tokio::select! {
            () = last => {}
            () = late => tracing::warn!(event = "compaction_late", "small files stay as they are: joining them took longer than {CLOSE:?}"),
        }
    }

    /// The files at the head by their numbers, where they are known.
    fn known_files(&self) -> Option<&BTreeMap<u32, RowFile>> {
        match self.identity.layout {
            Layout::Changelog => self.small_files.at(self.facts.version),
            Layout::Current => {
                let rows = self.current.as_ref().filter(|rows| rows.is_at(self.facts.version))?;
                Some(rows.files.all())
            }
        }
    }

    fn begin_to_join(&mut self) {
        let Some(known) = self.known_files() else { return self.begin_to_look() };
        let mut partitions: BTreeMap<_, Vec<Candidate>> = BTreeMap::new();
        for (number, file) in known {
            let (number, size, rows) = (*number, file.live.size.unsigned_abs(), file.rows.len());
            let candidate = Candidate { number, size, rows, left: file.left() };
            partitions.entry(&file.live.partition_values).or_default().push(candidate);
        }
        let target = self.settings.files.target_file_size;
        let Some(chosen) = partitions.values().map(|files| chosen(files, target)).find(|chosen| !chosen.is_empty())
        else {
            return;
        };
        let inputs: Vec<Input> =
            chosen.into_iter().filter_map(|number| Some(Input { number, file: known.get(&number)?.clone() })).collect();
        let begun = self.world.clock.boot();
        let prepared =
            Reading::of_table(&self.log, &self.facts).and_then(|from| Ok((self.joined_file_writer(&from)?, from)));
        match prepared {
            Ok((writer, from)) => self.compaction.task = Some(tokio::spawn(join(inputs, from, writer, begun))),
            Err(error) => tracing::warn!(event = "compaction_failed", error = %error, "small files stay as they are"),
        }
    }

    /// Layout `current` matches its index with the files instead, before the next step.
    fn begin_to_look(&mut self) {
        let Some(version) = self.facts.version.filter(|_| self.identity.layout == Layout::Changelog) else { return };
        self.small_files.begin_look(version);
        self.compaction.task = Some(tokio::spawn(look(self.log.clone(), version)));
    }

    /// A writer of one file, whatever its size.
    fn joined_file_writer(&self, from: &Reading) -> Result<FileWriter> {
        let ours =
            self.facts.ours().ok_or_else(|| Error::internal("files were to be joined in a table that is not ours"))?;
        let settings = FileSettings {
            target_file_size: FileSettings::LARGEST_TARGET,
            threads: self.settings.files.threads.min(1),
            ..self.settings.files.clone()
        };
        self.writer_of(FILE_PREFIX, &from.origin.columns, &from.columns, settings, ours.generation, ours.last_step)
    }

    /// Puts a file in the place of those that it was made of, in one commit that changes no row; not when others took one of
    /// them meanwhile.
    async fn put_joined(&mut self, joined: Joined, claim: &Claim) -> Result<()> {
        let Joined { inputs, output, begun } = joined;
        let (Some(known), Some(ours)) = (self.known_files(), self.facts.ours()) else { return Ok(()) };
        if !self.is_safe_since(begun) {
            return Ok(());
        }
        // One that is gone has no row left, or others moved them: none of them lives in the new file.
        let now = inputs.iter().map(|input| known.get(&input.number));
        let now: Vec<Option<&RowFile>> =
            now.zip(&inputs).map(|(file, input)| file.filter(|file| file.live.path == input.file.live.path)).collect();
        if now.iter().all(Option::is_none) {
            return Ok(());
        }
        let mut files: BTreeMap<u32, Option<RowFile>> = inputs.iter().map(|input| (input.number, None)).collect();
        let tally = self.current.as_ref().map(|rows| rows.index.tally());
        let number = tally.map_or(self.small_files.next(), |tally| tally.next_file);
        let mut vectors = Vectors::new(&self.world.ids.draw())?;
        let mut adds = Vec::new();
        if let Some(output) = &output {
            let mut file = RowFile::new(output, 0);
            if tally.is_some() {
                file.rows = RowRuns::join(inputs.iter().flat_map(|input| input.file.rows.without(&input.file.deleted)));
            }
            let deleted = deleted_since(&inputs, &now);
            if deleted.len() < file.rows.len() {
                if !deleted.is_empty() {
                    file.delete(deleted, &mut vectors)?;
                }
                adds.push(AddAction { data_change: false, again: None, ..file.add()? });
                files.insert(number, Some(file));
            }
        }
        let removes: Vec<LiveFile> = now.iter().flatten().map(|file| file.live.clone()).collect();
        let stamp = CommitStamp {
            kind: Kind::Maintenance,
            from: Some(ours.last_step),
            to: ours.last_step,
            strand: ours.strand,
            digest_total: ours.digest_total,
            rows_total: ours.rows_total,
            ..self.stamp(claim, ours.generation)
        };
        vectors.put(&self.log).await?;
        let many = removes.len();
        let layout = self.identity.layout;
        let proposal = Proposal { stamp, layout, claims: false, protocol: None, metadata: None, adds, removes };
        if let Some(version) = self.commit(proposal).await? {
            tracing::info!(event = "files_joined", version, files = many, "small files were joined");
            match tally {
                None => self.small_files.joined(files, version),
                Some(tally) => {
                    let tally = Tally { next_file: number + 1, ..tally };
                    let marks = files.iter().map(|(number, file)| (*number, file.as_ref().map(RowFile::indexed)));
                    let edit = Edit { files: marks.collect(), tally, ..Edit::default() };
                    self.replaced(Replacement { edit, files }, version).await;
                }
            }
        }
        Ok(())
    }
}

/// The places in the new file of the rows that were deleted in its inputs since they were read.
fn deleted_since(inputs: &[Input], now: &[Option<&RowFile>]) -> RowSet {
    let mut deleted = RowSet::new();
    let mut before = 0;
    for (input, now) in inputs.iter().zip(now) {
        let (then, left) = (&input.file.deleted, input.file.left());
        match now {
            // A row's place among those that were left.
            Some(now) => deleted.extend((&now.deleted - then).iter().map(|place| before + place - then.rank(place))),
            None => _ = deleted.insert_range(before..before + left),
        }
        before += left;
    }
    deleted
}

async fn look(log: Log, version: u64) -> Result<Done> {
    log.live_files_at(version).await.map(Done::Looked)
}

async fn join(inputs: Vec<Input>, from: Reading, mut writer: FileWriter, begun: Duration) -> Result<Done> {
    let files = inputs.iter().map(|input| (input.file.live.clone(), input.file.deleted.clone())).collect();
    let mut rows = data_file::read_live(&from.origin, files, &from.columns);
    while let Some(batch) = rows.try_next().await? {
        writer.write(batch).await?;
    }
    let mut written = writer.finish().await?;
    let expected: u64 = inputs.iter().map(|input| input.file.left()).sum();
    if written.rows != expected || written.files.len() > 1 {
        return Err(Error::corrupt(format!(
            "{} files have {} rows, the log says {expected}; see `cutover verify --deep`",
            inputs.len(),
            written.rows
        )));
    }
    Ok(Done::Joined(Box::new(Joined { inputs, output: written.files.pop(), begun })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 128 << 20;

    fn files(sizes: &[(u64, u64, u64)]) -> Vec<Candidate> {
        let candidate = |(number, (size, rows, left)): (u32, &(u64, u64, u64))| Candidate {
            number,
            size: *size,
            rows: *rows,
            left: *left,
        };
        (0..).zip(sizes).map(candidate).collect()
    }

    #[test]
    fn a_tier_of_small_files_is_joined_when_it_is_full() {
        let small = vec![(10 << 10, 1000, 1000); FAN_IN - 1];
        assert!(chosen(&files(&small), TARGET).is_empty());
        let mut full = small.clone();
        full.extend([(1 << 20, 9, 9), (9 << 10, 900, 900)]);
        let expected: Vec<u32> = (0..15).chain([16]).collect();
        assert_eq!(chosen(&files(&full), TARGET), expected, "the larger one is of another tier");
        assert!(chosen(&files(&[(100 << 20, 9, 9); 40]), TARGET).is_empty(), "large files stay");
    }

    #[test]
    fn files_of_which_many_rows_are_deleted_are_written_anew() {
        let worn = files(&[(100 << 20, 1000, 760), (100 << 20, 1000, 750), (100 << 20, 1000, 0), (4 << 10, 4, 0)]);
        assert_eq!(chosen(&worn, TARGET), [1, 2]);
        let two = files(&[(200 << 20, 1000, 700), (200 << 20, 1000, 700)]);
        assert_eq!(chosen(&two, TARGET), [0], "one that is too large by itself is taken alone");
    }

    #[test]
    fn files_grow_by_a_bounded_number_of_joins() {
        // As steps of 10 KiB come in, none is written again more often than there are tiers.
        let mut live: Vec<(u64, u32)> = Vec::new();
        let mut written = 0u64;
        for _ in 0..10_000 {
            live.push((10 << 10, 0));
            let sizes: Vec<(u64, u64, u64)> = live.iter().map(|(size, _)| (*size, 9, 9)).collect();
            let joined = chosen(&files(&sizes), TARGET);
            if joined.is_empty() {
                continue;
            }
            let taken: Vec<(u64, u32)> = joined.iter().map(|number| live[*number as usize]).collect();
            let size = taken.iter().map(|(size, _)| size).sum();
            written += size;
            let mut number = 0;
            live.retain(|_| {
                number += 1;
                !joined.contains(&(number - 1))
            });
            live.push((size, taken.iter().map(|(_, joins)| joins + 1).max().unwrap()));
            assert!(live.len() < 100, "{} files", live.len());
        }
        assert!(live.iter().all(|(_, joins)| *joins <= 6), "{live:?}");
        assert!(written < 6 * 10_000 * (10 << 10), "{written} bytes were written again");
    }
}
