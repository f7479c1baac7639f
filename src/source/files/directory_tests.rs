use super::*;
use crate::error::ErrorKind;

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn changes(from: u64, to: u64, format: Option<Format>) -> Name {
    Name::Changes(StepRange::new(step(from), step(to)).unwrap(), format)
}

#[test]
fn names_say_what_they_hold() {
    let max = u64::try_from(i64::MAX).unwrap() - 1;
    for (name, expected) in [
        ("snapshot-0.parquet", Name::Snapshot(step(0), Some(Format::Parquet))),
        ("snapshot-000100.arrow", Name::Snapshot(step(100), Some(Format::Arrow))),
        ("snapshot-9223372036854775806.ndjson", Name::Snapshot(step(max), Some(Format::Ndjson))),
        ("snapshot-7", Name::Snapshot(step(7), None)),
        ("changes-1-2.ndjson", changes(1, 2, Some(Format::Ndjson))),
        ("changes-0-9223372036854775806", changes(0, max, None)),
        (".changes-1-2.ndjson", Name::Unfinished),
        ("_temporary", Name::Unfinished),
        ("README.md", Name::Other),
        ("data.parquet", Name::Other),
        ("", Name::Other),
    ] {
        assert_eq!(parse_name(name).unwrap(), expected, "{name}");
    }
}

#[test]
fn names_that_are_close_to_the_patterns_are_refused() {
    for name in [
        "change-1-2.parquet",
        "changes-1.parquet",
        "changes-1-2-3.parquet",
        "changes-2-1.parquet",
        "changes-2-2.parquet",
        "changes--1-2.parquet",
        "changes-+1-2.parquet",
        "changes- 1-2.parquet",
        "changes-1_2.parquet",
        "changes-1-9223372036854775807.parquet",
        "changes-1-99999999999999999999999.parquet",
        "changes-1-2.csv",
        "changes-1-2.parquet.tmp",
        "changes-1-2.PARQUET",
        "changes-1-2.",
        "snapshot-.parquet",
        "snapshot-1e3.parquet",
        "snapshot-18446744073709551615.parquet",
        "snapshot-١.parquet",
        "snapshot-1.parquet.gz",
        "snapshots-1.parquet",
    ] {
        let err = parse_name(name).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Refused, "{name}");
        assert!(err.message().contains(name) && err.message().contains("changes-<from>-<to>.<ext>"), "{err}");
    }
}

fn check_refused(lay: impl FnOnce(&Path), parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    lay(folder.path());
    let err = Folder::scan(folder.path()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Refused, "{err}");
    for part in parts {
        assert!(err.message().contains(part), "{err}: no {part}");
    }
}

fn write(folder: &Path, name: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "").unwrap();
}

#[test]
fn what_no_rule_covers_is_refused_by_name() {
    let link = |folder: &Path| std::os::unix::fs::symlink("/etc/passwd", folder.join("snapshot-1.ndjson")).unwrap();
    check_refused(link, &["snapshot-1.ndjson", "symbolic link"]);
    let part_link = |folder: &Path| {
        std::fs::create_dir(folder.join("snapshot-1")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("snapshot-1/a.ndjson")).unwrap();
    };
    check_refused(part_link, &["a.ndjson", "symbolic link"]);
    check_refused(|folder| write(folder, "snapshot-1"), &["\"snapshot-1\"", "extension"]);
    check_refused(|folder| write(folder, "snapshot-1/a.csv"), &["snapshot-1", "a.csv"]);
    check_refused(|folder| write(folder, "snapshot-1/b/a.parquet"), &["folder within a folder"]);
    check_refused(|folder| write(folder, "changes-1-2/_SUCCESS"), &["changes-1-2", "no part file"]);
    let twice = |folder: &Path| {
        write(folder, "snapshot-5.parquet");
        write(folder, "snapshot-05.ndjson");
    };
    check_refused(twice, &["snapshot-5.parquet", "snapshot-05.ndjson", "step 5"]);
}

#[test]
fn a_link_that_takes_a_files_place_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "snapshot-1.ndjson");
    let listed = Folder::scan(folder.path()).unwrap();
    let part = &listed.snapshots[0].landed.parts[0];
    assert!(open_file(part).is_ok());
    std::fs::remove_file(&part.path).unwrap();
    assert_eq!(open_file(part).unwrap_err().kind(), ErrorKind::Unavailable);
    std::os::unix::fs::symlink("/etc/passwd", &part.path).unwrap();
    assert_eq!(open_file(part).unwrap_err().kind(), ErrorKind::Refused);

    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(), home.path().join("v")).unwrap();
    assert_eq!(Folder::scan(&home.path().join("v")).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(Folder::scan(&home.path().join("w")).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn the_file_that_leads_furthest_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["changes-0-5.parquet", "changes-0-7.parquet", "changes-3-7.parquet", "changes-6-9.parquet"] {
        write(folder.path(), name);
    }
    let listed = Folder::scan(folder.path()).unwrap();
    let leading = |after: u64| listed.leading(step(after)).map(|c| c.landed.name.as_str());
    assert_eq!(leading(0), Some("changes-0-7.parquet"));
    assert_eq!(leading(3), Some("changes-3-7.parquet"));
    assert_eq!(leading(6), Some("changes-6-9.parquet"));
    assert_eq!(leading(9), None);
    let chosen = listed.leading(step(3)).unwrap();
    let shared = listed.sharing(chosen, StepRange::new(step(4), step(7)).unwrap());
    let shared: Vec<String> = shared.iter().map(|(c, range)| format!("{} {range}", c.landed)).collect();
    assert_eq!(shared, ["changes-0-5.parquet (4, 5]", "changes-0-7.parquet (4, 7]", "changes-6-9.parquet (6, 7]"]);
}
