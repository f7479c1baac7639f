//! The files that readers begin with: checkpoints, and the hint that names one.

use std::collections::BTreeSet;

use futures::{StreamExt, TryStreamExt, stream};

use super::repair::CHECKPOINT;
use crate::continuity::finding::Rule;
use crate::continuity::history::History;
use crate::error::Result;
use crate::log::{HintFault, LAST_CHECKPOINT, Listing, Log};

const READS_AT_ONCE: usize = 16;

/// What of these files is damaged.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Whether the hint leads nowhere, or to a checkpoint that is not whole.
    pub(super) hint: bool,
    /// The versions whose checkpoints are not whole.
    pub(super) checkpoints: BTreeSet<u64>,
}

/// Looks at the ends of each checkpoint file and at the hint.
pub(super) async fn check(log: &Log, listing: &Listing, history: &mut History) -> Result<Damage> {
    let mut damage = Damage::default();
    let files = listing.checkpoint_files();
    let looked = stream::iter(&files).map(|file| async move { Ok((file, log.checkpoint_damage(file).await?)) });
    let looked: Vec<_> = looked.buffered(READS_AT_ONCE).try_collect::<Vec<_>>().await?;
    for (file, why) in looked {
        if let Some(why) = why {
            let message = format!("the checkpoint file {} {why}", file.name);
            history.find_file(file.version, Rule::Files, &file.name, message);
            damage.checkpoints.insert(file.version);
        } else if !file.is_complete {
            // Readers pass over it, and a writer that did not end may have left it.
            let message = format!("the checkpoint file {} lacks the other parts of its checkpoint", file.name);
            history.note(file.version, Some(file.name.clone()), message);
        }
    }
    if let Some(HintFault { version, message, misleads }) = log.hint_fault(listing).await? {
        let version = version.min(listing.head().unwrap_or(version));
        if misleads {
            history.find_file(version, Rule::Files, LAST_CHECKPOINT, message);
            damage.hint = true;
        } else {
            history.note(version, Some(LAST_CHECKPOINT.to_string()), message);
        }
    } else if let Some(version) = log.last_checkpoint().await? {
        damage.hint = damage.checkpoints.contains(&version);
    }
    Ok(damage)
}

/// Holds each of the checkpoints `sound` against the log without it, the oldest first; one that differs is no base for
/// those above.
pub(super) async fn compare(log: &Log, listing: &Listing, sound: &BTreeSet<u64>, history: &mut History) -> Result<()> {
    let mut listing = listing.clone();
    listing.checkpoints.clone_from(sound);
    for version in sound.iter().copied() {
        let file = format!("{version:020}{CHECKPOINT}");
        if let Some(difference) = log.checkpoint_difference(&listing, version).await? {
            listing.checkpoints.remove(&version);
            if !history.has_found(&file) {
                let message =
                    format!("the checkpoint of version {version} is not what the log says without it: {difference}");
                history.find_file_later(version, Rule::Files, file, message);
            }
        } else if !Log::can_compare_checkpoint(&listing, version) {
            let message = format!(
                "the checkpoint of version {version} cannot be compared with the log without it, which is cleaned up below"
            );
            history.note(version, Some(file), message);
        }
    }
    Ok(())
}
