//! The one integration binary.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod added_columns;
mod cli;
mod connector;
mod faults;
mod feeds;
mod flights;
mod kills;
mod program;
mod readers;
mod schema_change;
mod sink;
mod tidy;
mod two_writers;
mod verify;
mod world;
