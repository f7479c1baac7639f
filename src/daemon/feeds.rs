//! The databases of a daemon.

use std::sync::Arc;

use super::directory::DataDirectory;
use super::report::WalReport;
use super::views::{Numbering, Standing, with_places};
use crate::clock::World;
use crate::config::{ConnectorConfig, SourceConfig, ViewConfig};
use crate::connector::Trouble;
use crate::disk::FileSystem;
use crate::error::{Error, Result};
use crate::source::logged::FULL;
use crate::source::postgres::{Feed, FeedSettings, TableSettings};
use crate::steplog::Limits;

/// Follows the tables of the pipeline `pipeline`, each with the connectors that are attached to it.
pub(super) async fn open(
    pipeline: &str,
    tables: &[(&ViewConfig, Vec<&ConnectorConfig>)],
    directory: &DataDirectory,
    world: &World,
) -> Result<Feed> {
    let sources = tables.iter().map(|(view, _)| &view.source);
    let Some(SourceConfig::Postgres(database)) = sources.into_iter().next() else {
        return Err(Error::internal(format!("the pipeline {pipeline} has no table of a database")));
    };
    let settings = FeedSettings {
        url: database.url.expose().to_owned(),
        slot: database.slot.clone(),
        publication: database.publication.clone(),
        max_wal: database.max_wal,
        evidence: directory.evidence(pipeline)?,
        tables: tables.iter().map(|(view, attached)| table(view, attached, directory)).collect::<Result<_>>()?,
    };
    let feed = Feed::open(settings, Arc::new(FileSystem), world).await?;
    feed.met().await;
    Ok(feed)
}

fn table(view: &ViewConfig, attached: &[&ConnectorConfig], directory: &DataDirectory) -> Result<TableSettings> {
    let (pipeline, name) = (&view.pipeline, &view.name);
    let unnamed = || Error::internal(format!("the view {pipeline}/{name} names no table"));
    Ok(TableSettings {
        view: name.clone(),
        table: view.table.clone().ok_or_else(unnamed)?,
        key: view.key.clone(),
        columns: view.columns.clone(),
        directory: directory.step_log(pipeline, name)?,
        limits: Limits::of(view.step_log_bytes),
        register: directory.register(pipeline, name)?,
        connectors: with_places(attached),
    })
}

/// Why a view is not open, or not followed any more.
pub(super) fn trouble(feed: &Feed, view: &str) -> Option<String> {
    let trouble = feed.trouble(view).map(|e| e.message().to_string());
    let standing = feed.standing(view).ok()?;
    let stays = |e: &Arc<Error>| !e.kind().is_retryable();
    trouble.or(standing.lost).or_else(|| standing.away.filter(stays).map(|e| e.message().to_owned()))
}

/// Where a view stands.
pub(super) fn standing(feed: &Feed, view: &str) -> Option<Standing> {
    let standing = feed.standing(view).ok()?;
    let wal = standing.wal.map(|wal| WalReport { bytes: wal.bytes, status: wal.status });
    let last = standing.log.map_or(standing.reached, |log| log.last.max(standing.reached));
    Some(Standing {
        log: standing.log,
        last,
        numbering: Numbering::Positions,
        rows: None,
        connectors: standing.connectors,
        refusal: match &standing.away {
            Some(away) => Some(away.message().to_owned()),
            None => standing.is_full.then(|| FULL.to_owned()),
        },
        away: standing.away.as_deref().map(Trouble::of),
        is_full: standing.is_full,
        backpressure: standing.backpressure,
        wal,
    })
}
