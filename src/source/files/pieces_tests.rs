use arrow::array::Array;

use super::*;
use crate::change::Op;
use crate::error::ErrorKind;
use crate::source::files::directory::{Folder, parse_name};
use crate::source::files::landing_tests::{Change, Format, Landing, Row, change_batch, row, step, view, write_batch};

fn file_of(landing: &Landing) -> ChangeFile {
    Folder::scan(&landing.folder()).unwrap().changes.remove(0)
}

/// The ranges and row counts of all answers behind `after`, each at least `bytes` long where steps allow it.
fn answers(file: &ChangeFile, after: u64, bytes: usize) -> Vec<(u64, u64, u64)> {
    let mut pieces = Pieces::open(file, &view(true), step(after)).unwrap();
    pieces.piece_bytes = bytes;
    let mut answers = Vec::new();
    while let Some(changes) = pieces.next().unwrap() {
        answers.push((changes.range().from().get(), changes.range().to().get(), changes.rows()));
    }
    answers
}

#[test]
fn answers_are_whole_steps_and_continue_exactly() {
    let landing = Landing::new(true);
    let changes: Vec<Change> = [1, 1, 1, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 6]
        .iter()
        .zip(0..)
        .map(|(s, id)| (*s, Op::Insert, row(id)))
        .collect();
    for format in Format::ALL {
        landing.changes(0, 8, &changes, format);
        let file = file_of(&landing);
        assert_eq!(answers(&file, 0, usize::MAX), [(0, 8, 16)], "{format:?}");
        // A batch is taken whole: what follows the cut waits for the next one.
        let small = answers(&file, 0, 1);
        assert_eq!(small.iter().map(|a| a.2).sum::<u64>(), 16, "{format:?}");
        assert!(small.windows(2).all(|w| w[0].1 == w[1].0), "{format:?}: {small:?}");
        assert_eq!(small.last().unwrap().1, 8, "{format:?}");
        assert!(small.len() > 1, "{format:?}: {small:?}");
        assert_eq!(answers(&file, 4, usize::MAX), [(4, 8, 1)], "{format:?}");
        assert_eq!(answers(&file, 7, 1), [(7, 8, 0)], "{format:?}");
        std::fs::remove_file(&file.landed.parts[0].path).unwrap();
    }
}

#[test]
fn a_sorted_file_is_known_as_such_without_reading_it_all() {
    for format in Format::ALL {
        for (steps, sorted) in [([1, 2, 2], true), ([2, 1, 2], false)] {
            let landing = Landing::new(true);
            let changes = steps.map(|at| (at, Op::Insert, row(1)));
            landing.changes(0, 2, &changes, format);
            let file = file_of(&landing);
            assert_eq!(is_sorted(&file, &view(true)).unwrap(), sorted, "{format:?} {steps:?}");
            let batches = Batches::new(&file.landed, Shape::Changes(view(true), file.range)).map(Result::unwrap);
            let steps: Vec<i64> = in_step_order(batches.collect())
                .unwrap()
                .flat_map(|b| steps_of(&b.unwrap()).unwrap().values().to_vec())
                .collect();
            assert!(steps.is_sorted() && steps.len() == 3, "{format:?} {steps:?}");
        }
    }
}

#[test]
fn large_files_are_read_piece_by_piece() {
    let landing = Landing::new(true);
    let long = |id| Row { name: Some("x".repeat(4000)), ..row(id) };
    let changes: Vec<Change> = (0..20_000).map(|i| (i as u64 / 10 + 1, Op::Insert, long(i))).collect();
    landing.changes(0, 2_000, &changes, Format::ArrowStream);
    let file = file_of(&landing);
    assert!(bytes_of(&file.landed).unwrap() >= WHOLE_BYTES);
    let answers = answers(&file, 0, PIECE_BYTES);
    assert!(answers.len() > 1, "{answers:?}");
    assert_eq!(answers.iter().map(|a| a.2).sum::<u64>(), 20_000);
    assert!(answers.windows(2).all(|w| w[0].1 == w[1].0));
}

#[test]
fn rows_that_may_not_stand_in_a_file_are_refused_by_number() {
    let good = (3, Op::Insert, row(1));
    let batch = change_batch(&[good.clone(), good.clone(), good], true);
    let with = |name: &str, column: arrow::array::ArrayRef| {
        let mut columns = batch.columns().to_vec();
        let mut fields = batch.schema().fields().to_vec();
        let index = batch.schema().index_of(name).unwrap();
        fields[index] = std::sync::Arc::new(arrow::datatypes::Field::new(name, column.data_type().clone(), true));
        columns[index] = column;
        RecordBatch::try_new(std::sync::Arc::new(arrow::datatypes::Schema::new(fields)), columns).unwrap()
    };
    use arrow::array::{DictionaryArray, Int64Array, LargeStringArray, StringArray, UInt8Array, UInt64Array};
    use std::sync::Arc;
    let name = "changes-2-5.parquet";
    assert!(parse_name(name).is_ok());
    let check = |batch: RecordBatch, keyed: bool, expected: Result<(), &str>| {
        for format in [Format::Parquet, Format::ArrowFile] {
            let landing = Landing::new(keyed);
            write_batch(&landing.folder().join(format!("changes-2-5.{}", format.extension())), &batch, format);
            let read = Pieces::open(&file_of(&landing), &view(keyed), step(2)).map(|_| ());
            match (&expected, read) {
                (Ok(()), read) => read.unwrap(),
                (Err(part), Ok(())) => panic!("{part} was accepted"),
                (Err(part), Err(e)) => {
                    assert!(e.message().contains(part) && e.message().contains("changes-2-5"), "{e}: no {part}");
                    assert!([ErrorKind::Refused, ErrorKind::Incompatible].contains(&e.kind()), "{e}");
                }
            }
        }
    };
    let steps = |steps: [Option<i64>; 3]| with("__step", Arc::new(Int64Array::from(steps.to_vec())));
    check(batch.clone(), true, Ok(()));
    check(with("__step", Arc::new(UInt8Array::from(vec![3, 4, 5]))), true, Ok(()));
    check(with("__step", Arc::new(UInt64Array::from(vec![3, 4, u64::MAX]))), true, Err("__step"));
    check(with("__step", Arc::new(StringArray::from(vec!["3"; 3]))), true, Err("__step is a Utf8"));
    check(steps([Some(3), Some(6), Some(3)]), true, Err("row 2: step 6 is outside"));
    check(steps([Some(2), Some(3), Some(3)]), true, Err("row 1: step 2 is outside"));
    check(steps([Some(3), Some(3), Some(-1)]), true, Err("row 3: step -1 is outside"));
    check(steps([Some(3), None, Some(3)]), true, Err("row 2: __step is null"));
    check(with("__op", Arc::new(LargeStringArray::from(vec!["i", "u", "d"]))), true, Ok(()));
    let dictionary: DictionaryArray<arrow::datatypes::Int8Type> = vec!["i", "u", "d"].into_iter().collect();
    check(with("__op", Arc::new(dictionary)), true, Ok(()));
    check(with("__op", Arc::new(StringArray::from(vec!["i", "I", "d"]))), true, Err("row 2: __op is \"I\""));
    check(with("__op", Arc::new(StringArray::from(vec![Some("i"), None, None]))), true, Err("row 2: __op is null"));
    check(with("__op", Arc::new(StringArray::from(vec!["i", "i", "u"]))), false, Err("row 3: an update"));
    check(with("id", Arc::new(Int64Array::from(vec![Some(1), Some(2), None]))), true, Err("row 3: column \"id\""));
    check(with("name", Arc::new(Int64Array::from(vec![1, 2, 3]))), true, Err("\"name\" has the type Int64"));
    let without = |name: &str| {
        let keep: Vec<usize> = (0..batch.num_columns()).filter(|i| batch.schema().field(*i).name() != name).collect();
        batch.project(&keep).unwrap()
    };
    check(without("__step"), true, Err("__step"));
    check(without("id"), true, Err("\"id\" is missing"));
    check(without("tags"), true, Ok(()));
}
