//! A table seen from outside: what any reader can check, without claim, configuration or daemon.

#[cfg(feature = "postgres")]
pub mod against;
mod bookmark;
pub mod changes;
mod current;
mod history;
mod in_order;
mod show;
pub mod staged;
pub mod state;
mod verify;

pub use bookmark::Bookmark;
pub use history::{Entry, history};
pub use show::{Shown, show};
pub use verify::{Repair, Report, RowsRead, Trusted, Verdict, verify, verify_deep};

use crate::error::{Error, ErrorKind, Result};
pub use crate::json::rows as json_rows;
use crate::log::{Listing, Log};

/// The listing of a log, which must be there.
async fn listing(log: &Log) -> Result<(Listing, u64)> {
    let listing = log.list(0).await?;
    match listing.head() {
        Some(head) => Ok((listing, head)),
        None => {
            Err(Error::new(ErrorKind::Internal, format!("no such table: {} has no Delta log", log.location().uri())))
        }
    }
}

/// The versions from the head down that are there without a hole, in ascending order.
fn contiguous(listing: &Listing, head: u64) -> Vec<u64> {
    let mut versions: Vec<u64> = (0..=head).rev().take_while(|v| listing.versions.contains(v)).collect();
    versions.reverse();
    versions
}
