//! What there is to call, as OpenAPI 3.1 has it. Nothing is written here of any one call: that stands in its [`Call`], and
//! what is said of the forms that go over the wire, in the comments of their types.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::call::{self, Body, Call, Content, Fault, Key, Need, Reply, Shape};
use super::calls::{Calls, Route};
use super::input::Bare;
use super::problem::{self, ProblemReport};
use crate::step::Step;

const TYPE: &str = "application/json";
/// Where the forms stand, from the root of the document.
const SCHEMAS: &str = "/components/schemas";
const ABOUT: &str = "Any number of connectors and pushed views in one process. Each call under `/v1` is the same under `/v0`, \
    where Feldera's clients look for it; `x-aliases` lists where else a call is. What a call does not read (keys of the \
    query, members of the body, a body where there is none) is refused. A token is asked for when the configuration has \
    any; each role may do what those before it may: `read`, `push`, `admin`. `GET` answers `HEAD` too; other methods are \
    405 with `Allow`, other paths 404. What is no HTTP, has a head of more than 16 KiB or 64 headers, or does not arrive, \
    is answered before any call is looked for: 400, 414, 431, 408. Numbers are exact integers of up to 64 bits.";

/// What placeholders in paths stand for.
const PLACES: [(&str, &str); 4] = [
    ("p", "A pipeline's name."),
    ("v", "A view's name."),
    ("c", "A connector's name."),
    ("id", "A reset's id, a UUID."),
];
const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$";

pub(super) const DOCUMENT: Call = Call {
    id: "get_openapi",
    about: "This document.",
    more: "It is the same for every daemon of its version, and names nothing of the configuration: no token is asked for.",
    replies: &[Reply::new(200, Content::new(TYPE, Shape::Json(object)), "OpenAPI 3.1")],
    ..Call::BLANK
};

pub(super) async fn document(_: Bare) -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| of(&super::calls()).to_string());
    ([(CONTENT_TYPE, TYPE)], TEXT.as_str())
}

fn object(_: &mut SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object" })
}

/// The document of `calls`.
pub(super) fn of(calls: &Calls) -> Value {
    let mut forms = Forms::new();
    let mut paths: Map<String, Value> = Map::new();
    for route in calls.routes() {
        let path = paths.entry(&route.path).or_insert_with(|| json!({ "parameters": places(route) }));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_ascii_lowercase(), operation(route, &mut forms));
        }
    }
    let places = PLACES.iter().map(|(name, about)| ((*name).to_owned(), place(name, about)));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cutover",
            "summary": env!("CARGO_PKG_DESCRIPTION"),
            "description": ABOUT,
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE") },
        },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": {
            "parameters": places.collect::<Map<_, _>>(),
            "schemas": forms.taken(),
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of `server.auth`. Without any token in the configuration, none is asked for.",
            } },
        },
    })
}

/// The forms of what is sent and of what is answered: of those, members that are always there are required.
struct Forms {
    sent: SchemaGenerator,
    told: SchemaGenerator,
}

impl Forms {
    fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = SCHEMAS.into();
                settings.meta_schema = None;
            })
        };
        Self { sent: settings().for_deserialize().into_generator(), told: settings().for_serialize().into_generator() }
    }

    fn taken(mut self) -> Map<String, Value> {
        let mut taken = self.told.take_definitions(true);
        taken.extend(self.sent.take_definitions(true));
        taken
    }
}

fn operation(route: &Route, forms: &mut Forms) -> Value {
    let call = route.call;
    let role = call.role.map(|role| role.to_string());
    let needs = role.as_ref().map(|role| format!("Needs a token of the role `{role}`, or of a higher one."));
    let more = [call.more, needs.as_deref().unwrap_or_default()].into_iter().filter(|said| !said.is_empty());
    let keys = call.query.iter().map(|k| key(k, "query")).chain(call.headers.iter().map(|k| key(k, "header")));
    let always = [
        ("operationId", call.id.into()),
        ("summary", call.about.into()),
        ("description", more.collect::<Vec<_>>().join("\n\n").into()),
        ("security", role.map_or(json!([]), |role| json!([{ "token": [role] }]))),
        ("parameters", keys.collect()),
        ("responses", responses(route, &mut forms.told)),
        ("x-aliases", route.aliases.as_slice().into()),
    ];
    let body = call.body.as_ref().map(|body| ("requestBody", request_body(body, &mut forms.sent)));
    let endless = call.is_endless().then_some(("x-endless", true.into()));
    let members = always.into_iter().chain(body).chain(endless).filter(|(_, value)| *value != "");
    members.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>().into()
}

/// What is said of a status.
#[derive(Default)]
struct Response {
    about: Vec<String>,
    content: Map<String, Value>,
    headers: Map<String, Value>,
}

impl Response {
    fn document(self) -> Value {
        let about = self.about.join("\n\n");
        if self.content.is_empty() {
            return json!({ "description": about, "headers": self.headers });
        }
        json!({ "description": about, "headers": self.headers, "content": self.content })
    }
}

fn responses(route: &Route, forms: &mut SchemaGenerator) -> Value {
    let mut responses: BTreeMap<u16, Response> = BTreeMap::new();
    for reply in route.call.replies {
        let response = responses.entry(reply.status).or_default();
        response.about.push(reply.about.to_owned());
        response.content.extend(reply.content.as_ref().map(|c| (c.kind.to_owned(), media(c, forms))));
        let headers = reply.headers.iter();
        response
            .headers
            .extend(headers.map(|(name, about)| ((*name).to_owned(), header(about, "string", Need::Required))));
    }
    let faults = route.faults();
    for of_status in faults.chunk_by(|a, b| a.status == b.status) {
        let [Fault { status, .. }, ..] = *of_status else { continue };
        let response = responses.entry(status).or_default();
        response.about.push(of_status.iter().map(told).collect::<Vec<_>>().join("\n"));
        let codes: Vec<&str> = of_status.iter().map(|fault| fault.code).collect();
        let form = forms.subschema_for::<ProblemReport>();
        let schema = json!({ "allOf": [form, { "properties": { "error_code": { "enum": codes } } }] });
        response.content.insert(problem::TYPE.to_owned(), json!({ "schema": schema }));
        let of_all =
            problem::header(status).map(|(name, about, kind, need)| (name.to_owned(), header(about, kind, need)));
        response.headers.extend(of_all);
    }
    let documents = responses.into_iter().map(|(status, response)| (status.to_string(), response.document()));
    documents.collect::<Map<_, _>>().into()
}

fn told(fault: &Fault) -> String {
    let details: Vec<String> = fault.details.iter().map(|name| format!("`{name}`")).collect();
    let details = if details.is_empty() { String::new() } else { format!(" (`details`: {})", details.join(", ")) };
    format!("* `{}`: {}{details}", fault.code, fault.about)
}

fn header(about: &str, kind: &str, need: Need) -> Value {
    json!({ "description": about, "required": need == Need::Required, "schema": { "type": kind } })
}

fn media(content: &Content, forms: &mut SchemaGenerator) -> Value {
    match content.shape {
        Shape::Json(form) => json!({ "schema": form(forms) }),
        Shape::Text | Shape::Endless => json!({ "schema": { "type": "string" } }),
        // What is no text has no schema.
        Shape::Bytes => json!({}),
    }
}

fn request_body(body: &Body, forms: &mut SchemaGenerator) -> Value {
    let forms: Map<String, Value> = body.forms.iter().map(|c| (c.kind.to_owned(), media(c, forms))).collect();
    json!({ "description": body.about, "required": body.need == Need::Required, "content": forms })
}

fn key(key: &Key, place: &str) -> Value {
    let schema = match key.value {
        call::Value::Word(words) => json!({ "type": "string", "enum": words }),
        call::Value::Step => json!({ "type": "integer", "minimum": 0, "maximum": Step::MAX.get() }),
        call::Value::Strand => json!({ "type": "string", "pattern": "^[0-9a-f]{16}$" }),
        call::Value::Number => json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
        call::Value::Name => json!({ "type": "string", "pattern": NAME }),
        call::Value::Text(most) => json!({ "type": "string", "minLength": 1, "maxLength": most }),
    };
    json!({
        "name": key.name,
        "in": place,
        "description": key.about,
        "required": key.need == Need::Required,
        "schema": schema,
    })
}

fn places(route: &Route) -> Vec<Value> {
    route.placeholders().map(|name| json!({ "$ref": format!("#/components/parameters/{name}") })).collect()
}

fn place(name: &str, about: &str) -> Value {
    let schema = match name {
        "id" => json!({ "type": "string", "format": "uuid" }),
        _ => json!({ "type": "string", "pattern": NAME }),
    };
    json!({ "name": name, "in": "path", "description": about, "required": true, "schema": schema })
}
