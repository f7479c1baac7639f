//! What the server itself is, and how it is set.

use super::super::server::{Server, Session};
use super::{Depth, MAX_WAL, SLOT, URL, Wanted, one};
use crate::ailment::Ailment;
use crate::clock::World;
use crate::error::{ErrorKind, Result};
use crate::quantity;

/// The oldest version that can be followed.
const OLDEST: i32 = 130_000;
/// The first one whose replicas decode their log.
const DECODING_REPLICAS: i32 = 160_000;
/// How many connections a snapshot needs.
const SNAPSHOT_CONNECTIONS: i64 = 6;
/// How far clocks may be apart before commits seem to come from elsewhen, in milliseconds.
const APART: i64 = 60_000;

const ABOUT: &str = "SELECT current_setting('server_version_num')::int4, current_setting('wal_level'),
    pg_catalog.pg_is_in_recovery(), current_setting('max_replication_slots')::int8, current_setting('max_wal_senders')::int8,
    (SELECT count(*) FROM pg_catalog.pg_replication_slots), (SELECT count(*) FROM pg_catalog.pg_stat_replication),
    (SELECT count(*) FROM pg_catalog.pg_replication_slots WHERE active),
    current_setting('max_connections')::int8, current_setting('superuser_reserved_connections')::int8,
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'),
    r.rolname::text, r.rolsuper, r.rolreplication,
    EXISTS (SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'),
    EXISTS (SELECT 1 FROM pg_catalog.pg_roles m WHERE m.rolname = 'rds_replication' AND pg_catalog.pg_has_role(m.oid, 'MEMBER')),
    (SELECT setting::int8 FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size'),
    (SELECT setting || coalesce(unit, '') FROM pg_catalog.pg_settings WHERE name = 'idle_replication_slot_timeout' AND setting <> '0'),
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::int8,
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'), pg_catalog.current_database()::text,
    (SELECT max(extract(epoch FROM pg_catalog.clock_timestamp() - xact_start))::int8 FROM pg_catalog.pg_stat_activity
        WHERE backend_xid IS NOT NULL), (SELECT count(*) FROM pg_catalog.pg_prepared_xacts)
    FROM pg_catalog.pg_roles r WHERE r.rolname = current_user";

/// A server.
pub(super) struct About {
    version: i32,
    wal_level: String,
    is_replica: bool,
    max_slots: i64,
    max_senders: i64,
    slots: i64,
    senders: i64,
    max_connections: i64,
    connections: i64,
    /// As whom it was reached.
    pub(super) role: String,
    replicates: bool,
    is_rds: bool,
    /// In MiB; below zero: all.
    keep_size: i64,
    idle_timeout: Option<String>,
    unix_millis: i64,
    /// Whether a publication can be made.
    pub(super) may_create: bool,
    /// Its name.
    pub(super) database: String,
    oldest_seconds: i64,
    prepared: i64,
}

impl About {
    pub(super) async fn read(session: &Session) -> Result<Self> {
        let row = one(session, ABOUT).await?;
        let (is_super, replicates, is_rds_member): (bool, bool, bool) = (row.get(12), row.get(13), row.get(15));
        Ok(Self {
            version: row.get(0),
            wal_level: row.get(1),
            is_replica: row.get(2),
            max_slots: row.get(3),
            max_senders: row.get(4),
            slots: row.get(5),
            senders: row.get::<_, i64>(6).max(row.get(7)),
            max_connections: row.get::<_, i64>(8) - row.get::<_, i64>(9),
            connections: row.get(10),
            role: row.get(11),
            replicates: is_super || replicates || is_rds_member,
            is_rds: row.get(14),
            keep_size: row.get(16),
            idle_timeout: row.get(17),
            unix_millis: row.get(18),
            may_create: row.get(19),
            database: row.get(20),
            oldest_seconds: row.get::<_, Option<i64>>(21).unwrap_or(0),
            prepared: row.get(22),
        })
    }

    /// Whether it lets itself be met.
    pub(super) fn can_be_followed(&self) -> bool {
        self.version >= OLDEST && self.wal_level == "logical" && !self.is_replica && self.replicates
    }

    /// The role as statements need it.
    pub(super) fn quoted_role(&self) -> String {
        super::super::catalog::quoted(&self.role)
    }

    pub(super) fn examine(
        &self,
        server: &Server,
        wanted: &Wanted,
        depth: Depth,
        world: &World,
        found: &mut Vec<Ailment>,
    ) {
        self.examine_kind(server, found);
        self.examine_room(wanted, found);
        self.examine_kept(wanted, found);
        if depth == Depth::Deep {
            self.examine_moment(world, found);
        }
    }

    fn examine_kind(&self, server: &Server, found: &mut Vec<Ailment>) {
        if self.version < OLDEST {
            let said =
                format!("the server's version number is {}, and none below {OLDEST} can be followed", self.version);
            found.push(Ailment::error(ErrorKind::Config, URL, said, "upgrade the server to PostgreSQL 13 or later"));
        }
        if self.wal_level != "logical" {
            let said = format!("wal_level is {}, and must be logical", self.wal_level);
            let remedy = "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server";
            found.push(Ailment::error(ErrorKind::Config, URL, said, remedy));
        }
        if self.is_replica {
            let decodes = if self.version < DECODING_REPLICAS {
                "whose version cannot decode its log"
            } else {
                "on which neither slot nor publication can be set up from here"
            };
            let said = format!("the server is a replica, {decodes}");
            found.push(Ailment::error(
                ErrorKind::Unavailable,
                URL,
                said,
                "name the primary in url, or promote it: SELECT pg_promote();",
            ));
        }
        if !self.replicates {
            let role = self.quoted_role();
            let remedy = match self.is_rds {
                true => format!("GRANT rds_replication TO {role};"),
                false => format!("ALTER ROLE {role} REPLICATION;"),
            };
            let said = format!("the role {:?} has no right to replicate", self.role);
            found.push(Ailment::error(ErrorKind::Refused, URL, said, remedy));
        }
        if server.tls().is_none() && !server.is_local() {
            let said = "rows cross the network unencrypted, by sslmode=disable";
            found.push(Ailment::warning(
                URL,
                said,
                "write sslmode=verify-full, with sslrootcert=FILE for an authority of your own",
            ));
        }
    }

    /// Room for the slot, and for one more while a snapshot is taken.
    fn examine_room(&self, wanted: &Wanted, found: &mut Vec<Ailment>) {
        let needed = if wanted.is_followed { 1 } else { 2 };
        for (name, most, used) in
            [("max_replication_slots", self.max_slots, self.slots), ("max_wal_senders", self.max_senders, self.senders)]
        {
            if most - used < needed {
                found.push(Ailment::error(
                    ErrorKind::Config,
                    SLOT,
                    format!("{name} is {most}, of which {used} are used, and {needed} more are needed: for the pipeline and for a snapshot"),
                    format!("ALTER SYSTEM SET {name} = {}; -- then restart the server", used + needed + 2),
                ));
            }
        }
        if self.max_connections - self.connections < SNAPSHOT_CONNECTIONS {
            found.push(Ailment::warning(
                URL,
                format!(
                    "{} of {} connections are used, and a snapshot needs {SNAPSHOT_CONNECTIONS} more",
                    self.connections, self.max_connections
                ),
                format!("ALTER SYSTEM SET max_connections = {}; -- then restart the server", self.max_connections + 50),
            ));
        }
    }

    /// What ends a slot, or nothing.
    fn examine_kept(&self, wanted: &Wanted, found: &mut Vec<Ailment>) {
        let server = u64::try_from(self.keep_size).ok().map(|mib| mib << 20);
        match (server, wanted.max_wal) {
            (None, None) => found.push(Ailment::warning(
                MAX_WAL,
                "neither max_wal nor the server's max_slot_wal_keep_size bounds what the slot makes the server keep: while nobody reads it, the server's disk fills",
                "max_wal = \"64GiB\"",
            )),
            (Some(server), Some(own)) if server < own => found.push(Ailment::warning(
                MAX_WAL,
                format!("max_wal is {}, and the server invalidates the slot at {} already (max_slot_wal_keep_size)", quantity::bytes(own), quantity::bytes(server)),
                format!("ALTER SYSTEM SET max_slot_wal_keep_size = '{}MB'; SELECT pg_reload_conf();", (own >> 20) + 1024),
            )),
            _ => {}
        }
        if let Some(timeout) = &self.idle_timeout {
            found.push(Ailment::warning(
                SLOT,
                format!("idle_replication_slot_timeout is {timeout}: after so long without a reader the server invalidates the slot, and every connector needs a reset"),
                "ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();",
            ));
        }
    }

    fn examine_moment(&self, world: &World, found: &mut Vec<Ailment>) {
        let apart = world.clock.unix_millis() - self.unix_millis;
        if apart.abs() > APART {
            let said = format!("the clock here is {} s off the server's", apart / 1000);
            found.push(Ailment::warning(URL, said, "timedatectl set-ntp true"));
        }
        if self.oldest_seconds > 300 {
            found.push(Ailment::warning(
                URL,
                format!("a transaction has been open for {} s: no snapshot begins before it ends, and WAL is kept for it", self.oldest_seconds),
                "SELECT pid, xact_start, state, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
            ));
        }
        if self.prepared > 0 {
            found.push(Ailment::warning(
                URL,
                format!(
                    "{} transactions are prepared and not committed: no snapshot begins before they are",
                    self.prepared
                ),
                "SELECT gid, prepared FROM pg_prepared_xacts; -- then COMMIT PREPARED or ROLLBACK PREPARED",
            ));
        }
    }
}
