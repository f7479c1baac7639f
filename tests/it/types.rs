//! Every type at its edges and in any nesting, from the source to what independent readers find.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef};
use arrow::ipc::writer::FileWriter;
use cutover::inspect::json_rows::write_ndjson;
use cutover::{Access, Changes, Location, Snapshot, StepRange, Target, View};
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{Chance, Ran, Readers, size};
use crate::sample;
use crate::world::{settings, step, world};

const CUTOVER: u64 = 10;
/// Columns before the view's own ones: `__generation`, `__step`, `__op`.
const FRONT: usize = 3;

/// Rows of a changelog as they are sent, in the source's types: a snapshot first, then one change a step.
struct Sent {
    rows: RecordBatch,
    snapshot: usize,
    keyed: bool,
}

impl Sent {
    /// `columns` beside `id`, which is the key where there is one; each change of a row of its own.
    fn new(columns: Vec<(String, ArrayRef)>, snapshot: usize, keyed: bool) -> Self {
        let rows = columns[0].1.len();
        let number = |row: usize| if row < snapshot { CUTOVER } else { CUTOVER + 1 + (row - snapshot) as u64 };
        let op = |row: usize| match row.checked_sub(snapshot) {
            None => "i",
            Some(change) if keyed => ["u", "d", "i"][change % 3],
            Some(change) => ["i", "d"][change % 2],
        };
        let bigints = |of: &dyn Fn(usize) -> i64| Arc::new(Int64Array::from_iter_values((0..rows).map(of))) as ArrayRef;
        let mut all = vec![
            ("__generation".to_string(), bigints(&|_| 1)),
            ("__step".to_string(), bigints(&|row| number(row) as i64)),
            ("__op".to_string(), Arc::new(StringArray::from_iter_values((0..rows).map(op))) as ArrayRef),
            ("id".to_string(), bigints(&|row| row as i64)),
        ];
        all.extend(columns);
        let rows = RecordBatch::try_from_iter_with_nullable(all.into_iter().map(|(name, c)| (name, c, true))).unwrap();
        Self { rows, snapshot, keyed }
    }

    fn key(&self) -> Vec<String> {
        if self.keyed { vec!["id".into()] } else { vec![] }
    }

    fn view(&self) -> View {
        let fields: Vec<_> = self.rows.schema().fields().iter().skip(FRONT).cloned().collect();
        View::new("rows", &Schema::new(fields), self.key()).unwrap()
    }

    fn snapshot_rows(&self) -> RecordBatch {
        let columns: Vec<usize> = (FRONT..self.rows.num_columns()).collect();
        self.rows.slice(0, self.snapshot).project(&columns).unwrap()
    }

    fn change_rows(&self) -> RecordBatch {
        let columns: Vec<usize> = (1..self.rows.num_columns()).collect();
        self.rows.slice(self.snapshot, self.rows.num_rows() - self.snapshot).project(&columns).unwrap()
    }

    fn last_step(&self) -> u64 {
        CUTOVER + (self.rows.num_rows() - self.snapshot) as u64
    }

    /// Delivers it to a table in `folder`, in process, and leaves what was sent beside it.
    async fn deliver(&self, folder: &Path, target_file_size: u64) -> Value {
        let table = folder.join("table");
        let location = Location::open(table.to_str().unwrap(), Access::Write(cutover::Durability::None)).unwrap();
        let view = self.view();
        let mut settings = settings();
        settings.files.target_file_size = target_file_size;
        let target = Target::open(location, view.clone(), settings, world(1).0).await.unwrap();
        let mut batches = Vec::new();
        for start in (0..self.snapshot).step_by(200) {
            let part = self.snapshot_rows().slice(start, 200.min(self.snapshot - start));
            batches.push(view.conform(&part, "the snapshot").unwrap());
        }
        let mut sink = target.load(Snapshot::from_batches(step(CUTOVER), batches)).await.unwrap();
        if self.last_step() > CUTOVER {
            let range = StepRange::new(step(CUTOVER), step(self.last_step())).unwrap();
            let rows = view.conform_changes(&self.change_rows(), "the changes").unwrap();
            sink.append(Changes::new(range, vec![rows]).unwrap()).await.unwrap();
        }
        let sent = folder.join("sent.arrow");
        write_arrow(&sent, &self.rows);
        json!({"table": table, "sent": sent, "key": self.key()})
    }
}

fn write_arrow(path: &Path, rows: &RecordBatch) {
    let mut writer = FileWriter::try_new(File::create(path).unwrap(), rows.schema_ref()).unwrap();
    writer.write(rows).unwrap();
    writer.finish().unwrap();
}

fn write_parquet(path: &Path, rows: &RecordBatch) {
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

/// The rows as NDJSON, changes where `steps` says so.
fn write_lines(path: &Path, rows: &RecordBatch, are_changes: bool) {
    let mut lines = Vec::new();
    write_ndjson(rows, &mut lines).unwrap();
    let text = String::from_utf8(lines).unwrap();
    let change = |line: &str| {
        let rest = line.strip_prefix("{\"__step\":").unwrap();
        let (step, rest) = rest.split_once(",\"__op\":\"").unwrap();
        let (op, rest) = rest.split_once("\",").unwrap();
        let word = match op {
            "i" => "insert",
            "u" => "update",
            _ => "delete",
        };
        format!("{{\"step\":{step},\"{word}\":{{{rest}}}\n")
    };
    let text = if are_changes { text.lines().map(change).collect() } else { text };
    fs::write(path, text).unwrap();
}

/// A type in the words of the configuration.
fn spelled(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Boolean => "boolean".into(),
        T::Int8 => "tinyint".into(),
        T::Int16 => "smallint".into(),
        T::Int32 => "int".into(),
        T::Int64 => "bigint".into(),
        T::Float32 => "float".into(),
        T::Float64 => "double".into(),
        T::Decimal128(p, s) => format!("decimal({p},{s})"),
        T::Utf8 => "string".into(),
        T::Binary => "binary".into(),
        T::Date32 => "date".into(),
        T::Timestamp(_, None) => "timestamp_ntz".into(),
        T::Timestamp(_, Some(_)) => "timestamp".into(),
        T::List(f) => format!("array<{}>", spelled(f.data_type())),
        T::Struct(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|f| format!("`{}`:{}", f.name(), spelled(f.data_type()))).collect();
            format!("struct<{}>", fields.join(","))
        }
        T::Map(entries, _) => {
            let T::Struct(pair) = entries.data_type() else { panic!("{data_type}") };
            format!("map<{},{}>", spelled(pair[0].data_type()), spelled(pair[1].data_type()))
        }
        other => panic!("{other} cannot be spelled"),
    }
}

/// What `compare.py` says of cases; a fault ends the test.
fn compare(test: &str, mode: &str, folder: &Path, cases: &[Value], chance: &Chance, args: &[&str]) {
    let Some(readers) = Readers::find(test) else { return };
    let list = folder.join("cases.json");
    fs::write(&list, serde_json::to_string(cases).unwrap()).unwrap();
    let list = list.display().to_string();
    let mut command: Command = readers.command("compare.py", &[&[mode, list.as_str()], args].concat());
    let ran = Ran::of(command.output().unwrap());
    eprintln!("{test}: {}", ran.stdout.lines().last().unwrap_or_default());
    ran.ended(0, chance.seed);
}

/// Every leaf, and nestings of some.
fn edge_types(wanted: fn(&DataType) -> bool) -> Vec<DataType> {
    use DataType as T;
    let structure = |inner: Vec<DataType>| {
        let fields = inner.into_iter().enumerate().map(|(i, t)| Field::new(format!("f{i}"), t, true));
        T::Struct(fields.collect::<Fields>())
    };
    let words = T::Dictionary(Box::new(T::Int8), Box::new(T::Utf8));
    let mut types = sample::leaves();
    types.extend([
        T::List(sample::item(T::UInt8)),
        T::LargeList(sample::item(words.clone())),
        T::FixedSizeList(sample::item(T::Date64), 3),
        sample::map_of(T::Utf8, T::Decimal128(20, 3)),
        sample::map_of(T::Int32, T::List(sample::item(T::Utf8))),
        structure(vec![T::Int32, T::Utf8, T::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None)]),
        structure(vec![structure(vec![structure(vec![T::Boolean, words.clone()])]), T::List(sample::item(T::Binary))]),
        T::List(sample::item(structure(vec![words, T::UInt64]))),
        sample::map_of(T::Date32, structure(vec![T::Float64, T::Decimal64(10, 2)])),
    ]);
    types.retain(wanted);
    types
}

fn columns(chance: &mut Chance, types: &[DataType], rows: usize) -> Vec<(String, ArrayRef)> {
    types.iter().enumerate().map(|(i, t)| (format!("c{i}"), sample::array(chance, t, rows))).collect()
}

/// Whether Parquet has the type; the writer knows no runs of equal values.
fn is_in_parquet(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::RunEndEncoded(..) | DataType::Decimal128(_, ..=-1))
}

#[test]
fn every_type_at_its_edges_reaches_the_readers_through_the_program() {
    const TEST: &str = "every_type_at_its_edges_reaches_the_readers_through_the_program";
    let mut chance = Chance::new(TEST);
    let home = TempDir::new().unwrap();
    let mut config = "config_version = 1\n[pipelines.p.source.files]\npath = \"feed\"\n".to_string();
    let mut cases = Vec::new();
    for (name, format, keyed) in [("parquet", "parquet", true), ("arrow", "arrow", false), ("lines", "ndjson", true)] {
        let types = edge_types(if format == "parquet" { is_in_parquet } else { |_| true });
        let sent = Sent::new(columns(&mut chance, &types, 60), 40, keyed);
        let view = sent.view();
        let feed = home.path().join("feed").join(name);
        fs::create_dir_all(&feed).unwrap();
        let files = [
            (format!("snapshot-{CUTOVER}.{format}"), sent.snapshot_rows()),
            (format!("changes-{CUTOVER}-{}.{format}", sent.last_step()), sent.change_rows()),
        ];
        for (file, rows) in files {
            let (path, are_changes) = (feed.join(&file), file.starts_with("changes"));
            match format {
                "parquet" => write_parquet(&path, &rows),
                "arrow" => write_arrow(&path, &rows),
                _ if are_changes => write_lines(&path, &view.conform_changes(&rows, "here").unwrap(), true),
                _ => write_lines(&path, &view.conform(&rows, "here").unwrap(), false),
            }
        }
        let key = if keyed { "key = [\"id\"]\n" } else { "" };
        config += &format!("[pipelines.p.views.{name}]\n{key}");
        if format == "ndjson" {
            let spelled = view.schema().fields().iter().map(|f| format!("{} = {:?}", f.name(), spelled(f.data_type())));
            config += &format!("columns = {{ {} }}\n", spelled.collect::<Vec<_>>().join(", "));
        }
        let table = home.path().join(format!("table-{name}"));
        config += &format!("[pipelines.p.views.{name}.connectors.lake.delta]\nuri = {:?}\n", table);
        let file = home.path().join(format!("{name}.arrow"));
        write_arrow(&file, &sent.rows);
        cases.push(json!({"table": table, "sent": file, "key": sent.key()}));
    }
    fs::write(home.path().join("cutover.toml"), config).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_cutover"));
    Ran::of(program.args(["run", "--once"]).current_dir(home.path()).output().unwrap()).ended(0, chance.seed);
    for case in &cases {
        let mut program = Command::new(env!("CARGO_BIN_EXE_cutover"));
        let args = ["verify", case["table"].as_str().unwrap(), "--deep"];
        Ran::of(program.args(args).current_dir(home.path()).output().unwrap()).ended(0, chance.seed);
    }
    let mut program = Command::new(env!("CARGO_BIN_EXE_cutover"));
    let args = ["state", cases[0]["table"].as_str().unwrap()];
    let state = Ran::of(program.args(args).current_dir(home.path()).output().unwrap()).ended(0, chance.seed).stdout;
    // 20 changes of rows that the snapshot lacks, every third of them a delete.
    assert_eq!(state.lines().count(), 40 + 13, "seed {}", chance.seed);
    compare(TEST, "rows", home.path(), &cases, &chance, &[]);
    compare(TEST, "weak", home.path(), &[], &chance, &[]);
}

#[tokio::test]
async fn any_schema_and_any_rows_are_read_as_they_were_sent() {
    const TEST: &str = "any_schema_and_any_rows_are_read_as_they_were_sent";
    let count = size("CUTOVER_SCHEMAS", 40);
    let mut chance = Chance::new(TEST);
    // Tables are compared in lots, so that the deep count needs no disk to speak of.
    for lot in 0..count.div_ceil(250) {
        let home = TempDir::new().unwrap();
        let mut cases = Vec::new();
        for case in lot * 250..count.min(lot * 250 + 250) {
            let types: Vec<DataType> = (0..1 + chance.below(6)).map(|_| sample::data_type(&mut chance, 4)).collect();
            let (rows, keyed) = (2 + chance.below(30) as usize, chance.one_in(2));
            let sent = Sent::new(columns(&mut chance, &types, rows), 1 + chance.below(rows as u64) as usize, keyed);
            let folder: PathBuf = home.path().join(format!("case-{case}"));
            fs::create_dir(&folder).unwrap();
            cases.push(sent.deliver(&folder, 64 << 20).await);
        }
        compare(TEST, "rows", home.path(), &cases, &chance, &[]);
    }
}

#[tokio::test]
async fn files_are_skipped_only_where_no_row_matches() {
    const TEST: &str = "files_are_skipped_only_where_no_row_matches";
    let predicates = size("CUTOVER_PREDICATES", 30);
    let mut chance = Chance::new(TEST);
    let home = TempDir::new().unwrap();
    let mut types = sample::leaves();
    let structure = |inner: &[DataType]| {
        let fields = inner.iter().enumerate().map(|(i, t)| Field::new(format!("f{i}"), t.clone(), true));
        DataType::Struct(fields.collect::<Fields>())
    };
    types.truncate(27);
    types.insert(0, structure(&[DataType::Int32, structure(&[DataType::Utf8, DataType::Decimal128(30, 4)])]));
    let sent = Sent::new(columns(&mut chance, &types, 1_000), 1_000, false);
    let case = sent.deliver(home.path(), 1).await;
    let (seed, predicates) = (chance.seed.to_string(), predicates.to_string());
    compare(TEST, "predicates", home.path(), &[case], &chance, &["--seed", &seed, "--count", &predicates]);
}

#[tokio::test]
async fn the_table_says_how_many_columns_get_statistics() {
    let home = TempDir::new().unwrap();
    let table = home.path().join("table");
    let location = Location::open(table.to_str().unwrap(), Access::Write(cutover::Durability::None)).unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let sent = Sent::new(vec![("c".into(), column)], 1, false);
    let mut settings = settings();
    settings.properties.insert("delta.dataSkippingNumIndexedCols".into(), "4".into());
    let target = Target::open(location, sent.view(), settings, world(1).0).await.unwrap();
    target.load(Snapshot::from_batches(step(CUTOVER), vec![sent.snapshot_rows()])).await.unwrap();
    let entry = fs::read_to_string(table.join("_delta_log/00000000000000000000.json")).unwrap();
    assert!(entry.contains(r#"\"nullCount\":{\"__generation\":0,\"__step\":0,\"__op\":0,\"id\":0}"#), "{entry}");
}

#[tokio::test]
async fn a_table_of_very_many_columns_is_written_and_read() {
    const TEST: &str = "a_table_of_very_many_columns_is_written_and_read";
    let chance = Chance::new(TEST);
    let home = TempDir::new().unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let columns = (0..size("CUTOVER_COLUMNS", 1_000)).map(|i| (format!("c{i}"), Arc::clone(&column))).collect();
    let case = Sent::new(columns, 2, true).deliver(home.path(), 64 << 20).await;
    compare(TEST, "rows", home.path(), &[case], &chance, &["--engines", "deltalake"]);
}

#[tokio::test]
async fn a_variant_is_read_as_its_binaries() {
    const TEST: &str = "a_variant_is_read_as_its_binaries";
    let chance = Chance::new(TEST);
    let home = TempDir::new().unwrap();
    let binary = |values: Vec<&[u8]>| Arc::new(arrow::array::BinaryArray::from(values)) as ArrayRef;
    let members = [("metadata", vec![b"\x01\0\0".as_ref(); 3]), ("value", vec![b"\x0c\x2a".as_ref(), b"\0", b"\0"])];
    let fields = members.iter().map(|(name, _)| Field::new(*name, DataType::Binary, false)).collect::<Fields>();
    let values = members.into_iter().map(|(_, values)| binary(values)).collect();
    let variants = arrow::array::StructArray::new(fields, values, Some(vec![true, true, false].into()));
    let mut sent = Sent::new(vec![("v".into(), Arc::new(variants))], 2, true);
    let mark = [("ARROW:extension:name".to_string(), "arrow.parquet.variant".to_string())];
    let mut marked: Vec<Field> = sent.rows.schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    marked[FRONT + 1] = marked[FRONT + 1].clone().with_metadata(mark.into());
    let schema: SchemaRef = Arc::new(Schema::new(marked));
    sent.rows = RecordBatch::try_new(schema, sent.rows.columns().to_vec()).unwrap();
    let case = sent.deliver(home.path(), 64 << 20).await;
    let entry = fs::read_to_string(home.path().join("table/_delta_log/00000000000000000000.json")).unwrap();
    assert!(
        entry.contains(r#"\"type\":\"variant\""#) && entry.contains(r#""readerFeatures":["variantType"]"#),
        "{entry}"
    );
    compare(TEST, "rows", home.path(), &[case], &chance, &["--engines", "polars,deltalake"]);
}
