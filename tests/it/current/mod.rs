//! Tables of layout `current`: the table is the view, as independent readers see it.

mod index;
mod readers;
mod tables;
