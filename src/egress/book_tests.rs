use std::path::Path;

use arrow::datatypes::{DataType, Field, Schema};

use super::*;
use crate::disk::FileSystem;
use crate::error::ErrorKind;

fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

fn generation(n: u64) -> Generation {
    Generation::new(n).unwrap()
}

fn view(column: &str) -> View {
    View::new("v", &Schema::new(vec![Field::new(column, DataType::Int64, true)]), vec![column.into()]).unwrap()
}

fn open(path: &Path) -> Arc<Book> {
    Arc::new(Book::open(path.to_path_buf(), Arc::new(FileSystem)).unwrap())
}

/// The n-th generation of a book whose first source is `push:a`.
fn nth(n: u64) -> Generation {
    generation(first("push:a").unwrap().get() + n - 1)
}

fn place(n: u64) -> Place {
    Place { step: step(n), sequence_number: n * 10, strand: (n > 2).then(|| Strand::new(n)) }
}

#[tokio::test]
async fn a_generation_is_that_of_its_source_until_another_or_a_reset_over_restarts_too() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("egress.json");
    let book = open(&path);
    assert_eq!(book.current(), None);
    let begun = book.settle("push:a", &view("id"), step(3)).await.unwrap();
    assert_eq!((begun.generation, begun.needless()), (nth(1), step(3)));
    assert_eq!(book.settle("push:a", &view("id"), step(9)).await.unwrap(), begun, "the same source");
    let book = open(&path);
    assert_eq!(book.settle("push:a", &view("id"), step(9)).await.unwrap(), begun, "after a restart");
    let copy = home.path().join("copy.json");
    std::fs::copy(&path, &copy).unwrap();
    let other = book.settle("push:b", &view("id"), step(0)).await.unwrap().generation;
    let beside = open(&copy).settle("push:c", &view("id"), step(0)).await.unwrap().generation;
    assert!(other > nth(1) && beside > nth(1) && other != beside, "{other} and {beside} follow copies of one book");
    let then = |n: u64| generation(other.get() + n);
    let reset = book.reset("push:b", &view("id"), step(5), "why").await.unwrap();
    assert_eq!((reset.generation, reset.reset.as_deref(), reset.needless()), (then(1), Some("why"), step(5)));
    assert_eq!(open(&path).current(), Some(reset.clone()));
    assert!(reset.is_of("push:b", &view("id")) && !reset.is_of("push:b", &view("no")));
    book.outdate(other, &view("no"), step(9)).await.unwrap();
    book.outdate(then(1), &view("no"), step(5)).await.unwrap();
    assert_eq!(book.current(), Some(reset), "an older one, and a change that was there when it began");
    book.outdate(then(1), &view("no"), step(9)).await.unwrap();
    assert_eq!(book.current().unwrap().generation, then(2));
    let other = open(&home.path().join("other.json"));
    let other = other.settle("push:b", &view("id"), step(0)).await.unwrap().generation;
    assert_ne!(other, nth(1), "another life of the view is told apart without a book");
}

#[tokio::test]
async fn a_place_goes_forward_only_and_within_its_generation() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("egress.json");
    let book = open(&path);
    let unknown = book.acknowledge(nth(1), place(1)).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unavailable);
    book.settle("push:a", &view("id"), step(3)).await.unwrap();
    for (acknowledged, expected) in [(2, None), (3, Some(3)), (7, Some(7)), (5, Some(7))] {
        let page = book.acknowledge(nth(1), place(acknowledged)).await.unwrap().unwrap();
        assert_eq!(page.place, expected.map(place), "{acknowledged}");
        assert_eq!(open(&path).current(), Some(page), "{acknowledged}");
    }
    let fault = book.acknowledge(nth(2), place(9)).await.unwrap().unwrap_err();
    assert_eq!((fault.error_code, &fault.details["generation"]), ("generation_gone", &nth(1).get().into()));
    assert_eq!(book.current().unwrap().needless(), step(7));
}

#[tokio::test]
async fn the_last_stream_that_takes_over_is_the_one() {
    let home = tempfile::tempdir().unwrap();
    let book = open(&home.path().join("egress.json"));
    let beside = book.join();
    let (mut first, mut second) = (book.take_over(), book.take_over());
    first.is_replaced().await;
    assert!(futures::FutureExt::now_or_never(second.is_replaced()).is_none());
    assert_eq!(book.streams(), 3);
    drop((beside, first, second));
    assert_eq!(book.streams(), 0);
}

#[test]
fn what_is_no_book_is_damage() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("egress.json");
    for text in ["", "{", "{\"v\":1}", "{\"v\":1,\"generation\":0,\"source\":\"a\",\"columns\":\"\",\"begun\":1}"] {
        std::fs::write(&path, text).unwrap();
        let error = Book::open(path.clone(), Arc::new(FileSystem)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
    }
    std::fs::write(&path, "{\"v\":2,\"pages\":[]}").unwrap();
    let later = Book::open(path, Arc::new(FileSystem)).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::Incompatible);
    assert!(later.message().contains("has the version 2, known is 1"), "{later}");
}

#[tokio::test]
async fn a_generation_that_cannot_be_written_is_told_to_who_keeps_nothing_and_to_nobody_else() {
    let home = tempfile::tempdir().unwrap();
    let book = open(&home.path().join("nowhere/egress.json"));
    let unwritten = book.settle("push:a", &view("id"), step(0)).await.unwrap_err();
    assert_eq!(unwritten.kind(), ErrorKind::Unavailable);
    for _ in 0..2 {
        let told = book.settle_or_tell("push:a", &view("id"), step(0)).await.unwrap();
        assert_eq!((told.generation, book.current()), (nth(1), None));
    }
    std::fs::create_dir(home.path().join("nowhere")).unwrap();
    assert_eq!(book.settle_or_tell("push:a", &view("id"), step(0)).await.unwrap().generation, nth(1));
    assert_eq!(book.current().unwrap().generation, nth(1));
}
