use super::*;
use crate::continuity::stamp::Layout;
use crate::digest::Digest;
use crate::error::ErrorKind;
use crate::files::DataFile;
use crate::generation::Generation;
use crate::step::Step;

fn manifest(part: u32, parts: u32, attempt: &str, rows: u64) -> (String, Manifest) {
    let frame = Frame {
        id: "s".into(),
        step: Step::new(7).unwrap(),
        parts,
        connector: "p/v/lake".into(),
        table: None,
        generation: Generation::FIRST,
        layout: Layout::Changelog,
        key: vec!["id".into()],
        columns: r#"{"type":"struct","fields":[]}"#.into(),
        partition_by: vec![],
        holds_partition_columns: false,
        clustered_by: vec![],
    };
    let digest = Digest::from_u128(u128::from(rows) * u128::from(part));
    let file = DataFile {
        path: format!("cutover-load-{part}-{attempt}.parquet"),
        partition_values: [].into(),
        size: rows,
        rows,
        digest,
        stats: "{}".into(),
        modified_millis: 0,
    };
    let written = Written { files: vec![file], rows, bytes: rows, digest };
    (format!("{part}{attempt}"), Manifest::new(frame, part, attempt.into(), written))
}

fn paths(staged: &StagedSnapshot) -> Vec<&str> {
    staged.written().files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn each_part_counts_once_whatever_was_done_again_and_in_whatever_order() {
    let mut given =
        vec![manifest(2, 2, "b", 5), manifest(1, 2, "z", 3), manifest(2, 2, "a", 5), manifest(1, 2, "z", 3)];
    for _ in 0..given.len() {
        given.rotate_left(1);
        let staged = StagedSnapshot::of(given.clone()).unwrap();
        assert_eq!(paths(&staged), ["cutover-load-1-z.parquet", "cutover-load-2-a.parquet"]);
        assert_eq!((staged.rows(), staged.spare()), (8, 2));
        assert_eq!(staged.written().digest, Digest::from_u128(3 + 10));
    }
}

#[test]
fn what_is_no_whole_snapshot_is_refused_by_what_is_wrong() {
    let of_step = |step| {
        let (name, mut other) = manifest(2, 2, "a", 1);
        other.snapshot.step = Step::new(step).unwrap();
        (name, other)
    };
    let of_id = |id: &str| {
        let (name, mut other) = manifest(2, 2, "a", 1);
        other.snapshot.id = id.into();
        (name, other)
    };
    for (given, said) in [
        (vec![], "no manifest is given"),
        (vec![manifest(2, 4, "a", 1), manifest(4, 4, "a", 1)], "2 of the 4 parts of the snapshot s are missing: 1, 3;"),
        (vec![manifest(1, 2, "a", 1), of_step(8)], "2a does not belong to 1a: step is 8, not 7"),
        (vec![manifest(1, 2, "a", 1), of_id("t")], "id is \"t\", not \"s\""),
        (vec![manifest(1, 2, "a", 1), manifest(2, 3, "a", 1)], "parts is 3, not 2"),
        (vec![manifest(1, 1, "a", 1), manifest(1, 1, "b", 2)], "1a and 1b are both part 1 of 1"),
    ] {
        let refused = StagedSnapshot::of(given).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert!(refused.message().contains(said), "{refused}");
    }
}

#[test]
fn rows_are_counted_where_their_number_is_known() {
    let staged = StagedSnapshot::of(vec![manifest(1, 1, "a", 9)]).unwrap();
    staged.check_rows(9).unwrap();
    let refused = staged.check_rows(10).unwrap_err();
    assert!(refused.message().contains("have 9 rows, and 10 are expected"), "{refused}");
}

#[test]
fn a_manifest_reads_back_and_one_that_was_changed_does_not() {
    let (_, manifest) = manifest(1, 2, "a", 3);
    let json = manifest.to_json().unwrap();
    assert_eq!(Manifest::from_json("m", json.as_bytes()).unwrap(), manifest);
    for (from, to, kind) in [
        ("cutover.staged/1", "cutover.staged/2", ErrorKind::Incompatible),
        ("\"part\":1", "\"part\":3", ErrorKind::Corrupt),
        ("\"part\":1", "\"part\":1,\"more\":1", ErrorKind::Corrupt),
        ("cutover-load-1", "../cutover-load-1", ErrorKind::Corrupt),
        ("\"rows\":3", "\"rows\":4", ErrorKind::Corrupt),
        ("}", "", ErrorKind::Corrupt),
    ] {
        let changed = json.replacen(from, to, 1);
        assert_ne!(changed, json, "{from}");
        let refused = Manifest::from_json("m", changed.as_bytes()).unwrap_err();
        assert_eq!(refused.kind(), kind, "{from}: {refused}");
        assert!(refused.message().contains('m'));
    }
}
