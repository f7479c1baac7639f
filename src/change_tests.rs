use std::collections::BTreeMap;

use arrow::array::Int32Array;
use arrow::datatypes::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;

fn view(keyed: bool) -> View {
    let schema = Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("v", DataType::Int32, true)]);
    View::new("v", &schema, if keyed { vec!["k".into()] } else { vec![] }).unwrap()
}

type Row = (i64, Op, i32, Option<i32>);

fn changes(rows: &[Row]) -> Changes {
    let to = rows.iter().map(|r| r.0).max().unwrap_or(1) as u64;
    let range = StepRange::new(Step::ZERO, Step::new(to).unwrap()).unwrap();
    Changes::new(range, vec![batch(rows)]).unwrap()
}

fn batch(rows: &[Row]) -> RecordBatch {
    RecordBatch::try_new(
        view(true).change_schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.1.letter()))),
            Arc::new(Int32Array::from_iter_values(rows.iter().map(|r| r.2))),
            Arc::new(Int32Array::from_iter(rows.iter().map(|r| r.3))),
        ],
    )
    .unwrap()
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let ops = ops_of(batch).unwrap();
    let int = |c: usize| batch.column(c).as_primitive::<arrow::datatypes::Int32Type>().clone();
    let (k, v) = (int(2), int(3));
    let steps = steps_of(batch).unwrap();
    (0..batch.num_rows()).map(|i| (steps.value(i), ops[i], k.value(i), v.is_valid(i).then(|| v.value(i)))).collect()
}

fn check(keyed: bool, input: &[Row], expected: &[Row]) {
    let (netted, counts) = changes(input).net(&view(keyed)).unwrap();
    assert_eq!(rows_of(&netted), expected, "{input:?}");
    assert_eq!(counts.total() as usize, expected.len());
}

#[test]
fn a_keyed_step_nets_to_one_row_a_key() {
    use Op::{Delete as D, Insert as I, Update as U};
    check(true, &[(1, I, 7, Some(1))], &[(1, I, 7, Some(1))]);
    check(true, &[(1, I, 7, Some(1)), (1, U, 7, Some(2))], &[(1, I, 7, Some(2))]);
    check(true, &[(1, I, 7, Some(1)), (1, D, 7, Some(1))], &[(1, D, 7, None)]);
    check(true, &[(1, D, 7, None), (1, I, 7, Some(2))], &[(1, U, 7, Some(2))]);
    check(true, &[(1, U, 7, Some(1)), (1, U, 7, Some(2))], &[(1, U, 7, Some(2))]);
    check(true, &[(1, U, 7, Some(1)), (1, D, 7, Some(9))], &[(1, D, 7, None)]);
    check(true, &[(1, D, 7, None), (1, I, 7, Some(2)), (1, D, 7, None)], &[(1, D, 7, None)]);
}

#[test]
fn steps_are_never_netted_against_each_other() {
    use Op::{Delete as D, Insert as I};
    check(true, &[(1, I, 7, Some(1)), (2, D, 7, None)], &[(1, I, 7, Some(1)), (2, D, 7, None)]);
    check(false, &[(1, I, 7, Some(1)), (2, D, 7, Some(1))], &[(1, I, 7, Some(1)), (2, D, 7, Some(1))]);
}

#[test]
fn the_last_change_of_a_key_in_all_steps_is_its_last_word() {
    use Op::{Delete as D, Insert as I, Update as U};
    let input = [
        (1, I, 7, Some(1)),
        (1, I, 8, Some(1)),
        (2, D, 7, None),
        (2, U, 8, Some(2)),
        (3, I, 7, Some(3)),
        (3, D, 9, None),
    ];
    let last = changes(&input).last_of_each_key(&view(true)).unwrap();
    assert_eq!(rows_of(&last), [(2, U, 8, Some(2)), (3, I, 7, Some(3)), (3, D, 9, None)]);
    let none = changes(&[]).last_of_each_key(&view(true)).unwrap();
    assert_eq!(none.num_rows(), 0);
}

#[test]
fn a_keyless_step_cancels_equal_rows_only() {
    use Op::{Delete as D, Insert as I};
    check(false, &[(1, I, 7, Some(1)), (1, D, 7, Some(1))], &[]);
    check(false, &[(1, I, 7, Some(1)), (1, D, 7, Some(2))], &[(1, I, 7, Some(1)), (1, D, 7, Some(2))]);
    check(false, &[(1, D, 7, None), (1, D, 7, None), (1, I, 7, None)], &[(1, D, 7, None)]);
}

#[test]
fn an_update_without_a_key_and_a_null_key_are_refused() {
    let err = changes(&[(1, Op::Update, 7, Some(1))]).net(&view(false)).unwrap_err();
    assert!(err.message().contains("no key"), "{err}");
    let nulls = RecordBatch::try_new(
        view(true).change_schema(),
        vec![
            Arc::new(Int64Array::from(vec![1])),
            Arc::new(StringArray::from(vec!["i"])),
            Arc::new(Int32Array::from(vec![None])),
            Arc::new(Int32Array::from(vec![Some(1)])),
        ],
    )
    .unwrap();
    let range = StepRange::new(Step::ZERO, Step::new(1).unwrap()).unwrap();
    assert!(Changes::new(range, vec![nulls]).unwrap().net(&view(true)).is_err());
}

#[test]
fn changes_outside_their_range_or_out_of_order_are_refused() {
    let range = |from, to| StepRange::new(Step::new(from).unwrap(), Step::new(to).unwrap()).unwrap();
    let of = |steps: &[i64]| vec![batch(&steps.iter().map(|s| (*s, Op::Insert, 1, None)).collect::<Vec<_>>())];
    assert!(Changes::new(range(1, 3), of(&[2, 2, 3])).is_ok());
    for steps in [&[1][..], &[4], &[3, 2], &[-1]] {
        assert!(Changes::new(range(1, 3), of(steps)).is_err(), "{steps:?}");
    }
}

#[test]
fn a_cut_keeps_whole_steps() {
    let all = changes(&[(1, Op::Insert, 1, None), (2, Op::Insert, 2, None), (5, Op::Insert, 3, None)]);
    let tail = all.clone().after(Step::new(1).unwrap()).unwrap().unwrap();
    assert_eq!((tail.rows(), tail.range().from().get(), tail.range().to().get()), (2, 1, 5));
    let head = all.clone().until(Step::new(4).unwrap()).unwrap().unwrap();
    assert_eq!((head.rows(), head.range().from().get(), head.range().to().get()), (2, 0, 4));
    assert!(all.after(Step::new(5).unwrap()).unwrap().is_none());
}

#[test]
fn changes_are_split_between_steps_and_never_within_one() {
    let rows: Vec<Row> = [1, 1, 1, 2, 4, 4, 5].iter().map(|s| (*s, Op::Insert, 1, None)).collect();
    let split = |at: u64| -> Vec<(u64, u64, u64)> {
        let parts = changes(&rows).split(at).unwrap();
        parts.iter().map(|p| (p.range().from().get(), p.range().to().get(), p.rows())).collect()
    };
    assert_eq!(split(1), [(0, 1, 3), (1, 2, 1), (2, 4, 2), (4, 5, 1)]);
    assert_eq!(split(3), [(0, 1, 3), (1, 4, 3), (4, 5, 1)]);
    assert_eq!(split(4), [(0, 2, 4), (2, 5, 3)]);
    assert_eq!(split(7), [(0, 5, 7)]);
}

fn any_rows() -> impl Strategy<Value = Vec<Row>> {
    let op = prop_oneof![Just(Op::Insert), Just(Op::Update), Just(Op::Delete)];
    proptest::collection::vec((1i64..4, op, 0i32..4, proptest::option::of(0i32..3)), 0..30).prop_map(|mut rows| {
        rows.sort_by_key(|r| r.0);
        rows
    })
}

proptest! {
    /// The state that a reader folds from the netted rows, step by step, is the one that the changes make.
    #[test]
    fn netting_keeps_the_state_after_each_step(rows in any_rows()) {
        let fold = |rows: &[Row]| {
            let mut states = BTreeMap::new();
            let mut state = BTreeMap::new();
            for (step, op, k, v) in rows {
                match op {
                    Op::Delete => { state.remove(k); }
                    _ => { state.insert(*k, *v); }
                }
                states.insert(*step, state.clone());
            }
            states
        };
        let (netted, _) = changes(&rows).net(&view(true)).unwrap();
        let netted = rows_of(&netted);
        prop_assert_eq!(fold(&netted), fold(&rows));
        let mut keys: Vec<(i64, i32)> = netted.iter().map(|r| (r.0, r.2)).collect();
        keys.sort_unstable();
        let all = keys.len();
        keys.dedup();
        prop_assert_eq!(keys.len(), all);
    }

    #[test]
    fn keyless_netting_keeps_each_rows_balance(rows in any_rows()) {
        let rows: Vec<Row> = rows.into_iter().filter(|r| r.1 != Op::Update).collect();
        let balance = |rows: &[Row]| {
            let mut sums: BTreeMap<(i64, i32, Option<i32>), i64> = BTreeMap::new();
            for (step, op, k, v) in rows {
                *sums.entry((*step, *k, *v)).or_default() += if *op == Op::Insert { 1 } else { -1 };
            }
            sums.retain(|_, n| *n != 0);
            sums
        };
        let (netted, _) = changes(&rows).net(&view(false)).unwrap();
        let netted = rows_of(&netted);
        prop_assert_eq!(balance(&netted), balance(&rows));
        prop_assert_eq!(netted.len() as i64, balance(&rows).values().map(|n| n.abs()).sum::<i64>());
    }
}
