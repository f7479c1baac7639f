//! The one integration binary.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod cli;
mod connector;
mod faults;
mod sink;
mod tidy;
mod verify;
mod world;
