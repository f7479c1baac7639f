//! Tables of layout `current`: the table is the view, as independent readers see it.

mod compaction;
mod index;
mod others;
mod readers;
mod tables;
