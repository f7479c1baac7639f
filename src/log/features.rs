//! The allow-list: what our commits do for each table feature, legacy-implied ones included.

use std::collections::BTreeMap;

use super::entry::{Metadata, Protocol};
use crate::continuity::stamp::{PROPERTY_PREFIX, TXN_RETENTION};
use crate::error::{Error, Result};

/// A feature, and when our commits are right in a table that has it.
struct Feature {
    name: &'static str,
    /// The property that switches it on; our commits are right while it is off.
    off: Option<&'static str>,
}

/// Features whose tables our commits keep right. Those of rows that exist (deletion vectors) end with
/// the files that a reload removes; those of the schema (invariants, generated and identity columns) end with the
/// schema that a reload replaces; v2 checkpoints are written as such; the rest must be switched off.
const KEPT: &[Feature] = &[
    Feature { name: "appendOnly", off: None },
    Feature { name: "invariants", off: None },
    Feature { name: "checkConstraints", off: Some("delta.constraints.") },
    Feature { name: "changeDataFeed", off: Some("delta.enableChangeDataFeed") },
    Feature { name: "generatedColumns", off: None },
    Feature { name: "identityColumns", off: None },
    Feature { name: "columnMapping", off: Some("delta.columnMapping.mode") },
    Feature { name: "deletionVectors", off: None },
    Feature { name: "timestampNtz", off: None },
    Feature { name: "variantType", off: None },
    Feature { name: "v2Checkpoint", off: None },
    Feature { name: "vacuumProtocolCheck", off: None },
];

/// What each legacy writer version implies, beyond the versions below it.
const LEGACY: &[(i32, &[&str])] = &[
    (2, &["appendOnly", "invariants"]),
    (3, &["checkConstraints"]),
    (4, &["changeDataFeed", "generatedColumns"]),
    (5, &["columnMapping"]),
    (6, &["identityColumns"]),
];

/// The features that `protocol` demands and that are not kept.
pub(super) fn refused(protocol: &Protocol) -> Vec<String> {
    if protocol.min_reader_version > 3 || protocol.min_writer_version > 7 {
        return vec![format!("protocol ({}, {})", protocol.min_reader_version, protocol.min_writer_version)];
    }
    names(protocol).into_iter().filter(|name| !KEPT.iter().any(|f| f.name == name)).collect()
}

/// Refuses a table in which our commits would not be right.
pub(super) fn check(protocol: &Protocol, metadata: &Metadata) -> Result<()> {
    if let Some(feature) = refused(protocol).first() {
        return Err(Error::incompatible(format!(
            "the table has the feature {feature:?}, which is not kept here; drop it (ALTER TABLE … DROP FEATURE), or choose another uri"
        )));
    }
    for name in names(protocol) {
        let switch = KEPT.iter().find(|f| f.name == name).and_then(|f| f.off);
        if let Some((key, value)) = switch.and_then(|switch| switched_on(&metadata.configuration, switch)) {
            return Err(Error::incompatible(format!(
                "the table property {key} is {value:?}, and the feature {name:?} is not kept here; unset it, or choose another uri"
            )));
        }
    }
    Ok(())
}

/// Refuses properties that would switch on a feature, since the table's protocol would not name it.
pub(super) fn check_properties(properties: &BTreeMap<String, String>) -> Result<()> {
    const SWITCHES: &[&str] = &[
        "delta.enable",
        "delta.feature.",
        "delta.columnMapping.",
        "delta.constraints.",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.checkpointPolicy",
    ];
    for key in properties.keys() {
        // This one is about the log's clean-up, not about a feature.
        let is_switch = SWITCHES.iter().any(|switch| key.starts_with(switch)) && key != "delta.enableExpiredLogCleanup";
        if is_switch || key == TXN_RETENTION || key.starts_with(PROPERTY_PREFIX) {
            return Err(Error::incompatible(format!(
                "the table property {key} cannot be set here: it is not ours to give, or switches on a table feature that is not kept; remove it from the settings"
            )));
        }
    }
    Ok(())
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
    if protocol.min_reader_version == 2 {
        reader.push("columnMapping".into());
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

fn names(protocol: &Protocol) -> Vec<String> {
    if protocol.min_writer_version >= 7 {
        let mut names = protocol.writer_features.clone().unwrap_or_default();
        let reader_only =
            protocol.reader_features.iter().flatten().filter(|f| !names.contains(f)).cloned().collect::<Vec<_>>();
        names.extend(reader_only);
        return names;
    }
    let implied = LEGACY.iter().filter(|(version, _)| *version <= protocol.min_writer_version);
    implied.flat_map(|(_, names)| names.iter().map(|n| n.to_string())).collect()
}

fn switched_on<'a>(properties: &'a BTreeMap<String, String>, switch: &str) -> Option<(&'a String, &'a String)> {
    properties.iter().find(|(key, value)| {
        let named = if switch.ends_with('.') { key.starts_with(switch) } else { *key == switch };
        named && *value != "false" && *value != "none"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol(reader: i32, writer: i32, features: Option<&[&str]>) -> Protocol {
        let list = |on: bool| features.filter(|_| on).map(|f| f.iter().map(|s| s.to_string()).collect());
        Protocol {
            min_reader_version: reader,
            min_writer_version: writer,
            reader_features: list(reader >= 3),
            writer_features: list(writer >= 7),
        }
    }

    #[test]
    fn unknown_features_are_refused_and_known_ones_are_not() {
        assert!(refused(&protocol(1, 6, None)).is_empty());
        assert!(refused(&protocol(3, 7, Some(&["deletionVectors", "timestampNtz"]))).is_empty());
        assert_eq!(refused(&protocol(3, 7, Some(&["deletionVectors", "rowTracking"]))), ["rowTracking"]);
        assert_eq!(refused(&protocol(4, 8, None)).len(), 1);
    }

    #[test]
    fn properties_that_switch_on_features_are_refused() {
        let check = |key: &str| check_properties(&BTreeMap::from([(key.to_string(), "true".to_string())]));
        for key in ["delta.enableChangeDataFeed", "delta.feature.rowTracking", "cutover.step", TXN_RETENTION] {
            assert!(check(key).is_err(), "{key}");
        }
        for key in ["delta.logRetentionDuration", "delta.enableExpiredLogCleanup", "delta.appendOnly", "owner"] {
            assert!(check(key).is_ok(), "{key}");
        }
    }

    #[test]
    fn types_bring_their_features_and_keep_the_legacy_ones() {
        let (ntz, both) = (["timestampNtz"], ["timestampNtz", "variantType"]);
        assert_eq!(upgrade(None, &[]), Some(protocol(1, 2, None)));
        let new = upgrade(None, &ntz).unwrap();
        assert_eq!((new.min_reader_version, new.min_writer_version), (3, 7));
        assert_eq!(new.reader_features.as_ref().unwrap(), &ntz);
        assert_eq!(new.writer_features.as_ref().unwrap(), &["appendOnly", "invariants", "timestampNtz"]);
        let more = upgrade(Some(&new), &both).unwrap();
        assert_eq!(more.reader_features.unwrap(), both);
        assert_eq!(more.writer_features.unwrap(), ["appendOnly", "invariants", "timestampNtz", "variantType"]);
        assert_eq!(upgrade(Some(&protocol(1, 2, None)), &[]), None);
        assert_eq!(upgrade(Some(&protocol(3, 7, Some(&ntz))), &ntz), None);
    }
}
