//! JSON text to Arrow columns, exactly or not at all.

mod column;
mod entries;
mod misplaced;
mod record;
mod room;
pub mod rows;
mod value;

pub(crate) use column::null_width;
pub(crate) use entries::{Entries, NotEntries};
pub(crate) use misplaced::{Misplaced, shown};
pub(crate) use record::{Names, Record};
pub(crate) use room::Room;
pub(crate) use value::{integer, kind_of};
