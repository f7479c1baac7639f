//! Cutover keeps a Delta Lake table equal to a changing view.

pub mod change;
pub mod clock;
pub mod config;
pub mod connector;
pub mod continuity;
pub mod digest;
pub mod epoch;
pub mod error;
pub mod files;
pub mod generation;
pub mod inspect;
pub mod log;
pub mod schema;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod step;

pub use change::{Changes, Op};
pub use clock::{Clock, Ids, SystemClock, World};
pub use continuity::plan::{OnExisting, Standing};
pub use error::{Error, ErrorKind, Result};
pub use log::{Access, Durability, Location};
pub use schema::View;
pub use sink::{Applied, Sink, SinkSettings, Target};
pub use snapshot::Snapshot;
pub use step::{Step, StepRange};
