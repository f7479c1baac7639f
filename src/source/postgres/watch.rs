//! Whether the tables are still those that are followed: the log does not tell all that happens to them, and the catalogs show it.
//!
//! ```text
//!   messages of a round ─► one statement over the catalogs ─► the round is stored
//!                              └─ another digest ─► each table is looked at closely ─┘
//! ```
//!
//! Whoever alters a table holds off those who write to it until that shows in the catalogs. So what happened before the last
//! row of a round shows once the round was read, and nothing is stored that follows what the log does not tell.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_postgres::Statement;

use super::assembly::Assembly;
use super::catalog::{Form, TableName, Verdict};
use super::joining::{Ready, said};
use super::meeting::{Meeting, step};
use super::stream::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::step::Step;

/// A digest of all that the catalogs say of the tables `$1`, of the types `$2`, and of the publication `$3`.
const DIGEST: &str = "SELECT pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
        coalesce(pg_catalog.string_agg(line, E'\\n' ORDER BY line), ''), 'UTF8')), 'hex')
    FROM (
        SELECT pg_catalog.concat_ws(' ', 'class', c.oid, c.relname, n.nspname, c.relkind, c.relpersistence, c.relreplident,
            c.relfilenode) line
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY($1)
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'part', inhrelid, inhparent, xmin) FROM pg_catalog.pg_inherits
        WHERE inhparent = ANY($1)
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'column', attrelid, attnum, attname, xmin) FROM pg_catalog.pg_attribute
        WHERE attnum > 0 AND attrelid = ANY($1)
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'member', a.attrelid, a.attnum, a.xmin) FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_attribute a ON a.attrelid = t.typrelid
        WHERE t.oid = ANY($2) AND t.typrelid <> 0 AND a.attnum > 0
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'index', indexrelid, indisunique, indisvalid, indimmediate, indisprimary,
            indisreplident) FROM pg_catalog.pg_index WHERE indrelid = ANY($1)
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'label', oid, enumlabel) FROM pg_catalog.pg_enum WHERE enumtypid = ANY($2)
        UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'publication', p.oid, p.xmin, r.oid, r.xmin) FROM pg_catalog.pg_publication p
        LEFT JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = ANY($1) WHERE p.pubname = $3
        SCHEMAS) lines";

/// The same for publications that may have all tables of a schema.
const SCHEMAS: &str = "UNION ALL
        SELECT pg_catalog.concat_ws(' ', 'schema', s.oid) FROM pg_catalog.pg_publication p
        JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = p.oid
        JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid WHERE p.pubname = $3 AND c.oid = ANY($1)";

/// In which parts `$1` there is a row of a transaction below `$2`: who empties a table or writes its rows anew leaves none.
/// Where such rows are they are at the beginning.
const KEPT: &str = "SELECT DISTINCT tableoid FROM ONCE WHERE tableoid = ANY($1)
    AND ctid < '(2000,0)' AND pg_catalog.age(xmin) > pg_catalog.age($2::text::xid)";

/// Whether the part `$1` has a row that came into it before it was a part, in the transactions that made it one.
const BROUGHT: &str = "SELECT EXISTS (SELECT FROM ONCE t
    JOIN unnest($2::text[], $3::int8[]) link(transaction, command)
        ON t.xmin::text = link.transaction AND t.cmin::text::int8 < link.command
    WHERE t.tableoid = $1 AND t.ctid < '(2000,0)')";

/// What a look at the catalogs gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// All that happened is told.
    Told,
    /// What was read must lead on further before that is known.
    Doubtful,
    /// Something else is to be followed than what is.
    Other,
}

/// What is looked at, and how it was.
pub(super) struct Watch {
    statement: Statement,
    classes: Vec<u32>,
    types: Vec<u32>,
    /// `None` until all was told once.
    digest: Option<String>,
    doubt: Option<Doubt>,
}

/// What may be told by what was not read yet.
#[derive(Debug, PartialEq, Eq)]
struct Doubt {
    /// By the places of the tables: who emptied them, if the log tells it.
    about: Vec<(usize, Vec<BTreeSet<String>>)>,
    /// Up to here it is told, or never.
    until: Step,
}

impl Watch {
    pub(super) async fn over(meeting: &Meeting<'_>) -> Result<Self> {
        let digest = DIGEST.replace("SCHEMAS", if meeting.has_filters() { SCHEMAS } else { "" });
        let statement = meeting.session.prepare(&digest).await?;
        Ok(Self { statement, classes: Vec::new(), types: Vec::new(), digest: None, doubt: None })
    }

    /// Whether something must be read beyond `position` before it is known whether all is told.
    pub(super) fn is_doubtful_at(&self, position: Step) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.until > position)
    }

    async fn digest(&self, meeting: &Meeting<'_>, classes: &[u32], types: &[u32]) -> Result<String> {
        let publication = meeting.publication();
        let found = meeting.session.query(&self.statement, &[&classes, &types, &publication]).await?;
        found.first().map(|row| row.get(0)).ok_or_else(|| Error::internal("a digest of the catalogs has no row"))
    }
}

impl Stream {
    /// Looks whether all that happened to the tables is told; what was read leads up to `position`.
    ///
    /// What is not is written down, and is not made good by another look.
    pub(super) async fn look(
        &mut self,
        meeting: &Meeting<'_>,
        assembly: &mut Assembly,
        watch: &mut Watch,
        position: Step,
    ) -> Result<Look> {
        if watch.digest.is_some() && watch.digest == Some(watch.digest(meeting, &watch.classes, &watch.types).await?) {
            return Ok(Look::Told);
        }
        let closely = async {
            let mut found = Vec::new();
            for track in &assembly.tracks {
                match Ready::of(&track.shelf, meeting).await {
                    Ok(ready) => found.push(ready),
                    Err(e) if e.kind() == ErrorKind::Unavailable => return Err(e),
                    Err(_) => return Ok(None),
                }
            }
            let classes: Vec<u32> = found.iter().flat_map(|ready| ready.table.classes()).collect();
            let types: Vec<u32> = found.iter().flat_map(|ready| ready.table.form.types()).collect();
            let digest = watch.digest(meeting, &classes, &types).await?;
            let until = meeting.session.query("SELECT pg_catalog.pg_current_wal_insert_lsn()::text", &[]).await?;
            let until = until.first().map(|row| step(row.get(0))).transpose()?.unwrap_or(Step::ZERO);
            Ok(Some((found, classes, types, digest, until)))
        };
        let Some((found, classes, types, digest, until)) = meeting.session.steadily(closely).await? else {
            return Ok(Look::Other);
        };
        let (mut about, mut lost, mut forms) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (track, ready)) in assembly.tracks.iter().zip(found).enumerate() {
            let (view, name, mut form) = (track.shelf.view(), &track.shelf.name, ready.table.form.clone());
            let Some(followed) = self.known()?.views.get(view) else { continue };
            if let Some(what) = ready.differs(&track.shelf, followed) {
                lost.push((view.to_owned(), what));
                continue;
            }
            track.form.fill(&mut form);
            match judged(meeting, name, &track.form, &form).await? {
                Verdict::Told => {}
                Verdict::Untold(why) => lost.push((view.to_owned(), format!("{name}: {why}"))),
                Verdict::IfEmptied(mut files) => {
                    files.retain(|writers| !track.emptied.iter().any(|told| writers.contains(told)));
                    if !files.is_empty() {
                        about.push((at, files));
                    }
                }
            }
            forms.push((at, form));
        }
        if let Some(doubt) = watch.doubt.as_ref().filter(|doubt| doubt.about == about && doubt.until <= position) {
            for track in doubt.about.iter().filter_map(|(at, _)| assembly.tracks.get(*at)) {
                let name = &track.shelf.name;
                let what =
                    format!("{name}: a part of it was emptied or rewritten by itself, and no row of that is told");
                lost.push((track.shelf.view().to_owned(), what));
            }
        }
        if !lost.is_empty() {
            self.give_up_views(meeting, lost).await?;
            return Ok(Look::Other);
        }
        if !about.is_empty() {
            let is_known = watch.doubt.as_ref().is_some_and(|doubt| doubt.about == about);
            if !is_known {
                watch.doubt = Some(Doubt { about, until });
            }
            return Ok(Look::Doubtful);
        }
        for (at, form) in forms {
            if let Some(track) = assembly.tracks.get_mut(at) {
                track.form = form;
            }
        }
        (watch.classes, watch.types, watch.digest, watch.doubt) = (classes, types, Some(digest), None);
        Ok(Look::Told)
    }

    /// Writes down why views are not followed any more.
    async fn give_up_views(&mut self, meeting: &Meeting<'_>, lost: Vec<(String, String)>) -> Result<()> {
        let mut evidence = self.known()?.clone();
        for (view, what) in lost {
            if let Some(followed) = evidence.views.get_mut(&view) {
                followed.lost.get_or_insert(said(meeting.place(), &what));
            }
        }
        self.write(evidence).await
    }

    /// Whether what kept a table from being followed may be mended.
    pub(super) async fn is_mended(&self, meeting: &Meeting<'_>) -> bool {
        for shelf in &self.shared.shelves {
            let is_waiting = shelf.state.borrow().trouble.as_ref().is_some_and(|trouble| !trouble.is_loss());
            let awaited = self.awaited.get(shelf.view()).filter(|_| is_waiting);
            if let Some(awaited) = awaited
                && meeting.since().await.is_ok_and(|since| since < *awaited)
            {
                continue;
            }
            if is_waiting && meeting.session.steadily(Ready::of(&Arc::clone(shelf), meeting)).await.is_ok() {
                return true;
            }
        }
        false
    }
}

/// What happened to the table `name` between two looks.
async fn judged(meeting: &Meeting<'_>, name: &TableName, before: &Form, later: &Form) -> Result<Verdict> {
    let session = &meeting.session;
    let is_away = |e: &Error| e.kind() == ErrorKind::Unavailable;
    // The parts are read by the table, which the role may read.
    for (part, transactions, commands) in before.joined(later) {
        let brought = session
            .query(&BROUGHT.replace("ONCE", &name.quoted()), &[&part, &transactions, &commands])
            .await
            .map(|rows| rows.first().is_some_and(|row| row.get(0)));
        match brought {
            Err(e) if is_away(&e) => return Err(e),
            Ok(false) => {}
            // What cannot be looked at may have them.
            Ok(true) | Err(_) => {
                let why = "a table with rows was attached to it as a partition, and no row of that is told";
                return Ok(Verdict::Untold(why.to_owned()));
            }
        }
    }
    let moved = before.moved(later);
    let mut kept = BTreeSet::new();
    // Beyond that the numbers of transactions come again.
    if !moved.is_empty() && later.since.saturating_sub(before.since) < u64::from(u32::MAX / 2) {
        let since = (before.since & u64::from(u32::MAX)).to_string();
        match session.query(&KEPT.replace("ONCE", &name.quoted()), &[&moved, &since]).await {
            Ok(rows) => kept.extend(rows.iter().map(|row| row.get::<_, u32>(0))),
            Err(e) if is_away(&e) => return Err(e),
            Err(_) => {}
        }
    }
    Ok(before.compare(later, &kept))
}
