//! Whether a database can be followed as it is configured: all that is in the way, each with what repairs it. Nothing is changed.

mod server;
mod slots;
mod tables;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::datatypes::DataType;

use super::evidence::{Evidence, open_evidence};
use super::meeting::Meeting;
use super::replication::Replication;
use super::server::{Server, Session};
use crate::ailment::{Ailment, Severity};
use crate::clock::World;
use crate::disk::FileSystem;
use crate::error::{Error, ErrorKind, Result};
use crate::step::Step;

/// A database, and what is to be followed of it.
#[derive(Debug)]
pub struct Wanted {
    /// How it is reached.
    pub url: String,
    /// The slot's name.
    pub slot: String,
    /// The publication's name.
    pub publication: String,
    /// What the slot may make the server keep, in bytes.
    pub max_wal: Option<u64>,
    /// The file in which stands what is known of the server; it need not be there.
    pub evidence: PathBuf,
    /// The slots of others whom the configuration names.
    pub others: Vec<String>,
    /// Whether a daemon follows it.
    pub is_followed: bool,
    /// The tables.
    pub tables: Vec<WantedTable>,
}

/// A table that is to be followed.
#[derive(Debug)]
pub struct WantedTable {
    /// The view.
    pub view: String,
    /// Its name, as in SQL.
    pub table: String,
    /// The columns of its key that the configuration names.
    pub key: Vec<String>,
    /// The types of columns that it names.
    pub columns: Vec<(String, DataType)>,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Whether it can work.
    Plain,
    /// How it does, too.
    Deep,
}

/// Where keys of the source stand, below their pipeline.
const URL: &str = "source.postgres.url";
const SLOT: &str = "source.postgres.slot";
const PUBLICATION: &str = "source.postgres.publication";
const MAX_WAL: &str = "source.postgres.max_wal";

/// Everything that is wrong with the database; places are keys below the pipeline.
pub async fn examine(wanted: &Wanted, depth: Depth, world: &World) -> Vec<Ailment> {
    let mut found = Vec::new();
    if let Err(e) = look(wanted, depth, world, &mut found).await {
        found.push(unreached(&e, wanted, world));
    }
    // What is wrong with a publication is wrong for each of its tables.
    let mut told: Vec<Ailment> = Vec::new();
    for ailment in found {
        if !told.contains(&ailment) {
            told.push(ailment);
        }
    }
    told
}

/// That the server cannot be asked; where nothing is said that helps, how to see whether it answers at all.
fn unreached(error: &Error, wanted: &Wanted, world: &World) -> Ailment {
    let ailment = Ailment::of(URL, error);
    if ailment.remedy.is_some() || error.kind() != ErrorKind::Unavailable {
        return ailment;
    }
    let place = Server::new(&wanted.url, world.clock.clone()).ok().map(|server| server.place().to_owned());
    Ailment { remedy: place.map(|place| format!("pg_isready -d postgres://{place}")), ..ailment }
}

/// An error: nothing more can be looked at.
async fn look(wanted: &Wanted, depth: Depth, world: &World, found: &mut Vec<Ailment>) -> Result<()> {
    let server = Server::new(&wanted.url, world.clock.clone())?;
    let session = server.connect().await?;
    let about = server::About::read(&session).await?;
    about.examine(&server, wanted, depth, world, found);
    slots::examine(&session, wanted, depth, found).await?;
    if !about.can_be_followed() {
        return tables::examine(&session, None, &about, wanted, found).await;
    }
    // What lets the other connections in may not let in this one.
    let met = match Replication::connect(&server).await {
        Ok(replication) => {
            replication.end().await;
            Meeting::with(&server, &wanted.slot, &wanted.publication).await
        }
        Err(e) => Err(e),
    };
    let meeting = match met {
        Ok(meeting) => meeting,
        Err(e) => {
            found.push(Ailment::of(SLOT, &e));
            return tables::examine(&session, None, &about, wanted, found).await;
        }
    };
    tables::examine(&session, Some(&meeting), &about, wanted, found).await?;
    match known(wanted) {
        Err(e) => found.push(Ailment::of(SLOT, &e)),
        Ok(None) if meeting.seen.slot.is_some() && !wanted.is_followed => {
            let slot = &wanted.slot;
            found.push(Ailment::warning(
                SLOT,
                format!("there is a replication slot {slot:?}, and {} has nothing of it: it is of another server.data_dir, with which to run then, or somebody else's; another one is named by \"slot\"; if nobody will read it, drop it", wanted.evidence.display()),
                format!("SELECT pg_drop_replication_slot('{slot}');"),
            ));
        }
        Ok(None) => {}
        Ok(Some(evidence)) => {
            if let Err(e) = evidence.check(&meeting.seen, Step::ZERO) {
                found.push(Ailment::of(SLOT, &e));
            }
        }
    }
    Ok(())
}

fn known(wanted: &Wanted) -> Result<Option<Evidence>> {
    Ok(open_evidence(&wanted.evidence, Arc::new(FileSystem))?.1)
}

/// The place of a view's table.
fn table_of(view: &str) -> String {
    format!("views.{view}.table")
}

/// Whether anything found is an error.
fn has_errors(found: &[Ailment]) -> bool {
    found.iter().any(|ailment| ailment.severity == Severity::Error)
}

/// The one row of a statement.
async fn one(session: &Session, statement: &str) -> Result<tokio_postgres::Row> {
    let rows = session.query(statement, &[]).await?;
    rows.into_iter().next().ok_or_else(|| Error::internal(format!("{}: a query gave no row", session.place())))
}
