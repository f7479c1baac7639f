use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::*;
use crate::error::ErrorKind;

fn index(home: Option<&Path>) -> KeyIndex {
    KeyIndex::open(home, "load-1", &["id".to_string()], 7, "p/v/c").unwrap()
}

fn ids(ids: impl IntoIterator<Item = i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    RecordBatch::try_new(Arc::new(schema), vec![ids]).unwrap()
}

fn row(thousand: u64, row: u64) -> Known {
    let row = thousand * 1000 + row;
    Known { row, digest: Digest::from_u128(u128::from(row) << 70 | 1) }
}

fn put(index: &mut KeyIndex, keys: &[KeyHash], known: &[Known]) {
    let mut tally = index.tally();
    tally.rows += keys.len() as u64;
    tally.digest = known.iter().fold(tally.digest, |sum, known| sum.plus(known.digest));
    let put = keys.iter().copied().zip(known.iter().copied()).collect();
    index.apply(Edit { put, tally, ..Edit::default() }).unwrap();
}

#[test]
fn a_key_is_found_where_it_was_put_last_also_after_it_was_opened_again() {
    let home = tempfile::tempdir().unwrap();
    for place in [None, Some(home.path())] {
        let mut index = index(place);
        let keys = index.hashes(&ids(0..1000)).unwrap();
        put(&mut index, &keys, &(0..1000).map(|n| row(1, n)).collect::<Vec<_>>());
        put(&mut index, &keys[..10], &(0..10).map(|n| row(2, n)).collect::<Vec<_>>());
        let file = IndexedFile { path: "f".into(), vector: Some("v".into()), rows: RowRuns::of(3..12) };
        let tally = index.tally();
        index
            .apply(Edit {
                removed: keys[5..7].to_vec(),
                files: vec![(3, Some(file.clone()))],
                tally,
                ..Edit::default()
            })
            .unwrap();
        if place.is_some() {
            drop(index);
            index = super::tests::index(place);
        }
        let mut expected: Vec<_> = (0..1000).map(|n| Some(row(if n < 10 { 2 } else { 1 }, n))).collect();
        (expected[5], expected[6]) = (None, None);
        assert_eq!(index.find(&keys).unwrap(), expected);
        assert_eq!(index.files().unwrap(), BTreeMap::from([(3, file)]));
        assert_eq!(index.tally(), tally);
        index.sweep(|row| row >= 2000).unwrap();
        assert_eq!(index.tally().rows, 8);
        assert_eq!(index.find(&keys[..12]).unwrap().iter().flatten().count(), 8);
    }
}

#[test]
fn keys_are_told_apart_by_their_values_alone() {
    let hashes = |columns: Vec<ArrayRef>| {
        let fields = columns.iter().enumerate().map(|(n, c)| Field::new(format!("k{n}"), c.data_type().clone(), false));
        let key: Vec<String> = (0..columns.len()).map(|n| format!("k{n}")).collect();
        let schema = Schema::new(fields.collect::<Vec<_>>());
        hash::hashes(&RecordBatch::try_new(Arc::new(schema), columns).unwrap(), &key, 7).unwrap()
    };
    let wide = hashes(vec![Arc::new(Int64Array::from(vec![-1, 1, i64::from(i32::MAX)]))]);
    assert_eq!(wide, hashes(vec![Arc::new(Int32Array::from(vec![-1, 1, i32::MAX]))]), "whatever the width");
    let texts = |a: &[&str], b: &[&str]| {
        hashes(vec![Arc::new(StringArray::from(a.to_vec())), Arc::new(StringArray::from(b.to_vec()))])
    };
    let pairs = texts(&["a", "ab", "", "abc"], &["bc", "c", "abc", ""]);
    let distinct: std::collections::HashSet<_> = pairs.iter().collect();
    assert_eq!(distinct.len(), 4, "wherever one column ends");
    let decimal = Decimal128Array::from(vec![1]).with_precision_and_scale(5, 2).unwrap();
    let one =
        [hashes(vec![Arc::new(decimal)]), hashes(vec![Arc::new(BooleanArray::from(vec![true]))]), wide[1..2].to_vec()];
    assert_eq!(one.iter().collect::<std::collections::HashSet<_>>().len(), 3);
}

#[test]
fn another_seed_hashes_otherwise_and_an_index_keeps_its_own() {
    let home = tempfile::tempdir().unwrap();
    let (seeded, rows) = (index(Some(home.path())), ids(0..3));
    let (before, key) = (seeded.hashes(&rows).unwrap(), seeded.key.clone());
    drop(seeded);
    let again = KeyIndex::open(Some(home.path()), "load-1", &key, 8, "p/v/c").unwrap();
    assert_eq!(again.hashes(&rows).unwrap(), before);
    let other = KeyIndex::open(Some(home.path()), "load-2", &key, 8, "p/v/c").unwrap();
    assert_ne!(other.hashes(&rows).unwrap(), before);
}

#[test]
fn what_is_damaged_or_anothers_is_not_believed() {
    let mut index = index(None);
    let keys = index.hashes(&ids(0..4)).unwrap();
    put(&mut index, &keys, &(0..4).map(|n| row(1, n)).collect::<Vec<_>>());
    let stored = index.store.get(&row_key(keys[2])).unwrap().unwrap();
    for at in 0..stored.len() {
        let mut bytes = stored.clone();
        bytes[at] ^= 1;
        index.store.write([(row_key(keys[2]), Some(bytes))]).unwrap();
        assert_eq!(index.find(&keys).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        assert_eq!(index.sweep(|_| true).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
    // Under another key it is another's.
    index.store.write([(row_key(keys[2]), Some(value(keys[3], &row(1, 3))))]).unwrap();
    assert_eq!(index.find(&keys[2..3]).unwrap_err().kind(), ErrorKind::Corrupt);

    let home = tempfile::tempdir().unwrap();
    drop(super::tests::index(Some(home.path())));
    let error = KeyIndex::open(Some(home.path()), "load-1", &["other".to_string()], 7, "p/v/c").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    KeyIndex::remove(home.path(), "load-1").unwrap();
    KeyIndex::open(Some(home.path()), "load-1", &["other".to_string()], 7, "p/v/c").unwrap();
}

#[test]
fn one_process_has_an_index_and_those_of_older_loads_go() {
    let home = tempfile::tempdir().unwrap();
    let held = index(Some(home.path()));
    let key = ["id".to_string()];
    let refused = KeyIndex::open(Some(home.path()), "load-1", &key, 7, "p/v/c").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    drop(held);
    drop(KeyIndex::open(Some(home.path()), "load-2", &key, 7, "p/v/c").unwrap());
    KeyIndex::keep_only(home.path(), "load-2").unwrap();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    KeyIndex::keep_only(&home.path().join("absent"), "load-2").unwrap();
}
