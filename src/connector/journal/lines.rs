//! A file of lines that only grows, each of them synced before it counts.
//!
//! A line is a JSON object whose last member, `sum`, is a hash of the object without it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::disk::{misplaced, open_own};
use crate::error::{Error, Result};

const SUM: &str = ",\"sum\":\"";
/// `,"sum":"0123456789abcdef"}`
const SUM_LENGTH: usize = SUM.len() + 16 + 2;

/// The file, held by this process alone.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
    file: File,
    /// The bytes of the lines that count.
    length: u64,
    count: usize,
    /// Whether something may stand behind them that does not count.
    is_doubtful: bool,
}

impl Lines {
    /// The file `name` in `directory`, and its lines; both are made where they are not there. What a crash left of a last line is cut off.
    ///
    /// Corrupt: a line before the last is damaged. Refused: another process holds the file.
    pub(super) fn open(directory: &Path, name: &str) -> Result<(Self, Vec<String>)> {
        let path = directory.join(name);
        let failed = |e| unusable(&path, e);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let mut file = open_own(OpenOptions::new().read(true).append(true).create(true), &path)
            .map_err(|e| misplaced(&path, &e).unwrap_or_else(|| failed(e)))?;
        lock(&file, &path)?;
        if fs::symlink_metadata(&path).map_err(failed)?.ino() != file.metadata().map_err(failed)?.ino() {
            return Err(in_use(&path));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (whole, lines) = parse(&path, &bytes)?;
        if whole < bytes.len() {
            tracing::warn!(event = "journal_cut", path = %path.display(), bytes = bytes.len() - whole, "a line that was not written whole is cut off");
            file.set_len(whole as u64).map_err(failed)?;
        }
        // A line that was read may be one that was never synced.
        file.sync_all().and_then(|()| File::open(directory)?.sync_all()).map_err(failed)?;
        Ok((Self { path, file, length: whole as u64, count: lines.len(), is_doubtful: false }, lines))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds the JSON object `object`; it is durable when this returns. After an error the file is as it was, or is made so before
    /// anything else is added.
    ///
    /// Unavailable: there is no room, or the disk fails.
    pub(super) fn append(&mut self, object: &str) -> Result<()> {
        if self.is_doubtful {
            self.rewrite(|_| true)?;
        }
        let line = seal(object);
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            self.is_doubtful = true;
            // Only a courtesy to who reads the file after a crash: what counts is that it is written anew.
            let _ = self.file.set_len(self.length);
            return Err(unwritable(&self.path, error));
        }
        self.length += line.len() as u64;
        self.count += 1;
        Ok(())
    }

    /// Puts another file in this one's place, with the objects that are kept.
    pub(super) fn rewrite(&mut self, keeps: impl Fn(&str) -> bool) -> Result<()> {
        let failed = |e| unwritable(&self.path, e);
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(failed)?;
        (&self.file).take(self.length).read_to_end(&mut bytes).map_err(failed)?;
        let (_, lines) = parse(&self.path, &bytes)?;
        let kept: Vec<String> = lines.into_iter().filter(|line| keeps(line)).collect();
        let text: String = kept.iter().map(|object| seal(object)).collect();
        let (staged, file) = self.stage(text.as_bytes()).map_err(failed)?;
        lock(&file, &staged)?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        fs::rename(&staged, &self.path).and_then(|()| File::open(directory)?.sync_all()).map_err(failed)?;
        (self.file, self.length, self.count, self.is_doubtful) = (file, text.len() as u64, kept.len(), false);
        Ok(())
    }

    fn stage(&self, bytes: &[u8]) -> io::Result<(PathBuf, File)> {
        let staged = self.path.with_extension("tmp");
        match fs::remove_file(&staged) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok((staged, file))
    }
}

fn lock(file: &File, path: &Path) -> Result<()> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => in_use(path),
        TryLockError::Error(e) => unusable(path, e),
    })
}

fn in_use(path: &Path) -> Error {
    Error::refused(format!(
        "{} is in use by another process; stop it, or give this one another data_dir",
        path.display()
    ))
}

fn unusable(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("the journal {} cannot be used; make its directory writable", path.display()))
        .with_source(error)
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("the journal {} cannot be written; make room, or look at the disk", path.display()))
        .with_source(error)
}

fn seal(object: &str) -> String {
    let body = object.strip_suffix('}').unwrap_or(object);
    format!("{body}{SUM}{:016x}\"}}\n", XxHash3_64::oneshot(object.as_bytes()))
}

/// The object in a line, if it is what was sealed.
fn unseal(line: &str) -> Option<String> {
    let (body, _) = line.split_at_checked(line.len().checked_sub(SUM_LENGTH)?)?;
    let object = format!("{body}}}");
    (seal(&object).trim_end() == line).then_some(object)
}

/// The bytes of whole lines, and the objects in them.
fn parse(path: &Path, bytes: &[u8]) -> Result<(usize, Vec<String>)> {
    let (mut whole, mut objects) = (0, Vec::new());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let end = whole + line.len();
        let object = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok()).and_then(unseal);
        match object {
            Some(object) => objects.push(object),
            // A page of the last write that did not reach the disk reads as zeros.
            None if end == bytes.len() && (!line.ends_with(b"\n") || line.contains(&0)) => return Ok((whole, objects)),
            None => {
                return Err(Error::corrupt(format!(
                    "line {} of the journal {} is damaged; restore the file, or move it away: what it knows of resets, and a pause, is forgotten then",
                    objects.len() + 1,
                    path.display()
                )));
            }
        }
        whole = end;
    }
    Ok((whole, objects))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, Mode};

    use super::*;

    fn objects(from: usize, to: usize) -> Vec<String> {
        (from..to).map(|n| format!("{{\"n\":{n}}}")).collect()
    }

    fn filled(directory: &Path, count: usize) -> Lines {
        let (mut lines, _) = Lines::open(directory, "j").unwrap();
        objects(0, count).iter().for_each(|object| lines.append(object).unwrap());
        lines
    }

    #[test]
    fn a_file_cut_anywhere_keeps_its_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path(), 3));
        let path = dir.path().join("j");
        let bytes = fs::read(&path).unwrap();
        for end in 0..=bytes.len() {
            for tail in [0, 700] {
                let torn = [&bytes[..end], &vec![0; tail]].concat();
                fs::write(&path, torn).unwrap();
                let (mut lines, found) = Lines::open(dir.path(), "j").unwrap();
                let whole = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
                assert_eq!(found, objects(0, whole), "cut at {end}, {tail} zeros behind");
                lines.append(&objects(9, 10)[0]).unwrap();
                drop(lines);
                let (_, found) = Lines::open(dir.path(), "j").unwrap();
                assert_eq!(found, [objects(0, whole), objects(9, 10)].concat(), "cut at {end}, {tail} zeros behind");
            }
        }
    }

    #[test]
    fn a_changed_byte_is_damage_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path(), 3));
        let path = dir.path().join("j");
        let bytes = fs::read(&path).unwrap();
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            let error = Lines::open(dir.path(), "j").unwrap_err();
            let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            assert_eq!(error.kind(), crate::error::ErrorKind::Corrupt, "{at}: {error}");
            assert!(error.message().starts_with(&format!("line {line} of the journal ")), "{at}: {error}");
        }
    }

    #[test]
    fn a_rewrite_keeps_what_it_is_told_and_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let mut lines = filled(dir.path(), 10);
        lines.rewrite(|object| object > "{\"n\":6").unwrap();
        assert_eq!(lines.count(), 4);
        lines.append(&objects(10, 11)[0]).unwrap();
        let other = Lines::open(dir.path(), "j").unwrap_err();
        assert_eq!(other.kind(), crate::error::ErrorKind::Refused, "{other}");
        drop(lines);
        let (_, found) = Lines::open(dir.path(), "j").unwrap();
        assert_eq!(found, objects(6, 11));
    }

    #[test]
    fn what_could_not_be_written_does_not_count_and_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut lines = filled(dir.path(), 2);
        // Reads, and fails to write.
        lines.file = File::open(lines.path()).unwrap();
        let error = lines.append(&objects(2, 3)[0]).unwrap_err();
        assert_eq!((error.kind(), lines.count()), (crate::error::ErrorKind::Unavailable, 2));
        // What a failed write left behind.
        let mut torn = OpenOptions::new().append(true).open(lines.path()).unwrap();
        torn.write_all(seal(&objects(2, 3)[0]).as_bytes()).unwrap();
        lines.append(&objects(3, 4)[0]).unwrap();
        drop(lines);
        let (_, found) = Lines::open(dir.path(), "j").unwrap();
        assert_eq!(found, [objects(0, 2), objects(3, 4)].concat());
    }

    #[test]
    fn the_file_is_its_owners_and_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("a").join("b");
        let lines = filled(&inner, 1);
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&inner), mode(&inner.join("j"))), (0o700, 0o600));
        drop(lines);
        std::os::unix::fs::symlink(inner.join("j"), dir.path().join("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        for (name, what) in [("link", "is a link"), ("pipe", "is no file"), ("folder", "is no file")] {
            let error = Lines::open(dir.path(), name).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Refused, "{name}: {error}");
            assert!(error.message().contains(what), "{name}: {error}");
        }
    }
}
