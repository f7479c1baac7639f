//! What views share whose changes stand in a step log between their source and their connectors: who needs which steps, who
//! was detached, and how a connector reads.

mod places;
mod reading;
mod register;

pub(in crate::source) use places::Places;
pub use places::{Place, WhenFull};
pub(in crate::source) use reading::{ANSWER_BYTES, Found, Reading, gone};
pub use register::Detached;
pub(in crate::source) use register::{Kept, Register};
