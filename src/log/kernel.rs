//! Replay and checkpoints by the Delta kernel that deltalake brings.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, AsArray, MapArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, Int64Type, Schema};
use bytes::Bytes;
use delta_kernel::engine::arrow_conversion::{TryFromArrow, TryFromKernel};
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{DataType as DeltaType, StructType};
use delta_kernel::{Engine, Snapshot};
use deltalake::logstore::{LogStoreRef, StorageConfig, default_logstore};
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};

use super::clustering::CLUSTERING_DOMAIN;
use super::entry::{FileStats, Metadata, Protocol, vector_id};
use super::features::{self, CLUSTERING, ROW_TRACKING};
use super::hidden::{HiddenStore, Hides};
use super::location::Location;
use super::upkeep::ROW_TRACKING_DOMAIN;
use super::{LAST_CHECKPOINT, LOG_DIR, version_path};
use crate::continuity::commit::FileId;
use crate::continuity::stamp::{TAG_DIGEST, TXN_EPOCH, TXN_STEP};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind, Result};
use crate::schema::{as_variant, is_variant};
use crate::store::{kind_within, store_error};

/// A data file that is live at some version.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveFile {
    /// The path as the log spells it.
    pub path: String,
    /// The deletion vector's descriptor.
    pub vector: Option<Value>,
    /// Partition values by column.
    pub partition_values: BTreeMap<String, Option<String>>,
    /// The size in bytes.
    pub size: i64,
    /// When the file was written, in milliseconds since 1970 UTC.
    pub modified_millis: i64,
    /// Its rows, after the deletion vector, where statistics tell.
    pub rows: Option<u64>,
    /// Bounds of its rows' steps, where statistics tell.
    pub steps: Option<(i64, i64)>,
    /// The first row id, in tables that track rows.
    pub base_row_id: Option<i64>,
    /// The version that row tracking names.
    pub default_row_commit_version: Option<i64>,
    /// The digest of its rows, where its writer noted it.
    pub digest: Option<Digest>,
}

impl LiveFile {
    /// Which file it is.
    pub fn id(&self) -> FileId {
        FileId { path: self.path.clone(), vector: self.vector.as_ref().and_then(vector_id) }
    }

    /// Which file it is, without a copy.
    pub fn into_id(self) -> FileId {
        FileId { vector: self.vector.as_ref().and_then(vector_id), path: self.path }
    }

    /// The object that holds it, relative to the table's root.
    ///
    /// Corrupt: a path that is absolute or leaves the table's folder.
    pub fn object(&self) -> Result<Path> {
        let outside = || {
            Error::corrupt(format!(
                "the log names the data file {:?}, which is not a path below the table's folder; nothing was read there",
                self.path
            ))
        };
        if !self.id().is_inside() {
            return Err(outside());
        }
        let path = Path::from_url_path(&self.path).map_err(|e| outside().with_source(e))?;
        if path.as_ref().is_empty() { Err(outside()) } else { Ok(path) }
    }
}

/// What the log says at a version, replayed.
#[derive(Debug, Clone)]
pub struct Replayed {
    /// The version.
    pub version: u64,
    /// The metadata.
    pub metadata: Metadata,
    /// The protocol.
    pub protocol: Protocol,
    /// The version of our step's `txn`.
    pub step: Option<i64>,
    /// The version of our epoch's `txn`.
    pub epoch: Option<i64>,
    /// The configurations of the domains that our commits must know, by name.
    pub(super) domains: BTreeMap<String, String>,
}

/// The kernel, bound to one table.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    store: LogStoreRef,
}

impl Kernel {
    pub(super) fn new(location: &Location) -> Self {
        Self::on(location, Arc::clone(location.store()), Arc::clone(location.root()))
    }

    /// A kernel that sees the log without the names that are hidden.
    pub(super) fn hiding(location: &Location, hides: Hides) -> Self {
        let hidden = |store: &Arc<dyn ObjectStore>| Arc::new(HiddenStore::new(Arc::clone(store), Arc::clone(&hides)));
        Self::on(location, hidden(location.store()), hidden(location.root()))
    }

    fn on(location: &Location, store: Arc<dyn ObjectStore>, root: Arc<dyn ObjectStore>) -> Self {
        Self { store: default_logstore(store, root, location.url(), &StorageConfig::default()) }
    }

    /// Replays the log up to `version`, or to its head.
    pub(super) async fn replay(&self, version: Option<u64>) -> Result<Replayed> {
        self.blocking(move |engine, url| {
            let snapshot = snapshot(engine, url, version)?;
            let table = snapshot.table_configuration();
            let decode =
                |e: serde_json::Error| Error::corrupt("the table's metadata cannot be understood").with_source(e);
            let metadata = serde_json::to_value(table.metadata()).and_then(serde_json::from_value).map_err(decode)?;
            let protocol: Protocol =
                serde_json::to_value(table.protocol()).and_then(serde_json::from_value).map_err(decode)?;
            let domains = domains(&snapshot, engine, &protocol)?;
            let txn = |app| snapshot.get_app_id_version(app, engine).map_err(kernel_error);
            Ok(Replayed {
                version: snapshot.version(),
                metadata,
                protocol,
                step: txn(TXN_STEP)?,
                epoch: txn(TXN_EPOCH)?,
                domains,
            })
        })
        .await
    }

    /// Takes each live file at `version` into `files`.
    pub(super) async fn live_files<T: Send + 'static>(
        &self,
        version: u64,
        files: T,
        take: impl Fn(&mut T, LiveFile) + Send + 'static,
    ) -> Result<T> {
        self.live_files_with_stats(version, files, move |files, file, _| take(files, file)).await
    }

    /// The same, each with the text of its statistics.
    pub(super) async fn live_files_with_stats<T: Send + 'static>(
        &self,
        version: u64,
        mut files: T,
        take: impl Fn(&mut T, LiveFile, Option<&str>) + Send + 'static,
    ) -> Result<T> {
        self.blocking(move |engine, url| {
            let snapshot = snapshot(engine, url, Some(version))?;
            let protocol = serde_json::to_value(snapshot.table_configuration().protocol());
            if let Ok(Ok(protocol)) = protocol.map(serde_json::from_value::<Protocol>) {
                features::check_readable(&protocol)?;
            }
            let scan = snapshot.scan_builder().build().map_err(kernel_error)?;
            for part in scan.scan_metadata(engine).map_err(kernel_error)? {
                let selected = part.and_then(|p| p.scan_files.apply_selection_vector()).map_err(kernel_error)?;
                let data = ArrowEngineData::try_from_engine_data(selected).map_err(kernel_error)?;
                take_files(data.record_batch(), |file, stats| take(&mut files, file, stats))
                    .ok_or_else(|| Error::internal("the kernel's list of files has another shape than expected"))?;
            }
            Ok(files)
        })
        .await
    }

    /// Writes a checkpoint of `version` and names it in `_last_checkpoint`.
    pub(super) async fn checkpoint(&self, version: u64) -> Result<()> {
        self.blocking(move |engine, url| {
            let snapshot = snapshot(engine, url, Some(version))?;
            snapshot.checkpoint(engine, None).map(|_| ()).map_err(kernel_error)
        })
        .await
    }

    /// The kernel blocks, so it runs on a thread that may.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Engine, &str) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = self.store.engine(None);
        let url = self.store.root_url().to_string();
        tokio::task::spawn_blocking(move || work(engine.as_ref(), &url))
            .await
            .map_err(|e| Error::internal("the replay of the log panicked").with_source(e))?
    }
}

/// The files of a checkpoint of `version`, whose entry has these bytes and holds the whole state, and of the hint to it;
/// whatever else the log holds.
pub(super) async fn checkpoint_alone(version: u64, entry: Bytes) -> Result<Vec<(Path, Bytes)>> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let kernel = Kernel::new(&Location::on(Arc::clone(&store)));
    let failed = |e| store_error("a log in memory cannot be written or read", e);
    if let Some(below) = version.checked_sub(1) {
        // The kernel begins at version 0 or at a checkpoint, and version and times of the checkpoint must be the entry's:
        // so the entry is put on top of a checkpoint of an empty table.
        store.put(&version_path(0), EMPTY_TABLE.into()).await.map_err(failed)?;
        kernel.checkpoint(0).await?;
        let name = |version: u64| Path::from_iter([LOG_DIR, &format!("{version:020}.checkpoint.parquet")]);
        let hint = Path::from_iter([LOG_DIR, LAST_CHECKPOINT]);
        let empty = store.get(&name(0)).await.map_err(failed)?.bytes().await.map_err(failed)?;
        for path in [name(0), version_path(0), hint] {
            store.delete(&path).await.map_err(failed)?;
        }
        store.put(&name(below), empty.into()).await.map_err(failed)?;
    }
    store.put(&version_path(version), entry.into()).await.map_err(failed)?;
    kernel.checkpoint(version).await?;
    let objects: Vec<_> = store.list(None).try_collect().await.map_err(failed)?;
    let below = version.checked_sub(1).map(|below| format!("{below:020}."));
    let mut files = Vec::new();
    for path in objects.into_iter().map(|object| object.location) {
        let is_below = |name: &str| below.as_ref().is_some_and(|below| name.starts_with(below.as_str()));
        if path == version_path(version) || path.filename().is_some_and(is_below) {
            continue;
        }
        files.push((path.clone(), store.get(&path).await.map_err(failed)?.bytes().await.map_err(failed)?));
    }
    Ok(files)
}

const EMPTY_TABLE: &str = concat!(
    r#"{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}"#,
    "\n",
    r#"{"metaData":{"id":"empty","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[{\"name\":\"a\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}}]}","partitionColumns":[],"configuration":{}}}"#,
    "\n",
);

/// The Delta schema of Arrow columns, as the JSON of `schemaString`.
pub(super) fn schema_string(schema: &Schema) -> Result<String> {
    let converted = StructType::try_from_arrow(schema)
        .map_err(|e| Error::incompatible("the view's schema has no Delta form").with_source(e))?;
    let encoded = |e| Error::internal("the schema was not encoded").with_source(e);
    if !schema.fields().iter().any(|f| holds(f, &is_variant)) {
        return serde_json::to_string(&converted).map_err(encoded);
    }
    let mut json = serde_json::to_value(&converted).map_err(encoded)?;
    name_variants(&mut json, schema.fields());
    serde_json::to_string(&json).map_err(encoded)
}

/// Gives the fields that are variants that type, where the kernel sees the struct which they are in Arrow.
fn name_variants(structure: &mut Value, fields: &Fields) {
    fn name_inside(value: &mut Value, field: &Field) {
        if is_variant(field) {
            *value = "variant".into();
            return;
        }
        let mut member = |key: &str, field: &Field| value.get_mut(key).map(|inner| name_inside(inner, field));
        match field.data_type() {
            DataType::List(element) => {
                member("elementType", element);
            }
            DataType::Map(entries, _) => {
                if let DataType::Struct(pair) = entries.data_type() {
                    pair.iter().zip(["keyType", "valueType"]).for_each(|(f, key)| {
                        member(key, f);
                    });
                }
            }
            DataType::Struct(fields) => name_variants(value, fields),
            _ => {}
        }
    }
    let members = structure.get_mut("fields").and_then(Value::as_array_mut).into_iter().flatten();
    for (member, field) in members.zip(fields) {
        if let Some(inner) = member.get_mut("type") {
            name_inside(inner, field);
        }
        if is_variant(field)
            && let Some(metadata) = member.get_mut("metadata")
        {
            *metadata = json!({});
        }
    }
}

/// The Arrow columns of a Delta schema, given as the JSON of `schemaString`, without notes but the mark of a variant.
pub(super) fn arrow_schema(schema_string: &str) -> Result<Schema> {
    let parsed: StructType = serde_json::from_str(schema_string)
        .map_err(|e| Error::corrupt("the table's schema cannot be understood").with_source(e))?;
    let schema = Schema::try_from_kernel(&parsed)
        .map_err(|e| Error::incompatible("the table's schema has no Arrow form").with_source(e))?;
    Ok(Schema::new(bare_fields(schema.fields(), &parsed)))
}

fn bare_fields(fields: &Fields, told: &StructType) -> Fields {
    fields.iter().zip(told.fields()).map(|(field, told)| bare(field, told.data_type())).collect()
}

/// The field without notes. A variant, which is a struct like any other in Arrow, is marked.
fn bare(field: &Field, told: &DeltaType) -> FieldRef {
    let data_type = match (field.data_type(), told) {
        (DataType::Struct(fields), DeltaType::Struct(told)) => DataType::Struct(bare_fields(fields, told)),
        (DataType::List(element), DeltaType::Array(told)) => DataType::List(bare(element, told.element_type())),
        (DataType::Map(entries, sorted), DeltaType::Map(told)) => match entries.data_type() {
            DataType::Struct(pair) => {
                let pair = pair.iter().zip([told.key_type(), told.value_type()]).map(|(f, told)| bare(f, told));
                let entries = Field::new(entries.name(), DataType::Struct(pair.collect()), entries.is_nullable());
                DataType::Map(Arc::new(entries), *sorted)
            }
            _ => field.data_type().clone(),
        },
        (other, _) => other.clone(),
    };
    let bare = Field::new(field.name(), data_type, field.is_nullable());
    Arc::new(if matches!(told, DeltaType::Variant(_)) { as_variant(bare) } else { bare })
}

/// The table features that a schema's types need.
pub(super) fn type_features(schema: &Schema) -> Vec<&'static str> {
    let is_ntz = |field: &Field| matches!(field.data_type(), DataType::Timestamp(_, None));
    let mut features = Vec::new();
    if schema.fields().iter().any(|f| holds(f, &is_ntz)) {
        features.push("timestampNtz");
    }
    if schema.fields().iter().any(|f| holds(f, &is_variant)) {
        features.push("variantType");
    }
    features
}

/// Whether `is_wanted` is true of a field or of one inside it.
fn holds(field: &Field, is_wanted: &impl Fn(&Field) -> bool) -> bool {
    is_wanted(field)
        || match field.data_type() {
            DataType::List(f) | DataType::Map(f, _) => holds(f, is_wanted),
            DataType::Struct(fields) => fields.iter().any(|f| holds(f, is_wanted)),
            _ => false,
        }
}

/// The domains of features that the table has; reading them may cost another pass over the log.
fn domains(snapshot: &Snapshot, engine: &dyn Engine, protocol: &Protocol) -> Result<BTreeMap<String, String>> {
    let known = [(ROW_TRACKING, ROW_TRACKING_DOMAIN), (CLUSTERING, CLUSTERING_DOMAIN)];
    let wanted: HashSet<&str> = known
        .into_iter()
        .filter(|(feature, _)| features::supports(protocol, feature))
        .map(|(_, domain)| domain)
        .collect();
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = snapshot.get_domain_metadatas_internal(engine, Some(&wanted)).map_err(kernel_error)?;
    Ok(found.into_iter().map(|(name, domain)| (name, domain.configuration().to_string())).collect())
}

fn snapshot(engine: &dyn Engine, url: &str, version: Option<u64>) -> Result<Arc<Snapshot>> {
    let builder = Snapshot::builder_for(url);
    let builder = match version {
        Some(version) => builder.at_version(version),
        None => builder,
    };
    builder.build(engine).map_err(kernel_error)
}

fn kernel_error(mut error: delta_kernel::Error) -> Error {
    use delta_kernel::Error as E;
    // A backtrace hides the error's kind, and would be printed as a part of its text.
    while let E::Backtraced { source, .. } = error {
        error = *source;
    }
    // A store's failure may stand deep within what a reader of Parquet made of it.
    let store = match &error {
        E::ObjectStore(failure) => kind_within(failure),
        other => kind_within(other),
    };
    let (kind, message) = match (&error, store) {
        (E::FileNotFound(_), _) | (_, Some(ErrorKind::Corrupt)) => {
            (ErrorKind::Corrupt, "a file that the log needs is missing")
        }
        (_, Some(kind)) => (kind, "the log cannot be read, or its checkpoint not be written, for now"),
        (E::IOError(_) | E::Reqwest(_), _) => (ErrorKind::Unavailable, "the log cannot be read for now"),
        (E::FileAlreadyExists(_), _) => {
            (ErrorKind::Unavailable, "the storage says that a file of the log which replaces another is there already")
        }
        (E::MissingMetadata | E::MissingMetadataAndProtocol, _) => {
            (ErrorKind::Corrupt, "the log cannot be replayed: none of it holds the table's metadata")
        }
        (E::MissingProtocol, _) => {
            (ErrorKind::Corrupt, "the log cannot be replayed: none of it holds the table's protocol")
        }
        (E::Unsupported(_), _) => (ErrorKind::Incompatible, "the table has a feature that cannot be read here"),
        _ => (ErrorKind::Corrupt, "the log cannot be replayed"),
    };
    Error::new(kind, message).with_source(error)
}

/// Takes the files of one batch of the kernel's scan rows; `None` when the batch has another shape.
fn take_files(batch: &RecordBatch, mut take: impl FnMut(LiveFile, Option<&str>)) -> Option<()> {
    let strings = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
    let longs = |name: &str| batch.column_by_name(name)?.as_primitive_opt::<Int64Type>();
    let (path, size, modified, stats) =
        (strings("path")?, longs("size")?, longs("modificationTime")?, strings("stats")?);
    let vectors = batch.column_by_name("deletionVector")?.as_struct_opt()?;
    let constants = batch.column_by_name("fileConstantValues")?.as_struct_opt()?;
    let partitions = constants.column_by_name("partitionValues")?.as_map_opt()?;
    let tags = constants.column_by_name("tags")?.as_map_opt()?;
    let constant = |name: &str, row: usize| {
        let values = constants.column_by_name(name)?.as_primitive_opt::<Int64Type>()?;
        values.is_valid(row).then(|| values.value(row))
    };
    for row in 0..batch.num_rows() {
        let vector = if vectors.is_valid(row) { descriptor(vectors, row) } else { None };
        let deleted = vector.as_ref().and_then(|v| v.get("cardinality")).and_then(Value::as_u64).unwrap_or(0);
        let text = stats.is_valid(row).then(|| stats.value(row));
        let stats = text.map(FileStats::read).unwrap_or_default();
        let file = LiveFile {
            path: path.value(row).to_string(),
            vector,
            partition_values: string_map(partitions, row)?,
            size: size.value(row),
            modified_millis: modified.value(row),
            rows: stats.records.map(|n| n.saturating_sub(deleted)),
            steps: stats.steps,
            base_row_id: constant("baseRowId", row),
            default_row_commit_version: constant("defaultRowCommitVersion", row),
            digest: string_map(tags, row)?.remove(TAG_DIGEST).flatten().and_then(|text| text.try_into().ok()),
        };
        take(file, text);
    }
    Some(())
}

fn descriptor(vectors: &StructArray, row: usize) -> Option<Value> {
    let storage = vectors.column_by_name("storageType")?.as_string_opt::<i32>()?;
    if !storage.is_valid(row) {
        return None;
    }
    let place = vectors.column_by_name("pathOrInlineDv")?.as_string_opt::<i32>()?;
    let offset = vectors.column_by_name("offset")?.as_primitive_opt::<Int32Type>()?;
    let size = vectors.column_by_name("sizeInBytes")?.as_primitive_opt::<Int32Type>()?;
    let cardinality = vectors.column_by_name("cardinality")?.as_primitive_opt::<Int64Type>()?;
    let mut value = json!({
        "storageType": storage.value(row),
        "pathOrInlineDv": place.value(row),
        "sizeInBytes": size.value(row),
        "cardinality": cardinality.value(row),
    });
    if offset.is_valid(row) {
        value.as_object_mut()?.insert("offset".into(), offset.value(row).into());
    }
    Some(value)
}

fn string_map(map: &MapArray, row: usize) -> Option<BTreeMap<String, Option<String>>> {
    if !map.is_valid(row) {
        return Some(BTreeMap::new());
    }
    let entries = map.value(row);
    let (keys, values) = (entries.column(0).as_string_opt::<i32>()?, entries.column(1).as_string_opt::<i32>()?);
    let pair = |i: usize| (keys.value(i).to_string(), values.is_valid(i).then(|| values.value(i).to_string()));
    Some((0..entries.len()).map(pair).collect())
}
