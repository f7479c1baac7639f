use std::collections::BTreeMap;
use std::fs;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use proptest::prelude::*;

use super::*;
use crate::continuity::stamp::COLUMN_OP;
use crate::error::ErrorKind;

type Change = (&'static str, i64, String);

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn view(key: &[&str]) -> View {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)];
    View::new("orders", &Schema::new(fields), key.iter().map(|k| (*k).to_owned()).collect()).unwrap()
}

fn batch(changes: &[Change]) -> RecordBatch {
    let fields = ["id", "text"].into_iter().zip([DataType::Int64, DataType::Utf8]);
    let mut all = vec![Field::new(COLUMN_OP, DataType::Utf8, true)];
    all.extend(fields.map(|(name, kind)| Field::new(name, kind, true)));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(changes.iter().map(|(op, ..)| *op))),
        Arc::new(Int64Array::from_iter_values(changes.iter().map(|(_, id, _)| *id))),
        Arc::new(StringArray::from_iter_values(changes.iter().map(|(.., text)| text))),
    ];
    RecordBatch::try_new(Arc::new(Schema::new(all)), columns).unwrap()
}

fn rows(pinned: Pinned) -> Vec<(i64, String)> {
    let mut rows = Vec::new();
    for batch in pinned.batches() {
        let batch = batch.unwrap();
        let ids = batch.column(0).as_primitive::<Int64Type>();
        let texts = batch.column(1).as_string::<i32>();
        rows.extend((0..batch.num_rows()).map(|i| (ids.value(i), texts.value(i).to_owned())));
    }
    rows.sort();
    rows
}

fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            copied(&entry.path(), &to.join(entry.file_name()));
        } else {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// The state by the changes, and what of them may be asked of a view without key.
fn fold(state: &mut BTreeMap<(i64, String), u64>, is_keyed: bool, changes: Vec<Change>) -> Vec<Change> {
    let mut kept = Vec::new();
    for (op, id, text) in changes {
        let row = (id, text.clone());
        if is_keyed {
            state.retain(|(other, _), _| *other != id);
            if op != "d" {
                state.insert(row, 1);
            }
        } else if op == "i" {
            *state.entry(row).or_default() += 1;
        } else if let Some(count) = state.get_mut(&row).filter(|count| op == "d" && **count > 0) {
            *count -= 1;
        } else {
            continue;
        }
        kept.push((op, id, text));
    }
    kept
}

fn listed(state: &BTreeMap<(i64, String), u64>) -> Vec<(i64, String)> {
    state.iter().flat_map(|(row, count)| std::iter::repeat_n(row.clone(), *count as usize)).collect()
}

fn steps() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let op = prop::sample::select(vec!["i", "u", "d"]);
    let change =
        (op, 0..6i64, prop::sample::select(vec!["a", "b", ""])).prop_map(|(op, id, text)| (op, id, text.to_owned()));
    prop::collection::vec(prop::collection::vec(change, 0..8), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_store_is_what_its_changes_come_to_whatever_is_pinned_or_lost(
        steps in steps(), is_keyed: bool, synced in 0..12usize, lost in 0..12usize
    ) {
        let root = tempfile::tempdir().unwrap();
        let view = view(if is_keyed { &["id"] } else { &[] });
        let (directory, copy, log) = (root.path().join("view"), root.path().join("copy"), Uuid::from_u128(7));
        let mut store = ViewStore::open(&directory, &view, log).unwrap();
        let (mut state, mut states, mut pins, mut sent) = (BTreeMap::new(), vec![Vec::new()], Vec::new(), Vec::new());
        for (i, changes) in steps.into_iter().enumerate() {
            let changes = fold(&mut state, is_keyed, changes);
            store.apply(step(i as u64 + 1), &[batch(&changes)]).unwrap();
            prop_assert_eq!(store.rows(), listed(&state).len() as u64);
            states.push(listed(&state));
            sent.push(changes);
            pins.push(store.pins().pin().unwrap());
            if i == synced {
                store.sync().unwrap();
            }
            if i == lost {
                copied(&directory, &copy);
            }
        }
        for (i, pinned) in pins.into_iter().enumerate() {
            prop_assert_eq!(pinned.step, step(i as u64 + 1));
            prop_assert_eq!(&rows(pinned), &states[i + 1]);
        }
        if lost < sent.len() {
            let mut store = ViewStore::open(&copy, &view, log).unwrap();
            let found = store.step().get() as usize;
            prop_assert!(found <= lost + 1 && (synced > lost || found > synced), "{} of {}", found, lost);
            prop_assert_eq!(&rows(store.pins().pin().unwrap()), &states[found]);
            for (i, changes) in sent.iter().enumerate().skip(found) {
                store.apply(step(i as u64 + 1), &[batch(changes)]).unwrap();
            }
            prop_assert_eq!(&rows(store.pins().pin().unwrap()), states.last().unwrap());
        }
    }
}

#[test]
fn deleting_an_absent_row_of_a_view_without_key_applies_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut store = ViewStore::open(root.path(), &view(&[]), Uuid::nil()).unwrap();
    let error = store.apply(step(1), &[batch(&[("i", 1, "a".into()), ("d", 2, "b".into())])]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.message().contains("change 1 deletes a row"), "{error}");
    assert_eq!((store.step(), store.rows(), rows(store.pins().pin().unwrap())), (Step::ZERO, 0, Vec::new()));
}

#[test]
fn another_log_other_columns_and_a_second_owner_are_told_apart() {
    let root = tempfile::tempdir().unwrap();
    let (directory, log) = (root.path().join("view"), Uuid::from_u128(1));
    let mut store = ViewStore::open(&directory, &view(&["id"]), log).unwrap();
    store.apply(step(1), &[batch(&[("i", 1, "a".into())])]).unwrap();
    store.sync().unwrap();
    let second = ViewStore::open(&directory, &view(&["id"]), log).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Refused, "{second}");
    drop(store);
    let kind = |view: &View, log| ViewStore::open(&directory, view, log).unwrap_err().kind();
    assert_eq!(kind(&view(&["id"]), Uuid::from_u128(2)), ErrorKind::Corrupt);
    assert_eq!(kind(&view(&[]), log), ErrorKind::Incompatible);
    assert_eq!(ViewStore::open(&directory, &view(&["id"]), log).unwrap().step(), step(1));
}

#[test]
fn batches_stay_within_their_bounds() {
    let root = tempfile::tempdir().unwrap();
    let mut store = ViewStore::open(root.path(), &view(&["id"]), Uuid::nil()).unwrap();
    let many: Vec<Change> = (0..20_000).map(|id| ("i", id, String::new())).collect();
    store.apply(step(1), &[batch(&many)]).unwrap();
    let large: Vec<Change> = (20_000..20_012).map(|id| ("i", id, "x".repeat(1 << 20))).collect();
    store.apply(step(2), &[batch(&large)]).unwrap();
    let batches: Vec<RecordBatch> = store.pins().pin().unwrap().batches().collect::<Result<_>>().unwrap();
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20_012);
    assert!(batches.iter().all(|b| b.num_rows() <= 8192 && b.get_array_memory_size() < 8 << 20));
}

#[test]
fn stored_rows_keep_their_encoding() {
    let encoding = Encoding::new(&view(&["id"])).unwrap();
    let encoded = encoding.encode(&batch(&[("i", 258, "ab".into())])).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(encoded.keys.unwrap().row(0).data()), "018000000000000102");
    assert_eq!(hex(encoded.rows.row(0).data()), "01800000000000010202616200000000000002");
}

#[test]
fn a_changed_bit_is_an_error_or_an_earlier_step_and_never_another_row() {
    let root = tempfile::tempdir().unwrap();
    let (directory, view, log) = (root.path().join("view"), view(&["id"]), Uuid::from_u128(1));
    let mut states = vec![Vec::new()];
    for n in 1..=3 {
        // Opened anew, so that some rows stand in tables and some in a journal.
        let mut store = ViewStore::open(&directory, &view, log).unwrap();
        store.apply(step(n), &[batch(&[("i", n as i64, "a".into()), ("i", 9, format!("at {n}"))])]).unwrap();
        store.sync().unwrap();
        states.push(rows(store.pins().pin().unwrap()));
    }
    let mut files = vec![directory.clone()];
    let mut places = Vec::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let length = fs::metadata(&path).unwrap().len().min(600);
            places.extend((0..length).step_by(97).map(|at| (path.clone(), at as usize)));
        }
    }
    assert!(places.len() > 10, "{places:?}");
    for (path, at) in places {
        let copy = root.path().join("copy");
        copied(&directory, &copy);
        let damaged = copy.join(path.strip_prefix(&directory).unwrap());
        let mut bytes = fs::read(&damaged).unwrap();
        bytes[at] ^= 4;
        fs::write(&damaged, bytes).unwrap();
        if let Ok(store) = ViewStore::open(&copy, &view, log) {
            let pinned = store.pins().pin().unwrap();
            let state = &states[pinned.step.get() as usize];
            let mut read: Vec<(i64, String)> = Vec::new();
            let is_whole = pinned.batches().all(|batch| {
                batch.is_ok_and(|batch| {
                    let (ids, texts) =
                        (batch.column(0).as_primitive::<Int64Type>(), batch.column(1).as_string::<i32>());
                    read.extend((0..batch.num_rows()).map(|i| (ids.value(i), texts.value(i).to_owned())));
                    true
                })
            });
            assert!(!is_whole || read == *state, "{} at {at}: {read:?}", path.display());
        }
        fs::remove_dir_all(&copy).unwrap();
    }
}
