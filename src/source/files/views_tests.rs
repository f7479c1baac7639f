use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt;

use super::*;
use crate::continuity::columns::Difference;
use crate::error::ErrorKind;
use crate::source::files::landing_tests::{Format as Written, Landing, step, write_batch};
use crate::source::files::{FilesSettings, FilesSource};
use crate::source::{Next, Pick, Source};

/// A file with the key, one row of each id, and the columns `more`, a text in each.
fn land(landing: &Landing, name: &str, at: Option<i64>, ids: &[i64], more: &[&str], format: Written) {
    let texts = |column: &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(ids.iter().map(|id| format!("{column}{id}"))))
    };
    let mut columns: Vec<(&str, ArrayRef, bool)> = Vec::new();
    if let Some(at) = at {
        columns.push(("__step", Arc::new(Int64Array::from(vec![at; ids.len()])), true));
        columns.push(("__op", Arc::new(StringArray::from(vec!["i"; ids.len()])), true));
    }
    columns.extend(more.iter().map(|column| (*column, texts(column), true)));
    columns.push(("id", Arc::new(Int64Array::from(ids.to_vec())), true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    write_batch(&landing.folder().join(format!("{name}.{}", format.extension())), &batch, format);
}

fn inferred(landing: &Landing) -> FilesSource {
    FilesSource::new(FilesSettings { columns: vec![], ..landing.settings() }).unwrap()
}

/// The cells of each row that are not null, by their columns' names.
fn cells(batch: &RecordBatch) -> impl Iterator<Item = String> {
    (0..batch.num_rows()).map(|row| {
        let fields = batch.schema_ref().fields().iter().zip(batch.columns());
        let known = fields.filter(|(f, c)| c.is_valid(row) && !f.name().starts_with("__"));
        let cells = known.map(|(f, c)| format!("{}={}", f.name(), array_value_to_string(c, row).unwrap()));
        cells.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
    })
}

fn names(view: &View) -> Vec<&str> {
    view.schema().fields().iter().map(|f| f.name().as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_across_added_columns_lead_to_the_snapshots_and_a_restart_gets_the_same_answers() {
    for (keyed, format) in [(true, Written::Parquet), (false, Written::ArrowFile)] {
        let landing = Landing::new(keyed);
        land(&landing, "snapshot-0", None, &[1], &["a"], format);
        land(&landing, "changes-0-2", Some(2), &[2], &["a"], format);
        land(&landing, "snapshot-2", None, &[1, 2], &["a"], format);
        land(&landing, "changes-2-3", Some(3), &[3], &["b", "a"], format);
        landing.put("changes-3-4.ndjson", "{\"step\":4,\"insert\":{\"id\":4,\"b\":\"b4\"}}\n");
        land(&landing, "changes-4-5", Some(5), &[5], &["c", "a", "b"], format);
        let mut source = inferred(&landing);
        let (mut view, first) = source.snapshot(Pick::Newest { until: Some(step(0)) }).await.unwrap();
        let mut rows: BTreeSet<String> = BTreeSet::new();
        first.rows.try_collect::<Vec<_>>().await.unwrap().iter().for_each(|batch| rows.extend(cells(batch)));
        let (mut reached, mut told) = (step(0), Vec::new());
        loop {
            // A source that was never asked before answers the same.
            let restarted = inferred(&landing).changes(reached, &view).await.unwrap();
            match source.changes(reached, &view).await.unwrap() {
                Next::Changes(changes) => {
                    let Next::Changes(again) = restarted else { panic!("{restarted:?} at {reached}") };
                    assert_eq!((again.range(), again.batches()), (changes.range(), changes.batches()));
                    assert!(changes.batches().iter().all(|b| *b.schema_ref() == view.change_schema()));
                    changes.batches().iter().for_each(|batch| rows.extend(cells(batch)));
                    reached = changes.range().to();
                    let (at, snapshot) = source.snapshot(Pick::Reached { until: Some(reached) }).await.unwrap();
                    let state: Vec<RecordBatch> = snapshot.rows.try_collect().await.unwrap();
                    assert_eq!(state.iter().flat_map(cells).collect::<BTreeSet<_>>(), rows, "at {reached}");
                    assert!(Difference::between(view.schema(), at.schema()).is_empty(), "at {reached}");
                }
                Next::View(next) => {
                    let Next::View(again) = restarted else { panic!("{restarted:?} at {reached}") };
                    assert_eq!((&again.view, &again.position), (&next.view, &next.position));
                    assert!(Difference::between(view.schema(), next.view.schema()).added().is_some());
                    told.push((next.position, names(&next.view).join(" ")));
                    view = next.view;
                }
                Next::Emptied(..) | Next::Pending => panic!("nothing is emptied or on its way, at {reached}"),
                Next::Idle { .. } => break,
            }
        }
        let name = |stem: &str| format!("{stem}.{}", format.extension());
        let expected = [(name("changes-2-3"), "a id b".into()), (name("changes-4-5"), "a id b c".into())];
        assert_eq!((reached, told), (step(5), expected.to_vec()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_a_snapshot_lacks_is_removed_unless_it_begins_behind_it() {
    for (before, behind, removed) in [
        (&["a"][..], Some(&["a", "b"][..]), false),
        (&["a", "b"], Some(&["a", "b"]), true),
        (&["a"], Some(&["a"]), true),
        (&["a"], None, true),
    ] {
        let landing = Landing::new(true);
        land(&landing, "changes-0-1", Some(1), &[2], before, Written::Parquet);
        land(&landing, "snapshot-1", None, &[1, 2], &["a"], Written::Parquet);
        let wide = Landing::new(true);
        land(&wide, "snapshot-1", None, &[1, 2], &["a", "b"], Written::Parquet);
        let (view, _) = inferred(&wide).snapshot(Pick::Newest { until: None }).await.unwrap();
        if let Some(behind) = behind {
            land(&landing, "changes-1-2", Some(2), &[3], behind, Written::Parquet);
        }
        match inferred(&landing).changes(step(1), &view).await.unwrap() {
            Next::Changes(changes) => assert!(!removed && changes.range().to() == step(2), "{before:?} {behind:?}"),
            Next::View(next) => {
                assert!(removed && next.view.schema().fields().find("b").is_none(), "{before:?} {behind:?}");
                assert_eq!(next.position, "snapshot-1.parquet");
            }
            Next::Emptied(..) | Next::Pending | Next::Idle { .. } => panic!("{before:?} {behind:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_share_steps_may_differ_in_columns_and_not_in_values() {
    for (shared, agrees) in [(&["a"][..], true), (&["a", "b"][..], false)] {
        let landing = Landing::new(true);
        land(&landing, "snapshot-0", None, &[1], &["a"], Written::Parquet);
        land(&landing, "changes-0-2", Some(2), &[2], shared, Written::Parquet);
        // The longer file holds step 2 without `b`.
        std::fs::create_dir(landing.folder().join("changes-0-3")).unwrap();
        land(&landing, "changes-0-3/part-0", Some(2), &[2], &["a"], Written::Parquet);
        let mut source = inferred(&landing);
        let (view, _) = source.snapshot(Pick::Newest { until: None }).await.unwrap();
        match source.changes(step(0), &view).await {
            Ok(Next::Changes(changes)) => assert!(agrees && changes.range().to() == step(3)),
            Ok(other) => panic!("{other:?}"),
            Err(e) => assert!(!agrees && e.kind() == ErrorKind::Corrupt, "{e}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_file_have_the_same_columns_and_a_key_stays() {
    let landing = Landing::new(true);
    land(&landing, "snapshot-0", None, &[1], &["a"], Written::Parquet);
    std::fs::create_dir(landing.folder().join("changes-0-1")).unwrap();
    land(&landing, "changes-0-1/x", Some(1), &[2], &["a", "b"], Written::Parquet);
    land(&landing, "changes-0-1/y", Some(1), &[3], &["a"], Written::ArrowFile);
    let mut source = inferred(&landing);
    let (view, _) = source.snapshot(Pick::Newest { until: None }).await.unwrap();
    let error = source.changes(step(0), &view).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.message().contains("changes-0-1/y.arrow: the column \"b\" is missing"), "{error}");
    std::fs::remove_dir_all(landing.folder().join("changes-0-1")).unwrap();
    let keyless = RecordBatch::try_from_iter([
        ("__step", Arc::new(Int64Array::from(vec![1])) as ArrayRef),
        ("__op", Arc::new(StringArray::from(vec!["i"]))),
        ("a", Arc::new(StringArray::from(vec!["a"]))),
    ]);
    write_batch(&landing.folder().join("changes-0-1.parquet"), &keyless.unwrap(), Written::Parquet);
    let error = source.changes(step(0), &view).await.unwrap_err();
    assert!(error.message().contains("the key column \"id\" is missing"), "{error}");
}
