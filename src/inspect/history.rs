//! A table's versions, newest first: our commits and those of others.

use futures::StreamExt;

use super::{contiguous, listing};
use crate::continuity::commit::{Author, Commit};
use crate::error::Result;
use crate::log::Log;

/// One version.
#[derive(Debug)]
pub struct Entry {
    /// The version.
    pub version: u64,
    /// The commit; an error when the entry is torn or damaged.
    pub commit: Result<Commit>,
}

impl Entry {
    /// The commit, if it is ours.
    pub fn is_ours(&self) -> bool {
        matches!(&self.commit, Ok(Commit { author: Author::Ours { .. }, .. }))
    }
}

/// The newest `limit` versions, newest first.
pub async fn history(log: &Log, limit: usize) -> Result<Vec<Entry>> {
    let (listing, head) = listing(log).await?;
    let versions: Vec<u64> = contiguous(&listing, head).into_iter().rev().take(limit).collect();
    let mut entries = Vec::with_capacity(versions.len());
    let mut commits = std::pin::pin!(log.commits(versions));
    while let Some((version, commit)) = commits.next().await {
        if let Some(commit) = commit.transpose() {
            entries.push(Entry { version, commit });
        }
    }
    Ok(entries)
}
