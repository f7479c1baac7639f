use proptest::prelude::*;

use super::*;

fn any_stamp() -> impl Strategy<Value = CommitStamp> {
    let kind = prop_oneof![Just(Kind::Reload), Just(Kind::Append), Just(Kind::Mark), Just(Kind::Maintenance)];
    let ids = (".*", "[a-z0-9-]{1,40}", ".*");
    let counters =
        (1..i64::MAX as u64, 1..i64::MAX as u64, proptest::option::of(0..=Step::MAX.get()), 0..=Step::MAX.get());
    let contents = (any::<[u64; 3]>(), any::<u128>(), proptest::option::of(any::<u128>()));
    let who = || proptest::option::of((".*", ".*", ".*"));
    let extra = (proptest::option::of(".*"), who(), who());
    (kind, ids, counters, contents, extra).prop_map(|(kind, ids, counters, contents, extra)| CommitStamp {
        cutover: CONTRACT,
        kind,
        connector: ids.0,
        generation: Generation::new(counters.0).unwrap(),
        epoch: Epoch::new(counters.1).unwrap(),
        writer: ids.1,
        commit: ids.2,
        from: counters.2.map(|s| Step::new(s).unwrap()),
        to: Step::new(counters.3).unwrap(),
        rows: RowCounts { i: contents.0[0], u: contents.0[1], d: contents.0[2] },
        digest: Digest::from_u128(contents.1),
        digest_total: contents.2.map(Digest::from_u128),
        rows_total: contents.2.map(|_| RowCounts { i: contents.0[2], u: contents.0[1], d: contents.0[0] }),
        source: extra.0,
        strand: (contents.0[0] % 2 == 0).then(|| Strand::new(contents.0[1])),
        reset: extra.1.map(|(id, who, why)| ResetStamp { id, who, why }),
        adopt: extra.2.map(|(from, who, why)| AdoptStamp { from, who, why }),
    })
}

proptest! {
    #[test]
    fn a_commit_stamp_survives_its_encoding(stamp in any_stamp()) {
        let text = stamp.encode().unwrap();
        let first = text.split_once("kind").unwrap().0;
        prop_assert_eq!(first, "{\"cutover\":1,\"");
        prop_assert_eq!(CommitStamp::decode(&text).unwrap(), Some(stamp));
    }

    #[test]
    fn a_cut_commit_stamp_is_never_taken_for_a_whole_one(stamp in any_stamp(), cut in 1usize..4096) {
        let text = stamp.encode().unwrap();
        let cut = cut % text.len();
        if text.is_char_boundary(cut) {
            prop_assert!(!matches!(CommitStamp::decode(&text[..cut]), Ok(Some(_))));
        }
    }

    #[test]
    fn a_table_stamp_survives_its_encoding(
        connector in ".*", generation in 1..i64::MAX as u64, step in 0..=Step::MAX.get(),
        key in proptest::collection::vec(".*", 0..4), source in ".*", commit in ".*",
    ) {
        let stamp = TableStamp {
            connector, key, source, commit,
            generation: Generation::new(generation).unwrap(),
            step: Step::new(step).unwrap(),
            mode: Mode::SnapshotAndFollow,
            layout: Layout::Changelog,
        };
        let mut properties = stamp.encode();
        properties.insert("delta.appendOnly".into(), "false".into());
        prop_assert_eq!(TableStamp::decode(&properties).unwrap(), Some(stamp));
    }
}

#[test]
fn other_peoples_metadata_is_not_ours() {
    for text in ["", "nightly job", "{}", "{\"job\":7}", "{\"cutover\":\"done\"}", "[1]", "7"] {
        assert_eq!(CommitStamp::decode(text).unwrap(), None, "{text:?}");
    }
}

#[test]
fn an_unknown_contract_is_incompatible_and_a_broken_stamp_corrupt() {
    use crate::error::ErrorKind;
    for (text, kind) in [
        ("{\"cutover\":2,\"kind\":\"append\"}", ErrorKind::Incompatible),
        ("{\"cutover\":1,\"kind\":\"append\"}", ErrorKind::Corrupt),
        ("{\"cutover\":1,\"kind\":\"app", ErrorKind::Corrupt),
    ] {
        assert_eq!(CommitStamp::decode(text).unwrap_err().kind(), kind, "{text}");
    }
}

#[test]
fn a_table_without_one_property_of_ours_is_corrupt() {
    let stamp = TableStamp {
        connector: "p/v/c".into(),
        generation: Generation::FIRST,
        step: Step::ZERO,
        mode: Mode::Follow,
        layout: Layout::Changelog,
        key: vec![],
        source: "s".into(),
        commit: "c".into(),
    };
    for missing in stamp.encode().keys() {
        let mut properties = stamp.encode();
        properties.remove(missing);
        assert!(TableStamp::decode(&properties).is_err(), "{missing}");
    }
    assert_eq!(TableStamp::decode(&BTreeMap::new()).unwrap(), None);
}
