//! The metadata and protocol that a reload leaves, or an append that adds columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use super::entry::{Metadata, Protocol};
use super::mapping::{self, Columns};
use super::{Facts, Log, features, kernel};
use crate::continuity::columns::{Difference, SchemaChange};
use crate::continuity::stamp::{Layout, PROPERTY_PREFIX, TableStamp};
use crate::error::{Error, Result};

/// The table's columns as a view has them: Arrow's types, without what the schema notes beside them.
pub fn table_schema(metadata: &Metadata) -> Result<SchemaRef> {
    schema_of(&metadata.schema_string)
}

/// The same by the JSON of a table's `schemaString`.
pub fn schema_of(schema_string: &str) -> Result<SchemaRef> {
    kernel::arrow_schema(&mapping::logical(schema_string)?.to_string()).map(Arc::new)
}

impl Log {
    /// The metadata of a table that a reload with `stamp` leaves, and the protocol where it must change.
    ///
    /// Kept byte for byte: id, name, description, format, creation time, and every property that is not ours; with
    /// column mapping the highest column id moves, and in layout `current` the table is switched to deletion vectors. `partition_by` are the partition columns. `properties` are set where
    /// the table does not have them.
    pub fn reloaded(
        &self,
        facts: &Facts,
        schema: &Schema,
        columns: &Columns,
        stamp: &TableStamp,
        partition_by: &[String],
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
        columns.describe(&mut metadata);
        metadata.partition_columns = partition_by.to_vec();
        metadata.configuration.retain(|key, _| !key.starts_with(PROPERTY_PREFIX));
        for (key, value) in properties {
            metadata.configuration.entry(key.clone()).or_insert_with(|| value.clone());
        }
        metadata.configuration.extend(stamp.encode());
        let mut needed = kernel::type_features(schema);
        if stamp.layout == Layout::Current {
            metadata.configuration.insert(features::DELETES_ROWS.into(), "true".into());
            needed.push(features::DELETION_VECTORS);
        }
        Ok((metadata, features::upgrade(facts.protocol.as_ref(), &needed)))
    }

    /// Refuses properties that no reload may set.
    pub fn check_properties(&self, properties: &BTreeMap<String, String>) -> Result<()> {
        features::check_properties(properties)
    }

    /// The metadata, and the protocol where it must change, that an append of rows with `schema` brings; `None` where the
    /// table has these columns.
    ///
    /// With [`SchemaChange::AddColumns`] columns that may be null are added behind the table's own; everything else stays
    /// byte for byte. Incompatible: any other difference.
    pub fn fitted(
        &self,
        facts: &Facts,
        schema: &Schema,
        policy: SchemaChange,
    ) -> Result<Option<(Metadata, Option<Protocol>)>> {
        let Some(metadata) = &facts.metadata else { return Ok(None) };
        if metadata.schema_string == kernel::schema_string(schema)? {
            return Ok(None);
        }
        let difference = Difference::between(&*table_schema(metadata)?, schema);
        match difference.added() {
            Some(added) if added.is_empty() => Ok(None),
            Some(added) if policy == SchemaChange::AddColumns => {
                let added = Schema::new(added);
                let mut fitted = metadata.clone();
                let added_string = self.added_columns(facts, &added, &mut fitted)?;
                fitted.schema_string = widened(&metadata.schema_string, &added_string)?;
                let protocol = features::upgrade(facts.protocol.as_ref(), &kernel::type_features(&added));
                Ok(Some((fitted, protocol)))
            }
            _ => Err(difference.refused("the view's columns are not the table's any more", policy)),
        }
    }
}

/// A schema's JSON, its fields as they are spelled.
#[derive(Serialize, Deserialize)]
struct Fields<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    fields: Vec<&'a RawValue>,
}

/// The schema `table` with the fields of `added` behind its own.
fn widened(table: &str, added: &str) -> Result<String> {
    let broken = |e| Error::corrupt("the table's schema cannot be understood").with_source(e);
    let mut schema: Fields<'_> = serde_json::from_str(table).map_err(broken)?;
    let added: Fields<'_> = serde_json::from_str(added).map_err(broken)?;
    schema.fields.extend(added.fields);
    serde_json::to_string(&schema).map_err(broken)
}
