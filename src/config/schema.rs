//! The configuration's form as a JSON schema, for editors and checks of files before they are used.

use serde_json::{Map, Value, json};

use super::keys::{self, Absent, Form, Key, ROOT, Table};
use super::place::Place;
use super::shown;
use super::tree::parse_override;

const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$";
const DURATION: &str = "^[0-9]+(ms|s|m|h|d)$";
const SIZE: &str = "^[0-9]+(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?$";
/// What a text has in it that the environment or a file replaces.
const REFERENCE: &str = r"\$\{";

/// The form of a configuration's file, by JSON Schema 2020-12.
pub(crate) fn schema() -> Value {
    let mut schema = table(&ROOT);
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".to_owned(), "cutover.toml".into());
    let pipeline = json!({ "additionalProperties": { "allOf": sources() } });
    schema.insert("allOf".to_owned(), json!([{ "properties": { "pipelines": pipeline } }]));
    schema.into()
}

/// What a view needs by its pipeline's source.
fn sources() -> Value {
    let of = |source: &str, view: Value| {
        json!({
            "if": { "properties": { "source": { "required": [source] } } },
            "then": { "properties": { "views": { "additionalProperties": view } } },
        })
    };
    let some = json!({ "minProperties": 1 });
    json!([
        of("files", json!({ "required": ["connectors"], "properties": { "connectors": some } })),
        of("push", json!({ "required": ["columns"] })),
        of("postgres", json!({ "required": ["table", "connectors"], "properties": { "connectors": some } })),
    ])
}

fn table(table: &Table) -> Map<String, Value> {
    let properties: Map<String, Value> = table.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> =
        table.keys.iter().filter(|key| matches!(key.absent, Absent::Required)).map(|key| key.name).collect();
    let mut schema = Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("description".to_owned(), table.about.into()),
        ("properties".to_owned(), properties.into()),
        ("additionalProperties".to_owned(), false.into()),
    ]);
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if !table.tags.is_empty() {
        let tags = table.tags.iter().map(|tag| json!({ "required": [tag] }));
        schema.insert("oneOf".to_owned(), tags.collect());
    }
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = value(key.form);
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), key.about.into());
        // Of a name or a place that follows from others no text is the default.
        if let Absent::Is(default) = key.absent {
            object.insert("default".to_owned(), shown::json(&parse_override(default, &Place::START).value));
        }
    }
    schema
}

fn value(form: Form) -> Value {
    match form {
        Form::Text | Form::Secret => json!({ "type": "string", "minLength": 1 }),
        Form::Boolean => json!({ "type": "boolean" }),
        Form::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Form::Number(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Form::Duration => or_reference(json!({ "type": "string", "pattern": DURATION })),
        Form::DurationOrOff => json!({ "anyOf": [{ "const": "off" }, value(Form::Duration)] }),
        Form::Size => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": i64::MAX },
            or_reference(json!({ "type": "string", "pattern": SIZE })),
        ] }),
        Form::Word(words) => or_reference(json!({ "enum": words })),
        Form::Events => json!({
            "type": "array", "minItems": 1, "items": or_reference(json!({ "enum": keys::events() })),
        }),
        Form::Names => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        Form::Table(below) => table(below).into(),
        Form::Named(below, least) => json!({
            "type": "object",
            "propertyNames": { "pattern": NAME },
            "minProperties": least,
            "additionalProperties": table(below),
        }),
        Form::Texts | Form::Secrets => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
    }
}

fn or_reference(schema: Value) -> Value {
    json!({ "anyOf": [schema, { "type": "string", "pattern": REFERENCE }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_what_is_wanted_and_what_is_the_default() {
        let schema = schema();
        assert_eq!(schema["required"], json!(["pipelines"]));
        let server = &schema["properties"]["server"]["properties"];
        assert_eq!(server["listen"]["default"], "127.0.0.1:8090");
        let pipeline = &schema["properties"]["pipelines"]["additionalProperties"];
        assert_eq!(pipeline["properties"]["source"]["oneOf"][1], json!({ "required": ["push"] }));
        let connector = &pipeline["properties"]["views"]["additionalProperties"]["properties"]["connectors"]["additionalProperties"];
        let breaker = &connector["properties"]["reset"]["properties"]["breaker"];
        assert_eq!(breaker["properties"]["max_resets"]["default"], 3);
        assert_eq!(breaker["additionalProperties"], false);
    }
}
