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

fn metadata(properties: &[(&str, &str)]) -> Metadata {
    Metadata {
        id: "t".into(),
        name: None,
        description: None,
        format: serde_json::json!({}),
        schema_string: r#"{"type":"struct","fields":[]}"#.into(),
        partition_columns: Vec::new(),
        created_time: None,
        configuration: properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
    }
}

/// Each feature of the protocol and its drafts: what switches it on, whether it is kept while it is off, and while it
/// is on, and what the refusal must say.
const EACH: &[(&str, &str, bool, bool, &str)] = &[
    ("appendOnly", "delta.appendOnly", true, true, ""),
    ("invariants", "", true, true, ""),
    ("checkConstraints", "delta.constraints.c.d", true, false, "DROP CONSTRAINT `c.d`"),
    ("generatedColumns", "", true, true, ""),
    ("allowColumnDefaults", "", true, true, ""),
    ("changeDataFeed", "delta.enableChangeDataFeed", true, true, ""),
    ("columnMapping", "delta.columnMapping.mode", true, true, ""),
    ("identityColumns", "", true, true, ""),
    ("deletionVectors", "delta.enableDeletionVectors", true, true, ""),
    ("rowTracking", "delta.enableRowTracking", true, true, ""),
    ("timestampNtz", "", true, true, ""),
    ("domainMetadata", "", true, true, ""),
    ("v2Checkpoint", "delta.checkpointPolicy", true, true, ""),
    ("clustering", "", true, true, ""),
    ("vacuumProtocolCheck", "", true, true, ""),
    ("inCommitTimestamp", "delta.enableInCommitTimestamps", true, true, ""),
    ("typeWidening", "delta.enableTypeWidening", true, true, ""),
    ("typeWidening-preview", "delta.enableTypeWidening", true, true, ""),
    ("variantType", "", true, true, ""),
    ("variantType-preview", "", true, true, ""),
    ("variantShredding", "delta.enableVariantShredding", true, true, ""),
    ("variantShredding-preview", "delta.enableVariantShredding", true, true, ""),
    ("checkpointProtection", "delta.requireCheckpointProtectionBeforeVersion", true, true, ""),
    ("materializePartitionColumns", "delta.writePartitionColumnsToParquet", true, true, ""),
    ("icebergCompatV1", "delta.enableIcebergCompatV1", true, false, "('delta.enableIcebergCompatV1')"),
    ("icebergCompatV2", "delta.enableIcebergCompatV2", true, false, "('delta.enableIcebergCompatV2')"),
    ("icebergCompatV3", "delta.enableIcebergCompatV3", true, false, "('delta.enableIcebergCompatV3')"),
    ("icebergWriterCompatV1", "delta.enableIcebergWriterCompatV1", true, false, "UNSET TBLPROPERTIES"),
    ("icebergWriterCompatV3", "delta.enableIcebergWriterCompatV3", true, false, "UNSET TBLPROPERTIES"),
    (
        "coordinatedCommits-preview",
        "delta.coordinatedCommits.commitCoordinator-preview",
        true,
        false,
        "DROP FEATURE `coordinatedCommits-preview`",
    ),
    ("redirectWriterOnly-preview", "delta.redirectWriterOnly-preview", true, false, "UNSET TBLPROPERTIES"),
    ("redirectReaderWriter-preview", "delta.redirectReaderWriter-preview", false, false, "DROP FEATURE"),
    ("catalogManaged", "", false, false, "catalog"),
    ("catalogOwned-preview", "", false, false, "catalog"),
    ("collations", "", false, false, "DROP FEATURE `collations`"),
    ("collations-preview", "", false, false, "DROP FEATURE `collations-preview`"),
    ("columnMappingUsageTracking", "", false, false, "DROP FEATURE"),
    ("adaptiveMetadata-preview", "", false, false, "DROP FEATURE"),
    ("geospatial", "", false, false, "DROP FEATURE"),
    ("geospatial-dev", "", false, false, "DROP FEATURE"),
    ("timestampNanos", "", false, false, "DROP FEATURE"),
    ("featureOfTomorrow", "", false, false, "DROP FEATURE `featureOfTomorrow`"),
];

#[test]
fn each_feature_is_kept_or_refused_by_its_name_and_remedy() {
    let named: Vec<&str> = EACH.iter().map(|(name, ..)| *name).collect();
    for (name, _) in FEATURES {
        assert!(named.contains(name), "{name} is not tested");
    }
    for (name, switch, kept_off, kept_on, words) in EACH {
        let protocol = protocol(3, 7, Some(&[name]));
        for (properties, kept) in [(vec![], kept_off), (vec![(*switch, "true")], kept_on)] {
            let metadata = metadata(&properties);
            match (check(&protocol, &metadata), kept) {
                (Ok(()), true) => {}
                (Err(e), false) => {
                    assert!(e.message().contains(name) && e.message().contains(words), "{name}: {e}");
                    assert_eq!(e.kind(), crate::error::ErrorKind::Incompatible);
                }
                (checked, _) => panic!("{name} with {properties:?}: {checked:?}"),
            }
            // What a commit of others that brings it is judged by says the same.
            let judged = refused(&protocol).is_empty() && switches(&metadata.configuration).is_empty();
            assert_eq!(judged, *kept, "{name} with {properties:?}");
        }
        assert!(check(&protocol, &metadata(&[(*switch, "false")])).is_ok() == *kept_off, "{name} switched off");
    }
}

#[test]
fn a_property_without_its_feature_is_as_good_as_none() {
    let constrained = metadata(&[("delta.constraints.c", "id > 0")]);
    for (reader, writer, kept) in [(1, 2, true), (1, 3, false), (2, 6, false)] {
        assert_eq!(check(&protocol(reader, writer, None), &constrained).is_ok(), kept, "({reader}, {writer})");
    }
    assert!(check(&protocol(1, 7, Some(&["appendOnly"])), &constrained).is_ok());
}

#[test]
fn legacy_versions_imply_features_and_later_ones_are_refused() {
    assert!(refused(&protocol(1, 6, None)).is_empty());
    assert!(supports(&protocol(2, 5, None), COLUMN_MAPPING) && !supports(&protocol(1, 5, None), COLUMN_MAPPING));
    let later = check(&protocol(4, 8, None), &metadata(&[])).unwrap_err();
    assert!(later.message().contains("(4, 8)"), "{later}");
}

#[test]
fn only_features_of_readers_keep_rows_from_being_read() {
    let mut unknown = protocol(3, 7, Some(&["wonders"]));
    assert!(check_readable(&unknown).unwrap_err().message().contains("wonders"));
    unknown.reader_features = Some(vec![]);
    assert!(check_readable(&unknown).is_ok());
    assert!(check_readable(&protocol(4, 7, Some(&[]))).is_err());
    assert!(check_readable(&protocol(3, 7, Some(&["catalogManaged"]))).is_ok());
}

#[test]
fn properties_that_switch_on_features_are_refused() {
    let check = |key: &str| check_properties(&BTreeMap::from([(key.to_string(), "true".to_string())]));
    for key in [
        "delta.enableChangeDataFeed",
        "delta.feature.rowTracking",
        "delta.rowTrackingSuspended",
        "delta.columnMapping.mode",
        "cutover.step",
        TXN_RETENTION,
    ] {
        assert!(check(key).is_err(), "{key}");
    }
    for key in ["delta.logRetentionDuration", "delta.enableExpiredLogCleanup", "delta.appendOnly", "owner"] {
        assert!(check(key).is_ok(), "{key}");
    }
}

#[test]
fn timestamps_without_zone_bring_their_feature_and_keep_the_legacy_ones() {
    assert_eq!(upgrade(None, &[]), Some(protocol(1, 2, None)));
    let new = upgrade(None, &[NTZ]).unwrap();
    assert_eq!((new.min_reader_version, new.min_writer_version), (3, 7));
    assert_eq!(new.reader_features.unwrap(), ["timestampNtz"]);
    assert_eq!(new.writer_features.unwrap(), ["appendOnly", "invariants", "timestampNtz"]);
    let upgraded = |reader| upgrade(Some(&protocol(reader, 5, None)), &[NTZ]).unwrap();
    let has_mapping = |list: Option<Vec<String>>| list.unwrap().iter().any(|name| name == COLUMN_MAPPING);
    assert!(has_mapping(upgraded(2).reader_features) && has_mapping(upgraded(2).writer_features));
    assert!(!has_mapping(upgraded(1).reader_features) && !has_mapping(upgraded(1).writer_features));
    assert_eq!(upgrade(Some(&protocol(1, 2, None)), &[]), None);
    assert_eq!(upgrade(Some(&protocol(3, 7, Some(&["timestampNtz"]))), &[NTZ]), None);
}
