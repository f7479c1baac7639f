//! Row groups of a file, in place of `ArrowWriter`'s: the bounds of texts come from [`super::stats`], since the
//! library compares each value with both of them, which shows in the time that a file takes.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::statistics::{Statistics, ValueStatistics};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use super::stats::{Prefix, Range, widen};
use super::upload::PartBuffer;

/// Rows in, row groups out, into a buffer.
pub(super) struct RowGroups {
    schema: SchemaRef,
    file: SerializedFileWriter<PartBuffer>,
    factory: ArrowRowGroupWriterFactory,
    most_rows: usize,
    open: Option<Group>,
}

/// A row group that is being written, one writer for each leaf.
struct Group {
    leaves: Vec<ArrowColumnWriter>,
    rows: usize,
    /// By column; absent where the library's own statistics do.
    texts: Vec<Option<TextBounds>>,
}

#[derive(Default)]
struct TextBounds {
    nulls: u64,
    range: Range<Prefix>,
}

impl RowGroups {
    /// A file with rows of `schema`; `properties` bound the rows of a row group.
    pub(super) fn new(schema: &SchemaRef, properties: WriterProperties) -> Result<Self> {
        let most_rows = properties.max_row_group_row_count().unwrap_or(usize::MAX);
        let texts = schema.fields().iter().filter(|field| *field.data_type() == DataType::Utf8);
        let properties = texts.fold(properties.into_builder(), |properties, field| {
            let path = ColumnPath::new(vec![field.name().clone()]);
            properties.set_column_statistics_enabled(path, EnabledStatistics::None)
        });
        let options = ArrowWriterOptions::new().with_properties(properties.build()).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(PartBuffer::default(), Arc::clone(schema), options)?;
        let (file, factory) = writer.into_serialized_writer()?;
        Ok(Self { schema: Arc::clone(schema), file, factory, most_rows, open: None })
    }

    /// How many rows the next [`RowGroups::write`] may add: those that the row group has room for.
    pub(super) fn room(&self) -> usize {
        self.most_rows - self.open.as_ref().map_or(0, |open| open.rows)
    }

    /// Adds rows of the schema, no more than there is room for; `texts` are their `text_ranges`.
    pub(super) fn write(&mut self, batch: &RecordBatch, texts: &[Range<Prefix>]) -> Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.begin()?,
        };
        self.open.insert(open).add(&self.schema, batch, texts)?;
        if self.room() == 0 {
            self.flush()?;
        }
        Ok(())
    }

    fn begin(&self) -> Result<Group> {
        let is_text = |data_type: &DataType| *data_type == DataType::Utf8;
        let texts = self.schema.fields().iter().map(|f| is_text(f.data_type()).then(TextBounds::default)).collect();
        let leaves = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
        Ok(Group { leaves, rows: 0, texts })
    }

    /// Ends the open row group.
    pub(super) fn flush(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let columns = self.file.schema_descr();
        let columns: Vec<usize> = (0..open.leaves.len()).map(|leaf| columns.get_column_root_idx(leaf)).collect();
        let mut group = self.file.next_row_group()?;
        for (leaf, column) in open.leaves.into_iter().zip(columns) {
            let mut chunk = leaf.close()?;
            if let Some(Some(bounds)) = open.texts.get(column) {
                let metadata = chunk.close().metadata.clone().into_builder();
                chunk.close_mut().metadata = metadata.set_statistics(bounds.statistics()).build()?;
            }
            chunk.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok(())
    }

    /// The memory in bytes of the open row group.
    pub(super) fn memory_size(&self) -> usize {
        self.open.iter().flat_map(|open| &open.leaves).map(ArrowColumnWriter::memory_size).sum()
    }

    /// The bytes of the row groups that ended.
    pub(super) fn bytes_written(&self) -> usize {
        self.file.bytes_written()
    }

    /// The bytes of the open row group, by estimate.
    pub(super) fn in_progress_size(&self) -> usize {
        self.open.iter().flat_map(|open| &open.leaves).map(ArrowColumnWriter::get_estimated_total_bytes).sum()
    }

    /// The buffer.
    pub(super) fn inner(&self) -> &PartBuffer {
        self.file.inner()
    }

    /// The buffer, from which full parts may be taken.
    pub(super) fn inner_mut(&mut self) -> &mut PartBuffer {
        self.file.inner_mut()
    }

    /// Ends the file; what is left of it.
    pub(super) fn into_inner(mut self) -> Result<PartBuffer> {
        self.flush()?;
        self.file.into_inner()
    }
}

impl fmt::Debug for RowGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowGroups").field("bytes_written", &self.bytes_written()).finish_non_exhaustive()
    }
}

impl Group {
    fn add(&mut self, schema: &SchemaRef, batch: &RecordBatch, texts: &[Range<Prefix>]) -> Result<()> {
        let mut leaves = self.leaves.iter_mut();
        let columns = schema.fields().iter().zip(batch.columns());
        for ((field, column), (bounds, text)) in columns.zip(self.texts.iter_mut().zip(texts)) {
            for (values, leaf) in compute_leaves(field, column)?.iter().zip(leaves.by_ref()) {
                leaf.write(values)?;
            }
            if let Some(bounds) = bounds {
                bounds.nulls += column.null_count() as u64;
                widen(&mut bounds.range, text.clone());
            }
        }
        self.rows += batch.num_rows();
        Ok(())
    }
}

impl TextBounds {
    fn statistics(&self) -> Statistics {
        let value = |text: String| ByteArray::from(text.into_bytes());
        let (min, max) = match &self.range {
            Some((min, max)) => (Some(min), max.ceiling().map(value)),
            None => (None, None),
        };
        let is_exact = |prefix: Option<&Prefix>| prefix.is_some_and(|prefix| !prefix.is_cut());
        let (min_is_exact, max_is_exact) = (is_exact(min), is_exact(self.range.as_ref().map(|(_, max)| max)));
        let min = min.map(|min| value(min.text().to_owned()));
        let bounds = ValueStatistics::new(min, max, None, Some(self.nulls), false);
        Statistics::ByteArray(bounds.with_min_is_exact(min_is_exact).with_max_is_exact(max_is_exact))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray, StructArray};
    use arrow::datatypes::Field;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::super::stats::text_ranges;
    use super::*;

    #[test]
    fn a_row_group_bounds_its_texts_and_no_other_rows() {
        let long = "ä".repeat(40);
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("b"), None, Some("ab"), Some(&long), Some(""), None]));
        let inner = (Arc::new(Field::new("x", DataType::Utf8, true)), Arc::clone(&texts));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![4, 5, 6, 1, 2, 3]));
        let columns: [(&str, ArrayRef); 4] = [
            ("pair", Arc::new(StructArray::from(vec![inner]))),
            ("number", numbers),
            ("text", texts),
            ("nothing", Arc::new(StringArray::from(vec![None::<&str>; 6]))),
        ];
        let batch =
            RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(3)).build();
        let mut groups = RowGroups::new(&batch.schema(), properties).unwrap();
        for (start, rows) in [(0, 1), (1, 2), (3, 3)] {
            let piece = batch.slice(start, rows);
            assert!(rows <= groups.room());
            groups.write(&piece, &text_ranges(&piece)).unwrap();
        }
        let (_, bytes) = groups.into_inner().unwrap().into_parts();
        let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();

        let found: Vec<(Option<String>, Option<String>, Option<u64>)> = builder
            .metadata()
            .row_groups()
            .iter()
            .flat_map(|group| group.columns().iter().skip(2))
            .map(|chunk| {
                let stats = chunk.statistics().unwrap();
                let text = |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
                (text(stats.min_bytes_opt()), text(stats.max_bytes_opt()), stats.null_count_opt())
            })
            .collect();
        let text = |min: &str, max: &str| (Some(min.to_string()), Some(max.to_string()), Some(1));
        let raised = format!("{}å", "ä".repeat(31));
        let nothing = (None, None, Some(3));
        assert_eq!(found, [text("ab", "b"), nothing.clone(), text("", &raised), nothing]);

        let read: Vec<RecordBatch> = builder.build().unwrap().map(|batch| batch.unwrap()).collect();
        assert_eq!(arrow::compute::concat_batches(&batch.schema(), &read).unwrap(), batch);
    }
}
