//! Cutover keeps a Delta Lake table equal to a changing view.

pub mod change;
pub mod clock;
pub mod config;
pub mod continuity;
pub mod digest;
pub mod epoch;
pub mod error;
pub mod generation;
pub mod schema;
pub mod snapshot;
pub mod source;
pub mod step;
