//! What a reader can ask of a table without a daemon.

mod data_file;
pub mod json_rows;
pub mod state;
