use super::*;
use crate::change::Op;
use crate::source::contract_tests::{State, add_rows};
use crate::source::files::chain::chain;
use crate::source::files::directory::Folder;
use crate::source::files::landing_tests::{Change, Format, Landing, expected, row, states, step, view};

/// The folded state within `memory` bytes, and how many passes over the snapshot it took.
fn fold(landing: &Landing, memory: u64) -> (State, usize) {
    let (folder, view) = (Folder::scan(&landing.folder()).unwrap(), view(landing.keyed));
    let snapshot = folder.newest(None).unwrap().clone();
    let (links, view) = chain(&folder, view, snapshot.step, None, |_, view| Ok(view.clone())).unwrap();
    let mut fold = Fold::new(&view, snapshot, links, memory).unwrap();
    let (mut state, mut passes) = (State::new(), 0);
    let mut was_snapshot = false;
    while let Some(batch) = fold.next() {
        add_rows(&mut state, &batch.unwrap(), &view);
        passes += usize::from(was_snapshot && matches!(fold.stage, Stage::Rest(_)));
        was_snapshot = matches!(fold.stage, Stage::Snapshot(..));
    }
    (state, passes)
}

#[test]
fn a_fold_within_little_memory_is_the_same() {
    for keyed in [true, false] {
        let landing = Landing::new(keyed);
        let mut changes: Vec<Change> = (0..400).map(|id| (1, Op::Insert, row(id))).collect();
        changes.extend((0..300).map(|id| (2 + id as u64 / 7, Op::Delete, row(id))));
        changes.extend(
            (200..500).map(|id| (60, if keyed && (300..400).contains(&id) { Op::Update } else { Op::Insert }, row(id))),
        );
        let states = states(&changes, keyed);
        landing.snapshot(1, &states[&1], Format::Parquet);
        let late: Vec<Change> = changes.iter().filter(|c| c.0 > 1).cloned().collect();
        landing.changes(1, 60, &late, Format::ArrowFile);
        let expected = expected(&states, keyed, 1, 60).at(step(60));
        let (state, passes) = fold(&landing, u64::MAX);
        assert_eq!((state, passes), (expected.clone(), 1), "keyed: {keyed}");
        let (state, passes) = fold(&landing, 16 << 10);
        assert_eq!(state, expected, "keyed: {keyed}");
        assert!((4..40).contains(&passes), "keyed: {keyed}, {passes} passes");
    }
}

#[test]
fn a_file_that_is_replaced_during_a_fold_ends_it() {
    let landing = Landing::new(true);
    landing.snapshot(0, &[row(1)], Format::Parquet);
    landing.changes(0, 1, &[(1, Op::Insert, row(2))], Format::Ndjson);
    let (folder, view) = (Folder::scan(&landing.folder()).unwrap(), view(true));
    let (links, view) = chain(&folder, view, step(0), None, |_, view| Ok(view.clone())).unwrap();
    let mut fold = Fold::new(&view, folder.newest(None).unwrap().clone(), links, 0).unwrap();
    assert!(fold.next().unwrap().is_ok());
    landing.changes(0, 1, &[(1, Op::Insert, row(3)), (1, Op::Insert, row(4))], Format::Ndjson);
    let err = fold.find_map(Result::err).unwrap();
    assert_eq!(err.kind(), crate::error::ErrorKind::Unavailable);
    assert!(fold.next().is_none());
}
