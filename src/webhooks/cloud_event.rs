//! An event as a CloudEvent 1.0, in structured JSON.

use serde_json::{Map, Value};

use crate::events::Event;

/// The media type.
pub(super) const TYPE: &str = "application/cloudevents+json";

/// The event as text.
pub(super) fn encode(event: &Event) -> String {
    let mut form = Map::new();
    let mut put = |name: &str, value: String| form.insert(name.to_owned(), Value::String(value));
    put("specversion", "1.0".to_owned());
    put("id", event.uid.clone());
    put("type", format!("cutover.{}", event.event));
    put("source", source(event));
    let subject = event.about.path();
    if !subject.is_empty() {
        put("subject", subject);
    }
    if let Some(time) = chrono::DateTime::from_timestamp_millis(event.at) {
        put("time", time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
    }
    // The extension of that name: it sorts as text.
    put("sequence", format!("{:020}", event.id));
    put("datacontenttype", "application/json".to_owned());
    form.insert("data".to_owned(), event.document());
    Value::Object(form).to_string()
}

/// Where it comes from, by the paths of the daemon's REST calls.
fn source(event: &Event) -> String {
    let about = &event.about;
    let parts = [("pipelines", &about.pipeline), ("views", &about.view), ("connectors", &about.connector)];
    let named = parts.into_iter().filter_map(|(what, name)| Some(format!("/{what}/{}", name.as_deref()?)));
    format!("/v1{}", named.collect::<String>())
}
