//! Bytes that nobody meant: none of them may end the process, or fill its memory.

use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, DictionaryArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{Field, Int8Type, Int32Type, Schema};
use arrow::ipc::CompressionType;

use super::arrow_tests::stream_of;
use super::text_tests::{read_within, view_of};
use super::*;

/// Set for a process that does nothing but read requests, which holds it to [`MAX_MEMORY`].
const ALONE: &str = "CUTOVER_INGEST_ALONE";
/// The most memory that such a process may ever have had, in KiB. Of this, the program itself takes some 40 MiB.
const MAX_MEMORY: u64 = 128 << 10;
const LIMITS: Limits = Limits { request: 1 << 16, line: 1 << 14, unfolded: 1 << 20 };

/// Numbers that repeat with the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

fn view() -> View {
    view_of(
        &[("id", "bigint"), ("s", "string"), ("l", "array<int>"), ("d", "decimal(9,2)"), ("t", "timestamp")],
        &["id"],
    )
}

/// Reads a request that may be anything; what it gives must make sense.
fn read_any(format: Format, body: &[u8], seed: u64) -> bool {
    match read_within(&view(), format, LIMITS, body) {
        Ok(operations) => {
            let rows: usize = operations.batches().iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows as u64, operations.rows(), "seed {seed}");
            let none = |_: &RecordBatch| Ok(RecordBatch::new_empty(Arc::clone(view().schema())));
            let _refused_or_whole = operations.resolve(none);
            true
        }
        Err(e) => {
            let kinds = [crate::ErrorKind::Refused, crate::ErrorKind::Corrupt];
            assert!(kinds.contains(&e.kind()), "seed {seed}: {:?} {e}", e.kind());
            false
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let length = random.below(200);
        let body: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        for format in [Format::InsertDelete, Format::Raw, Format::Debezium, Format::Arrow] {
            read_any(format, &body, seed);
        }
    }
}

#[test]
fn random_json_never_panics() {
    const WORDS: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\n",
        " ",
        "null",
        "true",
        "0",
        "-1",
        "1.5",
        "1e400",
        "9223372036854775808",
        "\"\"",
        "\"id\"",
        "\"s\"",
        "\"l\"",
        "\"d\"",
        "\"t\"",
        "\"insert\"",
        "\"delete\"",
        "\"update\"",
        "\"payload\"",
        "\"op\"",
        "\"u\"",
        "\"before\"",
        "\"after\"",
        "\"\\ud800\"",
        "\"2026-01-01T00:00:00Z\"",
        "{\"id\":1}",
        "{\"id\":1,\"l\":[1]}",
        "{\"insert\":{\"id\":1}}\n",
        "\"__debezium_unavailable_value\"",
        "\"\\\"id\\\"\"",
        "\u{feff}",
    ];
    const KEYS: &[&str] = &["\"s\"", "\"L\"", "\"d\"", "\"t\"", "\"\\\"d\\\"\"", "\"x\"", "\"op\"", "\"after\""];
    const VALUES: &[&str] =
        &["null", "1", "[1,null]", "[]", "\"1.25\"", "1e400", "\"2026-01-01T00:00:00Z\"", "\"c\"", "{\"id\":1}"];
    let mut good = 0;
    for seed in 0..4000 {
        let mut random = Random(seed);
        let words = random.below(12);
        let mut body: String = (0..words).map(|_| random.pick(WORDS)).collect();
        if seed % 2 == 0 {
            let members: String =
                (0..random.below(3)).map(|_| format!(",{}:{}", random.pick(KEYS), random.pick(VALUES))).collect();
            body = format!("{{\"{}\":{{\"id\":1{members}}}}}", random.pick(&["insert", "update", "delete", "payload"]));
        }
        for format in [Format::InsertDelete, Format::Raw, Format::Debezium] {
            good += u32::from(read_any(format, body.as_bytes(), seed));
        }
    }
    assert!(good > 20, "only {good} requests were good, so little was tried");
}

#[test]
fn mutated_arrow_never_panics() {
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None, Some(vec![])]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("s", Arc::new(DictionaryArray::<Int8Type>::from_iter([Some("a"), None, Some("bc")]))),
        ("l", Arc::new(lists)),
        ("__op", Arc::new(StringArray::from(vec!["i", "u", "d"]))),
    ];
    let fields: Vec<Field> = columns.iter().map(|(n, c)| Field::new(*n, c.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let seeds = if is_alone() { 3000 } else { 700 };
    let mut good = 0;
    for compression in [None, Some(CompressionType::ZSTD), Some(CompressionType::LZ4_FRAME)] {
        let whole = stream_of(&[batch.clone(), batch.slice(1, 2)], compression);
        assert!(read_any(Format::Arrow, &whole, 0));
        for seed in 0..seeds {
            let mut random = Random(seed);
            let mut body = whole.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(body.len());
                match random.below(4) {
                    0 => body[at] = random.below(256) as u8,
                    1 => body[at] ^= 1 << random.below(8),
                    2 => {
                        let end = (at + 8).min(body.len());
                        body[at..end].fill([0, 0xFF, 0x7F][random.below(3)]);
                    }
                    _ => body[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5)],
                }
            }
            good += u32::from(read_any(Format::Arrow, &body, seed));
        }
    }
    assert!(good > 20, "only {good} requests were good, so little was tried");
    check_memory();
}

/// Other tests of this process would be counted too, so the requests are read by another one.
#[cfg(target_os = "linux")]
#[test]
fn no_request_takes_more_memory_than_it_may() {
    let filters = ["ingest::fuzz_tests::mutated_arrow_never_panics", "ingest::arrow_tests::bombs_are_refused"];
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--test-threads=1"])
        .args(filters)
        .env(ALONE, "1")
        // The traces of caught panics would load all symbols of this program.
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("2 passed"), "{said}{}", String::from_utf8_lossy(&run.stderr));
}

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Holds a process that does nothing else to its bound.
pub(super) fn check_memory() {
    if is_alone() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches("kB").trim().parse().unwrap();
        assert!(peak < MAX_MEMORY, "{peak} KiB were taken");
    }
}
