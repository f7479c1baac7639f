//! Clustered tables: which columns their files need statistics of.
//!
//! What lies together is up to whoever clusters the table; commits of ours leave the columns as they are chosen, and
//! write statistics of them.

use arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use serde_json::Value;

use super::Facts;
use super::mapping;
use crate::error::{Error, Result};
use crate::schema::is_variant;

/// The domain that names the columns.
pub(super) const CLUSTERING_DOMAIN: &str = "delta.clustering";

/// The paths of the columns in data files' names, out of the domain's configuration.
pub(super) fn columns(configuration: &str) -> Result<Vec<Vec<String>>> {
    let path = |column: &Value| -> Option<Vec<String>> {
        match column {
            // The protocol's own example has plain names.
            Value::String(name) => Some(vec![name.clone()]),
            Value::Array(names) => names.iter().map(|n| n.as_str().map(str::to_string)).collect(),
            _ => None,
        }
    };
    let parsed: Option<Value> = serde_json::from_str(configuration).ok();
    let listed = parsed.as_ref().and_then(|c| c.get("clusteringColumns")?.as_array());
    listed.and_then(|columns| columns.iter().map(path).collect()).ok_or_else(|| {
        Error::corrupt(format!("the table's domain {CLUSTERING_DOMAIN} cannot be understood: {configuration}"))
    })
}

/// The top-level columns by which the table is clustered, by the names in data files that hold columns with `schema`.
pub(super) fn roots(facts: &Facts, schema: &Schema) -> Vec<String> {
    let maps = facts.maps_columns();
    let in_files = |root: &String| {
        let twin = schema.fields().iter().find(|f| !maps && f.name().eq_ignore_ascii_case(root));
        twin.map_or(root, |field| field.name()).clone()
    };
    facts.clustered_by.iter().filter_map(|path| path.first()).map(in_files).collect()
}

/// Refuses rows with `schema` where the table is clustered by what they lack, or by what has no bounds.
pub(super) fn check(facts: &Facts, schema: &Schema) -> Result<()> {
    const REMEDY: &str = "cluster it by other columns, or by none (ALTER TABLE … CLUSTER BY NONE)";
    if facts.clustered_by.is_empty() {
        return Ok(());
    }
    let partitioned = facts.metadata.as_ref().is_some_and(|m| !m.partition_columns.is_empty());
    if partitioned {
        return Err(Error::incompatible(format!("the table is clustered and partitioned, which cannot be; {REMEDY}")));
    }
    for path in &facts.clustered_by {
        let names = mapping::logical_path(facts, path)?;
        let field = names.as_ref().and_then(|names| field_at(schema.fields(), names));
        let shown = names.as_ref().unwrap_or(path).join(".");
        match field {
            None => {
                return Err(Error::incompatible(format!(
                    "the table is clustered by the column {shown:?}, which the view lacks; {REMEDY}"
                )));
            }
            Some(field) if !has_bounds(field.data_type()) => {
                return Err(Error::incompatible(format!(
                    "the table is clustered by the column {shown:?}, which has the type {} in the view, and no bounds are kept of that; {REMEDY}",
                    field.data_type()
                )));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn field_at<'a>(fields: &'a Fields, names: &[String]) -> Option<&'a FieldRef> {
    let (name, inner) = names.split_first()?;
    let field = fields.iter().find(|f| f.name().eq_ignore_ascii_case(name))?;
    match field.data_type() {
        _ if inner.is_empty() => Some(field),
        DataType::Struct(fields) if !is_variant(field) => field_at(fields, inner),
        _ => None,
    }
}

fn has_bounds(data_type: &DataType) -> bool {
    !data_type.is_nested() && !matches!(data_type, DataType::Boolean | DataType::Binary)
}
