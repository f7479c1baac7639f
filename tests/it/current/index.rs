//! The index of keys: whatever becomes of it, it is made again, or not believed.

use std::fs;
use std::path::{Path, PathBuf};

use super::tables::{Table, changes, reload, rows};
use crate::program::Chance;

/// What becomes of the index between two processes.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    /// Taken back to what it was some commits ago.
    Stale,
    /// Some bytes of its files are others.
    Damaged,
    /// Of each of its files in turn, the file is gone.
    Incomplete,
    /// Held in memory by the process that is gone.
    Elsewhere,
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target)
        } else {
            _ = fs::copy(entry.path(), target).unwrap()
        }
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    files.sort();
    files
}

fn damage(folder: &Path, chance: &mut Chance) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            damage(&path, chance);
        } else if let Ok(mut bytes) = fs::read(&path)
            && !bytes.is_empty()
        {
            for _ in 0..1 + bytes.len() / 64 {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << chance.below(8);
            }
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[tokio::test]
async fn an_index_that_is_lost_stale_or_damaged_is_made_again_and_never_wrong() {
    let mut chance = Chance::new("an_index_that_is_lost_stale_or_damaged");
    let seed = chance.seed;
    for fate in [Fate::Kept, Fate::Lost, Fate::Stale, Fate::Damaged, Fate::Incomplete, Fate::Elsewhere] {
        let mut table = Table::new();
        let mut model = rows(&mut chance, 200, 150, 5);
        let mut sink = table.sink(&model, 5).await;
        let saved = table.home.path().join("saved");
        let mut at = 5;
        for n in 1..=12 {
            sink.append(changes(&mut chance, &mut model, 200, at, at + 2, 30)).await.unwrap();
            at += 2;
            if n == 9 {
                // A reload begins another index.
                reload(&mut sink, &model, at).await;
            }
            if n % 4 == 0 {
                sink.close().await;
                match fate {
                    Fate::Kept => {}
                    Fate::Lost => fs::remove_dir_all(table.keys()).unwrap(),
                    Fate::Stale => {
                        if saved.exists() {
                            fs::remove_dir_all(table.keys()).unwrap();
                            fs::rename(&saved, table.keys()).unwrap();
                        }
                    }
                    Fate::Damaged => damage(&table.keys(), &mut chance),
                    Fate::Incomplete => {
                        for number in 0..files(&table.keys()).len() {
                            let present = files(&table.keys());
                            fs::remove_file(&present[number % present.len()]).unwrap();
                            sink = table.sink(&model, at).await;
                            sink.append(changes(&mut chance, &mut model, 200, at, at + 1, 30)).await.unwrap();
                            at += 1;
                            sink.close().await;
                        }
                    }
                    Fate::Elsewhere => table.settings.key_index = None,
                }
                sink = table.sink(&model, at).await;
            } else if n % 4 == 2 && matches!(fate, Fate::Stale) {
                sink.close().await;
                copy(&table.keys(), &saved);
                sink = table.sink(&model, at).await;
            }
        }
        table.holds(&model, seed).await;
        assert!(
            !matches!(fate, Fate::Kept) || fs::read_dir(table.keys()).unwrap().count() == 1,
            "older indexes stay; seed {seed}"
        );
    }
}
