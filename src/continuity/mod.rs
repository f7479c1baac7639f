//! What makes a table's history continuous: stamps on commits, the fold over them, and the plan of the next one.
//!
//! Everything here is pure: no I/O, no clock, no awaiting.

pub mod columns;
pub mod commit;
pub mod finding;
pub mod foreign;
mod form;
pub mod history;
pub mod plan;
mod replaced;
pub mod stamp;
