//! `cutover verify --against`: a table held against the one of a server that it was made of.

use std::convert::Infallible;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::verify::{BROKEN, Beside, INCONCLUSIVE};
use super::{Session, text};
use crate::clock::World;
use crate::config::{self, Secret, SourceConfig};
use crate::daemon;
use crate::error::{Error, Result};
use crate::inspect::against::{self, Bounds, Compared, Difference, Differences, Likeness, Rows};
use crate::log::Log;
use crate::source::postgres::Original;

/// The longest row that people are shown.
const LONGEST: usize = 300;

/// The options of it.
#[derive(Debug, clap::Args)]
pub(super) struct AgainstArgs {
    /// Hold it against the table that it was made of: a connector of the configuration, or postgres://USER@HOST/DATABASE with
    /// --table; ${env:NAME} and ${file:PATH} in it keep the password out of the command line
    #[arg(long, value_name = "SOURCE", value_parser = hidden)]
    against: Option<Secret>,
    /// The table of the database, SCHEMA.TABLE as in SQL
    #[arg(long, value_name = "TABLE", requires = "against")]
    table: Option<String>,
    /// How long a table is waited for that is not where the server is
    #[arg(long, value_name = "TIME", value_parser = config::parse_duration, default_value = "60s", requires = "against")]
    timeout: Duration,
}

/// Takes any text, so that no usage error quotes it.
#[expect(clippy::unnecessary_wraps, reason = "the form of a parser of clap")]
fn hidden(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

impl AgainstArgs {
    /// What the table is held against; `None`: nothing.
    ///
    /// To be called on the program's first thread, since it may read the configuration.
    pub(super) fn original(&self, session: &Session) -> Result<Option<Place>> {
        let Some(against) = &self.against else { return Ok(None) };
        let text = against.expose();
        let is_url = ["postgres:", "postgresql:", "${"].iter().any(|begin| text.starts_with(begin));
        if !is_url && text.contains("://") {
            return Err(Error::config(
                "--against names another source than a PostgreSQL database; write postgres://USER@HOST/DATABASE, or a connector's name",
            ));
        }
        if is_url {
            let url = daemon::resolve("--against", text)?;
            let table = self.table.clone().ok_or_else(|| {
                Error::config("--against names a database; say by --table SCHEMA.TABLE which of its tables it is")
            })?;
            return Ok(Some(Place { url, table }));
        }
        let config = daemon::load(&session.global.config, &[])?;
        let connector = config.find(text)?;
        let SourceConfig::Postgres(database) = &connector.source else {
            return Err(Error::refused(format!(
                "{}: its source is no PostgreSQL database, and no other can be asked for its rows at one step",
                connector.name
            )));
        };
        let name = &connector.name;
        let view = config.views.iter().find(|v| v.pipeline == name.pipeline() && v.name == name.view());
        let table = self.table.clone().or_else(|| view?.table.clone());
        let unnamed = || Error::internal(format!("{name}: its view names no table"));
        Ok(Some(Place { url: database.url.clone(), table: table.ok_or_else(unnamed)? }))
    }

    /// Compares the table of `log`, which is one of ours.
    pub(super) async fn compare(&self, log: &Log, place: &Place, world: &World, session: &Session) -> Result<Beside> {
        let original = Original::new(place.url.expose(), &place.table, world)?;
        let bounds = Bounds { patience: self.timeout, keys: Bounds::KEYS };
        let waiting = |at, to| {
            let shown = text::duration(self.timeout);
            session.talk.line(&format!("the table is at step {at} and not equal; waiting up to {shown} for step {to}"));
        };
        let compared = against::compare(log, &original, bounds, world, waiting).await?;
        let document = Document::of(&original, &compared)?;
        let document =
            serde_json::to_value(&document).map_err(|e| Error::internal("a comparison is no JSON").with_source(e))?;
        Ok(Beside { lines: lines(&original, &compared), document, exit_code: exit_code(&compared.likeness) })
    }
}

/// A table of a database, not asked yet.
pub(super) struct Place {
    url: Secret,
    table: String,
}

fn exit_code(likeness: &Likeness) -> u8 {
    match likeness {
        Likeness::Equal => 0,
        Likeness::Different(_) | Likeness::Unlike(_) => BROKEN,
        Likeness::Untold(..) => INCONCLUSIVE,
    }
}

fn word(likeness: &Likeness) -> &'static str {
    match likeness {
        Likeness::Equal => "equal",
        Likeness::Different(_) | Likeness::Unlike(_) => "different",
        Likeness::Untold(..) => "inconclusive",
    }
}

fn reason(likeness: &Likeness) -> Option<&str> {
    match likeness {
        Likeness::Equal | Likeness::Different(_) => None,
        Likeness::Unlike(why) | Likeness::Untold(why, _) => Some(why),
    }
}

fn differences(likeness: &Likeness) -> Option<&Differences> {
    match likeness {
        Likeness::Equal | Likeness::Unlike(_) => None,
        Likeness::Different(differences) | Likeness::Untold(_, differences) => Some(differences),
    }
}

fn lines(original: &Original, compared: &Compared) -> Vec<String> {
    let Compared { likeness, .. } = compared;
    let of = format!("{} of {}", original.table(), original.place());
    let at = compared.point.as_ref().zip(compared.step).map(|(point, step)| format!(" at LSN {point}, step {step}"));
    let why = reason(likeness).map(|why| format!(": {why}")).unwrap_or_default();
    let mut out = vec![format!("  against {of}: {}{}{why}", word(likeness), at.unwrap_or_default())];
    let rows = |rows: Rows| format!("{} rows, digest {}", text::grouped(rows.count), rows.digest);
    match (compared.original, compared.table) {
        (Some(both), _) if *likeness == Likeness::Equal => out.push(format!("  both have {}", rows(both))),
        (Some(theirs), Some(own)) => {
            let step = compared.table_step.map(|step| format!(" at step {step}")).unwrap_or_default();
            out.push(format!("  the server has {}", rows(theirs)));
            out.push(format!("  the table has {}{step}", rows(own)));
        }
        _ => {}
    }
    let Some(differences) = differences(likeness) else { return out };
    let Differences { missing, extra, changed, named } = differences;
    let all = missing + extra + changed;
    if all > 0 {
        let [missing, extra, changed] = [missing, extra, changed].map(|n| text::grouped(*n));
        out.push(format!("  rows that differ: {missing} missing, {extra} extra, {changed} changed"));
    }
    out.extend(named.iter().map(|Difference { kind, row }| format!("    {}: {}", kind.name(), cut(row))));
    let more = all - named.len() as u64;
    if more > 0 {
        out.push(format!("    and {} more", text::grouped(more)));
    }
    out
}

fn cut(row: &str) -> String {
    match row.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", row.get(..at).unwrap_or_default()),
        None => row.to_owned(),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    database: &'a str,
    table: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    position: Option<&'a str>,
    step: Option<u64>,
    table_step: Option<u64>,
    generation: Option<u64>,
    rows: Option<u64>,
    digest: Option<String>,
    table_rows: Option<u64>,
    table_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    differences: Option<DifferencesDocument>,
}

#[derive(Serialize)]
struct DifferencesDocument {
    missing: u64,
    extra: u64,
    changed: u64,
    named: Vec<DifferenceDocument>,
}

#[derive(Serialize)]
struct DifferenceDocument {
    kind: &'static str,
    row: Box<RawValue>,
}

impl<'a> Document<'a> {
    fn of(original: &'a Original, compared: &'a Compared) -> Result<Self> {
        let raw = |row: &str| {
            RawValue::from_string(row.to_owned()).map_err(|e| Error::internal("a row is no JSON").with_source(e))
        };
        let named = |found: &Difference| Ok(DifferenceDocument { kind: found.kind.name(), row: raw(&found.row)? });
        let differences = differences(&compared.likeness).map(|found| {
            let Differences { missing, extra, changed, .. } = *found;
            let named = found.named.iter().map(named).collect::<Result<_>>()?;
            Ok::<_, Error>(DifferencesDocument { missing, extra, changed, named })
        });
        Ok(Self {
            database: original.place(),
            table: original.table(),
            verdict: word(&compared.likeness),
            reason: reason(&compared.likeness),
            position: compared.point.as_deref(),
            step: compared.step.map(|step| step.get()),
            table_step: compared.table_step.map(|step| step.get()),
            generation: compared.generation.map(|generation| generation.get()),
            rows: compared.original.map(|rows| rows.count),
            digest: compared.original.map(|rows| rows.digest.to_string()),
            table_rows: compared.table.map(|rows| rows.count),
            table_digest: compared.table.map(|rows| rows.digest.to_string()),
            differences: differences.transpose()?,
        })
    }
}
