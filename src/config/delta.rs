//! A connector's Delta table.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};

use arrow::datatypes::{DataType, Field as Column, Schema};

use super::name::ConnectorName;
use super::place::nearest;
use super::section::{Field, Section, did_you_mean};
use super::view::ViewPart;
use super::{DeltaConfig, Secret};
use crate::continuity::stamp::{Layout, PROPERTY_PREFIX, TXN_RETENTION};
use crate::files::{Compression, FileSettings, check_partition_by};
use crate::log::{Location, Service};
use crate::schema::kept_type;

/// The tables so far, in a spelling that makes equal ones equal, and whose they are.
#[derive(Debug, Default)]
pub(super) struct Tables(BTreeMap<String, ConnectorName>);

impl Tables {
    fn uri(&mut self, name: Option<&ConnectorName>, field: &Field<'_>) -> Option<String> {
        let uri = field.line()?;
        // Errors, logs and the table's own history name the URI: a secret has no place in it.
        if has_credentials(&uri) {
            field.refuse("has credentials or a query in it; write the plain path of the table");
            return None;
        }
        if let Err(why) = Location::check(&uri) {
            field.refuse(&why);
            return None;
        }
        let name = name?;
        if let Some(other) = self.0.insert(same_table(&uri), name.clone()) {
            field.refuse(&format!("{name} and {other} write to the same table; give each its own"));
        }
        Some(uri)
    }
}

/// Reads the table `delta` of the connector `name`, which delivers the view `from`.
pub(super) fn read(
    name: Option<&ConnectorName>,
    mut delta: Section<'_>,
    from: &ViewPart,
    tables: &mut Tables,
) -> Option<DeltaConfig> {
    let uri = delta.required("uri").and_then(|f| tables.uri(name, &f));
    let layout = delta.field("layout").and_then(|f| f.word(&[Layout::Changelog, Layout::Current], &[]));
    let compaction = delta.field("compaction").and_then(|f| f.boolean());
    let reload_ratio = delta.field("reload_ratio").and_then(|f| {
        if layout == Some(Layout::Current) {
            f.refuse_key("is for layout = \"changelog\": here the table has one row for each of the view's; remove it");
        }
        NonZeroU32::new(u32::try_from(f.integer(2, u32::MAX.into())?).ok()?)
    });
    let compression = delta.field("compression").and_then(|f| f.parsed(&f.text()?, read_compression));
    let target_file_size = delta.field("target_file_size").and_then(|f| {
        let size = f.size()?;
        if size > FileSettings::LARGEST_TARGET {
            f.refuse("is above 64GiB, which object stores cannot take in parts; write less");
        }
        Some(size)
    });
    let partition_by = delta.field("partition_by").and_then(|f| read_partition_by(&f, from));
    let mut storage = BTreeMap::new();
    if let Some(options) = delta.field("storage") {
        let service = uri.as_deref().map(Service::of);
        if service == Some(None) {
            options
                .refuse_key("holds options of an object store; a local table has none; remove it, or correct \"uri\"");
        }
        for field in options.section().into_iter().flat_map(Section::fields) {
            if let Some(Some(service)) = service {
                check_option(service, field.name()).unwrap_or_else(|message| field.refuse_key(&message));
            }
            storage.extend(field.text().map(|value| (field.name().to_string(), Secret::new(value))));
        }
    }
    let mut properties = BTreeMap::new();
    for field in delta.section("properties").into_iter().flat_map(Section::fields) {
        properties.extend(read_property(&field));
    }
    delta.finish(&[]);
    Some(DeltaConfig {
        uri: uri?,
        layout: layout.unwrap_or(Layout::Changelog),
        compaction: compaction.unwrap_or(true),
        reload_ratio,
        compression: compression.unwrap_or_default(),
        target_file_size: target_file_size.unwrap_or(128 << 20),
        partition_by,
        storage,
        properties,
    })
}

/// Checked against the view's columns where the file names them; otherwise when the source has told them.
fn read_partition_by(field: &Field<'_>, from: &ViewPart) -> Option<Vec<String>> {
    let names: Vec<_> = field.items()?.iter().map(Field::line).collect();
    let names: Vec<String> = names.into_iter().collect::<Option<_>>()?;
    let kept = |(name, data_type): &(String, DataType)| Some(Column::new(name, kept_type(data_type)?, true));
    let columns: Option<Vec<Column>> = from.columns.iter().map(kept).collect();
    if let Some(columns) = columns.filter(|columns| !columns.is_empty())
        && let Err(e) = check_partition_by(&Schema::new(columns), &names)
    {
        // The message may quote what replaced a reference.
        let hidden = field.is_interpolated();
        field.refuse(if hidden { "these columns cannot partition the view" } else { e.message() });
    }
    Some(names)
}

fn read_property(field: &Field<'_>) -> Option<(String, String)> {
    let name = field.name();
    if name.to_lowercase().starts_with(PROPERTY_PREFIX) {
        field.refuse_key(&format!(
            "properties that begin with {PROPERTY_PREFIX:?} are written by cutover itself; remove it"
        ));
        return None;
    }
    if name.eq_ignore_ascii_case(TXN_RETENTION) {
        field.refuse_key("it makes other engines forget which steps the table holds; remove it");
        return None;
    }
    Some((name.to_string(), field.text()?))
}

/// What is wrong with the name of an option of an object store.
fn check_option(service: Service, name: &str) -> Result<(), String> {
    if service.knows(&name.to_ascii_lowercase()) {
        return Ok(());
    }
    let known = || service.options().iter().copied();
    Err(format!("unknown option; {}", did_you_mean(nearest(name, known()), "known here, among others:", known())))
}

fn read_compression(text: &str) -> Result<Compression, String> {
    text.parse().map_err(|_| "write zstd, zstd(1) to zstd(22), snappy, lz4 or none".to_string())
}

/// A password or a query, where signatures stand, in a URL; a local path has neither.
fn has_credentials(uri: &str) -> bool {
    let Some((_, rest)) = uri.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or(rest);
    rest.contains('?') || authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

/// A spelling that is equal for spellings of the same table, as far as the text alone tells.
fn same_table(uri: &str) -> String {
    let local = uri.strip_prefix("file://").unwrap_or(uri);
    if local.contains("://") {
        let s3 = local.strip_prefix("s3a://").map(|rest| format!("s3://{rest}"));
        return s3.as_deref().unwrap_or(local).trim_end_matches('/').to_string();
    }
    let parts = Path::new(local).components().filter(|part| *part != Component::CurDir);
    parts.collect::<PathBuf>().to_string_lossy().into_owned()
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
