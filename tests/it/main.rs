//! The one integration binary.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

mod added_columns;
mod adopt;
mod ambiguity;
mod changes;
mod cli;
mod connector;
mod crashes;
mod damage;
mod deep;
mod disk;
mod encodings;
mod faults;
mod features;
mod feeds;
mod flights;
mod foreign;
mod full_disk;
mod golden;
mod histories;
mod interplay;
mod invariants;
mod kills;
mod maintenance;
mod maintenance_failures;
mod object_stores;
mod partitions;
mod platter;
mod program;
mod readers;
mod rebuild;
mod sample;
mod schema_change;
mod service;
mod simulation;
mod sink;
mod steplog;
mod tables;
mod tidy;
mod troubles;
mod two_writers;
mod types;
mod verify;
mod workload;
mod world;
