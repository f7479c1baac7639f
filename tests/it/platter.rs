//! A file system that loses what was not synced, and whose calls fail as a script has it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::{Arc, Mutex};

use cutover::disk::{Disk, DiskFile, Readers};

use crate::program::Chance;

/// What goes wrong with one call of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
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
    /// A file is not cut.
    NotTruncated,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Does {
    Create,
    Write,
    SyncFile,
    Name,
    Remove,
    SyncDirectory,
    Truncate,
}

impl Trouble {
    pub(crate) fn fits(self, does: Does) -> bool {
        match self {
            Self::Short => does == Does::Write,
            Self::FileNotSynced => does == Does::SyncFile,
            Self::DirectoryNotSynced => does == Does::SyncDirectory,
            Self::NotNamed | Self::NamedWithAnError => does == Does::Name,
            Self::NotCreated => does == Does::Create,
            Self::NotTruncated => does == Does::Truncate,
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

impl Content {
    /// What was synced and not changed since, with any part of the rest.
    fn after_a_cut(&self, chance: &mut Chance) -> Vec<u8> {
        let sure = self.is.iter().zip(&self.durable).take_while(|(is, durable)| is == durable).count();
        let (kept, rest) = self.is.split_at(sure);
        let blank = vec![0; rest.len()];
        let rest = match chance.below(5) {
            0 => return self.durable.clone(),
            1 => rest[..chance.below(rest.len() as u64 + 1) as usize].to_vec(),
            2 => blank,
            // Its blocks reach the platter in any order.
            3 => rest
                .chunks(64)
                .zip(blank.chunks(64))
                .flat_map(|both| if chance.one_in(2) { both.0 } else { both.1 })
                .copied()
                .collect(),
            _ => rest.to_vec(),
        };
        [kept, &rest].concat()
    }
}

/// What is in memory, and what is on the platter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Platter {
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
    pub(crate) fn after_a_cut(&self, root: &FsPath, chance: &mut Chance) -> BTreeMap<String, Vec<u8>> {
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
            let bytes = content.after_a_cut(chance);
            files.insert(path.strip_prefix(root).unwrap().to_string_lossy().to_string(), bytes);
        }
        files
    }
}

/// What was so after one of the disk's calls.
pub(crate) struct Moment {
    pub(crate) does: Does,
    pub(crate) platter: Platter,
    pub(crate) acknowledged: Option<u64>,
}

/// How much was acknowledged by then.
pub(crate) type Acknowledged = Arc<dyn Fn() -> Option<u64> + Send + Sync>;

/// Decides by a call's number and by what it does.
pub(crate) type Script = Box<dyn FnMut(usize, Does) -> Option<Trouble> + Send>;

struct Book {
    platter: Platter,
    files: u64,
    moments: Vec<Moment>,
    fired: BTreeMap<Trouble, u64>,
    script: Script,
}

/// A disk whose files are real, so that they can be read, and whose durability is kept in a book.
#[derive(Clone)]
pub(crate) struct Model {
    root: PathBuf,
    acknowledged: Acknowledged,
    book: Arc<Mutex<Book>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    pub(crate) fn new(root: &FsPath, acknowledged: Acknowledged, script: Script) -> Self {
        let (platter, moments) = (Platter::default(), Vec::new());
        let book = Book { platter, files: 0, moments, fired: BTreeMap::new(), script };
        Self { root: root.to_path_buf(), acknowledged, book: Arc::new(Mutex::new(book)) }
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
        let (platter, acknowledged) = (book.platter.clone(), (self.acknowledged)());
        book.moments.push(Moment { does, platter, acknowledged });
        done
    }

    pub(crate) fn root(&self) -> &FsPath {
        &self.root
    }

    /// What was so after each of the calls, which are forgotten.
    pub(crate) fn take_moments(&self) -> Vec<Moment> {
        std::mem::take(&mut self.book.lock().unwrap().moments)
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> usize {
        self.book.lock().unwrap().moments.len()
    }

    /// How often each trouble came.
    pub(crate) fn fired(&self) -> BTreeMap<Trouble, u64> {
        self.book.lock().unwrap().fired.clone()
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
    fn create(&self, path: &FsPath, _: Readers) -> io::Result<Box<dyn DiskFile>> {
        self.call(Does::Create, |book, trouble| {
            if trouble == Some(Trouble::NotCreated) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let file = fs::OpenOptions::new().write(true).create_new(true).open(path)?;
            book.files += 1;
            let id = book.files;
            book.platter.files.insert(id, Arc::default());
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), Some(Node::File(id)))]);
            Ok(Box::new(Written { id, file, disk: self.clone() }) as Box<dyn DiskFile>)
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

    fn create_dir(&self, path: &FsPath, _: Readers) -> io::Result<()> {
        self.call(Does::Remove, |book, _| {
            fs::create_dir(path)?;
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), Some(Node::Directory))]);
            Ok(())
        })
    }

    fn remove_dir(&self, path: &FsPath) -> io::Result<()> {
        self.call(Does::Remove, |book, _| {
            fs::remove_dir(path)?;
            book.platter.set(path.parent().unwrap(), vec![(path.to_path_buf(), None)]);
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
    file: fs::File,
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
            FileExt::write_all_at(&self.file, bytes, offset)?;
            if trouble == Some(Trouble::Short) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.call(Does::Truncate, |book, trouble| {
            if trouble == Some(Trouble::NotTruncated) {
                return Err(broken());
            }
            let content = Arc::make_mut(book.platter.files.get_mut(&self.id).unwrap());
            content.is.resize(length as usize, 0);
            self.file.set_len(length)
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
