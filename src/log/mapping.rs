//! Column mapping: the names and ids by which data files know a table's columns.
//!
//! A reload keeps both for each column, at any depth, that the table has under the same name; others get a name that no
//! version ever had and an id above the highest. An append uses what is there.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;
use serde_json::{Value, json};
use uuid::Uuid;

use super::entry::{Metadata, Protocol};
use super::features::{self, COLUMN_MAPPING};
use super::{Facts, Log, clustering, kernel};
use crate::continuity::columns::MAX_COLUMN_ID;
use crate::error::{Error, Result};
use crate::schema::StoredFields;

const MODE: &str = "delta.columnMapping.mode";
const ID: &str = "delta.columnMapping.id";
const PHYSICAL_NAME: &str = "delta.columnMapping.physicalName";
const NESTED_IDS: &str = "delta.columnMapping.nested.ids";

/// How data files hold a table's columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileColumns {
    /// The columns as they stand there, by their names in the table; `None` where those are the names there too.
    pub stored: StoredFields,
    /// The columns that must have statistics wherever they stand, by their names in the files.
    pub indexed: Vec<String>,
}

/// How a reload stores a view's columns.
#[derive(Debug, Clone)]
pub struct Columns {
    /// The JSON of `schemaString`.
    schema: String,
    files: FileColumns,
    max_id: i64,
    base: Option<Base>,
    clustered_by: Vec<Vec<String>>,
}

/// What the names and ids of a mapped table follow from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    mode: Mode,
    schema: String,
    max_id: Option<String>,
}

/// By what readers find a column in a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Name,
    Id,
}

impl Columns {
    /// The JSON of the table's `schemaString`.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The columns in data files.
    pub fn in_files(&self) -> &FileColumns {
        &self.files
    }

    /// Whether the table of `facts` still has the names, ids and clustering that these follow from.
    pub fn hold_in(&self, facts: &Facts) -> bool {
        self.base == Base::of(facts) && self.clustered_by == facts.clustered_by
    }

    /// Puts the schema, and the highest id, into the metadata.
    pub(super) fn describe(&self, metadata: &mut Metadata) {
        metadata.schema_string = self.schema.clone();
        if self.base.is_some() {
            metadata.configuration.insert(MAX_COLUMN_ID.into(), self.max_id.to_string());
        }
    }
}

impl Base {
    fn of(facts: &Facts) -> Option<Self> {
        let metadata = facts.metadata.as_ref()?;
        let mode = mode(facts.protocol.as_ref()?, metadata)?;
        Some(Self {
            mode,
            schema: metadata.schema_string.clone(),
            max_id: metadata.configuration.get(MAX_COLUMN_ID).cloned(),
        })
    }

    /// The highest id that the table gave, `known` being its schema.
    fn highest_id(&self, known: &Value) -> i64 {
        let told = self.max_id.as_ref().and_then(|max| max.parse().ok()).unwrap_or(0);
        highest_id(known).max(told)
    }
}

impl Log {
    /// How a reload of the table of `facts` stores columns with `schema`. Names that it draws differ at every call.
    pub fn columns(&self, facts: &Facts, schema: &Schema) -> Result<Columns> {
        columns_by(facts, schema, &|| self.draw_name())
    }

    /// The same with names that follow from the table's generation and from `load`, which tells this reload from others of it.
    pub fn columns_of(&self, facts: &Facts, schema: &Schema, load: &str) -> Result<Columns> {
        let table = facts.metadata.as_ref().map_or("", |metadata| &metadata.id);
        let generation = facts.ours().map_or(0, |ours| ours.generation.get());
        let drawn = Cell::new(0u64);
        let draw = || {
            drawn.set(drawn.get() + 1);
            let from = format!("{table} {generation} {load} {}", drawn.get());
            format!("col-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, from.as_bytes()))
        };
        columns_by(facts, schema, &draw)
    }

    /// The JSON of columns that an append adds behind those of the table of `facts`. Where columns are mapped they get
    /// names and ids, and `metadata` the highest id. Names that it draws differ at every call.
    pub(super) fn added_columns(&self, facts: &Facts, added: &Schema, metadata: &mut Metadata) -> Result<String> {
        let plain = kernel::schema_string(added)?;
        let Some(base) = Base::of(facts) else { return Ok(plain) };
        let mut wanted = parse(&plain)?;
        let mut ids = Drawn { max: base.highest_id(&parse(&base.schema)?), draw: &|| self.draw_name() };
        annotate(&mut wanted, None, &mut ids);
        ids.check()?;
        metadata.configuration.insert(MAX_COLUMN_ID.into(), ids.max.to_string());
        Ok(wanted.to_string())
    }

    fn draw_name(&self) -> String {
        format!("col-{}", self.world.ids.draw())
    }

    /// How data files of the table of `facts` hold columns with `schema`, all of which the table has, or has by the
    /// metadata `fitted`.
    pub fn file_columns(&self, facts: &Facts, fitted: Option<&Metadata>, schema: &Schema) -> Result<FileColumns> {
        let base = Base::of(facts).map(|base| fitted.map_or(base.schema, |metadata| metadata.schema_string.clone()));
        let stored = base.map(|base| Ok(Arc::new(stored(schema, &parse(&base)?)?)));
        Ok(FileColumns { stored: stored.transpose()?, indexed: clustering::roots(facts, schema) })
    }
}

/// How a reload of the table of `facts` stores columns with `schema`, others' names drawn by `draw`.
fn columns_by(facts: &Facts, schema: &Schema, draw: &dyn Fn() -> String) -> Result<Columns> {
    let plain = kernel::schema_string(schema)?;
    let indexed = clustering::roots(facts, schema);
    let clustered_by = facts.clustered_by.clone();
    let Some(base) = Base::of(facts) else {
        let files = FileColumns { stored: None, indexed };
        return Ok(Columns { schema: plain, files, max_id: 0, base: None, clustered_by });
    };
    let mut wanted = parse(&plain)?;
    let known = parse(&base.schema)?;
    let mut ids = Drawn { max: base.highest_id(&known), draw };
    annotate(&mut wanted, Some(&known), &mut ids);
    ids.check()?;
    let files = FileColumns { stored: Some(Arc::new(stored(schema, &wanted)?)), indexed };
    Ok(Columns { schema: wanted.to_string(), files, max_id: ids.max, base: Some(base), clustered_by })
}

/// By what columns are found; `None` where the table has no column mapping, whatever its properties say.
pub(super) fn mode(protocol: &Protocol, metadata: &Metadata) -> Option<Mode> {
    let mode = match metadata.configuration.get(MODE)?.to_lowercase().as_str() {
        "name" => Mode::Name,
        "id" => Mode::Id,
        _ => return None,
    };
    features::supports(protocol, COLUMN_MAPPING).then_some(mode)
}

/// The table's schema without names and ids in files, for comparison with a view's.
pub(super) fn logical(schema: &str) -> Result<Value> {
    let mut schema = parse(schema)?;
    strip(&mut schema, &|notes, _| {
        for key in [ID, PHYSICAL_NAME, NESTED_IDS] {
            notes.remove(key);
        }
    });
    Ok(schema)
}

/// The table's schema with what a change of must not go unseen: mapping columns to the names that they have is none.
pub(super) fn comparable(schema: &str) -> String {
    let Ok(mut parsed) = parse(schema) else { return schema.to_string() };
    strip(&mut parsed, &|notes, name| {
        notes.remove(ID);
        if notes.get(PHYSICAL_NAME).and_then(Value::as_str) == Some(name) {
            notes.remove(PHYSICAL_NAME);
        }
    });
    parsed.to_string()
}

/// The names that the table has for a path of names in data files; `None` where it has no such column.
pub(super) fn logical_path(facts: &Facts, path: &[String]) -> Result<Option<Vec<String>>> {
    let Some(base) = Base::of(facts) else { return Ok(Some(path.to_vec())) };
    let schema = parse(&base.schema)?;
    let (mut within, mut names) = (Some(&schema), Vec::with_capacity(path.len()));
    for physical in path {
        let mut fields = within.map(fields).unwrap_or_default().iter();
        let Some(field) = fields.find(|f| physical_name(f) == Some(physical)) else { return Ok(None) };
        names.push(name_of(field).to_string());
        within = field.get("type");
    }
    Ok(Some(names))
}

/// Ids and names for columns that have none.
struct Drawn<'a> {
    max: i64,
    draw: &'a dyn Fn() -> String,
}

impl Drawn<'_> {
    /// Refuses ids that data files cannot hold.
    fn check(&self) -> Result<()> {
        if i32::try_from(self.max).is_ok() {
            return Ok(());
        }
        Err(Error::incompatible(format!(
            "the table's columns have the highest id {}, and data files hold ids up to {}; choose another uri",
            self.max,
            i32::MAX
        )))
    }
}

/// Gives each field of the struct `wanted` the id and name of the field of the same name in `known`, others their own.
fn annotate(wanted: &mut Value, known: Option<&Value>, ids: &mut Drawn<'_>) {
    let known_fields = known.map(fields).unwrap_or_default();
    let Some(Value::Array(wanted_fields)) = wanted.get_mut("fields") else { return };
    for field in wanted_fields {
        let name = name_of(field).to_lowercase();
        let twin = known_fields.iter().find(|k| name_of(k).to_lowercase() == name);
        let kept = twin.and_then(|twin| Some((id_of(twin)?, physical_name(twin)?.to_string())));
        let (id, physical) = kept.unwrap_or_else(|| {
            ids.max = ids.max.saturating_add(1);
            (ids.max, (ids.draw)())
        });
        if let Some(object) = field.as_object_mut() {
            let notes = object.entry("metadata").or_insert_with(|| json!({}));
            if let Some(notes) = notes.as_object_mut() {
                notes.insert(ID.into(), id.into());
                notes.insert(PHYSICAL_NAME.into(), physical.into());
            }
        }
        if let Some(data_type) = field.get_mut("type") {
            annotate_type(data_type, twin.and_then(|twin| twin.get("type")), ids);
        }
    }
}

fn annotate_type(wanted: &mut Value, known: Option<&Value>, ids: &mut Drawn<'_>) {
    let same_kind = known.filter(|known| known.get("type") == wanted.get("type"));
    if wanted.get("fields").is_some() {
        annotate(wanted, same_kind, ids);
    }
    for part in ["elementType", "keyType", "valueType"] {
        if let Some(inner) = wanted.get_mut(part) {
            annotate_type(inner, same_kind.and_then(|known| known.get(part)), ids);
        }
    }
}

fn stored(schema: &Schema, annotated: &Value) -> Result<BTreeMap<String, FieldRef>> {
    let by_name: HashMap<&str, &Value> = fields(annotated).iter().map(|f| (name_of(f), f)).collect();
    let one = |field: &FieldRef| {
        Ok((field.name().clone(), Arc::new(stored_field(field, by_name.get(field.name().as_str()).copied())?)))
    };
    schema.fields().iter().map(one).collect()
}

fn stored_field(field: &Field, annotated: Option<&Value>) -> Result<Field> {
    let found = annotated.and_then(|a| Some((a, id_of(a)?, physical_name(a)?)));
    let Some((annotated, id, physical)) = found else {
        return Err(Error::corrupt(format!(
            "the table maps columns to names in data files, and none is told for {:?}; switch column mapping off, or choose another uri",
            field.name()
        )));
    };
    let data_type = stored_type(field.data_type(), annotated.get("type").unwrap_or(&Value::Null))?;
    let mut notes = field.metadata().clone();
    notes.insert(PARQUET_FIELD_ID_META_KEY.into(), id.to_string());
    Ok(Field::new(physical, data_type, field.is_nullable()).with_metadata(notes))
}

fn stored_type(data_type: &DataType, annotated: &Value) -> Result<DataType> {
    let inner = |field: &Field, part: &str| -> Result<FieldRef> {
        let data_type = stored_type(field.data_type(), annotated.get(part).unwrap_or(&Value::Null))?;
        Ok(Arc::new(field.clone().with_data_type(data_type)))
    };
    Ok(match data_type {
        // A struct that is one value to the table, such as a variant, has no fields there.
        DataType::Struct(parts) if annotated.get("fields").is_some() => {
            let by_name: HashMap<&str, &Value> = fields(annotated).iter().map(|f| (name_of(f), f)).collect();
            let parts = parts.iter().map(|part| stored_field(part, by_name.get(part.name().as_str()).copied()));
            DataType::Struct(parts.collect::<Result<Vec<Field>>>()?.into())
        }
        DataType::List(element) => DataType::List(inner(element, "elementType")?),
        DataType::Map(entries, sorted) => {
            let DataType::Struct(pair) = entries.data_type() else { return Ok(data_type.clone()) };
            let [key, value] = pair.as_ref() else { return Ok(data_type.clone()) };
            let pair = Fields::from(vec![inner(key, "keyType")?, inner(value, "valueType")?]);
            DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(DataType::Struct(pair))), *sorted)
        }
        _ => data_type.clone(),
    })
}

fn parse(schema: &str) -> Result<Value> {
    serde_json::from_str(schema).map_err(|e| Error::corrupt("the table's schema cannot be understood").with_source(e))
}

/// Goes through the notes of every field, with the field's name.
fn strip(data_type: &mut Value, change: &dyn Fn(&mut serde_json::Map<String, Value>, &str)) {
    if let Some(Value::Array(fields)) = data_type.get_mut("fields") {
        for field in fields {
            let name = name_of(field).to_string();
            if let Some(Value::Object(notes)) = field.get_mut("metadata") {
                change(notes, &name);
            }
            if let Some(inner) = field.get_mut("type") {
                strip(inner, change);
            }
        }
    }
    for part in ["elementType", "keyType", "valueType"] {
        if let Some(inner) = data_type.get_mut(part) {
            strip(inner, change);
        }
    }
}

/// The highest id of any field, those of elements, keys and values included.
fn highest_id(schema: &Value) -> i64 {
    match schema {
        Value::Object(object) => {
            let own = object.get(ID).and_then(Value::as_i64).unwrap_or(0);
            let nested = object.get(NESTED_IDS).and_then(Value::as_object);
            let nested = nested.into_iter().flat_map(|ids| ids.values()).filter_map(Value::as_i64);
            object.values().map(highest_id).chain(nested).fold(own, i64::max)
        }
        Value::Array(parts) => parts.iter().map(highest_id).fold(0, i64::max),
        _ => 0,
    }
}

fn fields(schema: &Value) -> &[Value] {
    schema.get("fields").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn name_of(field: &Value) -> &str {
    field.get("name").and_then(Value::as_str).unwrap_or_default()
}

fn id_of(field: &Value) -> Option<i64> {
    field.get("metadata")?.get(ID)?.as_i64()
}

fn physical_name(field: &Value) -> Option<&str> {
    field.get("metadata")?.get(PHYSICAL_NAME)?.as_str()
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
