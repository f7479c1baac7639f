//! The one integration binary.

mod faults;
mod feeds;
mod flights;
mod kills;
mod program;
mod readers;
mod sink;
mod two_writers;
mod verify;
mod world;
