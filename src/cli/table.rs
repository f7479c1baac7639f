//! The table that a read-only command names by its URI.

use crate::clock::World;
use crate::error::Result;
use crate::log::{Access, Location, Log};

/// The table's URI, as every command that reads one takes it.
#[derive(Debug, clap::Args)]
pub(super) struct TableArgs {
    /// The table: a local path or file:// URL
    #[arg(value_name = "URI")]
    pub(super) uri: String,
}

impl TableArgs {
    /// The table's log, for reading.
    pub(super) fn log(&self, world: World) -> Result<Log> {
        Ok(Log::new(Location::open(&self.uri, Access::Read)?, world))
    }
}
