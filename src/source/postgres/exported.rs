//! A snapshot of a whole database at one position of its log, exported for other sessions.

use super::meeting::step;
use super::replication::Replication;
use super::server::Server;
use crate::clock::Ids;
use crate::error::{Error, Result};
use crate::step::Step;

/// How much of a name stays before the id that makes it another.
const NAME: usize = 50;

/// An exported snapshot. It can be taken up until this is dropped or let go, and holds a slot of its own for as long.
pub(super) struct Exported {
    replication: Replication,
    /// All transactions that end up to here are in it, and no other.
    pub(super) step: Step,
    /// The same in the server's words.
    pub(super) point: String,
    /// What sessions call it.
    pub(super) name: String,
}

impl Exported {
    /// Takes one over `replication`, by a temporary slot whose name begins with `slot`; it begins once the transactions that are
    /// under way have ended.
    pub(super) async fn take(mut replication: Replication, server: &Server, slot: &str, ids: &Ids) -> Result<Self> {
        let id: String = ids.draw().chars().filter(char::is_ascii_hexdigit).take(12).collect();
        let slot = format!("{}_{id}", slot.chars().take(NAME).collect::<String>());
        let command = format!("CREATE_REPLICATION_SLOT \"{slot}\" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT");
        let made = replication.query(&command).await?;
        let cell = |at: usize| made.first().and_then(|row| row.get(at)).cloned().flatten();
        let (Some(point), Some(name)) = (cell(1), cell(2)) else {
            return Err(Error::internal(format!("{}: the server exported no snapshot", server.place())));
        };
        Ok(Self { replication, step: step(&point)?, point, name })
    }

    /// Ends it; who took it up goes on with it.
    pub(super) async fn let_go(self) {
        self.replication.end().await;
    }
}
