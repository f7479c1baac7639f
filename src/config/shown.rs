//! The configuration as it counts: every setting with its value, and where that was said. What is said once for all stands
//! with each of those that it is about.

use serde_json::Value as Json;

use super::keys::{Absent, Form, Key, ROOT, Table, quoted};
use super::place::{Place, Problems};
use super::tree::{self, Entries, Node, Value};
use super::{Config, ConnectorConfig, Destination, Inputs, load, overrides};
use crate::continuity::stamp::Mode;
use crate::error::Result;

/// A setting that counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The names of the tables around it, then its own.
    pub path: Vec<String>,
    /// Its value.
    pub value: Shown,
    /// Where it was said.
    pub origin: Origin,
}

/// What may be shown of a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    /// The value, references in it as they were written.
    Value(Json),
    /// It may be a secret.
    Hidden,
    /// A table that says something by standing there.
    Table,
}

/// Where a value was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the file; both count from 1.
    File {
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// In the environment variable of this name.
    Variable(String),
    /// By `--set` of this path.
    Flag(String),
    /// Nowhere: it is so where nothing is said.
    Default,
}

impl Origin {
    fn of(place: &Place) -> Self {
        match place {
            Place::File { line, column } => Self::File { line: *line, column: *column },
            Place::Variable(name) => Self::Variable(name.to_string()),
            Place::Flag(path) => Self::Flag(path.to_string()),
        }
    }
}

/// Every setting of the configuration, in the order of its tables.
///
/// Config: it has problems.
pub(super) fn settings(inputs: &Inputs<'_>) -> Result<Vec<Setting>> {
    let config = load::load(inputs)?;
    let problems = Problems::default();
    let mut document = tree::parse(inputs.text, &problems).unwrap_or_default();
    overrides::apply(&mut document, inputs.env, inputs.sets, &problems);
    problems.into_result(inputs.path)?;
    let none = Entries::new();
    let defaults = below(&document, "defaults").unwrap_or(&none);
    let mut walk = Walk { config: &config, of_views: of_views(defaults), of_connectors: of_connectors(defaults) };
    let mut found = Vec::new();
    walk.table(&ROOT, &Around::default(), &[&document], &mut found);
    Ok(found)
}

/// What views take over: the entries of a view that says nothing.
fn of_views(defaults: &Entries) -> Entries {
    defaults.iter().filter(|(key, _)| key.name == "step_log").cloned().collect()
}

/// What connectors take over.
fn of_connectors(defaults: &Entries) -> Entries {
    let own = below(defaults, "connector").into_iter().flatten();
    let reset = defaults.iter().filter(|(key, _)| key.name == "reset");
    let log = below(defaults, "step_log").into_iter().flatten().filter(|(key, _)| key.name == "when_full");
    own.chain(reset).chain(log).cloned().collect()
}

fn below<'a>(entries: &'a Entries, name: &str) -> Option<&'a Entries> {
    match &find(entries, name)?.value {
        Value::Table(below) => Some(below),
        _ => None,
    }
}

fn find<'a>(entries: &'a Entries, name: &str) -> Option<&'a Node> {
    entries.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
}

struct Walk<'a> {
    config: &'a Config,
    of_views: Entries,
    of_connectors: Entries,
}

/// The tables around a table, and what they mean for its keys.
#[derive(Debug, Clone, Default)]
struct Around {
    path: Vec<String>,
    /// The innermost name that a user chose.
    name: String,
    /// What the pipeline's source is.
    source: String,
    /// Keys that mean nothing here.
    void: Vec<&'static str>,
}

impl Around {
    fn inside(&self, name: &str) -> Self {
        Self { path: [&self.path[..], &[name.to_owned()]].concat(), void: Vec::new(), ..self.clone() }
    }
}

impl Walk<'_> {
    /// The settings of a table that stands in the first of `layers`; what it does not say may stand in the next.
    fn table(&mut self, table: &Table, around: &Around, layers: &[&Entries], found: &mut Vec<Setting>) {
        let (before, is_meant) = (found.len(), |key: &&Key| !around.void.contains(&key.name));
        for key in table.keys.iter().filter(is_meant) {
            found.extend(self.leaf(key, around, layers));
        }
        for key in table.keys.iter().filter(is_meant) {
            let inner: Vec<&Entries> = layers.iter().filter_map(|layer| below(layer, key.name)).collect();
            match key.form {
                Form::Table(_) if inner.is_empty() && table.tags.contains(&key.name) => {}
                // It stands with those that it is about.
                Form::Table(_) if key.name == "defaults" => {}
                Form::Table(of) => self.table(of, &around.inside(key.name), &inner, found),
                Form::Named(of, _) => self.named(of, key.name, around, &inner, found),
                Form::Texts | Form::Secrets => {
                    for (name, node) in inner.into_iter().flatten() {
                        found.push(setting(&around.inside(key.name), &name.name, key.form, node));
                    }
                }
                _ => {}
            }
        }
        if found.len() == before && table.keys.is_empty() {
            found.push(Setting { path: around.path.clone(), value: Shown::Table, origin: Origin::Default });
        }
    }

    fn named(&mut self, of: &Table, key: &str, around: &Around, layers: &[&Entries], found: &mut Vec<Setting>) {
        for (name, node) in layers.iter().copied().flatten() {
            let Value::Table(own) = &node.value else { continue };
            let mut inside = Around { name: name.name.clone(), ..around.inside(key).inside(&name.name) };
            match key {
                "pipelines" => {
                    let source = below(own, "source").and_then(|source| source.first());
                    inside.source = source.map(|(tag, _)| tag.name.clone()).unwrap_or_default();
                    self.table(of, &inside, &[own], found);
                }
                "views" => {
                    inside.void = void_in_view(&inside.source);
                    let defaults = self.of_views.clone();
                    self.table(of, &inside, &[own, &defaults], found);
                }
                "connectors" => {
                    let defaults = self.of_connectors.clone();
                    let layers = [own, &defaults];
                    inside.void = self.void_in_connector(&inside);
                    self.table(of, &inside, &layers, found);
                }
                _ => self.table(of, &inside, &[own], found),
            }
        }
    }

    fn void_in_connector(&self, inside: &Around) -> Vec<&'static str> {
        let mut void = Vec::new();
        let is_it = |connector: &&ConnectorConfig| {
            let name = &connector.name;
            // pipelines, P, views, V, connectors, C
            let own = [name.pipeline(), name.view(), name.connector()];
            inside.path.iter().skip(1).step_by(2).map(String::as_str).eq(own)
        };
        let Some(connector) = self.config.connectors.iter().find(is_it) else { return void };
        if connector.destination == Destination::Http {
            void.extend(["on_existing", "schema_change", "durability", "heartbeat", "commit"]);
        }
        if inside.source == "files" || connector.mode == Mode::Snapshot {
            void.push("when_full");
        }
        void
    }

    /// The setting of `key`, unless it is a table, or nothing is said of it.
    fn leaf(&self, key: &Key, around: &Around, layers: &[&Entries]) -> Option<Setting> {
        if matches!(key.form, Form::Table(_) | Form::Named(..) | Form::Texts | Form::Secrets) {
            return None;
        }
        if key.name == "send_snapshot" {
            return None;
        }
        if key.name == "mode"
            && let Some((mode, at)) = alias(layers)
        {
            let value = Shown::Value(mode.to_string().into());
            return Some(Setting { path: around.inside(key.name).path, value, origin: Origin::of(at) });
        }
        if let Some(node) = layers.iter().find_map(|layer| find(layer, key.name)) {
            return Some(setting(around, key.name, key.form, node));
        }
        let default = match key.absent {
            Absent::Is(text) => text.to_owned(),
            Absent::Made(make) => make(self.config, &around.name),
            Absent::Required | Absent::Unsaid => return None,
        };
        let value = Shown::Value(json(&tree::parse_override(&default, &Place::START).value));
        Some(Setting { path: around.inside(key.name).path, value, origin: Origin::Default })
    }
}

/// The mode that `send_snapshot` stands for, where the first layer that says either says that.
fn alias<'a>(layers: &[&'a Entries]) -> Option<(Mode, &'a Place)> {
    let says = |layer: &&&Entries| ["mode", "send_snapshot"].iter().any(|key| find(layer, key).is_some());
    let node = find(layers.iter().find(says)?, "send_snapshot")?;
    let mode = if node.value == Value::Boolean(true) { Mode::SnapshotAndFollow } else { Mode::Follow };
    Some((mode, &node.at))
}

fn void_in_view(source: &str) -> Vec<&'static str> {
    match source {
        "push" => vec!["table"],
        "postgres" => vec!["materialized"],
        _ => vec!["table", "materialized", "step_log"],
    }
}

fn setting(around: &Around, name: &str, form: Form, node: &Node) -> Setting {
    let is_text = matches!(form, Form::Text | Form::Word(_) | Form::Texts);
    let value = match (&node.value, &node.raw) {
        (Value::Text(text), _) if matches!(form, Form::Secret | Form::Secrets) && is_reference(text) => {
            Shown::Value(text.as_str().into())
        }
        _ if matches!(form, Form::Secret | Form::Secrets) => Shown::Hidden,
        // An override of a text may look like a number.
        (Value::Integer(_) | Value::Boolean(_) | Value::Float(_) | Value::Datetime, Some(raw)) if is_text => {
            Shown::Value(raw.as_str().into())
        }
        (value, _) => Shown::Value(json(value)),
    };
    Setting { path: around.inside(name).path, value, origin: Origin::of(&node.at) }
}

/// Whether the whole text is one reference, without anything that stands in for it.
fn is_reference(text: &str) -> bool {
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inside.is_some_and(|inside| !inside.contains(['{', '}', '$']) && !inside.contains(":-"))
}

pub(super) fn json(value: &Value) -> Json {
    match value {
        Value::Text(text) => text.as_str().into(),
        Value::Integer(number) => number.and_then(|n| i64::try_from(n).ok()).map_or(Json::Null, Json::from),
        Value::Boolean(flag) => (*flag).into(),
        Value::Float(number) => (*number).into(),
        Value::Array(items) => items.iter().map(|item| json(&item.value)).collect(),
        // No setting is one.
        Value::Datetime | Value::Table(_) => Json::Null,
    }
}

/// A value of a setting as TOML.
pub(crate) fn to_toml(value: &Json) -> String {
    match value {
        Json::String(text) => quoted(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(to_toml).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "shown_tests.rs"]
mod tests;
