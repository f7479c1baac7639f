//! A table of a server as one that was made of it is held against it: at one position of the log, as often as it is wanted.

use std::collections::BTreeSet;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use futures::stream::BoxStream;

use super::catalog::{Column, Table, TableName, view_of};
use super::copy::Copy;
use super::exported::Exported;
use super::replication::Replication;
use super::server::{Server, Session};
use crate::clock::World;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::View;
use crate::step::Step;

/// How many connections read it.
const CONNECTIONS: usize = 4;
/// How the slots begin by which it is looked at.
const SLOT: &str = "cutover_verify";
/// How long a lock may be waited for.
const LOCK: &str = "30s";
/// How long the transactions that are under way may take to end.
const UNDER_WAY: Duration = Duration::from_secs(120);

/// A table of a server.
#[derive(Debug)]
pub struct Original {
    server: Server,
    name: TableName,
    world: World,
}

/// What came of looking at it.
pub(crate) enum Taken {
    /// The table at a position.
    Witness(Box<Witness>),
    /// It can be no table's original that is so; why.
    Unlike(String),
}

/// The table at one position, which stays readable until this is dropped: for as long nobody alters or truncates it.
pub(crate) struct Witness {
    server: Server,
    name: TableName,
    wishes: Vec<(String, DataType)>,
    view: View,
    snapshot: String,
    step: Step,
    point: String,
    /// In a transaction that holds snapshot and table.
    _holder: Session,
}

impl Original {
    /// The table `table` of the database at `url`, in whose log pgoutput is read; nothing is asked yet.
    ///
    /// Config: one of both is none. No message quotes the URL.
    pub fn new(url: &str, table: &str, world: &World) -> Result<Self> {
        let named = |e: Error| Error::config(format!("the table {table:?} is none: {}", e.message()));
        let name = TableName::parse(table).map_err(named)?;
        Ok(Self { server: Server::new(url, world.clock.clone())?, name, world: world.clone() })
    }

    /// Host, port and database, without who connects and by what.
    pub fn place(&self) -> &str {
        self.server.place()
    }

    /// The table's name, as SQL has it.
    pub fn table(&self) -> String {
        self.name.to_string()
    }

    /// The table at the end of the server's log, held against a history called `fingerprint` and its `columns`.
    ///
    /// Config: there is no such table. Unavailable: a transaction under way does not end. Refused: nobody lets it be read.
    pub(crate) async fn look(&self, fingerprint: &str, columns: &Schema) -> Result<Taken> {
        let (server, place) = (&self.server, self.server.place());
        let holder = server.connect().await?;
        let statement = "SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()";
        let database = holder.query(statement, &[]).await?.first().map_or(0, |row| row.get(0));
        let mut replication = Replication::connect(server).await?;
        let identity = replication.identify(database).await?;
        let begins = identity.begins();
        if !fingerprint.starts_with(&begins) {
            replication.end().await;
            return Ok(Taken::Unlike(format!(
                "it follows {fingerprint}, and the server's histories begin with {begins}: it was made of another server, timeline or database"
            )));
        }
        let exporting = Exported::take(replication, server, SLOT, &self.world.ids);
        let exported = tokio::select! {
            exported = exporting => exported?,
            () = self.world.clock.deadline(UNDER_WAY) => return Err(Error::unavailable(format!(
                "{place}: no snapshot could be taken within {} s: transactions that were under way have not ended; end them, they are in pg_stat_activity",
                UNDER_WAY.as_secs()
            ))),
        };
        let begin = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '{}'; \
             SET LOCAL lock_timeout = '{LOCK}'; LOCK TABLE {} IN ACCESS SHARE MODE",
            exported.name,
            self.name.quoted()
        );
        holder.execute(&begin).await?;
        let snapshot = holder.query("SELECT pg_catalog.pg_export_snapshot()", &[]).await?;
        let snapshot: Option<String> = snapshot.first().map(|row| row.get(0));
        let snapshot = snapshot.ok_or_else(|| Error::internal(format!("{place}: the server exported no snapshot")))?;
        let (step, point) = (exported.step, exported.point.clone());
        // The server keeps nothing of its log for what is only read.
        exported.let_go().await;
        let table = Table::read(&holder, &self.name, &[]).await?;
        if let Some(why) = unlike(&table.columns, columns) {
            return Ok(Taken::Unlike(why));
        }
        let wishes = wishes(&table.columns, columns);
        let table = match Table::read(&holder, &self.name, &wishes).await {
            Ok(table) => table,
            Err(e) if e.kind() == ErrorKind::Config => return Ok(Taken::Unlike(e.message().to_owned())),
            Err(e) => return Err(e),
        };
        Ok(Taken::Witness(Box::new(Witness {
            server: server.clone(),
            name: self.name.clone(),
            view: view_of(&self.name.to_string(), &table.columns, &[])?,
            wishes,
            snapshot,
            step,
            point,
            _holder: holder,
        })))
    }
}

impl Witness {
    /// All transactions that end up to here are in it, and no other.
    pub(crate) fn step(&self) -> Step {
        self.step
    }

    /// The same, in the server's own words.
    pub(crate) fn point(&self) -> &str {
        &self.point
    }

    /// Its rows, in any order, with its columns in the types that a table keeps.
    ///
    /// Unavailable: the table was altered while it was looked at.
    pub(crate) async fn rows(&self) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let copy = Copy::open(&self.server, &self.name, &self.wishes, &self.snapshot, CONNECTIONS).await?;
        let altered = || {
            Error::unavailable(format!(
                "{}: {} was altered, truncated or rewritten when it was looked at; try again",
                self.server.place(),
                self.name
            ))
        };
        Ok(copy.ok_or_else(altered)?.rows(self.view.schema().clone()))
    }
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").field("name", &self.name).field("step", &self.step).finish_non_exhaustive()
    }
}

/// Which columns only one of both has.
fn unlike(own: &[Column], others: &Schema) -> Option<String> {
    let theirs: BTreeSet<&str> = others.fields().iter().map(|field| field.name().as_str()).collect();
    let ours: BTreeSet<&str> = own.iter().map(|column| column.name.as_str()).collect();
    let listed = |names: &BTreeSet<&str>, others: &BTreeSet<&str>| {
        let only: Vec<String> = names.difference(others).map(|name| format!("{name:?}")).collect();
        if only.is_empty() { "none".to_owned() } else { only.join(", ") }
    };
    (ours != theirs).then(|| {
        format!(
            "the columns differ: only the server has {}, only the table has {}",
            listed(&ours, &theirs),
            listed(&theirs, &ours)
        )
    })
}

/// The types by which columns come to those of the table, where that is not their own.
fn wishes(own: &[Column], others: &Schema) -> Vec<(String, DataType)> {
    let wish = |column: &Column| {
        let kept = others.field_with_name(&column.name).ok()?.data_type();
        (*kept != column.kind.data_type()).then(|| (column.name.clone(), kept.clone()))
    };
    own.iter().filter_map(wish).collect()
}
