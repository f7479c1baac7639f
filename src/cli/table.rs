//! The table that a command names by its URI, and how its object store is reached.

use std::convert::Infallible;

use crate::clock::World;
use crate::config::Secret;
use crate::error::{Error, Result};
use crate::log::{Access, Location, Log};

/// The table's URI, as every command that works without a configuration takes it.
#[derive(Debug, clap::Args)]
pub(super) struct TableArgs {
    /// The table: a local path, file://, s3://, az://, abfss:// or gs://
    #[arg(value_name = "URI")]
    pub(super) uri: String,
    #[command(flatten)]
    storage: StorageArgs,
}

/// How the object store of a table is reached.
#[derive(Debug, clap::Args)]
pub(super) struct StorageArgs {
    /// An option of the table's object store, as often as needed: --storage region=eu-west-1
    #[arg(long, value_name = "KEY=VALUE", value_parser = hidden)]
    storage: Vec<Secret>,
}

/// Takes any text, so that no usage error quotes it.
#[expect(clippy::unnecessary_wraps, reason = "the form of a parser of clap")]
fn hidden(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

impl TableArgs {
    /// The table's log, for reading.
    pub(super) fn log(&self, world: World) -> Result<Log> {
        Ok(Log::new(self.location(Access::Read)?, world))
    }

    /// Where the table is.
    pub(super) fn location(&self, access: Access) -> Result<Location> {
        self.storage.location(&self.uri, access)
    }
}

impl StorageArgs {
    /// Where the table `uri` is.
    pub(super) fn location(&self, uri: &str, access: Access) -> Result<Location> {
        let option = |written: &Secret| {
            let (name, value) =
                written.expose().split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
                    Error::config(
                        "a --storage is not of the form KEY=VALUE; write for example --storage region=eu-west-1",
                    )
                })?;
            Ok((name.to_string(), value.to_string()))
        };
        let options = self.storage.iter().map(option).collect::<Result<_>>()?;
        Location::open_with(uri, access, &options)
    }
}
