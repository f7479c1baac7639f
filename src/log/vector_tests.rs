use std::sync::Arc;

use object_store::memory::InMemory;

use super::*;
use crate::clock::World;
use crate::error::ErrorKind;
use crate::log::Location;

fn file(path: &str, rows: u64, vector: Value) -> LiveFile {
    LiveFile {
        path: path.into(),
        vector: Some(vector),
        partition_values: BTreeMap::new(),
        size: 1,
        modified_millis: 0,
        rows: Some(rows),
        steps: None,
        base_row_id: None,
        default_row_commit_version: None,
        digest: None,
    }
}

async fn written(sets: &[RowSet]) -> (Log, Vec<LiveFile>) {
    let world = World::system();
    let log = Log::new(Location::on(Arc::new(InMemory::new())), world.clone());
    let mut vectors = Vectors::new(&world.ids.draw()).unwrap();
    let files = sets.iter().map(|rows| file("f", 1 << 40, vectors.add(rows).unwrap())).collect();
    vectors.put(&log).await.unwrap();
    (log, files)
}

#[tokio::test]
async fn vectors_read_back_wherever_they_stand() {
    let sets = [
        RowSet::from_iter([0]),
        RowSet::from_iter((0..100_000).step_by(3)),
        RowSet::from_iter([1, 1 << 33]),
        RowSet::from_iter((0..200_000).filter(|n| n % 7 == 1)),
    ];
    let (log, files) = written(&sets).await;
    let kinds: Vec<_> = files.iter().map(|f| f.vector.as_ref().unwrap()["storageType"].clone()).collect();
    assert_eq!(kinds, ["i", "u", "i", "u"]);
    assert_eq!(log.deleted_rows(&files).await.unwrap(), sets);
}

#[tokio::test]
async fn a_file_of_vectors_is_as_the_kernel_writes_it() {
    use delta_kernel::actions::deletion_vector_writer::{KernelDeletionVector, StreamingDeletionVectorWriter};
    let (mut ours, mut theirs) = (Vectors::new(&World::system().ids.draw()).unwrap(), Vec::new());
    let mut writer = StreamingDeletionVectorWriter::new(&mut theirs);
    for step in [3usize, 5] {
        let rows = RowSet::from_iter((0..100_000u64).step_by(step));
        let told = ours.add(&rows).unwrap();
        let mut vector = KernelDeletionVector::new();
        vector.add_deleted_row_indexes(rows.iter().collect::<Vec<_>>());
        let wrote = writer.write_deletion_vector(vector).unwrap();
        assert_eq!(told["offset"], wrote.offset);
        assert_eq!(told["sizeInBytes"], wrote.size_in_bytes);
        assert_eq!(told["cardinality"], wrote.cardinality);
    }
    writer.finalize().unwrap();
    assert_eq!(ours.file, theirs);
}

#[tokio::test]
async fn whatever_byte_of_a_vector_changes_it_is_damaged() {
    let rows = RowSet::from_iter((0..5_000).step_by(3));
    let (log, files) = written(std::slice::from_ref(&rows)).await;
    let path = object(files[0].vector.as_ref().unwrap()["pathOrInlineDv"].as_str().unwrap()).unwrap();
    let whole = log.bytes_of(&path).await.unwrap().to_vec();
    for at in (0..whole.len()).step_by(17) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        log.store().put(&path, bytes.into()).await.unwrap();
        assert_eq!(log.deleted_rows(&files).await.unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
    for length in [0, 1, 8, whole.len() - 1] {
        log.store().put(&path, whole[..length].to_vec().into()).await.unwrap();
        assert_eq!(log.deleted_rows(&files).await.unwrap_err().kind(), ErrorKind::Corrupt, "{length} bytes");
    }
}

#[tokio::test]
async fn what_a_descriptor_says_is_held_against_the_vector() {
    let (log, files) = written(&[RowSet::from_iter([4, 9])]).await;
    for (member, value, kind) in [
        ("cardinality", Value::from(3), ErrorKind::Corrupt),
        ("sizeInBytes", Value::from(4_000), ErrorKind::Corrupt),
        ("sizeInBytes", Value::from(2), ErrorKind::Corrupt),
        ("pathOrInlineDv", Value::from("\u{e9}\u{e9}"), ErrorKind::Corrupt),
        ("storageType", Value::from("p"), ErrorKind::Incompatible),
    ] {
        let mut file = files[0].clone();
        file.vector.as_mut().unwrap()[member] = value;
        let error = log.deleted_rows(&[file]).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{member}: {error}");
        assert!(error.message().contains("data file f"), "{error}");
    }
    let beyond = LiveFile { rows: Some(7), ..files[0].clone() };
    assert!(log.deleted_rows(&[beyond]).await.unwrap_err().message().contains("deletes row 9 of 9"));
}

#[test]
fn a_place_names_a_file_below_the_folder_or_none() {
    for (place, expected) in [
        ("ab^-aqEH.-t@S}K{vb[*k^", Some("ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin")),
        ("vBn[lx{q8@P<9BNH/isA", Some("deletion_vector_61d16c75-6994-46b7-a15b-8b538852e50e.bin")),
        ("vBn[lx{q8@P<9BNH/is", None),
        ("..vBn[lx{q8@P<9BNH/isA", None),
        ("\u{e9}vBn[lx{q8@P<9BNH/is", None),
    ] {
        assert_eq!(object(place).map(|path| path.to_string()).as_deref(), expected, "{place}");
    }
}
