//! Tables of layout `current`: the table is the view, as independent readers see it.

mod index;
mod others;
mod readers;
pub(crate) mod tables;
mod tpch;
mod vectors;
