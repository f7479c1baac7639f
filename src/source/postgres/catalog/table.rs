//! A table: its columns, its parts, and by what its rows are known.

use std::collections::BTreeSet;

use super::super::server::Session;
use super::column::{Column, Wishes};
use super::form::{Entry, File, Form};
use super::name::{TableName, quoted};
use super::spelling::spelled;
use crate::error::{Error, Result};

/// What the server's log says of a row that is updated or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Nothing: the server refuses such statements once the table is published.
    Nothing,
    /// These columns.
    Columns(BTreeSet<String>),
    /// Every column.
    Full,
}

/// A table that holds rows: the table itself, or a partition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its number.
    pub(crate) oid: u32,
    /// Its name.
    pub(crate) name: TableName,
    /// What the log says of its old rows.
    pub(crate) identity: Identity,
}

/// A table, as a snapshot of the catalogs has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its number.
    pub(crate) oid: u32,
    /// Its name.
    pub(crate) name: TableName,
    /// The columns that are published: all but generated ones.
    pub(crate) columns: Vec<Column>,
    /// Where its rows are.
    pub(crate) parts: Vec<Part>,
    /// Whether row security hides rows from who reads them here.
    pub(crate) is_hidden: bool,
    classes: Vec<u32>,
    /// What changes without a row that changes.
    pub(crate) form: Form,
    uniques: Vec<Unique>,
}

/// Columns that no two rows have alike, and that are never null.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Unique {
    columns: Vec<String>,
    is_primary: bool,
    is_identity: bool,
}

/// The first number that a table of users has.
const FIRST_OF_USERS: u32 = 16_384;

const TABLE: &str = "SELECT c.oid, c.relkind::text, c.relpersistence::text, pg_catalog.row_security_active(c.oid)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = $2";

const COLUMNS: &str = "SELECT attname, attnum, atttypid, atttypmod, attgenerated::text, xmin::text
    FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum";

/// The table and what hangs below it, from the catalogs as the transaction sees them. What became a partition when it was
/// made has the same transaction in both catalogs.
const PARTS: &str = "WITH RECURSIVE tree(oid, is_adopted, transactions, commands) AS (
        SELECT $1::oid, false, '{}'::text[], '{}'::int8[] UNION ALL
        SELECT i.inhrelid, t.is_adopted OR i.xmin::text <> a.xmin::text,
            t.transactions || i.xmin::text, t.commands || i.cmin::text::int8
        FROM pg_catalog.pg_inherits i JOIN tree t ON i.inhparent = t.oid
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.inhrelid AND a.attname = 'tableoid')
    SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text, c.relfilenode,
        t.is_adopted, c.xmin::text, t.transactions, t.commands,
        ARRAY(SELECT DISTINCT x.xmin::text FROM pg_catalog.pg_class x WHERE x.oid = c.reltoastrelid
            OR x.oid IN (SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid))
    FROM tree t JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    ORDER BY c.oid";

/// Indexes that hold at every moment, over columns that are never null.
const UNIQUES: &str = "SELECT i.indrelid, i.indisprimary, i.indisreplident,
        array_agg(a.attname::text ORDER BY k.place)
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = ANY($1) AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
    GROUP BY i.indexrelid, i.indrelid, i.indisprimary, i.indisreplident
    HAVING bool_and(a.attnotnull) ORDER BY i.indexrelid";

impl Table {
    /// Reads what the catalogs say, as the session's transaction sees them.
    ///
    /// Config: there is no such table, or `wishes` do not fit it. Incompatible: it is of a sort whose changes the log does
    /// not tell.
    pub(crate) async fn read(session: &Session, name: &TableName, wishes: &Wishes) -> Result<Self> {
        let place = session.place();
        let refused = |what: &str| Err(Error::incompatible(format!("{place}: {name} {what}")));
        let found = session.query(TABLE, &[&name.schema, &name.table]).await?;
        let Some(row) = found.first() else {
            return Err(Error::config(format!("{place}: there is no table {name}; correct its name, or create it")));
        };
        let (oid, kind, persistence): (u32, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let is_partitioned = match kind {
            "r" => false,
            "p" => true,
            "v" | "m" => {
                return refused("is a view, whose changes the server's log does not tell; name the tables below it");
            }
            "f" => {
                return refused(
                    "is a foreign table, whose changes the server's log does not tell; follow it where it is",
                );
            }
            _ => return refused("is no table"),
        };
        if oid < FIRST_OF_USERS {
            return refused("is a catalog of the server's own, whose changes its log does not tell");
        }
        if persistence != "p" {
            let quoted = name.quoted();
            return refused(&format!(
                "is temporary or unlogged, so its changes are in no log; use ALTER TABLE {quoted} SET LOGGED"
            ));
        }
        let (mut declared, mut form) = (Vec::new(), Form::default());
        for row in session.query(COLUMNS, &[&oid]).await? {
            let (name, column): (String, _) = (row.get(0), (row.get(1), row.get(2), row.get(3)));
            if row.get::<_, &str>(4).is_empty() {
                declared.push((name.clone(), column));
            }
            form.columns.push(Entry { name, column, written: row.get(5), told: None, is_filled: false });
        }
        let types: Vec<u32> = declared.iter().map(|(_, (_, oid, _))| *oid).collect();
        form.types = spelled(session, &types).await?;
        let columns = Column::resolve(session, declared, wishes)
            .await
            .map_err(|e| Error::new(e.kind(), format!("{place}: {name}: {}", e.message())))?;
        for column in &columns {
            let told = (column.kind.data_type().to_string(), column.output.clone());
            let entry = form.columns.iter_mut().find(|entry| entry.name == column.name);
            entry.into_iter().for_each(|entry| entry.told = Some(told.clone()));
        }
        let below = session.query(PARTS, &[&oid]).await?;
        if !is_partitioned && below.len() > 1 {
            return refused(
                "has tables that inherit from it, whose rows the log tells as their own; name each of them in a view",
            );
        }
        let oids: Vec<u32> = below.iter().map(|row| row.get(0)).collect();
        let mut uniques: Vec<(u32, Unique)> = Vec::new();
        for row in session.query(UNIQUES, &[&oids]).await? {
            let unique = Unique { is_primary: row.get(1), is_identity: row.get(2), columns: row.get(3) };
            uniques.push((row.get(0), unique));
        }
        let mut parts = Vec::new();
        for row in &below {
            let (part, kind): (u32, &str) = (row.get(0), row.get(3));
            let part_name = TableName { schema: row.get(1), table: row.get(2) };
            match kind {
                "p" | "I" => continue,
                "r" if row.get::<_, &str>(4) == "p" => {}
                _ => {
                    return refused(&format!(
                        "has the partition {part_name}, which is foreign or unlogged, so the log does not tell its changes"
                    ));
                }
            }
            let of = |wanted: fn(&Unique) -> bool| {
                uniques.iter().find(|(table, unique)| *table == part && wanted(unique)).map(|(_, unique)| unique)
            };
            let identity = match row.get(5) {
                "f" => Some(Identity::Full),
                "d" => of(|unique| unique.is_primary).map(Unique::identity),
                "i" => of(|unique| unique.is_identity).map(Unique::identity),
                _ => None,
            };
            let identity = identity.unwrap_or(Identity::Nothing);
            parts.push(Part { oid: part, name: part_name, identity });
            let (file, is_adopted, is_part) = (row.get(6), row.get(7), part != oid);
            let (writer, links) = (row.get(8), (row.get(9), row.get(10)));
            let deep_writers = row.get::<_, Vec<String>>(11).into_iter().collect();
            form.files.push(File { part, file, is_adopted, is_part, writer, deep_writers, links });
        }
        let uniques = uniques.into_iter().filter(|(table, _)| *table == oid).map(|(_, unique)| unique).collect();
        let is_hidden = row.get(3);
        Ok(Self { oid, name: name.clone(), columns, parts, is_hidden, classes: oids, form, uniques })
    }

    /// That all of its rows can be read.
    ///
    /// Refused: row security hides some, with the statement that repairs it.
    pub(crate) fn check_readable(&self, role: &str) -> Result<()> {
        if self.is_hidden {
            return Err(Error::refused(format!(
                "{}: row-level security hides rows from the role {role:?}, so the table would not be equal to it; use ALTER ROLE {} BYPASSRLS",
                self.name,
                quoted(role)
            )));
        }
        Ok(())
    }

    /// The numbers of all tables that the catalogs name for it, itself and those without rows included.
    pub(crate) fn classes(&self) -> impl Iterator<Item = u32> {
        self.classes.iter().copied()
    }

    /// The key of the view: the columns that the configuration names, or else those by which the log knows a row, or the
    /// primary key; empty for a table whose rows nothing tells apart.
    ///
    /// Refused, with the statement that repairs it: no two rows may have the same key, and the log must say the key of a
    /// row that goes away, or the whole row where there is none.
    pub(crate) fn key(&self, configured: &[String]) -> Result<Vec<String>> {
        let name = &self.name;
        let key = if configured.is_empty() {
            let identity = self.uniques.iter().find(|unique| unique.is_identity);
            let unique = identity.or_else(|| self.uniques.iter().find(|unique| unique.is_primary));
            unique.map(|unique| unique.columns.clone()).unwrap_or_default()
        } else {
            let wanted: BTreeSet<&String> = configured.iter().collect();
            if !self.uniques.iter().any(|unique| unique.columns.iter().collect::<BTreeSet<_>>() == wanted) {
                let columns = configured.join(", ");
                return Err(Error::refused(format!(
                    "{name}: nothing says that no two rows have the same ({columns}); make these columns NOT NULL with a UNIQUE constraint that is not deferrable, or name another key"
                )));
            }
            configured.to_vec()
        };
        if let Some(column) = key.iter().find(|column| !self.columns.iter().any(|c| c.name == **column)) {
            return Err(Error::refused(format!(
                "{name}: the key column {column:?} is generated, so the log does not tell it; name another key"
            )));
        }
        for part in &self.parts {
            let is_enough = match &part.identity {
                Identity::Full => true,
                Identity::Columns(columns) => !key.is_empty() && key.iter().all(|column| columns.contains(column)),
                Identity::Nothing => false,
            };
            if !is_enough {
                let what = if key.is_empty() {
                    "has no key, and the log does not tell the rows that are deleted from it".to_owned()
                } else {
                    format!("does not tell its key ({}) of rows that are deleted", key.join(", "))
                };
                return Err(Error::refused(format!(
                    "{} {what}; use ALTER TABLE {} REPLICA IDENTITY FULL",
                    part.name,
                    part.name.quoted()
                )));
            }
        }
        Ok(key)
    }
}

impl Unique {
    fn identity(&self) -> Identity {
        Identity::Columns(self.columns.iter().cloned().collect())
    }
}
