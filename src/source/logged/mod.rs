//! What views share whose changes stand in a step log between their source and their connectors: who needs which steps, who
//! was detached, and how a connector reads.

mod asking;
mod places;
mod reading;
mod register;
mod room;

pub(in crate::source) use asking::ask;
pub(in crate::source) use places::Places;
pub use places::{FULL, Place, WhenFull};
pub(in crate::source) use reading::{ANSWER_BYTES, Found, Reading, SMALL_ANSWER_BYTES, check_held, gone};
pub use register::Detached;
pub(in crate::source) use register::{Kept, Register, open_register};
pub use room::Departures;
pub(in crate::source) use room::{Keeper, makes_room};
