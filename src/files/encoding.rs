//! How each column of a file is encoded, chosen by trying the candidates on a sample of the file's first rows.
//!
//! | candidate | numbers | strings, binary |
//! |---|---|---|
//! | dictionary | values once for each row group, rows as indices | the same |
//! | fast | differences, bit-packed (`DELTA_BINARY_PACKED`); floats by bytes (`BYTE_STREAM_SPLIT`) | lengths, then bytes (`DELTA_LENGTH_BYTE_ARRAY`) |
//! | small | plain | prefixes shared with the value before (`DELTA_BYTE_ARRAY`) |
//!
//! Decimals of more than 18 digits and booleans have no more than a dictionary and plain values. A sample is encoded and
//! compressed as the file will be, so the choice holds for what the codec makes of each; what a dictionary costs in a
//! row group, which has more rows than the sample, follows from how it grows within the sample.

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Encoding, Type};
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};

/// Rows of the sample: the first and the last ones of the slice that is given.
const SAMPLE_ROWS: usize = 16_384;
/// The sample is this many times the part of it from which a dictionary's growth is told.
const GROWTH: usize = 4;
/// Rows below which a file gets the defaults: its choice would cost more than it saves.
const FEWEST_ROWS: usize = SAMPLE_ROWS / GROWTH;

/// How much smaller than the fast candidate another one must be, since it takes longer to write.
const DICTIONARY_GAIN: f64 = 0.97;
const SMALL_GAIN: f64 = 0.85;
/// The bytes of a row that are no reason for a dictionary: columns of one value differ by less.
const DICTIONARY_SLACK: f64 = 0.02;

/// `defaults` with the encodings that suit the rows of `first`, a file's first rows.
///
/// `row_group_rows` is the number of rows that share a dictionary.
pub(super) fn suited(
    defaults: &WriterProperties,
    first: &RecordBatch,
    row_group_rows: usize,
) -> Result<WriterProperties> {
    if first.num_rows() < FEWEST_ROWS {
        return Ok(defaults.clone());
    }
    let sample = Sample::of(first);
    let trial = || defaults.clone().into_builder().set_statistics_enabled(EnabledStatistics::None);
    let indexed = trial().set_dictionary_page_size_limit(usize::MAX).build();
    let dictionaries = encode(&indexed, &sample.parts)?;
    let younger = encode(&indexed, &sample.beginning)?;
    let with = |encoding: fn(Type) -> Encoding| {
        let leaf = |trial: WriterPropertiesBuilder, column: &ColumnChunkMetaData| {
            trial.set_column_encoding(column.column_path().clone(), encoding(column.column_type()))
        };
        let trial = dictionaries.iter().fold(trial().set_dictionary_enabled(false), leaf);
        encode(&trial.build(), &sample.parts)
    };
    let (fasts, smalls) = (with(fast)?, with(small)?);

    let mut suited = defaults.clone().into_builder();
    let (growth, slack) = (row_group_rows as f64 / sample.rows as f64, row_group_rows as f64 * DICTIONARY_SLACK);
    let columns = dictionaries.iter().zip(&younger).zip(fasts.iter().zip(&smalls));
    for ((dictionary, younger), (fast_one, small_one)) in columns {
        let (path, kind) = (dictionary.column_path(), dictionary.column_type());
        let (fast_size, small_size) = (fast_one.compressed_size() as f64, small_one.compressed_size() as f64);
        let (encoding, size) = match small_size < fast_size * SMALL_GAIN {
            true => (small(kind), small_size),
            false => (fast(kind), fast_size),
        };
        let has_dictionary = dictionary_size(dictionary, younger, growth)
            .is_some_and(|with| with + slack < size * growth * DICTIONARY_GAIN);
        // Beside a dictionary this is for row groups whose dictionary would grow too large.
        suited = suited.set_column_encoding(path.clone(), encoding);
        suited = suited.set_column_dictionary_enabled(path.clone(), has_dictionary);
    }
    Ok(suited.build())
}

/// The encoding of the fast candidate.
fn fast(kind: Type) -> Encoding {
    match kind {
        Type::INT32 | Type::INT64 => Encoding::DELTA_BINARY_PACKED,
        Type::BYTE_ARRAY => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Type::FLOAT | Type::DOUBLE => Encoding::BYTE_STREAM_SPLIT,
        Type::BOOLEAN | Type::INT96 | Type::FIXED_LEN_BYTE_ARRAY => Encoding::PLAIN,
    }
}

/// The encoding of the small candidate.
fn small(kind: Type) -> Encoding {
    match kind {
        Type::BYTE_ARRAY => Encoding::DELTA_BYTE_ARRAY,
        _ => Encoding::PLAIN,
    }
}

/// The bytes of a column chunk that has `growth` times the rows of `sample`; `None` if it has no dictionary.
///
/// `younger` has the dictionary of the sample's beginning.
fn dictionary_size(sample: &ColumnChunkMetaData, younger: &ColumnChunkMetaData, growth: f64) -> Option<f64> {
    let size =
        |chunk: &ColumnChunkMetaData| Some((chunk.data_page_offset() - chunk.dictionary_page_offset()?).max(1) as f64);
    let (page, younger) = (size(sample)?, size(younger)?);
    let grown = page * dictionary_growth(page / younger, growth);
    // An index has as many bits as the number of values needs.
    let bits = |page: f64| (page / TYPICAL_VALUE).max(2.0).log2();
    let indices = sample.compressed_size() as f64 - page;
    Some(grown + indices * growth * bits(grown) / bits(page))
}

/// How many times larger a dictionary becomes when the rows become `growth` times more, if it became `so_far` times
/// larger when they became [`GROWTH`] times more.
///
/// There are two answers, and one between them is taken, nearer to the first. If any value is as likely as any other, each quarter of the
/// sample adds the same share `q` of what the quarter before it added: `so_far` is `1 + q + q² + q³`, and the sum goes
/// on. If there are ever more values that are rare, the dictionary is a power of the number of rows.
fn dictionary_growth(so_far: f64, growth: f64) -> f64 {
    let quarters = GROWTH as i32;
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..30 {
        let q: f64 = (low + high) / 2.0;
        let sum: f64 = (0..quarters).map(|i| q.powi(i)).sum();
        (low, high) = if sum < so_far { (q, high) } else { (low, q) };
    }
    let q: f64 = (low + high) / 2.0;
    let saturating = (1.0 - q.powf(f64::from(quarters) * growth)) / (1.0 - q.powi(quarters));
    let unbounded = so_far.clamp(1.0, GROWTH as f64).powf(growth.ln() / (GROWTH as f64).ln());
    (saturating * saturating * unbounded).cbrt().max(1.0)
}

/// The compressed bytes of a value in a dictionary, roughly.
const TYPICAL_VALUE: f64 = 4.0;

/// Rows of a slice, in batches that share its buffers.
struct Sample {
    parts: Vec<RecordBatch>,
    beginning: Vec<RecordBatch>,
    rows: usize,
}

impl Sample {
    fn of(slice: &RecordBatch) -> Self {
        let rows = slice.num_rows().min(SAMPLE_ROWS);
        let half = rows / 2;
        let parts = vec![slice.slice(0, half), slice.slice(slice.num_rows() - (rows - half), rows - half)];
        Self { parts, beginning: vec![slice.slice(0, rows / GROWTH)], rows }
    }
}

/// What the columns would take in a file.
fn encode(properties: &WriterProperties, batches: &[RecordBatch]) -> Result<Vec<ColumnChunkMetaData>> {
    let Some(first) = batches.first() else { return Ok(Vec::new()) };
    let options = ArrowWriterOptions::new().with_properties(properties.clone()).with_skip_arrow_metadata(true);
    let mut writer = ArrowWriter::try_new_with_options(std::io::sink(), first.schema(), options)?;
    for batch in batches {
        writer.write(batch)?;
    }
    let file = writer.close()?;
    Ok(file.row_groups().iter().flat_map(|group| group.columns()).cloned().collect())
}

#[cfg(test)]
#[path = "encoding_tests.rs"]
mod tests;
