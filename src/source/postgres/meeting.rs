//! What a server says when it is met, and what is set up there.

use tokio_postgres::Row;

use super::catalog::{Table, TableName};
use super::evidence::{Seen, SeenSlot};
use super::message::Lsn;
use super::replication::Replication;
use super::server::{Server, Session};
use crate::error::{Error, Result};
use crate::step::Step;

/// The oldest version whose slots and publications are as they are used here.
const OLDEST: i32 = 130_000;
/// The first version whose publications may leave rows and columns out.
const WITH_FILTERS: i32 = 150_000;

/// A server that was met.
pub(super) struct Meeting<'a> {
    server: &'a Server,
    pub(super) session: Session,
    pub(super) seen: Seen,
    version: i32,
    slot: &'a str,
    publication: &'a str,
}

/// How a table is in the publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Membership {
    /// By which entry of the catalogs; another one once it was taken out or the publication was altered.
    pub(super) entry: String,
    /// Whether it is in there because all tables are, of the database or of its schema.
    pub(super) is_swept: bool,
}

/// What WAL a slot makes the server keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalKept {
    /// In bytes, from the first that the slot may need.
    pub bytes: u64,
    /// The server's own word for it: `reserved`, `extended`, `unreserved` or `lost`.
    pub status: String,
}

impl<'a> Meeting<'a> {
    /// Meets the server and looks at the slot; nothing is changed.
    ///
    /// Config: it cannot be followed as it is configured.
    pub(super) async fn with(server: &'a Server, slot: &'a str, publication: &'a str) -> Result<Self> {
        let session = server.connect().await?;
        let place = session.place().to_owned();
        // What is set up counts only once it is durable.
        session.execute("SET synchronous_commit = 'on'").await?;
        let about = one(
            &session,
            "SELECT current_setting('server_version_num')::int4, current_setting('wal_level'), pg_catalog.pg_is_in_recovery(),
                (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())",
        )
        .await?;
        let (version, level, is_replica): (i32, String, bool) = (about.get(0), about.get(1), about.get(2));
        if version < OLDEST {
            return Err(Error::config(format!(
                "{place}: the server's version number is {version}, and none below {OLDEST} can be followed; upgrade it"
            )));
        }
        if is_replica {
            return Err(Error::unavailable(format!(
                "{place}: the server is a replica; name the primary, or promote it"
            )));
        }
        if level != "logical" {
            return Err(Error::config(format!(
                "{place}: wal_level is {level}; run ALTER SYSTEM SET wal_level = 'logical', and restart the server"
            )));
        }
        let mut replication = Replication::connect(server).await?;
        let identity = replication.identify(about.get(3)).await?;
        replication.end().await;
        let mut meeting = Self {
            server,
            session,
            seen: Seen { identity, flushed: Step::ZERO, slot: None },
            version,
            slot,
            publication,
        };
        meeting.look().await?;
        Ok(meeting)
    }

    /// Looks at the slot anew.
    async fn look(&mut self) -> Result<()> {
        self.seen.slot = self.slot().await?;
        self.seen.flushed = flushed(&self.session).await?;
        Ok(())
    }

    async fn slot(&self) -> Result<Option<SeenSlot>> {
        let found = self
            .session
            .query(
                "SELECT plugin::text, database::text, confirmed_flush_lsn::text, wal_status, pg_catalog.to_jsonb(s)->>'invalidation_reason',
                    temporary
                FROM pg_catalog.pg_replication_slots s WHERE slot_name = $1",
                &[&self.slot],
            )
            .await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (plugin, database): (Option<String>, Option<String>) = (row.get(0), row.get(1));
        if plugin.as_deref() != Some("pgoutput") || database.as_deref() != Some(self.seen.identity.database.as_str()) {
            return Err(Error::config(format!(
                "{}: the replication slot {:?} is of the plug-in {} in the database {}; name another slot",
                self.place(),
                self.slot,
                plugin.unwrap_or("none".into()),
                database.unwrap_or("none".into())
            )));
        }
        let confirmed = row.get::<_, Option<&str>>(2).map(step).transpose()?;
        let (status, reason): (Option<String>, Option<String>) = (row.get(3), row.get(4));
        let invalid = reason.or_else(|| status.filter(|status| status == "lost"));
        Ok(Some(SeenSlot { confirmed, invalid }))
    }

    pub(super) fn place(&self) -> &str {
        self.session.place()
    }

    /// Drops the slot. Unavailable: somebody reads it.
    pub(super) async fn drop_slot(&self) -> Result<()> {
        self.session.query("SELECT pg_catalog.pg_drop_replication_slot($1)", &[&self.slot]).await.map(drop)
    }

    /// Makes the slot, anew where there is one; from where on it has everything.
    pub(super) async fn make_slot(&mut self) -> Result<Step> {
        if self.seen.slot.is_some() {
            self.drop_slot().await?;
        }
        let mut replication = Replication::connect(self.server).await?;
        let command = format!("CREATE_REPLICATION_SLOT \"{}\" LOGICAL pgoutput NOEXPORT_SNAPSHOT", self.slot);
        let made = replication.query(&command).await?;
        replication.end().await;
        let point = made.first().and_then(|row| row.get(1)).cloned().flatten();
        let point = step(&point.ok_or_else(|| Error::internal("a slot was made that stands nowhere"))?)?;
        self.look().await?;
        Ok(point)
    }

    /// Makes sure that the publication tells all of `table`; its membership, and the step after which all of its
    /// changes are told.
    ///
    /// Refused: it cannot be, with the statement that repairs it.
    pub(super) async fn publish(&self, table: &Table) -> Result<(Membership, Step)> {
        let name = table.name.quoted();
        let membership = match self.membership(table).await? {
            Some(membership) => Some(membership),
            None => {
                self.session.execute(&self.publishing(&[table]).await?).await?;
                self.membership(table).await?
            }
        };
        let gone = || Error::unavailable(format!("{}: {name} was published, and is not", self.place()));
        Ok((membership.ok_or_else(gone)?, flushed(&self.session).await?))
    }

    /// The statement that publishes tables which are not.
    pub(super) async fn publishing(&self, tables: &[&Table]) -> Result<String> {
        let (publication, names) = (self.quoted(), tables.iter().map(|table| table.name.quoted()));
        let names = names.collect::<Vec<_>>().join(", ");
        Ok(if self.has_publication().await? {
            format!("ALTER PUBLICATION {publication} ADD TABLE {names}")
        } else {
            format!("CREATE PUBLICATION {publication} FOR TABLE {names} WITH (publish_via_partition_root = true)")
        })
    }

    fn quoted(&self) -> String {
        format!("\"{}\"", self.publication.replace('"', "\"\""))
    }

    /// The table's membership in the publication, which is another one once it was taken out or the publication was altered;
    /// `None` where it is not in there.
    ///
    /// Refused: the publication does not tell all of it, with the statement that repairs it.
    pub(super) async fn membership(&self, table: &Table) -> Result<Option<Membership>> {
        let (quoted, place) = (self.quoted(), self.place());
        let found = self
            .session
            .query(
                "SELECT oid, puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot,
                    xmin::text
                FROM pg_catalog.pg_publication WHERE pubname = $1",
                &[&self.publication],
            )
            .await?;
        let name = table.name.quoted();
        let Some(row) = found.first() else { return Ok(None) };
        let (oid, has_all, tells_all, is_by_root): (u32, bool, bool, bool) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let written: String = row.get(4);
        let entry = |oid: u32, is_swept| Ok(Some(Membership { entry: format!("{oid}/{written}"), is_swept }));
        if !tells_all {
            return Err(Error::refused(format!(
                "{place}: the publication {quoted} leaves kinds of changes out; run ALTER PUBLICATION {quoted} SET (publish = 'insert, update, delete, truncate')"
            )));
        }
        let is_partitioned = table.parts.iter().all(|part| part.oid != table.oid);
        if is_partitioned && !is_by_root {
            return Err(Error::refused(format!(
                "{place}: the publication {quoted} tells changes of partitions as their own, and {name} is partitioned; run ALTER PUBLICATION {quoted} SET (publish_via_partition_root = true)"
            )));
        }
        if has_all {
            return entry(oid, true);
        }
        let filters = if self.version >= WITH_FILTERS { "prqual IS NOT NULL OR prattrs IS NOT NULL" } else { "false" };
        let member =
            format!("SELECT oid, {filters} FROM pg_catalog.pg_publication_rel WHERE prpubid = $1 AND prrelid = $2");
        let found = self.session.query(&member, &[&oid, &table.oid]).await?;
        if let Some(row) = found.first() {
            if row.get(1) {
                return Err(Error::refused(format!(
                    "{place}: the publication {quoted} leaves rows or columns of {name} out, so the table would not be equal to it; run ALTER PUBLICATION {quoted} DROP TABLE {name} and ALTER PUBLICATION {quoted} ADD TABLE {name}, then reset its connectors"
                )));
            }
            return entry(row.get(0), false);
        }
        if self.version >= WITH_FILTERS {
            let of_schema = "SELECT n.oid FROM pg_catalog.pg_publication_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid
                WHERE n.pnpubid = $1 AND c.oid = $2";
            if let Some(row) = self.session.query(of_schema, &[&oid, &table.oid]).await?.first() {
                return entry(row.get(0), true);
            }
        }
        Ok(None)
    }

    /// Whether there is a publication of the name.
    pub(super) async fn has_publication(&self) -> Result<bool> {
        let statement = "SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = $1";
        Ok(!self.session.query(statement, &[&self.publication]).await?.is_empty())
    }

    pub(super) async fn table(&self, name: &TableName, columns: &super::catalog::Wishes) -> Result<Table> {
        Table::read(&self.session, name, columns).await
    }

    /// Every transaction below this number is over, as the session's transaction sees it.
    pub(super) async fn since(&self) -> Result<u64> {
        let since = "SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8";
        Ok(one(&self.session, since).await?.get::<_, i64>(0).unsigned_abs())
    }

    /// A number above those of all transactions that have one.
    pub(super) async fn next_transaction(&self) -> Result<u64> {
        let next = "SELECT pg_catalog.pg_current_xact_id()::text::int8";
        Ok(one(&self.session, next).await?.get::<_, i64>(0).unsigned_abs())
    }

    /// Who connects.
    pub(super) fn role(&self) -> &str {
        self.server.role()
    }

    pub(super) fn publication(&self) -> &str {
        self.publication
    }

    /// Whether publications may have all tables of a schema, and leave rows and columns out.
    pub(super) fn has_filters(&self) -> bool {
        self.version >= WITH_FILTERS
    }

    /// What the slot makes the server keep.
    pub(super) async fn wal_kept(&self) -> Result<Option<WalKept>> {
        let found = self
            .session
            .query(
                "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)::int8, wal_status
                FROM pg_catalog.pg_replication_slots WHERE slot_name = $1",
                &[&self.slot],
            )
            .await?;
        let Some(row) = found.first() else { return Ok(None) };
        let bytes: Option<i64> = row.get(0);
        let status: Option<String> = row.get(1);
        Ok(Some(WalKept {
            bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0),
            status: status.unwrap_or_default(),
        }))
    }
}

/// The end of what the server has on disk.
pub(super) async fn flushed(session: &Session) -> Result<Step> {
    step(one(session, "SELECT pg_catalog.pg_current_wal_flush_lsn()::text").await?.get(0))
}

/// A position that the server wrote.
pub(super) fn step(text: &str) -> Result<Step> {
    Step::new(text.parse::<Lsn>()?.0)
}

async fn one(session: &Session, statement: &str) -> Result<Row> {
    let rows = session.query(statement, &[]).await?;
    rows.into_iter().next().ok_or_else(|| Error::internal(format!("{}: a query gave no row", session.place())))
}
