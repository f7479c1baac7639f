//! An event, and the names that events have.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The name and version of an event's form.
const SCHEMA: &str = "cutover.event/1";
/// The longest text within an event, in bytes.
const LONGEST_TEXT: usize = 4096;

/// What happened, by a name that stays. Where the log tells of the same, it has the same name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The daemon started: `version`.
    DaemonStarted,
    /// The daemon is stopped as it was asked to.
    DaemonStopped,
    /// The configuration was loaded anew: `added`, `removed`, `changed`, `failed`, `restart`.
    ConfigurationReloaded,
    /// A connector could not be started: `code`, `reason`.
    ConnectorFailed,
    /// A pushed view could not be opened, or takes no more: `reason`.
    ViewFailed,
    /// A connector lost its place in a full step log: `acknowledged`, `last_step`.
    Detached,
    /// A connector goes over to a state that needs nobody: `from`, `to`, `trouble`.
    StateChanged,
    /// Storage or source cannot be used for now; as `state_changed`.
    Retrying,
    /// Nothing is appended until a reset; as `state_changed`.
    ContinuityLost,
    /// Continuity is lost, and no reset may begin by itself for now; as `state_changed`.
    BreakerOpen,
    /// Another writer took over; as `state_changed`.
    Fenced,
    /// The connector needs somebody; as `state_changed`.
    Failed,
    /// A generation begins: `generation`, `step`, `version`, `rows`.
    Reloaded,
    /// Changes are committed: `generation`, `from`, `to`, `version`, `commits`, `rows`, `bytes`.
    Appended,
    /// The client of a connector said what it has: `generation`, `from`, `to`.
    Acknowledged,
    /// A reset is to be carried out: `id`, `trigger`, `who`, `why`.
    ResetAccepted,
    /// It is in the table: the same, `version`, `generation`, `step`.
    ResetCommitted,
    /// Somebody took it back; as `reset_accepted`.
    ResetCancelled,
    /// It was given up: as `reset_accepted`, `code`, `reason`.
    ResetFailed,
    /// It was not carried out within a day; as `reset_accepted`.
    ResetExpired,
    /// So many events, `count`, are not here, because they came faster than they could be written down, or were damaged.
    EventsLost,
}

impl Kind {
    /// Every name.
    pub const ALL: [Self; 21] = [
        Self::DaemonStarted,
        Self::DaemonStopped,
        Self::ConfigurationReloaded,
        Self::ConnectorFailed,
        Self::ViewFailed,
        Self::Detached,
        Self::StateChanged,
        Self::Retrying,
        Self::ContinuityLost,
        Self::BreakerOpen,
        Self::Fenced,
        Self::Failed,
        Self::Reloaded,
        Self::Appended,
        Self::Acknowledged,
        Self::ResetAccepted,
        Self::ResetCommitted,
        Self::ResetCancelled,
        Self::ResetFailed,
        Self::ResetExpired,
        Self::EventsLost,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = serde_json::to_value(self).map_err(|_| fmt::Error)?;
        f.write_str(word.as_str().ok_or(fmt::Error)?)
    }
}

/// Whom an event is about; nobody in particular where all are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<String>,
    /// The connector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connector: Option<String>,
}

impl About {
    /// A view.
    pub fn view(pipeline: &str, view: &str) -> Self {
        Self { pipeline: Some(pipeline.to_owned()), view: Some(view.to_owned()), connector: None }
    }

    /// A connector, by the parts of its full name.
    pub fn connector(pipeline: &str, view: &str, connector: &str) -> Self {
        Self { connector: Some(connector.to_owned()), ..Self::view(pipeline, view) }
    }

    /// Whether it is about what `wanted` names; a part that `wanted` leaves open may be anything.
    pub fn is_of(&self, wanted: &Self) -> bool {
        let fits = |own: &Option<String>, wanted: &Option<String>| wanted.is_none() || own == wanted;
        fits(&self.pipeline, &wanted.pipeline)
            && fits(&self.view, &wanted.view)
            && fits(&self.connector, &wanted.connector)
    }

    /// The names, one after the other.
    pub fn path(&self) -> String {
        let parts = [&self.pipeline, &self.view, &self.connector];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    }
}

/// Something that happened and has no number yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// When, in milliseconds since 1970 UTC.
    pub at: i64,
    /// What.
    pub kind: Kind,
    /// About whom.
    pub about: About,
    /// What else there is to know.
    pub data: Map<String, Value>,
}

impl Draft {
    /// With the members of the object `data`; long texts are cut.
    pub fn new(at: i64, kind: Kind, about: About, mut data: Value) -> Self {
        cut(&mut data);
        let data = match data {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Self { at, kind, about, data }
    }
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > LONGEST_TEXT => {
            let mut end = LONGEST_TEXT;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push('…');
        }
        Value::Array(items) => items.iter_mut().for_each(cut),
        Value::Object(members) => members.values_mut().for_each(cut),
        _ => {}
    }
}

/// An event, as it is kept and told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 1 on, which no other event of the data directory gets.
    pub id: u64,
    /// What tells it from the events of all daemons.
    pub uid: String,
    /// When, in milliseconds since 1970 UTC.
    pub at: i64,
    /// What.
    pub event: Kind,
    /// About whom.
    #[serde(flatten)]
    pub about: About,
    /// What else there is to know; the members are named at [`Kind`].
    pub data: Map<String, Value>,
}

impl Event {
    /// As others are told of it: with the name and version of the form.
    pub fn document(&self) -> Value {
        let mut document = Map::new();
        document.insert("schema".to_owned(), SCHEMA.into());
        if let Ok(Value::Object(members)) = serde_json::to_value(self) {
            document.extend(members);
        }
        Value::Object(document)
    }
}
