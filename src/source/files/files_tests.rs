use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt};
use proptest::prelude::*;

use super::landing_tests::{
    Change, Format, Landing, Row, expected, row, states, step, view, write_changes, write_rows,
};
use super::*;
use crate::change::Op;
use crate::error::ErrorKind;
use crate::source::contract_tests::{check_contract, check_follow, check_snapshot};

fn run<T>(work: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(work)
}

fn newest() -> Pick {
    Pick::Newest { until: None }
}

fn reached() -> Pick {
    Pick::Reached { until: None }
}

async fn fails(source: &mut FilesSource, pick: Pick) -> Error {
    match source.snapshot(pick).await {
        Ok((_, snapshot)) => snapshot.rows.try_collect::<Vec<_>>().await.unwrap_err(),
        Err(e) => e,
    }
}

/// A history of some steps, not all dense, with several changes each.
fn history(keyed: bool) -> impl Strategy<Value = Vec<Change>> {
    let change = (0..6i64, 0..3i128, any::<bool>(), any::<bool>());
    let steps = proptest::collection::vec((1..3u64, proptest::collection::vec(change, 0..6)), 1..12);
    steps.prop_map(move |steps| {
        let (mut at, mut rows, mut changes) = (0, Vec::<Row>::new(), Vec::new());
        for (gap, ops) in steps {
            at += gap;
            for (id, price, has_name, delete) in ops {
                let mut row = Row { price: Some(price * 7 - 5), ..row(id) };
                if !has_name {
                    (row.name, row.tags) = (None, None);
                }
                let there = rows.iter().position(|r| if keyed { r.id == id } else { *r == row });
                let op = match (delete, there, keyed) {
                    (true, Some(_), _) => Op::Delete,
                    (true, None, true) if has_name => Op::Delete,
                    (_, Some(_), true) => Op::Update,
                    _ => Op::Insert,
                };
                if let Some(there) = there.filter(|_| keyed || op == Op::Delete) {
                    rows.remove(there);
                }
                if op != Op::Delete {
                    rows.push(row.clone());
                }
                changes.push((at, op, row));
            }
        }
        changes
    })
}

#[derive(Debug, Clone)]
struct Plan {
    keyed: bool,
    changes: Vec<Change>,
    /// Borders of files that cover everything, as fractions of the last step.
    borders: Vec<u64>,
    /// More files, over the first ones.
    extra: Vec<(u64, u64)>,
    snapshots: Vec<u64>,
    formats: Vec<usize>,
    order: u64,
}

fn plan() -> impl Strategy<Value = Plan> {
    let cut = || 0..100u64;
    any::<bool>().prop_flat_map(move |keyed| {
        (
            history(keyed),
            proptest::collection::vec(cut(), 0..5),
            proptest::collection::vec((cut(), cut()), 0..3),
            proptest::collection::vec(cut(), 0..3),
            proptest::collection::vec(0..4usize, 16),
            any::<u64>(),
        )
            .prop_map(move |(changes, borders, extra, snapshots, formats, order)| Plan {
                keyed,
                changes,
                borders,
                extra,
                snapshots,
                formats,
                order,
            })
    })
}

/// Mixes the steps of a file's rows up, while those of one step keep their order.
fn mixed(changes: &[Change], seed: u64) -> Vec<Change> {
    let mut mixed = changes.to_vec();
    mixed.sort_by_key(|(at, _, _)| (at ^ seed) % 5);
    mixed
}

impl Plan {
    fn last(&self) -> u64 {
        self.changes.last().map_or(1, |c| c.0)
    }

    /// The change files, in an order that `order` decides.
    fn files(&self) -> Vec<(u64, u64)> {
        let at = |fraction: u64| fraction * self.last() / 100;
        let mut borders: Vec<u64> = self.borders.iter().map(|b| at(*b)).chain([0, self.last()]).collect();
        borders.sort_unstable();
        let mut files: Vec<(u64, u64)> = borders.windows(2).map(|w| (w[0], w[1])).collect();
        files.extend(self.extra.iter().map(|(a, b)| (at(*a.min(b)), at(*a.max(b)))));
        files.retain(|(from, to)| from < to);
        files.sort_by_key(|(from, to)| (from * 31 + to * 17) ^ (self.order % 64));
        files.dedup();
        files
    }

    fn land_changes(&self, landing: &Landing, index: usize, (from, to): (u64, u64)) {
        let changes: Vec<Change> = self.changes.iter().filter(|c| from < c.0 && c.0 <= to).cloned().collect();
        let format = Format::ALL[self.formats[index % self.formats.len()]];
        landing.changes(from, to, &mixed(&changes, self.order), format);
    }

    /// Lands the snapshots, and answers with the newest one's step.
    fn land_snapshots(&self, landing: &Landing, states: &BTreeMap<u64, Vec<Row>>) -> u64 {
        let mut steps: Vec<u64> = self.snapshots.iter().map(|s| s * self.last() / 100).chain([0]).collect();
        steps.sort_unstable();
        steps.dedup();
        for (i, at) in steps.iter().enumerate() {
            let rows = states.range(..=at).next_back().unwrap().1;
            landing.snapshot(*at, rows, Format::ALL[self.formats[(i + 7) % self.formats.len()]]);
        }
        *steps.last().unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_into_files_keeps_the_contract(plan in plan(), memory in prop_oneof![Just(0u64), Just(400), Just(1 << 20)]) {
        let landing = Landing::new(plan.keyed);
        let states = states(&plan.changes, plan.keyed);
        let snapshot = plan.land_snapshots(&landing, &states);
        for (i, file) in plan.files().into_iter().enumerate() {
            plan.land_changes(&landing, i, file);
        }
        let expected = expected(&states, plan.keyed, snapshot, plan.last());
        let mut source = FilesSource::new(FilesSettings { fold_memory: memory, ..landing.settings() }).unwrap();
        run(check_contract(&mut source, &expected));
    }

    #[test]
    fn files_are_taken_in_step_order_whatever_order_they_arrive_in(plan in plan()) {
        let landing = Landing::new(plan.keyed);
        let expected = expected(&states(&plan.changes, plan.keyed), plan.keyed, 0, plan.last());
        let mut source = landing.source();
        let (mut reached, mut state) = (step(0), expected.at(step(0)));
        run(async {
            for (i, file) in plan.files().into_iter().enumerate() {
                plan.land_changes(&landing, i, file);
                let answers = check_follow(&mut source, reached, &mut state, &expected).await;
                reached = answers.last().map_or(reached, |changes| changes.range().to());
            }
        });
        prop_assert_eq!(reached.get(), plan.last());
    }
}

#[test]
fn a_hole_is_waited_for() {
    run(async {
        let landing = Landing::new(true);
        landing.changes(0, 5, &[(3, Op::Insert, row(1))], Format::Ndjson);
        landing.changes(8, 9, &[(9, Op::Insert, row(2))], Format::Parquet);
        let mut source = landing.source();
        let Next::Changes(changes) = source.changes(step(0), &view(true)).await.unwrap() else { panic!("idle") };
        assert_eq!(changes.range().to(), step(5));
        let Next::Idle { hole: Some(hole) } = source.changes(step(5), &view(true)).await.unwrap() else {
            panic!("no hole")
        };
        assert_eq!((hole.after, hole.before.as_str()), (step(5), "changes-8-9.parquet"));
        landing.changes(5, 8, &[], Format::ArrowStream);
        let Next::Changes(changes) = source.changes(step(5), &view(true)).await.unwrap() else { panic!("idle") };
        assert_eq!((changes.range().to(), changes.rows()), (step(8), 0));
        let Next::Changes(changes) = source.changes(step(8), &view(true)).await.unwrap() else { panic!("idle") };
        assert_eq!(changes.rows(), 1);
        assert!(matches!(source.changes(step(9), &view(true)).await.unwrap(), Next::Idle { hole: None }));
        landing.snapshot(20, &[row(1)], Format::Parquet);
        let Next::Idle { hole: Some(hole) } = source.changes(step(9), &view(true)).await.unwrap() else {
            panic!("no hole")
        };
        assert_eq!(hole.before, "snapshot-20.parquet");
        let position = source.position().await.unwrap();
        assert_eq!((position.earliest, position.latest), (Some(step(0)), Some(step(20))));
    });
}

#[test]
fn a_change_file_that_disagrees_about_undelivered_steps_ends_the_continuity() {
    run(async {
        let landing = Landing::new(true);
        let (one, two, other) = ((2, Op::Insert, row(1)), (4, Op::Insert, row(2)), (4, Op::Insert, row(3)));
        landing.changes(0, 4, &[one.clone(), two.clone()], Format::Ndjson);
        landing.changes(2, 6, std::slice::from_ref(&two), Format::Parquet);
        let mut source = landing.source();
        let Next::Changes(changes) = source.changes(step(0), &view(true)).await.unwrap() else { panic!("idle") };
        assert_eq!(changes.range().to(), step(4));

        landing.changes(1, 5, &[one, other], Format::ArrowFile);
        let err = landing.source().changes(step(0), &view(true)).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt);
        for part in ["changes-0-4.ndjson", "changes-1-5.arrow", "(1, 4]"] {
            assert!(err.message().contains(part), "{err}");
        }
        // What is delivered is not looked at again.
        assert!(landing.source().changes(step(4), &view(true)).await.is_ok());
        let err = fails(&mut landing.source(), reached()).await;
        assert_eq!(err.kind(), ErrorKind::Unavailable, "{err}");
        landing.snapshot(0, &[], Format::Parquet);
        assert_eq!(fails(&mut landing.source(), reached()).await.kind(), ErrorKind::Corrupt);
    });
}

#[test]
fn folders_of_part_files_count_as_one_file() {
    run(async {
        let landing = Landing::new(true);
        let folder = landing.folder();
        for name in ["snapshot-4", "changes-4-8.parquet"] {
            std::fs::create_dir(folder.join(name)).unwrap();
        }
        write_rows(&folder.join("snapshot-4/part-0.c000.snappy.parquet"), &[row(1)], Format::Parquet, true);
        write_rows(&folder.join("snapshot-4/part-1.ndjson"), &[row(2)], Format::Ndjson, true);
        landing.put("snapshot-4/_SUCCESS", "");
        landing.put("snapshot-4/.part-0.crc", "x");
        let late: Vec<Change> = vec![(7, Op::Insert, row(3))];
        let early: Vec<Change> = vec![(5, Op::Insert, row(4)), (7, Op::Delete, row(1))];
        write_changes(&folder.join("changes-4-8.parquet/a.parquet"), &late, Format::Parquet, true);
        write_changes(&folder.join("changes-4-8.parquet/b.arrow"), &early, Format::ArrowFile, true);
        let states = BTreeMap::from([
            (4, vec![row(1), row(2)]),
            (5, vec![row(1), row(2), row(4)]),
            (7, vec![row(2), row(3), row(4)]),
        ]);
        check_contract(&mut landing.source(), &expected(&states, true, 4, 8)).await;
        landing.put("snapshot-9/_temporary/0/x", "");
        check_snapshot(&mut landing.source(), newest(), 4, &expected(&states, true, 4, 8)).await;
    });
}

#[test]
fn a_view_without_columns_is_that_of_the_files() {
    run(async {
        let landing = Landing::new(true);
        let mut source = FilesSource::new(FilesSettings { columns: vec![], ..landing.settings() }).unwrap();
        let err = source.snapshot(newest()).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable, "{err}");
        landing.snapshot(1, &[row(1)], Format::Ndjson);
        let err = source.snapshot(newest()).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Config);
        assert!(err.message().contains("columns = {"), "{err}");
        landing.changes(1, 2, &[], Format::ArrowStream);
        assert_eq!(source.view(step(1)).await.unwrap(), view(true));
        assert_eq!(source.snapshot(newest()).await.unwrap().0, view(true));
        check_snapshot(&mut source, newest(), 1, &expected(&BTreeMap::from([(1, vec![row(1)])]), true, 1, 2)).await;
    });
}

#[test]
fn numbers_come_out_exactly_as_they_went_in() {
    run(async {
        let landing = Landing::new(true);
        let big = |id, price| Row { id, price: Some(price), name: None, tags: None };
        let rows: Vec<Row> = [(9_007_199_254_740_993, 12_345_678_901_234_567_891), (i64::MIN, -1), (i64::MAX, 99)]
            .map(|(id, price)| big(id, price))
            .to_vec();
        let states = BTreeMap::from([(1, rows.clone())]);
        for (i, format) in Format::ALL.into_iter().enumerate() {
            let at = i as u64 + 1;
            landing.snapshot(at, &rows, format);
            check_snapshot(&mut landing.source(), newest(), at, &expected(&states, true, 1, 1)).await;
        }
    });
}

#[test]
fn what_is_missing_or_too_new_is_said_with_its_remedy() {
    run(async {
        let landing = Landing::new(true);
        let err = fails(&mut landing.source(), newest()).await;
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        assert!(err.message().contains("snapshot-<step>.parquet"), "{err}");
        landing.snapshot(5, &[], Format::Parquet);
        let err = fails(&mut landing.source(), Pick::Reached { until: Some(step(4)) }).await;
        assert_eq!(err.kind(), ErrorKind::Refused);
        let gone = FilesSettings { view: "gone".to_owned(), ..landing.settings() };
        let err = FilesSource::new(gone).unwrap().view(step(0)).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        assert!(err.message().contains("gone"), "{err}");
        for view in ["", "..", "a/b", "/"] {
            let odd = FilesSettings { view: view.to_owned(), ..landing.settings() };
            assert_eq!(FilesSource::new(odd).unwrap_err().kind(), ErrorKind::Config, "{view:?}");
        }
    });
}

#[test]
fn the_fingerprint_is_the_id_or_the_path() {
    let landing = Landing::new(true);
    assert_eq!(landing.source().fingerprint(), "files:test/v");
    let settings = FilesSettings { id: None, ..landing.settings() };
    let path = settings.path.canonicalize().unwrap();
    assert_eq!(FilesSource::new(settings).unwrap().fingerprint(), format!("files:{}/v", path.display()));
}

#[test]
fn a_delete_of_a_row_that_is_not_there_ends_the_continuity() {
    run(async {
        let landing = Landing::new(false);
        landing.snapshot(0, &[row(1)], Format::Parquet);
        landing.changes(0, 1, &[(1, Op::Delete, row(1)), (1, Op::Delete, row(2))], Format::Parquet);
        let err = fails(&mut landing.source(), reached()).await;
        assert_eq!(err.kind(), ErrorKind::ContinuityLost);
        assert!(err.message().contains("delete 1 rows"), "{err}");
    });
}

#[test]
fn a_dropped_stream_stops_reading() {
    run(async {
        let landing = Landing::new(true);
        let rows: Vec<Row> = (0..20_000).map(row).collect();
        landing.snapshot(0, &rows, Format::Ndjson);
        let mut source = landing.source();
        let (_, mut snapshot) = source.snapshot(newest()).await.unwrap();
        assert!(snapshot.rows.next().await.unwrap().is_ok());
        drop(snapshot);
        check_snapshot(&mut source, newest(), 0, &expected(&BTreeMap::from([(0, rows)]), true, 0, 0)).await;
    });
}
