//! Arrow batches to Parquet data files with sound statistics, bounded in memory.
//!
//! A [`FileWriter`] takes batches of one schema and leaves files under the table's root that nobody sees until a commit
//! names them. Few rows are encoded on the caller's task and put in one piece; more are spread over encoder threads,
//! each with one open file, whose bytes go out in parts while it grows. Memory per thread is bounded by
//! `ROW_GROUP_BYTES` of encoded pages, one part being filled and two under way, whatever the file's size.
//!
//! A writer that fails or is dropped leaves no more than files of our naming pattern that no version names. Uploads in
//! parts are aborted after a failure; a store that cannot clean up after a dropped upload (S3, Google) needs a
//! lifecycle rule for unfinished ones.

mod encoder;
mod encoding;
mod groups;
mod partition;
mod relabel;
mod slices;
mod spread;
mod stats;
mod upload;
mod writer;

use std::fmt;
use std::str::FromStr;

use parquet::basic::{Compression as ParquetCompression, ZstdLevel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::continuity::stamp::FILE_PREFIX;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::schema::StoredFields;

pub use partition::{PartitionValues, Partitioning, check_partition_by};
pub use relabel::relabel;
pub use writer::FileWriter;

/// How a data file's pages are compressed.
///
/// As text: `zstd`, `zstd(5)`, `snappy`, `lz4`, `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard at a level of 1 to 22; others are clamped.
    Zstd(i32),
    /// Snappy.
    Snappy,
    /// LZ4 blocks without frames (`LZ4_RAW`).
    Lz4,
    /// Pages as they are encoded.
    None,
}

impl Compression {
    fn codec(self) -> ParquetCompression {
        match self {
            Self::Zstd(level) => {
                let level = level.clamp(*ZSTD_LEVELS.start(), *ZSTD_LEVELS.end());
                ParquetCompression::ZSTD(ZstdLevel::try_new(level).unwrap_or_default())
            }
            Self::Snappy => ParquetCompression::SNAPPY,
            Self::Lz4 => ParquetCompression::LZ4_RAW,
            Self::None => ParquetCompression::UNCOMPRESSED,
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::Zstd(1)
    }
}

impl FromStr for Compression {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        // Only the plain spelling of a level: "zstd(+5)" and "zstd(05)" parse as well.
        let plain = |level: &i32| ZSTD_LEVELS.contains(level) && word == format!("zstd({level})");
        let level = || word.strip_prefix("zstd(")?.strip_suffix(')')?.parse().ok().filter(plain);
        match word {
            "zstd" => Ok(Self::default()),
            "snappy" => Ok(Self::Snappy),
            "lz4" => Ok(Self::Lz4),
            "none" => Ok(Self::None),
            _ => level().map(Self::Zstd).ok_or_else(|| {
                Error::config(format!(
                    "unknown compression {word:?}; use zstd, zstd(1) to zstd(22), snappy, lz4 or none"
                ))
            }),
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zstd(level) => write!(f, "zstd({level})"),
            Self::Snappy => f.write_str("snappy"),
            Self::Lz4 => f.write_str("lz4"),
            Self::None => f.write_str("none"),
        }
    }
}

const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=22;

/// How data files are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSettings {
    /// How pages are compressed; `zstd(1)` by default.
    pub compression: Compression,
    /// The size in bytes at which a file ends and the next one begins, 128 MiB by default. A file exceeds it by no more
    /// than about one slice of 65,536 rows or 8 MiB.
    pub target_file_size: u64,
    /// Encoder threads, at most; by default one per available core, up to 8. With 0 everything is encoded on the
    /// caller's task, one file after another.
    pub threads: usize,
    /// The number of leading columns that get statistics, 32 by default; each field of a struct is one, at every depth.
    /// The table's own `delta.dataSkippingNumIndexedCols` goes before it.
    pub indexed_columns: usize,
    /// Columns that get statistics wherever they stand, by their names in the files; none by default.
    pub always_indexed: Vec<String>,
    /// How the files hold the batches' columns, by the columns' names: other names at any depth, and ids. The types are
    /// the same otherwise. `None` by default: the files hold the columns as they are.
    pub stored_fields: StoredFields,
    /// How the files' names begin, [`FILE_PREFIX`] by default.
    pub prefix: &'static str,
    /// What the files' footers say beside the columns, by key; nothing by default.
    pub notes: Vec<(String, String)>,
}

impl FileSettings {
    /// The largest [`FileSettings::target_file_size`]: object stores take 10,000 parts of a file.
    pub const LARGEST_TARGET: u64 = 64 << 30;
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            compression: Compression::default(),
            target_file_size: 128 << 20,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8)),
            indexed_columns: 32,
            always_indexed: Vec::new(),
            stored_fields: None,
            prefix: FILE_PREFIX,
            notes: Vec::new(),
        }
    }
}

/// A data file in the store, as an `add` action needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// The name relative to the table's root: letters, digits, hyphens and one dot, no folder.
    pub path: String,
    /// The values of its partition columns; none when the rows are not partitioned.
    pub partition_values: PartitionValues,
    /// The size in bytes.
    pub size: u64,
    /// The number of rows.
    pub rows: u64,
    /// The digest of its rows.
    #[schemars(with = "String", regex(pattern = "^[0-9a-f]{32}$"))]
    pub digest: Digest,
    /// JSON for `add.stats`: `numRecords`, `minValues`, `maxValues`, `nullCount`.
    pub stats: String,
    /// When the file was complete, in milliseconds since 1970 UTC.
    pub modified_millis: i64,
}

/// What a [`FileWriter`] left in the store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// The files; none when there were no rows.
    pub files: Vec<DataFile>,
    /// The rows of all files.
    pub rows: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// The digest of all rows.
    pub digest: Digest,
}

impl Written {
    /// Adds what another writer left.
    pub(crate) fn absorb(&mut self, other: Written) {
        self.files.extend(other.files);
        self.rows += other.rows;
        self.bytes += other.bytes;
        self.digest = self.digest.plus(other.digest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_compression_reads_back_from_its_text() {
        let cases = [
            ("zstd", Compression::Zstd(1), "zstd(1)"),
            ("zstd(5)", Compression::Zstd(5), "zstd(5)"),
            ("zstd(22)", Compression::Zstd(22), "zstd(22)"),
            ("snappy", Compression::Snappy, "snappy"),
            ("lz4", Compression::Lz4, "lz4"),
            ("none", Compression::None, "none"),
        ];
        for (text, compression, shown) in cases {
            assert_eq!(text.parse::<Compression>().unwrap(), compression, "{text}");
            assert_eq!(compression.to_string(), shown);
            assert_eq!(shown.parse::<Compression>().unwrap(), compression, "{shown}");
        }
    }

    #[test]
    fn an_unknown_compression_is_refused_by_the_words_that_are_known() {
        for text in ["", "gzip", "zstd()", "zstd(0)", "zstd(23)", "zstd(5", "ZSTD", "zstd(1.5)"] {
            let err = text.parse::<Compression>().unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Config, "{text}");
            for word in ["zstd", "snappy", "lz4", "none"] {
                assert!(err.message().contains(word), "{text}: {err}");
            }
        }
    }
}
