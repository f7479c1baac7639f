//! `cutover schema`: the forms of what this program reads and writes, as JSON schemas.

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::args::Output;
use super::status;
use super::{Session, text};
use crate::config;
use crate::continuity::stamp::CommitStamp;
use crate::daemon::ConnectorReport;
use crate::error::{Error, Result};
use crate::sink::Manifest;

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub(super) struct SchemaArgs {
    /// Of what
    #[arg(value_enum)]
    of: Of,
}

/// What has a form.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Of {
    /// The configuration's file, once TOML is read.
    Config,
    /// What a commit says of itself, the JSON in `userMetadata`.
    Commit,
    /// What `cutover status -o json` prints.
    Status,
    /// The manifest that `cutover stage` writes.
    Manifest,
}

impl SchemaArgs {
    /// The formats in which a schema is printed: it is JSON.
    pub(super) const OUTPUTS: &'static [Output] = &[Output::Text, Output::Json];
}

/// Runs the command; the exit code.
pub(super) fn run(args: &SchemaArgs, _: &Session) -> Result<u8> {
    let schema = match args.of {
        Of::Config => config::schema(),
        Of::Commit => commit(),
        Of::Status => status(),
        Of::Manifest => of::<Manifest>("The manifest of a staged part"),
    };
    let pretty = serde_json::to_string_pretty(&schema);
    text::print(&pretty.map_err(|e| Error::internal("the schema is no JSON").with_source(e))?)?;
    Ok(0)
}

/// A stamp; only a reload has no step that it starts from.
fn commit() -> Value {
    let mut schema = of::<CommitStamp>("The userMetadata of a commit of cutover");
    if let Some(schema) = schema.as_object_mut() {
        let from = json!({ "required": ["from"] });
        schema.insert("if".to_owned(), json!({ "properties": { "kind": { "const": "reload" } } }));
        schema.insert("then".to_owned(), json!({ "not": from }));
        schema.insert("else".to_owned(), from);
    }
    schema
}

/// All connectors, or one.
fn status() -> Value {
    let all = of::<status::Document<'static>>("All connectors and views");
    let one = of::<ConnectorReport>("One connector");
    let (mut shared, mut forms) = (Map::new(), Vec::new());
    for mut form in [all, one] {
        if let Some(Value::Object(own)) = form.as_object_mut().and_then(|form| form.remove("$defs")) {
            shared.extend(own);
        }
        forms.push(form);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The document of cutover status",
        "anyOf": forms,
        "$defs": shared,
    })
}

/// The form in which `T` is written, with nothing else in it.
fn of<T: JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
    let close = |schema: &mut Schema| {
        if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    };
    RecursiveTransform(close).transform(&mut schema);
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}
