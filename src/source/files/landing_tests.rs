//! Lands files for tests: rows and changes of one view, in every format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Decimal128Array, Int32Builder, Int64Array, ListBuilder, RecordBatch, StringArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use parquet::arrow::ArrowWriter;

use super::{FilesSettings, FilesSource, parse_column_type};
use crate::change::Op;
use crate::schema::View;
use crate::source::contract_tests::{Expected, State, add_rows};
use crate::step::Step;

/// How a test writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Parquet,
    ArrowFile,
    ArrowStream,
    Ndjson,
}

impl Format {
    pub(crate) const ALL: [Format; 4] = [Format::Parquet, Format::ArrowFile, Format::ArrowStream, Format::Ndjson];

    pub(crate) fn extension(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::ArrowFile | Format::ArrowStream => "arrow",
            Format::Ndjson => "ndjson",
        }
    }
}

/// A row of the tests' view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) id: i64,
    /// In hundredths.
    pub(crate) price: Option<i128>,
    pub(crate) name: Option<String>,
    pub(crate) tags: Option<Vec<i32>>,
}

/// A change of the tests' view.
pub(crate) type Change = (u64, Op, Row);

/// The columns of [`Row`].
pub(crate) const COLUMNS: [(&str, &str); 4] =
    [("id", "bigint"), ("price", "decimal(20,2)"), ("name", "string"), ("tags", "array<int>")];

pub(crate) fn step(n: u64) -> Step {
    Step::new(n).unwrap()
}

pub(crate) fn row(id: i64) -> Row {
    Row { id, price: Some(i128::from(id) * 100 + 5), name: Some(format!("n{id}")), tags: Some(vec![1, id as i32]) }
}

pub(crate) fn view(keyed: bool) -> View {
    let fields = COLUMNS.map(|(name, word)| Field::new(name, parse_column_type(word).unwrap(), true));
    View::new("v", &Schema::new(fields.to_vec()), key(keyed)).unwrap()
}

fn key(keyed: bool) -> Vec<String> {
    if keyed { vec!["id".to_owned()] } else { vec![] }
}

/// A directory with the folder of the view `v`.
pub(crate) struct Landing {
    pub(crate) keyed: bool,
    home: tempfile::TempDir,
}

impl Landing {
    pub(crate) fn new(keyed: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("v")).unwrap();
        Self { keyed, home }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.home.path().join("v")
    }

    pub(crate) fn settings(&self) -> FilesSettings {
        FilesSettings {
            path: self.home.path().to_owned(),
            id: Some("test".to_owned()),
            view: "v".to_owned(),
            key: key(self.keyed),
            columns: COLUMNS.map(|(name, word)| (name.to_owned(), parse_column_type(word).unwrap())).to_vec(),
            fold_memory: FilesSettings::FOLD_MEMORY,
        }
    }

    pub(crate) fn source(&self) -> FilesSource {
        FilesSource::new(self.settings()).unwrap()
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub(crate) fn snapshot(&self, at: u64, rows: &[Row], format: Format) {
        let path = self.folder().join(format!("snapshot-{at}.{}", format.extension()));
        write_rows(&path, rows, format, self.keyed);
    }

    pub(crate) fn changes(&self, from: u64, to: u64, changes: &[Change], format: Format) {
        let path = self.folder().join(format!("changes-{from}-{to}.{}", format.extension()));
        write_changes(&path, changes, format, self.keyed);
    }
}

/// The states that `changes`, in step order, lead through from nothing.
pub(crate) fn states(changes: &[Change], keyed: bool) -> BTreeMap<u64, Vec<Row>> {
    let (mut rows, mut states) = (Vec::<Row>::new(), BTreeMap::from([(0, Vec::new())]));
    for (at, op, row) in changes {
        match (op, keyed) {
            (Op::Delete, true) => rows.retain(|r| r.id != row.id),
            (_, true) => {
                rows.retain(|r| r.id != row.id);
                rows.push(row.clone());
            }
            (Op::Delete, false) => {
                let at = rows.iter().position(|r| r == row).unwrap();
                rows.remove(at);
            }
            (_, false) => rows.push(row.clone()),
        }
        states.insert(*at, rows.clone());
    }
    states
}

pub(crate) fn expected(states: &BTreeMap<u64, Vec<Row>>, keyed: bool, snapshot: u64, reached: u64) -> Expected {
    let view = view(keyed);
    let state_of = |rows: &[Row]| {
        let mut state = State::new();
        add_rows(&mut state, &batch_of(rows, keyed), &view);
        state
    };
    Expected { states: states.iter().map(|(at, rows)| (*at, state_of(rows))).collect(), snapshot, reached }
}

fn batch_of(rows: &[Row], keyed: bool) -> RecordBatch {
    let mut tags = ListBuilder::new(Int32Builder::new()).with_field(Arc::new(Field::new(
        "element",
        arrow::datatypes::DataType::Int32,
        true,
    )));
    for row in rows {
        tags.append_option(row.tags.clone().map(|tags| tags.into_iter().map(Some)));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.id))),
        Arc::new(Decimal128Array::from_iter(rows.iter().map(|r| r.price)).with_precision_and_scale(20, 2).unwrap()),
        Arc::new(StringArray::from_iter(rows.iter().map(|r| r.name.clone()))),
        Arc::new(tags.finish()),
    ];
    RecordBatch::try_new(view(keyed).schema().clone(), columns).unwrap()
}

pub(crate) fn change_batch(changes: &[Change], keyed: bool) -> RecordBatch {
    let mut rows: Vec<Row> = changes.iter().map(|c| c.2.clone()).collect();
    for (row, (_, op, _)) in rows.iter_mut().zip(changes) {
        if keyed && *op == Op::Delete {
            *row = Row { id: row.id, price: None, name: None, tags: None };
        }
    }
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(changes.iter().map(|c| c.0 as i64))),
        Arc::new(StringArray::from_iter_values(changes.iter().map(|c| c.1.letter()))),
    ];
    columns.extend(batch_of(&rows, keyed).columns().iter().map(Arc::clone));
    RecordBatch::try_new(view(keyed).change_schema(), columns).unwrap()
}

pub(crate) fn write_rows(path: &Path, rows: &[Row], format: Format, keyed: bool) {
    match format {
        Format::Ndjson => {
            let lines: String = rows.iter().map(|row| json(row) + "\n").collect();
            std::fs::write(path, lines).unwrap();
        }
        _ => write_batch(path, &batch_of(rows, keyed), format),
    }
}

pub(crate) fn write_changes(path: &Path, changes: &[Change], format: Format, keyed: bool) {
    if format != Format::Ndjson {
        return write_batch(path, &change_batch(changes, keyed), format);
    }
    let mut lines = String::new();
    for (at, op, row) in changes {
        let (word, row) = match op {
            Op::Insert => ("insert", json(row)),
            Op::Update => ("update", json(row)),
            Op::Delete if keyed => ("delete", format!("{{\"id\":{}}}", row.id)),
            Op::Delete => ("delete", json(row)),
        };
        writeln!(lines, "{{\"step\":{at},\"{word}\":{row}}}").unwrap();
    }
    std::fs::write(path, lines).unwrap();
}

fn json(row: &Row) -> String {
    let price = row.price.map_or("null".to_owned(), |p| {
        format!("{}{}.{:02}", if p < 0 { "-" } else { "" }, p.abs() / 100, p.abs() % 100)
    });
    let (name, tags) = (serde_json::to_string(&row.name).unwrap(), serde_json::to_string(&row.tags).unwrap());
    format!("{{\"id\":{},\"price\":{price},\"name\":{name},\"tags\":{tags}}}", row.id)
}

pub(crate) fn write_batch(path: &Path, batch: &RecordBatch, format: Format) {
    let mut file = File::create(path).unwrap();
    let schema = batch.schema();
    // Several small batches, so that a decoder has borders to cross.
    let mut batches: Vec<RecordBatch> =
        (0..batch.num_rows()).step_by(7).map(|at| batch.slice(at, 7.min(batch.num_rows() - at))).collect();
    if format == Format::Parquet {
        batches = vec![concat_batches(&schema, &batches).unwrap()];
    }
    let compressed = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    match format {
        Format::Parquet => {
            let mut writer = ArrowWriter::try_new(&mut file, schema, None).unwrap();
            batches.iter().for_each(|b| writer.write(b).unwrap());
            writer.close().unwrap();
        }
        Format::ArrowFile => {
            let mut writer = FileWriter::try_new_with_options(&mut file, &schema, compressed).unwrap();
            batches.iter().for_each(|b| writer.write(b).unwrap());
            writer.finish().unwrap();
        }
        Format::ArrowStream => {
            let mut writer = StreamWriter::try_new(&mut file, &schema).unwrap();
            batches.iter().for_each(|b| writer.write(b).unwrap());
            writer.finish().unwrap();
        }
        Format::Ndjson => panic!("NDJSON is written from rows"),
    }
    file.flush().unwrap();
}
