//! A pipeline's source.

use std::path::PathBuf;
use std::time::Duration;

use super::section::{Field, Section};
use super::{FilesConfig, PostgresConfig, Secret, SourceConfig};
#[cfg(feature = "postgres")]
use crate::source::postgres::url_fault;

/// A server keeps whole files of 16 MiB.
const LEAST_WAL: u64 = 16 << 20;
/// The longest name that PostgreSQL keeps, in bytes.
const LONGEST_NAME: usize = 63;

/// What a source is, whether its settings are right or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Files that others land.
    Files,
    /// Requests that others send.
    Push,
    /// Tables of a PostgreSQL database.
    Postgres,
}

/// What a pipeline hands to each of its views.
#[derive(Debug, Clone, Default)]
pub(super) struct SourcePart {
    /// What it is; `None` where the file does not tell.
    pub(super) kind: Option<Kind>,
    /// Its settings, where they are right.
    pub(super) config: Option<SourceConfig>,
}

impl SourcePart {
    /// Reads the source of the pipeline `name`.
    pub(super) fn read(name: &str, pipeline: &mut Section<'_>) -> Self {
        let Some(field) = pipeline.field("source") else {
            let source = pipeline.path_of("source");
            pipeline.missing("source", &format!("has no source; add {}", sources(&source)));
            return Self::default();
        };
        let Some(mut section) = field.section() else { return Self::default() };
        let part = match section.tagged("source", AVAILABLE, PLANNED) {
            Some(("files", field)) => {
                let files = field.section().and_then(read_files);
                Self { kind: Some(Kind::Files), config: files.map(SourceConfig::Files) }
            }
            Some(("postgres", field)) => {
                let postgres = field.section().and_then(|postgres| read_postgres(name, postgres));
                Self { kind: Some(Kind::Postgres), config: postgres.map(SourceConfig::Postgres) }
            }
            Some((_, field)) => {
                let push = field.section().map(|push| push.finish(&[]));
                Self { kind: Some(Kind::Push), config: push.map(|()| SourceConfig::Push) }
            }
            None => Self::default(),
        };
        section.finish(&[]);
        part
    }
}

/// What a source can be in this program.
const AVAILABLE: &[&str] = if cfg!(feature = "postgres") { &["files", "push", "postgres"] } else { &["files", "push"] };
const PLANNED: &[&str] = if cfg!(feature = "postgres") { &[] } else { &["postgres"] };

fn sources(path: &str) -> String {
    let tables: Vec<String> = AVAILABLE.iter().map(|tag| format!("[{path}.{tag}]")).collect();
    tables.join(" or ")
}

/// Slot and publication are called after the pipeline unless they have names of their own.
fn read_postgres(pipeline: &str, mut postgres: Section<'_>) -> Option<PostgresConfig> {
    let url = postgres.required("url").and_then(|field| database_url(&field));
    let slot = postgres.field("slot");
    let publication = postgres.field("publication");
    let own = own_name(pipeline);
    let slot = match slot {
        Some(field) => field.line().and_then(|name| field.parsed(&name, slot_name)),
        None => Some(own.clone()),
    };
    let publication = match publication {
        Some(field) => field.line().and_then(|name| field.parsed(&name, publication_name)),
        None => Some(own),
    };
    let max_wal = postgres.field("max_wal").and_then(|f| f.within(f.size()?, LEAST_WAL..=u64::MAX, "16MiB and more"));
    postgres.finish(&[]);
    Some(PostgresConfig { url: Secret::new(url?), slot: slot?, publication: publication?, max_wal })
}

/// A URL, which no message quotes, since it has the password.
fn database_url(field: &Field<'_>) -> Option<String> {
    let url = field.line()?;
    #[cfg(feature = "postgres")]
    if let Some(fault) = url_fault(&url) {
        field.refuse(&fault);
        return None;
    }
    Some(url)
}

/// A name that is a slot's as well as a publication's.
pub(super) fn own_name(pipeline: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = pipeline.chars().map(plain).collect();
    format!("cutover_{name}").chars().take(LONGEST_NAME).collect()
}

fn slot_name(name: &str) -> Result<String, String> {
    let is_slot = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.len() <= LONGEST_NAME && name.chars().all(is_slot) {
        return Ok(name.to_owned());
    }
    Err(format!("a slot has up to {LONGEST_NAME} lower-case letters, digits and _"))
}

fn publication_name(name: &str) -> Result<String, String> {
    if name.len() <= LONGEST_NAME {
        return Ok(name.to_owned());
    }
    Err(format!("a publication's name has up to {LONGEST_NAME} bytes"))
}

fn read_files(mut files: Section<'_>) -> Option<FilesConfig> {
    let path = files.required("path").and_then(|f| f.line());
    let id = files.field("id").and_then(|f| f.line());
    let poll_interval = files.field("poll_interval").and_then(|f| f.duration());
    files.finish(&[]);
    Some(FilesConfig { path: PathBuf::from(path?), id, poll_interval: poll_interval.unwrap_or(Duration::from_secs(1)) })
}
