//! Where processes keep the indexes of a table's keys: each of them has a machine of its own, and may find what was left there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::program::Chance;

/// More than processes run at once.
const MANY: usize = 4;

/// The machines that there are.
pub(super) struct Homes {
    folder: TempDir,
    /// Which of them are in use.
    taken: Arc<Mutex<[bool; MANY]>>,
}

/// What one process has for itself until it is dropped.
pub(super) struct Home {
    pub(super) path: PathBuf,
    number: usize,
    taken: Arc<Mutex<[bool; MANY]>>,
}

impl Homes {
    pub(super) fn new() -> Self {
        Self { folder: TempDir::new().unwrap(), taken: Arc::default() }
    }

    /// One that nobody has; its disk may be lost.
    pub(super) fn take(&self, chance: &mut Chance) -> Home {
        let mut taken = self.taken.lock().unwrap();
        let free: Vec<usize> = (0..MANY).filter(|number| !taken[*number]).collect();
        let number = free[chance.below(free.len() as u64) as usize];
        taken[number] = true;
        let path = self.folder.path().join(number.to_string());
        if chance.one_in(6) {
            drop(fs::remove_dir_all(&path));
        }
        Home { path, number, taken: Arc::clone(&self.taken) }
    }
}

impl Home {
    /// What a process leaves that is killed before `end`, by which it would write what it holds in memory.
    pub(super) fn killed<T>(&self, end: impl FnOnce() -> T) -> T {
        let kept = self.path.with_extension("kept");
        if self.path.exists() {
            copy(&self.path, &kept);
        }
        let ended = end();
        drop(fs::remove_dir_all(&self.path));
        if kept.exists() {
            fs::rename(&kept, &self.path).unwrap();
        }
        ended
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.taken.lock().unwrap()[self.number] = false;
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false => _ = fs::copy(&from, &to).unwrap(),
        }
    }
}
