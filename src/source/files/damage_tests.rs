//! Files that are cut, flipped or made of random bytes: an error that names them, and never a panic.

use arrow::array::RecordBatch;
use futures::TryStreamExt;

use super::landing_tests::{Change, Format, Landing, Row, row, step};
use super::*;
use crate::change::Op;
use crate::error::ErrorKind;

/// What reading everything in the folder comes to: rows, or an error.
async fn read(landing: &Landing) -> Result<usize> {
    let mut source = landing.source();
    let (view, snapshot) = source.snapshot(Pick::Newest { until: None }).await?;
    let rows: Vec<RecordBatch> = snapshot.rows.try_collect().await?;
    let mut count = rows.iter().map(RecordBatch::num_rows).sum();
    if let Next::Changes(changes) = source.changes(step(1), &view).await? {
        count += changes.rows() as usize;
    }
    Ok(count)
}

/// A whole snapshot and change file, and the bytes of the one to be damaged.
fn landed(format: Format, name: &str) -> (Landing, Vec<u8>) {
    let landing = Landing::new(true);
    let rows: Vec<Row> = (0..20).map(row).collect();
    let changes: Vec<Change> = (0..20).map(|id| (2, Op::Insert, row(id))).collect();
    landing.snapshot(1, &rows, format);
    landing.changes(1, 2, &changes, format);
    let bytes = std::fs::read(landing.folder().join(name)).unwrap();
    (landing, bytes)
}

fn names(format: Format) -> [String; 2] {
    ["snapshot-1", "changes-1-2"].map(|stem| format!("{stem}.{}", format.extension()))
}

fn run<T>(work: impl std::future::Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(work)
}

#[test]
fn a_file_that_is_cut_is_damaged() {
    for format in Format::ALL {
        for name in names(format) {
            let (landing, bytes) = landed(format, &name);
            assert_eq!(run(read(&landing)).unwrap(), 40);
            for length in (0..bytes.len()).step_by(1 + bytes.len() / 200) {
                landing.put(&name, &bytes[..length]);
                let whole_lines = length == 0 || bytes[..length].trim_ascii_end().ends_with(b"}");
                match run(read(&landing)) {
                    Ok(rows) => {
                        assert!(format == Format::Ndjson && whole_lines && rows <= 40, "{name} cut at {length}")
                    }
                    Err(e) => {
                        assert_eq!(e.kind(), ErrorKind::Corrupt, "{name} cut at {length}: {e}");
                        assert!(e.message().contains(&name), "{e}");
                    }
                }
            }
        }
    }
}

#[test]
fn random_bytes_are_an_error_and_no_panic() {
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for format in Format::ALL {
        for name in names(format) {
            let (landing, bytes) = landed(format, &name);
            for round in 0..200 {
                let mut damaged = bytes.clone();
                for _ in 0..1 + round % 4 {
                    let at = random() as usize % damaged.len();
                    damaged[at] = random() as u8;
                }
                landing.put(&name, &damaged);
                if let Err(e) = run(read(&landing)) {
                    assert_ne!(e.kind(), ErrorKind::Internal, "{name}, round {round}: {e}");
                }
            }
            let magics: [&[u8]; 4] = [b"", b"PAR1", b"ARROW1\0\0", b"\xFF\xFF\xFF\xFF"];
            for magic in magics {
                let noise: Vec<u8> = (0..300).map(|_| random() as u8).collect();
                landing.put(&name, [magic, &noise, magic].concat());
                let e = run(read(&landing)).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::Corrupt, "{name}: {e}");
                assert!(e.message().contains(&name), "{e}");
            }
        }
    }
}
