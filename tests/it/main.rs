//! The one integration binary.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod cli;
mod connector;
mod encodings;
mod faults;
mod feeds;
mod flights;
mod kills;
mod program;
mod readers;
mod sink;
mod tidy;
mod two_writers;
mod verify;
mod world;
