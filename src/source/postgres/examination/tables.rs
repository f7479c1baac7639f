//! The tables that are to be followed, and whether they are published.

use super::super::catalog::{Identity, Table, TableName, quoted, view_of};
use super::super::meeting::Meeting;
use super::super::server::Session;
use super::server::About;
use super::{PUBLICATION, Wanted, WantedTable, has_errors, table_of};
use crate::ailment::Ailment;
use crate::error::{ErrorKind, Result};

const RIGHTS: &str = "SELECT n.nspname::text, pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
    pg_catalog.pg_has_role(c.relowner, 'USAGE'), pg_catalog.pg_get_userbyid(c.relowner)::text
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1";

const PUBLISHED: &str = "SELECT pg_catalog.pg_has_role(pubowner, 'USAGE'), pg_catalog.pg_get_userbyid(pubowner)::text
    FROM pg_catalog.pg_publication WHERE pubname = $1";

/// Where nobody can meet the server to look closer.
const MEMBERS: &str =
    "SELECT 1 FROM pg_catalog.pg_publication_tables WHERE pubname = $1 AND schemaname = $2 AND tablename = $3";

/// A table that is there, and what may be done with it.
struct Present {
    name: TableName,
    is_own: bool,
    owner: String,
}

pub(super) async fn examine(
    session: &Session,
    meeting: Option<&Meeting<'_>>,
    about: &About,
    wanted: &Wanted,
    found: &mut Vec<Ailment>,
) -> Result<()> {
    let mut unpublished = Vec::new();
    for table in &wanted.tables {
        let place = table_of(&table.view);
        let mut own = Vec::new();
        let missing = examine_one(session, meeting, about, wanted, table, &place, &mut own).await;
        match missing {
            Ok(missing) => unpublished.extend(missing.filter(|_| !has_errors(&own))),
            Err(e) => own.push(Ailment::of(&place, &e)),
        }
        found.append(&mut own);
    }
    examine_publication(session, about, wanted, &unpublished, found).await
}

/// Looks at one; the table, where it is to be published.
async fn examine_one(
    session: &Session,
    meeting: Option<&Meeting<'_>>,
    about: &About,
    database: &Wanted,
    wanted: &WantedTable,
    place: &str,
    found: &mut Vec<Ailment>,
) -> Result<Option<Present>> {
    let name = TableName::parse(&wanted.table)?;
    let table = Table::read(session, &name, &wanted.columns).await?;
    if let Err(e) = view_of(&wanted.view, &table.columns, &[]) {
        found.push(Ailment::of(place, &e));
    }
    match table.key(&wanted.key) {
        Ok(key) if key.is_empty() => {
            found.push(Ailment::note(place, format!("{name} has no key, so its rows are delivered as a multiset")))
        }
        Ok(key) => {
            if let Err(e) = view_of(&wanted.view, &table.columns, &key) {
                found.push(Ailment::of(place, &e));
            }
        }
        Err(e) => {
            let not_full = table.parts.iter().filter(|part| part.identity != Identity::Full);
            let statements: Vec<String> =
                not_full.map(|part| format!("ALTER TABLE {} REPLICA IDENTITY FULL;", part.name.quoted())).collect();
            let ailment = Ailment::of(place, &e);
            let is_identity = ailment.remedy.as_ref().is_some_and(|remedy| remedy.contains("REPLICA IDENTITY"));
            let remedy = if is_identity { Some(statements.join(" ")) } else { ailment.remedy.clone() };
            found.push(Ailment { remedy, ..ailment });
        }
    }
    let row = session.query(RIGHTS, &[&table.oid]).await?;
    let Some(row) = row.first() else { return Ok(None) };
    let (schema, role): (&str, String) = (row.get(0), about.quoted_role());
    if !row.get::<_, bool>(1) {
        let said = format!("the role {:?} has no right to the schema {schema:?}", about.role);
        found.push(Ailment::error(
            ErrorKind::Refused,
            place,
            said,
            format!("GRANT USAGE ON SCHEMA {} TO {role};", quoted(schema)),
        ));
    }
    let mut granted = vec![];
    for part in table.parts.iter().map(|part| (part.oid, part.name.quoted())).chain([(table.oid, name.quoted())]) {
        let may = session.query("SELECT pg_catalog.has_table_privilege($1::oid, 'SELECT')", &[&part.0]).await?;
        if !may.first().is_some_and(|row| row.get(0)) && !granted.contains(&part.1) {
            granted.push(part.1);
        }
    }
    if !granted.is_empty() {
        let granted = granted.join(", ");
        let said = format!("the role {:?} may not read {granted}", about.role);
        found.push(Ailment::error(
            ErrorKind::Refused,
            place,
            said,
            format!("GRANT SELECT ON TABLE {granted} TO {role};"),
        ));
    }
    if table.is_hidden {
        let said =
            format!("row security hides rows of {name} from the role {:?}, so they could not be delivered", about.role);
        found.push(Ailment::error(ErrorKind::Refused, place, said, format!("ALTER ROLE {role} BYPASSRLS;")));
    }
    let published = match meeting {
        Some(meeting) => meeting.membership(&table).await.map(|entry| entry.is_some()),
        None => session
            .query(MEMBERS, &[&database.publication, &name.schema, &name.table])
            .await
            .map(|members| !members.is_empty()),
    };
    Ok(match published {
        Ok(true) => None,
        Ok(false) => Some(Present { name, is_own: row.get(2), owner: row.get(3) }),
        Err(e) => {
            found.push(Ailment::of(PUBLICATION, &e));
            None
        }
    })
}

/// Whether what is not published can be.
async fn examine_publication(
    session: &Session,
    about: &About,
    wanted: &Wanted,
    unpublished: &[Present],
    found: &mut Vec<Ailment>,
) -> Result<()> {
    if unpublished.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = unpublished.iter().map(|table| table.name.quoted()).collect();
    let (names, quoted_name) = (names.join(", "), quoted(&wanted.publication));
    let there = session.query(PUBLISHED, &[&wanted.publication]).await?;
    let mut missing = Vec::new();
    let statement = match there.first() {
        Some(row) => {
            if !row.get::<_, bool>(0) {
                missing.push(format!("the publication belongs to {:?}", row.get::<_, &str>(1)));
            }
            format!("ALTER PUBLICATION {quoted_name} ADD TABLE {names};")
        }
        None => {
            if !about.may_create {
                missing.push(format!("it has no right to CREATE in the database {:?}", about.database));
            }
            format!("CREATE PUBLICATION {quoted_name} FOR TABLE {names} WITH (publish_via_partition_root = true);")
        }
    };
    missing.extend(
        unpublished
            .iter()
            .filter(|table| !table.is_own)
            .map(|table| format!("{} belongs to {:?}", table.name, table.owner)),
    );
    found.push(if missing.is_empty() {
        Ailment::note(
            PUBLICATION,
            format!("the publication {quoted_name} does not have {names} yet; the first run adds what is missing"),
        )
    } else {
        let said = format!(
            "the publication {quoted_name} does not have {names}, and the role {:?} cannot add it: {}",
            about.role,
            missing.join(", ")
        );
        Ailment::error(ErrorKind::Refused, PUBLICATION, said, statement)
    });
    Ok(())
}
