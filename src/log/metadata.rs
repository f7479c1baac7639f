//! The metadata and protocol that a reload leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use serde_json::{Value, json};

use super::entry::{Metadata, Protocol};
use super::{Facts, Log, features, kernel};
use crate::continuity::foreign::without_comments;
use crate::continuity::stamp::{PROPERTY_PREFIX, TableStamp};
use crate::error::{Error, Result};

/// The table's columns in Arrow's types, without what the schema notes beside them.
pub fn table_schema(metadata: &Metadata) -> Result<SchemaRef> {
    let schema = kernel::arrow_schema(&metadata.schema_string)?;
    let plain = |field: &Field| Field::new(field.name(), field.data_type().clone(), field.is_nullable());
    Ok(Arc::new(Schema::new(schema.fields().iter().map(|f| plain(f)).collect::<Vec<_>>())))
}

impl Log {
    /// The metadata of a table that a reload with `stamp` leaves, and the protocol where it must change.
    ///
    /// Kept byte for byte: id, name, description, format, creation time, partitioning, and every property that is
    /// not ours. `properties` are set where the table does not have them.
    pub fn reloaded(
        &self,
        facts: &Facts,
        schema: &Schema,
        stamp: &TableStamp,
        properties: &BTreeMap<String, String>,
    ) -> Result<(Metadata, Option<Protocol>)> {
        let mut metadata = facts.metadata.clone().unwrap_or_else(|| Metadata {
            id: self.world.ids.draw(),
            name: None,
            description: None,
            format: json!({ "provider": "parquet", "options": {} }),
            schema_string: String::new(),
            partition_columns: Vec::new(),
            created_time: Some(self.world.clock.unix_millis()),
            configuration: BTreeMap::new(),
        });
        metadata.schema_string = kernel::schema_string(schema)?;
        metadata.configuration.retain(|key, _| !key.starts_with(PROPERTY_PREFIX));
        for (key, value) in properties {
            metadata.configuration.entry(key.clone()).or_insert_with(|| value.clone());
        }
        metadata.configuration.extend(stamp.encode());
        Ok((metadata, features::upgrade(facts.protocol.as_ref(), kernel::holds_ntz(schema))))
    }

    /// Refuses properties that no reload may set.
    pub fn check_properties(&self, properties: &BTreeMap<String, String>) -> Result<()> {
        features::check_properties(properties)
    }

    /// Refuses an append of rows with `schema` to a table that has another.
    pub fn check_schema(&self, facts: &Facts, schema: &Schema) -> Result<()> {
        let Some(metadata) = &facts.metadata else { return Ok(()) };
        let wanted = kernel::schema_string(schema)?;
        if metadata.schema_string == wanted {
            return Ok(());
        }
        let (table, view) = (without_comments(&metadata.schema_string), without_comments(&wanted));
        if table.is_some() && table == view {
            return Ok(());
        }
        let fields = |schema: &Option<Value>| -> Vec<Value> {
            schema.as_ref().and_then(|s| s.get("fields")).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let (table, view) = (fields(&table), fields(&view));
        let differs = view.iter().find(|f| !table.contains(f)).or_else(|| table.iter().find(|f| !view.contains(f)));
        let name = differs.and_then(|f| f.get("name")).and_then(Value::as_str);
        let of = |fields: &[Value]| {
            let field = fields.iter().find(|f| f.get("name").and_then(Value::as_str) == name);
            field.map_or("no such column".to_string(), |f| {
                let null = if f.get("nullable") == Some(&Value::Bool(false)) { " not null" } else { "" };
                let data_type = f.get("type").map(|t| t.as_str().map_or_else(|| t.to_string(), str::to_string));
                format!("{}{null}", data_type.unwrap_or_default())
            })
        };
        let difference = name.map_or("the columns' order differs".to_string(), |name| {
            format!("column {name:?}: the table has {}, the view {}", of(&table), of(&view))
        });
        Err(Error::incompatible(format!(
            "the view's schema is not the table's any more, and schema_change is \"fail\": {difference}; a reset loads the table with the view's schema"
        )))
    }
}
