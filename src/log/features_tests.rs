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
fn timestamps_without_zone_bring_their_feature_and_keep_the_legacy_ones() {
    assert_eq!(upgrade(None, false), Some(protocol(1, 2, None)));
    let new = upgrade(None, true).unwrap();
    assert_eq!((new.min_reader_version, new.min_writer_version), (3, 7));
    assert_eq!(new.reader_features.unwrap(), ["timestampNtz"]);
    assert_eq!(new.writer_features.unwrap(), ["appendOnly", "invariants", "timestampNtz"]);
    assert_eq!(upgrade(Some(&protocol(1, 2, None)), false), None);
    assert_eq!(upgrade(Some(&protocol(3, 7, Some(&["timestampNtz"]))), true), None);
}
