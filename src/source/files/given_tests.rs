use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::ipc::writer::StreamWriter;

use super::*;
use crate::error::ErrorKind;

fn stream(batches: usize) -> Vec<u8> {
    // The last bytes of each body look like the mark that ends a stream.
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7; 7].into_iter().chain([0xFFFF_FFFF]).collect::<Vec<i64>>()));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    (0..batches).for_each(|_| writer.write(&batch).unwrap());
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn rows(bytes: Vec<u8>) -> Result<usize> {
    let stream = Arrow::open(Box::new(Cursor::new(bytes)), "stdin".into())?;
    stream.map(|batch| batch.map(|batch| batch.num_rows())).sum()
}

#[test]
fn a_stream_is_read_whole_or_refused_wherever_it_is_cut() {
    let whole = stream(3);
    assert_eq!(rows(whole.clone()).unwrap(), 24);
    assert_eq!(rows(stream(0)).unwrap(), 0);
    for length in 0..whole.len() {
        let cut = rows(whole[..length].to_vec()).unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::Corrupt, "{length} of {}: {cut}", whole.len());
    }
    let behind = rows([whole, stream(1)].concat()).unwrap_err();
    assert_eq!(behind.kind(), ErrorKind::Corrupt, "{behind}");
}

#[test]
fn several_files_follow_each_other_and_each_is_named_where_it_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, bytes: Vec<u8>| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let (a, b) = (path("a", stream(1)), path("b", stream(2)));
    let open = |paths: Vec<PathBuf>| Given::open(paths, Format::Arrow, None);
    let read = |paths| open(paths).unwrap().rows.map(|batch| batch.unwrap().num_rows()).sum::<usize>();
    assert_eq!(read(vec![a.clone(), b]), 24);
    let torn = path("torn", stream(1)[..20].to_vec());
    let error = open(vec![a, torn]).unwrap().rows.find_map(Result::err).unwrap();
    assert!(error.message().contains("torn"), "{error}");
    let lines = Given::open(vec![path("lines", b"{}".to_vec())], Format::Ndjson, None).map(|_| ()).unwrap_err();
    assert!(lines.message().contains("add `columns`"), "{lines}");
    let parquet = Given::open(vec!["-".into()], Format::Parquet, None).map(|_| ()).unwrap_err();
    assert_eq!(parquet.kind(), ErrorKind::Refused);
}
