//! A Delta table's log: open, facts, one put, replay, checkpoints, clean-up, and what is done with a log that is damaged.
//!
//! The only user of deltalake and its kernel. Everything above sees versions, facts and outcomes.

mod actions;
mod checkpoint;
mod cleanup;
mod cloud;
mod clustering;
mod compare;
mod condition;
mod durable;
pub mod entry;
mod facts;
mod features;
mod garbage;
mod hidden;
mod hint;
mod kernel;
pub mod location;
mod mapping;
mod metadata;
mod names;
mod patience;
mod probe;
mod put;
mod read;
mod rebuild;
mod relics;
mod salvage;
mod upkeep;
mod vector;
mod wire;
mod withdraw;

pub use checkpoint::Cadence;
pub use cleanup::Expired;
pub use cloud::{Service, StorageOptions};
pub use condition::{Around, Condition};
pub use durable::SyncedStore;
pub use entry::{AddAction, Metadata, Protocol, RowIds};
pub use facts::{Facts, live_map};
pub use garbage::{Garbage, GarbageFile, LEAST_AGE, Why};
pub use hint::{HintFault, LAST_CHECKPOINT};
pub use kernel::{LiveFile, Replayed};
pub use location::{Access, Durability, Location};
pub use mapping::{Columns, FileColumns};
pub use metadata::{schema_of, table_schema};
pub use names::{CheckpointFile, Listing};
pub use put::{Entry, Outcome, Proposal};
pub use rebuild::{Floor, Wreck};
pub use vector::RowSet;
pub(crate) use vector::Vectors;
pub use withdraw::Before;

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::path::Path;

use crate::clock::World;

/// A table's log.
#[derive(Debug, Clone)]
pub struct Log {
    location: Location,
    kernel: kernel::Kernel,
    world: World,
    /// The log as others see it, where this one is seen past its damage.
    past: Option<Arc<condition::Past>>,
}

impl Log {
    /// The log of the table at `location`; nothing is read or written yet.
    pub fn new(location: Location, world: World) -> Self {
        let location = location.patient(&world.clock);
        let kernel = kernel::Kernel::new(&location);
        Self { location, kernel, world, past: None }
    }

    /// The log as others see it.
    pub(crate) fn plain(&self) -> &Self {
        self.past.as_ref().map_or(self, |past| &past.log)
    }

    /// Where the table is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The table's objects, paths relative to its root.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        self.location.store()
    }

    /// The kernel, which does not see the names of the log's folder that `hides` says.
    fn kernel_without(&self, hides: impl Fn(&str) -> bool + Send + Sync + 'static) -> kernel::Kernel {
        kernel::Kernel::hiding(&self.location, Arc::new(hides))
    }
}

/// The folder of the log, relative to the table's root.
pub(crate) const LOG_DIR: &str = "_delta_log";
/// The folder of checkpoints' sidecars in the log's folder.
const SIDECARS: &str = "_sidecars";

/// The object that holds `version`.
pub(crate) fn version_path(version: u64) -> Path {
    Path::from_iter([LOG_DIR, &format!("{version:020}.json")])
}
