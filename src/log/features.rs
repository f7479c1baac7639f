//! The allow-list: what our commits do for each table feature, legacy-implied ones included.
//!
//! Every feature of the protocol stands here, those of its drafts and previews too; any other is refused by its name.

use std::collections::BTreeMap;

use arrow::datatypes::Schema;

use super::entry::{Metadata, Protocol};
use super::facts::Facts;
use super::{clustering, mapping};
use crate::continuity::stamp::{PROPERTY_PREFIX, TXN_RETENTION};
use crate::error::{Error, Result};

/// What a feature comes to for our commits.
enum Answer {
    /// They are right in a table that has it, whatever its properties say.
    Kept,
    /// They are right while no property of this name, or beginning with it where it ends in a point, switches it on.
    Off { switch: &'static str, remedy: Remedy },
    /// They are not right.
    Refused(Remedy),
}

/// How a table gets rid of what is not kept.
enum Remedy {
    DropFeature,
    DropConstraint,
    UnsetProperty,
    /// Nothing that can be done to the table.
    Catalog,
}

use Answer::{Kept, Off, Refused};

const FEATURES: &[(&str, Answer)] = &[
    // A reload is refused while the property says so; an append removes nothing.
    ("appendOnly", Kept),
    // These four live in the notes of a column. A reload writes a schema without any, an append is refused where there
    // are some.
    ("invariants", Kept),
    ("generatedColumns", Kept),
    ("identityColumns", Kept),
    ("allowColumnDefaults", Kept),
    ("checkConstraints", Off { switch: CONSTRAINTS, remedy: Remedy::DropConstraint }),
    // Whole files are added and removed, and no row is updated in place, so there is no need for change files. Where rows
    // are, in layout current, the table is refused.
    ("changeDataFeed", Kept),
    (COLUMN_MAPPING, Kept),
    // A remove names the vector with its file.
    (DELETION_VECTORS, Kept),
    (ROW_TRACKING, Kept),
    ("domainMetadata", Kept),
    (IN_COMMIT_TIMESTAMP, Kept),
    (CLUSTERING, Kept),
    (NTZ, Kept),
    ("variantType", Kept),
    ("variantType-preview", Kept),
    // Whether a variant is shredded is each file's own affair.
    ("variantShredding", Kept),
    ("variantShredding-preview", Kept),
    // After a reload no file is older than the schema, so no change of a type is left to note.
    ("typeWidening", Kept),
    ("typeWidening-preview", Kept),
    // The kernel writes checkpoints as the table wants them; log clean-up leaves tables with the second one alone, and garbage
    // is looked for only where every feature is known.
    ("v2Checkpoint", Kept),
    ("checkpointProtection", Kept),
    ("vacuumProtocolCheck", Kept),
    // Partition columns are written to data files too.
    (MATERIALIZED, Kept),
    ("icebergCompatV1", Off { switch: "delta.enableIcebergCompatV1", remedy: Remedy::UnsetProperty }),
    ("icebergCompatV2", Off { switch: "delta.enableIcebergCompatV2", remedy: Remedy::UnsetProperty }),
    ("icebergCompatV3", Off { switch: "delta.enableIcebergCompatV3", remedy: Remedy::UnsetProperty }),
    ("icebergWriterCompatV1", Off { switch: "delta.enableIcebergWriterCompatV1", remedy: Remedy::UnsetProperty }),
    ("icebergWriterCompatV3", Off { switch: "delta.enableIcebergWriterCompatV3", remedy: Remedy::UnsetProperty }),
    (
        "coordinatedCommits-preview",
        Off { switch: "delta.coordinatedCommits.commitCoordinator-preview", remedy: Remedy::DropFeature },
    ),
    ("redirectWriterOnly-preview", Off { switch: "delta.redirectWriterOnly-preview", remedy: Remedy::UnsetProperty }),
    ("redirectReaderWriter-preview", Refused(Remedy::DropFeature)),
    ("catalogManaged", Refused(Remedy::Catalog)),
    ("catalogOwned-preview", Refused(Remedy::Catalog)),
    ("collations", Refused(Remedy::DropFeature)),
    ("collations-preview", Refused(Remedy::DropFeature)),
    ("columnMappingUsageTracking", Refused(Remedy::DropFeature)),
    ("adaptiveMetadata-preview", Refused(Remedy::DropFeature)),
    ("geospatial", Refused(Remedy::DropFeature)),
    ("geospatial-dev", Refused(Remedy::DropFeature)),
    ("timestampNanos", Refused(Remedy::DropFeature)),
];

/// Maps columns to names and ids of their own in data files.
pub(super) const COLUMN_MAPPING: &str = "columnMapping";
/// Gives each row an id.
pub(super) const ROW_TRACKING: &str = "rowTracking";
/// Gives each commit a time that increases.
pub(super) const IN_COMMIT_TIMESTAMP: &str = "inCommitTimestamp";
/// Names columns by which rows are to lie together.
pub(super) const CLUSTERING: &str = "clustering";
/// Lets commits delete single rows of data files.
pub(super) const DELETION_VECTORS: &str = "deletionVectors";
/// The property without which no writer may do so.
pub(super) const DELETES_ROWS: &str = "delta.enableDeletionVectors";
const APPEND_ONLY: &str = "delta.appendOnly";
const CHANGE_DATA_FEED: &str = "delta.enableChangeDataFeed";
const CONSTRAINTS: &str = "delta.constraints.";
/// Keeps timestamps without zone.
pub(super) const NTZ: &str = "timestampNtz";
/// Keeps partition columns in data files too.
pub(super) const MATERIALIZED: &str = "materializePartitionColumns";

/// What each legacy writer version implies, beyond the versions below it.
const LEGACY: &[(i32, &[&str])] = &[
    (2, &["appendOnly", "invariants"]),
    (3, &["checkConstraints"]),
    (4, &["changeDataFeed", "generatedColumns"]),
    (5, &[COLUMN_MAPPING]),
    (6, &["identityColumns"]),
];

const NEWEST_READER: i32 = 3;
const NEWEST_WRITER: i32 = 7;

/// The features that `protocol` demands and that are kept in no state of the table.
pub(super) fn refused(protocol: &Protocol) -> Vec<String> {
    if protocol.min_reader_version > NEWEST_READER || protocol.min_writer_version > NEWEST_WRITER {
        return vec![format!("protocol ({}, {})", protocol.min_reader_version, protocol.min_writer_version)];
    }
    names(protocol).into_iter().filter(|name| !matches!(answer(name), Some(Kept | Off { .. }))).collect()
}

/// The properties that switch on what is not kept, whether or not the protocol lets them.
pub(super) fn switches(properties: &BTreeMap<String, String>) -> Vec<String> {
    let all = FEATURES.iter().filter_map(|(_, answer)| match answer {
        Off { switch, .. } => switched_on(properties, switch),
        Kept | Refused(_) => None,
    });
    all.map(|(key, _)| key.clone()).collect()
}

/// Refuses a table in which our commits would not be right.
pub(super) fn check(protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    if let Some(name) = refused(protocol).first() {
        let remedy = match answer(name) {
            Some(Refused(remedy)) => remedy.text(name, name),
            _ if protocol.min_writer_version > NEWEST_WRITER => "it needs a later version of this program".into(),
            _ => Remedy::DropFeature.text(name, name),
        };
        return Err(Error::incompatible(format!(
            "the table has the feature {name:?}, which is not kept here; {remedy}, or choose another uri"
        )));
    }
    for name in names(protocol) {
        if let Some(Off { switch, remedy }) = answer(&name)
            && let Some((key, value)) = switched_on(&metadata.configuration, switch)
        {
            return Err(Error::incompatible(format!(
                "the table property {key} is {value:?}, and the feature {name:?} is not kept here; {}, or choose another uri",
                remedy.text(&name, key)
            )));
        }
    }
    Ok(())
}

/// Refuses rows with `schema` that a feature of the table has no room for.
pub(super) fn check_columns(facts: &Facts, schema: &Schema) -> Result<()> {
    let (Some(protocol), Some(metadata)) = (&facts.protocol, &facts.metadata) else { return Ok(()) };
    let column = |name: &str| schema.fields().iter().find(|f| f.name().eq_ignore_ascii_case(name));
    if is_on(protocol, metadata, "changeDataFeed", CHANGE_DATA_FEED) {
        let taken = ["_change_type", "_commit_version", "_commit_timestamp"].into_iter().find_map(column);
        if let Some(field) = taken {
            return Err(Error::incompatible(format!(
                "the view's column {:?} has a name that the table's change data feed takes; rename it in the view, or switch the feed off (ALTER TABLE … SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false'))",
                field.name()
            )));
        }
    }
    if supports(protocol, ROW_TRACKING) && mapping::mode(protocol, metadata).is_none() {
        for key in [
            "delta.rowTracking.materializedRowIdColumnName",
            "delta.rowTracking.materializedRowCommitVersionColumnName",
        ] {
            if let Some(field) = metadata.configuration.get(key).and_then(|name| column(name)) {
                return Err(Error::incompatible(format!(
                    "the view's column {:?} has the name that the table property {key} reserves for row tracking; rename it in the view",
                    field.name()
                )));
            }
        }
    }
    clustering::check(facts, schema)
}

/// Refuses a table in which no commit of ours may delete single rows.
pub(super) fn check_deletions(facts: &Facts) -> Result<()> {
    let (Some(protocol), Some(metadata)) = (&facts.protocol, &facts.metadata) else { return Ok(()) };
    if is_on(protocol, metadata, "changeDataFeed", CHANGE_DATA_FEED) {
        return Err(Error::incompatible(format!(
            "the table property {CHANGE_DATA_FEED} is \"true\", and the change files that it asks for are not written in layout current; set it to \"false\" (ALTER TABLE … SET TBLPROPERTIES), or take layout = \"changelog\", which is such a feed"
        )));
    }
    check_removals(facts, "the changes of rows in layout current")
}

/// Refuses a table from which nothing may be removed; `what` would.
pub(super) fn check_removals(facts: &Facts, what: &str) -> Result<()> {
    let properties = facts.metadata.as_ref().map(|m| &m.configuration);
    if properties.and_then(|p| p.get(APPEND_ONLY)).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(Error::incompatible(format!(
            "the table property {APPEND_ONLY} is \"true\", which forbids {what}; set it to \"false\" (ALTER TABLE … SET TBLPROPERTIES) and try again"
        )));
    }
    Ok(())
}

/// Refuses a table whose rows cannot be read here.
pub(super) fn check_readable(protocol: &Protocol) -> Result<()> {
    let refused = refused(protocol);
    let demanded = |name: &&String| protocol.reader_features.iter().flatten().any(|f| f == *name);
    let unreadable =
        if protocol.min_reader_version > NEWEST_READER { refused.first() } else { refused.iter().find(demanded) };
    match unreadable {
        // A catalog hands out commits that the log's folder does not hold yet; what it holds is sound.
        Some(name) if !name.starts_with("catalog") => Err(Error::incompatible(format!(
            "the table has the feature {name:?}, without which its rows cannot be read, and which is not known here; {}",
            Remedy::DropFeature.text(name, name)
        ))),
        _ => Ok(()),
    }
}

/// Refuses properties that would switch on a feature, since the table's protocol would not name it.
pub(super) fn check_properties(properties: &BTreeMap<String, String>) -> Result<()> {
    for key in properties.keys() {
        if is_switch(key) || key == TXN_RETENTION || key.starts_with(PROPERTY_PREFIX) {
            return Err(Error::incompatible(format!(
                "the table property {key} cannot be set here: it is not ours to give, or switches on a table feature that is not kept; remove it from the settings"
            )));
        }
    }
    Ok(())
}

/// Whether a property switches on a table feature.
pub(super) fn is_switch(key: &str) -> bool {
    const SWITCHES: &[&str] = &[
        "delta.enable",
        "delta.feature.",
        "delta.columnMapping.",
        "delta.constraints.",
        "delta.rowTracking",
        "delta.inCommitTimestamp",
        "delta.coordinatedCommits.",
        "delta.redirect",
        "delta.universalFormat.",
        "delta.requireCheckpointProtection",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.checkpointPolicy",
    ];
    // This one is about the log's clean-up, not about a feature.
    SWITCHES.iter().any(|switch| key.starts_with(switch)) && key != "delta.enableExpiredLogCleanup"
}

/// The protocol of a table whose types need the features `needed`; `None` when `protocol` has them already.
pub(super) fn upgrade(protocol: Option<&Protocol>, needed: &[&str]) -> Option<Protocol> {
    let Some(protocol) = protocol else {
        let plain =
            Protocol { min_reader_version: 1, min_writer_version: 2, reader_features: None, writer_features: None };
        return Some(upgrade(Some(&plain), needed).unwrap_or(plain));
    };
    let has = |feature: &&str| protocol.writer_features.iter().flatten().any(|f| f == feature);
    let missing: Vec<String> = needed.iter().filter(|feature| !has(feature)).map(|f| f.to_string()).collect();
    if missing.is_empty() {
        return None;
    }
    let mut writer = names(protocol);
    let mut reader: Vec<String> = protocol.reader_features.clone().unwrap_or_default();
    if protocol.min_reader_version == 2 && writer.iter().any(|name| name == COLUMN_MAPPING) {
        reader.push(COLUMN_MAPPING.into());
    }
    writer.extend(missing.iter().cloned());
    reader.extend(missing);
    Some(Protocol {
        min_reader_version: 3,
        min_writer_version: 7,
        reader_features: Some(reader),
        writer_features: Some(writer),
    })
}

/// Whether `protocol` names the feature or implies it.
pub(super) fn supports(protocol: &Protocol, name: &str) -> bool {
    names(protocol).iter().any(|n| n == name)
}

/// Whether the feature is there and its property is `true`.
pub(super) fn is_on(protocol: &Protocol, metadata: &Metadata, name: &str, property: &str) -> bool {
    let on = metadata.configuration.get(property).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    on && supports(protocol, name)
}

fn answer(name: &str) -> Option<&'static Answer> {
    FEATURES.iter().find(|(known, _)| *known == name).map(|(_, answer)| answer)
}

fn names(protocol: &Protocol) -> Vec<String> {
    if protocol.min_writer_version >= NEWEST_WRITER {
        let mut names = protocol.writer_features.clone().unwrap_or_default();
        let reader_only =
            protocol.reader_features.iter().flatten().filter(|f| !names.contains(f)).cloned().collect::<Vec<_>>();
        names.extend(reader_only);
        return names;
    }
    let implied = LEGACY.iter().filter(|(version, _)| *version <= protocol.min_writer_version);
    let implied = implied.flat_map(|(_, names)| names.iter());
    // Writers know column mapping from version 5 on, but a table has it only where readers must know it too.
    let implied = implied.filter(|name| **name != COLUMN_MAPPING || protocol.min_reader_version >= 2);
    implied.map(|name| name.to_string()).collect()
}

fn switched_on<'a>(properties: &'a BTreeMap<String, String>, switch: &str) -> Option<(&'a String, &'a String)> {
    properties.iter().find(|(key, value)| {
        let named = if switch.ends_with('.') { key.starts_with(switch) } else { *key == switch };
        named && !value.eq_ignore_ascii_case("false")
    })
}

impl Remedy {
    /// What to do about the feature `name`, which `key` switches on.
    fn text(&self, name: &str, key: &str) -> String {
        match self {
            Self::DropFeature => format!("drop it (ALTER TABLE … DROP FEATURE `{name}`)"),
            Self::DropConstraint => {
                let constraint = key.strip_prefix(CONSTRAINTS).unwrap_or(key);
                format!("drop the constraint (ALTER TABLE … DROP CONSTRAINT `{constraint}`)")
            }
            Self::UnsetProperty => format!("unset it (ALTER TABLE … UNSET TBLPROPERTIES ('{key}'))"),
            Self::Catalog => "its commits go through a catalog: drop the feature with the catalog's own engine".into(),
        }
    }
}

#[cfg(test)]
#[path = "features_tests.rs"]
mod tests;
