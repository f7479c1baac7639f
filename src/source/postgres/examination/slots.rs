//! The replication slots of a server: ours, and those that were left over.

use super::super::server::Session;
use super::{Depth, SLOT, Wanted};
use crate::ailment::Ailment;
use crate::error::Result;
use crate::quantity;

const SLOTS: &str = "SELECT s.slot_name::text, s.plugin::text, s.database::text, s.temporary, s.active_pid,
    pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_lsn() END, s.restart_lsn)::int8,
    s.confirmed_flush_lsn::text, s.wal_status,
    a.application_name, coalesce(host(a.client_addr), 'this machine'), a.usename::text,
    pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_lsn() END, s.confirmed_flush_lsn)::int8
    FROM pg_catalog.pg_replication_slots s LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
    ORDER BY s.slot_name";

pub(super) async fn examine(session: &Session, wanted: &Wanted, depth: Depth, found: &mut Vec<Ailment>) -> Result<()> {
    for row in session.query(SLOTS, &[]).await? {
        let name: String = row.get(0);
        let (plugin, is_temporary, reader): (Option<&str>, bool, Option<i32>) = (row.get(1), row.get(3), row.get(4));
        let kept = quantity::bytes(row.get::<_, Option<i64>>(5).and_then(|kept| kept.try_into().ok()).unwrap_or(0));
        let drops = format!("SELECT pg_drop_replication_slot('{}');", name.replace('\'', "''"));
        if name != wanted.slot {
            let is_ours = wanted.others.contains(&name);
            if plugin == Some("pgoutput") && !is_temporary && reader.is_none() && !is_ours {
                found.push(Ailment::warning(
                    SLOT,
                    format!("nobody reads the replication slot {name:?}, for which the server keeps {kept} of WAL; if nobody will, drop it"),
                    drops,
                ));
            }
            continue;
        }
        if let Some(pid) = reader.filter(|_| !wanted.is_followed) {
            let by = row.get::<_, Option<&str>>(8).unwrap_or("somebody");
            let from = row.get::<_, Option<&str>>(9).unwrap_or("elsewhere");
            let role = row.get::<_, Option<&str>>(10).unwrap_or("nobody");
            found.push(Ailment::warning(
                SLOT,
                format!("the replication slot {name:?} is read by process {pid}: {by:?} of the role {role:?}, from {from}; two cannot read it, so stop that program, or name another slot; where it hangs, end its session"),
                format!("SELECT pg_terminate_backend({pid});"),
            ));
        }
        if depth == Depth::Deep {
            let confirmed: Option<&str> = row.get(6);
            let behind = row.get::<_, Option<i64>>(11).and_then(|behind| behind.try_into().ok()).unwrap_or(0);
            let status: Option<&str> = row.get(7);
            found.push(Ailment::note(
                SLOT,
                format!(
                    "the slot {name:?} was read up to {}, {} before the server's end; the server keeps {kept} of WAL for it ({})",
                    confirmed.unwrap_or("nowhere"),
                    quantity::bytes(behind),
                    status.unwrap_or("no status")
                ),
            ));
        }
    }
    Ok(())
}
