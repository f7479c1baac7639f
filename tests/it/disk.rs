//! A file system that loses what was not synced, under a local table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cutover::log::SyncedStore;
use cutover::log::disk::{Disk, DiskFile};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;

use crate::crashes::{finished, on_threads};
use crate::program::{Chance, size};
use crate::workload::{END, Process, Truth, checked, truth};

/// What goes wrong with one call of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// A write ends in the middle: there is no room.
    Short,
    /// A file is not synced, and its pages count as clean from then on.
    FileNotSynced,
    /// A directory is not synced, and what it holds counts as clean from then on.
    DirectoryNotSynced,
    /// A name is not given, for want of room in the directory.
    NotNamed,
    /// A name is given, and an error comes back.
    NamedWithAnError,
    /// A file is not created.
    NotCreated,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Create,
    Write,
    SyncFile,
    Name,
    Remove,
    SyncDirectory,
}

impl Trouble {
    fn fits(self, does: Does) -> bool {
        match self {
            Self::Short => does == Does::Write,
            Self::FileNotSynced => does == Does::SyncFile,
            Self::DirectoryNotSynced => does == Does::SyncDirectory,
            Self::NotNamed | Self::NamedWithAnError => does == Does::Name,
            Self::NotCreated => does == Does::Create,
        }
    }
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(u64),
    Directory,
}

/// A change of the names in one directory.
#[derive(Debug, Clone)]
struct Naming {
    directory: PathBuf,
    /// The names that it sets or takes away, all at once.
    sets: Vec<(PathBuf, Option<Node>)>,
}

/// A file's bytes, as they are and as they are sure to be.
#[derive(Debug, Clone, Default)]
struct Content {
    is: Vec<u8>,
    durable: Vec<u8>,
    /// Whether a sync failed: no later one tells anything.
    is_doubtful: bool,
}

/// What is in memory, and what is on the platter.
#[derive(Debug, Clone, Default)]
struct Platter {
    files: BTreeMap<u64, Arc<Content>>,
    /// The names as they are.
    names: BTreeMap<PathBuf, Node>,
    /// The names that are sure to be there.
    durable: BTreeMap<PathBuf, Node>,
    /// Changes that may be lost, those that no sync will make sure of first.
    doubtful: Vec<Naming>,
    pending: Vec<Naming>,
}

impl Platter {
    fn set(&mut self, directory: &FsPath, sets: Vec<(PathBuf, Option<Node>)>) {
        for (path, node) in &sets {
            match node {
                Some(node) => drop(self.names.insert(path.clone(), node.clone())),
                None => drop(self.names.remove(path)),
            }
        }
        self.pending.push(Naming { directory: directory.to_path_buf(), sets });
    }

    fn sync_directory(&mut self, directory: &FsPath) {
        let (synced, pending) = self.pending.drain(..).partition(|naming| naming.directory == directory);
        self.pending = pending;
        let synced: Vec<Naming> = synced;
        for (path, node) in synced.into_iter().flat_map(|naming| naming.sets) {
            // What is sure is not undone by what was in doubt before it.
            self.doubtful.iter_mut().for_each(|naming| naming.sets.retain(|(other, _)| *other != path));
            match node {
                Some(node) => drop(self.durable.insert(path, node)),
                None => drop(self.durable.remove(&path)),
            }
        }
    }

    fn doubt_directory(&mut self, directory: &FsPath) {
        let (doubtful, pending) = self.pending.drain(..).partition(|naming| naming.directory == directory);
        self.pending = pending;
        let doubtful: Vec<Naming> = doubtful;
        self.doubtful.extend(doubtful);
    }

    /// The files that are there after the power was cut, below `root`.
    fn after_a_cut(&self, root: &FsPath, chance: &mut Chance) -> BTreeMap<String, Vec<u8>> {
        let mut names = self.durable.clone();
        // Nothing, everything, or any part of what may be lost.
        let keeps = chance.below(3);
        for naming in self.doubtful.iter().chain(&self.pending) {
            if keeps == 0 || (keeps == 2 && chance.one_in(2)) {
                continue;
            }
            for (path, node) in &naming.sets {
                match node {
                    Some(node) => drop(names.insert(path.clone(), node.clone())),
                    None => drop(names.remove(path)),
                }
            }
        }
        let mut files = BTreeMap::new();
        for (path, node) in &names {
            let Node::File(id) = node else { continue };
            let above = path.ancestors().skip(1).take_while(|above| *above != root);
            if above.into_iter().any(|above| names.get(above) != Some(&Node::Directory)) {
                continue;
            }
            let content = &self.files[id];
            let bytes = if content.is == content.durable && !content.is_doubtful {
                content.is.clone()
            } else {
                match chance.below(4) {
                    0 => content.durable.clone(),
                    1 => content.is[..chance.below(content.is.len() as u64 + 1) as usize].to_vec(),
                    2 => vec![0; content.is.len()],
                    _ => content.is.clone(),
                }
            };
            files.insert(path.strip_prefix(root).unwrap().to_string_lossy().to_string(), bytes);
        }
        files
    }
}

/// What was so after one of the disk's calls.
struct Moment {
    does: Does,
    platter: Platter,
    acknowledged: Option<u64>,
}

/// Decides by a call's number and by what it does.
type Script = Box<dyn FnMut(usize, Does) -> Option<Trouble> + Send>;

struct Book {
    platter: Platter,
    files: u64,
    moments: Vec<Moment>,
    fired: BTreeMap<Trouble, u64>,
    script: Script,
}

/// A disk whose files are real, so that they can be read, and whose durability is kept in a book.
#[derive(Clone)]
struct Model {
    root: PathBuf,
    truth: Truth,
    book: Arc<Mutex<Book>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    fn new(root: &FsPath, truth: &Truth, script: Script) -> Self {
        let (platter, moments) = (Platter::default(), Vec::new());
        let book = Book { platter, files: 0, moments, fired: BTreeMap::new(), script };
        Self { root: root.to_path_buf(), truth: Arc::clone(truth), book: Arc::new(Mutex::new(book)) }
    }

    /// Does a call, as the script has it, and keeps what is so afterwards.
    fn call<T>(&self, does: Does, work: impl FnOnce(&mut Book, Option<Trouble>) -> io::Result<T>) -> io::Result<T> {
        let mut book = self.book.lock().unwrap();
        let number = book.moments.len();
        let trouble = (book.script)(number, does);
        if let Some(trouble) = trouble {
            assert!(trouble.fits(does));
            *book.fired.entry(trouble).or_default() += 1;
        }
        let done = work(&mut book, trouble);
        let (platter, acknowledged) = (book.platter.clone(), self.truth.lock().unwrap().acknowledged());
        book.moments.push(Moment { does, platter, acknowledged });
        done
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        let prefix = Path::from_absolute_path(&self.root).unwrap();
        Arc::new(PrefixStore::new(SyncedStore::on(Arc::new(self.clone())), prefix))
    }

    fn name(&self, from: &FsPath, to: &FsPath, takes_away: bool) -> io::Result<()> {
        self.call(Does::Name, |book, trouble| {
            if trouble == Some(Trouble::NotNamed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            if takes_away { fs::rename(from, to) } else { fs::hard_link(from, to) }?;
            let node = book.platter.names[from].clone();
            let mut sets = vec![(to.to_path_buf(), Some(node))];
            if takes_away {
                sets.push((from.to_path_buf(), None));
            }
            book.platter.set(to.parent().unwrap(), sets);
            if trouble == Some(Trouble::NamedWithAnError) { Err(broken()) } else { Ok(()) }
        })
    }
}

fn broken() -> io::Error {
    io::Error::other("input/output error")
}

impl Disk for Model {
    fn create(&self, path: &FsPath) -> io::Result<Box<dyn DiskFile>> {
        self.call(Does::Create, |book, trouble| {
            if trouble == Some(Trouble::NotCreated) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            fs::OpenOptions::new().write(true).create_new(true).open(path)?;
            book.files += 1;
            let id = book.files;
            book.platter.files.insert(id, Arc::default());
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), Some(Node::File(id)))]);
            Ok(Box::new(Written { id, path: path.to_path_buf(), disk: self.clone() }) as Box<dyn DiskFile>)
        })
    }

    fn link(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.name(from, to, false)
    }

    fn rename(&self, from: &FsPath, to: &FsPath) -> io::Result<()> {
        self.name(from, to, true)
    }

    fn remove(&self, path: &FsPath) -> io::Result<()> {
        self.call(Does::Remove, |book, _| {
            fs::remove_file(path)?;
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), None)]);
            Ok(())
        })
    }

    fn create_dir(&self, path: &FsPath) -> io::Result<()> {
        self.call(Does::Remove, |book, _| {
            fs::create_dir(path)?;
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), Some(Node::Directory))]);
            Ok(())
        })
    }

    fn sync_dir(&self, path: &FsPath) -> io::Result<()> {
        self.call(Does::SyncDirectory, |book, trouble| {
            if !path.exists() {
                return Err(io::ErrorKind::NotFound.into());
            }
            if trouble == Some(Trouble::DirectoryNotSynced) {
                book.platter.doubt_directory(path);
                return Err(broken());
            }
            book.platter.sync_directory(path);
            Ok(())
        })
    }
}

#[derive(Debug)]
struct Written {
    id: u64,
    path: PathBuf,
    disk: Model,
}

impl DiskFile for Written {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.call(Does::Write, |book, trouble| {
            let bytes = if trouble == Some(Trouble::Short) { &bytes[..bytes.len() / 2] } else { bytes };
            let content = Arc::make_mut(book.platter.files.get_mut(&self.id).unwrap());
            let end = offset as usize + bytes.len();
            content.is.resize(content.is.len().max(end), 0);
            content.is[offset as usize..end].copy_from_slice(bytes);
            fs::write(&self.path, &content.is)?;
            if trouble == Some(Trouble::Short) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.call(Does::SyncFile, |book, trouble| {
            let content = Arc::make_mut(book.platter.files.get_mut(&self.id).unwrap());
            if trouble == Some(Trouble::FileNotSynced) {
                content.is_doubtful = true;
                return Err(broken());
            }
            if !content.is_doubtful {
                content.durable.clone_from(&content.is);
            }
            Ok(())
        })
    }
}

/// A storage with these files, as it is found when the machine has started again.
async fn started_again(files: &BTreeMap<String, Vec<u8>>) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for (path, bytes) in files {
        store.put(&Path::from(path.as_str()), bytes.clone().into()).await.unwrap();
    }
    store
}

/// The workload on a disk, in one process or more of them one after another.
async fn written(script: Script, stops: &[u64]) -> (TempDir, Model, Result<(), cutover::Error>) {
    let (home, truth) = (TempDir::new().unwrap(), truth());
    // The store reaches the table by the path as it is.
    let root = home.path().canonicalize().unwrap();
    let model = Model::new(&root, &truth, script);
    for (seed, until) in (10..).zip(stops) {
        let process = Process::untroubled(&model.store(), seed);
        if let Err(e) = process.deliver(&truth, *until, Duration::from_secs(900)).await {
            return (home, model, Err(e));
        }
    }
    (home, model, Ok(()))
}

/// Cuts the power after the moments that `is_meant`: how often, and what is wrong then.
async fn cut(
    model: &Model,
    chance: &mut Chance,
    is_meant: impl Fn(usize) -> bool,
    goes_on: usize,
) -> (u64, Vec<String>) {
    let moments = std::mem::take(&mut model.book.lock().unwrap().moments);
    let (mut cuts, mut wrong) = (0, Vec::new());
    for (number, moment) in moments.iter().enumerate().filter(|(number, _)| is_meant(*number)) {
        let files = moment.platter.after_a_cut(&model.root, chance);
        let (store, truth) = (started_again(&files).await, truth());
        if let Some(acknowledged) = moment.acknowledged {
            truth.lock().unwrap().acknowledge(acknowledged);
        }
        cuts += 1;
        let place = format!("a cut after call {number}, {:?}", moment.does);
        if let Err(found) = checked(&store, &truth).await {
            wrong.push(format!("{place}: {found}"));
            continue;
        }
        if number % goes_on == 0 {
            let next = Process::untroubled(&store, 70);
            match next.deliver(&truth, END, Duration::ZERO).await {
                Ok(()) => wrong.extend(finished(&store, &truth).await.err().map(|found| format!("{place}: {found}"))),
                Err(e) => wrong.push(format!("{place}: the next process ends with {e:?}")),
            }
        }
    }
    (cuts, wrong)
}

fn none(seed: u64, wrong: &[String]) {
    let shown: Vec<&str> = wrong.iter().take(30).map(String::as_str).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} violations:\n{}", wrong.len(), shown.join("\n"));
}

#[test]
fn what_was_acknowledged_is_there_whenever_the_power_is_cut() {
    const TEST: &str = "what_was_acknowledged_is_there_whenever_the_power_is_cut";
    let (seed, rounds) = (Chance::new(TEST).seed, size("CUTOVER_POWER_CUTS", 1));
    let rounds: Vec<u64> = (0..rounds).collect();
    let went = on_threads(rounds, |round| async move {
        let mut chance = Chance::of(seed.wrapping_add(round));
        // In one process, and in several, each of which finds what the one before it left.
        let stops: &[u64] = if round % 2 == 0 { &[17, 25, END] } else { &[END] };
        let (_home, model, ended) = written(Box::new(|_, _| None), stops).await;
        ended.unwrap();
        cut(&model, &mut chance, |_| true, 12).await
    });
    let wrong: Vec<String> = went.iter().flat_map(|(_, wrong)| wrong.clone()).collect();
    none(seed, &wrong);
    let cuts: u64 = went.iter().map(|(cuts, _)| cuts).sum();
    eprintln!("{TEST}: {cuts} cuts, 0 violations");
    assert!(cuts > 100);
}

#[test]
fn a_disk_that_fails_once_or_for_a_while_loses_nothing_that_was_acknowledged() {
    const TEST: &str = "a_disk_that_fails_once_or_for_a_while_loses_nothing_that_was_acknowledged";
    use Trouble::{DirectoryNotSynced, FileNotSynced, NamedWithAnError, NotCreated, NotNamed, Short};
    let seed = Chance::new(TEST).seed;
    let plain = on_threads(vec![()], |()| async {
        let (_home, model, ended) = written(Box::new(|_, _| None), &[END]).await;
        ended.unwrap();
        let book = model.book.lock().unwrap();
        book.moments.iter().map(|moment| moment.does).collect::<Vec<Does>>()
    });
    let plain = &plain[0];
    let cases: Vec<u64> = (0..size("CUTOVER_DISK_FAILURES", 12)).collect();
    let went = on_threads(cases, |case| async move {
        let mut chance = Chance::of(seed.wrapping_add(case));
        let trouble =
            [Short, FileNotSynced, DirectoryNotSynced, NamedWithAnError, NotCreated, NotNamed][case as usize % 6];
        let fitting: Vec<usize> = (0..plain.len()).filter(|number| trouble.fits(plain[*number])).collect();
        let (first, times) = (chance.below(fitting.len() as u64) as usize, [1, 2, 5, 30][chance.below(4) as usize]);
        let (begin, mut seen) = (fitting[first], 0);
        let script = move |_: usize, does: Does| {
            seen += usize::from(trouble.fits(does));
            let comes = trouble.fits(does) && (first + 1..=first + times).contains(&seen);
            comes.then_some(trouble)
        };
        let (_home, model, ended) = written(Box::new(script), &[END]).await;
        let fired = model.book.lock().unwrap().fired.clone();
        let calls = model.book.lock().unwrap().moments.len();
        let mut wrong: Vec<String> = ended.err().map(|e| format!("the process ends with {e:?}")).into_iter().collect();
        assert!(!fired.is_empty(), "{trouble:?} from call {begin} never happened");
        let some: BTreeSet<usize> = (0..20).map(|_| begin + chance.below(60) as usize).chain([calls - 1]).collect();
        let (cuts, found) = cut(&model, &mut chance, |number| some.contains(&number), 6).await;
        wrong.extend(found);
        let wrong: Vec<String> =
            wrong.into_iter().map(|what| format!("{trouble:?} from call {begin} (case {case}): {what}")).collect();
        (fired, cuts, wrong)
    });
    let mut fired: BTreeMap<Trouble, u64> = BTreeMap::new();
    went.iter().flat_map(|(each, ..)| each).for_each(|(trouble, times)| *fired.entry(*trouble).or_default() += times);
    let wrong: Vec<String> = went.iter().flat_map(|(.., wrong)| wrong.clone()).collect();
    none(seed, &wrong);
    let cuts: u64 = went.iter().map(|(_, cuts, _)| cuts).sum();
    eprintln!("{TEST}: {} runs, {cuts} cuts, fired {fired:?}, 0 violations", went.len());
    assert_eq!(fired.len(), 6, "a failure never fired: {fired:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_in_parts_is_there_whole_once_it_is_complete_and_not_at_all_before() {
    const TEST: &str = "an_upload_in_parts_is_there_whole_once_it_is_complete_and_not_at_all_before";
    let (home, mut chance) = (TempDir::new().unwrap(), Chance::new(TEST));
    let model = Model::new(&home.path().canonicalize().unwrap(), &truth(), Box::new(|_, _| None));
    let (store, path) = (model.store(), Path::from("data.parquet"));
    let mut upload = store.put_multipart(&path).await.unwrap();
    for part in ["ab", "cde", "f"] {
        upload.put_part(part.into()).await.unwrap();
    }
    let named_at = model.book.lock().unwrap().moments.len();
    upload.complete().await.unwrap();
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "abcdef");
    let moments = std::mem::take(&mut model.book.lock().unwrap().moments);
    let complete = moments.len() - 1;
    for (number, moment) in moments.iter().enumerate() {
        for _ in 0..20 {
            let found = moment.platter.after_a_cut(&model.root, &mut chance).remove("data.parquet");
            let is_right = match &found {
                Some(bytes) => number >= named_at && bytes == b"abcdef",
                None => number < complete,
            };
            assert!(is_right, "after call {number} of {complete}: {found:?}; seed {}", chance.seed);
        }
    }
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("x".into()).await.unwrap();
    upload.abort().await.unwrap();
    assert_eq!(crate::program::names(home.path()), ["data.parquet"], "nothing staged stays");
}
