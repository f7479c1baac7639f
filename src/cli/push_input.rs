//! The input of a push, cut into steps.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::error::{Error, Result};

/// More than a step may have anywhere: the daemon's own bound is lower, and it says so.
const LARGEST_STEP: u64 = 1 << 30;

/// What of the input becomes one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) bytes: Bytes,
    /// The number of its first line, from 1; of the whole input where lines are not counted.
    pub(super) first_line: u64,
    /// The number of its last line; 0 where lines are not counted.
    pub(super) last_line: u64,
}

/// An input that is read step by step.
pub(super) struct Input {
    name: PathBuf,
    reader: Box<dyn BufRead + Send>,
    /// How many lines make a step; absent: all of them.
    rows: Option<NonZeroU64>,
    lines: u64,
    is_done: bool,
}

impl Input {
    /// The file `path`, or stdin for `-`; nothing is read yet.
    pub(super) fn open(path: &Path, rows: Option<NonZeroU64>) -> Result<Self> {
        let reader: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(io::stdin()))
        } else {
            let file = File::open(path).map_err(|e| {
                Error::refused(format!("{} cannot be read; name a file, or - for stdin", path.display())).with_source(e)
            })?;
            Box::new(BufReader::new(file))
        };
        Ok(Self::of(path, reader, rows))
    }

    fn of(name: &Path, reader: Box<dyn BufRead + Send>, rows: Option<NonZeroU64>) -> Self {
        Self { name: name.to_path_buf(), reader, rows, lines: 0, is_done: false }
    }

    /// The next step, and the rest; the input may take its time.
    pub(super) async fn next(self) -> Result<(Self, Option<Batch>)> {
        let read = tokio::task::spawn_blocking(move || {
            let mut input = self;
            let batch = input.read()?;
            Ok((input, batch))
        });
        read.await.map_err(|e| Error::internal("the input was not read").with_source(e))?
    }

    fn read(&mut self) -> Result<Option<Batch>> {
        let mut bytes = Vec::new();
        match self.rows {
            None if self.is_done => Ok(None),
            None => {
                let unread = |e| unread(&self.name, e);
                self.reader.by_ref().take(LARGEST_STEP + 1).read_to_end(&mut bytes).map_err(unread)?;
                self.check(&bytes)?;
                self.is_done = true;
                Ok(Some(Batch { bytes: bytes.into(), first_line: 1, last_line: 0 }))
            }
            Some(rows) => {
                let first_line = self.lines + 1;
                let mut found = 0;
                while found < rows.get() {
                    let before = bytes.len();
                    let left = (LARGEST_STEP + 1).saturating_sub(before as u64);
                    let read = self.reader.by_ref().take(left).read_until(b'\n', &mut bytes);
                    if read.map_err(|e| unread(&self.name, e))? == 0 {
                        break;
                    }
                    self.check(&bytes)?;
                    self.lines += 1;
                    // The daemon leaves blank lines out, but counts them.
                    found += u64::from(bytes.get(before..).is_some_and(|line| !line.trim_ascii().is_empty()));
                }
                let batch = Batch { bytes: bytes.into(), first_line, last_line: self.lines };
                Ok((found > 0).then_some(batch))
            }
        }
    }

    fn check(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 <= LARGEST_STEP {
            return Ok(());
        }
        let name = self.name.display();
        Err(Error::refused(format!("{name} has more than {LARGEST_STEP} bytes for one step; cut it by --batch-rows")))
    }
}

fn unread(name: &Path, e: io::Error) -> Error {
    Error::internal(format!("{} cannot be read further", name.display())).with_source(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn batches(text: &'static str, rows: u64) -> Vec<(String, u64, u64)> {
        let mut input = Input::of(Path::new("-"), Box::new(text.as_bytes()), NonZeroU64::new(rows));
        let mut found = Vec::new();
        loop {
            let batch;
            (input, batch) = input.next().await.unwrap();
            let Some(Batch { bytes, first_line, last_line }) = batch else { return found };
            found.push((String::from_utf8(bytes.to_vec()).unwrap(), first_line, last_line));
        }
    }

    #[tokio::test]
    async fn so_many_lines_are_a_step_and_blank_ones_only_count() {
        let expected = |parts: &[(&str, u64, u64)]| -> Vec<(String, u64, u64)> {
            parts.iter().map(|(text, first, last)| (text.to_string(), *first, *last)).collect()
        };
        assert_eq!(batches("a\n\n b\r\nc", 2).await, expected(&[("a\n\n b\r\n", 1, 3), ("c", 4, 4)]));
        assert_eq!(batches("a\nb\n\n \n", 2).await, expected(&[("a\nb\n", 1, 2)]));
        assert_eq!(batches("\n\n", 1).await, expected(&[]));
        assert_eq!(batches("a\n", 99).await, expected(&[("a\n", 1, 1)]));
        assert_eq!(batches("a\nb", 0).await, expected(&[("a\nb", 1, 0)]), "without a number all is one step");
        assert_eq!(batches("", 0).await, expected(&[("", 1, 0)]));
    }

    #[test]
    fn a_file_that_is_not_there_is_refused_at_once() {
        let refused = Input::open(Path::new("/nowhere/at/all"), None).map(|_| ()).unwrap_err();
        assert!(refused.message().contains("/nowhere/at/all cannot be read"), "{refused}");
    }
}
