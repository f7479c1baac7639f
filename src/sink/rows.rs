//! Snapshots and changes as rows of the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;

use super::commit::Core;
use super::current::Replacement;
use super::keys::SnapshotKeys;
use crate::change::{Changes, Op};
use crate::continuity::plan::Standing;
use crate::continuity::stamp::{
    FILE_PREFIX, FIRST_LOAD_PREFIX, Layout, NOTE_GENERATION, NOTE_STEP, RowCounts, TAG_DIGEST,
};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files::{FileSettings, FileWriter, Partitioning, Written, check_partition_by};
use crate::generation::Generation;
use crate::log::{AddAction, FileColumns, LiveFile};
use crate::schema::View;
use crate::snapshot::Snapshot;
use crate::step::Step;

/// The table property that says how many columns get statistics; -1 is all of them.
const INDEXED_COLUMNS: &str = "delta.dataSkippingNumIndexedCols";

/// What an append commits, and its rows by operation.
#[derive(Debug)]
pub(super) struct AppendFiles {
    pub(super) written: Written,
    pub(super) adds: Vec<AddAction>,
    pub(super) removes: Vec<LiveFile>,
    pub(super) counts: RowCounts,
    /// By what the digest of the generation grows.
    pub(super) digest: Digest,
    /// What it does to the rows of the table, in layout `current`.
    pub(super) replacement: Option<Replacement>,
}

impl Core {
    /// Writes the snapshot's rows as files that nothing names yet.
    pub(super) async fn write_snapshot(
        &self,
        snapshot: Snapshot,
        generation: Generation,
        columns: &FileColumns,
    ) -> Result<Written> {
        let Snapshot { step, mut rows, known_rows, .. } = snapshot;
        let is_first = self.facts.standing == Standing::Absent;
        let prefix = if is_first { FIRST_LOAD_PREFIX } else { FILE_PREFIX };
        let mut writer = self.file_writer(prefix, columns, generation, step)?;
        let (mut keys, place) = (SnapshotKeys::new(&self.view), format!("the snapshot of step {step}"));
        let mut stamps = Stamps { generation, step, columns: Vec::new() };
        self.progress.begin(known_rows);
        while let Some(batch) = rows.next().await {
            let batch = self.view.conform(&batch?, &place)?;
            writer
                .write(match self.identity.layout {
                    Layout::Changelog => {
                        keys.take(&batch, &place)?;
                        snapshot_rows(&self.view, &batch, &mut stamps)?
                    }
                    // Its index finds a key that stands in it twice.
                    Layout::Current => batch,
                })
                .await?;
            self.progress.set(writer.rows(), writer.bytes());
        }
        let written = writer.finish().await?;
        self.progress.set(written.rows, written.bytes);
        Ok(written)
    }

    /// Writes changes, netted within each step, as files that nothing names yet.
    pub(super) async fn write_changes(
        &self,
        changes: &Changes,
        to: Step,
        columns: &FileColumns,
    ) -> Result<AppendFiles> {
        let ours = self
            .facts
            .ours()
            .ok_or_else(|| Error::internal("changes were to be written to a table that is not ours"))?;
        let (netted, counts) = changes.net(&self.view)?;
        let mut writer = self.file_writer(FILE_PREFIX, columns, ours.generation, to)?;
        if netted.num_rows() > 0 {
            writer.write(change_rows(&self.view, &netted, ours.generation)?).await?;
        }
        let written = writer.finish().await?;
        let (adds, digest) = (add_actions(&written), written.digest);
        Ok(AppendFiles { written, adds, removes: Vec::new(), counts, digest, replacement: None })
    }

    /// The columns by which rows written next are partitioned: what the settings ask for, else what the table has.
    pub(super) fn partition_by(&self) -> &[String] {
        match (&self.settings.partition_by, &self.facts.metadata) {
            (Some(asked), _) => asked,
            (None, Some(metadata)) => &metadata.partition_columns,
            (None, None) => &[],
        }
    }

    /// Refuses partition columns that the view lacks, or that cannot partition.
    pub(super) fn check_partitioning(&self) -> Result<()> {
        if !self.partition_by().is_empty() && self.facts.maps_columns() {
            return Err(Error::incompatible(format!(
                "the table has column mapping and would be partitioned by {:?}, and DuckDB reads the partition columns of such a table as null; set partition_by = [] for a table without partitions, or choose another uri",
                self.partition_by()
            )));
        }
        check_partition_by(&self.table_schema(), self.partition_by()).map_err(|e| match self.settings.partition_by {
            Some(_) => e,
            None => Error::incompatible(format!(
                "the table cannot stay partitioned as it is by {:?}: {}; or set partition_by to columns of the view, or to [] for a table without partitions",
                self.partition_by(),
                e.message()
            )),
        })
    }

    /// Refuses to append to a table that is partitioned otherwise than the settings ask for.
    pub(super) fn check_partitioned_as_asked(&self) -> Result<()> {
        let (Some(asked), Some(metadata)) = (&self.settings.partition_by, &self.facts.metadata) else { return Ok(()) };
        let (mut asked, mut stands) = (asked.clone(), metadata.partition_columns.clone());
        asked.sort_unstable();
        stands.sort_unstable();
        if asked == stands {
            return Ok(());
        }
        Err(Error::incompatible(format!(
            "the table is partitioned by {:?}, and partition_by asks for {:?}; a reset loads the table so, or set partition_by to what the table has",
            metadata.partition_columns,
            self.partition_by()
        )))
    }

    /// What writes data files of `generation`, whose last step is `to`.
    pub(super) fn file_writer(
        &self,
        prefix: &'static str,
        columns: &FileColumns,
        generation: Generation,
        to: Step,
    ) -> Result<FileWriter> {
        self.writer_of(prefix, columns, &self.table_schema(), self.settings.files.clone(), generation, to)
    }

    /// The same for rows with `schema`, by other settings than the sink's.
    pub(super) fn writer_of(
        &self,
        prefix: &'static str,
        columns: &FileColumns,
        schema: &SchemaRef,
        settings: FileSettings,
        generation: Generation,
        to: Step,
    ) -> Result<FileWriter> {
        let notes = match self.identity.layout {
            Layout::Changelog => Vec::new(),
            Layout::Current => {
                vec![(NOTE_GENERATION.into(), generation.to_string()), (NOTE_STEP.into(), to.to_string())]
            }
        };
        let mut settings = FileSettings {
            prefix,
            notes,
            always_indexed: columns.indexed.clone(),
            stored_fields: columns.stored.clone(),
            ..settings
        };
        let in_table = self.facts.metadata.as_ref().and_then(|metadata| metadata.configuration.get(INDEXED_COLUMNS));
        // As in the metadata that a reload is about to write.
        if let Some(text) = in_table.or_else(|| self.settings.properties.get(INDEXED_COLUMNS)) {
            settings.indexed_columns = match text.parse::<i64>() {
                Ok(-1) => usize::MAX,
                Ok(number) => usize::try_from(number).unwrap_or(settings.indexed_columns),
                Err(_) => settings.indexed_columns,
            };
        }
        let (store, schema) = (Arc::clone(self.log.store()), Arc::clone(schema));
        if self.partition_by().is_empty() {
            return Ok(FileWriter::new(store, schema, &settings, &self.world));
        }
        let mut partitioning = Partitioning::new(&schema, self.partition_by())?;
        if self.facts.materializes_partition_columns() {
            partitioning = partitioning.materialized()?;
        }
        Ok(FileWriter::partitioned(store, partitioning, &settings, &self.world))
    }
}

/// The `add` actions of files.
pub(super) fn add_actions(written: &Written) -> Vec<AddAction> {
    let add = |file: &crate::files::DataFile| AddAction {
        path: file.path.clone(),
        partition_values: file.partition_values.clone(),
        size: file.size,
        modification_time: file.modified_millis,
        data_change: true,
        stats: file.stats.clone(),
        tags: BTreeMap::from([(TAG_DIGEST.to_string(), file.digest.to_string())]),
        deletion_vector: None,
        again: None,
    };
    written.files.iter().map(add).collect()
}

/// The columns of continuity of a snapshot's rows, kept from batch to batch since all rows have the same.
struct Stamps {
    generation: Generation,
    step: Step,
    columns: Vec<ArrayRef>,
}

impl Stamps {
    fn of(&mut self, rows: usize) -> Vec<ArrayRef> {
        if self.columns.first().is_none_or(|kept| kept.len() < rows) {
            self.columns = vec![
                Arc::new(Int64Array::from(vec![self.generation.as_i64(); rows])),
                Arc::new(Int64Array::from(vec![self.step.as_i64(); rows])),
                Arc::new(StringArray::from(vec![Op::Insert.letter(); rows])),
            ];
        }
        self.columns.iter().map(|kept| kept.slice(0, rows)).collect()
    }
}

fn snapshot_rows(view: &View, batch: &RecordBatch, stamps: &mut Stamps) -> Result<RecordBatch> {
    let mut columns = stamps.of(batch.num_rows());
    columns.extend(batch.columns().iter().cloned());
    table_rows(view, columns)
}

fn change_rows(view: &View, netted: &RecordBatch, generation: Generation) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![generation.as_i64(); netted.num_rows()]))];
    columns.extend(netted.columns().iter().cloned());
    table_rows(view, columns)
}

fn table_rows(view: &View, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    RecordBatch::try_new(view.changelog_schema(), columns).map_err(|e| {
        Error::incompatible(format!("view {}: the rows do not fit the table's columns", view.name())).with_source(e)
    })
}
